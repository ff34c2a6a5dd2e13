"""The lock of gkafka's own state: native, and it knows who holds it.

A signal handler runs on top of whatever the main thread is doing, perhaps while that holds such a lock. If the handler calls the client, what it
waits for is below itself and never goes on: instead of for ever, it gets an error that says so.
"""

from __future__ import annotations

import _thread
import contextlib
import os
import sys
from types import TracebackType
from typing import TYPE_CHECKING

from gkafka.exceptions import ReentrantCallError
from gkafka.handlers.signals import inside_handler

__all__ = ["Mutex", "OwnedLock"]

if TYPE_CHECKING:

    class NativeRLock:
        """What is used of it."""

        def acquire(self, blocking: bool = True, timeout: float = -1) -> bool: ...
        def release(self) -> None: ...
        def _is_owned(self) -> bool: ...
        def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None: ...

else:  # native, in a patched process too
    _monkey = sys.modules.get("gevent.monkey")
    NativeRLock = _monkey.get_original("_thread", "RLock") if _monkey is not None else _thread.RLock


PATIENCE_S = 1.0
"""So long a signal handler waits for another thread's mutex. None is held across a wait: that thread wants one that is held below the handler."""


class PythonLock(NativeRLock):
    """A lock that knows the thread that holds it, which cannot take it again by `with`: that calls _refuse(). Where it is taken, `with` calls _wait().

    Giving it back is one step in C, which no signal comes into. Taking it is not: whatever comes between gives it back.
    """

    __slots__ = ()

    def __enter__(self) -> bool:
        if self.is_mine():
            self._refuse()
        try:
            return self.take() or self._wait()
        except BaseException:
            if self.is_mine():
                self.release()
            raise

    def take(self, seconds: float = 0.0) -> bool:
        """Wait so long for it. Not by who holds it."""
        return NativeRLock.acquire(self, seconds > 0, seconds if seconds > 0 else -1)

    def is_mine(self) -> bool:
        """Does the calling thread hold it?"""
        return self._is_owned()

    def _wait(self) -> bool:
        """Wait for the lock, which another thread holds. Each kind of lock has its own way."""
        raise NotImplementedError  # a class in C below it: it cannot be abstract

    def _refuse(self) -> None:
        """Raise what the holder gets that takes the lock again."""
        raise NotImplementedError  # the same


OwnedLock = PythonLock
if not TYPE_CHECKING and os.environ.get("GKAFKA_IMPL") != "python":
    with contextlib.suppress(ImportError):
        from gkafka.handlers._locks import OwnedLock


class Mutex(OwnedLock):
    """See Handler.Mutex. Its holder cannot take it again: that raises ReentrantCallError. So does a signal handler's wait in vain."""

    __slots__ = ()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Take it. False if another one, or this very caller, has it and blocking is false."""
        if self.is_mine():
            if blocking:
                self._refuse()
            return False
        if not blocking or timeout >= 0:
            return self.take(timeout if blocking else 0.0)
        return self.take() or self._wait()

    def _wait(self) -> bool:
        while not self.take(PATIENCE_S):
            if inside_handler():
                self._refuse()
        return True

    def locked(self) -> bool:
        """Does anybody have it?"""
        if self.is_mine():
            return True
        if not self.take():
            return True
        self.release()
        return False

    def _refuse(self) -> None:
        raise ReentrantCallError(
            "the client was called in the middle of another call of its, which cannot go on meanwhile: by a signal handler, or by a __del__. Set a flag"
            " or an Event there and call the client outside of it; with gevent, gevent.signal_handler() runs a handler in a greenlet of its own, which"
            " may call it"
        )
