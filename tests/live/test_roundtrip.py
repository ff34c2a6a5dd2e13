"""What gkafka writes, another client reads, and the other way round: every version, both handlers, every codec of the version."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import pytest

from gkafka.common import OffsetType
from gkafka.exceptions import DeliveryError, UnsupportedCodec, UnsupportedVersion
from gkafka.records.columns import ALL_COLUMNS
from tests.kit.clock import now
from tests.live.kafka import RELEASES, VERSIONS, KafkaCluster, Release
from tests.live.peer import Peer, Seen, read_with_kafka_python

if TYPE_CHECKING:
    from gkafka import KafkaClient

PARTITIONS = 2
COUNT = 60
FIRST_MS = 1_600_000_000_000
CASES = [(version, codec) for version, release in RELEASES.items() for codec in ("none", *release.codecs)]
EVERY_CODEC = pytest.mark.parametrize(("version", "codec"), CASES)
EVERY_VERSION = pytest.mark.parametrize("version", VERSIONS)


def records(release: Release) -> list[Seen]:
    """COUNT records with the awkward ones among them, in the order in which they are written."""
    values: list[bytes | None] = [b"", None, bytes(range(256)) * 100, "später".encode()]
    found = []
    for i in range(COUNT):
        key = None if i % 7 == 3 else b"key %d" % i
        value = values[i] if i < len(values) else b"value %d;" % i * 20
        headers: list[tuple[str, bytes | None]] = [("i", b"%d" % i), ("i", b""), ("ü", None)] if release.headers and i % 2 else []
        timestamp = FIRST_MS + i if release.timestamps else None
        found.append(Seen(i % PARTITIONS, i // PARTITIONS, key, value, headers, timestamp))
    return found


def in_order(seen: Iterable[Seen]) -> list[Seen]:
    return sorted(seen, key=lambda record: record[:2])


def seen_by_gkafka(client: KafkaClient, topic: str, count: int, release: Release) -> list[Seen]:
    consumer = client.topics[topic].get_simple_consumer(auto_offset_reset=OffsetType.EARLIEST)
    seen: list[Seen] = []
    deadline = now() + 60
    while len(seen) < count:
        assert now() < deadline, f"{len(seen)} of {count} records after 60 s"
        seen += [seen_message(message, release) for message in consumer.consume_batch(1000, timeout_ms=5000)]
    assert consumer.consume_batch(1000, timeout_ms=50) == []
    consumer.stop()
    return in_order(seen)


def seen_as_columns(client: KafkaClient, topic: str, count: int, release: Release) -> list[Seen]:
    rows: list[dict[str, Any]] = []
    with client.get_consumer(topic) as consumer:
        deadline = now() + 60
        while len(rows) < count:
            assert now() < deadline, f"{len(rows)} of {count} rows after 60 s"
            rows += consumer.consume_arrow(timeout_ms=5000, columns=ALL_COLUMNS).to_pylist()
    return in_order(seen_row(row, release) for row in rows)


def seen_row(row: dict[str, Any], release: Release) -> Seen:
    timestamp = round(row["timestamp"].timestamp() * 1000) if release.timestamps else None
    headers = [(header["key"], header["value"]) for header in row["headers"] or []]
    return Seen(row["partition"], row["offset"], row["key"], row["value"], headers, timestamp)


def seen_message(m: Any, release: Release) -> Seen:
    timestamp = m.timestamp if release.timestamps else None
    key, value = (None if part is None else bytes(part) for part in (m.key, m.value))
    return Seen(m.partition_id, m.offset, key, value, [(name, None if v is None else bytes(v)) for name, v in m.headers], timestamp)


def write(client: KafkaClient, topic: str, wanted: Iterable[Seen], codec: str) -> None:
    """Through gkafka with acks=all; every record has to get the offset that it is expected to have."""
    producer = client.get_producer(acks="all", compression=codec)
    deliveries = []
    for r in wanted:
        more = {"headers": r.headers} if r.headers else {}
        deliveries.append((r, producer.produce(topic, r.value, key=r.key, partition=r.partition, timestamp=r.timestamp, **more)))
    producer.flush(60)
    for r, delivery in deliveries:
        got = delivery.result(60)
        assert (got.topic, got.partition, got.offset) == (topic, r.partition, r.offset)
    producer.close(60)


@EVERY_CODEC
def test_another_client_reads_what_gkafka_wrote_and_so_does_gkafka(
    version: str, codec: str, kafka: KafkaCluster, client: KafkaClient, peer: Peer, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(PARTITIONS)
    wanted = records(kafka.release)
    write(client, topic, wanted, codec)
    assert peer.read(topic, COUNT, PARTITIONS) == in_order(wanted)
    assert seen_by_gkafka(client, topic, COUNT, kafka.release) == in_order(wanted)


@EVERY_CODEC
def test_gkafka_reads_what_another_client_wrote(
    version: str, codec: str, kafka: KafkaCluster, client: KafkaClient, peer: Peer, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(PARTITIONS)
    wanted = records(kafka.release)
    peer.write(topic, wanted, codec)
    assert seen_by_gkafka(client, topic, COUNT, kafka.release) == in_order(wanted)
    assert seen_as_columns(client, topic, COUNT, kafka.release) == in_order(wanted)


@EVERY_VERSION
@pytest.mark.parametrize("handler", ["threading"], indirect=True)
def test_a_third_client_reads_every_codec_that_gkafka_wrote(
    version: str, kafka: KafkaCluster, client: KafkaClient, new_topic: Callable[..., str]
) -> None:
    wanted = records(kafka.release)
    old = kafka.release.number < (0, 10)
    for codec in kafka.release.codecs:
        if codec == "lz4" and old:  # kafka-python wants one more package for the checksum of those frames
            continue
        topic = new_topic(PARTITIONS)
        write(client, topic, wanted, codec)
        assert read_with_kafka_python(kafka.hosts, kafka.release, topic, COUNT, PARTITIONS) == in_order(wanted), codec


@pytest.mark.parametrize("version", ["0.8.2.2", "0.9.0.1"])
def test_a_broker_without_apiversions_is_found_out_without_being_told(
    version: str, kafka: KafkaCluster, connect: Callable[..., KafkaClient], peer: Peer, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(PARTITIONS)
    wanted = records(kafka.release)
    client = connect(broker_version="0.9.0")  # the documented default: ask, then fall back
    write(client, topic, wanted, "gzip")
    assert peer.read(topic, COUNT, PARTITIONS) == in_order(wanted)
    assert seen_by_gkafka(client, topic, COUNT, kafka.release) == in_order(wanted)


@EVERY_VERSION
@pytest.mark.parametrize("acks", [0, 1, "all"])
@pytest.mark.parametrize("handler", ["threading"], indirect=True)
def test_every_kind_of_acknowledgement_delivers(
    version: str, acks: object, kafka: KafkaCluster, client: KafkaClient, peer: Peer, new_topic: Callable[..., str]
) -> None:
    topic = new_topic()
    with client.get_producer(acks=acks) as producer:
        deliveries = [producer.produce(topic, b"%d" % i) for i in range(20)]
    offsets = [delivery.result(60).offset for delivery in deliveries]
    assert offsets == ([-1] * 20 if acks == 0 else list(range(20)))
    peer.wait_for(topic, 60)
    assert [record.value for record in peer.read(topic, 20)] == [b"%d" % i for i in range(20)]


@pytest.mark.parametrize("version", [version for version, release in RELEASES.items() if not release.headers])
def test_headers_that_the_broker_cannot_store_are_an_error_and_not_dropped(
    version: str, kafka: KafkaCluster, client: KafkaClient, peer: Peer, new_topic: Callable[..., str]
) -> None:
    topic = new_topic()
    producer = client.get_producer()
    with pytest.raises(UnsupportedVersion, match="header"):
        producer.produce(topic, b"with", headers=[("a", b"1")]).result(60)
    assert producer.produce(topic, b"without").result(60).offset == 0
    with contextlib.suppress(DeliveryError):  # it may tell of the same record again
        producer.close(60)
    assert [record.value for record in peer.read(topic, 1)] == [b"without"]


@pytest.mark.parametrize("version", ["0.8.2.2", "0.11.0.3", "1.1.1"])
def test_zstd_before_2_1_is_an_error_that_names_the_codec(
    version: str, kafka: KafkaCluster, client: KafkaClient, new_topic: Callable[..., str]
) -> None:
    topic = new_topic()
    producer = client.get_producer(compression="zstd", delivery_timeout_ms=10000)
    with pytest.raises(UnsupportedCodec, match="zstd"):
        producer.produce(topic, b"value").result(60)
    with contextlib.suppress(DeliveryError):  # it may tell of the same record again
        producer.close(60)


@EVERY_VERSION
@pytest.mark.parametrize("handler", ["threading"], indirect=True)
def test_committed_offsets_are_kept_by_every_version(
    version: str, kafka: KafkaCluster, client: KafkaClient, new_topic: Callable[..., str], new_name: Callable[[str], str]
) -> None:
    topic, group = new_topic(), new_name("group")
    write(client, topic, [Seen(0, i, None, b"%d" % i, [], None) for i in range(10)], "none")
    first = client.topics[topic].get_simple_consumer(consumer_group=group, auto_offset_reset=OffsetType.EARLIEST)
    assert [bytes(m.value) for m in first.consume_batch(4, timeout_ms=10000)] == [b"0", b"1", b"2", b"3"]
    first.commit_offsets()
    first.stop()
    second = client.topics[topic].get_simple_consumer(consumer_group=group, auto_offset_reset=OffsetType.EARLIEST)
    assert second.consume_batch(1, timeout_ms=10000)[0].offset == 4
    second.stop()
