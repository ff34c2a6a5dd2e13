"""A worker that outlives what is raised in it from outside.

With greenlets a signal handler's exception is raised in whatever is on CPU, and goes on to the
program. In an OS thread others may raise something, too (see `Handler.from_outside`). A worker that
others count on must not be missed for that.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from gkafka.exceptions import ForkedClientError, KafkaException
from gkafka.logs import get_logger

if TYPE_CHECKING:
    from gkafka.handlers.base import Handler, Worker

__all__ = ["LastingWorker"]

log = get_logger(__name__)


class LastingWorker:
    """target() in a worker of the handler. When it is interrupted, another worker calls it again: it begins by putting right what may be half done.

    on_failure(error): for what else ends it but a return; None: that is logged.
    """

    def __init__(
        self, handler: Handler, target: Callable[[], object], name: str, on_failure: Callable[[BaseException], object] | None = None
    ) -> None:
        self.name = name
        self._handler, self._target, self._on_failure = handler, target, on_failure
        self._worker: Worker
        self._spawn([None])

    def _spawn(self, claim: list[None]) -> None:
        """claim: of those who may come after the same one, because a second signal came while the first was told, one takes it and works."""
        successor: list[None] = [None]

        def run() -> None:
            try:
                claim.pop()
            except IndexError:
                return
            self._target()

        self._worker = self._handler.spawn(run, _name=self.name, _on_failure=lambda error: self._ended(error, successor))

    def _ended(self, error: BaseException, successor: list[None]) -> None:
        if self._handler.from_outside(error):
            log.info("worker %r was interrupted by %s: another one goes on", self.name, type(error).__name__)
            try:
                self._spawn(successor)
            except KafkaException as exc:  # the handler was stopped
                log.debug("worker %r: %s", self.name, exc)
            return
        if self._on_failure is not None:
            self._on_failure(error)
        else:
            level = logging.DEBUG if isinstance(error, ForkedClientError) else logging.ERROR
            log.log(level, "worker %r ended by %s", self.name, type(error).__name__, exc_info=error)

    def join(self, timeout: float | None = None) -> bool:
        """Wait for its end, as Worker.join does."""
        deadline = None if timeout is None else self._handler.monotonic() + timeout
        while True:
            worker = self._worker
            left = None if deadline is None else max(0.0, deadline - self._handler.monotonic())
            if not worker.join(left):
                return False
            if worker is self._worker:
                return True

    def hold(self, by: int | None) -> None:
        """It cannot end before the worker of that id goes on; None: it can."""
        self._worker.held_by = by

    def is_alive(self) -> bool:
        return self._worker.is_alive()
