"""What the reference says in prose of the Producer, topics, partitions and partitioners, on brokers inside the test's process."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

import gkafka.exceptions
import gkafka.records
from gkafka import KafkaClient
from gkafka.common import CompressionType
from gkafka.exceptions import (
    ConfigurationError,
    DeliveryError,
    KafkaException,
    ProducerQueueFullError,
)
from gkafka.partition import Partition
from gkafka.partitioners import BasePartitioner, HashingPartitioner, random_partitioner
from gkafka.records import scan
from gkafka.testing import Close, Delay, Error, MockCluster
from tests.kit.clock import now
from tests.promises.aids import LIMIT_S, fill, until, values
from tests.public.aids import Held

Connect = Callable[..., KafkaClient]


# -- Partition and partitioners (121 to 129, 188 to 192) -------------------------------------------------------------------
def test_what_a_partition_says_of_itself(connect: Connect, make_cluster: Callable[..., MockCluster]) -> None:
    cluster = make_cluster(3, {"t": 2})
    client = connect(cluster)
    topic = client.topics["t"]
    partition = topic.partitions[1]
    assert (partition.id, partition.topic) == (1, topic)
    assert partition.leader.id == cluster.leader("t", 1)
    assert sorted(b.id for b in partition.replicas) == sorted(b.id for b in partition.isr) == [1, 2, 3]


def test_a_partition_takes_fresh_metadata(client: KafkaClient) -> None:
    partition = client.topics["t"].partitions[0]
    brokers: Any = {7: SimpleNamespace(id=7), 8: SimpleNamespace(id=8)}
    partition.update(brokers, SimpleNamespace(leader=8, replicas=[7, 8], isr=[8]))
    assert (partition.leader.id, [b.id for b in partition.replicas], [b.id for b in partition.isr]) == (8, [7, 8], [8])


def test_the_ends_of_partitions(client: KafkaClient, cluster: MockCluster) -> None:
    fill(client, 5)
    cluster.delete_records("t", 0, 2)
    topic = client.topics["t"]
    partition = topic.partitions[0]
    assert (partition.earliest_available_offset(), partition.latest_available_offset()) == (2, 5)
    assert {p: r.offset for p, r in topic.earliest_available_offsets().items()} == {0: [2]}
    assert {p: r.offset for p, r in topic.latest_available_offsets().items()} == {0: [5]}


def test_offsets_by_time(client: KafkaClient) -> None:
    for i in range(3):
        client.get_producer().produce("t", b"v", timestamp=1_700_000_000_000 + i, partition=0).result(60)
    topic = client.topics["t"]
    assert topic.partitions[0].fetch_offset_limit(1_700_000_000_001, max_offsets=1) == [1]
    assert {p: r.offset for p, r in topic.fetch_offset_limits(1_700_000_000_001).items()} == {0: [1]}


def partitions_of(*ids: int) -> list[Any]:
    return [SimpleNamespace(id=i) for i in ids]


def test_the_random_partitioner_takes_any() -> None:
    partitions = partitions_of(0, 1, 2)
    assert {random_partitioner(partitions, b"k").id for _ in range(200)} == {0, 1, 2}


def test_a_partitioner_is_a_callable_of_ones_own(client: KafkaClient, cluster: MockCluster) -> None:
    asked: list[tuple[list[int], Any]] = []

    class Last(BasePartitioner):
        def __call__(self, partitions: Any, key: Any) -> Any:
            asked.append(([p.id for p in partitions], key))
            return partitions[-1]

    with client.topics["many"].get_producer(partitioner=Last()) as producer:
        producer.produce(b"v", partition_key=b"k")
    assert asked == [([0, 1, 2, 3], b"k")]
    assert values(cluster, "many", 3) == [b"v"]
    with pytest.raises(NotImplementedError):
        BasePartitioner()([], None)


def test_the_hashing_partitioner_is_stable_for_a_key_and_its_partitions() -> None:
    partitions = partitions_of(0, 1, 2, 3)
    by_length = HashingPartitioner(hash_func=len)
    assert by_length(partitions, b"12345").id == 1
    assert by_length(partitions[::-1], b"12345").id == 1, "whatever the order that they come in"
    default = HashingPartitioner()
    assert len({default(partitions, b"key").id for _ in range(20)}) == 1
    assert default([0], ("any", "key")) == 0


# -- Producer (130 to 147) -------------------------------------------------------------------------------------------------
def test_a_producer_is_a_context_that_is_started_already(client: KafkaClient) -> None:
    producer = client.topics["t"].get_producer()
    with producer as entered:
        assert entered is producer
        producer.produce(b"v")
    producer.start()
    producer.produce(b"again")
    producer.stop()
    producer.stop()


@pytest.mark.parametrize("codec", [CompressionType.NONE, CompressionType.GZIP, CompressionType.SNAPPY])
def test_messages_are_compressed(client: KafkaClient, cluster: MockCluster, codec: CompressionType) -> None:
    with client.topics["t"].get_producer(compression=codec) as producer:
        for _ in range(50):
            producer.produce(b"the same again and again")
    assert {header.codec for header in scan(cluster.raw_log("t", 0))} == {codec}
    assert values(cluster) == [b"the same again and again"] * 50


def test_a_batch_is_tried_again_as_often_as_it_is_told(client: KafkaClient, cluster: MockCluster) -> None:
    cluster.on("Produce", Error(7), times=None)
    producer = client.topics["t"].get_producer(linger_ms=0, max_retries=3, retry_backoff_ms=50)
    started = now()
    with pytest.raises(KafkaException):
        producer.produce(b"v").result(LIMIT_S)
    assert now() - started >= 0.08
    assert cluster.count("Produce") == 3
    with pytest.raises(DeliveryError):
        producer.stop()


@pytest.mark.parametrize("acks", [-1, 0, 1])
def test_acknowledgements_and_their_timeout_are_asked_of_the_broker(client: KafkaClient, cluster: MockCluster, acks: int) -> None:
    with client.topics["t"].get_producer(required_acks=acks, ack_timeout_ms=4321) as producer:
        producer.produce(b"v")
    assert cluster.wait_for(lambda: values(cluster)) == [b"v"]
    request: Any = cluster.requests("Produce")[0].message
    assert request.acks == acks
    assert 0 < request.timeout_ms <= 4321


def test_a_number_of_acknowledgements_that_no_broker_takes_is_refused(client: KafkaClient) -> None:
    with pytest.raises(ConfigurationError, match="required_acks=2"):
        client.topics["t"].get_producer(required_acks=2)


def test_a_full_queue_is_an_error_or_a_wait(client: KafkaClient, cluster: MockCluster) -> None:
    cluster.on("Produce", held := Held(), times=2)
    topic = client.topics["t"]
    raising = topic.get_producer(max_queued_messages=2, min_queued_messages=1, block_on_queue_full=False, linger_ms=0)
    raising.produce(b"1")
    raising.produce(b"2")
    with pytest.raises(ProducerQueueFullError, match="max_queued_messages=2"):
        raising.produce(b"3")
    held.released = True
    raising.stop()
    cluster.clear_script()
    cluster.on("Produce", Delay(0.3), times=None)
    waiting = topic.get_producer(max_queued_messages=2, min_queued_messages=1, linger_ms=0)
    started = now()
    for i in range(4, 7):
        waiting.produce(b"%d" % i)
    assert now() - started >= 0.2
    waiting.stop()
    assert sorted(v for v in values(cluster) if v) == [b"1", b"2", b"4", b"5", b"6"]


def test_enough_messages_do_not_linger(client: KafkaClient, cluster: MockCluster) -> None:
    producer = client.topics["t"].get_producer(linger_ms=100_000, min_queued_messages=10)
    for _ in range(9):
        producer.produce(b"v")
    client.handler.sleep(0.1)
    assert cluster.count("Produce") == 0
    producer.produce(b"v")
    until(client, lambda: len(values(cluster)) == 10)
    producer.stop()


@pytest.mark.parametrize(("linger_ms", "least"), [(0, 0.0), (300, 0.25)])
def test_few_messages_linger_as_long_as_they_may(client: KafkaClient, linger_ms: int, least: float) -> None:
    topic = client.topics["t"]
    topic.partitions[0].latest_available_offset()  # the connection is there
    producer = topic.get_producer(linger_ms=linger_ms)
    done = client.handler.Event()
    started = now()
    producer.produce(b"v").add_done_callback(lambda delivery: done.set())
    assert done.wait(LIMIT_S)
    assert least <= now() - started < 30
    producer.stop()


def test_the_default_linger_is_five_seconds() -> None:
    from gkafka.producer import Producer

    parameters = inspect.signature(Producer).parameters
    assert (parameters["linger_ms"].default, parameters["min_queued_messages"].default) == (5000, 70000)
    assert parameters["max_queued_messages"].default == 100000


def test_a_sync_producer_returns_when_the_message_is_there(client: KafkaClient, cluster: MockCluster) -> None:
    producer = client.topics["t"].get_sync_producer()
    producer.produce(b"v")
    assert values(cluster) == [b"v"]
    cluster.on("Produce", Error(10))
    with pytest.raises(gkafka.exceptions.MessageSizeTooLarge):
        producer.produce(b"too large for it")


def test_none_is_a_null_payload(client: KafkaClient, cluster: MockCluster) -> None:
    with client.topics["t"].get_producer() as producer:
        producer.produce(None, partition_key=b"k")
    assert [(r.key, r.value) for r in cluster.log("t", 0)] == [(b"k", None)]


def test_what_could_not_be_delivered_is_raised_to_the_caller(client: KafkaClient, cluster: MockCluster) -> None:
    cluster.on("Produce", Error(10), times=None)
    producer = client.topics["t"].get_producer()
    producer.produce(b"v")
    with pytest.raises(DeliveryError):
        producer.stop()


def test_messages_that_were_queued_when_the_leader_moved_are_not_lost(connect: Connect, make_cluster: Callable[..., MockCluster]) -> None:
    cluster = make_cluster(2, {"t": 1}, replication_factor=2)
    client = connect(cluster)
    producer = client.topics["t"].get_producer(linger_ms=0, retry_backoff_ms=20, max_retries=20)
    for i in range(20):
        if i in (5, 12):
            cluster.move_leader("t", 0, 3 - cluster.leader("t", 0))
        producer.produce(b"%d" % i)
        client.handler.sleep(0.002)
    producer._wait_all()
    assert values(cluster) == [b"%d" % i for i in range(20)]
    producer.stop()


def test_a_connection_that_breaks_loses_nothing(client: KafkaClient, cluster: MockCluster) -> None:
    cluster.on("Produce", Close(before=True), times=2)
    producer = client.topics["t"].get_producer(linger_ms=0, retry_backoff_ms=20)
    producer.produce(b"v")
    producer.stop()
    assert values(cluster) == [b"v"]


def test_waiting_for_all_waits_for_all(client: KafkaClient, cluster: MockCluster) -> None:
    producer = client.topics["t"].get_producer(linger_ms=100_000)
    for _ in range(5):
        producer.produce(b"v")
    producer._wait_all()
    assert len(values(cluster)) == 5
    producer.stop()


def test_keywords_go_through_to_producers_and_consumers(client: KafkaClient) -> None:
    topic = client.topics["t"]
    for make in (topic.get_producer, topic.get_sync_producer, topic.get_simple_consumer):
        with pytest.raises(KafkaException, match="no_such_keyword"):
            make(no_such_keyword=1)
    assert isinstance(topic.partitions[0], Partition)
    assert topic.name == "t"
