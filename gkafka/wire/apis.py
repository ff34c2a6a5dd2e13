"""Whole frames: sizes, headers, and the table of the APIs.

A frame is an int32 size, a header and a message. The header's version follows from the message's: requests have version 1, flexible ones 2;
responses 0, flexible ones 1, but those of ApiVersions always 0 (KIP-511).

Source: RequestHeader.json, ResponseHeader.json; KIP-482
"""

from __future__ import annotations

import struct
from functools import cache, lru_cache
from typing import NamedTuple, NoReturn

from gkafka.exceptions import KafkaException, ProtocolError, RecordTooLarge, UnsupportedVersion
from gkafka.wire import admin, apiversions, consumergroups, epochs, fetch, groups, metadata, offsets, produce, sasl, txn
from gkafka.wire.apiversions import ApiVersionsResponse
from gkafka.wire.codec import decoder, encoder, explain
from gkafka.wire.primitives import Buffer, Crowded, Malformed, Reader, Writer, read_within
from gkafka.wire.schema import Api, Message, Struct, string
from gkafka.wire.versions import Versions

__all__ = [
    "APIS",
    "MOST_ENTRIES",
    "Api",
    "Buffer",
    "Message",
    "Request",
    "RequestHeader",
    "TooManyEntries",
    "Versions",
    "api_of",
    "decode_request",
    "decode_request_header",
    "decode_response",
    "encode_request",
    "encode_response",
    "parse_api_versions",
]

APIS: dict[int, Api] = {
    cls.API.key: cls.API
    for cls in (
        produce.ProduceRequest,
        fetch.FetchRequest,
        offsets.ListOffsetsRequest,
        metadata.MetadataRequest,
        offsets.OffsetCommitRequest,
        offsets.OffsetFetchRequest,
        groups.FindCoordinatorRequest,
        groups.JoinGroupRequest,
        groups.HeartbeatRequest,
        groups.LeaveGroupRequest,
        groups.SyncGroupRequest,
        groups.DescribeGroupsRequest,
        groups.ListGroupsRequest,
        consumergroups.ConsumerGroupHeartbeatRequest,
        consumergroups.ConsumerGroupDescribeRequest,
        apiversions.ApiVersionsRequest,
        admin.CreateTopicsRequest,
        admin.DeleteTopicsRequest,
        txn.InitProducerIdRequest,
        epochs.OffsetForLeaderEpochRequest,
        txn.AddPartitionsToTxnRequest,
        txn.AddOffsetsToTxnRequest,
        txn.EndTxnRequest,
        txn.TxnOffsetCommitRequest,
        sasl.SaslHandshakeRequest,
        sasl.SaslAuthenticateRequest,
    )
}
"""All but those of administration (`gkafka.wire.adminapis`)."""
API_VERSIONS = ApiVersionsResponse.API
UNSUPPORTED_VERSION = UnsupportedVersion.code
MAX_FRAME = 2**31 - 1
TOPIC_AND_PARTITION, SPARE = 2, 8
"""A broker may name a topic anew for each of its partitions; and what is asked for may stand in no array."""
MOST_ENTRIES = 100_000
"""Of a message that is read without a bound of its own."""
MOST_TAGS = 1_000
"""Of a header."""
FEW_ENTRIES = 1_000
"""Of the answer to ApiVersions: Kafka 4.2 has 90 APIs."""

_size = struct.Struct(">i")
_request_start = struct.Struct(">hhi")
_request_head = struct.Struct(">ihhi")
_response_start = struct.Struct(">i")
_error_start = struct.Struct(">ih")


class _ClientId(Struct):
    """The rest of a request's header: a classic string even where the message is flexible."""

    client_id: str | None = string(nullable="0+", default=None)


class _NoFields(Struct):
    """The tagged fields that end a flexible header."""


class RequestHeader(NamedTuple):
    """The part of a request's header that stands at the same place in every version."""

    api_key: int
    version: int
    correlation_id: int


class TooManyEntries(ProtocolError):
    """The message has more entries than whoever reads it allows."""


class Request(NamedTuple):
    """A request as a server sees it."""

    api: Api
    version: int
    correlation_id: int
    client_id: str | None
    message: Message


def api_of(key: int) -> Api:
    """The API with this key, those of administration too. Raises UnsupportedVersion for one that the tables lack."""
    found = APIS.get(key)
    if found is None:
        from gkafka.wire.adminapis import ADMIN_APIS  # tables that most programs never use

        found = ADMIN_APIS.get(key)
    if found is None:
        raise UnsupportedVersion(f"API {key} is not known here")
    return found


# -- writing -----------------------------------------------------------------------------------------------------------
def encode_request(request: Message, version: int, correlation_id: int, client_id: str | None) -> list[Buffer]:
    """The whole frame, as buffers that make it up one after the other. Large bytes and records fields are the caller's own, uncopied.

    Raises UnsupportedVersion for a field that the version cannot hold, SerializationError for a value that is not of its field's type.
    """
    api = request.API
    flexible = _shape(api, version).flexible
    out = Writer()
    out.tail += _request_head.pack(0, api.key, version, correlation_id) + _client_id(client_id)
    if flexible:
        out.tail.append(0)  # no tagged fields in the header
    return _encode(out, request, version, flexible)


@lru_cache(maxsize=64)
def _client_id(client_id: str | None) -> bytes:
    out = Writer()
    encoder(_ClientId, 0, False)(out, _ClientId(client_id=client_id))
    return bytes(out.tail)


def encode_response(response: Message, version: int, correlation_id: int) -> list[Buffer]:
    """The whole frame, as `encode_request` gives it."""
    out = Writer()
    out.tail += _size.pack(0) + _response_start.pack(correlation_id)
    shape = _shape(response.API, version)
    if shape.tagged_header:
        out.tail.append(0)
    return _encode(out, response, version, shape.flexible)


class Shape(NamedTuple):
    """How the messages of an API stand at a version. tagged_header: a response's header ends with tagged fields."""

    flexible: bool
    tagged_header: bool
    decode: Reader


@cache
def _shape(api: Api, version: int) -> Shape:
    """Raises UnsupportedVersion if the tables lack the version."""
    if version not in api.versions:
        raise UnsupportedVersion(f"{api.name} v{version}: gkafka speaks v{api.versions}", api=api.name)
    flexible = version in api.flexible
    return Shape(flexible, flexible and api is not API_VERSIONS, decoder(api.response, version, flexible))


def _encode(out: Writer, message: Message, version: int, flexible: bool) -> list[Buffer]:
    api = message.API
    message = message.for_version(version)
    start = out.tail
    try:
        encoder(type(message), version, flexible)(out, message)
    except KafkaException:
        raise
    except Exception as error:  # whatever a wrong type leads to: find the field and name it
        named = explain(message, version, flexible)
        named.api = api.name
        raise named from error
    frame = out.finish()
    size = (len(start) if len(frame) == 1 else sum(map(len, frame))) - _size.size
    if size > MAX_FRAME:
        raise RecordTooLarge(f"a {api.name} of {size} bytes; a frame holds {MAX_FRAME}", api=api.name)
    _size.pack_into(start, 0, size)
    return frame


# -- reading -----------------------------------------------------------------------------------------------------------
def decode_response(
    api: Api, version: int, frame: Buffer, *, most_entries: int = MOST_ENTRIES, asked: int | None = None
) -> tuple[int, Message]:
    """Correlation id and response. frame: all after the size. Fields of bytes and records are slices of it, uncopied.
    most_entries: of arrays, together. asked: what the request's `asked` says.

    Raises ProtocolError, with the position, on anything that is not exactly one response; TooManyEntries for more than most_entries.
    """
    shape = _shape(api, version)
    frame = memoryview(frame).cast("B")
    try:
        (correlation_id,) = _response_start.unpack_from(frame)
        position = _response_start.size
        if shape.tagged_header:
            position = position + 1 if len(frame) > position and not frame[position] else _after_tags(frame, position)
        most_asked = None if asked is None else asked * TOPIC_AND_PARTITION + SPARE
        response, end = read_within(most_entries, shape.decode, frame, position, most_asked)
    except struct.error:
        raise ProtocolError(f"{api.name} response v{version}: {len(frame)} bytes are no header", api=api.name) from None
    except Malformed as error:
        _refuse(api, f"{api.name} response v{version}", frame, error)
    if end != len(frame):
        raise ProtocolError(
            f"{api.name} response v{version}: {len(frame) - end} bytes too many at byte {end} of {len(frame)}", api=api.name
        )
    return correlation_id, response


def _after_tags(frame: memoryview, position: int) -> int:
    """The position behind a flexible header's tagged fields."""
    _, position = read_within(MOST_TAGS, decoder(_NoFields, 0, True), frame, position, why="no header needs so many")
    return position


def parse_api_versions(frame: Buffer, version: int) -> tuple[int, ApiVersionsResponse]:
    """Correlation id and response to an ApiVersionsRequest of `version`.

    A broker that does not have the version answers error 35 in the shape of version 0 (KIP-511), in that of `version`, or in none at all
    (librdkafka's mock cluster). So with error 35 the rest is not read: the answer has no `api_keys`, and the caller asks again at version 0.
    """
    frame = memoryview(frame).cast("B")
    if len(frame) >= _error_start.size:
        correlation_id, error_code = _error_start.unpack_from(frame)
        if error_code == UNSUPPORTED_VERSION:
            return correlation_id, ApiVersionsResponse(error_code=error_code)
    correlation_id, response = decode_response(API_VERSIONS, version, frame, most_entries=FEW_ENTRIES)
    assert isinstance(response, ApiVersionsResponse)
    return correlation_id, response


def decode_request_header(frame: Buffer) -> RequestHeader:
    """API key, version and correlation id of a request whose API or version may be unknown. frame: all after the size."""
    try:
        return RequestHeader(*_request_start.unpack_from(frame))
    except struct.error:
        raise ProtocolError(f"{len(frame)} bytes are no request header") from None


def decode_request(frame: Buffer) -> Request:
    """A request, on the server's side. frame: all after the size.

    Raises UnsupportedVersion if the tables lack the API or the version (`decode_request_header` still reads the start), else ProtocolError.
    """
    key, version, correlation_id = decode_request_header(frame)
    api = api_of(key)
    flexible = _shape(api, version).flexible
    frame = memoryview(frame).cast("B")
    what = f"{api.name} request v{version}"
    try:
        start, position = decoder(_ClientId, 0, False)(frame, _request_start.size)
        if flexible:
            position = _after_tags(frame, position)
        message, end = read_within(MOST_ENTRIES, decoder(api.request, version, flexible), frame, position)
    except Malformed as error:
        _refuse(api, what, frame, error)
    if end != len(frame):
        raise ProtocolError(f"{what}: {len(frame) - end} bytes too many at byte {end} of {len(frame)}", api=api.name)
    return Request(api, version, correlation_id, start.client_id, message)


def _refuse(api: Api, what: str, frame: memoryview, error: Malformed) -> NoReturn:
    kind = TooManyEntries if isinstance(error, Crowded) else ProtocolError
    raise kind(f"{what}: {error} at byte {error.position} of {len(frame)}", api=api.name) from None
