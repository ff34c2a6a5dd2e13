"""3: one greenlet that produces as fast as it can, without a yield of its own, leaves the hub to others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.gevent.harness import LIMIT_S, assert_no_stall, connect, even_late, in_child

RECORDS = 100_000


def tight_loop(hosts: str, topic: str) -> None:
    with connect(hosts) as client:
        producer: Any = client.get_producer()
        producer.produce(topic, b"warm").result(LIMIT_S)
        value = bytes(1024)

        def loop() -> None:
            for _ in range(RECORDS):
                producer.produce(topic, value)

        assert_no_stall(loop, 10, ticks_per_s=100)
        producer.flush(LIMIT_S)
        assert producer.stats()["failed_records"] == 0


@even_late
def test_03_a_tight_loop_of_produce_leaves_the_hub_to_others(mode: str, stub: str, stub_topic: Callable[..., str]) -> None:
    in_child(mode, tight_loop, stub, stub_topic(4, keeps=False))
