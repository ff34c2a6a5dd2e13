"""One pipelined connection to a broker: what its callers use, how it is opened, and how it ends.

    caller: send() > encode > one non-blocking send   (net/requestsender.py, net/outbox.py)
    reader: open (net/opening.py) > send the backlog > frame > decode > on_done   (net/inbox.py)
    or an engine's worker, once it is open: frame > decode > on_done   (net/watched.py)

What may be asked, and what an answer belongs to, is decided by `core.connection`. The socket and
the first fault that was seen of it are in `net/link.py`, which all parts share.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import gkafka
from gkafka.config import ClientConfig
from gkafka.core.connection import Connection, Sent
from gkafka.exceptions import KafkaException, KafkaTimeoutError, ReentrantCallError, SocketDisconnectedError
from gkafka.handlers import Future, Handler
from gkafka.logs import get_logger
from gkafka.net.authenticator import Authenticator
from gkafka.net.backlog import Backlog, Queued
from gkafka.net.buffers import STAGE, BufferPool
from gkafka.net.completions import Completions, Failures, OnDone
from gkafka.net.credentials import Credentials, make_credentials
from gkafka.net.guesses import Doubts, Guess
from gkafka.net.inbox import Inbox
from gkafka.net.link import CutShort, End, Link
from gkafka.net.looks import Looks
from gkafka.net.opening import Opener
from gkafka.net.openings import Openings, Rank
from gkafka.net.outbox import Out
from gkafka.net.place import OTHERS_FIRST, Place
from gkafka.net.reader import Reader, Taker
from gkafka.net.requestsender import RequestSender
from gkafka.net.session import Session
from gkafka.wire.apis import Versions

__all__ = ["Channel", "CutShort", "OnDone"]

TRIES = 8
"""How often the steps of an end are begun: signals may come in a row."""
LEFT_S = 2.0
"""After so long nobody is at the steps of an end any more."""

log = get_logger(__name__)

Buffer: TypeAlias = bytes | bytearray | memoryview


class Channel:
    """One connection, used once: after it closed, make another.

    role: what it is for, in logs and worker names. on_close(channel, error): called once when it is
    closed, after everything pending failed; error is None if `close()` was called without one.
    buffers: a pool to share among channels. receive_bytes: what one system call may bring of small
    answers. versions: what the broker speaks, so that it is not asked. credentials, openings: of
    all channels of a client; else its own. rank: whether others are opened first. taker: is offered
    the connection when it is open, see net/reader.py.
    """

    def __init__(
        self,
        handler: Handler,
        host: str,
        port: int,
        config: ClientConfig,
        *,
        role: str = "control",
        broker_id: int | None = None,
        on_close: Callable[[Channel, KafkaException | None], None] | None = None,
        buffers: BufferPool | None = None,
        receive_bytes: int = STAGE,
        versions: Versions | None = None,
        credentials: Credentials | None = None,
        openings: Openings | None = None,
        rank: Rank = Rank.NEW,
        taker: Taker | None = None,
    ) -> None:
        self.role = role
        self.peer = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self._handler = handler
        self._config = config
        self._on_close = on_close
        guess = Guess(handler, (host, port))
        self._connection = Connection(
            self.peer,
            client_id=config.client_id,
            broker_version=config.broker_version,
            max_response_bytes=config.max_response_bytes,
            software=("gkafka", gkafka.__version__),
            broker=broker_id,
            known_as=guess.taken_for,
            tells=guess.is_told,
            doubted=guess.was_doubted,
            versions=versions,
            max_broker_version=config.max_broker_version,
            connect_timeout_s=config.connect_timeout_ms / 1000,
            authenticates=config.uses_sasl,
        )
        self._link = link = Link(self.peer, self._connection.broker, handler.Mutex())
        self._settled = handler.Event()  # open, or closed without ever having been
        self._doubts = Doubts(handler, guess, self._connection, link)
        self._completions = Completions(handler, self.peer)
        self._backlog = Backlog(
            link,
            self._connection,
            max_in_flight=config.max_in_flight_per_connection,
            complete=self._completions.complete,
            why=self._why_it_waits,
        )
        self._sender = RequestSender(
            handler,
            config,
            self._connection,
            link,
            self._backlog,
            self._doubts,
            self._completions,
            name=f"gkafka-{role}-{self.peer}-writer",
            shut=self._shut,
        )
        self._session = None
        if credentials := credentials or make_credentials(handler, config):
            self._session = Session(
                handler,
                Authenticator(handler, credentials, host, self.peer),
                self.peer,
                hold=self._sender.hold,
                exchange=self._sender.exchange,
                release=self._sender.release,
                end=self._shut,
            )
        self._looks = Looks(handler, config, self._connection, link, guess, self._backlog, self._session)
        self._opener = Opener(
            handler,
            host,
            port,
            config,
            self._connection,
            session=self._session,
            buffers=BufferPool(handler.Mutex()) if buffers is None else buffers,
            receive_bytes=receive_bytes,
            step=self._sender.step,
            hold=link.hold,
            look=self._looks.look,
            awaited_until=self._backlog.last_deadline,
            lost=link.lost,
        )
        self._inbox = Inbox(
            handler,
            self._connection,
            link,
            self._backlog,
            self._looks,
            self._completions,
            send_backlog=self._sender.send_backlog,
        )
        self._reader = Reader(
            handler,
            link,
            self._inbox,
            self._looks,
            self._completions,
            name=f"gkafka-{role}-{self.peer}",
            taker=taker,
            open=self._open,
            shut=self._shut,
            leave=lambda: self._place.leave(),
        )
        self._place = Place(
            Openings(handler) if openings is None else openings,
            rank,
            link,
            self._backlog,
            self._reader,
            self._opener.steps,
            shut=self._shut,
        )

    def __repr__(self) -> str:
        return f"<Channel {self.peer} {self.role} {self._connection.state.value}>"

    # -- what callers use
    def start(self) -> None:
        """Begin to connect. Returns at once; a second call does nothing."""
        self._place.enter()

    def send(
        self, request: Any, on_done: OnDone, *, timeout_s: float, max_version: int | None = None, expects_response: bool = True
    ) -> None:
        """Send a request, or queue it until the connection is open and has room. Never waits.

        on_done(response, None) or on_done(None, error) is called exactly once, by a worker of the
        channel or by who closes it, never from inside this call; it must not block. (Once more with
        its error if a signal handler's exception ended it, or came just before, or if the handler
        waits for this connection itself.) expects_response=False (acks=0): on_done(None, None) once
        the kernel has the bytes. timeout_s: from now to the answer; when it is over, the connection
        is closed.
        Raises ForkedClientError in another process than the one that made the channel.
        """
        self._handler.check_fork()
        now = self._handler.monotonic()
        frame: list[Buffer] | None = None
        link, sender, backlog = self._link, self._sender, self._backlog
        with sender.order:
            try:
                with link.lock:
                    if timeout_s < self._looks.wait_s * 2:
                        self._looks.look_sooner(timeout_s)
                    if link.end is not None:
                        sender.outbox.put(Out([], on_done, link.unsent_error()))
                    elif sender.sends and not backlog.must_wait():
                        frame = sender.number(request, on_done, now, timeout_s, max_version, expects_response)
                    else:
                        backlog.put(Queued(request, on_done, now, timeout_s, max_version, expects_response))
                if link.taken:
                    self._reader.expect(now + timeout_s)
                if frame is not None:
                    sender.send_frame(frame, None if expects_response else on_done)
                elif self._doubts.guess.doubted and not self._connection.in_flight:
                    link.break_off(self._doubts.asked_again(request.API.name))  # at once, and not when the reader looks
            except BaseException:
                # A signal handler's: a number may be taken, half a frame may have gone out, and
                # nothing may follow it.
                if link.opened:
                    link.break_off(CutShort(f"{self.peer}: a caller was interrupted while it sent", broker=link.broker))
                raise
        if sender.outbox:
            sender.outbox.wake()
        if not self._place.entered:
            self._place.enter()
        if not (link.opened or link.end is not None) and timeout_s < self._config.connect_timeout_ms / 1000:
            self._place.watch()

    def withdraw(self, on_done: OnDone) -> KafkaTimeoutError | None:
        """Take a request back that waits for the connection, without calling on_done.

        Return why it was not sent until now, or None if it may have been sent.
        """
        return self._backlog.withdraw(on_done, self._handler.monotonic())

    def request(self, request: Any, *, timeout_s: float, max_version: int | None = None) -> Future:
        """`send` with a future: its result is the response."""
        future, done = self._completions.future()
        self.send(request, done, timeout_s=timeout_s, max_version=max_version)
        return future

    def wait_open(self, deadline: float) -> None:
        """Wait until the connection is open.

        Raises the error that closed it, or KafkaTimeoutError at the deadline (monotonic seconds).
        """
        self._handler.check_fork()
        self.start()
        if not self._settled.wait(max(0.0, deadline - self._handler.monotonic())):
            raise KafkaTimeoutError(f"{self.peer}: the connection is not open yet: {self.standing}", broker=self._link.broker)
        self._link.raise_if_closed()

    @property
    def standing(self) -> str:
        """At which step the opening stands, for texts; "" if nothing is to be opened any more."""
        return self._place.standing

    @property
    def is_silent(self) -> bool:
        """Is there a connection whose peer has not said yet what it speaks?"""
        return self._link.end is None and self.versions is None and bool(self._opener.steps.last)

    @property
    def opened(self) -> bool:
        """The broker's versions are known, and it is not closed."""
        return self._link.opened and self._link.end is None

    @property
    def was_open(self) -> bool:
        """Did it ever get as far as to carry requests?"""
        return self._link.opened

    @property
    def closed(self) -> bool:
        return self._link.end is not None

    @property
    def is_left(self) -> bool:
        """Has its reader ended without closing it, or without telling so? Signals in a row may do that: close() then does the rest."""
        return self._link.end is not None or self._reader.ended.is_set()

    @property
    def error(self) -> KafkaException | None:
        """With which it was closed."""
        return self._link.error

    @property
    def versions(self) -> Versions | None:
        """What the broker speaks; None until the channel is open."""
        return self._connection.versions

    def doubt(self, what: str) -> KafkaException | None:
        """Return the error to retry with, on a new connection, if a guess has to be doubted.

        what: what the broker lacks if it was guessed right. Return None if the guess is trusted.
        """
        return self._doubts.of(what)

    def doubt_again(self, what: str) -> KafkaException | None:
        """Return the same for a guess that was doubted before, and is trusted since."""
        return self._doubts.again(what)

    @property
    def is_done(self) -> bool:
        """Will nobody be told anything any more of what was sent?"""
        if self._link.end is not None:
            return self._reader.ended.is_set()
        return self._link.opened and not self.in_flight and not self._sender.outbox

    @property
    def in_flight(self) -> int:
        """Requests without an answer, those that wait for the connection to open included."""
        return self._connection.in_flight + len(self._backlog.queued)

    def is_awaited(self, now: float) -> bool:
        """Is there a request without an answer whose time is not over?"""
        with self._link.lock:
            deadlines = [queued.deadline for queued in self._backlog.queued] + [sent.deadline for sent in self._connection.unanswered]
        return any(deadline > now for deadline in deadlines)

    def close(self, error: KafkaException | None = None) -> None:
        """Close the connection and fail everything pending, with `error` if it is given.

        May be called from anywhere, also from on_done. Does not wait for the workers: `join` does.
        From a signal handler that interrupted a step of the connection: the reader closes it,
        within a second.
        """
        try:
            self._shut(error)
        except ReentrantCallError:
            self.abandon()

    def abandon(self) -> None:
        """For finalizers: its owner is gone. Only sets a flag.

        The reader closes the connection when it wakes: a greenlet at once, a thread within a second.
        """
        self._link.abandon()

    def join(self, timeout_s: float) -> bool:
        """Wait until the worker of a closed channel is gone and its descriptor closed.

        Not from on_done.
        """
        return not (self._place.entered or self._reader.has_run) or bool(self._reader.ended.wait(timeout_s))

    # -- opening
    def _open(self) -> None:
        """By the reader."""
        _, frames = self._opener.open()
        self._inbox.open(frames)
        who = f", {self._session.authenticator.name}" if self._session is not None else ""
        log.info("%s: %s connection open (%s%s)", self.peer, self.role, self._connection.spoken, who)
        assert self._connection.versions is not None
        self._doubts.guess.found(self._connection.taken_for, self._connection.versions)
        self._settled.set()
        self._place.leave()
        self._sender.outbox.wake()

    def _why_it_waits(self) -> str:
        """Return why requests wait, for texts."""
        if not self._place.begun:
            return OTHERS_FIRST
        if not self._link.opened:
            standing = self._place.standing
            return f"the connection did not open{f': {standing}' if standing else ''}"
        if self._backlog.max_in_flight is None or not self._sender.sends:
            return "the connection was not authenticated again"
        return f"max_in_flight_per_connection={self._backlog.max_in_flight} requests before it were not answered"

    # -- the end
    def _shut(self, error: KafkaException | None) -> None:
        """Close once: nothing is accepted from here on, and everything pending fails.

        What a signal handler raises between any two steps, or a kill inside a callback, goes on when
        the rest is done. If signals in a row have left an end half done, whoever comes LEFT_S later
        does the rest.
        """
        now = self._handler.monotonic()
        end = self._link.end
        if end is None:
            end = End(error, now)
        elif end.done or now - end.now < LEFT_S:
            return
        hit: BaseException | None = None
        for _ in range(TRIES):
            try:
                self._end_as(end)
                break
            except BaseException as exc:
                hit = hit or exc
        if hit is not None:
            raise hit

    def _end_as(self, end: End) -> None:
        """Do what is not done yet, unless another one ends the connection."""
        error, link = end.error, self._link
        with link.lock:
            if link.end is None:
                link.end = end
            if link.end is not end:
                return
            stood = "" if link.opened or not self._place.begun else f" while it was being opened: {self._opener.steps}"
            became = "closed" if link.opened or error is None else "not opened"
            if end.failed is None:
                end.failed = self._unfinished(end)
            self._connection.lose()
            self._sender.outbox.close()
            self._backlog.queued.clear()
            stream = link.stream
        why = f"by the client{stood}" if error is None else str(error).removeprefix(f"{self.peer}: ")
        log.info("%s: %s connection %s: %s", self.peer, self.role, became, why)
        if error is not None:
            self._doubts.guess.failed()
        self._settled.set()
        self._sender.outbox.wake()
        if stream is not None:
            stream.close()
        try:
            self._completions.fail_each(end.failed)
        finally:
            try:
                if self._on_close is not None:
                    self._call_on_close(error)
            finally:
                self._place.withdraw()
        end.done = True

    def _unfinished(self, end: End) -> Failures:
        """Under the lock: return all pending callbacks, with their errors."""
        failed: Failures = [(entry.token, self._error_of(entry, end)) for entry in self._connection.unanswered]
        failed += [(out.on_done, out.error or (self._link.closed_error() if out.buffers else None)) for out in self._sender.outbox.outs]
        return failed + self._backlog.unsent(end.now)

    def _error_of(self, sent: Sent, end: End) -> KafkaException:
        """A request whose time is over is told so; the others lost their connection to it."""
        if not isinstance(end.error, KafkaTimeoutError):
            return self._link.closed_error()
        if sent.deadline <= end.now:
            return self._connection.overdue(sent)
        return SocketDisconnectedError(
            f"{self.peer}: the connection was given up: {end.error}", broker=self._link.broker, api=sent.api.name
        )

    def _call_on_close(self, error: KafkaException | None) -> None:
        try:
            assert self._on_close is not None
            self._on_close(self, error)
            self._on_close = None
        except Exception as exc:
            if self._handler.interrupted(exc):
                raise
            self._on_close = None
            log.exception("%s: the callback for the closed connection raised", self.peer)
