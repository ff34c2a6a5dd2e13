"""A batch that a broker finds too large goes in parts (KIP-126): nothing is lost, doubled or moved, and each record has its own part's end."""

from __future__ import annotations

import gc
import threading
import weakref
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import gkafka.records._pure as pure
from gkafka.exceptions import KafkaTimeoutError, MessageSizeTooLarge
from gkafka.records._results import Record
from gkafka.records._split import before, cuts
from tests.records.reading import read
from tests.records.write_helpers import Owner, Row, fill, make_appender, some_rows

SIZES = st.lists(st.integers(0, 300) | st.just(5000), min_size=2, max_size=60)


def told(batch: Any) -> list[Any]:
    return [batch.record(i) for i in range(batch.count)]


def decoded(impl: Any, batch: Any, codec: int = 0) -> list[Any]:
    """What a reader finds in a batch's wire."""
    batch.seal(codec, None)
    return [(m.offset, m.timestamp, m.key, m.value, list(m.headers or [])) for m in read(impl, bytes(batch.wire))]


def in_parts(impl: Any, n: int = 6, **options: Any) -> tuple[Any, list[Any]]:
    """A batch of n equal records, and its two parts."""
    batch = fill(impl, [(i, None, b"v%d" % i, None) for i in range(n)], **options)
    parts = batch.split(batch.size // 2 + 40)
    assert [p.count for p in parts] == [n // 2, n // 2]
    return batch, parts


# -- the bytes ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
def test_the_parts_hold_the_records_in_order_as_batches_of_their_own(impl: Any, codec: int) -> None:
    rows = some_rows(40)
    batch = fill(impl, rows)
    before = told(batch)
    batch.seal(codec, None)
    parts = batch.split(600)
    assert len(parts) > 2
    assert [r for part in parts for r in told(part)] == before
    assert [p.first for p in parts] == [sum(p.count for p in parts[:i]) for i in range(len(parts))]
    assert all((p.topic, p.partition, p.created, p.sealed, p.done) == ("t", 1, 1.0, False, False) for p in parts)
    found = [decoded(impl, part, codec) for part in parts]
    assert [[m[0] for m in part] for part in found] == [list(range(p.count)) for p in parts], "offsets count from 0 in each"
    assert [m[1:] for part in found for m in part] == [(t, k, v, h or []) for t, k, v, h in rows]


@pytest.mark.parametrize("magic", [0, 1])
def test_what_was_sealed_as_a_message_set_is_split_too(impl: Any, magic: int) -> None:
    batch = fill(impl, some_rows(20, headers=False))
    before = told(batch)
    batch.seal_legacy(magic, 1, None)
    parts = batch.split(batch.size // 2)
    assert [r for part in parts for r in told(part)] == before
    for part in parts:
        part.seal_legacy(magic, 0, None)
        assert part.wire_size < batch.size


@given(SIZES, st.integers(1, 8000))
def test_every_split_makes_at_least_two_parts_of_at_most_the_wanted_size_or_one_record(sizes: list[int], limit: int) -> None:
    rows = [pure.Record("t", 0, None, bytes(n), [], i * 1000) for i, n in enumerate(sizes)]
    made = cuts(rows, limit)
    assert [row for cut in made for row in cut.rows] == rows
    assert len(made) >= 2
    assert all(cut.rows for cut in made)
    largest = max(pure.record_size(row.value) for row in rows)
    assert all(len(cut.rows) == 1 or cut.size <= max(limit, sum(sizes) // 2) + largest + 20 * len(cut.rows) for cut in made)


def test_records_of_one_size_are_halved(impl: Any) -> None:
    batch = fill(impl, [(5, None, b"x" * 100, None)] * 1000)
    assert [p.count for p in batch.split(batch.size // 2 + 61)] == [500, 500]


def test_a_large_record_among_small_ones_is_soon_alone(impl: Any) -> None:
    """B05: each split makes progress, however small the limit and however unequal the records."""
    rows: list[Row] = [(5, None, b"x" * (50_000 if i == 77 else 10), None) for i in range(200)]
    waiting, alone, rounds = [fill(impl, rows)], 0, 0
    while waiting:
        rounds += 1
        batch = waiting.pop()
        if batch.count == 1:
            alone += batch.size > 50_000
        elif batch.size > 6000:
            waiting += batch.split(batch.size // 2)
    assert alone == 1
    assert rounds < 12


@given(
    st.lists(st.tuples(st.integers(0, (1 << 63) - 1), st.none() | st.binary(max_size=70), st.none() | st.binary(max_size=200)), min_size=2),
    st.integers(1, 3000),
)
def test_both_implementations_cut_alike(rows: list[Any], limit: int) -> None:
    speed = pytest.importorskip("gkafka.records._speed")
    wires = []
    for impl in (pure, speed):
        batch = fill(impl, [(t, k, v, None) for t, k, v in rows])
        parts = batch.split(limit)
        left = batch.extra.available
        for part in parts:
            part.seal(0, None, producer_id=5, producer_epoch=1, base_sequence=part.first)
        wires.append((left, [(bytes(p.wire), p.size, p.count, p.first, p.max_timestamp) for p in parts]))
    assert wires[0] == wires[1]


# -- the ends ----------------------------------------------------------------------------------------------------------
def test_each_record_has_the_end_of_its_part(impl: Any) -> None:
    batch, (first, second) = in_parts(impl)
    deliveries = [impl.Delivery(batch, i) for i in range(6)]
    assert [d.done() for d in deliveries] == [False] * 6
    second.fail(MessageSizeTooLarge("refused", topic="t"))
    assert [d.done() for d in deliveries] == [False] * 3 + [True] * 3
    assert not batch.done
    assert "pending" in repr(deliveries[2])
    assert "failed: MessageSizeTooLarge" in repr(deliveries[3])
    first.complete(700, -1)
    assert batch.done
    assert [d.result().offset for d in deliveries[:3]] == [700, 701, 702]
    assert [d.result().timestamp for d in deliveries[:3]] == [0, 1, 2]
    assert all(d.exception() is None for d in deliveries[:3])
    for delivery in deliveries[3:]:
        with pytest.raises(MessageSizeTooLarge, match="refused"):
            delivery.result()
        assert isinstance(delivery.exception(), MessageSizeTooLarge)


def test_offsets_are_those_of_the_part_wherever_it_landed(impl: Any) -> None:
    batch, (first, second) = in_parts(impl)
    first.complete(10)
    second.complete(1000, 99)
    results = [impl.Delivery(batch, i).result() for i in range(6)]
    assert [r.offset for r in results] == [10, 11, 12, 1000, 1001, 1002]
    assert [r.timestamp for r in results] == [0, 1, 2, 99, 99, 99]
    assert batch.error is None


def test_parts_of_a_part_belong_to_the_whole(impl: Any) -> None:
    batch, (first, second) = in_parts(impl, 8)
    third, fourth = second.split(second.size // 2 + 40)
    assert [(p.first, p.count) for p in batch.parts] == [(0, 4), (4, 2), (6, 2)]
    assert third.parent is fourth.parent is batch
    for i, part in enumerate((fourth, first, third)):
        assert not batch.done
        part.complete(100 * i)
    assert batch.done
    assert [impl.Delivery(batch, i).result().offset for i in range(8)] == [100, 101, 102, 103, 200, 201, 0, 1]
    assert [impl.Delivery(batch, i).record.value for i in range(8)] == [b"v%d" % i for i in range(8)]


def test_callbacks_end_with_the_part_of_their_record(impl: Any) -> None:
    batch = fill(impl, some_rows(4, headers=False))
    calls: list[Any] = []
    early = [lambda d, i=i: calls.append(i) for i in range(4)]
    for i in (3, 0, 1):
        impl.Delivery(batch, i).add_done_callback(early[i])
    first, second = batch.split(batch.size // 2 + 40)
    late = lambda d: None  # noqa: E731
    impl.Delivery(batch, first.count).add_done_callback(late)
    ends = {0: first.complete(5), 1: second.fail(ValueError("x"))}
    assert [i for i, _ in ends[0]] == [i for i in (0, 1) if i < first.count]
    assert (first.count, late) in ends[1]
    assert (3, early[3]) in ends[1]
    impl.Delivery(batch, 3).add_done_callback(lambda d: calls.append(d.exception()))
    assert isinstance(calls.pop(), ValueError), "one that comes later is called at once"


def test_hooks_go_with_their_records(impl: Any) -> None:
    appender = make_appender(impl, batch_bytes=1 << 16)
    hook = lambda d: None  # noqa: E731
    appender.hooks = (hook,)
    batch = fill(impl, some_rows(4, headers=False), appender=appender)
    parts = batch.split(batch.size // 2 + 40)
    ends = [pair for part in parts for pair in part.complete(5)]
    assert ends == [(index, hook) for index in range(4)]
    assert batch.done


def test_whoever_waits_for_a_record_waits_for_its_part(impl: Any) -> None:
    owner = Owner()
    appender = make_appender(impl, owner)
    appender.open("t", 1, 1.0)
    deliveries = [appender.produce("t", b"v%d" % i, None, 1, 5) for i in range(4)]
    batch = appender.roll("t", 1)

    def divide(waited: Any) -> None:
        assert waited is batch
        _, second = batch.split(batch.size // 2 + 40)
        second.complete(7)

    owner.on_wait = divide
    assert deliveries[3].result(60.5).offset == 8
    owner.on_wait = lambda waited: None
    with pytest.raises(KafkaTimeoutError):
        deliveries[0].result(0)


# -- memory ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("codec", [None, 0, 1])
def test_memory_is_given_back_once(impl: Any, codec: int | None) -> None:
    """B06: the whole batch's when it is split, each part's when that is released."""
    gc.collect()
    before = impl.live_buffers()
    batch = fill(impl, some_rows(50), buffer_bytes=1 << 20)
    appender = batch.extra
    if codec is not None:
        batch.seal(codec, None)
    parts = batch.split(700)
    runs = sum(16 * len({r.timestamp for r in told(p)} - {told(p)[0].timestamp}) for p in parts)
    assert appender.available == (1 << 20) - sum(p.size for p in parts) - runs
    appender.release(batch)
    assert impl.Delivery(batch, 49).record is not None, "the records are in the parts"
    for part in parts:
        part.seal(1, None)
        appender.release(part)
        appender.release(part)
    assert impl.Delivery(batch, 49).record is None
    del batch, parts, part
    gc.collect()
    assert appender.available == 1 << 20
    assert impl.live_buffers() == before


def test_a_full_buffer_is_no_reason_not_to_split(impl: Any) -> None:
    rows: list[Row] = [(5, None, b"x" * 100, None)] * 60
    batch = fill(impl, rows, batch_bytes=16384, buffer_bytes=16384, max_record_bytes=16384, initial_bytes=16384)
    parts = batch.split(2000)
    assert sum(p.count for p in parts) == 60
    assert batch.extra.available > 0


def test_a_view_of_the_whole_batchs_wire_keeps_its_bytes(impl: Any) -> None:
    batch = fill(impl, some_rows(10))
    batch.seal(0, None)
    wire = batch.wire
    kept = bytes(wire)
    batch.split(300)
    assert bytes(wire) == kept
    with pytest.raises(ValueError, match="released"):
        _ = batch.wire


def test_what_cannot_be_split_says_so(impl: Any) -> None:
    one, done, released, parted = (fill(impl, some_rows(n)) for n in (1, 5, 5, 5))
    done.complete(1)
    released.extra.release(released)
    parted.split(100)
    for batch in (one, done, released, parted):
        with pytest.raises(ValueError, match="cannot be split"):
            batch.split(100)


def test_a_split_batch_that_is_kept_lets_its_producer_go(impl: Any) -> None:
    owner = Owner()
    owner.appender = make_appender(impl, owner)  # type: ignore[attr-defined]
    batch = fill(impl, some_rows(4), appender=owner.appender)  # type: ignore[attr-defined]
    batch.extra = None
    kept = impl.Delivery(batch, 0)
    parts = batch.split(100)
    gone = weakref.ref(owner)
    for part in parts:
        part.complete(1)
    del batch, parts, part, owner
    gc.collect()
    assert gone() is None
    assert kept.done()


def test_batches_that_nobody_finished_are_collected(impl: Any) -> None:
    batch = fill(impl, some_rows(4))
    batch.extra = None
    batch.split(100)
    gone = weakref.ref(batch)
    del batch
    gc.collect()
    assert gone() is None


def test_a_lock_is_not_held_while_a_batch_is_read(impl: Any) -> None:
    batch, parts = in_parts(impl, 6, lock=threading.Lock())
    assert [impl.Delivery(batch, i).record.value for i in range(6)] == [b"v%d" % i for i in range(6)]
    for part in parts:
        part.complete(1)
    assert batch.done


# -- what a topic's batches may hold -----------------------------------------------------------------------------------
def test_a_topic_may_have_smaller_batches(impl: Any) -> None:
    appender = make_appender(impl, batch_bytes=16384)
    assert appender.limit("t") == appender.limit("unknown") == 16384
    appender.set_limit("t", 1000)
    assert appender.limit("t") == 1000
    appender.open("t", 0, 1.0)
    while appender.append("t", 0, b"x" * 100, None, 5, None) is not None:
        pass
    assert 800 < appender.roll("t", 0).size <= 1000
    assert appender.open("t", 0, 1.0, pure.record_size(b"x" * 5000)) is not None
    assert appender.append("t", 0, b"x" * 5000, None, 5, None) is not None, "a larger record has one of its own"
    assert appender.append("t", 0, b"", None, 5, None) is None
    appender.set_limit("t", 1)
    assert appender.limit("t") == 128
    appender.set_limit("t", 1 << 30)
    assert appender.limit("t") == 16384


# -- where the broker says -----------------------------------------------------------------------------------------------
@given(data=st.data(), size=st.integers(2, 30))
def test_a_batch_is_cut_before_exactly_the_record_that_is_asked_for(data: Any, size: int) -> None:
    at = data.draw(st.integers(1, size - 1))
    rows = some_rows(size)
    first, second = cuts([Record("t", 1, k, v, h or [], t) for t, k, v, h in rows], before(at))
    assert (first.first, len(first.rows), second.first, len(second.rows)) == (0, at, at, size - at)


@pytest.mark.parametrize("at", [1, 7, 39])
def test_both_parts_of_a_cut_hold_their_records(impl: Any, at: int) -> None:
    rows = some_rows(40)
    batch = fill(impl, rows)
    batch.seal(1, None)
    parts = batch.split(before(at))
    assert [(part.first, part.count) for part in parts] == [(0, at), (at, 40 - at)]
    assert [m[1:] for part in parts for m in decoded(impl, part, 1)] == [(t, k, v, h or []) for t, k, v, h in rows]
