"""lag() and LagListener: numbers out of Spark's progress; and the commits of commitGroup."""

from __future__ import annotations

import json
import logging
from types import SimpleNamespace
from typing import Any

import pytest

import gkafka.spark
from gkafka.spark.progress import LagListener, lag
from gkafka.testing import Error, MockCluster
from tests.kafka.consuming import held
from tests.spark.streaming import Checkpoint, OldQuery, Query
from tests.spark.test_source_calls import numbers
from tests.spark.test_stream_calls import Streaming, streaming

__all__ = ["streaming"]


def progress(*sources: dict[str, Any]) -> dict[str, Any]:
    return {"name": "q", "id": "1", "batchId": 3, "sources": list(sources)}


def source(end: Any, latest: Any) -> dict[str, Any]:
    return {"startOffset": None, "endOffset": end, "latestOffset": latest}


# -- lag() -------------------------------------------------------------------------------------------------------------
def test_lag_is_the_jvm_connectors_metrics_over_all_partitions() -> None:
    end, latest = {"t": {"0": 10, "1": 5}}, {"t": {"0": 13, "1": 5}, "u": {"0": 9}}
    for form in (lambda offsets: offsets, json.dumps):
        found = gkafka.spark.lag(progress(source(form(end), form(latest))))
        assert found == {"minOffsetsBehindLatest": 0, "maxOffsetsBehindLatest": 3, "avgOffsetsBehindLatest": 1.5}


def test_lag_counts_all_sources_of_kafka_together_and_no_other() -> None:
    found = lag(
        progress(
            source({"t": {"0": 1}}, {"t": {"0": 3}}), source({"u": {"0": 1}}, {"u": {"0": 5}}), source(7, 9), source({"logOffset": 4}, None)
        )
    )
    assert found == {"minOffsetsBehindLatest": 2, "maxOffsetsBehindLatest": 4, "avgOffsetsBehindLatest": 3.0}


@pytest.mark.parametrize(
    "given", [None, progress(), progress(source({"t": {"0": 1}}, None)), progress(source(None, "null")), progress(source("x", "{"))]
)
def test_lag_is_empty_where_nothing_is_known(given: Any) -> None:
    assert lag(given) == {}


def test_lag_takes_sparks_own_objects() -> None:
    spark_source = SimpleNamespace(startOffset="{}", endOffset='{"t":{"0":1}}', latestOffset='{"t":{"0":4}}')
    assert lag(SimpleNamespace(sources=[spark_source])) == {  # type: ignore[arg-type]
        "minOffsetsBehindLatest": 3,
        "maxOffsetsBehindLatest": 3,
        "avgOffsetsBehindLatest": 3.0,
    }


def test_a_log_that_was_cut_is_no_negative_lag() -> None:
    assert lag(progress(source({"t": {"0": 9}}, {"t": {"0": 4}})))["minOffsetsBehindLatest"] == 0


# -- LagListener -------------------------------------------------------------------------------------------------------
def event(name: str | None) -> Any:
    sources = [SimpleNamespace(startOffset="{}", endOffset='{"t":{"0":1}}', latestOffset='{"t":{"0":4}}')]
    return SimpleNamespace(progress=SimpleNamespace(name=name, id="the-id", batchId=3, sources=sources))


def test_a_listener_reports_each_batch() -> None:
    seen: list[Any] = []
    listener = LagListener(lambda *given: seen.append(given))
    for other in (listener.onQueryStarted, listener.onQueryIdle, listener.onQueryTerminated):
        other(None)
    listener.onQueryProgress(event("q"))
    listener.onQueryProgress(event(None))
    found = {"minOffsetsBehindLatest": 3, "maxOffsetsBehindLatest": 3, "avgOffsetsBehindLatest": 3.0}
    assert seen == [("q", 3, found), ("the-id", 3, found)]


def test_a_listener_logs_unless_told_otherwise(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "gkafka.spark.progress"):
        LagListener().onQueryProgress(event("q"))
    assert caplog.messages == ["query q, batch 3: minOffsetsBehindLatest=3 maxOffsetsBehindLatest=3 avgOffsetsBehindLatest=3.0"]


# -- commitGroup -------------------------------------------------------------------------------------------------------
def committed(cluster: MockCluster, group: str = "g") -> dict[tuple[str, int], int]:
    return {at: found.offset for at, found in cluster.committed(group).items()}


def test_progress_is_committed_with_the_last_batch_while_the_query_is_idle(cluster: MockCluster, streaming: Streaming) -> None:
    query = streaming(commitGroup="g", commitIntervalMs="0")
    numbers(cluster, 3)
    query.run()
    cluster.wait_for(lambda: query.plan() or committed(cluster) == {("t", 0): 3})


def test_available_now_has_committed_everything_when_it_ends(cluster: MockCluster, streaming: Streaming) -> None:
    numbers(cluster, 10)
    query = streaming(commitGroup="g", commitIntervalMs="60000", available_now=True, maxOffsetsPerTrigger="4")
    query.run()
    assert committed(cluster) == {("t", 0): 10}


def test_the_last_batch_counts_on_older_sparks_too_which_do_not_tell_it(cluster: MockCluster, streaming: Streaming) -> None:
    query = streaming(kind=OldQuery, commitGroup="g", commitIntervalMs="0")
    for _ in range(2):
        numbers(cluster, 3)
        query.run()
    cluster.wait_for(lambda: query.plan() or committed(cluster) == {("t", 0): 6})


def test_a_batch_that_is_planned_is_not_progress(cluster: MockCluster, streaming: Streaming) -> None:
    for kind in (Query, OldQuery):
        first = streaming(kind=kind, commitGroup="g", commitIntervalMs="0")
        numbers(cluster, 3)
        assert first.plan()
        first.reader.stop()
        second = streaming(first.checkpoint, kind=kind, commitGroup="g", commitIntervalMs="0")
        assert second.plan()
        second.reader.stop()
        assert committed(cluster) == {("t", 0): 0}


def test_commits_come_no_more_often_than_told(cluster: MockCluster, streaming: Streaming) -> None:
    query = streaming(commitGroup="g", commitIntervalMs="60000")
    for _ in range(5):
        numbers(cluster, 1)
        query.run()
    query.reader.stop()
    assert cluster.count("OffsetCommit") == 1


def test_offsets_that_stay_are_committed_again_before_brokers_forget_them(
    cluster: MockCluster, streaming: Streaming, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = streaming(commitGroup="g", commitIntervalMs="0")
    query.run()
    query.reader.stop()
    before = cluster.count("OffsetCommit")
    query.plan()
    query.reader.stop()
    assert cluster.count("OffsetCommit") == before
    monkeypatch.setattr("gkafka.spark.groupcommits.AGAIN_S", 0.0)
    query.plan()
    query.reader.stop()
    assert cluster.count("OffsetCommit") == before + 1


def test_a_commit_that_fails_is_told_once_and_never_ends_the_query(
    cluster: MockCluster, streaming: Streaming, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.on("OffsetCommit", Error(25), times=None)  # UNKNOWN_MEMBER_ID
    query = streaming(commitGroup="g", commitIntervalMs="0")
    for _ in range(3):
        numbers(cluster, 1)
        assert len(query.run(1)) == 1
        query.reader.stop()
    (told,) = [r.getMessage() for r in caplog.records if r.name == "gkafka.spark.groupcommits"]
    assert "the progress of the query is not committed to group 'g' (the query goes on)" in told
    assert "give commitGroup a group that nobody else uses" in told


def test_a_slow_coordinator_does_not_hold_up_a_batch(cluster: MockCluster, streaming: Streaming) -> None:
    query = streaming(commitGroup="g", commitIntervalMs="0")
    numbers(cluster, 1)
    with held(cluster, "OffsetCommit"):
        query.run()
        assert committed(cluster) == {}
    query.reader.stop()
    assert committed(cluster) == {("t", 0): 0}


def test_partitions_that_are_gone_do_not_keep_the_others_from_being_committed(cluster: MockCluster, streaming: Streaming) -> None:
    checkpoint = Checkpoint([json.dumps({"gone": {"0": 5}, "t": {"0": 0}})], 1)
    query = streaming(checkpoint, commitGroup="g", failOnDataLoss="false")
    query.run()
    query.reader.stop()
    assert committed(cluster) == {("t", 0): 0}


def test_without_commit_group_nothing_is_committed(cluster: MockCluster, streaming: Streaming) -> None:
    numbers(cluster, 1)
    query: Query = streaming(kafka__group__id="g")
    query.run()
    assert cluster.count("OffsetCommit") == 0
