"""Where a consumer ends, and what its commits may not take back."""

from __future__ import annotations

import contextlib
import functools
from typing import Any

import pytest

from gkafka import KafkaClient
from gkafka.common import OffsetType, TopicPartition
from gkafka.exceptions import ConfigurationError, ConsumerStoppedException, NoPartitionsForConsumerException
from gkafka.groupoffsets import GroupOffsets
from gkafka.testing import Close, Drop, Error, MockCluster
from tests.public.aids import LIMIT_S, Clock, Runner, error_of, fill, read

T0 = TopicPartition("t", 0)
LOADING = 14


def numbers(n: int) -> list[bytes]:
    return [b"%d" % i for i in range(n)]


def committed(cluster: MockCluster, group: str = "g") -> int:
    found = cluster.committed(group).get(("t", 0))
    return -1 if found is None else found.offset


def test_partitions_that_come_into_being_hinder_neither_stop_nor_held_offsets(client: KafkaClient, cluster: MockCluster) -> None:
    fill(client, numbers(5))
    consumer = client.topics["t"].get_simple_consumer("g", auto_commit_enable=True, consumer_timeout_ms=100)
    read(consumer, 5)
    cluster.add_partitions("t", 3)
    client.update_cluster()
    assert consumer.held_offsets == {0: 4}
    assert sorted(consumer.partitions) == [0], "what it consumes, not what there is"
    assert [p for p, _ in consumer.fetch_offsets()] == [0]
    consumer.stop()
    assert committed(cluster) == 5
    consumer.start()
    assert sorted(consumer.partitions) == [0, 1, 2]
    consumer.stop()


def test_a_partition_in_which_nothing_was_there_yet_goes_on_from_its_beginning(client: KafkaClient) -> None:
    topic = client.topics["t"]
    consumer = topic.get_simple_consumer(auto_offset_reset=OffsetType.LATEST, consumer_timeout_ms=500, reset_offset_on_fetch=False)
    consumer.stop()
    assert consumer.held_offsets == {0: -2}
    fill(client, numbers(5))
    consumer.start()
    assert [m.value for m in read(consumer, 5)] == numbers(5), "it stood at 0, so nothing is skipped"
    consumer.stop()


def test_a_stop_in_the_middle_of_a_commit_in_the_background_is_no_error(client: KafkaClient, cluster: MockCluster) -> None:
    """The worker had looked, and then there was no engine any more: it ended by an AttributeError."""
    fill(client, numbers(5))
    consumer = client.topics["t"].get_simple_consumer("g", auto_commit_enable=True, auto_commit_interval_ms=60_000)
    read(consumer, 5)
    consumer._auto_commit_interval_ms = 0
    consumer._may_commit = lambda: (setattr(consumer, "_may_commit", lambda: True), consumer.stop())[0] is None
    consumer._auto_commit()
    assert committed(cluster) == 5


@pytest.mark.parametrize("native", [False, True])
def test_b24_nothing_is_handed_out_behind_the_commit_of_a_stop(
    client: KafkaClient, cluster: MockCluster, run: Runner, monkeypatch: pytest.MonkeyPatch, native: bool
) -> None:
    fill(client, numbers(10))
    consumer: Any
    if native:
        consumer = client.get_consumer(group="g", auto_commit=True, auto_commit_interval_ms=60_000)
        consumer.assign([("t", 0)])
    else:
        consumer = client.topics["t"].get_simple_consumer("g", auto_commit_enable=True, consumer_timeout_ms=100)
    got = [m.offset for m in read(consumer, 3)]
    engine = consumer._engine
    finish, commits = GroupOffsets.finish, []

    def while_it_commits(offsets: GroupOffsets, *args: Any, **how: Any) -> None:
        """What a worker that waits for messages gets at this moment."""
        commits.append(args)
        with contextlib.suppress(ConsumerStoppedException):
            got.extend(m.offset for m in engine.consume_batch(3, 0))
        finish(offsets, *args, **how)

    monkeypatch.setattr(GroupOffsets, "finish", while_it_commits)
    consumer.stop()
    assert commits
    assert committed(cluster) == len(got) == 3


def test_a_commit_in_the_background_does_not_take_back_what_the_application_committed(
    client: KafkaClient, cluster: MockCluster, run: Runner
) -> None:
    fill(client, numbers(10))
    consumer = client.get_consumer(group="g", auto_commit=True, auto_commit_interval_ms=100)
    consumer.assign({("t", 0): 0})
    assert len(consumer.consume_batch(10, timeout_ms=LIMIT_S * 1000)) == 10
    consumer.commit()
    assert run.stays(lambda: committed(cluster) == 10, 0.3), "at the last call nothing of it was known to be finished"
    consumer.stop()


def held_pause(client: KafkaClient, seconds: float, monkeypatch: pytest.MonkeyPatch) -> Any:
    """An event until which a pause of just so many seconds between two tries lasts."""
    gate, pause = client.handler.Event(), client.cluster.pause
    monkeypatch.setattr(client.cluster, "pause", lambda wanted: gate.wait(LIMIT_S) if wanted == seconds else pause(wanted))
    return gate


def test_a_commit_that_is_tried_again_does_not_take_back_a_later_one(
    client: KafkaClient, cluster: MockCluster, run: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    offsets, gate = GroupOffsets(client.cluster, "g"), held_pause(client, 0.5, monkeypatch)
    cluster.on("OffsetCommit", Close(before=True))
    slow = run.aside(functools.partial(offsets.commit, {T0: 50}, timeout_s=LIMIT_S, tries=5, backoff_s=0.5))
    run.until(lambda: cluster.count("OffsetCommit") == 1)
    offsets.commit({T0: 100}, timeout_s=LIMIT_S)
    gate.set()
    slow.result()
    assert committed(cluster) == 100
    assert cluster.count("OffsetCommit") == 2


def test_and_goes_on_with_the_partitions_that_nobody_else_committed(
    make_cluster: Any, connect: Any, run: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = make_cluster(1, {"t": 2})
    client = connect(cluster)
    offsets, gate = GroupOffsets(client.cluster, "g"), held_pause(client, 0.3, monkeypatch)
    cluster.on("OffsetCommit", Error(LOADING))
    slow = run.aside(functools.partial(offsets.commit, {T0: 50, TopicPartition("t", 1): 51}, timeout_s=LIMIT_S, tries=5, backoff_s=0.3))
    run.until(lambda: cluster.count("OffsetCommit") == 1)
    offsets.commit({T0: 100}, timeout_s=LIMIT_S)
    gate.set()
    slow.result()
    assert {key: c.offset for key, c in cluster.committed("g").items()} == {("t", 0): 100, ("t", 1): 51}


def test_what_the_application_commits_does_not_wait_for_a_commit_in_the_background(
    client: KafkaClient, cluster: MockCluster, run: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(client, numbers(5))
    gate = held_pause(client, 1.5, monkeypatch)
    cluster.on("OffsetCommit", Error(LOADING))
    consumer = client.topics["t"].get_simple_consumer(
        "g", auto_commit_enable=True, auto_commit_interval_ms=100, offsets_channel_backoff_ms=1500
    )
    read(consumer, 5)
    run.until(lambda: cluster.count("OffsetCommit") == 1)
    consumer.commit_offsets()
    assert (committed(cluster), cluster.count("OffsetCommit")) == (5, 2), "the first is not tried again before"
    gate.set()
    consumer.stop()


def test_b23_a_commit_is_not_tried_again_once_the_partitions_are_anothers(client: KafkaClient, cluster: MockCluster) -> None:
    fill(client, numbers(5))
    consumer = client.topics["t"].get_simple_consumer("g", auto_commit_enable=True, offsets_channel_backoff_ms=10)
    read(consumer, 5)
    consumer._may_commit = lambda: cluster.count("OffsetCommit") == 0  # while the first try is answered, another member gets them
    cluster.on("OffsetCommit", Error(LOADING))
    error = error_of(consumer.commit_offsets)
    assert isinstance(error, NoPartitionsForConsumerException)
    assert "another member's" in str(error)
    consumer.stop()
    assert (committed(cluster), cluster.count("OffsetCommit")) == (-1, 1)


def consumer_of(client: KafkaClient, kind: str) -> Any:
    """One that commits by itself, in the group "g"; "native": assigned by hand, without a group."""
    if kind == "native":
        consumer = client.get_consumer()
        consumer.assign([T0])
        return consumer
    if kind == "member":
        return client.get_consumer("t", "g", auto_offset_reset="earliest")
    topic = client.topics["t"]
    if kind == "managed":
        return topic.get_balanced_consumer("g", managed=True, auto_commit_enable=True)
    return topic.get_simple_consumer("g", auto_commit_enable=True)


@pytest.mark.parametrize("kind", ["simple", "managed", "native", "member"])
def test_the_client_ends_its_consumers_within_the_timeout_whoever_is_silent(
    cluster: MockCluster, connect: Any, run: Runner, kind: str
) -> None:
    client = connect(cluster)
    fill(connect(cluster), numbers(5))
    consumer = consumer_of(client, kind)
    read(consumer, 5)
    for api in ("OffsetCommit", "LeaveGroup", "Heartbeat", "FindCoordinator", "Metadata"):
        cluster.on(api, Drop(before=True), times=None)
    with Clock() as clock:
        client.close(1)
    assert clock.seconds < 30
    with pytest.raises(ConsumerStoppedException):
        consumer.consume_batch(1)


@pytest.mark.parametrize("kind", ["simple", "managed", "member"])
def test_the_end_of_the_client_commits_what_was_consumed(cluster: MockCluster, connect: Any, kind: str) -> None:
    client = connect(cluster)
    fill(connect(cluster), numbers(5))
    consumer = consumer_of(client, kind)
    read(consumer, 4)
    client.close()
    assert committed(cluster) == 4
    consumer.stop()


@pytest.mark.parametrize("kind", ["simple", "managed"])
@pytest.mark.parametrize("reads", [True, False])
def test_a_stop_that_has_nothing_to_commit_waits_for_no_broker_that_is_away(
    cluster: MockCluster, connect: Any, kind: str, reads: bool
) -> None:
    """It committed once more what the group had, and tried that for api_timeout_ms: 60 s and more in each worker that was ended in an outage."""
    fill(connect(cluster), numbers(5))
    consumer = consumer_of(connect(cluster), kind)
    read(consumer, 5)
    if reads:
        consumer.commit_offsets()
    else:
        consumer.stop()
        consumer = consumer_of(connect(cluster), kind)
        assert consumer.consume_batch(timeout_ms=100) == []
    assert committed(cluster) == 5
    for broker in cluster.brokers:
        cluster.stop_broker(broker)
    with Clock() as clock:
        consumer.stop()
    assert clock.seconds < 30


def test_a_stop_commits_nothing_that_the_group_has_and_all_else(cluster: MockCluster, connect: Any) -> None:
    client = connect(cluster)
    fill(client, numbers(5))
    consumer = consumer_of(client, "simple")
    read(consumer, 3)
    consumer.commit_offsets()
    before = cluster.count("OffsetCommit")
    consumer.stop()
    assert cluster.count("OffsetCommit") == before
    consumer.start()
    read(consumer, 1)
    consumer.reset_offsets([(0, 1)])
    read(consumer, 2)  # as far as the group once was, before it was put back
    consumer.stop()
    assert committed(cluster) == 3


def test_a_timeout_of_stop_that_is_none_is_refused(client: KafkaClient) -> None:
    consumer = client.get_consumer("t")
    with pytest.raises(ConfigurationError, match="timeout=-1"):
        consumer.stop(-1)
    consumer.stop(0)
    assert consumer.closed
