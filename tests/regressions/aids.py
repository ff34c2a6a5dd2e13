"""What the regression tests share: a broker that waits for the test, and the batches as they came over the wire."""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

from gkafka.testing import MockCluster
from tests.public.aids import Held

__all__ = [
    "Held",
    "NAMED",
    "NOT_LEADER",
    "OUT_OF_ORDER",
    "QUICK",
    "SentBatch",
    "TIMED_OUT",
    "TOO_FEW_REPLICAS",
    "gaps",
    "numbered",
    "sent_batches",
]

NOT_LEADER, TIMED_OUT, TOO_FEW_REPLICAS, OUT_OF_ORDER = 6, 7, 19, 45
QUICK: dict[str, Any] = {"retry_backoff_ms": 10, "retry_backoff_max_ms": 50}
NAMED: dict[str, Any] = {"limits": {"Produce": (3, 12)}}
"""Newer versions of Produce name topics by their ids only."""

_header = struct.Struct(">qiibIhiqqqhii")


class SentBatch(NamedTuple):
    """A batch as it came to a broker. data: its bytes."""

    broker: int
    time: float
    topic: str
    partition: int
    producer_id: int
    epoch: int
    sequence: int
    count: int
    data: bytes


def sent_batches(cluster: MockCluster) -> list[SentBatch]:
    """Every batch of every Produce request, in the order of their coming. topic is empty unless the cluster is NAMED."""
    found: list[SentBatch] = []
    for request in cluster.requests("Produce"):
        for topic in request.message.topic_data:
            for part in topic.partition_data:
                data = bytes(part.records)
                producer_id, epoch, sequence, count = _header.unpack_from(data)[9:13]
                found.append(SentBatch(request.broker, request.time, topic.name, part.index, producer_id, epoch, sequence, count, data))
    return found


def gaps(batches: list[SentBatch]) -> list[tuple[int, int]]:
    """(epoch, sequence) at which the numbers of one partition have a hole, or two batches overlap. Retries count once."""
    numbers = sorted({(b.epoch, b.sequence, b.count) for b in batches})
    expected, wrong = (-1, 0), []
    for epoch, sequence, count in numbers:
        if epoch != expected[0]:
            expected = (epoch, 0)
        if (epoch, sequence) != expected:
            wrong.append((epoch, sequence))
        expected = (epoch, sequence + count)
    return wrong


def numbered(n: int, start: int = 0) -> list[bytes]:
    return [b"%05d" % i for i in range(start, start + n)]
