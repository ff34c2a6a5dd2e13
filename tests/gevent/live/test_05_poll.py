"""5: a consumer that waits for records, or for its group, leaves the hub to others."""

from __future__ import annotations

from collections.abc import Callable

import gevent

from tests.gevent import harness
from tests.gevent.harness import LATE, LIMIT_S, PATCHED, UNPATCHED, assert_no_stall, connect, in_children
from tests.live.kafka import KafkaCluster

POLL_S = 5.0


def polls(hosts: str, topic: str) -> None:
    """While one member waits, another comes and goes: the group joins, rebalances, and rebalances again."""
    with connect(hosts) as client, connect(hosts) as other:
        groups = iter(range(9))

        def run() -> None:
            group = f"{topic}-{harness.mode}-{next(groups)}".replace(" ", "-")
            shares: list[int] = []

            def comes_and_goes() -> None:
                gevent.sleep(POLL_S / 5)
                with other.get_consumer(topic, group, heartbeat_interval_ms=300) as second:
                    assert second.consume(1000 * POLL_S / 2) is None
                    shares.append(len(second.assignment()))

            with client.get_consumer(topic, group, heartbeat_interval_ms=300) as first:
                aside = gevent.spawn(comes_and_goes)
                assert first.consume(1000 * POLL_S) is None
                aside.get(timeout=LIMIT_S)
                seen = (*shares, len(first.assignment()))
                assert seen == (2, 4), f"the two members shared the topic, then one had it all: {seen}"

        assert_no_stall(run, 10)


def test_05_waiting_for_records_while_the_group_rebalances(kafka: KafkaCluster, new_topic: Callable[..., str]) -> None:
    in_children([UNPATCHED, PATCHED, LATE], polls, kafka.hosts, new_topic(4))
