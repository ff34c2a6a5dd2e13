"""The reader of one connection: a worker of its own, or that of a taker (net/watched.py).

    worker: open > answer, answer, ... > end
    taker:  open > take_in() when bytes have come, look() when it is due > read_on() when it ends,
            cut_short() when it was interrupted

What ends the worker ends the connection.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from math import inf
from typing import TypeAlias, TypeVar

from gkafka.exceptions import ConnectionFailedError, ForkedClientError, KafkaException, without_frames
from gkafka.guarding import guarded
from gkafka.handlers import Handler
from gkafka.logs import get_logger
from gkafka.net.completions import Completions
from gkafka.net.inbox import Inbox
from gkafka.net.link import CutShort, Link
from gkafka.net.looks import Looks

__all__ = ["Reader", "Taker"]

T = TypeVar("T")

log = get_logger(__name__)


class Reader:
    """link: the connection that it reads. ended: set when the reader is gone, for good.

    name: of the worker. taker: is offered the connection when it is open; expect(deadline): tells
    the one that took it that a request was sent. open(): opens it.
    shut(error): closes the channel. leave(): the connection is not being opened any more.
    """

    def __init__(
        self,
        handler: Handler,
        link: Link,
        inbox: Inbox,
        looks: Looks,
        completions: Completions,
        *,
        name: str,
        taker: Taker | None,
        open: Callable[[], None],
        shut: Callable[[KafkaException | None], None],
        leave: Callable[[], None],
    ) -> None:
        self.link = link
        self.ended = handler.Event()
        self.expect: Callable[[float], None] = _look_around
        self._handler = handler
        self._inbox = inbox
        self._looks = looks
        self._completions = completions
        self._name = name
        self._taker = taker
        self._open = open
        self._shut = shut
        self._leave = leave
        self._unclaimed = [None]

    # -- its worker
    def begin(self) -> None:
        """Start the worker. Call it again if it was interrupted: one of two workers reads."""
        self._handler.spawn(self._run, _name=self._name, _on_failure=self._worker_ended)

    @property
    def has_run(self) -> bool:
        """A worker was started, and has begun."""
        return not self._unclaimed

    def is_interruption(self, exc: BaseException) -> bool:
        """Return whether a kill or a signal handler interrupted the caller."""
        return not isinstance(exc, Exception) or self._handler.interrupted(exc)

    def cannot_begin(self, exc: BaseException) -> None:
        """Close the channel: no worker can be started. Raise exc if it is an interruption.

        The handler was stopped, or the process has no thread left.
        """
        if self.is_interruption(exc):
            raise exc
        if not isinstance(exc, KafkaException):
            text = f"{self.link.peer}: no worker can be started to connect: {type(exc).__name__}: {exc}"
            exc = ConnectionFailedError(text, broker=self.link.broker)
        self._shut(exc)
        self.ended.set()

    def _run(self) -> None:
        try:
            self._unclaimed.pop()
        except IndexError:
            return
        self._read(self._open)

    def _worker_ended(self, error: BaseException) -> None:
        """Close the channel if the worker could not: nobody else would connect or give up.

        It ended before its first step, or a second signal came as it closed the channel.
        """
        if not self._unclaimed and not self._handler.interrupted(error):
            log.error("%s: the reader ended by %s", self.link.peer, type(error).__name__, exc_info=error)
        if self.link.end is None and not self.link.taken:
            self._end(self._stopped_by(error))

    def _read(self, begin: Callable[[], None] = lambda: None) -> None:
        """Read as long as the connection is open, and nobody takes it."""
        error: KafkaException | None = None
        link, inbox = self.link, self._inbox
        try:
            begin()
            if self._is_given():
                return
            while True:
                inbox.answer(inbox.frames.read())
                self._handler.checkpoint()
                if link.broken is not None:  # what is in the buffers may be half of what came
                    raise link.broken
        except Exception as exc:
            interruption = self._handler.interruption(exc)
            if interruption is not None:
                error = self._stopped_by(interruption)
                raise interruption from None
            error = inbox.failed(exc)
        except BaseException as exc:
            error = self._stopped_by(exc)
            raise
        finally:
            if not link.taken:
                self._end(error)

    def _end(self, error: KafkaException | None) -> None:
        try:
            self._shut(error)
        finally:  # also if a second signal comes meanwhile
            sent = self._inbox.answering
            if sent is not None:
                told = partial(self._completions.complete, sent.token, None, error or self.link.closed_error())
                guarded(told, failed=lambda second: None)  # what ended it goes on already
            if self.link.stream is not None:
                self.link.stream.close()  # whoever shut the connection may have been interrupted before that
            self.ended.set()
            self._leave()

    def _stopped_by(self, exc: BaseException) -> KafkaException:
        return CutShort(f"{self.link.peer}: the reader was stopped by {type(exc).__name__}", broker=self.link.broker)

    # -- a worker of somebody else
    def _is_given(self) -> bool:
        """Offer the connection to the taker. Return whether it was taken."""
        taker, stream = self._taker, self.link.stream
        if taker is None or stream is None:
            return False
        self.link.taken = True
        if not taker(self, stream.fileno()):
            self.link.taken = False
        return self.link.taken

    def take_in(self) -> None:
        """Complete all requests whose answers have come."""
        self._in_place_of_reader(self._inbox.answer_all)

    def look(self) -> float:
        """Do what else is due. Return when to look again."""
        look_at = self._in_place_of_reader(self._looks.look)
        return inf if look_at is None else look_at

    def _in_place_of_reader(self, step: Callable[[], T]) -> T | None:
        """Return what a step returns, or None if it ended the connection, as it would end a reader."""
        try:
            found = step()
            if self.link.broken is not None:
                raise self.link.broken
            return found
        except ForkedClientError:
            raise
        except Exception as exc:
            # The channel keeps it: with its frames it would keep the taker, and what that works for.
            self._end(without_frames(self._inbox.failed(exc)))
            return None

    def cut_short(self, cause: BaseException) -> None:
        """The taker was interrupted, perhaps while it read: end the connection."""
        self.link.taken = False
        self._end(self._stopped_by(cause))

    def read_on(self, takers: Iterable[Taker] = ()) -> None:
        """The taker ends: another one takes the connection, or it has a worker of its own again."""
        if self.link.end is not None:
            self.link.taken = False
            self._end(self.link.end.error)
            return
        for self._taker in takers:
            if self._is_given():
                return
        self.link.taken, self._taker = False, None
        try:
            self._handler.spawn(self._read, _name=self._name, _on_failure=self._worker_ended)
        except Exception as exc:
            self.cannot_begin(exc)


def _look_around(deadline: float) -> None:
    """Do nothing: a reader of its own looks around often enough by itself."""


Taker: TypeAlias = Callable[[Reader, int], bool]
"""taker(reader, fd): is offered an open connection. Returns whether it reads it from then on."""
