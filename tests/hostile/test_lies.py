"""A broker that lies once, in well-formed answers, harms a client no longer than the lie lasts: what it was told is not believed for ever."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gkafka import KafkaClient
from gkafka.exceptions import KafkaException, ProtocolError
from gkafka.handlers import Handler, resolve_handler
from gkafka.testing import Edit, MockCluster
from gkafka.wire.metadata import MetadataResponseBroker
from tests.hostile.life import QUICK

TOPIC = "lies"
SOON_S = 5.0
"""When everything has to be well again, at the latest; it takes tenths of a second."""
METADATA = 3
LATE_EPOCH = 2**31 - 1


@pytest.fixture(params=["threading", "gevent"])
def handler(request: pytest.FixtureRequest) -> Handler:
    return resolve_handler(request.param)


@pytest.fixture
def cluster() -> Iterator[MockCluster]:
    with MockCluster(topics={TOPIC: 1}) as one:
        yield one


@pytest.fixture
def client(cluster: MockCluster, handler: Handler) -> Iterator[KafkaClient]:
    one = KafkaClient(cluster.bootstrap, handler=handler, **QUICK)
    yield one
    one.close(1)


class Lying:
    """An action for `cluster.on(api, ..., times=None)`: changes answers until it is told to stop."""

    def __init__(self, change: Callable[[Any], None]) -> None:
        self._change = change
        self.stopped = False
        self.edit = Edit(self._edited)

    def _edited(self, _request: Any, answer: Any) -> Any:
        if not self.stopped:
            self._change(answer)
        return answer


def dead_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


def until(client: KafkaClient, done: Callable[[], object]) -> None:
    end = time.monotonic() + SOON_S
    while not done():
        assert time.monotonic() < end
        client.handler.sleep(0.01)


def connects(client: KafkaClient) -> bool:
    """A call tells what the last tries met, and has the next one made."""
    try:
        client.connect(SOON_S)
    except KafkaException:
        return False
    return True


def test_a_broker_that_was_said_to_be_elsewhere_is_found_again_by_its_hosts(cluster: MockCluster, client: KafkaClient) -> None:
    """KIP-899. A producer could not get its producer id, and nobody asked where the broker is now."""
    port = dead_port()

    def moved(answer: Any) -> None:
        for broker in answer.brokers:
            broker.port = port

    lying = Lying(moved)
    cluster.on("Metadata", lying.edit, times=None)
    client.connect(SOON_S)
    delivery = client.get_producer().produce(TOPIC, b"x")
    asked = cluster.count("Metadata")
    until(client, lambda: cluster.count("Metadata") > asked + 1)
    assert not delivery.done()
    lying.stopped = True
    assert delivery.result(SOON_S).offset == 0
    assert [(b.host, b.port) for b in client.brokers.values()] == [cluster.brokers[1]]


def test_a_broker_that_once_denied_to_have_metadata_is_asked_again(cluster: MockCluster, client: KafkaClient) -> None:
    """What it says that it speaks holds for the connection; one that nothing can be asked on is closed."""

    def without_metadata(answer: Any) -> None:
        answer.api_keys = [key for key in answer.api_keys if key.api_key != METADATA]

    lying = Lying(without_metadata)
    cluster.on("ApiVersions", lying.edit, times=None)
    with pytest.raises(KafkaException):
        client.connect(SOON_S)
    lying.stopped = True
    assert cluster.count("ApiVersions") < 10, "not in a storm"
    until(client, lambda: connects(client))
    assert client.get_producer().produce(TOPIC, b"x").result(SOON_S).offset == 0


@pytest.mark.parametrize("handler", ["threading", "gevent"])
def test_metadata_of_too_many_entries_are_not_asked_for_three_times(handler: str) -> None:
    """Each try takes as long as reading so many does, and ends the same way."""
    with MockCluster(topics={}) as cluster, KafkaClient(cluster.bootstrap, handler=handler, **QUICK, max_response_bytes=16 << 20) as client:
        brokers = [MetadataResponseBroker(node_id=node, host="h", port=1) for node in range(100_001)]
        cluster.on("Metadata", Lying(lambda answer: setattr(answer, "brokers", brokers)).edit, times=None)
        with pytest.raises(ProtocolError, match="more than 100000 entries"):
            client.connect(10 * SOON_S)
        assert cluster.count("Metadata") == 1
