"""How many connections of a client are being opened at once, and whose turn it is to open one.

Whoever answers for the metadata may name thousands of brokers that are none. A connection that opens costs a worker and a descriptor for as long as
nobody answers on it; one that waits here costs neither, and its requests' deadlines hold all the same.

    channel: enter() > has a place, or waits
    reader: begin() > opens it (`net.opening`, which knows of one connection alone) > leave() > the next one begins
    the worker of those who wait: looks at their deadlines, and whether a place was left empty; and at the deadlines of requests that give up
        before the connection does which they wait for

A place is held by a connection that is being opened, not counted: whoever is interrupted between two steps leaves none taken that nobody uses.
"""

from __future__ import annotations

import enum
from collections import OrderedDict
from typing import Protocol

from gkafka.exceptions import KafkaException
from gkafka.handlers import Handler
from gkafka.logs import get_logger
from gkafka.undoing import Undoing

__all__ = ["AT_ONCE", "Opening", "Openings", "Rank"]

log = get_logger(__name__)

AT_ONCE = 256
"""Connections that are being opened at the same time. More than a cluster has brokers that are away, each of which may be silent for as long as
connect_timeout_ms: whoever is there waits for none of them. And no process runs out of threads or descriptors by 256."""
KEPT = 64
"""Of these, for brokers that are known to be there: they wait for none of those that never were."""
OLDEST_EACH = 4
"""Each fourth place is for who has waited longest, whoever comes meanwhile."""
LOOK_S = 0.05
"""How often those who wait are looked at."""


class Rank(enum.IntEnum):
    """Whose turn comes first. KNOWN: the last connection to the broker did open; NEW: none was tried, or one opened once; FAILING: all tries failed."""

    KNOWN = 0
    NEW = 1
    FAILING = 2


class Opening(Protocol):
    """A connection that is to be opened. begun: a worker does so; is_opening: or is still to do so; expires_at: when the first of its requests gives up."""

    rank: Rank
    begun: bool

    @property
    def expires_at(self) -> float: ...

    @property
    def is_opening(self) -> bool: ...

    def begin(self) -> None: ...

    def look_while_waiting(self, now: float) -> None: ...


class Openings:
    """Those of one client."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self._lock = handler.Mutex()
        self._inside: dict[Opening, None] = {}
        self._waiting: tuple[OrderedDict[Opening, int], ...] = tuple(OrderedDict() for _ in Rank)  # with their numbers
        self._watched: dict[Opening, None] = {}
        self._number = 0
        self._admitted = 0
        self._is_looked_after = False

    @property
    def waiting(self) -> int:
        """Connections that wait for their turn."""
        return sum(map(len, self._waiting))

    def enter(self, opening: Opening) -> None:
        """It begins now, or when its turn comes. Once more, if whoever called was interrupted. Raises where nobody could look after those who wait."""
        with self._lock:
            if opening not in self._inside:
                self._number += 1
                self._waiting[opening.rank].setdefault(opening, self._number)
        self._admit()
        if self.waiting:
            self._look_after()

    def leave(self, opening: Opening) -> None:
        """It is open, or has failed."""
        with self._lock:
            had_place = opening in self._inside
            self._inside.pop(opening, None)
        if had_place:
            self._admit()

    def withdraw(self, opening: Opening) -> bool:
        """It was closed. True: it was waiting, and will not begin."""
        with self._lock:
            return self._waiting[opening.rank].pop(opening, None) is not None

    def _admit(self) -> None:
        while (opening := self._next()) is not None:
            opening.begin()

    def _next(self) -> Opening | None:
        """One that has a place, and that nobody has begun."""
        with self._lock:
            for opening in [each for each in self._inside if not each.is_opening]:
                del self._inside[opening]
            for opening in self._inside:
                if not opening.begun:
                    return opening
            queue = self._whose_turn()
            if queue is None:
                return None
            opening = next(iter(queue))
            self._inside[opening] = None  # before it leaves the queue: who is interrupted loses none
            del queue[opening]
            self._admitted += 1
            return opening

    def _whose_turn(self) -> OrderedDict[Opening, int] | None:
        free = AT_ONCE - len(self._inside)
        known = self._waiting[Rank.KNOWN]
        if known and free > 0:
            return known
        queues = [queue for queue in self._waiting if queue]
        if free <= KEPT or not queues:
            return None
        if self._admitted % OLDEST_EACH:
            return queues[0]
        return min(queues, key=lambda queue: next(iter(queue.values())))

    # -- those who wait
    def watch(self, opening: Opening) -> None:
        """One of its requests may give up before it is open, or has failed: while a socket connects its reader looks at no other deadline."""
        with self._lock:
            self._watched[opening] = None
        try:
            self._look_after()
        except Exception as exc:  # no thread can be started: its reader tells, when it has connected or given up
            if self._handler.interrupted(exc):
                raise
            log.debug("nobody looks at the deadlines of a connection that is being opened: %s", exc)

    def _look_after(self) -> None:
        with self._lock:
            if self._is_looked_after:
                return
            self._is_looked_after = True
        try:
            with Undoing(self._look_no_more):
                self._handler.spawn_lasting(self._work, _name="gkafka-openings")
        except KafkaException as exc:  # the handler was stopped: all that wait are being closed
            log.debug("nobody looks after those who wait to connect: %s", exc)

    def _work(self) -> None:
        with Undoing(self._look_no_more):
            while waiting := self._who_waits():
                self._look_at(waiting)
                self._handler.sleep(LOOK_S)
                self._handler.check_fork()

    def _look_no_more(self) -> None:
        self._is_looked_after = False

    def _look_at(self, waiting: list[Opening]) -> None:
        now = self._handler.monotonic()
        try:
            for opening in waiting:
                if opening.expires_at <= now:
                    opening.look_while_waiting(now)
                    self._handler.checkpoint()
            self._admit()
        except Exception as exc:  # in the next look the others have their turn
            if self._handler.interrupted(exc):
                raise
            log.exception("those who wait to connect")

    def _who_waits(self) -> list[Opening]:
        with self._lock:
            for opening in [each for each in self._watched if not each.is_opening]:
                del self._watched[opening]
            waiting = {opening: None for queue in self._waiting for opening in queue} | self._watched
            self._is_looked_after = bool(waiting)
            return list(waiting)
