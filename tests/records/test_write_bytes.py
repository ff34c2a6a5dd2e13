"""The bytes of a written batch: Kafka's format, as other clients read it."""

from __future__ import annotations

import gzip
import struct
import warnings
from enum import Enum
from pathlib import Path
from typing import Any

import lz4.frame
import pytest
from aiokafka.record import MemoryRecords as AiokafkaRecords

from gkafka.exceptions import SerializationError, UnsupportedCodec, UnsupportedVersion
from gkafka.records import check_record
from tests.records.write_helpers import SLOW, Owner, fill, make_appender, some_rows

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # kafka-python reads its own schemas by importlib.resources.read_text
    from kafka.partitioner.default import murmur2 as kafka_python_murmur2
    from kafka.record import MemoryRecords

CODECS = [0, 1, 2, 3, 4]
NAMES = {0: "none", 1: "gzip", 2: "snappy", 3: "lz4", 4: "zstd"}


def kafka_python_reads(wire: Any) -> list[tuple[Any, ...]]:
    batches = MemoryRecords(bytes(wire))
    rows = []
    while batches.has_next():
        batch = batches.next_batch()
        assert batch.validate_crc()
        rows += [(r.offset, r.timestamp, r.key, r.value, list(r.headers)) for r in batch]
    return rows


def aiokafka_reads(wire: Any) -> list[tuple[Any, ...]]:
    batches = AiokafkaRecords(bytes(wire))
    rows = []
    while batches.has_next():
        batch = batches.next_batch()
        assert batch.validate_crc()
        rows += [(r.offset, r.timestamp, r.key, r.value, list(r.headers)) for r in batch]
    return rows


# -- format 2 ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("reads", [kafka_python_reads, aiokafka_reads])
@pytest.mark.parametrize("codec", CODECS, ids=NAMES.get)
@pytest.mark.parametrize("count", [1, 20, 3000])
def test_other_clients_read_what_was_written(impl: Any, reads: Any, codec: int, count: int) -> None:
    rows = some_rows(count)
    batch = fill(impl, rows)
    batch.seal(codec, None)
    assert reads(batch.wire) == [(i, t, k, v, h or []) for i, (t, k, v, h) in enumerate(rows)]


def test_one_record_has_the_bytes_of_the_documentation(impl: Any) -> None:
    batch = fill(impl, [(1_500_000_000_000, b"k", b"val", [("h", b"x"), ("n", None)])])
    batch.seal(0, None, producer_id=0x0102030405060708, producer_epoch=9, base_sequence=10, transactional=True)
    wire = bytes(batch.wire)
    record = bytes.fromhex("22 00 00 00 02") + b"k" + b"\x06val" + b"\x04" + b"\x02h\x02x" + b"\x02n\x01"
    assert wire[61:] == record
    assert wire[:8] == bytes(8)  # base offset
    assert struct.unpack(">iibI", wire[8:21])[:3] == (len(wire) - 12, -1, 2)  # length, leader epoch, magic
    attributes, last_delta, first, newest, producer_id, epoch, sequence, count = struct.unpack(">hiqqqhii", wire[21:61])
    assert (attributes, last_delta, first, newest) == (0x10, 0, 1_500_000_000_000, 1_500_000_000_000)
    assert (producer_id, epoch, sequence, count) == (0x0102030405060708, 9, 10, 1)
    assert wire[17:21] == struct.pack(">I", impl.crc32c(wire[21:]))


@pytest.mark.parametrize("codec", CODECS, ids=NAMES.get)
def test_attributes_hold_codec_and_transaction(impl: Any, codec: int) -> None:
    plain, transactional = fill(impl, some_rows(3)), fill(impl, some_rows(3))
    plain.seal(codec, None)
    transactional.seal(codec, None, transactional=True)
    assert struct.unpack_from(">h", plain.wire, 21) == (codec,)
    assert struct.unpack_from(">h", transactional.wire, 21) == (codec | 0x10,)


def test_timestamps_may_go_back_and_far(impl: Any) -> None:
    stamps = [5, 0, 1 << 62, 5, 5, (1 << 63) - 1, 0]
    batch = fill(impl, [(t, None, b"v", None) for t in stamps])
    assert (batch.base_timestamp, batch.max_timestamp) == (5, (1 << 63) - 1)
    batch.seal(0, None)
    assert [row[1] for row in kafka_python_reads(batch.wire)] == stamps
    assert [batch.record(i).timestamp for i in range(len(stamps))] == stamps


def test_a_record_without_a_timestamp_is_written_as_minus_one(impl: Any) -> None:
    batch = fill(impl, [(-1, None, b"v", None)] * 2)
    batch.seal(0, None)
    assert [row[1] for row in kafka_python_reads(batch.wire)] == [-1, -1]


@pytest.mark.parametrize("size", [0, 1, 63, 64, 127, 128, 8190, 8191, 8192, 8193, 1 << 20, 3 << 20])
def test_sizes_at_the_edges_of_a_varint(impl: Any, size: int) -> None:
    value = b"x" * size
    rows = [(1, None, value, None), (2, value, b"", [("h" * (size or 1), value)])]
    batch = fill(impl, rows, max_record_bytes=1 << 30, batch_bytes=1 << 25)
    batch.seal(0, None)
    assert aiokafka_reads(batch.wire) == [(i, t, k, v, h or []) for i, (t, k, v, h) in enumerate(rows)]


class Name(str, Enum):
    TRACE = "trace"


def test_a_header_may_be_named_by_a_member_of_an_enum(impl: Any) -> None:
    (_, _, headers) = check_record("t", b"v", headers=[(Name.TRACE, b"1"), (Name.TRACE, bytearray(b"2"))])
    batch = fill(impl, [(1, None, b"v", headers)])
    batch.seal(0)
    assert kafka_python_reads(batch.wire)[0][4] == [("trace", b"1"), ("trace", b"2")]


def test_many_headers(impl: Any) -> None:
    headers: list[tuple[str, bytes | None]] = [(f"h{i}", b"%d" % i) for i in range(200)]
    batch = fill(impl, [(1, None, None, headers), (1, None, None, [])])
    assert batch.has_headers
    batch.seal(0, None)
    assert kafka_python_reads(batch.wire) == [(0, 1, None, None, headers), (1, 1, None, None, [])]
    assert batch.record(0).headers == headers
    assert not fill(impl, [(1, None, None, [])]).has_headers


@pytest.mark.parametrize("level", [1, 9])
def test_the_level_reaches_the_codec(impl: Any, level: int) -> None:
    batch = fill(impl, some_rows(200))
    batch.seal(1, level)
    assert len(kafka_python_reads(batch.wire)) == 200
    other = fill(impl, some_rows(200))
    other.seal(1, 10 - level)
    assert len(other.wire) != len(batch.wire)


# -- sealing -----------------------------------------------------------------------------------------------------------
def test_what_cannot_be_sealed_is_refused(impl: Any) -> None:
    appender = make_appender(impl)
    empty = appender.open("t", 0, 1.0)
    with pytest.raises(ValueError, match="is empty"):
        empty.seal(0, None)
    batch = fill(impl, some_rows(2))
    with pytest.raises(ValueError, match="not sealed yet"):
        _ = batch.wire
    with pytest.raises(ValueError, match="not a sealed v2 batch"):
        batch.restamp(1, 1, 1)
    for codec in (-1, 5, 8):
        with pytest.raises(UnsupportedCodec, match=f"codec {codec}"):
            batch.seal(codec, None)
    for wrong in ({"producer_id": 1 << 63}, {"producer_epoch": 1 << 15}, {"base_sequence": 1 << 31}, {"base_sequence": -2}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            batch.seal(0, None, **wrong)
    batch.seal(0, None)
    with pytest.raises(ValueError, match="sealed already"):
        batch.seal(0, None)
    assert batch.sealed
    assert batch.wire_size == len(batch.wire) == batch.size


def test_a_codec_that_fails_leaves_the_batch_to_another(impl: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from gkafka.records import compression

    def missing(*_: object) -> bytes:
        raise UnsupportedCodec("no such package")

    rows = some_rows(5)
    batch = fill(impl, rows)
    with monkeypatch.context() as patch:
        patch.setitem(compression.COMPRESSORS, "zstd", missing)
        with pytest.raises(UnsupportedCodec):
            batch.seal(4, None)
    assert not batch.sealed
    batch.seal(1, None)
    assert len(kafka_python_reads(batch.wire)) == len(rows)


@pytest.mark.parametrize("more", [0, 1, 40], ids=["as it is", "one more record", "so many that it grows"])
@pytest.mark.parametrize("codec", [0, 1])
@pytest.mark.parametrize("size", [0, 1, 7, 100, 5000])
def test_a_checksum_that_was_taken_ahead_is_that_of_the_batch(impl: Any, size: int, codec: int, more: int) -> None:
    appender, fresh = make_appender(impl), make_appender(impl)
    batches = []
    for one in (appender, fresh):
        one.open("t", 1, 1.0)
        one.append("t", 1, b"v" * size, b"k", 5, None)
        if one is appender:
            one.sum_up("t", 1)
        for i in range(more):
            one.append("t", 1, b"%d" % i * 9, None, 6, None)
        batch = one.roll("t", 1)
        batch.seal(codec, None, producer_id=1 << 40, producer_epoch=9, base_sequence=77)
        batches.append(batch)
    assert bytes(batches[0].wire) == bytes(batches[1].wire)
    assert len(aiokafka_reads(batches[0].wire)) == more + 1
    for batch in batches:
        batch.restamp(8, 0, 0)
    assert bytes(batches[0].wire) == bytes(batches[1].wire)


def test_there_may_be_nothing_to_sum_up(impl: Any) -> None:
    appender = make_appender(impl)
    for topic, partition in (("t", 1), ("other", 0), ("t", 99)):
        appender.sum_up(topic, partition)


@pytest.mark.parametrize("codec", CODECS, ids=NAMES.get)
def test_restamp_changes_the_producer_and_nothing_else(impl: Any, codec: int) -> None:
    batch, fresh = fill(impl, some_rows()), fill(impl, some_rows())
    batch.seal(codec, None, producer_id=7, producer_epoch=1, base_sequence=100)
    batch.restamp(8, 0, 0)
    fresh.seal(codec, None, producer_id=8, producer_epoch=0, base_sequence=0)
    assert bytes(batch.wire) == bytes(fresh.wire)
    assert len(aiokafka_reads(batch.wire)) == batch.count


def test_restamp_leaves_views_that_are_being_sent_alone(impl: Any) -> None:
    batch = fill(impl, some_rows())
    batch.seal(0, None, producer_id=7, producer_epoch=1, base_sequence=100)
    view = batch.wire
    before = bytes(view)
    batch.restamp(8, 0, 0)
    assert bytes(view) == before
    assert bytes(batch.wire) != before
    assert len(kafka_python_reads(batch.wire)) == batch.count


@pytest.mark.parametrize("codec", CODECS, ids=NAMES.get)
def test_every_record_can_be_had_back_in_any_order(impl: Any, codec: int) -> None:
    rows = some_rows(50)
    expected = [("t", 1, k, v, h or [], t) for t, k, v, h in rows]
    batch = fill(impl, rows)
    assert [batch.record(i) for i in range(50)] == expected  # not sealed yet
    batch.seal(codec, None)
    for order in (range(50), range(49, -1, -1), (7, 3, 44, 0, 0, 49)):
        assert [batch.record(i) for i in order] == [expected[i] for i in order]
    for outside in (-1, 50):
        with pytest.raises(IndexError):
            batch.record(outside)
    batch.extra.release(batch)
    assert batch.record(3) is None
    with pytest.raises(ValueError, match="released"):
        _ = batch.wire


def test_an_open_batch_can_be_looked_into_while_it_grows(impl: Any) -> None:
    appender = make_appender(impl)
    batch = appender.open("t", 0, 1.0)
    for i in range(100):
        delivery = appender.append("t", 0, b"v%d" % i, None, 5, None)
        assert delivery.record.value == b"v%d" % i
    assert [batch.record(i).value for i in (0, 99, 50)] == [b"v0", b"v99", b"v50"]


# -- formats 0 and 1 ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("reads", [kafka_python_reads, aiokafka_reads])
@pytest.mark.parametrize(("magic", "codec"), [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (1, 3)])  # neither reads lz4 of format 0
@pytest.mark.parametrize("count", [1, 20, 1000])
def test_other_clients_read_a_message_set(impl: Any, reads: Any, magic: int, codec: int, count: int) -> None:
    rows = some_rows(count, headers=False)
    batch = fill(impl, rows)
    batch.seal_legacy(magic, codec, None)
    assert batch.sealed
    assert batch.wire_size == len(batch.wire)
    got = reads(batch.wire)
    assert [(o, k, v) for o, _, k, v, _ in got] == [(i, k, v) for i, (_, k, v, _) in enumerate(rows)]
    assert [t for _, t, _, _, _ in got] == [t if magic else None for t, _, _, _ in rows]


@pytest.mark.parametrize("codec", [0, 1, 2, 3], ids=NAMES.get)
@pytest.mark.parametrize("magic", [0, 1])
def test_records_of_a_message_set_can_be_had_back(impl: Any, magic: int, codec: int) -> None:
    rows = some_rows(30, headers=False)
    batch = fill(impl, rows)
    batch.seal_legacy(magic, codec, None)
    assert [batch.record(i) for i in range(30)] == [("t", 1, k, v, [], t) for t, k, v, _ in rows]


def test_a_sealed_batch_can_be_sent_to_an_older_broker_after_all(impl: Any) -> None:
    batch, direct = fill(impl, some_rows(headers=False)), fill(impl, some_rows(headers=False))
    batch.seal(3, None, producer_id=4, producer_epoch=0, base_sequence=0)
    view = batch.wire
    before = bytes(view)
    batch.seal_legacy(1, 1, None)
    direct.seal_legacy(1, 1, None)
    assert bytes(batch.wire) == bytes(direct.wire)
    assert bytes(view) == before
    with pytest.raises(ValueError, match="sealed already"):
        batch.seal_legacy(0, 0, None)
    with pytest.raises(ValueError, match="not a sealed v2 batch"):
        batch.restamp(1, 1, 1)


def test_the_wrapper_of_a_message_set_has_the_last_offset_and_the_newest_timestamp(impl: Any) -> None:
    batch = fill(impl, [(10, None, b"a", None), (30, None, b"b", None), (20, None, b"c", None)])
    batch.seal_legacy(1, 1, None)
    offset, size, _, magic, attributes, timestamp, key = struct.unpack_from(">qiIbbqi", batch.wire)
    assert (offset, size, magic, attributes, timestamp, key) == (2, len(batch.wire) - 12, 1, 1, 30, -1)


def test_lz4_of_format_0_differs_in_its_header_checksum_only(impl: Any) -> None:
    rows = some_rows(headers=False)
    frames = {}
    for magic in (0, 1):
        batch = fill(impl, rows)
        batch.seal_legacy(magic, 3, None)
        wire = bytes(batch.wire)
        frames[magic] = wire[wire.index(b"\x04\x22\x4d\x18") :]
    with pytest.raises(RuntimeError, match="headerChecksum"):
        lz4.frame.decompress(frames[0])  # KAFKA-3160
    assert frames[0][:6] == frames[1][:6]
    inner = lz4.frame.decompress(frames[0][:6] + frames[1][6:7] + frames[0][7:])
    assert [row[2:4] for row in kafka_python_reads(inner)] == [(k, v) for _, k, v, _ in rows]


def test_what_a_message_set_cannot_hold_is_refused_by_name(impl: Any) -> None:
    batch = fill(impl, some_rows())
    with pytest.raises(UnsupportedVersion, match=r"t-1: record headers need a broker of version 0\.11 or newer") as caught:
        batch.seal_legacy(1, 0, None)
    assert (caught.value.topic, caught.value.partition) == ("t", 1)
    without = fill(impl, some_rows(headers=False))
    with pytest.raises(UnsupportedCodec, match=r"zstd needs a broker of version 2\.1"):
        without.seal_legacy(1, 4, None)
    with pytest.raises(ValueError, match="magic=2"):
        without.seal_legacy(2, 0, None)
    assert not batch.sealed
    batch.seal(0, None)


# -- keys to partitions ------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("key", "java"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_is_javas(impl: Any, key: bytes, java: int) -> None:
    """Source: Kafka's UtilsTest.testMurmur2."""
    assert impl.murmur2(key) == java & 0x7FFFFFFF
    assert impl.murmur2(bytearray(key)) == java & 0x7FFFFFFF


def test_keys_go_to_the_partitions_that_kafkas_own_producer_gives_them(impl: Any) -> None:
    """1,500 keys, recorded on the JVM: golden/Partitions.java."""
    lines = gzip.decompress((Path(__file__).parent / "golden" / "partitions.txt.gz").read_bytes()).decode().splitlines()
    assert len(lines) == 1500
    appender = make_appender(impl, buffer_bytes=1 << 24)
    for topic, count in (("three", 3), ("seven", 7), ("many", 64)):
        appender.set_topic(topic, count, 0)
        for partition in range(count):
            appender.open(topic, partition, 1.0)
    for line in lines:
        name, *java = line.split()
        key = b"" if name == "-" else bytes.fromhex(name)
        assert [appender.produce(topic, None, key).partition for topic in ("three", "seven", "many")] == [int(p) for p in java[:3]]
        assert impl.murmur2(key) % 0x7FFFFFFF == int(java[3])


def test_murmur2_is_that_of_kafka_python(impl: Any) -> None:
    for n in range(200):
        key = bytes((i * 37 + n * 11) & 0xFF for i in range(n))
        assert impl.murmur2(key) == kafka_python_murmur2(key) & 0x7FFFFFFF


def test_a_key_goes_to_its_partition_and_none_to_the_sticky_one(impl: Any) -> None:
    appender = make_appender(impl)
    for partition in range(4):
        appender.open("t", partition, 1.0)
    for i in range(50):
        key = b"%d" % i
        assert appender.produce("t", b"v", key).partition == impl.murmur2(key) % 4
    assert appender.produce("t", b"v").partition == 2
    assert appender.produce("t", b"v", b"").partition == impl.murmur2(b"") % 4
    assert appender.produce("t", b"v", b"key", 3).partition == 3


# -- what is not a record ----------------------------------------------------------------------------------------------
class Bytes(bytes):
    pass


class Text(str):
    __slots__ = ()


@pytest.mark.parametrize("value", [bytearray(b"v"), memoryview(b"v"), memoryview(b"-v-")[1:2], Bytes(b"v")], ids=lambda v: type(v).__name__)
def test_what_is_bytes_like_goes_the_fast_way(impl: Any, value: Any) -> None:
    owner = Owner()
    appender = make_appender(impl, owner)
    batch = appender.open("t", 1, 1.0)
    appender.produce(b"t", value, value, 1, 5)
    appender.produce(Text("t"), None, None, 1, 5, ([Text("h"), value],))
    appender.send("t", value, value, [("h", value)], 1, 5)
    appender.append("t", 1, value, value, 5, [["h", value]])
    assert owner.slow == []
    assert batch.record(0) == ("t", 1, b"v", b"v", [], 5)
    assert batch.record(1) == ("t", 1, None, None, [("h", b"v")], 5)
    assert batch.record(2) == batch.record(3) == ("t", 1, b"v", b"v", [("h", b"v")], 5)


def test_keys_that_are_bytes_like_choose_as_bytes_do(impl: Any) -> None:
    appender = make_appender(impl)
    for partition in range(4):
        appender.open("t", partition, 1.0)
    assert appender.produce("t", b"v", bytearray(b"key")).partition == appender.produce("t", b"v", b"key").partition


def test_a_view_that_was_released_goes_to_the_owner_who_says_so(impl: Any) -> None:
    owner = Owner()
    appender = make_appender(impl, owner)
    batch = appender.open("t", 1, 1.0)
    released = memoryview(b"v")
    released.release()
    assert appender.produce("t", released, None, 1) is SLOW
    assert appender.produce(b"\xff", b"v", None, 1) is SLOW
    assert batch.count == 0


@pytest.mark.parametrize(
    ("value", "key", "headers", "text"),
    [
        ("secret", None, None, "value for t is a str: encode it, or set value_serializer"),
        (
            7,
            None,
            None,
            "value for t is an int: must be bytes, bytes-like or None; encode it, or set value_serializer",
        ),
        (b"", "secret", None, "key for t is a str: encode it, or set key_serializer"),
        (
            b"",
            1.5,
            None,
            "key for t is a float: must be bytes, bytes-like or None; encode it, or set key_serializer",
        ),
        (b"", None, {"a": b"secret"}, "headers for t are a dict: must be a list of (str, bytes or None)"),
        (b"", None, [("a", b""), "ab"], "headers[1] for t is not a pair: must be (str, bytes or None)"),
        (b"", None, [("a", b"", 1)], "headers[0] for t is not a pair: must be (str, bytes or None)"),
        (b"", None, [(b"a", b"")], "headers[0] for t: its key is a bytes, must be a str"),
        (b"", None, [("a", "secret")], "headers[0] for t: its value is a str, encode it"),
        (b"", None, (("a", 3),), "headers[0] for t: its value is an int, must be bytes or None"),
        (b"", None, [("\ud800", b"")], "headers[0] for t: its key cannot be encoded as UTF-8"),
    ],
)
def test_what_is_not_a_record_is_refused_in_words(impl: Any, value: Any, key: Any, headers: Any, text: str) -> None:
    owner = Owner()
    appender = make_appender(impl, owner)
    batch = appender.open("t", 1, 1.0)
    assert appender.produce("t", value, key, 1, None, headers) is SLOW
    for refuse in (lambda: impl.check_record("t", value, key, headers), lambda: appender.append("t", 1, value, key, 5, headers)):
        with pytest.raises(SerializationError) as caught:
            refuse()
        assert str(caught.value) == text
        assert caught.value.topic == "t"
    assert (batch.count, batch.size) == (0, 61)


@pytest.mark.parametrize("timestamp", [-2, 1 << 63, 1.5, "now"])
def test_a_wrong_timestamp_is_refused(impl: Any, timestamp: Any) -> None:
    owner = Owner()
    appender = make_appender(impl, owner)
    batch = appender.open("t", 1, 1.0)
    assert appender.produce("t", b"v", None, 1, timestamp) is SLOW
    with pytest.raises(SerializationError, match="must be a whole number of ms"):
        appender.append("t", 1, b"v", None, timestamp, None)
    assert batch.count == 0
