"""Sticky, where all members want the same topics: everyone keeps up to its share, the rest is dealt out."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from gkafka.common import TopicPartition
from gkafka.core.assignors.base import Assignment, Topics, java_sorted_as
from gkafka.core.assignors.racks import Racks

__all__ = ["Constrained"]

Owned = Mapping[str, Mapping[TopicPartition, None]]


class Constrained:
    """least, most: the two shares that come out; `extra` members have the larger one. moved: partition -> the member that gets what another had.

    owned: in the order in which Java's leader would look at the members. disputed: nobody keeps these.
    """

    def __init__(self, topics: Topics, racks: Racks, owned: Owned, disputed: set[TopicPartition]) -> None:
        self._topics, self._racks, self._owned, self._disputed = topics, racks, owned, disputed
        total = sum(map(len, topics.values()))
        self._least, self._extra = divmod(total, len(owned))
        self._most = self._least + (self._extra > 0)
        self._full = 0  # members that have the larger share
        self._under: list[str] = []
        self._at_least: deque[str] = deque()  # members with the smaller share, of which some will get one more
        self._given_up: dict[TopicPartition, str] = {}
        self._assignment: Assignment = {member: [] for member in owned}
        self.moved: dict[TopicPartition, str] = {}

    def build(self) -> Assignment:
        for member, partitions in self._owned.items():
            self._keep(member, [tp for tp in partitions if self._stays(member, tp)])
        self._under.sort(key=java_sorted_as)
        self._at_least = deque(sorted(self._at_least, key=java_sorted_as))
        rest = self._racks.rarest_first(self._unassigned())
        if self._racks.used:
            rest = self._deal_by_rack(rest)
        self._deal(rest)
        return self._assignment

    def _stays(self, member: str, partition: TopicPartition) -> bool:
        if self._racks.far(member, partition):
            self._given_up[partition] = member
            return False
        return partition not in self._disputed

    def _keep(self, member: str, had: list[TopicPartition]) -> None:
        had.sort(key=lambda tp: (tp.partition, java_sorted_as(tp.topic)))
        if len(had) < self._least:
            self._assignment[member] += had
            self._under.append(member)
            return
        larger = len(had) >= self._most and self._full < self._extra
        share = self._most if larger else self._least
        self._assignment[member] += had[:share]
        self._given_up.update(dict.fromkeys(had[share:], member))
        if larger:
            self._one_more_is_full()
        elif self._full < self._extra:
            self._at_least.append(member)

    def _one_more_is_full(self) -> None:
        self._full += 1
        if self._full == self._extra:
            self._at_least.clear()

    def _unassigned(self) -> list[TopicPartition]:
        there = {tp for partitions in self._assignment.values() for tp in partitions}
        all_of_them = (
            TopicPartition(topic, p) for topic in sorted(self._topics, key=java_sorted_as) for p in range(len(self._topics[topic]))
        )
        return [tp for tp in all_of_them if tp not in there]

    def _deal_by_rack(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """What a member near to it can get; returns the rest."""
        rest, turn = [], 0
        for partition in partitions:
            index = self._racks.next_near(partition, self._under, turn)
            if index >= 0:
                turn = self._give_under(partition, index)
            elif not self._give_at_least(partition):
                rest.append(partition)
        return rest

    def _give_under(self, partition: TopicPartition, index: int) -> int:
        """Returns whose turn is next."""
        member = self._under[index]
        count = self._give(partition, member)
        if count >= self._least:
            del self._under[index]
            if count < self._most and self._full < self._extra:
                self._at_least.append(member)
        else:
            index += 1
        return index % len(self._under) if self._under else 0

    def _give_at_least(self, partition: TopicPartition) -> bool:
        index = self._racks.next_near(partition, self._at_least, 0)
        if index < 0:
            return False
        member = self._at_least[index]
        if self._give(partition, member) == self._most:
            del self._at_least[index]
            self._one_more_is_full()
        return True

    def _deal(self, partitions: list[TopicPartition]) -> None:
        """In turns to those below their share, then one more to each of the others."""
        turn = 0
        for partition in partitions:
            if self._under:
                turn %= len(self._under)
                member = self._under[turn]
            else:
                member = self._at_least.popleft()
            if self._give(partition, member) == self._least:
                del self._under[turn]
                self._at_least.append(member)
            else:
                turn += 1

    def _give(self, partition: TopicPartition, member: str) -> int:
        self._assignment[member].append(partition)
        if partition in self._disputed or self._given_up.get(partition, member) != member:
            self.moved[partition] = member
        return len(self._assignment[member])
