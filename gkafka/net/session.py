"""The time for which a broker takes a client for authenticated, and the worker that authenticates again before it is over (KIP-368).

Kafka's brokers want nothing between the handshake and the end of a re-authentication but what belongs to it. So what is sent meanwhile waits, and what
was sent before is answered first: nothing is lost.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from math import inf

from gkafka.core.sasl import Authentication
from gkafka.exceptions import KafkaException, SocketDisconnectedError
from gkafka.handlers.base import Handler
from gkafka.logs import get_logger
from gkafka.net.authenticator import Authenticator
from gkafka.undoing import Undoing
from gkafka.wire.apis import Message, Versions

__all__ = ["Session"]

log = get_logger(__name__)
AGAIN_S = 1.0
"""When credentials that could not be had are asked for again, while the broker is still content with the old ones."""


class Session:
    """One open connection's.

    hold(): from now on what is sent waits; exchange(request): send one all the same, and wait for its answer; release(): what waits goes out;
    end(error): the connection is of no use any more. renew_at: when `renew` is to be called, monotonic seconds.
    """

    def __init__(
        self,
        handler: Handler,
        authenticator: Authenticator,
        peer: str,
        *,
        hold: Callable[[], None],
        exchange: Callable[[Message, int | None], Message],
        release: Callable[[], None],
        end: Callable[[KafkaException], None],
    ) -> None:
        self.renew_at = inf
        self.renewals = 0
        self.renewing = False
        """Whether a worker is at it: when it has done, `renew_at` is a new one."""
        self._ends_at = inf
        self._handler = handler
        self.authenticator = authenticator
        self._peer = peer
        self._hold = hold
        self._exchange = exchange
        self._release = release
        self._end = end
        self._held = False
        self._told = False

    def began(self, renew_in_s: float | None) -> None:
        """The client was authenticated just now."""
        if renew_in_s is not None:
            now = self._handler.monotonic()
            self.renew_at, self._ends_at = now + renew_in_s, now + self.authenticator.lifetime_s

    def renew(self, versions: Versions, timeout_s: float) -> None:
        """Authenticate again, by a worker of its own. timeout_s: for whoever gives the credentials."""
        self.renew_at = inf
        self.renewing = True
        try:
            self._handler.spawn(self._renew, versions, timeout_s, _name=f"gkafka-authentication-{self._peer}")
        except (KafkaException, RuntimeError) as exc:  # the handler was stopped; the interpreter ends
            self.renewing = False
            log.debug("%s: not authenticated again: %s", self._peer, exc)

    def _renew(self, versions: Versions, timeout_s: float) -> None:
        try:
            self._authenticate(versions, timeout_s)
        finally:
            self.renewing = False

    def _authenticate(self, versions: Versions, timeout_s: float) -> None:
        begun = self._handler.monotonic()
        stopped = SocketDisconnectedError(f"{self._peer}: the worker that authenticates it again was stopped")
        with Undoing(self._end, stopped):
            try:
                renew_in_s = self.authenticator.authenticate(versions, self._say, begun + timeout_s)
            except KafkaException as exc:
                self._failed(exc)
                return
        self._held = self._told = False
        self.renewals += 1
        self.began(renew_in_s)
        log.debug("%s: authenticated again in %.3f s", self._peer, self._handler.monotonic() - begun)
        self._release()

    def _say(self, request: Message, authentication: Authentication) -> Message:
        if not self._held:
            self._held = True
            self._hold()
        return self._exchange(request, authentication.newest_version(request))

    def _failed(self, exc: KafkaException) -> None:
        now = self._handler.monotonic()
        if not self._held and now + AGAIN_S < self._ends_at:  # the broker knows nothing of it
            log.log(logging.DEBUG if self._told else logging.WARNING, "%s: no credentials to authenticate again with: %s", self._peer, exc)
            self._told = True
            self.renew_at = now + AGAIN_S
            return
        # What is under way may still be done on a new connection; if that is refused, too, its requests are told why.
        lost = SocketDisconnectedError(f"{self._peer}: authenticating again failed: {exc}", broker=exc.broker)
        lost.__cause__ = exc
        self._end(lost)
