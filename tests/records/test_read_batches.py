"""What `scan` and `Records` make of every kind of batch a broker can send."""

from __future__ import annotations

from types import ModuleType

import pytest

from gkafka.common import CompressionType, TimestampType
from gkafka.exceptions import CorruptRecordError, UnsupportedCodec
from gkafka.records import compression
from tests.records.handmade import CONTROL, GZIP, LOG_APPEND, batch, fix_crc, marker, message, record, values, wrapper
from tests.records.reading import CONTEXT, read, records


# -- scan --------------------------------------------------------------------------------------------------------------
def test_an_empty_buffer_holds_no_batches(impl: ModuleType) -> None:
    assert impl.scan(b"") == []


def test_the_cut_tail_of_a_fetch_is_left_out(impl: ModuleType) -> None:
    whole = values(3)
    for tail in (values(5, base_offset=3), message(3, b"v" * 40), wrapper([message(0, b"v")], 3)):
        for size in range(len(tail)):
            assert [h.end for h in impl.scan(whole + tail[:size])] == [len(whole)]
            assert impl.scan(tail[:size]) == []
            if size:
                with pytest.raises(CorruptRecordError, match=r"is cut after|are left where"):
                    impl.scan(whole + tail[:size], strict=True)


def test_batches_of_all_formats_stand_side_by_side(impl: ModuleType) -> None:
    data = message(0, b"a", magic=0) + message(1, b"b") + wrapper([message(0, b"c"), message(1, b"d")], 3) + values(2, base_offset=4)
    assert [(h.magic, h.base_offset, h.last_offset, h.count, h.codec) for h in impl.scan(data)] == [
        (0, 0, 0, 1, 0),
        (1, 1, 1, 1, 0),
        (1, 3, 3, -1, 1),
        (2, 4, 5, 2, 0),
    ]
    assert [(m.offset, m.value) for m in read(impl, data)] == [(0, b"a"), (1, b"b"), (2, b"c"), (3, b"d"), (4, b"0"), (5, b"1")]


def test_a_run_of_plain_messages_is_one_batch(impl: ModuleType) -> None:
    data = b"".join(message(i * 2, b"%d" % i, timestamp=100 - i) for i in range(50))
    (header,) = impl.scan(data)
    assert (header.count, header.base_offset, header.last_offset, header.next_offset) == (50, 0, 98, 99)
    assert (header.base_timestamp, header.max_timestamp) == (100, 100)
    assert [m.offset for m in read(impl, data, step=3)] == list(range(0, 100, 2))


@pytest.mark.parametrize(
    ("offset", "patch", "words"),
    [
        (8, b"\0\0\0\x07", "7 bytes long"),
        (8, b"\xff\xff\xff\xff", "-1 bytes long"),
        (8, b"\0\0\0\x30", "format 2 says that it is 48 bytes long"),
        (16, b"\x03", "magic 3"),
        (16, b"\x7f", "magic 127"),
        (0, b"\xff", "its offset is -"),
        (0, b"\x7f" + b"\xff" * 7, "its offset is 9223372036854775807"),
        (23, b"\xff", "its last offset is"),
        (57, b"\xff\xff\xff\xff", "-1 records"),
        (57, b"\x7f\xff\xff\xff", "2147483647 records in"),
    ],
)
def test_a_header_that_cannot_be_names_the_place(impl: ModuleType, offset: int, patch: bytes, words: str) -> None:
    bad = bytearray(values(3, base_offset=100))
    bad[offset : offset + len(patch)] = patch
    with pytest.raises(CorruptRecordError, match=words) as caught:
        impl.scan(bytes(bad), topic="t", partition=3)
    assert (caught.value.topic, caught.value.partition) == ("t", 3)
    assert str(caught.value).startswith("t[3] offset ")
    if offset:
        assert caught.value.offset == 100


def test_good_batches_before_a_bad_one_are_handed_out_first(impl: ModuleType) -> None:
    good, bad = values(3), bytearray(values(3, base_offset=3))
    bad[16] = 9
    data = good + bytes(bad) + values(2, base_offset=6)
    headers = impl.scan(data)
    assert [h.end for h in headers] == [len(good)]
    with pytest.raises(CorruptRecordError, match="magic 9") as caught:
        impl.scan(data[headers[-1].end :])
    assert caught.value.offset == 3
    with pytest.raises(CorruptRecordError, match="magic 9"):
        impl.scan(data, strict=True)


def test_a_header_of_another_buffer_is_refused(impl: ModuleType) -> None:
    (header,) = impl.scan(values(10))
    with pytest.raises(ValueError, match="does not lie in this buffer"):
        impl.Records(values(9), header, CONTEXT)


def test_any_contiguous_buffer_is_read(impl: ModuleType) -> None:
    data = values(3)
    for buffer in (data, bytearray(data), memoryview(data), memoryview(b"12" + data)[2:]):
        assert [m.value for m in read(impl, buffer)] == [b"0", b"1", b"2"]
    with pytest.raises(TypeError):
        impl.scan("text")
    with pytest.raises((TypeError, BufferError)):
        impl.scan(memoryview(data)[::2])


# -- v2 ----------------------------------------------------------------------------------------------------------------
def test_records_before_the_position_are_left_out(impl: ModuleType) -> None:
    data = values(10, base_offset=100)
    assert [m.offset for m in records(impl, data, min_offset=107).take(100)] == [107, 108, 109]
    assert [m.offset for m in records(impl, data, min_offset=107).take(2)] == [107, 108]
    taker = records(impl, data, min_offset=200)
    assert (taker.take(5), taker.remaining, taker.next_offset) == ([], 0, 200)


def test_the_position_moves_past_offsets_that_were_compacted_away(impl: ModuleType) -> None:
    data = batch([record(3, b"a"), record(7, b"b")], base_offset=100, last_delta=20)
    taker = records(impl, data)
    assert [m.offset for m in taker.take(9)] == [103, 107]
    assert taker.next_offset == 121


def test_an_empty_batch_moves_the_position(impl: ModuleType) -> None:
    taker = records(impl, batch([], base_offset=100, last_delta=9))
    assert taker.remaining == 1
    assert taker.take(5) == []
    assert (taker.remaining, taker.next_offset) == (0, 110)


def test_the_checksum_of_an_empty_batch_guards_its_offsets(impl: ModuleType) -> None:
    bad = bytearray(batch([], base_offset=100, last_delta=9))
    bad[26] ^= 64
    taker = records(impl, bytes(bad))
    with pytest.raises(CorruptRecordError, match="checksum"):
        taker.take(1)
    assert taker.next_offset == 100


def test_log_append_time_is_the_batch_s(impl: ModuleType) -> None:
    data = batch([record(0, b"", timestamp_delta=5), record(1, b"", timestamp_delta=6)], attributes=LOG_APPEND, max_timestamp=77_000)
    assert [(m.timestamp, m.timestamp_type) for m in read(impl, data)] == [(77_000, TimestampType.LOG_APPEND_TIME)] * 2


def test_no_timestamp_stays_none(impl: ModuleType) -> None:
    data = batch([record(0, b"")], base_timestamp=-1, max_timestamp=-1)
    assert [m.timestamp for m in read(impl, data)] == [-1]


def test_timestamps_reach_to_the_ends_of_64_bits(impl: ModuleType) -> None:
    top, bottom = 2**63 - 1, -(2**63)
    data = batch([record(0, b"", timestamp_delta=top), record(1, b"", timestamp_delta=bottom + 1)], base_timestamp=0)
    assert [m.timestamp for m in read(impl, data)] == [top, bottom + 1]
    with pytest.raises(CorruptRecordError, match="no 64-bit number"):
        read(impl, batch([record(0, b"", timestamp_delta=top)], base_timestamp=1))
    with pytest.raises(CorruptRecordError, match="no 64-bit number"):
        read(impl, batch([record(0, b"", timestamp_delta=-2)], base_timestamp=bottom + 1))


@pytest.mark.parametrize("codec", list(CompressionType))
def test_every_codec_is_read(impl: ModuleType, codec: CompressionType) -> None:
    body = b"".join(record(i, b"v%d" % i * 30) for i in range(100))
    packed = compression.compress(codec, body)
    data = batch([packed], attributes=0, last_delta=99, count=0)
    patched = bytearray(data)
    patched[22] = codec
    patched[57:61] = (100).to_bytes(4, "big")
    messages = read(impl, fix_crc(bytes(patched)), step=11)
    assert [m.value for m in messages] == [b"v%d" % i * 30 for i in range(100)]
    assert messages[0].compression_type is codec


def test_an_unknown_codec_is_named_with_its_place(impl: ModuleType) -> None:
    taker = records(impl, batch([record(0, b"")], base_offset=5, attributes=6))
    for _ in range(2):
        with pytest.raises(UnsupportedCodec, match=r"t\[3\] offset 5: compression codec 6") as caught:
            taker.take(1)
        assert (caught.value.topic, caught.value.partition, caught.value.offset) == ("t", 3, 5)


def test_an_empty_batch_may_name_an_unknown_codec(impl: ModuleType) -> None:
    taker = records(impl, batch([], last_delta=4, attributes=7))
    assert taker.take(1) == []
    assert taker.next_offset == 5


# -- control batches ---------------------------------------------------------------------------------------------------
def test_markers_are_recognised(impl: ModuleType) -> None:
    for kind in (0, 1, 4):
        data = marker(kind, offset=9)
        (header,) = impl.scan(data)
        assert (header.is_control, header.is_transactional) == (True, True)
        assert impl.control_type(data, header) == kind


def test_a_marker_that_was_compacted_away_has_no_type(impl: ModuleType) -> None:
    data = batch([], attributes=CONTROL, last_delta=0)
    assert impl.control_type(data, impl.scan(data)[0]) == -1


@pytest.mark.parametrize("key", [None, b"", b"\0\0\0"])
def test_a_marker_with_a_short_key_is_damage(impl: ModuleType, key: bytes | None) -> None:
    data = batch([record(0, b"", key)], attributes=CONTROL, base_offset=4)
    with pytest.raises(CorruptRecordError, match="shorter than 4 bytes") as caught:
        impl.control_type(data, impl.scan(data)[0])
    assert caught.value.offset == 4


# -- message sets ------------------------------------------------------------------------------------------------------
def test_format_1_counts_inner_offsets_from_the_set_s_first(impl: ModuleType) -> None:
    data = wrapper([message(i, b"%d" % i) for i in range(3)], 102)
    assert [(m.offset, m.value) for m in read(impl, data)] == [(100, b"0"), (101, b"1"), (102, b"2")]


def test_format_1_keeps_its_offsets_when_the_first_messages_were_compacted_away(impl: ModuleType) -> None:
    data = wrapper([message(4, b"a"), message(9, b"b")], 109)
    assert [m.offset for m in read(impl, data)] == [104, 109]


def test_format_0_has_absolute_inner_offsets(impl: ModuleType) -> None:
    data = wrapper([message(i, b"", magic=0) for i in (100, 101, 105)], 105, magic=0)
    assert [m.offset for m in read(impl, data)] == [100, 101, 105]
    assert [m.offset for m in read(impl, data, min_offset=101)] == [101, 105]


def test_a_wrapper_s_offset_of_0_counts_from_there(impl: ModuleType) -> None:
    data = wrapper([message(i, b"") for i in range(3)], 0)
    taker = records(impl, data)
    assert [m.offset for m in taker.take(9)] == [0, 1, 2]
    assert taker.next_offset == 3


def test_an_inner_offset_behind_the_wrapper_s_is_damage(impl: ModuleType) -> None:
    for magic in (0, 1):
        with pytest.raises(CorruptRecordError, match="its offset is 9, the compressed one 5") as caught:
            read(impl, wrapper([message(9, b"", magic=magic)], 5, magic=magic))
        assert caught.value.offset == 5


def test_log_append_time_is_the_wrapper_s(impl: ModuleType) -> None:
    data = wrapper([message(0, b"", timestamp=5), message(1, b"", timestamp=6)], 1, timestamp=99, attributes=LOG_APPEND)
    assert [(m.timestamp, m.timestamp_type) for m in read(impl, data)] == [(99, TimestampType.LOG_APPEND_TIME)] * 2
    plain = message(0, b"", timestamp=5, attributes=LOG_APPEND) + message(1, b"", timestamp=6, attributes=LOG_APPEND)
    assert [(m.timestamp, m.timestamp_type) for m in read(impl, plain)] == [
        (5, TimestampType.LOG_APPEND_TIME),
        (6, TimestampType.LOG_APPEND_TIME),
    ]


def test_lz4_of_format_0_is_read(impl: ModuleType) -> None:
    """Its frames carry a wrong header checksum (KAFKA-3160)."""
    inner = b"".join(message(i, b"v" * 50, magic=0) for i in range(9))
    for magic in (0, 1):
        packed = compression.compress(CompressionType.LZ4, inner, legacy=magic == 0)
        data = message(8, packed, magic=magic, attributes=CompressionType.LZ4)
        assert [m.offset for m in read(impl, data)] == list(range(9))


def test_messages_may_be_compressed_once_more(impl: ModuleType) -> None:
    one = wrapper([message(0, b"a"), message(1, b"b")], 1)
    data = wrapper([one, message(2, b"c"), wrapper([message(0, b"d"), message(1, b"e")], 4)], 104)
    assert [(m.offset, m.value) for m in read(impl, data)] == [(100, b"a"), (101, b"b"), (102, b"c"), (103, b"d"), (104, b"e")]
    old = wrapper([wrapper([message(7, b"a", magic=0)], 7, magic=0), message(8, b"b", magic=0)], 8, magic=0)
    assert [(m.offset, m.value) for m in read(impl, old)] == [(7, b"a"), (8, b"b")]


def test_messages_nested_deeper_are_refused(impl: ModuleType) -> None:
    data = wrapper([wrapper([wrapper([message(0, b"a")], 0)], 0)], 50)
    with pytest.raises(CorruptRecordError, match="nested deeper than once") as caught:
        read(impl, data)
    assert caught.value.offset == 50


def test_a_compressed_message_that_holds_nothing_is_damage(impl: ModuleType) -> None:
    with pytest.raises(CorruptRecordError, match="holds no messages"):
        read(impl, wrapper([], 5))
    with pytest.raises(CorruptRecordError, match="has no value"):
        read(impl, message(5, None, attributes=GZIP))
    with pytest.raises(CorruptRecordError, match="a batch of format 2"):
        read(impl, wrapper([values(1)], 5))
    with pytest.raises(CorruptRecordError, match="is cut after"):
        read(impl, wrapper([message(0, b"a"), message(1, b"bcd")[:-1]], 5))


def test_zstd_does_not_exist_in_old_formats(impl: ModuleType) -> None:
    with pytest.raises(CorruptRecordError, match="zstd"):
        read(impl, message(5, b"x", attributes=CompressionType.ZSTD))


def test_how_many_are_left_is_known_once_a_compressed_message_is_open(impl: ModuleType) -> None:
    taker = records(impl, wrapper([message(i, b"") for i in range(5)], 4))
    assert taker.remaining == 2**31 - 1
    assert len(taker.take(2)) == 2
    assert taker.remaining == 3
