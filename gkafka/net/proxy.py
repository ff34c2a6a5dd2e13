"""Tunnels through a proxy: SOCKS5 (RFC 1928, 1929) and HTTP CONNECT (RFC 9110, 9.3.6), over any Stream.

The proxy looks the broker's name up, so brokers may have names that only it knows. TLS with the broker runs inside the tunnel: the proxy
sees neither requests nor credentials for the broker. What a proxy answers is not trusted: it is bounded, and only the words of an HTTP status
line are passed on.
"""

from __future__ import annotations

import base64
import contextlib
import ipaddress
import struct
from collections.abc import Callable
from typing import Final

from gkafka.config import Secret
from gkafka.core.sasl import masked
from gkafka.escaping import escaped
from gkafka.exceptions import ConnectionFailedError, ProxyError
from gkafka.handlers.base import Stream
from gkafka.hosts import Proxy
from gkafka.net.steps import Steps

__all__ = ["open_tunnel"]

LONGEST_ANSWER: Final = 8192  # bytes of an HTTP proxy's headers
LONGEST_REASON: Final = 100  # characters of its status line that an error repeats
NO_CREDENTIALS, USERNAME_AND_PASSWORD, NOTHING_OFFERED = 0, 2, 0xFF
NAME, IPV4, IPV6 = 3, 1, 4
NEVER: Final = {2: "its rules do not allow the connection", 7: "it does not know CONNECT", 8: "it does not know this kind of address"}
PERHAPS_LATER: Final = {
    1: "general failure",
    3: "the network cannot be reached",
    4: "the host cannot be reached, or it does not know the name",
    5: "the connection was refused",
    6: "the connection took too long",
}
"""What the reply of a SOCKS5 proxy means (RFC 1928, 6): errors that a retry cannot heal, and others."""


def open_tunnel(stream: Stream, proxy: Proxy, host: str, port: int, deadline: float, steps: Steps) -> None:
    """Have the proxy at the other end of the stream connect to a broker; what follows on the stream is the broker's. steps: is told where this stands.

    Raises ProxyError if the proxy does not want to, or is none of its kind; ConnectionFailedError if it cannot reach the broker now;
    KafkaTimeoutError, SocketDisconnectedError.
    """
    where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    talk = Talk(stream, f"{where}: the proxy {proxy.kind}://{proxy.where}", where, deadline, steps)
    if not host or any(c.isspace() or not c.isprintable() for c in host):
        raise talk.refused(f"is not asked for the host {host!r}")  # a broker told of it: it could hold lines of another request
    {"socks5": _socks5, "http": _http}[proxy.kind](talk, proxy, host, port)
    stream.peer = f"{where} (through {proxy.where})"


class Talk:
    """What is said to a proxy before the tunnel is open."""

    def __init__(self, stream: Stream, who: str, broker: str, deadline: float, steps: Steps) -> None:
        self._stream, self._who, self._broker, self._deadline, self._steps = stream, who, broker, deadline, steps

    def say(self, text: bytes, step: str) -> None:
        """step: what is asked for."""
        self._steps.at(step)
        self._stream.send_all([text], self._deadline)

    def hear(self, size: int) -> bytes:
        """Exactly so many bytes."""
        heard = bytearray(size)
        view, got = memoryview(heard), 0
        while got < size:
            got += self._receive(view[got:])
        return bytes(heard)

    def hear_until(self, end: bytes, longest: int, heard: bytes = b"") -> bytes:
        """All up to and with `end`, and what came with it. heard: what there was before."""
        room = bytearray(longest)
        while end not in heard:
            if len(heard) == longest:
                raise self.refused(f"answers with more than {longest} bytes: is it an HTTP proxy?")
            heard += room[: self._receive(memoryview(room)[: longest - len(heard)])]
        return heard

    def _receive(self, view: memoryview) -> int:
        received = self._stream.recv_into(view, self._deadline)
        if not received:
            raise ConnectionFailedError(f"{self._who} closed the connection while it was asked for a tunnel", broker=self._broker)
        self._steps.heard(f"{received} bytes of an answer to {self._steps.name}")
        return received

    def refused(self, why: str) -> ProxyError:
        return ProxyError(f"{self._who} {why}", broker=self._broker)

    def failed(self, why: str) -> ConnectionFailedError:
        return ConnectionFailedError(f"{self._who} {why}", broker=self._broker)


# -- SOCKS5 ------------------------------------------------------------------------------------------------------------
def _socks5(talk: Talk, proxy: Proxy, host: str, port: int) -> None:
    offered = [NO_CREDENTIALS] if proxy.username is None else [NO_CREDENTIALS, USERNAME_AND_PASSWORD]
    talk.say(bytes([5, len(offered), *offered]), "SOCKS5 greeting")
    version, chosen = talk.hear(2)
    if version != 5:
        raise talk.refused(f"does not answer as a SOCKS5 proxy (it begins with byte {version})")
    if chosen == NOTHING_OFFERED:
        wants = "wants credentials: proxy_url='socks5://user:password@...'" if proxy.username is None else "takes no user name and password"
        raise talk.refused(wants)
    if chosen not in offered:
        raise talk.refused(f"chose the method {chosen}, which was not offered")
    if chosen == USERNAME_AND_PASSWORD:
        _log_in(talk, proxy)
    talk.say(b"\x05\x01\x00" + _socks_address(talk, host) + struct.pack(">H", port), "SOCKS5 CONNECT")
    _hear_reply(talk)


def _log_in(talk: Talk, proxy: Proxy) -> None:
    talk.say(_login(proxy), "SOCKS5 login")
    if talk.hear(2)[1] != 0:
        raise talk.refused("refused the user name and password of proxy_url")


def _login(proxy: Proxy) -> bytes:
    """In a function of its own, as all that has the password in a variable: a traceback of what fails shows none of it."""
    username, password = (str.encode(text) for text in proxy.credentials)
    return bytes([1, len(username)]) + username + bytes([len(password)]) + password


def _socks_address(talk: Talk, host: str) -> bytes:
    with contextlib.suppress(ValueError):
        address = ipaddress.ip_address(host.partition("%")[0])
        return bytes([IPV4 if address.version == 4 else IPV6]) + address.packed
    name = _ascii(talk, host)
    if len(name) > 255:
        raise talk.refused(f"cannot be asked for a host name of {len(name)} bytes: SOCKS5 has room for 255")
    return bytes([NAME, len(name)]) + name


def _hear_reply(talk: Talk) -> None:
    version, reply, _, kind = talk.hear(4)
    if version != 5:
        raise talk.refused(f"does not answer as a SOCKS5 proxy (a reply begins with byte {version})")
    if reply in NEVER:
        raise talk.refused(f"refused: {NEVER[reply]}")
    if reply:
        raise talk.failed(f"cannot connect: {PERHAPS_LATER.get(reply, f'error {reply}')}")
    sizes: dict[int, Callable[[], int]] = {IPV4: lambda: 4, IPV6: lambda: 16, NAME: lambda: talk.hear(1)[0]}
    if kind not in sizes:
        raise talk.refused(f"does not answer as a SOCKS5 proxy (an address of kind {kind})")
    talk.hear(sizes[kind]() + 2)


# -- HTTP --------------------------------------------------------------------------------------------------------------
def _http(talk: Talk, proxy: Proxy, host: str, port: int) -> None:
    target = b"[%b]:%d" % (host.partition("%")[0].encode(), port) if ":" in host else b"%b:%d" % (_ascii(talk, host), port)
    talk.say(b"CONNECT %b HTTP/1.1\r\nHost: %b\r\n%b\r\n" % (target, target, _authorization(proxy)), "HTTP CONNECT")
    heard = talk.hear_until(b"\r\n", LONGEST_ANSWER)
    status, words = _status(talk, proxy, heard.partition(b"\r\n")[0])
    if 200 <= status < 300:
        if not talk.hear_until(b"\r\n\r\n", LONGEST_ANSWER, heard).endswith(b"\r\n\r\n"):
            raise talk.refused("sends more than its answer before the broker was spoken to")
        return
    # What stands behind the status line of a refusal, headers and a page for people, is not waited for.
    if status == 407:
        asked = (
            "wants credentials: proxy_url='http://user:password@...'" if proxy.username is None else "refused the user name and password"
        )
        raise talk.refused(f"{asked} (status {words})")
    if status >= 500:
        raise talk.failed(f"cannot connect (status {words})")
    raise talk.refused(f"refused (status {words})")


def _authorization(proxy: Proxy) -> bytes:
    if proxy.username is None:
        return b""
    return b"Proxy-Authorization: Basic %b\r\n" % base64.b64encode(":".join(proxy.credentials).encode())


def _status(talk: Talk, proxy: Proxy, line: bytes) -> tuple[int, str]:
    """The status of an answer by its first line, and the same with its reason, for an error."""
    version, _, rest = line.partition(b" ")
    code, reason = rest[:3], rest[4:]
    if version not in (b"HTTP/1.1", b"HTTP/1.0") or not code.isdigit() or rest[3:4] not in (b" ", b""):
        raise talk.refused("does not answer as an HTTP proxy")
    said = masked(reason.decode("latin-1").strip(), () if proxy.password is None else (Secret(proxy.password),))
    return int(code), f"{int(code)} {escaped(said, LONGEST_REASON)}".rstrip()


def _ascii(talk: Talk, host: str) -> bytes:
    try:
        return host.encode("ascii") if host.isascii() else host.encode("idna")
    except UnicodeError:
        raise talk.refused(f"is not asked for the host {host!r}, which is no name") from None
