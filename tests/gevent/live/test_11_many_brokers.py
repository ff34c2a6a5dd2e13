"""11: readers of twenty brokers that are busy all at once never make the hub sleep; thousands of partitions are assigned in steps.

How long they keep the hub is measured by `benchmarks/stalls.py`.
"""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.figures import stub_broker
from gkafka import nativeconsumer
from gkafka.core.positions import Position
from gkafka.nativeconsumer import MOST_AT_ONCE
from tests.gevent.harness import LIMIT_S, assert_free_hub, connect, greenlets, in_child, most_in_a_turn

BROKERS, PARTITIONS, RECORDS = 20, 50, 100_000
TOPICS, MANY = 5, 600


def readers(hosts: str) -> None:
    with connect(hosts) as client:
        client.create_topic("t", PARTITIONS)
        assert len(client.brokers) == BROKERS
        producer: Any = client.get_producer(acks=1, enable_idempotence=False)
        value = bytes(1024)
        for n in range(RECORDS):
            producer.produce("t", value, partition=n % PARTITIONS)
        producer.flush(LIMIT_S)

        def run() -> None:
            with client.get_consumer("t") as consumer:
                count = 0
                while count < RECORDS:
                    messages = consumer.consume_batch(None, 1000 * LIMIT_S)
                    assert messages, f"{count} of {RECORDS} records"
                    count += len(messages)

        assert_free_hub(run)


def assigns(hosts: str) -> None:
    with connect(hosts) as client:
        names = [f"t{n}" for n in range(TOPICS)]
        for name in names:
            client.create_topic(name, MANY)
        partitions = [(name, p) for name in names for p in range(MANY)]

        def run() -> None:
            with client.get_consumer() as consumer:
                consumer.assign(partitions)
                assert len(consumer.positions()) == len(partitions)

        assert_free_hub(run)
        made = [0]

        def position(*arguments: Any) -> Any:
            made[0] += 1
            return Position(*arguments)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(nativeconsumer, "Position", position)
            most = most_in_a_turn(run, lambda: made[0])
        assert made[0] == len(partitions)
        assert most <= 2 * MOST_AT_ONCE


@greenlets
def test_11_thousands_of_partitions_are_assigned_in_steps(mode: str) -> None:
    with stub_broker() as hosts:
        in_child(mode, assigns, hosts)


@greenlets
def test_11_twenty_busy_readers_leave_the_hub_free(mode: str) -> None:
    with stub_broker("--brokers", str(BROKERS)) as hosts:
        in_child(mode, readers, hosts)
