"""What the tests of KafkaConsumer are written with: records put into the log, consumers that wait little, what their requests said."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from gkafka.kafka import KafkaConsumer, TopicPartition
from gkafka.testing import Action, MockCluster, RecordedRequest
from gkafka.testing.server import Call
from tests.kit.clock import PATIENCE_S, now
from tests.public.aids import Runner
from tests.records.handmade import batch, record

__all__ = ["FIRST", "GROUP", "QUICK", "committed", "consume", "held", "joined", "last", "offsets", "put", "until"]

T = TypeVar("T")
FIRST = TopicPartition("t", 0)
QUICK: dict[str, Any] = {"fetch_max_wait_ms": 50, "retry_backoff_ms": 20, "auto_offset_reset": "earliest"}
GROUP: dict[str, Any] = {
    **QUICK,
    "group_id": "g",
    "heartbeat_interval_ms": 50,
    "session_timeout_ms": 30_000,
    "auto_commit_interval_ms": 60_000,
}


def put(cluster: MockCluster, *values: bytes | None, topic: str = "t", partition: int = 0, **more: Any) -> None:
    """Append one batch. key, headers: of each record; the rest is the batch's."""
    key, headers = more.pop("key", None), more.pop("headers", ())
    records = [record(n, value, key, headers) for n, value in enumerate(values)]
    cluster.append(topic, partition, batch(records, base_offset=cluster.offsets(topic, partition)[1], **more))


def until(handler: str, what: Callable[[], T], timeout: float = PATIENCE_S) -> T:
    """What what() returns, once that is true."""
    return Runner(handler).until(what, timeout)


def consume(consumer: KafkaConsumer, count: int, timeout: float = PATIENCE_S) -> list[Any]:
    """The next `count` records, by poll()."""
    got: list[Any] = []
    deadline = now() + timeout
    while len(got) < count:
        assert now() < deadline, f"{len(got)} of {count} records within {timeout:g} s"
        for records in consumer.poll(100, max_records=count - len(got)).values():
            got += records
    return got


def joined(consumer: KafkaConsumer, *partitions: TopicPartition) -> KafkaConsumer:
    """The consumer, once it has a share of its group's partitions, or these."""
    deadline = now() + PATIENCE_S
    while consumer.assignment() != set(partitions) if partitions else not consumer.assignment():
        assert now() < deadline, consumer.assignment()
        assert consumer.poll(20, max_records=1) == {}, "a test that puts records first has to poll itself"
    return consumer


class Held(Action):
    """Act as usual, as soon as `ends` is set."""

    def __init__(self) -> None:
        self.ends = threading.Event()

    def run(self, call: Call) -> None:
        if self.ends.is_set():
            call.act(call.send)
        else:
            call.after(0.01, lambda: self.run(call))


@contextmanager
def held(cluster: MockCluster, api: str) -> Iterator[None]:
    """Requests of an API are acted upon when the block ends, with which the cluster's script ends, too."""
    held = Held()
    cluster.on(api, held, times=None)
    try:
        yield
    finally:
        cluster.clear_script()
        held.ends.set()


def last(cluster: MockCluster, api: str) -> RecordedRequest:
    """The newest request of an API."""
    return cluster.requests(api)[-1]


def offsets(records: list[Any]) -> list[tuple[int, int]]:
    """(partition, offset) of each."""
    return [(record.partition, record.offset) for record in records]


def committed(cluster: MockCluster, group: str = "g", topic: str = "t") -> dict[int, int]:
    """Partition -> the offset that a group committed."""
    return {partition: entry.offset for (name, partition), entry in cluster.committed(group).items() if name == topic}
