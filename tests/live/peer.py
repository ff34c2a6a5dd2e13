"""Another client's eyes and hands: confluent-kafka, which serves every version from 0.8.2 to 4.2, and kafka-python as a third reader."""

from __future__ import annotations

import gc
import time
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

from confluent_kafka import Consumer, Producer, TopicPartition

from tests.kit.clock import now
from tests.live.kafka import Release

__all__ = ["Peer", "Seen"]

DEADLINE_S = 60.0


class Seen(NamedTuple):
    """A record as any client shows it. timestamp: None where the version has none; headers: [] for none."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    timestamp: int | None


class Peer:
    """confluent-kafka with settings for one release of Kafka."""

    def __init__(self, hosts: str, release: Release) -> None:
        self.hosts = hosts
        self.release = release
        self._settings: dict[str, Any] = {"bootstrap.servers": hosts, "log_level": 2}
        if not release.asks_versions:
            self._settings |= {"api.version.request": False, "broker.version.fallback": release.version}

    def write(self, topic: str, records: Sequence[Seen], codec: str = "none", *, batch: int = 10_000) -> None:
        """Acknowledged by all; the offsets of `records` have to be those that the broker gives. batch: most records in one."""
        settings = {"acks": "all", "compression.type": codec, "linger.ms": 20, "batch.num.messages": batch}
        producer = Producer({**self._settings, **settings})
        given: list[tuple[int, int]] = []
        errors: list[object] = []

        def delivered(error: Any, message: Any) -> None:
            errors.append(error) if error is not None else given.append((message.partition(), message.offset()))

        for record in records:
            more: dict[str, Any] = {"headers": record.headers} if record.headers else {}
            if record.timestamp is not None:
                more["timestamp"] = record.timestamp
            producer.produce(topic, record.value, key=record.key, partition=record.partition, on_delivery=delivered, **more)
        assert producer.flush(DEADLINE_S) == 0, "confluent-kafka did not deliver in time"
        assert not errors, errors[0]
        assert sorted(given) == sorted((record.partition, record.offset) for record in records)

    def read(self, topic: str, count: int, partitions: int = 1) -> list[Seen]:
        """All records of the topic, by partition and offset. AssertionError unless they are `count`."""
        seen = self.read_all(topic, partitions)
        assert len(seen) == count, f"{len(seen)} records in {topic}, expected {count}"
        return seen

    def read_all(self, topic: str, partitions: int = 1) -> list[Seen]:
        """All records of the topic, by partition and offset."""
        consumer = Consumer({**self._settings, "group.id": "peer", "enable.auto.commit": False, "check.crcs": True})
        # Asked before the first fetch: a broker serves one request of a connection at a time, and a fetch may park.
        ends = [consumer.get_watermark_offsets(TopicPartition(topic, p), timeout=DEADLINE_S)[1] for p in range(partitions)]
        consumer.assign([TopicPartition(topic, p, 0) for p in range(partitions)])
        nexts = [0] * partitions
        seen: list[Seen] = []
        deadline = now() + DEADLINE_S
        while nexts != ends:
            assert now() < deadline, f"{len(seen)} records of {topic} after {DEADLINE_S:g} s, at {nexts} of {ends}"
            for message in consumer.consume(max(1, min(10_000, sum(ends) - len(seen))), 0.2):
                assert message.error() is None, message.error()
                seen.append(self._seen(message))
                nexts[seen[-1].partition] = seen[-1].offset + 1
        consumer.close()
        return sorted(seen, key=lambda record: record[:2])

    def wait_for(self, topic: str, count: int) -> None:
        """Until partition 0 holds `count` records: nobody says when those of acks=0 are there."""
        consumer = Consumer({**self._settings, "group.id": "peer", "enable.auto.commit": False})
        deadline = now() + DEADLINE_S
        while (end := consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=DEADLINE_S)[1]) < count:
            assert now() < deadline, f"{end} of {count} records in {topic} after {DEADLINE_S:g} s"
            time.sleep(0.05)
        consumer.close()

    def committed(self, group: str, topic: str, partitions: int = 1) -> dict[int, int]:
        """Partition -> committed offset, without the partitions that have none."""
        consumer = Consumer({**self._settings, "group.id": group, "enable.auto.commit": False})
        found = consumer.committed([TopicPartition(topic, p) for p in range(partitions)], timeout=DEADLINE_S)
        consumer.close()
        return {each.partition: each.offset for each in found if each.offset >= 0}

    def commit(self, group: str, topic: str, offsets: dict[int, int]) -> None:
        consumer = Consumer({**self._settings, "group.id": group, "enable.auto.commit": False})
        consumer.commit(offsets=[TopicPartition(topic, p, offset) for p, offset in offsets.items()], asynchronous=False)
        consumer.close()

    def _seen(self, message: Any) -> Seen:
        timestamp = message.timestamp()[1] if self.release.timestamps else None
        return Seen(message.partition(), message.offset(), message.key(), message.value(), message.headers() or [], timestamp)


def read_with_kafka_python(hosts: str, release: Release, topic: str, count: int, partitions: int = 1) -> list[Seen]:
    """As Peer.read. Not for lz4 before 0.10: its reader wants a package for the checksum of those frames."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its warnings are not ours
        try:
            return _read_with_kafka_python(hosts, release, topic, count, partitions)
        finally:
            gc.collect()  # sockets that it leaves open in cycles are warned of when they are collected: here, not in a later test


def _read_with_kafka_python(hosts: str, release: Release, topic: str, count: int, partitions: int) -> list[Seen]:
    from kafka import KafkaConsumer  # type: ignore[import-untyped]
    from kafka import TopicPartition as Partition

    options: dict[str, Any] = {} if release.asks_versions else {"api_version": release.number[:3] if release.number < (0, 9) else (0, 9)}
    consumer = KafkaConsumer(bootstrap_servers=hosts, group_id=None, enable_auto_commit=False, **options)
    everything = [Partition(topic, p) for p in range(partitions)]
    consumer.assign(everything)
    consumer.seek_to_beginning(*everything)
    seen: list[Seen] = []
    deadline = now() + DEADLINE_S
    while len(seen) < count:
        assert now() < deadline, f"{len(seen)} of {count} records of {topic} after {DEADLINE_S:g} s"
        for records in consumer.poll(200).values():
            for r in records:
                timestamp = r.timestamp if release.timestamps else None
                seen.append(Seen(r.partition, r.offset, r.key, r.value, list(r.headers), timestamp))
    consumer.close()
    return sorted(seen, key=lambda record: record[:2])
