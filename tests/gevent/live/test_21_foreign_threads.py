"""21, 22: other OS threads use a gevent client, and hubs of several threads have clients each."""

from __future__ import annotations

import queue
from collections.abc import Callable
from typing import Any

import gevent
import pytest
from gevent.monkey import get_original

from gkafka.exceptions import HandlerThreadError
from tests.gevent.harness import LIMIT_S, THREADS, connect, greenlets, in_child
from tests.kit.clock import now
from tests.live.kafka import KafkaCluster
from tests.live.peer import Peer

EACH, THREAD_COUNT = 500, 4
OWN_EACH = 10_000


def in_native_threads(jobs: list[Callable[[], Any]], timeout: float = LIMIT_S) -> list[Any]:
    """What each returns, in OS threads whatever is patched; the main greenlet leaves its hub running meanwhile."""
    ended: list[tuple[int, Any, BaseException | None]] = []

    def run(n: int, job: Callable[[], Any]) -> None:
        try:
            ended.append((n, job(), None))
        except BaseException as error:
            ended.append((n, None, error))

    for item in enumerate(jobs):
        get_original("_thread", "start_new_thread")(run, item)
    deadline = now() + timeout
    while len(ended) < len(jobs):
        assert now() < deadline, f"{len(ended)} of {len(jobs)} threads ended within {timeout:g} s"
        gevent.sleep(0.005)
    for _, _, error in ended:
        if error is not None:
            raise error
    return [result for _, result, _ in sorted(ended, key=lambda item: item[0])]


def foreign_threads(hosts: str, topic: str) -> list[str]:
    """Values that were accepted, and are acknowledged. The client belongs to the main thread's hub, which has not used it yet."""
    with connect(hosts) as client:
        producer = client.get_producer()
        accepted: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
        refused: list[HandlerThreadError] = []

        def send(who: str, wait: bool) -> None:
            for n in range(EACH):
                try:
                    delivery = producer.produce(topic, f"{who}-{n}".encode())
                    accepted.put((f"{who}-{n}", delivery))
                    if wait and not n % 100:
                        delivery.result(LIMIT_S)
                except HandlerThreadError as error:
                    refused.append(error)

        pool = gevent.get_hub().threadpool
        pooled = [pool.spawn(send, f"pool-{n}", bool(n % 2)) for n in range(THREAD_COUNT)]
        in_native_threads([lambda n=n: send(f"thread-{n}", bool(n % 2)) for n in range(THREAD_COUNT)])  # type: ignore[misc]
        gevent.joinall(pooled, timeout=LIMIT_S, raise_error=True)
        producer.flush(LIMIT_S)
        values = []
        while not accepted.empty():
            value, delivery = accepted.get()
            delivery.result(0)
            values.append(value)
        assert len(values) + len(refused) == 2 * THREAD_COUNT * EACH, "each was accepted, or refused by name"
        return values


def two_hubs(hosts: str, first: str, second: str) -> list[int]:
    """Two threads, each with a hub and a client of its own: how many records each wrote and read back."""

    def own_client(topic: str) -> int:
        with connect(hosts) as client:
            assert client.handler.in_owner()
            producer = client.get_producer()
            jobs = [gevent.spawn(write, producer, topic, n) for n in range(10)]
            gevent.joinall(jobs, timeout=LIMIT_S, raise_error=True)
            producer.flush(LIMIT_S)
            read: list[bytes] = []
            with client.get_consumer(topic) as consumer:
                while len(read) < OWN_EACH:
                    messages = consumer.consume_batch(5000, 1000 * LIMIT_S)
                    assert messages, f"{len(read)} of {OWN_EACH}"
                    read += [m.value for m in messages]
            assert sorted(read) == sorted(b"%s %d" % (topic.encode(), n) for n in range(OWN_EACH)), "cross-talk"
        gevent.get_hub().destroy()
        return len(read)

    def write(producer: Any, topic: str, n: int) -> None:
        for i in range(n, OWN_EACH, 10):
            producer.produce(topic, b"%s %d" % (topic.encode(), i))
            if not i % 500:
                gevent.sleep(0.001)

    return in_native_threads([lambda: own_client(first), lambda: own_client(second)])


def one_client(hosts: str, topic: str) -> list[str]:
    import threading

    acknowledged: list[str] = []
    with connect(hosts) as client:
        producer = client.get_producer()

        def write(who: int) -> None:
            deliveries = [(f"{who}-{n}", producer.produce(topic, f"{who}-{n}".encode())) for n in range(EACH)]
            for value, delivery in deliveries:
                delivery.result(LIMIT_S)
                acknowledged.append(value)

        threads = [threading.Thread(target=write, args=(n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LIMIT_S)
    assert len(acknowledged) == 8 * EACH
    return acknowledged


@greenlets
def test_21_what_other_threads_produce_is_delivered_or_refused(mode: str, kafka: KafkaCluster, new_topic: Callable[..., str]) -> None:
    topic = new_topic(2)
    values = in_child(mode, foreign_threads, kafka.hosts, topic)
    log = [(r.value or b"").decode() for r in Peer(kafka.hosts, kafka.release).read(topic, len(values), 2)]
    assert sorted(log) == sorted(values)
    assert len(values) > EACH


@greenlets
def test_22_two_hubs_have_a_client_each(mode: str, kafka: KafkaCluster, new_topic: Callable[..., str]) -> None:
    assert in_child(mode, two_hubs, kafka.hosts, new_topic(2), new_topic(2)) == [OWN_EACH, OWN_EACH]


@pytest.mark.parametrize("mode", [THREADS])
def test_22_many_threads_share_a_client(mode: str, kafka: KafkaCluster, new_topic: Callable[..., str]) -> None:
    topic = new_topic(2)
    values = in_child(mode, one_client, kafka.hosts, topic)
    log = [(r.value or b"").decode() for r in Peer(kafka.hosts, kafka.release).read(topic, len(values), 2)]
    assert sorted(log) == sorted(values)
