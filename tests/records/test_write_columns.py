"""Columns into open batches: the same bytes as one record after another, in both implementations."""

from __future__ import annotations

import struct
from collections.abc import Callable
from types import ModuleType
from typing import Any
from zlib import crc32

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gkafka.records._pure as pure
from gkafka.exceptions import ConfigurationError, SerializationError
from gkafka.records import RecordColumns
from gkafka.records._raw import BinaryColumn, HeaderColumn
from gkafka.records.recordcolumns import IntColumn
from tests.records.write_helpers import Owner, make_appender

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
Rows = list[tuple[Any, Any, Any]]


def columns_of(rows: Rows, partitions: list[int | None] | None = None) -> RecordColumns:
    """rows: (value, key, headers)."""
    values, keys, headers = zip(*rows, strict=True) if rows else ((), (), ())
    return RecordColumns.from_arrow(
        value=pa.array(values, pa.binary()),
        key=pa.array(keys, pa.binary()),
        headers=pa.array(headers, HEADERS),
        partition=None if partitions is None else pa.array(partitions, pa.int32()),
    )


def encode(impl: ModuleType, appender: Any, columns: RecordColumns, first: int = 0, stamp: int = 5, targets: Any = None) -> int:
    targets = impl.choose_partitions(columns, 4) if targets is None else targets
    number: int = impl.encode_columns(appender, "t", columns, targets, first, stamp)
    return number


def contents(appender: Any) -> dict[int, list[Any]]:
    """Partition -> (value, key, headers, timestamp) of its open batch; the batch's bytes last."""
    found: dict[int, list[Any]] = {}
    for batch in appender.open_batches():
        rows = [batch.record(i) for i in range(batch.count)]
        found[batch.partition] = [(r.value, r.key, r.headers or None, r.timestamp) for r in rows]
        rolled = appender.roll("t", batch.partition)
        if rolled.count:
            rolled.seal(0)
            found[batch.partition].append(bytes(rolled.wire))
    return found


def opened(impl: ModuleType, **options: Any) -> Any:
    appender = make_appender(impl, **options)
    for partition in range(4):
        appender.open("t", partition, 1.0)
    return appender


ROWS: Rows = [
    (b"one", b"k1", None),
    (None, b"k1", [("a", b"1"), ("b", None)]),
    (b"", b"", [("", b"")]),
    (b"v" * 300, None, [("ümlaut", b"\x00\xff")]),
    (None, None, []),
]


# -- which bytes ---------------------------------------------------------------------------------------------------------
def test_columns_become_the_bytes_that_single_records_do(impl: ModuleType) -> None:
    columns = columns_of(ROWS)
    one, many = opened(impl), opened(impl)
    assert encode(impl, many, columns) == len(ROWS)
    for value, key, headers in ROWS:
        target = None if key is None else pure.murmur2(key) % 4
        one.produce("t", value, key, target, 5, headers)
    assert contents(many) == contents(one)


def test_a_known_batch_of_columns(impl: ModuleType) -> None:
    appender = opened(impl)
    encode(impl, appender, columns_of([(b"v", b"k", [("h", b"x")]), (b"w", None, None)], [3, 3]), stamp=7)
    records = bytes.fromhex("18 00 00 00 02 6b 02 76 02 02 68 02 78".replace(" ", "")) + bytes.fromhex(
        "0e 00 00 02 01 02 77 00".replace(" ", "")
    )
    assert contents(appender)[3][-1][61:] == records


rows = st.lists(
    st.tuples(
        st.none() | st.binary(max_size=30),
        st.none() | st.binary(max_size=12),
        st.none() | st.lists(st.tuples(st.text(st.characters(codec="utf-8"), max_size=4), st.none() | st.binary(max_size=5)), max_size=3),
    ),
    max_size=30,
)


@settings(max_examples=60, deadline=None)
@given(rows, st.lists(st.none() | st.integers(0, 3), min_size=30, max_size=30), st.sampled_from([128, 300, 16384]), st.data())
def test_both_implementations_write_the_same(rows: Rows, partitions: list[int | None], batch_bytes: int, data: Any) -> None:
    speed = pytest.importorskip("gkafka.records._speed")
    columns = columns_of(rows, partitions[: len(rows)])
    first = data.draw(st.integers(0, len(rows)))
    outcomes = []
    for impl in (speed, pure):
        appender = opened(impl, batch_bytes=batch_bytes, buffer_bytes=max(4096, batch_bytes), initial_bytes=128)
        targets = impl.choose_partitions(columns, 4)
        at = encode(impl, appender, columns, first, 5, targets)
        again = encode(impl, appender, columns, min(at + 1, len(rows)), 9, targets)
        outcomes.append((bytes(targets), at, again, contents(appender), appender.available))
    assert outcomes[0] == outcomes[1]


@settings(max_examples=40, deadline=None)
@given(rows, st.integers(0, 10), st.integers(0, 10))
def test_slices_of_arrays_are_the_rows_that_they_show(rows: Rows, begin: int, size: int) -> None:
    arrays = [pa.array([row[i] for row in rows], kind).slice(begin, size) for i, kind in enumerate((pa.binary(), pa.binary(), HEADERS))]
    columns = RecordColumns.from_arrow(*arrays)
    expected = [(value, key, headers or None) for value, key, headers in rows[begin : begin + size]]
    assert [columns.row(i) for i in range(columns.count)] == expected


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.large_binary(), pa.string_view(), pa.binary_view()], ids=str)
def test_every_arrow_type_of_strings_is_taken(kind: pa.DataType) -> None:
    values = ["a", None, "a longer string, beyond what a view holds"]
    array = pa.array([v if v is None or "string" in str(kind) else v.encode() for v in values], kind)
    columns = RecordColumns.from_arrow(value=array, key=array[::-1] if not str(kind).endswith("view") else None)
    assert [columns.row(i)[0] for i in range(3)] == [None if v is None else v.encode() for v in values]


def test_columns_of_nulls_only_are_nulls(impl: ModuleType) -> None:
    columns = RecordColumns.from_arrow(
        value=pa.nulls(3), key=pa.nulls(3, pa.binary()), headers=pa.nulls(3, HEADERS), partition=pa.nulls(3, pa.int32())
    )
    assert list(impl.choose_partitions(columns, 4)) == [-1, -1, -1]
    appender = opened(impl)
    assert encode(impl, appender, columns) == 3
    assert contents(appender)[2][:3] == [(None, None, None, 5)] * 3  # 2 is the sticky one


# -- which partitions ----------------------------------------------------------------------------------------------------
def test_a_key_goes_where_java_puts_it(impl: ModuleType) -> None:
    """Numbers of org.apache.kafka.common.utils.Utils.murmur2, as in Kafka's UtilsTest."""
    known = {b"21": -973932308, b"foobar": -790332482, b"a-little-bit-long-string": -985981536, b"a-little-bit-longer-string": -1486304829}
    columns = columns_of([(b"v", key, None) for key in known])
    for count in (1, 7, 1000):
        assert list(impl.choose_partitions(columns, count)) == [(number & 0x7FFFFFFF) % count for number in known.values()]


def test_a_partition_given_goes_before_the_key(impl: ModuleType) -> None:
    columns = columns_of([(b"v", b"foobar", None)] * 3, [3, None, 0])
    assert list(impl.choose_partitions(columns, 4)) == [3, pure.murmur2(b"foobar") % 4, 0]


def test_crc32_takes_an_empty_key_for_none(impl: ModuleType) -> None:
    columns = columns_of([(b"v", key, None) for key in (b"k", b"", None)])
    assert list(impl.choose_partitions(columns, 1000, by_crc32=True)) == [crc32(b"k") % 1000, -1, -1]


@pytest.mark.parametrize("number", [4, -1, 2**31 - 1])
def test_a_partition_that_is_not_there_is_named_with_its_row(impl: ModuleType, number: int) -> None:
    columns = columns_of([(b"v", None, None)] * 2, [0, number])
    with pytest.raises(ConfigurationError, match=f"^partition={number}: the topic has the partitions 0 to 3") as caught:
        impl.choose_partitions(columns, 4)
    assert caught.value.row == 1
    with pytest.raises(ValueError, match="partition_count=0"):
        impl.choose_partitions(columns, 0)


# -- where it stops ------------------------------------------------------------------------------------------------------
def test_it_stops_at_the_row_whose_batch_is_full_or_not_open(impl: ModuleType) -> None:
    appender = make_appender(impl, batch_bytes=200, initial_bytes=128)
    columns = columns_of([(b"x" * 40, None, None)] * 9, [1, 1, 1, 1, 0, 0, 0, 0, 0])
    assert encode(impl, appender, columns) == 0  # nothing is open
    appender.open("t", 1, 1.0)
    assert encode(impl, appender, columns) == 2  # 61 + 2 * 47 bytes, a third does not fit
    appender.roll("t", 1)
    appender.open("t", 1, 1.0)
    assert encode(impl, appender, columns, 2) == 4  # partition 0 has none
    appender.fast = False
    assert encode(impl, appender, columns, 2) == 2


def test_it_stops_where_memory_ends(impl: ModuleType) -> None:
    appender = make_appender(impl, batch_bytes=16384, buffer_bytes=1024, initial_bytes=128)
    appender.open("t", 1, 1.0)
    columns = columns_of([(b"x" * 90, None, None)] * 20, [1] * 20)
    assert encode(impl, appender, columns) == 9
    assert appender.available == 0


def test_it_stops_at_a_record_over_the_size_limit(impl: ModuleType) -> None:
    appender = opened(impl, max_record_bytes=200)
    fits, too_large = 200 - 61 - 2 - 6 - 1, 200 - 61 - 2 - 6  # record length 2 bytes; attributes, deltas, key, value length, headers
    columns = columns_of([(b"x" * fits, None, None), (b"x" * (too_large + 1), None, None)], [1, 1])
    assert encode(impl, appender, columns) == 1


def test_it_stops_at_headers_that_no_record_can_have(impl: ModuleType) -> None:
    """Its caller then says what is wrong."""
    pairs = pa.StructArray.from_arrays([pa.array(["a", None]), pa.array([b"1", b"2"])], ["key", "value"])
    columns = RecordColumns.from_arrow(value=pa.array([b"v", b"v"]), headers=pa.ListArray.from_arrays([0, 1, 2], pairs))
    assert encode(impl, opened(impl), columns) == 1
    with pytest.raises(SerializationError, match=r"headers\[0\] has no key"):
        columns.row(1)
    latin = BinaryColumn(memoryview(struct.pack("2i", 0, 1)), memoryview(b"\xff"), None, 0)
    bad = RecordColumns(1, headers=HeaderColumn(memoryview(struct.pack("2i", 0, 1)), latin, latin))
    assert encode(impl, opened(impl), bad) == 0
    with pytest.raises(SerializationError, match="its key is not UTF-8"):
        bad.row(0)


def test_a_null_struct_among_headers_is_one_without_a_key(impl: ModuleType) -> None:
    columns = RecordColumns.from_arrow(headers=pa.array([[None]], HEADERS))
    assert encode(impl, opened(impl), columns) == 0
    with pytest.raises(SerializationError, match=r"headers\[0\] has no key"):
        columns.row(0)


def test_a_null_list_has_no_headers_whatever_its_offsets_span(impl: ModuleType) -> None:
    pairs = pa.array([{"key": "a", "value": b"1"}] * 2, HEADERS.value_type)
    lists = pa.Array.from_buffers(HEADERS, 2, [pa.py_buffer(b"\x02"), pa.py_buffer(struct.pack("3i", 0, 1, 2))], children=[pairs])
    columns = RecordColumns.from_arrow(headers=lists)
    assert [columns.row(i)[2] for i in range(2)] == [None, [("a", b"1")]]
    appender = opened(impl)
    assert encode(impl, appender, columns) == 2
    assert [row[2] for row in contents(appender)[2][:2]] == [None, [("a", b"1")]]


# -- bad buffers ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("ends", [(0, 9), (3, 1), (-1, 2), (2**31 - 1, -5)])
def test_offsets_outside_the_bytes_stop_it_and_are_an_error(impl: ModuleType, ends: tuple[int, int]) -> None:
    column = BinaryColumn(memoryview(struct.pack("2i", *ends)), memoryview(b"12345678"), None, 0)
    for columns in (RecordColumns(1, values=column), RecordColumns(1, keys=column)):
        assert list(impl.choose_partitions(columns, 4)) == [-1]
        assert encode(impl, opened(impl), columns) == 0
        with pytest.raises(ValueError, match="row 0 has the bytes"):
            columns.row(0)
    some = BinaryColumn(memoryview(struct.pack("3i", 0, 1, 2)), memoryview(b"ab"), None, 0)
    columns = RecordColumns(1, headers=HeaderColumn(memoryview(struct.pack("2i", *ends)), some, some))
    assert encode(impl, opened(impl), columns) == 0
    with pytest.raises(ValueError, match="row 0 has the headers"):
        columns.row(0)


def test_buffers_that_are_too_small_are_refused() -> None:
    two = BinaryColumn(memoryview(bytes(12)), memoryview(b""), None, 0)
    with pytest.raises(ValueError, match="values: a buffer of 12 bytes does not hold 4 numbers"):
        RecordColumns(3, values=two)
    with pytest.raises(ValueError, match="keys: a buffer of 12 bytes does not hold 3 numbers of 4 bytes from number 1"):
        RecordColumns(2, keys=BinaryColumn(two.offsets, two.data, None, 0, first=1))
    with pytest.raises(ValueError, match="keys: a validity of 1 bytes does not hold 9 bits"):
        RecordColumns(9, keys=BinaryColumn(memoryview(bytes(40)), memoryview(b""), memoryview(b"\xff"), 0))
    with pytest.raises(ValueError, match="partitions: a buffer of 4 bytes"):
        RecordColumns(2, partitions=IntColumn(memoryview(bytes(4))))
    with pytest.raises(ValueError, match="headers: a buffer of 4 bytes"):
        RecordColumns(1, headers=HeaderColumn(memoryview(bytes(4)), two, two))
    with pytest.raises(ValueError, match="count=-1"):
        RecordColumns(-1)


def test_arguments_out_of_range_are_refused(impl: ModuleType) -> None:
    columns = columns_of(ROWS)
    with pytest.raises(ValueError, match="targets: 1 partitions for 5 records"):
        encode(impl, opened(impl), columns, targets=memoryview(bytes(4)))
    with pytest.raises(ValueError, match="first=6"):
        encode(impl, opened(impl), columns, 6)
    with pytest.raises(ValueError, match="timestamp_ms=-1"):
        encode(impl, opened(impl), columns, stamp=-1)


def test_an_unknown_topic_and_targets_that_are_no_partition_take_nothing(impl: ModuleType) -> None:
    columns, targets = columns_of(ROWS), memoryview(struct.pack("5i", 4, -2, 1, 1, 1))
    assert impl.encode_columns(opened(impl), "another", columns, targets, 0, 5) == 0
    assert encode(impl, opened(impl), columns, 0, targets=targets) == 0
    assert encode(impl, opened(impl), columns, 1, targets=targets) == 1
    assert encode(impl, opened(impl), columns, 2, targets=targets) == 5


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (dict, "no column is given"),
        (lambda: {"value": pa.array([1])}, "value is int64: must be binary or string; cast it"),
        (lambda: {"key": pa.array([1.5])}, "key is double"),
        (lambda: {"value": pa.array([b"a"]), "key": pa.array([b"a", b"b"])}, "columns of different lengths: {'value': 1, 'key': 2}"),
        (lambda: {"partition": pa.array([1], pa.int64())}, "partition is int64: must be int32"),
        (lambda: {"headers": pa.array(["x"])}, "headers is string: must be a list of struct"),
        (lambda: {"headers": pa.array([[{"k": "x"}]])}, "headers: its structs have the fields k: must be key and value"),
        (lambda: {"value": pa.chunked_array([[b"a"]])}, "value is ChunkedArray: must be a pyarrow.Array"),
    ],
)
def test_arrays_of_other_types_are_refused(given: Callable[[], dict[str, Any]], text: str) -> None:
    """Made here: with the first array pyarrow imports pandas, which each process that collects tests would wait for."""
    with pytest.raises(ConfigurationError) as caught:
        RecordColumns.from_arrow(**given())
    assert str(caught.value).startswith(text)


def test_a_forked_child_takes_nothing(impl: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    appender = make_appender(pure, Owner())
    appender.open("t", 1, 1.0)
    monkeypatch.setattr("os.getpid", lambda: -1)
    assert encode(pure, appender, columns_of(ROWS), targets=memoryview(struct.pack("5i", 1, 1, 1, 1, 1))) == 0
