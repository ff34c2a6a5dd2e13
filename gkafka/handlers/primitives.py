"""What workers wait on, as types; and the one Future, which both handlers share."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Protocol

from gkafka.exceptions import KafkaTimeoutError
from gkafka.logs import get_logger

__all__ = ["SLICE_S", "Alarm", "Event", "Future", "Lock", "Parker", "Queue", "Semaphore", "forget"]

log = get_logger(__name__)
SLICE_S = 2.0  # longest single sleep of any wait: after it the deadline, the pid and the closing of a stream are looked at


class Event(Protocol):
    """A flag that workers wait for."""

    def set(self) -> None: ...
    def clear(self) -> None: ...
    def is_set(self) -> bool: ...
    def wait(self, timeout: float | None = None) -> bool:
        """True once the flag is set, False if `timeout` seconds passed first."""
        ...


class Alarm(Event, Protocol):
    """An Event of one worker, which is woken by bytes for the connections that it watches, too."""

    ready: list[int]
    """Descriptors of those that had something to say by the last wait."""

    def watch(self, fd: int) -> None: ...
    def close(self) -> None: ...


class Lock(Protocol):
    """Mutual exclusion for short sections. Never held across anything that waits."""

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool: ...
    def release(self) -> None: ...
    def __enter__(self) -> bool: ...
    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None: ...


class Semaphore(Protocol):
    """`n` permits. A worker that dies or times out while it waits takes none."""

    def acquire(self, blocking: bool = True, timeout: float | None = None) -> bool: ...
    def release(self, n: int = 1) -> None: ...
    def __enter__(self) -> bool: ...
    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None: ...


class Queue(Protocol):
    """First in, first out; the standard library's queue.Queue, method by method. Raises queue.Empty and queue.Full."""

    maxsize: int

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None: ...
    def get(self, block: bool = True, timeout: float | None = None) -> Any: ...
    def put_nowait(self, item: Any) -> None: ...
    def get_nowait(self) -> Any: ...
    def qsize(self) -> int: ...
    def empty(self) -> bool: ...
    def full(self) -> bool: ...
    def task_done(self) -> None: ...
    def join(self) -> None: ...


STOOD_STILL_S, GRACE_S = 0.5, 1.0
"""Who wakes up so much too late (the hub, or the process, stood still) waits so much longer for a result that may be there already."""


class Parker(Protocol):
    """One worker that waits for one wake-up."""

    def park(self, deadline: float | None) -> bool:
        """Wait to be woken: True, or False if the deadline passed. Called once, by the worker that made the parker."""
        ...

    def wake(self, _: object = None) -> None:
        """End the wait. May come before park(), from any thread, and must not come twice."""
        ...


class Future:
    """A result that comes later. The first of set() and set_exception() wins; the callbacks run exactly once, in its worker."""

    # No lock: what must happen once is a list.pop(), which is atomic with and without the GIL.
    __slots__ = ("_claim", "_done", "_error", "_links", "_parker", "_value")

    def __init__(self, parker: Callable[[], Parker]) -> None:
        self._parker = parker
        self._claim: list[None] = [None]
        self._links: list[Callable[[Any], object]] = []  # wake-ups and callbacks, in the order they came
        self._done = False
        self._value: Any = None
        self._error: BaseException | None = None

    def set(self, value: Any = None) -> bool:
        """Give the result. False if there was one already (then nothing happens)."""
        return self._finish(value, None)

    def set_exception(self, error: BaseException) -> bool:
        """Give the error that result() raises. False if there was a result already."""
        return self._finish(None, error)

    def done(self) -> bool:
        return self._done

    def result(self, timeout: float | None = None) -> Any:
        """The value, or the error raised. Raises KafkaTimeoutError if neither came within `timeout` seconds."""
        self._wait(timeout)
        if self._error is not None:
            raise self._error
        return self._value

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """The error, or None for a value. Raises KafkaTimeoutError if neither came within `timeout` seconds."""
        self._wait(timeout)
        return self._error

    def add_done_callback(self, fn: Callable[[Any], object]) -> None:
        """Call fn(self) once there is a result: in the worker that gives it, or here and now if it is there. Its errors are logged."""
        self._links.append(fn)
        if self._done:
            self._run_links()

    def _finish(self, value: Any, error: BaseException | None) -> bool:
        try:
            self._claim.pop()
        except IndexError:
            return False
        self._value, self._error = value, error
        self._done = True
        if self._links:
            self._run_links()
        return True

    def _run_links(self) -> None:
        # Whoever appended after `_done` was set runs the links too: each pop() hands a link to exactly one of us.
        while True:
            try:
                link = self._links.pop(0)
            except IndexError:
                return
            try:
                link(self)
            except Exception:
                log.exception("a callback of a future failed: %r", link)
            except BaseException:
                self._run_links()  # this one is not called again, and nobody comes back for those behind it
                raise

    def _wait(self, timeout: float | None) -> None:
        if self._done:
            return
        deadline = None if timeout is None else time.monotonic() + timeout
        self._park(deadline)
        if not self._done and deadline is not None and time.monotonic() - deadline > STOOD_STILL_S:
            self._park(time.monotonic() + GRACE_S)  # everybody stood still: who gives the result has not had its turn either
        if not self._done:
            raise KafkaTimeoutError(f"no result within {timeout:g} s" if timeout is not None else "no result")

    def _park(self, deadline: float | None) -> None:
        parker = self._parker()
        wake = parker.wake
        self._links.append(wake)
        if self._done:
            self._run_links()
        try:
            parker.park(deadline)
        finally:
            forget(self._links, wake)


def forget(links: list[Callable[[Any], object]], link: Callable[[Any], object]) -> bool:
    """Take a link out of a list. False if it is not there any more (it has been run)."""
    try:
        links.remove(link)
    except ValueError:
        return False
    return True
