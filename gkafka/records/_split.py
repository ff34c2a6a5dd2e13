"""Where a batch is cut that a broker finds too large (KIP-126), or some of whose records it refuses (KIP-467): shared by both implementations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from gkafka.records._check import HEADER_BYTES, record_size, varint_size
from gkafka.records._results import Record

__all__ = ["Cut", "before", "cuts"]


class Cut(NamedTuple):
    """Records that make a part. first: index of its first record; size: bytes of the uncompressed batch; turns: how often the timestamp
    differs from the record's before."""

    first: int
    rows: list[Record]
    size: int
    turns: int


def before(index: int) -> int:
    """Return the limit with which Batch.split() makes two parts, the second of which begins with record number index, 1 or more."""
    return -index


def cuts(rows: list[Record], limit: int) -> list[Cut]:
    """At least two parts of about the same size, of at most about limit bytes each where that is possible; none is empty. A limit below 0 is
    one of `before`.
    """
    inner = _bounds([_size(row) for row in rows], limit) if limit >= 0 else (-limit,)
    bounds = [0, *inner, len(rows)]
    return [_cut(first, rows[first:last]) for first, last in pairwise(bounds)]


def _size(row: Record) -> int:
    return record_size(row.value, row.key, row.headers) - HEADER_BYTES


def _bounds(sizes: Sequence[int], limit: int) -> Iterator[int]:
    """Before which records to cut. total * k / n is where part number k should end: the record that would cross it begins another."""
    total, held, k, begun = sum(sizes), 0, 1, 0
    n = min(len(sizes), max(2, -(-total // max(1, limit - HEADER_BYTES))))
    for i, size in enumerate(sizes):
        if i > begun and (held + size) * n > total * k:
            yield i
            begun, k = i, max(k + 1, held * n // total + 1)
        held += size


def _cut(first: int, rows: list[Record]) -> Cut:
    base = rows[0].timestamp
    size = HEADER_BYTES
    for i, row in enumerate(rows):
        body = _body(row) + varint_size(_delta(row.timestamp - base)) - 1 + varint_size(i) - 1
        size += varint_size(body) + body
    turns = sum(a.timestamp != b.timestamp for a, b in pairwise(rows))
    return Cut(first, rows, size, turns)


def _body(row: Record) -> int:
    """Bytes of the record behind its length, with deltas of 0."""
    whole = _size(row)
    return next(whole - n for n in range(1, 6) if varint_size(whole - n) == n)


def _delta(n: int) -> int:
    """A number of 0 or more whose varint is as long as that of n, which wraps at 64 bits."""
    n = (n + (1 << 63) & (1 << 64) - 1) - (1 << 63)
    return n if n >= 0 else -n - 1
