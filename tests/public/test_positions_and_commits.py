"""Where a consumer starts, goes and is remembered: resets, commits, seeks. Numbers in docstrings are the documented promises."""

from __future__ import annotations

import logging
from itertools import pairwise
from typing import Any

import pytest

from gkafka import KafkaClient, simpleconsumer
from gkafka.common import OffsetType, TopicPartition
from gkafka.exceptions import ConfigurationError, GroupAuthorizationFailed, KafkaException, OffsetOutOfRangeError, UnsupportedVersion
from gkafka.groupoffsets import GroupOffsets
from gkafka.nativeconsumer import NativeConsumer
from gkafka.testing import Close, Delay, Edit, Error, MockCluster
from tests.kit.clock import now
from tests.public.aids import LIMIT_S, Clock, Runner, by_partition, error_of, fill, limit_calls, read
from tests.public.test_consuming import Consume, consume, numbers

__all__ = ["consume"]

EARLIEST, LATEST = OffsetType.EARLIEST, OffsetType.LATEST
T0 = TopicPartition("t", 0)


@pytest.fixture
def native(client: KafkaClient) -> Any:
    """Makes native consumers of client; they are stopped at the end."""
    made: list[NativeConsumer] = []

    def make(start: dict[TopicPartition, int] | None = None, *, policy: int | None = -2, **options: Any) -> NativeConsumer:
        from gkafka.config import ConsumerConfig, build

        consumer = NativeConsumer(client.cluster, build(ConsumerConfig, options, where="test"), reset_policy=policy, group="g")
        made.append(consumer)
        consumer.start()
        consumer.assign({T0: 0} if start is None else start)
        return consumer

    yield make
    for consumer in made:
        consumer.stop()


def take(consumer: NativeConsumer, count: int) -> list[int]:
    return [m.offset for m in read(consumer, count)]


# -- the start (12 to 19) ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("reset_on_start", [False, True])
@pytest.mark.parametrize(("policy", "first"), [(EARLIEST, 0), (LATEST, 5)])
def test_a_new_group_starts_at_the_policy(client: KafkaClient, consume: Consume, reset_on_start: bool, policy: int, first: int) -> None:
    """13, 17"""
    fill(client, numbers(5))
    consumer = consume("g", auto_offset_reset=policy, reset_offset_on_start=reset_on_start)
    fill(client, numbers(2, 5))
    assert [m.offset for m in read(consumer, 7 - first)] == list(range(first, 7))


@pytest.mark.parametrize("policy", [EARLIEST, LATEST])
def test_a_group_with_a_commit_goes_on_behind_it(client: KafkaClient, consume: Consume, policy: int) -> None:
    """14, 18"""
    fill(client, numbers(10))
    first = consume("g")
    read(first, 5)
    first.commit_offsets()
    first.stop()
    assert [m.offset for m in read(consume("g", auto_offset_reset=policy), 5)] == [5, 6, 7, 8, 9]


@pytest.mark.parametrize(("policy", "offset"), [(EARLIEST, 0), (LATEST, 10)])
def test_reset_offset_on_start_outweighs_the_commit_and_is_committed(
    client: KafkaClient, cluster: MockCluster, consume: Consume, policy: int, offset: int
) -> None:
    """15, 19, 49"""
    fill(client, numbers(10))
    first = consume("g")
    read(first, 5)
    first.commit_offsets()
    first.stop()
    consume("g", auto_offset_reset=policy, reset_offset_on_start=True)
    assert cluster.committed("g")["t", 0].offset == offset


def test_each_partition_starts_by_its_own_commit(connect: Any, make_cluster: Any, consume: Consume) -> None:
    """16"""
    client = connect(make_cluster(topics={"t": 2}))
    for p in (0, 1):
        fill(client, numbers(6), partition=p)
    first = consume("g", of=client, partitions=[1])
    read(first, 4)
    first.commit_offsets()
    first.stop()
    assert by_partition(read(consume("g", of=client), 8)) == {0: [0, 1, 2, 3, 4, 5], 1: [4, 5]}


def test_group_and_topic_names_may_be_bytes(client: KafkaClient, cluster: MockCluster) -> None:
    """20"""
    fill(client, numbers(3))
    with client.topics[b"t"].get_simple_consumer(consumer_group=b"g") as consumer:
        read(consumer, 3)
        consumer.commit_offsets()
    assert cluster.committed("g")["t", 0].offset == 3


def test_a_start_that_cannot_be_told_in_time_is_an_error(connect: Any, cluster: MockCluster) -> None:
    client = connect(cluster, api_timeout_ms=1500)
    topic = client.topics["t"]
    cluster.on("ListOffsets", Delay(120), times=None)
    with Clock() as clock:
        error = error_of(topic.get_simple_consumer)
    assert clock.seconds < 30
    assert "t-0" in str(error)


# -- commits -------------------------------------------------------------------------------------------------------------------
def test_what_is_committed_is_the_next_offset_to_consume(client: KafkaClient, cluster: MockCluster, consume: Consume) -> None:
    fill(client, numbers(10))
    consumer = consume("g")
    assert consumer.held_offsets == {0: -2}
    for message in read(consumer, 4):
        last = message.offset
    assert consumer.held_offsets == {0: last}
    consumer.commit_offsets()
    assert cluster.committed("g")["t", 0].offset == last + 1
    assert [(p, r.offset, r.err) for p, r in consumer.fetch_offsets()] == [(0, last + 1, 0)]


def test_what_was_fetched_and_not_consumed_is_not_committed(
    client: KafkaClient, cluster: MockCluster, consume: Consume, run: Runner
) -> None:
    fill(client, numbers(100))
    consumer = consume("g")
    run.until(lambda: client.stats()["consumers"][0]["buffered"] == 100)
    read(consumer, 1)
    consumer.commit_offsets()
    assert cluster.committed("g")["t", 0].offset == 1


def test_chosen_offsets_may_be_committed(connect: Any, make_cluster: Any, consume: Consume) -> None:
    cluster = make_cluster(topics={"t": 2})
    client = connect(cluster)
    consumer = consume("g", of=client)
    consumer.commit_offsets([(0, 7), (client.topics["t"].partitions[1], 9)])
    assert {key[1]: c.offset for key, c in cluster.committed("g").items()} == {0: 7, 1: 9}


def test_without_a_group_there_is_nothing_to_commit_to(consume: Consume) -> None:
    """172"""
    consumer = consume()
    assert isinstance(error_of(consumer.commit_offsets), ConfigurationError)
    assert isinstance(error_of(consumer.fetch_offsets), ConfigurationError)


@pytest.mark.parametrize(
    "fault",
    [Error(14), Error(15), Error(16), Close(before=True), Close(before=False)],
    ids=["loading", "no coordinator", "another coordinator", "closed before", "closed after"],
)
def test_commits_are_tried_again(client: KafkaClient, cluster: MockCluster, consume: Consume, fault: Any) -> None:
    """41, 42"""
    fill(client, numbers(3))
    consumer = consume("g", offsets_channel_backoff_ms=10)
    read(consumer, 3)
    cluster.on("OffsetCommit", fault, times=2)
    consumer.commit_offsets()
    assert cluster.committed("g")["t", 0].offset == 3


def test_a_coordinator_that_moves_is_followed(connect: Any, make_cluster: Any, consume: Consume) -> None:
    cluster = make_cluster(brokers=3)
    client = connect(cluster)
    fill(client, numbers(3))
    consumer = consume("g", of=client, offsets_channel_backoff_ms=10)
    for broker in (1, 2, 3, 1):
        cluster.move_coordinator("g", broker)
        consumer.commit_offsets([(0, broker)])
        assert cluster.committed("g")["t", 0].offset == broker
    assert client.cluster.get_group_coordinator("g").id == 1
    assert client.cluster.get_offset_manager(b"g").id == 1
    for broker in (2, 3):
        cluster.move_coordinator("g", broker)
        assert [found.offset for _, found in consumer.fetch_offsets()] == [1]
        cluster.move_coordinator("g", 1)
        assert GroupOffsets(client.cluster, "g").committed([T0], timeout_s=60)[T0].offset == 1


def test_commits_give_up_after_offsets_commit_max_retries(client: KafkaClient, cluster: MockCluster, consume: Consume) -> None:
    consumer = consume("g", offsets_channel_backoff_ms=10, offsets_commit_max_retries=2)
    cluster.on("OffsetCommit", Error(14), times=None)
    assert type(error_of(consumer.commit_offsets, [(0, 1)])).__name__ == "GroupLoadInProgress"
    assert cluster.count("OffsetCommit") == 3


def test_offsets_channel_backoff_ms_is_the_pause_between_tries(client: KafkaClient, cluster: MockCluster, consume: Consume) -> None:
    consumer = consume("g", offsets_channel_backoff_ms=120)
    cluster.on("OffsetCommit", Error(14), times=2)
    consumer.commit_offsets([(0, 1)])
    times = [r.time for r in cluster.requests("OffsetCommit")]
    assert len(times) == 3
    assert all(later - earlier > 0.1 for earlier, later in zip(times, times[1:], strict=False))  # noqa: RUF007


def test_errors_for_good_are_raised_at_once(client: KafkaClient, cluster: MockCluster, consume: Consume) -> None:
    consumer = consume("g")
    cluster.on("OffsetCommit", Error(30), times=None)
    assert isinstance(error_of(consumer.commit_offsets, [(0, 1)]), GroupAuthorizationFailed)
    assert cluster.count("OffsetCommit") == 1


def test_a_failed_look_up_of_committed_offsets_is_an_error_and_not_a_new_start(
    client: KafkaClient, cluster: MockCluster, consume: Consume
) -> None:
    """B26, G12: only a definite answer resets a position."""
    fill(client, numbers(10))
    first = consume("g")
    read(first, 5)
    first.commit_offsets()
    first.stop()

    def forget(request: Any, answer: Any) -> Any:
        for group in answer.groups:
            group.topics = []
        return answer

    for fault in (Error(14), Error(-1), Edit(forget)):
        cluster.clear_script()
        cluster.on("OffsetFetch", fault, times=None)
        assert isinstance(error_of(consume, "g", offsets_channel_backoff_ms=5, offsets_commit_max_retries=2), KafkaException)
    cluster.clear_script()
    cluster.on("OffsetFetch", Error(14), times=3)
    assert [m.offset for m in read(consume("g", offsets_channel_backoff_ms=5), 1)] == [5]


def test_offsets_channel_socket_timeout_ms_bounds_a_commit(connect: Any, cluster: MockCluster, consume: Consume) -> None:
    client = connect(cluster, offsets_channel_socket_timeout_ms=1000)
    consumer = consume("g", of=client, offsets_commit_max_retries=0)
    cluster.on("OffsetCommit", Delay(120))
    with Clock() as clock:
        error_of(consumer.commit_offsets, [(0, 1)])
    assert 0.8 < clock.seconds < 30


# -- auto commit ---------------------------------------------------------------------------------------------------------------
def test_auto_commit_commits_what_was_consumed(client: KafkaClient, cluster: MockCluster, consume: Consume, run: Runner) -> None:
    """34"""
    fill(client, numbers(10))
    consumer = consume("g", auto_commit_enable=True, auto_commit_interval_ms=50)
    read(consumer, 4)
    run.until(lambda: cluster.committed("g").get(("t", 0), (0,))[0] == 4)
    read(consumer, 3)
    consumer.stop()
    assert cluster.committed("g")["t", 0].offset == 7, "and at the end once more"


def test_auto_commit_waits_for_its_interval(client: KafkaClient, cluster: MockCluster, consume: Consume, run: Runner) -> None:
    """35, 185"""
    fill(client, numbers(10))
    consumer = consume("g", auto_commit_enable=True, auto_commit_interval_ms=60_000)
    read(consumer, 4)
    assert run.stays(lambda: cluster.count("OffsetCommit") == 0)


def test_news_of_the_cluster_do_not_make_the_auto_commit_worker_spin(
    client: KafkaClient, consume: Consume, run: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It looks once more, and waits for what comes next."""
    monkeypatch.setattr(simpleconsumer, "TICK_S", 100.0)
    looks: list[None] = []
    consumer = consume("g", auto_commit_enable=True, auto_commit_interval_ms=60_000)
    consumer._auto_commit = lambda: looks.append(None)
    client.update_cluster()
    run.until(lambda: looks and not consumer._wake.is_set())
    seen = len(looks)
    assert run.stays(lambda: len(looks) <= seen + 1), "one look may have been about to begin"


def test_without_auto_commit_nothing_is_committed(client: KafkaClient, cluster: MockCluster, consume: Consume, run: Runner) -> None:
    fill(client, numbers(10))
    consumer = consume("g", auto_commit_interval_ms=10)
    read(consumer, 4)
    run.sleep(0.1)
    consumer.stop()
    assert cluster.count("OffsetCommit") == 0


def test_an_auto_commit_that_fails_is_told_to_the_caller_and_tried_again(
    client: KafkaClient, cluster: MockCluster, consume: Consume, run: Runner, caplog: Any
) -> None:
    """64, B16"""
    caplog.set_level(logging.ERROR)
    fill(client, numbers(10))
    cluster.on("OffsetCommit", Error(30))
    consumer = consume("g", auto_commit_enable=True, auto_commit_interval_ms=50)
    first = read(consumer, 1)

    def fails() -> bool:
        try:
            consumer.consume(block=False)
        except GroupAuthorizationFailed:
            return True
        return False

    run.until(fails)
    assert first
    assert "auto commit failed" in caplog.text
    run.until(lambda: cluster.committed("g"))


# -- out of range --------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("policy", "first"), [(EARLIEST, 60), (LATEST, 100)])
def test_an_offset_that_is_gone_leads_to_the_policy(
    client: KafkaClient, cluster: MockCluster, consume: Consume, run: Runner, policy: int, first: int, caplog: Any
) -> None:
    """43"""
    caplog.set_level(logging.WARNING)
    fill(client, numbers(100), batches=10)
    cluster.delete_records("t", 0, 60)
    consumer = consume("g", auto_start=False, auto_offset_reset=policy, fetch_error_backoff_ms=10)
    with client.topics["t"].get_simple_consumer("g") as other:
        other.commit_offsets([(0, 20)])
    consumer.start()
    run.until(lambda: consumer.held_offsets[0] == first - 1)
    fill(client, [b"last"])
    got = read(consumer, 101 - first)
    assert [m.offset for m in got] == list(range(first, 101))
    assert "offset 20 is out of range" in caplog.text


def test_without_a_policy_an_offset_that_is_gone_is_raised_and_a_seek_goes_on(
    client: KafkaClient, cluster: MockCluster, native: Any
) -> None:
    """B32"""
    fill(client, numbers(10), batches=10)
    cluster.delete_records("t", 0, 5)
    consumer = native({T0: 2}, policy=None)
    error = error_of(consumer.consume_batch, 1, 5000)
    assert isinstance(error, OffsetOutOfRangeError)
    assert (error.topic, error.partition, error.offset) == ("t", 0, 2)
    assert consumer.position(T0) == 2
    assert consumer.consume_batch(1, 100) == [], "it is told once"
    consumer.seek(T0, 5)
    assert take(consumer, 5) == [5, 6, 7, 8, 9]


# -- seeks ---------------------------------------------------------------------------------------------------------------------
def test_a_seek_goes_anywhere(client: KafkaClient, native: Any) -> None:
    fill(client, numbers(100), batches=10)
    consumer = native()
    assert take(consumer, 5) == [0, 1, 2, 3, 4]
    for target in (50, 3, 99, 0):
        consumer.seek(T0, target)
        assert consumer.position(T0) == target
        assert take(consumer, 1) == [target]
    consumer.seek(T0, LATEST)
    assert consumer.consume_batch(1, 100) == []
    consumer.seek(T0, EARLIEST)
    assert take(consumer, 100) == list(range(100))
    assert isinstance(error_of(consumer.seek, TopicPartition("t", 9), 0), ConfigurationError)


def test_a_seek_does_not_wait_for_a_long_poll(client: KafkaClient, cluster: MockCluster, native: Any, run: Runner) -> None:
    fill(client, numbers(10))
    consumer = native(fetch_wait_max_ms=60_000)
    take(consumer, 10)
    run.until(lambda: cluster.requests("Fetch")[-1].message.topics[0].partitions[0].fetch_offset == 10)
    with Clock() as clock:
        for _ in range(3):
            consumer.seek(T0, 4)
            assert take(consumer, 6) == [4, 5, 6, 7, 8, 9]
    assert clock.seconds < 30


def jumps(offsets: list[int]) -> list[tuple[int, int]]:
    """(the one before, the next) where the next is not the one after."""
    return [(a, b) for a, b in pairwise(offsets) if b != a + 1]


def test_a_seek_from_another_worker_is_not_undone_by_the_one_that_reads(client: KafkaClient, native: Any, run: Runner) -> None:
    """After a seek to x, whatever was read before, the next records begin at x; none between is skipped."""
    fill(client, numbers(1500), batches=30)
    consumer = native(fetch_message_max_bytes=2000)
    stop: list[bool] = []
    targets: list[int] = []

    def jump() -> None:
        n = 0
        while not stop:
            n = (n * 7 + 13) % 1200
            targets.append(n)
            consumer.seek(T0, n)
            read_before = len(got)
            while (
                len(got) == read_before and not stop
            ):  # a busy machine reads nothing between two seeks that follow each other by the clock
                run.sleep(0.001)

    got: list[int] = []
    jumping = run.aside(jump)
    deadline = now() + LIMIT_S
    while len(jumps(got)) < 8:
        assert now() < deadline
        got += [m.offset for m in consumer.consume_batch(11, 20)]
    stop.append(True)
    jumping.result()
    steps = jumps(got)
    assert all(b in targets for _, b in steps), "every jump lands where somebody sought"
    consumer.seek(T0, 0)
    assert take(consumer, 1500) == list(range(1500))


def test_stop_and_start_go_on_where_it_stood(client: KafkaClient, native: Any, run: Runner) -> None:
    fill(client, numbers(100), batches=10)
    consumer = native()
    run.until(lambda: consumer.buffered() == 100)
    assert take(consumer, 7) == list(range(7))
    consumer.stop()
    consumer.start()
    assert take(consumer, 93) == list(range(7, 100))


def test_another_assignment_begins_anew(connect: Any, make_cluster: Any, native: Any, client: KafkaClient, cluster: MockCluster) -> None:
    fill(client, numbers(10))
    cluster.create_topic("other", 2)
    fill(client, numbers(5), topic="other", partition=1)
    consumer = native()
    assert take(consumer, 3) == [0, 1, 2]
    consumer.assign({TopicPartition("other", 1): 2})
    got = read(consumer, 3)
    assert [(m.topic, m.partition_id, m.offset) for m in got] == [("other", 1, n) for n in (2, 3, 4)]
    assert list(consumer.positions()) == [TopicPartition("other", 1)]


def test_lag_is_what_is_left_to_consume(client: KafkaClient, native: Any, run: Runner) -> None:
    fill(client, numbers(30))
    consumer = native()
    run.until(lambda: consumer.lag() == {T0: 30})
    take(consumer, 10)
    assert consumer.lag() == {T0: 20}


# -- resets (54, 183, 184) -----------------------------------------------------------------------------------------------------
def test_reset_offsets_takes_ends_offsets_and_timestamps(client: KafkaClient, consume: Consume) -> None:
    with client.get_producer() as producer:
        for i in range(10):
            producer.produce("t", b"%d" % i, timestamp=1_700_000_000_000 + i * 1000)
    consumer = consume()
    partition = client.topics["t"].partitions[0]
    read(consumer, 10)
    for value, expected in (
        ([(partition, EARLIEST)], 0),
        ([(0, 4)], 4),
        ([(partition, 1_700_000_006_500)], 7),
        ([(partition, 1_700_000_006_000)], 6),
        (None, 0),
    ):
        consumer.reset_offsets(value)
        assert read(consumer, 1)[0].offset == expected
    consumer.reset_offsets([(0, LATEST)])
    fill(client, [b"new"])
    assert read(consumer, 1)[0].offset == 10
    consumer.reset_offsets([(0, 9_999_999_999_999)])
    assert consumer.held_offsets == {0: 10}, "the end of the log: no message is that new"
    fill(client, [b"newer"])
    assert read(consumer, 1)[0].offset == 11


def test_reset_offsets_that_fail_say_so(client: KafkaClient, cluster: MockCluster, connect: Any, consume: Consume) -> None:
    """101"""
    of = connect(cluster)
    consumer = consume(of=of)
    limit_calls(of, 1000)
    cluster.on("ListOffsets", Error(5), times=None)
    assert type(error_of(consumer.reset_offsets)).__name__ == "OffsetRequestFailedError"


def test_fetch_offsets_goes_on_from_what_is_committed(client: KafkaClient, consume: Consume) -> None:
    """180"""
    fill(client, numbers(10))
    consumer = consume("g")
    read(consumer, 8)
    consumer.commit_offsets([(0, 3)])
    assert [(p, r.offset) for p, r in consumer.fetch_offsets()] == [(0, 3)]
    assert [m.offset for m in read(consumer, 2)] == [3, 4]
    consumer._engine.offsets.commit({T0: 3}, notes={T0: "why"}, timeout_s=LIMIT_S)
    assert consumer.fetch_offsets()[0][1].metadata == "why"
    keeps = consume("g", reset_offset_on_fetch=False)
    read(keeps, 4)
    keeps.fetch_offsets()
    assert [m.offset for m in read(keeps, 1)] == [7], "reset_offset_on_fetch=False keeps the position"


def test_compacted_topics_are_read_and_committed_like_others(client: KafkaClient, cluster: MockCluster, consume: Consume) -> None:
    fill(client, numbers(10), batches=10)
    consumer = consume("g", compacted_topic=True)
    assert len(read(consumer, 10)) == 10
    consumer.commit_offsets()
    assert cluster.committed("g")["t", 0].offset == 10


def test_a_members_generation_and_id_go_with_its_commits(client: KafkaClient, cluster: MockCluster, consume: Consume) -> None:
    consumer = consume("g", generation_id=5, consumer_id=b"member-1", offsets_commit_max_retries=0)
    error = error_of(consumer.commit_offsets, [(0, 1)])
    assert type(error).__name__ == "GroupIdNotFound"
    request = cluster.requests("OffsetCommit")[-1].message
    assert (request.generation_id_or_member_epoch, request.member_id) == (5, "member-1")
    assert (consumer.generation_id, consumer.consumer_id) == (5, "member-1")


# -- limits of the log ---------------------------------------------------------------------------------------------------------
def test_earliest_and_latest_offsets_of_topics_and_partitions(connect: Any, make_cluster: Any) -> None:
    """122, 189"""
    cluster = make_cluster(topics={"t": 2})
    client = connect(cluster)
    fill(client, numbers(10), partition=1, batches=10)
    cluster.delete_records("t", 1, 4)
    topic = client.topics["t"]
    assert {p: r.offset[0] for p, r in topic.earliest_available_offsets().items()} == {0: 0, 1: 4}
    assert {p: r.offset[0] for p, r in topic.latest_available_offsets().items()} == {0: 0, 1: 10}
    assert (topic.partitions[1].earliest_available_offset(), topic.partitions[1].latest_available_offset()) == (4, 10)
    assert client.list_offsets({("t", 0): -2, ("t", 1): -2}) == {("t", 0): 0, ("t", 1): 4}
    assert client.list_offsets({("t", 1): 1}) == {("t", 1): 4}
    assert client.list_offsets({("t", 1): 99_999_999_999_999}) == {("t", 1): -1}
    assert LIMIT_S


@pytest.mark.parametrize("limits", [{}, {"ListOffsets": (0, 0)}], ids=["one offset", "a list"])
def test_offset_limits_are_at_most_as_many_as_asked_for(connect: Any, make_cluster: Any, limits: dict[str, tuple[int, int]]) -> None:
    cluster = make_cluster(limits=limits)
    client = connect(cluster)
    fill(client, [b"a", b"b", b"c"])
    for offsets in (client.topics["t"].fetch_offset_limits(-1, 2)[0].offset, client.topics["t"].partitions[0].fetch_offset_limit(-1, 2)):
        assert offsets[0] == 3
        assert len(offsets) <= 2


def test_thousands_of_partitions_go_into_several_requests_with_greenlets(make_cluster: Any, connect: Any, run: Runner) -> None:
    """Each request keeps the hub for some milliseconds; threads ask for all at once."""
    cluster = make_cluster(1, {"t": 1200})
    with connect(cluster).get_consumer(group="g", auto_commit=False) as consumer:
        partitions = [("t", p) for p in range(1200)]
        consumer.assign(partitions)
        run.until(lambda: min(consumer.positions().values()) >= 0)
        consumer.commit(dict.fromkeys(partitions, 7))
        consumer.assign(partitions)
        assert set(consumer.positions().values()) == {7}
        parts = 3 if run.gevent else 1
        assert [cluster.count(api) for api in ("OffsetFetch", "ListOffsets", "OffsetCommit")] == [2 * parts, parts, parts]
    assert len(cluster.committed("g")) == 1200


@pytest.mark.parametrize("time", [-3, -5, 1_700_000_000_000])
def test_a_time_of_which_there_is_nothing_is_the_end(client: KafkaClient, time: int) -> None:
    with client.topics["t"].get_simple_consumer("g", auto_commit_enable=True, consumer_timeout_ms=100) as consumer:
        consumer.reset_offsets([(0, time)])
        assert consumer.held_offsets == {0: -2}
        fill(client, [b"later"])
        assert [message.value for message in read(consumer, 1)] == [b"later"]


@pytest.mark.parametrize("time", [-3, -4, -5])
def test_a_special_time_is_not_asked_of_brokers_that_do_not_know_it(make_cluster: Any, connect: Any, time: int) -> None:
    """Kafka 2.8 would answer with the first record."""
    client = connect(make_cluster(topics={"t": 1}, versions="2.8"))
    fill(client, [b"%d" % i for i in range(20)])
    consumer = client.get_consumer()
    calls = [
        lambda: client.list_offsets({("t", 0): time}),
        lambda: client.topics["t"].fetch_offset_limits(time, 2),
        lambda: client.admin().list_offsets({("t", 0): time}),
        lambda: consumer.offsets_for_times({("t", 0): time}),
        lambda: client.topics["t"].get_simple_consumer().reset_offsets([(0, time)]),
    ]
    text = rf"the time {time} takes ListOffsets v\d, which Kafka has since 3\.\d; 127\.0\.0\.1:\d+ is asked by v6"
    for call in calls:
        with pytest.raises(UnsupportedVersion, match=text):
            call()
