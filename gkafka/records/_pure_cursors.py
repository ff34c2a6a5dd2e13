"""Where a `Records` of the Python implementation stands in its batch, and the loops that decode records and messages."""

from __future__ import annotations

from collections.abc import Callable
from struct import unpack_from
from typing import TYPE_CHECKING, Any, Protocol

from gkafka.common import TimestampType
from gkafka.exceptions import KafkaException
from gkafka.records._damage import (
    MAX_INT64,
    MIN_INT64,
    SMALLEST_RECORD,
    Place,
    corrupt,
    explain_count,
    explain_crc,
    explain_message,
    explain_record,
    explain_rest,
)
from gkafka.records._message import MESSAGE_BYTES
from gkafka.records._pure_crc import crc32c
from gkafka.records._unwrap import decompress, message_bounds, open_set, wrapped

if TYPE_CHECKING:
    from gkafka.records._pure_read import BatchHeader

UNBOUNDED = 1 << 62

# kind(shared, offset, timestamp, key, value, headers as they stand or None, bytes in the batch)
Kind = Callable[[Any, int, int, "bytes | None", "bytes | None", "bytes | None", int], Any]


class Cursor(Protocol):
    """A place in an opened batch. left: records not yet decoded.

    size: bytes of the opened batch, rest: those not yet decoded.
    """

    left: int
    size: int

    @property
    def rest(self) -> int: ...

    def read(
        self, kind: Kind, shared: Any, n: int, min_offset: int, append: Callable[[Any], object], max_bytes: int, least: int
    ) -> KafkaException | None:
        """Append the next n records at min_offset or behind it. What is damaged is the error returned, after the good ones.

        max_bytes: stop before the record that passes it, each with MESSAGE_BYTES, but not before there are `least`.
        """


def open_batch(data: memoryview, header: BatchHeader, place: Place, *, check_crcs: bool, max_bytes: int) -> Cursor:
    """A cursor on the batch's first record. Raises CorruptRecordError or UnsupportedCodec."""
    if header.magic == 2:
        return RecordCursor(header, open_records(data, header, place, check_crcs=check_crcs, max_bytes=max_bytes), place)
    if not header.codec:
        return MessageCursor(bytes(data[header.start : header.end]), header, 0, header.count, place, check_crcs)
    payload = wrapped(data, header.start, header.end, place, check_crcs=check_crcs)
    plain = decompress(header.codec, payload, header.magic, max_bytes, place)
    inner = open_set(plain, header.magic, header.last_offset, place, check_crcs=check_crcs, max_bytes=max_bytes - len(plain))
    return MessageCursor(bytes(inner.data), header, inner.base, inner.messages, place, check_crcs)


def open_records(data: memoryview, header: BatchHeader, place: Place, *, check_crcs: bool, max_bytes: int) -> bytes:
    """The records of a v2 batch, decompressed, with a count that they have room for."""
    if check_crcs:
        stored, computed = unpack_from(">I", data, header.start + 17)[0], crc32c(data[header.start + 21 : header.end])
        if stored != computed:
            raise corrupt(explain_crc(stored, computed), place)
    payload: bytes | memoryview = data[header.start + 61 : header.end]
    if header.codec and (header.count or len(payload)):
        payload = decompress(header.codec, payload, 2, max_bytes, place)
    if header.count * SMALLEST_RECORD > len(payload):
        raise corrupt(explain_count(header.count, len(payload)), place)
    if not header.count and len(payload):
        raise corrupt(explain_rest(len(payload)), place)
    return bytes(payload)


class RecordCursor:
    """In the records of a v2 batch."""

    __slots__ = ("_base_offset", "_base_timestamp", "_data", "_fixed", "_last_delta", "_place", "_pos", "_previous", "left", "size")

    def __init__(self, header: BatchHeader, data: bytes, place: Place) -> None:
        self._data = data
        self.size = len(data)
        self._place = place
        self._pos = 0
        self._previous = -1  # the last record's offset delta
        self._base_offset = header.base_offset
        self._last_delta = header.last_offset - header.base_offset
        self._base_timestamp = header.base_timestamp
        # The broker's time of a LogAppendTime batch stands in its header only (KIP-32).
        self._fixed = header.max_timestamp if header.timestamp_type == TimestampType.LOG_APPEND_TIME else None
        self.left = header.count

    @property
    def rest(self) -> int:
        return self.size - self._pos

    def read(
        self, kind: Kind, shared: Any, n: int, min_offset: int, append: Callable[[Any], object], max_bytes: int, least: int
    ) -> KafkaException | None:
        data, pos, previous, left, limit = self._data, self._pos, self._previous, self.left, len(self._data)
        wanted, room = n, max_bytes
        base_offset, base_timestamp, fixed, last_delta = self._base_offset, self._base_timestamp, self._fixed, self._last_delta
        lowest, highest = MIN_INT64, MAX_INT64
        first = pos
        try:
            while left and n > 0:
                turns, skipped = min(left, n), 0
                is_full = False
                # Varints of one and two bytes, nearly all are, are decoded in place: a call would cost as much as half the record.
                # A length or an offset delta is not negative, so that its zigzag is even and the number is half of it; 1 is -1.
                for turn in range(turns):
                    first = pos
                    raw = data[pos]
                    pos += 1
                    if raw > 0x7F:
                        if (byte := data[pos]) < 0x80:
                            raw += (byte << 7) - 0x80
                            pos += 1
                        else:
                            raw, pos = take_unsigned(data, first, 32)
                    end = pos + (raw >> 1)
                    if raw & 1 or end > limit:
                        raise ValueError("length")
                    raw = data[pos + 1]
                    pos += 2
                    if raw > 0x7F:
                        if (byte := data[pos]) < 0x80:
                            raw += (byte << 7) - 0x80
                            pos += 1
                        else:
                            raw, pos = take_unsigned(data, pos - 1, 64)
                    timestamp = base_timestamp + (-(raw >> 1) - 1 if raw & 1 else raw >> 1)
                    raw = data[pos]
                    pos += 1
                    if raw > 0x7F:
                        if (byte := data[pos]) < 0x80:
                            raw += (byte << 7) - 0x80
                            pos += 1
                        else:
                            raw, pos = take_unsigned(data, pos - 1, 32)
                    delta = raw >> 1
                    if raw & 1 or not previous < delta <= last_delta or not lowest <= timestamp <= highest:
                        raise ValueError("delta")
                    raw = data[pos]
                    pos += 1
                    if raw == 1:
                        key = None
                    else:
                        if raw > 0x7F:
                            raw, pos = take_unsigned(data, pos - 1, 32)
                        if not raw & 1:
                            key = data[pos : (pos := pos + (raw >> 1))]
                        elif raw == 1:
                            key = None
                        else:
                            raise ValueError("key")
                    raw = data[pos]
                    pos += 1
                    if raw == 1:
                        value = None
                    else:
                        if raw > 0x7F:
                            if (byte := data[pos]) < 0x80:
                                raw += (byte << 7) - 0x80
                                pos += 1
                            else:
                                raw, pos = take_unsigned(data, pos - 1, 32)
                        if not raw & 1:
                            value = data[pos : (pos := pos + (raw >> 1))]
                        elif raw == 1:
                            value = None
                        else:
                            raise ValueError("value")
                    if data[pos]:
                        headers = data[pos:end]
                        pos = skip_headers(data, pos, end)
                    else:
                        headers = None
                        pos += 1
                    if pos != end:
                        raise ValueError("end")
                    if base_offset + delta < min_offset:
                        previous = delta
                        skipped += 1
                        continue
                    room -= end - first + MESSAGE_BYTES
                    if room < 0 and wanted - n + turn - skipped >= least:
                        turns, pos, is_full = turn, first, True
                        break
                    previous = delta
                    append(kind(shared, base_offset + delta, timestamp if fixed is None else fixed, key, value, headers, end - first))
                left -= turns
                n = 0 if is_full else skipped
        except (IndexError, ValueError):
            why = explain_record(data, first, limit, base_timestamp, previous, last_delta)
            return corrupt(why, self._place, base_offset + previous + 1)
        self._pos, self._previous, self.left = pos, previous, left
        if not left and pos != limit:
            return corrupt(explain_rest(limit - pos), self._place, base_offset + previous + 1)
        return None


def take_unsigned(data: bytes, pos: int, bits: int) -> tuple[int, int]:
    """A varint of at most `bits`, its zigzag not undone, and the position behind it. Raises ValueError or IndexError if there is none."""
    value = shift = 0
    while True:
        byte = data[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift >= bits:
            raise ValueError("varint of too many bytes")
    if value >> bits:
        raise ValueError("varint of too many bits")
    return value, pos


def skip_headers(data: bytes, pos: int, end: int) -> int:
    """The position behind the headers that begin at pos. Raises ValueError or IndexError if they do not end by `end`."""
    raw, pos = take_unsigned(data, pos, 32)
    if raw & 1 or raw > end - pos:
        raise ValueError("header count")
    for _ in range(raw >> 1):
        raw = data[pos]
        pos += 1
        if raw > 0x7F:
            raw, pos = take_unsigned(data, pos - 1, 32)
        if raw & 1:
            raise ValueError("header key")
        pos += raw >> 1
        raw = data[pos]
        pos += 1
        if raw > 0x7F:
            raw, pos = take_unsigned(data, pos - 1, 32)
        if raw != 1:
            if raw & 1:
                raise ValueError("header value")
            pos += raw >> 1
    return pos


class MessageCursor:
    """In plain messages of format 0 and 1: a run of them, or what a compressed one held."""

    __slots__ = ("_base", "_check_crcs", "_data", "_fixed", "_is_plain", "_place", "_pos", "_previous", "left", "size")

    def __init__(self, data: bytes, header: BatchHeader, base: int, count: int, place: Place, check_crcs: bool) -> None:
        self._data = data
        self.size = len(data)
        self._base = base
        self._place = place
        self._check_crcs = check_crcs
        self._pos = 0
        self._previous = -1  # the last message's offset as it stands
        self._is_plain = not header.codec  # then each has a checksum of its own, and the next one may be good
        # Messages compressed together share their wrapper's LogAppendTime (KIP-32).
        wrapper = header.codec and header.timestamp_type == TimestampType.LOG_APPEND_TIME
        self._fixed = header.base_timestamp if wrapper else None
        self.left = count

    @property
    def rest(self) -> int:
        return self.size - self._pos

    def read(
        self, kind: Kind, shared: Any, n: int, min_offset: int, append: Callable[[Any], object], max_bytes: int, least: int
    ) -> KafkaException | None:
        while self.left and n > 0:
            data, pos = self._data, self._pos
            offset, length = unpack_from(">qi", data, pos)
            end = pos + 12 + length
            bounds = message_bounds(data, pos, end, check_crcs=self._check_crcs)
            if bounds is None or offset <= self._previous:
                why = explain_message(data, pos, end, self._previous, check_crcs=self._check_crcs)
                if self._is_plain:
                    return corrupt(why, self._place, offset, next_offset=offset + 1)
                return corrupt(why, self._place, self._base + self._previous + 1 if self._previous >= 0 else None)
            if self._base + offset >= min_offset:
                max_bytes -= end - pos + MESSAGE_BYTES
                if max_bytes < 0 and least <= 0:
                    break
                least -= 1
            self._previous, self._pos, self.left = offset, end, self.left - 1
            if self._base + offset >= min_offset:
                key_at, key_size, value_at, value_size = bounds
                key = data[key_at : key_at + key_size] if key_size >= 0 else None
                value = data[value_at : value_at + value_size] if value_size >= 0 else None
                append(kind(shared, self._base + offset, self._timestamp(pos), key, value, None, 12 + length))
                n -= 1
        return None

    def _timestamp(self, pos: int) -> int:
        if not self._data[pos + 16]:
            return -1
        if self._fixed is not None:
            return self._fixed
        timestamp: int = unpack_from(">q", self._data, pos + 18)[0]
        return timestamp
