"""12: a producer and a member of a group that have nothing to do cost nothing.

What a wake-up costs is the machine's business as much as gkafka's (`harness.fixed_work`): an idle pair went with it, from 0.3 to 7 %, window by window in a
constant ratio. So the bar is for a machine where that work costs PAUSED_MS, and goes up with what it costs meanwhile.
"""

from __future__ import annotations

import resource
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from time import monotonic, process_time, sleep, thread_time
from typing import Any

import gevent

from tests.gevent import harness
from tests.gevent.harness import LIMIT_S, PATCHED, PAUSE_S, PAUSED_MS, THREADS, UNPATCHED, connect, fixed_work, in_child, in_children
from tests.live.kafka import KafkaCluster

IDLE_S, WINDOWS = 5.0, 3
CPU_PERCENT, WAKEUPS_PER_S = 0.5, 20


def idle(hosts: str, topic: str) -> list[float]:
    """CPU of this process in per cent of a core, and how often it woke up in a second, in the worst of three windows."""
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
            return [sum(cpu for cpu, _ in seen) / WINDOWS, max(wakeups for _, wakeups in seen)]


def measured(consumer: Any) -> tuple[float, float]:
    wakeups, cpu = woken(), process_time()
    consumer.consume(1000 * IDLE_S)
    return 100 * (process_time() - cpu) / IDLE_S, (woken() - wakeups) / IDLE_S


def woken() -> int:
    """Turns of the hub's loop; without one, how often the threads of this process went to sleep."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw if harness.mode == THREADS else int(gevent.get_hub().loop.iteration)


def work_behind_a_pause() -> float:
    """What a fixed piece of work costs that comes as seldom as an idle client's, in ms of CPU."""
    work = fixed_work()
    used, count, until = 0.0, 0, monotonic() + IDLE_S * (WINDOWS + 1)
    while monotonic() < until:
        sleep(PAUSE_S)
        began = thread_time()
        work()
        used += thread_time() - began
        count += 1
    return 1000 * used / count


def test_12_an_idle_producer_and_an_idle_member_cost_nothing(kafka: KafkaCluster, new_topic: Callable[..., str]) -> None:
    with ThreadPoolExecutor() as pool:
        beside = pool.submit(in_child, UNPATCHED, work_behind_a_pause)
        seen = in_children([UNPATCHED, PATCHED, THREADS], idle, kafka.hosts, new_topic())
        paused_ms = beside.result()
    most = CPU_PERCENT * max(1.0, paused_ms / PAUSED_MS)
    for mode, (percent, wakeups) in seen.items():
        assert percent <= most, f"{mode}: {percent:.2f} % of a core of {most:.2f} %, as work behind a pause costs {paused_ms:.2f} ms"
        assert wakeups < WAKEUPS_PER_S, f"{mode}: {wakeups:.1f} wake-ups a second"
