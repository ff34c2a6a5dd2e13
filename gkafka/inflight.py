"""The requests of one producer that were handed to a connection and have no answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from gkafka.net.looks import LOST_S

if TYPE_CHECKING:
    from gkafka.core.sender import Outgoing
    from gkafka.net.channel import Channel
    from gkafka.net.completions import OnDone
    from gkafka.records import Batch

__all__ = ["InFlightRequests"]


class InFlightRequest(NamedTuple):
    """outgoing: its batches; size: bytes that they hold. channel: its connection, which calls
    on_done before lost_at."""

    outgoing: Outgoing
    channel: Channel
    on_done: OnDone
    size: int
    lost_at: float


class InFlightRequests:
    """timeout_s: of each request. requests: those in flight, oldest first; size: bytes of all their
    batches."""

    def __init__(self, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self.requests: list[InFlightRequest] = []
        self.size = 0

    def add(self, outgoing: Outgoing, channel: Channel, on_done: OnDone, size: int, now: float) -> None:
        """Note a request that is about to be handed to a connection."""
        self.requests.append(InFlightRequest(outgoing, channel, on_done, size, now + self.timeout_s + LOST_S))
        self.size += size

    def remove(self, outgoing: Outgoing) -> bool:
        """Forget a request that has its answer. Return False if it was not in flight."""
        for n, request in enumerate(self.requests):
            if request.outgoing is outgoing:  # another one with equal batches may be in flight by now
                self.size -= request.size
                del self.requests[n]
                return True
        return False

    def clear(self) -> None:
        """Forget all of them."""
        self.requests, self.size = [], 0

    def has_lost(self, now: float) -> bool:
        """Has the connection of the oldest one ended without a call of on_done?"""
        return bool(self.requests) and now >= self.requests[0].lost_at and self.requests[0].channel.is_done

    def beside(self, is_late: Callable[[Batch], bool]) -> list[InFlightRequest]:
        """Return all requests on the connections of those that hold such a batch."""
        late = {id(request.channel) for request in self.requests if any(map(is_late, request.outgoing.batches))}
        return [request for request in self.requests if id(request.channel) in late]
