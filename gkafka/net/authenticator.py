"""Authenticates a connection: asks for the credentials, and has whoever owns the connection send what `core.sasl` wants said."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, TypeAlias

from gkafka.core.sasl import SHORTEST_S, Authentication, Mechanism, renewal_s
from gkafka.exceptions import AuthenticationError, KafkaException, without_frames
from gkafka.handlers.base import Handler
from gkafka.logs import get_logger
from gkafka.net.credentials import Credentials
from gkafka.net.kerberos import next_step
from gkafka.wire.apis import Versions

__all__ = ["Authenticator", "Exchange"]

log = get_logger(__name__)
Exchange: TypeAlias = Callable[[Any, Authentication], Any]
"""Sends a request, or bytes that stand without a header; returns the answer, None where there is none (`Authentication.done`)."""


class Authenticator:
    """One connection's. host: whom the credentials are for; peer: host:port, for errors."""

    def __init__(self, handler: Handler, credentials: Credentials, host: str, peer: str) -> None:
        self.name = credentials.name
        self.lifetime_s = 0.0
        """How long the broker is content with the last authentication; 0: as long as the connection lasts."""
        self._handler = handler
        self._credentials = credentials
        self._host = host
        self._peer = peer
        self._told = False
        self._mechanism: Mechanism | None = None  # of the last authentication, once it had its credentials

    @property
    def remark(self) -> str:
        """What may be wrong with the credentials that were sent last, for an error's text; "" if nothing is seen."""
        return "" if self._mechanism is None else self._mechanism.remark

    def accepted(self) -> None:
        """The broker has let the client in."""
        self._credentials.accepted(self._peer)

    def refused(self, error: AuthenticationError) -> KafkaException:
        """What a connection that was not let in ends with: the error, or, where the credentials are to be tried again, one that says so."""
        return self._credentials.refused(self._peer, self._mechanism, error)

    def authenticate(self, versions: Versions, exchange: Exchange, deadline: float) -> float | None:
        """Returns after how many seconds it is to be done again; None: never. deadline: for whoever gives the credentials, monotonic seconds.

        Raises AuthenticationError, or what ended the connection. No frame of its traceback knows a secret.
        """
        try:
            return self._authenticate(versions, exchange, deadline)
        except KafkaException as exc:
            error = without_frames(exc)
        except Exception as exc:  # of a library: a ticket that is not there, a damaged token
            step = f"; {next_step(exc)}" if self.name == "GSSAPI" else ""
            error = AuthenticationError(f"{self._peer}: {self.name}: {type(exc).__name__}: {exc}{step}", broker=self._peer)
            error.__cause__ = without_frames(exc)
        raise error

    def _authenticate(self, versions: Versions, exchange: Exchange, deadline: float) -> float | None:
        self._mechanism = None
        self._mechanism = mechanism = self._credentials.mechanism(self._host, deadline)
        authentication = Authentication(mechanism, versions, peer=self._peer)
        said: Any = authentication.begin()
        while said is not None:
            answer = exchange(said, authentication)
            if authentication.done:
                break
            # SCRAM computes, GSSAPI may ask its key server: neither may keep a hub from its greenlets.
            said = self._handler.offload(authentication.take, answer) if mechanism.takes_long else authentication.take(answer)
        self.lifetime_s = authentication.lifetime_ms / 1000
        if 0 < self.lifetime_s < SHORTEST_S:
            log.log(
                logging.DEBUG if self._told else logging.WARNING,
                "%s: the broker says that this authentication lasts %d ms (session_lifetime_ms); it is renewed every %d ms and not more often",
                self._peer,
                authentication.lifetime_ms,
                SHORTEST_S * 1000,
            )
            self._told = True
        return renewal_s(authentication.lifetime_ms, self._handler.random())
