"""Many records at once, as columns: what arrives is what one `produce()` after another would have sent."""

from __future__ import annotations

import zlib
from typing import Any

import pyarrow as pa
import pytest

from gkafka import KafkaClient
from gkafka.exceptions import (
    BufferFull,
    ConfigurationError,
    ProducerStoppedException,
    RecordTooLarge,
    SerializationError,
    TransactionStateError,
)
from gkafka.interceptors import ProducerInterceptor
from gkafka.records import RecordColumns, murmur2
from gkafka.testing import Error, MockCluster
from tests.public.aids import LIMIT_S, Held, Runner, error_of, stored, stored_values

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def numbered(count: int, *, keys: bool = True, size: int = 0, first: int = 0) -> RecordColumns:
    values = [b"%d" % i + b"x" * size for i in range(first, first + count)]
    return RecordColumns.from_arrow(value=pa.array(values), key=pa.array([b"k%d" % i for i in range(count)]) if keys else None)


def everything(cluster: MockCluster, topic: str) -> list[Any]:
    partitions = {"t": 1, "pair": 2}[topic]
    return [(p, r.key, r.value, list(r.headers), r.timestamp) for p in range(partitions) for r in cluster.log(topic, p)]


@pytest.fixture
def pair(cluster: MockCluster) -> str:
    """A topic of two partitions."""
    cluster.create_topic("pair", 2)
    return "pair"


def test_columns_arrive_as_single_records_would(client: KafkaClient, cluster: MockCluster, pair: str) -> None:
    rows = [(None if i % 7 == 0 else b"v%d" % i, b"k%d" % i, [("h", b"%d" % i), ("n", None)] if i % 3 == 0 else None) for i in range(500)]
    columns = RecordColumns.from_arrow(
        pa.array([r[0] for r in rows]), pa.array([r[1] for r in rows]), pa.array([r[2] for r in rows], HEADERS)
    )
    with client.get_producer(linger_ms=1) as producer:
        producer.produce_columns(pair, columns, timestamp=1234)
        producer.flush(LIMIT_S)
    expected = [(murmur2(key) % 2, key, value, headers or [], 1234) for value, key, headers in rows]
    assert everything(cluster, pair) == sorted(expected, key=lambda row: row[0])


def test_a_partition_given_goes_before_the_key(client: KafkaClient, cluster: MockCluster, pair: str) -> None:
    columns = RecordColumns.from_arrow(pa.array([b"a", b"b"]), pa.array([b"k", b"k"]), partition=pa.array([1, 0], pa.int32()))
    with client.get_producer() as producer:
        producer.produce_columns(pair, columns)
    assert [(row[0], row[2]) for row in everything(cluster, pair)] == [(0, b"b"), (1, b"a")]


def test_records_without_a_key_change_their_partition_with_each_batch(client: KafkaClient, cluster: MockCluster, pair: str) -> None:
    with client.get_producer(batch_bytes=1000) as producer:
        producer.produce_columns(pair, numbered(2000, keys=False))
    counts = [len(cluster.log(pair, p)) for p in range(2)]
    assert sum(counts) == 2000
    assert min(counts) > 100


@pytest.mark.parametrize("partitioner", ["crc32", "last"])
def test_the_producers_partitioner_chooses(client: KafkaClient, cluster: MockCluster, pair: str, partitioner: str) -> None:
    chosen = (lambda ids, key: ids[-1]) if partitioner == "last" else partitioner
    with client.get_producer(partitioner=chosen) as producer:
        producer.produce_columns(pair, numbered(50))
    for p, key, *_ in everything(cluster, pair):
        assert p == (1 if partitioner == "last" else zlib.crc32(key) % 2)


class Renaming(ProducerInterceptor):
    """Gives each record another key."""

    def on_send(self, record: Any) -> Any:
        return record._replace(key=b"user-" + record.key)


@pytest.mark.parametrize(
    ("options", "asked"),
    [
        ({"key_serializer": lambda key: b"user-" + key}, False),
        ({"interceptors": [Renaming()]}, False),
        ({"key_serializer": lambda key: b"user-" + key}, True),
        ({"interceptors": [Renaming()]}, True),
        ({"interceptors": [Renaming()], "key_serializer": bytes.upper}, False),
        ({"interceptors": [Renaming()], "key_serializer": bytes.upper, "partitioner": "crc32"}, False),
        ({"value_serializer": bytes.upper}, False),
    ],
    ids=["key_serializer", "interceptor", "partitioner-key_serializer", "partitioner-interceptor", "both", "crc32", "value_serializer"],
)
def test_a_key_goes_to_the_partition_that_produce_chooses(connect: Any, make_cluster: Any, options: dict[str, Any], asked: bool) -> None:
    cluster = make_cluster(topics={"singly": 6, "columns": 6})
    seen: list[bytes | None] = []

    def partitioner(ids: list[int], key: bytes | None) -> int:
        seen.append(key)
        return ids[zlib.crc32(key or b"") % len(ids)]

    keys = [b"k%d" % i for i in range(12)]
    with connect(cluster).get_producer(**options, **({"partitioner": partitioner} if asked else {})) as producer:
        for key in keys:
            producer.produce("singly", b"v", key)
        producer.produce_columns("columns", RecordColumns.from_arrow(pa.array([b"v"] * len(keys)), pa.array(keys)))
    found = {topic: [(p, r.key, r.value) for p in range(6) for r in cluster.log(topic, p)] for topic in ("singly", "columns")}
    assert found["columns"] == found["singly"]
    assert len(found["singly"]) == len(keys)
    assert seen[: len(keys)] == seen[len(keys) :]


def test_an_interceptor_sees_what_the_columns_leave_open(client: KafkaClient, cluster: MockCluster, pair: str) -> None:
    seen: list[Any] = []

    class Looking(ProducerInterceptor):
        def on_send(self, record: Any) -> Any:
            seen.append((record.partition, record.timestamp))
            return record

    with client.get_producer(interceptors=[Looking()]) as producer:
        columns = RecordColumns.from_arrow(pa.array([b"a", b"b"]), pa.array([b"k", b"k"]), partition=pa.array([1, None], pa.int32()))
        producer.produce_columns(pair, columns)
        producer.produce_columns(pair, columns, timestamp=1234)
    assert seen == [(1, None), (None, None), (1, 1234), (None, 1234)]


def test_a_partition_that_is_not_there_is_found_before_any_own_code_runs(client: KafkaClient, cluster: MockCluster) -> None:
    seen: list[Any] = []
    columns = RecordColumns.from_arrow(pa.array([b"a", b"b"]), partition=pa.array([0, 1], pa.int32()))
    with client.get_producer(value_serializer=lambda value: seen.append(value) or value) as producer:
        error = error_of(producer.produce_columns, "t", columns)
    assert isinstance(error, ConfigurationError)
    assert str(error).startswith("row 1 for topic 't': partition=1: the topic has the partitions 0 to 0")
    assert seen == stored(cluster) == []


@pytest.mark.parametrize("option", ["value_serializer", "partitioner", "interceptors"])
def test_with_own_code_too_the_deliveries_are_those_that_began_a_batch(client: KafkaClient, cluster: MockCluster, option: str) -> None:
    options: dict[str, Any] = {
        "value_serializer": lambda value: value,
        "partitioner": lambda ids, key: 0,
        "interceptors": [ProducerInterceptor()],
    }
    with client.get_producer(**{option: options[option]}, batch_bytes=1000, linger_ms=1000) as producer:
        begun = producer.produce_columns("t", numbered(500))
        producer.flush(LIMIT_S)
        batches = [delivery.batch for delivery in begun]
        assert 1 < len(batches) < 250
        assert sum(batch.count for batch in batches) == 500
        assert [batch.base_offset for batch in batches] == [sum(b.count for b in batches[:i]) for i in range(len(batches))]


def test_the_deliveries_are_those_that_began_a_batch_and_tell_of_all_in_it(client: KafkaClient, cluster: MockCluster) -> None:
    with client.get_producer(batch_bytes=1000, linger_ms=1000) as producer:
        begun = producer.produce_columns("t", numbered(500))
        producer.flush(LIMIT_S)
        batches = [delivery.batch for delivery in begun]
        assert sum(batch.count for batch in batches) == 500
        assert [batch.base_offset for batch in batches] == [sum(b.count for b in batches[:i]) for i in range(len(batches))]


def test_columns_and_single_records_keep_their_order(client: KafkaClient, cluster: MockCluster) -> None:
    with client.get_producer(batch_bytes=500) as producer:
        for i in range(0, 300, 30):
            producer.produce_columns("t", numbered(29, first=i))
            producer.produce("t", b"%d" % (i + 29))
    assert stored_values(cluster) == [b"%d" % i for i in range(300)]


@pytest.mark.parametrize("hook", ["key_serializer", "on_delivery", "interceptors"])
def test_what_sees_each_record_sees_each_of_them(client: KafkaClient, cluster: MockCluster, hook: str) -> None:
    seen: list[Any] = []

    class Interceptor(ProducerInterceptor):
        def on_send(self, record: Any) -> Any:
            seen.append(record)
            return record

    def serializer(key: bytes) -> bytes:
        seen.append(key)
        return key

    options: dict[str, Any] = {"key_serializer": serializer, "on_delivery": seen.append, "interceptors": [Interceptor()]}
    with client.get_producer(**{hook: options[hook]}) as producer:
        producer.produce_columns("t", numbered(40))
        producer.flush(LIMIT_S)
    assert len(seen) == 40
    assert len(stored_values(cluster)) == 40


def test_a_full_buffer_is_waited_for_and_no_longer_than_max_block_ms(client: KafkaClient, cluster: MockCluster, run: Runner) -> None:
    with client.get_producer(batch_bytes=512, buffer_bytes=4096, max_request_bytes=2048) as producer:
        producer.produce_columns("t", numbered(2000))
    assert len(stored_values(cluster)) == 2000
    cluster.on("Produce", held := Held(), times=None)
    with client.get_producer(batch_bytes=512, buffer_bytes=4096, max_request_bytes=2048, max_block_ms=50) as producer:
        with pytest.raises(BufferFull, match="no room"):
            producer.produce_columns("t", numbered(2000))
        cluster.clear_script()
        held.released = True


def test_a_record_that_is_too_large_is_named_and_those_before_it_are_written(client: KafkaClient, cluster: MockCluster) -> None:
    values = pa.array([b"a", b"b", b"x" * 5000, b"c"])
    with client.get_producer(max_request_bytes=2000, batch_bytes=1000) as producer:
        with pytest.raises(RecordTooLarge, match=r"^row 2: a record of \d+ bytes for topic 't' is over max_request_bytes=2000"):
            producer.produce_columns("t", RecordColumns.from_arrow(values))
        with pytest.raises(RecordTooLarge, match=r"^row 102: "):
            producer.produce_columns("t", RecordColumns.from_arrow(values), row_numbers=range(100, 104))
    assert stored_values(cluster) == [b"a", b"b"] * 2


def test_what_cannot_be_is_refused_by_name(client: KafkaClient, cluster: MockCluster) -> None:
    with client.get_producer(max_block_ms=2000) as producer:
        with pytest.raises(ConfigurationError, match=r"columns is dict: must be gkafka.records.RecordColumns"):
            producer.produce_columns("t", {"value": [b"a"]})  # type: ignore[arg-type]
        with pytest.raises(ConfigurationError, match=r"^row 1 for topic 't': partition=1: the topic has the partitions 0 to 0"):
            producer.produce_columns("t", RecordColumns.from_arrow(pa.array([b"a", b"b"]), partition=pa.array([0, 1], pa.int32())))
        with pytest.raises(SerializationError, match="timestamp=-5"):
            producer.produce_columns("t", numbered(1), timestamp=-5)
        with pytest.raises(SerializationError, match=r"^row 0: headers\[0\] has no key"):
            producer.produce_columns("t", RecordColumns.from_arrow(pa.array([b"a"]), headers=pa.array([[(None, b"x")]], HEADERS)))
        with pytest.raises(ConfigurationError, match="topic='a b'"):
            producer.produce_columns("a b", numbered(1))
    assert stored(cluster) == []
    with pytest.raises(ProducerStoppedException):
        producer.produce_columns("t", numbered(1))


def test_no_columns_are_no_records(client: KafkaClient, cluster: MockCluster) -> None:
    with client.get_producer() as producer:
        assert producer.produce_columns("t", RecordColumns(0)) == []
    assert cluster.count("Produce") == 0


def test_columns_are_part_of_a_transaction_and_refused_outside(client: KafkaClient, cluster: MockCluster) -> None:
    with client.get_producer(transactional_id="x") as producer:
        producer.init_transactions()
        with pytest.raises(TransactionStateError):
            producer.produce_columns("t", numbered(3))
        with producer.transaction():
            producer.produce_columns("t", numbered(100))
        producer.begin_transaction()
        producer.produce_columns("t", numbered(100))
        producer.abort_transaction()
    assert [r.value for r in cluster.log("t", 0, committed=True)] == [b"%d" % i for i in range(100)]


def test_retries_write_nothing_twice(client: KafkaClient, cluster: MockCluster) -> None:
    cluster.on("Produce", Error(7), times=3)  # RequestTimedOut: it may be written, or not
    with client.get_producer(batch_bytes=1000, retry_backoff_ms=5) as producer:
        producer.produce_columns("t", numbered(1000))
    assert stored_values(cluster) == [b"%d" % i for i in range(1000)]


def test_several_workers_may_produce_columns_at_once_each_in_its_order(client: KafkaClient, cluster: MockCluster, run: Runner) -> None:
    with client.get_producer(batch_bytes=2000, linger_ms=1) as producer:

        def some(name: int) -> None:
            for i in range(0, 1000, 100):
                values = pa.array([b"%d:%d" % (name, n) for n in range(i, i + 100)])
                producer.produce_columns("t", RecordColumns.from_arrow(values))

        for worker in [run.aside(some, name) for name in range(4)]:
            worker.result()
    found = [value.split(b":") for value in stored_values(cluster) if value is not None]
    for name in range(4):
        assert [int(n) for its, n in found if int(its) == name] == list(range(1000))
