"""5: a consumer that waits for records, or for its group, leaves the hub to others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gevent

from tests.gevent import harness
from tests.gevent.harness import LATE, LIMIT_S, PATCHED, UNPATCHED, assert_free_hub, connect, in_children
from tests.kit.clock import now
from tests.live.kafka import KafkaCluster

POLL_S = 1.0


def polls(hosts: str, topic: str) -> None:
    """While one member waits, another comes and goes: the group joins, rebalances, and rebalances again."""
    with connect(hosts) as client, connect(hosts) as other:
        groups = iter(range(2))

        def run() -> None:
            group = f"{topic}-{harness.mode}-{next(groups)}".replace(" ", "-")
            with client.get_consumer(topic, group, heartbeat_interval_ms=300) as first:
                poll_until(first, 4)
                beside = gevent.spawn(poll_until, first, 2)
                with other.get_consumer(topic, group, heartbeat_interval_ms=300) as second:
                    poll_until(second, 2)
                    beside.get(timeout=LIMIT_S)
                    beside = gevent.spawn(poll_until, first, 4)
                    assert second.consume(1000 * POLL_S) is None
                beside.get(timeout=LIMIT_S)

        assert_free_hub(run)


def poll_until(consumer: Any, share: int) -> None:
    """Waits for records, of which there are none, until the member has so many partitions."""
    deadline = now() + LIMIT_S
    while len(consumer.assignment()) != share:
        assert now() < deadline, f"{consumer.assignment()}, and not {share} partitions"
        assert consumer.consume(1000 * POLL_S) is None


def test_05_waiting_for_records_while_the_group_rebalances(kafka: KafkaCluster, new_topic: Callable[..., str]) -> None:
    in_children([UNPATCHED, PATCHED, LATE], polls, kafka.hosts, new_topic(4))
