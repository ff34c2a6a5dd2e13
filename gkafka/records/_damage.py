"""What is wrong with bytes that cannot be decoded: the text of every CorruptRecordError, for both implementations.

The readers only find that something is wrong and where; these slow walks say what, so that the compiled and the Python
reader fail with the same words. Source of the layouts: https://kafka.apache.org/documentation/#messageformat
"""

from __future__ import annotations

import zlib
from struct import unpack_from
from typing import Any, NamedTuple

from gkafka.exceptions import CorruptRecordError, KafkaException, ProtocolError

MAX_INT64 = 2**63 - 1
MIN_INT64 = -(2**63)
ENTRY_HEAD = 17  # bytes up to and with the magic byte, which stands at the same place in all formats
SMALLEST = (14, 22, 49)  # what the length field of an entry of format 0, 1 and 2 holds at least
MOST_CAUSES = 8  # of an error, that bare() looks at
SMALLEST_RECORD = 7  # bytes of an empty v2 record with its length


class Place(NamedTuple):
    """What the errors of a batch are about: its offsets as its header gives them."""

    topic: str | None
    partition: int | None
    base_offset: int
    last_offset: int


def corrupt(what: str, place: Place, offset: int | None = None, *, next_offset: int | None = None) -> CorruptRecordError:
    """Return the error for damaged bytes, with its place in the text and as attributes.

    offset: of the damaged record; None is the batch's first. next_offset: where reading can go on; None is behind the batch.
    """
    behind = place.last_offset + 1 if next_offset is None else next_offset
    text = f"{_text(what, place, offset)}; seek to offset {behind} to go on behind it"
    return CorruptRecordError(text, next_offset=behind, **_about(place, offset))


def unreadable(what: str, topic: str | None, partition: int | None, offset: int) -> CorruptRecordError:
    """Return the error for bytes where no batch begins. Nobody knows where the next one does.

    offset: what the bytes claim, -1 if there are too few of them.
    """
    place = Place(topic, partition, offset, offset)
    return CorruptRecordError(_text(what, place, None), **_about(place, None))


def located(error: KafkaException, place: Place) -> KafkaException:
    """A codec's error with the place added. Damage is a CorruptRecordError, whatever the codec called it."""
    if isinstance(error, ProtocolError):
        return corrupt(str(error), place)
    return type(error)(_text(str(error), place, None), **_about(place, None))


def bare(error: KafkaException) -> KafkaException:
    """Return the error without its traceback, and without those of what it was raised from.

    Whoever keeps an error keeps the variables of every function that it went through, and so what those had decompressed. What the
    application was handling meanwhile, `__context__`, is left as it is.
    """
    one: BaseException | None = error
    for _ in range(MOST_CAUSES):
        if one is None:
            break
        one.__traceback__ = None
        one = one.__cause__
    return error


def _text(what: str, place: Place, offset: int | None) -> str:
    at = place.base_offset if offset is None else offset
    name = f"{place.topic}[{place.partition}] " if place.topic else ""
    batch = f" (in the batch of offsets {place.base_offset} to {place.last_offset})" if place.last_offset > place.base_offset else ""
    return f"{name}offset {at}: {what}{batch}"


def _about(place: Place, offset: int | None) -> dict[str, Any]:
    return {"topic": place.topic, "partition": place.partition, "offset": place.base_offset if offset is None else offset}


class _Wrong(Exception):
    """Ends a walk: its text is the answer."""


def explain_entry(data: memoryview | bytes, pos: int, *, whole: bool = False) -> str:
    """Why no batch or message begins at pos. whole: the data should hold it to its end (it is not a fetch's cut tail)."""
    left = len(data) - pos
    if left < 12:
        return f"{left} bytes are left where a batch should begin"
    offset, length = unpack_from(">qi", data, pos)
    if length < SMALLEST[0]:
        return f"a batch says that it is {length} bytes long"
    if left < ENTRY_HEAD:
        return f"a batch of {length} bytes is cut after {left - 12}"
    magic = data[pos + 16]
    if magic > 2:
        return f"a batch of unknown format (magic {magic})"
    if length < SMALLEST[magic]:
        return f"a batch of format {magic} says that it is {length} bytes long"
    if offset < 0 or offset == MAX_INT64:
        return f"a batch of format {magic} says that its offset is {offset}"
    if whole and left < 12 + length:
        return f"a batch of {length} bytes is cut after {left - 12}"
    if magic == 2:
        return _explain_batch(data, pos, offset, length)
    return f"a message of format {magic} cannot be read"


def _explain_batch(data: memoryview | bytes, pos: int, offset: int, length: int) -> str:
    last_delta = unpack_from(">i", data, pos + 23)[0]
    count = unpack_from(">i", data, pos + 57)[0]
    if last_delta < 0 or offset > MAX_INT64 - 1 - last_delta:
        return f"a batch says that its last offset is {offset} + {last_delta}"
    if count < 0:
        return f"a batch says that it has {count} records"
    return f"a batch says that it has {count} records in {length - SMALLEST[2]} bytes"


def explain_count(count: int, size: int) -> str:
    """For a compressed batch, whose room for records is known only now."""
    return f"a batch says that it has {count} records in {size} bytes"


def explain_crc(stored: int, computed: int) -> str:
    """A checksum that does not match."""
    return f"checksum mismatch: stored {stored:08x}, computed {computed:08x}"


def explain_rest(size: int) -> str:
    """Bytes behind the last record."""
    return f"{size} bytes are left behind the last record of the batch"


def explain_record(data: memoryview | bytes, pos: int, limit: int, base_timestamp: int, previous: int, last_delta: int) -> str:
    """Why the v2 record at pos is refused. previous: the offset delta before it, -1 for the first."""
    try:
        length, at = _varint(data, pos, limit, 32, "length")
        end = at + length
        if length < 0 or end > limit:
            raise _Wrong(f"a record says that it is {length} bytes long, {limit - at} are left")
        at = _explain_fields(data, at, end, base_timestamp, previous, last_delta)
        if at != end:
            raise _Wrong(f"a record of {length} bytes ends after {length - (end - at)}")
    except _Wrong as wrong:
        return str(wrong)
    return "a record cannot be read"


def _explain_fields(data: memoryview | bytes, at: int, end: int, base_timestamp: int, previous: int, last_delta: int) -> int:
    at += 1  # attributes: none is defined
    timestamp, at = _varint(data, at, end, 64, "timestamp")
    if not MIN_INT64 <= base_timestamp + timestamp <= MAX_INT64:
        raise _Wrong(f"a record's timestamp {base_timestamp} + {timestamp} is no 64-bit number")
    delta, at = _varint(data, at, end, 32, "offset delta")
    if not previous < delta <= last_delta:
        raise _Wrong(f"a record's offset delta is {delta}, where {previous + 1} to {last_delta} can follow")
    at = _sized(data, at, end, "key", nullable=True)
    at = _sized(data, at, end, "value", nullable=True)
    count, at = _varint(data, at, end, 32, "header count")
    if count < 0 or 2 * count > end - at:
        raise _Wrong(f"a record says that it has {count} headers in {end - at} bytes")
    for _ in range(count):
        at = _sized(data, at, end, "header's key", nullable=False)
        at = _sized(data, at, end, "header's value", nullable=True)
    return at


def _sized(data: memoryview | bytes, at: int, end: int, name: str, *, nullable: bool) -> int:
    size, at = _varint(data, at, end, 32, f"{name} length")
    if size < (-1 if nullable else 0) or size > end - at:
        raise _Wrong(f"a record's {name} says that it is {size} bytes long, {max(end - at, 0)} are left")
    return at + max(size, 0)


def _varint(data: memoryview | bytes, at: int, end: int, bits: int, name: str) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= end:
            raise _Wrong(f"a record ends inside its {name}")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if value >> bits or shift > bits + 6:
            raise _Wrong(f"a record's {name} is no {bits}-bit number")
        if byte < 0x80:
            return value >> 1 ^ -(value & 1), at


def explain_message(data: memoryview | bytes, pos: int, end: int, previous: int, *, check_crcs: bool) -> str:
    """Why the v0 or v1 message between pos and end is refused. previous: the offset before it as it stands, -1 for the first."""
    magic = data[pos + 16]
    if check_crcs:
        stored, computed = unpack_from(">I", data, pos + 12)[0], zlib.crc32(data[pos + 16 : end])
        if stored != computed:
            return explain_crc(stored, computed)
    offset = unpack_from(">q", data, pos)[0]
    if offset <= previous:
        return f"a message's offset is {offset}, where {previous + 1} or more can follow"
    at = pos + (26 if magic else 18)
    for name in ("key", "value"):
        if end - at < 4:
            return f"a message ends inside its {name} length"
        size = unpack_from(">i", data, at)[0]
        at += 4
        if size < -1 or size > end - at:
            return f"a message's {name} says that it is {size} bytes long, {end - at} are left"
        at += max(size, 0)
    return f"a message of {end - pos - 12} bytes ends after {at - pos - 12}"
