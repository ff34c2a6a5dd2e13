"""Draw logs with damage, and write them as bytes.

A drawn log is a shape, which knows no format. `written()` puts it into a format and a codec, with
the entries of the model beside the bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple, TypeVar

from hypothesis import strategies as st

from gkafka.records import compression
from tests.reading.model import Entry, Fault, Form, Mark, Record
from tests.records.handmade import TRANSACTIONAL, batch, fix_crc, marker, message, record

__all__ = ["CODECS", "Digits", "FIXED", "FORMATS", "Log", "Piece", "Shape", "one_more", "shapes", "written"]

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
CODECS = {"none": NONE, "gzip": GZIP, "snappy": SNAPPY, "lz4": LZ4, "zstd": ZSTD}
FORMATS = ("v0", "v1", "v2", "v1, then v2")
"""The last one: a topic whose format was raised; each second piece is in the newer one."""
UNKNOWN_CODEC = 7
ABORT, COMMIT = 0, 1
END = b"the end"
T = TypeVar("T")


class Piece(NamedTuple):
    """Records that were written together.

    steps: from the record in front to each record, in offsets; without any it is an empty batch.
    gap: offsets in front of it that compaction took. rest: offsets behind the last record that
    the batch still stands for. size: bytes of each value, about. transaction: its number, or -1.
    """

    steps: tuple[int, ...] = (1,)
    gap: int = 0
    rest: int = 0
    size: int = 0
    transaction: int = -1
    mark: Mark | None = None


class Shape(NamedTuple):
    """A log in no format.

    aborted, at_once, marker_is_damaged: of each transaction. at_once: its marker follows its last
    piece, else it stands at the end. whole: a good batch ends the log.
    """

    pieces: tuple[Piece, ...]
    aborted: tuple[bool, bool] = (True, False)
    at_once: tuple[bool, bool] = (True, True)
    marker_is_damaged: tuple[bool, bool] = (False, False)
    whole: bool = True


class Log(NamedTuple):
    """A log in a format.

    data: as a broker serves it. entries: as the model knows it. aborted: (producer id, first
    offset) pairs, as a Fetch tells them.
    """

    data: bytes
    entries: tuple[Entry, ...]
    aborted: tuple[tuple[int, int], ...]


FIXED = Shape(
    (
        Piece(steps=(1,) * 12, size=20, mark=Mark(Fault.RECORD, 7)),
        Piece(steps=(1, 1), size=20),
    ),
    whole=False,
)
"""Record 7 of offsets 0 to 13 cannot be decoded; its batch ends at 11, and a good one follows."""


class Digits:
    """A drawn number, taken apart into choices, with 0 for the first of each.

    Hypothesis takes as long for a number as for one choice.

    Hypothesis draws smaller numbers than MOST evenly.
    """

    MOST = (1 << 24) - 1

    def __init__(self, number: int) -> None:
        self._left = number

    def pick(self, options: Sequence[T]) -> T:
        self._left, at = divmod(self._left, len(options))
        return options[at]


def shapes() -> st.SearchStrategy[Shape]:
    """Short logs, nearly all of them with damage."""
    number = st.integers(0, Digits.MOST)
    return st.builds(_shape, number, st.lists(number.map(_piece), min_size=1, max_size=5))


def _shape(number: int, pieces: list[Piece]) -> Shape:
    digits = Digits(number)
    whole = digits.pick((True, True, True, False))
    aborted, at_once = ((digits.pick((True, False)), digits.pick((False, True))) for _ in range(2))
    rarely = (False, False, False, True)
    return Shape(tuple(pieces), aborted, at_once, (digits.pick(rarely), digits.pick(rarely)), whole)


def _piece(number: int) -> Piece:
    digits = Digits(number)
    fault = digits.pick((None, *Fault, Fault.RECORD, Fault.RECORD, None, None))
    count, step = digits.pick((1, 2, 3, 4, 5, 6, 0)), digits.pick((1, 1, 1, 2))
    at = digits.pick(range(max(1, count)))
    return Piece(
        (1, step, 1, step, 1, step)[:count],
        gap=digits.pick((0, 0, 0, 2)),
        rest=digits.pick((0, 0, 1)),
        size=digits.pick((0, 8, 60, 300)),
        transaction=digits.pick((-1, -1, 0, 1)),
        mark=None if fault is None else Mark(fault, at),
    )


def written(shape: Shape, form: str, codec: str, base: int = 0) -> Log:
    """Write a shape in one of FORMATS and a codec, from an offset on.

    Formats 0 and 1 have no transactions and no empty batches: those offsets become a gap. A fault
    that a format cannot have becomes one that it can.
    """
    writer = _Writer(base, CODECS[codec])
    last = {piece.transaction: at for at, piece in enumerate(shape.pieces)}
    at_end: list[int] = []
    for at, piece in enumerate(shape.pieces):
        magic = {"v0": 0, "v1": 1, "v2": 2}.get(form, 1 + at % 2)
        writer.put(piece, magic)
        number = piece.transaction
        if number >= 0 and last[number] == at:
            if shape.at_once[number]:
                writer.end(number, shape)
            else:
                at_end.append(number)
    for number in at_end:
        writer.end(number, shape)
    if shape.whole or not writer.entries:
        writer.put(Piece(), _newest(form), value=END)
    return writer.log()


def one_more(form: str, codec: str, base: int) -> Log:
    """A log of one good record, which goes on where another one ends."""
    writer = _Writer(base, CODECS[codec])
    writer.put(Piece(), _newest(form))
    return writer.log()


def _newest(form: str) -> int:
    return 2 if form == "v1, then v2" else int(form[1])


class _Writer:
    def __init__(self, base: int, codec: int) -> None:
        self.next, self.codec = base, codec
        self.parts: list[bytes] = []
        self.entries: list[Entry] = []
        self.aborted: list[tuple[int, int]] = []
        self._firsts: dict[int, int] = {}  # by transaction, of those that have a batch of format 2

    def log(self) -> Log:
        return Log(b"".join(self.parts), tuple(self.entries), tuple(self.aborted))

    def put(self, piece: Piece, magic: int, value: bytes | None = None) -> None:
        first = self.next + piece.gap
        offsets: list[int] = []
        for step in piece.steps:
            offsets.append(first if not offsets else offsets[-1] + step)
        records = [_record(offset, piece.size, value) for offset in offsets]
        if magic == 2:
            self._put_batch(piece, first, records)
        elif not records:
            self.next = first + 1
        elif self.codec in (NONE, ZSTD):
            self._put_messages(piece, records, magic)
        else:
            self._put_wrapper(piece, records, magic)

    def _put_batch(self, piece: Piece, first: int, records: list[Record]) -> None:
        last = (records[-1].offset if records else first) + piece.rest
        mark = _fitting(piece.mark, len(records), self.codec)
        packed = [record(r.offset - first, r.value, r.key) for r in records]
        if mark is not None and mark.fault is Fault.RECORD:
            packed[mark.at] = _undecodable(packed[mark.at], mark.at % 2 == 0, last - first)
        is_transactional = piece.transaction >= 0
        producer = 1000 + piece.transaction if is_transactional else -1
        data = _batch(packed, self.codec, first, last - first, mark, TRANSACTIONAL if is_transactional else 0, producer)
        if is_transactional:
            self._firsts.setdefault(piece.transaction, first)
        self._add(Entry(Form.BATCH, first, last, tuple(records), producer, mark=mark), data)

    def _put_messages(self, piece: Piece, records: list[Record], magic: int) -> None:
        mark = piece.mark
        for at, r in enumerate(records):
            data = message(r.offset, r.value, r.key, magic=magic)
            its = None
            if mark is not None and at == min(mark.at, len(records) - 1):
                its = Mark(Fault.HEADER if mark.fault is Fault.HEADER else Fault.CHECKSUM)
                data = _headless(r.offset) if its.fault is Fault.HEADER else _flipped(data, len(data) - 1)
            self._add(Entry(Form.MESSAGE, r.offset, r.offset, (r,), mark=its), data)

    def _put_wrapper(self, piece: Piece, records: list[Record], magic: int) -> None:
        mark = piece.mark
        if mark is not None and mark.fault is Fault.COUNT:
            mark = Mark(Fault.RECORD, mark.at)
        first, last = records[0].offset, records[-1].offset
        inner = [message(r.offset - (first if magic else 0), r.value, r.key, magic=magic) for r in records]
        if mark is not None and mark.fault is Fault.RECORD:
            inner[mark.at] = _flipped(inner[mark.at], len(inner[mark.at]) - 1)
        packed = compression.compress(self.codec, b"".join(inner), legacy=magic == 0)
        if mark is not None and mark.fault is Fault.PAYLOAD:
            packed = b"\x01no codec begins like this" + packed
        codec = UNKNOWN_CODEC if mark is not None and mark.fault is Fault.CODEC else self.codec
        data = message(last, packed, magic=magic, attributes=codec)
        if mark is not None and mark.fault is Fault.CHECKSUM:
            data = _flipped(data, len(data) - 1)
        if mark is not None and mark.fault is Fault.HEADER:
            data = _headless(last)
        self._add(Entry(Form.WRAPPER, first, last, tuple(records), mark=mark), data)

    def end(self, number: int, shape: Shape) -> None:
        """Write a transaction's marker, if the transaction has a batch."""
        if number not in self._firsts:
            return
        at, producer, aborts = self.next, 1000 + number, shape.aborted[number]
        data = marker(ABORT if aborts else COMMIT, at, producer_id=producer)
        mark = Mark(Fault.CHECKSUM) if shape.marker_is_damaged[number] else None
        if mark is not None:
            data = _flipped(data, len(data) - 3)
        if aborts:
            self.aborted.append((producer, self._firsts[number]))
        self._add(Entry(Form.MARKER, at, at, producer=producer, aborts=aborts, mark=mark), data)

    def _add(self, entry: Entry, data: bytes) -> None:
        self.parts.append(data)
        self.entries.append(entry)
        self.next = entry.last + 1


def _record(offset: int, size: int, value: bytes | None) -> Record:
    key = None if offset % 2 else b"key %d" % offset
    if value is not None:
        return Record(offset, key, value)
    return Record(offset, key, None if key is not None and offset % 5 == 0 else b"value %d " % offset + b"." * size)


def _fitting(mark: Mark | None, records: int, codec: int) -> Mark | None:
    """What a batch of format 2 with so many records can have instead."""
    if mark is None:
        return None
    if not records and mark.fault not in (Fault.CHECKSUM, Fault.HEADER):
        return Mark(Fault.CHECKSUM)
    if mark.fault is Fault.PAYLOAD and codec == NONE:
        return Mark(Fault.RECORD, mark.at)
    return mark


def _batch(packed: Sequence[bytes], codec: int, first: int, last_delta: int, mark: Mark | None, attributes: int, producer: int) -> bytes:
    fault = mark.fault if mark is not None else None
    count = mark.at if mark is not None and fault is Fault.COUNT else len(packed)
    body = b"".join(packed)
    if codec and packed:
        body = compression.compress(codec, body)
        attributes |= codec
    if fault is Fault.PAYLOAD:
        body = b"\x01no codec begins like this" + body
    data = batch(
        [], base_offset=first, last_delta=last_delta, count=-1 if fault is Fault.HEADER else count, attributes=0, producer_id=producer
    )
    attributes = attributes & ~7 | UNKNOWN_CODEC if fault is Fault.CODEC else attributes
    data = data[:8] + struct.pack(">i", 49 + len(body)) + data[12:21] + struct.pack(">h", attributes) + data[23:] + body
    data = fix_crc(data)
    return _flipped(data, 18) if fault is Fault.CHECKSUM else data


def _undecodable(packed: bytes, by_delta: bool, last_delta: int) -> bytes:
    """Make a record's offset delta negative, or its key longer than the record."""
    start = next(at for at, byte in enumerate(packed) if byte < 0x80) + 1  # behind its length
    return _with_byte(packed, start + 2, 0x01) if by_delta else _with_byte(packed, start + 3, 0x7E)


def _headless(offset: int) -> bytes:
    """A message of format 1 that says that it is shorter than any can be."""
    return struct.pack(">qiIbb", offset, 18, 0, 1, 0) + bytes(12)


def _flipped(data: bytes, at: int) -> bytes:
    return _with_byte(data, at, data[at] ^ 0x10)


def _with_byte(data: bytes, at: int, byte: int) -> bytes:
    return data[:at] + bytes([byte]) + data[at + 1 :]
