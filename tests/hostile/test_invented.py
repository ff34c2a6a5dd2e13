"""Metadata that name thousands of leaders that are none: a client keeps its deadlines, its threads and descriptors, and reads what is there."""

from __future__ import annotations

import contextlib
import copy
import itertools
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gkafka import KafkaClient
from gkafka.config import ConsumerConfig
from gkafka.core.fetcher import Fetcher
from gkafka.exceptions import DeliveryError, KafkaException
from gkafka.fetchdriver import FetchDriver
from gkafka.handlers import Handler, resolve_handler
from gkafka.nativeconsumer import NativeConsumer
from gkafka.testing import MockCluster
from tests.hostile.test_lies import Lying, Peak, silent_port
from tests.kit import clock
from tests.kit.ports import refused_port

TOPIC = "invented"
LEADERS = 240
AT_ONCE, KEPT = 32, 8
"""Connections that are opened at once here: of as many as clients open the machine that plays the tests would be slow."""
SLOW_S = 50.0
"""How late a call may be that was to end by its timeout, on a machine that does other things, too. It was late by as long as connections took that
nobody answered: here two minutes."""


@pytest.fixture(autouse=True)
def _few_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gkafka.net.openings.AT_ONCE", AT_ONCE)
    monkeypatch.setattr("gkafka.net.openings.KEPT", KEPT)


on_linux = pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="counts threads as Linux tells them")


@pytest.fixture(params=["threading", "gevent"])
def handler(request: pytest.FixtureRequest) -> Handler:
    return resolve_handler(request.param)


@pytest.fixture
def cluster() -> Iterator[MockCluster]:
    with MockCluster(topics={TOPIC: LEADERS + 1}) as one:
        yield one


@pytest.fixture
def client(cluster: MockCluster, handler: Handler) -> Iterator[KafkaClient]:
    one = KafkaClient(cluster.bootstrap, handler=handler, socket_timeout_ms=120_000, connect_timeout_ms=120_000)
    yield one
    began = clock.now()
    with contextlib.suppress(DeliveryError):  # of what a flush() that did not see the end has not told
        one.close(2)
    assert clock.now() - began < 2 + SLOW_S


def leading(port: int, *, first: int = 0) -> Callable[[Any], None]:
    """Each partition from the first one on is led by another broker, at this port."""

    def change(answer: Any) -> None:
        for id_ in range(100, 100 + LEADERS):
            told = copy.copy(answer.brokers[0])
            told.node_id, told.host, told.port = id_, "127.0.0.1", port
            answer.brokers.append(told)
        for partition in (p for topic in answer.topics for p in topic.partitions if p.partition_index >= first):
            partition.leader_id = 100 + partition.partition_index % LEADERS

    return change


@contextlib.contextmanager
def place(kind: str) -> Iterator[int]:
    """A port at which nobody answers."""
    if kind == "refusing":
        yield refused_port()
        return
    with silent_port() as port:
        yield port


@on_linux
@pytest.mark.parametrize("kind", ["silent", "refusing"])
def test_a_consumer_of_invented_leaders_keeps_its_time_and_so_many_connections(
    kind: str, cluster: MockCluster, client: KafkaClient, handler: Handler
) -> None:
    """2,500 at a silent port were 1,014 threads, and a call with 4 s took 23."""
    with place(kind) as port:
        cluster.on("Metadata", Lying(leading(port)).edit, times=None)
        client.connect(60)
        peak = Peak(handler)
        began = clock.now()
        consumer = client.get_consumer(TOPIC)
        assert clock.now() - began < SLOW_S, "until it is made"
        for timeout_ms in (300, 1500):
            began = clock.now()
            assert consumer.consume(timeout_ms=timeout_ms) is None
            assert clock.now() - began < timeout_ms / 1000 + SLOW_S
        peak.watches = False
        assert peak.threads < 2 * AT_ONCE
        assert peak.descriptors < 2 * AT_ONCE


@pytest.mark.parametrize("kind", ["silent", "refusing"])
def test_a_partition_with_a_leader_is_read_beside_invented_ones(kind: str, cluster: MockCluster, client: KafkaClient) -> None:
    with place(kind) as port:
        cluster.on("Metadata", Lying(leading(port, first=1)).edit, times=None)
        consumer, producer = client.get_consumer(TOPIC), client.get_producer(linger_ms=0)
        for n in range(6):
            began = clock.now()
            producer.produce(TOPIC, b"%d" % n, partition=0).result(60)
            message = consumer.consume(timeout_ms=60_000)
            assert message is not None
            assert message.value == b"%d" % n
            assert clock.now() - began < 2 + SLOW_S
            if n == 2:
                cluster.close_connections()  # and is found again: its connections wait for none of the others
            client.handler.sleep(0.02)


def test_failures_that_come_together_are_looked_at_together(
    cluster: MockCluster, client: KafkaClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All partitions were looked at for each of them."""
    polls, failures = [0], [0]
    poll, on_looked_up = Fetcher.poll, Fetcher.on_looked_up

    def counted_poll(self: Fetcher, *arguments: Any, **named: Any) -> Any:
        polls[0] += 1
        return poll(self, *arguments, **named)

    def counted_failure(self: Fetcher, lookup: Any, response: Any, error: Any, now: float) -> Any:
        failures[0] += error is not None
        return on_looked_up(self, lookup, response, error, now)

    monkeypatch.setattr(Fetcher, "poll", counted_poll)
    monkeypatch.setattr(Fetcher, "on_looked_up", counted_failure)
    cluster.on("Metadata", Lying(leading(refused_port())).edit, times=None)
    consumer = client.get_consumer(TOPIC)
    begun = clock.now()
    while failures[0] <= LEADERS / 2 and clock.now() - begun < 60:
        consumer.consume(timeout_ms=1500)
    assert failures[0] > LEADERS / 2
    assert polls[0] < failures[0] / 4


def test_whoever_makes_a_consumer_of_many_leaders_asks_none_of_them_itself(
    cluster: MockCluster, client: KafkaClient, handler: Handler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As long as others failed meanwhile it went on to ask: 1,500 that refuse kept get_consumer() for 2 to 20 s."""
    drivers: list[int] = []
    drive = FetchDriver._drive

    def seen(self: FetchDriver, share: Any, now: float) -> float:
        drivers.append(handler.current_id())
        return drive(self, share, now)

    monkeypatch.setattr(FetchDriver, "_drive", seen)
    cluster.on("Metadata", Lying(leading(refused_port())).edit, times=None)
    consumer = client.get_consumer(TOPIC)
    driver = consumer._engine._driver
    deadline = clock.now() + 60
    while driver.shares[0].fetcher.leaders <= AT_ONCE:
        assert clock.now() < deadline
        consumer.consume(timeout_ms=100)
    assert drivers
    assert handler.current_id() not in drivers


def test_invented_leaders_keep_a_hub_from_nobody_for_long(cluster: MockCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 1,500 that refuse, it was 2 s: all of them were looked at again and again in one turn of the hub. Here each checkpoint ends a turn."""
    import gevent

    from gkafka.handlers import hubs

    cluster.on("Metadata", Lying(leading(refused_port())).edit, times=None)
    polls: dict[int, int] = {}
    failures = [0]
    poll, on_looked_up = Fetcher.poll, Fetcher.on_looked_up

    def counted_poll(self: Fetcher, *arguments: Any, **named: Any) -> Any:
        turn = gevent.get_hub().loop.iteration
        polls[turn] = polls.get(turn, 0) + 1
        return poll(self, *arguments, **named)

    def counted_failure(self: Fetcher, *arguments: Any) -> Any:
        failures[0] += 1
        return on_looked_up(self, *arguments)

    monkeypatch.setattr(Fetcher, "poll", counted_poll)
    monkeypatch.setattr(Fetcher, "on_looked_up", counted_failure)
    ticks = itertools.count()
    monkeypatch.setattr(hubs, "perf_counter", lambda: float(next(ticks)))
    with KafkaClient(cluster.bootstrap, handler="gevent") as client:
        client.connect(60)
        consumer = client.get_consumer(TOPIC)
        deadline = clock.now() + 60
        while failures[0] < LEADERS / 2 and clock.now() < deadline:
            consumer.consume(timeout_ms=500)
    assert failures[0] >= LEADERS / 2
    assert max(polls.values()) <= 3


@on_linux
def test_a_producer_for_invented_leaders_has_so_many_connections(cluster: MockCluster, client: KafkaClient, handler: Handler) -> None:
    """500 of them were 502 threads."""
    with silent_port() as port:
        cluster.on("Metadata", Lying(leading(port)).edit, times=None)
        client.connect(60)
        peak = Peak(handler)
        producer = client.get_producer(delivery_timeout_ms=1500, linger_ms=0)
        for partition in range(LEADERS):
            producer.produce(TOPIC, b"x", partition=partition)
        began = clock.now()
        with pytest.raises(KafkaException):
            producer.flush(3)
        assert clock.now() - began < 3 + SLOW_S
        peak.watches = False
        assert peak.threads < 2 * AT_ONCE
        assert peak.descriptors < 2 * AT_ONCE


def test_a_call_that_waits_for_its_turn_of_the_hub_does_so_in_its_own_time(
    client: KafkaClient, handler: Handler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time began to run behind the checkpoint, at which greenlets of a busy hub wait for each other."""
    consumer = NativeConsumer(client._cluster, ConsumerConfig())
    consumer.start()
    monkeypatch.setattr(handler, "checkpoint", lambda: handler.sleep(0.2))
    waited: list[tuple[Any, ...]] = []
    monkeypatch.setattr(consumer.taker, "_wait_filled", lambda *asked: waited.append(asked))
    assert consumer.consume_batch(timeout_ms=100) == []
    assert waited == []
    consumer.stop()
