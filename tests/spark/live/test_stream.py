"""readStream.format("gkafka") in a real Spark on a real Kafka: triggers, caps, checkpoints, partitions that come and go, gaps."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import gkafka.spark
from gkafka import KafkaClient
from tests.kit.clock import now
from tests.live.kafka import KafkaCluster
from tests.spark.live.conftest import SPARK
from tests.spark.live.test_oracle import NewTopic, write
from tests.spark.streaming import ends

PATIENCE_S = 90.0
thorough = partial(pytest.param, marks=pytest.mark.thorough)


class Run:
    """One run of a query: what its batches held."""

    def __init__(self, query: StreamingQuery, batches: dict[int, list[Row]]) -> None:
        self.query, self.batches = query, batches

    @property
    def rows(self) -> list[Row]:
        return [row for number in sorted(self.batches) for row in self.batches[number]]

    def finish(self) -> list[Row]:
        """Wait for a query that ends by itself."""
        assert self.query.awaitTermination(PATIENCE_S), self.query.status
        return self.rows

    def wait_for(self, what: Callable[[], bool]) -> None:
        deadline = now() + PATIENCE_S
        while not what():
            error = self.query.exception()
            if error is not None:
                raise error
            assert now() < deadline, (self.query.status, self.query.lastProgress)
            self.query.awaitTermination(0.1)

    def stop(self) -> list[Row]:
        """End the query between two batches: what was seen of it is committed, and the next run does not read it again."""
        self.wait_for(self._is_committed)
        self.query.stop()
        return self.rows

    def _is_committed(self) -> bool:
        told = self.query.lastProgress
        return not self.batches or (told is not None and told.batchId >= max(self.batches))


Start = Callable[..., Run]


@pytest.fixture
def start(spark: SparkSession, kafka: KafkaCluster, tmp_path: Path) -> Iterator[Start]:
    """Starts a query of "gkafka" (or source="kafka"); options as for `frame`. All runs of a test use one checkpoint unless told otherwise."""
    queries: list[StreamingQuery] = []

    def begin(
        *,
        source: str = "gkafka",
        schema: str | None = None,
        checkpoint: str = "checkpoint",
        trigger: dict[str, Any] | None = None,
        **options: str,
    ) -> Run:
        reader = spark.readStream.format(source).option("kafka.bootstrap.servers", kafka.hosts)
        for name, value in {"startingOffsets": "earliest", **options}.items():
            reader = reader.option(name.replace("__", "."), value)
        batches: dict[int, list[Row]] = {}

        def keep(frame: DataFrame, number: int) -> None:
            batches[number] = frame.collect()

        writer = (reader if schema is None else reader.schema(schema)).load().writeStream.foreachBatch(keep)
        query = (
            writer.option("checkpointLocation", str(tmp_path / checkpoint)).trigger(**(trigger or {"processingTime": "0 seconds"})).start()
        )
        queries.append(query)
        return Run(query, batches)

    yield begin
    for query in queries:
        query.stop()


NOW = {"availableNow": True}


def places(rows: list[Row]) -> list[tuple[str, int, int]]:
    return sorted((row.topic, row.partition, row.offset) for row in rows)


def expected(topic: str, count: int, partitions: int = 2, first: int = 0) -> list[tuple[str, int, int]]:
    return sorted((topic, i % partitions, i // partitions) for i in range(first, count))


# -- triggers and checkpoints ------------------------------------------------------------------------------------------
def test_a_running_query_reads_every_record_once_and_goes_on_from_its_checkpoint(
    kafka: KafkaCluster, topic: NewTopic, start: Start
) -> None:
    name = topic()
    write(kafka, name, count=300)
    first = start(subscribe=name)
    first.wait_for(lambda: len(first.rows) >= 300)
    write(kafka, name, count=100)
    first.wait_for(lambda: len(first.rows) >= 400)
    assert places(first.stop()) == expected(name, 400)
    write(kafka, name, count=50)
    second = start(subscribe=name, trigger=NOW)
    assert places(second.finish()) == expected(name, 450, first=400)


@pytest.mark.thorough  # the next one begins there, too
def test_a_query_begins_at_the_latest_offsets_unless_told(kafka: KafkaCluster, topic: NewTopic, start: Start) -> None:
    name = topic()
    write(kafka, name, count=100)
    run = start(subscribe=name, startingOffsets="latest")
    run.wait_for(lambda: run.query.lastProgress is not None)
    write(kafka, name, count=10)
    run.wait_for(lambda: len(run.rows) >= 10)
    assert places(run.stop()) == expected(name, 110, first=100)


def test_a_crash_in_the_first_batch_of_a_query_that_begins_at_the_end_loses_nothing(
    kafka: KafkaCluster, topic: NewTopic, start: Start, tmp_path: Path
) -> None:
    name = topic()
    write(kafka, name, count=100)
    assert start(subscribe=name, startingOffsets="latest", trigger=NOW).finish() == []
    checkpoint = tmp_path / "checkpoint"
    assert ends((checkpoint / "offsets" / "0").read_text().splitlines()[-1]) == {name: {"0": 50, "1": 50}}
    for file in (checkpoint / "commits").iterdir():  # what the checkpoint is if Spark was killed in that batch
        file.unlink()
    write(kafka, name, count=10)
    runs = [places(start(subscribe=name, startingOffsets="latest", trigger=NOW).finish()) for _ in range(1 if SPARK >= (4, 2) else 2)]
    after = expected(name, 110, first=100)
    assert runs == ([after] if SPARK >= (4, 2) else [[], after])  # before 4.2 a run has one batch: the one that is planned again


def test_available_now_reads_in_capped_batches_what_was_there(kafka: KafkaCluster, topic: NewTopic, start: Start) -> None:
    """And its progress is committed to a group, up to the last batch."""
    name = topic()
    write(kafka, name, count=100)
    run = start(subscribe=name, commitGroup=f"{name}-lag", maxOffsetsPerTrigger="30", trigger=NOW)
    assert places(run.finish()) == expected(name, 100)
    assert [len(run.batches[i]) for i in sorted(run.batches)] == [30, 30, 30, 10]
    assert committed(kafka, f"{name}-lag") == {(name, 0): 50, (name, 1): 50}


def committed(kafka: KafkaCluster, group: str) -> dict[tuple[Any, ...], int]:
    with KafkaClient(kafka.hosts) as client:
        found = client.admin().list_group_offsets(group)
    return {tuple(at): entry.offset for at, entry in found.items()}


def test_a_cap_holds_in_a_running_query_and_the_lag_is_told(
    kafka: KafkaCluster, topic: NewTopic, start: Start, spark: SparkSession
) -> None:
    name = topic()
    write(kafka, name, count=100)
    told: list[Any] = []
    listener = gkafka.spark.LagListener(lambda *given: told.append(given))
    spark.streams.addListener(listener)
    try:
        run = start(subscribe=name, maxOffsetsPerTrigger="40")
        run.wait_for(lambda: len(run.rows) >= 100)
        run.wait_for(lambda: gkafka.spark.lag(run.query.lastProgress).get("maxOffsetsBehindLatest") == 0)
        run.wait_for(lambda: len(told) >= 3)
    finally:
        spark.streams.removeListener(listener)
    assert [len(run.batches[i]) for i in range(3)] == [40, 40, 20]
    assert [(batch, lag["maxOffsetsBehindLatest"]) for _, batch, lag in told[:3]] == [(0, 30), (1, 10), (2, 0)]
    assert {query for query, _, _ in told} == {run.query.id}


@pytest.mark.thorough  # the run above is in a group, too
def test_progress_is_committed_to_a_group_up_to_the_last_batch(kafka: KafkaCluster, topic: NewTopic, start: Start) -> None:
    name = topic()
    write(kafka, name, count=100)
    start(subscribe=name, commitGroup=f"{name}-lag", maxOffsetsPerTrigger="60", trigger=NOW).finish()
    assert committed(kafka, f"{name}-lag") == {(name, 0): 50, (name, 1): 50}


@pytest.mark.thorough  # in test_stream_oracle.py one goes to the other and back, too
def test_a_checkpoint_goes_from_the_jvm_connector_to_gkafka_and_back(
    kafka: KafkaCluster, topic: NewTopic, start: Start, tmp_path: Path
) -> None:
    name = topic()
    seen: list[Row] = []
    for number, source in enumerate(("kafka", "gkafka", "kafka", "gkafka")):
        write(kafka, name, count=50)
        rows = start(source=source, subscribe=name, trigger=NOW).finish()
        assert places(rows) == expected(name, 50 * (number + 1), first=50 * number), source
        seen += rows
    assert places(seen) == expected(name, 200)
    logs = [(tmp_path / "checkpoint" / "offsets" / str(i)).read_text().splitlines()[-1] for i in range(4)]
    assert [ends(log) for log in logs] == [{name: {"0": 25 * i, "1": 25 * i}} for i in range(1, 5)]


# -- what comes and goes -----------------------------------------------------------------------------------------------
def test_partitions_that_are_added_are_found_under_way(kafka: KafkaCluster, topic: NewTopic, start: Start) -> None:
    """And so is another topic that matches the pattern."""
    name = topic(1)
    write(kafka, name, count=10, partitions=1)
    run = start(subscribePattern=f"{name}|{name}-later")
    run.wait_for(lambda: len(run.rows) >= 10)
    with KafkaClient(kafka.hosts) as client:
        client.admin().create_partitions({name: 3})
    kafka.create_topic(f"{name}-later", 1)
    write(kafka, name, count=30, partitions=3)
    write(kafka, f"{name}-later", count=10, partitions=1)
    run.wait_for(lambda: len(run.rows) >= 50)
    assert sorted(row.offset for row in run.stop() if row.partition == 2) == list(range(10))
    assert [place for place in places(run.rows) if place[0] != name] == expected(f"{name}-later", 10, 1)
    assert len(set(places(run.rows))) == 50


@pytest.mark.thorough  # the test above has one
def test_topics_that_match_a_pattern_are_found_under_way(kafka: KafkaCluster, topic: NewTopic, start: Start) -> None:
    name = topic()
    run = start(subscribePattern=f"{name}.*")
    kafka.create_topic(f"{name}-later", 1)
    write(kafka, f"{name}-later", count=10, partitions=1)
    run.wait_for(lambda: len(run.rows) >= 10)
    assert places(run.stop()) == expected(f"{name}-later", 10, 1)


def test_a_topic_that_is_deleted_under_the_query_ends_it_with_the_words_that_are_known(
    kafka: KafkaCluster, topic: NewTopic, start: Start
) -> None:
    name, other = topic(), topic()
    for each in (name, other):
        write(kafka, each, count=10)
    strict = start(subscribe=f"{name},{other}", checkpoint="strict")
    lenient = start(subscribe=f"{name},{other}", checkpoint="lenient", failOnDataLoss="false")
    for run in (strict, lenient):
        run.wait_for(lambda run=run: len(run.rows) >= 20)
    with KafkaClient(kafka.hosts) as client:
        client.delete_topic(other)
    with pytest.raises(StreamingQueryException, match=rf"Some data may have been lost.*Partitions {other}-0, {other}-1 have been deleted"):
        strict.query.awaitTermination(PATIENCE_S)
    write(kafka, name, count=10)
    lenient.wait_for(lambda: len(lenient.rows) >= 30)
    assert len(set(places(lenient.stop()))) == 30


@pytest.mark.thorough  # test_stream_calls.py says the same without Spark, and the test above in it
def test_a_checkpoint_that_names_partitions_that_are_gone(kafka: KafkaCluster, topic: NewTopic, start: Start, tmp_path: Path) -> None:
    name = topic()
    write(kafka, name, count=10)
    start(subscribe=name, trigger=NOW).finish()
    log = tmp_path / "checkpoint" / "offsets" / "0"
    lines = log.read_text().splitlines()
    lines[-1] = json.dumps({name: {"0": 5, "1": 5, "7": 3}})
    log.write_text("\n".join(lines))
    (log.parent / ".0.crc").unlink()
    write(kafka, name, count=10)
    with pytest.raises(StreamingQueryException, match=f"Partitions {name}-7 have been deleted"):
        start(subscribe=name, trigger=NOW).finish()


@pytest.mark.thorough  # test_stream_calls.py says the same without Spark; in test_cluster.py one of three goes
def test_a_broker_that_is_away_for_a_while_does_not_end_the_query(kafka: KafkaCluster, topic: NewTopic, start: Start) -> None:
    name = topic()
    write(kafka, name, count=20)
    run = start(subscribe=name, commitGroup=f"{name}-lag")
    run.wait_for(lambda: len(run.rows) >= 20)
    kafka.kill(1)
    assert not run.query.awaitTermination(3)
    kafka.restart(1)
    write(kafka, name, count=20)
    run.wait_for(lambda: len(run.rows) >= 40)
    assert places(run.stop()) == expected(name, 40)


# -- what lies in a partition ------------------------------------------------------------------------------------------
@pytest.mark.thorough  # test_stream_oracle.py has such gaps, and compares where both streams end
def test_transactions_leave_gaps_and_their_end_is_reached(kafka: KafkaCluster, topic: NewTopic, start: Start) -> None:
    name = topic(1)
    producer = Producer({"bootstrap.servers": kafka.hosts, "transactional.id": name})
    producer.init_transactions(30)
    for number in range(6):
        producer.begin_transaction()
        for i in range(5):
            producer.produce(name, b"%d-%d" % (number, i), partition=0)
        producer.flush(60)
        (producer.abort_transaction if number % 2 else producer.commit_transaction)(30)
    run = start(subscribe=name, kafka__isolation__level="read_committed", maxOffsetsPerTrigger="7", trigger=NOW)
    assert [row.value for row in run.finish()] == [b"%d-%d" % (number, i) for number in (0, 2, 4) for i in range(5)]
    assert ends(run.query.lastProgress.sources[0].endOffset) == {name: {"0": 36}}


@pytest.mark.thorough  # the same
def test_compaction_leaves_gaps(kafka: KafkaCluster, topic: NewTopic, start: Start) -> None:
    name = topic(1, cleanup_policy="compact", segment_ms=100, min_cleanable_dirty_ratio="0.01", delete_retention_ms=0)
    producer = Producer({"bootstrap.servers": kafka.hosts})

    def produce(count: int) -> None:
        for i in range(count):
            producer.produce(name, b"v%d" % i, b"k%d" % (i % 3), partition=0)
        assert producer.flush(60) == 0

    produce(300)
    with KafkaClient(kafka.hosts) as client:
        deadline = now() + 60
        while True:  # the cleaner comes in its own time, and leaves the active segment
            time.sleep(0.5)
            produce(1)
            batches = client.fetch_raw(name, 0, 0, max_bytes=1 << 20).batches
            if b"v5" not in bytes(batches):
                break
            assert now() < deadline, "the log is not compacted"
        end = client.list_offsets({(name, 0): -1})[name, 0]
    run = start(subscribe=name, maxOffsetsPerTrigger="100", trigger=NOW)
    rows = run.finish()
    assert len(rows) < end
    assert {row.key for row in rows} == {b"k0", b"k1", b"k2"}
    assert ends(run.query.lastProgress.sources[0].endOffset) == {name: {"0": end}}


def test_headers_and_a_part_of_the_columns(kafka: KafkaCluster, topic: NewTopic, start: Start) -> None:
    name = topic()
    write(kafka, name, count=6)
    schema = "offset bigint, value binary, headers array<struct<key:string,value:binary>>"
    rows = start(subscribe=name, includeHeaders="true", schema=schema, trigger=NOW).finish()
    assert rows[0].__fields__ == ["offset", "value", "headers"]
    assert sorted(row.offset for row in rows) == [0, 0, 1, 1, 2, 2]
    assert sum(row.headers is not None for row in rows) == 4


# -- refusals ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"endingOffsets": "latest"}, "ending offset not valid in streaming queries"),
        thorough({"startingOffsets": '{"t":{"0":5}}'}, "Partitions specified for Kafka start offsets don't match what are assigned"),
        thorough({"startingTimestamp": "99999999999999"}, "No offset matched from request of topic-partition"),
    ],
)
def test_a_stream_that_cannot_be_says_why(topic: NewTopic, start: Start, options: dict[str, str], words: str) -> None:
    with pytest.raises(StreamingQueryException, match=words):
        start(subscribe=topic(), trigger=NOW, **options).finish()
