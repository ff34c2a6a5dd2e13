"""Strangers on the wire and what they send: bugs B61, B62, B66, B67 of other clients."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import pytest

from gkafka import KafkaClient
from gkafka.exceptions import CorruptRecordError, ProtocolError
from gkafka.testing import MockCluster
from tests.kit.clock import now
from tests.net.certificates import Certificates
from tests.net.proxies import FakeProxy, running
from tests.net.servers import serve
from tests.public.aids import error_of
from tests.records.handmade import batch, record, values

Connect = Callable[..., KafkaClient]


@pytest.fixture(scope="module")
def certs(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


class Terminator:
    """TLS in front of a broker. asked: the server names of the handshakes."""

    def __init__(self, broker: int) -> None:
        self.asked: list[str | None] = []
        self._broker = broker
        self._conns: list[Any] = []

    def cut(self) -> None:
        """End every connection by a FIN, without TLS's close_notify."""
        for conn in self._conns:
            with contextlib.suppress(OSError):
                socket.socket.shutdown(conn, socket.SHUT_RDWR)  # not the SSLSocket's, after which another thread would send clear text
        self._conns.clear()

    @contextlib.contextmanager
    def running(self, certs: Certificates, name: str = "good") -> Iterator[int]:
        context = certs.server(name)
        context.sni_callback = lambda _sock, sni, _context: self.asked.append(sni)
        with serve(self._talk, wrap=lambda conn: context.wrap_socket(conn, server_side=True)) as port:
            yield port

    def _talk(self, conn: Any) -> None:
        self._conns.append(conn)
        with socket.create_connection(("127.0.0.1", self._broker)) as behind:

            def back() -> None:
                with contextlib.suppress(OSError, ValueError):
                    while data := behind.recv(65536):
                        conn.sendall(data)

            threading.Thread(target=back, daemon=True).start()
            with contextlib.suppress(OSError, ValueError):
                while data := conn.recv(65536):
                    behind.sendall(data)
            with contextlib.suppress(OSError):  # the broker has left before
                behind.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def tls_cluster(
    connect: Connect, certs: Certificates, cluster: MockCluster, host: str, name: str = "good", **options: Any
) -> Iterator[Any]:
    """(terminator, client): the client meets the cluster behind TLS, whatever it advertises."""
    terminator = Terminator(int(cluster.bootstrap.rpartition(":")[2]))
    with terminator.running(certs, name) as port:
        proxy = FakeProxy({host: ("127.0.0.1", port), "127.0.0.1": ("127.0.0.1", port)})
        with running(proxy, "socks5") as proxy_port:
            client = connect(
                f"{host}:9093",
                security_protocol="SSL",
                ssl_cafile=certs.ca,
                proxy_url=f"socks5://127.0.0.1:{proxy_port}",
                reconnect_backoff_ms=5,
                reconnect_backoff_max_ms=20,
                **options,
            )
            yield terminator, client
            client.close(2)


@pytest.mark.parametrize("claim", [2**31 - 1, -1, -(2**31)])
def test_b61_a_length_from_the_wire_allocates_nothing_and_ends_the_connection(connect: Connect, claim: int) -> None:
    """B61 kafka#7160 (KIP-498), #12399, Dekaf#893: 2 GiB were allocated for a length that a stranger sent, or a negative one was a panic."""
    with serve(lambda conn: (conn.recv(1000), conn.sendall(struct.pack(">i", claim)), conn.recv(1000))) as port:
        error = error_of(connect(f"127.0.0.1:{port}", reconnect_backoff_ms=1, reconnect_backoff_max_ms=1).connect, 5)
    assert isinstance(error, ProtocolError)
    assert f"127.0.0.1:{port}" in str(error)
    assert any(words in str(error) for words in ("accepted before the connection is open", "negative"))


@cache
def large_and_bomb() -> bytes:
    """60 MiB in one batch, and behind it one of 80."""
    one = bytes(1 << 20)
    return b"".join(batch([record(i, one) for i in range(count)], base_offset=base, attributes=1) for base, count in ((0, 60), (60, 80)))


def test_b62_a_bomb_is_refused_and_what_is_large_by_right_is_not(connect: Connect, cluster: MockCluster) -> None:
    """B62 kafkajs#1795, librdkafka#1445: a few bytes became gigabytes; librdkafka#3935: a limit that was too low stopped the consumer."""
    cluster.append("t", 0, large_and_bomb())
    cluster.append("t", 0, values(1, base_offset=140))
    with connect(cluster).get_consumer(["t"], fetch_error_backoff_ms=20) as consumer:
        got = 0
        while got < 60:
            got += len(consumer.consume_batch(60, timeout_ms=60_000))
        began = now()
        error = error_of(consumer.consume_batch, 1, 60_000)
        assert now() - began < 30
        assert isinstance(error, CorruptRecordError)
        assert (error.topic, error.partition, error.offset) == ("t", 0, 60)
        consumer.seek(("t", 0), 140)
        assert consumer.consume(timeout_ms=60_000).offset == 140


def test_b66_the_host_name_is_checked_unless_two_words_say_otherwise(connect: Connect, certs: Certificates, cluster: MockCluster) -> None:
    """B66 kafka#1384, librdkafka<2.0: the check was off by default; kafka-python#3114: without it the name was not asked for either."""
    with tls_cluster(connect, certs, cluster, "kafka.example", "wrong_host") as (_, client):
        error = error_of(client.connect, 5)
        assert "Hostname mismatch" in str(error)
    off = {"ssl_check_hostname": False, "allow_unverified_tls": True}
    with tls_cluster(connect, certs, cluster, "kafka.example", "wrong_host", **off) as (terminator, client):
        client.connect(5)
        assert terminator.asked[0] == "kafka.example"


def test_b66_a_dot_that_ends_an_absolute_name_is_no_part_of_it(connect: Connect, certs: Certificates, cluster: MockCluster) -> None:
    """B66 kafka-python#2472, librdkafka 2.13 #5253: `broker.example.` was not found in the certificate of `broker.example`."""
    with tls_cluster(connect, certs, cluster, "kafka.example.") as (terminator, client):
        client.connect(5)
        assert terminator.asked[0] == "kafka.example"


def test_b67_an_unclean_end_of_tls_is_a_lost_connection_like_any_other(connect: Connect, certs: Certificates, cluster: MockCluster) -> None:
    """B67 librdkafka 2.2: an end without close_notify counted as permanent, and the offset was reset."""
    cluster.append("t", 0, values(10))
    with tls_cluster(connect, certs, cluster, "kafka.example") as (terminator, client):
        consumer = client.get_consumer(["t"], auto_offset_reset="latest")
        consumer.seek(("t", 0), 3)
        seen = [m.offset for m in consumer.consume_batch(3, timeout_ms=60_000)]
        terminator.cut()
        cluster.append("t", 0, values(2, base_offset=10))
        while len(seen) < 9:
            seen += [m.offset for m in consumer.consume_batch(3, timeout_ms=60_000)]
        terminator.cut()
        assert client.get_producer().produce("t", b"x").result(60).offset == 12
        assert seen == list(range(3, 12))
        consumer.stop()
