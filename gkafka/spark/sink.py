"""df.write.format("gkafka") and writeStream: the writers that Spark calls, on the driver and in its workers.

A writer is pickled with the options as text and opens nothing before write(). On the driver commit() and abort() have nothing to do: a task's rows
are in Kafka when its write() returns, in a transaction or acknowledged; what a failed task has left, its replay finds marked as done, or writes again.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyspark.sql.datasource as api
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamWriter, WriterCommitMessage

from gkafka.exceptions import ConfigurationError
from gkafka.logs import get_logger
from gkafka.spark.exactlyonce import Task, write_once
from gkafka.spark.loading import keep_loaded
from gkafka.spark.sinkoptions import SinkOptions, parse_sink
from gkafka.spark.sinkrows import check_written_columns, unwritten_columns
from gkafka.spark.sinktask import write_plainly
from gkafka.spark.update import STATELESS_AQE, check_conf

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import Row, StructType

__all__ = ["GKafkaStreamWriter", "GKafkaWriter", "Written"]

log = get_logger(__name__)

ROWS = 10000
"""Rows that Spark 4.0 hands over one by one and that go together."""


@dataclass
class Written(WriterCommitMessage):
    """What a task has written. last_offsets: (topic, partition) -> offset of its last record there. replayed: it had been written before, and was not again."""

    records: int = 0
    last_offsets: dict[tuple[str, int], int] = field(default_factory=dict)
    replayed: bool = False


class _Sink:
    """What both writers share."""

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        self._options, self._schema, self._overwrite = dict(options), schema, overwrite
        for warning in (*self._parsed().warnings, *unwritten_columns(schema)):
            _warn(warning)

    def _parsed(self) -> SinkOptions:
        """Raises ConfigurationError."""
        options = parse_sink(self._options)
        check_written_columns(self._schema, options.topic)
        return options

    def _write(self, batches: Iterator[pa.RecordBatch]) -> Written:
        keep_loaded()
        options = self._parsed()
        tally = write_once(options, batches, self._task(options)) if options.transactional else write_plainly(options, batches)
        return Written(tally.records, tally.last_offsets, tally.replayed)

    def _task(self, options: SinkOptions) -> Task:
        raise NotImplementedError


class GKafkaWriter(_Sink, DataSourceArrowWriter):
    """One batch write: a job, or a micro-batch of `write_stream`."""

    def _parsed(self) -> SinkOptions:
        if self._overwrite:
            raise ConfigurationError(
                "Save mode Overwrite not allowed for Kafka. Allowed save modes are Append and ErrorIfExists (default). Give .mode('append'): "
                "Spark lets no Python data source have the default"
            )
        options = super()._parsed()
        if options.transactional and options.batch_id is None and options.job_id is None:
            raise ConfigurationError(
                "exactlyOnce=transactional in a batch needs jobId, a name that this job has whenever it is run again; or leave exactlyOnce out"
            )
        return options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self._write(iterator)

    def _task(self, options: SinkOptions) -> Task:
        if options.batch_id is not None:
            return _micro_batch(options)
        return Task(options.prefix, str(options.job_id), _context().partitionId(), 0)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        log.info("%s", _summary(messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        log.warning("the write failed; of its tasks that had ended: %s", _summary(messages))


class _StreamSink(_Sink):
    """One micro-batch. In Complete mode (overwrite) all rows of the result are written again, as the JVM connector does: a topic keeps what was."""

    def _parsed(self) -> SinkOptions:
        options = super()._parsed()
        for name, value in (("batchId", options.batch_id), ("jobId", options.job_id)):
            if value is not None:
                raise ConfigurationError(
                    f"{name}={value!r}: a stream has the number of its micro-batch and its id from its checkpoint; leave it out"
                )
        return options

    def _task(self, options: SinkOptions) -> Task:
        return _micro_batch(options)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        log.info("micro-batch %d: %s", batchId, _summary(messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        log.warning("micro-batch %d failed; of its tasks that had ended: %s", batchId, _summary(messages))


_ARROW: Any = getattr(api, "DataSourceStreamArrowWriter", None)  # since 4.1

if _ARROW is not None:

    class GKafkaStreamWriter(_StreamSink, _ARROW):  # type: ignore[misc]  # a base that 4.0 lacks
        """A micro-batch of a stream, as Arrow batches."""

        def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
            return self._write(iterator)

else:

    class GKafkaStreamWriter(_StreamSink, DataSourceStreamWriter):  # type: ignore[no-redef]  # one of the two
        """A micro-batch of a stream, as rows: Spark 4.0 has nothing else for Python."""

        def write(self, iterator: Iterator[Row]) -> WriterCommitMessage:
            from gkafka.spark.sinkfromrows import batches_of

            return self._write(batches_of(iterator, self._schema, ROWS))


@functools.cache
def _warn(text: str) -> None:
    """Once in a process: a stream makes a writer for each micro-batch."""
    log.warning("%s", text)


def _context() -> Any:
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None:
        raise ConfigurationError("exactlyOnce=transactional works in a Spark task only")
    return context


def _micro_batch(options: SinkOptions) -> Task:
    """Which task of which micro-batch this is. Spark tells its workers, with what was set in the session. Raises ConfigurationError."""
    context = _context()
    check_conf(context.getLocalProperty(STATELESS_AQE))
    if options.batch_id is not None and options.job_id is not None:
        return Task(options.prefix, options.job_id, context.partitionId(), options.batch_id)
    query, batch = (context.getLocalProperty(name) for name in ("sql.streaming.queryId", "streaming.sql.batchId"))
    if query is None or batch is None:
        raise ConfigurationError(
            "exactlyOnce=transactional: Spark does not say which query this is (Spark Connect does not in foreachBatch): give jobId, a name that this "
            "query alone has for as long as it has its checkpoint"
        )
    if options.batch_id is not None and options.batch_id != int(batch):
        raise ConfigurationError(f"batchId={options.batch_id}: the micro-batch is {batch}; leave it to gkafka.spark.write_stream()")
    return Task(options.prefix, query, context.partitionId(), int(batch))


def _summary(messages: Sequence[WriterCommitMessage | None]) -> str:
    written = [message for message in messages if isinstance(message, Written)]
    again = sum(message.replayed for message in written)
    return f"{sum(message.records for message in written)} records by {len(written)} of {len(messages)} tasks, {again} of them done before"
