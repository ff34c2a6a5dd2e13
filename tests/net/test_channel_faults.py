"""F11, B61, B62 and section 9 of the fault list: peers that are not, or not quite, Kafka brokers. Each gives a named error in time."""

from __future__ import annotations

import contextlib
import json
import ssl
import struct
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from typing import Any

import pytest

from gkafka.broker import Broker
from gkafka.config import ClientConfig
from gkafka.exceptions import (
    ConnectionFailedError,
    KafkaException,
    KafkaTimeoutError,
    ProtocolError,
    SocketDisconnectedError,
)
from gkafka.handlers import Handler
from gkafka.net.channel import TRIES, Channel
from gkafka.wire.metadata import MetadataRequest, MetadataResponse
from tests.kit.clock import now, soon
from tests.kit.ports import refused_port
from tests.net.channel_peers import Conversation, peer

LIMIT_S = 30.0
"""By then what gives up in a second or so has given up, on a busy machine too. What it must not wait for takes two minutes."""


def channel(handler: Handler, port: int, **options: Any) -> Channel:
    return Channel(handler, "127.0.0.1", port, ClientConfig(**options))


def error_of(handler: Handler, port: int, *, timeout_s: float = 120.0, **options: Any) -> tuple[KafkaException, float]:
    """The error of one Metadata request, and the seconds until it came. The channel is closed by it, with its worker."""
    made = channel(handler, port, **options)
    began = now()
    error = made.request(MetadataRequest(topics=[]), timeout_s=timeout_s).exception(60)
    took = now() - began
    assert isinstance(error, KafkaException), error
    assert made.join(60)  # the request fails a moment before its channel is closed
    assert made.closed
    return error, took


# -- F11: start-up
def test_f11_a_peer_that_accepts_and_stays_silent_is_given_up_at_the_connect_timeout(handler: Handler) -> None:
    with peer(Conversation.stay_silent) as server:
        error, took = error_of(handler, server.port, connect_timeout_ms=800)
    assert isinstance(error, KafkaTimeoutError)
    assert "ApiVersions" in str(error)
    assert "connect_timeout_ms=800" in str(error)
    assert f"127.0.0.1:{server.port}" in str(error)
    assert 0.75 <= took < LIMIT_S


def test_f11_a_request_that_waits_for_a_silent_peer_fails_at_its_own_timeout(handler: Handler) -> None:
    with peer(Conversation.stay_silent) as server:
        made = channel(handler, server.port, connect_timeout_ms=120_000)
        began = now()
        error = made.request(MetadataRequest(topics=[]), timeout_s=0.8).exception(60)
        took = now() - began
        assert isinstance(error, KafkaTimeoutError)
        assert "Metadata" in str(error)
        assert took < LIMIT_S
        assert not made.closed, "the connection, which saw nothing of it, goes on opening"
        made.close()
        assert made.join(60)


def test_f11_a_reset_says_what_was_asked(handler: Handler) -> None:
    with peer(Conversation.reset) as server:
        error, took = error_of(handler, server.port)
        assert 1 <= server.connections <= 4
    assert isinstance(error, SocketDisconnectedError)
    assert took < LIMIT_S


def test_f11_a_peer_that_closes_on_everything_is_named_after_four_questions(handler: Handler) -> None:
    with peer(Conversation.read_frame) as server:  # and then it closes
        error, took = error_of(handler, server.port, reconnect_backoff_ms=20)
        assert server.connections == 4
    assert isinstance(error, SocketDisconnectedError)
    assert all(word in str(error) for word in ("ApiVersions", "DescribeGroups", "ListOffsets", "security_protocol='PLAINTEXT'"))
    assert took >= 0.05, "the backoff lies between the questions"


def test_f11_a_closed_port_is_named(handler: Handler) -> None:
    port = refused_port()
    error, took = error_of(handler, port)
    assert isinstance(error, ConnectionFailedError)
    assert str(port) in str(error)
    assert "refused" in str(error).lower()
    assert took < LIMIT_S


def test_f11_a_web_server_is_recognised(handler: Handler) -> None:
    def serve(talk: Conversation) -> None:
        talk.read_frame()
        talk.send(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")

    with peer(serve) as server:
        error, took = error_of(handler, server.port)
    assert isinstance(error, ProtocolError)
    assert "HTTP" in str(error)
    assert took < LIMIT_S


def test_f11_a_tls_alert_is_recognised(handler: Handler) -> None:
    def serve(talk: Conversation) -> None:
        talk.read_frame()
        talk.send(bytes.fromhex("15030100020246"))

    with peer(serve) as server:
        error, took = error_of(handler, server.port)
    assert isinstance(error, ProtocolError)
    assert "security_protocol='SSL'" in str(error)
    assert took < LIMIT_S


def test_f11_a_real_tls_listener_gives_an_error_that_speaks_of_security_protocol(handler: Handler) -> None:
    def serve(talk: Conversation) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.wrap_socket(talk.sock, server_side=True)

    with peer(serve) as server:
        error, took = error_of(handler, server.port, reconnect_backoff_ms=10)
    assert isinstance(error, (ProtocolError, SocketDisconnectedError))
    assert "security_protocol" in str(error)
    assert took < LIMIT_S


def test_f11_open_then_silent_is_found_at_the_request_timeout_and_names_api_broker_and_seconds(handler: Handler) -> None:
    def serve(talk: Conversation) -> None:
        talk.negotiate()
        talk.stay_silent()

    with peer(serve) as server:
        made = channel(handler, server.port, socket_timeout_ms=1000)
        made.wait_open(soon(60))
        closed: list[KafkaException | None] = []
        made._on_close = lambda _, error: closed.append(error)
        began = now()
        error = made.request(MetadataRequest(topics=[]), timeout_s=1.0).exception(60)
        took = now() - began
        assert isinstance(error, KafkaTimeoutError)
        assert (error.api, error.broker) == ("Metadata", f"127.0.0.1:{server.port}")
        assert "1 s" in str(error)
        assert 0.95 <= took < LIMIT_S
        assert made.join(60)
        assert len(closed) == 1
        assert isinstance(closed[0], KafkaTimeoutError)


def test_f10_the_others_in_flight_on_a_half_open_connection_are_told_why(handler: Handler) -> None:
    def serve(talk: Conversation) -> None:
        talk.negotiate()
        talk.stay_silent()

    with peer(serve) as server:
        made = channel(handler, server.port, socket_timeout_ms=500)
        made.wait_open(soon(60))
        short = made.request(MetadataRequest(topics=[]), timeout_s=0.5)
        patient = made.request(MetadataRequest(topics=[]), timeout_s=60)
        assert isinstance(short.exception(60), KafkaTimeoutError)
        other = patient.exception(60)
        assert isinstance(other, SocketDisconnectedError)
        assert other.retriable
        assert "no answer to Metadata" in str(other)


# -- B61 and the hostile frames of section 9
def one_answer(data: Callable[[int, int], bytes]) -> Callable[[Conversation], None]:
    """Negotiate (Metadata v0), then answer the next request with data(correlation id, version), then stay."""

    def serve(talk: Conversation) -> None:
        talk.negotiate((18, 0, 4), (3, 0, 0))
        request = talk.read()
        talk.send(data(request.correlation_id, request.version))
        talk.stay_silent()

    return serve


HOSTILE = {
    "B61 negative length": (lambda cid, _: struct.pack(">i", -1), "negative"),
    "B61 smallest length": (lambda cid, _: struct.pack(">i", -(2**31)), "negative"),
    "a length of zero": (lambda cid, _: struct.pack(">i", 0), "too small"),
    "B61 2 GiB claimed": (lambda cid, _: struct.pack(">i", 2**31 - 1) + bytes(65536), "max_response_bytes"),
    "a body of zeros": (lambda cid, _: struct.pack(">i", 8) + bytes(8), "correlation id 0"),
    "wrong correlation id": (lambda cid, _: struct.pack(">iiii", 12, cid + 1, 0, 0), "correlation id"),
    "negative correlation id": (lambda cid, _: struct.pack(">iiii", 12, -cid, 0, 0), "correlation id"),
    "array count 2**31 - 1": (lambda cid, _: struct.pack(">iii", 8, cid, 2**31 - 1), "array of 2147483647"),
    "array count 2**31": (lambda cid, _: struct.pack(">iiI", 8, cid, 2**31), "-2147483648"),
    "cut short": (lambda cid, _: struct.pack(">ii", 4, cid), "Metadata"),
    "bytes too many": (lambda cid, _: struct.pack(">iiiib", 13, cid, 0, 0, 1), "too many"),
    "HTTP in mid-stream": (lambda cid, _: b"HTTP/1.1 502 Bad Gateway\r\n\r\n", "HTTP"),
    "an answer of which nothing was asked": (lambda cid, _: struct.pack(">iiii", 12, cid, 0, 0) * 2, None),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_b61_a_hostile_frame_gives_a_protocol_error_at_once_and_closes(handler: Handler, name: str) -> None:
    data, text = HOSTILE[name]
    with peer(one_answer(data)) as server:
        if text is None:
            made = channel(handler, server.port)
            assert made.request(MetadataRequest(topics=None), timeout_s=60).result(60).brokers == []
            assert made.join(60)
            assert isinstance(made.error, ProtocolError)
            return
        error, took = error_of(handler, server.port)
    assert isinstance(error, ProtocolError), error
    assert text in str(error)
    assert f"127.0.0.1:{server.port}" in str(error)
    assert took < LIMIT_S, "G17"


def test_a_drip_of_one_byte_at_a_time_does_not_stretch_the_timeout(handler: Handler) -> None:
    def drip(talk: Conversation) -> None:
        talk.negotiate((18, 0, 4), (3, 0, 0))
        request = talk.read()
        data = struct.pack(">ii", 5000, request.correlation_id) + bytes(5000)
        for at in range(len(data)):
            talk.send(data[at : at + 1])
            if talk.ended.wait(0.1):
                return

    with peer(drip) as server:
        error, took = error_of(handler, server.port, timeout_s=1.0, socket_timeout_ms=1000)
    assert isinstance(error, KafkaTimeoutError)
    assert "Metadata" in str(error)
    assert took < LIMIT_S


def test_a_drip_does_not_stretch_the_negotiation(handler: Handler) -> None:
    def drip(talk: Conversation) -> None:
        request = talk.read()
        data = struct.pack(">ii", 5000, request.correlation_id) + bytes(5000)
        for at in range(len(data)):
            talk.send(data[at : at + 1])
            if talk.ended.wait(0.1):
                return

    with peer(drip) as server:
        error, took = error_of(handler, server.port, connect_timeout_ms=800)
    assert isinstance(error, KafkaTimeoutError)
    assert took < LIMIT_S


def test_f03_a_late_answer_is_matched_to_nothing(handler: Handler) -> None:
    """The connection is gone with the request whose time was over, and its on_done was called once."""
    given_up, answered = threading.Event(), threading.Event()

    def serve(talk: Conversation) -> None:
        talk.negotiate((18, 0, 4), (3, 0, 0))
        request = talk.read()
        assert given_up.wait(60)
        try:
            talk.answer(request, MetadataResponse())
        finally:
            answered.set()

    calls: list[KafkaException | None] = []
    with peer(serve) as server:
        made = channel(handler, server.port, socket_timeout_ms=300)
        made.wait_open(soon(60))
        told = handler.Event()

        def done(response: Any, error: KafkaException | None) -> None:
            calls.append(error)
            told.set()

        made.send(MetadataRequest(topics=[]), done, timeout_s=0.3)
        assert told.wait(60)
        given_up.set()
        assert answered.wait(60)
        assert made.join(60)
        assert made.closed
    assert len(calls) == 1
    assert isinstance(calls[0], KafkaTimeoutError)


def test_a_good_session_follows_a_hostile_one(handler: Handler) -> None:
    """Fuzz invariant 8: nothing of a broken connection is left in the next one."""
    turns = iter([b"\xff" * 64, None])

    def serve(talk: Conversation) -> None:
        talk.negotiate((18, 0, 4), (3, 0, 0))
        request = talk.read()
        garbage = next(turns)
        if garbage is not None:
            talk.send(garbage)
        else:
            talk.answer(request, MetadataResponse())
        talk.stay_silent()

    with peer(serve) as server:
        assert isinstance(error_of(handler, server.port)[0], ProtocolError)
        made = channel(handler, server.port)
        assert made.request(MetadataRequest(topics=None), timeout_s=60).result(60).brokers == []
        made.close()


MEMORY_SCRIPT = """
    import json, resource, socket, struct, sys, threading
    from tests.kit.clock import soon
    from gkafka.config import ClientConfig
    from gkafka.handlers import resolve_handler
    from gkafka.net.channel import Channel
    from gkafka.wire.apis import decode_request, encode_response
    from gkafka.wire.apiversions import ApiVersion, ApiVersionsResponse
    from gkafka.wire.metadata import MetadataRequest

    kind, limit, sent_mib = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    listener = socket.create_server(("127.0.0.1", 0))

    def frame(sock):
        data = b""
        while len(data) < 4 or len(data) < 4 + struct.unpack(">i", data[:4])[0]:
            data += sock.recv(65536)
        return decode_request(data[4:])

    def serve():
        sock, _ = listener.accept()
        request = frame(sock)
        keys = [ApiVersion(api_key=3, min_version=0, max_version=0)]
        sock.sendall(b"".join(encode_response(ApiVersionsResponse(api_keys=keys), request.version, request.correlation_id)))
        request = frame(sock)
        try:
            sock.sendall(struct.pack(">ii", 2**31 - 1, request.correlation_id))
            for _ in range(sent_mib * 16):
                sock.sendall(bytes(65536))
        except OSError:
            pass
        done.wait(60)
        sock.close()

    done = threading.Event()
    threading.Thread(target=serve, daemon=True).start()
    handler = resolve_handler(kind)
    channel = Channel(handler, "127.0.0.1", listener.getsockname()[1], ClientConfig(max_response_bytes=limit, socket_timeout_ms=1000))
    channel.wait_open(soon(60))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    error = channel.request(MetadataRequest(topics=None), timeout_s=1.0).exception(60)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    done.set()
    channel.close()
    print(json.dumps([type(error).__name__, str(error), grown]))
"""


@pytest.mark.parametrize("kind", ["threading", "gevent"])
@pytest.mark.parametrize(
    ("limit", "sent_mib", "error", "grown_kib"),
    [(100 << 20, 64, "ProtocolError", 4 << 10), (2**31 - 1, 8, "KafkaTimeoutError", 24 << 10)],
    ids=["refused before memory is taken", "allowed: grows by what arrives"],
)
def test_b61_b62_a_claim_of_2_gib_takes_little_memory(kind: str, limit: int, sent_mib: int, error: str, grown_kib: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(MEMORY_SCRIPT), kind, str(limit), str(sent_mib)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    name, text, grown = json.loads(done.stdout)
    assert name == error, text
    assert grown <= grown_kib, f"{grown} KiB"


# -- signals in a row
def test_everybody_is_told_though_signals_come_in_a_row_as_it_is_closed(handler: Handler, monkeypatch: pytest.MonkeyPatch) -> None:
    with peer(Conversation.stay_silent) as server:
        made = channel(handler, server.port)
        answers = [made.request(MetadataRequest(topics=[]), timeout_s=120.0) for _ in range(3)]
        whole, hits = made._end_as, ["before it", "behind it", "before it"]

        def interrupted(end: Any) -> None:
            where = hits.pop() if hits else "nowhere"
            if where != "before it":
                whole(end)
            if where != "nowhere":
                raise KeyboardInterrupt

        monkeypatch.setattr(made, "_end_as", interrupted)
        with pytest.raises(KeyboardInterrupt):
            made.close()
        assert not hits
        for answer in answers:
            assert isinstance(answer.exception(60), SocketDisconnectedError)
        assert made.join(60)


def test_a_reader_that_is_interrupted_as_it_closes_the_connection_closes_it(handler: Handler, monkeypatch: pytest.MonkeyPatch) -> None:
    if handler.cooperative:
        monkeypatch.setattr("gkafka.handlers.hubs.goes_to_main", lambda *_: True)  # what a signal raises; here it stays
        monkeypatch.setattr("gkafka.handlers.greenlets.goes_to_main", lambda *_: True)
    with peer(Conversation.stay_silent) as server:
        made = channel(handler, server.port, connect_timeout_ms=300)
        shut, hits = made._shut, [0]

        def interrupted(error: KafkaException | None) -> None:
            if hits:
                hits.pop()
                raise KeyboardInterrupt
            shut(error)

        monkeypatch.setattr(made._reader, "_shut", interrupted)
        answer = made.request(MetadataRequest(topics=[]), timeout_s=120.0)
        assert isinstance(answer.exception(60), KafkaException)
        assert not hits
        assert made.closed


def test_a_broker_is_connected_again_though_nobody_has_finished_the_end_of_its_connection(
    handler: Handler, monkeypatch: pytest.MonkeyPatch
) -> None:
    with peer(Conversation.stay_silent) as server:
        broker = Broker(1, "127.0.0.1", server.port, handler, 1000, 1000)
        made = broker.channel("control")
        told, hits = made._call_on_close, list(range(TRIES))

        def interrupted(error: KafkaException | None) -> None:
            if hits:
                hits.pop()
                raise KeyboardInterrupt
            told(error)

        monkeypatch.setattr(made, "_call_on_close", interrupted)
        with pytest.raises(KeyboardInterrupt):
            made.close()
        assert made.closed
        with pytest.raises(ConnectionFailedError, match="being given up"):
            broker.channel("control")
        again, deadline = None, now() + 60
        while again is None:
            assert now() < deadline
            handler.sleep(0.05)
            assert broker.ready_at > 0, "whoever looks at it does the rest"
            with contextlib.suppress(ConnectionFailedError):
                again = broker.channel("control")
        assert again is not made
        again.close()
        assert made.join(60)
        assert again.join(60)
