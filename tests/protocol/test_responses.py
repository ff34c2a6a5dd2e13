"""The documented answers, behaviours 150 to 164, made from the bytes that Kafka's own classes wrote (tests/wire/golden)."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gkafka.protocol as p
from gkafka.exceptions import (
    ConfigurationError,
    ConsumerCoordinatorNotAvailable,
    KafkaException,
    LeaderNotAvailable,
    OffsetOutOfRangeError,
    ProtocolClientError,
    ProtocolError,
    RequestTimedOut,
    UnknownBrokerError,
)
from gkafka.protocol import Names, Response
from gkafka.wire import groups, metadata, offsets
from gkafka.wire.apis import APIS, encode_response
from gkafka.wire.schema import Message
from tests.wire.recorded import Golden, golden

START = 8
"""Bytes of a frame's size and correlation id."""
ANSWERS = {cls.API_KEY: cls for cls in vars(p).values() if isinstance(cls, type) and issubclass(cls, Response) and cls.API_KEY >= 0}


def of(cls: type[Response], kind: str = "rich", version: int | None = None) -> Golden:
    """What Kafka's class wrote for the version that is documented."""
    wire, version = APIS[cls.API_KEY].response, cls.API_VERSION if version is None else version
    (one,) = [g for g in golden() if g.cls is wire and g.version == version and g.kind == kind]
    return one


def read(cls: Any, one: Golden) -> Any:
    return cls(memoryview(one.frame)[START:], api_version=one.version)


def test_every_documented_answer_is_among_them() -> None:
    assert len(ANSWERS) == 16


def test_behaviour_152_metadata() -> None:
    one = of(p.MetadataResponse)
    wire: Any = one.message
    answer = read(p.MetadataResponse, one)
    assert wire.brokers
    assert answer.brokers == {b.node_id: (b.node_id, b.host.encode(), b.port) for b in wire.brokers}
    assert list(answer.topics) == [t.name.encode() for t in wire.topics] != []
    for topic in wire.topics:
        found = answer.topics[topic.name]
        assert (found.name, found.err) == (topic.name.encode(), topic.error_code)
        assert found.partitions == {
            q.partition_index: (q.partition_index, q.leader_id, q.replica_nodes, q.isr_nodes, q.error_code) for q in topic.partitions
        }
    newer = p.MetadataResponse(bytes_of(metadata.MetadataResponse(cluster_id="c", controller_id=3), 2), api_version=2)
    assert (newer.cluster_id, newer.controller_id) == (b"c", 3)
    assert (answer.cluster_id, answer.controller_id) == (None, None)


def test_behaviour_155_produce() -> None:
    one = of(p.ProduceResponse)
    wire: Any = one.message
    assert wire.responses[0].partition_responses
    assert read(p.ProduceResponse, one).topics == {
        t.name.encode(): {q.index: (q.error_code, q.base_offset) for q in t.partition_responses} for t in wire.responses
    }


def test_behaviour_156_offsets() -> None:
    one = of(p.OffsetResponse)
    wire: Any = one.message
    assert wire.topics[0].partitions[0].old_style_offsets
    assert read(p.OffsetResponse, one).topics == {
        t.name.encode(): {q.partition_index: (q.old_style_offsets, q.error_code) for q in t.partitions} for t in wire.topics
    }
    none = offsets.ListOffsetsResponse(
        topics=[offsets.ListOffsetsTopicResponse(name="t", partitions=[offsets.ListOffsetsPartitionResponse(partition_index=3)])]
    )
    assert p.OffsetResponse(bytes_of(none, 1), api_version=1).topics == {b"t": {3: ([], 0)}}
    newer = of(p.OffsetResponse, version=1)
    wire = newer.message
    assert read(p.OffsetResponse, newer).topics == {
        t.name.encode(): {q.partition_index: ([q.offset] if q.offset >= 0 else [], q.error_code) for q in t.partitions} for t in wire.topics
    }


@pytest.mark.parametrize("version", range(10))
def test_behaviour_159_offset_commit(version: int) -> None:
    one = of(p.OffsetCommitResponse, version=version)
    wire: Any = one.message
    assert read(p.OffsetCommitResponse, one).topics == {
        t.name.encode(): {q.partition_index: (q.error_code,) for q in t.partitions} for t in wire.topics
    }


@pytest.mark.parametrize("version", range(10))
def test_behaviour_163_offset_fetch(version: int) -> None:
    one = of(p.OffsetFetchResponse, version=version)
    wire: Any = one.message
    answer = read(p.OffsetFetchResponse, one)
    group = wire.answers[0]
    assert answer.err == group.error_code
    assert answer.topics == {
        t.name.encode(): {
            q.partition_index: (q.committed_offset, None if q.metadata is None else q.metadata.encode(), q.error_code) for q in t.partitions
        }
        for t in group.topics
    }


def test_behaviour_164_consumer_metadata() -> None:
    answer = p.ConsumerMetadataResponse(bytes.fromhex("0000 00000007 0004") + b"host" + (9092).to_bytes(4, "big"))
    assert (answer.coordinator_id, answer.coordinator_host, answer.coordinator_port) == (7, b"host", 9092)
    with pytest.raises(ConsumerCoordinatorNotAvailable, match="ConsumerMetadataResponse"):
        p.ConsumerMetadataResponse(bytes.fromhex("000f ffffffff 0000 ffffffff"))
    with pytest.raises(ConsumerCoordinatorNotAvailable):
        p.ConsumerMetadataResponse(groups.FindCoordinatorResponse())


@pytest.mark.parametrize("version", [0, 5, 9])
def test_membership_answers(version: int) -> None:
    one = of(p.JoinGroupResponse, version=version)
    wire: Any = one.message
    joined = read(p.JoinGroupResponse, one)
    assert (joined.error_code, joined.generation_id) == (wire.error_code, wire.generation_id)
    assert (joined.group_protocol, joined.leader_id, joined.member_id) == (
        (wire.protocol_name or "").encode(),
        wire.leader.encode(),
        wire.member_id.encode(),
    )
    assert list(joined.members) == [m.member_id.encode() for m in wire.members] != []


def test_members_of_consumers_are_read_and_others_left_as_they_are() -> None:
    told = p.ConsumerGroupProtocolMetadata(0, [b"t"], b"data").get_bytes()
    wire = groups.JoinGroupResponse(
        protocol_name="range",
        members=[
            groups.JoinGroupResponseMember(member_id="m", metadata=told),
            groups.JoinGroupResponseMember(member_id="n", metadata=b"\x01"),
        ],
    )
    joined = p.JoinGroupResponse(bytes_of(wire, 0))
    consumer = joined.members["m"]
    assert isinstance(consumer, p.ConsumerGroupProtocolMetadata)
    assert (consumer.topic_names, consumer.user_data) == ([b"t"], b"data")
    assert joined.members[b"n"] == b"\x01"
    synced = p.SyncGroupResponse(bytes.fromhex("001b 00000015 0000 00000001 000174 00000001 00000005 ffffffff"))
    assert synced.error_code == 27
    assert isinstance(synced.member_assignment, p.MemberAssignment)
    assert synced.member_assignment.partition_assignment == [(b"t", [5])]
    assert p.HeartbeatResponse(b"\0\x19").error_code == 25
    assert p.LeaveGroupResponse(b"\0\0").error_code == 0
    left = groups.LeaveGroupResponse(members=[groups.MemberResponse(member_id="m", error_code=25)])
    assert p.LeaveGroupResponse(left).error_code == 25, "since KIP-345 each member has a code of its own"


def bytes_of(message: Message, version: int) -> bytes:
    return b"".join(encode_response(message, version, 5))[START:]


def test_groups_are_listed_and_described() -> None:
    one = of(p.ListGroupsResponse)
    wire: Any = one.message
    listed = read(p.ListGroupsResponse, one)
    assert listed.error == wire.error_code
    assert listed.groups == {g.group_id.encode(): (g.group_id.encode(), g.protocol_type.encode()) for g in wire.groups} != {}
    one = of(p.DescribeGroupsResponse)
    wire = one.message
    described = read(p.DescribeGroupsResponse, one)
    for group in wire.groups:
        found = described.groups[group.group_id]
        assert found[:5] == (
            group.error_code,
            group.group_id.encode(),
            group.group_state.encode(),
            group.protocol_type.encode(),
            group.protocol_data.encode(),
        )
        assert [m[:3] for m in found.members.values()] == [
            (m.member_id.encode(), m.client_id.encode(), m.client_host.encode()) for m in group.members
        ]


def test_an_answer_about_topics_or_versions_raises_its_error() -> None:
    assert isinstance(p.CreateTopicsResponse(bytes.fromhex("00000001 0001 74 0000")), p.CreateTopicsResponse)
    with pytest.raises(RequestTimedOut, match="CreateTopicsResponse"):
        p.CreateTopicsResponse(bytes.fromhex("00000002 0001 74 0000 0001 75 0007"))
    with pytest.raises(OffsetOutOfRangeError):
        p.DeleteTopicsResponse(bytes.fromhex("00000001 0001 74 0001"))
    assert p.ApiVersionsResponse(bytes.fromhex("0000 00000001 0003 0001 0009")).api_versions == {3: (3, 1, 9)}
    with pytest.raises(ProtocolClientError):
        p.ApiVersionsResponse(bytes.fromhex("0023 00000000"))


def test_behaviour_150_raise_error_raises_the_codes_exception() -> None:
    response = p.HeartbeatResponse(b"\0\0")
    with pytest.raises(LeaderNotAvailable, match=r"HeartbeatResponse: .*what came"):
        response.raise_error(5, ("what came",))
    with pytest.raises(UnknownBrokerError):
        response.raise_error(31_000, None)
    with pytest.raises(ConfigurationError, match="0 is no error"):
        response.raise_error(0, None)
    with pytest.raises(LeaderNotAvailable) as caught:
        response.raise_error(5, b"x" * 100_000)
    assert len(str(caught.value)) < 1000


def test_names_are_found_as_bytes_and_as_text() -> None:
    names: Names[int] = Names({"ü".encode(): 1})
    assert (names["ü"], names["ü".encode()], names.get("ü"), names.get("v", 7)) == (1, 1, 1, 7)
    assert "ü" in names
    assert "ü".encode() in names
    assert "v" not in names
    for missing in ("v", b"v", 3):
        with pytest.raises(KeyError):
            names[missing]  # type: ignore[index]


# -- hostile bytes ---------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("cls", ANSWERS.values(), ids=lambda cls: cls.__name__)
def test_an_answer_that_is_cut_or_too_long_is_a_protocol_error(cls: Any) -> None:
    body = bytes_of(APIS[cls.API_KEY].response(), cls.API_VERSION)
    for end in range(len(body)):
        with pytest.raises(ProtocolError):
            cls(body[:end])
    with pytest.raises(ProtocolError, match="too many"):
        cls(body + b"\0")


@pytest.mark.parametrize("cls", ANSWERS.values(), ids=lambda cls: cls.__name__)
@settings(max_examples=40)
@given(st.binary(max_size=120))
def test_any_bytes_are_an_answer_or_an_error_of_ours(cls: Any, data: bytes) -> None:
    with contextlib.suppress(KafkaException):
        cls(data)


def test_counts_that_lie_take_no_memory() -> None:
    for cls in (p.MetadataResponse, p.FetchResponse, p.ProduceResponse, p.OffsetResponse):
        with pytest.raises(ProtocolError):
            cls(b"\x7f\xff\xff\xff" * 2)
