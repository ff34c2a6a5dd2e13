"""Sticky, where members want different topics: everyone keeps what it had, what is free goes to who has least, then partitions move from those
who have more to those who have less, until no move helps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gkafka.common import TopicPartition
from gkafka.core.assignors.base import Assignment, GroupMember, JavaSet, Topics, java_sorted_as
from gkafka.core.assignors.racks import Racks

__all__ = ["General"]

Pair = tuple[str, str]


class General:
    """members: in the order in which Java's leader would look at them. owned: what each had. before: who had a partition earlier still.

    detours: moves that helped nothing by themselves.
    """

    def __init__(
        self,
        topics: Topics,
        racks: Racks,
        members: Sequence[GroupMember],
        owned: Mapping[str, Mapping[TopicPartition, None]],
        before: Mapping[TopicPartition, str],
    ) -> None:
        self._racks, self._before = racks, before
        self._names = {member.member_id: java_sorted_as(member.member_id) for member in members}
        self._wanted = {member.member_id: set(member.topics) & topics.keys() for member in members}
        self._wanting = {topic: [name for name in self._wanted if topic in self._wanted[name]] for topic in topics}
        self._has: dict[str, dict[TopicPartition, None]] = {name: dict(owned.get(name, {})) for name in self._names}
        self._owner: dict[TopicPartition, str] = {}
        self._sizes = {topic: len(numbers) for topic, numbers in topics.items()}
        order = sorted(topics, key=lambda topic: (len(self._wanting[topic]), java_sorted_as(topic)))
        self._all = [TopicPartition(topic, number) for topic in order for number in range(len(topics[topic]))]
        self._movements = Movements()
        self._unbalanced_at = 0
        self._shared = [topic for topic in order if len(self._wanting[topic]) > 1]
        self._owners: dict[str, dict[str, int]] = {topic: {} for topic in topics}
        self.detours = 0

    def build(self) -> Assignment:
        revoked = self._keep_owned()
        free = [partition for partition in self._all if partition not in self._owner]
        fresh = not any(self._has.values())
        self._deal(free)
        before = {name: dict(partitions) for name, partitions in self._has.items()}
        taking_part = [name for name in self._has if self._takes_part(name)]
        movable = set(self._shared)
        if not revoked:
            self._level([partition for partition in free if partition.topic in movable])
        moved = self._level([partition for partition in self._all if partition.topic in movable])
        if not fresh and moved and _unevenness(self._has, taking_part) >= _unevenness(before, taking_part):
            self._has = before
        return {name: list(partitions) for name, partitions in self._has.items()}

    # -- what stays, and what is free --------------------------------------------------------------------------------------
    def _keep_owned(self) -> bool:
        """True if something could not stay with a member that is still there: then balance matters more than what is new."""
        revoked = False
        for name, partitions in self._has.items():
            for partition in list(partitions):
                if partition.topic not in self._wanted[name] or self._racks.far(name, partition):
                    del partitions[partition]
                    revoked = True
                else:
                    self._set_owner(partition, name)
        return revoked

    def _deal(self, partitions: Sequence[TopicPartition]) -> None:
        """Each to who has least; first, where racks are known, only to members near to it."""
        rest = [tp for tp in partitions if not self._give(tp, near=True)] if self._racks.used else partitions
        for partition in rest:
            self._give(partition, near=False)

    def _give(self, partition: TopicPartition, *, near: bool) -> bool:
        names = self._wanting[partition.topic]
        if near:
            names = [name for name in names if not self._racks.far(name, partition)]
        if not names:
            return False
        self._add(partition, self._poorest(names))
        return True

    def _poorest(self, names: Sequence[str]) -> str:
        least = min(len(self._has[name]) for name in names)
        return min((name for name in names if len(self._has[name]) == least), key=self._names.__getitem__)

    def _add(self, partition: TopicPartition, name: str) -> None:
        self._has[name][partition] = None
        self._set_owner(partition, name)

    def _set_owner(self, partition: TopicPartition, name: str) -> None:
        owners, old = self._owners[partition.topic], self._owner.get(partition)
        if old is not None:
            owners[old] -= 1
            if not owners[old]:
                del owners[old]
        owners[name] = owners.get(name, 0) + 1
        self._owner[partition] = name

    # -- moving ------------------------------------------------------------------------------------------------------------
    def _level(self, partitions: Sequence[TopicPartition]) -> bool:
        """Did anything move? Each round moves what helps; the last one finds nothing."""
        ever, moved = False, True
        while moved:
            moved = False
            for partition in partitions:
                if self._balanced():
                    break
                moved |= self._move(partition)
            ever |= moved
        return ever

    def _balanced(self) -> bool:
        """Nobody has two more than someone who would take one of its partitions. Looks first at the topic that told otherwise last time."""
        for step in range(len(self._shared)):
            at = (self._unbalanced_at + step) % len(self._shared)
            topic = self._shared[at]
            most = max(len(self._has[name]) for name in self._owners[topic])
            if most > min(len(self._has[name]) for name in self._wanting[topic]) + 1:
                self._unbalanced_at = at
                return False
        return True

    def _move(self, partition: TopicPartition) -> bool:
        """Racks, which Java looks at here, change nothing: the partition goes to who has least in either case."""
        owner = self._owner[partition]
        earlier = self._before.get(partition)
        if earlier is not None and partition.topic in self._wanted[earlier] and self._helps(owner, earlier):
            self._hand_over(partition, earlier)
            return True
        poorest = self._poorest(self._wanting[partition.topic])
        if self._helps(owner, poorest):
            self._hand_over(partition, poorest)
            return True
        return False

    def _takes_part(self, name: str) -> bool:
        """Could it get more, or give something?"""
        most = sum(self._sizes[topic] for topic in self._wanted[name])
        return len(self._has[name]) < most or any(len(self._wanting[partition.topic]) > 1 for partition in self._has[name])

    def _helps(self, owner: str, other: str) -> bool:
        return len(self._has[owner]) > len(self._has[other]) + 1

    def _hand_over(self, partition: TopicPartition, name: str) -> None:
        """Rather than move one partition there, a partition of the topic that came from there goes back.

        That one may be with a third member by now, and its move help nothing. As many such as there are partitions are let pass, as in Java;
        more could be a circle.
        """
        instead = self._movements.rather(partition, self._owner[partition], name)
        if instead != partition and not self._helps(self._owner[instead], name):
            self.detours += 1
            if self.detours > len(self._all):
                instead = partition
        owner = self._owner[instead]
        self._movements.record(instead, owner, name)
        del self._has[owner][instead]
        self._add(instead, name)


class Movements:
    """What went from whom to whom, so that a pair of members does not swap partitions of a topic."""

    def __init__(self) -> None:
        self._by_pair: dict[tuple[str, Pair], JavaSet] = {}
        self._pairs: dict[TopicPartition, Pair] = {}

    def record(self, partition: TopicPartition, source: str, target: str) -> None:
        before = self._pairs.pop(partition, None)
        if before is not None:
            self._by_pair[partition.topic, before].discard(partition)
            if not self._by_pair[partition.topic, before]:
                del self._by_pair[partition.topic, before]
            source = before[0]
            if source == target:  # it is back where it was
                return
        self._pairs[partition] = source, target
        self._by_pair.setdefault((partition.topic, (source, target)), JavaSet()).add(partition)

    def rather(self, partition: TopicPartition, source: str, target: str) -> TopicPartition:
        """The partition of the same topic that went the other way, if there is one."""
        if partition in self._pairs:
            source = self._pairs[partition][0]
        back = self._by_pair.get((partition.topic, (target, source)))
        return back.first() if back else partition


def _unevenness(assignment: Mapping[str, Mapping[TopicPartition, None]], names: Sequence[str]) -> int:
    """The sum of the differences of all pairs of these members."""
    sizes = sorted(len(assignment[name]) for name in names)
    return sum(size * (2 * index - len(sizes) + 1) for index, size in enumerate(sizes))
