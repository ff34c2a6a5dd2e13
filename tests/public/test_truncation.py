"""Logs that are cut, topics that are made again, followers nearby, sessions that are forgotten: what the consumer hands out."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from gkafka import KafkaClient
from gkafka.common import TopicPartition
from gkafka.config import ConsumerConfig, build
from gkafka.exceptions import LogTruncationError, TopicRecreatedError
from gkafka.nativeconsumer import NativeConsumer
from gkafka.testing import MockCluster
from tests.public.aids import LIMIT_S, Runner, error_of, fill, read

T0 = TopicPartition("t", 0)
QUICK: dict[str, Any] = {"fetch_error_backoff_ms": 10}
Native = Callable[..., NativeConsumer]


@pytest.fixture
def native(client: KafkaClient) -> Any:
    """Makes native consumers; they are stopped at the end."""
    made: list[NativeConsumer] = []

    def make(
        start: dict[TopicPartition, int] | None = None,
        *,
        policy: int | None = -2,
        of: KafkaClient | None = None,
        epochs: dict[TopicPartition, int] | None = None,
        **options: Any,
    ) -> NativeConsumer:
        config = build(ConsumerConfig, {**QUICK, **options}, where="test")
        consumer = NativeConsumer((of or client).cluster, config, reset_policy=policy, group="g")
        made.append(consumer)
        consumer.start()
        consumer.assign({T0: -2} if start is None else start, epochs=epochs)
        return consumer

    yield make
    for consumer in made:
        consumer.stop()


def numbers(n: int, first: int = 0) -> list[bytes]:
    return [b"%d" % i for i in range(first, first + n)]


def values(consumer: Any, count: int) -> list[bytes]:
    return [message.value for message in read(consumer, count)]


# -- logs that are cut (F27) -------------------------------------------------------------------------------------------------
def test_lost_records_that_were_consumed_are_named_and_a_seek_goes_on(client: KafkaClient, cluster: MockCluster, native: Native) -> None:
    fill(client, numbers(100), batches=10)
    consumer = native(policy=None)
    assert values(consumer, 100) == numbers(100)
    cluster.truncate("t", 0, 50)
    error = error_of(consumer.consume_batch, 1, LIMIT_S * 1000)
    assert isinstance(error, LogTruncationError)
    assert (error.topic, error.partition, error.offset, error.lost) == ("t", 0, 100, range(50, 100))
    assert consumer.position(T0) == 100
    fill(client, [b"new"] * 60)
    assert consumer.consume_batch(1, 100) == [], "it is told once, and nothing is skipped"
    consumer.seek(T0, error.diverging_offset)
    assert values(consumer, 60) == [b"new"] * 60


def test_with_a_policy_reading_goes_on_where_the_log_was_cut(
    client: KafkaClient, cluster: MockCluster, native: Native, run: Runner, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    fill(client, numbers(100), batches=10)
    consumer = native(policy=-1, start={T0: 0})
    assert values(consumer, 100) == numbers(100)
    cluster.truncate("t", 0, 50)
    fill(client, numbers(60, 1000))
    got = read(consumer, 60)
    assert [(m.offset, m.value) for m in got] == [(50 + i, b"%d" % (1000 + i)) for i in range(60)]
    assert consumer.stats()["truncations"] == 1
    assert "the records from offset 50 to 99, which were consumed, are lost" in caplog.text


def test_what_was_lost_before_it_was_handed_out_is_never_seen(
    client: KafkaClient, cluster: MockCluster, native: Native, run: Runner
) -> None:
    fill(client, numbers(100), batches=10)
    consumer = native(policy=None, queued_max_messages=10_000)
    run.until(lambda: consumer.buffered() == 100)
    assert values(consumer, 5) == numbers(5)
    cluster.truncate("t", 0, 50)
    run.until(lambda: consumer.buffered() == 50 and consumer.position(T0) == 5)
    fill(client, numbers(50, 1000))
    assert values(consumer, 95) == numbers(45, 5) + numbers(50, 1000)
    assert consumer.stats()["truncations"] == 0


def test_a_log_that_is_cut_below_what_a_deserializer_has_is_told(client: KafkaClient, cluster: MockCluster, run: Runner) -> None:
    """Its records are handed out all the same, so what comes in their place must not be passed in silence."""
    entered, may_go_on = client.handler.Event(), client.handler.Event()

    def slow(value: bytes) -> bytes:
        if value == b"60":
            entered.set()
            assert may_go_on.wait(LIMIT_S)
        return value

    fill(client, numbers(100), batches=10)
    consumer = client.get_consumer(auto_offset_reset="none", value_deserializer=slow, **QUICK)
    consumer.assign({T0: 0})
    run.until(lambda: consumer.stats()["buffered"] == 100)
    worker = run.aside(lambda: consumer.consume_batch(100, LIMIT_S * 1000))
    run.until(entered.is_set)
    cluster.truncate("t", 0, 50)
    run.until(lambda: consumer.stats()["truncations"] == 1)
    fill(client, [b"new"] * 60)
    may_go_on.set()
    assert [message.value for message in worker.result()] == numbers(100)
    error = error_of(consumer.consume_batch, 1, LIMIT_S * 1000)
    assert isinstance(error, LogTruncationError)
    assert (error.offset, error.lost) == (100, range(50, 100))
    consumer.stop()


def test_a_leader_that_moves_cleanly_costs_one_question_and_nothing_else(
    connect: Any, make_cluster: Any, native: Native, run: Runner
) -> None:
    cluster = make_cluster(brokers=3)
    client = connect(cluster)
    fill(client, numbers(100), batches=10)
    consumer = native(policy=None, of=client)
    assert values(consumer, 100) == numbers(100)
    for turn in range(3):
        cluster.move_leader("t", 0, turn % 3 + 1)
        fill(client, numbers(10, 1000 * turn))
        assert values(consumer, 10) == numbers(10, 1000 * turn)
    assert 1 <= cluster.count("OffsetForLeaderEpoch") <= 3


def test_commits_hold_epochs_and_a_start_there_finds_a_cut_log(
    client: KafkaClient, cluster: MockCluster, native: Native, run: Runner
) -> None:
    fill(client, numbers(100), batches=10)
    first = native()
    read(first, 100)
    first.commit(timeout_s=LIMIT_S)
    first.stop()
    assert cluster.committed("g")["t", 0][:2] == (100, 0)
    cluster.truncate("t", 0, 50)
    fill(client, numbers(80, 1000))
    committed = first.committed([T0], timeout_s=LIMIT_S)[T0]
    assert (committed.offset, committed.leader_epoch) == (100, 0)
    second = native({T0: committed.offset}, epochs={T0: committed.leader_epoch}, policy=None)
    error = error_of(second.consume_batch, 1, LIMIT_S * 1000)
    assert isinstance(error, LogTruncationError)
    assert error.lost == range(50, 100)
    simple = client.topics["t"].get_simple_consumer("g", fetch_error_backoff_ms=10)
    assert [m.offset for m in read(simple, 80)] == list(range(50, 130)), "pykafka's policies have no way to raise: nothing is left out"
    simple.stop()


def test_the_epoch_of_a_commit_is_that_of_a_batch_that_was_half_consumed(
    client: KafkaClient, cluster: MockCluster, native: Native, run: Runner
) -> None:
    for epoch in range(3):
        fill(client, numbers(10, 10 * epoch), batches=1)
        cluster.move_leader("t", 0, cluster.leader("t", 0))
    consumer = native()
    run.until(lambda: consumer.buffered() == 30)
    assert len(consumer.consume_batch(13)) == 13
    consumer.commit(timeout_s=LIMIT_S)
    assert cluster.committed("g")["t", 0][:2] == (13, 1)


@pytest.mark.parametrize("managed", [False, True], ids=["simple", "managed"])
def test_where_a_consumer_goes_on_by_itself_the_epoch_of_its_commit_says_nothing(
    client: KafkaClient, cluster: MockCluster, run: Runner, managed: bool
) -> None:
    """The epoch of an older commit ends before the position: that is no log that was cut."""
    topic = client.topics["t"]
    options = {"consumer_timeout_ms": LIMIT_S * 1000, "fetch_error_backoff_ms": 10}
    consumer: Any = (
        topic.get_balanced_consumer("g", managed=True, heartbeat_interval_ms=50, **options)
        if managed
        else topic.get_simple_consumer("g", reset_offset_on_fetch=False, **options)
    )
    fill(client, numbers(5))
    read(consumer, 5)
    consumer.commit_offsets()
    cluster.move_leader("t", 0, cluster.leader("t", 0))
    fill(client, numbers(5, 5))
    read(consumer, 5)
    if managed:
        cluster.rebalance("g")
        run.until(lambda: consumer._generation == 2 and consumer.partitions)
    else:
        consumer.stop()
        consumer.start()
    fill(client, [b"next"])
    assert [m.offset for m in read(consumer, 1)] == [10]
    consumer.stop()


def test_epochs_of_metadata_before_version_9_are_not_relied_on(connect: Any, make_cluster: Any, native: Native) -> None:
    """A broker may tell an old one for as long as partitions are reassigned: fetches with it would be refused for all that time."""
    cluster = make_cluster(brokers=2, versions="2.3")
    client = connect(cluster)
    fill(client, numbers(10))
    consumer = native(of=client)
    read(consumer, 10)
    cluster.move_leader("t", 0, 2 if cluster.leader("t", 0) == 1 else 1)
    fill(client, numbers(10))
    read(consumer, 10)
    assert {p.current_leader_epoch for r in cluster.requests("Fetch") for t in r.message.topics for p in t.partitions} == {-1}
    assert cluster.count("OffsetForLeaderEpoch") == 0


# -- topics that are made again (B52, F14) --------------------------------------------------------------------------------------
def test_a_topic_that_was_made_again_is_read_from_its_start(connect: Any, make_cluster: Any, native: Native) -> None:
    cluster = make_cluster()
    client = connect(cluster, auto_create_topics=False)
    fill(client, numbers(20))
    consumer = native({T0: 0}, policy=-1, of=client)
    read(consumer, 20)
    cluster.delete_topic("t")
    cluster.create_topic("t")
    fill(connect(cluster), numbers(30, 1000))
    assert [(m.offset, m.value) for m in read(consumer, 30)] == list(enumerate(numbers(30, 1000)))


def test_where_fetches_go_by_name_it_is_noticed_a_little_later_and_nothing_is_left_out(
    connect: Any, make_cluster: Any, native: Native
) -> None:
    """What was fetched before the metadata told of the new topic comes twice."""
    cluster = make_cluster(limits={"Fetch": (4, 12)})
    client = connect(cluster, auto_create_topics=False)
    fill(client, numbers(20))
    consumer = native({T0: 0}, of=client)
    read(consumer, 20)
    cluster.delete_topic("t")
    cluster.create_topic("t")
    fill(connect(cluster), numbers(30, 1000))
    seen: set[bytes] = set()
    while len(seen) < 30:
        seen |= {message.value for message in read(consumer, 1)}


@pytest.mark.parametrize("by", ["name", "id"])
def test_what_is_left_of_the_old_batch_moves_nothing_in_the_new_topic(
    connect: Any, make_cluster: Any, native: Native, run: Runner, by: str
) -> None:
    """Whoever takes exactly the last record of a batch has not noticed that it was the last."""
    cluster = make_cluster(limits={"Fetch": (4, 12)} if by == "name" else None)
    client = connect(cluster, auto_create_topics=False)
    fill(client, numbers(50))
    consumer = native({T0: 0}, of=client)
    assert len(consumer.consume_batch(50, LIMIT_S * 1000)) == 50
    cluster.delete_topic("t")
    cluster.create_topic("t")
    queue = consumer._driver.queues[T0]
    run.until(lambda: queue.position.fetch_offset == 0)
    fill(connect(cluster), numbers(70, 1000))
    run.until(lambda: queue.position.fetch_offset == 70)
    assert [m.offset for m in read(consumer, 70)] == list(range(70))


def test_without_a_policy_a_topic_that_was_made_again_is_told(connect: Any, make_cluster: Any, native: Native) -> None:
    cluster = make_cluster()
    client = connect(cluster, auto_create_topics=False)
    fill(client, numbers(20))
    consumer = native(policy=None, of=client)
    read(consumer, 20)
    cluster.delete_topic("t")
    cluster.create_topic("t")
    fill(connect(cluster), numbers(30, 1000))
    error = error_of(consumer.consume_batch, 1, LIMIT_S * 1000)
    assert isinstance(error, TopicRecreatedError)
    assert consumer.position(T0) == 20
    consumer.seek(T0, 0)
    assert values(consumer, 30) == numbers(30, 1000)


def test_a_topic_that_is_gone_for_a_while_does_not_stop_the_others(connect: Any, make_cluster: Any, native: Native, run: Runner) -> None:
    cluster = make_cluster(topics={"t": 1, "u": 1})
    client = connect(cluster, auto_create_topics=False)
    u0 = TopicPartition("u", 0)
    consumer = native({T0: 0, u0: 0}, of=client)
    fill(client, numbers(5), topic="u")
    read(consumer, 5)
    cluster.delete_topic("t")
    other = connect(cluster)
    asked = cluster.count("Metadata")
    for n in range(5):
        fill(other, [b"%d" % n], topic="u")
        assert values(consumer, 1) == [b"%d" % n]
    assert cluster.count("Metadata") - asked < 30, "nobody is asked in a loop"
    cluster.create_topic("t")
    fill(connect(cluster), numbers(3))
    assert values(consumer, 3) == numbers(3)


# -- followers nearby (KIP-392) -------------------------------------------------------------------------------------------------
def test_client_rack_has_a_follower_nearby_serve(connect: Any, make_cluster: Any, native: Native, run: Runner) -> None:
    cluster = make_cluster(brokers=2, racks=["a", "b"])
    client = connect(cluster)
    fill(client, numbers(50), batches=10)
    consumer = native(of=client, client_rack="b")
    assert values(consumer, 50) == numbers(50)
    leader = cluster.leader("t", 0)
    before = len([r for r in cluster.requests("Fetch") if r.broker == leader])
    fill(client, numbers(50, 50), batches=10)
    assert values(consumer, 50) == numbers(50, 50)
    fetches = cluster.requests("Fetch")
    assert {r.message.rack_id for r in fetches} == {"b"}
    assert len([r for r in fetches if r.broker == leader]) == before <= 2
    cluster.stop_broker(2)
    fill(client, numbers(10, 100))
    assert values(consumer, 10) == numbers(10, 100), "and the leader, when the follower is gone"


# -- sessions (KIP-227) -----------------------------------------------------------------------------------------------------------
def test_fetches_name_what_has_changed_and_forgotten_sessions_cost_nothing(connect: Any, make_cluster: Any, native: Native) -> None:
    cluster = make_cluster(topics={"t": 20})
    client = connect(cluster)
    consumer = native({TopicPartition("t", p): 0 for p in range(20)}, of=client)
    for turn in range(12):
        for p in (turn, turn + 1):
            fill(client, numbers(3), partition=p)
        assert len(read(consumer, 6)) == 6
        if turn % 4 == 3:
            cluster.forget_sessions()
    named = [(r.message.session_epoch, sum(len(t.partitions) for t in r.message.topics)) for r in cluster.requests("Fetch")]
    incremental = [n for epoch, n in named if epoch > 0]
    assert len(incremental) > 12
    assert max(incremental) <= 4, "of 20"
    assert {n for epoch, n in named if epoch == 0} == {20}
    assert [p for _, p in sorted((tp.partition, o) for tp, o in consumer.positions().items())] == [3, *[6] * 11, 3, *[0] * 7]


def test_a_cluster_that_has_no_room_for_sessions_is_read_without(connect: Any, make_cluster: Any, native: Native) -> None:
    cluster = make_cluster(topics={"t": 5}, fetch_sessions=False)
    client = connect(cluster)
    consumer = native({TopicPartition("t", p): 0 for p in range(5)}, of=client)
    for p in range(5):
        fill(client, numbers(3), partition=p)
    assert len(read(consumer, 15)) == 15
    assert {r.message.session_epoch for r in cluster.requests("Fetch")} == {0}


# -- how much is held -------------------------------------------------------------------------------------------------------------
def test_queued_max_bytes_bounds_what_all_partitions_hold_together(connect: Any, make_cluster: Any, native: Native, run: Runner) -> None:
    cluster = make_cluster(topics={"t": 4})
    client = connect(cluster)
    for p in range(4):
        fill(client, [b"x" * 1000] * 200, partition=p, batches=20)
    options: dict[str, Any] = {"queued_max_messages": 1_000_000, "fetch_max_bytes": 20_000, "fetch_message_max_bytes": 20_000}
    consumer = native({TopicPartition("t", p): 0 for p in range(4)}, of=client, queued_max_bytes=50_000, **options)
    run.until(lambda: consumer.stats()["buffered_bytes"] >= 50_000)
    assert run.stays(lambda: consumer.stats()["buffered_bytes"] <= 50_000 + 2 * 20_000)
    got: list[int] = []
    while len(got) < 800:
        got += [m.offset for m in read(consumer, 20)]
        assert consumer.stats()["buffered_bytes"] <= 50_000 + 2 * 20_000
    assert sorted(got) == sorted(list(range(200)) * 4)
    run.until(lambda: consumer.consume_batch(1, 0) == [] and consumer.stats()["buffered_bytes"] == 0)


# -- pauses -----------------------------------------------------------------------------------------------------------------------
def test_a_paused_partition_is_neither_fetched_nor_handed_out_and_stays_where_it_is(
    connect: Any, make_cluster: Any, native: Native, run: Runner
) -> None:
    client = connect(make_cluster(topics={"t": 2}))
    t1 = TopicPartition("t", 1)
    for p in (0, 1):
        fill(client, numbers(50), partition=p)
    consumer = native({T0: 0, t1: 0}, of=client, fetch_wait_max_ms=60_000)
    run.until(lambda: consumer.buffered() == 100)
    consumer.pause([T0])
    assert consumer.paused() == {T0}
    assert [(m.partition_id, m.offset) for m in read(consumer, 50)] == [(1, o) for o in range(50)]
    fill(client, numbers(5), partition=0)
    assert consumer.consume_batch(10, 100) == []
    assert consumer.position(T0) == 0
    held = consumer.buffered()
    fill(client, numbers(5), partition=0)
    assert consumer.consume_batch(10, 100) == []
    assert consumer.buffered() == held <= 55, "what was under way when the pause began"
    consumer.resume([T0])
    assert [(m.partition_id, m.offset) for m in read(consumer, 60)] == [(0, o) for o in range(60)]
    assert consumer.paused() == set()


def test_resume_wakes_whoever_waits(client: KafkaClient, native: Native, run: Runner) -> None:
    fill(client, numbers(3))
    consumer = native()
    run.until(lambda: consumer.buffered() == 3)
    consumer.pause([T0])
    waiting = run.aside(consumer.consume_batch, 3, LIMIT_S * 1000)
    assert run.stays(lambda: waiting.running, 0.1)
    consumer.resume([T0])
    assert len(waiting.result()) == 3


def test_a_seek_within_a_pause_takes_effect_after_it(client: KafkaClient, native: Native, run: Runner) -> None:
    fill(client, numbers(10))
    consumer = native()
    run.until(lambda: consumer.buffered() == 10)
    consumer.pause([T0])
    consumer.seek(T0, 7)
    assert consumer.consume_batch(10, 50) == []
    consumer.resume([T0])
    assert values(consumer, 3) == numbers(3, 7)
