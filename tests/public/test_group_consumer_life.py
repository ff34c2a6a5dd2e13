"""client.get_consumer(topics, group): listeners that misbehave, every way to end, calls that are interrupted."""

from __future__ import annotations

import contextlib
import gc
import threading
import weakref
from collections.abc import Callable
from random import Random
from typing import Any

import gevent
import pytest

from gkafka import KafkaClient
from gkafka.common import TopicPartition
from gkafka.consumer import Consumer
from gkafka.exceptions import ConsumerStoppedException
from gkafka.testing import Close, Delay, Drop, Error, MockCluster
from tests.kit.clock import now
from tests.public.aids import LIMIT_S, Clock, Held, Runner, error_of, fill
from tests.public.forking import script
from tests.public.groupaids import (
    FOUR,
    QUICK,
    Join,
    cluster,
    committed,
    errors_of,
    filled,
    goes_back,
    is_alone,
    join,
    owns,
    places,
    read_all,
    settle,
    share,
)

__all__ = ["cluster", "join"]

NOT_COORDINATOR, REBALANCING, UNSTABLE = 16, 27, 88
Connect = Callable[..., KafkaClient]


# -- listeners -----------------------------------------------------------------------------------------------------------------
def test_what_listeners_raise_is_told_once_and_nothing_stops(cluster: MockCluster, connect: Connect, join: Join, run: Runner) -> None:
    def fail(consumer: Consumer, partitions: list[TopicPartition]) -> None:
        if partitions:
            raise ZeroDivisionError

    first = join(assignors=["range"], on_assigned=fail, on_revoked=fail, on_lost=fail)
    assert isinstance(errors_of(first, run)[0], ZeroDivisionError)
    filled(connect, cluster)
    assert len(read_all(first, 40)) == 40
    second = join(assignors=["range"])
    told = 0

    def divided() -> bool:
        nonlocal told
        try:
            first.consume_batch(timeout_ms=10)
        except ZeroDivisionError:
            told += 1
        second.consume_batch(timeout_ms=10)
        return sorted(map(len, share(first, second))) == [2, 2] and told >= 1

    run.until(divided)
    assert told <= 2, "revoked, and assigned again"
    assert committed(cluster) == dict.fromkeys(range(4), 10)


def test_a_listener_that_takes_long_costs_no_membership_and_nothing_is_handed_out_before_it_returns(
    cluster: MockCluster, connect: Connect, join: Join, run: Runner
) -> None:
    filled(connect, cluster)
    gate = threading.Event()
    member = join(on_assigned=lambda consumer, partitions: run.until(gate.is_set))
    run.until(lambda: len(member.assignment()) == 4)
    before = cluster.count("Heartbeat")

    def beats_on() -> bool:
        assert member.consume_batch(timeout_ms=10) == []
        return cluster.count("Heartbeat") > before + 10

    run.until(beats_on)
    assert "waiting for on_assigned to return" in member.explain().partitions[FOUR[0]].text
    gate.set()
    assert len(read_all(member, 40)) == 40
    assert member.stats()["group"]["losses"] == 0


def test_listeners_may_do_whatever_a_consumer_can(cluster: MockCluster, connect: Connect, join: Join, run: Runner) -> None:
    filled(connect, cluster)
    seen: list[Any] = []

    def on_assigned(consumer: Consumer, partitions: list[TopicPartition]) -> None:
        seen.append(len([consumer.position(tp) for tp in partitions]))
        seen.append(consumer.consume_batch(timeout_ms=50))
        for tp in partitions:
            consumer.seek(tp, 6)
        consumer.pause(partitions[:3])
        consumer.resume(partitions[:1])
        consumer.commit(dict.fromkeys(partitions, 1))

    def on_revoked(consumer: Consumer, partitions: list[TopicPartition]) -> None:
        consumer.consume_batch(timeout_ms=10)
        consumer.pause(partitions)
        consumer.resume(partitions)
        consumer.commit()
        seen.append([consumer.position(tp) for tp in partitions])

    member = join(auto_commit=False, on_assigned=on_assigned, on_revoked=on_revoked)
    got = read_all(member, 8)
    assert sorted(got) == [(p, o) for p in (0, 3) for o in range(6, 10)]
    assert seen == [4, []]
    assert member.paused() == {FOUR[1], FOUR[2]}
    assert committed(cluster) == dict.fromkeys(range(4), 1)
    member.stop()
    assert seen[2] == [10, 6, 6, 10]
    assert committed(cluster) == {0: 10, 1: 6, 2: 6, 3: 10}


@pytest.mark.parametrize("when", ["assigned", "revoked", "lost"])
def test_stop_in_a_listener_takes_effect_when_it_returns(
    cluster: MockCluster, connect: Connect, join: Join, run: Runner, when: str
) -> None:
    filled(connect, cluster)
    listener = {f"on_{when}": lambda consumer, partitions: consumer.stop()}
    member = join(assignors=["range"], auto_commit_interval_ms=60_000, **listener)
    if when != "assigned":
        read_all(member, 40)
    if when == "revoked":
        cluster.rebalance("g")
    if when == "lost":
        cluster.remove_member("g", next(iter(cluster.group("g").members)))  # type: ignore[union-attr]

    def stopped() -> bool:
        with contextlib.suppress(ConsumerStoppedException):
            member.consume_batch(timeout_ms=10)
        return member.closed

    run.until(stopped)
    run.until(lambda: is_alone(cluster))
    assert isinstance(error_of(member.consume), ConsumerStoppedException)
    with Clock() as clock:
        member.stop()
    assert clock.seconds < 30
    if when == "revoked":
        assert committed(cluster) == dict.fromkeys(range(4), 10)
    if when == "lost":
        assert committed(cluster) == {}


# -- ends ----------------------------------------------------------------------------------------------------------------------
def test_stop_ends_a_call_that_waits_and_may_be_called_by_many(cluster: MockCluster, join: Join, run: Runner) -> None:
    member = join()
    settle(run, lambda: len(member.assignment()) == 4, member)
    waiting = run.aside(member.consume, 60_000)
    run.sleep(0.05)
    with Clock() as clock:
        stopping = [run.aside(member.stop) for _ in range(3)]
        for each in stopping:
            each.result()
        assert isinstance(error_of(waiting.result), ConsumerStoppedException)
    assert clock.seconds < 30
    assert is_alone(cluster)
    member.stop()


def test_stop_while_the_keeper_is_at_work_ends_it_at_its_next_look(cluster: MockCluster, join: Join, run: Runner) -> None:
    """What it is told in the middle of a look is not forgotten when that ends: it slept for four seconds then."""
    member = join()
    looking, told, whole = member._handler.Event(), member._handler.Event(), member._share.look_after  # type: ignore[union-attr]

    def take_long() -> None:
        looking.set()
        told.wait(LIMIT_S)
        whole()

    member._share.look_after = take_long  # type: ignore[method-assign, union-attr]
    member._wake.set()
    assert looking.wait(LIMIT_S)
    stopping = run.aside(member.stop, 100)
    run.until(lambda: member.closed and member._wake.is_set())
    told.set()
    run.until(lambda: not stopping.running)


@pytest.mark.parametrize("silent", [("LeaveGroup",), ("OffsetCommit",), ("Heartbeat", "LeaveGroup", "OffsetCommit", "FindCoordinator")])
def test_stop_at_a_silent_coordinator_is_bounded(
    cluster: MockCluster, connect: Connect, join: Join, run: Runner, silent: tuple[str, ...]
) -> None:
    filled(connect, cluster)
    member = join(of={"offsets_channel_socket_timeout_ms": 1000})
    read_all(member, 40)
    for api in silent:
        cluster.on(api, Drop(before=True), times=None)
    with Clock() as clock:
        member.stop()
    assert clock.seconds < 30, "offsets_channel_socket_timeout_ms, and a moment for its workers"
    assert member.closed


@pytest.mark.parametrize("managed", [False, True], ids=["native", "managed"])
@pytest.mark.parametrize("deaf", [Error(NOT_COORDINATOR), Close(before=True), Close(before=False)], ids=["moved", "unheard", "unanswered"])
def test_who_stops_is_gone_though_its_good_bye_was_not_heard_at_first(
    cluster: MockCluster, connect: Connect, join: Join, run: Runner, deaf: Any, managed: bool
) -> None:
    """Else its partitions would be nobody's until its session ends."""
    filled(connect, cluster)
    if managed:
        client = connect(cluster)
        member = client.topics["t"].get_balanced_consumer("g", managed=True, consumer_timeout_ms=LIMIT_S * 1000)
        member.consume()
    else:
        read_all(member := join(), 40)
    cluster.on("LeaveGroup", deaf)
    member.stop()
    assert is_alone(cluster)


def test_a_member_of_a_coordinators_group_is_gone_too_though_its_good_bye_was_not_heard_at_first(
    cluster: MockCluster, connect: Connect, join: Join
) -> None:
    filled(connect, cluster)
    member = connect(cluster).get_consumer("t", "g", group_protocol="consumer", fetch_wait_max_ms=50)
    read_all(member, 40)
    cluster.on("ConsumerGroupHeartbeat", Error(NOT_COORDINATOR), when=lambda request: request.message.member_epoch < 0)
    member.stop()
    assert is_alone(cluster)


def test_a_client_that_closes_waits_for_a_consumer_that_its_listener_stopped(cluster: MockCluster, connect: Connect, run: Runner) -> None:
    """The listener's stop() returns at once; the connections were closed under what it had begun."""
    client = connect(cluster)

    def on_assigned(consumer: Consumer, partitions: list[TopicPartition]) -> None:
        consumer.stop()
        run.sleep(0.3)

    member = client.get_consumer("t", "g", on_assigned=on_assigned, **QUICK)
    run.until(lambda: member.closed)
    client.close(60)
    assert len(cluster.requests("LeaveGroup")) == 1
    assert is_alone(cluster)


def test_a_client_that_closes_waits_for_a_managed_consumer_that_its_callback_stopped(
    cluster: MockCluster, connect: Connect, run: Runner
) -> None:
    client = connect(cluster)
    stopped: list[Any] = []

    def on_rebalance(consumer: Any, before: Any, after: Any) -> None:
        consumer.stop()
        stopped.append(consumer)
        run.sleep(0.3)

    made: Any = client.topics["t"].get_balanced_consumer("g", managed=True, post_rebalance_callback=on_rebalance, auto_start=False)
    run.aside(made.start)
    run.until(lambda: stopped)
    client.close(60)
    assert len(cluster.requests("LeaveGroup")) == 1
    assert is_alone(cluster)


def test_a_good_bye_that_is_never_heard_does_not_outlive_the_client(cluster: MockCluster, connect: Connect, run: Runner) -> None:
    client = connect(cluster)
    cluster.on("LeaveGroup", Close(before=True), times=None)
    member = client.get_consumer("t", "g", on_assigned=lambda consumer, partitions: consumer.stop(), **QUICK)
    run.until(lambda: cluster.requests("LeaveGroup"))
    client.close()
    assert member.closed
    assert [w for w in client.handler.workers() if w.is_alive()] == []


def test_leaving_the_block_in_order_commits_all_and_by_an_error_what_was_finished(
    cluster: MockCluster, connect: Connect, join: Join, run: Runner
) -> None:
    filled(connect, cluster)
    finished: list[int] = []

    def work() -> None:
        with join(auto_commit_interval_ms=60_000) as member:
            finished.append(len(read_all(member, 1)))
            settle(run, lambda: len(member.assignment()) == 4, member)
            member.seek(FOUR[0], 3)
            run.until(lambda: member.stats()["buffered"])
            run.sleep(0.11)
            assert member.consume_batch(1, 60_000)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        work()
    assert is_alone(cluster)
    then = committed(cluster)
    assert all(offset <= 10 for offset in then.values())
    assert sum(then.values()) <= 40
    with join(auto_commit_interval_ms=60_000) as member:
        rest = 40 - sum(then.values())
        read_all(member, rest)
    assert committed(cluster) == dict.fromkeys(range(4), 10)


def test_leaving_the_block_by_an_error_keeps_what_the_last_call_returned_for_others(
    cluster: MockCluster, connect: Connect, join: Join, run: Runner
) -> None:
    filled(connect, cluster, 10, [0])

    def work() -> None:
        with join(auto_commit_interval_ms=60_000) as member:
            read_all(member, 10)
            fill(connect(cluster), [b"x"] * 5, partition=0)
            run.until(lambda: member.stats()["buffered"] == 5)
            run.sleep(0.11)
            assert len(member.consume_batch(3, 60_000)) == 3
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        work()
    assert committed(cluster)[0] == 10
    with join(auto_commit=False) as member:
        assert read_all(member, 5) == [(0, o) for o in range(10, 15)]
        cluster.rebalance("g")
        run.sleep(0.2)
    assert committed(cluster)[0] == 10, "auto_commit=False commits nothing by itself"


def test_closing_the_client_stops_its_members(cluster: MockCluster, connect: Connect, run: Runner) -> None:
    filled(connect, cluster)
    client = connect(cluster, offsets_channel_socket_timeout_ms=5000)
    member = client.get_consumer("t", "g", **QUICK)
    read_all(member, 40)
    waiting = run.aside(member.consume, 60_000)
    run.sleep(0.05)
    client.close()
    assert isinstance(error_of(waiting.result), ConsumerStoppedException)
    assert committed(cluster) == dict.fromkeys(range(4), 10)
    assert is_alone(cluster)
    assert member.closed


def closing_inside(
    client: KafkaClient, run: Runner, when: str, timeout: float | None = None, **options: Any
) -> tuple[Consumer, list[float]]:
    """A member whose listener closes the client, and how long that took, when it has."""
    took: list[float] = []

    def closes(consumer: Any, partitions: Any) -> None:
        began = now()
        client.close(timeout)
        took.append(now() - began)
        run.sleep(0.2)  # what its close() began has ended before this returns

    return client.get_consumer("t", "g", **{f"on_{when}": closes}, **options), took


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize("when", ["assigned", "revoked"])
def test_a_listener_that_closes_the_client_waits_for_no_worker_and_leaves_the_group(
    make_cluster: Callable[..., MockCluster], connect: Connect, run: Runner, when: str, protocol: str
) -> None:
    """Its worker would say good-bye when the listener has returned: the connections are closed by then, and the next member waited for a session."""
    cluster = make_cluster(1, {"t": 4}, consumer_heartbeat_interval_ms=100, consumer_session_timeout_ms=100_000)
    client = connect(cluster)
    options = (
        {**QUICK, "session_timeout_ms": 100_000, "assignors": ["range"]}
        if protocol == "classic"
        else {"group_protocol": protocol, "fetch_wait_max_ms": 50}
    )
    member, took = closing_inside(client, run, when, **options)

    def polled() -> bool:
        with contextlib.suppress(ConsumerStoppedException):
            member.consume(20)
        return bool(took)

    other = None
    if when == "revoked":
        run.until(lambda: member.consume(20) is None and bool(member.assignment()))
        other = connect(cluster).get_consumer("t", "g", **options)  # it gets half of them
    run.until(lambda: polled() if other is None else (polled(), other.consume(20))[0])
    assert took[0] < 30, "it waited for the member's worker, which waits for the listener"
    assert is_alone(cluster, 0 if other is None else 1)
    assert member.closed
    heir = other or connect(cluster).get_consumer("t", "g", **options)
    settle(run, lambda: len(heir.assignment()) == 4, heir)
    run.until(lambda: not any(w.is_alive() for w in client.handler.workers()))
    heir.stop()


@pytest.mark.parametrize("timeout", [None, 0.3, 0])
def test_a_listener_that_closes_the_client_waits_shortly_for_a_silent_coordinator(
    cluster: MockCluster, connect: Connect, run: Runner, timeout: float | None
) -> None:
    client = connect(cluster)
    cluster.on("LeaveGroup", Drop(), times=None)
    member, took = closing_inside(client, run, "assigned", timeout, **QUICK)
    with contextlib.suppress(ConsumerStoppedException):
        run.until(lambda: member.consume(20) is None and bool(took))
    run.until(lambda: bool(took))
    assert took[0] < 30
    if timeout != 0:  # else it may still wait, behind what another thread was sending, as the connection closes
        run.until(lambda: len(cluster.requests("LeaveGroup")) == 1)
    run.until(lambda: not any(w.is_alive() for w in client.handler.workers()))


def test_a_callback_of_a_managed_consumer_that_closes_the_client_leaves_the_group(
    cluster: MockCluster, connect: Connect, run: Runner
) -> None:
    client = connect(cluster)
    closed: list[int] = []

    def on_rebalance(consumer: Any, before: Any, after: Any) -> None:
        client.close()
        closed.append(len(cluster.requests("LeaveGroup")))

    made: Any = client.topics["t"].get_balanced_consumer("g", managed=True, post_rebalance_callback=on_rebalance, auto_start=False)
    run.aside(made.start)
    run.until(lambda: closed)
    assert closed == [1]
    assert is_alone(cluster)


def test_a_member_that_is_dropped_leaves_and_its_workers_end(cluster: MockCluster, connect: Connect, run: Runner) -> None:
    filled(connect, cluster)
    client = connect(cluster)
    before = len([w for w in client.handler.workers() if w.is_alive()])
    member = client.get_consumer("t", "g", on_assigned=lambda consumer, partitions: None, **QUICK)
    assert len(read_all(member, 40)) == 40
    gone = weakref.ref(member)
    del member
    gc.collect()
    run.until(lambda: gone() is None)
    run.until(lambda: is_alone(cluster))
    run.until(lambda: len([w for w in client.handler.workers() if (w.is_alive() and "consumer" in w.name) or "group" in w.name]) <= before)


@pytest.mark.parametrize("handler", ["threading", "gevent"])
def test_a_forked_child_neither_consumes_nor_leaves(handler: str) -> None:
    lines = script(
        """
    with MockCluster(1, {"t": 1}) as cluster, KafkaClient(cluster.bootstrap, handler=HANDLER) as client:
        client.get_producer().produce("t", b"x", partition=0).result(60)
        member = client.get_consumer("t", "g", heartbeat_interval_ms=50)
        while member.consume(100) is None:
            pass

        def child():
            begun = now()
            told = []
            for call in (member.consume, member.commit):
                try:
                    call()
                    told.append("nothing")
                except ForkedClientError:
                    told.append("forked")
            member.stop()
            return " ".join(told) + (" quick" if now() - begun < 30 else " slow")

        print(in_child(child))
        print(len(cluster.group("g").members), cluster.count("LeaveGroup"))
        before = cluster.count("Heartbeat")
        while cluster.count("Heartbeat") == before:
            member.consume(50)
        print("beats")
        member.stop()
        print(len(cluster.group("g").members), cluster.committed("g")["t", 0].offset)
    """,
        handler,
    )
    assert lines == ["forked forked quick", "1 0", "beats", "0 1"]


# -- cut off ---------------------------------------------------------------------------------------------------------------------
def test_calls_that_are_cut_off_skip_nothing_and_leave_no_turn_taken(cluster: MockCluster, connect: Connect, run: Runner) -> None:
    """gevent.Timeout and kill() anywhere, while the group rebalances."""
    if not run.gevent:
        pytest.skip("only greenlets can be killed")
    client = connect(cluster)
    for p in range(4):
        fill(client, [b"x"] * 300, partition=p, batches=30)
    cluster.on("OffsetCommit", Delay(0.003), times=None)
    cluster.on("Fetch", Delay(0.01), times=None)
    member = client.get_consumer("t", "g", **{**QUICK, "auto_commit_interval_ms": 10, "queued_max_messages": 10})
    chance = Random(5)
    got: list[tuple[int, int]] = []
    cut = killed = 0
    deadline = now() + LIMIT_S
    while len(got) < 1200 or killed <= 10 or not cut:
        assert now() < deadline, (len(got), str(member.explain()))
        batch: list[Any] | None = None
        with gevent.Timeout(chance.random() * 0.004, False):
            batch = member.consume_batch(chance.choice([1, 5, 10]), 200)
        cut += batch is None
        got += places(batch or [])
        victim = gevent.spawn(member.commit)
        gevent.sleep(chance.random() * 0.004)
        killed += not victim.dead
        victim.kill()
        if chance.random() < 0.02:
            cluster.rebalance("g")
    assert sorted(got) == [(p, o) for p in range(4) for o in range(300)]
    cluster.clear_script()
    with Clock() as clock:
        member.commit(timeout=60)
        member.stop()
    assert clock.seconds < 30, "no turn stays taken, no commit stays under way"
    assert committed(cluster) == dict.fromkeys(range(4), 300)
    assert goes_back(cluster) == []


def test_members_that_all_stop_at_once_commit_all_that_they_had(cluster: MockCluster, connect: Connect, join: Join, run: Runner) -> None:
    for n in range(1, 6):
        members = [join(of={"offsets_channel_socket_timeout_ms": 10_000}) for _ in range(3)]
        settle(run, lambda: owns(cluster, 3), *members)
        filled(connect, cluster, 5)
        read_all(members[0], 20, *members[1:])
        for stopping in [run.aside(member.stop) for member in members]:
            stopping.result()
        assert committed(cluster) == dict.fromkeys(range(4), 5 * n), "also whoever leaves while the leaving of others has begun a rebalance"


def test_who_stops_in_the_middle_of_a_rebalance_commits_when_that_is_over(
    cluster: MockCluster, connect: Connect, join: Join, run: Runner
) -> None:
    slow, leaving = members = [join(of={"offsets_channel_socket_timeout_ms": 10_000}, auto_commit_interval_ms=60_000) for _ in range(2)]
    settle(run, lambda: owns(cluster, 2), *members)
    filled(connect, cluster, 5)
    read_all(slow, 20, leaving)
    mine = min(leaving.assignment()).partition
    name = slow.group_metadata().member_id
    # The join of one takes so long that the other one is parked when it stops, and gets its answer before its commit arrives.
    cluster.on("JoinGroup", joins := Held(), when=lambda request: request.message.member_id == name)
    cluster.on("OffsetCommit", Delay(1.0))
    before = cluster.count("JoinGroup")
    cluster.rebalance("g")
    run.until(lambda: cluster.count("JoinGroup") == before + 2 and leaving.stats()["group"]["state"] == "joining")
    stopping = run.aside(leaving.stop)
    run.until(lambda: leaving.closed)
    joins.released = True
    stopping.result()
    assert committed(cluster)[mine] == 5
