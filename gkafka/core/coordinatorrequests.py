"""The requests of one member of a group to its coordinator: which are under way, what they met, and
where the coordinator is.

At most one request of each kind is under way. After a failure the next one of that kind waits.
"""

from __future__ import annotations

import enum
from typing import Any, NamedTuple

from gkafka.brokererrors import (
    COORDINATOR,
    BrokerError,
    KafkaException,
    RequestTimedOut,
    UnknownError,
    error_for,
)
from gkafka.core.backoff import Backoff, Chance
from gkafka.core.flights import Flights
from gkafka.core.groupstate import Address, Ask, Lane
from gkafka.core.offsets import coordinator_of, coordinator_request
from gkafka.exceptions import SerializationError
from gkafka.logs import get_logger
from gkafka.wire.groups import FindCoordinatorRequest
from gkafka.wire.metadata import MetadataRequest
from gkafka.wire.schema import Message

__all__ = ["Answer", "CoordinatorRequests", "Kind", "passes"]

log = get_logger(__name__)


class Kind(enum.Enum):
    """What a request is for.

    ROUND: JoinGroup and SyncGroup, never two at a time (B55). NAMES: names of topics that are known
    by id (KIP-848).
    """

    FIND = "find"
    ROUND = "round"
    BEAT = "beat"
    LEAVE = "leave"
    NAMES = "names"


ANY_BROKER = (Kind.FIND, Kind.NAMES)
"""Kinds of requests that every broker answers; the others need the coordinator."""


class Answer(NamedTuple):
    """What came of a request.

    response: None if nothing did. error: why there is none, or what the response refuses. sent_at,
    now: when the request went and this came.
    """

    kind: Kind
    ask: Ask
    response: Any
    error: KafkaException | None
    sent_at: float
    now: float


class CoordinatorRequests:
    """coordinator: its address, None while it is to be looked for. patience_s: how long a request
    may take if its sender does not say."""

    def __init__(self, group: str, patience_s: float, backoff: Backoff, chance: Chance) -> None:
        self.coordinator: Address | None = None
        self._group = group
        self._patience_s = patience_s
        self._flying: Flights[Kind, Ask] = Flights(Kind, backoff, chance)
        self._troubles: dict[Kind, KafkaException] = {}

    def __contains__(self, kind: Kind) -> bool:
        return kind in self._flying

    def get(self, kind: Kind) -> Ask | None:
        """Return the request of this kind that is under way."""
        return self._flying.get(kind)

    def is_under_way(self, ask: Ask) -> bool:
        """Return whether the answer of this very request is waited for."""
        return self._flying.find(ask) is not None

    @property
    def trouble(self) -> KafkaException | None:
        """The last failure of a kind of request that has not succeeded since."""
        return next(iter(self._troubles.values()), None)

    # -- sending -----------------------------------------------------------------------------------
    def may_send(self, kind: Kind, now: float) -> bool:
        """Return whether a request of this kind may be sent: none is under way, no pause, and there
        is a broker to send it to."""
        has_broker = kind in ANY_BROKER or self.coordinator is not None
        return has_broker and self._flying.may_send(kind, now)

    def send(
        self,
        kind: Kind,
        request: Message,
        now: float,
        *,
        lane: Lane = Lane.CONTROL,
        timeout_s: float | None = None,
    ) -> Ask:
        """Return the request for the driver. It counts as under way from now on."""
        to = None if kind in ANY_BROKER else self.coordinator
        return self._flying.sent(kind, Ask(request, to, lane, timeout_s or self._patience_s), now)

    def find(self, now: float) -> Ask | None:
        """Return a FindCoordinator request if the coordinator is unknown and one may be sent."""
        if self.coordinator is not None or not self.may_send(Kind.FIND, now):
            return None
        return self.send(Kind.FIND, coordinator_request(self._group), now)

    def forget(self, *kinds: Kind) -> None:
        """Forget requests that are under way: their answers do not matter any more."""
        for kind in kinds:
            self._flying.forget(kind)

    def restart(self, now: float) -> None:
        """Begin anew: nothing is under way, and the coordinator is unknown.

        What was under way may be sent again after a pause, as after a lost connection.
        """
        for kind in Kind:
            if kind in self._flying:
                self._flying.forget(kind)
                self._flying.pause(kind, now)
        self.coordinator = None

    # -- answers -----------------------------------------------------------------------------------
    def take(self, ask: Ask, response: Any, error: KafkaException | None, now: float) -> Answer | None:
        """Return what the outcome of a request means, or None if the request was forgotten."""
        found = self._flying.find(ask)
        if found is None:
            return None
        kind, sent_at = found
        self._flying.forget(kind)
        error = error or _error_of(ask, response, self._group)
        if error is None:
            self._flying.succeeded(kind)
            self._troubles.pop(kind, None)
        return Answer(kind, ask, response, error, sent_at, now)

    def pause(self, kind: Kind, error: KafkaException, now: float) -> None:
        """Try this kind again later, after this error."""
        until = self._flying.pause(kind, now)
        if isinstance(error, UnknownError) and not isinstance(self._troubles.get(kind), UnknownError):
            log.warning("group %r: %s; it is tried again for as long as that lasts", self._group, error)
        self._troubles[kind] = error
        log.debug("group %r: %s; again in %.3f s", self._group, error, until - now)

    def rest(self, kind: Kind, now: float) -> None:
        """Try this kind again later, although it was answered."""
        self._flying.pause(kind, now)

    def doubt(self, error: KafkaException, asked: Address | None) -> None:
        """Look for the coordinator again if this error says that it may be elsewhere.

        Any end of a connection says so, too. asked: the broker that the failed request went to.
        """
        if asked != self.coordinator:
            return
        is_stale = isinstance(error, BrokerError) and error.stale is COORDINATOR
        if is_stale or not isinstance(error, BrokerError) or isinstance(error, RequestTimedOut):
            self.coordinator = None

    # -- times -------------------------------------------------------------------------------------
    def paused_until(self, kind: Kind) -> float:
        """Return when a request of this kind may be sent again."""
        return self._flying.paused_until(kind)

    def wakes_at(self, now: float) -> list[float]:
        """Return when pauses end."""
        return self._flying.wakes_at(now)


def passes(error: KafkaException) -> bool:
    """Return whether the same request may be answered well later.

    So may what the coordinator does not know how to answer: another member's metadata, which it
    cannot read, are in the way until that member is gone (Kafka 4: UNKNOWN_SERVER_ERROR). A request
    that cannot be written down never can be.
    """
    return error.retriable or isinstance(error, UnknownError) or not isinstance(error, (BrokerError, SerializationError))


def _error_of(ask: Ask, response: Any, group: str) -> KafkaException | None:
    """Return what an answer refuses."""
    about: dict[str, Any] = {
        "group": group,
        "api": ask.request.API.name,
        "broker": None if ask.to is None else ask.to[0],
    }
    if isinstance(ask.request, MetadataRequest):
        return None  # each topic has its own
    if isinstance(ask.request, FindCoordinatorRequest):
        try:
            coordinator_of(response, group=group, broker=about["broker"])
        except KafkaException as error:
            return error
        return None
    return error_for(response.error_code, getattr(response, "error_message", None), **about)
