"""Connections through proxies: SOCKS5 and HTTP CONNECT, with and without credentials, in clear text and under TLS."""

from __future__ import annotations

import logging
import socket
import threading
import traceback
from collections.abc import Callable
from typing import Any

import pytest

from gkafka import KafkaClient
from gkafka.config import ClientConfig, build
from gkafka.exceptions import ConfigurationError, ConnectionFailedError, NoBrokersAvailableError, ProxyError, TlsError
from gkafka.handlers import Handler, Stream
from gkafka.hosts import parse_proxy_url
from gkafka.net.stream import open_stream
from gkafka.testing import MockCluster
from tests.kit.clock import now, soon
from tests.kit.ports import refused_port
from tests.net.certificates import Certificates
from tests.net.proxies import FakeProxy, running
from tests.net.servers import echo, opened, serve

KINDS = ("socks5", "http")
LOGIN = ("me@home", "p/w:x%")
QUOTED = "me%40home:p%2Fw:x%25@"


@pytest.fixture(scope="module")
def certs(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


def by_proxy(kind: str, port: int, login: str = "", **options: Any) -> ClientConfig:
    return build(ClientConfig, {"proxy_url": f"{kind}://{login}127.0.0.1:{port}", **options}, where="here")


def connect(handler: Handler, host: str, port: int, config: ClientConfig, timeout: float = 5) -> Stream:
    return open_stream(handler, host, port, deadline=soon(timeout), config=config)


def assert_echo(handler: Handler, stream: Stream) -> None:
    stream.send_all([b"hello"], soon(60))
    got = bytearray()
    while len(got) < 5:
        more = bytearray(5)
        got += more[: stream.recv_into(more, soon(60))]
    assert got == b"hello"


# -- what works --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("login", [False, True], ids=["open", "with a login"])
def test_the_proxy_finds_the_broker_by_its_name(handler: Handler, monkeypatch: pytest.MonkeyPatch, kind: str, login: bool) -> None:
    looked_up: list[str] = []
    resolve = handler.getaddrinfo

    def note(host: str, port: int, deadline: float) -> Any:
        looked_up.append(host)
        return resolve(host, port, deadline)

    monkeypatch.setattr(handler, "getaddrinfo", note)
    with serve(echo) as broker:
        proxy = FakeProxy({"kafka.inside": ("127.0.0.1", broker)}, LOGIN if login else None)
        with running(proxy, kind) as port:
            config = by_proxy(kind, port, QUOTED if login else "")
            with connect(handler, "kafka.inside", 9092, config) as stream:
                assert_echo(handler, stream)
                assert stream.peer == f"kafka.inside:9092 (through 127.0.0.1:{port})"
    assert proxy.asked == [("kafka.inside", 9092)]
    assert proxy.logins == ([LOGIN] if login else [])
    assert looked_up == ["127.0.0.1"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_addresses_are_asked_for_as_such(handler: Handler, kind: str, host: str) -> None:
    with serve(echo) as broker:
        proxy = FakeProxy({host: ("127.0.0.1", broker)})
        with running(proxy, kind) as port, connect(handler, host, 9, by_proxy(kind, port)) as stream:
            assert_echo(handler, stream)
    assert proxy.asked == [(host, 9)]


@pytest.mark.parametrize("kind", KINDS)
def test_tls_runs_inside_the_tunnel_and_checks_the_brokers_name(handler: Handler, certs: Certificates, kind: str) -> None:
    context = certs.server()
    with serve(echo, wrap=lambda conn: context.wrap_socket(conn, server_side=True)) as broker:
        proxy = FakeProxy({"kafka.example": ("127.0.0.1", broker), "other.example": ("127.0.0.1", broker)})
        with running(proxy, kind) as port:
            config = by_proxy(kind, port, security_protocol="SSL", ssl_cafile=certs.ca)
            with connect(handler, "kafka.example", 9092, config) as stream:
                assert_echo(handler, stream)
            with pytest.raises(TlsError, match=r"other\.example"):
                connect(handler, "other.example", 9092, config)
    assert b"hello" not in proxy.passed
    assert b"kafka.example" in proxy.passed  # the SNI; so the recording works


@pytest.mark.parametrize("kind", KINDS)
def test_a_client_does_everything_through_its_proxy(handler: Handler, kind: str) -> None:
    proxy = FakeProxy()
    with (
        MockCluster(brokers=2, topics={"t": 2}) as cluster,
        running(proxy, kind) as port,
        KafkaClient(cluster.bootstrap, handler=handler, proxy_url=f"{kind}://127.0.0.1:{port}") as client,
    ):
        with client.get_producer() as producer:
            for partition in (0, 1):
                producer.produce("t", b"%d" % partition, partition=partition)
        with client.get_consumer(["t"]) as consumer:
            got = {consumer.consume(timeout_ms=60_000).value for _ in range(2)}
    assert got == {b"0", b"1"}
    assert len({port for _, port in proxy.asked}) == 2


def variables(error: BaseException | None, since: str = "open_stream") -> str:
    """All that the frames of an error and of its causes have in variables, from a function on, as a debugger or a crash reporter would show it."""
    found: list[str] = []
    while error is not None:
        inside = False
        for frame, _ in traceback.walk_tb(error.__traceback__):
            inside = inside or frame.f_code.co_name == since
            found += [repr(value) for value in frame.f_locals.values()] if inside else []
        error = error.__cause__ or error.__context__
    assert found
    return " ".join(found)


# -- what is refused ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("login", "says"), [("", "wants credentials: proxy_url="), ("me:s3same@", "refused the user name and password")])
def test_a_wrong_login_is_told_at_once_and_not_shown(
    handler: Handler, caplog: pytest.LogCaptureFixture, kind: str, login: str, says: str
) -> None:
    caplog.set_level(logging.DEBUG)
    with running(FakeProxy(credentials=("me", "right")), kind) as port, pytest.raises(ProxyError) as caught:
        connect(handler, "kafka.inside", 9092, by_proxy(kind, port, login))
    assert str(caught.value).startswith(f"kafka.inside:9092: the proxy {kind}://127.0.0.1:{port} ")
    assert says in str(caught.value)
    assert not caught.value.retriable
    assert "s3same" not in "".join(traceback.format_exception(caught.value)) + caplog.text
    assert "s3same" not in variables(caught.value)


@pytest.mark.parametrize("kind", KINDS)
def test_a_broker_that_the_proxy_does_not_reach_is_tried_again(handler: Handler, kind: str) -> None:
    with running(FakeProxy(), kind) as port, pytest.raises(ConnectionFailedError, match="cannot connect") as caught:
        connect(handler, "127.0.0.1", refused_port(), by_proxy(kind, port))
    assert caught.value.retriable


def test_a_proxy_that_is_not_there_is_named(handler: Handler) -> None:
    port = refused_port()
    with pytest.raises(ConnectionFailedError, match=rf"kafka\.inside:9092: no connection: 127\.0\.0\.1:{port}: "):
        connect(handler, "kafka.inside", 9092, by_proxy("socks5", port))


SAYS: dict[str, list[tuple[bytes, str]]] = {
    "socks5": [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "does not answer as a SOCKS5 proxy"),
        (b"\x04\x5a", "does not answer as a SOCKS5 proxy"),
        (b"\x05\x07", "chose the method 7, which was not offered"),
        (b"\x05\x02", "chose the method 2, which was not offered"),
        (b"\x05\x00\x05\x02\x00\x01", "its rules do not allow"),
        (b"\x05\x00\x05\x63\x00\x01", "error 99"),
        (b"\x05\x00\x04\x00\x00\x01", "does not answer as a SOCKS5 proxy"),
        (b"\x05\x00\x05\x00\x00\x09", "an address of kind 9"),
        (b"", "closed the connection while it was asked for a tunnel"),
        (b"\x05\x00\x05\x00\x00\x03\xff", "closed the connection while it was asked for a tunnel"),
    ],
    "http": [
        (b"HTTP/1.1 200 OK\r\n\r\nsurplus", "sends more than its answer"),
        (b"HTTP/1.1 403 Forbidden\r\n\r\n", r"refused \(status 403 Forbidden\)"),
        (b"HTTP/1.1 301 Moved\r\nLocation: http://evil/\r\n\r\n", r"refused \(status 301 Moved\)"),
        (b"HTTP/1.1 503 Later\r\n\r\n", r"cannot connect \(status 503 Later\)"),
        (b"HTTP/1.1 407 Log In\r\nContent-Length: 15\r\n\r\n<html>no</html>", r"wants credentials: .* \(status 407 Log In\)"),
        (b"HTTP/1.1 403 Not\x1b You\r\nContent-Length: 15\r\n\r\n<html>no</html>", r"refused \(status 403 Not\\x1b You\)"),
        (b"HTTP/1.1 503 Later\r\nContent-Length: 9000\r\n\r\n" + b"x" * 9000, r"cannot connect \(status 503 Later\)"),
        (b"HTTP/1.1 403\r\nX: " + b"x" * 10000, r"refused \(status 403\)"),
        (b"HTTP/1.1 2000 OK\r\n\r\n", "does not answer as an HTTP proxy"),
        (b"SSH-2.0-OpenSSH_9.6\r\n\r\n", "does not answer as an HTTP proxy"),
        (b"\x05\x00", "closed the connection"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"x" * 10000, "answers with more than 8192 bytes"),
        (b"", "closed the connection while it was asked for a tunnel"),
    ],
}


@pytest.mark.parametrize(("kind", "answer", "says"), [(kind, answer, says) for kind in KINDS for answer, says in SAYS[kind]])
def test_what_is_no_proxy_is_called_that(handler: Handler, kind: str, answer: bytes, says: str) -> None:
    def talk(conn: socket.socket) -> None:
        conn.recv(1000)
        conn.sendall(answer)
        conn.shutdown(socket.SHUT_WR)
        conn.recv(1000)

    with serve(talk) as port, pytest.raises(ConnectionFailedError, match=says) as caught:
        connect(handler, "kafka.inside", 9092, by_proxy(kind, port))
    assert "evil" not in str(caught.value)


def test_a_proxy_that_repeats_the_password_in_its_refusal_is_not_quoted(handler: Handler) -> None:
    with serve(lambda conn: (conn.recv(1000), conn.sendall(b"HTTP/1.1 407 no hush-hush here\r\n\r\n"))) as port:
        config = ClientConfig(proxy_url=f"http://me:hush-hush@127.0.0.1:{port}")
        with pytest.raises(ProxyError, match=r"refused the user name and password \(status 407 no \*\*\* here\)"):
            connect(handler, "kafka.inside", 9092, config)


@pytest.mark.parametrize("kind", KINDS)
def test_a_silent_proxy_costs_the_connect_timeout_and_no_more(handler: Handler, kind: str) -> None:
    go = threading.Event()
    with serve(lambda conn: go.wait(60)) as port:
        started = now()
        with pytest.raises(ConnectionFailedError, match=r"timed out after \d+\.\d s"):
            connect(handler, "kafka.inside", 9092, by_proxy(kind, port), timeout=0.4)
        assert 0.39 <= now() - started <= 30
        go.set()


@pytest.mark.parametrize("kind", KINDS)
def test_a_proxy_that_drips_costs_the_connect_timeout_and_no_more(handler: Handler, kind: str) -> None:
    over = threading.Event()

    def drip(conn: socket.socket) -> None:
        answer = b"\x05\x00\x05\x00\x00\x03\xff" + b"x" * 255 if kind == "socks5" else b"HTTP/1.1 200 " + b"x" * 8000
        for byte in answer:
            conn.sendall(bytes([byte]))
            if over.wait(0.3):
                return

    with serve(drip) as port:
        started = now()
        with pytest.raises(ConnectionFailedError, match="timed out"):
            connect(handler, "kafka.inside", 9092, by_proxy(kind, port), timeout=0.5)
        assert now() - started <= 30
        over.set()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("host", ["kafka\r\nX-Evil: 1", "a b", "", "a\0b", "ä" * 100, "." * 300])
def test_a_host_that_is_no_name_is_not_asked_for(handler: Handler, kind: str, host: str) -> None:
    """A broker's metadata tell the names of the others: they must not become lines of a request to the proxy."""
    proxy = FakeProxy()
    if host == "." * 300 and kind == "http":
        return  # what is only long is the HTTP proxy's to refuse
    with running(proxy, kind) as port, pytest.raises(ProxyError):
        connect(handler, host, 9092, by_proxy(kind, port))
    assert proxy.asked == []


def test_a_failed_tunnel_leaves_no_descriptor(handler: Handler) -> None:
    with running(FakeProxy(credentials=("a", "b")), "http") as port:
        config = by_proxy("http", port)
        for _ in range(2):
            with pytest.raises(ProxyError):
                connect(handler, "kafka.inside", 9092, config)
        before = opened()
        for _ in range(5):
            with pytest.raises(ProxyError):
                connect(handler, "kafka.inside", 9092, config)
        deadline = now() + 60
        while left := opened() - before:
            assert now() < deadline, left
            handler.sleep(0.01)


# -- the option --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "url",
    [
        "",
        "127.0.0.1:1080",
        "socks4://h:1080",
        "https://h:443",
        "socks5://",
        "socks5://h",
        "socks5://h:0",
        "socks5://h:65536",
        "http://h:80/path",
        "http://h:80?x",
        "http://h:x",
        "http://:80",
        "http://a b:80",
        "socks5://hush@h:1080",
        "socks5://hush:@h:1080",
        "socks5://:hush@h:1080",
        "socks5://me:hush",
        "socks5://a%3Ab:hush@h:1080",
        "socks5://me:hush%0d%0a@h:1080",
        f"socks5://me:{'hush' * 64}@h:1080",
    ],
)
def test_a_url_of_no_proxy_is_refused_before_any_connection(url: str) -> None:
    with pytest.raises(ConfigurationError, match="proxy_url") as caught:
        KafkaClient("localhost:1", handler="threading", proxy_url=url)
    assert "hush" not in "".join(traceback.format_exception(caught.value))
    assert "hush" not in variables(caught.value, since="parse_proxy_url")


@pytest.mark.parametrize(
    ("url", "is_"),
    [
        ("socks5://h:1080", ("socks5", "h", 1080, None, None)),
        ("socks5h://h:1080/", ("socks5", "h", 1080, None, None)),
        ("HTTP://[::1]:3128", ("http", "::1", 3128, None, None)),
        ("http://me:p%40w@h:3128", ("http", "h", 3128, "me", "p@w")),
        ("http://me:p@w@h:3128", ("http", "h", 3128, "me", "p@w")),
    ],
)
def test_a_url_of_a_proxy(url: str, is_: tuple[Any, ...]) -> None:
    proxy = parse_proxy_url(url)
    assert (proxy.kind, proxy.host, proxy.port, proxy.username, proxy.password) == is_


def test_credentials_of_a_proxy_are_shown_nowhere(handler: Handler, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    shown: list[str] = []
    talks: list[Callable[[], object]] = []
    with MockCluster(topics={"t": 1}) as cluster, running(FakeProxy(credentials=("alice", "s3same")), "socks5") as port:
        with KafkaClient(cluster.bootstrap, handler=handler, proxy_url=f"socks5://alice:s3same@127.0.0.1:{port}") as client:
            client.connect(60)
            config = client._config
            talks += [lambda: repr(client), lambda: repr(config), lambda: str(config), lambda: client.stats()]
            shown += [str(talk()) for talk in talks]
            shown += [repr(parse_proxy_url(str.__str__(config.proxy_url)))]
        with KafkaClient(cluster.bootstrap, handler=handler, proxy_url=f"socks5://alice:s3samX@127.0.0.1:{port}") as client:
            with pytest.raises((NoBrokersAvailableError, ProxyError)) as caught:
                client.connect(60)
            shown += traceback.format_exception(caught.value)
    assert "refused the user name and password" in shown[-1]
    assert "s3sam" not in "".join(shown) + caplog.text
