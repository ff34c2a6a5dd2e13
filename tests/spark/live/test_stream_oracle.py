"""Streams of format("gkafka") beside the JVM connector's on a real Kafka: neither reads a row that the other lacks, each reads what the other writes, and
each goes on from the other's checkpoint. The thorough form has 100,000 rows and more in each topic, for batches too.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import expr

import gkafka.spark
from gkafka import KafkaClient
from tests.effort import one_of, quick_and_thorough
from tests.kit.clock import now
from tests.live.kafka import KafkaCluster
from tests.spark.live.test_oracle import Frame, NewTopic, write
from tests.spark.streaming import ends

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
CONNECTORS = ("kafka", "gkafka")
PATIENCE_S = 240
NOW = {"availableNow": True}
pytestmark = pytest.mark.timeout(600)


@pytest.fixture(autouse=True)
def _registered(spark: SparkSession) -> None:
    gkafka.spark.register(spark)


Copy = Callable[..., DataFrame]
Place = tuple[str, int, int]


@pytest.fixture
def copy(spark: SparkSession, kafka: KafkaCluster, tmp_path: Path) -> Copy:
    """Reads a stream to its end and keeps it; a name's "__" stands for a dot."""

    def to_parquet(source: str, name: str, **options: str) -> DataFrame:
        folder = tmp_path / name / source
        query = (
            streamed(spark, kafka, source, **options)
            .writeStream.format("parquet")
            .option("path", str(folder / "rows"))
            .option("checkpointLocation", str(folder / "checkpoint"))
            .trigger(**NOW)
            .start()
        )
        assert query.awaitTermination(PATIENCE_S), query.status
        return spark.read.parquet(str(folder / "rows"))

    return to_parquet


def streamed(spark: SparkSession, kafka: KafkaCluster, source: str, **options: str) -> DataFrame:
    reader = spark.readStream.format(source).option("kafka.bootstrap.servers", kafka.hosts).option("startingOffsets", "earliest")
    for name, value in options.items():
        reader = reader.option(name.replace("__", "."), value)
    return reader.load()


def missing(theirs: DataFrame, ours: DataFrame) -> int:
    """How many rows of theirs are not among ours. None of as many rows: both have the same."""
    return theirs.exceptAll(ours).count()


def counts(frame: DataFrame) -> dict[str, int]:
    return {row["topic"]: row["count"] for row in frame.groupBy("topic").count().collect()}


# -- topics of every kind ----------------------------------------------------------------------------------------------
def with_transactions(kafka: KafkaCluster, topic: str, count: int) -> int:
    """Two producers, interleaved; of four transactions one is aborted. Returns how many records are committed: `count`, and as many as fill the last."""
    producers = [Producer({"bootstrap.servers": kafka.hosts, "transactional.id": f"{topic}-{i}"}) for i in range(2)]
    for producer in producers:
        producer.init_transactions(30)
    size, committed, number = max(10, count // 40), 0, 0
    while committed < count:
        for producer in producers:
            producer.begin_transaction()
        for i in range(size):
            for producer in producers:
                producer.produce(topic, b"%d-%d" % (number, i) * 5, b"%d" % i, partition=i % 2, headers=[("n", b"%d" % number)])
                producer.poll(0)
        for producer in producers:
            producer.flush(60)
            keeps = number % 4 != 1
            (producer.commit_transaction if keeps else producer.abort_transaction)(60)
            committed += size * keeps
            number += 1
    return committed


def with_gaps(kafka: KafkaCluster, topic: str, count: int) -> int:
    """`count` keys, each third of them written again, and older records are compacted away; then the topic stays as it is.

    Returns how many records were written.
    """
    producer = Producer({"bootstrap.servers": kafka.hosts, "linger.ms": 5})
    written = 0

    def produce(word: bytes, numbers: range) -> None:
        nonlocal written
        for i in numbers:
            producer.produce(topic, b"%s %d." % (word, i), b"key-%d" % i, partition=i % 2)
            producer.poll(0)
        assert producer.flush(60) == 0
        written += len(numbers)

    def holds(partition: int, value: bytes) -> bool:
        return value in bytes(client.fetch_raw(topic, partition, 0, max_bytes=4096).batches)

    produce(b"old", range(count))
    produce(b"new", range(0, count, 3))
    deadline = now() + 120
    with KafkaClient(kafka.hosts) as client:
        while holds(0, b"old 0.") or holds(1, b"old 3."):
            assert now() < deadline, "the log is not compacted"
            time.sleep(0.5)
            produce(b"late", range(0, 12, 3))  # the cleaner leaves the segment that is written to
    stop_compaction(kafka, topic)
    return written


def stop_compaction(kafka: KafkaCluster, topic: str) -> None:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    resource.add_incremental_config(ConfigEntry("cleanup.policy", "delete", incremental_operation=AlterConfigOpType.SET))
    admin = AdminClient({"bootstrap.servers": kafka.hosts})  # its answers come as long as it lives
    for result in admin.incremental_alter_configs([resource]).values():
        result.result(60)
    time.sleep(2)  # a cleaning that is under way ends


@pytest.mark.parametrize("isolation", one_of("read_committed", "read_uncommitted"))
@pytest.mark.parametrize("count", quick_and_thorough(600, 102_000))
def test_neither_reads_a_row_that_the_other_lacks(
    kafka: KafkaCluster, topic: NewTopic, frame: Frame, copy: Copy, tmp_path: Path, count: int, isolation: str
) -> None:
    """In batches and in streams: all codecs, headers, nulls, transactions, and gaps where records were compacted away."""
    by_codec = {codec: topic(1) for codec in CODECS}
    for codec, name in by_codec.items():
        write(kafka, name, codec=codec, count=count, partitions=1, **{"queue.buffering.max.messages": 1_000_000})
    transactions, compacted = topic(), topic(cleanup_policy="compact", segment_ms=100, min_cleanable_dirty_ratio="0.01")
    committed = with_transactions(kafka, transactions, count)
    written = with_gaps(kafka, compacted, count)
    names = [*by_codec.values(), transactions, compacted]
    options = {"subscribe": ",".join(names), "includeHeaders": "true", "kafka__isolation__level": isolation}
    ours, theirs = frame("gkafka", **options), frame("kafka", **options)
    found = counts(ours)
    assert found == counts(theirs)
    assert missing(theirs, ours) == 0
    assert [found[name] for name in by_codec.values()] == [count] * len(CODECS)
    assert count <= found[compacted] < written
    assert (found[transactions] == committed) is (isolation == "read_committed")

    capped = {**options, "maxOffsetsPerTrigger": str(count * len(names) // 3)}
    streams = [copy(source, isolation, **capped) for source in CONNECTORS]
    assert [counts(each) for each in streams] == [found, found]
    assert missing(streams[0], streams[1]) == 0
    assert missing(ours, streams[1]) == 0
    logs = [logged(tmp_path / isolation / source / "checkpoint") for source in CONNECTORS]
    assert ends(logs[0][max(logs[0])]) == ends(logs[1][max(logs[1])]), "a stream comes to the end of what holds no rows, too"


@pytest.mark.parametrize("count", quick_and_thorough(600, 102_000))
def test_each_reads_what_a_stream_of_the_other_wrote(
    spark: SparkSession, kafka: KafkaCluster, topic: NewTopic, frame: Frame, tmp_path: Path, count: int
) -> None:
    source, copies = topic(), {sink: topic() for sink in CONNECTORS}
    write(kafka, source, codec="lz4", count=count, **{"queue.buffering.max.messages": 1_000_000})
    other = dict(zip(CONNECTORS, reversed(CONNECTORS), strict=True))
    for sink, name in copies.items():
        rows = streamed(spark, kafka, other[sink], subscribe=source, includeHeaders="true").select("key", "value", "headers")
        writer = rows.writeStream.format(sink).option("kafka.bootstrap.servers", kafka.hosts).option("topic", name)
        writer = writer.option("includeHeaders", "true").option("checkpointLocation", str(tmp_path / sink))
        query = writer.trigger(**NOW).start()
        assert query.awaitTermination(PATIENCE_S), query.status
    ours, theirs = (frame(other[sink], subscribe=copies[sink], includeHeaders="true") for sink in ("gkafka", "kafka"))
    columns = ("key", "value", "headers")
    assert (ours.count(), theirs.count()) == (count, count)
    both = [copied.withColumn("partition", expr("if(key is null, 0, partition)")) for copied in (ours, theirs)]
    ours, theirs = (copied.select(*columns, "partition") for copied in both)  # what has no key may be anywhere
    assert missing(theirs, ours) == 0
    assert missing(frame("kafka", subscribe=source, includeHeaders="true").select(*columns), ours.select(*columns)) == 0


# -- checkpoints -------------------------------------------------------------------------------------------------------
def forget_the_last_commit(checkpoint: Path) -> int:
    """As if the driver had died before its last micro-batch was noted; returns its number."""
    last = max(int(path.name) for path in (checkpoint / "commits").iterdir() if path.name.isdigit())
    for name in (f"{last}", f".{last}.crc"):
        (checkpoint / "commits" / name).unlink(missing_ok=True)
    return last


def logged(checkpoint: Path) -> dict[int, dict[str, Any]]:
    """The end of each micro-batch, by number."""
    folder = checkpoint / "offsets"
    return {int(path.name): json.loads(path.read_text().splitlines()[-1]) for path in folder.iterdir() if path.name.isdigit()}


@pytest.mark.parametrize("order", one_of(("kafka", "gkafka", "kafka"), ("gkafka", "kafka", "gkafka")), ids="-".join)
@pytest.mark.parametrize("count", quick_and_thorough(300, 100_002))
def test_a_checkpoint_goes_to_the_other_and_back_and_a_batch_that_one_began_the_other_ends(
    spark: SparkSession, kafka: KafkaCluster, topic: NewTopic, tmp_path: Path, order: tuple[str, ...], count: int
) -> None:
    """Each run leaves a micro-batch that it had planned and not committed; the next one, by the other connector, begins with the same rows."""
    names, checkpoint = [topic(3), topic(1)], tmp_path / "checkpoint"
    batches: dict[int, list[Place]] = {}
    begun: int | None = None
    for source in order:
        for name, partitions in zip(names, (3, 1), strict=True):
            write(kafka, name, codec="zstd", count=count, partitions=partitions, **{"queue.buffering.max.messages": 1_000_000})
        planned = logged(checkpoint) if begun is not None else {}
        mine = run(spark, kafka, source, names, checkpoint, cap=count)
        if begun is not None:
            assert min(mine) == begun
            assert mine[begun] == batches[begun]
            assert planned.items() <= logged(checkpoint).items()
        batches.update(mine)
        begun = forget_the_last_commit(checkpoint)
    assert len(batches) >= 2 * len(order)
    assert ends(logged(checkpoint)[max(batches)]) == {names[0]: {str(p): count for p in range(3)}, names[1]: {"0": 3 * count}}
    read = [place for rows in batches.values() for place in rows]
    assert sorted(read) == sorted((names[0], p, o) for p in range(3) for o in range(count)) + [(names[1], 0, o) for o in range(3 * count)]


def run(spark: SparkSession, kafka: KafkaCluster, source: str, names: list[str], checkpoint: Path, *, cap: int) -> dict[int, list[Place]]:
    """What is there, in micro-batches; which records each held."""
    found: dict[int, list[Place]] = {}

    def keep(batch: DataFrame, number: int) -> None:
        rows = batch.select("topic", "partition", "offset").toArrow()
        found[number] = sorted(zip(*(column.to_pylist() for column in rows.columns), strict=True))

    stream = streamed(spark, kafka, source, subscribe=",".join(names), maxOffsetsPerTrigger=str(cap))
    query = stream.writeStream.foreachBatch(keep).option("checkpointLocation", str(checkpoint)).trigger(**NOW).start()
    assert query.awaitTermination(PATIENCE_S), query.status
    return found
