"""The brokers' side of the sockets: listeners, connections, and one request of a connection at a time, as Kafka does it."""

from __future__ import annotations

import _socket
import contextlib
import struct
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from gkafka.exceptions import ProtocolError, UnsupportedVersion
from gkafka.logs import get_logger
from gkafka.testing.native import Loop
from gkafka.undoing import Undoing
from gkafka.wire.apis import Message, Request, decode_request, decode_request_header, encode_response
from gkafka.wire.apiversions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse

if TYPE_CHECKING:
    from gkafka.testing.cluster import MockCluster

__all__ = ["Call", "Listener", "Peer"]

log = get_logger(__name__)
READ_BYTES = 256 * 1024
API_VERSIONS = ApiVersionsRequest.API.key
UNSUPPORTED_VERSION = 35
SMALLEST_REQUEST = 8
MAX_REQUEST = 100 << 20  # Kafka's socket.request.max.bytes


class Listener:
    """One broker's port. It keeps its number over `stop` and `open`, and refuses connections in between."""

    def __init__(self, cluster: MockCluster, broker_id: int, loop: Loop) -> None:
        self.cluster = cluster
        self.broker_id = broker_id
        self.peers: set[Peer] = set()
        self.port = 0
        self._loop = loop
        self._sock: Any = None
        self._kept: Any = None  # while it is stopped: bound, and not listened on

    def open(self) -> None:
        if self._sock is not None:
            return
        sock, self._kept = self._kept or self._bound(), None
        with Undoing(sock.close):
            sock.listen(128)
            sock.setblocking(False)
        self.port = sock.getsockname()[1]
        self._sock = sock
        self._loop.watch(self, read=True, write=False)

    def _bound(self) -> Any:
        sock = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
        with Undoing(sock.close):
            sock.setsockopt(_socket.SOL_SOCKET, _socket.SO_REUSEADDR, 1)
            sock.bind(("127.0.0.1", self.port))
        return sock

    def stop(self) -> None:
        """Refuse connections, and keep the port: else another process could get it, and answer."""
        if self._sock is not None:
            self.close()
            with contextlib.suppress(OSError):  # another one has it by now
                self._kept = self._bound()

    def close(self) -> None:
        if self._sock is not None:
            self._loop.forget(self._sock.fileno())
            self._sock.close()
            self._sock = None
        if self._kept is not None:
            self._kept.close()
            self._kept = None
        for peer in list(self.peers):
            peer.close()

    def fileno(self) -> int:
        return int(self._sock.fileno())

    def on_ready(self, readable: bool, writable: bool) -> None:
        while self._sock is not None:
            try:
                fd, _ = self._sock._accept()
            except OSError:
                return
            self.peers.add(Peer(self, _socket.socket(fileno=fd), self._loop))


class Peer:
    """A client's connection. While a request is being served the next one waits, and the socket is not read (Kafka mutes it)."""

    def __init__(self, listener: Listener, sock: Any, loop: Loop) -> None:
        self.listener = listener
        self.closed = False
        self.client: Any = None
        """With SASL: who the client is, as far as is known (`gkafka.testing.sasl.Client`)."""
        self._sock = sock
        self._loop = loop
        self._data = bytearray()
        self._taken = 0  # bytes of _data that were cut into frames
        self._out: deque[memoryview] = deque()
        self._busy = False
        self._serving = False
        self._silent = False
        sock.setblocking(False)
        sock.setsockopt(_socket.IPPROTO_TCP, _socket.TCP_NODELAY, 1)
        loop.watch(self, read=True, write=False)

    def fileno(self) -> int:
        return int(self._sock.fileno())

    def on_ready(self, readable: bool, writable: bool) -> None:
        if writable:
            self._flush()
        if readable and not self.closed:
            self._read()

    def send(self, frame: bytes) -> None:
        """Send, and go on with the next request."""
        if self.closed:
            return
        if not self._silent and frame:
            self._out.append(memoryview(frame))
            self._flush()
        self.proceed()

    def proceed(self) -> None:
        """The request that was served is done with."""
        if self._silent:
            return
        self._busy = False
        if not self._serving:  # else the loop of `_next` goes on by itself
            self._next()

    def silence(self) -> None:
        """Neither read nor answered any more."""
        self._silent = self._busy = True
        self._watch()

    def close(self, *, reset: bool = False) -> None:
        if self.closed:
            return
        self.closed = True
        self.listener.peers.discard(self)
        self._loop.forget(self._sock.fileno())
        if reset:
            self._sock.setsockopt(_socket.SOL_SOCKET, _socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._sock.close()

    def _watch(self) -> None:
        if not self.closed:
            self._loop.watch(self, read=not self._busy, write=bool(self._out))

    def _read(self) -> None:
        try:
            data = self._sock.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.close()
            return
        self._data += data
        self._next()

    def _flush(self) -> None:
        while self._out:
            try:
                sent = self._sock.send(self._out[0])
            except BlockingIOError:
                break
            except OSError:
                self.close()
                return
            if sent < len(self._out[0]):
                self._out[0] = self._out[0][sent:]
            else:
                self._out.popleft()
        self._watch()

    def _next(self) -> None:
        self._serving = True
        try:
            while not (self.closed or self._busy) and (frame := self._cut()) is not None:
                self._busy = True
                self._serve(frame)
        finally:
            self._serving = False
        self._watch()

    def _cut(self) -> bytes | None:
        if len(self._data) - self._taken < 4:
            self._compact()
            return None
        (size,) = struct.unpack_from(">i", self._data, self._taken)
        if not (0 if self.client is not None and self.client.bare else SMALLEST_REQUEST) <= size <= MAX_REQUEST:
            self.close()  # what a broker does with a size it does not believe
            return None
        start, end = self._taken + 4, self._taken + 4 + size
        if len(self._data) < end:
            self._compact()
            return None
        self._taken = end
        return bytes(memoryview(self._data)[start:end])

    def _compact(self) -> None:
        if self._taken:
            del self._data[: self._taken]
            self._taken = 0

    def _serve(self, frame: bytes) -> None:
        self.guard(lambda: self.listener.cluster._serve(self, memoryview(frame)))

    def guard(self, fn: Callable[[], object]) -> None:
        """fn(). If it raises, the script or the cluster is at fault: `MockCluster.errors` has it, and the client is not left waiting."""
        try:
            fn()
        except Exception as exc:
            self._loop.report(exc)
            self.close()


class Call:
    """One request that is being served, as an action sees it. Everything here is called in the cluster's thread."""

    def __init__(self, cluster: MockCluster, peer: Peer, request: Request) -> None:
        self.request = request
        self.broker_id = peer.listener.broker_id
        self.arrived = time.monotonic()
        self._cluster = cluster
        self._peer = peer

    def act(self, then: Callable[[Message | None], object]) -> None:
        """Do what a broker does; then(answer), at once or when a long poll ends. The answer is None for acks=0."""
        self._cluster._act(self, lambda answer: self._peer.guard(lambda: then(answer)))

    def send(self, answer: Message | None) -> None:
        """Answer, and go on to the connection's next request."""
        self.send_bytes(b"" if answer is None else self.encode(answer))

    def send_bytes(self, frame: bytes) -> None:
        """Send bytes as they are."""
        self._peer.send(frame)

    def refuse(self, code: int) -> None:
        """Answer an error code for everything that the request names."""
        self.send(self._cluster._refusal(self, code))

    def encode(self, answer: Message | None) -> bytes:
        """The frame of an answer, its int32 size included."""
        if answer is None:
            return b""
        return b"".join(encode_response(answer, self.request.version, self.request.correlation_id))

    def after(self, seconds: float, fn: Callable[[], object]) -> None:
        """Call fn later."""
        self._cluster._loop.after(seconds, lambda: self._peer.guard(fn))

    def silence(self) -> None:
        """The connection is neither read nor answered from here on."""
        self._peer.silence()

    def close(self, *, reset: bool = False) -> None:
        """Close the connection. reset: with a TCP RST."""
        self._peer.close(reset=reset)

    @property
    def closed(self) -> bool:
        return self._peer.closed

    @property
    def client(self) -> Any:
        """With SASL: who the client is."""
        return self._peer.client


def parse(frame: memoryview, served: dict[int, tuple[int, int]]) -> Request | bytes | None:
    """A request, or the frame to refuse it with, or None to close the connection: what brokers do with what they do not know.

    served: api key -> lowest and highest version. Only an ApiVersions of an unknown version is answered: in version 0, with error 35 and
    the range of ApiVersions itself (KIP-511).
    """
    header = decode_request_header(frame)
    low, high = served.get(header.api_key, (0, -1))
    if low <= header.version <= high:
        try:
            return decode_request(frame)
        except (ProtocolError, UnsupportedVersion) as exc:
            log.info("a request that cannot be read: %s", exc)
            return None
    if header.api_key == API_VERSIONS and high >= 0:
        response = ApiVersionsResponse(error_code=35, api_keys=[ApiVersion(api_key=API_VERSIONS, min_version=low, max_version=high)])
        return b"".join(encode_response(response, 0, header.correlation_id))
    log.info("request of api %s version %s: not served here, closing", header.api_key, header.version)
    return None
