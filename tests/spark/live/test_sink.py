"""df.write.format("gkafka") and writeStream on a real Kafka: what is written, another client reads."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Message
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import gkafka.spark
from gkafka.exceptions import ConfigurationError
from gkafka.spark.update import STATELESS_AQE
from tests.effort import one_of
from tests.kit.clock import now
from tests.live.kafka import KafkaCluster

NewTopic = Callable[..., str]
Write = Callable[..., None]
DEADLINE_S = 60.0
thorough = partial(pytest.param, marks=pytest.mark.thorough)


@pytest.fixture(autouse=True)
def _registered(spark: SparkSession) -> None:
    gkafka.spark.register(spark)


@pytest.fixture
def write(kafka: KafkaCluster) -> Write:
    """Writes a DataFrame as a batch; a name's "__" stands for a dot."""

    def save(frame: DataFrame, mode: str | None = "append", **options: Any) -> None:
        given = {name.replace("__", "."): value for name, value in options.items()}
        writer = frame.write.format("gkafka").options(**{"kafka.bootstrap.servers": kafka.hosts, **given})
        (writer if mode is None else writer.mode(mode)).save()

    return save


def values(messages: list[Message]) -> list[bytes | None]:
    return sorted((m.value() for m in messages), key=lambda value: (value is not None, value or b""))


ROWS = """
    select cast('k' || id as binary) as key, if(id % 5 = 0, null, 'value ' || id) as value,
           if(id % 3 = 0, array(struct('ключ' as key, cast('x' as binary) as value), struct('b' as key, cast(null as binary) as value)), null) as headers
    from range(0, 1000, 1, 2)
"""


def test_another_client_reads_what_was_written(spark: SparkSession, topic: NewTopic, write: Write, read: Any) -> None:
    name = topic()
    write(spark.sql(ROWS), topic=name)
    found = {m.key(): (m.value(), m.headers()) for m in read(name)}
    assert len(found) == 1000
    for i in range(1000):
        headers = [("ключ", b"x"), ("b", None)] if i % 3 == 0 else None
        assert found[b"k%d" % i] == (None if i % 5 == 0 else b"value %d" % i, headers)


def test_what_it_writes_the_jvm_connector_reads_and_the_other_way_round(
    spark: SparkSession, kafka: KafkaCluster, topic: NewTopic, write: Write, frame: Callable[..., DataFrame]
) -> None:
    ours, theirs = topic(), topic()
    rows = spark.sql(ROWS)
    write(rows, topic=ours)
    rows.write.format("kafka").option("kafka.bootstrap.servers", kafka.hosts).option("topic", theirs).save()
    columns = ("key", "value", "headers", "partition")  # the same partition for the same key, too
    first, second = (
        frame("kafka", subscribe=ours, includeHeaders="true").select(*columns),
        frame("gkafka", subscribe=theirs, includeHeaders="true").select(*columns),
    )
    assert (first.count(), second.count(), first.exceptAll(second).count()) == (1000, 1000, 0)


def test_rows_name_their_topic_and_partition(spark: SparkSession, topic: NewTopic, write: Write, read: Any) -> None:
    a, b = topic(), topic()
    write(
        spark.sql(f"select concat('v', id) as value, if(id < 30, '{a}', '{b}') as topic, cast(id % 2 as int) as partition from range(100)")
    )
    found = {m.value(): (m.topic(), m.partition()) for m in read(a, b)}
    assert found == {b"v%d" % i: (a if i < 30 else b, i % 2) for i in range(100)}


def test_a_topic_that_is_not_there_is_created_where_the_broker_allows_it(
    spark: SparkSession, write: Write, read: Any, topic: NewTopic
) -> None:
    name = topic() + "-new"
    write(spark.sql("select 'v' as value"), topic=name)
    assert values(read(name, partitions=1)) == [b"v"]


@pytest.mark.parametrize(
    ("query", "mode", "options", "text"),
    [
        ("select id as value from range(3)", "append", {}, "value attribute unsupported type bigint. value must be a(n) string or binary"),
        # test_sink_options.py and test_sink_task.py say these without Spark, too.
        thorough("select 'k' as key", "append", {}, "Required attribute 'value' not found"),
        thorough("select 'v' as value", "append", {"topic": None}, "topic option required when no 'topic' attribute is present"),
        (
            "select 'v' as value, if(id = 7, null, 'x') as topic from range(0, 9, 1, 1)",
            "append",
            {"topic": None, "kafka__max__block__ms": "1000"},
            "row 7: null topic present in the data",
        ),
        thorough("select if(id = 3, repeat('x', 2000000), 'y') as value from range(0, 5, 1, 1)", "append", {}, "row 3: a record of 20000"),
        ("select 'v' as value, 9 as partition", "append", {}, "partition=9: the topic has the partitions 0 to 1"),
        ("select 'v' as value", "overwrite", {}, "Save mode Overwrite not allowed for Kafka."),
        thorough("select 'v' as value", "append", {"topc": "t"}, "did you mean 'topic'?"),
        ("select 'v' as value", "append", {"exactlyOnce": "transactional"}, "needs jobId"),
    ],
)
def test_a_write_that_cannot_be_says_why(
    spark: SparkSession, topic: NewTopic, write: Write, read: Any, query: str, mode: str, options: dict[str, Any], text: str
) -> None:
    name = topic()
    given = {key: value for key, value in {"topic": name, **options}.items() if value is not None}
    with pytest.raises(PySparkException) as caught:
        write(spark.sql(query), mode, **given)
    assert text in str(caught.value)


# -- batches, exactly once -----------------------------------------------------------------------------------------------
def test_a_job_that_is_run_again_writes_what_is_missing(
    spark: SparkSession, topic: NewTopic, write: Write, read: Any, kafka: KafkaCluster
) -> None:
    name = topic()
    rows = spark.sql("select concat('v', id) as value, if(id = 99, {bad}, 0) as partition from range(0, 100, 1, 2)".replace("{bad}", "7"))
    once = {"topic": name, "exactlyOnce": "transactional", "jobId": f"job-{name}"}
    with pytest.raises(PySparkException, match="partition=7"):
        write(rows, **once)  # its second task fails
    assert values(read(name)) in ([], sorted(b"v%d" % i for i in range(50)))
    for _ in range(2):
        write(rows.withColumn("partition", rows.partition * 0), **once)
    assert values(read(name)) == sorted(b"v%d" % i for i in range(100))


# -- streams -------------------------------------------------------------------------------------------------------------
@pytest.fixture
def source(spark: SparkSession, tmp_path: Path) -> Callable[..., DataFrame]:
    """A stream of files, each a micro-batch of rows (key, value); add(n) makes one with the values n*10 to n*10+9."""
    folder = tmp_path / "in"
    folder.mkdir()

    def stream(*numbers: int) -> DataFrame:
        for n in numbers:
            lines = "".join(f"k{i % 4},v{i}\n" for i in range(n * 10, n * 10 + 10))
            (tmp_path / "next").write_text(lines)
            (tmp_path / "next").rename(folder / f"{n}.csv")
        return spark.readStream.schema("key string, value string").option("maxFilesPerTrigger", 1).csv(str(folder))

    return stream


@pytest.fixture
def run(kafka: KafkaCluster, tmp_path: Path) -> Callable[..., None]:
    """Runs a stream into a topic until its input is at an end."""

    def until_the_end(frame: DataFrame, topic: str, *, mode: str = "append", checkpoint: str = "checkpoint", **options: Any) -> None:
        given = {"kafka.bootstrap.servers": kafka.hosts, "topic": topic, "checkpointLocation": str(tmp_path / checkpoint), **options}
        query = frame.writeStream.format("gkafka").outputMode(mode).options(**given).trigger(availableNow=True).start()
        ended(query)

    return until_the_end


def ended(query: StreamingQuery) -> None:
    if not query.awaitTermination(int(DEADLINE_S)):
        query.stop()
        raise AssertionError("the query has not ended")


def numbers(first: int, end: int) -> list[bytes]:
    return sorted(b"v%d" % i for i in range(first, end))


@pytest.mark.thorough  # the next one goes on, too, and has a batch to replay
@pytest.mark.parametrize("exactly_once", one_of("transactional", "none"))
def test_a_stream_is_written_and_goes_on_from_its_checkpoint(
    stateless: None, topic: NewTopic, source: Any, run: Any, read: Any, exactly_once: str
) -> None:
    name = topic()
    run(source(0, 1, 2), name, exactlyOnce=exactly_once)
    run(source(3), name, exactlyOnce=exactly_once)
    assert values(read(name)) == numbers(0, 40)


@pytest.fixture
def stateless(spark: SparkSession) -> Iterator[None]:
    """What exactlyOnce asks of the session."""
    spark.conf.set(STATELESS_AQE, "false")
    yield
    spark.conf.unset(STATELESS_AQE)


def forget_the_last_commit(checkpoint: Path) -> None:
    """As if the driver had died after the sink was done and before Spark noted it."""
    last = max((path for path in (checkpoint / "commits").iterdir() if path.name.isdigit()), key=lambda path: int(path.name))
    last.unlink()
    (checkpoint / "commits" / f".{last.name}.crc").unlink(missing_ok=True)


@pytest.mark.parametrize(("exactly_once", "copies"), [("transactional", 1), thorough("none", 2)])
def test_a_micro_batch_that_is_replayed_is_there_once_if_that_was_asked_for(
    stateless: None, tmp_path: Path, topic: NewTopic, source: Any, run: Any, read: Any, exactly_once: str, copies: int
) -> None:
    name = topic()
    run(source(0, 1), name, exactlyOnce=exactly_once)
    forget_the_last_commit(tmp_path / "checkpoint")
    run(source(2), name, exactlyOnce=exactly_once)
    assert values(read(name)) == sorted([*numbers(0, 10), *numbers(10, 20) * copies, *numbers(20, 30)])


def test_a_micro_batch_that_failed_midway_is_written_once_when_it_is_replayed(
    stateless: None, topic: NewTopic, source: Any, run: Any, read: Any
) -> None:
    """One task has committed when the other fails."""
    name = topic()
    frame = source(0).repartition(2, "key")
    with pytest.raises(PySparkException, match="partition=9"):
        run(frame.selectExpr("*", "if(value = 'v7', 9, 0) as partition"), name, exactlyOnce="transactional")
    assert 0 < len(read(name)) < 10
    run(frame.selectExpr("*", "0 as partition"), name, exactlyOnce="transactional")
    assert values(read(name)) == numbers(0, 10)


def test_exactly_once_wants_the_session_to_say_that_rows_stay_in_their_tasks_and_goes_on_once_it_does(
    topic: NewTopic, source: Any, run: Any, read: Any, request: pytest.FixtureRequest
) -> None:
    name = topic()
    with pytest.raises(PySparkException, match=r'spark.conf.set\("spark.sql.adaptive.streaming.stateless.enabled", "false"\)'):
        run(source(0), name, exactlyOnce="transactional")
    assert read(name) == []
    request.getfixturevalue("stateless")
    run(source(), name, exactlyOnce="transactional")
    assert values(read(name)) == numbers(0, 10)


@pytest.mark.thorough  # to the sink a result is as any rows; those of update are below
def test_complete_mode_writes_the_whole_result_each_time(topic: NewTopic, source: Any, run: Any, read: Any) -> None:
    name = topic()
    counts = source(0, 1).groupBy("key").count().selectExpr("key", "cast(count as string) as value")
    run(counts, name, mode="complete")
    assert sorted((m.key(), m.value()) for m in read(name)) == sorted(
        [(b"k0", b"3"), (b"k1", b"3"), (b"k2", b"2"), (b"k3", b"2"), *((b"k%d" % i, b"5") for i in range(4))]
    )


@pytest.mark.parametrize("exactly_once", one_of("transactional", "none"))
def test_update_mode_writes_what_has_changed(
    stateless: None, kafka: KafkaCluster, tmp_path: Path, topic: NewTopic, source: Any, read: Any, exactly_once: str
) -> None:
    name, checkpoint = topic(), tmp_path / "checkpoint"
    options = {"kafka.bootstrap.servers": kafka.hosts, "topic": name, "exactlyOnce": exactly_once}

    def run(frame: DataFrame) -> None:
        counts = frame.groupBy("key").count().selectExpr("key", "cast(count as string) as value")
        ended(gkafka.spark.write_stream(counts, options, mode="update", checkpointLocation=str(checkpoint), trigger={"availableNow": True}))

    expected = [*((b"k%d" % i, b"23"[1 - i // 2 :][:1]) for i in range(4)), *((b"k%d" % i, b"5") for i in range(4))]
    run(source(0, 1))
    assert sorted((m.key(), m.value()) for m in read(name)) == sorted(expected)
    forget_the_last_commit(checkpoint)
    run(source())
    again = expected[4:] if exactly_once == "none" else []
    assert sorted((m.key(), m.value()) for m in read(name)) == sorted([*expected, *again])


@pytest.mark.parametrize(
    ("options", "mode", "text"),
    [
        ({}, "upsert", "mode='upsert': must be one of 'append', 'complete', 'update'"),
        ({"topic": ""}, "update", "topic='': must not be empty"),
        ({"batchId": 3}, "update", "batchId=3: write_stream"),
        ({"exactlyOnce": "transactional"}, "update", 'spark.conf.set("spark.sql.adaptive.streaming.stateless.enabled", "false")'),
        ({"partition": "x"}, "update", "unknown option 'partition'"),
    ],
)
def test_write_stream_refuses_before_anything_starts(
    kafka: KafkaCluster, source: Any, options: dict[str, Any], mode: str, text: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        gkafka.spark.write_stream(source(), {"kafka.bootstrap.servers": kafka.hosts, "topic": "t", **options}, mode=mode)
    assert text in str(caught.value)


def test_write_stream_wants_a_stream(spark: SparkSession, kafka: KafkaCluster) -> None:
    with pytest.raises(ConfigurationError, match=r"df.write.format\('gkafka'\)"):
        gkafka.spark.write_stream(spark.sql("select 'v' as value"), {"kafka.bootstrap.servers": kafka.hosts, "topic": "t"})


def test_a_stream_of_the_wrong_columns_says_so(topic: NewTopic, source: Any, run: Any) -> None:
    with pytest.raises(PySparkException, match="partition attribute unsupported type string"):
        run(source(0).selectExpr("*", "value as partition"), topic())


def test_a_broker_that_stops_answering_in_a_stream_ends_it_with_the_partition_and_the_next_step(
    spark: SparkSession, kafka: KafkaCluster, tmp_path: Path, topic: NewTopic, read: Any
) -> None:
    name = topic()
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load().selectExpr("cast(value as string) as value")
    options = {
        "kafka.bootstrap.servers": kafka.hosts,
        "topic": name,
        "kafka.delivery.timeout.ms": "5000",
        "kafka.request.timeout.ms": "3000",
    }
    query = rows.writeStream.format("gkafka").options(**options, checkpointLocation=str(tmp_path / "c")).start()
    try:
        deadline = now() + DEADLINE_S
        while query.lastProgress is None and now() < deadline:
            time.sleep(0.1)
        kafka.suspend(1)
        try:
            with pytest.raises(PySparkException) as caught:
                query.awaitTermination(int(DEADLINE_S))
        finally:
            kafka.resume(1)
    finally:
        query.stop()
    assert f"{name}-" in str(caught.value)
    assert "not delivered within 5 s" in str(caught.value)
    assert "kafka.delivery.timeout.ms" in str(caught.value)
    found = values(read(name))
    assert {int(value or b"-1") for value in found} >= set(range(10))
