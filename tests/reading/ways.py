"""Every way of reading records, behind one small interface.

A way that keeps a consumer keeps it for all examples, on a topic of its own: opening and closing
consumers is what would take the time.
"""

from __future__ import annotations

import base64
import contextlib
import json
import re
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple
from unittest import mock

from gkafka import KafkaClient, kafka
from gkafka.common import IsolationLevel, TopicPartition
from gkafka.exceptions import CorruptRecordError, KafkaException, UnsupportedCodec
from gkafka.kafka import legacy
from gkafka.kafka.legacy import reading as legacy_reading
from gkafka.records import decode_columns
from gkafka.spark import fetch as spark_fetch
from gkafka.spark import options as spark_options
from gkafka.spark.connections import close_all
from gkafka.spark.planner import OffsetRange
from tests.cli.running import tool
from tests.public.aids import Runner
from tests.public.zoo import zoo_client
from tests.reading.model import Record
from tests.records.handmade import values

if TYPE_CHECKING:
    from gkafka.testing import MockCluster

__all__ = ["CHEAP", "WAYS", "Failure", "Way"]

PATIENCE_MS = 20_000
"""Longest wait for what must come. Passing tests never wait that long."""
LONG_MS = 1_000_000_000
SESSION_S = 300
"""Of members: greenlets have no turn between two plays, however long others are played."""
SMALL_BYTES = 700
"""What some ways ask for at most, so that a log comes in several answers and batches are cut."""


class Failure(NamedTuple):
    """An error, as far as the model speaks of it. next_offset: None where it does not say."""

    unsupported: bool
    offset: int | None
    next_offset: int | None


class Way:
    """One way of reading partition 0 of a topic.

    Handler: "threading" or "gevent". committed: reads only what is committed.
    """

    name: ClassVar[str]
    handlers: ClassVar[tuple[str, ...]] = ("threading", "gevent")
    levels: ClassVar[tuple[bool, ...]] = (False, True)
    has_group: ClassVar[bool] = True
    """Is there a group that commits?"""
    tells_where_to_go_on: ClassVar[bool] = True
    """Do its errors have a next_offset?"""
    stays: ClassVar[bool] = False
    """Does it go on by itself with what is written behind what it has read?"""

    def __init__(self, cluster: MockCluster, client: KafkaClient, handler: str, topic: str, committed: bool) -> None:
        self.cluster, self.client, self.handler, self.topic, self.committed = cluster, client, handler, topic, committed
        self.tp = TopicPartition(topic, 0)
        self.group = f"group of {topic}" if self.has_group else None
        self.open()

    def open(self) -> None:
        """Make what is kept."""

    def seek(self, offset: int) -> None:
        """Go on from an offset."""
        raise NotImplementedError

    def read(self) -> list[Record]:
        """Make one call: what it hands out; [] if it came back with nothing."""
        raise NotImplementedError

    def position(self) -> int | None:
        """The offset of the next record; None where the way does not say."""
        return None

    def commit(self) -> None:
        """Commit where it stands."""

    def failure(self, error: KafkaException) -> Failure:
        """What an error says."""
        assert isinstance(error, (CorruptRecordError, UnsupportedCodec)), repr(error)
        assert (error.topic, error.partition) == (self.topic, 0), f"{error!r} does not name the partition: {error.topic}-{error.partition}"
        assert str(error.offset) in str(error), f"{error!r} does not say offset {error.offset}"
        next_offset = error.next_offset if isinstance(error, CorruptRecordError) else None
        return Failure(isinstance(error, UnsupportedCodec), error.offset, next_offset)

    def close(self) -> None:
        """End what is kept."""


def plain(message: Any) -> Record:
    """A message of gkafka's, pykafka's and kafka-python's API."""
    key, value = message.key if hasattr(message, "key") else message.partition_key, message.value
    return Record(message.offset, None if key is None else bytes(key), None if value is None else bytes(value))


def rows(batch: Any) -> list[Record]:
    """Of an Arrow batch with these columns."""
    columns = (batch.column(name).to_pylist() for name in ("offset", "key", "value"))
    return [Record(*row) for row in zip(*columns, strict=True)]


# -- gkafka's own ----------------------------------------------------------------------------------------------------------
class Native(Way):
    """client.get_consumer()."""

    stays = True

    count: ClassVar[int | None] = 1

    def open(self) -> None:
        self.consumer = self.client.get_consumer(
            group=self.group,
            auto_commit=False,
            isolation_level="read_committed" if self.committed else "read_uncommitted",
            fetch_error_backoff_ms=1,
            fetch_message_max_bytes=SMALL_BYTES if self.committed else 1 << 20,
            consume_timeout_ms=PATIENCE_MS,
        )
        self.consumer.assign({self.tp: 0})
        self._iteration: Iterator[Any] | None = None

    def seek(self, offset: int) -> None:
        self.consumer.seek(self.tp, offset)

    def read(self) -> list[Record]:
        return self._batch(self.count)

    def _batch(self, count: int | None) -> list[Record]:
        return [plain(m) for m in self.consumer.consume_batch(count, PATIENCE_MS)]

    def _one(self) -> list[Record]:
        message = self.consumer.consume()
        return [] if message is None else [plain(message)]

    def _next(self) -> list[Record]:
        if self._iteration is None:
            self._iteration = iter(self.consumer)
        try:
            return [plain(next(self._iteration))]
        except BaseException:
            self._iteration = None  # a generator that has raised is over
            raise

    def _arrow(self, count: int | None = None) -> list[Record]:
        return rows(self.consumer.consume_arrow(count, PATIENCE_MS))

    def position(self) -> int | None:
        return int(self.consumer.position(self.tp))

    def commit(self) -> None:
        self.consumer.commit()

    def close(self) -> None:
        self.consumer.stop()


class NativeBatch1(Native):
    name = "consume_batch(1)"


class NativeBatch3(Native):
    name = "consume_batch(3)"
    count = 3


class NativeBatch100(Native):
    name = "consume_batch(100)"
    count = 100


class NativeBatchAll(Native):
    name = "consume_batch(None)"
    count = None


class NativeOne(Native):
    name = "consume()"

    def read(self) -> list[Record]:
        return self._one()


class NativeIteration(Native):
    name = "iteration"

    def read(self) -> list[Record]:
        return self._next()


class NativeArrow(Native):
    name = "consume_arrow()"

    def read(self) -> list[Record]:
        return self._arrow()


class NativeArrow2(Native):
    name = "consume_arrow(2)"

    def read(self) -> list[Record]:
        return self._arrow(2)


class NativeMixed(Native):
    """One call after another of each kind, on the same batches."""

    name = "calls of all kinds"

    def open(self) -> None:
        super().open()
        self._turn = 0

    def read(self) -> list[Record]:
        calls = (self._one, partial(self._batch, 2), self._next, partial(self._arrow, 1), self._one, partial(self._arrow, 2))
        self._turn += 1
        return calls[self._turn % len(calls)]()


class NativeDeserialized(Native):
    """With a deserializer each call hands out through Consumer.consume_through()."""

    name = "consume_batch(100), deserialized"
    count = 100

    def open(self) -> None:
        super().open()
        self.consumer.stop()
        self.consumer = self.client.get_consumer(
            group=self.group,
            auto_commit=False,
            isolation_level="read_committed" if self.committed else "read_uncommitted",
            fetch_error_backoff_ms=1,
            value_deserializer=bytes,
        )
        self.consumer.assign({self.tp: 0})


class Raw(Way):
    """client.fetch_raw() and records.decode_columns(): the position is the caller's."""

    name = "fetch_raw"
    has_group = False

    def open(self) -> None:
        self._at, self._raw = 0, None

    def seek(self, offset: int) -> None:
        self._at, self._raw = offset, None

    def _fetch(self) -> Any:
        level = IsolationLevel.READ_COMMITTED if self.committed else IsolationLevel.READ_UNCOMMITTED
        most = SMALL_BYTES if self.committed else None
        return self.client.fetch_raw(self.topic, 0, self._at, most, level, timeout=PATIENCE_MS / 1000)

    def read(self) -> list[Record]:
        raw = self._raw = self._raw or self._fetch()
        aborted = {producer for producer, _ in raw.aborted}  # each has one transaction here
        found = decode_columns(
            raw.batches, start_offset=self._at, skip=lambda header: header.producer_id in aborted, topic=self.topic, partition=0
        )
        self._at = found.next_offset
        if found.complete:
            self._at, self._raw = max(self._at, raw.next_offset), None
        return rows(found.to_arrow())

    def position(self) -> int | None:
        return self._at


class RawStream(Raw):
    """client.fetch_stream() instead."""

    name = "fetch_stream"

    def open(self) -> None:
        super().open()
        self._stream: Any = None

    def seek(self, offset: int) -> None:
        super().seek(offset)
        self.close()

    def _fetch(self) -> Any:
        if self._stream is None:
            end = self.cluster.offsets(self.topic, 0)[1]
            level = IsolationLevel.READ_COMMITTED if self.committed else IsolationLevel.READ_UNCOMMITTED
            most = SMALL_BYTES if self.committed else None
            self._stream = self.client.fetch_stream(self.topic, 0, self._at, end, max_bytes=most, isolation=level)
        try:
            return next(self._stream)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None


# -- pykafka's -------------------------------------------------------------------------------------------------------------
class Pykafka(Way):
    """topic.get_simple_consumer()."""

    stays = True

    count: ClassVar[int | None] = None

    def options(self) -> dict[str, Any]:
        return {
            "isolation_level": "read_committed" if self.committed else "read_uncommitted",
            "fetch_error_backoff_ms": 1,
            "consumer_timeout_ms": PATIENCE_MS,
        }

    def open(self) -> None:
        options = {"fetch_message_max_bytes": SMALL_BYTES if self.committed else 1 << 20, **self.options()}
        self.consumer: Any = self.client.topics[self.topic].get_simple_consumer(self.group, **options)
        self._iteration: Iterator[Any] | None = None

    def seek(self, offset: int) -> None:
        self.consumer.reset_offsets([(0, offset)])

    def read(self) -> list[Record]:
        message = self.consumer.consume()
        return [] if message is None else [plain(message)]

    def position(self) -> int | None:
        held: int = self.consumer.held_offsets[0]
        return held + 1 if held >= 0 else 0

    def commit(self) -> None:
        self.consumer.commit_offsets()

    def close(self) -> None:
        self.consumer.stop()

    def _batch(self, count: int) -> list[Record]:
        return [plain(m) for m in self.consumer.consume_batch(count, PATIENCE_MS)]

    def _next(self) -> list[Record]:
        if self._iteration is None:
            self._iteration = iter(self.consumer)
        try:
            return [plain(next(self._iteration))]
        except StopIteration:
            self._iteration = None
            return []
        except BaseException:
            self._iteration = None
            raise


class Simple(Pykafka):
    name = "SimpleConsumer.consume()"


class SimpleBatch(Pykafka):
    name = "SimpleConsumer.consume_batch(100)"

    def read(self) -> list[Record]:
        return self._batch(100)


class SimpleIteration(Pykafka):
    name = "SimpleConsumer iteration"

    def read(self) -> list[Record]:
        return self._next()


class Balanced(Pykafka):
    """A member of a group by way of ZooKeeper."""

    name = "BalancedConsumer.consume()"
    levels = (False,)

    def open(self) -> None:
        self.keeper = zoo_client(Runner(self.handler), timeout=SESSION_S)
        topic = self.client.topics[self.topic]
        session = {"zookeeper": self.keeper, "zookeeper_connection_timeout_ms": SESSION_S * 1000}
        options = {**session, "rebalance_backoff_ms": 10, **self.options()}
        self.consumer = topic.get_balanced_consumer(self.group or "", **options)
        self._iteration = None


class BalancedBatch(Balanced):
    name = "BalancedConsumer.consume_batch(3)"

    def read(self) -> list[Record]:
        return self._batch(3)


class Managed(Pykafka):
    """A member of a group by way of its coordinator."""

    name = "ManagedBalancedConsumer.consume()"
    levels = (True,)

    def open(self) -> None:
        topic = self.client.topics[self.topic]
        with mock.patch("gkafka.managedbalancedconsumer.SESSION_S", SESSION_S):
            self.consumer = topic.get_balanced_consumer(self.group or "", managed=True, rebalance_backoff_ms=10, **self.options())
        self._iteration = None


class ManagedBatch(Managed):
    name = "ManagedBalancedConsumer.consume_batch(100)"

    def read(self) -> list[Record]:
        return self._batch(100)


class ManagedIteration(Managed):
    name = "ManagedBalancedConsumer iteration"

    def read(self) -> list[Record]:
        return self._next()


# -- kafka-python's --------------------------------------------------------------------------------------------------------
class KafkaPoll(Way):
    """gkafka.kafka.KafkaConsumer; as the member of a group where it reads what is committed."""

    stays = True
    name = "KafkaConsumer.poll()"
    most: ClassVar[int | None] = None

    def open(self) -> None:
        options = {
            "bootstrap_servers": self.cluster.bootstrap,
            "handler": self.handler,
            "group_id": self.group,
            "auto_offset_reset": "earliest",
            "enable_auto_commit": False,
            "retry_backoff_ms": 1,
            "session_timeout_ms": SESSION_S * 1000,  # KafkaConsumer takes no longer one by default
            "max_poll_interval_ms": LONG_MS,  # it may be idle while others are played
            "consumer_timeout_ms": PATIENCE_MS,
        }
        if self.committed:
            self.consumer = kafka.KafkaConsumer(self.topic, isolation_level="read_committed", **options)
            while not self.consumer.assignment():
                self.consumer.poll(100)
        else:
            self.consumer = kafka.KafkaConsumer(**options)
            self.consumer.assign([self.tp])

    def seek(self, offset: int) -> None:
        self.consumer.seek(self.tp, offset)

    def read(self) -> list[Record]:
        found = self.consumer.poll(PATIENCE_MS, self.most)
        assert set(found) <= {self.tp}
        return [plain(m) for m in found.get(self.tp, ())]

    def position(self) -> int | None:
        return self.consumer.position(self.tp)

    def commit(self) -> None:
        self.consumer.commit()

    def close(self) -> None:
        self.consumer.close()


class KafkaPoll3(KafkaPoll):
    name = "KafkaConsumer.poll(max_records=3)"
    most = 3


class KafkaIteration(KafkaPoll):
    name = "KafkaConsumer iteration"

    def read(self) -> list[Record]:
        try:
            return [plain(next(self.consumer))]
        except StopIteration:
            return []


class LegacySimple(Way):
    """kafka-python 0.9's SimpleConsumer."""

    stays = True
    name = "legacy SimpleConsumer.get_message()"
    levels = (False,)

    def open(self) -> None:
        self.of = legacy.KafkaClient(self.cluster.bootstrap, handler=self.handler)
        quick = partial(legacy_reading.Reader, fetch_error_backoff_ms=1)
        with mock.patch("gkafka.kafka.legacy.simple.Reader", quick):
            self.consumer: Any = legacy.SimpleConsumer(self.of, self.group, self.topic, auto_commit=False, iter_timeout=PATIENCE_MS / 1000)

    def seek(self, offset: int) -> None:
        self.consumer.seek(offset)

    def read(self) -> list[Record]:
        found = self.consumer.get_message(timeout=PATIENCE_MS / 1000)
        return [] if found is None else [self._record(found)]

    @staticmethod
    def _record(found: Any) -> Record:
        return Record(found.offset, found.message.key, found.message.value)

    def position(self) -> int | None:
        return int(self.consumer.offsets[0])

    def commit(self) -> None:
        self.consumer.commit()

    def close(self) -> None:
        self.consumer.stop()
        self.of.close()


class LegacySimpleMany(LegacySimple):
    """It waits for as many as it is asked for, up to the timeout: so for none that may not come."""

    name = "legacy SimpleConsumer.get_messages(3)"

    def read(self) -> list[Record]:
        found = self.consumer.get_messages(3, block=False)
        return [self._record(one) for one in found] or super().read()


class LegacyKafka(Way):
    """kafka-python 0.9's KafkaConsumer."""

    stays = True
    name = "legacy KafkaConsumer.next()"
    levels = (False,)

    def open(self) -> None:
        self._last: Any = None
        self.consumer: Any = legacy.KafkaConsumer(
            self.topic,
            bootstrap_servers=self.cluster.bootstrap,
            handler=self.handler,
            group_id=self.group,
            auto_offset_reset="smallest",
            refresh_leader_backoff_ms=1,
            consumer_timeout_ms=PATIENCE_MS,
        )

    def seek(self, offset: int) -> None:
        self._last = None
        self.consumer.set_topic_partitions((self.topic, 0, offset))

    def read(self) -> list[Record]:
        try:
            self._last = self.consumer.next()
        except legacy.ConsumerTimeout:
            return []
        return [plain(self._last)]

    def position(self) -> int | None:
        return int(self.consumer.offsets("fetch")[self.tp])

    def commit(self) -> None:
        if self._last is not None:
            self.consumer.task_done(self._last)
            self.consumer.commit()

    def close(self) -> None:
        self.consumer.close()


class LegacyKafkaMany(LegacyKafka):
    name = "legacy KafkaConsumer.fetch_messages()"

    def read(self) -> list[Record]:
        found = list(self.consumer.fetch_messages())
        self._last = found[-1] if found else self._last
        return [plain(m) for m in found]


class LegacyProcesses(Way):
    """kafka-python 0.9's MultiProcessConsumer: a process, which is new after each seek."""

    name = "MultiProcessConsumer.get_messages()"
    tells_where_to_go_on = False
    levels = (False,)

    def open(self) -> None:
        self.of = legacy.KafkaClient(self.cluster.bootstrap, handler=self.handler)
        self.consumer: Any = None

    def seek(self, offset: int) -> None:
        """It has no seek(): a group's offset is what it begins at."""
        self._end()
        committer = self.client.get_consumer(group=self.group, auto_commit=False)
        committer.commit({self.tp: offset})
        committer.stop()
        self.consumer = legacy.MultiProcessConsumer(self.of, self.group, self.topic, auto_commit=False)

    def read(self) -> list[Record]:
        found = self.consumer.get_messages(1, timeout=PATIENCE_MS / 1000)
        return [LegacySimple._record(one) for one in found]

    def position(self) -> int | None:
        return int(self.consumer.offsets[0])

    def commit(self) -> None:
        self.consumer.commit()

    def failure(self, error: KafkaException) -> Failure:
        assert isinstance(error, legacy.ConsumerProcessError), repr(error)
        return told(str(error), self.topic)

    def _end(self) -> None:
        if self.consumer is not None:
            self.consumer.stop()

    def close(self) -> None:
        self._end()
        self.of.close()


# -- Spark, the command line -----------------------------------------------------------------------------------------------
class Spark(Way):
    """What a task of format("gkafka") does, without Spark."""

    name = "Spark task"
    has_group = False
    handlers = ("threading",)

    def open(self) -> None:
        self._at = 0
        self._task: Iterator[Any] | None = None
        level = "read_committed" if self.committed else "read_uncommitted"
        given = {"kafka.bootstrap.servers": self.cluster.bootstrap, "subscribe": self.topic, "kafka.isolation.level": level}
        if self.committed:
            given |= {"batchRows": "3", "kafka.max.partition.fetch.bytes": str(SMALL_BYTES)}
        self._options = spark_options.parse(given)

    def seek(self, offset: int) -> None:
        self.close()
        self._at = offset

    def others(self) -> list[OffsetRange]:
        """What the task reads besides."""
        return []

    def read(self) -> list[Record]:
        if self._task is None:
            wanted = OffsetRange(self.topic, 0, self._at, self.cluster.offsets(self.topic, 0)[1])
            self._task = spark_fetch.read(self._options, (wanted, *self.others()), ("topic", "key", "value", "offset"))
        try:
            batch = next(self._task)
        except KafkaException:
            self.close()
            raise
        found = [row for row, topic in zip(rows(batch), batch["topic"].to_pylist(), strict=True) if topic == self.topic]
        # A task that is tried again begins anew. Here the next call goes on.
        self._at = found[-1].offset + 1 if found else self._at
        return found

    def close(self) -> None:
        if self._task is not None:
            self._task.close()  # type: ignore[attr-defined]  # it is a generator
            self._task = None


class SparkShared(Spark):
    """The same of a task that reads another partition, too."""

    name = "Spark task of two partitions"

    def open(self) -> None:
        super().open()
        beside = f"{self.topic}-beside"
        self.cluster.create_topic(beside)
        self.cluster.append(beside, 0, values(3))
        self._beside = OffsetRange(beside, 0, 0, 3)

    def others(self) -> list[OffsetRange]:
        return [self._beside]


class Tool(Way):
    """kafka-tools consume: each call is a run, from where the last one has come to."""

    name = "kafka-tools consume"
    has_group = False
    handlers = ("threading",)
    form: ClassVar[str] = "json"
    tells_where_to_go_on = False

    def open(self) -> None:
        self._at = 0

    def seek(self, offset: int) -> None:
        self._at = offset

    def start(self) -> list[str]:
        return ["--from", str(self._at)]

    def read(self) -> list[Record]:
        level = "--read-committed" if self.committed else "--read-uncommitted"
        shown = () if self.form == "json" else ("--show", "offset,key", "--null", "\\0")
        outcome = tool("consume", self.topic, "-b", self.cluster.bootstrap, "-f", self.form, *shown, level, *self.start())
        found = [self._record(line) for line in outcome.lines]
        self._at = found[-1].offset + 1 if found else self._at
        if outcome.code and not found:
            raise ToolFailed(outcome.err)
        self.said = outcome.err
        return found

    def _record(self, line: bytes) -> Record:
        if self.form == "json":
            shown = json.loads(line)
            return Record(shown["offset"], *(_json(shown, name) for name in ("key", "value")))
        offset, key, value = line.split(b"\t")
        return Record(int(offset), *(None if part == b"\0" else part for part in (key, value)))

    def failure(self, error: KafkaException) -> Failure:
        return told(str(error), self.topic)


class ToolText(Tool):
    name = "kafka-tools consume, text"
    form = "text"


class ToolGroup(Tool):
    """With a group, which commits what was printed."""

    name = "kafka-tools consume --group"
    has_group = True

    def open(self) -> None:
        super().open()
        self.helper = self.client.get_consumer(group=self.group, auto_commit=False)

    def seek(self, offset: int) -> None:
        super().seek(offset)
        self.helper.commit({self.tp: offset})

    def start(self) -> list[str]:
        assert self.group is not None
        return ["-g", self.group, "-p", "0"]

    def close(self) -> None:
        self.helper.stop()


class ToolFailed(KafkaException):
    """What kafka-tools said on standard error when it failed."""


def _json(shown: dict[str, Any], name: str) -> bytes | None:
    if f"{name}_base64" in shown:
        return base64.b64decode(shown[f"{name}_base64"])
    return None if shown[name] is None else str(shown[name]).encode()


def told(text: str, topic: str) -> Failure:
    """What a line says of damage."""
    found = re.search(re.escape(topic) + r"\[0\].*?offset (\d+): ", text)
    assert found is not None, f"no place in {text!r}"
    return Failure("codec" in text and "compressed with" not in text, int(found[1]), None)


WAYS: tuple[type[Way], ...] = (
    *(NativeOne, NativeBatch1, NativeBatch3, NativeBatch100, NativeBatchAll, NativeIteration, NativeArrow, NativeArrow2, NativeMixed),
    *(NativeDeserialized, Raw, RawStream, Simple, SimpleBatch, SimpleIteration, Balanced, BalancedBatch),
    *(Managed, ManagedBatch, ManagedIteration, KafkaPoll, KafkaPoll3, KafkaIteration),
    *(LegacySimple, LegacySimpleMany, LegacyKafka, LegacyKafkaMany, LegacyProcesses, Spark, SparkShared, Tool, ToolText, ToolGroup),
)
CHEAP = tuple(way for way in WAYS if way is not LegacyProcesses)
"""Those that many examples can afford: the other one starts processes."""


def end_all() -> None:
    """End what ways share."""
    with contextlib.suppress(KafkaException):
        close_all()
