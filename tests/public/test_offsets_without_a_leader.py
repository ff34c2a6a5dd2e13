"""Offsets of a partition of which the brokers say that it has no leader: nobody waits for what is not coming."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gkafka import KafkaClient
from gkafka.exceptions import LeaderNotFoundError
from gkafka.testing import MockCluster
from tests.kit.clock import now

LIMIT_S = 60.0


@pytest.fixture
def without_a_leader() -> Iterator[tuple[KafkaClient, int]]:
    """A client, and a partition of "t" whose only replica is down."""
    with MockCluster(3, {"t": 3}, replication_factor=1, auto_create=False) as cluster:
        down = cluster.leader("t", 1)
        cluster.stop_broker(down)
        with KafkaClient(cluster.bootstrap, handler="threading", api_timeout_ms=600_000) as client:
            yield client, 1


def test_list_offsets_tells_at_once_that_a_partition_has_no_leader(without_a_leader: tuple[KafkaClient, int]) -> None:
    client, partition = without_a_leader
    began = now()
    with pytest.raises(LeaderNotFoundError, match="t-1 has no leader at the moment") as told:
        client.list_offsets({("t", partition): -1})
    assert now() - began < LIMIT_S
    assert (told.value.topic, told.value.partition) == ("t", partition)


def test_the_offsets_of_the_others_are_told(without_a_leader: tuple[KafkaClient, int]) -> None:
    client, partition = without_a_leader
    others = {("t", number): -1 for number in range(3) if number != partition}
    assert set(client.list_offsets(others).values()) == {0}
