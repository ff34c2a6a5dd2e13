"""What the reference says in prose of today's classes, on brokers inside the test's process. The numbers are those of promises.py."""

from __future__ import annotations

import contextlib
import gc
import inspect
import os
import queue
import socket
import subprocess
import sys
import threading
import weakref
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import gkafka.exceptions
import gkafka.records
from gkafka import KafkaClient
from gkafka.broker import Broker
from gkafka.common import CompressionType, OffsetType
from gkafka.connection import SslConfig
from gkafka.exceptions import (
    ConfigurationError,
    ConsumerStoppedException,
    DeliveryError,
    KafkaException,
    KafkaTimeoutError,
    NoMessagesConsumedError,
    NoPartitionsForConsumerException,
    OffsetRequestFailedError,
    PartitionOwnedError,
    ProduceFailureError,
    ProducerQueueFullError,
    ProducerStoppedException,
    ProtocolClientError,
    error_for,
)
from gkafka.handlers import Handler, ThreadingHandler
from gkafka.partition import Partition
from gkafka.partitioners import BasePartitioner, HashingPartitioner, random_partitioner
from gkafka.records import scan
from gkafka.testing import Close, Delay, Drop, Error, MockCluster
from tests.net.certificates import Certificates
from tests.net.servers import serve

Connect = Callable[..., KafkaClient]
LIMIT_S = 10.0


def until(client: KafkaClient, true: Callable[[], Any]) -> None:
    """Wait, letting the client's workers run, for something that must happen."""
    deadline = client.handler.monotonic() + LIMIT_S
    while not true():
        assert client.handler.monotonic() < deadline, "it did not happen"
        client.handler.sleep(0.005)


def fill(client: KafkaClient, count: int, topic: str = "t") -> None:
    with client.topics[topic].get_producer(linger_ms=0) as producer:
        for i in range(count):
            producer.produce(b"%d" % i)


def consumer_of(client: KafkaClient, topic: str = "t", **options: Any) -> Any:
    return client.topics[topic].get_simple_consumer(**{"consumer_timeout_ms": 5000, **options})


def values(cluster: MockCluster, topic: str = "t", partition: int = 0) -> list[bytes | None]:
    return [record.value for record in cluster.log(topic, partition)]


# -- getting started (1 to 11) -------------------------------------------------------------------------------------------
def test_four_messages_come_back_in_order(client: KafkaClient) -> None:
    assert sorted(client.topics) == ["many", "t"]
    with client.topics["t"].get_producer() as producer:
        for i in range(4):
            producer.produce(b"test message %d" % i)
    consumer = client.topics["t"].get_simple_consumer(consumer_timeout_ms=500)
    assert [(m.offset, m.value) for m in consumer] == [(i, b"test message %d" % i) for i in range(4)]
    consumer.stop()


def test_a_topic_shows_its_class_its_id_and_its_name(client: KafkaClient) -> None:
    topic = client.topics["t"]
    assert repr(topic) == f"<gkafka.topic.Topic at {id(topic):#x} (name=t)>"


def test_leaving_a_producers_block_sends_what_is_pending_and_stops(client: KafkaClient, cluster: MockCluster) -> None:
    with client.topics["t"].get_producer(linger_ms=60_000) as producer:
        producer.produce(b"pending")
    assert values(cluster) == [b"pending"]
    with pytest.raises(ProducerStoppedException):
        producer.produce(b"late")


def test_two_consumers_each_receive_everything(client: KafkaClient) -> None:
    fill(client, 3)
    for consumer in [consumer_of(client), consumer_of(client)]:
        assert [consumer.consume().offset for _ in range(3)] == [0, 1, 2]
        consumer.stop()


def test_it_runs_without_any_compiled_part() -> None:
    code = "import gkafka, gkafka.records as r; assert r.IMPLEMENTATION == 'python', r.IMPLEMENTATION"
    subprocess.run([sys.executable, "-c", code], env={**os.environ, "GKAFKA_IMPL": "python"}, timeout=60, check=True)


def test_use_rdkafka_asks_for_the_compiled_part(client: KafkaClient, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = client.topics["t"]
    monkeypatch.setattr(gkafka.records, "IMPLEMENTATION", "python")
    with pytest.raises(ImportError, match="use_rdkafka"):
        topic.get_producer(use_rdkafka=True)
    with pytest.raises(ImportError, match="use_rdkafka"):
        topic.get_simple_consumer(use_rdkafka=True)
    monkeypatch.setattr(gkafka.records, "IMPLEMENTATION", "cython")
    topic.get_producer(use_rdkafka=True).stop()
    topic.get_simple_consumer(use_rdkafka=True).stop()


def test_ignore_rdkafka_is_accepted_and_changes_nothing(connect: Connect, cluster: MockCluster) -> None:
    assert sorted(connect(cluster, ignore_rdkafka=True).topics) == ["many", "t"]


# -- where a consumer starts, by text and bytes (12 to 23) ---------------------------------------------------------------
@pytest.mark.parametrize("group", ["g", b"g"])
def test_names_are_text_or_bytes(client: KafkaClient, cluster: MockCluster, group: Any) -> None:
    fill(client, 1)
    consumer = client.topics[b"t"].get_simple_consumer(group, consumer_timeout_ms=5000)
    consumer.consume()
    consumer.commit_offsets()
    consumer.stop()
    assert cluster.committed("g")["t", 0].offset == 1


def test_partitions_take_turns(client: KafkaClient) -> None:
    for partition in range(4):
        for i in range(5):
            client.get_producer().produce("many", b"%d" % i, partition=partition).result(10)
    consumer = consumer_of(client, "many", auto_start=False)
    consumer.start()
    assert sorted(consumer.partitions) == [0, 1, 2, 3]
    seen = Counter(consumer.consume().partition_id for _ in range(20))
    assert seen == {0: 5, 1: 5, 2: 5, 3: 5}
    consumer.stop()


@pytest.mark.parametrize(
    ("commit", "reset", "on_start", "first"),
    [
        (None, OffsetType.EARLIEST, False, 0),
        (None, OffsetType.EARLIEST, True, 0),
        (None, OffsetType.LATEST, False, 6),
        (5, OffsetType.EARLIEST, False, 5),
        (5, OffsetType.LATEST, False, 5),
        (5, OffsetType.EARLIEST, True, 0),
        (5, OffsetType.LATEST, True, 6),
    ],
)
def test_where_a_group_starts(client: KafkaClient, commit: int | None, reset: int, on_start: bool, first: int) -> None:
    fill(client, 6)
    if commit is not None:
        before = consumer_of(client, consumer_group="g")
        while before.consume().offset < commit - 1:
            pass
        before.commit_offsets()
        before.stop()
    consumer = consumer_of(client, consumer_group="g", auto_offset_reset=reset, reset_offset_on_start=on_start)
    fill(client, 1)
    assert consumer.consume().offset == first
    consumer.stop()


def test_a_reset_at_the_start_is_committed_at_once(client: KafkaClient, cluster: MockCluster) -> None:
    fill(client, 3)
    consumer = consumer_of(client, consumer_group="g", auto_offset_reset=OffsetType.LATEST, reset_offset_on_start=True)
    assert cluster.committed("g")["t", 0].offset == 3
    consumer.stop()


# -- a consumer's settings (34 to 53, 172 to 187) --------------------------------------------------------------------------
def test_auto_commit_needs_a_group(client: KafkaClient) -> None:
    with pytest.raises(ConfigurationError, match="consumer_group"):
        consumer_of(client, auto_commit_enable=True)


def test_auto_commit_commits_what_was_consumed(client: KafkaClient, cluster: MockCluster) -> None:
    fill(client, 5)
    consumer = consumer_of(client, consumer_group="g", auto_commit_enable=True, auto_commit_interval_ms=20)
    consumer.consume()
    consumer.consume()
    until(client, lambda: cluster.committed("g").get(("t", 0), SimpleNamespace(offset=-1)).offset == 2)
    consumer.stop()


def test_without_auto_commit_the_interval_means_nothing(client: KafkaClient, cluster: MockCluster) -> None:
    fill(client, 2)
    consumer = consumer_of(client, consumer_group="g", auto_commit_interval_ms=1)
    consumer.consume()
    consumer._auto_commit()
    client.handler.sleep(0.05)
    consumer.stop()
    assert cluster.count("OffsetCommit") == 0


def test_auto_commit_waits_for_its_interval(client: KafkaClient, cluster: MockCluster) -> None:
    fill(client, 2)
    consumer = consumer_of(client, consumer_group="g", auto_commit_enable=True, auto_commit_interval_ms=3_600_000)
    consumer.consume()
    consumer._auto_commit()
    assert cluster.count("OffsetCommit") == 0
    consumer._committed_at -= 3600
    consumer._auto_commit()
    assert cluster.count("OffsetCommit") == 1
    consumer.stop()


def test_a_fetch_asks_for_what_the_settings_say(client: KafkaClient, cluster: MockCluster) -> None:
    consumer = consumer_of(client, fetch_message_max_bytes=12345, fetch_min_bytes=7, fetch_wait_max_ms=33)
    until(client, lambda: cluster.count("Fetch"))
    consumer.stop()
    request: Any = cluster.requests("Fetch")[0].message
    assert (request.min_bytes, request.max_wait_ms, request.topics[0].partitions[0].partition_max_bytes) == (7, 33, 12345)


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_there_are_as_many_fetch_workers_as_it_says(client: KafkaClient, workers: int) -> None:
    def names() -> set[str]:
        return {w.name for w in client.handler.workers() if w.is_alive() and w.name.startswith("gkafka-fetcher")}

    consumer = consumer_of(client, "many", num_consumer_fetchers=workers)
    until(client, lambda: len(names()) == workers)
    consumer.stop()


def test_a_commit_is_tried_as_often_as_it_is_told_with_a_pause(client: KafkaClient, cluster: MockCluster) -> None:
    fill(client, 1)
    consumer = consumer_of(client, consumer_group="g", offsets_channel_backoff_ms=50, offsets_commit_max_retries=3)
    consumer.consume()
    cluster.on("OffsetCommit", Error(14), times=None)
    started = client.handler.monotonic()
    with pytest.raises(KafkaException):
        consumer.commit_offsets()
    assert client.handler.monotonic() - started >= 0.1
    assert cluster.count("OffsetCommit") in (3, 4)
    cluster.clear_script()
    consumer.stop()


def test_what_a_worker_met_is_raised_where_messages_are_consumed(client: KafkaClient, cluster: MockCluster) -> None:
    fill(client, 1)
    cluster.on("OffsetCommit", Error(30), times=None)
    consumer = consumer_of(client, consumer_group="g", auto_commit_enable=True, auto_commit_interval_ms=10, consumer_timeout_ms=20)
    met: list[KafkaException] = []

    def consumes() -> bool:
        try:
            consumer.consume()
        except KafkaException as exc:
            met.append(exc)
        return bool(met)

    until(client, consumes)
    assert error_for(30).__class__ is type(met[0])
    consumer.stop()


def test_consume_ends_at_its_timeout_and_does_not_wait_without_block(client: KafkaClient) -> None:
    consumer = consumer_of(client, consumer_timeout_ms=200)
    started = client.handler.monotonic()
    assert consumer.consume(block=False) is None
    assert client.handler.monotonic() - started < 0.15
    assert consumer.consume() is None
    assert list(consumer) == []
    assert 0.39 <= client.handler.monotonic() - started < LIMIT_S
    consumer.stop()


def test_what_a_consumer_says_of_itself(client: KafkaClient) -> None:
    fill(client, 3)
    topic = client.topics["t"]
    consumer = consumer_of(client)
    assert consumer.held_offsets == {0: -2}
    consumer.consume()
    message = consumer.consume()
    assert consumer.held_offsets == {0: 1}
    assert consumer.topic is topic
    assert consumer.partitions == {0: topic.partitions[0]}
    assert message.partition is topic.partitions[0]
    consumer.stop()


def test_some_partitions_only(client: KafkaClient) -> None:
    topic = client.topics["many"]
    for partition in range(4):
        client.get_producer().produce("many", b"v", partition=partition).result(10)
    consumer = topic.get_simple_consumer(partitions=[topic.partitions[2], topic.partitions[0]], consumer_timeout_ms=300)
    assert sorted(m.partition_id for m in consumer) == [0, 2]
    consumer.stop()


def test_without_auto_start_nothing_is_asked(client: KafkaClient, cluster: MockCluster) -> None:
    topic = client.topics["t"]
    asked = len(cluster.requests())
    consumer = topic.get_simple_consumer("g", auto_start=False)
    client.handler.sleep(0.05)
    assert len(cluster.requests()) == asked
    consumer.start()
    assert cluster.count("OffsetFetch") == 1
    consumer.stop()


def test_a_consumer_without_a_group_looks_for_no_coordinator(client: KafkaClient, cluster: MockCluster) -> None:
    fill(client, 1)
    consumer = consumer_of(client)
    consumer.consume()
    with pytest.raises(ConfigurationError, match="consumer_group"):
        consumer.commit_offsets()
    consumer.stop()
    assert cluster.count("FindCoordinator") == 0


def test_a_stopped_consumer_says_so_and_can_be_started_again(client: KafkaClient) -> None:
    fill(client, 2)
    consumer = consumer_of(client)
    consumer.consume()
    consumer.stop()
    with pytest.raises(ConsumerStoppedException):
        consumer.consume()
    consumer.start()
    assert consumer.consume() is not None
    consumer.stop()


def test_a_consumer_that_is_deleted_stops_fetching(client: KafkaClient, cluster: MockCluster) -> None:
    fill(client, 1)
    consumer = consumer_of(client, fetch_wait_max_ms=20)
    consumer.consume()
    gone = weakref.ref(consumer)
    del consumer
    gc.collect()
    assert gone() is None

    def quiet() -> bool:
        before = cluster.count("Fetch")
        client.handler.sleep(0.2)
        return cluster.count("Fetch") == before

    until(client, quiet)


def test_committed_offsets_are_fetched_by_partition(client: KafkaClient) -> None:
    fill(client, 3)
    consumer = consumer_of(client, consumer_group="g")
    assert [(p, r.offset) for p, r in consumer.fetch_offsets()] == [(0, -1)]
    consumer.consume()
    consumer.commit_offsets()
    ((partition, response),) = consumer.fetch_offsets()
    assert (partition, response.offset, response.err) == (0, 1, 0)
    consumer.fetch()
    assert consumer.consume().offset == 1
    consumer.stop()


def test_offsets_are_reset_by_time_or_to_a_number(client: KafkaClient) -> None:
    producer = client.get_producer()
    for i in range(5):
        producer.produce("t", b"%d" % i, timestamp=1_700_000_000_000 + i * 1000, partition=0).result(10)
    consumer = consumer_of(client)
    partition = client.topics["t"].partitions[0]
    for wanted, offset in ((1_700_000_002_500, 3), (2, 2), (OffsetType.EARLIEST, 0)):
        consumer.reset_offsets([(partition, wanted)])
        assert consumer.consume().offset == offset
    consumer.stop()


def test_a_look_up_that_keeps_failing_is_an_offset_request_failed(connect: Connect, cluster: MockCluster) -> None:
    client = connect(cluster, api_timeout_ms=300)
    fill(client, 1)
    consumer = consumer_of(client)
    consumer.consume()
    cluster.on("ListOffsets", Error(7), times=None)
    with pytest.raises(OffsetRequestFailedError):
        consumer.reset_offsets([(0, OffsetType.EARLIEST)])
    consumer.stop()


def test_a_consumer_follows_a_leader_that_moved(connect: Connect, make_cluster: Callable[..., MockCluster]) -> None:
    cluster = make_cluster(2, {"t": 1}, replication_factor=2)
    client = connect(cluster)
    fill(client, 2)
    consumer = consumer_of(client, fetch_error_backoff_ms=10)
    assert consumer.consume().offset == 0
    cluster.move_leader("t", 0, 3 - cluster.leader("t", 0))
    fill(client, 2)
    assert [consumer.consume().offset for _ in range(3)] == [1, 2, 3]
    consumer.stop()


# -- Broker (65 to 75) -----------------------------------------------------------------------------------------------------
def broker_of(cluster: MockCluster, handler: Handler, *timeouts: int, **options: Any) -> Broker:
    ((id_, (host, port)),) = cluster.brokers.items()
    return Broker(id_, host, port, handler, *(timeouts or (10_000, 10_000)), **options)


def test_a_brokers_two_connections_are_opened_apart(handler: Handler, cluster: MockCluster) -> None:
    broker = broker_of(cluster, handler)
    assert (broker.connected, broker.offsets_channel_connected) == (False, False)
    broker.connect()
    assert (broker.connected, broker.offsets_channel_connected) == (True, False)
    broker.connect_offsets_channel()
    assert (broker.connected, broker.offsets_channel_connected) == (True, True)
    assert cluster.connections() == 2
    assert broker.handler is broker.offsets_channel_handler is handler
    broker.close()
    assert (broker.connected, broker.offsets_channel_connected) == (False, False)


def test_a_connection_that_the_broker_closed_is_not_connected(handler: Handler, cluster: MockCluster) -> None:
    broker = broker_of(cluster, handler)
    broker.connect()
    cluster.close_connections()
    deadline = handler.monotonic() + LIMIT_S
    while broker.connected:
        assert handler.monotonic() < deadline
        handler.sleep(0.005)
    broker.close()


def test_a_broker_is_made_from_metadata(handler: Handler, cluster: MockCluster) -> None:
    ((id_, (host, port)),) = cluster.brokers.items()
    broker = Broker.from_metadata(SimpleNamespace(id=id_, host=host.encode(), port=port), handler, 10_000, 10_000)
    assert (broker.id, broker.host, broker.port) == (id_, host, port)
    assert [t.name for t in broker.request_metadata([b"t"]).topics] == ["t"]
    broker.close()
    assert inspect.signature(Broker.from_metadata).parameters["buffer_size"].default == 65536
    assert inspect.signature(Broker).parameters["buffer_size"].default == 1048576


@pytest.mark.parametrize("name", ["id", "host", "port"])
def test_where_a_broker_is_cannot_be_changed(handler: Handler, cluster: MockCluster, name: str) -> None:
    with pytest.raises(AttributeError):
        setattr(broker_of(cluster, handler), name, 1)


def test_each_channel_has_a_timeout_of_its_own(handler: Handler, cluster: MockCluster) -> None:
    broker = broker_of(cluster, handler, 300, 5_000)
    cluster.on("Metadata", Drop())
    started = handler.monotonic()
    with pytest.raises(KafkaTimeoutError):
        broker.request_metadata()
    assert 0.25 < handler.monotonic() - started < 4
    broker.close()
    other = broker_of(cluster, handler, 300, 5_000)
    cluster.on("OffsetFetch", Delay(0.6))
    other.fetch_consumer_group_offsets(b"g", [SimpleNamespace(topic_name=b"t", partition_id=0)])
    other.close()


def test_a_broker_connects_from_its_source_address(handler: Handler, cluster: MockCluster) -> None:
    broker = broker_of(cluster, handler, source_host="127.0.0.3")
    broker.connect()
    stream: Any = broker.channel("control")._stream
    assert stream is not None
    with gkafka_socket(stream.fileno()) as sock:
        assert sock.getsockname()[0] == "127.0.0.3"
    broker.close()


def gkafka_socket(descriptor: int) -> Any:
    return socket.socket(fileno=os.dup(descriptor))


# -- KafkaClient and Cluster (76 to 83, 209 to 220) ------------------------------------------------------------------------
def test_a_cluster_has_brokers_topics_and_a_handler(client: KafkaClient, cluster: MockCluster, handler: Handler) -> None:
    client.cluster.update()
    assert isinstance(client.cluster.brokers, dict)
    assert {b.id: (b.host, b.port) for b in client.cluster.brokers.values()} == cluster.brokers
    assert isinstance(client.cluster.topics, dict)
    assert client.cluster.handler is handler


def test_an_update_brings_what_is_new(client: KafkaClient, cluster: MockCluster) -> None:
    topic = client.topics["t"]
    cluster.add_partitions("t", 3)
    cluster.create_topic("new")
    client.update_cluster()
    assert sorted(topic.partitions) == [0, 1, 2]
    assert "new" in client.topics


def test_the_offset_manager_is_the_groups_coordinator(connect: Connect, make_cluster: Callable[..., MockCluster]) -> None:
    cluster = make_cluster(3)
    cluster.move_coordinator("g", 2)
    assert connect(cluster).cluster.get_offset_manager("g").id == 2


def test_topics_are_held_weakly(client: KafkaClient) -> None:
    first = weakref.ref(client.topics["t"])
    gc.collect()
    assert first() is None
    kept = client.topics["t"]
    assert client.topics["t"] is kept


def test_producers_and_consumers_need_no_reference_to_their_topic(client: KafkaClient) -> None:
    producer = client.topics["t"].get_producer(linger_ms=0)
    consumer = client.topics["t"].get_simple_consumer(consumer_timeout_ms=5000)
    gc.collect()
    producer.produce(b"v")
    assert consumer.consume().value == b"v"
    consumer.stop()
    producer.stop()


def test_zookeeper_hosts_are_refused_until_they_can_be_used(handler: Handler) -> None:
    with pytest.raises(ConfigurationError, match="zookeeper_hosts"):
        KafkaClient(zookeeper_hosts="127.0.0.1:2181", handler=handler).topics  # noqa: B018


def test_use_greenlets_chooses_greenlets() -> None:
    with KafkaClient(use_greenlets=True) as client:
        assert client.handler.name == "gevent"


def test_ssl_config_makes_tls_connections(handler: Handler, cluster: MockCluster, tmp_path: Path) -> None:
    """A TLS server in front of the broker: only what came encrypted reaches it."""
    certificates = Certificates(tmp_path)
    ((_, address),) = cluster.brokers.items()

    def relay(conn: Any) -> None:
        with socket.create_connection(address, timeout=LIMIT_S) as broker:
            back = threading.Thread(target=pump, args=(broker, conn), daemon=True)
            back.start()
            pump(conn, broker)
            back.join(LIMIT_S)

    def encrypted(conn: Any) -> Any:
        return certificates.server().wrap_socket(conn, server_side=True)

    with serve(relay, wrap=encrypted) as port:
        client = KafkaClient(f"127.0.0.1:{port}", ssl_config=SslConfig(certificates.ca), handler=handler)
        client.connect(LIMIT_S)
        assert sorted(client.cluster.metadata.brokers) == sorted(cluster.brokers)
        client.close()
    assert cluster.count("Metadata") >= 1


def pump(source: Any, sink: Any) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_RDWR)


def test_messages_without_a_key_are_spread_evenly(client: KafkaClient, cluster: MockCluster) -> None:
    fill(client, 400, "many")
    counts = [len(values(cluster, "many", p)) for p in range(4)]
    assert sum(counts) == 400
    assert min(counts) > 50


# -- constants and errors (84 to 109) --------------------------------------------------------------------------------------
def test_the_constants_have_kafkas_numbers() -> None:
    assert (OffsetType.EARLIEST, OffsetType.LATEST) == (-2, -1)
    assert (CompressionType.NONE, CompressionType.GZIP, CompressionType.SNAPPY) == (0, 1, 2)


@pytest.mark.parametrize(
    ("code", "name"),
    [
        (-1, "UnknownError"),
        (1, "OffsetOutOfRangeError"),
        (2, "InvalidMessageError"),
        (3, "UnknownTopicOrPartition"),
        (4, "InvalidMessageSize"),
        (5, "LeaderNotAvailable"),
        (6, "NotLeaderForPartition"),
        (7, "RequestTimedOut"),
        (10, "MessageSizeTooLarge"),
        (12, "OffsetMetadataTooLarge"),
        (14, "OffsetsLoadInProgress"),
        (15, "ConsumerCoordinatorNotAvailable"),
        (16, "NotCoordinatorForConsumer"),
    ],
)
def test_an_error_code_is_raised_under_its_documented_name(code: int, name: str) -> None:
    documented = getattr(gkafka.exceptions, name)
    error = error_for(code)
    assert isinstance(error, documented)
    assert issubclass(documented, ProtocolClientError)
    assert issubclass(ProtocolClientError, KafkaException)
    assert documented.code == code


def test_errors_without_a_code_are_kafka_exceptions_too() -> None:
    for error in (ConsumerStoppedException, NoMessagesConsumedError, ProduceFailureError, ProducerStoppedException, PartitionOwnedError):
        assert issubclass(error, KafkaException)
    assert issubclass(NoPartitionsForConsumerException, ConsumerStoppedException)
    assert PartitionOwnedError("a partition").partition == "a partition"


def test_a_commit_with_too_much_metadata_is_an_answer_with_code_12(handler: Handler, cluster: MockCluster) -> None:
    cluster.on("OffsetCommit", Error(12))
    broker = broker_of(cluster, handler)
    preq = SimpleNamespace(topic_name="t", partition_id=0, offset=1, timestamp=0, metadata="x" * 5000)
    answer = broker.commit_consumer_group_offsets("g", -1, "", [preq])
    broker.close()
    assert answer.topics[0].partitions[0].error_code == gkafka.exceptions.OffsetMetadataTooLarge.code


# -- handlers (112, 113, 117) ------------------------------------------------------------------------------------------------
def test_a_threading_handler_works_on_threads() -> None:
    handler = ThreadingHandler()
    seen: list[threading.Thread] = []
    handler.spawn(lambda: seen.append(threading.current_thread())).join(LIMIT_S)
    assert seen != [threading.current_thread()]
    assert isinstance(seen[0], threading.Thread)
    assert ThreadingHandler.QueueEmptyError is queue.Empty
    handler.stop(handler.monotonic() + 5)


# -- Partition and partitioners (121 to 129, 188 to 192) -------------------------------------------------------------------
def test_what_a_partition_says_of_itself(connect: Connect, make_cluster: Callable[..., MockCluster]) -> None:
    cluster = make_cluster(3, {"t": 2})
    client = connect(cluster)
    topic = client.topics["t"]
    partition = topic.partitions[1]
    assert (partition.id, partition.topic) == (1, topic)
    assert partition.leader.id == cluster.leader("t", 1)
    assert sorted(b.id for b in partition.replicas) == sorted(b.id for b in partition.isr) == [1, 2, 3]


def test_a_partition_takes_fresh_metadata(client: KafkaClient) -> None:
    partition = client.topics["t"].partitions[0]
    brokers: Any = {7: SimpleNamespace(id=7), 8: SimpleNamespace(id=8)}
    partition.update(brokers, SimpleNamespace(leader=8, replicas=[7, 8], isr=[8]))
    assert (partition.leader.id, [b.id for b in partition.replicas], [b.id for b in partition.isr]) == (8, [7, 8], [8])


def test_the_ends_of_partitions(client: KafkaClient, cluster: MockCluster) -> None:
    fill(client, 5)
    cluster.delete_records("t", 0, 2)
    topic = client.topics["t"]
    partition = topic.partitions[0]
    assert (partition.earliest_available_offset(), partition.latest_available_offset()) == (2, 5)
    assert {p: r.offset for p, r in topic.earliest_available_offsets().items()} == {0: [2]}
    assert {p: r.offset for p, r in topic.latest_available_offsets().items()} == {0: [5]}


def test_offsets_by_time(client: KafkaClient) -> None:
    for i in range(3):
        client.get_producer().produce("t", b"v", timestamp=1_700_000_000_000 + i, partition=0).result(10)
    topic = client.topics["t"]
    assert topic.partitions[0].fetch_offset_limit(1_700_000_000_001, max_offsets=1) == [1]
    assert {p: r.offset for p, r in topic.fetch_offset_limits(1_700_000_000_001).items()} == {0: [1]}


def partitions_of(*ids: int) -> list[Any]:
    return [SimpleNamespace(id=i) for i in ids]


def test_the_random_partitioner_takes_any() -> None:
    partitions = partitions_of(0, 1, 2)
    assert {random_partitioner(partitions, b"k").id for _ in range(200)} == {0, 1, 2}


def test_a_partitioner_is_a_callable_of_ones_own(client: KafkaClient, cluster: MockCluster) -> None:
    asked: list[tuple[list[int], Any]] = []

    class Last(BasePartitioner):
        def __call__(self, partitions: Any, key: Any) -> Any:
            asked.append(([p.id for p in partitions], key))
            return partitions[-1]

    with client.topics["many"].get_producer(partitioner=Last()) as producer:
        producer.produce(b"v", partition_key=b"k")
    assert asked == [([0, 1, 2, 3], b"k")]
    assert values(cluster, "many", 3) == [b"v"]
    with pytest.raises(NotImplementedError):
        BasePartitioner()([], None)


def test_the_hashing_partitioner_is_stable_for_a_key_and_its_partitions() -> None:
    partitions = partitions_of(0, 1, 2, 3)
    by_length = HashingPartitioner(hash_func=len)
    assert by_length(partitions, b"12345").id == 1
    assert by_length(partitions[::-1], b"12345").id == 1, "whatever the order that they come in"
    default = HashingPartitioner()
    assert default.hash_func is hash
    assert len({default(partitions, b"key").id for _ in range(20)}) == 1


# -- Producer (130 to 147) -------------------------------------------------------------------------------------------------
def test_a_producer_is_a_context_that_is_started_already(client: KafkaClient) -> None:
    producer = client.topics["t"].get_producer()
    with producer as entered:
        assert entered is producer
        producer.produce(b"v")
    producer.start()
    producer.produce(b"again")
    producer.stop()
    producer.stop()


@pytest.mark.parametrize("codec", [CompressionType.NONE, CompressionType.GZIP, CompressionType.SNAPPY])
def test_messages_are_compressed(client: KafkaClient, cluster: MockCluster, codec: CompressionType) -> None:
    with client.topics["t"].get_producer(compression=codec) as producer:
        for _ in range(50):
            producer.produce(b"the same again and again")
    assert {header.codec for header in scan(cluster.raw_log("t", 0))} == {codec}
    assert values(cluster) == [b"the same again and again"] * 50


def test_a_batch_is_tried_again_as_often_as_it_is_told(client: KafkaClient, cluster: MockCluster) -> None:
    cluster.on("Produce", Error(7), times=None)
    producer = client.topics["t"].get_producer(linger_ms=0, max_retries=2, retry_backoff_ms=50)
    started = client.handler.monotonic()
    with pytest.raises(KafkaException):
        producer.produce(b"v").result(LIMIT_S)
    assert client.handler.monotonic() - started >= 0.08
    assert cluster.count("Produce") == 3
    with pytest.raises(DeliveryError):
        producer.stop()


@pytest.mark.parametrize("acks", [-1, 0, 1])
def test_acknowledgements_and_their_timeout_are_asked_of_the_broker(client: KafkaClient, cluster: MockCluster, acks: int) -> None:
    with client.topics["t"].get_producer(required_acks=acks, ack_timeout_ms=4321) as producer:
        producer.produce(b"v")
    assert cluster.wait_for(lambda: values(cluster)) == [b"v"]
    request: Any = cluster.requests("Produce")[0].message
    assert request.acks == acks
    assert 0 < request.timeout_ms <= 4321


def test_a_number_of_acknowledgements_that_no_broker_takes_is_refused(client: KafkaClient) -> None:
    with pytest.raises(ConfigurationError, match="required_acks=2"):
        client.topics["t"].get_producer(required_acks=2)


def test_a_full_queue_is_an_error_or_a_wait(client: KafkaClient, cluster: MockCluster) -> None:
    cluster.on("Produce", Delay(0.3), times=None)
    topic = client.topics["t"]
    raising = topic.get_producer(max_queued_messages=2, min_queued_messages=1, block_on_queue_full=False, linger_ms=0)
    raising.produce(b"1")
    raising.produce(b"2")
    with pytest.raises(ProducerQueueFullError, match="max_queued_messages=2"):
        raising.produce(b"3")
    raising.stop()
    waiting = topic.get_producer(max_queued_messages=2, min_queued_messages=1, linger_ms=0)
    started = client.handler.monotonic()
    for i in range(4, 7):
        waiting.produce(b"%d" % i)
    assert client.handler.monotonic() - started >= 0.2
    waiting.stop()
    assert sorted(v for v in values(cluster) if v) == [b"1", b"2", b"4", b"5", b"6"]


def test_enough_messages_do_not_linger(client: KafkaClient, cluster: MockCluster) -> None:
    producer = client.topics["t"].get_producer(linger_ms=100_000, min_queued_messages=10)
    for _ in range(9):
        producer.produce(b"v")
    client.handler.sleep(0.1)
    assert cluster.count("Produce") == 0
    producer.produce(b"v")
    until(client, lambda: len(values(cluster)) == 10)
    producer.stop()


@pytest.mark.parametrize(("linger_ms", "least", "most"), [(0, 0.0, 5.0), (300, 0.25, 5.0)])
def test_few_messages_linger_as_long_as_they_may(client: KafkaClient, linger_ms: int, least: float, most: float) -> None:
    topic = client.topics["t"]
    topic.partitions[0].latest_available_offset()  # the connection is there
    producer = topic.get_producer(linger_ms=linger_ms)
    done = client.handler.Event()
    started = client.handler.monotonic()
    producer.produce(b"v").add_done_callback(lambda delivery: done.set())
    assert done.wait(LIMIT_S)
    assert least <= client.handler.monotonic() - started < most
    producer.stop()


def test_the_default_linger_is_five_seconds() -> None:
    from gkafka.producer import Producer

    parameters = inspect.signature(Producer).parameters
    assert (parameters["linger_ms"].default, parameters["min_queued_messages"].default) == (5000, 70000)
    assert parameters["max_queued_messages"].default == 100000


def test_a_sync_producer_returns_when_the_message_is_there(client: KafkaClient, cluster: MockCluster) -> None:
    producer = client.topics["t"].get_sync_producer()
    producer.produce(b"v")
    assert values(cluster) == [b"v"]
    cluster.on("Produce", Error(10))
    with pytest.raises(gkafka.exceptions.MessageSizeTooLarge):
        producer.produce(b"too large for it")


def test_none_is_a_null_payload(client: KafkaClient, cluster: MockCluster) -> None:
    with client.topics["t"].get_producer() as producer:
        producer.produce(None, partition_key=b"k")
    assert [(r.key, r.value) for r in cluster.log("t", 0)] == [(b"k", None)]


def test_what_could_not_be_delivered_is_raised_to_the_caller(client: KafkaClient, cluster: MockCluster) -> None:
    cluster.on("Produce", Error(10), times=None)
    producer = client.topics["t"].get_producer()
    producer.produce(b"v")
    with pytest.raises(DeliveryError):
        producer.stop()


def test_messages_that_were_queued_when_the_leader_moved_are_not_lost(connect: Connect, make_cluster: Callable[..., MockCluster]) -> None:
    cluster = make_cluster(2, {"t": 1}, replication_factor=2)
    client = connect(cluster)
    producer = client.topics["t"].get_producer(linger_ms=0, retry_backoff_ms=20, max_retries=20)
    for i in range(20):
        if i in (5, 12):
            cluster.move_leader("t", 0, 3 - cluster.leader("t", 0))
        producer.produce(b"%d" % i)
        client.handler.sleep(0.002)
    producer._wait_all()
    assert values(cluster) == [b"%d" % i for i in range(20)]
    producer.stop()


def test_a_connection_that_breaks_loses_nothing(client: KafkaClient, cluster: MockCluster) -> None:
    cluster.on("Produce", Close(before=True), times=2)
    producer = client.topics["t"].get_producer(linger_ms=0, retry_backoff_ms=20)
    producer.produce(b"v")
    producer.stop()
    assert values(cluster) == [b"v"]


def test_waiting_for_all_waits_for_all(client: KafkaClient, cluster: MockCluster) -> None:
    producer = client.topics["t"].get_producer(linger_ms=100_000)
    for _ in range(5):
        producer.produce(b"v")
    producer._wait_all()
    assert len(values(cluster)) == 5
    producer.stop()


def test_keywords_go_through_to_producers_and_consumers(client: KafkaClient) -> None:
    topic = client.topics["t"]
    for make in (topic.get_producer, topic.get_sync_producer, topic.get_simple_consumer):
        with pytest.raises(KafkaException, match="no_such_keyword"):
            make(no_such_keyword=1)
    assert isinstance(topic.partitions[0], Partition)
    assert topic.name == "t"
