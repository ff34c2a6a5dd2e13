"""7: batches of 1 MB in every codec, produced and consumed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from benchmarks.figures import json_like
from tests.gevent.harness import LIMIT_S, assert_no_stall, connect, greenlets, in_child

BATCH = 1_000_000
RECORDS = 8000
CODECS = ("gzip", "zstd", "lz4", "snappy")


def produce_and_consume(hosts: str, topic: str, codec: str) -> None:
    values = json_like(500, 1000)
    with connect(hosts) as client:
        producer: Any = client.get_producer(compression=codec, batch_bytes=BATCH, max_request_bytes=2 * BATCH, linger_ms=50)
        producer.produce(topic, b"warm").result(LIMIT_S)

        def produce() -> None:
            for n in range(RECORDS):
                producer.produce(topic, values[n % 500])
            producer.flush(LIMIT_S)

        runs = assert_no_stall(produce, 20)
        written = 1 + RECORDS * len(runs)

        def consume() -> None:
            with client.get_consumer(topic) as consumer:
                count = 0
                while count < written:
                    messages = consumer.consume_batch(1000, 5000)
                    assert messages, f"{count} of {written} records"
                    assert all(message.value in known for message in messages)
                    count += len(messages)
                assert count == written

        known = {b"warm", *values}
        assert_no_stall(consume, 20)


@greenlets
@pytest.mark.parametrize("codec", CODECS)
def test_07_large_compressed_batches_do_not_stall_the_hub(mode: str, codec: str, stub: str, stub_topic: Callable[..., str]) -> None:
    in_child(mode, produce_and_consume, stub, stub_topic(2), codec)
