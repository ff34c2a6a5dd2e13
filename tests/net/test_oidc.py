"""Tokens by client credentials: what is asked of the endpoint, what is believed of its answers, and how long it may take."""

from __future__ import annotations

import base64
import json
import pathlib
import socket
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import parse_qs

import pytest

from gkafka.cluster import Cluster
from gkafka.config import ClientConfig, Secret
from gkafka.exceptions import AuthenticationError, ConfigurationError, KafkaException, ProxyError, TlsError, TokenEndpointError, causes
from gkafka.handlers import Handler
from gkafka.net.oidc import LONGEST_ANSWER, TokenEndpoint
from gkafka.net.options import check_client
from gkafka.net.tokens import AGAIN_S
from gkafka.oauthoptions import form_fields, token_endpoint
from gkafka.sasloptions import check_sasl
from gkafka.testing import MockCluster, Sasl
from tests.kit.clock import now, soon
from tests.kit.memory import traced
from tests.kit.ports import refused_port
from tests.net.certificates import Certificates
from tests.net.proxies import FakeProxy, running
from tests.net.servers import serve

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


@pytest.fixture
def sidecar() -> Iterator[Issuer]:
    """The same without TLS."""
    made = Issuer()
    with serve(made.talk) as made.port:
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
        (token_answer("", error="slow_down"), TokenEndpointError, "HTTP status 200: slow_down"),
        (
            token_answer("", error="invalid_client", error_description="who"),
            AuthenticationError,
            "HTTP status 200: invalid_client: who; check",
        ),
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
    with traced() as peak:
        with pytest.raises(TokenEndpointError, match=f"token endpoint localhost:{issuer.port}: no answer that can be read: IncompleteRead"):
            ask(handler, endpoint(handler, issuer, certs))
        assert peak() < 8 << 20


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
    monkeypatch.setattr("gkafka.net.tokens.AGAIN_S", 0.1)
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


# -- what else an endpoint wants ---------------------------------------------------------------------------------------
def form(request: str) -> dict[str, list[str]]:
    return parse_qs(request.partition("\r\n\r\n")[2], keep_blank_values=True, strict_parsing=True)


@pytest.mark.parametrize(
    "fields",
    [{"resource": "https://kafka.example/a b", "tenant": "1&2"}, "resource=https://kafka.example/a+b&tenant=1%262"],
    ids=["mapping", "text"],
)
def test_an_audience_and_further_fields_are_in_the_form(handler: Handler, certs: Certificates, issuer: Issuer, fields: Any) -> None:
    """sasl_oauth_audience, sasl_oauth_form_fields: Auth0 answers 400 without the first, Entra's v1 wants a resource."""
    issuer.answer = lambda: token_answer("t0ken") if "audience" in form(issuer.asked[-1]) else token_answer("", "400 Bad Request")
    source = endpoint(handler, issuer, certs, sasl_oauth_audience="https://kafka.example", sasl_oauth_form_fields=fields)
    assert ask(handler, source) == "t0ken"
    assert form(issuer.asked[0]) == {
        "grant_type": ["client_credentials"],
        "audience": ["https://kafka.example"],
        "resource": ["https://kafka.example/a b"],
        "tenant": ["1&2"],
    }
    with pytest.raises(AuthenticationError, match=r"HTTP status 400; .* some endpoints want sasl_oauth_audience"):
        ask(handler, endpoint(handler, issuer, certs))


def test_the_clients_secret_is_in_the_form_where_the_endpoint_wants_it_there(handler: Handler, certs: Certificates, issuer: Issuer) -> None:
    """sasl_oauth_client_auth."""
    assert ask(handler, endpoint(handler, issuer, certs, sasl_oauth_client_auth="client_secret_post")) == "t0ken"
    assert form(issuer.asked[0]) == {"grant_type": ["client_credentials"], "client_id": ["the client"], "client_secret": [CLIENT_SECRET]}
    assert "Authorization" not in issuer.asked[0]


def test_a_secret_among_the_fields_is_never_shown(handler: Handler, certs: Certificates, issuer: Issuer) -> None:
    signed = "eyJhbGciOiJSUzI1NiJ9.hushhushhush.signature"
    source = endpoint(handler, issuer, certs, sasl_oauth_form_fields={"client_assertion": Secret(signed)})
    issuer.answer = token_answer("", "401 Unauthorized", error_description=f"no such assertion: {signed}")
    with pytest.raises(AuthenticationError, match=r"no such assertion: \*\*\*") as caught:
        ask(handler, source)
    assert form(issuer.asked[0])["client_assertion"] == [signed]
    assert "hush" not in str(caught.value) + repr(source._fields) + repr(source._config)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("hush", "a text of 4 characters: must be name=value, with & between fields"),
        ("a=1&&hush", "must be name=value"),
        ("a=1&a=hush", "'a' is given twice"),
        ({"": "hush"}, "field 1 has no name"),
        ({b"a": "hush"}, "field 1 has no name"),
        ({"a": 7}, "'a': its value must be str, not int"),
        ({"scope": "hush"}, "'scope' is no further field: give sasl_oauth_scope"),
        ("grant_type=password&password=hush", "'grant_type' is no further field"),
        ({"client_secret": "hush"}, "give sasl_oauth_client_secret, and sasl_oauth_client_auth='client_secret_post'"),
    ],
)
def test_fields_that_cannot_be_sent_are_told_without_their_values(given: Any, text: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^sasl_oauth_form_fields.*{text}") as caught:
        form_fields(given)
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize("secret", [f"{CLIENT_SECRET}\n", f"{CLIENT_SECRET}\r\n"])
def test_a_clients_secret_that_ends_in_a_line_break_is_sent_so_and_told(
    handler: Handler, certs: Certificates, issuer: Issuer, secret: str
) -> None:
    issuer.answer = token_answer("", "401 Unauthorized", error="invalid_client")
    source = endpoint(handler, issuer, certs, sasl_oauth_client_secret=lambda: secret, sasl_oauth_client_auth="client_secret_post")
    with pytest.raises(AuthenticationError, match="401: invalid_client; the client's secret ends in a line break: ") as caught:
        ask(handler, source)
    assert form(issuer.asked[0])["client_secret"] == [secret]
    assert CLIENT_SECRET not in str(caught.value)


# -- http on this machine ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "url", ["http://localhost:{}/token", "http://127.0.0.1:{}", "HTTP://LocalHost:{}/", "localhost:{}", "127.0.0.1:{}"]
)
@pytest.mark.parametrize("named", [True, False], ids=["named", "nameless"])
def test_a_sidecar_on_this_machine_is_asked_by_http(handler: Handler, sidecar: Issuer, url: str, named: bool) -> None:
    """As Google's Managed Kafka has it for clients of other languages, whose page gives localhost:14293; id and secret are of no use there."""
    who = {} if named else {"sasl_oauth_client_id": None, "sasl_oauth_client_secret": None}
    given = config(sidecar, None, sasl_oauth_token_endpoint_url=url.format(sidecar.port), **who)
    check_client(given)
    assert ask(handler, TokenEndpoint(handler, given)) == "t0ken"
    assert f"\r\nHost: {token_endpoint(url.format(sidecar.port)).netloc}\r\n" in sidecar.asked[0]
    assert ("\r\nAuthorization: Basic " in sidecar.asked[0]) is named


def test_a_redirect_of_a_sidecar_is_not_followed(handler: Handler, sidecar: Issuer) -> None:
    sidecar.answer = b"HTTP/1.1 307 Elsewhere\r\nLocation: http://login.example/token\r\nContent-Length: 0\r\n\r\n"
    source = TokenEndpoint(handler, config(sidecar, None, sasl_oauth_token_endpoint_url=f"http://localhost:{sidecar.port}/"))
    with pytest.raises(AuthenticationError, match="307; no redirect is followed"):
        ask(handler, source)
    assert len(sidecar.asked) == 1


@pytest.mark.parametrize(
    "url",
    [
        *(
            "http://login.example/token",
            "http://10.0.0.7/",
            "http://localhost.login.example/",
            "http://0.0.0.0/",
            "http://127.1/",
            "http://[::2]/",
        ),
        *("http://2130706433/", "http://notlocalhost/", "http://localhost./"),
    ],
)
def test_http_to_another_machine_takes_a_second_word(url: str) -> None:
    """sasl_oauth_allow_http."""
    given = {
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauth_token_endpoint_url": url,
        "sasl_oauth_client_id": "c",
        "sasl_oauth_client_secret": "hush",
    }
    with pytest.raises(ConfigurationError, match=r"give an https URL.*'http://localhost:14293'.*sasl_oauth_allow_http=True") as caught:
        check_sasl(ClientConfig(**given))
    assert "hush" not in str(caught.value)
    check_sasl(ClientConfig(**given, sasl_oauth_allow_http=True))


@pytest.mark.parametrize("url", ["http://[::1]:80/t", "http://[::ffff:127.0.0.1]/t", "http://127.8.8.8/t"])
def test_each_address_of_this_machine_is_one(url: str) -> None:
    assert token_endpoint(url).is_here
    assert token_endpoint(url).netloc == url.removeprefix("http://").removesuffix("/t").removesuffix(":80")


def test_http_on_this_machine_through_a_proxy_would_leave_it(sidecar: Issuer) -> None:
    url = f"http://localhost:{sidecar.port}/"
    given = config(sidecar, None, sasl_oauth_token_endpoint_url=url, sasl_oauth_proxy_url="http://proxy.example:3128")
    with pytest.raises(ConfigurationError, match=r"through sasl_oauth_proxy_url: .* would travel in clear text"):
        check_sasl(given)


def test_options_of_the_endpoint_that_have_no_effect_are_refused(certs: Certificates, sidecar: Issuer) -> None:
    with pytest.raises(ConfigurationError, match="sasl_oauth_cafile with an http URL"):
        check_sasl(config(sidecar, certs, sasl_oauth_token_endpoint_url=f"http://localhost:{sidecar.port}/"))
    with pytest.raises(ConfigurationError, match="without sasl_oauth_client_secret"):
        check_sasl(config(sidecar, None, sasl_oauth_token_endpoint_url="localhost:1", sasl_oauth_client_secret=None))
    with pytest.raises(ConfigurationError, match="sasl_oauth_token_provider together with sasl_oauth_client_auth"):
        check_sasl(
            ClientConfig(
                security_protocol="SASL_SSL",
                sasl_mechanism="OAUTHBEARER",
                sasl_oauth_token_provider=str,
                sasl_oauth_client_auth="client_secret_post",
            )
        )


# -- through a proxy ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", ["http", "socks5"])
def test_an_endpoint_that_only_a_proxy_reaches(handler: Handler, certs: Certificates, issuer: Issuer, kind: str) -> None:
    """sasl_oauth_proxy_url; the request is encrypted all the way, and brokers are not reached through it."""
    proxy = FakeProxy({"localhost": ("127.0.0.1", issuer.port)}, credentials=("me", "hush"))
    with running(proxy, kind) as port:
        url = f"https://localhost:{refused_port()}/token"
        given = config(issuer, certs, sasl_oauth_token_endpoint_url=url, sasl_oauth_proxy_url=f"{kind}://me:hush@127.0.0.1:{port}")
        check_client(given)
        assert ask(handler, TokenEndpoint(handler, given)) == "t0ken"
    assert [host for host, _ in proxy.asked] == ["localhost"]
    assert b"grant_type" not in proxy.passed


@pytest.mark.parametrize(
    ("user", "text"), [("me:wrong@", "refused the user name and password"), ("", "wants credentials: sasl_oauth_proxy_url=")]
)
def test_a_proxy_that_refuses_is_named_with_its_option(handler: Handler, certs: Certificates, issuer: Issuer, user: str, text: str) -> None:
    with running(FakeProxy(credentials=("me", "hush")), "http") as port:
        source = endpoint(handler, issuer, certs, sasl_oauth_proxy_url=f"http://{user}127.0.0.1:{port}")
        with pytest.raises(ProxyError, match=rf"token endpoint localhost:\d+: .*the proxy http://127.0.0.1:{port} {text}") as caught:
            ask(handler, source)
    assert "wrong" not in str(caught.value)


def test_the_url_of_a_proxy_that_is_none_is_told_before_anything_connects(certs: Certificates, issuer: Issuer) -> None:
    with pytest.raises(ConfigurationError, match=r"^sasl_oauth_proxy_url: must be socks5://host:port") as caught:
        check_client(config(issuer, certs, sasl_oauth_proxy_url="https://me:hush@proxy.example:3128"))
    assert "hush" not in str(caught.value)


def test_a_token_that_a_broker_refuses_is_not_given_again(
    handler: Handler, certs: Certificates, issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But one that was given just now is: the endpoint is not asked by each connection to each broker."""
    tokens = iter("abcdef")
    issuer.answer = lambda: token_answer(next(tokens))
    source = endpoint(handler, issuer, certs)
    first = source.token(soon(60))
    source.refused(first)
    assert ask(handler, source) == "a"
    monkeypatch.setattr(handler, "monotonic", lambda: soon(AGAIN_S + 1))
    source.refused(first)
    assert ask(handler, source, 90) == "b"
    source.refused(first)
    assert ask(handler, source, 90) == "b"
