"""The writers that Spark calls, called as it calls them: by keyword, pickled, the same batch writer for the end, a new one of a stream for each."""

from __future__ import annotations

import importlib.util
import logging
import pickle
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pyarrow as pa
import pyspark.sql.datasource as api
import pytest
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.types import BinaryType, IntegerType, LongType, Row, StringType, StructField, StructType

import gkafka.spark
from gkafka.exceptions import ConfigurationError
from gkafka.spark import sink
from gkafka.spark.sink import GKafkaStreamWriter, GKafkaWriter, Written
from gkafka.spark.source import GKafkaDataSource
from gkafka.spark.update import STATELESS_AQE
from gkafka.testing import MockCluster

SCHEMA = StructType([StructField("value", StringType()), StructField("other", LongType()), StructField("key", BinaryType())])
ROWS = pa.RecordBatch.from_pydict({"value": ["a", "b"], "other": [1, 2], "key": [b"k", None]})
ROWS_OF_4_0 = [Row(value="a", other=1, key=bytearray(b"k")), Row(value=None, other=2, key=None)]
NAMES = {"sql.streaming.queryId": "q", "streaming.sql.batchId": "5", STATELESS_AQE: "false"}

Source = Callable[..., GKafkaDataSource]


@pytest.fixture
def source(cluster: MockCluster) -> Source:
    def make(**more: str) -> GKafkaDataSource:
        given = {"kafka.bootstrap.servers": cluster.bootstrap, "topic": "t", **{n.replace("__", "."): v for n, v in more.items()}}
        return GKafkaDataSource(options={name.lower(): value for name, value in given.items()})

    return make


@pytest.fixture
def in_task(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Makes this a Spark task with these local properties."""

    def enter(**changes: str | None) -> None:
        context = TaskContext.__new__(TaskContext)
        context._partitionId = 2
        context._localProperties = {name: value for name, value in {**NAMES, **changes}.items() if value is not None}
        monkeypatch.setattr(TaskContext, "_taskContext", context)

    return enter


def stored(cluster: MockCluster) -> list[Any]:
    return [(record.key, record.value) for record in cluster.log("t", 0)]


def moved(thing: Any) -> Any:
    """As it arrives in a worker."""
    return pickle.loads(pickle.dumps(thing))


def test_a_batch_writer_goes_to_the_workers_and_its_messages_come_back(source: Source, cluster: MockCluster) -> None:
    writer = source().writer(schema=SCHEMA, overwrite=False)
    assert isinstance(writer, DataSourceArrowWriter)
    message = moved(moved(writer).write(iter([ROWS])))
    assert isinstance(message, WriterCommitMessage)
    assert message == Written(records=2, last_offsets={("t", 0): 1})
    assert stored(cluster) == [(b"k", b"a"), (None, b"b")]
    writer.commit([message])
    writer.abort([message, None])


def test_a_stream_writer_is_made_anew_for_each_end(source: Source, cluster: MockCluster) -> None:
    message = moved(moved(source(checkpointLocation="/c", queryName="q").streamWriter(schema=SCHEMA, overwrite=True)).write(iter([ROWS])))
    assert message == Written(records=2, last_offsets={("t", 0): 1})
    source().streamWriter(schema=SCHEMA, overwrite=True).commit([message], batchId=3)
    source().streamWriter(schema=SCHEMA, overwrite=True).abort([None, message], batchId=3)


def test_what_was_written_is_told_to_the_log(source: Source, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "gkafka.spark.sink")
    writer = source().streamWriter(schema=SCHEMA, overwrite=False)
    writer.commit([Written(records=2), Written(replayed=True)], batchId=3)
    writer.abort([Written(records=2), None], batchId=3)
    assert caplog.messages == [
        "micro-batch 3: 2 records by 2 of 2 tasks, 1 of them done before",
        "micro-batch 3 failed; of its tasks that had ended: 2 records by 1 of 2 tasks, 0 of them done before",
    ]


def test_a_warning_is_given_once_for_all_micro_batches(source: Source, caplog: pytest.LogCaptureFixture) -> None:
    sink._warn.cache_clear()
    for _ in range(3):
        source(kafka__partitioner__availability__timeout__ms="1").streamWriter(schema=SCHEMA, overwrite=False)
    assert caplog.messages == [
        "kafka.partitioner.availability.timeout.ms has no effect: partitions without a leader get no records without a key"
    ]


def test_a_column_that_is_spelled_in_another_case_is_told(source: Source, caplog: pytest.LogCaptureFixture) -> None:
    sink._warn.cache_clear()
    schema = StructType([StructField("value", StringType()), StructField("KEY", StringType()), StructField("other", StringType())])
    source().streamWriter(schema=schema, overwrite=False)
    assert caplog.messages == ["column 'KEY' is not written: the case of names counts, and the one that is written is called 'key'"]


@pytest.mark.parametrize(
    ("options", "overwrite", "text"),
    [
        ({}, True, "Save mode Overwrite not allowed for Kafka. Allowed save modes are Append and ErrorIfExists (default)."),
        ({"exactlyOnce": "transactional"}, False, "exactlyOnce=transactional in a batch needs jobId"),
    ],
)
def test_a_batch_that_cannot_be_is_refused_on_the_driver(source: Source, options: dict[str, str], overwrite: bool, text: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        source(**options).writer(schema=SCHEMA, overwrite=overwrite)
    assert str(caught.value).startswith(text)


@pytest.mark.parametrize("given", [{"batchId": "4"}, {"jobId": "j", "exactlyOnce": "transactional"}])
def test_a_stream_has_its_own_names(source: Source, given: dict[str, str]) -> None:
    with pytest.raises(ConfigurationError, match="a stream has the number of its micro-batch and its id from its checkpoint"):
        source(**given).streamWriter(schema=SCHEMA, overwrite=False)


# -- exactly once --------------------------------------------------------------------------------------------------------
def test_a_stream_is_named_by_its_query_and_task(source: Source, cluster: MockCluster, in_task: Any) -> None:
    in_task()
    writer = source(exactlyOnce="transactional").streamWriter(schema=SCHEMA, overwrite=False)
    assert writer.write(iter([ROWS])) == Written(records=2, last_offsets={("t", 0): 1})
    assert writer.write(iter([ROWS])) == Written(replayed=True)
    assert cluster.committed("gkafka-spark-q-2")["t", 0].offset == 6
    in_task(**{"streaming.sql.batchId": "6"})
    assert writer.write(iter([ROWS])).records == 2


def test_a_micro_batch_of_write_stream_is_named_alike(source: Source, cluster: MockCluster, in_task: Any) -> None:
    in_task()
    writer = source(exactlyOnce="transactional", batchId="5", transactionalIdPrefix="etl").writer(schema=SCHEMA, overwrite=False)
    assert [writer.write(iter([ROWS])).replayed for _ in range(2)] == [False, True]
    assert cluster.committed("etl-q-2")["t", 0].offset == 6


def test_a_micro_batch_of_write_stream_may_be_named_where_spark_does_not_say(source: Source, cluster: MockCluster, in_task: Any) -> None:
    """Spark Connect does not in foreachBatch."""
    in_task(**{"sql.streaming.queryId": None, "streaming.sql.batchId": None})
    writer = source(exactlyOnce="transactional", batchId="5", jobId="counts").writer(schema=SCHEMA, overwrite=False)
    assert [writer.write(iter([ROWS])).replayed for _ in range(2)] == [False, True]
    assert cluster.committed("gkafka-spark-counts-2")["t", 0].offset == 6


def test_a_batch_is_named_by_its_job(source: Source, cluster: MockCluster, in_task: Any) -> None:
    in_task(**dict.fromkeys(NAMES))
    writer = source(exactlyOnce="transactional", jobId="nightly").writer(schema=SCHEMA, overwrite=False)
    assert [writer.write(iter([ROWS])).replayed for _ in range(2)] == [False, True]
    assert cluster.committed("gkafka-spark-nightly-2")["t", 0].offset == 1


@pytest.mark.parametrize(
    ("options", "changes", "text"),
    [
        ({}, {STATELESS_AQE: None}, f'spark.conf.set("{STATELESS_AQE}", "false")'),
        ({}, {STATELESS_AQE: "true"}, f'spark.conf.set("{STATELESS_AQE}", "false")'),
        ({"batchId": "5"}, {"sql.streaming.queryId": None}, "Spark does not say which query this is"),
        ({"batchId": "9"}, {}, "batchId=9: the micro-batch is 5"),
    ],
)
def test_what_cannot_be_exactly_once_is_not_written(
    source: Source, cluster: MockCluster, in_task: Any, options: dict[str, str], changes: dict[str, Any], text: str
) -> None:
    in_task(**changes)
    made = source(exactlyOnce="transactional", **options)
    writer = made.writer(schema=SCHEMA, overwrite=False) if options else made.streamWriter(schema=SCHEMA, overwrite=False)
    with pytest.raises(ConfigurationError) as caught:
        writer.write(iter([ROWS]))
    assert text in str(caught.value)
    assert cluster.requests() == []


def test_outside_of_a_task_nothing_has_a_name(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TaskContext, "_taskContext", None)
    writer = source(exactlyOnce="transactional", jobId="j").writer(schema=SCHEMA, overwrite=False)
    with pytest.raises(ConfigurationError, match="works in a Spark task only"):
        writer.write(iter([ROWS]))


# -- Spark 4.0 -----------------------------------------------------------------------------------------------------------
@pytest.fixture
def sink_of_4_0(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module as it is where Spark has no Arrow writer for streams."""
    monkeypatch.delattr(api, "DataSourceStreamArrowWriter")
    spec = importlib.util.find_spec("gkafka.spark.sink")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_spark_4_0_writes_a_stream_by_rows(
    sink_of_4_0: ModuleType, source: Source, cluster: MockCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = sink_of_4_0.GKafkaStreamWriter(source().options, SCHEMA, False)
    assert isinstance(writer, DataSourceStreamWriter)
    monkeypatch.setattr(sink_of_4_0, "ROWS", 3)
    message = writer.write(iter(ROWS_OF_4_0 * 4))
    assert (message.records, stored(cluster)) == (8, [(b"k", b"a"), (None, None)] * 4)
    assert writer.write(iter([])).records == 0


def test_newer_ones_by_arrow_batches() -> None:
    assert issubclass(GKafkaStreamWriter, api.DataSourceStreamArrowWriter)
    assert not issubclass(GKafkaWriter, DataSourceStreamWriter)


def test_the_public_names_are_loaded_when_they_are_used() -> None:
    assert gkafka.spark.RowsChangedError.__module__ == "gkafka.spark.exactlyonce"
    assert gkafka.spark.write_stream.__module__ == "gkafka.spark.update"


def test_a_schema_whose_partition_is_an_int_is_taken(source: Source, cluster: MockCluster) -> None:
    schema = StructType([*SCHEMA.fields, StructField("partition", IntegerType())])
    rows = ROWS.append_column("partition", pa.array([0, None], pa.int32()))
    assert source().writer(schema=schema, overwrite=False).write(iter([rows])).records == 2
