"""Records one by one from a batch that is open: the Python twin of `_speed_run.pxi`."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

from gkafka.records._pure_read import Message, Records

__all__ = ["Run"]

T = TypeVar("T")


class Run:
    """Hands out one by one what is left of an open batch, with no look at anything else, as long as it was allowed to.

    queue: see `Records.step`. left: how many more it may give, 0 ends it; until: the time of the clock at which it is over. handed_out: how many records were
    handed out by it and others, or were about to be; seen: that number when the application asked last, with which it is done. guard: held for each step; None where there is one thread.
    """

    __slots__ = ("_clock", "_guard", "_is_making", "_pid", "handed_out", "left", "queue", "seen", "until")

    def __init__(self, clock: Callable[[], float], guard: AbstractContextManager[Any] | None = None) -> None:
        self._clock = clock
        self.queue: Any = None
        self.left = self.handed_out = self.seen = 0
        self.until = 0.0
        self._guard: AbstractContextManager[Any] = guard or nullcontext()
        self._pid = os.getpid()
        self._is_making = False

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

    def several(self, max_bytes: int, most: int) -> list[Message]:
        """The next records, so many. None of them where these are more than 100, which are better taken together, where there may be fewer, or where they
        hold more than max_bytes."""
        reader = self._reader() if most <= 100 else None
        if reader is None:
            return []
        self.seen = self.handed_out
        self.handed_out += 1
        with self._guard:
            messages = reader.steps(self.queue, most, max_bytes)
        self.left -= len(messages)
        return messages

    def made(self, make: Callable[[Message], T], tells: bool) -> T | None:
        """What make(message) returns for the next record. The position moves behind the record only after that.

        None where next() gives None; also while another caller is in here, and where the record was taken, or the position moved, while make()
        worked. tells: what make() raises is raised; else None is returned, and whoever asks in another way meets the record again.
        """
        reader = None if self._is_making else self._reader()
        if reader is None:
            return None
        self.seen = self.handed_out
        with self._guard:
            message = reader.peek(self.queue)
        if message is None:
            return None
        self._is_making = True
        try:
            thing = make(message)
        except Exception:
            if tells:
                raise
            return None
        finally:
            self._is_making = False
        reader = self._reader()
        if reader is None:
            return None
        self.handed_out += 1
        with self._guard:
            if not reader.step_to(self.queue, message.offset):
                return None
        self.left -= 1
        return thing
