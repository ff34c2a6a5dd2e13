"""What is closed, or dropped without a word, leaves nothing behind: no thread, no greenlet, no descriptor (B57, B58, G20)."""

from __future__ import annotations

import gc
import os
import threading
import weakref
from collections.abc import Callable
from typing import Any

import gevent
import pytest

from gkafka import KafkaClient
from gkafka.broker import Broker
from gkafka.exceptions import ConnectionFailedError, KafkaException
from gkafka.testing import Delay, MockCluster
from tests.public.aids import LIMIT_S, Clock, Runner, fill, read
from tests.public.conftest import Connect
from tests.public.test_consuming import numbers

FDS = "/proc/self/fd"


def greenlets() -> int:
    return sum(isinstance(o, gevent.Greenlet) and not o.dead for o in gc.get_objects())


def held(cluster: MockCluster) -> tuple[int, int, int, int]:
    """Threads, live greenlets, descriptors, connections at the broker."""
    gc.collect()
    fds = len(os.listdir(FDS)) if os.path.isdir(FDS) else 0
    # A thread that is not Python's own (the mock's) gets a dummy when it logs.
    return sum(not isinstance(t, threading._DummyThread) for t in threading.enumerate()), greenlets(), fds, cluster.connections()


def use(cluster: MockCluster, run: Runner) -> KafkaClient:
    """A client that has done a bit of everything."""
    client = KafkaClient(cluster.bootstrap, handler=run.name)
    fill(client, numbers(3))
    producer = client.topics["t"].get_producer(delivery_reports=True)
    producer.produce(b"x")
    consumer = client.topics["t"].get_simple_consumer(consumer_group="g", auto_commit_enable=True)
    read(consumer, 3)
    client.fetch_raw("t", 0, 0)
    next(client.fetch_stream("t", 0, 0, 2))
    client.get_producer().produce("t", b"y").add_done_callback(lambda d: None)
    return client


def settle(cluster: MockCluster, run: Runner, baseline: tuple[int, ...]) -> None:
    try:
        run.until(lambda: all(now <= then for now, then in zip(held(cluster), baseline, strict=True)))
    except AssertionError:
        names = [t.name for t in threading.enumerate()]
        raise AssertionError(f"(threads, greenlets, descriptors, connections): {held(cluster)}, before: {baseline}; {names}") from None


def test_clients_that_were_closed_leave_nothing(cluster: MockCluster, run: Runner) -> None:
    use(cluster, run).close()
    baseline = held(cluster)
    for _ in range(10):
        use(cluster, run).close()
    settle(cluster, run, baseline)


def test_clients_that_were_dropped_leave_nothing(cluster: MockCluster, run: Runner) -> None:
    """Nobody called close(): the garbage collector did the rest."""
    use(cluster, run).close()
    baseline = held(cluster)
    for _ in range(5):
        use(cluster, run)
    gc.collect()
    settle(cluster, run, baseline)


def made_and_dropped(client: KafkaClient, make: Callable[[KafkaClient], Any]) -> weakref.ref[Any]:
    thing = make(client)
    return weakref.ref(thing)


def a_consumer(client: KafkaClient) -> Any:
    consumer = client.topics["t"].get_simple_consumer(consumer_group="g", auto_commit_enable=True, num_consumer_fetchers=2)
    read(consumer, 3)
    return consumer


def a_producer(client: KafkaClient) -> Any:
    producer = client.get_producer()
    delivery = producer.produce("t", b"x")
    delivery.add_done_callback(lambda d: None)
    delivery.result(LIMIT_S)
    return producer


def a_documented_producer(client: KafkaClient) -> Any:
    producer = client.topics["t"].get_producer()
    producer.produce(b"x").result(LIMIT_S)
    return producer


@pytest.mark.parametrize("make", [a_consumer, a_producer, a_documented_producer], ids=lambda make: make.__name__)
def test_what_is_dropped_without_stop_ends_its_workers(client: KafkaClient, cluster: MockCluster, run: Runner, make: Any) -> None:
    fill(client, numbers(3))
    before = len(client.handler.workers())
    connections = cluster.connections()
    refs = [made_and_dropped(client, make) for _ in range(5)]
    run.until(lambda: gc.collect() >= 0 and all(ref() is None for ref in refs))
    # One connection of the client's own came with it, for offsets or for producing.
    run.until(lambda: len(client.handler.workers()) <= before + 1)
    run.until(lambda: cluster.connections() <= connections + 1)
    fill(client, numbers(1))


def consumed(consumer: Any) -> Any:
    read(consumer, 3)
    return consumer


def assigned(client: KafkaClient) -> Any:
    consumer = client.get_consumer(group="g")
    consumer.assign([("t", 0)])
    return consumed(consumer)


CONSUMERS: dict[str, Callable[[KafkaClient], Any]] = {
    "alone": lambda client: consumed(client.get_consumer("t", num_consumer_fetchers=2)),
    "assigned": assigned,
    "member": lambda client: consumed(client.get_consumer("t", "g")),
    "member of KIP-848": lambda client: consumed(client.get_consumer("t", "g", group_protocol="consumer")),
    "simple": a_consumer,
    "balanced": lambda client: consumed(client.topics["t"].get_balanced_consumer("g", managed=True)),
}
OF_THE_CLIENT = ("control", "offsets", "produce")


def drop_one(cluster: MockCluster, run: Runner, make: Callable[[KafkaClient], Any], kept: list[KafkaClient] | None) -> Any:
    """The handler of a client that was dropped with its consumer, or of one that is kept."""
    client = KafkaClient(cluster.bootstrap, handler=run.name)
    make(client)
    if kept is not None:
        kept.append(client)
    return client.handler


@pytest.mark.parametrize("name", CONSUMERS)
@pytest.mark.parametrize("keeps", [True, False], ids=["of a client that is kept", "with its client"])
def test_a_consumer_that_is_dropped_is_gone_by_itself(cluster: MockCluster, run: Runner, name: str, keeps: bool) -> None:
    with KafkaClient(cluster.bootstrap, handler=run.name) as another:
        fill(another, numbers(3))
    kept: list[KafkaClient] | None = [] if keeps else None
    handler = drop_one(cluster, run, CONSUMERS[name], kept)

    def is_gone() -> bool:
        gc.collect()  # again, if a worker had it in hand just then
        ends = all(keeps and any(role in w.name for role in OF_THE_CLIENT) for w in handler.workers())
        return ends and cluster.connections() <= (2 if keeps else 0)

    run.until(is_gone)
    for client in kept or ():
        client.close()
    if name in ("member", "balanced"):
        assert cluster.count("LeaveGroup") == 1


def test_messages_outlive_everything_they_came_from(run: Runner, cluster: MockCluster) -> None:
    client = KafkaClient(cluster.bootstrap, handler=run.name)
    fill(client, [b"%03d" % i * 50 for i in range(100)])
    with client.topics["t"].get_simple_consumer() as consumer:
        got = read(consumer, 100)
        detached = [m.detach() for m in got[:10]]
    client.close()
    ref = weakref.ref(client)
    del client, consumer
    run.until(lambda: gc.collect() >= 0 and ref() is None)
    assert [m.value for m in got] == [b"%03d" % i * 50 for i in range(100)]
    assert [m.value for m in detached] == [b"%03d" % i * 50 for i in range(10)]


def test_deliveries_outlive_their_producer(run: Runner, cluster: MockCluster) -> None:
    client = KafkaClient(cluster.bootstrap, handler=run.name)
    producer = client.get_producer()
    delivery = producer.produce("t", b"x")
    client.close()
    del client, producer
    gc.collect()
    assert delivery.result(0).offset == 0


@pytest.mark.parametrize("asks", ["where it begins", "for records"])
def test_a_consumer_that_is_dropped_while_its_leader_is_away_ends_its_worker(
    connect: Connect, cluster: MockCluster, run: Runner, asks: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error of a connection that is not tried again yet had the worker's frames, and was remembered: the consumer was in them, and fetched on, even
    after the client's close().
    """
    client = connect(cluster, reconnect_backoff_ms=30_000, reconnect_backoff_max_ms=30_000)
    fill(client, numbers(3))
    if asks == "where it begins":
        cluster.stop_broker(1)
    kept = [client.get_consumer("t", fetch_error_backoff_ms=10)]
    if asks == "for records":
        read(kept[0], 3)
        cluster.stop_broker(1)
    refused, channel = [], Broker.channel

    def counted(self: Broker, role: object, taker: Any = None) -> Any:
        try:
            return channel(self, role, taker)
        except ConnectionFailedError:
            refused.append(role)
            raise

    monkeypatch.setattr(Broker, "channel", counted)
    run.until(lambda: len(refused) > 1)
    gc.disable()  # a program may collect no garbage for minutes
    try:
        kept.clear()
        run.until(lambda: not any("fetcher" in w.name and w.is_alive() for w in client.handler.workers()))
    finally:
        gc.enable()


def test_callers_errors_keep_nothing_alive(client: KafkaClient, cluster: MockCluster, run: Runner) -> None:
    """B58: an error that is raised again and again must not collect tracebacks, nor keep the producer."""
    cluster.on("Produce", Delay(120), times=None)
    producer = client.get_producer(delivery_timeout_ms=100, request_timeout_ms=500)  # a request under way keeps its producer
    delivery = producer.produce("t", b"x")
    for _ in range(20):
        with pytest.raises(KafkaException) as caught:
            delivery.result(60)
    depth, frame = 0, caught.value.__traceback__
    while frame is not None:
        depth, frame = depth + 1, frame.tb_next
    assert depth < 20
    ref = weakref.ref(producer)
    del producer, delivery, caught, frame
    run.until(lambda: gc.collect() >= 0 and ref() is None)


@pytest.mark.parametrize("state", ["fresh", "connecting", "idle", "long poll", "full buffer", "retrying", "broker gone"])
def test_close_is_bounded_in_every_state(cluster: MockCluster, run: Runner, state: str) -> None:
    """F23, G20: nothing is waited for beyond the timeout, and nothing is left."""
    KafkaClient(cluster.bootstrap, handler=run.name).close()  # the first in a process opens what belongs to gevent's hub
    baseline = held(cluster)
    client = KafkaClient(cluster.bootstrap, handler=run.name)
    keep: list[Any] = []
    if state == "connecting":
        cluster.on("ApiVersions", Delay(120), times=None)
        keep.append(run.aside(client.connect, 120))
        run.until(lambda: cluster.count("ApiVersions"))
    elif state != "fresh":
        client.connect()
    if state == "long poll":
        keep.append(client.topics["t"].get_simple_consumer(fetch_wait_max_ms=60_000))
        run.until(lambda: cluster.count("Fetch"))
    if state in ("full buffer", "retrying", "broker gone"):
        producer = client.get_producer(buffer_bytes=8192, batch_bytes=1024, max_request_bytes=4096)
        producer.produce("t", b"first").result(LIMIT_S)
        if state == "broker gone":
            cluster.stop_broker(1)
        else:
            from gkafka.testing import Error

            cluster.on("Produce", Delay(120) if state == "full buffer" else Error(6), times=None)

        def stuff() -> None:
            while True:
                producer.produce("t", b"x" * 900)

        keep.append(run.aside(stuff))
        run.sleep(0.1)
    with Clock() as clock:
        try:
            client.close(0.3)
        except KafkaException as error:
            keep.append(error)
    assert clock.seconds < 30
    for thing in keep:
        if hasattr(thing, "worker"):
            with pytest.raises(KafkaException):
                thing.result()
    keep.clear()
    # A broker that is busy with a request sees only later that its connection is gone: one side of it is in this process.
    settle(cluster, run, (baseline[0], baseline[1], baseline[2] + 1, 1))
