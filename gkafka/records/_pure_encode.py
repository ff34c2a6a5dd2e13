"""Columns into open batches: the Python twin of `_speed_encode.pxi`."""

from __future__ import annotations

import os
from array import array
from typing import TYPE_CHECKING
from zlib import crc32

from gkafka.exceptions import KafkaException
from gkafka.records._pure_memory import murmur2
from gkafka.records.recordcolumns import RecordColumns, bad_partition, string_at

if TYPE_CHECKING:
    from gkafka.records._pure_write import Appender

__all__ = ["choose_partitions", "encode_columns"]


def choose_partitions(columns: RecordColumns, partition_count: int, *, by_crc32: bool = False) -> memoryview:
    """int32 for each record: the partition given with it, else its key's by murmur2 as in Java (or CRC-32 as librdkafka's consistent_random),
    -1 without a key: then the topic's sticky one of the moment takes it.

    partition_count: of the topic, 1 or more. Raises ConfigurationError naming the row of a partition that the topic does not have.
    """
    if partition_count < 1:
        raise ValueError(f"partition_count={partition_count}: must be 1 or more")
    chosen = array("i", bytes(4 * columns.count))
    for row in range(columns.count):
        number = columns.partition(row)
        if number is None:
            chosen[row] = _by_key(columns, row, partition_count, by_crc32)
        elif 0 <= number < partition_count:
            chosen[row] = number
        else:
            raise bad_partition(row, number, partition_count)
    return memoryview(chosen)


def _by_key(columns: RecordColumns, row: int, count: int, by_crc32: bool) -> int:
    try:
        key = string_at("keys", columns.keys, row)
    except ValueError:
        return -1  # encode_columns stops at it
    if key is None or (by_crc32 and not key):
        return -1
    return (crc32(key) if by_crc32 else murmur2(key)) % count


def encode_columns(appender: Appender, topic: str, columns: RecordColumns, targets: memoryview, first: int, timestamp_ms: int) -> int:
    """Append records, from number `first` on, to the open batches of their partitions, as many as go. Returns the number of the one that does
    not: its partition has no open batch or a full one, it is too large or cannot be a record, or the appender's fast path is closed.
    `produce` it, which begins a batch or raises, and go on behind it. All of them are in when it returns `columns.count`.

    targets: int32, a partition each, -1 for the topic's sticky one (`choose_partitions`). timestamp_ms: of all of them, 0 or more.
    """
    numbers = memoryview(targets).cast("B").cast("i")
    if len(numbers) < columns.count:
        raise ValueError(f"targets: {len(numbers)} partitions for {columns.count} records")
    if not 0 <= first <= columns.count or not 0 <= timestamp_ms < 1 << 63:
        raise ValueError(f"first={first}, timestamp_ms={timestamp_ms}: must be 0 to {columns.count}, and 0 to 2**63 - 1")
    found = appender._topics.get(topic)
    if found is None or not appender.fast or os.getpid() != appender._pid:
        return first
    for row in range(first, columns.count):
        number = found.sticky if numbers[row] == -1 else numbers[row]
        batch = found.batches[number] if 0 <= number < found.partitions else None
        try:
            value, key, headers = columns.row(row)
        except (KafkaException, ValueError):
            return row
        if batch is None:
            return row
        with appender._guard:
            if batch._put(value, key, headers, timestamp_ms, appender.max_record_bytes) < 0:
                return row
    return columns.count
