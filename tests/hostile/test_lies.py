"""A broker that lies once, in well-formed answers, harms a client no longer than the lie lasts: what it was told is not believed for ever."""

from __future__ import annotations

import contextlib
import copy
import os
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gkafka import KafkaClient
from gkafka.exceptions import AdminError, KafkaException, ProtocolError
from gkafka.handlers import Handler, resolve_handler
from gkafka.testing import Corrupt, Edit, MockCluster
from gkafka.wire.metadata import MetadataResponseBroker
from tests.hostile.life import QUICK
from tests.kit.clock import now
from tests.kit.ports import refused_port

TOPIC = "lies"
SOON_S = 60.0
"""When everything has to be well again, at the latest; it takes tenths of a second."""
METADATA = 3
LATE_EPOCH = 2**31 - 1
INVENTED = 300
AT_ONCE = 32


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


def until(client: KafkaClient, done: Callable[[], object]) -> None:
    end = now() + SOON_S
    while not done():
        assert now() < end
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
    port = refused_port()

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
    options: dict[str, Any] = {**QUICK, "socket_timeout_ms": 60_000, "connect_timeout_ms": 60_000, "max_response_bytes": 16 << 20}
    with MockCluster(topics={}) as cluster, KafkaClient(cluster.bootstrap, handler=handler, **options) as client:
        brokers = [MetadataResponseBroker(node_id=node, host="h", port=1) for node in range(100_001)]
        cluster.on("Metadata", Lying(lambda answer: setattr(answer, "brokers", brokers)).edit, times=None)
        with pytest.raises(ProtocolError, match="more than 100000 entries"):
            client.connect(SOON_S)
        assert cluster.count("Metadata") <= 2, "once, and perhaps once more after the pause"


# -- brokers that are none -----------------------------------------------------------------------------------------------
def inventing(port: int, host: str = "127.0.0.1") -> Callable[[Any], None]:
    """So many more brokers, all of them at this address."""

    def change(answer: Any) -> None:
        for id_ in range(100, 100 + INVENTED):
            told = copy.copy(answer.brokers[0])
            told.node_id, told.host, told.port = id_, host, port
            answer.brokers.append(told)

    return change


@contextlib.contextmanager
def silent_port() -> Iterator[int]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(2 * INVENTED)
        yield listener.getsockname()[1]


class Peak:
    """The most threads and descriptors that this process has had beyond those that it began with."""

    def __init__(self, handler: Handler) -> None:
        self._handler, self.watches = handler, True
        self._before = self._now()
        self.threads = self.descriptors = 0
        handler.spawn(self._watch)

    def _now(self) -> tuple[int, int]:
        return len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))

    def _watch(self) -> None:
        while self.watches:
            threads, descriptors = self._now()
            self.threads = max(self.threads, threads - self._before[0])
            self.descriptors = max(self.descriptors, descriptors - self._before[1])
            self._handler.sleep(0.02)


@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="counts threads as Linux tells them")
def test_invented_brokers_cost_32_connections_at_once_and_no_more_than_the_calls_time(
    cluster: MockCluster, client: KafkaClient, handler: Handler
) -> None:
    """2,500 of them were 2,505 threads and 2,514 descriptors, and a call with 4 seconds took 6 to 10."""
    with silent_port() as port:
        cluster.on("Metadata", Lying(inventing(port)).edit, times=None)
        client.connect(SOON_S)
        peak = Peak(handler)
        for timeout in (0.8, 4.0):  # the second one has time for connections that do not open (3 s), and for others after them
            began = now()
            with pytest.raises(AdminError, match=f"listing groups: {INVENTED} of {INVENTED + 1} failed") as caught:
                client.admin().list_groups(timeout=timeout)
            assert now() - began < timeout + 20, "so many that do not open take 28 s"
            assert caught.value.results == {}, "by group: the one that answered has none"
            assert any("32 brokers are asked at once" in str(error) for error in caught.value.errors.values())
        peak.watches = False
        assert AT_ONCE / 4 < peak.descriptors < 2 * AT_ONCE
        assert peak.threads < 2 * AT_ONCE
        connections = [each for broker in client._cluster.stats()["brokers"] for each in broker["connections"]]
        assert len(connections) <= 2, "those that nobody answers on are not kept"


def test_invented_brokers_that_answer_are_not_stayed_connected_to(cluster: MockCluster, client: KafkaClient) -> None:
    cluster.on("Metadata", Lying(inventing(cluster.brokers[1][1], "localhost")).edit, times=None)
    assert client.admin().list_groups(timeout=SOON_S) == {}
    assert cluster.count("ListGroups") == INVENTED + 1
    connections = [each for broker in client._cluster.stats()["brokers"] for each in broker["connections"]]
    assert len(connections) <= 2


def test_two_brokers_at_one_address_are_asked_as_one(cluster: MockCluster, client: KafkaClient) -> None:
    """It was a ValueError."""
    cluster.on("Metadata", Lying(inventing(cluster.brokers[1][1])).edit, times=None)
    assert client.admin().list_groups(timeout=SOON_S) == {}
    assert cluster.count("ListGroups") == 1


@pytest.mark.parametrize(("pause_s", "tries"), [(0.0, 3), (0.6, 1)])
def test_an_answer_that_is_none_and_takes_long_is_told_without_more_tries(
    handler: Handler, monkeypatch: pytest.MonkeyPatch, pause_s: float, tries: int
) -> None:
    """400,000 brokers in an answer that ends too early take as long to be read: three of them were 2.4 s."""

    if not pause_s:
        monkeypatch.setattr("gkafka.cluster.LONG_TRY_S", 1000.0)  # what a busy machine makes long is not

    def cut(frame: bytes) -> bytes:
        time.sleep(pause_s)
        return (len(frame) - 7).to_bytes(4, "big") + frame[4:-3]

    with MockCluster(topics={TOPIC: 1}) as cluster:
        cluster.on("Metadata", Corrupt(cut), times=None)
        client = KafkaClient(cluster.bootstrap, handler=handler)
        with pytest.raises(ProtocolError, match="Metadata response v"):
            client.topics[TOPIC]
        assert len(cluster.requests("Metadata")) == tries
        client.close()
