"""Ways to choose a partition under pykafka's names: callables (partitions, key) -> one of the partitions.

Documented: pykafka-2.0.4 partitioners. The native producer's own default is murmur2 of the key and uniform sticky without one.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

__all__ = ["BasePartitioner", "HashingPartitioner", "RandomPartitioner", "random_partitioner"]

P = TypeVar("P")


class BasePartitioner:
    """Base of partitioners that are classes: make a callable (partitions, key) -> partition."""

    def __call__(self, partitions: Sequence[P], key: Any) -> P:
        raise NotImplementedError(f"{type(self).__name__} must define __call__(partitions, key)")


class RandomPartitioner(BasePartitioner):
    """Any of the available partitions, whatever the key."""

    def __call__(self, partitions: Sequence[P], key: Any) -> P:
        return random.choice(partitions)


random_partitioner = RandomPartitioner()


def _id(partition: Any) -> int:
    found: int = getattr(partition, "id", partition)
    return found


class HashingPartitioner(BasePartitioner):
    """The same key gives the same partition while the partitions stay the same.

    hash_func: callable (key) -> int. The default is Python's hash(), which differs between interpreter runs for str and bytes: give a
    function of your own where other processes must choose alike.
    """

    def __init__(self, hash_func: Callable[[Any], int] | None = None) -> None:
        self.hash_func: Callable[[Any], int] = hash if hash_func is None else hash_func

    def __call__(self, partitions: Sequence[P], key: Any) -> P:
        if key is None:
            raise ValueError("key cannot be None when using hashing partitioner: give partition_key=")
        ordered = sorted(partitions, key=_id)
        return ordered[abs(self.hash_func(key)) % len(ordered)]
