"""A ZooKeeper inside the test: its tree, its sessions, its watches, and calls that fail before or after they were carried out."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionLoss, NoChildrenForEphemeralsError, NodeExistsError, NoNodeError

if TYPE_CHECKING:
    from tests.public.aids import Runner

__all__ = ["Zoo", "ZooClient", "zoo_client"]


class Stat(NamedTuple):
    czxid: int
    ephemeralOwner: int  # kazoo's name


class Done:
    """What kazoo's calls return. error None and value None: an answer that is None. It is there at once, but not for who waits less than slow_s."""

    def __init__(self, value: Any = None, error: Exception | None = None, slow_s: float = 0.0) -> None:
        self._value, self._error, self._slow_s = value, error, slow_s

    def wait(self, timeout: float | None = None) -> bool:
        if timeout is None or timeout >= self._slow_s:
            self._slow_s = 0.0
        return self.ready()

    def ready(self) -> bool:
        return not self._slow_s

    def get(self, block: bool = True) -> Any:
        if self._error is not None:
            raise self._error
        return self._value


class Zoo:
    """nodes: path -> (data, stat)."""

    def __init__(self) -> None:
        self.nodes: dict[str, tuple[bytes, Stat]] = {"/": (b"", Stat(0, 0))}
        self._zxids = itertools.count(1)
        self._sessions = itertools.count(0x100)
        self._watches: dict[str, list[Callable[[Any], None]]] = {}

    def new_session(self) -> int:
        return next(self._sessions)

    def end_session(self, session: int) -> None:
        """As ZooKeeper does when it has not heard of a client for too long."""
        for path in [path for path, (_, stat) in self.nodes.items() if stat.ephemeralOwner == session]:
            self.remove(path)

    def put(self, path: str, data: bytes = b"", owner: int = 0) -> None:
        if path in self.nodes:
            raise NodeExistsError
        parent = path.rpartition("/")[0] or "/"
        if parent not in self.nodes:
            raise NoNodeError
        if self.nodes[parent][1].ephemeralOwner:
            raise NoChildrenForEphemeralsError
        self.nodes[path] = data, Stat(next(self._zxids), owner)
        self._tell(path, parent)

    def remove(self, path: str) -> None:
        if path not in self.nodes:
            raise NoNodeError
        del self.nodes[path]
        self._tell(path, path.rpartition("/")[0] or "/")

    def children(self, path: str) -> list[str]:
        if path not in self.nodes:
            raise NoNodeError
        return [name for p in self.nodes if p.startswith(f"{path}/") and "/" not in (name := p[len(path) + 1 :])]

    def watch(self, path: str, fn: Callable[[Any], None] | None) -> None:
        if fn is not None:
            self._watches.setdefault(path, []).append(fn)

    def _tell(self, *paths: str) -> None:
        for path in paths:
            for fn in self._watches.pop(path, []):
                fn(None)


class ZooClient(KazooClient):  # type: ignore[misc]  # kazoo has no types
    """A connected client of a Zoo. `fails(op, part, carried_out)`: the next such call ends with ConnectionLoss; while it `is_silent`, every one does.
    slow_s: of its answers."""

    def __init__(self, zoo: Zoo, *, timeout: float = 10.0, handler: Any = None) -> None:
        super().__init__(timeout=timeout, handler=handler)
        self.zoo, self.session = zoo, zoo.new_session()
        self._faults: list[tuple[str, str, bool]] = []
        self.is_silent = False
        self.slow_s = 0.0

    connected = True

    @property
    def client_id(self) -> tuple[int, bytes]:
        return self.session, b""

    def fails(self, op: str, part: str, *, carried_out: bool) -> None:
        self._faults.append((op, part, carried_out))

    def _do(self, op: str, path: str, what: Callable[[], Any]) -> Done:
        if self.is_silent:
            return Done(error=ConnectionLoss())
        fault = next((f for f in self._faults if f[0] == op and f[1] in path), None)
        if fault is not None:
            self._faults.remove(fault)
            if fault[2]:
                what()
            return Done(error=ConnectionLoss())
        try:
            return Done(what(), slow_s=self.slow_s)
        except (NoNodeError, NodeExistsError, NoChildrenForEphemeralsError) as error:
            return Done(error=error)

    def ensure_path_async(self, path: str) -> Done:
        def ensure() -> None:
            steps = path.strip("/").split("/")
            for n in range(1, len(steps) + 1):
                step = "/" + "/".join(steps[:n])
                if step not in self.zoo.nodes:
                    self.zoo.put(step)

        return self._do("ensure", path, ensure)

    def exists_async(self, path: str, watch: Any = None) -> Done:
        return self._do("exists", path, lambda: self.zoo.nodes[path][1] if path in self.zoo.nodes else None)

    def create_async(self, path: str, value: bytes = b"", *, ephemeral: bool = False) -> Done:
        return self._do("create", path, lambda: self.zoo.put(path, value, self.session if ephemeral else 0))

    def delete_async(self, path: str) -> Done:
        return self._do("delete", path, lambda: self.zoo.remove(path))

    def get_children_async(self, path: str, watch: Any = None) -> Done:
        def children() -> list[str]:
            found = self.zoo.children(path)
            self.zoo.watch(path, watch)
            return found

        return self._do("children", path, children)

    def get_async(self, path: str, watch: Any = None) -> Done:
        def get() -> tuple[bytes, Stat]:
            if path not in self.zoo.nodes:
                raise NoNodeError
            self.zoo.watch(path, watch)
            return self.zoo.nodes[path]

        return self._do("get", path, get)


def zoo_client(run: Runner, zoo: Zoo | None = None, *, timeout: float = 10.0) -> ZooClient:
    """A connection for consumers of this way of concurrency; without a zoo, to one of its own. timeout: seconds of its session."""
    if not run.gevent:
        return ZooClient(zoo or Zoo(), timeout=timeout)
    from kazoo.handlers.gevent import SequentialGeventHandler

    return ZooClient(zoo or Zoo(), timeout=timeout, handler=SequentialGeventHandler())
