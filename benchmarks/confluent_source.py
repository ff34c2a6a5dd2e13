"""What one would write for Spark on confluent-kafka: a Data Source that hands out Arrow batches. Only beside gkafka's, in benchmarks/spark.py.

Consumes with librdkafka's best settings for a Python process, 10,000 messages at a call, the same columns as format("kafka").
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

SCHEMA = "key binary, value binary, topic string, partition int, offset long, timestamp timestamp, timestampType int"
ARROW = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("timestampType", pa.int32()),
    ]
)
AT_A_CALL = 10_000
CONSUMER = {
    "group.id": "bench",
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "check.crcs": True,
    "enable.partition.eof": True,
    "auto.offset.reset": "earliest",
    # By default a partition pauses for a second once 100,000 messages are queued: five times slower with small ones.
    "queued.min.messages": 1_000_000,
    "fetch.queue.backoff.ms": 2,
}


class Range(NamedTuple):
    topic: str
    partition: int
    start: int
    end: int


class ConfluentSource(DataSource):
    """Options: kafka.bootstrap.servers, subscribe (one topic)."""

    @classmethod
    def name(cls) -> str:
        return "confluent"

    def schema(self) -> str:
        return SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        return ConfluentReader(dict(self.options))


class ConfluentReader(DataSourceReader):
    def __init__(self, options: Mapping[str, str]) -> None:
        self._hosts, self._topic = options["kafka.bootstrap.servers"], options["subscribe"]

    def partitions(self) -> list[InputPartition]:
        from confluent_kafka import Consumer, TopicPartition

        consumer = Consumer({"bootstrap.servers": self._hosts, **CONSUMER})
        try:
            there = consumer.list_topics(self._topic, timeout=10).topics[self._topic].partitions
            ends = {p: consumer.get_watermark_offsets(TopicPartition(self._topic, p), timeout=10) for p in there}
        finally:
            consumer.close()
        return [InputPartition(Range(self._topic, p, low, high)) for p, (low, high) in ends.items() if high > low]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        from confluent_kafka import Consumer, TopicPartition

        topic, number, start, end = partition.value
        consumer = Consumer({"bootstrap.servers": self._hosts, **CONSUMER})
        try:
            consumer.assign([TopicPartition(topic, number, start)])
            position = start
            while position < end:
                messages = [m for m in consumer.consume(min(AT_A_CALL, end - position), 1.0) if not m.error()]
                if messages:
                    yield arrow_batch(messages)
                    position = (messages[-1].offset() or 0) + 1
        finally:
            consumer.close()


def arrow_batch(messages: list[Any]) -> pa.RecordBatch:
    """Messages of confluent-kafka as the columns of format("kafka")."""
    times = [m.timestamp() for m in messages]
    columns = [
        [m.key() for m in messages],
        [m.value() for m in messages],
        [m.topic() for m in messages],
        [m.partition() for m in messages],
        [m.offset() for m in messages],
        [at * 1000 for _, at in times],
        [kind - 1 for kind, _ in times],
    ]
    return pa.RecordBatch.from_arrays([pa.array(c, field.type) for c, field in zip(columns, ARROW, strict=True)], schema=ARROW)
