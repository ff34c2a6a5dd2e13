"""What one client's connections have found out about brokers that did not say what they speak, by address.

A broker older than 0.10 has no ApiVersions: it is found out by questions that take a 0.9.0 seconds, and spoken to as what it was taken for. A modern
one that stood still at the wrong moment looks the same. So the first request that the guess has no version for is not refused: the
broker is asked once more, on a new connection, and what it then is taken for is believed. Nothing is guessed of one that has once said
what it speaks. Only who goes on until a deadline, and would be of no use any more, doubts it again.
"""

from __future__ import annotations

from math import inf
from weakref import WeakKeyDictionary

from gkafka.core.connection import Connection
from gkafka.exceptions import KafkaException, SerializationError, SocketDisconnectedError, UnsupportedVersion
from gkafka.handlers.base import Handler
from gkafka.net.link import Link
from gkafka.wire.apis import Versions

__all__ = ["Doubts", "Guess", "Guesses"]

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


class Doubts:
    """Decides whether one connection's guess is doubted, if a request needs more than it has."""

    def __init__(self, handler: Handler, guess: Guess, connection: Connection, link: Link) -> None:
        self._handler = handler
        self.guess = guess
        self._connection = connection
        self._link = link

    def of(self, what: str) -> KafkaException | None:
        """Return the error to retry with, on a new connection, if the guess has to be doubted.

        what: what the broker lacks if it was guessed right. Return None if the guess is trusted.
        """
        with self._link.lock:
            if not self._link.opened and self.guess.is_told:
                return None
            is_asked = not self._link.opened and self._connection.taken_for is None
            return self.asked_again(what) if (self.guess.was_doubted if is_asked else self._is_doubtful()) else None

    def again(self, what: str) -> KafkaException | None:
        """Return the same for a guess that was doubted before, and is trusted since."""
        with self._link.lock:
            if not self._connection.guessed or self.guess.is_told:
                return None
            if self._link.opened:
                self.guess.doubt(self._handler.monotonic(), again=True)
            return self.asked_again(what)

    def cannot_encode(self, exc: Exception, api: str) -> KafkaException:
        """Return the error of a request that cannot be encoded. Call it under the link's lock."""
        if isinstance(exc, UnsupportedVersion) and self._is_doubtful():
            return self.asked_again(api)
        return exc if isinstance(exc, KafkaException) else SerializationError(f"{api} cannot be encoded: {exc!r}", api=api)

    def asked_again(self, api: str) -> SocketDisconnectedError:
        """Return the error of a connection that is given up because its guess is doubted."""
        text = f"{self._link.peer}: the broker did not answer ApiVersions and was taken for one that has no {api}; it is asked again"
        return SocketDisconnectedError(text, broker=self._link.broker, api=api)

    def _is_doubtful(self) -> bool:
        """Return False if the broker has said what it speaks, or the guess is trusted."""
        return self.guess.doubt(self._handler.monotonic()) if self._connection.guessed else self.guess.doubted


_of_clients: WeakKeyDictionary[Handler, Guesses] = WeakKeyDictionary()
