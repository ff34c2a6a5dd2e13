"""ThreadingHandler: workers are daemon OS threads, waits are the operating system's.

Nothing of a module that gevent may patch is kept from the import: a client that is made in a patched process has none of OS threads. What a handler
took when it was made it keeps: if the process is patched behind it, its workers still end what they were given.
"""

from __future__ import annotations

import contextlib
import errno
import os
import queue
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from gkafka.exceptions import ClientClosedError, KafkaTimeoutError, SocketDisconnectedError
from gkafka.guarding import guarded
from gkafka.handlers import primitives as p
from gkafka.handlers import sockets
from gkafka.handlers.base import Address, Buffer, Handler, Stream, Worker, log
from gkafka.handlers.mutexes import Mutex
from gkafka.handlers.patching import HUB, MONKEY, PatchState, gevent_is_running
from gkafka.handlers.primitives import SLICE_S
from gkafka.handlers.readiness import Readiness, WaitingFor, by_kernel, by_selector, check_selector
from gkafka.handlers.signals import raised_by_handler
from gkafka.undoing import Undoing

if TYPE_CHECKING:
    from selectors import BaseSelector

__all__ = ["ThreadingHandler"]

# Compiled; without them a frame is received as it comes, and sent as Python sends, and the interpreter's lock is handed over when its time is over.
_syscalls: Any = None
if os.environ.get("GKAFKA_IMPL") != "python":
    with contextlib.suppress(ImportError):
        from gkafka.handlers import _syscalls

T = TypeVar("T")
SMALL_ANSWER = 4096  # bytes
DONT_WAIT = getattr(socket, "MSG_DONTWAIT", 0)  # without it (Windows) sockets are non-blocking
KERNEL_WAIT_S = 0.98
"""So long recv() itself waits for bytes: a poll() before it would be a second wait for the interpreter's lock, at the worst moment."""
SOON_S = 0.02
"""What is left of a second after that is not waited for: a worker that has nothing to do would wake up twice as often."""
RECEIVE_TIMEOUT = struct.pack("@ll", 0, int(KERNEL_WAIT_S * 1e6))


class ThreadParker:
    """A lock that is taken until wake() gives it back. new_lock: what makes it."""

    __slots__ = ("_lock",)

    def __init__(self, new_lock: Callable[[], Any] | None = None) -> None:
        self._lock = (new_lock or threading.Lock)()
        self._lock.acquire()

    def park(self, deadline: float | None) -> bool:
        while True:
            left = SLICE_S if deadline is None else deadline - time.monotonic()
            # Slices, so that Ctrl-C ends a wait on every platform.
            if self._lock.acquire(timeout=min(SLICE_S, max(0.0, left))):
                return True
            if left <= SLICE_S and deadline is not None:
                return False

    def wake(self, _: object = None) -> None:
        self._lock.release()


class ThreadEvent:
    """A threading.Event that stays whole when a signal handler's exception ends any of its calls.

    The standard library's has a lock of its own, which such an exception may leave taken: then everybody who sets, clears or waits hangs.
    new_lock: what makes the locks of those who wait.
    """

    __slots__ = ("__weakref__", "_flag", "_new_lock", "_waiters")

    def __init__(self, new_lock: Callable[[], Any] | None = None) -> None:
        self._flag = False
        self._new_lock = new_lock or threading.Lock
        self._waiters: list[Any] = []

    def is_set(self) -> bool:
        return self._flag

    def set(self) -> None:
        self._flag = True
        for waiter in list(self._waiters):
            try:  # noqa: SIM105  # contextlib.suppress takes longer than all the rest
                waiter.release()
            except RuntimeError:  # another one woke it
                pass

    def clear(self) -> None:
        self._flag = False

    def wait(self, timeout: float | None = None) -> bool:
        if self._flag:
            return True
        waiter = self._new_lock()
        waiter.acquire()
        try:
            self._waiters.append(waiter)
            # Whoever sets the flag after this look finds the waiter in the list.
            return self._flag or waiter.acquire(timeout=-1 if timeout is None else max(0.0, timeout))
        finally:
            with contextlib.suppress(ValueError):
                self._waiters.remove(waiter)


class ThreadWorker(Worker):
    def __init__(
        self,
        name: str,
        run: Callable[[], object],
        on_failure: Callable[[BaseException], object] | None,
        workers: set[Worker],
    ) -> None:
        super().__init__(name, run, on_failure)
        self._workers = workers
        self._get_ident = threading.get_ident
        self._over = ThreadEvent()
        self._thread = threading.Thread(target=self._main, name=name, daemon=True)

    def start(self) -> None:
        self._workers.add(self)
        with Undoing(self._workers.discard, self):
            self._thread.start()

    def _main(self) -> None:
        try:
            self._workers.add(self)  # once more: who started it may have been interrupted after that, and taken it for lost
            self._body()
        finally:
            self._workers.discard(self)
            self._over.set()
            if self._get_ident is not threading.get_ident:  # patched meanwhile
                threading.current_thread()  # `threading` looks for this thread by another id now, and would tell that it is not there

    def join(self, timeout: float | None = None) -> bool:
        # One that is just being started by another worker is not alive yet: stop() of a handler may see it that early.
        if not self._thread.is_alive():
            return self._over.is_set()
        if self.is_caller():
            return False
        if self._get_ident is not threading.get_ident:  # patched meanwhile: the thread's own join() is gevent's now, which makes a hub
            return self._over.wait(timeout)
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def is_caller(self) -> bool:
        """Does it make this call?"""
        return self._thread.ident == self._get_ident()


class ThreadStream(Stream):
    """A socket of which each direction waits for itself: for room to send in poll(), for bytes in poll() or, where the kernel can be told how
    long, in recv() itself.

    close() shuts the connection down first, which wakes whoever waits, and leaves the descriptor to the last worker inside:
    closed under a waiting poll() its number could be another connection's before that poll() returns.
    """

    def __init__(self, sock: Any, peer: str, selected: WaitingFor | None = None) -> None:
        self.peer = peer
        self._sock = sock
        self._recv_into = sock.recv_into
        self._fd = sock.fileno()
        self._pid = os.getpid()
        self._get_ident = threading.get_ident
        self._inside: set[int] = set()  # threads, by id
        self._closing = False
        self._reader: int | None = None  # the thread that waits for bytes, by id
        self._drained = False
        # Not of a socket class that waits in its own way (gevent's, in a patched process).
        self._kernel_waits = selected is None and sys.platform.startswith("linux") and type(sock).__module__ == "socket"
        if self._kernel_waits:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, RECEIVE_TIMEOUT)
            sock.setblocking(True)
        self._waiting_for = selected or by_kernel()
        self._readable: Readiness | None = None
        self._writable: Readiness | None = None

    def end_connect(self, deadline: float | None, connected: bool) -> None:
        """Wait until the socket is connected, or refused. Raises as the other calls do; OSError as the system gave it."""
        self._enter()
        try:
            if not connected:
                self._writable = self._waiting_for(self._fd, True)
                self._wait(self._writable, deadline, "connection")
            sockets.end_connect(self._sock)
        except (SocketDisconnectedError, KafkaTimeoutError):
            raise
        except OSError as exc:
            if self._closing:
                raise self._closed_here() from exc
            raise
        finally:
            self._leave()

    def recv_into(self, view: memoryview | bytearray, deadline: float | None = None) -> int:
        self._enter()
        try:
            self._read_here()
            while True:
                wait = self._drained and self._kernel_waits and (deadline is None or deadline - time.monotonic() >= KERNEL_WAIT_S)
                if self._drained and not wait:
                    if self._readable is None:
                        self._readable = self._waiting_for(self._fd, False)
                    self._wait(self._readable, deadline, "answer")
                    self._drained = False
                if self._closing:
                    raise self._closed_here()
                try:
                    received = int(self._recv_into(view) if wait else self._recv_into(view, 0, DONT_WAIT))
                except BlockingIOError:
                    self._drained = True
                    if wait and deadline is not None and deadline - time.monotonic() <= SOON_S:
                        raise KafkaTimeoutError(f"{self.peer}: no answer by the deadline") from None
                    continue
                if not received and self._closing:
                    raise self._closed_here()
                # After a small answer there is seldom more. To look in vain costs a wait for the interpreter's lock, which whoever was given
                # the answer has by then.
                self._drained = received < SMALL_ANSWER and received < len(view)
                return received
        except (SocketDisconnectedError, KafkaTimeoutError):
            raise
        except OSError as exc:
            raise self._error(exc) from exc
        finally:
            self._read_no_more()

    def recv_frame(self, stage: memoryview, buffer: bytearray, deadline: float) -> tuple[int, int]:
        if _syscalls is None or not self._kernel_waits or deadline - time.monotonic() < KERNEL_WAIT_S:
            return self.recv_into(stage, deadline), 0
        self._enter()
        try:
            self._read_here()
            staged, got = _syscalls.receive_frame(self._fd, stage, buffer, KERNEL_WAIT_S)
            if self._closing and staged <= 0:
                raise self._closed_here()
            self._drained = staged < SMALL_ANSWER or got > 0
            return (staged, got) if staged >= 0 else (self.recv_into(stage, deadline), 0)
        except (SocketDisconnectedError, KafkaTimeoutError):
            raise
        except OSError as exc:
            raise self._error(exc) from exc
        finally:
            self._read_no_more()

    def receive_ready(self, view: memoryview) -> int | None:
        if _syscalls is None or not self._kernel_waits:
            return super().receive_ready(view)
        self._enter()
        try:
            received = int(_syscalls.receive_now(self._fd, view))
            self._drained = received < len(view)
            return received
        except BlockingIOError:
            self._drained = True
            return None
        except OSError as exc:
            raise self._error(exc) from exc
        finally:
            self._leave()

    @property
    def is_drained(self) -> bool:  # type: ignore[override]  # known here
        return self._drained and self._kernel_waits

    def receive_now(self, view: memoryview | bytearray) -> int:
        self._enter()
        try:
            return int(self._recv_into(view, 0, DONT_WAIT))
        except OSError:
            return 0
        finally:
            self._leave()

    def try_send(self, buffers: Sequence[Buffer]) -> int:
        self._enter()
        try:
            if _syscalls is not None and self._kernel_waits:
                return int(_syscalls.send_now(self._fd, list(buffers), sum(map(len, buffers))))
            return sockets.send_once(self._sock, buffers, DONT_WAIT)
        except BlockingIOError:
            return 0
        except (SocketDisconnectedError, KafkaTimeoutError):
            raise
        except OSError as exc:
            raise self._error(exc) from exc
        finally:
            self._leave()

    def send_all(self, buffers: Sequence[Buffer], deadline: float | None = None) -> None:
        views = sockets.flatten(buffers)
        self._enter()
        try:
            while views:
                sent = sockets.send_once(self._sock, views, DONT_WAIT)
                if sent:
                    views = sockets.drop(views, sent)
                    continue
                if self._writable is None:
                    self._writable = self._waiting_for(self._fd, True)
                self._wait(self._writable, deadline, "room to send")
        except (SocketDisconnectedError, KafkaTimeoutError):
            raise
        except OSError as exc:
            raise self._error(exc) from exc
        finally:
            self._leave()

    def _read_here(self) -> None:
        me = self._get_ident()
        if self._reader not in (None, me):
            raise RuntimeError(f"{self.peer}: another worker reads from this stream already")
        self._reader = me

    def _read_no_more(self) -> None:
        if self._reader == self._get_ident():
            self._reader = None
        self._leave()

    def _wait(self, ready: Callable[[float], bool], deadline: float | None, what: str) -> None:
        while True:
            if self._closing:
                raise self._closed_here()
            left = SLICE_S if deadline is None else deadline - time.monotonic()
            if ready(min(SLICE_S, max(0.0, left))):
                return
            if deadline is not None and left <= SLICE_S:
                raise KafkaTimeoutError(f"{self.peer}: no {what} by the deadline")

    def shutdown(self) -> None:
        try:
            self._sock.shutdown(socket.SHUT_RDWR)
        except OSError as exc:
            if exc.errno not in (errno.ENOTCONN, errno.EBADF, errno.EINVAL):
                raise self._error(exc) from exc

    def close(self) -> None:
        if os.getpid() != self._pid:
            # The connection is the parent's, which a shutdown() would end; and its workers may hold the gate for ever.
            self._closing = True
            self._end()
            return
        # All of it again, if it was called before: that call may have been ended by a signal handler's exception.
        self._closing = True
        self._inside.discard(self._get_ident())  # a signal handler's exception ended its last call before that could leave
        if not self._inside:
            self._end()
            return
        with contextlib.suppress(OSError):  # the peer was faster: its end of the connection wakes the workers as well
            self._sock.shutdown(socket.SHUT_RDWR)

    def fileno(self) -> int:
        return -1 if self._closing else self._fd

    @property
    def closed(self) -> bool:
        return self._closing

    def _enter(self) -> None:
        # Without a lock, so in this order: close() sets the flag before it looks who is inside, and here it is the other way round.
        self._inside.add(self._get_ident())
        if self._closing:
            self._leave()
            raise self._closed_here()

    def _leave(self) -> None:
        self._inside.discard(self._get_ident())
        if self._closing and not self._inside:
            self._end()

    def _end(self) -> None:
        for readiness in (self._readable, self._writable):
            if readiness is not None:
                readiness.close()
        self._sock.close()

    def _closed_here(self) -> SocketDisconnectedError:
        return SocketDisconnectedError(f"{self.peer}: the connection was closed by this client")

    def _error(self, exc: OSError) -> SocketDisconnectedError:
        return self._closed_here() if self._closing else SocketDisconnectedError(f"{self.peer}: {exc.strerror or exc}")


class ThreadingHandler(Handler):
    """Does its work on threading.Thread's. The primitives can be used on the class as well: ThreadingHandler.Queue().

    selector: a class of `selectors`, or a function that makes such: each connection then waits in those. None waits as is best here, in poll() or in
    the socket's own calls.
    """

    name = "threading"
    cooperative = False
    QueueEmptyError = queue.Empty
    QueueFullError = queue.Full
    Queue: ClassVar[type[Any]] = queue.Queue
    looks_for_hub = False
    """Chosen by handler="auto" where no greenlet ran: the first call of one that does is told so."""

    def __init__(self, *, selector: Callable[[], BaseSelector] | None = None) -> None:
        super().__init__()
        self._selector = None if selector is None else check_selector(selector)
        self._selected = None if self._selector is None else by_selector(self._selector)
        self._main = threading.main_thread().ident
        self._patched = PatchState.now()
        self._get_ident, self._socket = threading.get_ident, socket.socket
        self._ending: list[int] = []  # threads that end a client now, by id
        self._patched.check_for_threads()
        # As they are now, also if the process is patched later. What a subclass makes is its own.
        kept = {"parker": partial(ThreadParker, threading.Lock), "Event": partial(ThreadEvent, threading.Lock), "sleep": time.sleep}
        for name, made in kept.items():
            if getattr(type(self), name) is getattr(ThreadingHandler, name):
                setattr(self, name, made)

    def renewed(self) -> Handler:
        """Another one; of greenlets, if gevent patched the process after the fork, as it does in gunicorn's workers (`-k gevent --preload`)."""
        now = PatchState.now()
        if type(self) is ThreadingHandler and now != self._patched and now.threading and now.socket:
            from gkafka.handlers.greenlets import GEventHandler

            return GEventHandler()
        return super().renewed() if self._selector is None else type(self)(selector=self._selector)

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
        worker = ThreadWorker(name, lambda: target(*args, **kwargs), _on_failure, self._workers)
        try:
            worker.start()
        except RuntimeError as exc:
            if "shutdown" not in str(exc):
                raise
            raise ClientClosedError(f"the interpreter ends: no worker can be started for {name}") from exc  # Python 3.12 and newer
        return worker

    # primitives
    @staticmethod
    def Event(*args: Any, **kwargs: Any) -> p.Event:
        return ThreadEvent(*args, **kwargs)

    @staticmethod
    def Lock() -> p.Lock:
        return threading.Lock()

    def Mutex(self) -> p.Lock:
        return threading.Lock() if self._patched.threading else Mutex()

    @staticmethod
    def RLock(*args: Any, **kwargs: Any) -> p.Lock:
        return threading.RLock(*args, **kwargs)

    @staticmethod
    def Semaphore(value: int = 1) -> p.Semaphore:
        return threading.Semaphore(value)

    @staticmethod
    def parker() -> ThreadParker:
        return ThreadParker()

    # time and identity
    @staticmethod
    def sleep(seconds: float = 0) -> None:
        time.sleep(seconds)

    def yield_now(self) -> None:
        pass

    def checkpoint(self) -> None:
        pass

    def current_id(self) -> int:
        return self._get_ident()

    def interruptible(self) -> bool:
        return self._get_ident() == self._main

    def interruption(self, error: BaseException) -> BaseException | None:
        return raised_by_handler(error) if self.interruptible() else None

    def in_owner(self) -> bool:
        return True

    def call_soon_threadsafe(self, fn: Callable[..., object], *args: Any) -> None:
        try:
            fn(*args)
        except Exception:
            log.exception("a call failed: %r", fn)

    def offload(self, fn: Callable[..., T], *args: Any) -> T:
        return fn(*args)

    def alarm(self) -> p.Alarm | None:
        waits_in_kernel = (
            _syscalls is not None and self._selected is None and self._socket.__module__ == "socket" and sys.platform.startswith("linux")
        )
        return _syscalls.Alarm() if waits_in_kernel else None

    def hand_over(self, wake: p.Event) -> None:
        """Do so only if `wake` is an Alarm, which knows whether a thread wants the interpreter's lock."""
        if _syscalls is not None and isinstance(wake, _syscalls.Alarm):
            _syscalls.hand_over(wake)

    # network
    def getaddrinfo(self, host: str, port: int, deadline: float | None = None) -> list[Address]:
        self.start()
        found = sockets.numeric(host, port)
        if found is not None:
            return found
        answer = self.Future()

        def failed(error: BaseException) -> None:
            answer.set_exception(error)

        def ask() -> None:
            guarded(lambda: answer.set(sockets.lookup(socket.getaddrinfo, host, port)), failed=failed)

        # The C library's resolver knows no deadline; a thread of its own may outlive ours.
        threading.Thread(target=ask, name=f"gkafka-resolve-{host}", daemon=True).start()
        left = None if deadline is None else max(0.0, deadline - self.monotonic())
        try:
            return list(answer.result(left))
        except KafkaTimeoutError:
            raise KafkaTimeoutError(f"{host}:{port}: the host name was not resolved by the deadline") from None

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
        sock = socket.socket(address[0], socket.SOCK_STREAM)
        stream: ThreadStream | None = None
        try:
            connected = sockets.begin_connect(sock, address, source_address, sockopts, keepalive_idle_s)
            stream = ThreadStream(sock, sockets.peer_name(address), self._selected)
            if made is not None:
                made(stream)
            stream.end_connect(deadline, connected)
            return stream
        except BaseException:
            (stream or sock).close()
            raise

    # life
    def start(self) -> None:
        self.check_fork()
        if self._patched.has_changed():
            raise self._patched.changed_error()

    def check_fork(self) -> None:
        """Also raises ConfigurationError if gevent patched the process behind this handler: who waited for its threads would stop the hub. Not in its own
        workers, and not while a client is closed: those end what was begun.
        """
        if os.getpid() != self._pid:
            super().check_fork()
        if MONKEY in sys.modules and (threading.get_ident is not self._get_ident or socket.socket is not self._socket):
            self._check_unpatched()
        if self.looks_for_hub and HUB in sys.modules and gevent_is_running():
            self.looks_for_hub = False
            log.warning(
                "a greenlet calls a client of OS threads, which handler='auto' chose when the client was made, before there was any: whoever waits for "
                "it stops every greenlet. Pass handler='gevent', or call gevent.monkey.patch_all() before the client is made"
            )

    def _check_unpatched(self) -> None:
        if self._patched.has_changed() and self._get_ident() not in self._ending and not self._calls_itself():
            raise self._patched.changed_error()

    def _calls_itself(self) -> bool:
        return any(isinstance(worker, ThreadWorker) and worker.is_caller() for worker in list(self._workers))

    @contextlib.contextmanager
    def ending(self) -> Iterator[None]:
        me = self._get_ident()
        self._ending.append(me)
        try:
            yield
        finally:
            self._ending.remove(me)
