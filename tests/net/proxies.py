"""Proxies for tests: SOCKS5 and HTTP CONNECT on loopback, in OS threads; they write down what they were asked."""

from __future__ import annotations

import base64
import contextlib
import socket
import struct
import threading
from collections.abc import Iterator, Mapping

from tests.net.servers import serve


class FakeProxy:
    """names: host -> (address, port) that it stands for; what is not there is taken as an address. asked: (host, port) of each tunnel."""

    def __init__(self, names: Mapping[str, tuple[str, int]] | None = None, credentials: tuple[str, str] | None = None) -> None:
        self.names = dict(names or {})
        self.credentials = credentials
        self.asked: list[tuple[str, int]] = []
        self.logins: list[tuple[str, str]] = []
        self.passed = bytearray()  # from clients to brokers, what was said to the proxy left out

    def socks5(self, conn: socket.socket) -> None:
        _, count = _read(conn, 2)
        offered = _read(conn, count)
        wanted = 0 if self.credentials is None else 2
        if wanted not in offered:
            conn.sendall(b"\x05\xff")
            return
        conn.sendall(bytes([5, wanted]))
        if wanted == 2:
            username = _read(conn, _read(conn, 2)[1])
            password = _read(conn, _read(conn, 1)[0])
            self.logins.append((username.decode(), password.decode()))
            conn.sendall(b"\x01\x00" if self.logins[-1] == self.credentials else b"\x01\x01")
            if self.logins[-1] != self.credentials:
                return
        kind = _read(conn, 4)[3]
        if kind == 3:
            host = _read(conn, _read(conn, 1)[0]).decode()
        else:
            host = socket.inet_ntop(socket.AF_INET if kind == 1 else socket.AF_INET6, _read(conn, 4 if kind == 1 else 16))
        (port,) = struct.unpack(">H", _read(conn, 2))
        broker = self._dial(host, port)
        if broker is None:
            conn.sendall(b"\x05\x05\x00\x01" + bytes(6))
            return
        with broker:
            # The answer in two pieces, and its address as a name: both are allowed.
            conn.sendall(b"\x05\x00\x00")
            conn.sendall(b"\x03\x05proxy\x00\x01")
            self._relay(conn, broker)

    def http(self, conn: socket.socket) -> None:
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += _read(conn, 1)
        lines = head.decode().split("\r\n")
        method, target, _ = lines[0].split(" ")
        fields = dict(line.split(": ", 1) for line in lines[1:] if line)
        assert method == "CONNECT"
        assert fields["Host"] == target
        if self.credentials is not None:
            given = fields.get("Proxy-Authorization", "Basic ").removeprefix("Basic ")
            username, _, password = base64.b64decode(given).decode().partition(":")
            self.logins.append((username, password))
            if (username, password) != self.credentials:
                conn.sendall(b"HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic\r\n\r\n")
                return
        host, _, port = target.rpartition(":")
        broker = self._dial(host.strip("[]"), int(port))
        if broker is None:
            conn.sendall(b"HTTP/1.1 502 Bad Gateway\r\n\r\n")
            return
        with broker:
            conn.sendall(b"HTTP/1.1 200 Connection established\r\nVia: ")
            conn.sendall(b"1.1 test\r\n\r\n")
            self._relay(conn, broker)

    def _dial(self, host: str, port: int) -> socket.socket | None:
        self.asked.append((host, port))
        try:
            return socket.create_connection(self.names.get(host, (host, port)), timeout=60)
        except OSError:
            return None

    def _relay(self, conn: socket.socket, broker: socket.socket) -> None:
        back = threading.Thread(target=_pump, args=(broker, conn, None), daemon=True)
        back.start()
        _pump(conn, broker, self.passed)
        back.join(60)


def _pump(source: socket.socket, target: socket.socket, record: bytearray | None) -> None:
    with contextlib.suppress(OSError):
        source.settimeout(None)
        while data := source.recv(65536):
            if record is not None:
                record += data
            target.sendall(data)
    for sock in (source, target):
        with contextlib.suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)


def _read(conn: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = conn.recv(size - len(data))
        if not more:
            raise ConnectionError("the client left")
        data += more
    return data


@contextlib.contextmanager
def running(proxy: FakeProxy, kind: str) -> Iterator[int]:
    """The port of the proxy. kind: "socks5" or "http"."""
    with serve(getattr(proxy, kind)) as port:
        yield port
