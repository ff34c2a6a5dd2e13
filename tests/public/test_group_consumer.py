"""client.get_consumer(topics, group) against brokers that misbehave: what is handed out, given back, committed, lost."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import gevent
import pytest

from gkafka import KafkaClient
from gkafka.common import TopicPartition
from gkafka.consumer import Consumer
from gkafka.core.assignors import Assignment, GroupMember, RangeAssignor, Topics
from gkafka.core.lease import Lease
from gkafka.exceptions import (
    CommitFailedError,
    FencedInstanceId,
    KafkaTimeoutError,
)
from gkafka.testing import Close, Delay, Drop, Error, MockCluster
from gkafka.wire.consumerprotocol import read_subscription
from tests.kit.clock import now
from tests.public.aids import LIMIT_S, Clock, Held, Runner, error_of, fill
from tests.public.groupaids import (
    FOUR,
    Join,
    Told,
    cluster,
    commits,
    committed,
    filled,
    goes_back,
    join,
    owns,
    places,
    read_all,
    settle,
    share,
)

__all__ = ["cluster", "join"]

LOADING, NOT_COORDINATOR, ILLEGAL_GENERATION, UNKNOWN_MEMBER, REBALANCING, NOT_ALLOWED = 14, 16, 22, 25, 27, 30
FENCED, UNSTABLE = 82, 88
Connect = Callable[..., KafkaClient]


# -- options -------------------------------------------------------------------------------------------------------------------
def test_session_timeout_ms_max_poll_interval_ms_group_instance_id_and_client_rack_reach_the_coordinator(
    cluster: MockCluster, join: Join, run: Runner
) -> None:
    options = {"session_timeout_ms": 7000, "max_poll_interval_ms": 9000, "group_instance_id": "one", "client_rack": "r1"}
    member = join(**options, assignors=["range", "roundrobin"])
    settle(run, lambda: len(member.assignment()) == 4, member)
    request = cluster.requests("JoinGroup")[-1].message
    assert (request.session_timeout_ms, request.rebalance_timeout_ms, request.group_instance_id) == (7000, 9000, "one")
    assert [protocol.name for protocol in request.protocols] == ["range", "roundrobin"]
    told = read_subscription(request.protocols[0].metadata, "me")
    assert (told.topics, told.rack_id) == (["t"], "r1")
    beat = cluster.wait_for(lambda: cluster.requests("Heartbeat"))[-1].message
    assert beat.group_instance_id == "one"
    member.commit({FOUR[0]: 0})
    assert cluster.requests("OffsetCommit")[-1].message.group_instance_id == "one"


class Slow(RangeAssignor):
    """It waits until that is true, as one that asks a database does."""

    name = "slow"

    def __init__(self, until: Callable[[], bool]) -> None:
        self.until = until
        self.runs = 0

    def assign(self, topics: Topics, members: Sequence[GroupMember]) -> Assignment:
        self.runs += 1
        deadline = now() + LIMIT_S
        while not self.until() and now() < deadline:
            gevent.sleep(0.01) if gevent.getcurrent().parent is not None else time.sleep(0.01)
        return super().assign(topics, members)


def test_an_assignor_that_takes_longer_than_a_session_costs_its_leader_nothing(cluster: MockCluster, join: Join, run: Runner) -> None:
    """Heartbeats share no lock with it."""
    assignor = Slow(lambda: cluster.count("Heartbeat") >= 5)
    member = join(assignors=[assignor])
    settle(run, lambda: len(member.assignment()) == 4, member)
    assert assignor.runs == 1
    assert cluster.count("JoinGroup") <= 2, "the second with the name that the coordinator gave it"
    member.stop()


def test_heartbeat_interval_ms_is_the_time_between_two_heartbeats(cluster: MockCluster, join: Join, run: Runner) -> None:
    with Clock() as clock:
        member = join(heartbeat_interval_ms=200)
        run.until(lambda: cluster.count("Heartbeat") >= 5)
        beats = cluster.count("Heartbeat")
    assert clock.seconds > 0.15 * (beats - 1)
    member.stop()


def test_session_timeout_ms_is_how_long_a_silent_coordinator_is_trusted(
    cluster: MockCluster, connect: Connect, join: Join, run: Runner
) -> None:
    """By the member's own clock, although records are there; and it goes on when there is an answer again (F14)."""
    told = Told()
    member = join(session_timeout_ms=60_000, **told.listeners)
    settle(run, lambda: len(member.assignment()) == 4, member)
    filled(connect, cluster)
    run.until(lambda: member.stats()["buffered"] == 40)
    assert len(member.consume_batch(3, 60_000)) == 3
    unheard: list[Any] = []
    cluster.on("Heartbeat", Drop(before=True), times=None, when=lambda request: not unheard.append(request))  # type: ignore[func-returns-value]
    for api in ("FindCoordinator", "JoinGroup"):
        cluster.on(api, Drop(before=True), times=None)
    run.until(lambda: unheard)
    lease = member._share._member._group.lease
    assert lease.ends_at < cluster.requests("Heartbeat")[-1].time + 60, "it counts from the last answer"
    assert member.consume(60_000) is not None
    end_session(lease, member)
    assert member.consume(10) is None
    settle(run, lambda: told.of("lost"), member)
    assert (member.assignment(), told.of("revoked")) == (set(), [])
    before = len(commits(cluster))
    assert isinstance(error_of(member.commit, {FOUR[0]: 1}, timeout=60), CommitFailedError)
    assert len(commits(cluster)) == before
    lease._session_s = 60.0
    cluster.clear_script()
    cluster.close_connections()  # they are silent for good
    start = committed(cluster)
    got = read_all(member, 40 - sum(start.values()))
    assert sorted(got) == [(p, o) for p in range(4) for o in range(start.get(p, 0), 10)]


def end_session(lease: Lease, member: Consumer) -> None:
    """As if session_timeout_ms had passed."""
    lease._session_s = 0.0
    member._engine.run.left = 0  # a run has asked for that time when it began
    member._share._member._wake.set()  # type: ignore[union-attr]


def test_session_timeout_ms_holds_records_back_although_nobody_could_be_told_yet(
    cluster: MockCluster, connect: Connect, join: Join, run: Runner
) -> None:
    """A listener runs, and records are buffered: the clock alone decides."""
    entered, gate = threading.Event(), threading.Event()

    def on_assigned(consumer: Consumer, partitions: list[TopicPartition]) -> None:
        if not partitions:
            entered.set()
            run.until(gate.is_set)

    member = join(session_timeout_ms=60_000, on_assigned=on_assigned)
    settle(run, lambda: len(member.assignment()) == 4, member)
    filled(connect, cluster)
    run.until(lambda: member.stats()["buffered"] == 40)
    cluster.rebalance("g")
    run.until(entered.is_set)
    assert member.consume(60_000) is not None
    for api in ("Heartbeat", "FindCoordinator", "JoinGroup"):
        cluster.on(api, Drop(before=True), times=None)
    end_session(member._share._member._group.lease, member)
    assert run.stays(lambda: member.consume(5) is None, 0.3)
    assert member.stats()["buffered"] == 39
    cluster.clear_script()
    cluster.close_connections()
    gate.set()


def test_max_poll_interval_ms_ends_a_membership_until_the_application_asks_again(
    cluster: MockCluster, connect: Connect, join: Join, run: Runner
) -> None:
    filled(connect, cluster)
    told = Told()
    member = join(max_poll_interval_ms=400, auto_commit_interval_ms=20, **told.listeners)
    first = read_all(member, 4)
    run.until(lambda: told.of("lost"))
    run.until(lambda: cluster.group("g").members == {})  # type: ignore[union-attr]
    assert committed(cluster) == {} or max(committed(cluster).values()) <= len(first)
    assert isinstance(error_of(member.commit, {FOUR[0]: 1}), CommitFailedError)
    start = committed(cluster)
    group: Any = member._share._member._group  # type: ignore[union-attr]
    group.options = group.options._replace(max_poll_interval_s=LIMIT_S)  # once is enough
    again = read_all(member, 40 - sum(start.values()))
    assert sorted(again) == [(p, o) for p in range(4) for o in range(start.get(p, 0), 10)], "nothing that was not finished is skipped"


@pytest.mark.parametrize("assignors", [["range"], ["cooperative-sticky"]])
def test_assignors_say_how_the_partitions_are_divided(cluster: MockCluster, join: Join, run: Runner, assignors: list[str]) -> None:
    first = join(assignors=assignors)
    second = join(assignors=assignors)
    settle(run, lambda: sorted(map(len, share(first, second))) == [2, 2] and owns(cluster, 2), first, second)
    assert cluster.group("g").protocol == assignors[0]  # type: ignore[union-attr]
    if assignors == ["range"]:
        assert sorted(share(first, second)) == [[0, 1], [2, 3]]


# -- giving back ---------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("assignor", "count"), [("range", 7), ("cooperative-sticky", 20)])
def test_a_partition_is_given_back_when_the_application_asks_again(
    cluster: MockCluster, connect: Connect, join: Join, run: Runner, assignor: str, count: int
) -> None:
    """What it had is committed then, to the record; after that nothing of it is."""
    filled(connect, cluster)
    told = Told()
    first = join(assignors=[assignor], auto_commit_interval_ms=60_000, **told.listeners)
    got = read_all(first, 40)
    more = connect(cluster)
    for p in range(4):
        fill(more, [b"x"] * 5, partition=p)
    run.until(lambda: first.stats()["buffered"] == 20)
    last = places(first.consume_batch(count, 60_000))
    assert len(last) == count
    second = join(assignors=[assignor])
    assert run.stays(lambda: second.consume_batch(timeout_ms=10) == [] and share(second) == [[]], 0.4)
    run.until(lambda: len(first.assignment()) < 4)  # it knows that it is asked for some, and hands out nothing of these
    assert told.of("revoked") == []
    after = settle(run, lambda: sorted(map(len, share(first, second))) == [2, 2], first, second)
    given = told.of("revoked")[0]
    at = {p: sum(1 for q, _ in got + last if q == p) for p in range(4)}
    assert {p: committed(cluster)[p] for p in given} == {p: at[p] for p in given}, "to the record"
    everything = got + last + after
    everything += read_all(first, 60 - len(everything), second)
    assert sorted(everything) == [(p, o) for p in range(4) for o in range(15)], "each once"
    first.stop()
    second.stop()
    assert goes_back(cluster) == []


def test_after_a_partition_was_revoked_nothing_of_it_is_committed(cluster: MockCluster, connect: Connect, join: Join, run: Runner) -> None:
    """Whatever else goes on: commits in the background and by several workers (commits after revoke: 0)."""
    filled(connect, cluster, 200)
    members = [join(auto_commit_interval_ms=5) for _ in range(2)]
    ending = threading.Event()

    def work(member: Consumer) -> None:
        while not ending.is_set():
            member.consume_batch(3, 5)
            with contextlib.suppress(CommitFailedError, KafkaTimeoutError):
                member.commit(timeout=2)
            run.sleep(0.001)

    workers = [run.aside(work, member) for member in members for _ in range(2)]
    for _ in range(4):
        run.sleep(0.2)
        cluster.rebalance("g")
    third = join(auto_commit_interval_ms=5)
    settle(run, lambda: owns(cluster, 3) and all(share(third)), third)
    third.stop()
    run.sleep(0.2)
    ending.set()
    for worker in workers:
        worker.result()
    assert goes_back(cluster) == []


def test_commits_of_several_workers_never_take_the_group_back(cluster: MockCluster, connect: Connect, join: Join, run: Runner) -> None:
    """With answers that are lost, refused and late (commit regressions: 0)."""
    filled(connect, cluster, 400)
    member = join(auto_commit_interval_ms=7)
    settle(run, lambda: len(member.assignment()) == 4, member)
    chance = Random(7)
    ending = threading.Event()

    def work() -> None:
        while not ending.is_set():
            member.consume_batch(1 + int(chance.random() * 5), 5)
            member.commit(timeout=LIMIT_S)

    workers = [run.aside(work) for _ in range(4)]
    troubles: list[Any] = [Error(LOADING), Error(NOT_COORDINATOR), Error(REBALANCING), Close(before=True), Close(before=False), Delay(0.02)]
    for _ in range(12):
        before = cluster.count("OffsetCommit")
        cluster.on("OffsetCommit", chance.choice(troubles))
        run.until(lambda before=before: cluster.count("OffsetCommit") > before + 3)  # type: ignore[misc]
    ending.set()
    for worker in workers:
        worker.result()
    assert goes_back(cluster) == []
    member.commit()
    assert committed(cluster) == {tp.partition: offset for tp, offset in member.positions().items()}


def test_a_commit_that_waits_for_its_turn_says_where_the_consumer_stands_then(
    cluster: MockCluster, connect: Connect, join: Join, run: Runner
) -> None:
    """The one before it may have committed more than what stood when this one was called."""
    filled(connect, cluster, 100, [0])
    member = join(auto_commit=False)
    read_all(member, 1)
    member.seek(FOUR[0], 0)
    assert len(member.consume_batch(5, 60_000)) == 5
    cluster.on("OffsetCommit", held := Held())
    first = run.aside(member.commit)
    run.until(lambda: commits(cluster))
    waiting = [run.aside(member.commit) for _ in range(4)]
    run.sleep(0.05)
    assert len(member.consume_batch(5, 60_000)) == 5
    waiting += [run.aside(member.commit) for _ in range(4)]
    held.released = True
    for each in (first, *waiting):
        each.result()
    assert goes_back(cluster) == []
    assert [commit[0] for commit in commits(cluster)] == [5, 10], "one request for all that wait"


def test_what_was_committed_before_a_partition_went_away_is_not_taken_for_committed_when_it_is_back(
    cluster: MockCluster, connect: Connect, join: Join, run: Runner
) -> None:
    """Whoever had it meanwhile may have gone back."""
    filled(connect, cluster)
    first = join(assignors=["range"])
    assert len(read_all(first, 40)) == 40
    first.commit()
    second = join(assignors=["range"], auto_commit=False)
    settle(run, lambda: share(first, second) == [[0, 1], [2, 3]], first, second)
    second.commit({("t", 3): 5})
    second.stop()
    got = settle(run, lambda: owns(cluster, 1) and first.positions().get(FOUR[3]) == 10, first)
    assert sorted(got) == [(3, n) for n in range(5, 10)]
    first.stop()
    assert committed(cluster) == dict.fromkeys(range(4), 10)


def test_an_offset_of_a_partition_that_is_anothers_is_refused_and_ones_own_are_committed(
    cluster: MockCluster, connect: Connect, join: Join, run: Runner
) -> None:
    filled(connect, cluster)
    first, second = (join(assignors=["range"], auto_commit=False) for _ in range(2))
    settle(run, lambda: share(first, second) in ([[0, 1], [2, 3]], [[2, 3], [0, 1]]), first, second)
    own, other = min(first.assignment()), min(second.assignment())
    error = error_of(first.commit, {own: 3, other: 4})
    assert isinstance(error, CommitFailedError)
    assert (error.topic, error.partition) == other
    assert committed(cluster) == {own.partition: 3}


def test_commits_in_the_background_are_of_what_is_finished_and_no_more(
    cluster: MockCluster, connect: Connect, join: Join, run: Runner
) -> None:
    filled(connect, cluster, 10, [0])
    member = join(auto_commit_interval_ms=20)
    run.until(lambda: member.stats()["buffered"] == 10)
    assert len(member.consume_batch(4, 60_000)) == 4
    assert run.stays(lambda: committed(cluster).get(0, 0) == 0, 0.3)
    assert len(member.consume_batch(4, 60_000)) == 4
    run.until(lambda: committed(cluster).get(0) == 4)
    assert run.stays(lambda: committed(cluster) == {n: 4 if n == 0 else 0 for n in committed(cluster)}, 0.3)


# -- lost ----------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("how", ["kicked out", "unknown member", "illegal generation"])
def test_what_is_lost_is_told_as_lost_and_nothing_of_it_is_committed(
    cluster: MockCluster, connect: Connect, join: Join, run: Runner, how: str
) -> None:
    filled(connect, cluster)
    told = Told()
    member = join(auto_commit_interval_ms=60_000, **told.listeners)
    assert len(read_all(member, 40)) == 40
    member.commit({FOUR[0]: 4})
    name, joins = next(iter(cluster.group("g").members)), cluster.count("JoinGroup")  # type: ignore[union-attr]
    again: list[tuple[int, int]] = []
    if how != "kicked out":
        cluster.on("Heartbeat", Error(UNKNOWN_MEMBER if how == "unknown member" else ILLEGAL_GENERATION))
        run.until(lambda: again.extend(places(member.consume_batch(timeout_ms=0))) or cluster.count("JoinGroup") > joins)
    if how != "illegal generation":  # a member that is not known is none: the new one need not wait for its session's end
        cluster.remove_member("g", name)
    again += read_all(member, 36 - len(again))
    assert sorted(again) == [(p, o) for p in range(4) for o in range(4 if p == 0 else 0, 10)], "it goes on from what is committed"
    assert (told.of("lost"), told.of("revoked")) == ([[0, 1, 2, 3]], [])
    assert len(told.of("assigned")) == 2
    assert commits(cluster) == [{0: 4}]
    member.stop()
    assert committed(cluster) == dict.fromkeys(range(4), 10)
    assert goes_back(cluster) == []


def test_a_commit_of_everything_is_told_of_what_was_lost_since_the_last_call(
    cluster: MockCluster, connect: Connect, join: Join, run: Runner
) -> None:
    filled(connect, cluster)
    told = Told()
    member = join(auto_commit=False, **told.listeners)
    assert len(read_all(member, 40)) == 40
    member.commit({FOUR[0]: 10})
    cluster.remove_member("g", next(iter(cluster.group("g").members)))  # type: ignore[union-attr]
    run.until(lambda: told.of("lost"))
    error = error_of(member.commit)
    assert isinstance(error, CommitFailedError)
    assert "t-1, t-2, t-3." in str(error), "and t-0 had nothing to lose"
    member.commit()
    assert len(read_all(member, 30)) == 30
    member.commit()
    assert committed(cluster) == dict.fromkeys(range(4), 10)


def test_a_commit_of_one_that_can_be_no_member_any_more_says_why(cluster: MockCluster, connect: Connect, join: Join, run: Runner) -> None:
    filled(connect, cluster)
    member = join(auto_commit=False, group_instance_id="i")
    assert len(read_all(member, 40)) == 40
    cluster.on("Heartbeat", Error(FENCED))
    run.until(lambda: not member.positions())
    assert isinstance(error_of(member.commit), FencedInstanceId)
    assert committed(cluster) == {}


@pytest.mark.parametrize("code", [ILLEGAL_GENERATION, UNKNOWN_MEMBER])
def test_a_commit_that_is_refused_to_a_stranger_is_told_and_ends_the_membership(
    cluster: MockCluster, connect: Connect, join: Join, run: Runner, code: int
) -> None:
    filled(connect, cluster)
    told = Told()
    member = join(auto_commit=False, **told.listeners)
    assert len(read_all(member, 40)) == 40
    name = next(iter(cluster.group("g").members))  # type: ignore[union-attr]
    cluster.on("OffsetCommit", Error(code))
    assert isinstance(error_of(member.commit), CommitFailedError)
    if code == UNKNOWN_MEMBER:  # it is none, so nobody waits for its session's end
        cluster.remove_member("g", name)
    assert len(read_all(member, 40)) == 40
    assert told.of("lost") == [[0, 1, 2, 3]]
    member.commit()
    assert committed(cluster) == dict.fromkeys(range(4), 10)


def test_a_fenced_member_hands_nothing_out_and_says_so_at_each_call(
    cluster: MockCluster, connect: Connect, join: Join, run: Runner
) -> None:
    filled(connect, cluster)
    told = Told()
    member = join(group_instance_id="one", auto_commit_interval_ms=60_000, **told.listeners)
    assert len(member.consume_batch(4, 60_000)) > 0 or len(read_all(member, 1)) > 0
    cluster.on("Heartbeat", Error(FENCED))
    run.until(lambda: told.of("lost"))
    for _ in range(5):
        assert isinstance(error_of(member.consume, 20), FencedInstanceId)
    assert (member.assignment(), told.of("revoked"), commits(cluster)) == (set(), [], [])
    with Clock() as clock:
        member.stop()
    assert clock.seconds < 30


def test_a_partition_that_is_lost_while_it_is_given_up_is_told_as_lost(
    cluster: MockCluster, connect: Connect, join: Join, run: Runner
) -> None:
    """Its commit was not answered before the session ended."""
    filled(connect, cluster)
    told = Told()
    member = join(
        assignors=["range"],
        session_timeout_ms=60_000,
        auto_commit_interval_ms=60_000,
        **told.listeners,
    )
    assert len(read_all(member, 40)) == 40
    for api in ("OffsetCommit", "FindCoordinator"):
        cluster.on(api, Drop(before=True), times=None)
    cluster.on("Heartbeat", Error(REBALANCING))
    cluster.on("Heartbeat", Drop(before=True), times=None)
    settle(run, lambda: cluster.count("OffsetCommit"), member)
    end_session(member._share._member._group.lease, member)
    settle(run, lambda: len(told.all) > 1, member)
    assert (told.of("lost"), told.of("revoked")) == ([[0, 1, 2, 3]], [])
