"""Messages to pyarrow RecordBatches: gkafka's consume_arrow(), or confluent-kafka's consume() and lists that pyarrow makes columns of.

Prints one JSON line: rows, bytes of values, a checksum of the offsets, seconds from the first rows on, CPU microseconds a row.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

if TYPE_CHECKING:
    import pyarrow as pa


def of_gkafka(bootstrap: str, topic: str, partitions: int) -> Iterator[pa.RecordBatch]:
    from gkafka import KafkaClient

    with KafkaClient(bootstrap, handler="threading") as client, client.get_consumer() as consumer:
        consumer.assign({(topic, p): 0 for p in range(partitions)})
        while True:
            yield consumer.consume_arrow(timeout_ms=5000)


def of_confluent(bootstrap: str, topic: str, partitions: int) -> Iterator[pa.RecordBatch]:
    from confluent_kafka import Consumer, TopicPartition

    from benchmarks.confluent_source import AT_A_CALL, CONSUMER, arrow_batch

    consumer = Consumer({"bootstrap.servers": bootstrap, **CONSUMER})
    try:
        consumer.assign([TopicPartition(topic, p, 0) for p in range(partitions)])
        while True:
            yield arrow_batch([m for m in consumer.consume(AT_A_CALL, 0.05) if not m.error()])
    finally:
        consumer.close()


def main() -> None:
    import pyarrow.compute as pc

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("client", choices=("gkafka", "confluent"))
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--partitions", type=int, required=True)
    parser.add_argument("--count", type=int, required=True)
    given = parser.parse_args()
    source = {"gkafka": of_gkafka, "confluent": of_confluent}[given.client]
    rows = size = checksum = first = 0
    began = cpu = 0.0
    batches = source(given.bootstrap, given.topic, given.partitions)
    for batch in batches:
        rows += batch.num_rows
        size += pc.sum(pc.binary_length(batch["value"])).as_py() or 0
        checksum += pc.sum(batch["offset"]).as_py() or 0
        if not first and rows:
            first, began, cpu = rows, time.perf_counter(), time.process_time()
        if rows >= given.count:
            break
    took, used = time.perf_counter() - began, time.process_time() - cpu
    batches.close()  # type: ignore[attr-defined]  # a generator
    measured = rows - first
    print(
        json.dumps({"rows": rows, "bytes": size, "checksum": checksum, "rate": measured / took, "cpu_us": used / measured * 1e6}),
        flush=True,
    )


if __name__ == "__main__":
    main()
