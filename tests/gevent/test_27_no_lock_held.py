"""27: whenever a greenlet switches out, it holds no lock of its handler."""

from __future__ import annotations

from collections import Counter
from typing import Any

import gevent
import greenlet
import pytest

from gkafka.handlers import GEventHandler, hubs
from gkafka.handlers.hubs import GreenletLock
from gkafka.testing import Close, Delay, MockCluster
from tests.gevent.harness import LIMIT_S, connect, greenlets, in_child


class Holders:
    """Which greenlet holds how many locks, and who switched out with one."""

    def __init__(self) -> None:
        self.held: Counter[Any] = Counter()
        self.taken = 0
        self.switches = 0
        self.violations: list[str] = []

    def trace(self, event: str, arguments: tuple[Any, Any]) -> None:
        origin = arguments[0]
        self.switches += 1
        if self.held[origin]:
            self.violations.append(getattr(origin, "name", repr(origin)))


def tracked(holders: Holders) -> type[GreenletLock]:
    class TrackedLock(GreenletLock):
        __slots__ = ("_holder",)

        def acquire(self, blocking: bool = True, timeout: float | None = None) -> bool:
            if not super().acquire(blocking, timeout):
                return False
            self._holder = gevent.getcurrent()
            holders.held[self._holder] += 1
            holders.taken += 1
            return True

        def release(self, n: int = 1) -> None:
            holders.held[self._holder] -= 1
            super().release(n)

        def __enter__(self) -> bool:
            return self.acquire()

        def __exit__(self, *_: object) -> None:
            self.release()

    return TrackedLock


def busy() -> None:
    """Producers, a group, commits, lost connections, slow answers, flush and close, with every lock and every switch watched."""
    holders = Holders()
    with pytest.MonkeyPatch.context() as patch, MockCluster(2, {"t": 4}) as cluster:
        patch.setattr(GEventHandler, "Lock", staticmethod(tracked(holders)))
        patch.setattr(GEventHandler, "Mutex", staticmethod(tracked(holders)))
        patch.setattr(hubs, "GreenletLock", tracked(holders))  # what an RLock is made of
        greenlet.settrace(holders.trace)
        client = connect(cluster.bootstrap)
        producer = client.get_producer(batch_bytes=2000, buffer_bytes=100_000, max_request_bytes=4000, compression="gzip")
        cluster.on("Produce", Delay(0.002), times=200)
        cluster.on("Produce", Close(), times=3)

        def write(n: int) -> None:
            for i in range(40):
                producer.produce("t", b"%d-%d" % (n, i), key=b"%d" % n).result(LIMIT_S)

        writers = [gevent.spawn(write, n) for n in range(50)]
        read = 0
        with client.get_consumer("t", "g") as consumer, client.get_consumer("t", "g") as other:
            while read < 2000:
                for each in (consumer, other):
                    read += len(each.consume_batch(100, 50))
                    each.commit()
        gevent.joinall(writers, timeout=LIMIT_S, raise_error=True)
        producer.flush(LIMIT_S)
        client.close()
        greenlet.settrace(None)
    assert not holders.violations, Counter(holders.violations)
    assert holders.taken > 1000
    assert holders.switches > 1000


@greenlets
def test_27_no_lock_is_held_while_greenlets_switch(mode: str) -> None:
    in_child(mode, busy)
