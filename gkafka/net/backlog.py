"""Requests that wait until their connection is open, or until there is room on it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Any

from gkafka.core.connection import Connection
from gkafka.exceptions import KafkaException, KafkaTimeoutError
from gkafka.net.completions import OnDone
from gkafka.net.link import Link

__all__ = ["Backlog", "Queued"]

SHORTEST_WAIT_S = 0.02
"""Deadlines are looked at no more often than this."""


@dataclass(slots=True, eq=False)
class Queued:
    """A request that waits."""

    request: Any
    on_done: OnDone
    at: float
    timeout_s: float
    max_version: int | None
    expects_response: bool

    @property
    def deadline(self) -> float:
        return self.at + self.timeout_s


class Backlog:
    """The waiting requests of one connection, oldest first.

    max_in_flight: requests without an answer at one time (max_in_flight_per_connection), None for
    any number. complete: runs a callback. why: returns why requests wait now, for texts.
    """

    def __init__(
        self,
        link: Link,
        connection: Connection,
        *,
        max_in_flight: int | None,
        complete: Callable[[OnDone, Any, KafkaException | None], None],
        why: Callable[[], str],
    ) -> None:
        self._link = link
        self._connection = connection
        self._complete = complete
        self._why = why
        self.max_in_flight = max_in_flight
        self.queued: deque[Queued] = deque()
        self.expires_at = inf
        """The earliest deadline of the waiting requests."""

    # -- under the link's lock
    def must_wait(self) -> bool:
        """Return whether there is no room for a new request, or others wait for room already."""
        limit = self.max_in_flight
        return limit is not None and (bool(self.queued) or self._connection.in_flight >= limit)

    def is_full(self) -> bool:
        """Return whether max_in_flight requests are without an answer."""
        limit = self.max_in_flight
        return limit is not None and self._connection.in_flight >= limit

    def put(self, queued: Queued) -> None:
        """Append a request."""
        self.queued.append(queued)
        self.expires_at = min(self.expires_at, queued.deadline)

    def unsent(self, now: float) -> list[tuple[OnDone | None, KafkaException | None]]:
        """Return callbacks and errors of all waiting requests, for a connection that was closed."""
        return [(wait.on_done, self._never_sent(wait) if wait.deadline <= now else self._link.unsent_error()) for wait in self.queued]

    # -- without it
    def withdraw(self, on_done: OnDone, now: float) -> KafkaTimeoutError | None:
        """Take a request back without running its callback: return why it was not sent until now.

        Return None if it may have been sent.
        """
        with self._link.lock:
            for queued in self.queued if self._link.end is None else ():
                if queued.on_done is on_done:
                    self.queued.remove(queued)
                    return self._never_sent(queued, now - queued.at)
        return None

    def last_deadline(self) -> float:
        """Return when the last of the waiting requests gives up. Raise if the channel is closed."""
        with self._link.lock:
            self._link.raise_if_closed()
            return max((queued.deadline for queued in self.queued), default=inf)

    def expire(self, now: float) -> float:
        """Fail the requests whose deadline has passed. Return when to look again.

        The connection, which never saw these requests, goes on.
        """
        if not self.queued:
            return inf
        with self._link.lock:
            late = [queued for queued in self.queued if queued.deadline <= now]
            for queued in late:
                self.queued.remove(queued)
            self.expires_at = min((queued.deadline for queued in self.queued), default=inf)
        for queued in late:
            self._complete(queued.on_done, None, self._never_sent(queued))
        return max(self.expires_at, now + SHORTEST_WAIT_S)

    def _never_sent(self, queued: Queued, waited_s: float | None = None) -> KafkaTimeoutError:
        api = queued.request.API.name
        waited = queued.timeout_s if waited_s is None else waited_s
        closed = f" ({self._link.error})" if self._link.error else ""
        error = KafkaTimeoutError(
            f"{self._link.peer}: {api} could not be sent within {waited:.3g} s: {self._why()}{closed}",
            broker=self._link.broker,
            api=api,
        )
        error.never_sent = True
        return error
