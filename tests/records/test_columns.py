"""Columns of fetched batches: what is in them, and that Spark would take them."""

from __future__ import annotations

import importlib.util
import struct
import subprocess
import sys
from functools import cache
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from gkafka import records as public
from gkafka.exceptions import ConfigurationError, CorruptRecordError
from gkafka.records import _pure_columns
from gkafka.records import columns as room
from tests.records.handmade import GZIP, LOG_APPEND, TRANSACTIONAL, batch, marker, message, record, values, wrapper
from tests.records.reading import columns

SPARK = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("timestampType", pa.int32()),
    ]
)
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


@pytest.fixture(params=["numpy", "plain"])
def how(request: pytest.FixtureRequest, impl: ModuleType, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The implementation, the Python one also without numpy."""
    if request.param == "plain":
        monkeypatch.setattr(_pure_columns, "HAS_NUMPY", False)
    return impl


def decode(impl: ModuleType, data: Any, topic: str | None = "t", partition: int | None = 3, **options: Any) -> room.Columns:
    options.setdefault("start_offset", 0)
    return room.Columns(impl.decode_columns(data, topic=topic, partition=partition, **options), topic, partition)


@pytest.fixture(autouse=True)
def chosen(impl: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """to_arrow uses the implementation under test."""
    monkeypatch.setattr(public, "microseconds", impl.microseconds)


# -- which records -------------------------------------------------------------------------------------------------------
def test_a_fetch_of_many_batches_is_one_set_of_columns(how: ModuleType) -> None:
    data = b"".join(values(7, base_offset=i * 7) for i in range(300))
    got = columns(how, data, start_offset=10, end_offset=2005)
    assert got["offsets"] == list(range(10, 2005))
    assert got["values"] == [b"%d" % (i % 7) for i in range(10, 2005)]
    assert got["keys"] == [None] * 1995
    assert (got["next_offset"], got["complete"], got["error"]) == (2005, True, None)


def test_several_buffers_are_read_in_order(how: ModuleType) -> None:
    whole, cut = values(5), values(5, base_offset=5)
    got = columns(how, [whole + cut[:40], cut, bytearray(values(2, base_offset=10))], start_offset=0)
    assert got["offsets"] == list(range(12))


def test_control_batches_and_skipped_ones_are_left_out_and_passed(how: ModuleType) -> None:
    data = values(3) + marker(0, 3) + values(2, base_offset=4, attributes=TRANSACTIONAL, producer_id=7) + marker(1, 6)
    assert columns(how, data, start_offset=0)["offsets"] == [0, 1, 2, 4, 5]
    for skip in ({4}, lambda header: header.producer_id == 7):
        got = columns(how, data, start_offset=0, skip=skip)
        assert got["offsets"] == [0, 1, 2]
        assert (got["next_offset"], got["complete"]) == (7, True)


def test_damage_in_what_is_left_out_is_found_all_the_same(how: ModuleType) -> None:
    for number, skipped in enumerate((marker(0, 3), values(3, base_offset=3))):
        bad = bytearray(skipped)
        bad[-1] ^= 1
        got = columns(how, values(3) + bytes(bad), start_offset=0, skip={3})
        assert got["offsets"] == [0, 1, 2], number
        assert got["error"][4] == 3


def test_bounds_on_records_and_bytes_say_where_to_go_on(how: ModuleType) -> None:
    data = b"".join(batch([record(i, b"x" * 90, b"k" * 10) for i in range(5)], base_offset=b * 5) for b in range(4))
    for options in ({"max_records": 3}, {"max_data_bytes": 330}):
        seen, position, complete = [], 0, False
        while not complete:
            got = columns(how, data, start_offset=position, **options)
            assert 1 <= got["count"] <= 3
            seen += got["offsets"]
            position, complete = got["next_offset"], got["complete"]
        assert seen == list(range(20))


def test_a_record_larger_than_the_bound_comes_alone(how: ModuleType) -> None:
    data = batch([record(i, b"x" * 90) for i in range(3)])
    assert columns(how, data, start_offset=0, max_data_bytes=5)["offsets"] == [0]


def test_nothing_in_the_range_is_no_records(how: ModuleType) -> None:
    assert columns(how, b"", start_offset=5)["count"] == 0
    got = columns(how, values(3), start_offset=3)
    assert (got["count"], got["next_offset"], got["complete"]) == (0, 3, True)
    assert columns(how, values(3), start_offset=5, end_offset=5)["complete"] is True
    got = columns(how, batch([], base_offset=4, last_delta=5), start_offset=4)
    assert (got["count"], got["next_offset"]) == (0, 10)


def test_good_records_come_first_and_the_error_is_kept_for_the_next_call(how: ModuleType) -> None:
    bad = bytearray(values(3, base_offset=3))
    bad[-1] ^= 1
    data = values(3) + bytes(bad) + values(3, base_offset=6)
    got = decode(how, data)
    assert (len(got), got.next_offset, got.complete) == (3, 3, False)
    assert isinstance(got.error, CorruptRecordError)
    assert got.error.offset == 3
    with pytest.raises(CorruptRecordError, match=r"t\[3\] offset 3: checksum"):
        decode(how, data, start_offset=3)
    assert len(decode(how, data, check_crcs=False)) in (9, 5, 6)


# -- what is in them -----------------------------------------------------------------------------------------------------
ROWS = batch(
    [
        record(0, b"v0", b"k0", [(b"a", b"1"), ("ü".encode(), None)]),
        record(1, None, b"", timestamp_delta=5),
        record(2, b"", None, [(b"c", b"")], timestamp_delta=-1001),
    ],
    base_offset=10,
    base_timestamp=1_000,
)


def test_arrow_batches_have_exactly_spark_s_schema(how: ModuleType) -> None:
    got = decode(how, ROWS).to_arrow()
    assert got.schema.equals(SPARK, check_metadata=True)
    got.validate(full=True)
    assert got.column("offset").to_pylist() == [10, 11, 12]
    assert got.column("key").to_pylist() == [b"k0", b"", None]
    assert got.column("value").to_pylist() == [b"v0", None, b""]
    assert got.column("topic").to_pylist() == ["t"] * 3
    assert got.column("partition").to_pylist() == [3] * 3
    assert got.column("timestampType").to_pylist() == [0] * 3
    assert [int(t.value) for t in got.column("timestamp")] == [1_000_000, 1_005_000, -1_000]


def test_bitmaps_are_there_only_where_nulls_are(how: ModuleType) -> None:
    got = decode(how, values(100)).to_arrow()
    for name in SPARK.names:
        column = got.column(name)
        assert (column.buffers()[0] is None) == (column.null_count == 0), name
    assert got.column("key").null_count == 100
    assert got.column("value").null_count == 0


def test_any_columns_in_any_order(how: ModuleType) -> None:
    got = decode(how, ROWS, headers=True)
    for names in (("value",), ("offset", "key"), ("headers", "value"), ("timestamp", "timestampType", "topic"), room.ALL_COLUMNS):
        arrow = got.to_arrow(names)
        assert tuple(arrow.schema.names) == names
        assert arrow.schema.equals(room.arrow_schema(names))
        arrow.validate(full=True)
    assert got.to_arrow(()).num_rows == 3


def test_columns_that_are_not_wanted_are_not_built(how: ModuleType) -> None:
    got = decode(how, ROWS, keys=False, values=False)
    assert got.raw.keys is None
    assert got.raw.values is None
    assert got.to_arrow(("offset",)).num_rows == 3
    for name in ("key", "value", "headers"):
        with pytest.raises(ConfigurationError, match=name):
            got.to_arrow((name,))
    with pytest.raises(ConfigurationError, match="nonsense"):
        got.to_arrow(("nonsense",))
    with pytest.raises(ConfigurationError, match="topic"):
        decode(how, ROWS, topic=None).to_arrow(("topic",))
    assert decode(how, ROWS, topic=None).to_arrow(("topic",), topic="named").column(0).to_pylist() == ["named"] * 3


def test_headers_are_lists_and_null_where_there_are_none(how: ModuleType) -> None:
    got = decode(how, ROWS, headers=True).to_arrow(("headers",))
    assert got.schema.field("headers").type.equals(HEADERS)
    assert got.column("headers").to_pylist() == [
        [{"key": "a", "value": b"1"}, {"key": "ü", "value": None}],
        None,
        [{"key": "c", "value": b""}],
    ]
    full = decode(how, batch([record(0, b"", None, [(b"a", b"b")])]), headers=True).to_arrow(("headers",))
    assert full.column(0).null_count == 0


def test_header_keys_that_are_not_utf8_are_replaced(how: ModuleType) -> None:
    got = decode(how, batch([record(0, b"", None, [(b"\xff", b"\xff")])]), headers=True).to_arrow(("headers",))
    got.validate(full=True)
    assert got.column(0).to_pylist() == [[{"key": "\ufffd", "value": b"\xff"}]]


def test_timestamps_of_all_formats(how: ModuleType) -> None:
    data = message(0, b"", magic=0) + message(1, b"", timestamp=5) + message(2, b"", timestamp=6, attributes=LOG_APPEND)
    data += wrapper([message(0, b"", timestamp=1)], 3, timestamp=9, attributes=LOG_APPEND)
    data += batch([record(0, b"")], base_offset=4, attributes=LOG_APPEND, max_timestamp=77)
    got = decode(how, data).to_arrow(("timestamp", "timestampType"))
    assert [int(t.value) for t in got.column("timestamp")] == [-1_000, 5_000, 6_000, 9_000, 77_000]
    assert got.column("timestampType").to_pylist() == [-1, 0, 1, 1, 1]


def test_a_timestamp_that_microseconds_cannot_hold_becomes_the_nearest(how: ModuleType) -> None:
    top, bottom = 2**63 - 1, -(2**63)
    source = struct.pack("=5q", top, bottom, 1, top // 1000, -(top // 1000))
    assert list(how.microseconds(source)) == [top, bottom, 1000, top // 1000 * 1000, -(top // 1000 * 1000)]


def test_numpy_arrays(how: ModuleType) -> None:
    got = decode(how, ROWS).to_numpy()
    assert got["offset"].dtype == np.int64
    assert got["offset"].tolist() == [10, 11, 12]
    assert got["timestamp"].tolist() == [1_000, 1_005, -1]
    assert got["timestampType"].dtype == np.int32
    assert got["key"].tolist() == [b"k0", b"", None]
    assert got["value"].tolist() == [b"v0", None, b""]
    assert "key" not in decode(how, ROWS, keys=False).to_numpy()


WITHOUT_PANDAS = """
import sys
import gkafka.records as records
from tests.records.handmade import batch, record
data = batch([record(0, b"v", b"k", [(b"h", b"1")]), record(1, None)])
found = records.decode_columns(data, start_offset=0, headers=True, topic="t", partition=0)
rows = found.to_arrow(records.columns.ALL_COLUMNS).num_rows, found.to_arrow([]).num_rows
assert rows == (2, 2), rows
from gkafka.columnreader import joined
assert joined([], records.arrow_schema()).num_rows == 0
assert "pandas" not in sys.modules
"""


def test_pandas_is_not_imported_by_anybody_who_does_not_ask_for_it() -> None:
    """pyarrow imports it for its scalars and for arrays of Python objects: half a second and 50 MB of each of Spark's workers."""
    assert importlib.util.find_spec("pandas") is not None, "else there is nothing to see"
    done = subprocess.run([sys.executable, "-c", WITHOUT_PANDAS], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("topic", "partition"), [("t", 0), ("", 1), ("é-ü", 2**31 - 1), ("x" * 249, 7)])
@pytest.mark.parametrize("count", [1, 1024, 1025, room.CACHED_ROWS + 1])
def test_constant_columns_are_what_pyarrow_would_make_of_them(topic: str, partition: int, count: int) -> None:
    for value, kind in ((topic, pa.string()), (partition, pa.int32())):
        made = room._constant(value, count)
        made.validate(full=True)
        assert made.equals(pa.repeat(pa.scalar(value, kind), count))


def test_empty_columns_are_arrow_too(how: ModuleType) -> None:
    got = decode(how, b"", headers=True)
    arrow = got.to_arrow(room.ALL_COLUMNS)
    arrow.validate(full=True)
    assert arrow.num_rows == 0
    assert got.to_numpy()["offset"].tolist() == []


@cache
def large_fetch() -> bytes:
    big = batch([record(i, b"v%06d" % i * 12, b"k" * 3) for i in range(40_000)], attributes=GZIP)
    return big + batch([record(i, b"w" * 900) for i in range(12_000)], base_offset=40_000)


def test_large_fetches_are_decoded_whole(how: ModuleType) -> None:
    """Past the size at which the GIL is released, and past what is decoded together."""
    arrow = decode(how, large_fetch()).to_arrow()
    arrow.validate(full=True)
    assert arrow.num_rows == 52_000
    assert arrow.column("offset").to_pylist() == list(range(52_000))
    assert arrow.column("value")[39_999].as_py() == b"v039999" * 12
    assert arrow.column("value")[51_999].as_py() == b"w" * 900
    assert arrow.column("key").null_count == 12_000
    assert arrow.column("topic").slice(51_999).to_pylist() == ["t"]


def test_the_result_outlives_its_input(how: ModuleType) -> None:
    data = bytearray(ROWS)
    arrow = decode(how, memoryview(data)).to_arrow()
    data[:] = bytes(len(data))
    data.append(0)
    assert arrow.column("value").to_pylist() == [b"v0", None, b""]


def test_the_public_function_gives_columns() -> None:
    got = public.decode_columns(values(3), start_offset=1, topic="t", partition=0)
    assert isinstance(got, public.Columns)
    assert got.to_arrow().num_rows == len(got) == 2
    assert (got.next_offset, got.complete, got.error) == (3, True, None)
