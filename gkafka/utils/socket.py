"""Reading whole answers from a socket (reference: pykafka.utils.socket)."""

from __future__ import annotations

from typing import Protocol

from gkafka.checks import check_count
from gkafka.exceptions import SocketDisconnectedError

__all__ = ["recvall_into"]

PIECE = 1 << 20  # bytes asked for at once: recv() takes the memory for what it is asked for, not for what comes


class Receives(Protocol):
    """A socket, as far as it is used here."""

    def recv(self, size: int, /) -> bytes: ...


def recvall_into(socket: Receives, bytea: bytearray, size: int) -> bytearray:
    """Receive exactly `size` bytes into the start of bytea, in place, and return it; it grows if it is too short, as bytes arrive.

    Raises SocketDisconnectedError if the socket fails, its own timeout included, or has no more bytes: what came is in bytea.
    """
    at, size = 0, check_count("size", size, low=0, high=(1 << 31) - 1)
    while at < size:
        try:
            chunk = socket.recv(min(size - at, PIECE))
        except OSError as exc:
            raise SocketDisconnectedError(f"the socket failed after {at} of {size} bytes: {exc}") from exc
        if not chunk:
            raise SocketDisconnectedError(f"the peer closed the connection after {at} of {size} bytes")
        bytea[at : at + len(chunk)] = chunk
        at += len(chunk)
    return bytea
