"""A broker that takes requests and says nothing: the time-out of each request ends that."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gkafka import KafkaClient
from gkafka.testing import Drop
from tests.public.aids import LIMIT_S, Runner

Connect = Callable[..., KafkaClient]


def test_a_request_on_a_connection_that_another_producer_opened_ends_at_its_own_time(
    connect: Connect, make_cluster: Any, run: Runner
) -> None:
    """With threads that producer's worker reads the connection, and sleeps as long as nothing is due."""
    cluster = make_cluster(topics={"t": 1})
    client = connect(cluster)
    first, second = client.get_producer(), client.get_producer(request_timeout_ms=1000)
    first.rest(LIMIT_S * 10)
    first.produce("t", b"1").result(LIMIT_S)
    run.sleep(1.5)  # it looks around once more, a second after its last request
    cluster.on("Produce", Drop(before=True), times=1)
    assert second.produce("t", b"2").result(LIMIT_S).offset == 1
    assert cluster.count("Produce") == 3
