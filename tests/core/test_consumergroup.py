"""The membership of a KIP-848 group, case by case. `test_consumergroup_schedules` plays it in any order."""

from __future__ import annotations

from typing import Any

import pytest

from gkafka.brokererrors import (
    FencedInstanceId,
    FencedMemberEpoch,
    GroupIdNotFound,
    KafkaException,
    NotCoordinatorForGroup,
    OffsetMetadataTooLarge,
    StaleMemberEpoch,
    UnknownMemberId,
    UnreleasedInstanceId,
    UnsupportedVersion,
)
from gkafka.common import TopicPartition
from gkafka.core.consumergroupstate import IN_GROUP, MOVES
from gkafka.core.groupstate import Change, Event, Lane, State, Tell, Verdict
from gkafka.exceptions import ProtocolError
from gkafka.wire.consumergroups import (
    ConsumerGroupAssignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from tests.core.consumergrouprig import BEAT_S, NAMES, SESSION_S, Rig, T, U, told
from tests.core.grouprig import GONE, partitions


# -- joining -----------------------------------------------------------------------------------------------------------
def test_a_member_joins_with_epoch_0_and_tells_everything_once() -> None:
    rig = Rig(["u", "t"], assignor="range", instance_id="i", rack="r1")
    rig.poll()
    assert rig.asks == [], "nothing before the application asks for messages"
    rig.polled()
    rig.find(node=7)
    (ask,) = rig.asks
    assert (ask.to, ask.lane) == ((7, "b", 9092), Lane.CONTROL)
    request = rig.beat(3, {T: [0, 2]})
    assert len(request.member_id) == 36
    assert (request.group_id, request.member_epoch, request.instance_id, request.rack_id) == ("g", 0, "i", "r1")
    assert (request.rebalance_timeout_ms, request.subscribed_topic_names, request.server_assignor) == (60_000, ["t", "u"], "range")
    assert (request.subscribed_topic_regex, request.topic_partitions) == (None, [])
    assert rig.name(T) == {T}
    assert rig.changes() == [(Change.ASSIGNED, [0, 2])]
    assert rig.owned() == partitions(0, 2)
    assert (rig.group.generation, rig.group.state, rig.group.rebalances) == (3, State.RECONCILING, 1)
    request = rig.beat(3)
    assert (request.member_epoch, told(request)) == (3, {T: [0, 2]}), "what it has taken is acknowledged"
    assert (request.rebalance_timeout_ms, request.subscribed_topic_names, request.server_assignor) == (-1, None, None)
    assert request.instance_id == "i"
    assert rig.group.state is State.STABLE
    request = rig.beat(3)
    assert told(request) is None, "nothing has changed"


def test_heartbeats_come_as_often_as_the_coordinator_says() -> None:
    rig = Rig()
    rig.stable(0)
    assert rig.wake_at == pytest.approx(rig.now + BEAT_S)
    rig.poll(BEAT_S - 0.1)
    assert rig.asks == []
    rig.poll(0.1)
    assert rig.wants(ConsumerGroupHeartbeatRequest)


def test_a_pattern_goes_to_the_brokers() -> None:
    """KIP-848, version 1: they look which topics match, as RE2 sees it."""
    rig = Rig([], pattern="log-.*")
    rig.polled()
    rig.find()
    request = rig.beat(1, {})
    assert (request.subscribed_topic_names, request.subscribed_topic_regex) == ([], "log-.*")
    assert rig.changes() == [(Change.ASSIGNED, [])]


def test_another_subscription_is_told_at_once_and_alone() -> None:
    rig = Rig()
    rig.stable(0)
    rig.group.subscribe(["t", "u"])
    rig.poll()
    request = rig.beat(1)
    assert (request.subscribed_topic_names, request.rebalance_timeout_ms, told(request)) == (["t", "u"], -1, None)


def test_what_is_not_answered_is_followed_by_everything() -> None:
    rig = Rig()
    rig.stable(0)
    rig.poll(BEAT_S)
    rig.lose(ConsumerGroupHeartbeatRequest)
    rig.find(node=2)
    rig.poll(1.0)
    request = rig.beat(1, {T: [0]})
    assert (request.member_epoch, request.subscribed_topic_names, told(request)) == (1, ["t"], {T: [0]})
    assert request.rebalance_timeout_ms == 60_000
    assert rig.changes() == []


# -- reconciling -------------------------------------------------------------------------------------------------------
def test_what_is_taken_back_is_told_and_committed_before_it_is_free() -> None:
    rig = Rig()
    rig.stable(0, 1, 2)
    rig.beat(1, {T: [0]})
    assert rig.changes() == [(Change.REVOKED, [1, 2])]
    assert rig.owned() == partitions(0), "nothing of them is delivered any more"
    ticket = rig.commit(1)
    assert ticket.partitions == set(partitions(1))
    assert told(rig.beat(1)) is None, "heartbeats go on"
    rig.told()
    assert not rig.wants(ConsumerGroupHeartbeatRequest), "the commit is under way"
    assert rig.commit(2) is None, "the callback has returned"
    assert rig.group.on_commit(ticket, None, rig.now) is Verdict.DONE
    rig.poll()
    assert told(rig.beat(2)) == {T: [0]}, "now, and at once"
    assert (rig.group.state, rig.group.generation) == (State.STABLE, 2)


def test_a_commit_of_which_nobody_tells_the_end_holds_what_is_given_up_until_its_time_is_over() -> None:
    rig = Rig()
    rig.stable(0, 1)
    rig.beat(1, {T: [0]})
    ticket = rig.commit(1, within=2.0)
    rig.told()
    rig.poll(1.5)
    assert not rig.wants(ConsumerGroupHeartbeatRequest)
    assert rig.wake_at == pytest.approx(rig.now + 0.5)
    rig.poll(0.5)
    assert told(rig.beat(2)) == {T: [0]}
    assert rig.group.on_commit(ticket, None, rig.now) is Verdict.DONE, "late, and none the worse"


def test_a_commit_whose_caller_has_said_that_it_is_over_holds_nothing() -> None:
    rig = Rig()
    rig.stable(0, 1)
    rig.beat(1, {T: [0]})
    ticket = rig.commit(1)
    rig.told()
    assert not rig.wants(ConsumerGroupHeartbeatRequest)
    ticket.is_over = True
    rig.poll()
    assert told(rig.beat(2)) == {T: [0]}


def test_what_is_new_is_taken_when_the_old_is_given_up() -> None:
    rig = Rig()
    rig.stable(0)
    rig.beat(2, {T: [1]})
    assert rig.changes() == [(Change.REVOKED, [0])]
    assert rig.owned() == []
    rig.told()
    assert rig.changes() == [(Change.ASSIGNED, [1])]
    assert rig.owned() == partitions(1)
    assert told(rig.beat(2)) == {T: [1]}


def test_a_topic_that_nobody_can_name_yet_waits_and_is_asked_for_again() -> None:
    rig = Rig(["t", "u"])
    rig.stable(0)
    rig.beat(2, {T: [0], U: [3]})
    assert rig.name() == {U}
    assert told(rig.beat(2)) == {T: [0]}, "what it has so far is acknowledged"
    assert (rig.owned(), rig.group.state) == (partitions(0), State.RECONCILING)
    rig.tells.clear()
    rig.group.ownership.told(Tell(Change.ASSIGNED, ()))
    rig.poll(1.0)
    assert rig.name(U) == {U}
    assert rig.owned() == [*partitions(0), *partitions(3, topic="u")]
    assert told(rig.beat(2)) == {T: [0], U: [3]}
    assert rig.group.state is State.STABLE


def test_what_is_taken_back_before_it_had_a_name_is_acknowledged_too() -> None:
    """The coordinator waits for it, and removes the member in the end."""
    rig = Rig(["t", "u"])
    rig.stable(0)
    rig.beat(2, {T: [0], U: [3]})
    rig.name()
    rig.beat(2)
    rig.beat(2, {T: [0]})
    assert rig.wants(ConsumerGroupHeartbeatRequest), "at once"
    assert told(rig.beat(3)) == {T: [0]}
    assert rig.group.state is State.STABLE


def test_nothing_is_taken_while_a_heartbeat_tells_that_the_member_does_not_have_it() -> None:
    """Between that heartbeat and its answer the coordinator may have given it to another."""
    rig = Rig()
    rig.polled()
    rig.find()
    rig.beat(1, {T: [0, 1]})
    rig.name()
    ask, request = rig.take(ConsumerGroupHeartbeatRequest)
    assert told(request) == {}
    rig.poll(1.0)
    rig.name(T)
    assert rig.owned() == []
    made = ConsumerGroupAssignment(topic_partitions=[TopicPartitions(topic_id=T, partitions=[0])])
    rig.answer(ask, ConsumerGroupHeartbeatResponse(member_id="m", member_epoch=2, heartbeat_interval_ms=3000, assignment=made))
    assert rig.owned() == partitions(0)


def test_a_topic_that_was_made_again_is_another_one() -> None:
    rig = Rig()
    rig.stable(0)
    term = rig.group.delivered(rig.now)[TopicPartition("t", 0)]
    NAMES[U] = "t"
    try:
        rig.beat(2, {U: [0]})
        rig.name(U)
    finally:
        NAMES[U] = "u"
    assert rig.told() == Tell(Change.REVOKED, tuple(partitions(0)))
    assert rig.changes() == [(Change.ASSIGNED, [0])]
    assert rig.group.delivered(rig.now)[TopicPartition("t", 0)] != term
    assert told(rig.beat(2)) == {U: [0]}


def test_the_same_assignment_again_is_no_rebalance() -> None:
    rig = Rig()
    rig.stable(0)
    rig.beat(2, {T: [0]})
    assert (rig.changes(), rig.group.rebalances, rig.group.generation) == ([], 1, 2)
    assert told(rig.beat(2)) is None


# -- the end of a membership -------------------------------------------------------------------------------------------
@pytest.mark.parametrize("code", [UnknownMemberId.code, FencedMemberEpoch.code, GroupIdNotFound.code])
def test_a_fenced_member_has_lost_everything_and_joins_again_under_its_name(code: int) -> None:
    rig = Rig()
    rig.stable(0, 1)
    name = rig.group.member_id
    rig.beat(0, code=code)
    assert rig.changes() == [(Change.LOST, [0, 1])]
    assert (rig.owned(), rig.group.generation, rig.group.member_id, rig.group.ownership.losses) == ([], -1, "", 1)
    rig.poll(1.0)
    assert not rig.wants(ConsumerGroupHeartbeatRequest), "not before the application knows"
    rig.told()
    request = rig.beat(5, {T: [1]})
    assert (request.member_id, request.member_epoch, told(request), request.subscribed_topic_names) == (name, 0, {}, ["t"])


def test_a_member_whose_old_epoch_is_in_the_way_says_good_bye_and_takes_another_name() -> None:
    """KAFKA-19233: brokers that know a member refuse that it begins again."""
    rig = Rig()
    rig.stable(0)
    name = rig.group.member_id
    rig.beat(0, code=FencedMemberEpoch.code)
    rig.told()
    rig.beat(0, code=FencedMemberEpoch.code)
    ask, request = rig.take(ConsumerGroupHeartbeatRequest)
    assert (request.member_id, request.member_epoch) == (name, -1)
    rig.answer(ask, ConsumerGroupHeartbeatResponse())
    request = rig.beat(9, {})
    assert request.member_id != name
    assert request.member_epoch == 0


def test_without_an_answer_everything_ends_by_the_members_own_clock() -> None:
    rig = Rig()
    rig.stable(0)
    since = rig.now
    rig.poll(BEAT_S)
    rig.lose(ConsumerGroupHeartbeatRequest)
    name = rig.group.member_id
    rig.now = since + SESSION_S - 0.01
    assert rig.owned() == partitions(0)
    rig.now = since + SESSION_S
    assert rig.owned() == []
    rig.poll()
    assert rig.changes() == [(Change.LOST, [0])]
    rig.told()
    rig.find()
    ask, request = rig.take(ConsumerGroupHeartbeatRequest)
    assert (request.member_id, request.member_epoch) == (name, -1), "in case the coordinator still counts on it"
    rig.answer(ask, None, GONE)
    rig.find()
    assert rig.take(ConsumerGroupHeartbeatRequest)[1].member_id != name, "a good-bye that arrives late ends no new membership"


def test_who_does_not_give_up_in_time_has_lost_everything() -> None:
    rig = Rig(rebalance_timeout_s=20.0)
    rig.stable(0, 1)
    began = rig.now  # no earlier than this: then it was not to give up anything yet
    rig.beat(1, {T: [0]})
    while rig.now < began + 20.0 - BEAT_S:
        rig.beat(1)
    assert rig.owned() == partitions(0)
    rig.poll(began + 20.0 - rig.now)
    assert rig.owned() == []
    assert rig.told().change is Change.REVOKED
    assert rig.changes() == [(Change.LOST, [0])]


def test_who_does_not_poll_leaves_and_comes_back() -> None:
    """KIP-62: max.poll.interval."""
    rig = Rig(max_poll_interval_s=5.0)
    rig.stable(0)
    name = rig.group.member_id
    rig.poll(5.0 - (rig.now - 1000.0))
    assert rig.group.state is State.AWAY
    assert rig.changes() == [(Change.LOST, [0])]
    ask, request = rig.take(ConsumerGroupHeartbeatRequest)
    assert (request.member_id, request.member_epoch) == (name, -1)
    rig.answer(ask, ConsumerGroupHeartbeatResponse())
    rig.told()
    rig.poll(10.0)
    assert rig.asks == []
    rig.polled()
    assert rig.beat(4, {}).member_epoch == 0


def test_a_static_member_that_does_not_poll_keeps_its_name_and_place() -> None:
    rig = Rig(max_poll_interval_s=5.0, instance_id="i")
    rig.stable(0)
    name = rig.group.member_id
    rig.poll(5.0)
    ask, request = rig.take(ConsumerGroupHeartbeatRequest)
    assert (request.member_id, request.member_epoch, request.instance_id) == (name, -2, "i")
    rig.answer(ask, ConsumerGroupHeartbeatResponse())
    rig.told()
    rig.polled()
    assert rig.beat(4, {}).member_id == name


# -- leaving -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("options", "for_good", "epoch"), [({}, False, -1), ({"instance_id": "i"}, False, -2), ({"instance_id": "i"}, True, -1)]
)
def test_a_member_gives_up_in_order_and_says_good_bye(options: dict[str, Any], for_good: bool, epoch: int) -> None:
    rig = Rig(**options)
    rig.stable(0)
    rig.group.leave("done", static=for_good)
    rig.poll()
    assert rig.changes() == [(Change.REVOKED, [0])]
    ticket = rig.commit(0)
    rig.beat(1)
    rig.told()
    assert rig.asks == []
    assert rig.group.on_commit(ticket, None, rig.now) is Verdict.DONE
    rig.poll()
    ask, request = rig.take(ConsumerGroupHeartbeatRequest)
    assert request.member_epoch == epoch
    assert rig.group.state is State.LEAVING
    rig.answer(ask, ConsumerGroupHeartbeatResponse())
    assert rig.group.state is State.LEFT


def test_a_good_bye_is_said_at_once_where_it_cannot_be_said_later() -> None:
    """What is given up is told all the same."""
    rig = Rig()
    rig.stable(0)
    rig.group.leave("done")
    rig.poll()
    ask = rig.group.farewell(rig.now)
    assert ask is not None
    assert ask.request.member_epoch == -1
    rig.answer(ask, ConsumerGroupHeartbeatResponse())
    assert rig.changes() == [(Change.REVOKED, [0])]
    assert rig.group.state is State.LEAVING
    rig.told()
    rig.poll()
    assert (rig.group.state, rig.asks) == (State.LEFT, [])


def test_who_was_never_there_leaves_without_a_word() -> None:
    rig = Rig()
    rig.group.leave("done")
    rig.poll()
    assert (rig.group.state, rig.asks) == (State.LEFT, [])


def test_who_leaves_while_joining_says_good_bye_behind_it() -> None:
    rig = Rig()
    rig.polled()
    rig.find()
    join, joins = rig.take(ConsumerGroupHeartbeatRequest)
    rig.group.leave("done")
    rig.poll()
    _, request = rig.take(ConsumerGroupHeartbeatRequest)
    assert (request.member_id, request.member_epoch) == (joins.member_id, -1)
    rig.answer(join, ConsumerGroupHeartbeatResponse(member_epoch=1, heartbeat_interval_ms=3000))
    assert rig.group.generation == -1, "that answer does not matter any more"


def test_whose_time_is_over_while_it_leaves_goes_without_a_word() -> None:
    rig = Rig()
    rig.stable(0)
    rig.group.leave("done")
    rig.poll()
    rig.poll(BEAT_S)
    ask, _ = rig.take(ConsumerGroupHeartbeatRequest)
    rig.poll(SESSION_S)
    rig.answer(ask, ConsumerGroupHeartbeatResponse(member_epoch=1, heartbeat_interval_ms=3000))
    assert (rig.group.generation, rig.asks) == (-1, [])
    rig.told()
    assert rig.group.state is State.LEFT


# -- what answers mean ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("code", [42, 81, 112, 128, 30, 24])
def test_what_the_coordinator_will_never_take_ends_the_membership(code: int) -> None:
    """INVALID_REQUEST, GROUP_MAX_SIZE_REACHED, UNSUPPORTED_ASSIGNOR, INVALID_REGULAR_EXPRESSION, and what is not allowed."""
    rig = Rig()
    rig.polled()
    rig.find()
    rig.beat(0, code=code)
    assert rig.group.state is State.FATAL
    assert [getattr(problem, "code", None) for problem in rig.problems] == [code]
    assert rig.group.error is rig.problems[0]


def test_what_the_coordinator_does_not_know_how_to_answer_is_tried_again() -> None:
    rig = Rig()
    rig.stable(0)
    for _ in range(3):
        rig.beat(0, code=-1)
        rig.poll(1.0)
    assert (rig.problems, rig.group.state) == ([], State.STABLE)
    rig.beat(1, {T: [0]})
    assert rig.group.requests.trouble is None


@pytest.mark.parametrize("said", [True, False], ids=["by the broker", "by the tables"])
def test_brokers_without_such_groups_are_refused_with_what_to_do(said: bool) -> None:
    rig = Rig()
    rig.polled()
    rig.find()
    if said:
        rig.beat(0, code=UnsupportedVersion.code)
    else:
        rig.answer(rig.take(ConsumerGroupHeartbeatRequest)[0], None, UnsupportedVersion("it does not have API 68", api="X"))
    assert isinstance(rig.group.error, UnsupportedVersion)
    assert 'use group_protocol="classic"' in str(rig.group.error)
    assert rig.group.state is State.FATAL


def test_a_group_of_classic_members_is_refused_with_what_to_do() -> None:
    rig = Rig()
    rig.polled()
    rig.find()
    rig.beat(0, code=GroupIdNotFound.code)
    assert isinstance(rig.group.error, GroupIdNotFound)
    assert "members of the classic protocol" in str(rig.group.error)


def test_topics_that_are_not_allowed_are_told_once_and_tried_again() -> None:
    rig = Rig()
    rig.stable(0)
    for _ in range(3):
        rig.beat(0, code=29)
        rig.poll(1.0)
    assert [type(problem).__name__ for problem in rig.problems] == ["TopicAuthorizationFailed"]
    assert rig.group.state is State.STABLE
    rig.beat(1, {T: [0]})
    rig.beat(0, code=29)
    assert len(rig.problems) == 2


def test_a_coordinator_that_moved_is_found_and_takes_nothing() -> None:
    rig = Rig()
    rig.stable(0)
    rig.poll(BEAT_S)
    ask, _ = rig.take(ConsumerGroupHeartbeatRequest)
    rig.answer(ask, ConsumerGroupHeartbeatResponse(error_code=NotCoordinatorForGroup.code))
    rig.find(node=2)
    rig.poll(1.0)
    ask, request = rig.take(ConsumerGroupHeartbeatRequest)
    assert (ask.to, request.member_epoch) == ((2, "b", 9092), 1)
    assert rig.owned() == partitions(0)


def test_an_instance_id_that_is_not_free_is_waited_for_as_long_as_a_session() -> None:
    rig = Rig(instance_id="i")
    rig.polled()
    rig.find()
    began = rig.now
    while rig.group.state is not State.FATAL:
        rig.beat(0, code=UnreleasedInstanceId.code)
        assert isinstance(rig.group.requests.trouble, UnreleasedInstanceId) or rig.group.error is not None
        if rig.wants(ConsumerGroupHeartbeatRequest):
            ask, request = rig.take(ConsumerGroupHeartbeatRequest)
            assert request.member_epoch == -2, "it may be its own last life that has it"
            rig.answer(ask, ConsumerGroupHeartbeatResponse(error_code=FencedInstanceId.code))
        rig.group.polled(rig.now)
        assert rig.now < began + 30
    assert rig.now >= began + SESSION_S
    assert isinstance(rig.group.error, UnreleasedInstanceId)


def test_a_fenced_instance_id_is_the_end() -> None:
    rig = Rig(instance_id="i")
    rig.stable(0)
    rig.beat(0, code=FencedInstanceId.code)
    assert rig.changes() == [(Change.LOST, [0])]
    assert isinstance(rig.group.error, FencedInstanceId)


@pytest.mark.parametrize("epoch", [0, -1, 4])
def test_an_epoch_that_cannot_be_is_told_and_ends_the_membership(epoch: int) -> None:
    rig = Rig()
    rig.stable(0, epoch=5)
    rig.beat(epoch)
    assert [type(problem) for problem in rig.problems] == [ProtocolError]
    assert (rig.group.generation, rig.group.state) == (-1, State.PREPARING)


def test_partitions_that_cannot_be_are_told_and_left_out() -> None:
    rig = Rig()
    rig.polled()
    rig.find()
    rig.beat(1, {T: [0, -3]})
    rig.name(T)
    assert rig.owned() == partitions(0)
    assert "[0, -3]" in str(rig.problems[0])


# -- commits -----------------------------------------------------------------------------------------------------------
def test_a_commit_tells_the_members_epoch_and_id() -> None:
    rig = Rig()
    rig.stable(0, 1, epoch=6)
    ticket = rig.commit(0)
    assert (ticket.generation, ticket.member_id, ticket.partitions) == (6, rig.group.member_id, set(partitions(0)))


@pytest.mark.parametrize(
    ("error", "verdict", "state"),
    [
        (None, Verdict.DONE, State.STABLE),
        (StaleMemberEpoch("x"), Verdict.RETRY, State.STABLE),
        (NotCoordinatorForGroup("x"), Verdict.RETRY, State.STABLE),
        (OffsetMetadataTooLarge("x"), Verdict.FAILED, State.STABLE),
        (UnknownMemberId("x"), Verdict.FAILED, State.PREPARING),
        (FencedInstanceId("x"), Verdict.FAILED, State.FATAL),
    ],
)
def test_what_the_answer_to_a_commit_means(error: KafkaException | None, verdict: Verdict, state: State) -> None:
    rig = Rig()
    rig.stable(0)
    assert rig.group.on_commit(rig.commit(0), error, rig.now) is verdict
    assert rig.group.state is state


def test_a_commit_of_an_earlier_membership_fences_nobody() -> None:
    rig = Rig()
    rig.stable(0, epoch=2)
    ticket = rig.commit(0)
    rig.beat(0, code=UnknownMemberId.code)
    rig.told()
    rig.beat(7, {T: [0]})
    assert rig.group.on_commit(ticket, UnknownMemberId("x"), rig.now) is Verdict.RETRY
    assert rig.owned() == partitions(0)


# -- the table -----------------------------------------------------------------------------------------------------------
def test_every_state_of_the_table_can_be_reached_and_left_and_the_last_ones_cannot() -> None:
    states = {at for at, _ in MOVES} | set(MOVES.values())
    for state in states:
        ways = {to for (at, _), to in MOVES.items() if at is state} - {state}
        assert bool(ways) == (state not in (State.LEFT, State.FATAL))
    for state in IN_GROUP:
        assert MOVES[state, Event.LEAVE] is State.LEAVING
