"""For how long what a member has is surely its own: times are the member's, counted from when a request was sent that was answered well."""

from __future__ import annotations

__all__ = ["Lease"]


class Lease:
    """alive_at: the coordinator heard of it no earlier. settled_at: no rebalance that it has not joined can have begun earlier."""

    def __init__(self, session_s: float, rebalance_s: float) -> None:
        self._session_s, self._rebalance_s = session_s, rebalance_s
        self._alive_at = self._settled_at = 0.0

    @property
    def ends_at(self) -> float:
        """When the coordinator may have given it up: it was silent, or has not joined a rebalance in time."""
        return min(self._alive_at + self._session_s, self._settled_at + self._rebalance_s)

    def alive(self, sent_at: float) -> None:
        """The coordinator knows the member, but the group may be rebalancing."""
        self._alive_at = max(self._alive_at, sent_at)

    def settled(self, sent_at: float) -> None:
        """The group was stable."""
        self.alive(sent_at)
        self._settled_at = max(self._settled_at, sent_at)

    def joined(self, sent_at: float) -> None:
        """A new generation, which is no older than the last word of the one before it."""
        self.settled(max(self._alive_at, sent_at))
