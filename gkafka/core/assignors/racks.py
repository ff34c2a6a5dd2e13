"""KIP-881: who reads from a replica in its own rack."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from gkafka.common import TopicPartition
from gkafka.core.assignors.base import GroupMember, Topics

__all__ = ["Racks", "matter", "racks_of"]


def racks_of(replicas: Sequence[Collection[str]]) -> list[frozenset[str]]:
    return [frozenset(racks) for racks in replicas]


def matter(consumers: Collection[str], replicas: Sequence[frozenset[str]]) -> bool:
    """Do racks make a difference? Not where no member is near any replica, nor where every partition is in all of the racks."""
    everywhere = frozenset().union(*replicas)
    return not everywhere.isdisjoint(consumers) and any(racks != everywhere for racks in replicas)


class Racks:
    """The racks of a whole group. used: they make a difference; otherwise nothing is ever far."""

    def __init__(self, topics: Topics, members: Sequence[GroupMember]) -> None:
        consumers: Mapping[str, str] = {member.member_id: member.rack for member in members if member.rack}
        replicas: dict[TopicPartition, frozenset[str]] = {}
        if consumers:
            for topic, racks in topics.items():
                replicas.update((TopicPartition(topic, number), found) for number, found in enumerate(racks_of(racks)))
        self.used = matter(set(consumers.values()), list(replicas.values()))
        self._replicas = replicas if self.used else {}
        self._consumers = consumers if self.used else {}
        self._near = {tp: sum(rack in racks for rack in consumers.values()) for tp, racks in replicas.items()}

    def far(self, member: str, partition: TopicPartition) -> bool:
        rack = self._consumers.get(member)
        return rack is not None and rack not in self._replicas.get(partition, ())

    def rarest_first(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """Those that few members are near to come first."""
        return sorted(partitions, key=lambda partition: self._near.get(partition, 0)) if self._near else partitions

    def next_near(self, partition: TopicPartition, members: Sequence[str], first: int) -> int:
        """The index of the next member in the rack of a replica, going round from `first`; -1 if there is none."""
        racks = self._replicas.get(partition)
        if racks:
            for step in range(len(members)):
                index = (first + step) % len(members)
                if self._consumers.get(members[index]) in racks:
                    return index
        return -1
