"""6: a hundred thousand records of 1 KB in large fetches from a broker as fast as the wire.

Half a million of them, how long they stall the hub and how many a second there are, are measured by `benchmarks/stalls.py` and `benchmarks/run.py --only greenlets`.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.gevent.harness import LIMIT_S, UNPATCHED, assert_free_hub, connect, greenlets, in_child, most_in_a_turn
from tests.live import admin

RECORDS, PARTITIONS, SIZE = 100_000, 4, 1024
FETCH_BYTES = 50 << 20


def fill(hosts: str, topic: str) -> None:
    with connect(hosts) as client:
        producer: Any = client.get_producer(acks=1, enable_idempotence=False, batch_bytes=1_000_000)
        value = bytes(SIZE)
        for n in range(RECORDS):
            producer.produce(topic, value, partition=n % PARTITIONS)
        producer.flush(LIMIT_S)


def consume(hosts: str, topic: str, at_once: int | None) -> None:
    with connect(hosts) as client:
        count = [0]

        def run() -> None:
            options: Any = {"fetch_max_bytes": FETCH_BYTES, "fetch_message_max_bytes": FETCH_BYTES}
            with client.get_consumer(topic, **options) as consumer:
                count[0] = size = 0
                while count[0] < RECORDS:
                    messages = consumer.consume_batch(at_once, 1000 * LIMIT_S)
                    assert messages, f"{count[0]} of {RECORDS} records"
                    size += sum(len(message.value) for message in messages)
                    count[0] += len(messages)
                assert (count[0], size) == (RECORDS, RECORDS * SIZE)

        assert_free_hub(run)
        if at_once is not None:  # else it is all that is there
            assert most_in_a_turn(run, lambda: count[0]) <= 2 * at_once


@pytest.fixture(scope="module")
def full_topic(stub: str) -> str:
    admin.create(stub, "full", PARTITIONS, 1, {})
    in_child(UNPATCHED, fill, stub, "full")
    return "full"


@greenlets
@pytest.mark.parametrize("at_once", [1000, None])
def test_06_large_fetches_are_consumed_without_a_stall(mode: str, stub: str, full_topic: str, at_once: int | None) -> None:
    in_child(mode, consume, stub, full_topic, at_once)
