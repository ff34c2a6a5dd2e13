"""7: batches of 1 MB in every codec: they are compressed outside of the hub's thread, and to unpack them makes it wait for nobody."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from gevent.monkey import get_original

from benchmarks.figures import json_like
from gkafka.records import compression
from gkafka.records.compression import IDS
from gkafka.sealing import OFFLOAD_BYTES
from tests.gevent.harness import LIMIT_S, PATCHED, UNPATCHED, assert_free_hub, connect, in_child

get_ident: Callable[[], int] = get_original("_thread", "get_ident")

BATCH = 1_000_000
RECORDS = 8000
CODECS = ("gzip", "zstd", "lz4", "snappy")


def produce_and_consume(hosts: str, topic: str, codec: str) -> None:
    values = json_like(500, 1000)
    hub, inside, outside = get_ident(), list[int](), list[int]()

    def watched(*arguments: Any) -> bytes:
        (inside if get_ident() == hub else outside).append(len(arguments[0]))
        return compressor(*arguments)

    compressor, compression.COMPRESSORS[codec] = compression.COMPRESSORS[codec], watched
    with connect(hosts) as client:
        producer: Any = client.get_producer(compression=codec, batch_bytes=BATCH, max_request_bytes=2 * BATCH, linger_ms=50)
        producer.produce(topic, b"warm").result(LIMIT_S)
        for n in range(RECORDS):
            producer.produce(topic, values[n % 500])
        producer.flush(LIMIT_S)
        assert max(outside) > BATCH / 2
        assert not [size for size in inside if size >= OFFLOAD_BYTES[IDS[codec]]], f"compressed in the hub: {inside}"

        def consume() -> None:
            with client.get_consumer(topic) as consumer:
                count = 0
                while count < 1 + RECORDS:
                    messages = consumer.consume_batch(1000, 1000 * LIMIT_S)
                    assert messages, f"{count} of {1 + RECORDS} records"
                    assert all(message.value in known for message in messages)
                    count += len(messages)
                assert count == 1 + RECORDS

        known = {b"warm", *values}
        assert_free_hub(consume)


@pytest.mark.parametrize(
    ("codec", "mode"),
    [
        pytest.param(codec, mode, marks=() if (at + turn) % 2 == 0 else pytest.mark.thorough)
        for turn, mode in enumerate((UNPATCHED, PATCHED))
        for at, codec in enumerate(CODECS)
    ],
)
def test_07_large_batches_are_compressed_outside_of_the_hub(mode: str, codec: str, stub: str, stub_topic: Callable[..., str]) -> None:
    in_child(mode, produce_and_consume, stub, stub_topic(2), codec)
