"""One address of a broker, tried step by step: name, connection, TLS, versions, authentication. For whoever has to say at which step it fails.

Each step makes a connection of its own and closes it, so that none hides what another one saw. Nothing is retried.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from gkafka.exceptions import KafkaException
from gkafka.hosts import parse_proxy_url
from gkafka.net.certificates import Certificate, certificate_of, see_certificate
from gkafka.net.channel import Channel
from gkafka.net.stream import open_stream
from gkafka.wire.sasl import SaslHandshakeRequest

if TYPE_CHECKING:
    from gkafka.config import ClientConfig
    from gkafka.handlers import Handler
    from gkafka.handlers.base import Stream
    from gkafka.wire.apis import Versions

__all__ = ["Answer", "Certificate", "Probe", "TlsSeen"]

JOIN_S = 1.0


class TlsSeen(NamedTuple):
    """version: as "TLSv1.3"."""

    version: str
    certificate: Certificate | None


class Answer(NamedTuple):
    """How a connection with all of its steps went. versions: what the broker speaks, if it got so far; response: to the request."""

    versions: Versions | None
    response: Any
    error: KafkaException | None


def _status_line(stream: Stream, deadline: float) -> str | None:
    """What stands in an answer of HTTP up to the end of its first line, or of what fits; None of another protocol."""
    found, chunk = b"", bytearray(256)
    while b"\n" not in found and len(found) < len(chunk):
        count = stream.recv_into(chunk, deadline)
        if not count:
            break
        found += chunk[:count]
        if not found.startswith(b"HTTP/"[: len(found)]):
            return None
    return found.split(b"\n")[0].decode("ascii", "backslashreplace").strip() if found.startswith(b"HTTP/") else None


class Probe:
    """An address, and how a client with these options would connect to it. Each call takes timeout_s at most; they raise KafkaException."""

    def __init__(self, handler: Handler, config: ClientConfig, host: str, port: int) -> None:
        self.host, self.port = host, port
        self.uses_tls, self.uses_sasl = config.uses_tls, config.uses_sasl
        self._handler = handler
        self._config = config

    def __repr__(self) -> str:
        return f"<{type(self).__module__}.{type(self).__name__} {self.address}>"

    @property
    def address(self) -> str:
        """host:port."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def proxy(self) -> str | None:
        """host:port of the proxy that is used, if one is."""
        url = self._config.proxy_url
        return None if url is None else f"{parse_proxy_url(url).host}:{parse_proxy_url(url).port}"

    def resolve(self, timeout_s: float) -> list[str]:
        """The addresses of the name; of the proxy's, which looks the broker's up, if there is one."""
        url = self._config.proxy_url
        host, port = (self.host, self.port) if url is None else (parse_proxy_url(url).host, parse_proxy_url(url).port)
        self._handler.start()
        return [str(address[1][0]) for address in self._handler.getaddrinfo(host, port, self._deadline(timeout_s))]

    def connect(self, timeout_s: float) -> float:
        """How many seconds a TCP connection takes, through the proxy if there is one."""
        began = self._handler.monotonic()
        open_stream(self._handler, self.host, self.port, deadline=self._deadline(timeout_s), config=self._with("PLAINTEXT")).close()
        return self._handler.monotonic() - began

    def shake_hands(self, timeout_s: float) -> TlsSeen:
        """TLS as the options have it."""
        stream = open_stream(self._handler, self.host, self.port, deadline=self._deadline(timeout_s), config=self._config)
        stream.close()
        return TlsSeen(str(getattr(stream, "version", "")), certificate_of(stream))

    def certificate(self, timeout_s: float) -> Certificate | None:
        """The one that is shown, whether it would be accepted or not; None if this port has none."""
        config = dataclasses.replace(self._config, security_protocol="SSL")
        with contextlib.suppress(KafkaException):
            return see_certificate(self._handler, self.host, self.port, deadline=self._deadline(timeout_s), config=config)
        return None

    def ask(self, request: Any, timeout_s: float, *, security_protocol: str | None = None) -> Answer:
        """Connect with all that belongs to it, and send one request (None: none). security_protocol: in place of the options'."""
        config = self._config if security_protocol is None else self._with(security_protocol)
        with self.opening(timeout_s, config) as channel:
            return self._asked(channel, request, timeout_s)

    @contextlib.contextmanager
    def opening(self, timeout_s: float, config: ClientConfig | None = None) -> Iterator[Channel]:
        """A connection that has begun to open; several may at once."""
        limited = dataclasses.replace(config or self._config, connect_timeout_ms=max(1.0, timeout_s * 1000))
        channel = Channel(self._handler, self.host, self.port, limited, role="probe")
        channel.start()
        try:
            yield channel
        finally:
            channel.close()
            channel.join(JOIN_S)

    def outcome(self, channel: Channel, timeout_s: float) -> Answer:
        """How a connection that was begun has gone."""
        return self._asked(channel, None, timeout_s)

    def _asked(self, channel: Channel, request: Any, timeout_s: float) -> Answer:
        try:
            channel.wait_open(self._deadline(timeout_s + JOIN_S))
            response = None if request is None else channel.request(request, timeout_s=timeout_s).result(timeout_s + JOIN_S)
        except KafkaException as exc:
            return Answer(channel.versions, None, exc)
        return Answer(channel.versions, response, None)

    def mechanisms(self, timeout_s: float) -> list[str]:
        """The SASL mechanisms of this listener; [] if it has none, or does not say."""
        plain = "SSL" if self.uses_tls else "PLAINTEXT"
        answer = self.ask(SaslHandshakeRequest(mechanism="none"), timeout_s, security_protocol=plain)
        return list(answer.response.mechanisms) if answer.response is not None else []

    def speaks_in_the_clear(self, timeout_s: float) -> bool:
        """Does a broker answer here without TLS?"""
        answer = self.ask(None, timeout_s, security_protocol="PLAINTEXT")
        return answer.error is None

    def web_server(self, timeout_s: float, *, tls: bool = False) -> str | None:
        """The first line of what a web server says here, as "HTTP/1.1 404 Not Found"; None if this is none. Many are silent until they have heard
        a whole request of their own, so one is made; nothing of the options' goes with it.
        """
        config, deadline = self._config if tls else self._with("PLAINTEXT"), self._deadline(timeout_s)
        with contextlib.suppress(KafkaException):
            stream = open_stream(self._handler, self.host, self.port, deadline=deadline, config=config)
            try:
                stream.send_all([b"HEAD / HTTP/1.0\r\n\r\n"], deadline)
                return _status_line(stream, deadline)
            finally:
                stream.close()
        return None

    def _with(self, security_protocol: str) -> ClientConfig:
        return dataclasses.replace(self._config, security_protocol=security_protocol)

    def _deadline(self, timeout_s: float) -> float:
        return self._handler.monotonic() + timeout_s
