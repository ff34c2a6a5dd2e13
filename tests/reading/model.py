"""Say what reading a damaged log must give: a pure model, with nothing of gkafka in it.

A log is a list of entries, in the order of their offsets. `read()` says which records come out of
it from an offset on, and what stops them. Nothing behind damage is handed out until the application
seeks past it: the reader stays, a group commits nothing beyond it, and the next call tells the
same.

Sources: KIP-98 (batches, transactions), KIP-32 and KIP-31 (messages of format 0 and 1).
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

__all__ = ["Entry", "Form", "Fault", "Mark", "Reading", "Record", "Stop", "read"]


class Record(NamedTuple):
    offset: int
    key: bytes | None
    value: bytes | None


class Form(Enum):
    BATCH = "a record batch of format 2; without records it is what compaction left of one"
    MESSAGE = "a plain message of format 0 or 1"
    WRAPPER = "a compressed message of format 0 or 1, which holds others"
    MARKER = "a control batch: the end of a transaction"


class Fault(Enum):
    CHECKSUM = "a flipped bit, which the checksum of a batch or of a message shows"
    HEADER = "a header that cannot be read"
    RECORD = "a record that cannot be decoded, in a batch whose checksum is right"
    COUNT = "a header that counts fewer records than its batch holds, with the right checksum"
    PAYLOAD = "compressed bytes that cannot be decompressed, with the right checksum"
    CODEC = "a codec that nobody knows, with the right checksum"


class Mark(NamedTuple):
    """Damage of an entry.

    at: the index of the record that cannot be decoded, or how many records the header counts.
    """

    fault: Fault
    at: int = 0


class Entry(NamedTuple):
    """A batch or a message of the log.

    base, last: the first and the last offset that it stands for. records: what it held before it
    was damaged.
    producer: the id that a transaction's batches and its marker carry. aborts: of a marker, whether
    it ends an aborted transaction.
    """

    form: Form
    base: int
    last: int
    records: tuple[Record, ...] = ()
    producer: int = -1
    aborts: bool = False
    mark: Mark | None = None


class Stop(NamedTuple):
    """Damage that ends a reading.

    unsupported: it is UnsupportedCodec. named: the lowest and the highest offset that the error
    may name. stands: the highest offset at which the reader, and its group, may stand unless it
    began behind that. goes_on: where to seek in order to go on. knows: a reader can know that.
    """

    unsupported: bool
    named: tuple[int, int]
    stands: int
    goes_on: int
    knows: bool


class Reading(NamedTuple):
    """What comes out: records, and then damage, or the end of the log."""

    records: tuple[Record, ...]
    stop: Stop | None
    start: int
    end: int

    def allowed(self, delivered: int) -> tuple[int, int]:
        """Return where the reader, and its group, may stand after so many records: from, to."""
        low = self.records[delivered - 1].offset + 1 if delivered else self.start
        if delivered < len(self.records):
            return low, max(self.start, self.records[delivered].offset)
        return low, self.end if self.stop is None else max(self.start, self.stop.stands)


def read(log: Sequence[Entry], start: int, *, committed: bool) -> Reading:
    """Read from an offset on. committed: not what belongs to aborted transactions."""
    hidden = {entry.producer for entry in log if entry.aborts} if committed else set()
    records: list[Record] = []
    before = -1
    end = log[-1].last + 1 if log else 0
    for entry in log:
        if entry.last >= start:
            is_hidden = entry.form is Form.MARKER or (entry.producer >= 0 and entry.producer in hidden)
            good = () if is_hidden else entry.records[: _good(entry)]
            records += [record for record in good if record.offset >= start]
            if _stops(entry, is_hidden):
                return Reading(tuple(records), _stop(entry, before), start, end)
        before = entry.last
    return Reading(tuple(records), None, start, end)


def _good(entry: Entry) -> int:
    """How many records come out before the damage."""
    if entry.mark is None:
        return len(entry.records)
    return entry.mark.at if entry.mark.fault in (Fault.RECORD, Fault.COUNT) else 0


def _stops(entry: Entry, is_hidden: bool) -> bool:
    """Say whether the damage is met.

    Of what is not handed out only the header and the checksum matter: they vouch for its offsets.
    """
    if entry.mark is None:
        return False
    return not is_hidden or entry.mark.fault in (Fault.CHECKSUM, Fault.HEADER)


def _stop(entry: Entry, before: int) -> Stop:
    """before: the last offset of the entry in front."""
    assert entry.mark is not None
    fault, good = entry.mark.fault, _good(entry)
    first = entry.records[0].offset if entry.records else entry.base
    if good:
        at = entry.records[good - 1].offset + 1
        named, stands = (at, at), at
    elif entry.form is Form.MESSAGE:  # a reader that has read what is in front may name what follows that
        named, stands = (before + 1, entry.last), entry.last
    elif entry.form is Form.WRAPPER:  # its header says the last offset only
        named, stands = (entry.last, entry.last), first
    else:
        named, stands = (entry.base, entry.base), entry.base
    return Stop(fault is Fault.CODEC, named, stands, entry.last + 1, knows=fault is not Fault.HEADER)
