"""One script of calls on kafka-python 3 and on gkafka.kafka, and what is told apart of the outcomes."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Any

from gkafka.kafka import errors

__all__ = ["Said", "Script", "same"]


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


class Script:
    """One run with one library. said: step -> what came of it."""

    def __init__(self, plain: Callable[[Any], Any]) -> None:
        self.said: dict[str, Said] = {}
        self._plain = plain

    def step(self, name: str, call: Callable[[], Any]) -> Any:
        """Make the call and note what came of it; returns its value, None if it raised."""
        assert name not in self.said, name
        try:
            value = call()
        except Exception as exc:
            self.said[name] = Said(error=exc)
            return None
        self.said[name] = Said(self._plain(value))
        return value
