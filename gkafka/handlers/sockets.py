"""What both handlers do with sockets without waiting: options, addresses, one non-blocking send."""

from __future__ import annotations

import _socket
import errno
import os
import socket
from collections.abc import Callable, Sequence
from typing import Any

from gkafka.exceptions import ConnectionFailedError
from gkafka.handlers.base import Address, Buffer

__all__ = [
    "NO_DELAY",
    "begin_connect",
    "buffer_options",
    "drop",
    "end_connect",
    "flatten",
    "head",
    "lookup",
    "numeric",
    "peer_name",
    "resolve_error",
    "send_once",
]

IOV_MAX = 1024  # POSIX's least value of sysconf(SC_IOV_MAX) in practice: one sendmsg takes no more buffers
IN_PROGRESS = {errno.EINPROGRESS, errno.EWOULDBLOCK, errno.EALREADY, errno.EAGAIN, 10035}  # 10035: WSAEWOULDBLOCK
HAS_SENDMSG = hasattr(_socket.socket, "sendmsg")
NO_DELAY = (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def buffer_options(receive_bytes: int | None, send_bytes: int | None) -> list[tuple[int, int, int]]:
    """(level, option, value) for the sizes of a socket's buffers; None leaves the system's."""
    sizes = ((socket.SO_RCVBUF, receive_bytes), (socket.SO_SNDBUF, send_bytes))
    return [(socket.SOL_SOCKET, option, size) for option, size in sizes if size is not None]


def peer_name(address: Address) -> str:
    """ "host:port" of an address, with brackets around an IPv6 host."""
    host, port = address[1][0], address[1][1]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


# -- names -------------------------------------------------------------------------------------------------------------
def numeric(host: str, port: int) -> list[Address] | None:
    """The addresses of a literal IP; None for a name. Asks no resolver, so it never waits."""
    try:
        # The C function under its own name: gevent never patches it, and with AI_NUMERICHOST it looks nothing up. Given a str it would load
        # all that is needed for names that are not ASCII.
        found = _socket.getaddrinfo(host.encode() if host.isascii() else host, port, 0, socket.SOCK_STREAM, 0, socket.AI_NUMERICHOST)
    except (OSError, ValueError):  # gaierror; UnicodeError, an embedded NUL
        return None
    return unique(found)


def lookup(getaddrinfo: Callable[..., Any], host: str, port: int) -> list[Address]:
    """Ask a resolver. Raises ConnectionFailedError."""
    try:
        host.encode("idna")  # as the resolver does: gevent's writes what it raises in there to the terminal, before we hear of it
        found = unique(getaddrinfo(host, port, 0, socket.SOCK_STREAM))
    except (OSError, ValueError) as exc:
        raise resolve_error(host, port, exc) from exc
    if not found:
        raise resolve_error(host, port, "it has no address")
    return found


def unique(found: Sequence[Any]) -> list[Address]:
    return list(dict.fromkeys((int(entry[0]), entry[4]) for entry in found))


def resolve_error(host: str, port: int, reason: object) -> ConnectionFailedError:
    if isinstance(reason, OSError):
        reason = reason.strerror or reason
    return ConnectionFailedError(f"{host}:{port}: cannot resolve the host name: {reason}")


# -- connecting --------------------------------------------------------------------------------------------------------
def begin_connect(
    sock: Any,
    address: Address,
    source_address: tuple[str, int] | None,
    sockopts: Sequence[tuple[int, int, int | bytes]],
    keepalive_idle_s: float | None,
) -> bool:
    """Set a new socket up and start to connect it. True if it is connected already. Raises OSError."""
    sock.setblocking(False)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if keepalive_idle_s is not None:
        _keepalive(sock, max(1, round(keepalive_idle_s)))
    for level, option, value in sockopts:
        sock.setsockopt(level, option, value)
    if source_address is not None:
        if source_address[1]:  # several connections share a fixed source port, to different brokers
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(source_address)
    code = sock.connect_ex(address[1])
    if code in IN_PROGRESS:
        return False
    _raise(code)
    return True


def end_connect(sock: Any) -> None:
    """After the socket became writable: raises OSError if it is not connected."""
    _raise(sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))
    if sock.getsockname() == sock.getpeername():
        # A port of our own ephemeral range where nobody listens: TCP's simultaneous open connects a socket to itself.
        raise ConnectionRefusedError(errno.ECONNREFUSED, "the connection reached itself: nobody listens there")


def _raise(code: int) -> None:
    if code:
        raise OSError(code, os.strerror(code))


def _keepalive(sock: Any, idle_s: int) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    # macOS calls TCP_KEEPIDLE TCP_KEEPALIVE; Windows' interval is fixed before Windows 10.
    for name, value in (("TCP_KEEPIDLE", idle_s), ("TCP_KEEPALIVE", idle_s), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
        option = getattr(socket, name, None)
        if option is not None:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)


# -- sending -----------------------------------------------------------------------------------------------------------
def send_once(sock: Any, buffers: Sequence[Buffer], flags: int = 0) -> int:
    """One non-blocking send of as much as the kernel takes; 0 if it takes nothing. flags: what makes it so for a blocking socket. Raises OSError."""
    try:
        if len(buffers) == 1:
            return int(sock.send(buffers[0], flags))
        if HAS_SENDMSG:
            return int(sock.sendmsg(buffers if len(buffers) <= IOV_MAX else buffers[:IOV_MAX], (), flags))
        return _send_each(sock, buffers)
    except BlockingIOError:
        return 0


def _send_each(sock: Any, buffers: Sequence[Buffer]) -> int:
    """Where there is no sendmsg (Windows): buffer by buffer, until one is not taken whole."""
    total = 0
    for buffer in buffers:
        try:
            sent = int(sock.send(buffer))
        except BlockingIOError:
            return total
        total += sent
        if sent < memoryview(buffer).nbytes:
            return total
    return total


def flatten(buffers: Sequence[Buffer]) -> list[memoryview]:
    """The buffers as views of bytes, empty ones left out."""
    views = [memoryview(buffer).cast("B") for buffer in buffers]
    return [view for view in views if view.nbytes]


def drop(views: list[memoryview], sent: int) -> list[memoryview]:
    """What is left of the views after their first `sent` bytes."""
    for index, view in enumerate(views):
        if sent < view.nbytes:
            return [view[sent:] if sent else view, *views[index + 1 :]]
        sent -= view.nbytes
    return []


def head(views: list[memoryview], limit: int) -> list[memoryview]:
    """The first views, up to `limit` bytes; the last of them cut."""
    taken = []
    for view in views:
        taken.append(view[:limit])
        limit -= view.nbytes
        if limit <= 0:
            break
    return taken
