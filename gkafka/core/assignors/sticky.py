"""Sticky: as balanced as can be, and as much as possible stays where it was (KIP-54). Cooperative: what moves is free for a round (KIP-429)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from gkafka.common import TopicPartition
from gkafka.core.assignors.base import NO_GENERATION, Assignment, GroupMember, Topics, java_order
from gkafka.core.assignors.constrained import Constrained
from gkafka.core.assignors.general import General
from gkafka.core.assignors.racks import Racks
from gkafka.logs import get_logger
from gkafka.wire.consumerprotocol import (
    CooperativeUserData,
    MemberPartitions,
    StickyUserData,
    flattened,
    read_cooperative_user_data,
    read_sticky_user_data,
)

__all__ = ["Claim", "CooperativeStickyAssignor", "StickyAssignor"]

log = get_logger(__name__)


class Claim(NamedTuple):
    """What a member says that it had. generation: NO_GENERATION where its client does not tell."""

    partitions: Sequence[TopicPartition]
    generation: int


class StickyAssignor:
    """Members give up everything before they join, and tell in their user data what they had."""

    name = "sticky"
    cooperative = False

    def user_data(self, topics: Collection[str], assigned: Sequence[TopicPartition] | None, generation: int) -> bytes | None:
        if assigned is None:
            return None
        numbers: dict[str, list[int]] = {}
        for topic, partition in assigned:
            numbers.setdefault(topic, []).append(partition)
        had = [MemberPartitions(topic=topic, partitions=numbers[topic]) for topic in java_order(numbers)]
        return StickyUserData(previous_assignment=had, generation=generation).to_bytes()

    def claim(self, member: GroupMember) -> Claim:
        data = read_sticky_user_data(member.user_data) or StickyUserData()
        return Claim(flattened(data.previous_assignment), data.generation)

    def assign(self, topics: Topics, members: Sequence[GroupMember]) -> Assignment:
        return self._assign(topics, members)[0]

    def _assign(self, topics: Topics, members: Sequence[GroupMember]) -> tuple[Assignment, dict[TopicPartition, str]]:
        """The assignment, and what goes from one member to another with it: partition -> who gets it."""
        by_id = {member.member_id: member for member in members}
        ordered = [by_id[name] for name in java_order(by_id)]
        subscribed = set().union(*(member.topics for member in members))
        there = {topic: racks for topic, racks in topics.items() if topic in subscribed and racks}
        held = Held(there, [(member, self.claim(member)) for member in ordered])
        racks = Racks(there, ordered)
        if _alike(ordered):
            made = Constrained(there, racks, held.owned, held.disputed)
            return made.build(), made.moved
        assignment = General(there, racks, ordered, held.owned, held.before).build()
        return assignment, _moved(ordered, assignment)


class CooperativeStickyAssignor(StickyAssignor):
    """Members keep what they have while they join. What another has is given to nobody in this round; when that one has let go of it, it joins
    again, and the next round gives it out.
    """

    name = "cooperative-sticky"
    cooperative = True

    def user_data(self, topics: Collection[str], assigned: Sequence[TopicPartition] | None, generation: int) -> bytes | None:
        return CooperativeUserData(generation=generation).to_bytes()

    def claim(self, member: GroupMember) -> Claim:
        if member.generation >= 0:
            return Claim(member.owned, member.generation)
        data = read_cooperative_user_data(member.user_data) or CooperativeUserData()
        return Claim(member.owned, data.generation)

    def assign(self, topics: Topics, members: Sequence[GroupMember]) -> Assignment:
        assignment, moved = self._assign(topics, members)
        for member in set(moved.values()):
            assignment[member] = [partition for partition in assignment[member] if moved.get(partition) != member]
        return assignment


def _alike(members: Sequence[GroupMember]) -> bool:
    """Does everyone want the same topics? As Java counts: a topic that is named twice makes a member another one.

    Unlike Java, where one that wants nothing is taken for one of the others and given what it cannot read.
    """
    wanted = set(members[0].topics)
    return all(wanted.issuperset(m.topics) and len(m.topics) == len(wanted) for m in members[1:])


def _moved(members: Sequence[GroupMember], assignment: Assignment) -> dict[TopicPartition, str]:
    added: dict[TopicPartition, str] = {}
    revoked: set[TopicPartition] = set()
    for member in members:
        had, has = set(member.owned), assignment[member.member_id]
        added.update((partition, member.member_id) for partition in has if partition not in had)
        revoked |= had.difference(has)
    return {partition: member for partition, member in added.items() if partition in revoked}


class Held:
    """Who had what, when not two say so. The newest generation is right; of two members of one neither is (KAFKA-12984).

    owned: member id -> partitions. disputed: claimed by two of one generation. before: partition -> the newest of those who had it earlier.
    Partitions that do not exist are nobody's: a topic may have been made anew with fewer, and members can say anything.
    """

    def __init__(self, topics: Topics, claims: Sequence[tuple[GroupMember, Claim]]) -> None:
        self.owned: dict[str, dict[TopicPartition, None]] = {}
        self.disputed: set[TopicPartition] = set()
        self.before: dict[TopicPartition, str] = {}
        self._owner: dict[TopicPartition, GroupMember] = {}
        for member, claim in claims:
            self.owned[member.member_id] = {}
            for partition in claim.partitions:
                if partition.partition in range(len(topics.get(partition.topic, ()))):
                    self._take(partition, member, claim.generation)
        self._look_back(claims)

    def _take(self, partition: TopicPartition, member: GroupMember, generation: int) -> None:
        other = self._owner.get(partition)
        if other is not None:
            if generation < other.generation:
                return
            self.owned[other.member_id].pop(partition, None)
            if generation == other.generation:
                log.debug("%s-%d is claimed by %s and %s in generation %d", *partition, other.member_id, member.member_id, generation)
                self.disputed.add(partition)
        self._owner[partition] = member
        if other is None or generation > other.generation:
            self.owned[member.member_id][partition] = None

    def _look_back(self, claims: Sequence[tuple[GroupMember, Claim]]) -> None:
        newest = max(NO_GENERATION, *(claim.generation for _, claim in claims))
        seen: dict[TopicPartition, int] = {}
        for member, claim in claims:
            for partition in claim.partitions if claim.generation < newest else ():
                if partition not in seen or claim.generation > seen[partition]:
                    seen[partition], self.before[partition] = claim.generation, member.member_id
