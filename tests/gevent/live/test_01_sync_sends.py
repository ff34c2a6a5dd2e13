"""1: thousands of greenlets that each send a record and wait for it, again and again."""

from __future__ import annotations

import gc
from collections.abc import Callable
from time import perf_counter
from typing import Any

from tests.gevent.harness import LIMIT_S, assert_no_stall, at, connect, even_late, in_child, results, spawn_all

WRITERS, EACH = 5000, 10
P99_S = 0.3


def sync_sends(hosts: str, topic: str) -> None:
    with connect(hosts) as client:
        producer: Any = client.get_producer()
        producer.produce(topic, b"warm").result(LIMIT_S)
        value = bytes(1024)
        rounds: list[tuple[int, float]] = []

        def run() -> None:
            waits: list[float] = []
            places = set()

            def write() -> None:
                for _ in range(EACH):
                    began = perf_counter()
                    sent = producer.produce(topic, value).result(LIMIT_S)
                    waits.append(perf_counter() - began)
                    places.add((sent.partition, sent.offset))

            for _ in results(spawn_all([write] * WRITERS)):
                pass
            rounds.append((len(places), at(sorted(waits), 0.99)))

        assert_no_stall(run, 20)
        assert {places for places, _ in rounds} == {WRITERS * EACH}, "each record has a place of its own"
        gc.collect()
        gc.disable()
        run()
        left = gc.collect()
        assert left < WRITERS * EACH / 100, f"{left} objects were left to the garbage collector"
        assert min(p99 for _, p99 in rounds) <= P99_S, f"p99 of a send: {rounds}"


@even_late
def test_01_five_thousand_greenlets_that_send_and_wait(mode: str, stub: str, stub_topic: Callable[..., str]) -> None:
    in_child(mode, sync_sends, stub, stub_topic(4, keeps=False))
