"""The memory of written batches, and the numbers in them: the Python twin of `_speed_memory.pxi`."""

from __future__ import annotations

import os
import struct
from collections import deque
from collections.abc import Sized
from contextlib import AbstractContextManager, nullcontext
from typing import Any, ClassVar

__all__ = [
    "NULL",
    "Budget",
    "SMALL",
    "SMALLS",
    "Memory",
    "Pool",
    "live_buffers",
    "murmur2",
    "read_blob",
    "read_varint",
    "size_of",
    "varint",
]

_MASK = (1 << 64) - 1


# -- numbers -----------------------------------------------------------------------------------------------------------
def varint(n: int) -> bytes:
    """n as a zigzag varint; like Kafka's, it wraps at 64 bits."""
    z = ((n << 1) ^ (n >> 63)) & _MASK if -(1 << 63) <= n < 1 << 63 else _wrapped(n)
    out = bytearray()
    while z >= 0x80:
        out.append(z & 0x7F | 0x80)
        z >>= 7
    out.append(z)
    return bytes(out)


def _wrapped(n: int) -> int:
    n = (n + (1 << 63) & _MASK) - (1 << 63)
    return ((n << 1) ^ (n >> 63)) & _MASK


SMALL = tuple(varint(n) for n in range(8192))
SMALLS = len(SMALL)
NULL = varint(-1)


def size_of(data: Sized) -> bytes:
    n = len(data)
    return SMALL[n] if n < SMALLS else varint(n)


def read_varint(data: bytes | bytearray, at: int) -> tuple[int, int]:
    """Only for records that were written here."""
    z = shift = 0
    while True:
        byte = data[at]
        at += 1
        z |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return (z >> 1) ^ -(z & 1), at


def read_blob(data: bytes | bytearray, at: int) -> tuple[bytes | None, int]:
    size, at = read_varint(data, at)
    return (None, at) if size < 0 else (bytes(data[at : at + size]), at + size)


def murmur2(key: bytes) -> int:
    """Kafka's hash of a key (the Java client's, as a number from 0 to 2**31 - 1)."""
    data = key if type(key) is bytes else bytes(memoryview(key))
    words = len(data) >> 2
    h = 0x9747B28C ^ (len(data) & 0xFFFFFFFF)
    for k in struct.unpack_from(f"<{words}I", data):
        k = k * 0x5BD1E995 & 0xFFFFFFFF
        k = (k ^ k >> 24) * 0x5BD1E995 & 0xFFFFFFFF
        h = h * 0x5BD1E995 & 0xFFFFFFFF ^ k
    tail = data[words << 2 :]
    if tail:
        h = (h ^ int.from_bytes(tail, "little")) * 0x5BD1E995 & 0xFFFFFFFF
    h = (h ^ h >> 13) * 0x5BD1E995 & 0xFFFFFFFF
    return (h ^ h >> 15) & 0x7FFFFFFF


# -- memory ------------------------------------------------------------------------------------------------------------
class Pool:
    """The producer's buffer_bytes, as a count. All but `returned` is used under the appender's lock only."""

    __slots__ = ("budget", "limit", "pid", "reserved", "returned")

    def __init__(self, limit: int, budget: Budget | None = None) -> None:
        self.limit = limit
        self.budget = budget
        self.reserved = 0
        self.pid = os.getpid()
        self.returned: deque[int] = deque()  # what finalizers gave back; they run anywhere, under the lock too

    def reserve(self, n: int, beyond: int = 0) -> bool:
        """Count n bytes as used; False if there are not that many. beyond: bytes over each limit that may be taken."""
        if self.returned:
            self.settle()
        if n > self.limit + beyond - self.reserved or (self.budget is not None and not self.budget.reserve(n, beyond)):
            return False
        self.reserved += n
        return True

    def charge(self, n: int) -> None:
        """Count n bytes as used, whether they are there or not; below 0: as free again."""
        self.reserved += n
        if self.budget is not None:
            self.budget.charge(n)

    def give_back(self, n: int) -> None:
        """Count n bytes as free again: at the next look, because finalizers may come anywhere."""
        self.returned.append(n)
        if self.budget is not None:
            self.budget.returned.append(n)

    def settle(self) -> None:
        while self.returned:
            self.reserved -= self.returned.popleft()

    @property
    def own_free(self) -> int:
        """Below 0 while more is taken: parts of a batch that was split, what was taken beyond the limits."""
        self.settle()
        return self.limit - self.reserved

    @property
    def free(self) -> int:
        own = max(0, self.own_free)
        return own if self.budget is None else min(own, self.budget.available)


class Budget:
    """Memory that several appenders share: together they take at most `limit` bytes, beside what each may take at most.

    reserved: what they hold now. lock: a lock of the owner's handler, None where there is one thread.
    """

    __slots__ = ("_lock", "_reserved", "limit", "returned")

    def __init__(self, limit: int = 0, lock: AbstractContextManager[Any] | None = None) -> None:
        self.limit = limit
        self._reserved = 0
        self._lock = lock or nullcontext()
        self.returned: deque[int] = deque()

    def reserve(self, n: int, beyond: int = 0) -> bool:
        with self._lock:
            self._settle()
            if n > self.limit + beyond - self._reserved:
                return False
            self._reserved += n
            return True

    def charge(self, n: int) -> None:
        with self._lock:
            self._reserved += n

    def _settle(self) -> None:
        while self.returned:
            self._reserved -= self.returned.popleft()

    @property
    def reserved(self) -> int:
        with self._lock:
            self._settle()
            return self._reserved

    @property
    def available(self) -> int:
        """Bytes that nobody holds."""
        return max(0, self.limit - self.reserved)


class Memory(bytearray):
    """The bytes of one batch. They are counted until nothing refers to them any more, a memoryview included: bytes that a socket may
    still send are neither written over nor given to others (KAFKA-19012)."""

    __slots__ = ("charged", "pool")
    alive: ClassVar[int] = 0

    def __init__(self, data: Any, pool: Pool, charged: int) -> None:
        Memory.alive += 1
        self.pool = pool
        self.charged = charged
        super().__init__(data)

    def give_back(self) -> None:
        charged, self.charged = self.charged, 0
        self.pool.give_back(charged)

    def __del__(self) -> None:
        type(self).alive -= 1
        self.give_back()


def live_buffers() -> int:
    """How many buffers are alive now: for tests of leaks."""
    return Memory.alive
