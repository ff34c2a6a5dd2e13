"""One token for several connections: asked for by whoever needs it first, and again when most of its life is over."""

from __future__ import annotations

import abc
from copy import copy
from math import inf
from typing import NamedTuple

from gkafka.config import Secret
from gkafka.exceptions import KafkaException, TokenEndpointError, without_frames
from gkafka.handlers import Future, Handler
from gkafka.undoing import Undoing

__all__ = ["Token", "Tokens"]

FRESH = 0.8  # of a token's lifetime: after that a new one is asked for
AGAIN_S = 1.0
"""For so long a failure is told again, and a new token is kept even if a broker refuses it: each connection to each broker wants one."""


class Token(NamedTuple):
    """text: a Secret; asked_at, fresh_until: monotonic seconds."""

    text: Secret
    asked_at: float
    fresh_until: float

    @classmethod
    def of(cls, text: Secret, asked_at: float, lifetime_s: float) -> Token:
        return cls(text, asked_at, asked_at + FRESH * lifetime_s)


class Tokens(abc.ABC):
    """One client's tokens. Whoever needs one while it is being asked for waits for the same answer. where: who gives them, for errors."""

    def __init__(self, handler: Handler, where: str) -> None:
        self._handler = handler
        self._where = where
        self._lock = handler.Mutex()
        self._token: Token | None = None
        self._asking: Future | None = None
        self._failure: Exception | None = None
        self._ask_again_at = -inf

    @abc.abstractmethod
    def _ask(self, deadline: float) -> Token:
        """A new one. deadline: monotonic seconds. Raises what token() raises."""

    def token(self, deadline: float) -> Secret:
        """A token for an authentication that begins now. deadline: monotonic seconds.

        Raises AuthenticationError if it is refused, TokenEndpointError, TlsError, ProxyError or KafkaTimeoutError if it cannot be had.
        """
        with self._lock:
            if self._token is not None and self._handler.monotonic() < self._token.fresh_until:
                return self._token.text
            if self._failure is not None and self._handler.monotonic() < self._ask_again_at:
                raise copy(self._failure) from self._failure.__cause__
            asking, mine = self._asking, self._asking is None
            if asking is None:
                asking = self._asking = self._handler.Future()
        if not mine:
            answered: Secret = asking.result(max(0.0, deadline - self._handler.monotonic()))
            return answered
        with Undoing(self._stopped, asking):
            try:
                token = self._ask(deadline)
            except Exception as exc:
                self._refused(asking, exc)
                raise
        self._token, self._failure = token, None
        self._asked(asking)
        asking.set(token.text)
        return token.text

    def _refused(self, asking: Future, error: Exception) -> None:
        if isinstance(error, KafkaException):
            self._failure, self._ask_again_at = copy(error), self._handler.monotonic() + AGAIN_S
            self._failure.__cause__ = error.__cause__
            without_frames(self._failure)
        self._asked(asking)
        asking.set_exception(error)

    def _stopped(self, asking: Future) -> None:
        self._asked(asking)
        if not asking.done():
            asking.set_exception(TokenEndpointError(f"{self._where}: whoever asked it was stopped"))

    def refused(self, text: str) -> None:
        """A broker has refused this token: the next authentication gets another one, unless it was given just now."""
        with self._lock:
            token = self._token
            if token is not None and token.text == text and self._handler.monotonic() - token.asked_at >= AGAIN_S:
                self._token = None

    def _asked(self, asking: Future) -> None:
        with self._lock:
            if self._asking is asking:
                self._asking = None
