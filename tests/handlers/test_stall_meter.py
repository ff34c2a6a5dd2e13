"""The stall meter: it sees what keeps a hub from turning, whoever does it, and says so above a second."""

from __future__ import annotations

import gc
import logging
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from typing import Any

import gevent
import pytest

from gkafka import KafkaClient
from gkafka.handlers import GEventHandler
from gkafka.handlers import stallmeter as module
from gkafka.handlers.stallmeter import HubStallMeter, said
from tests.handlers.hub import run_script
from tests.kit.clock import PATIENCE_S, busy, now, soon


@pytest.fixture(autouse=True)
def nothing_was_told() -> None:
    """The tests share a hub, and what one of them had told."""
    module._told.clear()


@pytest.fixture
def handler() -> Iterator[GEventHandler]:
    made = GEventHandler()
    yield made
    assert made.stop(soon(60))


@pytest.fixture
def meter(handler: GEventHandler) -> Iterator[HubStallMeter]:
    made = handler.stall_meter()
    gevent.sleep(0.001)  # it counts from the loop's next turn on
    yield made
    made.stop()


class Clock:
    """The meter's clock, set by the test."""

    def __init__(self) -> None:
        self.now = soon(0)

    def work(self, seconds: float) -> None:
        self.now += seconds

    def greenlet_works(self, seconds: float) -> None:
        """One that nobody else runs beside; the loop has polled again behind it."""
        gevent.spawn(self.work, seconds).join()
        gevent.sleep(0.001)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(module, "perf_counter", lambda: made.now)
    return made


def warnings_in(caplog: pytest.LogCaptureFixture, count: int) -> list[str]:
    """The warnings, once there are so many: a greenlet of its own tells."""
    deadline = now() + PATIENCE_S
    while True:
        gevent.sleep(0.005)
        told = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
        if len(told) >= count or now() > deadline:
            return told


def longest(meter: HubStallMeter) -> float:
    gevent.sleep(0.001)
    return meter.stats()["hub_stall_ms"]


def test_waiting_is_no_stall(clock: Clock, meter: HubStallMeter) -> None:
    """Another thread lets the time go by while the loop waits."""
    gevent.sleep(0.001)
    timer = threading.Timer(0.05, clock.work, (100,))
    timer.start()
    while timer.is_alive():
        gevent.sleep(0.2)
    assert longest(meter) < 100_000


@pytest.mark.parametrize("keep", [busy, time.sleep])
def test_a_greenlet_that_works_or_blocks_is_measured(meter: HubStallMeter, keep: Any) -> None:
    gevent.spawn(keep, 0.15).join()
    assert longest(meter) >= 149


def test_many_that_each_work_a_little_are_one_stall_if_no_timer_gets_a_turn(clock: Clock, meter: HubStallMeter) -> None:
    """gevent.sleep(0) yields to other greenlets, and not to I/O."""

    def works() -> None:
        for _ in range(10):
            clock.work(0.003)
            gevent.sleep(0)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(60)  # the loop polls after so long or 50 callbacks
    try:
        gevent.spawn(works).join()
    finally:
        sys.setswitchinterval(interval)
    assert longest(meter) == pytest.approx(30)


def test_a_stall_that_is_going_on_counts(clock: Clock, meter: HubStallMeter) -> None:
    gevent.sleep(0.001)
    clock.work(0.1)
    assert meter.stats()["hub_stall_ms"] == pytest.approx(100)
    clock.work(0.1)
    assert meter.stats()["hub_stall_longest_ms"] == pytest.approx(200)


def test_an_old_stall_leaves_the_last_minute_and_stays_the_longest(clock: Clock, meter: HubStallMeter) -> None:
    clock.greenlet_works(0.3)
    assert longest(meter) == pytest.approx(300)
    clock.now += 70
    meter.polled()
    assert meter.stats()["hub_stall_ms"] == pytest.approx(300), "it was in the minute before this one"
    clock.now += 130
    meter.polled()
    assert meter.stats()["hub_stall_ms"] == 0
    assert meter.stats()["hub_stall_longest_ms"] == pytest.approx(300)


def test_above_the_limit_it_says_what_was_measured(clock: Clock, meter: HubStallMeter, caplog: pytest.LogCaptureFixture) -> None:
    for seconds, told in ((0.2, 0), (2.0, 1), (1.5, 1), (4.0, 2)):
        clock.greenlet_works(seconds)
        warnings_in(caplog, told)
    told_all = warnings_in(caplog, 2)
    assert len(told_all) == 2, f"the second, and the fourth, which is longer: {told_all}"
    assert [text.partition(" ms, ")[0] for text in told_all] == [f"gevent's hub stood still for {ms}" for ms in (2000, 4000)]
    assert meter.stats()["hub_stalls"] == 3


def test_clients_of_one_hub_tell_a_stall_once(clock: Clock, handler: GEventHandler, caplog: pytest.LogCaptureFixture) -> None:
    meters = [handler.stall_meter() for _ in range(5)]
    gevent.sleep(0.001)
    for seconds, told in ((2.0, 1), (4.0, 2), (3.0, 2)):
        clock.greenlet_works(seconds)
        assert len(warnings_in(caplog, told)) == told
    gevent.sleep(0.02)
    assert len(warnings_in(caplog, 2)) == 2
    assert [meter.stats()["hub_stalls"] for meter in meters] == [3] * 5, "each has measured them"
    for meter in meters:
        meter.stop()


def test_what_it_says_tells_work_from_a_call_that_blocks() -> None:
    assert "stood still for 1200 ms, 1190 ms of them at work: a greenlet computed without letting others run" in said(1.2, 1.19)
    assert "stood still for 1200 ms, 10 ms of them at work: a greenlet was in a call that gevent knows nothing of" in said(1.2, 0.01)


def test_a_client_measures_its_hub_if_it_is_told_to(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    keys = ("hub_stall_ms", "hub_stall_longest_ms", "hub_stalls")
    with (
        KafkaClient("127.0.0.1:1", handler="gevent", hub_stall_meter=True) as client,
        KafkaClient("127.0.0.1:1", handler="gevent") as other,
    ):
        gevent.sleep(0.001)
        clock.greenlet_works(1.05)
        assert len(warnings_in(caplog, 1)) == 1
        assert client.stats()["hub_stall_ms"] == pytest.approx(1050)
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
    for place in ("selection", "threads"):  # auto would warn of it
        monkeypatch.setattr(f"gkafka.handlers.{place}.gevent_is_running", lambda: False)
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
    thread.join(60)
    gevent.sleep(0.005)
    gevent.spawn(time.sleep, 0.1).join()
    assert longest(made[0]) >= 99
    thread = threading.Thread(target=made[0].stop)
    thread.start()
    thread.join(60)
    gevent.sleep(0.005)
    assert not made[0]._watch._before.active


def test_it_keeps_no_program_from_its_end() -> None:
    out = run_script("""
        from gkafka.handlers import GEventHandler
        meter = GEventHandler().stall_meter()
        import gevent
        gevent.sleep(0.01)
        print(gevent.wait(timeout=60))
    """)
    assert out == "True"
