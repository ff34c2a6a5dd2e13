"""Fetched batches to columns in Arrow's layout, in Python: the twin of `_speed_columns.pxi`.

With numpy, Python only finds where the v2 records of a whole fetch begin, and numpy decodes their fields (`_pure_numpy`); without it, and for
headers and old messages, each record is decoded as `Records` does.
"""

from __future__ import annotations

import importlib.util
import struct
from array import array
from collections.abc import Callable, Container
from typing import TYPE_CHECKING, Any

from gkafka.exceptions import KafkaException
from gkafka.records._damage import MAX_INT64, MIN_INT64, Place, bare, corrupt, explain_crc, explain_entry, unreadable
from gkafka.records._message import unpack_headers
from gkafka.records._pure_crc import crc32c
from gkafka.records._pure_cursors import UNBOUNDED, open_batch, open_records
from gkafka.records._pure_read import AnyBuffer, BatchHeader, is_cut, offset_at, read_header
from gkafka.records._raw import MOST_DATA, BinaryColumn, HeaderColumn, RawColumns
from gkafka.records._unwrap import room_for

if TYPE_CHECKING:
    from gkafka.records._pure_numpy import Segment

__all__ = ["decode_columns", "microseconds"]

Skip = Container[int] | Callable[[BatchHeader], bool] | None
MOST_RECORDS = 2**31 - 2
TOGETHER = 512 * 1024  # bytes of records that numpy decodes at once: larger arrays leave the caches

HAS_NUMPY = importlib.util.find_spec("numpy") is not None


class Strings:
    """A binary column under construction. `valid` has a byte for each string."""

    def __init__(self) -> None:
        self.offsets = array("i")
        self.data = bytearray()
        self.valid = bytearray()

    def put(self, string: bytes | None) -> None:
        self.offsets.append(len(self.data))
        self.valid.append(string is not None)
        if string:
            self.data += string

    def column(self) -> BinaryColumn:
        self.offsets.append(len(self.data))
        nulls = self.valid.count(0)
        bitmap = memoryview(packed(self.valid)) if nulls else None
        return BinaryColumn(memoryview(self.offsets), memoryview(self.data).toreadonly(), bitmap, nulls)


def packed(flags: bytes | bytearray) -> bytes:
    """A bit for each byte of 0 or 1, least significant first."""
    if HAS_NUMPY:
        from gkafka.records._pure_numpy import pack_bits

        return pack_bits(flags)
    eights = (flags[at : at + 8] for at in range(0, len(flags), 8))
    return bytes(sum(flag << bit for bit, flag in enumerate(eight)) for eight in eights)


class Sink:
    """Columns under construction, and the bounds of what goes in."""

    def __init__(
        self, start_offset: int, end_offset: int, max_records: int, max_data: int, keys: bool, values: bool, headers: bool
    ) -> None:
        self.start_offset = start_offset
        self.end_offset = end_offset
        self.max_records = max_records
        self.max_data = max_data
        self.offsets = array("q")
        self.timestamps = array("q")
        self.types = array("i")
        self.keys = Strings() if keys else None
        self.values = Strings() if values else None
        self.header_offsets = array("i")
        self.header_keys = Strings() if headers else None
        self.header_values = Strings() if headers else None

    def data_size(self) -> int:
        return sum(len(strings.data) for strings in (self.keys, self.values, self.header_keys, self.header_values) if strings is not None)

    def is_full(self, size: int) -> bool:
        """Whether a record of that many bytes passes a bound."""
        count = len(self.offsets)
        return count >= self.max_records or (count > 0 and self.data_size() + size > self.max_data)

    def put(self, its_type: int, offset: int, timestamp: int, key: bytes | None, value: bytes | None, headers: bytes | None) -> None:
        self.offsets.append(offset)
        self.timestamps.append(timestamp)
        self.types.append(its_type)
        if self.keys is not None:
            self.keys.put(key)
        if self.values is not None:
            self.values.put(value)
        if self.header_keys is not None and self.header_values is not None:
            self.header_offsets.append(len(self.header_keys.offsets))
            for name, data in _raw_headers(headers):
                self.header_keys.put(name)
                self.header_values.put(data)

    def header_column(self) -> HeaderColumn | None:
        if self.header_keys is None or self.header_values is None:
            return None
        self.header_offsets.append(len(self.header_keys.offsets))
        return HeaderColumn(memoryview(self.header_offsets), self.header_keys.column(), self.header_values.column())


def _raw_headers(headers: bytes | None) -> list[tuple[bytes, bytes | None]]:
    """Headers with their keys as they stand."""
    return unpack_headers(headers, bytes) if headers is not None else []


def _row(shared: Any, offset: int, timestamp: int, key: bytes | None, value: bytes | None, headers: bytes | None, size: int) -> Any:
    return offset, timestamp, key, value, headers, size


class ColumnReader:
    """One call of decode_columns: the loop over buffers and batches.

    Segments for numpy wait until enough are there; what is found in one of them comes before anything found since.
    """

    def __init__(self, sink: Sink, topic: str | None, partition: int | None, skip: Skip, check_crcs: bool) -> None:
        self.sink = sink
        self.topic = topic
        self.partition = partition
        self.skip = skip
        self.check_crcs = check_crcs
        self.next_offset = sink.start_offset
        self.complete = False
        self.error: KafkaException | None = None
        self.max_bytes = 0
        self._spent = 0  # bytes decompressed so far
        self._batches = 0
        self._segments: list[Segment] = []
        self._waiting = 0
        self._use_numpy = HAS_NUMPY and sink.header_keys is None

    def read(self, buffer: AnyBuffer) -> bool:
        """Read one buffer; False if reading ends here."""
        data = memoryview(buffer).cast("B")
        pos, size = 0, len(data)
        while pos < size:
            header = read_header(data, pos, size)
            if header is None:
                if is_cut(data, pos, size):
                    return True
                why = explain_entry(data, pos, whole=True)
                self.error = unreadable(why, self.topic, self.partition, offset_at(data, pos))
                return False
            pos = header.end
            if header.last_offset < self.sink.start_offset:
                continue
            if header.count >= 0 and header.base_offset >= self.sink.end_offset:
                self._end()
                return False
            if not self._read_batch(data, header):
                return False
        return True

    def _end(self) -> None:
        self.next_offset = self.sink.end_offset
        self.complete = True

    def _read_batch(self, data: memoryview, header: BatchHeader) -> bool:
        place = Place(self.topic, self.partition, header.base_offset, header.last_offset)
        if header.codec and self._batches and self._spent >= self.max_bytes:
            return False
        try:
            if header.magic == 2:
                if self._left_out(data, header, place):
                    self.next_offset = max(self.next_offset, header.next_offset)
                    return True
                if self._use_numpy:
                    return self._put_segment(header, open_records(data, header, place, check_crcs=False, max_bytes=self.max_bytes), place)
            return self._put_rows(data, header, place)
        except KafkaException as error:
            self.error = error
            return False

    def _left_out(self, data: memoryview, header: BatchHeader, place: Place) -> bool:
        """Whether the v2 batch is a control batch or skipped. Its checksum is verified first: it guards the offsets passed over."""
        if self.check_crcs:
            stored, computed = struct.unpack_from(">I", data, header.start + 17)[0], crc32c(data[header.start + 21 : header.end])
            if stored != computed:
                raise corrupt(explain_crc(stored, computed), place)
        if header.is_control or self.skip is None:
            return header.is_control
        return bool(self.skip(header)) if callable(self.skip) else header.base_offset in self.skip

    def _put_rows(self, data: memoryview, header: BatchHeader, place: Place) -> bool:
        if not self.flush():
            return False
        cursor = open_batch(data, header, place, check_crcs=self.check_crcs and header.magic < 2, max_bytes=self.max_bytes)
        self._count(header, cursor.size)
        rows: list[Any] = []
        error = cursor.read(_row, None, cursor.left, self.sink.start_offset, rows.append, UNBOUNDED, 1)
        its_type = int(header.timestamp_type)
        for offset, timestamp, key, value, headers, size in rows:
            if offset >= self.sink.end_offset:
                self._end()
                return False
            if self.sink.is_full(size):
                return False
            self.sink.put(its_type, offset, timestamp, key, value, headers)
            self.next_offset = max(self.next_offset, offset + 1)
        self.error = error
        if error is None:
            self.next_offset = max(self.next_offset, header.next_offset)
        return error is None

    def _count(self, header: BatchHeader, size: int) -> None:
        self._batches += 1
        if header.codec:
            self._spent += size

    def _put_segment(self, header: BatchHeader, records: bytes, place: Place) -> bool:
        from gkafka.records._pure_numpy import Segment

        self._count(header, len(records))
        self._segments.append(Segment(header, records, place, self.next_offset))
        self._waiting += len(records)
        self.next_offset = max(self.next_offset, header.next_offset)
        return self._waiting < TOGETHER or self.flush()

    def flush(self) -> bool:
        """Decode the segments that wait; False if reading ends within them, whatever was found behind."""
        if not self._segments:
            return True
        from gkafka.records._pure_numpy import put_segments

        segments, self._segments, self._waiting = self._segments, [], 0
        stop = put_segments(self.sink, segments)
        if stop is None:
            return True
        self.next_offset, self.error, self.complete = stop.next_offset, stop.error, False
        if stop.at_end:
            self._end()
        return False


def decode_columns(
    batches: AnyBuffer | list[AnyBuffer] | tuple[AnyBuffer, ...],
    *,
    start_offset: int,
    end_offset: int | None = None,
    keys: bool = True,
    values: bool = True,
    headers: bool = False,
    check_crcs: bool = True,
    skip: Skip = None,
    topic: str | None = None,
    partition: int | None = None,
    max_bytes: int | None = None,
    max_records: int | None = None,
    max_data_bytes: int | None = None,
) -> RawColumns:
    """The records of fetched batches from start_offset up to, not including, end_offset, as columns: see RawColumns.

    batches: a buffer or several, in offset order. keys, values, headers: which of these to build. skip: the base offsets of batches
    to leave out (a set; aborted ones), or a callable that is given each BatchHeader. Control batches are always left out.
    max_bytes: what one batch may decompress to (64 MiB or 8 times its buffer, whichever is more); once all together passed it, reading
    stops at the next compressed batch. max_records, max_data_bytes (2**31 - 1 at most): reading stops before they are passed, after one
    record at least.
    Raises CorruptRecordError or UnsupportedCodec if the first record cannot be read; a later one is the result's `error`.
    """
    sink = Sink(
        start_offset,
        MAX_INT64 if end_offset is None else end_offset,
        MOST_RECORDS if max_records is None else min(max(max_records, 1), MOST_RECORDS),
        MOST_DATA if max_data_bytes is None else min(max_data_bytes, MOST_DATA),
        keys,
        values,
        headers,
    )
    reader = ColumnReader(sink, topic, partition, skip, check_crcs)
    if start_offset >= sink.end_offset:
        reader.complete = True
    else:
        _read_all(reader, list(batches) if isinstance(batches, (list, tuple)) else [batches], max_bytes)
    if reader.error is not None:
        bare(reader.error)
        if not len(sink.offsets):
            raise reader.error
    return _raw_columns(reader, sink)


def _read_all(reader: ColumnReader, buffers: list[AnyBuffer], max_bytes: int | None) -> None:
    for buffer in buffers:
        reader.max_bytes = room_for(memoryview(buffer).nbytes) if max_bytes is None else max_bytes
        if not reader.read(buffer):
            reader.flush()
            return
    if reader.flush():
        reader.complete = True


def _raw_columns(reader: ColumnReader, sink: Sink) -> RawColumns:
    return RawColumns(
        len(sink.offsets),
        reader.next_offset,
        reader.complete,
        reader.error,
        memoryview(sink.offsets),
        memoryview(sink.timestamps),
        memoryview(sink.types),
        sink.keys.column() if sink.keys is not None else None,
        sink.values.column() if sink.values is not None else None,
        sink.header_column(),
    )


def microseconds(milliseconds: AnyBuffer) -> memoryview:
    """int64 milliseconds as int64 microseconds; what does not fit becomes the nearest number that does."""
    source = memoryview(milliseconds).cast("B").cast("q")
    if HAS_NUMPY:
        from gkafka.records._pure_numpy import to_microseconds

        return to_microseconds(source)
    return memoryview(array("q", [min(max(value * 1000, MIN_INT64), MAX_INT64) for value in source]))
