"""Receives the answers of one connection, and completes the requests that they belong to.

    frame (net/buffers.py) > correlate > decode > on_done

The reader of the connection does so, or the worker that has taken it (net/reader.py).
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from gkafka.core.connection import Connection, Sent
from gkafka.exceptions import KafkaException, KafkaTimeoutError, ProtocolError
from gkafka.handlers import Handler, Stream
from gkafka.logs import get_logger
from gkafka.net.backlog import Backlog
from gkafka.net.buffers import FrameReader
from gkafka.net.completions import Completions
from gkafka.net.link import Link
from gkafka.net.looks import Looks

__all__ = ["Inbox", "NotYet"]

log = get_logger(__name__)

LARGE_ANSWER_BYTES = 1 << 14
"""Answers from this size on are decoded off the hub: that takes about 0.2 us a byte."""


class NotYet(Exception):
    """The rest of an answer has not come, and the worker that takes it in does not wait."""


class Inbox:
    """frames: what cuts the answers from the stream, once the connection is open. answering: the
    request whose answer was taken out, and is not told yet.

    send_backlog(): called after an answer if requests wait for room on the connection.
    """

    frames: FrameReader

    def __init__(
        self,
        handler: Handler,
        connection: Connection,
        link: Link,
        backlog: Backlog,
        looks: Looks,
        completions: Completions,
        *,
        send_backlog: Callable[[], None],
    ) -> None:
        self._handler = handler
        self._connection = connection
        self._link = link
        self._backlog = backlog
        self._looks = looks
        self._completions = completions
        self._send_backlog = send_backlog
        self.answering: Sent | None = None

    def open(self, frames: FrameReader) -> None:
        """The connection is open: its frames are received from here on."""
        self.frames = frames
        frames.receive_by(self._receive, self._receive_frame)

    # -- answers
    def answer(self, frame: memoryview) -> None:
        """Complete the request that a frame answers.

        Nothing refers to the frame afterwards: its buffer can be used again.
        """
        with self._link.lock:
            self._link.raise_if_closed()
            sent = self._connection.take(frame, self._note)
        try:
            if len(frame) < LARGE_ANSWER_BYTES:
                message = self._connection.decode(sent, frame)
            else:
                # Of a Fetch only views are made, however large it is, if it has few entries.
                message = self._connection.decode(sent, frame, few=True) if sent.api.name == "Fetch" else None
                if message is None:
                    message = self._handler.offload(self._connection.decode, sent, frame)
        except Exception as exc:
            if self._handler.interrupted(exc):
                raise  # told at the end, as a lost connection
            error = (
                exc
                if isinstance(exc, KafkaException)
                else ProtocolError(f"{self._link.peer}: {exc!r}", broker=self._link.broker, api=sent.api.name)
            )
            self._completions.complete(sent.token, None, error)
            self.answering = None
            raise
        if self._backlog.queued and self._backlog.max_in_flight is not None:
            self._send_backlog()
        if log.isEnabledFor(logging.DEBUG):
            took_s = self._handler.monotonic() - sent.sent_at
            log.debug("%s: %s v%s answered in %.3f s", self._link.peer, sent.api.name, sent.version, took_s)
        self._completions.complete(sent.token, message, None)
        self.answering = None

    def _note(self, sent: Sent) -> None:
        self.answering = sent

    def answer_all(self) -> None:
        """Complete all requests whose answers have come."""
        stream = self._link.stream
        assert stream is not None
        try:
            while True:
                self.answer(self.frames.read())
                if stream.is_drained and self.frames.pristine:
                    break
        except NotYet:
            pass

    # -- errors of whoever reads
    def failed(self, exc: Exception) -> KafkaException:
        """Return the error that ends the connection after an exception while answers were read."""
        if isinstance(exc, KafkaException):
            return exc
        log.error("%s: the reader failed", self._link.peer, exc_info=exc)
        return ProtocolError(f"{self._link.peer}: the reader failed: {type(exc).__name__}: {exc}", broker=self._link.broker)

    # -- bytes
    def _receive(self, view: memoryview) -> int:
        """Return how many bytes were received, at least one.

        Raise what ends the connection: the peer closed it, a deadline passed, `close()`, a fork.
        """
        assert self._link.stream is not None
        if self._link.taken:
            return self._receive_ready(self._link.stream, view)
        while True:
            until = self._look_before()
            try:
                received = self._link.stream.recv_into(view, until)
            except OSError as exc:
                self._has_not_come(exc)
                continue
            if received == 0:
                raise self._link.lost(None)
            return received

    def _receive_frame(self, stage: memoryview, buffer: bytearray) -> tuple[int, int]:
        """Do the same by `Stream.recv_frame`."""
        assert self._link.stream is not None
        if self._link.taken:
            return self._receive_ready(self._link.stream, stage), 0
        while True:
            until = self._look_before()
            try:
                received = self._link.stream.recv_frame(stage, buffer, until)
            except OSError as exc:
                self._has_not_come(exc)
                continue
            if received[0] == 0:
                raise self._link.lost(None)
            return received

    def _receive_ready(self, stream: Stream, view: memoryview) -> int:
        """Receive what has come. Raise NotYet if nothing has."""
        try:
            received = stream.receive_ready(view)
        except OSError as exc:
            raise self._link.lost(exc) from None
        if received is None:
            raise NotYet
        if received == 0:
            raise self._link.lost(None)
        return received

    def _look_before(self) -> float:
        """Return until when to wait for bytes."""
        self._handler.check_fork()
        return self._looks.look()

    def _has_not_come(self, exc: OSError) -> None:
        """Raise, unless this was no more than the time to look around."""
        if not isinstance(exc, KafkaTimeoutError):
            raise self._handler.interruption(exc) or self._link.lost(exc) from None
