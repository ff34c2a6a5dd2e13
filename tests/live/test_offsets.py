"""Topic and Partition on a real broker: what they know, and the offsets that they look up."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from gkafka import KafkaClient
from gkafka.exceptions import UnsupportedVersion
from gkafka.testing import MockCluster
from gkafka.wire.apis import Versions
from gkafka.wire.offsets import ListOffsetsRequest
from tests.kit.clock import now
from tests.live.kafka import VERSIONS, KafkaCluster
from tests.live.peer import Peer, Seen
from tests.testing.client import PlainClient

FIRST_MS = 1_600_000_000_000
LATEST, EARLIEST = -1, -2


def fill(peer: Peer, topic: str, counts: dict[int, int], *, timestamps: bool = False) -> None:
    stamp = FIRST_MS if timestamps else None
    peer.write(
        topic,
        [Seen(p, i, None, b"value", [], None if stamp is None else stamp + 1000 * i) for p, count in counts.items() for i in range(count)],
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_earliest_and_latest_offsets_of_each_partition(
    version: str, client: KafkaClient, peer: Peer, new_topic: Callable[..., str]
) -> None:
    name = new_topic(3)
    fill(peer, name, {0: 5, 2: 1})
    topic = client.topics[name]
    assert {p: answer.offset[0] for p, answer in topic.latest_available_offsets().items()} == {0: 5, 1: 0, 2: 1}
    assert {p: answer.offset[0] for p, answer in topic.earliest_available_offsets().items()} == {0: 0, 1: 0, 2: 0}
    assert {p: answer.offset[0] for p, answer in topic.fetch_offset_limits(LATEST).items()} == {0: 5, 1: 0, 2: 1}
    partition = topic.partitions[0]
    assert (partition.earliest_available_offset(), partition.latest_available_offset()) == (0, 5)
    assert list(partition.fetch_offset_limit(EARLIEST)) == [0]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("handler", ["threading"], indirect=True)
def test_list_offsets_answers_for_many_partitions_at_once(
    version: str, kafka: KafkaCluster, client: KafkaClient, peer: Peer, new_topic: Callable[..., str]
) -> None:
    name = new_topic(2)
    fill(peer, name, {0: 5, 1: 3})
    wanted = {(name, 0): LATEST, (name, 1): EARLIEST}
    assert client.list_offsets(wanted) == {(name, 0): 5, (name, 1): 0}


@pytest.mark.parametrize("version", ["0.10.2.2", "4.2.0"])
def test_a_timestamp_gives_the_first_record_that_is_not_older(
    version: str, client: KafkaClient, peer: Peer, new_topic: Callable[..., str]
) -> None:
    name = new_topic()
    fill(peer, name, {0: 5}, timestamps=True)
    assert client.list_offsets({(name, 0): FIRST_MS + 1500}) == {(name, 0): 2}
    assert client.list_offsets({(name, 0): FIRST_MS}) == {(name, 0): 0}


@pytest.mark.parametrize("version", ["2.8.2", "4.2.0"])
@pytest.mark.parametrize("handler", ["threading"], indirect=True)
def test_special_times_mean_what_they_mean_or_are_not_asked_for(
    version: str, kafka: KafkaCluster, client: KafkaClient, peer: Peer, new_topic: Callable[..., str]
) -> None:
    """Kafka 2.8 takes one that it does not know for a time before all records."""
    name, empty = new_topic(), new_topic()
    fill(peer, name, {0: 5}, timestamps=True)
    if version == "4.2.0":
        assert [client.list_offsets({(name, 0): at})[name, 0] for at in (-3, -4, -5)] == [4, 0, -1]
        assert [client.list_offsets({(empty, 0): at})[empty, 0] for at in (-3, -4, -5)] == [-1, 0, -1]
        return
    for at in (-3, -4, -5):
        with pytest.raises(UnsupportedVersion, match=rf"the time {at} takes ListOffsets .*, which Kafka has since 3\.\d; 127"):
            client.list_offsets({(name, 0): at})


@pytest.mark.parametrize("version", ["2.8.2", "4.2.0"])
def test_the_mock_takes_special_times_as_the_release_does(
    version: str, kafka: KafkaCluster, peer: Peer, new_topic: Callable[..., str]
) -> None:
    name, empty = new_topic(), new_topic()
    fill(peer, name, {0: 5}, timestamps=True)
    release = ".".join(version.split(".")[:2])
    with MockCluster(topics={name: 1, empty: 1}, versions=release) as mock:
        with KafkaClient(mock.bootstrap, handler="threading") as client, client.get_producer() as producer:
            for i in range(5):
                producer.produce(name, b"value", partition=0, timestamp=FIRST_MS + 1000 * i)
        node = kafka.nodes[0]
        low, high = Versions.for_broker(release).ranges[ListOffsetsRequest.API.key]
        with PlainClient(SimpleNamespace(brokers={1: (node.host, node.port)})) as real, PlainClient(mock) as mocked:  # type: ignore[arg-type]
            for topic, at, asked in itertools.product((name, empty), (-1, -2, -3, -4, -5, -6, -7), range(low, high + 1)):
                answers = [one.offset(at, topic=topic, version=asked) for one in (real, mocked)]
                found = [(a.error_code, a.old_style_offsets, a.offset, a.timestamp, a.leader_epoch) for a in answers]
                assert found[0] == found[1], (at, asked)


def test_the_earliest_offset_moves_when_records_are_deleted(
    client: KafkaClient, kafka: KafkaCluster, peer: Peer, new_topic: Callable[..., str]
) -> None:
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

    name = new_topic()
    fill(peer, name, {0: 10})
    admin = AdminClient({"bootstrap.servers": kafka.hosts, "log_level": 0})
    for deleted in admin.delete_records([TopicPartition(name, 0, 4)]).values():
        deleted.result(60)
    topic = client.topics[name]  # the client holds its topics weakly, as pykafka's does
    assert topic.partitions[0].earliest_available_offset() == 4


def test_a_partition_knows_its_leader_and_replicas(client: KafkaClient, kafka: KafkaCluster, new_topic: Callable[..., str]) -> None:
    topic = client.topics[new_topic(2)]
    assert sorted(topic.partitions) == [0, 1]
    partition = topic.partitions[1]
    node = kafka.nodes[0]
    assert partition.leader is not None
    assert (partition.id, partition.topic.name) == (1, topic.name)
    assert (partition.leader.id, partition.leader.host, partition.leader.port) == (node.id, node.host, node.port)
    assert [broker.id for broker in partition.replicas] == [node.id]
    assert [broker.id for broker in partition.isr] == [node.id]


def test_three_replicas_are_three_brokers(cluster: KafkaCluster, client: KafkaClient, new_topic: Callable[..., str]) -> None:
    topic = client.topics[new_topic(3)]
    for partition in topic.partitions.values():
        assert sorted(broker.id for broker in partition.replicas) == [1, 2, 3]
    assert sorted(client.brokers) == [1, 2, 3]


def test_partitions_that_are_added_are_seen_after_an_update(
    client: KafkaClient, kafka: KafkaCluster, new_topic: Callable[..., str]
) -> None:
    from confluent_kafka.admin import AdminClient, NewPartitions  # type: ignore[attr-defined]

    name = new_topic(1)
    topic = client.topics[name]
    assert client.partitions(name) == [0]
    admin = AdminClient({"bootstrap.servers": kafka.hosts, "log_level": 0})
    for made in admin.create_partitions([NewPartitions(name, 3)]).values():
        made.result(60)
    deadline = now() + 60
    while sorted(topic.partitions) != [0, 1, 2]:
        assert now() < deadline, sorted(topic.partitions)
        client.update_cluster()
    assert client.partitions(name) == [0, 1, 2]
