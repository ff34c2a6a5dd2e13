"""29: kazoo gets a handler of the client's own kind, and ZooKeeper stalls nobody in a process that is not patched."""

from __future__ import annotations

import gevent
import pytest
from kazoo.handlers.gevent import SequentialGeventHandler
from kazoo.handlers.threading import SequentialThreadingHandler

from gkafka.handlers import resolve_handler
from gkafka.zookeeper import close_client, open_client
from tests.gevent import harness
from tests.gevent.harness import LIMIT_S, PATCHED, THREADS, UNPATCHED, assert_free_hub, in_child
from tests.live.kafka import KafkaCluster
from tests.live.pool import POOL

SETS, CONTENDED_S = 300, 0.3
KINDS = {"gevent": SequentialGeventHandler, "threading": SequentialThreadingHandler}


@pytest.fixture
def zookeeper() -> str:
    cluster: KafkaCluster = POOL.get("2.8.2")
    assert cluster.zookeeper
    return cluster.zookeeper


def kinds(hosts: str) -> None:
    handler = resolve_handler(harness.HANDLERS[harness.mode])
    client = open_client(hosts, 1000 * LIMIT_S, handler)
    another = open_client(hosts, 1000 * LIMIT_S, handler)
    assert type(client.handler) is KINDS[handler.name]
    assert client.handler is not another.handler, "each has one of its own"
    close_client(client)
    close_client(another)


def work(hosts: str) -> None:
    handler = resolve_handler("gevent")
    first, second = open_client(hosts, 1000 * LIMIT_S, handler), open_client(hosts, 1000 * LIMIT_S, handler)
    first.ensure_path("/stalls")

    def run() -> None:
        for n in range(SETS):
            first.set("/stalls", b"%d" % n)
        lock, other = first.Lock("/lock", "first"), second.Lock("/lock", "second")
        lock.acquire(timeout=LIMIT_S)
        waiting = gevent.spawn(other.acquire, timeout=LIMIT_S)
        gevent.sleep(CONTENDED_S)
        assert not waiting.ready()
        lock.release()
        assert waiting.get(timeout=LIMIT_S)
        other.release()

    assert_free_hub(run)
    close_client(first)
    close_client(second)


@pytest.mark.parametrize("mode", [UNPATCHED, PATCHED, THREADS])
def test_29_kazoo_works_in_the_clients_way(mode: str, zookeeper: str) -> None:
    in_child(mode, kinds, zookeeper)


def test_29_zookeeper_stalls_nobody_in_an_unpatched_process(zookeeper: str) -> None:
    in_child(UNPATCHED, work, zookeeper)
