"""A Mutex knows who holds it: who would wait for himself is told so instead."""

from __future__ import annotations

import threading
import time

import gevent
import pytest

from gkafka.exceptions import ReentrantCallError
from gkafka.handlers import GEventHandler, Handler, ThreadingHandler

LIMIT_S = 10.0


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


def test_a_greenlet_that_waits_in_vain_while_it_holds_one_is_told() -> None:
    """Whom it waits for may need it."""
    handler = GEventHandler()
    mutex, event = handler.Mutex(), handler.Event()
    with mutex, pytest.raises(ReentrantCallError):
        event.wait(LIMIT_S)
    assert not event.wait(0.01)
