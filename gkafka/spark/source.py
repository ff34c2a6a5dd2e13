"""format("gkafka"): the Python Data Source that Spark calls. Spark gives arguments by keyword, so their names are part of the contract.

Constructors never raise (Spark would lose the error) and open nothing (the objects are pickled): the options are checked in
schema(), which load() calls, and again in the first call of a reader, because a schema given by the user skips the former.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from gkafka.spark.columns import FIELDS, check_columns, kafka_schema, read_task
from gkafka.spark.loading import nothing_collected
from gkafka.spark.options import parse, parse_either

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]

    from gkafka.spark.sink import GKafkaStreamWriter, GKafkaWriter
    from gkafka.spark.streamreader import GKafkaStreamReader

__all__ = ["FIELDS", "GKafkaDataSource", "GKafkaReader", "kafka_schema"]


class GKafkaDataSource(DataSource):
    """Apache Kafka, read and written in batches and streams. Options: docs/spark.md."""

    @classmethod
    def name(cls) -> str:
        return "gkafka"

    def schema(self) -> StructType:
        return kafka_schema(parse_either(self.options).include_headers)

    def reader(self, schema: StructType) -> GKafkaReader:
        return GKafkaReader(dict(self.options), schema)

    def streamReader(self, schema: StructType) -> GKafkaStreamReader:
        with nothing_collected():
            from gkafka.spark.streamreader import GKafkaStreamReader

        return GKafkaStreamReader(dict(self.options), schema)

    def writer(self, schema: StructType, overwrite: bool) -> GKafkaWriter:
        with nothing_collected():
            from gkafka.spark.sink import GKafkaWriter

        return GKafkaWriter(dict(self.options), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> GKafkaStreamWriter:
        with nothing_collected():
            from gkafka.spark.sink import GKafkaStreamWriter

        return GKafkaStreamWriter(dict(self.options), schema, overwrite)


class GKafkaReader(DataSourceReader):
    """One batch read. Pickled to the workers with the options as text; nothing else is in it."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        with nothing_collected():
            from gkafka.spark.driver import plan

        options = parse(self._options)
        check_columns(self._schema)
        return [InputPartition(task) for task in plan(options)]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        return read_task(parse(self._options), self._schema, partition)
