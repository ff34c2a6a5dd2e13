"""What callers leave for a producer's worker.

Each note is left in one step: wherever a signal handler's exception, a kill or a time-out ends a
caller, nothing is half done.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gkafka.core.sender import Sender
    from gkafka.records import Appender, Batch

__all__ = ["FlushNote", "Notes"]


class FlushNote:
    """Lets nothing linger as long as its caller holds it.

    batches: what had no outcome when the worker looked. told: an Event that is set then.
    """

    __slots__ = ("__weakref__", "batches", "told")

    def __init__(self, told: Any) -> None:
        self.batches: list[Batch] = []
        self.told = told


class Notes:
    """The notes for one worker, beside the appender's `news`: batches that were begun or rolled.

    hurried: open batches that somebody waits for. flushes: those that the worker has not seen yet.
    seen_bytes: how many of the appender's rolled_bytes the worker has seen.
    """

    def __init__(self, appender: Appender, sender: Sender) -> None:
        self._appender, self._sender = appender, sender
        self.hurried: deque[Batch] = deque()
        self.flushes: deque[weakref.ref[FlushNote]] = deque()
        self.seen_bytes = 0
        self._seen_flushes: list[weakref.ref[FlushNote]] = []

    def new_batches(self) -> list[Batch]:
        """Return the batches that the worker has not seen."""
        return [batch for batch in list(self._appender.news) if not batch.done]

    def take(self) -> None:
        """Under the driver's lock: tell the machine. It may be told twice, so a note goes last."""
        news, accumulator = self._appender.news, self._sender.accumulator
        while news:
            batch = news[0]
            if batch.extra is not None:
                pass  # it was taken already
            elif batch.is_open:
                accumulator.opened(batch)
            else:
                self.seen_bytes += batch.size
                accumulator.rolled(batch)
            news.popleft()
        while self.hurried:
            accumulator.hurry(self.hurried[0])
            self.hurried.popleft()
        while self.flushes:
            flush = self.flushes[0]()
            if flush is not None:
                flush.batches = wholes(self._sender.owed())
                self._seen_flushes.append(self.flushes[0])
                flush.told.set()
            self.flushes.popleft()
        if self._seen_flushes:
            self._seen_flushes = [flush for flush in self._seen_flushes if flush() is not None]
        self._sender.flushing = bool(self._seen_flushes)

    def restart(self) -> None:
        """Count seen_bytes anew: whoever took notes was interrupted."""
        unseen = {batch for batch in list(self._appender.news) if batch.extra is None and not batch.is_open}
        self.seen_bytes = self._appender.rolled_bytes - sum(batch.size for batch in unseen)


def wholes(batches: Iterable[Batch]) -> list[Batch]:
    """Return the batches, and the whole batch in place of a part: a part that is split once more
    is never done itself."""
    return list(dict.fromkeys(batch.parent or batch for batch in batches))
