"""One consumer of 10,000 partitions on a broker in another process: seconds until it reads, and what that takes of memory.

Prints one JSON line: seconds (from the call to a record of the last partition), grown_mib, idle_cpu_percent.
"""

from __future__ import annotations

import argparse
import gc
import json
import multiprocessing
import os
import time
from pathlib import Path
from typing import Any

import gkafka
from gkafka.testing import MockCluster

PARTITIONS = 10_000


def serve(pipe: Any) -> None:
    with MockCluster(brokers=1, topics={"many": PARTITIONS}) as cluster:
        pipe.send(cluster.bootstrap)
        pipe.recv()


def resident_mib() -> float:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE") / (1 << 20)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5, help="how long the CPU of the idle consumer is measured")
    given = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    broker = context.Process(target=serve, args=(there,), daemon=True)
    broker.start()
    assert here.poll(60), "the broker has not started"
    with gkafka.KafkaClient(here.recv()) as client:
        client.partitions("many")
        with client.get_producer() as producer:
            producer.produce("many", b"x", partition=PARTITIONS - 1).result(60)
        before, began = resident_mib(), time.perf_counter()
        with client.get_consumer("many") as consumer:
            message = consumer.consume(60_000)
            seconds = time.perf_counter() - began
            assert message is not None, "nothing was consumed"
            while any(offset < 0 for offset in consumer.positions().values()):
                consumer.consume(100)
            placed = time.perf_counter() - began
            grown = resident_mib() - before
            begun, used = time.perf_counter(), time.process_time()
            consumer.consume(given.seconds * 1000)
            idle = 100 * (time.process_time() - used) / (time.perf_counter() - begun)
    here.send(None)
    broker.join(10)
    print(json.dumps({"seconds": max(seconds, placed), "grown_mib": grown, "idle_cpu_percent": idle}))


if __name__ == "__main__":
    main()
