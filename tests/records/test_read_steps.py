"""`Records.step()`: one message and its position, or None where `take()` is to be asked."""

from __future__ import annotations

from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from gkafka.exceptions import CorruptRecordError
from tests.records.handmade import GZIP, LOG_APPEND, batch, message, record, values
from tests.records.reading import records, row


def queue_of(reader: Any) -> Any:
    """What a consumer's queue has for step()."""
    return SimpleNamespace(reader=reader, epoch=1, position=SimpleNamespace(epoch=1, paused=False, consumed=0))


def opened(impl: ModuleType, data: bytes, **options: Any) -> tuple[Any, Any]:
    reader = records(impl, data, **options)
    assert reader.step(queue_of(reader)) is None, "nothing checks a batch but take()"
    reader.take(1)
    return reader, queue_of(reader)


@pytest.mark.parametrize("attributes", [0, GZIP, LOG_APPEND])
def test_steps_give_what_take_gives(impl: ModuleType, attributes: int) -> None:
    rows = [record(i * 3, b"v%d" % i, b"k" * i, [(b"h", b"x")] * (i % 3), timestamp_delta=i) for i in range(20)]
    data = batch(rows, base_offset=100, last_delta=57, attributes=attributes)
    whole = [row(m) for m in records(impl, data).take(100)]
    reader, queue = opened(impl, data)
    for n in range(1, 19):
        taken = reader.step(queue)
        assert row(taken) == whole[n]
        assert queue.position.consumed == reader.next_offset == taken.offset + 1
        assert reader.remaining == 19 - n
    assert reader.step(queue) is None, "the last one is left"
    assert [row(m) for m in reader.take(5)] == [whole[19]]
    assert reader.step(queue) is None
    assert reader.take(5) == []


@pytest.mark.parametrize("attributes", [0, GZIP, LOG_APPEND])
def test_several_are_so_many_steps(impl: ModuleType, attributes: int) -> None:
    rows = [record(i * 3, b"v%d" % i, b"k" * i, timestamp_delta=i) for i in range(20)]
    data = batch(rows, base_offset=100, last_delta=57, attributes=attributes)
    whole = [row(m) for m in records(impl, data).take(100)]
    reader, queue = opened(impl, data)
    looked = reader.steps(queue, 4, 1 << 40, stay=True)
    assert [row(m) for m in looked] == whole[1:5]
    assert (reader.remaining, queue.position.consumed) == (19, 0), "nothing has moved"
    assert [row(m) for m in reader.steps(queue, 4, 1 << 40)] == whole[1:5]
    assert queue.position.consumed == reader.next_offset == 100 + 13
    assert not reader.step_to(queue, looked), "they are not the next ones any more"
    looked = reader.steps(queue, 6, 1 << 40, stay=True)
    assert reader.step_to(queue, looked[:2]), "a part of them may be"
    assert (reader.remaining, queue.position.consumed) == (13, 100 + 19)
    assert not reader.step_to(queue, looked[1:3])
    assert reader.steps(queue, 13, 1 << 40) == [], "the last one is left"
    assert reader.steps(queue, 5, 100) == [], "what is left may be more than that"
    assert [row(m) for m in reader.steps(queue, 12, 1 << 40)] == whole[7:19]
    assert [row(m) for m in reader.take(5)] == [whole[19]]
    assert reader.steps(queue, 1, 1 << 40) == []


def test_several_end_before_damage(impl: ModuleType) -> None:
    data = batch([*(record(i, b"%d" % i) for i in range(6)), record(3, b"again"), *(record(i, b"%d" % i) for i in range(7, 12))])
    reader, queue = opened(impl, data)
    assert [m.offset for m in reader.steps(queue, 9, 1 << 40, stay=True)] == [1, 2, 3, 4, 5]
    assert [m.offset for m in reader.steps(queue, 9, 1 << 40)] == [1, 2, 3, 4, 5]
    with pytest.raises(CorruptRecordError):
        reader.take(5)


def test_what_is_before_the_start_is_left_out(impl: ModuleType) -> None:
    reader, queue = opened(impl, values(10, base_offset=100), min_offset=104)
    assert [reader.step(queue).offset for _ in range(4)] == [105, 106, 107, 108]


@pytest.mark.parametrize("change", ["paused", "sought", "another batch"])
def test_nothing_is_taken_from_what_is_not_to_be_read(impl: ModuleType, change: str) -> None:
    reader, queue = opened(impl, values(10))
    if change == "paused":
        queue.position.paused = True
    elif change == "sought":
        queue.position.epoch += 1
    else:
        queue.reader = records(impl, values(10))
    looked = records(impl, values(10)).take(3)
    assert reader.step(queue) is None
    assert reader.steps(queue, 3, 1 << 40) == reader.steps(queue, 3, 1 << 40, stay=True) == []
    assert not reader.step_to(queue, looked[1:])
    assert queue.position.consumed == 0
    assert reader.next_offset == 1
    assert [m.offset for m in reader.take(100)] == list(range(1, 10))


def test_damage_is_left_to_take(impl: ModuleType) -> None:
    rows = [record(i, b"v") for i in range(5)]
    reader, queue = opened(impl, batch([*rows, record(2, b"again"), record(6, b"v")], last_delta=6))
    assert [reader.step(queue).offset for _ in range(4)] == [1, 2, 3, 4]
    assert reader.step(queue) is None
    assert queue.position.consumed == 5
    for _ in range(2):
        with pytest.raises(CorruptRecordError):
            reader.take(1)


def test_old_formats_are_left_to_take(impl: ModuleType) -> None:
    reader, queue = opened(impl, b"".join(message(i, b"v") for i in range(5)))
    assert reader.step(queue) is None
    assert [m.offset for m in reader.take(10)] == [1, 2, 3, 4]
