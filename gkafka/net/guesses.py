"""What one client's connections have found out about brokers that did not say what they speak, by address.

A broker older than 0.10 has no ApiVersions: it is found out by questions that take a 0.9.0 seconds, and spoken to as what it was taken for. A modern
one that stood still at the wrong moment looks the same. So the first request that the guess has no version for is not refused: the
broker is asked once more, on a new connection, and what it then is taken for is believed. Nothing is guessed of one that has once said
what it speaks. Only who goes on until a deadline, and would be of no use any more, doubts it again.
"""

from __future__ import annotations

from weakref import WeakKeyDictionary

from gkafka.handlers.base import Handler
from gkafka.wire.apis import Versions

__all__ = ["Guesses"]

Address = tuple[str, int]


class Guesses:
    """One client's. Each step is one operation on a dict or set: connections share it without a lock.

    made_at: when a connection was made, now: monotonic seconds.
    """

    def __init__(self) -> None:
        self._taken_for: dict[Address, str] = {}
        self._doubted_at: dict[Address, float] = {}
        self._told: dict[Address, Versions] = {}

    @classmethod
    def of(cls, handler: Handler) -> Guesses:
        """Those of the client whose handler this is."""
        return _of_clients.setdefault(handler, cls())

    def get(self, address: Address) -> str | None:
        """What the broker was taken for; None: it is to be asked."""
        return self._taken_for.get(address)

    def told(self, address: Address) -> Versions | None:
        """What the broker last said that it speaks, if it ever did. Then connections that go by a guess are to be replaced."""
        return self._told.get(address)

    def found(self, address: Address, taken_for: str | None, versions: Versions, made_at: float) -> None:
        """A connection opened. taken_for: what it takes the broker for; None: the broker has said what it speaks."""
        if taken_for is None:
            self._told[address] = versions
            self._taken_for.pop(address, None)
        elif not self._is_older(address, made_at):
            self._taken_for[address] = taken_for

    def failed(self, address: Address) -> None:
        """A connection was lost: it may be another broker that is found there now."""
        self._taken_for.pop(address, None)

    def doubt(self, address: Address, made_at: float, now: float) -> bool:
        """The guess of a connection has no version for a request. False: it was doubted before that connection was made, and it is believed."""
        if address not in self._doubted_at:
            self._doubted_at[address] = now
            self._taken_for.pop(address, None)
        return self._is_older(address, made_at)

    def doubt_again(self, address: Address, now: float) -> None:
        """One that was doubted and is believed."""
        self._doubted_at[address] = now
        self._taken_for.pop(address, None)

    def is_doubted(self, address: Address) -> bool:
        return address in self._doubted_at

    def _is_older(self, address: Address, made_at: float) -> bool:
        doubted_at = self._doubted_at.get(address)
        return doubted_at is not None and made_at <= doubted_at


_of_clients: WeakKeyDictionary[Handler, Guesses] = WeakKeyDictionary()
