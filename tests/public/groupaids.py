"""Members of groups of the mock cluster, as the tests of client.get_consumer(topics, group) have them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

from gkafka import KafkaClient
from gkafka.common import TopicPartition
from gkafka.consumer import Consumer
from gkafka.testing import MockCluster
from tests.kit.clock import now
from tests.public.aids import LIMIT_S, Runner, fill

__all__ = [
    "FOUR",
    "QUICK",
    "Join",
    "Told",
    "committed",
    "commits",
    "errors_of",
    "filled",
    "goes_back",
    "is_alone",
    "join",
    "owns",
    "places",
    "read_all",
    "settle",
    "share",
]

FOUR = [TopicPartition("t", n) for n in range(4)]
QUICK: dict[str, Any] = {"heartbeat_interval_ms": 50, "session_timeout_ms": 6000, "fetch_wait_max_ms": 50, "fetch_error_backoff_ms": 10}
Join = Callable[..., Consumer]


@pytest.fixture
def cluster(make_cluster: Callable[..., MockCluster]) -> MockCluster:
    """One broker with the topic "t" of four partitions."""
    return make_cluster(1, {"t": 4})


@pytest.fixture
def join(cluster: MockCluster, connect: Callable[..., KafkaClient]) -> Iterator[Join]:
    """Makes members of the group "g", each with a client of its own (`of`: its options); they are stopped after the test."""
    made: list[Consumer] = []

    def make(topics: Any = "t", *, of: dict[str, Any] | None = None, **options: Any) -> Consumer:
        made.append(
            connect(cluster, **{"offsets_channel_socket_timeout_ms": 5000, **(of or {})}).get_consumer(topics, "g", **{**QUICK, **options})
        )
        return made[-1]

    yield make
    cluster.clear_script()
    for member in made:
        member.stop()


def filled(
    connect: Callable[..., KafkaClient], cluster: MockCluster, count: int = 10, partitions: Iterable[int] = range(4), topic: str = "t"
) -> None:
    """So many records in each partition."""
    client = connect(cluster)
    for partition in partitions:
        fill(client, [b"%d" % n for n in range(count)], topic=topic, partition=partition)


def share(*members: Consumer) -> list[list[int]]:
    """The partitions of each."""
    return [sorted(tp.partition for tp in member.assignment()) for member in members]


def settle(run: Runner, wanted: Callable[[], Any], *members: Consumer) -> list[tuple[int, int]]:
    """Let the members consume until it is true. Returns the (partition, offset) that they got."""
    got: list[tuple[int, int]] = []

    def asked() -> Any:
        for member in members:
            got.extend(places(member.consume_batch(timeout_ms=10)))
        return wanted()

    run.until(asked)
    return got


def read_all(member: Consumer, count: int, *others: Consumer) -> list[tuple[int, int]]:
    """(partition, offset) of the next `count` messages, whoever gets them."""
    got: list[tuple[int, int]] = []
    deadline = now() + LIMIT_S
    while len(got) < count:
        assert now() < deadline, f"{len(got)} of {count} messages; {[str(m.explain()) for m in (member, *others)]}"
        for each in (member, *others):
            got += places(each.consume_batch(timeout_ms=20))
    return got


def places(messages: Iterable[Any]) -> list[tuple[int, int]]:
    return [(message.partition_id, message.offset) for message in messages]


def committed(cluster: MockCluster, topic: str = "t") -> dict[int, int]:
    """Partition -> the offset that the group has committed."""
    return {partition: entry.offset for (name, partition), entry in sorted(cluster.committed("g").items()) if name == topic}


def commits(cluster: MockCluster) -> list[dict[int, int]]:
    """Partition -> offset of every OffsetCommit that has come."""
    return [
        {p.partition_index: p.committed_offset for topic in request.message.topics for p in topic.partitions}
        for request in cluster.requests("OffsetCommit")
    ]


def goes_back(cluster: MockCluster) -> list[tuple[int, int, int]]:
    """(partition, offset, a smaller one that came later) of all commits."""
    last: dict[int, int] = {}
    found = []
    for commit in commits(cluster):
        for partition, offset in commit.items():
            if offset < last.get(partition, -1):
                found.append((partition, last[partition], offset))
            last[partition] = offset
    return found


class Told:
    """What listeners were told, in order: (what, partitions)."""

    def __init__(self) -> None:
        self.all: list[tuple[str, list[int]]] = []
        self.listeners = {f"on_{what}": self._note(what) for what in ("assigned", "revoked", "lost")}

    def _note(self, what: str) -> Callable[..., None]:
        return lambda consumer, partitions: self.all.append((what, [tp.partition for tp in partitions]))

    def of(self, what: str) -> list[list[int]]:
        return [partitions for name, partitions in self.all if name == what and partitions]


def owns(cluster: MockCluster, members: int) -> bool:
    """The group is stable with so many members, and everything is somebody's."""
    group = cluster.group("g")
    return group is not None and group.state == "Stable" and len(group.members) == members and len(group.owners) == 4


def errors_of(member: Consumer, run: Runner, count: int = 1) -> list[BaseException]:
    """What consuming raises, until so many errors came."""
    found: list[BaseException] = []

    def asked() -> bool:
        try:
            member.consume_batch(timeout_ms=10)
        except Exception as error:
            found.append(error)
        return len(found) >= count

    run.until(asked)
    return found


def is_alone(cluster: MockCluster, members: int = 0) -> bool:
    group = cluster.group("g")
    return group is not None and len(group.members) == members
