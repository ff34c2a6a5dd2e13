"""Runs the callbacks of one connection's requests, when they are answered or have failed."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

from gkafka.exceptions import KafkaException
from gkafka.guarding import guarded
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
        while (first := next(iter(failed), None)) is not None:
            guarded(self._fail, *first, failed=partial(self._cut_short, failed))
            if failed and failed[0] is first:  # else somebody who took this end for left has gone on
                del failed[0]

    def _fail(self, on_done: OnDone | None, error: KafkaException | None) -> None:
        if on_done is not None:
            self.complete(on_done, None, error)

    def _cut_short(self, failed: Failures, exc: BaseException) -> bool:
        on_done, error = failed.pop(0)
        self.fail_each(failed)
        # The exception may have come before the call.
        if self._handler.interruptible() or self._handler.interrupted(exc):
            guarded(self._fail, on_done, error, failed=lambda second: None)  # the first one goes on
        return True
