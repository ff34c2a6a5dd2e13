"""Comparisons that Spark hands over, of the option pushFilters: they cut the ranges of a batch read before tasks are made of them. No pyspark here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any, NamedTuple

from gkafka.spark.offsets import Offsets, TopicPartition
from gkafka.spark.planner import OffsetRange

__all__ = ["Comparison", "cut", "understood"]

SIGNS = {
    "EqualTo": "=",
    "EqualNullSafe": "=",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
    "In": "in",
    "IsNotNull": "is there",
}
"""By the names of Spark's classes."""
KINDS: dict[str, type] = {"topic": str, "partition": int, "offset": int, "timestamp": datetime}
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


class Comparison(NamedTuple):
    """column sign value."""

    column: str
    sign: str
    value: Any

    @property
    def since_ms(self) -> int:
        """Of a timestamp: the whole milliseconds since the epoch, rounded down."""
        since: int = (self.value - EPOCH) // timedelta(milliseconds=1)
        return since


def understood(given: Any) -> Comparison | None:
    """What one of Spark's filters means here; None where nothing can be cut by it."""
    sign, column = SIGNS.get(type(given).__name__), ".".join(getattr(given, "attribute", ()))
    kind = KINDS.get(column)
    if sign is None or kind is None:
        return None
    if sign == "is there":
        return Comparison(column, sign, None)  # these are never null
    value = given.value
    several = value if sign == "in" and isinstance(value, (tuple, list, set, frozenset)) else (value,)
    if not all(isinstance(each, kind) and not isinstance(each, bool) for each in several):
        return None
    if column == "timestamp":
        # A record that is older may come later, where producers stamp them; what is before the first that is as new is older.
        return Comparison(column, sign, value) if sign in ("=", ">", ">=") and value.tzinfo is not None else None
    if column == "topic" and sign not in ("=", "in"):
        return None
    return Comparison(column, sign, value)


def cut(
    ranges: Iterable[OffsetRange], comparisons: Sequence[Comparison], first_since: Callable[[dict[TopicPartition, int]], Offsets]
) -> list[OffsetRange]:
    """Ranges that hold all rows of which all of these are true, and maybe others. first_since(ms by partition): the offset of the first record that is as new,
    -1 where there is none."""
    left = [_by_offset(r, comparisons) for r in ranges if all(_may_be(r, each) for each in comparisons)]
    left = [r for r in left if r.size > 0]
    since = max((each.since_ms for each in comparisons if each.column == "timestamp" and each.value is not None), default=0)
    # A record without a timestamp has that of -1 ms, and a broker asked for one that is as new passes it over.
    if since <= 0 or not left:
        return left
    found = first_since({(r.topic, r.partition): since for r in left})
    return [r._replace(start=max(r.start, first)) for r in left if r.start < r.end and 0 <= (first := found[r.topic, r.partition]) < r.end]


def _may_be(r: OffsetRange, asked: Comparison) -> bool:
    if asked.value is None or asked.column not in ("topic", "partition"):
        return True
    return _holds(r.topic if asked.column == "topic" else r.partition, asked.sign, asked.value)


def _holds(value: Any, sign: str, other: Any) -> bool:
    if sign == "in":
        return value in other
    held: bool = {"=": value == other, ">": value > other, ">=": value >= other, "<": value < other, "<=": value <= other}[sign]
    return held


def _by_offset(r: OffsetRange, comparisons: Iterable[Comparison]) -> OffsetRange:
    start, end = r.start, r.end
    for column, sign, value in comparisons:
        if column != "offset" or value is None:
            continue
        low, high = (min(value, default=0), max(value, default=-1)) if sign == "in" else (value, value)
        if sign in ("=", ">=", "in"):
            start = max(start, low)
        if sign in ("=", "<=", "in"):
            end = min(end, high + 1)
        if sign == ">":
            start = max(start, low + 1)
        if sign == "<":
            end = min(end, high)
    return r._replace(start=min(start, max(end, r.start)), end=max(end, r.start))
