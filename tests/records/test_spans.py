"""A span of many batches gives the records, positions and errors that its batches give one by one."""

from __future__ import annotations

import contextlib
import random
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from hypothesis import strategies as st

from gkafka.common import CompressionType
from gkafka.exceptions import CorruptRecordError, KafkaException
from gkafka.records import _pure
from gkafka.records.compression import compress
from tests.effort import seeds, tried
from tests.records.handmade import GZIP, LOG_APPEND, TRANSACTIONAL, batch, marker, message, record, values
from tests.records.reading import CONTEXT, consumed, read, row
from tests.records.test_read_damage import batches, damaged, message_sets

MOST = 1000
"""More batches than a test makes."""


def ones(count: int, first: int = 0, **more: Any) -> bytes:
    """So many batches of one record."""
    return b"".join(values(1, base_offset=offset, **more) for offset in range(first, first + count))


def reader_of(impl: ModuleType, data: Any, **options: Any) -> Any:
    return impl.Records(data, impl.span_at(data, most=MOST), CONTEXT, **options)


def queue_of(reader: Any) -> Any:
    return SimpleNamespace(reader=reader, epoch=1, position=SimpleNamespace(epoch=1, paused=False, consumed=0))


def spans(impl: ModuleType, data: bytes, **options: Any) -> list[tuple[int, int, int]]:
    """First offset, last offset and number of batches of each span of a buffer."""
    found, start = [], 0
    while (span := impl.span_at(data, start, **options)) is not None:
        found.append((span.base_offset, span.last_offset, span.batches))
        start = span.end
    return found


# -- where spans end ---------------------------------------------------------------------------------------------------
def test_batches_that_follow_each_other_are_one_span(impl: ModuleType) -> None:
    data = ones(5) + values(3, base_offset=9, last_delta=4, leader_epoch=0) + batch([], base_offset=20, last_delta=2)
    span = impl.span_at(data)
    assert (span.start, span.end, span.batches, span.count) == (0, len(data), 7, 8)
    assert (span.base_offset, span.last_offset, span.next_offset, span.leader_epoch) == (0, 22, 23, 0)
    assert (span.first.base_offset, span.first.count) == (0, 1)
    assert repr(span) == f"<Span of 7 offsets 0-22 count 8 bytes 0-{len(data)}>"


def test_a_span_ends_where_something_is_to_be_decided(impl: ModuleType) -> None:
    assert spans(impl, ones(3) + marker(1, 3) + marker(0, 4) + ones(2, 5)) == [(0, 2, 3), (3, 3, 1), (4, 4, 1), (5, 6, 2)]
    assert spans(impl, ones(3) + ones(2, 3, leader_epoch=1)) == [(0, 2, 3), (3, 4, 2)]
    assert spans(impl, ones(3) + ones(2, 2)) == [(0, 2, 3), (2, 3, 2)], "offsets that do not follow"
    assert spans(impl, ones(9), offset=4) == [(0, 3, 4), (4, 8, 5)], "below what is wanted"
    assert spans(impl, ones(9), most=4) == [(0, 3, 4), (4, 7, 4), (8, 8, 1)]
    open_ones = ones(2, attributes=TRANSACTIONAL)
    assert spans(impl, open_ones + ones(2, 2)) == [(0, 3, 4)]
    assert spans(impl, open_ones + ones(2, 2), alone=True) == [(0, 0, 1), (1, 1, 1), (2, 3, 2)]
    old = message(0, b"a") + message(1, b"b") + message(2, b"c", attributes=LOG_APPEND)
    assert spans(impl, old + ones(2, 3)) == [(0, 1, 1), (2, 2, 1), (3, 4, 2)]


def test_a_span_is_bounded_in_bytes_and_a_large_batch_stands_alone(impl: ModuleType) -> None:
    quarter = [batch([record(0, bytes(250_000))], base_offset=n) for n in range(9)]
    assert spans(impl, b"".join(quarter)) == [(0, 3, 4), (4, 7, 4), (8, 8, 1)]
    large = batch([record(0, bytes(2_000_000))], base_offset=1)
    assert spans(impl, ones(1) + large + ones(1, 2)) == [(0, 0, 1), (1, 1, 1), (2, 2, 1)]


def test_a_cut_tail_and_damage_end_a_span_and_damage_alone_is_an_error(impl: ModuleType) -> None:
    for tail in (b"x" * 30, values(3, base_offset=2)[:-1], b"\xff" * 8 + b"\0\0\1\0" + bytes(5)):
        assert spans(impl, ones(2) + tail) == [(0, 1, 2)]
    assert impl.span_at(values(3)[:-1]) is None
    assert impl.span_at(b"") is impl.span_at(ones(1), 1000) is impl.span_at(ones(1), -1) is None
    with pytest.raises(CorruptRecordError, match=r"t\[3\] offset"):
        impl.span_at(b"x" * 30, topic="t", partition=3)


def test_a_span_of_another_buffer_is_refused(impl: ModuleType) -> None:
    with pytest.raises(ValueError, match="does not lie in this buffer"):
        impl.Records(ones(2), impl.span_at(ones(3)), CONTEXT)
    with pytest.raises(TypeError):
        impl.Records(ones(2), object(), CONTEXT)


# -- what is read of them ----------------------------------------------------------------------------------------------
MIXED = (
    ones(3)
    + values(4, base_offset=3, attributes=GZIP)
    + batch([], base_offset=7, last_delta=2)
    + values(2, base_offset=10, last_delta=5, attributes=LOG_APPEND)
    + values(2, base_offset=16, attributes=LOG_APPEND)
    + batch([], base_offset=18, last_delta=1, attributes=5)
    + values(3, base_offset=20)
    + batch([], base_offset=23, last_delta=6)
)


def test_one_take_hands_out_across_batches(impl: ModuleType) -> None:
    data = b"".join(values(3, base_offset=n * 3) for n in range(40))
    reader = reader_of(impl, data)
    assert reader.remaining == 120
    assert [m.offset for m in reader.take(100)] == list(range(100))
    assert (reader.remaining, reader.next_offset) == (20, 100)
    assert [m.offset for m in reader.take(100)] == list(range(100, 120))
    assert (reader.remaining, reader.next_offset) == (0, 120)


def test_behind_the_last_record_of_a_batch_the_position_is_behind_the_batch(impl: ModuleType) -> None:
    reader = reader_of(impl, MIXED)
    for count, stands in ((7, 7), (2, 16), (2, 18), (3, 23)):
        assert len(reader.take(count)) == count
        assert reader.next_offset == stands
    assert reader.remaining == 1, "the empty batch at the end is yet to be checked"
    assert reader.take(5) == []
    assert (reader.remaining, reader.next_offset) == (0, 30)


def test_messages_tell_what_their_own_batch_says(impl: ModuleType) -> None:
    assert [row(m) for m in reader_of(impl, MIXED).take(100)] == [row(m) for m in read(impl, MIXED)]


def test_a_take_is_bounded_in_bytes_over_batches_and_by_least(impl: ModuleType) -> None:
    data = b"".join(batch([record(0, bytes(100))], base_offset=n) for n in range(10))
    size = reader_of(impl, data).take(1)[0].size + 128
    reader = reader_of(impl, data)
    assert [m.offset for m in reader.take(9, 3 * size)] == [0, 1, 2]
    assert (reader.taken_bytes, reader.remaining, reader.next_offset) == (3 * size, 7, 3)
    assert [m.offset for m in reader.take(9, 1)] == [3]
    assert reader.take(9, 1, 0) == []
    assert [m.offset for m in reader.take(9, 1, 2)] == [4, 5]
    assert [m.offset for m in reader.take(9)] == [6, 7, 8, 9]


def test_a_take_does_not_open_batch_after_batch_for_ever(impl: ModuleType) -> None:
    """With greenlets nobody else runs within a take."""
    packed = compress(CompressionType.ZSTD, record(0, bytes(500)))
    data = b"".join(batch([packed], base_offset=n, count=1, attributes=CompressionType.ZSTD) for n in range(100))
    assert len(reader_of(impl, data).take(100)) == 32
    large = b"".join(batch([record(0, bytes(100_000))], base_offset=n) for n in range(9))
    assert len(reader_of(impl, large).take(100)) == 2


def test_a_span_of_empty_batches_is_passed_and_checked(impl: ModuleType) -> None:
    empty = [batch([], base_offset=n * 10, last_delta=9) for n in range(5)]
    reader = reader_of(impl, b"".join(empty))
    assert reader.remaining == 1
    assert reader.take(5) == []
    assert (reader.remaining, reader.next_offset) == (0, 50)
    spoiled = bytearray(b"".join(empty))
    spoiled[3 * len(empty[0]) + 17] ^= 1
    reader = reader_of(impl, spoiled)
    assert reader.take(5) == []
    assert (reader.remaining, reader.next_offset) == (1, 30), "the position is behind what was good"
    with pytest.raises(CorruptRecordError, match="offset 30: checksum"):
        reader.take(5)


def test_what_is_before_the_start_is_neither_opened_nor_counted(impl: ModuleType) -> None:
    spoiled = bytearray(ones(9))
    spoiled[-1 + 3 * len(values(1))] ^= 1  # of the third batch
    reader = reader_of(impl, spoiled, min_offset=5)
    assert (reader.remaining, reader.next_offset) == (4, 5)
    assert [m.offset for m in reader.take(9)] == [5, 6, 7, 8]
    reader = reader_of(impl, ones(9), min_offset=9)
    assert (reader.remaining, reader.next_offset) == (0, 9)


def test_damage_in_the_middle_comes_behind_the_good_records(impl: ModuleType) -> None:
    spoiled = bytearray(ones(9))
    spoiled[-1 + 4 * len(values(1))] ^= 1  # of the fourth batch
    reader = reader_of(impl, spoiled)
    assert [m.offset for m in reader.take(9)] == [0, 1, 2]
    assert (reader.remaining, reader.next_offset) == (1, 3)
    for _ in range(2):
        with pytest.raises(CorruptRecordError, match=r"t\[3\] offset 3: checksum mismatch") as caught:
            reader.take(9)
        assert (caught.value.offset, caught.value.next_offset) == (3, 4)


def test_a_buffer_that_is_changed_behind_its_scan_is_an_error(impl: ModuleType) -> None:
    data = bytearray(ones(9))
    reader, late = reader_of(impl, data), reader_of(impl, data)
    assert len(late.take(2)) == 2
    late_start = reader_of(impl, data)
    data[3 * len(values(1)) + 8 : 3 * len(values(1)) + 12] = b"\x7f\xff\xff\xff"
    for one, offsets in ((reader, [0, 1, 2]), (late, [2]), (late_start, [0, 1, 2])):
        assert [m.offset for m in one.take(9)] == offsets
        with pytest.raises(CorruptRecordError, match="changed since it was scanned"):
            one.take(9)
    with pytest.raises(CorruptRecordError, match="changed since it was scanned"):
        impl.Records(data, impl.span_at(ones(9)), CONTEXT, min_offset=5).take(1)


# -- steps -------------------------------------------------------------------------------------------------------------
def test_steps_go_on_in_the_next_batch_and_leave_the_last_record(impl: ModuleType) -> None:
    whole = [row(m) for m in read(impl, MIXED)]
    reader = reader_of(impl, MIXED)
    queue = queue_of(reader)
    found = [row(m) for m in reader.take(1)]
    while (message := reader.step(queue)) is not None:
        found.append(row(message))
        assert queue.position.consumed == reader.next_offset == message.offset + 1
    assert found == whole
    assert reader.remaining == 1
    assert reader.take(5) == []
    assert reader.next_offset == 30
    last = reader_of(impl, ones(4))
    assert last.take(1)
    assert [last.step(queue_of(last)).offset for _ in range(2)] == [1, 2]
    assert last.step(queue_of(last)) is None, "the last record of a span is left"
    assert [m.offset for m in last.take(5)] == [3]


def test_several_steps_go_over_batches(impl: ModuleType) -> None:
    reader = reader_of(impl, ones(20))
    queue = queue_of(reader)
    reader.take(1)
    looked = reader.steps(queue, 5, 1 << 40, stay=True)
    assert [m.offset for m in looked] == [1, 2, 3, 4, 5]
    assert (reader.remaining, reader.next_offset, queue.position.consumed) == (19, 1, 0)
    assert reader.step_to(queue, looked[:2])
    assert (reader.remaining, reader.next_offset, queue.position.consumed) == (17, 3, 3)
    assert reader.steps(queue, 5, 4 * (looked[0].size + 128)) == [], "they hold more than that"
    assert [m.offset for m in reader.steps(queue, 5, 5 * (looked[0].size + 128))] == [3, 4, 5, 6, 7]
    assert reader.steps(queue, 12, 1 << 40) == [], "the last one is left"
    assert [m.offset for m in reader.steps(queue, 11, 1 << 40)] == list(range(8, 19))
    assert [m.offset for m in reader.take(5)] == [19]


def test_a_step_leaves_damage_in_the_next_batch_to_take(impl: ModuleType) -> None:
    spoiled = bytearray(ones(9))
    spoiled[-1 + 4 * len(values(1))] ^= 1
    reader = reader_of(impl, spoiled)
    queue = queue_of(reader)
    assert reader.take(1)
    assert reader.steps(queue, 5, 1 << 40) == []
    assert [reader.step(queue).offset for _ in range(2)] == [1, 2]
    assert reader.step(queue) is None
    assert (reader.next_offset, queue.position.consumed) == (3, 3)
    with pytest.raises(CorruptRecordError, match="offset 3: checksum"):
        reader.take(1)


# -- as batch by batch -------------------------------------------------------------------------------------------------
@st.composite
def logs(draw: st.DrawFn) -> bytes:
    """Batches whose offsets follow, of all kinds, and in some cases others among them."""
    found, offset, epoch = [], draw(st.integers(0, 3)), 0
    for _ in range(draw(st.integers(1, 8))):
        count = draw(st.sampled_from([0, 1, 1, 1, 2, 5]))
        gap = draw(st.sampled_from([0, 0, 0, 3]))
        attributes = draw(st.sampled_from([0, 0, 0, 0, GZIP, LOG_APPEND, LOG_APPEND | GZIP, TRANSACTIONAL]))
        epoch += draw(st.sampled_from([0, 0, 0, 0, 1]))
        rows = [record(n, b"%d" % n, b"k" if n % 2 else None, [(b"h", None)] * (n % 3), n) for n in range(count)]
        found.append(batch(rows, base_offset=offset, last_delta=max(count - 1, 0) + gap, attributes=attributes, leader_epoch=epoch))
        offset += max(count, 1) + gap + draw(st.sampled_from([0, 0, 2]))
    if draw(st.integers(0, 3)) == 0:
        found.insert(draw(st.integers(0, len(found))), draw(st.one_of(batches(), message_sets(), st.just(marker(1, offset)))))
    return b"".join(found)


@st.composite
def spoiled_logs(draw: st.DrawFn) -> bytes:
    data = bytearray(draw(logs()))
    for _ in range(draw(st.integers(1, 2))):
        data[draw(st.integers(0, len(data) - 1))] ^= 1 << draw(st.integers(0, 7))
    return bytes(data[: len(data) - draw(st.sampled_from([0, 0, 1, 30]))])


any_logs = st.one_of(logs(), logs(), spoiled_logs(), damaged())
takes = st.lists(st.sampled_from([1, 2, 3, 7, 100]), min_size=1, max_size=3)
readings = st.fixed_dictionaries(
    {}, optional={"offset": st.integers(0, 30), "check_crcs": st.booleans(), "max_bytes": st.sampled_from([20, 500])}
)


@pytest.mark.parametrize("part", seeds(4))
def test_a_span_gives_what_its_batches_give(speed: ModuleType, part: int) -> None:
    def compare(data: bytes, sizes: list[int], most: int, how: dict[str, Any]) -> None:
        expected = consumed(_pure, data, sizes, most=1, **how)
        for impl in (_pure, speed):
            for bound in (1, most, MOST, None):
                assert consumed(impl, data, sizes, most=bound, **how) == expected

    tried(compare, any_logs, takes, st.integers(2, 5), readings, seed=part, examples=200 if part else 100)


@pytest.mark.parametrize("part", seeds(4))
def test_any_mix_of_takes_and_steps_gives_the_same(speed: ModuleType, part: int) -> None:
    def compare(data: bytes, chance: random.Random) -> None:
        start = 0
        with contextlib.suppress(CorruptRecordError):
            while (span := speed.span_at(data, start, most=MOST)) is not None:
                batches, start = data[span.start : span.end], span.end
                if not span.first.is_control:
                    rows = [entry for entry in consumed(speed, batches, [100], most=MOST) if is_row(entry)]
                    assert _mixed(speed, batches, chance) == _mixed(_pure, batches, chance) == rows

    tried(compare, any_logs, st.randoms(use_true_random=False), seed=part, examples=150 if part else 75)


def is_row(entry: Any) -> bool:
    return isinstance(entry, tuple) and len(entry) == 8


def _mixed(impl: ModuleType, data: bytes, chance: random.Random) -> list[Any]:
    reader = reader_of(impl, data)
    queue = queue_of(reader)
    found: list[Any] = []
    while reader.remaining:
        way, most = chance.randrange(5), chance.choice([1, 2, 3, 7])
        stood = reader.next_offset
        got: list[Any] = []
        if way == 0:
            got = [message for message in [reader.step(queue)] if message is not None]
        elif way == 1:
            got = reader.steps(queue, most, 1 << 40)
        elif way == 2:
            got = reader.steps(queue, most, 1 << 40, stay=True)
            assert (reader.next_offset, reader.steps(queue, most, 1 << 40, stay=True) != []) == (stood, got != [])
            got = got[: chance.randint(0, len(got))]
            assert reader.step_to(queue, got) is bool(got)
        else:
            try:
                got = reader.take(most)
            except KafkaException:
                return found
        if way < 3 and got:
            assert queue.position.consumed == reader.next_offset == got[-1].offset + 1
        found += [row(message) for message in got]
    return found
