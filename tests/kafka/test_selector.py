"""selector (behaviour 272): the class of `selectors` that waits for what connections bring."""

from __future__ import annotations

import selectors
from typing import Any

import gevent.selectors
import pytest

from gkafka.handlers import ThreadingHandler
from gkafka.kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from gkafka.kafka.errors import KafkaConfigurationError
from gkafka.testing import MockCluster

KINDS: dict[Any, Any] = {
    KafkaConsumer: lambda client: client.topics(),
    KafkaProducer: lambda client: client.send("t", b"v").get(60),
    KafkaAdminClient: lambda client: client.list_topics(),
}
CLASSES = [getattr(selectors, name) for name in ("SelectSelector", "PollSelector", "EpollSelector") if hasattr(selectors, name)]


@pytest.mark.parametrize("base", CLASSES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_selector_of_the_applications_own_does_the_waiting(cluster: MockCluster, kind: Any, base: Any) -> None:
    made: list[Any] = []

    class Counting(base):  # type: ignore[misc]
        waits = ended = 0

        def __init__(self) -> None:
            super().__init__()
            made.append(self)

        def select(self, timeout: float | None = None) -> Any:
            Counting.waits += 1
            return super().select(timeout)

        def close(self) -> None:
            super().close()
            self.ended = 1

    with kind(bootstrap_servers=cluster.bootstrap, selector=Counting) as client:
        assert client._client.handler.name == "threading"
        KINDS[kind](client)
    assert Counting.waits > 0
    assert all(selector.ended for selector in made), "each was closed with its connection"


def test_the_documented_default_is_what_is_best_here(cluster: MockCluster, handler: str) -> None:
    for usual in (None, selectors.DefaultSelector):
        with KafkaConsumer(bootstrap_servers=cluster.bootstrap, selector=usual, handler=handler) as reading:
            assert reading._client.handler.name == handler


def test_gevents_selector_means_greenlets(cluster: MockCluster) -> None:
    for handler in ("auto", "gevent"):
        with KafkaConsumer(bootstrap_servers=cluster.bootstrap, selector=gevent.selectors.DefaultSelector, handler=handler) as reading:
            assert reading._client.handler.name == "gevent"
            assert "t" in reading.topics()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"selector": selectors.SelectSelector, "handler": "gevent"}, "greenlets wait in gevent's selectors"),
        ({"selector": gevent.selectors.DefaultSelector, "handler": "threading"}, "threads in those of the standard library"),
        ({"selector": selectors.SelectSelector, "handler": ThreadingHandler()}, r"give ThreadingHandler\(selector=\.\.\.\)"),
        ({"selector": selectors.SelectSelector, "handler": "asyncio"}, "asyncio'.*must be one of"),
        ({"selector": object}, "must be a class of selectors"),
        ({"selector": "epoll"}, "must be a class of selectors"),
        ({"selector": lambda: 1 / 0}, "makes no selector: ZeroDivisionError"),
        ({"selector": selectors.BaseSelector}, "makes no selector: TypeError"),
    ],
)
@pytest.mark.parametrize("kind", KINDS)
def test_a_selector_that_cannot_wait_here_is_refused(kind: Any, given: dict[str, Any], said: str) -> None:
    with pytest.raises(KafkaConfigurationError, match=said):
        kind(bootstrap_servers="127.0.0.1:1", api_version=(2, 8), **given)
