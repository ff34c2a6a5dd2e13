"""A Data Source that does nothing but hand out one Arrow batch again and again, or nothing at all: what PySpark's own part of a Python worker takes.

For benchmarks/spark.py. Imports no more than a Data Source must, or PySpark's part would look larger than it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

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
"""Of the batch."""


class ToySource(DataSource):
    """Options: rows, a multiple of 10,000 for each task; tasks (2)."""

    @classmethod
    def name(cls) -> str:
        return "toy"

    def schema(self) -> str:
        return "key binary, value binary, topic string, partition int, offset long, timestamp timestamp, timestampType int"

    def reader(self, schema: Any) -> DataSourceReader:
        return ToyReader(int(self.options["rows"]), int(self.options.get("tasks", 2)))


class ToyReader(DataSourceReader):
    def __init__(self, rows: int, tasks: int) -> None:
        self._rows, self._tasks = rows, tasks

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(n) for n in range(self._tasks)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        arrays = [_repeated(kind, value) for kind, value in COLUMNS.values()]
        batch = pa.RecordBatch.from_arrays(arrays, schema=pa.schema([(name, kind) for name, (kind, _) in COLUMNS.items()]))
        for _ in range(self._rows // ROWS // self._tasks):
            yield batch


def _repeated(kind: Any, value: Any) -> Any:
    """Of buffers: pyarrow's scalars import pandas where it is installed."""
    if isinstance(value, int):
        return pa.Array.from_buffers(kind, ROWS, [None, pa.py_buffer(bytes(ROWS * kind.bit_width // 8))])
    data = value.encode() if isinstance(value, str) else value
    ends = b"".join((n * len(data)).to_bytes(4, "little") for n in range(ROWS + 1))
    return pa.Array.from_buffers(kind, ROWS, [None, pa.py_buffer(ends), pa.py_buffer(data * ROWS)])
