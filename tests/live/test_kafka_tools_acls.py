"""kafka-tools acls on a broker with an authorizer, beside Kafka's own script; and what who has no permission is told."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cli.terminal import piped
from tests.live.kafka import KafkaCluster
from tests.live.pool import POOL
from tests.live.scripts import Scripts
from tests.live.sharing import until


@pytest.fixture
def kafka() -> KafkaCluster:
    """A broker that lets everybody do what nobody forbids."""
    return POOL.get(kind="guarded")


def ask(kafka: KafkaCluster, *words: object) -> Any:
    told = piped(*words, "--json", "-b", kafka.hosts)
    assert told.returncode == 0, told.stderr
    return json.loads(told.stdout)


def test_rules_are_made_seen_by_kafkas_script_and_deleted(kafka: KafkaCluster) -> None:
    scripts = Scripts(kafka)
    words = (
        "--topic",
        "orders-",
        "--prefixed",
        "--principal",
        "User:bob",
        "--operation",
        "read",
        "--operation",
        "describe",
        "--host",
        "10.0.0.1",
    )
    ask(kafka, "acls", "create", *words)
    until(lambda: len(ask(kafka, "acls")) == 2)
    theirs = scripts.run("acls", "--list")
    assert "ResourcePattern(resourceType=TOPIC, name=orders-, patternType=PREFIXED)" in theirs
    assert "(principal=User:bob, host=10.0.0.1, operation=READ, permissionType=ALLOW)" in theirs
    assert "(principal=User:bob, host=10.0.0.1, operation=DESCRIBE, permissionType=ALLOW)" in theirs
    assert [rule["operation"] for rule in ask(kafka, "acls", "list", "--topic", "orders-7", "--pattern", "match")] == ["read", "describe"]
    assert ask(kafka, "acls", "list", "--topic", "orders-7") == []

    assert ask(kafka, "acls", "delete", "--principal", "User:bob", "--operation", "read")["done"] is False
    assert len(ask(kafka, "acls")) == 2
    assert len(ask(kafka, "acls", "delete", "--principal", "User:bob", "--operation", "read", "--yes")["items"]) == 1
    until(lambda: [rule["operation"] for rule in ask(kafka, "acls")] == ["describe"])
    ask(kafka, "acls", "delete", "--principal", "User:bob", "--yes")


def test_who_may_not_is_told_so_with_the_next_step(kafka: KafkaCluster) -> None:
    kafka.create_topic("guarded")
    ask(kafka, "acls", "create", "--topic", "guarded", "--principal", "User:ANONYMOUS", "--operation", "all", "--deny")
    told = until(lambda: (told := piped("topics", "describe", "guarded", "-b", kafka.hosts)).returncode and told)
    assert (told.returncode, told.stdout) == (1, "")
    assert told.stderr.startswith("kafka-tools: DescribeTopicPartitions guarded: error 29: Topic authorization failed")
    assert told.stderr.endswith("\n  next: have a principal that may: kafka-tools acls list --topic guarded\n")
    assert len(told.stderr.splitlines()) == 2
    ask(kafka, "acls", "delete", "--topic", "guarded", "--yes")
    until(lambda: not piped("topics", "describe", "guarded", "-b", kafka.hosts).returncode)
