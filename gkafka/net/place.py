"""The place of one connection among those of a client that are to be opened, see net/openings.py.

    enter() > begin(), when its turn comes: the reader opens it > leave()

Until its turn comes a connection has no worker.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from math import inf

from gkafka.exceptions import KafkaException, ReentrantCallError, SocketDisconnectedError
from gkafka.guarding import guarded
from gkafka.net.backlog import Backlog
from gkafka.net.link import Link
from gkafka.net.openings import AT_ONCE, Openings, Rank
from gkafka.net.reader import Reader
from gkafka.net.steps import Steps

__all__ = ["OTHERS_FIRST", "Place"]

CONNECTING_GRACE_S = 0.1
"""Others than the reader that connects fail a request only so long after its deadline."""
OTHERS_FIRST = f"{AT_ONCE} connections of a client are opened at once, and others came first"


class Place:
    """An `Opening` of net/openings.py.

    rank: whose turn comes first. entered: `enter` was called. begun: the reader was started.
    steps: where the opening stands. shut(error): closes the channel.
    """

    def __init__(
        self,
        openings: Openings,
        rank: Rank,
        link: Link,
        backlog: Backlog,
        reader: Reader,
        steps: Steps,
        *,
        shut: Callable[[KafkaException | None], None],
    ) -> None:
        self.rank = rank
        self.entered = False
        self.begun = False
        self._openings = openings
        self._link = link
        self._backlog = backlog
        self._reader = reader
        self._steps = steps
        self._shut = shut

    def enter(self) -> None:
        """Begin to open the connection, or wait for its turn. A second call does nothing."""
        guarded(self._enter, failed=self._not_entered)

    def _enter(self) -> None:
        with self._link.lock:
            if self.entered or self._link.end is not None:
                return
            self.entered = True
        self._openings.enter(self)

    def _not_entered(self, error: BaseException) -> None:
        self.entered = not self._reader.is_interruption(error)  # else it may have a place or not
        self._reader.cannot_begin(error)

    def watch(self) -> None:
        """See to it that `look_while_waiting` is called at the deadlines of requests."""
        self._openings.watch(self)

    def leave(self) -> None:
        """The connection is open, or has failed."""
        self._openings.leave(self)

    def withdraw(self) -> None:
        """The channel was closed: leave the line. `join` does not wait where there is no reader."""
        # A signal handler on top of a caller that opens connections cannot leave the line. When its
        # turn comes the connection ends at once.
        with contextlib.suppress(ReentrantCallError):
            if self._openings.withdraw(self) or self._link.taken:
                self._reader.ended.set()

    @property
    def standing(self) -> str:
        """At which step the opening stands, for texts; "" if nothing is to be opened any more."""
        if self._link.opened or self._link.end is not None:
            return ""
        return str(self._steps) if self.begun else OTHERS_FIRST

    # -- for net/openings.py
    @property
    def expires_at(self) -> float:
        """When `look_while_waiting` is to be called."""
        return -inf if self._link.abandoned else self._backlog.expires_at

    @property
    def is_opening(self) -> bool:
        """Is there still something to be done until it is open, or has failed?"""
        return not (self._link.opened or self._reader.ended.is_set())

    def begin(self) -> None:
        """Start the reader: the turn has come.

        May run in a caller of another connection, which leaves its place.
        """
        guarded(self._begin, failed=self._not_begun)

    def _begin(self) -> None:
        with self._link.lock:
            if self.begun:
                return
            self.begun = True
        self._reader.begin()

    def _not_begun(self, error: BaseException) -> None:
        # After an interruption there may be a reader or not, so the next caller starts another: one
        # of them reads.
        self.begun = not self._reader.is_interruption(error)
        self._reader.cannot_begin(error)

    def look_while_waiting(self, now: float) -> None:
        """Fail the requests whose deadline has passed, in place of a reader or beside it."""
        # Where a connection that is being opened fails with its last request, that error says why:
        # it comes first.
        self._backlog.expire(now - CONNECTING_GRACE_S if self.begun else now)
        if self._link.abandoned and not self.begun:
            text = f"{self._link.peer}: it was left unopened by who was done with it"
            self._shut(SocketDisconnectedError(text, broker=self._link.broker))
