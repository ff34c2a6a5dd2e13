"""What the tests of consumers that share a topic are written with."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import gevent
from confluent_kafka.admin import AdminClient, NewPartitions

from tests.kit.clock import now
from tests.live.peer import Peer, Seen

if TYPE_CHECKING:
    from gkafka.balancing import Balancing

__all__ = ["add_partitions", "fill", "read", "shares", "until"]

LIMIT_S = 60


def until(what: Callable[[], Any], limit_s: float = LIMIT_S) -> Any:
    """Wait for something that must become true, letting greenlets run."""
    deadline = now() + limit_s
    while not (found := what()):
        assert now() < deadline, f"not within {limit_s} s"
        gevent.sleep(0.05)
    return found


def shares(*members: Balancing) -> list[list[int]]:
    """The partitions of each."""
    return [sorted(m.partitions) for m in members]


def read(count: int, *members: Balancing) -> list[tuple[int, int]]:
    """(partition, offset) of the next `count` messages, whoever gets them."""
    got: list[tuple[int, int]] = []
    deadline = now() + LIMIT_S
    while len(got) < count:
        assert now() < deadline, f"{len(got)} of {count} messages"
        for member in members:
            got += [(m.partition_id, m.offset) for m in member.consume_batch(timeout_ms=50)]
    return got


def fill(peer: Peer, topic: str, partitions: int, each: int = 10, first: int = 0) -> list[tuple[int, int]]:
    """Records for every partition; returns (partition, offset) of each."""
    places = [(p, first + i) for p in range(partitions) for i in range(each)]
    peer.write(topic, [Seen(p, offset, None, b"%d" % offset, [], None) for p, offset in places])
    return places


def add_partitions(hosts: str, topic: str, count: int) -> None:
    """Have the topic get as many as that. Returns when the one broker tells of them: its controller answers before."""
    admin = AdminClient({"bootstrap.servers": hosts})  # its answer needs it alive
    admin.create_partitions([NewPartitions(topic, count)])[topic].result(60)
    until(lambda: len(admin.list_topics(topic, timeout=LIMIT_S).topics[topic].partitions) == count)
