"""A commit of the application's that fails: what is refused changes nothing, and what may have been taken is made sure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gkafka import KafkaClient
from gkafka.brokererrors import OffsetMetadataTooLarge
from gkafka.consumer import Consumer
from gkafka.exceptions import ConfigurationError, KafkaTimeoutError
from gkafka.testing import Close, Delay, Error, MockCluster
from tests.public.aids import Runner, error_of
from tests.public.groupaids import FOUR, Join, cluster, commits, committed, filled, goes_back, join

__all__ = ["cluster", "join"]

P0, P1 = FOUR[:2]
GROUP_AUTHORIZATION_FAILED = 30
LONG = "x" * 5000
OFTEN_MS = 20


@pytest.fixture(autouse=True)
def told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is written down at every call what is finished, also where one has just come before it."""
    monkeypatch.setattr("gkafka.progress.SNAPSHOT_S", 0.0)
    monkeypatch.setattr("gkafka.taking.RecordTaker._allow_a_run", lambda taker, queue: None)


@pytest.fixture(params=["member", "assigned"])
def at_four(request: pytest.FixtureRequest, cluster: MockCluster, connect: Callable[..., KafkaClient], join: Join, run: Runner) -> Consumer:
    """Of t-0 it has finished 4 of 10 messages, which is committed, and has 8. It commits in the background all the time."""
    filled(connect, cluster, 10, [0])
    often = {"auto_commit_interval_ms": OFTEN_MS}
    if request.param == "member":
        consumer = join(**often)
    else:
        consumer = connect(cluster).get_consumer(group="g", fetch_wait_max_ms=50, **often)
        consumer.assign(dict.fromkeys(FOUR, 0))
    run.until(lambda: consumer.stats()["buffered"] == 10)
    for _ in range(2):
        assert len(consumer.consume_batch(4, 60_000)) == 4
    run.until(lambda: committed(cluster).get(0) == 4)
    return consumer


def stays_committed(run: Runner, cluster: MockCluster, offset: int) -> bool:
    return run.stays(lambda: committed(cluster)[0] == offset, OFTEN_MS * 4 / 1000)


@pytest.mark.parametrize("offset", [2, 6, 10])
def test_a_commit_that_is_refused_changes_nothing(at_four: Consumer, cluster: MockCluster, run: Runner, offset: int) -> None:
    """Neither what was finished is taken back, nor is what was not finished committed in the background."""
    before = len(commits(cluster))
    error = error_of(at_four.commit, {P0: offset}, notes={P0: LONG})
    assert isinstance(error, OffsetMetadataTooLarge)
    assert stays_committed(run, cluster, 4)
    assert commits(cluster)[before:] == [{0: offset}]
    at_four.stop()
    assert committed(cluster)[0] == 8


def test_a_commit_that_the_whole_group_is_refused_changes_nothing(at_four: Consumer, cluster: MockCluster, run: Runner) -> None:
    cluster.on("OffsetCommit", Error(GROUP_AUTHORIZATION_FAILED))
    error_of(at_four.commit, {P0: 6, P1: 3})
    assert stays_committed(run, cluster, 4)
    assert committed(cluster).get(1, 0) == 0


@pytest.mark.parametrize("offset", [2, 10])
def test_a_commit_that_is_taken_stands_until_the_application_asks_for_more(
    at_four: Consumer, cluster: MockCluster, run: Runner, offset: int
) -> None:
    at_four.commit({P0: offset})
    assert stays_committed(run, cluster, offset)
    assert at_four.consume_batch(1, 60_000)
    run.until(lambda: committed(cluster)[0] == 8)


def test_what_is_taken_of_a_commit_that_fails_stands_and_what_is_refused_changes_nothing(
    at_four: Consumer, cluster: MockCluster, connect: Callable[..., KafkaClient], run: Runner
) -> None:
    filled(connect, cluster, 3, [1])

    def all_is_finished() -> bool:
        at_four.consume_batch(timeout_ms=10)
        found = committed(cluster)
        return (found[0], found.get(1)) == (10, 3)

    run.until(all_is_finished)
    error = error_of(at_four.commit, {P0: 6, P1: 0}, notes={P1: LONG})
    assert (error.topic, error.partition) == P1
    assert run.stays(lambda: (committed(cluster)[0], committed(cluster)[1]) == (6, 3), OFTEN_MS * 4 / 1000)


@pytest.mark.parametrize(("offset", "settled"), [(2, 4), (6, 6), (10, 4)])
def test_a_commit_that_may_have_been_taken_is_made_sure_and_takes_back_nothing_that_is_finished(
    at_four: Consumer, cluster: MockCluster, run: Runner, offset: int, settled: int
) -> None:
    """Its answers are lost. What the application has not had it has not finished."""
    cluster.on("OffsetCommit", Close(), times=None)
    error = error_of(at_four.commit, {P0: offset}, timeout=0.6)
    assert isinstance(error, KafkaTimeoutError)
    assert committed(cluster)[0] == offset
    cluster.clear_script()  # the next one is heard: perhaps at once
    run.until(lambda: committed(cluster)[0] == settled)
    assert stays_committed(run, cluster, settled)
    if offset <= 8:
        assert [back for back in goes_back(cluster) if back[2] != offset] == []


def test_what_is_finished_while_a_commit_is_under_way_counts(at_four: Consumer, cluster: MockCluster, run: Runner) -> None:
    cluster.on("OffsetCommit", Delay(0.1), when=lambda request: committing(request) == {0: 2})
    under_way = run.aside(at_four.commit, {P0: 2})
    run.until(lambda: {0: 2} in commits(cluster))
    assert len(at_four.consume_batch(1, 60_000)) == 1
    under_way.result()
    run.until(lambda: committed(cluster)[0] == 8)


def committing(request: Any) -> dict[int, int]:
    return {p.partition_index: p.committed_offset for topic in request.message.topics for p in topic.partitions}


def test_what_is_left_for_another_time_is_not_told_as_committed(cluster: MockCluster, join: Join, connect: Any, run: Runner) -> None:
    filled(connect, cluster, 10, [0])
    told: list[Any] = []
    member = join(auto_commit_interval_ms=OFTEN_MS)
    member.tell_of_commits(lambda offsets, error: told.append((offsets, error)))
    run.until(lambda: member.stats()["buffered"] == 10)
    cluster.on("OffsetCommit", Error(27), times=None)  # a rebalance is under way
    assert len(member.consume_batch(4, 60_000)) == 4
    member.consume_batch(4, 60_000)
    run.until(lambda: len(commits(cluster)) > 2)
    assert told == []
    cluster.clear_script()
    run.until(lambda: told)
    assert told[0][0][P0] == committed(cluster)[0] == 4


@pytest.mark.parametrize(
    ("beside", "word"),
    [
        ({"notes": 5}, "notes=5"),
        ({"notes": {P0: 5}}, "notes=5"),
        ({"notes": {P0: "\ud800"}}, "notes="),
        ({"notes": {P0: "x" * 40_000}}, "holds 40000 bytes"),
        ({"notes": {"t": "x"}}, "partition='t'"),
        ({"epochs": 5}, "epochs=5"),
        ({"epochs": {P0: "x"}}, "epochs='x'"),
    ],
)
def test_what_comes_with_offsets_is_checked_before_others_send_it(at_four: Consumer, cluster: MockCluster, beside: Any, word: str) -> None:
    before = len(commits(cluster))
    error = error_of(at_four.commit, {P0: 6}, **beside)
    assert isinstance(error, ConfigurationError)
    assert word in str(error)
    assert len(commits(cluster)) == before
