"""TCP streams of both handlers, and the way from a host name to one of them."""

from __future__ import annotations

import _socket
import contextlib
import os
import resource
import select
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from gkafka.config import ClientConfig
from gkafka.exceptions import ConnectionFailedError, KafkaTimeoutError, SocketDisconnectedError
from gkafka.handlers import Handler, Stream
from gkafka.handlers.sockets import IOV_MAX
from gkafka.net.stream import open_stream
from tests.kit.clock import PATIENCE_S, now, soon
from tests.kit.lacking import leave_out
from tests.kit.ports import refused_port
from tests.live.jvm import free_ports
from tests.net.servers import black_hole, echo, opened, reset, serve

CONFIG = ClientConfig()


def connect(handler: Handler, port: int, host: str = "127.0.0.1", timeout: float = 60, config: ClientConfig = CONFIG) -> Stream:
    return open_stream(handler, host, port, deadline=soon(timeout), config=config)


def read(stream: Stream, size: int, deadline: float | None = None) -> bytes:
    """Exactly `size` bytes, or fewer at the end of the stream."""
    buffer = bytearray(size)
    view = memoryview(buffer)
    got = 0
    while got < size:
        received = stream.recv_into(view[got:], deadline)
        if not received:
            break
        got += received
    return bytes(buffer[:got])


@contextlib.contextmanager
def took(seconds: float) -> Iterator[None]:
    started = now()
    yield
    elapsed = now() - started
    assert seconds - 0.01 <= elapsed <= 30, f"{elapsed:.3f} s"


def socket_of(stream: Stream) -> socket.socket:
    return socket.socket(fileno=os.dup(stream.fileno()))


# -- connecting --------------------------------------------------------------------------------------------------------
def test_bytes_go_there_and_back(handler: Handler) -> None:
    with serve(echo) as port, connect(handler, port) as stream:
        assert stream.peer == f"127.0.0.1:{port}"
        stream.send_all([b"he", bytearray(b"l"), memoryview(b"lo"), b""], soon(60))
        assert read(stream, 5) == b"hello"


def test_ipv6_works(handler: Handler) -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        leave_out(("IPv6 loopback", "sysctl net.ipv6.conf.lo.disable_ipv6=0"))
    with serve(echo, host="::1", family=socket.AF_INET6) as port, connect(handler, port, host="::1") as stream:
        assert stream.peer == f"[::1]:{port}"
        stream.send_all([b"six"])
        assert read(stream, 3) == b"six"


def test_a_stream_has_nodelay_and_keepalive(handler: Handler) -> None:
    with serve(echo) as port, connect(handler, port, config=ClientConfig(keepalive_idle_s=17)) as stream, socket_of(stream) as sock:
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 17
    with serve(echo) as port, connect(handler, port, config=ClientConfig(keepalive=False)) as stream, socket_of(stream) as sock:
        assert not sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)


def test_options_and_source_address_are_set_before_connecting(handler: Handler) -> None:
    (source,) = free_ports(1)
    peers: list[Any] = []
    with serve(lambda conn: (peers.append(conn.getpeername()), echo(conn))) as port:
        stream = handler.create_connection(
            (socket.AF_INET, ("127.0.0.1", port)),
            soon(60),
            source_address=("127.0.0.1", source),
            sockopts=[(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)],
        )
        with stream, socket_of(stream) as sock:
            assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) <= 2 * 8192
            stream.send_all([b"x"])
            assert read(stream, 1) == b"x"
    assert peers == [("127.0.0.1", source)]


def test_socket_options_are_set_before_connecting(handler: Handler) -> None:
    with serve(echo) as port:
        config = ClientConfig(socket_options=((socket.SOL_SOCKET, socket.SO_RCVBUF, 8192),))
        with connect(handler, port, config=config) as stream, socket_of(stream) as sock:
            assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) <= 2 * 8192


def test_a_source_address_that_is_not_ours_is_named(handler: Handler) -> None:
    with serve(echo) as port, pytest.raises(ConnectionFailedError, match=r"[Cc]annot assign"):
        connect(handler, port, config=ClientConfig(source_address=("192.0.2.1", 0)))


def test_a_refused_connection_names_host_port_and_reason(handler: Handler) -> None:
    port = refused_port()
    with pytest.raises(ConnectionFailedError, match=rf"127\.0\.0\.1:{port}: no connection: .*[Rr]efused") as caught:
        connect(handler, port)
    assert isinstance(caught.value.__cause__, ConnectionRefusedError)
    assert caught.value.retriable
    assert caught.value.broker == f"127.0.0.1:{port}"


def test_a_connection_that_reaches_itself_is_refused(handler: Handler) -> None:
    (port,) = free_ports(1)
    with pytest.raises(ConnectionRefusedError, match="itself"):
        handler.create_connection((socket.AF_INET, ("127.0.0.1", port)), soon(60), source_address=("127.0.0.1", port)).close()


def test_connecting_ends_at_the_deadline(handler: Handler) -> None:
    with black_hole() as port:
        with took(0.5), pytest.raises(KafkaTimeoutError, match=str(port)):
            handler.create_connection((socket.AF_INET, ("127.0.0.1", port)), soon(0.5))
        with took(0.5), pytest.raises(ConnectionFailedError, match=r"timed out after \d+\.\d s"):
            connect(handler, port, timeout=0.5)


def test_a_deadline_that_has_passed_costs_no_time(handler: Handler) -> None:
    with black_hole() as port, took(0), pytest.raises(ConnectionFailedError):
        connect(handler, port, timeout=-1)


def test_all_addresses_of_a_name_are_tried_in_turn(handler: Handler, monkeypatch: pytest.MonkeyPatch) -> None:
    dead = refused_port()
    with black_hole() as silent, serve(echo) as port:
        addresses = [(socket.AF_INET, ("127.0.0.1", p)) for p in (dead, silent, port)]
        monkeypatch.setattr(handler, "getaddrinfo", lambda *_: addresses)
        create, given = handler.create_connection, {}

        def noted(address: Any, deadline: float, **options: Any) -> Stream:
            tried = address[1][1]
            given[tried] = deadline - now()
            return create(address, soon(0.1) if tried == silent else deadline, **options)

        monkeypatch.setattr(handler, "create_connection", noted)
        with connect(handler, 1, host="kafka.example", timeout=60) as stream:
            stream.send_all([b"x"])
            assert read(stream, 1) == b"x"
        assert list(given) == [dead, silent, port]
        assert given[dead] <= 20
        assert 20 < given[silent] <= 30, "dead answers at once; silent gets half of what is left"


def test_when_no_address_answers_the_error_names_each_with_its_reason(handler: Handler, monkeypatch: pytest.MonkeyPatch) -> None:
    dead = refused_port()
    with black_hole() as one, black_hole() as two:
        addresses = [(socket.AF_INET, ("127.0.0.1", p)) for p in (one, dead, two)]
        monkeypatch.setattr(handler, "getaddrinfo", lambda *_: addresses)
        with took(1.5), pytest.raises(ConnectionFailedError) as caught:
            connect(handler, 1, host="kafka.example", timeout=1.5)
    text = str(caught.value)
    assert text.startswith("kafka.example:1: no connection: ")
    assert f":{one}: timed out" in text
    assert f":{dead}: Connection refused" in text
    assert f":{two}: timed out" in text


def test_nothing_is_left_open_after_failures(handler: Handler) -> None:
    port = refused_port()
    with black_hole() as silent:
        before = opened()
        for p in (port, silent) * 3:
            with pytest.raises(ConnectionFailedError):
                connect(handler, p, timeout=0.02)
        assert not opened() - before


# -- names -------------------------------------------------------------------------------------------------------------
@pytest.fixture
def resolver(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """Stands in for the C library's resolver. asked: the names; answer: callable (host) -> entries."""
    state: dict[str, Any] = {"asked": [], "answer": None}
    real = _socket.getaddrinfo

    def getaddrinfo(host: Any, port: Any, family: int = 0, type: int = 0, proto: int = 0, flags: int = 0) -> Any:
        if flags & socket.AI_NUMERICHOST:
            return real(host, port, family, type, proto, flags)
        state["asked"].append(host)
        return state["answer"](host)

    monkeypatch.setattr(_socket, "getaddrinfo", getaddrinfo)
    yield state
    state["answer"] = lambda host: []


def entry(address: str, port: int) -> tuple[Any, ...]:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return family, socket.SOCK_STREAM, 6, "", (address, port, 0, 0) if ":" in address else (address, port)


def test_a_name_gives_all_its_addresses_once_in_the_resolvers_order(handler: Handler, resolver: dict[str, Any]) -> None:
    resolver["answer"] = lambda host: [entry("::1", 9), entry("127.0.0.2", 9), entry("::1", 9), entry("127.0.0.1", 9)]
    found = handler.getaddrinfo("kafka.example", 9, soon(60))
    assert [address[1][0] for address in found] == ["::1", "127.0.0.2", "127.0.0.1"]
    assert [address[0] for address in found] == [socket.AF_INET6, socket.AF_INET, socket.AF_INET]
    assert [bytes(h, "ascii") if isinstance(h, str) else h for h in resolver["asked"]] == [b"kafka.example"]


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "fe80::1%1"])
def test_a_literal_address_asks_no_resolver(handler: Handler, resolver: dict[str, Any], host: str) -> None:
    found = handler.getaddrinfo(host, 9092)
    assert len(found) == 1
    assert found[0][1][0].partition("%")[0] == host.partition("%")[0]
    assert found[0][1][1] == 9092
    assert resolver["asked"] == []


def test_a_resolver_that_hangs_ends_at_the_deadline(handler: Handler, resolver: dict[str, Any]) -> None:
    release = threading.Event()
    resolver["answer"] = lambda host: release.wait(60)
    try:
        with took(0.4), pytest.raises(KafkaTimeoutError, match=r"slow\.example:9092: the host name was not resolved"):
            handler.getaddrinfo("slow.example", 9092, soon(0.4))
        with took(0.2), pytest.raises(ConnectionFailedError, match=r"slow\.example:9092: .*not resolved by the deadline"):
            connect(handler, 9092, host="slow.example", timeout=0.2)
    finally:
        release.set()


def test_a_name_that_does_not_exist_is_named_with_the_reason(handler: Handler, resolver: dict[str, Any]) -> None:
    def answer(host: str) -> Any:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    resolver["answer"] = answer
    with pytest.raises(ConnectionFailedError, match=r"nohost\.example:9092: cannot resolve the host name: Name or service not known"):
        connect(handler, 9092, host="nohost.example")


@pytest.mark.parametrize("host", ["a..b", "x" * 70 + ".example", "nul\0.example"])
def test_a_name_that_cannot_be_one_is_an_error_of_ours(handler: Handler, host: str, capfd: pytest.CaptureFixture[str]) -> None:
    """And of nobody else: a broker that tells such names wrote a traceback of gevent's to the terminal with each try."""
    with pytest.raises(ConnectionFailedError, match="cannot resolve the host name"):
        connect(handler, 9092, host=host)
    assert capfd.readouterr().err == ""


def test_a_name_without_addresses_is_an_error(handler: Handler, resolver: dict[str, Any]) -> None:
    resolver["answer"] = lambda host: []
    with pytest.raises(ConnectionFailedError, match="no address"):
        handler.getaddrinfo("empty.example", 1)


# -- reading -----------------------------------------------------------------------------------------------------------
def test_a_read_ends_at_its_deadline_and_the_stream_lives_on(handler: Handler) -> None:
    with serve(echo) as port, connect(handler, port) as stream:
        for timeout in (0.0, 0.1, 1.1):
            with took(timeout), pytest.raises(KafkaTimeoutError, match=f"127.0.0.1:{port}: no answer by the deadline"):
                stream.recv_into(bytearray(10), soon(timeout))
        stream.send_all([b"alive"])
        assert read(stream, 5, soon(60)) == b"alive"


def test_what_arrived_is_read_also_after_the_deadline(handler: Handler) -> None:
    with serve(lambda conn: (conn.sendall(b"early"), conn.recv(1))) as port, connect(handler, port) as stream:
        deadline = now() + PATIENCE_S
        while not select.select([stream.fileno()], [], [], 0)[0]:
            assert now() < deadline, "nothing arrives"
            handler.sleep(0.005)
        assert read(stream, 5, soon(-1)) == b"early"


def test_the_peers_half_close_is_an_end_of_reading_only(handler: Handler) -> None:
    got: list[bytes] = []

    def talk(conn: socket.socket) -> None:
        conn.sendall(b"bye")
        conn.shutdown(socket.SHUT_WR)
        while data := conn.recv(100):
            got.append(data)

    with serve(talk) as port:
        with connect(handler, port) as stream:
            assert read(stream, 10) == b"bye"
            assert stream.recv_into(bytearray(10)) == 0
            stream.send_all([b"still here"])
        deadline = now() + 60
        while b"".join(got) != b"still here" and now() < deadline:
            time.sleep(0.005)
    assert b"".join(got) == b"still here"


def test_a_reset_is_a_disconnect_that_names_the_peer(handler: Handler) -> None:
    def talk(conn: socket.socket) -> None:
        conn.recv(1)
        reset(conn)

    with serve(talk) as port, connect(handler, port) as stream:
        stream.send_all([b"x"])
        with pytest.raises(SocketDisconnectedError, match=f"127.0.0.1:{port}: Connection reset"):
            stream.recv_into(bytearray(10), soon(60))


def test_sending_to_a_peer_that_has_gone_is_a_disconnect(handler: Handler) -> None:
    def send_on(stream: Stream) -> None:
        deadline = now() + PATIENCE_S
        while now() < deadline:
            stream.send_all([b"x" * 1000], soon(60))
            handler.sleep(0.002)

    # The peer may be gone before the connection is ready: that is a disconnect, too.
    with serve(reset) as port, pytest.raises(SocketDisconnectedError, match=f"127.0.0.1:{port}"), connect(handler, port) as stream:
        send_on(stream)


# -- closing -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("deadline_s", [None, 200.0])
def test_close_wakes_the_reader_at_once(handler: Handler, deadline_s: float | None) -> None:
    ends: list[BaseException] = []
    with serve(echo) as port:
        stream = connect(handler, port)
        deadline = None if deadline_s is None else soon(deadline_s)
        reader = handler.spawn(stream.recv_into, bytearray(10), deadline, _on_failure=ends.append)
        handler.sleep(0.05)
        stream.close()
        assert reader.join(60)
    assert [type(e) for e in ends] == [SocketDisconnectedError]
    assert "closed by this client" in str(ends[0])


def test_close_wakes_a_writer_that_waits_for_room(handler: Handler) -> None:
    ends: list[BaseException] = []
    go = threading.Event()
    with serve(lambda conn: go.wait(60)) as port:
        stream = connect(handler, port)
        writer = handler.spawn(stream.send_all, [b"x" * 50_000_000], _on_failure=ends.append)
        handler.sleep(0.1)
        stream.close()
        assert writer.join(60)
        go.set()
    assert [type(e) for e in ends] == [SocketDisconnectedError]


def test_close_from_another_os_thread_wakes_the_reader(handler: Handler) -> None:
    ends: list[BaseException] = []
    with serve(echo) as port:
        stream = connect(handler, port)
        reader = handler.spawn(stream.recv_into, bytearray(10), _on_failure=ends.append)
        handler.sleep(0.05)
        thread = threading.Thread(target=stream.close)
        thread.start()
        assert reader.join(60)
        thread.join()
    assert [type(e) for e in ends] == [SocketDisconnectedError]


def test_shutdown_gives_the_reader_an_end(handler: Handler) -> None:
    got: list[int] = []
    with serve(echo) as port, connect(handler, port) as stream:
        reader = handler.spawn(lambda: got.append(stream.recv_into(bytearray(10))))
        handler.sleep(0.05)
        stream.shutdown()
        assert reader.join(60)
        assert got == [0]
        stream.shutdown()


def test_close_is_idempotent_and_everything_after_it_is_a_disconnect(handler: Handler) -> None:
    with serve(echo) as port:
        stream = connect(handler, port)
        assert not stream.closed
        stream.send_all([b"x"])
        assert read(stream, 1) == b"x"  # the server has accepted: its descriptor cannot take our number
        fd = stream.fileno()
        stream.close()
        stream.close()
        stream.shutdown()
        assert stream.closed
        assert stream.fileno() == -1
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(fd)
        for use in (lambda: stream.recv_into(bytearray(1)), lambda: stream.try_send([b"x"]), lambda: stream.send_all([b"x"])):
            with pytest.raises(SocketDisconnectedError, match="closed by this client"):
                use()


def test_the_descriptor_of_a_closed_stream_goes_with_its_last_worker(handler: Handler) -> None:
    with serve(echo) as port:
        stream = connect(handler, port)
        stream.send_all([b"x"])
        assert read(stream, 1) == b"x"
        fd = stream.fileno()
        reader = handler.spawn(stream.recv_into, bytearray(10), _on_failure=lambda e: None)
        handler.sleep(0.05)
        stream.close()
        assert reader.join(60)
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(fd)


def test_two_readers_of_one_stream_are_an_error_not_a_muddle(handler: Handler) -> None:
    with serve(echo) as port, connect(handler, port) as stream:
        first = handler.spawn(stream.recv_into, bytearray(10), _on_failure=lambda e: None)
        deadline = now() + PATIENCE_S
        while not (getattr(stream, "_reader", None) or getattr(stream, "_waiting", None)):
            assert now() < deadline, "it does not read"
            handler.sleep(0.001)
        with pytest.raises(RuntimeError):
            stream.recv_into(bytearray(10), soon(60))
        assert first.is_alive()
        stream.close()
        assert first.join(60)


# -- sending -----------------------------------------------------------------------------------------------------------
def test_many_buffers_arrive_whole_and_in_order(handler: Handler) -> None:
    buffers = [bytes([i % 251]) * (i % 4000) for i in range(3 * IOV_MAX + 17)]
    whole = b"".join(buffers)
    got = bytearray()
    end = threading.Event()

    def talk(conn: socket.socket) -> None:
        while len(got) < len(whole):
            got.extend(conn.recv(50_000))
            time.sleep(0.0005)  # slower than we send: the kernel's buffers fill up
        end.set()

    with serve(talk) as port, connect(handler, port) as stream:
        stream.send_all(buffers, soon(60))
        deadline = now() + PATIENCE_S
        while not end.is_set() and now() < deadline:
            handler.sleep(0.005)
    assert got == whole


def test_try_send_takes_what_the_kernel_takes_and_never_waits(handler: Handler) -> None:
    go, end = threading.Event(), threading.Event()
    got = bytearray()
    data = bytes(range(256)) * 4096  # 1 MiB

    def talk(conn: socket.socket) -> None:
        go.wait(60)
        while chunk := conn.recv(1 << 20):
            got.extend(chunk)
        end.set()

    with serve(talk) as port:
        with connect(handler, port) as stream:
            sent = 0
            while n := stream.try_send([memoryview(data)[sent % len(data) :]]):
                sent += n
            assert stream.try_send([b"more"]) == 0
            assert sent > 0
            with took(0.2), pytest.raises(KafkaTimeoutError, match="no room to send by the deadline"):
                stream.send_all([b"!"], soon(0.2))
            go.set()
        assert end.wait(60)
    assert len(got) == sent
    assert bytes(got) == (data * (sent // len(data) + 1))[:sent]


def test_try_send_of_more_buffers_than_one_call_takes_is_partial(handler: Handler) -> None:
    with serve(echo) as port, connect(handler, port) as stream:
        assert stream.try_send([b"abcdef"] * (IOV_MAX + 100)) == 6 * IOV_MAX
        assert read(stream, 6 * IOV_MAX) == b"abcdef" * IOV_MAX
        assert stream.try_send([]) == 0
        assert stream.try_send([b"", b"c", b""]) == 1
        assert read(stream, 1) == b"c"


def test_one_worker_reads_while_another_writes(handler: Handler) -> None:
    size = 8_000_000
    data = os.urandom(1_000_000) * 8
    got: list[bytes] = []
    failures: list[BaseException] = []
    with serve(echo) as port, connect(handler, port) as stream:
        deadline = soon(60)
        reader = handler.spawn(lambda: got.append(read(stream, size, deadline)), _on_failure=failures.append)
        writer = handler.spawn(stream.send_all, [data], deadline, _on_failure=failures.append)
        assert writer.join(60)
        assert reader.join(60)
    assert failures == []
    assert got == [data]


def test_descriptors_above_1024_work(handler: Handler) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < 1400:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(1400, hard), hard))
    spare = os.open(os.devnull, os.O_RDONLY)
    held: list[int] = []
    try:
        with serve(echo) as port:
            while not held or held[-1] < 1030:
                held.append(os.dup(spare))
            with connect(handler, port) as stream:
                assert stream.fileno() > 1024
                with pytest.raises(KafkaTimeoutError):
                    stream.recv_into(bytearray(1), soon(0.01))
                stream.send_all([b"x"])
                assert read(stream, 1) == b"x"
    finally:
        for fd in [spare, *held]:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
