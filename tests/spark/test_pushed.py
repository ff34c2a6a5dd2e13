"""pushFilters: what Spark hands over cuts what is read, never what it asked for."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from typing import Any

import pyspark.sql.datasource as api
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gkafka.exceptions import ConfigurationError
from gkafka.spark.planner import OffsetRange
from gkafka.spark.pushed import cut, understood
from gkafka.spark.source import _warn_of_one_plan
from gkafka.testing import MockCluster
from tests.records.handmade import values
from tests.spark.conftest import Read

Reading = Callable[..., Read]
if not hasattr(api, "Filter"):
    pytest.skip("this Spark has no filters", allow_module_level=True)
NUMBERS = [api.EqualTo, api.EqualNullSafe, api.GreaterThan, api.GreaterThanOrEqual, api.LessThan, api.LessThanOrEqual]
SIGNS: dict[str, Callable[[Any, Any], bool]] = {
    "EqualTo": lambda a, b: a == b,
    "EqualNullSafe": lambda a, b: a == b,
    "GreaterThan": lambda a, b: a > b,
    "GreaterThanOrEqual": lambda a, b: a >= b,
    "LessThan": lambda a, b: a < b,
    "LessThanOrEqual": lambda a, b: a <= b,
    "In": lambda a, b: a in b,
}


def at(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, timezone.utc)


@pytest.fixture
def cluster() -> Iterator[MockCluster]:
    """Partitions 0 and 1 of "t" and 0 of "u" with ten records each, of 1, 2, ... ms."""
    with MockCluster(topics={"t": 2, "u": 1}, auto_create=False) as running:
        for topic, partition in (("t", 0), ("t", 1), ("u", 0)):
            for offset in range(10):
                running.append(topic, partition, values(1, base_offset=offset, base_timestamp=offset + 1, max_timestamp=offset + 1))
        yield running


Places = list[tuple[str, int, int]]


def rows_of(reader: Any) -> Places:
    """As Spark's worker reads them."""
    in_worker = pickle.loads(pickle.dumps(reader))
    rows = [row for task in reader.partitions() for batch in in_worker.read(task) for row in batch.to_pylist()]
    return sorted((row["topic"], row["partition"], row["offset"]) for row in rows)


def filtered(reading: Reading, *filters: Any, **more: str) -> Places:
    """The rows that are read. All filters are left to Spark, which may give what is read to another use of the frame."""
    reader: Any = reading(**{"subscribe": "t,u", "pushFilters": "true", **more}).reader
    assert list(reader.pushFilters(list(filters))) == list(filters)
    return rows_of(reader)


ALL = [(topic, partition, offset) for topic, partition in (("t", 0), ("t", 1), ("u", 0)) for offset in range(10)]


def test_without_the_option_the_reader_has_nothing_that_spark_could_refuse(reading: Reading) -> None:
    assert type(reading().reader).pushFilters is api.DataSourceReader.pushFilters
    assert type(reading(pushFilters="TRUE").reader).pushFilters is not api.DataSourceReader.pushFilters
    with pytest.raises(ConfigurationError, match="pushFilters='maybe'"):
        reading(pushFilters="maybe").tasks()


@pytest.mark.parametrize(
    ("filters", "wanted"),
    [
        ([], ALL),
        ([api.EqualTo(("topic",), "u")], [row for row in ALL if row[0] == "u"]),
        ([api.In(("topic",), ("u", "x"))], [row for row in ALL if row[0] == "u"]),
        ([api.EqualTo(("topic",), "none")], []),
        ([api.EqualTo(("partition",), 1), api.IsNotNull(("partition",))], [row for row in ALL if row[1] == 1]),
        ([api.GreaterThanOrEqual(("offset",), 3), api.LessThan(("offset",), 5)], [row for row in ALL if 3 <= row[2] < 5]),
        ([api.EqualTo(("offset",), 99)], []),
        ([api.LessThan(("offset",), -5)], []),
    ],
)
def test_comparisons_of_topic_partition_and_offset_cut_what_is_read(reading: Reading, filters: list[Any], wanted: list[Any]) -> None:
    assert filtered(reading, *filters) == wanted


def test_a_timestamp_cuts_the_beginning(reading: Reading) -> None:
    assert filtered(reading, api.GreaterThan(("timestamp",), at(4))) == [row for row in ALL if row[2] >= 3]
    assert filtered(reading, api.GreaterThan(("timestamp",), at(4000))) == []
    assert filtered(reading, api.LessThan(("timestamp",), at(4))) == ALL, "an older record may come later"


@pytest.mark.parametrize(
    ("kind", "ms", "wanted"),
    [
        ("GreaterThanOrEqual", -1000, [0, 1, 2]),
        ("GreaterThan", -2, [0, 1, 2]),
        ("EqualTo", -1, [0, 1]),
        ("EqualNullSafe", -1, [0, 1]),
        ("GreaterThan", -1, [2]),
        ("GreaterThanOrEqual", 1, [2]),
        ("GreaterThan", 1, []),
    ],
)
def test_records_without_a_timestamp_are_as_old_as_spark_takes_them_for(
    cluster: MockCluster, reading: Reading, kind: str, ms: int, wanted: list[int]
) -> None:
    cluster.create_topic("old", 1)
    for offset, timestamp in enumerate((-1, -1, 1)):
        cluster.append("old", 0, values(1, base_offset=offset, base_timestamp=timestamp, max_timestamp=timestamp))
    found = {offset for _, _, offset in filtered(reading, getattr(api, kind)(("timestamp",), at(ms)), subscribe="old")}
    assert found >= set(wanted)


def test_a_timestamp_far_from_now_is_not_rounded_up() -> None:
    late = datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=timezone.utc)
    asked: list[dict[Any, int]] = []
    found = understood(api.GreaterThanOrEqual(("timestamp",), late))
    assert found is not None
    cut([OffsetRange("t", 0, 0, 1)], [found], lambda wanted: asked.append(wanted) or dict.fromkeys(wanted, 0))
    assert asked == [{("t", 0): 253_402_300_799_999}]


def test_a_frame_that_is_used_with_several_filters_is_cut_by_none(reading: Reading, caplog: pytest.LogCaptureFixture) -> None:
    first, second = api.EqualTo(("partition",), 0), api.EqualTo(("partition",), 1)
    read = reading(subscribe="t,u", pushFilters="true")
    frame = pickle.dumps(read.source)  # what Spark keeps for a frame, and hands to each process that plans

    def use(*filters: Any) -> Places:
        source = pickle.loads(frame)
        reader = source.reader(schema=source.schema())
        assert list(reader.pushFilters(list(filters))) == list(filters)
        return rows_of(reader)

    with caplog.at_level(logging.WARNING):
        assert use(first) == use(first) == [row for row in ALL if row[1] == 0]
        assert "none of them cuts it" not in caplog.text
        assert use(second) == use(first) == ALL, "Spark hands the plan that was made last to all of them"
    assert "load() it once for each" in caplog.text
    frame = pickle.dumps(read.source)
    assert use(second) == [row for row in ALL if row[1] == 1], "another frame of the same options"


def test_that_another_use_of_a_frame_lacks_rows_is_said_once(reading: Reading, caplog: pytest.LogCaptureFixture) -> None:
    _warn_of_one_plan.cache_clear()
    with caplog.at_level(logging.WARNING):
        filtered(reading)
        assert "load() once for each use" not in caplog.text, "nothing is cut"
        for partition in range(3):
            filtered(reading, api.EqualTo(("partition",), partition))
    assert caplog.text.count("load() once for each use") == 1


@pytest.mark.parametrize(
    "given",
    [
        api.EqualTo(("value",), b"1"),
        api.EqualTo(("key", "part"), 1),
        api.Not(api.EqualTo(("partition",), 1)),
        api.StringStartsWith(("topic",), "t"),
        api.GreaterThan(("topic",), "t"),
        api.IsNull(("offset",)),
        api.IsNotNull(("value",)),
        api.EqualTo(("offset",), None),
        api.EqualTo(("partition",), "1"),
        api.EqualTo(("offset",), True),
        api.GreaterThan(("timestamp",), datetime(2026, 1, 1)),  # noqa: DTZ001  # of no zone
    ],
    ids=str,
)
def test_what_is_not_understood_is_left_to_spark(reading: Reading, given: Any) -> None:
    assert filtered(reading, given) == ALL


def test_several_offsets_are_cut_to_where_they_lie(reading: Reading) -> None:
    assert filtered(reading, api.In(("offset",), (2, 5))) == [row for row in ALL if 2 <= row[2] <= 5]


def filters() -> st.SearchStrategy[Any]:
    number = st.integers(-3, 14)
    plain = st.builds(
        lambda kind, column, value: kind((column,), value), st.sampled_from(NUMBERS), st.sampled_from(["partition", "offset"]), number
    )
    several = st.builds(
        lambda column, found: api.In((column,), tuple(found)), st.sampled_from(["partition", "offset"]), st.lists(number, max_size=4)
    )
    return plain | several


@given(st.lists(filters(), max_size=4), st.integers(0, 5), st.integers(0, 9))
def test_no_row_is_lost(chosen: list[Any], start: int, size: int) -> None:
    ranges = [OffsetRange("t", partition, start, start + size) for partition in range(3)]
    found = [understood(each) for each in chosen]
    left = cut(ranges, [each for each in found if each is not None], lambda wanted: {})
    rows = {(r.partition, offset) for r in left for offset in range(r.start, r.end)}

    def holds(each: Any, place: tuple[int, int]) -> bool:
        return SIGNS[type(each).__name__](place[each.attribute[0] == "offset"], each.value)

    there = {(r.partition, offset) for r in ranges for offset in range(r.start, r.end)}
    assert rows >= {place for place in there if all(holds(each, place) for each in chosen)}


def test_where_spark_has_no_filters_that_is_said(
    reading: Reading, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("gkafka.spark.source.FILTERS", None)
    with caplog.at_level(logging.WARNING):
        reading(pushFilters="true").tasks()
    assert "pushFilters has no effect" in caplog.text
