"""How often engines began anew, and what they were doing at these moments, by their log."""

from __future__ import annotations

import contextlib
import logging
from collections import Counter
from types import TracebackType
from typing import Any

__all__ = ["FETCH", "MEMBER", "PRODUCER", "STATES", "Restarts"]

STATES = ("open", "ready", "in_flight")
"""States of the batches that a restart has to keep."""
_KNOWN = (*STATES, "settled", "buffered", "resetting", "checking", "fetching", "halted")
"""These, and those of partitions."""
PRODUCER, FETCH, MEMBER = "gkafka.producerdriver", "gkafka.fetchdriver", "gkafka.membership"
"""The loggers of the engines."""
TEXT = " begins anew, "


class Restarts(logging.Handler):
    """Reads the log of gkafka while it is entered as a context.

    count: restarts of all engines. of: logger -> restarts of that engine. hit: state -> in how many
    restarts there was a batch, or a partition, in this state; also the state of a member that began
    anew. batches: state -> how many there were in all of them. errors: lines of level ERROR, and how
    often each came. propagate: whether other handlers see the lines, too; these have locks.
    """

    def __init__(self, propagate: bool = False) -> None:
        super().__init__()
        self._propagate = propagate
        self.of: Counter[str] = Counter()
        self.hit: Counter[str] = Counter()
        self.batches: Counter[str] = Counter()
        self.errors: Counter[str] = Counter()
        self._whole = logging.getLogger("gkafka")
        self._engines = [logging.getLogger(name) for name in (PRODUCER, FETCH, MEMBER)]

    @property
    def count(self) -> int:
        return sum(self.of.values())

    def createLock(self) -> None:
        """Have none: a thread that is hit between two steps of `logging` would keep it."""
        self.lock = None

    def emit(self, record: logging.LogRecord) -> None:
        if record.name in (PRODUCER, FETCH, MEMBER) and TEXT in str(record.msg):
            for state, count in _states(record).items():
                self.hit[state] += 1
                self.batches[state] += count
            self.of[record.name] += 1  # last: whoever waits for it reads the states
        elif record.levelno >= logging.ERROR:
            self.errors[f"{record.getMessage()}: {record.exc_info[1]!r}" if record.exc_info else record.getMessage()] += 1

    def __enter__(self) -> Restarts:
        self._before = self._whole.propagate, [engine.level for engine in self._engines]
        self._whole.addHandler(self)
        self._whole.propagate = self._propagate
        for engine in self._engines:
            engine.setLevel(logging.INFO)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._whole.removeHandler(self)
        self._whole.propagate, levels = self._before
        for engine, level in zip(self._engines, levels, strict=True):
            engine.setLevel(level)


def _states(record: logging.LogRecord) -> dict[str, int]:
    """Return counts by state as a restart's line tells them: a mapping, or the state of a member."""
    args: Any = record.args
    if record.name == MEMBER:
        return {args[-2]: 1}
    found = {}
    for state in _KNOWN:  # those of none are left out in the line
        with contextlib.suppress(KeyError):
            found[state] = int(args[-1][state])
    return found
