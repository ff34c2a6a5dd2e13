"""The documented single calls of a Broker on real brokers."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from gkafka.broker import Broker
from gkafka.records import Records, scan

if TYPE_CHECKING:
    from gkafka import KafkaClient

versions = pytest.mark.parametrize("version", ["0.8.2.2", "0.9.0.1", "0.11.0.3", "2.8.2", "4.2.0"])
with_groups = pytest.mark.parametrize("version", ["0.9.0.1", "0.11.0.3", "2.8.2", "4.2.0"])


def asked(topic: str, **more: Any) -> Any:
    return SimpleNamespace(topic_name=topic.encode(), partition_id=0, **more)


def coordinator(client: KafkaClient, group: str) -> Broker:
    return client.cluster.get_group_coordinator(group)


def until_ok(join: Callable[[], Any]) -> Any:
    """A broker whose offsets topic was just made loads it first: COORDINATOR_LOAD_IN_PROGRESS, NOT_COORDINATOR."""
    deadline = time.monotonic() + 30
    while (answer := join()).error_code in (14, 15, 16):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return answer


def committed_partition(broker: Broker, group: str, request: Any) -> Any:
    (partition,) = broker.commit_consumer_group_offsets(group.encode(), -1, b"", [request]).topics[0].partitions
    return partition


@versions
def test_records_and_offsets_by_single_requests(version: str, client: KafkaClient, new_topic: Callable[..., str]) -> None:
    name = new_topic()
    (broker,) = {client.topics[name].partitions[0].leader}
    messages = [SimpleNamespace(topic=name, partition_id=0, partition_key=b"k", value=b"v%d" % i) for i in range(3)]
    request = SimpleNamespace(compression_type=1, required_acks=-1, timeout=5000, messages=messages)
    produced = broker.produce_messages(request)
    assert produced is not None
    assert produced.responses[0].partition_responses[0].error_code == 0
    fetched = broker.fetch_messages([asked(name, offset=0, max_bytes=1 << 20)], timeout=5000)
    (partition,) = fetched.responses[0].partitions
    context = SimpleNamespace(topic=name, partition_id=0, partition=None)
    got = [m for header in scan(partition.records) for m in Records(partition.records, header, context).take(10)]
    assert [(m.offset, m.key, m.value) for m in got] == [(i, b"k", b"v%d" % i) for i in range(3)]
    (limits,) = broker.request_offset_limits([asked(name, offsets_before=-1, max_offsets=1)]).topics[0].partitions
    assert limits.found == 3
    assert [t.name for t in broker.request_metadata([name.encode()]).topics] == [name]


@versions
def test_offsets_of_a_group_by_single_requests(
    version: str, client: KafkaClient, new_topic: Callable[..., str], new_name: Callable[[str], str]
) -> None:
    name, group = new_topic(), new_name("group")
    broker = coordinator(client, group)
    committed = until_ok(lambda: committed_partition(broker, group, asked(name, offset=2, timestamp=0, metadata=b"m")))
    assert committed.error_code == 0
    fetched = broker.fetch_consumer_group_offsets(group.encode(), [asked(name)])
    answer = fetched.groups[0] if fetched.groups else fetched
    assert [(p.committed_offset, p.metadata, p.error_code) for p in answer.topics[0].partitions] == [(2, "m", 0)]


@with_groups
def test_two_members_of_a_group_by_single_requests(
    version: str, client: KafkaClient, new_topic: Callable[..., str], new_name: Callable[[str], str]
) -> None:
    """One joins and leads; a second joins, for which the first must join again while the second's request waits on the broker."""
    name, group = new_topic(), new_name("group").encode()
    broker = coordinator(client, group.decode())
    first = until_ok(lambda: broker.join_group(b"one", group, b"", name))
    assert (first.error_code, first.leader) == (0, first.member_id)
    alone = broker.sync_group(b"one", group, first.generation_id, first.member_id, [share(first.member_id, name)])
    assert (alone.error_code, bytes(alone.assignment)) == (0, bytes.fromhex("000000000001") + text(name) + PARTITION_0)

    joining = client.handler.Future()
    client.handler.spawn(lambda: joining.set(broker.join_group(b"two", group, b"", name)))
    deadline = time.monotonic() + 30
    while broker.heartbeat(b"one", group, first.generation_id, first.member_id).error_code != 27:
        assert time.monotonic() < deadline, "the member is told that the group rebalances"
        client.handler.sleep(0.05)
    again = broker.join_group(b"one", group, first.member_id, name)
    second = joining.result(30)
    assert (again.error_code, second.error_code) == (0, 0)
    assert again.generation_id == second.generation_id > first.generation_id
    assert sorted(m.member_id for m in again.members + second.members) == sorted([first.member_id, second.member_id])

    leader, follower = (again, second) if again.leader == again.member_id else (second, again)
    connections = {again.member_id: b"one", second.member_id: b"two"}
    shares = [share(leader.member_id, name), share(follower.member_id)]
    led = broker.sync_group(connections[leader.member_id], group, leader.generation_id, leader.member_id, shares)
    followed = broker.sync_group(connections[follower.member_id], group, leader.generation_id, follower.member_id, [])
    assert (led.error_code, followed.error_code) == (0, 0)
    assert len(led.assignment) > len(followed.assignment)
    assert bytes(followed.assignment[:6]) == bytes(6)
    for member_id, connection in connections.items():
        assert broker.leave_group(connection, group, member_id).error_code == 0
    assert broker.heartbeat(b"one", group, leader.generation_id, first.member_id).error_code == 25


PARTITION_0 = bytes.fromhex("0000000100000000ffffffff")


def text(name: str) -> bytes:
    return len(name).to_bytes(2, "big") + name.encode()


def share(member_id: str, *topics: str) -> Any:
    return SimpleNamespace(member_id=member_id, partition_assignment=[(name, [0]) for name in topics])
