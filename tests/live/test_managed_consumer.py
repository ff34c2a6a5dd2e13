"""ManagedBalancedConsumer on real brokers: members of a group divide a topic by way of its coordinator."""

from __future__ import annotations

import gc
import itertools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import gevent
import pytest
from confluent_kafka import Consumer

from gkafka import KafkaClient, RangeProtocol, RoundRobinProtocol
from gkafka.exceptions import (
    ConfigurationError,
    ConsumerStoppedException,
    KafkaException,
    KafkaTimeoutError,
    NoPartitionsForConsumerException,
)
from gkafka.membershipprotocol import GroupMembershipProtocol
from gkafka.simpleconsumer import SimpleConsumer
from tests.effort import one_of
from tests.kit.clock import now
from tests.live.kafka import KafkaCluster
from tests.live.peer import Peer
from tests.live.sharing import add_partitions, fill, read, shares, until

if TYPE_CHECKING:
    from gkafka.managedbalancedconsumer import ManagedBalancedConsumer

Join = Callable[..., "ManagedBalancedConsumer"]


@pytest.fixture
def join(connect: Callable[..., KafkaClient]) -> Iterator[Join]:
    """Makes members, each with a client of its own; they are stopped after the test."""
    made: list[ManagedBalancedConsumer] = []

    def make(topic: str, group: str, **options: Any) -> ManagedBalancedConsumer:
        options = {"heartbeat_interval_ms": 300, **options}
        made.append(connect().topics[topic].get_balanced_consumer(group, managed=True, **options))
        return made[-1]

    yield make
    for member in made:
        member.stop()


@pytest.mark.parametrize("version", ["0.9.0.1", "0.10.2.2", "2.8.2", "4.2.0"])
def test_behaviour_215_members_divide_a_topic_and_take_over_from_who_leaves(
    version: str, join: Join, peer: Peer, new_topic: Callable[..., str], new_name: Callable[[str], str]
) -> None:
    topic, group = new_topic(4), new_name("group")
    places = fill(peer, topic, 4)
    first = join(topic, group, auto_commit_enable=True)
    assert shares(first) == [[0, 1, 2, 3]]
    assert sorted(read(40, first)) == places
    second = join(topic, group, auto_commit_enable=True)
    until(lambda: sorted(map(len, shares(first, second))) == [2, 2])
    more = fill(peer, topic, 4, first=10)
    assert sorted(read(40, first, second)) == more, "each once: what was consumed is committed when a partition is revoked"
    second.stop()
    until(lambda: shares(first) == [[0, 1, 2, 3]])
    last = fill(peer, topic, 4, first=20)
    assert sorted(read(40, first)) == last
    with pytest.raises(ConsumerStoppedException):
        second.consume()


@pytest.mark.parametrize("protocol", [RangeProtocol, RoundRobinProtocol], ids=lambda p: p.protocol_name.decode())
def test_members_of_confluents_client_share_the_group(
    protocol: GroupMembershipProtocol,
    join: Join,
    kafka: KafkaCluster,
    new_topic: Callable[..., str],
    new_name: Callable[[str], str],
    handler: str,
) -> None:
    topic, group = new_topic(4), new_name("group")
    ours = join(topic, group, membership_protocol=protocol)
    theirs = Consumer(
        {
            "bootstrap.servers": kafka.hosts,
            "group.id": group,
            "partition.assignment.strategy": protocol.protocol_name.decode(),
            "session.timeout.ms": 10_000,
        }
    )
    try:
        theirs.subscribe([topic])

        def half() -> bool:
            theirs.poll(0.05)
            return len(ours.partitions) == 2 and len(theirs.assignment()) == 2

        until(half)
        assert sorted([*ours.partitions, *(p.partition for p in theirs.assignment())]) == [0, 1, 2, 3]
    finally:
        theirs.close()
    until(lambda: shares(ours) == [[0, 1, 2, 3]])


def test_a_member_more_than_partitions_is_idle_until_another_leaves(
    join: Join, new_topic: Callable[..., str], new_name: Callable[[str], str]
) -> None:
    topic, group = new_topic(1), new_name("group")
    members = [join(topic, group, consumer_timeout_ms=100) for _ in range(2)]
    until(lambda: sorted(map(len, shares(*members))) == [0, 1])
    idle, busy = sorted(members, key=lambda m: len(m.partitions))
    assert idle.consume() is None
    with pytest.raises(NoPartitionsForConsumerException):
        idle.commit_offsets()
    busy.stop()
    until(lambda: shares(idle) == [[0]])


def test_what_is_committed_is_where_the_next_member_begins(
    join: Join, peer: Peer, new_topic: Callable[..., str], new_name: Callable[[str], str]
) -> None:
    topic, group = new_topic(1), new_name("group")
    fill(peer, topic, 1)
    member = join(topic, group)
    assert [message.offset for message in itertools.islice(member, 5)] == [0, 1, 2, 3, 4]
    assert member.held_offsets == {0: 4}
    member.commit_offsets()
    read(1, member)
    member.stop()
    assert read(5, join(topic, group)) == [(0, n) for n in range(5, 10)]


@pytest.mark.parametrize("handler", one_of("gevent", "threading"), indirect=True)
def test_heartbeats_go_on_while_nobody_consumes_and_while_a_callback_runs(
    join: Join, new_topic: Callable[..., str], new_name: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """B47, B48: they are a worker's of its own. Both last longer than the session."""
    monkeypatch.setattr("gkafka.managedbalancedconsumer.SESSION_S", 6.0)
    topic, group = new_topic(2), new_name("group")
    began: list[float] = []

    def slow(consumer: Any, before: Any, after: Any) -> None:
        began.append(now())
        consumer._handler.sleep(8)

    member = join(topic, group, post_rebalance_callback=slow, auto_start=False)
    member.start()
    until(lambda: member._has_share)
    assert now() - began[0] >= 8
    gevent.sleep(8)
    assert (member._generation, len(began)) == (1, 1), "no rebalance, nothing lost"
    assert member._may_deliver()


def test_partitions_that_cannot_be_started_are_tried_again_and_not_left_alone(
    join: Join, peer: Peer, new_topic: Callable[..., str], new_name: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, group = new_topic(1), new_name("group")
    places = fill(peer, topic, 1)
    start, tries = SimpleConsumer.start, []

    def flaky(consumer: SimpleConsumer) -> None:
        tries.append(None)
        if len(tries) < 3:
            raise KafkaTimeoutError("the offsets are not there yet")
        start(consumer)

    monkeypatch.setattr(SimpleConsumer, "start", flaky)
    member = join(topic, group, rebalance_backoff_ms=200)
    with pytest.raises(KafkaTimeoutError, match="not there yet"):
        member.consume(block=False)
    until(lambda: len(tries) == 3 and shares(member) == [[0]])
    member._error = None  # the second one, if it was not asked for
    assert read(10, member) == places


def test_a_consumer_that_is_dropped_leaves(
    join: Join, connect: Callable[..., KafkaClient], new_topic: Callable[..., str], new_name: Callable[[str], str]
) -> None:
    topic, group = new_topic(2), new_name("group")
    dropped = connect().topics[topic].get_balanced_consumer(group, managed=True, heartbeat_interval_ms=300)
    assert shares(dropped) == [[0, 1]]
    other = join(topic, group)
    until(lambda: len(other.partitions) == 1)
    del dropped
    until(lambda: gc.collect() >= 0 and shares(other) == [[0, 1]])


def test_partitions_that_are_added_are_shared_too(
    join: Join, kafka: KafkaCluster, peer: Peer, new_topic: Callable[..., str], new_name: Callable[[str], str]
) -> None:
    topic, group = new_topic(1), new_name("group")
    member = join(topic, group, consumer_timeout_ms=100)
    member.consume()
    add_partitions(kafka.hosts, topic, 3)
    until(lambda: (member._cluster.update(), member.consume(), shares(member) == [[0, 1, 2]])[-1])


def test_callbacks_see_both_sides_of_a_rebalance_and_may_stop(
    join: Join, peer: Peer, new_topic: Callable[..., str], new_name: Callable[[str], str]
) -> None:
    topic, group = new_topic(2), new_name("group")
    fill(peer, topic, 2)
    calls: list[tuple[dict[int, int], dict[int, int]]] = []

    def callback(consumer: Any, before: dict[int, int], after: dict[int, int]) -> dict[int, int] | None:
        calls.append((before, after))
        if len(calls) > 1:
            consumer.stop()
        return dict.fromkeys(after, 6)

    first = join(topic, group, post_rebalance_callback=callback)
    assert calls == [({}, {0: -2, 1: -2})]
    assert sorted(read(6, first)) == [(p, o) for p in (0, 1) for o in (7, 8, 9)]
    second = join(topic, group)
    until(lambda: first.closed and shares(second) == [[0, 1]])


def test_a_protocol_of_the_users_own_divides(join: Join, new_topic: Callable[..., str], new_name: Callable[[str], str]) -> None:
    topic, group = new_topic(3), new_name("group")

    def all_to_the_last(participants: Any, partitions: Any, consumer_id: Any) -> Any:
        return list(partitions.values()) if consumer_id == max(participants) else []

    greedy = GroupMembershipProtocol(b"consumer", b"greedy", b"about me", all_to_the_last)
    members = [join(topic, group, membership_protocol=greedy) for _ in range(2)]
    until(lambda: sorted(shares(*members)) == [[], [0, 1, 2]])


def test_a_protocol_that_returns_nonsense_is_told_and_no_partition_is_left_alone(
    join: Join, new_topic: Callable[..., str], new_name: Callable[[str], str]
) -> None:
    nonsense = GroupMembershipProtocol(b"consumer", b"odd", None, lambda participants, partitions, me: [17])  # type: ignore[list-item]
    member = join(new_topic(2), new_name("group"), membership_protocol=nonsense)
    until(lambda: shares(member) == [[0, 1]])
    with pytest.raises(KafkaException, match=r"'odd'.*chose 17"):
        member.consume(block=False)


@pytest.mark.parametrize(
    ("keywords", "said"),
    [
        ({"heartbeat_interval_ms": 20_000}, "heartbeat_interval_ms=20000"),
        ({"consumer_group": ""}, "consumer_group=''"),
        ({"membership_protocol": RangeProtocol._replace(protocol_type=b"connect")}, "protocol_type=b'connect'"),
        ({"membership_protocol": RangeProtocol._replace(metadata=5)}, "metadata=5"),
        ({"zookeeper_connect": "127.0.0.1:2181"}, "zookeeper_connect"),
    ],
)
def test_bad_keywords_are_refused(client: KafkaClient, new_topic: Callable[..., str], keywords: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        client.topics[new_topic(1)].get_balanced_consumer(**{"consumer_group": "g", "managed": True, **keywords})
