"""The stall meter: it sees what keeps a hub from turning, whoever does it, and says so above a second."""

from __future__ import annotations

import gc
import logging
import threading
import time
import weakref
from collections.abc import Iterator
from time import perf_counter, thread_time
from typing import Any

import gevent
import pytest

from gkafka import KafkaClient
from gkafka.handlers import GEventHandler
from gkafka.handlers import stallmeter as module
from gkafka.handlers.stallmeter import HubStallMeter, said
from tests.handlers.hub import run_script


@pytest.fixture(autouse=True)
def nothing_was_told() -> None:
    """The tests share a hub, and what one of them had told."""
    module._told.clear()


@pytest.fixture
def handler() -> Iterator[GEventHandler]:
    made = GEventHandler()
    yield made
    assert made.stop(made.monotonic() + 5)


@pytest.fixture
def meter(handler: GEventHandler) -> Iterator[HubStallMeter]:
    made = handler.stall_meter()
    gevent.sleep(0.001)  # it counts from the loop's next turn on
    yield made
    made.stop()


def burn(seconds: float) -> None:
    end = thread_time() + seconds
    while thread_time() < end:
        pass


def longest(meter: HubStallMeter) -> float:
    gevent.sleep(0.001)
    return meter.stats()["hub_stall_ms"]


def test_waiting_is_no_stall(meter: HubStallMeter) -> None:
    gevent.sleep(0.3)
    assert longest(meter) < 290


@pytest.mark.parametrize("keep", [burn, time.sleep])
def test_a_greenlet_that_works_or_blocks_is_measured(meter: HubStallMeter, keep: Any) -> None:
    gevent.spawn(keep, 0.15).join()
    assert longest(meter) >= 149


def test_many_that_each_work_a_little_are_one_stall_if_no_timer_gets_a_turn(meter: HubStallMeter) -> None:
    """gevent.sleep(0) yields to other greenlets, and not to I/O."""

    def works() -> None:
        for _ in range(10):
            burn(0.003)
            gevent.sleep(0)

    gevent.spawn(works).join()
    assert longest(meter) >= 20


def test_a_stall_that_is_going_on_counts(meter: HubStallMeter) -> None:
    gevent.sleep(0.001)
    burn(0.1)
    assert meter.stats()["hub_stall_ms"] >= 100
    time.sleep(0.1)
    assert meter.stats()["hub_stall_longest_ms"] >= 200


def test_an_old_stall_leaves_the_last_minute_and_stays_the_longest(meter: HubStallMeter, monkeypatch: pytest.MonkeyPatch) -> None:
    gevent.spawn(time.sleep, 0.3).join()
    assert longest(meter) >= 300
    now = perf_counter()
    monkeypatch.setattr(module, "perf_counter", lambda: now + 70)
    assert meter.stats()["hub_stall_ms"] >= 300, "it was in the minute before this one"
    monkeypatch.setattr(module, "perf_counter", lambda: now + 200)
    meter.polled()
    assert meter.stats()["hub_stall_ms"] == 0
    assert meter.stats()["hub_stall_longest_ms"] >= 300


def test_above_the_limit_it_says_what_was_measured(
    meter: HubStallMeter, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "WARN_S", 0.1)
    for seconds in (0.02, 0.2, 0.15, 0.4):
        gevent.spawn(time.sleep, seconds).join()
        gevent.sleep(0.001)  # due at once: the loop's time is old
        gevent.sleep(0.02)  # a greenlet of its own tells
    told = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert len(told) == 2, f"the second, and the fourth, which is longer: {told}"
    assert all(text.startswith("gevent's hub stood still for ") for text in told)
    assert meter.stats()["hub_stalls"] == 3


def test_clients_of_one_hub_tell_a_stall_once(
    handler: GEventHandler, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "WARN_S", 0.1)
    meters = [handler.stall_meter() for _ in range(5)]
    gevent.sleep(0.001)
    for seconds, told in ((0.2, 1), (0.4, 2), (0.3, 2)):
        gevent.spawn(time.sleep, seconds).join()
        gevent.sleep(0.001)
        gevent.sleep(0.02)
        assert sum(r.levelno == logging.WARNING for r in caplog.records) == told
    assert [meter.stats()["hub_stalls"] for meter in meters] == [3] * 5, "each has measured them"
    for meter in meters:
        meter.stop()


def test_what_it_says_tells_work_from_a_call_that_blocks() -> None:
    assert "stood still for 1200 ms, 1190 ms of them at work: a greenlet computed without letting others run" in said(1.2, 1.19)
    assert "stood still for 1200 ms, 10 ms of them at work: a greenlet was in a call that gevent knows nothing of" in said(1.2, 0.01)


def test_a_client_measures_its_hub_if_it_is_told_to(caplog: pytest.LogCaptureFixture) -> None:
    keys = ("hub_stall_ms", "hub_stall_longest_ms", "hub_stalls")
    with (
        KafkaClient("127.0.0.1:1", handler="gevent", hub_stall_meter=True) as client,
        KafkaClient("127.0.0.1:1", handler="gevent") as other,
    ):
        gevent.sleep(0.001)
        gevent.spawn(time.sleep, 1.05).join()
        gevent.sleep(0.001)
        gevent.sleep(0.02)
        assert client.stats()["hub_stall_ms"] >= 1050
        assert client.stats()["hub_stalls"] == 1
        assert [other.stats()[key] for key in keys] == [None] * 3
    assert sum("hub stood still" in r.getMessage() for r in caplog.records) == 1
    assert "no hub" not in caplog.text


@pytest.mark.parametrize("handler", ["threading", "auto"])
def test_threads_have_no_hub_and_the_log_says_so_once(
    handler: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The option was accepted without a word, and its figures stayed None."""
    monkeypatch.setattr("gkafka.client._no_hub_untold", [None])
    monkeypatch.setattr("gkafka.handlers.selection.gevent_is_running", lambda: False)  # auto would warn of it
    for _ in range(2):
        with KafkaClient("127.0.0.1:1", handler=handler, hub_stall_meter=True) as client:
            assert client.stats()["hub_stall_ms"] is None
    with KafkaClient("127.0.0.1:1", handler=handler):
        pass
    (told,) = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert told == (
        "hub_stall_meter=True: handler 'threading' has no hub that could stand still, nothing is measured: "
        "give handler='gevent', or leave the option out"
    )


def test_a_meter_that_is_dropped_ends_and_is_gone(handler: GEventHandler) -> None:
    meter = handler.stall_meter()
    gone, watch = weakref.ref(meter), meter._watch
    del meter
    gc.collect()
    assert gone() is None
    gevent.sleep(0.005)
    assert not watch._before.active
    assert not watch._after.active


def test_it_starts_and_stops_from_another_thread(handler: GEventHandler) -> None:
    made: list[HubStallMeter] = []
    thread = threading.Thread(target=lambda: made.append(handler.stall_meter()))
    thread.start()
    thread.join(5)
    gevent.sleep(0.005)
    gevent.spawn(time.sleep, 0.1).join()
    assert longest(made[0]) >= 100
    thread = threading.Thread(target=made[0].stop)
    thread.start()
    thread.join(5)
    gevent.sleep(0.005)
    assert not made[0]._watch._before.active


def test_it_keeps_no_program_from_its_end() -> None:
    out = run_script("""
        from gkafka.handlers import GEventHandler
        meter = GEventHandler().stall_meter()
        import gevent
        gevent.sleep(0.01)
        print(gevent.wait(timeout=5))
    """)
    assert out == "True"
