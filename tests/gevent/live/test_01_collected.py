"""1: what of thousands of waiting greenlets Python's garbage collector has to look at is less with gkafka than with gevent alone.

A look at all objects (generation 2) stops the whole program. How long it takes depends on how many objects there are, whoever made them: a greenlet that
waits is a dozen. So the same greenlets wait here once for gkafka and once for nothing but gevent, and are compared by what they consist of. What the
looks take is measured by `benchmarks/stalls.py`.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import pytest
from gevent.event import AsyncResult

from tests.effort import one_of
from tests.gevent.harness import LIMIT_S, PATCHED, UNPATCHED, connect, fair, in_child, results, spawn_all

WRITERS = 5000
FEWER_OBJECTS = 0.7
"""Of a wait with gevent's own AsyncResult, so much may one of gkafka's consist of, the greenlet included: half is what it is."""


class Gkafka:
    """A record that is not sent before `let_go`, and waited for."""

    def __init__(self, hosts: str, topic: str) -> None:
        self.client, self.topic = connect(hosts), topic
        self.producer: Any = self.client.get_producer(
            linger_ms=10_000 * LIMIT_S, delivery_timeout_ms=20_000 * LIMIT_S, batch_bytes=1_000_000
        )
        self.producer.produce(topic, b"warm")
        self.producer.flush(LIMIT_S)
        self.waiting = 0

    def wait(self) -> None:
        delivery = self.producer.produce(self.topic, b"x")
        self.waiting += 1
        delivery.result(LIMIT_S)

    def let_go(self) -> None:
        self.producer.flush(LIMIT_S)


class Gevent:
    """A result is waited for with the same timeout."""

    def __init__(self, *_: str) -> None:
        self.results: list[AsyncResult] = []

    @property
    def waiting(self) -> int:
        return len(self.results)

    def wait(self) -> None:
        result = AsyncResult()
        self.results.append(result)
        result.get(timeout=LIMIT_S)

    def let_go(self) -> None:
        for number, result in enumerate(self.results):
            result.set(number)


KINDS: dict[str, type[Gkafka | Gevent]] = {"gkafka": Gkafka, "gevent": Gevent}


def objects(kind: str, hosts: str, topic: str) -> float:
    """How many objects that the collector looks at a greenlet consists of that waits."""
    load = KINDS[kind](hosts, topic)
    gc.collect()
    before = len(gc.get_objects())
    waiting = spawn_all([load.wait] * WRITERS)
    while load.waiting < WRITERS:
        fair()
    count = (len(gc.get_objects()) - before) / WRITERS
    load.let_go()
    assert len(list(results(waiting))) == WRITERS
    return count


@pytest.mark.parametrize("mode", one_of(PATCHED, UNPATCHED))
def test_01_a_wait_gives_the_collector_less_to_look_at_than_one_of_gevents(mode: str, stub: str, stub_topic: Callable[..., str]) -> None:
    ours, bare = (in_child(mode, objects, kind, stub, stub_topic(4, keeps=False)) for kind in KINDS)
    assert 1 < ours <= FEWER_OBJECTS * bare, f"{ours:.1f} objects, {bare:.1f} without gkafka"
