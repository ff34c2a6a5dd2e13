"""Whatever process of a stream is killed, and whenever: started again from its checkpoint, it has read each record once; what it wrote exactly once is
there once, and what it wrote plainly at least once. One stream goes on from kill to kill, in an order and at moments that the seed chooses.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Message
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from gkafka.spark.offsets import tasks_of
from gkafka.spark.update import STATELESS_AQE
from tests.effort import one_of, seeds
from tests.kit.clock import now
from tests.live.kafka import KafkaCluster
from tests.spark.live.conftest import PYTHON, ROOT
from tests.spark.live.killing import READING, WRITING, KilledDataSource, Strike, from_topic, to_parquet, to_topic
from tests.spark.live.test_oracle import NewTopic, write

PATIENCE_S = 120
PARTITIONS = 4
CAP = "40"  # records in a micro-batch, so that a run has several
MORE = 120  # records before each run
NOW = {"availableNow": True}
Read = Callable[..., list[Message]]
Strikes = Iterator[Strike]

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(autouse=True)
def _ready(spark: SparkSession) -> Iterator[None]:
    spark.dataSource.register(KilledDataSource)
    spark.conf.set(STATELESS_AQE, "false")
    yield
    spark.conf.unset(STATELESS_AQE)


def strikes(points: tuple[str, ...], chance: random.Random, folder: Path) -> Strikes:
    """One at each point, in any order."""
    for point in chance.sample(points, len(points)):
        place = folder / point.replace(" ", "-")
        place.mkdir()
        yield Strike(point, chance.randint(1, 3), chance.randint(0, 8), str(place))


def survive(begin: Callable[[str], StreamingQuery], feed: Callable[[], None], all_strikes: Strikes) -> None:
    """Runs until each strike has ended one, and then one to the end."""
    for strike in all_strikes:
        feed()
        query = begin("|".join(map(str, strike)))
        with pytest.raises(StreamingQueryException):  # the query, too: local[2] tries no task again
            assert query.awaitTermination(PATIENCE_S), (strike, query.status)
        assert strike.fallen.exists(), (strike, query.exception())
    query = begin("")
    assert query.awaitTermination(PATIENCE_S), query.status


class Source:
    """A topic that grows: 30 records in each partition at a time."""

    def __init__(self, kafka: KafkaCluster, topic: str) -> None:
        self.topic, self.count, self._kafka = topic, 0, kafka

    def grow(self, count: int = MORE) -> None:
        write(self._kafka, self.topic, count=count, partitions=PARTITIONS)
        self.count += count

    @property
    def places(self) -> list[tuple[int, int]]:
        return [(i % PARTITIONS, i // PARTITIONS) for i in range(self.count)]


def copied(messages: list[Message]) -> Counter[tuple[int, int]]:
    """Where the records of a copy were read from, and how often each is there."""
    found: Counter[tuple[int, int]] = Counter()
    for message in messages:
        partition, offset = bytes(message.value() or b"").split(b":")
        assert int(partition) == message.partition()
        found[int(partition), int(offset)] += 1
    return found


def in_parquet(spark: SparkSession, folder: Path) -> list[tuple[int, int]]:
    return [(row.partition, row.offset) for row in spark.read.parquet(str(folder / "rows")).collect()]


@pytest.mark.parametrize("seed", seeds(3, quick=0))  # all its points are the exactly-once sink's, too
def test_the_source_reads_each_record_once(spark: SparkSession, kafka: KafkaCluster, topic: NewTopic, tmp_path: Path, seed: int) -> None:
    source = Source(kafka, topic(PARTITIONS))

    def begin(kill: str) -> StreamingQuery:
        return to_parquet(
            from_topic(spark, kafka.hosts, source.topic, maxOffsetsPerTrigger=CAP, kill=kill, tasks="2"), tmp_path, trigger=NOW
        )

    survive(begin, source.grow, strikes(READING, random.Random(seed), tmp_path))
    assert sorted(in_parquet(spark, tmp_path)) == sorted(source.places)


@pytest.mark.parametrize(
    ("exactly_once", "points"),
    [
        pytest.param("transactional", ("latestOffset", "during the end", "commit"), id="once"),
        pytest.param("transactional", (*READING, *WRITING), id="once everywhere", marks=pytest.mark.thorough),
        pytest.param("none", WRITING, id="plain", marks=pytest.mark.thorough),
    ],
)
@pytest.mark.parametrize("seed", seeds(3))
def test_the_sink_writes_each_record(
    spark: SparkSession,
    kafka: KafkaCluster,
    topic: NewTopic,
    read: Read,
    tmp_path: Path,
    seed: int,
    exactly_once: str,
    points: tuple[str, ...],
) -> None:
    source, copy = Source(kafka, topic(PARTITIONS)), topic(PARTITIONS)
    plans = itertools.cycle(("partitions", "2"))  # each run begins with a batch of the other plan: four tasks, or two of two partitions

    def begin(kill: str) -> StreamingQuery:
        frame = from_topic(spark, kafka.hosts, source.topic, maxOffsetsPerTrigger=CAP, kill=kill, tasks=next(plans))
        return to_topic(frame, tmp_path, kafka.hosts, copy, exactly_once, kill=kill, trigger=NOW)

    survive(begin, source.grow, strikes(points, random.Random(seed), tmp_path))
    assert plans_of(tmp_path) == {None, 2}
    check(copied(read(copy, partitions=PARTITIONS)), source, exactly_once)


def plans_of(folder: Path) -> set[int | None]:
    """The numbers of tasks of the micro-batches of a checkpoint."""
    logged = [path.read_text().splitlines()[-1] for path in (folder / "checkpoint" / "offsets").iterdir() if path.name.isdigit()]
    return {tasks_of(json.loads(text)) for text in logged}


def check(found: Counter[tuple[int, int]], source: Source, exactly_once: str) -> None:
    if exactly_once == "transactional":
        assert found == Counter(source.places)
    else:
        assert set(found) == set(source.places)


@pytest.mark.parametrize("sinks", one_of(("transactional",), ("transactional", "none")), ids="-".join)
@pytest.mark.parametrize("seed", seeds(3))
def test_a_driver_that_is_killed_leaves_nothing_out_and_nothing_twice(
    spark: SparkSession, kafka: KafkaCluster, topic: NewTopic, read: Read, tmp_path: Path, seed: int, sinks: tuple[str, ...]
) -> None:
    source, copies = Source(kafka, topic(PARTITIONS)), {name: topic(PARTITIONS) for name in sinks}
    source.grow(20_000)
    with driver(kafka.hosts, source.topic, copies.get("none", ""), copies["transactional"], str(tmp_path)) as process:
        wait_for(lambda: all(done(tmp_path / name) for name in ("parquet", *copies)), process)
        wait_for(lambda: done(tmp_path / "transactional", "offsets") > done(tmp_path / "transactional"), process)  # it is in a micro-batch
        time.sleep(random.Random(seed).uniform(0, 0.3))
        assert process.poll() is None, "the driver has ended by itself"
    assert all(done(tmp_path / name) < source.count // int(CAP) for name in ("parquet", *copies)), "it was at its end"
    # The first at once: workers that the driver has left may still be writing. The others one by one: Spark gives a Python process 10 s to come up.
    frame = from_topic(spark, kafka.hosts, source.topic)
    for name in sinks:
        finish(lambda name=name: to_topic(frame, tmp_path / name, kafka.hosts, copies[name], name, trigger=NOW))
    finish(lambda: to_parquet(frame, tmp_path / "parquet", trigger=NOW))
    assert sorted(in_parquet(spark, tmp_path / "parquet")) == sorted(source.places)
    for name, copy in copies.items():
        check(copied(read(copy, partitions=PARTITIONS)), source, name)


def finish(begin: Callable[[], StreamingQuery]) -> None:
    """To its end. Its first task may be fenced by a worker that the driver has left, which came to the same transaction later; local[2] tries none twice."""
    query = begin()
    try:
        assert query.awaitTermination(PATIENCE_S), query.status
    except StreamingQueryException as error:
        if "FencedError" not in str(error):
            raise
        query = begin()
        assert query.awaitTermination(PATIENCE_S), query.status


@contextlib.contextmanager
def driver(*given: str) -> Iterator[subprocess.Popen[bytes]]:
    """A driver in a process group of its own, and its JVM with it: both end by SIGKILL."""
    environment: dict[str, Any] = {**os.environ, **PYTHON, "SPARK_LOCAL_IP": "127.0.0.1"}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    command = [sys.executable, "-m", "tests.spark.live.killing", *given]
    process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, start_new_session=True)
    try:
        yield process
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def done(folder: Path, log: str = "commits") -> int:
    """How many micro-batches a checkpoint says are done; log="offsets": planned."""
    place = folder / "checkpoint" / log
    return sum(path.name.isdigit() for path in place.iterdir()) if place.is_dir() else 0


def wait_for(what: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    deadline = now() + 2 * PATIENCE_S
    while not what():
        assert process.poll() is None, "the driver has ended by itself"
        assert now() < deadline, "the driver's streams do not move"
        time.sleep(0.02)
