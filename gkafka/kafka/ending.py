"""close() in steps: whoever is cut short leaves the rest to the next call."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable
from typing import Any

from gkafka.kafka.serializer import end

__all__ = ["Ending", "Turns"]


class _Turn:
    """Somebody's call that is under way; gone with it."""


class Turns:
    """One call at a time: who comes while another is at it returns at once, as it may be a listener's or a callback's that the other waits for, or a
    signal handler's on top of it.
    """

    def __init__(self) -> None:
        # Each number is given out once, by setdefault(), which is one step. Weakly: what a signal handler raises as a call ends would keep the turn for ever.
        self._given: dict[int, weakref.ref[_Turn]] = {}

    def run(self, steps: Callable[[], object]) -> None:
        """Call steps(), which may be called again, unless somebody is at it."""
        mine = _Turn()
        me = weakref.ref(mine)
        try:
            for number in itertools.count():
                holder = self._given.setdefault(number, me)
                if holder is me:
                    steps()
                    return
                if holder() is not None:
                    return
        finally:
            del mine


class Ending:
    """The end of one client. is_done: all of it is. last: serializers, which are closed once each."""

    def __init__(self, *last: Any) -> None:
        self.is_done = False
        self._last = list(last)
        self._turns = Turns()

    def run(self, steps: Callable[[], object]) -> None:
        """Call steps(), which may be called again, unless that is done or somebody is at it."""
        if not self.is_done:
            self._turns.run(lambda: self._end(steps))

    def _end(self, steps: Callable[[], object]) -> None:
        if self.is_done:  # by the one whose turn has just ended
            return
        steps()
        while self._last:
            end(self._last.pop(0))
        self.is_done = True
