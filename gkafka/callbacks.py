"""Delivery callbacks run on a worker of their own: they may wait for deliveries, which others drive.

A batch's memory is held until its callbacks were called, so that they can look at its records. What they may rely on is told to users at
`gkafka.nativeproducer.NativeProducer`; that a `produce()` among them never waits for what only their worker gives back is seen to in
`gkafka.producermemory`.
"""

from __future__ import annotations

import contextlib
import weakref
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from gkafka import records
from gkafka.exceptions import ConfigurationError
from gkafka.logs import get_logger
from gkafka.starter import Starter

if TYPE_CHECKING:
    from gkafka.core.sender import Sender
    from gkafka.handlers import Handler
    from gkafka.records import Batch

__all__ = ["Callbacks", "end_waits", "is_callback"]

log = get_logger(__name__)

Callback = tuple[int, Callable[[Any], Any]]
"""(number of the record in its whole batch, function of its Delivery)"""

TICK_S = 1.0
"""Longest sleep of the worker: forks and dropped producers are noticed within it."""
TURN_S = 0.002
"""After callbacks that took so long, and after the last of a batch, others get their turn."""
LOOK_AGAIN_S = 0.005
GRACE_S = 0.5
"""How long a close waits at least for callbacks that are due."""

_calling: set[int] = set()
"""The workers that run callbacks now, of whatever producer and client: those of one may produce to another, and the other way round."""


def is_callback(handler: Handler) -> bool:
    """Does the caller run inside a delivery callback?"""
    return bool(_calling) and handler.current_id() in _calling


class Callbacks:
    """Those of one producer. The worker is started with the first of them, and holds this only while it works: it ends with the producer.

    sender: what it owes or is telling decides whether more may come. lock: the driver's. release: for a batch whose callbacks had their look at
    the records. Until then the memory of a batch with callbacks is in the keeping of this.
    """

    def __init__(self, handler: Handler, lock: Any, sender: Sender, release: Callable[[Batch], None]) -> None:
        self._handler, self._lock, self._sender, self._release = handler, lock, sender, release
        self._queue: deque[tuple[Batch, Batch, deque[Callback | None]]] = deque()
        self._delivered: dict[Batch, None] = {}  # whose memory is held for nothing but a look, in the order of their turn
        self._calling_in = 0  # the id of the worker that calls them
        self._waits: list[Callable[[], None]] = []  # of those who wait for what is due
        self._worker: Any = None
        self._starter = Starter(handler)
        self._has_no_worker = False  # and can have none
        self.unclaimed = [None]  # there while nobody works; of several workers one takes it
        self._closed = False
        self.wake = handler.Event()

    def add(self, batch: Batch, whole: Batch, callbacks: list[Callback], added: list[Any]) -> None:
        """Have them called. whole: what the deliveries of the batch refer to; added: gets a None in the same step."""
        with self._lock:
            if batch.error is None:
                self._delivered[batch] = None
            due: deque[Callback | None] = deque(callbacks)
            added.extend(map(self._queue.append, ((batch, whole, due),)))
        self._see_to_the_worker()
        self.wake.set()

    def _see_to_the_worker(self) -> None:
        """Start it if there is something to do for it; another one, if it was killed (a stray gevent.Timeout) or could not be started before."""
        if not self._lacks_worker:
            return
        try:
            self._starter.run(self._start_worker)
        except ConfigurationError as exc:  # the process was patched behind this client: whoever ends it calls them
            self._has_no_worker = True
            log.debug("no worker for delivery callbacks: %s", exc)
        except Exception:  # no thread can be started now; the deliveries are done all the same, and whoever waits tries again
            log.exception("the worker for delivery callbacks could not be started")

    @property
    def _lacks_worker(self) -> bool:
        return bool(self._queue and self.unclaimed) and (self._worker is None or not self._worker.is_alive())

    def _start_worker(self) -> None:
        if self._lacks_worker:
            self._worker = self._handler.spawn(_work, weakref.ref(self), _name="gkafka-callbacks")

    def wait(self, deadline: float) -> int:
        """Wait until the callbacks of what has an outcome by now were called. Returns how many were not by the deadline. From one of them: no
        wait.
        """
        if self._calling_in == self._handler.current_id():
            return 0
        with self._lock:
            telling = list(self._sender.outcomes.telling)
        # An outcome is known a moment before its callbacks are queued.
        while any(batch in self._sender.outcomes.telling for batch in telling) and self._handler.monotonic() < deadline:
            self._handler.sleep(LOOK_AGAIN_S)
        with self._lock:
            due = deque([callbacks for _, _, callbacks in list(self._queue)])  # list() is atomic: the worker takes out of it
        while _are_left(due) and (now := self._handler.monotonic()) < deadline:
            self._see_to_the_worker()
            if self._has_no_worker and self._lacks_worker:
                _claimed(self.unclaimed, self.run)
                continue
            parker = self._handler.parker()
            wake = parker.wake
            self._waits.append(wake)
            try:
                if _are_left(due):
                    parker.park(min(deadline, now + TICK_S))
            finally:
                with contextlib.suppress(ValueError):
                    self._waits.remove(wake)
            self._handler.check_fork()
        return sum(map(len, due))

    def stop(self, deadline: float) -> None:
        """Nothing but what is owed comes any more: end the worker after that. deadline: so long the callbacks may take, and a moment at least."""
        self._closed = True
        self.wake.set()
        if not self._queue and self._worker is None:
            return
        left = self.wait(max(deadline, self._handler.monotonic() + GRACE_S))
        if left:
            log.error("close: %d delivery callback(s) were not called in its time; they will be, unless the program ends before", left)
        elif self._worker is not None:
            self._worker.join(GRACE_S)

    @property
    def ended(self) -> bool:
        """Will none come any more?"""
        if not self._closed:
            return False
        with self._lock:
            return not (self._sender.owes or self._queue)

    def run(self) -> None:
        """User code, under no lock. Whatever it raises is logged: the next callback is somebody else's."""
        self._handler.check_fork()
        me = self._calling_in = self._handler.current_id()
        _calling.add(me)
        try:
            self._run_all()
        finally:
            _calling.discard(me)
            self._calling_in = 0  # it may be another's by the next time

    def _run_all(self) -> None:
        while self._queue:
            batch, whole, callbacks = self._queue[0]  # until all is done: if this is killed between two of them, the next worker goes on
            self._run(whole, callbacks)
            end_waits(self._waits)
            self._delivered.pop(batch, None)
            self._release(batch)
            self._queue.popleft()

    def _run(self, whole: Batch, callbacks: deque[Callback | None]) -> None:
        """Call them one by one: what is left when this is killed was not called, but for one that it was killed in."""
        clock = self._handler.monotonic
        while callbacks:
            try:
                records.call_back(whole, callbacks, clock, clock() + TURN_S)
            except BaseException as error:
                if self._handler.cooperative and self._handler.interrupted(error):
                    raise  # a signal came while this was on CPU; the end of the worker takes it to the main greenlet, whom it is meant for
                log.exception("a delivery callback failed")
            self._handler.checkpoint()

    def let_go(self) -> bool:
        """For a callback that needs memory: let go of the records of one delivered batch, of that whose turn comes last. False: none holds any."""
        try:
            batch, _ = self._delivered.popitem()
        except KeyError:
            return False
        self._release(batch)
        return True

    @property
    def pending(self) -> bool:
        """Are there any that were not begun?"""
        return bool(self._queue)


def _work(ref: weakref.ref[Callbacks]) -> None:
    callbacks = ref()
    unclaimed = callbacks.unclaimed if callbacks is not None else []
    del callbacks
    _claimed(unclaimed, lambda: _work_on(ref))


def _claimed(unclaimed: list[None], work: Callable[[], object]) -> None:
    try:
        unclaimed.pop()
    except IndexError:
        return  # another one works
    try:
        work()
    finally:
        unclaimed.append(None)


def _work_on(ref: weakref.ref[Callbacks]) -> None:
    while (callbacks := ref()) is not None:
        callbacks.wake.clear()  # before looking: whoever closes sets it after
        if callbacks.ended:
            return
        callbacks.run()
        if callbacks.pending or callbacks.ended:
            continue  # more came, or the producer was closed, while they ran
        wake = callbacks.wake
        del callbacks
        wake.wait(TICK_S)


def _are_left(due: deque[deque[Callback | None]]) -> bool:
    while due and not due[0]:
        due.popleft()
    return bool(due)


def end_waits(waits: list[Callable[[], None]]) -> None:
    """Each wait is ended once, whoever comes here at the same time: list.pop() is atomic."""
    while waits:
        with contextlib.suppress(IndexError):
            waits.pop()()
