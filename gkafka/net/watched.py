"""The connections that one worker reads itself, beside what else it does: no thread of their own has to be woken for an answer.

The worker sleeps on an `Alarm`, which whoever has something for it sets, and bytes for one of its connections, too.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from gkafka.logs import get_logger

if TYPE_CHECKING:
    from gkafka.handlers import Handler
    from gkafka.handlers.primitives import Alarm
    from gkafka.net.reader import Reader, Taker

__all__ = ["Watched"]

log = get_logger(__name__)

NEVER = float("inf")


class Watched:
    """The connections of one worker.

    alarm: what the worker sleeps on. Connections are taken from begin() to end().
    """

    def __init__(self, handler: Handler, alarm: Alarm) -> None:
        self.alarm = alarm
        self._lock = handler.Mutex()
        self._begun = False
        self._by_fd: dict[int, Reader] = {}
        self._looks_at = NEVER
        self._looks_now = False

    def begin(self) -> None:
        """On the worker, before anything else."""
        self._begun = True

    def take(self, reader: Reader, fd: int) -> bool:
        """Take over the reading of an open connection, whose descriptor is fd.

        Return False if the connection keeps a reader of its own.
        """
        try:
            with self._lock:
                if not self._begun:
                    return False
                self.alarm.watch(fd)
                self._by_fd[fd] = reader
        except OSError as exc:  # the process has no descriptor left for it
            log.warning("%s has a reader of its own: %s", reader.link.peer, exc)
            return False
        reader.expect = self.expect
        self._look_now()  # something may have come already
        return True

    def read(self) -> None:
        """On the worker: take in the answers that have come."""
        for fd in self.alarm.ready:
            reader = self._by_fd.get(fd)
            if reader is not None:
                reader.take_in()

    def expect(self, at: float) -> None:
        """Have the worker look by that time, the deadline of a request that is noted already.

        Whoever sends on one of the connections calls this, on any worker.
        """
        if at < self._looks_at:
            self._look_now()

    def _look_now(self) -> None:
        self._looks_now = True
        self.alarm.set()

    def look(self, now: float, rest_s: float) -> float:
        """On the worker: do what else is due. Return when to look again.

        That is at most rest_s after the last look.
        """
        if not self._by_fd:
            return NEVER
        if self._looks_now or now >= self._looks_at:
            # Before looking: who comes meanwhile finds NEVER, and has the worker look once more.
            self._looks_now, self._looks_at = False, NEVER
            until = now + rest_s
            for fd, reader in list(self._by_fd.items()):
                if reader.link.end is not None:
                    self._forget(fd, reader)
                else:
                    reader.take_in()
                    until = min(until, reader.look())
            self._looks_at = until
        return self._looks_at

    def _forget(self, fd: int, reader: Reader) -> None:
        with self._lock:
            if self._by_fd.get(fd) is reader:  # else a new one has its descriptor by now
                del self._by_fd[fd]

    def end(self, others: Iterable[Taker]) -> None:
        """Give the connections away, because the worker ends: other clients may still use them.

        others: are offered each connection; one that nobody takes has a reader of its own again.
        """
        for reader in self._release():
            reader.read_on(others)
        self.alarm.close()

    def cut_short(self, cause: BaseException) -> None:
        """End the connections, because the worker was interrupted: a frame may be half read."""
        for reader in self._release():
            reader.cut_short(cause)

    def _release(self) -> list[Reader]:
        """Take no connection any more. Return those that were taken."""
        with self._lock:
            self._begun = False
            readers = list(self._by_fd.values())
            self._by_fd.clear()
        return readers
