"""What streams and look-ups must not do to the hub."""

from __future__ import annotations

import _socket
import socket
import threading
import time
from collections.abc import Iterator
from time import thread_time
from typing import Any

import gevent
import pytest

from gkafka.config import ClientConfig
from gkafka.exceptions import ConnectionFailedError, HandlerThreadError, KafkaTimeoutError
from gkafka.handlers import GEventHandler
from gkafka.net.stream import open_stream
from tests.handlers.hub import Ticker, assert_no_stall, run_script
from tests.net.servers import black_hole, echo, serve

CONFIG = ClientConfig()


@pytest.fixture
def handler() -> Iterator[GEventHandler]:
    made = GEventHandler()
    yield made
    assert made.stop(made.monotonic() + 5)


def blast(conn: socket.socket) -> None:
    while True:
        conn.sendall(b"x" * 1_000_000)


def test_a_fast_peer_does_not_keep_the_hub_from_its_timers(handler: GEventHandler) -> None:
    # gevent.socket in the same loop never yields: 1,501 ms of stall in a run of 1.5 s.
    def parse(seconds: float) -> None:
        end = thread_time() + seconds
        while thread_time() < end:
            pass

    with serve(blast) as port:
        stream = open_stream(handler, "127.0.0.1", port, deadline=handler.monotonic() + 5, config=CONFIG)
        buffer = memoryview(bytearray(65536))
        with Ticker() as ticker:
            end = time.monotonic() + 1
            while time.monotonic() < end:
                stream.recv_into(buffer, handler.monotonic() + 5)
                parse(0.0003)
        stream.close()
    assert ticker.worst_cpu <= 0.020
    assert len(ticker.gaps) >= 40  # the server's thread shares the GIL with us: 5 ms of work are 10 ms or more of wall time


def test_twenty_busy_readers_share_one_budget(handler: GEventHandler) -> None:
    with serve(blast) as port:
        streams = [open_stream(handler, "127.0.0.1", port, deadline=handler.monotonic() + 5, config=CONFIG) for _ in range(20)]
        counts = [0] * 20

        def read(n: int) -> None:
            buffer = memoryview(bytearray(65536))
            while not stop:
                streams[n].recv_into(buffer, handler.monotonic() + 5)
                counts[n] += 1

        stop = False
        with Ticker() as ticker:
            workers = [handler.spawn(read, n) for n in range(20)]
            handler.sleep(1)
            stop = True
            assert all(w.join(5) for w in workers)
        for stream in streams:
            stream.close()
    assert ticker.worst_cpu <= 0.025
    assert min(counts) > 0


@pytest.mark.parametrize("what", ["connect", "resolve", "resolve with a full pool", "read", "write"])
def test_waiting_for_a_dead_peer_does_not_stall_the_hub(handler: GEventHandler, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    release = threading.Event()
    real = _socket.getaddrinfo

    def slow(host: Any, port: Any, family: int = 0, type: int = 0, proto: int = 0, flags: int = 0) -> Any:
        if not flags & socket.AI_NUMERICHOST:
            release.wait(10)
        return real(host, port, family, type, proto, flags)

    monkeypatch.setattr(_socket, "getaddrinfo", slow)
    data = bytes(30_000_000)
    held = [handler.hub.threadpool.spawn(release.wait, 10) for _ in range(10)] if what == "resolve with a full pool" else []
    with black_hole() as hole, serve(lambda conn: release.wait(10)) as silent:
        stream = open_stream(handler, "127.0.0.1", silent, deadline=handler.monotonic() + 5, config=CONFIG)

        def wait() -> None:
            deadline = handler.monotonic() + 0.4
            with pytest.raises((ConnectionFailedError, KafkaTimeoutError)):
                calls[what](deadline)
            assert abs(handler.monotonic() - deadline) < 0.2

        calls = {
            "connect": lambda deadline: open_stream(handler, "127.0.0.1", hole, deadline=deadline, config=CONFIG),
            "resolve": lambda deadline: open_stream(handler, "slow.example", hole, deadline=deadline, config=CONFIG),
            "resolve with a full pool": lambda deadline: open_stream(handler, "slow.example", hole, deadline=deadline, config=CONFIG),
            "read": lambda deadline: stream.recv_into(bytearray(1), deadline),
            "write": lambda deadline: stream.send_all([data], deadline),
        }
        assert_no_stall(wait, 0.010, waits_s=0.4)
        if what.startswith("resolve"):
            assert handler.offload(lambda: 1) == 1  # codec work has threads of its own
        release.set()
        stream.close()
    gevent.joinall(held, timeout=5)


def test_a_look_up_that_nobody_waits_for_is_given_up(handler: GEventHandler, monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[str] = []

    class Resolver:  # cooperative, like gevent's dnspython and c-ares ones
        def getaddrinfo(self, *_: Any) -> Any:
            try:
                gevent.sleep(20)
            except gevent.GreenletExit:
                ended.append("given up")
                raise

    monkeypatch.setattr(handler.hub, "_resolver", Resolver())
    with pytest.raises(KafkaTimeoutError):
        handler.getaddrinfo("slow.example", 1, handler.monotonic() + 0.05)
    gevent.sleep(0.01)
    assert ended == ["given up"]


def test_a_stream_that_would_wait_in_another_thread_says_so(handler: GEventHandler) -> None:
    errors: list[BaseException] = []

    def foreign() -> None:
        try:
            stream.recv_into(bytearray(1), time.monotonic() + 1)
        except BaseException as exc:
            errors.append(exc)

    with serve(echo) as port:
        stream = open_stream(handler, "127.0.0.1", port, deadline=handler.monotonic() + 5, config=CONFIG)
        thread = threading.Thread(target=foreign)
        thread.start()
        thread.join(5)
        stream.close()
    assert [type(e) for e in errors] == [HandlerThreadError]


def test_a_reader_that_is_killed_leaves_the_stream_to_the_next(handler: GEventHandler) -> None:
    with serve(echo) as port:
        stream = open_stream(handler, "127.0.0.1", port, deadline=handler.monotonic() + 5, config=CONFIG)
        for _ in range(5):
            victim = gevent.spawn(stream.recv_into, bytearray(10))
            gevent.sleep(0.005)
            victim.kill()
        with pytest.raises(gevent.Timeout), gevent.Timeout(0.02):
            stream.recv_into(bytearray(10))
        stream.send_all([b"abc"])
        buffer = bytearray(10)
        assert stream.recv_into(buffer, handler.monotonic() + 5) == 3
        stream.close()


@pytest.mark.parametrize(
    ("patch", "name"),
    [
        ("", "gevent"),
        ("from gevent import monkey; monkey.patch_all()", "gevent"),
        ("from gevent import monkey; monkey.patch_all()", "threading"),
    ],
)
def test_streams_work_in_a_process_of_any_kind(patch: str, name: str) -> None:
    out = run_script(
        f"""
        {patch}
        import warnings; warnings.simplefilter("ignore")
        import gevent, gevent.server
        from gkafka.handlers import resolve_handler
        from gkafka.net.stream import open_stream
        from gkafka.config import ClientConfig
        def serve(conn, _):
            while data := conn.recv(65536):
                conn.sendall(data)
        server = gevent.server.StreamServer(("localhost", 0), serve); server.start()
        handler = resolve_handler({name!r})
        stream = open_stream(handler, "localhost", server.server_port, deadline=handler.monotonic() + 5, config=ClientConfig())
        data = bytes(range(256)) * 8192
        got = bytearray()
        def read():
            view = memoryview(bytearray(65536))
            while len(got) < len(data):
                got.extend(view[:stream.recv_into(view, handler.monotonic() + 5)])
        worker = handler.spawn(read)
        stream.send_all([data], handler.monotonic() + 5)
        print(worker.join(10), bytes(got) == data)
        ends = []
        worker = handler.spawn(stream.recv_into, bytearray(1), _on_failure=ends.append)
        handler.sleep(0.02)
        stream.close()
        print(worker.join(2), type(ends[0]).__name__)
        server.stop()
        print(handler.stop())
        """
    )
    assert out.splitlines() == ["True True", "True SocketDisconnectedError", "True"]
