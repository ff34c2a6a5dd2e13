"""Range: each topic is cut into ranges. Round robin: all partitions are dealt out one by one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from gkafka.common import TopicPartition
from gkafka.core.assignors.base import Assignment, GroupMember, Topics, java_order, java_sorted_as, rank
from gkafka.core.assignors.racks import matter, racks_of

__all__ = ["RangeAssignor", "RoundRobinAssignor"]


class _Plain:
    """Assignors that look at nothing but the topics."""

    cooperative = False

    def user_data(self, topics: Collection[str], assigned: Sequence[TopicPartition] | None, generation: int) -> bytes | None:
        return None


class RoundRobinAssignor(_Plain):
    name = "roundrobin"

    def assign(self, topics: Topics, members: Sequence[GroupMember]) -> Assignment:
        by_id = {member.member_id: member for member in members}
        circle = sorted((by_id[name] for name in java_order(by_id)), key=rank)
        wanted = [set(member.topics) for member in circle]
        assignment: Assignment = {name: [] for name in by_id}
        turn = 0
        for topic in sorted(set().union(*wanted) & topics.keys(), key=java_sorted_as):
            for partition in range(len(topics[topic])):
                while topic not in wanted[turn % len(circle)]:
                    turn += 1
                assignment[circle[turn % len(circle)].member_id].append(TopicPartition(topic, partition))
                turn += 1
        return assignment


class RangeAssignor(_Plain):
    """Partitions of the same number of topics that have the same number of partitions go together, so that they can be joined.

    With racks, a member gets what has a replica in its rack first, and of topics like the above all or none of a number (KIP-881).
    """

    name = "range"

    def assign(self, topics: Topics, members: Sequence[GroupMember]) -> Assignment:
        by_id = {member.member_id: member for member in members}
        ranked = sorted((by_id[name] for name in java_order(by_id)), key=rank)
        wanted = {name: set(member.topics) for name, member in by_id.items()}
        cuts = [
            _Cut(topic, racks, [member for member in ranked if topic in wanted[member.member_id]])
            for topic, racks in topics.items()
            if racks
        ]
        assignment: Assignment = {name: [] for name in by_id}
        racked = any(cut.by_rack for cut in cuts)
        if racked:
            _match_racks(cuts, assignment)
        for cut in cuts:
            cut.fill(assignment, lambda member, partition: True)
        if racked:
            for partitions in assignment.values():
                partitions.sort(key=lambda one: (java_sorted_as(one.topic), one.partition))
        return assignment


class _Cut:
    """One topic, and how much of it each member may still get."""

    def __init__(self, topic: str, racks: Sequence[Collection[str]], members: Sequence[GroupMember]) -> None:
        self.topic = topic
        self.members = [member.member_id for member in members]
        self.left = dict.fromkeys(range(len(racks)))
        self._has = dict.fromkeys(self.members, 0)
        self._each, self._more = divmod(len(racks), len(self.members)) if self.members else (0, 0)
        self._racks = {member.member_id: member.rack for member in members if member.rack}
        self._replicas = racks_of(racks) if self._racks else []
        self.by_rack = matter(set(self._racks.values()), self._replicas)
        self.like = (frozenset((name, self._racks.get(name)) for name in self.members), len(self._replicas))

    def near(self, member: str, partition: int) -> bool:
        """Is a replica in the member's rack? One without a rack takes any."""
        rack = self._racks.get(member)
        return rack is None or (partition < len(self._replicas) and rack in self._replicas[partition])

    def room(self, member: str) -> int:
        return max(0, self._each + (self._more > 0) - self._has[member])

    def give(self, member: str, partitions: Sequence[int], assignment: Assignment) -> None:
        assignment[member] += [TopicPartition(self.topic, partition) for partition in partitions]
        self._has[member] += len(partitions)
        if self._has[member] > self._each:
            self._more -= 1
        for partition in partitions:
            del self.left[partition]

    def fill(self, assignment: Assignment, fits: Callable[[str, int], bool]) -> None:
        for member in self.members:
            if not self.left:
                return
            given = [partition for partition in self.left if fits(member, partition)][: self.room(member)]
            if given:
                self.give(member, given, assignment)


def _match_racks(cuts: Sequence[_Cut], assignment: Assignment) -> None:
    alike: dict[object, list[_Cut]] = {}
    for cut in cuts:
        alike.setdefault(cut.like, []).append(cut)
    for group in alike.values():
        if len(group) > 1:
            _match_together(group, assignment)
        elif group[0].by_rack:
            group[0].fill(assignment, group[0].near)


def _match_together(cuts: Sequence[_Cut], assignment: Assignment) -> None:
    """Topics with the same members and as many partitions: a number goes to one member in all of them."""
    remaining = list(cuts[0].members)
    for partition in range(cuts[0].like[1]):
        chosen = next((m for m in remaining if all(cut.near(m, partition) and cut.room(m) > 0 for cut in cuts)), None)
        if chosen is None:
            continue
        for cut in cuts:
            cut.give(chosen, [partition], assignment)
        if all(cut.room(chosen) == 0 for cut in cuts):
            remaining.remove(chosen)
