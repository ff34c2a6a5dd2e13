"""format("gkafka"): the Python Data Source that Spark calls. Spark gives arguments by keyword, so their names are part of the contract.

Constructors never raise (Spark would lose the error) and open nothing (the objects are pickled): the options are checked in
schema(), which load() calls, and again in partitions(), because a schema given by the user skips the former.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import ArrayType, BinaryType, IntegerType, LongType, StringType, StructField, StructType, TimestampType

from gkafka.exceptions import ConfigurationError
from gkafka.spark.options import parse

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]

    from gkafka.spark.planner import OffsetRange

__all__ = ["GKafkaDataSource", "GKafkaReader", "kafka_schema"]

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


class GKafkaDataSource(DataSource):
    """Apache Kafka, read in batches. Options: docs/spark.md."""

    @classmethod
    def name(cls) -> str:
        return "gkafka"

    def schema(self) -> StructType:
        return kafka_schema(parse(self.options).include_headers)

    def reader(self, schema: StructType) -> GKafkaReader:
        return GKafkaReader(dict(self.options), schema)


class GKafkaReader(DataSourceReader):
    """One batch read. Pickled to the workers with the options as text; nothing else is in it."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        from gkafka.spark.driver import plan

        options = parse(self._options)
        _check_columns(self._schema)
        return [InputPartition(task) for task in plan(options)]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        task: OffsetRange | None = partition.value if partition is not None else None
        if task is None:  # what Spark makes of an empty list of partitions
            return
        from gkafka.spark.fetch import read

        not_null = [column.name for column in self._schema.fields if not column.nullable]
        yield from read(parse(self._options), task, self._schema.fieldNames(), not_null)


def _check_columns(schema: StructType) -> None:
    """A schema of the user's may be any part of ours, in any order."""
    for column in schema.fields:
        if not column.nullable and column.name in ("key", "value", "headers"):
            raise ConfigurationError(f"schema: column {column.name!r} may be null in Kafka: leave NOT NULL out")
        kind: Any = FIELDS.get(column.name)
        if kind is None:
            raise ConfigurationError(f"schema: column {column.name!r} is not one of {', '.join(FIELDS)}")
        if column.dataType != kind:
            raise ConfigurationError(
                f"schema: column {column.name!r} is {kind.simpleString()}, not {column.dataType.simpleString()}: read it so and cast it"
            )
