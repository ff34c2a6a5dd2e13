"""A signal arrives at any step of what gevent calls of ours, in the hub or as a greenlet: the main greenlet gets what its handler raises, gevent
prints nothing, and what was called is done all the same.
"""

from __future__ import annotations

import dis
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from functools import cache
from inspect import CO_GENERATOR
from types import CodeType, FrameType
from typing import Any

import gevent
import pytest

import gkafka.handlers
from gkafka.handlers import GEventHandler, hubs, sockets
from tests.kit.lacking import reason
from tests.public.aids import LIMIT_S

PACKAGE = os.path.dirname(gkafka.handlers.__file__) + os.sep
NOT_OURS = {os.path.join(PACKAGE, name) for name in ("signals.py", "threads.py")}
"""The first is where it is found out who raised; a second signal in there is another story."""
MOST = 400  # steps of one scenario
THROWS_ARE_CALLS = sys.version_info >= (3, 12)  # for a tracer; a generator that ends looks for no signal before it knows
pytestmark = pytest.mark.skipif(
    sys.version_info[:2] == (3, 12),
    reason=reason(
        (
            "test of interruptions at each step",
            "CPython 3.12 crashes where a generator of which it traces each step ends in a garbage collection",
        )
    ),
)
Scenario = Callable[[GEventHandler, Callable[[Callable[[], Any]], Any]], None]


class Alarm(Exception):
    """What a handler raises that gives the program a deadline of its own."""


class CtrlC(KeyboardInterrupt):
    """The same of Python's kind."""


@cache
def steps(code: CodeType) -> frozenset[int]:
    """Where Python looks for signals: as a function begins, or a generator goes on; after calls; where a loop begins anew."""
    found, called = {-1}, False
    for step in dis.get_instructions(code):
        if called or step.opname.startswith(("RESUME", "JUMP_BACKWARD")) or step.opname == "JUMP_ABSOLUTE":
            found.add(step.offset)
        called = step.opname.startswith("CALL")
    return frozenset(found)


class Aim:
    """Has the signal's handler called at step number `left` of those that `_counts`."""

    def __init__(self, raises: type[BaseException]) -> None:
        self.raises, self.left = raises, 0

    def handle(self, *_: object) -> None:
        raise self.raises

    def _counts(self, frame: FrameType) -> bool:
        raise NotImplementedError

    def _hit(self, frame: FrameType) -> None:
        """It is at that step."""
        raise NotImplementedError

    def _follow(self, frame: FrameType) -> Any:
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return self._opcode

    def _opcode(self, frame: FrameType, event: str, arg: Any) -> Any:
        if event == "opcode":
            self._step(frame)
        return self._opcode

    def _step(self, frame: FrameType) -> None:
        if self.left <= 0 or not self._counts(frame):
            return
        self.left -= 1
        if not self.left:
            self._hit(frame)
            sys.settrace(None)
            signal.raise_signal(signal.SIGUSR1)


class Gun(Aim):
    """At steps of gkafka's handlers that are not taken by the main greenlet."""

    def __init__(self, raises: type[BaseException]) -> None:
        super().__init__(raises)
        self.shots: list[str] = []
        self.main = gevent.getcurrent()

    def aim(self, n: int) -> None:
        self.left = n
        sys.settrace(self._call)

    def _call(self, frame: FrameType, event: str, arg: Any) -> Any:
        path = frame.f_code.co_filename
        if not path.startswith(PACKAGE) or path in NOT_OURS:
            return None
        follow = self._follow(frame)
        if not (THROWS_ARE_CALLS and frame.f_code.co_flags & CO_GENERATOR):
            self._step(frame)
        return follow

    def _counts(self, frame: FrameType) -> bool:
        return gevent.getcurrent() is not self.main and frame.f_lasti in steps(frame.f_code)

    def _hit(self, frame: FrameType) -> None:
        self.shots.append(f"{frame.f_code.co_name}:{frame.f_lineno}")


@pytest.fixture(params=[Alarm, CtrlC], ids=lambda kind: kind.__name__)
def gun(request: pytest.FixtureRequest) -> Iterator[Gun]:
    made = Gun(request.param)
    before = signal.signal(signal.SIGUSR1, made.handle)
    yield made
    sys.settrace(None)
    signal.signal(signal.SIGUSR1, before)


# -- what gevent calls -------------------------------------------------------------------------------------------------------
def a_worker_that_returns(handler: GEventHandler, through: Callable[[Callable[[], Any]], Any]) -> None:
    ran: list[str] = []
    worker = handler.spawn(lambda: ran.append("ran"), _on_failure=lambda _: ran.append("told"))
    assert through(lambda: worker.join(60))
    assert ran


def a_worker_that_fails(handler: GEventHandler, through: Callable[[Callable[[], Any]], Any]) -> None:
    told: list[BaseException] = []
    worker = handler.spawn(lambda: 1 / 0, _on_failure=told.append)
    assert through(lambda: worker.join(60))
    assert told


def a_worker_that_is_killed_before_it_begins(handler: GEventHandler, through: Callable[[Callable[[], Any]], Any]) -> None:
    told: list[BaseException] = []
    worker: Any = handler.spawn(lambda: None, _on_failure=told.append)
    worker._greenlet.kill(block=False)
    assert through(lambda: worker.join(60))
    assert told


def a_worker_that_outlives_it(handler: GEventHandler, through: Callable[[Callable[[], Any]], Any]) -> None:
    done = handler.Event()
    worker = handler.spawn_lasting(done.set, _name="lasting")
    assert through(lambda: done.wait(LIMIT_S))
    assert through(lambda: worker.join(60))


def greenlets_that_wait_for_their_turn(handler: GEventHandler, through: Callable[[Callable[[], Any]], Any]) -> None:
    admitted: list[int] = []

    def wait() -> None:
        handler.yield_now()
        admitted.append(1)

    waiting = [handler.spawn(wait, _on_failure=lambda _: admitted.append(0)) for _ in range(3)]
    assert all(through(lambda worker=worker: worker.join(LIMIT_S)) for worker in waiting)
    assert len(admitted) >= 3  # one that is hit behind its work is told of as well


def a_worker_of_another_thread(handler: GEventHandler, through: Callable[[Callable[[], Any]], Any]) -> None:
    made: list[Any] = []
    ran: list[str] = []
    thread = threading.Thread(
        target=lambda: made.append(handler.spawn(lambda: ran.append("ran"), _on_failure=lambda _: ran.append("told")))
    )
    thread.start()
    thread.join()
    assert through(lambda: made[0].join(60))
    assert ran


def a_call_of_another_thread(handler: GEventHandler, through: Callable[[Callable[[], Any]], Any]) -> None:
    called = handler.Event()
    thread = threading.Thread(target=handler.call_soon_threadsafe, args=(called.set,))
    thread.start()
    thread.join()
    assert through(lambda: called.wait(LIMIT_S))


def a_host_name(handler: GEventHandler, through: Callable[[Callable[[], Any]], Any]) -> None:
    found: list[Any] = []
    worker = handler.spawn(lambda: found.append(handler.getaddrinfo("kafka.example", 9092)), _on_failure=found.append)
    assert through(lambda: worker.join(60))
    assert found


def a_meter_of_stalls(handler: GEventHandler, through: Callable[[Callable[[], Any]], Any]) -> None:
    meter = handler.stall_meter()
    through(lambda: gevent.sleep(0.001))
    through(lambda: gevent.sleep(0.001))
    meter._this_minute = 0.0
    through(lambda: [gevent.sleep(0.001), gevent.sleep(0.001)])
    assert meter.stats()["hub_stall_ms"] > 0, "it measures no more"
    meter.stop()


@pytest.mark.parametrize(
    "scenario",
    [
        a_worker_that_returns,
        a_worker_that_fails,
        a_worker_that_is_killed_before_it_begins,
        a_worker_that_outlives_it,
        greenlets_that_wait_for_their_turn,
        a_worker_of_another_thread,
        a_call_of_another_thread,
        a_host_name,
        a_meter_of_stalls,
    ],
)
def test_at_any_step(scenario: Scenario, gun: Gun, monkeypatch: pytest.MonkeyPatch) -> None:
    printed: list[Any] = []
    handler = GEventHandler()
    monkeypatch.setattr(handler.hub, "print_exception", lambda *told: printed.append(told))
    monkeypatch.setattr(sockets, "lookup", lambda *_: [])
    monkeypatch.setattr(hubs, "SLICE_S", 0.05)  # what was hit as it woke somebody costs that one so long
    for n in range(1, MOST):
        caught: list[BaseException] = []

        def through(call: Callable[[], Any], caught: list[BaseException] = caught) -> Any:
            while True:
                try:
                    return call()
                except gun.raises as error:
                    caught.append(error)

        gun.aim(n)
        try:
            scenario(handler, through)
        except AssertionError as error:
            raise AssertionError(f"after a shot at {gun.shots[-1:]}") from error
        sys.settrace(None)
        through(lambda: gevent.sleep(0))  # it may be on its way still
        where = gun.shots[-1:]
        assert not printed, f"{where}: gevent printed {printed}"
        assert len(caught) == (0 if gun.left else 1), where
        assert not handler.workers(), where
        if gun.left:
            break
    assert len(gun.shots) > 2
    assert gun.left, "more steps than were tried"
