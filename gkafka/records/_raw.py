"""What `decode_columns` of either implementation gives: plain buffers in Arrow's layout, no object per record."""

from __future__ import annotations

from dataclasses import dataclass

from gkafka.exceptions import KafkaException

# Arrow's binary arrays count their bytes in int32.
MOST_DATA = 2**31 - 1


@dataclass(frozen=True)
class BinaryColumn:
    """Byte strings. offsets: int32, one more than there are strings. validity: a bit each, least significant first, 0 for
    null; None where nothing is null. data: all bytes, one after another. first: where the column begins in offsets and validity."""

    offsets: memoryview
    data: memoryview
    validity: memoryview | None
    null_count: int
    first: int = 0


@dataclass(frozen=True)
class HeaderColumn:
    """Headers of records. offsets: int32, one more than there are records, counting headers. keys are UTF-8 as far as the
    producer was honest and never null. validity, first: as in BinaryColumn; a record that is null here has no headers."""

    offsets: memoryview
    keys: BinaryColumn
    values: BinaryColumn
    validity: memoryview | None = None
    first: int = 0


@dataclass(frozen=True)
class RawColumns:
    """The records of fetched batches. count: how many. offsets, timestamps (ms): int64. timestamp_types: int32, -1 none.

    next_offset: where reading goes on. keys, values, headers: None if they were not asked for.
    complete: all whole batches of the input were read, or end_offset was reached; otherwise call again from next_offset with
    the same input. error: why the record at next_offset cannot be read (then complete is False): the next call raises it.
    """

    count: int
    next_offset: int
    complete: bool
    error: KafkaException | None
    offsets: memoryview
    timestamps: memoryview
    timestamp_types: memoryview
    keys: BinaryColumn | None
    values: BinaryColumn | None
    headers: HeaderColumn | None
