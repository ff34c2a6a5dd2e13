"""24: what a group's listeners and a producer's callbacks do costs nobody else anything: they raise, wait, call back in, and compute."""

from __future__ import annotations

import logging
from collections.abc import Callable
from time import monotonic
from typing import Any

import gevent
import pytest

from gkafka import KafkaClient
from gkafka.exceptions import KafkaException
from tests.effort import quick_and_thorough
from tests.gevent import harness
from tests.gevent.harness import LIMIT_S, PATCHED, UNPATCHED, connect, in_children
from tests.live.kafka import KafkaCluster


def others_go_on(producer: Any, topic: str) -> None:
    """A listener that waits for a second, while another greenlet uses the same client."""
    sent = 0

    def send() -> None:
        nonlocal sent
        while True:
            producer.produce(topic, b"beside").result(LIMIT_S)
            sent += 1

    beside = gevent.spawn(send)
    gevent.sleep(1)
    deadline = monotonic() + LIMIT_S / 4  # on a busy machine
    while sent < 3 and monotonic() < deadline:
        gevent.sleep(0.1)
    beside.kill()
    assert sent >= 3, f"{sent} records were sent while a listener waited"


LISTENERS: dict[str, Callable[[KafkaClient, Any, Any, str], object]] = {
    "raises": lambda client, producer, consumer, topic: 1 // 0,
    "waits": lambda client, producer, consumer, topic: others_go_on(producer, topic),
    "flush": lambda client, producer, consumer, topic: producer.flush(5),
    "commit": lambda client, producer, consumer, topic: consumer.commit(timeout=5),
    "close of the producer": lambda client, producer, consumer, topic: producer.close(5),
    "stop": lambda client, producer, consumer, topic: consumer.stop(),
    "close of the client": lambda client, producer, consumer, topic: client.close(5),
}
ENDS = ("stop", "close of the client")
SESSION_S, BURN_S = 6.0, 0.2


def listeners(hosts: str, topic: str) -> None:
    """Each in a group of its own, all at once. Whoever is not stopped consumes afterwards."""
    took: dict[str, float] = {}
    told: list[str] = []
    log = logging.Handler(logging.ERROR)
    log.emit = lambda record: told.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("gkafka").addHandler(log)
    logging.getLogger("gkafka").propagate = False

    def one(what: str) -> None:
        client = connect(hosts)
        producer = client.get_producer()
        begun: list[bool] = []

        def on_assigned(consumer: Any, partitions: Any) -> None:
            if begun:
                return
            begun.append(True)
            producer.produce(topic, b"from the listener")
            began = monotonic()
            try:
                LISTENERS[what](client, producer, consumer, topic)
            except KafkaException as error:
                raise AssertionError(f"{what}: {error}") from error
            finally:
                took[what] = monotonic() - began

        consumer = client.get_consumer(topic, f"{topic}-{harness.mode}-{what}".replace(" ", "-"), on_assigned=on_assigned)
        deadline = monotonic() + LIMIT_S
        message = None
        while not message and not (what in took and what in ENDS):
            assert monotonic() < deadline, what
            try:
                message = consumer.consume(500)
            except KafkaException:
                assert what in ENDS, what
            except ZeroDivisionError:
                assert what == "raises", what
        client.close(5)

    jobs = {what: gevent.spawn(one, what) for what in LISTENERS}
    gevent.joinall(jobs.values(), timeout=LIMIT_S)
    for job in jobs.values():
        job.get(block=False)
    assert took.keys() == LISTENERS.keys()
    assert ["listener failed" in text for text in told] == [True], f"the one that raises is told, and no other: {told}"
    assert all(seconds < 5.5 for what, seconds in took.items() if what != "waits"), took


def computing_callbacks(hosts: str, topic: str, burns: int) -> None:
    """Callbacks that compute for more than a session, 0.2 s each, beside a member of a group."""
    told: list[str] = []
    with connect(hosts) as client:
        options = {
            "session_timeout_ms": 1000 * SESSION_S,
            "heartbeat_interval_ms": 1000,
            "on_lost": lambda *_: told.append("lost"),
            "on_revoked": lambda *_: told.append("revoked"),
        }
        consumer = client.get_consumer(topic, f"{topic}-{harness.mode}", **options)
        while not consumer.assignment():
            consumer.consume(100)
        called = [0]

        def burn(delivery: Any) -> None:
            end = monotonic() + BURN_S
            while monotonic() < end:
                pass
            called[0] += 1

        producer = client.get_producer(on_delivery=burn)
        for n in range(burns):
            producer.produce(topic, b"%d" % n)
        deadline = monotonic() + LIMIT_S
        while called[0] < burns:
            assert monotonic() < deadline, called
            consumer.consume(50)
        assert told == [], f"membership was not kept: {told}"
        assert consumer.assignment()


def test_24_listeners_may_do_anything(kafka: KafkaCluster, new_topic: Callable[..., str]) -> None:
    in_children([UNPATCHED, PATCHED], listeners, kafka.hosts, filled(kafka, new_topic()))


@pytest.mark.parametrize("burns", quick_and_thorough(40, 100))
def test_24_callbacks_that_compute_cost_no_membership(kafka: KafkaCluster, new_topic: Callable[..., str], burns: int) -> None:
    assert burns * BURN_S > SESSION_S
    in_children([UNPATCHED, PATCHED], computing_callbacks, kafka.hosts, new_topic(2), burns)


def filled(kafka: KafkaCluster, topic: str) -> str:
    with KafkaClient(kafka.hosts, handler="threading") as client:
        client.get_producer().produce(topic, b"there").result(LIMIT_S)
    return topic
