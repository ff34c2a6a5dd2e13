"""Starting a worker when it is needed: under no lock, because a thread's start can take long, or raise."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gkafka.handlers import Handler

__all__ = ["Starter"]

TURN = "turn"
STUCK_S = 5.0
"""A turn that old is nobody's: who took it was interrupted, and again before it could give it back."""


class Starter:
    """One caller at a time starts; the others go on with what they do, and whoever needs the worker comes again.

    A caller that is interrupted (by a signal handler's exception) may have started a worker or not, and the next one starts another: which of
    them works is for the workers to settle.
    """

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self._turn: dict[str, tuple[float, object]] = {}  # dict.setdefault() is atomic

    def run(self, start: Callable[[], object]) -> None:
        """Call start() unless somebody is about to. What it raises comes out of here."""
        now = self._handler.monotonic()
        mine = (now, object())
        try:
            holder = self._turn.setdefault(TURN, mine)
            if holder is mine or now - holder[0] > STUCK_S:
                self._turn[TURN] = mine
                start()
        finally:
            if self._turn.get(TURN) is mine:
                del self._turn[TURN]
