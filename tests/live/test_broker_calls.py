"""The documented single calls of a Broker on real brokers."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from gkafka.broker import Broker
from tests.kit.clock import now

if TYPE_CHECKING:
    from gkafka import KafkaClient

versions = pytest.mark.parametrize("version", ["0.8.2.2", "0.9.0.1", "0.11.0.3", "2.8.2", "4.2.0"])
with_groups = pytest.mark.parametrize("version", ["0.9.0.1", "0.11.0.3", "2.8.2", "4.2.0"])


def asked(topic: str, **more: Any) -> Any:
    return SimpleNamespace(topic_name=topic.encode(), partition_id=0, **more)


def coordinator(client: KafkaClient, group: str) -> Broker:
    return client.cluster.get_group_coordinator(group)


def until_ok(join: Callable[[], Any], code: str = "error_code") -> Any:
    """A broker whose offsets topic was just made loads it first: COORDINATOR_LOAD_IN_PROGRESS, NOT_COORDINATOR."""
    deadline = now() + 60
    while getattr(answer := join(), code) in (14, 15, 16):
        assert now() < deadline
        time.sleep(0.1)
    return answer


def committed_partition(broker: Broker, group: str, request: Any) -> Any:
    return broker.commit_consumer_group_offsets(group.encode(), -1, b"", [request]).topics[request.topic_name][0]


@versions
def test_records_and_offsets_by_single_requests(version: str, client: KafkaClient, new_topic: Callable[..., str]) -> None:
    name = new_topic()
    (broker,) = {client.topics[name].partitions[0].leader}
    messages = [SimpleNamespace(topic=name, partition_id=0, partition_key=b"k", value=b"v%d" % i) for i in range(3)]
    request = SimpleNamespace(compression_type=1, required_acks=-1, timeout=5000, messages=messages)
    produced = broker.produce_messages(request)
    assert produced is not None
    assert produced.topics == {name.encode(): {0: (0, 0)}}
    fetched = broker.fetch_messages([asked(name, offset=0, max_bytes=1 << 20)], timeout=5000)
    ((_, partition),) = fetched.topics[name].items()
    assert (partition.err, partition.max_offset) == (0, 3)
    assert [(m.offset, m.key, m.value) for m in partition.messages] == [(i, b"k", b"v%d" % i) for i in range(3)]
    limits = broker.request_offset_limits([asked(name, offsets_before=-1, max_offsets=1)])
    assert limits.topics == {name.encode(): {0: ([3], 0)}}
    assert list(broker.request_metadata([name.encode()]).topics) == [name.encode()]


@versions
def test_offsets_of_a_group_by_single_requests(
    version: str, client: KafkaClient, new_topic: Callable[..., str], new_name: Callable[[str], str]
) -> None:
    name, group = new_topic(), new_name("group")
    broker = coordinator(client, group)
    committed = until_ok(lambda: committed_partition(broker, group, asked(name, offset=2, timestamp=0, metadata=b"m")), "err")
    assert committed.err == 0
    fetched = until_ok(lambda: broker.fetch_consumer_group_offsets(group.encode(), [asked(name)]).topics[name.encode()][0], "err")
    assert fetched == (2, b"m", 0)
    assert committed_partition(broker, group, asked(name, offset=3, timestamp=0, metadata=b"")).err == 0
    again = broker.fetch_consumer_group_offsets(group.encode(), [asked(name)]).topics[name.encode()][0]
    assert (again.offset, again.metadata or b"", again.err) == (3, b"", 0), "it is sent as null, and brokers before 0.10 say so"


@with_groups
def test_two_members_of_a_group_by_single_requests(
    version: str, client: KafkaClient, new_topic: Callable[..., str], new_name: Callable[[str], str]
) -> None:
    """One joins and leads; a second joins, for which the first must join again while the second's request waits on the broker."""
    name, group = new_topic(), new_name("group").encode()
    broker = coordinator(client, group.decode())
    first = until_ok(lambda: broker.join_group(b"one", group, b"", name))
    assert (first.error_code, first.leader_id) == (0, first.member_id)
    alone = broker.sync_group(b"one", group, first.generation_id, first.member_id, [share(first.member_id, name)])
    assert (alone.error_code, alone.member_assignment.partition_assignment) == (0, [(name.encode(), [0])])

    joining = client.handler.Future()
    client.handler.spawn(lambda: joining.set(broker.join_group(b"two", group, b"", name)))
    deadline = now() + 60
    while broker.heartbeat(b"one", group, first.generation_id, first.member_id).error_code != 27:
        assert now() < deadline, "the member is told that the group rebalances"
        client.handler.sleep(0.05)
    again = broker.join_group(b"one", group, first.member_id, name)
    second = joining.result(60)
    assert (again.error_code, second.error_code) == (0, 0)
    assert again.generation_id == second.generation_id > first.generation_id
    assert sorted([*again.members, *second.members]) == sorted([first.member_id, second.member_id])

    leader, follower = (again, second) if again.leader_id == again.member_id else (second, again)
    connections = {again.member_id: b"one", second.member_id: b"two"}
    shares = [share(leader.member_id, name), share(follower.member_id)]
    led = broker.sync_group(connections[leader.member_id], group, leader.generation_id, leader.member_id, shares)
    followed = broker.sync_group(connections[follower.member_id], group, leader.generation_id, follower.member_id, [])
    assert (led.error_code, followed.error_code) == (0, 0)
    assert led.member_assignment.partition_assignment == [(name.encode(), [0])]
    assert followed.member_assignment.partition_assignment == []
    for member_id, connection in connections.items():
        assert broker.leave_group(connection, group, member_id).error_code == 0
    assert broker.heartbeat(b"one", group, leader.generation_id, first.member_id).error_code == 25


def share(member_id: bytes, *topics: str) -> Any:
    return SimpleNamespace(member_id=member_id, partition_assignment=[(name, [0]) for name in topics])
