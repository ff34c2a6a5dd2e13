"""What a signal handler raises, at any moment inside the primitives, leaves them as they were: real signals, thousands of them."""

from __future__ import annotations

import contextlib
import itertools
import queue
import signal
import time
from collections.abc import Callable, Iterator
from itertools import starmap
from random import Random
from types import FrameType
from typing import Any

import pytest

from gkafka.handlers import GEventHandler, Handler, hubs
from gkafka.handlers.signals import KNOWN_S, inside_handler, raised_by_handler
from tests.effort import quick_and_thorough

HUBS = hubs.__file__
shots = pytest.mark.parametrize("shots", quick_and_thorough(300, 3000, 20_000))
EARLIEST_S, LATEST_S = 0.000005, 0.00004


class Shot(BaseException):
    """What the handler raises."""


class Gun:
    """A timer's signal after some microseconds. It hits only where `reach` says that it may."""

    def __init__(self, reach: Callable[[FrameType | None], bool]) -> None:
        self.reach, self.chance, self.hits = reach, Random(7), 0
        self.loaded = False

    def fire(self, call: Callable[[], object]) -> list[Any]:
        """[what the call returns], or [] if it was hit."""
        got: list[Any] = []
        try:
            self.loaded = True
            signal.setitimer(signal.ITIMER_REAL, self.chance.uniform(EARLIEST_S, LATEST_S))
            got.extend(starmap(call, ((),)))  # what has returned is here, whatever comes next
            self.loaded = False
        except Shot:
            pass
        signal.setitimer(signal.ITIMER_REAL, 0)
        return got

    def hit(self, _: int, frame: FrameType | None) -> None:
        if self.loaded and self.reach(frame):
            self.loaded = False
            self.hits += 1
            raise Shot


@pytest.fixture
def aim() -> Iterator[Callable[..., Gun]]:
    before = signal.getsignal(signal.SIGALRM)

    def load(reach: Callable[[FrameType | None], bool]) -> Gun:
        gun = Gun(reach)
        signal.signal(signal.SIGALRM, gun.hit)
        return gun

    yield load
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def names(frame: FrameType | None) -> Iterator[str]:
    """Of the primitives' functions that are being called."""
    while frame is not None:
        if frame.f_code.co_filename == HUBS:
            yield frame.f_code.co_name
        frame = frame.f_back


def inside(*functions: str) -> Callable[[FrameType | None], bool]:
    return lambda frame: any(name in functions for name in names(frame))


@shots
def test_a_mutex_is_never_left_taken(handler: Handler, shots: int, aim: Callable[..., Gun]) -> None:
    mutex, gun, entered = handler.Mutex(), aim(lambda _: True), 0

    def short() -> None:
        nonlocal entered
        for _ in range(50):
            with mutex:
                entered += 1

    while gun.hits < shots:
        gun.fire(short)
        assert mutex.acquire(False), f"taken after {gun.hits} hits"
        mutex.release()
    assert entered


@shots
def test_a_semaphore_loses_no_permit_in_acquire(shots: int, aim: Callable[..., Gun]) -> None:
    permits, gun = GEventHandler.Semaphore(2), aim(inside("acquire"))
    while gun.hits < shots:
        if gun.fire(permits.acquire):
            permits.release()
        assert [permits.acquire(False) for _ in range(3)] == [True, True, False], f"after {gun.hits} hits"
        permits.release(2)


@shots
def test_a_lock_that_its_holder_may_take_again_is_not_left_taken(shots: int, aim: Callable[..., Gun]) -> None:
    lock: Any
    lock, gun = GEventHandler.RLock(), aim(inside("acquire"))
    while gun.hits < shots:
        if gun.fire(lock.acquire):
            lock.release()
        assert gun.fire(lambda: None) == [None]
        assert not lock._lock.locked(), f"after {gun.hits} hits"


@shots
def test_a_queue_gives_each_item_once(shots: int, aim: Callable[..., Gun]) -> None:
    """What put() was doing is done or is not; what get() was doing is not."""
    items, gun, numbers, got = GEventHandler.Queue(), aim(inside("put", "get")), itertools.count(), []
    while gun.hits < shots:
        gun.fire(lambda: items.put(next(numbers)))
        got += gun.fire(lambda: items.get(block=False)) if items.qsize() else []
    signal.setitimer(signal.ITIMER_REAL, 0)
    while items.qsize():
        got.append(items.get(block=False))
    assert len(set(got)) == len(got), "an item came twice"
    assert got == sorted(got)
    with pytest.raises(queue.Empty):
        items.get(block=False)
    with contextlib.suppress(ValueError):
        while True:
            items.task_done()
    items.join()
    items.put("last")
    assert items.get(timeout=60) == "last"


def test_an_error_that_is_its_own_cause_is_looked_at_once() -> None:
    error = ValueError("x")
    error.__cause__ = error
    assert raised_by_handler(error) is None


def test_what_a_handler_raised_is_found_among_the_causes() -> None:
    before = signal.signal(signal.SIGUSR1, _raise)
    try:
        with pytest.raises(Shot) as raised:
            signal.raise_signal(signal.SIGUSR1)
        error = ValueError("made of it")
        error.__cause__ = raised.value
        assert raised_by_handler(error) is raised.value
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_what_a_handlers_decorator_wraps_elsewhere_is_no_handler() -> None:
    """All that one decorator makes run the same code: a callback's bug was taken for a signal, and ended the program."""

    def decorated(fn: Callable[..., object]) -> Callable[..., object]:
        def wrapper(*args: object) -> object:
            return fn(*args)

        return wrapper

    seen: list[bool] = []

    @decorated
    def callback(*_: object) -> None:
        seen.append(inside_handler())
        raise ValueError("a bug")

    before = signal.signal(signal.SIGUSR1, decorated(lambda *_: seen.append(inside_handler())))
    try:
        time.sleep(KNOWN_S)
        with pytest.raises(ValueError, match="a bug") as raised:
            callback()
        assert raised_by_handler(raised.value) is None
        signal.raise_signal(signal.SIGUSR1)
        assert seen == [False, True]
        signal.signal(signal.SIGUSR1, decorated(_raise))
        with pytest.raises(Shot) as shot:
            signal.raise_signal(signal.SIGUSR1)
        assert raised_by_handler(shot.value) is shot.value
    finally:
        signal.signal(signal.SIGUSR1, before)


def _raise(*_: object) -> None:
    raise Shot


def test_a_waiter_whose_giver_was_hit_goes_on_within_a_second() -> None:
    """The permit is there, or the flag is up, and whoever gave it did not get to waking anybody."""
    handler = GEventHandler()
    permits, event = handler.Semaphore(0), handler.Event()
    seen: list[str] = []
    waiting = [handler.spawn(lambda: seen.append("permit") if permits.acquire(timeout=200) else None)]
    waiting.append(handler.spawn(lambda: seen.append("event") if event.wait(200) else None))
    handler.sleep(0.01)
    permits.permits.append(None)  # type: ignore[attr-defined]
    event._flag = True  # type: ignore[attr-defined]
    for worker in waiting:
        assert worker.join(60)
    assert sorted(seen) == ["event", "permit"]
