"""A relay that writes down what clients send, and can cut its connections."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

from tests.net.servers import serve


class Recorder:
    """target: where connections lead; it may be set later. sent: what each connection's client sent, in the order of their coming."""

    def __init__(self, target: int = 0) -> None:
        self.target = target
        self.port = 0
        self.sent: list[bytearray] = []
        self._pairs: list[tuple[socket.socket, socket.socket]] = []

    @property
    def all_sent(self) -> bytes:
        return b"".join(self.sent)

    def forget(self) -> None:
        self.sent = []

    def cut(self) -> None:
        """End every connection, in both directions."""
        pairs, self._pairs = self._pairs, []
        for sock in (sock for pair in pairs for sock in pair):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    @contextlib.contextmanager
    def running(self) -> Iterator[Recorder]:
        with serve(self._relay) as self.port:
            yield self
            self.cut()

    def _relay(self, conn: socket.socket) -> None:
        sent = bytearray()
        self.sent.append(sent)
        with socket.create_connection(("127.0.0.1", self.target), timeout=60) as behind:
            behind.settimeout(None)
            self._pairs.append((conn, behind))
            back = threading.Thread(target=_pump, args=(behind, conn, bytearray()), daemon=True)
            back.start()
            _pump(conn, behind, sent)
            back.join(60)


def _pump(source: socket.socket, target: socket.socket, record: bytearray) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            record += data
            target.sendall(data)
    for sock in (source, target):
        with contextlib.suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)


def tls_records(data: bytes) -> list[tuple[int, bytes]]:
    """[(type, payload)] of a stream of TLS records. Raises ValueError at the first byte that belongs to none."""
    found = []
    at = 0
    while at < len(data):
        kind, major = data[at], data[at + 1] if at + 1 < len(data) else 3
        size = int.from_bytes(data[at + 3 : at + 5], "big")
        if kind not in (20, 21, 22, 23) or major != 3 or size > 16384 + 256:
            raise ValueError(f"no TLS record at byte {at}: {data[at : at + 20]!r}")
        found.append((kind, data[at + 5 : at + 5 + size]))
        at += 5 + size
    return found
