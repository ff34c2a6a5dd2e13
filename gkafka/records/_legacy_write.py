"""Record batches as message sets v0 and v1, for brokers before 0.11, and the way back for a record that failed.

Source: https://kafka.apache.org/documentation/#messageset. A compressed set is one wrapper message whose value is the compressed
inner set. Offsets are 0 to n-1 here: brokers before 0.10 rewrite them, newer ones expect v1's inner offsets to be relative.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from zlib import crc32

from gkafka.exceptions import ProtocolError, UnsupportedCodec, UnsupportedVersion
from gkafka.records.compression import compress, decompress

__all__ = ["check_legacy", "decode_message_set", "encode_message_set"]

Row = tuple[int, "bytes | None", "bytes | None"]

_ENTRY = struct.Struct(">qiI")  # offset, size of what follows, crc of what follows the crc
_LENGTH = struct.Struct(">i")
_NULL = _LENGTH.pack(-1)


def check_legacy(magic: int, codec: int, topic: str, partition: int, has_headers: bool) -> None:
    """Raises UnsupportedVersion or UnsupportedCodec for what a message set cannot hold, ValueError for an unknown magic."""
    if magic not in (0, 1):
        raise ValueError(f"magic={magic}: a message set is 0 or 1")
    if has_headers:
        text = (
            f"{topic}-{partition}: record headers need a broker of version 0.11 or newer (message format 2), this one takes format {magic}"
        )
        raise UnsupportedVersion(text, topic=topic, partition=partition, api="Produce")
    if codec == 4:
        text = f"{topic}-{partition}: zstd needs a broker of version 2.1 or newer (KIP-110), this one takes message format {magic}"
        raise UnsupportedCodec(text, topic=topic, partition=partition, api="Produce")


def encode_message_set(rows: Iterable[Row], magic: int, codec: int, level: int | None) -> bytes:
    """rows: (timestamp in ms, key, value), at least one."""
    pieces: list[bytes] = []
    count, newest = 0, -1
    for timestamp, key, value in rows:
        _put_message(pieces, count, magic, 0, timestamp, key, value)
        count, newest = count + 1, max(newest, timestamp)
    inner = b"".join(pieces)
    if not codec:
        return inner
    # v0 keeps the wrong LZ4 frame checksum that Kafka had before 0.10, because the readers of v0 expect it (KAFKA-3160).
    payload = compress(codec, inner, level, legacy=magic == 0)
    wrapper: list[bytes] = []
    _put_message(wrapper, count - 1, magic, codec, newest, None, payload)
    return b"".join(wrapper)


def _put_message(
    pieces: list[bytes], offset: int, magic: int, attributes: int, timestamp: int, key: bytes | None, value: bytes | None
) -> None:
    head = struct.pack(">bbq", 1, attributes, timestamp) if magic else struct.pack(">bb", 0, attributes)
    head += _NULL if key is None else _LENGTH.pack(len(key)) + key
    head += _NULL if value is None else _LENGTH.pack(len(value))
    value = value or b""
    pieces += (_ENTRY.pack(offset, 4 + len(head) + len(value), crc32(value, crc32(head))), head, value)


def decode_message_set(data: bytes | memoryview, *, max_bytes: int) -> list[tuple[bytes | None, bytes | None]]:
    """(key, value) of each message of a set that `encode_message_set` made. max_bytes: bound of what a wrapper may hold."""
    rows: list[tuple[bytes | None, bytes | None]] = []
    at = 0
    while at < len(data):
        _, size, _ = _ENTRY.unpack_from(data, at)
        magic, attributes = data[at + 16], data[at + 17] & 7
        key, key_end = _blob(data, at + (26 if magic else 18))
        value, end = _blob(data, key_end)
        at += 12 + size
        if end != at:
            raise ProtocolError("a message set of our own does not add up")
        if attributes:
            return decode_message_set(
                bytes(decompress(attributes, value or b"", max_bytes=max_bytes, legacy=magic == 0)), max_bytes=max_bytes
            )
        rows.append((key, value))
    return rows


def _blob(data: bytes | memoryview, at: int) -> tuple[bytes | None, int]:
    (size,) = _LENGTH.unpack_from(data, at)
    at += 4
    return (None, at) if size < 0 else (bytes(data[at : at + size]), at + size)
