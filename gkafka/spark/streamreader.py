"""readStream: the reader that Spark calls, in one driver process for each query and, for its tasks, in the workers.

Constructors never raise and open nothing: Spark would lose the error, and the objects are pickled. What Spark 4.2 added (how much of what waits a batch
takes, Trigger.AvailableNow with several batches, the latest offset in the progress) is there where Spark has it; 4.0 and 4.1 call latestOffset() without
arguments.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from gkafka.logs import get_logger
from gkafka.spark.columns import Task, check_columns, read_task
from gkafka.spark.loading import nothing_collected
from gkafka.spark.offsets import from_spark, starts_of, tasks_of, to_spark
from gkafka.spark.options import parse_stream

if TYPE_CHECKING:
    import pyarrow as pa

    from gkafka.spark.streamdriver import NextBatch, StreamDriver

try:
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, ReadMinRows, SupportsTriggerAvailableNow
except ImportError:  # Spark 4.0 and 4.1
    SupportsTriggerAvailableNow = object  # type: ignore[assignment,misc]

__all__ = ["GKafkaStreamReader"]

log = get_logger(__name__)

SparkOffset = dict[str, dict[str, int]]
"""{"topic": {"0": 23}}"""


class GKafkaStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One streaming query. Offsets are the JVM connector's: a checkpoint goes from one to the other."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._options = dict(options)
        self._schema = schema
        self._driver: StreamDriver | None = None
        self._planned: SparkOffset | None = None  # the end of the last batch

    # -- in the driver -----------------------------------------------------------------------------------------------------
    def prepareForTriggerAvailableNow(self) -> None:
        self._query().prepare_available_now()

    def initialOffset(self) -> SparkOffset:
        return to_spark(self._query().initial())

    def getDefaultReadLimit(self) -> ReadLimit:
        stream = parse_stream(self._options).stream
        if stream.max_offsets is not None:
            return ReadMaxRows(stream.max_offsets)
        return ReadAllAvailable() if stream.min_offsets is None else ReadMinRows(stream.min_offsets)

    def latestOffset(self, *given: Any) -> SparkOffset:
        """given: start and limit, since Spark 4.2. (An argument of any kind in the signature is how Spark learns that limits are honoured.)"""
        if not given:
            query = self._query(tells_start=False)
            return self._end(self._planned, query.next_batch(None, everything=False))
        start, limit = given
        everything = isinstance(limit, ReadAllAvailable)
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return self._end(start, self._query().next_batch(from_spark(start), everything=everything, limit=most))

    def _end(self, known: SparkOffset | None, batch: NextBatch) -> SparkOffset:
        """Nothing new is the offset that is known, to the letter: Spark makes a batch of any other."""
        if known is not None and from_spark(known) == batch.end:
            return known
        return to_spark(*batch)

    def reportLatestOffset(self) -> SparkOffset | None:
        known = self._query().latest_known()
        return None if known is None else to_spark(known)

    def partitions(self, start: SparkOffset, end: SparkOffset) -> list[InputPartition]:
        self._planned = end
        query = self._query()
        tasks = query.tasks(from_spark(start), from_spark(end), tasks_of(end), starts_of(end))
        return [Task(task, query.topic_ids) for task in tasks]

    def commit(self, end: SparkOffset) -> None:
        """Nothing: it comes one batch late, and never for the last. What latestOffset() begins with is what commitGroup commits."""

    def stop(self) -> None:
        if self._driver is not None:
            self._driver.close()

    def _query(self, *, tells_start: bool = True) -> StreamDriver:
        if self._driver is None:
            with nothing_collected():
                from gkafka.skins import resolve_handler
                from gkafka.spark.streamdriver import StreamDriver

            options = parse_stream(self._options)
            check_columns(self._schema)
            for warning in options.warnings:
                log.warning("%s", warning)
            if options.stream.max_offsets is not None and not tells_start:
                log.warning(
                    "maxOffsetsPerTrigger: this Spark reads one batch with Trigger.AvailableNow, which leaves what passes the cap to the next run; "
                    "Spark 4.2 and newer go on until all is read"
                )
            self._driver = StreamDriver(options, resolve_handler("threading"))
        return self._driver

    # -- in a worker -------------------------------------------------------------------------------------------------------
    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        return read_task(parse_stream(self._options), self._schema, partition)
