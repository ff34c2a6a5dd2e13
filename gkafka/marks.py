"""Marks that an interruption leaves: what bears one is not finished, and its owner begins anew."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING

from gkafka.exceptions import ForkedClientError, ReentrantCallError

if TYPE_CHECKING:
    from gkafka.handlers import Handler
    from gkafka.handlers.primitives import Event

__all__ = ["EngineMark", "Mark", "Turn"]


class Mark:
    """`with mark:` is around steps that belong together. cause: the exception that cut them short.

    Whoever has begun anew sets cause to None.
    """

    __slots__ = ("cause",)

    def __init__(self) -> None:
        self.cause: BaseException | None = None

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is not None:
            self.tear(error)

    def tear(self, error: BaseException) -> None:
        """Note that the steps are not finished."""
        self.cause = error


class Turn:
    """One caller's turn at what one at a time does: another one begins when is_over is set.

    Set it in a `finally`: that is a single step, at which Python looks for no signal. Who gives
    something back by a call may be interrupted in there, and nobody would begin any more.
    """

    __slots__ = ("is_over",)

    def __init__(self, *, is_over: bool = False) -> None:
        self.is_over = is_over


class EngineMark(Mark):
    """Mark of an engine: whoever works for it and does not finish wakes the worker that begins anew.

    bug: the cause if nobody interrupted the steps from outside. wake: the event to set.
    """

    __slots__ = ("_handler", "_wake", "bug")

    def __init__(self, handler: Handler, wake: Event) -> None:
        super().__init__()
        self._handler, self._wake = handler, wake
        self.bug: BaseException | None = None

    def tear(self, error: BaseException) -> None:
        if not self.is_from_outside(error):
            self.bug = error  # first: whoever sees the mark raises it
        self.cause = error
        self._wake.set()

    def raise_bug(self) -> None:
        """On the worker: raise what somebody failed with who worked for the engine.

        It ends the worker, as a bug of its own does, and the engine with it.
        """
        bug, self.bug = self.bug, None
        if bug is not None:
            raise bug

    def is_from_outside(self, error: BaseException) -> bool:
        """Return whether it is no bug: a signal handler raised it, say, or called the client where it cannot be called."""
        outside = ReentrantCallError, ForkedClientError
        return not isinstance(error, Exception) or isinstance(error, outside) or self._handler.interrupted(error)
