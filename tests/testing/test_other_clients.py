"""Independent eyes: other people's Kafka clients on the mock cluster."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from gkafka.testing import Close, Error, MockCluster
from tests.kit.clock import PATIENCE_S, now

confluent = pytest.importorskip("confluent_kafka")
kafka_python = pytest.importorskip("kafka")
WAIT_S = PATIENCE_S


@pytest.fixture
def cluster() -> Iterator[MockCluster]:
    with MockCluster(brokers=3, topics={"t": 4}) as made:
        yield made


def produce_confluent(cluster: MockCluster, count: int, **options: Any) -> None:
    failures: list[Any] = []
    producer = confluent.Producer({"bootstrap.servers": cluster.bootstrap, "linger.ms": 1, "log_level": 0, **options})
    for index in range(count):
        producer.produce(
            "t",
            value=b"v%d" % index,
            key=b"k%d" % index,
            partition=index % 4,
            headers=[("h", b"x"), ("none", None)],
            on_delivery=lambda error, _: failures.append(error) if error else None,
        )
    assert producer.flush(WAIT_S) == 0
    assert failures == []


def consume_confluent(cluster: MockCluster, count: int) -> list[Any]:
    consumer = confluent.Consumer(
        {"bootstrap.servers": cluster.bootstrap, "group.id": "g", "auto.offset.reset": "earliest", "log_level": 0}
    )
    consumer.assign([confluent.TopicPartition("t", index, 0) for index in range(4)])
    found: list[Any] = []
    deadline = now() + WAIT_S
    while len(found) < count and now() < deadline:
        message = consumer.poll(0.5)
        if message is not None:
            assert not message.error(), message.error()
            found.append(message)
    consumer.close()
    return found


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_confluent_produces_and_consumes(cluster: MockCluster, codec: str) -> None:
    produce_confluent(cluster, 400, **{"compression.type": codec})
    found = consume_confluent(cluster, 400)
    assert sorted((m.partition(), m.offset()) for m in found) == [(p, o) for p in range(4) for o in range(100)]
    assert {m.value() for m in found} == {b"v%d" % index for index in range(400)}
    stored = cluster.log("t", 1)
    assert [(record.key, record.value) for record in stored] == [(b"k%d" % n, b"v%d" % n) for n in range(1, 400, 4)]
    assert stored[0].headers == [("h", b"x"), ("none", None)]


def test_an_idempotent_confluent_producer_loses_an_acknowledgement_and_stores_nothing_twice(cluster: MockCluster) -> None:
    cluster.on("Produce", Close(before=False), times=2)
    cluster.on("Produce", Error(7), times=2)
    produce_confluent(cluster, 200, **{"enable.idempotence": True})
    for partition in range(4):
        assert [record.value for record in cluster.log("t", partition)] == [b"v%d" % n for n in range(partition, 200, 4)]
    assert cluster.count("Produce") >= 8


def test_a_confluent_producer_follows_the_leader(cluster: MockCluster) -> None:
    produce_confluent(cluster, 40)
    cluster.move_leader("t", 0, 3)
    cluster.stop_broker(2)
    produce_confluent(cluster, 40)
    assert [cluster.offsets("t", n)[1] for n in range(4)] == [20] * 4


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
def test_kafka_python_produces_and_consumes(cluster: MockCluster, codec: str | None) -> None:
    producer = kafka_python.KafkaProducer(bootstrap_servers=cluster.bootstrap, compression_type=codec)
    futures = [producer.send("t", b"v%d" % n, key=b"k", partition=n % 4) for n in range(100)]
    offsets = [future.get(WAIT_S).offset for future in futures]
    producer.close()
    assert sorted(offsets) == sorted(n // 4 for n in range(100))
    consumer = kafka_python.KafkaConsumer(bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest", consumer_timeout_ms=60_000)
    consumer.assign([kafka_python.TopicPartition("t", n) for n in range(4)])
    found = [next(consumer).value for _ in range(100)]
    consumer.close()
    assert sorted(found) == sorted(b"v%d" % n for n in range(100))


@pytest.mark.parametrize(("release", "version"), [("0.9.0", (0, 9)), ("0.10.2", (0, 10, 2)), ("1.1", (1, 0)), ("2.8", (2, 6))])
def test_kafka_python_speaks_to_old_releases(release: str, version: tuple[int, ...]) -> None:
    """Message sets of formats 0 and 1, written and read by a client that is not ours."""
    with MockCluster(topics={"t": 1}, versions=release) as cluster:
        options = {"bootstrap_servers": cluster.bootstrap, "api_version": version}
        producer = kafka_python.KafkaProducer(**options, compression_type="gzip", linger_ms=20)
        futures = [producer.send("t", b"v%d" % n, partition=0) for n in range(20)]
        assert [future.get(WAIT_S).offset for future in futures] == list(range(20))
        producer.close()
        assert [record.value for record in cluster.log("t", 0)] == [b"v%d" % n for n in range(20)]
        consumer = kafka_python.KafkaConsumer(**options, auto_offset_reset="earliest", consumer_timeout_ms=60_000)
        consumer.assign([kafka_python.TopicPartition("t", 0)])
        assert [(m.offset, m.value) for m in (next(consumer) for _ in range(20))] == [(n, b"v%d" % n) for n in range(20)]
        consumer.close()
