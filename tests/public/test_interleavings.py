"""Steps that belong together stay together, whichever worker gets the interpreter in between."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from gkafka import KafkaClient, ProducerInterceptor
from gkafka.net.channel import Channel
from gkafka.testing import Close, Delay, MockCluster
from tests.kit.clock import during, now
from tests.public.aids import LIMIT_S, Runner, error_of, stored_values


@pytest.mark.parametrize("second_answer_is_lost", [False, True])
def test_nothing_newer_goes_out_before_all_that_a_connection_lost_was_told(
    client: KafkaClient, cluster: MockCluster, run: Runner, monkeypatch: Any, second_answer_is_lost: bool
) -> None:
    """Else it lands before them: a broker takes any sequence number from a producer that it does not know."""
    tell_each = Channel._tell_each
    refused: list[str] = []
    (broker,) = client.brokers.values()

    def slowly(self: Channel, failed: Any) -> None:
        if self.role == "produce" and failed:
            refused.append(str(error_of(broker.channel, "produce")))
            assert broker.ready_at > began
            run.sleep(0.1)
        tell_each(self, failed)

    monkeypatch.setattr(Channel, "_tell_each", slowly)
    producer, began = client.get_producer(linger_ms=0), now()
    cluster.on("Produce", Close(before=True))
    if second_answer_is_lost:
        cluster.on("Produce", Close(before=False))
    first = producer.produce("t", b"first", partition=0)
    run.until(lambda: cluster.requests("Produce"))
    run.sleep(0.02)
    second = producer.produce("t", b"second", partition=0)
    assert (first.result(LIMIT_S).offset, second.result(LIMIT_S).offset) == (0, 1)
    assert stored_values(cluster) == [b"first", b"second"]
    assert refused
    assert all("being given up" in text for text in refused)


@pytest.mark.parametrize("call", ["flush", "close"])
def test_a_callback_of_a_record_that_is_done_is_called_although_the_producer_is_closed_at_that_moment(
    client: KafkaClient, run: Runner, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """A batch is done, and then its callbacks go to their worker: that one does not end in between."""
    producer, called, entered = client.get_producer(linger_ms=5), [], []
    producer.produce("t", b"0").add_done_callback(called.append)
    run.until(lambda: called)
    hand_over = producer._driver.callbacks.add

    def slowly(*about: Any) -> None:
        entered.append(about)
        run.sleep(0.2)
        hand_over(*about)

    monkeypatch.setattr(producer._driver.callbacks, "add", slowly)
    producer.produce("t", b"1").add_done_callback(called.append)
    run.until(lambda: entered)
    getattr(producer, call)(LIMIT_S)
    run.until(lambda: len(called) == 2)


def nothing() -> None: ...


class Watched:
    """A lock that calls `before` just before each release, and `after` just after it."""

    def __init__(self, lock: Any, *, before: Callable[[], None] = nothing, after: Callable[[], None] = nothing) -> None:
        self._lock, self._before, self._after = lock, before, after

    def __enter__(self) -> Any:
        return self._lock.__enter__()

    def __exit__(self, *about: Any) -> None:
        self._before()
        self._lock.__exit__(*about)
        self._after()


@pytest.mark.parametrize("what", ["on_delivery", "interceptors"])
def test_what_is_called_for_each_record_is_there_before_it_can_be_delivered(client: KafkaClient, run: Runner, what: str) -> None:
    """Else it would be called in the caller, and find the record's memory given back."""
    seen: list[Any] = []

    class Noting(ProducerInterceptor):
        def on_acknowledgement(self, delivery: Any) -> None:
            seen.append((delivery.record, handler.current_id()))

    def on_delivery(delivery: Any) -> None:
        seen.append((delivery.record, handler.current_id()))

    handler = client.handler
    me = handler.current_id()
    producer = client.get_producer(linger_ms=0, **({"on_delivery": on_delivery} if what == "on_delivery" else {"interceptors": [Noting()]}))
    driver: Any = producer._driver

    def send_at_once() -> None:
        """The caller is slow and the producer's worker is not."""
        if handler.current_id() == me and driver.accumulator.open:
            driver._wake.set()
            before = driver.settled_records
            for _ in during(0.1, pause=0):
                if driver.settled_records != before:
                    return
                run.sleep(0.002)

    producer.produce("t", b"first")
    producer.flush(LIMIT_S)
    driver.lock = Watched(driver.lock, after=send_at_once)
    for i in range(3):
        producer.produce("t", b"%d" % i)
    producer.flush(LIMIT_S)
    assert [record.value for record, _ in seen] == [b"first", b"0", b"1", b"2"]
    assert me not in [worker for _, worker in seen]


def test_while_callers_wait_for_memory_the_worker_sends_beside_the_reader(connect: Any, cluster: MockCluster) -> None:
    cluster.on("Produce", Delay(0.003), times=None)
    producer = connect(cluster, handler="threading").get_producer(
        linger_ms=0, buffer_bytes=20_000, batch_bytes=2000, max_request_bytes=4000
    )
    driver, senders = producer._driver, []
    send = driver._send

    def noted(outgoing: Any) -> None:
        senders.append((threading.current_thread().name, driver.sender.pressed))
        send(outgoing)

    driver._send = noted
    values = [b"%d" % i * 100 for i in range(400)]
    for value in values:
        producer.produce("t", value)
    producer.flush(LIMIT_S)
    assert stored_values(cluster) == values
    assert ("gkafka-producer", True) in senders


def test_a_caller_does_not_drive_for_others_for_ever(connect: Any, cluster: MockCluster) -> None:
    """Notes that come faster than one look at everything takes would keep it in its produce()."""
    producer = connect(cluster, handler="threading").get_producer(linger_ms=0)
    driver, me, rounds = producer._driver, threading.get_ident(), []
    drive_once = driver._drive_once

    def one_more_note_comes() -> float:
        deadline: float = drive_once()
        if threading.get_ident() == me and len(rounds) < 1000:
            rounds.append(deadline)
            driver._again = True
        return deadline

    driver._drive_once = one_more_note_comes
    for i in range(20):  # the worker drives now and then, too
        delivery = producer.produce("t", b"0")
        assert delivery.result(LIMIT_S).offset == i
    assert 8 <= len(rounds) < 500


def test_nobody_sees_a_batch_before_its_first_record_is_in_it(connect: Any, make_cluster: Any) -> None:
    """Whoever drives may send what he sees, and an empty batch cannot be sent."""
    producer = connect(make_cluster(topics={"t": 2})).get_producer(linger_ms=0)
    accumulator, empty, looks = producer._driver.accumulator, [], []

    def look() -> None:
        looks.append(len(accumulator.open))
        empty.extend(batch for batch in accumulator.open.values() if not batch.count)

    producer._driver.lock = Watched(producer._driver.lock, before=look)
    for i in range(20):
        producer.produce("t", b"%d" % i, partition=i % 2)
    producer.flush(LIMIT_S)
    assert any(looks)
    assert not empty
