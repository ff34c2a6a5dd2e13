"""SimpleProducer and KeyedProducer of kafka-python 0.9 (behaviour 241)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gkafka.common import CompressionType
from gkafka.kafka.errors import (
    IllegalStateError,
    InvalidTopicError,
    KafkaConfigurationError,
    MessageSizeTooLargeError,
    WrongTypeError,
)
from gkafka.kafka.legacy import CODEC_GZIP, KafkaClient, KeyedProducer, Producer, ProduceResponse, SimpleProducer
from gkafka.records import murmur2, scan
from gkafka.testing import Error, MockCluster
from tests.kafka.legacy import Make, eventually
from tests.kit.clock import now


@pytest.fixture
def two(make_cluster: Callable[..., MockCluster]) -> MockCluster:
    """The topic "t" with two partitions."""
    return make_cluster(topics={"t": 2})


@pytest.fixture
def make(handler: str) -> Iterator[Make]:
    """Makes producers: make(kind, cluster, **options)."""
    made: list[Any] = []

    def producer(kind: Any, cluster: MockCluster, **options: Any) -> Any:
        made.append(KafkaClient(cluster.bootstrap, handler=handler))
        made.append(kind(made[-1], **options))
        return made[-1]

    yield producer
    for one in reversed(made):
        one.close() if isinstance(one, KafkaClient) else one.stop(3)


def values(cluster: MockCluster, partition: int = 0) -> list[bytes | None]:
    return [record.value for record in cluster.log("t", partition)]


def test_messages_go_to_the_partitions_in_turn(two: MockCluster, make: Make) -> None:
    """Behaviour 241."""
    producer = make(SimpleProducer, two, random_start=False)
    assert producer.send_messages("t", b"a", b"b") == [ProduceResponse("t", 0, 0, 0)]
    assert producer.send_messages("t", b"c") == [ProduceResponse("t", 1, 0, 0)]
    assert producer.send_messages(b"t", b"d") == [ProduceResponse("t", 0, 0, 2)]
    assert (values(two, 0), values(two, 1)) == ([b"a", b"b", b"d"], [b"c"])


@pytest.mark.parametrize("name", ["", "a b", b"a b", "x" * 250])
def test_a_name_that_no_topic_can_have_is_an_invalid_topic(cluster: MockCluster, make: Make, name: Any) -> None:
    """kafka-python's broker says so; an argument that cannot be used it is as well."""
    with pytest.raises(InvalidTopicError) as caught:
        make(SimpleProducer, cluster).send_messages(name, b"x")
    assert isinstance(caught.value, KafkaConfigurationError)
    with pytest.raises(InvalidTopicError):
        make(KeyedProducer, cluster).send_messages(name, b"key", b"x")


def test_the_first_turn_is_any_partitions(make_cluster: Callable[..., MockCluster], make: Make) -> None:
    cluster = make_cluster(topics={"t": 8})
    begun = {make(SimpleProducer, cluster).send_messages("t", b"x")[0].partition for _ in range(8)}
    assert len(begun) > 1


def test_the_key_says_the_partition(two: MockCluster, make: Make) -> None:
    producer = make(KeyedProducer, two)
    for key in (b"k1", b"k2", b"k3", b"k4"):
        (response,) = producer.send_messages("t", key, b"v")
        assert response.partition == (murmur2(key) & 0x7FFFFFFF) % 2
    assert producer.send("t", b"k1", b"w")[0].partition == (murmur2(b"k1") & 0x7FFFFFFF) % 2
    assert b"k1" in [record.key for p in (0, 1) for record in two.log("t", p)]


def test_a_partitioner_of_ones_own(two: MockCluster, make: Make) -> None:
    class Last:
        def __init__(self, partitions: list[int]) -> None:
            self.last = partitions[-1]

        def partition(self, key: bytes) -> int:
            return self.last

    assert make(KeyedProducer, two, partitioner=Last).send_messages("t", b"k", b"v")[0].partition == 1


def test_a_refusal_is_raised_or_returned(cluster: MockCluster, make: Make) -> None:
    cluster.on("Produce", Error(10), times=2)
    with pytest.raises(MessageSizeTooLargeError):
        make(SimpleProducer, cluster).send_messages("t", b"x")
    assert make(SimpleProducer, cluster, sync_fail_on_error=False).send_messages("t", b"x") == [ProduceResponse("t", 0, 10, -1)]


def test_acks_timeout_and_codec_are_those_of_the_request(cluster: MockCluster, make: Make) -> None:
    producer = make(
        SimpleProducer, cluster, req_acks=Producer.ACK_AFTER_CLUSTER_COMMIT, ack_timeout=777, codec=CODEC_GZIP, codec_compresslevel=1
    )
    producer.send_messages("t", b"x" * 1000)
    (request,) = cluster.requests("Produce")
    assert (request.message.acks, request.message.timeout_ms) == (-1, 777)
    (header,) = scan(memoryview(cluster.raw_log("t", 0)))
    assert header.codec == CompressionType.GZIP
    assert make(SimpleProducer, cluster, req_acks=Producer.ACK_NOT_REQUIRED).send_messages("t", b"y") == []


def test_async_messages_go_by_number(cluster: MockCluster, make: Make) -> None:
    producer = make(SimpleProducer, cluster, async_send=True, batch_send_every_n=3, batch_send_every_t=60)
    assert producer.send_messages("t", b"a", b"b") == []
    time.sleep(0.2)
    assert values(cluster) == []
    producer.send_messages("t", b"c")
    eventually(lambda: values(cluster) == [b"a", b"b", b"c"], sleep=producer._client.handler.sleep)
    assert cluster.count("Produce") == 1
    producer.send_messages("t", b"d")
    producer.stop()
    assert values(cluster) == [b"a", b"b", b"c", b"d"]


@pytest.mark.parametrize("name", ["async", "batch_send"])
def test_async_messages_go_by_time(cluster: MockCluster, make: Make, name: str) -> None:
    producer = make(SimpleProducer, cluster, **{name: True}, batch_send_every_n=1000, batch_send_every_t=0.3)
    begun = now()
    producer.send_messages("t", b"a")
    eventually(lambda: values(cluster) == [b"a"], sleep=producer._client.handler.sleep)
    assert now() - begun >= 0.3


def test_async_failures_are_logged_after_the_retries(cluster: MockCluster, make: Make, caplog: pytest.LogCaptureFixture) -> None:
    cluster.on("Produce", Error(6), times=9)  # NOT_LEADER_FOR_PARTITION
    producer = make(SimpleProducer, cluster, async_send=True, batch_send_every_n=1, async_retry_limit=2, async_retry_backoff_ms=10)
    producer.send_messages("t", b"a")
    eventually(lambda: "was not delivered" in caplog.text, sleep=producer._client.handler.sleep)
    assert cluster.count("Produce") == 3


def test_what_cannot_be_sent_is_refused(cluster: MockCluster, make: Make) -> None:
    producer = make(SimpleProducer, cluster)
    with pytest.raises(TypeError, match="must be bytes"):
        producer.send_messages("t", "text")
    with pytest.raises(KafkaConfigurationError, match="without a message"):
        producer.send_messages("t")
    with pytest.raises(KafkaConfigurationError, match="codec=9"):
        make(SimpleProducer, cluster, codec=9)
    with pytest.raises(KafkaConfigurationError, match="no option 'batch_sent'"):
        make(SimpleProducer, cluster, batch_sent=True)
    with pytest.raises(WrongTypeError, match="key of type str"):
        make(KeyedProducer, cluster).send("t", "k", b"v")
    producer.stop()
    with pytest.raises(IllegalStateError, match="stopped"):
        producer.send_messages("t", b"x")
