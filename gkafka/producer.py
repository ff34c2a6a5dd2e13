"""pykafka's Producer: one topic, its keywords and its defaults. A skin of `gkafka.nativeproducer`.

Documented: pykafka-2.0.4 Producer; keywords that are newer are those of pykafka 2.8.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, NoReturn

from gkafka.checks import check_count, check_flag, check_seconds, check_time_left, find_index, milliseconds
from gkafka.common import CompressionType
from gkafka.config import ProducerConfig, build
from gkafka.deliveryreports import Reports
from gkafka.exceptions import (
    ConfigurationError,
    KafkaException,
    KafkaTimeoutError,
    MessageSizeTooLarge,
    ProduceFailureError,
    ProducerQueueFullError,
    ProducerStoppedException,
    RecordTooLarge,
    SerializationError,
)
from gkafka.intake import Intake
from gkafka.lifetime import ends
from gkafka.nativeproducer import NativeProducer
from gkafka.oneprocess import OfOneProcess
from gkafka.ownedbroker import OwnedBroker
from gkafka.partitioners import RandomPartitioner, random_partitioner
from gkafka.unseen import described

if TYPE_CHECKING:
    from gkafka.cluster import Cluster
    from gkafka.records import Delivery, Lane
    from gkafka.topic import Topic

__all__ = ["OwnedBroker", "Producer"]

CODECS = {CompressionType.NONE: None, CompressionType.GZIP: "gzip", CompressionType.SNAPPY: "snappy", CompressionType.LZ4: "lz4"}
CODECS[CompressionType.ZSTD] = "zstd"
SLICE_S = 0.1
INF = float("inf")
UNCHOSEN: Any = object()
FOREVER_MS = 1000.0 * 3600 * 24 * 365
LONGEST_REST_S = 60.0
"""queue_empty_timeout_ms=-1: a worker whose producer was dropped is gone after that."""


class OversizeMessage(MessageSizeTooLarge, RecordTooLarge):
    """A message is larger than max_request_size. It was not accepted."""


class Producer(OfOneProcess):
    """Sends messages to a topic.

    cluster, topic: what it was made from. partitioner: callable (list of Partition, key) -> Partition; None: those that have a leader, in
    turn. compression: CompressionType. max_retries: tries of a batch before its messages have failed (whatever it is, a batch in
    flight is sent again after the producer's worker was interrupted, and may be there twice without enable_idempotence=True); retry_backoff_ms:
    the pause between them. required_acks: 0, 1 or -1 (all in-sync replicas). ack_timeout_ms: longest wait of the broker for its replicas.
    max_queued_messages: messages without an outcome; with that many, produce() waits, or raises ProducerQueueFullError if
    block_on_queue_full is off. min_queued_messages: with that many unsent they are sent at once, whatever linger_ms says. linger_ms:
    longest wait for more messages, 0 for none. queue_empty_timeout_ms: how long the worker rests while there is nothing to send, -1 until
    there is; 0 leaves it at a second. max_request_size: bytes of one message and of one request. sync: produce() returns when the message
    is acknowledged. delivery_reports: get_delivery_report() gives the outcome of each message; of no effect with sync.
    pending_timeout_ms: longest wait of a sync produce() for its outcome and of stop() for all; -1: until each has one.
    auto_start: start at once. serializer: callable (message, partition_key) -> (message, partition_key). options: further fields of
    `gkafka.config.ProducerConfig`.
    """

    def __init__(
        self,
        cluster: Cluster,
        topic: Topic,
        partitioner: Callable[[Any, Any], Any] | None = None,
        compression: int = 0,
        max_retries: int = 3,
        retry_backoff_ms: int = 100,
        required_acks: int = 1,
        ack_timeout_ms: int = 10 * 1000,
        max_queued_messages: int = 100000,
        min_queued_messages: int = 70000,
        linger_ms: float = 5 * 1000,
        queue_empty_timeout_ms: int = 0,
        block_on_queue_full: bool = True,
        max_request_size: int = 1000012,
        sync: bool = False,
        delivery_reports: bool = False,
        pending_timeout_ms: int = 5 * 1000,
        auto_start: bool = True,
        serializer: Callable[[Any, Any], tuple[Any, Any]] | None = None,
        **options: Any,
    ) -> None:
        for name, flag in (
            ("block_on_queue_full", block_on_queue_full),
            ("sync", sync),
            ("delivery_reports", delivery_reports),
            ("auto_start", auto_start),
        ):
            check_flag(name, flag)
        if find_index(compression, len(CODECS)) is None:
            raise ConfigurationError(f"compression={compression!r}: must be a CompressionType: {', '.join(map(str, CompressionType))}")
        if required_acks not in (-1, 0, 1) or isinstance(required_acks, bool):
            raise ConfigurationError(
                f"required_acks={required_acks!r}: must be -1 (all in-sync replicas), 0 or 1; brokers since 0.9 refuse others"
            )
        for name, fn in (("partitioner", partitioner), ("serializer", serializer)):
            if fn is not None and not callable(fn):
                raise ConfigurationError(f"{name}={fn!r}: must be callable")
        linger = check_seconds("linger_ms", linger_ms)
        tries = check_count("max_retries", max_retries, low=0)
        ack_timeout = check_count("ack_timeout_ms", ack_timeout_ms, low=0)
        self._config = build(
            ProducerConfig,
            {
                "acks": required_acks,
                "enable_idempotence": False,
                "compression": CODECS[CompressionType(compression)],
                "retries": max(0, tries - 1),
                "retry_backoff_ms": retry_backoff_ms,
                "retry_backoff_max_ms": retry_backoff_ms,
                "ack_timeout_ms": ack_timeout,
                "request_timeout_ms": max(1, ack_timeout, cluster.config.socket_timeout_ms),
                "linger_ms": linger_ms,
                "max_request_bytes": max_request_size,
                "max_in_flight": 1,
                "max_block_ms": FOREVER_MS,
                # The documented linger has no upper bound; a message lingers before its delivery can begin.
                "delivery_timeout_ms": 120000 + max(0.0, linger),
                **options,
            },
            where="Producer()",
            owner=Producer,
        )
        if self._config.interceptors or Intake.is_needed(self._config):
            self._config = replace(self._config, partitioner=self._choose_behind)
        self._cluster, self._topic, self._handler = cluster, topic, cluster.handler
        self._partitioner = partitioner or random_partitioner
        self._in_turn = type(self._partitioner) is RandomPartitioner
        self._available, self._spread_version = list[int](), -1
        self._max_queued = check_count("max_queued_messages", max_queued_messages)
        self._min_queued = min(check_count("min_queued_messages", min_queued_messages), self._max_queued)
        self._rest_ms = check_count("queue_empty_timeout_ms", queue_empty_timeout_ms, low=-1)
        self._pending_timeout_ms = check_count("pending_timeout_ms", pending_timeout_ms, low=-1)
        self._block, self._synchronous, self._serializer = block_on_queue_full, sync, serializer
        self._reports: Any = self._handler.local() if delivery_reports and not sync else None
        self._engine: NativeProducer | None = None
        self._lane: Lane | None = None
        self._append: Callable[[Any, Any, Any], Any] = self.produce_slow
        self._look_at = self._generation = 0
        self._owned_brokers: dict[int, OwnedBroker] = {}
        self._running = False
        if auto_start:
            self.start()

    def __repr__(self) -> str:
        if not hasattr(self, "_running"):  # where a traceback shows the arguments of a call that failed
            return f"<{type(self).__name__} that was not made>"
        return f"<{type(self).__module__}.{type(self).__name__} at {id(self):#x} (topic={self._topic.name}, running={self._running})>"

    # -- its life ------------------------------------------------------------------------------------------------------------
    def start(self) -> None:
        """Begin to accept messages. Called by the constructor unless auto_start=False; after stop() it begins again."""
        if self._running:
            self._raise_worker_exceptions()
            return
        self._handler.check_fork()
        self._engine = engine = NativeProducer(self._cluster, self._config)
        self._use(engine)
        self._running = True

    def _use(self, engine: NativeProducer) -> None:
        """Begin to count anew, with a fast path into this engine."""
        if self._rest_ms:
            engine.rest(min(self._rest_ms / 1000, LONGEST_REST_S) if self._rest_ms > 0 else LONGEST_REST_S)
        lane = engine.lane(self, self._topic.name)
        self._look_at, self._spread_version = self._min_queued, -1
        lane.limit = self._min_queued - 1
        lane.open = True
        self._lane, self._generation = lane, engine.generation
        self._append = lane.produce if engine.takes_lanes else self.produce_slow
        lane.report_to = self._my_reports if self._reports is not None else None
        if self._serializer is not None or not self._in_turn:
            engine.look_often()
        plain = engine.takes_lanes and self._serializer is None and not self._synchronous
        if plain and type(self).produce is Producer.produce:
            # One compiled call for each message, with no Python frame between; it comes back here for what is not per message.
            self.produce = lane.produce  # type: ignore[method-assign]  # no call of ours between

    @ends
    def stop(self) -> None:
        """Send what is pending, then stop. Idempotent.

        Raises DeliveryError listing the messages that could not be delivered, but for those of which somebody was told already: by the error of its
        own produce() with sync=True, by its report that was taken with delivery_reports=True. Reports can be taken afterwards, too.
        """
        if self._engine is None or self._lane is None:
            return
        self._running = self._lane.open = False
        self._engine.close(self._pending_timeout())  # after a stop() that was cut short, this goes on with what is left

    def _pending_timeout(self) -> float | None:
        """Seconds; None: until every message has an outcome, which each has after a while."""
        return None if self._pending_timeout_ms < 0 else self._pending_timeout_ms / 1000

    def __enter__(self) -> Producer:
        self.start()
        return self

    def __exit__(self, exc_type: Any, exc_value: Any, traceback: Any) -> None:
        self.stop()

    def _parts(self) -> tuple[NativeProducer, Lane]:
        if not self._running or self._engine is None or self._lane is None:
            raise ProducerStoppedException("the producer is not running: call start(), or use it in a with block")
        self._engine.check_process()
        if self._engine.generation != self._generation:
            self._go_on_after_fork(self._engine)
        return self._engine, self._lane

    def _go_on_after_fork(self, engine: NativeProducer) -> None:
        """With on_fork="recreate", in a child: the topic of the new connections, and nothing of the parent's is counted."""
        topic = engine.cluster.topics[self._topic.name]
        with engine.making:
            if engine.generation == self._generation:
                return
            self._cluster, self._topic, self._handler = engine.cluster, topic, engine.handler
            self._reports = self._handler.local() if self._reports is not None else None
            self._owned_brokers = {}
            self._use(engine)

    # -- a message's way -----------------------------------------------------------------------------------------------------
    def produce(self, message: bytes | None, partition_key: bytes | None = None, timestamp: Any = None) -> Any:
        """Accept a message; with sync=True send it and wait until it is acknowledged.

        message: bytes, None sends a null payload; partition_key: bytes for the partitioner, sent as the message's key; timestamp: ms
        since the epoch or a datetime (UTC if it names no zone), None is now. Returns with sync=True the Message, as get_delivery_report()
        gives it, else the `gkafka.records.Delivery`: nothing is kept for each message that nobody waits for.
        Raises ProducerStoppedException, ProducerQueueFullError, SerializationError for what is not bytes, MessageSizeTooLarge (which is a
        RecordTooLarge, too) for what is over max_request_size, and with sync=True the error of
        the delivery, or ProduceFailureError if it has no outcome within pending_timeout_ms.
        """
        if self._serializer is not None:
            try:
                message, partition_key = self._serializer(message, partition_key)
            except Exception as exc:
                raise SerializationError(
                    f"the serializer failed on {type(message).__name__}: {described(exc)}; it must return (message, partition_key)"
                ) from exc
        delivery = self._append(message, partition_key, timestamp)
        if self._synchronous:
            self._wait_for(delivery)
            return Reports(self._handler, self._topic).message_of(delivery, message, partition_key)
        return delivery

    def produce_slow(self, message: Any, partition_key: Any, timestamp: Any, chosen: Any = UNCHOSEN) -> Any:
        """What the fast path does not take: all that is not one record more in a batch that is open. chosen: by the partitioner, or by its turn."""
        engine, lane = self._parts()
        partition = self._choose(engine, lane, partition_key, chosen) if engine.takes_lanes else None
        return self._accept(message, partition_key, partition, self.milliseconds(timestamp))

    @staticmethod
    def milliseconds(timestamp: Any) -> Any:
        """ms since the epoch of what may be a datetime; one without a zone is UTC, as pykafka's are."""
        return milliseconds(timestamp) if isinstance(timestamp, datetime) else timestamp

    def _choose(self, engine: NativeProducer, lane: Lane, key: Any, chosen: Any) -> int:
        """The partition's id, by the partitioner. Tells the fast path which partitions there are."""
        count = engine.know_topic(self._topic.name)
        if self._in_turn:
            return chosen if chosen in self._spread(engine, lane) else lane.next_turn()
        partitions = list(self._topic.partitions.values())
        version = self._cluster.metadata.version
        if version != self._spread_version:
            lane.partition_by(self._partitioner, partitions)
            self._spread_version = version
        if chosen is UNCHOSEN:
            try:
                chosen = self._partitioner(partitions, key)
            except Exception as exc:
                self.partitioner_failed(exc)
        number = find_index(getattr(chosen, "id", chosen), count)
        if number is None:
            raise ConfigurationError(
                f"the partitioner chose {chosen!r}: topic {self._topic.name!r} has the partitions 0 to {count - 1}", topic=self._topic.name
            )
        return number

    def _choose_behind(self, ids: list[int], key: bytes | None) -> Any:
        """The partitioner of an engine with interceptors or serializers, which alone knows the key that a message goes out with."""
        if self._in_turn:
            engine, lane = self._parts()
            self._spread(engine, lane)
            return lane.next_turn()
        chosen = self._partitioner([partition for partition in self._topic.partitions.values() if partition.id < len(ids)], key)
        return getattr(chosen, "id", chosen)

    def partitioner_failed(self, error: Exception) -> NoReturn:
        """Raise what the partitioner raised as an error that names it: the message was not accepted."""
        raise ConfigurationError(
            f"the partitioner failed for topic {self._topic.name!r}: {described(error)}", topic=self._topic.name
        ) from error

    def _spread(self, engine: NativeProducer, lane: Lane) -> list[int]:
        """The partitions that are taken in turn: those that have a leader, by the newest metadata."""
        version = self._cluster.metadata.version
        if version != self._spread_version:
            self._available = engine.led_partitions(self._topic.name)
            lane.spread(self._available)
            self._spread_version = version
        return self._available

    def _accept(self, message: Any, key: Any, partition: int | None, timestamp: int | None) -> Delivery:
        engine, lane = self._take_slot()
        try:
            delivery = engine.produce(self._topic.name, message, key, partition, timestamp)
        except BaseException as exc:
            lane.give_back()
            if isinstance(exc, RecordTooLarge):
                raise OversizeMessage(str(exc).replace("max_request_bytes", "max_request_size"), **exc.about) from exc
            if isinstance(exc, SerializationError):  # one option is for both here
                exc.args = (
                    str(exc).replace("set value_serializer", "give a serializer").replace("set key_serializer", "give a serializer"),
                )
            raise
        finally:
            self._bound(engine, lane)
        if self._reports is not None:
            self._my_reports().expect(delivery, message, key)
        return delivery

    def _wait_for(self, delivery: Delivery) -> None:
        try:
            delivery.result(self._pending_timeout())
        except KafkaException as exc:
            if isinstance(exc, KafkaTimeoutError) and not delivery.done():
                raise ProduceFailureError(
                    f"{delivery.topic}-{delivery.partition}: no outcome within pending_timeout_ms={self._pending_timeout_ms}; "
                    "the message is still being delivered",
                    topic=delivery.topic,
                    partition=delivery.partition,
                ) from exc
            self._was_told(exc)
            raise

    def _was_told(self, error: BaseException | None) -> None:
        """The application has the error of one message: stop() does not tell of it once more."""
        if error is not None and self._engine is not None:
            self._engine.heard(error)

    # -- how many wait -------------------------------------------------------------------------------------------------------
    @property
    def pending(self) -> int:
        """Messages without an outcome yet."""
        if self._running:
            self._parts()
        return self._lane.accepted - self._engine.settled_records if self._lane is not None and self._engine is not None else 0

    def _take_slot(self) -> tuple[NativeProducer, Lane]:
        """Count one message more, by max_queued_messages. Waits for room, or raises ProducerQueueFullError."""
        while True:
            engine, lane = self._parts()
            settled = engine.settled_records
            if lane.accepted >= settled + self._max_queued:
                self._wait_for_slot(engine, settled)
                continue
            lane.limit = min(max(self._look_at, lane.accepted + 1), settled + self._max_queued)
            if lane.take():
                return engine, lane

    def _wait_for_slot(self, engine: NativeProducer, settled: int) -> None:
        if not self._block:
            engine.send_now()
            raise ProducerQueueFullError(f"{self._max_queued} messages wait for an outcome, max_queued_messages={self._max_queued}")
        engine.send_now()
        engine.wait_for_outcome(SLICE_S, settled)
        engine.raise_fatal()

    def _bound(self, engine: NativeProducer, lane: Lane) -> None:
        """How many messages the fast path may take before the next look: never more than max_queued_messages wait for an outcome, and the
        one that makes min_queued_messages unsent has them sent."""
        if lane.accepted >= self._look_at and not self._synchronous:
            unsent = engine.unsent_records()
            if unsent >= self._min_queued:
                engine.send_now()
                unsent = 0
            self._look_at = lane.accepted + self._min_queued - unsent
        lane.limit = min(self._look_at - 1, engine.settled_records + self._max_queued)

    # -- delivery reports ------------------------------------------------------------------------------------------------------
    def _my_reports(self) -> Reports:
        """Those of the calling worker."""
        mine: Reports | None = getattr(self._reports, "mine", None)
        if mine is None:
            mine = self._reports.mine = Reports(self._handler, self._topic)
        return mine

    def get_delivery_report(self, block: bool = True, timeout: float | None = None) -> tuple[Any, KafkaException | None]:
        """(message, error or None) of a message that this thread or greenlet produced and whose outcome is known.

        Its offset is -1 if there is an error or the broker did not say. Reports are kept until they are taken, or their thread or greenlet ends; of messages
        that failed and whose reports nobody took stop() tells. timeout: seconds, None is for
        ever. Raises the handler's QueueEmptyError (queue.Empty); ConfigurationError without delivery_reports=True or with sync=True.
        """
        mine: Reports | None = getattr(self._reports, "mine", None)
        if mine is not None and timeout is None and (report := mine.next_known()) is not None:
            if report[1] is not None:
                self._was_told(report[1])
            return report
        wait = INF if timeout is None else check_time_left("timeout", timeout)
        if self._running:
            self._parts()
        if self._reports is None:
            raise ConfigurationError("get_delivery_report needs delivery_reports=True, and not sync=True")
        if mine is None and block and wait == INF:
            raise self._handler.QueueEmptyError(
                "this thread or greenlet has produced nothing: reports are given to the one that called produce(); give timeout= to wait all the same"
            )
        report = self._my_reports().take(block, None if wait == INF else wait)
        self._was_told(report[1])
        return report

    # -- documented with an underscore -----------------------------------------------------------------------------------------
    def _produce(self, message_partition_tup: tuple[tuple[bytes | None, bytes | None], int]) -> None:
        """Accept a message whose partition is chosen: ((partition_key, message), partition id)."""
        (key, message), partition = message_partition_tup
        self._accept(message, key, partition, None)

    def _send_request(
        self, message_batch: Iterable[tuple[tuple[bytes | None, bytes | None], int]], owned_broker: OwnedBroker | None = None
    ) -> None:
        """Send messages now and wait for their outcome: ((partition_key, message), partition id) each. Raises the first error.

        They go to the leaders of their partitions, whichever broker was thought to be that.
        """
        sent = [self._accept(message, key, partition, None) for (key, message), partition in message_batch]
        for delivery in sent:
            delivery.result()

    def _setup_owned_brokers(self) -> None:
        """Look anew at which brokers lead the topic's partitions. What waits stays queued and follows its partition's leader."""
        engine, _ = self._parts()
        leaders = {p.leader.id: p.leader for p in self._topic.partitions.values() if p.leader is not None}
        self._owned_brokers = {id_: OwnedBroker(self, engine, leader) for id_, leader in sorted(leaders.items())}

    def _update(self) -> None:
        """Take fresh metadata. Messages that wait for a broker that leads no more go to the one that does."""
        self._cluster.update()
        self._setup_owned_brokers()

    def _raise_worker_exceptions(self) -> None:
        """Raise what ended the producer's worker, if something did. produce() does so, too."""
        if self._engine is not None:
            self._engine.raise_fatal()

    def _wait_all(self) -> None:
        """Wait until every message has an outcome. Raises DeliveryError for those that failed, as stop() does, but for those whose report may still be
        taken; KafkaTimeoutError."""
        engine, _ = self._parts()
        if self._reports is None:
            engine.flush()
        else:
            engine.wait_settled()
