"""Zstandard frames: where they end and how much they can hold, read off their headers.

`zstandard` takes the memory that a frame's header claims (a lie of 1 TiB is a MemoryError) and its stream reader ends quietly
in a frame that was cut off. So the frames are walked first: a block's own header bounds what it can hold.

libzstd keeps a window as large as the header says beside what comes out, unless the header states how much that is. `narrowed` and `stated`
are the same frame with a window that fits what it can hold, and with its size.

Source: RFC 8878, sections 3.1.1 and 3.1.2.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from gkafka.records.pieces import Pieces

__all__ = ["Frame", "frames", "narrowed", "stated"]

MAGIC = 0xFD2FB528
SKIPPABLE = 0x184D2A50  # and the 15 after it
BLOCK_MAX = 1 << 17
WINDOW_MIN = 1 << 10
SIZE_OF_4_BYTES = 2 << 6  # in the descriptor
RAW, RLE, COMPRESSED = 0, 1, 2
CONTENT_SIZE_FIELD = (0, 2, 4, 8)  # bytes, by the two bits of the descriptor (the first is 1 in a single segment)
DICTIONARY_FIELD = (0, 1, 2, 4)


class Frame(NamedTuple):
    """One frame of a buffer: its bytes are [start, end) and it holds at most `bound` bytes, or exactly if `stated`.

    window: how far back it may look, in bytes.
    """

    start: int
    end: int
    bound: int
    stated: bool
    window: int


def frames(data: memoryview) -> Iterator[Frame]:
    """The frames of a buffer, one after another; skippable frames are left out.

    Raises ValueError if the bytes are not whole frames, or too many. The cost is one step a block, at least three bytes of input.
    """
    at, pieces = 0, Pieces()
    while at < len(data):
        pieces.frame()
        magic = _int(data, at, 4)
        if magic & 0xFFFFFFF0 == SKIPPABLE:
            at = _within(data, at + 8 + _int(data, at + 4, 4))
            continue
        if magic != MAGIC:
            raise ValueError(f"no frame begins at byte {at} (found {magic:#010x})")
        frame = _frame(data, at, pieces)
        yield frame
        at = frame.end


def _frame(data: memoryview, start: int, pieces: Pieces) -> Frame:
    descriptor = _int(data, start + 4, 1)
    single_segment = descriptor >> 5 & 1
    size_field = CONTENT_SIZE_FIELD[descriptor >> 6] or single_segment
    size_at = start + 5 + (1 - single_segment) + DICTIONARY_FIELD[descriptor & 3]
    at, bound, last = size_at + size_field, 0, 0
    while not last:
        pieces.block()
        header = _int(data, at, 3)
        last, kind, size = header & 1, header >> 1 & 3, header >> 3
        if kind > COMPRESSED:
            raise ValueError(f"the block at byte {at} is of a kind that does not exist")
        bound += BLOCK_MAX if kind == COMPRESSED else min(size, BLOCK_MAX)
        at = _within(data, at + 3 + (1 if kind == RLE else size))
    end = _within(data, at + (4 if descriptor & 4 else 0))
    if size_field:
        bound = _claim(data, size_at, size_field, bound)
    return Frame(start, end, bound, size_field > 0, bound if single_segment else _window(data[start + 5]))


def _window(descriptor: int) -> int:
    base = WINDOW_MIN << (descriptor >> 3)
    return base + base // 8 * (descriptor & 7)


def narrowed(data: memoryview, frame: Frame, most: int) -> bytes:
    """The frame, which states no size, with a window of `most` bytes or little more, if it had a larger one. For what holds no more than that."""
    fitting = next((d for d in range(data[frame.start + 5]) if _window(d) >= max(most, BLOCK_MAX)), data[frame.start + 5])
    return b"".join((data[frame.start : frame.start + 5], bytes([fitting]), data[frame.start + 6 : frame.end]))


def stated(data: memoryview, frame: Frame, size: int) -> bytes:
    """The frame, which states no size, with the size that it has."""
    descriptor = data[frame.start + 4]
    size_at = frame.start + 6 + DICTIONARY_FIELD[descriptor & 3]
    head = (data[frame.start : frame.start + 4], bytes([descriptor | SIZE_OF_4_BYTES]), data[frame.start + 5 : size_at])
    return b"".join((*head, size.to_bytes(4, "little"), data[size_at : frame.end]))


def _claim(data: memoryview, at: int, field: int, bound: int) -> int:
    """The content size that the header claims, if the blocks can hold that much."""
    claim = _int(data, at, field) + (256 if field == 2 else 0)
    if claim > bound:
        raise ValueError(f"a frame claims {claim} bytes, its blocks hold at most {bound}")
    return claim


def _int(data: memoryview, at: int, size: int) -> int:
    _within(data, at + size)
    return int.from_bytes(data[at : at + size], "little")


def _within(data: memoryview, at: int) -> int:
    if at > len(data):
        raise ValueError(f"cut off: {len(data)} bytes, at least {at} belong to it")
    return at
