"""close() from another thread than that of the client's hub, which stands still: it ends by its timeout."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from gkafka import KafkaClient
from gkafka.nativeproducer import NativeProducer
from gkafka.testing import MockCluster
from tests.public.aids import LIMIT_S, Clock

GRACE_S = 0.5


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
        assert clock.seconds <= timeout + GRACE_S
    finally:
        go_on.set()
        thread.join(LIMIT_S)
