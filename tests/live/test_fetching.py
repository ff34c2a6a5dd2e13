"""Fetching from real brokers: sessions, leader epochs, followers nearby, topics that are made again."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from gkafka.common import TopicPartition
from gkafka.config import ConsumerConfig, build
from gkafka.exceptions import LogTruncationError
from gkafka.nativeconsumer import NativeConsumer
from tests.kit.clock import now
from tests.live.kafka import KafkaCluster

if TYPE_CHECKING:
    from gkafka import KafkaClient

LIMIT_S = 60.0
Native = Callable[..., NativeConsumer]


@pytest.fixture
def native() -> Iterator[Native]:
    """Makes consumers that raise where anything is lost or out of range; they are stopped at the end."""
    made: list[NativeConsumer] = []

    def make(client: KafkaClient, topic: str, partitions: int = 1, policy: int | None = None, **options: Any) -> NativeConsumer:
        consumer = NativeConsumer(client.cluster, build(ConsumerConfig, options, where="test"), reset_policy=policy)
        made.append(consumer)
        consumer.start()
        consumer.assign({TopicPartition(topic, p): -2 for p in range(partitions)})
        return consumer

    yield make
    for consumer in made:
        consumer.stop()


def fill(client: KafkaClient, topic: str, count: int, partitions: int = 1, first: int = 0) -> None:
    """Records b"first", ... into each partition."""
    with client.get_producer(acks="all", linger_ms=20) as producer:
        for i in range(count):
            for p in range(partitions):
                producer.produce(topic, b"%d" % (first + i), partition=p)
        producer.flush(LIMIT_S)


def read(consumer: NativeConsumer, count: int) -> dict[int, list[tuple[int, bytes]]]:
    """(offset, value) by partition of the next `count` records."""
    seen: dict[int, list[tuple[int, bytes]]] = {}
    got, deadline = 0, now() + LIMIT_S
    while got < count:
        assert now() < deadline, f"{got} of {count} records after {LIMIT_S:g} s"
        for message in consumer.consume_batch(count - got, timeout_ms=1000):
            seen.setdefault(message.partition_id, []).append((message.offset, message.value))
            got += 1
    return seen


def expected(count: int, first: int = 0) -> list[tuple[int, bytes]]:
    return [(i, b"%d" % i) for i in range(first, first + count)]


def create_again(kafka: KafkaCluster, topic: str, partitions: int) -> None:
    """A topic that was deleted: with ZooKeeper its name is free a moment later."""
    deadline = now() + LIMIT_S
    while True:
        try:
            kafka.create_topic(topic, partitions)
        except Exception as error:
            if "already exists" not in str(error) or now() > deadline:
                raise
            time.sleep(0.1)
        else:
            return


@pytest.mark.parametrize("version", ["2.8.2", "4.2.0"])
def test_a_session_carries_many_fetches_and_every_record(
    client: KafkaClient, new_topic: Callable[..., str], native: Native, version: str
) -> None:
    topic = new_topic(20)
    consumer = native(client, topic, 20)
    for turn in range(6):
        fill(client, topic, 3, 20, first=3 * turn)
        assert read(consumer, 60) == {p: expected(3, 3 * turn) for p in range(20)}
    (session,) = consumer._driver.shares[0].fetcher.sessions.values()
    assert session.id > 0
    assert session.epoch >= 6, "the fetches after the first one were incremental"
    assert not session.is_off


@pytest.mark.parametrize("version", ["2.8.2", "4.2.0"])
def test_a_session_that_the_broker_does_not_know_is_made_anew(
    client: KafkaClient, new_topic: Callable[..., str], native: Native, version: str
) -> None:
    topic = new_topic(3)
    consumer = native(client, topic, 3)
    fill(client, topic, 5, 3)
    read(consumer, 15)
    (session,) = consumer._driver.shares[0].fetcher.sessions.values()
    for wrong in ("id", "epoch"):
        setattr(session, wrong, getattr(session, wrong) + 1000)
        first = 5 if wrong == "id" else 10
        fill(client, topic, 5, 3, first=first)
        assert read(consumer, 15) == {p: expected(5, first) for p in range(3)}
    fill(client, topic, 5, 3, first=15)
    assert read(consumer, 15) == {p: expected(5, 15) for p in range(3)}
    deadline = now() + LIMIT_S
    while session.epoch >= 1000:
        assert now() < deadline
        client.handler.sleep(0.05)


@pytest.mark.parametrize("version", ["2.8.2", "4.2.0"])
def test_a_topic_that_was_made_again_is_read_from_its_start(
    connect: Callable[..., KafkaClient], kafka: KafkaCluster, new_topic: Callable[..., str], native: Native, version: str
) -> None:
    topic = new_topic(2)
    client = connect(auto_create_topics=False)
    fill(client, topic, 50, 2)
    consumer = native(client, topic, 2, policy=-2)
    assert read(consumer, 100) == {p: expected(50) for p in (0, 1)}
    connect().delete_topic(topic)
    create_again(kafka, topic, 2)
    fill(connect(), topic, 70, 2, first=0)
    if version.startswith("4"):
        assert read(consumer, 140) == {p: expected(70) for p in (0, 1)}
        return
    seen: dict[int, set[tuple[int, bytes]]] = {0: set(), 1: set()}  # fetches go by name: what came before the new id was known comes again
    deadline = now() + LIMIT_S
    while any(len(s) < 70 for s in seen.values()):
        for message in consumer.consume_batch(timeout_ms=500):
            seen[message.partition_id].add((message.offset, bytes(message.value)))
        here = {tp: (q.position.state, q.position.consumed, q.position.fetch_offset) for tp, q in consumer._driver.queues.items()}
        ends = {p: client.topics[topic].partitions[p].latest_available_offset() for p in (0, 1)} if now() > deadline else {}
        assert not ends, f"{ {p: len(s) for p, s in seen.items()} } of 70 each; ends {ends}; positions {here}; lag {consumer.lag()}"
    assert seen == {p: set(expected(70)) for p in (0, 1)}


def test_leaders_that_change_cleanly_lose_nothing_and_are_asked(
    whole_cluster: KafkaCluster, client: KafkaClient, new_topic: Callable[..., str], native: Native
) -> None:
    topic = new_topic(3)
    consumer = native(client, topic, 3, policy=None)
    fill(client, topic, 100, 3)
    assert read(consumer, 300) == {p: expected(100) for p in range(3)}
    gone = whole_cluster.nodes[0].leaders(topic)[0]
    whole_cluster.kill(gone)
    fill(client, topic, 100, 3, first=100)
    assert read(consumer, 300) == {p: expected(100, 100) for p in range(3)}
    whole_cluster.restart(gone)
    fill(client, topic, 100, 3, first=200)
    assert read(consumer, 300) == {p: expected(100, 200) for p in range(3)}
    moved = consumer._driver.queues[TopicPartition(topic, 0)].position
    assert moved.leader_epoch >= 1, "the leader has changed, and was found to have everything"
    assert consumer.stats()["truncations"] == 0


def test_a_follower_nearby_is_fetched_from_and_left_when_it_dies(
    whole_cluster: KafkaCluster, client: KafkaClient, new_topic: Callable[..., str], native: Native
) -> None:
    topic = new_topic(1, min_insync_replicas=1)
    leader = whole_cluster.nodes[0].leaders(topic)[0]
    follower = next(node.id for node in whole_cluster.nodes if node.id != leader)
    consumer = native(client, topic, policy=None, client_rack=f"rack-{follower}")
    first = 0
    position = consumer._driver.queues[TopicPartition(topic, 0)].position
    deadline = now() + LIMIT_S
    while position.replica != follower:  # a follower that is behind the position is not named
        assert now() < deadline, "the leader has named nobody"
        fill(client, topic, 50, first=first)
        assert read(consumer, 50) == {0: expected(50, first)}
        first += 50
    for _ in range(3):
        fill(client, topic, 50, first=first)
        assert read(consumer, 50) == {0: expected(50, first)}
        first += 50
    assert position.replica == follower
    whole_cluster.kill(follower)
    fill(client, topic, 50, first=first)
    assert read(consumer, 50) == {0: expected(50, first)}
    assert position.replica != follower


@pytest.mark.parametrize("version", ["2.8.2", "4.2.0"])
def test_the_native_consumer_goes_on_where_its_group_has_committed_and_buries_what_it_cannot_read(
    connect: Callable[..., KafkaClient], new_topic: Callable[..., str], new_name: Callable[[str], str], version: str
) -> None:
    topic, dead, group = new_topic(2), new_topic(1), new_name("group")
    client = connect()
    with client.get_producer() as producer:
        for value in (b"1", b"2", b"bad", b"4"):
            for partition in (0, 1):
                producer.produce(topic, value, partition=partition)
    options: dict[str, Any] = {"value_deserializer": int, "on_deserialize_error": "dlq", "dead_letter": dead}
    got: list[int] = []
    with client.get_consumer(group=group, **options) as first:
        first.assign([(topic, 0), (topic, 1)])
        while len(got) < 6:
            got += [message.value for message in first.consume_batch(timeout_ms=LIMIT_S * 1000)]
        assert first.lag() == {TopicPartition(topic, p): 0 for p in (0, 1)}
    assert sorted(got) == [1, 1, 2, 2, 4, 4]
    with client.get_producer() as producer:
        producer.produce(topic, b"5", partition=1)
    with client.get_consumer(group=group, **options) as second:
        second.assign([(topic, 0), (topic, 1)])
        assert second.consume(LIMIT_S * 1000).value == 5
    with client.get_consumer(dead) as letters:
        buried = [letters.consume(LIMIT_S * 1000) for _ in range(2)]
    assert [(letter.value, dict(letter.headers)["gkafka.dead_letter.offset"]) for letter in buried] == [(b"bad", b"2")] * 2


def test_an_unclean_election_is_found_out_and_what_it_lost_is_named(
    whole_cluster: KafkaCluster, connect: Callable[..., KafkaClient], new_name: Callable[[str], str], native: Native
) -> None:
    """F27"""
    topic = new_name("unclean")
    whole_cluster.create_topic(topic, 1, 2, {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"})
    client = connect()
    fill(client, topic, 50)
    leader = whole_cluster.nodes[0].leaders(topic)[0]
    info = client.cluster.wait_for_topic(topic).partitions[0]
    follower = next(replica for replica in info.replicas if replica != leader)
    whole_cluster.kill(follower)
    with client.get_producer(acks=1, linger_ms=20) as producer:
        for i in range(50, 90):
            producer.produce(topic, b"%d" % i, partition=0)
    strict, lenient = native(client, topic, policy=None), native(client, topic, policy=-2)
    assert read(strict, 90) == read(lenient, 90) == {0: expected(90)}
    whole_cluster.kill(leader)
    whole_cluster.restart(follower)
    with client.get_producer(acks=1, linger_ms=20) as producer:
        for i in range(100):
            producer.produce(topic, b"new %d" % i, partition=0)
        producer.flush(LIMIT_S)
    deadline = now() + LIMIT_S

    def wait() -> None:
        while now() < deadline:
            assert strict.consume_batch(timeout_ms=1000) == [], "nothing is handed out before that"

    with pytest.raises(LogTruncationError) as caught:
        wait()
    lost = caught.value.lost
    assert (lost.start, lost.stop) == (50, 90)
    assert read(lenient, 100) == {0: [(50 + i, b"new %d" % i) for i in range(100)]}
    assert lenient.stats()["truncations"] == 1
