"""What a reader looks at whenever it has waited for bytes.

That is: deadlines, whether the session has to be renewed, and whether the connection is wanted.
"""

from __future__ import annotations

from math import inf

from gkafka.config import ClientConfig
from gkafka.core.connection import Connection
from gkafka.exceptions import SocketDisconnectedError
from gkafka.handlers import Handler
from gkafka.handlers.primitives import GRACE_S, STOOD_STILL_S
from gkafka.net.backlog import SHORTEST_WAIT_S, Backlog
from gkafka.net.guesses import Guess
from gkafka.net.link import Link
from gkafka.net.session import Session

__all__ = ["LONGEST_WAIT_S", "LOST_S", "Looks"]

LONGEST_WAIT_S = 1.0
"""A worker wakes up this often to see that it was closed, killed or forked."""
LONGEST_GREENLET_WAIT_S = 2.0
"""A greenlet can be told to look sooner. It sees a fork, or a dropped client, this late."""
LOST_S = 2.0
"""Count an answer as lost if on_done was not called for so long after the request's time: whoever
was to call it was interrupted, more than once."""


class Looks:
    """When the reader of one connection looks around, and what it looks at.

    wait_s: it waits for bytes no longer than this.
    """

    def __init__(
        self,
        handler: Handler,
        config: ClientConfig,
        connection: Connection,
        link: Link,
        guess: Guess,
        backlog: Backlog,
        session: Session | None,
    ) -> None:
        self._handler = handler
        self._connection = connection
        self._link = link
        self._guess = guess
        self._backlog = backlog
        self._session = session
        self._connect_timeout_s = config.connect_timeout_ms / 1000
        longest = LONGEST_GREENLET_WAIT_S if handler.cooperative else LONGEST_WAIT_S
        # A deadline is seen before it has passed, and then waited for.
        self.wait_s = min(longest, config.socket_timeout_ms / 2000)
        self._at = inf  # until when the reader waits, by its last look
        # A deadline that passed while the process stood still, and until when it is waited for.
        self._forgiven = self._reads_until = -1.0

    def look_sooner(self, timeout_s: float) -> None:
        """A request has so short a time-out that the reader has to look more often."""
        self.wait_s = max(SHORTEST_WAIT_S, timeout_s / 2)
        if self._link.opened and self._link.stream is not None:
            self._link.stream.look_again()

    def look(self) -> float:
        """Return until when to wait for bytes. Raise if there is nothing to wait for any more."""
        now = self._handler.monotonic()
        link, connection, guess = self._link, self._connection, self._guess
        with link.lock:
            link.raise_if_closed()
            if link.abandoned:
                raise SocketDisconnectedError(f"{link.peer}: it was left open by who was done with it", broker=link.broker)
            is_wrong = guess.doubted or (link.opened and connection.guessed and guess.is_told)
            if is_wrong and not connection.in_flight:
                raise SocketDisconnectedError(f"{link.peer}: it was taken for an older Kafka than it may be", broker=link.broker)
            deadline = self._after_standing_still(connection.deadline, now)
            overdue = connection.poll(now) if deadline is not None and deadline <= now else None
        if overdue:
            raise connection.overdue(overdue[0])
        until = min(inf if link.taken else self._handler.looks_at(now, self.wait_s), self._backlog.expire(now))
        if self._session is not None:
            until = self._look_at_session(self._session, now, until)
        self._at = until if deadline is None else min(deadline, until)
        return self._at

    def _look_at_session(self, session: Session, now: float, until: float) -> float:
        if now >= session.renew_at and self._connection.versions is not None:
            session.renew(self._connection.versions, self._connect_timeout_s)
        return min(until, now + SHORTEST_WAIT_S if session.renewing else session.renew_at)

    def _after_standing_still(self, deadline: float | None, now: float) -> float | None:
        """Return the deadline, or a later one if it passed while the process stood still.

        Each deadline is put off once, so that what came meanwhile is read first.
        """
        if deadline is None or deadline > now:
            return deadline
        if now - self._at > STOOD_STILL_S and deadline != self._forgiven:
            self._forgiven, self._reads_until = deadline, now + GRACE_S
        return self._reads_until if deadline == self._forgiven else deadline
