"""What the tests of the promises are written with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gkafka import KafkaClient
from gkafka.testing import MockCluster
from tests.kit.clock import PATIENCE_S, now

LIMIT_S = PATIENCE_S


def until(client: KafkaClient, true: Callable[[], Any]) -> None:
    """Wait, letting the client's workers run, for something that must happen."""
    deadline = now() + LIMIT_S
    while not true():
        assert now() < deadline, "it did not happen"
        client.handler.sleep(0.005)


def fill(client: KafkaClient, count: int, topic: str = "t") -> None:
    with client.topics[topic].get_producer(linger_ms=0) as producer:
        for i in range(count):
            producer.produce(b"%d" % i)


def consumer_of(client: KafkaClient, topic: str = "t", **options: Any) -> Any:
    return client.topics[topic].get_simple_consumer(**{"consumer_timeout_ms": 60_000, **options})


def values(cluster: MockCluster, topic: str = "t", partition: int = 0) -> list[bytes | None]:
    return [record.value for record in cluster.log(topic, partition)]
