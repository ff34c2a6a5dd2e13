"""What signal handlers raise, told from all else: it is meant for the program, whatever it happened to hit."""

from __future__ import annotations

import signal
import sys
import traceback
from time import monotonic
from types import CodeType
from typing import Any

__all__ = ["inside_handler", "raised_by_handler"]

KNOWN_S = 0.2
"""So long what the handlers run is not looked up again by who only wants to know where it is: that takes 0.1 ms, and it looks again anyway."""
_known: tuple[float, set[CodeType]] = (0.0, set())


def raised_by_handler(error: BaseException) -> BaseException | None:
    """What a signal handler raised, if that is this error or what it was made of: one that stands in its traceback."""
    handlers = _handlers()
    cause: BaseException | None = error
    while cause is not None:
        if any(frame.f_code in handlers for frame, _ in traceback.walk_tb(cause.__traceback__)):
            return cause
        cause = cause.__cause__
    return None


def inside_handler() -> bool:
    """Is the caller called by one? (By one that was set a moment ago, perhaps not yet.)"""
    global _known
    now = monotonic()
    if now >= _known[0]:
        _known = (now + KNOWN_S, _handlers())
    handlers, frame = _known[1], sys._getframe(1)
    while frame.f_back is not None:
        frame = frame.f_back
        if frame.f_code in handlers:
            return True
    return False


def _handlers() -> set[CodeType]:
    codes = {_code(signal.getsignal(number)) for number in signal.valid_signals()}
    return {code for code in codes if code is not None}


def _code(handler: Any) -> CodeType | None:
    """What a signal's handler runs, if it is written in Python."""
    called = getattr(handler, "func", handler)  # of a functools.partial
    if callable(called) and not hasattr(called, "__code__") and not hasattr(called, "__func__"):
        called = getattr(type(called), "__call__", None)  # noqa: B004  of an object with that method
    code = getattr(getattr(called, "__func__", called), "__code__", None)
    return code if isinstance(code, CodeType) else None
