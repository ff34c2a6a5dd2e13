"""The stream of toy_source.py: what PySpark's own part of a small batch takes. Spark 4.2 and newer."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from benchmarks.toy_source import rows_of


class ToyStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Its offset is how many batches there were."""

    def __init__(self, rows: int, tasks: int, batches: int) -> None:
        self._rows, self._tasks, self._batches = rows, tasks, batches

    def prepareForTriggerAvailableNow(self) -> None:
        pass

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._rows)

    def initialOffset(self) -> dict[str, int]:
        return {"batches": 0}

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        return {"batches": min(self._batches, start["batches"] + 1)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return [InputPartition(n) for n in range(self._tasks)] if end != start else []

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        return rows_of(self._rows // self._tasks if partition is not None else 0)
