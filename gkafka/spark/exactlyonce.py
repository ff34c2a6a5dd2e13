"""Exactly once: a task's rows, and the mark that they are written, go into one Kafka transaction. No pyspark here.

The transactional id names the query and the task partition, so that InitProducerId fences an attempt that Spark has given up and aborts what it left
open. The mark is an offset that a group of the same name commits inside the transaction: the number of the micro-batch plus one, with what was written as
its metadata. It says what happened also where nobody heard the answer to EndTxn: that is never guessed, but read. A task whose mark says that it is done
writes nothing again, and refuses what is not what it has written.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from gkafka import records
from gkafka.exceptions import FencedError, KafkaException, KafkaTimeoutError
from gkafka.logs import get_logger
from gkafka.spark.connections import connected
from gkafka.spark.sinkoptions import SinkOptions
from gkafka.spark.sinkrows import TopicRows, topic_rows
from gkafka.spark.sinktask import Tally, by_their_properties, give_up, producer_options, write_rows
from gkafka.undoing import Undoing

if TYPE_CHECKING:
    import pyarrow as pa

    from gkafka.client import KafkaClient
    from gkafka.nativeproducer import NativeProducer

__all__ = ["Mark", "RowsChangedError", "Task", "read_mark", "write_once"]

log = get_logger(__name__)

TRANSACTION_TIMEOUT_MS = 300000
"""Longer than the Java producer's minute: it is the longest that a task may take. No more than transaction.max.timeout.ms, 15 minutes by default."""
ABORT_S = 5.0
"""How long a task that has failed takes to abort its transaction: left open it would hold up readers until its timeout, or the next attempt."""
LONGEST_NAMES = 1000
"""Of the topics' names in a mark; a checksum stands for longer ones. Brokers take 4,096 bytes of metadata."""
WRITTEN = re.compile(r"rows=(\d+) bytes=(\d+)(?: sum=([0-9a-f]+))? topics=(\S+)")


class RowsChangedError(KafkaException):
    """A task that is replayed is not what it was when it was written: it has other rows or topics, or later micro-batches were written since."""


@dataclass(frozen=True)
class Task:
    """One task of one micro-batch. query: id of the stream, from its checkpoint, or the name of a batch job."""

    prefix: str
    query: str
    partition: int
    batch: int

    @property
    def name(self) -> str:
        """The transactional id, and the group that holds the mark."""
        return f"{self.prefix}-{self.query}-{self.partition}"

    def __str__(self) -> str:
        return f"task {self.partition} of micro-batch {self.batch}"


class Written(NamedTuple):
    """What a task has written: rows, bytes of their keys and values, the sum of the rows' checksums (None in marks that have none), and the names of their
    topics with a comma between them."""

    rows: int
    size: int
    checksum: int | None
    topics: str

    def __str__(self) -> str:
        told = "" if self.checksum is None else f" (checksum {self.checksum:x})"
        return f"{self.rows} rows of {self.size} bytes{told} for {self.topics}"

    def may_be(self, now: Written) -> bool:
        """Is that the same, as far as this one knows?"""
        return self == (now if self.checksum is not None else now._replace(checksum=None))


class Mark(NamedTuple):
    """batch: the micro-batch that was written last, -1 for none. written: what that was, None where nobody knows."""

    batch: int
    written: Written | None


@dataclass
class Meter:
    """What passes through it: all that is written of a row counts, neither the order of the rows nor how they are cut."""

    rows: int = 0
    size: int = 0
    checksum: int = 0
    topics: set[str] = field(default_factory=set)

    def pass_on(self, pieces: Iterable[TopicRows]) -> Iterator[TopicRows]:
        """The same, measured."""
        for piece in pieces:
            yield piece  # first: who refuses one of its rows says which
            size, checksum = records.measure_columns(piece.columns, records.crc32c(piece.topic.encode()))
            self.rows += piece.columns.count
            self.size += size
            self.checksum = (self.checksum + checksum) % (1 << 64)
            self.topics.add(piece.topic)

    @property
    def written(self) -> Written:
        """All of it."""
        names = ",".join(sorted(self.topics))
        if len(names) > LONGEST_NAMES:
            names = f"{len(self.topics)}-topics-{zlib.crc32(names.encode()):08x}"
        return Written(self.rows, self.size, self.checksum, names)


def write_once(options: SinkOptions, batches: Iterable[pa.RecordBatch], task: Task) -> Tally:
    """All rows in one transaction, or none if the task is marked as done. Raises KafkaException; then nothing is committed, or a replay finds it."""
    some = _some(batches)
    if some is None:
        return Tally()
    rows = topic_rows(some, options.topic, options.include_headers)
    with connected(options.kafka.client, auto_create_topics=True) as client:
        producer = _producer(client, options, task)
        with Undoing(give_up, producer, ABORT_S):
            producer.init_transactions()
            mark = read_mark(client, task.name)
            is_there = mark.batch >= task.batch
            tally = _skip(rows, mark, task) if is_there else _write(client, producer, options, rows, task)
        producer.close()
        return tally


def read_mark(client: KafkaClient, name: str) -> Mark:
    """What a task has written last. Waits while a transaction that may hold the mark is open. Raises KafkaException."""
    found = client.admin().list_group_offsets(name, require_stable=True)
    newest = max(found.values(), key=lambda committed: committed.offset, default=None)
    if newest is None or newest.offset < 0:
        return Mark(-1, None)
    return Mark(newest.offset - 1, _written(newest.metadata))


def _written(metadata: str) -> Written | None:
    told = WRITTEN.fullmatch(metadata)
    if told is None:
        return None
    rows, size, checksum, topics = told.groups()
    return Written(int(rows), int(size), None if checksum is None else int(checksum, 16), topics)


def _some(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch] | None:
    """The batches, None if no row is in them: an empty task needs no transaction."""
    batches = iter(batches)
    for batch in batches:
        if batch.num_rows:
            return chain((batch,), batches)
    return None


def _producer(client: KafkaClient, options: SinkOptions, task: Task) -> NativeProducer:
    with by_their_properties():
        return client.get_producer(
            **{"transaction_timeout_ms": TRANSACTION_TIMEOUT_MS, **producer_options(options), "transactional_id": task.name}
        )


def _skip(rows: Iterable[TopicRows], mark: Mark, task: Task) -> Tally:
    """Take the rows and do nothing with them: they are in Kafka. Raises RowsChangedError if these are others."""
    tally, meter = Tally(replayed=True), Meter()
    if mark.batch > task.batch:
        raise RowsChangedError(
            f"{task}: micro-batch {mark.batch} has been written since under the name {task.name!r}, so that nobody knows whether this one was: its checkpoint "
            "was put back or made anew, or two queries have one jobId; give the query another transactionalIdPrefix or jobId, or delete that group"
        )
    for _ in meter.pass_on(rows):
        pass
    before, now = mark.written, meter.written
    if before is not None and before.topics != now.topics:
        raise RowsChangedError(
            f"{task}, under the name {task.name!r}, was written for topic {before.topics} and is now to be written for {now.topics}, which would be "
            "skipped: give each write its own jobId, new in each run that writes other rows; a query whose topic has changed goes on with another "
            f"transactionalIdPrefix (or delete the group {task.name!r} to have this micro-batch written once more)"
        )
    if before is not None and not before.may_be(now):
        raise RowsChangedError(
            f"{task} was written with {before} and is replayed with {now}: these are other rows, or rows cut into other tasks than before, so "
            "writing or skipping them would lose some or write some twice, and other tasks of this micro-batch may have written rows twice by now; exactlyOnce "
            "needs the same rows in the same task: a jobId is for one set of rows; of a query set spark.sql.adaptive.streaming.stateless.enabled=false, "
            "leave minPartitions, maxRecordsPerPartition and includeHeaders as they were, avoid repartition(n) without a column, "
            "and compare the topic with the source "
            f"before this micro-batch is written by hand (delete the group {task.name!r} to have it written again)"
        )
    log.info("%s: its %d rows were written before", task, now.rows)
    return tally


def _write(client: KafkaClient, producer: NativeProducer, options: SinkOptions, rows: Iterable[TopicRows], task: Task) -> Tally:
    meter = Meter()
    producer.begin_transaction()
    tally = write_rows(producer, meter.pass_on(rows))
    somewhere = next(iter(tally.last_offsets))[0]
    written = meter.written
    note = f"rows={written.rows} bytes={written.size} sum={meter.checksum:x} topics={written.topics}"
    producer.send_offsets({(somewhere, 0): (task.batch + 1, note)}, task.name)
    try:
        producer.commit_transaction()
    except (KafkaTimeoutError, FencedError) as exc:
        _ask_how_it_ended(client, producer, options, task, exc)
    return tally


def _ask_how_it_ended(client: KafkaClient, producer: NativeProducer, options: SinkOptions, task: Task, unclear: KafkaException) -> None:
    """Nobody knows whether the transaction was committed. Raises unless it was.

    A new producer of the same name has the coordinator end it first. Who was fenced has a successor, whose start has ended it already, and must not
    fence that one in turn.
    """
    log.warning("%s: the end of its transaction is unclear (%s): reading its mark", task, unclear)
    give_up(producer)
    if not isinstance(unclear, FencedError):
        successor = _producer(client, options, task)
        try:
            successor.init_transactions()
        finally:
            give_up(successor)
    if read_mark(client, task.name).batch < task.batch:
        raise unclear
