"""How Kafka's primitive types stand on the wire: one reader and one writer for each.

A reader takes the frame and a position and returns the value and the position after it: `read(frame, position) -> (value, position)`.
A writer appends to a `Writer`: `write(out, value)`.

The frame comes from a broker and is not trusted: no reader goes past its end, takes memory for more than what it holds, or loops on a
number it claims. What is wrong with it is said by `Malformed`, with the position. An entry becomes an object, which takes many times the
memory of its bytes: how many a frame may have is bounded, by `read_within`. Who reads without it gets no more than a small frame has.

Source: https://kafka.apache.org/protocol#protocol_types, KIP-482 (compact types)
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from math import inf
from typing import Any, TypeAlias
from uuid import UUID

__all__ = ["Buffer", "Crowded", "Malformed", "Reader", "Write", "Writer", "ZERO_UUID", "read_within"]

Buffer: TypeAlias = bytes | bytearray | memoryview
Reader: TypeAlias = Callable[[memoryview, int], tuple[Any, int]]
Write: TypeAlias = Callable[["Writer", Any], None]

ZERO_UUID = UUID(int=0)
MAX_STRING = 0x7FFF
UNCOPIED_FROM = 4096  # bytes: below it, copying costs less than one more buffer in the sendmsg call

_int16 = struct.Struct(">h")
_int32 = struct.Struct(">i")


class Malformed(Exception):
    """The frame breaks the protocol at `position`. Internal to `wire`: callers see a ProtocolError."""

    def __init__(self, position: int, why: str) -> None:
        super().__init__(why)
        self.position = position


class Crowded(Malformed):
    """It has more entries than it may have."""


class _Left:
    """Entries that may still be read."""

    __slots__ = ("asked", "count", "most", "named", "why")

    def __init__(self, most: float, asked: float, why: str) -> None:
        self.count = self.most = most
        self.asked = self.named = asked
        self.why = why


SMALL_FRAME = 1 << 14
"""Bytes: a frame of so many has no more entries than bytes, and to count them would take longer than to read some answers."""
_left: ContextVar[_Left | None] = ContextVar("entries that may still be read", default=None)


def read_within(
    most: int,
    read: Reader,
    frame: memoryview,
    position: int,
    asked: int | None = None,
    why: str = "a larger max_response_bytes allows more",
) -> tuple[Any, int]:
    """read(frame, position), of no more than `most` entries (elements of arrays, tagged fields) together. Without it only what is small is read.

    asked: those of fields that the table marks so, together; None: as many as of the others. why: for the text of the error.
    Raises Malformed, and Crowded for more than `most`.
    """
    size = len(frame)
    if size <= SMALL_FRAME and size <= most and _left.get() is None:
        return read(frame, position)
    token = _left.set(_Left(most, inf if asked is None else asked, why))
    try:
        return read(frame, position)
    finally:
        _left.reset(token)


def spend(count: int, position: int) -> None:
    """`count` entries are about to be read. Raises Crowded if those are more than there may be."""
    left = _left.get()
    if left is not None:
        left.count -= count
        if left.count < 0:
            raise Crowded(position, f"more than {left.most} entries ({left.why})")
    elif position + count > 2 * SMALL_FRAME:
        raise Crowded(position, "so many entries, and nobody said how many there may be")


def spend_asked(count: int, position: int) -> None:
    """The same for entries that were asked for. Raises Malformed if those are more than that."""
    left = _left.get()
    if left is not None:
        left.asked -= count
        if left.asked < 0:
            raise Malformed(position, f"more than the {left.named} entries that can answer what was asked")
    spend(count, position)


class Writer:
    """A frame being written: `tail` grows, and large payloads stand between tails, uncopied."""

    __slots__ = ("parts", "tail")

    def __init__(self) -> None:
        self.parts: list[Buffer] = []
        self.tail = bytearray()

    def payload(self, data: Buffer) -> None:
        """Append bytes that are kept where they are when that is cheaper than a copy."""
        if len(data) < UNCOPIED_FROM:
            self.tail += data
        else:
            self.parts += (self.tail, data)
            self.tail = bytearray()

    def finish(self) -> list[Buffer]:
        """All that was written, in order."""
        if not self.parts and self.tail:
            return [self.tail]
        return [part for part in (*self.parts, self.tail) if len(part)]


# -- varints (KIP-482) -------------------------------------------------------------------------------------------------
def read_uvarint(frame: memoryview, position: int) -> tuple[int, int]:
    """An unsigned 32-bit varint, five bytes at most."""
    byte = frame[position]
    if byte < 0x80:
        return byte, position + 1
    value, shift, start = byte & 0x7F, 7, position
    while shift < 35:
        position += 1
        byte = frame[position]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > 0xFFFFFFFF:
                break
            return value, position + 1
        shift += 7
    raise Malformed(start, "a varint is longer than 32 bits")


def write_uvarint(out: Writer, value: int) -> None:
    """value: 0 to 2**32 - 1."""
    while value > 0x7F:
        out.tail.append(value & 0x7F | 0x80)
        value >>= 7
    out.tail.append(value)


# -- lengths: None stands for null -------------------------------------------------------------------------------------
def _classic(number: struct.Struct) -> Callable[[memoryview, int], tuple[int | None, int]]:
    def read_length(frame: memoryview, position: int) -> tuple[int | None, int]:
        (length,) = number.unpack_from(frame, position)
        if length >= 0:
            return length, position + number.size
        if length == -1:
            return None, position + number.size
        raise Malformed(position, f"a length is {length}")

    return read_length


def _read_compact_length(frame: memoryview, position: int) -> tuple[int | None, int]:
    length, position = read_uvarint(frame, position)
    return (length - 1 if length else None), position


def _write_int16_length(out: Writer, length: int | None) -> None:
    out.tail += _int16.pack(-1 if length is None else length)


def _write_int32_length(out: Writer, length: int | None) -> None:
    out.tail += _int32.pack(-1 if length is None else length)


def _write_compact_length(out: Writer, length: int | None) -> None:
    write_uvarint(out, 0 if length is None else length + 1)


_read_int16_length, _read_int32_length = _classic(_int16), _classic(_int32)


def _check_null(nullable: bool, position: int, what: str) -> None:
    if not nullable:
        raise Malformed(position, f"null where {what} must be")


def _write_null(out: Writer, write_length: Callable[[Writer, int | None], None], nullable: bool) -> None:
    if not nullable:
        raise ValueError("null is not possible here")
    write_length(out, None)


# -- strings -----------------------------------------------------------------------------------------------------------
def string_reader(*, compact: bool, nullable: bool) -> Reader:
    """Reader of a string: UTF-8, at most 32,767 bytes."""
    read_length = _read_compact_length if compact else _read_int16_length

    def read_string(frame: memoryview, position: int) -> tuple[str | None, int]:
        length, start = read_length(frame, position)
        if length is None:
            _check_null(nullable, position, "a string")
            return None, start
        end = start + length
        if end > len(frame) or length > MAX_STRING:
            raise Malformed(position, f"a string of {length} bytes where {len(frame) - start} are left")
        return str(frame[start:end], "utf-8"), end

    return read_string


def string_writer(*, compact: bool, nullable: bool) -> Write:
    write_length = _write_compact_length if compact else _write_int16_length

    def write_string(out: Writer, value: str | None) -> None:
        if value is None:
            _write_null(out, write_length, nullable)
            return
        data = value.encode()
        if len(data) > MAX_STRING:
            raise ValueError(f"a string of {len(data)} bytes; Kafka's limit is {MAX_STRING}")
        write_length(out, len(data))
        out.tail += data

    return write_string


# -- bytes and records: slices of the frame, uncopied ------------------------------------------------------------------
def bytes_reader(*, compact: bool, nullable: bool) -> Reader:
    read_length = _read_compact_length if compact else _read_int32_length

    def read_bytes(frame: memoryview, position: int) -> tuple[memoryview | None, int]:
        length, start = read_length(frame, position)
        if length is None:
            _check_null(nullable, position, "bytes")
            return None, start
        end = start + length
        if end > len(frame):
            raise Malformed(position, f"{length} bytes where {len(frame) - start} are left")
        return frame[start:end], end

    return read_bytes


def bytes_writer(*, compact: bool, nullable: bool) -> Write:
    """Writer of one buffer, or of a list of buffers that go out one after the other."""
    write_length = _write_compact_length if compact else _write_int32_length

    def write_bytes(out: Writer, value: Buffer | Sequence[Buffer] | None) -> None:
        if value is None:
            _write_null(out, write_length, nullable)
            return
        if isinstance(value, Buffer):
            view = value.cast("B") if isinstance(value, memoryview) else value
            write_length(out, len(view))
            out.payload(view)
            return
        views = [b if isinstance(b, bytes | bytearray) else memoryview(b).cast("B") for b in value]
        write_length(out, sum(map(len, views)))
        for view in views:
            out.payload(view)

    return write_bytes


# -- uuid --------------------------------------------------------------------------------------------------------------
def read_uuid(frame: memoryview, position: int) -> tuple[UUID, int]:
    data = bytes(frame[position : position + 16])
    if len(data) < 16:
        raise Malformed(position, f"a uuid where {len(data)} bytes are left")
    return (UUID(bytes=data) if any(data) else ZERO_UUID), position + 16


def write_uuid(out: Writer, value: UUID) -> None:
    out.tail += value.bytes


# -- structs that may be null: a byte before them, below 0 for null --------------------------------------------------------
def nullable_reader(read: Reader) -> Reader:
    def read_nullable(frame: memoryview, position: int) -> tuple[Any, int]:
        return read(frame, position + 1) if frame[position] < 0x80 else (None, position + 1)

    return read_nullable


def nullable_writer(write: Write) -> Write:
    def write_nullable(out: Writer, value: Any) -> None:
        out.tail.append(0xFF if value is None else 1)
        if value is not None:
            write(out, value)

    return write_nullable


# -- arrays ------------------------------------------------------------------------------------------------------------
def count_reader(
    *, compact: bool, nullable: bool, element_size: int, weight: int = 1, asked: bool = False
) -> Callable[[memoryview, int], tuple[int | None, int]]:
    """Reader of an array's count, bounded by what the rest of the frame can hold.

    element_size: the least number of bytes one element takes; an element of none counts as one, so that no count outruns the frame.
    weight: how many elements cost as much as an entry. asked: there are no more of them than were asked for.
    """
    spent = spend_asked if asked else spend
    read_length = _read_compact_length if compact else _read_int32_length
    size = max(element_size, 1)

    def read_count(frame: memoryview, position: int) -> tuple[int | None, int]:
        count, start = read_length(frame, position)
        if count is None:
            _check_null(nullable, position, "an array")
            return None, start
        if count * size > len(frame) - start:
            raise Malformed(position, f"an array of {count} elements where {len(frame) - start} bytes are left")
        if count >= weight:
            spent(count // weight, position)
        return count, start

    return read_count


def array_reader(read: Reader, *, compact: bool, nullable: bool, element_size: int, asked: bool = False) -> Reader:
    read_count = count_reader(compact=compact, nullable=nullable, element_size=element_size, asked=asked)

    def read_array(frame: memoryview, position: int) -> tuple[list[Any] | None, int]:
        count, position = read_count(frame, position)
        if count is None:
            return None, position
        items = []
        for _ in range(count):
            item, position = read(frame, position)
            items.append(item)
        return items, position

    return read_array


def array_writer(write: Write, *, compact: bool, nullable: bool) -> Write:
    write_length = _write_compact_length if compact else _write_int32_length

    def write_array(out: Writer, items: Sequence[Any] | None) -> None:
        if items is None:
            _write_null(out, write_length, nullable)
            return
        write_length(out, len(items))
        for item in items:
            write(out, item)

    return write_array


def number_array_reader(code: str, *, compact: bool, nullable: bool) -> Reader:
    """Reader of an array of numbers, taken in one step. code: the struct module's letter."""
    size = struct.calcsize(">" + code)
    read_count = count_reader(compact=compact, nullable=nullable, element_size=size, weight=8)
    short = [struct.Struct(f">{count}{code}").unpack_from for count in range(16)]

    def read_numbers(frame: memoryview, position: int) -> tuple[list[Any] | None, int]:
        count, position = read_count(frame, position)
        if count is None:
            return None, position
        values = short[count](frame, position) if count < 16 else struct.unpack_from(f">{count}{code}", frame, position)
        return list(values), position + count * size

    return read_numbers


def number_array_writer(code: str, *, compact: bool, nullable: bool) -> Write:
    write_length = _write_compact_length if compact else _write_int32_length

    def write_numbers(out: Writer, values: Sequence[Any] | None) -> None:
        if values is None:
            _write_null(out, write_length, nullable)
            return
        write_length(out, len(values))
        out.tail += struct.pack(f">{len(values)}{code}", *values)

    return write_numbers
