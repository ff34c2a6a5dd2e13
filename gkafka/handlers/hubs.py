"""Waiting in gevent: how a greenlet sleeps and is woken, and how gkafka's greenlets share a hub with everybody else's.

All of it is built on a hub's callbacks and timers. gevent's own Event, Semaphore and Queue are not used: a wait of theirs without
a timer can end in LoopExit, their locks starve waiters, and a put() or a wait from another OS thread does not work.

Who wakes whom may be in different threads: each waiter knows the hub it sleeps in, and a thread without a hub sleeps natively.
The short steps that must not be torn are single operations of list and deque, atomic under the GIL, which gevent requires.
"""

from __future__ import annotations

import os
import queue
from collections import deque
from collections.abc import Callable, Generator
from itertools import starmap
from time import monotonic, perf_counter
from types import TracebackType
from typing import Any, Final
from weakref import WeakKeyDictionary, WeakSet

from gevent import getcurrent
from gevent._hub_local import get_hub_if_exists
from gevent.hub import Waiter
from gevent.monkey import get_original

from gkafka.exceptions import ForkedClientError, ReentrantCallError
from gkafka.handlers.mutexes import Mutex
from gkafka.handlers.primitives import SLICE_S, forget
from gkafka.handlers.signals import inside_handler, raised_by_handler

__all__ = [
    "IN_THE_LOOP",
    "GreenletEvent",
    "GreenletLock",
    "GreenletMutex",
    "GreenletParker",
    "GreenletQueue",
    "GreenletRLock",
    "GreenletSemaphore",
    "Turnstile",
    "check_same_process",
    "goes_to_main",
    "interruption",
    "shielded",
]

HELD_S: Final = 60.0  # longest wait for a Mutex whose holder was switched away from
BUDGET_S: Final = 0.004  # gkafka's greenlets may keep a hub from its timers and sockets this long, all of them together
_ONCE: Final = ((),)  # starmap(f, _ONCE) calls f() once, and list.extend() keeps what it gave: all in one call of C
_allocate_lock: Callable[[], Any] = get_original("_thread", "allocate_lock")  # native, in a patched process too


IN_THE_LOOP: Final = (
    "the client was called by the hub's own loop, which turns no more while anybody waits: by a signal handler, or a callback of the loop. Set a flag or an"
    " Event there; gevent.signal_handler() runs a handler in a greenlet of its own, which may call the client"
)


def check_same_process(pid: int) -> None:
    """For a greenlet that has just woken: greenlets survive a fork, and their copies must not go on."""
    now = os.getpid()
    if now != pid:
        raise ForkedClientError(f"created in pid {pid}, woke in pid {now}: create the client after the fork")


def interruption(error: BaseException) -> BaseException | None:
    """What a signal handler raised, if that is this error or what it was made of."""
    # Nothing else raises these two in a worker: Python's own handler of SIGINT is written in C and leaves no frame.
    return error if isinstance(error, (KeyboardInterrupt, SystemExit)) else raised_by_handler(error)


def goes_to_main(hub: Any, error: BaseException) -> bool:
    """If a signal handler raised it, which arrived while a greenlet or the loop ran code of ours: it is meant for the main greenlet, and gets there.

    Raised from there it would get there, too, but only after gevent has printed a traceback.
    """
    raised = interruption(error)
    if raised is not None:
        hub.loop.run_callback(hub.handle_system_error, type(raised), raised, raised.__traceback__)
    return raised is not None


def shielded(function: Callable[[], object], hit: Callable[[BaseException], object] | None = None) -> Callable[[Any], object]:
    """What gevent may call, with any one value, in place of function(), in a hub or as a greenlet: what a signal handler raises there goes to the main
    greenlet.

    Then hit(error) is called, or the function again, which must bear that.
    """
    # A function that gevent calls can be hit as it begins, where no `try` of its own catches anything. A generator goes on where it stands.
    entry = _shield(function, hit)
    next(entry)
    return entry.send


def _shield(function: Callable[[], object], hit: Callable[[BaseException], object] | None) -> Generator[None, Any, None]:
    while True:
        try:
            while True:  # hit behind the call, too
                yield
                function()
        except GeneratorExit:
            return
        except BaseException as error:
            if not goes_to_main(get_hub_if_exists(), error):
                raise
            if hit is None:
                function()
            else:
                hit(error)


# -- one wait ----------------------------------------------------------------------------------------------------------
class GreenletParker:
    """One waiter: a greenlet in its hub, or a thread that has no hub."""

    __slots__ = ("_hub", "_lock", "_waiter", "_woken")

    def __init__(self) -> None:
        hub = self._hub = get_hub_if_exists()
        self._woken = False
        if hub is None:
            self._lock = _allocate_lock()
            self._lock.acquire()
        else:
            self._waiter = Waiter(hub)

    def park(self, deadline: float | None) -> bool:
        """See Parker. Raises ForkedClientError if the process forked meanwhile and this is the child."""
        if self._hub is None:
            return bool(self._lock.acquire(True, -1 if deadline is None else max(0.0, deadline - monotonic())))
        if getcurrent() is self._hub:
            raise ReentrantCallError(IN_THE_LOOP)
        pid = os.getpid()
        while not self._woken:
            left = SLICE_S if deadline is None else deadline - monotonic()
            if left <= 0:
                return False
            # The timer is what keeps the hub alive: without one, a wait that nobody can end any more is a LoopExit for the user.
            with self._hub.loop.timer(min(left, SLICE_S)) as timer:
                timer.start(self._waiter.switch, None)
                self._waiter.get()
            check_same_process(pid)
            if not self._woken:
                GreenletMutex.check_none_held()
        return True

    def wake(self, _: object = None) -> None:
        self._woken = True
        hub = self._hub
        if hub is None:
            self._lock.release()
        elif hub is get_hub_if_exists():
            hub.loop.run_callback(self._waiter.switch, None)
        elif hub.loop is not None:  # else that thread has ended and its hub is destroyed
            hub.loop.run_callback_threadsafe(self._waiter.switch, None)


def _slice(deadline: float | None) -> float:
    """The end of one sleep of a wait: after it the waiter looks whether it was woken by somebody who did not get to saying so."""
    end = monotonic() + SLICE_S
    return end if deadline is None else min(deadline, end)


class GreenletEvent:
    """threading.Event for greenlets; set() and wait() from any thread."""

    __slots__ = ("__weakref__", "_flag", "_links")

    def __init__(self) -> None:
        self._flag = False
        self._links: list[Callable[[Any], object]] = []

    def set(self) -> None:
        self._flag = True
        # Only those who wait now: who comes while they are woken may wait for the next set().
        for _ in range(len(self._links)):
            try:
                wake = self._links.pop(0)
            except IndexError:
                return
            wake(None)

    def clear(self) -> None:
        self._flag = False

    def is_set(self) -> bool:
        return self._flag

    def wait(self, timeout: float | None = None) -> bool:
        if self._flag:
            return True
        deadline = None if timeout is None else monotonic() + timeout
        parker = GreenletParker()
        wake = parker.wake
        try:
            self._links.append(wake)
            while True:
                if self._flag:  # set by another thread since the look, or by somebody whom a signal ended before anybody was woken
                    return True
                if parker.park(_slice(deadline)) or wake not in self._links:
                    return True
                if deadline is not None and monotonic() >= deadline:
                    return self._flag
        finally:
            forget(self._links, wake)


class GreenletSemaphore:
    """A fair semaphore: a permit that is given back goes straight to the worker that has waited longest.

    gevent's own lets whoever comes at the right moment overtake: a loop of `with lock: <I/O>` keeps all others out for ever.

    What a signal handler raises inside acquire() costs no permit: each step that must not be torn leaves a mark, in one call of C. Before the first step of
    release() there is nothing that could help, here as in threading.Semaphore; so gkafka's own state is kept by the handler's Mutex.
    """

    __slots__ = ("__weakref__", "_waiting", "permits")

    def __init__(self, value: int = 1) -> None:
        if value < 0:
            raise ValueError("a semaphore's initial value must be >= 0")
        self.permits: deque[None] = deque([None] * value)
        self._waiting: list[Callable[[Any], object]] = []

    def acquire(self, blocking: bool = True, timeout: float | None = None) -> bool:
        """Take a permit. False if there is none and blocking is false, or none comes within `timeout` seconds (None, -1: no limit)."""
        taken: list[None] = []
        try:
            try:
                taken.extend(starmap(self.permits.pop, _ONCE))  # the permit and the mark
            except IndexError:
                return self._wait(timeout) if blocking else False
            return True
        except BaseException:
            if taken:
                self._give()
            raise

    def release(self, n: int = 1) -> None:
        for _ in range(n):
            self._give()

    def locked(self) -> bool:
        return not self.permits

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.release()

    def _give(self) -> None:
        self.permits.append(None)
        self.settle()

    def settle(self) -> None:
        """Permits to waiters, while there are both. Other threads may take either meanwhile, and each step here is atomic."""
        while self._waiting and self.permits:
            taken: list[None] = []
            first: list[Callable[[Any], object]] = []
            try:
                taken.extend(starmap(self.permits.pop, _ONCE))
                first.extend(map(self._waiting.pop, (0,)))
            except IndexError:
                pass  # another thread was faster
            finally:
                if first:
                    first[0](None)
                elif taken:
                    self.permits.append(None)

    def _wait(self, timeout: float | None) -> bool:
        deadline = None if timeout is None or timeout == -1 else monotonic() + timeout
        parker = GreenletParker()
        wake = parker.wake
        queued: list[None] = []
        left: list[None] = []
        try:
            queued.extend(map(self._waiting.append, (wake,)))
            while True:
                self.settle()  # a permit may have been given back since we looked, or its giver ended by a signal before it woke anybody
                if parker.park(_slice(deadline)) or wake not in self._waiting:
                    return True
                if deadline is not None and monotonic() >= deadline:
                    try:
                        left.extend(map(self._waiting.remove, (wake,)))
                    except ValueError:
                        return True  # not in the list any more: the permit is ours, also at the last moment
                    return False
        except BaseException:
            if queued and not left and not forget(self._waiting, wake):
                self._give()  # killed with the permit already in its hands
            raise


class GreenletLock(GreenletSemaphore):
    """threading.Lock for greenlets, fair."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(1)

    def release(self, n: int = 1) -> None:
        if self.permits:
            raise RuntimeError("release unlocked lock")
        self._give()


class GreenletRLock:
    """A GreenletLock that its holder may take again."""

    __slots__ = ("__weakref__", "_count", "_lock", "_owner")

    def __init__(self) -> None:
        self._lock = GreenletLock()
        self._owner: Any = None
        self._count = 0

    def acquire(self, blocking: bool = True, timeout: float | None = None) -> bool:
        me = getcurrent()
        if self._owner is me:
            self._count += 1
            return True
        taken: list[bool] = []
        try:
            taken.extend(starmap(self._lock.acquire, ((blocking, timeout),)))
            if taken[0]:
                self._owner, self._count = me, 1
            return taken[0]
        except BaseException:
            if taken and taken[0]:
                self._owner, self._count = None, 0
                self._lock.release()
            raise

    def release(self) -> None:
        if self._owner is not getcurrent():
            raise RuntimeError("cannot release un-acquired lock")
        self._count -= 1
        if not self._count:
            self._owner = None
            self._lock.release()

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.release()


class GreenletQueue:
    """queue.Queue for greenlets, method by method; any thread may put and get. A put() or get() that a signal's exception ends has been done or has not."""

    def __init__(self, maxsize: int = 0) -> None:
        self.maxsize = maxsize
        self._items: deque[Any] = deque()
        self._filled = GreenletSemaphore(0)
        self._room = GreenletSemaphore(maxsize) if maxsize > 0 else None
        self._counting = GreenletMutex()  # held for two statements: nothing in between can switch
        self._unfinished: deque[None] = deque()
        self._all_done = GreenletEvent()
        self._all_done.set()

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        _check_timeout(block, timeout)
        entered: list[bool] = []
        done: list[None] = []
        try:
            if self._room is not None:
                entered.extend(starmap(self._room.acquire, ((block, timeout),)))
                if not entered[0]:
                    raise queue.Full
            with self._counting:
                self._all_done.clear()
                done.extend(map(deque.append, (self._unfinished, self._items, self._filled.permits), (None, item, None)))
            self._filled.settle()
        except BaseException:
            if self._room is not None and entered and entered[0] and not done:
                self._room.release()
            raise

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        _check_timeout(block, timeout)
        entered: list[bool] = []  # as with what is taken: filled in one step with the call, which a plain call and its `if` are not
        taken: list[Any] = []
        try:
            entered.extend(starmap(self._filled.acquire, ((block, timeout),)))
            if not entered[0]:
                raise queue.Empty
            taken.extend(starmap(self._items.popleft, _ONCE))
            if self._room is not None:
                self._room.release()
            return taken[0]
        except BaseException:
            self._items.extendleft(taken)
            if entered and entered[0]:
                self._filled.release()
            raise

    def put_nowait(self, item: Any) -> None:
        self.put(item, block=False)

    def get_nowait(self) -> Any:
        return self.get(block=False)

    def qsize(self) -> int:
        return len(self._items)

    def empty(self) -> bool:
        return not self._items

    def full(self) -> bool:
        return 0 < self.maxsize <= len(self._items)

    def task_done(self) -> None:
        with self._counting:
            try:
                self._unfinished.pop()
            except IndexError:
                raise ValueError("task_done() called too many times") from None
            if not self._unfinished:
                self._all_done.set()

    def join(self) -> None:
        while self._unfinished:
            self._all_done.wait(SLICE_S)


def _check_timeout(block: bool, timeout: float | None) -> None:
    if block and timeout is not None and timeout < 0:
        raise ValueError("'timeout' must be a non-negative number")


# -- sharing a hub -----------------------------------------------------------------------------------------------------
class Turnstile:
    """Where gkafka's greenlets wait for their turn when they have kept a hub busy for BUDGET_S; one for each hub.

    gevent.sleep(0) lets no I/O in for up to 50 turns. And a fair yield (a timer of 0 s) by each of N busy greenlets lets I/O in only
    after N quanta, since all N timers are due in the same turn of the loop. So they queue here, first come first served, and
    each turn of the loop admits greenlets until the budget of that turn is used up.
    """

    __slots__ = ("_iteration", "_loop", "_passed_over", "_queue", "_started", "_timer", "_turns")

    def __init__(self, loop: Any) -> None:
        self._loop = loop
        self._turns = _turns_of(loop)
        self._queue: deque[Any] = deque()
        self._timer = loop.timer(0, priority=loop.MINPRI)  # behind all else that the loop found due in a turn
        self._iteration = -1  # the turn of the loop that the budget is counted in,
        self._started = 0.0  # and since when
        self._passed_over = False  # nobody was admitted in the last turn: those whom their sockets woke had used it up

    @classmethod
    def of(cls, hub: Any) -> Turnstile:
        found = _turnstiles.get(hub)
        if found is None or found._loop is not hub.loop:
            found = _turnstiles[hub] = cls(hub.loop)
        return found

    def checkpoint(self, hub: Any) -> None:
        iteration = self._turns.iteration
        if iteration != self._iteration:  # the loop has polled since we last looked
            self._iteration, self._started = iteration, perf_counter()
        elif perf_counter() - self._started > BUDGET_S:
            self.wait(hub)

    def wait(self, hub: Any) -> None:
        """Let the loop poll its sockets and timers, then go on when it is this greenlet's turn."""
        if getcurrent() is hub or get_hub_if_exists() is not hub:
            return  # a callback of the loop must not wait; another thread is none of this hub's business
        pid = os.getpid()
        waiter = Waiter(hub)
        try:
            self._queue.append(waiter)
            admitted = False
            while not admitted:
                self._arm()
                with hub.loop.timer(SLICE_S) as timer:
                    timer.start(waiter.switch, False)
                    # Not admitted, and not in the queue any more: a signal ended who was about to do it.
                    admitted = waiter.get() or waiter not in self._queue
        except BaseException:
            if waiter in self._queue:
                self._queue.remove(waiter)
            raise
        check_same_process(pid)

    def _is_used_up(self) -> bool:
        return bool(self._turns.iteration == self._iteration) and perf_counter() - self._started > BUDGET_S

    def _arm(self) -> None:
        if not self._timer.active:
            # The loop's idea of the time is as old as its last poll: a timer from then would be due before the next one.
            self._loop.update_now()
            self._timer.start(shielded(self._admit), None)

    def _admit(self) -> None:
        # In the hub, after a poll. Each switch comes back when that greenlet waits again, here or anywhere.
        try:
            self._timer.stop()
            if self._is_used_up() and not self._passed_over:
                self._passed_over = True
                return
            if self._passed_over or self._turns.iteration != self._iteration:
                self._iteration, self._started, self._passed_over = self._turns.iteration, perf_counter(), False
            # Only those who wait now: one that comes back is owed a poll before it goes on.
            for _ in range(len(self._queue)):
                if self._queue:
                    self._queue.popleft().switch(True)
                if perf_counter() - self._started > BUDGET_S:
                    break
        finally:
            if self._queue:
                self._arm()


class CountedTurns:
    """The turns of a loop that does not count them itself, those between two looks as one: libuv's."""

    __slots__ = ("_after", "_iteration", "_polled")

    def __init__(self, loop: Any) -> None:
        self._iteration = 0
        self._polled: deque[None] = deque(maxlen=1)
        self._after = loop.check(ref=False)  # called after each poll; the loop may end without it
        self._after.start(self._polled.append, None)  # nothing that a signal could hit

    @property
    def iteration(self) -> int:
        if self._polled:
            self._polled.clear()
            self._iteration += 1
        return self._iteration


def _turns_of(loop: Any) -> Any:
    """What has the number of the loop's turn as its `iteration`."""
    return CountedTurns(loop) if loop.iteration < 0 else loop


class GreenletMutex(Mutex):
    """A Mutex for greenlets, of which none switches while it holds one.

    Only a signal handler of the user's that waits makes one do that: then the others wait for it here, with the hub going on. If what it waits for
    in the client does not come in a moment, which may be because of that, it gets the error as well.
    """

    __slots__ = ("_holder",)

    def __init__(self) -> None:
        self._holder: Any = None
        _mutexes.add(self)

    @staticmethod
    def check_none_held() -> None:
        """For a greenlet that has waited for a moment in vain. Raises ReentrantCallError if it holds one, which only a signal handler's can."""
        if not inside_handler():
            return
        me = getcurrent()
        try:
            held = [mutex for mutex in _mutexes if mutex._holder is me and mutex.is_mine()]
        except RuntimeError:  # another thread makes one: at the next look
            return
        if held:
            held[0]._refuse()

    def __enter__(self) -> bool:
        if self.is_mine():
            self._wait_for_holder()
        me = getcurrent()
        try:
            # First: a signal handler that makes this greenlet switch just behind taking it must not leave who had it last as its holder.
            before, self._holder = self._holder, me
            taken = self.take()
            if not taken:
                self._holder = before  # of another thread
                taken = self._wait()
            self._holder = me
            return taken
        except BaseException:
            if self.is_mine():
                self.release()
            raise

    def _wait_for_holder(self) -> None:
        """It is held in this thread: below this very call, or by a greenlet that a signal handler made switch."""
        hub, until = get_hub_if_exists(), monotonic() + HELD_S
        while self.is_mine():
            if self._holder is getcurrent() or hub is None or getcurrent() is hub or inside_handler() or monotonic() > until:
                self._refuse()
            Turnstile.of(hub).wait(hub)


_mutexes: WeakSet[GreenletMutex] = WeakSet()
_turnstiles: WeakKeyDictionary[Any, Turnstile] = WeakKeyDictionary()
