"""The same calls of KafkaProducer on kafka-python 3 and on gkafka.kafka, on the same broker: equal values, types and exceptions, and the same records."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import pytest

from tests.live.differential import Said, Script, check
from tests.live.kafka import KafkaCluster
from tests.live.peer import Peer

LIMIT_S = 60.0
PARTITIONER, TRANSACTIONS, HEADERS = "a partitioner", "transactions out of order, or without a `transactional_id`", "`headers`"
WRONG_TYPE = "`send()` with a topic or a partition of a wrong type"
DIFFERENT = {
    "a function chooses": PARTITIONER,
    "what it was asked": PARTITIONER,
    "one that raises": PARTITIONER,
    "one that gives what there is not": PARTITIONER,
    "one that gives text": PARTITIONER,
    "a partition of text": WRONG_TYPE,
    "a topic that is a number": WRONG_TYPE,
    "a topic of bytes": "`topic` as bytes",
    "a serializer of the wrong type": "a serializer of a wrong type",
    "headers in a tuple": HEADERS,
    "headers in lists": HEADERS,
    "headers of None": HEADERS,
    "init_transactions without an id": TRANSACTIONS,
    "begin_transaction without an id": TRANSACTIONS,
    "commit_transaction without an id": TRANSACTIONS,
    "abort_transaction without an id": TRANSACTIONS,
    "send before begin": TRANSACTIONS,
    "begin before init": "`begin_transaction()` without `init_transactions()`",
    "acks=0": "`acks=0`",
    "all fields of metadata": "`RecordMetadata`",
    "bootstrap_connected": "`bootstrap_connected()`",
    "default of acks": "`acks`, `retries`",
    "default of retries": "`acks`, `retries`",
    "default of enable_idempotence": "`acks`, `retries`",
    "default of reconnect_backoff_max_ms": "`reconnect_backoff_max_ms`",
    "retries with idempotence": "`retries=0` with `enable_idempotence=True`",
    "get of what lingers": "a future's `get()` while its batch lingers",
    "over max_request_size": "a record over `max_request_size`",
    "its exception": "`type(error).__name__`",
    "told to errbacks": "`type(error).__name__`",
}
"""Step -> the row of docs/kafka-python.md that says why it differs."""


class Play(Script):
    """One run of the script with one library. topic: of three partitions, for what both write; odd: the same for what one of them may refuse;
    small: one that takes 2,000 bytes; absent: a name that no topic has yet.
    """

    def __init__(self, library: str, hosts: str, topic: str, odd: str, small: str, absent: str, **options: Any) -> None:
        super().__init__(rename={topic: "the topic", small: "the small one", absent: "none yet"})
        self.k = importlib.import_module(library)
        importlib.import_module(f"{library}.partitioner")
        self.topic, self.odd, self.small, self.absent = topic, odd, small, absent
        self.options = {"bootstrap_servers": hosts, "max_block_ms": 3000, "request_timeout_ms": 10000, "retries": 100, **options}

    def producer(self, **options: Any) -> Any:
        return self.k.KafkaProducer(**{**self.options, **options})

    def run(self) -> dict[str, Said]:
        for part in (self.of_options, self.sending, self.futures, self.refused, self.serializing, self.partitioning, self.bounds):
            part()
        for part in (self.of_topics, self.compressing, self.without_answers, self.in_transactions, self.at_the_end):
            part()
        return self.said

    def of_options(self) -> None:
        step = self.step
        for name, options in {
            "an unknown option": {"acsk": 1},
            "a codec that there is not": {"compression_type": "brotli"},
            "zstd for an old release": {"compression_type": "zstd", "api_version": (2, 0)},
            "zstd for a new release": {"compression_type": "zstd", "api_version": (2, 1)},
            "servers that are none": {"bootstrap_servers": "h:p"},
            "a serializer of the wrong type": {"value_serializer": 5},
            "retries with idempotence": {"enable_idempotence": True, "retries": 0},
            "acks with idempotence": {"enable_idempotence": True, "acks": 1},
            "a transaction without idempotence": {"transactional_id": "x", "enable_idempotence": False},
        }.items():
            step(name, lambda options=options: self.producer(**options).close())
        with self.producer() as p:
            step("bootstrap_connected", p.bootstrap_connected)
            step("config", lambda: p.config["linger_ms"])
            step("type of metrics", lambda: type(p.metrics()).__name__)
            step("metrics of a producer", lambda: "producer-metrics" in p.metrics())
        for option in ("linger_ms", "batch_size", "max_request_size", "request_timeout_ms", "retry_backoff_ms", "compression_type"):
            step(f"default of {option}", lambda option=option: self.k.KafkaProducer.DEFAULT_CONFIG[option])
        for option in ("acks", "retries", "enable_idempotence", "max_in_flight_requests_per_connection", "reconnect_backoff_max_ms"):
            step(f"default of {option}", lambda option=option: self.k.KafkaProducer.DEFAULT_CONFIG[option])

    def sending(self) -> None:
        """Every form of send()."""
        step, topic = self.step, self.topic
        with self.producer() as p:

            def sent(*args: Any, **more: Any) -> Any:
                return p.send(*args, **more).get(timeout=LIMIT_S)

            step("send", lambda: sent(topic, b"value", partition=0))
            step("send by keyword", lambda: sent(topic=topic, value=b"v", key=b"k", headers=[("h", b"1")], partition=0, timestamp_ms=1234))
            step("send in order", lambda: sent(topic, b"v", b"k", [("h", b"1"), ("h", b"")], 0, 99))
            step("a tombstone", lambda: sent(topic, key=b"k", partition=0))
            step("an empty value", lambda: sent(topic, b"", partition=0))
            step("an empty key", lambda: sent(topic, b"v", key=b"", partition=0))
            step("a bytearray", lambda: sent(topic, bytearray(b"ba"), partition=0))
            step("a memoryview", lambda: sent(topic, memoryview(b"mv"), key=memoryview(b"k"), partition=0))
            step("no headers", lambda: sent(topic, b"v", headers=[], partition=0))
            step("a timestamp", lambda: sent(topic, b"v", partition=1, timestamp_ms=1500).timestamp)
            step("a time of now", lambda: sent(topic, b"v", partition=1).timestamp > 1_600_000_000_000)
            step("by key", lambda: [sent(topic, b"v", key=b"%d" % n).partition for n in range(20)])
            metadata = p.send(topic, b"v", partition=2).get(LIMIT_S)
            step("metadata", lambda: metadata)
            step("metadata is a tuple", lambda: isinstance(metadata, tuple))
            step("the first fields of metadata", lambda: metadata._fields[:5])
            step("all fields of metadata", lambda: metadata._fields)
            step("metadata unpacked", lambda: metadata[:4])

    def futures(self) -> None:
        step, topic = self.step, self.topic
        told: list[Any] = []
        with self.producer(linger_ms=60_000) as p:
            future = p.send(topic, b"v", partition=2)
            step("type of a future", lambda: type(future).__name__)
            step("is a Future", lambda: isinstance(future, importlib.import_module(f"{self.k.__name__}.future").Future))
            step(
                "before", lambda: (future.is_done, future.succeeded(), future.failed(), future.value, future.exception, future.retriable())
            )
            step("add_callback gives the future", lambda: future.add_callback(told.append) is future)
            step("add_errback gives the future", lambda: future.add_errback(lambda error: told.append("wrong")) is future)
            step("add_both gives the future", lambda: future.add_both(lambda metadata: told.append("both")) is future)
            future.add_callback(lambda *args, **more: told.append((*args[:-1], args[-1].partition, more)), "a", last="z")
            step("flush", p.flush)
            step("after", lambda: (future.is_done, future.succeeded(), future.failed(), future.exception, future.retriable()))
            step("value", lambda: future.value)
            step("value is what get gives", lambda: future.value == future.get())
            self.wait(lambda: len(told) == 3, p)
            step("callbacks", lambda: list(told))
            future.add_callback(told.append)
            step("a callback afterwards", lambda: told[-1])
            future.add_callback(lambda _: 1 / 0)
            step("a callback that raised", lambda: future.succeeded())
            other = importlib.import_module(f"{self.k.__name__}.future").Future()
            step("chain", lambda: future.chain(other) is future)
            step("what was chained", lambda: (other.is_done, other.value))
            step("get of what lingers", lambda: type(p.send(self.odd, b"v", partition=0).get(timeout=0.5)).__name__)

    def refused(self) -> None:
        """What the broker does not take."""
        step, told = self.step, []
        with self.producer() as p:
            future = p.send(self.small, b"x" * 5000)
            future.add_callback(lambda _: told.append("wrong")).add_errback(told.append)
            step("too large for the topic", lambda: future.get(timeout=LIMIT_S))
            self.wait(lambda: told, p)
            step("told to errbacks", lambda: [type(error).__name__ for error in told])
            step("of what failed", lambda: (future.is_done, future.succeeded(), future.failed(), future.value, future.retriable()))
            step("its exception", lambda: type(future.exception).__name__)
            step("number of its exception", lambda: future.exception.errno)
            step("flush after a failure", p.flush)

    def serializing(self) -> None:
        step, topic, k = self.step, self.topic, self.k

        class Doubled(k.serializer.Serializer if hasattr(k, "serializer") else object):  # type: ignore[misc]
            def serialize(self, topic: str, *given: Any) -> Any:
                return None if given[-1] is None else given[-1] * 2

        def sent(value: Any, key: Any = None, **options: Any) -> Any:
            with self.producer(**options) as p:
                return p.send(topic, value, key=key, partition=1).get(LIMIT_S)

        step("functions", lambda: sent(5, "key", value_serializer=lambda v: b"%d" % v, key_serializer=str.encode))
        step("objects", lambda: sent(b"ab", b"k", value_serializer=Doubled(), key_serializer=Doubled()))
        step("a serializer of None", lambda: sent(None, b"k", value_serializer=lambda v: b"none" if v is None else v))
        step("a serializer that gives None", lambda: sent(b"v", b"k", value_serializer=lambda v: None))
        step("a serializer that raises", lambda: sent(b"v", value_serializer=lambda v: 1 / 0))
        step("a key serializer that raises", lambda: sent(b"v", b"k", key_serializer=lambda v: {}[v]))
        step("a serializer that gives text", lambda: sent(b"v", value_serializer=lambda v: "text"))
        step("a serializer that gives a number", lambda: sent(b"v", b"k", key_serializer=lambda v: 5))
        with self.producer() as p:
            for name, given in {
                "a text": {"value": "text"},
                "a number": {"value": 5},
                "a key of text": {"value": b"v", "key": "text"},
                "a list": {"value": [b"v"]},
                "nothing": {},
                "headers in a tuple": {"value": b"v", "headers": (("h", b"1"),)},
                "headers of text": {"value": b"v", "headers": [("h", "1")]},
                "headers of None": {"value": b"v", "headers": [("h", None)]},
                "headers named by bytes": {"value": b"v", "headers": [(b"h", b"1")]},
                "headers of three": {"value": b"v", "headers": [("h", b"1", b"2")]},
                "headers in lists": {"value": b"v", "headers": [["h", b"1"]]},
                "a partition that there is not": {"value": b"v", "partition": 9},
                "a partition below 0": {"value": b"v", "partition": -1},
                "a partition of text": {"value": b"v", "partition": "0"},
                "a time of text": {"value": b"v", "partition": 0, "timestamp_ms": "1"},
            }.items():
                step(name, lambda given=given: type(p.send(self.odd, **given).get(LIMIT_S)).__name__)

    def partitioning(self) -> None:
        step, asked = self.step, []

        def last(key: Any, every: Any, available: Any) -> Any:
            asked.append((key, sorted(every), sorted(available)))
            return every[-1]

        def sent(partitioner: Any, **given: Any) -> Any:
            with self.producer(partitioner=partitioner) as p:
                return p.send(self.odd, b"v", **given).get(LIMIT_S).partition

        step("a function chooses", lambda: sent(last, key=b"k"))
        step("what it was asked", lambda: list(asked))
        asked.clear()
        step("a partition outweighs it", lambda: (sent(last, partition=0), asked))
        step("one that raises", lambda: sent(lambda *given: 1 / 0))
        step("one that gives what there is not", lambda: sent(lambda *given: 99))
        step("one that gives text", lambda: sent(lambda *given: "x"))

        class Object(self.k.partitioner.Partitioner):  # type: ignore[misc,name-defined]
            def partition(self, topic: str, key: Any, serialized_key: Any, value: Any, serialized_value: Any, cluster: Any) -> int:
                asked.append((topic == odd, key, serialized_key, value, serialized_value, sorted(cluster.partitions_for_topic(topic))))
                return 2

        class Untyped:
            def partition(self, topic: str, serialized_key: Any, cluster: Any) -> int:
                return min(cluster.available_partitions_for_topic(topic)) + 1

        odd = self.odd
        asked.clear()
        step("an object chooses", lambda: sent(Object(), key=b"k"))
        step("what an object was asked", lambda: list(asked))
        step("an object of no such class", lambda: sent(Untyped(), key=b"k"))
        step("the sticky one with a key", lambda: [sent(self.k.partitioner.StickyPartitioner(), key=b"%d" % n) for n in range(5)])

    def bounds(self) -> None:
        step, topic = self.step, self.topic
        with self.producer(max_request_size=10_000, batch_size=200) as p:
            future = step("over max_request_size", lambda: p.send(topic, b"x" * 20_000, partition=0).failed())
            assert future in (None, True)
            step("over batch_size", lambda: p.send(topic, b"x" * 5000, partition=0).get(LIMIT_S))
        with self.producer(batch_size=0) as p:
            step("no batches", lambda: [p.send(topic, b"v", partition=0).get(LIMIT_S).offset for _ in range(2)][1] > 0)

    def of_topics(self) -> None:
        step = self.step
        with self.producer() as p:
            step("partitions_for", lambda: p.partitions_for(self.topic))
            step("partitions_for a name that none can have", lambda: p.partitions_for("a b"))
            step("a topic that is made", lambda: p.send(self.absent, b"v").get(LIMIT_S))
            step("partitions_for what was made", lambda: p.partitions_for(self.absent))
            step("a name that no topic can have", lambda: p.send("a b", b"v").get(LIMIT_S))
            step("a topic of bytes", lambda: p.send(self.odd.encode(), b"v").get(LIMIT_S).partition >= 0)
            step("a topic that is a number", lambda: p.send(5, b"v").get(LIMIT_S))

    def compressing(self) -> None:
        for codec in ("gzip", "snappy", "lz4", "zstd"):
            with self.producer(compression_type=codec, linger_ms=50) as p:
                futures = [p.send(self.topic, b"%d" % n * 50, partition=2) for n in range(5)]
                self.step(codec, lambda futures=futures: [future.get(LIMIT_S) for future in futures])

    def without_answers(self) -> None:
        with self.producer(acks=0, enable_idempotence=False) as p:
            self.step("acks=0", lambda: p.send(self.topic, b"v", partition=2).get(LIMIT_S))
            self.step("flush with acks=0", p.flush)
        for acks in (1, "all", -1):
            with self.producer(acks=acks, enable_idempotence=False) as p:
                self.step(f"{acks=}", lambda p=p: p.send(self.topic, b"v", partition=2).get(LIMIT_S))

    def in_transactions(self) -> None:
        step, topic = self.step, self.topic
        with self.producer() as p:
            for call in ("init_transactions", "begin_transaction", "commit_transaction", "abort_transaction"):
                step(f"{call} without an id", getattr(p, call))
        with self.producer(transactional_id=f"early-{topic}") as p:
            step("begin before init", p.begin_transaction)
        with self.producer(transactional_id=f"id-{topic}") as p:
            step("init_transactions", p.init_transactions)
            step("commit before begin", p.commit_transaction)
            step("send before begin", lambda: p.send(topic, b"v", partition=0).get(LIMIT_S))
            step("begin_transaction", p.begin_transaction)
            step("begin twice", p.begin_transaction)
            future = p.send(topic, b"kept", partition=0)
            offsets = {self.k.TopicPartition(topic, 0): self.k.OffsetAndMetadata(3, "", -1)}
            step("offsets", lambda: p.send_offsets_to_transaction(offsets, f"group-{topic}"))
            step("commit_transaction", p.commit_transaction)
            step("sent within", lambda: future.get(LIMIT_S))
            step("begin again", p.begin_transaction)
            dropped = p.send(topic, b"dropped", partition=0)
            p.flush()
            step("abort_transaction", p.abort_transaction)
            step("what was dropped", dropped.succeeded)

    def at_the_end(self) -> None:
        step, topic = self.step, self.topic
        p = self.producer(linger_ms=60_000)
        last = p.send(topic, b"last", partition=0)
        step("flush with a timeout", lambda: p.flush(timeout=LIMIT_S))
        step("flush of nothing", lambda: p.flush(0))
        pending = p.send(topic, b"pending", partition=0)
        step("close", p.close)
        step("what was pending", lambda: (last.succeeded(), pending.succeeded()))
        step("close twice", p.close)
        step("close once more", lambda: p.close(timeout=1))
        step("send when closed", lambda: p.send(topic, b"v"))
        step("flush when closed", p.flush)
        step("partitions_for when closed", lambda: p.partitions_for(topic))
        step("metrics when closed", lambda: type(p.metrics()).__name__)
        with self.producer() as p:
            step("enter", lambda: type(p).__name__)
            step("close with less than nothing", lambda: p.close(timeout=-1))

    def wait(self, ready: Callable[[], Any], producer: Any) -> None:
        """Callbacks come from a worker."""
        import gevent

        for _ in range(200):
            if ready():
                return
            gevent.sleep(0.05)


Played = tuple[dict[str, Said], list[Any]]
THEIRS: dict[str, Played] = {}
"""Broker -> what kafka-python did there: once for both handlers."""


@pytest.fixture
def play(kafka: KafkaCluster, new_topic: Any, new_name: Any, peer: Peer) -> Callable[..., Played]:
    """Plays the script: what was said, and what is in the log then."""

    def with_(library: str, **options: Any) -> Played:
        topic, odd, small, absent = new_topic(3), new_topic(3), new_topic(max_message_bytes=2000), new_name("absent")
        said = Play(library, kafka.hosts, topic, odd, small, absent, **options).run()
        log = [(*record[:1], *record[2:5], min(record.timestamp or 0, 10_000)) for record in peer.read_all(topic, 3)]
        return said, log

    return with_


@pytest.mark.usefixtures("quiet")
def test_a_script_of_producer_calls_gives_what_kafka_python_gives(kafka: KafkaCluster, play: Callable[..., Played], handler: str) -> None:
    """Behaviours 232, 233, 234, 235, 236, 237, 239, 303, 304, 305, 306, 309, 313."""
    if kafka.hosts not in THEIRS:
        THEIRS[kafka.hosts] = play("kafka")
    theirs, their_log = THEIRS[kafka.hosts]
    ours, our_log = play("gkafka.kafka", handler=handler)
    check(theirs, ours, DIFFERENT)
    assert our_log == their_log
