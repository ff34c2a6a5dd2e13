"""Records that a real broker refuses by name (KIP-467), and topics that it makes by itself: what gkafka's own broker in the process is told of it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from gkafka import KafkaClient
from gkafka.exceptions import DeliveryError, InvalidRecord
from tests.kit.clock import now
from tests.live.kafka import KafkaCluster

LIMIT_S = 60.0


def values(client: KafkaClient, topic: str, count: int) -> list[bytes]:
    """So many records of a topic, and no more."""
    with client.get_consumer(topic) as consumer:
        found: list[bytes] = []
        until = now() + LIMIT_S
        while len(found) < count and now() < until:
            found += [bytes(message.value) for message in consumer.consume_batch(count, timeout_ms=5000)]
        return found + [bytes(message.value) for message in consumer.consume_batch(10, timeout_ms=500)]


@pytest.mark.parametrize("handler", ["threading"], indirect=True)
def test_bad_records_of_a_compacted_topic_fail_alone_in_the_brokers_words(
    connect: Callable[..., KafkaClient], new_topic: Callable[..., str]
) -> None:
    topic = new_topic(cleanup_policy="compact", message_timestamp_after_max_ms=3_600_000)
    producer = connect().get_producer(linger_ms=200)
    microseconds = 1_700_000_000_000_000
    deliveries: list[Any] = [
        producer.produce(topic, b"%d" % i, None if i == 300 else b"k%d" % i, timestamp=microseconds if i == 700 else None)
        for i in range(1000)
    ]
    with pytest.raises(DeliveryError) as caught:
        producer.close(LIMIT_S)
    assert [(entry.record.value, type(entry.error), entry.persisted) for entry in caught.value.records] == [
        (b"300", InvalidRecord, "no"),
        (b"700", InvalidRecord, "no"),
    ]
    assert "without key" in str(deliveries[300].exception(0))
    assert "imestamp" in str(deliveries[700].exception(0))
    assert [d.result(0).offset for i, d in enumerate(deliveries) if i not in (300, 700)] == list(range(998))
    assert values(connect(), topic, 998) == [b"%d" % i for i in range(1000) if i not in (300, 700)]


@pytest.mark.parametrize("handler", ["threading"], indirect=True)
def test_a_deleted_topic_stays_away_until_there_is_a_record_for_it(
    connect: Callable[..., KafkaClient], kafka: KafkaCluster, new_name: Callable[[str], str]
) -> None:
    name = new_name("topic")
    producer = connect(metadata_max_age_ms=500).get_producer(linger_ms=0)
    assert producer.produce(name, b"x").result(LIMIT_S).offset == 0, "the broker makes topics by itself"
    connect().delete_topic(name)
    time.sleep(4)
    assert name not in connect(auto_create_topics=False).topics
    assert producer.produce(name, b"y").result(LIMIT_S).offset == 0
