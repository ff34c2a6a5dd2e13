"""gkafka.kafka's KafkaProducer on real Kafka (behaviours 232-240, 302-314): what the broker stores, takes and refuses, and when it is silent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import confluent_kafka
import pytest

from gkafka.kafka import KafkaClient, KafkaProducer, TopicPartition
from gkafka.kafka.errors import KafkaError, KafkaTimeoutError, MessageSizeTooLargeError
from gkafka.kafka.future import Future
from gkafka.kafka.producer.future import RecordMetadata
from tests.kit.clock import now
from tests.live.inside import batches, frozen
from tests.live.kafka import KafkaCluster
from tests.live.peer import Peer
from tests.net.recorder import Recorder

LIMIT_S = 60.0
Make = Callable[..., KafkaProducer]
Topic = Callable[..., str]


@pytest.fixture
def producer(kafka: KafkaCluster, handler: str) -> Iterator[Make]:
    """Makes KafkaProducers of the test's broker. retries: a broker may not know yet that it leads a topic that was just made."""
    made: list[KafkaProducer] = []

    def make(**options: Any) -> KafkaProducer:
        made.append(
            KafkaProducer(
                **{"bootstrap_servers": kafka.hosts, "handler": handler, "api_version_auto_timeout_ms": 60_000, "retries": 100, **options}
            )
        )
        return made[-1]

    yield make
    for each in made:
        each.close(5)


def warm(sending: KafkaProducer, topic: str, partition: int = 0) -> KafkaProducer:
    """Connected, with a first record written."""
    sending.send(topic, b"warm", partition=partition).get(LIMIT_S)
    return sending


def warmed(producer: Make, topic: str) -> str:
    warm(producer(), topic)
    return topic


def sleep(sending: KafkaProducer, seconds: float) -> None:
    sending._client.handler.sleep(seconds)


def fill(sending: KafkaProducer, topic: str) -> None:
    for _ in range(200):
        sending.send(topic, b"x" * 1000)


def values(peer: Peer, topic: str, partitions: int = 1) -> list[bytes | None]:
    return [record.value for record in peer.read_all(topic, partitions)]


# -- sending and futures ---------------------------------------------------------------------------------------------------
def test_send_returns_at_once_and_its_future_tells_where_the_record_is(
    kafka: KafkaCluster, producer: Make, new_topic: Topic, peer: Peer
) -> None:
    """Behaviours 232, 233, 303."""
    topic = new_topic(2)
    sending = warm(warm(producer(), topic, 0), topic, 1)
    with frozen(kafka):
        futures = [sending.send(topic, b"%d" % n, partition=n % 2, timestamp_ms=1000 + n) for n in range(100)]
        sleep(sending, 0.1)
        assert not any(future.is_done for future in futures)
        assert all(isinstance(future, Future) for future in futures)
        with pytest.raises(KafkaTimeoutError):
            futures[0].get(timeout=0.05)
    assert futures[0].get(timeout=60) == RecordMetadata(topic, 0, TopicPartition(topic, 0), 1, 1000)
    assert [future.get(60).offset for future in futures[1::2]] == list(range(1, 51))
    assert all(future.succeeded() and not future.failed() for future in futures)
    assert sorted(values(peer, topic, 2)) == sorted([b"warm", b"warm", *(b"%d" % n for n in range(100))])
    stored = [batches(kafka, topic, partition) for partition in (0, 1)]
    assert [sum(count for count, _ in each) for each in stored] == [51, 51]
    assert max(len(each) for each in stored) < 51, "records of a partition are sent in batches"


def test_what_the_broker_refuses_is_raised_by_get_and_told_to_errbacks(producer: Make, new_topic: Topic) -> None:
    """Behaviour 233."""
    topic = new_topic(max_message_bytes=2000)
    sending, told = producer(), []
    future = sending.send(topic, b"x" * 5000)
    with pytest.raises(MessageSizeTooLargeError) as caught:
        future.get(timeout=LIMIT_S)
    assert isinstance(caught.value, KafkaError)
    future.add_callback(lambda metadata: told.append("delivered")).add_errback(told.append)
    assert list(map(str, told)) == [str(caught.value)]
    assert (future.succeeded(), future.failed(), future.retriable()) == (False, True, False)


def test_flush_ends_when_everything_has_its_outcome(producer: Make, new_topic: Topic, peer: Peer) -> None:
    """Behaviour 234."""
    topic, small = new_topic(), new_topic(max_message_bytes=2000)
    sending = producer(linger_ms=60_000)
    futures = [sending.send(topic, b"%d" % n) for n in range(10)]
    refused = sending.send(small, b"x" * 5000)
    assert not any(future.is_done for future in futures)
    assert values(peer, topic) == []
    sending.flush(LIMIT_S)
    assert all(future.succeeded() for future in futures)
    assert refused.failed(), "flush() does not tell what failed"
    assert values(peer, topic) == [b"%d" % n for n in range(10)]


def test_a_key_chooses_the_partition_that_other_clients_choose(producer: Make, new_topic: Topic, kafka: KafkaCluster, peer: Peer) -> None:
    """Behaviour 235: the murmur2 of Kafka's own client, as librdkafka computes it."""
    keys = [b"foo", b"bar", b"x" * 50, *(b"%d" % n for n in range(30))]
    topic, theirs = new_topic(7), new_topic(7)
    sending = producer()
    ours = {key: {sending.send(topic, key=key, value=b"v").get(LIMIT_S).partition for _ in range(2)} for key in keys}
    other = confluent_kafka.Producer({"bootstrap.servers": kafka.hosts, "partitioner": "murmur2", "log_level": 2})
    for key in keys:
        other.produce(theirs, b"v", key=key)
    assert other.flush(LIMIT_S) == 0
    assert ours == {record.key: {record.partition} for record in peer.read(theirs, len(keys), 7)}


def test_serializers_make_the_bytes(producer: Make, new_topic: Topic, peer: Peer) -> None:
    """Behaviour 236."""
    topic = new_topic()
    sending = producer(key_serializer=str.encode, value_serializer=lambda value: repr(value).encode())
    sending.send(topic, {"a": 1}, key="ping").get(LIMIT_S)
    with pytest.raises(TypeError):
        producer(value_serializer=str).send(topic, 5)
    assert [(record.key, record.value) for record in peer.read(topic, 1)] == [(b"ping", b"{'a': 1}")]


def test_one_producer_serves_many_workers(producer: Make, new_topic: Topic, peer: Peer) -> None:
    """Behaviours 238, 302."""
    topic = new_topic(3)
    sending = producer()
    handler = sending._client.handler
    workers = [handler.spawn(lambda n=n: [sending.send(topic, b"%d-%d" % (n, i)) for i in range(200)]) for n in range(5)]
    for worker in workers:
        worker.join(LIMIT_S)
    sending.flush(LIMIT_S)
    assert sorted(values(peer, topic, 3)) == sorted(b"%d-%d" % (n, i) for n in range(5) for i in range(200))


# -- acknowledgements and retries ------------------------------------------------------------------------------------------
def test_with_acks_0_what_the_broker_refuses_is_not_told_and_not_tried_again(producer: Make, new_topic: Topic, peer: Peer) -> None:
    """Behaviour 304."""
    topic = new_topic(max_message_bytes=2000)
    sending = producer(acks=0, retries=5, retry_backoff_ms=1)
    assert sending.send(topic, b"x" * 5000).get(LIMIT_S).offset == -1
    deadline = now() + LIMIT_S
    while not values(peer, topic):  # the broker has closed the connection: what was sent at the same moment is gone
        assert now() < deadline
        assert sending.send(topic, b"y").get(LIMIT_S).offset == -1
        sleep(sending, 0.1)
    assert set(values(peer, topic)) == {b"y"}


def test_a_request_without_an_answer_fails_or_is_sent_again_and_may_be_there_twice(
    kafka: KafkaCluster, producer: Make, new_topic: Topic, peer: Peer
) -> None:
    """Behaviour 307."""
    topic = new_topic()
    once = warm(producer(request_timeout_ms=1500, retries=0), warmed(producer, topic))
    again = warm(producer(request_timeout_ms=1500, retries=100, retry_backoff_ms=50), topic)
    with frozen(kafka):
        with pytest.raises(KafkaError) as caught:
            once.send(topic, b"once").get(LIMIT_S)
        assert caught.value.retriable
        future = again.send(topic, b"again")
        sleep(again, 2)
        assert not future.is_done
    assert future.get(LIMIT_S).offset > 2
    found = Counter(values(peer, topic))
    assert found[b"warm"] == 3
    assert found[b"once"] <= 1, "it failed, and may be there"
    assert found[b"again"] >= 1
    assert found.keys() <= {b"warm", b"once", b"again"}


# -- batches and memory ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", None])
def test_whole_batches_are_compressed(kafka: KafkaCluster, producer: Make, new_topic: Topic, peer: Peer, codec: str | None) -> None:
    """Behaviours 237, 239, 313."""
    topic = new_topic()
    sending = producer(compression_type=codec, linger_ms=60_000)
    for _ in range(20):
        sending.send(topic, b"x" * 100)
    sending.flush(LIMIT_S)
    assert batches(kafka, topic) == [(20, codec or "none")]
    assert values(peer, topic) == [b"x" * 100] * 20


def test_batch_size_bounds_a_batch_and_0_means_none(kafka: KafkaCluster, producer: Make, new_topic: Topic) -> None:
    """Behaviour 309."""
    topic, singly = new_topic(), new_topic()
    sending = producer(batch_size=1000, linger_ms=60_000)
    for _ in range(20):
        sending.send(topic, b"x" * 90)
    alone = producer(batch_size=0, linger_ms=60_000)
    for _ in range(5):
        alone.send(singly, b"v")
    for each in (sending, alone):
        each.flush(LIMIT_S)
    counts = [count for count, _ in batches(kafka, topic)]
    assert sum(counts) == 20
    assert 2 < max(counts) <= 11
    assert [count for count, _ in batches(kafka, singly)] == [1] * 5


def test_a_buffer_goes_at_once_or_lingers(kafka: KafkaCluster, producer: Make, new_topic: Topic, peer: Peer) -> None:
    """Behaviour 310."""
    topic, later = new_topic(), new_topic()
    at_once = producer()
    at_once.send(topic, b"v").get(LIMIT_S)
    assert at_once.send(topic, b"v").get(LIMIT_S).offset == 1, "nobody flushed"
    lingering = producer(linger_ms=2000)
    lingering.partitions_for(later)
    futures = [lingering.send(later, b"%d" % n) for n in range(2)]
    sleep(lingering, 0.1)
    assert not any(future.is_done for future in futures)
    futures.append(lingering.send(later, b"2"))
    assert [future.get(LIMIT_S).offset for future in futures] == [0, 1, 2], "nobody flushed"
    assert batches(kafka, later) == [(3, "none")]


def test_records_that_come_close_together_share_a_batch(kafka: KafkaCluster, producer: Make, new_topic: Topic) -> None:
    """Behaviour 311: also with linger_ms=0, while requests are under way."""
    topic = new_topic()
    sending = warm(producer(), topic)
    with frozen(kafka):
        for _ in range(500):
            sending.send(topic, b"v")
        sleep(sending, 0.1)
    sending.flush(LIMIT_S)
    counts = [count for count, _ in batches(kafka, topic)]
    assert sum(counts) == 501
    assert len(counts) < 100


def test_send_blocks_while_buffer_memory_is_taken(kafka: KafkaCluster, producer: Make, new_topic: Topic, handler: str) -> None:
    """Behaviour 312."""
    topic = new_topic()
    options = {"buffer_memory": 65536, "batch_size": 4096, "max_request_size": 16384}
    bounded = producer(**options, max_block_ms=300)
    bounded._client.topics[topic.encode()]  # max_block_ms is for the buffer alone
    warm(bounded, topic)
    patient = warm(producer(**options), topic)
    sent: list[Any] = []
    with frozen(kafka):
        begun = now()
        with pytest.raises(KafkaError):
            fill(bounded, topic)
        assert now() - begun >= 0.25
        beside = patient._client.handler.spawn(lambda: [sent.append(patient.send(topic, b"y" * 1000)) for _ in range(200)])
        deadline = now() + LIMIT_S
        while not sent:
            assert now() < deadline, "it does not begin"
            sleep(patient, 0.01)
        sleep(patient, 0.2)
        assert len(sent) < 200, "it waits for room"
    beside.join(LIMIT_S)
    patient.flush(LIMIT_S)
    assert len({future.get(LIMIT_S).offset for future in sent}) == 200


# -- names and versions ----------------------------------------------------------------------------------------------------
def test_each_producer_has_a_name_of_its_own(kafka: KafkaCluster, producer: Make) -> None:
    """Behaviour 314, as a relay before the broker sees it."""
    with Recorder(kafka.nodes[0].port).running() as relay:
        names = []
        for _ in range(2):
            sending = producer(bootstrap_servers=f"127.0.0.1:{relay.port}")
            names.append(sending._client.stats()["client_id"])
        producer(bootstrap_servers=[f"127.0.0.1:{relay.port}"], client_id="a-name-of-mine")
        assert len(set(names)) == 2
        for name in (*names, "a-name-of-mine"):
            assert name.encode() in relay.all_sent
        assert all(name.startswith("kafka-python-producer-") for name in names)


def test_check_version_names_the_brokers_release(kafka: KafkaCluster, handler: str) -> None:
    """Behaviour 240."""
    with KafkaClient(bootstrap_servers=kafka.hosts, handler=handler) as client:
        assert client.check_version(timeout=60) == (4, 2)
