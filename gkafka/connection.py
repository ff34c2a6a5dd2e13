"""pykafka's `SslConfig` and `BrokerConnection`, under their documented names.

gkafka's own connections are those of `net/channel.py`: they find out what the broker speaks, and have many requests under way. A
BrokerConnection is one socket for whoever writes requests and reads answers by hand (`gkafka.protocol`).
"""

from __future__ import annotations

import contextlib
import struct
from collections import deque
from typing import Any

from gkafka.checks import check_count, check_seconds
from gkafka.config import NOT_UTF8, ClientConfig, Secret, build, is_pem_text, is_utf8
from gkafka.exceptions import ConfigurationError, KafkaException, ProtocolError, SocketDisconnectedError
from gkafka.handlers import Handler, Stream, ThreadingHandler
from gkafka.hosts import parse_host
from gkafka.logs import get_logger
from gkafka.net.buffers import BufferPool, FrameReader
from gkafka.net.options import config_of, source_of
from gkafka.net.stream import open_stream
from gkafka.oneprocess import OfOneProcess
from gkafka.sasloptions import hide_hosts, hide_tls
from gkafka.undoing import Undoing

__all__ = ["BrokerConnection", "SslConfig"]

log = get_logger(__name__)
BETWEEN_ATTEMPTS_S = 0.3
RECONNECT_MS = 10_000
SMALLEST_BUFFER = 4
"""Bytes: what tells an answer's size."""
_size = struct.Struct(">i")
_correlation_id = struct.Struct(">i")


class SslConfig:
    """TLS for `KafkaClient(ssl_config=...)`. Documented: pykafka 2.8 connection.

    cafile: PEM file of the authorities to trust. certfile, keyfile: PEM files of this client's certificate and key (None: none, or the key
    is in certfile). Each may be the text of such a file. password: pass phrase of the key. The broker's certificate and its host name are checked, unlike in pykafka.
    """

    def __init__(self, cafile: str, certfile: str | None = None, keyfile: str | None = None, password: str | bytes | None = None) -> None:
        self.cafile, self.certfile, self.keyfile = (
            Secret(f) if isinstance(f, str) and is_pem_text(f) else f for f in (cafile, certfile, keyfile)
        )
        try:
            secret = _pass_phrase(password)
        finally:
            del password  # from here on nothing that a traceback's variables show
        self._password = secret

    def __repr__(self) -> str:
        return f"SslConfig(cafile={self.cafile!r}, certfile={self.certfile!r}, keyfile={self.keyfile!r})"

    def client_options(self) -> dict[str, Any]:
        """The same as options of `gkafka.config.ClientConfig`."""
        password = self._password
        return {
            "security_protocol": "SSL",
            "ssl_cafile": self.cafile,
            "ssl_certfile": self.certfile,
            "ssl_keyfile": self.keyfile,
            # A callable: the pass phrase stands in no field that a repr of the options would show.
            "ssl_password": None if password is None else (lambda: password),
        }

    def wrap_socket(self, sock: Any, server_hostname: str | None = None) -> Any:
        """TLS on a connected socket of one's own, an ssl.SSLSocket: the certificate is checked, and the host name if it is given.

        gkafka itself does not use this, but `net/tls.py`, which suits both handlers: a socket made here blocks the calling thread.
        Raises ConfigurationError naming a file that cannot be used, ssl.SSLError if the handshake fails.
        """
        from gkafka.net.tlscontext import make_context  # ssl is imported only by those who use it

        context = make_context(build(ClientConfig, self.client_options(), where="SslConfig"))
        context.check_hostname = server_hostname is not None
        return context.wrap_socket(sock, server_hostname=server_hostname)


def _pass_phrase(given: Any) -> Secret | None:
    kind = type(given).__name__
    if isinstance(given, bytes):
        # What is no UTF-8 becomes halves of characters: a UnicodeDecodeError would hold the bytes.
        given = given.decode(errors="surrogateescape")
    if given is None:
        return None
    given = secret = Secret(given) if isinstance(given, str) else None
    if secret is None:
        raise ConfigurationError(f"password: must be a text, or the bytes of one, not {kind}")
    if not is_utf8(secret):
        raise ConfigurationError(f"password: {NOT_UTF8}")
    return secret


class BrokerConnection(OfOneProcess):
    """One socket to a broker: requests are written and answers read by the caller, in that order. Documented: pykafka.connection.

    handler: whose sockets are used, None for threads; pykafka 2.0.4 had none, so a number in its place is buffer_size, and what follows
    moves up likewise. buffer_size: bytes that answers are first received in; larger ones are received whole. source_host, source_port: where
    the socket comes from. ssl_config: an SslConfig for TLS, host name checked. One worker may use it at a time; it is closed when it is deleted.
    """

    def __init__(
        self,
        host: str | bytes,
        port: int,
        handler: Handler | None = None,
        buffer_size: int = 1024 * 1024,
        source_host: str = "",
        source_port: int = 0,
        ssl_config: SslConfig | None = None,
    ) -> None:
        self._stream: Stream | None = None
        ssl_config, buffer_size = hide_tls(ssl_config), hide_hosts(buffer_size)
        host, source_host, source_port = hide_hosts(host), hide_hosts(source_host), hide_hosts(source_port)
        if isinstance(handler, int):
            handler, buffer_size, source_host, source_port = _as_in_2_0(handler, buffer_size, source_host, source_port)
        if handler is not None and not isinstance(handler, Handler):
            raise ConfigurationError(f"handler={handler!r}: must be a Handler, or None for threads")
        self.host = parse_host(host)
        self.port = check_count("port", port, high=65535)
        self.source_host, self.source_port = source_host, source_port
        self._handler = ThreadingHandler() if handler is None else handler
        self._buffer_size = check_count("buffer_size", buffer_size, low=SMALLEST_BUFFER)
        self._config = config_of("BrokerConnection()", ssl_config, source_address=source_of(source_host, source_port))
        self._timeout_s = RECONNECT_MS / 1000
        self._buffers = BufferPool(self._handler.Mutex())
        self._frames: FrameReader | None = None
        self._inlet: _Inlet | None = None
        self._expected: deque[int] = deque()

    def __repr__(self) -> str:
        state = "connected" if self.connected else "not connected"
        return f"<{type(self).__module__}.{type(self).__name__} at {id(self):#x} (host={self.host}, port={self.port}, {state})>"

    def __del__(self) -> None:
        with contextlib.suppress(Exception):  # an interpreter that ends has not everything any more
            self.disconnect()

    @property
    def connected(self) -> bool:
        """Is the socket open? A peer that has gone is noticed by the next request or response."""
        return self._stream is not None

    def connect(self, timeout: float, attempts: int = 1) -> None:
        """Open the socket, TLS included. timeout: ms for this, and then for each request and response; attempts: 0.3 s between them.

        Raises ConnectionFailedError naming each address that was tried and why it failed. An open socket is closed before.
        """
        self._handler.check_fork()
        self._timeout_s = check_seconds("timeout", timeout) / 1000
        left = check_count("attempts", attempts)
        self.disconnect()
        while True:
            left -= 1
            try:
                stream = open_stream(self._handler, self.host, self.port, deadline=self._deadline(), config=self._config)
                break
            except SocketDisconnectedError as exc:
                if not left or not exc.retriable:
                    raise
                log.info("%s; %d more attempts", exc, left)
                self._handler.sleep(BETWEEN_ATTEMPTS_S)
        self._inlet = _Inlet(stream, f"{self.host}:{self.port}", self._config.max_response_bytes)
        self._frames = FrameReader(self._inlet.receive, self._inlet.size_of, self._buffers, self._buffer_size)
        self._expected.clear()
        self._stream = stream

    def disconnect(self) -> None:
        """Close the socket. What was asked and not answered is lost. Idempotent."""
        stream, self._stream, self._frames = self._stream, None, None
        if stream is not None:
            stream.close()

    def reconnect(self) -> None:
        """disconnect(), then connect() with the timeout of the last one; 10 s if there was none."""
        self.disconnect()
        self.connect(self._timeout_s * 1000)

    def request(self, request: Any) -> None:
        """Send a request: anything with get_bytes(), as those of `gkafka.protocol`.

        Raises SocketDisconnectedError if the connection is or gets lost, or is not taken from us in time; it is closed then.
        """
        self._handler.check_fork()
        data = request.get_bytes()
        stream = self._open_stream()
        with Undoing(self.disconnect):  # half of it may have gone out: nothing can follow
            try:
                stream.send_all([data], self._deadline())
            except (KafkaException, OSError) as exc:
                self._tell_lost(exc)
                raise
        if getattr(request, "required_acks", None) != 0:
            self._expected.append(_correlation_id.unpack_from(data, 8)[0] if len(data) >= 12 else 0)

    def response(self) -> memoryview:
        """Wait for the next answer: its bytes behind the correlation id, read-only, which a `gkafka.protocol` response takes.

        Raises SocketDisconnectedError if the connection is or gets lost, or the answer does not come in time; ProtocolError if it is
        not the answer to the request that is first in line. The connection is closed then.
        """
        self._handler.check_fork()
        self._open_stream()
        assert self._frames is not None
        assert self._inlet is not None
        self._inlet.deadline = self._deadline()
        with Undoing(self.disconnect):  # half of it may have been read
            try:
                frame = self._frames.read()
            except ProtocolError:
                raise
            except (KafkaException, OSError) as exc:
                self._tell_lost(exc)
                raise
            (found,) = _correlation_id.unpack_from(frame)
            wanted = self._expected.popleft() if self._expected else found
            if found != wanted:
                raise ProtocolError(f"{self.host}:{self.port}: an answer to request {found} where that to {wanted} must come")
        return frame[_correlation_id.size :]

    # -- inside
    def _deadline(self) -> float:
        return self._handler.monotonic() + self._timeout_s

    def _open_stream(self) -> Stream:
        if self._stream is None:
            raise SocketDisconnectedError(f"{self.host}:{self.port}: not connected: call connect() first")
        return self._stream

    def _tell_lost(self, exc: Exception) -> None:
        """Raise SocketDisconnectedError, unless that is what it is."""
        if not isinstance(exc, SocketDisconnectedError):
            raise SocketDisconnectedError(f"{self.host}:{self.port}: {exc}", broker=f"{self.host}:{self.port}") from exc


class _Inlet:
    """What a FrameReader reads from. It does not know the connection, which would keep it from being deleted."""

    def __init__(self, stream: Stream, peer: str, max_bytes: int) -> None:
        self._stream, self._peer, self._max_bytes = stream, peer, max_bytes
        self.deadline = 0.0

    def receive(self, view: memoryview) -> int:
        received = self._stream.recv_into(view, self.deadline)
        if not received:
            raise SocketDisconnectedError(f"{self._peer}: the broker closed the connection")
        return received

    def size_of(self, size: memoryview) -> int:
        (wanted,) = _size.unpack(size)
        if not _correlation_id.size <= wanted <= self._max_bytes:
            raise ProtocolError(f"{self._peer}: an answer claims {wanted} bytes; {_correlation_id.size} to {self._max_bytes} can be")
        return int(wanted)


def _as_in_2_0(handler: int, buffer_size: Any, source_host: Any, source_port: Any) -> tuple[None, int, str, int]:
    """(host, port, buffer_size, source_host, source_port): the order without a handler."""
    if isinstance(buffer_size, str):
        source_host, source_port = buffer_size, source_host or source_port
    return None, handler, source_host, source_port
