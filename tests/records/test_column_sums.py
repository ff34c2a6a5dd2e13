"""What columns hold, as two numbers: the same in both implementations, however records are ordered and cut."""

from __future__ import annotations

import struct
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gkafka.records._pure as pure
from gkafka.exceptions import SerializationError
from gkafka.records import RecordColumns
from gkafka.records._raw import BinaryColumn, HeaderColumn
from gkafka.records.recordcolumns import IntColumn
from tests.records.test_write_columns import HEADERS, columns_of

texts = st.none() | st.binary(max_size=40)
headers = st.none() | st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=9)), max_size=3)
ROW = (b"value", b"key", [("h", b"1"), ("h", None)])


def as_pairs(row: Any) -> Any:
    value, key, told = row
    return value, key, None if told is None else [{"key": name, "value": data} for name, data in told]


def measured(impl: ModuleType, rows: Any, partitions: list[int | None] | None = None, start: int = 0) -> tuple[int, int]:
    found: tuple[int, int] = impl.measure_columns(columns_of([as_pairs(row) for row in rows], partitions), start)
    return found


@settings(max_examples=40)
@given(st.lists(st.tuples(texts, texts, headers), max_size=8), st.randoms(), st.integers(0, 2**32 - 1))
def test_neither_order_nor_cuts_matter(impl: ModuleType, rows: Any, chance: Any, start: int) -> None:
    whole = measured(impl, rows, start=start)
    assert whole == measured(pure, rows, start=start)
    assert whole[0] == sum(len(value or b"") + len(key or b"") for value, key, _ in rows)
    shuffled = chance.sample(rows, len(rows))
    cut = chance.randint(0, len(rows))
    parts = [measured(impl, part, start=start) for part in (shuffled[:cut], shuffled[cut:])]
    assert (parts[0][0] + parts[1][0], (parts[0][1] + parts[1][1]) % 2**64) == whole


@pytest.mark.parametrize(
    "other",
    [
        (b"valuek", b"ey", ROW[2]),
        (b"key", b"value", ROW[2]),
        (b"value", None, ROW[2]),
        (b"value", b"key", None),
        (b"value", b"key", [("h", None), ("h", b"1")]),
        (b"value", b"key", [("h1", b""), ("h", None)]),
    ],
)
def test_all_that_is_in_a_record_counts(impl: ModuleType, other: Any) -> None:
    assert measured(impl, [ROW])[1] != measured(impl, [other])[1]


def test_records_that_exchange_their_keys_are_others(impl: ModuleType) -> None:
    """CRCs are linear: with their sum alone some of such pairs are not told from each other, this one of md5 texts for one."""
    first, second = b"68d30a9594728bc39aa24be94b319d21", b"6a9aeddfc689c1d0e3b9ccc3ab651bc5"
    found = measured(impl, [(first, b"00084", None), (second, b"00282", None)])
    exchanged = measured(impl, [(second, b"00084", None), (first, b"00282", None)])
    assert found[0] == exchanged[0]
    assert found[1] != exchanged[1]


def test_null_is_not_empty_and_no_headers_are_none(impl: ModuleType) -> None:
    sums = {measured(impl, [(value, key, None)])[1] for value in (None, b"") for key in (None, b"")}
    assert len(sums) == 4
    assert measured(impl, [(b"v", None, None)]) == measured(impl, [(b"v", None, [])])


def test_a_record_without_a_partition_is_the_same_with_and_without_the_column(impl: ModuleType) -> None:
    assert measured(impl, [ROW] * 2) == measured(impl, [ROW] * 2, [None, None])
    sums = [measured(impl, [ROW], [partition])[1] for partition in (None, 0, 1, 2**31 - 1)]
    assert len(set(sums)) == 4
    assert sums == [measured(pure, [ROW], [partition])[1] for partition in (None, 0, 1, 2**31 - 1)]


def test_a_part_of_an_array_counts_alone(impl: ModuleType) -> None:
    import pyarrow as pa

    arrays = {"value": pa.array([b"a", None, b"c"]), "partition": pa.array([None, 1, 2], pa.int32())}
    lists = pa.array([[{"key": "x", "value": b"1"}], None, [{"key": "y", "value": None}]], HEADERS)
    rest = RecordColumns.from_arrow(**{name: array[1:] for name, array in arrays.items()}, headers=lists[1:])
    assert impl.measure_columns(rest) == measured(impl, [(None, None, None), (b"c", None, [("y", None)])], [1, 2])


# -- bad buffers ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("ends", [(0, 9), (3, 1), (-1, 2), (2**31 - 1, -5)])
def test_offsets_outside_the_bytes_are_an_error(impl: ModuleType, ends: tuple[int, int]) -> None:
    column = BinaryColumn(memoryview(struct.pack("2i", *ends)), memoryview(b"12345678"), None, 0)
    for columns in (RecordColumns(1, values=column), RecordColumns(1, keys=column)):
        with pytest.raises(ValueError, match="row 0 has the bytes"):
            impl.measure_columns(columns)
    some = BinaryColumn(memoryview(struct.pack("3i", 0, 1, 2)), memoryview(b"ab"), None, 0)
    with pytest.raises(ValueError, match="row 0 has the headers"):
        impl.measure_columns(RecordColumns(1, headers=HeaderColumn(memoryview(struct.pack("2i", *ends)), some, some)))


def test_what_is_behind_the_last_whole_number_does_not_count(impl: ModuleType) -> None:
    column = BinaryColumn(memoryview(struct.pack("2i", 0, 1) + b"\0"), memoryview(b"a"), None, 0)
    columns = RecordColumns(1, values=column, partitions=IntColumn(memoryview(struct.pack("i", 3) + b"\0")))
    assert impl.measure_columns(columns) == measured(impl, [(b"a", None, None)], [3])


def test_headers_that_no_record_can_have_are_an_error(impl: ModuleType) -> None:
    latin = BinaryColumn(memoryview(struct.pack("2i", 0, 1)), memoryview(b"\xff"), None, 0)
    with pytest.raises(SerializationError, match="its key is not UTF-8"):
        impl.measure_columns(RecordColumns(1, headers=HeaderColumn(memoryview(struct.pack("2i", 0, 1)), latin, latin)))


def test_a_column_of_partitions_that_was_cut_since_is_an_error(impl: ModuleType) -> None:
    columns = RecordColumns(2, partitions=IntColumn(memoryview(bytes(8))))
    object.__setattr__(columns.partitions, "values", memoryview(bytes(4)))
    with pytest.raises((ValueError, IndexError)):
        impl.measure_columns(columns)
