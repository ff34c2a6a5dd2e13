"""The connections that one worker reads itself, beside what else it does: no thread of their own has to be woken for an answer.

The worker sleeps on an `Alarm`, which whoever has something for it sets, and bytes for one of its connections, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from gkafka.logs import get_logger

if TYPE_CHECKING:
    from gkafka.handlers import Handler
    from gkafka.handlers.primitives import Alarm
    from gkafka.net.channel import Channel

__all__ = ["Watched"]

log = get_logger(__name__)

NEVER = float("inf")


class Watched:
    """alarm: what the worker sleeps on. It takes connections from begin() to end()."""

    def __init__(self, handler: Handler, alarm: Alarm) -> None:
        self.alarm = alarm
        self._lock = handler.Mutex()
        self._begun = False
        self._by_fd: dict[int, Channel] = {}
        self._looks_at = 0.0

    def begin(self) -> None:
        """On the worker, before anything else."""
        self._begun = True

    def take(self, channel: Channel, fd: int) -> bool:
        """From a connection that has opened, with its descriptor. False: it keeps its reader."""
        try:
            with self._lock:
                if not self._begun:
                    return False
                self.alarm.watch(fd)
                self._by_fd[fd], self._looks_at = channel, 0.0
        except OSError as exc:  # the process has no descriptor left for it
            log.warning("%s has a reader of its own: %s", channel.peer, exc)
            return False
        self.alarm.set()  # something may have come already
        return True

    def read(self) -> None:
        """On the worker: what has come."""
        for fd in self.alarm.ready:
            channel = self._by_fd.get(fd)
            if channel is not None:
                channel.take_in()

    def expect(self, at: float) -> None:
        """Look again by then: a request's time is over."""
        self._looks_at = min(self._looks_at, at)

    def look(self, now: float, rest_s: float) -> float:
        """On the worker: what else is due. Returns when to look again, rest_s behind the last look at the latest."""
        if not self._by_fd:
            return NEVER
        if now >= self._looks_at:
            self._looks_at = now + rest_s
            for fd, channel in list(self._by_fd.items()):
                if channel.closed:
                    self._forget(fd, channel)
                else:
                    channel.take_in()
                    self._looks_at = min(self._looks_at, channel.look())
        return self._looks_at

    def _forget(self, fd: int, channel: Channel) -> None:
        with self._lock:
            if self._by_fd.get(fd) is channel:  # else a new one has its descriptor by now
                del self._by_fd[fd]

    def end(self, others: Iterable[Callable[[Channel, int], bool]]) -> None:
        """The worker ends: its connections go to one of these, since other clients of them may go on, or have readers of their own."""
        with self._lock:  # from here on none is taken
            self._begun = False
            channels = list(self._by_fd.values())
            self._by_fd.clear()
        for channel in channels:
            channel.read_on(others)
        self.alarm.close()
