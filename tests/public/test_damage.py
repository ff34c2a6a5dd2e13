"""Damaged bytes in a log or on their way: what is whole comes, then an error that names the place; nothing is skipped (B44, F09)."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from gkafka import KafkaClient
from gkafka.exceptions import CorruptRecordError, KafkaException, ProtocolError, RecordTooLarge, UnsupportedCodec
from gkafka.testing import Corrupt, MockCluster
from tests.public.aids import Clock, Runner, error_of, fill, read
from tests.public.test_consuming import Consume, consume, numbers
from tests.records.handmade import batch, marker, message, record, values

__all__ = ["consume"]


def spoiled(data: bytes, at: int, mask: int = 0xFF) -> bytes:
    out = bytearray(data)
    out[at] ^= mask
    return bytes(out)


DAMAGE = {
    "its checksum": lambda data: spoiled(data, 20),
    "a record": lambda data: spoiled(data, len(data) - 2),
    "its attributes": lambda data: spoiled(data, 22, 0x01),
    "its count": lambda data: spoiled(data, 60, 0x40),
}


@pytest.mark.parametrize("what", DAMAGE)
def test_what_is_before_the_damage_comes_then_its_place_is_told_and_a_seek_goes_past_it(
    client: KafkaClient, cluster: MockCluster, consume: Consume, what: str
) -> None:
    cluster.append("t", 0, values(3) + DAMAGE[what](values(2, base_offset=3)) + values(2, base_offset=5))
    consumer = consume("g", fetch_error_backoff_ms=20)
    assert [m.offset for m in read(consumer, 3)] == [0, 1, 2]
    for _ in range(3):
        error = error_of(consumer.consume_batch, 10, 5000)
        assert isinstance(error, CorruptRecordError)
        assert (error.topic, error.partition, error.offset) == ("t", 0, 3)
        assert "t[0]" in str(error)
        assert "offset 3" in str(error)
        assert consumer.held_offsets == {0: 2}, "the position stays"
    consumer.commit_offsets()
    assert cluster.committed("g")["t", 0].offset == 3
    consumer.reset_offsets([(0, 5)])
    assert [m.offset for m in read(consumer, 2)] == [5, 6]


def test_damage_is_not_met_in_a_loop(client: KafkaClient, cluster: MockCluster, consume: Consume, run: Runner) -> None:
    cluster.append("t", 0, DAMAGE["its checksum"](values(3)))
    consumer = consume(fetch_error_backoff_ms=100)
    with Clock() as clock:
        for _ in range(3):
            assert isinstance(error_of(consumer.consume), CorruptRecordError)
        asked = cluster.count("Fetch")
    assert clock.seconds > 0.05 * (asked - 9)
    with Clock() as clock:  # the next one may be there already, those after it cannot be
        for _ in range(4):
            error_of(consumer.consume)
    assert clock.seconds > 0.15
    with Clock() as clock:
        before = cluster.count("Fetch")
        run.sleep(0.3)
        asked = cluster.count("Fetch") - before
    assert clock.seconds > 0.05 * (asked - 5), "nor while nobody consumes"


def test_damage_in_one_partition_does_not_stop_the_others(connect: Any, make_cluster: Any, consume: Consume) -> None:
    cluster = make_cluster(topics={"t": 3})
    client = connect(cluster)
    fill(client, numbers(10), partition=0)
    cluster.append("t", 1, values(2) + DAMAGE["a record"](values(2, base_offset=2)))
    fill(client, numbers(10), partition=2)
    consumer = consume(of=client, fetch_error_backoff_ms=50)
    got: list[Any] = []
    errors: list[KafkaException] = []
    while len(got) < 22 or not errors:
        try:
            got += consumer.consume_batch(3, 60_000)
        except CorruptRecordError as error:
            errors.append(error)
        assert len(errors) < 20
    assert {(e.partition, e.offset) for e in errors} == {(1, 2)}
    assert sorted((m.partition_id, m.offset) for m in got) == sorted([(p, o) for p in (0, 2) for o in range(10)] + [(1, 0), (1, 1)])


def test_a_damaged_marker_is_told_after_what_is_before_it(cluster: MockCluster, consume: Consume) -> None:
    cluster.append("t", 0, values(2) + spoiled(marker(0, 2, producer_id=7), -3) + values(1, base_offset=3))
    consumer = consume(fetch_error_backoff_ms=20)
    assert [m.offset for m in read(consumer, 2)] == [0, 1]
    error = error_of(consumer.consume)
    assert isinstance(error, CorruptRecordError)
    assert (error.topic, error.partition, error.offset) == ("t", 0, 2)


@pytest.mark.parametrize("magic", [0, 1])
def test_damage_in_old_message_sets(connect: Any, make_cluster: Any, consume: Consume, magic: int) -> None:
    cluster = make_cluster(versions="0.10.2")
    good = b"".join(message(i, b"v", magic=magic) for i in range(3))
    bad = spoiled(message(3, b"v" * 50, magic=magic), -1)
    cluster.append("t", 0, good + bad)
    consumer = consume(of=connect(cluster), fetch_error_backoff_ms=20)
    assert [m.offset for m in read(consumer, 3)] == [0, 1, 2]
    error = error_of(consumer.consume)
    assert isinstance(error, CorruptRecordError)
    assert (error.partition, error.offset) == (0, 3)


def test_damage_on_the_way_heals_by_itself(client: KafkaClient, cluster: MockCluster, consume: Consume) -> None:
    """TCP's checksum is weak: what came damaged is fetched once more."""
    fill(client, [b"x" * 100] * 20)
    cluster.on(
        "Fetch", Corrupt(lambda frame: spoiled(frame, len(frame) - 60)), when=lambda r: r.message.topics[0].partitions[0].fetch_offset == 0
    )
    consumer = consume(fetch_error_backoff_ms=20)
    got: list[Any] = []
    errors: list[KafkaException] = []
    while len(got) < 20:
        try:
            got += consumer.consume_batch(20, 60_000)
        except (CorruptRecordError, ProtocolError) as error:
            errors.append(error)
    assert [m.offset for m in got] == list(range(20))
    assert len(errors) == 1


@pytest.mark.parametrize("seed", range(4))
def test_whatever_bits_flip_on_the_way_no_record_is_wrong_missing_or_doubled(
    client: KafkaClient, cluster: MockCluster, consume: Consume, seed: int
) -> None:
    """F09, G15. Flips in the last two thirds of each answer: its records; their base offsets are covered by no checksum and left alone."""
    chance = Random(seed)
    wanted = [b"%06d" % i * 5 for i in range(400)]
    fill(client, wanted, batches=40)
    batch_bytes = len(cluster.raw_log("t", 0)) // 40

    def flip(frame: bytes) -> bytes:
        if len(frame) < 2 * batch_bytes or chance.random() < 0.5:
            return frame
        back = chance.randrange(1, batch_bytes - 10)  # within the last batch, behind its base offset
        return spoiled(frame, len(frame) - 1 - back, 1 << chance.randrange(8))

    cluster.on("Fetch", Corrupt(flip), times=None)
    consumer = consume(fetch_error_backoff_ms=1, fetch_message_max_bytes=3 * batch_bytes)
    got: list[Any] = []
    errors = 0
    while len(got) < 400:
        try:
            got += consumer.consume_batch(50, 60_000)
        except KafkaException:
            errors += 1
            assert errors < 500
    assert [m.value for m in got] == wanted
    assert errors > 3


def test_a_frame_that_is_none_breaks_the_connection_and_nothing_else(client: KafkaClient, cluster: MockCluster, consume: Consume) -> None:
    fill(client, numbers(20), batches=4)
    for damage in (
        lambda f: b"\x7f\xff\xff\xff" + f[4:],
        lambda f: f[:4] + b"\0\0\0\x63" + f[8:],
        lambda f: b"HTTP/1.1 400 Bad\r\n\r\n",
    ):
        cluster.on("Fetch", Corrupt(damage))
    consumer = consume(fetch_error_backoff_ms=5)
    got: list[Any] = []
    errors: list[KafkaException] = []
    while len(got) < 20:
        try:
            got += consumer.consume_batch(20, 60_000)
        except KafkaException as error:
            errors.append(error)
    assert len(errors) <= 4
    assert all(isinstance(e, ProtocolError) for e in errors)
    assert [m.offset for m in got] == list(range(20))


def test_a_batch_that_unpacks_to_too_much_is_refused(cluster: MockCluster, consume: Consume) -> None:
    """B62, G19: a bomb."""
    cluster.append("t", 0, values(1) + batch([record(i, bytes(1 << 20)) for i in range(80)], base_offset=1, attributes=1))
    consumer = consume(fetch_error_backoff_ms=20)
    assert [m.offset for m in read(consumer, 1)] == [0]
    error = error_of(consumer.consume)
    assert isinstance(error, (CorruptRecordError, ProtocolError))
    assert (error.topic, error.partition, error.offset) == ("t", 0, 1)


def test_a_codec_that_is_not_there_is_told_with_the_place(cluster: MockCluster, consume: Consume) -> None:
    packed = bytearray(values(2, base_offset=1))
    packed[22] = 7
    from tests.records.handmade import fix_crc

    cluster.append("t", 0, values(1) + fix_crc(bytes(packed)) + values(1, base_offset=3))
    consumer = consume(fetch_error_backoff_ms=20)
    assert [m.offset for m in read(consumer, 1)] == [0]
    error = error_of(consumer.consume)
    assert isinstance(error, UnsupportedCodec)
    assert (error.topic, error.partition, error.offset) == ("t", 0, 1)
    consumer.reset_offsets([(0, 3)])
    assert read(consumer, 1)[0].offset == 3


def test_check_crcs_off_means_what_it_says(cluster: MockCluster, consume: Consume) -> None:
    cluster.append("t", 0, spoiled(values(3), 20))
    assert len(read(consume(check_crcs=False), 3)) == 3


def test_a_record_over_max_response_bytes_is_told_and_can_be_passed(connect: Any, make_cluster: Any, consume: Consume) -> None:
    cluster = make_cluster(versions="0.10.0", max_message_bytes=1 << 20)
    writer, client = connect(cluster), connect(cluster, max_response_bytes=200_000)
    with writer.get_producer(max_request_bytes=1 << 20) as producer:
        for size in (10, 300_000, 10):
            producer.produce("t", b"x" * size).result(60)
    consumer = consume(of=client, fetch_message_max_bytes=1000, fetch_error_backoff_ms=5)
    assert read(consumer, 1)[0].offset == 0
    error = error_of(consumer.consume)
    assert isinstance(error, RecordTooLarge)
    assert (error.topic, error.partition, error.offset) == ("t", 0, 1)
    consumer.reset_offsets([(0, 2)])
    assert read(consumer, 1)[0].offset == 2


def test_fetch_raw_tells_damage_too(client: KafkaClient, cluster: MockCluster) -> None:
    cluster.append("t", 0, values(3) + DAMAGE["its count"](values(2, base_offset=3)))
    raw = client.fetch_raw("t", 0, 0)
    assert raw.next_offset == 3
    error = error_of(client.fetch_raw, "t", 0, 3)
    assert isinstance(error, CorruptRecordError)
    assert (error.topic, error.partition, error.offset) == ("t", 0, 3)
    with Clock() as clock:
        assert isinstance(error_of(lambda: list(client.fetch_stream("t", 0, 0, 5))), CorruptRecordError)
    assert clock.seconds < 30
