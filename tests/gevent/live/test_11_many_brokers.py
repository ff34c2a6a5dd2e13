"""11: readers of twenty brokers that are busy all at once share one budget of the hub; so does an assignment of thousands of partitions."""

from __future__ import annotations

from typing import Any

from benchmarks.figures import stub_broker
from tests.gevent.harness import LIMIT_S, assert_no_stall, connect, greenlets, in_child

BROKERS, PARTITIONS, RECORDS = 20, 50, 200_000
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
                    messages = consumer.consume_batch(None, 5000)
                    assert messages, f"{count} of {RECORDS} records"
                    count += len(messages)

        assert_no_stall(run, 25)


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

        assert_no_stall(run, 20)


@greenlets
def test_11_thousands_of_partitions_are_assigned_in_steps(mode: str) -> None:
    with stub_broker() as hosts:
        in_child(mode, assigns, hosts)


@greenlets
def test_11_twenty_busy_readers_share_one_budget(mode: str) -> None:
    with stub_broker("--brokers", str(BROKERS)) as hosts:
        in_child(mode, readers, hosts)
