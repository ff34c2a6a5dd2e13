"""Writing record batches in Python: the twin of `_speed_write.pxi`, held identical to it by the tests.

Memory is counted exactly as the compiled half counts its buffers, so that a producer behaves the same on both.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from time import time_ns
from typing import Any
from zlib import crc32

from gkafka.exceptions import BrokerError, KafkaException, RecordTooLarge
from gkafka.records._check import (
    LEAST_BEYOND,
    MAX_BATCH_BYTES,
    MIN_BATCH_BYTES,
    check_capacity,
    check_record,
    check_sizes,
    check_timestamp,
    no_memory,
    nothing_to_send,
    plain,
    plain_headers,
    plain_topic,
    record_size,
    too_large,
)
from gkafka.records._pure_batch import BIG, FULL, ODD, Batch, Delivery, FutureDelivery, Report, ReportQueue, call_back
from gkafka.records._pure_memory import Budget, Pool, live_buffers, murmur2
from gkafka.records._results import Record, RecordMetadata, run_callback

__all__ = [
    "Appender",
    "Batch",
    "Budget",
    "Delivery",
    "FutureDelivery",
    "Record",
    "RecordMetadata",
    "Report",
    "ReportQueue",
    "call_back",
    "check_record",
    "live_buffers",
    "murmur2",
    "record_size",
    "run_callback",
]


# -- from a topic to its open batch --------------------------------------------------------------------------------------
class Topic:
    __slots__ = ("batches", "hot", "limit", "partitions", "sticky")

    def __init__(self, limit: int) -> None:
        self.limit = limit  # bytes of a batch: batch_bytes, less where the broker takes less
        self.partitions = 0  # 0: the fast path does not take this topic
        self.sticky = 0
        self.batches: list[Batch | None] = []  # by partition
        self.hot = bytearray()  # by partition: 1 if its last batch was full, so that the next one starts at full size

    def batch(self, partition: int) -> Batch | None:
        return self.batches[partition] if 0 <= partition < len(self.batches) else None

    def widen(self, partitions: int) -> None:
        more = partitions - len(self.batches)
        if more > 0:
            self.hot.extend(bytes(more))
            self.batches.extend([None] * more)


class Appender:
    """The per-message part of a producer: topic -> partition -> open batch.

    owner: serves what the fast path does not take (`produce_slow`, `checkpoint`, `wait`). batch_bytes: a batch's size before
    compression; buffer_bytes: of all batches that are not released; max_record_bytes: of a batch that holds one record, beyond it
    `produce` goes to the owner; initial_bytes: what a batch starts with. lock: a lock of the owner's handler, None where there
    is one thread; never held while code of others runs. budget: memory shared with other appenders, None for none. news: batches that were
    begun, and again as they are rolled, in that order: for the owner's worker. rolled_bytes: of all that were rolled.
    """

    def __init__(
        self,
        owner: Any,
        *,
        batch_bytes: int,
        buffer_bytes: int,
        max_record_bytes: int,
        initial_bytes: int = 4096,
        lock: AbstractContextManager[Any] | None = None,
        budget: Budget | None = None,
    ) -> None:
        check_sizes(batch_bytes, buffer_bytes, max_record_bytes, initial_bytes)
        self.owner = owner
        self.batch_bytes = batch_bytes
        self.buffer_bytes = buffer_bytes
        self.max_record_bytes = max_record_bytes
        self.initial_bytes = min(initial_bytes, batch_bytes, buffer_bytes)
        self.fast = True
        self.news: deque[Batch] = deque()
        self.rolled_bytes = 0
        self.hooks: tuple[Callable[[Any], object], ...] | None = None  # called for each record that has an outcome; None: nothing is
        self._future_class: type[Delivery] = Delivery
        self._refused: Callable[[KafkaException], Any] | None = None
        self.crc32 = False  # choose by CRC-32 of the key in place of murmur2; an empty key is none then
        self._every = self._left = 0
        self._pid = os.getpid()
        self._pool = Pool(buffer_bytes, budget)
        self._topics: dict[str, Topic] = {}
        self._lock = lock
        self._guard: AbstractContextManager[Any] = lock or nullcontext()

    def produce(self, topic: Any, value: Any, key: Any = None, partition: Any = None, timestamp: Any = None, headers: Any = None) -> Any:
        """Append one record to its partition's open batch; what needs more than that goes to `owner.produce_slow`.

        partition None: by murmur2 of the key (or `crc32`), without a key the topic's sticky one. timestamp: ms, None for now.
        """
        if self._every:
            if not self._left:
                self._left = self._every
                self.owner.checkpoint()
            self._left -= 1
        topic, value, key, pairs = plain_topic(topic), plain(value), plain(key), plain_headers(headers)
        found = self._topics.get(topic) if type(topic) is str else None
        if found is None or not self.fast or os.getpid() != self._pid:
            return self.owner.produce_slow(topic, value, key, partition, timestamp, headers)
        number = self._partition(found, key) if partition is None else partition if type(partition) is int else -1
        batch = found.batches[number] if 0 <= number < found.partitions else None
        stamp = time_ns() // 1_000_000 if timestamp is None else timestamp if type(timestamp) is int else -1
        if batch is None or not 0 <= stamp < 1 << 63:
            return self.owner.produce_slow(topic, value, key, partition, timestamp, headers)
        if self._lock is None:
            index = batch._put(value, key, pairs, stamp, self.max_record_bytes)
        else:
            with self._lock:
                index = batch._put(value, key, pairs, stamp, self.max_record_bytes)
        if index < 0:
            return self.owner.produce_slow(topic, value, key, partition, timestamp, headers)
        return Delivery(batch, index)

    def send(
        self, topic: Any, value: Any = None, key: Any = None, headers: Any = None, partition: Any = None, timestamp_ms: Any = None
    ) -> Any:
        """The same with the arguments in kafka-python's order, and with what `answer_with` says. Value and key cannot both be None."""
        if value is None and key is None:
            raise nothing_to_send(topic)
        try:
            delivery = self.produce(topic, value, key, partition, timestamp_ms, headers)
        except (BrokerError, RecordTooLarge) as error:
            if self._refused is None:
                raise
            return self._refused(error)
        return self._future_class(delivery.batch, delivery.index)

    def answer_with(self, future_class: type[Delivery], refused: Callable[[KafkaException], Any] | None = None) -> None:
        """What `send` gives back: a delivery of this subclass of Delivery; for a record that the broker or a size limit refuses refused(error)."""
        if not (isinstance(future_class, type) and issubclass(future_class, Delivery)):
            raise TypeError(f"future_class={future_class!r}: must be Delivery or a subclass of it")
        self._future_class, self._refused = future_class, refused

    def _partition(self, found: Topic, key: Any) -> int:
        if key is None:
            return found.sticky
        if self.crc32 and type(key) is bytes and found.partitions:
            return crc32(key) % found.partitions if key else found.sticky
        return murmur2(key) % found.partitions if type(key) is bytes and found.partitions else -1

    def append(self, topic: str, partition: int, value: Any, key: Any, timestamp_ms: int, headers: Any) -> Delivery | None:
        """Append to a partition's open batch. None: there is none, or the record does not fit into it.

        timestamp_ms: 0 or more, -1 for none. Raises SerializationError for what is not a record, RecordTooLarge over 1 GiB.
        """
        check_timestamp(timestamp_ms, topic)
        delivery = self._append(topic, partition, value, key, timestamp_ms, headers)
        if delivery == ODD:
            value, key, headers = check_record(topic, value, key, headers)
            delivery = self._append(topic, partition, value, key, timestamp_ms, headers)
        if delivery == BIG:
            raise too_large(topic, partition)
        return delivery if isinstance(delivery, Delivery) else None

    def _append(self, topic: str, partition: int, value: Any, key: Any, timestamp: int, headers: Any) -> Delivery | int:
        with self._guard:
            batch = self.open_batch(topic, partition)
            index = FULL if batch is None else batch._put(value, key, headers, timestamp, MAX_BATCH_BYTES)
        return index if batch is None or index < 0 else Delivery(batch, index)

    def is_open(self, topic: str, partition: int) -> bool:
        """Has the partition a batch that takes records?"""
        return self.open_batch(topic, partition) is not None

    def open_batch(self, topic: str, partition: int) -> Batch | None:
        """The partition's batch that takes records, if there is one."""
        found = self._topics.get(topic)
        return None if found is None else found.batch(partition)

    # -- topics
    def set_topic(self, topic: str, partition_count: int, sticky: int) -> None:
        """Let the fast path take a topic. sticky: the partition of records without a key. Open batches stay."""
        if partition_count < 1 or not 0 <= sticky < partition_count:
            raise ValueError(f"{topic}: no sticky partition {sticky} among {partition_count}")
        with self._guard:
            found = self._topic(topic)
            found.widen(partition_count)
            found.partitions, found.sticky = partition_count, sticky

    def drop_topic(self, topic: str) -> None:
        """Send a topic's records to the owner from now on. Open batches stay."""
        with self._guard:
            found = self._topics.get(topic)
            if found is None:
                return
            found.partitions = found.sticky = 0
            if not any(found.batches):
                del self._topics[topic]

    def _topic(self, topic: str) -> Topic:
        found = self._topics.get(topic)
        if found is None:
            found = self._topics[topic] = Topic(self.batch_bytes)
        return found

    def set_limit(self, topic: str, size: int) -> None:
        """Batches of the topic that are opened from now on hold at most so many bytes (at least 128, at most batch_bytes)."""
        with self._guard:
            self._topic(topic).limit = min(max(size, MIN_BATCH_BYTES), self.batch_bytes)

    def limit(self, topic: str) -> int:
        """Bytes that a new batch of the topic may hold; a larger record gets one of its own."""
        found = self._topics.get(topic)
        return self.batch_bytes if found is None else found.limit

    def set_sticky(self, topic: str, partition: int) -> None:
        found = self._topics.get(topic)
        if found is None or not 0 <= partition < found.partitions:
            raise ValueError(f"{topic} has no partition {partition} here")
        found.sticky = partition

    def sticky(self, topic: str) -> int:
        """The partition of a topic's records without a key, -1 if the fast path does not take the topic."""
        found = self._topics.get(topic)
        return found.sticky if found is not None and found.partitions else -1

    # -- batches
    def open(self, topic: str, partition: int, created: float, capacity: int | None = None, beyond: int = 0) -> Batch:
        """Make a partition's open batch. created: monotonic seconds; capacity: bytes it must be able to hold (`record_size`);
        beyond: bytes over buffer_bytes, and over what is shared, that may be taken for it; then it holds little more than `capacity`.

        Raises BufferFull if the memory is not there now, RecordTooLarge if it never can be, ValueError if one is open.
        """
        with self._guard:
            batch = self._made(topic, partition, created, 0 if capacity is None else capacity, beyond)
            self._set_open(batch)
            return batch

    def begin(
        self,
        topic: str,
        partition: int,
        created: float,
        capacity: int,
        value: Any,
        key: Any,
        timestamp_ms: int,
        headers: Any,
        beyond: int = 0,
    ) -> Delivery:
        """The same with a first record: nobody sees the batch without it. Returns its delivery; raises what `open` and `append` raise."""
        check_timestamp(timestamp_ms, topic)
        value, key, headers = check_record(topic, value, key, headers)
        with self._guard:
            batch = self._made(topic, partition, created, capacity, beyond)
            index = batch._put(value, key, headers, timestamp_ms, MAX_BATCH_BYTES)
            if index == BIG:
                raise too_large(topic, partition)
            if index < 0:
                raise no_memory(topic, partition, capacity, self._pool.free, self.buffer_bytes)
            self._set_open(batch)
            self.news.append(batch)
            return Delivery(batch, index)

    def _set_open(self, batch: Batch) -> None:
        found = self._topic(batch.topic)
        found.widen(batch.partition + 1)
        found.batches[batch.partition] = batch

    def _made(self, topic: str, partition: int, created: float, need: int, beyond: int) -> Batch:
        """A batch that nobody knows yet."""
        if partition < 0:
            raise ValueError(f"{topic}: partition {partition} is negative")
        check_capacity(need, self.buffer_bytes, topic, partition)
        if self.open_batch(topic, partition) is not None:
            raise ValueError(f"{topic}-{partition} has an open batch: roll it first")
        found = self._topic(topic)
        start = self._first_capacity(found, partition, need)
        if beyond and start > self._pool.free:
            start = max(need, LEAST_BEYOND)
        if not self._pool.reserve(start, beyond):
            raise no_memory(topic, partition, start, self._pool.free, self.buffer_bytes)
        batch = Batch.__new__(Batch)
        batch._begin(self, topic, partition, created, start, max(start, found.limit))
        return batch

    def _first_capacity(self, found: Topic, partition: int, need: int) -> int:
        start = min(self.initial_bytes, found.limit)
        # A partition that fills its batches gets the next one whole: growing would copy every record twice. Not when memory is
        # scarce, there many partitions must share it.
        whole = found.limit <= self._pool.free - self.buffer_bytes // 2
        if whole and partition < len(found.hot) and found.hot[partition]:
            start = found.limit
        while start < need and start < found.limit:
            start = min(start * 2, found.limit)
        least = max(need, min(self.initial_bytes, found.limit))
        return least if start > self._pool.free else max(start, need)

    def sum_up(self, topic: str, partition: int) -> None:
        """A hint that the batch is about to be rolled. The compiled implementation takes the records' checksum now, while the processor has them
        in its cache; there is no such gain here, so sealing takes it.
        """

    def roll(self, topic: str, partition: int) -> Batch | None:
        """Let a partition's open batch take no more records, and tell the owner's worker of it; None if there is none. The next one must be opened."""
        with self._guard:
            batch = self._taken(topic, partition)
            if batch is not None:
                self.rolled_bytes += batch.size
                self.news.append(batch)
            return batch

    def take(self, topic: str, partition: int) -> Batch | None:
        """The same, by the worker itself, which seals and sends it."""
        with self._guard:
            return self._taken(topic, partition)

    def _taken(self, topic: str, partition: int) -> Batch | None:
        found = self._topics.get(topic)
        batch = None if found is None else found.batch(partition)
        if found is not None and batch is not None:
            found.batches[partition] = None
            found.hot[partition] = batch.size > found.limit // 2
            batch._close()
        return batch

    def open_batches(self) -> list[Batch]:
        """Every open batch."""
        with self._guard:
            return [batch for found in self._topics.values() for batch in found.batches if batch is not None]

    @property
    def available(self) -> int:
        """Bytes that batches may still take: of buffer_bytes, and of the budget that is shared with others."""
        with self._guard:
            return self._pool.free

    @property
    def own_available(self) -> int:
        """Bytes of buffer_bytes that no batch holds, whatever others hold; below 0 while batches hold more."""
        with self._guard:
            return self._pool.own_free

    def release(self, batch: Batch) -> None:
        """Give a batch's memory back: at once, or when the last view of its `wire` is gone. Its result stays."""
        with self._guard:
            self._forget(batch)
            batch._release()

    def set_apart(self, batch: Batch) -> None:
        """The same, but its records can still be read: from a copy that is not counted. It cannot be sent any more."""
        with self._guard:
            self._forget(batch)
            batch._set_apart()

    def _forget(self, batch: Batch) -> None:
        if batch._pool is not self._pool:
            raise ValueError(f"{batch!r} is not of this appender")
        found = self._topics.get(batch.topic)
        if found is not None and found.batch(batch.partition) is batch:
            found.batches[batch.partition] = None

    @property
    def checkpoint_every(self) -> int:
        """After that many calls of `produce` the next one begins with `owner.checkpoint()`; 0: never."""
        return self._every

    @checkpoint_every.setter
    def checkpoint_every(self, calls: int) -> None:
        if calls < 0:
            raise ValueError(f"checkpoint_every={calls}: must be 0 or more")
        self._every = self._left = calls
