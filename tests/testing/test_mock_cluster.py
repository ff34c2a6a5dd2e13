"""The mock cluster, asked by a client that only frames: it must answer as Kafka does."""

from __future__ import annotations

import select
import socket
import struct
import subprocess
import sys
import textwrap
import threading
from typing import Any

import pytest

import gkafka.testing
from gkafka.exceptions import ConfigurationError
from gkafka.records import compression
from gkafka.testing import Action, Close, Corrupt, Delay, Drop, Edit, Error, MockCluster, Reply, native
from gkafka.wire.admin import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest, DeleteTopicsRequest, DeleteTopicState
from gkafka.wire.apis import APIS, encode_request
from gkafka.wire.apiversions import ApiVersionsRequest
from gkafka.wire.consumergroups import ConsumerGroupDescribeRequest, ConsumerGroupHeartbeatRequest
from gkafka.wire.epochs import OffsetForLeaderEpochRequest, OffsetForLeaderPartition, OffsetForLeaderTopic
from gkafka.wire.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from gkafka.wire.groups import (
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    ListGroupsRequest,
    SyncGroupRequest,
)
from gkafka.wire.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from gkafka.wire.offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
)
from gkafka.wire.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from gkafka.wire.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from gkafka.wire.txn import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
    InitProducerIdRequest,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.kit.clock import epoch_s, now
from tests.testing.client import PlainClient, batch, fetch_request, message


def values(cluster: MockCluster, partition: int = 0) -> list[bytes | None]:
    return [record.value for record in cluster.log("t", partition)]


# -- versions
def test_every_version_of_every_api_is_answered() -> None:
    requests: dict[str, Any] = {
        "Produce": ProduceRequest(acks=1, timeout_ms=1, topic_data=[]),
        "Fetch": FetchRequest(max_wait_ms=0, min_bytes=0, topics=[]),
        "InitProducerId": InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000),
        "FindCoordinator": FindCoordinatorRequest(key="g"),
        "OffsetCommit": OffsetCommitRequest(group_id="g"),
        "OffsetFetch": OffsetFetchRequest(group_id="g", topics=[]),
    }
    asked = 0
    with MockCluster() as cluster, PlainClient(cluster) as client:
        for api in APIS.values():
            for version in api.stable.each():
                request = requests.get(api.name) or api.request()
                assert isinstance(client.ask(request, version), api.response)
                asked += 1
    assert asked > 90


def test_limits_are_said_and_kept() -> None:
    with MockCluster(limits={"Fetch": (0, 11), "InitProducerId": None}) as cluster, PlainClient(cluster) as client:
        ranges = {key.api_key: (key.min_version, key.max_version) for key in client.ask(ApiVersionsRequest()).api_keys}
        assert ranges[1] == (0, 11)
        assert 22 not in ranges
        client.send(FetchRequest(max_wait_ms=0, min_bytes=0, topics=[]), 12)
        assert client.closed(), "a broker closes on a version that it does not have"


def test_apiversions_of_an_unknown_version_is_answered_in_version_0_with_error_35() -> None:
    """KIP-511."""
    with MockCluster(limits={"ApiVersions": (0, 2)}) as cluster, PlainClient(cluster) as client:
        client.send(ApiVersionsRequest(), 3)
        answer = client.receive(ApiVersionsRequest(), 0)
        assert answer.error_code == 35
        assert [(key.api_key, key.max_version) for key in answer.api_keys] == [(18, 2)]
        assert client.ask(ApiVersionsRequest(), 0).error_code == 0


def test_an_old_release_closes_on_apiversions_and_on_what_came_later() -> None:
    with MockCluster(versions="0.8.2") as cluster:
        for request, version in ((ApiVersionsRequest(), 0), (InitProducerIdRequest(transactional_id=None), 0), (MetadataRequest(), 1)):
            with PlainClient(cluster) as client:
                client.send(request, version)
                assert client.closed()


def test_0_9_never_answers_what_it_does_not_know_and_nothing_after_it() -> None:
    """Real 0.9.0.1: its network thread meets an exception, and forgets the connection."""
    with MockCluster(versions="0.9.0") as cluster, PlainClient(cluster) as client:
        client.send(ApiVersionsRequest(), 0)
        client.send(MetadataRequest(), 0)
        nothing_comes(client)


@pytest.mark.parametrize(("release", "answered"), [("0.9.0", True), ("0.8.2", False)])
def test_0_9_can_be_told_from_0_8_2(release: str, answered: bool) -> None:
    with MockCluster(versions=release) as cluster, PlainClient(cluster) as client:
        client.sock.sendall(struct.pack(">ihhihi", 14, 15, 0, 7, 0, 0))
        assert (client.exactly(12) == struct.pack(">iii", 8, 7, 0)) if answered else client.closed()


def test_garbage_is_closed_on() -> None:
    with MockCluster() as cluster:
        for data in (struct.pack(">i", -5), struct.pack(">i", 2**31 - 1), struct.pack(">ihhi", 8, 3, 9, 1), b"GET / HTTP/1.1\r\n\r\n"):
            with PlainClient(cluster) as client:
                client.sock.sendall(data)
                assert client.closed()
        with PlainClient(cluster) as client:
            assert client.ask(MetadataRequest()).brokers


# -- metadata and topics
def test_metadata_names_brokers_leaders_and_epochs() -> None:
    with MockCluster(brokers=3, topics={"t": 6}) as cluster, PlainClient(cluster, 2) as client:
        answer = client.ask(MetadataRequest(topics=None))
        assert {(b.node_id, b.host, b.port) for b in answer.brokers} == {(n, *where) for n, where in cluster.brokers.items()}
        (topic,) = answer.topics
        assert [p.leader_id for p in topic.partitions] == [1, 2, 3, 1, 2, 3]
        assert all(len(p.replica_nodes) == 3 and p.isr_nodes == p.replica_nodes for p in topic.partitions)
        assert client.ask(MetadataRequest(topics=[])).topics == []
        by_id = client.ask(MetadataRequest(topics=[MetadataRequestTopic(topic_id=topic.topic_id, name=None)]))
        assert by_id.topics == [topic]


def test_an_unknown_topic_comes_into_being_only_where_both_sides_want_it() -> None:
    def ask(client: PlainClient, **options: Any) -> int:
        return int(client.ask(MetadataRequest(topics=[MetadataRequestTopic(name="new")], **options)).topics[0].error_code)

    with MockCluster(auto_create=False) as cluster, PlainClient(cluster) as client:
        assert ask(client) == 3
    with MockCluster(default_partitions=4) as cluster, PlainClient(cluster) as client:
        assert ask(client, allow_auto_topic_creation=False) == 3
        assert ask(client) == 5, "who asks first is told that there is no leader yet"
        answer = client.ask(MetadataRequest(topics=[MetadataRequestTopic(name="new")]))
        assert len(answer.topics[0].partitions) == 4
        assert client.ask(MetadataRequest(topics=[MetadataRequestTopic(name="no way")])).topics[0].error_code == 17


def test_topics_are_created_and_deleted_by_the_controller() -> None:
    with MockCluster(brokers=2) as cluster, PlainClient(cluster, 1) as controller, PlainClient(cluster, 2) as other:
        create = CreateTopicsRequest(topics=[CreatableTopic(name="a", num_partitions=2, replication_factor=2)])
        assert other.ask(create).topics[0].error_code == 41
        (result,) = controller.ask(create).topics
        assert (result.error_code, result.num_partitions) == (0, 2)
        assert controller.ask(create).topics[0].error_code == 36
        for name, count, factor, code in (("b", 0, 1, 37), ("b", 1, 3, 38), ("no/slash", 1, 1, 17)):
            asked = CreateTopicsRequest(topics=[CreatableTopic(name=name, num_partitions=count, replication_factor=factor)])
            assert controller.ask(asked).topics[0].error_code == code
        dry = CreateTopicsRequest(topics=[CreatableTopic(name="dry", num_partitions=1, replication_factor=1)], validate_only=True)
        assert controller.ask(dry).topics[0].error_code == 0
        assert [topic.name for topic in controller.ask(MetadataRequest(topics=None)).topics] == ["a"]
        delete = DeleteTopicsRequest(topics=[DeleteTopicState(name=None, topic_id=result.topic_id)])
        assert controller.ask(delete).responses[0].error_code == 0
        assert controller.ask(delete).responses[0].error_code == 100
        assert controller.ask(DeleteTopicsRequest(topic_names=["a"])).responses[0].error_code == 3


# -- produce
def test_batches_get_offsets_and_the_leaders_epoch() -> None:
    with MockCluster(topics={"t": 2}) as cluster, PlainClient(cluster) as client:
        assert client.produce(batch(b"a", b"b")).base_offset == 0
        assert client.produce(batch(b"c")).base_offset == 2
        cluster.move_leader("t", 0, 1)
        assert client.produce(batch(b"d")).base_offset == 3
        assert [(r.offset, r.value, r.timestamp) for r in cluster.log("t", 0)] == [
            (0, b"a", 1000),
            (1, b"b", 1001),
            (2, b"c", 1000),
            (3, b"d", 1000),
        ]
        assert cluster.offsets("t", 0) == (0, 4)
        data = client.fetch(0, partition_max=1 << 20).records
        assert struct.unpack_from(">i", data, 12) == (0,)
        assert struct.unpack_from(">i", client.fetch(3).records, 12) == (1,)


def flip(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


REFUSED = {
    "a flipped bit": (flip(batch(b"abc"), 70), 9, 2),
    "no batch": (b"xx", 9, 2),
    "nothing": (None, 9, 2),
    "two batches": (batch(b"a") + batch(b"b"), 9, 87),
    "a batch that is too large": (batch(bytes(3000)), 9, 10),
    "an old format in a new request": (message(b"a"), 3, 87),
    "a new format in an old request": (batch(b"a"), 2, 43),
    "zstd before version 7": (batch(b"a", attributes=4), 6, 76),
    "a transactional batch": (batch(b"a", pid=1, epoch=0, sequence=0, attributes=16), 9, 48),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_kafka_does_not_take_is_refused_by_its_code(name: str) -> None:
    data, version, code = REFUSED[name]
    with MockCluster(topics={"t": 1}, max_message_bytes=2000) as cluster, PlainClient(cluster) as client:
        response = client.produce(data, version=version)
        assert (response.error_code, response.base_offset) == (code, -1)
        assert cluster.offsets("t", 0) == (0, 0)


def test_acks_0_is_not_answered_and_an_error_closes() -> None:
    with MockCluster(topics={"t": 1}) as cluster, PlainClient(cluster) as client:
        client.produce(batch(b"a"), acks=0)
        assert client.ask(MetadataRequest()).brokers
        assert values(cluster) == [b"a"]
        client.produce(batch(b"a"), acks=0, partition=7)
        assert client.closed()


def test_acks_that_do_not_exist_are_refused() -> None:
    with MockCluster(topics={"t": 1}) as cluster, PlainClient(cluster) as client:
        assert client.produce(batch(b"a"), acks=2).error_code == 21
        assert client.produce(batch(b"a"), topic="nope").error_code == 3


def test_a_topic_that_stamps_its_records() -> None:
    with MockCluster(auto_create=False) as cluster, PlainClient(cluster) as client:
        config = CreatableTopicConfig(name="message.timestamp.type", value="LogAppendTime")
        client.ask(CreateTopicsRequest(topics=[CreatableTopic(name="t", num_partitions=1, replication_factor=1, configs=[config])]))
        response = client.produce(batch(b"a", b"b"))
        assert abs(response.log_append_time_ms / 1000 - epoch_s()) < 60
        assert [record.timestamp for record in cluster.log("t", 0)] == [response.log_append_time_ms] * 2


# -- idempotence (KIP-98)
def test_a_batch_that_comes_again_is_told_its_offset_and_not_stored_twice() -> None:
    with MockCluster(topics={"t": 1}) as cluster, PlainClient(cluster) as client:
        sent = [batch(b"a%d" % n, b"b%d" % n, pid=7, epoch=0, sequence=2 * n) for n in range(5)]
        assert [client.produce(data).base_offset for data in sent] == [0, 2, 4, 6, 8]
        again = [client.produce(data) for data in sent]
        assert [(response.error_code, response.base_offset) for response in again] == [(0, 0), (0, 2), (0, 4), (0, 6), (0, 8)]
        assert cluster.offsets("t", 0) == (0, 10)


def test_older_than_the_last_five_batches_is_out_of_order() -> None:
    with MockCluster(topics={"t": 1}) as cluster, PlainClient(cluster) as client:
        for n in range(6):
            assert client.produce(batch(b"x", pid=7, epoch=0, sequence=n)).error_code == 0
        assert client.produce(batch(b"x", pid=7, epoch=0, sequence=0)).error_code == 45
        assert client.produce(batch(b"x", pid=7, epoch=0, sequence=1)).base_offset == 1


def test_sequences_and_epochs() -> None:
    with MockCluster(topics={"t": 2}) as cluster, PlainClient(cluster) as client:
        assert client.produce(batch(b"x", pid=7, epoch=1, sequence=5)).error_code == 0, "an unknown producer begins anywhere"
        assert client.produce(batch(b"x", pid=7, epoch=1, sequence=7)).error_code == 45, "a gap"
        assert client.produce(batch(b"x", pid=7, epoch=0, sequence=6)).error_code == 47, "an old epoch"
        assert client.produce(batch(b"x", pid=7, epoch=2, sequence=6)).error_code == 45, "a new epoch begins at 0"
        assert client.produce(batch(b"x", pid=7, epoch=2, sequence=0)).error_code == 0
        assert client.produce(batch(b"x", pid=7, epoch=2, sequence=9), partition=1).error_code == 0, "each partition has its own"
        assert cluster.offsets("t", 0) == (0, 2)


def test_sequences_wrap_around() -> None:
    with MockCluster(topics={"t": 1}) as cluster, PlainClient(cluster) as client:
        last = 2**31 - 1
        assert client.produce(batch(b"x", b"y", pid=7, epoch=0, sequence=last)).error_code == 0
        assert client.produce(batch(b"z", pid=7, epoch=0, sequence=1)).error_code == 0
        assert client.produce(batch(b"x", b"y", pid=7, epoch=0, sequence=last)).base_offset == 0


def test_producer_ids_are_given_once() -> None:
    with MockCluster() as cluster, PlainClient(cluster) as client:
        ids = [client.ask(InitProducerIdRequest(transactional_id=None)) for _ in range(3)]
        assert len({answer.producer_id for answer in ids}) == 3
        assert {answer.producer_epoch for answer in ids} == {0}
        named = [client.ask(InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=1)) for _ in range(2)]
        assert named[0].producer_id == named[1].producer_id
        assert [answer.producer_epoch for answer in named] == [0, 1]


# -- old message sets
@pytest.mark.parametrize(("release", "magic", "version"), [("0.8.2", 0, 0), ("0.9.0", 0, 1), ("0.10.2", 1, 2)])
def test_message_sets_get_offsets_and_come_back(release: str, magic: int, version: int) -> None:
    with MockCluster(topics={"t": 1}, versions=release) as cluster, PlainClient(cluster) as client:
        assert client.produce(message(b"a", magic=magic) + message(b"b", magic=magic), version=version).base_offset == 0
        assert client.produce(message(b"c", magic=magic), version=version).base_offset == 2
        assert [(record.offset, record.value) for record in cluster.log("t", 0)] == [(0, b"a"), (1, b"b"), (2, b"c")]
        data = bytes(client.fetch(1, version=version).records)
        assert [struct.unpack_from(">q", data, at)[0] for at in (0, len(data) // 2)] == [1, 2]


@pytest.mark.parametrize(("release", "magic", "version"), [("0.8.2", 0, 0), ("0.10.2", 1, 2)])
def test_the_offsets_inside_a_compressed_set_are_put_right(release: str, magic: int, version: int) -> None:
    """KIP-31: absolute in format 0, relative in format 1; the wrapper has the last one's."""
    with MockCluster(topics={"t": 1}, versions=release) as cluster, PlainClient(cluster) as client:
        client.produce(message(b"first", magic=magic), version=version)
        inner = b"".join(message(value, magic=magic, offset=index) for index, value in enumerate([b"a", b"b", b"c"]))
        wrapped = message(compression.compress(1, inner), magic=magic, attributes=1)
        assert client.produce(wrapped, version=version).base_offset == 1
        assert [(record.offset, record.value) for record in cluster.log("t", 0)] == [(0, b"first"), (1, b"a"), (2, b"b"), (3, b"c")]
        stored = bytes(client.fetch(1, version=version).records)
        assert struct.unpack_from(">q", stored)[0] == 3
        head = 18 + 8 * magic + 8
        unpacked = bytes(compression.decompress(1, stored[head:], max_bytes=1 << 20))
        assert struct.unpack_from(">q", unpacked)[0] == (0 if magic else 1)


def test_a_message_set_with_a_flipped_bit_is_refused_whole() -> None:
    with MockCluster(topics={"t": 1}, versions="0.9.0") as cluster, PlainClient(cluster) as client:
        assert client.produce(message(b"good") + flip(message(b"bad"), 28), version=1).error_code == 2
        assert client.produce(message(b"cut")[:-1], version=1).error_code == 2
        assert cluster.offsets("t", 0) == (0, 0)


def test_what_an_old_fetch_cannot_carry_is_told_so() -> None:
    with MockCluster(topics={"t": 1}) as cluster, PlainClient(cluster) as client:
        client.produce(batch(b"a"))
        assert client.fetch(0, version=3).error_code == 35
        assert client.fetch(0, version=4).error_code == 0


# -- fetch
def test_fetch_ends_of_the_log() -> None:
    with MockCluster(topics={"t": 1}) as cluster, PlainClient(cluster) as client:
        for n in range(3):
            client.produce(batch(b"%d" % n))
        answer = client.fetch(3)
        assert (answer.error_code, bytes(answer.records), answer.high_watermark, answer.log_start_offset) == (0, b"", 3, 0)
        assert client.fetch(4).error_code == 1
        cluster.delete_records("t", 0, 2)
        assert client.fetch(1).error_code == 1
        assert client.fetch(2).log_start_offset == 2
        assert values(cluster) == [b"2"]


def test_fetch_begins_with_the_batch_that_holds_the_offset() -> None:
    with MockCluster(topics={"t": 1}) as cluster, PlainClient(cluster) as client:
        client.produce(batch(b"a", b"b", b"c"))
        client.produce(batch(b"d"))
        assert bytes(client.fetch(2).records) == cluster.raw_log("t", 0)
        assert bytes(client.fetch(3).records) == cluster.raw_log("t", 0)[len(batch(b"a", b"b", b"c")) :]


def test_sizes_kip_74() -> None:
    """The first batch comes whole however large; what follows is cut at the limit, in the middle of a batch too."""
    one = batch(bytes(1000))
    with MockCluster(topics={"t": 2}) as cluster, PlainClient(cluster) as client:
        for partition in (0, 1):
            for _ in range(3):
                client.produce(one, partition=partition)
        assert len(client.fetch(0, partition_max=10).records) == len(one)
        assert len(client.fetch(0, partition_max=len(one) + 10).records) == len(one) + 10
        both = FetchRequest(
            max_wait_ms=0,
            min_bytes=1,
            max_bytes=100,
            topics=[
                FetchTopic(topic="t", partitions=[FetchPartition(partition=n, fetch_offset=0, partition_max_bytes=1 << 20) for n in (0, 1)])
            ],
        )
        sizes = [len(partition.records) for partition in client.ask(both, 12).responses[0].partitions]
        assert sizes == [len(one), 0]


def test_a_fetch_of_an_old_version_is_cut_at_the_limit() -> None:
    with MockCluster(topics={"t": 1}, versions="0.9.0") as cluster, PlainClient(cluster) as client:
        client.produce(message(bytes(1000)), version=1)
        assert len(client.fetch(0, version=1, partition_max=10).records) == 10


def test_a_long_poll_ends_when_records_come() -> None:
    with MockCluster(topics={"t": 1}) as cluster, PlainClient(cluster) as client, PlainClient(cluster) as producer:
        client.send(fetch_request(0, max_wait_ms=200_000), 12)
        cluster.wait_for(lambda: cluster.count("Fetch") == 1)
        producer.produce(batch(b"a"))
        (partition,) = client.receive(FetchRequest(), 12).responses[0].partitions
        assert len(partition.records) == len(batch(b"a"))


def test_a_long_poll_waits_for_min_bytes_and_no_longer_than_max_wait() -> None:
    with MockCluster(topics={"t": 1}) as cluster, PlainClient(cluster) as client:
        client.produce(batch(b"a"))
        began = now()
        assert len(client.fetch(0, max_wait_ms=300, min_bytes=10_000).records) == len(batch(b"a"))
        assert now() - began >= 0.29


@pytest.mark.parametrize("change", ["leader", "delete"])
def test_a_long_poll_ends_when_the_leader_moves_or_the_topic_goes(change: str) -> None:
    with MockCluster(brokers=2, topics={"t": 1}) as cluster, PlainClient(cluster) as client:
        client.send(fetch_request(0, max_wait_ms=200_000), 12)
        cluster.wait_for(lambda: cluster.count("Fetch") == 1)
        if change == "leader":
            cluster.move_leader("t", 0, 2)
        else:
            cluster.delete_topic("t")
        assert client.receive(FetchRequest(), 12).responses[0].partitions[0].error_code == (6 if change == "leader" else 3)


def nothing_comes(client: PlainClient) -> None:
    client.sock.settimeout(0.2)
    with pytest.raises(TimeoutError):
        client.exactly(1)
    client.sock.settimeout(60)


def test_a_connection_is_served_one_request_at_a_time() -> None:
    """What the design's separate channels are for: behind a long poll nothing is answered."""
    with MockCluster(topics={"t": 1}) as cluster, PlainClient(cluster) as client, PlainClient(cluster) as other:
        client.send(fetch_request(0, max_wait_ms=200_000), 12)
        client.send(MetadataRequest(topics=[]))
        other.ask(MetadataRequest(topics=[]))
        nothing_comes(client)
        other.produce(batch(b"a"))
        client.receive(FetchRequest(), 12)
        client.receive(MetadataRequest())
        assert [request.api for request in cluster.requests() if request.api != "Produce"].count("Metadata") == 2


def test_fetch_sessions_kip_227() -> None:
    with MockCluster(topics={"t": 2}) as cluster, PlainClient(cluster) as client:
        client.produce(batch(b"a"))
        first = client.ask(fetch_request(0, session_epoch=0), 12)
        session = first.session_id
        assert session > 0
        assert [p.partition_index for t in first.responses for p in t.partitions] == [0]
        more = client.ask(fetch_request(0, partition=1, session_id=session, session_epoch=1), 12)
        assert [(p.partition_index, bool(p.records)) for t in more.responses for p in t.partitions] == [(0, True), (1, False)]
        nothing = FetchRequest(max_wait_ms=0, min_bytes=1, topics=[], session_id=session, session_epoch=2)
        assert [p.partition_index for t in client.ask(nothing, 12).responses for p in t.partitions] == [0], (
            "as long as it is asked for there"
        )
        gone = ForgottenTopic(topic="t", partitions=[0])
        request = FetchRequest(max_wait_ms=0, min_bytes=1, topics=[], forgotten_topics_data=[gone], session_id=session, session_epoch=3)
        assert client.ask(request, 12).responses == []
        assert client.ask(fetch_request(0, session_id=session, session_epoch=3), 12).error_code == 71
        cluster.on("Fetch", Error(6))
        refused = client.ask(FetchRequest(max_wait_ms=0, min_bytes=1, topics=[], session_id=session, session_epoch=4), 12)
        assert [(p.partition_index, p.error_code) for t in refused.responses for p in t.partitions] == [(1, 6)]
        assert client.ask(fetch_request(0, session_epoch=-1), 12).session_id == 0
        cluster.forget_sessions()
        assert client.ask(fetch_request(0, session_id=session, session_epoch=5), 12).error_code == 70


def test_fetch_sessions_can_be_declined() -> None:
    with MockCluster(topics={"t": 1}, fetch_sessions=False) as cluster, PlainClient(cluster) as client:
        assert client.ask(fetch_request(0, session_epoch=0), 12).session_id == 0
        assert client.ask(fetch_request(0, session_id=5, session_epoch=1), 12).error_code == 70


def test_a_follower_in_the_clients_rack_is_named_and_serves_kip_392() -> None:
    with MockCluster(brokers=2, topics={"t": 1}, racks=["a", "b"]) as cluster, PlainClient(cluster) as client:
        client.produce(batch(b"x"))
        assert [b.rack for b in client.ask(MetadataRequest(topics=[]), 9).brokers] == ["a", "b"]
        there, here = client.fetch(0, rack_id="b"), client.fetch(0, rack_id="a")
        assert (there.preferred_read_replica, bytes(there.records)) == (2, b"")
        assert (here.preferred_read_replica, len(here.records) > 0) == (-1, True)
        with PlainClient(cluster, 2) as follower:
            assert len(follower.fetch(0, rack_id="b").records) > 0
            assert follower.fetch(0, version=10).error_code == 6
            assert follower.fetch(0, epoch=7).error_code == 75
            assert follower.offset(-1).error_code == 6


def test_ends_of_epochs_kip_320() -> None:
    with MockCluster(topics={"t": 1}) as cluster, PlainClient(cluster) as client:
        for n in range(4):
            client.produce(batch(b"%d" % n))
        cluster.truncate("t", 0, 2)
        client.produce(batch(b"new"))

        def end(epoch: int, **options: Any) -> tuple[int, int, int]:
            part = OffsetForLeaderPartition(partition=0, leader_epoch=epoch, **options)
            request = OffsetForLeaderEpochRequest(replica_id=-1, topics=[OffsetForLeaderTopic(topic="t", partitions=[part])])
            found = client.ask(request).topics[0].partitions[0]
            return found.error_code, found.leader_epoch, found.end_offset

        assert [end(0), end(1), end(2)] == [(0, 0, 2), (0, 1, 3), (0, -1, -1)]
        assert end(0, current_leader_epoch=0)[0] == 74
        cluster.truncate("t", 0, 0)
        assert [end(0), end(1), end(2)] == [(0, 0, 0), (0, 0, 0), (0, 2, 0)]


def test_read_committed_sees_the_stable_offset_and_the_aborted() -> None:
    with MockCluster(topics={"t": 1}) as cluster, PlainClient(cluster) as client:
        client.produce(batch(b"a"))
        client.produce(batch(b"b"))
        cluster.set_transactions("t", 0, aborted=[(9, 0)], stable=1)
        answer = client.fetch(0, isolation_level=1)
        assert (len(answer.records), answer.last_stable_offset, answer.high_watermark) == (len(batch(b"a")), 1, 2)
        assert [(entry.producer_id, entry.first_offset) for entry in answer.aborted_transactions] == [(9, 0)]
        assert len(client.fetch(0).records) == 2 * len(batch(b"a"))
        assert client.offset(-1, isolation_level=1).offset == 1
        assert client.offset(-1).offset == 2


def test_batches_can_be_laid_in_as_they_are() -> None:
    """Gaps of compaction, control batches, damage."""
    with MockCluster(topics={"t": 1}) as cluster, PlainClient(cluster) as client:
        data = batch(b"a", base=5) + batch(b"\0\0\0\0", base=9, attributes=32 | 16, pid=1, epoch=0) + batch(b"b", base=20)
        cluster.append("t", 0, data)
        assert bytes(client.fetch(5).records) == data
        assert [(record.offset, record.value) for record in cluster.log("t", 0)] == [(5, b"a"), (20, b"b")]
        assert cluster.offsets("t", 0)[1] == 21


# -- offsets by time, leaders, epochs
def test_offsets_by_time() -> None:
    with MockCluster(topics={"t": 1}) as cluster, PlainClient(cluster) as client:
        for n in range(3):
            client.produce(batch(b"x", b"y", timestamp=1000 * (n + 1)))
        found = [(client.offset(at).timestamp, client.offset(at).offset) for at in (-2, -1, 0, 1001, 1002, 3001, 3002)]
        assert found == [(-1, 0), (-1, 6), (1000, 0), (1001, 1), (2000, 2), (3001, 5), (-1, -1)]
        assert (client.offset(-3).offset, client.offset(-3).timestamp) == (5, 3001)
        assert client.offset(-1, version=0).old_style_offsets == [6]
        assert client.offset(-2, version=0).old_style_offsets == [0]


@pytest.mark.parametrize(
    ("release", "version", "found"),
    [
        ("2.8", 6, [(0, 5, 1000), (0, 5, 1000), (0, 5, 1000)]),
        ("2.8", 0, [[], [], []]),
        ("3.0", 7, [(0, 7, 3000), (0, 5, 1000), (0, 5, 1000)]),
        ("3.9", 6, [(35, -1, -1)] * 3),
        ("3.9", 8, [(0, 7, 3000), (0, 5, -1), (35, -1, -1)]),
        ("3.9", 9, [(0, 7, 3000), (0, 5, -1), (0, -1, -1)]),
    ],
)
def test_a_special_time_that_a_release_does_not_know_is_taken_as_it_takes_it(release: str, version: int, found: list[Any]) -> None:
    """As tests/live/test_offsets.py has it from real ones: before 3.9 it is a time before all records."""
    with MockCluster(topics={"t": 1, "u": 1}, versions=release) as cluster, PlainClient(cluster) as client:
        for stamp in (1000, 1000, 1000, 1000, 1000, 1000, 2000, 3000, 1500):
            client.produce(batch(b"x", timestamp=stamp))
        cluster.delete_records("t", 0, 5)
        answers = [client.offset(at, version=version) for at in (-3, -4, -5)]
        assert [a.old_style_offsets if version == 0 else (a.error_code, a.offset, a.timestamp) for a in answers] == found
        if version == 6 and release == "2.8":
            assert [client.offset(at, topic="u", version=version).offset for at in (-3, -4, -5)] == [-1, -1, -1]


def test_only_the_leader_answers_and_it_says_who_leads() -> None:
    with MockCluster(brokers=2, topics={"t": 1}) as cluster, PlainClient(cluster, 2) as follower:
        assert follower.produce(batch(b"a")).error_code == 6
        assert follower.fetch(0).error_code == 6
        assert follower.offset(-1).error_code == 6
        response = follower.produce(batch(b"a"), version=10)
        assert (response.current_leader.leader_id, response.current_leader.leader_epoch) == (1, 0)


def test_leader_epochs_kip_320() -> None:
    with MockCluster(brokers=2, topics={"t": 1}) as cluster, PlainClient(cluster, 2) as client:
        cluster.move_leader("t", 0, 2)
        assert client.fetch(0, epoch=1).error_code == 0
        assert client.fetch(0, epoch=0).error_code == 74
        assert client.fetch(0, epoch=2).error_code == 75


def test_a_stopped_broker_hands_over_and_comes_back_on_its_port() -> None:
    with MockCluster(brokers=2, topics={"t": 2}) as cluster:
        ports = cluster.brokers
        with PlainClient(cluster, 1) as client:
            cluster.stop_broker(1)
            assert client.closed()
        with pytest.raises(ConnectionRefusedError):
            PlainClient(cluster, 1)
        assert [cluster.leader("t", n) for n in (0, 1)] == [2, 2]
        with PlainClient(cluster, 2) as client:
            answer = client.ask(MetadataRequest(topics=None))
            assert [broker.node_id for broker in answer.brokers] == [2]
            assert answer.controller_id == 2
            assert [(p.leader_epoch, p.isr_nodes) for p in answer.topics[0].partitions] == [(1, [2]), (0, [2])]
        cluster.start_broker(1)
        assert cluster.brokers == ports
        with PlainClient(cluster, 1) as client:
            assert len(client.ask(MetadataRequest(topics=None)).brokers) == 2
            assert cluster.leader("t", 0) == 2


def test_the_port_of_a_stopped_broker_is_given_to_nobody_who_would_answer_in_its_place() -> None:
    with MockCluster(brokers=2) as cluster:
        cluster.stop_broker(1)
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(cluster.brokers[1])


def test_without_another_replica_there_is_no_leader() -> None:
    with MockCluster(brokers=2, topics={"t": 2}, replication_factor=1) as cluster, PlainClient(cluster, 2) as client:
        client.produce(batch(b"kept"), partition=1)
        cluster.stop_broker(1)
        partitions = client.ask(MetadataRequest(topics=None)).topics[0].partitions
        assert [(p.leader_id, p.error_code) for p in partitions] == [(-1, 5), (2, 0)]
        cluster.start_broker(1)
        assert cluster.leader("t", 0) == 1
        assert values(cluster, 1) == [b"kept"]


def test_truncation_begins_a_new_epoch() -> None:
    with MockCluster(topics={"t": 1}) as cluster, PlainClient(cluster) as client:
        for n in range(4):
            client.produce(batch(b"%d" % n))
        cluster.truncate("t", 0, 2)
        assert values(cluster) == [b"0", b"1"]
        assert client.fetch(0, epoch=0).error_code == 74
        assert client.produce(batch(b"new")).base_offset == 2


def test_partitions_are_added() -> None:
    with MockCluster(topics={"t": 1}) as cluster, PlainClient(cluster) as client:
        cluster.add_partitions("t", 3)
        assert len(client.ask(MetadataRequest(topics=None)).topics[0].partitions) == 3


# -- groups' offsets
def test_offsets_are_committed_and_fetched_at_every_version() -> None:
    with MockCluster(topics={"t": 2}) as cluster, PlainClient(cluster) as client:
        for version in range(1, 10):
            position = OffsetCommitRequestPartition(partition_index=1, committed_offset=10 + version, committed_metadata="m")
            commit = OffsetCommitRequest(group_id="g", topics=[OffsetCommitRequestTopic(name="t", partitions=[position])])
            assert client.ask(commit, version).topics[0].partitions[0].error_code == 0
            asked = OffsetFetchRequest(group_id="g", topics=[OffsetFetchRequestTopic(name="t", partition_indexes=[0, 1])])
            (group,) = client.ask(asked, version).answers
            assert [(p.committed_offset, p.metadata) for p in group.topics[0].partitions] == [(-1, ""), (10 + version, "m")]
        everything = client.ask(OffsetFetchRequest(group_id="g", topics=None), 5).answers[0]
        assert [(topic.name, [p.partition_index for p in topic.partitions]) for topic in everything.topics] == [("t", [1])]
        assert cluster.committed("g")["t", 1].offset == 19


def test_only_the_coordinator_keeps_offsets() -> None:
    with MockCluster(brokers=2, topics={"t": 1}) as cluster:
        cluster.move_coordinator("g", 2)
        position = OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
        commit = OffsetCommitRequest(group_id="g", topics=[OffsetCommitRequestTopic(name="t", partitions=[position])])
        with PlainClient(cluster, 1) as wrong, PlainClient(cluster, 2) as right:
            assert [one.node_id for one in wrong.ask(FindCoordinatorRequest(key="g")).answers] == [2]
            assert [one.node_id for one in wrong.ask(FindCoordinatorRequest(key="g"), 0).answers] == [2]
            assert wrong.ask(commit, 8).topics[0].partitions[0].error_code == 16
            assert wrong.ask(OffsetFetchRequest(group_id="g", topics=[]), 7).error_code == 16
            assert right.ask(commit, 8).topics[0].partitions[0].error_code == 0
            commit.generation_id_or_member_epoch, commit.member_id = 3, "m"
            assert right.ask(commit, 8).topics[0].partitions[0].error_code == 25


# -- the script
def test_an_error_is_answered_for_every_partition_and_nothing_is_done() -> None:
    with MockCluster(topics={"t": 1}) as cluster, PlainClient(cluster) as client:
        cluster.on("Produce", Error(7), times=2)
        assert [client.produce(batch(b"a")).error_code for _ in range(3)] == [7, 7, 0]
        assert values(cluster) == [b"a"]


def test_every_api_can_be_refused() -> None:
    commit = OffsetCommitRequestTopic(name="t", partitions=[OffsetCommitRequestPartition(partition_index=0, committed_offset=1)])
    added = [AddPartitionsToTxnTopic(name="t", partitions=[0])]
    positions = [TxnOffsetCommitRequestTopic(name="t", partitions=[TxnOffsetCommitRequestPartition(partition_index=0)])]
    requests: dict[str, Any] = {
        "AddOffsetsToTxn": AddOffsetsToTxnRequest(transactional_id="x"),
        "AddPartitionsToTxn": AddPartitionsToTxnRequest(v3_and_below_topics=added),
        "ConsumerGroupDescribe": ConsumerGroupDescribeRequest(group_ids=["g"]),
        "ConsumerGroupHeartbeat": ConsumerGroupHeartbeatRequest(group_id="g"),
        "DescribeGroups": DescribeGroupsRequest(groups=["g"]),
        "EndTxn": EndTxnRequest(transactional_id="x"),
        "Heartbeat": HeartbeatRequest(group_id="g"),
        "JoinGroup": JoinGroupRequest(group_id="g"),
        "LeaveGroup": LeaveGroupRequest(group_id="g"),
        "ListGroups": ListGroupsRequest(),
        "SaslAuthenticate": SaslAuthenticateRequest(),
        "SaslHandshake": SaslHandshakeRequest(),
        "SyncGroup": SyncGroupRequest(group_id="g"),
        "TxnOffsetCommit": TxnOffsetCommitRequest(transactional_id="x", topics=positions),
        "ApiVersions": ApiVersionsRequest(),
        "CreateTopics": CreateTopicsRequest(topics=[CreatableTopic(name="t")]),
        "DeleteTopics": DeleteTopicsRequest(topic_names=["t"]),
        "Fetch": fetch_request(0),
        "OffsetForLeaderEpoch": OffsetForLeaderEpochRequest(
            topics=[OffsetForLeaderTopic(topic="t", partitions=[OffsetForLeaderPartition(partition=0)])]
        ),
        "FindCoordinator": FindCoordinatorRequest(key="g"),
        "InitProducerId": InitProducerIdRequest(transactional_id=None),
        "ListOffsets": ListOffsetsRequest(topics=[ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(partition_index=0)])]),
        "Metadata": MetadataRequest(topics=[MetadataRequestTopic(name="t")]),
        "OffsetCommit": OffsetCommitRequest(group_id="g", topics=[commit]),
        "OffsetFetch": OffsetFetchRequest(group_id="g", topics=[OffsetFetchRequestTopic(name="t", partition_indexes=[0])]),
        "Produce": ProduceRequest(acks=1, topic_data=[TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0)])]),
    }
    assert set(requests) == {api.name for api in APIS.values()}
    with MockCluster() as cluster, PlainClient(cluster) as client:
        for name, request in requests.items():
            for version in (request.API.stable.low, min(request.newest_version(), 9)):
                cluster.on(name, Error(31))
                answer = client.ask(request, version)
                assert "error_code=31" in repr(answer), f"{name} v{version}: {answer}"
        assert client.ask(MetadataRequest(topics=None)).topics == [], "nothing was done"


def test_a_late_answer_after_acting_and_before() -> None:
    with MockCluster(topics={"t": 1}) as cluster, PlainClient(cluster) as client, PlainClient(cluster) as patient:
        data = [TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=batch(b"a"))])]
        cluster.on("Produce", Delay(1000, before=False))
        client.send(ProduceRequest(acks=1, timeout_ms=1, topic_data=data), 9)
        cluster.wait_for(lambda: values(cluster) == [b"a"])
        nothing_comes(client)
        for before in (False, True):
            cluster.on("Produce", Delay(0.3, before=before))
            began = now()
            assert patient.ask(ProduceRequest(acks=1, timeout_ms=1, topic_data=[]), 9).responses == []
            assert now() - began >= 0.29


def test_a_dropped_answer_silences_the_connection() -> None:
    with MockCluster(topics={"t": 1}) as cluster, PlainClient(cluster) as client:
        cluster.on("Produce", Drop())
        client.produce(batch(b"a"), acks=0)  # the test does not wait for what never comes
        cluster.wait_for(lambda: values(cluster) == [b"a"])
        client.send(MetadataRequest())
        nothing_comes(client)
        with PlainClient(cluster) as other:
            cluster.on("Produce", Drop(before=True))
            other.produce(batch(b"b"), acks=0)
            cluster.wait_for(lambda: cluster.count("Produce") == 2)
            assert values(cluster) == [b"a"]


@pytest.mark.parametrize(("before", "reset"), [(True, False), (False, False), (False, True)])
def test_closing_before_and_after_acting(before: bool, reset: bool) -> None:
    with MockCluster(topics={"t": 1}) as cluster, PlainClient(cluster) as client:
        cluster.on("Produce", Close(before=before, reset=reset))
        client.produce(batch(b"a"), acks=0)
        assert client.closed()
        assert values(cluster) == ([] if before else [b"a"])


def test_frames_can_be_damaged_replaced_and_edited() -> None:
    with MockCluster(topics={"t": 1}) as cluster, PlainClient(cluster) as client:
        cluster.on("Metadata", Corrupt(lambda frame: frame[:4] + b"\xff" * (len(frame) - 4)))
        client.send(MetadataRequest())
        (size,) = struct.unpack(">i", client.exactly(4))
        assert client.exactly(size) == b"\xff" * size
        cluster.on("Metadata", Reply(lambda request: MetadataResponse(cluster_id=request.client_id)))
        assert client.ask(MetadataRequest()).cluster_id == "plain"

        def throttle(request: Any, answer: Any) -> Any:
            answer.throttle_time_ms = 77
            return answer

        cluster.on("Metadata", Edit(throttle))
        answer = client.ask(MetadataRequest())
        assert (answer.throttle_time_ms, len(answer.brokers)) == (77, 1)


def test_a_line_of_the_script_can_be_for_one_broker_and_for_some_requests() -> None:
    with MockCluster(brokers=2, topics={"t": 2}) as cluster, PlainClient(cluster, 1) as one, PlainClient(cluster, 2) as two:
        cluster.on("Produce", Error(7), times=None, broker=2)
        assert one.produce(batch(b"a")).error_code == 0
        assert [two.produce(batch(b"a"), partition=1).error_code for _ in range(2)] == [7, 7]
        cluster.clear_script()
        assert two.produce(batch(b"a"), partition=1).error_code == 0
        cluster.on("Produce", Error(7), when=lambda request: request.version == 8)
        assert one.produce(batch(b"a"), version=9).error_code == 0
        assert one.produce(batch(b"a"), version=8).error_code == 7


def test_an_action_of_ones_own() -> None:
    class Twice(Action):
        def run(self, call: Any) -> None:
            call.act(lambda answer: call.send_bytes(call.encode(answer) * 2))

    with MockCluster() as cluster, PlainClient(cluster) as client:
        cluster.on("Metadata", Twice())
        client.ask(MetadataRequest())
        client.receive(MetadataRequest())
        assert client.answered == 1


def test_a_script_that_raises_closes_the_connection_and_fails_the_test() -> None:
    def broken(request: Any) -> Any:
        raise ZeroDivisionError("mine")

    def use() -> None:
        with MockCluster() as cluster, PlainClient(cluster) as client:
            cluster.on("Metadata", Reply(broken))
            client.send(MetadataRequest())
            assert client.closed()
            assert isinstance(cluster.errors[0], ZeroDivisionError)

    with pytest.raises(AssertionError, match="mine"):
        use()


def test_a_script_that_raises_late_closes_too() -> None:
    """After a delay, and when a long poll ends."""

    def broken(request: Any, answer: Any) -> Any:
        raise ZeroDivisionError("mine")

    cluster = MockCluster(topics={"t": 1})
    with PlainClient(cluster) as client, PlainClient(cluster) as other:
        cluster.on("Fetch", Edit(broken))
        client.send(fetch_request(0, max_wait_ms=200_000), 12)
        cluster.wait_for(lambda: cluster.count("Fetch") == 1)
        assert other.produce(batch(b"a")).error_code == 0
        assert client.closed()
    assert len(cluster.errors) == 1
    cluster.close()


@pytest.mark.parametrize("where", [gkafka.testing, MockCluster], ids=["module", "class"])
def test_the_examples_in_the_docstrings_run(where: Any) -> None:
    lines = (where.__doc__ or "").splitlines()
    begin = next(index for index, line in enumerate(lines) if line.strip().startswith("from gkafka"))
    indent = len(lines[begin]) - len(lines[begin].lstrip())
    example = []
    for line in lines[begin:]:
        if line.strip() and len(line) - len(line.lstrip()) < indent:
            break
        example.append(line[indent:])
    # In a process of its own: where other tests have run a gevent hub, the example would be warned about its threads.
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", "\n".join(example)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr


def test_requests_are_recorded_with_their_arrival() -> None:
    with MockCluster(brokers=2, history=3) as cluster, PlainClient(cluster, 2) as client:
        before = now()
        for _ in range(5):
            client.ask(MetadataRequest(), 5)
        seen = cluster.requests("Metadata")
        assert [(r.api, r.version, r.broker, r.client_id, r.correlation_id) for r in seen] == [
            ("Metadata", 5, 2, "plain", n) for n in (3, 4, 5)
        ]
        assert before <= seen[0].time <= seen[1].time <= now()
        assert isinstance(seen[0].message, MetadataRequest)
        assert cluster.count("Metadata") == 5
        with pytest.raises(ConfigurationError, match="there is no API 'Nope'"):
            cluster.requests("Nope")


def test_payloads_are_remembered_up_to_a_bound() -> None:
    with MockCluster(topics={"t": 1}, max_message_bytes=40 << 20) as cluster, PlainClient(cluster) as client:
        for _ in range(4):
            client.produce(batch(bytes(20 << 20)))
        assert len(cluster.requests("Produce")) == 3


# -- life
def test_closing_frees_ports_and_ends_the_thread() -> None:
    before = {*threading.enumerate()}
    cluster = MockCluster(brokers=2)
    client = PlainClient(cluster)
    with client:
        began = now()
        cluster.close()
        cluster.close()
        assert now() - began < 60
        assert client.closed()
        with pytest.raises(OSError, match=r"."):
            PlainClient(cluster)
    assert {*threading.enumerate()} <= before, "others may end meanwhile"


def test_it_runs_where_there_is_only_select(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows has no poll()."""
    monkeypatch.setattr(native, "_make_poller", lambda: native._SelectPoller(select.select))
    with MockCluster(topics={"t": 1}) as cluster, PlainClient(cluster) as client:
        client.produce(batch(bytes(500_000)))
        for _ in range(5):
            client.send(fetch_request(0, partition_max=1 << 20), 12)
        assert all(len(client.receive(FetchRequest(), 12).responses[0].partitions[0].records) > 500_000 for _ in range(5))


def test_a_parked_long_poll_does_not_hinder_closing() -> None:
    cluster = MockCluster(topics={"t": 1})
    with PlainClient(cluster) as client:
        client.send(fetch_request(0, max_wait_ms=200_000), 12)
        cluster.wait_for(lambda: cluster.count("Fetch") == 1)
        began = now()
        cluster.close()
        assert now() - began < 60


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(ConfigurationError, match="brokers=0"):
        MockCluster(brokers=0)
    with pytest.raises(ConfigurationError, match="Fetsch"):
        MockCluster(limits={"Fetsch": (0, 1)})
    with MockCluster(topics={"t": 1}) as cluster:
        with pytest.raises(ConfigurationError, match="there already"):
            cluster.create_topic("t")
        with pytest.raises(ConfigurationError, match="no topic 'x'"):
            cluster.log("x", 0)
        with pytest.raises(ConfigurationError, match="broker 9"):
            cluster.move_leader("t", 0, 9)


PATCHED = """
    from gevent import monkey
    monkey.patch_all()
    import subprocess, sys
    from gkafka.testing import MockCluster
    from tests.kit.clock import now
    with MockCluster() as cluster:
        process = subprocess.Popen([sys.executable, "-c", sys.argv[1], str(cluster.brokers[1][1])])
        pause = monkey.get_original("time", "sleep")
        deadline = now() + 60
        while cluster.count("ApiVersions") < 200 and now() < deadline:
            pause(0.01)                                   # the hub never runs: no greenlet could answer
        print(cluster.count("ApiVersions"))
        process.wait(60)
"""
ASKER = """
    import socket, struct, sys
    sock = socket.create_connection(("127.0.0.1", int(sys.argv[1])), 60)
    for cid in range(200):
        frame = struct.pack(">hhih", 18, 0, cid, 0)
        sock.sendall(struct.pack(">i", len(frame)) + frame)
        size = struct.unpack(">i", sock.recv(4, socket.MSG_WAITALL))[0]
        assert struct.unpack(">i", sock.recv(size, socket.MSG_WAITALL)[:4])[0] == cid
"""


def test_the_brokers_run_beside_a_busy_gevent_hub() -> None:
    scripts = [textwrap.dedent(script) for script in (PATCHED, ASKER)]
    done = subprocess.run([sys.executable, "-c", *scripts], capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["200"]


def test_the_frame_of_a_request_is_what_the_client_sent() -> None:
    """Pipelined requests in one piece, and one request in single bytes."""
    with MockCluster() as cluster, PlainClient(cluster) as client:
        frames = b"".join(b"".join(encode_request(MetadataRequest(topics=[]), 5, cid, "x")) for cid in range(300))
        client.sock.sendall(frames)
        for cid in range(300):
            client.receive(MetadataRequest(), 5)
            assert client.answered == cid
        for byte in b"".join(encode_request(MetadataRequest(topics=[]), 5, 999, "x")):
            client.sock.sendall(bytes([byte]))
        client.receive(MetadataRequest(), 5)
        assert client.answered == 999
