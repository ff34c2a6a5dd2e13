"""The columns of a row, what a schema of the user's may be of them, and how a worker fills them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import ArrayType, BinaryType, IntegerType, LongType, StringType, StructField, StructType, TimestampType

from gkafka.exceptions import ConfigurationError
from gkafka.spark.loading import keep_loaded, nothing_collected
from gkafka.spark.options import SourceOptions

if TYPE_CHECKING:
    from uuid import UUID

    import pyarrow as pa

    from gkafka.spark.planner import Group

__all__ = ["FIELDS", "Task", "check_columns", "kafka_schema", "read_task"]

HEADERS = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
FIELDS = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": HEADERS,
}


def kafka_schema(include_headers: bool = False) -> StructType:
    """The JVM connector's schema."""
    return StructType([StructField(name, kind) for name, kind in FIELDS.items() if name != "headers" or include_headers])


def check_columns(schema: StructType) -> None:
    """A schema of the user's may be any part of ours, in any order. Raises ConfigurationError."""
    for column in schema.fields:
        if sum(other.name == column.name for other in schema.fields) > 1:
            raise ConfigurationError(f"schema: column {column.name!r} is there twice: name it once, and select it twice")
        if not column.nullable and column.name in ("key", "value", "headers"):
            raise ConfigurationError(f"schema: column {column.name!r} may be null in Kafka: leave NOT NULL out")
        kind: Any = FIELDS.get(column.name)
        if kind is None:
            raise ConfigurationError(f"schema: column {column.name!r} is not one of {', '.join(FIELDS)}")
        if column.dataType != kind:
            raise ConfigurationError(
                f"schema: column {column.name!r} is {kind.simpleString()}, not {column.dataType.simpleString()}: read it so and cast it"
            )


class Task(InputPartition):
    """What a Spark task reads, and the ids of its topics when that was planned, as far as brokers tell them."""

    def __init__(self, value: Group, topic_ids: Mapping[str, UUID]) -> None:
        super().__init__(value)
        self.topic_ids = {topic: topic_ids[topic] for topic in dict.fromkeys(each.topic for each in value) if topic in topic_ids}


def read_task(options: SourceOptions, schema: StructType, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
    """The batches of a Spark task, in a worker."""
    task: Group = partition.value if partition is not None else ()  # what Spark makes of an empty list of partitions
    if not task:  # nor of one whose partitions are all lost by now
        return
    with nothing_collected():
        from gkafka.spark.fetch import read

    keep_loaded()
    not_null = [column.name for column in schema.fields if not column.nullable]
    topic_ids = partition.topic_ids if isinstance(partition, Task) else {}
    yield from read(options, task, schema.fieldNames(), not_null, topic_ids)
