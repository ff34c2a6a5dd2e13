"""Starting a worker when it is needed, under no lock, because a thread's start can take long, or raise; and its end with the one whom it works for."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from gkafka.handlers import Handler

__all__ = ["Starter", "held_weakly", "weakly"]

TURN = "turn"
STUCK_S = 5.0
"""A turn that old is nobody's: who took it was interrupted, and again before it could give it back."""
T = TypeVar("T")


def held_weakly(owner: T, *wakes: Any) -> weakref.ref[T]:
    """For the workers of an owner who may be dropped without a word. wakes: the events that they sleep on, which are set when he is gone.

    Not by his finalizer: there he still is, and a worker that wakes would bring him back.
    """

    def wake(_: object) -> None:
        for event in wakes:
            event.set()

    return weakref.ref(owner, wake)


def weakly(method: Callable[..., T], gone: T) -> Callable[..., T]:
    """A bound method for those who outlive its owner, or are part of him: they hold him weakly. When he is gone it returns `gone`."""
    held = weakref.WeakMethod(method)

    def call(*args: Any) -> T:
        bound = held()
        return gone if bound is None else bound(*args)

    return call


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
