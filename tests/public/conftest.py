"""The public suite: each test runs on threads and on greenlets (unpatched), against brokers in this process.

Which implementation of the records is used is the environment's: GKAFKA_IMPL=python and GKAFKA_IMPL=cython run the suite twice.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gkafka import KafkaClient
from gkafka.exceptions import KafkaException
from gkafka.testing import MockCluster
from tests.kit.clock import now
from tests.public.aids import Runner

Connect = Callable[..., KafkaClient]
HERE = Path(__file__).parent
LATE = (
    "client.STOP_S",
    "balancedconsumer.STOP_S",
    "managedbalancedconsumer.STOP_S",
    "producerdriver.STUCK_S",
    "fetchdriver.STUCK_S",
    "fetchdriver.TICK_S",
    "nativeconsumer.TICK_S",
    "consumer.TICK_S",
    "membership.TICK_S",
)


SAME_ON_THE_TWIN = {"test_bad_consumer_input", "test_bad_input", "test_cut_ends", "test_exit_in_listeners", "test_secrets"}
"""Files whose claims are decided where no record is read or written, and whose waits others have recorded: played once."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if os.environ.get("GKAFKA_IMPL") != "python" or os.environ.get("GKAFKA_HANDLERS") != "recording":
        return
    left = [item for item in items if item.path.parent == HERE and item.path.stem in SAME_ON_THE_TWIN]
    config.hook.pytest_deselected(items=left)
    items[:] = [item for item in items if item not in set(left)]


@pytest.fixture(autouse=True)
def short_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """An unknown topic is given up after less than the 5 s that a real cluster may need to tell all its brokers."""
    monkeypatch.setattr("gkafka.cluster.UNKNOWN_TOPIC_PATIENCE_S", 0.5)


@pytest.fixture(autouse=True)
def no_help_from_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """What mends or ends by itself a few seconds later, although nobody has seen to it, takes so long here that the test fails."""
    for late in LATE:
        monkeypatch.setattr(f"gkafka.{late}", 100.0)


@pytest.fixture(params=["threading", "gevent"])
def run(request: pytest.FixtureRequest) -> Runner:
    """The way of concurrency under test."""
    return Runner(request.param)


@pytest.fixture
def connect(run: Runner, make_cluster: Callable[..., MockCluster]) -> Iterator[Connect]:
    """Makes clients; each is closed at the end, before its cluster, and must have ended its workers then."""
    made: list[KafkaClient] = []

    def make(hosts: MockCluster | str, **options: Any) -> KafkaClient:
        address = hosts if isinstance(hosts, str) else hosts.bootstrap
        made.append(KafkaClient(address, **{"handler": run.name, **options}))
        return made[-1]

    yield make
    for client in made:
        begun = now()
        with contextlib.suppress(KafkaException):  # what could not be delivered is the test's business
            client.close(2.0)
        assert now() - begun < 30, "close() took long"
        run.until(lambda handler=client.handler: not any(w.is_alive() for w in handler.workers()))


@pytest.fixture
def client(connect: Connect, cluster: MockCluster) -> KafkaClient:
    """A client of `cluster`."""
    return connect(cluster)
