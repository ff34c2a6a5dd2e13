"""An error of the broker says where it was met (request, topic, partition, offset, group, broker) and what to do next."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from gkafka import KafkaClient
from gkafka.core.backoff import Backoff
from gkafka.errortexts import NEXT_STEPS
from gkafka.exceptions import BrokerError, KafkaException, KafkaTimeoutError, ProtocolError
from gkafka.testing import Edit, Error, MockCluster
from tests.public.aids import error_of


def member(client: KafkaClient) -> Any:
    """A consumer with a group that has begun, and tries its commits once."""
    return client.topics["t"].get_simple_consumer(
        consumer_group="g", auto_commit_enable=False, offsets_commit_max_retries=0, offsets_channel_backoff_ms=1
    )


Ready = Callable[[KafkaClient], Callable[[], Any]]
PATHS: dict[str, tuple[str, Ready, dict[str, Any], list[int]]] = {
    "create_topic": (
        "CreateTopics",
        lambda client: lambda: client.create_topic("n"),
        {"topic": "n"},
        [7, 17, 29, 31, 36, 37, 38, 39, 40, 41, 42, 44, 89],
    ),
    "delete_topic": (
        "DeleteTopics",
        lambda client: lambda: client.delete_topic("n"),
        {"topic": "n"},
        [3, 7, 17, 29, 31, 41, 42, 44, 73, 89],
    ),
    "fetch_raw": (
        "Fetch",
        lambda client: lambda: client.fetch_raw("t", 0, 5),
        {"topic": "t", "partition": 0, "offset": 5},
        [1, 3, 5, 6, 9, 29, 56, 74, 75, 76, 78, 100, 103],
    ),
    "fetch_stream": (
        "Fetch",
        lambda client: lambda: list(client.fetch_stream("t", 0, 5, 9)),
        {"topic": "t", "partition": 0, "offset": 5},
        [1, 6, 29],
    ),
    "list_offsets": (
        "ListOffsets",
        lambda client: lambda: client.list_offsets({("t", 0): -1}),
        {"topic": "t", "partition": 0},
        [3, 5, 6, 29, 56, 78],
    ),
    "commit": (
        "OffsetCommit",
        lambda client: partial(member(client).commit_offsets, [(0, 5)]),
        {"topic": "t", "partition": 0, "group": "g"},
        [3, 7, 12, 14, 15, 16, 22, 24, 25, 27, 28, 29, 30, 42, 82],
    ),
    "committed": (
        "OffsetFetch",
        lambda client: member(client).fetch_offsets,
        {"group": "g"},
        [7, 14, 15, 16, 22, 24, 25, 30, 42, 88],
    ),
    "the group's coordinator": (
        "FindCoordinator",
        lambda client: lambda: client.cluster.get_group_coordinator("g"),
        {"group": "g"},
        [15, 24, 30, 42],
    ),
}
"""Public call -> its request, what makes it ready to be called, what its error is about, the codes that Kafka documents for it."""


def shown(about: dict[str, Any]) -> list[str]:
    """How the text names it."""
    words = [f"{about['topic']}-{about['partition']}" if "partition" in about else about.get("topic", "")]
    return [*words, f"offset {about['offset']}" if "offset" in about else "", f"of group '{about['group']}'" if "group" in about else ""]


def faults(error: KafkaException, api: str, code: int, about: dict[str, Any], broker: str) -> list[str]:
    """What the error lacks."""
    text = str(error)
    cause = error.__cause__ if isinstance(error, KafkaTimeoutError) else error
    if not isinstance(cause, BrokerError) or cause.code != code:
        return [f"{code}: {error!r}"]
    words = [api, *shown(about), f"on broker {broker}", f"error {code}: ", "; " + NEXT_STEPS.get(code, "no next step")]
    lacking = [f"{code}: {word!r} not in {text!r}" for word in words if word not in text]
    attributes = {"topic": None, "partition": None, "offset": None, "group": None, **about, "broker": broker, "api": api}
    return lacking + [f"{code}: {name}={getattr(error, name)!r}" for name, value in attributes.items() if getattr(error, name) != value]


@pytest.fixture
def no_second_try(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """From now on errors that pass are told at once: the pause before the next try is longer than any timeout."""

    def patch() -> None:
        monkeypatch.setattr("gkafka.cluster.Backoff", lambda *_: Backoff(3600, 3600))
        monkeypatch.setattr("gkafka.cluster.Cluster.pause", lambda *_: None)  # nor is the rest of the time waited out

    return patch


@pytest.mark.parametrize("path", PATHS)
def test_an_error_says_where_it_was_met_and_what_to_do_next(
    client: KafkaClient, cluster: MockCluster, no_second_try: Callable[[], None], path: str
) -> None:
    api, ready, about, codes = PATHS[path]
    client.cluster.wait_for_topic("t")
    call = ready(client)
    no_second_try()
    lacking: list[str] = []
    for code in codes:
        cluster.clear_script()
        cluster.on(api, Error(code), times=None)
        lacking += faults(error_of(call), api, code, about, cluster.bootstrap)
    assert not lacking, "\n".join(lacking)


def test_a_partition_whose_committed_offset_cannot_be_told_is_named(client: KafkaClient, cluster: MockCluster) -> None:
    def refuse(request: Any, answer: Any) -> Any:
        for group in answer.groups:
            for topic in group.topics:
                for partition in topic.partitions:
                    partition.error_code = 29
        return answer

    consumer = member(client)
    cluster.on("OffsetFetch", Edit(refuse), times=None)
    error = error_of(consumer.fetch_offsets)
    assert not faults(error, "OffsetFetch", 29, {"topic": "t", "partition": 0, "group": "g"}, cluster.bootstrap)


@pytest.mark.parametrize(("api", "path"), [("OffsetCommit", "commit"), ("OffsetFetch", "committed")])
def test_a_coordinator_that_leaves_a_partition_out_is_named(client: KafkaClient, cluster: MockCluster, api: str, path: str) -> None:
    def forget(request: Any, answer: Any) -> Any:
        for named in getattr(answer, "groups", None) or [answer]:
            named.topics = []
        return answer

    call = PATHS[path][1](client)
    cluster.on(api, Edit(forget), times=None)
    error = error_of(call)
    assert isinstance(error, ProtocolError)
    assert (error.topic, error.partition, error.group, error.broker, error.api) == ("t", 0, "g", cluster.bootstrap, api)
