"""How often a producer's engine began anew, and what its batches were doing at these moments, by its log."""

from __future__ import annotations

import contextlib
import logging
from collections import Counter
from types import TracebackType
from typing import Any

__all__ = ["STATES", "Restarts"]

STATES = ("open", "ready", "in_flight")
"""Of the batches that a restart has to keep."""
ENGINE = "gkafka.producerdriver"
TEXT = "the producer begins anew"


class Restarts(logging.Handler):
    """Reads the log of gkafka while it is entered as a context.

    count: of restarts; hit: state -> in how many of them there was such a batch; batches: state -> how many there were in all of them.
    errors: lines of level ERROR, and how often each came.
    """

    def __init__(self) -> None:
        super().__init__()
        self.count = 0
        self.hit: Counter[str] = Counter()
        self.batches: Counter[str] = Counter()
        self.errors: Counter[str] = Counter()
        self._loggers = logging.getLogger("gkafka"), logging.getLogger(ENGINE)

    def createLock(self) -> None:
        """Have none: a thread that is hit between two steps of `logging` would keep it."""
        self.lock = None

    def emit(self, record: logging.LogRecord) -> None:
        if record.name == ENGINE and str(record.msg).startswith(TEXT):
            self.count += 1
            for state, count in _states(record.args).items():
                self.hit[state] += 1
                self.batches[state] += count
        elif record.levelno >= logging.ERROR:
            self.errors[f"{record.getMessage()}: {record.exc_info[1]!r}" if record.exc_info else record.getMessage()] += 1

    def __enter__(self) -> Restarts:
        whole, engine = self._loggers
        self._before = whole.propagate, engine.level
        whole.addHandler(self)
        whole.propagate = False  # other handlers have locks
        engine.setLevel(logging.INFO)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        whole, engine = self._loggers
        whole.removeHandler(self)
        whole.propagate, level = self._before
        engine.setLevel(level)


def _states(args: Any) -> dict[str, int]:
    """Return the counts of batches by state that a restart's line ends with. States of none are left out there."""
    found = {}
    for state in (*STATES, "settled"):
        with contextlib.suppress(KeyError):
            found[state] = int(args[-1][state])
    return found
