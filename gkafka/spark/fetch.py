"""What a Spark task does: ranges of offsets as Arrow batches, the next fetch always under way."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from uuid import UUID

from gkafka import records
from gkafka.client import KafkaClient
from gkafka.common import IsolationLevel, OffsetType
from gkafka.exceptions import (
    CorruptRecordError,
    KafkaException,
    KafkaTimeoutError,
    OffsetOutOfRangeError,
    ProtocolError,
    UnknownTopicError,
    UnknownTopicOrPartition,
)
from gkafka.logs import get_logger
from gkafka.rawfetch import RawFetch
from gkafka.records.columns import arrow_schema
from gkafka.spark.connections import connected
from gkafka.spark.offsets import DATA_LOSS, DataLossError
from gkafka.spark.options import SourceOptions
from gkafka.spark.planner import Group, OffsetRange

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["read"]

log = get_logger(__name__)

MOST_MILLISECONDS = ((1 << 63) - 1) // 1000  # what Spark's timestamps, in microseconds, can hold
CONTRADICTED_S = 0.1  # between two questions to a leader that has an offset by one answer and not by another


def read(
    options: SourceOptions,
    group: Group,
    columns: Sequence[str],
    not_null: Collection[str] = (),
    topic_ids: Mapping[str, UUID] | None = None,
) -> Iterator[pa.RecordBatch]:
    """The records of some ranges as batches of these columns, those of a partition in offset order.

    not_null: those of them that Spark was told are never null; the schema of the batches has to say the same. topic_ids: of the topics that were planned: one
    that was made again has other records, which are none of these.

    Raises CorruptRecordError naming topic, partition and offset, DataLossError, KafkaTimeoutError and other KafkaException.
    """
    ids = topic_ids or {}
    decoders = [Decoder(options, task, columns, not_null) for task in group]
    with connected(options.kafka) as client:
        readers = [RangeReader(client, options, task, ids.get(task.topic)) for task in group]
        if len(group) == 1:
            yield from _alone(readers[0], decoders[0])
        else:
            yield from _together(client, options, group, readers, decoders, ids)


def _alone(reader: RangeReader, decoder: Decoder) -> Iterator[pa.RecordBatch]:
    for chunk in reader.chunks():
        yield from decoder.batches(chunk)


def _together(
    client: KafkaClient,
    options: SourceOptions,
    group: Group,
    readers: Sequence[RangeReader],
    decoders: Sequence[Decoder],
    topic_ids: Mapping[str, UUID],
) -> Iterator[pa.RecordBatch]:
    """Ranges that share fetches and Arrow batches. One that meets anything unusual is read alone from there on, behind the others."""
    chunks = [Chunk(task.start) for task in group]
    positions = [task.start for task in group]
    left: dict[int, UnknownTopicError | None] = {}
    rows = size = 0
    kafka = options.kafka
    streams = client.fetch_streams(
        group,
        max_bytes=kafka.fetch_bytes,
        isolation=kafka.isolation,
        max_wait_ms=kafka.fetch_wait_ms,
        timeout=options.poll_timeout_ms / 1000,
        max_total_bytes=kafka.answer_bytes,
        topic_ids=topic_ids,
    )

    def decoded() -> Iterator[pa.RecordBatch]:
        for number, chunk in enumerate(chunks):
            if chunk.fetches:
                chunks[number] = Chunk(positions[number])
                yield from decoders[number].batches(chunk)

    for number, raw in streams:
        if raw is None or isinstance(raw, UnknownTopicError):
            left[number] = raw
            continue
        before = chunks[number].rows
        chunks[number].add(raw)
        positions[number] = raw.next_offset
        rows, size = rows + chunks[number].rows - before, size + len(raw.batches)
        if rows >= options.batch_rows or size >= options.batch_bytes:
            yield from _joined(decoded(), options)
            rows = size = 0
    yield from _joined(decoded(), options)
    for number in sorted(left, key=group.__getitem__):  # two of one partition in order
        readers[number].go_on(positions[number], left[number])
        yield from _alone(readers[number], decoders[number])


def _joined(batches: Iterator[pa.RecordBatch], options: SourceOptions) -> Iterator[pa.RecordBatch]:
    """Return the same rows in batches of batchRows or batchBytes at least, except the last: a batch of a few rows costs Spark as much as one of many.

    A batch that is large already is not copied. Rows before an error are handed out before it.
    """
    kept: list[pa.RecordBatch] = []
    rows = size = 0
    try:
        for batch in batches:
            if batch.nbytes >= options.batch_bytes:
                yield from _as_one(kept)
                kept, rows, size = [], 0, 0
            kept.append(batch)
            rows, size = rows + batch.num_rows, size + batch.nbytes
            if rows >= options.batch_rows or size >= options.batch_bytes:
                yield from _as_one(kept)
                kept, rows, size = [], 0, 0
    except KafkaException:
        yield from _as_one(kept)
        raise
    yield from _as_one(kept)


def _as_one(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    if len(batches) < 2:
        return batches
    import pyarrow as pa

    found: list[pa.RecordBatch] = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return found


@dataclass
class Chunk:
    """Fetches that become Arrow batches together. start: the first offset that is wanted. rows: about how many records."""

    start: int
    fetches: list[RawFetch] = field(default_factory=list)
    rows: int = 0
    size: int = 0

    def add(self, raw: RawFetch) -> None:
        self.fetches.append(raw)
        self.rows += sum(max(header.count, 1) for header in records.scan(raw.batches))
        self.size += len(raw.batches)


class RangeReader:
    """The fetches of one range, whatever the partition's leader does meanwhile."""

    def __init__(self, client: KafkaClient, options: SourceOptions, task: OffsetRange, topic_id: UUID | None) -> None:
        self._client, self._options, self._task, self._topic_id = client, options, task, topic_id
        self._position = task.start
        self._progress_at = client.handler.monotonic()
        self._contradicted = False

    def go_on(self, position: int, error: UnknownTopicError | None) -> None:
        """Begin here, where others have read it up to now. error: what they have met, if it is certain."""
        self._position = position
        self._progress_at = self._client.handler.monotonic()
        if error is not None:
            self._position = self._next_available(error)

    def chunks(self) -> Iterator[Chunk]:
        """Ends when the position has reached the range's end, even if no record had that offset."""
        chunk = Chunk(self._position)
        while self._position < self._task.end:
            try:
                for raw in self._fetches():
                    chunk.add(raw)
                    self._position = raw.next_offset
                    if self._is_full(chunk):
                        yield chunk
                        chunk = Chunk(self._position)
                    # Behind the yield: the time that Spark took for a batch is not time without progress.
                    self._progress_at = self._client.handler.monotonic()
            except OffsetOutOfRangeError as exc:
                self._position = self._next_available(exc)
                # The batch at the new position may hold records before it, which are deleted although they are still there.
                if chunk.fetches:
                    yield chunk
                chunk = Chunk(self._position)
            except KafkaException as exc:
                is_certain = isinstance(exc, UnknownTopicError)  # the cluster has been asked for it for a while
                if not exc.retriable and not is_certain:
                    # What was fetched is handed out first: damage in it comes before this error.
                    if chunk.fetches:
                        yield chunk
                    self._name_partition(exc)
                    raise
                if is_certain or self._patience_is_over():
                    self._position = self._after_silence(exc)
                    continue
                log.warning("%s: fetching goes on at offset %d after: %s", self._task, self._position, exc)
        if chunk.fetches:
            yield chunk

    def _name_partition(self, error: KafkaException) -> None:
        """Add the range to an error that names only a topic."""
        if error.topic is not None and error.partition is None:
            error.args, error.partition = (f"{error}; while reading {self._task}",), self._task.partition

    def _is_full(self, chunk: Chunk) -> bool:
        return chunk.rows >= self._options.batch_rows or chunk.size >= self._options.batch_bytes

    def _fetches(self) -> Iterator[RawFetch]:
        options = self._options
        return self._client.fetch_stream(
            self._task.topic,
            self._task.partition,
            self._position,
            self._task.end,
            max_bytes=options.kafka.fetch_bytes,
            isolation=options.kafka.isolation,
            max_wait_ms=options.kafka.fetch_wait_ms,
            timeout=options.poll_timeout_ms / 1000,
            topic_id=self._topic_id,
        )

    def _patience_is_over(self) -> bool:
        return self._client.handler.monotonic() - self._progress_at >= self._options.poll_timeout_ms / 1000

    # -- offsets that are gone ---------------------------------------------------------------------------------------------
    def _after_silence(self, error: KafkaException) -> int:
        """No record for so long, where the log has none, is data loss, as in the JVM connector (an endingOffsets beyond the log, for one); and so is a
        partition that nobody has known for so long.
        """
        if isinstance(error, UnknownTopicOrPartition):
            return self._next_available(error)
        if isinstance(error, KafkaTimeoutError):
            try:
                earliest, latest = self._ends()
            except KafkaException as exc:
                raise error from exc  # it says of what nothing came
            if not earliest <= self._position < latest:
                return self._next_available(error)
        raise error

    def _next_available(self, error: KafkaException) -> int:
        """Where reading goes on when the position is not in the log any more; the range's end if nothing of it is left."""
        topic, partition, _, end = self._task
        reason = f"Could not read records in offset [{self._position}, {end}) for topic partition {topic}-{partition}: {error}"
        if self._options.fail_on_data_loss:
            raise DataLossError(DATA_LOSS + reason, topic=topic, partition=partition, offset=self._position) from error
        if isinstance(error, UnknownTopicOrPartition):
            log.warning("%s. Records in [%d, %d) are skipped (failOnDataLoss is false)", reason, self._position, end)
            return end
        earliest, latest = self._ends()
        gone = self._position >= latest or earliest >= end
        found = end if gone else max(self._position, earliest)
        if found == self._position:
            self._pause_before_asking_again(reason, error)
            return found
        log.warning(
            "%s. The available offset range is [%d, %d): records in [%d, %d) are skipped (failOnDataLoss is false)",
            reason,
            earliest,
            latest,
            self._position,
            found,
        )
        return found

    def _pause_before_asking_again(self, reason: str, error: KafkaException) -> None:
        """Wait a moment: ListOffsets has the offset, and Fetch refuses it. Raises the error after kafkaConsumer.pollTimeoutMs."""
        if self._patience_is_over():
            raise error
        if not self._contradicted:
            self._contradicted = True
            log.warning("%s. The available offset range has this offset: asking again", reason)
        self._client.handler.sleep(CONTRADICTED_S)

    def _ends(self) -> tuple[int, int]:
        at = (self._task.topic, self._task.partition)
        earliest = self._client.list_offsets({at: OffsetType.EARLIEST})[at]
        latest = self._client.list_offsets({at: OffsetType.LATEST}, isolation=self._options.kafka.isolation)[at]
        return earliest, latest


class Decoder:
    """Fetched bytes to Arrow."""

    def __init__(self, options: SourceOptions, task: OffsetRange, columns: Sequence[str], not_null: Collection[str] = ()) -> None:
        self._options, self._task, self._columns = options, task, columns
        self._schema = _schema(columns, not_null) if not_null else None

    def batches(self, chunk: Chunk) -> Iterator[pa.RecordBatch]:
        """What the chunk holds of the range. A batch that cannot be read is raised after the rows before it were handed out."""
        buffers = [raw.batches for raw in chunk.fetches]
        aborted, damage = self._aborted(chunk)
        end = self._task.end if damage is None else min(damage.offset or 0, self._task.end)
        position, complete = chunk.start, False
        while not complete:
            found = records.decode_columns(
                buffers,
                start_offset=position,
                end_offset=end,
                keys="key" in self._columns,
                values="value" in self._columns,
                headers="headers" in self._columns,
                check_crcs=self._options.kafka.check_crcs,
                skip=aborted,
                topic=self._task.topic,
                partition=self._task.partition,
            )
            if len(found):
                yield from self._sliced(found)
            position, complete = found.next_offset, found.complete
        if damage is not None and end < self._task.end:
            raise damage

    def _sliced(self, found: records.Columns) -> Iterator[pa.RecordBatch]:
        if "timestamp" in self._columns:
            self._check_timestamps(found)
        batch = found.to_arrow(self._columns)
        if self._schema is not None:
            batch = type(batch).from_arrays(batch.columns, schema=self._schema)
        # A compressed fetch may hold many times its size: Spark gets it in pieces, which share the memory.
        pieces = max(1, batch.nbytes // (4 * self._options.batch_bytes))
        rows = -(-batch.num_rows // pieces)
        for start in range(0, batch.num_rows, rows):
            yield batch.slice(start, rows)

    def _check_timestamps(self, found: records.Columns) -> None:
        import numpy as np

        timestamps = np.frombuffer(found.raw.timestamps, np.int64)
        if timestamps.max() > MOST_MILLISECONDS or timestamps.min() < -MOST_MILLISECONDS:
            index = int(np.argmax(np.abs(timestamps.astype(np.float64))))
            offset = int(np.frombuffer(found.raw.offsets, np.int64)[index])
            raise ProtocolError(
                f"Record at topic {self._task.topic} partition {self._task.partition} offset {offset} has timestamp value "
                f"{timestamps[index]} that overflows when converting to Spark's microsecond-precision TimestampType: the producer "
                "should write milliseconds. A schema without the timestamp column can be read",
                topic=self._task.topic,
                partition=self._task.partition,
                offset=offset,
            )

    def _aborted(self, chunk: Chunk) -> tuple[set[int], CorruptRecordError | None]:
        """Return the base offsets of the chunk's aborted batches, and the error of a control batch.

        The error is None if all can be read. What is aborted behind such a batch is not known.
        """
        found: set[int] = set()
        if self._options.kafka.isolation is IsolationLevel.READ_COMMITTED:
            try:
                for raw in chunk.fetches:
                    if raw.aborted:
                        found.update(aborted_batches(raw, self._task.topic, self._task.partition))
            except CorruptRecordError as exc:
                return found, exc
        return found, None


def _schema(columns: Sequence[str], not_null: Collection[str]) -> pa.Schema:
    schema = arrow_schema(columns)
    for name in not_null:
        at = schema.get_field_index(name)
        schema = schema.set(at, schema.field(at).with_nullable(False))
    return schema


def aborted_batches(raw: RawFetch, topic: str, partition: int) -> Iterator[int]:
    """The base offsets of the batches that belong to aborted transactions (KIP-98).

    A transaction is aborted from the first offset that the answer names for its producer id up to that producer's next abort marker.
    Raises CorruptRecordError, which names the partition, for a control batch that cannot be read.
    """
    waiting = sorted(raw.aborted, key=lambda pair: pair[1], reverse=True)
    open_ids: set[int] = set()
    for header in records.scan(raw.batches):
        while waiting and waiting[-1][1] <= header.last_offset:
            open_ids.add(waiting.pop()[0])
        if header.is_control:
            if _is_abort(raw.batches, header, topic, partition):
                open_ids.discard(header.producer_id)
        elif header.is_transactional and header.producer_id in open_ids:
            yield header.base_offset


def _is_abort(batches: memoryview, header: Any, topic: str, partition: int) -> bool:
    try:
        return records.control_type(batches, header) == 0
    except CorruptRecordError as exc:
        at = header.base_offset
        text = f"{topic}[{partition}] offset {at}: the control batch cannot be read: {exc}"
        place: dict[str, Any] = {"topic": topic, "partition": partition, "offset": at}
        raise CorruptRecordError(text, next_offset=header.next_offset, **place) from exc
