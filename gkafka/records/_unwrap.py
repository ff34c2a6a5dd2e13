"""Compressed batches opened, for both implementations: what is done once per batch, not per record.

A compressed message of format 0 or 1 holds a message set as its value. Format 1 counts the inner offsets from the set's
first message and gives the wrapper the last one's offset (KIP-31); format 0 keeps them absolute. An inner message may be
compressed once more; deeper sets are refused.
"""

from __future__ import annotations

import zlib
from struct import pack_into, unpack_from
from typing import NamedTuple

from gkafka.common import CompressionType
from gkafka.exceptions import KafkaException
from gkafka.records import compression
from gkafka.records._damage import ENTRY_HEAD, MAX_INT64, SMALLEST, Place, corrupt, explain_entry, explain_message, located

Buffer = bytes | memoryview
LEAST_ROOM = 64 * 1024 * 1024


class MessageSet(NamedTuple):
    """Plain messages of format 0 and 1, whole, one after another. A message's offset is base + what stands in it."""

    data: Buffer
    base: int
    messages: int


def room_for(buffer_size: int) -> int:
    """How many bytes a batch may decompress to where the caller names no bound."""
    return max(LEAST_ROOM, 8 * buffer_size)


def decompress(codec: int, data: Buffer, magic: int, max_bytes: int, place: Place) -> Buffer:
    """The decompressed bytes, at most max_bytes. Raises CorruptRecordError or UnsupportedCodec, with the batch's place."""
    if magic < 2 and codec == CompressionType.ZSTD:
        raise corrupt(f"a message of format {magic} says that it is compressed with zstd", place)
    try:
        return compression.decompress(codec, data, max_bytes=max_bytes, legacy=magic == 0)
    except KafkaException as error:
        raise located(error, place) from error


def open_set(data: Buffer, magic: int, offset: int, place: Place, *, check_crcs: bool, max_bytes: int, depth: int = 1) -> MessageSet:
    """The message set inside a compressed message of format `magic` and that offset, checked to be whole entries.

    max_bytes: what is left of the batch's bound for sets compressed within this one.
    """
    count, last, compressed = survey(data, place)
    if not count:
        raise corrupt("a compressed message holds no messages", place)
    base = base_of(last, magic, offset, place)
    if not compressed:
        return MessageSet(data, base, count)
    if depth > 1:
        raise corrupt("compressed messages are nested deeper than once", place)
    return _flatten(data, base, place, check_crcs, max_bytes)


def survey(data: Buffer, place: Place) -> tuple[int, int, bool]:
    """How many messages there are, the last one's offset as it stands, and whether any of them is compressed."""
    count, offset, compressed, pos, size = 0, -1, False, 0, len(data)
    while pos < size:
        if not _is_message(data, pos, size):
            raise corrupt(_not_a_message(data, pos), place)
        offset, length = unpack_from(">qi", data, pos)
        compressed = compressed or bool(data[pos + 17] & 7)
        count += 1
        pos += 12 + length
    return count, offset, compressed


def _is_message(data: Buffer, pos: int, size: int) -> bool:
    if size - pos < ENTRY_HEAD:
        return False
    offset, length = unpack_from(">qi", data, pos)
    magic = data[pos + 16]
    return magic < 2 and 0 <= offset < MAX_INT64 and SMALLEST[magic] <= length <= size - pos - 12


def _not_a_message(data: Buffer, pos: int) -> str:
    inside = "inside a compressed message: "
    if len(data) - pos >= ENTRY_HEAD and data[pos + 16] == 2:
        return inside + "a batch of format 2"
    return inside + explain_entry(data, pos, whole=True)


def base_of(last: int, magic: int, offset: int, place: Place) -> int:
    """What is added to the offsets in a compressed message of that offset. last: the last of them, as it stands."""
    # Some versions of librdkafka leave the wrapper's offset at 0: the inner ones count from there (so does the Java client).
    if offset == 0:
        return 0
    if last > offset:
        what = f"the last message in a compressed one says that its offset is {last}, the compressed one {offset}"
        raise corrupt(what, place)
    return offset - last if magic == 1 else 0


def _flatten(data: Buffer, base: int, place: Place, check_crcs: bool, max_bytes: int) -> MessageSet:
    """Messages that are compressed once more, in one set with absolute offsets (no checksum covers the offset)."""
    out, count, pos = bytearray(), 0, 0
    while pos < len(data):
        offset, length = unpack_from(">qi", data, pos)
        end = pos + 12 + length
        if data[pos + 17] & 7:
            inner = _open_nested(data, pos, end, base + offset, place, check_crcs, max_bytes - len(out))
        else:
            inner = MessageSet(data[pos:end], base, 1)
        start = len(out)
        out += inner.data
        count += inner.messages
        _rebase(out, start, inner.base)
        if len(out) > max_bytes:
            raise corrupt(f"nested messages decompress to more than {max_bytes} bytes", place)
        pos = end
    return MessageSet(bytes(out), 0, count)


def _open_nested(data: Buffer, pos: int, end: int, offset: int, place: Place, check_crcs: bool, max_bytes: int) -> MessageSet:
    codec, magic = data[pos + 17] & 7, data[pos + 16]
    payload = wrapped(data, pos, end, place, check_crcs=check_crcs)
    inner = decompress(codec, payload, magic, max(max_bytes, 0), place)
    return open_set(inner, magic, offset, place, check_crcs=check_crcs, max_bytes=max_bytes, depth=2)


def _rebase(out: bytearray, pos: int, base: int) -> None:
    while pos < len(out):
        offset, length = unpack_from(">qi", out, pos)
        pack_into(">q", out, pos, base + offset)
        pos += 12 + length


def wrapped(data: Buffer, pos: int, end: int, place: Place, *, check_crcs: bool) -> Buffer:
    """The compressed bytes in the message between pos and end."""
    bounds = message_bounds(data, pos, end, check_crcs=check_crcs)
    if bounds is None:
        raise corrupt(explain_message(data, pos, end, -1, check_crcs=check_crcs), place)
    start, size = bounds[2:]
    if size < 0:
        raise corrupt("a compressed message has no value", place)
    return data[start : start + size]


def message_bounds(data: Buffer, pos: int, end: int, *, check_crcs: bool) -> tuple[int, int, int, int] | None:
    """Key start, key size, value start, value size (-1: null) of the whole message between pos and end; None if it is damaged."""
    if check_crcs and zlib.crc32(data[pos + 16 : end]) != unpack_from(">I", data, pos + 12)[0]:
        return None
    key = pos + (30 if data[pos + 16] else 22)
    key_size: int = unpack_from(">i", data, key - 4)[0]
    value = key + max(key_size, 0) + 4
    if key_size < -1 or value > end:
        return None
    value_size: int = unpack_from(">i", data, value - 4)[0]
    if value_size < -1 or value + max(value_size, 0) != end:
        return None
    return key, key_size, value, value_size
