"""12: a producer and a member of a group that have nothing to do cost nothing."""

from __future__ import annotations

import resource
from collections.abc import Callable
from time import monotonic, process_time
from typing import Any

import gevent

from tests.gevent import harness
from tests.gevent.harness import LIMIT_S, PATCHED, THREADS, UNPATCHED, connect, in_children
from tests.live.kafka import KafkaCluster

IDLE_S, WINDOWS = 5.0, 3
CPU_PERCENT, WAKEUPS_PER_S = 0.5, 20


def idle(hosts: str, topic: str) -> list[float]:
    """CPU of this process in per cent of a core, in the best of three windows: what others do on its core takes its caches. And how
    often it woke up in a second, in the worst one.
    """
    with connect(hosts) as client:
        producer = client.get_producer()
        with client.get_consumer(topic, f"idle-{harness.mode}") as consumer:
            deadline = monotonic() + LIMIT_S
            while not consumer.assignment() and monotonic() < deadline:
                consumer.consume(100)
            producer.produce(topic, b"x").result(LIMIT_S)
            while consumer.consume(500) is not None:
                pass
            seen = [measured(consumer) for _ in range(WINDOWS)]
            return [min(cpu for cpu, _ in seen), max(wakeups for _, wakeups in seen)]  # what else runs makes each wake-up dearer


def measured(consumer: Any) -> tuple[float, float]:
    wakeups, cpu = woken(), process_time()
    consumer.consume(1000 * IDLE_S)
    return 100 * (process_time() - cpu) / IDLE_S, (woken() - wakeups) / IDLE_S


def woken() -> int:
    """Turns of the hub's loop; without one, how often the threads of this process went to sleep."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw if harness.mode == THREADS else int(gevent.get_hub().loop.iteration)


def test_12_an_idle_producer_and_an_idle_member_cost_nothing(kafka: KafkaCluster, new_topic: Callable[..., str]) -> None:
    seen = in_children([UNPATCHED, PATCHED, THREADS], idle, kafka.hosts, new_topic())
    for mode, (percent, wakeups) in seen.items():
        assert percent <= CPU_PERCENT, f"{mode}: {percent:.2f} % of a core"
        assert wakeups < WAKEUPS_PER_S, f"{mode}: {wakeups:.1f} wake-ups a second"
