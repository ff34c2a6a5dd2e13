"""Bad input against a real broker: an error that names the thing, and nothing already accepted is lost."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import pytest

from gkafka.exceptions import (
    ConfigurationError,
    DeliveryError,
    KafkaException,
    KafkaTimeoutError,
    MessageSizeTooLarge,
    NoBrokersAvailableError,
    RecordTooLarge,
    UnknownTopicOrPartition,
)
from tests.kit.clock import now
from tests.live.jvm import free_ports
from tests.live.kafka import KafkaCluster
from tests.live.peer import Peer
from tests.public.aids import limit_calls

if TYPE_CHECKING:
    from gkafka import KafkaClient


def test_an_unknown_topic_is_named_by_the_error_of_a_producer(
    connect: Callable[..., KafkaClient], peer: Peer, new_topic: Callable[..., str], new_name: Callable[[str], str]
) -> None:
    good, unknown = new_topic(), new_name("unknown")
    producer = connect(auto_create_topics=False).get_producer(max_block_ms=2000, delivery_timeout_ms=60_000)
    accepted = producer.produce(good, b"accepted")
    began = now()
    with pytest.raises((UnknownTopicOrPartition, KafkaTimeoutError), match=unknown):
        producer.produce(unknown, b"value").result(60)
    assert now() - began < 30
    assert accepted.result(60).offset == 0
    with suppress(DeliveryError):
        producer.close(60)
    assert [record.value for record in peer.read(good, 1)] == [b"accepted"]


def test_an_unknown_topic_is_named_by_the_error_of_a_look_up(
    connect: Callable[..., KafkaClient], new_topic: Callable[..., str], new_name: Callable[[str], str]
) -> None:
    unknown = new_name("unknown")
    client = connect(auto_create_topics=False)
    client.list_offsets({(new_topic(), 0): -1})
    limit_calls(client, 3000)
    with pytest.raises(UnknownTopicOrPartition, match=unknown):
        client.topics[unknown]
    with pytest.raises(KafkaException, match=unknown):
        client.list_offsets({(unknown, 0): -1})


def test_a_partition_that_does_not_exist_is_named(client: KafkaClient, new_topic: Callable[..., str]) -> None:
    name = new_topic(2)
    producer = client.get_producer(max_block_ms=2000, delivery_timeout_ms=5000)
    with pytest.raises(KafkaException, match="7"):
        producer.produce(name, b"value", partition=7).result(60)
    with suppress(DeliveryError):
        producer.close(60)


@pytest.mark.parametrize("version", ["2.8.2", "4.2.0"])  # those up to 1.1 take it for a partition that an existing topic does not have
def test_a_commit_for_what_does_not_exist_is_told_at_once_and_makes_nothing(
    version: str, connect: Callable[..., KafkaClient], new_topic: Callable[..., str], new_name: Callable[[str], str]
) -> None:
    name, unknown, group = new_topic(2), new_name("unknown"), new_name("group")
    client = connect(api_timeout_ms=120_000)
    with client.get_consumer(group=group) as consumer:
        consumer.commit({(name, 0): 0})
        for partition in ((name, 7), (unknown, 0)):
            began = now()
            with pytest.raises(UnknownTopicOrPartition, match=f"{partition[0]}-{partition[1]}: offset 5 is not committed: the"):
                consumer.commit({partition: 5, (name, 1): 0})
            assert now() - began < 60
        assert (consumer.committed((name, 1)), consumer.committed((name, 7))) == (0, -1)
    client.update_cluster()
    assert unknown not in set(client.topics)


def test_a_record_over_the_brokers_limit_fails_alone(client: KafkaClient, peer: Peer, new_topic: Callable[..., str]) -> None:
    name = new_topic(max_message_bytes=2000)
    producer = client.get_producer(linger_ms=0)
    assert producer.produce(name, b"before").result(60).offset == 0
    with pytest.raises(MessageSizeTooLarge) as caught:
        producer.produce(name, b"x" * 5000).result(60)
    assert caught.value.topic == name
    assert producer.produce(name, b"after").result(60).offset == 1
    with suppress(DeliveryError):
        producer.close(60)
    assert [record.value for record in peer.read(name, 2)] == [b"before", b"after"]


def test_each_record_of_a_batch_over_the_brokers_limit_is_either_there_or_told_of(
    client: KafkaClient, peer: Peer, new_topic: Callable[..., str]
) -> None:
    name = new_topic(max_message_bytes=4000)
    producer = client.get_producer(linger_ms=100)
    deliveries = [producer.produce(name, b"%03d" % i + b"x" * 500) for i in range(100)]
    told = [delivery.exception(30) for delivery in deliveries]
    assert all(error is None or isinstance(error, MessageSizeTooLarge) for error in told)
    with suppress(DeliveryError):
        producer.close(60)
    there = [int(record.value[:3]) for record in peer.read(name, told.count(None)) if record.value]
    assert there == [i for i, error in enumerate(told) if error is None]


def test_a_record_over_the_producers_limit_is_refused_at_once(client: KafkaClient, peer: Peer, new_topic: Callable[..., str]) -> None:
    name = new_topic()
    with client.get_producer(max_request_bytes=10_000) as producer:
        accepted = producer.produce(name, b"accepted")
        with pytest.raises(RecordTooLarge, match=name):
            producer.produce(name, b"x" * 20_000)
        assert accepted.result(60).offset == 0
    assert [record.value for record in peer.read(name, 1)] == [b"accepted"]


def test_a_port_where_nobody_listens_is_named_within_the_deadline(connect: Callable[..., KafkaClient]) -> None:
    port = free_ports(1)[0]
    began = now()
    with pytest.raises(NoBrokersAvailableError, match=rf"127\.0\.0\.1:{port}"):
        connect(f"127.0.0.1:{port}", api_timeout_ms=3000).update_cluster()
    assert now() - began < 30


@contextmanager
def web_server() -> Iterator[int]:
    """The port of a listener that answers everything with HTTP."""

    def serve() -> None:
        with suppress(OSError):  # the shutdown below ends accept()
            while True:
                peer, _ = listener.accept()
                with peer:
                    peer.recv(4096)
                    peer.sendall(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = threading.Thread(target=serve)
        server.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
        server.join(60)


def test_a_server_that_is_not_kafka_is_said_to_be_none(connect: Callable[..., KafkaClient], kafka: KafkaCluster) -> None:
    with web_server() as port, pytest.raises(KafkaException, match=rf"127\.0\.0\.1:{port}.*HTTP"):
        connect(f"127.0.0.1:{port}", api_timeout_ms=3000).update_cluster()


def test_an_unknown_option_is_refused_with_a_near_miss(client: KafkaClient, new_topic: Callable[..., str]) -> None:
    with pytest.raises(ConfigurationError, match="linger_ms"):
        client.get_producer(linger_mss=5)
    with pytest.raises(ConfigurationError, match="fetch_wait_max_ms"):
        client.topics[new_topic()].get_simple_consumer(fetch_wait_maxms=5)
