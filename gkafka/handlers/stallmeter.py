"""How long a hub is kept from its greenlets: the time from one poll of its event loop to the next, measured by the loop itself.

It costs two calls for each turn of the loop, and no timer: an idle hub stays idle.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable
from time import perf_counter, thread_time
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from gkafka.exceptions import ClientClosedError, ConfigurationError, ForkedClientError, HandlerThreadError
from gkafka.handlers.hubs import shielded
from gkafka.logs import get_logger

if TYPE_CHECKING:
    from gkafka.handlers.greenlets import GEventHandler

__all__ = ["HubStallMeter"]

log = get_logger(__name__)

WARN_S: Final = 1.0
MINUTE_S: Final = 60.0
_told: WeakKeyDictionary[Any, tuple[float, float]] = WeakKeyDictionary()  # of each hub: the stall that was told last, and when


class HubStallMeter:
    """Measures the hub of a handler, from start() to stop().

    Times are wall seconds. A stall above WARN_S is told in the log once for its hub, however many clients measure it, unless one as long was
    within the last minute.
    """

    def __init__(self, handler: GEventHandler) -> None:
        self._handler = handler
        self._watch = _Watch(handler.hub.loop, weakref.ref(self))
        self._since: float | None = None  # the loop's last poll, None while it polls
        self._cpu = 0.0
        self._longest = 0.0
        self._minute_began = perf_counter()
        self._this_minute = self._last_minute = 0.0
        self._above = 0

    def start(self) -> None:
        """What the hub's greenlets do from the loop's next turn on counts."""
        self._in_hubs_thread(self._start)

    def _start(self) -> None:
        self.polled()
        self._watch.start()

    def stop(self) -> None:
        """Measure no more."""
        with contextlib.suppress(HandlerThreadError):  # its thread has ended, and the loop with it
            self._in_hubs_thread(self._watch.stop)

    def _in_hubs_thread(self, fn: Callable[[], object]) -> None:
        if self._handler.in_owner():
            fn()
        else:
            self._handler.call_soon_threadsafe(fn)

    def stats(self) -> dict[str, float]:
        """ms: the longest stall of the last minute or two, the longest of all; and how many were above a second."""
        now = perf_counter()
        self._turn_minutes(now)
        going_on = 0.0 if self._since is None else now - self._since  # whoever asks may be the one that keeps the hub
        return {
            "hub_stall_ms": 1000 * max(self._this_minute, self._last_minute, going_on),
            "hub_stall_longest_ms": 1000 * max(self._longest, going_on),
            "hub_stalls": self._above,
        }

    # -- called by the loop ------------------------------------------------------------------------------------------------
    def polled(self) -> None:
        """The loop has looked at its sockets and timers; now greenlets run."""
        self._since, self._cpu = perf_counter(), thread_time()

    def about_to_poll(self) -> None:
        """All that could run has run."""
        if self._since is None:
            return
        now = perf_counter()
        stall, self._since = now - self._since, None
        if now - self._minute_began > MINUTE_S:
            self._turn_minutes(now)
        if stall > self._this_minute:
            self._this_minute = stall
            self._longest = max(self._longest, stall)
        if stall > WARN_S:
            self._above += 1
            self._warn(now, stall, thread_time() - self._cpu)

    def _turn_minutes(self, now: float) -> None:
        minutes = int((now - self._minute_began) / MINUTE_S)
        if minutes:
            self._last_minute = self._this_minute if minutes == 1 else 0.0
            self._this_minute = 0.0
            self._minute_began += minutes * MINUTE_S

    def _warn(self, now: float, stall: float, cpu: float) -> None:
        told, told_at = _told.get(self._handler.hub, (0.0, float("-inf")))
        # Each client of a hub measures the same stall, a moment apart.
        if (now - told_at < MINUTE_S and stall <= told) or now - told_at < stall:
            return
        _told[self._handler.hub] = stall, now
        with contextlib.suppress(ClientClosedError, ForkedClientError):
            # A log may wait, and the loop must not.
            self._handler.spawn(log.warning, "%s", said(stall, cpu), _name="gkafka-stall-warning")


def said(stall: float, cpu: float) -> str:
    """What was measured, what it means and what to do. Seconds."""
    why = (
        "a greenlet computed without letting others run: have it call gevent.sleep(0.001) now and then, or move the work to a thread"
        if cpu > stall / 2
        else "a greenlet was in a call that gevent knows nothing of, or the machine was busy: look for blocking calls"
    )
    return (
        f"gevent's hub stood still for {1000 * stall:.0f} ms, {1000 * cpu:.0f} ms of them at work: {why}. Heartbeats, deliveries and timeouts "
        "waited meanwhile"
    )


class _Watch:
    """The two watchers of a meter. They do not keep it alive, and end when it is gone."""

    def __init__(self, loop: Any, meter: weakref.ref[HubStallMeter]) -> None:
        self._meter = meter
        # First of all after a poll, and last of all before one: whatever else runs in a turn of the loop runs in between.
        try:
            self._before = loop.prepare(ref=False, priority=loop.MINPRI)
        except TypeError:  # libuv's loop has none
            raise ConfigurationError(
                f"hub_stall_meter=True: gevent's loop {type(loop).__module__} cannot be measured; GEVENT_LOOP=libev can"
            ) from None
        self._after = loop.check(ref=False, priority=loop.MAXPRI)

    def start(self) -> None:
        self._after.start(shielded(self._on_polled), None)
        self._before.start(shielded(self._on_about_to_poll), None)

    def stop(self) -> None:
        for watcher in (self._after, self._before):
            watcher.stop()
            watcher.close()

    def _on_polled(self) -> None:
        meter = self._meter()
        if meter is None:
            self.stop()
        else:
            meter.polled()

    def _on_about_to_poll(self) -> None:
        meter = self._meter()
        if meter is None:
            self.stop()
        else:
            meter.about_to_poll()
