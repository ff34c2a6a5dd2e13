"""Batches of 1 MB in one codec, by a client of greenlets: compressed and decompressed in gkafka's own threads, or (--inline) in the hub.

Prints a JSON line: {"rate": records of 1 KB a second}. What it stalls is tests/gevent's number 7.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.figures import json_like

BATCH = 1_000_000
LIMIT_S = 120.0
RECORDS = {"gzip": 20_000, "zstd": 60_000, "lz4": 100_000, "snappy": 100_000}
"""Of one measurement: about a second of work."""


def produce(client: Any, topic: str, codec: str) -> float:
    values = json_like(500, 1000)
    producer = client.get_producer(compression=codec, batch_bytes=BATCH, max_request_bytes=2 * BATCH, linger_ms=50)
    producer.produce(topic, b"warm").result(LIMIT_S)
    began = time.perf_counter()
    for n in range(RECORDS[codec]):
        producer.produce(topic, values[n % 500])
    producer.flush(LIMIT_S)
    return time.perf_counter() - began


def consume(client: Any, topic: str, codec: str) -> float:
    count = size = 0
    with client.get_consumer(topic, fetch_max_bytes=50 << 20, fetch_message_max_bytes=16 << 20) as consumer:
        began = time.perf_counter()
        while count < RECORDS[codec]:
            messages = consumer.consume_batch(1000, 1000 * LIMIT_S)
            size += sum(len(message.value) for message in messages)
            count += len(messages)
        seconds = time.perf_counter() - began
    assert size > 900 * RECORDS[codec]
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mode", choices=("produce", "consume"))
    for name in ("--bootstrap", "--topic"):
        parser.add_argument(name, required=True)
    parser.add_argument("--codec", choices=RECORDS, required=True)
    parser.add_argument("--inline", action="store_true")
    given = parser.parse_args()
    from gkafka import KafkaClient
    from gkafka.handlers import GEventHandler

    if given.inline:
        GEventHandler.offload = lambda self, fn, *arguments: fn(*arguments)  # type: ignore[method-assign]  # what is measured beside: codecs in the hub's own thread
    with KafkaClient(given.bootstrap, handler="gevent") as client:
        run = produce if given.mode == "produce" else consume
        print(json.dumps({"rate": RECORDS[given.codec] / run(client, given.topic, given.codec)}))


if __name__ == "__main__":
    main()
