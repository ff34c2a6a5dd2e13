"""A Mutex knows who holds it: who would wait for himself is told so instead."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator

import gevent
import pytest

from gkafka.exceptions import ReentrantCallError
from gkafka.handlers import GEventHandler, Handler, ThreadingHandler, hubs

LIMIT_S = 10.0


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
            gevent.sleep(0.1)
            order.append("holder")

    def wants() -> None:
        with mutex:
            order.append("other")

    def ticker() -> None:
        while len(order) < 2:
            ticks.append(time.monotonic())
            gevent.sleep(0.01)

    gevent.joinall([gevent.spawn(each) for each in (holds, wants, ticker)], timeout=LIMIT_S, raise_error=True)
    assert order == ["holder", "other"]
    assert len(ticks) > 3


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
