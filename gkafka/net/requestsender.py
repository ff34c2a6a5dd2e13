"""Sends the requests of one connection, in the order in which they are numbered.

    number() > send_frame(): one non-blocking send    (what is left over: the outbox and its worker)

Requests are held back until the connection is open, and while the client is authenticated again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, TypeVar

from gkafka.config import ClientConfig
from gkafka.core.connection import Connection, State
from gkafka.exceptions import KafkaException, SocketDisconnectedError
from gkafka.handlers import Handler
from gkafka.net.backlog import Backlog
from gkafka.net.completions import Completions, OnDone
from gkafka.net.guesses import Doubts
from gkafka.net.link import Link
from gkafka.net.looks import LONGEST_WAIT_S
from gkafka.net.outbox import Out, Outbox
from gkafka.wire.apis import Message

__all__ = ["RequestSender"]

Buffer: TypeAlias = bytes | bytearray | memoryview
T = TypeVar("T")


class RequestSender:
    """order: held while a request gets its number and its frame goes out; taken before `link.lock`.

    sends: the connection is open, and no re-authentication holds requests back. name: of the
    outbox's worker. shut(error): closes the channel.
    """

    def __init__(
        self,
        handler: Handler,
        config: ClientConfig,
        connection: Connection,
        link: Link,
        backlog: Backlog,
        doubts: Doubts,
        completions: Completions,
        *,
        name: str,
        shut: Callable[[KafkaException | None], None],
    ) -> None:
        self._handler = handler
        self._config = config
        self._connection = connection
        self._link = link
        self._backlog = backlog
        self._doubts = doubts
        self._completions = completions
        self._shut = shut
        self.order = handler.Mutex()
        self.outbox = Outbox(handler, name, link.lock, write=self._write, tell=completions.complete, broke=self._write_failed)
        self.sends = False

    # -- with `order` held
    def number(
        self, request: Any, on_done: OnDone, at: float, timeout_s: float, max_version: int | None, expects_response: bool
    ) -> list[Buffer] | None:
        """Return the request's frame, which counts as sent. The caller holds `link.lock`, too.

        Return None if the request cannot be sent: then the outbox fails it.
        """
        try:
            return self._connection.prepare(request, on_done, at, timeout_s, max_version=max_version, expects_response=expects_response)
        except Exception as exc:
            interruption = self._handler.interruption(exc)
            if interruption is not None:
                raise interruption from None
            self.outbox.put(Out([], on_done, self._doubts.cannot_encode(exc, request.API.name)))
            return None

    def send_frame(self, frame: list[Buffer], on_done: OnDone | None) -> None:
        """Send a frame behind everything that was sent before it.

        on_done: called when the kernel has all bytes of the frame.
        Not under `link.lock`, which the reader needs: the answer may be there before the system
        call returns.
        """
        left = frame if self.outbox and self.outbox.holds_bytes() else self._try_send(frame)
        if left or on_done is not None:
            with self._link.lock:
                self.outbox.put(Out(left, on_done, self._link.broken))

    def _try_send(self, frame: list[Buffer]) -> list[Buffer]:
        """Return what the socket does not take at once.

        If the socket is broken, return nothing: the reader ends the connection.
        """
        assert self._link.stream is not None
        try:
            return _after(frame, self._link.stream.try_send(frame))
        except (KafkaException, OSError) as exc:
            interruption = self._handler.interruption(exc)
            if interruption is not None:
                raise interruption from None
            self._link.break_off(exc)
            return []

    def _send_waiting(self) -> bool:
        """Send the oldest waiting request. Return False if there is none, or no room for it."""
        with self._link.lock:
            if self._link.end is not None or not self._backlog.queued or self._backlog.is_full():
                return False
            # It stays there until it has a number: an interruption must not lose it.
            first = self._backlog.queued[0]
            frame = self.number(first.request, first.on_done, first.at, first.timeout_s, first.max_version, first.expects_response)
            self._backlog.queued.popleft()
        if frame is not None:
            self.send_frame(frame, None if first.expects_response else first.on_done)
        return True

    # -- the backlog
    def step(self, move: Callable[..., T], *about: Any) -> T:
        """Return move(*about), a step towards being open, unless the channel is closed.

        When the connection is open, the backlog goes out before anything newer.
        """
        with self.order:
            with self._link.lock:
                self._link.raise_if_closed()
                made = move(*about)
                self._link.opened = self.sends = self._connection.state is State.OPEN
            while self._link.opened and self._send_waiting():
                pass
        return made

    def send_backlog(self) -> None:
        """Send what waits, as far as there is room, unless requests are held back."""
        with self.order:
            while self.sends and self._send_waiting():
                pass
        if self.outbox:
            self.outbox.wake()

    # -- for net/session.py
    def hold(self) -> None:
        """Hold requests back from now on."""
        with self.order, self._link.lock:
            self.sends = False

    def exchange(self, request: Message, max_version: int | None) -> Any:
        """Send a request although requests are held back, and return its response.

        It goes out behind what was sent before, which may be parked at the broker.
        """
        future, done = self._completions.future()
        now = self._handler.monotonic()
        with self.order:
            with self._link.lock:
                self._link.raise_if_closed()
                before = max((sent.deadline for sent in self._connection.unanswered), default=now)
                timeout_s = max(0.0, before - now) + self._config.connect_timeout_ms / 1000
                frame = self.number(request, done, now, timeout_s, max_version, True)
            if frame is not None:
                self.send_frame(frame, None)
        if self.outbox:
            self.outbox.wake()
        return future.result(timeout_s + LONGEST_WAIT_S)

    def release(self) -> None:
        """Send what was held back."""
        with self.order, self._link.lock:
            self.sends = self._link.opened and self._link.end is None
        self.send_backlog()

    # -- for the outbox's worker
    def _write(self, buffers: list[Buffer]) -> None:
        """Send all, or raise."""
        with self._link.lock:
            if self._link.end is not None or self._link.stream is None:
                raise self._link.closed_error()
            stream, deadline = self._link.stream, self._connection.deadline
        if deadline is None:
            deadline = self._handler.monotonic() + self._config.socket_timeout_ms / 1000
        stream.send_all(buffers, deadline)

    def _write_failed(self, exc: BaseException) -> None:
        stopped = SocketDisconnectedError(f"{self._link.peer}: the writer was stopped by {type(exc).__name__}", broker=self._link.broker)
        self._shut(self._link.lost(exc) if isinstance(exc, (KafkaException, OSError)) else stopped)


def _after(buffers: Sequence[Buffer], sent: int) -> list[Buffer]:
    """Return what follows the first `sent` bytes. The buffers are kept, not copied."""
    if len(buffers) == 1 and sent == len(buffers[0]):
        return []
    for index, buffer in enumerate(buffers):
        if sent < len(buffer):
            return [memoryview(buffer)[sent:], *buffers[index + 1 :]] if sent else list(buffers[index:])
        sent -= len(buffer)
    return []
