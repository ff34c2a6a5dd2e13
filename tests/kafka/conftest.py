"""Clusters in this process, and kafka-python's clients of them on both ways of concurrency."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gkafka.kafka import KafkaConsumer, KafkaProducer
from gkafka.testing import MockCluster

Make = Callable[..., Any]


@pytest.fixture(params=["threading", "gevent"])
def handler(request: pytest.FixtureRequest) -> str:
    """The way of concurrency under test."""
    name: str = request.param
    return name


def _making(kind: Any, handler: str) -> Iterator[Make]:
    made: list[Any] = []

    def make(cluster: MockCluster, *args: Any, **options: Any) -> Any:
        made.append(
            kind(*args, **{"bootstrap_servers": cluster.bootstrap, "handler": handler, "api_version_auto_timeout_ms": 60_000, **options})
        )
        return made[-1]

    yield make
    for one in made:
        if kind is KafkaConsumer:
            one.close(timeout_ms=3000)
        else:
            one.close(3)


@pytest.fixture
def producer(handler: str, make_cluster: Callable[..., MockCluster]) -> Iterator[Make]:
    """Makes KafkaProducers: producer(cluster, **options)."""
    yield from _making(KafkaProducer, handler)


@pytest.fixture
def consumer(handler: str, make_cluster: Callable[..., MockCluster]) -> Iterator[Make]:
    """Makes KafkaConsumers: consumer(cluster, *topics, **options)."""
    yield from _making(KafkaConsumer, handler)
