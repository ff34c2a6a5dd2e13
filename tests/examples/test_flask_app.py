"""The Flask recipe while brokers are slow or away: which status each request gets, what is in the log afterwards, and what a repeated POST leaves there."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from gkafka.exceptions import DeliveryError, TopicAuthorizationFailed
from gkafka.testing import Delay, Error, MockCluster
from tests.handlers.hub import ROOT

KEY = {"Idempotency-Key": "order-17"}
HELD = [("idempotency-key", b"order-17")]
Application = Callable[..., Any]


@pytest.fixture
def cluster() -> Iterator[MockCluster]:
    with MockCluster(topics={"flask": 4}) as cluster:
        yield cluster


@pytest.fixture
def application(cluster: MockCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[Application]:
    """Loads the recipe with these settings."""
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    loaded: list[Any] = []

    def load(**settings: str) -> Any:
        for name, value in {"KAFKA_HOSTS": cluster.bootstrap, "KAFKA_HANDLER": "threading", **settings}.items():
            monkeypatch.setenv(name, value)
        loaded.append(importlib.import_module("flask_app"))
        return loaded[-1]

    yield load
    sys.modules.pop("flask_app", None)
    sys.modules.pop("recipe", None)
    for module in loaded:
        with suppress(DeliveryError):  # it lists what a broker has refused
            module.producer().close()


def logged(cluster: MockCluster) -> list[tuple[bytes | None, bytes | None, list[Any]]]:
    return [(record.key, record.value, list(record.headers)) for partition in range(4) for record in cluster.log("flask", partition)]


def test_a_wait_that_is_over_before_the_answer_is_a_202_and_the_record_arrives(application: Application, cluster: MockCluster) -> None:
    recipe = application(KAFKA_WAIT_S="0.3")
    cluster.on("Produce", Delay(3), times=1)
    answer = recipe.app.test_client().post("/records", data=b"one", headers=KEY)
    assert (answer.status_code, answer.json["state"]) == (202, "accepted, not acknowledged yet")
    recipe.producer().flush(60)
    assert logged(cluster) == [(b"order-17", b"one", HELD)]


def test_a_repeated_post_is_known_by_its_key_in_the_same_partition(application: Application, cluster: MockCluster) -> None:
    recipe = application(KAFKA_WAIT_S="60")
    answers = [recipe.app.test_client().post("/records", data=b"one", headers=KEY) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [200, 200]
    assert len({answer.json["partition"] for answer in answers}) == 1
    assert [answer.json["offset"] for answer in answers] == [0, 1]
    assert logged(cluster) == [(b"order-17", b"one", HELD)] * 2
    assert recipe.app.test_client().post("/events", data=b"two").status_code == 202
    recipe.producer().flush(60)
    assert (None, b"two", []) in logged(cluster)


def test_what_is_accepted_while_no_broker_is_there_arrives_when_one_is(application: Application, cluster: MockCluster) -> None:
    recipe = application(KAFKA_WAIT_S="0.3")
    recipe.producer().produce("flask", b"before").result(60)
    for broker in cluster.brokers:
        cluster.stop_broker(broker)
    assert recipe.app.test_client().post("/records", data=b"one", headers=KEY).status_code == 202
    for broker in cluster.brokers:
        cluster.start_broker(broker)
    recipe.producer().flush(60)
    assert (b"order-17", b"one", HELD) in logged(cluster)


def test_without_a_broker_from_the_start_nothing_is_accepted(application: Application, cluster: MockCluster) -> None:
    recipe = application(KAFKA_WAIT_S="1")
    for broker in cluster.brokers:
        cluster.stop_broker(broker)
    answer = recipe.app.test_client().post("/records", data=b"one")
    assert (answer.status_code, answer.headers["Retry-After"], answer.json["written"]) == (503, "5", "no")


def test_what_a_broker_refuses_is_503_and_says_when_to_try_again(application: Application, cluster: MockCluster) -> None:
    cluster.on("Produce", Error(TopicAuthorizationFailed.code), times=None)
    answer = application(KAFKA_WAIT_S="60").app.test_client().post("/records", data=b"one")
    assert (answer.status_code, answer.headers["Retry-After"], answer.json["written"]) == (503, "5", "no")


def test_what_is_too_large_is_413_without_another_try(application: Application) -> None:
    answer = application(KAFKA_WAIT_S="60").app.test_client().post("/records", data=b"x" * 2_000_000)
    assert (answer.status_code, "Retry-After" in answer.headers) == (413, False)
