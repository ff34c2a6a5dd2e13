"""Options of gkafka.kafka's KafkaConsumer on real Kafka (behaviours 243-263, 280, 294): what brokers are asked, and what they answer to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

import gkafka
from gkafka.kafka import KafkaConsumer, OffsetAndMetadata, TopicPartition
from gkafka.kafka.errors import (
    CorruptRecordError,
    IllegalStateError,
    InvalidSessionTimeoutError,
    KafkaConfigurationError,
    KafkaTimeoutError,
    OffsetMetadataTooLargeError,
    OffsetOutOfRangeError,
)
from gkafka.kafka.protocol.commit import OffsetCommitResponse
from tests.kit.clock import now
from tests.live.facade import LIMIT_S, Make, Topic, read, turn
from tests.live.inside import delete_records, frozen, log_file, members
from tests.live.kafka import KafkaCluster
from tests.live.peer import Peer, Seen
from tests.live.sharing import add_partitions, until

Name = Callable[[str], str]


def put(peer: Peer, topic: str, *values: bytes, partition: int = 0, first: int = 0) -> None:
    peer.write(topic, [Seen(partition, first + n, None, value, [], None) for n, value in enumerate(values)])


# -- brokers and groups ----------------------------------------------------------------------------------------------------
def test_client_id_is_what_the_group_knows_of_a_member(kafka: KafkaCluster, consumer: Make, new_topic: Topic, new_name: Name) -> None:
    """Behaviour 243."""
    topic = new_topic()
    for given, shown in (({"client_id": "mine"}, "mine"), ({}, f"kafka-python-{gkafka.__version__}")):
        group = new_name("group")
        member = consumer(topic, group_id=group, **given)
        turn(member.assignment, member)
        assert members(kafka.hosts, group) == [shown]


def test_without_group_id_there_is_no_group_and_no_commit(kafka: KafkaCluster, consumer: Make, new_topic: Topic, peer: Peer) -> None:
    """Behaviour 244."""
    topic = new_topic()
    put(peer, topic, b"a")
    admin = AdminClient({"bootstrap.servers": kafka.hosts})

    def groups() -> set[str]:
        return {str(each.group_id) for each in admin.list_consumer_groups().result(60).valid}

    before = groups()
    reading = consumer(topic, auto_commit_interval_ms=10)
    assert reading.config["group_id"] is None
    assert len(read(reading, 1)) == 1
    with pytest.raises(IllegalStateError, match="group_id"):
        reading.commit()
    reading.poll(100)
    reading.close()
    assert groups() <= before


def test_session_timeout_ms_has_to_be_in_the_brokers_range(consumer: Make, new_topic: Topic, new_name: Name) -> None:
    """Behaviour 262: by default Kafka allows 6 s to 30 min."""
    reading = consumer(group_id=new_name("group"), session_timeout_ms=31 * 60 * 1000, request_timeout_ms=32 * 60 * 1000)
    topic = new_topic()

    def join() -> None:
        reading.subscribe([topic])
        turn(reading.assignment, reading)

    with pytest.raises(InvalidSessionTimeoutError):
        join()


def test_heartbeat_interval_ms_is_how_soon_a_member_hears_of_another(consumer: Make, new_topic: Topic, new_name: Name) -> None:
    """Behaviour 263: it must be lower than session_timeout_ms."""
    topic, group = new_topic(2), new_name("group")
    with pytest.raises(KafkaConfigurationError, match="heartbeat_interval_ms"):
        consumer(topic, group_id=group, heartbeat_interval_ms=6000, session_timeout_ms=6000)
    one = consumer(topic, group_id=group, heartbeat_interval_ms=50, session_timeout_ms=600_000, request_timeout_ms=601_000)
    turn(lambda: len(one.assignment()) == 2, one)
    two = consumer(topic, group_id=group, heartbeat_interval_ms=50)
    turn(lambda: len(one.assignment()) == len(two.assignment()) == 1, one, two)


def test_max_poll_interval_ms_without_a_poll_costs_the_membership(
    kafka: KafkaCluster, consumer: Make, new_topic: Topic, new_name: Name
) -> None:
    """Behaviour 261."""
    topic, group = new_topic(), new_name("group")
    reading = consumer(topic, group_id=group, max_poll_interval_ms=2000)
    turn(lambda: reading.assignment() and len(members(kafka.hosts, group)) == 1, reading)
    handler = reading._client.handler
    deadline = now() + LIMIT_S
    while members(kafka.hosts, group):
        assert now() < deadline
        handler.sleep(0.05)
    turn(lambda: reading.assignment() and len(members(kafka.hosts, group)) == 1, reading)


def test_request_timeout_ms_bounds_a_call_that_is_not_answered(kafka: KafkaCluster, consumer: Make, new_topic: Topic, peer: Peer) -> None:
    """Behaviours 249, 280."""
    topic = new_topic()
    tp = TopicPartition(topic, 0)
    put(peer, topic, b"a")
    reading = consumer(request_timeout_ms=1500)
    reading.assign([tp])
    assert len(read(reading, 1)) == 1
    with frozen(kafka):
        for look_up in (reading.end_offsets, reading.beginning_offsets, lambda tps: reading.offsets_for_times(dict.fromkeys(tps, 0))):
            with pytest.raises(KafkaTimeoutError):
                look_up([tp])
    until(lambda: _answers(reading, tp))
    put(peer, topic, b"b", first=1)
    assert [r.value for r in read(reading, 1)] == [b"b"]


def _answers(reading: KafkaConsumer, tp: TopicPartition) -> bool:
    try:
        return reading.end_offsets([tp]) == {tp: 1}
    except KafkaTimeoutError:
        return False  # what it was asked while it was frozen is answered first


def test_metadata_max_age_ms_finds_new_partitions(kafka: KafkaCluster, consumer: Make, new_topic: Topic, peer: Peer) -> None:
    """Behaviour 258."""
    topic = new_topic()
    reading = consumer(topic, metadata_max_age_ms=300)
    assert reading.assignment() == {TopicPartition(topic, 0)}
    add_partitions(kafka.hosts, topic, 2)
    put(peer, topic, b"new", partition=1)
    assert [(r.partition, r.value) for r in read(reading, 1)] == [(1, b"new")]


# -- fetches ---------------------------------------------------------------------------------------------------------------
def test_fetch_min_bytes_is_waited_for_no_longer_than_fetch_max_wait_ms(consumer: Make, new_topic: Topic, peer: Peer) -> None:
    """Behaviour 245."""
    topic = new_topic()
    put(peer, topic, b"little")
    reading = consumer(topic, fetch_min_bytes=100_000, fetch_max_wait_ms=500)
    begun = now()
    assert len(read(reading, 1)) == 1
    assert now() - begun > 0.45, "the broker waits for more"


def test_a_first_message_over_every_limit_is_returned(consumer: Make, new_topic: Topic, peer: Peer) -> None:
    """Behaviours 246, 247."""
    topic = new_topic(2)
    for partition in range(2):
        for n in range(2):
            put(peer, topic, b"x" * 50_000, partition=partition, first=n)
    reading = consumer(topic, fetch_max_bytes=1000, max_partition_fetch_bytes=1000)
    assert sorted((r.partition, r.offset, len(r.value)) for r in read(reading, 4)) == [(p, n, 50_000) for p in range(2) for n in range(2)]


def test_max_poll_records_bounds_one_poll(consumer: Make, new_topic: Topic, peer: Peer) -> None:
    """Behaviour 260."""
    topic = new_topic()
    tp = TopicPartition(topic, 0)
    put(peer, topic, *[b"x"] * 1200)
    reading = consumer(topic)
    got = [len(reading.poll(5000).get(tp, ())) for _ in range(3)]
    assert got == [500, 500, 200]
    few = consumer(topic, max_poll_records=7)
    assert len(few.poll(5000)[tp]) == 7
    assert len(few.poll(5000, max_records=9)[tp]) == 9


@pytest.mark.parametrize(("policy", "then"), [("earliest", 5), ("latest", 10), (None, 10)])
def test_auto_offset_reset_says_where_to_go_from_an_offset_that_is_out_of_range(
    kafka: KafkaCluster, consumer: Make, new_topic: Topic, peer: Peer, policy: str | None, then: int
) -> None:
    """Behaviour 254."""
    topic = new_topic()
    tp = TopicPartition(topic, 0)
    put(peer, topic, *[b"x"] * 10)
    delete_records(kafka.hosts, topic, 0, 5)
    reading = consumer(
        **({"auto_offset_reset": policy} if policy else {"auto_offset_reset": KafkaConsumer.DEFAULT_CONFIG["auto_offset_reset"]})
    )
    reading.assign([tp])
    reading.seek(tp, 2)
    first: list[Any] = []
    while not first and reading.position(tp) != 10:
        first = [r.offset for records in reading.poll(200, max_records=1).values() for r in records]
    assert (first or [reading.position(tp)]) == [then]


def test_auto_offset_reset_of_any_other_value_raises(kafka: KafkaCluster, consumer: Make, new_topic: Topic, peer: Peer) -> None:
    """Behaviour 254."""
    topic = new_topic()
    tp = TopicPartition(topic, 0)
    put(peer, topic, *[b"x"] * 10)
    delete_records(kafka.hosts, topic, 0, 5)
    reading = consumer(auto_offset_reset="none")
    reading.assign([tp])
    reading.seek(tp, 2)
    with pytest.raises(OffsetOutOfRangeError, match=topic):
        turn(lambda: False, reading)
    reading.seek(tp, 7)
    assert [r.offset for r in read(reading, 1)] == [7]


def test_check_crcs_finds_what_is_damaged_on_the_brokers_disk(kafka: KafkaCluster, consumer: Make, new_topic: Topic, peer: Peer) -> None:
    """Behaviour 257: brokers hand out what is in their files as it is."""
    topic = new_topic()
    put(peer, topic, b"good")
    put(peer, topic, b"value", first=1)
    file = log_file(kafka, topic)
    with file.open("r+b") as log:
        log.seek(file.read_bytes().index(b"value"))
        log.write(b"w")
    careful = consumer(topic)
    assert [r.value for r in read(careful, 1)] == [b"good"]
    with pytest.raises(CorruptRecordError, match=f"{topic}.*offset 1"):
        turn(lambda: False, careful)
    assert [r.value for r in read(consumer(topic, check_crcs=False), 2)] == [b"good", b"walue"]


# -- positions and commits -------------------------------------------------------------------------------------------------
def test_poll_goes_on_from_the_last_record_the_last_seek_or_the_last_commit(
    consumer: Make, new_topic: Topic, new_name: Name, peer: Peer
) -> None:
    """Behaviour 294."""
    topic, group = new_topic(), new_name("group")
    tp = TopicPartition(topic, 0)
    put(peer, topic, *(b"%d" % n for n in range(6)))
    reading = consumer(group_id=group, enable_auto_commit=False)
    reading.assign([tp])
    assert [r.offset for r in read(reading, 2)] == [0, 1]
    assert [r.offset for r in read(reading, 1)] == [2]
    reading.commit()
    reading.seek(tp, 5)
    assert [r.offset for r in read(reading, 1)] == [5]
    again = consumer(group_id=group, enable_auto_commit=False)
    again.assign([tp])
    assert [r.offset for r in read(again, 1)] == [3], "where the group has committed"


def test_default_offset_commit_callback_is_told_of_commits(consumer: Make, new_topic: Topic, new_name: Name, peer: Peer) -> None:
    """Behaviour 256."""
    topic, group = new_topic(), new_name("group")
    tp = TopicPartition(topic, 0)
    told: list[Any] = []
    put(peer, topic, b"0", b"1")
    reading = consumer(
        topic,
        group_id=group,
        auto_commit_interval_ms=50,
        default_offset_commit_callback=lambda offsets, response: told.append((offsets, response)),
    )
    read(reading, 2)
    turn(lambda: told and told[-1][0] == {tp: OffsetAndMetadata(2, "")}, reading)
    assert not isinstance(told[-1][1], Exception)
    assert peer.committed(group, topic) == {0: 2}
    del told[:]
    with pytest.raises(OffsetMetadataTooLargeError):
        reading.commit_async({tp: OffsetAndMetadata(1, "x" * 5000)}).get(LIMIT_S)
    assert peer.committed(group, topic) == {0: 2}
    put(peer, topic, b"2", first=2)
    read(reading, 1)
    turn(lambda: peer.committed(group, topic) == {0: 3}, reading)
    turn(lambda: len(told) == 2, reading)
    assert [(offsets[tp].offset, type(response)) for offsets, response in told] == [
        (1, OffsetMetadataTooLargeError),
        (3, OffsetCommitResponse),
    ]
