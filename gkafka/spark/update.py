"""Streams in Update mode, which Spark lets no Python data source have: each micro-batch is written as a batch, with its number."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from gkafka.exceptions import ConfigurationError
from gkafka.spark.sinkoptions import SinkOptions, parse_sink
from gkafka.spark.sinkrows import check_written_columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["STATELESS_AQE", "write_stream"]

STATELESS_AQE = "spark.sql.adaptive.streaming.stateless.enabled"
"""Lets Spark cut the rows of a stateless query with a shuffle into other tasks on a replay; true by default since 4.1."""
MODES = ("append", "complete", "update")


def write_stream(
    df: DataFrame,
    options: Mapping[str, Any] | None = None,
    *,
    mode: str = "update",
    query_name: str | None = None,
    trigger: Mapping[str, Any] | None = None,
    **more: Any,
) -> StreamingQuery:
    """Start a query that writes a streaming DataFrame to Kafka, also in Update mode; returns the query.

    options, more: of the sink, and checkpointLocation, as in `df.writeStream.format("gkafka").options(...)`: {"kafka.bootstrap.servers": ...,
    "topic": ...}. trigger: the arguments of `DataStreamWriter.trigger`: {"availableNow": True}. With exactlyOnce=transactional each
    micro-batch is written once, as writeStream does it; Spark's conf is checked first. Raises ConfigurationError before anything starts.
    """
    given = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in {**(options or {}), **more}.items()}
    location = {name: value for name, value in given.items() if name.lower() == "checkpointlocation"}
    sink = {name: value for name, value in given.items() if name not in location}
    _check(df, parse_sink(sink), mode)
    writer = df.writeStream.outputMode(mode).options(**location).foreachBatch(_write_batch(sink))
    writer = writer.queryName(query_name) if query_name is not None else writer
    return (writer.trigger(**trigger) if trigger is not None else writer).start()


def _check(df: DataFrame, options: SinkOptions, mode: str) -> None:
    if mode not in MODES:
        raise ConfigurationError(f"mode={mode!r}: must be one of {', '.join(map(repr, MODES))}")
    if options.batch_id is not None:
        raise ConfigurationError(f"batchId={options.batch_id}: write_stream() gives each micro-batch its own; leave it out")
    if not df.isStreaming:
        raise ConfigurationError(
            "write_stream() takes a streaming DataFrame; write this one with df.write.format('gkafka').mode('append').save()"
        )
    check_written_columns(df.schema, options.topic)
    if options.transactional:
        check_conf(df.sparkSession.conf.get(STATELESS_AQE, None))


def check_conf(value: str | None) -> None:
    """value: of STATELESS_AQE. Raises ConfigurationError unless a replay finds each row in the task that it was in."""
    if value is None or value.lower() != "false":
        raise ConfigurationError(
            f"exactlyOnce=transactional needs the same rows in the same task when a micro-batch is replayed, and {STATELESS_AQE} lets Spark cut them "
            f'anew: spark.conf.set("{STATELESS_AQE}", "false") before the query starts; one that was refused goes on from its checkpoint then'
        )


def _write_batch(options: Mapping[str, str]) -> Callable[[DataFrame, int], None]:
    """What foreachBatch calls. It may be pickled, and run elsewhere (Spark Connect): it holds texts alone."""

    def write(batch: DataFrame, batch_id: int) -> None:
        batch.write.format("gkafka").options(**options).option("batchId", str(batch_id)).mode("append").save()

    return write
