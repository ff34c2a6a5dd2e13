"""User code inside the library: callbacks that raise, wait, or call back in. Nothing deadlocks, others go on, each call ends by its time."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from gkafka import KafkaClient
from gkafka.exceptions import DeliveryError, KafkaException, KafkaTimeoutError, ProducerStoppedException
from gkafka.testing import Delay, MockCluster
from tests.kit.clock import busy
from tests.public.aids import LIMIT_S, Clock, Others, Runner, fill, stored, stored_values
from tests.public.programs import run_program


def test_a_callback_that_raises_is_logged_and_the_others_run(client: KafkaClient, run: Runner, caplog: Any) -> None:
    caplog.set_level(logging.ERROR)
    producer = client.get_producer()
    seen: list[int] = []

    def callback(delivery: Any) -> None:
        seen.append(delivery.result(0).offset)
        if delivery.result(0).offset % 2:
            raise ZeroDivisionError("in a callback")

    for i in range(10):
        producer.produce("t", b"%d" % i).add_done_callback(callback)
    producer.flush(LIMIT_S)
    run.until(lambda: len(seen) == 10)
    assert seen == list(range(10))
    assert caplog.text.count("in a callback") >= 5
    assert producer.produce("t", b"on").result(LIMIT_S).offset == 10


def test_a_callback_that_waits_holds_up_no_delivery(client: KafkaClient, cluster: MockCluster, run: Runner) -> None:
    producer = client.get_producer(linger_ms=0)
    entered, leave = client.handler.Event(), client.handler.Event()

    def callback(delivery: Any) -> None:
        entered.set()
        leave.wait(LIMIT_S)

    producer.produce("t", b"0").add_done_callback(callback)
    assert entered.wait(LIMIT_S)
    other = client.get_producer(linger_ms=0)
    assert other.produce("t", b"1").result(LIMIT_S).offset == 1
    leave.set()
    assert producer.produce("t", b"2").result(LIMIT_S).offset == 2


CALLS: dict[str, Callable[[KafkaClient, Any, Any], Any]] = {
    "flush": lambda client, producer, delivery: producer.flush(60),
    "close": lambda client, producer, delivery: producer.close(60),
    "client.close": lambda client, producer, delivery: client.close(60),
    "produce": lambda client, producer, delivery: producer.produce("t", b"more"),
    "result of another": lambda client, producer, delivery: producer.produce("t", b"more").result(60),
    "its own result": lambda client, producer, delivery: delivery.result(60),
    "metadata": lambda client, producer, delivery: client.update_cluster(),
    "list_offsets": lambda client, producer, delivery: client.list_offsets({("t", 0): -1}),
    "another callback": lambda client, producer, delivery: delivery.add_done_callback(lambda d: None),
    "stats": lambda client, producer, delivery: client.stats(),
}


@pytest.mark.parametrize("what", CALLS)
def test_a_callback_may_call_back_in(client: KafkaClient, cluster: MockCluster, run: Runner, what: str) -> None:
    """gevent acceptance 24 (c): returns within its deadline, and what it waited for is done."""
    producer = client.get_producer(linger_ms=20, batch_bytes=300)
    ended: list[Any] = []
    begun: list[bool] = []

    def callback(delivery: Any) -> None:
        if begun:
            return
        begun.append(True)
        with Clock() as clock:
            try:
                CALLS[what](client, producer, delivery)
            except KafkaException as error:
                ended.append(error)
        ended.append(clock.seconds)

    deliveries = [producer.produce("t", b"x" * 100) for _ in range(10)]
    deliveries[0].add_done_callback(callback)
    deliveries[0].result(LIMIT_S)
    run.until(lambda: ended and isinstance(ended[-1], float))
    assert ended[-1] < 30
    errors = [e for e in ended if isinstance(e, KafkaException)]
    assert errors == []
    if what not in ("close", "client.close"):
        producer.flush(LIMIT_S)
        assert len(stored(cluster)) >= 10
    assert all(d.done() for d in deliveries)


def test_on_delivery_may_produce_again_and_again(client: KafkaClient, cluster: MockCluster, run: Runner) -> None:
    """A ping-pong of 50 records, each produced by the callback of the one before."""
    producers: list[Any] = []

    def again(delivery: Any) -> None:
        number = int(delivery.record.value)
        if number < 50:
            producers[0].produce("t", b"%d" % (number + 1))

    producers.append(client.get_producer(on_delivery=again, linger_ms=0))
    producers[0].produce("t", b"0")
    run.until(lambda: len(stored(cluster)) == 51)
    assert stored_values(cluster) == [b"%d" % i for i in range(51)]


def test_a_full_buffer_inside_a_callback_does_not_wait_for_itself(client: KafkaClient, cluster: MockCluster, run: Runner) -> None:
    producer = client.get_producer(linger_ms=0, buffer_bytes=8192, batch_bytes=1024, max_request_bytes=4096, max_block_ms=LIMIT_S * 1000)
    outcome: list[Any] = []

    def stuff(delivery: Any) -> None:
        if outcome:
            return
        outcome.append("begun")
        try:
            for _ in range(50):
                producer.produce("t", b"x" * 900)
            outcome.append("done")
        except KafkaException as error:
            outcome.append(error)

    producer.produce("t", b"first").add_done_callback(stuff)
    run.until(lambda: len(outcome) == 2)
    assert outcome[1] == "done"
    producer.flush(LIMIT_S)
    assert len(stored(cluster)) == 51


def test_a_partitioner_and_a_serializer_that_raise_leave_the_producer_usable(client: KafkaClient, cluster: MockCluster) -> None:
    def bad(*_: Any) -> Any:
        raise ZeroDivisionError("user code")

    for options in ({"partitioner": bad}, {"value_serializer": bad}, {"key_serializer": bad}):
        producer = client.get_producer(**options)
        with pytest.raises(Exception, match="user code"):
            producer.produce("t", b"x", b"k")
        assert producer.stats()["buffer_bytes_free"] == producer.config.buffer_bytes
        producer.close()
    fill(client, [b"fine"])
    assert stored_values(cluster) == [b"fine"]


def test_a_partitioner_may_take_its_time_and_others_produce_meanwhile(client: KafkaClient, cluster: MockCluster, run: Runner) -> None:
    """No lock is held while user code runs."""
    leave = client.handler.Event()
    entered = client.handler.Event()

    def slow(partitions: Any, key: Any) -> int:
        if key == b"slow":
            entered.set()
            leave.wait(LIMIT_S)
        return 0

    producer = client.get_producer(partitioner=slow, linger_ms=0)
    waiting = run.aside(lambda: producer.produce("t", b"1", b"slow"))
    assert entered.wait(LIMIT_S)
    assert producer.produce("t", b"2", b"quick").result(LIMIT_S).offset == 0
    producer.flush(LIMIT_S)
    leave.set()
    assert waiting.result().result(LIMIT_S).offset == 1


def test_closing_while_others_wait_ends_their_waits(client: KafkaClient, cluster: MockCluster, run: Runner) -> None:
    cluster.on("Produce", Delay(120), times=None)
    producer = client.get_producer(buffer_bytes=8192, batch_bytes=1024, max_request_bytes=4096, max_block_ms=120_000, linger_ms=0)

    def stuff() -> None:
        while True:
            producer.produce("t", b"x" * 900)

    waiting = run.aside(lambda: producer.produce("t", b"y").result(LIMIT_S))
    run.until(lambda: producer.stats()["unsettled_records"] > 0)
    blocked = run.aside(stuff)
    run.until(lambda: client.cluster.memory.contended)
    flushing = run.aside(lambda: producer.flush(LIMIT_S))
    run.until(lambda: producer._driver.sender.flushing)
    held = producer.stats()["unsettled_records"]
    with Clock() as clock:
        with pytest.raises(DeliveryError) as caught:
            producer.close(0.1)
        with pytest.raises(ProducerStoppedException):
            blocked.result()
        with pytest.raises((ProducerStoppedException, KafkaTimeoutError)):
            waiting.result()
        with pytest.raises(ProducerStoppedException):
            flushing.result()
    assert clock.seconds < 30
    assert len(caught.value.records) == held, "close() lists them, not whoever flushes meanwhile"


def test_callbacks_go_on_when_their_worker_was_killed(client: KafkaClient, run: Runner) -> None:
    """By a timeout that a callback left behind: it strikes between two of them."""
    if not run.gevent:
        pytest.skip("threads are not killed")
    import gevent

    called: list[Any] = []
    by_worker: list[Any] = []
    me = gevent.getcurrent()
    producer = client.get_producer(linger_ms=1)

    def careless(delivery: Any) -> None:
        called.append(delivery)
        if gevent.getcurrent() is not me:  # what is done already is called at once, by who adds the callback
            by_worker.append(delivery)
            if len(by_worker) == 10:
                gevent.Timeout(0.0001).start()
        time.sleep(0.0002)  # so that others get their turn in between

    deliveries = []
    for i in range(1000):
        deliveries.append(producer.produce("t", b"%d" % i, partition=0))
        deliveries[-1].add_done_callback(careless)
    producer.flush(LIMIT_S)
    assert len(by_worker) > 10
    assert sorted(d.index for d in called) == sorted(d.index for d in deliveries)
    assert producer.stats()["buffer_bytes_free"] == producer.config.buffer_bytes


def test_callbacks_are_called_although_their_worker_could_not_be_started_at_first(
    client: KafkaClient, run: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[Any] = []
    producer = client.get_producer(linger_ms=1)
    producer.produce("t", b"0").result(LIMIT_S)
    spawn, refused = client.handler.spawn, []

    def spawn_later(*args: Any, **about: Any) -> Any:
        if about.get("_name") == "gkafka-callbacks" and not refused:
            refused.append(about)
            raise RuntimeError("can't start new thread")
        return spawn(*args, **about)

    monkeypatch.setattr(client.handler, "spawn", spawn_later)
    delivery = producer.produce("t", b"1")
    delivery.add_done_callback(called.append)
    assert delivery.result(LIMIT_S).offset == 1
    producer.flush(LIMIT_S)
    assert called == [delivery]
    assert refused


SIGNALLED = """
    import signal, sys, os, time
    import gevent
    from gkafka import KafkaClient
    from gkafka.testing import MockCluster

    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))
    called = []

    def callback(delivery):
        called.append(delivery.result(0).offset)
        if len(called) == 2:
            os.kill(os.getpid(), NUMBER)
            while True:
                pass

    cluster = MockCluster(topics={"t": 1})
    client = KafkaClient(cluster.bootstrap, handler="gevent")
    producer = client.get_producer(on_delivery=callback)
    try:
        for _ in range(5):
            producer.produce("t", b"v")
        gevent.sleep(100)
    except (KeyboardInterrupt, SystemExit) as error:
        print(type(error).__name__)
    client.close(60)
    print(called)
    cluster.close()
"""


@pytest.mark.parametrize("patched", [False, True], ids=["unpatched", "patched"])
@pytest.mark.parametrize(("number", "error"), [("signal.SIGINT", "KeyboardInterrupt"), ("signal.SIGTERM", "SystemExit")])
def test_a_signal_that_finds_a_callback_on_cpu_reaches_the_main_greenlet(patched: bool, number: str, error: str) -> None:
    """It was taken for a failure of the callback, and the program went on. The other callbacks are called."""
    out = run_program(SIGNALLED.replace("NUMBER", number), patched=patched)
    assert out.splitlines() == [error, "[0, 1, 2, 3, 4]"]


def test_callbacks_that_take_long_let_others_have_their_turn(client: KafkaClient, run: Runner) -> None:
    """Each is one stall of a hub, not a hundred of them."""
    if not run.gevent:
        pytest.skip("threads have their turns anyway")

    def burn(delivery: Any) -> None:
        busy(0.01)
        turns_before.append(others.turns)

    turns_before: list[int] = []
    producer = client.get_producer(on_delivery=burn, linger_ms=60_000)
    for _ in range(60):
        producer.produce("t", b"v")
    with Others() as others:
        producer.flush(LIMIT_S)
    assert len(turns_before) == 60
    assert max(Counter(turns_before).values()) <= 3, "callbacks between two turns of others"
