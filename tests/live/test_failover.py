"""A leader dies by kill -9 under an idempotent producer: nothing acknowledged is lost, doubled or out of order."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tests.kit.clock import now
from tests.live.kafka import KafkaCluster
from tests.live.peer import Peer

if TYPE_CHECKING:
    from gkafka import KafkaClient

COUNT = 80_000
PARTITIONS = 4
KILL_AT = 30_000


def test_nothing_acknowledged_is_lost_doubled_or_reordered_when_the_leader_is_killed(
    whole_cluster: KafkaCluster, client: KafkaClient, peer: Peer, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(PARTITIONS)
    producer = client.get_producer(acks="all", enable_idempotence=True, delivery_timeout_ms=120_000)
    leader = whole_cluster.nodes[0].leaders(topic)[0]
    deliveries: list[Any] = []
    for i in range(COUNT):
        if i == KILL_AT:
            deliveries[KILL_AT // 3].result(60)  # some are acknowledged, the rest is on its way or in the buffer
            whole_cluster.kill(leader)
        deliveries.append(producer.produce(topic, b"%09d %s" % (i, b"x" * 90), partition=i % PARTITIONS))
    producer.flush(120)

    acknowledged = {(got.partition, got.offset): i for i, got in enumerate(delivery.result(0) for delivery in deliveries)}
    assert len(acknowledged) == COUNT, "two records were acknowledged at the same offset"
    assert producer.stats()["retried_batches"] > 0, "the kill disturbed nothing: the run proves nothing"
    producer.close(60)

    written: dict[int, list[int]] = defaultdict(list)
    lost = dict(acknowledged)
    for record in peer.read(topic, COUNT, PARTITIONS):  # fails if the log holds more or fewer
        assert record.value is not None
        i = int(record.value[:9])
        written[record.partition].append(i)
        if lost.get((record.partition, record.offset)) == i:
            del lost[record.partition, record.offset]
    assert not lost, f"{len(lost)} acknowledged records are not at their offset"
    ids = [i for partition in written.values() for i in partition]
    assert len(set(ids)) == len(ids), f"{len(ids) - len(set(ids))} duplicates"
    inversions = sum(a > b for partition in written.values() for a, b in itertools.pairwise(partition))
    assert inversions == 0


def test_a_consumer_goes_on_after_its_leader_was_killed(
    whole_cluster: KafkaCluster, client: KafkaClient, peer: Peer, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(PARTITIONS)
    producer = client.get_producer(acks="all")
    consumer = client.topics[topic].get_simple_consumer()
    seen: dict[int, list[int]] = defaultdict(list)

    def read(count: int) -> None:
        deadline = now() + 60
        while sum(map(len, seen.values())) < count:
            assert now() < deadline, f"{sum(map(len, seen.values()))} of {count} records after 60 s"
            for message in consumer.consume_batch(1000, timeout_ms=1000):
                seen[message.partition_id].append(message.offset)

    for i in range(1000):
        producer.produce(topic, b"%d" % i, partition=i % PARTITIONS)
    producer.flush(60)
    read(1000)
    whole_cluster.kill(whole_cluster.nodes[0].leaders(topic)[0])
    for i in range(1000):
        producer.produce(topic, b"%d" % i, partition=i % PARTITIONS)
    producer.close(90)
    read(2000)
    consumer.stop()
    assert seen == {p: list(range(2000 // PARTITIONS)) for p in range(PARTITIONS)}


def test_partitions_of_the_other_brokers_do_not_wait_for_a_frozen_one(
    whole_cluster: KafkaCluster, client: KafkaClient, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(PARTITIONS, min_insync_replicas=1)
    producer = client.get_producer(acks=1, linger_ms=0, request_timeout_ms=120_000, delivery_timeout_ms=240_000)
    leaders = whole_cluster.nodes[0].leaders(topic)
    frozen = leaders[0]
    for partition in leaders:
        producer.produce(topic, b"before", partition=partition).result(60)
    whole_cluster.suspend(frozen)
    try:
        stuck = producer.produce(topic, b"waits", partition=0)
        for partition, leader in leaders.items():
            if leader != frozen:
                producer.produce(topic, b"beside", partition=partition).result(60)
        assert not stuck.done()
    finally:
        whole_cluster.resume(frozen)
    stuck.result(60)
    producer.close(60)
