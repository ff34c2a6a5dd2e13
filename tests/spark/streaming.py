"""A streaming query as Spark runs it, without Spark: the order of its calls, offsets as JSON, pickles, a checkpoint that outlives the reader.

Seen on Spark 4.2 and 4.3: new query: (prepareForTriggerAvailableNow), initialOffset, latestOffset(start, limit), initialOffset again,
partitions(start, end); a restart begins with a batch that was planned and not committed, with the very offsets of the log. 4.0 and 4.1 call
latestOffset() before initialOffset(), tell a restarted reader the last offsets of the log, x, by partitions(x, x), whether that batch was committed
or not, and call commit(end) one batch late.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from gkafka.spark.source import GKafkaDataSource

if TYPE_CHECKING:
    from pyspark.sql.streaming.datasource import ReadLimit

Row = dict[str, Any]


@dataclass
class Checkpoint:
    """offsets: the end of each batch that was planned, as JSON. commits: how many of them are done."""

    offsets: list[str] = field(default_factory=list)
    commits: int = 0


class Query:
    """One run of a query. rows: what its batches held, one list for each batch of this run."""

    def __init__(
        self,
        options: Mapping[str, str],
        checkpoint: Checkpoint,
        *,
        available_now: bool = False,
        once: bool = False,
        schema: StructType | None = None,
    ) -> None:
        self.source = pickle.loads(pickle.dumps(GKafkaDataSource(options=dict(options))))
        self.schema = schema if schema is not None else self.source.schema()
        self.reader: DataSourceStreamReader = self.source.streamReader(schema=self.schema)
        self.in_workers = pickle.dumps(self.source.streamReader(schema=self.schema))  # the planner's own: what tasks read with
        self.checkpoint, self.available_now, self.once = checkpoint, available_now, once
        self.rows: list[list[Row]] = []
        self._begun = False

    def run(self, batches: int | None = None) -> list[list[Row]]:
        """Batches until there is nothing new, at most so many; one that was planned before counts. Returns the rows of each."""
        before = len(self.rows)
        while (batches is None or len(self.rows) - before < batches) and self.plan():
            self.finish()
        return self.rows[before:]

    def plan(self) -> bool:
        """Write the next batch to the log of offsets; False if there is none."""
        limit = self._begin()
        if len(self.checkpoint.offsets) > self.checkpoint.commits:
            return True  # of an earlier run
        start = self._committed()
        at = start if start is not None else sent(self.reader.initialOffset())
        end = sent(self.reader.latestOffset(at, limit))
        sent(self.reader.reportLatestOffset())
        if end == start:
            return False
        self.checkpoint.offsets.append(json.dumps(end))
        return True

    def finish(self) -> None:
        """Run the batch that was planned, and write its commit."""
        start = self._committed()
        begin = start if start is not None else sent(self.reader.initialOffset())
        end = json.loads(self.checkpoint.offsets[self.checkpoint.commits])
        tasks = pickle.loads(pickle.dumps(self.reader.partitions(begin, end)))
        self.rows.append([row for task in tasks for row in self.read(task)])
        self.checkpoint.commits += 1

    def read(self, task: InputPartition) -> Iterator[Row]:
        for batch in pickle.loads(self.in_workers).read(task):
            yield from batch.to_pylist()

    def values(self) -> list[bytes]:
        return [row["value"] for batch in self.rows for row in batch]

    def _begin(self) -> ReadLimit:
        from pyspark.sql.streaming.datasource import ReadAllAvailable  # not there before Spark 4.2

        if not self._begun and self.available_now:
            self.reader.prepareForTriggerAvailableNow()
        self._begun = True
        return ReadAllAvailable() if self.once else self.reader.getDefaultReadLimit()

    def _committed(self) -> Any:
        return json.loads(self.checkpoint.offsets[self.checkpoint.commits - 1]) if self.checkpoint.commits else None


class OldQuery(Query):
    """The same on Spark 4.0 and 4.1."""

    def plan(self) -> bool:
        if not self._begun and self.checkpoint.offsets:
            seen = json.loads(self.checkpoint.offsets[-1])  # of a batch that may not be done
            assert self.reader.partitions(seen, seen) == []
        self._begun = True
        if len(self.checkpoint.offsets) > self.checkpoint.commits:
            return True
        end = sent(self.reader.latestOffset())
        if end == self._committed():
            return False
        if self.checkpoint.commits:
            self.reader.commit(self._committed())
        self.checkpoint.offsets.append(json.dumps(end))
        return True


def ends(told: str | dict[str, Any]) -> dict[str, Any]:
    """What an offset of a checkpoint says of partitions."""
    found: dict[str, Any] = json.loads(told) if isinstance(told, str) else told
    return {topic: partitions for topic, partitions in found.items() if not topic.startswith("gkafka:")}


def sent(value: Any) -> Any:
    """What comes out at the other side of a socket."""
    return json.loads(json.dumps(value))
