"""Lets a caller that waits for an answer read in place of the reader.

The reader stands aside meanwhile, see net/reading.py.
"""

from __future__ import annotations

from collections.abc import Callable

from gkafka.core.connection import Connection
from gkafka.exceptions import ForkedClientError
from gkafka.handlers import Handler
from gkafka.handlers.signals import inside_handler
from gkafka.net.inbox import Inbox, NotYet
from gkafka.net.link import Link
from gkafka.net.looks import Looks
from gkafka.net.reading import Reading

__all__ = ["StandIn"]

LOOK_S = 0.1
"""A caller for whom nothing comes in this time leaves the waiting to the reader, which looks around
less often."""


class StandIn:
    """For the callers of one connection, one at a time."""

    def __init__(self, handler: Handler, connection: Connection, link: Link, inbox: Inbox, looks: Looks, reading: Reading) -> None:
        self._handler = handler
        self._connection = connection
        self._link = link
        self._inbox = inbox
        self._looks = looks
        self._reading = reading

    def read_until(self, is_done: Callable[[], bool], deadline: float, *, beside: int = 0) -> bool:
        """Take in answers until is_done(), or until the deadline.

        Return False if the reader reads: then the caller has to wait in another way.

        beside: this many requests are in flight all the time, as a consumer's next fetch is. A
        caller that is interrupted while it takes in bytes, or sends, ends the connection.
        """
        reading, me = self._reading, object()
        if self._link.is_over() or not reading.come(me, self._handler.monotonic()):
            if reading.is_below:  # it goes on only after this call; nobody can read meanwhile
                self._inbox.cut_short()
            reading.want(beside)
            return False
        try:
            return self._read(me, is_done, deadline)
        except BaseException:
            if reading.has(me):
                self._inbox.cut_short()
            elif self._link.stream is not None:
                self._link.stream.left()
            raise
        finally:
            reading.leave(me, self._connection.in_flight)

    def _read(self, me: object, is_done: Callable[[], bool], deadline: float) -> bool:
        reading, inbox, stream = self._reading, self._inbox, self._link.stream
        assert stream is not None
        while not is_done():
            now = self._handler.monotonic()
            if now >= deadline:
                return True
            if self._link.broken is not None:
                return False
            until = min(deadline, now + LOOK_S)
            if not reading.expect(me, until):
                return False
            try:
                if inbox.frames.pristine and not stream.wait_readable(until):
                    self._looks.look()
                    if until < deadline:
                        return False  # nothing comes for long: the reader waits with fewer looks
                    continue
                self._handler.check_fork()
                if not reading.take(me, now, until):
                    return False
                inbox.answer(inbox.frames.read())
            except NotYet:
                pass
            except ForkedClientError:
                raise
            except Exception as exc:
                interruption = self._handler.interruption(exc)
                if interruption is not None:
                    raise interruption from None
                if reading.has(me):
                    reading.answering = None  # its request was completed
                self._link.break_off(inbox.failed(exc))
                reading.give(me)
                return False
            reading.give(me)
        return True

    def end_below(self) -> None:
        """End the connection if this is a signal handler that interrupted a caller that reads.

        That caller goes on only after the handler.
        """
        if self._reading.is_below and inside_handler():
            self._inbox.cut_short()
