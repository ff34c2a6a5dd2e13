"""Ways to choose a partition under pykafka's names: callables (partitions, key) -> one of the partitions.

Documented: pykafka-2.0.4 partitioners. The native producer's own default is murmur2 of the key and uniform sticky without one.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from hashlib import sha1
from typing import Any, TypeVar

from gkafka.checks import check_count
from gkafka.exceptions import ConfigurationError

__all__ = [
    "BasePartitioner",
    "GroupHashingPartitioner",
    "HashingPartitioner",
    "RandomPartitioner",
    "RoundRobinPartitioner",
    "hashing_partitioner",
    "random_partitioner",
]

P = TypeVar("P")


class BasePartitioner:
    """Base of partitioners that are classes: make a callable (partitions, key) -> partition."""

    def __call__(self, partitions: Sequence[P], key: Any) -> P:
        raise NotImplementedError(f"{type(self).__name__} must define __call__(partitions, key)")


class RoundRobinPartitioner(BasePartitioner):
    """Each of the available partitions in turn, whatever the key."""

    def __init__(self) -> None:
        self._turns = itertools.count()

    def __call__(self, partitions: Sequence[P], key: Any) -> P:
        return partitions[next(self._turns) % len(partitions)]


class RandomPartitioner(RoundRobinPartitioner):
    """Any of the available partitions, whatever the key: the first one at random, then each in turn, so that none gets more than the others."""

    def __init__(self) -> None:
        self._turns = itertools.count(random.randrange(1 << 31))


random_partitioner = RandomPartitioner()


def _id(partition: Any) -> int:
    found: int = getattr(partition, "id", partition)
    return found


def _hashed(hash_func: Callable[[Any], int], key: Any) -> int:
    if key is None:
        raise ValueError("key cannot be None when using hashing partitioner: give partition_key=")
    return hash_func(key)


def _sha1(key: Any) -> int:
    if not isinstance(key, (bytes, bytearray, memoryview)):
        return hash(key)
    return int.from_bytes(sha1(key, usedforsecurity=False).digest(), "big")


class HashingPartitioner(BasePartitioner):
    """The same key gives the same partition while the partitions stay the same.

    hash_func: callable (key) -> int. The default is pykafka 2.8's: the SHA-1 of bytes, by which all processes choose alike; hash() of other keys.
    """

    def __init__(self, hash_func: Callable[[Any], int] | None = None) -> None:
        self.hash_func: Callable[[Any], int] = _sha1 if hash_func is None else hash_func

    def __call__(self, partitions: Sequence[P], key: Any) -> P:
        ordered = sorted(partitions, key=_id)
        return ordered[abs(_hashed(self.hash_func, key)) % len(ordered)]


hashing_partitioner = HashingPartitioner()


class GroupHashingPartitioner(BasePartitioner):
    """The same key gives one of the same group_size partitions, at random, while the partitions stay the same.

    hash_func: callable (key) -> int. group_size: 1 to the number of partitions. Documented: pykafka 2.8.
    """

    def __init__(self, hash_func: Callable[[Any], int], group_size: int = 1) -> None:
        if not callable(hash_func):
            raise ConfigurationError(f"hash_func={hash_func!r}: must be callable")
        self.hash_func = hash_func
        self.group_size = check_count("group_size", group_size)

    def __call__(self, partitions: Sequence[P], key: Any) -> P:
        if self.group_size > len(partitions):
            raise ValueError(f"group_size={self.group_size}: there are only {len(partitions)} partitions")
        ordered = sorted(partitions, key=_id)
        return ordered[abs(_hashed(self.hash_func, key) + random.randrange(self.group_size)) % len(ordered)]
