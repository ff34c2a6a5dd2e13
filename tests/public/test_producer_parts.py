"""The parts of a producer, each alone: which partition a record goes to, and how flush() waits."""

from __future__ import annotations

import logging
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from gkafka import records
from gkafka.exceptions import ConfigurationError, KafkaTimeoutError
from gkafka.flushing import QUIET_S, Flush
from gkafka.partitioning import Partitioning
from gkafka.records._check import UnknownPartition
from tests.core.fakes import FakeBatch, metadata

LEADERS = {0: 1, 1: 2, 2: -1, 3: 1}


def partitioning(partitioner: Any = None, leaders: dict[int, int] = LEADERS) -> tuple[Partitioning, records.Appender]:
    """Return the choice for topic "t", and the appender that it tells."""
    appender = records.Appender(None, batch_bytes=1000, buffer_bytes=100_000, max_record_bytes=1000)
    made = Partitioning(partitioner, appender, metadata(leaders), {}, Random(1), {})
    made.set_count("t", len(leaders))
    return made, appender


def test_a_given_partition_is_taken_if_the_topic_has_it() -> None:
    made, _ = partitioning()
    assert made.of_record("t", 4, 3, b"key") == 3
    with pytest.raises(UnknownPartition, match="has the partitions 0 to 3"):
        made.of_record("t", 4, 4, None)


def test_a_key_chooses_by_its_hash_and_without_one_the_sticky_partition_is_taken() -> None:
    made, appender = partitioning()
    assert made.of_record("t", 4, None, b"key") == records.murmur2(b"key") % 4
    assert made.of_record("t", 4, None, b"") == records.murmur2(b"") % 4
    assert made.of_record("t", 4, None, None) is None
    assert not appender.crc32


def test_an_empty_key_is_none_where_crc32_chooses() -> None:
    made, appender = partitioning("crc32")
    assert made.of_record("t", 4, None, b"") is None
    assert appender.crc32


def test_a_partitioner_of_the_users_chooses_among_all_partitions() -> None:
    assert partitioning(lambda ids, key: ids[-1])[0].of_record("t", 4, None, b"key") == 3
    with pytest.raises(ConfigurationError, match="the partitioner chose 4"):
        partitioning(lambda ids, key: 4)[0].of_record("t", 4, None, b"key")


def test_the_sticky_partition_has_a_leader_and_moves_once_it_is_spent() -> None:
    made, appender = partitioning()
    seen = set()
    for _ in range(50):
        partition = made.without_key("t", 100)
        assert partition == appender.sticky("t") == made.sticky["t"].partition
        seen.add(partition)
        full: Any = FakeBatch(partition, size=61)
        made.sticky["t"].follow(full, 61)
        assert made.without_key("t", 100) == partition
        full.size = 1000
    assert seen == {0, 1, 3}
    assert partitioning(leaders={0: -1, 1: -1})[0].without_key("t", 100) in (0, 1), "none has a leader: all are taken"


class Idle:
    """A driver, and its handler's clock, of which the batches get no outcome."""

    results = SimpleNamespace(settled_records=0)

    def __init__(self, *batches: Any) -> None:
        self.batches, self.now = list(batches), 100.0

    def monotonic(self) -> float:
        return self.now

    def all_owed(self, deadline: float) -> Any:
        return self

    def owed(self) -> list[Any]:
        return self.batches

    def hurry(self, deadline: float) -> None:
        pass

    def wait_for(self, batch: Any, deadline: float) -> None:
        self.now = min(deadline, self.now + 1.0)


class Unsettled(FakeBatch):
    done = False


def test_a_flush_ends_at_its_timeout_and_says_once_that_nothing_happens(caplog: pytest.LogCaptureFixture) -> None:
    idle: Any = Idle(Unsettled(0, count=2), Unsettled(1, count=3))
    checks: list[None] = []
    with caplog.at_level(logging.WARNING), pytest.raises(KafkaTimeoutError, match=r"5 record\(s\) not delivered within 30 s"):
        Flush(idle, idle, 30.0, 120_000, lambda: checks.append(None)).wait()
    assert idle.now == 130.0
    assert len(checks) == 30
    (told,) = [record.getMessage() for record in caplog.records]
    assert f"5 record(s) that no broker has acknowledged, {QUIET_S:g} s without news so far: up to 25 s more" in told


def test_a_flush_with_nothing_to_wait_for_returns_at_once() -> None:
    idle: Any = Idle()
    assert Flush(idle, idle, 0.0, 120_000, lambda: None).wait() == []
    assert idle.now == 100.0
