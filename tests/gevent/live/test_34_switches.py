"""34: while tests 1 to 8 run, no greenlet runs for more than 20 ms before it lets others.

gevent.util.assert_switches cannot tell: with max_blocking_time it takes the time since its own start (gevent 26.9), with hub_only the time since
the hub's last turn at the end. So the switches are traced here.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from time import perf_counter, thread_time
from typing import Any

import gevent
import greenlet
import pytest

from tests.gevent import harness
from tests.gevent.harness import UNPATCHED, FairTicker, in_child
from tests.gevent.live.test_06_consume import fill


class Longest(FairTicker):
    """Instead of a ticker: how long each greenlet ran from switch to switch."""

    def _run(self) -> None:
        hub, gaps = gevent.get_hub(), self.gaps
        with harness.waiting_for_a_core() as waited:
            began = [perf_counter() - waited(), thread_time()]

            def switched(event: str, arguments: tuple[Any, Any]) -> None:
                wall, cpu = perf_counter() - waited(), thread_time()
                if arguments[0] is not hub:
                    gaps.append((wall - began[0], cpu - began[1]))
                began[:] = wall, cpu

            greenlet.settrace(switched)
            try:
                while self._on:
                    gevent.sleep(0.001)
            finally:
                greenlet.settrace(None)


def switching(scenario: str, *arguments: Any) -> None:
    harness.FairTicker = Longest  # type: ignore[misc]
    module, _, name = scenario.partition(":")
    getattr(importlib.import_module(module), name)(*arguments)


def runs_too_long() -> None:
    def burn() -> None:
        end = thread_time() + 0.05
        while thread_time() < end:
            pass

    harness.assert_no_stall(lambda: gevent.spawn(burn).join(), 20)


@pytest.mark.parametrize("scenario", ["test_02_own_delivery:stalls", "test_03_tight_loop:tight_loop", "test_07_codecs:produce_and_consume"])
def test_34_no_greenlet_runs_for_long(scenario: str, stub: str, stub_topic: Callable[..., str]) -> None:
    more = ["lz4"] if "codecs" in scenario else []
    topic = stub_topic(4, keeps="codecs" in scenario)
    in_child(UNPATCHED, switching, f"tests.gevent.live.{scenario}", stub, topic, *more)


def test_34_no_greenlet_runs_for_long_in_large_fetches(stub: str, stub_topic: Callable[..., str]) -> None:
    topic = stub_topic(4)
    in_child(UNPATCHED, fill, stub, topic)
    in_child(UNPATCHED, switching, "tests.gevent.live.test_06_consume:consume", stub, topic, 1000)


def test_34_one_that_does_is_found() -> None:
    with pytest.raises(AssertionError, match="kept busy for more than"):
        in_child(UNPATCHED, switching, "tests.gevent.live.test_34_switches:runs_too_long")
