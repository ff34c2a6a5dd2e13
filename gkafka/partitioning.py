"""Which partition a producer's record goes to: the given one, that of its key, or the sticky one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from zlib import crc32

from gkafka import records
from gkafka.checks import find_index
from gkafka.core.sticky import Sticky, choose
from gkafka.intake import chosen_by
from gkafka.records._check import UnknownPartition

if TYPE_CHECKING:
    from gkafka.core.accumulator import PartitionQueue
    from gkafka.core.backoff import Chance
    from gkafka.core.metadata import Metadata
    from gkafka.records import Appender

__all__ = ["Partitioning"]

HASHES: dict[str, Callable[[bytes], int]] = {"murmur2": records.murmur2, "crc32": crc32}
"""Hashes of a key; the remainder is its partition, as in the Java client or in librdkafka's consistent_random."""


class Partitioning:
    """Chooses the partition of each record on the slow path, and tells the appender what the fast path shall choose.

    partitioner: the option of `ProducerConfig`. queues: of the accumulator, by (topic, partition).
    counts: how many partitions each known topic has; filled in here. sticky: where the records
    without a key of a topic go now. Only `of_record` may be called without the lock of open batches.
    """

    def __init__(
        self,
        partitioner: Any,
        appender: Appender,
        metadata: Metadata,
        queues: Mapping[tuple[str, int], PartitionQueue],
        chance: Chance,
        counts: dict[str, int],
    ) -> None:
        self._partitioner = partitioner
        self._hash = None if callable(partitioner) else HASHES[partitioner or "murmur2"]
        self._appender, self._metadata, self._queues, self._chance = appender, metadata, queues, chance
        self.counts = counts
        self.sticky: dict[str, Sticky] = {}
        self._led: dict[str, tuple[int, Sequence[int]]] = {}  # with the version of the metadata
        appender.crc32 = self._hash is crc32

    def set_count(self, topic: str, count: int) -> None:
        """Let the fast path take a topic with so many partitions."""
        self.counts[topic] = count
        self._appender.set_topic(topic, count, 0)
        self._move(topic)

    def of_record(self, topic: str, count: int, partition: Any, key: bytes | None) -> int | None:
        """Return the partition that a record must go to, or None if it goes to the sticky one.

        count: partitions of the topic; partition: as the caller gave it, or None. Raises
        UnknownPartition, or ConfigurationError if the partitioner fails.
        """
        if partition is not None:
            given = find_index(partition, count)
            if given is None:
                raise UnknownPartition(f"partition={partition!r}: topic {topic!r} has the partitions 0 to {count - 1}", topic=topic)
            return given
        if self._hash is None:
            return chosen_by(self._partitioner, topic, count, key)
        # librdkafka's consistent_random takes an empty key for none, Java does not.
        return None if key is None or (not key and self._hash is crc32) else self._hash(key) % count

    def without_key(self, topic: str, size: int) -> int:
        """Return the sticky partition; first choose another if the record would begin a batch and this one has had its share.

        size: `record_size` of the record.
        """
        sticky = self.sticky[topic]
        if self._appender.is_open(topic, sticky.partition) or not sticky.is_spent(size, self._appender.limit(topic)):
            return sticky.partition
        return self._move(topic)

    def _move(self, topic: str) -> int:
        """Choose the partition of the next records without a key."""
        present, queues = self.sticky.get(topic), self._queues
        partition = choose(
            self._with_leader(topic),
            present.partition if present is not None else -1,
            lambda p: queue.length if (queue := queues.get((topic, p))) is not None else 0,
            self._chance,
        )
        self.sticky[topic] = Sticky(partition, self._appender.open_batch(topic, partition))
        self._appender.set_sticky(topic, partition)
        return partition

    def _with_leader(self, topic: str) -> Sequence[int]:
        """Return the partitions that have a leader; all if none has."""
        metadata, count = self._metadata, self.counts[topic]
        version, led = self._led.get(topic, (-1, ()))
        if version != metadata.version or not led or led[-1] >= count:
            info = metadata.topic(topic)
            led = [p.id for p in info.partitions.values() if p.leader >= 0 and p.id < count] if info is not None else []
            self._led[topic] = metadata.version, led
        return led or range(count)
