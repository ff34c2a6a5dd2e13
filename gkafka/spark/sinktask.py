"""What one Spark task writes: rows into a producer, and what became of them. No pyspark here."""

from __future__ import annotations

import contextlib
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from gkafka.brokererrors import UnknownBrokerError
from gkafka.exceptions import (
    BufferFull,
    ConfigurationError,
    DeliveryError,
    KafkaException,
    KafkaTimeoutError,
    ProduceFailureError,
    RecordTooLarge,
)
from gkafka.logs import get_logger
from gkafka.records import Delivery
from gkafka.spark.connections import connected
from gkafka.spark.producerproperties import PRODUCER_NAMES
from gkafka.spark.sinkoptions import SinkOptions
from gkafka.spark.sinkrows import TopicRows, topic_rows
from gkafka.undoing import Undoing

if TYPE_CHECKING:
    import pyarrow as pa

    from gkafka.nativeproducer import NativeProducer
    from gkafka.records import Batch

__all__ = ["Tally", "by_their_properties", "producer_options", "write_plainly", "write_rows"]

log = get_logger(__name__)

PROPERTY = {option: f"kafka.{name}" for name, option in PRODUCER_NAMES.items()}
OPTION = re.compile(rf"\b({'|'.join(PROPERTY)})(?==)")
"""An option of gkafka's producer, as errors show it: name=value."""
LINGER_MS = 500.0
"""A task has all of its rows at hand: a batch waits until it is full, or for the last row, also where rows go to hundreds of partitions."""
AGAIN = "Spark tries the task again, spark.task.maxFailures times"
WHILE_AWAY = "see that the partition has a leader and its broker answers; kafka.delivery.timeout.ms is how long that is waited for"


class Tally:
    """Counts of a task, and the last offset in each partition. Batches are forgotten when they are done. replayed: its rows were written before."""

    def __init__(self, *, replayed: bool = False) -> None:
        self.replayed = replayed
        self.records = 0
        self.last_offsets: dict[tuple[str, int], int] = {}
        self._begun: deque[Batch] = deque()

    def add(self, rows: TopicRows, begun: Iterable[Delivery]) -> None:
        """These were accepted. Raises what a batch failed with that is done by now."""
        self.records += rows.columns.count
        self._begun.extend(delivery.batch for delivery in begun)
        self.look()

    def look(self) -> None:
        """Take note of the batches that are done, oldest first. Raises the error of one that failed."""
        while self._begun and self._begun[0].done:
            batch = self._begun.popleft()
            if batch.error is not None:
                raise failed(batch)
            done = Delivery(batch, batch.count - 1).result(0)
            key = (batch.topic, batch.partition)
            self.last_offsets[key] = max(self.last_offsets.get(key, -1), done.offset)


def failed(batch: Batch) -> KafkaException:
    """What to raise for a batch that was not delivered: the same error, and what to do."""
    error = batch.error
    text, where = _by_properties(str(error)), f"{batch.topic}-{batch.partition}"
    known = isinstance(error, KafkaException) and not isinstance(error, UnknownBrokerError)  # that one is made of a code
    kind: type[KafkaException] = type(error) if known else ProduceFailureError  # type: ignore[assignment]  # `known` says so
    next_step = f"{WHILE_AWAY}. {AGAIN}" if isinstance(error, KafkaTimeoutError) else AGAIN
    raised = kind(f"{'' if where in text else f'{where}: '}{text}; {next_step}", topic=batch.topic, partition=batch.partition)
    raised.__cause__ = error
    return raised


def producer_options(options: SinkOptions) -> dict[str, Any]:
    """Keyword arguments of get_producer(). Whoever is refused memory by brokers that do not answer hears of the records that failed first."""
    given: Mapping[str, Any] = options.kafka.producer
    patience = given.get("delivery_timeout_ms", 120000)
    return {"max_block_ms": max(60000, patience * 1.5), "linger_ms": min(LINGER_MS, patience / 2), **given}


@contextlib.contextmanager
def by_their_properties() -> Iterator[None]:
    """What refuses a record or a producer names options of gkafka's own: here by the properties that Spark's users can give."""
    try:
        yield
    except (BufferFull, ConfigurationError, RecordTooLarge) as exc:
        exc.args = (_by_properties(str(exc)), *exc.args[1:])
        raise


def _by_properties(text: str) -> str:
    return OPTION.sub(lambda found: PROPERTY[found[1]], text)


def write_plainly(options: SinkOptions, batches: Iterable[pa.RecordBatch]) -> Tally:
    """At least once: all rows are acknowledged when it returns. Raises KafkaException."""
    with connected(options.kafka.client, auto_create_topics=True) as client:
        with by_their_properties():
            producer = client.get_producer(**producer_options(options))
        with Undoing(give_up, producer):
            tally = write_rows(producer, topic_rows(batches, options.topic, options.include_headers))
        producer.close()
        return tally


def write_rows(producer: NativeProducer, pieces: Iterable[TopicRows]) -> Tally:
    """Produce all rows, and wait until they are acknowledged."""
    tally = Tally()
    for rows in pieces:
        try:
            with by_their_properties():
                begun = producer.produce_columns(rows.topic, rows.columns, row_numbers=rows.numbers)
        except BufferFull:
            tally.look()  # what failed says more than that there is no room
            raise
        tally.add(rows, begun)
    settle(producer, tally)
    return tally


def settle(producer: NativeProducer, tally: Tally) -> None:
    """Wait until everything is acknowledged. Raises the first error of a batch."""
    try:
        producer.flush()
    except (DeliveryError, KafkaTimeoutError):
        tally.look()
        raise
    tally.look()


def give_up(producer: NativeProducer, patience_s: float = 0.0) -> None:
    """Close a producer whose records no longer count: its task has failed. patience_s: to tell the brokers so."""
    try:
        producer.close(timeout=patience_s)
    except KafkaException as exc:
        log.debug("%r was given up: %s", producer, exc)  # the error that the task fails with says it
