"""KafkaProducer (kafka.producer.kafka): kafka-python's producer on gkafka's native one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import NoneType
from typing import Any, ClassVar

from gkafka.checks import check_time_left, check_topic_name, check_wait
from gkafka.client import KafkaClient
from gkafka.exceptions import (
    BrokerError,
    DeliveryError,
    KafkaException,
    MessageSizeTooLarge,
    RecordTooLarge,
    UnknownTopicError,
    UnsupportedCodec,
)
from gkafka.kafka import options as o
from gkafka.kafka.arguments import check_partition, flags
from gkafka.kafka.ending import Ending
from gkafka.kafka.errors import IllegalStateError, NothingToSend, UnknownTopicTimeoutError, UnusableCodecError, WrongTypeError
from gkafka.kafka.future import Future
from gkafka.kafka.metrics import flat
from gkafka.kafka.metrics.rates import Rates
from gkafka.kafka.metrics.reporters import Reporters
from gkafka.kafka.partitioner import DefaultPartitioner
from gkafka.kafka.producer.future import FutureRecordMetadata
from gkafka.kafka.producer.names import NAMES, OTHER_NAMES, check_codec, raised, sizes
from gkafka.kafka.producer.placing import Placing, chooser
from gkafka.kafka.serializer import as_function
from gkafka.lifetime import ends
from gkafka.logs import get_logger
from gkafka.oneprocess import OfOneProcess
from gkafka.sasloptions import hide_secrets
from gkafka.skins import GroupMetadata
from gkafka.undoing import Undoing

__all__ = ["KafkaProducer"]

log = get_logger(__name__)

DEFAULT = DefaultPartitioner()
Serialize = Callable[[str, Any], Any]
"""The topic and a key or value -> what is sent."""


@o.telling(OTHER_NAMES, but=["send"])
@flags
class KafkaProducer(OfOneProcess):
    """Publishes records. Thread safe; greenlets may share it as well.

    Keyword arguments: DEFAULT_CONFIG, as kafka-python 1.4 documents them; of newer versions headers, enable_idempotence, transactional_id and
    what belongs to them, delivery_timeout_ms, partitioner classes and sasl_ options. handler: "auto", "threading", "gevent" or a Handler.
    With enable_idempotence=True or a transactional_id, acks is 'all' and retries go on until delivery_timeout_ms, unless they are given.
    Whatever `retries` is, a batch in flight is sent again after the producer's worker was interrupted (a signal handler's exception under
    gevent): without idempotence its records may be there twice.
    Raises ConfigurationError for an option that is none or would have no effect, NoBrokersAvailable, which is a
    KafkaTimeoutError, too, if no broker answers (without api_version).
    Reference: kafka-python 1.4, KafkaProducer.
    """

    DEFAULT_CONFIG: ClassVar[dict[str, Any]] = {
        **o.CLIENT,
        "client_id": None,
        "request_timeout_ms": 30000,
        "key_serializer": None,
        "value_serializer": None,
        "acks": 1,
        "enable_idempotence": False,
        "transactional_id": None,
        "transaction_timeout_ms": 60000,
        "delivery_timeout_ms": 120000,
        "compression_type": None,
        "retries": 0,
        "batch_size": 16384,
        "linger_ms": 0,
        "partitioner": DEFAULT,
        "buffer_memory": 33554432,
        "max_block_ms": 60000,
        "max_request_size": 1048576,
    }

    def __init__(self, **configs: Any) -> None:
        self._closed = True  # until it is complete
        configs = hide_secrets(configs, self.DEFAULT_CONFIG)
        self.config = o.merge(self.DEFAULT_CONFIG, configs, "KafkaProducer()", measured=True)
        for name in ("key_serializer", "value_serializer"):
            if not _serializes(self.config[name]):
                raise WrongTypeError(f"{name}={self.config[name]!r}: must be callable with what is sent, or a Serializer")
        self._key = as_function(self.config["key_serializer"], "serialize")
        self._value = as_function(self.config["value_serializer"], "serialize")
        self._ending = Ending(self.config["key_serializer"], self.config["value_serializer"])
        self._rates = Rates(self.config, lambda: self._client.handler.monotonic())
        choosing = chooser(self.config["partitioner"])
        self._alone = self.config["batch_size"] == 0
        taken = self._native_options(configs)
        self._reporters = Reporters(self.config["metric_reporters"], self.config, self._metrics)
        with o.told_as(OTHER_NAMES):
            client = o.client_options(self.config, named="kafka-python-producer-%d")
            self._name = client["client_id"]
            self._client = KafkaClient(**client)
        self._client.cluster.called = type(self).__name__
        self._client.cluster.topic_patience_s = None  # it may be made within max_block_ms
        with Undoing(self._give_up):
            try:
                o.reach(self._client, self.config)
                check_codec(self.config, client.get("broker_version"), self._client.cluster.versions)
                with o.told_as(OTHER_NAMES):
                    self._producer = self._client.get_producer(**taken)
            except UnsupportedCodec as exc:
                raise UnusableCodecError(str(exc)) from exc
        self._producer.answer_with(FutureRecordMetadata, self._refused, raised)
        self._producer.retry_what_was_not_sent()  # there it waits for its connection, and `retries` counts what was sent again
        self._placing = (
            Placing(*choosing, self._producer, self._client.cluster.metadata, self.partitions_for) if choosing is not None else None
        )
        if self._key is not None or self._value is not None or self._placing is not None:
            self._producer.look_often()
        self._metrics()  # from here on rates count
        self._reporters.look()
        self._closed = False
        if self._placing is None and not self._alone and type(self).send is _SEND:
            self.send = _serialized(self._producer.send, self._key, self._value)  # type: ignore[method-assign]  # no method of ours in between

    def _native_options(self, given: Mapping[str, Any]) -> dict[str, Any]:
        options = self.config
        taken = o.native(options, NAMES)
        safe = options["transactional_id"] is not None or options["enable_idempotence"] is True
        taken["acks"] = "all" if safe and "acks" not in given else options["acks"]
        retries = options["retries"]
        taken["retries"] = None if (safe and "retries" not in given) or retries == float("inf") else retries
        if options["transactional_id"] is None or "enable_idempotence" in given:
            taken["enable_idempotence"] = options["enable_idempotence"]
        return {**taken, **sizes(options)}

    def _give_up(self) -> None:
        self._client.close(0)
        self._reporters.close()

    def __repr__(self) -> str:
        if not hasattr(self, "_client"):  # where a traceback shows the arguments of a call that failed
            return f"<{type(self).__name__} that was not made>"
        return f"<{type(self).__name__} client_id={self._name!r}{' closed' if self._closed else ''}>"

    # -- sending ---------------------------------------------------------------------------------------------------------------
    def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        headers: list[tuple[str, bytes]] | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> Any:
        """Publish a record: it goes to a buffer, and the future that is returned at once tells where it went, or why it did not.

        value, key: bytes-like, or what the serializers take; one of them may be None. headers: (str, bytes) pairs. timestamp_ms: since the epoch,
        None is now. Waits up to max_block_ms for the topic to be known and for room in buffer_memory. Raises KafkaTimeoutError then, NothingToSend
        (an AssertionError and a ValueError) without key and value, what is both for a partition that is not there, SerializationError (a TypeError)
        for what is no bytes, IllegalStateError when closed. What a broker or max_request_size refuses is told by the future.
        """
        if value is None and key is None:
            raise _nothing(topic)
        given_key, given_value = key, value
        if self._key is not None:
            key = self._key(topic, key)
        if self._value is not None:
            value = self._value(topic, value)
        if self._placing is not None and partition is None and isinstance(key, (bytes, bytearray, memoryview, NoneType)):
            name = topic if type(topic) is str else check_topic_name(topic)
            future = self._placing.send(name, (given_key, key, given_value, value), headers, timestamp_ms)
        else:
            future = self._producer.send(topic, value, key, headers, partition, timestamp_ms)
        if self._alone and isinstance(future, FutureRecordMetadata):
            self._producer.end_batch(future.topic, future.partition)
        return future

    def _refused(self, error: KafkaException) -> Future:
        if isinstance(error, UnknownTopicError):
            raise self._not_there(error) from error
        if isinstance(error, RecordTooLarge):
            refusal: BrokerError = MessageSizeTooLarge(self._by_its_bound(str(error)), topic=error.topic)
            refusal.__cause__ = error
            return Future(self._client.handler).failure(refusal)
        return Future(self._client.handler).failure(error)

    def _not_there(self, error: UnknownTopicError) -> UnknownTopicTimeoutError:
        return UnknownTopicTimeoutError(f"{error} (waited max_block_ms={self.config['max_block_ms']:g})", **error.about)

    def _by_its_bound(self, text: str) -> str:
        """Where buffer_memory is less than max_request_size, it was the bound."""
        room = self._producer.config.buffer_bytes
        return text.replace(f"max_request_size={room}:", f"buffer_memory={room}:") if self.config["max_request_size"] > room else text

    def flush(self, timeout: float | None = None) -> None:
        """Wait until every record sent before has its outcome. timeout: seconds, None as long as that takes, less than nothing is 0. Raises
        KafkaTimeoutError; what failed is told by its future."""
        try:
            self._producer.flush(None if timeout is None else check_time_left("timeout", timeout))
        except DeliveryError as exc:
            log.warning("flush: %s", exc)

    def partitions_for(self, topic: str) -> set[int]:
        """The partitions of a topic. Waits up to max_block_ms for a topic that is not known; raises KafkaTimeoutError then."""
        self._client.handler.check_fork()
        deadline = self._client.handler.monotonic() + self.config["max_block_ms"] / 1000
        try:
            return set(self._client.cluster.wait_for_topic(check_topic_name(topic), deadline, writes=True).partitions)
        except UnknownTopicError as exc:
            raise self._not_there(exc) from exc

    def bootstrap_connected(self) -> bool:
        """Did a broker answer?"""
        return self._client.cluster.versions is not None

    def metrics(self, raw: bool = False) -> dict[str, Any]:
        """Numbers by group, as {"producer-metrics": {name: number}}: counters, and of each how fast it grows, `<name>_rate` per second, in the last
        metrics_num_samples windows of metrics_sample_window_ms. raw: `stats()` of the native client instead."""
        self._reporters.look()
        return self._client.stats() if raw else self._metrics()

    def _metrics(self) -> dict[str, dict[str, float]]:
        stats = self._client.stats()
        return {"producer-metrics": self._rates.beside(flat(stats["producers"][0])) if stats["producers"] else {}}

    # -- transactions ----------------------------------------------------------------------------------------------------------
    def init_transactions(self) -> None:
        """Take the transactional_id over from whoever had it, ending what that left open. Once, before the first transaction."""
        self._producer.init_transactions()

    def begin_transaction(self) -> None:
        """Everything that is sent from here on belongs together, until it is committed or aborted."""
        self._producer.begin_transaction()

    def commit_transaction(self) -> None:
        """Flush, and have all of it become visible at once."""
        self._producer.commit_transaction()

    def abort_transaction(self) -> None:
        """Drop all of it."""
        self._producer.abort_transaction()

    def send_offsets_to_transaction(self, offsets: Mapping[Any, Any], consumer_group_id: Any = None, *, group_metadata: Any = None) -> None:
        """Commit a group's offsets with the transaction. offsets: {TopicPartition: OffsetAndMetadata}; consumer_group_id, which 3.0 calls
        group_metadata: the group's name, or what `KafkaConsumer.group_metadata()` gave (KIP-447)."""
        if (consumer_group_id is None) == (group_metadata is None):
            raise WrongTypeError("consumer_group_id, group_metadata: give one of them, the group's name or what group_metadata() gave")
        consumer_group_id = group_metadata if consumer_group_id is None else consumer_group_id
        group = consumer_group_id if isinstance(consumer_group_id, GroupMetadata) else GroupMetadata(consumer_group_id)
        if not isinstance(offsets, Mapping):
            raise WrongTypeError(f"offsets={offsets!r}: must be {{TopicPartition: OffsetAndMetadata}}")
        self._producer.send_offsets({check_partition(tp): _offset(entry) for tp, entry in offsets.items()}, group)

    # -- the end ---------------------------------------------------------------------------------------------------------------
    @ends
    def close(self, timeout: float | None = None) -> None:
        """Send what is buffered, and end. timeout: seconds for that. What was not delivered by then fails, as its future says, with an error in the log.
        Idempotent; what is cut short is finished by the next one."""
        if self._ending.is_done:
            return
        if timeout is not None:
            check_wait("timeout", timeout)
        self._closed = True
        self.send = self._is_closed  # type: ignore[method-assign]  # no look at `closed` for each record
        self._ending.run(lambda: self._end(timeout))

    def _end(self, timeout: float | None) -> None:
        try:
            self._client.close(timeout)
        except DeliveryError as exc:
            log.warning("close: %s", exc)
        self._reporters.close()
        if self._producer.gave_up:
            lost = ", ".join(f"{count} of topic {topic!r}" for topic, count in self._producer.gave_up.items())
            log.error("close(timeout=%s) gave up records that were not delivered in time, as their futures say: %s", timeout, lost)

    def _is_closed(self, *args: Any, **kwargs: Any) -> Any:
        raise IllegalStateError("KafkaProducer is closed: make a new one")

    def __enter__(self) -> KafkaProducer:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


def _serializes(given: Any) -> bool:
    return given is None or callable(given) or callable(getattr(given, "serialize", None))


def _offset(entry: Any) -> tuple[int, str, int]:
    """The offset of an OffsetAndMetadata, its metadata and its leader_epoch."""
    offset = entry[0] if isinstance(entry, tuple) and entry else entry
    metadata = entry[1] if isinstance(entry, tuple) and len(entry) > 1 else None
    if type(offset) is not int:
        raise WrongTypeError(f"offsets: {entry!r} must be an OffsetAndMetadata")
    epoch = entry[2] if isinstance(entry, tuple) and len(entry) > 2 else getattr(entry, "leader_epoch", None)
    return offset, metadata if metadata is not None else "", epoch if epoch is not None else -1


_SEND = KafkaProducer.send


def _nothing(topic: Any) -> NothingToSend:
    return NothingToSend(f"a record for {topic!r} with neither a key nor a value: give one of them")


def _serialized(append: Callable[..., Any], key_of: Serialize | None, value_of: Serialize | None) -> Callable[..., Any]:
    """Return `KafkaProducer.send` of a producer that has serializers at most, with as few steps for each record as that takes.

    append: the same without serializers, one compiled call. It is returned itself if there are none.
    """
    if key_of is None and value_of is None:
        return append

    def send(
        topic: str, value: Any = None, key: Any = None, headers: Any = None, partition: int | None = None, timestamp_ms: int | None = None
    ) -> Any:
        if value is None and key is None:
            raise _nothing(topic)
        if key_of is not None:
            key = key_of(topic, key)
        if value_of is not None:
            value = value_of(topic, value)
        return append(topic, value, key, headers, partition, timestamp_ms)

    return send


"""What a subclass, or a tool that wraps the class's method, may have put something else in the place of: then that is called."""
