"""The membership of a group, case by case. `test_group_schedules` plays it in any order."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from gkafka.brokererrors import (
    FencedInstanceId,
    GroupCoordinatorNotAvailable,
    IllegalGeneration,
    KafkaException,
    NotCoordinatorForGroup,
    OffsetMetadataTooLarge,
    RebalanceInProgress,
    UnknownError,
    UnknownMemberId,
)
from gkafka.core.assignors import Assignment, GroupMember, Topics
from gkafka.core.groupstate import IN_GROUP, MOVES, Change, Event, Lane, State, Verdict
from gkafka.exceptions import AssignmentError, KafkaTimeoutError, ProtocolError, SocketDisconnectedError
from gkafka.wire.consumerprotocol import flattened, read_assignment, read_subscription
from gkafka.wire.groups import (
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
    SyncGroupResponse,
)
from gkafka.wire.schema import Message
from tests.core.dividing import divide
from tests.core.grouprig import BEAT_S, COOPERATIVE, POLL_S, REBALANCE_S, SESSION_S, Rig, metadata, partitions
from tests.kit.clock import PATIENCE_S, now

GONE = SocketDisconnectedError("gone")


# -- joining -----------------------------------------------------------------------------------------------------------
def test_a_member_finds_its_coordinator_joins_syncs_and_beats() -> None:
    rig = Rig()
    rig.poll()
    assert rig.asks == [], "nothing before the application asks for messages"
    rig.polled()
    assert rig.asks[0].to is None
    rig.find(node=7)
    join, lane = rig.asks[0], rig.asks[0].lane
    assert (join.to, lane, join.timeout_s) == ((7, "b", 9092), Lane.GROUP, REBALANCE_S + 5)
    rig.join(4)
    request = rig.sync(0, 2)
    assert (request.generation_id, request.member_id, request.protocol_type, request.protocol_name) == (4, "m", "consumer", "range")
    assert request.assignments == []
    assert rig.changes() == [(Change.ASSIGNED, [0, 2])]
    assert rig.owned() == partitions(0, 2)
    assert rig.group.state is State.STABLE


def test_join_group_tells_topics_timeouts_and_each_protocol() -> None:
    rig = Rig([*COOPERATIVE, *Rig().group.options.assignors], topics=["b", "a"], instance_id="i", rack="r1")
    rig.polled()
    rig.find()
    _, request = rig.take(JoinGroupRequest)
    assert (request.group_id, request.member_id, request.group_instance_id, request.protocol_type) == ("g", "", "i", "consumer")
    assert (request.session_timeout_ms, request.rebalance_timeout_ms) == (10_000, 60_000)
    assert [protocol.name for protocol in request.protocols] == ["cooperative-sticky", "range"]
    told = read_subscription(request.protocols[0].metadata, "m")
    assert (told.topics, told.rack_id, told.generation_id, told.owned_partitions) == (["a", "b"], "r1", -1, [])
    assert told.user_data == b"\xff\xff\xff\xff"
    assert request.reason == "the application asks for messages"


def test_a_member_that_is_given_an_id_joins_again_with_it_at_once() -> None:
    """KIP-394."""
    rig = Rig()
    rig.polled()
    rig.find()
    rig.refuse(JoinGroupRequest, 79, member_id="m-1")
    assert rig.join(1, member="m-1").member_id == "m-1"
    assert rig.group.member_id == "m-1"


def test_the_leader_asks_for_partitions_and_tells_everybody() -> None:
    rig = Rig(topics=["t"])
    rig.polled()
    rig.find()
    rig.join(1, leader="m", members=[("m", metadata("t")), ("n", metadata("t", "u"))])
    assert rig.topics == {"t", "u"}
    assert not rig.wants(SyncGroupRequest)
    divide(rig.group, {"t": [()] * 2, "u": [()]})
    rig.poll()
    made = {a.member_id: flattened(read_assignment(a.assignment, "m").assigned_partitions) for a in rig.sync(0).assignments}
    assert made == {"m": partitions(0), "n": [*partitions(1), *partitions(0, topic="u")]}


def test_what_was_made_of_an_election_is_nothing_after_another_one() -> None:
    """The assignor took long; of a group that was lost meanwhile the generations begin anew, so that their numbers say nothing."""
    rig = Rig(topics=["t"])
    rig.polled()
    rig.find()
    rig.join(1, leader="m", members=[("m", metadata("t")), ("n", metadata("t"))])
    first = rig.group.election
    assert first is not None
    late = first.make({"t": [()] * 2})
    rig.beat(25)
    rig.join(1, leader="m", members=[("m", metadata("t"))])
    rig.group.divided(first, late)
    rig.poll()
    assert rig.topics == {"t"}
    assert not rig.wants(SyncGroupRequest)


def test_what_came_from_outside_while_an_assignor_ran_is_no_fault_of_its() -> None:
    def interrupted() -> Assignment:
        raise KeyboardInterrupt

    rig = Rig([Custom(interrupted)])
    rig.polled()
    rig.find()
    rig.join(1, leader="m", members=[("m", metadata("t"))])
    rig.group.is_interruption = lambda error: isinstance(error, KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        divide(rig.group, {"t": [()]})
    rig.poll()
    assert (rig.topics, rig.problems) == ({"t"}, [])


def test_a_leader_that_must_not_assign_does_not() -> None:
    """KIP-814: a static leader is back, the assignment stands."""
    rig = Rig(instance_id="i")
    rig.polled()
    rig.find()
    rig.join(1, leader="m", members=[("m", metadata("t"))], skip_assignment=True)
    assert rig.sync(0).assignments == []
    assert rig.owned() == partitions(0)


@pytest.mark.parametrize("code", [14, 15, 16, 27])
def test_a_join_is_tried_again_after_a_pause(code: int) -> None:
    rig = Rig()
    rig.polled()
    rig.find()
    rig.refuse(JoinGroupRequest, code)
    assert not rig.wants(JoinGroupRequest), "not at once"
    assert rig.wants(FindCoordinatorRequest) == (code in (15, 16))
    if rig.wants(FindCoordinatorRequest):
        rig.find(node=2)
    rig.poll(1.5)
    rig.join(1)
    rig.sync(0)
    assert rig.owned() == partitions(0)


def test_what_the_coordinator_does_not_know_how_to_answer_is_told_once_and_tried_for_as_long_as_that_lasts(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Kafka 4 says UNKNOWN_SERVER_ERROR to every member while the metadata of one cannot be read."""
    rig = Rig()
    rig.stable(0)
    rig.beat(27)
    rig.told()
    for _ in range(50):
        rig.refuse(JoinGroupRequest, -1)
        assert not rig.wants(JoinGroupRequest), "not at once"
        assert rig.group.state is State.JOINING
        rig.poll(1.5)
        rig.polled()
        rig.beat(27)
    assert isinstance(rig.group.requests.trouble, UnknownError)
    rig.join(2)
    for _ in range(3):
        rig.refuse(SyncGroupRequest, -1)
        rig.poll(1.5)
    rig.sync(0, 1)
    rig.told()
    rig.beat(-1)
    rig.poll(1.5)
    rig.beat()
    assert (rig.owned(), rig.group.state, rig.group.requests.trouble) == (partitions(0, 1), State.STABLE, None)
    assert (rig.problems, rig.group.ownership.losses) == ([], 0)
    told = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
    assert len(told) == 3, told  # of JoinGroup, of SyncGroup, of a heartbeat
    assert all("it is tried again" in text for text in told)


@pytest.mark.parametrize("code", [23, 24, 26, 30, 35, 81, 82])
def test_a_join_that_can_never_succeed_ends_it_with_the_error(code: int) -> None:
    rig = Rig(instance_id="i")
    rig.polled()
    rig.find()
    rig.refuse(JoinGroupRequest, code)
    assert rig.group.state is State.FATAL
    assert [getattr(problem, "code", None) for problem in rig.problems] == [code]
    assert rig.problems == [rig.group.error]
    rig.poll(1000)
    assert rig.asks == []


@pytest.mark.parametrize("answer", [{"protocol_name": "sticky"}, {"protocol_type": "connect"}, {"generation": -1}, {"member": ""}])
def test_an_answer_that_cannot_be_ends_it(answer: dict[str, Any]) -> None:
    rig = Rig()
    rig.polled()
    rig.find()
    rig.join(answer.pop("generation", 1), **answer)
    assert rig.group.state is State.FATAL
    assert len(rig.problems) == 1


def test_a_coordinator_that_is_not_found_is_looked_for_again() -> None:
    rig = Rig()
    rig.polled()
    for error in (GONE, KafkaTimeoutError("no answer")):
        rig.lose(FindCoordinatorRequest, error)
        assert rig.asks == []
        rig.poll(1.5)
    rig.refuse(FindCoordinatorRequest, 15)
    rig.poll(1.5)
    rig.refuse(FindCoordinatorRequest, 30)
    assert rig.group.state is State.FATAL


# -- assignments that make no sense --------------------------------------------------------------------------------------
class Custom:
    """The user's assignor."""

    name = "range"

    def __init__(self, made: Callable[[], Any], *, cooperative: bool = False) -> None:
        self.made, self.cooperative = made, cooperative

    def user_data(self, topics: Any, assigned: Any, generation: int) -> bytes | None:
        return None

    def assign(self, topics: Topics, members: Sequence[GroupMember]) -> Assignment:
        made: Assignment = self.made()
        return made


def _raises() -> Any:
    raise ZeroDivisionError("oh")


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (_raises, "raised ZeroDivisionError: oh"),
        (lambda: None, "returned a NoneType"),
        (lambda: {"x": partitions(0)}, "gave partitions to 'x', which is no member"),
        (lambda: {"m": partitions(0), "n": partitions(0, 1)}, "gave t-0 to 'm' and to 'n'"),
        (lambda: {"m": partitions(0, 0, 1), "n": []}, "gave t-0 to 'm' and to 'm'"),
        (lambda: {"m": partitions(0, 5), "n": partitions(1)}, "gave t-5 to 'm', which is not there"),
        (lambda: {"m": partitions(0, 1), "n": [("v", 0)]}, "which is not there"),
        (lambda: {"m": partitions(0, 1), "n": [("u", 0)]}, "gave u-0 to 'n', which did not ask for the topic"),
        (lambda: {"m": [7], "n": partitions(0, 1)}, "gave 7 to 'm', which is no partition"),
        (lambda: {"m": None, "n": partitions(0, 1)}, "raised TypeError"),
        (lambda: {"m": partitions(0)}, "left t-1 without an owner"),
    ],
)
@pytest.mark.parametrize("cooperative", [False, True], ids=["eager", "cooperative"])
def test_nonsense_of_an_assignor_is_told_and_leaves_nothing_without_an_owner(made: Callable[[], Any], text: str, cooperative: bool) -> None:
    rig = Rig([Custom(made, cooperative=cooperative)])
    rig.polled()
    rig.find()
    rig.join(1, leader="m", members=[("m", metadata("t", "u")), ("n", metadata("t"))])
    divide(rig.group, {"t": [()] * 2, "u": [()]})
    rig.poll()
    (problem,) = rig.problems
    assert isinstance(problem, AssignmentError)
    assert text in str(problem)
    given = [tp for a in rig.sync(0).assignments for tp in flattened(read_assignment(a.assignment, "m").assigned_partitions)]
    assert sorted(given) == [*partitions(0, 1), *partitions(0, topic="u")]


def test_a_cooperative_assignor_that_takes_from_one_and_gives_to_another_is_refused() -> None:
    """KIP-429: that would be two owners until the first has heard of it."""
    rig = Rig([Custom(lambda: {"m": partitions(0, 1), "n": []}, cooperative=True)])
    rig.polled()
    rig.find()
    rig.join(1, leader="m", members=[("m", metadata("t")), ("n", metadata("t", owned=partitions(0, 1), generation=0))])
    divide(rig.group, {"t": [()] * 2})
    rig.poll()
    assert "gave t-0 to 'm' while another member has it" in str(rig.problems[0])


def test_a_good_assignor_of_the_user_is_taken() -> None:
    rig = Rig([Custom(lambda: {"m": partitions(1), "n": partitions(0)})])
    rig.polled()
    rig.find()
    rig.join(1, leader="m", members=[("m", metadata("t")), ("n", metadata("t"))])
    divide(rig.group, {"t": [()] * 2})
    rig.poll()
    made = {a.member_id: flattened(read_assignment(a.assignment, "m").assigned_partitions) for a in rig.sync(1).assignments}
    assert (made, rig.problems) == ({"m": partitions(1), "n": partitions(0)}, [])


@pytest.mark.parametrize("garbage", [b"", b"\x00", b"\xff\xff\x00\x00", b"\x00\x01\x7f\xff\xff\xff", b"no kafka at all"])
def test_metadata_of_another_member_that_are_garbage_are_told_and_the_others_share(garbage: bytes) -> None:
    rig = Rig(COOPERATIVE)
    rig.polled()
    rig.find()
    rig.join(1, leader="m", members=[("m", metadata("t")), ("odd", garbage)])
    assert isinstance(rig.problems[0], ProtocolError)
    assert "'odd'" in str(rig.problems[0])
    divide(rig.group, {"t": [()] * 3})
    rig.poll()
    made = {a.member_id: flattened(read_assignment(a.assignment, "m").assigned_partitions) for a in rig.sync(0).assignments}
    assert made == {"m": partitions(0, 1, 2), "odd": []}


def test_an_assignment_that_is_garbage_is_told_and_gives_nothing() -> None:
    rig = Rig()
    rig.polled()
    rig.find()
    rig.join(1)
    ask, _ = rig.take(SyncGroupRequest)
    rig.answer(ask, SyncGroupResponse(assignment=b"\x00\x01\x00"))
    assert "'m'" in str(rig.problems[0])
    assert (rig.owned(), rig.group.state) == ([], State.STABLE)


def test_partitions_that_were_not_asked_for_are_left_out() -> None:
    rig = Rig(topics=["u"])
    rig.polled()
    rig.find()
    rig.join(1)
    rig.sync(3)
    assert "t-3, which it did not ask for" in str(rig.problems[0])
    assert rig.owned() == []


def test_a_large_assignment_with_one_partition_twice_takes_no_time() -> None:
    """Of 20,000 it was 7 s, with the hub waiting; 100,000 would be three minutes."""
    rig = Rig()
    rig.polled()
    rig.find()
    rig.join(1)
    began = now()
    rig.sync(*range(100_000), 0)
    assert now() - began < PATIENCE_S
    assert "t-0, which it did not ask for, or twice" in str(rig.problems[0])
    assert len(rig.owned()) == 100_000


# -- rebalances --------------------------------------------------------------------------------------------------------
def test_an_eager_member_gives_up_everything_before_it_joins_again() -> None:
    rig = Rig()
    rig.stable(0, 1)
    rig.beat(27)
    assert rig.changes() == [(Change.REVOKED, [0, 1])]
    assert rig.owned() == [], "delivered no more"
    ticket = rig.commit(0, 1)
    assert ticket.partitions == set(partitions(0, 1)), "but still to be committed"
    rig.group.on_commit(ticket, None, rig.now)
    rig.poll()
    assert not rig.wants(JoinGroupRequest), "the callback runs"
    rig.told()
    request = rig.join(2)
    assert (request.member_id, request.reason) == ("m", "the group is rebalancing")
    rig.sync(1)
    assert rig.changes() == [(Change.ASSIGNED, [1])]


def test_a_cooperative_member_keeps_its_partitions_and_revokes_what_moves() -> None:
    """KIP-429: then it joins once more, so that another member can have it."""
    rig = Rig(COOPERATIVE)
    rig.stable(0, 1, 2)
    rig.beat(27)
    assert rig.owned() == partitions(0, 1, 2)
    told = read_subscription(rig.join(2).protocols[0].metadata, "m")
    assert (flattened(told.owned_partitions), told.generation_id, told.user_data) == (partitions(0, 1, 2), 1, b"\0\0\0\1")
    assert rig.owned() == partitions(0, 1, 2)
    rig.sync(0, 2)
    assert rig.changes() == [(Change.REVOKED, [1])]
    assert rig.owned() == partitions(0, 2)
    assert not rig.wants(JoinGroupRequest), "the callback runs"
    rig.told()
    assert rig.changes() == [(Change.ASSIGNED, [])]
    rig.told()
    request = rig.join(3)
    assert request.reason == "some partitions were revoked"
    assert flattened(read_subscription(request.protocols[0].metadata, "m").owned_partitions) == partitions(0, 2)
    rig.sync(0, 2, 3)
    assert rig.changes() == [(Change.ASSIGNED, [3])]


def test_one_eager_assignor_makes_the_member_eager() -> None:
    rig = Rig([*COOPERATIVE, *Rig().group.options.assignors])
    rig.stable(0)
    rig.beat(27)
    assert rig.changes() == [(Change.REVOKED, [0])]


def test_a_partition_that_was_lost_while_joining_is_still_let_go_of_for_the_others() -> None:
    """The JoinGroup on its way says that the member has it; so its leader gives it to nobody, until the member joins once more."""
    rig = Rig(COOPERATIVE)
    rig.stable(0, 1)
    rig.beat(27)
    ask, _ = rig.take(JoinGroupRequest)
    rig.poll(SESSION_S + 1)
    assert rig.owned() == []
    assert rig.told().change is Change.LOST
    rig.asks.append(ask)
    rig.join(2)
    rig.sync(0)
    rig.told()
    assert rig.wants(JoinGroupRequest)


def test_a_new_subscription_revokes_what_left_it_and_joins() -> None:
    rig = Rig(COOPERATIVE, topics=["t", "u"])
    rig.stable(0, 1)
    rig.group.subscribe(["u"])
    rig.poll()
    assert rig.changes() == [(Change.REVOKED, [0, 1])]
    rig.told()
    request = rig.join(2)
    assert request.reason == "the subscription has changed"
    assert read_subscription(request.protocols[0].metadata, "m").topics == ["u"]
    rig.group.subscribe(["u"])
    rig.sync()
    rig.told()
    rig.poll()
    assert not rig.wants(JoinGroupRequest), "the same subscription changes nothing"


def test_a_wish_that_comes_while_joining_is_not_forgotten() -> None:
    rig = Rig()
    rig.polled()
    rig.find()
    rig.group.subscribe(["t", "u"])
    rig.join(1)
    rig.sync(0)
    rig.told()
    assert rig.told().change is Change.REVOKED
    _, request = rig.take(JoinGroupRequest)
    assert read_subscription(request.protocols[0].metadata, "m").topics == ["t", "u"]


def test_a_join_that_is_parked_for_longer_than_a_session_is_no_end_of_it() -> None:
    rig = Rig()
    rig.polled()
    rig.find()
    rig.poll(5 * SESSION_S)
    rig.polled()
    rig.join(1)
    rig.sync(0)
    assert (rig.owned(), rig.group.rebalances) == (partitions(0), 1)


def test_a_rebalance_during_sync_group_joins_again_and_keeps_the_member() -> None:
    rig = Rig(COOPERATIVE)
    rig.stable(0)
    rig.beat(27)
    rig.join(2)
    rig.refuse(SyncGroupRequest, 27)
    assert rig.owned() == partitions(0)
    assert rig.join(3).member_id == "m"


def test_the_join_waits_for_no_commit_whose_caller_has_said_that_it_is_over() -> None:
    rig = Rig()
    rig.stable(0)
    rig.beat(27)
    ticket = rig.commit(0)
    rig.told()
    assert not rig.wants(JoinGroupRequest)
    ticket.is_over = True
    rig.poll()
    assert rig.wants(JoinGroupRequest)


def test_the_join_waits_for_commits_under_way_and_not_longer_than_the_rebalance() -> None:
    """B55: they would be refused once the generation has changed."""
    rig = Rig(COOPERATIVE)
    rig.stable(0)
    ticket = rig.commit(0)
    rig.beat(27)
    assert not rig.wants(JoinGroupRequest)
    assert rig.group.on_commit(ticket, None, rig.now) is Verdict.DONE
    rig.poll()
    assert rig.wants(JoinGroupRequest)
    slow = Rig(COOPERATIVE, rebalance_timeout_s=5.0)
    slow.stable(0)
    slow.commit(0)
    slow.beat(27)
    assert slow.wake_at <= slow.now + 5.0
    slow.poll(5.0)
    slow.told()
    assert slow.wants(JoinGroupRequest)


# -- clocks ------------------------------------------------------------------------------------------------------------
def test_heartbeats_go_out_in_their_time_also_while_a_join_is_parked() -> None:
    rig = Rig(COOPERATIVE)
    rig.stable(0)
    sent = []
    for _ in range(3):
        rig.beat()
        sent.append(rig.now)
    assert [round(b - a, 6) for a, b in itertools.pairwise(sent)] == [BEAT_S, BEAT_S]
    rig.beat(27)
    assert rig.wants(JoinGroupRequest)
    for _ in range(5):
        rig.beat(27)
    assert rig.owned() == partitions(0), "it is alive, and so is its coordinator"


def test_a_session_ends_by_the_member_s_own_clock() -> None:
    """Counted from when the last heartbeat that was answered was sent."""
    rig = Rig()
    rig.stable(0)
    rig.beat()
    sent = rig.now
    rig.poll(BEAT_S)
    rig.lose(HeartbeatRequest, GONE)
    rig.poll(sent + SESSION_S - 0.01 - rig.now)
    assert rig.owned() == partitions(0)
    assert rig.wake_at <= sent + SESSION_S
    rig.now = sent + SESSION_S
    assert rig.owned() == [], "at once, also before the driver comes round"
    rig.poll()
    assert rig.changes() == [(Change.LOST, [0])]
    assert rig.commit(0) is None
    assert rig.group.member_id == "m", "the coordinator may still know it"


def test_an_answer_that_comes_late_counts_from_when_its_request_was_sent() -> None:
    rig = Rig()
    rig.stable(0)
    rig.beat()
    rig.poll(BEAT_S)
    sent = rig.now
    rig.now += 6
    rig.beat()
    rig.now = sent + SESSION_S
    assert rig.owned() == []


def test_a_member_that_cannot_join_in_time_loses_what_it_has() -> None:
    """Where the rebalance timeout is shorter than the session: its coordinator removes it, alive or not."""
    rig = Rig(COOPERATIVE, rebalance_timeout_s=5.0)
    rig.stable(0)
    settled = rig.now
    rig.poll(BEAT_S)
    rig.beat(27)
    rig.now = settled + 5.0
    assert rig.owned() == []


def test_an_application_that_does_not_poll_leaves_and_joins_again_when_it_does() -> None:
    rig = Rig()
    rig.stable(0)
    while rig.now < 1000 + POLL_S - 1:
        rig.beat()
    rig.poll(1000 + POLL_S - rig.now)
    assert rig.group.state is State.AWAY
    assert rig.changes() == [(Change.LOST, [0])]
    _, request = rig.take(LeaveGroupRequest)
    assert (request.members[0].member_id, request.members[0].reason) == ("m", "the application has not asked for messages for 100 s")
    rig.told()
    rig.poll(1000)
    assert not rig.wants(JoinGroupRequest)
    rig.polled()
    assert rig.join(5, member="m2").member_id == ""


def test_a_static_member_does_not_say_that_its_application_does_not_poll() -> None:
    """KIP-345: it may come back within the session."""
    rig = Rig(instance_id="i")
    rig.stable(0)
    while rig.now < 1000 + POLL_S - 1:
        rig.beat()
    rig.asks.clear()
    rig.poll(1000 + POLL_S - rig.now)
    assert (rig.group.state, rig.asks, rig.owned()) == (State.AWAY, [], [])


# -- errors of a membership ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("code", "kept"), [(25, ""), (22, "m")])
def test_a_member_that_is_not_known_any_more_has_lost_everything(code: int, kept: str) -> None:
    rig = Rig(COOPERATIVE)
    rig.stable(0, 1)
    rig.beat(code)
    assert rig.changes() == [(Change.LOST, [0, 1])]
    assert rig.commit(0, 1) is None
    rig.told()
    request = rig.join(9, member="m9")
    told = read_subscription(request.protocols[0].metadata, "m")
    assert (request.member_id, told.owned_partitions, told.generation_id) == (kept, [], -1)


def test_what_the_application_has_not_heard_of_is_not_told_as_lost() -> None:
    rig = Rig(COOPERATIVE)
    rig.stable(0, 1)
    rig.beat(27)
    rig.join(2)
    rig.sync(1, 2)
    assert rig.changes() == [(Change.REVOKED, [0])]
    rig.beat(25)
    rig.told()
    assert rig.changes() == [(Change.LOST, [1])], "0 was told as revoked, 2 was never told"


@pytest.mark.parametrize("cls", [JoinGroupRequest, SyncGroupRequest, HeartbeatRequest])
def test_another_process_with_the_same_instance_id_ends_it(cls: Any) -> None:
    """KIP-345: two that take turns in fencing each other help nobody."""
    rig = Rig(COOPERATIVE, instance_id="i")
    rig.stable(0)
    if cls is not HeartbeatRequest:
        rig.beat(27)
    if cls is SyncGroupRequest:
        rig.join(2)
    rig.poll(BEAT_S)
    rig.refuse(cls, 82)
    assert rig.group.state is State.FATAL
    assert isinstance(rig.group.error, FencedInstanceId)
    assert rig.changes() == [(Change.LOST, [0])]


@pytest.mark.parametrize("code", [14, 15, 16])
def test_a_coordinator_that_moves_takes_nothing_from_a_member(code: int) -> None:
    """F04: a rolling restart costs no rebalance."""
    rig = Rig()
    rig.stable(0)
    for node in (2, 3, 1):
        rig.poll(BEAT_S)
        rig.refuse(HeartbeatRequest, code)
        if code != 14:
            rig.find(node)
        rig.poll(1.5)
        ask, _ = rig.take(HeartbeatRequest)
        rig.answer(ask, HeartbeatRequest.API.response())
    assert (rig.owned(), rig.group.rebalances, rig.group.ownership.losses, rig.tells) == (partitions(0), 1, 0, [])


def test_a_heartbeat_of_an_earlier_generation_says_nothing() -> None:
    rig = Rig(COOPERATIVE)
    rig.stable(0)
    rig.beat(27)
    rig.poll(BEAT_S)
    old, _ = rig.take(HeartbeatRequest)
    rig.join(2)
    rig.answer(old, HeartbeatRequest.API.response(error_code=22))
    rig.sync(0)
    assert (rig.owned(), rig.group.ownership.losses) == (partitions(0), 0)


def test_an_error_that_no_heartbeat_should_have_ends_it() -> None:
    rig = Rig()
    rig.stable(0)
    rig.beat(30)
    assert rig.group.state is State.FATAL
    assert rig.changes() == [(Change.LOST, [0])]


@pytest.mark.parametrize(("code", "state"), [(25, State.PREPARING), (22, State.PREPARING), (30, State.FATAL), (16, State.SYNCING)])
def test_what_sync_group_may_answer(code: int, state: State) -> None:
    rig = Rig()
    rig.polled()
    rig.find()
    rig.join(1)
    rig.refuse(SyncGroupRequest, code)
    assert rig.group.state is (State.JOINING if state is State.PREPARING else state)


# -- commits -----------------------------------------------------------------------------------------------------------
def test_a_commit_carries_the_generation_and_the_member() -> None:
    rig = Rig()
    rig.stable(0, 1, generation=6)
    ticket = rig.commit(0)
    assert (ticket.generation, ticket.member_id, ticket.partitions) == (6, "m", set(partitions(0)))


def test_no_commit_goes_out_between_join_group_and_the_assignment() -> None:
    rig = Rig(COOPERATIVE)
    rig.stable(0)
    rig.beat(27)
    assert rig.group.state is State.JOINING
    assert rig.commit(0) is None
    assert not rig.group.takes_commits(rig.now)
    rig.join(2)
    assert rig.commit(0) is None
    rig.sync(0)
    assert rig.commit(0) is not None
    assert rig.commit(1) is None
    assert rig.group.takes_commits(rig.now), "so that it is clear that 1 is not its own"


@pytest.mark.parametrize(
    ("error", "verdict", "state"),
    [
        (None, Verdict.DONE, State.STABLE),
        (NotCoordinatorForGroup("moved"), Verdict.RETRY, State.STABLE),
        (RebalanceInProgress("now"), Verdict.RETRY, State.JOINING),
        (OffsetMetadataTooLarge("x"), Verdict.FAILED, State.STABLE),
        (UnknownMemberId("m"), Verdict.FAILED, State.PREPARING),
        (IllegalGeneration("1"), Verdict.FAILED, State.PREPARING),
        (FencedInstanceId("i"), Verdict.FAILED, State.FATAL),
    ],
)
def test_what_the_answer_to_a_commit_means(error: KafkaException | None, verdict: Verdict, state: State) -> None:
    rig = Rig(COOPERATIVE)
    rig.stable(0)
    assert rig.group.on_commit(rig.commit(0), error, rig.now) is verdict
    rig.poll()
    assert rig.group.state is state
    assert rig.wants(FindCoordinatorRequest) == isinstance(error, NotCoordinatorForGroup)


def test_a_refused_commit_of_an_earlier_generation_costs_nothing() -> None:
    rig = Rig(COOPERATIVE, rebalance_timeout_s=5.0, session_timeout_s=60.0)
    rig.stable(0)
    ticket = rig.commit(0)
    rig.beat(27)
    rig.poll(6.0)
    rig.told()
    rig.join(2)
    rig.sync(0)
    assert rig.group.on_commit(ticket, IllegalGeneration("1"), rig.now) is Verdict.RETRY
    assert rig.owned() == partitions(0)


# -- the end -----------------------------------------------------------------------------------------------------------
def test_a_member_that_leaves_gives_up_in_order_then_says_why() -> None:
    """KIP-800."""
    rig = Rig()
    rig.stable(0)
    rig.group.leave("the consumer was stopped")
    rig.poll()
    assert rig.changes() == [(Change.REVOKED, [0])]
    assert not rig.wants(LeaveGroupRequest)
    ticket = rig.commit(0)
    rig.told()
    assert not rig.wants(LeaveGroupRequest), "a commit is under way"
    rig.group.on_commit(ticket, None, rig.now)
    rig.poll()
    request = rig.refuse(LeaveGroupRequest, 0)
    assert (request.members[0].member_id, request.members[0].reason) == ("m", "the consumer was stopped")
    assert rig.group.state is State.LEFT
    rig.polled()
    rig.poll(1000)
    assert rig.asks == []


def test_a_good_bye_is_said_at_once_where_it_cannot_be_said_later() -> None:
    """What is given up is told all the same."""
    rig = Rig()
    rig.stable(0)
    assert rig.group.farewell(rig.now) is None, "it does not leave"
    rig.group.leave("bye")
    rig.poll()
    ask = rig.group.farewell(rig.now)
    assert ask is not None
    assert ask.request.members[0].member_id == "m"
    assert rig.group.farewell(rig.now) is None
    rig.poll()
    assert rig.changes() == [(Change.REVOKED, [0])]
    assert not rig.wants(LeaveGroupRequest)
    rig.answer(ask, LeaveGroupRequest.API.response())
    assert rig.group.state is State.LEAVING
    rig.told()
    assert rig.group.state is State.LEFT


def test_who_leaves_before_it_has_heard_its_id_gives_it_back() -> None:
    """KIP-394: the coordinator keeps a place for the id, and the group's next round waited a session for whoever was never to come."""
    rig = Rig()
    rig.polled()
    rig.find()
    ask, _ = rig.take(JoinGroupRequest)
    rig.group.leave("bye")
    rig.poll()
    rig.answer(ask, JoinGroupRequest.API.response(error_code=79, member_id="m-1"))
    rig.poll()
    assert rig.refuse(LeaveGroupRequest, 0).members[0].member_id == "m-1"
    assert rig.group.state is State.LEFT


def leaving(rig: Rig) -> Rig:
    """It has given up everything, and says good-bye."""
    rig.stable(0)
    rig.group.leave("bye")
    rig.poll()
    rig.told()
    return rig


@pytest.mark.parametrize("error", [NotCoordinatorForGroup("16"), GroupCoordinatorNotAvailable("15"), GONE])
def test_a_good_bye_that_was_not_heard_is_said_again_to_whoever_is_the_coordinator_then(error: KafkaException) -> None:
    """Else the partitions are nobody's until the session ends."""
    rig = leaving(Rig())
    first = rig.lose(LeaveGroupRequest, error)
    rig.find(2)
    rig.poll(1)
    ask, again = rig.take(LeaveGroupRequest)
    assert (again, ask.to) == (first, (2, "b", 9092))
    rig.answer(ask, LeaveGroupRequest.API.response())
    assert rig.group.state is State.LEFT


def test_a_coordinator_that_is_not_found_at_once_is_looked_for_again_by_who_leaves() -> None:
    rig = leaving(Rig())
    rig.lose(LeaveGroupRequest)
    rig.lose(FindCoordinatorRequest)
    rig.poll(1)
    rig.find(2)
    rig.poll(1)
    rig.refuse(LeaveGroupRequest, 0)
    assert rig.group.state is State.LEFT


@pytest.mark.parametrize(("error", "unheard"), [(UnknownMemberId("25"), 0), (KafkaTimeoutError("no answer"), 1)])
def test_a_good_bye_that_changes_nothing_or_gets_no_answer_is_not_said_again(
    error: KafkaException, unheard: int, caplog: pytest.LogCaptureFixture
) -> None:
    rig = leaving(Rig())
    rig.lose(LeaveGroupRequest, error)
    assert (rig.group.state, rig.asks) == (State.LEFT, [])
    assert caplog.text.count("nobody heard that a member leaves") == unheard


@pytest.mark.parametrize("deaf", [LeaveGroupRequest, FindCoordinatorRequest])
def test_nobody_says_good_bye_for_ever(deaf: type[Message], caplog: pytest.LogCaptureFixture) -> None:
    rig = leaving(Rig())
    tries = 0
    if deaf is FindCoordinatorRequest:
        rig.lose(LeaveGroupRequest)
    while rig.group.state is State.LEAVING:
        if rig.wants(deaf):
            rig.lose(deaf)
            tries += 1
        elif rig.wants(FindCoordinatorRequest):
            rig.find(1 + tries % 2)
        rig.poll(0.5)
        assert tries < 10
    assert 2 < tries < 10
    assert rig.group.state is State.LEFT
    assert caplog.text.count("its partitions are nobody's until its session ends") == 1


@pytest.mark.parametrize("told", [False, True])
def test_a_static_member_leaves_only_when_it_is_told_to(told: bool) -> None:
    rig = Rig(instance_id="i")
    rig.stable(0)
    rig.group.leave("bye", static=told)
    rig.poll()
    rig.told()
    assert rig.wants(LeaveGroupRequest) == told
    if told:
        request = rig.refuse(LeaveGroupRequest, 0)
        assert request.members[0].group_instance_id == "i"
    assert rig.group.state is State.LEFT


def test_a_reason_that_is_too_long_is_cut() -> None:
    rig = Rig()
    rig.stable()
    rig.group.leave("x" * 1000)
    rig.poll()
    assert len(rig.take(LeaveGroupRequest)[1].members[0].reason or "") == 255


# -- the table -----------------------------------------------------------------------------------------------------------
def test_a_move_that_is_not_in_the_table_raises() -> None:
    rig = Rig()
    with pytest.raises(KeyError):
        rig.group._move(Event.SYNCED)


def test_every_state_can_be_reached_and_left_and_the_last_ones_cannot() -> None:
    states = set(State) - {State.RECONCILING}  # which is of KIP-848
    assert {state for _, state in MOVES.items()} == states
    for state in states:
        ways = {to for (at, _), to in MOVES.items() if at is state} - {state}
        assert bool(ways) == (state not in (State.LEFT, State.FATAL))
    for state in IN_GROUP:
        assert MOVES[state, Event.LEAVE] is State.LEAVING
