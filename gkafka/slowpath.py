"""What the compiled fast path of a record leaves: checks, waits for metadata and memory, full batches.

`SlowPath` takes a record through all that it needs. `OpenBatches` puts it into a batch: one caller
at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from gkafka import records
from gkafka.checks import check_topic_name
from gkafka.exceptions import BufferFull, KafkaTimeoutError, RecordTooLarge, SerializationError
from gkafka.producerdriver import TICK_S
from gkafka.records import compression

if TYPE_CHECKING:
    from gkafka.cluster import Cluster
    from gkafka.config import ProducerConfig
    from gkafka.partitioning import Partitioning
    from gkafka.producerdriver import ProducerDriver
    from gkafka.producermemory import Place
    from gkafka.records import Appender, Delivery

__all__ = ["OpenBatches", "SlowPath"]

MOST_AROUND = 100
"""Bytes that a batch with one plain record takes at most beside its key and value."""


class OpenBatches:
    """The open batches of one producer: takes records in, rolls full batches, begins the next ones.

    check_open: raises if no record may be accepted any more. lock: nothing waits under it.
    """

    def __init__(
        self,
        config: ProducerConfig,
        cluster: Cluster,
        appender: Appender,
        driver: ProducerDriver,
        partitioning: Partitioning,
        check_open: Callable[[], None],
    ) -> None:
        self._cluster, self._handler = cluster, cluster.handler
        self._appender, self._driver, self._partitioning, self._check_open = appender, driver, partitioning, check_open
        self._linger_s = config.linger_ms / 1000
        self._is_compressed = compression.codec_id(config.compression) != 0
        self.lock = self._handler.Mutex()

    def append(
        self,
        topic: str,
        target: int | None,
        value: Any,
        key: Any,
        timestamp: int,
        headers: Any,
        size: int,
        *,
        may_open: bool,
        beyond: int = 0,
    ) -> Delivery | None:
        """Put the record into its batch, rolling the one that is full. None: there is no room in the buffer, or others wait for it.

        target: its partition; None: the sticky one. A record that finds that one's batch full goes
        where the next ones go. beyond: bytes that a new batch may take over the limits.
        """
        appender, partitioning = self._appender, self._partitioning
        with self.lock:
            self._check_open()  # close() may have come while this caller waited for room
            partition = partitioning.without_key(topic, size) if target is None else target
            there = appender.is_open(topic, partition)
            delivery = appender.append(topic, partition, value, key, timestamp, headers) if there else None
            if delivery is not None or not may_open:
                return delivery
            try:
                if there:
                    self._roll(topic, partition)
                    if target is None and (other := partitioning.without_key(topic, size)) != partition:
                        partition = other
                        delivery = appender.append(topic, partition, value, key, timestamp, headers)
                        if delivery is not None:
                            return delivery
                        self._roll(topic, partition)
                # In one step, with the record in it: whoever sends may take the batch as soon as it is known.
                now = self._handler.monotonic()
                delivery = appender.begin(topic, partition, now, size, value, key, timestamp, headers, beyond)
                sticky = partitioning.sticky.get(topic)
                if sticky is not None and sticky.partition == partition:
                    sticky.follow(delivery.batch, records.HEADER_BYTES)
                return delivery
            except BufferFull:
                return None

    def end(self, topic: str, partition: int) -> None:
        """Let the partition's open batch take no more records."""
        with self.lock:
            self._roll(topic, partition)

    def _roll(self, topic: str, partition: int) -> None:
        """Take the full batch away from the appender: the driver sends it."""
        if not self._is_compressed:  # the checksum of the records is that of the batch
            self._appender.sum_up(topic, partition)
        self._appender.roll(topic, partition)
        self._driver.worker.wake()

    def note(self, topic: str, delivery: Delivery) -> None:
        """See that somebody looks after the batch of a record that was just appended, if that record has begun it."""
        if delivery.index == 0:
            self._cluster.note_write(topic, delivery.batch.created)
            if self._linger_s and (topic, delivery.partition) not in self._driver.accumulator.active:
                self._driver.warm(topic, delivery.partition)
            self._driver.worker.wake(delivery.batch.created + self._linger_s)


class SlowPath:
    """Takes the records that the appender's fast path does not take.

    check_open: raises if no record may be accepted any more.
    """

    def __init__(
        self,
        config: ProducerConfig,
        cluster: Cluster,
        appender: Appender,
        driver: ProducerDriver,
        partitioning: Partitioning,
        batches: OpenBatches,
        check_open: Callable[[], None],
    ) -> None:
        self._config, self._cluster, self._handler = config, cluster, cluster.handler
        self._appender, self._driver, self._partitioning, self._batches = appender, driver, partitioning, batches
        self._check_open = check_open
        self._plain_bytes = min(appender.initial_bytes, config.max_request_bytes)

    def append(self, topic: Any, value: Any, key: Any, partition: Any, timestamp: Any, headers: Any) -> Delivery:
        """Append a record as the caller of produce() gave it, whatever has to be checked, converted or waited for.

        Most records that come here are small ones of plain bytes for a known topic, and begin a
        batch: they need few of the steps, which are those of this function.
        """
        count = self._partitioning.counts.get(topic) if type(topic) is str and self._appender.fast else None
        if count is None or type(value) is not bytes or headers is not None or timestamp is not None:
            return self._append_any(topic, value, key, partition, timestamp, headers)
        size = MOST_AROUND + len(value)
        if key is not None:
            size += len(key) if type(key) is bytes else self._plain_bytes
        info = self._cluster.metadata.topic(topic)
        if size > self._plain_bytes or info is None or len(info.partitions) != count or self._cluster.memory.contended:
            return self._append_any(topic, value, key, partition, timestamp, headers)
        target = (
            partition if type(partition) is int and 0 <= partition < count else self._partitioning.of_record(topic, count, partition, key)
        )
        now_ms = int(self._handler.time() * 1000)
        delivery = self._batches.append(topic, target, value, key, now_ms, None, size, may_open=True)
        if delivery is None:
            return self._append_any(topic, value, key, partition, timestamp, headers)
        self._batches.note(topic, delivery)
        return delivery

    def _append_any(self, topic: Any, value: Any, key: Any, partition: Any, timestamp: Any, headers: Any) -> Delivery:
        """The same with all steps."""
        if type(topic) is not str:
            topic = check_topic_name(topic)
        config, handler = self._config, self._handler
        value, key, headers = records.check_record(topic, value, key, headers)
        timestamp = self.timestamp(timestamp)
        deadline = handler.monotonic() + config.max_block_ms / 1000
        size = records.record_size(value, key, headers)
        if size > config.max_request_bytes:
            raise RecordTooLarge(
                f"a record of {size} bytes for topic {topic!r} is over max_request_bytes={config.max_request_bytes}: "
                "raise it (and the broker's max.message.bytes), or send less",
                topic=topic,
            )
        count = self.know_topic(topic, deadline)
        handler.check_fork()  # a greenlet's copy in a child must not send what its original sends, also if others go on there
        target = self._partitioning.of_record(topic, count, partition, key)
        record = (value, key, timestamp, headers)
        delivery = self._batches.append(topic, target, *record, size, may_open=not self._cluster.memory.contended)
        if delivery is None:
            delivery = self._append_in_turn(topic, target, record, size, deadline)
        self._batches.note(topic, delivery)
        return delivery

    def timestamp(self, given: Any) -> int:
        """Return the timestamp of a record in ms since the epoch, now for None. Raises SerializationError."""
        if given is None:
            return int(self._handler.time() * 1000)
        if isinstance(given, bool) or not isinstance(given, int) or not 0 <= given < 1 << 63:
            raise SerializationError(f"timestamp={given!r}: must be milliseconds since the epoch, an int of 0 or more")
        return given

    def know_topic(self, topic: str, deadline: float) -> int:
        """Return how many partitions the topic has; from now on the fast path takes it. Waits for metadata."""
        info = self._cluster.metadata.topic(topic)
        if info is None:
            try:
                info = self._cluster.wait_for_topic(topic, deadline, self._check_usable, writes=True)
            except KafkaTimeoutError as exc:
                raise KafkaTimeoutError(
                    f"{exc} (max_block_ms={self._config.max_block_ms:g}); the record was not accepted", topic=topic
                ) from exc
        count = len(info.partitions)
        if self._partitioning.counts.get(topic) != count:
            with self._batches.lock:
                self._partitioning.set_count(topic, count)
        return count

    def _check_usable(self) -> None:
        self._handler.check_fork()
        self._check_open()

    def _append_in_turn(self, topic: str, target: int | None, record: tuple[Any, Any, int, Any], size: int, deadline: float) -> Delivery:
        """Append when there is room, and those who came before have theirs. Raises BufferFull at the deadline."""
        memory, handler = self._cluster.memory, self._handler
        place = memory.stand_in_line(self._driver, max(size, self._appender.initial_bytes))
        try:
            while True:
                place.event.clear()
                if memory.may_try(place):
                    delivery = self._batches.append(topic, target, *record, size, may_open=True, beyond=place.beyond)
                    if delivery is not None:
                        return delivery
                    if memory.make_room(place):
                        continue
                self._wait_for_room(place, deadline, topic)
                handler.check_fork()
        finally:
            memory.step_out(place)

    def _wait_for_room(self, place: Place, deadline: float, topic: str) -> None:
        """Wait until it may be this one's turn, a moment at most. Raises BufferFull at the deadline."""
        left = deadline - self._handler.monotonic()
        if left > 0 and place.event.wait(min(left, TICK_S)):
            return
        self._check_usable()
        if self._handler.monotonic() >= deadline:
            others = f", or by other producers of this client (together {self._cluster.memory.budget.limit})"
            raise BufferFull(
                f"no room for a record of about {place.size} bytes for topic {topic!r} within max_block_ms={self._config.max_block_ms:g}: "
                f"buffer_bytes={self._config.buffer_bytes} is taken by records that no broker has acknowledged yet{others}; the record was "
                "not accepted",
                topic=topic,
            )
