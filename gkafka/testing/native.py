"""An OS thread of its own and what runs in it: sockets, timers, a way to call in from elsewhere.

In a process that gevent has patched these are the unpatched originals: the brokers answer while the hub is busy, and nothing here ever
waits for a greenlet. Sockets are `_socket.socket`, the C class that gevent does not replace (`socket.accept` would make patched ones).
"""

from __future__ import annotations

import _socket
import contextlib
import functools
import heapq
import itertools
import select
import sys
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from gkafka.guarding import guarded
from gkafka.logs import get_logger

__all__ = ["Loop", "Pollable", "Timer"]

log = get_logger(__name__)
T = TypeVar("T")
CALL_LIMIT_S = 30.0  # a call into the loop that takes longer means that the loop hangs
READ, WRITE = 1, 4  # select.POLLIN and POLLOUT; gevent's select has no others to offer


def _original(module: str, name: str) -> Any:
    """What the standard library calls `name`, whether or not gevent has replaced it."""
    monkey = sys.modules.get("gevent.monkey")
    if monkey is not None:
        return monkey.get_original(module, name)
    return getattr(sys.modules.get(module) or __import__(module), name)


class Pollable(Protocol):
    """Something with a descriptor that the loop watches."""

    def fileno(self) -> int: ...
    def on_ready(self, readable: bool, writable: bool) -> None: ...


class Timer:
    __slots__ = ("cancelled", "fn")

    def __init__(self, fn: Callable[[], object]) -> None:
        self.fn = fn
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class Loop:
    """Runs callbacks of sockets and timers, one at a time, in its own thread."""

    def __init__(self) -> None:
        self._allocate_lock = _original("_thread", "allocate_lock")
        self._get_ident = _original("_thread", "get_ident")
        self._poller = _make_poller()
        self._watched: dict[int, Pollable] = {}
        self._calls: deque[Callable[[], object]] = deque()
        self._timers: list[tuple[float, int, Timer]] = []
        self._order = itertools.count()
        self._stopping = False
        self._ident = 0
        self.errors: list[BaseException] = []
        self._wake_out, self._wake_in = _socket.socketpair()
        self._wake_out.setblocking(False)
        self._wake_in.setblocking(False)
        self._ended = self._allocate_lock()
        self._ended.acquire()
        self._poller.register(self._wake_out.fileno(), READ)
        _original("_thread", "start_new_thread")(self._main, ())

    # -- from any thread
    def call(self, fn: Callable[[], T]) -> T:
        """fn() in the loop's thread: its result, or its error."""
        if self._get_ident() == self._ident or self._ended_now():
            return fn()
        done = self._allocate_lock()
        done.acquire()
        box: list[T] = []
        failure: list[BaseException] = []

        def run() -> None:
            try:
                guarded(lambda: box.append(fn()), failed=failure.append)
            finally:
                done.release()

        self.call_soon(run)
        if not done.acquire(timeout=CALL_LIMIT_S):
            raise TimeoutError(f"the mock cluster's thread did not answer within {CALL_LIMIT_S:g} s")
        if failure:
            raise failure[0]
        return box[0]

    def call_soon(self, fn: Callable[[], object]) -> None:
        self._calls.append(fn)
        if self._get_ident() != self._ident:
            with contextlib.suppress(OSError):  # full: it is awake already; closed: it has ended
                self._wake_in.send(b"\0")

    def stop(self, timeout_s: float) -> bool:
        """End the thread. False if it did not within the time."""
        self._stopping = True
        self.call_soon(lambda: None)
        if self._get_ident() == self._ident:
            return True
        if not self._ended.acquire(timeout=timeout_s):
            return False
        self._ended.release()
        return True

    def _ended_now(self) -> bool:
        if self._ended.acquire(False):
            self._ended.release()
            return True
        return False

    # -- in the loop's thread
    def after(self, seconds: float, fn: Callable[[], object]) -> Timer:
        timer = Timer(fn)
        heapq.heappush(self._timers, (time.monotonic() + seconds, next(self._order), timer))
        return timer

    def watch(self, what: Pollable, *, read: bool, write: bool) -> None:
        """Watch for these; neither: still for the connection's end."""
        fd = what.fileno()
        events = (READ if read else 0) | (WRITE if write else 0)
        if fd in self._watched:
            self._poller.modify(fd, events)
        else:
            self._poller.register(fd, events)
        self._watched[fd] = what

    def forget(self, fd: int) -> None:
        if self._watched.pop(fd, None) is not None:
            self._poller.unregister(fd)

    def _run(self) -> None:
        while not self._stopping:
            self._once()

    def _failed(self, error: BaseException) -> None:
        self.errors.append(error)
        log.error("the mock cluster's thread failed", exc_info=error)

    def _main(self) -> None:
        self._ident = self._get_ident()
        try:
            guarded(self._run, failed=self._failed)
        finally:
            while self._calls:
                self._guard(self._calls.popleft())
            self._wake_out.close()
            self._wake_in.close()
            self._ended.release()

    def _once(self) -> None:
        for fd, events in self._poller.poll(self._wait_ms()):
            if fd == self._wake_out.fileno():
                _drain(self._wake_out)
                continue
            what = self._watched.get(fd)
            if what is not None:
                self._guard(functools.partial(what.on_ready, bool(events & ~WRITE), bool(events & WRITE)))
        for _ in range(len(self._calls)):
            self._guard(self._calls.popleft())
        now = time.monotonic()
        while self._timers and self._timers[0][0] <= now:
            timer = heapq.heappop(self._timers)[2]
            if not timer.cancelled:
                self._guard(timer.fn)

    def _wait_ms(self) -> float | None:
        if self._calls:
            return 0
        if not self._timers:
            return None
        return max(0.0, (self._timers[0][0] - time.monotonic()) * 1000 + 0.5)

    def _guard(self, fn: Callable[[], object]) -> None:
        try:
            fn()
        except Exception as exc:
            self.report(exc)

    def report(self, exc: Exception) -> None:
        """Something that a test is to see."""
        self.errors.append(exc)
        log.error("the mock cluster: a callback failed", exc_info=exc)


def _drain(sock: Any) -> None:
    with contextlib.suppress(OSError):
        while sock.recv(4096):
            pass


def _make_poller() -> Any:
    try:
        return _original("select", "poll")()
    except AttributeError:
        return _SelectPoller(_original("select", "select"))


class _SelectPoller:
    """`select.poll`'s methods where there is only select(): Windows."""

    def __init__(self, select_: Callable[..., Any]) -> None:
        self._select = select_
        self._events: dict[int, int] = {}

    def register(self, fd: int, events: int) -> None:
        self._events[fd] = events

    modify = register

    def unregister(self, fd: int) -> None:
        del self._events[fd]

    def poll(self, wait_ms: float | None) -> list[tuple[int, int]]:
        readers = [fd for fd, events in self._events.items() if events & READ]
        writers = [fd for fd, events in self._events.items() if events & WRITE]
        readable, writable, _ = self._select(readers, writers, [], None if wait_ms is None else wait_ms / 1000)
        ready: dict[int, int] = dict.fromkeys(readable, READ)
        for fd in writable:
            ready[fd] = ready.get(fd, 0) | WRITE
        return list(ready.items())


assert not hasattr(select, "POLLIN") or (select.POLLIN, select.POLLOUT) == (READ, WRITE)
