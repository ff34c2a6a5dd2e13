"""The commits of a member that are under way: what they are for is not free before they end."""

from __future__ import annotations

from gkafka.common import TopicPartition
from gkafka.core.groupstate import Ticket

__all__ = ["Tickets"]


class Tickets:
    """Tickets that were granted and are not over. A commit may end without a word, when its caller
    is interrupted: so each ticket has a time, too.

    awaited: there were some when the machine was polled last, so that something may wait for their end.
    """

    def __init__(self) -> None:
        self._granted: list[Ticket] = []
        self.awaited = False

    def __bool__(self) -> bool:
        return bool(self._granted)

    @property
    def partitions(self) -> set[TopicPartition]:
        """Partitions of which a commit is under way."""
        return {tp for ticket in self._granted for tp in ticket.partitions}

    def grant(self, ticket: Ticket, generation: int, member_id: str, partitions: frozenset[TopicPartition]) -> None:
        """Make it the right to commit offsets of these partitions, as this member."""
        ticket.generation, ticket.member_id, ticket.partitions = generation, member_id, partitions
        self._granted.append(ticket)  # last: a ticket that counts is complete

    def end(self, ticket: Ticket) -> None:
        """Forget a ticket whose commit is over."""
        if ticket in self._granted:
            self._granted.remove(ticket)

    def expire(self, now: float) -> None:
        """At each poll: forget tickets whose time or whose commit is over."""
        self._granted = [ticket for ticket in self._granted if now < ticket.until and not ticket.is_over]
        self.awaited = bool(self._granted)

    def wakes_at(self) -> list[float]:
        """Return the times at which tickets end by themselves."""
        return [ticket.until for ticket in self._granted]
