"""Rows one by one, as Spark 4.0 hands them to a streaming sink, as Arrow batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema

if TYPE_CHECKING:
    from pyspark.sql.types import Row, StructType

__all__ = ["batches_of"]


def batches_of(rows: Iterable[Row], schema: StructType, size: int) -> Iterator[pa.RecordBatch]:
    """size: rows of a batch. Columns that no record is made of are left out."""
    from gkafka.spark.sinkrows import TYPES

    kinds = to_arrow_schema(schema)
    wanted = [(number, kinds.field(number)) for number in range(len(kinds)) if kinds.field(number).name in TYPES]
    rows = iter(rows)
    while some := list(islice(rows, size)):
        columns = [pa.array([row[number] for row in some], kind.type) for number, kind in wanted]
        yield pa.RecordBatch.from_arrays(columns, schema=pa.schema([kind for _, kind in wanted]))
