"""A Data Source that does nothing but hand out one Arrow batch again and again, or nothing at all: what PySpark's own part of a Python worker takes.

For benchmarks/spark.py. Imports no more than a Data Source must, or PySpark's part would look larger than it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition

COLUMNS = {
    "key": (pa.binary(), b"k" * 16),
    "value": (pa.binary(), b"v" * 100),
    "topic": (pa.string(), "t"),
    "partition": (pa.int32(), 0),
    "offset": (pa.int64(), 0),
    "timestamp": (pa.timestamp("us", tz="UTC"), 0),
    "timestampType": (pa.int32(), 0),
}
ROWS = 10_000
"""Of the batch, or fewer where a task has fewer."""


class ToySource(DataSource):
    """Options: rows, a multiple of 10,000 for each task, or less than that; tasks (2). A stream has so many rows in each of its `batches`."""

    @classmethod
    def name(cls) -> str:
        return "toy"

    def schema(self) -> str:
        return "key binary, value binary, topic string, partition int, offset long, timestamp timestamp, timestampType int"

    def reader(self, schema: Any) -> DataSourceReader:
        return ToyReader(int(self.options["rows"]), int(self.options.get("tasks", 2)))

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        from benchmarks.toy_stream import ToyStreamReader  # what it imports is no part of a batch

        return ToyStreamReader(int(self.options["rows"]), int(self.options.get("tasks", 2)), int(self.options["batches"]))


class ToyReader(DataSourceReader):
    def __init__(self, rows: int, tasks: int) -> None:
        self._rows, self._tasks = rows, tasks

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(n) for n in range(self._tasks)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return rows_of(self._rows // self._tasks)


def rows_of(count: int) -> Iterator[pa.RecordBatch]:
    """As batches of at most 10,000 rows."""
    rows = min(count, ROWS)
    arrays = [_repeated(kind, value, rows) for kind, value in COLUMNS.values()]
    batch = pa.RecordBatch.from_arrays(arrays, schema=pa.schema([(name, kind) for name, (kind, _) in COLUMNS.items()]))
    for _ in range(count // rows if rows else 0):
        yield batch


def _repeated(kind: Any, value: Any, rows: int) -> Any:
    """Of buffers: pyarrow's scalars import pandas where it is installed."""
    if isinstance(value, int):
        return pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(bytes(rows * kind.bit_width // 8))])
    data = value.encode() if isinstance(value, str) else value
    ends = b"".join((n * len(data)).to_bytes(4, "little") for n in range(rows + 1))
    return pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(ends), pa.py_buffer(data * rows)])
