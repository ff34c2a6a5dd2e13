"""kafka-tools on older and newer releases: what their brokers can is done, what they cannot is told with the next step."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.cli.terminal import piped
from tests.effort import one_of
from tests.live.kafka import KafkaCluster
from tests.live.peer import Peer, Seen
from tests.live.sharing import until


@pytest.mark.parametrize("version", one_of("0.8.2.2", "0.9.0.1", "0.10.2.2", "0.11.0.3", "1.1.1", "2.8.2", "3.9.1"))
def test_a_release_does_what_it_can(
    version: str, kafka: KafkaCluster, peer: Peer, new_topic: Callable[..., str], new_name: Callable[[str], str]
) -> None:
    number = kafka.release.number
    where = ["-b", kafka.hosts, *([] if kafka.release.asks_versions else ["--broker-version", version])]
    topic, group, made = new_topic(2), new_name("group"), new_name("made")
    peer.write(topic, [Seen(p, i, None, b"%d" % i, [], None) for p in range(2) for i in range(10)])

    def ask(*words: object) -> Any:
        told = piped(*words, "--json", *where)
        assert told.returncode == 0, told.stderr
        return json.loads(told.stdout)

    def refused(*words: object) -> None:
        told = piped(*words, *where)
        assert (told.returncode, told.stdout) == (1, "")
        assert len(told.stderr.splitlines()) == 2
        assert told.stderr.splitlines()[1] == "  next: kafka-tools doctor says what these brokers speak"

    assert {"topic": topic, "partitions": 2, "internal": False} in ask("topics")
    assert [p["leader"] for p in ask("topics", "describe", topic)[0]["partitions"]] == [1, 1]
    assert [(row["earliest"], row["latest"]) for row in ask("offsets", "list", topic)] == [(0, 10), (0, 10)]
    assert [row["offset"] for row in ask("print_offsets", topic, "LATEST")] == [10, 10]

    if number >= (0, 9):
        assert [
            row["after"] for row in ask("offsets", "reset", group, "--topic", topic, "--to-offset", 4, "--create", "--yes")["items"]
        ] == [4, 4]
        assert [row["committed"] for row in ask("offsets", "list", "--group", group, topic)] == [4, 4]
        assert ask("print_consumer_lag", topic, group)["lag"] == 12
    if number >= (0, 10, 1):
        ask("topics", "create", made, "-p", 1, "-r", 1)
        until(lambda: made in [row["topic"] for row in ask("topics")])
        ask("topics", "delete", made, "--yes")
    else:
        refused("topics", "create", made, "-p", 1, "-r", 1)
    if number >= (0, 11):
        assert "retention.ms" in [row["name"] for row in ask("configs", "describe", "topic", topic, "--all")]
    else:
        refused("configs", "describe", "topic", topic)
        refused("acls")
    if number >= (1, 1):
        assert ask("lag", group)[0]["lag"] == 12
        assert ask("groups", "delete", group, "--yes")["done"] is True
    if number >= (2, 3):
        assert ask("configs", "alter", "topic", topic, "retention.ms=70000000000000")["done"] is True
    elif number >= (0, 11):
        refused("configs", "alter", "topic", topic, "retention.ms=70000000000000")
