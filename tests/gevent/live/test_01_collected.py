"""1, with Python's garbage collector at work: what of a stall is the collector's, and what it would be without gkafka.

A look at all objects (generation 2) stops the whole program. How long it takes depends on how many objects there are, whoever made them: a greenlet that
waits is a dozen. So the same greenlets wait here once for gkafka and once for nothing but gevent, and are compared by what they consist of.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from time import thread_time
from typing import Any

import gevent
import pytest
from gevent.event import AsyncResult

from tests.effort import one_of
from tests.gevent.harness import (
    GOOD_RUNS,
    LIMIT_S,
    PATCHED,
    RUNS,
    UNPATCHED,
    CollectingTicker,
    connect,
    fair,
    in_child,
    results,
    spawn_all,
    times_slower,
)

WRITERS, EACH = 5000, 10
STALL_MS = 20
FEWER_OBJECTS = 0.7
"""Of a wait with gevent's own AsyncResult, so much may one of gkafka's consist of, the greenlet included: half is what it is."""
SEND_EVERY_S = 0.005


class Gkafka:
    """A record is sent, and waited for."""

    def __init__(self, hosts: str, topic: str) -> None:
        self.client, self.topic = connect(hosts), topic
        self.producer: Any = self.client.get_producer()
        self.late: Any = self.client.get_producer(linger_ms=1000 * LIMIT_S, batch_bytes=1_000_000)
        for producer in (self.producer, self.late):
            producer.produce(topic, b"warm")
            producer.flush(LIMIT_S)

    def send(self) -> None:
        self.producer.produce(self.topic, bytes(1024)).result(LIMIT_S)

    def wait(self) -> None:
        self.late.produce(self.topic, b"x").result(LIMIT_S)

    def let_go(self) -> None:
        self.late.flush(LIMIT_S)


class Gevent:
    """A result is waited for with the same timeout. Some ms later all that are there have theirs, a hundred at a time."""

    def __init__(self, *_: str) -> None:
        self.sent: list[AsyncResult] = []
        self.waiting: list[AsyncResult] = []
        gevent.spawn(self.run)

    def run(self) -> None:
        while True:
            gevent.sleep(SEND_EVERY_S)
            self.sent, sent = [], self.sent
            self.answer(sent)

    def answer(self, results: list[AsyncResult]) -> None:
        for number, result in enumerate(results):
            result.set(number)
            if not number % 100:
                fair()

    def send(self) -> None:
        result = AsyncResult()
        self.sent.append(result)
        result.get(timeout=LIMIT_S)

    def wait(self) -> None:
        result = AsyncResult()
        self.waiting.append(result)
        result.get(timeout=LIMIT_S)

    def let_go(self) -> None:
        self.answer(self.waiting)


KINDS: dict[str, type[Gkafka | Gevent]] = {"gkafka": Gkafka, "gevent": Gevent}


def collected(kind: str, hosts: str, topic: str) -> dict[str, Any]:
    """objects: of a greenlet that waits; look_ms: at all of them. runs: longest stall, that of them without the collector's part, and the longest of those,
    in ms of CPU; and how much slower the machine was, see harness.py."""
    load = KINDS[kind](hosts, topic)
    gc.collect()
    before = len(gc.get_objects())
    waiting = spawn_all([load.wait] * WRITERS)
    gevent.sleep(0.1)
    objects = (len(gc.get_objects()) - before) / WRITERS
    began = thread_time()
    gc.collect()
    look_ms = 1000 * (thread_time() - began)
    load.let_go()
    for _ in results(waiting):
        pass
    del waiting
    return {"objects": objects, "look_ms": look_ms, "runs": [stalls(load) for _ in range(RUNS)]}


def stalls(load: Gkafka | Gevent) -> tuple[float, float, float, float]:
    def write() -> None:
        for _ in range(EACH):
            load.send()

    with CollectingTicker() as ticker:
        for _ in results(spawn_all([write] * WRITERS)):
            pass
    cpus = [cpu for _, cpu in ticker.gaps]
    without = max(cpu - spent for cpu, spent in zip(cpus, ticker.collected, strict=True))
    return 1000 * max(cpus), 1000 * without, 1000 * max(ticker.collected), times_slower(ticker.mean_paused_ms)


@pytest.mark.parametrize("mode", one_of(PATCHED, UNPATCHED))
def test_01_what_the_collector_takes_is_no_more_than_without_gkafka(mode: str, stub: str, stub_topic: Callable[..., str]) -> None:
    seen = {kind: in_child(mode, collected, kind, stub, stub_topic(4, keeps=False)) for kind in KINDS}
    print(seen)
    ours, bare = seen["gkafka"], seen["gevent"]
    assert all(longest > 0 for _, _, longest, _ in [*ours["runs"], *bare["runs"]]), f"nothing was collected: that proves nothing: {seen}"
    assert ours["objects"] <= FEWER_OBJECTS * bare["objects"], seen
    good = sum(without <= STALL_MS * slower for _, without, _, slower in ours["runs"])
    assert good >= GOOD_RUNS, f"of the stalls too much is not the collector's: {seen}"
