"""Exponential backoff with jitter, as arithmetic: time and chance are arguments."""

from __future__ import annotations

from typing import NamedTuple, Protocol

__all__ = ["Backoff", "Chance", "Retry"]


class Chance(Protocol):
    """What a machine is given to choose by: a random.Random, which a test makes with a seed."""

    def random(self) -> float:
        """0 to 1, without 1."""

    def getrandbits(self, k: int, /) -> int:
        """Of so many bits."""

    def randrange(self, start: int, /) -> int:
        """0 or more, below start."""


class Backoff(NamedTuple):
    """base_s doubles with each failure up to max_s; each pause varies by +-20 % so that clients do not march in step (KIP-580)."""

    base_s: float
    max_s: float

    def pause_s(self, failures: int, chance: Chance) -> float:
        """The pause after so many failures in a row (1 or more)."""
        pause = min(self.max_s, self.base_s * (1 << min(max(failures, 1) - 1, 30)))
        return pause * (0.8 + 0.4 * chance.random())


class Retry:
    """Failures in a row of one thing, and when it may be tried again."""

    __slots__ = ("failures", "not_before")

    def __init__(self) -> None:
        self.failures = 0
        self.not_before = 0.0

    def failed(self, backoff: Backoff, now: float, chance: Chance) -> None:
        self.failures += 1
        self.not_before = now + backoff.pause_s(self.failures, chance)

    def hurry(self, by: float) -> bool:
        """Let the pause end at this time at the latest. Returns whether it would have lasted longer."""
        is_late = self.not_before > by
        self.not_before = min(self.not_before, by)
        return is_late

    def succeeded(self) -> None:
        self.failures = 0
        self.not_before = 0.0
