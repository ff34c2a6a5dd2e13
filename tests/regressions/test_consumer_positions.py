"""Positions: they move by what was handed out and by definite answers, by nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from gkafka import KafkaClient
from gkafka.common import OffsetType
from gkafka.core.metadata import PartitionInfo
from gkafka.core.positions import State
from gkafka.exceptions import KafkaException, LogTruncationError, OffsetOutOfRangeError, SocketDisconnectedError
from gkafka.testing import Close, Drop, Error, MockCluster
from tests.core.fetchrig import FENCED, LATEST, NOT_LEADER, OUT_OF_RANGE, UNKNOWN_TOPIC, Rig, data
from tests.public.aids import LIMIT_S, Clock, Runner, error_of, fill, read
from tests.records.handmade import values

UNSTABLE_NETWORK = 13
NOT_COORDINATOR, LOADING = 16, 14


def numbers(n: int, first: int = 0) -> list[bytes]:
    return [b"%d" % i for i in range(first, first + n)]


def at(rig: Rig, offset: int, *, epoch: int = 1) -> Rig:
    """Everything before the offset was read, written in this epoch, and handed out."""
    rig.round(values(offset, leader_epoch=epoch))
    rig[0].consumed, rig[0].consumed_epoch = offset, epoch
    return rig


@pytest.mark.parametrize("code", [NOT_LEADER, UNKNOWN_TOPIC, FENCED, UNSTABLE_NETWORK, None])
def test_b25_nothing_that_passes_resets_a_position(code: int | None) -> None:
    """B25 librdkafka#4447 and its 1.8: a lost connection, and a failed name look-up during the check of an epoch, led to auto.offset.reset."""
    rig = at(Rig(reset_policy=LATEST), 10)
    for _ in range(5):
        if code is None:
            rig.take(rig.ask(), None, SocketDisconnectedError("gone"))
        else:
            rig.round(code)
        rig.now = rig.poll().deadline
    rig.metadata.leader_moved("t", 0, 2, 5)
    for _ in range(5):
        if code is None:
            rig.take_check(rig.check(), None, SocketDisconnectedError("gone"))
        else:
            rig.checked(rig.check(), {0: (-1, -1)}, code=code)
        rig.now = rig.poll().deadline
    assert (rig[0].consumed, rig[0].fetch_offset, rig.poll().lookups) == (10, 10, [])


@pytest.mark.parametrize("fault", [Error(NOT_COORDINATOR), Error(LOADING), Close(), Drop()])
def test_b26_a_look_up_of_commits_that_fails_is_no_missing_commit(connect: Any, cluster: MockCluster, fault: Any) -> None:
    """B26 kafka-python#2629: a timeout of the offset fetch was taken for "nothing committed", and the position was reset."""
    client = connect(cluster, offsets_channel_socket_timeout_ms=500)
    fill(client, numbers(20))
    topic = client.topics["t"]
    with topic.get_simple_consumer("g") as first:
        read(first, 15)
        first.commit_offsets()
    cluster.on("OffsetFetch", fault, times=2)
    second = topic.get_simple_consumer("g", auto_offset_reset=OffsetType.EARLIEST, offsets_channel_backoff_ms=10)
    assert [m.offset for m in read(second, 5)] == [15, 16, 17, 18, 19]
    second.stop()
    cluster.on("OffsetFetch", fault, times=None)
    error = error_of(topic.get_simple_consumer, "g", offsets_channel_backoff_ms=1, offsets_commit_max_retries=1)
    assert isinstance(error, KafkaException)


@pytest.mark.parametrize("answer", [(7, 3), (2, 0)])
def test_b28_an_answer_about_a_later_epoch_is_no_loss(answer: tuple[int, int]) -> None:
    """B28 franz-go#107, redpanda#5435: brokers that answer with the present epoch and some other end made every start a loss of data."""
    rig = at(Rig(reset_policy=None), 10)
    rig.metadata.leader_moved("t", 0, 2, 7)
    assert rig.checked(rig.check(), {0: answer}) == []
    assert (rig.errors, rig.ask().request.topics[0].partitions[0].fetch_offset) == ([], 10)


def test_b28_a_log_that_ends_just_where_the_position_is_was_not_cut() -> None:
    """B28 franz-go#107: the end of an epoch is the offset after its last record, which is where the consumer stands."""
    rig = at(Rig(reset_policy=None), 10)
    rig.metadata.leader_moved("t", 0, 2, 7)
    rig.checked(rig.check(), {0: (1, 10)})
    assert (rig.errors, rig[0].state) == ([], State.FETCHING)


def test_b29_a_moment_without_a_leader_does_not_end_the_checks() -> None:
    """B29 franz-go#1331: the epoch -1 of a partition without a leader was remembered, and the next leader was not asked."""
    rig = at(Rig(reset_policy=None), 10)
    topic = rig.metadata.topics["t"]
    topic.partitions[0] = PartitionInfo(0, -1, -1, (1,), (1,), None)
    assert rig.poll().want_metadata
    topic.partitions[0] = PartitionInfo(0, 2, -1, (1,), (1,), None)
    assert len(rig.asked()) == 1, "a leader whose epoch is not told is fetched from, and settles nothing"
    topic.partitions[0] = PartitionInfo(0, 3, 6, (1,), (1,), None)
    rig.checked(rig.check(), {0: (1, 4)})
    assert [type(e) for e in rig.errors] == [LogTruncationError]


def test_b30_a_leader_that_moves_during_the_check_costs_a_pause_and_not_a_loop() -> None:
    """B30 librdkafka#4433: OffsetForLeaderEpoch was sent to the old leader again and again."""
    rig = at(Rig(reset_policy=None), 10)
    asked = 0
    for epoch in range(5, 10):
        rig.metadata.leader_moved("t", 0, 1 + epoch % 3, epoch)
        check = rig.check()
        asked += 1
        assert check.broker_id == 1 + epoch % 3
        rig.checked(check, {0: (-1, -1)}, code=FENCED)
        assert rig.stale
        assert rig.poll().checks == []
        rig.now = rig.poll().deadline
    rig.checked(rig.check(), {0: (1, 10)})
    assert (len(rig.asked()), asked) == (1, 5)


def test_b31_a_commit_says_in_which_epoch_its_last_record_was_written(client: KafkaClient, cluster: MockCluster) -> None:
    """B31 kafka#23183: without it whoever goes on there cannot see that the log was cut, and reads on in the wrong place."""
    cluster.move_leader("t", 0, 1)
    cluster.move_leader("t", 0, 1)
    fill(client, numbers(20))
    with client.topics["t"].get_simple_consumer("g") as consumer:
        read(consumer, 20)
        consumer.commit_offsets()
    assert cluster.committed("g")["t", 0][:2] == (20, 2)


def test_b32_an_offset_out_of_range_is_told_or_logged_but_never_passed_in_silence(
    client: KafkaClient, cluster: MockCluster, caplog: Any
) -> None:
    """B32 franz-go#628, librdkafka#521, kafkajs#1777: OFFSET_OUT_OF_RANGE read everything again, or left records out, without a word."""
    fill(client, numbers(20), batches=20)
    cluster.delete_records("t", 0, 10)
    topic = client.topics["t"]
    with topic.get_simple_consumer("g") as other:
        other.commit_offsets([(0, 3)])
    consumer = topic.get_simple_consumer("g", fetch_error_backoff_ms=10)
    assert [m.offset for m in read(consumer, 10)] == list(range(10, 20))
    assert "offset 3 is out of range, starting from the earliest offset" in caplog.text
    consumer.stop()


def test_b32_without_a_policy_it_is_an_error_that_names_the_place() -> None:
    """B32 franz-go#1428: there must be a way to be told instead."""
    rig = at(Rig(reset_policy=None), 10)
    rig.round(OUT_OF_RANGE)
    (error,) = rig.errors
    assert isinstance(error, OffsetOutOfRangeError)
    assert (error.topic, error.partition, error.offset, rig[0].consumed) == ("t", 0, 10, 10)


def test_b41_the_position_is_behind_what_was_handed_out_and_not_behind_what_was_fetched(client: KafkaClient, run: Runner) -> None:
    """B41 kafka-python#2555: the position had moved before the records were returned; a call that was cut short lost them."""
    fill(client, numbers(100))
    consumer = client.topics["t"].get_simple_consumer("g")
    run.until(lambda: client.stats()["consumers"][0]["buffered"] == 100)
    assert consumer.held_offsets == {0: -2}
    read(consumer, 30)
    assert consumer.held_offsets == {0: 29}
    consumer.stop()


def test_b42_offsets_are_asked_of_the_leader_while_a_follower_is_fetched_from() -> None:
    """B42 librdkafka#4616, franz-go 1.20.3: ListOffsets went to the follower, which refused it for ever; the way back doubled records."""
    rig = Rig(rack="r2")
    rig.round(data(0, b"", preferred_read_replica=2))
    rig.round(OUT_OF_RANGE)
    rig.round(OUT_OF_RANGE)
    rig.now += 2
    assert rig.lookup().broker_id == 1


def test_b43_a_session_whose_epoch_is_wrong_is_begun_anew_and_the_records_come(
    client: KafkaClient, cluster: MockCluster, run: Runner
) -> None:
    """B43 redpanda#27749, alpakka-kafka#899: INVALID_FETCH_SESSION_EPOCH was answered for ever, since the session was not reset."""
    consumer = client.topics["t"].get_simple_consumer()
    (engine,) = cluster_sessions(client)
    for n in range(3):
        run.until(lambda: bool(engine.sessions))
        (session,) = engine.sessions.values()
        session.epoch += 7
        fill(client, numbers(5, 5 * n))
        assert [m.value for m in read(consumer, 5)] == numbers(5, 5 * n)
    consumer.stop()


def cluster_sessions(client: KafkaClient) -> list[Any]:
    return [share.fetcher for engine in client.cluster.engines if hasattr(engine, "_driver") for share in engine._driver.shares]


def test_b52_a_topic_that_is_gone_is_asked_about_at_a_walk_and_the_others_go_on(connect: Any, make_cluster: Any) -> None:
    """B52 kafka-python#1780, kafka-go#1071, librdkafka#69: a deleted topic made a loop, or stopped every other one."""
    cluster = make_cluster(topics={"t": 1, "u": 1})
    client = connect(cluster, auto_create_topics=False)
    gone, there = (client.topics[name].get_simple_consumer(fetch_error_backoff_ms=10) for name in ("t", "u"))
    cluster.delete_topic("t")
    with Clock() as clock:
        asked, fetched = cluster.count("Metadata"), cluster.count("Fetch")
        for n in range(10):
            fill(client, [b"%d" % n], topic="u")
            assert [m.value for m in read(there, 1)] == [b"%d" % n]
            assert gone.consume(block=False) is None
            client.handler.sleep(0.05)
        asked, fetched = cluster.count("Metadata") - asked, cluster.count("Fetch") - fetched
    assert clock.seconds > (asked - 5) / 12
    assert clock.seconds > (fetched - 60) / 40
    gone.stop()
    there.stop()


def test_b59_stop_does_not_wait_for_a_topic_that_is_gone(connect: Any, cluster: MockCluster, run: Runner) -> None:
    """B59 librdkafka#4528, #4724, sarama#1351: close() hung while a partition had no leader, or its topic was deleted."""
    client = connect(cluster, auto_create_topics=False)
    fill(client, numbers(5))
    consumer = client.topics["t"].get_simple_consumer("g", auto_commit_enable=True, offsets_channel_backoff_ms=50)
    read(consumer, 5)
    waiting = run.aside(consumer.consume)
    cluster.delete_topic("t")
    fetched = cluster.count("Metadata")
    run.until(lambda: cluster.count("Metadata") > fetched)
    with Clock() as clock:
        consumer.stop()
    assert clock.seconds < 30
    assert isinstance(error_of(waiting.result, LIMIT_S), KafkaException)


def test_b59_and_not_for_starts_that_nobody_answers(connect: Any, cluster: MockCluster, run: Runner) -> None:
    """B59 sarama#1351: nor while its start was still being looked up."""
    client = connect(cluster)
    cluster.on("ListOffsets", Drop(), times=None)
    topic = client.topics["t"]
    consumer = topic.get_simple_consumer(auto_start=False)
    starting = run.aside(consumer.start)
    run.until(lambda: cluster.count("ListOffsets") > 0)
    with Clock() as clock:
        client.close(1.0)
    assert clock.seconds < 30
    assert isinstance(error_of(starting.result, LIMIT_S), KafkaException)
