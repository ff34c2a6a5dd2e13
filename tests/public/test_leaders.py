"""Leaders move: whoever uses a topic follows, however it learnt of it."""

from __future__ import annotations

import time
from typing import Any

import pytest

from gkafka import KafkaClient
from gkafka.testing import Edit, MockCluster


@pytest.mark.parametrize("handler", ["threading", "gevent"])
def test_a_topic_known_from_the_list_of_all_topics_is_followed_when_its_leader_moves(handler: str) -> None:
    with (
        MockCluster(brokers=2, topics={"t": 1}, replication_factor=2) as brokers,
        KafkaClient(brokers.bootstrap, handler=handler) as client,
    ):
        client.update_cluster()
        with client.get_producer() as producer:
            producer.produce("t", b"before", partition=0).result(10)
            start = brokers.leader("t", 0)
            brokers.move_leader("t", 0, 3 - start)
            producer.produce("t", b"after", partition=0).result(10)
        raws = list(client.fetch_stream("t", 0, 0, 2, timeout=10))
        brokers.move_leader("t", 0, start)
        again = client.fetch_raw("t", 0, 0, timeout=10)
    assert raws[-1].next_offset == 2
    assert again.high_watermark == 2


@pytest.mark.parametrize("handler", ["threading", "gevent"])
def test_a_lone_record_goes_as_soon_as_the_metadata_tells_of_its_leader(handler: str) -> None:
    """Its producer has nothing else to do, and must not sleep on beside the answer."""
    with (
        MockCluster(brokers=2, topics={"t": 1}, replication_factor=2) as brokers,
        KafkaClient(brokers.bootstrap, handler=handler) as client,
        client.get_producer(linger_ms=0, retry_backoff_ms=1) as producer,
    ):
        producer.produce("t", b"before", partition=0).result(10)
        brokers.on("Produce", Edit(_without_leaders), times=None)
        brokers.on("Metadata", Edit(_without_leaders), times=3)
        brokers.move_leader("t", 0, 3 - brokers.leader("t", 0))
        began = time.monotonic()
        producer.produce("t", b"after", partition=0).result(10)
        assert time.monotonic() - began < 1.8, "a worker that nobody wakes sleeps for a second after each answer"


def _without_leaders(request: Any, answer: Any) -> Any:
    """While a leader is elected; and as brokers before Kafka 3.7 answer Produce, without a hint."""
    for topic in getattr(answer, "topics", ()):
        for partition in topic.partitions:
            partition.leader_id = -1
    for topic in getattr(answer, "responses", ()):
        for partition in topic.partition_responses:
            partition.current_leader.leader_id = -1
    return answer
