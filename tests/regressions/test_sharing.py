"""Consumers that share a topic: rebalances before the first commit, workers that wait for each other, sessions that end, clusters that move."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

import pytest

from gkafka import KafkaClient, ManagedBalancedConsumer
from gkafka.common import OffsetType
from gkafka.exceptions import NoPartitionsForConsumerException
from gkafka.testing import MockCluster
from tests.kit.clock import now
from tests.public.aids import LIMIT_S, Clock, Runner, error_of, fill, read
from tests.public.forking import script
from tests.public.zoo import ZooClient, zoo_client

Connect = Callable[..., KafkaClient]
QUICK: dict[str, Any] = {"heartbeat_interval_ms": 50, "rebalance_backoff_ms": 200, "consumer_timeout_ms": 200}


def numbers(n: int, first: int = 0) -> list[bytes]:
    return [b"%d" % i for i in range(first, first + n)]


def member_of(client: KafkaClient, **options: Any) -> ManagedBalancedConsumer:
    member = client.topics["t"].get_balanced_consumer("g", managed=True, **{**QUICK, **options})
    assert isinstance(member, ManagedBalancedConsumer)
    return member


# -- before the first commit -------------------------------------------------------------------------------------------
@pytest.mark.parametrize("commits", [True, False])
def test_b27_a_rebalance_before_the_first_commit_replays_nothing(
    connect: Connect, make_cluster: Callable[..., MockCluster], run: Runner, commits: bool
) -> None:
    """B27 pykafka#167: a rebalance before the first commit replayed the whole topic. (auto_commit's interval, a minute, is far from over.)"""
    cluster = make_cluster(1, {"t": 2})
    client = connect(cluster)
    for partition in (0, 1):
        fill(client, numbers(5), partition=partition)
    first = member_of(client, auto_commit_enable=commits)
    run.until(lambda: sorted(first.partitions) == [0, 1])
    read(first, 10)
    second = member_of(connect(cluster), auto_commit_enable=commits)
    run.until(lambda: len(first.partitions) == len(second.partitions) == 1)
    kept = next(iter(first.partitions))
    assert run.stays(lambda: first.consume(block=False) is None), "what stays goes on where it stood, committed or not"
    if commits:
        assert run.stays(lambda: second.consume(block=False) is None), "what moves was committed when it went"
    fill(client, [b"more"], partition=kept)
    assert [(m.partition_id, m.offset) for m in read(first, 1)] == [(kept, 5)]
    first.stop()
    second.stop()


def test_b27_and_with_latest_skips_nothing(connect: Connect, make_cluster: Callable[..., MockCluster], run: Runner) -> None:
    """B27 pykafka#597: nor does it begin at the end, behind what came while the group was balanced."""
    cluster = make_cluster(1, {"t": 2})
    client = connect(cluster)
    first = member_of(client, auto_offset_reset=OffsetType.LATEST)
    run.until(lambda: sorted(first.partitions) == [0, 1])
    for partition in (0, 1):
        fill(client, numbers(5), partition=partition)
    second = member_of(connect(cluster), auto_offset_reset=OffsetType.LATEST)
    run.until(lambda: len(first.partitions) == len(second.partitions) == 1)
    kept = next(iter(first.partitions))
    assert [(m.partition_id, m.offset) for m in read(first, 5)] == [(kept, n) for n in range(5)]
    first.stop()
    second.stop()


# -- workers that wait for each other ------------------------------------------------------------------------------------
def test_b47_no_call_waits_for_a_callback_and_no_heartbeat_for_either(
    connect: Connect, make_cluster: Callable[..., MockCluster], run: Runner
) -> None:
    """B47 kafka-python#1985: the thread for heartbeats and the caller each held a lock that the other wanted.

    The callback waits for the caller, as for a lock of the user's that is held around each call of the consumer.
    """
    cluster = make_cluster(1, {"t": 2})
    client = connect(cluster)
    waits, released = client.handler.Event(), client.handler.Event()

    def callback(consumer: Any, before: Any, after: Any) -> None:
        waits.set()
        released.wait(2 * LIMIT_S)

    member = member_of(client)
    run.until(lambda: sorted(member.partitions) == [0, 1])
    member._callback = callback
    cluster.rebalance("g")
    run.until(waits.is_set)
    beaten = cluster.count("Heartbeat")
    with Clock() as clock:
        member.consume(block=False)
        member.consume_batch(5, timeout_ms=100)
        assert sorted(member.partitions) == sorted(member.held_offsets) == [0, 1]
        member.stats()
        member.commit_offsets()
    assert clock.seconds < 30
    run.until(lambda: cluster.count("Heartbeat") >= beaten + 5)
    released.set()
    fill(client, numbers(1))
    assert [m.value for m in read(member, 1)] == numbers(1)
    with Clock() as clock:
        member.stop()
    assert clock.seconds < 30
    assert cluster.group("g").members == {}


UNWARNED = """
    import warnings
    warnings.filterwarnings("ignore", "ThreadingHandler in a process", RuntimeWarning)
"""
PATCHED_MEMBER = (
    UNWARNED
    + """    cluster = MockCluster(1, {"t": 2})
    client = KafkaClient(cluster.bootstrap, handler=HANDLER)
    producer = client.get_producer(linger_ms=0)
    for n in range(200):
        producer.produce("t", b"%d" % n, partition=n % 2)
    producer.flush()
    options = dict(managed=True, heartbeat_interval_ms=50, rebalance_backoff_ms=200, rebalance_max_retries=300, consumer_timeout_ms=200, auto_commit_enable=True)
    member = client.topics["t"].get_balanced_consumer("g", **options)
    seen = []
    def work(member):
        while now() < deadline and (len(set(seen)) < 200 or cluster.count("Heartbeat") < beaten + 10):
            for message in member:
                seen.append((message.partition_id, message.offset))
                sum(range(20_000))
                time.sleep(0.001)
    import threading
    other = KafkaClient(cluster.bootstrap, handler=HANDLER)
    deadline, beaten = now() + 60, cluster.count("Heartbeat")
    first = threading.Thread(target=work, args=(member,))
    first.start()
    time.sleep(0.2)
    second = other.topics["t"].get_balanced_consumer("g", **options)
    threads = [first, threading.Thread(target=work, args=(second,))]
    threads[1].start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    print(len(set(seen)), len(seen), "beats" if cluster.count("Heartbeat") >= beaten + 10 else "no heartbeats")
    begun = now()
    for consumer in (member, second):
        consumer.stop()
    client.close(); other.close()
    print("stopped" if now() - begun < 30 else "late")
    cluster.close()
"""
)


@pytest.mark.parametrize("handler", ["gevent", "threading"])
def test_b48_nor_in_a_process_that_gevent_has_patched(handler: str) -> None:
    """B48 kafka-python#2077: under gevent's patches heartbeats starved, and threads that were none waited for each other."""
    assert script(PATCHED_MEMBER, handler, patched=True) == ["200 200 beats", "stopped"]


PATCHED_ZOO = (
    UNWARNED
    + """    from tests.public.zoo import Zoo, ZooClient
    from kazoo.handlers.gevent import SequentialGeventHandler
    import threading
    cluster, zoo = MockCluster(1, {"t": 2}), Zoo()
    def connected():
        client = KafkaClient(cluster.bootstrap, handler=HANDLER)
        return client, ZooClient(zoo, handler=SequentialGeventHandler() if HANDLER == "gevent" else None)
    client, keeper = connected()
    producer = client.get_producer(linger_ms=0)
    for n in range(200):
        producer.produce("t", b"%d" % n, partition=n % 2)
    producer.flush()
    options = dict(rebalance_backoff_ms=50, rebalance_max_retries=1000, consumer_timeout_ms=500, auto_commit_enable=True, zookeeper_connection_timeout_ms=20_000)
    member = client.topics["t"].get_balanced_consumer("g", zookeeper=keeper, **options)
    seen = []
    def work(member):
        while now() < deadline and len(set(seen)) < 200:
            for message in member:
                seen.append((message.partition_id, message.offset))
                time.sleep(0.001)
    deadline = now() + 60
    first = threading.Thread(target=work, args=(member,))
    first.start()
    time.sleep(0.1)
    other, others_keeper = connected()
    second = other.topics["t"].get_balanced_consumer("g", zookeeper=others_keeper, **options)
    threads = [first, threading.Thread(target=work, args=(second,))]
    threads[1].start()
    while now() < deadline and not len(member.partitions) == len(second.partitions) == 1:
        time.sleep(0.01)
    print(sorted([*member.partitions, *second.partitions]))
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    print(len(set(seen)), len(seen))
    begun = now()
    for consumer in (member, second):
        consumer.stop()
    print("stopped" if now() - begun < 30 else "late", zoo.children("/consumers/g/ids"), zoo.children("/consumers/g/owners/t"))
    client.close(); other.close(); cluster.close()
"""
)


@pytest.mark.parametrize("handler", ["gevent", "threading"])
def test_b49_members_divide_a_topic_in_a_process_that_gevent_has_patched(handler: str) -> None:
    """B49 pykafka#671: the lock of BalancedConsumer's rebalance, under gevent's patches."""
    assert script(PATCHED_ZOO, handler, patched=True) == ["[0, 1]", "200 200", "stopped [] []"]


# -- addresses -----------------------------------------------------------------------------------------------------------
def test_b53_a_cluster_that_has_moved_is_found_by_the_name_that_was_given(
    connect: Connect, make_cluster: Callable[..., MockCluster], run: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B53 kafka-python#1683: all brokers came back under other addresses, and the client asked those it had learned for ever."""
    old_names: dict[str, Any] = {"limits": {"Metadata": (0, 9), "Fetch": (4, 12)}}  # by names: the ids of its topics are others
    before, after = (make_cluster(2, {"t": 1}, **old_names) for _ in range(2))
    for cluster in (before, after):
        fill(connect(cluster), numbers(10))
    now = [before]
    client = connect("kafka.test:9092", reconnect_backoff_max_ms=200, metadata_max_age_ms=60_000)
    resolve = client.handler.getaddrinfo

    def resolved(host: str, port: int, deadline: float | None = None) -> Any:
        if host == "kafka.test":
            return [(socket.AF_INET, now[0].brokers[1])]
        return resolve(host, port, deadline)

    monkeypatch.setattr(client.handler, "getaddrinfo", resolved)
    consumer = client.topics["t"].get_simple_consumer()
    assert [m.value for m in read(consumer, 5)] == numbers(5)
    now[0] = after
    before.close()
    assert [m.value for m in read(consumer, 5)] == numbers(5, 5)
    fill(client, numbers(1, 10))
    assert [m.value for m in read(consumer, 1)] == numbers(1, 10)
    assert set(client.brokers) == {1, 2}
    consumer.stop()


# -- ZooKeeper's sessions --------------------------------------------------------------------------------------------------
@pytest.fixture
def keeper(run: Runner) -> ZooClient:
    """A member's connection to a ZooKeeper of the test."""
    return zoo_client(run)


def test_b54_who_loses_its_session_has_nothing_and_joins_again(client: KafkaClient, keeper: ZooClient, run: Runner) -> None:
    """B54 pykafka#204: after the loss of a session a partition had two owners, or none."""
    fill(client, numbers(10))
    zoo, first = keeper.zoo, keeper.session
    member = client.topics["t"].get_balanced_consumer("g", zookeeper=keeper, consumer_timeout_ms=200, auto_commit_enable=True)
    read(member, 5)
    keeper.session = zoo.new_session()
    other = zoo.new_session()
    zoo.end_session(first)
    zoo.put("/consumers/g/owners/t/1-0", b"another", other)
    run.until(lambda: member._session == keeper.session)
    assert error_of(member.commit_offsets) is not None
    assert member.partitions == {}
    assert member.consume_batch(1, timeout_ms=100) == []
    assert zoo.children("/consumers/g/ids") == [member._consumer_id]
    zoo.end_session(other)
    run.until(lambda: sorted(member.partitions) == [0])
    assert read(member, 1)
    member.stop()


def test_b54_who_hears_nothing_of_zookeeper_stops_by_its_own_clock_and_goes_on_when_it_is_back(
    client: KafkaClient, keeper: ZooClient, run: Runner
) -> None:
    """B54 pykafka#308: a consumer that was dead after kazoo's SUSPENDED; wvanbergen/kafka#102: or one that went on."""
    fill(client, numbers(10))
    member: Any = client.topics["t"].get_balanced_consumer(
        "g", zookeeper=keeper, consumer_timeout_ms=200, zookeeper_connection_timeout_ms=1500, rebalance_backoff_ms=50
    )
    read(member, 5)
    keeper.is_silent = True
    silent_at = now()
    run.until(lambda: not member._may_deliver())
    assert member._lease_until - 1.0 <= silent_at, "two thirds of the session"
    assert member.consume_batch(1, timeout_ms=100) == []
    assert isinstance(error_of(member.commit_offsets), NoPartitionsForConsumerException)
    keeper.is_silent = False
    assert [m.offset for m in read(member, 5, LIMIT_S)] == [5, 6, 7, 8, 9], "where it stood: its session has outlived the silence"
    member.stop()
