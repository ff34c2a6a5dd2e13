"""Assignors by what they promise: everything once, to those who want it, evenly, without needless moves, in bounded time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

import pytest
from hypothesis import strategies as st

from gkafka.common import TopicPartition
from gkafka.core.assignors import ASSIGNORS, Assignment, CooperativeStickyAssignor, GroupMember, Topics
from gkafka.core.assignors.base import java_hash, java_order
from gkafka.core.assignors.general import General
from gkafka.core.assignors.racks import Racks
from gkafka.core.groupleader import Election
from tests.effort import seeds, tried

STICKY, COOPERATIVE = ASSIGNORS["sticky"], ASSIGNORS["cooperative-sticky"]
STICKIES = pytest.mark.parametrize("assignor", [STICKY, COOPERATIVE], ids=["sticky", "cooperative-sticky"])
EVERY = pytest.mark.parametrize("name", ASSIGNORS)
QUICK = 15
"""Examples of the seed that is not thorough."""


def counted(**partitions: int) -> Topics:
    """Topics without racks."""
    return {topic: [()] * count for topic, count in partitions.items()}


def everything(topics: Topics) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for topic, numbers in topics.items() for number in range(len(numbers))]


def check(topics: Topics, members: Sequence[GroupMember], assignment: Assignment) -> None:
    """Every partition that someone wants is given once, and to a member that wants it; every member has an entry."""
    wanted = {member.member_id: set(member.topics) for member in members}
    assert assignment.keys() == wanted.keys()
    given = Counter(partition for partitions in assignment.values() for partition in partitions)
    assert set(given.values()) <= {1}
    assert given.keys() == {tp for tp in everything(topics) if any(tp.topic in names for names in wanted.values())}
    assert all(tp.topic in wanted[name] for name, partitions in assignment.items() for tp in partitions)


def member(name: str, *topics: str, owned: Sequence[TopicPartition] = (), generation: int = -1) -> GroupMember:
    """A member whose data are read by both sticky assignors."""
    data = STICKY.user_data(topics, owned, generation) if owned else None
    return GroupMember(name, topics, None, data, owned, generation)


def settled(topics: Topics, members: Sequence[GroupMember], generation: int) -> tuple[Assignment, int]:
    """Cooperative rounds until nothing moves any more; the assignment, and how many rounds it took."""
    for rounds in range(1, 10):
        assignment = COOPERATIVE.assign(topics, members)
        let_go = any(set(m.owned) - set(assignment[m.member_id]) for m in members)
        members = [m._replace(owned=assignment[m.member_id], generation=generation + rounds) for m in members]
        if not let_go:
            return assignment, rounds
    raise AssertionError("the group does not come to rest")


# -- made up by Hypothesis -----------------------------------------------------------------------------------------------
names = st.sampled_from([f"t{n}" for n in range(5)])
racks = st.sets(st.sampled_from(["a", "b", "c"]), max_size=2)
all_topics = st.dictionaries(names, st.lists(racks, min_size=1, max_size=7), max_size=5)
a_partition = st.builds(TopicPartition, names, st.integers(-2, 9))


@st.composite
def groups(draw: st.DrawFn) -> tuple[Topics, list[GroupMember]]:
    """Members may claim anything, twice, of any generation: what they say was written by others."""
    alike = draw(st.booleans())
    common = draw(st.lists(names, min_size=1, max_size=5, unique=True))
    members = []
    for n in range(draw(st.integers(1, 7))):
        topics = common if alike else draw(st.lists(names, max_size=5))
        claimed = draw(st.lists(a_partition, max_size=10))
        generation = draw(st.integers(-1, 3))
        kind = draw(st.sampled_from(["right", "none", "garbage"]))
        data = {"right": STICKY.user_data(topics, claimed, generation), "none": None, "garbage": draw(st.binary(max_size=12))}[kind]
        rack = draw(st.sampled_from([None, "", "a", "b"]))
        instance = draw(st.sampled_from([None, None, "i1", "i2"]))
        members.append(GroupMember(f"m{n}", topics, instance, data, claimed, generation, rack))
    return draw(all_topics), draw(st.permutations(members))


@EVERY
@pytest.mark.parametrize("seed", seeds(10))
def test_every_partition_has_one_owner_that_wants_it(name: str, seed: int) -> None:
    """Of the cooperative one: in the end, and until then nothing is twice."""

    def judge(group: tuple[Topics, list[GroupMember]]) -> None:
        topics, members = group
        assignment = ASSIGNORS[name].assign(topics, members)
        if name == "cooperative-sticky":
            given = Counter(tp for partitions in assignment.values() for tp in partitions)
            assert set(given.values()) <= {1}
            assignment, _ = settled(topics, [m._replace(generation=m.generation) for m in members], 5)
        check(topics, members, assignment)

    tried(judge, groups(), seed=seed, examples=150 if seed else QUICK)


@STICKIES
@pytest.mark.parametrize("seed", seeds(10))
def test_sticky_is_as_even_as_can_be(assignor: CooperativeStickyAssignor, seed: int) -> None:
    """Nobody has two more than one who would take some of it. (With racks nearness comes first where topics differ, too: left out.)"""

    def judge(group: tuple[Topics, list[GroupMember]]) -> None:
        topics, members = group
        members = [m._replace(rack=None) for m in members]
        assignment = settled(topics, members, 5)[0] if assignor.cooperative else assignor.assign(topics, members)
        for rich, partitions in assignment.items():
            for poor in members:
                takes = [tp for tp in partitions if tp.topic in poor.topics]
                assert not takes or len(partitions) <= len(assignment[poor.member_id]) + 1, (rich, poor.member_id, assignment)

    tried(judge, groups(), seed=seed, examples=150 if seed else QUICK)


@STICKIES
@pytest.mark.parametrize("seed", seeds(10))
def test_what_was_even_stays_as_it_is(assignor: CooperativeStickyAssignor, seed: int) -> None:
    def judge(group: tuple[Topics, list[GroupMember]]) -> None:
        topics, members = group
        first, _ = settled(topics, members, 5)
        again = [member(m.member_id, *m.topics, owned=first[m.member_id], generation=20) for m in members]
        second = assignor.assign({topic: [()] * len(numbers) for topic, numbers in topics.items()}, again)
        third = assignor.assign(counted(**{t: len(n) for t, n in topics.items()}), _told(again, second, 21))
        assert {name: set(partitions) for name, partitions in second.items()} == {name: set(p) for name, p in third.items()}

    tried(judge, groups(), seed=seed, examples=100 if seed else QUICK)


def _told(members: Sequence[GroupMember], assignment: Mapping[str, Sequence[TopicPartition]], generation: int) -> list[GroupMember]:
    return [member(m.member_id, *m.topics, owned=assignment[m.member_id], generation=generation) for m in members]


@STICKIES
@pytest.mark.parametrize("count", [2, 5, 9])
def test_when_a_member_goes_only_its_partitions_move(assignor: CooperativeStickyAssignor, count: int) -> None:
    topics = counted(a=20, b=7)
    members = [member(f"m{n}", "a", "b") for n in range(count)]
    before = assignor.assign(topics, members)
    left = _told(members[1:], before, 1)
    after = settled(topics, left, 1)[0] if assignor.cooperative else assignor.assign(topics, left)
    for m in left:
        assert set(before[m.member_id]) <= set(after[m.member_id])


@STICKIES
def test_when_a_member_comes_it_gets_its_share_and_no_more_moves(assignor: CooperativeStickyAssignor) -> None:
    topics = counted(a=12)
    members = [member(f"m{n}", "a") for n in range(3)]
    before = assignor.assign(topics, members)
    more = [*_told(members, before, 1), member("new", "a")]
    after = settled(topics, more, 1)[0] if assignor.cooperative else assignor.assign(topics, more)
    assert [len(partitions) for partitions in after.values()] == [3, 3, 3, 3]
    assert all(set(after[m.member_id]) <= set(before[m.member_id]) for m in members)


def test_what_moves_is_free_for_one_round() -> None:
    topics = counted(a=4)
    first = [member("m0", "a", owned=everything(topics), generation=1), member("m1", "a")]
    freed = COOPERATIVE.assign(topics, first)
    assert (len(freed["m0"]), freed["m1"]) == (2, [])
    assignment, rounds = settled(topics, first, 1)
    assert (len(assignment["m0"]), len(assignment["m1"]), rounds) == (2, 2, 2)


def test_two_that_claim_the_same_in_one_generation_both_lose_it() -> None:
    """KAFKA-12984: whoever of them is right, the other must let go before a third has it."""
    topics = counted(a=2)
    claims = [member(name, "a", owned=everything(topics), generation=3) for name in ("m0", "m1")]
    assert sorted(COOPERATIVE.assign(topics, claims).values()) == [[], []]


def test_a_member_of_an_older_generation_does_not_keep_what_another_has_now() -> None:
    topics = counted(a=2)
    zombie = member("m0", "a", owned=everything(topics), generation=2)
    owner = member("m1", "a", owned=everything(topics), generation=3)
    for members in ([zombie, owner], [owner, zombie]):
        assert set(COOPERATIVE.assign(topics, members)["m1"]) < set(everything(topics))
        assert COOPERATIVE.assign(topics, members)["m0"] == []


@STICKIES
def test_partitions_that_are_gone_are_given_to_nobody(assignor: CooperativeStickyAssignor) -> None:
    """A topic that was made anew with fewer partitions. Java's assignor goes on to give out what is not there, and other things twice."""
    had = [TopicPartition("a", number) for number in range(8)]
    topics = counted(a=2, b=2)
    for wanted in (("a", "b"), ("b", "a", "c")):
        members = [member("m0", "a", "b", owned=had, generation=1), member("m1", *wanted)]
        check(topics, members, settled(topics, members, 1)[0] if assignor.cooperative else assignor.assign(topics, members))


def test_moves_that_help_nothing_come_to_an_end() -> None:
    """B51 librdkafka#3159, #4800: moves that take each other back went on for ever. Here each is counted, and too many are refused."""
    detours = 0
    for seed in range(300):
        chance = Random(seed)
        topics = counted(**{f"t{n}": chance.randint(1, 9) for n in range(4)})
        members = [GroupMember(f"m{n}", chance.sample(sorted(topics), chance.randint(1, 4))) for n in range(6)]
        owned = {m.member_id: {tp: None for tp in everything(topics) if tp.topic in m.topics and chance.random() < 0.4} for m in members}
        before = {tp: chance.choice(members).member_id for tp in everything(topics)}
        machine = General(topics, Racks(topics, members), members, _once(owned), before)
        check(topics, members, machine.build())
        detours += machine.detours
    assert detours > 0, "some moves help nothing"


def _once(owned: dict[str, dict[TopicPartition, None]]) -> dict[str, dict[TopicPartition, None]]:
    seen: set[TopicPartition] = set()
    for partitions in owned.values():
        for partition in [tp for tp in partitions if tp in seen]:
            del partitions[partition]
        seen |= partitions.keys()
    return owned


# -- Java's order --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ASSIGNORS)
def test_the_leader_of_nobody_divides_nothing(name: str) -> None:
    """A coordinator that makes a member one makes a mistake of its own; it was an error of the assignor's."""
    election = Election(ASSIGNORS[name], [], frozenset("t"), lambda _: False)
    assert election.make({"t": [()] * 3}) == ([], None)


@pytest.mark.parametrize("number", [0.0, "0", None])
def test_what_only_equals_a_partitions_number_is_none(number: Any) -> None:
    """0.0 is in range(1), and cannot be written down: the leader divided again and again, and nobody got anything."""

    class OfMine:
        name, cooperative = "mine", False

        def user_data(self, *_: Any) -> None:
            return None

        def assign(self, topics: Any, members: Any) -> Any:
            return {members[0].member_id: [("t", number)]}

    member = GroupMember("a", ("t",))
    made = Election(OfMine(), [member], frozenset("t"), lambda _: False).make({"t": [()]})
    assert "which is no partition" in str(made.problem)
    assert len(made.assignments) == 1


def test_strings_hash_as_in_java() -> None:
    assert [java_hash(text) for text in ("", "a", "consumer", "é€", "\U0001f600")] == [0, 97, 3727197174, 15587, 1772899]
    assert java_order(["t10", "b", "a", "q", "consumer-1", "a"]) == ["a", "q", "t10", "b", "consumer-1"]
