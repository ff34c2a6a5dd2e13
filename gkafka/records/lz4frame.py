"""LZ4 frames as Kafka writes them: where they end, how much they can hold, and the broken header checksum of old Kafka.

The lz4 package does the work on the blocks. This module only walks the frames, so that the memory for the result is
known before it is taken and a frame that was cut off is seen. Nothing here allocates by a number found in the data.

Source: https://github.com/lz4/lz4/blob/dev/doc/lz4_Frame_format.md, KAFKA-3160.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from gkafka.records.pieces import Pieces

__all__ = ["Frame", "broken_checksum", "check_byte", "frames", "header_size", "mended", "plain_blocks", "xxh32"]

MAGIC = 0x184D2204
SKIPPABLE = 0x184D2A50  # and the 15 after it
MASK = 0xFFFFFFFF
VERSION, INDEPENDENT, BLOCK_CHECKSUM, CONTENT_SIZE, CONTENT_CHECKSUM, DICTIONARY = 0xC0, 0x20, 0x10, 0x08, 0x04, 0x01
BLOCK_SIZES = {4: 1 << 16, 5: 1 << 18, 6: 1 << 20, 7: 1 << 22}
STORED = 0x80000000  # the bit of a block's size that says: not compressed
MOST_PLAIN = 1024  # blocks: many times what clients write, and still no crowd
MOST = 255  # a compressed byte stands for at most 255 bytes: one more byte of a match's length

_int32_at = struct.Struct("<I").unpack_from


class Frame(NamedTuple):
    """One frame of a buffer: its bytes are [start, end) and it holds at most `bound` bytes."""

    start: int
    end: int
    bound: int


def frames(data: memoryview) -> Iterator[Frame]:
    """The frames of a buffer, one after another; skippable frames are left out.

    Raises ValueError if the bytes are not whole frames, or too many. The cost is one step a block, at least four bytes of input.
    """
    at, pieces = 0, Pieces()
    while at < len(data):
        pieces.frame()
        magic = _int(data, at)
        if magic & 0xFFFFFFF0 == SKIPPABLE:
            at = _within(data, at + 8 + _int(data, at + 4))
            continue
        if magic != MAGIC:
            raise ValueError(f"no frame begins at byte {at} (found {magic:#010x})")
        frame = _frame(data, at, pieces)
        yield frame
        at = frame.end


def _frame(data: memoryview, start: int, pieces: Pieces) -> Frame:
    at = _within(data, start + header_size(data, start))
    flags, most = data[start + 4], BLOCK_SIZES[data[start + 5] >> 4 & 7]
    check = 4 if flags & BLOCK_CHECKSUM else 0
    bound = 0
    while (size := _int(data, at)) != 0:
        pieces.block()
        length = size & ~STORED
        bound += min(most, length if size & STORED else length * MOST)
        at = _within(data, at + 4 + length + check)
    end = _within(data, at + 4 + (4 if flags & CONTENT_CHECKSUM else 0))
    if flags & CONTENT_SIZE and (claim := int.from_bytes(data[start + 6 : start + 14], "little")) > bound:
        raise ValueError(f"a frame claims {claim} bytes, its blocks hold at most {bound}")
    return Frame(start, end, bound)


def plain_blocks(data: memoryview, most_bytes: int) -> list[tuple[memoryview, int]] | None:
    """Of one frame as Java's client writes it, of blocks that stand for themselves and nothing beside them: each block, and how many bytes it may hold,
    0 for one that is not compressed. None: it is something else, or damaged, or may hold more than most_bytes.
    """
    if len(data) < 11 or _int32_at(data, 0)[0] != MAGIC:
        return None
    flags, descriptor, check = data[4:7]
    most = BLOCK_SIZES.get(descriptor >> 4 & 7)
    if flags != 0x40 | INDEPENDENT or most is None or check_byte(flags, descriptor) != check:
        return None
    blocks: list[tuple[memoryview, int]] = []
    at, end = 7, len(data) - 4
    while at < end:
        size = _int32_at(data, at)[0]
        length = size & ~STORED
        room = 0 if size & STORED else min(most, length * MOST)
        most_bytes -= room or length
        at += 4
        if not length or length > end - at or most_bytes < 0 or len(blocks) == MOST_PLAIN:
            return None
        blocks.append((data[at : at + length], room))
        at += length
    return blocks if _int32_at(data, at)[0] == 0 else None


@cache
def check_byte(flags: int, descriptor: int) -> int:
    """What follows the two in the header of a frame that states no size."""
    return xxh32(bytes((flags, descriptor))) >> 8 & 0xFF


def header_size(data: memoryview, start: int = 0) -> int:
    """Bytes of a frame's header, magic and checksum byte included. Raises ValueError if it is none that Kafka may write."""
    _within(data, start + 7)
    flags, descriptor = data[start + 4], data[start + 5]
    if flags & VERSION != 0x40:
        raise ValueError(f"frame version {flags >> 6} is not known")
    if flags & DICTIONARY:
        raise ValueError("the frame needs a dictionary")
    if descriptor >> 4 & 7 not in BLOCK_SIZES:
        raise ValueError(f"block size code {descriptor >> 4 & 7} is not known")
    return 15 if flags & CONTENT_SIZE else 7


def mended(data: memoryview) -> bytes:
    """Frames of a format 0 message set, with the header checksum that the specification asks for.

    Kafka before 0.10 took the magic number into the checksum (KAFKA-3160). Java's client does not look at it in format 0, so
    whatever stands there is replaced.
    """
    whole = bytearray(data)
    for frame in frames(data):
        _set_checksum(whole, frame.start, skip=4)
    return bytes(whole)


def broken_checksum(data: bytes) -> bytes:
    """One frame as Kafka before 0.10 wants it: the header's checksum taken over the magic number too."""
    whole = bytearray(data)
    _set_checksum(whole, 0, skip=0)
    return bytes(whole)


def _set_checksum(whole: bytearray, start: int, *, skip: int) -> None:
    last = start + header_size(memoryview(whole), start) - 1
    whole[last] = xxh32(whole[start + skip : last]) >> 8 & 0xFF


def _int(data: memoryview, at: int) -> int:
    _within(data, at + 4)
    return int.from_bytes(data[at : at + 4], "little")


def _within(data: memoryview, at: int) -> int:
    if at > len(data):
        raise ValueError(f"cut off: {len(data)} bytes, at least {at} belong to it")
    return at


def xxh32(data: bytes | bytearray) -> int:
    """xxHash32 with seed 0 of fewer than 16 bytes: as much as a frame's header needs.

    Source: https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md
    """
    prime1, prime2, prime3, prime4, prime5 = 2654435761, 2246822519, 3266489917, 668265263, 374761393
    if len(data) >= 16:
        raise ValueError(f"xxh32 of {len(data)} bytes: fewer than 16 here")
    value = prime5 + len(data)
    words = len(data) & ~3
    for at in range(0, words, 4):
        value = (value + int.from_bytes(data[at : at + 4], "little") * prime3) & MASK
        value = _rotated(value, 17) * prime4 & MASK
    for byte in data[words:]:
        value = (value + byte * prime5) & MASK
        value = _rotated(value, 11) * prime1 & MASK
    value = (value ^ value >> 15) * prime2 & MASK
    value = (value ^ value >> 13) * prime3 & MASK
    return value ^ value >> 16


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> (32 - bits)) & MASK
