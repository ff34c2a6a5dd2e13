"""TLS throughput: gkafka beside confluent-kafka, on a real Apache Kafka with a TLS listener that this program starts.

    python benchmarks/tls.py                        # 1 KB, 300,000 records a run, 5 rounds
    python benchmarks/tls.py --records 50000 --rounds 3

Each run is a process of its own, and the clients take turns, so that a busy moment meets both. Produced: acks=all, idempotent, no compression, to
four partitions; the time ends when all are acknowledged, and the broker's offsets are looked at afterwards. Consumed: the same records,
each value summed up. Both check certificate and host name. Ratios are medians of the rounds' ratios.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
TOPIC, PARTITIONS = "tls", 4
CLIENTS = ("gkafka", "confluent-kafka")
MODES = ("produce", "consume")


def payloads(size: int) -> list[bytes]:
    return [i.to_bytes(4, "big") + os.urandom(size - 4) for i in range(512)]


# -- one measurement, in a process of its own --------------------------------------------------------------------------
def gkafka_produce(given: argparse.Namespace, pool: list[bytes]) -> float:
    import gkafka

    with gkafka.KafkaClient(given.hosts, handler="threading", security_protocol="SSL", ssl_cafile=given.ca) as client:
        client.partitions(given.topic)
        producer = client.get_producer(acks="all")
        produce = producer.produce
        began = time.perf_counter()
        for i in range(given.records):
            produce(given.topic, pool[i % 512], partition=i % PARTITIONS)
        producer.flush(120)
        return time.perf_counter() - began


def gkafka_consume(given: argparse.Namespace, _pool: list[bytes]) -> float:
    import gkafka

    with gkafka.KafkaClient(given.hosts, handler="threading", security_protocol="SSL", ssl_cafile=given.ca) as client:
        consumer = client.get_consumer()
        consumer.assign([(given.topic, p) for p in range(PARTITIONS)])
        got = summed = 0
        began = time.perf_counter()
        while got < given.records:
            messages = consumer.consume_batch(1000, timeout_ms=10000)
            got += len(messages)
            summed += sum(len(message.value) for message in messages)
            if not messages:
                raise TimeoutError(f"{got} of {given.records}")
        took = time.perf_counter() - began
    assert summed == given.records * given.size
    return took


def confluent(given: argparse.Namespace, **more: Any) -> dict[str, Any]:
    return {"bootstrap.servers": given.hosts, "security.protocol": "SSL", "ssl.ca.location": given.ca, **more}


def confluent_produce(given: argparse.Namespace, pool: list[bytes]) -> float:
    from confluent_kafka import Producer

    options = {"acks": "all", "enable.idempotence": True, "linger.ms": 5, "batch.size": 262144, "queue.buffering.max.messages": 1_000_000}
    producer = Producer(confluent(given, **options))
    producer.list_topics(given.topic, timeout=30)
    began = time.perf_counter()
    for i in range(given.records):
        while True:
            try:
                producer.produce(given.topic, pool[i % 512], partition=i % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.05)
        if i % 1000 == 0:
            producer.poll(0)
    assert producer.flush(120) == 0
    return time.perf_counter() - began


def confluent_consume(given: argparse.Namespace, _pool: list[bytes]) -> float:
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    options = {"group.id": "tls", "enable.auto.commit": False, "check.crcs": True, "fetch.wait.max.ms": 500}
    consumer = Consumer(confluent(given, **options))
    consumer.assign([TopicPartition(given.topic, p, OFFSET_BEGINNING) for p in range(PARTITIONS)])
    got = summed = 0
    began = time.perf_counter()
    while got < given.records:
        messages = consumer.consume(1000, timeout=10)
        got += len(messages)
        summed += sum(len(message.value()) for message in messages)
        if not messages:
            raise TimeoutError(f"{got} of {given.records}")
    took = time.perf_counter() - began
    assert summed == given.records * given.size
    return took


RUNS = {
    ("gkafka", "produce"): gkafka_produce,
    ("gkafka", "consume"): gkafka_consume,
    ("confluent-kafka", "produce"): confluent_produce,
    ("confluent-kafka", "consume"): confluent_consume,
}


# -- the table ---------------------------------------------------------------------------------------------------------
def measure(given: argparse.Namespace, client: str, mode: str, topic: str, hosts: str, ca: str) -> float:
    """MB/s of values."""
    command = [sys.executable, __file__, "--run", client, mode, "--hosts", hosts, "--ca", ca, "--topic", topic]
    command += ["--records", str(given.records), "--size", str(given.size)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, env={**os.environ, "PYTHONPATH": str(ROOT)})
    if done.returncode:
        raise SystemExit(f"{client}, {mode}: {done.stderr}")
    return given.records * given.size / json.loads(done.stdout)["seconds"] / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=300_000)
    parser.add_argument("--size", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--run", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--hosts", help=argparse.SUPPRESS)
    parser.add_argument("--ca", help=argparse.SUPPRESS)
    parser.add_argument("--topic", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.run:
        client, mode = given.run
        print(json.dumps({"seconds": RUNS[client, mode](given, payloads(given.size))}))
        return
    sys.path.insert(0, str(ROOT))
    with ExitStack() as stack:
        compare(given, *start(stack))


def start(stack: ExitStack) -> tuple[Any, str, str]:
    """(cluster, the TLS listener's address, the file of its authority)."""
    from tests.live.kafka import KafkaCluster
    from tests.net.certificates import Certificates

    certs = Certificates(Path(stack.enter_context(tempfile.TemporaryDirectory())))
    store = certs.folder / "broker.store"
    store.write_text(certs.text("good.key") + certs.text("good.pem"))
    properties = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": store,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": certs.ca,
    }
    cluster = stack.enter_context(KafkaCluster("4.2.0", properties=properties, listeners={"TLS": "SSL"}, fast=False))
    return cluster, f"127.0.0.1:{cluster.nodes[0].listeners['TLS']}", certs.ca


def compare(given: argparse.Namespace, cluster: Any, hosts: str, ca: str) -> None:
    rates: dict[tuple[str, str], list[float]] = {(client, mode): [] for mode in MODES for client in CLIENTS}
    print(f"Kafka 4.2.0, TLS, {given.records:,} records of {given.size} B; MB/s of values")
    for turn in range(given.rounds + 1):  # the first one warms the broker up and counts for nothing
        for client in CLIENTS if turn % 2 else reversed(CLIENTS):
            topic = f"{TOPIC}-{turn}-{client}"
            cluster.create_topic(topic, PARTITIONS)
            for mode in MODES:
                rate = measure(given, client, mode, topic, hosts, ca)
                if turn:
                    rates[client, mode].append(rate)
    print("\n| | gkafka | confluent-kafka | ratio |\n|---|---|---|---|")
    for mode in MODES:
        ours, theirs = rates["gkafka", mode], rates["confluent-kafka", mode]
        ratio = statistics.median(a / b for a, b in zip(ours, theirs, strict=True))
        print(f"| {mode} | {statistics.median(ours):.1f} | {statistics.median(theirs):.1f} | {ratio:.2f} |")


if __name__ == "__main__":
    main()
