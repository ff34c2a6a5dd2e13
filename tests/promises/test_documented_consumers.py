"""What the reference says in prose of the SimpleConsumer, on brokers inside the test's process. The numbers are those of promises.py."""

from __future__ import annotations

import dataclasses
import gc
import weakref
from collections import Counter
from collections.abc import Callable
from itertools import islice
from types import SimpleNamespace
from typing import Any

import pytest

from gkafka import KafkaClient
from gkafka.common import OffsetType
from gkafka.exceptions import (
    ConfigurationError,
    ConsumerStoppedException,
    KafkaException,
    OffsetRequestFailedError,
    error_for,
)
from gkafka.testing import Error, MockCluster
from tests.kit.clock import now
from tests.promises.aids import consumer_of, fill, until

Connect = Callable[..., KafkaClient]


# -- where a consumer starts, by text and bytes (12 to 23) ---------------------------------------------------------------
@pytest.mark.parametrize("group", ["g", b"g"])
def test_names_are_text_or_bytes(client: KafkaClient, cluster: MockCluster, group: Any) -> None:
    fill(client, 1)
    consumer = client.topics[b"t"].get_simple_consumer(group, consumer_timeout_ms=60_000)
    consumer.consume()
    consumer.commit_offsets()
    consumer.stop()
    assert cluster.committed("g")["t", 0].offset == 1


def test_partitions_take_turns(client: KafkaClient) -> None:
    for partition in range(4):
        for i in range(5):
            client.get_producer().produce("many", b"%d" % i, partition=partition).result(60)
    consumer = consumer_of(client, "many", auto_start=False)
    consumer.start()
    assert sorted(consumer.partitions) == [0, 1, 2, 3]
    seen = Counter(consumer.consume().partition_id for _ in range(20))
    assert seen == {0: 5, 1: 5, 2: 5, 3: 5}
    consumer.stop()


@pytest.mark.parametrize(
    ("commit", "reset", "on_start", "first"),
    [
        (None, OffsetType.EARLIEST, False, 0),
        (None, OffsetType.EARLIEST, True, 0),
        (None, OffsetType.LATEST, False, 6),
        (5, OffsetType.EARLIEST, False, 5),
        (5, OffsetType.LATEST, False, 5),
        (5, OffsetType.EARLIEST, True, 0),
        (5, OffsetType.LATEST, True, 6),
    ],
)
def test_where_a_group_starts(client: KafkaClient, commit: int | None, reset: int, on_start: bool, first: int) -> None:
    fill(client, 6)
    if commit is not None:
        before = consumer_of(client, consumer_group="g")
        while before.consume().offset < commit - 1:
            pass
        before.commit_offsets()
        before.stop()
    consumer = consumer_of(client, consumer_group="g", auto_offset_reset=reset, reset_offset_on_start=on_start)
    fill(client, 1)
    assert consumer.consume().offset == first
    consumer.stop()


def test_a_reset_at_the_start_is_committed_at_once(client: KafkaClient, cluster: MockCluster) -> None:
    fill(client, 3)
    consumer = consumer_of(client, consumer_group="g", auto_offset_reset=OffsetType.LATEST, reset_offset_on_start=True)
    assert cluster.committed("g")["t", 0].offset == 3
    consumer.stop()


# -- a consumer's settings (34 to 53, 172 to 187) --------------------------------------------------------------------------
def test_auto_commit_needs_a_group(client: KafkaClient) -> None:
    with pytest.raises(ConfigurationError, match="consumer_group"):
        consumer_of(client, auto_commit_enable=True)


def test_auto_commit_commits_what_was_consumed(client: KafkaClient, cluster: MockCluster) -> None:
    fill(client, 5)
    consumer = consumer_of(client, consumer_group="g", auto_commit_enable=True, auto_commit_interval_ms=20)
    consumer.consume()
    consumer.consume()
    until(client, lambda: cluster.committed("g").get(("t", 0), SimpleNamespace(offset=-1)).offset == 2)
    consumer.stop()


def test_without_auto_commit_the_interval_means_nothing(client: KafkaClient, cluster: MockCluster) -> None:
    fill(client, 2)
    consumer = consumer_of(client, consumer_group="g", auto_commit_interval_ms=1)
    consumer.consume()
    consumer._auto_commit()
    client.handler.sleep(0.05)
    consumer.stop()
    assert cluster.count("OffsetCommit") == 0


def test_auto_commit_waits_for_its_interval(client: KafkaClient, cluster: MockCluster) -> None:
    fill(client, 2)
    consumer = consumer_of(client, consumer_group="g", auto_commit_enable=True, auto_commit_interval_ms=3_600_000)
    consumer.consume()
    consumer._auto_commit()
    assert cluster.count("OffsetCommit") == 0
    consumer._committed_at -= 3600
    consumer._auto_commit()
    assert cluster.count("OffsetCommit") == 1
    consumer.stop()


def test_a_fetch_asks_for_what_the_settings_say(client: KafkaClient, cluster: MockCluster) -> None:
    consumer = consumer_of(client, fetch_message_max_bytes=12345, fetch_min_bytes=7, fetch_wait_max_ms=33)
    until(client, lambda: cluster.count("Fetch"))
    consumer.stop()
    request: Any = cluster.requests("Fetch")[0].message
    assert (request.min_bytes, request.max_wait_ms, request.topics[0].partitions[0].partition_max_bytes) == (7, 33, 12345)


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_there_are_as_many_fetch_workers_as_it_says(client: KafkaClient, workers: int) -> None:
    def names() -> set[str]:
        return {w.name for w in client.handler.workers() if w.is_alive() and w.name.startswith("gkafka-fetcher")}

    consumer = consumer_of(client, "many", num_consumer_fetchers=workers)
    until(client, lambda: len(names()) == workers)
    consumer.stop()


def test_a_commit_is_tried_as_often_as_it_is_told_with_a_pause(client: KafkaClient, cluster: MockCluster) -> None:
    fill(client, 1)
    consumer = consumer_of(client, consumer_group="g", offsets_channel_backoff_ms=50, offsets_commit_max_retries=3)
    consumer.consume()
    cluster.on("OffsetCommit", Error(14), times=None)
    started = now()
    with pytest.raises(KafkaException):
        consumer.commit_offsets()
    assert now() - started >= 0.1
    assert cluster.count("OffsetCommit") in (3, 4)
    cluster.clear_script()
    consumer.stop()


def test_what_a_worker_met_is_raised_where_messages_are_consumed(client: KafkaClient, cluster: MockCluster) -> None:
    fill(client, 1)
    cluster.on("OffsetCommit", Error(30), times=None)
    consumer = consumer_of(client, consumer_group="g", auto_commit_enable=True, auto_commit_interval_ms=10, consumer_timeout_ms=20)
    met: list[KafkaException] = []

    def consumes() -> bool:
        try:
            consumer.consume()
        except KafkaException as exc:
            met.append(exc)
        return bool(met)

    until(client, consumes)
    assert error_for(30).__class__ is type(met[0])
    consumer.stop()


def test_consume_ends_at_its_timeout_and_does_not_wait_without_block(client: KafkaClient) -> None:
    patient = consumer_of(client, consumer_timeout_ms=120_000)
    started = now()
    assert patient.consume(block=False) is None
    assert now() - started < 60
    patient.stop()
    consumer = consumer_of(client, consumer_timeout_ms=200)
    started = now()
    assert consumer.consume() is None
    assert list(consumer) == []
    assert 0.39 <= now() - started < 30
    consumer.stop()


def test_what_a_consumer_says_of_itself(client: KafkaClient) -> None:
    fill(client, 3)
    topic = client.topics["t"]
    consumer = consumer_of(client)
    assert consumer.held_offsets == {0: -2}
    consumer.consume()
    message = consumer.consume()
    assert consumer.held_offsets == {0: 1}
    assert consumer.topic is topic
    assert consumer.partitions == {0: topic.partitions[0]}
    assert message.partition is topic.partitions[0]
    consumer.stop()


def test_some_partitions_only(client: KafkaClient) -> None:
    topic = client.topics["many"]
    for partition in range(4):
        client.get_producer().produce("many", b"v", partition=partition).result(60)
    consumer = topic.get_simple_consumer(partitions=[topic.partitions[2], topic.partitions[0]], consumer_timeout_ms=60_000)
    assert sorted(m.partition_id for m in islice(consumer, 2)) == [0, 2]
    assert sorted(consumer.partitions) == [0, 2]
    consumer.stop()


def test_without_auto_start_nothing_is_asked(client: KafkaClient, cluster: MockCluster) -> None:
    topic = client.topics["t"]
    asked = len(cluster.requests())
    consumer = topic.get_simple_consumer("g", auto_start=False)
    client.handler.sleep(0.05)
    assert len(cluster.requests()) == asked
    consumer.start()
    assert cluster.count("OffsetFetch") == 1
    consumer.stop()


def test_a_consumer_without_a_group_looks_for_no_coordinator(client: KafkaClient, cluster: MockCluster) -> None:
    fill(client, 1)
    consumer = consumer_of(client)
    consumer.consume()
    with pytest.raises(ConfigurationError, match="consumer_group"):
        consumer.commit_offsets()
    consumer.stop()
    assert cluster.count("FindCoordinator") == 0


def test_a_stopped_consumer_says_so_and_can_be_started_again(client: KafkaClient) -> None:
    fill(client, 2)
    consumer = consumer_of(client)
    consumer.consume()
    consumer.stop()
    with pytest.raises(ConsumerStoppedException):
        consumer.consume()
    consumer.start()
    assert consumer.consume() is not None
    consumer.stop()


def test_a_consumer_that_is_deleted_stops_fetching(client: KafkaClient, cluster: MockCluster) -> None:
    fill(client, 1)
    consumer = consumer_of(client, fetch_wait_max_ms=20)
    consumer.consume()
    gone = weakref.ref(consumer)
    del consumer
    gc.collect()
    until(client, lambda: gone() is None)  # one of its workers may be at work for it at this moment

    def quiet() -> bool:
        before = cluster.count("Fetch")
        client.handler.sleep(0.2)
        return cluster.count("Fetch") == before

    until(client, quiet)


def test_committed_offsets_are_fetched_by_partition(client: KafkaClient) -> None:
    fill(client, 3)
    consumer = consumer_of(client, consumer_group="g")
    assert [(p, r.offset) for p, r in consumer.fetch_offsets()] == [(0, -1)]
    consumer.consume()
    consumer.commit_offsets()
    ((partition, response),) = consumer.fetch_offsets()
    assert (partition, response.offset, response.err) == (0, 1, 0)
    consumer.fetch()
    assert consumer.consume().offset == 1
    consumer.stop()


def test_offsets_are_reset_by_time_or_to_a_number(client: KafkaClient) -> None:
    producer = client.get_producer()
    for i in range(5):
        producer.produce("t", b"%d" % i, timestamp=1_700_000_000_000 + i * 1000, partition=0).result(60)
    consumer = consumer_of(client)
    partition = client.topics["t"].partitions[0]
    for wanted, offset in ((1_700_000_002_500, 3), (2, 2), (OffsetType.EARLIEST, 0)):
        consumer.reset_offsets([(partition, wanted)])
        assert consumer.consume().offset == offset
    consumer.stop()


def test_a_look_up_that_keeps_failing_is_an_offset_request_failed(connect: Connect, cluster: MockCluster) -> None:
    client = connect(cluster)
    fill(connect(cluster), 1)
    consumer = consumer_of(client)
    consumer.consume()
    client.cluster.config = dataclasses.replace(client.cluster.config, api_timeout_ms=1000)
    cluster.on("ListOffsets", Error(7), times=None)
    with pytest.raises(OffsetRequestFailedError):
        consumer.reset_offsets([(0, OffsetType.EARLIEST)])
    consumer.stop()


def test_a_consumer_follows_a_leader_that_moved(connect: Connect, make_cluster: Callable[..., MockCluster]) -> None:
    cluster = make_cluster(2, {"t": 1}, replication_factor=2)
    client = connect(cluster)
    fill(client, 2)
    consumer = consumer_of(client, fetch_error_backoff_ms=10)
    assert consumer.consume().offset == 0
    cluster.move_leader("t", 0, 3 - cluster.leader("t", 0))
    fill(client, 2)
    assert [consumer.consume().offset for _ in range(3)] == [1, 2, 3]
    consumer.stop()
