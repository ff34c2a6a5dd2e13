"""kafka-python's partitioners (kafka.partitioner): callables (key bytes, all partitions, available partitions) -> partition."""

from __future__ import annotations

import random
from collections.abc import Sequence

from gkafka.records import murmur2

__all__ = ["DefaultPartitioner", "murmur2"]


class DefaultPartitioner:
    """Java's: murmur2 of the key; without a key any of the available partitions.

    As `partitioner=DefaultPartitioner()`, which is the default, records without a key stay on a partition for a batch, then take another (KIP-794).
    """

    @classmethod
    def __call__(cls, key: bytes | None, all_partitions: Sequence[int], available: Sequence[int]) -> int:
        if key is None:
            return random.choice(available or all_partitions)
        return all_partitions[murmur2(key) % len(all_partitions)]
