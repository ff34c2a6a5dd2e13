"""6: half a million records of 1 KB in large fetches from a broker as fast as the wire."""

from __future__ import annotations

from typing import Any

import pytest

from tests.gevent.harness import LIMIT_S, UNPATCHED, assert_no_stall, connect, fair, greenlets, in_child, slowness
from tests.live import admin

RECORDS, PARTITIONS, SIZE = 500_000, 4, 1024
FETCH_BYTES = 50 << 20
RATE = 60_000


def fill(hosts: str, topic: str) -> None:
    with connect(hosts) as client:
        producer: Any = client.get_producer(acks=1, enable_idempotence=False, batch_bytes=1_000_000)
        value = bytes(SIZE)
        for n in range(RECORDS):
            producer.produce(topic, value, partition=n % PARTITIONS)
        producer.flush(LIMIT_S)


def consume(hosts: str, topic: str, at_once: int | None) -> float:
    """Returns how many records a second of CPU was enough for, in the best run."""
    with connect(hosts) as client:

        def run() -> None:
            options = {"fetch_max_bytes": FETCH_BYTES, "fetch_message_max_bytes": FETCH_BYTES}
            with client.get_consumer(topic, **options) as consumer:
                count = size = 0
                while count < RECORDS:
                    messages = consumer.consume_batch(at_once, 5000)
                    assert messages, f"{count} of {RECORDS} records"
                    for start in range(0, len(messages), 1000):
                        size += sum(len(message.value) for message in messages[start : start + 1000])
                        if len(messages) > 1000:
                            fair()  # what the application does with fifty thousand records is its own
                    count += len(messages)
                assert (count, size) == (RECORDS, RECORDS * SIZE)

        runs = assert_no_stall(run, 20)
        return RECORDS / min(each.cpu_s for each in runs) * slowness()


@pytest.fixture(scope="module")
def full_topic(stub: str) -> str:
    admin.create(stub, "full", PARTITIONS, 1, {})
    in_child(UNPATCHED, fill, stub, "full")
    return "full"


@greenlets
@pytest.mark.parametrize("at_once", [1000, None])
def test_06_large_fetches_are_consumed_without_a_stall(mode: str, stub: str, full_topic: str, at_once: int | None) -> None:
    assert in_child(mode, consume, stub, full_topic, at_once) >= RATE
