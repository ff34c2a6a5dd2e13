"""format("gkafka"): the Python Data Source that Spark calls. Spark gives arguments by keyword, so their names are part of the contract.

Constructors never raise (Spark would lose the error) and open nothing (the objects are pickled): the options are checked in
schema(), which load() calls, and again in the first call of a reader, because a schema given by the user skips the former.
"""

from __future__ import annotations

import functools
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import pyspark.sql.datasource as api
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from gkafka.logs import get_logger
from gkafka.spark.columns import FIELDS, Task, check_columns, kafka_schema, read_task
from gkafka.spark.loading import keep_loaded, nothing_collected
from gkafka.spark.options import parse, parse_either

if TYPE_CHECKING:
    import pyarrow as pa

    from gkafka.spark.pushed import Comparison
    from gkafka.spark.sink import GKafkaStreamWriter, GKafkaWriter
    from gkafka.spark.streamreader import GKafkaStreamReader

__all__ = ["FIELDS", "GKafkaDataSource", "GKafkaReader", "kafka_schema"]

log = get_logger(__name__)

FILTERS = getattr(api, "Filter", None)
"""None on Spark 4.0."""


class GKafkaDataSource(DataSource):
    """Apache Kafka, read and written in batches and streams. Options: `kafka-tools docs spark`."""

    parallelism: ClassVar[int | None] = None
    """What register() has seen of the session, None where it has not been asked: the option tasks, where it is not given."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        # One for each load(): Spark keeps what it makes of this, a pickle, and hands it to each process that plans.
        self._frame = uuid.uuid4().hex

    @classmethod
    def name(cls) -> str:
        return "gkafka"

    def schema(self) -> StructType:
        return kafka_schema(parse_either(self.options).include_headers)

    def reader(self, schema: StructType) -> GKafkaReader:
        if self.options.get("pushfilters", "").lower() == "true":
            return GKafkaFilteringReader(self._reads(), schema, self._frame)
        return GKafkaReader(self._reads(), schema)

    def streamReader(self, schema: StructType) -> GKafkaStreamReader:
        with nothing_collected():
            from gkafka.spark.streamreader import GKafkaStreamReader

        return GKafkaStreamReader(self._reads(), schema)

    def _reads(self) -> dict[str, str]:
        noted = {} if self.parallelism is None else {"tasks": str(self.parallelism)}
        return {**noted, **self.options}

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
        self._comparisons: list[Comparison] = []  # that hold of all rows that count

    def partitions(self) -> list[InputPartition]:
        with nothing_collected():
            from gkafka.spark.driver import plan

        keep_loaded()
        options = parse(self._options)
        check_columns(self._schema)
        if options.push_filters and FILTERS is None:
            log.warning("pushFilters has no effect: this Spark hands no filters to a Python source; 4.1 and newer do")
        tasks, topic_ids = plan(options, self._comparisons)
        return [Task(task, topic_ids) for task in tasks]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        return read_task(parse(self._options), self._schema, partition)


class GKafkaFilteringReader(GKafkaReader):
    """One that Spark hands its filters. A class of its own: Spark refuses a reader that has pushFilters() where its own setting is off.

    Spark keeps one plan for a frame, that of the filters that came last, and gives it to all uses of the frame. So each filter is left to Spark as well, which lets no
    row through that was not asked for; and where a process sees a second use with other filters, the plan is cut by none. A use without filters it does not see.
    """

    def __init__(self, options: Mapping[str, str], schema: StructType, frame: str) -> None:
        super().__init__(options, schema)
        self._frame = frame

    def pushFilters(self, filters: list[Any]) -> Sequence[Any]:
        """Returns those that Spark has to look at all the same: all."""
        from gkafka.spark.pushed import understood

        found = [comparison for each in filters if (comparison := understood(each)) is not None]
        uses = _uses(self._frame)
        if found not in uses:
            uses.append(found)
        if len(uses) == 1:
            self._comparisons = found
        else:
            log.warning(
                "pushFilters: a frame is used with several filters, which share one plan, so none of them cuts it: load() it once for each"
            )
        if found:
            _warn_of_one_plan()
        return filters


@functools.lru_cache(1000)
def _uses(_frame: str) -> list[list[Comparison]]:
    """The filters that a frame was used with, as far as this process has planned it."""
    return []


@functools.cache
def _warn_of_one_plan() -> None:
    """Once in a process."""
    log.warning(
        "pushFilters: filters cut what a frame reads. Spark keeps that plan for each other use of the same frame or view, one without filters included, which then "
        "lacks rows: load() once for each use"
    )
