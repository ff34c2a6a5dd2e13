"""Writing record batches in Python: the twin of `_speed_write.pxi`, held identical to it by the tests.

Memory is counted exactly as the compiled half counts its buffers, so that a producer behaves the same on both.
"""

from __future__ import annotations

import os
import struct
import sys
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Sized
from contextlib import AbstractContextManager, nullcontext
from operator import itemgetter
from time import time_ns
from typing import Any, ClassVar

from gkafka.exceptions import BufferFull, KafkaTimeoutError
from gkafka.records._check import (
    HEADER_BYTES,
    MAX_BATCH_BYTES,
    Headers,
    check_capacity,
    check_record,
    check_seal,
    check_sizes,
    check_timestamp,
    record_size,
    too_large,
)
from gkafka.records._legacy_write import Row, check_legacy, decode_message_set, encode_message_set
from gkafka.records._pure_crc import crc32c
from gkafka.records._results import Record, RecordMetadata, fresh_error, run_callback
from gkafka.records.compression import compress, decompress

__all__ = [
    "Appender",
    "Batch",
    "Delivery",
    "Record",
    "RecordMetadata",
    "check_record",
    "live_buffers",
    "murmur2",
    "record_size",
    "run_callback",
]

FULL, BIG, ODD = -1, -2, -3  # why a record was not appended: see _put
RUN_BYTES = 16
COUNTS_REFERENCES = hasattr(sys, "getrefcount")

_HEADER = struct.Struct(">qiibIhiqqqhii")
_PRODUCER = struct.Struct(">qhi")
_MASK = (1 << 64) - 1


# -- numbers -----------------------------------------------------------------------------------------------------------
def _varint(n: int) -> bytes:
    """n as a zigzag varint; like Kafka's, it wraps at 64 bits."""
    z = ((n << 1) ^ (n >> 63)) & _MASK if -(1 << 63) <= n < 1 << 63 else _varint_wrapped(n)
    out = bytearray()
    while z >= 0x80:
        out.append(z & 0x7F | 0x80)
        z >>= 7
    out.append(z)
    return bytes(out)


def _varint_wrapped(n: int) -> int:
    n = (n + (1 << 63) & _MASK) - (1 << 63)
    return ((n << 1) ^ (n >> 63)) & _MASK


_SMALL = tuple(_varint(n) for n in range(8192))
_SMALLS = len(_SMALL)
_NULL = _varint(-1)


def _size(data: Sized) -> bytes:
    n = len(data)
    return _SMALL[n] if n < _SMALLS else _varint(n)


def _read_varint(data: bytes | bytearray, at: int) -> tuple[int, int]:
    """Only for records that were written here."""
    z = shift = 0
    while True:
        byte = data[at]
        at += 1
        z |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return (z >> 1) ^ -(z & 1), at


def _read_blob(data: bytes | bytearray, at: int) -> tuple[bytes | None, int]:
    size, at = _read_varint(data, at)
    return (None, at) if size < 0 else (bytes(data[at : at + size]), at + size)


def murmur2(key: bytes) -> int:
    """Kafka's hash of a key (the Java client's, as a number from 0 to 2**31 - 1)."""
    data = key if type(key) is bytes else bytes(memoryview(key))
    words = len(data) >> 2
    h = 0x9747B28C ^ (len(data) & 0xFFFFFFFF)
    for k in struct.unpack_from(f"<{words}I", data):
        k = k * 0x5BD1E995 & 0xFFFFFFFF
        k = (k ^ k >> 24) * 0x5BD1E995 & 0xFFFFFFFF
        h = h * 0x5BD1E995 & 0xFFFFFFFF ^ k
    tail = data[words << 2 :]
    if tail:
        h = (h ^ int.from_bytes(tail, "little")) * 0x5BD1E995 & 0xFFFFFFFF
    h = (h ^ h >> 13) * 0x5BD1E995 & 0xFFFFFFFF
    return (h ^ h >> 15) & 0x7FFFFFFF


# -- memory ------------------------------------------------------------------------------------------------------------
class _Pool:
    """The producer's buffer_bytes, as a count. All but `returned` is used under the appender's lock only."""

    __slots__ = ("limit", "reserved", "returned")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.reserved = 0
        self.returned: deque[int] = deque()  # what finalizers gave back; they run anywhere, under the lock too

    def reserve(self, n: int) -> bool:
        """Count n bytes as used; False if there are not that many."""
        if self.returned:
            self.settle()
        if n > self.limit - self.reserved:
            return False
        self.reserved += n
        return True

    def settle(self) -> None:
        while self.returned:
            self.reserved -= self.returned.popleft()


class _Memory(bytearray):
    """The bytes of one batch. They are counted until nothing refers to them any more, a memoryview included: bytes that a socket may
    still send are neither written over nor given to others (KAFKA-19012)."""

    __slots__ = ("charged", "pool")
    alive: ClassVar[int] = 0

    def __init__(self, data: Any, pool: _Pool, charged: int) -> None:
        _Memory.alive += 1
        self.pool = pool
        self.charged = charged
        super().__init__(data)

    def give_back(self) -> None:
        charged, self.charged = self.charged, 0
        self.pool.returned.append(charged)

    def __del__(self) -> None:
        type(self).alive -= 1
        self.give_back()


def live_buffers() -> int:
    """How many buffers are alive now: for tests of leaks."""
    return _Memory.alive


# -- a batch -----------------------------------------------------------------------------------------------------------
class Batch:
    """Records of one partition that are sent together: a v2 record batch behind its reserved 61-byte header.

    Made by `Appender.open`. count: records; size: bytes so far, uncompressed, header included; created: monotonic seconds;
    base_timestamp, max_timestamp: ms, -1 while empty; sealed: `wire` is fixed; done: delivered or failed, `error` says which;
    owner: the appender's, None once done; attempts, extra, waiter: the owner's.
    """

    __slots__ = (
        "__weakref__",
        "_at",
        "_callbacks",
        "_capacity",
        "_codec",
        "_cursor",
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
        "attempts",
        "base_offset",
        "base_timestamp",
        "count",
        "created",
        "done",
        "error",
        "extra",
        "has_headers",
        "log_append_time",
        "max_timestamp",
        "owner",
        "partition",
        "sealed",
        "size",
        "topic",
        "waiter",
        "wire_size",
    )

    topic: str
    partition: int
    owner: Any
    created: float
    extra: Any
    waiter: Any
    error: BaseException | None

    def __init__(self) -> None:
        raise TypeError("a Batch is made by Appender.open()")

    def _begin(self, appender: Appender, topic: str, partition: int, created: float, capacity: int) -> None:
        self.topic, self.partition, self.created, self.owner = topic, partition, created, appender.owner
        self.count, self.size, self.attempts = 0, HEADER_BYTES, 0
        self.base_timestamp = self.max_timestamp = self._last_timestamp = -1
        self.has_headers = self.sealed = self.done = self._sealing = False
        self.error = self.extra = self.waiter = None
        self.base_offset = self.log_append_time = -1
        self.wire_size = 0
        self._lock: AbstractContextManager[Any] = appender._lock or nullcontext()
        self._pool = appender._pool
        self._memory: _Memory | None = _Memory(HEADER_BYTES, appender._pool, capacity)
        self._capacity, self._limit = capacity, max(capacity, appender.batch_bytes)  # both 0 when nothing more may be appended
        self._run_firsts: list[int] = []  # where the timestamp changes; none while all have base_timestamp
        self._run_timestamps: list[int] = []
        self._run_room = self._run_charge = 0
        self._callbacks: list[tuple[int, Callable[[Any], object]]] | None = None
        self._codec, self._magic = 0, 2
        self._plain: Any = None  # what a compressed wire holds, once somebody asked: bytes, or rows of a message set
        self._at = self._cursor = 0  # where record number `cursor` stands, counted from the first record

    def __repr__(self) -> str:
        state = f"{', sealed' if self.sealed else ''}{', done' if self.done else ''}"
        return f"<Batch {self.topic}-{self.partition}: {self.count} records, {self.size} bytes{state}>"

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

    def _begin_seal(self) -> _Memory:
        with self._lock:
            if self._memory is None:
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

    def _end_seal(self, memory: _Memory, codec: int, magic: int) -> None:
        with self._lock:
            if self._memory is None:  # released by another thread in the meantime
                raise ValueError(f"{self!r} has released its memory")
            self._memory = memory
            self._codec, self._magic = codec, magic
            self.wire_size = len(memory)
            self._plain = None
            self._at = self._cursor = 0
            self.sealed = True

    def _filled(self, pieces: Iterable[bytes | _Memory]) -> _Memory:
        """Memory of its own for the pieces. It may pass buffer_bytes by what they are larger than the records: there the records are
        in memory already and waiting would not end."""
        data = b"".join(pieces)
        with self._lock:
            self._pool.reserved += len(data)
        return _Memory(data, self._pool, len(data))

    def _write_header(self, memory: _Memory, attributes: int) -> None:
        # partitionLeaderEpoch, the third, is the broker's to fill in; the checksum, the fifth, comes with the producer's fields.
        rest = (attributes, self.count - 1, self.base_timestamp, self.max_timestamp, -1, -1, -1, self.count)
        _HEADER.pack_into(memory, 0, 0, len(memory) - 12, -1, 2, 0, *rest)

    def restamp(self, producer_id: int, producer_epoch: int, base_sequence: int) -> None:
        """A new producer id, epoch and sequence in a sealed batch (KIP-360). Views of the old `wire` keep the old bytes."""
        check_seal(0, producer_id, producer_epoch, base_sequence)
        if not self.sealed or self._sealing or self._memory is None or self._magic != 2:
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

    def _release(self) -> None:
        self._close()
        memory, self._memory = self._memory, None
        self._plain = None
        self._pool.reserved -= self._run_charge
        self._run_charge = 0
        if memory is not None and not COUNTS_REFERENCES:
            memory.give_back()

    def __del__(self) -> None:
        charge = getattr(self, "_run_charge", 0)
        if charge:
            self._pool.returned.append(charge)

    # -- what is in it
    def record(self, index: int) -> Record | None:
        """Record number index as it was produced, None once the memory is released."""
        if not 0 <= index < self.count:
            raise IndexError(f"{self!r} has no record {index}")
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
            size, here = _read_varint(data, start + at)
            at = here + size - start
            cursor += 1
        self._at, self._cursor = at, cursor
        at = _read_varint(data, start + at)[1] + 1  # its size, its attributes
        at = _read_varint(data, _read_varint(data, at)[1])[1]  # timestamp delta, offset delta
        key, at = _read_blob(data, at)
        value, at = _read_blob(data, at)
        count, at = _read_varint(data, at)
        headers: Headers = []
        for _ in range(count):
            name, at = _read_blob(data, at)
            payload, at = _read_blob(data, at)
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

    def _timestamp_of(self, index: int) -> int:
        run = bisect_right(self._run_firsts, index)
        return self._run_timestamps[run - 1] if run else self.base_timestamp

    # -- appending, under the lock
    def _put(self, value: Any, key: Any, headers: Any, timestamp: int, most: int) -> int:
        """Encode one record behind the others; its index, or FULL (it does not fit, or there is no memory), BIG (larger than one record
        may be; most: largest size of a batch that holds just this record) or ODD (not exactly of the types that go without checks)."""
        if value is None:
            value_size, value = _NULL, b""
        elif type(value) is bytes:
            n = len(value)
            value_size = _SMALL[n] if n < _SMALLS else _varint(n)
        else:
            return ODD
        if key is None:
            key_size, key = _NULL, b""
        elif type(key) is bytes:
            n = len(key)
            key_size = _SMALL[n] if n < _SMALLS else _varint(n)
        else:
            return ODD
        if len(value) > most or len(key) > most:
            return BIG
        index = self.count
        offset = _SMALL[index] if index < _SMALLS else _varint(index)
        n = timestamp - self.base_timestamp if index else 0
        delta = _SMALL[n] if 0 <= n < _SMALLS else _varint(n)
        tail = b"\0"
        if headers is not None:
            encoded = _encode_headers(headers)
            if encoded is None:
                return ODD
            tail = encoded
        body = b"".join((b"\0", delta, offset, key_size, key, value_size, value, tail))
        n = len(body)
        size = _SMALL[n] if n < _SMALLS else _varint(n)
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

    def fail(self, error: BaseException) -> list[tuple[int, Callable[[Any], object]]]:
        """The batch was not delivered; see `complete`."""
        if not isinstance(error, BaseException):
            raise TypeError(f"error is {type(error).__name__}: must be an exception")
        with self._lock:
            if self.done:
                return []
            self.error = error
            return self._finish()

    def _finish(self) -> list[tuple[int, Callable[[Any], object]]]:
        self.done = True
        self._close()
        self.owner = None  # nobody waits any more, and a delivery that is kept does not keep its producer
        callbacks, self._callbacks = self._callbacks or [], None
        callbacks.sort(key=itemgetter(0))
        return callbacks


def _encode_headers(headers: Any) -> bytes | None:
    if type(headers) is not list and type(headers) is not tuple:
        return None
    pieces = [_size(headers)]
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
        pieces += (_size(text), text, _NULL if data is None else _size(data), data or b"")
    return b"".join(pieces)


def _write_producer(memory: _Memory, producer_id: int, producer_epoch: int, base_sequence: int) -> None:
    """Producer id, epoch and sequence, then the checksum."""
    _PRODUCER.pack_into(memory, 43, producer_id, producer_epoch, base_sequence)
    with memoryview(memory) as view, view[21:] as checked:
        crc = crc32c(checked)
    memory[17:21] = crc.to_bytes(4, "big")


# -- one record's view ---------------------------------------------------------------------------------------------------
class Delivery:
    """What became of one record: number `index` of `batch`. Two deliveries of the same record are equal."""

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
        """True once it is delivered or has failed."""
        return self.batch.done

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """RecordMetadata once the record is delivered. Raises its error, or KafkaTimeoutError after timeout seconds."""
        batch = self._settled(timeout)
        if batch.error is not None:
            raise fresh_error(batch.error)
        return RecordMetadata(
            batch.topic,
            batch.partition,
            batch.base_offset + self.index if batch.base_offset >= 0 else -1,
            batch.log_append_time if batch.log_append_time >= 0 else batch._timestamp_of(self.index),
        )

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """The record's error, None if it was delivered. Raises KafkaTimeoutError after timeout seconds."""
        error = self._settled(timeout).error
        return None if error is None else fresh_error(error)

    def _settled(self, timeout: float | None) -> Batch:
        batch = self.batch
        owner = batch.owner  # before `done`, in the other order than a batch ends
        if not batch.done:
            owner.wait(batch, timeout)
            if not batch.done:
                text = f"a record for {batch.topic}-{batch.partition} is not delivered yet"
                raise KafkaTimeoutError(text, topic=batch.topic, partition=batch.partition)
        return batch

    def add_done_callback(self, fn: Callable[[Delivery], object]) -> None:
        """Call fn(delivery) when the record is delivered or has failed; at once if it is already."""
        if not callable(fn):
            raise TypeError(f"a callback is {type(fn).__name__}: must be callable")
        batch = self.batch
        with batch._lock:
            pending = not batch.done
            if pending:
                batch._callbacks = batch._callbacks or []
                batch._callbacks.append((self.index, fn))
        if not pending:
            run_callback(fn, self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Delivery) and self.batch is other.batch and self.index == other.index

    def __hash__(self) -> int:
        return hash((id(self.batch), self.index))

    def __repr__(self) -> str:
        error = self.batch.error
        state = "pending" if not self.batch.done else "delivered" if error is None else f"failed: {type(error).__name__}"
        return f"<Delivery {self.topic}-{self.partition} #{self.index}: {state}>"


# -- from a topic to its open batch --------------------------------------------------------------------------------------
class _Topic:
    __slots__ = ("batches", "hot", "partitions", "sticky")

    def __init__(self) -> None:
        self.partitions = 0  # 0: the fast path does not take this topic
        self.sticky = 0
        self.batches: list[Batch | None] = []  # by partition
        self.hot = bytearray()  # by partition: 1 if its last batch was full, so that the next one starts at full size

    def batch(self, partition: int) -> Batch | None:
        return self.batches[partition] if 0 <= partition < len(self.batches) else None

    def widen(self, partitions: int) -> None:
        more = partitions - len(self.batches)
        if more > 0:
            self.hot.extend(bytes(more))
            self.batches.extend([None] * more)


class Appender:
    """The per-message part of a producer: topic -> partition -> open batch.

    owner: serves what the fast path does not take (`produce_slow`, `checkpoint`, `wait`). batch_bytes: a batch's size before
    compression; buffer_bytes: of all batches that are not released; max_record_bytes: of a batch that holds one record, beyond it
    `produce` goes to the owner; initial_bytes: what a batch starts with. lock: a lock of the owner's handler, None where there
    is one thread; never held while code of others runs.
    """

    def __init__(
        self,
        owner: Any,
        *,
        batch_bytes: int,
        buffer_bytes: int,
        max_record_bytes: int,
        initial_bytes: int = 4096,
        lock: AbstractContextManager[Any] | None = None,
    ) -> None:
        check_sizes(batch_bytes, buffer_bytes, max_record_bytes, initial_bytes)
        self.owner = owner
        self.batch_bytes = batch_bytes
        self.buffer_bytes = buffer_bytes
        self.max_record_bytes = max_record_bytes
        self.initial_bytes = min(initial_bytes, batch_bytes, buffer_bytes)
        self.fast = True
        self._every = self._left = 0
        self._pid = os.getpid()
        self._pool = _Pool(buffer_bytes)
        self._topics: dict[str, _Topic] = {}
        self._lock = lock
        self._guard: AbstractContextManager[Any] = lock or nullcontext()

    def produce(self, topic: Any, value: Any, key: Any = None, partition: Any = None, timestamp: Any = None, headers: Any = None) -> Any:
        """Append one record to its partition's open batch; what needs more than that goes to `owner.produce_slow`.

        partition None: by murmur2 of the key, without a key the topic's sticky one. timestamp: ms, None for now.
        """
        if self._every:
            if not self._left:
                self._left = self._every
                self.owner.checkpoint()
            self._left -= 1
        found = self._topics.get(topic) if type(topic) is str else None
        if found is None or not self.fast or os.getpid() != self._pid:
            return self.owner.produce_slow(topic, value, key, partition, timestamp, headers)
        number = self._partition(found, key) if partition is None else partition if type(partition) is int else -1
        batch = found.batches[number] if 0 <= number < found.partitions else None
        stamp = time_ns() // 1_000_000 if timestamp is None else timestamp if type(timestamp) is int else -1
        if batch is None or not 0 <= stamp < 1 << 63:
            return self.owner.produce_slow(topic, value, key, partition, timestamp, headers)
        if self._lock is None:
            index = batch._put(value, key, headers, stamp, self.max_record_bytes)
        else:
            with self._lock:
                index = batch._put(value, key, headers, stamp, self.max_record_bytes)
        if index < 0:
            return self.owner.produce_slow(topic, value, key, partition, timestamp, headers)
        return Delivery(batch, index)

    @staticmethod
    def _partition(found: _Topic, key: Any) -> int:
        if key is None:
            return found.sticky
        return murmur2(key) % found.partitions if type(key) is bytes and found.partitions else -1

    def append(self, topic: str, partition: int, value: Any, key: Any, timestamp_ms: int, headers: Any) -> Delivery | None:
        """Append to a partition's open batch. None: there is none, or the record does not fit into it.

        timestamp_ms: 0 or more, -1 for none. Raises SerializationError for what is not a record, RecordTooLarge over 1 GiB.
        """
        check_timestamp(timestamp_ms, topic)
        delivery = self._append(topic, partition, value, key, timestamp_ms, headers)
        if delivery == ODD:
            value, key, headers = check_record(topic, value, key, headers)
            delivery = self._append(topic, partition, value, key, timestamp_ms, headers)
        if delivery == BIG:
            raise too_large(topic, partition)
        return delivery if isinstance(delivery, Delivery) else None

    def _append(self, topic: str, partition: int, value: Any, key: Any, timestamp: int, headers: Any) -> Delivery | int:
        with self._guard:
            batch = self._open_batch(topic, partition)
            index = FULL if batch is None else batch._put(value, key, headers, timestamp, MAX_BATCH_BYTES)
        return index if batch is None or index < 0 else Delivery(batch, index)

    def _open_batch(self, topic: str, partition: int) -> Batch | None:
        found = self._topics.get(topic)
        return None if found is None else found.batch(partition)

    # -- topics
    def set_topic(self, topic: str, partition_count: int, sticky: int) -> None:
        """Let the fast path take a topic. sticky: the partition of records without a key. Open batches stay."""
        if partition_count < 1 or not 0 <= sticky < partition_count:
            raise ValueError(f"{topic}: no sticky partition {sticky} among {partition_count}")
        with self._guard:
            found = self._topics.setdefault(topic, _Topic())
            found.widen(partition_count)
            found.partitions, found.sticky = partition_count, sticky

    def drop_topic(self, topic: str) -> None:
        """Send a topic's records to the owner from now on. Open batches stay."""
        with self._guard:
            found = self._topics.get(topic)
            if found is None:
                return
            found.partitions = found.sticky = 0
            if not any(found.batches):
                del self._topics[topic]

    def set_sticky(self, topic: str, partition: int) -> None:
        found = self._topics.get(topic)
        if found is None or not 0 <= partition < found.partitions:
            raise ValueError(f"{topic} has no partition {partition} here")
        found.sticky = partition

    def sticky(self, topic: str) -> int:
        """The partition of a topic's records without a key, -1 if the fast path does not take the topic."""
        found = self._topics.get(topic)
        return found.sticky if found is not None and found.partitions else -1

    # -- batches
    def open(self, topic: str, partition: int, created: float, capacity: int | None = None) -> Batch:
        """Make a partition's open batch. created: monotonic seconds; capacity: bytes it must be able to hold (`record_size`).

        Raises BufferFull if the memory is not there now, RecordTooLarge if it never can be, ValueError if one is open.
        """
        need = 0 if capacity is None else capacity
        if partition < 0:
            raise ValueError(f"{topic}: partition {partition} is negative")
        check_capacity(need, self.buffer_bytes, topic, partition)
        with self._guard:
            if self._open_batch(topic, partition) is not None:
                raise ValueError(f"{topic}-{partition} has an open batch: roll it first")
            start = self._first_capacity(topic, partition, need)
            if not self._pool.reserve(start):
                free = max(0, self._pool.limit - self._pool.reserved)
                text = f"{topic}-{partition}: {start} bytes wanted, {free} of buffer_bytes={self.buffer_bytes} are free"
                raise BufferFull(text, topic=topic, partition=partition)
            batch = Batch.__new__(Batch)
            batch._begin(self, topic, partition, created, start)
            found = self._topics.setdefault(topic, _Topic())
            found.widen(partition + 1)
            found.batches[partition] = batch
            return batch

    def _first_capacity(self, topic: str, partition: int, need: int) -> int:
        start = self.initial_bytes
        self._pool.settle()
        # A partition that fills its batches gets the next one whole: growing would copy every record twice. Not when memory is
        # scarce, there many partitions must share it.
        found = self._topics.get(topic)
        if (
            found is not None
            and partition < len(found.hot)
            and found.hot[partition]
            and self.batch_bytes <= self._pool.limit - self._pool.reserved - self.buffer_bytes // 2
        ):
            start = self.batch_bytes
        while start < need and start < self.batch_bytes:
            start = min(start * 2, self.batch_bytes)
        return max(start, need)

    def roll(self, topic: str, partition: int) -> Batch | None:
        """Take a partition's open batch away, to seal and send it; None if there is none. The next one must be opened."""
        with self._guard:
            found = self._topics.get(topic)
            batch = None if found is None else found.batch(partition)
            if found is not None and batch is not None:
                found.batches[partition] = None
                found.hot[partition] = batch.size > self.batch_bytes // 2
                batch._close()
            return batch

    def open_batches(self) -> list[Batch]:
        """Every open batch."""
        with self._guard:
            return [batch for found in self._topics.values() for batch in found.batches if batch is not None]

    @property
    def available(self) -> int:
        """Bytes of buffer_bytes that no batch holds."""
        with self._guard:
            self._pool.settle()
            return max(0, self._pool.limit - self._pool.reserved)

    def release(self, batch: Batch) -> None:
        """Give a batch's memory back: at once, or when the last view of its `wire` is gone. Its result stays."""
        with self._guard:
            if batch._pool is not self._pool:
                raise ValueError(f"{batch!r} is not of this appender")
            found = self._topics.get(batch.topic)
            if found is not None and found.batch(batch.partition) is batch:
                found.batches[batch.partition] = None
            batch._release()

    @property
    def checkpoint_every(self) -> int:
        """After that many calls of `produce` the next one begins with `owner.checkpoint()`; 0: never."""
        return self._every

    @checkpoint_every.setter
    def checkpoint_every(self, calls: int) -> None:
        if calls < 0:
            raise ValueError(f"checkpoint_every={calls}: must be 0 or more")
        self._every = self._left = calls
