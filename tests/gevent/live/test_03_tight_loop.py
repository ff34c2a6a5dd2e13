"""3: one greenlet that produces as fast as it can, without a yield of its own, leaves the hub to others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.gevent.harness import LIMIT_S, assert_free_hub, connect, even_late, in_child, most_in_a_turn

RECORDS = 100_000
IN_A_TURN = 200
"""Records between two looks at the clock: 0.2 ms where a record takes 1 us. Of the turn itself there are 4 ms (`hubs.BUDGET_S`)."""


def tight_loop(hosts: str, topic: str) -> None:
    with connect(hosts) as client:
        producer: Any = client.get_producer()
        producer.produce(topic, b"warm").result(LIMIT_S)
        value = bytes(1024)
        sent = [0]

        def loop(count: int) -> None:
            for _ in range(count):
                producer.produce(topic, value)
                sent[0] += 1

        watch = assert_free_hub(lambda: loop(RECORDS // 2))
        assert watch.turns > 5
        assert most_in_a_turn(lambda: loop(RECORDS // 10), lambda: sent[0]) <= IN_A_TURN
        producer.flush(LIMIT_S)
        assert producer.stats()["failed_records"] == 0


@even_late
def test_03_a_tight_loop_of_produce_leaves_the_hub_to_others(mode: str, stub: str, stub_topic: Callable[..., str]) -> None:
    in_child(mode, tight_loop, stub, stub_topic(4, keeps=False))
