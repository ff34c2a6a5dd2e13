"""The buffer that all producers of a client share, and the line of those who wait for room in it."""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from gkafka import records
from gkafka.callbacks import is_callback

if TYPE_CHECKING:
    from gkafka.handlers import Handler
    from gkafka.net.reader import Taker
    from gkafka.producerdriver import ProducerDriver
    from gkafka.records import Batch

__all__ = ["Place", "ProducerMemory"]

KEPT_BYTES = 32 << 20
"""Of failed records, beside the buffer: for all producers of a client."""


class Place:
    """One caller's place in the line. size: bytes that it waits for; event: set when it may try; in_callback: it is the worker of delivery
    callbacks, so memory that is held for their sake may come back only after it; beyond: bytes that it may take over the limits.
    """

    __slots__ = ("__weakref__", "beyond", "driver", "event", "in_callback", "size")

    def __init__(self, driver: ProducerDriver, size: int, event: Any, *, in_callback: bool = False) -> None:
        self.driver, self.size, self.event, self.in_callback = driver, size, event, in_callback
        self.beyond = 0


class ProducerMemory:
    """A producer takes at most its own buffer_bytes, and all producers of a client together at most the largest buffer_bytes among those
    that live. Who finds no room stands in line: first come, first served. A delivery callback goes before everybody, who may wait for what only
    it gives back, and may take once more its producer's buffer_bytes.

    Only the caller holds its place. One that was interrupted between any two steps of taking or leaving it, by a signal handler's exception,
    is gone from the line with it: a place that nobody waits at would stop everybody behind it.
    """

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self._lock = handler.Mutex()
        self.budget = records.Budget(0, handler.Mutex())
        self._shares: weakref.WeakKeyDictionary[ProducerDriver, int] = weakref.WeakKeyDictionary()
        self._line: list[weakref.ref[Place]] = []
        self._apart: OrderedDict[Batch, tuple[int, weakref.WeakMethod[Callable[[Batch], None]]]] = OrderedDict()
        self._apart_bytes = 0

    def join(self, driver: ProducerDriver, buffer_bytes: int) -> None:
        """A producer begins."""
        with self._lock:
            self._shares[driver] = buffer_bytes
            self.budget.limit = max(self._shares.values())

    def leave(self, driver: ProducerDriver) -> None:
        """A producer was closed. What it still holds counts until it is given back."""
        with self._lock:
            self._shares.pop(driver, None)
            self.budget.limit = max(self._shares.values(), default=0)

    def takers(self) -> list[Taker]:
        """What takes over connections for the workers of the producers that are open."""
        with self._lock:
            workers = [driver.worker for driver in self._shares]
        return [worker.taker for worker in workers if worker.taker is not None]

    def keep_apart(self, batch: Batch, size: int, drop: Callable[[Batch], None]) -> None:
        """A failed batch has left the buffer, and takes so many bytes beside it. Beyond KEPT_BYTES those that came first are dropped, whosever they
        are. drop: a method of its owner, who is not kept by that.
        """
        dropped: list[tuple[Batch, weakref.WeakMethod[Callable[[Batch], None]]]] = []
        with self._lock:
            if batch not in self._apart:
                self._apart[batch] = size, weakref.WeakMethod(drop)
                self._apart_bytes += size
            while self._apart_bytes > KEPT_BYTES:
                oldest, (size, of_owner) = self._apart.popitem(last=False)
                self._apart_bytes -= size
                dropped.append((oldest, of_owner))
        for oldest, of_owner in dropped:
            if (tell := of_owner()) is not None:
                tell(oldest)

    def taken(self, batches: Iterable[Batch]) -> None:
        """They are somebody else's now, and take nothing here."""
        with self._lock:
            for batch in batches:
                if batch in self._apart:
                    self._apart_bytes -= self._apart.pop(batch)[0]

    @property
    def contended(self) -> bool:
        """Does anybody stand in line?"""
        if not self._line:
            return False
        with self._lock:
            return bool(self._standing())

    def stand_in_line(self, driver: ProducerDriver, size: int) -> Place:
        """Take the last place. Everything that lingers goes out, of every producer: its memory is wanted."""
        place = Place(driver, size, self._handler.Event(), in_callback=is_callback(self._handler))
        with self._lock:
            self._line.append(weakref.ref(place))
            drivers = list(self._shares)
        for other in drivers:
            other.press()
        return place

    def step_out(self, place: Place) -> None:
        """Leave the line, served or not; the next may try."""
        with self._lock:
            self._line[:] = [other for other in self._line if other() not in (None, place)]
        self.give_room()

    def make_room(self, place: Place) -> bool:
        """For a callback: what it may take beyond the limits. It bounds what is held although the callbacks' worker, which alone ends that, waits
        for nobody. At last delivered records that only wait for a look of callbacks; not of other producers if it is its own producer's buffer that
        is too small. True: try again.
        """
        if not place.in_callback:
            return False
        with self._lock:
            drivers = [place.driver, *(d for d in self._shares if d is not place.driver)]
            share = self._shares.get(place.driver, 0)
        if place.beyond < share:
            place.beyond = share
            return True
        others_matter = place.driver.own_available + place.beyond >= place.size
        return any(driver.callbacks.let_go() for driver in (drivers if others_matter else drivers[:1]))

    def may_try(self, place: Place) -> bool:
        """Is it this one's turn?"""
        with self._lock:
            return any(place is served for served in self._first())

    def give_room(self) -> None:
        """Memory was given back: wake whose turn it is."""
        if not self._line:
            return
        with self._lock:
            served = self._first()
        for place in served:
            place.event.set()

    def _first(self) -> list[Place]:
        """Those whose turn it is: callbacks, the first of the line, and behind one that waits for its own producer's buffer the first of another."""
        line = self._standing()
        served = [place for place in line if place.in_callback]
        for place in line:
            if place.in_callback or any(place.driver is other.driver for other in served):
                continue
            served.append(place)
            if place.driver.own_available >= place.size:
                break  # it waits for what all share, and nobody overtakes it
        return served

    def _standing(self) -> list[Place]:
        """Those who are in the line. Called under the lock."""
        standing = [place for ref in self._line if (place := ref()) is not None]
        if len(standing) < len(self._line):
            self._line[:] = map(weakref.ref, standing)
        return standing
