"""KafkaClient, Cluster, Broker and the topic's producers on a real broker."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from tests.kit.clock import epoch_s, now
from tests.live.jvm import free_ports
from tests.live.kafka import KafkaCluster
from tests.live.peer import Peer

if TYPE_CHECKING:
    from gkafka import KafkaClient


def test_topics_are_a_dict_of_what_the_cluster_has(client: KafkaClient, new_topic: Callable[..., str]) -> None:
    name = new_topic()
    client.update_cluster()
    assert name in client.topics
    topic = client.topics[name]
    assert topic.name == name
    assert client.topics[name.encode()].name == name
    assert re.fullmatch(rf"<gkafka\.topic\.Topic at 0x[0-9a-f]+ \(name={name}\)>", repr(topic))


def test_a_topic_that_was_made_later_is_found_by_an_update(client: KafkaClient, new_topic: Callable[..., str]) -> None:
    client.update_cluster()
    name = new_topic()
    assert name not in client.topics
    client.update_cluster()
    assert name in client.topics


def test_gkafka_makes_and_deletes_topics(client: KafkaClient, kafka: KafkaCluster, new_name: Callable[[str], str]) -> None:
    name = new_name("made")
    client.create_topic(name, 3, configs={"max.message.bytes": "4000"})
    assert client.partitions(name) == [0, 1, 2]
    assert sorted(kafka.nodes[0].leaders(name)) == [0, 1, 2]
    client.delete_topic(name)
    deadline = now() + 60
    while name in client.topics:
        assert now() < deadline
        client.update_cluster()


@pytest.mark.parametrize("version", ["0.11.0.3", "4.2.0"])
def test_asking_for_a_topic_makes_it_where_the_broker_allows_that(
    version: str, client: KafkaClient, new_name: Callable[[str], str]
) -> None:
    name = new_name("made-by-asking")
    topic = client.topics[name]
    assert sorted(topic.partitions) == [0]
    with topic.get_sync_producer() as producer:
        producer.produce(b"value")
    assert topic.partitions[0].latest_available_offset() == 1


def test_with_auto_create_topics_off_asking_makes_nothing(
    connect: Callable[..., KafkaClient], client: KafkaClient, new_name: Callable[[str], str]
) -> None:
    name = new_name("never-made")
    with pytest.raises(Exception, match=name):
        connect(auto_create_topics=False).topics[name]
    client.update_cluster()
    assert name not in client.topics


def test_one_living_host_of_several_is_enough(
    connect: Callable[..., KafkaClient], kafka: KafkaCluster, new_topic: Callable[..., str]
) -> None:
    name = new_topic()
    dead = free_ports(2)
    client = connect(f"127.0.0.1:{dead[0]},127.0.0.1:{dead[1]}, {kafka.hosts}")
    assert sorted(client.topics[name].partitions) == [0]


def test_brokers_come_from_the_metadata(cluster: KafkaCluster, connect: Callable[..., KafkaClient]) -> None:
    client = connect(cluster.nodes[1].address)
    client.update_cluster()
    assert {id: (broker.host, broker.port) for id, broker in client.brokers.items()} == {n.id: (n.host, n.port) for n in cluster.nodes}


def test_internal_topics_are_hidden_unless_asked_for(
    connect: Callable[..., KafkaClient], peer: Peer, new_topic: Callable[..., str], new_name: Callable[[str], str]
) -> None:
    peer.commit(new_name("group"), new_topic(), {0: 0})  # makes the topic of the offsets
    hidden, shown = connect(), connect(exclude_internal_topics=False)
    for client in (hidden, shown):
        client.update_cluster()
    assert "__consumer_offsets" not in hidden.topics
    assert "__consumer_offsets" in shown.topics


def test_source_address_is_where_connections_come_from(
    connect: Callable[..., KafkaClient], kafka: KafkaCluster, new_topic: Callable[..., str]
) -> None:
    name = new_topic()
    client = connect(source_address="127.0.0.5:0")
    assert sorted(client.topics[name].partitions) == [0]
    port = f":{kafka.nodes[0].port:04X}"
    with open("/proc/self/net/tcp") as table:
        sources = {row.split()[1].split(":")[0] for row in table if row.split()[2].endswith(port)}
    assert "0500007F" in sources


def test_the_offset_manager_of_a_group_is_a_broker(client: KafkaClient, kafka: KafkaCluster, new_name: Callable[[str], str]) -> None:
    assert client.cluster.get_offset_manager(new_name("group")).port == kafka.nodes[0].port


def test_leaving_the_producers_block_sends_what_is_pending(client: KafkaClient, peer: Peer, new_topic: Callable[..., str]) -> None:
    name = new_topic()
    with client.topics[name].get_producer(linger_ms=60_000) as producer:
        for i in range(4):
            producer.produce(b"test message %d" % (i * i))
    assert [record.value for record in peer.read(name, 4)] == [b"test message %d" % (i * i) for i in range(4)]
    consumer = client.topics[name].get_simple_consumer()
    assert [(m.offset, bytes(m.value)) for m in itertools.islice(consumer, 4)] == [(i, b"test message %d" % (i * i)) for i in range(4)]
    consumer.stop()


def test_a_sync_producer_returns_when_the_message_is_there(client: KafkaClient, peer: Peer, new_topic: Callable[..., str]) -> None:
    name = new_topic()
    with client.topics[name].get_sync_producer() as producer:
        for i in range(3):
            producer.produce(b"%d" % i, partition_key=b"key")
            assert client.topics[name].partitions[0].latest_available_offset() == i + 1
    assert [(record.key, record.value) for record in peer.read(name, 3)] == [(b"key", b"%d" % i) for i in range(3)]


def test_the_same_key_always_goes_to_the_partition_that_java_chooses(
    client: KafkaClient, peer: Peer, new_topic: Callable[..., str]
) -> None:
    from confluent_kafka import Producer

    mine, theirs = new_topic(7), new_topic(7)
    keys = [b"key %d" % i for i in range(100)]
    with client.get_producer() as producer:
        for key in keys:
            producer.produce(mine, b"", key=key)
    other = Producer({"bootstrap.servers": peer.hosts, "partitioner": "murmur2", "log_level": 2})
    for key in keys:
        other.produce(theirs, b"", key=key)
    assert other.flush(60) == 0
    by_key = [{record.key: record.partition for record in peer.read(topic, 100, 7)} for topic in (mine, theirs)]
    assert by_key[0] == by_key[1]


def test_log_append_time_comes_back_in_the_delivery_and_in_the_message(client: KafkaClient, new_topic: Callable[..., str]) -> None:
    name = new_topic(message_timestamp_type="LogAppendTime")
    before = epoch_s() * 1000
    producer = client.get_producer()
    got = producer.produce(name, b"value", timestamp=1).result(60)
    assert before - 5000 < got.timestamp < before + 60_000
    consumer = client.topics[name].get_simple_consumer(consumer_timeout_ms=60_000)
    message = consumer.consume()
    assert message is not None
    assert (message.timestamp, message.timestamp_type) == (got.timestamp, 1)
    consumer.stop()
    producer.close(60)


def test_a_transaction_of_another_client_is_seen_when_it_is_committed_and_never_when_it_is_aborted(
    client: KafkaClient, peer: Peer, new_topic: Callable[..., str], new_name: Callable[[str], str]
) -> None:
    from confluent_kafka import Producer

    name = new_topic()
    other = Producer({"bootstrap.servers": peer.hosts, "transactional.id": new_name("transaction"), "log_level": 2})
    other.init_transactions(30)
    for i, end in enumerate((other.commit_transaction, other.abort_transaction, other.commit_transaction)):
        other.begin_transaction()
        other.produce(name, b"%d" % i)
        other.flush(60)
        end(30)
    consumer = client.topics[name].get_simple_consumer()
    assert [bytes(m.value) for m in itertools.islice(consumer, 2)] == [b"0", b"2"]
    assert consumer.consume_batch(1, timeout_ms=300) == []
    consumer.stop()
