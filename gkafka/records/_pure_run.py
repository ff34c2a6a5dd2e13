"""Records one by one from a batch that is open: the Python twin of `_speed_run.pxi`."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from gkafka.records._pure_read import Message, Records

__all__ = ["Run"]


class Run:
    """Hands out one by one what is left of an open batch, with no look at anything else, as long as it was allowed to.

    queue: see `Records.step`. left: how many more it may give, 0 ends it; until: the time of the clock at which it is over. handed_out: how many records were
    handed out by it and others, or were about to be; seen: that number when the application asked last, with which it is done. guard: held for each step; None where there is one thread.
    """

    __slots__ = ("_clock", "_guard", "_pid", "handed_out", "left", "queue", "seen", "until")

    def __init__(self, clock: Callable[[], float], guard: AbstractContextManager[Any] | None = None) -> None:
        self._clock = clock
        self.queue: Any = None
        self.left = self.handed_out = self.seen = 0
        self.until = 0.0
        self._guard: AbstractContextManager[Any] = guard or nullcontext()
        self._pid = os.getpid()

    def _reader(self) -> Records | None:
        if self.left <= 0 or self.queue is None or self._pid != os.getpid() or self._clock() >= self.until:
            return None
        reader = self.queue.reader
        return reader if type(reader) is Records else None

    def next(self) -> Message | None:
        """The next message. None: there is none, or something is to be looked at that this does not ask for each of a million records."""
        reader = self._reader()
        if reader is None:
            return None
        self.left -= 1
        self.seen = self.handed_out
        self.handed_out += 1  # before the step: who takes the partition away looks at it afterwards, and must find what was handed out
        with self._guard:
            return reader.step(self.queue)

    def several(self, most: int, max_bytes: int) -> list[Message]:
        """The next ones, so many; none if there may be fewer, or more than max_bytes of them."""
        reader = self._reader()
        if reader is None:
            return []
        self.seen = self.handed_out
        self.handed_out += 1
        with self._guard:
            messages = reader.steps(self.queue, most, max_bytes)
        self.left -= len(messages)
        return messages

    def peek(self) -> Message | None:
        """The same message, with nothing moved."""
        reader = self._reader()
        if reader is None:
            return None
        self.seen = self.handed_out
        with self._guard:
            return reader.peek(self.queue)

    def take(self, message: Message) -> bool:
        """Move behind what peek() has given. False: it is not the next one any more."""
        reader = self._reader()
        if reader is None:
            return False
        self.handed_out += 1
        with self._guard:
            if not reader.step_to(self.queue, message.offset):
                return False
        self.left -= 1
        return True
