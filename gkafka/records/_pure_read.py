"""Reading record batches in Python: the twin of `_speed_read.pxi`.

A record is decoded when `Records.take` reaches it, in one straight line of code: calls and objects, not bytes, are what costs here.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterator, Sequence
from copy import copy
from operator import attrgetter
from typing import Any, NamedTuple

from gkafka import common
from gkafka.common import CompressionType, TimestampType
from gkafka.exceptions import KafkaException
from gkafka.records import _rows
from gkafka.records._damage import ENTRY_HEAD, MAX_INT64, SMALLEST, SMALLEST_RECORD, Place, bare, corrupt, explain_entry, unreadable
from gkafka.records._message import MESSAGE_BYTES, Context, Header, Origin, marker_of, pack_headers, restore, text, unpack_headers
from gkafka.records._pure_crc import crc32c
from gkafka.records._pure_cursors import UNBOUNDED, Cursor, open_batch
from gkafka.records._unwrap import room_for

__all__ = ["BatchHeader", "Message", "Records", "Row", "Span", "control_type", "crc32c", "make_message", "scan", "span_at"]

AnyBuffer = bytes | bytearray | memoryview
UNKNOWN_COUNT = 2**31 - 1
SPAN_BATCHES = 250
"""Batches of one span at most: finding them takes half a millisecond."""
SPAN_BYTES = 1 << 20
"""Bytes of the batches of one span together. A larger batch is a span of its own."""
TAKE_BYTES = 1 << 17
"""Bytes opened and read by a take() that then ends with the batch it stands in."""
CODEC_BYTES = 1 << 12
"""What a compressed batch, however small, counts for in that."""

V2 = struct.Struct(">qiibIhiqqqhii")  # the 61-byte header of a batch of format 2
V1 = struct.Struct(">qiIbbq")  # offset, size, crc, magic, attributes, timestamp of a message of format 1
V2_SIZE = V2.size


# -- headers -----------------------------------------------------------------------------------------------------------
class BatchHeader:
    """What a batch says about itself. `scan` makes it; its numbers are checked against each other, not by the checksum.

    start, end: where the batch stands in the scanned buffer. count: -1 for a compressed message of format 0 or 1, whose
    base_offset is also unknown and given as its last. A run of uncompressed messages of format 0 or 1 is one batch.
    """

    __slots__ = (
        "base_offset",
        "base_sequence",
        "base_timestamp",
        "codec",
        "count",
        "end",
        "is_control",
        "is_transactional",
        "last_offset",
        "leader_epoch",
        "magic",
        "max_timestamp",
        "next_offset",
        "producer_epoch",
        "producer_id",
        "start",
        "timestamp_type",
    )

    start: int
    end: int
    magic: int
    base_offset: int
    last_offset: int
    next_offset: int
    count: int
    codec: int
    timestamp_type: TimestampType
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    is_control: bool
    is_transactional: bool
    leader_epoch: int

    def __repr__(self) -> str:
        return f"<BatchHeader v{self.magic} offsets {self.base_offset}-{self.last_offset} count {self.count} bytes {self.start}-{self.end}>"


TIMESTAMP_TYPES = (TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME)


def scan(
    buffer: AnyBuffer,
    *,
    topic: str | None = None,
    partition: int | None = None,
    strict: bool = False,
    start: int = 0,
    most: int = sys.maxsize,
) -> list[BatchHeader]:
    """The headers of the whole batches in a fetched buffer, `most` at most, from the byte `start` on. The tail that a broker cuts off is left out.

    Where no batch can begin, what stands before is returned if there is any: the next scan, from there, raises. So a good
    batch is always handed out before the error of a bad one. strict: raise at once, also for a cut tail.
    Raises CorruptRecordError with topic, partition and offset.
    """
    data = memoryview(buffer).cast("B")
    headers: list[BatchHeader] = []
    pos, size = start, len(data)
    while pos < size and len(headers) < most:
        header = read_header(data, pos, size)
        if header is None:
            why = explain_entry(data, pos, whole=True) if strict or not is_cut(data, pos, size) else None
            if why is not None and (strict or not headers):
                raise unreadable(why, topic, partition, offset_at(data, pos))
            break
        headers.append(header)
        pos = header.end
    return headers


def offset_at(data: memoryview, pos: int) -> int:
    """The offset that an entry claims, for its error; -1 if it is cut before that."""
    return int.from_bytes(data[pos : pos + 8], "big", signed=True) if len(data) - pos >= 8 else -1


def is_cut(data: memoryview, pos: int, size: int) -> bool:
    """Whether the entry at pos, which is not a whole good one, is the beginning of one."""
    left = size - pos
    if left < 12:
        return True
    offset, length = struct.unpack_from(">qi", data, pos)
    if length < SMALLEST[0]:
        return False
    if left < ENTRY_HEAD:
        return True
    magic = data[pos + 16]
    return magic <= 2 and length >= SMALLEST[magic] and 0 <= offset < MAX_INT64 and left < 12 + length


def read_header(data: memoryview, pos: int, size: int) -> BatchHeader | None:
    """The batch at pos; None if it is cut or damaged."""
    left = size - pos
    if left < ENTRY_HEAD + SMALLEST[0] - 5:
        return None
    offset, length = struct.unpack_from(">qi", data, pos)
    magic = data[pos + 16]
    if magic > 2 or length < SMALLEST[magic] or left < 12 + length or not 0 <= offset < MAX_INT64:
        return None
    return _batch_header(data, pos) if magic == 2 else _message_header(data, pos, size)


def _batch_header(data: memoryview, pos: int) -> BatchHeader | None:
    (
        offset,
        length,
        leader_epoch,
        _,
        _,
        attributes,
        last_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        sequence,
        count,
    ) = V2.unpack_from(data, pos)
    codec = attributes & 7
    if last_delta < 0 or offset > MAX_INT64 - 1 - last_delta or count < 0:
        return None
    if codec == 0 and count * SMALLEST_RECORD > length - SMALLEST[2]:
        return None
    header = BatchHeader()
    header.start, header.end, header.magic = pos, pos + 12 + length, 2
    header.base_offset, header.last_offset, header.next_offset = offset, offset + last_delta, offset + last_delta + 1
    header.count, header.codec = count, codec
    header.timestamp_type = TIMESTAMP_TYPES[attributes >> 3 & 1]
    header.base_timestamp, header.max_timestamp = base_timestamp, max_timestamp
    header.producer_id, header.producer_epoch, header.base_sequence = producer_id, producer_epoch, sequence
    header.is_transactional, header.is_control = bool(attributes & 16), bool(attributes & 32)
    header.leader_epoch = leader_epoch
    return header


def _message_header(data: memoryview, pos: int, size: int) -> BatchHeader:
    """One compressed message, or the run of plain ones with the same attributes and rising offsets that begins at pos."""
    offset, length, _, magic, attributes, first_timestamp = V1.unpack_from(data, pos)
    header = BatchHeader()
    header.start, header.magic, header.codec = pos, magic, attributes & 7
    header.timestamp_type = TIMESTAMP_TYPES[attributes >> 3 & 1] if magic else TimestampType.NONE
    header.base_timestamp = header.max_timestamp = first_timestamp if magic else -1
    header.base_offset = last = offset
    header.producer_id = header.producer_epoch = header.base_sequence = header.leader_epoch = -1
    header.is_transactional = header.is_control = False
    end, count = pos + 12 + length, 1
    while not header.codec and size - end >= 12 + SMALLEST[magic]:
        offset, length, _, its_magic, its_attributes, timestamp = V1.unpack_from(data, end)
        if its_magic != magic or its_attributes != attributes or not last < offset < MAX_INT64:
            break
        if not SMALLEST[magic] <= length <= size - end - 12:
            break
        if magic and timestamp > header.max_timestamp:
            header.max_timestamp = timestamp
        last, count, end = offset, count + 1, end + 12 + length
    header.end, header.last_offset, header.next_offset = end, last, last + 1
    header.count = -1 if header.codec else count
    return header


# -- spans -------------------------------------------------------------------------------------------------------------
class Span:
    """Batches of a fetched buffer that follow each other and are read together. `span_at` makes it.

    start, end: where they stand in the buffer. base_offset: of the first batch, last_offset: of the
    last one. leader_epoch: of all of them. batches: how many. count: records in all, -1 for a
    compressed message of format 0 or 1. first: the header of the first batch.
    """

    __slots__ = ("batches", "count", "end", "first", "last_offset")

    def __init__(self, first: BatchHeader) -> None:
        self.first = first
        self.end, self.last_offset, self.count, self.batches = first.end, first.last_offset, first.count, 1

    @property
    def start(self) -> int:
        return self.first.start

    @property
    def base_offset(self) -> int:
        return self.first.base_offset

    @property
    def next_offset(self) -> int:
        return self.last_offset + 1

    @property
    def leader_epoch(self) -> int:
        return self.first.leader_epoch

    def __repr__(self) -> str:
        place = f"offsets {self.base_offset}-{self.last_offset} count {self.count} bytes {self.start}-{self.end}"
        return f"<Span of {self.batches} {place}>"


def span_at(
    buffer: AnyBuffer,
    start: int = 0,
    *,
    offset: int = -1,
    alone: bool = False,
    topic: str | None = None,
    partition: int | None = None,
    most: int = SPAN_BATCHES,
) -> Span | None:
    """Return the span that begins at the byte `start` of a fetched buffer, or None.

    A span has `most` batches at most. It ends before a batch that is not of format 2, that is a
    control batch, whose leader epoch is another one, or whose offsets do not follow. Batches wholly
    below `offset` do not stand in one span with others. alone: nor do transactional ones.

    None: no whole batch begins there, but nothing, a cut tail or damage; the next fetch begins with
    it, and some brokers fill an answer up (LazyDownConversionRecordsSend.buildOverflowBatch, Kafka
    2.0 and newer). Raises CorruptRecordError for a buffer that begins with damage.
    """
    data = memoryview(buffer).cast("B")
    size = len(data)
    if not 0 <= start < size:
        return None
    header = read_header(data, start, size)
    if header is None:
        if start or is_cut(data, start, size):
            return None
        raise unreadable(explain_entry(data, start, whole=True), topic, partition, offset_at(data, start))
    span = Span(header)
    if not _stands_alone(header, alone):
        _extend(span, data, offset, alone, most)
    return span


def _stands_alone(header: BatchHeader, alone: bool) -> bool:
    return header.magic != 2 or header.is_control or (alone and header.is_transactional)


def _extend(span: Span, data: memoryview, offset: int, alone: bool, most: int) -> None:
    is_below = span.last_offset < offset
    while span.batches < most and (header := read_header(data, span.end, len(data))) is not None:
        if _stands_alone(header, alone) or header.base_offset <= span.last_offset or header.leader_epoch != span.leader_epoch:
            return
        if (header.last_offset < offset) is not is_below or header.end - span.start > SPAN_BYTES:
            return
        span.end, span.last_offset = header.end, header.last_offset
        span.count += header.count
        span.batches += 1


# -- messages ----------------------------------------------------------------------------------------------------------
class Shared:
    """What all messages of a batch have in common."""

    __slots__ = ("compression_type", "context", "timestamp_type")

    def __init__(self, context: Context, timestamp_type: TimestampType, compression_type: CompressionType) -> None:
        self.context = context
        self.timestamp_type = timestamp_type
        self.compression_type = compression_type


class Message:
    """A record as read. Holds its own copy of key and value; headers are cut when asked for. Not to be assigned to.

    A subclass adds methods, and no attributes (`__slots__ = ()`).
    """

    __slots__ = ("_headers", "_shared", "key", "offset", "size", "timestamp", "value")

    def __init__(
        self, shared: Shared, offset: int, timestamp: int, key: bytes | None, value: bytes | None, headers: bytes | None, size: int
    ) -> None:
        self._shared = shared
        self.offset = offset
        self.timestamp = timestamp
        self.key = key
        self.value = value
        self._headers = headers
        self.size = size

    @property
    def topic(self) -> str:
        return self._shared.context.topic

    @property
    def partition_id(self) -> int:
        return self._shared.context.partition_id

    @property
    def partition(self) -> Any:
        """The Partition it came from, where the consumer knows one (pykafka)."""
        return self._shared.context.partition

    @property
    def timestamp_type(self) -> TimestampType:
        return self._shared.timestamp_type

    @property
    def compression_type(self) -> CompressionType:
        """How its batch was compressed."""
        return self._shared.compression_type

    @property
    def partition_key(self) -> bytes | None:
        """The key, under pykafka's name."""
        return self.key

    @property
    def payload(self) -> bytes | None:
        """The value, under pykafka's older name."""
        return self.value

    @property
    def headers(self) -> list[Header]:
        return unpack_headers(self._headers, text) if self._headers is not None else []

    @property
    def response_code(self) -> int:
        """0: a message that could not be fetched is an exception (pykafka's name)."""
        return 0

    @property
    def produce_attempt(self) -> int:
        """0 for what was consumed (pykafka's name)."""
        return 0

    def detach(self) -> Message:
        """A message that does not keep the fetched buffer alive. In this implementation each one is that already."""
        return self

    def __copy__(self) -> Message:
        return self

    def __deepcopy__(self, memo: object) -> Message:
        return self

    def __reduce__(self) -> Any:
        fields = (self.offset, self.timestamp, self.timestamp_type, self.key, self.value, self.headers, self.compression_type, self.size)
        return restore, (self.topic, self.partition_id, *fields)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.topic}[{self.partition_id}] offset {self.offset}, {self.size} bytes>"


common.Message.register(Message)


class Row(Message):
    """A message that behaves as kafka-python's namedtuple: fields by name and by number, unpacking, equality, `_asdict()`, `_replace()`.

    To isinstance() it is such a tuple: it says so by __class__, as proxies do.
    """

    __slots__ = ()

    _fields = _rows.ConsumerRecord._fields
    _field_defaults = _rows.ConsumerRecord._field_defaults
    __match_args__ = _rows.ConsumerRecord._fields
    _make = _rows.ConsumerRecord._make
    _asdict = _rows.as_dict
    _replace = _rows.replace
    index = _rows.index
    count = _rows.count
    checksum = None

    @property  # type: ignore[misc]  # read only
    def __class__(self) -> Any:
        """Not type(row)."""
        return _rows.ConsumerRecord

    @property
    def partition(self) -> int:
        """The partition's id."""
        return self.partition_id

    @property
    def timestamp_type(self) -> int:  # type: ignore[override]  # the base has an attribute: here each batch has it once
        """0 the producer's, 1 the broker's, -1 none."""
        return int(self._shared.timestamp_type)

    @property
    def serialized_key_size(self) -> int:
        """Bytes of the key, -1 for None."""
        return _rows.size_of(self.key)

    @property
    def serialized_value_size(self) -> int:
        """Bytes of the value, -1 for None."""
        return _rows.size_of(self.value)

    @property
    def serialized_header_size(self) -> int:
        """Bytes of the headers, -1 for none."""
        return _rows.header_size(self.headers)

    def with_values(self, key: Any, value: Any) -> _rows.ConsumerRecord:
        """It as a tuple, with a key and a value that may be deserialized."""
        return _rows.row_of(self, key, value)

    def __len__(self) -> int:
        return len(self._fields)

    def __iter__(self) -> Iterator[Any]:
        return iter(_rows.whole(self))

    def __getitem__(self, index: Any) -> Any:
        return _rows.whole(self)[index]

    def __contains__(self, value: object) -> bool:
        return value in _rows.whole(self)

    def __eq__(self, other: object) -> bool:
        pair = _rows.compare(self, other)
        return NotImplemented if pair is None else bool(pair[0] == pair[1])

    def __lt__(self, other: Any) -> Any:
        pair = _rows.compare(self, other)
        return NotImplemented if pair is None else pair[0] < pair[1]

    def __le__(self, other: Any) -> Any:
        pair = _rows.compare(self, other)
        return NotImplemented if pair is None else pair[0] <= pair[1]

    def __gt__(self, other: Any) -> Any:
        pair = _rows.compare(self, other)
        return NotImplemented if pair is None else pair[0] > pair[1]

    def __ge__(self, other: Any) -> Any:
        pair = _rows.compare(self, other)
        return NotImplemented if pair is None else pair[0] >= pair[1]

    def __add__(self, other: Any) -> Any:
        return _rows.joined(self, other)

    def __radd__(self, other: Any) -> Any:
        return _rows.joined(other, self)

    def __mul__(self, number: Any) -> Any:
        return tuple(_rows.whole(self)) * number

    __rmul__ = __mul__

    def __hash__(self) -> int:
        return hash(_rows.whole(self))

    def __repr__(self) -> str:
        return repr(_rows.whole(self))

    def __reduce__(self) -> Any:
        return _rows.ConsumerRecord, tuple(_rows.whole(self))


_rows.ConsumerRecord.register(Row)
Sequence.register(Row)


def make_message(
    context: Context,
    offset: int,
    timestamp: int,
    timestamp_type: TimestampType,
    key: bytes | None,
    value: bytes | None,
    headers: list[Header],
    *,
    compression_type: CompressionType = CompressionType.NONE,
    size: int = 0,
) -> Message:
    """A message of given parts, as if it had been read."""
    shared = Shared(context, TimestampType(timestamp_type), CompressionType(compression_type))
    return Message(shared, offset, timestamp, key, value, pack_headers(headers) if headers else None, size)


# -- records -----------------------------------------------------------------------------------------------------------
size_of, offset_of = attrgetter("size"), attrgetter("offset")


class Spot(NamedTuple):
    """A place in a batch. cursor: in its records, None before it is open.

    behind: records of the batches behind it.
    """

    header: BatchHeader
    cursor: Cursor | None
    shared: Shared | None
    behind: int

    @property
    def left(self) -> int:
        return self.header.count if self.cursor is None else self.cursor.left


class Records:
    """The records of a span of batches, decoded as they are taken.

    buffer, span: where it was found, and what `span_at` found there; a BatchHeader is a span of one
    batch. context: the messages' `.topic`, `.partition_id` and `.partition`. min_offset: records
    before it are left out (a fetch answers with whole batches). max_bytes: what one batch may
    decompress to, by default 64 MiB or 8 times the buffer, whichever is more. message_class:
    Message, or a subclass of it, of what is taken.

    A batch is opened, and its checksum verified, once everything before it was taken. Damage raises
    CorruptRecordError when all good records before it were taken, and again in each take after
    that. An unknown or missing codec is UnsupportedCodec. taken_bytes: of the records that the last
    take has returned, decompressed, and MESSAGE_BYTES for each.
    """

    __slots__ = (
        "_buffer",
        "_check_crcs",
        "_context",
        "_end",
        "_error",
        "_last_offset",
        "_max_bytes",
        "_message_class",
        "_min_offset",
        "_next_offset",
        "_spot",
        "taken_bytes",
    )

    def __init__(
        self,
        buffer: AnyBuffer,
        span: Span | BatchHeader,
        context: Context,
        *,
        check_crcs: bool = True,
        min_offset: int = -1,
        max_bytes: int | None = None,
        message_class: type[Message] = Message,
    ) -> None:
        whole = Span(span) if isinstance(span, BatchHeader) else span
        if not isinstance(whole, Span):
            raise TypeError(f"span={span!r}: must be a Span or a BatchHeader")
        if not (isinstance(message_class, type) and issubclass(message_class, Message)):
            raise TypeError(f"message_class={message_class!r}: must be Message or a subclass of it")
        self._message_class = message_class
        data = memoryview(buffer).cast("B")
        check_bounds(data, whole)
        self._buffer: memoryview | None = data
        self._end, self._last_offset = whole.end, whole.last_offset
        self._context = context
        self._check_crcs = check_crcs
        self._min_offset = min_offset
        self._max_bytes = room_for(len(data)) if max_bytes is None else max_bytes
        self._spot = Spot(whole.first, None, None, whole.count - whole.first.count)
        self._error: KafkaException | None = None
        self.taken_bytes = 0
        if whole.first.last_offset < min_offset <= whole.last_offset:
            try:
                self._spot = self._to_next(self._spot)
            except KafkaException as error:
                self._fail(error)
        self._next_offset = max(self._spot.header.base_offset, min_offset)
        if whole.last_offset < min_offset:
            self._close()

    @property
    def next_offset(self) -> int:
        """The offset behind the last message taken; behind a batch once all of it is taken."""
        return self._next_offset

    @property
    def remaining(self) -> int:
        """How many messages are left at most: 2**31 - 1 where a batch does not say and was not opened, 0 only at the end."""
        if self._error is not None:
            return 1
        if self._buffer is None:
            return 0
        if self._spot.left < 0:
            return UNKNOWN_COUNT
        # Also an empty batch is opened, by a take: its checksum guards the offsets that it stands for.
        return max(self._spot.left + self._spot.behind, 1)

    def take(self, n: int, max_bytes: int = UNBOUNDED, least: int = 1) -> list[Message]:
        """Return the next n messages at most, decoded.

        max_bytes: stop before the message that passes it, as `taken_bytes` counts, but not before
        there are `least`. Fewer than n come for that, before damage, and at the end of any batch:
        `remaining` is 0 only at the end of the span. `next_offset` also moves over empty batches.
        """
        self.taken_bytes = 0
        if self._error is not None:
            raise bare(self._error)
        if n <= 0 or self._buffer is None:
            return []
        messages: list[Message] = []
        stood = self._next_offset
        self._read(n, max_bytes, least, messages)
        if self._error is not None and not messages and self._next_offset == stood:
            raise bare(self._error)
        return messages

    def _read(self, n: int, max_bytes: int, least: int, messages: list[Message]) -> None:
        """A frame of its own: take() raises, and its frame must hold nothing that was decompressed."""
        work = 0
        try:
            if self._spot.cursor is None:
                self._spot = self._opened(self._spot)
            while True:
                header, cursor, shared, _ = self._spot
                assert cursor is not None
                had, its_least = len(messages), least - len(messages)
                work += V2_SIZE + max(cursor.rest, CODEC_BYTES if header.codec else 0)
                room = max_bytes - self.taken_bytes
                error = cursor.read(self._message_class, shared, n - had, self._min_offset, messages.append, room, its_least)
                if len(messages) > had:
                    self._next_offset = messages[-1].offset + 1
                    self.taken_bytes += sum(message.size + MESSAGE_BYTES for message in messages[had:])
                if error is not None:
                    raise error
                if cursor.left:
                    return
                if header.end == self._end:
                    self._close()
                    return
                self._next_offset = max(self._next_offset, header.next_offset)
                if len(messages) >= n or work >= TAKE_BYTES or (len(messages) >= least and self.taken_bytes >= max_bytes):
                    return
                self._spot = self._opened(self._to_next(self._spot))
        except KafkaException as failed:
            self._fail(failed)

    def step(self, queue: Any) -> Message | None:
        """The next message, with the position of the queue moved behind it, as one step: no other thread runs in between. None: see take().

        queue: `reader`, which must be this, `epoch`, and `position` with the same `epoch`, `paused` and `consumed`. Takes from batches of
        format 2 once the first was opened, and leaves the last record of the span.
        """
        spot, messages = self._ahead(queue, 1)
        if not messages:
            return None
        self._move(queue, spot, messages[0].offset)
        return messages[0]

    def steps(self, queue: Any, most: int, max_bytes: int, *, stay: bool = False) -> list[Message]:
        """The messages of so many step()s, as one step. stay: nothing is moved.

        None of them if the span has no more than that, if they hold more than max_bytes, as take()
        counts, or if a batch among them takes long to open: then take() is to be asked.
        """
        if self.remaining <= most:
            return []
        spot, messages = self._ahead(queue, most)
        size = sum(map(size_of, messages)) + MESSAGE_BYTES * len(messages)
        if size > max_bytes or (len(messages) < most and not spot.left):
            return []
        if messages and not stay:
            self._move(queue, spot, messages[-1].offset)
        return messages

    def step_to(self, queue: Any, messages: list[Message]) -> bool:
        """The steps that give these messages. False: they are not the next ones, and nothing has moved."""
        spot, ahead = self._ahead(queue, len(messages))
        if not ahead or list(map(offset_of, ahead)) != list(map(offset_of, messages)):
            return False
        self._move(queue, spot, ahead[-1].offset)
        return True

    def _ahead(self, queue: Any, most: int) -> tuple[Spot, list[Message]]:
        """The messages of so many steps, and the spot behind them."""
        spot, position, messages = self._spot, queue.position, list[Message]()
        if spot.cursor is None or self._buffer is None or spot.header.magic != 2:
            return spot, messages
        if queue.reader is not self or position.epoch != queue.epoch or position.paused:
            return spot, messages
        while len(messages) < most:
            further, read = self._behind(spot), list[Message]()
            if further is None or further.cursor is None:
                break
            error = further.cursor.read(self._message_class, further.shared, 1, self._min_offset, read.append, UNBOUNDED, 1)
            is_last = not further.cursor.left and further.header.end == self._end
            if error is not None or is_last:
                break  # take() tells
            spot = further
            messages += read
        return spot, messages

    def _behind(self, spot: Spot) -> Spot | None:
        """A copy of the spot, in a batch that has records left; None if take() tells of the next."""
        try:
            while spot.cursor is not None and not spot.cursor.left:
                if spot.header.end == self._end:
                    return None
                spot = self._opened(self._to_next(spot))
        except KafkaException:
            return None
        return Spot(spot.header, copy(spot.cursor), spot.shared, spot.behind)

    def _move(self, queue: Any, spot: Spot, offset: int) -> None:
        self._spot = spot
        self._next_offset = queue.position.consumed = offset + 1

    def _to_next(self, spot: Spot) -> Spot:
        """Return the spot before the next batch that is not wholly below min_offset."""
        while True:
            assert self._buffer is not None
            header = read_header(self._buffer, spot.header.end, self._end)
            if header is None or header.magic != 2 or header.base_offset <= spot.header.last_offset:
                raise corrupt("the buffer was changed since it was scanned", self._place(spot.header))
            spot = Spot(header, None, None, spot.behind - header.count)
            if header.last_offset >= self._min_offset:
                return spot

    def _opened(self, spot: Spot) -> Spot:
        assert self._buffer is not None  # as long as it was not read to its end
        header = spot.header
        cursor = open_batch(self._buffer, header, self._place(header), check_crcs=self._check_crcs, max_bytes=self._max_bytes)
        codec = header.codec if cursor.left else 0  # an empty batch may name a codec that we do not know
        shared = Shared(self._context, header.timestamp_type, CompressionType(codec))
        return Spot(header, cursor, shared, spot.behind)

    def _place(self, header: BatchHeader) -> Place:
        return Place(self._context.topic, self._context.partition_id, header.base_offset, header.last_offset)

    def _fail(self, error: KafkaException) -> None:
        self._error = bare(error)
        self._buffer = None
        self._spot = self._spot._replace(cursor=None)

    def _close(self) -> None:
        self._buffer = None
        self._spot = self._spot._replace(cursor=None)
        self._next_offset = max(self._last_offset + 1, self._min_offset, self._next_offset)


def check_bounds(data: memoryview, span: Span) -> None:
    """Refuses a span that was found in another buffer: ValueError."""
    head = V2_SIZE if span.first.magic == 2 else 12 + SMALLEST[span.first.magic]
    if not (span.start >= 0 and span.start + head <= span.first.end <= span.end <= len(data)):
        raise ValueError(f"{span!r} does not lie in this buffer of {len(data)} bytes")


def control_type(buffer: AnyBuffer, header: BatchHeader, *, check_crcs: bool = True) -> int:
    """What a control batch marks (KIP-98): 0 abort, 1 commit, other numbers are unknown to us; -1 if its record was compacted away."""
    messages = Records(buffer, header, Origin("", -1), check_crcs=check_crcs).take(1)
    return marker_of(messages, header.base_offset, header.last_offset)
