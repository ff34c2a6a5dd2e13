"""GEventHandler: workers are greenlets of one hub; everything comes from gevent.*, so it works unpatched as well as patched.

The module is imported when a GEventHandler is first asked for. What it takes from gevent are the same objects whether the
process is patched before, after or not at all.
"""

from __future__ import annotations

import _socket
import contextlib
import os
import queue
import socket
import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from time import monotonic
from typing import Any, ClassVar, TypeVar

from gkafka.exceptions import (
    ClientClosedError,
    ConfigurationError,
    HandlerThreadError,
    KafkaTimeoutError,
    ReentrantCallError,
    SocketDisconnectedError,
    has_begun,
)
from gkafka.guarding import guarded
from gkafka.handlers import primitives as p
from gkafka.handlers import sockets
from gkafka.handlers.base import Address, Buffer, Handler, Stream, Worker, log
from gkafka.handlers.primitives import SLICE_S
from gkafka.pages import install

if not getattr(sys, "_is_gil_enabled", lambda: True)():
    raise ConfigurationError("gevent does not support Python without the GIL (importing it would turn the GIL on): use handler='threading'")
try:
    import gevent
    from gevent._hub_local import get_hub_if_exists
    from gevent.hub import Waiter
    from gevent.local import local as GreenletLocal
    from gevent.monkey import get_original
    from gevent.threadpool import ThreadPool
except ImportError as exc:
    raise ConfigurationError(f"handler='gevent' needs the package gevent: {install('gevent')}") from exc

from gkafka.handlers.hubs import (
    IN_THE_LOOP,
    GreenletEvent,
    GreenletLock,
    GreenletMutex,
    GreenletParker,
    GreenletQueue,
    GreenletRLock,
    GreenletSemaphore,
    Turnstile,
    check_same_process,
    goes_to_main,
    interruption,
    shielded,
)
from gkafka.handlers.stallmeter import HubStallMeter

__all__ = ["GEventHandler"]

T = TypeVar("T")
_threads = get_original("_thread", "_local")()  # of real threads, in a patched process too
READ, WRITE = 1, 2
SEND_TURN = 1 << 19  # bytes for one system call: the kernel would copy many megabytes in one go, with the hub waiting
POOL_THREADS = 2  # codec jobs at once; more threads only take the GIL from the hub
STANDSTILL_S = 60.0  # longer than an interpreter takes to go down
NEAR_S = 0.02  # a moment to look around that is as near as this is past
LOOK_AGAIN = object()
"""What a waiter is given by Stream.look_again()."""
POOL_IDLE_S = 30  # then its threads end: a client that was dropped without close() leaves none behind
POOL_END_S = 0.1  # what they get at least to end when the handler stops


HUB_ENDED = (
    "the thread of this client's hub has ended, or the hub was destroyed: nothing can run there; make a client in a thread that lives"
)


class GreenletWorker(Worker):
    """A greenlet. Its `ended` flag lets any thread join it.

    A signal handler's exception may come before its first step, or after its last.
    """

    def __init__(
        self,
        name: str,
        run: Callable[[], object],
        on_failure: Callable[[BaseException], object] | None,
        workers: set[Worker],
        hub: Any,
    ) -> None:
        super().__init__(name, run, on_failure)
        self._workers = workers
        self._hub = hub
        self._ended = GreenletEvent()
        self._greenlet: Any = None
        self._untold: BaseException | None = None  # what ended it
        self._told = False

    def launch(self) -> None:
        """In the owner thread: a Greenlet belongs to the hub of the thread that makes it. Called again if it was hit there."""
        if self._greenlet is None:
            greenlet = gevent.Greenlet(shielded(self._main, self._was_hit), None)
            greenlet.name = self.name
            greenlet.rawlink(shielded(self._on_end))  # one that is killed before its first switch never runs _main: its end is seen here
            self._greenlet = greenlet
        self._greenlet.start()
        self._workers.add(self)

    def _main(self) -> None:
        self._workers.add(self)  # once more: who launched it may have been interrupted
        error = self._body()
        self._told = True
        if error is not None:
            goes_to_main(self._hub, error)

    def _was_hit(self, error: BaseException) -> None:
        if self._untold is None:
            self._untold = error

    def _report(self, error: BaseException) -> None:
        """What a signal handler raises here goes on, and the error is told once more as the greenlet ends."""
        self._untold = error
        if self._on_failure is None:
            super()._report(error)
        else:
            try:
                self._on_failure(error)
            except Exception as exc:
                if interruption(exc) is not None:
                    raise
                log.error("worker %r ended by %s", self.name, type(error).__name__, exc_info=error)
                log.exception("its on_failure hook failed too")
        self._told = True

    def _on_end(self) -> None:
        if not self._told:
            killed = self._greenlet.value if isinstance(self._greenlet.value, gevent.GreenletExit) else None
            error = self._untold or self._greenlet.exception or killed
            if error is not None:
                self._report(error)
        self._told, self._untold = True, None
        self._workers.discard(self)
        self._ended.set()

    def _is_quiet(self, error: BaseException) -> bool:
        return super()._is_quiet(error) or interruption(error) is not None  # what signals raise goes on to the main greenlet

    def join(self, timeout: float | None = None) -> bool:
        me = gevent.getcurrent()
        if me is self._greenlet or me is self._hub:  # a callback of the loop cannot wait
            return self._ended.is_set()
        return self._ended.wait(timeout)

    def is_alive(self) -> bool:
        return not self._ended.is_set()


class GreenletStream(Stream):
    """A non-blocking socket and two watchers of the hub. First the system call, and the hub only if that would block.

    It is the C socket under its own name, which gevent's is a wrapper of and monkey-patching does not touch.
    """

    def __init__(self, handler: GEventHandler, sock: Any, peer: str) -> None:
        self.peer = peer
        self._handler = handler
        self._hub = handler.hub
        self._turnstile = handler.turnstile
        self._pid = os.getpid()
        self._sock = sock
        self._recv_into = sock.recv_into
        fd = sock.fileno()
        self._watchers = {READ: self._hub.loop.io(fd, READ), WRITE: self._hub.loop.io(fd, WRITE)}
        self._waiting: dict[int, Any] = {}  # READ, WRITE -> Waiter
        self._closed = False

    def recv_into(self, view: memoryview | bytearray, deadline: float | None = None) -> int:
        # A peer that sends faster than we read never makes recv() wait, so the other greenlets get their time here.
        self._turnstile.checkpoint(self._hub)
        try:
            while True:
                if self._closed:
                    raise self._closed_here()
                try:
                    return int(self._recv_into(view))
                except BlockingIOError:
                    self.wait(READ, deadline, "answer")
        except (SocketDisconnectedError, KafkaTimeoutError):
            raise
        except OSError as exc:
            raise self._error(exc) from exc

    def receive_now(self, view: memoryview | bytearray) -> int:
        try:
            return 0 if self._closed else int(self._recv_into(view))
        except OSError:
            return 0

    def try_send(self, buffers: Sequence[Buffer]) -> int:
        if self._closed:
            raise self._closed_here()
        try:
            return sockets.send_once(self._sock, buffers)
        except OSError as exc:
            raise self._error(exc) from exc

    def send_all(self, buffers: Sequence[Buffer], deadline: float | None = None) -> None:
        views = sockets.flatten(buffers)
        while views:
            sent = self.try_send(sockets.head(views, SEND_TURN))
            if sent:
                views = sockets.drop(views, sent)
                self._turnstile.checkpoint(self._hub)
            else:
                self.wait(WRITE, deadline, "room to send")

    def look_again(self) -> None:
        waiter = self._waiting.get(READ)
        if waiter is not None and self._handler.in_owner():
            self._hub.loop.run_callback(waiter.switch, LOOK_AGAIN)

    def wait(self, direction: int, deadline: float | None, what: str) -> None:
        """Until the socket is ready. Raises KafkaTimeoutError, SocketDisconnectedError if it is closed, ForkedClientError in a child."""
        if not self._handler.in_owner():
            raise HandlerThreadError(f"{self.peer}: a stream of a gevent client is used from another thread than its hub's")
        if direction in self._waiting:
            raise RuntimeError(f"{self.peer}: two workers wait for the same direction of one stream")
        watcher = self._watchers[direction]
        waiter = self._waiting[direction] = Waiter(self._hub)
        watcher.start(waiter.switch, True)
        try:
            while not self._closed:
                left = SLICE_S if deadline is None else deadline - monotonic()
                if left <= 0:
                    raise KafkaTimeoutError(f"{self.peer}: no {what} by the deadline")
                with self._hub.loop.timer(min(left, SLICE_S)) as timer:
                    timer.start(waiter.switch, False)
                    ready = waiter.get()
                check_same_process(self._pid)
                if ready is LOOK_AGAIN:
                    raise KafkaTimeoutError(f"{self.peer}: no {what} until now")
                if ready:
                    return
            raise self._closed_here()
        finally:
            del self._waiting[direction]
            watcher.stop()

    def shutdown(self) -> None:
        try:
            self._sock.shutdown(_socket.SHUT_RDWR)
        except OSError as exc:
            if self._sock.fileno() >= 0 and not isinstance(exc, (ConnectionError, BrokenPipeError)):
                log.debug("%s: shutdown: %s", self.peer, exc)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._handler.in_owner() or os.getpid() != self._pid:
            self._close()
        else:
            self._handler.call_soon_threadsafe(self._close)

    def _close(self) -> None:
        for direction, watcher in self._watchers.items():
            watcher.stop()
            watcher.close()
            if direction in self._waiting:
                self._hub.loop.run_callback(self._waiting[direction].switch, False)
        if os.getpid() == self._pid:
            with contextlib.suppress(OSError):  # the peer was faster
                self._sock.shutdown(_socket.SHUT_RDWR)
        self._sock.close()

    def fileno(self) -> int:
        return -1 if self._closed else int(self._sock.fileno())

    @property
    def closed(self) -> bool:
        return self._closed

    def _closed_here(self) -> SocketDisconnectedError:
        return SocketDisconnectedError(f"{self.peer}: the connection was closed by this client")

    def _error(self, exc: OSError) -> SocketDisconnectedError:
        return self._closed_here() if self._closed else SocketDisconnectedError(f"{self.peer}: {exc.strerror or exc}")


class OwnThread:
    """Lives as long as the thread that made it: only that thread holds it."""

    __slots__ = ("__weakref__",)

    @classmethod
    def of_this_thread(cls) -> OwnThread:
        if not hasattr(_threads, "here"):
            _threads.here = cls()
        return _threads.here  # type: ignore[no-any-return]  # what a threading.local holds has no type


class GEventHandler(Handler):
    """Does its work in greenlets of the hub of the thread that makes it. Nothing has to be monkey-patched.

    The primitives can be used on the class as well: GEventHandler.Queue(). Workers, look-ups, connections and streams belong to the
    hub's thread; another thread may spawn, wait for events and futures, put, get, and call_soon_threadsafe(). What
    cannot be served there raises HandlerThreadError.
    """

    name = "gevent"
    cooperative = True
    QueueEmptyError = queue.Empty
    QueueFullError = queue.Full
    Queue: ClassVar[type[Any]] = GreenletQueue

    def __init__(self) -> None:
        super().__init__()
        self.hub = gevent.get_hub()
        self.turnstile = Turnstile.of(self.hub)
        self._fast: weakref.WeakSet[Any] = weakref.WeakSet()
        self._owner = weakref.ref(OwnThread.of_this_thread(), partial(_slow_down, self._fast))
        self._pool: Any = None

    # workers
    def spawn(
        self,
        target: Callable[..., object],
        *args: Any,
        _name: str | None = None,
        _on_failure: Callable[[BaseException], object] | None = None,
        **kwargs: Any,
    ) -> Worker:
        self.start()
        if self._stopped:
            raise ClientClosedError("the handler was stopped: no worker can be started; give the client another one, or its name")
        name = _name or str(getattr(target, "__name__", type(target).__name__))
        worker = GreenletWorker(name, lambda: target(*args, **kwargs), _on_failure, self._workers, self.hub)
        if self.in_owner():
            worker.launch()
        else:
            self._workers.add(worker)
            self.call_soon_threadsafe(worker.launch)
        return worker

    # primitives
    @staticmethod
    def Event(*args: Any, **kwargs: Any) -> p.Event:
        return GreenletEvent(*args, **kwargs)

    @staticmethod
    def Lock() -> p.Lock:
        return GreenletLock()

    def Mutex(self) -> p.Lock:
        # Native, in a patched process too. Greenlets never wait for it: none switches while it holds one. Only another OS thread may, for moments.
        return GreenletMutex()

    @staticmethod
    def RLock(*args: Any, **kwargs: Any) -> p.Lock:
        return GreenletRLock(*args, **kwargs)

    @staticmethod
    def Semaphore(value: int = 1) -> p.Semaphore:
        return GreenletSemaphore(value)

    @staticmethod
    def parker() -> GreenletParker:
        return GreenletParker()

    @staticmethod
    def local() -> Any:
        return GreenletLocal()

    # time and identity
    @staticmethod
    def sleep(seconds: float = 0) -> None:
        hub = get_hub_if_exists()
        if hub is None:  # a thread without greenlets
            get_original("time", "sleep")(seconds)
        elif seconds <= 0:
            Turnstile.of(hub).wait(hub)
        else:
            GreenletParker().park(monotonic() + seconds)

    def yield_now(self) -> None:
        self.turnstile.wait(self.hub)

    def checkpoint(self) -> None:
        self.turnstile.checkpoint(self.hub)

    def hand_over(self, wake: p.Event) -> None:
        self.yield_now()

    def looks_at(self, now: float, seconds: float) -> float:
        """All at the same moments, if it is a second or more: a hub that turns for one of them turns for all."""
        if seconds < 1:
            return now + seconds
        period = int(seconds)
        return (now + NEAR_S) // period * period + period

    def current_id(self) -> int:
        return id(gevent.getcurrent())

    def interruption(self, error: BaseException) -> BaseException | None:
        return interruption(error)

    def hands_on(self, error: BaseException) -> bool:
        return has_begun(error) and goes_to_main(self.hub, error)

    def in_owner(self) -> bool:
        return get_hub_if_exists() is self.hub

    def call_soon_threadsafe(self, fn: Callable[..., object], *args: Any) -> None:
        self._check_hub()
        try:
            self.hub.loop.run_callback_threadsafe(shielded(partial(_logged, fn, args)), None)
        except ValueError as exc:  # destroyed just now
            raise HandlerThreadError(HUB_ENDED) from exc

    def slow_when_ended(self, appender: Any) -> None:
        self._fast.add(appender)

    def _check_hub(self) -> None:
        """Raises HandlerThreadError if nothing can run in the hub any more."""
        if self._owner() is None or _is_destroyed(self.hub.loop):
            raise HandlerThreadError(HUB_ENDED)

    def check_fork(self) -> None:
        """Also raises HandlerThreadError where the hub's thread has ended, or the hub was destroyed: nobody would ever answer."""
        super().check_fork()
        self._check_hub()

    def check_may_wait(self) -> None:
        """A callback of the loop, or a signal handler that the loop calls, cannot."""
        if gevent.getcurrent() is self.hub:
            raise ReentrantCallError(IN_THE_LOOP)

    @staticmethod
    def stand_still(tell: Callable[[int], object], ready: Callable[[], object]) -> None:
        """For the loop of another thread, when the process ends: it turns no more. tell: given the system's number for the thread. ready: called when it is
        about to.
        """
        lock = get_original("_thread", "allocate_lock")()  # native: the whole thread waits
        lock.acquire()
        tell(threading.get_native_id())
        ready()
        lock.acquire(True, STANDSTILL_S)

    def offload(self, fn: Callable[..., T], *args: Any) -> T:
        # Another thread is off the hub already; after stop() the pool is gone.
        if self._stopped or not self.in_owner() or gevent.getcurrent() is self.hub:
            return fn(*args)
        if self._pool is None:
            self._pool = ThreadPool(POOL_THREADS, hub=self.hub, idle_task_timeout=POOL_IDLE_S)
        errors: list[BaseException] = []  # gevent prints one that is raised there
        value = self._pool.spawn(guarded, fn, *args, failed=errors.append).get()
        if errors:
            raise errors.pop()
        return value  # type: ignore[no-any-return]  # gevent's results have no type

    def stall_meter(self) -> HubStallMeter:
        meter = HubStallMeter(self)
        meter.start()
        return meter

    # network
    def getaddrinfo(self, host: str, port: int, deadline: float | None = None) -> list[Address]:
        self.start()
        found = sockets.numeric(host, port)
        if found is not None:
            return found
        self._must_own("resolve a host name")
        answers: list[list[Address] | Exception] = []
        answered = GreenletEvent()

        def ask() -> None:
            try:
                answers.append(sockets.lookup(self.hub.resolver.getaddrinfo, host, port))
            except Exception as exc:
                if interruption(exc) is not None:
                    raise
                answers.append(exc)
            answered.set()

        asking = gevent.spawn(shielded(ask), None)
        try:
            if not answered.wait(None if deadline is None else max(0.0, deadline - monotonic())):
                raise KafkaTimeoutError(f"{host}:{port}: the host name was not resolved by the deadline")
        finally:
            asking.kill(block=False)
        if isinstance(answers[0], Exception):
            raise answers[0]
        return answers[0]

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
        self.start()
        self._must_own("connect")
        peer = sockets.peer_name(address)
        sock = _socket.socket(address[0], socket.SOCK_STREAM)
        stream: GreenletStream | None = None
        try:
            connected = sockets.begin_connect(sock, address, source_address, sockopts, keepalive_idle_s)
            stream = GreenletStream(self, sock, peer)
            if made is not None:
                made(stream)
            if not connected:
                stream.wait(WRITE, deadline, "connection")
            sockets.end_connect(sock)
            return stream
        except BaseException:
            (stream or sock).close()
            raise

    def _must_own(self, what: str) -> None:
        if not self.in_owner():
            raise HandlerThreadError(
                f"a gevent client cannot {what} outside the thread of its hub: use it there, or make a client in this thread"
            )

    # life
    def start(self) -> None:
        self.check_fork()

    def _release(self, deadline: float) -> None:
        pool, self._pool = self._pool, None
        if pool is not None and self.in_owner():
            # A thread that a library keeps, as Kerberos does while its key server is silent, ends when that lets it go and POOL_IDLE_S are over.
            with gevent.Timeout(max(POOL_END_S, deadline - self.monotonic()), False):
                pool.kill()


def _slow_down(appenders: weakref.WeakSet[Any], _: object) -> None:
    """In a thread that is about to end, whatever it was at: nothing may wait here, or fail."""
    for appender in list(appenders):
        appender.fast = False


def _is_destroyed(loop: Any) -> bool:
    try:
        return loop is None or not loop.ptr
    except ValueError:
        return True


def _logged(fn: Callable[..., object], args: tuple[Any, ...]) -> None:
    try:
        fn(*args)
    except Exception as exc:
        if interruption(exc) is not None:
            raise
        log.exception("a call failed: %r", fn)
