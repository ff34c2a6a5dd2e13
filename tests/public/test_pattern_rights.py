"""A pattern that matches a topic which this client may not describe any more: the others are read, and the log says so once."""

from __future__ import annotations

import logging
import re
from typing import Any

import pytest

from gkafka import KafkaClient
from gkafka.kafka import KafkaConsumer
from gkafka.testing import Edit, MockCluster
from tests.kit.clock import now

LIMIT_S = 60.0
LISTS = 4
"""Metadata that are asked for behind the refusal."""


def without_b(request: Any, answer: Any) -> Any:
    """Brokers leave a topic that is denied out of the list of all, and refuse it by its name."""
    for topic in answer.topics:
        if topic.name == "b":
            topic.error_code, topic.partitions = 29, []
    if request.message.topics is None:
        answer.topics = [topic for topic in answer.topics if topic.name != "b"]
    return answer


@pytest.mark.parametrize("skin", ["native", "gkafka.kafka"])
def test_the_allowed_topic_is_read_and_the_denied_one_told_once(skin: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "gkafka")
    with MockCluster(1, {"a": 1, "b": 1}, auto_create=False) as cluster, KafkaClient(cluster.bootstrap, handler="threading") as writer:
        producer = writer.get_producer()
        for topic in ("a", "b"):
            producer.produce(topic, b"1").result(60)
        seen: set[tuple[str, int]] = set()
        with Reader(skin, cluster.bootstrap, seen) as read:
            wait(lambda: read() or seen == {("a", 0), ("b", 0)})
            cluster.on("Metadata", Edit(without_b), times=None)
            asked = cluster.count("Metadata")
            producer.produce("a", b"2").result(60)
            wait(lambda: read() or (("a", 1) in seen and cluster.count("Metadata") >= asked + LISTS))
            wait(lambda: read() or told(caplog))
        producer.close(10)
    assert seen == {("a", 0), ("b", 0), ("a", 1)}
    assert len(told(caplog)) == 1


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if "topic b, which the pattern" in record.getMessage()]


def wait(what: Any) -> None:
    until = now() + LIMIT_S
    while not what():
        assert now() < until


class Reader:
    """A context manager that gives what reads for a moment, and adds to `seen`."""

    def __init__(self, skin: str, hosts: str, seen: set[tuple[str, int]], group: str = "g") -> None:
        self._skin, self._hosts, self._seen, self._group = skin, hosts, seen, group

    def __enter__(self) -> Any:
        if self._skin == "native":
            self._client = KafkaClient(self._hosts, handler="threading", metadata_max_age_ms=200)
            self._consumer: Any = self._client.get_consumer(re.compile("[ab]"), group=self._group, auto_offset_reset="earliest")
            return self._native
        self._consumer = KafkaConsumer(
            bootstrap_servers=self._hosts, group_id=self._group, auto_offset_reset="earliest", metadata_max_age_ms=200
        )
        self._consumer.subscribe(pattern="[ab]")
        return self._facade

    def _native(self) -> None:
        self._seen |= {(m.topic, m.offset) for m in self._consumer.consume_batch(10, timeout_ms=100)}

    def _facade(self) -> None:
        self._seen |= {(r.topic, r.offset) for records in self._consumer.poll(100).values() for r in records}

    def __exit__(self, *_: object) -> None:
        if self._skin == "native":
            self._consumer.stop()
            self._client.close(10)
        else:
            self._consumer.close()
