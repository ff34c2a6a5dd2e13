"""KafkaConsumer as the member of a group: shares, commits, listeners, and the options of members (behaviours 225, 228, 231, 255-263, 281-286, 299-301)."""

from __future__ import annotations

import gc
import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest

from gkafka.core.groupstate import GroupOptions
from gkafka.kafka import ConsumerRebalanceListener, KafkaConsumer, OffsetAndMetadata, TopicPartition
from gkafka.kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from gkafka.kafka.coordinator.assignors.sticky import StickyPartitionAssignor
from gkafka.kafka.errors import (
    CommitFailedError,
    IllegalStateError,
    KafkaConfigurationError,
    KafkaError,
    NoOffsetForPartitionError,
    OffsetMetadataTooLargeError,
    OffsetOutOfRangeError,
)
from gkafka.kafka.future import Future
from gkafka.kafka.protocol.commit import OffsetCommitResponse
from gkafka.testing import Error, MockCluster
from tests.kafka.conftest import Make
from tests.kafka.consuming import FIRST, GROUP, QUICK, committed, consume, held, joined, last, offsets, put, until
from tests.kit.clock import now
from tests.public.aids import Runner

FOUR = [TopicPartition("t", n) for n in range(4)]


class Told(ConsumerRebalanceListener):
    """What a listener heard, in order; act: what it does besides."""

    def __init__(self, act: Any = None) -> None:
        self.heard: list[tuple[str, list[int]]] = []
        self.act = act

    def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        assert isinstance(revoked, set)
        self.heard.append(("revoked", sorted(tp.partition for tp in revoked)))
        if self.act is not None:
            self.act("revoked", revoked)

    def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        assert isinstance(assigned, set)
        self.heard.append(("assigned", sorted(tp.partition for tp in assigned)))
        if self.act is not None:
            self.act("assigned", assigned)


def shared(handler: str, *members: KafkaConsumer) -> list[list[int]]:
    """The shares of members, once together they have four partitions and each has some."""

    def settled() -> bool:
        for member in members:
            assert member.poll(10) == {}
        sizes = [len(member.assignment()) for member in members]
        return sum(sizes) == 4 and all(sizes)

    until(handler, settled)
    return [sorted(tp.partition for tp in member.assignment()) for member in members]


# -- groups ----------------------------------------------------------------------------------------------------------------
def test_group_id_joins_and_shares(consumer: Make, make_cluster: Make, handler: str) -> None:
    """Behaviours 225, 231, 244, 278, 299."""
    cluster = make_cluster(topics={"t": 4})
    one = consumer(cluster, "t", **GROUP)
    assert one.assignment() == set() or one.assignment() == set(FOUR), "empty before the first assignment"
    joined(one, *FOUR)
    two = consumer(cluster, "t", **GROUP)
    assert sorted(shared(handler, one, two)) == [[0, 1], [2, 3]]
    assert len(cluster.group("g").members) == 2
    two.close()
    assert shared(handler, one) == [[0, 1, 2, 3]]
    cluster.add_partitions("t", 5)
    one._client.update_cluster()
    until(handler, lambda: one.poll(10) == {} and len(one.assignment()) == 5)


def test_a_group_commits_what_its_member_consumed_and_the_next_one_goes_on(consumer: Make, cluster: MockCluster) -> None:
    """Behaviours 225, 283, 284."""
    put(cluster, b"0", b"1", b"2")
    first = consumer(cluster, "t", **GROUP)
    consume(first, 2)
    first.close()
    assert committed(cluster) == {0: 2}
    assert offsets(consume(consumer(cluster, "t", **GROUP), 1)) == [(0, 2)]


def test_group_instance_id_makes_a_static_member(consumer: Make, cluster: MockCluster) -> None:
    joined(consumer(cluster, "t", group_instance_id="one", **GROUP))
    (member,) = cluster.group("g").members.values()
    assert member.instance == "one"
    with pytest.raises(KafkaError, match="group_instance_id"):
        consumer(cluster, "t", group_instance_id="one")


def test_options_of_members_arrive_at_the_coordinator(consumer: Make, make_cluster: Make) -> None:
    """Behaviours 259, 261, 262."""
    cluster = make_cluster()
    joined(consumer(cluster, "t", group_id="g"))
    join = last(cluster, "JoinGroup").message
    assert (join.session_timeout_ms, join.rebalance_timeout_ms) == (10000, 300000)
    assert [protocol.name for protocol in join.protocols] == ["range", "roundrobin"]
    assert KafkaConsumer.DEFAULT_CONFIG["heartbeat_interval_ms"] == 3000
    cluster = make_cluster()
    joined(consumer(cluster, "t", group_id="g", session_timeout_ms=7000, max_poll_interval_ms=8000, heartbeat_interval_ms=50))
    join = last(cluster, "JoinGroup").message
    assert (join.session_timeout_ms, join.rebalance_timeout_ms) == (7000, 8000)


def test_partition_assignment_strategy_is_what_the_member_offers(consumer: Make, make_cluster: Make) -> None:
    """Behaviour 259."""
    for strategy, names in (
        ([RoundRobinPartitionAssignor], ["roundrobin"]),
        ((StickyPartitionAssignor, RoundRobinPartitionAssignor()), ["sticky", "roundrobin"]),
    ):
        cluster = make_cluster()
        joined(consumer(cluster, "t", **GROUP, partition_assignment_strategy=strategy))
        assert [protocol.name for protocol in last(cluster, "JoinGroup").message.protocols] == names
    for strategy in ([], 5, ["no such assignor"]):
        with pytest.raises(KafkaError, match="assign"):
            consumer(make_cluster(), "t", **GROUP, partition_assignment_strategy=strategy)


@pytest.mark.parametrize("pause_ms", [50, 300])
def test_heartbeat_interval_ms_is_the_time_between_heartbeats(consumer: Make, cluster: MockCluster, handler: str, pause_ms: int) -> None:
    """Behaviour 263."""
    joined(consumer(cluster, "t", **{**GROUP, "heartbeat_interval_ms": pause_ms}))
    until(handler, lambda: cluster.count("Heartbeat") >= 5)
    times = [r.time for r in cluster.requests("Heartbeat")]
    assert pause_ms / 2 <= (times[4] - times[0]) * 1000 / 4
    assert times[4] - times[0] < 10, "of the default it would be 12 s"


def test_heartbeat_interval_ms_has_to_be_lower_than_session_timeout_ms(consumer: Make, cluster: MockCluster) -> None:
    """Behaviour 263."""
    for topics in ([], ["t"]):
        with pytest.raises(KafkaError, match="heartbeat_interval_ms"):
            consumer(cluster, *topics, group_id="g", heartbeat_interval_ms=6000, session_timeout_ms=6000)
    consumer(cluster, "t", group_id="g", session_timeout_ms=6000)


def test_heartbeat_interval_ms_over_a_third_of_the_session_is_taken_as_it_is(
    consumer: Make, cluster: MockCluster, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behaviour 263: "must be set lower than session_timeout_ms, but typically should be set no higher than 1/3"."""
    made: list[GroupOptions] = []

    def make(*args: Any, **options: Any) -> GroupOptions:
        made.append(GroupOptions(*args, **options))
        return made[-1]

    monkeypatch.setattr("gkafka.sharing.GroupOptions", make)
    joined(consumer(cluster, "t", **{**GROUP, "session_timeout_ms": 9000, "heartbeat_interval_ms": 6000}))
    assert [(one.session_timeout_s, one.heartbeat_interval_s) for one in made] == [(9, 6)]
    assert [r.levelname for r in caplog.records if "heartbeat_interval_ms=6000 with session_timeout_ms=9000" in r.getMessage()] == [
        "WARNING"
    ]


def test_max_poll_interval_ms_without_a_poll_costs_the_membership(consumer: Make, cluster: MockCluster, handler: str) -> None:
    """Behaviour 261."""
    reading = joined(consumer(cluster, "t", **{**GROUP, "session_timeout_ms": 300_000}, max_poll_interval_ms=900))
    until(handler, lambda: not cluster.group("g").members)
    assert cluster.count("Heartbeat") > 1, "the session would have held"
    until(handler, lambda: reading.poll(20) == {} and len(cluster.group("g").members) == 1)
    joined(reading, FIRST)


# -- commits ---------------------------------------------------------------------------------------------------------------
def test_enable_auto_commit_commits_in_the_background_and_at_the_end(consumer: Make, cluster: MockCluster, handler: str) -> None:
    """Behaviours 228, 255, 281."""
    assert KafkaConsumer.DEFAULT_CONFIG["enable_auto_commit"] is True
    put(cluster, b"0", b"1", b"2", b"3")
    reading = consumer(cluster, "t", **{**GROUP, "auto_commit_interval_ms": 50})
    consume(reading, 2)
    until(handler, lambda: reading.poll(10, max_records=1) == {} or committed(cluster) != {})
    until(handler, lambda: reading.poll(10) == {} and committed(cluster) == {0: 4})
    put(cluster, b"4", b"5")
    consume(reading, 1)
    reading.close()
    assert committed(cluster) == {0: 5}, "close() says that all of it is finished"
    never = consumer(cluster, "t", **{**GROUP, "group_id": "never", "auto_commit_interval_ms": 50}, enable_auto_commit=False)
    consume(never, 6)
    never.poll(200)
    never.close()
    assert committed(cluster, "never") == {}


def test_close_without_autocommit_leaves_what_is_pending(consumer: Make, cluster: MockCluster) -> None:
    """Behaviour 281."""
    put(cluster, b"0", b"1")
    reading = consumer(cluster, "t", **GROUP)
    consume(reading, 2)
    reading.close(autocommit=False)
    assert not any(committed(cluster).values()), "where it began may be committed, as soon as poll() was called twice"
    assert cluster.count("LeaveGroup") == 1
    again = consumer(cluster, "t", **GROUP)
    assert offsets(consume(again, 2)) == [(0, 0), (0, 1)]
    again.close()
    again.close()
    assert committed(cluster) == {0: 2}


def test_enable_auto_commit_may_be_0_or_1_and_the_interval_0(consumer: Make, cluster: MockCluster, handler: str) -> None:
    """As 1.4 takes them: an interval of nothing commits as soon as it can."""
    put(cluster, b"0", b"1")
    never = consumer(cluster, "t", **{**GROUP, "group_id": "never", "auto_commit_interval_ms": 0}, enable_auto_commit=0)
    consume(never, 2)
    never.close()
    reading = consumer(cluster, "t", **{**GROUP, "auto_commit_interval_ms": 0}, enable_auto_commit=1)
    consume(reading, 2)
    until(handler, lambda: reading.poll(10) == {} and committed(cluster) == {0: 2})
    assert committed(cluster, "never") == {}


def test_auto_commit_interval_ms_is_the_time_between_commits(consumer: Make, cluster: MockCluster, handler: str) -> None:
    """Behaviour 255."""
    assert KafkaConsumer.DEFAULT_CONFIG["auto_commit_interval_ms"] == 5000
    reading = consumer(cluster, "t", **{**GROUP, "auto_commit_interval_ms": 300})

    def more() -> bool:
        put(cluster, b"x")
        reading.poll(20)
        return cluster.count("OffsetCommit") >= 4

    until(handler, more)
    times = [r.time for r in cluster.requests("OffsetCommit")]
    assert times[3] - times[0] >= 0.45
    assert times[3] - times[0] < 12, "of the default it would be 15 s"


def test_default_offset_commit_callback_is_told_of_commits(consumer: Make, cluster: MockCluster, handler: str) -> None:
    """Behaviour 256."""
    told: list[Any] = []
    put(cluster, b"0", b"1")
    options: dict[str, Any] = {**GROUP, "auto_commit_interval_ms": 50}
    reading = consumer(cluster, "t", **options, default_offset_commit_callback=lambda offsets, response: told.append((offsets, response)))
    consume(reading, 2)
    until(handler, lambda: reading.poll(10) == {} and told and told[-1][0] == {FIRST: OffsetAndMetadata(2, "")})
    assert told[-1] == ({FIRST: OffsetAndMetadata(2, "")}, OffsetCommitResponse([("t", [(0, 0)])]))
    del told[:]
    reading.commit_async({FIRST: OffsetAndMetadata(1, "")}).get(60)
    with pytest.raises(OffsetMetadataTooLargeError):
        reading.commit_async({FIRST: OffsetAndMetadata(0, "x" * 5000)}).get(60)
    assert Runner(handler).stays(lambda: committed(cluster) == {0: 1}), "nothing of what was refused is committed in the background"
    assert [(offsets[FIRST].offset, type(response)) for offsets, response in told] == [
        (1, OffsetCommitResponse),
        (0, OffsetMetadataTooLargeError),
    ]
    with pytest.raises(KafkaError, match="default_offset_commit_callback"):
        consumer(cluster, default_offset_commit_callback=5)


def test_commit_commits_what_was_consumed_and_waits(consumer: Make, make_cluster: Make) -> None:
    """Behaviours 282, 283."""
    cluster = make_cluster(topics={"t": 2})
    put(cluster, b"0", b"1", b"2")
    put(cluster, b"0", partition=1)
    reading = consumer(cluster, "t", **GROUP, enable_auto_commit=False)
    read = consume(reading, 4)
    assert reading.commit() is None
    assert committed(cluster) == {0: 3, 1: 1}
    assert max(r.offset for r in read if r.partition == 0) + 1 == 3, "the next one to consume"
    reading.commit({FIRST: OffsetAndMetadata(1, "why")})
    assert committed(cluster) == {0: 1, 1: 1}
    assert reading.committed(FIRST, metadata=True) == OffsetAndMetadata(1, "why")


@pytest.mark.parametrize("how", ["topics", "pattern"])
def test_a_member_may_commit_of_topics_that_it_does_not_subscribe_to(
    consumer: Make, make_cluster: Callable[..., MockCluster], how: str
) -> None:
    """As in 1.4; in the same call as of its own."""
    cluster = make_cluster(topics={"t": 2, "other": 1})
    other = TopicPartition("other", 0)
    reading = consumer(cluster, **GROUP, enable_auto_commit=False)
    reading.subscribe(**{how: ["t"] if how == "topics" else "t"})
    joined(reading, FIRST, TopicPartition("t", 1))
    reading.commit({other: OffsetAndMetadata(3, "a note"), FIRST: OffsetAndMetadata(0, "")})
    assert committed(cluster, topic="other") == {0: 3}
    assert committed(cluster) == {0: 0}
    assert reading.committed(other, metadata=True) == OffsetAndMetadata(3, "a note")
    reading.commit_async({other: OffsetAndMetadata(4, "")}).get(60)
    assert committed(cluster, topic="other") == {0: 4}
    cluster.on("OffsetCommit", Error(22), times=None)
    with pytest.raises(CommitFailedError, match="no place in the group now"):
        reading.commit({other: OffsetAndMetadata(5, "")})


def test_a_member_may_not_commit_of_a_partition_that_another_has(
    consumer: Make, make_cluster: Callable[..., MockCluster], handler: str
) -> None:
    cluster = make_cluster(topics={"t": 2})
    one, two = (consumer(cluster, "t", **GROUP, enable_auto_commit=False) for _ in range(2))
    until(handler, lambda: not one.poll(10) and not two.poll(10) and len(one.assignment()) == len(two.assignment()) == 1)
    (theirs,) = two.assignment()
    with pytest.raises(CommitFailedError, match=r"not this member's any more, or not yet"):
        one.commit({theirs: OffsetAndMetadata(1, "")})
    assert committed(cluster) == {}


def test_commit_raises_what_cannot_be_mended(consumer: Make, cluster: MockCluster) -> None:
    """Behaviour 282."""
    reading = joined(consumer(cluster, "t", **GROUP, enable_auto_commit=False))
    cluster.on("OffsetCommit", Error(14))  # the coordinator is loading: tried again
    reading.commit({FIRST: OffsetAndMetadata(0, "")})
    cluster.on("OffsetCommit", Error(30))
    with pytest.raises(KafkaError) as caught:
        reading.commit({FIRST: OffsetAndMetadata(0, "")})
    assert not isinstance(caught.value, CommitFailedError)
    with pytest.raises(KafkaError):
        reading.commit({TopicPartition("other", 0): OffsetAndMetadata(0, "")}, timeout_ms=500)


def test_commit_async_does_not_block_and_tells_the_callback_and_the_future(consumer: Make, cluster: MockCluster, handler: str) -> None:
    """Behaviour 285."""
    put(cluster, b"0", b"1")
    reading = consumer(cluster, "t", **GROUP, enable_auto_commit=False)
    consume(reading, 2)
    told: list[Any] = []
    with held(cluster, "OffsetCommit"):
        future = reading.commit_async(callback=lambda offsets, response: told.append((offsets, response)))
        assert isinstance(future, Future)
        assert not future.is_done
    response = future.get(timeout=60)
    assert told == [({FIRST: OffsetAndMetadata(2, "")}, response)]
    assert committed(cluster) == {0: 2}
    cluster.on("OffsetCommit", Error(30))
    failed = reading.commit_async({FIRST: OffsetAndMetadata(1, "")}, lambda offsets, response: told.append(response))
    until(handler, lambda: failed.is_done)
    assert failed.failed()
    assert told[-1] is failed.exception
    cluster.on("OffsetCommit", Error(30))
    reading.commit_async({FIRST: OffsetAndMetadata(1, "")})  # dropped: nobody is told
    reading.close()


def test_commits_in_the_background_are_made_in_the_order_of_the_calls_and_before_close(consumer: Make, cluster: MockCluster) -> None:
    """Behaviour 285."""
    reading = joined(consumer(cluster, "t", **GROUP, enable_auto_commit=False))
    for offset in range(20):
        reading.commit_async({FIRST: OffsetAndMetadata(offset, "")})
    reading.close()
    assert committed(cluster) == {0: 19}


def test_a_commit_in_the_background_does_not_take_a_later_one_back(consumer: Make, cluster: MockCluster) -> None:
    """It has its place from its call on, also while its worker has not come to it."""
    reading = joined(consumer(cluster, "t", **GROUP, enable_auto_commit=False))
    gate = threading.Event()
    told: list[Any] = []

    def first(offsets: Any, response: Any) -> None:
        gate.wait(60)
        told.append(response)

    try:
        reading.commit_async({FIRST: OffsetAndMetadata(1, "")}, first)
        reading.commit_async({FIRST: OffsetAndMetadata(2, "")}, lambda _, response: told.append(response))
        reading.commit({FIRST: OffsetAndMetadata(3, "")})
        assert committed(cluster) == {0: 3}
    finally:
        gate.set()
    reading.close()
    assert (committed(cluster), [type(each).__name__ for each in told]) == ({0: 3}, ["OffsetCommitResponse"] * 2)


def test_committed_is_the_offset_or_none(consumer: Make, cluster: MockCluster) -> None:
    """Behaviour 286."""
    put(cluster, b"0")
    reading = consumer(cluster, group_id="g", enable_auto_commit=False, **QUICK)
    assert reading.committed(FIRST) is None
    reading.assign([FIRST])
    consume(reading, 1)
    reading.commit()
    assert reading.committed(FIRST) == 1
    assert reading.committed(FIRST, metadata=True) == OffsetAndMetadata(1, "")


def test_an_assigned_partition_starts_where_its_group_has_committed(consumer: Make, cluster: MockCluster) -> None:
    """Behaviours 284, 294."""
    put(cluster, b"0", b"1", b"2")
    reading = consumer(cluster, group_id="g", enable_auto_commit=False, **QUICK)
    reading.assign([FIRST])
    reading.commit({FIRST: OffsetAndMetadata(2, "")})
    reading.assign([FIRST])
    assert offsets(consume(reading, 1)) == [(0, 2)]


@pytest.mark.parametrize("call", ["commit", "commit_async", "committed"])
def test_commits_need_a_group(consumer: Make, cluster: MockCluster, call: str) -> None:
    """Behaviour 244."""
    reading = consumer(cluster, "t", **QUICK)
    with pytest.raises(IllegalStateError, match="group_id"):
        getattr(reading, call)(*([FIRST] if call == "committed" else []))


def test_a_callback_of_a_commit_may_commit_and_close(consumer: Make, cluster: MockCluster, handler: str) -> None:
    """Behaviour 285."""
    reading = joined(consumer(cluster, "t", **GROUP, enable_auto_commit=False))
    told: list[str] = []

    def close(offsets: Any, response: Any) -> None:
        reading.close(timeout_ms=120_000)  # which a close() that waits for this callback would take
        told.append("closed")

    def commit(offsets: Any, response: Any) -> None:
        reading.commit_async({FIRST: OffsetAndMetadata(2, "")}, close)

    reading.commit_async({FIRST: OffsetAndMetadata(1, "")}, commit)
    until(handler, lambda: told)
    assert committed(cluster) == {0: 2}
    until(handler, lambda: not cluster.group("g").members)


def test_a_callback_of_a_commit_that_raises_is_logged(consumer: Make, cluster: MockCluster, caplog: pytest.LogCaptureFixture) -> None:
    """Behaviour 285."""
    reading = joined(consumer(cluster, "t", **GROUP, enable_auto_commit=False))
    with caplog.at_level(logging.ERROR, "gkafka"):
        future = reading.commit_async({FIRST: OffsetAndMetadata(1, "")}, lambda: None)
        assert isinstance(future.get(60), OffsetCommitResponse)
    assert "a callback of a commit failed" in caplog.text


# -- listeners -------------------------------------------------------------------------------------------------------------
def test_a_listener_hears_of_revoked_partitions_and_then_of_assigned_ones(consumer: Make, make_cluster: Make, handler: str) -> None:
    """Behaviour 300."""
    cluster = make_cluster(topics={"t": 4, "u": 4})
    one, told = consumer(cluster, **GROUP), Told()
    one.subscribe(["t"], listener=told)
    joined(one, *FOUR)
    until(handler, lambda: told.heard[-1:] == [("assigned", [0, 1, 2, 3])])
    assert told.heard == [("revoked", []), ("assigned", [0, 1, 2, 3])], "before and after each rebalance, the first one too"
    before = len(told.heard)
    two = consumer(cluster, "t", **GROUP)
    first, second = shared(handler, one, two)
    until(handler, lambda: len(told.heard) >= before + 2)
    assert told.heard[before:][:2] == [("revoked", [0, 1, 2, 3]), ("assigned", first)]
    assert sorted(first + second) == [0, 1, 2, 3]
    other = Told()
    before = len(told.heard)
    one.subscribe(["u"], listener=other)
    joined(one, *[TopicPartition("u", n) for n in range(4)])
    until(handler, lambda: other.heard[-1:] == [("assigned", [0, 1, 2, 3])])
    assert told.heard[before:] == [("revoked", first)]
    assert other.heard == [("revoked", []), ("assigned", [0, 1, 2, 3])]
    one.unsubscribe()
    assert len(other.heard) == 2, "that is no rebalance"


def test_with_the_default_assignors_a_rebalance_has_each_member_begin_where_is_committed(
    consumer: Make, cluster: MockCluster, handler: str
) -> None:
    """As in 1.4, whose assignors are eager: a sole member, too, which keeps what it had, reads again what it has not committed."""
    put(cluster, b"0", b"1", b"2")
    reading = consumer(cluster, "t", **GROUP, enable_auto_commit=False)
    consume(reading, 3)
    reading.commit({FIRST: OffsetAndMetadata(1, "")})
    before = cluster.group("g").generation
    cluster.rebalance("g")
    assert offsets(consume(reading, 2)) == [(0, 1), (0, 2)]
    assert cluster.group("g").generation > before


def test_a_member_without_partitions_hears_of_each_rebalance(consumer: Make, cluster: MockCluster, handler: str) -> None:
    """Behaviour 300: the listener "will be called before and after each rebalance operation"."""
    one = consumer(cluster, "t", **GROUP)
    joined(one)
    two, told = consumer(cluster, **GROUP), Told()
    two.subscribe(["t"], listener=told)

    def rebalances() -> int:
        one.poll(10)
        two.poll(10)
        return sum(what == "assigned" for what, _ in told.heard)

    until(handler, lambda: rebalances() == 1)
    three = consumer(cluster, "t", **GROUP)
    until(handler, lambda: three.poll(10) == {} and rebalances() >= 2)
    heard = [what for what, _ in told.heard]
    assert heard == (["revoked", "assigned"] * len(heard))[: len(heard)]


def test_a_cooperative_member_hears_only_of_what_it_gives_up(consumer: Make, cluster: MockCluster, handler: str) -> None:
    """KIP-429, as kafka-python 3."""
    one, told = consumer(cluster, **GROUP, partition_assignment_strategy=["cooperative-sticky"]), Told()
    one.subscribe(["t"], listener=told)
    joined(one)
    until(handler, lambda: told.heard)
    assert told.heard == [("assigned", [0])]


@pytest.mark.parametrize("value", ["none", "anything"])
def test_a_member_without_a_place_is_told_as_after_assign(consumer: Make, make_cluster: Make, handler: str, value: str) -> None:
    """Behaviour 254: "any other value will raise the exception", of a group that has committed nothing."""
    cluster = make_cluster(topics={"t": 1})
    one = consumer(cluster, "t", **{**GROUP, "auto_offset_reset": value})
    told: list[Exception] = []

    def asked() -> bool:
        try:
            one.poll(100)
        except NoOffsetForPartitionError as exc:
            told.append(exc)
        return bool(told)

    until(handler, asked)
    assert f"auto_offset_reset={value!r}: seek() first" in str(told[0])


def test_a_member_is_told_of_places_as_long_as_they_are_missing_and_no_longer(
    consumer: Make, make_cluster: Make, handler: str, caplog: pytest.LogCaptureFixture
) -> None:
    """poll() raised each of the errors that had piled up, behind the seek() that had settled them; position() waited for 40 s."""
    cluster = make_cluster(topics={"t": 3})
    partitions = [TopicPartition("t", p) for p in range(3)]
    one = consumer(cluster, "t", **{**GROUP, "auto_offset_reset": "none"})
    until(handler, lambda: one.assignment() == set(partitions))
    Runner(handler).sleep(2.5)  # the member looks for places once a second
    for tp in partitions:
        begun = now()
        with pytest.raises(NoOffsetForPartitionError, match=f"t-{tp.partition}: .*seek"):
            one.position(tp)
        assert now() - begun < 30
    for tp in partitions:
        with pytest.raises(NoOffsetForPartitionError):
            one.poll(100)
        one.seek(tp, 0)
    put(cluster, b"1")
    assert [record.value for record in consume(one, 1)] == [b"1"]
    assert one.poll(100) == {}
    assert sum("cannot be consumed yet" in record.message for record in caplog.records) <= len(partitions)


def test_a_listener_may_place_what_has_no_place(consumer: Make, make_cluster: Make, handler: str) -> None:
    """As 1.4's programs do."""
    cluster = make_cluster(topics={"t": 2})
    put(cluster, b"1", b"2")

    class Placing(ConsumerRebalanceListener):
        def on_partitions_revoked(self, revoked: Any) -> None:
            pass

        def on_partitions_assigned(self, assigned: Any) -> None:
            for tp in assigned:
                try:
                    one.position(tp)
                except NoOffsetForPartitionError:
                    one.seek(tp, 0)

    one = consumer(cluster, **{**GROUP, "auto_offset_reset": "none"})
    one.subscribe(["t"], listener=Placing())
    assert [record.value for record in consume(one, 2)] == [b"1", b"2"]


def test_an_offset_out_of_range_is_told_as_long_as_it_stands(consumer: Make, cluster: MockCluster) -> None:
    """Once, and then the topic seemed to be empty."""
    put(cluster, b"1")
    one = consumer(cluster, **{**QUICK, "auto_offset_reset": "none"}, consumer_timeout_ms=3000)
    one.assign([FIRST])
    one.seek(FIRST, 99)
    for ask in (lambda: one.poll(60_000), lambda: next(one), lambda: one.poll(500), lambda: one.poll(0)):
        with pytest.raises(OffsetOutOfRangeError):
            ask()
    one.seek(FIRST, 0)
    assert [record.value for record in consume(one, 1)] == [b"1"]
    assert one.poll(100) == {}


@pytest.mark.parametrize("value", ["none", "anything"])
@pytest.mark.parametrize("given", [{"topics": ["t"]}, {"pattern": "t.*"}], ids=["topics", "pattern"])
def test_topics_without_a_group_wait_for_seek_where_nothing_says_where_to_begin(
    consumer: Make, make_cluster: Make, handler: str, value: str, given: dict[str, Any]
) -> None:
    """Behaviour 254: "any other value will raise the exception": by poll(), as long as no place is given."""
    cluster = make_cluster(topics={"t": 2})
    put(cluster, *(b"%d" % n for n in range(5)))
    one = consumer(cluster, **{**QUICK, "auto_offset_reset": value})
    one.subscribe(**given)
    assert one.assignment() == {FIRST, TopicPartition("t", 1)}
    assert one.paused() == set()
    for ask in (one.poll, lambda: next(one), lambda: one.position(FIRST), one.poll):
        with pytest.raises(NoOffsetForPartitionError, match=r"t-0: .*seek\(\) first"):
            ask()
    one.seek(FIRST, 3)
    with pytest.raises(NoOffsetForPartitionError, match="t-1"):
        one.poll(300)
    one.seek_to_beginning(TopicPartition("t", 1))
    assert offsets(consume(one, 2)) == [(0, 3), (0, 4)]
    cluster.add_partitions("t", 3)

    def asked() -> str:
        try:
            one.poll(50)
        except NoOffsetForPartitionError as exc:
            return str(exc)
        return ""

    one._client.cluster.update()
    assert "t-2" in until(handler, asked)


def test_only_a_place_that_is_missing_is_told_as_that(consumer: Make, make_cluster: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    one = consumer(make_cluster(topics={"t": 1}), group_id="g", auto_offset_reset="none")
    one.assign([FIRST])
    one.seek(FIRST, 0)

    def fail(*_: object) -> object:
        raise KafkaConfigurationError("t-0: something else", topic="t", partition=0)

    monkeypatch.setattr(one, "_consume", fail)
    with pytest.raises(KafkaConfigurationError, match="something else") as told:
        one.poll()
    assert type(told.value) is KafkaConfigurationError


def test_a_listener_may_commit_and_seek(consumer: Make, make_cluster: Make, handler: str) -> None:
    """Behaviour 300."""
    cluster = make_cluster(topics={"t": 4})
    for n in range(4):
        put(cluster, b"0", b"1", b"2", partition=n)
    one = consumer(cluster, **GROUP, enable_auto_commit=False)

    def act(what: str, partitions: set[TopicPartition]) -> None:
        if what == "revoked":
            one.commit()
        else:
            for tp in partitions:
                one.seek(tp, 1)
                assert one.position(tp) == 1

    told = Told(act)
    one.subscribe(["t"], listener=told)
    assert sorted(offsets(consume(one, 8))) == [(p, o) for p in range(4) for o in (1, 2)]
    one.close()
    assert committed(cluster) == dict.fromkeys(range(4), 3)
    assert told.heard[-1] == ("revoked", [0, 1, 2, 3])


def test_a_listener_that_raises_is_logged_and_told_and_nothing_is_lost(
    consumer: Make, cluster: MockCluster, caplog: pytest.LogCaptureFixture, handler: str
) -> None:
    put(cluster, b"0", b"1")
    got: list[Any] = []
    told: list[str] = []

    def act(what: str, partitions: set[TopicPartition]) -> None:
        raise RuntimeError(f"no {what}, please")

    reading = consumer(cluster, **GROUP)

    def all_seen() -> bool:
        try:
            got.extend(r for records in reading.poll(50).values() for r in records)
        except RuntimeError as error:
            told.append(str(error))
        return len(got) == 2 and bool(told)

    with caplog.at_level(logging.ERROR, "gkafka"):
        reading.subscribe(["t"], listener=Told(act))
        until(handler, all_seen)
        reading.close()
    assert offsets(got) == [(0, 0), (0, 1)]
    assert told == ["no assigned, please"]
    assert "no assigned, please" in caplog.text
    assert "no revoked, please" in caplog.text
    assert committed(cluster) == {0: 2}


def test_a_poll_that_waits_raises_what_a_listener_raises_before_any_record(consumer: Make, cluster: MockCluster, handler: str) -> None:
    def act(what: str, partitions: set[TopicPartition]) -> None:
        if what == "assigned":
            raise RuntimeError("no place to seek to")

    for values in ((), (b"0", b"1")):
        put(cluster, *values)
        reading = consumer(cluster, **GROUP)
        reading.subscribe(["t"], listener=Told(act))
        begun = now()
        with pytest.raises(RuntimeError, match="no place to seek to"):
            assert reading.poll(120_000) == {}
        assert now() - begun < 60
        reading.close()


def test_a_listener_may_close_its_consumer(consumer: Make, cluster: MockCluster, handler: str) -> None:
    put(cluster, b"0")
    reading = consumer(cluster, **GROUP)
    told = Told(lambda what, partitions: reading.close(timeout_ms=2000) if what == "assigned" else None)
    reading.subscribe(["t"], listener=told)

    def ended() -> bool:
        try:
            reading.poll(50)
        except IllegalStateError:
            return True
        return False

    until(handler, ended)
    until(handler, lambda: not cluster.group("g").members)
    assert told.heard[:2] == [("revoked", []), ("assigned", [0])]


# -- subscriptions ---------------------------------------------------------------------------------------------------------
def test_subscribe_replaces_and_unsubscribe_clears(consumer: Make, make_cluster: Make, handler: str) -> None:
    """Behaviours 299, 301."""
    cluster = make_cluster(topics={"t": 1, "u": 1})
    reading = joined(consumer(cluster, "t", **GROUP), FIRST)
    assert reading.subscription() == {"t"}
    reading.subscribe(["u"])
    joined(reading, TopicPartition("u", 0))
    assert reading.subscription() == {"u"}
    reading.unsubscribe()
    assert (reading.subscription(), reading.assignment()) == (None, set())
    until(handler, lambda: not cluster.group("g").members)
    reading.assign([FIRST])
    assert reading.assignment() == {FIRST}


def test_a_group_follows_topics_that_come_and_match(consumer: Make, make_cluster: Make) -> None:
    """Behaviours 230, 299."""
    cluster = make_cluster(topics={"awesome-a": 1, "other": 1})
    reading = consumer(cluster, metadata_max_age_ms=150, **GROUP)
    reading.subscribe(pattern="^awesome.*")
    joined(reading, TopicPartition("awesome-a", 0))
    cluster.create_topic("awesome-b", 1)
    joined(reading, TopicPartition("awesome-a", 0), TopicPartition("awesome-b", 0))
    assert reading.subscription() == {"awesome-a", "awesome-b"}


def test_paused_partitions_cost_no_rebalance(consumer: Make, cluster: MockCluster) -> None:
    """Behaviour 292."""
    reading = joined(consumer(cluster, "t", **GROUP))
    generation = cluster.group("g").generation
    reading.pause(FIRST)
    put(cluster, b"0")
    assert reading.poll(300) == {}
    assert (cluster.group("g").generation, reading.assignment()) == (generation, {FIRST})
    reading.resume(FIRST)
    assert offsets(consume(reading, 1)) == [(0, 0)]


def test_a_topic_that_a_group_waits_for_is_divided_as_soon_as_it_is_there(
    consumer: Make, make_cluster: Make, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = make_cluster(topics={"t": 1}, auto_create=False)
    put(cluster, b"0")
    reading = consumer(cluster, "t", "later", **GROUP)
    assert "topic 'later'" in caplog.text
    assert "it is read as soon as it is there" in caplog.text
    assert [r.value for r in consume(reading, 1)] == [b"0"]
    assert reading.poll(300) == {}
    cluster.create_topic("later", 2)
    put(cluster, b"1", topic="later", partition=1)
    assert [(r.topic, r.partition, r.value) for r in consume(reading, 1)] == [("later", 1, b"1")]
    assert reading.assignment() == {FIRST, TopicPartition("later", 0), TopicPartition("later", 1)}


@pytest.mark.parametrize("how", ["poll", "next", "for"])
def test_a_consumer_that_is_dropped_leaves_its_group_without_the_garbage_collector(cluster: MockCluster, handler: str, how: str) -> None:
    """The next member of the group had no partition until Python looked for cycles, or for ever."""

    def read_one() -> None:
        consumer = KafkaConsumer("t", bootstrap_servers=cluster.bootstrap, handler=handler, **GROUP)
        if how == "poll":
            assert consumer.poll(60_000)
        elif how == "next":
            next(consumer)
        else:
            for _ in consumer:
                break

    put(cluster, b"a")
    gc.collect()
    gc.disable()
    try:
        for _ in range(2):
            read_one()
            until(handler, lambda: not cluster.group("g").members)
    finally:
        gc.enable()
