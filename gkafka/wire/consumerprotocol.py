"""What the members of a classic group say to each other, inside JoinGroup and SyncGroup: bytes that no broker looks at.

All of it was written by another client and is trusted as little as a broker's bytes: what cannot be read is a ProtocolError that names the
member. A newer version than ours is read as ours; nothing is ever taken out or reordered (ConsumerProtocol.java).
"""

from __future__ import annotations

import struct as packed
from collections.abc import Iterable
from typing import TypeVar

from gkafka.common import TopicPartition
from gkafka.exceptions import ProtocolError
from gkafka.wire.codec import decoder, encoder
from gkafka.wire.primitives import Buffer, Malformed, Writer, read_within
from gkafka.wire.schema import Struct, array, bytes_, int32, string

__all__ = [
    "CONSUMER",
    "ConsumerProtocolAssignment",
    "ConsumerProtocolSubscription",
    "CooperativeUserData",
    "MemberPartitions",
    "StickyUserData",
    "by_topic",
    "flattened",
    "read_assignment",
    "read_cooperative_user_data",
    "read_sticky_user_data",
    "read_subscription",
]

CONSUMER = "consumer"
"""The protocol type of JoinGroup that these bytes belong to."""
NEWEST = 3
MOST_ENTRIES = 100_000
"""Of topics in what a member says, or of eight partitions each: brokers keep about a megabyte for a whole group."""
S = TypeVar("S", bound=Struct)
_version = packed.Struct(">h")


class MemberPartitions(Struct):
    topic: str = string()
    partitions: list[int] = array(int32())


class ConsumerProtocolSubscription(Struct):
    """The metadata of a consumer's JoinGroup. KIP-429 owned partitions (v1); KIP-792 generation (v2); KIP-881 rack (v3)."""

    topics: list[str] = array(string())
    user_data: bytes | memoryview | None = bytes_(nullable="0+", default=None)
    owned_partitions: list[MemberPartitions] = array(MemberPartitions, "1+", ignorable=True)
    generation_id: int = int32("2+", default=-1, ignorable=True)
    rack_id: str | None = string("3+", nullable="3+", default=None, ignorable=True)

    def to_bytes(self, version: int = 0) -> bytes:
        """Its version and itself."""
        return _version.pack(version) + _written(self, version)


class ConsumerProtocolAssignment(Struct):
    """What a consumer gets: an assignment of SyncGroup. Its versions 0 to 3 are alike."""

    assigned_partitions: list[MemberPartitions] = array(MemberPartitions)
    user_data: bytes | memoryview | None = bytes_(nullable="0+", default=None)

    def to_bytes(self, version: int = 0) -> bytes:
        """Its version and itself."""
        return _version.pack(version) + _written(self, version)


class _PartitionsAlone(Struct):
    """An assignment as pykafka's leaders write it: it ends with the partitions."""

    assigned_partitions: list[MemberPartitions] = array(MemberPartitions)

    def to_bytes(self) -> bytes:
        return _version.pack(0) + _written(self, 0)


class StickyUserData(Struct):
    """The user data of the sticky assignor, which carry no version: what the member had, and since when (v1, KIP-341)."""

    previous_assignment: list[MemberPartitions] = array(MemberPartitions)
    generation: int = int32("1+", default=-1)

    def to_bytes(self) -> bytes:
        return _written(self, 1)


class CooperativeUserData(Struct):
    """The user data of the cooperative sticky assignor: the generation that the owned partitions are of (KAFKA-12984)."""

    generation: int = int32(default=-1)

    def to_bytes(self) -> bytes:
        return _written(self, 0)


# -- partitions --------------------------------------------------------------------------------------------------------
def by_topic(partitions: Iterable[TopicPartition]) -> list[MemberPartitions]:
    """Grouped, topics in the order of their first partition."""
    found: dict[str, list[int]] = {}
    for topic, partition in partitions:
        found.setdefault(topic, []).append(partition)
    return [MemberPartitions(topic=topic, partitions=numbers) for topic, numbers in found.items()]


def flattened(topics: Iterable[MemberPartitions]) -> list[TopicPartition]:
    """The partitions one by one, as they stand."""
    return [TopicPartition(topic.topic, partition) for topic in topics for partition in topic.partitions]


# -- reading -----------------------------------------------------------------------------------------------------------
def read_subscription(data: Buffer, member: str) -> ConsumerProtocolSubscription:
    """The metadata of a member that joined. Raises ProtocolError, with the member's id, on anything else."""
    return _read(ConsumerProtocolSubscription, data, f"member {member!r}: the metadata of its JoinGroup", "JoinGroup")


def read_assignment(data: Buffer, member: str) -> ConsumerProtocolAssignment:
    """The assignment of a member. No bytes at all, which a leader sends to a member that it knows nothing for, are no partition; without user
    data, not even null, are those of pykafka's leaders.

    Raises ProtocolError, with the member's id, on anything else.
    """
    if not len(data):
        return ConsumerProtocolAssignment()
    what = f"member {member!r}: the assignment that its leader made"
    try:
        return _read(ConsumerProtocolAssignment, data, what, "SyncGroup")
    except ProtocolError:
        given = _read(_PartitionsAlone, data, what, "SyncGroup")
        if len(given.to_bytes()) != len(data):
            raise
        return ConsumerProtocolAssignment(assigned_partitions=given.assigned_partitions)


def read_sticky_user_data(data: Buffer | None) -> StickyUserData | None:
    """None where the member had nothing yet; an empty one of no generation where the bytes are none that can be read, as Java takes them."""
    if data is None or not len(data):
        return None
    frame = memoryview(data).cast("B")
    for version in (1, 0):
        try:
            return _decoded(StickyUserData, version, frame, 0)
        except Malformed:
            continue
    return StickyUserData()


def read_cooperative_user_data(data: Buffer | None) -> CooperativeUserData | None:
    """None where there is none; one of no generation where the bytes cannot be read."""
    if data is None:
        return None
    try:
        return _decoded(CooperativeUserData, 0, memoryview(data).cast("B"), 0)
    except Malformed:
        return CooperativeUserData()


def _read(cls: type[S], data: Buffer, what: str, api: str) -> S:
    frame = memoryview(data).cast("B")
    if len(frame) < _version.size:
        raise ProtocolError(f"{what} has {len(frame)} bytes, its version alone takes 2", api=api)
    (version,) = _version.unpack_from(frame)
    if version < 0:
        raise ProtocolError(f"{what} says that it has version {version}", api=api)
    try:
        return _decoded(cls, min(version, NEWEST), frame, _version.size)
    except Malformed as error:
        raise ProtocolError(f"{what} (v{version}): {error} at byte {error.position} of {len(frame)}", api=api) from None


def _decoded(cls: type[S], version: int, frame: memoryview, start: int) -> S:
    """What comes behind it is not looked at: newer versions have more."""
    decoded, _ = read_within(MOST_ENTRIES, decoder(cls, version, False), frame, start, why="no member needs so many")
    result: S = decoded
    return result


def _written(what: Struct, version: int) -> bytes:
    out = Writer()
    encoder(type(what), version, False)(out, what)
    return b"".join(out.finish())
