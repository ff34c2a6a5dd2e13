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
from gkafka.core.commitqueue import Commit, CommitQueue, Terms
from gkafka.exceptions import KafkaException, NoPartitionsForConsumerException
from gkafka.groupoffsets import GroupOffsets
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
        ({"offsets": {T0: 100}, "allowed": lambda: False}, NoPartitionsForConsumerException),
        ({"offsets": {T0: 100}, "notes": {T0: "x" * 5000}}, OffsetMetadataTooLarge),
        ({"offsets": {T0: -1}}, None),
    ],
    ids=["not allowed", "refused", "below 0"],
)
def test_a_later_one_that_certainly_changed_nothing_is_of_no_account(
    cluster: MockCluster, offsets: GroupOffsets, slow: Slow, how: dict[str, Any], error: type[Exception] | None
) -> None:
    earlier = slow()
    with pytest.raises(error) if error is not None else contextlib.nullcontext():
        offsets.commit(**how, timeout_s=LIMIT_S)
    earlier.result()
    assert committed(cluster) == 50


def test_one_that_has_joined_and_asks_for_no_try_is_of_no_account(cluster: MockCluster, offsets: GroupOffsets, slow: Slow) -> None:
    """Its caller was interrupted before it asked, or as it was to leave."""
    earlier = slow()
    joined = Commit(float("inf"))
    offsets.join(joined, lambda: joined.wants({T0: 100}))
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
    client: KafkaClient, cluster: MockCluster, offsets: GroupOffsets, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To find it takes its time, in which a later commit may come and be answered."""
    reach, overtaken = client.cluster.reach_coordinator, False

    def slowly(*args: Any) -> Any:
        nonlocal overtaken
        if not overtaken:
            overtaken = True
            offsets.commit({T0: 100}, timeout_s=LIMIT_S)
        return reach(*args)

    monkeypatch.setattr(client.cluster, "reach_coordinator", slowly)
    offsets.commit({T0: 50}, timeout_s=LIMIT_S)
    assert sent(cluster) == [100]


@pytest.fixture
def joined(monkeypatch: pytest.MonkeyPatch) -> list[Commit]:
    """Commits in the order in which they joined a queue."""
    found: list[Commit] = []
    join = CommitQueue.join

    def noted(queue: CommitQueue, commit: Commit) -> None:
        join(queue, commit)
        found.append(commit)

    monkeypatch.setattr(CommitQueue, "join", noted)
    return found


def test_a_later_commit_counts_for_the_parts_that_are_not_sent_yet(
    connect: Any, make_cluster: Any, run: Runner, joined: list[Commit], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With greenlets, which send many partitions a part after the other."""
    cluster = make_cluster(1, {"t": 3})
    offsets = GroupOffsets(connect(cluster).cluster, "g")
    partitions = [TopicPartition("t", p) for p in range(3)]
    monkeypatch.setattr("gkafka.groupoffsets.MOST_AT_ONCE", 1)
    cluster.on("OffsetCommit", held := Held())
    earlier = run.aside(lambda: offsets.commit(dict.fromkeys(partitions, 50), timeout_s=LIMIT_S))
    run.until(lambda: held.holds)
    later = run.aside(lambda: offsets.commit(dict.fromkeys(partitions, 100), timeout_s=LIMIT_S))
    run.until(lambda: len(joined) == 2 and joined[1].is_trying)
    held.released = True
    earlier.result()
    later.result()
    assert sent(cluster) == ([50, 50, 50] if run.name == "threading" else [50]) + [100] * 3
    assert [committed(cluster, p) for p in range(3)] == [100] * 3


def test_those_that_come_while_one_is_under_way_share_the_next_request(
    client: KafkaClient, cluster: MockCluster, offsets: GroupOffsets, run: Runner, joined: list[Commit]
) -> None:
    """All of the client's, whoever makes them. Those of another member do not."""
    cluster.on("OffsetCommit", held := Held())
    first = run.aside(lambda: offsets.commit({T0: 1}, timeout_s=LIMIT_S))
    run.until(lambda: held.holds)
    others = [run.aside(functools.partial(GroupOffsets(client.cluster, "g").commit, {T0: n}, timeout_s=LIMIT_S)) for n in range(2, 10)]
    run.until(lambda: len(joined) == 9)
    stranger = run.aside(lambda: offsets.commit({T0: 10}, timeout_s=LIMIT_S, terms=Terms(7, "m")))
    run.until(lambda: len(joined) == 10 and all(commit.is_trying for commit in joined))
    held.released = True
    for each in [first, *others]:
        each.result()
    assert isinstance(error_of(stranger.result), KafkaException), "there is no such member"
    last = joined[8].offsets[T0]
    assert sent(cluster) == [1, last, 10]
    assert committed(cluster) == last


class Interrupted(BaseException):
    """As gevent.Timeout is."""


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
