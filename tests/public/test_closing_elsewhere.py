"""close() from another thread than that of the client's hub: where that stands still it ends by its timeout, where it has ended it says so at once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import gevent
import pytest

from gkafka import KafkaClient
from gkafka.exceptions import HandlerThreadError
from gkafka.nativeproducer import NativeProducer
from gkafka.testing import MockCluster
from tests.public.aids import LIMIT_S, Clock, error_of


@pytest.mark.parametrize("timeout", [0, 1])
@pytest.mark.parametrize("close", [lambda client, producer, s: producer.close(s), lambda client, producer, s: client.close(s)])
def test_a_hub_that_stands_still_keeps_no_close_from_its_end(
    cluster: MockCluster, close: Callable[[KafkaClient, NativeProducer, float], None], timeout: float
) -> None:
    made: list[tuple[KafkaClient, NativeProducer]] = []
    ready, go_on = threading.Event(), threading.Event()

    def stand_still() -> None:
        client = KafkaClient(cluster.bootstrap, handler="gevent")
        producer = client.get_producer()
        producer.produce("t", b"x").result(LIMIT_S)
        made.append((client, producer))
        ready.set()
        go_on.wait(LIMIT_S)  # not patched: no greenlet of this thread goes on
        client.close()

    thread = threading.Thread(target=stand_still)
    thread.start()
    try:
        assert ready.wait(LIMIT_S)
        with Clock() as clock:
            close(*made[0], timeout)
        assert clock.seconds < 30
    finally:
        go_on.set()
        thread.join(LIMIT_S)


def at_work(consumer: Any) -> Any:
    consumer.consume_batch(1, 50)
    return consumer


THINGS: dict[str, Callable[[KafkaClient], Any]] = {
    "client": lambda client: client,
    "producer": lambda client: client.get_producer(),
    "consumer": lambda client: client.get_consumer("t"),
    "consumer that has consumed": lambda client: at_work(client.get_consumer("t")),
    "member": lambda client: client.get_consumer("t", "g"),
    "member that has consumed": lambda client: at_work(client.get_consumer("t", "g")),
    "simple": lambda client: client.topics["t"].get_simple_consumer("g", auto_commit_enable=True),
    "balanced": lambda client: client.topics["t"].get_balanced_consumer("g", managed=True),
}


@pytest.mark.parametrize("destroyed", [False, True])
@pytest.mark.parametrize("name", THINGS)
def test_where_the_hub_has_ended_each_end_says_so_at_once(cluster: MockCluster, name: str, destroyed: bool) -> None:
    made: list[Any] = []

    def begin() -> None:
        client = KafkaClient(cluster.bootstrap, handler="gevent")
        client.get_producer().produce("t", b"x").result(LIMIT_S)
        made.extend((client, THINGS[name](client)))
        if destroyed:
            gevent.get_hub().destroy()

    thread = threading.Thread(target=begin)
    thread.start()
    thread.join(LIMIT_S)
    client, thing = made
    for end in (getattr(thing, name, None) for name in ("stop", "close")) if thing is not client else ():
        for _ in range(0 if end is None else 2):
            with Clock() as clock:
                assert isinstance(error_of(end), HandlerThreadError)
            assert clock.seconds < 30
    with Clock() as clock:
        assert isinstance(error_of(client.close), HandlerThreadError)
    assert clock.seconds < 30
