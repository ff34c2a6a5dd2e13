"""pykafka's Producer: one topic, its keywords and its defaults. A skin of `gkafka.nativeproducer`.

Documented: pykafka-2.0.4 Producer; keywords that are newer are those of pykafka 2.8.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from gkafka import records
from gkafka.common import CompressionType, TimestampType
from gkafka.config import ProducerConfig, build
from gkafka.exceptions import ConfigurationError, DeliveryError, KafkaException, ProducerQueueFullError, ProducerStoppedException
from gkafka.nativeproducer import NativeProducer
from gkafka.partitioners import random_partitioner
from gkafka.records._message import Origin

if TYPE_CHECKING:
    from gkafka.cluster import Cluster
    from gkafka.records import Delivery
    from gkafka.topic import Topic

__all__ = ["Producer"]

CODECS = {CompressionType.NONE: None, CompressionType.GZIP: "gzip", CompressionType.SNAPPY: "snappy", CompressionType.LZ4: "lz4"}
CODECS[CompressionType.ZSTD] = "zstd"
SLICE_S = 0.1


class Producer:
    """Sends messages to a topic.

    cluster, topic: what it was made from. partitioner: callable (list of Partition, key) -> Partition. compression: CompressionType.
    max_retries, retry_backoff_ms: further tries of a batch and the pause before them. required_acks: 0, 1 or -1 (all in-sync replicas).
    ack_timeout_ms: longest wait of the broker for its replicas, and of the producer for the answer. max_queued_messages: messages without
    an outcome; with that many, produce() waits, or raises ProducerQueueFullError if block_on_queue_full is off. min_queued_messages: with
    that many they are sent at once, whatever linger_ms says. linger_ms: longest wait for more messages, 0 for none.
    max_request_size: bytes of one message and of one request. sync: produce() returns when the message is acknowledged.
    delivery_reports: get_delivery_report() gives the outcome of each message. pending_timeout_ms: longest that stop() waits, per the
    documentation after the last message was sent; here until it gives up on those without an outcome. auto_start: start at once.
    serializer: callable (message, partition_key) -> (message, partition_key). options: further fields of `gkafka.config.ProducerConfig`.
    """

    def __init__(
        self,
        cluster: Cluster,
        topic: Topic,
        partitioner: Callable[[Any, Any], Any] | None = None,
        compression: int = CompressionType.NONE,
        max_retries: int = 3,
        retry_backoff_ms: int = 100,
        required_acks: int = 1,
        ack_timeout_ms: int = 10 * 1000,
        max_queued_messages: int = 100000,
        min_queued_messages: int = 70000,
        linger_ms: float = 5 * 1000,
        block_on_queue_full: bool = True,
        max_request_size: int = 1000012,
        sync: bool = False,
        delivery_reports: bool = False,
        pending_timeout_ms: int = 5 * 1000,
        auto_start: bool = True,
        serializer: Callable[[Any, Any], tuple[Any, Any]] | None = None,
        **options: Any,
    ) -> None:
        if compression not in CODECS:
            raise ConfigurationError(f"compression={compression!r}: must be a CompressionType: {', '.join(map(str, CompressionType))}")
        if required_acks not in (-1, 0, 1):
            raise ConfigurationError(
                f"required_acks={required_acks!r}: must be -1 (all in-sync replicas), 0 or 1; brokers since 0.9 refuse others"
            )
        for name, number, low in (("max_queued_messages", max_queued_messages, 1), ("min_queued_messages", min_queued_messages, 1)):
            if isinstance(number, bool) or not isinstance(number, int) or number < low:
                raise ConfigurationError(f"{name}={number!r}: must be {low} or more")
        for name, fn in (("partitioner", partitioner), ("serializer", serializer)):
            if fn is not None and not callable(fn):
                raise ConfigurationError(f"{name}={fn!r}: must be callable")
        self._config = build(
            ProducerConfig,
            {
                "acks": required_acks,
                "enable_idempotence": False,
                "compression": CODECS[CompressionType(compression)],
                "retries": max_retries,
                "retry_backoff_ms": retry_backoff_ms,
                "request_timeout_ms": ack_timeout_ms,
                "linger_ms": linger_ms,
                "max_request_bytes": max_request_size,
                "max_in_flight": 1,
                "max_block_ms": 1000.0 * 3600 * 24 * 365,
                # The documented linger has no upper bound; a message lingers before its delivery can begin.
                "delivery_timeout_ms": 120000 + max(0.0, float(linger_ms) if isinstance(linger_ms, (int, float)) else 0.0),
                **options,
            },
            where="Producer()",
        )
        self._cluster, self._topic, self._handler = cluster, topic, cluster.handler
        self._partitioner = partitioner or random_partitioner
        self._max_queued, self._min_queued, self._block = (
            max_queued_messages,
            min(min_queued_messages, max_queued_messages),
            block_on_queue_full,
        )
        self._synchronous, self._pending_timeout_ms, self._serializer = sync, pending_timeout_ms, serializer
        self._reports: Any = self._handler.Queue() if delivery_reports else None
        self._engine: NativeProducer | None = None
        self._produced = 0
        self._running = False
        if auto_start:
            self.start()

    def __repr__(self) -> str:
        return f"<{type(self).__module__}.{type(self).__name__} at {id(self):#x} (topic={self._topic.name}, running={self._running})>"

    def start(self) -> None:
        """Begin to accept messages. Called by the constructor unless auto_start=False; after stop() it begins again."""
        if not self._running:
            self._handler.check_fork()
            self._engine, self._produced, self._running = NativeProducer(self._cluster, self._config), 0, True

    def stop(self) -> None:
        """Send what is pending, then stop. Idempotent.

        Raises DeliveryError listing the messages that could not be delivered; not with sync=True, where each produce() has raised its own.
        """
        if self._running and self._engine is not None:
            self._running = False
            try:
                self._engine.close(self._pending_timeout_ms / 1000)
            except DeliveryError:
                if not self._synchronous:
                    raise

    def __enter__(self) -> Producer:
        self.start()
        return self

    def __exit__(self, exc_type: Any, exc_value: Any, traceback: Any) -> None:
        self.stop()

    def _running_engine(self) -> NativeProducer:
        if not self._running or self._engine is None:
            raise ProducerStoppedException("the producer is not running: call start(), or use it in a with block")
        return self._engine

    def produce(self, message: bytes | None, partition_key: bytes | None = None, timestamp: Any = None) -> Any:
        """Accept a message; with sync=True send it and wait until it is acknowledged.

        message: bytes, None sends a null payload; partition_key: bytes for the partitioner, sent as the message's key; timestamp: ms
        since the epoch or a datetime, None is now. Returns the delivery's view (pykafka: None, or the message).
        Raises ProducerStoppedException, ProducerQueueFullError, and with sync=True the error of the delivery.
        """
        engine = self._running_engine()
        if self._serializer is not None:
            message, partition_key = self._serializer(message, partition_key)
        if hasattr(timestamp, "timestamp"):
            timestamp = int(timestamp.timestamp() * 1000)
        self._wait_for_slot(engine)
        partitions = list(self._topic.partitions.values())
        chosen: Any = self._partitioner(partitions, partition_key)
        delivery = engine.produce(self._topic.name, message, partition_key, chosen if isinstance(chosen, int) else chosen.id, timestamp)
        self._produced += 1
        if self._reports is not None:
            delivery.add_done_callback(self._report)
        if self._synchronous:
            delivery.result()
        elif self.pending >= self._min_queued:
            engine.send_now()
        return delivery

    @property
    def pending(self) -> int:
        """Messages without an outcome yet."""
        return self._produced - (self._engine.settled_records if self._engine is not None else 0)

    def _wait_for_slot(self, engine: NativeProducer) -> None:
        """Room for one message, by max_queued_messages."""
        while self.pending >= self._max_queued:
            if not self._block:
                raise ProducerQueueFullError(f"{self.pending} messages wait for an outcome, max_queued_messages={self._max_queued}")
            engine.send_now()
            engine.wait_for_outcome(SLICE_S)
            self._running_engine()

    def _report(self, delivery: Delivery) -> None:
        error = delivery.exception(0)
        offset = -1 if error is not None else delivery.result(0).offset
        self._reports.put((self._message(delivery, offset), error))

    def _message(self, delivery: Delivery, offset: int) -> Any:
        """The message as it was sent: its delivery gives its memory back soon after this."""
        record = delivery.record or records.Record(delivery.topic, delivery.partition, None, None, [], -1)
        topic, partition, key, value, headers, timestamp = record
        origin = Origin(topic, partition, self._topic.partitions.get(partition))
        return records.make_message(origin, offset, timestamp, TimestampType.CREATE_TIME, key, value, headers)

    def get_delivery_report(self, block: bool = True, timeout: float | None = None) -> tuple[Any, KafkaException | None]:
        """(message, error or None) of a message whose outcome is known; its offset is -1 if there is an error or the broker did not say.

        Raises the handler's QueueEmptyError (queue.Empty); needs delivery_reports=True.
        """
        if self._reports is None:
            raise ConfigurationError("get_delivery_report needs delivery_reports=True")
        report: tuple[Any, KafkaException | None] = self._reports.get(block, timeout)
        return report

    def _wait_all(self) -> None:
        """Wait until every message has an outcome. Raises KafkaTimeoutError."""
        self._running_engine().flush()
