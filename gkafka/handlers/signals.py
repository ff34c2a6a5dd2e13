"""What signal handlers raise, told from all else: it is meant for the program, whatever it happened to hit."""

from __future__ import annotations

import importlib
import signal
import sys
import traceback
from collections.abc import Callable
from time import monotonic
from types import CellType, CodeType, FrameType, FunctionType
from typing import Any

from gkafka.exceptions import causes

__all__ = ["inside_handler", "interrupted_frame", "is_of", "raised_by_handler"]

KNOWN_S = 0.2
"""So long what the handlers run is not looked up again by who only wants to know where it is, and looks again anyway."""
# signal.getsignal() looks each answer up among enums: 0.14 ms for all signals, up to five times in a second.
_handler_of: Callable[[int], Any] = importlib.import_module("_signal").getsignal
_EMPTY: Any = object()  # a cell without a value
_numbers = tuple(map(int, signal.valid_signals()))
Handlers = dict[int, tuple[CodeType, list[tuple[int, ...]]]]
"""What they run, by its id (its hash is that of all its text), and the ids of the values in the closures of each that runs it: all that one decorator
makes run the same. Not the values, which may be clients that somebody forgets."""
_known: tuple[float, Handlers] = (0.0, {})


def raised_by_handler(error: BaseException) -> BaseException | None:
    """What a signal handler raised, if that is this error or what it was made of: one that stands in its traceback."""
    handlers = _handlers()
    for cause in causes(error):
        if any(_runs(frame, handlers) for frame, _ in traceback.walk_tb(cause.__traceback__)):
            return cause
    return None


def inside_handler() -> bool:
    """Is the caller called by one? (By one that was set a moment ago, perhaps not yet.)"""
    global _known
    now = monotonic()
    if now >= _known[0]:
        _known = (now + KNOWN_S, _handlers())
    return _handlers_frame(_known[1]) is not None


def interrupted_frame() -> FrameType | None:
    """Return what the signal handler has interrupted that the caller is called by; None if it is called by none."""
    frame = _handlers_frame(_handlers())
    return None if frame is None else frame.f_back


def is_of(handler: Any, frame: FrameType | None) -> bool:
    """Is this frame in a call, or a worker, of this Handler's client?

    The outermost of gkafka's frames that have a Handler says whose it is.
    """
    owner, seen = None, False
    while frame is not None:
        if str(frame.f_globals.get("__name__")).startswith("gkafka."):
            seen = True
            owner = getattr(frame.f_locals.get("self"), "_handler", None) or owner
        frame = frame.f_back
    return seen and owner in (None, handler)


def _handlers_frame(handlers: Handlers) -> FrameType | None:
    """The frame of the innermost handler that the caller of this module is called by."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and not _runs(frame, handlers):
        frame = frame.f_back
    return frame


def _runs(frame: FrameType, handlers: Handlers) -> bool:
    """Is this the frame of one of them?"""
    found = handlers.get(id(frame.f_code))
    if found is None:
        return False
    code, closures = found
    here = frame.f_locals
    return tuple(id(here.get(name, _EMPTY)) for name in code.co_freevars) in closures


def _handlers() -> Handlers:
    found: Handlers = {}
    for handler in filter(callable, map(_handler_of, _numbers)):
        function = _function(handler)
        if function is not None:
            _, closures = found.setdefault(id(function.__code__), (function.__code__, []))
            closures.append(tuple(id(_content(cell)) for cell in function.__closure__ or ()))
    return found


def _content(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return _EMPTY


def _function(handler: Any) -> FunctionType | None:
    """What a signal's handler runs, if it is written in Python."""
    called = getattr(handler, "func", handler)  # of a functools.partial
    if callable(called) and not hasattr(called, "__code__") and not hasattr(called, "__func__"):
        called = getattr(type(called), "__call__", None)  # noqa: B004  of an object with that method
    function = getattr(called, "__func__", called)
    return function if isinstance(function, FunctionType) else None
