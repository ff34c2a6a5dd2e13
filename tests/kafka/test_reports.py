"""What users reported of other clients and tools, as it would meet kafka-python's clients and the older ones. The table is tests/reports.md."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from gkafka import KafkaClient
from gkafka.kafka import KafkaConsumer, TopicPartition, legacy
from gkafka.kafka.admin import KafkaAdminClient
from gkafka.kafka.errors import (
    AuthenticationFailedError,
    ClusterAuthorizationFailedError,
    KafkaConfigurationError,
    KafkaTimeoutError,
    TopicAuthorizationFailedError,
)
from gkafka.testing import Edit, Error, MockCluster, Sasl
from tests.kafka.conftest import Make
from tests.kafka.legacy import LIMIT_S, eventually, fill, values
from tests.kit.clock import now
from tests.public.test_mixed_releases import everywhere

MakeCluster = Callable[..., MockCluster]
PLAIN: dict[str, Any] = {
    "security_protocol": "SASL_PLAINTEXT",
    "allow_plaintext_credentials": True,
    "sasl_mechanism": "PLAIN",
    "sasl_plain_username": "alice",
    "sasl_plain_password": "geheim",
}


@pytest.fixture
def old(cluster: MockCluster, handler: str) -> Any:
    """kafka-python 0.9's client."""
    client = legacy.KafkaClient(cluster.bootstrap, handler=handler)
    yield client
    client.close()


# -- 1 -------------------------------------------------------------------------------------------------------------------
def test_ends_are_told_of_all_but_the_partition_without_a_leader_which_is_named(consumer: Make, make_cluster: MakeCluster) -> None:
    cluster = make_cluster(3, {"t": 3}, replication_factor=1)
    reader = consumer(cluster, request_timeout_ms=600_000, session_timeout_ms=1000, heartbeat_interval_ms=300)
    partitions = [TopicPartition("t", number) for number in range(3)]
    assert set(reader.end_offsets(partitions).values()) == {0}
    down = cluster.leader("t", 1)
    cluster.stop_broker(down)
    began = now()
    said = rf"t-1 has no leader at the moment: see which of its replicas' brokers \[{down}\] are down"
    for call in (reader.end_offsets, reader.beginning_offsets, lambda these: reader.offsets_for_times(dict.fromkeys(these, 0))):
        with pytest.raises(KafkaTimeoutError, match=said):
            call(partitions)
    assert now() - began < LIMIT_S, "brokers have told it: nobody waits for request_timeout_ms"
    assert reader.end_offsets([partitions[0], partitions[2]]) == {partitions[0]: 0, partitions[2]: 0}


def test_the_oldest_consumer_is_told_at_once_that_a_partition_has_no_leader(make_cluster: MakeCluster, handler: str) -> None:
    cluster = make_cluster(3, {"t": 3}, replication_factor=1)
    down = cluster.leader("t", 1)
    reader = legacy.KafkaConsumer("t", metadata_broker_list=cluster.bootstrap, handler=handler, socket_timeout_ms=600_000)
    cluster.stop_broker(down)
    began = now()
    for at in (-1, -2, 0):
        with pytest.raises(KafkaTimeoutError, match=rf"t-1 has no leader at the moment: .* \[{down}\] are down"):
            reader.get_partition_offsets("t", 1, at, 1)
    assert now() - began < LIMIT_S
    assert reader.get_partition_offsets("t", 2, -1, 1) == [0]
    reader.close()


# -- 2, 3 ----------------------------------------------------------------------------------------------------------------
def test_the_oldest_client_takes_an_address_as_a_console_prints_it(cluster: MockCluster, handler: str) -> None:
    client = legacy.KafkaClient(f"PLAINTEXT://{cluster.bootstrap}", handler=handler)
    assert "t" in {topic if isinstance(topic, str) else topic.decode() for topic in client.topics}
    client.close()


@pytest.mark.parametrize(
    ("given", "meant"), [("bootstrap.servers", "bootstrap_servers"), ("group.id", "group_id"), ("auto.offset.reset", "auto_offset_reset")]
)
def test_names_of_confluent_kafkas_configuration_are_told_by_their_names_here(given: str, meant: str) -> None:
    with pytest.raises(KafkaConfigurationError, match=rf"no option '{given}'; did you mean '{meant}'"):
        KafkaConsumer(**{given: "x"})


# -- 7, 15 ---------------------------------------------------------------------------------------------------------------
def test_a_broker_that_just_came_back_costs_no_future(producer: Make, make_cluster: MakeCluster) -> None:
    cluster = make_cluster(3, {"t": 3}, sasl=Sasl({"alice": "geheim"}))
    for number in range(3):
        cluster.move_leader("t", number, number + 1)
    writer = producer(cluster, retries=10, **PLAIN)
    for number in range(3):
        writer.send("t", b"1", partition=number).get(LIMIT_S)
    cluster.on("SaslAuthenticate", Error(58), broker=2, times=2)
    cluster.close_connections(2)
    assert [writer.send("t", b"2", partition=number).get(LIMIT_S).offset for number in range(3)] == [1, 1, 1]


def test_a_password_with_a_line_break_is_told_by_the_constructor(make_cluster: MakeCluster, handler: str) -> None:
    cluster = make_cluster(sasl=Sasl({"alice": "geheim"}))
    with pytest.raises(AuthenticationFailedError, match="the password ends in a line break") as caught:
        KafkaConsumer(bootstrap_servers=cluster.bootstrap, handler=handler, **{**PLAIN, "sasl_plain_password": "geheim\n"})
    assert "geheim" not in str(caught.value)


# -- 10 ------------------------------------------------------------------------------------------------------------------
def is_there(cluster: MockCluster, topic: str) -> bool:
    """For a client that makes no topic."""
    with KafkaClient(cluster.bootstrap, handler="threading", auto_create_topics=False) as client:
        return topic in client.topics


def test_a_producer_that_rests_makes_no_topic_again(producer: Make, cluster: MockCluster, handler: str) -> None:
    writer = producer(cluster, metadata_max_age_ms=100)
    writer.send("gone", b"x").get(LIMIT_S)
    cluster.delete_topic("gone")
    since = cluster.count("Metadata")
    writer.send("t", b"x").get(LIMIT_S)
    eventually(lambda: cluster.count("Metadata") >= since + 3, sleep=sleeping(handler))
    assert not is_there(cluster, "gone")
    assert writer.send("gone", b"y").get(LIMIT_S).offset == 0


def sleeping(handler: str) -> Callable[[float], object]:
    if handler == "gevent":
        import gevent

        return gevent.sleep
    import time

    return time.sleep


def test_the_oldest_producer_makes_a_topic_again_only_with_a_message(old: Any, cluster: MockCluster) -> None:
    writer = legacy.SimpleProducer(old)
    writer.send_messages(b"gone", b"x")
    cluster.delete_topic("gone")
    writer.send_messages(b"t", b"x")
    old.load_metadata_for_topics()
    assert not is_there(cluster, "gone")
    writer.send_messages(b"gone", b"y")
    assert [record.value for record in cluster.log("gone", 0)] == [b"y"]
    writer.stop()


# -- 11 ------------------------------------------------------------------------------------------------------------------
def test_an_administrator_looks_at_a_group_with_an_open_transaction_and_a_consumer_waits(
    consumer: Make, cluster: MockCluster, handler: str
) -> None:
    with KafkaClient(cluster.bootstrap, handler="threading") as client:
        client.admin().alter_group_offsets("g", {("t", 0): 3})
        writer = client.get_producer(transactional_id="x")
        writer.init_transactions()
        writer.begin_transaction()
        writer.send_offsets({("t", 0): 5}, "g")
        admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap, handler=handler)
        assert {at: found.offset for at, found in admin.list_consumer_group_offsets("g").items()} == {TopicPartition("t", 0): 3}
        admin.close()
        before = cluster.count("OffsetFetch")
        cluster.on("EndTxn", Error(51), times=1)
        writer.commit_transaction()
    assert consumer(cluster, group_id="g").committed(TopicPartition("t", 0)) == 5
    assert cluster.count("OffsetFetch") > before


# -- 17 ------------------------------------------------------------------------------------------------------------------
def test_a_producer_without_the_right_to_idempotence_writes_as_kafka_python_does_or_names_the_right(
    producer: Make, cluster: MockCluster
) -> None:
    cluster.on("InitProducerId", Error(31), times=None)
    assert producer(cluster).send("t", b"x").get(LIMIT_S).offset == 0, "kafka-python's default asks for no number"
    future = producer(cluster, enable_idempotence=True).send("t", b"x")
    with pytest.raises(ClusterAuthorizationFailedError, match=r"the right IdempotentWrite on the cluster.*enable_idempotence=False"):
        future.get(LIMIT_S)


# -- 27 ------------------------------------------------------------------------------------------------------------------
def test_the_oldest_consumer_ends_behind_the_mark_of_a_transaction(old: Any, cluster: MockCluster) -> None:
    with (
        KafkaClient(cluster.bootstrap, handler="threading") as client,
        client.get_producer(transactional_id="x") as writer,
        writer.transaction(),
    ):
        writer.produce("t", b"a")
    reader = legacy.SimpleConsumer(old, None, "t", iter_timeout=0.5)
    reader.seek(0, 0)
    assert values([type("M", (), {"message": found.message}) for found in reader]) == [b"a"]
    reader.stop()


# -- 28 ------------------------------------------------------------------------------------------------------------------
def test_a_member_of_three_brokers_signs_once(make_cluster: MakeCluster, consumer: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    signed: list[str] = []
    signer = ModuleType("aws_msk_iam_sasl_signer.MSKAuthTokenProvider")
    signer.__dict__["generate_auth_token"] = lambda region: (signed.append(region) or "signed", 1 << 60)
    monkeypatch.setitem(sys.modules, "aws_msk_iam_sasl_signer", ModuleType("aws_msk_iam_sasl_signer"))
    monkeypatch.setitem(sys.modules, signer.__name__, signer)
    sasl = Sasl(tokens=["signed"])
    cluster = make_cluster(3, {"t": 3}, sasl=sasl)
    of_amazon = {**PLAIN, "sasl_mechanism": "AWS_MSK_IAM", "sasl_aws_region": "eu-west-1"}
    for name in ("sasl_plain_username", "sasl_plain_password"):
        del of_amazon[name]
    reader = consumer(cluster, "t", group_id="g", **of_amazon)
    eventually(lambda: reader.poll(100) or reader.assignment())
    reader.end_offsets([TopicPartition("t", number) for number in range(3)])
    assert (signed, sasl.accepted > 3) == (["eu-west-1"], True)


# -- 29 ------------------------------------------------------------------------------------------------------------------
def deny(_: Any, answer: Any) -> Any:
    """As a broker that names a topic and does not describe it."""
    for told in answer.topics:
        if told.name == "secret":
            told.error_code, told.partitions = 29, []
    return answer


def test_a_subscription_by_pattern_tells_of_a_topic_that_is_denied(
    consumer: Make, make_cluster: MakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = make_cluster(topics={"t": 1, "secret": 1})
    cluster.on("Metadata", Edit(deny), times=None)
    reader = consumer(cluster, group_id="g", metadata_max_age_ms=100)
    reader.subscribe(pattern="^(t|secret)$")
    eventually(lambda: reader.poll(100) or reader.assignment())
    since = cluster.count("Metadata")
    eventually(lambda: reader.poll(100) or cluster.count("Metadata") >= since + 3)
    assert reader.assignment() == {TopicPartition("t", 0)}
    (told,) = [text for text in caplog.messages if "secret" in text]
    assert re.match(
        r"topic secret, which the pattern .* matches, is left out: .*error 29.*\(the right that is missing is Describe on it\)$", told
    )


def test_the_oldest_consumer_names_the_topic_that_is_denied(old: Any, cluster: MockCluster) -> None:
    cluster.create_topic("secret", 1)
    cluster.on("Metadata", Edit(deny), times=None)
    with pytest.raises(TopicAuthorizationFailedError, match="Metadata secret: error 29"):
        legacy.SimpleConsumer(old, b"g", b"secret")


# -- 34 ------------------------------------------------------------------------------------------------------------------
def test_records_go_and_come_while_leaders_move_between_releases(producer: Make, consumer: Make, make_cluster: MakeCluster) -> None:
    cluster = make_cluster(2, {"t": 2}, versions={1: "4.2", 2: "0.11.0"}, replication_factor=2)
    writer, reader = producer(cluster, retries=10), consumer(cluster, "t", auto_offset_reset="earliest")
    for number in everywhere(cluster, 2):
        for partition in (0, 1):
            assert writer.send("t", b"%d" % number, partition=partition).get(LIMIT_S).offset == number
    found: list[bytes] = []
    while len(found) < 8:
        found += [record.value for records in reader.poll(1000).values() for record in records]
    assert sorted(found) == sorted([b"%d" % number for number in range(4)] * 2)


def test_the_oldest_clients_write_and_read_beside_a_newer_broker(make_cluster: MakeCluster, handler: str) -> None:
    cluster = make_cluster(2, {"t": 2}, versions={1: "3.0", 2: "0.11.0"})
    for number in (0, 1):
        cluster.move_leader("t", number, number + 1)
    fill(cluster, {0: [b"a"], 1: [b"b"]})
    client = legacy.KafkaClient(cluster.bootstrap, handler=handler)
    writer = legacy.SimpleProducer(client)
    writer.send_messages(b"t", b"c")
    writer.send_messages(b"t", b"d")
    reader = legacy.SimpleConsumer(client, None, "t", iter_timeout=0.5)
    reader.seek(0, 0)
    assert sorted(values(reader.get_messages(count=4, block=True, timeout=LIMIT_S))) == [b"a", b"b", b"c", b"d"]
    reader.stop()
    writer.stop()
    client.close()
