"""TLS over the streams of both handlers: what is refused, and that what is accepted works like a plain stream."""

from __future__ import annotations

import contextlib
import logging
import os
import pathlib
import socket
import ssl
import struct
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import gevent.ssl
import greenlet
import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

from gkafka import KafkaClient
from gkafka.config import ClientConfig, Secret, build
from gkafka.exceptions import ConfigurationError, ConnectionFailedError, KafkaTimeoutError, SocketDisconnectedError, TlsError, causes
from gkafka.handlers import Handler, Stream, resolve_handler
from gkafka.net.stream import open_stream
from gkafka.net.tls import TlsStream, server_name
from gkafka.net.tlscontext import make_context
from tests.handlers.hub import assert_waits_in_the_hub, run_script
from tests.kit.clock import now, soon
from tests.net.certificates import PASS_PHRASE, Certificates
from tests.net.servers import echo, opened, serve


@pytest.fixture(scope="module")
def certs(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@contextlib.contextmanager
def tls_server(context: ssl.SSLContext, talk: Callable[[Any], object] = echo) -> Iterator[int]:
    with serve(talk, wrap=lambda conn: context.wrap_socket(conn, server_side=True)) as port:
        yield port


def tls_config(certs: Certificates, **options: Any) -> ClientConfig:
    return ClientConfig(security_protocol="SSL", **{"ssl_cafile": certs.ca, **options})


def connect(handler: Handler, port: int, config: ClientConfig, host: str = "127.0.0.1", timeout: float = 60) -> Stream:
    return open_stream(handler, host, port, deadline=soon(timeout), config=config)


def read(stream: Stream, size: int, deadline: float | None = None) -> bytes:
    buffer = bytearray(size)
    view = memoryview(buffer)
    got = 0
    while got < size:
        received = stream.recv_into(view[got:], deadline)
        if not received:
            break
        got += received
    return bytes(buffer[:got])


# -- what is accepted --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_bytes_go_there_and_back_encrypted(handler: Handler, certs: Certificates, version: ssl.TLSVersion) -> None:
    with tls_server(certs.server(maximum_version=version)) as port, connect(handler, port, tls_config(certs)) as stream:
        assert isinstance(stream, TlsStream)
        assert stream.version == version.name.replace("_", ".")
        assert stream.peer == f"127.0.0.1:{port}"
        stream.send_all([b"he", bytearray(b"l"), b"", memoryview(b"lo")], soon(60))
        assert read(stream, 5, soon(60)) == b"hello"


@pytest.mark.parametrize(
    ("host", "sni"), [("kafka.example", "kafka.example"), ("kafka.example.", "kafka.example"), ("127.0.0.1", None), ("::1", None)]
)
def test_the_servers_name_is_asked_for_and_addresses_are_not(
    handler: Handler, certs: Certificates, monkeypatch: pytest.MonkeyPatch, host: str, sni: str | None
) -> None:
    asked: list[str | None] = []
    context = certs.server()
    context.sni_callback = lambda _sock, name, _context: asked.append(name)
    with tls_server(context) as port:
        monkeypatch.setattr(handler, "getaddrinfo", lambda *_: [(socket.AF_INET, ("127.0.0.1", port))])
        with connect(handler, port, tls_config(certs), host=host) as stream:
            stream.send_all([b"x"])
            assert read(stream, 1) == b"x"
    assert asked == [sni]


def test_the_zone_of_an_address_is_no_part_of_its_name() -> None:
    assert server_name("fe80::1%eth0") == "fe80::1"
    assert server_name("broker.example.") == "broker.example"


# -- what is refused ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("name", "says", "next_step"),
    [
        ("wrong_host", "mismatch", "connect by a name that is in the certificate"),
        ("expired", "expired", "new certificate"),
        ("future", "not yet valid", "have to be changed"),
        ("unknown_ca", "unable to get local issuer", "ssl_cafile="),
        ("self_signed", "self-signed", "ssl_cafile="),
        ("revoked", "revoked", "needs a new certificate"),
    ],
)
def test_a_bad_certificate_is_refused_by_name_with_the_next_step(
    handler: Handler, certs: Certificates, monkeypatch: pytest.MonkeyPatch, name: str, says: str, next_step: str
) -> None:
    reached: list[bytes] = []
    with tls_server(certs.server(name), lambda conn: reached.append(conn.recv(10))) as port:
        monkeypatch.setattr(handler, "getaddrinfo", lambda *_: [(socket.AF_INET, ("127.0.0.1", port))] * 3)
        config = tls_config(certs, ssl_crlfile=certs.path("revoked.crl") if name == "revoked" else None)
        with pytest.raises(TlsError) as caught:
            connect(handler, port, config, host="kafka.example")
    text = str(caught.value)
    assert text.startswith(f"kafka.example:{port}: certificate verify failed: ")
    assert says in text
    assert next_step in text
    assert isinstance(caught.value, ConnectionFailedError)
    assert not caught.value.retriable
    assert b"".join(reached) == b""


def test_the_name_that_was_asked_for_is_what_is_checked(handler: Handler, certs: Certificates, monkeypatch: pytest.MonkeyPatch) -> None:
    with tls_server(certs.server()) as port:
        monkeypatch.setattr(handler, "getaddrinfo", lambda *_: [(socket.AF_INET, ("127.0.0.1", port))])
        with pytest.raises(TlsError, match=r"not valid for 'other\.example'"):
            connect(handler, port, tls_config(certs), host="other.example")


def test_the_systems_authorities_do_not_know_ours(handler: Handler, certs: Certificates) -> None:
    with tls_server(certs.server()) as port, pytest.raises(TlsError, match="ssl_cafile="):
        connect(handler, port, tls_config(certs, ssl_cafile=None))


def test_a_failed_handshake_leaves_no_descriptor(handler: Handler, certs: Certificates) -> None:
    config = tls_config(certs)
    with tls_server(certs.server("expired")) as port:
        for _ in range(2):
            with pytest.raises(TlsError):
                connect(handler, port, config)
        before = opened()
        with pytest.raises(TlsError):
            connect(handler, port, config)
        deadline = now() + 60
        while left := opened() - before:
            assert now() < deadline, left
            handler.sleep(0.01)  # the server's thread closes its end


def test_without_verification_anything_goes_and_one_warning_says_so(
    handler: Handler, certs: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    config = tls_config(certs, tls_verify=False)
    with tls_server(certs.server("self_signed")) as port:
        for _ in range(3):
            with connect(handler, port, config) as stream:
                stream.send_all([b"x"])
                assert read(stream, 1) == b"x"
    warned = [r for r in caplog.records if r.levelno == logging.WARNING and r.name == "gkafka.net.tlscontext"]
    assert len(warned) == 1
    assert "tls_verify=False" in warned[0].getMessage()


def test_without_the_host_names_check_the_name_is_still_asked_for_and_one_warning_says_so(
    handler: Handler, certs: Certificates, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asked: list[str | None] = []
    context = certs.server("wrong_host")
    context.sni_callback = lambda _sock, name, _context: asked.append(name)
    config = tls_config(certs, ssl_check_hostname=False)
    with tls_server(context) as port:
        monkeypatch.setattr(handler, "getaddrinfo", lambda *_: [(socket.AF_INET, ("127.0.0.1", port))])
        for _ in range(2):
            connect(handler, port, config, host="kafka.example").close()
    assert asked == ["kafka.example"] * 2
    warned = [r for r in caplog.records if r.levelno == logging.WARNING and r.name == "gkafka.net.tlscontext"]
    assert ["ssl_check_hostname=False" in r.getMessage() for r in warned] == [True]
    with tls_server(certs.server("unknown_ca")) as port, pytest.raises(TlsError, match="certificate verify failed"):
        connect(handler, port, config)


@pytest.mark.parametrize(
    ("crlfile", "server", "says"),
    [
        ("revoked.crl", "good", None),
        ("revoked.crl", "revoked", "revoked"),
        ("other_ca.crl", "good", "ssl_crlfile must hold the newest list of the authority"),
        ("stale.crl", "good", "ssl_crlfile must hold the newest list of the authority"),
    ],
)
@pytest.mark.parametrize("as_text", [False, True], ids=["file", "text"])
def test_ssl_crlfile_says_who_was_revoked(
    handler: Handler, certs: Certificates, crlfile: str, server: str, says: str | None, as_text: bool
) -> None:
    config = tls_config(certs, ssl_crlfile=certs.text(crlfile) if as_text else certs.path(crlfile))
    with tls_server(certs.server(server)) as port:
        if says is None:
            connect(handler, port, config).close()
        else:
            with pytest.raises(TlsError, match=says):
                connect(handler, port, config)


def test_ssl_ciphers_are_those_that_are_offered(handler: Handler, certs: Certificates) -> None:
    offered: list[str] = []
    context = certs.server(maximum_version=ssl.TLSVersion.TLSv1_2)

    def talk(conn: Any) -> None:
        offered.extend(name for name, *_ in conn.shared_ciphers())
        echo(conn)

    with (
        tls_server(context, talk) as port,
        connect(handler, port, tls_config(certs, ssl_ciphers="ECDHE-ECDSA-AES256-GCM-SHA384")) as stream,
    ):
        stream.send_all([b"x"])
        assert read(stream, 1) == b"x"
    assert [name for name in offered if not name.startswith("TLS_")] == ["ECDHE-ECDSA-AES256-GCM-SHA384"]


@pytest.mark.parametrize("ciphers", ["ALL:@SECLEVEL=0", "ALL:eNULL:@SECLEVEL=0"])
def test_ssl_ciphers_bring_in_none_that_checks_nobody(handler: Handler, certs: Certificates, ciphers: str) -> None:
    """A server without a certificate was let in: anonymous ciphers have none to check."""
    anonymous = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    anonymous.maximum_version = ssl.TLSVersion.TLSv1_2
    anonymous.set_ciphers("aNULL:@SECLEVEL=0")
    with tls_server(anonymous) as port, pytest.raises(TlsError, match="refused the handshake"):
        connect(handler, port, tls_config(certs, ssl_ciphers=ciphers))


@pytest.mark.parametrize("ciphers", ["aNULL", "eNULL:@SECLEVEL=0"])
def test_ssl_ciphers_of_which_none_checks_the_broker_are_refused(certs: Certificates, ciphers: str) -> None:
    with pytest.raises(ConfigurationError, match=f"ssl_ciphers='{ciphers}'"):
        make_context(tls_config(certs, ssl_ciphers=ciphers))


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_an_address_is_looked_for_among_the_addresses_of_the_certificate(
    handler: Handler, certs: Certificates, monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    for server, fine in (("good", True), ("wrong_host", False)):
        with tls_server(certs.server(server)) as port:
            monkeypatch.setattr(handler, "getaddrinfo", lambda *_, port=port: [(socket.AF_INET, ("127.0.0.1", port))])
            if fine:
                connect(handler, port, tls_config(certs), host=host).close()
            else:
                with pytest.raises(TlsError, match="IP address mismatch"):
                    connect(handler, port, tls_config(certs), host=host)


def test_an_old_version_of_tls_is_refused(handler: Handler, certs: Certificates) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        context = certs.server(minimum_version=ssl.TLSVersion.TLSv1, maximum_version=ssl.TLSVersion.TLSv1_1)
    context.set_ciphers("ALL:@SECLEVEL=0")
    with tls_server(context) as port, pytest.raises(TlsError, match=r"no TLS version in common.*TLS 1\.2"):
        connect(handler, port, tls_config(certs))


@pytest.mark.parametrize("damage", [b"\x17\x03\x03\0\x20" + bytes(32), b"HTTP/1.1 400 Bad Request\r\n\r\n"], ids=["a record", "clear text"])
def test_damage_behind_the_handshake_is_a_lost_connection(handler: Handler, certs: Certificates, damage: bytes) -> None:
    """A bit that flips on the way must not count as a setting that is wrong: another connection may be better."""

    def talk(conn: Any) -> None:
        conn.recv(1)
        socket.socket.sendall(conn, damage)
        conn.recv(1)

    with tls_server(certs.server(), talk) as port, connect(handler, port, tls_config(certs)) as stream:
        stream.send_all([b"x"])
        with pytest.raises(SocketDisconnectedError, match="TLS failed") as caught:
            stream.recv_into(bytearray(10), soon(60))
        assert caught.value.retriable


# -- peers that do not speak TLS ---------------------------------------------------------------------------------------
@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\0\0\0\x0a\0\0\0\1\0\x23\0\0\0\0", b"SSH-2.0-OpenSSH_9.6\r\n"])
def test_an_answer_in_plaintext_is_called_that(handler: Handler, certs: Certificates, answer: bytes) -> None:
    with serve(lambda conn: (conn.recv(1000), conn.sendall(answer), conn.recv(1000))) as port, pytest.raises(TlsError) as caught:
        connect(handler, port, tls_config(certs))
    assert f"127.0.0.1:{port}: the server answered, but not in TLS: is this port a PLAINTEXT listener" in str(caught.value)


def test_a_server_that_hangs_up_on_a_handshake_is_called_that(handler: Handler, certs: Certificates) -> None:
    # What a Kafka broker does on a PLAINTEXT port: a ClientHello looks like a request of 369 MB.
    with serve(lambda conn: conn.recv(1000)) as port, pytest.raises(ConnectionFailedError) as caught:
        connect(handler, port, tls_config(certs))
    assert "closed the connection during the TLS handshake: is this port a PLAINTEXT listener" in str(caught.value)


def test_a_handshake_that_is_not_answered_ends_at_the_deadline(handler: Handler, certs: Certificates) -> None:
    go = threading.Event()
    with serve(lambda conn: go.wait(60)) as port:
        started = now()
        with pytest.raises(
            ConnectionFailedError,
            match=r"^127\.0\.0\.1:\d+: no TLS: TCP is open, but the TLS handshake was not answered: timed out after \d+\.\d s: does that listener speak TLS\?$",
        ):
            connect(handler, port, tls_config(certs), timeout=0.5)
        assert 0.49 <= now() - started < 30
        go.set()


def test_an_alert_of_the_server_is_named(handler: Handler, certs: Certificates) -> None:
    def talk(conn: socket.socket) -> None:
        conn.recv(1000)
        conn.sendall(b"\x15\x03\x03\0\2\2\x50")  # fatal internal_error

    with serve(talk) as port, pytest.raises(TlsError, match="refused the handshake with the TLS alert 'internal error'"):
        connect(handler, port, tls_config(certs))


# -- the client's own certificate --------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "password",
    [PASS_PHRASE, Secret(PASS_PHRASE), lambda: PASS_PHRASE, lambda: Secret(PASS_PHRASE)],
    ids=["str", "secret", "callable", "both"],
)
def test_a_client_certificate_with_a_pass_phrase_is_shown(handler: Handler, certs: Certificates, password: Any) -> None:
    names: list[Any] = []
    config = tls_config(certs, ssl_certfile=certs.path("client.pem"), ssl_keyfile=certs.path("client.locked.key"), ssl_password=password)

    def talk(conn: Any) -> None:
        names.append(conn.getpeercert()["subject"])
        echo(conn)

    with tls_server(certs.asking_for_clients(), talk) as port, connect(handler, port, config) as stream:
        stream.send_all([b"x"])
        assert read(stream, 1) == b"x"
    assert names == [((("commonName", "client"),),)]


@pytest.mark.parametrize("in_memory", [True, False])
@pytest.mark.parametrize("together", [True, False], ids=["one text", "two texts"])
def test_everything_may_be_pem_text(
    handler: Handler, certs: Certificates, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path, in_memory: bool, together: bool
) -> None:
    names: list[Any] = []
    if not in_memory:
        monkeypatch.delattr(os, "memfd_create")
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    cert, key = certs.text("client.pem"), certs.text("client.locked.key")
    options = {"ssl_certfile": cert + key} if together else {"ssl_certfile": cert, "ssl_keyfile": key}
    config = build(
        ClientConfig,
        {"security_protocol": "SSL", "ssl_cafile": certs.text("ca.pem"), "ssl_password": PASS_PHRASE, **options},
        where="here",
    )

    def talk(conn: Any) -> None:
        names.append(conn.getpeercert()["subject"])
        echo(conn)

    before = opened()
    make_context(config)
    assert not opened() - before
    with tls_server(certs.asking_for_clients(), talk) as port, connect(handler, port, config) as stream:
        stream.send_all([b"x"])
        assert read(stream, 1) == b"x"
    assert names == [((("commonName", "client"),),)]
    assert list(tmp_path.iterdir()) == []


def test_pem_text_may_be_one_line_as_files_of_properties_have_it(handler: Handler, certs: Certificates) -> None:
    texts = {"ssl_cafile": "ca.pem", "ssl_certfile": "client.pem", "ssl_keyfile": "client.locked.key"}
    lines = {option: " ".join(certs.text(name).split("\n")) for option, name in texts.items()}
    assert not any("\n" in line for line in lines.values())
    config = build(ClientConfig, {"security_protocol": "SSL", "ssl_password": PASS_PHRASE, **lines}, where="here")
    with tls_server(certs.asking_for_clients(), echo) as port, connect(handler, port, config) as stream:
        stream.send_all([b"x"])
        assert read(stream, 1) == b"x"


def test_what_a_server_said_before_it_hung_up_is_why_a_send_fails(handler: Handler, certs: Certificates) -> None:
    """TLS 1.3: the server looks at our certificate behind the handshake. Whoever sends before it reads met a reset, or a broken pipe, and no reason."""
    config = build(ClientConfig, {"security_protocol": "SSL", "ssl_cafile": certs.ca}, where="here")
    with (
        tls_server(certs.asking_for_clients(), echo) as port,
        connect(handler, port, config) as stream,
        pytest.raises(TlsError, match="ssl_certfile"),
    ):
        send_until_refused(handler, stream)


def test_a_send_that_fails_without_a_word_from_the_server_is_told_with_what_it_met(handler: Handler, certs: Certificates) -> None:
    """An error that was its own cause had no end for whoever looks through the causes: a hub stood still."""

    def hang_up(conn: Any) -> None:
        conn.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    with tls_server(certs.server(), hang_up) as port, connect(handler, port, tls_config(certs)) as stream:
        with pytest.raises(SocketDisconnectedError) as raised:
            send_until_refused(handler, stream)
        met = raised.value.__cause__
        assert isinstance(met, OSError)
        assert list(causes(raised.value)) == [raised.value, met]
        assert handler.interruption(raised.value) is None


def send_until_refused(handler: Handler, stream: Any) -> None:
    deadline = now() + 60
    while now() < deadline:
        stream.send_all([b"x"])
        handler.sleep(0.01)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_missing_client_certificate_is_named(handler: Handler, certs: Certificates, version: ssl.TLSVersion) -> None:
    # With TLS 1.3 the client's handshake is over before the server refuses it: the first read says so.
    def use(port: int) -> None:
        with connect(handler, port, tls_config(certs)) as stream:
            stream.recv_into(bytearray(1), soon(60))

    with tls_server(certs.asking_for_clients(maximum_version=version)) as port, pytest.raises(TlsError, match="ssl_certfile="):
        use(port)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"ssl_cafile": "missing.pem"}, "ssl_cafile='.*missing.pem': there is no such file"),
        ({"ssl_cafile": "good.key"}, "ssl_cafile='.*good.key': the file holds no certificate"),
        ({"ssl_certfile": "missing.pem"}, "ssl_certfile='.*missing.pem': there is no such file"),
        ({"ssl_certfile": "client.p12"}, "client.p12': not a PEM file. PKCS12 .*openssl pkcs12"),
        ({"ssl_keyfile": "client.key"}, "ssl_keyfile='.*client.key' without ssl_certfile"),
        ({"ssl_certfile": "client.pem", "ssl_keyfile": "good.key"}, "the key does not belong to the certificate"),
        ({"ssl_certfile": "client.pem", "ssl_keyfile": "client.locked.key"}, "client.locked.key' is encrypted: give ssl_password"),
        ({"ssl_certfile": "client.pem", "ssl_keyfile": "client.locked.key", "ssl_password": "wrong"}, "ssl_password does not open the key"),
        ({"ssl_certfile": "client.pem"}, "ssl_certfile='.*client.pem': it holds no private key: give ssl_keyfile"),
        ({"ssl_certfile": "client.key"}, "ssl_certfile='.*client.key': it holds no certificate, but .*private key"),
        (
            {"ssl_certfile": "client.key", "ssl_keyfile": "client.key"},
            "ssl_certfile='.*client.key': it holds no certificate, but .*private key",
        ),
        (
            {"ssl_certfile": "client.pem", "ssl_keyfile": "public.pem"},
            "ssl_keyfile='.*public.pem': it holds no private key, but public key",
        ),
        (
            {"ssl_certfile": "client.pem", "ssl_keyfile": "client.pem"},
            "ssl_keyfile='.*client.pem': it holds no private key, but certificate",
        ),
        (
            {"ssl_certfile": "client.pem", "ssl_keyfile": "cut.key"},
            "ssl_keyfile='.*cut.key': the file is cut off: -----BEGIN .*PRIVATE KEY----- has",
        ),
        ({"ssl_certfile": "client.pem", "ssl_keyfile": "damaged.key"}, "ssl_keyfile='.*damaged.key': the key is damaged"),
        ({"ssl_certfile": "cut.pem", "ssl_keyfile": "client.key"}, "ssl_certfile='.*cut.pem': the file is cut off: -----BEGIN CERTIFICATE"),
        ({"ssl_certfile": "damaged.pem", "ssl_keyfile": "client.key"}, "ssl_certfile='.*damaged.pem': its certificate is damaged"),
        ({"ssl_cafile": "cut.pem"}, "ssl_cafile='.*cut.pem': the file is cut off: -----BEGIN CERTIFICATE----- has no end"),
        ({"ssl_cafile": "damaged.pem"}, "ssl_cafile='.*damaged.pem': the file is damaged"),
        ({"ssl_context": 3}, "ssl_context=3: must be an ssl.SSLContext"),
        ({"ssl_context": ssl.SSLContext}, "ssl_context=<class 'ssl.SSLContext'>: must be an ssl.SSLContext"),
        ({"ssl_context": ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)}, "ssl_context: it is a server's"),
    ],
)
def test_files_that_cannot_be_used_are_named_with_what_is_wrong(certs: Certificates, options: dict[str, Any], says: str) -> None:
    broken_files(certs)
    paths = {k: certs.path(v) if k.endswith("file") else v for k, v in options.items()}
    with pytest.raises(ConfigurationError, match=says) as caught:
        make_context(tls_config(certs, **paths))
    assert "wrong" not in str(caught.value)  # the pass phrase
    if not options.get("ssl_password") and "locked" not in str(options):
        assert "ssl_password" not in str(caught.value)


@pytest.mark.parametrize("option", ["ssl_cafile", "ssl_crlfile", "ssl_certfile", "ssl_keyfile"])
def test_a_pipe_is_refused_and_not_waited_for(certs: Certificates, option: str, tmp_path: pathlib.Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    given = {"ssl_certfile": certs.path("client.pem"), option: str(tmp_path / "pipe")}
    with pytest.raises(ConfigurationError, match=rf"{option}='.*pipe': not a file that can be read again and again"):
        make_context(tls_config(certs, **given))


@pytest.mark.parametrize("option", ["ssl_cafile", "ssl_crlfile", "ssl_certfile", "ssl_keyfile"])
def test_a_text_in_a_wrong_encoding_is_told_and_not_shown(certs: Certificates, option: str) -> None:
    """It was a UnicodeEncodeError, which holds the text."""
    text = certs.text("client.key")
    text = f"{text[:90]}\udcc3{text[90:]}"
    given = {"ssl_certfile": certs.path("client.pem"), option: Secret(text)}
    with pytest.raises(ConfigurationError, match=rf"{option} \(PEM text\): it holds halves of characters") as caught:
        make_context(tls_config(certs, **given))
    assert not [error for error in causes(caught.value) if isinstance(error, UnicodeError)]


def test_a_device_is_refused_in_one_sentence(certs: Certificates) -> None:
    with pytest.raises(ConfigurationError, match=r"^ssl_cafile='/dev/zero': not a file that can be read again and again: [^:]*$"):
        make_context(tls_config(certs, ssl_cafile="/dev/zero"))


def broken_files(certs: Certificates) -> None:
    for name in ("client.pem", "client.key"):
        text = pathlib.Path(certs.path(name)).read_text()
        lines = text.splitlines()
        pathlib.Path(certs.path(name.replace("client", "cut"))).write_text("\n".join(lines[:3]))
        pathlib.Path(certs.path(name.replace("client", "damaged"))).write_text("\n".join([lines[0], *reversed(lines[1:-1]), lines[-1], ""]))
    key = load_pem_private_key(pathlib.Path(certs.path("client.key")).read_bytes(), None).public_key()
    pathlib.Path(certs.path("public.pem")).write_bytes(key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))


def test_a_function_for_the_pass_phrase_that_gives_none_is_told_before_any_connection(handler: Handler, certs: Certificates) -> None:
    asked: list[int] = []
    own = {
        "ssl_certfile": certs.path("client.pem"),
        "ssl_keyfile": certs.path("client.locked.key"),
        "ssl_password": lambda: asked.append(1),
    }
    connects: list[int] = []
    with serve(lambda conn: connects.append(1)) as port:
        client = KafkaClient(f"localhost:{port}", handler=handler, security_protocol="SSL", ssl_cafile=certs.ca, **own)
        with client, pytest.raises(ConfigurationError, match="ssl_password: the function must return the pass phrase as str, not NoneType"):
            client.connect(5)
    assert (len(asked), len(connects)) == (1, 0)


@pytest.mark.parametrize("error", [ZeroDivisionError, OSError, ValueError])
def test_a_function_for_the_pass_phrase_that_fails_is_named_once_and_what_it_says_is_not_told(
    handler: Handler, certs: Certificates, error: type[Exception], caplog: pytest.LogCaptureFixture
) -> None:
    asked: list[int] = []

    def fails() -> str:
        asked.append(1)
        raise error(f"the vault has {PASS_PHRASE}")

    own = {"ssl_certfile": certs.path("client.pem"), "ssl_keyfile": certs.path("client.locked.key"), "ssl_password": fails}
    with caplog.at_level("DEBUG"), serve(lambda conn: None) as port:
        client = KafkaClient(f"localhost:{port}", handler=handler, security_protocol="SSL", ssl_cafile=certs.ca, **own)
        with client, pytest.raises(ConfigurationError) as caught:
            client.connect(5)
    assert str(caught.value).endswith(f"ssl_password: the function that is to give the pass phrase raised {error.__name__}")
    assert isinstance(caught.value.__cause__, error)
    assert len(asked) == 1
    assert PASS_PHRASE not in caplog.text


# -- contexts ----------------------------------------------------------------------------------------------------------
def test_our_context_verifies_and_starts_at_tls_1_2(certs: Certificates) -> None:
    context = make_context(tls_config(certs))
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2


def test_a_users_context_is_used_unchanged(handler: Handler, certs: Certificates) -> None:
    for make in (ssl.create_default_context, gevent.ssl.create_default_context):
        context = make(cafile=certs.ca)
        context.check_hostname = False
        before = (context.verify_mode, context.check_hostname, context.minimum_version, context.options)
        config = ClientConfig(security_protocol="SSL", ssl_context=context, tls_verify=False)
        assert make_context(config) is context
        with tls_server(certs.server("wrong_host")) as port, connect(handler, port, config) as stream:
            stream.send_all([b"x"])
            assert read(stream, 1) == b"x"
        with tls_server(certs.server("unknown_ca")) as port, pytest.raises(TlsError, match="certificate verify failed"):
            connect(handler, port, config)
        assert (context.verify_mode, context.check_hostname, context.minimum_version, context.options) == before


def test_a_renewed_file_is_taken_up_by_the_next_connection(handler: Handler, certs: Certificates, tmp_path: pathlib.Path) -> None:
    authorities = tmp_path / "authorities.pem"
    authorities.write_bytes(pathlib.Path(certs.path("other_ca.pem")).read_bytes())
    config = tls_config(certs, ssl_cafile=str(authorities))
    with tls_server(certs.server()) as port:
        with pytest.raises(TlsError):
            connect(handler, port, config)
        authorities.write_bytes(pathlib.Path(certs.ca).read_bytes())
        os.utime(authorities, ns=(1, 1))
        connect(handler, port, config).close()


def test_a_certificate_is_exchanged_without_a_pause(
    handler: Handler, certs: Certificates, tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Certificate and key are two files, so for a moment they do not belong together: what was shown before is shown until they do."""
    shown: list[Any] = []
    cert, key = tmp_path / "me.pem", tmp_path / "me.key"

    def write(path: pathlib.Path, name: str) -> None:
        path.with_suffix(".new").write_text(certs.text(name))
        path.with_suffix(".new").rename(path)

    def talk(conn: Any) -> None:
        shown.append(conn.getpeercert()["subject"][0][0][1])
        echo(conn)

    def use(port: int) -> None:
        with connect(handler, port, config) as stream:
            stream.send_all([b"x"])
            assert read(stream, 1) == b"x"

    write(cert, "client.pem")
    write(key, "client.key")
    config = tls_config(certs, ssl_certfile=str(cert), ssl_keyfile=str(key))
    with tls_server(certs.asking_for_clients(), talk) as port:
        use(port)
        write(cert, "good.pem")
        use(port)
        assert "the key does not belong to the certificate" in caplog.text
        write(key, "good.key")
        use(port)
        cert.unlink()
        use(port)
    assert shown == ["client", "client", "good", "good"]


def test_a_revocation_counts_from_the_next_connection_on(handler: Handler, certs: Certificates, tmp_path: pathlib.Path) -> None:
    lists = tmp_path / "lists.pem"
    lists.write_text(certs.text("other_ca.crl") + certs.text("empty.crl"))
    config = tls_config(certs, ssl_crlfile=str(lists))
    with tls_server(certs.server("revoked")) as port:
        connect(handler, port, config).close()
        lists.write_text(certs.text("revoked.crl"))
        with pytest.raises(TlsError, match="revoked"):
            connect(handler, port, config)
        lists.unlink()  # and what says whom to trust is never replaced by what it was before
        with pytest.raises(ConfigurationError, match="there is no such file"):
            connect(handler, port, config)


# -- it is a stream like any other -------------------------------------------------------------------------------------
def test_a_read_ends_at_its_deadline_and_the_stream_lives_on(handler: Handler, certs: Certificates) -> None:
    with tls_server(certs.server()) as port, connect(handler, port, tls_config(certs)) as stream:
        started = now()
        with pytest.raises(KafkaTimeoutError):
            stream.recv_into(bytearray(10), soon(0.2))
        assert 0.19 <= now() - started < 30
        stream.send_all([b"alive"])
        assert read(stream, 5, soon(60)) == b"alive"


def test_one_worker_reads_while_another_writes(handler: Handler, certs: Certificates) -> None:
    data = os.urandom(1_000_000) * 6
    got: list[bytes] = []
    failures: list[BaseException] = []
    with tls_server(certs.server()) as port, connect(handler, port, tls_config(certs)) as stream:
        deadline = soon(60)
        reader = handler.spawn(lambda: got.append(read(stream, len(data), deadline)), _on_failure=failures.append)
        handler.sleep(0.05)  # the reader waits: the writer must not wait for it
        pieces = [data[i : i + 70_001] for i in range(0, len(data), 70_001)]
        writer = handler.spawn(stream.send_all, pieces, deadline, _on_failure=failures.append)
        assert writer.join(60)
        assert reader.join(60)
    assert failures == []
    assert got == [data]


def test_many_small_buffers_arrive_whole(handler: Handler, certs: Certificates) -> None:
    buffers = [bytes([i % 251]) * (i % 700) for i in range(5000)]
    whole = b"".join(buffers)
    with tls_server(certs.server(), lambda conn: (conn.recv(1), echo(conn))) as port, connect(handler, port, tls_config(certs)) as stream:
        got: list[bytes] = []
        reader = handler.spawn(lambda: got.append(read(stream, len(whole), soon(60))))
        stream.send_all([b"!", *buffers], soon(60))
        assert reader.join(60)
    assert got == [whole]


@pytest.mark.parametrize("finish", ["try_send", "send_all"])
def test_what_try_send_did_not_take_is_sent_later_without_loss_or_double(handler: Handler, certs: Certificates, finish: str) -> None:
    go, end = threading.Event(), threading.Event()
    got = bytearray()
    data = os.urandom(1 << 20) * 12

    def talk(conn: Any) -> None:
        go.wait(60)
        while len(got) < len(data):
            chunk = conn.recv(1 << 20)
            if not chunk:
                break
            got.extend(chunk)
        end.set()

    with tls_server(certs.server(), talk) as port, connect(handler, port, tls_config(certs)) as stream:
        views = memoryview(data)
        sent = 0
        while n := stream.try_send([views[sent : sent + 100], views[sent + 100 :]]):
            sent += n
        assert 0 < sent < len(data)
        assert stream.try_send([views[sent:]]) == 0
        go.set()
        if finish == "send_all":
            stream.send_all([views[sent:]], soon(60))
        else:
            deadline = now() + 60
            while sent < len(data) and now() < deadline:
                sent += stream.try_send([views[sent:]])
                handler.sleep(0.001)
        deadline = now() + 60
        while not end.is_set() and now() < deadline:
            handler.sleep(0.005)
    assert bytes(got) == data


def test_after_a_send_that_timed_out_nothing_more_is_sent(handler: Handler, certs: Certificates) -> None:
    go = threading.Event()
    with tls_server(certs.server(), lambda conn: go.wait(60)) as port, connect(handler, port, tls_config(certs)) as stream:
        started = now()
        with pytest.raises(KafkaTimeoutError, match="no room to send by the deadline"):
            stream.send_all([bytes(30_000_000)], soon(0.5))
        assert now() - started < 30
        for send in (lambda: stream.try_send([b"x"]), lambda: stream.send_all([b"x"], soon(1))):
            with pytest.raises(SocketDisconnectedError, match="earlier send"):
                send()
        go.set()


def test_two_writers_are_an_error_not_a_muddle(handler: Handler, certs: Certificates) -> None:
    go = threading.Event()
    ends: list[BaseException] = []
    with tls_server(certs.server(), lambda conn: go.wait(60)) as port:
        stream = connect(handler, port, tls_config(certs))
        writer = handler.spawn(stream.send_all, [bytes(30_000_000)], _on_failure=ends.append)
        assert isinstance(stream, TlsStream)
        deadline = now() + 60
        while not stream._draining:
            assert now() < deadline, "it does not send"
            handler.sleep(0.001)
        assert stream.try_send([b"x"]) == 0
        with pytest.raises(RuntimeError, match="two workers send"):
            stream.send_all([b"x"], soon(60))
        stream.close()
        assert writer.join(60)
        go.set()
    assert [type(e) for e in ends] == [SocketDisconnectedError]


def test_close_wakes_the_reader_and_says_goodbye(handler: Handler, certs: Certificates) -> None:
    ends: list[BaseException] = []
    seen: list[Any] = []

    def talk(conn: Any) -> None:
        try:
            seen.append(conn.recv(10))
        except OSError as exc:
            seen.append(exc)

    context = certs.server()
    with serve(talk, wrap=lambda conn: context.wrap_socket(conn, server_side=True, suppress_ragged_eofs=False)) as port:
        stream = connect(handler, port, tls_config(certs))
        reader = handler.spawn(stream.recv_into, bytearray(10), _on_failure=ends.append)
        handler.sleep(0.05)
        stream.close()
        stream.close()
        assert reader.join(60)
        assert stream.closed
        deadline = now() + 60
        while not seen and now() < deadline:
            handler.sleep(0.005)
    assert [type(e) for e in ends] == [SocketDisconnectedError]
    assert seen == [b""]  # an end that TLS vouches for, not a cut


@pytest.mark.parametrize("polite", [True, False], ids=["with close_notify", "cut"])
def test_the_servers_end_is_an_end(handler: Handler, certs: Certificates, polite: bool) -> None:
    def talk(conn: Any) -> None:
        conn.sendall(b"bye")
        if polite:
            conn.settimeout(0.2)
            with contextlib.suppress(OSError):
                conn.unwrap()
        conn.close()

    with tls_server(certs.server(), talk) as port, connect(handler, port, tls_config(certs)) as stream:
        assert read(stream, 10, soon(60)) == b"bye"
        assert stream.recv_into(bytearray(10), soon(60)) == 0


def test_bytes_that_were_tampered_with_are_an_error_and_no_data(handler: Handler, certs: Certificates) -> None:
    def talk(conn: Any) -> None:
        conn.sendall(b"true")
        raw = socket.socket(fileno=os.dup(conn.fileno()))
        raw.sendall(b"\x17\x03\x03\0\x20" + bytes(32))
        raw.close()
        conn.recv(1)

    with tls_server(certs.server(), talk) as port, connect(handler, port, tls_config(certs)) as stream:
        assert read(stream, 4, soon(60)) == b"true"
        with pytest.raises(SocketDisconnectedError, match="TLS failed: DECRYPTION_FAILED_OR_BAD_RECORD_MAC"):
            stream.recv_into(bytearray(10), soon(60))


# -- the hub -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("whose", ["ours", "the system's", "stdlib", "gevent.ssl"])
def test_a_slow_server_does_not_stall_the_hub(certs: Certificates, whose: str) -> None:
    context: Any = None
    if whose == "stdlib":
        context = ssl.create_default_context(cafile=certs.ca)
    elif whose == "gevent.ssl":
        context = gevent.ssl.create_default_context(cafile=certs.ca)
    handler = resolve_handler("gevent")
    config = ClientConfig(
        security_protocol="SSL",
        ssl_context=context,
        ssl_cafile=certs.ca if whose == "ours" else None,
        tls_verify=whose != "the system's",
    )

    with tls_server(certs.server()) as port, connect(handler, port, config) as stream:
        assert_waits_in_the_hub(lambda: stream.recv_into(bytearray(1), soon(60)))
        stream.send_all([b"x"])
        assert read(stream, 1, soon(60)) == b"x"
    with serve(lambda conn: conn.recv(1_000_000) and conn.recv(1)) as silent:
        assert_waits_in_the_hub(lambda: connect(handler, silent, config))
    assert handler.stop()


def test_no_lock_is_held_while_greenlets_switch(certs: Certificates) -> None:
    handler = resolve_handler("gevent")
    held: list[str] = []
    switches: list[str] = []
    data = os.urandom(1_000_000) * 8
    with tls_server(certs.server()) as port, connect(handler, port, tls_config(certs)) as stream:
        assert isinstance(stream, TlsStream)
        lock: Any = stream._lock

        def trace(event: str, _: Any) -> None:
            switches.append(event)
            if lock.locked():
                held.append(event)

        greenlet.settrace(trace)
        try:
            writer = handler.spawn(stream.send_all, [data], soon(60))
            assert read(stream, len(data), soon(60)) == data
            assert writer.join(60)
        finally:
            greenlet.settrace(None)
    assert len(switches) >= 10
    assert held == []
    assert handler.stop()


@pytest.mark.parametrize("order", ["context, patch", "patch, context", "import ssl, patch", "threads under patch"])
def test_tls_works_in_a_patched_process(certs: Certificates, order: str) -> None:
    context = f"import ssl; context = ssl.create_default_context(cafile={certs.ca!r})"
    patch = "from gevent import monkey; monkey.patch_all()"
    start = {
        "context, patch": f"import warnings; warnings.simplefilter('ignore'); {context}; {patch}",
        "patch, context": f"{patch}; {context}",
        "import ssl, patch": f"import warnings; warnings.simplefilter('ignore'); import ssl, gkafka.net.tls; {patch}; context = None",
        "threads under patch": f"import warnings; warnings.simplefilter('ignore'); {patch}; context = None",
    }[order]
    with serve(lambda conn: conn.recv(1_000_000) and conn.recv(1)) as silent, tls_server(certs.server()) as port:
        out = run_script(
            f"""
            {start}
            from gkafka.handlers import resolve_handler
            from gkafka.net.stream import open_stream
            from gkafka.config import ClientConfig
            from tests.handlers.hub import assert_waits_in_the_hub
            from tests.kit.clock import soon
            handler = resolve_handler({"threading" if order.startswith("threads") else "auto"!r})
            config = ClientConfig(security_protocol="SSL", ssl_context=context, ssl_cafile=None if context else {certs.ca!r})
            def connect(port):
                return open_stream(handler, "127.0.0.1", port, deadline=soon(60), config=config)
            stream = connect({port})
            buffer = bytearray(10)
            assert_waits_in_the_hub(lambda: stream.recv_into(buffer, soon(60)))
            stream.send_all([b"x"], soon(60))
            print((handler.name, stream.recv_into(buffer, soon(60)), stream.version))
            stream.close()
            assert_waits_in_the_hub(lambda: connect({silent}))
            """,
            python=(),
        )
    assert out == f"('{'threading' if order.startswith('threads') else 'gevent'}', 1, 'TLSv1.3')"


@pytest.mark.parametrize("name", ["threading", "gevent"])
def test_a_forked_child_that_closes_says_nothing_to_the_server(certs: Certificates, name: str) -> None:
    with tls_server(certs.server()) as port:
        out = run_script(
            f"""
            import os
            from gkafka.handlers import resolve_handler
            from tests.kit.clock import soon
            from gkafka.net.stream import open_stream
            from gkafka.config import ClientConfig
            handler = resolve_handler({name!r})
            config = ClientConfig(security_protocol="SSL", ssl_cafile={certs.ca!r})
            stream = open_stream(handler, "127.0.0.1", {port}, deadline=soon(60), config=config)
            pid = os.fork()
            if pid == 0:
                stream.close()
                os._exit(0)
            os.waitpid(pid, 0)
            stream.send_all([b"still here"], soon(60))
            buffer = bytearray(10)
            print(buffer[:stream.recv_into(buffer, soon(60))].decode())
            stream.close()
            """,
            python=(),
        )
    assert out == "still here"
