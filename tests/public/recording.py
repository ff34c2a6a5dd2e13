"""Handlers of a user's own that write down what gkafka asks of them, and whether a lock was held while its holder waited.

`RecordingHandler` is threads and `RecordingGEventHandler` greenlets. Beside them a `Watch` hears of every thread that is
started and, by audit events, of every socket that is connected: what went past the handlers shows there; `judge` has the rules.
With GKAFKA_HANDLERS=recording every client of a suite gets such a handler (`recorded`, a fixture of tests/conftest.py).
"""

from __future__ import annotations

import _thread
import contextlib
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from gkafka.handlers import GEventHandler, Handler, Stream, ThreadingHandler, Worker, resolve_handler
from tests.kit.clock import PATIENCE_S, now

__all__ = [
    "Connected",
    "Recorder",
    "Recorders",
    "RecordingGEventHandler",
    "RecordingHandler",
    "Spawned",
    "Started",
    "Watch",
    "instead_of",
    "judge",
]

MACHINERY = (
    "/threading.py",
    "/tests/public/recording.py",
    *(f"/gkafka/handlers/{name}.py" for name in ("base", "primitives", "threads", "greenlets")),
)
CHECKOUT = f"{Path(__file__).resolve().parents[2].as_posix()}/"
Site = str  # "gkafka/net/channel.py:109"


def site(depth: int = 1) -> Site:
    """The nearest caller in gkafka or its tests that is neither this file nor what lies between it and whoever asked.

    What others' code does is done for that caller. Without one: the nearest of all.
    """
    frame = sys._getframe(depth)
    while frame.f_back is not None and frame.f_code.co_filename.replace("\\", "/").endswith(MACHINERY):
        frame = frame.f_back
    nearest = f"{_short(frame.f_code.co_filename)}:{frame.f_lineno}"
    caller: Any = frame
    while caller is not None and not _short(caller.f_code.co_filename).startswith(("gkafka/", "tests/")):
        caller = caller.f_back
    return nearest if caller is None else f"{_short(caller.f_code.co_filename)}:{caller.f_lineno}"


def _short(path: str) -> str:
    """A file of this checkout by its path in it, whatever the checkout's own folder is called."""
    return path.replace("\\", "/").removeprefix(CHECKOUT)


# -- what is written down ------------------------------------------------------------------------------------------------------
class Spawned(NamedTuple):
    """One worker. threads: the identity of the thread that ran it, once it has begun (one, on threads)."""

    name: str | None
    worker: Worker
    threads: list[int]


class Connected(NamedTuple):
    port: int
    stream: Stream


class Recorder:
    """What one handler was asked for.

    made: how many of each thing. waits: how many waits of each kind. violations: one text for each wait with a lock held.
    nested: (outer, inner) for each lock taken while another was held, by the places where the two were made.
    """

    def __init__(self, me: Callable[[], int]) -> None:
        self.me = me
        self.spawned: list[Spawned] = []
        self.connected: list[Connected] = []
        self.made: Counter[str] = Counter()
        self.waits: Counter[str] = Counter()
        self.violations: list[str] = []
        self.nested: set[tuple[Site, Site]] = set()
        self.taken = 0
        self._held: dict[int, list[RecordingLock]] = {}  # worker -> its locks; each list is changed by its worker only
        self._inside: dict[int, str] = {}  # worker -> the handler's method it is in

    # locks
    def held(self) -> list[Site]:
        """The locks that the calling worker holds, by the places where they were made."""
        return [lock.site for lock in self._held.get(self.me(), ())]

    def all_held(self) -> list[Site]:
        return [lock.site for locks in list(self._held.values()) for lock in list(locks)]

    def took(self, lock: RecordingLock) -> int:
        me = self.me()
        mine = self._held.setdefault(me, [])
        self.nested.update((outer.site, lock.site) for outer in mine if outer is not lock)
        mine.append(lock)
        self.taken += 1
        return me

    def gave(self, lock: RecordingLock, holder: int) -> None:
        self._held[holder].remove(lock)

    def waiting(self, what: str) -> None:
        """The calling worker is about to wait."""
        self.waits[what] += 1
        locks = self.held()
        if locks:
            self.violations.append(f"{what} at {site(2)} while holding the lock made at {', '.join(locks)}")

    # what is going on in this thread
    @contextlib.contextmanager
    def inside(self, what: str) -> Iterator[None]:
        """The calling worker is inside the handler's method `what`."""
        me = self.me()
        before = self._inside.get(me)
        self._inside[me] = what
        try:
            yield
        finally:
            if before is None:
                del self._inside[me]
            else:
                self._inside[me] = before

    @property
    def current(self) -> str | None:
        return self._inside.get(self.me())

    # judgement
    def alive(self) -> list[Worker]:
        return [s.worker for s in self.spawned if s.worker.is_alive()]

    def badly_named(self) -> list[str | None]:
        return [s.name for s in self.spawned if not (s.name or "").startswith("gkafka-")]

    def inversions(self) -> set[tuple[Site, Site]]:
        """Pairs of locks that are taken in both orders: two workers could wait for each other for ever."""
        return {(a, b) for a, b in self.nested if a < b and (b, a) in self.nested}


class Recorders:
    """Those of several handlers, as a Watch wants them: in a process with two clients each does its own in its own handler."""

    def __init__(self, *recorders: Recorder) -> None:
        self.all = list(recorders)
        self.others = 0  # handlers beside them that do not record

    @property
    def current(self) -> str | None:
        return next((inside for recorder in self.all if (inside := recorder.current) is not None), None)

    @property
    def spawned(self) -> list[Spawned]:
        return [spawned for recorder in self.all for spawned in recorder.spawned]

    @property
    def connected(self) -> list[Connected]:
        return [connected for recorder in self.all for connected in recorder.connected]


# -- what is handed out ----------------------------------------------------------------------------------------------------------
class RecordingLock:
    """A Lock or RLock that knows who holds it."""

    def __init__(self, recorder: Recorder, inner: Any) -> None:
        self.site = site(2)
        self._recorder = recorder
        self._inner = inner
        self._holders: list[int] = []  # changed only by whoever holds the lock

    def acquire(self, *args: Any, **about: Any) -> bool:
        if not self._inner.acquire(*args, **about):
            return False
        self._holders.append(self._recorder.took(self))
        return True

    def release(self) -> None:
        try:
            if self._holders:
                self._recorder.gave(self, self._holders.pop())
        finally:
            self._inner.release()

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class Recording:
    """Something that workers wait on. waits: the methods that may wait; anything else is the inner one's."""

    waits: tuple[str, ...] = ()

    def __init__(self, recorder: Recorder, inner: Any, kind: str) -> None:
        self._inner = inner
        for name in self.waits:
            setattr(self, name, self._told(recorder, f"{kind}.{name}", getattr(inner, name)))

    @staticmethod
    def _told(recorder: Recorder, what: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **about: Any) -> Any:
            if _may_wait(args, about):
                recorder.waiting(what)
            return method(*args, **about)

        return call

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def _may_wait(args: tuple[Any, ...], about: dict[str, Any]) -> bool:
    """Whether nothing says that the call is not to wait: block=False, blocking=False or a timeout of 0."""
    return not any(value is False for value in (*args, *about.values())) and about.get("timeout", -1) != 0 and args != (0,)


class RecordingEvent(Recording):
    waits = ("wait",)


class RecordingSemaphore(Recording):
    waits = ("acquire",)

    def __enter__(self) -> bool:
        return bool(self.acquire())

    def __exit__(self, *_: object) -> None:
        self._inner.release()


class RecordingQueue(Recording):
    waits = ("get", "join")


class RecordingBoundedQueue(Recording):
    waits = ("get", "join", "put")


class RecordingParker:
    def __init__(self, recorder: Recorder, inner: Any) -> None:
        self._recorder = recorder
        self._inner = inner
        self.wake = inner.wake

    def park(self, deadline: float | None) -> bool:
        self._recorder.waiting("Future.result")
        return bool(self._inner.park(deadline))


class RecordingStream(Stream):
    def __init__(self, recorder: Recorder, inner: Stream) -> None:
        self.peer = inner.peer
        self._recorder = recorder
        self._inner = inner

    def recv_into(self, view: memoryview | bytearray, deadline: float | None = None) -> int:
        self._recorder.waiting("Stream.recv_into")
        return self._inner.recv_into(view, deadline)

    def receive_now(self, view: memoryview | bytearray) -> int:
        return self._inner.receive_now(view)

    def wait_readable(self, deadline: float) -> bool:
        self._recorder.waiting("Stream.wait_readable")
        return self._inner.wait_readable(deadline)

    def look_again(self) -> None:
        self._inner.look_again()

    def left(self) -> None:
        self._inner.left()

    def send_all(self, buffers: Sequence[Any], deadline: float | None = None) -> None:
        self._recorder.waiting("Stream.send_all")
        self._inner.send_all(buffers, deadline)

    def try_send(self, buffers: Sequence[Any]) -> int:
        return self._inner.try_send(buffers)

    def shutdown(self) -> None:
        self._inner.shutdown()

    def close(self) -> None:
        self._inner.close()

    def fileno(self) -> int:
        return self._inner.fileno()

    @property
    def closed(self) -> bool:
        return self._inner.closed


# -- the handlers ------------------------------------------------------------------------------------------------------------------
class _Records(Handler):
    """Goes before a Handler: records each call, then lets that handler do it."""

    def __init__(self) -> None:
        super().__init__()
        self.recorder = Recorder(self.current_id)

    def spawn(self, target: Callable[..., object], *args: Any, _name: str | None = None, _on_failure: Any = None, **kwargs: Any) -> Worker:
        threads: list[int] = []

        def run() -> object:
            threads.append(threading.get_ident())
            return target(*args, **kwargs)

        with self.recorder.inside("spawn"):
            worker = super().spawn(run, _name=_name, _on_failure=_on_failure)
        join = worker.join

        def recorded_join(timeout: float | None = None) -> bool:
            if timeout != 0:
                self.recorder.waiting("Worker.join")
            return join(timeout)

        worker.join = recorded_join  # type: ignore[method-assign]
        self.recorder.spawned.append(Spawned(_name, worker, threads))
        return worker

    def _make(self, kind: str, wrap: Callable[..., Any], inner: Any) -> Any:
        self.recorder.made[kind] += 1
        return wrap(self.recorder, inner, kind)

    def _make_lock(self, kind: str, inner: Any) -> Any:
        self.recorder.made[kind] += 1
        return RecordingLock(self.recorder, inner)

    # Static in Handler. gkafka asks its instance, so an instance's own answer is what it gets.
    def Event(self, *args: Any, **kwargs: Any) -> Any:  # type: ignore[override]
        return self._make("Event", RecordingEvent, super().Event(*args, **kwargs))

    def Lock(self) -> Any:  # type: ignore[override]
        return self._make_lock("Lock", super().Lock())

    def Mutex(self) -> Any:
        return self._make_lock("Mutex", super().Mutex())

    def RLock(self, *args: Any, **kwargs: Any) -> Any:  # type: ignore[override]
        return self._make_lock("RLock", super().RLock(*args, **kwargs))

    def Semaphore(self, value: int = 1) -> Any:  # type: ignore[override]
        return self._make("Semaphore", RecordingSemaphore, super().Semaphore(value))

    def Queue(self, *args: Any, **kwargs: Any) -> Any:  # type: ignore[override]
        inner = super().Queue(*args, **kwargs)
        return self._make("Queue", RecordingBoundedQueue if inner.maxsize > 0 else RecordingQueue, inner)

    def Future(self) -> Any:
        self.recorder.made["Future"] += 1
        return super().Future()

    def parker(self) -> Any:  # type: ignore[override]
        return RecordingParker(self.recorder, super().parker())

    def sleep(self, seconds: float = 0) -> None:  # type: ignore[override]
        self.recorder.waiting("sleep")
        with self.recorder.inside("sleep"):
            super().sleep(seconds)

    # On threads the next two do not wait; on greenlets they do, and gkafka must be right on both.
    def yield_now(self) -> None:
        self.recorder.waiting("yield_now")
        super().yield_now()

    def checkpoint(self) -> None:
        self.recorder.waiting("checkpoint")
        super().checkpoint()

    def offload(self, fn: Callable[..., Any], *args: Any) -> Any:
        self.recorder.waiting("offload")
        with self.recorder.inside("offload"):
            return super().offload(fn, *args)

    def getaddrinfo(self, host: str, port: int, deadline: float | None = None) -> Any:
        self.recorder.waiting("getaddrinfo")
        with self.recorder.inside("getaddrinfo"):
            return super().getaddrinfo(host, port, deadline)

    def create_connection(self, address: Any, deadline: float | None = None, **options: Any) -> Stream:
        self.recorder.waiting("create_connection")
        with self.recorder.inside("create_connection"):
            inner = super().create_connection(address, deadline, **options)
        self.recorder.made["create_connection"] += 1
        self.recorder.connected.append(Connected(address[1][1], inner))
        return RecordingStream(self.recorder, inner)

    def stop(self, deadline: float | None = None) -> bool:
        self.recorder.waiting("stop")
        return super().stop(deadline)


class RecordingHandler(_Records, ThreadingHandler):
    """Threads, and a name that gkafka has never heard of."""

    name = "recording"
    cooperative = False


class RecordingGEventHandler(_Records, GEventHandler):
    """Greenlets. It keeps the name "gevent", by which gkafka knows that its workers take turns."""


def instead_of(recorders: Recorders, handler: Any = "auto", use_greenlets: bool = False) -> Handler:
    """`resolve_handler`, but a handler of gkafka's own becomes one of the same kind and name that records."""
    chosen = resolve_handler(handler, use_greenlets)
    kinds: dict[type[Handler], type[Any]] = {ThreadingHandler: RecordingHandler, GEventHandler: RecordingGEventHandler}
    if chosen is handler or type(chosen) not in kinds:
        recorders.others += not hasattr(chosen, "recorder")
        return chosen
    recording: Any = kinds[type(chosen)]()
    recording.name = chosen.name
    recorders.all.append(recording.recorder)
    return recording  # type: ignore[no-any-return]


# -- what went past the handler ----------------------------------------------------------------------------------------------------
class Started(NamedTuple):
    """A thread was started: inside which method of the handler (None: outside), and from where."""

    inside: str | None
    site: Site


class Watch:
    """`with Watch(recorders) as watch:` - threads, connections and sleeps in the block, whoever made them.

    started: threads. connects: (port, inside which method of the handler, site). sleeps: site of each time.sleep() outside handler.sleep().
    """

    _active: list[Watch] = []  # noqa: RUF012  # an audit hook stays for good, so there is one, and it asks who watches
    _installed = False

    def __init__(self, recorders: Recorders) -> None:
        self.recorders = recorders
        self.started: list[Started] = []
        self.connects: list[tuple[int, str | None, Site]] = []
        self.sleeps: list[Site] = []
        self._before: set[int] = set()  # the threads that ran already

    def __enter__(self) -> Watch:
        self._before = set(sys._current_frames())
        if not Watch._installed:
            Watch._installed = True
            sys.addaudithook(_heard)
        if not Watch._active:
            _replace()
        Watch._active.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        Watch._active.remove(self)
        if not Watch._active:
            _restore()

    def hear(self, event: str, args: tuple[Any, ...]) -> None:
        inside = self.recorders.current
        if event == "thread":
            self.started.append(Started(inside, site(2)))
        elif event == "socket.connect" and isinstance(args[1], tuple):
            self.connects.append((args[1][1], inside, site(2)))
        elif event == "sleep" and inside != "sleep":
            self.sleeps.append(site(2))

    def strangers(self) -> list[str]:
        """The threads of gkafka that were started outside of the handler."""
        return [s.site for s in self.started if s.inside is None and _of_gkafka(s.site)]

    def running(self) -> list[str]:
        """Threads that run now and are neither older than this watch, nor a worker's, nor the test's or the mock brokers' own."""
        workers = {ident for s in self.recorders.spawned for ident in s.threads}
        named = {t.ident: t.name for t in threading.enumerate()}
        return [
            f"{named.get(ident, 'a native thread')} in {bottom}"
            for ident, frame in sys._current_frames().items()
            if ident not in workers and ident not in self._before and _of_gkafka(bottom := _first(frame))
        ]

    def stray_connects(self, ports: set[int]) -> list[str]:
        """Connections to the brokers that the handler's create_connection() did not make."""
        return [
            f"port {port} at {where}"
            for port, inside, where in self.connects
            if port in ports and inside != "create_connection" and _of_gkafka(where)
        ]

    def stray_sleeps(self) -> list[str]:
        return [where for where in self.sleeps if _of_gkafka(where)]


def judge(watch: Watch) -> None:
    """The rules: whatever runs, waits or connects is the handlers', no lock is held across a wait, and all locks are taken in one order."""
    for recorder in watch.recorders.all:
        assert not recorder.violations, "\n".join(sorted(set(recorder.violations)))
        assert not recorder.all_held(), "locks of workers that have ended"
        assert not recorder.inversions()
        assert not recorder.badly_named()
    if not watch.recorders.all or watch.recorders.others:
        return  # what others do cannot be told from what went past all of them
    assert not watch.stray_sleeps(), f"sleeps past the handlers: {watch.stray_sleeps()}"
    assert not watch.strangers(), f"threads that were not spawned by a handler: {watch.strangers()}"
    ports = {connected.port for connected in watch.recorders.connected}
    assert not watch.stray_connects(ports), f"connections past the handlers: {watch.stray_connects(ports)}"


def _heard(event: str, args: tuple[Any, ...]) -> None:
    if Watch._active and event in ("thread", "sleep", "socket.connect"):
        for watch in list(Watch._active):
            watch.hear(event, args)


# The interpreter tells of these only from 3.12 and 3.13 on, so the functions are replaced while somebody watches.
STARTS = [
    (module, name, getattr(module, name))
    for module in (_thread, threading)
    for name in ("start_new_thread", "start_joinable_thread", "_start_new_thread", "_start_joinable_thread")
    if hasattr(module, name)
]
SLEEP = time.sleep


def _replace() -> None:
    for module, name, start in STARTS:
        setattr(module, name, partial(_told, "thread", start))
    time.sleep = partial(_told, "sleep", SLEEP)


def _restore() -> None:
    for module, name, start in STARTS:
        setattr(module, name, start)
    time.sleep = SLEEP


def _told(event: str, function: Callable[..., Any], *args: Any, **about: Any) -> Any:
    _heard(event, ())
    return function(*args, **about)


def _of_gkafka(where: Site) -> bool:
    """Neither the mock brokers' nor the test's; what cannot be told is gkafka's until it is known better."""
    return not where.startswith(("gkafka/testing/", "tests/"))


def _first(frame: Any) -> Site:
    """Where a thread began: its outermost frame that is not the threading module's."""
    frames = []
    while frame is not None:
        frames.append(frame.f_code.co_filename.replace("\\", "/"))
        frame = frame.f_back
    for path in reversed(frames):
        if not path.endswith("/threading.py"):
            return _short(path)
    return "tests/: a thread that has just begun or is about to end; its start was heard"


def until(what: Callable[[], bool], seconds: float = PATIENCE_S, sleep: Callable[[float], None] = time.sleep) -> bool:
    """Whether it is true within so many seconds."""
    deadline = now() + seconds
    while not what():
        if now() >= deadline:
            return False
        sleep(0.005)
    return True
