"""Messages: what they say, how long they keep their buffer, how they travel."""

from __future__ import annotations

import copy
import gc
import pickle
import sys
from types import ModuleType
from typing import Any

import pytest

from gkafka import common
from gkafka.common import CompressionType, TimestampType
from gkafka.exceptions import CorruptRecordError
from gkafka.records._message import Origin
from tests.records.handmade import batch, message, record, values
from tests.records.reading import CONTEXT, read, records, row

FULL = batch([record(0, b"value", b"key", [(b"a", b"1"), (b"b", None)], 7), record(1, None)], base_offset=10)


def one(impl: ModuleType) -> Any:
    return read(impl, FULL)[0]


def test_a_message_has_the_documented_names(impl: ModuleType) -> None:
    m = one(impl)
    assert (m.topic, m.partition_id, m.partition) == ("t", 3, "the partition")
    assert (m.offset, m.timestamp, m.timestamp_type) == (10, 1007, TimestampType.CREATE_TIME)
    assert (m.key, m.partition_key, m.value, m.payload) == (b"key", b"key", b"value", b"value")
    assert m.headers == [("a", b"1"), ("b", None)]
    assert (m.compression_type, m.response_code, m.produce_attempt) == (CompressionType.NONE, 0, 0)
    assert isinstance(m, common.Message)
    assert isinstance(m, impl.Message)


def test_the_size_is_what_the_record_takes_in_its_batch(impl: ModuleType) -> None:
    assert [m.size for m in read(impl, FULL)] == [len(record(0, b"value", b"key", [(b"a", b"1"), (b"b", None)], 7)), len(record(1, None))]
    assert [m.size for m in read(impl, message(0, b"abc") + message(1, None))] == [len(message(0, b"abc")), len(message(1, None))]


def test_a_message_never_shows_its_key_or_value(impl: ModuleType) -> None:
    assert repr(one(impl)) == f"<Message t[3] offset 10, {one(impl).size} bytes>"


def test_null_and_empty_differ(impl: ModuleType) -> None:
    first, second = read(impl, batch([record(0, b"", None), record(1, None, b"")]))
    assert (first.key, first.value) == (None, b"")
    assert (second.key, second.value) == (b"", None)


def test_a_header_s_key_that_is_not_utf8_is_replaced_as_in_java(impl: ModuleType) -> None:
    (m,) = read(impl, batch([record(0, b"", None, [(b"\xff", b"\xff"), ("ü".encode(), b"")])]))
    assert m.headers == [("\ufffd", b"\xff"), ("ü", b"")]


def test_messages_are_equal_only_to_themselves(impl: ModuleType) -> None:
    m = one(impl)
    assert m == copy.copy({"m": m})["m"]
    assert m != one(impl)
    assert len({m, one(impl)}) == 2


def test_two_reads_do_not_disturb_each_other(impl: ModuleType) -> None:
    takers = [records(impl, values(10)) for _ in range(2)]
    assert [[m.value for m in taker.take(1)] for _ in range(10) for taker in takers] == [[b"%d" % (i // 2)] for i in range(20)]


# -- lifetime ----------------------------------------------------------------------------------------------------------
def test_a_buffer_is_free_again_when_its_last_message_dies(impl: ModuleType) -> None:
    """The network room reuses a buffer when nothing else refers to it."""
    pooled = bytearray(values(10))
    idle = sys.getrefcount(pooled)
    taker = records(impl, memoryview(pooled))
    messages = taker.take(3)
    assert sys.getrefcount(pooled) > idle
    messages += taker.take(100)
    kept = messages[5]
    assert kept.value == b"5"
    del messages, kept
    assert taker.remaining == 0
    assert sys.getrefcount(pooled) == idle
    pooled.append(0)  # a bytearray that is lent out anywhere cannot grow


def test_a_buffer_is_free_again_when_half_read_records_die(impl: ModuleType) -> None:
    pooled = bytearray(values(10))
    idle = sys.getrefcount(pooled)
    taker = records(impl, pooled)
    del taker.take(3)[:]
    del taker
    assert sys.getrefcount(pooled) == idle
    pooled.append(0)


def test_a_buffer_is_free_again_after_an_error(impl: ModuleType) -> None:
    pooled = bytearray(batch([record(0, b""), record(1, b""), b"\x50" * 9], count=3))
    idle = sys.getrefcount(pooled)
    taker = records(impl, pooled)
    assert len(taker.take(2)) == 2
    with pytest.raises(CorruptRecordError, match=r"t\[3\] offset 2"):
        taker.take(1)
    gc.collect()
    assert sys.getrefcount(pooled) == idle
    pooled.append(0)


def test_a_message_outlives_the_memoryview_it_came_by(impl: ModuleType) -> None:
    view = memoryview(bytes(FULL))
    (first, _) = records(impl, view).take(9)
    view.release()
    assert (first.value, first.headers) == (b"value", [("a", b"1"), ("b", None)])


def test_a_detached_message_keeps_no_buffer(impl: ModuleType) -> None:
    pooled = bytearray(FULL)
    idle = sys.getrefcount(pooled)
    first, second = [m.detach() for m in records(impl, pooled).take(9)]
    assert sys.getrefcount(pooled) == idle
    pooled[:] = bytes(len(pooled))
    assert row(first) == row(one(impl))
    assert (second.offset, second.key, second.value, second.headers) == (11, None, None, [])
    assert first.partition == "the partition"
    assert first.detach().headers == first.headers


@pytest.mark.parametrize("move", [lambda m: pickle.loads(pickle.dumps(m)), copy.copy, copy.deepcopy], ids=["pickle", "copy", "deepcopy"])
def test_messages_are_copied_whole(impl: ModuleType, move: Any) -> None:
    for buffer in (FULL, message(4, b"v") + message(5, None, b"k")):
        for m in read(impl, buffer):
            moved = move(m)
            assert row(moved) == row(m)
            assert (moved.topic, moved.partition_id) == ("t", 3)


def test_a_message_of_parts_is_like_one_that_was_read(impl: ModuleType) -> None:
    m = impl.make_message(Origin("t", 3), 5, 6, TimestampType.LOG_APPEND_TIME, b"k", None, [("h", b"1"), ("ü", None)], size=77)
    assert row(m) == (5, 6, TimestampType.LOG_APPEND_TIME, b"k", None, [("h", b"1"), ("ü", None)], CompressionType.NONE, 77)
    assert (m.topic, m.partition_id, m.partition) == ("t", 3, None)
    assert m.detach().headers == m.headers


def test_many_messages_come_and_go(impl: ModuleType) -> None:
    """More than the freelist holds, in changing order."""
    data = values(5000)
    kept: list[Any] = []
    for _ in range(3):
        messages = records(impl, data).take(5000)
        kept = [*kept[::7], *messages[::3]]
        del messages
        assert all(m.value == b"%d" % m.offset for m in kept)


def test_a_context_without_names_is_an_attribute_error(impl: ModuleType) -> None:
    header = impl.scan(FULL)[0]
    with pytest.raises(AttributeError):
        impl.Records(FULL, header, object()).take(1)


def test_a_message_that_was_not_read_says_so(speed: ModuleType) -> None:
    with pytest.raises(TypeError, match="made by Records"):
        speed.Message()
    empty = speed.Message.__new__(speed.Message)
    assert (empty.key, empty.value, empty.headers) == (b"", b"", [])
    for name in ("topic", "partition", "timestamp_type"):
        with pytest.raises(TypeError, match="not read from anywhere"):
            getattr(empty, name)
    with pytest.raises(TypeError, match="not read from anywhere"):
        empty.detach()


def test_records_take_their_names_from_the_context(impl: ModuleType) -> None:
    (first, *_) = impl.Records(FULL, impl.scan(FULL)[0], Origin("other", 9, CONTEXT)).take(1)
    assert (first.topic, first.partition_id, first.partition) == ("other", 9, CONTEXT)
