"""The worker of an engine: the thread or greenlet that drives it, and what wakes it.

A producer has one, a consumer one for each of its fetchers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Protocol

from gkafka.exceptions import ForkedClientError, KafkaException
from gkafka.marks import EngineMark
from gkafka.net.watched import Watched
from gkafka.starter import Starter, held_weakly

if TYPE_CHECKING:
    from gkafka.handlers import Handler
    from gkafka.handlers.primitives import Event
    from gkafka.net.reader import Taker

__all__ = ["EngineWorker"]

AWAKE = float("inf")
END_S = 0.1
"""How long a worker gets at least to end: it was woken for that, and ends at once unless its hub is
kept from turning."""
IDLE_S = 2.0
"""Longest sleep of a worker that has nothing to do: it notices forks and closed clients within
it."""


class Driver(Protocol):
    """What a worker runs."""

    def turn(self) -> float | None:
        """Do all that is to be done now.

        Return when to do so again at the latest, or None if nothing more will come.
        """

    def died(self, error: BaseException) -> None:
        """Take notice that this error ended the worker, and no other one is there."""


class EngineWorker:
    """Takes one turn of its driver after the other, and sleeps in between.

    driver: held weakly, so that an engine that is dropped ends its worker. leave(): called on the
    worker when it ends; returns who may take over the connections that it has read. signal: the Event
    that the worker sleeps on. watched: the connections that it reads itself, or None if they have
    readers of their own; taker: takes those that are opened for this engine. idle_s: longest sleep
    while nothing is to be done. task: what runs the worker, None until it is started.

    No signal interrupts a worker that is an OS thread, but whoever has its id may raise something in
    it (`PyThreadState_SetAsyncExc`). Under gevent the exception of a signal handler is raised in
    whatever greenlet is on CPU. Whoever is hit while it works for the driver leaves its
    `mark`, and the next turn begins anew. If the worker itself was hit, the connections that it read
    end. A greenlet ends with the exception, and another one takes its place; a thread goes on.
    """

    def __init__(self, handler: Handler, driver: Driver, name: str, leave: Callable[[], Iterable[Taker]]) -> None:
        self._handler, self._name, self._leave = handler, name, leave
        alarm = handler.alarm()
        self.watched = None if alarm is None else Watched(handler, alarm)
        self.taker = None if self.watched is None else self.watched.take
        self.signal: Event = alarm or handler.Event()
        self.idle_s = IDLE_S
        self.mark = EngineMark(handler, self.signal)
        self.task: Any = None
        self._id: int | None = None
        self._sleeps_until = AWAKE
        self._driver = held_weakly(driver, self.signal)
        self._starter = Starter(handler)
        # A caller that was interrupted in start() may start another worker: one of them works.
        self._unclaimed = [None]

    @property
    def is_here(self) -> bool:
        """Is the caller the worker?"""
        return self._id == self._handler.current_id()

    def start(self) -> None:
        """Start the worker, once; at once unless another caller is about to."""
        self._starter.run(self._spawn)

    def _spawn(self) -> None:
        if self.task is None:
            self._handler.start()
            self.task = self._handler.spawn(self._run, _name=self._name, _on_failure=self._failed)

    def wake(self, due: float = 0.0) -> None:
        """Wake the worker if it does not know of something that is to be done at that time."""
        if due < self._sleeps_until:
            self.signal.set()

    def end(self, seconds: float) -> None:
        """Wait for the end of the worker, whose work is over: so long, and a moment at least."""
        self.signal.set()
        if self.task is not None:
            self.task.join(max(END_S, seconds))

    # -- on the worker -----------------------------------------------------------------------------
    def _run(self) -> None:
        if self._driver() is None or not self._claim():
            return
        self._id = self._handler.current_id()
        while not self._work():
            pass

    def _work(self) -> bool:
        """Take turns until nothing more will come.

        Return False if an interruption ended that on an OS thread, which goes on.
        """
        if self.watched is not None:
            self.watched.begin()
        try:
            self._take_turns()
        except BaseException as error:
            if self.mark.is_from_outside(error):
                self.mark.cause = error  # first: what is told as the connections end is not believed
                if self.watched is not None:
                    self.watched.cut_short(error)
                if not self._handler.cooperative:
                    return False
            raise
        finally:
            takers = self._leave()
            if self.watched is not None:
                self.watched.end(takers)
        return True

    def _claim(self) -> bool:
        try:
            self._unclaimed.pop()
        except IndexError:
            return False
        return True

    def _take_turns(self) -> None:
        while (driver := self._driver()) is not None:
            self.signal.clear()  # before looking: whoever leaves a note, or closes, sets it after
            self._sleeps_until = AWAKE
            until = driver.turn()
            del driver
            if until is None:
                return
            self._sleeps_until = until
            self.signal.wait(max(0.0, until - self._handler.monotonic()))

    def _failed(self, error: BaseException) -> None:
        driver = self._driver()
        if driver is None or isinstance(error, ForkedClientError) or self._begins_anew(error):
            return
        driver.died(error)

    def _begins_anew(self, error: BaseException) -> bool:
        """Start another worker if an interruption ended this one.

        Return False if it was another error, or if no worker can be started any more.
        """
        if not self.mark.is_from_outside(error):
            return False
        self.mark.cause = error
        self._unclaimed = [None]  # first: a caller that finds no worker starts one
        self.task = None
        try:
            self.start()
        except (KafkaException, RuntimeError):  # RuntimeError: the process has no thread left
            return False
        return True
