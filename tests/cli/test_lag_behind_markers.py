"""Lag where a log ends with the marks of transactions, which no record stands for: 0 for whoever commits where it stands, and 1 for who counts records."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from gkafka import KafkaClient
from gkafka.kafka import KafkaConsumer, OffsetAndMetadata, TopicPartition
from gkafka.testing import MockCluster
from tests.cli.running import tool
from tests.public.aids import LIMIT_S, read

AT = ("t", 0)


@pytest.fixture
def marked() -> Iterator[MockCluster]:
    """Topic "t": three records, and the mark of their commit at offset 3."""
    with MockCluster(topics={"t": 1}) as cluster, KafkaClient(cluster.bootstrap, handler="threading") as client:
        with client.get_producer(transactional_id="x") as producer, producer.transaction():
            for number in range(3):
                producer.produce("t", b"%d" % number)
        assert cluster.offsets("t", 0) == (0, 4)
        yield cluster


def lag(cluster: MockCluster) -> int:
    (group,) = tool("lag", "g", "--json", "-b", cluster.bootstrap).document
    (row,) = group["partitions"]
    assert row["end"] == 4
    assert row["lag"] == 4 - row["committed"]
    found: int = row["lag"]
    return found


@pytest.mark.parametrize("commits", ["with its block", "itself"])
def test_a_consumer_commits_behind_the_marks(marked: MockCluster, commits: str) -> None:
    options: dict[str, Any] = {"group": "g", "auto_commit": commits != "itself"}
    with KafkaClient(marked.bootstrap, handler="threading") as client, client.get_consumer("t", **options) as consumer:
        read(consumer, 3)
        if commits == "itself":
            consumer.commit()
    assert lag(marked) == 0


def test_pykafkas_consumer_commits_behind_the_marks(marked: MockCluster) -> None:
    with KafkaClient(marked.bootstrap, handler="threading") as client:
        consumer = client.topics["t"].get_simple_consumer("g", consumer_timeout_ms=int(LIMIT_S * 1000))
        for _ in range(3):
            consumer.consume()
        consumer.commit_offsets()
        consumer.stop()
    assert lag(marked) == 0


def test_kafka_pythons_consumer_commits_behind_the_marks_and_what_is_given_to_it_as_it_is(marked: MockCluster) -> None:
    options = {"bootstrap_servers": marked.bootstrap, "auto_offset_reset": "earliest", "enable_auto_commit": False, "handler": "threading"}
    consumer = KafkaConsumer("t", group_id="g", isolation_level="read_committed", **options)
    last = [next(consumer) for _ in range(3)][-1]
    consumer.commit({TopicPartition(*AT): OffsetAndMetadata(last.offset + 1, "", -1)})
    assert lag(marked) == 1, "for ever: nothing comes at that offset"
    consumer.commit()
    assert lag(marked) == 0
    consumer.close()


def test_kafka_tools_consume_commits_behind_the_marks(marked: MockCluster) -> None:
    assert tool("consume", "t", "--group", "g", "-b", marked.bootstrap).lines == [b"0", b"1", b"2"]
    assert lag(marked) == 0


@pytest.mark.parametrize("more", [[], ["--no-transactions"], ["-n", "3"]])
def test_a_copy_commits_behind_the_marks(marked: MockCluster, more: list[str]) -> None:
    marked.create_topic("u", 1)
    assert tool("copy", "t", "u", "-g", "g", *more, "-b", marked.bootstrap).code == 0
    assert [record.value for record in marked.log("u", 0)] == [b"0", b"1", b"2"]
    assert lag(marked) == 0
