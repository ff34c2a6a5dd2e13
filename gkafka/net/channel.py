"""One pipelined connection to a broker: a reader worker that also opens it, and a writer worker while the socket is full.

    caller: send() > encode > one non-blocking send                       (what is left over: the writer worker)
    reader: net/opening.py: connect > negotiate > authenticate; then send what was queued > frame > decode > on_done
    caller that waits, while the reader stands aside (net/reading.py): frame > decode > on_done

What may be asked and what an answer belongs to is decided by `core.connection`; here are the socket, the workers and the clock. Here is, too, who waits for
the connection to open, and the moment when it is open: what waited goes out before anything newer.
"""

from __future__ import annotations

import contextlib
import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from copy import copy
from dataclasses import dataclass
from math import inf
from typing import Any, TypeAlias, TypeVar

import gkafka
from gkafka.config import ClientConfig
from gkafka.core.connection import Connection, Sent, State
from gkafka.exceptions import (
    ConnectionFailedError,
    ForkedClientError,
    KafkaException,
    KafkaTimeoutError,
    ProtocolError,
    ReentrantCallError,
    SerializationError,
    SocketDisconnectedError,
    UnsupportedVersion,
    without_frames,
)
from gkafka.handlers import Future, Handler, Stream
from gkafka.handlers.signals import inside_handler
from gkafka.logs import get_logger
from gkafka.net.authenticator import Authenticator
from gkafka.net.buffers import STAGE, BufferPool
from gkafka.net.credentials import Credentials, make_credentials
from gkafka.net.guesses import Guess
from gkafka.net.opening import Opener
from gkafka.net.openings import AT_ONCE, Openings, Rank
from gkafka.net.outbox import OnDone, Out, Outbox
from gkafka.net.reading import LOOK_S, SMALL_ANSWER, Looks, Reading
from gkafka.net.session import Session
from gkafka.wire.apis import Message, Versions

__all__ = ["Channel", "CutShort", "OnDone"]

log = get_logger(__name__)

Buffer: TypeAlias = bytes | bytearray | memoryview
T = TypeVar("T")
Failures: TypeAlias = list[tuple[OnDone | None, KafkaException | None]]

LONGEST_WAIT_S = 1.0  # a worker wakes up this often to see that it was closed, killed or forked
LONGEST_GREENLET_WAIT_S = 2.0
"""A greenlet can be told to look sooner; so late it sees a fork, or that its client was dropped."""
SHORTEST_WAIT_S = 0.02
CONNECTING_GRACE_S = 0.1
"""So much later than its deadline a request is told by others than the reader that connects."""
LARGE_ANSWER_BYTES = 1 << 14
"""What is decoded off the hub: it takes about 0.2 us a byte."""


class CutShort(SocketDisconnectedError):
    """A caller of this process was interrupted while it had the connection in its hands: that says nothing of the peer."""


@dataclass(slots=True, eq=False)
class Queued:
    """A request that waits for the connection to open."""

    request: Any
    on_done: OnDone
    at: float
    timeout_s: float
    max_version: int | None
    expects_response: bool

    @property
    def deadline(self) -> float:
        return self.at + self.timeout_s


class NotYet(Exception):
    """The rest of an answer did not come in the time that a caller has for it."""


@dataclass(slots=True, eq=False)
class End:
    """How a connection ends. failed: who is still to be told so; None: not known yet."""

    error: KafkaException | None
    now: float
    failed: Failures | None = None


class Channel:
    """One connection, used once: after it closed, make another.

    role: what it is for, in logs and worker names. on_close(channel, error): called once when it is closed, after everything pending
    failed; error is None if `close()` was called without one. buffers: a pool to share among channels. receive_bytes: what one system call
    may bring of small answers. versions: what the broker speaks, so that it is not asked. credentials, openings: of all channels of a client; else its
    own. rank: whether others are opened first. expires_at: when the first of the requests gives up that wait for it to open.
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
        taker: Callable[[Channel, int], bool] | None = None,
    ) -> None:
        self.role = role
        self.peer = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self._handler = handler
        self._config = config
        self._on_close = on_close
        self._guess = Guess(handler, (host, port))
        self._connection = Connection(
            self.peer,
            client_id=config.client_id,
            broker_version=config.broker_version,
            max_response_bytes=config.max_response_bytes,
            software=("gkafka", gkafka.__version__),
            broker=broker_id,
            known_as=self._guess.taken_for,
            tells=self._guess.is_told,
            doubted=self._guess.was_doubted,
            versions=versions,
            max_broker_version=config.max_broker_version,
            connect_timeout_s=config.connect_timeout_ms / 1000,
            authenticates=config.uses_sasl,
        )
        self._order = handler.Mutex()  # frames go out in the order of their numbers; taken before `_lock`
        self._lock = handler.Mutex()  # never held across a wait or a system call, nor while anyone's callback runs
        self._settled = handler.Event()  # open, or closed without ever having been
        self._ended = handler.Event()  # the reader is gone
        self._backlog: deque[Queued] = deque()
        self._outbox = Outbox(
            handler, f"gkafka-{role}-{self.peer}-writer", self._lock, write=self._write, tell=self._tell, broke=self._write_failed
        )
        self._session = None
        if credentials := credentials or make_credentials(handler, config):
            authenticator = Authenticator(handler, credentials, host, self.peer)
            self._session = Session(
                handler, authenticator, self.peer, hold=self._hold, exchange=self._exchange_open, release=self._release, end=self._shut
            )
        self._opener = Opener(
            handler,
            host,
            port,
            config,
            self._connection,
            session=self._session,
            buffers=BufferPool(handler.Mutex()) if buffers is None else buffers,
            receive_bytes=receive_bytes,
            step=self._step,
            hold=self._hold_stream,
            look=self._next_look,
            awaited_until=self._awaited_until,
            lost=self._lost,
        )
        self._stream: Stream | None = None
        self._broken: KafkaException | None = None  # what a sender saw; the reader gives the connection up with it
        self._reading = Reading(handler, SMALL_ANSWER if config.uses_tls else inf)
        longest = LONGEST_GREENLET_WAIT_S if handler.cooperative else LONGEST_WAIT_S
        self._looks = Looks(min(longest, config.socket_timeout_ms / 2000))  # a deadline is seen before it is over, and then waited for
        self._openings = Openings(handler) if openings is None else openings
        self.rank = rank
        self.expires_at = inf
        self._taker = taker
        self._taken = False
        self._started = False
        self.begun = False
        self._unclaimed = [None]
        self._abandoned = False
        self._opened = False
        self._sends = False  # opened, and not waiting for a re-authentication
        self._end: End | None = None  # it is closed

    def __repr__(self) -> str:
        return f"<Channel {self.peer} {self.role} {self._connection.state.value}>"

    # -- what callers use
    def start(self) -> None:
        """Begin to connect. Returns at once; a second call does nothing."""
        try:
            with self._lock:
                if self._started or self._end is not None:
                    return
                self._started = True
            self._openings.enter(self)
        except BaseException as exc:
            self._started = not self._is_interruption(exc)  # else it may have a place or not
            self._cannot_begin(exc)

    def begin(self) -> None:
        """Its turn to open has come."""
        try:
            with self._lock:
                if self.begun:
                    return
                self.begun = True
            self._handler.spawn(self._run, _name=f"gkafka-{self.role}-{self.peer}", _on_failure=self._reader_ended)
        except BaseException as exc:
            # After an interruption there may be a reader or not, so the next caller starts another; one of them reads.
            self.begun = not self._is_interruption(exc)
            self._cannot_begin(exc)

    def _is_interruption(self, exc: BaseException) -> bool:
        """Was the caller interrupted, by a kill or a signal handler?"""
        return not isinstance(exc, Exception) or self._handler.interrupted(exc)

    def _cannot_begin(self, exc: BaseException) -> None:
        """There is no worker for it: the handler was stopped, or the process has no thread left. Whoever let it begin may be another connection's.

        Raises an interruption.
        """
        if self._is_interruption(exc):
            raise exc
        if not isinstance(exc, KafkaException):
            text = f"{self.peer}: no worker can be started to connect: {type(exc).__name__}: {exc}"
            exc = ConnectionFailedError(text, broker=self._about)
        self._shut(exc)
        self._ended.set()

    @property
    def is_opening(self) -> bool:
        """Is there still something to be done until it is open, or has failed?"""
        return not (self._opened or self._ended.is_set())

    def look_while_waiting(self, now: float) -> None:
        """In place of a reader, or beside one that connects: fail the requests whose time is over."""
        # Where a connection that is being opened fails with its last request, that says why: it comes first.
        self._expire_backlog(now - CONNECTING_GRACE_S if self.begun else now)
        if self._abandoned and not self.begun:
            self._shut(SocketDisconnectedError(f"{self.peer}: it was left unopened by who was done with it", broker=self._about))

    def send(
        self, request: Any, on_done: OnDone, *, timeout_s: float, max_version: int | None = None, expects_response: bool = True
    ) -> None:
        """Send a request, or queue it until the connection is open and has room for it. Never waits.

        on_done(response, None) or on_done(None, error) is called exactly once, by a worker of the channel or by who closes it, never from
        inside this call; it must not block. (Once more with its error if a signal handler's exception ended it, or came just before, or if the handler waits
        for this connection itself.) expects_response=False (acks=0): on_done(None, None) once the kernel has the bytes. timeout_s: from now to the
        answer; when it is over, the connection is closed.
        Raises ForkedClientError in another process than the one that made the channel.
        """
        self._handler.check_fork()
        now = self._handler.monotonic()
        frame: list[Buffer] | None = None
        with self._order:
            try:
                with self._lock:
                    if timeout_s < self._looks.wait_s * 2:
                        self._looks.wait_s = max(SHORTEST_WAIT_S, timeout_s / 2)
                        if self._opened and self._stream is not None:
                            self._stream.look_again()
                    if self._end is not None:
                        self._outbox.put(Out([], on_done, self._closed_before()))
                    elif self._sends and not self._is_full(behind=self._backlog):
                        frame = self._number(request, on_done, now, timeout_s, max_version, expects_response)
                    else:
                        self._backlog.append(Queued(request, on_done, now, timeout_s, max_version, expects_response))
                        self.expires_at = min(self.expires_at, now + timeout_s)
                if frame is not None:
                    self._send_frame(frame, None if expects_response else on_done)
                    if self._reading.is_aside:
                        self._reading.sent(self._connection.in_flight)
                elif self._guess.doubted and not self._connection.in_flight:
                    self._break(self._asked_again(request.API.name))  # at once, and not when the reader looks
            except BaseException:  # a signal handler's: a number may be taken, half a frame may have gone out, and nothing may follow it
                if self._opened:
                    self._break(CutShort(f"{self.peer}: a caller was interrupted while it sent", broker=self._about))
                raise
        if self._outbox:
            self._outbox.wake()
        if not self._started:
            self.start()
        if not (self._opened or self.closed) and timeout_s < self._config.connect_timeout_ms / 1000:
            self._openings.watch(self)

    def withdraw(self, on_done: OnDone) -> KafkaTimeoutError | None:
        """Take a request back that waits for the connection to open, or for room: why it does, and on_done is not called. None: it may have been sent."""
        with self._lock:
            for queued in self._backlog if self._end is None else ():
                if queued.on_done is on_done:
                    self._backlog.remove(queued)
                    return self._never_sent(queued, self._handler.monotonic() - queued.at)
        return None

    def request(self, request: Any, *, timeout_s: float, max_version: int | None = None) -> Future:
        """`send` with a future: its result is the response."""
        future, done = self._future()
        self.send(request, done, timeout_s=timeout_s, max_version=max_version)
        return future

    def _future(self) -> tuple[Future, OnDone]:
        future: Future = self._handler.Future()

        def done(response: Any, error: KafkaException | None) -> None:
            if error is None:
                future.set(response)
            else:
                future.set_exception(error)

        return future, done

    def read_until(self, is_done: Callable[[], bool], deadline: float, *, beside: int = 0) -> bool:
        """In a caller that waits for an answer anyway: take in what comes until is_done(), or until the deadline. False: the reader does so and wakes
        who waits; the caller has to wait in another way.

        beside: so many requests are under way all the time, as a consumer's next fetch is. Whoever is interrupted while bytes are taken in ends the
        connection, as one that is while it sends.
        """
        reading, me = self._reading, object()
        if self._is_over() or not reading.come(me, self._handler.monotonic()):
            if reading.is_below:  # it goes on only after this call, and nobody else can read meanwhile
                self._cut_short()
            reading.want(beside)
            return False
        try:
            return self._read_as_guest(me, is_done, deadline)
        except BaseException:
            if reading.has(me):
                self._cut_short()
            elif self._stream is not None:
                self._stream.left()
            raise
        finally:
            reading.leave(me, self._connection.in_flight)

    def wait_open(self, deadline: float) -> None:
        """Wait until the connection is open. Raises the error that closed it, or KafkaTimeoutError at the deadline (monotonic seconds)."""
        self._handler.check_fork()
        self.start()
        if not self._settled.wait(max(0.0, deadline - self._handler.monotonic())):
            raise KafkaTimeoutError(f"{self.peer}: the connection is not open yet: {self.standing}", broker=self._about)
        self._raise_if_closed()

    @property
    def standing(self) -> str:
        """At which step the opening stands, for a text; "" if there is nothing to be opened any more."""
        if self._opened or self.closed:
            return ""
        if not self.begun:
            return f"{AT_ONCE} connections of a client are opened at once, and others came first"
        return str(self._opener.steps)

    @property
    def is_silent(self) -> bool:
        """Is there a connection whose peer has not said yet what it speaks?"""
        return self._end is None and self.versions is None and bool(self._opener.steps.last)

    @property
    def opened(self) -> bool:
        """The broker's versions are known, and it is not closed."""
        return self._opened and self._end is None

    @property
    def was_open(self) -> bool:
        """Did it ever get as far as to carry requests?"""
        return self._opened

    @property
    def closed(self) -> bool:
        return self._end is not None

    @property
    def error(self) -> KafkaException | None:
        """With which it was closed."""
        return None if self._end is None else self._end.error

    @property
    def versions(self) -> Versions | None:
        """What the broker speaks; None until the channel is open."""
        return self._connection.versions

    def doubt(self, what: str) -> KafkaException | None:
        """The broker was taken for one that has no `what`. The error with which to try again, on a new connection; None: so it is."""
        with self._lock:
            if not self._opened and self._guess.is_told:
                return None
            is_asked = not self._opened and self._connection.taken_for is None
            return self._asked_again(what) if (self._guess.was_doubted if is_asked else self._is_doubtful()) else None

    def doubt_again(self, what: str) -> KafkaException | None:
        """The same where it was doubted before, and is believed."""
        with self._lock:
            if not self._connection.guessed or self._guess.is_told:
                return None
            if self._opened:
                self._guess.doubt(self._handler.monotonic(), again=True)
            return self._asked_again(what)

    @property
    def is_done(self) -> bool:
        """Will nobody be told anything any more of what was sent?"""
        return self._ended.is_set() if self._end is not None else self._opened and not self.in_flight and not self._outbox

    @property
    def in_flight(self) -> int:
        """Requests without an answer, those that wait for the connection to open included."""
        return self._connection.in_flight + len(self._backlog)

    def is_awaited(self, now: float) -> bool:
        """Is there a request without an answer whose time is not over?"""
        with self._lock:
            deadlines = [queued.deadline for queued in self._backlog] + [sent.deadline for sent in self._connection.unanswered]
        return any(deadline > now for deadline in deadlines)

    def close(self, error: KafkaException | None = None) -> None:
        """Close the connection and fail everything pending, with `error` if it is given. May be called from anywhere, also from on_done.

        Does not wait for the workers: `join` does. From a signal handler that interrupted a step of the connection: the reader closes it, within
        a second.
        """
        try:
            self._shut(error)
        except ReentrantCallError:
            self.abandon()
        if self._reading.is_below and inside_handler():
            self._cut_short()

    def abandon(self) -> None:
        """For finalizers: its owner is gone. Only sets a flag; the reader sees it when it wakes, a greenlet at once, a thread within a second, and closes."""
        self._abandoned = True
        self.expires_at = -inf  # where there is no reader yet
        if self._stream is not None:
            self._stream.look_again()

    def join(self, timeout_s: float) -> bool:
        """Wait until the worker of a closed channel is gone and its descriptor closed. Not from on_done."""
        return not (self._started or not self._unclaimed) or bool(self._ended.wait(timeout_s))

    # -- sending
    def _is_full(self, *, behind: Sequence[Queued] = ()) -> bool:
        """Under the lock: max_in_flight_per_connection requests are without an answer, or others wait for room already."""
        limit = self._config.max_in_flight_per_connection
        return limit is not None and (bool(behind) or self._connection.in_flight >= limit)

    def _number(
        self, request: Any, on_done: OnDone, at: float, timeout_s: float, max_version: int | None, expects_response: bool
    ) -> list[Buffer] | None:
        """Under both locks, open: the request's frame, which counts as sent; None if it cannot be sent, which will be told."""
        try:
            return self._connection.prepare(request, on_done, at, timeout_s, max_version=max_version, expects_response=expects_response)
        except Exception as exc:
            interruption = self._handler.interruption(exc)
            if interruption is not None:
                raise interruption from None
            self._outbox.put(Out([], on_done, self._unsent(exc, request.API.name)))
            return None

    def _unsent(self, exc: Exception, api: str) -> KafkaException:
        """Under the lock: the error of a request that cannot be sent."""
        if isinstance(exc, UnsupportedVersion) and self._is_doubtful():
            return self._asked_again(api)
        return exc if isinstance(exc, KafkaException) else SerializationError(f"{api} cannot be encoded: {exc!r}", api=api)

    def _is_doubtful(self) -> bool:
        """Under the lock: what the broker was taken for is not enough. False: it has said what it speaks, or the guess is believed."""
        return self._guess.doubt(self._handler.monotonic()) if self._connection.guessed else self._guess.doubted

    def _asked_again(self, api: str) -> SocketDisconnectedError:
        text = f"{self.peer}: the broker did not answer ApiVersions and was taken for one that has no {api}; it is asked again"
        return SocketDisconnectedError(text, broker=self._about, api=api)

    def _send_frame(self, frame: list[Buffer], on_done: OnDone | None) -> None:
        """In turn: the frame goes out behind everything that was sent before it. on_done: to be told when the kernel has it.

        Not under the lock, which the reader needs: the answer may be there before the system call returns.
        """
        left = frame if self._outbox and self._outbox.holds_bytes() else self._try_send(frame)
        if left or on_done is not None:
            with self._lock:
                self._outbox.put(Out(left, on_done, self._broken))

    def _try_send(self, frame: list[Buffer]) -> list[Buffer]:
        """What the socket does not take at once. A broken socket takes nothing more: the reader ends the connection."""
        assert self._stream is not None
        try:
            return _after(frame, self._stream.try_send(frame))
        except (KafkaException, OSError) as exc:
            interruption = self._handler.interruption(exc)
            if interruption is not None:
                raise interruption from None
            self._break(exc)
            return []

    def _break(self, exc: Exception) -> None:
        if self._broken is None:
            self._broken = without_frames(self._lost(exc))
        if self._stream is not None and self._taken:
            self._stream.shutdown()  # its taker sees that something is to be read
        elif self._stream is not None:
            self._stream.close()  # wakes the reader

    def _write(self, buffers: list[Buffer]) -> None:
        """For the outbox's worker: send all, or raise."""
        with self._lock:
            if self._end is not None or self._stream is None:
                raise self._closed_error()
            stream, deadline = self._stream, self._connection.deadline
        if deadline is None:
            deadline = self._handler.monotonic() + self._config.socket_timeout_ms / 1000
        stream.send_all(buffers, deadline)

    def _write_failed(self, exc: BaseException) -> None:
        stopped = SocketDisconnectedError(f"{self.peer}: the writer was stopped by {type(exc).__name__}", broker=self._about)
        self._shut(self._lost(exc) if isinstance(exc, (KafkaException, OSError)) else stopped)

    # -- a caller in the reader's place
    def _read_as_guest(self, me: object, is_done: Callable[[], bool], deadline: float) -> bool:
        reading, stream = self._reading, self._stream
        assert stream is not None
        while not is_done():
            now = self._handler.monotonic()
            if now >= deadline:
                return True
            if self._broken is not None:
                return False
            until = min(deadline, now + LOOK_S)
            if not reading.expect(me, until):
                return False
            try:
                if self._frames.pristine and not stream.wait_readable(until):
                    self._next_look()
                    if until < deadline:
                        return False  # nothing comes for long: the reader waits with fewer looks
                    continue
                self._handler.check_fork()
                if not reading.take(me, now, until):
                    return False
                self._answer(self._frames.read())
            except NotYet:
                pass
            except ForkedClientError:
                raise
            except Exception as exc:
                interruption = self._handler.interruption(exc)
                if interruption is not None:
                    raise interruption from None
                if reading.has(me):
                    reading.answering = None  # who asked was told
                self._break(exc if isinstance(exc, KafkaException) else self._reader_failed(exc))
                reading.give(me)
                return False
            reading.give(me)
        return True

    def _cut_short(self) -> None:
        """A caller was interrupted while it took in what came."""
        self._reading.tear()
        self._break(CutShort(f"{self.peer}: a caller was interrupted while it read", broker=self._about))

    # -- the reader worker
    def _run(self) -> None:
        try:
            self._unclaimed.pop()
        except IndexError:
            return
        self._read(self._open)

    def _read(self, begin: Callable[[], None] = lambda: None) -> None:
        """As long as it is open, and nobody takes it."""
        error: KafkaException | None = None
        try:
            begin()
            if self._is_given():
                return
            while True:
                self._answer(self._frames.read())
                self._handler.checkpoint()
                self._reading.stand_aside(lambda: self._connection.in_flight, self._look_aside)
                if self._reading.torn and self._broken is None:
                    self._cut_short()
                if self._broken is not None:  # what is in the buffers may be half of what came
                    raise self._broken
        except Exception as exc:
            interruption = self._handler.interruption(exc)
            if interruption is not None:
                error = self._stopped_by(interruption)
                raise interruption from None
            error = exc if isinstance(exc, KafkaException) else self._reader_failed(exc)
            self._reading.answering = self._reading.untold  # whoever else asked was told, or is one of those who will be
        except BaseException as exc:
            error = self._stopped_by(exc)
            raise
        finally:
            if not self._taken:
                self._end_reading(error)

    def _end_reading(self, error: KafkaException | None) -> None:
        try:
            self._shut(error)
        finally:  # also if a second signal comes meanwhile
            if self._reading.answering is not None:
                with contextlib.suppress(BaseException):  # what ended it goes on already
                    self._tell(self._reading.answering.token, None, error or self._closed_error())
            if self._stream is not None:
                self._stream.close()  # whoever shut the connection may have been interrupted before that
            self._ended.set()
            self._openings.leave(self)

    # -- a worker that reads several connections
    def _is_given(self) -> bool:
        """Does somebody take it? From then on he calls take_in() when there is something to be read, look() when that says, and read_on() at his end."""
        taker, stream = self._taker, self._stream
        if taker is None or stream is None:
            return False
        self._taken = True
        if not taker(self, stream.fileno()):
            self._taken = False
        return self._taken

    def take_in(self) -> None:
        """By its taker's worker: all that has come."""
        self._in_place_of_reader(self._take_all)

    def _take_all(self) -> float:
        stream = self._stream
        assert stream is not None
        try:
            while True:
                self._answer(self._frames.read())
                if stream.is_drained and self._frames.pristine:
                    break
        except NotYet:
            pass
        return 0.0

    def look(self) -> float:
        """By its taker's worker: what else is due. Returns when to look again."""
        return self._in_place_of_reader(self._next_look)

    def _in_place_of_reader(self, step: Callable[[], float]) -> float:
        """What ends the reader ends the connection."""
        try:
            found = step()
            if self._broken is not None:
                raise self._broken
            return found
        except ForkedClientError:
            raise
        except Exception as exc:
            error = exc if isinstance(exc, KafkaException) else self._reader_failed(exc)
            self._reading.answering = self._reading.untold
            self._end_reading(error)
            return inf

    def read_on(self, takers: Iterable[Callable[[Channel, int], bool]] = ()) -> None:
        """Its taker ends: another one takes it, or it has a reader of its own again."""
        if self._end is not None:
            self._taken = False
            self._end_reading(self._end.error)
            return
        for self._taker in takers:
            if self._is_given():
                return
        self._taken, self._taker = False, None
        try:
            self._handler.spawn(self._read, _name=f"gkafka-{self.role}-{self.peer}", _on_failure=self._reader_ended)
        except Exception as exc:
            self._cannot_begin(exc)

    def _reader_ended(self, error: BaseException) -> None:
        """In place of a log line. A signal handler's exception may end it before its first step, and nobody else would connect or give up."""
        if self._unclaimed:
            self._shut(self._stopped_by(error))
            self._ended.set()
        elif not self._handler.interrupted(error):
            log.error("%s: the reader ended by %s", self.peer, type(error).__name__, exc_info=error)

    def _stopped_by(self, exc: BaseException) -> KafkaException:
        return CutShort(f"{self.peer}: the reader was stopped by {type(exc).__name__}", broker=self._about)

    def _reader_failed(self, exc: Exception) -> KafkaException:
        log.error("%s: the reader failed", self.peer, exc_info=exc)
        return ProtocolError(f"{self.peer}: the reader failed: {type(exc).__name__}: {exc}", broker=self._about)

    def _answer(self, frame: memoryview) -> None:
        """Hand up one answer. Nothing of it is referred to afterwards: its buffer can be used again."""
        with self._lock:
            self._raise_if_closed()
            sent = self._connection.take(frame, self._reading.note)
        try:
            if len(frame) < LARGE_ANSWER_BYTES:
                message = self._connection.decode(sent, frame)
            else:
                # Of a Fetch only views are made, however large it is, as long as it has few entries.
                message = self._connection.decode(sent, frame, few=True) if sent.api.name == "Fetch" else None
                if message is None:
                    message = self._handler.offload(self._connection.decode, sent, frame)
        except Exception as exc:
            if self._handler.interrupted(exc):
                raise  # told at the end, as a lost connection
            error = (
                exc if isinstance(exc, KafkaException) else ProtocolError(f"{self.peer}: {exc!r}", broker=self._about, api=sent.api.name)
            )
            self._tell(sent.token, None, error)
            raise
        if self._backlog and self._config.max_in_flight_per_connection is not None:
            self._send_what_waits()
        if log.isEnabledFor(logging.DEBUG):
            log.debug("%s: %s v%s answered in %.3f s", self.peer, sent.api.name, sent.version, self._handler.monotonic() - sent.sent_at)
        self._reading.answered(len(frame))
        self._tell(sent.token, message, None)
        self._reading.answering = None

    def _look_aside(self) -> bool:
        """While callers read: what they have no time to look at. True: there is nothing to be read any more."""
        if self._session is not None:
            self._look_at_session(self._session, self._handler.monotonic(), 0.0)
        return self._is_over() or self._reading.torn

    def _is_over(self) -> bool:
        return self._end is not None or self._abandoned or self._broken is not None

    def _tell_each(self, failed: Failures) -> None:
        """Tell everybody, even if a callback is ended by a kill or Ctrl-C: that goes on when all were told."""
        while failed:
            on_done, error = failed[0]
            try:
                if on_done is not None:
                    self._tell(on_done, None, error)
                del failed[0]
            except BaseException as exc:
                del failed[:1]
                self._tell_each(failed)
                may_be_untold = self._handler.interruptible() or self._handler.interrupted(exc)  # it may have come before the call
                if on_done is not None and may_be_untold:
                    with contextlib.suppress(BaseException):
                        self._tell(on_done, None, error)
                raise

    def _tell(self, on_done: OnDone, response: Any, error: KafkaException | None) -> None:
        try:
            on_done(response, error)
        except Exception as exc:
            if self._handler.interrupted(exc):
                raise
            log.exception("%s: a callback for an answer raised", self.peer)

    def _receive(self, view: memoryview) -> int:
        """At least one byte. Raises what ends the connection: the peer closed, time is over, `close()`, a fork."""
        assert self._stream is not None
        if self._taken:
            return self._receive_ready(self._stream, view)
        while True:
            until = self._look_before()
            try:
                received = self._stream.recv_into(view, until)
            except OSError as exc:
                self._has_not_come(exc)
                continue
            if received == 0:
                raise self._lost(None)
            return received

    def _receive_frame(self, stage: memoryview, buffer: bytearray) -> tuple[int, int]:
        """The same, by `Stream.recv_frame`."""
        assert self._stream is not None
        if self._taken:
            return self._receive_ready(self._stream, stage), 0
        while True:
            until = self._look_before()
            try:
                received = self._stream.recv_frame(stage, buffer, until)
            except OSError as exc:
                self._has_not_come(exc)
                continue
            if received[0] == 0:
                raise self._lost(None)
            return received

    def _receive_ready(self, stream: Stream, view: memoryview) -> int:
        """What has come. Raises NotYet if nothing has."""
        try:
            received = stream.receive_ready(view)
        except OSError as exc:
            raise self._lost(exc) from None
        if received is None:
            raise NotYet
        if received == 0:
            raise self._lost(None)
        return received

    def _look_before(self) -> float:
        """Until when to wait for bytes."""
        if self._reading.guest_until is not None:
            return self._reading.guest_until  # a caller looks around where it waits
        self._handler.check_fork()
        return self._next_look()

    def _has_not_come(self, exc: OSError) -> None:
        """Raises, unless this was no more than the time to look around."""
        if not isinstance(exc, KafkaTimeoutError):
            raise self._handler.interruption(exc) or self._lost(exc) from None
        if self._reading.guest_until is not None:
            self._next_look()
            raise NotYet from None

    def _next_look(self) -> float:
        """When to stop waiting for bytes and look again. Raises if there is nothing to wait for any more."""
        now = self._handler.monotonic()
        with self._lock:
            self._raise_if_closed()
            if self._abandoned:
                raise SocketDisconnectedError(f"{self.peer}: it was left open by who was done with it", broker=self._about)
            is_wrong = self._guess.doubted or (self._opened and self._connection.guessed and self._guess.is_told)
            if is_wrong and not self._connection.in_flight:
                raise SocketDisconnectedError(f"{self.peer}: it was taken for an older Kafka than it may be", broker=self._about)
            deadline = self._looks.after_standing_still(self._connection.deadline, now)
            overdue = self._connection.poll(now) if deadline is not None and deadline <= now else None
        if overdue:
            raise self._connection.overdue(overdue[0])
        until = min(inf if self._taken else self._handler.looks_at(now, self._looks.wait_s), self._expire_backlog(now))
        if self._session is not None:
            until = self._look_at_session(self._session, now, until)
        self._looks.at = until if deadline is None else min(deadline, until)
        return self._looks.at

    def _look_at_session(self, session: Session, now: float, until: float) -> float:
        if now >= session.renew_at and self._connection.versions is not None:
            session.renew(self._connection.versions, self._config.connect_timeout_ms / 1000)
        return min(until, now + SHORTEST_WAIT_S if session.renewing else session.renew_at)

    def _lost(self, exc: Exception | None) -> KafkaException:
        """Why the connection is gone: what a sender saw of it first, else what was seen now (None: the peer closed)."""
        if self._broken is not None:
            return self._broken
        if isinstance(exc, KafkaException):
            return exc
        lost = SocketDisconnectedError(f"{self.peer}: {exc or 'the broker closed the connection'}", broker=self._about)
        lost.__cause__ = exc
        return lost

    # -- opening
    def _open(self) -> None:
        self._stream, self._frames = self._opener.open()
        self._frames.receive_by(self._receive, self._receive_frame)
        who = f", {self._session.authenticator.name}" if self._session is not None else ""
        log.info("%s: %s connection open (%s%s)", self.peer, self.role, self._connection.spoken, who)
        assert self._connection.versions is not None
        self._guess.found(self._connection.taken_for, self._connection.versions)
        self._settled.set()
        self._openings.leave(self)
        self._outbox.wake()

    def _hold_stream(self, stream: Stream) -> None:
        """From here on who closes the channel closes the stream, which ends every wait for it. Raises if that has come before."""
        with self._lock:
            if self._end is None:
                self._stream = stream
        if self._stream is not stream:
            stream.close()
            raise self._closed_error()

    def _awaited_until(self) -> float:
        """When the last of the waiting requests gives up."""
        with self._lock:
            self._raise_if_closed()
            return max((queued.deadline for queued in self._backlog), default=inf)

    def _step(self, move: Callable[..., T], *about: Any) -> T:
        """Make a step towards being open, unless the connection is closed. When it is open, what waited goes out before anything newer."""
        with self._order:
            with self._lock:
                self._raise_if_closed()
                made = move(*about)
                self._opened = self._sends = self._connection.state is State.OPEN
            while self._opened and self._send_waiting():
                pass
        return made

    # -- authenticating again
    def _hold(self) -> None:
        with self._order, self._lock:
            self._sends = False

    def _exchange_open(self, request: Message, max_version: int | None) -> Any:
        """Send one in spite of the hold, behind what was sent before, which may be parked at the broker."""
        future, done = self._future()
        now = self._handler.monotonic()
        with self._order:
            with self._lock:
                self._raise_if_closed()
                before = max((sent.deadline for sent in self._connection.unanswered), default=now)
                timeout_s = max(0.0, before - now) + self._config.connect_timeout_ms / 1000
                frame = self._number(request, done, now, timeout_s, max_version, True)
            if frame is not None:
                self._send_frame(frame, None)
        if self._outbox:
            self._outbox.wake()
        return future.result(timeout_s + LONGEST_WAIT_S)

    def _release(self) -> None:
        with self._order, self._lock:
            self._sends = self._opened and self._end is None
        self._send_what_waits()

    def _send_what_waits(self) -> None:
        """As far as there is room, if there is no hold."""
        with self._order:
            while self._sends and self._send_waiting():
                pass
        if self._outbox:
            self._outbox.wake()

    def _send_waiting(self) -> bool:
        """In turn: send the first request that waited for the connection to open, or for room. False: none does, or there is none."""
        with self._lock:
            if self._end is not None or not self._backlog or self._is_full():
                return False
            first = self._backlog[0]  # it stays there until it has a number: who is interrupted leaves none untold
            frame = self._number(first.request, first.on_done, first.at, first.timeout_s, first.max_version, first.expects_response)
            self._backlog.popleft()
        if frame is not None:
            self._send_frame(frame, None if first.expects_response else first.on_done)
        return True

    def _expire_backlog(self, now: float) -> float:
        """Fail the waiting requests whose time is over; the connection, which saw nothing of them, goes on opening. Returns when to look again."""
        if not self._backlog:
            return inf
        with self._lock:
            late = [queued for queued in self._backlog if queued.deadline <= now]
            for queued in late:
                self._backlog.remove(queued)
            self.expires_at = min((queued.deadline for queued in self._backlog), default=inf)
        for queued in late:
            self._tell(queued.on_done, None, self._never_sent(queued))
        return max(self.expires_at, now + SHORTEST_WAIT_S)

    def _never_sent(self, queued: Queued, waited_s: float | None = None) -> KafkaTimeoutError:
        api = queued.request.API.name
        why = f"the connection did not open{f': {self.standing}' if self.begun and self.standing else ''}"
        if not self.begun:
            why = f"{AT_ONCE} connections of a client are opened at once, and others came first"
        elif self._opened and (self._config.max_in_flight_per_connection is None or not self._sends):
            why = "the connection was not authenticated again"
        elif self._opened:
            why = f"max_in_flight_per_connection={self._config.max_in_flight_per_connection} requests before it were not answered"
        error = KafkaTimeoutError(
            f"{self.peer}: {api} could not be sent within {queued.timeout_s if waited_s is None else waited_s:.3g} s: {why}{f' ({self.error})' if self.error else ''}",
            broker=self._about,
            api=api,
        )
        error.never_sent = True
        return error

    # -- the end
    @property
    def _about(self) -> str | int:
        return self._connection.broker

    def _raise_if_closed(self) -> None:
        if self._end is not None:
            raise self._closed_error()

    def _closed_error(self) -> KafkaException:
        return self.error or SocketDisconnectedError(f"{self.peer}: the connection was closed by the client", broker=self._about)

    def _closed_before(self) -> KafkaException:
        """The same for a request that never left."""
        closed = self._closed_error()
        error = copy(closed)
        error.__cause__, error.never_sent = closed.__cause__, True
        return error

    def _shut(self, error: KafkaException | None) -> None:
        """Close once: nothing is accepted from here on, everything pending fails, outside the lock."""
        end = End(error, self._handler.monotonic())
        try:
            self._end_as(end)
        except BaseException:  # a signal handler's, between any two steps, or a kill inside a callback: the rest is done before it goes on
            self._end_as(end)
            raise

    def _end_as(self, end: End) -> None:
        """Do what is not done yet, unless another one ends the connection."""
        error = end.error
        with self._lock:
            if self._end is None:
                self._end = end
            if self._end is not end:
                return
            stood = "" if self._opened or not self.begun else f" while it was being opened: {self._opener.steps}"
            became = "closed" if self._opened or error is None else "not opened"
            if end.failed is None:
                end.failed = self._unfinished(end.now)
            self._connection.lose()
            self._outbox.close()
            self._backlog.clear()
            stream = self._stream
        why = f"by the client{stood}" if error is None else str(error).removeprefix(f"{self.peer}: ")
        log.info("%s: %s connection %s: %s", self.peer, self.role, became, why)
        if error is not None:
            self._guess.failed()
        self._settled.set()
        self._outbox.wake()
        if stream is not None:
            stream.close()
        try:
            self._tell_each(end.failed)
        finally:
            try:
                if self._on_close is not None:
                    self._call_on_close(error)
            finally:
                self._wait_no_more()

    def _wait_no_more(self) -> None:
        # In a signal handler on top of who opens connections it cannot leave the line: when its turn comes it ends at once.
        with contextlib.suppress(ReentrantCallError):
            if self._openings.withdraw(self) or self._taken:
                self._ended.set()  # there will be no reader, or is none

    def _unfinished(self, now: float) -> Failures:
        """Under the lock: whom to tell that the connection is gone, and how. Takes nothing out."""
        failed: Failures = [(entry.token, self._error_of(entry, now)) for entry in self._connection.unanswered]
        failed += [(out.on_done, out.error or (self._closed_error() if out.buffers else None)) for out in self._outbox.outs]
        failed += [(wait.on_done, self._never_sent(wait) if wait.deadline <= now else self._closed_before()) for wait in self._backlog]
        return failed

    def _error_of(self, sent: Sent, now: float) -> KafkaException:
        """Whose time is over is told so; the others lost their connection to it."""
        if sent.deadline <= now and isinstance(self.error, KafkaTimeoutError):
            return self._connection.overdue(sent)
        if isinstance(self.error, KafkaTimeoutError):
            return SocketDisconnectedError(f"{self.peer}: the connection was given up: {self.error}", broker=self._about, api=sent.api.name)
        return self._closed_error()

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


def _after(buffers: Sequence[Buffer], sent: int) -> list[Buffer]:
    """What follows the first `sent` bytes. The buffers are kept, not copied."""
    if len(buffers) == 1 and sent == len(buffers[0]):
        return []
    for index, buffer in enumerate(buffers):
        if sent < len(buffer):
            return [memoryview(buffer)[sent:], *buffers[index + 1 :]] if sent else list(buffers[index:])
        sent -= len(buffer)
    return []
