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
    assert reader.step(queue) is None
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
