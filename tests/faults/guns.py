"""What cuts calls and workers off: a timer's signal whose handler raises, and an exception raised in another thread."""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import PurePath
from types import FrameType
from typing import Any

from tests.kit import clock

__all__ = ["CONSUMER", "MEMBER", "PRODUCER", "Aim", "Cut", "Hit", "SignalGun", "WorkerGun", "spared", "was_cut"]

AGAIN_S = 0.00005
SPARED = tuple(
    str(PurePath(*path))
    for path in (
        ("weakref.py",),
        ("_weakrefset.py",),
        ("logging", "__init__.py"),
        ("faults", "inside.py"),
        ("faults", "ledger.py"),
        ("faults", "consumed.py"),
    )
)
NOTES = str(PurePath("faults", "member.py"))
"""What a member notes of what it is told: an exception in its own lines is no shot at gkafka."""
OTHERS = "-writer"
"""How the names of threads end that write to a connection, where another one reads."""


@dataclasses.dataclass(frozen=True)
class Aim:
    """The threads of an engine that are shot at.

    workers: how the names of those begin that begin anew. at_work: the functions of which one runs
    in them while they work. readers: how the names of those begin that read its connections.
    """

    workers: tuple[str, ...]
    at_work: tuple[str, ...]
    readers: tuple[str, ...]


PRODUCER = Aim(("gkafka-producer",), ("_take_turns",), ("gkafka-produce-", "gkafka-control-"))
CONSUMER = Aim(("gkafka-fetcher-",), ("_take_turns",), ("gkafka-control-",))
MEMBER = Aim(
    ("gkafka-fetcher-", "gkafka-group", "gkafka-rebalance", "gkafka-consumer", "gkafka-balance", "gkafka-autocommit"),
    ("_take_turns", "_work", "_call", "_keep_house", "_keep", "_auto_commit"),
    ("gkafka-control-", "gkafka-group-", "gkafka-offsets-"),
)


class Cut(KeyboardInterrupt):
    """What a signal's handler raises: not an Exception."""


class Hit(BaseException):
    """What is raised in another thread."""


def was_cut(error: BaseException) -> bool:
    """Return whether a signal ended the call that raised this.

    Within threading.Condition.wait, Python itself makes a RuntimeError of it: "release unlocked lock".
    """
    return isinstance(error, Cut) or (isinstance(error, RuntimeError) and isinstance(error.__context__, Cut))


def spared(frame: FrameType | None) -> bool:
    """Return whether an exception that is raised in this frame is no shot at gkafka.

    Python only prints what is raised within a finalizer or a weak reference's callback, `logging`
    may keep a lock, and a delivery callback of this package is no part of the client.
    """
    if frame is not None and frame.f_code.co_filename.endswith(NOTES):
        return True
    while frame is not None:
        code = frame.f_code
        if code.co_name == "__del__" or code.co_filename.endswith(SPARED):
            return True
        frame = frame.f_back
    return False


class SignalGun:
    """Raises Cut, by a timer's signal, in calls that are made by `call`.

    Under gevent also in greenlets of gkafka's and in the hub: the exception goes on to the main greenlet,
    which has to wait by `wait`. pause(): seconds from one shot to the next.
    in_hub: share of the signals that hit the hub while it waits, and so nobody, that are raised there; the others come again soon.
    moments: of the shots; at: how many there were in "callers", "workers" and "hub".
    """

    def __init__(self, handler: str, chance: random.Random, pause: Callable[[], float]) -> None:
        self._chance = chance
        self._gevent = handler == "gevent"
        self._pause = pause
        self.in_hub = 0.05
        self._armed: set[int] = set()
        self._on = False
        self.moments: list[float] = []
        self.at = dict.fromkeys(("callers", "workers", "hub"), 0)

    @property
    def shots(self) -> int:
        return len(self.moments)

    def call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call the function under fire. One shot at most hits it, and nothing behind it."""
        me = self._me()
        try:
            self._armed.add(me)
            return function(*args, **kwargs)
        finally:
            self._armed.discard(me)

    def wait(self, seconds: float) -> None:
        """Let other greenlets run."""
        import gevent

        with contextlib.suppress(Cut):
            gevent.sleep(seconds)

    @contextlib.contextmanager
    def firing(self) -> Iterator[None]:
        before = signal.signal(signal.SIGALRM, self._fire)
        try:
            self._on = True
            signal.setitimer(signal.ITIMER_REAL, max(AGAIN_S, self._pause()))
            with self._quiet_hub():
                yield
        finally:
            self._on = False
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
            if self._gevent:  # what hit a worker last is on its way to the main greenlet
                for _ in range(5):
                    self.wait(0.01)

    @contextlib.contextmanager
    def _quiet_hub(self) -> Iterator[None]:
        """Have gevent not print what is raised in the hub."""
        if not self._gevent:
            yield
            return
        import gevent

        hub: Any = gevent.get_hub()
        before, hub.exception_stream = hub.exception_stream, None
        try:
            yield
        finally:
            hub.exception_stream = before

    def _me(self) -> int:
        if not self._gevent:
            return 0  # signals hit the main thread alone
        import gevent

        return id(gevent.getcurrent())

    def _fire(self, number: int, frame: FrameType | None) -> None:
        if not self._on:
            return
        where = self._where(frame)
        if where is None:
            signal.setitimer(signal.ITIMER_REAL, AGAIN_S)
            return
        self._armed.discard(self._me())
        self.at[where] += 1
        self.moments.append(clock.figure(clock.now()))
        signal.setitimer(signal.ITIMER_REAL, max(AGAIN_S, self._pause()))
        raise Cut

    def _where(self, frame: FrameType | None) -> str | None:
        if spared(frame):
            return None
        if self._me() in self._armed:
            return "callers"
        if not self._gevent:
            return None
        import gevent
        from gevent.hub import Hub

        current: Any = gevent.getcurrent()
        if str(getattr(current, "name", "")).startswith("gkafka-"):
            return "workers"
        # In the loop itself. Elsewhere in a hub's own code it would end the hub.
        in_loop = isinstance(current, Hub) and frame is not None and frame.f_code.co_name == "run"
        return "hub" if in_loop and self._chance.random() < self.in_hub else None


class WorkerGun:
    """Raises Hit in the threads of clients: mostly in workers, else in those that read connections.

    shots, at_readers: how many, and how many of those at readers.
    """

    def __init__(self, chance: random.Random, aim: Aim) -> None:
        self._chance, self._aim = chance, aim
        self._readers: list[threading.Thread] = []
        self.shots = self.at_readers = 0

    def shoot(self) -> bool:
        """Return whether a worker was hit, which begins anew."""
        threads = [thread for thread in threading.enumerate() if not thread.name.endswith(OTHERS)]
        readers = [thread for thread in threads if thread.name.startswith(self._aim.readers) and thread not in self._readers]
        if readers and self._chance.random() < 0.3:
            reader = self._chance.choice(readers)
            if self._hit(reader, ("_read",)):
                self.at_readers += 1
                self._readers.append(reader)
            return False
        workers = [thread for thread in threads if thread.name.startswith(self._aim.workers)]
        return bool(workers) and self._hit(self._chance.choice(workers), self._aim.at_work)

    def _hit(self, thread: threading.Thread, at_work: tuple[str, ...]) -> bool:
        frame = sys._current_frames().get(thread.ident or 0)
        # CPython takes a thread that is being started for the one that starts it, and then nobody hears that it has not begun.
        if spared(frame) or not any(_is_inside(frame, name) for name in at_work) or _is_inside(frame, "start"):
            return False
        if not ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident or 0), ctypes.py_object(Hit)):
            return False
        self.shots += 1
        return True

    def survivors(self, seconds: float) -> list[str]:
        """Return which of the readers that were hit have not ended within so long."""
        deadline = clock.now() + seconds
        while any(thread.is_alive() for thread in self._readers) and clock.now() < deadline:
            time.sleep(0.005)
        return [thread.name for thread in self._readers if thread.is_alive()]


def _is_inside(frame: FrameType | None, name: str) -> bool:
    """Is this called by a function of that name?"""
    while frame is not None:
        if frame.f_code.co_name == name:
            return True
        frame = frame.f_back
    return False
