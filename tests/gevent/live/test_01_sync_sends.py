"""1: thousands of greenlets that each send a record and wait for it, again and again. Rate and waits: `benchmarks/run.py --only greenlets`."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

from tests.gevent.harness import LIMIT_S, assert_no_stall, connect, even_late, in_child, results, spawn_all

WRITERS, EACH = 5000, 10


def sync_sends(hosts: str, topic: str) -> None:
    with connect(hosts) as client:
        producer: Any = client.get_producer()
        producer.produce(topic, b"warm").result(LIMIT_S)
        value = bytes(1024)
        written: set[int] = set()

        def run() -> None:
            places = set()

            def write() -> None:
                for _ in range(EACH):
                    sent = producer.produce(topic, value).result(LIMIT_S)
                    places.add((sent.partition, sent.offset))

            for _ in results(spawn_all([write] * WRITERS)):
                pass
            written.add(len(places))

        assert_no_stall(run, 20)
        assert written == {WRITERS * EACH}, "each record has a place of its own"
        gc.collect()
        gc.disable()
        run()
        left = gc.collect()
        assert left < WRITERS * EACH / 100, f"{left} objects were left to the garbage collector"


@even_late
def test_01_five_thousand_greenlets_that_send_and_wait(mode: str, stub: str, stub_topic: Callable[..., str]) -> None:
    in_child(mode, sync_sends, stub, stub_topic(4, keeps=False))
