"""What pykafka's members commit at a rebalance without auto_commit_enable: what the application has come back for, and what it has not is not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from typing import Any

import pytest

from gkafka import BalancedConsumer, KafkaClient
from gkafka.exceptions import ConfigurationError
from gkafka.testing import MockCluster
from tests.public.aids import LIMIT_S, Runner, fill, read
from tests.public.zoo import Zoo, zoo_client

OWNERS = "/consumers/g/owners/t"


@pytest.fixture
def cluster(make_cluster: Callable[..., MockCluster]) -> MockCluster:
    return make_cluster(1, {"t": 2})


class Members:
    """join() makes a member, rebalance() balances its group, and returns when that is over. Partition 0 stays its own."""

    def __init__(self, kind: str, client: KafkaClient, cluster: MockCluster, run: Runner) -> None:
        self.kind, self._client, self._cluster, self.run = kind, client, cluster, run
        self.zoo = Zoo()
        self._others = 0
        self.made: list[Any] = []

    def join(self, **options: Any) -> Any:
        settings: dict[str, Any] = {"managed": True, "heartbeat_interval_ms": 50}
        if self.kind == "zookeeper":
            settings = {"zookeeper": zoo_client(self.run, self.zoo), "rebalance_backoff_ms": 0}
        settings |= {"consumer_timeout_ms": LIMIT_S * 1000, **options}
        self.made.append(self._client.topics["t"].get_balanced_consumer("g", **settings))
        return self.made[-1]

    def rebalance(self) -> None:
        if self.kind == "managed":
            answered = self._cluster.count("SyncGroup")
            self._cluster.rebalance("g")
            self.run.until(lambda: self._cluster.count("SyncGroup") > answered and len(self.made[0].partitions) == 2)
            return
        if self._others:  # the one that came last time goes
            self.zoo.end_session(self._others)
            self._others = 0
        else:
            self._others = self.zoo.new_session()
            self.zoo.put("/consumers/g/ids/~", b"t", self._others)
        self.made[0]._stale = True
        self.made[0]._beat()


@pytest.fixture(params=["managed", "zookeeper"])
def members(
    request: pytest.FixtureRequest, client: KafkaClient, cluster: MockCluster, run: Runner, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Members]:
    monkeypatch.setattr(BalancedConsumer, "_setup_checker_worker", lambda self: None)
    fill(client, [b"%d" % n for n in range(10)], batches=2)
    made = Members(request.param, client, cluster, run)
    yield made
    for member in made.made:
        member.stop()


def committed(cluster: MockCluster, partition: int = 0) -> int:
    found = cluster.committed("g").get(("t", partition))
    return -1 if found is None else found.offset


def test_what_the_application_has_come_back_for_is_committed_at_a_rebalance(members: Members, cluster: MockCluster) -> None:
    member = members.join()
    for count, told in ((1, 0), (2, 2), (2, 4), (1, 5), (4, 9)):
        for _ in range(count):
            assert member.consume() is not None
        members.rebalance()
        assert committed(cluster) == told, "the last message is still in its hands"
    assert member.consume(block=False) is None
    members.rebalance()
    assert committed(cluster) == 10


@pytest.mark.parametrize("deserializer", [None, lambda value, key: (value, key)], ids=["plain", "deserializer"])
def test_a_batch_is_finished_when_the_application_comes_back(members: Members, cluster: MockCluster, deserializer: Any) -> None:
    member = members.join(deserializer=deserializer)
    assert len(read(member, 1, size=1)) == 1
    assert len(member.consume_batch(2)) == 2
    members.rebalance()
    assert committed(cluster) == 1
    assert len(member.consume_batch(4)) == 4
    members.rebalance()
    assert committed(cluster) == 3


def test_what_is_in_its_hands_stays_so_over_rebalances_and_comes_not_again(members: Members, cluster: MockCluster) -> None:
    member = members.join()
    assert [member.consume().offset for _ in range(3)] == [0, 1, 2]
    for _ in range(3):
        members.rebalance()
        assert committed(cluster) == 2
    assert member.consume().offset == 3


def test_what_the_application_has_committed_is_not_taken_back(members: Members, cluster: MockCluster) -> None:
    member = members.join()
    assert [member.consume().offset for _ in range(3)] == [0, 1, 2]
    member.commit_offsets()
    for _ in range(2):
        members.rebalance()
        assert committed(cluster) == 3
    member.commit_offsets([(0, 8)])
    members.rebalance()
    assert committed(cluster) == 8


def test_where_it_was_put_is_finished(members: Members, cluster: MockCluster) -> None:
    member = members.join()
    assert member.consume().offset == 0
    member.reset_offsets([(0, 7)])
    members.rebalance()
    assert committed(cluster) == 7
    assert member.consume().offset == 7


@pytest.mark.parametrize("options", [{"commit_on_rebalance": False}, {}], ids=["off", "stop"])
def test_nothing_is_committed_where_that_is_off_nor_at_a_stop(members: Members, cluster: MockCluster, options: dict[str, Any]) -> None:
    member = members.join(**options)
    assert [member.consume().offset for _ in range(3)] == [0, 1, 2]
    if options:
        members.rebalance()
    member.stop()
    assert committed(cluster) == -1


def test_it_cannot_be_off_with_auto_commit_enable(members: Members) -> None:
    with pytest.raises(ConfigurationError, match=r"commit_on_rebalance=False with auto_commit_enable=True"):
        members.join(commit_on_rebalance=False, auto_commit_enable=True)


@pytest.mark.parametrize("options", [{}, {"auto_commit_enable": True}], ids=["at the rebalance", "auto commit"])
def test_what_another_member_has_taken_is_not_committed_over_it(
    client: KafkaClient, cluster: MockCluster, run: Runner, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    monkeypatch.setattr(BalancedConsumer, "_setup_checker_worker", lambda self: None)
    members = Members("zookeeper", client, cluster, run)
    member = members.join(**options)
    fill(client, [b"x"] * 5, partition=0)
    fill(client, [b"x"] * 5, partition=1)
    assert len(read(member, 10)) == 10
    assert member.consume(block=False) is None
    with client.topics["t"].get_simple_consumer("g", partitions=[1], auto_start=False) as other:
        other.start()
        other.commit_offsets([(1, 3)])
    (name,) = [n for n in members.zoo.children(OWNERS) if n.endswith("-1")]
    members.zoo.remove(f"{OWNERS}/{name}")
    members.zoo.put(f"{OWNERS}/{name}", b"another", members.zoo.new_session())
    member._stale = True
    member._check_held_partitions()
    assert sorted(member.partitions) == [0]
    assert committed(cluster) == 5
    assert committed(cluster, 1) == 3
    member.stop()


def test_the_unit_of_a_callbacks_offsets_is_that_of_what_it_is_given(members: Members) -> None:
    """Returned as they came they change nothing: no message comes again, and none is left out."""
    given: list[dict[int, int]] = []

    def callback(consumer: Any, before: dict[int, int], after: dict[int, int]) -> dict[int, int]:
        given.append(after)
        return after

    member = members.join(post_rebalance_callback=callback)
    offsets = [member.consume().offset for _ in range(4)]
    members.rebalance()
    offsets += [member.consume().offset for _ in range(6)]
    assert offsets == list(range(10))
    assert [held[0] for held in given] == [-2, 3]


def test_a_callback_may_return_a_time(members: Members) -> None:
    member = members.join(post_rebalance_callback=lambda consumer, before, after: {0: datetime(2001, 1, 1, tzinfo=timezone.utc)})
    assert member.consume().offset == 0
    members.rebalance()
    members.run.until(lambda: member.consume().offset == 0)  # the callback is asked a moment after the group has its generation
