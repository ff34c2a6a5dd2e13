"""What the reference says in prose of the first steps, clients, brokers, errors and handlers, on brokers inside the test's process."""

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
from collections.abc import Callable
from itertools import islice
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
    ConsumerStoppedException,
    KafkaException,
    KafkaTimeoutError,
    NoMessagesConsumedError,
    NoPartitionsForConsumerException,
    PartitionOwnedError,
    ProduceFailureError,
    ProducerStoppedException,
    ProtocolClientError,
    error_for,
)
from gkafka.handlers import Handler, RequestHandler, ThreadingHandler
from gkafka.testing import Delay, Drop, Error, MockCluster
from tests.kit.clock import now, soon
from tests.net.certificates import Certificates
from tests.net.servers import serve
from tests.promises.aids import LIMIT_S, consumer_of, fill, values

Connect = Callable[..., KafkaClient]


# -- getting started (1 to 11) -------------------------------------------------------------------------------------------
def test_four_messages_come_back_in_order(client: KafkaClient) -> None:
    assert sorted(client.topics) == ["many", "t"]
    with client.topics["t"].get_producer() as producer:
        for i in range(4):
            producer.produce(b"test message %d" % i)
    consumer = client.topics["t"].get_simple_consumer(consumer_timeout_ms=60_000)
    assert [(m.offset, m.value) for m in islice(consumer, 4)] == [(i, b"test message %d" % i) for i in range(4)]
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
    assert isinstance(broker.handler, RequestHandler)
    assert broker.handler is not broker.offsets_channel_handler
    broker.close()
    assert (broker.connected, broker.offsets_channel_connected) == (False, False)


def test_a_connection_that_the_broker_closed_is_not_connected(handler: Handler, cluster: MockCluster) -> None:
    broker = broker_of(cluster, handler)
    broker.connect()
    cluster.close_connections()
    deadline = now() + LIMIT_S
    while broker.connected:
        assert now() < deadline
        handler.sleep(0.005)
    broker.close()


def test_a_broker_is_made_from_metadata(handler: Handler, cluster: MockCluster) -> None:
    ((id_, (host, port)),) = cluster.brokers.items()
    broker = Broker.from_metadata(SimpleNamespace(id=id_, host=host.encode(), port=port), handler, 10_000, 10_000)
    assert (broker.id, broker.host, broker.port) == (id_, host, port)
    assert list(broker.request_metadata([b"t"]).topics) == [b"t"]
    broker.close()
    assert inspect.signature(Broker.from_metadata).parameters["buffer_size"].default == 65536
    assert inspect.signature(Broker).parameters["buffer_size"].default == 1048576


@pytest.mark.parametrize("name", ["id", "host", "port"])
def test_where_a_broker_is_cannot_be_changed(handler: Handler, cluster: MockCluster, name: str) -> None:
    with pytest.raises(AttributeError):
        setattr(broker_of(cluster, handler), name, 1)


def test_each_channel_has_a_timeout_of_its_own(handler: Handler, cluster: MockCluster) -> None:
    broker = broker_of(cluster, handler, 1000, 60_000)
    cluster.on("Metadata", Drop())
    started = now()
    with pytest.raises(KafkaTimeoutError):
        broker.request_metadata()
    assert 0.9 < now() - started < 30
    broker.close()
    other = broker_of(cluster, handler, 1000, 60_000)
    cluster.on("OffsetFetch", Delay(1.5))
    other.fetch_consumer_group_offsets(b"g", [SimpleNamespace(topic_name=b"t", partition_id=0)])
    other.close()


def test_a_broker_connects_from_its_source_address(handler: Handler, cluster: MockCluster) -> None:
    broker = broker_of(cluster, handler, source_host="127.0.0.3")
    broker.connect()
    stream: Any = broker.channel("control")._link.stream
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
    consumer = client.topics["t"].get_simple_consumer(consumer_timeout_ms=60_000)
    gc.collect()
    producer.produce(b"v")
    assert consumer.consume().value == b"v"
    consumer.stop()
    producer.stop()


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
    assert answer.topics[b"t"][0].err == gkafka.exceptions.OffsetMetadataTooLarge.code


# -- handlers (112, 113, 117) ------------------------------------------------------------------------------------------------
def test_a_threading_handler_works_on_threads() -> None:
    handler = ThreadingHandler()
    seen: list[threading.Thread] = []
    handler.spawn(lambda: seen.append(threading.current_thread())).join(LIMIT_S)
    assert seen != [threading.current_thread()]
    assert isinstance(seen[0], threading.Thread)
    assert ThreadingHandler.QueueEmptyError is queue.Empty
    handler.stop(soon(LIMIT_S))
