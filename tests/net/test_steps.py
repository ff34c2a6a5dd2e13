"""A peer that is silent in the middle of opening: errors and logs say at which step it stands, and what it said last."""

from __future__ import annotations

import contextlib
import logging
import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gkafka import KafkaClient
from gkafka.config import ClientConfig
from gkafka.exceptions import KafkaException, KafkaTimeoutError
from gkafka.handlers import Handler
from gkafka.net.channel import Channel
from gkafka.testing import Drop, MockCluster
from gkafka.testing.sasl import Sasl
from gkafka.wire.metadata import MetadataRequest
from gkafka.wire.sasl import SaslHandshakeResponse
from tests.kit.clock import now, soon
from tests.net.channel_peers import Conversation, peer
from tests.net.servers import black_hole

USER, PASSWORD = "alice", "secret of alice"
SCRAM: dict[str, Any] = {
    "security_protocol": "SASL_PLAINTEXT",
    "sasl_mechanism": "SCRAM-SHA-256",
    "sasl_username": USER,
    "sasl_password": PASSWORD,
}
NOTHING = " (last received: nothing)"
LIMIT_S = 60.0
TIMES_S = (0.2, 3.0, 30.0)
"""How long a peer is waited for: longer where a busy machine has not come to its step in time."""


# -- peers, each silent at one step ------------------------------------------------------------------------------------
@contextlib.contextmanager
def scripted(script: Callable[[Conversation], object]) -> Iterator[int]:
    def serve(talk: Conversation) -> None:
        script(talk)
        talk.stay_silent()

    with peer(serve) as server:
        yield server.port


@contextlib.contextmanager
def broker_without(api: str, when: Any = None) -> Iterator[int]:
    with MockCluster(sasl=Sasl({USER: PASSWORD})) as cluster:
        cluster.on(api, Drop(before=True), times=None, when=when)
        yield int(cluster.bootstrap.rpartition(":")[2])


def greeted(talk: Conversation) -> None:
    talk.sock.recv(100)
    talk.send(b"\x05\x00")


def greeted_with_login(talk: Conversation) -> None:
    talk.sock.recv(100)
    talk.send(b"\x05\x02")


def begins_an_answer(talk: Conversation) -> None:
    talk.read()
    talk.send(b"\0\0\1\0\0")


def begins_tls(talk: Conversation) -> None:
    talk.sock.recv(1, socket.MSG_PEEK)
    talk.send(b"\x16\x03\x03\x00\x7a\x02")


def shakes_hands_as_of_old(talk: Conversation) -> None:
    talk.negotiate((18, 0, 4), (17, 0, 0), (3, 0, 8))
    talk.answer(talk.read(), SaslHandshakeResponse(mechanisms=["SCRAM-SHA-256"]))


STEPS: dict[str, tuple[Callable[[], Any], dict[str, Any], str]] = {
    "TCP connect": (black_hole, {}, ""),
    "HTTP CONNECT": (lambda: scripted(lambda talk: None), {"proxy_url": "http://127.0.0.1:{port}"}, NOTHING),
    "SOCKS5 greeting": (lambda: scripted(lambda talk: None), {"proxy_url": "socks5://127.0.0.1:{port}"}, NOTHING),
    "SOCKS5 login": (
        lambda: scripted(greeted_with_login),
        {"proxy_url": "socks5://u:p@127.0.0.1:{port}"},
        " (last received: 2 bytes of an answer to SOCKS5 greeting)",
    ),
    "SOCKS5 CONNECT": (
        lambda: scripted(greeted),
        {"proxy_url": "socks5://127.0.0.1:{port}"},
        " (last received: 2 bytes of an answer to SOCKS5 greeting)",
    ),
    "TLS handshake": (lambda: scripted(begins_tls), {"security_protocol": "SSL"}, " (last received: 6 bytes of the server's part)"),
    "ApiVersions": (
        lambda: scripted(begins_an_answer),
        {},
        " (last received: part of an answer)",
    ),
    "ApiVersions, DescribeGroups v0": (lambda: scripted(lambda talk: None), {}, NOTHING),
    "SaslHandshake v1": (
        lambda: broker_without("SaslHandshake"),
        SCRAM,
        " (last received: the answer to ApiVersions)",
    ),
    "SaslAuthenticate v2, round 1": (
        lambda: broker_without("SaslAuthenticate"),
        SCRAM,
        " (last received: the answer to SaslHandshake v1)",
    ),
    "SaslAuthenticate v2, round 2": (
        lambda: broker_without("SaslAuthenticate", lambda request: bytes(request.message.auth_bytes).startswith(b"c=")),
        SCRAM,
        " (last received: the answer to SaslAuthenticate v2, round 1)",
    ),
    "SASL message, round 1": (lambda: scripted(shakes_hands_as_of_old), SCRAM, " (last received: the answer to SaslHandshake v0)"),
}
"""Step: a peer that is silent there, the client's options, and what the peer had said."""
TWO_QUESTIONS = "ApiVersions, DescribeGroups v0"
"""The second one is asked after a fifth of the time for connecting."""
TIMED = [
    "TCP connect",
    "SOCKS5 CONNECT",
    "TLS handshake",
    "ApiVersions",
    TWO_QUESTIONS,
    "SaslAuthenticate v2, round 2",
]
"""One for each place that tells of a time-out."""


def config_of(options: dict[str, Any], port: int, **others: Any) -> ClientConfig:
    given = {name: value.format(port=port) if name == "proxy_url" else value for name, value in options.items()}
    return ClientConfig(**given, **others)


def until(handler: Handler, ready: Callable[[], bool], what: Callable[[], object]) -> None:
    deadline = now() + LIMIT_S
    while not ready():
        assert now() < deadline, what()
        handler.sleep(0.01)


@pytest.mark.parametrize("step", [step for step in STEPS if step != TWO_QUESTIONS])
def test_whoever_gives_up_earlier_is_told_at_which_step_it_stands(handler: Handler, step: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "gkafka.net.channel")
    silent_at, options, received = STEPS[step]
    with silent_at() as port:
        made = Channel(handler, "127.0.0.1", port, config_of(options, port, connect_timeout_ms=60_000))
        made.start()
        errors: list[Any] = []
        made.send(MetadataRequest(topics=None), lambda _, error: errors.append(error), timeout_s=LIMIT_S)
        stands = f"it has been at step {step} for "
        until(handler, lambda: stands in made.standing and made.standing.endswith(f" s{received}"), lambda: made.standing)
        with pytest.raises(KafkaTimeoutError) as caught:
            made.wait_open(soon(0))
        made.close()
        assert made.join(LIMIT_S)
    assert str(caught.value).startswith(f"127.0.0.1:{port}: the connection is not open yet: {stands}")
    assert str(caught.value).endswith(f" s{received}")
    closed = [text for text in caplog.messages if "connection closed: by the client while it was being opened" in text]
    assert [f": {stands}" in text and text.endswith(received) for text in closed] == [True]
    assert made.standing == ""


@pytest.mark.parametrize("step", TIMED)
def test_a_connect_timeout_names_the_step(handler: Handler, step: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "gkafka.net.channel")
    silent_at, options, received = STEPS[step]
    told = []
    with silent_at() as port:
        for timeout_s in TIMES_S:
            made = Channel(handler, "127.0.0.1", port, config_of(options, port, connect_timeout_ms=timeout_s * 1000))
            with pytest.raises(KafkaException) as caught:
                made.wait_open(soon(LIMIT_S))
            assert made.join(LIMIT_S)
            told.append(str(caught.value))
            if (f"at step {step}{received}" in told[-1] or f"no answer to {step} within" in told[-1]) and told[-1].endswith(received):
                break
        else:
            raise AssertionError(told)
    assert any(told[-1].removeprefix(f"127.0.0.1:{port}: ") in text for text in caplog.messages)


def test_a_request_that_waits_for_the_connection_is_told_at_which_step_it_stands(handler: Handler) -> None:
    with broker_without("SaslAuthenticate") as port:
        made = Channel(handler, "127.0.0.1", port, config_of(SCRAM, port, connect_timeout_ms=60_000))
        made.start()
        until(handler, lambda: "SaslAuthenticate" in made.standing, lambda: made.standing)
        with pytest.raises(KafkaTimeoutError) as caught:
            made.request(MetadataRequest(topics=None), timeout_s=0.1).result(LIMIT_S)
        made.close()
        assert made.join(LIMIT_S)
    assert "the connection did not open: it has been at step SaslAuthenticate v2, round 1 for " in str(caught.value)


def test_a_slow_name_server_is_a_step(handler: Handler, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = handler.Event()
    monkeypatch.setattr(handler, "getaddrinfo", lambda *_: asked.wait(LIMIT_S) and [])
    made = Channel(handler, "kafka.example", 9092, ClientConfig(connect_timeout_ms=60_000))
    made.start()
    until(handler, lambda: made.standing.startswith("it has been at step name lookup for "), lambda: made.standing)
    made.close()
    asked.set()
    assert made.join(LIMIT_S)


def test_credentials_that_do_not_come_are_a_step(handler: Handler) -> None:
    asked = handler.Event()

    def token() -> str:
        asked.wait(LIMIT_S)
        return "token"

    options = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "OAUTHBEARER", "sasl_oauth_token_provider": token}
    with MockCluster(sasl=Sasl(tokens=["token"])) as cluster:
        port = int(cluster.bootstrap.rpartition(":")[2])
        made = Channel(handler, "127.0.0.1", port, config_of(options, port, connect_timeout_ms=60_000))
        made.start()
        until(handler, lambda: made.standing.startswith("it has been at step credentials of OAUTHBEARER for "), lambda: made.standing)
        asked.set()
        made.wait_open(soon(LIMIT_S))
        assert made.standing == ""
        made.close()
        assert made.join(LIMIT_S)


@pytest.mark.parametrize("name", ["threading", "gevent"])
def test_a_call_that_reaches_no_broker_in_time_says_where_each_stands(name: str) -> None:
    with broker_without("SaslHandshake") as port, KafkaClient(f"127.0.0.1:{port}", handler=name, **SCRAM) as client:
        told = []
        for timeout_s in TIMES_S:
            with pytest.raises(KafkaTimeoutError) as caught:
                client.connect(timeout_s)
            told.append(str(caught.value))
            if f"no answer yet from 127.0.0.1:{port}: it has been at step SaslHandshake v1 for " in told[-1]:
                break
        else:
            raise AssertionError(told)
