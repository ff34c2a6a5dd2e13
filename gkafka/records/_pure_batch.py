"""A written batch, its records, and the view of one record: the Python twin of `_speed_batch.pxi`."""

from __future__ import annotations

import os
import struct
import sys
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from gkafka.common import TimestampType, TopicPartition
from gkafka.exceptions import KafkaTimeoutError
from gkafka.records._check import HEADER_BYTES, MAX_BATCH_BYTES, Headers, check_seal
from gkafka.records._legacy_write import Row, check_legacy, decode_message_set, encode_message_set
from gkafka.records._pure_crc import crc32c
from gkafka.records._pure_memory import NULL, SMALL, SMALLS, Memory, Pool, read_blob, read_varint, size_of, varint
from gkafka.records._pure_read import make_message
from gkafka.records._results import OF_ASYNCIO, Record, RecordMetadata, fresh_error, not_for_asyncio, not_for_executors, run_callback
from gkafka.records._split import Cut, cuts
from gkafka.records.compression import compress, decompress

if TYPE_CHECKING:
    from typing_extensions import Self

    from gkafka.records._pure_write import Appender

__all__ = ["BIG", "FULL", "ODD", "Batch", "Delivery", "FutureDelivery", "Report", "ReportQueue", "call_back"]

FULL, BIG, ODD = -1, -2, -3  # why a record was not appended: see Batch._put
RUN_BYTES = 16
COUNTS_REFERENCES = hasattr(sys, "getrefcount")

_HEADER = struct.Struct(">qiibIhiqqqhii")
_PRODUCER = struct.Struct(">qhi")


# -- a batch -----------------------------------------------------------------------------------------------------------
class Batch:
    """Records of one partition that are sent together: a v2 record batch behind its reserved 61-byte header.

    Made by `Appender.open`. count: records; size: bytes so far, uncompressed, header included; created: monotonic seconds;
    base_timestamp, max_timestamp: ms, -1 while empty; sealed: `wire` is fixed; done: delivered or failed, `error` says which;
    persisted: what `fail` was told; owner: the appender's, None once done; attempts, extra, waits: the owner's. A batch that was split has
    `parts`; a part knows its `parent`, until it is done, and which of the parent's records is its `first`.
    """

    __slots__ = (
        "__weakref__",
        "_apart",
        "_at",
        "_callbacks",
        "_capacity",
        "_codec",
        "_cursor",
        "_hooks",
        "_last_timestamp",
        "_limit",
        "_lock",
        "_magic",
        "_memory",
        "_plain",
        "_pool",
        "_run_charge",
        "_run_firsts",
        "_run_room",
        "_run_timestamps",
        "_sealing",
        "_unfinished",
        "attempts",
        "base_offset",
        "base_timestamp",
        "count",
        "created",
        "done",
        "error",
        "extra",
        "first",
        "has_headers",
        "log_append_time",
        "max_timestamp",
        "owner",
        "parent",
        "partition",
        "parts",
        "persisted",
        "sealed",
        "size",
        "topic",
        "waits",
        "wire_size",
    )

    topic: str
    partition: int
    owner: Any
    created: float
    extra: Any
    waits: Any
    error: BaseException | None
    persisted: str | None
    _hooks: tuple[Callable[[Any], object], ...] | None  # called for each of its records, before its own callbacks

    def __init__(self) -> None:
        raise TypeError("a Batch is made by Appender.open()")

    def _begin(self, appender: Appender, topic: str, partition: int, created: float, capacity: int, limit: int) -> None:
        self._start(topic, partition, appender.owner, created, appender._lock or nullcontext(), appender._pool)
        self._memory: Memory | None = Memory(HEADER_BYTES, appender._pool, capacity)
        self._capacity, self._limit = capacity, limit
        self._hooks = appender.hooks

    def _start(self, topic: str, partition: int, owner: Any, created: float, lock: AbstractContextManager[Any], pool: Pool) -> None:
        self.topic, self.partition, self.owner, self.created, self._lock, self._pool = topic, partition, owner, created, lock, pool
        self.count, self.size, self.attempts = 0, HEADER_BYTES, 0
        self.base_timestamp = self.max_timestamp = self._last_timestamp = -1
        self.has_headers = self.sealed = self.done = self._sealing = False
        self._apart = False  # its memory is its own
        self.error = self.persisted = self.extra = self.waits = None
        self.base_offset = self.log_append_time = -1
        self.wire_size = 0
        self._memory = None
        self._capacity = self._limit = 0  # both 0 when nothing more may be appended
        self._run_firsts: list[int] = []  # where the timestamp changes; none while all have base_timestamp
        self._run_timestamps: list[int] = []
        self._run_room = self._run_charge = 0
        self._callbacks: list[tuple[int, Callable[[Any], object]]] | None = None
        self._hooks = None
        self._codec, self._magic = 0, 2
        self._plain: Any = None  # what a compressed wire holds, once somebody asked: bytes, or rows of a message set
        self._at = self._cursor = 0  # where record number `cursor` stands, counted from the first record
        self.parent: Batch | None = None
        self.parts: list[Batch] | None = None
        self.first = self._unfinished = 0

    def __repr__(self) -> str:
        state = f"{', sealed' if self.sealed else ''}{', done' if self.done else ''}"
        return f"<Batch {self.topic}-{self.partition}: {self.count} records, {self.size} bytes{state}>"

    @property
    def is_open(self) -> bool:
        """Does it take records?"""
        return self._limit != 0

    # -- sealing
    def seal(
        self,
        codec: int,
        level: int | None = None,
        *,
        producer_id: int = -1,
        producer_epoch: int = -1,
        base_sequence: int = -1,
        transactional: bool = False,
    ) -> None:
        """Fix the bytes to send: compress, write the header, take the checksum. Appending ends.

        codec: 0 to 4; level: the codec's own, None for its default. Raises ValueError for an empty or a sealed batch,
        UnsupportedCodec if the codec's wheel is missing (then the batch can be sealed with another).
        """
        check_seal(codec, producer_id, producer_epoch, base_sequence)
        raw = self._begin_seal()
        try:
            memory = raw
            if codec:
                with memoryview(raw) as view, view[HEADER_BYTES:] as records:
                    payload = compress(codec, records, level)
                memory = self._filled((bytes(HEADER_BYTES), payload))
            self._write_header(memory, codec | (0x10 if transactional else 0))
            _write_producer(memory, producer_id, producer_epoch, base_sequence)
            self._end_seal(memory, codec, 2)
        finally:
            self._sealing = False

    def seal_legacy(self, magic: int, codec: int, level: int | None = None) -> None:
        """The same records as a message set, magic 1 (brokers 0.10) or 0 (older), in place of a v2 batch, also of a sealed one.

        Raises UnsupportedVersion for records with headers, UnsupportedCodec for zstd.
        """
        check_seal(codec)
        check_legacy(magic, codec, self.topic, self.partition, self.has_headers)
        if self.sealed and self._magic == 2 and self._memory is not None and not self._sealing:
            self._sealing = True
        else:
            self._begin_seal()
        try:
            memory = self._filled((encode_message_set(self._rows(), magic, codec, level),))
            self._end_seal(memory, codec, magic)
        finally:
            self._sealing = False

    def _begin_seal(self) -> Memory:
        with self._lock:
            if self._memory is None or self._apart:
                raise ValueError(f"{self!r} has released its memory")
            if self.sealed or self._sealing:
                raise ValueError(f"{self!r} is sealed already")
            if not self.count:
                raise ValueError(f"{self!r} is empty: there is nothing to seal")
            self._close()
            self._sealing = True
            return self._memory

    def _close(self) -> None:
        self._capacity = self._limit = 0

    def _end_seal(self, memory: Memory, codec: int, magic: int) -> None:
        with self._lock:
            if self._memory is None or self._apart:  # released by another thread in the meantime
                raise ValueError(f"{self!r} has released its memory")
            self._memory = memory
            self._codec, self._magic = codec, magic
            self.wire_size = len(memory)
            self._plain = None
            self._at = self._cursor = 0
            self.sealed = True

    def _filled(self, pieces: Iterable[bytes | Memory]) -> Memory:
        """Memory of its own for the pieces. It may pass buffer_bytes by what they are larger than the records: there the records are
        in memory already and waiting would not end."""
        data = b"".join(pieces)
        with self._lock:
            self._pool.charge(len(data))
        return Memory(data, self._pool, len(data))

    def _write_header(self, memory: Memory, attributes: int) -> None:
        # partitionLeaderEpoch, the third, is the broker's to fill in; the checksum, the fifth, comes with the producer's fields.
        rest = (attributes, self.count - 1, self.base_timestamp, self.max_timestamp, -1, -1, -1, self.count)
        _HEADER.pack_into(memory, 0, 0, len(memory) - 12, -1, 2, 0, *rest)

    def restamp(self, producer_id: int, producer_epoch: int, base_sequence: int) -> None:
        """A new producer id, epoch and sequence in a sealed batch (KIP-360). Views of the old `wire` keep the old bytes."""
        check_seal(0, producer_id, producer_epoch, base_sequence)
        if not self.sealed or self._sealing or self._memory is None or self._apart or self._magic != 2:
            raise ValueError(f"{self!r} is not a sealed v2 batch that still has its memory")
        memory = self._filled((self._memory,))
        _write_producer(memory, producer_id, producer_epoch, base_sequence)
        self._memory = memory

    @property
    def wire(self) -> memoryview:
        """The bytes to send, read-only. They stay what they are while the view lives, whatever becomes of the batch."""
        memory = self._memory
        if not self.sealed or memory is None:
            raise ValueError(f"{self!r} {'has released its memory' if self.sealed else 'is not sealed yet'}")
        return memoryview(memory).toreadonly()

    # -- splitting
    def split(self, limit: int) -> list[Batch]:
        """The records in two batches or more, each of about limit bytes (uncompressed) or one record: for a broker that finds this one
        too large (KIP-126).

        The parts take no more records and are not sealed. Each ends by itself; the deliveries and callbacks of this batch follow
        their records, and it is done when all parts are. Its memory is given back, the parts' is taken, if need be beyond
        buffer_bytes. Parts of a part belong to the batch that was split first. Raises ValueError for less than two records, and for
        a batch that is done, being sealed, split or released.
        """
        with self._lock:
            self._check_split()
        rows = [self._row(i) for i in range(self.count)]
        parts = [self._part(cut) for cut in cuts(rows, limit)]
        with self._lock:
            self._check_split()
            whole = self.parent or self
            whole._divide(self, parts)
            self._hand_over(parts)
            self._release()
        return parts

    def _check_split(self) -> None:
        if self.count < 2 or self.done or self._sealing or self.parts is not None or self._memory is None or self._apart:
            raise ValueError(f"{self!r} cannot be split")

    def _row(self, index: int) -> Record:
        row = self.record(index)
        if row is None:
            raise ValueError(f"{self!r} has released its memory")
        return row

    def _part(self, cut: Cut) -> Batch:
        part = Batch.__new__(Batch)
        part._start(self.topic, self.partition, self.owner, self.created, self._lock, self._pool)
        part.parent, part.first = self.parent or self, self.first + cut.first
        part._hooks = self._hooks
        with self._lock:
            self._pool.charge(cut.size + cut.turns * RUN_BYTES)
        part._memory = Memory(HEADER_BYTES, self._pool, cut.size)
        part._run_room, part._run_charge = cut.turns, cut.turns * RUN_BYTES
        part._capacity = part._limit = cut.size
        for row in cut.rows:
            index = part._put(row.value, row.key, row.headers, row.timestamp, MAX_BATCH_BYTES)
            assert index >= 0, index
        part._close()
        return part

    def _divide(self, old: Batch, parts: list[Batch]) -> None:
        if self.parts is None:
            self.parts, self._unfinished = list(parts), len(parts)
        else:
            self.parts = [new for part in self.parts for new in (parts if part is old else [part])]
            self._unfinished += len(parts) - 1

    def _hand_over(self, parts: list[Batch]) -> None:
        """Callbacks go where their records went. Their numbers stay those of the whole batch."""
        callbacks, self._callbacks = self._callbacks or [], None
        for index, fn in callbacks:
            part = part_of(parts, index)
            part._callbacks = part._callbacks or []
            part._callbacks.append((index, fn))

    def part(self, index: int) -> Batch:
        """The batch that holds record number index: this one, or the part that it went to."""
        return self if self.parts is None else part_of(self.parts, index)

    def _release(self) -> None:
        self._close()
        memory, self._memory = self._memory, None
        self._plain = None
        self._apart = False
        self._return(memory)

    def _set_apart(self) -> None:
        self._close()
        memory = self._memory
        if memory is not None and not self._apart:
            self._memory, self._apart = Memory(memory, self._pool, 0), True
            self._return(memory)

    def _return(self, memory: Memory | None) -> None:
        self._pool.charge(-self._run_charge)
        self._run_charge = 0
        if memory is not None and not COUNTS_REFERENCES:
            memory.give_back()

    def __del__(self) -> None:
        charge = getattr(self, "_run_charge", 0)
        if charge:
            self._pool.give_back(charge)

    # -- what is in it
    def record(self, index: int) -> Record | None:
        """Record number index as it was produced, None once the memory is released."""
        if not 0 <= index < self.count:
            raise IndexError(f"{self!r} has no record {index}")
        if self.parts is not None:
            part = self.part(index)
            return part.record(index - part.first)
        if self._memory is None:
            return None
        key: bytes | None
        value: bytes | None
        headers: Headers = []
        if self._magic != 2:
            key, value = self._message_rows()[index]
        else:
            key, value, headers = self._v2_row(index)
        return Record(self.topic, self.partition, key, value, headers, self._timestamp_of(index))

    def _rows(self) -> list[Row]:
        """(timestamp, key, value) of every record."""
        return [(self._timestamp_of(i), *self._v2_row(i)[:2]) for i in range(self.count)]

    def _message_rows(self) -> list[tuple[bytes | None, bytes | None]]:
        if self._plain is None:
            self._plain = decode_message_set(bytes(self._memory or b""), max_bytes=self.size + 34 * self.count)
        rows: list[tuple[bytes | None, bytes | None]] = self._plain
        return rows

    def _v2_row(self, index: int) -> tuple[bytes | None, bytes | None, Headers]:
        data, start = self._records()
        if index < self._cursor:
            self._at = self._cursor = 0
        at, cursor = self._at, self._cursor
        while cursor < index:
            size, here = read_varint(data, start + at)
            at = here + size - start
            cursor += 1
        self._at, self._cursor = at, cursor
        at = read_varint(data, start + at)[1] + 1  # its size, its attributes
        at = read_varint(data, read_varint(data, at)[1])[1]  # timestamp delta, offset delta
        key, at = read_blob(data, at)
        value, at = read_blob(data, at)
        count, at = read_varint(data, at)
        headers: Headers = []
        for _ in range(count):
            name, at = read_blob(data, at)
            payload, at = read_blob(data, at)
            headers.append(((name or b"").decode(), payload))
        return key, value, headers

    def _records(self) -> tuple[bytes | bytearray, int]:
        """The uncompressed records: what they are in, and where they begin."""
        memory = self._memory
        if memory is None:
            raise ValueError(f"{self!r} has released its memory")
        if not self._codec:
            return memory, HEADER_BYTES
        plain: bytes | None = self._plain
        if plain is None:
            plain = self._plain = bytes(decompress(self._codec, memoryview(memory)[HEADER_BYTES:], max_bytes=self.size))
        return plain, 0

    def _offset_and_timestamp_of(self, number: int) -> tuple[int, int]:
        """Of that record, once it is delivered: the offset, -1 if the broker did not say, and the timestamp, the broker's if it set one."""
        index = number - self.first
        timestamp = self.log_append_time if self.log_append_time >= 0 else self._timestamp_of(index)
        return (self.base_offset + index if self.base_offset >= 0 else -1), timestamp

    def _timestamp_of(self, index: int) -> int:
        run = bisect_right(self._run_firsts, index)
        return self._run_timestamps[run - 1] if run else self.base_timestamp

    # -- appending, under the lock
    def _put(self, value: Any, key: Any, headers: Any, timestamp: int, most: int) -> int:
        """Encode one record behind the others; its index, or FULL (it does not fit, or there is no memory), BIG (larger than one record
        may be; most: largest size of a batch that holds just this record) or ODD (not exactly of the types that go without checks)."""
        if value is None:
            value_size, value = NULL, b""
        elif type(value) is bytes:
            n = len(value)
            value_size = SMALL[n] if n < SMALLS else varint(n)
        else:
            return ODD
        if key is None:
            key_size, key = NULL, b""
        elif type(key) is bytes:
            n = len(key)
            key_size = SMALL[n] if n < SMALLS else varint(n)
        else:
            return ODD
        if len(value) > most or len(key) > most:
            return BIG
        index = self.count
        offset = SMALL[index] if index < SMALLS else varint(index)
        n = timestamp - self.base_timestamp if index else 0
        delta = SMALL[n] if 0 <= n < SMALLS else varint(n)
        tail = b"\0"
        if headers is not None:
            encoded = _encode_headers(headers)
            if encoded is None:
                return ODD
            tail = encoded
        body = b"".join((b"\0", delta, offset, key_size, key, value_size, value, tail))
        n = len(body)
        size = SMALL[n] if n < SMALLS else varint(n)
        n += len(size)
        if HEADER_BYTES + n > most:
            return BIG
        need = self.size + n
        if need > self._capacity and not self._grow(need):
            return FULL
        if timestamp != self._last_timestamp:
            if index and not self._add_run(timestamp):
                return FULL
            self._last_timestamp = timestamp
            if not index:
                self.base_timestamp = timestamp
            if not index or timestamp > self.max_timestamp:
                self.max_timestamp = timestamp
        memory = self._memory
        assert memory is not None  # an open batch has its memory
        memory += size
        memory += body
        if headers:
            self.has_headers = True
        self.size = need
        self.count = index + 1
        return index

    def _grow(self, need: int) -> bool:
        capacity = self._capacity
        if need > self._limit:
            return False
        while capacity < need:
            capacity *= 2
        capacity = min(capacity, self._limit)
        memory = self._memory
        if memory is None or not self._pool.reserve(capacity - memory.charged):
            return False
        memory.charged = self._capacity = capacity
        return True

    def _add_run(self, timestamp: int) -> bool:
        if len(self._run_firsts) == self._run_room:
            room = self._run_room * 2 or 8
            charge = (room - self._run_room) * RUN_BYTES
            if not self._pool.reserve(charge):
                return False
            self._run_charge += charge
            self._run_room = room
        self._run_firsts.append(self.count)
        self._run_timestamps.append(timestamp)
        return True

    # -- its end
    def complete(self, base_offset: int, log_append_time: int = -1) -> list[tuple[int, Callable[[Any], object]]]:
        """The batch is in the log at base_offset (-1: nobody said). log_append_time: ms, if the broker set the timestamps.

        Returns the callbacks to run, (index, fn) in the order of the records. A batch ends once: a second end changes nothing.
        """
        with self._lock:
            if self.done:
                return []
            self.base_offset, self.log_append_time = base_offset, log_append_time
            return self._finish()

    def fail(self, error: BaseException, persisted: str | None = None) -> list[tuple[int, Callable[[Any], object]]]:
        """The batch was not delivered; see `complete`. persisted: "no", or "maybe" where a broker may have written it all the same."""
        if not isinstance(error, BaseException):
            raise TypeError(f"error is {type(error).__name__}: must be an exception")
        with self._lock:
            if self.done:
                return []
            self.error, self.persisted = error, persisted
            return self._finish()

    def _finish(self) -> list[tuple[int, Callable[[Any], object]]]:
        self.done = True
        self._close()
        self.owner = None  # nobody waits any more, and a delivery that is kept does not keep its producer
        callbacks, self._callbacks = self._callbacks or [], None
        hooks, self._hooks = self._hooks or (), None
        if hooks:
            callbacks = [(self.first + i, fn) for i in range(self.count) for fn in hooks] + callbacks
        callbacks.sort(key=itemgetter(0))
        parent, self.parent = self.parent, None
        if parent is not None:
            parent._part_ended(self.error)
        return callbacks

    def _part_ended(self, error: BaseException | None) -> None:
        self._unfinished -= 1
        self.error = self.error or error
        if not self._unfinished:
            self.done = True
            self.owner = None


def call_back(whole: Batch, callbacks: deque[tuple[int, Callable[[Any], object]] | None], clock: Callable[[], float], until: float) -> None:
    """Call the callbacks, (index, fn) each, in the order of this deque, until that time of the clock.

    None stands in the place of one that is called; it leaves the deque after that, or when this is
    called again behind one that raised.
    """
    while callbacks:
        if (callback := callbacks[0]) is not None:
            callbacks[0] = None
            index, fn = callback
            fn(Delivery(whole, index))
        callbacks.popleft()
        if clock() >= until:
            return


def part_of(parts: list[Batch], index: int) -> Batch:
    """The part that holds a record of the whole batch."""
    return parts[bisect_right(parts, index, key=attrgetter("first")) - 1]


def _encode_headers(headers: Any) -> bytes | None:
    if type(headers) is not list and type(headers) is not tuple:
        return None
    pieces = [size_of(headers)]
    for pair in headers:
        if type(pair) is not tuple or len(pair) != 2:
            return None
        name, data = pair
        if type(name) is not str or not (data is None or type(data) is bytes):
            return None
        try:
            text = name.encode()
        except UnicodeEncodeError:
            return None
        pieces += (size_of(text), text, NULL if data is None else size_of(data), data or b"")
    return b"".join(pieces)


def _write_producer(memory: Memory, producer_id: int, producer_epoch: int, base_sequence: int) -> None:
    """Producer id, epoch and sequence, then the checksum."""
    _PRODUCER.pack_into(memory, 43, producer_id, producer_epoch, base_sequence)
    with memoryview(memory) as view, view[21:] as checked:
        crc = crc32c(checked)
    memory[17:21] = crc.to_bytes(4, "big")


# -- one record's view ---------------------------------------------------------------------------------------------------
class Delivery:
    """What became of one record: number `index` of `batch`. Two deliveries of the same record are equal. A subclass adds methods, and no
    attributes (`__slots__ = ()`).
    """

    __slots__ = ("batch", "index")

    def __init__(self, batch: Batch, index: int) -> None:
        self.batch = batch
        self.index = index

    @property
    def topic(self) -> str:
        return self.batch.topic

    @property
    def partition(self) -> int:
        return self.batch.partition

    @property
    def record(self) -> Record | None:
        """The record as it was produced, None once the batch's memory is released."""
        return self.batch.record(self.index)

    def done(self) -> bool:
        """True once it is delivered or has failed. Raises ForkedClientError in a child process, where it never would be."""
        return self._of_this_process().done

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """RecordMetadata once the record is delivered. Raises its error, which knows its `record` and whether it is `persisted`, or
        KafkaTimeoutError after timeout seconds.
        """
        batch = self._settled(timeout)
        if batch.error is not None:
            raise fresh_error(batch, self)
        return RecordMetadata(batch.topic, batch.partition, *batch._offset_and_timestamp_of(self.index))

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """The record's error, as `result` raises it, None if it was delivered. Raises KafkaTimeoutError after timeout seconds."""
        batch = self._settled(timeout)
        return None if batch.error is None else fresh_error(batch, self)

    def _of_this_process(self) -> Batch:
        """The batch or part that holds the record; if it is pending, its owner is asked about forks."""
        batch = self.batch.part(self.index)
        owner = batch.owner
        if not batch.done and batch._pool.pid != os.getpid():
            owner.check_process()
            batch = self.batch.part(self.index)
        return batch

    def _settled(self, timeout: float | None) -> Batch:
        batch = self.batch.part(self.index)
        owner = batch.owner  # before `done`, in the other order than a batch ends
        if not batch.done:
            owner.wait(self.batch, timeout, self.index)
            batch = self.batch.part(self.index)
            if not batch.done:
                text = f"a record for {batch.topic}-{batch.partition} is not delivered yet"
                raise KafkaTimeoutError(text, topic=batch.topic, partition=batch.partition)
        return batch

    def add_done_callback(self, fn: Callable[[Delivery], object]) -> None:
        """Call fn(delivery) when the record is delivered or has failed; at once if it is already."""
        if not callable(fn):
            raise TypeError(f"a callback is {type(fn).__name__}: must be callable")
        if getattr(fn, "__module__", None) in OF_ASYNCIO:  # wait(), which would go on to ask for what only its own futures have
            raise not_for_asyncio("delivery.result")
        self._of_this_process()
        whole = self.batch
        with whole._lock:
            batch = whole.part(self.index)
            pending = not batch.done
            if pending:
                batch._callbacks = batch._callbacks or []
                batch._callbacks.append((self.index, fn))
        if not pending:
            run_callback(fn, self)

    if not TYPE_CHECKING:  # a type checker finds fault with `await delivery`, as it should

        def __await__(self) -> NoReturn:
            """Raise a TypeError that says what to do: a worker of the client's has the outcome, not an event loop."""
            raise not_for_asyncio("delivery.result")

    @property
    def _asyncio_future_blocking(self) -> NoReturn:
        """What asyncio looks at in whatever it is to wait for. Raise a TypeError that says what to do, out of wrap_future(), gather() and their like."""
        raise not_for_asyncio("delivery.result")

    @property
    def _condition(self) -> NoReturn:
        """What concurrent.futures takes of whatever it is to wait for. Raise a TypeError that says what to do, out of wait() and as_completed()."""
        raise not_for_executors("delivery.result")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Delivery) and self.batch is other.batch and self.index == other.index

    def __hash__(self) -> int:
        return hash((id(self.batch), self.index))

    def __repr__(self) -> str:
        batch = self.batch.part(self.index)
        error = batch.error
        state = "pending" if not batch.done else "delivered" if error is None else f"failed: {type(error).__name__}"
        return f"<{type(self).__name__} {self.topic}-{self.partition} #{self.index}: {state}>"


class FutureDelivery(Delivery):
    """A delivery with the callbacks of kafka-python's future. A subclass tells what they are told:

    metadata_class: the namedtuple (topic, partition, TopicPartition, offset, timestamp); told_error(delivery): the error as it is to be told, of one
    that failed; not_callable(fn): the error to raise for what cannot be called.
    """

    __slots__ = ()
    metadata_class: ClassVar[Callable[..., Any]]

    @staticmethod
    def told_error(delivery: Any) -> BaseException | None: ...
    @staticmethod
    def not_callable(f: Any) -> Exception:
        raise NotImplementedError

    def add_callback(self, f: Callable[..., object], *args: Any, **kwargs: Any) -> Self:
        """Call f(*args, metadata, **kwargs) when the record is delivered."""
        return self._tell(True, f, args, kwargs)

    def add_errback(self, f: Callable[..., object], *args: Any, **kwargs: Any) -> Self:
        """Call f(*args, exception, **kwargs) when it fails."""
        return self._tell(False, f, args, kwargs)

    def _tell(self, good: bool, f: Callable[..., object], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Self:
        kind = type(self)
        if not callable(f):
            raise kind.not_callable(f)

        def tell(delivery: Delivery) -> None:
            batch = delivery._settled(0)
            if (batch.error is None) is not good:
                return
            if good:
                place = TopicPartition(batch.topic, batch.partition)
                f(*args, kind.metadata_class(*place, place, *batch._offset_and_timestamp_of(delivery.index)), **kwargs)
            else:
                f(*args, kind.told_error(delivery), **kwargs)

        self.add_done_callback(tell)
        return self


class ReportQueue:
    """The reports of one worker whose outcome is known and that were not taken yet, in the order in which it became known.

    A subclass has origin_of(partition), the context of messages; checkpoint(), which gives others a turn; and wake(delivery), which ends what stands in
    `waits`: those who wait for a report.
    """

    def __init__(self) -> None:
        self.known: deque[Report] = deque()
        self.waits: list[Callable[[], None]] = []
        self._origins: dict[int, Any] = {}
        self._asked = 0

    def next_known(self) -> tuple[Any, Any] | None:
        """(message, its error or None) of the next one; None if there is none, of this process. The offset is -1 if it failed or the broker did not say."""
        self._asked += 1
        if not self._asked % 64:
            self.checkpoint()  # who takes thousands that lie there waits for nothing
        try:
            report = self.known.popleft()
        except IndexError:
            return None
        return report.outcome(self._origins, self)

    def origin_of(self, partition: int) -> Any:
        raise NotImplementedError

    def checkpoint(self) -> None:
        raise NotImplementedError

    def wake(self, delivery: Any) -> None:
        raise NotImplementedError


class Report:
    """A message that a delivery is of, as pykafka's producers report it: called when its outcome is known, whereupon it stands in its queue."""

    __slots__ = ("_delivery", "_queue", "key", "message")

    def __init__(self, queue: ReportQueue, delivery: Delivery, message: Any, key: Any) -> None:
        self._queue: ReportQueue | None = queue
        self._delivery, self.message, self.key = delivery, message, key

    def __call__(self, delivery: Delivery) -> None:
        queue, self._queue = self._queue, None  # a cycle with those that nobody takes would never end
        assert queue is not None
        queue.known.append(self)
        if queue.waits:
            queue.wake(delivery)

    def outcome(self, origins: dict[int, Any], queue: ReportQueue) -> tuple[Any, Any] | None:
        batch = self._delivery.batch.part(self._delivery.index)
        if batch._pool.pid != os.getpid():
            return None
        error = None if batch.error is None else fresh_error(batch, self._delivery)
        offset, timestamp = batch._offset_and_timestamp_of(self._delivery.index)
        kind = TimestampType.LOG_APPEND_TIME if batch.log_append_time >= 0 else TimestampType.CREATE_TIME
        if batch.partition not in origins:
            origins[batch.partition] = queue.origin_of(batch.partition)
        size = len(self.key or b"") + len(self.message or b"")
        message = make_message(
            origins[batch.partition], offset if error is None else -1, timestamp, kind, self.key, self.message, [], size=size
        )
        return message, error
