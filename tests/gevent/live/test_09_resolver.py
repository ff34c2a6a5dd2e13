"""9: a slow resolver, and a thread pool that the application holds, stall nobody."""

from __future__ import annotations

import _socket
from collections.abc import Callable
from time import monotonic
from typing import Any

import gevent
import pytest

from benchmarks.figures import json_like
from gkafka.exceptions import KafkaException
from tests.gevent.harness import LIMIT_S, PATCHED, UNPATCHED, assert_no_stall, connect, greenlets, in_child, in_children

SLOW_S = 2.0
HOST = "a-host-with-a-slow-resolver"


def slow_resolver(port: int) -> None:
    from gevent.monkey import get_original

    native_sleep = get_original("time", "sleep")

    original = _socket.getaddrinfo

    def getaddrinfo(host: str, port: int, family: int = 0, type: int = 0, proto: int = 0, flags: int = 0) -> list[Any]:
        if flags & _socket.AI_NUMERICHOST:
            return original(host, port, family, type, proto, flags)  # no resolver is asked
        native_sleep(SLOW_S)
        return [(_socket.AF_INET, _socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]

    _socket.getaddrinfo = getaddrinfo  # type: ignore[assignment]  # what gevent's resolver calls in a thread

    def run() -> None:
        began = monotonic()
        with connect(f"{HOST}:{port}") as client, connect(f"{HOST}:{port}") as hasty:
            waiting = gevent.spawn(client.connect, LIMIT_S)
            with pytest.raises(KafkaException, match=HOST):
                hasty.connect(SLOW_S / 4)
            assert monotonic() - began < SLOW_S * 0.75
            waiting.get(timeout=LIMIT_S)
            assert client.brokers
        assert SLOW_S <= monotonic() - began < SLOW_S * 2

    assert_no_stall(run, 10)


def held_thread_pool(hosts: str, topic: str) -> None:
    from gevent.monkey import get_original

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

            def run() -> None:
                for n in range(3000):
                    producer.produce(topic, values[n % 500])
                producer.flush(LIMIT_S)

            assert_no_stall(run, 10)
    finally:
        go.release()
        gevent.joinall(held, timeout=LIMIT_S)


def test_09_a_slow_resolver_stalls_nobody_and_has_a_deadline(stub: str) -> None:
    in_children([UNPATCHED, PATCHED], slow_resolver, int(stub.rpartition(":")[2]))


@greenlets
def test_09_codecs_do_not_wait_for_the_applications_thread_pool(mode: str, stub: str, stub_topic: Callable[..., str]) -> None:
    in_child(mode, held_thread_pool, stub, stub_topic(keeps=False))
