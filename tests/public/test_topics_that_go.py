"""Clients that live long: a deleted topic stays away until somebody writes to it, and what nobody writes to is forgotten."""

from __future__ import annotations

from typing import Any

import pytest

from gkafka.exceptions import UnknownTopicError
from gkafka.testing import MockCluster
from tests.public.aids import LIMIT_S, Runner, error_of, stored_values


def named(cluster: MockCluster, since: int = 0) -> list[tuple[set[str], bool]]:
    """(topics, may they be made) of each Metadata request that names topics."""
    messages: list[Any] = [request.message for request in cluster.requests("Metadata")[since:]]
    return [({topic.name for topic in m.topics}, bool(m.allow_auto_topic_creation)) for m in messages if m.topics is not None]


def is_there(connect: Any, cluster: MockCluster, topic: str) -> bool:
    """For a client that never makes a topic."""
    return topic in connect(cluster, auto_create_topics=False).topics


def produced(client: Any, skin: str, topic: str) -> Any:
    """A producer that has written one record to the topic."""
    if skin == "documented":
        producer = client.topics[topic].get_producer(linger_ms=0, sync=True)
        producer.produce(b"x")
        return producer
    producer = client.get_producer(linger_ms=0)
    producer.produce(topic, b"x").result(LIMIT_S)
    return producer


@pytest.mark.parametrize("skin", ["native", "documented"])
def test_a_producer_that_rests_makes_no_topic_again(connect: Any, make_cluster: Any, run: Runner, skin: str) -> None:
    cluster = make_cluster(topics={"u": 1})
    client = connect(cluster, metadata_max_age_ms=100)
    producer = produced(client, skin, "t")
    cluster.delete_topic("t")
    since = cluster.count("Metadata")
    run.until(lambda: cluster.count("Metadata") >= since + 6)
    assert not is_there(connect, cluster, "t")
    assert not [topics for topics, makes in named(cluster, since) if makes and "t" in topics]
    if skin == "native":
        assert producer.produce("t", b"y").result(LIMIT_S).offset == 0, "who writes to it makes it again"
    else:
        producer.produce(b"y")
    assert stored_values(cluster) == [b"y"]


def test_a_record_that_waits_makes_its_topic_again(connect: Any, make_cluster: Any) -> None:
    cluster = make_cluster(topics={"t": 1})
    producer = connect(cluster, metadata_max_age_ms=100).get_producer(linger_ms=2000, retry_backoff_ms=5)
    producer.produce("t", b"x").result(LIMIT_S)
    waiting = producer.produce("t", b"y")
    cluster.delete_topic("t")
    assert waiting.result(LIMIT_S).offset == 0
    assert stored_values(cluster) == [b"y"]


def test_another_topic_that_is_made_brings_no_deleted_one_back(connect: Any, make_cluster: Any, run: Runner) -> None:
    """What is deleted is still known, or is read by somebody in this client, when a request that may make topics goes out."""
    cluster = make_cluster(topics={"t": 1, "read": 1})
    client = connect(cluster, metadata_max_age_ms=100)
    producer = client.get_producer(linger_ms=0)
    producer.produce("t", b"x").result(LIMIT_S)
    consumer = client.get_consumer("read")
    cluster.delete_topic("t")
    cluster.delete_topic("read")
    for name in ("n0", "n1", "n2"):
        producer.produce(name, b"x").result(LIMIT_S)
        run.sleep(0.15)
    since = cluster.count("Metadata")
    run.until(lambda: cluster.count("Metadata") >= since + 4)
    consumer.close()
    assert [is_there(connect, cluster, name) for name in ("t", "read", "n0", "n1", "n2")] == [False, False, True, True, True]


def test_a_topic_that_is_gone_is_not_asked_for_without_end(connect: Any, make_cluster: Any, run: Runner) -> None:
    cluster = make_cluster(topics={"t": 1})
    client = connect(cluster, metadata_max_age_ms=100, auto_create_topics=False)
    producer = produced(client, "native", "t")
    cluster.delete_topic("t")
    run.until(lambda: named(cluster) and named(cluster)[-1][0] == set())
    since = cluster.count("Metadata")
    run.until(lambda: cluster.count("Metadata") >= since + 4)
    assert {name for topics, _ in named(cluster, since) for name in topics} == set()
    assert isinstance(error_of(producer.produce, "t", b"y"), UnknownTopicError)
    cluster.create_topic("t")
    assert producer.produce("t", b"z").result(LIMIT_S).offset == 0


def test_metadata_max_idle_ms_forgets_topics_that_nobody_writes_to(connect: Any, make_cluster: Any, run: Runner) -> None:
    replies = {f"reply-{i}": 1 for i in range(20)}
    cluster = make_cluster(2, topics={"busy": 1, "read": 1, **replies})
    client = connect(cluster, metadata_max_age_ms=100, metadata_max_idle_ms=500)
    producer = client.get_producer(linger_ms=0)
    consumer = client.get_consumer("read")
    for name in ("read", *replies):
        producer.produce(name, b"x").result(LIMIT_S)

    def is_forgotten() -> bool:
        producer.produce("busy", b"x").result(LIMIT_S)
        return bool(named(cluster)) and named(cluster)[-1][0] == {"busy", "read"}

    run.until(is_forgotten)
    cluster.move_leader("reply-3", 0, 3 - cluster.leader("reply-3", 0))
    since = cluster.count("Metadata")
    assert producer.produce("reply-3", b"y").result(LIMIT_S).offset == 1, "it is asked for again"
    run.until(lambda: any("reply-3" in topics for topics, _ in named(cluster, since)))  # and forgotten once more, before long
    consumer.close()
