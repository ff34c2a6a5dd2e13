"""Reads the batches of a queue, in the caller: here a batch is checked, decompressed and cut up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gkafka import records
from gkafka.atwork import stands_at
from gkafka.columnreader import ColumnReader
from gkafka.exceptions import KafkaException, ProtocolError, UnsupportedCodec
from gkafka.logs import get_logger
from gkafka.records._double import left_compressed

if TYPE_CHECKING:
    import pyarrow as pa

    from gkafka.assignment import Assignment
    from gkafka.atwork import Call, Stood
    from gkafka.config import ConsumerConfig
    from gkafka.consumerqueues import Queue
    from gkafka.core.fetcher import Fetched
    from gkafka.fetchdriver import FetchDriver
    from gkafka.handlers import Handler
    from gkafka.records import BatchHeader, Message, Records, Span

__all__ = ["CHUNK", "QueueReader"]

log = get_logger(__name__)

CHUNK = 1000
"""Records that are read without a look at the clock."""
COLUMN_BYTES, TURN_COLUMN_BYTES = 4 << 20, 1 << 20
"""Fetched bytes that become columns together; the second with greenlets."""


class QueueReader:
    """Reads one queue at a time, as messages or as columns, and moves its position behind what it read.

    message_class: the class of the messages, from the next batch on. double_compressed: what becomes
    of a message of format 0 or 1 inside a compressed one that is compressed, too: "open"; "leave" it
    as one message; "skip" it.
    """

    def __init__(self, driver: FetchDriver, assignment: Assignment, config: ConsumerConfig, handler: Handler) -> None:
        self._driver, self._lock, self._assignment = driver, driver.lock, assignment
        self._config, self._handler = config, handler
        self._column_bytes = TURN_COLUMN_BYTES if handler.cooperative else COLUMN_BYTES
        self.message_class: type[Message] = records.Message
        self.double_compressed = "open"

    def read(self, call: Call, queue: Queue, wanted: int, room: int, taken: list[Message]) -> int:
        """Take messages of the batch that is begun, or of the next one.

        room: bytes that may still be handed out. Return what is left of it, or -1 if the next record
        does not fit: the next call gets it. The first record of a call is taken whatever its size.
        """
        if isinstance(queue.reader, ColumnReader):
            self._put_back(queue)
        reader = queue.reader or self._open(queue)
        if reader is None or isinstance(reader, ColumnReader):
            return room
        stood, before = stands_at(queue.position), reader.next_offset
        try:
            got = reader.take(wanted if wanted < CHUNK else CHUNK, room, 0 if taken else 1)
        except (ProtocolError, UnsupportedCodec) as exc:
            self._damaged(call, queue, reader, exc)
            return room
        left = reader.remaining
        if not got and left and reader.next_offset == before:
            return -1
        if not self._settle(call, queue, reader, reader.next_offset, left, stood):
            return self._room_left(room)
        taken += got
        return room - reader.taken_bytes

    def read_columns(self, call: Call, queue: Queue, wanted: int, room: int, columns: tuple[str, ...], taken: list[pa.RecordBatch]) -> int:
        """Do the same as columns."""
        if queue.reader is not None and not (isinstance(queue.reader, ColumnReader) and queue.reader.columns == columns):
            self._put_back(queue)
        reader = queue.reader or self._open_columns(queue, columns)
        if not isinstance(reader, ColumnReader):
            return room
        stood = stands_at(queue.position)
        try:
            got = reader.take(wanted, room, 0 if taken else 1)
        except (ProtocolError, UnsupportedCodec) as exc:
            self._damaged(call, queue, reader, exc)
            return room
        if got is None and not reader.is_done:
            return -1
        if not self._settle(call, queue, reader, reader.next_offset, reader.remaining, stood):
            return self._room_left(room)
        if got is not None:
            taken.append(got)
        return room - reader.taken_bytes

    def _room_left(self, room: int) -> int:
        """Nothing came of it. Return -1 if nothing can come before a worker has begun anew: who takes must let it."""
        return room if self._driver.step.cause is None else -1

    def _settle(self, call: Call, queue: Queue, reader: Records | ColumnReader, stands: int, left: int, stood: Stood) -> bool:
        """Count what was just read as handed out. Return False if nobody wants it any more.

        stands: the offset behind it. left: the records that are left in the reader. stood: the
        position before it was read, as `run` may have gone on since.

        Nothing between here and the end of the call switches to another worker, so a caller that is
        killed has either all of it or nothing.
        """
        driver = self._driver
        with self._lock:
            if queue.reader is not reader or driver.step.cause is not None:
                return False  # another thread has sought meanwhile, or was interrupted
            if queue.is_void:  # what is left of it, nothing at least, says nothing of where the position is now
                driver.held -= queue.size
                queue.unread = 0
                queue.is_read()
                return False
            position, before = queue.position, queue.position.buffered
            # Noted before the position moves: whoever looks in between finds the records at work, or not taken.
            if call.stood.setdefault(position.tp, stood)[1] != position.term:
                call.stood[position.tp] = stood
            position.consumed = max(position.consumed, stands)  # `run` may be further
            position.consumed_epoch = queue.leader_epoch
            queue.count(left)
            wants_more = before >= self._config.queued_max_messages > position.buffered
            if not left:
                was_full = driver.is_full
                driver.held -= queue.size
                queue.is_read()
                queue.catch_up()
                wants_more |= was_full and not driver.is_full
        call.wants_more |= wants_more
        return True

    def _put_back(self, queue: Queue) -> None:
        """Let what is being read be read in another way."""
        with self._lock:
            if queue.is_void:
                self._driver.held -= queue.size
                queue.is_read()
            else:
                queue.put_back()

    def _open_columns(self, queue: Queue, columns: tuple[str, ...]) -> ColumnReader | None:
        driver, config = self._driver, self._config
        with self._lock, driver.step:
            held = queue.held
            spans = queue.next_batches(self._column_bytes)
            if not spans:
                driver.held -= held - queue.held
                return None
            start = max(spans[0].skip_to, queue.position.consumed)
            reader = queue.reader = ColumnReader(spans, start, columns, config.consume_max_bytes, check_crcs=config.check_crcs)
            return reader

    def _open(self, queue: Queue) -> Records | None:
        driver = self._driver
        with self._lock, driver.step:
            held = queue.held
            fetched = queue.next_batch()
            if fetched is None:
                driver.held -= held - queue.held
                return None
            min_offset = max(fetched.skip_to, queue.position.consumed)
            buffer: memoryview = fetched.buffer
            span: Span | BatchHeader = fetched.span
            if self.double_compressed != "open" and fetched.span.count < 0:
                buffer, span, min_offset = self._mind_double(fetched, min_offset)
            reader = queue.reader = records.Records(
                buffer,
                span,
                queue.context,
                check_crcs=self._config.check_crcs,
                min_offset=min_offset,
                message_class=self.message_class,
            )
            return reader

    def _mind_double(self, fetched: Fetched, min_offset: int) -> tuple[memoryview, Span | BatchHeader, int]:
        """Return buffer, span and first offset of a compressed message whose content may be compressed, too."""
        topic, partition = fetched.position.tp
        buffer, span = fetched.buffer, fetched.span
        plain = left_compressed(buffer, span.first, topic, partition, check_crcs=self._config.check_crcs)
        if plain is None:
            return buffer, span, min_offset
        if self.double_compressed == "skip":
            log.warning("%s[%d] offset %d: the message is compressed twice, it is skipped", topic, partition, span.last_offset)
            return buffer, span, span.next_offset
        return memoryview(plain), records.scan(plain)[0], min_offset

    def _damaged(self, call: Call, queue: Queue, reader: Records | ColumnReader, error: KafkaException) -> None:
        """A batch cannot be read: keep the position before it, tell the caller, and fetch again after a pause."""
        position, driver = queue.position, self._driver
        with self._lock, driver.step:
            if queue.reader is not reader:
                return
            errors: list[KafkaException] = []
            self._assignment.empty(queue)
            position.seek(position.consumed, position.consumed_epoch, position.leader_epoch)
            driver.shares[0].fetcher.fail(position, error, self._handler.monotonic(), errors)
            driver.tell(errors)
        call.wants_more = True
