"""Is it up? Asked of the processes themselves, in as few bytes as will do, without any client."""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

__all__ = ["Metadata", "metadata", "zookeeper_serves"]


class Metadata(NamedTuple):
    """What a broker knows. brokers: ids of the live ones; leaders: topic -> partition -> broker id, -1 where there is none."""

    brokers: set[int]
    leaders: dict[str, dict[int, int]]


def zookeeper_serves(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=2) as sock:
        sock.sendall(b"srvr")
        return sock.recv(4096).startswith(b"Zookeeper version")
    return False


def metadata(host: str, port: int, topics: Sequence[str] = ()) -> Metadata | None:
    """Metadata v0, which every version from 0.8 to 4.2 serves; None while there is no answer.

    topics: none for all. A broker that creates topics by itself creates those that are named here.
    """
    names = b"".join(struct.pack(">h", len(name)) + name.encode() for name in topics)
    request = struct.pack(">hhih", 3, 0, 1, -1) + struct.pack(">i", len(topics)) + names
    with contextlib.suppress(OSError, struct.error), socket.create_connection((host, port), timeout=2) as sock:
        sock.sendall(struct.pack(">i", len(request)) + request)
        with sock.makefile("rb") as file:
            (size,) = struct.unpack(">i", file.read(4))
            return _parse(_Reader(file.read(size)[4:]))
    return None


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def number(self, code: str = "i") -> int:
        (value,) = struct.unpack_from(f">{code}", self._data, self._at)
        self._at += struct.calcsize(code)
        return int(value)

    def text(self) -> str:
        length = self.number("h")
        self._at += length
        return self._data[self._at - length : self._at].decode()

    def each(self) -> Iterator[int]:
        return iter(range(self.number()))


def _parse(answer: _Reader) -> Metadata:
    brokers = set()
    for _ in answer.each():
        brokers.add(answer.number())
        answer.text()
        answer.number()
    leaders = {}
    for _ in answer.each():
        answer.number("h")
        name = answer.text()
        leaders[name] = dict(_partition(answer) for _ in answer.each())
    return Metadata(brokers, leaders)


def _partition(answer: _Reader) -> tuple[int, int]:
    error, partition, leader = answer.number("h"), answer.number(), answer.number()
    for _list in ("replicas", "isr"):
        for _ in answer.each():
            answer.number()
    return partition, leader if error in (0, 9) else -1  # 9: a replica is missing, the leader serves
