"""kafka-python's partitioners (kafka.partitioner), of 1.4 and of 3.0.

1.4's are callables (key bytes, all partitions, available partitions) -> partition. 3.0's are objects with
`partition(topic, key, serialized_key, value, serialized_value, cluster)`. A KafkaProducer takes either.
"""

from __future__ import annotations

import abc
import random
from collections.abc import Sequence
from typing import Any

from gkafka.kafka.cluster import ClusterMetadata
from gkafka.records import murmur2

__all__ = ["DefaultPartitioner", "Partitioner", "StickyPartitioner", "murmur2"]


class Partitioner(abc.ABC):
    """The base of partitioners that are objects, as 3.0 has them.

    A partitioner may also have on_new_batch(topic, cluster, prev_partition): it is called when a record without a key would begin a batch in the
    partition that was chosen for it, and partition() is then asked again.
    """

    @abc.abstractmethod
    def partition(
        self, topic: str, key: Any, serialized_key: bytes | None, value: Any, serialized_value: bytes | None, cluster: Any
    ) -> int:
        """The partition of a record for which send() was given none. key, value: as send() was given them; cluster: a ClusterMetadata."""


class DefaultPartitioner(Partitioner):
    """Java's: murmur2 of the key; without a key any of the available partitions.

    As `partitioner=DefaultPartitioner()`, which is the default, records without a key stay on a partition for a batch, then take another (KIP-794).
    """

    @classmethod
    def __call__(cls, key: bytes | None, all_partitions: Sequence[int], available: Sequence[int]) -> int:
        if key is None:
            return random.choice(available or all_partitions)
        return all_partitions[murmur2(key) % len(all_partitions)]

    def partition(
        self, topic: str, key: Any, serialized_key: bytes | None, value: Any, serialized_value: bytes | None, cluster: Any
    ) -> int:
        return self(serialized_key, *partitions_of(cluster, topic))


class StickyPartitioner(DefaultPartitioner):
    """The same. As `partitioner=StickyPartitioner()` it is the default, whose records without a key stay on a partition for a batch.

    Called by a partitioner of the application's own, it keeps the partition itself, until on_new_batch().
    """

    def __init__(self) -> None:
        self._present: dict[str, int] = {}

    def partition(
        self, topic: str, key: Any, serialized_key: bytes | None, value: Any, serialized_value: bytes | None, cluster: Any
    ) -> int:
        every, led = partitions_of(cluster, topic)
        if serialized_key is not None:
            return self(serialized_key, every, led)
        present = self._present.get(topic)
        return present if present is not None and present in (led or every) else self._move(topic, led or every)

    def on_new_batch(self, topic: str, cluster: ClusterMetadata, prev_partition: int) -> None:
        """Take another partition, unless that was done meanwhile."""
        if self._present.get(topic) == prev_partition:
            every, led = partitions_of(cluster, topic)
            others = [partition for partition in led if partition != prev_partition]
            self._move(topic, others or led or every)

    def _move(self, topic: str, among: list[int]) -> int:
        chosen = self._present[topic] = random.choice(among)
        return chosen


def partitions_of(cluster: Any, topic: str) -> tuple[list[int], list[int]]:
    """All partitions of a topic, and those that have a leader, in order. Raises ValueError for a topic that is not known."""
    every = cluster.partitions_for_topic(topic)
    if not every:
        raise ValueError(f"topic {topic!r} is not known")
    return sorted(every), sorted(cluster.available_partitions_for_topic(topic) or ())
