"""Offsets of a partition whose leader has died: the new one is asked, long before the metadata would be asked for by their age."""

from __future__ import annotations

from collections.abc import Callable

from gkafka import KafkaClient
from gkafka.testing import MockCluster


def test_offsets_are_asked_of_the_next_leader(make_cluster: Callable[..., MockCluster]) -> None:
    cluster = make_cluster(3)
    with KafkaClient(cluster.bootstrap, socket_timeout_ms=10_000) as client:
        assert client.list_offsets({("t", 0): -1}) == {("t", 0): 0}
        dead = cluster.leader("t", 0)
        cluster.move_leader("t", 0, 3 if dead != 3 else 2)
        cluster.stop_broker(dead)
        assert client.list_offsets({("t", 0): -1}) == {("t", 0): 0}
