"""The harness itself: what it must fail, it fails."""

from __future__ import annotations

import _socket
import mmap
import socket
import struct
from collections.abc import Callable
from typing import Any

import gevent
import pytest
from gevent.monkey import get_original

from tests.gevent.harness import (
    PATCHED,
    UNPATCHED,
    HubWatch,
    assert_free_hub,
    fair,
    greenlets,
    greenlets_and_threads,
    in_child,
    most_in_a_turn,
    results,
    spawn_all,
    timers_asked_for,
)
from tests.kit.clock import busy


# -- who makes the hub's thread sleep -------------------------------------------------------------------------------------
def sleeps() -> None:
    get_original("time", "sleep")(0.01)


def waits_for_a_lock() -> None:
    lock: Any = get_original("_thread", "allocate_lock")()
    lock.acquire()
    assert not lock.acquire(True, 0.01)


def receives() -> None:
    mine, theirs = _socket.socketpair()
    mine.setsockopt(_socket.SOL_SOCKET, _socket.SO_RCVTIMEO, struct.pack("ll", 0, 10_000))
    with pytest.raises(BlockingIOError):
        mine.recv(1)
    mine.close()
    theirs.close()


def in_the_loop() -> None:
    gevent.get_hub().loop.run_callback(sleeps)
    gevent.sleep(0.01)


def needs_a_page() -> None:
    with mmap.mmap(-1, mmap.PAGESIZE) as page:
        page[0] = 1
        sleeps()


BLOCKING: dict[str, Callable[[], None]] = {
    "sleep": sleeps,
    "lock": waits_for_a_lock,
    "recv": receives,
    "callback": in_the_loop,
    "page": needs_a_page,
}
FOUND = {"callback": [HubWatch.LOOP], "page": []}


def often(call: Callable[[], None]) -> None:
    """So that not each of them is in a span in which this process needs a page."""
    for _ in range(5):
        call()
        fair()


def found(what: str) -> list[str]:
    """Who is found when a greenlet makes such calls, beside one that waits in gevent's ways and one that computes."""
    with HubWatch() as watch:
        waiting, computing, blocking = gevent.spawn(gevent.sleep, 0.2), gevent.spawn(busy, 0.05), gevent.spawn(often, BLOCKING[what])
        blocking.name = "blocking"
        gevent.joinall([waiting, computing, blocking], raise_error=True)
    return sorted(watch.slept)


def found_each() -> dict[str, list[str]]:
    return {what: found(what) for what in BLOCKING}


@greenlets
def test_who_makes_the_hubs_thread_sleep_is_found(mode: str) -> None:
    assert in_child(mode, found_each) == {what: FOUND.get(what, ["blocking"]) for what in BLOCKING}


def blocks() -> None:
    with pytest.raises(AssertionError, match="made the hub's thread sleep"):
        assert_free_hub(lambda: gevent.spawn(often, sleeps).join())
    with pytest.raises(AssertionError, match="proves nothing"):
        assert_free_hub(int)


def test_such_a_scenario_fails() -> None:
    in_child(UNPATCHED, blocks)


# -- how much is done in a turn of the loop, and how long is waited -----------------------------------------------------------
def steps() -> list[int]:
    """A greenlet that asks for its turn at each seventh step of a hundred."""
    from gkafka.handlers import GEventHandler

    handler, done = GEventHandler(), [0]

    def run() -> None:
        for _ in range(100):
            done[0] += 1
            if not done[0] % 7:
                handler.checkpoint()

    return [most_in_a_turn(run, lambda: done[0]), done[0]]


def test_work_is_counted_by_turns_of_the_loop() -> None:
    most, done = in_child(UNPATCHED, steps)
    assert done == 100
    assert 7 <= most <= 14, "the first look finds that a turn has begun, the second that its time is used up"


def pauses() -> list[float]:
    asked: list[float] = []
    with timers_asked_for(asked.append):
        gevent.spawn(gevent.sleep, 0.25).join()
    gevent.sleep(0.01)
    return asked


def test_pauses_are_heard_of() -> None:
    assert 0.25 in in_child(UNPATCHED, pauses)


# -- processes ----------------------------------------------------------------------------------------------------------------
def where() -> list[bool]:
    from gevent import monkey

    return [bool(monkey.is_module_patched("socket")), socket.socket.__module__.startswith("gevent")]


@greenlets_and_threads
def test_a_child_is_patched_if_its_mode_says_so(mode: str) -> None:
    assert in_child(mode, where) == [mode == PATCHED] * 2


def fails() -> None:
    raise ValueError("as it must")


def fails_aside() -> None:
    gevent.spawn(fails).join()
    fair()


@pytest.mark.parametrize("scenario", [fails, fails_aside])
def test_what_fails_in_a_child_fails_the_test(scenario: Callable[[], None]) -> None:
    with pytest.raises(AssertionError, match="as it must"):
        in_child(UNPATCHED, scenario)


def test_many_greenlets_give_their_results_in_order() -> None:
    assert list(results(spawn_all(lambda n=n: n for n in range(2000)))) == list(range(2000))  # type: ignore[misc]
