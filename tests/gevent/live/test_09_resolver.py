"""9: a resolver that does not answer, and a thread pool that the application holds, keep nobody from the hub."""

from __future__ import annotations

import _socket
from collections.abc import Callable
from typing import Any

import gevent
import pytest
from gevent.monkey import get_original

from benchmarks.figures import json_like
from gkafka.exceptions import KafkaException
from tests.gevent.harness import LIMIT_S, PATCHED, UNPATCHED, connect, greenlets, in_child, in_children

HOST = "a-host-with-a-slow-resolver"
get_ident: Callable[[], int] = get_original("_thread", "get_ident")


def slow_resolver(port: int) -> None:
    """It answers when a greenlet lets it: a hub that it holds would never come to that."""
    answers = get_original("_thread", "allocate_lock")()
    asked: list[int] = []
    original = _socket.getaddrinfo

    def getaddrinfo(host: str, port: int, family: int = 0, type: int = 0, proto: int = 0, flags: int = 0) -> list[Any]:
        if flags & _socket.AI_NUMERICHOST:
            return original(host, port, family, type, proto, flags)  # no resolver is asked
        asked.append(get_ident())
        with answers:
            return [(_socket.AF_INET, _socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]

    _socket.getaddrinfo = getaddrinfo  # type: ignore[assignment]  # what gevent's resolver calls in a thread
    answers.acquire()
    with connect(f"{HOST}:{port}") as client, connect(f"{HOST}:{port}") as hasty:
        waiting = gevent.spawn(client.connect, LIMIT_S)
        with pytest.raises(KafkaException, match=HOST):
            hasty.connect(0.5)
        assert not waiting.ready()
        answers.release()
        waiting.get(timeout=LIMIT_S)
        assert client.brokers
    assert asked
    assert get_ident() not in asked


def held_thread_pool(hosts: str, topic: str) -> None:
    """The pool is let go only when all records are delivered."""
    go = get_original("_thread", "allocate_lock")()
    values = json_like(500, 1000)

    def wait() -> None:
        with go:
            pass

    go.acquire()
    pool = gevent.get_hub().threadpool
    held = [pool.spawn(wait) for _ in range(pool.maxsize)]
    try:
        with connect(hosts) as client:
            producer: Any = client.get_producer(compression="gzip", batch_bytes=1_000_000, linger_ms=20)
            for n in range(3000):
                producer.produce(topic, values[n % 500])
            producer.flush(LIMIT_S)
            assert producer.stats()["failed_records"] == 0
            assert not any(one.ready() for one in held)
    finally:
        go.release()
        gevent.joinall(held, timeout=LIMIT_S)


def test_09_a_slow_resolver_keeps_nobody_from_the_hub_and_has_a_deadline(stub: str) -> None:
    in_children([UNPATCHED, PATCHED], slow_resolver, int(stub.rpartition(":")[2]))


@greenlets
def test_09_codecs_do_not_wait_for_the_applications_thread_pool(mode: str, stub: str, stub_topic: Callable[..., str]) -> None:
    in_child(mode, held_thread_pool, stub, stub_topic(keeps=False))
