"""The harness itself: what it must fail, it fails."""

from __future__ import annotations

import time

import gevent
import pytest

from tests.gevent.harness import PATCHED, UNPATCHED, assert_no_stall, fewest_per_s, greenlets_and_threads, in_child, results, spawn_all
from tests.handlers.hub import Ticker


def burns() -> None:
    gevent.sleep(0.01)
    end = time.thread_time() + 0.5  # as much as no machine makes of a limit of 20 ms
    while time.thread_time() < end:
        pass
    gevent.sleep(0.01)


def blocks() -> None:
    gevent.sleep(0.01)
    time.sleep(0.06)
    gevent.sleep(0.01)


@pytest.mark.parametrize("wrong", [burns, blocks])
def test_a_stall_fails_whether_it_takes_cpu_or_not(wrong: object) -> None:
    with pytest.raises(AssertionError, match="the hub"):
        assert_no_stall(wrong, 20)  # type: ignore[arg-type]


def test_a_wait_is_no_stall_and_too_few_turns_are_one() -> None:
    runs = assert_no_stall(lambda: gevent.sleep(0.2), 20)
    assert 5 < runs[0].ticks <= 201
    with pytest.raises(AssertionError, match="stood still"):
        assert_no_stall(lambda: gevent.sleep(0.2), 20, ticks_per_s=2000)


def test_the_worst_tenth_of_a_second_counts() -> None:
    assert fewest_per_s([0.01] * 30) == pytest.approx(100, abs=10)
    assert fewest_per_s([*[0.01] * 10, 0.1, *[0.01] * 10]) == pytest.approx(10, abs=10)
    assert fewest_per_s([0.01] * 5) == pytest.approx(100)


def where() -> list[bool]:
    import socket

    from gevent import monkey

    return [bool(monkey.is_module_patched("socket")), socket.socket.__module__.startswith("gevent")]


@greenlets_and_threads
def test_a_child_is_patched_if_its_mode_says_so(mode: str) -> None:
    assert in_child(mode, where) == [mode == PATCHED] * 2


def fails() -> None:
    raise ValueError("as it must")


def fails_aside() -> None:
    with Ticker():
        gevent.spawn(fails).join()


@pytest.mark.parametrize("scenario", [fails, fails_aside])
def test_what_fails_in_a_child_fails_the_test(scenario: object) -> None:
    with pytest.raises(AssertionError, match="as it must"):
        in_child(UNPATCHED, scenario)  # type: ignore[arg-type]


def test_many_greenlets_are_spawned_without_a_stall_and_give_their_results() -> None:
    got: list[int] = []

    def run() -> None:
        got[:] = results(spawn_all(lambda n=n: n for n in range(2000)))  # type: ignore[misc]

    assert_no_stall(run, 20)
    assert got == list(range(2000))
