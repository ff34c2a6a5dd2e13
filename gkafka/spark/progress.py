"""How far a stream is behind: numbers out of Spark's progress, and a listener that reports them.

Spark hands its progress to Python sources from 4.2 on with the latest offsets beside the end of the batch. Before, commitGroup is the way to see lag.
Source: spark-sql-kafka-0-10, KafkaMicroBatchStream.metrics.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypedDict

from pyspark.sql.streaming.listener import StreamingQueryListener

from gkafka.exceptions import ConfigurationError
from gkafka.logs import get_logger
from gkafka.spark.offsets import Offsets, from_spark

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import QueryProgressEvent, StreamingQueryProgress

__all__ = ["Lag", "LagListener", "lag"]

log = get_logger(__name__)


class Lag(TypedDict, total=False):
    """Offsets between what was read and what is there, over all partitions; by the names of the JVM connector's metrics."""

    minOffsetsBehindLatest: int
    maxOffsetsBehindLatest: int
    avgOffsetsBehindLatest: float


def lag(progress: StreamingQueryProgress | dict[str, Any]) -> Lag:
    """The lag after a batch. progress: query.lastProgress, or the event's of a listener.

    All sources of the query that have offsets of Kafka count together. Empty where nothing is known: before the first batch, and on Spark 4.0 and 4.1.
    """
    behind = [offset for source in _sources(progress) for offset in _behind(source)]
    if not behind:
        return {}
    return {
        "minOffsetsBehindLatest": min(behind),
        "maxOffsetsBehindLatest": max(behind),
        "avgOffsetsBehindLatest": sum(behind) / len(behind),
    }


def _sources(progress: Any) -> Iterator[dict[str, Any]]:
    if progress is None:  # query.lastProgress before the first batch
        return
    found = progress["sources"] if isinstance(progress, dict) else progress.sources
    for source in found:
        yield source if isinstance(source, dict) else {name: getattr(source, name) for name in ("endOffset", "latestOffset")}


def _behind(source: dict[str, Any]) -> Iterator[int]:
    end, latest = (_offsets(source.get(name)) for name in ("endOffset", "latestOffset"))
    for at, offset in latest.items():
        if at in end:
            yield max(0, offset - end[at])


def _offsets(found: Any) -> Offsets:
    """{} for what is no offset of Kafka: other sources of the query, or none yet."""
    try:
        return from_spark(json.loads(found) if isinstance(found, str) else found)
    except (ConfigurationError, ValueError):
        return {}


class LagListener(StreamingQueryListener):
    """Reports the lag of every streaming query of a session after each batch: `spark.streams.addListener(LagListener())`.

    report: called with the query's name (its id where it has none), the number of the batch and its lag; None logs a line of level INFO. It runs on
    Spark's listener thread, one call at a time: what takes long there delays the events of all queries.
    """

    def __init__(self, report: Callable[[str, int, Lag], object] | None = None) -> None:
        self._report = report if report is not None else _log

    def onQueryStarted(self, event: Any) -> None:
        """Nothing: there is no lag yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        progress = event.progress
        found = lag(progress)
        if found:
            self._report(progress.name or str(progress.id), progress.batchId, found)

    def onQueryIdle(self, event: Any) -> None:
        """Nothing: an idle query has read what there is."""

    def onQueryTerminated(self, event: Any) -> None:
        """Nothing."""


def _log(query: str, batch: int, found: Lag) -> None:
    log.info("query %s, batch %d: %s", query, batch, " ".join(f"{name}={value}" for name, value in found.items()))
