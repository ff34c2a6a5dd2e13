"""Tasks that write exactly once, on a real Kafka: attempts that overlap, die or hear nothing, and what read_committed shows of them; and a stream whose first
micro-batch is run again when some of its records are gone."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Message, Producer
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from gkafka.exceptions import KafkaException, KafkaTimeoutError
from gkafka.nativeproducer import NativeProducer
from gkafka.spark.connections import close_all, connected
from gkafka.spark.exactlyonce import Mark, Task, read_mark, write_once
from gkafka.spark.sinkoptions import SinkOptions, parse_sink
from gkafka.spark.sinktask import Tally
from gkafka.spark.update import STATELESS_AQE
from tests.live.kafka import KafkaCluster
from tests.spark.live.killing import BEHIND, KilledDataSource, Strike, from_topic, to_topic
from tests.spark.live.test_kills import NOW, PATIENCE_S, copied
from tests.spark.live.test_oracle import delete_before

ROOT = Path(__file__).resolve().parents[3]
Read = Callable[..., list[Message]]
ROWS = 5000


@pytest.fixture(autouse=True)
def _no_clients_left() -> Iterator[None]:
    yield
    close_all()


class Sink:
    """Writes as tasks of one query into one topic."""

    def __init__(self, kafka: KafkaCluster, topic: str) -> None:
        self.kafka, self.topic = kafka, topic

    @property
    def options(self) -> SinkOptions:
        return parse_sink({"kafka.bootstrap.servers": self.kafka.hosts, "topic": self.topic, "exactlyOnce": "transactional"})

    def task(self, batch: int = 0) -> Task:
        return Task("gkafka-spark", self.topic, 0, batch)

    def write(self, rows: Any, batch: int = 0) -> Tally:
        return write_once(self.options, rows, self.task(batch))

    def mark(self) -> Mark:
        with connected(self.options.kafka.client) as client:
            return read_mark(client, self.task().name)


@pytest.fixture
def sink(kafka: KafkaCluster, topic: Callable[..., str]) -> Sink:
    return Sink(kafka, topic())


def numbered(first: int, count: int = ROWS) -> pa.RecordBatch:
    texts = [f"{i}" for i in range(first, first + count)]
    return pa.RecordBatch.from_pydict({"key": texts, "value": texts})


def seen(read: Read, sink: Sink) -> list[int]:
    return sorted(int(m.value() or b"-1") for m in read(sink.topic))


def test_micro_batches_and_their_replays_are_there_once(sink: Sink, read: Read) -> None:
    for batch in (0, 0, 1, 1, 1, 2):
        sink.write([numbered(batch * ROWS)], batch)
    assert seen(read, sink) == list(range(3 * ROWS))
    batch, written = sink.mark()
    assert written is not None
    assert (batch, written.rows, written.size, written.topics) == (2, ROWS, 50_000, sink.topic)


def test_a_zombie_is_fenced_and_leaves_nothing(sink: Sink, read: Read) -> None:
    """It has written half when the next attempt begins and ends, then it goes on."""

    def rows() -> Iterator[pa.RecordBatch]:
        yield numbered(0)
        sink.write([numbered(0), numbered(ROWS)])
        yield numbered(ROWS)

    with pytest.raises(KafkaException):
        sink.write(rows())
    assert seen(read, sink) == list(range(2 * ROWS))


def test_a_zombie_that_comes_to_its_commit_finds_that_its_successor_was_done(
    sink: Sink, read: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit, overtaken = NativeProducer.commit_transaction, []

    def late(self: NativeProducer, timeout: float | None = None) -> None:
        if not overtaken:
            overtaken.append(self)
            sink.write([numbered(0)])
        commit(self, timeout)

    monkeypatch.setattr(NativeProducer, "commit_transaction", late)
    sink.write([numbered(0)])
    assert seen(read, sink) == list(range(ROWS))


@pytest.mark.parametrize("done", [True, False])
def test_a_commit_that_nobody_heard_of_is_looked_up(sink: Sink, read: Read, monkeypatch: pytest.MonkeyPatch, done: bool) -> None:
    commit = NativeProducer.commit_transaction

    def unheard(self: NativeProducer, timeout: float | None = None) -> None:
        if done:
            commit(self, timeout)
        raise KafkaTimeoutError("commit_transaction(): no outcome")

    with monkeypatch.context() as patch:
        patch.setattr(NativeProducer, "commit_transaction", unheard)
        if done:
            assert sink.write([numbered(0)]).records == ROWS
        else:
            with pytest.raises(KafkaTimeoutError, match="no outcome"):
                sink.write([numbered(0)])
    assert seen(read, sink) == (list(range(ROWS)) if done else [])
    assert sink.write([numbered(0)]).replayed is done
    assert seen(read, sink) == list(range(ROWS))


DYING = """
import os, sys
from tests.spark.live.test_sink_exactly_once import ROWS, numbered
from gkafka.nativeproducer import NativeProducer
from gkafka.spark.exactlyonce import Task, write_once
from gkafka.spark.sinkoptions import parse_sink
hosts, topic, point = sys.argv[1:]
commit = NativeProducer.commit_transaction
def dies(self, timeout=None):
    if point == "after":
        commit(self, timeout)
    os.kill(os.getpid(), 9)
def rows():
    yield numbered(0)
    if point == "midway":
        os.kill(os.getpid(), 9)
NativeProducer.commit_transaction = dies
options = parse_sink({"kafka.bootstrap.servers": hosts, "topic": topic, "exactlyOnce": "transactional"})
write_once(options, rows(), Task("gkafka-spark", topic, 0, 0))
"""


@pytest.mark.parametrize("point", ["midway", "before", "after"])
def test_a_worker_that_is_killed_is_replayed_exactly(sink: Sink, read: Read, point: str) -> None:
    died = subprocess.run([sys.executable, "-c", DYING, sink.kafka.hosts, sink.topic, point], cwd=ROOT, timeout=120)
    assert died.returncode == -9
    assert sink.write([numbered(0)]).replayed is (point == "after")
    assert seen(read, sink) == list(range(ROWS))


@pytest.fixture
def killing(spark: SparkSession) -> Iterator[SparkSession]:
    spark.dataSource.register(KilledDataSource)
    spark.conf.set(STATELESS_AQE, "false")
    yield spark
    spark.conf.unset(STATELESS_AQE)


@pytest.mark.timeout(600)
def test_a_first_micro_batch_that_is_run_again_when_records_are_gone_is_there_once(
    killing: SparkSession, kafka: KafkaCluster, topic: Callable[..., str], read: Read, tmp_path: Path
) -> None:
    """Task 0 was killed, task 1 has written; what is left of the larger partition is by now smaller than the other, which has to stay task 1 all the same."""
    source, copy = topic(), topic()
    producer = Producer({"bootstrap.servers": kafka.hosts, "linger.ms": 5})
    for partition, count in enumerate((45_000, 40_000)):
        for _ in range(count):
            producer.produce(source, b"v", partition=partition)
            producer.poll(0)
        assert producer.flush(60) == 0

    def begin(kill: str) -> StreamingQuery:
        frame = from_topic(killing, kafka.hosts, source, tasks="2", failOnDataLoss="false")
        return to_topic(frame, tmp_path, kafka.hosts, copy, "transactional", kill=kill, trigger=NOW)

    strike = Strike(BEHIND, 1, 0, str(tmp_path))
    killed = begin("|".join(map(str, strike)))
    with pytest.raises(StreamingQueryException):
        assert killed.awaitTermination(PATIENCE_S), killed.status
    assert strike.fallen.exists(), killed.exception()
    assert copied(read(copy)) == Counter((1, offset) for offset in range(40_000))
    delete_before(kafka, source, 20_000)
    query = begin("")
    assert query.awaitTermination(PATIENCE_S), query.status
    assert copied(read(copy)) == Counter([*((0, offset) for offset in range(20_000, 45_000)), *((1, offset) for offset in range(40_000))])
