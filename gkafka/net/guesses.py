"""What one client's connections have found out about brokers that did not say what they speak, by address.

A broker older than 0.10 has no ApiVersions: it is found out by questions that take a 0.9.0 seconds, and spoken to as what it was taken for. A modern
one that stood still at the wrong moment looks the same. So the first request that the guess has no version for is not refused: the
broker is asked once more, on a new connection, and what it then is taken for is believed. Nothing is guessed of one that has once said
what it speaks. Only who goes on until a deadline, and would be of no use any more, doubts it again.
"""

from __future__ import annotations

from math import inf
from weakref import WeakKeyDictionary

from gkafka.handlers.base import Handler
from gkafka.wire.apis import Versions

__all__ = ["Guess", "Guesses"]

Address = tuple[str, int]


class Guesses:
    """One client's, by address. Each step is one operation on a dict: connections share it without a lock."""

    def __init__(self) -> None:
        self.taken_for: dict[Address, str] = {}
        self.doubted_at: dict[Address, float] = {}
        self.told: dict[Address, Versions] = {}
        """What a broker last said that it speaks."""

    @classmethod
    def of(cls, handler: Handler) -> Guesses:
        """Those of the client whose handler this is."""
        return _of_clients.setdefault(handler, cls())


class Guess:
    """What one connection, which is made now, takes the broker at an address for."""

    def __init__(self, handler: Handler, address: Address) -> None:
        self.doubted = False
        """What the broker is taken for has no version for a request: the connection is given up when nothing is under way."""
        self._guesses = Guesses.of(handler)
        self._address = address
        self._made_at = handler.monotonic()

    @property
    def taken_for(self) -> str | None:
        """What the broker was taken for before; None: it is to be asked."""
        return self._guesses.taken_for.get(self._address)

    @property
    def is_told(self) -> bool:
        """Has the broker ever said what it speaks? Then connections that go by a guess are to be replaced."""
        return self._address in self._guesses.told

    @property
    def was_doubted(self) -> bool:
        """Did any connection find a guess wanting?"""
        return self._address in self._guesses.doubted_at

    def found(self, taken_for: str | None, versions: Versions) -> None:
        """The connection opened. taken_for: what it takes the broker for; None: the broker has said what it speaks."""
        if taken_for is None:
            self._guesses.told[self._address] = versions
            self.failed()
        elif not self._is_older():
            self._guesses.taken_for[self._address] = taken_for

    def failed(self) -> None:
        """The connection was lost: it may be another broker that is found there now."""
        self._guesses.taken_for.pop(self._address, None)

    def doubt(self, now: float, again: bool = False) -> bool:
        """The guess has no version for a request. False: it was doubted before this connection was made, and it is believed. again: but not any more."""
        if not self.doubted:
            if again or not self.was_doubted:
                self._guesses.doubted_at[self._address] = now
                self.failed()
            self.doubted = self._is_older()
        return self.doubted

    def _is_older(self) -> bool:
        return self._made_at <= self._guesses.doubted_at.get(self._address, -inf)


_of_clients: WeakKeyDictionary[Handler, Guesses] = WeakKeyDictionary()
