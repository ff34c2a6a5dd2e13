"""The documented requests, behaviours 148 to 165, against the bytes that pykafka itself wrote (golden/record.py) and kafka-python's reading."""

from __future__ import annotations

import inspect
import json
import struct
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import gkafka.protocol
from gkafka.exceptions import ConfigurationError, ProtocolError, SerializationError, UnicodeException, UnsupportedVersion
from gkafka.membershipprotocol import RangeProtocol
from gkafka.protocol import (
    ConsumerMetadataRequest,
    CreateTopicRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DescribeGroupsRequest,
    FetchRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    MemberAssignment,
    Message,
    MetadataRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    OffsetRequest,
    PartitionFetchRequest,
    PartitionOffsetCommitRequest,
    PartitionOffsetFetchRequest,
    PartitionOffsetRequest,
    ProduceRequest,
    Request,
    SyncGroupRequest,
)
from gkafka.utils import Serializable
from gkafka.wire.apis import decode_request
from tests.protocol import cases

GOLDEN = Path(__file__).parent / "golden" / "pykafka.json"


@cache
def recorded() -> dict[str, dict[str, dict[str, str]]]:
    found: dict[str, dict[str, dict[str, str]]] = json.loads(GOLDEN.read_text())
    return found


def theirs(version: str, kind: str, name: str) -> bytes:
    return bytes.fromhex(recorded()[version][kind][name])


@pytest.fixture(autouse=True)
def _called_as_pykafka(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Request, "CLIENT_ID", cases.CLIENT_ID)


REQUESTS = [
    pytest.param(version, kind, name, id=f"{version} {name}")
    for version, kind in (("2.0.4", "documented"), ("2.8.0", "newer"))
    for name in json.loads(GOLDEN.read_text())[version][kind]
]


@pytest.mark.parametrize(("version", "kind", "name"), REQUESTS)
def test_behaviours_148_151_153_156_158_160_163_164_a_request_is_written_as_pykafka_writes_it(version: str, kind: str, name: str) -> None:
    request = getattr(cases, kind)(gkafka.protocol)[name]
    written = request.get_bytes()
    assert bytes(written) == theirs(version, kind, name)
    assert isinstance(written, bytearray)
    assert len(request) == len(written)
    assert request.API_KEY == type(request).API_KEY == int.from_bytes(written[4:6], "big")
    buffer = bytearray(3 + len(request) + 2)
    request.pack_into(buffer, 3)
    assert buffer == b"\0\0\0" + written + b"\0\0"


def test_every_recorded_kind_of_request_is_compared() -> None:
    for version, kind in (("2.0.4", "documented"), ("2.8.0", "newer")):
        assert set(getattr(cases, kind)(gkafka.protocol)) == set(recorded()[version][kind])


def test_behaviour_148_the_base_class_serializes_nothing() -> None:
    assert issubclass(Request, Serializable)
    with pytest.raises(NotImplementedError):
        Request().get_bytes()
    with pytest.raises(struct.error):
        MetadataRequest().pack_into(bytearray(5), 0)


def test_behaviour_149_the_header_has_size_key_version_correlation_id_and_client_id() -> None:
    request = MetadataRequest([b"t"])
    buffer = bytearray(len(request))
    request._write_header(buffer)
    assert buffer[:21] == request.get_bytes()[:21]
    request._write_header(buffer, api_version=2, correlation_id=-7)
    assert struct.unpack_from(">ihhih7s", buffer) == (len(request) - 4, 3, 2, -7, 7, b"pykafka")
    request.correlation_id = 2**31 - 1
    assert decode_request(request.get_bytes()[4:]).correlation_id == 2**31 - 1


# -- what the fields are -------------------------------------------------------------------------------------------------------
def test_behaviours_157_162_165_requests_for_partitions_are_tuples_with_names() -> None:
    assert PartitionFetchRequest(b"t", 1, 2) == (b"t", 1, 2, 1024 * 1024)
    assert PartitionFetchRequest._fields == ("topic_name", "partition_id", "offset", "max_bytes")
    assert PartitionOffsetRequest._fields == ("topic_name", "partition_id", "offsets_before", "max_offsets")
    assert PartitionOffsetCommitRequest._fields == ("topic_name", "partition_id", "offset", "timestamp", "metadata")
    assert PartitionOffsetFetchRequest._fields == ("topic_name", "partition_id")


def test_behaviours_151_153_158_160_163_defaults_are_the_documented_ones() -> None:
    def defaults(cls: Any) -> dict[str, Any]:
        return {
            name: p.default
            for name, p in inspect.signature(cls).parameters.items()
            if p.default is not p.empty and p.kind is not p.KEYWORD_ONLY
        }

    assert defaults(MetadataRequest) == {"topics": None}
    assert defaults(ProduceRequest) == {"compression_type": 0, "required_acks": 1, "timeout": 10000, "broker_version": "0.9.0"}
    assert defaults(FetchRequest) == {"partition_requests": (), "timeout": 1000, "min_bytes": 1024, "api_version": None}
    assert defaults(OffsetCommitRequest) == {"partition_requests": ()}
    assert defaults(OffsetFetchRequest) == {"partition_requests": ()}
    assert FetchRequest().parked_ms == 1000, "what the broker may wait counts for the answer's deadline"


def test_behaviour_151_no_topics_are_all_topics() -> None:
    assert MetadataRequest().get_bytes() == MetadataRequest([]).get_bytes() == MetadataRequest(()).get_bytes()
    assert bytes(MetadataRequest(api_version=1).get_bytes()[-4:]) == b"\xff\xff\xff\xff", "null asks for all from version 1 on"


def test_behaviour_154_a_produce_request_counts_and_lists_its_messages() -> None:
    request = ProduceRequest()
    assert (request.message_count(), list(request.messages)) == (0, [])
    made = [Message(b"%d" % n) for n in range(5)]
    for message, topic, partition in zip(made, (b"t", "t", b"u", b"t", b"t"), (0, 1, 0, 0, 1), strict=True):
        request.add_message(message, topic, partition)
    assert request.message_count() == 5
    assert [m.value for m in request.messages] == [b"0", b"3", b"1", b"4", b"2"], "partition by partition, in order within each"


def test_a_produce_request_for_brokers_since_0_11_holds_record_batches() -> None:
    request = ProduceRequest(required_acks=-1, api_version=3)
    request.add_message(Message(b"v", b"k", timestamp=5), b"t", 0)
    decoded: Any = decode_request(request.get_bytes()[4:])
    assert decoded.version == 3
    records = bytes(decoded.message.topic_data[0].partition_data[0].records)
    assert records[16] == 2, "format 2"
    assert b"\x01k" not in records[:61]
    assert records.endswith(b"\x02k\x02v\x00")


def test_names_are_text_or_bytes() -> None:
    for one, other in (
        (MetadataRequest(["tü"]), MetadataRequest(["tü".encode()])),
        (ConsumerMetadataRequest("g"), ConsumerMetadataRequest(b"g")),
        (HeartbeatRequest("g", 1, "m"), HeartbeatRequest(b"g", 1, bytearray(b"m"))),
        (
            OffsetCommitRequest("g", 1, "c", [PartitionOffsetCommitRequest("t", 0, 1, 2, "m")]),
            OffsetCommitRequest(b"g", 1, b"c", [PartitionOffsetCommitRequest(b"t", 0, 1, 2, b"m")]),
        ),
    ):
        assert one.get_bytes() == other.get_bytes()


@pytest.mark.parametrize("metadata", [b"", "", None])
def test_a_commit_without_metadata_has_null_as_pykafka_writes_it(metadata: Any) -> None:
    request = OffsetCommitRequest(b"g", 1, b"c", [PartitionOffsetCommitRequest(b"t", 0, 1, 2, metadata)])
    written = bytes(request.get_bytes())
    assert written.endswith(b"\0\0\0\0\0\0\0\2" + b"\xff\xff"), "the timestamp, and no text"
    assert len(request) == len(written)


def test_a_members_topic_is_what_it_subscribes_to_if_its_protocol_says_nothing() -> None:
    written = bytes(JoinGroupRequest(b"g", b"", b"t", RangeProtocol).get_bytes())
    assert written.endswith(b"\0\x05range" + b"\0\0\0\x0d" + b"\0\0" + b"\0\0\0\1\0\1t" + b"\xff\xff\xff\xff")


def test_a_leader_hands_in_assignments_in_whatever_form() -> None:
    """Pairs, as pykafka 2.8 has them; things that have their member's id, as 2.3 and the document; bytes."""
    given = MemberAssignment([(b"t", [0, 2])])
    pairs = SyncGroupRequest(b"g", 1, b"m", [(b"m", given), (b"n", b"raw")]).get_bytes()
    owned = SyncGroupRequest(b"g", 1, b"m", [MemberAssignment([("t", (0, 2))], member_id="m"), ("n", bytearray(b"raw"))]).get_bytes()
    assert pairs == owned
    assert bytes(given.get_bytes()) == b"\0\1" + b"\0\0\0\1\0\1t\0\0\0\2\0\0\0\0\0\0\0\2" + b"\xff\xff\xff\xff"
    assert len(given) == 25
    assert b"\0\1n\0\0\0\3raw" in pairs


# -- wrong things --------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", [None, 7, ["t"]])
def test_a_name_that_is_none_is_refused(name: Any) -> None:
    with pytest.raises(ConfigurationError, match="must be str or bytes"):
        MetadataRequest([name]).get_bytes()
    with pytest.raises(ConfigurationError, match="must be str or bytes"):
        FetchRequest([PartitionFetchRequest(name, 0, 0)])


@pytest.mark.parametrize("names", ["topic", b"topic", 5])
def test_one_name_is_not_taken_for_a_list_of_names_of_one_letter(names: Any) -> None:
    for make in (MetadataRequest, DescribeGroupsRequest, DeleteTopicsRequest):
        with pytest.raises(ConfigurationError, match=f"={names!r}: must be a list"):
            make(names)


@pytest.mark.parametrize(
    "make",
    [
        FetchRequest,
        OffsetRequest,
        lambda given: OffsetCommitRequest("g", -1, "", given),
        lambda given: OffsetFetchRequest("g", given),
        CreateTopicsRequest,
        lambda given: SyncGroupRequest("g", 1, "m", given),
    ],
)
def test_what_is_asked_for_must_have_what_the_request_says_of_it(make: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"'x' has no (topic_name|member_id)"):
        make(["x"])
    with pytest.raises(ConfigurationError, match="None: must be a list"):
        make(None)


def test_a_protocol_or_a_time_that_is_none() -> None:
    with pytest.raises(ConfigurationError, match="membership_protocol: 5 has no protocol_type, protocol_name, metadata"):
        JoinGroupRequest("g", "", "t", 5)
    with pytest.raises(ConfigurationError, match="timeout='x'"):
        FetchRequest(timeout="x")  # type: ignore[arg-type]


def test_a_name_that_is_not_utf_8_is_refused() -> None:
    with pytest.raises(UnicodeException, match="UTF-8"):
        MetadataRequest([b"\xff"]).get_bytes()


def test_values_that_their_fields_cannot_hold_are_refused() -> None:
    for request in (
        OffsetRequest([PartitionOffsetRequest(b"t", 2**31, -1, 1)]),
        HeartbeatRequest(b"g", "1", b"m"),  # type: ignore[arg-type]
        FetchRequest([PartitionFetchRequest(b"t", 0, 2**63)]),
        CreateTopicsRequest([CreateTopicRequest(b"t", 1, 2**15, [], [])]),
        ConsumerMetadataRequest("g" * 40_000),
    ):
        with pytest.raises((SerializationError, ConfigurationError)):
            request.get_bytes()
    with pytest.raises(UnsupportedVersion):
        MetadataRequest(api_version=99).get_bytes()


def test_what_a_member_hands_in_must_be_bytes() -> None:
    with pytest.raises(ConfigurationError, match="get_bytes"):
        SyncGroupRequest(b"g", 1, b"m", [(b"m", 7)])


def test_hostile_metadata_of_members_is_a_protocol_error() -> None:
    for cls in (gkafka.protocol.ConsumerGroupProtocolMetadata, MemberAssignment):
        for data in (b"\0", b"\0\0", b"\0\0\xff\xff\xff\xff", b"\0\0\x7f\xff\xff\xff", b"\0\0\0\0\0\1\0\x09t", b"\xff\xff\0\0\0\0"):
            with pytest.raises(ProtocolError):
                cls.from_bytestring(data)
    assert MemberAssignment.from_bytestring(b"").partition_assignment == []
    assert gkafka.protocol.ConsumerGroupProtocolMetadata.from_bytestring(b"").topic_names == []


def test_an_assignment_without_user_data_as_pykafkas_leaders_write_it_is_read() -> None:
    read = MemberAssignment.from_bytestring(b"\0\1" + b"\0\0\0\1\0\1t\0\0\0\2\0\0\0\0\0\0\0\2")
    assert (read.version, read.partition_assignment) == (1, [(b"t", [0, 2])])
    written = gkafka.protocol.ConsumerGroupProtocolMetadata(0, ["a", b"b"], b"d").get_bytes()
    told = gkafka.protocol.ConsumerGroupProtocolMetadata.from_bytestring(written)
    assert (told.version, told.topic_names, told.user_data) == (0, [b"a", b"b"], b"d")
