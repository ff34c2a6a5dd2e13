"""df.write.format("gkafka") and writeStream on a real Kafka: what is written, another client reads."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, TopicPartition
from pyspark.sql import DataFrame, SparkSession

import gkafka.spark
from tests.live.kafka import KafkaCluster

NewTopic = Callable[..., str]
Write = Callable[..., None]
DEADLINE_S = 60.0


@pytest.fixture(autouse=True)
def _registered(spark: SparkSession) -> None:
    gkafka.spark.register(spark)


@pytest.fixture
def read(kafka: KafkaCluster) -> Callable[..., list[Message]]:
    """All records of a topic that are committed, read by librdkafka; in the order of each partition."""

    def records(*topics: str, partitions: int = 2) -> list[Message]:
        consumer = Consumer(
            {"bootstrap.servers": kafka.hosts, "group.id": "eye", "isolation.level": "read_committed", "enable.partition.eof": True}
        )
        try:
            left = {(topic, p) for topic in topics for p in range(partitions)}
            consumer.assign([TopicPartition(*tp, OFFSET_BEGINNING) for tp in left])
            found: list[Message] = []
            deadline = time.monotonic() + DEADLINE_S
            while left:
                message = consumer.poll(1)
                assert time.monotonic() < deadline, f"nothing ended {left}"
                if message is None:
                    continue
                error = message.error()
                if error is None:
                    found.append(message)
                elif error.name() == "_PARTITION_EOF":
                    left.discard((message.topic(), message.partition()))
                else:
                    raise AssertionError(error)
            return found
        finally:
            consumer.close()

    return records


@pytest.fixture
def write(kafka: KafkaCluster) -> Write:
    """Writes a DataFrame as a batch; a name's "__" stands for a dot."""

    def save(frame: DataFrame, mode: str | None = "append", **options: Any) -> None:
        given = {name.replace("__", "."): value for name, value in options.items()}
        writer = frame.write.format("gkafka").options(**{"kafka.bootstrap.servers": kafka.hosts, **given})
        (writer if mode is None else writer.mode(mode)).save()

    return save


def values(messages: list[Message]) -> list[bytes | None]:
    return sorted((m.value() for m in messages), key=lambda value: (value is not None, value or b""))


ROWS = """
    select cast('k' || id as binary) as key, if(id % 5 = 0, null, 'value ' || id) as value,
           if(id % 3 = 0, array(struct('ключ' as key, cast('x' as binary) as value), struct('b' as key, cast(null as binary) as value)), null) as headers
    from range(0, 1000, 1, 2)
"""


def test_another_client_reads_what_was_written(spark: SparkSession, topic: NewTopic, write: Write, read: Any) -> None:
    name = topic()
    write(spark.sql(ROWS), topic=name)
    found = {m.key(): (m.value(), m.headers()) for m in read(name)}
    assert len(found) == 1000
    for i in range(1000):
        headers = [("ключ", b"x"), ("b", None)] if i % 3 == 0 else None
        assert found[b"k%d" % i] == (None if i % 5 == 0 else b"value %d" % i, headers)
