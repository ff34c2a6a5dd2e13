"""How the requests of a group's member go out: JoinGroup and SyncGroup by a connection of their own,
since coordinators park them, everything else beside the client's other control requests."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from gkafka.broker import CONTROL
from gkafka.core.groupstate import Ask, Lane
from gkafka.exceptions import KafkaException

if TYPE_CHECKING:
    from collections.abc import Callable

    from gkafka.broker import Broker
    from gkafka.cluster import Cluster
    from gkafka.net.channel import Channel

__all__ = ["UNANSWERED_S", "MemberRequests"]

UNANSWERED_S = 1.0
"""Count an answer as lost if its connection has had none to give for so long: the worker that was to
take it was interrupted, more than once."""


class OnDone(Protocol):
    """Takes what came of a request."""

    def __call__(self, ask: Ask, response: Any, error: KafkaException | None) -> None: ...


class MemberRequests:
    """on_done(ask, response, error): called once for each request, perhaps by send() itself."""

    def __init__(self, cluster: Cluster, on_done: OnDone) -> None:
        self._cluster, self._on_done = cluster, on_done
        self._role = ("group", object())
        self._at: Broker | None = None  # where its own connection is
        self._sent: list[tuple[Ask, Channel]] = []
        self._silent_since: float | None = None

    def send(self, ask: Ask) -> None:
        """Hand a request to its connection."""
        try:
            broker = self._cluster.some_broker() if ask.to is None else self._cluster.know_broker(*ask.to)
            role: object = CONTROL
            if ask.lane is Lane.GROUP:
                role = self._role
                if self._at is not broker:
                    self.drop_connection()
                self._at = broker
            channel = broker.send(role, ask.request, partial(self._on_done, ask), timeout_s=ask.timeout_s)
            self._sent.append((ask, channel))
        except KafkaException as exc:
            self._on_done(ask, None, exc)

    def drop_connection(self) -> None:
        """End the connection of JoinGroup and SyncGroup: what is parked there holds up the next one."""
        if self._at is not None:
            self._at.drop_channel(self._role)

    def restart(self) -> None:
        """Forget what was sent."""
        self._sent, self._silent_since = [], None
        self.drop_connection()

    def await_answers(self, is_under_way: Callable[[Ask], bool]) -> bool:
        """Return whether a request waits for its answer at a connection."""
        self._sent = [one for one in self._sent if is_under_way(one[0])]
        return bool(self._sent)

    def has_lost(self, now: float) -> bool:
        """Return whether an answer was lost: its connection has had nothing to tell for a while."""
        if not any(channel.is_done for _, channel in self._sent):
            self._silent_since = None
        elif self._silent_since is None:
            self._silent_since = now
        return self._silent_since is not None and now - self._silent_since >= UNANSWERED_S
