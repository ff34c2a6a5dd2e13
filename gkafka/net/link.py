"""The socket of one connection, whether it is still of use, and the error that ended it.

A connection ends in two steps. Whoever sees a fault breaks the link off (`break_off`): nothing more
is sent. Whoever reads sees that and shuts the channel (`Channel.close`): every request is failed.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass

from gkafka.exceptions import KafkaException, SocketDisconnectedError, without_frames
from gkafka.handlers import Lock, Stream
from gkafka.net.completions import Failures

__all__ = ["CutShort", "End", "Link"]


class CutShort(SocketDisconnectedError):
    """A caller of this process was interrupted while it used the connection.

    This says nothing about the peer.
    """


@dataclass(slots=True, eq=False)
class End:
    """The end of a connection, begun at `now`. failed: callbacks still to be called, None until they
    are known. done: nothing is left to be done.
    """

    error: KafkaException | None
    now: float
    failed: Failures | None = None
    done: bool = False


class Link:
    """The socket of one connection, shared by all parts that send, receive or end it.

    peer: host:port, for texts. broker: what the `broker` attribute of errors holds. lock: guards
    what the parts share. It is never held across a wait or a system call, nor while a callback
    runs.
    """

    def __init__(self, peer: str, broker: str | int, lock: Lock) -> None:
        self.peer = peer
        self.broker = broker
        self.lock = lock
        self.stream: Stream | None = None
        self.opened = False
        """The connection has opened. Stays True after it has ended."""
        self.taken = False
        """A worker of somebody else reads it, see `net/watched.py`."""
        self.abandoned = False
        """The owner is gone: the reader closes the connection when it looks."""
        self.broken: KafkaException | None = None
        """The first fault that was seen. The reader ends the connection with it."""
        self.end: End | None = None
        """Set when the channel is closed."""

    @property
    def error(self) -> KafkaException | None:
        """The error that the connection was closed with."""
        return None if self.end is None else self.end.error

    def is_over(self) -> bool:
        """Return whether there is nothing to be read any more."""
        return self.end is not None or self.abandoned or self.broken is not None

    def hold(self, stream: Stream) -> None:
        """Keep the stream: whoever closes the channel closes it, which ends every wait for it.

        Raise the channel's error, and close the stream, if the channel was closed before.
        """
        with self.lock:
            if self.end is None:
                self.stream = stream
        if self.stream is not stream:
            stream.close()
            raise self.closed_error()

    def abandon(self) -> None:
        """Only set a flag. A greenlet that reads looks at once, a thread within a second."""
        self.abandoned = True
        if self.stream is not None:
            self.stream.look_again()

    def break_off(self, exc: Exception) -> None:
        """Note a fault, if it is the first one, and wake whoever reads: it ends the connection."""
        if self.broken is None:
            self.broken = without_frames(self.lost(exc))
        if self.stream is not None and self.taken:
            self.stream.shutdown()  # the worker that has taken it sees that something is to be read
        elif self.stream is not None:
            self.stream.close()  # wakes the reader

    # -- errors
    def lost(self, exc: Exception | None) -> KafkaException:
        """Return why the socket is gone: the first fault if one was noted, else exc.

        exc: None if the peer closed the connection.
        """
        if self.broken is not None:
            return self.broken
        if isinstance(exc, KafkaException):
            return exc
        lost = SocketDisconnectedError(f"{self.peer}: {exc or 'the broker closed the connection'}", broker=self.broker)
        lost.__cause__ = exc
        return lost

    def raise_if_closed(self) -> None:
        if self.end is not None:
            raise self.closed_error()

    def closed_error(self) -> KafkaException:
        """Return the error of a request that was under way when the connection was closed."""
        return self.error or SocketDisconnectedError(f"{self.peer}: the connection was closed by the client", broker=self.broker)

    def unsent_error(self) -> KafkaException:
        """Return the same error for a request that was never sent."""
        closed = self.closed_error()
        error = copy(closed)
        error.__cause__, error.never_sent = closed.__cause__, True
        return error
