"""12: a producer and a member of a group that have nothing to do ask for long pauses. What they cost is measured by `benchmarks/stalls.py`."""

from __future__ import annotations

from collections import defaultdict

import gevent

from gkafka.testing import MockCluster
from tests.gevent.harness import LIMIT_S, connect, greenlets, in_child, timers_asked_for
from tests.kit.clock import now

IDLE_S = 5.0
LEAST_PAUSE_S = 0.1


def idle() -> dict[str, list[float]]:
    """The pauses that each greenlet asks the hub's loop for, while both are idle."""
    with (
        MockCluster(1, {"t": 1}) as cluster,
        connect(cluster.bootstrap) as client,
        client.get_producer() as producer,
        client.get_consumer("t", "idle") as consumer,
    ):
        deadline = now() + LIMIT_S
        while not consumer.assignment():
            assert now() < deadline
            consumer.consume(100)
        producer.produce("t", b"x").result(LIMIT_S)
        while consumer.consume(1000) is not None:
            pass
        pauses: dict[str, list[float]] = defaultdict(list)
        with timers_asked_for(lambda seconds: pauses[getattr(gevent.getcurrent(), "name", "main")].append(seconds)):
            consumer.consume(1000 * IDLE_S)
        return pauses


@greenlets
def test_12_an_idle_producer_and_an_idle_member_ask_for_long_pauses(mode: str) -> None:
    pauses = in_child(mode, idle)
    assert pauses
    short = {name: asked for name, asked in pauses.items() if sum(asked) < LEAST_PAUSE_S * len(asked)}
    assert not short, f"on average: {short}"
