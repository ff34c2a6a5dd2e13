"""What a producer sends: every form of a record, where it goes, and what comes back for it."""

from __future__ import annotations

import datetime
import itertools
import zlib
from collections import Counter
from enum import Enum
from typing import Any

import pytest

from gkafka import KafkaClient
from gkafka.common import CompressionType, Message
from gkafka.exceptions import (
    ConfigurationError,
    InvalidTopic,
    KafkaTimeoutError,
    ProducerQueueFullError,
    ProducerStoppedException,
    RecordTooLarge,
    SerializationError,
    UnknownTopicOrPartition,
)
from gkafka.partitioners import HashingPartitioner
from gkafka.records import murmur2
from gkafka.testing import Delay, Error, MockCluster
from tests.effort import quick_and_thorough
from tests.kit import clock
from tests.public.aids import LIMIT_S, Clock, Held, Runner, error_of, read, stored, stored_values


class Name(str, Enum):
    """What programs keep the names of their topics in."""

    T = "t"


# -- records ---------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("acks", [0, 1, "all", -1, "1"])
def test_records_arrive_with_every_kind_of_acknowledgement(client: KafkaClient, cluster: MockCluster, run: Runner, acks: Any) -> None:
    with client.get_producer(acks=acks, linger_ms=1) as producer:
        deliveries = [producer.produce("t", b"%d" % i) for i in range(50)]
        producer.flush(LIMIT_S)
    run.until(lambda: len(stored(cluster)) == 50)
    assert stored_values(cluster) == [b"%d" % i for i in range(50)]
    told = [d.result(0).offset for d in deliveries]
    assert told == ([-1] * 50 if acks == 0 else list(range(50)))
    assert cluster.requests("Produce")[0].message.acks == (-1 if acks == "all" else int(acks))


def test_a_record_arrives_as_it_was_given(client: KafkaClient, cluster: MockCluster) -> None:
    headers: list[tuple[str, bytes | None]] = [("a", b"1"), ("a", None), ("ümlaut", b"")]
    with client.get_producer() as producer:
        producer.produce("t", b"value", b"key", timestamp=1234567890123, headers=headers)
        producer.produce("t", None, b"key")
        producer.produce("t", b"", b"")
        producer.produce(b"t", bytearray(b"array"), memoryview(b"view"))
        now = int(clock.epoch_s() * 1000) - 50  # the clock that is read for each record is a coarse one
        producer.produce("t", b"now")
    first, tombstone, empty, buffers, latest = stored(cluster)
    assert first == (0, 1234567890123, b"key", b"value", headers)
    assert (tombstone.key, tombstone.value) == (b"key", None)
    assert (empty.key, empty.value, empty.headers) == (b"", b"", [])
    assert (buffers.key, buffers.value) == (b"view", b"array")
    assert now <= latest.timestamp <= now + 5000
    assert latest.key is None


def test_the_callers_buffer_may_be_used_again_at_once(client: KafkaClient, cluster: MockCluster) -> None:
    buffer = bytearray(b"first")
    with client.get_producer(linger_ms=200) as producer:
        producer.produce("t", buffer)
        buffer[:] = b"other"
    assert stored_values(cluster) == [b"first"]


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd", "none", "auto"])
def test_every_codec(client: KafkaClient, cluster: MockCluster, codec: str) -> None:
    values = [b"%d " % i * 100 for i in range(200)]
    with client.get_producer(compression=codec) as producer:
        for value in values:
            producer.produce("t", value)
    assert stored_values(cluster) == values
    with client.topics["t"].get_simple_consumer() as consumer:
        assert [m.value for m in read(consumer, 200)] == values
    if codec != "none":
        assert len(cluster.raw_log("t", 0)) < 0.5 * sum(map(len, values))


def test_a_compression_level_is_obeyed(client: KafkaClient, cluster: MockCluster) -> None:
    value = bytes(i * i % 251 for i in range(20000)) * 3
    sizes = []
    for level in (1, 9):
        before = len(cluster.raw_log("t", 0))
        with client.get_producer(compression="gzip", compression_level=level) as producer:
            producer.produce("t", value).result(LIMIT_S)
        sizes.append(len(cluster.raw_log("t", 0)) - before)
    assert sizes[0] > sizes[1]


@pytest.mark.parametrize(
    "wrong",
    [
        {"value": "text"},
        {"value": 5},
        {"value": ["x"]},
        {"value": b"v", "key": "text"},
        {"value": b"v", "headers": {"a": b"1"}},
        {"value": b"v", "headers": [("a", "text")]},
        {"value": b"v", "headers": [(b"a", b"1")]},
        {"value": b"v", "headers": [("a",)]},
        {"value": b"v", "timestamp": -5},
        {"value": b"v", "timestamp": 1.5},
        {"value": b"v", "timestamp": 1 << 63},
        {"value": b"v", "timestamp": True},
    ],
    ids=str,
)
def test_what_cannot_be_sent_is_refused_with_words_and_without_showing_it(
    client: KafkaClient, cluster: MockCluster, wrong: dict[str, Any]
) -> None:
    producer = client.get_producer()
    good = producer.produce("t", b"before")
    error = error_of(producer.produce, "t", **wrong)
    assert isinstance(error, SerializationError)
    assert "text" not in str(error).replace("text encoding", "")
    producer.produce("t", b"after")
    producer.flush(LIMIT_S)
    assert good.result(0).offset == 0
    assert stored_values(cluster) == [b"before", b"after"], "nothing that was accepted is lost"


@pytest.mark.parametrize("partition", [1, -1, 1.0, "0", True])
def test_a_partition_that_cannot_be_is_refused(client: KafkaClient, cluster: MockCluster, partition: Any) -> None:
    producer = client.get_producer()
    error = error_of(producer.produce, "t", b"v", partition=partition)
    assert isinstance(error, ConfigurationError)
    assert "partition" in str(error)
    producer.close()
    assert stored(cluster) == []


@pytest.mark.parametrize("topic", [5, None, "", "no/slash", b"\xff\xfe", "x" * 300])
def test_a_topic_that_cannot_be_is_refused(client: KafkaClient, topic: Any) -> None:
    producer = client.get_producer(max_block_ms=100_000)
    with Clock() as clock:
        error = error_of(producer.produce, topic, b"v")
    assert isinstance(error, (ConfigurationError, InvalidTopic, SerializationError))
    assert clock.seconds < 30


@pytest.mark.usefixtures("short_patience")
def test_an_unknown_topic_is_told_and_the_producer_goes_on(connect: Any, make_cluster: Any) -> None:
    cluster = make_cluster(auto_create=False)
    producer = connect(cluster).get_producer()
    error = error_of(producer.produce, "missing", b"v")
    assert isinstance(error, UnknownTopicOrPartition)
    assert error.topic == "missing"
    assert producer.produce("t", b"v").result(LIMIT_S).offset == 0


def test_without_metadata_produce_gives_up_after_max_block_ms(connect: Any, cluster: MockCluster) -> None:
    cluster.on("Metadata", Delay(120), times=None)
    producer = connect(cluster).get_producer(max_block_ms=300)
    with Clock() as clock:
        error = error_of(producer.produce, "t", b"v")
    assert isinstance(error, KafkaTimeoutError)
    assert "max_block_ms=300" in str(error)
    assert "not accepted" in str(error)
    assert 0.25 < clock.seconds < 30
    producer.close(0)


def test_a_record_over_the_limit_is_refused_and_nothing_else(client: KafkaClient, cluster: MockCluster) -> None:
    producer = client.get_producer(max_request_bytes=10_000)
    producer.produce("t", b"x" * 9_000)
    error = error_of(producer.produce, "t", b"x" * 10_001)
    assert isinstance(error, RecordTooLarge)
    assert "max_request_bytes=10000" in str(error)
    producer.produce("t", b"y")
    producer.close()
    assert [len(v or b"") for v in stored_values(cluster)] == [9_000, 1]


def test_a_record_larger_than_a_batch_goes_in_a_batch_of_its_own(client: KafkaClient, cluster: MockCluster) -> None:
    with client.get_producer(batch_bytes=1000, linger_ms=0) as producer:
        deliveries = [producer.produce("t", b"x" * n) for n in (10, 50_000, 20)]
    assert [d.result(0).offset for d in deliveries] == [0, 1, 2]
    assert [len(v or b"") for v in stored_values(cluster)] == [10, 50_000, 20]


def test_serializers_are_applied_and_what_they_raise_is_told(client: KafkaClient, cluster: MockCluster) -> None:
    with client.get_producer(value_serializer=str.encode, key_serializer=lambda key: b"k" + key) as producer:
        producer.produce("t", "text", b"1")
        producer.produce("t", None)
        error = error_of(producer.produce, "t", 5)
    assert isinstance(error, SerializationError)
    assert "value_serializer" in str(error)
    assert [(r.key, r.value) for r in stored(cluster)] == [(b"k1", b"text"), (None, None)]


class Mute(ValueError):
    """An exception whose text cannot be had."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


def fail_mutely(*_: Any) -> Any:
    raise Mute


@pytest.mark.parametrize("option", ["value_serializer", "key_serializer", "partitioner"])
def test_an_error_of_own_code_without_a_text_is_told_by_its_type(client: KafkaClient, cluster: MockCluster, option: str) -> None:
    with client.get_producer(**{option: fail_mutely}) as producer:
        for _ in range(2):  # the topic's first record takes another way
            error = error_of(producer.produce, "t", b"v", b"k")
            assert isinstance(error, ConfigurationError if option == "partitioner" else SerializationError)
            assert str(error).endswith(": Mute")
            assert isinstance(error.__cause__, Mute)
    assert stored(cluster) == []


def test_a_topics_producer_tells_an_error_without_a_text_by_its_type(client: KafkaClient, cluster: MockCluster) -> None:
    for option in ("serializer", "partitioner"):
        with client.topics["t"].get_producer(**{option: fail_mutely}) as producer:
            error = error_of(producer.produce, b"v", b"k")
        assert isinstance(error, SerializationError if option == "serializer" else ConfigurationError)
        assert ": Mute" in str(error)
    assert stored(cluster) == []


# -- partitions ------------------------------------------------------------------------------------------------------------
def test_keys_choose_partitions_as_the_java_client_does(connect: Any, make_cluster: Any) -> None:
    cluster = make_cluster(topics={"t": 7})
    keys = [b"key-%d" % i for i in range(200)]
    with connect(cluster).get_producer() as producer:
        deliveries = [producer.produce("t", b"v", key) for key in keys]
    assert [d.result(0).partition for d in deliveries] == [murmur2(key) % 7 for key in keys]
    assert {p: [r.key for r in cluster.log("t", p)] for p in range(7)} == {p: [k for k in keys if murmur2(k) % 7 == p] for p in range(7)}


def test_an_explicit_partition_outweighs_the_key(connect: Any, make_cluster: Any) -> None:
    cluster = make_cluster(topics={"t": 4})
    with connect(cluster).get_producer() as producer:
        for p in (3, 0, 2):
            assert producer.produce("t", b"v", b"key", partition=p).result(LIMIT_S).partition == p


def test_records_without_a_key_fill_one_batch_and_go_on_to_another_partition(connect: Any, make_cluster: Any) -> None:
    """KIP-480: few large batches, and in the long run all partitions alike."""
    cluster = make_cluster(topics={"t": 4})
    with connect(cluster).get_producer(batch_bytes=2000, linger_ms=1000) as producer:
        for i in range(20_000):
            producer.produce("t", b"%060d" % i)
    counts = [len(cluster.log("t", p)) for p in range(4)]
    assert sum(counts) == 20_000
    assert min(counts) > 2000
    batches = sum(len(t.partition_data) for r in cluster.requests("Produce") for t in r.message.topic_data)
    assert batches <= -(-20_000 // (2000 // 70)) + 4, "each is full, but the last of each partition"


def test_a_slow_producer_of_records_without_a_key_uses_all_partitions_alike(connect: Any, make_cluster: Any) -> None:
    """KIP-794: a partition has had its share when batch_bytes went there, in however many batches."""
    cluster = make_cluster(topics={"t": 4})
    producer = connect(cluster).get_producer(linger_ms=0, batch_bytes=200)
    partitions = [producer.produce("t", b"%020d" % i).result(LIMIT_S).partition for i in range(300)]
    counts = Counter(partitions)
    assert min(counts.values()) > 12, counts
    stays = [len(list(run)) for _, run in itertools.groupby(partitions)]
    assert set(stays[:-1]) == {stays[0]}
    assert 3 <= stays[0] <= 6
    assert cluster.count("Produce") == 300


def test_records_without_a_key_avoid_partitions_without_a_leader(connect: Any, make_cluster: Any) -> None:
    cluster = make_cluster(3, topics={"t": 6}, replication_factor=1)
    gone = {p for p in range(6) if cluster.leader("t", p) == 2}
    cluster.stop_broker(2)
    assert gone
    producer = connect(cluster).get_producer(batch_bytes=200, linger_ms=0)
    used = {producer.produce("t", b"%020d" % i).result(LIMIT_S).partition for i in range(200)}
    assert used == set(range(6)) - gone


def test_crc32_chooses_partitions_as_librdkafka_does(connect: Any, make_cluster: Any) -> None:
    cluster = make_cluster(topics={"t": 7})
    keys = [b"key-%d" % i for i in range(200)] + [b"\xff" * n for n in range(1, 40)]
    with connect(cluster).get_producer(partitioner="crc32", batch_bytes=128) as producer:
        deliveries = [producer.produce("t", b"v", key) for key in keys]
        free = [producer.produce("t", b"v", key).partition for _ in range(300) for key in (b"", None)]
    assert [d.result(0).partition for d in deliveries] == [zlib.crc32(key) % 7 for key in keys]
    assert zlib.crc32(b"123456789") == 0xCBF43926, "the polynomial that librdkafka's rd_crc32 uses"
    assert set(free) == set(range(7)), "an empty key is none"


def test_murmur2_can_be_asked_for_by_name_and_an_unknown_name_is_told(connect: Any, make_cluster: Any) -> None:
    client = connect(make_cluster(topics={"t": 7}))
    with client.get_producer(partitioner="murmur2") as producer:
        assert producer.produce("t", b"v", b"key-1").result(LIMIT_S).partition == murmur2(b"key-1") % 7
    error = error_of(client.get_producer, partitioner="murmur")
    assert isinstance(error, ConfigurationError)
    assert "did you mean 'murmur2'" in str(error)


def test_a_partitioner_of_the_users_own(connect: Any, make_cluster: Any) -> None:
    cluster = make_cluster(topics={"t": 3})
    seen: list[Any] = []

    def last(partitions: list[int], key: bytes | None) -> int:
        seen.append((list(partitions), key))
        return partitions[-1]

    with connect(cluster).get_producer(partitioner=last) as producer:
        assert producer.produce("t", b"v", b"k").result(LIMIT_S).partition == 2
        assert producer.produce("t", b"v").result(LIMIT_S).partition == 2
        assert producer.produce("t", b"v", partition=0).result(LIMIT_S).partition == 0
    assert seen == [([0, 1, 2], b"k"), ([0, 1, 2], None)]
    producer = connect(cluster).get_producer(partitioner=lambda partitions, key: 9)
    error = error_of(producer.produce, "t", b"v")
    assert isinstance(error, ConfigurationError)
    assert "partitioner" in str(error)


def test_partitions_that_are_added_are_used(connect: Any, make_cluster: Any, run: Runner) -> None:
    cluster = make_cluster(topics={"t": 1})
    producer = connect(cluster, metadata_max_age_ms=100).get_producer(linger_ms=0, batch_bytes=128)
    producer.produce("t", b"v").result(LIMIT_S)
    cluster.add_partitions("t", 3)

    def used() -> bool:
        producer.produce("t", b"v").result(LIMIT_S)
        return all(cluster.log("t", p) for p in range(3))

    run.until(used)
    assert producer.produce("t", b"v", partition=2).result(LIMIT_S).partition == 2


# -- deliveries ------------------------------------------------------------------------------------------------------------
def test_a_delivery_tells_where_its_record_went(client: KafkaClient, cluster: MockCluster) -> None:
    producer = client.get_producer(linger_ms=60_000)
    delivery = producer.produce("t", b"value", b"key", timestamp=5, headers=[("h", b"1")])
    assert not delivery.done()
    assert (delivery.topic, delivery.partition) == ("t", 0)
    assert delivery.record == ("t", 0, b"key", b"value", [("h", b"1")], 5)
    assert b"value" not in repr(delivery).encode()
    assert delivery.result(LIMIT_S) == ("t", 0, 0, 5)
    assert delivery.done()
    assert delivery.exception() is None


def test_a_result_does_not_wait_for_the_linger(client: KafkaClient, cluster: MockCluster, run: Runner) -> None:
    producer = client.get_producer(linger_ms=60_000)
    client.connect()
    with Clock() as clock:
        assert producer.produce("t", b"1").result(LIMIT_S).offset == 0
        cluster.on("Produce", Delay(0.3))
        waiting = run.aside(lambda: producer.produce("t", b"2").result(LIMIT_S))
        run.until(lambda: cluster.count("Produce") == 2)
        assert producer.produce("t", b"3").result(LIMIT_S).offset == 2, "also behind a batch that is under way"
    assert waiting.result().offset == 1
    assert clock.seconds < 30


def test_a_result_that_is_not_there_in_time_is_a_timeout_and_the_record_goes_on(client: KafkaClient, cluster: MockCluster) -> None:
    cluster.on("Produce", held := Held())
    producer = client.get_producer()
    delivery = producer.produce("t", b"v")
    for wait in (delivery.result, delivery.exception):
        with Clock() as clock:
            assert isinstance(error_of(wait, 0.05), KafkaTimeoutError)
        assert clock.seconds < 30
    held.released = True
    assert delivery.result(LIMIT_S).offset == 0
    assert len(stored(cluster)) == 1


def test_callbacks_run_once_for_each_record_in_order_and_at_once_where_it_is_done(client: KafkaClient, run: Runner) -> None:
    producer = client.get_producer(linger_ms=60_000)  # nothing is delivered, and its record let go, before it has its callback
    seen: list[Any] = []
    for i in range(300):
        producer.produce("t", b"%d" % i).add_done_callback(lambda d: seen.append((d.result(0).offset, d.record.value)))
    producer.flush(LIMIT_S)
    run.until(lambda: len(seen) >= 300)
    assert seen == [(i, b"%d" % i) for i in range(300)]
    delivery = producer.produce("t", b"x")
    producer.flush(LIMIT_S)
    delivery.result(LIMIT_S)
    late: list[Any] = []
    delivery.add_done_callback(lambda d: late.append(d.index))
    assert late == [delivery.index]


def test_on_delivery_is_called_for_each_record(client: KafkaClient, cluster: MockCluster, run: Runner) -> None:
    seen: list[Any] = []
    producer = client.get_producer(on_delivery=lambda d: seen.append((d.record.value, type(d.exception(0)).__name__)))
    cluster.on("Produce", Error(29))
    producer.produce("t", b"refused").exception(LIMIT_S)
    producer.produce("t", b"taken").exception(LIMIT_S)
    run.until(lambda: len(seen) == 2)
    assert seen == [(b"refused", "TopicAuthorizationFailed"), (b"taken", "NoneType")]


def test_the_log_append_time_is_told(connect: Any, make_cluster: Any) -> None:
    cluster = make_cluster(topics={})
    cluster.create_topic("stamped", 1, configs={"message.timestamp.type": "LogAppendTime"})
    producer = connect(cluster).get_producer()
    before = int(clock.epoch_s() * 1000)
    told = producer.produce("stamped", b"v", timestamp=5).result(LIMIT_S)
    assert before <= told.timestamp <= int(clock.epoch_s() * 1000)
    assert told.timestamp == cluster.log("stamped", 0)[0].timestamp


def test_many_topics_share_a_producer(connect: Any, make_cluster: Any) -> None:
    cluster = make_cluster(topics={"a": 2, "b": 3, "c": 1})
    with connect(cluster).get_producer() as producer:
        for i in range(300):
            producer.produce("abc"[i % 3], b"%d" % i)
    for n, (topic, partitions) in enumerate([("a", 2), ("b", 3), ("c", 1)]):
        assert sorted(int(v or b"") for v in stored_values(cluster, topic, range(partitions))) == list(range(n, 300, 3))


def test_many_workers_share_a_producer(connect: Any, make_cluster: Any, run: Runner) -> None:
    cluster = make_cluster(topics={"t": 4})
    producer = connect(cluster).get_producer(batch_bytes=2000)

    def work(n: int) -> list[Any]:
        return [producer.produce("t", b"%d-%04d" % (n, i), b"%d" % n) for i in range(500)]

    workers = [run.aside(work, n) for n in range(6)]
    deliveries = [d for worker in workers for d in worker.result()]
    producer.flush(LIMIT_S)
    assert all(d.done() for d in deliveries)
    values = [r.value or b"" for r in stored(cluster, "t", range(4))]
    assert Counter(values) == Counter(b"%d-%04d" % (n, i) for n in range(6) for i in range(500))
    for n in range(6):
        mine = [v for v in values if v.startswith(b"%d-" % n)]
        assert mine == sorted(mine), "each worker's records of a key are in its order"


# -- pykafka's producer ------------------------------------------------------------------------------------------------------
def test_a_topics_producer_sends_when_its_block_ends(client: KafkaClient, cluster: MockCluster) -> None:
    with client.topics["t"].get_producer() as producer:
        for i in range(4):
            producer.produce(b"%d" % i)
    assert stored_values(cluster) == [b"0", b"1", b"2", b"3"]
    assert isinstance(error_of(producer.produce, b"x"), ProducerStoppedException)
    producer.start()
    producer.produce(b"again")
    producer.stop()
    producer.stop()
    assert stored_values(cluster)[-1] == b"again"


def test_a_producer_that_is_not_started_takes_nothing(client: KafkaClient, cluster: MockCluster) -> None:
    producer = client.topics["t"].get_producer(auto_start=False)
    assert isinstance(error_of(producer.produce, b"x"), ProducerStoppedException)
    with producer:
        producer.produce(b"y")
    assert stored_values(cluster) == [b"y"]


def test_a_sync_producer_returns_when_the_message_is_acknowledged(client: KafkaClient, cluster: MockCluster, run: Runner) -> None:
    with client.topics["t"].get_sync_producer(linger_ms=60_000) as producer, Clock() as clock:
        for i in range(5):
            producer.produce(b"%d" % i)
            assert len(stored(cluster)) == i + 1
        workers = [run.aside(producer.produce, b"x") for _ in range(5)]
        for worker in workers:
            worker.result()
    assert clock.seconds < 30, "no linger of a minute, also not with many callers"
    assert len(stored(cluster)) == 10


def test_a_sync_producer_raises_what_the_broker_says(client: KafkaClient, cluster: MockCluster) -> None:
    with client.topics["t"].get_sync_producer() as producer:
        cluster.on("Produce", Error(29))
        assert type(error_of(producer.produce, b"x")).__name__ == "TopicAuthorizationFailed"
        producer.produce(b"y")
        producer.stop()  # the error was raised where it belongs: not a second time
    assert stored_values(cluster) == [b"y"]


def test_delivery_reports_come_for_each_message(client: KafkaClient, cluster: MockCluster) -> None:
    with client.topics["t"].get_producer(delivery_reports=True, linger_ms=0) as producer:
        producer.produce(b"a", partition_key=b"k")
        message, error = producer.get_delivery_report(timeout=LIMIT_S)
        assert error is None
        assert (message.partition_key, message.value, message.offset, message.partition_id) == (b"k", b"a", 0, 0)
        assert message.partition.id == 0
        cluster.on("Produce", Error(29))
        producer.produce(b"b")
        message, error = producer.get_delivery_report(timeout=LIMIT_S)
        assert (message.value, message.offset) == (b"b", -1)
        assert type(error).__name__ == "TopicAuthorizationFailed"
        assert (error.persisted, error.record.value) == ("no", b"b")
        with pytest.raises(client.handler.QueueEmptyError):
            producer.get_delivery_report(block=False)
    with client.topics["t"].get_producer() as silent:
        assert isinstance(error_of(silent.get_delivery_report), ConfigurationError)


def test_a_sync_produce_returns_its_message(client: KafkaClient) -> None:
    """pykafka's returns the Message that it has sent."""
    with client.topics["t"].get_sync_producer() as producer:
        first = producer.produce(b"a", partition_key=b"k", timestamp=1_600_000_000_000)
        second = producer.produce(None)
    assert isinstance(first, Message)
    assert (first.value, first.partition_key, first.timestamp) == (b"a", b"k", 1_600_000_000_000)
    assert (first.offset, first.partition_id, first.partition.id) == (0, 0, 0)
    assert (second.value, second.partition_key, second.offset) == (None, None, 1)


def test_a_sync_message_is_what_was_sent(client: KafkaClient, cluster: MockCluster) -> None:
    with client.topics["t"].get_sync_producer(serializer=lambda value, key: (value.encode(), key)) as producer:
        assert producer.produce("text").value == b"text"
        assert producer.produce("text", bytearray(b"key")).partition_key == b"key"
    with client.topics["t"].get_sync_producer(required_acks=0) as producer:
        assert producer.produce(b"v").offset == -1, "nobody tells where it is"


def test_a_full_queue_blocks_or_raises(client: KafkaClient, cluster: MockCluster, run: Runner) -> None:
    cluster.on("Produce", held := Held(), times=None)
    with client.topics["t"].get_producer(max_queued_messages=3, block_on_queue_full=False) as producer:
        for i in range(3):
            producer.produce(b"%d" % i)
        assert isinstance(error_of(producer.produce, b"3"), ProducerQueueFullError)
        held.released = True
    cluster.clear_script()
    cluster.on("Produce", Delay(0.3), times=None)
    with client.topics["t"].get_producer(max_queued_messages=3) as producer, Clock() as clock:
        for i in range(7):
            producer.produce(b"%d" % i)
        assert producer.pending <= 3
    assert 0.5 < clock.seconds < 30
    assert len(stored(cluster)) == 10


def test_min_queued_messages_end_the_linger(client: KafkaClient, cluster: MockCluster, run: Runner) -> None:
    producer = client.topics["t"].get_producer(min_queued_messages=5, linger_ms=60_000)
    for i in range(4):
        producer.produce(b"%d" % i)
    assert run.stays(lambda: not stored(cluster), 0.1)
    producer.produce(b"4")
    run.until(lambda: len(stored(cluster)) == 5)
    producer.stop()


def test_pykafkas_keywords_reach_the_wire(client: KafkaClient, cluster: MockCluster, run: Runner) -> None:
    with client.topics["t"].get_producer(required_acks=-1, ack_timeout_ms=7654, compression=CompressionType.GZIP) as producer:
        producer.produce(b"x" * 1000)
    request = cluster.requests("Produce")[0].message
    assert (request.acks, request.timeout_ms) == (-1, 7654)
    assert len(cluster.raw_log("t", 0)) < 300
    when = datetime.datetime(2020, 5, 1, tzinfo=datetime.timezone.utc)
    with client.topics["t"].get_producer(serializer=lambda message, key: (message.encode(), key and key.encode())) as producer:
        producer.produce("text", "key", timestamp=when)
    assert stored(cluster)[1][1:4] == (int(when.timestamp() * 1000), b"key", b"text")
    error = error_of(client.topics["t"].get_producer(max_request_size=1024).produce, b"x" * 2000)
    assert isinstance(error, RecordTooLarge)


def test_pykafkas_partitioners(connect: Any, make_cluster: Any) -> None:
    cluster = make_cluster(topics={"t": 4})
    topic = connect(cluster).topics["t"]
    with topic.get_producer(partitioner=HashingPartitioner(lambda key: len(key))) as producer:
        for key in (b"", b"a", b"bb", b"ccc", b"dddd"):
            producer.produce(b"v", partition_key=key)
    assert [[r.key for r in cluster.log("t", p)] for p in range(4)] == [[b"", b"dddd"], [b"a"], [b"bb"], [b"ccc"]]
    with topic.get_producer() as producer:
        for _ in range(100):
            producer.produce(b"v", partition_key=b"same")
    counts = [len(cluster.log("t", p)) for p in range(4)]
    assert min(counts) > 5, f"random, whatever the key: {counts} of the partitions {producer._available}"


def test_retries_of_pykafkas_producer_are_bounded(client: KafkaClient, cluster: MockCluster) -> None:
    cluster.on("Produce", Error(6), times=None)
    producer = client.topics["t"].get_producer(max_retries=2, retry_backoff_ms=10)
    producer.produce(b"x")
    error = error_of(producer.stop)
    assert len(error.records) == 1  # type: ignore[attr-defined]
    assert cluster.count("Produce") == 2


def test_a_stopped_producer_gives_up_after_pending_timeout_ms(client: KafkaClient, cluster: MockCluster) -> None:
    cluster.on("Produce", Delay(120), times=None)
    producer = client.topics["t"].get_producer(pending_timeout_ms=300)
    producer.produce(b"x")
    with Clock() as clock:
        error = error_of(producer.stop)
    assert clock.seconds < 30
    assert [r.record.value for r in error.records] == [b"x"]  # type: ignore[attr-defined]


# -- many ------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("count", quick_and_thorough(1500, 5000))
def test_thousands_of_partitions_share_one_connection_to_each_broker(connect: Any, make_cluster: Any, count: int) -> None:
    cluster = make_cluster(2, topics={"t": count})
    client = connect(cluster)
    with client.get_producer(linger_ms=100_000) as producer:
        for turn in range(2):
            for partition in range(count):
                producer.produce("t", b"%d" % turn, partition=partition)
        producer.flush(100)
        assert sum(cluster.connections(broker) for broker in cluster.brokers) <= 3, "one for each leader, one for metadata"
    assert all([r.value for r in cluster.log("t", p)] == [b"0", b"1"] for p in range(0, count, 97))
    assert cluster.count("Produce") < count // 10


def test_topics_that_are_used_for_the_first_time_cost_a_request_for_themselves(connect: Any, make_cluster: Any) -> None:
    cluster = make_cluster(topics={f"t{i}": 1 for i in range(100)})
    with connect(cluster).get_producer(linger_ms=50) as producer:
        for i in range(100):
            producer.produce(f"t{i}", b"v")
    asked = sum(len(r.message.topics or ()) for r in cluster.requests("Metadata"))
    assert asked < 3 * 100
    assert all(len(cluster.log(f"t{i}", 0)) == 1 for i in range(100))


@pytest.mark.parametrize("options", [{}, {"on_delivery": len}])
def test_a_topic_may_be_named_by_a_member_of_an_enum(client: KafkaClient, cluster: MockCluster, options: Any) -> None:
    with client.get_producer(linger_ms=60_000, **options) as producer:
        deliveries = [producer.produce(name, b"%d" % i, partition=0) for i, name in enumerate([Name.T, "t", Name.T])]
        producer.flush(LIMIT_S)
    assert stored_values(cluster) == [b"0", b"1", b"2"]
    assert {(type(d.topic), d.topic) for d in deliveries} == {(str, "t")}
