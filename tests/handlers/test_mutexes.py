"""A Mutex knows who holds it: who would wait for himself is told so instead."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import gevent
import pytest

from gkafka.exceptions import ReentrantCallError
from gkafka.handlers import GEventHandler, Handler, ThreadingHandler, hubs, mutexes
from tests.kit.clock import PATIENCE_S, now

LIMIT_S = PATIENCE_S


class Watched(set[object]):
    """Tells when somebody goes through it."""

    def __init__(self, looked: list[None]) -> None:
        self.looked = looked

    def __iter__(self) -> Iterator[object]:
        self.looked.append(None)
        return super().__iter__()


@pytest.fixture(params=[ThreadingHandler, GEventHandler], ids=lambda kind: kind.name)
def handler(request: pytest.FixtureRequest) -> Handler:
    made: Handler = request.param()
    return made


def test_its_holder_cannot_take_it_again(handler: Handler) -> None:
    mutex = handler.Mutex()
    with mutex:
        with pytest.raises(ReentrantCallError, match="signal handler"), mutex:
            pass
        with pytest.raises(ReentrantCallError):
            mutex.acquire()
        assert not mutex.acquire(False)
    assert mutex.acquire(False), "none of that gave it back, and the holder did"
    mutex.release()


def test_another_thread_waits_for_it(handler: Handler) -> None:
    mutex, order = handler.Mutex(), []

    def other() -> None:
        with mutex:
            order.append("other")

    with mutex:
        thread = threading.Thread(target=other)
        thread.start()
        time.sleep(0.05)
        order.append("first")
    thread.join(LIMIT_S)
    assert order == ["first", "other"]


def test_other_greenlets_wait_for_one_that_was_made_to_switch_and_the_hub_goes_on() -> None:
    """What only a signal handler does that waits."""
    mutex, order, ticks = GEventHandler().Mutex(), [], []

    def holds() -> None:
        with mutex:
            while len(ticks) < 5:
                gevent.sleep(0.001)
            order.append("holder")

    def wants() -> None:
        with mutex:
            order.append("other")

    def ticker() -> None:
        while len(order) < 2:
            ticks.append(None)
            gevent.sleep(0.001)

    gevent.joinall([gevent.spawn(each) for each in (holds, wants, ticker)], timeout=LIMIT_S, raise_error=True)
    assert order == ["holder", "other"]


def test_who_had_it_last_waits_for_one_that_a_signal_handler_made_switch_just_as_it_took_it() -> None:
    """It was taken for the holder, as if it had called itself: a call in no handler's way was refused."""
    hits: list[None] = []

    class Hit(type(GEventHandler().Mutex())):  # type: ignore[misc]
        __slots__ = ()

        def take(self, seconds: float = 0.0) -> bool:
            taken = super().take(seconds)
            if gevent.getcurrent() is worker and not hits:
                hits.append(None)
                signal.raise_signal(signal.SIGUSR1)
            return bool(taken)

    def wants() -> None:
        with mutex:
            order.append("worker")

    mutex, order = Hit(), []
    before = signal.signal(signal.SIGUSR1, lambda *_: gevent.sleep(0.05))
    try:
        worker = None
        with mutex:
            pass
        worker = gevent.spawn(wants)
        while not hits:
            gevent.sleep(0)
        with mutex:
            order.append("last")
        worker.get(timeout=LIMIT_S)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert order == ["worker", "last"]


def test_a_signal_handler_that_waits_in_vain_on_top_of_who_holds_one_is_told() -> None:
    """Whom it waits for may need it."""
    handler = GEventHandler()
    mutex, event = handler.Mutex(), handler.Event()
    before = signal.signal(signal.SIGUSR1, lambda *_: event.wait(LIMIT_S))
    try:
        with mutex, pytest.raises(ReentrantCallError):
            signal.raise_signal(signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert not event.wait(0.01)


def test_a_signal_handler_does_not_wait_for_ever_for_a_thread_that_wants_what_is_held_below_it(handler: Handler) -> None:
    below, other = handler.Mutex(), handler.Mutex()
    has_other = threading.Event()
    caught: list[BaseException] = []

    def thread() -> None:
        with other:
            has_other.set()
            with below:
                pass

    def on_signal(*_: object) -> None:
        try:
            with other:
                pass
        except ReentrantCallError as error:
            caught.append(error)

    before = signal.signal(signal.SIGUSR1, on_signal)
    worker = threading.Thread(target=thread)
    try:
        with below:
            worker.start()
            assert has_other.wait(LIMIT_S)
            signal.raise_signal(signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGUSR1, before)
    worker.join(LIMIT_S)
    assert caught
    assert not worker.is_alive()


def test_waiting_costs_no_more_for_the_mutexes_that_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every sleep of a greenlet ends in vain: only one inside a signal handler is worth a look at them."""
    looked: list[None] = []
    monkeypatch.setattr(hubs, "_mutexes", Watched(looked))
    GEventHandler().sleep(0.001)
    assert not looked


class Plain:
    """What a lock's user gives it."""

    __slots__ = ()

    def _wait(self) -> bool:
        return False

    def _refuse(self) -> None:
        raise ReentrantCallError("mine")


@pytest.fixture(params=["python", "compiled"])
def lock(request: pytest.FixtureRequest) -> Any:
    """Of either implementation: both must do the same."""
    if request.param == "python":
        kind = mutexes.PythonLock
    else:
        kind = pytest.importorskip("gkafka.handlers._locks", reason="gkafka is not compiled here").OwnedLock
    return type("Lock", (Plain, kind), {})()


@contextlib.contextmanager
def held_elsewhere(lock: Any) -> Iterator[Callable[[], None]]:
    """Another thread has it, until the function is called that is given."""
    held, leave = threading.Event(), threading.Event()

    def holder() -> None:
        with lock:
            held.set()
            leave.wait(LIMIT_S)

    thread = threading.Thread(target=holder)
    thread.start()
    assert held.wait(LIMIT_S)
    try:
        yield leave.set
    finally:
        leave.set()
        thread.join(LIMIT_S)
    assert not thread.is_alive()


def test_an_owned_lock_is_taken_once_and_given_back_by_its_holder(lock: Any) -> None:
    assert not lock.is_mine()
    with lock as taken:
        assert taken is True
        assert lock.is_mine()
        with pytest.raises(ReentrantCallError, match="mine"), lock:
            pass
        assert lock.is_mine()
    assert not lock.is_mine()
    with pytest.raises(RuntimeError):
        lock.release()
    assert lock.take()
    lock.release()


def test_an_owned_lock_is_given_back_when_its_block_raises(lock: Any) -> None:
    with pytest.raises(KeyError), lock:
        raise KeyError
    assert not lock.is_mine()
    assert lock.take()


def test_an_owned_lock_of_another_thread_is_waited_for_as_long_as_said(lock: Any) -> None:
    with held_elsewhere(lock) as let_go:
        assert not lock.is_mine()
        with pytest.raises(RuntimeError):
            lock.release()  # it is the other's
        assert not lock.take()
        began = now()
        assert not lock.take(0.05)
        assert 0.04 <= now() - began < LIMIT_S
        with lock as taken:
            assert taken is False, "_wait() says what `with` gets"
            assert not lock.is_mine()
            let_go()
            assert lock.take(LIMIT_S)
        assert not lock.is_mine()


def test_a_signal_ends_the_wait_for_an_owned_lock_if_its_handler_raises_and_else_does_not(lock: Any) -> None:
    calls: list[None] = []

    def on_signal(*_: object) -> None:
        calls.append(None)
        if len(calls) == 2:
            signal.setitimer(signal.ITIMER_REAL, 0)
            raise InterruptedError

    before = signal.signal(signal.SIGALRM, on_signal)
    try:
        with held_elsewhere(lock) as let_go:
            signal.setitimer(signal.ITIMER_REAL, 0.1, 0.1)
            with pytest.raises(InterruptedError):
                lock.take(LIMIT_S)
            assert not lock.is_mine()
            assert len(calls) == 2, "the first, whose handler raised nothing, did not end the wait"
            let_go()
            assert lock.take(LIMIT_S)
            lock.release()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_an_owned_lock_that_was_taken_in_wait_is_given_back_by_who_is_interrupted_there(lock: Any) -> None:
    def waits(self: Any) -> bool:
        let_go()
        assert self.take(LIMIT_S)
        raise InterruptedError

    shared = type("Waiting", (type(lock),), {"_wait": waits})()
    with held_elsewhere(shared) as let_go:
        with pytest.raises(InterruptedError), shared:
            pass
        assert not shared.is_mine()
        assert shared.take()
        shared.release()


def test_an_owned_lock_may_be_dropped_while_it_is_taken_and_referred_to_weakly(lock: Any) -> None:
    kind, ref = type(lock), weakref.ref(lock)
    made = kind()
    assert made.take()
    del made
    assert ref() is lock


def test_one_thread_at_a_time_has_an_owned_lock(lock: Any) -> None:
    kind = type("Waiting", (type(lock),), {"_wait": lambda self: self.take(LIMIT_S)})
    shared, counts = kind(), [0]

    def adds() -> None:
        for _ in range(3000):
            with shared as taken:
                assert taken
                seen = counts[0]
                if not seen % 64:
                    time.sleep(0)
                counts[0] = seen + 1

    threads = [threading.Thread(target=adds) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT_S)
    assert counts == [12_000]
