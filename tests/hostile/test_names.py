"""What a broker names: hosts, topics, texts of errors. None of it becomes a connection to nowhere, or a line or a command in somebody's log."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from gkafka import KafkaClient
from gkafka.exceptions import KafkaException
from gkafka.testing import Edit, MockCluster
from tests.hostile.life import QUICK, TOPIC, cluster_for_life, consume
from tests.kit.clock import now
from tests.public.aids import error_of

EVIL = "evil\nERROR root: all is lost\x1b[31m\r\0\x85"


def brokers_at(**told: Any) -> Callable[[Any, Any], Any]:
    def edit(_request: Any, answer: Any) -> Any:
        for broker in answer.brokers:
            for field, value in told.items():
                setattr(broker, field, value)
        return answer

    return edit


def coordinator(**told: Any) -> Callable[[Any, Any], Any]:
    def edit(_request: Any, answer: Any) -> Any:
        for found in answer.coordinators:
            for field, value in told.items():
                setattr(found, field, value)
        return answer

    return edit


def assert_clean(texts: list[str]) -> None:
    for text in texts:
        assert text.isprintable(), repr(text)


def connected(client: KafkaClient) -> None:
    """What failed three times is told at once; the next tries go on behind that."""
    deadline = now() + 60
    while True:
        try:
            return client.connect(60)
        except KafkaException:
            assert now() < deadline
            client.handler.sleep(0.05)


def messages(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name.startswith("gkafka.") and "testing" not in record.name]


@pytest.fixture(params=["threading", "gevent"])
def handler(request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture) -> str:
    caplog.set_level(logging.DEBUG, "gkafka")
    return str(request.param)


def client_of(cluster: MockCluster, handler: str) -> KafkaClient:
    return KafkaClient(cluster.bootstrap, handler=handler, **{**QUICK, "api_timeout_ms": 20_000})


@pytest.mark.parametrize(
    "told",
    [{"host": EVIL}, {"host": ""}, {"host": "a b"}, {"host": "x" * 300}, {"port": 0}, {"port": -1}, {"port": 65536 + 22}],
    ids=str,
)
def test_metadata_with_an_address_that_is_none_are_refused(handler: str, told: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    """A port of 65558 was a connection to port 22."""
    with cluster_for_life() as cluster, client_of(cluster, handler) as client:
        cluster.on("Metadata", Edit(brokers_at(**told)), times=None)
        error = error_of(client.connect, 60)
        assert f"{cluster.bootstrap}: Metadata response: broker 1 is said to be at" in str(error)
        assert_clean([str(error), *messages(caplog)])
        cluster.clear_script()
        connected(client)


@pytest.mark.parametrize("told", [{"host": EVIL}, {"port": 65536 + 22}], ids=str)
def test_a_coordinator_at_an_address_that_is_none_is_looked_for_again(
    handler: str, told: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    with cluster_for_life() as cluster, client_of(cluster, handler) as client:
        cluster.on("FindCoordinator", Edit(coordinator(**told)), times=2)
        consume(client, "group")
        cluster.on("FindCoordinator", Edit(coordinator(**told)), times=1)
        with client.get_producer(transactional_id="x") as producer, producer.transaction():
            producer.produce(TOPIC, b"x")
        error = _find(cluster, client, told)
        assert "FindCoordinator response: the coordinator is said to be at" in str(error)
        assert error.about["api"] == "FindCoordinator"
        assert_clean([str(error), *messages(caplog)])


def test_metadata_with_a_partition_that_is_none_are_refused(handler: str) -> None:
    """Records without a key went to it, and produce() raised a ValueError from then on."""

    def more(_request: Any, answer: Any) -> Any:
        for topic in answer.topics:
            topic.partitions.append(type(topic.partitions[0])(partition_index=-(2**31), leader_id=1))
        return answer

    with cluster_for_life() as cluster, client_of(cluster, handler) as client:
        cluster.on("Metadata", Edit(more), times=None)
        assert f"Metadata response: topic '{TOPIC}' is said to have a partition -2147483648" in str(error_of(client.update_cluster))
        cluster.clear_script()
        connected(client)
        with client.get_producer() as producer:
            assert producer.produce(TOPIC, b"x").result(60).partition == 0


def _find(cluster: MockCluster, client: KafkaClient, told: dict[str, Any]) -> KafkaException:
    cluster.on("FindCoordinator", Edit(coordinator(**told)), times=1)
    return error_of(client.cluster.get_group_coordinator, "other")


def test_the_text_of_a_brokers_error_is_shown_on_one_line(handler: str, caplog: pytest.LogCaptureFixture) -> None:
    with cluster_for_life() as cluster, client_of(cluster, handler) as client:
        cluster.on("FindCoordinator", Edit(coordinator(error_code=24, error_message=EVIL * 500)))
        error = error_of(client.cluster.get_group_coordinator, "other")
        assert "all is lost\\x1b[31m" in str(error)
        assert len(str(error)) < 3000
        assert_clean([str(error), *messages(caplog)])


def test_topics_of_no_name_are_not_there(handler: str, caplog: pytest.LogCaptureFixture) -> None:
    def more(_request: Any, answer: Any) -> Any:
        for name in (EVIL, "..", "a/b", ""):
            answer.topics.append(type(answer.topics[0])(name=name))
        return answer

    with cluster_for_life() as cluster, client_of(cluster, handler) as client:
        cluster.on("Metadata", Edit(more), times=None)
        client.update_cluster()
        assert list(client.topics) == [TOPIC.encode()] or list(client.topics) == [TOPIC]
        assert_clean(messages(caplog))
