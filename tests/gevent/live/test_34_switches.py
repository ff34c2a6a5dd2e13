"""34: while tests 1 to 8 run, each of them, no greenlet runs for more than 20 ms before it lets others.

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
from tests.gevent.harness import PATCHED, UNPATCHED, greenlets, in_child, in_children
from tests.gevent.live.test_06_consume import PARTITIONS, fill
from tests.gevent.live.test_07_codecs import CODECS
from tests.handlers.hub import Ticker, waiting_for_a_core
from tests.live import admin
from tests.live.kafka import KafkaCluster
from tests.net.certificates import Certificates

BOTH = (UNPATCHED, PATCHED)


class Longest(Ticker):
    """Instead of a ticker: how long each greenlet ran from switch to switch."""

    def _run(self) -> None:
        hub, gaps = gevent.get_hub(), self.gaps
        with waiting_for_a_core() as waited:
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
    """Play it with its own limits, which then hold for each turn of each greenlet; 20 ms is the largest of them."""
    harness.Ticker = Longest  # type: ignore[attr-defined]
    module, _, name = scenario.partition(":")
    getattr(importlib.import_module(f"tests.gevent.live.{module}"), name)(*arguments)


def runs_too_long() -> None:
    def burn() -> None:
        end = thread_time() + 0.05
        while thread_time() < end:
            pass

    harness.assert_no_stall(lambda: gevent.spawn(burn).join(), 20)


WRITES = {
    1: "test_01_sync_sends:sync_sends",
    2: "test_02_own_delivery:stalls",
    3: "test_03_tight_loop:tight_loop",
}


@greenlets
@pytest.mark.parametrize("number", WRITES)
def test_34_while_many_or_one_send(number: int, mode: str, stub: str, stub_topic: Callable[..., str]) -> None:
    in_child(mode, switching, WRITES[number], stub, stub_topic(4, keeps=False))


def test_34_while_all_brokers_are_down() -> None:
    in_children(BOTH, switching, "test_04_broker_down:broker_down")


def test_34_while_a_group_waits_and_rebalances(kafka: KafkaCluster, new_topic: Callable[..., str]) -> None:
    in_children(BOTH, switching, "test_05_poll:polls", kafka.hosts, new_topic(4))


@pytest.fixture(scope="module")
def full_topic(stub: str) -> str:
    admin.create(stub, "full-34", PARTITIONS, 1, {})
    in_child(UNPATCHED, fill, stub, "full-34")
    return "full-34"


@greenlets
@pytest.mark.parametrize("at_once", [1000, None])
def test_34_while_large_fetches_are_consumed(mode: str, at_once: int | None, stub: str, full_topic: str) -> None:
    in_child(mode, switching, "test_06_consume:consume", stub, full_topic, at_once)


@greenlets
@pytest.mark.parametrize("codec", CODECS)
def test_34_while_large_batches_are_compressed(mode: str, codec: str, stub: str, stub_topic: Callable[..., str]) -> None:
    in_child(mode, switching, "test_07_codecs:produce_and_consume", stub, stub_topic(2), codec)


def test_34_while_a_slow_tls_broker_is_talked_to(slow_tls_broker: str, certificates: Certificates) -> None:
    in_children(BOTH, switching, "test_08_tls:talk", slow_tls_broker, certificates.ca)


def test_34_one_that_does_is_found() -> None:
    with pytest.raises(AssertionError, match="kept busy for more than"):
        in_child(UNPATCHED, switching, "test_34_switches:runs_too_long")
