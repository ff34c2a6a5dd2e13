"""8: a TLS broker that takes its time stalls nobody, whoever made the context."""

from __future__ import annotations

import contextlib
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import gevent
import gevent.ssl
import pytest

from benchmarks.figures import stub_broker
from tests.gevent.harness import LATE, LIMIT_S, UNPATCHED, assert_no_stall, connect, in_children
from tests.net.certificates import Certificates
from tests.net.servers import serve

HANDSHAKE_S, REPLY_S = 0.3, 0.2


def contexts(ca: str) -> Iterator[ssl.SSLContext]:
    """One of the standard library's, one of gevent's, and in a process that was patched late one that was built before."""
    yield ssl.create_default_context(cafile=ca)
    yield gevent.ssl.create_default_context(cafile=ca)
    early: ssl.SSLContext | None = getattr(sys.modules["__main__"], "early_context", None)
    if early is not None:
        early.load_verify_locations(ca)
        yield early


def talk(hosts: str, ca: str) -> int:
    """A client with each context, all at once. Returns how many contexts there were."""
    made = list(contexts(ca))

    def one(context: ssl.SSLContext) -> None:
        with connect(hosts, security_protocol="SSL", ssl_context=context) as client:
            offset = client.get_producer().produce("t", b"x").result(LIMIT_S).offset
            consumer = client.get_consumer()
            consumer.assign({("t", 0): offset})
            message = consumer.consume(1000 * LIMIT_S)
            assert message is not None
            assert message.value == b"x"

    def run() -> None:
        gevent.joinall([gevent.spawn(one, context) for context in made], timeout=LIMIT_S, raise_error=True)

    assert_no_stall(run, 10)
    return len(made)


@contextlib.contextmanager
def slow_door(wrap: Callable[[socket.socket], socket.socket], target: list[int]) -> Iterator[int]:
    """A port that relays to the port in `target`: a late handshake, and each answer late."""

    def relay(conn: socket.socket) -> None:
        with socket.create_connection(("127.0.0.1", target[0])) as behind:

            def back() -> None:
                with contextlib.suppress(OSError):
                    while data := behind.recv(65536):
                        time.sleep(REPLY_S)
                        conn.sendall(data)

            answers = threading.Thread(target=back, daemon=True)
            answers.start()
            with contextlib.suppress(OSError):
                while data := conn.recv(65536):
                    behind.sendall(data)
            with contextlib.suppress(OSError):
                behind.shutdown(socket.SHUT_RDWR)
            answers.join(5)

    def late(conn: socket.socket) -> socket.socket:
        time.sleep(HANDSHAKE_S)
        return wrap(conn)

    with serve(relay, wrap=late) as port:
        yield port


@pytest.fixture(scope="module")
def certs(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(Path(tmp_path_factory.mktemp("certificates")))


@pytest.fixture(scope="module")
def slow_tls_broker(certs: Certificates) -> Iterator[str]:
    server, target = certs.server(), [0]
    with slow_door(lambda conn: server.wrap_socket(conn, server_side=True), target) as port, stub_broker("--advertise", str(port)) as stub:
        target[0] = int(stub.rpartition(":")[2])
        yield f"127.0.0.1:{port}"


def test_08_a_slow_tls_broker_stalls_nobody_whoever_made_the_context(slow_tls_broker: str, certs: Certificates) -> None:
    assert in_children([UNPATCHED, LATE], talk, slow_tls_broker, certs.ca) == {UNPATCHED: 2, LATE: 3}
