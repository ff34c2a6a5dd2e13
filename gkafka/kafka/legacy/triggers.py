"""When an automatic commit is due: after so many messages, or after so much time, whichever comes first."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from gkafka.checks import check_count, check_seconds
from gkafka.exceptions import KafkaException
from gkafka.logs import get_logger
from gkafka.skins import Handler

__all__ = ["Triggers", "check_every"]

log = get_logger(__name__)

TICK_S = 1.0


def check_every(**given: Any) -> None:
    """Two arguments by their names, the messages and then the milliseconds after which to commit: 0 or more, or None. Raises ConfigurationError."""
    (of_messages, every_n), (of_time, every_ms) = given.items()
    if every_n is not None:
        check_count(of_messages, every_n, low=0)
    if every_ms is not None:
        check_seconds(of_time, every_ms)


class Triggers:
    """Either one begins anew when the other one commits, and both when somebody else does.

    commit: a bound method, of which only a weak reference is kept. every_n: messages, every_ms: milliseconds; None or 0: not by that. A worker keeps
    the time. What a commit raises is logged, and it is tried again when the next one is due.
    """

    def __init__(self, handler: Handler, commit: Callable[[], object], *, every_n: int | None, every_ms: float | None) -> None:
        self._handler = handler
        self._commit = weakref.WeakMethod(commit)
        self._every_n = every_n if every_n else None
        self._every_s = every_ms / 1000 if every_ms else None
        self._count = 0
        self._wake = handler.Event()
        self._stopped = False
        self.restart()
        self._worker: Any = handler.spawn_lasting(self._keep_time, _name="gkafka-commits") if self._every_s is not None else None

    @property
    def keeps_time(self) -> bool:
        """Whether commits are due by time, too."""
        return self._every_s is not None

    def restart(self) -> None:
        """Something was committed."""
        self._count = 0
        if self._every_s is not None:
            self._due = self._handler.monotonic() + self._every_s

    def count(self, messages: int) -> None:
        """So many more were consumed: commit if that is enough."""
        self._count += messages
        if self._every_n is not None and self._count >= self._every_n:
            self._fire()

    def _fire(self) -> bool:
        commit = self._commit()
        if commit is None:
            return False
        try:
            commit()
        except KafkaException as exc:
            log.error("an automatic commit failed, messages may be consumed again: %s", exc)
        self.restart()
        return True

    def _keep_time(self) -> None:
        while True:
            self._wake.clear()  # before looking: whoever stops it sets it after
            if self._stopped:
                return
            self._handler.check_fork()
            left = self._due - self._handler.monotonic()
            if left <= 0:
                if not self._fire():
                    return
                continue
            # In steps: a consumer that was dropped without stop() is noticed.
            self._wake.wait(min(left, TICK_S))
            if self._commit() is None:
                return

    def stop(self, timeout_s: float) -> None:
        """No more of them. A commit that is under way is waited for."""
        self._stopped = True
        self._wake.set()
        if self._worker is not None:
            self._worker.join(timeout_s)
