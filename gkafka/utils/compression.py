"""Single compressed buffers, under pykafka's names. `gkafka.records.compression` does the work.

What is decoded came from elsewhere: it may hold max_bytes at most, and whatever is wrong with it is a CorruptRecordError, a ProtocolError.
A codec whose package is not installed is UnsupportedCodec. Reference: pykafka.utils.compression; lz4 is that of pykafka 2.8.
"""

from __future__ import annotations

from gkafka.checks import check_count
from gkafka.common import CompressionType
from gkafka.records.compression import compress, decompress, snappy_block
from gkafka.records.snappyframe import HEADER

__all__ = [
    "decode_gzip",
    "decode_lz4",
    "decode_lz4_old_kafka",
    "decode_snappy",
    "encode_gzip",
    "encode_lz4",
    "encode_lz4_old_kafka",
    "encode_snappy",
]

Buffer = bytes | bytearray | memoryview
MAX_BYTES = 1 << 30
"""What a buffer may hold unless the caller says otherwise."""


def encode_gzip(buff: Buffer) -> bytes:
    """A gzip member of the buffer."""
    return compress(CompressionType.GZIP, buff)


def decode_gzip(buff: Buffer, *, max_bytes: int = MAX_BYTES) -> bytes:
    """What a gzip file of one or more members holds."""
    return bytes(decompress(CompressionType.GZIP, buff, max_bytes=max_bytes))


def encode_snappy(buff: Buffer, xerial_compatible: bool = False, xerial_blocksize: int = 32 * 1024) -> bytes:
    """One raw snappy block of the buffer; with xerial_compatible the framing that Java's client writes and reads:

    a header of 16 bytes, then for each xerial_blocksize bytes of the buffer (counted uncompressed) the size of their block, a big-endian
    int32, and the block.
    """
    view = memoryview(buff).cast("B")
    if not xerial_compatible:
        return snappy_block(view)
    size = check_count("xerial_blocksize", xerial_blocksize)
    out = [HEADER]
    for at in range(0, len(view), size):
        block = snappy_block(view[at : at + size])
        out += (len(block).to_bytes(4, "big"), block)
    return b"".join(out)


def decode_snappy(buff: Buffer, *, max_bytes: int = MAX_BYTES) -> bytes:
    """What a snappy buffer holds, framed or not: the framing's magic tells."""
    return bytes(decompress(CompressionType.SNAPPY, buff, max_bytes=max_bytes))


def encode_lz4(buff: Buffer) -> bytes:
    """One LZ4 frame, as brokers since 0.10 take it."""
    return compress(CompressionType.LZ4, buff)


def decode_lz4(buff: Buffer, *, max_bytes: int = MAX_BYTES) -> bytes:
    """What LZ4 frames hold."""
    return bytes(decompress(CompressionType.LZ4, buff, max_bytes=max_bytes))


def encode_lz4_old_kafka(buff: Buffer) -> bytes:
    """One LZ4 frame with the wrong header checksum that brokers before 0.10 want (KAFKA-3160)."""
    return compress(CompressionType.LZ4, buff, legacy=True)


def decode_lz4_old_kafka(buff: Buffer, *, max_bytes: int = MAX_BYTES) -> bytes:
    """What LZ4 frames with that checksum hold."""
    return bytes(decompress(CompressionType.LZ4, buff, max_bytes=max_bytes, legacy=True))
