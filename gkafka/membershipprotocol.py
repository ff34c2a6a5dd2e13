"""How the members of a group divide a topic, under pykafka's names. Documented: pykafka 2.8.

A protocol's `decide_partitions(participants, partitions, consumer_id)` is called with the ids of all members, the topic's partitions by id and
one member's id, and returns that member's partitions. Every member computes its own share, so all must come to the same division: the order
of members is that of their ids, the order of partitions that of pykafka (topic, leader, partition, compared as text), and members of both
clients can share a group.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from gkafka.checks import check_name
from gkafka.exceptions import ConfigurationError
from gkafka.partition import Partition
from gkafka.unseen import described

__all__ = [
    "GroupMembershipProtocol",
    "RangeProtocol",
    "RoundRobinProtocol",
    "check_protocol",
    "decide_partitions_range",
    "decide_partitions_roundrobin",
    "flaw_of",
    "share_of",
]

Decide = Callable[[Iterable[Any], Mapping[int, Partition], Any], Iterable[Partition]]


class GroupMembershipProtocol(NamedTuple):
    """protocol_type: b"consumer"; protocol_name: what members agree on, such as b"range"; metadata: what a member tells of itself, None for the
    topic alone; decide_partitions: see the module.
    """

    protocol_type: bytes
    protocol_name: bytes
    metadata: Any
    decide_partitions: Decide


def in_order(partitions: Mapping[int, Partition]) -> list[Partition]:
    """The order that every member counts in."""
    return sorted(partitions.values(), key=lambda p: f"{p.topic.name}-{leader_id(p)}-{p.id}")


def leader_id(partition: Partition) -> int:
    """The id of its leader, -1 while it has none."""
    return partition.leader.id if partition.leader is not None else -1


def decide_partitions_range(participants: Iterable[Any], partitions: Mapping[int, Partition], consumer_id: Any) -> set[Partition]:
    """A run of neighbouring partitions for each member; the first members have one more where it does not come out even."""
    members, ordered = sorted(participants), in_order(partitions)
    place = _place(members, consumer_id)
    each, more = divmod(len(ordered), len(members))
    start = each * place + min(place, more)
    return set(ordered[start : start + each + (place < more)])


def decide_partitions_roundrobin(participants: Iterable[Any], partitions: Mapping[int, Partition], consumer_id: Any) -> set[Partition]:
    """The partitions are dealt out to the members in turn."""
    members = sorted(participants)
    return set(in_order(partitions)[_place(members, consumer_id) :: len(members)])


def _place(members: list[Any], consumer_id: Any) -> int:
    if consumer_id not in members:
        raise ConfigurationError(f"consumer_id={consumer_id!r}: is none of the participants {members!r}")
    return members.index(consumer_id)


RangeProtocol = GroupMembershipProtocol(b"consumer", b"range", None, decide_partitions_range)
RoundRobinProtocol = GroupMembershipProtocol(b"consumer", b"roundrobin", None, decide_partitions_roundrobin)


def check_protocol(protocol: Any) -> GroupMembershipProtocol:
    """A GroupMembershipProtocol, or whatever has its four attributes. Raises ConfigurationError."""
    fields = [getattr(protocol, name, None) for name in GroupMembershipProtocol._fields]
    kind, name, metadata, decide = fields
    if not isinstance(kind, bytes) or not isinstance(name, bytes) or not name or not callable(decide):
        raise ConfigurationError(
            f"membership_protocol={protocol!r}: must be RangeProtocol, RoundRobinProtocol, or a GroupMembershipProtocol of bytes, bytes, metadata and"
            " a callable"
        )
    check_name("membership_protocol: protocol_name", name)
    return GroupMembershipProtocol(kind, name, metadata, decide)


def share_of(protocol: GroupMembershipProtocol, participants: list[Any], partitions: Mapping[int, Partition], consumer_id: Any) -> set[int]:
    """The ids of one member's partitions, checked. Raises ConfigurationError where the protocol fails or returns what is no partition."""
    name = protocol.protocol_name.decode(errors="replace")
    try:
        decided = list(protocol.decide_partitions(participants, partitions, consumer_id))
    except Exception as exc:
        raise ConfigurationError(f"membership_protocol {name!r} failed: {described(exc)}") from exc
    for partition in decided:
        if not isinstance(partition, Partition) or partitions.get(partition.id) is not partition:
            raise ConfigurationError(
                f"membership_protocol {name!r} chose {partition!r}, which is none of the partitions {sorted(partitions)}"
            )
    return {partition.id for partition in decided}


def flaw_of(protocol: GroupMembershipProtocol, participants: list[Any], partitions: Mapping[int, Partition]) -> str:
    """What is wrong with how a protocol of one's own divides: partitions of nobody, or of two members. "" if nothing is."""
    if protocol in (RangeProtocol, RoundRobinProtocol):
        return ""
    try:
        owners = Counter(p for id_ in participants for p in share_of(protocol, participants, partitions, id_))
    except ConfigurationError as exc:
        return str(exc)
    of_nobody, of_many = sorted(partitions.keys() - owners.keys()), sorted(p for p, count in owners.items() if count > 1)
    flaws = [f"gives partitions {of_nobody} to nobody"] if of_nobody else []
    flaws += [f"gives partitions {of_many} to more than one member"] if of_many else []
    return f"membership_protocol {protocol.protocol_name.decode(errors='replace')!r} {' and '.join(flaws)}" if flaws else ""
