"""1: thousands of greenlets that each send a record and wait for it, again and again.

What that costs, stalls, rate and waits, is measured by `benchmarks/stalls.py` and `benchmarks/run.py --only greenlets`.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import pytest

from tests.effort import one_of
from tests.gevent.harness import LATE, LIMIT_S, PATCHED, UNPATCHED, assert_free_hub, connect, in_child, results, spawn_all

WRITERS, EACH = 2000, 3


def sync_sends(hosts: str, topic: str) -> None:
    with connect(hosts) as client:
        producer: Any = client.get_producer(acks="all")
        producer.produce(topic, b"warm").result(LIMIT_S)
        value = bytes(1024)
        written: list[set[tuple[int, int]]] = []

        def run() -> None:
            places: set[tuple[int, int]] = set()

            def write() -> None:
                for _ in range(EACH):
                    sent = producer.produce(topic, value).result(LIMIT_S)
                    places.add((sent.partition, sent.offset))

            for _ in results(spawn_all([write] * WRITERS)):
                pass
            written.append(places)

        gc.collect()
        gc.disable()
        assert_free_hub(run)
        assert {len(places) for places in written} == {WRITERS * EACH}, "each record has a place of its own"
        left = gc.collect()
        assert left < WRITERS * EACH / 100, f"{left} objects were left to the garbage collector"


@pytest.mark.parametrize("mode", one_of(UNPATCHED, PATCHED, LATE))
def test_01_greenlets_that_send_and_wait_leave_the_hub_free(mode: str, stub: str, stub_topic: Callable[..., str]) -> None:
    in_child(mode, sync_sends, stub, stub_topic(4, keeps=False))
