"""A TCP proxy that knows where Kafka's frames begin and end, and damages connections as it is told.

A `Door` stands before one broker; its port is the one that the broker advertises. What all doors of a run do is in one `Plan`. The workers
are plain OS threads, whatever the handler under test is.
"""

from __future__ import annotations

import contextlib
import dataclasses
import random
import socket
import struct
import threading
from collections import defaultdict
from collections.abc import Callable
from types import TracebackType

from tests.kit import clock
from tests.live.jvm import free_ports

__all__ = ["API_VERSIONS", "FETCH", "HEARTBEAT", "PRODUCE", "Cut", "Delay", "Door", "Flip", "Lose", "Plan", "Rule"]

PRODUCE, FETCH, HEARTBEAT, API_VERSIONS = 0, 1, 12, 18
TICK_S = 0.02
MAX_FRAME = 64 << 20
Address = tuple[str, int]


class Lose:
    """The broker acted, its reply never arrives: the connection ends instead."""


@dataclasses.dataclass(frozen=True)
class Cut:
    """The connection ends after `at` bytes of the reply, its length included."""

    at: int


@dataclasses.dataclass(frozen=True)
class Delay:
    """The reply, and all after it on its connection, comes so many seconds later; with `most` some time between the two."""

    seconds: float
    most: float = 0.0


@dataclasses.dataclass(frozen=True)
class Flip:
    """A bit of the reply arrives as the other one: in the `reach` bytes that end with some occurrence of `near`. Without one it arrives whole."""

    near: bytes
    reach: int


Action = Lose | Cut | Delay | Flip


@dataclasses.dataclass
class Rule:
    """What happens to replies of one API. api: its key, None for all; share: of the replies; times: at most, None for all."""

    api: int | None
    action: Action
    share: float = 1.0
    times: int | None = None
    hits: int = 0


class Plan:
    """What the doors of a run do. Changes take effect at once.

    connections: accepted so far; ended: connections that a rule, a lifetime or down() ended; broken: that the broker's side ended; flipped: replies
    with another bit. rate: bytes a second of the replies of a connection; drip: they come byte by byte. asked: (client id, API) -> when.
    """

    def __init__(self, seed: int = 0) -> None:
        self.chance = random.Random(seed)
        self.lifetime: tuple[float, float] | None = None
        self.connections = 0
        self.ended = 0
        self.broken = 0
        self.flipped = 0
        self.rate: float | None = None
        self.drip = False
        self.asked: dict[tuple[str, int], list[float]] = defaultdict(list)
        self._lock = threading.Lock()
        self._rules: list[Rule] = []
        self._open = threading.Event()
        self._open.set()

    def add(self, api: int | None, action: Action, *, share: float = 1.0, times: int | None = None) -> Rule:
        """From now on. The rule returned counts its hits."""
        rule = Rule(api, action, share, times)
        with self._lock:
            self._rules.append(rule)
        return rule

    def silence(self) -> None:
        """Replies wait until clear(): the brokers act and say nothing."""
        self._open.clear()

    def clear(self) -> None:
        """No rule, no lifetime, no slowness and no silence any more."""
        with self._lock:
            self._rules, self.lifetime, self.rate, self.drip = [], None, None, False
        self._open.set()

    def for_reply(self, api: int) -> Action | None:
        """What to do with a reply that has just come from the broker."""
        with self._lock:
            for rule in self._rules:
                spent = rule.times is not None and rule.hits >= rule.times
                if rule.api in (None, api) and not spent and self.chance.random() < rule.share:
                    rule.hits += 1
                    return self._drawn(rule.action)
        return None

    def _drawn(self, action: Action) -> Action:
        if isinstance(action, Delay) and action.most:
            return Delay(self.chance.uniform(action.seconds, action.most))
        return action

    def flip(self, frame: bytearray, how: Flip) -> None:
        """Change a bit of the frame in its place."""
        with self._lock:
            found = frame.find(how.near, self.chance.randrange(len(frame)))
            found = found if found >= 0 else frame.find(how.near)
            if found >= 0:
                end = found + len(how.near)
                frame[end - 1 - self.chance.randrange(how.reach)] ^= 1 << self.chance.randrange(8)
                self.flipped += 1

    def wait_while_silent(self, seconds: float) -> bool:
        """False: still silent."""
        return self._open.wait(seconds)

    def born(self, now: float) -> float:
        """A connection was accepted. Returns when it has to end."""
        with self._lock:
            self.connections += 1
            return now + self.chance.uniform(*self.lifetime) if self.lifetime else float("inf")

    def died(self) -> None:
        with self._lock:
            self.ended += 1

    def broke(self) -> None:
        with self._lock:
            self.broken += 1


class Door:
    """The proxy of one broker. backend: tells where the broker listens at the moment; host: a loopback address. A context manager."""

    def __init__(self, plan: Plan, backend: Callable[[], Address], port: int = 0, host: str = "127.0.0.1") -> None:
        self._plan, self._backend = plan, backend
        self._listener = _bound(host, port or free_ports(1)[0])
        self._listener.listen(128)
        self.port: int = self._listener.getsockname()[1]
        self._closed = threading.Event()
        self._shut = False
        self._turn = threading.Lock()
        self._links: set[_Link] = set()
        self._lock = threading.Lock()
        self._worker = threading.Thread(target=self._serve, name=f"door-{self.port}", daemon=True)
        self._worker.start()

    def down(self) -> None:
        """Every connection ends, new ones are refused, as by a machine on which nobody listens."""
        with self._turn:
            if not self._shut:
                self._shut = True
                self._listener.shutdown(socket.SHUT_RDWR)  # it keeps the port, and listens no more
        self._end(lambda link: True)

    def up(self) -> None:
        with self._turn:
            if self._shut:
                self._listener.listen(128)
                self._shut = False

    def close(self) -> None:
        """Ends every connection and worker."""
        self._closed.set()
        self._worker.join(10)
        self._listener.close()
        self._end(lambda link: True)
        for link in list(self._links):
            link.join(10)

    def __enter__(self) -> Door:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _serve(self) -> None:
        while not self._closed.is_set():
            with self._turn:
                shut = self._shut
            if shut:
                self._closed.wait(TICK_S)
                continue
            with contextlib.suppress(OSError):  # its timeout, or down() has shut it
                client, _ = self._listener.accept()
                self._welcome(client)
            now = clock.now()
            self._end(lambda link, now=now: link.ends_at <= now)  # type: ignore[misc]

    def _welcome(self, client: socket.socket) -> None:
        ends_at = self._plan.born(clock.soon(0))
        try:
            broker = socket.create_connection(self._backend(), timeout=5)
        except OSError:
            client.close()
            return
        broker.settimeout(None)
        client.settimeout(None)
        link = _Link(self._plan, client, broker, ends_at, self._forget)
        with self._lock:
            self._links.add(link)
        link.start()

    def _forget(self, link: _Link) -> None:
        with self._lock:
            self._links.discard(link)

    def _end(self, which: Callable[[_Link], bool]) -> None:
        with self._lock:
            ending = [link for link in self._links if which(link)]
        for link in ending:
            link.end()


class _Link:
    """One connection of a client and the one to its broker; a thread for each direction."""

    def __init__(self, plan: Plan, client: socket.socket, broker: socket.socket, ends_at: float, gone: Callable[[_Link], None]) -> None:
        self._plan, self._client, self._broker, self.ends_at, self._gone = plan, client, broker, ends_at, gone
        for sock in (client, broker):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._apis: dict[int, int] = {}
        self._ended = threading.Event()
        self._first = threading.Lock()
        self._threads = [threading.Thread(target=self._run, args=(move,), daemon=True) for move in (self._requests, self._replies)]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def join(self, timeout: float) -> None:
        for thread in self._threads:
            thread.join(timeout)

    def end(self) -> None:
        """From our side: the plan wanted it."""
        if not self._ended.is_set():
            self._plan.died()
        self._hang_up()

    def _hang_up(self) -> None:
        self._ended.set()
        for sock in (self._client, self._broker):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def _run(self, move: Callable[[], bool]) -> None:
        try:
            with contextlib.suppress(OSError, ValueError, struct.error):
                while move():
                    pass
        finally:
            self._hang_up()
            if not self._first.acquire(blocking=False):  # the other thread has ended: nobody uses the sockets any more
                self._client.close()
                self._broker.close()
                self._gone(self)

    def _requests(self) -> bool:
        frame = _read_frame(self._client)
        if frame is None:
            return False
        api, _, correlation = struct.unpack_from(">hhi", frame, 4)
        self._apis[correlation] = api
        size = max(0, struct.unpack_from(">h", frame, 12)[0]) if len(frame) >= 14 else 0
        self._plan.asked[frame[14 : 14 + size].decode(errors="replace"), api].append(clock.figure(clock.now()))
        self._broker.sendall(frame)
        return True

    def _replies(self) -> bool:
        try:
            frame = _read_frame(self._broker)
        except ConnectionError:
            frame = None
        if frame is None:
            if not self._ended.is_set():
                self._plan.broke()
            return False
        (correlation,) = struct.unpack_from(">i", frame, 4)
        action = self._plan.for_reply(self._apis.pop(correlation, -1))
        if isinstance(action, Delay):
            self._ended.wait(action.seconds)
        while not self._plan.wait_while_silent(TICK_S):
            if self._ended.is_set():
                return False
        if isinstance(action, (Lose, Cut)):
            if isinstance(action, Cut):
                self._client.sendall(frame[: action.at])
            self.end()
            return False
        if isinstance(action, Flip):
            self._plan.flip(frame, action)
        self._deliver(frame)
        return True

    def _deliver(self, frame: bytearray) -> None:
        rate, drip = self._plan.rate, self._plan.drip
        part = max(1, int(rate * TICK_S)) if rate else len(frame)
        for start in range(0, len(frame), part):
            piece = frame[start : start + part]
            step = 1 if drip else len(piece)
            for at in range(0, len(piece), step):
                self._client.sendall(piece[at : at + step])
            if rate:
                self._ended.wait(len(piece) / rate)


def _bound(host: str, port: int) -> socket.socket:
    """A socket that has the port and does not listen yet."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind((host, port))
    sock.settimeout(TICK_S)
    return sock


def _read_frame(sock: socket.socket) -> bytearray | None:
    """A whole frame with its length, None at the end of the stream. ValueError: no frame of Kafka begins so."""
    head = _read(sock, 4)
    if head is None:
        return None
    (size,) = struct.unpack(">i", head)
    if not 4 <= size <= MAX_FRAME:
        raise ValueError(size)
    body = _read(sock, size)
    return None if body is None else head + body


def _read(sock: socket.socket, size: int) -> bytearray | None:
    data = bytearray(size)
    view, got = memoryview(data), 0
    while got < size:
        n = sock.recv_into(view[got:])
        if n == 0:
            return None
        got += n
    return data
