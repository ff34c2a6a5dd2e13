"""Memory for what a broker sends: receive buffers that are used again, and frames cut from a stream of bytes.

A large answer is read straight into the buffer that is handed up, with no copy. Such a buffer is reused once nothing else refers to it: fresh
memory of that size costs a page fault for every 4 KiB. A small answer is copied out of the stage, so it holds no more memory than it needs.
"""

from __future__ import annotations

import mmap
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager

__all__ = ["BufferPool", "FrameReader"]

SMALL = 16 * 1024  # bytes: an answer up to this size is copied out of the stage
STAGE = 64 * 1024  # bytes: what one system call may bring of answers that are not yet cut
# Beyond what is pooled, memory that the system gives page by page as bytes arrive. bytearray would clear it all first, or copy it to grow: 25 ms for
# the last step to 50 MiB, with the hub waiting.
PAGED = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0)} if hasattr(mmap, "MAP_PRIVATE") else {}
HEADERS = 16 * 1024  # bytes beyond the records in an answer: one of exactly 1 or 4 MiB of records (fetch_max_bytes) must fit its class
SMALLEST_BUFFER = 64 * 1024
FIRST_CLAIM = (1 << 20) + HEADERS  # bytes: taken for an answer before any of it arrived; more is taken as bytes arrive
# A 4 MiB answer into a pooled buffer takes 0.85 ms of CPU, into fresh memory 1.2 ms; at 1 MiB malloc itself reuses what was freed.
LARGEST_POOLED = (4 << 20) + HEADERS


def _references(buffers: list[bytearray], index: int) -> int:
    return sys.getrefcount(buffers[index])


def _idle_count() -> int:
    """What `_references` gives for a buffer that nothing but the list refers to; None-like -1 where counts say nothing."""
    if not hasattr(sys, "getrefcount") or not getattr(sys, "_is_gil_enabled", lambda: True)():
        return -1  # a free-threaded build counts per thread: no buffer is ever seen idle, and none is pooled
    return _references([bytearray(1)], 0)


IDLE = _idle_count()


class BufferPool:
    """Receive buffers of 64 KiB to 4 MiB, in powers of two (and 16 KiB). At most `max_bytes` are remembered, in use or not.

    lock: guards the search, so that channels may share a pool. A buffer that is still referred to when its turn comes is forgotten, not
    taken back: its memory goes when its last user drops it.
    """

    def __init__(self, lock: AbstractContextManager[object], max_bytes: int = 4 * LARGEST_POOLED) -> None:
        self._lock = lock
        self._max_bytes = max_bytes
        self._buffers: list[bytearray] = []
        self._bytes = 0

    @property
    def pooled_bytes(self) -> int:
        """What the pool remembers."""
        return self._bytes

    def take(self, size: int) -> bytearray | mmap.mmap:
        """A buffer of at least `size` bytes, or of FIRST_CLAIM if there is none of that size: then it is for the caller to grow."""
        wanted = _capacity(size)
        if wanted > LARGEST_POOLED:
            return mmap.mmap(-1, wanted, **PAGED)
        return self.idle(wanted) or bytearray(min(wanted, FIRST_CLAIM))

    def idle(self, capacity: int) -> bytearray | None:
        """A buffer of that size class that is remembered and not in use."""
        if IDLE >= 0:
            with self._lock:
                for index in range(len(self._buffers)):
                    if len(self._buffers[index]) == capacity and _references(self._buffers, index) == IDLE:
                        return self._buffers[index]
        return None

    def keep(self, buffer: bytearray) -> None:
        """Remember a buffer from `take`, grown or not, for later. It may still be in use."""
        size = len(buffer)
        if IDLE < 0 or size > min(LARGEST_POOLED, self._max_bytes) or size != _capacity(size):
            return
        with self._lock:
            if any(known is buffer for known in self._buffers):
                return
            self._buffers.append(buffer)
            self._bytes += size
            while self._bytes > self._max_bytes:
                self._bytes -= len(self._buffers.pop(0))

    def clear(self) -> None:
        """Forget all buffers."""
        with self._lock:
            self._buffers.clear()
            self._bytes = 0


def _capacity(size: int) -> int:
    """The size class: powers of two and HEADERS up to LARGEST_POOLED, beyond it the size itself."""
    if size > LARGEST_POOLED:
        return size
    return HEADERS + max(SMALLEST_BUFFER, 1 << (size - HEADERS - 1).bit_length())


class FrameReader:
    """Cuts frames from a stream. receive(view) -> bytes received, at least 1; size_of(four bytes) -> the frame's size, or raises.
    receive_frame: Stream.recv_frame, at least 1 byte too; behind a large frame mostly comes another, which is received by that.

    Memory is taken for what arrived and at most FIRST_CLAIM beyond it, never for what a size claims. stage_bytes, at least 4: the buffer
    that answers start in; those that do not fit are received whole all the same.
    """

    def __init__(
        self,
        receive: Callable[[memoryview], int],
        size_of: Callable[[memoryview], int],
        pool: BufferPool,
        stage_bytes: int = STAGE,
        receive_frame: Callable[[memoryview, bytearray], tuple[int, int]] | None = None,
    ) -> None:
        self._receive = receive
        self._receive_frame = receive_frame
        self._last_large = 0  # bytes of the frame before, if it was a large one
        self._size_of = size_of
        self._pool = pool
        self._stage = memoryview(bytearray(stage_bytes))
        self._small_up_to = min(SMALL, stage_bytes)
        self._start = 0  # of what is in the stage and not yet cut
        self._end = 0
        self._size = -1  # of the frame that is being cut; -1: it is not known yet
        self._buffer: bytearray | mmap.mmap | None = None  # of a large one that is being received, and how much of it is there
        self._got = 0

    @property
    def pristine(self) -> bool:
        """Nothing of an unfinished frame has arrived."""
        return self._size < 0 and self._start == self._end

    def receive_by(self, receive: Callable[[memoryview], int], receive_frame: Callable[[memoryview, bytearray], tuple[int, int]]) -> None:
        """Take what comes from now on from these."""
        self._receive, self._receive_frame = receive, receive_frame

    def read(self) -> memoryview:
        """The next frame, without its size. Read-only; it stays as it is for as long as anything refers to it.

        What receive() raises comes through; the next call goes on with what has arrived until then.
        """
        size = self._size
        if size < 0:
            if self._last_large and self._start == self._end and self._receive_frame is not None:
                self._begin_large(self._receive_frame)
            if self._end - self._start < 4:
                self._fill(4)
            start = self._start
            size = self._size = self._size_of(self._stage[start : start + 4])
            self._start = start + 4 if self._buffer is None else self._end
        frame = self._small(size) if size <= self._small_up_to else self._large(size)
        self._size = -1
        return frame

    def _begin_large(self, receive_frame: Callable[[memoryview, bytearray], tuple[int, int]]) -> None:
        """Receive into the stage; or a whole large frame, if there is memory for one like the last."""
        buffer = self._pool.idle(_capacity(self._last_large))
        if buffer is None:
            return
        self._start = self._end = 0
        self._end, got = receive_frame(self._stage, buffer)
        if got:
            self._buffer, self._got = buffer, got
        else:
            self._last_large = 0

    def _small(self, size: int) -> memoryview:
        if self._end - self._start < size:
            self._fill(size)
        start = self._start
        self._start = start + size
        return memoryview(bytes(self._stage[start : start + size]))

    def _large(self, size: int) -> memoryview:
        buffer = self._buffer
        if buffer is None:
            buffer = self._pool.take(size)
            got = min(size, self._end - self._start)
            buffer[:got] = self._stage[self._start : self._start + got]
            self._start += got
            self._buffer, self._got = buffer, got
        self._last_large = size
        while self._got < size:
            if isinstance(buffer, bytearray) and self._got == len(buffer):
                buffer += bytes(min(_capacity(size), 2 * self._got) - self._got)
            with memoryview(buffer) as view, view[self._got : size] as rest:
                self._got += self._receive(rest)
        self._buffer, self._got = None, 0
        if isinstance(buffer, bytearray):
            self._pool.keep(buffer)
        return memoryview(buffer)[:size].toreadonly()

    def _fill(self, wanted: int) -> None:
        """Receive until the stage holds `wanted` bytes, and as many more as one call brings."""
        if self._start == self._end:
            self._start = self._end = 0
        elif self._start + wanted > len(self._stage):
            rest = self._end - self._start
            self._stage[:rest] = bytes(self._stage[self._start : self._end])
            self._start, self._end = 0, rest
        while self._end - self._start < wanted:
            self._end += self._receive(self._stage[self._end :])
