"""The documented requests and answers on a socket of one's own, with real brokers: behaviours 87, 148 to 171."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from gkafka.connection import BrokerConnection
from gkafka.handlers import RequestHandler
from gkafka.protocol import (
    ConsumerMetadataRequest,
    ConsumerMetadataResponse,
    CreateTopicRequest,
    FetchRequest,
    FetchResponse,
    Message,
    MetadataRequest,
    MetadataResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetRequest,
    OffsetResponse,
    PartitionFetchRequest,
    PartitionOffsetCommitRequest,
    PartitionOffsetFetchRequest,
    PartitionOffsetRequest,
    ProduceRequest,
    ProduceResponse,
)
from tests.kit.clock import epoch_s, now

if TYPE_CHECKING:
    from gkafka import KafkaClient

NOW = 1_700_000_000_000


@pytest.fixture
def connection(client: KafkaClient, new_topic: Callable[..., str]) -> Iterator[BrokerConnection]:
    broker = client.topics[new_topic()].partitions[0].leader  # brokers of 0.8 tell of themselves once there is a topic
    assert broker is not None
    made = BrokerConnection(broker.host, broker.port, client.handler)
    made.connect(20_000)
    yield made
    made.disconnect()


def ask(connection: BrokerConnection, request: Any, answer: Any, version: int | None = None) -> Any:
    connection.request(request)
    return answer(connection.response(), api_version=version)


def until_found(connection: BrokerConnection, request: Any, answer: Any, is_there: Callable[[Any], bool]) -> Any:
    """A broker whose offsets topic was just made cannot tell at once."""
    deadline = now() + 60
    while True:
        try:
            found = ask(connection, request, answer)
            if is_there(found):
                return found
        except Exception:
            if now() > deadline:
                raise
        assert now() < deadline
        time.sleep(0.1)


@pytest.mark.parametrize("version", ["0.8.2.2", "0.9.0.1", "2.8.2"])
def test_behaviour_87_documented_requests_on_a_socket(
    version: str, client: KafkaClient, connection: BrokerConnection, new_topic: Callable[..., str], new_name: Callable[[str], str]
) -> None:
    """Every request in the version of the document, with every codec that message sets have."""
    topic, group = new_topic().encode(), new_name("group").encode()
    client.topics[topic.decode()]
    metadata = ask(connection, MetadataRequest([topic]), MetadataResponse)
    assert metadata.topics[topic].err == 0
    assert metadata.brokers[metadata.topics[topic].partitions[0].leader].port == connection.port
    assert topic in ask(connection, MetadataRequest(), MetadataResponse).topics

    rows = [(b"k", b"v"), (None, b"x" * 5000), (b"", b""), (b"k", None)]
    codecs = (0, 1, 2, 3)
    for n, codec in enumerate(codecs):
        produce = ProduceRequest(compression_type=codec, required_acks=-1, timeout=5000)
        for key, value in rows:
            produce.add_message(Message(value, key), topic, 0)
        assert ask(connection, produce, ProduceResponse).topics == {topic: {0: (0, n * len(rows))}}
    unanswered = ProduceRequest(required_acks=0)
    unanswered.add_message(Message(b"last"), topic, 0)
    connection.request(unanswered)

    total = len(rows) * len(codecs) + 1
    for before, wanted in ((-1, total), (-2, 0)):
        limits = ask(connection, OffsetRequest([PartitionOffsetRequest(topic, 0, before, 1)]), OffsetResponse)
        assert limits.topics == {topic: {0: ([wanted], 0)}}
    got: list[Message] = []
    while len(got) < total:
        fetched = ask(connection, FetchRequest([PartitionFetchRequest(topic, 0, len(got))], 5000, 1), FetchResponse).topics[topic][0]
        assert (fetched.err, fetched.max_offset) == (0, total)
        got += [m for m in fetched.messages if m.offset >= len(got)]
    assert [(m.key, m.value) for m in got] == rows * len(codecs) + [(None, b"last")]
    assert [m.offset for m in got] == list(range(total))

    coordinator = until_found(connection, ConsumerMetadataRequest(group), ConsumerMetadataResponse, lambda found: True)
    assert (coordinator.coordinator_host.decode(), coordinator.coordinator_port) == (connection.host, connection.port)
    commit = OffsetCommitRequest(group, -1, b"", [PartitionOffsetCommitRequest(topic, 0, 3, int(epoch_s() * 1000), b"note")])
    until_found(connection, commit, OffsetCommitResponse, lambda found: found.topics == {topic: {0: (0,)}})
    committed = ask(connection, OffsetFetchRequest(group, [PartitionOffsetFetchRequest(topic, 0)]), OffsetFetchResponse)
    assert committed.topics == {topic: {0: (3, b"note", 0)}}


@pytest.mark.parametrize("version", ["4.2.0"])
def test_newer_brokers_take_newer_versions(
    version: str, client: KafkaClient, connection: BrokerConnection, new_topic: Callable[..., str]
) -> None:
    """Kafka 4 serves no message sets any more (KIP-896): api_version says what it does."""
    topic = new_topic().encode()
    client.topics[topic.decode()]
    requests = RequestHandler(client.handler, connection)
    requests.start()
    produce = ProduceRequest(compression_type=3, required_acks=-1, api_version=9)
    for n in range(3):
        produce.add_message(Message(b"v%d" % n, timestamp=NOW + n), topic, 0)
    futures = [
        requests.request(produce),
        requests.request(MetadataRequest([topic], api_version=12)),
        requests.request(FetchRequest([PartitionFetchRequest(topic, 0, 0)], 5000, 1, api_version=12)),
    ]
    produced, metadata, fetched = futures
    assert produced is not None
    assert metadata is not None
    assert fetched is not None
    assert produced.get(ProduceResponse, 20, api_version=9).topics == {topic: {0: (0, 0)}}
    assert metadata.get(MetadataResponse, 20, api_version=12).topics[topic].err == 0
    messages = fetched.get(FetchResponse, 20, api_version=12).topics[topic][0].messages
    assert [(m.value, m.timestamp, m.topic) for m in messages] == [(b"v%d" % n, NOW + n, topic.decode()) for n in range(3)]
    requests.stop()


@pytest.mark.parametrize("version", ["2.8.2", "4.2.0"])
def test_topics_are_made_and_deleted_by_single_requests(version: str, client: KafkaClient, new_name: Callable[[str], str]) -> None:
    (broker,) = client.brokers.values()
    for timeout in (10_000, 0):
        name = new_name("topic").encode()
        broker.create_topics([CreateTopicRequest(name, 2, 1, [], [(b"retention.ms", b"60000")])], timeout)
        wait(lambda name=name: len(broker.request_metadata().topics.get(name, ((), (), ()))[1]) == 2)
        broker.delete_topics([name], timeout)
        wait(lambda name=name: name not in broker.request_metadata().topics)


@pytest.mark.parametrize("version", ["0.9.0.1", "2.8.2", "4.2.0"])
def test_groups_and_versions_are_told(
    version: str, client: KafkaClient, new_topic: Callable[..., str], new_name: Callable[[str], str]
) -> None:
    topic, group = new_topic(), new_name("group")
    spoken = client.cluster.fetch_api_versions()
    assert spoken[3].max >= 0
    with client.topics[topic].get_balanced_consumer(group, managed=True, consumer_timeout_ms=100) as consumer:
        wait(lambda: bool(consumer.consume() or consumer.partitions))
        found = client.cluster.get_managed_group_descriptions()[group.encode()]
        assert (found.error_code, found.state, found.protocol_type) == (0, b"Stable", b"consumer")
        ((_, member),) = found.members.items()
        assert member.member_metadata.topic_names == [topic.encode()]  # type: ignore[union-attr]
        assert member.member_assignment.partition_assignment == [(topic.encode(), sorted(p.id for p in consumer.partitions.values()))]  # type: ignore[union-attr]


def wait(what: Callable[[], bool]) -> None:
    deadline = now() + 60
    while not what():
        assert now() < deadline
        time.sleep(0.1)
