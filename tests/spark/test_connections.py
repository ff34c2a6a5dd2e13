"""Clients that outlive a task, taken and given back by two threads: the driver's, and the worker of commitGroup."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from gkafka.spark import connections
from gkafka.spark.connections import close_all, connected
from gkafka.spark.options import parse

TURNS = 20_000


@pytest.fixture
def _many_switches() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


class Client:
    def __init__(self, clock: Any) -> None:
        self.handler, self.closed = SimpleNamespace(monotonic=clock), False

    def close(self) -> None:
        self.closed = True


@pytest.mark.usefixtures("_many_switches")
@pytest.mark.parametrize("age", [0.0, 100.0, 1000.0], ids=["young", "some are old", "old at once"])
def test_two_threads_lose_no_client_and_share_none(monkeypatch: pytest.MonkeyPatch, age: float) -> None:
    """age: seconds from one look at the clock to the next; a client is too old after 300."""
    properties = parse({"kafka.bootstrap.servers": "h:1", "subscribe": "t"}).kafka
    made: list[Client] = []
    in_use: set[Client] = set()
    errors: list[BaseException] = []
    times = iter(range(1 << 60))

    def new(*_: Any) -> Any:
        client = Client(lambda: next(times) * age)
        made.append(client)
        return client

    def work() -> None:
        try:
            for _ in range(TURNS):
                with connected(properties) as client:
                    found: Any = client
                    assert found not in in_use
                    in_use.add(found)
                    in_use.remove(found)
        except BaseException as exc:
            errors.append(exc)

    monkeypatch.setattr(connections, "_new", new)
    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    close_all()
    assert errors == []
    assert all(client.closed for client in made)
