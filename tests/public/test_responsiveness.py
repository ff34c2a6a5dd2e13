"""Greenlets beside gkafka get their turns (gevent acceptance 1 to 7), whatever is produced or consumed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gevent
import pyarrow as pa
import pytest

from gkafka.handlers.hubs import Turnstile
from gkafka.interceptors import ProducerInterceptor
from gkafka.records import RecordColumns
from gkafka.testing import Delay, MockCluster
from tests.kit.clock import busy
from tests.public.aids import LIMIT_S, Clock, Others, Runner, fill, read, stored

SOME_TURNS = 5
"""That others have, at the least, while somebody waits or is at work for a tenth of a second. `make stalls` measures how long they wait."""


class Looks:
    """How often gkafka's greenlets let others have their turn."""

    def __init__(self) -> None:
        self.count = 0

    def checkpoint(self, turnstile: Turnstile, hub: Any) -> None:
        self.count += 1
        turnstile.wait(hub)

    def since(self, work: Callable[[], object]) -> int:
        before = self.count
        work()
        return self.count - before


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Looks:
    """Each of their chances is one, however fast the machine is: not only those for which it is time, some 4 ms after the last one."""
    found = Looks()
    monkeypatch.setattr(Turnstile, "checkpoint", lambda turnstile, hub: found.checkpoint(turnstile, hub))
    monkeypatch.setattr("gkafka.taking.TURN_S", 0.0)
    monkeypatch.setattr("gkafka.callbacks.TURN_S", 0.0)
    return found


@pytest.fixture
def run() -> Runner:
    return Runner("gevent")


@pytest.fixture(autouse=True)
def whole_calls() -> None:
    """Not here: they leave others their turns."""


def test_a_tight_loop_of_produce(connect: Any, make_cluster: Any, looks: Looks) -> None:
    cluster = make_cluster(topics={"t": 4})
    producer = connect(cluster).get_producer()
    producer.produce("t", b"warm").result(LIMIT_S)
    value = b"x" * 500

    def work() -> None:
        for _ in range(30_000):
            producer.produce("t", value)

    assert looks.since(work) >= 400
    producer.flush(LIMIT_S)


@pytest.mark.parametrize("codec", ["gzip", "lz4", "snappy", "zstd"])
def test_compressing_large_batches(connect: Any, cluster: MockCluster, codec: str, looks: Looks) -> None:
    producer = connect(cluster).get_producer(compression=codec, batch_bytes=900_000, linger_ms=60_000)
    producer.produce("t", b"warm").result(LIMIT_S)
    values = [bytes((i * j) % 251 for j in range(2000)) for i in range(50)]

    def work() -> None:
        for i in range(2000):
            producer.produce("t", values[i % 50])
        producer.flush(LIMIT_S)

    assert looks.since(work) >= 40, "31 while they are made, and each batch has some"


def test_hundreds_of_greenlets_that_each_wait_for_their_own_record(connect: Any, make_cluster: Any, looks: Looks) -> None:
    cluster = make_cluster(topics={"t": 4})
    producer = connect(cluster).get_producer()
    producer.produce("t", b"warm").result(LIMIT_S)

    def work(n: int) -> int:
        return sum(producer.produce("t", b"x" * 200, b"%d" % n).result(LIMIT_S).offset >= 0 for _ in range(4))

    workers = [gevent.spawn(work, n) for n in range(500)]
    assert looks.since(lambda: gevent.joinall(workers, timeout=LIMIT_S)) >= 200
    assert sum(w.value for w in workers) == 2000


def test_consuming_at_full_speed(connect: Any, make_cluster: Any, looks: Looks) -> None:
    cluster = make_cluster(topics={"t": 4})
    client = connect(cluster)
    with client.get_producer(compression="lz4") as producer:
        for i in range(160_000):
            producer.produce("t", b"%0100d" % i, partition=i % 4)
    for size, total, least in ((1, 16_000, 10_000), (500, 160_000, 300), (None, 160_000, 8)):
        with client.topics["t"].get_simple_consumer(queued_max_messages=20_000) as consumer:
            before, got = looks.count, 0
            while got < total:
                got += len(consumer.consume_batch(size, 2000))
            assert looks.count - before >= least


def test_waiting_for_anything_leaves_the_hub_free(connect: Any, cluster: MockCluster) -> None:
    """4, 5, 10: with a broker that does not answer, each call returns at its time."""
    client = connect(cluster)
    fill(client, [b"x"])
    consumer = client.topics["t"].get_simple_consumer(consumer_group="g", offsets_commit_max_retries=0)
    read(consumer, 1)
    for api in ("Produce", "Metadata", "OffsetCommit", "ListOffsets"):
        cluster.on(api, Delay(120), times=None)
    producer = client.get_producer()
    producer.produce("t", b"y")
    for call in (
        lambda: producer.flush(0.2),
        lambda: client.list_offsets({("t", 0): -1}, timeout=0.2),
        lambda: consumer.consume_batch(1, 200),
        lambda: producer.close(0.2),
    ):
        with Others() as others, Clock() as clock:
            gevent.spawn(call).join(LIMIT_S)
        assert 0.15 < clock.seconds < 30
        assert others.turns >= SOME_TURNS
    consumer.stop()


def test_callbacks_of_many_records_let_others_in(connect: Any, cluster: MockCluster, run: Runner, looks: Looks) -> None:
    seen = [0]

    def count(delivery: Any) -> None:
        seen[0] += 1

    producer = connect(cluster).get_producer(linger_ms=100, batch_bytes=900_000)
    producer.produce("t", b"warm").result(LIMIT_S)
    for _ in range(20_000):
        producer.produce("t", b"x").add_done_callback(count)
    assert looks.since(lambda: run.until(lambda: seen[0] == 20_000)) >= 10_000
    assert len(stored(cluster)) == 20_001


@pytest.mark.parametrize("option", ["partitioner", "value_serializer", "interceptors"])
def test_columns_through_own_code(connect: Any, make_cluster: Any, option: str, looks: Looks) -> None:
    options: dict[str, Any] = {
        "partitioner": lambda ids, key: ids[0],
        "value_serializer": lambda value: value,
        "interceptors": [ProducerInterceptor()],
    }
    producer = connect(make_cluster(topics={"t": 4})).get_producer(buffer_bytes=1 << 28, **{option: options[option]})
    producer.produce("t", b"warm").result(LIMIT_S)
    columns = RecordColumns.from_arrow(pa.array([b"v"] * 50_000), pa.array([b"k"] * 50_000))
    assert looks.since(lambda: producer.produce_columns("t", columns)) >= 10_000


def test_a_partitioner_of_columns_that_takes_its_time(connect: Any, make_cluster: Any) -> None:
    had: list[int] = []

    def take_long(ids: list[int], key: bytes | None) -> int:
        busy(0.0005)
        had.append(others.turns)
        return ids[0]

    producer = connect(make_cluster(topics={"t": 4})).get_producer(partitioner=take_long)
    others = Others()
    producer.produce("t", b"warm", partition=0).result(LIMIT_S)
    with others:
        producer.produce_columns("t", RecordColumns.from_arrow(pa.array([b"v"] * 200)))
    assert len(had) == 200
    assert had[-1] >= SOME_TURNS, "in between, not only where records are appended in the end"


def test_deserializers_that_take_their_time(connect: Any, make_cluster: Any) -> None:
    client = connect(make_cluster(topics={"t": 4}))
    for p in range(4):
        fill(client, [b"%d" % n for n in range(200)], partition=p)

    def take_long(data: bytes) -> int:
        busy(0.0005)
        return int(data)

    with client.get_consumer("t", auto_offset_reset="earliest", value_deserializer=take_long) as consumer:
        got = 0
        with Others() as others:
            while got < 800:
                got += len(consumer.consume_batch(timeout_ms=LIMIT_S * 1000))
    assert others.turns >= SOME_TURNS
