"""v2 records to columns with numpy: Python finds where the records begin, numpy decodes their fields.

All batches of a fetch go through in one pass: Java's default batches hold about 130 records of 100 bytes, too few to be worth a pass each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gkafka.common import TimestampType
from gkafka.exceptions import KafkaException
from gkafka.records._damage import MAX_INT64, MIN_INT64, Place, corrupt, explain_record, explain_rest
from gkafka.records._pure_cursors import skip_headers, take_unsigned

if TYPE_CHECKING:
    from gkafka.records._pure_columns import Sink, Strings
    from gkafka.records._pure_read import BatchHeader

Array = Any  # a numpy array of one dimension
PADDING = bytes(16)


class Segment(NamedTuple):
    """The records of one batch. next_offset: where reading would go on if none of them could be taken."""

    header: BatchHeader
    records: bytes
    place: Place
    next_offset: int


class Stop(NamedTuple):
    """Where and why reading ends. at_end: at the end offset."""

    next_offset: int
    error: KafkaException | None
    at_end: bool


class Bounds(NamedTuple):
    """Where records lie in the joined data, each beginning where the one before ends; `damaged`: what stands behind the last one is."""

    body: list[int]  # behind the record's length
    end: list[int]
    counts: list[int]  # records of each segment
    damaged: bool


def put_segments(sink: Sink, segments: list[Segment]) -> Stop | None:
    """Add the records of the segments up to the first that cannot be: then where to go on."""
    data = b"".join([segment.records for segment in segments])
    bounds = _boundaries(data, segments)
    fields = _fields(data, bounds, segments)
    good = fields.good
    damage_at = good if bounds.damaged or good < len(bounds.end) else None
    stop_at, at_end = _selected(sink, fields)
    if stop_at is not None:
        _put(sink, data, fields, stop_at)
        return Stop(_reached(segments, bounds, fields, stop_at, sink), None, at_end)
    _put(sink, data, fields, good)
    if damage_at is None:
        return None
    return Stop(_reached(segments, bounds, fields, damage_at, sink), _damage(data, segments, bounds, fields, damage_at), False)


def _boundaries(data: bytes, segments: list[Segment]) -> Bounds:
    body: list[int] = []
    ends: list[int] = []
    counts: list[int] = []
    base = 0
    for header, records, _, _ in segments:
        limit = base + len(records)
        pos, before = base, len(ends)
        try:
            for _ in range(header.count):
                raw = data[pos]
                at = pos + 1
                if raw > 0x7F:
                    if (byte := data[at]) < 0x80:
                        raw += (byte << 7) - 0x80
                        at += 1
                    else:
                        raw, at = take_unsigned(data, pos, 32)
                pos = at + (raw >> 1)
                if raw & 1 or pos > limit or at >= limit:
                    raise ValueError("length")
                body.append(at)
                ends.append(pos)
        except (IndexError, ValueError):
            pos = -1
        counts.append(len(ends) - before)
        if pos != limit:
            return Bounds(body, ends, counts, True)
        base = limit
    return Bounds(body, ends, counts, False)


class Fields:
    """The decoded fields of the records before the first damaged one; `good` counts them."""

    good: int
    first: Array
    end: Array
    offset: Array
    timestamp: Array
    types: Array
    key: Array
    key_size: Array
    value: Array
    value_size: Array


def _fields(data: bytes, bounds: Bounds, segments: list[Segment]) -> Fields:
    raw = np.frombuffer(data + PADDING, np.uint8)
    counts = np.array(bounds.counts, np.int64)
    segments = segments[: len(bounds.counts)]
    end = np.array(bounds.end, np.int64)
    bad = np.zeros(len(end), bool)

    def per_record(values: list[int]) -> Array:
        return np.repeat(np.array(values, np.int64), counts)

    base_timestamp = per_record([s.header.base_timestamp for s in segments])
    delta_timestamp, pos = _varint(raw, np.array(bounds.body, np.int64) + 1, end, 64, bad)
    bad |= (delta_timestamp > 0) & (base_timestamp > MAX_INT64 - np.maximum(delta_timestamp, 0))
    bad |= (delta_timestamp < 0) & (base_timestamp < MIN_INT64 - np.minimum(delta_timestamp, 0))
    delta, pos = _varint(raw, pos, end, 32, bad)
    last_delta = per_record([s.header.last_offset - s.header.base_offset for s in segments])
    before = np.full(len(delta), -1, np.int64)
    before[1:] = delta[:-1]
    before[np.cumsum(counts[:-1])[counts[1:] > 0] if len(counts) > 1 else []] = -1
    bad |= (delta <= before) | (delta > last_delta)
    fields = Fields()
    fields.key, fields.key_size, pos = _sized(raw, pos, end, bad)
    fields.value, fields.value_size, pos = _sized(raw, pos, end, bad)
    _check_headers(data, raw, pos, end, bad)
    fixed = [s.header.timestamp_type == TimestampType.LOG_APPEND_TIME for s in segments]
    append_time = per_record([s.header.max_timestamp for s in segments])
    with np.errstate(over="ignore"):
        timestamp = base_timestamp + delta_timestamp
    fields.timestamp = np.where(np.repeat(np.array(fixed, bool), counts), append_time, timestamp)
    fields.offset = per_record([s.header.base_offset for s in segments]) + np.where(bad, 0, delta)
    fields.types = per_record([int(s.header.timestamp_type) for s in segments]).astype(np.int32)
    fields.first, fields.end = np.concatenate([np.zeros(1, np.int64), end])[: len(end)], end
    fields.good = int(np.argmax(bad)) if bad.any() else len(end)
    return fields


def _varint(raw: Array, pos: Array, end: Array, bits: int, bad: Array) -> tuple[Array, Array]:
    """Zigzag varints at pos as int64, and the positions behind them; marks those that do not end before `end` as bad."""
    last = len(raw) - 1
    byte = raw[np.minimum(pos, last)].astype(np.uint64)
    value = byte & np.uint64(0x7F)
    size = np.ones(len(pos), np.int64)
    bad |= pos >= end
    more = np.flatnonzero((byte > 0x7F) & ~bad)
    shift = 7
    while len(more):
        if shift >= bits:
            bad[more] = True
            break
        at = pos[more] + size[more]
        inside = at < end[more]
        bad[more[~inside]] = True
        more, at = more[inside], at[inside]
        byte = raw[at].astype(np.uint64)
        size[more] += 1
        if shift + 7 > bits:
            bad[more[byte >= np.uint64(1 << (bits - shift))]] = True
        value[more] |= (byte & np.uint64(0x7F)) << np.uint64(shift)
        more = more[(byte > 0x7F) & ~bad[more]]
        shift += 7
    # In int64: the half of a zigzag always fits, and -1 is all ones.
    number = (value >> np.uint64(1)).astype(np.int64) ^ -(value & np.uint64(1)).astype(np.int64)
    return number, pos + size


def _sized(raw: Array, pos: Array, end: Array, bad: Array) -> tuple[Array, Array, Array]:
    """Where byte strings begin, their sizes (-1: null), and the positions behind them."""
    size, at = _varint(raw, pos, end, 32, bad)
    bad |= (size < -1) | (size > end - at)
    return at, size, at + np.clip(size, 0, np.maximum(end - at, 0))


def _check_headers(data: bytes, raw: Array, pos: Array, end: Array, bad: Array) -> None:
    plain = (raw[np.minimum(pos, len(raw) - 1)] == 0) & (pos + 1 == end)
    for index in np.flatnonzero(~plain & ~bad).tolist():
        stop = int(end[index])
        try:
            bad[index] = pos[index] >= stop or skip_headers(data, int(pos[index]), stop) != stop
        except (IndexError, ValueError):
            bad[index] = True


def _selected(sink: Sink, fields: Fields) -> tuple[int | None, bool]:
    """The first of the good records that passes a bound, if any does, and whether that is the end offset."""
    offset = fields.offset[: fields.good]
    wanted = offset >= sink.start_offset
    size = fields.end[: fields.good] - fields.first[: fields.good]
    data = np.zeros(fields.good, np.int64)
    for strings, sizes in ((sink.keys, fields.key_size), (sink.values, fields.value_size)):
        if strings is not None:
            data += np.where(wanted, np.maximum(sizes[: fields.good], 0), 0)
    before = np.cumsum(data) - data + sink.data_size()
    count = np.cumsum(wanted) - wanted + len(sink.offsets)
    full = wanted & ((count >= sink.max_records) | ((count > 0) & (before + size > sink.max_data)))
    ended = wanted & (offset >= sink.end_offset)
    stops = np.flatnonzero(full | ended)
    if not len(stops):
        return None, False
    return int(stops[0]), bool(ended[stops[0]])


def _put(sink: Sink, data: bytes, fields: Fields, stop: int) -> None:
    """Add the records before `stop` that are not before the start offset."""
    index = np.flatnonzero(fields.offset[:stop] >= sink.start_offset)
    sink.offsets.frombytes(fields.offset[index].tobytes())
    sink.timestamps.frombytes(fields.timestamp[index].tobytes())
    sink.types.frombytes(fields.types[index].tobytes())
    _put_strings(sink.keys, data, fields.key[index], fields.key_size[index])
    _put_strings(sink.values, data, fields.value[index], fields.value_size[index])


def _put_strings(strings: Strings | None, data: bytes, start: Array, size: Array) -> None:
    if strings is None:
        return
    valid = size >= 0
    size = np.maximum(size, 0)
    offsets = np.cumsum(size) - size + len(strings.data)
    strings.offsets.frombytes(offsets.astype(np.int32).tobytes())
    strings.valid += valid.tobytes()
    if size.any():
        ends = (start + size).tolist()
        strings.data += b"".join([data[a:b] for a, b in zip(start.tolist(), ends, strict=True)])


def _segment_of(bounds: Bounds, record: int) -> tuple[int, int]:
    """The segment in which a record, or the damage behind the last one, stands, and the segment's first record."""
    begin = 0
    for number, count in enumerate(bounds.counts):
        if record < begin + count or number == len(bounds.counts) - 1:
            return number, begin
        begin += count
    raise AssertionError("there is no segment")


def _reached(segments: list[Segment], bounds: Bounds, fields: Fields, record: int, sink: Sink) -> int:
    number, begin = _segment_of(bounds, record)
    reached = int(fields.offset[record - 1]) + 1 if record > begin else 0
    return max(segments[number].next_offset, reached)


def _damage(data: bytes, segments: list[Segment], bounds: Bounds, fields: Fields, record: int) -> KafkaException:
    number, begin = _segment_of(bounds, record)
    header, records, place, _ = segments[number]
    limit = sum(len(segment.records) for segment in segments[: number + 1])
    pos = int(fields.end[record - 1]) if record > begin else limit - len(records)
    previous = int(fields.offset[record - 1]) - header.base_offset if record > begin else -1
    if record - begin == header.count:
        return corrupt(explain_rest(limit - pos), place, header.base_offset + previous + 1)
    why = explain_record(data, pos, limit, header.base_timestamp, previous, header.last_offset - header.base_offset)
    return corrupt(why, place, header.base_offset + previous + 1)


def pack_bits(flags: bytes | bytearray) -> bytes:
    """A bit for each byte of 0 or 1, least significant first."""
    return np.packbits(np.frombuffer(flags, np.uint8), bitorder="little").tobytes()


def to_microseconds(milliseconds: memoryview) -> memoryview:
    """int64 milliseconds as int64 microseconds; what does not fit becomes the nearest number that does."""
    source = np.frombuffer(milliseconds, np.int64)
    most = MAX_INT64 // 1000
    micros = np.clip(source, -most, most) * 1000
    micros = np.where(source > most, MAX_INT64, np.where(source < -most, MIN_INT64, micros))
    return memoryview(micros.tobytes()).cast("q")
