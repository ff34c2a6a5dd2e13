"""The parts of a group's machine, each by itself."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from gkafka.brokererrors import KafkaException, NotCoordinatorForGroup, RebalanceInProgress, RequestTimedOut, UnknownError
from gkafka.common import TopicPartition
from gkafka.core.backoff import Backoff
from gkafka.core.coordinatorrequests import CoordinatorRequests, Kind
from gkafka.core.farewell import TRIES, Farewell
from gkafka.core.groupstate import Change, Tell, Ticket
from gkafka.core.memberids import MemberIds
from gkafka.core.ownership import Ownership
from gkafka.core.tickets import Tickets
from gkafka.exceptions import KafkaTimeoutError, SocketDisconnectedError
from gkafka.wire.groups import FindCoordinatorResponse, HeartbeatRequest, HeartbeatResponse, LeaveGroupRequest

BEAT: Any = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
A, B = TopicPartition("t", 0), TopicPartition("t", 1)
AT = (1, "b", 9092)


def requests() -> CoordinatorRequests:
    made = CoordinatorRequests("g", 5.0, Backoff(0.1, 1.0), Random(1))
    made.coordinator = AT
    return made


# -- requests to the coordinator -----------------------------------------------------------------
def test_without_a_coordinator_only_it_is_asked_for() -> None:
    asking = requests()
    assert asking.find(0.0) is None
    asking.coordinator = None
    assert not asking.may_send(Kind.BEAT, 0.0)
    ask = asking.find(0.0)
    assert ask is not None
    assert (ask.to, asking.find(0.0)) == (None, None)
    answer = asking.take(ask, FindCoordinatorResponse(node_id=2, host="c", port=9092), None, 1.0)
    assert answer is not None
    assert (answer.kind, answer.error, answer.sent_at, answer.now) == (Kind.FIND, None, 0.0, 1.0)


def test_one_request_of_a_kind_is_under_way_and_its_answer_is_taken_once() -> None:
    asking = requests()
    ask = asking.send(Kind.BEAT, BEAT, 0.0)
    assert (ask.to, ask.timeout_s) == (AT, 5.0)
    assert not asking.may_send(Kind.BEAT, 0.0)
    assert asking.may_send(Kind.LEAVE, 0.0)
    answer = asking.take(ask, HeartbeatResponse(error_code=27), None, 1.0)
    assert answer is not None
    assert isinstance(answer.error, RebalanceInProgress)
    assert asking.take(ask, HeartbeatResponse(), None, 1.0) is None
    assert asking.may_send(Kind.BEAT, 1.0)


def test_a_failure_is_the_trouble_until_the_next_success() -> None:
    asking = requests()
    error = UnknownError("x")
    asking.pause(Kind.BEAT, error, 0.0)
    assert asking.trouble is error
    assert not asking.may_send(Kind.BEAT, 0.0)
    assert asking.wakes_at(0.0) == [asking.paused_until(Kind.BEAT)]
    ask = asking.send(Kind.BEAT, BEAT, 1.0)
    asking.take(ask, HeartbeatResponse(), None, 2.0)
    assert asking.trouble is None


@pytest.mark.parametrize(
    ("error", "moves"),
    [
        (NotCoordinatorForGroup("x"), True),
        (SocketDisconnectedError("x"), True),
        (RequestTimedOut("x"), True),
        (RebalanceInProgress("x"), False),
    ],
)
def test_which_errors_say_that_the_coordinator_is_elsewhere(error: KafkaException, moves: bool) -> None:
    asking = requests()
    asking.doubt(error, (2, "c", 9092))
    assert asking.coordinator == AT, "another broker said so"
    asking.doubt(error, AT)
    assert (asking.coordinator is None) == moves


def test_a_restart_forgets_what_is_under_way_and_asks_for_the_coordinator() -> None:
    asking = requests()
    ask = asking.send(Kind.BEAT, BEAT, 0.0)
    asking.restart(1.0)
    assert not asking.is_under_way(ask)
    assert asking.take(ask, HeartbeatResponse(), None, 2.0) is None
    assert asking.find(1.0) is not None
    assert asking.paused_until(Kind.BEAT) > 1.0, "as after a lost connection"


# -- commits under way ------------------------------------------------------------------------------
def test_a_ticket_counts_until_its_commit_ends_or_its_time_is_over() -> None:
    tickets = Tickets()
    answered, forsaken, late = Ticket(), Ticket(), Ticket(until=5.0)
    for ticket, partitions in ((answered, {A}), (forsaken, {B}), (late, {B})):
        tickets.grant(ticket, 3, "m", frozenset(partitions))
    assert (answered.generation, answered.member_id, answered.partitions) == (3, "m", {A})
    assert tickets.partitions == {A, B}
    assert 5.0 in tickets.wakes_at()
    tickets.end(answered)
    forsaken.is_over = True
    tickets.expire(4.0)
    assert (tickets.partitions, bool(tickets)) == ({B}, True)
    tickets.expire(5.0)
    assert not tickets
    tickets.end(answered)


# -- the farewell -----------------------------------------------------------------------------------
def test_a_farewell_is_said_until_it_is_over_or_was_tried_often_enough() -> None:
    farewell = Farewell("g")
    first, second = (LeaveGroupRequest(group_id="g", members=[]) for _ in range(2))
    farewell.request = first
    assert [farewell.may_repeat(SocketDisconnectedError("x")) for _ in range(TRIES)] == [True] * (TRIES - 1) + [False]
    farewell.request = second
    farewell.over(first)
    assert farewell.request is second, "it is another membership's"
    farewell.over(second)
    assert farewell.request is None


def test_who_waits_for_an_answer_to_the_farewell_waits_once() -> None:
    assert not Farewell("g").may_repeat(KafkaTimeoutError("x"))
    assert Farewell("g").may_try(KafkaTimeoutError("x")), "another request's"


# -- ids ------------------------------------------------------------------------------------------
@pytest.mark.parametrize("is_static", [False, True])
def test_after_a_farewell_only_a_static_member_keeps_its_id(is_static: bool) -> None:
    ids = MemberIds(Random(1), is_static=is_static)
    name = ids.new()
    ids.may_be_known = True
    assert (ids.after_farewell(name) == name) == is_static
    assert not ids.may_be_known


# -- what it has ------------------------------------------------------------------------------------
def test_another_assignment_gives_up_and_gains_what_differs() -> None:
    have = Ownership()
    have.replace([A])
    first = have.next()
    have.replace([B])
    assert (set(have.owned), set(have.leaving)) == ({B}, {A})
    assert have.next() is None, "the first callback runs"
    assert first is not None
    have.told(Tell(Change.ASSIGNED, ()))
    assert have.running is first, "that was another one's"
    have.told(first)
    assert [have.next(), have.running] == [Tell(Change.REVOKED, (A,))] * 2
    assert set(have.terms) == {A, B}
    assert have.running is not None
    have.told(have.running)
    assert set(have.terms) == {B}


def test_a_loss_that_was_interrupted_is_told_and_counted_once() -> None:
    have = Ownership()
    have.replace([A, B])
    told = have.next()
    assert told is not None
    have.told(told)
    owned = dict(have.owned)
    have.lose()
    have.owned.update(owned)  # as if it had been interrupted before the last step
    have.losses = 0
    have.lose()
    assert (have.next(), have.next(), have.losses) == (Tell(Change.LOST, (A, B)), None, 1)
