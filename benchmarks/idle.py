"""How much CPU a producer, or a consumer of a group, takes that has nothing more to do. Prints one JSON line: cpu_percent."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable

import gkafka


def idle_producer(client: gkafka.KafkaClient, topic: str, seconds: float) -> float:
    with client.get_producer() as producer:
        producer.produce(topic, b"x").result(30)
        return used(lambda: client.handler.sleep(seconds))


def idle_consumer(client: gkafka.KafkaClient, topic: str, seconds: float) -> float:
    with client.get_consumer(topic, "idle") as consumer:
        while not consumer.assignment():
            consumer.consume(100)
        consumer.consume(2000)  # what a beginning takes is no idling
        return used(lambda: consumer.consume(seconds * 1000))


def used(fn: Callable[[], object]) -> float:
    """CPU while fn runs, of this process, in per cent of one core."""
    began, before = time.perf_counter(), time.process_time()
    fn()
    return 100 * (time.process_time() - before) / (time.perf_counter() - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--handler", default="threading")
    parser.add_argument("--of", choices=["producer", "consumer"], default="producer")
    parser.add_argument("--seconds", type=float, default=10)
    given = parser.parse_args()
    with gkafka.KafkaClient(given.bootstrap, handler=given.handler) as client:
        percent = (idle_producer if given.of == "producer" else idle_consumer)(client, given.topic, given.seconds)
    print(json.dumps({"cpu_percent": percent}))


if __name__ == "__main__":
    main()
