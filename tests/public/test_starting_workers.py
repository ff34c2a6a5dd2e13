"""Workers are started under no lock: a start that takes long, or fails, or is interrupted, is in nobody's way."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import pytest

from gkafka import KafkaClient
from gkafka.callbacks import _work as work_on_callbacks
from gkafka.handlers.selection import resolve_handler
from gkafka.starter import STUCK_S, Starter
from gkafka.testing import Delay, MockCluster
from tests.kit.clock import soon
from tests.public.aids import LIMIT_S, Clock, Runner, stored_values

PRODUCER, CALLBACKS = "gkafka-producer", "gkafka-callbacks"


class SlowStart:
    """Lets the first spawn of this name wait until `leave` is set, and counts all of them."""

    def __init__(self, client: KafkaClient, monkeypatch: pytest.MonkeyPatch, name: str, before: Callable[[], object] | None = None) -> None:
        self.entered, self.leave = client.handler.Event(), client.handler.Event()
        self.count = 0
        self._spawn, self._name, self._before = client.handler.spawn, name, before or self._wait
        monkeypatch.setattr(client.handler, "spawn", self)

    def __call__(self, *args: Any, **about: Any) -> Any:
        if about.get("_name") == self._name:
            self.count += 1
            if self.count == 1:
                self._before()
        return self._spawn(*args, **about)

    def _wait(self) -> None:
        self.entered.set()
        self.leave.wait(LIMIT_S)


def fail() -> None:
    raise RuntimeError("can't start new thread")


def test_a_producers_worker_that_takes_long_to_start_holds_up_nobody(
    client: KafkaClient, cluster: MockCluster, run: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert client.topics["t"] is not None
    start = SlowStart(client, monkeypatch, PRODUCER)
    producer = client.get_producer(linger_ms=0)
    first = run.aside(producer.produce, "t", b"first")
    assert start.entered.wait(LIMIT_S)
    with Clock() as clock:
        assert producer.stats()["unsettled_records"] == 0
        second = producer.produce("t", b"second")
        producer.stats()
    assert clock.seconds < 30
    start.leave.set()
    assert second.result(LIMIT_S).offset >= 0
    assert first.result().result(LIMIT_S).offset >= 0
    assert start.count == 1
    producer.close()
    assert sorted(v or b"" for v in stored_values(cluster)) == [b"first", b"second"]


def test_a_producers_worker_that_could_not_be_started_is_started_by_who_comes_next(
    client: KafkaClient, cluster: MockCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert client.topics["t"] is not None
    start = SlowStart(client, monkeypatch, PRODUCER, fail)
    producer = client.get_producer(linger_ms=0)
    with pytest.raises(RuntimeError):
        producer.produce("t", b"refused")
    assert producer.produce("t", b"taken").result(LIMIT_S).offset == 0
    assert start.count == 2
    producer.close()
    assert stored_values(cluster) == [b"taken"]


def test_whoever_waits_starts_the_worker_that_another_could_not(
    client: KafkaClient, cluster: MockCluster, run: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A record was accepted while another caller tried to start the worker, in vain."""
    assert client.topics["t"] is not None
    entered, leave = client.handler.Event(), client.handler.Event()

    def wait_and_fail() -> None:
        entered.set()
        leave.wait(LIMIT_S)
        fail()

    start = SlowStart(client, monkeypatch, PRODUCER, wait_and_fail)
    producer = client.get_producer(linger_ms=2000)
    refused = run.aside(producer.produce, "t", b"refused")
    assert entered.wait(LIMIT_S)
    accepted = producer.produce("t", b"accepted")
    leave.set()
    with pytest.raises(RuntimeError):
        refused.result()
    with Clock() as clock:
        assert accepted.result(LIMIT_S).offset == 0
    assert clock.seconds < 30
    assert start.count == 2


def test_a_callbacks_worker_that_takes_long_to_start_holds_up_no_delivery(
    client: KafkaClient, cluster: MockCluster, run: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever starts it is the connection's reader, which has nothing else to do then; everybody else goes on."""
    start = SlowStart(client, monkeypatch, CALLBACKS)
    called: list[Any] = []
    producer = client.get_producer(on_delivery=called.append, linger_ms=0)
    first = producer.produce("t", b"first")
    assert start.entered.wait(LIMIT_S)
    with Clock() as clock:
        assert first.result(LIMIT_S).offset == 0
        producer.stats()
        second = producer.produce("t", b"second")
    assert clock.seconds < 30
    start.leave.set()
    second.result(LIMIT_S)
    producer.flush(LIMIT_S)
    assert called == [first, second]
    assert start.count == 1


def test_of_two_workers_for_callbacks_one_works(client: KafkaClient, cluster: MockCluster, run: Runner) -> None:
    """Whoever was interrupted while it started one may start another."""
    called: list[int] = []
    producer = client.get_producer(linger_ms=0)
    entered, leave = client.handler.Event(), client.handler.Event()

    def first(delivery: Any) -> None:
        entered.set()
        leave.wait(LIMIT_S)
        called.append(0)

    producer.produce("t", b"0").add_done_callback(first)
    assert entered.wait(LIMIT_S)
    second = client.handler.spawn(work_on_callbacks, weakref.ref(producer._driver.callbacks), _name="gkafka-callbacks-2")
    cluster.on("Produce", Delay(0.3))  # not done yet when it is given its callback, which would be called at once
    producer.produce("t", b"1").add_done_callback(lambda delivery: called.append(1))
    run.until(lambda: not second.is_alive())
    assert called == []
    leave.set()
    producer.flush(LIMIT_S)
    assert called == [0, 1]


# -- the turn ----------------------------------------------------------------------------------------------------------------
def test_one_starts_and_the_others_go_on(run: Runner) -> None:
    handler = resolve_handler(run.name)
    starter = Starter(handler)
    started: list[str] = []

    def first() -> None:
        starter.run(lambda: started.append("beside the first"))
        started.append("first")

    starter.run(first)
    starter.run(lambda: started.append("second"))
    assert started == ["first", "second"]


@pytest.mark.parametrize("ended_by", [RuntimeError, KeyboardInterrupt])
def test_who_fails_to_start_gives_its_turn_back(run: Runner, ended_by: type[BaseException]) -> None:
    starter = Starter(resolve_handler(run.name))
    started: list[str] = []

    def begin() -> None:
        raise ended_by

    with pytest.raises(ended_by):
        starter.run(begin)
    starter.run(lambda: started.append("next"))
    assert started == ["next"]


def test_a_turn_that_nobody_gave_back_is_over_after_a_while(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    handler = resolve_handler(run.name)
    starter = Starter(handler)
    started: list[str] = []
    now = soon(0)
    starter._turn["turn"] = (now, object())
    starter.run(lambda: started.append("too early"))
    monkeypatch.setattr(handler, "monotonic", lambda: now + STUCK_S + 1)
    starter.run(lambda: started.append("in time"))
    starter.run(lambda: started.append("again"))
    assert started == ["in time", "again"]
