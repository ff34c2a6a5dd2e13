"""Records one by one from a batch that is open: the Python twin of `_speed_run.pxi`."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

from gkafka.records._pure_cursors import UNBOUNDED
from gkafka.records._pure_read import Message, Records

__all__ = ["Run"]

T = TypeVar("T")

LOOKS = 4
"""Records that are made between two looks at the time."""


class Run:
    """Hands out one by one what is left of an open batch, with no look at anything else, as long as it was allowed to.

    queue: see `Records.step`. left: how many more it may give, 0 ends it; until: the time of the clock at which it is over. handed_out: how many records were
    handed out by it and others, or were about to be; seen: that number when the application asked last, with which it is done. guards: entered for each step; none where
    there is one thread.
    """

    __slots__ = ("_clock", "_first", "_is_making", "_pid", "_second", "handed_out", "left", "queue", "seen", "until")

    def __init__(
        self, clock: Callable[[], float], guards: tuple[AbstractContextManager[Any], AbstractContextManager[Any]] | None = None
    ) -> None:
        self._clock = clock
        self.queue: Any = None
        self.left = self.handed_out = self.seen = 0
        self.until = 0.0
        nothing: AbstractContextManager[Any] = nullcontext()
        self._first, self._second = guards or (nothing, nothing)
        self._pid = os.getpid()
        self._is_making = False

    def _may_go_on(self) -> bool:
        return self.left > 0 and self.queue is not None and self._pid == os.getpid()

    def _reader(self) -> Records | None:
        """Of the batch that is read; None: something is to be looked at first. The clock is asked each time: what a member may hand out ends with its
        session, and what the application does between two records nobody knows."""
        if not self._may_go_on() or self._clock() >= self.until:
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
        with self._first, self._second:
            return reader.step(self.queue)

    def several(self, max_bytes: int, most: int) -> list[Message]:
        """The next records, so many. None of them where these are more than 100, which are better taken together, where there may be fewer, or where they
        hold more than max_bytes."""
        reader = self._reader() if most <= 100 else None
        if reader is None:
            return []
        self.seen = self.handed_out
        self.handed_out += 1
        with self._first, self._second:
            messages = reader.steps(self.queue, most, max_bytes)
        self.left -= len(messages)
        return messages

    def made(self, make: Callable[[Message], T], tells: bool) -> T | None:
        """What make(message) returns for the next record, as several_made() does it; None where next() gives None."""
        things = self.several_made(make, tells, UNBOUNDED, 1)
        return things[0] if things else None

    def several_made(self, make: Callable[[Message], T], tells: bool, max_bytes: int, most: int) -> list[T]:
        """What make(message) returns for each record that several() would give, as far as it goes and time allows. The position moves behind the
        records only after that.

        None of them also while another caller is in here, which ends the run: each would make what the other one does; and where the records were taken, or
        the position moved, while make() worked.
        tells: what make() raises on the first one is raised; else the run ends, and whoever asks in another way meets the record again.
        """
        queue = self.queue  # that of this reader: others may let the run go on with another partition meanwhile
        if self._is_making:
            self.left = 0
        reader = self._reader() if most <= 100 else None
        if reader is None:
            return []
        self.seen = self.handed_out
        with self._first, self._second:
            messages = reader.steps(queue, most, max_bytes, stay=True)
        things: list[T] = []
        self._is_making = True
        try:
            for message in messages:
                things.append(make(message))
                if not len(things) % LOOKS and self._clock() >= self.until:
                    break
        except Exception:
            if tells and not things:
                raise
            if not things:
                self.left = 0
        finally:
            self._is_making = False
        if not things or not self._may_go_on():
            return []
        self.handed_out += 1
        with self._first, self._second:
            if not reader.step_to(queue, messages[: len(things)]):
                return []
        self.left -= len(things)
        return things
