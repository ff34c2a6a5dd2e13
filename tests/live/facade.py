"""What the tests of gkafka.kafka's consumers on real brokers are written with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gkafka.kafka import KafkaConsumer
from tests.kit.clock import now

__all__ = ["LIMIT_S", "QUICK", "Make", "Topic", "read", "turn"]

LIMIT_S = 60.0
QUICK: dict[str, Any] = {"auto_offset_reset": "earliest", "heartbeat_interval_ms": 300, "session_timeout_ms": 20_000}
Make = Callable[..., KafkaConsumer]
Topic = Callable[..., str]


def turn(ready: Callable[[], Any], *members: KafkaConsumer) -> list[Any]:
    """Poll the members until it is true; what they got."""
    got: list[Any] = []
    deadline = now() + LIMIT_S
    while not ready():
        assert now() < deadline, [sorted(member.assignment()) for member in members]
        for member in members:
            for records in member.poll(20).values():
                got += records
    return got


def read(member: KafkaConsumer, count: int) -> list[Any]:
    """So many records."""
    got: list[Any] = []
    deadline = now() + LIMIT_S
    while len(got) < count:
        assert now() < deadline, f"{len(got)} of {count}"
        for records in member.poll(200, max_records=count - len(got)).values():
            got += records
    return got
