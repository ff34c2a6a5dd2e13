"""Both ways of concurrency, a cluster in this process, and a client of it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gkafka import KafkaClient
from gkafka.exceptions import KafkaException
from gkafka.handlers import GEventHandler, Handler, ThreadingHandler
from gkafka.testing import MockCluster
from tests.kit.clock import soon
from tests.promises.aids import LIMIT_S


@pytest.fixture(params=["threading", "gevent"])
def handler(request: pytest.FixtureRequest) -> Iterator[Handler]:
    made: Handler = ThreadingHandler() if request.param == "threading" else GEventHandler()
    yield made
    made.stop(soon(LIMIT_S))


@pytest.fixture
def usual_topics() -> dict[str, int]:
    return {"t": 1, "many": 4}


@pytest.fixture
def connect(handler: Handler) -> Iterator[Callable[..., KafkaClient]]:
    made: list[KafkaClient] = []

    def make(cluster: MockCluster, **options: Any) -> KafkaClient:
        made.append(KafkaClient(cluster.bootstrap, **{"handler": handler, **options}))
        return made[-1]

    yield make
    for client in made:
        with contextlib.suppress(KafkaException):  # what could not be delivered is the test's business
            client.close(2.0)


@pytest.fixture
def client(connect: Callable[..., KafkaClient], cluster: MockCluster) -> KafkaClient:
    return connect(cluster)
