"""What differs between the versions of Spark, asserted for the one that is installed: `make spark-matrix` runs these and the others on 4.0, 4.1 and 4.2."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyspark.sql.datasource as api
import pytest
from confluent_kafka import Message
from pyspark.sql import DataFrame, SparkSession

import gkafka.spark
from gkafka import KafkaClient
from gkafka.spark.sink import GKafkaStreamWriter
from tests.kit.clock import now
from tests.live.kafka import KafkaCluster
from tests.spark.live.conftest import SPARK
from tests.spark.live.test_oracle import NewTopic, write

PATIENCE_S = 90
pytestmark = pytest.mark.thorough  # on the newest Spark test_stream.py and test_sink.py say the same


class Run:
    """A stream with Trigger.AvailableNow from its checkpoint: how many records each micro-batch had."""

    def __init__(self, stream: DataFrame, checkpoint: Path) -> None:
        self.sizes: list[int] = []
        writer = stream.writeStream.foreachBatch(lambda batch, number: self.sizes.append(batch.count()))
        self.query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
        assert self.query.awaitTermination(PATIENCE_S), self.query.status


@pytest.fixture
def stream(spark: SparkSession, kafka: KafkaCluster) -> Callable[..., DataFrame]:
    gkafka.spark.register(spark)

    def of(topic: str, **options: str) -> DataFrame:
        reader = spark.readStream.format("gkafka").option("kafka.bootstrap.servers", kafka.hosts).option("subscribe", topic)
        return reader.option("startingOffsets", "earliest").options(**options).load()

    return of


def test_available_now_with_a_cap_reads_all_since_4_2_and_one_batch_a_run_before(
    kafka: KafkaCluster, topic: NewTopic, stream: Any, tmp_path: Path
) -> None:
    name = topic()
    write(kafka, name, count=100)
    runs = [Run(stream(name, maxOffsetsPerTrigger="30"), tmp_path / "checkpoint").sizes for _ in range(4)]
    assert runs == ([[30, 30, 30, 10], [], [], []] if SPARK >= (4, 2) else [[30], [30], [30], [10]])


def test_lag_is_in_the_progress_since_4_2_and_in_a_group_always(kafka: KafkaCluster, topic: NewTopic, stream: Any, tmp_path: Path) -> None:
    name = topic()
    write(kafka, name, count=100)
    ends = {(name, 0): 50, (name, 1): 50}
    query = stream(name, commitGroup=f"{name}-lag", commitIntervalMs="100").writeStream.format("noop")
    query = query.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    deadline = now() + PATIENCE_S
    with KafkaClient(kafka.hosts) as client:
        while {tuple(at): found.offset for at, found in client.admin().list_group_offsets(f"{name}-lag").items()} != ends:
            assert now() < deadline, (query.status, query.exception())
            time.sleep(0.1)
    progress = query.lastProgress
    query.stop()
    assert gkafka.spark.lag(progress).get("maxOffsetsBehindLatest") == (0 if SPARK >= (4, 2) else None)


def test_a_stream_is_written_from_arrow_since_4_1_and_from_rows_before(
    spark: SparkSession, kafka: KafkaCluster, topic: NewTopic, stream: Any, read: Callable[..., list[Message]], tmp_path: Path
) -> None:
    arrow = getattr(api, "DataSourceStreamArrowWriter", None)
    assert (arrow is not None) is (SPARK >= (4, 1))
    assert issubclass(GKafkaStreamWriter, arrow or api.DataSourceStreamWriter)
    source, copy = topic(), topic()
    write(kafka, source, count=600)
    rows = stream(source, includeHeaders="true").select("key", "value", "headers", "partition")
    writer = rows.writeStream.format("gkafka").option("kafka.bootstrap.servers", kafka.hosts).option("topic", copy)
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
    assert query.awaitTermination(PATIENCE_S), query.status
    assert as_it_is(read(copy)) == as_it_is(read(source))


def as_it_is(messages: list[Message]) -> list[tuple[Any, ...]]:
    return sorted(((m.partition(), m.offset(), m.key(), m.value(), m.headers()) for m in messages), key=lambda row: row[:2])
