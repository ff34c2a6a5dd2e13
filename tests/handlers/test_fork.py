"""A child process must not go on with its parent's workers and sockets."""

from __future__ import annotations

import pytest

from tests.handlers.hub import run_script

MAKE = {
    "threading": "from gkafka.handlers import ThreadingHandler as H",
    "gevent": "from gkafka.handlers import GEventHandler as H",
    "gevent patched": "import tests.handlers.noplugins; from gevent import monkey; monkey.patch_all()\nfrom gkafka.handlers import GEventHandler as H",
}
HARNESS = """
import logging, os, sys, time
{make}
from gkafka.exceptions import ForkedClientError
handler = H()
def in_child(run):
    "Run in a forked child: what it returns."
    r, w = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            text = str(run())
        except BaseException as exc:
            text = "%s: %s" % (type(exc).__name__, exc)
        os.write(w, text.encode()); os._exit(0)
    # One write, one read: in a patched process os.close() is late.
    return os.read(r, 65536).decode()
"""


def script(make: str, body: str) -> list[str]:
    return run_script(HARNESS.format(make=MAKE[make]) + body, python=()).splitlines()


@pytest.mark.parametrize("make", MAKE)
def test_in_a_child_every_use_is_an_error_that_names_both_processes(make: str) -> None:
    lines = script(
        make,
        """
parent = os.getpid()
handler.spawn(int).join(60)
def uses():
    said = []
    for use in (handler.check_fork, lambda: handler.spawn(print), handler.start, lambda: handler.getaddrinfo("127.0.0.1", 1),
                lambda: handler.create_connection((2, ("127.0.0.1", 1)))):
        try:
            use()
            said.append("worked")
        except ForkedClientError as exc:
            said.append(f"created in pid {parent}, used in pid {os.getpid()}: create the client after the fork" == str(exc))
    return said
print(in_child(uses))
handler.check_fork()
print(handler.spawn(print, "the parent goes on").join(60))
""",
    )
    assert lines == [str([True] * 5), "the parent goes on", "True"]


@pytest.mark.parametrize("make", ["gevent", "gevent patched"])
def test_inherited_greenlets_end_in_the_child_without_a_word(make: str) -> None:
    lines = script(
        make,
        """
import gevent
ends = []
waits = {"event": handler.Event().wait, "future": handler.Future().result, "queue": handler.Queue().get, "lock": None,
         "sleep": lambda: handler.sleep(300)}
lock = handler.Lock(); lock.acquire(); waits["lock"] = lock.acquire
workers = [handler.spawn(wait, _name=name, _on_failure=lambda e, n=name: ends.append((n, type(e).__name__))) for name, wait in waits.items()]
gevent.sleep(0.02)
def child():
    gevent.reinit()
    from tests.kit.clock import now
    deadline = now() + 60
    while len(ends) < len(waits) and now() < deadline:
        gevent.sleep(0.01)
    return sorted(ends)
print(in_child(child))
print(ends, [w.is_alive() for w in workers])
""",
    )
    names = ("event", "future", "lock", "queue", "sleep")
    assert lines == [str([(n, "ForkedClientError") for n in names]), f"[] {[True] * 5}"]


@pytest.mark.parametrize("make", MAKE)
def test_stop_in_a_child_does_not_wait_for_workers_that_are_not_there(make: str) -> None:
    lines = script(
        make,
        """
go = handler.Event()
worker = handler.spawn(go.wait, 60)
def child():
    from tests.kit.clock import now
    started = now()
    handler.stop()
    return now() - started < 30
print(in_child(child))
go.set()
print(worker.join(60))
""",
    )
    assert lines == ["True", "True"]


@pytest.mark.parametrize("make", MAKE)
def test_closing_a_stream_in_the_child_leaves_the_parents_connection_alone(make: str) -> None:
    lines = script(
        make,
        """
import _socket
from tests.kit.clock import soon
listener = _socket.socket(); listener.bind(("127.0.0.1", 0)); listener.listen(5)
stream = handler.create_connection((_socket.AF_INET, listener.getsockname()), soon(60))
fd, _ = listener._accept()
peer = _socket.socket(fileno=fd)
buffer = bytearray(100)
got = []
reader = handler.spawn(lambda: got.append(stream.recv_into(buffer, soon(60))))
handler.sleep(0.05)   # it waits inside the stream while the process forks
def child():
    stream.close()
    return stream.fileno()
print(in_child(child))
stream.send_all([b"still here"], soon(60))
print(peer.recv(100).decode())
peer.send(b"so am I")
print(reader.join(60), buffer[:got[0]].decode())
peer.close(); listener.close(); stream.close()
""",
    )
    assert lines == ["-1", "still here", "True so am I"]


@pytest.mark.parametrize("make", ["gevent", "gevent patched"])
def test_a_greenlet_that_reads_a_stream_ends_in_the_child(make: str) -> None:
    lines = script(
        make,
        """
import _socket, gevent
from tests.kit.clock import soon
listener = _socket.socket(); listener.bind(("127.0.0.1", 0)); listener.listen(5)
stream = handler.create_connection((_socket.AF_INET, listener.getsockname()), soon(60))
fd, _ = listener._accept()
peer = _socket.socket(fileno=fd)
ends = []
got = []
def read():
    buffer = bytearray(100)
    got.append(bytes(buffer[:stream.recv_into(buffer)]))
worker = handler.spawn(read, _on_failure=lambda e: ends.append(type(e).__name__))
gevent.sleep(0.02)
def child():
    gevent.reinit()
    from tests.kit.clock import now
    deadline = now() + 60
    while not ends and now() < deadline:
        gevent.sleep(0.01)
    return ends, got
print(in_child(child))
peer.send(b"for the parent")
print(worker.join(60), got, ends)
peer.close(); listener.close(); stream.close()
""",
    )
    assert lines == ["(['ForkedClientError'], [])", "True [b'for the parent'] []"]
