"""What was fetched of a partition, handed out as Arrow columns: neither a Python object per record nor a copy per hand-over."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from gkafka import records

if TYPE_CHECKING:
    import pyarrow as pa

    from gkafka.core.fetcher import Fetched

__all__ = ["ColumnReader", "joined"]

DECODED_BYTES = 16 << 20
"""Decoded at once, also for smaller limits: each decoding opens the batch that it stands in anew."""
ROW_BYTES = 32
"""What a row takes beside its data, about."""
MOST_DATA = 1 << 30
"""Bytes that are decoded at once at most, whatever the limit: two such pieces still fit into one of Arrow's columns."""


class ColumnReader:
    """Several spans of a queue, decoded together, taken in pieces. Stands where a span's `Records` stand while messages are read.

    spans: in offset order, what is to be left out of a log already left out. start: the first offset that is wanted. columns: of
    `gkafka.records.columns`. max_bytes: what a call hands out at most; about as much is decoded at once, or DECODED_BYTES if that is more.
    """

    __slots__ = (
        "_batch",
        "_buffers",
        "_bytes",
        "_check_crcs",
        "_found",
        "_max_bytes",
        "_messages",
        "_place",
        "_taken",
        "columns",
        "next_offset",
        "taken_bytes",
    )

    def __init__(self, spans: Sequence[Fetched], start: int, columns: tuple[str, ...], max_bytes: int, *, check_crcs: bool) -> None:
        self.columns = columns
        self._max_bytes = min(max(max_bytes, DECODED_BYTES), MOST_DATA)
        self.next_offset = start
        self._buffers = list(_regions(spans))
        self._messages = sum(fetched.messages for fetched in spans)
        self._place = spans[0].position.tp
        self._check_crcs = check_crcs
        self._found: records.Columns | None = None
        self._batch: pa.RecordBatch | None = None  # _found as Arrow
        self._bytes = 0  # of all of it: Arrow's own count takes as long as many rows
        self._taken = 0  # rows of it
        self.taken_bytes = 0  # of what take() returned last

    @property
    def is_done(self) -> bool:
        """Is everything taken?"""
        return self._found is not None and self._found.complete and self._taken == len(self._found)

    @property
    def remaining(self) -> int:
        """How many records are left, about; 0 only at the end."""
        if self._found is None:
            return max(self._messages, 1)
        return len(self._found) - self._taken + (0 if self._found.complete else 1)

    def take(self, wanted: int, max_bytes: int, least: int) -> pa.RecordBatch | None:
        """Return the next rows, `wanted` at most; None where none are left (`is_done`), or where none fit into max_bytes.

        max_bytes: of the rows as Arrow counts them; `taken_bytes` says about how many were taken. least: so many come whatever their
        size. Raises CorruptRecordError and UnsupportedCodec once what is before the damage was taken.
        """
        self.taken_bytes = 0
        while not self.is_done:
            found = self._found
            if found is None or self._taken == len(found):
                self._decode(self.next_offset)
                continue
            assert self._batch is not None
            rows = self._fitting(min(wanted, len(found) - self._taken), max_bytes, least)
            if not rows:
                return None
            first, self._taken = self._taken, self._taken + rows
            is_end = self._taken == len(found)
            self.next_offset = found.next_offset if is_end else found.raw.offsets[self._taken - 1] + 1
            piece = self._batch if not first and is_end else self._batch.slice(first, self._taken - first)
            self.taken_bytes = self._bytes * rows // len(found) if self._bytes <= max_bytes else piece.nbytes
            if is_end:
                self._batch = None  # whoever has the rows keeps them alive
            return piece
        return None

    def _fitting(self, wanted: int, max_bytes: int, least: int) -> int:
        """Return how many of the next rows fit into max_bytes, `least` at least."""
        if self._bytes <= max_bytes:
            return wanted
        assert self._batch is not None
        rest = self._batch.slice(self._taken, wanted)
        if rest.nbytes <= max_bytes:
            return wanted
        low, high = least, wanted  # so many come anyway, so many are too many
        while high - low > 1:
            middle = (low + high) // 2
            if rest.slice(0, middle).nbytes <= max_bytes:
                low = middle
            else:
                high = middle
        return low

    def _decode(self, start: int) -> None:
        found = records.decode_columns(
            self._buffers,
            start_offset=start,
            keys="key" in self.columns,
            values="value" in self.columns,
            headers="headers" in self.columns,
            check_crcs=self._check_crcs,
            max_data_bytes=self._max_bytes,
            max_records=self._max_bytes // ROW_BYTES,
            topic=self._place.topic,
            partition=self._place.partition,
        )
        self._found, self._taken = found, 0
        self._batch = found.to_arrow(self.columns) if len(found) else None
        self._bytes = self._batch.nbytes if self._batch is not None else 0
        if found.complete and not len(found):
            self.next_offset = max(start, found.next_offset)

    def step(self, queue: object) -> None:
        """None: who reads one message after another does not find them here."""


def _regions(spans: Sequence[Fetched]) -> Iterator[memoryview]:
    """The batches' bytes, neighbours together."""
    buffer, start, end = spans[0].buffer, spans[0].span.start, spans[0].span.start
    for fetched in spans:
        if fetched.buffer is not buffer or fetched.span.start != end:
            yield buffer[start:end]
            buffer, start = fetched.buffer, fetched.span.start
        end = fetched.span.end
    yield buffer[start:end]


def joined(pieces: Sequence[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    """The pieces as one RecordBatch; a single one as it is, none as no rows."""
    if len(pieces) == 1:
        return pieces[0]
    import pyarrow as pa

    if not pieces:
        # Not pa.array([]): that imports pandas, where it is installed.
        return pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema)
    (whole,) = pa.Table.from_batches(pieces, schema).combine_chunks().to_batches()
    return whole
