"""A pattern that matches a topic which this client may not describe, on a real Kafka: the others are read, and the log tells of it once at most."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from gkafka import KafkaClient
from gkafka.admin import Acl, AclOperation, Permission, ResourceType
from tests.cli.terminal import piped
from tests.live.kafka import KafkaCluster
from tests.live.pool import POOL
from tests.live.sharing import until
from tests.public.test_pattern_rights import Reader, told


@pytest.fixture
def kafka() -> KafkaCluster:
    """A broker that lets everybody do what nobody forbids."""
    return POOL.get(kind="guarded")


@pytest.fixture
def writer(kafka: KafkaCluster) -> Iterator[KafkaClient]:
    """A client that has made the topics "a" and "b", with a record each."""
    with KafkaClient(kafka.hosts, handler="threading") as client:
        for topic in ("a", "b"):
            kafka.create_topic(topic)
            client.get_producer().produce(topic, b"1").result(60)
        yield client
        client.admin().delete_topics(["a", "b"], timeout=60)


@pytest.mark.parametrize("skin", ["native", "gkafka.kafka"])
def test_the_allowed_topic_is_read_and_the_denied_one_told_once(
    skin: str, kafka: KafkaCluster, writer: KafkaClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "gkafka")
    seen: set[tuple[str, int]] = set()
    rules = [Acl(ResourceType.TOPIC, "b", "User:ANONYMOUS", AclOperation.DESCRIBE, Permission.DENY)]
    with Reader(skin, kafka.hosts, seen, f"patterns-of-{skin}") as read:
        until(lambda: read() or seen == {("a", 0), ("b", 0)})
        writer.admin().create_acls(rules, timeout=60)
        try:
            until(lambda: read() or told(caplog))
            writer.get_producer().produce("a", b"2").result(60)
            until(lambda: read() or ("a", 1) in seen)
            listed = piped("topics", "-b", kafka.hosts)
        finally:
            writer.admin().delete_acls(rules, dry_run=False, timeout=60)
    assert len(told(caplog)) == 1
    assert (listed.returncode, listed.stderr) == (0, "")
    assert "b" not in [line.split()[0] for line in listed.stdout.splitlines()]
