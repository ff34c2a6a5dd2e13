"""Exactly once: a task's rows, and the mark that they are written, go into one Kafka transaction. No pyspark here.

The transactional id names the query and the task partition, so that InitProducerId fences an attempt that Spark has given up and aborts what it left
open. The mark is an offset that a group of the same name commits inside the transaction: the number of the micro-batch plus one. It says what happened
also where nobody heard the answer to EndTxn: that is never guessed, but read. A task whose mark says that it is done writes nothing again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from gkafka.exceptions import FencedError, KafkaException, KafkaTimeoutError
from gkafka.spark.connections import connected
from gkafka.spark.sinkoptions import SinkOptions
from gkafka.spark.sinktask import Tally, give_up, producer_options, write_rows

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]

    from gkafka.client import KafkaClient
    from gkafka.nativeproducer import NativeProducer

__all__ = ["Mark", "RowsChangedError", "Task", "read_mark", "write_once"]

log = logging.getLogger(__name__)

TRANSACTION_TIMEOUT_MS = 300000
"""Longer than the Java producer's minute: it is the longest that a task may take. No more than transaction.max.timeout.ms, 15 minutes by default."""
ABORT_S = 5.0
"""How long a task that has failed takes to abort its transaction: left open it would hold up readers until its timeout, or the next attempt."""
ROWS = "rows="


class RowsChangedError(KafkaException):
    """A task that is replayed is not what it was when it was written: it has other rows, or later micro-batches were written since."""


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


class Mark(NamedTuple):
    """batch: the micro-batch that was written last, -1 for none. rows: how many it was, None where nobody knows."""

    batch: int
    rows: int | None


def write_once(options: SinkOptions, batches: Iterable[pa.RecordBatch], task: Task) -> Tally:
    """All rows in one transaction, or none if the task is marked as done. Raises KafkaException; then nothing is committed, or a replay finds it."""
    rows = _some(batches)
    if rows is None:
        return Tally()
    with connected(options.kafka.client, auto_create_topics=True) as client:
        producer = _producer(client, options, task)
        try:
            producer.init_transactions()
            mark = read_mark(client, task.name)
            tally = _skip(rows, mark, task) if mark.batch >= task.batch else _write(client, producer, options, rows, task)
        except BaseException:
            give_up(producer, ABORT_S)
            raise
        producer.close()
        return tally


def read_mark(client: KafkaClient, name: str) -> Mark:
    """What a task has written last. Waits while a transaction that may hold the mark is open. Raises KafkaException."""
    found = client.admin().list_group_offsets(name)
    newest = max(found.values(), key=lambda committed: committed.offset, default=None)
    if newest is None or newest.offset < 0:
        return Mark(-1, None)
    told = newest.metadata.removeprefix(ROWS)
    return Mark(newest.offset - 1, int(told) if told.isdigit() else None)


def _some(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch] | None:
    """The batches, None if no row is in them: an empty task needs no transaction."""
    batches = iter(batches)
    for batch in batches:
        if batch.num_rows:
            return chain((batch,), batches)
    return None


def _producer(client: KafkaClient, options: SinkOptions, task: Task) -> NativeProducer:
    return client.get_producer(
        **{"transaction_timeout_ms": TRANSACTION_TIMEOUT_MS, **producer_options(options), "transactional_id": task.name}
    )


def _skip(rows: Iterable[pa.RecordBatch], mark: Mark, task: Task) -> Tally:
    """Take the rows and do nothing with them: they are in Kafka."""
    tally = Tally(replayed=True)
    if mark.batch > task.batch:
        raise RowsChangedError(
            f"{task}: micro-batch {mark.batch} has been written since under the name {task.name!r}, so that nobody knows whether this one was: its checkpoint "
            "was put back or made anew, or two queries have one jobId; give the query another transactionalIdPrefix or jobId, or delete that group"
        )
    count = sum(batch.num_rows for batch in rows)
    if mark.rows not in (None, count):
        raise RowsChangedError(
            f"{task} was written with {mark.rows} rows and is replayed with {count}: the rows are cut into other tasks than before, so "
            "writing or skipping them would lose some or write some twice; exactlyOnce needs the same rows in the same task: set "
            "spark.sql.adaptive.streaming.stateless.enabled=false, avoid repartition(n) without a column, and compare the topic with the source "
            f"before this micro-batch is written by hand (delete the group {task.name!r} to have it written again)"
        )
    log.info("%s: its %d rows were written before", task, count)
    return tally


def _write(client: KafkaClient, producer: NativeProducer, options: SinkOptions, rows: Iterable[pa.RecordBatch], task: Task) -> Tally:
    producer.begin_transaction()
    tally = write_rows(producer, options, rows)
    somewhere = next(iter(tally.last_offsets))[0]
    producer.send_offsets({(somewhere, 0): (task.batch + 1, f"{ROWS}{tally.records}")}, task.name)
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
