"""The stream reader driven as Spark's runner drives it, without Spark: batches, restarts, caps, AvailableNow, what is lost."""

from __future__ import annotations

import inspect
import json
import logging
import pickle
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows
from pyspark.sql.types import BinaryType, LongType, StructField, StructType

from gkafka.exceptions import ConfigurationError, UnknownTopicOrPartition
from gkafka.handlers import ThreadingHandler
from gkafka.spark.offsets import DataLossError
from gkafka.spark.source import GKafkaDataSource, kafka_schema
from gkafka.spark.streamdriver import AvailableNowError
from gkafka.spark.streamreader import GKafkaStreamReader
from gkafka.testing import Close, Edit, Error, MockCluster
from tests.kit.clock import soon
from tests.records.handmade import TRANSACTIONAL, marker, values
from tests.spark.streaming import Checkpoint, OldQuery, Query, ends
from tests.spark.test_source_calls import numbers, produce

Streaming = Callable[..., Query]
KINDS = [Query, OldQuery]


@pytest.fixture
def streaming(cluster: MockCluster) -> Streaming:
    """A query of topic "t" from its beginning with more options; a name's "__" stands for a dot. Lists of ends and of partitions are never kept."""

    def make(checkpoint: Checkpoint | None = None, *, kind: type[Query] = Query, **more: Any) -> Query:
        run = {name: more.pop(name) for name in ("available_now", "once", "schema") if name in more}
        given = {
            "subscribe": "t",
            "kafka.bootstrap.servers": cluster.bootstrap,
            "startingOffsets": "earliest",
            "offsetCacheMs": "0",
            "fetchOffset.retryIntervalMs": "1",
            **{k.replace("__", "."): v for k, v in more.items()},
        }
        options = {name.lower(): value for name, value in given.items() if value is not None}
        return kind(options, checkpoint if checkpoint is not None else Checkpoint(), **run)

    return make


@pytest.fixture(autouse=True)
def _partitions_are_looked_for_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gkafka.spark.streamdriver.PARTITIONS_S", 0.0)


def counts(batches: list[list[dict[str, Any]]]) -> list[int]:
    return [len(rows) for rows in batches]


# -- the contract with Spark -------------------------------------------------------------------------------------------
def test_the_signature_tells_spark_that_limits_are_honoured() -> None:
    reader = GKafkaDataSource(options={}).streamReader(schema=kafka_schema())
    assert len(inspect.signature(reader.latestOffset).parameters) > 0


def test_a_readers_constructor_never_raises_and_each_of_its_calls_does() -> None:
    reader = pickle.loads(pickle.dumps(GKafkaStreamReader({"subscribe": "t"}, kafka_schema())))
    for call in (
        reader.prepareForTriggerAvailableNow,
        reader.initialOffset,
        reader.getDefaultReadLimit,
        reader.latestOffset,
        reader.reportLatestOffset,
        lambda: reader.latestOffset({}, ReadAllAvailable()),
        lambda: reader.partitions({}, {}),
    ):
        with pytest.raises(ConfigurationError, match=r"Option 'kafka\.bootstrap\.servers' must be specified"):
            call()
    reader.commit({})
    reader.stop()


def test_offsets_are_the_jvm_connectors_in_order(cluster: MockCluster, streaming: Streaming) -> None:
    cluster.create_topic("a-topic", 12)
    numbers(cluster, 3, "pair", 1)
    query = streaming(subscribe="pair,a-topic")
    query.run()
    begun = {str(i): 0 for i in sorted(range(12), key=int)}
    assert ends(query.checkpoint.offsets[-1]) == {"a-topic": begun, "pair": {"0": 0, "1": 3}}
    assert list(ends(query.checkpoint.offsets[-1])) == ["a-topic", "pair"]


@pytest.mark.parametrize(
    ("given", "limit"),
    [
        ({}, ReadAllAvailable()),
        ({"maxOffsetsPerTrigger": "7"}, ReadMaxRows(7)),
        ({"minOffsetsPerTrigger": "3"}, ReadMinRows(3)),
        ({"minOffsetsPerTrigger": "3", "maxOffsetsPerTrigger": "7"}, ReadMaxRows(7)),
    ],
)
def test_the_limit_that_spark_is_told(streaming: Streaming, given: dict[str, str], limit: Any) -> None:
    assert streaming(**given).reader.getDefaultReadLimit() == limit


# -- batches and restarts ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", KINDS)
def test_every_record_is_read_once_batch_after_batch(cluster: MockCluster, streaming: Streaming, kind: type[Query]) -> None:
    query = streaming(kind=kind)
    numbers(cluster, 3)
    assert counts(query.run()) == [3]
    assert query.run() == []
    produce(cluster, [{"value": b"later"}])
    assert counts(query.run()) == [1]
    assert query.values() == [b"0", b"1", b"2", b"later"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_restarted_query_goes_on_where_it_was(cluster: MockCluster, streaming: Streaming, kind: type[Query]) -> None:
    first = streaming(kind=kind)
    numbers(cluster, 3)
    first.run()
    produce(cluster, [{"value": b"later"}])
    second = streaming(first.checkpoint, kind=kind)
    assert [row["value"] for rows in second.run() for row in rows] == [b"later"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("start", ["earliest", "latest"])
def test_a_batch_that_was_planned_is_read_again_with_the_same_offsets(
    cluster: MockCluster, streaming: Streaming, kind: type[Query], start: str
) -> None:
    first = streaming(kind=kind, startingOffsets=start)
    first.run(1)
    numbers(cluster, 3)
    assert first.plan()
    numbers(cluster, 5)
    second = streaming(first.checkpoint, kind=kind, startingOffsets=start)
    assert counts(second.run()) == [3, 5]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("given", [{"startingOffsets": "latest"}, {"startingOffsets": '{"t":{"0":-1}}'}])
def test_a_crash_in_the_first_batch_of_a_query_that_begins_at_the_end_loses_nothing(
    cluster: MockCluster, streaming: Streaming, kind: type[Query], given: dict[str, str]
) -> None:
    numbers(cluster, 2)
    first = streaming(kind=kind, **given)
    assert first.plan()
    produce(cluster, [{"value": b"after the start"}])
    second = streaming(first.checkpoint, kind=kind, **given)
    second.run()
    assert second.values() == [b"after the start"]


IN_PART = [
    {"startingOffsets": '{"pair":{"0":-1,"1":-2}}'},
    {"startingTimestamp": "5000", "startingOffsetsByTimestampStrategy": "latest"},
    {"startingOffsetsByTimestamp": '{"pair":{"0":5000,"1":4999}}', "startingOffsetsByTimestampStrategy": "latest"},
]
"""Partition 0 begins at its end, 1 at its beginning."""


def old_and_new(cluster: MockCluster) -> None:
    produce(cluster, [{"value": b"old", "timestamp": 1000}], "pair")
    produce(cluster, [{"value": b"new", "timestamp": 5000, "partition": 1}], "pair")


@pytest.mark.parametrize("given", IN_PART)
def test_trigger_once_of_a_query_that_begins_at_the_end_of_one_partition_reads_the_others(
    cluster: MockCluster, streaming: Streaming, given: dict[str, str]
) -> None:
    old_and_new(cluster)
    query = streaming(subscribe="pair", once=True, **given)
    query.run(1)
    assert query.values() == [b"new"]
    assert ends(query.checkpoint.offsets[0]) == {"pair": {"0": 1, "1": 1}}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("given", IN_PART)
@pytest.mark.parametrize("timestamp", [10, 9000])  # with the latter the partition would begin at that record by now
def test_a_crash_in_the_first_batch_of_a_query_that_begins_at_the_end_of_one_partition_loses_nothing(
    cluster: MockCluster, streaming: Streaming, kind: type[Query], given: dict[str, str], timestamp: int
) -> None:
    old_and_new(cluster)
    first = streaming(subscribe="pair", kind=kind, **given)
    first.reader.initialOffset()
    produce(cluster, [{"value": b"after the start", "timestamp": timestamp}], "pair")
    assert first.plan()
    produce(cluster, [{"value": b"after the plan", "timestamp": timestamp}], "pair")
    second = streaming(first.checkpoint, subscribe="pair", kind=kind, **given)
    second.run()
    assert [row["value"] for row in second.rows[0]] == [b"new"]
    assert second.values() == [b"new", b"after the start", b"after the plan"]


def test_a_topic_that_comes_before_the_first_batch_of_a_query_at_the_end_is_read_whole(cluster: MockCluster, streaming: Streaming) -> None:
    given = {"subscribe": None, "subscribePattern": "^(pair|late)", **IN_PART[1]}
    old_and_new(cluster)
    first = streaming(**given)
    first.reader.initialOffset()
    cluster.create_topic("late", 1)
    produce(cluster, [{"value": b"late", "timestamp": 10}], "late")
    assert first.plan()
    second = streaming(first.checkpoint, **given)
    second.run()
    assert second.values() == [b"new", b"late"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_partition_that_comes_before_the_first_batch_is_run_again_is_no_loss(
    cluster: MockCluster, streaming: Streaming, kind: type[Query]
) -> None:
    numbers(cluster, 2)
    first = streaming(kind=kind)
    assert first.plan()
    cluster.add_partitions("t", 2)
    numbers(cluster, 3, "t", 1)
    assert counts(streaming(first.checkpoint, kind=kind).run()) == [2, 3]


def test_records_that_come_between_the_calls_of_the_first_batch_are_no_loss(cluster: MockCluster, streaming: Streaming) -> None:
    numbers(cluster, 2)
    query = streaming(startingOffsets="latest")
    start = query.reader.initialOffset()
    numbers(cluster, 3)
    assert query.reader.initialOffset() == start == {"t": {"0": 2}}


def test_every_way_to_begin(cluster: MockCluster, streaming: Streaming) -> None:
    produce(cluster, [{"value": b"%d" % i, "timestamp": 1000 + i} for i in range(6)])
    for given, first in (
        ({"startingOffsets": '{"t":{"0":2}}'}, 2),
        ({"startingOffsets": '{"t":{"0":-2}}'}, 0),
        ({"startingTimestamp": "1004"}, 4),
        ({"startingOffsetsByTimestamp": '{"t":{"0":1003}}'}, 3),
        ({"startingTimestamp": "9999", "startingOffsetsByTimestampStrategy": "latest"}, 6),
    ):
        query = streaming(**given)
        query.run()
        assert query.values() == [b"%d" % i for i in range(first, 6)], given


def test_a_start_that_names_other_partitions_is_refused(streaming: Streaming) -> None:
    with pytest.raises(ConfigurationError, match="Partitions specified for Kafka start offsets don't match what are assigned"):
        streaming(startingOffsets='{"t":{"0":1,"1":2}}').run()
    with pytest.raises(ConfigurationError, match="No offset matched from request of topic-partition t-0 and timestamp 5"):
        streaming(startingTimestamp="5").run()


def test_a_topic_that_is_not_there_is_named(streaming: Streaming) -> None:
    with pytest.raises(UnknownTopicOrPartition, match="'nosuch' does not exist"):
        streaming(subscribe="nosuch").run()


def test_a_checkpoint_of_something_else_is_told(streaming: Streaming) -> None:
    with pytest.raises(ConfigurationError, match=r"an offset in the checkpoint=.*Expected e\.g\."):
        streaming(Checkpoint(['{"offset": 5}'], 1)).run()


def test_a_part_of_the_columns_in_any_order(cluster: MockCluster, streaming: Streaming) -> None:
    numbers(cluster, 2)
    schema = StructType([StructField("offset", LongType()), StructField("value", BinaryType())])
    query = streaming(schema=schema)
    query.run()
    assert query.rows == [[{"offset": 0, "value": b"0"}, {"offset": 1, "value": b"1"}]]


def test_headers_come_when_asked_for(cluster: MockCluster, streaming: Streaming) -> None:
    produce(cluster, [{"value": b"v", "headers": [("a", b"1")]}])
    query = streaming(includeHeaders="true")
    ((row,),) = query.run()
    assert row["headers"] == [{"key": "a", "value": b"1"}]


def test_a_batch_is_cut_into_tasks_as_told(cluster: MockCluster, streaming: Streaming) -> None:
    numbers(cluster, 100)
    for given, tasks in (({"minPartitions": "4"}, 4), ({"maxRecordsPerPartition": "30"}, 4)):
        query = streaming(**given)
        assert len(query.reader.partitions({"t": {"0": 0}}, {"t": {"0": 100}})) == tasks


# -- new partitions, and what is gone ----------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", KINDS)
def test_partitions_that_are_added_are_read_from_their_beginning(cluster: MockCluster, streaming: Streaming, kind: type[Query]) -> None:
    query = streaming(kind=kind, startingOffsets="latest", maxOffsetsPerTrigger="2")
    query.run()
    cluster.add_partitions("t", 3)
    numbers(cluster, 3, "t", 2)
    query.run()
    assert query.values() == [b"0", b"1", b"2"]


def test_topics_that_match_later_are_read_too(cluster: MockCluster, streaming: Streaming) -> None:
    query = streaming(subscribe=None, subscribePattern="ev.*")
    query.run()
    cluster.create_topic("events", 1)
    numbers(cluster, 2, "events")
    assert counts(query.run()) == [2]


def test_partitions_that_are_gone_are_data_loss_even_for_a_new_reader(cluster: MockCluster, streaming: Streaming) -> None:
    numbers(cluster, 2, "pair", 1)
    first = streaming(subscribe="t,pair")
    first.run()
    cluster.delete_topic("pair")
    numbers(cluster, 1)
    second = streaming(first.checkpoint, subscribe=None, subscribePattern="t|pair")
    with pytest.raises(
        DataLossError, match=r"Some data may have been lost.*failOnDataLoss to false.*Partitions pair-0, pair-1 have been deleted"
    ):
        second.run()
    third = streaming(Checkpoint(first.checkpoint.offsets[:1], 1), subscribe=None, subscribePattern="t|pair", failOnDataLoss="false")
    assert counts(third.run()) == [1]


def test_a_topic_that_is_deleted_under_the_query_is_data_loss(cluster: MockCluster, streaming: Streaming) -> None:
    numbers(cluster, 1, "pair", 1)
    query, lenient = (streaming(subscribe="t,pair", failOnDataLoss=fail) for fail in ("true", "false"))
    for each in (query, lenient):
        each.run()
    cluster.delete_topic("pair")
    numbers(cluster, 2)
    with pytest.raises(DataLossError, match="Partitions pair-0, pair-1 have been deleted"):
        query.run()
    assert counts(lenient.run()) == [2]


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_that_is_run_again_without_a_topic_that_is_gone_is_data_loss_and_no_dead_end(
    cluster: MockCluster, streaming: Streaming, kind: type[Query]
) -> None:
    first = streaming(kind=kind, subscribe="t,pair")
    first.run(1)
    numbers(cluster, 2)
    numbers(cluster, 2, "pair", 1)
    assert first.plan()
    cluster.delete_topic("pair")
    planned = list(first.checkpoint.offsets)
    with pytest.raises(DataLossError, match=r"failOnDataLoss to false.*Partitions pair-1 have been deleted"):
        streaming(Checkpoint(planned, 1), kind=kind, subscribe="t,pair").run()
    lenient = streaming(Checkpoint(planned, 1), kind=kind, subscribe="t,pair", failOnDataLoss="false")
    assert counts(lenient.run(1)) == [2]


@pytest.mark.parametrize("given", [{"subscribe": "t,pair"}, {"subscribe": None, "assign": '{"t":[0],"pair":[0,1]}'}])
def test_a_topic_that_is_certain_to_be_gone_is_not_waited_for_in_each_batch(
    cluster: MockCluster, streaming: Streaming, caplog: pytest.LogCaptureFixture, given: dict[str, str]
) -> None:
    query = streaming(**given, failOnDataLoss="false")
    numbers(cluster, 2)
    query.run()
    cluster.delete_topic("pair")
    numbers(cluster, 2)
    query.run()
    assert "try 2 of 3 to learn partitions" in caplog.text
    caplog.clear()
    numbers(cluster, 2)
    assert counts(query.run()) == [2]
    assert "to learn partitions" not in caplog.text
    cluster.create_topic("pair", 2)
    numbers(cluster, 1, "pair", 1)
    assert counts(query.run()) == [1]
    cluster.delete_topic("pair")
    query.run()
    assert "try 2 of 3 to learn partitions" in caplog.text


@pytest.mark.parametrize("how", ["deleted", "not named", "not described"])
def test_partitions_that_are_gone_may_be_there_and_the_error_says_so(cluster: MockCluster, streaming: Streaming, how: str) -> None:
    """A broker leaves out of a list of all topics those that the client may not describe."""
    numbers(cluster, 2, "pair")
    first = streaming(subscribe=None, subscribePattern="^(t|pair)$")
    first.run()
    if how == "deleted":
        cluster.delete_topic("pair")
    if how == "not described":
        cluster.on("Metadata", Edit(lambda _, answer: without(answer, "pair")), times=None)
    numbers(cluster, 1)
    second = streaming(first.checkpoint, subscribe=None, subscribePattern="^t$" if how == "not named" else "^(t|pair)$")
    text = "Partitions pair-0, pair-1 have been deleted, or the options do not name them any more, or the right to describe them is gone."
    with pytest.raises(DataLossError, match=text):
        second.run()


def without(answer: Any, topic: str) -> Any:
    answer.topics = [told for told in answer.topics if told.name != topic]
    return answer


def deny(_: Any, answer: Any) -> Any:
    """As brokers that name a topic that they do not describe."""
    for told in answer.topics:
        if told.name == "secret":
            told.error_code, told.partitions = 29, []
    return answer


def test_a_pattern_tells_once_of_a_topic_that_is_denied_and_which_right_is_missing(
    cluster: MockCluster, streaming: Streaming, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.create_topic("secret", 1)
    cluster.on("Metadata", Edit(deny), times=None)
    query = streaming(subscribe=None, subscribePattern="^t$|secret")
    for _ in range(3):
        numbers(cluster, 2)
        assert counts(query.run()) == [2]
    (told,) = [text for text in caplog.messages if "secret" in text]
    assert told.startswith(
        "subscribePattern: topic 'secret' matches and is left out: Metadata secret: error 29: Topic authorization failed"
    )
    assert told.endswith("(the right that is missing is Describe on topic 'secret')")


def test_a_checkpoint_that_names_partitions_that_never_were_is_data_loss(cluster: MockCluster, streaming: Streaming) -> None:
    numbers(cluster, 2)
    checkpoint = Checkpoint([json.dumps({"t": {"0": 1, "7": 5}, "other": {"0": 9}})], 1)
    with pytest.raises(DataLossError, match="Partitions other-0, t-7 have been deleted"):
        streaming(checkpoint).run()
    lenient = streaming(Checkpoint(checkpoint.offsets[:1], 1), failOnDataLoss="false")
    lenient.run()
    assert lenient.values() == [b"1"]


def test_a_topic_that_was_made_again_is_data_loss(cluster: MockCluster, streaming: Streaming, caplog: pytest.LogCaptureFixture) -> None:
    checkpoint = Checkpoint([json.dumps({"t": {"0": 500}})], 1)
    numbers(cluster, 2)
    with pytest.raises(DataLossError, match="Partition t-0 offset was changed from 500 to 2"):
        streaming(checkpoint).run()
    lenient = streaming(Checkpoint(checkpoint.offsets[:1], 1), failOnDataLoss="false")
    with caplog.at_level(logging.WARNING):
        assert counts(lenient.run()) == [0]
    assert "offset was changed from 500 to 2" in caplog.text
    assert "lie before what was read" in caplog.text
    numbers(cluster, 1)
    assert counts(lenient.run()) == [1]


def test_a_new_partition_whose_first_records_are_gone_is_data_loss(cluster: MockCluster, streaming: Streaming) -> None:
    numbers(cluster, 5, "pair", 1)
    cluster.delete_records("pair", 1, 2)
    checkpoint = Checkpoint([json.dumps({"pair": {"0": 0}})], 1)
    with pytest.raises(DataLossError, match="Added partition pair-1 starts from 2 instead of 0"):
        streaming(checkpoint, subscribe="pair").run()
    lenient = streaming(Checkpoint(checkpoint.offsets[:1], 1), subscribe="pair", failOnDataLoss="false")
    assert counts(lenient.run()) == [3]


def test_records_that_were_aged_out_are_data_loss(cluster: MockCluster, streaming: Streaming) -> None:
    numbers(cluster, 10)
    cluster.delete_records("t", 0, 4)
    checkpoint = Checkpoint([json.dumps({"t": {"0": 1}})], 1)
    with pytest.raises(DataLossError, match=r"Could not read records in offset \[1, 10\)"):
        streaming(checkpoint).run()
    lenient = streaming(Checkpoint(checkpoint.offsets[:1], 1), failOnDataLoss="false")
    assert counts(lenient.run()) == [6]


# -- gaps --------------------------------------------------------------------------------------------------------------
def test_a_batch_ends_at_its_end_even_if_no_record_is_there(cluster: MockCluster, streaming: Streaming) -> None:
    cluster.append("t", 0, values(3, attributes=TRANSACTIONAL, producer_id=7, producer_epoch=0))
    cluster.append("t", 0, marker(1, offset=3, producer_id=7, producer_epoch=0))
    query = streaming(kafka__isolation__level="read_committed")
    assert counts(query.run()) == [3]
    assert ends(query.checkpoint.offsets[-1]) == {"t": {"0": 4}}
    assert query.run() == []


def markers(cluster: MockCluster, offset: int, count: int = 1) -> None:
    """The ends of transactions that wrote nothing to topic "t"."""
    for at in range(offset, offset + count):
        cluster.append("t", 0, marker(at % 2, offset=at, producer_id=7, producer_epoch=0))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("level", ["read_committed", "read_uncommitted"])
def test_markers_alone_are_one_batch_without_rows_and_not_another_one(
    cluster: MockCluster, streaming: Streaming, kind: type[Query], level: str
) -> None:
    numbers(cluster, 2)
    query = streaming(kind=kind, kafka__isolation__level=level)
    query.run()
    for end in (3, 4):
        markers(cluster, end - 1)
        assert counts(query.run()) == [0]
        assert ends(query.checkpoint.offsets[-1]) == {"t": {"0": end}}
        assert [query.plan() for _ in range(3)] == [False, False, False]
    restarted = streaming(query.checkpoint, kind=kind, kafka__isolation__level=level)
    assert not restarted.plan()
    produce(cluster, [{"value": b"behind them"}])
    restarted.run()
    assert restarted.values() == [b"behind them"]


@pytest.mark.parametrize("level", ["read_committed", "read_uncommitted"])
def test_markers_alone_leave_no_lag(cluster: MockCluster, streaming: Streaming, level: str) -> None:
    query = streaming(available_now=True, kafka__isolation__level=level, commitGroup="g", commitIntervalMs="0")
    numbers(cluster, 2)
    markers(cluster, 2, 2)
    assert counts(query.run()) == [2]
    assert query.reader.reportLatestOffset() == ends(query.checkpoint.offsets[-1]) == {"t": {"0": 4}}
    assert cluster.committed("g")["t", 0].offset == cluster.offsets("t", 0)[1] == 4


def test_available_now_passes_markers_by_its_cap_and_ends(cluster: MockCluster, streaming: Streaming) -> None:
    markers(cluster, 0, 5)
    query = streaming(available_now=True, maxOffsetsPerTrigger="2")
    assert counts(query.run()) == [0, 0, 0]
    assert ends(query.checkpoint.offsets[-1]) == {"t": {"0": 5}}


def test_a_crash_in_a_batch_of_markers_alone_goes_on_behind_them(cluster: MockCluster, streaming: Streaming) -> None:
    numbers(cluster, 2)
    first = streaming(available_now=True)
    first.run()
    markers(cluster, 2, 3)
    assert first.plan() is False, "what came since is for another run"
    second = streaming(first.checkpoint, available_now=True, maxOffsetsPerTrigger="2")
    assert second.plan()
    produce(cluster, [{"value": b"behind them"}])
    third = streaming(first.checkpoint, available_now=True)
    assert counts(third.run()) == [0, 1]


def test_records_of_open_transactions_are_not_read_before_they_are_committed(cluster: MockCluster, streaming: Streaming) -> None:
    cluster.append("t", 0, values(3))
    cluster.append("t", 0, values(2, base_offset=3, attributes=TRANSACTIONAL, producer_id=7, producer_epoch=0))
    cluster.set_transactions("t", 0, aborted=[], stable=3)
    query = streaming(kafka__isolation__level="read_committed")
    assert counts(query.run()) == [3]
    assert counts(streaming().run()) == [5]


# -- how much of it ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_has_no_more_offsets_than_the_cap(cluster: MockCluster, streaming: Streaming, kind: type[Query]) -> None:
    numbers(cluster, 10)
    query = streaming(kind=kind, maxOffsetsPerTrigger="4")
    assert counts(query.run()) == [4, 4, 2]


def test_partitions_share_the_cap_in_proportion(cluster: MockCluster, streaming: Streaming) -> None:
    numbers(cluster, 90, "pair", 0)
    numbers(cluster, 10, "pair", 1)
    query = streaming(subscribe="pair", maxOffsetsPerTrigger="20")
    query.run(1)
    assert ends(query.checkpoint.offsets[0]) == {"pair": {"0": 18, "1": 2}}


def test_a_cap_that_divides_what_waits_leaves_nothing_for_one_more_batch(cluster: MockCluster, streaming: Streaming) -> None:
    for topic, partition in (("pair", 0), ("pair", 1), ("t", 0)):
        numbers(cluster, 5, topic, partition)
    assert counts(streaming(subscribe="pair,t", maxOffsetsPerTrigger="5").run()) == [5, 5, 5]


def test_trigger_once_takes_everything_whatever_the_cap(cluster: MockCluster, streaming: Streaming) -> None:
    numbers(cluster, 10)
    assert counts(streaming(maxOffsetsPerTrigger="4", once=True).run()) == [10]


def test_a_batch_waits_for_the_least_that_was_asked_for(
    cluster: MockCluster, streaming: Streaming, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = streaming(minOffsetsPerTrigger="5", maxTriggerDelay="10m")
    numbers(cluster, 1)
    assert counts(query.run()) == [1]  # the first batch never waits
    numbers(cluster, 4)
    assert counts(query.run()) == []
    numbers(cluster, 1)
    assert counts(query.run()) == [5]
    numbers(cluster, 1)
    assert counts(query.run()) == []
    monkeypatch.setattr(ThreadingHandler, "monotonic", staticmethod(lambda: soon(600)))
    assert counts(query.run()) == [1]


def test_the_least_and_the_cap_go_together(cluster: MockCluster, streaming: Streaming) -> None:
    query = streaming(minOffsetsPerTrigger="3", maxOffsetsPerTrigger="4")
    numbers(cluster, 9)
    assert counts(query.run()) == [4, 4]


# -- Trigger.AvailableNow ----------------------------------------------------------------------------------------------
def test_available_now_reads_what_was_there_in_capped_batches_and_ends(cluster: MockCluster, streaming: Streaming) -> None:
    numbers(cluster, 10)
    query = streaming(available_now=True, maxOffsetsPerTrigger="4")
    assert counts(query.run(1)) == [4]
    numbers(cluster, 3)
    cluster.add_partitions("t", 2)
    numbers(cluster, 1, "t", 1)
    assert counts(query.run()) == [4, 2]
    assert counts(streaming(query.checkpoint, available_now=True).run()) == [4]


def test_available_now_does_not_wait_for_the_least(cluster: MockCluster, streaming: Streaming) -> None:
    query = streaming(available_now=True, minOffsetsPerTrigger="6", maxOffsetsPerTrigger="7")
    numbers(cluster, 10)
    assert counts(query.run()) == [7, 3]


def test_available_now_of_a_new_query_at_the_end_reads_nothing(cluster: MockCluster, streaming: Streaming) -> None:
    numbers(cluster, 10)
    query = streaming(available_now=True, startingOffsets="latest")
    query.reader.prepareForTriggerAvailableNow()
    numbers(cluster, 5)
    cluster.add_partitions("t", 2)
    query._begun = True
    assert counts(query.run()) == [0]
    assert counts(streaming(query.checkpoint, available_now=True).run()) == [5]


def test_available_now_finishes_what_an_earlier_run_planned(cluster: MockCluster, streaming: Streaming) -> None:
    numbers(cluster, 3)
    first = streaming(available_now=True)
    assert first.plan()
    cluster.add_partitions("t", 2)
    numbers(cluster, 2, "t", 1)
    assert counts(streaming(first.checkpoint, available_now=True).run()) == [3, 2]


def places(*queries: Query, of: str = "t") -> list[tuple[int, int]]:
    """Partition and offset of each record of a topic in the queries' batches."""
    return sorted((row["partition"], row["offset"]) for query in queries for rows in query.rows for row in rows if row["topic"] == of)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("cap", ["2", None])
def test_available_now_that_crashed_goes_on_though_partitions_were_added(
    cluster: MockCluster, streaming: Streaming, kind: type[Query], cap: str | None
) -> None:
    """SPARK-53560: the batch that was planned knows nothing of them, and the end of the new run does."""
    numbers(cluster, 5)
    first = streaming(available_now=True, maxOffsetsPerTrigger="2")
    first.run(1)
    assert first.plan()
    cluster.add_partitions("t", 3)
    numbers(cluster, 3, "t", 1)
    numbers(cluster, 1, "t", 2)
    second = streaming(first.checkpoint, kind=kind, available_now=True, maxOffsetsPerTrigger=cap)
    assert counts(second.run()) == ([2, 5] if cap is None else [2, 3, 2])
    assert places(first, second) == [*((0, offset) for offset in range(5)), (1, 0), (1, 1), (1, 2), (2, 0)]
    assert streaming(second.checkpoint, available_now=True).run() == []


def test_available_now_that_crashes_each_time_goes_on_though_each_time_partitions_were_added(
    cluster: MockCluster, streaming: Streaming
) -> None:
    given = {"available_now": True, "maxOffsetsPerTrigger": "2", "commitGroup": "g"}
    numbers(cluster, 5)
    runs = [streaming(**given)]
    runs[0].run(1)
    for count in (2, 3, 4):
        assert runs[-1].plan()
        cluster.add_partitions("t", count)
        numbers(cluster, 2, "t", count - 1)
        runs.append(streaming(runs[-1].checkpoint, **given))
        runs[-1].run(1)
    runs[-1].run()
    expected = [*((0, offset) for offset in range(5)), *((partition, offset) for partition in (1, 2, 3) for offset in (0, 1))]
    assert places(*runs) == expected
    assert {at: found.offset for at, found in cluster.committed("g").items()} == {("t", 0): 5, ("t", 1): 2, ("t", 2): 2, ("t", 3): 2}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"subscribePattern": "^(t|late)$"}, {"subscribePattern": "^(t|late)$"}),
        ({"assign": '{"t":[0]}'}, {"assign": '{"t":[0],"late":[0]}'}),
    ],
)
def test_available_now_that_crashed_reads_a_topic_that_came_meanwhile(
    cluster: MockCluster, streaming: Streaming, before: dict[str, str], after: dict[str, str]
) -> None:
    numbers(cluster, 5)
    first = streaming(available_now=True, maxOffsetsPerTrigger="2", subscribe=None, **before)
    first.run(1)
    assert first.plan()
    cluster.create_topic("late", 1)
    numbers(cluster, 3, "late")
    second = streaming(first.checkpoint, available_now=True, maxOffsetsPerTrigger="4", subscribe=None, **after)
    second.run()
    assert places(first, second) == [(0, offset) for offset in range(5)]
    assert places(second, of="late") == [(0, 0), (0, 1), (0, 2)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", ["deleted", "not matched any more"])
def test_available_now_that_crashed_tells_of_a_topic_that_left_the_pattern_and_goes_on_if_allowed(
    cluster: MockCluster, streaming: Streaming, caplog: pytest.LogCaptureFixture, kind: type[Query], how: str
) -> None:
    given = {"subscribe": None, "subscribePattern": "^(t|pair)$", "available_now": True}
    numbers(cluster, 5)
    numbers(cluster, 3, "pair", 1)
    first = streaming(maxOffsetsPerTrigger="4", **given)
    first.run(1)
    assert first.plan()
    planned = json.loads(first.checkpoint.offsets[1])["t"]["0"]
    if how == "deleted":
        cluster.delete_topic("pair")
    else:
        given["subscribePattern"] = "^t$"
    cluster.add_partitions("t", 2)
    numbers(cluster, 2, "t", 1)
    offsets = list(first.checkpoint.offsets)
    for _ in range(2):  # the same each time, and nothing is counted as read
        with pytest.raises(DataLossError, match=r"failOnDataLoss to false.*Partitions pair-1 "):
            streaming(Checkpoint(list(offsets), 1), kind=kind, **given).run()
    caplog.clear()
    lenient = streaming(Checkpoint(list(offsets), 1), kind=kind, failOnDataLoss="false", **given)
    lenient.run()
    assert places(first, lenient) == [*((0, offset) for offset in range(5)), (1, 0), (1, 1)]
    assert len(lenient.rows[0]) == planned - json.loads(offsets[0])["t"]["0"], "the batch that was planned, without what is gone"
    assert ends(lenient.checkpoint.offsets[-1]) == {"t": {"0": 5, "1": 2}}
    assert "Partitions pair-0, pair-1 " in caplog.text
    again = streaming(lenient.checkpoint, kind=kind, failOnDataLoss="false", **given)
    assert again.run() == []


def test_available_now_tells_of_partitions_that_are_lost_on_its_way(cluster: MockCluster, streaming: Streaming) -> None:
    for lenient in ("true", "false"):
        numbers(cluster, 8, "pair", 0)
        query = streaming(subscribe="pair", available_now=True, maxOffsetsPerTrigger="4", failOnDataLoss=lenient)
        query.run(1)
        cluster.delete_topic("pair")
        with pytest.raises(AvailableNowError, match=r"have been lost during running query with Trigger\.AvailableNow.*restart your query"):
            query.run()
        cluster.create_topic("pair", 2)


def test_available_now_tells_of_an_end_that_is_not_there_any_more(cluster: MockCluster, streaming: Streaming) -> None:
    numbers(cluster, 8)
    query = streaming(available_now=True, maxOffsetsPerTrigger="6")
    query.run(1)
    cluster.truncate("t", 0, 3)
    with pytest.raises(AvailableNowError, match="t-0: latest offset: 0, end offset: 8"):
        query.run()


# -- asking the cluster ------------------------------------------------------------------------------------------------
def test_an_idle_query_asks_no_more_often_than_told(cluster: MockCluster, streaming: Streaming, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    query = streaming(offsetCacheMs="60000")
    numbers(cluster, 3)
    query.run()
    asked = cluster.count("ListOffsets"), cluster.count("Metadata")
    for _ in range(50):
        assert not query.plan()
    assert (cluster.count("ListOffsets"), cluster.count("Metadata")) == asked


def test_what_is_kept_is_not_used_once_more_was_read(cluster: MockCluster, streaming: Streaming) -> None:
    query = streaming(offsetCacheMs="60000")
    numbers(cluster, 3)
    query.run()
    moved = {"t": {"0": 4}}
    produce(cluster, [{"value": b"a"}, {"value": b"b"}])
    assert ends(query.reader.latestOffset(moved, ReadAllAvailable())) == {"t": {"0": 5}}


def test_the_progress_has_the_latest_offset_beside_the_batchs_end(cluster: MockCluster, streaming: Streaming) -> None:
    numbers(cluster, 10)
    query = streaming(maxOffsetsPerTrigger="4")
    query.run(1)
    assert ends(query.checkpoint.offsets[0]) == {"t": {"0": 4}}
    assert query.reader.reportLatestOffset() == {"t": {"0": 10}}


@pytest.mark.parametrize("api", ["Metadata", "ListOffsets"])
def test_a_connection_that_breaks_under_a_query_is_made_again(cluster: MockCluster, streaming: Streaming, api: str) -> None:
    query = streaming()
    numbers(cluster, 3)
    query.run()
    cluster.on(api, Close(before=True))
    numbers(cluster, 2)
    assert counts(query.run()) == [2]


def test_a_broker_that_is_away_for_a_moment_does_not_end_the_query(cluster: MockCluster, streaming: Streaming) -> None:
    query = streaming()
    numbers(cluster, 3)
    query.run()
    cluster.on("ListOffsets", Error(6))  # NOT_LEADER_OR_FOLLOWER
    cluster.on("Metadata", Error(5), when=lambda request: bool(request.message.topics))  # LEADER_NOT_AVAILABLE
    numbers(cluster, 2)
    assert counts(query.run()) == [2]


def test_the_driver_keeps_its_connections_from_batch_to_batch(cluster: MockCluster, streaming: Streaming) -> None:
    query = streaming()
    numbers(cluster, 1)
    query.run()
    before = cluster.count("ApiVersions")
    for _ in range(5):
        query.plan()
    assert cluster.count("ApiVersions") == before


# -- Spark 4.0 and 4.1 -------------------------------------------------------------------------------------------------
OLD_SPARK = """
import sys
import pyspark.sql.datasource
sys.modules["pyspark.sql.streaming.datasource"] = None  # Spark 4.0 and 4.1 have no such module
from gkafka.spark.source import GKafkaDataSource, kafka_schema
source = GKafkaDataSource(options={"subscribe": "t", "kafka.bootstrap.servers": sys.argv[1], "startingoffsets": "earliest", "maxoffsetspertrigger": "2"})
reader = source.streamReader(schema=kafka_schema())
end = reader.latestOffset()
start = reader.initialOffset()
(task,) = reader.partitions(start, end)
print(start, end, [row["value"] for batch in reader.read(task) for row in batch.to_pylist()])
"""


def test_a_spark_without_limits_and_available_now_has_all_else(cluster: MockCluster) -> None:
    numbers(cluster, 3)
    done = subprocess.run([sys.executable, "-c", OLD_SPARK, cluster.bootstrap], capture_output=True, text=True, timeout=60, check=True)
    end = {"gkafka:tasks=1": {}, 'gkafka:starts={"t":{"0":0}}': {}, "t": {"0": 2}}
    assert done.stdout.strip() == f"{{'t': {{'0': 0}}}} {end} [b'0', b'1']"
    assert "this Spark reads one batch with Trigger.AvailableNow" in done.stderr
