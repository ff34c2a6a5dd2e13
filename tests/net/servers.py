"""Peers for stream tests: plain sockets on loopback, served by OS threads whatever the handler under test is."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import threading
from collections.abc import Callable, Iterator


def reset(conn: socket.socket) -> None:
    """Close with RST."""
    conn.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    conn.close()


def echo(conn: socket.socket) -> None:
    while data := conn.recv(65536):
        conn.sendall(data)


@contextlib.contextmanager
def serve(
    talk: Callable[[socket.socket], object],
    *,
    host: str = "127.0.0.1",
    family: int = socket.AF_INET,
    wrap: Callable[[socket.socket], socket.socket] | None = None,
) -> Iterator[int]:
    """A server that runs talk(connection) in a thread for each connection; yields its port. wrap: the server's side of TLS."""
    listener = socket.create_server((host, 0), family=socket.AddressFamily(family))
    conns: list[socket.socket] = []
    threads: list[threading.Thread] = []

    def run(conn: socket.socket) -> None:
        # A client that refuses our certificate, resets or leaves is what these tests are about.
        with contextlib.suppress(OSError):
            if wrap is not None:
                conn = wrap(conn)
                conns.append(conn)
            talk(conn)
        with contextlib.suppress(OSError):
            conn.close()

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                conn, _ = listener.accept()
                conns.append(conn)
                threads.append(threading.Thread(target=run, args=(conn,), daemon=True))
                threads[-1].start()

    acceptor = threading.Thread(target=accept, daemon=True)
    acceptor.start()
    try:
        yield listener.getsockname()[1]
    finally:
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        for conn in conns:
            with contextlib.suppress(OSError):
                conn.shutdown(socket.SHUT_RDWR)
        acceptor.join(60)
        for thread in threads:
            thread.join(60)
        for conn in conns:
            conn.close()


@contextlib.contextmanager
def black_hole() -> Iterator[int]:
    """A port whose SYNs go unanswered: a listener whose backlog is full and that never accepts."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(0)
    fillers = []
    for _ in range(4):
        filler = socket.socket()
        filler.setblocking(False)
        filler.connect_ex(listener.getsockname())
        fillers.append(filler)
    try:
        yield listener.getsockname()[1]
    finally:
        for filler in fillers:
            filler.close()
        listener.close()


def opened() -> set[str]:
    """What this process holds by descriptors now. Each socket has a name that no later one gets: what was opened since, and not closed, is a difference."""
    found = set()
    for entry in os.scandir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # it was closed since, as the one of this look is
            found.add(os.readlink(entry.path))
    return found
