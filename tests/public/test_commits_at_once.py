"""Two commits of a group at the same time, of which the later one ends somehow: what the earlier one sends when it is tried again."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any

import pytest

from gkafka import KafkaClient
from gkafka.brokererrors import OffsetMetadataTooLarge
from gkafka.common import TopicPartition
from gkafka.core.commitqueue import Commit
from gkafka.exceptions import KafkaException, KafkaTimeoutError, NoPartitionsForConsumerException
from gkafka.groupoffsets import GroupOffsets, Identity
from gkafka.testing import Close, Error, MockCluster
from tests.public.aids import LIMIT_S, Aside, Held, Runner, error_of, fill

T0 = TopicPartition("t", 0)
LOADING = 14
Begin = Callable[[int, float], "Paused"]
Slow = Callable[[], "Paused"]


def committed(cluster: MockCluster, partition: int = 0) -> int:
    found = cluster.committed("g").get(("t", partition))
    return -1 if found is None else found.offset


def sent(cluster: MockCluster) -> list[int]:
    return [
        p.committed_offset for request in cluster.requests("OffsetCommit") for topic in request.message.topics for p in topic.partitions
    ]


@pytest.fixture
def offsets(client: KafkaClient) -> GroupOffsets:
    return GroupOffsets(client.cluster, "g")


class Paused:
    """A commit that was refused for now: it is tried again when somebody waits for its result."""

    def __init__(self, aside: Aside[None], may_go_on: Any) -> None:
        self._aside, self._may_go_on = aside, may_go_on

    @property
    def running(self) -> bool:
        return self._aside.running

    def result(self) -> None:
        self._may_go_on.set()
        self._aside.result()


@pytest.fixture
def begin(client: KafkaClient, offsets: GroupOffsets, cluster: MockCluster, run: Runner, monkeypatch: pytest.MonkeyPatch) -> Begin:
    """Begins a commit of so much that is refused for now, and pauses before it is tried again."""
    pause, waits = client.cluster.pause, {}

    def until_it_may_go_on(seconds: float) -> None:
        if seconds in waits:
            waits[seconds].wait(LIMIT_S)
        else:
            pause(seconds)

    monkeypatch.setattr(client.cluster, "pause", until_it_may_go_on)

    def one(offset: int, backoff_s: float) -> Paused:
        waits[backoff_s] = client.handler.Event()
        before = cluster.count("OffsetCommit")
        cluster.on("OffsetCommit", Error(LOADING))
        aside = run.aside(functools.partial(offsets.commit, {T0: offset}, timeout_s=LIMIT_S, tries=5, backoff_s=backoff_s))
        run.until(lambda: cluster.count("OffsetCommit") > before)
        return Paused(aside, waits[backoff_s])

    return one


@pytest.fixture
def slow(begin: Begin) -> Slow:
    return lambda: begin(50, 0.5)


def test_a_later_one_that_is_given_up_has_not_taken_its_place(
    client: KafkaClient, cluster: MockCluster, offsets: GroupOffsets, slow: Slow
) -> None:
    """The earlier one returned as if all was well, and nothing was committed."""
    earlier = slow()
    cluster.on("OffsetCommit", Error(LOADING))
    assert isinstance(error_of(offsets.commit, {T0: 100}, timeout_s=LIMIT_S, tries=0), KafkaException)
    assert committed(cluster) == -1
    earlier.result()
    assert committed(cluster) == 100, "the application asked for that last; it may have been committed"


def test_a_later_one_whose_answer_is_lost_is_not_taken_back(cluster: MockCluster, offsets: GroupOffsets, slow: Slow) -> None:
    earlier = slow()
    cluster.on("OffsetCommit", Close())
    error_of(offsets.commit, {T0: 100}, timeout_s=LIMIT_S, tries=0)
    assert committed(cluster) == 100
    earlier.result()
    assert sent(cluster) == [50, 100, 100]


@pytest.mark.parametrize(
    ("how", "error"),
    [
        ({"offsets": {T0: 100}}, NoPartitionsForConsumerException),
        ({"offsets": {T0: 100}, "notes": {T0: "x" * 5000}}, OffsetMetadataTooLarge),
        ({"offsets": {T0: -1}}, None),
    ],
    ids=["not allowed", "refused", "below 0"],
)
def test_a_later_one_that_certainly_changed_nothing_is_of_no_account(
    cluster: MockCluster, offsets: GroupOffsets, slow: Slow, how: dict[str, Any], error: type[Exception] | None
) -> None:
    earlier, identity = slow(), offsets.identity
    if error is NoPartitionsForConsumerException:
        offsets.identity = Identity("g", allowed=lambda: False)
    with pytest.raises(error) if error is not None else contextlib.nullcontext():
        offsets.commit(**how, timeout_s=LIMIT_S)
    offsets.identity = identity
    earlier.result()
    assert committed(cluster) == 50


def test_one_that_is_under_way_is_carried_by_the_other(cluster: MockCluster, slow: Slow, begin: Begin) -> None:
    """And has no need to be sent once more."""
    earlier = slow()
    later = begin(100, 2.0)
    earlier.result()
    assert committed(cluster) == 100
    assert later.running
    later.result()
    assert sent(cluster) == [50, 100, 100]


def test_what_goes_out_is_decided_when_the_coordinator_is_reached(
    client: KafkaClient, cluster: MockCluster, offsets: GroupOffsets, run: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To find it takes its time, in which a later commit may come and be answered."""
    reach, found, gate = client.cluster.reach_coordinator, client.handler.Event(), client.handler.Event()

    def slowly(group: str, deadline: float) -> Any:
        reached = reach(group, deadline)
        if not found.is_set():
            found.set()
            gate.wait(LIMIT_S)
        return reached

    monkeypatch.setattr(client.cluster, "reach_coordinator", slowly)
    earlier = run.aside(functools.partial(offsets.commit, {T0: 50}, timeout_s=LIMIT_S))
    run.until(found.is_set)
    offsets.commit({T0: 100}, timeout_s=LIMIT_S)
    gate.set()
    earlier.result()
    assert sent(cluster) == [100]


def test_commits_wait_for_the_one_that_is_under_way_and_go_out_together(cluster: MockCluster, offsets: GroupOffsets, run: Runner) -> None:
    offsets.commit({T0: 1}, timeout_s=LIMIT_S)
    cluster.on("OffsetCommit", held := Held())
    begun = [run.aside(functools.partial(offsets.commit, {T0: 10}, timeout_s=LIMIT_S))]
    run.until(lambda: sent(cluster) == [1, 10])
    for offset in (20, 30):
        begun.append(run.aside(functools.partial(offsets.commit, {T0: offset}, timeout_s=LIMIT_S)))
        run.until(lambda: len(offsets.queue.commits) == len(begun))
    held.released = True
    for each in begun:
        each.result()
    assert sent(cluster) == [1, 10, 30]


def test_a_commit_waits_no_longer_than_it_may_for_one_that_is_under_way(cluster: MockCluster, offsets: GroupOffsets, run: Runner) -> None:
    cluster.on("OffsetCommit", held := Held())
    slow = run.aside(functools.partial(offsets.commit, {T0: 10}, timeout_s=LIMIT_S))
    run.until(lambda: sent(cluster) == [10])
    assert isinstance(error_of(offsets.commit, {T0: 20}, timeout_s=0.05), KafkaTimeoutError)
    held.released = True
    slow.result()
    assert (sent(cluster), offsets.queue.commits) == ([10], [])


def test_members_of_one_client_do_not_wait_for_each_other(client: KafkaClient, cluster: MockCluster, run: Runner) -> None:
    one, other = (GroupOffsets(client.cluster, "g") for _ in range(2))
    asked, gate = client.handler.Event(), client.handler.Event()

    def in_a_while() -> bool:
        asked.set()
        return bool(gate.wait(LIMIT_S))

    one.identity = Identity("g", allowed=in_a_while)
    slow = run.aside(functools.partial(one.commit, {T0: 10}, timeout_s=LIMIT_S))
    run.until(asked.is_set)
    other.commit({T0: 20}, timeout_s=LIMIT_S)
    assert sent(cluster) == [20]
    gate.set()
    slow.result()


def test_a_commit_of_many_partitions_goes_out_in_parts_that_others_join(connect: Any, make_cluster: Any) -> None:
    cluster = make_cluster(1, {"t": 3})
    offsets = GroupOffsets(connect(cluster).cluster, "g")
    partitions = [TopicPartition("t", p) for p in range(3)]
    asked: list[bool] = []

    def overtaken() -> bool:
        """Behind the first part another commit joins."""
        asked.append(True)
        if len(asked) == 2:
            offsets.join(lambda: Commit({partitions[1]: 101, partitions[2]: 102})).is_begun = True
        return True

    offsets._most = 1
    offsets.identity = Identity("g", allowed=overtaken)
    offsets.commit({tp: 50 + tp.partition for tp in partitions}, timeout_s=LIMIT_S)
    assert sent(cluster) == [50, 101, 102]


class Interrupted(BaseException):
    """As gevent.Timeout is."""


def test_a_commit_whose_worker_calls_again_after_an_interruption_keeps_its_place(cluster: MockCluster, offsets: GroupOffsets) -> None:
    def interrupted() -> bool:
        raise Interrupted

    begun, identity = offsets.begin({T0: 10}, stays=True), offsets.identity
    offsets.identity = Identity("g", allowed=interrupted)
    with pytest.raises(Interrupted):
        offsets.finish(begun, timeout_s=LIMIT_S)
    offsets.identity = identity
    offsets.commit({T0: 20}, timeout_s=LIMIT_S)
    offsets.finish(begun, timeout_s=LIMIT_S)
    assert (sent(cluster), offsets.queue.commits) == ([20], [])


def test_commit_offsets_of_two_workers_of_which_the_later_one_is_interrupted(
    client: KafkaClient, cluster: MockCluster, run: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While both wait to try again. The first returned as if all was well, and nothing was committed."""
    pauses: list[float] = []
    pause, may_go_on = client.cluster.pause, client.handler.Event()

    def second_is_interrupted(seconds: float) -> None:
        if seconds == 0.45:
            pauses.append(seconds)
            if len(pauses) == 2:
                raise Interrupted
            may_go_on.wait(LIMIT_S)
        else:
            pause(seconds)

    monkeypatch.setattr(client.cluster, "pause", second_is_interrupted)
    fill(client, [b"%d" % i for i in range(20)])
    with client.topics["t"].get_simple_consumer("g", offsets_channel_backoff_ms=450, consumer_timeout_ms=60_000) as consumer:
        assert len(consumer.consume_batch(10)) == 10
        cluster.on("OffsetCommit", Error(LOADING), times=2)
        first = run.aside(consumer.commit_offsets)
        run.until(lambda: pauses)
        assert len(consumer.consume_batch(10)) == 10
        with pytest.raises(Interrupted):
            consumer.commit_offsets()
        assert first.running
        may_go_on.set()
        first.result()
        assert committed(cluster) == 20
