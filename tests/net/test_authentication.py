"""The channel that says who its client is: what its errors hold, what memory a stranger gets, and what the hub notices of it."""

from __future__ import annotations

import socket
import struct
import threading
import traceback
from typing import Any

import pytest

from gkafka.config import ClientConfig, Secret
from gkafka.core.scram import Scram
from gkafka.exceptions import AuthenticationError, KafkaException, ProtocolError, SocketDisconnectedError
from gkafka.handlers import Handler, resolve_handler
from gkafka.net.channel import Channel
from gkafka.testing import MockCluster, Sasl
from gkafka.wire.metadata import MetadataRequest
from tests.frames import is_ours
from tests.kit.clock import soon
from tests.net.servers import serve

USER, PASSWORD, TOKEN = "alice", "s3cret-of-alice", "t0ken.s3cret."


def channel(handler: Handler, cluster: MockCluster | int, mechanism: str = "PLAIN", **options: Any) -> Channel:
    host, port = cluster.brokers[1] if isinstance(cluster, MockCluster) else ("127.0.0.1", cluster)
    given: dict[str, Any] = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": mechanism}
    if mechanism == "OAUTHBEARER":
        given["sasl_oauth_token_provider"] = lambda: Secret(TOKEN)
    else:
        given |= {"sasl_username": USER, "sasl_password": Secret(PASSWORD)}
    return Channel(handler, host, port, ClientConfig(**given, **options))


def opened(handler: Handler, one: Channel, seconds: float = 60.0) -> Channel:
    one.wait_open(soon(seconds))
    return one


def closed(one: Channel) -> None:
    one.close()
    assert one.join(60)


@pytest.mark.parametrize("release", ["4.2", "0.10.2"])
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "OAUTHBEARER"])
def test_no_frame_of_an_authentication_error_knows_a_secret(handler: Handler, mechanism: str, release: str) -> None:
    """As tools show them that collect the local variables of a traceback. Old brokers get the secret as bytes, which show themselves."""
    with MockCluster(sasl=Sasl({USER: "another"}), versions=release) as cluster:
        one = channel(handler, cluster, mechanism)
        with pytest.raises(AuthenticationError if release == "4.2" else SocketDisconnectedError) as caught:
            opened(handler, one)
        closed(one)
    frames: list[traceback.FrameSummary] = []
    link: BaseException | None = caught.value
    while link is not None:
        frames += traceback.TracebackException.from_exception(link, capture_locals=True).stack
        link = link.__cause__
    ours = [frame for frame in frames if is_ours(frame)]
    assert any("authenticator" in frame.filename or "channel" in frame.filename for frame in ours), "the error of the exchange, not a copy"
    assert not any("s3cret" in repr(frame.locals) for frame in ours)


def test_what_was_asked_for_before_goes_out_after_the_authentication(handler: Handler) -> None:
    with MockCluster(sasl=Sasl({USER: PASSWORD})) as cluster:
        one = channel(handler, cluster)
        future = one.request(MetadataRequest(topics=[]), timeout_s=60)
        assert [broker.node_id for broker in future.result(60).brokers] == [1]
        assert [request.api for request in cluster.requests()] == ["ApiVersions", "SaslHandshake", "SaslAuthenticate", "Metadata"]
        closed(one)


def test_a_refusal_fails_all_that_waited_with_it(handler: Handler) -> None:
    with MockCluster(sasl=Sasl({USER: "another"})) as cluster:
        one = channel(handler, cluster)
        futures = [one.request(MetadataRequest(topics=[]), timeout_s=60) for _ in range(3)]
        for future in futures:
            with pytest.raises(AuthenticationError):
                future.result(60)
        assert not one.was_open
        closed(one)


@pytest.mark.parametrize(
    ("size", "text"),
    [
        ((1 << 20) + 1, "more than the 1048576 that are accepted before the connection is open"),
        (2**31 - 1, "more than the"),
        (-5, "negative"),
    ],
)
def test_a_stranger_that_claims_a_large_answer_gets_no_memory(handler: Handler, size: int, text: str) -> None:
    """Before it is authenticated, whatever max_response_bytes allows later."""
    versions = struct.pack(">ihi", 1, 0, 2) + struct.pack(">hhhhhh", 17, 0, 1, 36, 0, 0)

    def talk(conn: socket.socket) -> None:
        conn.recv(65536)
        conn.sendall(struct.pack(">iih", 6, 1, 35))  # asked again at version 0
        conn.recv(65536)
        answer = struct.pack(">i", 2) + versions[4:]
        conn.sendall(struct.pack(">i", len(answer)) + answer)
        conn.recv(65536)
        conn.sendall(struct.pack(">i", size) + b"x" * 100)
        conn.recv(65536)

    with serve(talk) as port:
        one = channel(handler, port)
        with pytest.raises(ProtocolError, match=text):
            opened(handler, one)
        closed(one)


def test_an_answer_to_another_request_ends_the_authentication(handler: Handler) -> None:
    def talk(conn: socket.socket) -> None:
        conn.recv(65536)
        conn.sendall(struct.pack(">iih", 6, 1, 35))
        conn.recv(65536)
        answer = struct.pack(">ihi", 2, 0, 2) + struct.pack(">hhhhhh", 17, 0, 1, 36, 0, 0)
        conn.sendall(struct.pack(">i", len(answer)) + answer)
        conn.recv(65536)
        conn.sendall(struct.pack(">iihi", 10, 99, 0, 0))

    with serve(talk) as port:
        one = channel(handler, port)
        with pytest.raises(ProtocolError, match=r"correlation id 99 came where SaslHandshake \(3\)"):
            opened(handler, one)
        closed(one)


def test_a_password_goes_to_no_peer_that_does_not_answer_the_handshake(handler: Handler) -> None:
    """A broker that has no ApiVersions is not taken for an old one: nothing is sent to it but the question."""
    heard: list[bytes] = []

    def talk(conn: socket.socket) -> None:
        heard.append(conn.recv(65536))

    with serve(talk) as port:
        one = channel(handler, port)
        with pytest.raises(SocketDisconnectedError, match="closes the connection when asked ApiVersions"):
            opened(handler, one)
        closed(one)
    assert 1 <= len(heard) <= 2
    assert not any(PASSWORD.encode() in said for said in heard)


def test_a_broker_that_asks_for_the_most_iterations_keeps_no_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its salted password is computed in a thread of its own."""
    computed_in: list[int] = []
    respond = Scram.respond

    def noted(self: Scram, challenge: bytes) -> bytes | None:
        computed_in.append(threading.get_ident())
        return respond(self, challenge)

    monkeypatch.setattr(Scram, "respond", noted)
    handler = resolve_handler("gevent")
    with MockCluster(sasl=Sasl({USER: PASSWORD}, iterations=1_000_000)) as cluster:
        closed(opened(handler, channel(handler, cluster, "SCRAM-SHA-256", connect_timeout_ms=60_000)))
    assert handler.stop(soon(60))
    assert len(computed_in) == 2
    assert threading.get_ident() not in computed_in


def test_closing_while_credentials_are_asked_for(handler: Handler) -> None:
    with MockCluster(sasl=Sasl(tokens=[TOKEN])) as cluster:
        asked, closed = handler.Event(), handler.Event()

        def slow() -> str:
            asked.set()
            closed.wait(60)
            return TOKEN

        host, port = cluster.brokers[1]
        config = ClientConfig(security_protocol="SASL_PLAINTEXT", sasl_mechanism="OAUTHBEARER", sasl_oauth_token_provider=slow)
        one = Channel(handler, host, port, config)
        one.start()
        assert asked.wait(60)
        one.close()
        closed.set()
        with pytest.raises(KafkaException):
            opened(handler, one)
        assert one.join(60)
        assert cluster.count("SaslAuthenticate") == 0
