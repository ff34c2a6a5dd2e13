"""What assignors take and give, and the order of Java's hash tables, on which some of their results depend."""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeAlias, runtime_checkable

from gkafka.common import TopicPartition

__all__ = ["Assignment", "Assignor", "GroupMember", "JavaSet", "Topics", "java_hash", "java_order", "java_sorted_as", "rank"]

Topics: TypeAlias = Mapping[str, Sequence[Collection[str]]]
"""Topic -> for each of its partitions, in order, the racks of its replicas; none where they are not known."""
Assignment: TypeAlias = dict[str, list[TopicPartition]]
"""Member id -> its partitions; an entry for every member."""

NO_GENERATION = -1


class GroupMember(NamedTuple):
    """A member as its leader sees it. owned, generation: what it had in which generation (KIP-429, KIP-792), as far as its client tells."""

    member_id: str
    topics: Sequence[str]
    instance_id: str | None = None
    user_data: bytes | memoryview | None = None
    owned: Sequence[TopicPartition] = ()
    generation: int = NO_GENERATION
    rack: str | None = None


@runtime_checkable
class Assignor(Protocol):
    """name: as it goes over the wire. cooperative: members keep their partitions while they join; what moves is free for a round (KIP-429)."""

    @property
    def name(self) -> str: ...

    @property
    def cooperative(self) -> bool: ...

    def user_data(self, topics: Collection[str], assigned: Sequence[TopicPartition] | None, generation: int) -> bytes | None:
        """What a member tells the leader beside its topics. assigned, generation: its last assignment, None before the first."""

    def assign(self, topics: Topics, members: Sequence[GroupMember]) -> Assignment:
        """members: in the order in which the coordinator told them. Topics that are not there are nobody's."""


# -- members -----------------------------------------------------------------------------------------------------------
def java_sorted_as(text: str) -> bytes:
    """Sorts as Java's strings do: by UTF-16 units."""
    return text.encode("utf-16-be", "surrogatepass")


def rank(member: GroupMember) -> tuple[int, bytes]:
    """Static members come first, by instance id, so that a restart changes nothing (KIP-345); the others by member id."""
    if member.instance_id is not None:
        return 0, java_sorted_as(member.instance_id)
    return 1, java_sorted_as(member.member_id)


# -- java.util.HashMap -------------------------------------------------------------------------------------------------
def java_hash(text: str) -> int:
    """String.hashCode(), unsigned."""
    data = java_sorted_as(text)
    value = 0
    for unit in struct.unpack(f">{len(data) // 2}H", data):
        value = (31 * value + unit) & 0xFFFFFFFF
    return value


def _bucket(value: int, size: int) -> int:
    return (value ^ value >> 16) & (size - 1)


def _grown(size: int, count: int) -> int:
    """The size of a table of `size` buckets after it has held so many keys."""
    while count > size * 3 // 4:
        size *= 2
    return size


def java_order(keys: Iterable[str]) -> list[str]:
    """The keys, put into a new HashMap in this order, as the map then gives them."""
    keys = list(dict.fromkeys(keys))
    size = _grown(16, len(keys))
    return sorted(keys, key=lambda key: _bucket(java_hash(key), size))


class JavaSet:
    """A HashSet of partitions, as far as `first` asks for it."""

    __slots__ = ("_buckets", "_size")

    def __init__(self) -> None:
        self._buckets: dict[TopicPartition, int] = {}
        self._size = 16

    def __bool__(self) -> bool:
        return bool(self._buckets)

    def add(self, partition: TopicPartition) -> None:
        self._buckets.setdefault(partition, (31 * (31 + partition.partition) + java_hash(partition.topic)) & 0xFFFFFFFF)
        self._size = _grown(self._size, len(self._buckets))

    def discard(self, partition: TopicPartition) -> None:
        self._buckets.pop(partition, None)

    def first(self) -> TopicPartition:
        """What its iterator would give first."""
        return min(self._buckets, key=lambda partition: _bucket(self._buckets[partition], self._size))
