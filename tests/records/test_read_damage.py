"""Damaged bytes: the good records before them, then an error that names the place; the same from both implementations."""

from __future__ import annotations

import gzip
import random
import struct
import sys
from functools import cache
from types import ModuleType
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gkafka.common import CompressionType
from gkafka.exceptions import CorruptRecordError, ProtocolError, UnsupportedCodec
from gkafka.records import _pure, _pure_columns, compression
from gkafka.records.compression import compress
from tests.effort import seeds, tried
from tests.kit.clock import PATIENCE_S, now
from tests.kit.memory import traced
from tests.records.handmade import CONTROL, GZIP, LOG_APPEND, batch, fix_crc, marker, message, record, values, varint, wrapper
from tests.records.reading import columns, outcome, read, records


# -- what is damaged ---------------------------------------------------------------------------------------------------
def raw(body: bytes, count: int = 1, last_delta: int = 9) -> bytes:
    return batch([body], count=count, last_delta=last_delta, base_offset=100)


GOOD = record(0, b"value", b"key", [(b"h", b"1")])
BAD_RECORDS = [
    (varint(200) + GOOD[1:], "says that it is 200 bytes long"),
    (varint(-5) + GOOD[1:], "says that it is -5 bytes long"),
    (b"\xff" * 5 + GOOD, "length is no 32-bit number"),
    (b"\x80\x80\x80\x80\x10" + GOOD, "length is no 32-bit number"),
    (varint(20) + b"\0" + b"\xff" * 11 + b"\0" * 8, "timestamp is no 64-bit number"),
    (varint(2) + b"\0\x80" + b"\0" * 4, "ends inside its timestamp"),
    (record(-1, b""), "offset delta is -1"),
    (record(10, b""), "offset delta is 10, where 0 to 9"),
    (varint(6) + b"\0\0\0" + varint(-2) + b"\1\0", "key says that it is -2 bytes long"),
    (varint(6) + b"\0\0\0" + varint(9) + b"\1\0", "key says that it is 9 bytes long"),
    (varint(6) + b"\0\0\0\1" + varint(-9) + b"\0", "value says that it is -9 bytes long"),
    (varint(6) + b"\0\0\0\1" + varint(50) + b"\0", "value says that it is 50 bytes long"),
    (varint(6) + b"\0\0\0\1\1" + varint(-1), "has -1 headers"),
    (varint(9) + b"\0\0\0\1\1" + varint(1 << 24), "headers in 0 bytes"),
    (varint(8) + b"\0\0\0\1\1" + varint(1) + b"\1\1", "header's key says that it is -1 bytes"),
    (varint(8) + b"\0\0\0\1\1" + varint(1) + b"\0\3", "header's value says that it is -2 bytes"),
    (varint(7) + b"\0\0\0\1\1\0\0", "a record of 7 bytes ends after 6"),
]


@pytest.mark.parametrize(("body", "words"), BAD_RECORDS, ids=[words for _, words in BAD_RECORDS])
def test_a_bad_record_is_named(impl: ModuleType, body: bytes, words: str) -> None:
    with pytest.raises(CorruptRecordError, match=words) as caught:
        read(impl, raw(body))
    assert str(caught.value).startswith("t[3] offset 100: ")
    assert str(caught.value).endswith("(in the batch of offsets 100 to 109); seek to offset 110 to go on behind it")
    assert (caught.value.topic, caught.value.partition, caught.value.offset) == ("t", 3, 100)


def test_numbers_that_take_more_bytes_than_they_need_are_read(impl: ModuleType) -> None:
    """-1 and small sizes in two bytes and more: nobody writes them, and nothing forbids them."""
    long_null, long_two = b"\x81\0", b"\x84\x80\0"
    body = b"\0" + b"\x80\0" + b"\x80\x80\0" + long_null + long_two + b"ab" + b"\x82\0" + long_two + b"hk" + b"\x81\x80\0"
    (m,) = read(impl, raw(varint(len(body)) + body))
    assert (m.key, m.value, m.headers) == (None, b"ab", [("hk", None)])
    assert columns(impl, raw(varint(len(body)) + body), start_offset=0)["values"] == [b"ab"]


def test_a_wrong_checksum_is_an_error_before_any_record(impl: ModuleType) -> None:
    bad = bytearray(values(5, base_offset=10))
    bad[-2] ^= 1
    taker = records(impl, bytes(bad))
    for _ in range(2):
        with pytest.raises(CorruptRecordError, match=r"checksum mismatch: stored [0-9a-f]{8}, computed [0-9a-f]{8}") as caught:
            taker.take(1)
        assert caught.value.offset == 10
    assert (taker.next_offset, taker.remaining) == (10, 1)
    assert len(read(impl, bytes(bad), check_crcs=False)) == 5


def test_messages_of_old_formats_have_a_checksum_each(impl: ModuleType) -> None:
    for magic in (0, 1):
        data = bytearray(b"".join(message(i, b"value", magic=magic) for i in range(10, 15)))
        data[len(data) * 3 // 5 - 1] ^= 1
        taker = records(impl, bytes(data))
        assert [m.offset for m in taker.take(10)] == [10, 11]
        assert (taker.remaining, taker.next_offset) == (1, 12)
        for _ in range(2):
            with pytest.raises(CorruptRecordError, match="checksum") as caught:
                taker.take(10)
            assert caught.value.offset == 12
        assert len(read(impl, bytes(data), check_crcs=False)) == 5


def test_good_records_before_a_bad_one_are_handed_out_then_the_error(impl: ModuleType) -> None:
    body = b"".join(record(i, b"v") for i in range(3)) + varint(6) + b"\0\0\x06\x01\x63\0" + record(4, b"never")
    data = batch([body], count=5, last_delta=4, base_offset=100)
    for step in (1, 2, 3, 99):
        taker = records(impl, data)
        got: list[int] = []
        with pytest.raises(CorruptRecordError, match="value says") as caught:  # noqa: PT012
            while True:
                got += [m.offset for m in taker.take(step)]
        assert got == [100, 101, 102]
        assert caught.value.offset == 103
        assert taker.next_offset == 103
        assert taker.remaining == 1
    assert columns(impl, data, start_offset=0)["offsets"] == [100, 101, 102]


@pytest.mark.parametrize(("count", "words"), [(3, "bytes are left behind the last record"), (7, "a record ends inside its length")])
def test_a_count_that_is_wrong_is_found(impl: ModuleType, count: int, words: str) -> None:
    data = batch([record(i, b"v" * 30) for i in range(5)], count=count)
    taker = records(impl, data)
    assert len(taker.take(99)) == min(count, 5)
    with pytest.raises(CorruptRecordError, match=words):
        taker.take(99)


def test_a_batch_that_says_it_is_longer_swallows_no_other(impl: ModuleType) -> None:
    """Valid, lying, valid: the size field of the second runs over the third."""
    first, liar, third = values(2), values(2, base_offset=2), values(2, base_offset=4)
    grown = bytearray(liar)
    struct.pack_into(">i", grown, 8, len(liar) + len(third) - 12)
    for middle in (bytes(grown), fix_crc(bytes(grown) + third)[: len(liar)]):
        got = outcome(impl, first + middle + third, 10)
        assert [entry[0] for entry in got if isinstance(entry, tuple) and len(entry) == 8] in ([0, 1], [0, 1, 2, 3])
        assert got[-1][0] == "CorruptRecordError"
        assert got[-1][4] in (2, 4)


def test_valid_corrupt_valid_gives_the_valid_prefix_then_the_error(impl: ModuleType) -> None:
    first, third = values(3), values(3, base_offset=6)
    for at in range(12, len(values(3))):
        middle = bytearray(values(3, base_offset=3))
        middle[at] ^= 0x10
        got = outcome(impl, first + bytes(middle) + third, 2)
        assert [entry[0] for entry in got if isinstance(entry, tuple) and len(entry) == 8][:3] == [0, 1, 2]
        if at < 16:  # the leader's epoch is not under the checksum
            assert got[-1] == (0, 9)
        else:
            assert got[-1][0] in ("CorruptRecordError", "UnsupportedCodec"), at
            assert got[-1][4] == 3
            assert not any(entry[0] >= 3 for entry in got if isinstance(entry, tuple) and len(entry) == 8)


# -- bounds ------------------------------------------------------------------------------------------------------------
@cache
def bomb(size: int) -> bytes:
    packed = gzip.compress(bytes(size), mtime=0)
    one = bytearray(batch([packed], count=0, last_delta=0))
    one[22] = GZIP
    one[57:61] = (1).to_bytes(4, "big")
    return fix_crc(bytes(one))


def test_decompression_is_bounded(impl: ModuleType) -> None:
    data = bomb(70 * 1024 * 1024)
    with pytest.raises(CorruptRecordError, match="more than the 67108864 bytes"):
        read(impl, data)
    with pytest.raises(CorruptRecordError, match="more than the 1000 bytes"):
        read(impl, data, max_bytes=1000)
    with pytest.raises(CorruptRecordError, match="more than the 1000 bytes"):
        read(impl, wrapper([message(0, bytes(2000))], 0), max_bytes=1000)


def test_nested_messages_share_one_bound(impl: ModuleType) -> None:
    data = wrapper([wrapper([message(i, bytes(20_000))], i) for i in range(10)], 9)
    assert len(read(impl, data)) == 10
    with pytest.raises(CorruptRecordError, match="more than"):
        read(impl, data, max_bytes=100_000)


def test_lying_counts_take_no_memory(impl: ModuleType) -> None:
    packed = gzip.compress(record(0, b"v") * 100, mtime=0)
    liar = bytearray(batch([packed], count=0, last_delta=2**31 - 2))
    liar[22] = GZIP
    liar[57:61] = b"\x7f\xff\xff\xff"
    headers = batch([varint(20) + b"\0\0\0\1\1" + varint(2**30) + bytes(10)], count=1)
    for data in (fix_crc(bytes(liar)), headers):
        with traced() as peak:
            with pytest.raises(CorruptRecordError, match=r"2147483647 records in|headers in"):
                records(impl, data).take(2**31)
            with pytest.raises(CorruptRecordError):
                impl.decode_columns(data, start_offset=0, headers=True)
            assert peak() < 1 << 20


def test_a_fetch_of_many_bombs_is_decoded_piece_by_piece(impl: ModuleType) -> None:
    """Each batch is within its bound; all together would not be."""
    data = b"".join(batch([record(0, bytes(50_000))], base_offset=i, attributes=GZIP) for i in range(10))
    sizes, position = [], 0
    while position < 10:
        raw_columns = impl.decode_columns(data, start_offset=position, max_bytes=100_000)
        assert raw_columns.count
        sizes.append(raw_columns.count)
        position = raw_columns.next_offset
    assert raw_columns.complete
    assert sizes == [2] * 5


def test_a_long_damaged_batch_is_refused_in_reasonable_time(impl: ModuleType) -> None:
    data = batch([bytes(1 << 20)], count=(1 << 20) // 7, last_delta=1 << 21)
    began = now()
    with pytest.raises(CorruptRecordError):
        read(impl, data)
    assert now() - began < PATIENCE_S


# -- both implementations, held against each other -----------------------------------------------------------------------
small = st.integers(-1, 5)
blobs = st.one_of(st.none(), st.binary(max_size=8), st.binary(min_size=120, max_size=140))


@st.composite
def batches(draw: st.DrawFn) -> bytes:
    base = draw(st.sampled_from([0, 100, 2**40, 2**63 - 40]))
    deltas = sorted(draw(st.sets(st.integers(0, 30), max_size=6)))
    wide = st.sampled_from([0, 1, -1, 63, 64, 8191, 8192, -70_000, 2**40, -(2**50), 2**62])
    parts = []
    for delta in deltas:
        headers = draw(st.lists(st.tuples(st.binary(max_size=4), blobs), max_size=2))
        parts.append(record(delta, draw(blobs), draw(blobs), headers, draw(wide)))
    return batch(
        parts,
        base_offset=base,
        last_delta=max([*deltas, 0]) + draw(st.integers(0, 3)),
        attributes=draw(st.sampled_from([0, 0, 0, GZIP, LOG_APPEND, LOG_APPEND | GZIP, CONTROL])),
        base_timestamp=draw(st.sampled_from([0, -1, 1_700_000_000_000, 2**62])),
        max_timestamp=draw(st.integers(-1, 2**50)),
        producer_id=draw(small),
        producer_epoch=draw(small),
        base_sequence=draw(small),
        leader_epoch=draw(small),
    )


@st.composite
def message_sets(draw: st.DrawFn) -> bytes:
    magic = draw(st.integers(0, 1))
    kind = draw(st.sampled_from([0, LOG_APPEND])) if magic else 0

    def plain(offset: int) -> bytes:
        return message(offset, draw(blobs), draw(blobs), magic=magic, timestamp=draw(st.integers(-1, 99)), attributes=kind)

    offsets = sorted(draw(st.sets(st.integers(0, 9), min_size=1, max_size=4)))
    entries = [plain(o) for o in offsets]
    depth = draw(st.integers(0, 3))
    for _ in range(depth):
        entries = [
            wrapper(entries, offsets[-1], magic=magic, attributes=kind),
            *(plain(offsets[-1] + 1) for _ in range(draw(st.integers(0, 1)))),
        ]
        offsets = [offsets[-1] + len(entries) - 1]
    return b"".join(entries)


buffers = st.lists(st.one_of(batches(), message_sets(), st.just(marker(1, 50))), min_size=1, max_size=3)
column_options = st.fixed_dictionaries(
    {"start_offset": st.sampled_from([0, 3, 101, 2**40 + 2])},
    optional={
        "end_offset": st.sampled_from([2, 8, 104, 2**41]),
        "headers": st.booleans(),
        "keys": st.booleans(),
        "values": st.booleans(),
        "check_crcs": st.booleans(),
        "max_records": st.integers(1, 6),
        "max_data_bytes": st.sampled_from([1, 20, 150, 400]),
        "skip": st.sampled_from([{100}, frozenset(), None]),
        "max_bytes": st.sampled_from([10, 100, 1000]),
    },
)
parts = pytest.mark.parametrize("part", seeds(4))
"""Each part makes up buffers of its own."""
QUICK = 40
"""Examples of the part that is not thorough."""


def same(speed: ModuleType, data: bytes, step: int, options: dict[str, Any], how: dict[str, Any]) -> list[Any]:
    expected = outcome(_pure, data, step, **how)
    assert outcome(speed, data, step, **how) == expected
    fast = columns(speed, data, **options)
    assert columns(_pure, data, **options) == fast
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_pure_columns, "HAS_NUMPY", False)
        assert columns(_pure, data, **options) == fast
    return expected


reading = st.fixed_dictionaries(
    {}, optional={"min_offset": st.sampled_from([2, 101, 2**40 + 3]), "check_crcs": st.booleans(), "max_bytes": st.sampled_from([50, 500])}
)


@parts
def test_both_read_the_same(speed: ModuleType, part: int) -> None:
    def read_both(parts: list[bytes], step: int, options: dict[str, Any], how: dict[str, Any]) -> None:
        same(speed, b"".join(parts), step, options, how)

    tried(read_both, buffers, st.sampled_from([1, 2, 100]), column_options, reading, seed=part, examples=100 if part else QUICK)


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """Bytes changed, put in and taken out, the checksum made to fit in most cases: it would catch all the rest."""
    parts = draw(buffers)
    index = draw(st.integers(0, len(parts) - 1))
    part = bytearray(parts[index])
    interesting = st.sampled_from([0, 1, 2, 3, 0x7F, 0x80, 0x81, 0xFE, 0xFF])
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(part) - 1))
        how_to = draw(st.integers(0, 3))
        if how_to < 2:
            part[at] = draw(st.one_of(interesting, st.integers(0, 255)))
        elif how_to == 2:
            part[at:at] = bytes(draw(st.lists(interesting, min_size=1, max_size=6)))
        else:
            del part[at : at + draw(st.integers(1, 4))]
        if not part:
            part += b"\0"
    if len(part) > 12 and draw(st.booleans()):
        struct.pack_into(">i", part, 8, len(part) - 12)
    spoiled = bytes(part)
    if draw(st.integers(0, 9)):
        spoiled = fix_crc(spoiled)
    return b"".join([*parts[:index], spoiled, *parts[index + 1 :]])


@parts
def test_both_fail_the_same(speed: ModuleType, part: int) -> None:
    def read_both(data: bytes, step: int, options: dict[str, Any], how: dict[str, Any]) -> None:
        same(speed, data, step, options, how)

    tried(read_both, damaged(), st.sampled_from([1, 100]), column_options, reading, seed=part, examples=100 if part else QUICK)


@given(noise=st.binary(max_size=200))
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_noise_is_an_error_or_a_cut_tail(speed: ModuleType, noise: bytes) -> None:
    for impl in (speed, _pure):
        try:
            for header in impl.scan(noise):
                read(impl, noise[header.start : header.end])
        except (ProtocolError, UnsupportedCodec):
            pass
    assert outcome(speed, noise, 5) == outcome(_pure, noise, 5)


# -- lz4 as Java's client writes it, which the compiled half unpacks itself ------------------------------------------------
def in_lz4(frame: bytes, count: int) -> bytes:
    return batch([frame], attributes=CompressionType.LZ4, count=count, last_delta=count - 1, base_offset=100)


def test_damaged_lz4_is_told_alike(speed: ModuleType) -> None:
    """Every byte that describes the frame, and some of what it holds, changed in turn; cut off; within every bound."""
    noise = random.Random(3).randbytes(66_000)  # its first block is not compressed
    frame = compress(CompressionType.LZ4, b"".join([record(0, noise), *(record(n, b"value " * 3000) for n in range(1, 12))]))
    assert [frame[10] >> 7, frame[14 + 65536] >> 7] == [1, 0], "the blocks are not of the two kinds"
    places = [*range(12), *range(65545, 65556), *range(12, len(frame), 1999), *range(len(frame) - 5, len(frame))]
    for at in places:
        for flipped in (1, 0x10, 0x80):
            damaged = in_lz4(frame[:at] + bytes([frame[at] ^ flipped]) + frame[at + 1 :], 12)
            assert outcome(speed, damaged, 5) == outcome(_pure, damaged, 5), (at, flipped)
    for end in (0, 6, 7, 11, 12, 65546, len(frame) - 4, len(frame) - 1):
        assert outcome(speed, in_lz4(frame[:end], 12), 5) == outcome(_pure, in_lz4(frame[:end], 12), 5), end
    for room in (-1, 0, 70_000, 300_000, 1 << 40):
        assert outcome(speed, in_lz4(frame, 12), 5, max_bytes=room) == outcome(_pure, in_lz4(frame, 12), 5, max_bytes=room), room


def test_lz4_without_its_packages_is_told_alike(speed: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    frame = in_lz4(compress(CompressionType.LZ4, record(0, b"value")), 1)
    monkeypatch.setattr(compression, "lz4_block_reader", lambda: None)
    assert outcome(speed, frame, 5) == outcome(_pure, frame, 5)
    assert read(speed, frame)[0].value == b"value"
    for package in ("lz4", "lz4.frame"):
        monkeypatch.setitem(sys.modules, package, None)
    compression._lz4_package.cache_clear()
    with pytest.raises(UnsupportedCodec, match=r"pip install 'gkafka\[lz4\]'"):
        read(speed, frame)
