"""One script of calls on kafka-python 3 and on gkafka.kafka, and what is told apart of the outcomes.

Where the two differ is listed in DIFFERENT, each step with its row of docs/kafka-python.md, which has the reason. What is not listed, or does not
differ any more, fails.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from gkafka.kafka import errors

__all__ = ["Said", "Script", "check", "plain", "same"]

PAGE = Path(__file__).resolve().parents[2] / "docs" / "kafka-python.md"
RECORD = [
    "topic",
    "partition",
    "offset",
    "timestamp",
    "timestamp_type",
    "key",
    "value",
    "headers",
    "checksum",
    "serialized_key_size",
    "serialized_value_size",
    "serialized_header_size",
]


class Said:
    """What a call gave: a value as plain data with the names of its types, or an exception."""

    def __init__(self, value: Any = None, error: BaseException | None = None) -> None:
        self.value, self.error = value, error

    def __repr__(self) -> str:
        return f"{type(self.error).__name__}: {self.error}" if self.error is not None else repr(self.value)


def same(theirs: Said, ours: Said) -> bool:
    """Would a program that is written for theirs see no difference?"""
    if theirs.error is None or ours.error is None:
        return theirs.error is ours.error and bool(theirs.value == ours.value)
    name = type(theirs.error).__name__
    kind = getattr(errors, name, None) or getattr(builtins, name, None)
    return kind is not None and isinstance(ours.error, kind)


def plain(value: Any) -> Any:
    """What both libraries make of the same, with its type: named tuples by their fields, containers by what is in them."""
    name = type(value).__name__
    if hasattr(value, "serialized_key_size") and hasattr(value, "headers"):
        return {"ConsumerRecord": {field: plain(getattr(value, field)) for field in RECORD}}
    if name == "RecordMetadata":
        return {name: (value.topic, value.partition, plain(value.topic_partition), value.offset)}
    if name == "OffsetAndMetadata":
        return {name: (value.offset, value.metadata, value.leader_epoch)}
    if name == "OffsetAndTimestamp":
        return {name: (value.offset, value.timestamp, value.leader_epoch)}
    if name == "TopicPartition":
        return name, *value
    if isinstance(value, dict):
        return {plain(key): plain(one) for key, one in value.items()}
    if isinstance(value, (set, frozenset)):
        return type(value).__name__, sorted(map(plain, value))
    if isinstance(value, (list, tuple)):
        return type(value)(map(plain, value))
    return value


class Script:
    """One run with one library. said: step -> what came of it. plain: what is made of a value; rename: names that each run has of its own -> what
    stands for them.
    """

    def __init__(self, plain: Callable[[Any], Any] = plain, *, rename: Mapping[str, str] | None = None) -> None:
        self.said: dict[str, Said] = {}
        self._plain = plain
        self._rename = dict(rename or {})

    def step(self, name: str, call: Callable[[], Any]) -> Any:
        """Make the call and note what came of it; returns its value, None if it raised."""
        assert name not in self.said, name
        try:
            value = call()
        except Exception as exc:
            self.said[name] = Said(error=exc)
            return None
        self.said[name] = Said(self._named(self._plain(value)))
        return value

    def _named(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._rename.get(value, value)
        if isinstance(value, dict):
            return {self._named(key): self._named(one) for key, one in value.items()}
        if isinstance(value, (list, tuple)):
            return type(value)(map(self._named, value))
        return value


def check(theirs: dict[str, Said], ours: dict[str, Said], different: Mapping[str, str]) -> None:
    """Nothing differs but what is listed, all that is listed does, and each has its row on the page. different: step -> the row's first column."""
    assert list(theirs) == list(ours)
    found = {name: (theirs[name], ours[name]) for name in theirs if not same(theirs[name], ours[name])}
    assert set(found) == set(different), "\n".join(
        [f"{name}: theirs {found[name][0]!r}, ours {found[name][1]!r}" for name in sorted(set(found) - set(different))]
        + [f"{name}: does not differ any more" for name in sorted(set(different) - set(found))]
    )
    rows = {
        line.split(" | ")[0].removeprefix("| "): line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.count(" | ") >= 2
    }
    assert [row for row in set(different.values()) if row not in rows] == [], "docs/kafka-python.md has no such row"
