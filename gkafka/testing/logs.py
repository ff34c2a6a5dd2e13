"""The log of one partition as a broker keeps it: batches as they came, with offsets given, checksums checked and duplicates known.

Batches are stored in the format they came in and handed out in it: nothing is converted to an older one.
Source: KIP-98 (record batch, sequences), KIP-32 (message format 1)
"""

from __future__ import annotations

import bisect
import struct
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from gkafka import records
from gkafka.records import compression

__all__ = ["Appended", "Ended", "Entry", "PartitionLog", "Refused", "StoredRecord"]

CORRUPT_MESSAGE, MESSAGE_TOO_LARGE, UNSUPPORTED_FOR_MESSAGE_FORMAT, OUT_OF_ORDER_SEQUENCE = 2, 10, 43, 45
INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE, UNSUPPORTED_COMPRESSION, INVALID_RECORD, OFFSET_OUT_OF_RANGE = 47, 48, 76, 87, 1
REMEMBERED = 5  # batches of each producer (Kafka's ProducerStateEntry.NUM_BATCHES_TO_RETAIN)
CODEC, LOG_APPEND_TIME, TRANSACTIONAL, CONTROL = 7, 8, 16, 32  # bits of a batch's attributes
ZSTD = 4
SEQUENCES = 1 << 31
INNER_BYTES = 256 << 20  # bytes: more than this out of one compressed message set is refused

_batch = struct.Struct(">qiibIhiqqqhii")
_message = struct.Struct(">qiIbb")  # offset, size, crc, magic, attributes; format 1 has a timestamp after it


class Refused(Exception):
    """A batch is not appended; code is what the broker answers."""

    def __init__(self, code: int, why: str) -> None:
        super().__init__(why)
        self.code = code


class Appended(NamedTuple):
    """What a producer is told. append_time: ms, -1 unless the topic stamps its records itself."""

    base_offset: int
    append_time: int
    duplicate: bool = False


class StoredRecord(NamedTuple):
    """One record of a log, copied out of it."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


class Entry(NamedTuple):
    """A batch, or one message of a message set."""

    base: int
    last: int
    magic: int
    max_timestamp: int
    data: bytes


class Ended(NamedTuple):
    """A transaction in this log: from its first batch to its marker."""

    producer_id: int
    first: int
    last: int
    committed: bool


class _Producer:
    __slots__ = ("batches", "epoch")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.batches: deque[tuple[int, int, int]] = deque(maxlen=REMEMBERED)  # first sequence, last sequence, base offset


class PartitionLog:
    """Offsets from `start` (included) to `end` (excluded). The high watermark is `end`: replicas are never behind here."""

    def __init__(self) -> None:
        self.start = 0
        self.end = 0
        self.entries: list[Entry] = []
        self.aborted: list[tuple[int, int]] = []  # (producer id, first offset) of aborted transactions, as a script tells it
        self.open: dict[int, int] = {}  # producer id -> first offset of its open transaction
        self.ended: list[Ended] = []
        self.stable: int | None = None  # last stable offset, if a transaction is open
        self._producers: dict[int, _Producer] = {}

    @property
    def last_stable(self) -> int:
        return min([self.end, *self.open.values()] if self.stable is None else [self.end, self.stable, *self.open.values()])

    # -- writing
    def append(
        self,
        data: memoryview,
        *,
        newest_magic: int,
        oldest_magic: int,
        zstd: bool,
        epoch: int,
        now_ms: int,
        stamp: bool,
        max_bytes: int,
        admit: Callable[[int, int], None] | None = None,
    ) -> Appended:
        """Append what a producer sent. newest_magic, oldest_magic, zstd: what this version of Produce may carry. Raises Refused.

        admit: is asked about each transactional batch's producer id and epoch, and raises Refused; None refuses them all.
        """
        if len(data) < _message.size:
            raise Refused(CORRUPT_MESSAGE, f"{len(data)} bytes are no batch")
        magic = data[16]
        if not oldest_magic <= magic <= newest_magic:
            raise Refused(
                UNSUPPORTED_FOR_MESSAGE_FORMAT if magic > newest_magic else INVALID_RECORD, f"message format {magic} cannot be taken here"
            )
        if magic == 2:
            return self._append_batch(bytearray(data), zstd=zstd, epoch=epoch, now_ms=now_ms, stamp=stamp, max_bytes=max_bytes, admit=admit)
        return self._append_messages(data, max_bytes)

    def append_raw(self, data: bytes) -> int:
        """Append bytes of batches as they are, offsets included: for control batches, gaps and damage. Returns the new end."""
        at = 0
        while at < len(data):
            base, size = struct.unpack_from(">qi", data, at)
            magic = data[at + 16]
            if magic == 2:
                fields = _batch.unpack_from(data, at)
                last, newest = base + fields[6], fields[8]
            else:
                last, newest = base, _timestamp(memoryview(data), at, magic)
            self._store(Entry(base, last, magic, newest, data[at : at + 12 + size]))
            at += 12 + size
        return self.end

    def _store(self, entry: Entry) -> None:
        if not self.entries:
            self.start = min(self.start, entry.base) if self.end == self.start else self.start
        self.entries.append(entry)
        self.end = entry.last + 1

    def _append_batch(
        self,
        data: bytearray,
        *,
        zstd: bool,
        epoch: int,
        now_ms: int,
        stamp: bool,
        max_bytes: int,
        admit: Callable[[int, int], None] | None,
    ) -> Appended:
        fields = self._checked(data, max_bytes)
        attributes, last_delta, newest, producer_id, producer_epoch, sequence = fields[5], fields[6], fields[8], *fields[9:12]
        if attributes & CODEC == ZSTD and not zstd:
            raise Refused(UNSUPPORTED_COMPRESSION, "zstd needs a newer version of the Produce API")
        if attributes & CONTROL:
            raise Refused(INVALID_RECORD, "a client writes no control batches")
        transactional = bool(attributes & TRANSACTIONAL)
        if transactional:
            if admit is None:
                raise Refused(INVALID_TXN_STATE, "a transactional batch in a request without a transactional id")
            admit(producer_id, producer_epoch)
        if producer_id >= 0:
            known = self._check_sequence(producer_id, producer_epoch, sequence, last_delta)
            if known is not None:
                return Appended(known, -1, duplicate=True)
        base = self.end
        struct.pack_into(">q", data, 0, base)
        struct.pack_into(">i", data, 12, epoch)
        if stamp:
            newest = now_ms
            struct.pack_into(">h", data, 21, attributes | LOG_APPEND_TIME)
            struct.pack_into(">q", data, 35, now_ms)
            struct.pack_into(">I", data, 17, records.crc32c(memoryview(data)[21:]))
        self._store(Entry(base, base + last_delta, 2, newest, bytes(data)))
        if transactional:
            self.open.setdefault(producer_id, base)
        if producer_id >= 0:
            last_sequence = (sequence + last_delta) % SEQUENCES
            self._producers[producer_id].batches.append((sequence, last_sequence, base))
        return Appended(base, now_ms if stamp else -1)

    def _checked(self, data: bytearray, max_bytes: int) -> tuple[Any, ...]:
        if len(data) < _batch.size:
            raise Refused(CORRUPT_MESSAGE, f"{len(data)} bytes are no batch")
        fields = _batch.unpack_from(data)
        if 12 + fields[1] != len(data):
            raise Refused(INVALID_RECORD, f"not exactly one batch: it says {12 + fields[1]} bytes, {len(data)} came")
        if len(data) > max_bytes:
            raise Refused(MESSAGE_TOO_LARGE, f"a batch of {len(data)} bytes, {max_bytes} are taken")
        if records.crc32c(memoryview(data)[21:]) != fields[4]:
            raise Refused(CORRUPT_MESSAGE, "the checksum is wrong")
        if fields[12] < 1 or fields[12] != fields[6] + 1:
            raise Refused(INVALID_RECORD, f"a batch of {fields[12]} records whose last offset delta is {fields[6]}")
        return fields

    def _check_sequence(self, producer_id: int, epoch: int, first: int, last_delta: int) -> int | None:
        """The base offset of the same batch if it is here already. An unknown producer may begin anywhere, as in Kafka."""
        producer = self._producers.get(producer_id)
        if producer is None:
            self._producers[producer_id] = _Producer(epoch)
            return None
        if epoch < producer.epoch:
            raise Refused(INVALID_PRODUCER_EPOCH, f"producer {producer_id} has epoch {producer.epoch}, the batch has {epoch}")
        if epoch > producer.epoch:
            if first != 0:
                raise Refused(OUT_OF_ORDER_SEQUENCE, f"producer {producer_id} begins epoch {epoch} with sequence {first}")
            self._producers[producer_id] = _Producer(epoch)
            return None
        last = (first + last_delta) % SEQUENCES
        for known_first, known_last, base in producer.batches:
            if (known_first, known_last) == (first, last):
                return base
        if producer.batches and first != (producer.batches[-1][1] + 1) % SEQUENCES:
            raise Refused(
                OUT_OF_ORDER_SEQUENCE, f"producer {producer_id}: sequence {first} came after {producer.batches[-1][1]} (epoch {epoch})"
            )
        return None

    def _append_messages(self, data: memoryview, max_bytes: int) -> Appended:
        base = self.end
        new, offset = [], base
        for message in _split(data):
            if len(message) > max_bytes:
                raise Refused(MESSAGE_TOO_LARGE, f"a message of {len(message)} bytes, {max_bytes} are taken")
            entry = _place(message, offset)
            offset = entry.last + 1
            new.append(entry)
        for entry in new:
            self._store(entry)
        return Appended(base, -1)

    def mark(self, producer_id: int, producer_epoch: int, *, commit: bool, now_ms: int) -> None:
        """Write a coordinator's marker: the producer's transaction ends here. Batches of older epochs are refused from now on."""
        first = self.open.pop(producer_id, None)
        if first is not None:
            self.ended.append(Ended(producer_id, first, self.end, commit))
        producer = self._producers.get(producer_id)
        if producer is None or producer.epoch < producer_epoch:
            self._producers[producer_id] = _Producer(producer_epoch)
        self._store(Entry(self.end, self.end, 2, now_ms, _marker(self.end, producer_id, producer_epoch, commit, now_ms)))

    # -- reading
    def aborted_from(self, offset: int) -> list[tuple[int, int]]:
        """(producer id, first offset) of the aborted transactions that reach beyond `offset`, as a read_committed Fetch is told."""
        ended = [(e.producer_id, e.first) for e in self.ended if not e.committed and e.last >= offset]
        return ended + [entry for entry in self.aborted if entry[1] < self.end]

    def committed(self) -> list[StoredRecord]:
        """The records that a read_committed consumer sees."""
        hidden = [(e.producer_id, e.first, e.last) for e in self.ended if not e.committed]
        hidden += [(producer_id, first, self.end) for producer_id, first in self.open.items()]
        shown = b""
        for entry in self.entries:
            attributes, producer_id = struct.unpack_from(">h", entry.data, 21)[0], struct.unpack_from(">q", entry.data, 43)[0]
            aborted = any(producer_id == who and first <= entry.base <= last for who, first, last in hidden)
            if entry.magic < 2 or not (attributes & TRANSACTIONAL and aborted):
                shown += entry.data
        return [record for record in decode(shown) if record.offset < self.last_stable]

    def read(self, offset: int, max_bytes: int, *, end: int, whole_first: bool) -> list[bytes | memoryview]:
        """Batches from the one that holds `offset` on, up to `end`, cut at max_bytes wherever that falls, as Kafka's logs are read.

        whole_first: the first batch comes whole even if it is larger (KIP-74).
        """
        found: list[bytes | memoryview] = []
        size = 0
        index = bisect.bisect_left(self.entries, offset, key=lambda entry: entry.last)
        while index < len(self.entries) and size < max_bytes and self.entries[index].base < end:
            data = self.entries[index].data
            if size + len(data) > max_bytes and not (whole_first and not found):
                found.append(memoryview(data)[: max_bytes - size])
                break
            found.append(data)
            size += len(data)
            index += 1
        return found

    def newest_magic(self, offset: int) -> int:
        """The newest format among the batches from `offset` on."""
        index = bisect.bisect_left(self.entries, offset, key=lambda entry: entry.last)
        return max((entry.magic for entry in self.entries[index:]), default=0)

    def available(self, offset: int, end: int, limit: int) -> int:
        """Bytes that a fetch from `offset` could get, counted no further than `limit`."""
        size = 0
        index = bisect.bisect_left(self.entries, offset, key=lambda entry: entry.last)
        while index < len(self.entries) and size < limit and self.entries[index].base < end:
            size += len(self.entries[index].data)
            index += 1
        return size

    def find(self, timestamp: int) -> tuple[int, int]:
        """(timestamp, offset) of the first record at or after a time, (-1, -1) if there is none."""
        for entry in self.entries:
            if entry.max_timestamp >= timestamp:
                for record in decode(entry.data):
                    if record.timestamp >= timestamp and record.offset >= self.start:
                        return record.timestamp, record.offset
        return -1, -1

    def newest(self) -> tuple[int, int]:
        """(timestamp, offset) of the record with the largest timestamp, the first of them if there are more."""
        best = (-1, -1)
        for record in decode(b"".join(entry.data for entry in self.entries)):
            if record.timestamp > best[0]:
                best = record.timestamp, record.offset
        return best

    # -- what is done to logs
    def delete_before(self, offset: int) -> None:
        """Retention: the log starts at `offset`; batches that end before it are gone."""
        self.start = min(max(self.start, offset), self.end)
        self.entries = [entry for entry in self.entries if entry.last >= self.start]

    def truncate(self, offset: int) -> None:
        """An unclean election: everything from the batch that holds `offset` on is lost."""
        self.entries = [entry for entry in self.entries if entry.last < offset]
        self.end = max(self.entries[-1].last + 1 if self.entries else self.start, self.start)
        self.open = {producer_id: first for producer_id, first in self.open.items() if first < self.end}
        self.ended = [ended for ended in self.ended if ended.last < self.end]

    def compact_away(self, base_offset: int) -> None:
        """Compaction: the batch with this base offset is gone, its offsets are a gap."""
        self.entries = [entry for entry in self.entries if entry.base != base_offset]


def _marker(offset: int, producer_id: int, producer_epoch: int, commit: bool, now_ms: int) -> bytes:
    """A control batch of one record: key (version, 0 abort or 1 commit), value (version, coordinator epoch)."""
    record = b"\0\0\0" + b"\x08" + struct.pack(">hh", 0, int(commit)) + b"\x0c" + struct.pack(">hi", 0, 0) + b"\0"
    body = (
        struct.pack(">hiqqqhii", TRANSACTIONAL | CONTROL, 0, now_ms, now_ms, producer_id, producer_epoch, -1, 1)
        + bytes([len(record) * 2])
        + record
    )
    return struct.pack(">qiibI", offset, 9 + len(body), 0, 2, records.crc32c(body)) + body


# -- message sets ------------------------------------------------------------------------------------------------------
def _split(data: memoryview) -> Iterator[memoryview]:
    at = 0
    while at < len(data):
        size = struct.unpack_from(">i", data, at + 8)[0] if at + 12 <= len(data) else -1
        if size < 14 or at + 12 + size > len(data):
            raise Refused(CORRUPT_MESSAGE, f"a message set is cut at byte {at}")
        yield data[at : at + 12 + size]
        at += 12 + size


def _timestamp(message: memoryview, at: int, magic: int) -> int:
    return struct.unpack_from(">q", message, at + 18)[0] if magic == 1 else -1


def _place(message: memoryview, offset: int) -> Entry:
    """One message of the set at its offset: the wrapper of a compressed set has the offset of its last inner one."""
    _, _, crc, magic, attributes = _message.unpack_from(message)
    if zlib.crc32(message[16:]) != crc:
        raise Refused(CORRUPT_MESSAGE, "the checksum is wrong")
    if magic > 1:
        raise Refused(INVALID_RECORD, f"a message set that holds format {magic}")
    timestamp = _timestamp(message, 0, magic)
    if not attributes & CODEC:
        return Entry(offset, offset, magic, timestamp, struct.pack(">q", offset) + bytes(message[8:]))
    return _place_wrapper(message, offset, magic, attributes & CODEC, timestamp)


def _place_wrapper(wrapper: memoryview, offset: int, magic: int, codec: int, timestamp: int) -> Entry:
    head = 18 + 8 * magic  # where the key's length stands
    (key_size,) = struct.unpack_from(">i", wrapper, head)
    value_at = head + 4 + max(key_size, 0) + 4
    inner = list(_split(memoryview(compression.decompress(codec, wrapper[value_at:], max_bytes=INNER_BYTES, legacy=magic == 0))))
    if not inner:
        raise Refused(INVALID_RECORD, "an empty compressed message set")
    last = offset + len(inner) - 1
    first_inner = 0 if magic else offset  # format 1: relative to the wrapper (KIP-31); format 0: absolute
    wanted = [first_inner + index for index in range(len(inner))]
    if [struct.unpack_from(">q", message)[0] for message in inner] == wanted:
        return Entry(offset, last, magic, timestamp, struct.pack(">q", last) + bytes(wrapper[8:]))
    # The offsets lie inside what is compressed: a broker of that time did the same work.
    rebuilt = b"".join(struct.pack(">q", at) + bytes(message[8:]) for at, message in zip(wanted, inner, strict=True))
    packed = compression.compress(codec, rebuilt, legacy=magic == 0)
    body = bytes(wrapper[16 : value_at - 4]) + struct.pack(">i", len(packed)) + packed
    data = struct.pack(">qiI", last, len(body) + 4, zlib.crc32(body)) + body
    return Entry(offset, last, magic, timestamp, data)


class _Context:
    """What `gkafka.records` wants to know about the partition; a log has no name for itself."""

    topic = ""
    partition_id = -1
    partition = None


def decode(data: bytes) -> list[StoredRecord]:
    """The records of whole batches; those of control batches are left out."""
    found: list[StoredRecord] = []
    for header in records.scan(data):
        if header.is_control:
            continue
        batch = records.Records(data, header, _Context(), check_crcs=False)
        while messages := batch.take(1000):
            found += [
                StoredRecord(
                    m.offset,
                    m.timestamp,
                    None if m.key is None else bytes(m.key),
                    None if m.value is None else bytes(m.value),
                    [(name, None if value is None else bytes(value)) for name, value in m.headers or ()],
                )
                for m in messages
            ]
    return found
