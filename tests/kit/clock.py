"""The only clock of the tests: its times refuse to be limits that a busy machine passes.

    began = now()
    ...
    assert now() - began < 30      # fine
    assert now() - began < 2       # ValueError: a busy machine takes longer than that
    assert now() - began >= 0.2    # fine: a busy machine never takes less time

A test waits for an event, with a generous deadline: `deadline = now() + 60`, then `assert now() < deadline` in the loop. What must not
happen is looked for `during(0.5)`. gkafka's own arguments that are moments come from `soon(0.1)`; a handler whose clock is to be wrong
gets `lambda: soon(60)`. How fast something is belongs into `benchmarks/`. `tests/test_clocks.py` looks for other clocks in tests, and in the
programs that tests start.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from typing import Any

__all__ = ["LEAST_S", "PATIENCE_S", "Moment", "Span", "busy", "during", "epoch_ms", "epoch_s", "figure", "now", "soon"]

LEAST_S = 5.0
"""No limit is below it."""
PATIENCE_S = 60.0
"""How long to wait for what must come."""


def _refused(self: float, *_: object) -> Any:
    raise ValueError(
        f"{type(self).__name__}: it is compared as it is, with + and - at most, so that a limit below {LEAST_S:.0f} s is seen; "
        "what is only told is printed as it is, and speed is measured in benchmarks/ (and by `make faults`, with `figure()`)"
    )


class Span(float):
    """Seconds between two moments. Limits above it have to be LEAST_S or more; limits below it may be anything."""

    __mul__ = __rmul__ = __truediv__ = __rtruediv__ = __floordiv__ = __rfloordiv__ = __mod__ = __divmod__ = __pow__ = _refused
    __int__ = __float__ = __trunc__ = __floor__ = __ceil__ = __neg__ = __eq__ = __ne__ = _refused
    __hash__ = float.__hash__

    def __lt__(self, other: float) -> bool:
        return float.__lt__(self, _good_limit(other))

    def __le__(self, other: float) -> bool:
        return float.__le__(self, _good_limit(other))

    def __add__(self, other: float) -> Span:
        return Span(float.__add__(self, other))

    def __radd__(self, other: float) -> float:
        # sum() begins with the int 0. Else it is gkafka that adds a time-out to a moment of its own.
        return self if isinstance(other, int) else float.__add__(self, other)

    def __sub__(self, other: float) -> Span:
        return Span(float.__sub__(self, other))

    def __rsub__(self, other: float) -> Span:
        return Span(float.__rsub__(self, other))

    def __abs__(self) -> Span:
        return Span(float.__abs__(self))

    def __round__(self, digits: int | None = None) -> Span:  # type: ignore[override]
        return Span(float.__round__(self, digits or 0))


class Moment(float):
    """A moment of the machine's monotonic clock, the same in all its processes."""

    put_off_s = math.inf
    """By how many seconds it was moved to be a deadline."""

    __mul__ = __rmul__ = __truediv__ = __rtruediv__ = __floordiv__ = __mod__ = __round__ = __int__ = __float__ = _refused

    def __add__(self, seconds: float) -> Moment:
        later = Moment(float.__add__(self, seconds))
        later.put_off_s = seconds
        return later

    __radd__ = __add__

    def __sub__(self, other: float) -> Span:
        return Span(float.__sub__(self, self._judged(other)))

    def __rsub__(self, other: float) -> Span:
        return Span(float.__rsub__(self, other))

    def __lt__(self, other: float) -> bool:
        return float.__lt__(self, self._judged(other))

    def __le__(self, other: float) -> bool:
        return float.__le__(self, self._judged(other))

    def __gt__(self, other: float) -> bool:
        return float.__gt__(self, self._judged(other))

    def __ge__(self, other: float) -> bool:
        return float.__ge__(self, self._judged(other))

    def _judged(self, other: float) -> float:
        for moment in (self, other):
            if isinstance(moment, Moment) and 0 < moment.put_off_s < LEAST_S:
                raise ValueError(
                    f"a deadline of {moment.put_off_s} s: a busy machine takes longer. Wait {PATIENCE_S:.0f} s for what must come; "
                    "what must not come is looked for `during(seconds)`; for a moment that gkafka is given there is `soon(seconds)`"
                )
        return other


def _good_limit(limit: float) -> float:
    if not isinstance(limit, Span) and 0 < limit < LEAST_S:
        raise ValueError(
            f"a limit of {limit} s: a busy machine takes longer than that. {LEAST_S:.0f} s is the least; speed is measured in benchmarks/"
        )
    return limit


def now() -> Moment:
    """Return this moment."""
    return Moment(time.monotonic())


def soon(seconds: float) -> float:
    """Return the moment so many seconds from now, as an argument of what is tested, on the clock of the handlers. No test compares it."""
    return time.monotonic() + seconds


def figure(told: Span | Moment) -> float:
    """Return it as a plain number: for `make faults` and `make fuzz`, which measure. Tests take none."""
    return float.__add__(told, 0.0)


def during(seconds: float, pause: float = 0.01) -> Iterator[None]:
    """Yield again and again, with a pause in between, for so many seconds: to look for what must not happen."""
    end = time.monotonic() + seconds
    while True:
        yield
        if time.monotonic() >= end:
            return
        time.sleep(pause)


def busy(seconds: float) -> None:
    """Keep the processor busy for so many seconds of this thread's own time, or as many on the wall: as what holds up a hub does."""
    end, wall = time.thread_time() + seconds, time.monotonic() + seconds
    while time.thread_time() < end and time.monotonic() < wall:
        pass


class Date(float):
    """Seconds since 1970. What lies between two of them is a Span."""

    def __sub__(self, other: float) -> float:
        apart = float.__sub__(self, other)
        return Span(apart) if isinstance(other, Date) else apart


def epoch_s() -> Date:
    """Return the seconds since 1970, as timestamps of records are counted."""
    return Date(time.time())


def epoch_ms() -> int:
    """Return the milliseconds since 1970, as timestamps of records are counted."""
    return time.time_ns() // 1_000_000
