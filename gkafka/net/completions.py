"""Runs the callbacks of one connection's requests, when they are answered or have failed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, TypeAlias

from gkafka.exceptions import KafkaException
from gkafka.handlers import Future, Handler
from gkafka.logs import get_logger

__all__ = ["Completions", "Failures", "OnDone"]

log = get_logger(__name__)

OnDone: TypeAlias = Callable[[Any, KafkaException | None], None]
"""on_done(response, None) or on_done(None, error)."""
Failures: TypeAlias = list[tuple[OnDone | None, KafkaException | None]]
"""Callbacks, and the error for each: None for a request without an answer that was sent."""


class Completions:
    """Runs callbacks. An exception in one is logged, but a signal handler's or a kill goes on."""

    def __init__(self, handler: Handler, peer: str) -> None:
        self._handler = handler
        self._peer = peer

    def future(self) -> tuple[Future, OnDone]:
        """Return a future, and the callback that sets its result."""
        future: Future = self._handler.Future()

        def done(response: Any, error: KafkaException | None) -> None:
            if error is None:
                future.set(response)
            else:
                future.set_exception(error)

        return future, done

    def complete(self, on_done: OnDone, response: Any, error: KafkaException | None) -> None:
        """Run one callback."""
        try:
            on_done(response, error)
        except Exception as exc:
            if self._handler.interrupted(exc):
                raise
            log.exception("%s: a callback for an answer raised", self._peer)

    def fail_each(self, failed: Failures) -> None:
        """Run all callbacks and empty the list, even if a kill or Ctrl-C ends one of them.

        Such an exception goes on when all callbacks have run.
        """
        while failed:
            on_done, error = failed[0]
            try:
                if on_done is not None:
                    self.complete(on_done, None, error)
                del failed[0]
            except BaseException as exc:
                del failed[:1]
                self.fail_each(failed)
                # The exception may have come before the call.
                may_be_untold = self._handler.interruptible() or self._handler.interrupted(exc)
                if on_done is not None and may_be_untold:
                    with contextlib.suppress(BaseException):
                        self.complete(on_done, None, error)
                raise
