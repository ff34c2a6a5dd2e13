"""A real Spark with the JVM connector beside gkafka's, on a real Kafka."""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pyspark
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, TopicPartition
from pyspark import SparkContext
from pyspark.sql import DataFrame, Row, SparkSession

from tests.kit.clock import now
from tests.live.classes import record_spark
from tests.live.kafka import KafkaCluster
from tests.live.maven import MissingToolError
from tests.live.pool import POOL
from tests.spark.connector import connector_jars

SPARK = tuple(map(int, pyspark.__version__.split(".")[:2]))
ROOT = Path(__file__).resolve().parents[3]
_numbers = itertools.count(1)

DEADLINE_S = 60.0
PYTHON = {
    "PYSPARK_PYTHON": str(ROOT / "examples" / "spark_python.sh"),
    "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
}
"""Of whoever starts a Spark: its processes of Python, some twenty, do not compile PySpark first. Spark gives each only 10 s to come up."""

Frame = Callable[..., DataFrame]


@pytest.fixture(scope="session")
def _pool() -> Iterator[None]:
    yield
    POOL.stop()


@pytest.fixture
def kafka(_pool: None) -> KafkaCluster:
    return POOL.get("4.2.0")


class Session:
    """The Spark session of these tests: started when a test first asks, and anew when its JVM has ended or, in the same one, its context was stopped."""

    def __init__(self) -> None:
        self._running: SparkSession | None = None
        self._patch = pytest.MonkeyPatch()

    def get(self) -> SparkSession:
        if self._running is not None and not has_jvm():
            self.stop()
        if self._running is None or not is_alive(self._running):
            self._running = self._start()
        return self._running

    def stop(self) -> None:
        """End it, whatever state it is in, so that the next one begins with a JVM of its own."""
        gateway, self._running = SparkContext._gateway, None
        if gateway is not None:
            with contextlib.suppress(Exception):  # py4j closes sockets whose other end is gone
                gateway.shutdown()
            gateway.proc.kill()
            gateway.proc.wait()
            gateway.proc.stdin.close()
        SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
        SparkSession._instantiatedSession = None
        SparkSession._activeSession = None  # of some releases
        self._patch.undo()

    def _start(self) -> SparkSession:
        try:
            connector = connector_jars(pyspark.__version__)
        except MissingToolError as error:
            pytest.fail(f"{error} (or set GKAFKA_LIVE=skip)", pytrace=False)
        record_spark()
        for name, value in PYTHON.items():
            self._patch.setenv(name, value)
        self._patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])))
        self._patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        return (
            SparkSession.builder.master("local[2]")
            .config("spark.jars", ",".join(map(str, connector)))
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.log.level", "OFF")
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.sql.session.timeZone", "UTC")
            .getOrCreate()
        )


def is_alive(session: SparkSession) -> bool:
    """Return whether its JVM runs, and its context takes jobs."""
    context = session.sparkContext._jsc
    return has_jvm() and context is not None and not context.sc().isStopped()


def has_jvm() -> bool:
    gateway = SparkContext._gateway
    return gateway is not None and gateway.proc.poll() is None


SESSION = Session()


@pytest.fixture(scope="session")
def _session(_pool: None) -> Iterator[Session]:
    yield SESSION
    SESSION.stop()


@pytest.fixture
def spark(_session: Session) -> SparkSession:
    """The session, looked at before each test: a test that ran out of time may have ended its JVM."""
    POOL.get("4.2.0")  # without Java this says what to install, or skips
    return _session.get()


@pytest.fixture
def topic(kafka: KafkaCluster) -> Callable[..., str]:
    """Makes a topic that no other test uses."""

    def make(partitions: int = 2, **configs: object) -> str:
        name = f"spark-{next(_numbers)}"
        kafka.create_topic(name, partitions, configs={key.replace("_", "."): value for key, value in configs.items()})
        return name

    return make


@pytest.fixture
def frame(spark: SparkSession, kafka: KafkaCluster) -> Frame:
    """A DataFrame of "kafka" or "gkafka"; a name's "__" stands for a dot."""

    def load(source: str, *, schema: str | None = None, **options: str) -> DataFrame:
        reader = spark.read.format(source).option("kafka.bootstrap.servers", kafka.hosts)
        for name, value in options.items():
            reader = reader.option(name.replace("__", "."), value)
        return (reader if schema is None else reader.schema(schema)).load()

    return load


@pytest.fixture
def same(frame: Frame) -> Callable[..., int]:
    """Reads with both connectors, compares schema and rows, and returns how many rows there are."""

    def compare(**options: str) -> int:
        theirs, ours = frame("kafka", **options), frame("gkafka", **options)
        assert theirs.schema == ours.schema
        rows = in_order(ours)
        assert rows == in_order(theirs)
        return len(rows)

    return compare


@pytest.fixture
def read(kafka: KafkaCluster) -> Callable[..., list[Message]]:
    """All records of a topic that are committed, read by librdkafka; in the order of each partition."""

    def records(*topics: str, partitions: int = 2) -> list[Message]:
        consumer = Consumer(
            {"bootstrap.servers": kafka.hosts, "group.id": "eye", "isolation.level": "read_committed", "enable.partition.eof": True}
        )
        try:
            left = {(topic, p) for topic in topics for p in range(partitions)}
            consumer.assign([TopicPartition(*tp, OFFSET_BEGINNING) for tp in left])
            found: list[Message] = []
            deadline = now() + DEADLINE_S
            while left:
                message = consumer.poll(1)
                assert now() < deadline, f"nothing ended {left}"
                if message is None:
                    continue
                error = message.error()
                if error is None:
                    found.append(message)
                elif error.name() == "_PARTITION_EOF":
                    left.discard((message.topic(), message.partition()))
                else:
                    raise AssertionError(error)
            return found
        finally:
            consumer.close()

    return records


def in_order(frame: DataFrame) -> list[Row]:
    return sorted(frame.collect(), key=lambda row: (row.topic, row.partition, row.offset))
