"""1: thousands of greenlets that each send a record and wait for it, again and again.

The rate here is of the client's own work, so that it holds on a busy machine; by the clock, and the waits: `benchmarks/run.py --only greenlets`.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import pytest

from tests.effort import one_of
from tests.gevent.harness import LATE, LIMIT_S, PATCHED, UNPATCHED, assert_no_stall, connect, in_child, results, slowness, spawn_all

WRITERS, EACH = 5000, 10
RATE = 20_000


def sync_sends(hosts: str, topic: str) -> float:
    """Returns how many records a second of CPU was enough for, in the best run, on a machine of usual speed."""
    with connect(hosts) as client:
        producer: Any = client.get_producer(acks="all")
        producer.produce(topic, b"warm").result(LIMIT_S)
        value = bytes(1024)
        written: list[set[tuple[int, int]]] = []  # not dropped by run(): fifty thousand places at once would be 20 ms of this test's own

        def run() -> None:
            places: set[tuple[int, int]] = set()

            def write() -> None:
                for _ in range(EACH):
                    sent = producer.produce(topic, value).result(LIMIT_S)
                    places.add((sent.partition, sent.offset))

            for _ in results(spawn_all([write] * WRITERS)):
                pass
            written.append(places)

        runs = assert_no_stall(run, 20)
        assert {len(places) for places in written} == {WRITERS * EACH}, "each record has a place of its own"
        gc.collect()
        gc.disable()
        run()
        left = gc.collect()
        assert left < WRITERS * EACH / 100, f"{left} objects were left to the garbage collector"
        return WRITERS * EACH / min(each.cpu_s for each in runs) * slowness()


@pytest.mark.parametrize("mode", one_of(UNPATCHED, PATCHED, LATE))
def test_01_five_thousand_greenlets_that_send_and_wait(mode: str, stub: str, stub_topic: Callable[..., str]) -> None:
    assert in_child(mode, sync_sends, stub, stub_topic(4, keeps=False)) >= RATE
