"""What gkafka writes and reads against the bytes of Kafka's own classes, for every version of every message."""

from __future__ import annotations

import pytest

from gkafka.wire.apis import decode_request, decode_response, encode_request, encode_response
from gkafka.wire.metadata import MetadataRequest
from gkafka.wire.schema import Message
from tests.wire.recorded import CLIENT_ID, EVERY_API, MESSAGES, Golden, golden

every_message = pytest.mark.parametrize("cls", MESSAGES.values(), ids=lambda cls: cls.__name__)


def frames(cls: type[Message]) -> list[Golden]:
    """Three of each version."""
    return [one for one in golden() if one.cls is cls]


def test_every_version_of_every_message_is_recorded_in_three_kinds() -> None:
    recorded = sorted((g.cls.__name__, g.version, g.kind) for g in golden())
    assert recorded == sorted(
        (name, version, kind)
        for name, cls in MESSAGES.items()
        for version in cls.API.versions.each()
        for kind in ("default", "nulls", "rich")
    )


def test_the_tables_reach_to_the_versions_of_kafka_4_2() -> None:
    newest = {api.name: api.versions.high for api in EVERY_API.values()}
    assert newest == {
        "Produce": 13,
        "Fetch": 18,
        "ListOffsets": 11,
        "Metadata": 13,
        "OffsetCommit": 10,
        "OffsetFetch": 10,
        "FindCoordinator": 6,
        "JoinGroup": 9,
        "Heartbeat": 4,
        "LeaveGroup": 5,
        "SyncGroup": 5,
        "DescribeGroups": 6,
        "ListGroups": 5,
        "ConsumerGroupHeartbeat": 1,
        "ConsumerGroupDescribe": 1,
        "ApiVersions": 4,
        "CreateTopics": 7,
        "DeleteTopics": 6,
        "InitProducerId": 6,
        "OffsetForLeaderEpoch": 4,
        "AddPartitionsToTxn": 5,
        "AddOffsetsToTxn": 4,
        "EndTxn": 5,
        "TxnOffsetCommit": 5,
        "CreatePartitions": 3,
        "DeleteRecords": 2,
        "DescribeTopicPartitions": 0,
        "DescribeConfigs": 4,
        "AlterConfigs": 2,
        "IncrementalAlterConfigs": 1,
        "DescribeClientQuotas": 1,
        "AlterClientQuotas": 1,
        "DescribeAcls": 3,
        "CreateAcls": 3,
        "DeleteAcls": 3,
        "DescribeUserScramCredentials": 0,
        "AlterUserScramCredentials": 0,
        "ElectLeaders": 2,
        "AlterPartitionReassignments": 1,
        "ListPartitionReassignments": 0,
        "DescribeLogDirs": 4,
        "AlterReplicaLogDirs": 2,
        "ListTransactions": 2,
        "DescribeTransactions": 0,
        "DescribeProducers": 0,
        "WriteTxnMarkers": 2,
        "DescribeCluster": 2,
        "DescribeQuorum": 2,
        "UpdateFeatures": 2,
        "DeleteGroups": 2,
        "OffsetDelete": 0,
        "SaslHandshake": 1,
        "SaslAuthenticate": 2,
    }
    assert {api.versions.low for api in EVERY_API.values()} == {0}


def test_a_rich_message_has_no_field_at_its_default() -> None:
    """The recordings would say little if their fields were not told apart: each must differ from a new message."""
    for one in golden():
        if one.kind == "rich" and one.values:
            there = [f for f in one.cls.FIELDS if one.version in f.versions]
            at_default = [f.name for f in there if getattr(one.message, f.name) == f.fresh()]
            assert at_default == [], str(one)


@every_message
def test_gkafka_writes_what_kafka_writes(cls: type[Message]) -> None:
    for one in frames(cls):
        if one.is_request:
            written = encode_request(one.message, one.version, one.correlation_id, CLIENT_ID)
        else:
            written = encode_response(one.message, one.version, one.correlation_id)
        assert b"".join(written).hex() == one.frame.hex(), str(one)


@every_message
def test_gkafka_reads_what_kafka_wrote(cls: type[Message]) -> None:
    for one in frames(cls):
        frame = memoryview(one.frame)[4:]
        if one.is_request:
            assert decode_request(frame) == (cls.API, one.version, one.correlation_id, CLIENT_ID, _as_read(one)), str(one)
        else:
            assert decode_response(cls.API, one.version, frame) == (one.correlation_id, _as_read(one)), str(one)


def _as_read(one: Golden) -> Message:
    """Metadata v0 means "all topics" by an empty array, which is read as what every later version means by it: None."""
    message = one.message
    if isinstance(message, MetadataRequest) and one.version == 0:
        message.topics = message.topics or None
    return message
