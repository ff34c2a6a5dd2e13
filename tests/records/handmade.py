"""Batches and message sets put together by hand from the specification, with nothing of gkafka in them."""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Sequence
from typing import Any

import crc32c as crc32c_wheel

GZIP = 1
TRANSACTIONAL, CONTROL, LOG_APPEND = 16, 32, 8
Headers = Sequence[tuple[bytes, "bytes | None"]]


def varint(value: int) -> bytes:
    raw = (value << 1) ^ (value >> 63)
    out = bytearray()
    while raw > 0x7F:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    return bytes(out) + bytes([raw])


def sized(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


def record(delta: int, value: bytes | None, key: bytes | None = None, headers: Headers = (), timestamp_delta: int = 0) -> bytes:
    body = b"\0" + varint(timestamp_delta) + varint(delta) + sized(key) + sized(value) + varint(len(headers))
    body += b"".join(sized(k) + sized(v) for k, v in headers)
    return varint(len(body)) + body


def batch(
    records: Sequence[bytes],
    *,
    base_offset: int = 0,
    last_delta: int | None = None,
    count: int | None = None,
    attributes: int = 0,
    base_timestamp: int = 1_000,
    max_timestamp: int = 2_000,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    leader_epoch: int = 0,
) -> bytes:
    """A v2 batch. attributes: bits 0-2 may be 0 or gzip."""
    body = b"".join(records)
    if attributes & 7 == GZIP:
        body = gzip.compress(body, mtime=0)
    if last_delta is None:
        last_delta = max(len(records) - 1, 0)
    tail = struct.pack(
        ">hiqqqhii",
        attributes,
        last_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        len(records) if count is None else count,
    )
    tail += body
    return struct.pack(">qiibI", base_offset, 9 + len(tail), leader_epoch, 2, crc32c_wheel.crc32c(tail)) + tail


def values(n: int, **more: Any) -> bytes:
    """A v2 batch of n records with the values b"0", b"1" ..."""
    return batch([record(i, b"%d" % i) for i in range(n)], **more)


def marker(kind: int, offset: int = 0, **more: Any) -> bytes:
    """A control batch: kind 0 is an abort, 1 a commit."""
    return batch([record(0, b"\0" * 6, struct.pack(">hh", 0, kind))], base_offset=offset, attributes=CONTROL | TRANSACTIONAL, **more)


def fix_crc(data: bytes, pos: int = 0) -> bytes:
    """The batch or message at pos with the checksum that fits its bytes, as far as they are there."""
    if len(data) - pos < 22:
        return data
    end = max(min(pos + 12 + struct.unpack_from(">i", data, pos + 8)[0], len(data)), pos + 22)
    out = bytearray(data)
    if data[pos + 16] == 2:
        struct.pack_into(">I", out, pos + 17, crc32c_wheel.crc32c(data[pos + 21 : end]))
    else:
        struct.pack_into(">I", out, pos + 12, zlib.crc32(data[pos + 16 : end]))
    return bytes(out)


def message(
    offset: int, value: bytes | None, key: bytes | None = None, *, magic: int = 1, timestamp: int = 1_000, attributes: int = 0
) -> bytes:
    """A message of format 0 or 1."""
    body = struct.pack(">bb", magic, attributes) + (struct.pack(">q", timestamp) if magic else b"")
    for field in (key, value):
        body += struct.pack(">i", -1) if field is None else struct.pack(">i", len(field)) + field
    return struct.pack(">qiI", offset, 4 + len(body), zlib.crc32(body)) + body


def wrapper(inner: Sequence[bytes], offset: int, *, magic: int = 1, timestamp: int = 1_000, attributes: int = 0) -> bytes:
    """A message that holds others, compressed with gzip."""
    data = gzip.compress(b"".join(inner), mtime=0)
    return message(offset, data, magic=magic, timestamp=timestamp, attributes=attributes | GZIP)
