"""Whole batches without a consumer: fetch_raw, fetch_stream, list_offsets, and the columns that are made of them."""

from __future__ import annotations

from typing import Any

import pytest

from gkafka import KafkaClient, records
from gkafka.common import IsolationLevel
from gkafka.exceptions import ConfigurationError, KafkaTimeoutError, OffsetOutOfRangeError, UnknownTopicError, UnknownTopicOrPartition
from gkafka.rawfetch import RawFetch
from gkafka.testing import Close, Delay, Drop, Error, MockCluster
from tests.public.aids import Clock, Runner, error_of, fill
from tests.public.test_consuming import numbers
from tests.records.handmade import TRANSACTIONAL, marker, values


def column(raws: list[Any], start: int, end: int | None = None) -> list[int]:
    found: list[int] = []
    for raw in raws:
        columns = records.decode_columns(raw.batches, start_offset=start, end_offset=end)
        found += columns.to_numpy()["offset"].tolist()
        start = max(start, raw.next_offset)
    return found


def test_fetch_raw_gives_whole_batches_and_where_to_go_on(client: KafkaClient, cluster: MockCluster) -> None:
    fill(client, numbers(30), batches=3)
    raw = client.fetch_raw("t", 0, 12)
    log = cluster.raw_log("t", 0)
    assert bytes(raw.batches) == log[records.scan(log)[1].start :]
    assert (raw.high_watermark, raw.last_stable_offset, raw.next_offset, raw.log_start_offset, raw.aborted) == (30, 30, 30, 0, ())
    assert column([raw], 12) == list(range(12, 30))


def test_fetch_raw_takes_at_most_max_bytes_but_at_least_one_batch(client: KafkaClient, cluster: MockCluster) -> None:
    fill(client, numbers(30), batches=3)
    raw = client.fetch_raw("t", 0, 0, max_bytes=10)
    assert raw.next_offset == 10
    request = cluster.requests("Fetch")[-1].message
    assert (request.max_bytes, request.topics[0].partitions[0].partition_max_bytes) == (10, 10)


def test_fetch_raw_waits_for_min_bytes_at_most_max_wait_ms(client: KafkaClient) -> None:
    with Clock() as clock:
        raw = client.fetch_raw("t", 0, 0, max_wait_ms=200)
    assert 0.15 < clock.seconds < 30
    assert (bytes(raw.batches), raw.next_offset) == (b"", 0)


def test_fetch_raw_tells_of_aborted_transactions_and_leaves_them_in(client: KafkaClient, cluster: MockCluster) -> None:
    cluster.append("t", 0, values(2, producer_id=7, attributes=TRANSACTIONAL) + marker(0, 2, producer_id=7))
    cluster.set_transactions("t", 0, aborted=[(7, 0)])
    assert client.fetch_raw("t", 0, 0).aborted == ((7, 0),)
    assert client.fetch_raw("t", 0, 0, isolation=IsolationLevel.READ_UNCOMMITTED).aborted == ()
    cluster.set_transactions("t", 0, aborted=[], stable=1)
    assert client.fetch_raw("t", 0, 1, max_wait_ms=10).last_stable_offset == 1


def test_errors_that_pass_are_tried_again_and_others_are_raised(client: KafkaClient, cluster: MockCluster) -> None:
    fill(client, numbers(5))
    for fault in (Error(6), Close(before=True), Close(before=False)):
        cluster.on("Fetch", fault)
        assert client.fetch_raw("t", 0, 0).next_offset == 5
    error = error_of(client.fetch_raw, "t", 0, 99)
    assert isinstance(error, OffsetOutOfRangeError)
    assert (error.topic, error.partition, error.offset) == ("t", 0, 99)
    assert type(error_of(client.fetch_raw, "t", 3, 0)) is UnknownTopicOrPartition


def test_a_broker_that_stays_silent_costs_the_timeout(client: KafkaClient, cluster: MockCluster) -> None:
    fill(client, numbers(5))
    cluster.on("Fetch", Error(6), times=None)
    with Clock() as clock:
        assert isinstance(error_of(lambda: client.fetch_raw("t", 0, 0, timeout=0.3)), KafkaTimeoutError)
    assert clock.seconds < 30


def test_a_stream_reaches_its_end_and_asks_ahead(client: KafkaClient, cluster: MockCluster, run: Runner) -> None:
    fill(client, numbers(100), batches=20)
    stream = client.fetch_stream("t", 0, 3, 77, max_bytes=300)
    first = next(stream)
    run.until(lambda: cluster.requests("Fetch")[-1].message.topics[0].partitions[0].fetch_offset == first.next_offset)
    raws = [first, *stream]
    assert raws[-1].next_offset >= 77
    assert column(raws, 3, 77) == list(range(3, 77))
    assert len(raws) > 3


def test_streams_side_by_side_do_not_wait_for_each_other(connect: Any, make_cluster: Any, run: Runner) -> None:
    cluster = make_cluster(topics={"t": 4})
    client = connect(cluster)
    for p in range(4):
        fill(client, numbers(200), partition=p, batches=10)
    workers = [run.aside(lambda p=p: column(list(client.fetch_stream("t", p, 0, 200, max_bytes=500)), 0, 200)) for p in range(4)]
    assert [w.result() for w in workers] == [list(range(200))] * 4


def test_streams_of_one_request_end_where_a_topic_was_made_again(connect: Any, make_cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gkafka.cluster.UNKNOWN_TOPIC_PATIENCE_S", 0.5)
    cluster = make_cluster(topics={"t": 1, "u": 1})
    client = connect(cluster)
    for topic in ("t", "u"):
        cluster.append(topic, 0, values(5))
    ids = {name: client.admin().describe_topics([name])[name].topic_id for name in ("t", "u")}
    spans = [("t", 0, 0, 5), ("u", 0, 0, 5)]
    found = list(client.fetch_streams(spans, topic_ids=ids, max_total_bytes=1))
    assert sorted((number, raw.next_offset) for number, raw in found if isinstance(raw, RawFetch)) == [(0, 5), (1, 5)]
    assert cluster.requests("Fetch")[-1].message.max_bytes == 1
    cluster.delete_topic("t")
    cluster.create_topic("t", 1)
    cluster.append("t", 0, values(9))
    (_, raw), (number, error) = client.fetch_streams(spans, topic_ids=ids)
    assert isinstance(raw, RawFetch)
    assert number == 0
    assert "topic 't' was deleted and made again" in str(error)
    assert isinstance(error_of(lambda: list(client.fetch_stream("t", 0, 0, 5, topic_id=ids["t"]))), UnknownTopicError)
    assert list(client.fetch_stream("t", 0, 0, 5))[-1].next_offset == 9, "whatever has the name"


@pytest.mark.parametrize(("name", "wrong"), [("topic_ids", ["t"]), ("topic_ids", {"t": "x"}), ("max_total_bytes", 0), ("max_bytes", 0)])
def test_arguments_of_streams_that_cannot_be_are_told(client: KafkaClient, name: str, wrong: Any) -> None:
    error = error_of(lambda: list(client.fetch_streams([("t", 0, 0, 1)], **{name: wrong})))
    assert isinstance(error, ConfigurationError)
    assert name.removesuffix("s") in str(error)


def test_a_stream_that_is_left_early_leaves_nothing_behind(client: KafkaClient, cluster: MockCluster, run: Runner) -> None:
    fill(client, numbers(100), batches=20)
    for _ in range(20):
        stream = client.fetch_stream("t", 0, 0, 100, max_bytes=300)
        next(stream)
        stream.close()
    run.until(lambda: cluster.connections() <= 4)
    assert column([client.fetch_raw("t", 0, 0)], 0) == list(range(100))


def test_a_stream_beyond_the_end_of_the_log_says_so_after_its_timeout(client: KafkaClient) -> None:
    fill(client, numbers(5))
    with Clock() as clock:
        error = error_of(lambda: list(client.fetch_stream("t", 0, 0, 9, max_wait_ms=50, timeout=0.3)))
    assert isinstance(error, KafkaTimeoutError)
    assert (error.topic, error.partition, error.offset) == ("t", 0, 5)
    assert clock.seconds < 30


def test_a_stream_goes_on_through_faults(connect: Any, make_cluster: Any) -> None:
    cluster = make_cluster(brokers=2, replication_factor=2)
    client = connect(cluster, reconnect_backoff_ms=5, reconnect_backoff_max_ms=20)
    fill(client, numbers(200), batches=40)
    raws = []
    for n, raw in enumerate(client.fetch_stream("t", 0, 0, 200, max_bytes=300, timeout=60)):
        raws.append(raw)
        if n % 5 == 0:
            cluster.close_connections(reset=bool(n % 2))
        if n % 7 == 0:
            cluster.move_leader("t", 0, n // 7 % 2 + 1)
    assert column(raws, 0, 200) == list(range(200))


def test_a_buffer_is_not_used_again_while_somebody_holds_its_batches(client: KafkaClient) -> None:
    fill(client, numbers(100), batches=20)
    raws = list(client.fetch_stream("t", 0, 0, 100, max_bytes=300))
    again = list(client.fetch_stream("t", 0, 0, 100, max_bytes=300))
    assert column(raws, 0, 100) == column(again, 0, 100) == list(range(100))


def test_list_offsets_by_ends_and_time_over_many_partitions(connect: Any, make_cluster: Any) -> None:
    cluster = make_cluster(brokers=3, topics={"a": 4, "b": 2})
    client = connect(cluster)
    with client.get_producer() as producer:
        for i in range(10):
            producer.produce("a", b"x", partition=3, timestamp=1_000_000 + i)
    assert client.list_offsets({("a", p): -1 for p in range(4)} | {("b", 1): -1}) == {
        ("a", 0): 0, ("a", 1): 0, ("a", 2): 0, ("a", 3): 10, ("b", 1): 0,
    }  # fmt: skip
    assert client.list_offsets({("a", 3): 1_000_004}) == {("a", 3): 4}
    assert client.list_offsets({("a", 3): 2_000_000}) == {("a", 3): -1}
    cluster.on("ListOffsets", Error(6), times=2)
    assert client.list_offsets({("a", 3): -2}) == {("a", 3): 0}
    cluster.on("ListOffsets", Delay(10))
    assert isinstance(error_of(lambda: client.list_offsets({("a", 3): -2}, timeout=0.2)), KafkaTimeoutError)


def test_a_read_committed_end_is_the_last_stable_offset(client: KafkaClient, cluster: MockCluster) -> None:
    fill(client, numbers(10))
    cluster.set_transactions("t", 0, aborted=[], stable=4)
    assert client.list_offsets({("t", 0): -1}) == {("t", 0): 10}
    assert client.list_offsets({("t", 0): -1}, isolation=IsolationLevel.READ_COMMITTED) == {("t", 0): 4}


@pytest.mark.parametrize("wrong", [{"offset": -1}, {"offset": "0"}, {"offset": 1.5}, {"max_bytes": 0}, {"max_bytes": "1"}])
def test_arguments_that_cannot_be_are_told(client: KafkaClient, wrong: dict[str, Any]) -> None:
    with Clock() as clock:
        error = error_of(lambda: client.fetch_raw(**{"topic": "t", "partition": 0, "offset": 0, **wrong}))
    assert clock.seconds < 30
    assert next(iter(wrong)) in str(error)


def test_a_fetch_that_is_not_answered_ends_at_its_timeout_and_names_its_place(client: KafkaClient, cluster: MockCluster) -> None:
    fill(client, numbers(5))
    cluster.on("Fetch", Drop(before=True), times=None)
    with Clock() as clock:
        error = error_of(client.fetch_raw, "t", 0, 3, timeout=0.5)
    assert isinstance(error, KafkaTimeoutError)
    assert (error.topic, error.partition, error.offset) == ("t", 0, 3)
    assert clock.seconds < 30
