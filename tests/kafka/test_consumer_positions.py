"""KafkaConsumer's positions and what it looks up (behaviours 279, 280, 287-291, 295-297)."""

from __future__ import annotations

import time
from typing import Any

import pytest

from gkafka.kafka import ConsumerRebalanceListener, OffsetAndMetadata, OffsetAndTimestamp, TopicPartition
from gkafka.kafka.errors import IllegalArgumentError, KafkaError, KafkaTimeoutError, UnsupportedVersionError
from gkafka.testing import Delay, Drop, MockCluster
from tests.kafka.conftest import Make
from tests.kafka.consuming import FIRST, GROUP, QUICK, consume, held, offsets, put, until
from tests.kit.clock import now

SECOND = TopicPartition("t", 1)


@pytest.fixture
def cluster(make_cluster: Make) -> MockCluster:
    """Two partitions; the first has offsets 2 to 5, the second none."""
    made: MockCluster = make_cluster(topics={"t": 2})
    for n in range(6):
        put(made, b"%d" % n, base_timestamp=1000 + 10 * n, max_timestamp=1000 + 10 * n)
    made.delete_records("t", 0, 2)
    return made


def test_beginning_and_end_offsets_leave_the_position_alone(consumer: Make, cluster: MockCluster) -> None:
    """Behaviour 279."""
    reading = consumer(cluster, **QUICK)
    assert reading.beginning_offsets([FIRST, SECOND]) == {FIRST: 2, SECOND: 0}
    assert reading.end_offsets([FIRST, SECOND]) == {FIRST: 6, SECOND: 0}
    reading.assign([FIRST])
    assert offsets(consume(reading, 1)) == [(0, 2)]
    reading.beginning_offsets([FIRST])
    reading.end_offsets([FIRST])
    assert reading.position(FIRST) == 3
    assert reading.beginning_offsets([]) == {}
    assert all(isinstance(tp, TopicPartition) for tp in reading.end_offsets({FIRST}))


@pytest.mark.parametrize("call", ["beginning_offsets", "end_offsets", "offsets_for_times"])
def test_look_ups_that_get_no_answer_raise_kafka_timeout_error(consumer: Make, cluster: MockCluster, call: str) -> None:
    """Behaviour 280."""
    reading = consumer(cluster, request_timeout_ms=1000, **QUICK)
    reading.topics()
    cluster.on("ListOffsets", Drop(), times=None)
    begun = now()
    with pytest.raises(KafkaTimeoutError):
        getattr(reading, call)({FIRST: 0} if call == "offsets_for_times" else [FIRST])
    assert now() - begun < 30


@pytest.mark.parametrize("release", ["0.9.0", "0.8.2"])
def test_brokers_that_cannot_look_up_by_time_raise_unsupported_version_error(consumer: Make, make_cluster: Make, release: str) -> None:
    """Behaviours 221, 280."""
    cluster = make_cluster(versions=release)
    reading = consumer(cluster, api_version=tuple(map(int, release.split("."))), **QUICK)
    with pytest.raises(UnsupportedVersionError):
        reading.offsets_for_times({FIRST: 0})
    assert reading.end_offsets([FIRST]) == {FIRST: 0}, "these are offsets, which every broker knows"


def test_highwater_is_none_before_a_fetch_and_then_the_next_offset_produced(consumer: Make, cluster: MockCluster, handler: str) -> None:
    """Behaviour 287."""
    with held(cluster, "Fetch"):
        reading = consumer(cluster, **QUICK)
        reading.assign([FIRST])
        assert reading.highwater(FIRST) is None
    consume(reading, 1)
    assert reading.highwater(FIRST) == 6
    put(cluster, b"6")
    consume(reading, 4)
    assert until(handler, lambda: reading.highwater(FIRST) == 7)


def test_metrics_are_numbers_by_group_and_name(consumer: Make, cluster: MockCluster) -> None:
    """Behaviour 288."""
    reading = consumer(cluster, "t", **QUICK)
    consume(reading, 4)
    found = reading.metrics()
    assert set(found) == {"consumer-metrics"}
    assert found["consumer-metrics"]["fetches"] >= 1
    assert all(isinstance(value, (int, float)) for value in found["consumer-metrics"].values())
    assert reading.metrics(raw=True)["consumers"]


def test_offsets_for_times_is_the_first_record_at_or_after_each_time(consumer: Make, cluster: MockCluster) -> None:
    """Behaviours 289, 290: partitions need not be assigned."""
    reading = consumer(cluster, **QUICK)
    assert reading.offsets_for_times({FIRST: 1030, SECOND: 1030}) == {FIRST: OffsetAndTimestamp(3, 1030), SECOND: None}
    assert reading.offsets_for_times({FIRST: 1031})[FIRST] == OffsetAndTimestamp(offset=4, timestamp=1040)
    assert reading.offsets_for_times({FIRST: 0})[FIRST].offset == 2
    assert reading.offsets_for_times({FIRST: 2000}) == {FIRST: None}
    assert reading.offsets_for_times({}) == {}


@pytest.mark.parametrize("wanted", [{FIRST: -1}, {FIRST: -2}])
def test_a_negative_timestamp_is_a_value_error(consumer: Make, cluster: MockCluster, wanted: Any) -> None:
    """Behaviour 290."""
    with pytest.raises(ValueError, match="0 or more"):
        consumer(cluster).offsets_for_times(wanted)


def test_partitions_for_topic_and_topics_are_sets(consumer: Make, cluster: MockCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Behaviour 291."""
    monkeypatch.setattr("gkafka.cluster.UNKNOWN_TOPIC_PATIENCE_S", 0.3)
    reading = consumer(cluster, allow_auto_create_topics=False)
    assert reading.partitions_for_topic("t") == {0, 1}
    assert reading.topics() == {"t"}
    assert reading.partitions_for_topic("nope") == set()
    cluster.create_topic("later", 1)
    assert reading.topics() == {"t", "later"}


def test_position_is_the_offset_of_the_next_record(consumer: Make, cluster: MockCluster) -> None:
    """Behaviour 295."""
    reading = consumer(cluster, **QUICK)
    reading.assign([FIRST])
    assert reading.position(FIRST) == 2
    consume(reading, 1)
    assert reading.position(FIRST) == 3
    iterating = consumer(cluster, **QUICK)
    iterating.assign([FIRST])
    for n in range(3):
        next(iterating)
        assert iterating.position(FIRST) == 3 + n


def test_position_of_a_paused_partition_is_looked_up(consumer: Make, cluster: MockCluster) -> None:
    reading = consumer(cluster, **QUICK)
    reading.assign([FIRST])
    reading.pause(FIRST)
    assert reading.position(FIRST, timeout_ms=60_000) == 2
    reading.seek_to_end(FIRST)
    assert reading.position(FIRST, timeout_ms=60_000) == 6
    reading.seek_to_beginning(FIRST)
    assert reading.position(FIRST, timeout_ms=60_000) == 2
    assert reading.poll(100) == {}


@pytest.mark.parametrize(("move", "there"), [(None, 2), ("seek_to_beginning", 2), ("seek_to_end", 6)])
def test_position_is_told_to_a_listener(consumer: Make, cluster: MockCluster, move: str | None, there: int) -> None:
    """Of a group that has committed nothing yet: where it begins is looked up, whether or not records are handed out yet."""
    seen: list[int | None] = []

    class Listener(ConsumerRebalanceListener):
        def on_partitions_revoked(self, revoked: Any) -> None:
            pass

        def on_partitions_assigned(self, assigned: Any) -> None:
            if move is not None:
                getattr(reading, move)(FIRST)
            seen.append(reading.position(FIRST, timeout_ms=60_000))

    reading = consumer(cluster, group_id="listening", **QUICK)
    reading.subscribe([FIRST.topic], listener=Listener())
    while not seen:
        reading.poll(100)
    assert seen == [there]


def test_position_that_is_not_told_in_time_is_none(consumer: Make, cluster: MockCluster) -> None:
    cluster.on("ListOffsets", Delay(3600), times=None)
    reading = consumer(cluster, **QUICK)
    reading.assign([FIRST])
    assert reading.position(FIRST, timeout_ms=150) is None


def test_seek_says_where_to_go_on_and_the_last_one_wins(consumer: Make, cluster: MockCluster) -> None:
    """Behaviour 296."""
    reading = consumer(cluster, **QUICK)
    reading.assign([FIRST])
    reading.seek(FIRST, 3)
    reading.seek(FIRST, 5)
    assert reading.position(FIRST) == 5
    assert offsets(consume(reading, 1)) == [(0, 5)]
    reading.seek(FIRST, 2)
    assert offsets(consume(reading, 4)) == [(0, n) for n in (2, 3, 4, 5)]
    iterating = consumer(cluster, **QUICK)
    iterating.assign([FIRST])
    next(iterating)
    iterating.seek(FIRST, 5)
    assert next(iterating).offset == 5


@pytest.mark.parametrize("offset", [-1, -2, "1", 1.0, None, True])
def test_seek_to_what_is_no_offset_is_an_assertion_error(consumer: Make, cluster: MockCluster, offset: Any) -> None:
    """Behaviour 296."""
    reading = consumer(cluster, **QUICK)
    reading.assign([FIRST])
    with pytest.raises(AssertionError, match="offset=") as caught:
        reading.seek(FIRST, offset)
    assert isinstance(caught.value, ValueError)
    assert reading.position(FIRST) == 2


def test_seek_to_beginning_and_to_end_take_some_or_all_that_are_assigned(consumer: Make, cluster: MockCluster) -> None:
    """Behaviour 297."""
    put(cluster, b"0", b"1", partition=1)
    reading = consumer(cluster, "t", **QUICK)
    consume(reading, 6)
    reading.seek_to_beginning()
    assert (reading.position(FIRST), reading.position(SECOND)) == (2, 0)
    assert len(consume(reading, 6)) == 6
    reading.seek_to_beginning(SECOND)
    assert (reading.position(FIRST), reading.position(SECOND)) == (6, 0)
    reading.seek_to_beginning()
    reading.seek_to_end(FIRST)
    assert (reading.position(FIRST), reading.position(SECOND)) == (6, 0)
    reading.seek_to_end()
    assert (reading.position(FIRST), reading.position(SECOND)) == (6, 2)
    put(cluster, b"new")
    assert offsets(consume(reading, 1)) == [(0, 6)]


@pytest.mark.parametrize("call", ["seek_to_beginning", "seek_to_end"])
def test_seeks_of_what_is_not_assigned_are_assertion_errors(consumer: Make, cluster: MockCluster, call: str) -> None:
    """Behaviours 296, 297."""
    reading = consumer(cluster, **QUICK)
    with pytest.raises(AssertionError, match="no partitions are assigned"):
        getattr(reading, call)()
    reading.assign([FIRST])
    with pytest.raises(AssertionError, match="t-1 is not assigned"):
        getattr(reading, call)(FIRST, SECOND)
    with pytest.raises(AssertionError, match="t-1 is not assigned"):
        reading.seek(SECOND, 0)
    with pytest.raises(IllegalArgumentError):
        reading.position(SECOND)
    assert reading.position(FIRST) == 2, "nothing was done by half"


def test_a_partition_without_a_place_is_not_read_past(consumer: Make, cluster: MockCluster) -> None:
    """auto_offset_reset="none" and nothing committed: what is there must not count as read, whatever is committed meanwhile."""
    reading = consumer(cluster, group_id="g", auto_offset_reset="none", auto_commit_interval_ms=50)
    reading.assign([FIRST])
    time.sleep(0.3)
    with pytest.raises(KafkaError, match=r"seek\(\) first"):
        reading.position(FIRST)
    reading.close()
    assert cluster.committed("g").get(tuple(FIRST), None) is None or cluster.committed("g")[tuple(FIRST)].offset <= 2


def test_what_was_paused_before_it_had_a_place_stays_paused(consumer: Make, cluster: MockCluster) -> None:
    reading = consumer(cluster, **{**QUICK, "auto_offset_reset": "none"})
    reading.assign([FIRST])
    assert reading.paused() == set()
    reading.pause(FIRST)
    reading.seek(FIRST, 2)
    assert reading.paused() == {FIRST}
    assert reading.poll(300) == {}
    reading.resume(FIRST)
    assert offsets(consume(reading, 1)) == [(0, 2)]


def test_offsets_for_times_tells_the_leader_epoch_where_the_broker_does(consumer: Make, make_cluster: Make) -> None:
    """KIP-320, of 2.1: an attribute beside the documented pair."""
    for release, epoch in ((None, 3), ("2.0.0", -1)):
        cluster = make_cluster(brokers=2, versions=release)
        put(cluster, b"v")
        for broker in (2, 1, 2):
            cluster.move_leader("t", 0, broker)
        reading = consumer(cluster)
        found = reading.offsets_for_times({FIRST: 0})[FIRST]
        assert (found.offset, found.leader_epoch) == (0, epoch)


def test_a_commit_before_the_first_poll_places_what_was_assigned(consumer: Make, cluster: MockCluster) -> None:
    """As in kafka-python, whose partitions have no place before they are read or asked for."""
    put(cluster, *(b"%d" % n for n in range(6)))
    reading = consumer(cluster, **{**GROUP, "enable_auto_commit": False, "auto_offset_reset": "latest"})
    reading.assign([FIRST])
    reading.commit({FIRST: OffsetAndMetadata(2, "")})
    assert reading.position(FIRST) == 2
    reading.commit({FIRST: OffsetAndMetadata(4, "")})
    assert reading.position(FIRST) == 2, "it was asked for"
    assert consume(reading, 1)[0].offset == 2
    reading.commit({FIRST: OffsetAndMetadata(1, "")})
    assert reading.position(FIRST) > 2, "it was read"
    reading.unsubscribe()
    reading.assign([FIRST])
    assert reading.poll(10) is not None
    reading.commit({FIRST: OffsetAndMetadata(0, "")})
    assert reading.position(FIRST) > 0, "it was polled"
