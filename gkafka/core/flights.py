"""The requests of a machine that may have several under way: one of a kind at a time, and a pause after each failure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, TypeVar

from gkafka.core.backoff import Backoff, Chance, Retry

__all__ = ["Flights"]

Kind = TypeVar("Kind")
Ask = TypeVar("Ask")


class Flights(Generic[Kind, Ask]):
    """By kind: what is under way, and when the next may be sent."""

    def __init__(self, kinds: Iterable[Kind], backoff: Backoff, chance: Chance) -> None:
        self._backoff, self._chance = backoff, chance
        self._retries = {kind: Retry() for kind in kinds}
        self._flying: dict[Kind, tuple[Ask, float]] = {}

    def __contains__(self, kind: Kind) -> bool:
        return kind in self._flying

    def get(self, kind: Kind) -> Ask | None:
        flying = self._flying.get(kind)
        return None if flying is None else flying[0]

    def may_send(self, kind: Kind, now: float) -> bool:
        return kind not in self._flying and now >= self._retries[kind].not_before

    def sent(self, kind: Kind, ask: Ask, now: float) -> Ask:
        self._flying[kind] = ask, now
        return ask

    def find(self, ask: Ask) -> tuple[Kind, float] | None:
        """Its kind, and when it was sent. None if it was forgotten."""
        return next(((kind, sent_at) for kind, (flying, sent_at) in self._flying.items() if flying is ask), None)

    def all(self) -> list[Ask]:
        """Those that are under way."""
        return [ask for ask, _ in self._flying.values()]

    def forget(self, kind: Kind) -> None:
        """What comes of it does not matter any more."""
        self._flying.pop(kind, None)

    def succeeded(self, kind: Kind) -> None:
        self._retries[kind].succeeded()

    def pause(self, kind: Kind, now: float) -> float:
        """After a failure; until when."""
        self._retries[kind].failed(self._backoff, now, self._chance)
        return self._retries[kind].not_before

    def paused_until(self, kind: Kind) -> float:
        return self._retries[kind].not_before

    def wakes_at(self, now: float) -> list[float]:
        """When pauses end."""
        return [retry.not_before for kind, retry in self._retries.items() if kind not in self._flying and retry.not_before > now]
