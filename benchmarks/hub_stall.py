"""How long gkafka keeps gevent's hub from everybody else while it produces or consumes at full speed.

One greenlet does nothing but produce (or consume); another sleeps 2 ms over and over and notes when it was late. Prints one JSON
line: max_cpu_gap_ms (CPU time of the hub's thread between two ticks: other load on the machine does not count), max_wall_gap_ms,
min_ticks_per_s over the whole seconds of the run, messages.
"""

from __future__ import annotations

from gevent import monkey

monkey.patch_all()

import argparse  # noqa: E402
import itertools  # noqa: E402
import json  # noqa: E402
import time  # noqa: E402
from collections.abc import Callable, Iterator  # noqa: E402

import gevent  # noqa: E402

import gkafka  # noqa: E402
from gkafka.common import OffsetType  # noqa: E402

TICK_S = 0.002


class Ticker:
    """Times of its ticks: wall clock and CPU of the hub's thread, both in seconds."""

    def __init__(self) -> None:
        self.ticks: list[tuple[float, float]] = []
        self._greenlet = gevent.spawn(self._run)

    def _run(self) -> None:
        while True:
            self.ticks.append((time.perf_counter(), time.thread_time()))
            gevent.sleep(TICK_S)

    def stop(self) -> None:
        # A ticker that never came back counts too: the end of the run is a tick.
        self.ticks.append((time.perf_counter(), time.thread_time()))
        self._greenlet.kill()

    def gaps(self) -> Iterator[tuple[float, float]]:
        for (wall, cpu), (next_wall, next_cpu) in itertools.pairwise(self.ticks):
            yield next_wall - wall, next_cpu - cpu

    def per_second(self) -> list[int]:
        start, end = self.ticks[0][0], self.ticks[-1][0]
        counts = [0] * max(1, int(end - start))
        for wall, _ in self.ticks[:-1]:
            if int(wall - start) < len(counts):
                counts[int(wall - start)] += 1
        return counts


def produce(client: gkafka.KafkaClient, topic: str, partitions: int, end: float) -> int:
    producer = client.get_producer(acks=1, enable_idempotence=False, linger_ms=5, batch_bytes=131072)
    send, value = producer.produce, b"x" * 100
    producer.produce(topic, value, partition=0).result(30)
    sent = 0
    while time.perf_counter() < end:
        for i in range(10_000):
            send(topic, value, partition=i % partitions)
        sent += 10_000
    producer.close(60)
    return sent


def consume(client: gkafka.KafkaClient, topic: str, partitions: int, end: float) -> int:
    seen = size = 0
    while time.perf_counter() < end:  # the topic again and again
        consumer = client.topics[topic].get_simple_consumer(auto_offset_reset=OffsetType.EARLIEST)
        while (messages := consumer.consume_batch(1000, 500)) and time.perf_counter() < end:
            for message in messages:
                size += len(message.value)
            seen += len(messages)
        consumer.stop()
    assert size == seen * 100
    return seen


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("mode", choices=("produce", "consume"))
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=5)
    given = parser.parse_args()
    work: Callable[[gkafka.KafkaClient, str, int, float], int] = produce if given.mode == "produce" else consume
    client = gkafka.KafkaClient(given.bootstrap)
    client.update_cluster()
    ticker = Ticker()
    gevent.sleep(0.05)
    job = gevent.spawn(work, client, given.topic, given.partitions, time.perf_counter() + given.seconds)
    job.join()
    ticker.stop()
    client.close(10)
    walls, cpus = zip(*ticker.gaps(), strict=True)
    result = {
        "messages": job.get(),
        "handler": client.handler.name,
        "max_cpu_gap_ms": 1e3 * max(cpus),
        "max_wall_gap_ms": 1e3 * max(walls),
        "min_ticks_per_s": min(ticker.per_second()),
    }
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
