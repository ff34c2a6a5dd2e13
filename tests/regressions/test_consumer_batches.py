"""What lies inside a log: gaps, markers, aborted transactions, damage, old formats, odd values. Each record comes once, and nothing stops."""

from __future__ import annotations

from typing import Any

import pytest

from gkafka import KafkaClient
from gkafka.common import TimestampType
from gkafka.exceptions import CorruptRecordError
from gkafka.testing import MockCluster
from tests.core.fetchrig import Rig, aborted, bad_magic, data, offsets, txn
from tests.public.aids import read
from tests.records.handmade import batch, marker, message, record, values, wrapper

LOG_APPEND = 8


def test_b33_a_batch_whose_last_records_were_compacted_away_moves_the_position_behind_it() -> None:
    """B33 kafka-python#1390, aiokafka#71: the position stayed at the last record that was there, and the same batch came for ever."""
    rig = Rig()
    assert offsets(rig.round(batch([record(0, b"a"), record(3, b"b")], last_delta=9))) == [0, 3]
    assert rig[0].fetch_offset == 10


def test_b33_an_empty_batch_moves_the_position_behind_it() -> None:
    """B33 kafka-python#1390, aiokafka#71: a batch that compaction has emptied came for ever."""
    rig = Rig()
    (fetched,) = rig.round(batch([], last_delta=9))
    assert offsets([fetched]) == []
    assert (fetched.messages, rig[0].fetch_offset, rig[0].buffered) == (0, 10, 0)


def test_b33_a_gap_of_offsets_is_no_hindrance() -> None:
    """B33 kafka-python#1390, aiokafka#71: an offset that is gone was waited for."""
    rig = Rig(start=5)
    assert offsets(rig.round(values(2, base_offset=100) + values(1, base_offset=500))) == [100, 101, 500]
    assert rig[0].fetch_offset == 501


def test_b34_an_answer_of_markers_only_moves_the_position() -> None:
    """B34 kafkajs#1256: nothing to hand out was taken for nothing read."""
    rig = Rig()
    assert rig.round(marker(1, 0, producer_id=7) + marker(0, 1, producer_id=8)) == []
    assert (rig[0].fetch_offset, rig.errors) == (2, [])


@pytest.mark.parametrize("gzipped", [False, True])
def test_b35_aborted_records_are_hidden_also_in_a_compressed_batch(gzipped: bool) -> None:
    """B35 librdkafka#3020: the flag of a compressed batch was not looked at."""
    rig = Rig()
    content = txn(2, 0, 7, gzipped=gzipped) + txn(1, 2, 8, gzipped=gzipped) + marker(0, 3, producer_id=7) + marker(1, 4, producer_id=8)
    assert offsets(rig.round(data(0, content, **aborted((7, 0))))) == [2]
    assert (rig[0].fetch_offset, rig[0].buffered) == (5, 1)


def test_b36_a_producer_may_abort_and_commit_in_one_answer() -> None:
    """B36 brod#659: whatever followed the first marker was hidden, or nothing was."""
    rig = Rig()
    content = txn(2, 0, 7) + marker(0, 2, producer_id=7) + txn(2, 3, 7) + marker(1, 5, producer_id=7) + values(1, base_offset=6)
    assert offsets(rig.round(data(0, content, **aborted((7, 0))))) == [3, 4, 6]


def test_b36_and_it_may_commit_first_and_abort_then() -> None:
    """B36 brod#659: a commit marker was taken for the abort."""
    rig = Rig()
    content = txn(2, 0, 7) + marker(1, 2, producer_id=7) + txn(2, 3, 7) + marker(0, 5, producer_id=7)
    assert offsets(rig.round(data(0, content, **aborted((7, 3))))) == [0, 1]


def test_b37_a_fetch_may_begin_at_an_abort_marker() -> None:
    """B37 platformatic/kafka#391: the marker of a transaction that is not in the list ended the reader."""
    rig = Rig(start=2)
    assert offsets(rig.round(data(0, marker(0, 2, producer_id=7) + txn(1, 3, 7), **aborted()))) == [3]


def test_b38_the_list_of_aborted_transactions_need_not_be_sorted_and_markers_may_come_twice() -> None:
    """B38 franz-go#1348: an unsorted list let aborted records through, a second marker ended the reader."""
    rig = Rig()
    content = (
        txn(1, 0, 7) + txn(1, 1, 8) + marker(0, 2, producer_id=7) + marker(0, 3, producer_id=7) + txn(1, 4, 7)
        + marker(0, 5, producer_id=8) + marker(0, 6, producer_id=7) + txn(1, 7, 8)
    )  # fmt: skip
    assert offsets(rig.round(data(0, content, **aborted((7, 4), (8, 1), (7, 0))))) == [7]


def test_b39_an_abort_without_records_hides_nothing() -> None:
    """B39 librdkafka 1.7: it hid the next transaction of the same producer."""
    rig = Rig()
    content = marker(0, 0, producer_id=7) + txn(2, 1, 7) + marker(1, 3, producer_id=7)
    assert offsets(rig.round(data(0, content, **aborted()))) == [1, 2]


def test_b44_what_stands_before_the_damage_comes_and_then_an_error_that_names_the_place() -> None:
    """B44 aiokafka#321, kafka#3114: damage was skipped in silence."""
    rig = Rig()
    content = values(3) + bad_magic(3) + values(2, base_offset=5)
    assert offsets(rig.round(content)) == [0, 1, 2]
    assert (rig[0].fetch_offset, rig.errors) == (3, [])
    assert rig.round(bad_magic(3) + values(2, base_offset=5)) == []
    (error,) = rig.errors
    assert isinstance(error, CorruptRecordError)
    assert (error.topic, error.partition, error.offset) == ("t", 0, 3)
    assert rig[0].fetch_offset == 3, "nothing is skipped"


def test_b44_damage_is_fetched_again_after_a_pause_and_not_in_a_loop() -> None:
    """B44 aiokafka#321, kafka#3114: damage was fetched again and again without a pause."""
    rig = Rig()
    rig.round(bad_magic(0))
    plan = rig.poll()
    assert plan.fetches == []
    assert rig.now + 0.4 <= plan.deadline <= rig.now + 0.6
    rig.now = plan.deadline
    assert offsets(rig.round(values(2))) == [0, 1], "TCP's checksum is weak: the second time it may be whole"


@pytest.mark.parametrize("magic", [0, 1])
def test_b40_offsets_inside_compressed_sets_are_absolute_or_relative_by_their_format(magic: int) -> None:
    """B40 ruby-kafka#505, pykafka#694, kafka#3203: format 1 counts from the wrapper's first message, format 0 does not; both begin in the middle."""
    rig = Rig(start=21)
    first = 20 if magic == 0 else 0
    packed = wrapper([message(first + i, b"v", magic=magic) for i in range(4)], 23, magic=magic)
    assert offsets(rig.round(packed)) == [21, 22, 23]
    assert rig[0].fetch_offset == 24


def test_b40_a_compacted_set_is_counted_from_its_last_message() -> None:
    """B40 kafka#3203 (KAFKA-5365): messages inside a set that compaction has thinned out were moved to the wrong offsets."""
    rig = Rig(start=20)
    packed = wrapper([message(0, b"v", magic=1), message(3, b"v", magic=1)], 23)
    assert offsets(rig.round(packed)) == [20, 23]


def test_b40_the_brokers_time_is_the_wrappers(make_cluster: Any, connect: Any) -> None:
    """B40 kafka-node#1225: with log-append time the inner messages hold the producer's clock, which is not what was meant."""
    cluster = make_cluster(versions="0.10.2")
    cluster.append(
        "t", 0, wrapper([message(i, b"v", magic=1, timestamp=5) for i in range(2)], 1, magic=1, timestamp=777, attributes=LOG_APPEND)
    )
    consumer = connect(cluster, broker_version="0.10.2").topics["t"].get_simple_consumer()
    assert [(m.offset, m.timestamp, m.timestamp_type) for m in read(consumer, 2)] == [
        (o, 777, TimestampType.LOG_APPEND_TIME) for o in (0, 1)
    ]
    consumer.stop()


def test_b45_a_record_without_a_time_comes_without_one(client: KafkaClient, cluster: MockCluster) -> None:
    """B45 kafka#5072, kafka-node#761: a timestamp of -1 broke the reader."""
    cluster.append("t", 0, batch([record(0, b"a")], base_timestamp=-1, max_timestamp=-1))
    consumer = client.topics["t"].get_simple_consumer()
    (message,) = read(consumer, 1)
    assert (message.value, message.timestamp) == (b"a", -1)
    consumer.stop()


def test_b46_nothing_and_empty_are_told_apart(client: KafkaClient) -> None:
    """B46 Kafka itself: tombstones, empty values, no key, headers twice, headers without a value."""
    headers: list[tuple[str, bytes | None]] = [("a", b"1"), ("a", b"1"), ("b", None), ("c", b"")]
    with client.get_producer() as producer:
        producer.produce("t", None, b"k")
        producer.produce("t", b"", b"")
        producer.produce("t", b"v", None, headers=headers)
    consumer = client.topics["t"].get_simple_consumer()
    got = [(m.key, m.value, m.headers) for m in read(consumer, 3)]
    assert got == [(b"k", None, []), (b"", b"", []), (None, b"v", headers)]
    consumer.stop()
