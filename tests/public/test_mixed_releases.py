"""Brokers of different releases in one cluster, as in a rolling upgrade: each is asked in what it speaks, also while leaders and coordinators move."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any
from weakref import WeakKeyDictionary

import pytest

from gkafka import KafkaClient
from gkafka.exceptions import ConfigurationError, DeliveryError, UnsupportedCodec, UnsupportedCompressionType
from gkafka.testing import MockCluster
from gkafka.wire.versions import Versions
from tests.public.aids import LIMIT_S, stored_values
from tests.public.conftest import Connect
from tests.records.handmade import values

MakeCluster = Callable[..., MockCluster]
MIXES = [{1: "4.2", 2: "2.7"}, {1: "4.1", 2: "3.0", 3: "1.1"}, {1: "2.3", 2: "0.11.0"}]
"""Topic ids or none (2.8), transactions of before and after KIP-890, flexible versions or none (2.4), leader epochs or none (2.1)."""
RELEASES: WeakKeyDictionary[MockCluster, dict[int, str]] = WeakKeyDictionary()
"""What each cluster was made with."""
PRODUCE, FETCH = 0, 1


@pytest.fixture(params=MIXES, ids=lambda mix: " and ".join(mix.values()))
def mixed(request: pytest.FixtureRequest, make_cluster: MakeCluster) -> MockCluster:
    mix: dict[int, str] = request.param
    cluster = make_cluster(len(mix), {"t": 2}, versions=mix, replication_factor=len(mix))
    RELEASES[cluster] = mix
    return cluster


def check_asked_in_what_they_speak(cluster: MockCluster, api: str, key: int) -> None:
    """Each broker was asked, by its newest version; by the one before topic ids (12) where an older broker told the metadata, which has none."""
    used: dict[int, int] = {}
    for request in cluster.requests(api):
        used[request.broker] = max(used.get(request.broker, -1), request.version)
    assert used.keys() == cluster.brokers.keys()
    for broker, newest in used.items():
        there = Versions.for_broker(RELEASES[cluster][broker]).ranges[key][1]
        assert min(there, 12) <= newest <= there, (broker, newest)


def everywhere(cluster: MockCluster, rounds: int) -> Iterable[int]:
    """Moves both partitions to broker after broker, in opposite directions; yields the number of each move."""
    ids = sorted(cluster.brokers)
    for number in range(rounds * len(ids)):
        cluster.move_leader("t", 0, ids[number % len(ids)])
        cluster.move_leader("t", 1, ids[-1 - number % len(ids)])
        yield number


def numbers(count: int) -> list[bytes]:
    return [b"%d" % i for i in range(count)]


def test_records_are_there_once_and_in_order_while_leaders_move(mixed: MockCluster, connect: Connect) -> None:
    with connect(mixed).get_producer(acks="all", linger_ms=0) as producer:
        sent = 0
        for _ in everywhere(mixed, 4):
            for _ in range(5):
                for partition in (0, 1):
                    producer.produce("t", b"%d" % sent, partition=partition)
                sent += 1
            producer.flush(LIMIT_S)
    for partition in (0, 1):
        assert stored_values(mixed, partitions=[partition]) == numbers(sent)
    check_asked_in_what_they_speak(mixed, "Produce", PRODUCE)


def test_each_record_is_read_once_while_leaders_move(mixed: MockCluster, connect: Connect) -> None:
    client = connect(mixed)
    consumer, producer = client.get_consumer("t", fetch_wait_max_ms=10), client.get_producer(linger_ms=0)
    read: dict[int, list[int]] = {0: [], 1: []}
    for number in everywhere(mixed, 4):
        for partition in (0, 1):
            for _ in range(3):
                producer.produce("t", b"v", partition=partition)
        wanted = 3 * (number + 1)
        while any(len(found) < wanted for found in read.values()):
            for message in consumer.consume_batch(100, timeout_ms=int(LIMIT_S * 1000)):
                read[message.partition_id].append(message.offset)
    assert read[0] == read[1] == list(range(wanted))
    check_asked_in_what_they_speak(mixed, "Fetch", FETCH)


def test_a_group_goes_on_while_its_coordinator_moves(mixed: MockCluster, connect: Connect) -> None:
    client = connect(mixed)
    with client.get_producer() as producer:
        for partition in (0, 1):
            for i in range(40):
                producer.produce("t", b"%d" % i, partition=partition)
    read: list[tuple[int, int]] = []
    with client.get_consumer("t", group="g", auto_offset_reset="earliest", auto_commit=False, heartbeat_interval_ms=100) as consumer:
        for broker in [*sorted(mixed.brokers), *sorted(mixed.brokers, reverse=True)]:
            mixed.move_coordinator("g", broker)
            got: list[Any] = []
            while not got:
                got = consumer.consume_batch(80 // (2 * len(mixed.brokers)), timeout_ms=int(LIMIT_S * 1000))
            read += ((message.partition_id, message.offset) for message in got)
            consumer.commit()
            assert sum(found.offset for found in mixed.committed("g").values()) == len(read)
        assert len(read) == len(set(read))


def test_transactions_go_on_while_their_coordinator_moves(mixed: MockCluster, connect: Connect) -> None:
    with connect(mixed).get_producer(transactional_id="x", transaction_timeout_ms=60_000) as producer:
        for number in everywhere(mixed, 2):
            with producer.transaction():
                producer.produce("t", b"%d" % number, partition=0)
                producer.produce("t", b"%d" % number, partition=1)
            mixed.move_coordinator("x", sorted(mixed.brokers)[number % len(mixed.brokers)])
    for partition in (0, 1):
        assert [record.value for record in mixed.log("t", partition, committed=True)] == numbers(number + 1)


@pytest.mark.parametrize(("before", "after"), [("2.7", "4.2"), ("4.2", "2.7"), ("1.1", "3.0"), ("3.0", "1.1")])
def test_a_broker_that_comes_back_with_another_release_is_asked_in_that(
    make_cluster: MakeCluster, connect: Connect, before: str, after: str
) -> None:
    """An upgrade, and one that is taken back."""
    cluster = make_cluster(2, {"t": 2}, versions={1: "3.3", 2: before}, replication_factor=2)
    cluster.move_leader("t", 0, 2)
    client = connect(cluster)
    with client.get_producer(linger_ms=0) as producer, client.get_consumer("t", fetch_wait_max_ms=10) as consumer:
        offsets: list[int] = []
        for release in (before, after):
            if release == after:
                cluster.stop_broker(2)
                producer.produce("t", b"meanwhile", partition=0).result(LIMIT_S)
                cluster.start_broker(2, versions=after)
                cluster.move_leader("t", 0, 2)
                since = len(cluster.requests())
            for _ in range(10):
                producer.produce("t", b"v", partition=0).result(LIMIT_S)
        while len(offsets) < 21:
            offsets += [message.offset for message in consumer.consume_batch(100, timeout_ms=int(LIMIT_S * 1000))]
    assert offsets == list(range(21))
    used = [request.version for request in cluster.requests()[since:] if (request.api, request.broker) == ("Produce", 2)]
    assert set(used) == {Versions.for_broker(after).ranges[PRODUCE][1]}


def test_releases_of_brokers_that_are_not_there_are_refused(make_cluster: MakeCluster) -> None:
    with pytest.raises(ConfigurationError, match="there is no broker 3, the brokers are 1, 2"):
        make_cluster(2, versions={3: "2.7"})


def test_administration_asks_each_broker_in_its_own_release(mixed: MockCluster, connect: Connect) -> None:
    client: KafkaClient = connect(mixed)
    for number in everywhere(mixed, 2):
        for partition in (0, 1):
            mixed.append("t", partition, values(1, base_offset=number))
        found = client.list_offsets({("t", 0): -1, ("t", 1): -1})
        assert set(found.values()) == {number + 1}


@pytest.mark.parametrize("asked", [1, 2])
def test_zstd_goes_to_the_brokers_that_take_it_whoever_told_the_metadata(make_cluster: MakeCluster, connect: Connect, asked: int) -> None:
    """zstd came with 2.1. While the leader's connection opened it was taken for a broker like the one that had told the metadata, and the record given up."""
    pytest.importorskip("zstandard")
    cluster = make_cluster(2, {"t": 2}, versions={1: "3.0", 2: "2.0"}, replication_factor=2)
    cluster.move_leader("t", 0, 1)
    cluster.move_leader("t", 1, 2)
    host, port = cluster.brokers[asked]
    producer = connect(f"{host}:{port}").get_producer(compression="zstd", linger_ms=0)
    there, not_there = producer.produce("t", b"v", partition=0), producer.produce("t", b"v", partition=1)
    there.result(LIMIT_S)
    assert isinstance(not_there.exception(LIMIT_S), (UnsupportedCodec, UnsupportedCompressionType))
    assert stored_values(cluster, partitions=[0]) == [b"v"]
    with pytest.raises(DeliveryError):
        producer.close(LIMIT_S)
