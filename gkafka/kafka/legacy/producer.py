"""kafka-python 0.9's SimpleProducer and KeyedProducer (kafka.producer) on gkafka's own producer."""

from __future__ import annotations

from types import NoneType
from typing import Any

from gkafka.checks import check_count, check_flag, check_partition, check_seconds, check_topic_name
from gkafka.exceptions import BrokerError, ConfigurationError, DeliveryError, KafkaException
from gkafka.kafka import options as o
from gkafka.kafka.errors import IllegalStateError, WrongTypeError
from gkafka.kafka.legacy.client import CLIENT_NAMES, native_client
from gkafka.kafka.legacy.common import ProduceResponse
from gkafka.kafka.legacy.keywords import hinting
from gkafka.lifetime import ends
from gkafka.logs import get_logger
from gkafka.oneprocess import OfOneProcess

__all__ = ["CODEC_GZIP", "CODEC_NONE", "CODEC_SNAPPY", "KeyedProducer", "Producer", "SimpleProducer"]

log = get_logger(__name__)

CODEC_NONE, CODEC_GZIP, CODEC_SNAPPY = 0, 1, 2
ACKS = (0, 1, -1)
CODECS = {None: None, CODEC_NONE: None, CODEC_GZIP: "gzip", CODEC_SNAPPY: "snappy"}
BATCH_SEND_DEFAULT_INTERVAL = 20
BATCH_SEND_MSG_COUNT = 20
DELIVERY_MS = 120000
NAMES = {
    **CLIENT_NAMES,
    "acks": "req_acks",
    "ack_timeout_ms": "ack_timeout",
    "compression": "codec",
    "compression_level": "codec_compresslevel",
    "linger_ms": "batch_send_every_t",
    "retries": "async_retry_limit",
    "retry_backoff_ms": "async_retry_backoff_ms",
    "delivery_timeout_ms": "batch_send_every_t and two minutes",
}
"""gkafka's names of options -> those of the producers."""
telling = o.telling(NAMES, also=["__init__"])


@hinting
@telling
class Producer(OfOneProcess):
    """Base of the producers, for messages whose partition is known.

    req_acks: ACK_NOT_REQUIRED, ACK_AFTER_LOCAL_WRITE or ACK_AFTER_CLUSTER_COMMIT. ack_timeout: ms that a broker waits for replicas. codec: CODEC_NONE,
    CODEC_GZIP or CODEC_SNAPPY, with codec_compresslevel. sync_fail_on_error: raise what a broker refuses; else the response holds its code.
    async_send: do not wait for the outcome: messages go out when there are batch_send_every_n, or after batch_send_every_t seconds; what
    fails is logged. Those are sent again async_retry_limit times (None: until they have arrived, for two minutes), after async_retry_backoff_ms;
    others are not. batch_send is its older name, and so is the keyword async. async_stop_timeout: seconds that stop() waits for them. For one worker.
    """

    ACK_NOT_REQUIRED = 0
    ACK_AFTER_LOCAL_WRITE = 1
    ACK_AFTER_CLUSTER_COMMIT = -1
    DEFAULT_ACK_TIMEOUT = 1000

    def __init__(
        self,
        client: Any,
        req_acks: int = ACK_AFTER_LOCAL_WRITE,
        ack_timeout: int = DEFAULT_ACK_TIMEOUT,
        codec: int | None = None,
        codec_compresslevel: int | None = None,
        sync_fail_on_error: bool = True,
        async_send: bool = False,
        batch_send: bool = False,
        batch_send_every_n: int = BATCH_SEND_MSG_COUNT,
        batch_send_every_t: float = BATCH_SEND_DEFAULT_INTERVAL,
        async_retry_limit: int | None = None,
        async_retry_backoff_ms: float = 100,
        async_stop_timeout: float = 30,
        **old: bool,
    ) -> None:
        self.stopped, self.async_send = True, False  # until it is complete
        self._ended = True
        is_async = old.pop("async", False)  # hinting lets nothing else pass
        self.client = client
        self._client = native_client(client)
        flags = {"async_send": async_send, "batch_send": batch_send, "async": is_async}
        self.async_send = True in [check_flag(name, flag) for name, flag in flags.items()]
        if type(codec) not in (int, NoneType) or codec not in CODECS:
            raise ConfigurationError(f"codec={codec!r}: must be CODEC_NONE (0), CODEC_GZIP (1) or CODEC_SNAPPY (2)")
        if type(req_acks) is not int or req_acks not in ACKS:
            text = "must be ACK_NOT_REQUIRED (0), ACK_AFTER_LOCAL_WRITE (1) or ACK_AFTER_CLUSTER_COMMIT (-1)"
            raise ConfigurationError(f"req_acks={req_acks!r}: {text}")
        self.req_acks = req_acks
        check_seconds("ack_timeout", ack_timeout)
        if async_retry_limit is not None:
            check_count("async_retry_limit", async_retry_limit, low=0)
        check_seconds("async_retry_backoff_ms", async_retry_backoff_ms)
        self._fails = check_flag("sync_fail_on_error", sync_fail_on_error)
        self._every_n = check_count("batch_send_every_n", batch_send_every_n)
        self._stop_s = check_seconds("async_stop_timeout", async_stop_timeout)
        every_ms = check_seconds("batch_send_every_t", batch_send_every_t) * 1000
        linger_ms = every_ms if self.async_send else 0
        self._count = 0
        self._touched: set[tuple[str, int]] = set()
        request_ms = self._client.cluster.config.socket_timeout_ms
        self._producer = self._client.get_producer(
            acks=req_acks,
            ack_timeout_ms=ack_timeout,
            compression=CODECS[codec],
            compression_level=codec_compresslevel,
            enable_idempotence=False,
            linger_ms=linger_ms,
            retries=async_retry_limit if self.async_send else 0,
            retry_backoff_ms=async_retry_backoff_ms,
            request_timeout_ms=request_ms,
            delivery_timeout_ms=linger_ms + max(DELIVERY_MS, request_ms),
            on_delivery=_log_failure if self.async_send else None,
        )
        self.stopped = self._ended = False

    def __repr__(self) -> str:
        if "async_send" not in self.__dict__:  # it could not be made, and a traceback shows it
            return f"<{type(self).__name__}>"
        return f"<{type(self).__name__} {'async' if self.async_send else 'sync'}{' stopped' if self.stopped else ''}>"

    def send_messages(self, topic: str, partition: int, *msg: bytes | None) -> list[ProduceResponse]:
        """Send messages to a partition; returns one response for all of them, and nothing with async_send or acks=0."""
        return self._send(check_topic_name(topic), partition, None, msg)

    def _send(self, name: str, partition: int | None, key: bytes | None, msg: tuple[Any, ...]) -> list[ProduceResponse]:
        if self.stopped:
            raise IllegalStateError(f"{type(self).__name__} is stopped: make a new one")
        if not msg:
            raise ConfigurationError("send_messages() without a message: give one or more")
        for one in msg:
            if one is not None and not isinstance(one, bytes):
                raise WrongTypeError(f"a message of type {type(one).__name__}: must be bytes")
        deliveries = [self._producer.produce(name, one, key, partition) for one in msg]
        if not self.async_send:
            return self._outcome(name, deliveries)
        self._touched.update((name, delivery.partition) for delivery in deliveries)
        self._count += len(msg)
        if self._count >= self._every_n:
            self._count = 0
            for place in self._touched:
                self._producer.end_batch(*place)
            self._touched.clear()
        return []

    def _outcome(self, topic: str, deliveries: list[Any]) -> list[ProduceResponse]:
        found: list[Any] = []
        for delivery in deliveries:
            try:
                found.append(delivery.result())
            except BrokerError as exc:
                if self._fails:
                    raise
                return [ProduceResponse(topic, delivery.partition, exc.code, -1)]
        first = found[0]
        return [] if self.req_acks == self.ACK_NOT_REQUIRED else [ProduceResponse(topic, first.partition, 0, first.offset)]

    @ends
    def stop(self, timeout: float | None = None) -> None:
        """Send what waits, and end. timeout: seconds, None is async_stop_timeout. The client stays open. Idempotent; what is cut short is
        finished by the next one."""
        if self._ended:
            return
        self.stopped = True
        try:
            self._producer.close(self._stop_s if timeout is None else check_seconds("timeout", timeout))
        except DeliveryError as exc:
            log.error("stop: %s", exc)
        self._ended = True

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop()


@hinting
@telling
class SimpleProducer(Producer):
    """Sends to the partitions of a topic in turn. random_start: begin with any of them, not with the first. The other arguments are those of Producer."""

    def __init__(self, client: Any, *args: Any, random_start: bool = True, **options: Any) -> None:
        self.random_start = check_flag("random_start", random_start)
        try:
            super().__init__(client, *args, **options)
        finally:
            options.clear()  # a password may be among them, and the frame is a traceback's
        self._turns: dict[str, int] = {}

    def send_messages(self, topic: str, *msg: bytes | None) -> list[ProduceResponse]:  # type: ignore[override]  # kafka-python 0.9's own signatures
        """Send messages to the partition whose turn it is; returns one response for all of them, and nothing with async_send or acks=0."""
        name = check_topic_name(topic)
        partitions = self._client.partitions(name)
        if name not in self._turns:
            self._turns[name] = self._client.handler.random().randrange(len(partitions)) if self.random_start else 0
        turn = self._turns[name]
        self._turns[name] = turn + 1
        return self._send(name, partitions[turn % len(partitions)], None, msg)


@hinting
@telling
class KeyedProducer(Producer):
    """Sends to the partition that the key says. partitioner: a class, made with a topic's partitions, whose partition(key) chooses one; None: murmur2, as
    Java's. The other arguments are those of Producer."""

    def __init__(self, client: Any, *args: Any, partitioner: Any = None, **options: Any) -> None:
        if partitioner is not None and not callable(partitioner):
            raise ConfigurationError(f"partitioner={partitioner!r}: must be a class, which is made with a list of partitions")
        try:
            super().__init__(client, *args, **options)
        finally:
            options.clear()  # a password may be among them, and the frame is a traceback's
        self.partitioner_class = partitioner
        self.partitioners: dict[str, Any] = {}

    def send_messages(self, topic: str, key: bytes | None, *msg: bytes | None) -> list[ProduceResponse]:  # type: ignore[override]  # as above
        """Send messages under a key; returns one response for all of them, and nothing with async_send or acks=0."""
        if key is not None and not isinstance(key, bytes):
            raise WrongTypeError(f"a key of type {type(key).__name__}: must be bytes")
        name = check_topic_name(topic)
        return self._send(name, self._partition_of(name, key), key, msg)

    def send(self, topic: str, key: bytes | None, msg: bytes | None) -> list[ProduceResponse]:
        """send_messages() of one message."""
        return self.send_messages(topic, key, msg)

    def _partition_of(self, topic: str, key: bytes | None) -> int | None:
        if self.partitioner_class is None:
            return None
        if topic not in self.partitioners:
            self.partitioners[topic] = self.partitioner_class(self._client.partitions(topic))
        return check_partition("partitioner's partition", self.partitioners[topic].partition(key))


def _log_failure(delivery: Any) -> None:
    error = delivery.exception()
    if isinstance(error, KafkaException):
        log.error("a message was not delivered: %s", error)
