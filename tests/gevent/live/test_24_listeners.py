"""24: what a group's listeners and a producer's callbacks do costs nobody else anything: they raise, wait, call back in, and compute."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import gevent
import pytest

from gkafka import KafkaClient
from gkafka.exceptions import KafkaException
from tests.effort import quick_and_thorough
from tests.gevent import harness
from tests.gevent.harness import LIMIT_S, PATCHED, UNPATCHED, connect, in_children
from tests.kit.clock import Span, busy, now
from tests.live.kafka import KafkaCluster


def others_go_on(producer: Any, topic: str) -> None:
    """A listener that waits until another greenlet has used the same client."""
    sent = 0

    def send() -> None:
        nonlocal sent
        while True:
            producer.produce(topic, b"beside").result(LIMIT_S)
            sent += 1

    beside = gevent.spawn(send)
    deadline = now() + LIMIT_S
    while sent < 3 and now() < deadline:
        gevent.sleep(0.1)
    beside.kill()
    assert sent >= 3, f"{sent} records were sent while a listener waited"


CALL_S, ENDED_S = 80.0, 40.0
"""A call that waits for the listener that made it ends at its own deadline, CALL_S; what ends before ENDED_S has not waited so."""

LISTENERS: dict[str, Callable[[KafkaClient, Any, Any, str], object]] = {
    "raises": lambda client, producer, consumer, topic: 1 // 0,
    "waits": lambda client, producer, consumer, topic: others_go_on(producer, topic),
    "flush": lambda client, producer, consumer, topic: producer.flush(CALL_S),
    "commit": lambda client, producer, consumer, topic: consumer.commit(timeout=CALL_S),
    "close of the producer": lambda client, producer, consumer, topic: producer.close(CALL_S),
    "stop": lambda client, producer, consumer, topic: consumer.stop(),
    "close of the client": lambda client, producer, consumer, topic: client.close(CALL_S),
}
ENDS = ("stop", "close of the client")
SESSION_S, BURN_S = 10.0, 0.5


def listeners(hosts: str, topic: str) -> None:
    """Each in a group of its own, all at once. Whoever is not stopped consumes afterwards."""
    took: dict[str, Span] = {}
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
            began = now()
            try:
                LISTENERS[what](client, producer, consumer, topic)
            except KafkaException as error:
                raise AssertionError(f"{what}: {error}") from error
            finally:
                took[what] = now() - began

        consumer = client.get_consumer(topic, f"{topic}-{harness.mode}-{what}".replace(" ", "-"), on_assigned=on_assigned)
        deadline = now() + LIMIT_S
        message = None
        while not message and not (what in took and what in ENDS):
            assert now() < deadline, what
            try:
                message = consumer.consume(500)
            except KafkaException:
                assert what in ENDS, what
            except ZeroDivisionError:
                assert what == "raises", what
        client.close(CALL_S)

    jobs = {what: gevent.spawn(one, what) for what in LISTENERS}
    gevent.joinall(jobs.values(), timeout=CALL_S)
    for job in jobs.values():
        job.get(block=False)
    assert took.keys() == LISTENERS.keys()
    assert ["listener failed" in text for text in told] == [True], f"the one that raises is told, and no other: {told}"
    assert all(seconds < ENDED_S for what, seconds in took.items() if what != "waits"), took


def computing_callbacks(hosts: str, topic: str, burns: int) -> None:
    """Callbacks that compute for more than a session, half a second each, beside a member of a group."""
    told: list[str] = []
    with connect(hosts) as client:
        options = {
            "session_timeout_ms": 1000 * SESSION_S,
            "heartbeat_interval_ms": 1000,
            "on_lost": lambda *_: told.append("lost"),
            "on_revoked": lambda *_: told.append("revoked"),
        }
        consumer = client.get_consumer(topic, f"{topic}-{harness.mode}", **options)
        joined = now() + LIMIT_S
        while not consumer.assignment():
            assert now() < joined
            consumer.consume(100)
        called = [0]

        def burn(delivery: Any) -> None:
            busy(BURN_S)
            called[0] += 1

        producer = client.get_producer(on_delivery=burn)
        for n in range(burns):
            producer.produce(topic, b"%d" % n)
        deadline = now() + 2 * LIMIT_S
        while called[0] < burns:
            assert now() < deadline, called
            consumer.consume(50)
        assert told == [], f"membership was not kept: {told}"
        assert consumer.assignment()


def test_24_listeners_may_do_anything(kafka: KafkaCluster, new_topic: Callable[..., str]) -> None:
    in_children([UNPATCHED, PATCHED], listeners, kafka.hosts, filled(kafka, new_topic()))


@pytest.mark.parametrize("burns", quick_and_thorough(24, 60))
def test_24_callbacks_that_compute_cost_no_membership(kafka: KafkaCluster, new_topic: Callable[..., str], burns: int) -> None:
    assert burns * BURN_S > SESSION_S
    in_children([UNPATCHED, PATCHED], computing_callbacks, kafka.hosts, new_topic(2), burns)


def filled(kafka: KafkaCluster, topic: str) -> str:
    with KafkaClient(kafka.hosts, handler="threading") as client:
        client.get_producer().produce(topic, b"there").result(LIMIT_S)
    return topic
