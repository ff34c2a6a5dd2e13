"""What is fuzzed: for each decoder a function of bytes, right inputs to begin with, and what may come out of it: values, or errors of gkafka."""

from __future__ import annotations

import contextlib
import gzip
import json
import random
import struct
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from gkafka.config import ClientConfig
from gkafka.core.connection import Connection
from gkafka.core.sasl import OAuthBearer
from gkafka.core.scram import Scram, _server_first, _text
from gkafka.exceptions import KafkaException
from gkafka.handlers import ThreadingHandler
from gkafka.handlers.base import Stream
from gkafka.hosts import Proxy, parse_hosts, parse_proxy_url, parse_source_address
from gkafka.net.buffers import BufferPool, FrameReader
from gkafka.net.proxy import open_tunnel
from gkafka.net.steps import Steps
from gkafka.records import _pure
from gkafka.records.compression import compress, decompress
from gkafka.spark.offsets import parse_offsets, parse_partitions, parse_timestamps
from gkafka.wire.apis import decode_request, decode_response, encode_response, parse_api_versions
from gkafka.wire.apiversions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from gkafka.wire.consumerprotocol import read_assignment, read_cooperative_user_data, read_sticky_user_data, read_subscription
from gkafka.wire.metadata import MetadataRequest
from gkafka.zookeeper import _listener
from tests.fuzz.mutators import any_bytes, batch_bytes
from tests.records.handmade import batch, fix_crc, marker, message, record, values, wrapper
from tests.records.reading import consumed, read
from tests.wire.recorded import Golden, golden

CORPUS = Path(__file__).parent / "corpus"
Mutator = Callable[[bytes, random.Random, Sequence[bytes]], bytes]
MOST = 1 << 20
"""Bytes that decompression may give in here."""


class Target(NamedTuple):
    """run: the decoder; anything but an error of gkafka that leaves it is a finding. seeds: right inputs. mutate: (input, chance, seeds)."""

    run: Callable[[bytes], object]
    seeds: Callable[[], Sequence[bytes]]
    mutate: Mutator = any_bytes


def survives(target: Target, data: bytes) -> None:
    """Run it once. Raises what a caller must never see."""
    with contextlib.suppress(KafkaException):
        target.run(data)


def corpus(name: str) -> list[bytes]:
    """The inputs that once were findings, and others worth keeping."""
    return [path.read_bytes() for path in sorted((CORPUS / name).glob("*.bin"))]


# -- the wire ----------------------------------------------------------------------------------------------------------
@cache
def _answers() -> list[Golden]:
    return [one for one in golden() if not one.is_request]


def _response(data: bytes) -> None:
    """Two bytes say which answer, in which version; the frame follows."""
    if len(data) >= 2:
        one = _answers()[int.from_bytes(data[:2], "big") % len(_answers())]
        decode_response(one.cls.API, one.version, data[2:])


def _responses() -> list[bytes]:
    return [index.to_bytes(2, "big") + one.frame[4:] for index, one in enumerate(_answers()) if one.kind == "rich"]


def _requests() -> list[bytes]:
    return [one.frame[4:] for one in golden() if one.is_request and one.kind == "rich"]


def _api_versions(data: bytes) -> None:
    if data:
        parse_api_versions(memoryview(data)[1:], data[0] % 5)


def _api_versions_seeds() -> list[bytes]:
    return [bytes([one.version]) + one.frame[4:] for one in _answers() if one.cls is ApiVersionsRequest.API.response]


class _Inlet:
    """Bytes in pieces: the first one says how large."""

    def __init__(self, data: bytes) -> None:
        self._left, self._chance = memoryview(data)[1:], random.Random(data[0] if data else 0)

    def __call__(self, view: memoryview) -> int:
        if not self._left:
            raise KafkaException("the end")  # a new one each time: it keeps the frames it went through
        size = min(len(view), len(self._left), self._chance.choice([1, 2, 3, 7, 100, 1 << 16]))
        view[:size] = self._left[:size]
        self._left = self._left[size:]
        return size


_POOL = BufferPool(ThreadingHandler().Lock())


def _frames(data: bytes) -> None:
    """A connection that has asked five things, and bytes that come in any pieces."""
    connection = Connection("peer:1", client_id="fuzz", broker_version="0.10.0", max_response_bytes=1 << 20, software=("x", "1"), broker=1)
    connection.connecting()
    connection.connected(0.0)
    reader = FrameReader(_Inlet(data), connection.frame_size, _POOL, 4096)
    while connection.negotiated(reader.read(), 0.0):
        pass
    for _ in range(5):
        connection.prepare(MetadataRequest(topics=[]), None, 0.0, 1.0)
    while True:
        frame = reader.read()
        connection.decode(connection.take(frame), frame)


def _frames_seeds() -> list[bytes]:
    found = []
    metadata = [one for one in _answers() if one.cls.API.key == 3 and one.kind == "rich"]
    for one in metadata:
        speaks = ApiVersionsResponse(api_keys=[ApiVersion(api_key=3, min_version=one.version, max_version=one.version)])
        first = b"".join(bytes(part) for part in encode_response(speaks, 4, 1))
        frames = [bytearray(first), bytearray(one.frame), bytearray(one.frame)]
        for number, frame in enumerate(frames, 1):
            struct.pack_into(">i", frame, 4, number)
        found.append(bytes([one.version]) + b"".join(frames))
    return found


# -- records -----------------------------------------------------------------------------------------------------------
def _batches(impl: ModuleType) -> Callable[[bytes], object]:
    def run(data: bytes) -> None:
        read(impl, data, 50, max_bytes=MOST)

    return run


def _spans(impl: ModuleType) -> Callable[[bytes], object]:
    """A byte says how; the buffer follows. Spans give what their batches give one by one."""

    def run(data: bytes) -> None:
        how, rest = data[0] if data else 0, data[1:]
        sizes, offset, most = [1 + how % 3, 50], how // 8 % 4 * 2, 2 + how // 32
        one_by_one = consumed(impl, rest, sizes, offset=offset, most=1, max_bytes=MOST)
        for bound in (most, None):
            assert consumed(impl, rest, sizes, offset=offset, most=bound, max_bytes=MOST) == one_by_one

    return run


def _span_seeds() -> list[bytes]:
    ones = b"".join(values(1, base_offset=n) for n in range(12))
    mixed = (
        values(3) + batch([], base_offset=3, last_delta=2) + values(2, base_offset=6, attributes=1) + values(2, base_offset=8, attributes=8)
    )
    return [
        bytes([n * 37 % 256]) + seed
        for n, seed in enumerate([ones, mixed, mixed + marker(1, 10) + values(2, base_offset=11), *_batch_seeds()])
    ]


def _span_bytes(data: bytes, chance: random.Random, seeds: Sequence[bytes]) -> bytes:
    """One batch is changed, and what stands before and behind it is left."""
    spans, start = [0], 0
    with contextlib.suppress(KafkaException):
        while (span := _pure.span_at(data[1:], start, most=1)) is not None:
            start = span.end
            spans.append(start)
    at = chance.randrange(len(spans))
    first, last = 1 + spans[at], 1 + spans[at + 1] if at + 1 < len(spans) else len(data)
    changed = batch_bytes(data[first:last], chance, [seed[1:] for seed in seeds])
    return bytes([chance.randrange(256)]) + data[1:first] + changed + data[last:]


def _columns(impl: ModuleType) -> Callable[[bytes], object]:
    def run(data: bytes) -> None:
        impl.decode_columns(data, start_offset=0, topic="t", partition=0, headers=True, max_bytes=MOST)

    return run


def _batch_seeds() -> list[bytes]:
    records = [record(i, b"value" * (i % 9), b"key" if i % 3 else None, [(b"h", b"v"), (b"n", None)][: i % 3], i) for i in range(20)]
    plain = b"".join(records)
    packed = [_recoded(batch([compress(codec, plain)], attributes=0), codec, 20) for codec in range(1, 5)]
    old = [message(i, b"v" * i, b"k" if i % 2 else None, magic=i % 2) for i in range(6)]
    sets = [
        b"".join(old),
        wrapper([message(0, b"a", magic=1), message(1, b"b", magic=1)], 1),
        wrapper([wrapper([message(0, b"a", magic=1)], 0)], 0),
    ]
    return [
        batch(records),
        values(3) + marker(1, 3) + values(2, base_offset=4),
        *packed,
        *sets,
        batch([record(0, bytes(3000))], attributes=1),
    ]


def _recoded(data: bytes, codec: int, count: int) -> bytes:
    whole = bytearray(data)
    whole[22] = codec
    struct.pack_into(">i", whole, 23, count - 1)
    struct.pack_into(">i", whole, 57, count)
    return fix_crc(bytes(whole))


def _codec(codec: int) -> Target:
    bodies = (b"", b"x", b"value" * 50, bytes(range(256)) * 300, bytes(100_000))
    return Target(lambda data: decompress(codec, data, max_bytes=MOST), lambda: [compress(codec, body) for body in bodies])


# -- other members of the group, ZooKeeper, proxies, users ---------------------------------------------------------------
def _consumer_protocol(data: bytes) -> None:
    readers: list[Callable[[bytes], object]] = [
        lambda body: read_subscription(body, "member"),
        lambda body: read_assignment(body, "member"),
        read_sticky_user_data,
        read_cooperative_user_data,
    ]
    if data:
        readers[data[0] % len(readers)](data[1:])


def _consumer_protocol_seeds() -> list[bytes]:
    with gzip.open(Path(__file__).parents[1] / "wire" / "golden" / "golden.jsonl.gz", "rt") as lines:
        rows = [json.loads(line) for line in lines]
    kinds = {"ConsumerProtocolSubscription": 0, "ConsumerProtocolAssignment": 1}
    found = [bytes([kinds[row["message"]]]) + bytes.fromhex(row["frame"]) for row in rows if row["message"] in kinds]
    user_data = b"\0\0\0\1\0\1t\0\0\0\2\0\0\0\0\0\0\0\1\0\0\0\7"
    return [*found, b"\2" + user_data, b"\3" + user_data]


def _znode(data: bytes) -> None:
    _listener(data, "SSL" if data[:1] == b" " else "PLAINTEXT")


def _znode_seeds() -> list[bytes]:
    entries: list[Any] = [
        {"host": "h", "port": 9092, "version": 4, "jmx_port": -1},
        {"endpoints": ["PLAINTEXT://h:1", "SSL://[::1]:2"], "listener_security_protocol_map": {"INSIDE": "SSL"}, "host": None, "port": -1},
    ]
    return [json.dumps(entry).encode() for entry in entries] + [
        b" " + json.dumps(entries[1]).encode(),
        b"1" * 5000,
    ]


def _json_options(data: bytes) -> None:
    text = data.decode("utf-8", "surrogateescape")
    for parse in (parse_offsets, parse_timestamps, parse_partitions):
        try:
            parse("startingOffsets", text)
        except KafkaException:
            continue


def _json_seeds() -> list[bytes]:
    return [
        b'{"t":{"0":1,"1":-2}}',
        b'{"t":[0,1],"u":[5]}',
        b'{"t":{"0":1700000000000}}',
        b"[" * 5000,
        b'{"a":' * 5000,
        b'{"t":{"0":' + b"1" * 5000 + b"}}",
    ]


class _Heard(Stream):
    """The other end of a proxy's connection, with all that it will ever say."""

    peer = "proxy:1"
    closed = False

    def __init__(self, data: bytes) -> None:
        self._inlet = _Inlet(data)

    def recv_into(self, view: memoryview | bytearray, deadline: float | None = None) -> int:
        return self._inlet(memoryview(view))

    def try_send(self, buffers: Sequence[Any]) -> int:
        return 0

    def send_all(self, buffers: Sequence[Any], deadline: float | None = None) -> None:
        return

    def shutdown(self) -> None:
        return

    def close(self) -> None:
        return

    def fileno(self) -> int:
        return -1


def _proxy(data: bytes) -> None:
    kind = "http" if data[:1] < b"\x80" else "socks5"
    open_tunnel(_Heard(data), Proxy(kind, "proxy", 1, "u", "p"), "kafka.example", 9092, 1.0, Steps(lambda: 0.0))


def _proxy_seeds() -> list[bytes]:
    return [
        b"\0HTTP/1.1 200 OK\r\nVia: x\r\n\r\n",
        b"\1HTTP/1.1 407 No\r\n\r\n",
        b"\x80\x05\x02\x01\x00\x05\x00\x00\x01\x7f\0\0\1\x23\x84",
        b"\x81\x05\x00\x05\x00\x00\x03\x05proxy\x00\x01",
        b"\x82\x05\x00\x05\x04\x00\x04" + bytes(18),
    ]


_FIRST = b"r=abcdef,s=c2FsdA==,i=4096"


def _sasl(data: bytes) -> None:
    """What a broker says in an exchange: to a SCRAM client as the first and as the last word, and to a bearer of a token."""
    kind, body = data[:1], data[1:]
    if kind == b"b":
        OAuthBearer("token").respond(body)
        return
    scram = Scram("SCRAM-SHA-256", "user", "password", "abc")
    scram.first()
    if kind == b"l":
        scram.respond(_FIRST)
        scram.respond(body)
    elif _server_first(_text(body))[2] < 5000:  # up to a million iterations are taken, for half a second
        scram.respond(body)


def _sasl_seeds() -> list[bytes]:
    return [b"f" + _FIRST, b"lv=AAAA", b"le=other-error", b"b", b'b{"status":"invalid_token","scope":"x"}', b"f" + _FIRST + b",x=y"]


def _addresses(data: bytes) -> None:
    text = data.decode("utf-8", "surrogateescape")
    for parse in (parse_hosts, parse_proxy_url, parse_source_address):
        try:
            parse(text)
        except KafkaException:
            continue


def _options(data: bytes) -> None:
    from gkafka.config import build
    from gkafka.spark.options import parse

    name, _, value = data.decode("utf-8", "replace").partition("=")
    for use in (lambda: build(ClientConfig, {name: value}, where="fuzz"), lambda: parse({**LEAST, name: value})):
        try:
            use()
        except KafkaException:
            continue


LEAST = {"kafka.bootstrap.servers": "h:1", "subscribe": "t"}
_OPTIONS = (
    b"client_id=x",
    b"kafka.ssl.cafile=/x",
    b"startingOffsets=earliest",
    b"maxOffsetsPerTrigger=5",
    b"kafka.request.timeout.ms=9",
    b"tls_verify=1",
)


# -- all of them -------------------------------------------------------------------------------------------------------
def _implementations() -> dict[str, ModuleType]:
    found: dict[str, ModuleType] = {"python": _pure}
    try:
        from gkafka.records import _speed
    except ImportError:  # not compiled
        return found
    return {**found, "cython": _speed}


TARGETS: dict[str, Target] = {
    "responses": Target(_response, _responses),
    "requests": Target(decode_request, _requests),
    "api-versions": Target(_api_versions, _api_versions_seeds),
    "frames": Target(_frames, _frames_seeds),
    **{f"batches-{name}": Target(_batches(impl), _batch_seeds, batch_bytes) for name, impl in _implementations().items()},
    **{f"spans-{name}": Target(_spans(impl), _span_seeds, _span_bytes) for name, impl in _implementations().items()},
    **{f"columns-{name}": Target(_columns(impl), _batch_seeds, batch_bytes) for name, impl in _implementations().items()},
    **{name: _codec(codec) for codec, name in enumerate(("gzip", "snappy", "lz4", "zstd"), 1)},
    "consumer-protocol": Target(_consumer_protocol, _consumer_protocol_seeds),
    "sasl": Target(_sasl, _sasl_seeds),
    "znodes": Target(_znode, _znode_seeds),
    "json-options": Target(_json_options, _json_seeds),
    "proxies": Target(_proxy, _proxy_seeds),
    "addresses": Target(_addresses, lambda: [b"h1:9092,h2", b"[::1]:1", b"socks5://u:p%40@h:1", b"http://[::1]:80"]),
    "options": Target(_options, lambda: _OPTIONS),
}
