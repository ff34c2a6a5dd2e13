"""`api_version` says which release of Kafka the clients speak as: what came later is not used, on whatever broker."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from typing import Any

import pytest

from gkafka.exceptions import ConfigurationError
from gkafka.kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from gkafka.kafka.errors import IllegalStateError, KafkaTimeoutError, NoBrokersAvailable, UnsupportedCodecError, UnsupportedVersionError
from gkafka.records import compression
from gkafka.testing import MockCluster
from tests.kafka.conftest import Make
from tests.kafka.consuming import FIRST, GROUP, QUICK, committed, consume, put
from tests.kit.ports import refused_port
from tests.net.servers import serve
from tests.public.aids import Runner

OLD = {"api_version": (0, 10, 1)}


def spoken(cluster: MockCluster) -> dict[str, set[int]]:
    seen: dict[str, set[int]] = {}
    for request in cluster.requests():
        seen.setdefault(request.api, set()).add(request.version)
    return seen


def test_clients_speak_as_the_release_did(producer: Make, consumer: Make, make_cluster: Callable[..., MockCluster]) -> None:
    cluster = make_cluster(topics={"t": 1}, versions="3.9")
    assert producer(cluster, **OLD).send("t", b"v", b"k").get(60).offset == 0
    reading = consumer(cluster, "t", **OLD, **GROUP)
    assert [(r.key, r.value) for r in consume(reading, 1)] == [(b"k", b"v")]
    reading.commit()
    reading.close()
    seen = spoken(cluster)
    newest = {
        "Produce": 2,
        "Fetch": 3,
        "ListOffsets": 1,
        "Metadata": 2,
        "OffsetCommit": 2,
        "OffsetFetch": 1,
        "JoinGroup": 1,
        "Heartbeat": 0,
    }
    assert {api: max(seen[api]) for api in newest if api in seen} == {api: newest[api] for api in newest if api in seen}
    assert {"Produce", "Fetch", "Metadata", "OffsetCommit", "JoinGroup"} <= seen.keys()
    assert max(seen["ApiVersions"]) >= 3  # how it asks does not matter


def test_without_it_they_speak_what_the_broker_does(producer: Make, cluster: MockCluster) -> None:
    producer(cluster).send("t", b"v").get(60)
    assert min(spoken(cluster)["Produce"]) > 2


def test_newer_features_are_refused_by_name(producer: Make, consumer: Make, cluster: MockCluster) -> None:
    sending = producer(cluster, **OLD)
    with pytest.raises(UnsupportedVersionError, match="headers"):
        sending.send("t", b"v", headers=[("h", b"1")]).get(60)
    with pytest.raises(UnsupportedVersionError, match=r"api_version='0.10.1' leaves nothing of InitProducerId \(API 22\)"):
        producer(cluster, **OLD, enable_idempotence=True, acks="all", retries=3).send("t", b"v").get(60)
    reading = consumer(cluster, **{**QUICK, "api_version": (0, 10, 0)})
    with pytest.raises(UnsupportedVersionError):
        reading.offsets_for_times({FIRST: 1})
    assert reading.beginning_offsets([FIRST]) == {FIRST: 0}


@pytest.mark.parametrize(
    ("codec", "version"), [("zstd", (2, 0)), ("zstd", (1, 0, 2)), ("zstd", "2.0"), ("zstd", (0, 9)), ("lz4", (0, 8, 1)), ("zstd", None)]
)
def test_a_codec_that_came_later_is_refused_by_the_constructor(
    codec: str, version: Any, make_cluster: Callable[..., MockCluster], handler: str
) -> None:
    """As in kafka-python: an AssertionError in 1.4, a ValueError in 3.0; without api_version by what the broker speaks."""
    cluster = make_cluster(topics={"t": 1}, versions="2.0")
    for kind in (AssertionError, ValueError, UnsupportedCodecError):
        with pytest.raises(kind, match=f"compression_type='{codec}' with .*: needs brokers of Kafka .* or newer"):
            KafkaProducer(bootstrap_servers=cluster.bootstrap, api_version=version, compression_type=codec, handler=handler)


@pytest.mark.parametrize(
    ("codec", "version"), [("zstd", (2, 1)), ("zstd", None), ("lz4", (0, 8, 2)), ("snappy", (0, 8, 1)), ("gzip", "0.8.1")]
)
def test_a_codec_that_the_release_has_is_taken(codec: str, version: Any, cluster: MockCluster, handler: str) -> None:
    with KafkaProducer(bootstrap_servers=cluster.bootstrap, api_version=version, compression_type=codec, handler=handler) as sending:
        assert sending.bootstrap_connected() is (version is None)


def test_a_codec_without_its_package_is_refused_as_there(cluster: MockCluster, handler: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """1.4 raises an AssertionError, 3.0 a RuntimeError."""
    monkeypatch.setitem(sys.modules, "cramjam", None)
    monkeypatch.setitem(sys.modules, "snappy", None)
    monkeypatch.setattr(compression, "_snappy_package", compression._snappy_package.__wrapped__)
    for kind in (AssertionError, RuntimeError, UnsupportedCodecError):
        with pytest.raises(kind, match=r"pip install 'gkafka\[snappy\]'"):
            KafkaProducer(bootstrap_servers=cluster.bootstrap, compression_type="snappy", handler=handler)


def test_a_broker_that_has_left_it_behind_is_told_by_the_option(make_cluster: Callable[..., MockCluster], handler: str) -> None:
    cluster = make_cluster(topics={"t": 1}, versions="4.0")
    told = pytest.raises(UnsupportedVersionError, match=r"api_version='0.10.1' leaves nothing of Produce .* give a newer release")
    with KafkaProducer(bootstrap_servers=cluster.bootstrap, handler=handler, **OLD) as sending, told:
        sending.send("t", b"v").get(60)  # Kafka 4 still names Produce 0 to 2, and closes the connection on what they bring
    told = pytest.raises(UnsupportedVersionError, match=r"api_version='0.10.1' leaves nothing of DeleteTopics .* give a newer release")
    with KafkaAdminClient(bootstrap_servers=cluster.bootstrap, handler=handler, **OLD) as admin, told:
        admin.delete_topics(["t"])


@pytest.mark.parametrize(
    ("version", "release"),
    [
        *(((0, 10), "0.10.0"), ((0, 10, 7), "0.10.2"), ((0, 11), "0.11.0"), ((0, 11, 5), "0.11.0"), ((1, 0, 2), "1.0"), ("2.8", "2.8")),
        *(((2, 0, 2), "2.0"), ((2, 99), "2.8"), ((3, 9, 1), "3.9"), ((4, 2, 0), "4.2"), ((4, 3), None), ((5, 0), None), ((7, 3, 0), None)),
    ],
)
def test_any_version_is_that_of_the_release_before_it(version: Any, release: str | None, handler: str) -> None:
    """As programs write them: (0, 11, 5) was never released, and stands in many."""
    with KafkaConsumer(bootstrap_servers="127.0.0.1:1", api_version=version, handler=handler) as reading:
        assert reading._client.cluster.config.max_broker_version == release


NOW = {"api_version": (2, 5)}


@pytest.mark.parametrize("options", [QUICK, GROUP], ids=["alone", "in a group"])
def test_a_consumer_is_made_without_a_broker_and_reads_once_there_is_one(
    options: dict[str, Any], consumer: Make, cluster: MockCluster
) -> None:
    put(cluster, b"a", b"b")
    cluster.stop_broker(1)
    reading = consumer(cluster, "t", **NOW, **options)
    assert (reading.subscription(), reading.assignment(), reading.poll(), reading.poll(300)) == ({"t"}, set(), {}, {})
    cluster.start_broker(1)
    assert [record.value for record in consume(reading, 2)] == [b"a", b"b"]
    if "group_id" in options:
        reading.commit()
        assert committed(cluster) == {0: 2}


def test_iterating_waits_for_the_broker_too(handler: str, consumer: Make, cluster: MockCluster) -> None:
    put(cluster, b"a")
    cluster.stop_broker(1)
    assert list(consumer(cluster, "t", **NOW, **QUICK, consumer_timeout_ms=300)) == []
    reading = consumer(cluster, "t", **NOW, **QUICK)
    later = Runner(handler).aside(cluster.start_broker, 1)
    assert next(reading).value == b"a"
    later.result()


def test_nothing_is_asked_before_records_are_and_what_is_placed_first_begins_it(consumer: Make, cluster: MockCluster) -> None:
    put(cluster, b"a", b"b")
    reading = consumer(cluster, "t", **NOW, **QUICK)
    assert cluster.requests() == []
    reading.seek(FIRST, 1)
    assert [record.value for record in consume(reading, 1)] == [b"b"]


def test_a_subscription_that_never_began_can_be_given_up_or_changed(consumer: Make, make_cluster: Callable[..., MockCluster]) -> None:
    cluster = make_cluster(topics={"t": 1, "u": 1})
    put(cluster, b"not this one")
    put(cluster, b"this one", topic="u")
    reading = consumer(cluster, "t", **NOW, **QUICK)
    reading.unsubscribe()
    assert (reading.subscription(), reading.poll(100)) == (None, {})
    reading.subscribe(["t"])
    reading.subscribe(["u"])
    assert [record.value for record in consume(reading, 1)] == [b"this one"]
    unused = consumer(cluster, "t", **NOW, **GROUP)
    unused.close()
    with pytest.raises(IllegalStateError):
        unused.poll(100)
    assert cluster.requests("JoinGroup") == []


def test_several_workers_begin_a_subscription_once(handler: str, consumer: Make, cluster: MockCluster) -> None:
    put(cluster, *[b"%d" % n for n in range(100)])
    reading = consumer(cluster, "t", **NOW, **QUICK)
    got: list[bytes] = []

    def work() -> None:
        while len(got) < 100:
            got.extend(record.value for records in reading.poll(100, max_records=10).values() for record in records)

    for worker in [Runner(handler).aside(work) for _ in range(3)]:
        worker.result()
    assert sorted(map(int, got)) == list(range(100))


def test_a_listener_that_is_no_broker_is_told_by_poll(handler: str) -> None:
    with (
        serve(lambda conn: (conn.recv(1000), conn.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n"))) as port,
        KafkaConsumer("t", bootstrap_servers=f"127.0.0.1:{port}", handler=handler, **NOW) as reading,
        pytest.raises(NoBrokersAvailable, match=r"no broker can be used: .*a web server answers there") as caught,
    ):
        reading.poll(60_000)
    assert isinstance(caught.value, KafkaTimeoutError)


@pytest.mark.parametrize("partitioner", [None, lambda key, every, available: every[0]], ids=["usual", "own"])
def test_a_record_for_no_broker_is_a_timeout_as_documented(partitioner: Any, handler: str) -> None:
    options = {} if partitioner is None else {"partitioner": partitioner}
    with KafkaProducer(bootstrap_servers=f"127.0.0.1:{refused_port()}", handler=handler, **NOW, **options) as sending:
        for kind in (KafkaTimeoutError, NoBrokersAvailable):
            with pytest.raises(kind, match="check bootstrap_servers="):
                sending.send("t", b"v")


def test_the_log_names_the_option_that_was_given(
    producer: Make, make_cluster: Callable[..., MockCluster], caplog: pytest.LogCaptureFixture
) -> None:
    cluster = make_cluster(topics={"t": 1}, versions="4.0")
    sending = producer(cluster, api_version=(0, 10))
    with caplog.at_level(logging.INFO, logger="gkafka"), pytest.raises(UnsupportedVersionError, match=r"api_version='0\.10\.0'"):
        sending.send("t", b"v").get(60)
    sending.close(3)
    assert "api_version='0.10.0'" in caplog.text
    assert "broker_version" not in caplog.text


@pytest.mark.parametrize("version", [(0, 7), (2,), (2, 8, 0, 0, 0), ("2", "8"), 2.8, 9, "new", (-1, 0), (2, True)])
def test_what_is_no_version_is_refused(version: Any, handler: str) -> None:
    with pytest.raises(ConfigurationError, match="api_version="):
        KafkaConsumer(bootstrap_servers="127.0.0.1:1", api_version=version, handler=handler)


@pytest.mark.parametrize("version", [(0, 9), (0, 9, 0), (0, 8, 2)])
def test_documented_versions_are_taken_at_their_word(
    version: tuple[int, ...], handler: str, make_cluster: Callable[..., MockCluster]
) -> None:
    cluster = make_cluster(topics={"t": 1}, versions=".".join(map(str, (*version, 0)[:3])))
    options: dict[str, Any] = {"bootstrap_servers": cluster.bootstrap, "handler": handler, "api_version": version}
    with KafkaProducer(**options) as sending:
        assert sending.send("t", b"v").get(60).offset == 0
    with KafkaConsumer(**options, **QUICK) as reading:
        reading.assign([TopicPartition("t", 0)])
        assert [r.value for r in consume(reading, 1)] == [b"v"]
    assert "ApiVersions" not in spoken(cluster)


def test_a_release_that_there_is_not_is_refused_by_the_native_option_too(handler: str) -> None:
    from gkafka import KafkaClient

    with pytest.raises(ConfigurationError, match=r"max_broker_version='9.9': not a release that is known here; give one of 0.8.2, "):
        KafkaClient("127.0.0.1:1", max_broker_version="9.9", handler=handler)
