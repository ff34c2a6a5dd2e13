"""What a socket did not take at once, in order, and the worker that sends it when it does.

The worker exists only while there is something for it: it ends when nothing came for a second.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from gkafka.exceptions import KafkaException
from gkafka.handlers import Handler, Lock
from gkafka.logs import get_logger
from gkafka.net.completions import OnDone
from gkafka.undoing import Undoing

__all__ = ["OnDone", "Out", "Outbox"]

log = get_logger(__name__)

Buffer: TypeAlias = bytes | bytearray | memoryview
LINGER_S = 1.0  # starting a thread costs 60 us, waking one 10


@dataclass(slots=True, eq=False)
class Out:
    """Bytes to send, and whom to tell when the kernel has them, if anybody. The buffers are kept until then (B07).

    error: what to tell instead of success; there are no bytes then.
    """

    buffers: list[Buffer]
    on_done: OnDone | None
    error: KafkaException | None = None


class Outbox:
    """write(buffers) sends all of them, waiting for room; tell(on_done, response, error) calls back; broke(error): one of them raised.

    lock: the owner's, which it holds when it calls what says so.
    """

    def __init__(
        self,
        handler: Handler,
        name: str,
        lock: Lock,
        *,
        write: Callable[[list[Buffer]], None],
        tell: Callable[[OnDone, Any, KafkaException | None], None],
        broke: Callable[[BaseException], None],
    ) -> None:
        self._handler = handler
        self._name = name
        self._lock = lock
        self._write = write
        self._tell = tell
        self._broke = broke
        self._outs: deque[Out] = deque()
        self._filled = handler.Event()
        self._runs = False  # a worker is there or comes
        self._claimed = False  # it is there
        self._closed = False

    def __bool__(self) -> bool:
        return bool(self._outs)

    # -- under the owner's lock
    def put(self, out: Out) -> None:
        """Behind everything that is here. The owner calls `wake` when it has released the lock."""
        self._outs.append(out)

    def holds_bytes(self) -> bool:
        """Something is unsent: what comes later must wait behind it. Without the lock, too: a look at a copy."""
        return bool(self._outs) and any(out.buffers for out in list(self._outs))

    @property
    def outs(self) -> list[Out]:
        """What is here, in order."""
        return list(self._outs)

    def close(self) -> None:
        """Take everything out; the worker ends soon. What is put in later is told, by a worker, and nothing is sent."""
        self._closed = True
        self._outs.clear()

    # -- without it
    def wake(self) -> None:
        """See to it that a worker looks."""
        self._filled.set()
        if self._runs or not self._outs:
            return  # whoever has put something in did so before this look, under the lock with which a worker ends
        try:
            # After a signal handler's exception one may come or not, so the next caller sees to it again: one of them works.
            with Undoing(self._none_comes):
                with self._lock:
                    if self._runs or not self._outs:
                        return
                    self._runs = True
                self._handler.spawn(self._work, _name=self._name, _on_failure=self._worker_ended)
        except KafkaException as exc:  # the handler was stopped: no worker will ever look, so it is done here
            self._broke(exc)
            while self._outs:
                self._finish(self._outs[0])

    def _none_comes(self) -> None:
        self._runs = False

    def _worker_ended(self, error: BaseException) -> None:
        """In place of a log line. A signal handler's exception may end it before its first step: then another one does its work."""
        if not self._claimed and self._outs:
            self._runs = False
            self.wake()
        if not self._handler.interrupted(error):
            log.error("worker %r ended by %s", self._name, type(error).__name__, exc_info=error)

    def _work(self) -> None:
        with self._lock:
            if self._claimed:
                return
            self._runs = self._claimed = True
        try:
            while (out := self._next()) is not None:
                if out.buffers:
                    self._write(out.buffers)
                self._finish(out)
                self._handler.checkpoint()
        except BaseException as exc:
            self._broke(exc)
            with self._lock:
                self._runs = self._claimed = False
            self.wake()  # what was put in meanwhile is still to be told that it is too late
            interruption = self._handler.interruption(exc)
            if interruption is not None:
                raise interruption from None
            if not isinstance(exc, (KafkaException, OSError)):
                raise

    def _next(self) -> Out | None:
        while True:
            with self._lock:
                if self._outs:
                    return self._outs[0]
                self._filled.clear()
                if self._closed:
                    self._runs = self._claimed = False
                    return None
            if not self._filled.wait(LINGER_S):
                with self._lock:
                    if not self._outs:
                        self._runs = self._claimed = False
                        return None
            self._handler.check_fork()

    def _finish(self, out: Out) -> None:
        with self._lock:
            ours = bool(self._outs) and self._outs[0] is out  # not if `close` took it meanwhile: then the owner tells
            if ours:
                self._outs.popleft()
        if ours and out.on_done is not None:
            self._tell(out.on_done, None, out.error)
