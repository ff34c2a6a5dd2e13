"""What bit the members of other clients' groups: two owners, offsets that go back, groups that stand still."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from gkafka.brokererrors import UnknownMemberId
from gkafka.common import TopicPartition
from gkafka.core.assignors import ASSIGNORS, GroupMember
from gkafka.core.groupstate import Change, State, Verdict
from gkafka.exceptions import SocketDisconnectedError
from gkafka.wire.consumerprotocol import flattened, read_subscription
from gkafka.wire.groups import FindCoordinatorRequest, HeartbeatRequest, JoinGroupRequest, LeaveGroupRequest, SyncGroupRequest
from tests.core.dividing import divide
from tests.core.grouprig import BEAT_S, COOPERATIVE, SESSION_S, Rig, metadata, partitions
from tests.kit.clock import now

GONE = SocketDisconnectedError("gone")


# -- commits -----------------------------------------------------------------------------------------------------------
def test_b21_what_was_stored_before_a_partition_went_is_not_committed_when_it_is_back() -> None:
    """B21 librdkafka#2782: an offset stored in an earlier assignment was committed in the next one: the group went back."""
    rig = Rig(COOPERATIVE)
    rig.stable(0)
    stored = dict(rig.group.delivered(rig.now))
    rig.beat(25)
    rig.told()
    rig.join(5)
    rig.sync(0)
    rig.told()
    assert rig.owned() == partitions(0)
    assert rig.ticket(stored) is None
    assert rig.ticket(rig.group.delivered(rig.now)) is not None


def test_b22_a_partition_that_was_with_another_member_meanwhile_is_a_new_one() -> None:
    """B22 librdkafka#1767: A to B to A, and A commits where it was the first time."""
    rig = Rig(COOPERATIVE)
    rig.stable(0, 1)
    stored = dict(rig.group.delivered(rig.now))
    for numbers in ([1], [1], [0, 1]):
        if rig.group.state is State.STABLE:
            rig.beat(27)
        rig.join(rig.group.generation + 1)
        rig.sync(*numbers)
        while rig.tells:
            rig.told()
    assert rig.owned() == partitions(0, 1)
    ticket = rig.ticket(stored)
    assert ticket is not None
    assert ticket.partitions == set(partitions(1)), "1 never went"


@pytest.mark.parametrize("how", ["revoked", "lost"])
def test_b23_nothing_is_committed_of_what_is_gone(how: str) -> None:
    """B23 akka/alpakka-kafka#118: commits for partitions that were revoked."""
    rig = Rig(COOPERATIVE)
    rig.stable(0, 1)
    stored = dict(rig.group.delivered(rig.now))
    if how == "lost":
        rig.beat(22)
        assert rig.ticket(stored) is None
        return
    rig.beat(27)
    rig.join(2)
    rig.sync(1)
    ticket = rig.ticket(stored)
    assert ticket is not None
    assert ticket.partitions == set(partitions(0, 1)), "while the callback runs"
    rig.group.on_commit(ticket, None, rig.now)
    rig.told()
    rig.told()
    rig.join(3)
    rig.sync(1)
    again = rig.ticket(stored)
    assert again is not None
    assert again.partitions == set(partitions(1))


def test_b24_nothing_is_delivered_while_the_commit_of_the_revocation_is_under_way() -> None:
    """B24 kafka#12619 (KAFKA-14196): messages were handed out after their offsets had been committed, and again by the next owner."""
    rig = Rig()
    rig.stable(0)
    rig.beat(27)
    ticket = rig.commit(0)
    assert ticket is not None
    assert rig.owned() == []
    assert rig.group.on_commit(ticket, None, rig.now) is Verdict.DONE
    assert rig.owned() == []


# -- coordinators --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("lost", [JoinGroupRequest, SyncGroupRequest, HeartbeatRequest])
def test_b50_a_member_follows_its_coordinator_from_every_step(lost: type) -> None:
    """B50 librdkafka#2944: the coordinator moved, and the member asked the old one for ever, or stood still."""
    rig = Rig()
    rig.polled()
    rig.find(1)
    if lost is not JoinGroupRequest:
        rig.join(1)
    if lost is HeartbeatRequest:
        rig.sync(0)
        rig.told()
    rig.lose(lost, GONE)
    rig.find(2)
    rig.poll(1.5)
    assert [ask.to for ask in rig.asks if isinstance(ask.request, lost)] == [(2, "b", 9092)]


def test_b50_a_join_that_is_parked_at_the_old_coordinator_is_given_up() -> None:
    """B50 sarama#1231: the old coordinator is cut off and will never answer."""
    rig = Rig(COOPERATIVE)
    rig.stable(0)
    rig.beat(27)
    old, _ = rig.take(JoinGroupRequest)
    rig.poll(BEAT_S)
    rig.lose(HeartbeatRequest, GONE)
    rig.find(2)
    rig.poll()
    new, _ = rig.take(JoinGroupRequest)
    assert new.to == (2, "b", 9092)
    rig.answer(old, None, GONE)
    assert rig.group.state is State.JOINING
    assert not rig.wants(FindCoordinatorRequest), "what the old one says does not matter"


def test_b50_a_zombie_stops_before_another_can_have_what_it_had() -> None:
    """B50 kafka-python#1134: removed from its group, a member went on to deliver."""
    rig = Rig()
    rig.stable(0)
    started = rig.now
    rig.now = started + SESSION_S
    assert rig.owned() == []
    assert rig.commit(0) is None
    rig.poll()
    assert rig.tells[0].change is Change.LOST


# -- assignors ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ASSIGNORS)
@pytest.mark.parametrize(
    ("wide", "alike"),
    [
        pytest.param(True, True, id="10 topics alike"),
        pytest.param(False, False, id="1000 topics that differ"),
        pytest.param(True, False, id="10 topics that differ", marks=pytest.mark.thorough),
        pytest.param(False, True, id="1000 topics alike", marks=pytest.mark.thorough),
    ],
)
def test_b51_ten_thousand_partitions_and_a_hundred_members_take_seconds(name: str, alike: bool, wide: bool) -> None:
    """B51 librdkafka#3159: assignors that never came to an end."""
    chance = Random(5)
    topics = {f"t{n}": [()] * (1000 if wide else 10) for n in range(10 if wide else 1000)}
    names = sorted(topics)
    members = [GroupMember(f"m{n}", names if alike else chance.sample(names, len(topics) // 2)) for n in range(100)]
    assignor = ASSIGNORS[name]
    started = now()
    for _ in range(2):  # at first, and when 40 have gone
        made = assignor.assign(topics, members)
        given = [tp for partitions in made.values() for tp in partitions]
        assert len(set(given)) == len(given)
        members = [
            m._replace(owned=made[m.member_id], generation=1, user_data=assignor.user_data((), made[m.member_id], 1)) for m in members[40:]
        ]
    assert now() - started < 60


def test_b52_a_topic_that_vanishes_stops_neither_the_others_nor_the_group() -> None:
    """B52 kafka-python#1780: a deleted topic: endless rebalances, or no topic is consumed any more."""
    rig = Rig(topics=["t", "gone"])
    rig.polled()
    rig.find()
    rig.join(1, leader="m", members=[("m", metadata("t", "gone"))])
    divide(rig.group, {"t": [()]})
    rig.poll()
    rig.sync(0)
    rig.told()
    rig.poll()
    assert (rig.owned(), rig.group.state, rig.asks, rig.problems) == (partitions(0), State.STABLE, rig.asks[:1], [])


# -- membership --------------------------------------------------------------------------------------------------------
def test_b55_one_join_at_a_time() -> None:
    """B55 librdkafka 1.8: a second JoinGroup before the first was answered: the member fenced itself."""
    rig = Rig(COOPERATIVE)
    rig.stable(0)
    rig.beat(27)
    ask, _ = rig.take(JoinGroupRequest)
    rig.group.rejoin("now")
    rig.group.subscribe(["t", "u"])
    for _ in range(10):
        rig.beat(27)
    assert not rig.wants(JoinGroupRequest)
    rig.asks.append(ask)
    rig.join(2)
    rig.sync(0)
    rig.told()
    assert rig.wants(JoinGroupRequest), "the wishes that came meanwhile"


def test_b56_a_member_that_was_removed_claims_nothing_when_it_comes_back() -> None:
    """B56 franz-go 1.21.4: it joined with its old generation and partitions: two owners."""
    rig = Rig(COOPERATIVE)
    rig.stable(0, 1, generation=7)
    rig.poll(SESSION_S)
    assert rig.told().change is Change.LOST
    rig.polled()
    rig.poll()
    _, request = rig.take(JoinGroupRequest)
    told = read_subscription(request.protocols[0].metadata, "m")
    assert (flattened(told.owned_partitions), told.generation_id, told.user_data) == ([], -1, b"\xff\xff\xff\xff")


@pytest.mark.parametrize("name", ["sticky", "cooperative-sticky"])
def test_b56_a_leader_believes_the_newest_generation(name: str) -> None:
    """B56 franz-go 1.21.4: whoever of two claims a partition, it stays with the one who has it now."""
    had = partitions(0, 1)
    data = {generation: ASSIGNORS[name].user_data(["t"], had, generation) for generation in (3, 4)}
    old, new = (GroupMember(f"m{n}", ["t"], None, data[n], had, n) for n in (3, 4))
    for members in ([old, new], [new, old]):
        made = ASSIGNORS[name].assign({"t": [(), ()]}, members)
        assert set(made["m4"]) < {TopicPartition("t", 0), TopicPartition("t", 1)}
        assert len(made["m4"]) == 1


STEPS: dict[str, Callable[[Rig], object]] = {
    "polled": lambda rig: rig.polled(),
    "found": lambda rig: rig.find(),
    "given an id": lambda rig: rig.refuse(JoinGroupRequest, 79, member_id="m"),
    "elected": lambda rig: rig.join(1, leader="m", members=[("m", metadata("t"))]),
    "assigned": lambda rig: (divide(rig.group, {"t": [()]}), rig.poll()),
    "synced": lambda rig: rig.sync(0),
    "told": lambda rig: rig.told(),
    "asked to join again": lambda rig: rig.beat(27),
    "revoked": lambda rig: rig.told(),
    "elected again": lambda rig: rig.join(2, leader="m", members=[("m", metadata("t"))]),
}


@pytest.mark.parametrize("reachable", [True, False], ids=["its coordinator is there", "its coordinator is not"])
@pytest.mark.parametrize("steps", range(len(STEPS) + 1))
def test_b59_a_member_can_leave_at_every_step(steps: int, reachable: bool) -> None:
    """B59 sarama#1351: close hung while an assignment was in progress."""
    rig = Rig()
    for step in list(STEPS.values())[:steps]:
        step(rig)
    rig.group.leave("closing")
    rig.poll()
    for _ in range(10):
        while rig.tells:
            assert rig.told().change in (Change.ASSIGNED, Change.REVOKED, Change.LOST)
        for ask in list(rig.asks):
            rig.asks.remove(ask)
            if not reachable or isinstance(ask.request, (JoinGroupRequest, SyncGroupRequest)):
                rig.answer(ask, None, GONE)
            elif isinstance(ask.request, FindCoordinatorRequest):
                rig.asks.append(ask)
                rig.find()
            else:
                rig.answer(ask, type(ask.request).API.response())
        rig.poll(0.1)
    assert rig.group.state is State.LEFT
    assert rig.owned() == []


def test_b59_a_member_whose_name_comes_late_leaves_under_it() -> None:
    """B59 librdkafka 2.4 #4528: before KIP-394 the first JoinGroup makes a member, also of one that is closing: the group waited for it."""
    rig = Rig()
    rig.polled()
    rig.find()
    rig.group.leave("closing")
    rig.poll()
    assert rig.group.state is State.LEAVING
    rig.join(1, member="late")
    assert rig.refuse(LeaveGroupRequest, 0).members[0].member_id == "late"
    assert rig.group.state is State.LEFT


def test_b59_a_commit_that_is_refused_does_not_keep_it_from_leaving() -> None:
    """B59 librdkafka 2.6.1 #4724: the commit of the last moment failed, and close waited for it."""
    rig = Rig()
    rig.stable(0)
    ticket = rig.commit(0)
    rig.group.leave("closing")
    rig.poll()
    assert rig.group.on_commit(ticket, UnknownMemberId("m"), rig.now) is Verdict.FAILED
    rig.poll()
    while rig.tells:
        rig.told()
    assert rig.group.state is State.LEFT
