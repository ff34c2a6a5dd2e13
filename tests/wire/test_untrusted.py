"""A broker's bytes are untrusted: whatever they are, decoding ends soon, in little memory, with a message or a ProtocolError."""

from __future__ import annotations

import contextlib
import random
import struct
from collections.abc import Iterator

import pytest

from gkafka.core.connection import Connection
from gkafka.exceptions import KafkaException, ProtocolError, UnsupportedVersion
from gkafka.wire.apis import (
    Api,
    decode_request,
    decode_request_header,
    decode_response,
    encode_response,
    parse_api_versions,
)
from gkafka.wire.apiversions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from gkafka.wire.codec import decoder
from gkafka.wire.epochs import OffsetForLeaderEpochRequest, OffsetForLeaderPartition, OffsetForLeaderTopic
from gkafka.wire.fetch import FetchableTopicResponse, FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from gkafka.wire.groups import DescribeGroupsRequest, FindCoordinatorRequest, FindCoordinatorResponse
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
from gkafka.wire.primitives import Malformed, read_within
from gkafka.wire.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from gkafka.wire.schema import Message, Struct
from tests.effort import quick_and_thorough
from tests.kit.memory import traced
from tests.wire.recorded import EVERY_API, MESSAGES, Golden, golden

every_message = pytest.mark.parametrize("cls", MESSAGES.values(), ids=lambda cls: cls.__name__)
LIES = [
    b"\x7f\xff\xff\xff",
    b"\x80\x00\x00\x00",
    b"\xff\xff\xff\xff\x07",
    b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    b"\x7f\xff",
    b"\x80\x00",
]


def decode(one: Golden, frame: bytes) -> object:
    """frame: without its size."""
    return decode_request(frame) if one.is_request else decode_response(one.cls.API, one.version, frame)


def refused_or_decoded(one: Golden, frame: bytes) -> None:
    """Any other exception fails the test. A request may name an API or version that is not there."""
    with contextlib.suppress(ProtocolError, UnsupportedVersion if one.is_request else ProtocolError):
        decode(one, frame)


def rich(cls: type[Message]) -> list[Golden]:
    """A frame of each version without a field at its default, the oldest version first."""
    return [one for one in golden() if one.cls is cls and one.kind == "rich"]


@pytest.mark.parametrize("every", quick_and_thorough(17, 1))
@every_message
def test_a_frame_cut_anywhere_is_a_protocol_error(cls: type[Message], every: int) -> None:
    """The newest version anywhere, those before it at every so-manieth byte, each version at others."""
    frames = rich(cls)
    for one in frames:
        frame = one.frame[4:]
        step = 1 if one is frames[-1] else every
        for end in range(one.version % step, len(frame), step):
            assert _is_refused(one, frame[:end]), (one.version, end)


def _is_refused(one: Golden, frame: bytes) -> bool:
    """Whether it is a ProtocolError; pytest.raises() takes longer than decoding does."""
    try:
        decode(one, frame)
    except ProtocolError:
        return True
    return False


@every_message
def test_bytes_behind_a_message_are_a_protocol_error(cls: type[Message]) -> None:
    for one in rich(cls):
        with pytest.raises(ProtocolError, match=r"1 bytes too many at byte \d+ of \d+"):
            decode(one, one.frame[4:] + b"\0")


@every_message
def test_damaged_frames_are_refused_or_decoded(cls: type[Message]) -> None:
    for one in rich(cls):
        chance = random.Random(str(one))
        frame = one.frame[4:]
        for _ in range(50):
            refused_or_decoded(one, _damage(frame, chance))


def _damage(frame: bytes, chance: random.Random) -> bytes:
    """One to four of: flip a bit, set a byte, cut out, double, insert."""
    data = bytearray(frame)
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(data)) if data else 0
        size = chance.randint(1, 8)
        piece = chance.choice(
            [
                bytes([data[at] ^ 1 << chance.randrange(8)]) if data else b"",
                chance.randbytes(size),
                b"",
                bytes(data[at : at + size]) * 2,
                b"\xff" * 5,
            ]
        )
        data[at : at + chance.choice([1, len(piece), size])] = piece
    return bytes(data)


@pytest.mark.parametrize("most", quick_and_thorough(30, 300))
@every_message
def test_a_lie_about_any_length_costs_no_memory(cls: type[Message], most: int) -> None:
    """At the oldest and the newest version of each message; of long frames at so many places, where two of the lies take turns or all are told."""
    frames = rich(cls)
    told = 2 if most < 100 else len(LIES)
    for one in {frames[0].version: frames[0], frames[-1].version: frames[-1]}.values():
        frame = one.frame[4:]
        refused_or_decoded(one, frame)  # compile the decoder first
        places = range(8 if one.is_request else 4, len(frame))
        with traced() as peak:
            for turn, at in enumerate(random.Random(7).sample(places, min(len(places), most))):
                for lie in [LIES[(turn + more) % len(LIES)] for more in range(told)]:
                    refused_or_decoded(one, frame[:at] + lie + frame[at + len(lie) :])
            assert peak() < 2**20, str(one)


def _lying_count(api: Api, version: int, count: int) -> bytes:
    """A response that starts with an array, and nothing behind its count."""
    return b"\0\0\0\1" + count.to_bytes(4, "big")


@pytest.mark.parametrize("count", [1, 2**31 - 1])
def test_a_count_is_bounded_by_what_is_left(count: int) -> None:
    with pytest.raises(
        ProtocolError, match=rf"Produce response v0: an array of {count} elements where 0 bytes are left at byte 4 of 8"
    ) as caught:
        decode_response(ProduceResponse.API, 0, _lying_count(ProduceResponse.API, 0, count))
    assert caught.value.api == "Produce"


def test_a_count_below_minus_one_is_a_protocol_error() -> None:
    with pytest.raises(ProtocolError, match="a length is -2"):
        decode_response(ProduceResponse.API, 0, b"\0\0\0\1\xff\xff\xff\xfe")


def test_null_where_null_cannot_be_is_a_protocol_error() -> None:
    with pytest.raises(ProtocolError, match="null where an array must be"):
        decode_response(ProduceResponse.API, 0, b"\0\0\0\1\xff\xff\xff\xff")


def test_text_that_is_not_utf_8_is_a_protocol_error() -> None:
    frame = b"".join(encode_response(FindCoordinatorResponse(host="host"), 0, 1))[4:]
    with pytest.raises(ProtocolError, match=r"FindCoordinator response v0: a string is not UTF-8 .* at byte 10 of 20"):
        decode_response(FindCoordinatorResponse.API, 0, frame.replace(b"host", b"h\xff\xfet"))


def test_a_string_is_at_most_32767_bytes() -> None:
    """The compact form could say more; Kafka refuses it, and so do we."""
    head = b"\0\0\0\1" + b"\0" + b"\0\0\0\0" + b"\0\0"  # correlation id, header tags, throttle time, error code
    with pytest.raises(ProtocolError, match="a string of 40000 bytes"):
        decode_response(FindCoordinatorResponse.API, 3, head + b"\xc1\xb8\x02" + b"x" * 40000)


@pytest.mark.parametrize("varint", [b"\xff" * 5 + b"\x01", b"\xff\xff\xff\xff\x1f", b"\x80" * 64 + b"\0"])
def test_a_varint_is_at_most_32_bits(varint: bytes) -> None:
    with pytest.raises(ProtocolError, match="a varint is longer than 32 bits at byte 4"):
        decode_response(FindCoordinatorResponse.API, 3, b"\0\0\0\1" + varint)


# -- tagged fields -----------------------------------------------------------------------------------------------------
def _tagged(tail: bytes) -> bytes:
    """A Produce v9 response with no topics, whose tagged fields are `tail`."""
    return b"\0\0\0\1" + b"\0" + b"\x01" + b"\0\0\0\5" + tail


def test_unknown_tagged_fields_are_skipped() -> None:
    _, response = decode_response(ProduceResponse.API, 9, _tagged(b"\x02" + b"\x05\x03abc" + b"\xff\x7f\x00"))
    assert response == ProduceResponse(throttle_time_ms=5)


@pytest.mark.parametrize(
    ("tail", "why"),
    [
        (b"\xff\xff\xff\xff\x0f", "4294967295 tagged fields where 0 bytes are left"),
        (b"\x01\x05\x20abc", "tagged field 5 of 32 bytes where 3 are left"),
        (b"\x01\x05\xff\xff\xff\xff\x0f", "tagged field 5 of 4294967295 bytes"),
        (b"\x02\x05\x01a", "it ends too early|2 tagged fields"),
    ],
)
def test_tagged_fields_are_bounded_by_what_is_left(tail: bytes, why: str) -> None:
    with pytest.raises(ProtocolError, match=why):
        decode_response(ProduceResponse.API, 9, _tagged(tail))


def test_a_tagged_field_takes_exactly_the_size_it_claims() -> None:
    with pytest.raises(ProtocolError, match="tagged field 0 claims 3 bytes and takes 1"):
        decode_response(ProduceResponse.API, 10, _tagged(b"\x01\x00\x03\x01zz"))


# -- amount ------------------------------------------------------------------------------------------------------------
def _greedy() -> Iterator[tuple[str, Api, int, bytes]]:
    """64 KiB frames that hold as many things as their bytes allow."""
    size = 2**16
    count = (size - 12) // 8
    yield "topics", MetadataResponse.API, 0, b"\0\0\0\1" + b"\0\0\0\0" + count.to_bytes(4, "big") + bytes(8 * count)
    fields = size // 2 - 20
    yield "tags", ProduceResponse.API, 9, _tagged(_uvarint(fields) + b"\x09\0" * fields)
    nodes = (size - 40) // 4
    partition = b"\0\0" + bytes(8) + b"\0\0\0\0" + nodes.to_bytes(4, "big") + bytes(4 * nodes)
    topic = b"\0\0" + b"\0\1t" + b"\0\0\0\1" + partition
    yield "numbers", MetadataResponse.API, 0, b"\0\0\0\1" + b"\0\0\0\0" + b"\0\0\0\1" + topic


def _uvarint(value: int) -> bytes:
    data = b""
    while value > 0x7F:
        data += bytes([value & 0x7F | 0x80])
        value >>= 7
    return data + bytes([value])


@pytest.mark.parametrize(("api", "version", "frame"), [pytest.param(*rest, id=name) for name, *rest in _greedy()])
def test_the_fullest_frame_of_64_kib_takes_little_memory(api: Api, version: int, frame: bytes) -> None:
    decode_response(api, version, frame)
    with traced() as peak:
        decode_response(api, version, frame)
        assert peak() <= 32 * len(frame)


# -- headers -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("size", range(8))
def test_a_frame_shorter_than_a_header_is_a_protocol_error(size: int) -> None:
    with pytest.raises(ProtocolError):
        decode_request_header(bytes(size))
    for api in EVERY_API.values():
        for version in api.versions.each():
            with pytest.raises(ProtocolError):
                decode_response(api, version, bytes(min(size, 3)))
    with pytest.raises(ProtocolError):
        decode_request(bytes(size))


def test_a_request_of_an_unknown_api_or_version_is_named_and_its_start_can_be_read() -> None:
    strange = b"\x03\xe7\0\5\0\0\0\7"
    with pytest.raises(UnsupportedVersion, match="API 999"):
        decode_request(strange)
    assert decode_request_header(strange) == (999, 5, 7)
    with pytest.raises(UnsupportedVersion, match="Metadata v99: gkafka speaks v0-13"):
        decode_request(b"\0\3\0\x63\0\0\0\7")
    with pytest.raises(UnsupportedVersion, match="Metadata v14"):
        decode_response(MetadataRequest.API, 14, bytes(100))


def test_an_all_zero_reply_is_not_taken_for_an_api_versions_answer_with_apis() -> None:
    """A peer that is not Kafka may answer zeros (hostile broker, 12-byte reply)."""
    with pytest.raises(ProtocolError):
        parse_api_versions(bytes(12), 3)


@pytest.mark.parametrize("version", range(5))
@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"\0\0\0\0", id="v0-without-apis"),
        pytest.param(b"\0\0\0\1\0\x12\0\0\0\3", id="v0-as-KIP-511-says"),
        pytest.param(b"\x01\0\x12\0\0\0\2", id="librdkafka-mock"),
        pytest.param(b"\x02\0\x12\0\0\0\3\0\0\0\0\0\0", id="flexible"),
        pytest.param(b"\xff" * 7, id="rubbish"),
    ],
)
def test_error_35_is_seen_in_any_shape(version: int, body: bytes) -> None:
    assert parse_api_versions(b"\0\0\0\7\0\x23" + body, version) == (7, ApiVersionsResponse(error_code=35))


def test_an_answer_without_error_35_is_read_at_its_version() -> None:
    for one in golden():
        if one.cls is ApiVersionsResponse:
            assert parse_api_versions(one.frame[4:], one.version) == (one.correlation_id, one.message)


def test_records_are_slices_of_the_frame_uncopied() -> None:
    response = FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[PartitionData(records=b"r" * 100)])])
    frame = bytearray(b"".join(encode_response(response, 4, 1))[4:])
    _, decoded = decode_response(FetchResponse.API, 4, frame)
    assert isinstance(decoded, FetchResponse)
    records = decoded.responses[0].partitions[0].records
    assert isinstance(records, memoryview)
    assert records == b"r" * 100
    frame[-1] = 0
    assert records[-1] == 0


@pytest.mark.parametrize("claimed", [101, 2**31 - 1])
def test_records_are_bounded_by_what_is_left(claimed: int) -> None:
    response = FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[PartitionData(records=b"r" * 100)])])
    frame = b"".join(encode_response(response, 4, 1))[4:]
    lying = frame[:-104] + claimed.to_bytes(4, "big") + frame[-100:]
    with pytest.raises(
        ProtocolError, match=rf"Fetch response v4: {claimed} bytes where 100 are left at byte {len(frame) - 104} of {len(frame)}"
    ):
        decode_response(FetchResponse.API, 4, lying)


def test_only_errors_of_gkafka_leave_the_decoder_on_noise() -> None:
    chance = random.Random(20)
    cells = [(api, version) for api in EVERY_API.values() for version in api.versions.each()]
    for _ in range(6_000):
        api, version = chance.choice(cells)
        noise = chance.randbytes(chance.randrange(80))
        try:
            decode_response(api, version, noise if chance.random() < 0.5 else bytes(5) + noise)
        except KafkaException as error:
            assert isinstance(error, ProtocolError), repr(error)  # noqa: PT017  # all else must fail the test as it is


# -- entries: each becomes an object
def _uvarint(number: int) -> bytes:
    return bytes([number & 127 | 128]) + _uvarint(number >> 7) if number > 127 else bytes([number])


def _of_entries(count: int) -> dict[str, tuple[Api, int, bytes]]:
    """The same number of entries, in one array, in many small ones, and as tagged fields."""
    start = (
        struct.pack(">i", 1) + b"\0" + struct.pack(">i", 0) + b"\1\0" + struct.pack(">i", 1)
    )  # of Metadata v9: no brokers, no cluster id
    partition = struct.pack(">hiii", 0, 1, 2, 3) + b"\1\1\1\0"
    inner = 9
    topic = b"\0\0\2t\0" + _uvarint(inner + 1) + partition * inner + bytes(4) + b"\0"
    outer = count // (inner + 1)
    return {
        "one array": (ApiVersionsResponse.API, 0, struct.pack(">ihi", 1, 0, count) + b"\0\1\0\0\0\1" * count),
        "many arrays": (MetadataResponse.API, 9, start + _uvarint(outer + 1) + topic * outer + bytes(4) + b"\0"),
        "tagged fields": (ApiVersionsResponse.API, 3, struct.pack(">ih", 1, 0) + b"\1" + bytes(4) + _uvarint(count) + b"\x7f\0" * count),
    }


@pytest.mark.parametrize("shape", _of_entries(10))
def test_entries_are_bounded_whatever_they_stand_in(shape: str) -> None:
    api, version, frame = _of_entries(10_000)[shape]
    decode_response(api, version, frame)
    decode_response(api, version, frame, most_entries=10_000)
    with pytest.raises(ProtocolError, match=r"more than 9990 entries \(a larger max_response_bytes allows more\) at byte \d+ of") as caught:
        decode_response(api, version, frame, most_entries=9_990)
    assert caught.value.api == api.name


def test_a_bound_on_entries_is_of_one_frame() -> None:
    api, version, frame = _of_entries(10_000)["one array"]
    for _ in range(3):
        decode_response(api, version, frame, most_entries=10_000)
    with pytest.raises(ProtocolError):
        decode_response(api, version, frame, most_entries=9_999)
    decode_response(api, version, frame)


@pytest.mark.parametrize(("most", "given"), [(100_000, 1 << 20), (409_600, 100 << 20)])
def test_a_connection_bounds_entries_by_its_largest_answer(most: int, given: int) -> None:
    connection = Connection("b1:9092", client_id=None, broker_version="0.9.0", max_response_bytes=given)
    connection.connecting()
    (asked,) = connection.connected(0.0)
    said = ApiVersionsResponse(api_keys=[ApiVersion(api_key=18, min_version=0, max_version=0)])
    connection.negotiated(memoryview(b"".join(encode_response(said, 4, int.from_bytes(asked[8:12], "big"))))[4:], 0.0)
    for count, fits in ((most, True), (most + 1, False)):
        _, _, frame = _of_entries(count)["one array"]
        connection.prepare(ApiVersionsRequest(), None, 0.0, 1.0)
        sent = connection.unanswered[-1]
        with contextlib.nullcontext() if fits else pytest.raises(ProtocolError, match=f"b1:9092: .*more than {most} entries"):
            connection.decode(sent, memoryview(frame))


def _named(count: int) -> dict[str, Message]:
    """Requests that name a topic with so many partitions, or so many groups or topics."""
    each = range(count)
    return {
        "Fetch": FetchRequest(topics=[FetchTopic(topic="t", partitions=[FetchPartition(partition=p) for p in each])]),
        "Produce": ProduceRequest(topic_data=[TopicProduceData(name="t", partition_data=[PartitionProduceData(index=p) for p in each])]),
        "ListOffsets": ListOffsetsRequest(
            topics=[ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(partition_index=p) for p in each])]
        ),
        "OffsetCommit": OffsetCommitRequest(
            topics=[OffsetCommitRequestTopic(name="t", partitions=[OffsetCommitRequestPartition(partition_index=p) for p in each])]
        ),
        "OffsetFetch": OffsetFetchRequest(group_id="g", topics=[OffsetFetchRequestTopic(name="t", partition_indexes=list(each))]),
        "OffsetForLeaderEpoch": OffsetForLeaderEpochRequest(
            topics=[OffsetForLeaderTopic(topic="t", partitions=[OffsetForLeaderPartition(partition=p) for p in each])]
        ),
        "Metadata": MetadataRequest(topics=[MetadataRequestTopic(name=f"t{p}") for p in each]),
        "FindCoordinator": FindCoordinatorRequest(coordinator_keys=[f"g{p}" for p in each]),
        "DescribeGroups": DescribeGroupsRequest(groups=[f"g{p}" for p in each]),
    }


def _answer(api: Api, version: int, count: int) -> bytes:
    """One with so many elements in each innermost array of what was asked for, all at their defaults."""

    def filled(cls: type[Struct]) -> Struct:
        made = cls()
        for field in cls.FIELDS:
            if field.asked and version in field.versions:
                assert isinstance(field.of, type)
                inner = any(f.asked and version in f.versions for f in field.of.FIELDS)
                setattr(made, field.name, [filled(field.of)] if inner else [field.of()] * count)
        return made

    return b"".join(encode_response(filled(api.response), version, 1))[4:]  # type: ignore[arg-type]


@pytest.mark.parametrize("name", _named(1))
def test_an_answer_has_no_more_partitions_than_were_asked_for(name: str) -> None:
    few, many = _named(3)[name], _named(4_000)[name]
    for version in few.API.stable.each():
        if name == "FindCoordinator" and version < 4:
            continue
        frame = _answer(few.API, version, 4_000)
        with pytest.raises(ProtocolError, match=r"more than the \d+ entries that can answer what was asked at byte \d+ of \d+"):
            decode_response(few.API, version, frame, asked=few.asked(version))
        decode_response(few.API, version, _answer(few.API, version, 3), asked=few.asked(version))
        decode_response(few.API, version, frame, asked=many.asked(version))


def test_what_asks_for_all_is_answered_with_any_number() -> None:
    assert MetadataRequest(topics=None).asked(12) is None
    assert MetadataRequest(topics=[]).asked(0) is None, "which asks for all, too"
    assert MetadataRequest(topics=[]).asked(1) == 0
    assert OffsetFetchRequest(group_id="g", topics=None).asked(8) is None
    assert FetchRequest(session_id=1, session_epoch=5).asked(12) is None, "nobody said what the session holds"
    assert FetchRequest(session_id=1, session_epoch=5, in_session=7).asked(12) == 7


def test_who_says_no_bound_reads_little() -> None:
    """A decoder that is called without read_within(): what is small, and no more."""
    _, _, frame = _of_entries(40_000)["one array"]
    read = decoder(ApiVersionsResponse, 0, False)
    with pytest.raises(Malformed, match="nobody said how many"):
        read(memoryview(frame), 4)
    read_within(40_000, read, memoryview(frame), 4)
    _, _, frame = _of_entries(1_000)["one array"]
    read(memoryview(frame), 4)


def test_a_broker_has_no_thousands_of_apis() -> None:
    with pytest.raises(ProtocolError, match="ApiVersions response v0: more than 1000 entries"):
        parse_api_versions(_of_entries(100_000)["one array"][2], 0)


def test_a_connection_holds_answers_to_what_was_asked() -> None:
    connection = Connection("b1:9092", client_id=None, broker_version="2.8.0", max_response_bytes=100 << 20, known_as="2.8.0")
    connection.connecting()
    connection.connected(0.0)
    for count, fits in ((4_000, True), (3, False)):
        connection.prepare(_named(count)["ListOffsets"], None, 0.0, 1.0)
        sent = connection.unanswered[-1]
        frame = _answer(sent.api, sent.version, 4_000)
        with contextlib.nullcontext() if fits else pytest.raises(ProtocolError, match=r"b1:9092: ListOffsets .*can answer what was asked"):
            connection.decode(sent, memoryview(frame))
