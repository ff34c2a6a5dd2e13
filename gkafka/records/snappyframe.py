"""Snappy as Kafka uses it: raw, or in the framing of the xerial snappy-java library that Java's client writes.

A xerial stream is a 16-byte header, then blocks: big-endian length, raw snappy of at most 32 KiB. Streams may follow one another.

Source: https://github.com/xerial/snappy-java SnappyOutputStream, SnappyInputStream; google/snappy format_description.txt.
"""

from __future__ import annotations

from collections.abc import Iterator

from gkafka.records.pieces import Pieces

__all__ = ["BLOCK_SIZE", "HEADER", "MAGIC", "blocks", "claimed"]

MAGIC = b"\x82SNAPPY\x00"
HEADER = MAGIC + (1).to_bytes(4, "big") + (1).to_bytes(4, "big")  # version, and the oldest version that can read it
BLOCK_SIZE = 32 * 1024  # what SnappyOutputStream cuts at


def blocks(data: memoryview) -> Iterator[tuple[memoryview, int]]:
    """The raw snappy blocks of a buffer in either form, each with the size that it claims to hold.

    Raises ValueError if lengths leave the buffer, a block claims more than snappy can hold, or there are too many.
    """
    if data[: len(MAGIC)] != MAGIC:
        yield data, claimed(data)
        return
    at, pieces = 0, Pieces()
    while at < len(data):
        pieces.block()
        if data[at : at + len(MAGIC)] == MAGIC:
            # version and compatibility are not looked at: some producers write them little-endian (kafka-python#2414)
            at = _within(data, at + len(HEADER))
            continue
        start = _within(data, at + 4)
        at = _within(data, start + int.from_bytes(data[at:start], "big"))
        yield data[start:at], claimed(data[start:at])


def claimed(block: memoryview) -> int:
    """The size in a raw block's first varint. Raises ValueError if there is none or a block this small cannot hold it."""
    value = 0
    for index in range(min(5, len(block))):
        value |= (block[index] & 0x7F) << 7 * index
        if block[index] < 0x80:
            # the densest element is a copy of 64 bytes, written in 3
            if value > 64 * len(block) // 3:
                raise ValueError(f"a block of {len(block)} bytes claims to hold {value}")
            return value
    raise ValueError("a block does not begin with its size")


def _within(data: memoryview, at: int) -> int:
    if at > len(data):
        raise ValueError(f"cut off: {len(data)} bytes, at least {at} belong to it")
    return at
