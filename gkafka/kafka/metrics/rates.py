"""How fast counters grow, over metrics_num_samples times metrics_sample_window_ms."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from gkafka.exceptions import ConfigurationError

__all__ = ["Rates"]

OF_PRODUCERS = (
    "delivered_records",
    "failed_records",
    "requests",
    "retried_batches",
    "split_batches",
    "epoch_bumps",
    "interceptor_failures",
)
OF_CONSUMERS = ("fetches", "truncations", "stall_warnings")
GROWING = frozenset((*OF_PRODUCERS, *OF_CONSUMERS))
POSITIONS = "positions."


class Rates:
    """Takes a sample when it is asked, but no more than one in metrics_sample_window_ms, and keeps the metrics_num_samples last ones.

    A rate is what came since the oldest of them, per second. What is older than all the windows counts only where there is nothing else: whoever
    asks seldom is told of the time since he asked last. config: the client's. clock: seconds.
    """

    def __init__(self, config: Mapping[str, Any], clock: Callable[[], float]) -> None:
        self._most, window_ms = config["metrics_num_samples"], config["metrics_sample_window_ms"]
        if isinstance(self._most, bool) or not isinstance(self._most, int) or self._most < 1:
            raise ConfigurationError(f"metrics_num_samples={self._most!r}: must be a whole number, 1 or more")
        if isinstance(window_ms, bool) or not isinstance(window_ms, (int, float)) or not 0 < window_ms < math.inf:
            raise ConfigurationError(f"metrics_sample_window_ms={window_ms!r}: must be milliseconds, more than 0")
        self._window_s, self._clock = window_ms / 1000, clock
        self._samples: tuple[tuple[float, Mapping[str, float]], ...] = ()

    def beside(self, numbers: Mapping[str, float]) -> dict[str, float]:
        """The numbers, and of those that only grow `<name>_rate` with each."""
        now, found = self._clock(), dict(numbers)
        growing = {name: value for name, value in numbers.items() if name in GROWING or name.startswith(POSITIONS)}
        samples = tuple(one for one in self._samples if now - one[0] <= self._most * self._window_s) or self._samples[-1:]
        for name, value in growing.items():
            begun, before = next(((at, sample[name]) for at, sample in samples if name in sample), (now, value))
            found[f"{name}_rate"] = max(0.0, value - before) / (now - begun) if now > begun else 0.0
        if not samples or now - samples[-1][0] >= self._window_s:
            self._samples = (*samples, (now, growing))[-self._most :]
        return found
