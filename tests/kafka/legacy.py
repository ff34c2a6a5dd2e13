"""What the tests of kafka-python 0.9's API share."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from gkafka.testing import MockCluster
from tests.kit.clock import now

Make = Callable[..., Any]
LIMIT_S = 60.0


def fill(cluster: MockCluster, values: dict[int, list[bytes]], topic: str = "t") -> None:
    """Records by partition, each in a batch of its own."""
    from gkafka import KafkaClient

    with KafkaClient(cluster.bootstrap, handler="threading") as client, client.get_producer(linger_ms=0) as producer:
        for partition, given in values.items():
            for value in given:
                producer.produce(topic, value, partition=partition).result(LIMIT_S)


def values(messages: list[Any]) -> list[bytes]:
    """Of SimpleConsumer's messages."""
    return [m.message.value for m in messages]


def committed(cluster: MockCluster, group: str = "g", topic: str = "t") -> dict[int, int]:
    """Partition to offset."""
    return {p: entry.offset for (t, p), entry in cluster.committed(group).items() if t == topic}


def eventually(what: Callable[[], Any], limit_s: float = LIMIT_S, sleep: Callable[[float], object] = time.sleep) -> Any:
    """What it gives as soon as that is true. sleep: of the handler, whose workers may be greenlets."""
    deadline = now() + limit_s
    while not (found := what()):
        assert now() < deadline, "it did not come about"
        sleep(0.01)
    return found


def fetches(cluster: MockCluster) -> list[Any]:
    """The partitions of the Fetch requests with their request: (request, partition)."""
    return [(r.message, p) for r in cluster.requests("Fetch") for t in r.message.topics for p in t.partitions]
