"""client.get_consumer(topics, group): where partitions begin when the coordinator does not say so, or late."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Any

import pytest

from gkafka import KafkaClient
from gkafka.common import TopicPartition
from gkafka.consumer import Consumer
from gkafka.exceptions import (
    ConfigurationError,
    GroupAuthorizationFailed,
    UnknownTopicOrPartition,
)
from gkafka.fetchdriver import FetchDriver
from gkafka.testing import Action, Close, Delay, Drop, Error, MockCluster
from tests.kit.clock import Moment, now
from tests.public.aids import LIMIT_S, Runner
from tests.public.groupaids import FOUR, Join, Told, cluster, commits, filled, join, places, read_all, settle, share

__all__ = ["cluster", "join"]

LOADING, NOT_COORDINATOR, ILLEGAL_GENERATION, UNKNOWN_MEMBER, REBALANCING, NOT_ALLOWED = 14, 16, 22, 25, 27, 30
FENCED, UNSTABLE = 82, 88
Connect = Callable[..., KafkaClient]


# -- where to begin ------------------------------------------------------------------------------------------------------------
def test_without_a_policy_it_is_told_until_the_application_seeks(cluster: MockCluster, connect: Connect, join: Join, run: Runner) -> None:
    filled(connect, cluster)
    member = join(auto_offset_reset="none")

    def told() -> Any:
        try:
            assert member.consume_batch(timeout_ms=20) == []
        except ConfigurationError as error:
            return error
        return None

    for _ in range(2):
        assert "auto_offset_reset='none'" in str(run.until(told))
    assert member.assignment() == set(FOUR)
    for tp in FOUR:
        member.seek(tp, 8)
    got: list[tuple[int, int]] = []

    def read() -> bool:
        try:
            got.extend(places(member.consume_batch(timeout_ms=20)))
        except ConfigurationError:
            assert not got, "one that was on its way when it was sought"
        return len(got) == 8

    run.until(read)
    assert sorted(got) == [(p, o) for p in range(4) for o in (8, 9)]
    run.sleep(1.2)
    assert member.consume_batch(timeout_ms=20) == []


def test_a_listener_that_seeks_where_nothing_is_committed_is_enough(
    cluster: MockCluster, connect: Connect, join: Join, run: Runner
) -> None:
    filled(connect, cluster)
    member = join(auto_offset_reset="none", on_assigned=lambda c, partitions: [c.seek(tp, 9) for tp in partitions])
    got: list[tuple[int, int]] = []
    run.until(lambda: got.extend(places(member.consume_batch(1, 10))) or len(got) == 4)
    assert sorted(got) == [(p, 9) for p in range(4)]


def test_a_listener_may_take_its_time_before_it_seeks(cluster: MockCluster, connect: Connect, join: Join, run: Runner) -> None:
    """Who consumed meanwhile was told that there is no offset to start from."""
    filled(connect, cluster)

    def on_assigned(consumer: Consumer, partitions: list[TopicPartition]) -> None:
        run.sleep(0.3)
        for tp in partitions:
            consumer.seek(tp, 9)

    member = join(auto_offset_reset="none", on_assigned=on_assigned)
    got: list[tuple[int, int]] = []
    run.until(lambda: got.extend(places(member.consume_batch(1, 10))) or len(got) == 4)
    assert sorted(got) == [(p, 9) for p in range(4)]


def test_who_waits_is_told_when_the_listener_has_returned_without_a_seek(
    cluster: MockCluster, connect: Connect, join: Join, run: Runner
) -> None:
    """Up to four seconds later, it was."""
    returned: list[Moment] = []

    def on_assigned(consumer: Consumer, partitions: list[TopicPartition]) -> None:
        run.sleep(0.5)
        returned.append(now())

    filled(connect, cluster)
    member = join(auto_offset_reset="none", on_assigned=on_assigned)
    with pytest.raises(ConfigurationError, match="auto_offset_reset='none'"):
        member.consume_batch(1, LIMIT_S * 1000)
    assert now() - returned[0] < 30


@pytest.mark.parametrize("reset", ["none", "earliest"])
def test_what_a_listener_pauses_and_resumes_waits_for_its_end_all_the_same(
    cluster: MockCluster, connect: Connect, join: Join, run: Runner, reset: str
) -> None:
    """Records from where nobody wanted to start, or that there is no offset, came while it looked up where to."""

    def on_assigned(consumer: Consumer, partitions: list[TopicPartition]) -> None:
        consumer.pause(partitions)
        run.sleep(0.2)
        consumer.resume(partitions[1:])
        run.sleep(0.2)
        assert consumer.paused() == {partitions[0]}
        for tp in partitions:
            consumer.seek(tp, 9)

    filled(connect, cluster)
    member = join(auto_offset_reset=reset, on_assigned=on_assigned)
    got: list[tuple[int, int]] = []
    run.until(lambda: got.extend(places(member.consume_batch(1, 10))) or len(got) == 3)
    assert sorted(got) == [(p, 9) for p in range(1, 4)]
    assert member.paused() == {FOUR[0]}
    assert member.consume_batch(1, 100) == []
    member.resume([FOUR[0]])
    run.until(lambda: got.extend(places(member.consume_batch(1, 10))) or len(got) == 4)
    assert got[-1] == (0, 9)


@pytest.mark.parametrize("trouble", [Error(UNSTABLE), Drop(before=True), Error(NOT_ALLOWED), Error(LOADING), Close(before=True)])
def test_committed_offsets_that_are_not_told_are_waited_for(
    cluster: MockCluster, connect: Connect, join: Join, run: Runner, monkeypatch: pytest.MonkeyPatch, trouble: Any
) -> None:
    """No partition stays without reading once they are; a rebalance meanwhile is not held up."""
    monkeypatch.setattr("gkafka.sharing.PLACE_S", 0.3)
    filled(connect, cluster)
    cluster.on("OffsetFetch", trouble, times=None)
    first = join(of={"offsets_channel_socket_timeout_ms": 300})
    errors: list[BaseException] = []

    def asked(*members: Consumer) -> None:
        for member in members:
            try:
                assert member.consume_batch(timeout_ms=10) == []
            except GroupAuthorizationFailed as error:
                errors.append(error)

    run.until(lambda: asked(first) or (len(first.assignment()) == 4 and cluster.count("OffsetFetch") > 1))
    assert set(first.positions().values()) == {-1}
    second = join(of={"offsets_channel_socket_timeout_ms": 300})
    run.until(lambda: asked(first, second) or (sorted(map(len, share(first, second))) == [2, 2]))
    assert not commits(cluster)
    report = first.explain().partitions[min(first.assignment())]
    assert "its offset to start from is not known yet" in report.text
    cluster.clear_script()
    got: list[tuple[int, int]] = []

    def read() -> bool:
        for member in (first, second):
            try:
                got.extend(places(member.consume_batch(timeout_ms=20)))
            except GroupAuthorizationFailed as error:
                errors.append(error)
        return len(got) >= 40

    run.until(read)
    assert sorted(got) == [(p, o) for p in range(4) for o in range(10)]
    assert bool(errors) == (isinstance(trouble, Error) and trouble.code == NOT_ALLOWED)


def test_partitions_that_have_no_start_yet_can_be_paused_and_resumed(
    cluster: MockCluster, connect: Connect, join: Join, run: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gkafka.sharing.PLACE_S", 0.2)
    filled(connect, cluster)
    cluster.on("OffsetFetch", Error(UNSTABLE), times=None)
    problems: list[BaseException] = []

    def pause(consumer: Consumer, partitions: list[TopicPartition]) -> None:
        try:
            consumer.pause(partitions)
            consumer.resume(partitions[:1])
        except Exception as error:
            problems.append(error)

    member = join(on_assigned=pause)
    settle(run, lambda: len(member.paused()) == 3, member)
    assert problems == []
    cluster.clear_script()
    assert read_all(member, 10) == [(0, o) for o in range(10)]
    assert run.stays(lambda: member.consume_batch(timeout_ms=10) == [])
    assert member.paused() == set(FOUR[1:])
    member.resume(FOUR)
    assert len(read_all(member, 30)) == 30
    assert member.paused() == set()


@pytest.mark.usefixtures("short_patience")
def test_a_topic_that_vanishes_keeps_no_other_from_being_read(
    make_cluster: Callable[..., MockCluster], connect: Connect, cluster: MockCluster, join: Join, run: Runner
) -> None:
    cluster.create_topic("a", 1)
    filled(connect, cluster, 5, [0], "a")
    filled(connect, cluster, 5)
    gate = threading.Event()

    def hold(request: Any) -> bool:
        gate.set()
        return True

    cluster.on("OffsetFetch", Delay(0.5, before=False), when=hold)
    member = join(["a", "t"], of={"auto_create_topics": False})
    run.until(gate.is_set)
    cluster.delete_topic("a")
    member._cluster.update()
    got: list[tuple[str, int, int]] = []

    def read() -> bool:
        with contextlib.suppress(UnknownTopicOrPartition):
            got.extend((m.topic, m.partition_id, m.offset) for m in member.consume_batch(timeout_ms=20))
        return len([place for place in got if place[0] == "t"]) == 20

    run.until(read)


class Late(Action):
    """An answer with other committed offsets, and late."""

    def __init__(self, offset: int) -> None:
        self._offset = offset

    def run(self, call: Any) -> None:
        def send(answer: Any) -> None:
            for group in answer.groups:
                for topic in group.topics:
                    for position in topic.partitions:
                        position.committed_offset = self._offset
            call.after(0.6, lambda: call.send(answer))

        call.act(send)


def test_a_partition_that_went_and_came_back_does_not_begin_where_it_was_to_begin_before(
    cluster: MockCluster, connect: Connect, join: Join, run: Runner
) -> None:
    """The answer that tells it was given before another member went on (B21)."""
    filled(connect, cluster)
    other = connect(cluster).get_consumer(group="g", auto_commit=False)
    other.assign(FOUR)
    other.commit(dict.fromkeys(FOUR, 8))
    other.stop()
    cluster.on("OffsetFetch", Error(NOT_ALLOWED))
    cluster.on("OffsetFetch", Late(2))
    told = Told()
    member = join(**told.listeners)
    got: list[tuple[int, int]] = []
    kicked = []

    def read() -> bool:
        with contextlib.suppress(GroupAuthorizationFailed):
            got.extend(places(member.consume_batch(1, 10)))
        if cluster.count("OffsetFetch") > 2 and not kicked:
            kicked.append(cluster.remove_member("g", next(iter(cluster.group("g").members))))  # type: ignore[union-attr]
        return len(got) >= 8

    run.until(read)
    assert sorted(got) == [(p, o) for p in range(4) for o in (8, 9)]
    assert len(told.of("assigned")) == 2


def test_many_topics_are_begun_with_together(
    connect: Connect, make_cluster: Callable[..., MockCluster], monkeypatch: pytest.MonkeyPatch, run: Runner
) -> None:
    """Each look at what may be fetched goes through all partitions: one for each topic took 12 s of 400 topics with 50 partitions, with the hub waiting."""
    names = [f"topic-{n}" for n in range(80)]
    cluster = make_cluster(topics=dict.fromkeys(names, 4))
    looks, kick = [0], FetchDriver.kick

    def counted(driver: FetchDriver) -> None:
        looks[0] += 1
        kick(driver)

    monkeypatch.setattr(FetchDriver, "kick", counted)
    with connect(cluster).get_consumer(names, "g") as member:
        run.until(lambda: [member.consume_batch(timeout_ms=20), len(member.assignment()) == 320][1])
        run.until(lambda: [member.consume_batch(timeout_ms=20), cluster.count("Fetch") > 0][1])
        assert looks[0] < 40
