"""KafkaProducer as kafka-python 1.4 documents it (behaviours 232-241, 302-314), and what newer versions added."""

from __future__ import annotations

import gzip
import logging
import re
import threading
from collections.abc import Callable
from typing import Any

import pytest

from gkafka.common import CompressionType
from gkafka.exceptions import ClientClosedError
from gkafka.kafka import KafkaClient, KafkaConsumer, KafkaProducer, OffsetAndMetadata, Serializer, TopicPartition
from gkafka.kafka.errors import (
    IllegalStateError,
    InvalidRecordError,
    KafkaConfigurationError,
    KafkaError,
    KafkaTimeoutError,
    MessageSizeTooLargeError,
    NoBrokersAvailable,
    NotLeaderForPartitionError,
    RequestTimedOutError,
    UnknownTopicOrPartitionError,
)
from gkafka.kafka.future import Future
from gkafka.kafka.partitioner import DefaultPartitioner
from gkafka.kafka.producer.future import RecordMetadata
from gkafka.records import murmur2, scan
from gkafka.testing import Close, Delay, Edit, Error, MockCluster
from tests.kafka.conftest import Make
from tests.kafka.consuming import consume, held, until
from tests.kit.clock import now
from tests.kit.refusing import Refuse


def values(cluster: MockCluster, topic: str = "t", partition: int = 0) -> list[bytes | None]:
    return [record.value for record in cluster.log(topic, partition)]


# -- sending and futures ---------------------------------------------------------------------------------------------------
def test_send_returns_a_future_at_once(producer: Make, cluster: MockCluster) -> None:
    """Behaviours 232, 303."""
    sending = producer(cluster)
    sending.send("t", b"first").get(60)
    with held(cluster, "Produce"):
        future = sending.send("t", b"second")
        assert not future.is_done
        assert isinstance(future, Future)
    assert future.get(timeout=60).offset == 1


def test_a_send_in_the_place_of_the_classs_own_is_called(producer: Make, cluster: MockCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """A subclass's, and that of a tool which wraps the method of the class."""
    called: list[str] = []

    class Counting(KafkaProducer):
        def send(self, topic: str, *args: Any, **kwargs: Any) -> Any:
            called.append(topic)
            return super().send(topic, *args, **kwargs)

    with Counting(bootstrap_servers=cluster.bootstrap) as sending:
        sending.send("t", b"v").get(60)
    assert called == ["t"]
    shipped = KafkaProducer.send
    monkeypatch.setattr(
        KafkaProducer, "send", lambda self, topic, *args: (called.append(f"{topic}, wrapped"), shipped(self, topic, *args))[1]
    )
    producer(cluster).send("t", b"w").get(60)
    assert called == ["t", "t, wrapped"]
    assert values(cluster) == [b"v", b"w"]


def test_get_gives_the_metadata_or_raises(producer: Make, cluster: MockCluster) -> None:
    """Behaviour 233."""
    sending = producer(cluster)
    future = sending.send("t", b"v", timestamp_ms=1234)
    assert future.get(timeout=60) == RecordMetadata("t", 0, TopicPartition("t", 0), 0, 1234)
    assert (future.is_done, future.succeeded(), future.failed(), future.exception) == (True, True, False, None)
    assert future.value == future.get()
    cluster.on("Produce", Error(10))
    failed = sending.send("t", b"v")
    with pytest.raises(KafkaError) as caught:
        failed.get(60)
    assert isinstance(caught.value, MessageSizeTooLargeError)
    assert (failed.succeeded(), failed.failed(), failed.value, failed.retriable()) == (False, True, None, False)


def test_get_ends_by_its_timeout(producer: Make, cluster: MockCluster) -> None:
    sending = producer(cluster)
    sending.send("t", b"v").get(60)
    with held(cluster, "Produce"), pytest.raises(KafkaTimeoutError):
        sending.send("t", b"v").get(0.05)


def test_callbacks_get_the_outcome_before_it_or_after_it(producer: Make, cluster: MockCluster) -> None:
    sending = producer(cluster)
    told: list[Any] = []
    future = sending.send("t", b"v").add_callback(told.append).add_errback(lambda error: told.append("wrong"))
    future.get(60)
    cluster_wait(lambda: told, sending)
    future.add_callback(lambda first, metadata, last: told.append((first, metadata.offset, last)), "a", last="z")
    assert told == [future.get(), ("a", 0, "z")]
    cluster.on("Produce", Error(10))
    failed = sending.send("t", b"v")
    failed.add_both(told.append)
    with pytest.raises(MessageSizeTooLargeError):
        failed.get(60)
    cluster_wait(lambda: len(told) > 2, sending)
    assert isinstance(told[2], MessageSizeTooLargeError)
    assert len(told) == 3


def test_a_future_hands_its_outcome_on(producer: Make, cluster: MockCluster) -> None:
    sending = producer(cluster)
    other = Future(sending._client.handler)
    future = sending.send("t", b"v").chain(other)
    assert other.get(60) == future.get(60)


def test_a_callback_that_raises_is_logged_and_stops_nobody(producer: Make, cluster: MockCluster, caplog: pytest.LogCaptureFixture) -> None:
    sending = producer(cluster)
    told: list[Any] = []
    future = sending.send("t", b"v")
    future.get(60)
    with caplog.at_level(logging.ERROR):
        future.add_callback(lambda _: 1 / 0).add_callback(told.append)
    assert "a delivery callback for t-0 failed" in caplog.text
    assert len(told) == 1


def test_one_producer_serves_many_workers(producer: Make, make_cluster: Callable[..., MockCluster]) -> None:
    """Behaviours 238, 302."""
    cluster = make_cluster(topics={"t": 3})
    sending = producer(cluster)
    handler = sending._client.handler
    workers = [handler.spawn(lambda n=n: [sending.send("t", b"%d-%d" % (n, i)) for i in range(200)]) for n in range(5)]
    for worker in workers:
        worker.join(60)
    sending.flush(60)
    found = [value for p in range(3) for value in values(cluster, partition=p)]
    assert sorted(found) == sorted(b"%d-%d" % (n, i) for n in range(5) for i in range(200))


def test_flush_ends_when_everything_has_its_outcome(producer: Make, cluster: MockCluster) -> None:
    """Behaviour 234."""
    sending = producer(cluster, linger_ms=60000)
    futures = [sending.send("t", b"%d" % n) for n in range(10)]
    assert not any(future.is_done for future in futures)
    sending.flush(60)
    assert all(future.succeeded() for future in futures)
    cluster.on("Produce", Error(10))
    failed = sending.send("t", b"v")
    sending.flush(60)  # what failed is told by its future
    assert failed.failed()


def test_flush_ends_by_its_timeout(producer: Make, cluster: MockCluster) -> None:
    sending = producer(cluster)
    sending.send("t", b"v").get(60)
    with held(cluster, "Produce"):
        sending.send("t", b"v")
        with pytest.raises(KafkaTimeoutError):
            sending.flush(0.1)


def test_a_key_chooses_the_partition_as_javas_client_does(producer: Make, make_cluster: Callable[..., MockCluster]) -> None:
    """Behaviour 235."""
    cluster = make_cluster(topics={"t": 7})
    sending = producer(cluster)
    chosen = {key: {sending.send("t", b"v", key=key).get(60).partition for _ in range(3)} for key in (b"foo", b"bar", b"", b"x" * 50)}
    assert chosen == {key: {murmur2(key) % 7} for key in chosen}
    assert sending.send("t", b"v", partition=6).get(60).partition == 6


def test_a_callable_may_choose_the_partition(producer: Make, make_cluster: Callable[..., MockCluster]) -> None:
    cluster = make_cluster(topics={"t": 3})
    asked: list[Any] = []

    def last(key: bytes | None, partitions: list[int], available: list[int]) -> int:
        asked.append((key, partitions, available))
        return partitions[-1]

    sending = producer(cluster, partitioner=last)
    assert sending.send("t", b"v", key=b"k").get(60).partition == 2
    assert asked == [(b"k", [0, 1, 2], [0, 1, 2])]
    assert DefaultPartitioner()(b"foo", [5, 6, 7], [5]) == [5, 6, 7][murmur2(b"foo") % 3]
    assert DefaultPartitioner()(None, [5, 6, 7], [6]) == 6


class Upper(Serializer):
    """Says which topic it was given."""

    closed = 0

    def serialize(self, topic: str, value: Any) -> bytes | None:
        return f"{topic}:{value}".encode()

    def close(self) -> None:
        type(self).closed += 1


def test_serializers_make_the_bytes(producer: Make, cluster: MockCluster) -> None:
    """Behaviour 236."""
    sending = producer(cluster, key_serializer=str.encode, value_serializer=lambda value: repr(value).encode())
    sending.send("t", {"a": 1}, key="ping").get(60)
    record = cluster.log("t", 0)[0]
    assert (record.key, record.value) == (b"ping", b"{'a': 1}")
    Upper.closed = 0
    other = producer(cluster, value_serializer=Upper())
    other.send("t", "v").get(60)
    assert cluster.log("t", 0)[1].value == b"t:v"
    other.close()
    assert Upper.closed == 1


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd", None])
def test_whole_batches_are_compressed(producer: Make, cluster: MockCluster, codec: str | None) -> None:
    """Behaviours 237, 239, 313."""
    sending = producer(cluster, compression_type=codec, linger_ms=60_000)
    for _ in range(20):
        sending.send("t", b"x" * 100)
    sending.flush(60)
    raw = cluster.raw_log("t", 0)
    assert {CompressionType(header.codec).name.lower() for header in scan(raw)} == {codec or "none"}
    assert values(cluster) == [b"x" * 100] * 20
    if codec == "gzip":
        (header,) = scan(raw)
        assert len(gzip.decompress(raw[header.start + 61 : header.end])) > 2000  # the standard library alone reads it


# -- acknowledgements and retries ------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("given", "wire"), [({}, 1), ({"acks": 1}, 1), ({"acks": 0}, 0), ({"acks": "all"}, -1), ({"acks": -1}, -1)])
def test_acks_are_what_was_asked_for(producer: Make, cluster: MockCluster, given: dict[str, Any], wire: int) -> None:
    """Behaviours 304, 305, 306."""
    sending = producer(cluster, **given)
    metadata = sending.send("t", b"v").get(60)
    assert metadata.offset == (-1 if wire == 0 else 0)
    cluster_wait(lambda: values(cluster) == [b"v"], sending)
    assert {request.message.acks for request in cluster.requests("Produce")} == {wire}


def test_nothing_is_tried_again_unless_retries_says_so(producer: Make, cluster: MockCluster) -> None:
    """Behaviours 237, 307."""
    sending = producer(cluster)
    sending.send("t", b"first").get(60)
    cluster.on("Produce", Error(7), times=1)
    with pytest.raises(RequestTimedOutError) as caught:
        sending.send("t", b"v").get(60)
    assert caught.value.retriable
    again = producer(cluster, retries=5, retry_backoff_ms=1)
    again.send("t", b"second").get(60)
    before = cluster.count("Produce")
    cluster.on("Produce", Error(7), times=2)
    assert again.send("t", b"third").get(60).offset == 2
    assert cluster.count("Produce") - before == 3


def test_with_acks_0_retries_have_no_effect(producer: Make, cluster: MockCluster) -> None:
    """Behaviour 304."""
    sending = producer(cluster, acks=0, retries=5)
    sending.send("t", b"v").get(60)
    cluster_wait(lambda: values(cluster) == [b"v"], sending)
    before = cluster.count("Produce")
    cluster.on("Produce", Close(before=True))
    assert sending.send("t", b"gone").get(60).offset == -1
    cluster_wait(lambda: cluster.count("Produce") > before, sending)
    assert values(cluster) == [b"v"]


def test_a_lost_answer_is_written_twice_with_retries_alone(producer: Make, cluster: MockCluster) -> None:
    """Behaviour 307: retries open the possibility of duplicates; with enable_idempotence there are none."""
    sending = producer(cluster, retries=3, retry_backoff_ms=1)
    sending.send("t", b"first").get(60)
    cluster.on("Produce", Close())
    sending.send("t", b"v").get(60)
    assert values(cluster) == [b"first", b"v", b"v"]
    safe = producer(cluster, enable_idempotence=True, retry_backoff_ms=1)
    safe.send("t", b"second").get(60)
    cluster.on("Produce", Close())
    safe.send("t", b"w").get(60)
    assert values(cluster)[3:] == [b"second", b"w"]


def test_requests_are_pipelined_up_to_max_in_flight(producer: Make, cluster: MockCluster) -> None:
    """Behaviours 253, 308: with retries and more than one in flight a later batch may land before an earlier one."""
    sending = producer(cluster, retries=3, retry_backoff_ms=50, max_in_flight_requests_per_connection=5)
    sending.send("t", b"first").get(60)
    cluster.on("Produce", Error(7), times=1)
    one = sending.send("t", b"one")
    two = sending.send("t", b"two")
    offsets = one.get(60).offset, two.get(60).offset
    assert sorted(offsets) == [1, 2]
    alone = producer(cluster, retries=3, retry_backoff_ms=50, max_in_flight_requests_per_connection=1)
    alone.send("t", b"third").get(60)
    cluster.on("Produce", Error(7), times=1)
    three, four = alone.send("t", b"three"), alone.send("t", b"four")
    assert three.get(60).offset < four.get(60).offset


# -- batches and memory ----------------------------------------------------------------------------------------------------
def batches(cluster: MockCluster) -> list[int]:
    return [header.count for header in scan(cluster.raw_log("t", 0))]


def test_batch_size_bounds_a_batch_and_0_means_none(producer: Make, cluster: MockCluster) -> None:
    """Behaviour 309."""
    sending = producer(cluster, batch_size=1000, linger_ms=60_000)
    for _ in range(20):
        sending.send("t", b"x" * 90)
    sending.flush(60)
    assert max(batches(cluster)) in range(5, 11)
    before = len(batches(cluster))
    single = producer(cluster, batch_size=0, linger_ms=60_000)
    for _ in range(5):
        single.send("t", b"v")
    single.flush(60)
    assert batches(cluster)[before:] == [1] * 5


def test_a_buffer_goes_at_once_or_lingers(producer: Make, cluster: MockCluster) -> None:
    """Behaviour 310."""
    at_once = producer(cluster)
    at_once.send("t", b"v").get(60)
    at_once.send("t", b"v").get(60)
    lingering = producer(cluster, linger_ms=100_000)
    before = len(batches(cluster))
    one, two = lingering.send("t", b"1"), lingering.send("t", b"2")
    lingering._client.handler.sleep(0.05)
    assert not one.is_done
    lingering.flush(60)
    assert two.succeeded()
    assert len(batches(cluster)) == before + 1


def test_records_that_come_close_together_share_a_batch(producer: Make, cluster: MockCluster) -> None:
    """Behaviour 311: also with linger_ms=0, while requests are under way."""
    sending = producer(cluster)
    sending.send("t", b"v").get(60)
    with held(cluster, "Produce"):
        for _ in range(500):
            sending.send("t", b"v")
    sending.flush(60)
    assert len(batches(cluster)) < 100
    assert sum(batches(cluster)) == 501


def _fill(sending: KafkaProducer) -> None:
    for _ in range(200):
        sending.send("t", b"x" * 1000)


def test_send_blocks_when_buffer_memory_is_taken(producer: Make, cluster: MockCluster) -> None:
    """Behaviour 312."""
    sending = producer(cluster, buffer_memory=65536, batch_size=4096, max_block_ms=1500, max_request_size=16384)
    sending.send("t", b"v").get(60)
    begun = now()
    with held(cluster, "Produce"), pytest.raises(KafkaTimeoutError) as caught:
        _fill(sending)
    assert now() - begun >= 0.25
    assert "buffer_memory=65536" in str(caught.value)


# -- names, versions, metrics ----------------------------------------------------------------------------------------------
def test_each_producer_has_a_name_of_its_own(producer: Make, cluster: MockCluster) -> None:
    """Behaviour 314."""
    names = {producer(cluster)._client.stats()["client_id"] for _ in range(3)}
    assert len(names) == 3
    assert all(re.fullmatch(r"kafka-python-producer-\d+", name) for name in names)
    named = producer(cluster, client_id="mine")
    named.send("t", b"v").get(60)
    assert "mine" in {request.client_id for request in cluster.requests("Produce")}


def test_check_version_names_the_brokers_release(make_cluster: Callable[..., MockCluster], handler: str) -> None:
    """Behaviour 240."""
    for release in ("0.10.2", "1.1", "2.8", "4.2"):
        with KafkaClient(bootstrap_servers=make_cluster(versions=release).bootstrap, handler=handler) as client:
            assert client.check_version(timeout=60) == tuple(map(int, release.split(".")))


def test_check_version_says_who_does_not_answer(handler: str) -> None:
    with (
        KafkaClient(bootstrap_servers="127.0.0.1:1", handler=handler) as client,
        pytest.raises(NoBrokersAvailable, match=r"127\.0\.0\.1:1"),
    ):
        client.check_version(timeout=0.5)


def test_a_constructor_without_brokers_says_so(handler: str) -> None:
    """Behaviour 271: api_version_auto_timeout_ms is how long it tries."""
    for kind in (KafkaProducer, KafkaConsumer):
        begun = now()
        with pytest.raises(NoBrokersAvailable) as caught:
            kind(bootstrap_servers="127.0.0.1:1", handler=handler, api_version_auto_timeout_ms=300)
        assert isinstance(caught.value, KafkaTimeoutError)
        assert now() - begun < 30
        kind(bootstrap_servers="127.0.0.1:1", handler=handler, api_version=(2, 8)).close()  # nothing to find out, nobody to ask


def test_partitions_for_and_metrics(producer: Make, make_cluster: Callable[..., MockCluster]) -> None:
    """Behaviour 272."""
    sending = producer(make_cluster(topics={"t": 3}))
    assert sending.partitions_for("t") == {0, 1, 2}
    sending.send("t", b"v").get(60)
    assert sending.metrics()["producer-metrics"]["delivered_records"] == 1
    assert sending.metrics(raw=True)["producers"]
    assert sending.bootstrap_connected()


# -- transactions ----------------------------------------------------------------------------------------------------------
def epochs(cluster: MockCluster) -> dict[int, int]:
    """Partition -> the leader_epoch that is committed for the group "g"."""
    return {p: entry.leader_epoch for (_, p), entry in cluster.committed("g").items()}


def test_offsets_within_a_transaction_keep_their_leader_epoch(producer: Make, make_cluster: Callable[..., MockCluster]) -> None:
    cluster = make_cluster(topics={"t": 4})
    sending = producer(cluster, transactional_id="tx")
    sending.init_transactions()
    sending.begin_transaction()
    given = [OffsetAndMetadata(3, "m", 7), OffsetAndMetadata(3, "m"), (3, "m", 9), (3, "m", None)]
    sending.send_offsets_to_transaction({TopicPartition("t", p): entry for p, entry in enumerate(given)}, "g")
    sending.commit_transaction()
    assert epochs(cluster) == {0: 7, 1: -1, 2: 9, 3: -1}


def test_transactions_and_offsets_within_them(producer: Make, consumer: Make, cluster: MockCluster) -> None:
    sending = producer(cluster, transactional_id="tx")
    sending.init_transactions()
    sending.begin_transaction()
    sending.send("t", b"kept")
    sending.send_offsets_to_transaction({TopicPartition("t", 0): (7, "a note")}, "g")
    sending.commit_transaction()
    sending.begin_transaction()
    sending.send("t", b"dropped")
    sending.abort_transaction()
    reading = consumer(cluster, "t", group_id=None, isolation_level="read_committed", auto_offset_reset="earliest", consumer_timeout_ms=500)
    values = [record.value for record in consume(reading, 1)]
    assert values + [record.value for record in reading] == [b"kept"]
    assert (cluster.committed("g")["t", 0].offset, cluster.committed("g")["t", 0].metadata) == (7, "a note")


# -- bad input -------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"compresion_type": "gzip"}, "no option 'compresion_type'; did you mean 'compression_type'"),
        ({"acks": 2}, "acks=2"),
        ({"bootstrap_servers": 9092}, "bootstrap_servers=9092"),
        ({"bootstrap_servers": []}, "bootstrap_servers="),
        ({"bootstrap_servers": ["h:p"]}, "h:p"),
        ({"api_version": "new"}, "api_version='new'"),
        ({"linger_ms": -1}, "linger_ms=-1"),
        ({"batch_size": "many"}, "batch_size='many'"),
        ({"batch_size": -1}, "batch_size=-1"),
        ({"batch_size": 1.5}, "batch_size=1.5"),
        ({"compression_type": "brotli"}, "compression_type='brotli'"),
        ({"buffer_memory": 0}, "buffer_memory=0"),
        ({"buffer_memory": "much"}, "buffer_memory='much'"),
        ({"max_request_size": 0}, "max_request_size=0"),
        ({"max_request_size": float("inf")}, "max_request_size=inf"),
        ({"max_in_flight_requests_per_connection": 0}, "max_in_flight_requests_per_connection=0"),
        ({"request_timeout_ms": 0}, "request_timeout_ms=0"),
        ({"value_serializer": 5}, "value_serializer=5: must be callable"),
        ({"key_serializer": "utf-8"}, "key_serializer='utf-8': must be callable"),
        ({"partitioner": 5}, "partitioner=5"),
        ({"socket_options": 7}, "socket_options=7"),
        ({"receive_buffer_bytes": 0}, "receive_buffer_bytes=0"),
        ({"selector": object}, "selector="),
        ({"metric_reporters": [object]}, "metric_reporters: <class 'object'> has no init"),
        ({"metric_reporters": object}, "metric_reporters="),
        ({"metrics_num_samples": 0}, "metrics_num_samples=0: must be a whole number"),
        ({"metrics_sample_window_ms": 0}, "metrics_sample_window_ms=0: must be milliseconds"),
        ({"handler": "asyncio"}, "asyncio"),
        ({"retries": -1}, "retries=-1"),
        ({"transactional_id": "x", "enable_idempotence": False}, "enable_idempotence"),
    ],
)
def test_an_option_that_cannot_be_used_is_named(cluster: MockCluster, handler: str, options: dict[str, Any], said: str) -> None:
    with pytest.raises(KafkaConfigurationError, match=re.escape(said)):
        KafkaProducer(**{"bootstrap_servers": cluster.bootstrap, "handler": handler, **options})


def test_what_is_no_record_is_refused_by_the_call(producer: Make, cluster: MockCluster) -> None:
    sending = producer(cluster)
    for bad in ("text", 5, object()):
        with pytest.raises(TypeError):
            sending.send("t", bad)
    with pytest.raises(TypeError):
        sending.send("t", b"v", headers=[("h", "text")])
    with pytest.raises(AssertionError):
        sending.send("t")
    for kind in (ValueError, AssertionError):
        with pytest.raises(kind, match="partition=9"):
            sending.send("t", b"v", partition=9)
    assert sending.send("t", b"v").get(60).offset == 0
    with pytest.raises(ZeroDivisionError):
        producer(cluster, value_serializer=lambda value: 1 / 0).send("t", b"v")
    for serializers in ({"value_serializer": str}, {"key_serializer": len}, {"value_serializer": lambda value: [value]}):
        with pytest.raises(TypeError) as caught:
            producer(cluster, **serializers).send("t", b"v", key=b"k")
        assert isinstance(caught.value, KafkaError)
    assert len(cluster.log("t", 0)) == 1, "nothing of it was sent"


def test_what_is_refused_for_its_size_is_told_by_the_future(producer: Make, cluster: MockCluster) -> None:
    sending = producer(cluster, max_request_size=10000)
    future = sending.send("t", b"x" * 20000)
    assert isinstance(future, Future)
    assert isinstance(future.exception, MessageSizeTooLargeError)
    assert future.failed()
    with pytest.raises(KafkaError, match="20"):
        future.get(1)


def test_a_large_max_request_size_is_bounded_by_buffer_memory(producer: Make, make_cluster: Callable[..., MockCluster]) -> None:
    """As 1.4 takes it: a record that does not fit into the buffer is told by its future, and neither option must be given with the other."""
    cluster = make_cluster(max_message_bytes=6_000_000)
    sending = producer(cluster, max_request_size=50 << 20)
    assert sending.send("t", b"x" * 5_000_000).get(60).offset == 0
    assert len(values(cluster)[0] or b"") == 5_000_000
    small = producer(cluster, max_request_size=50 << 20, buffer_memory=2_000_000)
    future = small.send("t", b"x" * 2_100_000)
    assert isinstance(future.exception, MessageSizeTooLargeError)
    assert "is over buffer_memory=2000000: raise it" in str(future.exception)
    assert small.send("t", b"x" * 1_900_000).get(60).offset == 1


@pytest.mark.parametrize(
    "options",
    [
        {"batch_size": 40 << 20},
        {"batch_size": 16384.0},
        {"buffer_memory": 1_000_000},
        {"buffer_memory": 40_000},
        {"buffer_memory": 1000},
        {"max_request_size": (1 << 31) - 1},
        {"max_request_size": (1 << 31) - 1, "buffer_memory": 1 << 32},
        {"max_request_size": 500},
    ],
)
def test_sizes_have_no_order_among_them(producer: Make, cluster: MockCluster, options: dict[str, Any]) -> None:
    assert producer(cluster, **options).send("t", b"v" * 300).get(60).offset == 0


@pytest.mark.parametrize("options", [{}, {"partitioner": lambda key, every, available: every[0]}], ids=["plain", "partitioner"])
@pytest.mark.parametrize("max_block_ms", [1000, 1500])
def test_a_topic_that_is_not_there_is_a_timeout_of_send_and_of_partitions_for(
    producer: Make, make_cluster: Callable[..., MockCluster], max_block_ms: int, options: dict[str, Any]
) -> None:
    sending = producer(make_cluster(auto_create=False), max_block_ms=max_block_ms, **options)
    for call in (lambda: sending.send("nowhere", b"v"), lambda: sending.partitions_for("nowhere")):
        begun = now()
        with pytest.raises(KafkaTimeoutError, match=r"'nowhere' does not exist .* create it, or check the name") as caught:
            call()
        assert isinstance(caught.value, UnknownTopicOrPartitionError)
        assert now() - begun >= max_block_ms / 1000


def test_a_topic_that_gets_no_leader_is_a_timeout(producer: Make, cluster: MockCluster) -> None:
    def electing(request: Any, answer: Any) -> Any:
        for topic in answer.topics:
            topic.error_code, topic.partitions = 5, []
        return answer

    cluster.on("Metadata", Edit(electing), times=None)
    sending = producer(cluster, max_block_ms=700)
    for call in (lambda: sending.send("t", b"v"), lambda: sending.partitions_for("t")):
        with pytest.raises(KafkaTimeoutError):
            call()


def test_a_topic_that_is_made_within_max_block_ms_is_waited_for(
    producer: Make, make_cluster: Callable[..., MockCluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Longer than the native producer waits for it."""
    monkeypatch.setattr("gkafka.cluster.UNKNOWN_TOPIC_PATIENCE_S", 0.1)
    cluster = make_cluster(auto_create=False)
    sending = producer(cluster, max_block_ms=60_000)
    maker = threading.Timer(1.0, cluster.create_topic, ("later", 1))
    maker.start()
    assert sending.send("later", b"v").get(60).offset == 0
    maker.join()


def test_a_closed_producer_takes_nothing(producer: Make, cluster: MockCluster) -> None:
    sending = producer(cluster, linger_ms=60000)
    future = sending.send("t", b"v")
    sending.close(60)
    sending.close(60)
    assert future.succeeded()
    with pytest.raises(IllegalStateError):
        sending.send("t", b"v")
    with pytest.raises(ClientClosedError, match=r"make a new KafkaProducer$"):
        sending.partitions_for("new")
    with producer(cluster) as inside:
        last = inside.send("t", b"w")
    assert last.succeeded()


@pytest.mark.parametrize("timeout", [0, 0.05])
def test_records_that_close_gives_up_are_told_by_their_futures_and_in_the_log(
    producer: Make, cluster: MockCluster, timeout: float, caplog: pytest.LogCaptureFixture
) -> None:
    """As in 1.4, whose close() raises nothing."""
    sending = producer(cluster)
    sending.send("t", b"v").get(60)
    cluster.on("Produce", Delay(3600))
    futures = [sending.send("t", b"v") for _ in range(2)]
    sending.close(timeout)
    told = [r for r in caplog.records if re.search(r"close\(timeout=.*\) gave up records .* 2 of topic 't'", r.getMessage())]
    assert [r.levelname for r in told] == ["ERROR"]
    assert [type(future.exception) for future in futures] == [KafkaTimeoutError] * 2
    sending.close()
    with pytest.raises(IllegalStateError):
        sending.send("t", b"v")


def test_close_raises_nothing_where_each_record_has_its_outcome(producer: Make, cluster: MockCluster) -> None:
    sending = producer(cluster)
    cluster.on("Produce", Error(10))
    failed = sending.send("t", b"v")
    with pytest.raises(MessageSizeTooLargeError):
        failed.get(60)
    sending.close(0)


def test_a_wrong_timeout_closes_nothing(producer: Make, cluster: MockCluster) -> None:
    sending = producer(cluster)
    for wrong in (-1, float("nan"), "5"):
        with pytest.raises(ValueError, match=r"^timeout="):
            sending.close(wrong)
    sending.send("t", b"v").get(60)


def test_what_is_left_until_a_deadline_may_be_less_than_nothing(producer: Make, cluster: MockCluster) -> None:
    sending = producer(cluster)
    sending.flush(-1)
    sending.send("t", b"v").get(60)
    with held(cluster, "Produce"):
        sending.send("t", b"v")
        with pytest.raises(KafkaTimeoutError):
            sending.flush(-1)
    sending.flush(60)


def test_the_names_of_errors_are_the_native_ones() -> None:
    from gkafka import exceptions

    assert issubclass(exceptions.NotLeaderForPartition, NotLeaderForPartitionError)
    assert KafkaError is exceptions.KafkaException


def cluster_wait(true: Callable[[], Any], sending: KafkaProducer) -> None:
    until(sending._client.handler.name, true)


def test_a_broker_that_is_away_costs_no_retry(producer: Make, cluster: MockCluster, handler: str) -> None:
    """retries (behaviour 237) is about what was sent; what has no connection yet waits for one, as there, at most delivery_timeout_ms."""
    sending = producer(cluster, retries=0, acks=1, reconnect_backoff_ms=10, retry_backoff_ms=10)
    assert sending.send("t", b"v").get(60).offset == 0
    cluster.stop_broker(1)
    until(handler, lambda: not any(c["open"] for b in sending.metrics(raw=True)["brokers"] for c in b["connections"]))
    future = sending.send("t", b"v")
    with pytest.raises(KafkaTimeoutError):
        future.get(0.3)
    cluster.start_broker(1)
    assert future.get(60).offset == 1


# -- one bad record among good ones ------------------------------------------------------------------------------------------
def test_a_bad_record_fails_its_own_future_alone(producer: Make, cluster: MockCluster) -> None:
    """KIP-467; kafka-python fails them all, the others with a KafkaError."""
    cluster.on("Produce", Refuse(), times=None)
    sending = producer(cluster, linger_ms=60_000)
    futures = [sending.send("t", b"%d" % i, None if i == 3 else b"k") for i in range(6)]
    errors: list[BaseException] = []
    futures[3].add_errback(errors.append)
    sending.flush(60)
    with pytest.raises(InvalidRecordError, match="without key"):
        futures[3].get(60)
    assert [f.get(60).offset for f in futures[:3] + futures[4:]] == [0, 1, 2, 3, 4]
    assert values(cluster) == [b"0", b"1", b"2", b"4", b"5"]
    assert [type(error) for error in errors] == [InvalidRecordError]
