"""What messages of both implementations share: their context, their headers' bytes, and how they travel between processes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, TypeVar

from gkafka.records._damage import Place, corrupt

Header = tuple[str, "bytes | None"]
Name = TypeVar("Name")


class Context(Protocol):
    """What messages ask about where they came from. It must not lead back to a list of messages: they are not seen by
    Python's cycle collector."""

    @property
    def topic(self) -> str: ...
    @property
    def partition_id(self) -> int: ...
    @property
    def partition(self) -> Any: ...


class Origin(NamedTuple):
    """A context of plain values, for messages that left their consumer: `partition` (pykafka's object) does not travel."""

    topic: str
    partition_id: int
    partition: Any = None


def restore(*fields: Any) -> Any:
    """A message from what `__reduce__` gave, in whichever implementation this process uses."""
    from gkafka import records

    topic, partition_id, offset, timestamp, timestamp_type, key, value, headers, compression_type, size = fields
    return records.make_message(
        Origin(topic, partition_id),
        offset,
        timestamp,
        timestamp_type,
        key,
        value,
        headers,
        compression_type=compression_type,
        size=size,
    )


def pack_headers(headers: list[Header]) -> bytes:
    """The headers as they stand in a v2 record, their count first."""
    out = bytearray()
    _put_varint(out, len(headers))
    for key, value in headers:
        name = key.encode(errors="replace")
        _put_varint(out, len(name))
        out += name
        _put_varint(out, -1 if value is None else len(value))
        out += value or b""
    return bytes(out)


def _put_varint(out: bytearray, value: int) -> None:
    rest = (value << 1) ^ (value >> 63)
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)


def text(key: bytes) -> str:
    """A header's key. One that is not UTF-8 gets U+FFFD in it, as in the Java client."""
    return key.decode("utf-8", "replace")


def unpack_headers(data: bytes, name: Callable[[bytes], Name]) -> list[tuple[Name, bytes | None]]:
    """The inverse: data was checked when its record was read. name: what to make of keys."""
    count, pos = take_varint(data, 0)
    headers: list[tuple[Name, bytes | None]] = []
    for _ in range(count):
        size, pos = take_varint(data, pos)
        key = name(data[pos : pos + size])
        pos += size
        size, pos = take_varint(data, pos)
        if size < 0:
            headers.append((key, None))
            continue
        headers.append((key, data[pos : pos + size]))
        pos += size
    return headers


def take_varint(data: bytes, pos: int) -> tuple[int, int]:
    """A zigzag varint and the position behind it."""
    value = shift = 0
    while True:
        byte = data[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
    return value >> 1 ^ -(value & 1), pos


MESSAGE_BYTES = 128
"""What a message takes beside its record, about: a batch may hold millions of empty ones."""


def marker_of(messages: list[Any], base_offset: int, last_offset: int) -> int:
    """The type in a control record's key: int16 version, int16 type."""
    if not messages:
        return -1
    key = messages[0].key
    if key is None or len(key) < 4:
        raise corrupt("a control record's key is shorter than 4 bytes", Place(None, None, base_offset, last_offset))
    return int.from_bytes(key[2:4], "big", signed=True)
