"""The contract between gkafka and whatever runs its workers: OS threads, greenlets, or a handler of the user's own.

A handler is the only source of concurrency, of sockets and of clocks. Everything above asks it for workers, primitives,
streams and the time; nothing above imports threading, gevent or socket. Deadlines are absolute seconds of
`handler.monotonic()`; timeouts (`wait(timeout)`) are relative seconds, None meaning "until it happens".
"""

from __future__ import annotations

import abc
import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from random import Random
from types import TracebackType
from typing import Any, ClassVar, Protocol, TypeVar

from gkafka.exceptions import ForkedClientError, KafkaTimeoutError
from gkafka.guarding import guarded
from gkafka.handlers import primitives as p
from gkafka.handlers.lasting import LastingWorker
from gkafka.logs import get_logger
from gkafka.oneprocess import OfOneProcess

__all__ = [
    "Address",
    "Buffer",
    "Handler",
    "StallMeter",
    "Stream",
    "Worker",
]

log = get_logger(__name__)
T = TypeVar("T")
Buffer = bytes | bytearray | memoryview
Address = tuple[int, tuple[Any, ...]]  # what getaddrinfo gives and create_connection takes: (family, sockaddr)


# -- workers -----------------------------------------------------------------------------------------------------------
class Worker(abc.ABC):
    """A function that runs beside the caller.

    Whatever ends it other than a return goes to `on_failure(error)`, or is logged with its traceback: nothing is lost in silence.
    stop_requested: set by stop(); the function's owner looks at it, nothing ends a worker from outside. held_by: id of the worker that this one
    cannot end before (`Handler.current_id`).
    """

    held_by: int | None = None

    def __init__(self, name: str, run: Callable[[], object], on_failure: Callable[[BaseException], object] | None) -> None:
        self.name = name
        self.stop_requested = False
        self._run = run
        self._on_failure = on_failure

    @abc.abstractmethod
    def join(self, timeout: float | None = None) -> bool:
        """Wait for its end. True if it has ended; False after `timeout` seconds, and at once if a worker joins itself."""

    @abc.abstractmethod
    def is_alive(self) -> bool: ...

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} {'running' if self.is_alive() else 'ended'}>"

    def _is_quiet(self, error: BaseException) -> bool:
        """Is this end no failure? (In a forked child the worker is a copy that has to go.)"""
        return isinstance(error, ForkedClientError)

    def _body(self) -> BaseException | None:
        """Run the function; the error that ended it has been reported when this returns."""
        try:
            self._run()
        except BaseException as error:
            self._report(error)
            return error
        return None

    def _report(self, error: BaseException) -> None:
        if self._on_failure is None:
            level = logging.DEBUG if self._is_quiet(error) else logging.ERROR
            log.log(level, "worker %r ended by %s", self.name, type(error).__name__, exc_info=error)
            return
        try:
            self._on_failure(error)
        except Exception:
            log.error("worker %r ended by %s", self.name, type(error).__name__, exc_info=error)
            log.exception("its on_failure hook failed too")


# -- streams -----------------------------------------------------------------------------------------------------------
class Stream(abc.ABC):
    """A connected byte stream: one worker may read and another write at the same time, not more.

    peer: "host:port" of the other side. Errors are SocketDisconnectedError (the connection is gone, whoever ended it) and
    KafkaTimeoutError (the deadline passed); after either in send_all() the stream is good for nothing but close().
    """

    peer: str

    @abc.abstractmethod
    def recv_into(self, view: memoryview | bytearray, deadline: float | None = None) -> int:
        """Wait for bytes and put them at the start of view: how many; 0 when the peer will send no more."""

    def recv_frame(self, stage: memoryview, buffer: bytearray, deadline: float) -> tuple[int, int]:
        """recv_into(stage) at the beginning of a frame, whose size is its first four bytes: how many are in the stage now, and how many of that frame,
        without its size, in `buffer`. 0 of them unless the stream can wait for a frame that is larger than the stage; then the first ones are in both.
        """
        return self.recv_into(stage, deadline), 0

    def receive_ready(self, view: memoryview) -> int | None:
        """What has come already, put at the start of view: how many bytes; 0 when the peer will send no more, None if none have. Never waits."""
        try:
            return self.recv_into(view, 0.0)
        except KafkaTimeoutError:
            return None

    is_drained = False
    """Has all been received that had come? False: nobody knows."""

    def receive_now(self, view: memoryview | bytearray) -> int:
        """What has come already, put at the start of view: how many bytes, 0 if none have. Never waits, and may be called beside a worker that reads."""
        return 0

    def look_again(self) -> None:  # noqa: B027  # a thread that waits in the kernel cannot be told
        """Who waits for bytes gets KafkaTimeoutError now: it is to come back sooner than it meant to."""

    @abc.abstractmethod
    def try_send(self, buffers: Sequence[Buffer]) -> int:
        """Hand over what the kernel takes at once: how many bytes, 0 if it takes none. Never waits; one system call on TCP.

        The caller sends the rest later, from exactly that byte on (a TLS record that is half sent depends on it).
        """

    @abc.abstractmethod
    def send_all(self, buffers: Sequence[Buffer], deadline: float | None = None) -> None:
        """Send every byte, waiting for room as needed."""

    @abc.abstractmethod
    def shutdown(self) -> None:
        """End both directions; a worker inside recv_into() gets 0. The descriptor stays until close()."""

    @abc.abstractmethod
    def close(self) -> None:
        """Close; idempotent, from any worker. Workers inside the stream end promptly with SocketDisconnectedError.

        In a forked child only the descriptor is closed: the connection is the parent's.
        """

    @abc.abstractmethod
    def fileno(self) -> int:
        """The descriptor, -1 once closed."""

    @property
    @abc.abstractmethod
    def closed(self) -> bool: ...

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.peer}{' closed' if self.closed else ''}>"


class StallMeter(Protocol):
    """How long an event loop was kept from turning."""

    def stats(self) -> dict[str, float]:
        """hub_stall_ms: of the last minute or two; hub_stall_longest_ms: of all; hub_stalls: how many above a second."""
        ...

    def stop(self) -> None:
        """Measure no more."""
        ...


# -- the handler -------------------------------------------------------------------------------------------------------
class Handler(OfOneProcess, abc.ABC):
    """Runs the workers of one client, and makes everything they wait on. Cheap to make: one for each client.

    It remembers the process that made it; check_fork() is asked on every public call of a client and by every worker that wakes.
    """

    name: ClassVar[str]
    cooperative: ClassVar[bool]
    """Its workers take turns on one thread: whoever works without waiting must let the others run."""
    QueueEmptyError: ClassVar[type[Exception]]
    QueueFullError: ClassVar[type[Exception]]

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._random = Random()
        self._workers: set[Worker] = set()
        self._stopped = False

    # workers
    @abc.abstractmethod
    def spawn(
        self,
        target: Callable[..., object],
        *args: Any,
        _name: str | None = None,
        _on_failure: Callable[[BaseException], object] | None = None,
        **kwargs: Any,
    ) -> Worker:
        """Run target(*args, **kwargs) in a worker called _name.

        _on_failure(error) gets whatever ends the target other than a return, KeyboardInterrupt and the like included.
        Raises ClientClosedError after stop(), ForkedClientError in a child process.
        """
        raise NotImplementedError  # as documented of the base class

    def spawn_lasting(
        self, target: Callable[..., object], *args: Any, _name: str, _on_failure: Callable[[BaseException], object] | None = None
    ) -> LastingWorker:
        """The same with a worker that is called again after what a signal handler raised in it, which goes to the program: _on_failure is not told."""
        return LastingWorker(self, partial(target, *args), _name, _on_failure)

    # primitives
    @staticmethod
    @abc.abstractmethod
    def Event(*args: Any, **kwargs: Any) -> p.Event:
        """A new Event."""

    @staticmethod
    @abc.abstractmethod
    def Lock() -> p.Lock:
        """A new Lock."""

    def Mutex(self) -> p.Lock:
        """A new lock for `with` around a few statements in which nobody waits, yields or calls user code: what gkafka's own state is kept by.

        Taking and releasing it is one step each, so what a signal handler raises never leaves it taken.
        """
        return self.Lock()

    @staticmethod
    @abc.abstractmethod
    def RLock(*args: Any, **kwargs: Any) -> p.Lock:
        """A new lock that its holder may take again."""

    @staticmethod
    @abc.abstractmethod
    def Semaphore(value: int = 1) -> p.Semaphore:
        """A new Semaphore with `value` permits."""

    @staticmethod
    @abc.abstractmethod
    def parker() -> p.Parker:
        """A new Parker for the calling worker: what a Future waits with."""

    @staticmethod
    def local() -> Any:
        """An object whose attributes each worker has for itself: those of threads, unless the handler says otherwise."""
        return threading.local()

    Queue: ClassVar[type[Any]]

    def Future(self) -> p.Future:
        """A new Future."""
        return p.Future(self.parker)

    # time, chance, identity
    @staticmethod
    @abc.abstractmethod
    def sleep(seconds: float = 0) -> None: ...

    @abc.abstractmethod
    def yield_now(self) -> None:
        """Let everything else that is ready run, timers and sockets included. Nothing to do on threads."""

    @abc.abstractmethod
    def checkpoint(self) -> None:
        """yield_now() if gkafka's workers have used up their share of time; cheap, for use inside loops of work."""

    monotonic = staticmethod(time.monotonic)
    """Seconds of a clock that never goes back: what deadlines are made of."""

    @staticmethod
    def time() -> float:
        """Wall clock, seconds since the epoch."""
        return time.time()

    def looks_at(self, now: float, seconds: float) -> float:
        """When a worker that has nothing to do looks around again: some `seconds` from now."""
        return now + seconds

    def random(self) -> Random:
        """This handler's own source of chance."""
        return self._random

    @abc.abstractmethod
    def current_id(self) -> int:
        """Identifies the calling thread or greenlet among those alive."""

    def interruptible(self) -> bool:
        """Whether a signal handler's exception may end the calling worker anywhere. No one's, unless the handler says otherwise."""
        return False

    def interruption(self, error: BaseException) -> BaseException | None:
        """What a signal handler raised in the calling worker, if this error is that or was made of it: then what was under way has not failed, it
        was ended from outside."""
        return None

    def interrupted(self, error: BaseException) -> bool:
        """Is there such an interruption?"""
        return self.interruption(error) is not None

    def from_outside(self, error: BaseException) -> bool:
        """Return whether this ended a worker of gkafka's from outside.

        With greenlets a signal handler raised it. On OS threads it is no Exception: gkafka raises
        nothing else there, but whoever has the id of a thread may (`PyThreadState_SetAsyncExc`).
        """
        return self.interrupted(error) if self.cooperative else not isinstance(error, Exception)

    def hands_on(self, error: BaseException) -> bool:
        """What ended a function of the application's that the caller, a worker, had called: was it meant for the program, as what a signal handler raises or
        sys.exit() is, and is now handed on to who can end that? Then the function is done with, however far it came. False also where a signal came
        before it began. What a thread raises ends no program."""
        return False

    def call_back(self, function: Callable[..., object], *args: object, failed: Callable[[BaseException], object]) -> None:
        """Call a function of the application's, and failed(error) with what it raises.

        What hands_on() takes is no failure. The exception of a signal handler that came before the
        function began goes on: whoever takes over calls the function again.
        """

        def ended(error: BaseException) -> bool:
            if self.hands_on(error):
                return False
            if self.interrupted(error):
                return True
            failed(error)
            return False

        guarded(function, *args, failed=ended)

    @abc.abstractmethod
    def in_owner(self) -> bool:
        """Whether the calling thread is the one whose event loop runs this handler's workers (always, on threads)."""

    @abc.abstractmethod
    def call_soon_threadsafe(self, fn: Callable[..., object], *args: Any) -> None:
        """Call fn(*args) in the owner thread, soon. fn must not wait. On threads it is called at once. Its errors are logged."""

    def slow_when_ended(self, appender: Any) -> None:  # threads do not end before those who use them
        """Have `appender.fast` become False when nothing can run here any more: the slow way of a record then refuses it. Kept weakly."""

    @abc.abstractmethod
    def offload(self, fn: Callable[..., T], *args: Any) -> T:
        """fn(*args), its result or its error; other workers run meanwhile. For work of >= 0.5 ms that releases the GIL."""

    def stall_meter(self) -> StallMeter | None:
        """One that measures from now on; None without an event loop of which greenlets could keep each other."""
        return None

    def renewed(self) -> Handler:
        """Another one of the same kind, for a process that was forked from the one that made this."""
        return type(self)()

    @property
    def was_forked(self) -> bool:
        """Is this the child of the process that made it?"""
        return os.getpid() != self._pid

    def check_fork(self) -> None:
        """Raises ForkedClientError in any process but the one that made this handler."""
        pid = os.getpid()
        if pid != self._pid:
            raise ForkedClientError(f"created in pid {self._pid}, used in pid {pid}: create the client after the fork")

    def ending(self) -> AbstractContextManager[object]:
        """While the caller is in here it ends what there is, and check_fork() refuses it nothing but a fork."""
        return nullcontext()

    def check_may_wait(self) -> None:
        """Raises ReentrantCallError where the caller cannot wait at all. Nowhere, unless the handler says otherwise."""

    def alarm(self) -> p.Alarm | None:
        """What a worker sleeps on that reads its connections itself. None: they have readers of their own here, and it sleeps on an Event."""
        return None

    def hand_over(self, wake: p.Event) -> None:
        """Let other workers run: the one that sleeps on `wake`, and those whose system call has returned.

        For a caller that has worked for long without a wait. Does nothing if no worker is known to
        want a turn.
        """

    # network
    @abc.abstractmethod
    def getaddrinfo(self, host: str, port: int, deadline: float | None = None) -> list[Address]:
        """Every address of a host, in the resolver's order, without doubles. A literal IP address asks no resolver.

        Raises ConnectionFailedError naming the host and the reason, KafkaTimeoutError if the deadline passes.
        """

    @abc.abstractmethod
    def create_connection(
        self,
        address: Address,
        deadline: float | None = None,
        *,
        source_address: tuple[str, int] | None = None,
        sockopts: Sequence[tuple[int, int, int | bytes]] = (),
        keepalive_idle_s: float | None = None,
        made: Callable[[Stream], object] | None = None,
    ) -> Stream:
        """A TCP connection to one address, TCP_NODELAY set.

        keepalive_idle_s: silence before TCP keepalive probes, None for none. sockopts: (level, option, value), set before connecting. made: given the
        stream before it is connected: who closes it ends the wait.
        Raises OSError as the system gave it, KafkaTimeoutError if the deadline passes.
        """

    # life
    @abc.abstractmethod
    def start(self) -> None:
        """Make ready for work; idempotent, done by the first call that needs it. Raises ConfigurationError if
        the process was monkey-patched after this handler was made, ForkedClientError in a child process."""

    def stop(self, deadline: float | None = None) -> bool:
        """Ask every worker to stop and wait for them until the deadline (5 s if None): True if all have ended.

        Idempotent. A worker may call it: it does not wait for itself, nor for those that it holds. Afterwards nothing can be spawned. Whoever shares a handler
        among clients stops it after the last of them.
        """
        self._stopped = True
        if deadline is None:
            deadline = self.monotonic() + 5.0
        workers = list(self._workers)
        for worker in workers:
            worker.stop_requested = True
        if not self.was_forked:  # in a child these are copies, or do not run at all
            me = self.current_id()
            for worker in workers:
                worker.join(0.0 if worker.held_by == me else max(0.0, deadline - self.monotonic()))
        self._release(deadline)
        return not any(worker.is_alive() for worker in workers)

    def _release(self, deadline: float) -> None:  # threads have nothing to give back
        """Give back what start() and later calls took; what cannot be had by the deadline is left to end by itself."""

    def workers(self) -> list[Worker]:
        """The workers that have not ended."""
        return list(self._workers)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {len(self._workers)} workers{' stopped' if self._stopped else ''}>"
