"""Tokens by client credentials: what is asked of the endpoint, what is believed of its answers, and how long it may take."""

from __future__ import annotations

import base64
import json
import pathlib
import socket
import threading
import time
import traceback
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gkafka.cluster import Cluster
from gkafka.config import ClientConfig, Secret
from gkafka.exceptions import AuthenticationError, ConfigurationError, KafkaException, TlsError, TokenEndpointError, causes
from gkafka.handlers import Handler
from gkafka.net.oidc import AGAIN_S, LONGEST_ANSWER, TokenEndpoint
from gkafka.sasloptions import check_sasl, token_endpoint
from gkafka.testing import MockCluster, Sasl
from tests.kit.clock import now, soon
from tests.net.certificates import Certificates
from tests.net.servers import refused_port, serve

CLIENT_SECRET = "s3cret of/the+client"


@pytest.fixture(scope="module")
def certs(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


class Issuer:
    """An https server that answers each request with `answer`, and keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.port = 0
        self.delay_s = 0.0
        self.answer: bytes | Callable[[], bytes] = token_answer("t0ken")

    def talk(self, conn: socket.socket) -> None:
        request = b""
        while b"\r\n\r\n" not in request or len(request.partition(b"\r\n\r\n")[2]) < _length(request):
            data = conn.recv(65536)
            if not data:
                return
            request += data
        self.asked.append(request.decode())
        time.sleep(self.delay_s)
        conn.sendall(self.answer() if callable(self.answer) else self.answer)


def _length(request: bytes) -> int:
    return int(request.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])


def token_answer(token: str, status: str = "200 OK", **fields: Any) -> bytes:
    body = json.dumps({"access_token": token, "token_type": "Bearer", "expires_in": 3600, **fields}).encode()
    return f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


@pytest.fixture
def issuer(certs: Certificates) -> Iterator[Issuer]:
    made = Issuer()
    context = certs.server()
    with serve(made.talk, wrap=lambda conn: context.wrap_socket(conn, server_side=True)) as made.port:
        yield made


def config(issuer: Issuer, certs: Certificates | None, **options: Any) -> ClientConfig:
    given = {
        "security_protocol": "SASL_SSL",
        "sasl_oauth_token_endpoint_url": f"https://localhost:{issuer.port}/oauth2/token?tenant=1",
        "sasl_oauth_client_id": "the client",
        "sasl_oauth_client_secret": Secret(CLIENT_SECRET),
        "sasl_oauth_cafile": None if certs is None else certs.ca,
    }
    return ClientConfig(sasl_mechanism="OAUTHBEARER", **{**given, **options})


def endpoint(handler: Handler, issuer: Issuer, certs: Certificates, **options: Any) -> TokenEndpoint:
    made = config(issuer, certs, **options)
    check_sasl(made)
    return TokenEndpoint(handler, made)


def ask(handler: Handler, tokens: TokenEndpoint, seconds: float = 60.0) -> str:
    return tokens.token(soon(seconds)).reveal()


def test_the_endpoint_is_asked_as_rfc_6749_says(handler: Handler, certs: Certificates, issuer: Issuer) -> None:
    """sasl_oauth_token_endpoint_url, sasl_oauth_client_id, sasl_oauth_client_secret, sasl_oauth_scope, sasl_oauth_cafile."""
    assert ask(handler, endpoint(handler, issuer, certs, sasl_oauth_scope="kafka read")) == "t0ken"
    (request,) = issuer.asked
    head, _, body = request.partition("\r\n\r\n")
    lines = head.split("\r\n")
    assert lines[:2] == ["POST /oauth2/token?tenant=1 HTTP/1.1", f"Host: localhost:{issuer.port}"]
    sent = next(line for line in lines if line.startswith("Authorization: Basic "))
    assert base64.b64decode(sent.split()[2]) == b"the+client:s3cret+of%2Fthe%2Bclient"
    assert body == "grant_type=client_credentials&scope=kafka+read"


def test_a_secret_may_be_a_function(handler: Handler, certs: Certificates, issuer: Issuer) -> None:
    ask(handler, endpoint(handler, issuer, certs, sasl_oauth_client_secret=lambda: "other"))
    assert base64.b64encode(b"the+client:other").decode() in issuer.asked[0]


def test_a_token_is_used_for_four_fifths_of_its_life(
    handler: Handler, certs: Certificates, issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens, later = iter("abcdef"), 0
    monkeypatch.setattr(handler, "monotonic", lambda: soon(later))
    issuer.answer = lambda: token_answer(next(tokens), expires_in=10_000)
    source = endpoint(handler, issuer, certs)
    assert [ask(handler, source) for _ in range(5)] == ["a"] * 5
    later = 7_900
    assert ask(handler, source, later + 60) == "a"
    later = 8_001
    assert ask(handler, source, later + 60) == "b"


@pytest.mark.parametrize("lifetime", [0, -5, None, "soon", [], float("nan"), 10**400])
def test_a_lifetime_that_makes_no_sense_keeps_no_token_for_long(
    handler: Handler, certs: Certificates, issuer: Issuer, lifetime: Any
) -> None:
    issuer.answer = token_answer("t0ken", expires_in=lifetime)
    source = endpoint(handler, issuer, certs)
    assert ask(handler, source) == "t0ken"
    assert source._token is not None
    assert source._token.fresh_until <= now() + 60


def test_those_who_need_a_token_at_once_wait_for_one_answer(handler: Handler, certs: Certificates, issuer: Issuer) -> None:
    issuer.delay_s = 0.3
    source = endpoint(handler, issuer, certs)
    got: list[str] = []
    workers = [handler.spawn(lambda: got.append(ask(handler, source)), _name=f"asker-{n}") for n in range(5)]
    for worker in workers:
        assert worker.join(60)
    assert (got, len(issuer.asked)) == (["t0ken"] * 5, 1)


@pytest.mark.parametrize(
    ("answer", "error", "text"),
    [
        (
            token_answer("", "401 Unauthorized", error="invalid_client", error_description="no\x1bsuch"),
            AuthenticationError,
            r"401: invalid_client: no\\x1bsuch",
        ),
        (
            token_answer("", "401 Unauthorized", error_description=f"invalid client secret '{CLIENT_SECRET}'"),
            AuthenticationError,
            r"invalid client secret '\*\*\*'",
        ),
        (token_answer("", "400 Bad Request", error=["x"]), AuthenticationError, "400; check"),
        (token_answer("x", "302 Found"), AuthenticationError, "302; no redirect is followed: give as sasl_oauth_token_endpoint_url"),
        (token_answer("x", "503 Busy", error="later"), TokenEndpointError, "503: later"),
        (token_answer("x", "429 Slow"), TokenEndpointError, "429"),
        (token_answer(""), AuthenticationError, "no access_token"),
        (token_answer(7), AuthenticationError, "no access_token"),  # type: ignore[arg-type]
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]", AuthenticationError, "no access_token"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 60000\r\n\r\n" + b"[" * 60000, AuthenticationError, "no access_token"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{", TokenEndpointError, "IncompleteRead"),
        (b"SSH-2.0-OpenSSH\r\n", TokenEndpointError, "BadStatusLine"),
        (b"", TokenEndpointError, "RemoteDisconnected"),
        (b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * (LONGEST_ANSWER + 1), TokenEndpointError, f"more than {LONGEST_ANSWER} bytes"),
        (b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 300, TokenEndpointError, "100 headers"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\nx", TokenEndpointError, "no answer that can be read"),
    ],
    ids=lambda value: value[:30].decode("latin1") if isinstance(value, bytes) else "",
)
def test_an_answer_that_gives_no_token_is_told(
    handler: Handler, certs: Certificates, issuer: Issuer, answer: bytes, error: type[Exception], text: str
) -> None:
    issuer.answer = answer
    with pytest.raises(error, match=f"token endpoint localhost:{issuer.port}.*{text}") as caught:
        ask(handler, endpoint(handler, issuer, certs))
    assert type(caught.value) is error
    assert CLIENT_SECRET not in str(caught.value)


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nFFFFFFFFFFFFFF\r\n{}",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1234567890\r\n{}",
    ],
    ids=["length-1e20", "length-1e11", "chunk-2e56", "chunk-7e10"],
)
def test_a_length_that_an_endpoint_claims_takes_no_memory(handler: Handler, certs: Certificates, issuer: Issuer, answer: bytes) -> None:
    """It was an OverflowError, a MemoryError, or that much of memory."""
    issuer.answer = answer
    tracemalloc.start()
    try:
        with pytest.raises(TokenEndpointError, match=f"token endpoint localhost:{issuer.port}: no answer that can be read: IncompleteRead"):
            ask(handler, endpoint(handler, issuer, certs))
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "begin",
    [b"XTTP ", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"HTTP/1.1 \x1b[31m\x85 "],
    ids=["no-http", "chunk", "controls"],
)
@pytest.mark.parametrize(
    "said", [CLIENT_SECRET, "s3cret+of%2Fthe%2Bclient", base64.b64encode(b"the+client:s3cret+of%2Fthe%2Bclient").decode()]
)
def test_what_is_no_answer_is_told_on_one_line_and_repeats_no_secret(
    handler: Handler, certs: Certificates, issuer: Issuer, begin: bytes, said: str
) -> None:
    issuer.answer = begin + f"{said}\r\n\r\n".encode()
    with pytest.raises(TokenEndpointError, match="no answer that can be read") as caught:
        ask(handler, endpoint(handler, issuer, certs))
    assert str(caught.value).isprintable()
    told = "".join(traceback.format_exception(caught.value)) + repr(list(causes(caught.value)))
    middle = len(said) // 2
    assert said[-12:] not in told
    assert said[middle - 5 : middle + 5] not in told


@pytest.mark.parametrize("token", ["a\nb", "a\x01auth=Bearer b", "\u00e4", "\ud800", " "])
def test_a_token_that_cannot_be_sent_is_the_endpoints_and_is_asked_for_anew(
    handler: Handler, certs: Certificates, issuer: Issuer, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was kept for its life, and told as if a function of the user's had given it."""
    monkeypatch.setattr("gkafka.net.oidc.AGAIN_S", 0.1)
    issuer.answer = token_answer(token)
    tokens = endpoint(handler, issuer, certs)
    with pytest.raises(AuthenticationError, match=f"token endpoint localhost:{issuer.port}: its access_token holds characters"):
        ask(handler, tokens)
    issuer.answer = token_answer("t0ken")
    handler.sleep(0.3)  # a loop's timer may be early
    assert ask(handler, tokens) == "t0ken"


def test_an_endpoint_in_trouble_is_not_asked_by_each_connection(handler: Handler, certs: Certificates, issuer: Issuer) -> None:
    tokens = endpoint(handler, issuer, certs)
    issuer.answer = token_answer("x", "503 Busy", error="later")
    for _ in range(5):
        with pytest.raises(TokenEndpointError, match=f"token endpoint localhost:{issuer.port}: HTTP status 503: later"):
            ask(handler, tokens)
    assert len(issuer.asked) == 1
    issuer.answer = token_answer("t0ken")
    handler.sleep(AGAIN_S)
    assert ask(handler, tokens) == "t0ken"


@pytest.mark.parametrize("error", [ValueError, OSError, LookupError])
def test_a_function_for_the_secret_that_fails_is_named_and_not_the_endpoint(
    handler: Handler, certs: Certificates, issuer: Issuer, error: type[Exception]
) -> None:
    def fails() -> str:
        raise error("no vault")

    with pytest.raises(AuthenticationError, match=f"^sasl_oauth_client_secret gave no secret: it raised {error.__name__}$") as caught:
        ask(handler, endpoint(handler, issuer, certs, sasl_oauth_client_secret=fails))
    assert type(caught.value.__cause__) is error
    assert issuer.asked == []


@pytest.mark.parametrize("hosts", [1, 2])
def test_a_client_names_the_endpoint_and_not_the_brokers(handler: Handler, certs: Certificates, issuer: Issuer, hosts: int) -> None:
    """The endpoint is asked once, and nobody else is blamed."""
    issuer.answer = token_answer("x", "503 Busy", error="later")
    given = config(issuer, certs, security_protocol="SASL_PLAINTEXT", allow_plaintext_credentials=True)
    with MockCluster(brokers=2, sasl=Sasl(tokens=["t0ken"])) as cluster:
        addresses = ",".join(cluster.bootstrap.split(",")[:hosts])
        cluster_of = Cluster(addresses, handler, config=given)
        with pytest.raises(TokenEndpointError, match=f"token endpoint localhost:{issuer.port}: HTTP status 503: later") as caught:
            cluster_of.connect(10)
        cluster_of.close()
    assert not any(address in str(caught.value) for address in addresses.split(","))
    assert len(issuer.asked) == 1


def test_an_endpoint_that_is_not_there_is_named_with_its_cause(handler: Handler, certs: Certificates, issuer: Issuer) -> None:
    url = f"https://localhost:{refused_port()}/token"
    with pytest.raises(TokenEndpointError, match=r"token endpoint localhost:\d+: .*refused") as caught:
        ask(handler, endpoint(handler, issuer, certs, sasl_oauth_token_endpoint_url=url))
    assert any(isinstance(error, ConnectionRefusedError) for error in causes(caught.value))


def test_a_token_in_chunks_is_read(handler: Handler, certs: Certificates, issuer: Issuer) -> None:
    issuer.answer = b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n11\r\n{"access_token": \r\n6\r\n"abc"}\r\n0\r\n\r\n'
    assert ask(handler, endpoint(handler, issuer, certs)) == "abc"


def test_a_silent_endpoint_costs_the_deadline_and_no_more(handler: Handler, certs: Certificates, issuer: Issuer) -> None:
    over = threading.Event()
    issuer.answer = lambda: b"" if over.wait(60) else b"it was waited for"
    begun = now()
    with pytest.raises(KafkaException, match="token endpoint"):
        ask(handler, endpoint(handler, issuer, certs), 0.3)
    assert now() - begun < 30
    over.set()


def test_the_secret_goes_to_nobody_whose_certificate_is_not_trusted(handler: Handler, issuer: Issuer, certs: Certificates) -> None:
    source = TokenEndpoint(handler, config(issuer, None))
    with pytest.raises(TlsError, match="certificate verify failed"):
        ask(handler, source)
    assert issuer.asked == []


@pytest.mark.parametrize(
    "url",
    [
        "http://login.example/token",
        "file:///etc/passwd",
        "ftp://login.example/token",
        "login.example/token",
        "https://",
        "https:///token",
        "https://user:pw@login.example/token",
        "https://login.example/token#x",
        "https://login.example/to ken",
        "https://login.example/token\r\nHost: other",
        "https://login.example:notaport/",
        "https://login.example:0/",
        "https://login.example:70000/",
        "https://[::1/token",
        "https://log\u0456n.example/",
    ],
)
def test_a_url_that_would_tell_the_secret_or_is_none_is_refused_before_anything_connects(url: str) -> None:
    given = ClientConfig(
        security_protocol="SASL_SSL",
        sasl_mechanism="OAUTHBEARER",
        sasl_oauth_token_endpoint_url=url,
        sasl_oauth_client_id="c",
        sasl_oauth_client_secret="s",
    )
    with pytest.raises(ConfigurationError, match="sasl_oauth_token_endpoint_url"):
        check_sasl(given)


@pytest.mark.parametrize("url", ["https://me:hushhush", "https://me:hush\u2100hush@login.example/", "https://[hushhush]/"])
def test_a_url_that_holds_a_password_is_refused_without_it(url: str) -> None:
    with pytest.raises(ConfigurationError, match=r"^sasl_oauth_token_endpoint_url: ") as caught:
        token_endpoint(url)
    assert "hush" not in "".join(traceback.format_exception(caught.value)).replace(url, "")


@pytest.mark.parametrize("missing", ["sasl_oauth_token_endpoint_url", "sasl_oauth_client_id", "sasl_oauth_client_secret"])
def test_an_endpoint_needs_all_three(certs: Certificates, issuer: Issuer, missing: str) -> None:
    with pytest.raises(ConfigurationError, match=missing):
        check_sasl(config(issuer, certs, **{missing: None}))


def test_a_file_of_authorities_that_is_not_there_is_told_before_anything_connects(
    handler: Handler, issuer: Issuer, tmp_path: pathlib.Path
) -> None:
    with pytest.raises(ConfigurationError, match=r"sasl_oauth_cafile=.*there is no such file"):
        TokenEndpoint(handler, config(issuer, None, sasl_oauth_cafile=str(tmp_path / "none.pem")))


def test_the_asking_keeps_no_hub_from_its_greenlets(certs: Certificates, issuer: Issuer) -> None:
    """One of them lets the endpoint answer."""
    from gkafka.handlers import resolve_handler

    handler = resolve_handler("gevent")
    go = threading.Event()
    issuer.answer = lambda: token_answer("t0ken" if go.wait(60) else "late")

    def let_it_answer() -> None:
        while not issuer.asked:
            handler.sleep(0.001)
        go.set()

    other = handler.spawn(let_it_answer)
    assert ask(handler, endpoint(handler, issuer, certs), 90) == "t0ken"
    assert other.join(60)
    handler.stop(soon(60))
