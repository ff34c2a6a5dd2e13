"""Peers for channels: OS threads with plain sockets, that behave as they are told. They run beside either handler."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator

from gkafka.testing import Action
from gkafka.testing.server import Call
from gkafka.wire.apis import Message, Request, decode_request, encode_response
from gkafka.wire.apiversions import ApiVersion, ApiVersionsResponse
from tests.kit.clock import now

LIMIT_S = 60.0

Serve = Callable[["Conversation"], object]


class Conversation:
    """One accepted connection, seen by the script."""

    def __init__(self, sock: socket.socket, ended: threading.Event) -> None:
        self.sock = sock
        self.ended = ended  # the test is over
        sock.settimeout(LIMIT_S)

    def read(self) -> Request:
        """The next request. Raises EOFError when the client is gone."""
        return decode_request(self.read_frame())

    def read_frame(self) -> bytes:
        (size,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(size)

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            chunk = self.sock.recv(min(1 << 20, size - len(data)))
            if not chunk:
                raise EOFError
            data += chunk
        return bytes(data)

    def send(self, data: bytes) -> None:
        self.sock.sendall(data)

    def answer(self, request: Request, response: Message) -> None:
        self.send(b"".join(encode_response(response, request.version, request.correlation_id)))

    def negotiate(self, *ranges: tuple[int, int, int]) -> None:
        """Answer ApiVersions. ranges: api key, lowest, highest."""
        keys = [
            ApiVersion(api_key=key, min_version=low, max_version=high) for key, low, high in ranges or ((18, 0, 4), (3, 0, 13), (0, 0, 12))
        ]
        self.answer(self.read(), ApiVersionsResponse(api_keys=keys))

    def reset(self) -> None:
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()

    def stay_silent(self) -> None:
        self.ended.wait(LIMIT_S)


class PeerServer:
    """Listens on a loopback port; each connection is served by `serve` in a thread of its own, then closed."""

    def __init__(self, serve: Serve) -> None:
        self._serve = serve
        self._ended = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(0.05)
        self._threads: list[threading.Thread] = []
        self.connections = 0
        self.errors: list[Exception] = []
        self.port: int = self._listener.getsockname()[1]
        self._acceptor = threading.Thread(target=self._accept, daemon=True)
        self._acceptor.start()

    def _accept(self) -> None:
        while not self._ended.is_set():
            with contextlib.suppress(TimeoutError):
                sock, _ = self._listener.accept()
                self.connections += 1
                thread = threading.Thread(target=self._converse, args=(sock,), daemon=True)
                self._threads.append(thread)
                thread.start()

    def _converse(self, sock: socket.socket) -> None:
        try:
            self._serve(Conversation(sock, self._ended))
        except (EOFError, OSError):
            pass  # the client went away: that is its right
        except Exception as exc:
            self.errors.append(exc)
        finally:
            sock.close()

    def close(self) -> None:
        self._ended.set()
        self._acceptor.join(LIMIT_S)
        self._listener.close()
        for thread in self._threads:
            thread.join(LIMIT_S)
        assert not self.errors, self.errors


@contextlib.contextmanager
def peer(serve: Serve) -> Iterator[PeerServer]:
    server = PeerServer(serve)
    try:
        yield server
    finally:
        server.close()


class Pipelined(Action):
    """For MockCluster.on: acts so many seconds late, and sees how many requests of a connection were under way then. most: the most that it saw.

    expected: nothing is answered before it has seen so many, or waited for LIMIT_S.
    """

    def __init__(self, seconds: float, expected: int) -> None:
        self.most = 0
        self._seconds, self._expected = seconds, expected
        self._until = now() + LIMIT_S

    def run(self, call: Call) -> None:
        call.after(self._seconds, lambda: self._look(call))

    def _look(self, call: Call) -> None:
        peer = call._peer
        data = bytes(peer._data[peer._taken :])
        with contextlib.suppress(BlockingIOError):
            data += peer._sock.recv(1 << 16, socket.MSG_PEEK)
        under_way = 1
        while data:
            (size,) = struct.unpack_from(">i", data)
            data, under_way = data[4 + size :], under_way + 1
        self.most = max(self.most, under_way)
        if self.most < self._expected and now() < self._until:
            self.run(call)
        else:
            call.act(call.send)
