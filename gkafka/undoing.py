"""Undo what was begun if the rest of it fails."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType

__all__ = ["Undoing"]


class Undoing:
    """Call undo(*args) if the body of the `with` statement raises; the exception goes on.

    It is called for an exception of any kind, a signal handler's or a kill, too. What undo() raises
    takes the place of that exception, which becomes its `__context__`.
    """

    __slots__ = ("_args", "_undo")

    def __init__(self, undo: Callable[..., object], *args: object) -> None:
        self._undo, self._args = undo, args

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is not None:
            self._undo(*self._args)
