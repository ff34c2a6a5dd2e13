"""What the public suite is written with: waits with a deadline, work beside the test, records in and out."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar

from gkafka import KafkaClient
from gkafka.exceptions import KafkaException
from gkafka.testing import Action, MockCluster, StoredRecord
from gkafka.testing.server import Call
from tests.kit.clock import PATIENCE_S, Span, during, now

T = TypeVar("T")
LIMIT_S = PATIENCE_S
"""Longest wait for something that must happen. Passing tests never wait that long."""


class Aside(Generic[T]):
    """A function that runs beside the test: in a greenlet under gevent, else in a thread."""

    def __init__(self, gevent: bool, fn: Callable[..., T], args: tuple[Any, ...]) -> None:
        self._fn, self._args = fn, args
        self.value: T | None = None
        self.error: BaseException | None = None
        self.worker: Any
        if gevent:
            import gevent as library

            self.worker = library.spawn(self._run)
        else:
            self.worker = threading.Thread(target=self._run, daemon=True)
            self.worker.start()

    def _run(self) -> None:
        try:
            self.value = self._fn(*self._args)
        except BaseException as error:
            self.error = error

    @property
    def running(self) -> bool:
        return bool(self.worker.is_alive()) if isinstance(self.worker, threading.Thread) else not self.worker.dead

    def result(self, timeout: float = LIMIT_S) -> T:
        self.worker.join(timeout)
        assert not self.running, f"{self._fn} is not done after {timeout:g} s"
        if self.error is not None:
            raise self.error
        return self.value  # type: ignore[return-value]


def limit_calls(client: KafkaClient, api_timeout_ms: float) -> None:
    """Have each call from here on end by then: what has to succeed was done before, in all the time that a busy machine takes."""
    client.cluster.config = dataclasses.replace(client.cluster.config, api_timeout_ms=api_timeout_ms)


class Runner:
    """One way of concurrency, as tests use it. name: "threading" or "gevent"."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.gevent = name == "gevent"

    def aside(self, fn: Callable[..., T], *args: Any) -> Aside[T]:
        """Run fn beside the test."""
        return Aside(self.gevent, fn, args)

    def sleep(self, seconds: float) -> None:
        if self.gevent:
            import gevent as library

            library.sleep(seconds)
        else:
            time.sleep(seconds)

    def until(self, what: Callable[[], T], timeout: float = LIMIT_S) -> T:
        """What what() returns, once that is true."""
        deadline = now() + timeout
        while not (found := what()):
            assert now() < deadline, f"not true within {timeout:g} s"
            self.sleep(0.005)
        return found

    def stays(self, what: Callable[[], Any], seconds: float = 0.2) -> bool:
        """Is it true all the time?"""
        for _ in during(seconds, pause=0):
            if not what():
                return False
            self.sleep(0.005)
        return True


@contextlib.contextmanager
def short_of_time(producer: Any, seconds: float) -> Iterator[None]:
    """Meanwhile a native producer gives up after so many seconds what it has to deliver. What must be delivered is so before or afterwards."""
    limits = producer._driver.sender.delivery_limits
    usual, limits.timeout_s = limits.timeout_s, seconds
    producer._driver.worker.signal.set()
    yield
    limits.timeout_s = usual


class Clock:
    """`with Clock() as clock:` and afterwards clock.seconds."""

    def __enter__(self) -> Clock:
        self._begun = now()
        self.seconds = Span("inf")
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = now() - self._begun

    @property
    def so_far(self) -> Span:
        return now() - self._begun


class Others:
    """`with Others() as others:` another greenlet of this hub that wants a turn each millisecond; others.turns: how many it has had."""

    def __enter__(self) -> Others:
        import gevent

        self.turns, self._is_over = 0, False
        self._greenlet = gevent.spawn(self._run, gevent.sleep)
        gevent.sleep(0.003)
        self.turns = 0
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over = True
        self._greenlet.join()

    def _run(self, sleep: Callable[[float], None]) -> None:
        while not self._is_over:
            sleep(0.001)
            self.turns += 1


class Held(Action):
    """Wait until `released`, then do `then` (or what a broker does). Meanwhile the connection's next requests wait in the socket."""

    def __init__(self, then: Action | None = None) -> None:
        self.then = then
        self.released = False
        self.holds = False

    def run(self, call: Call) -> None:
        self.holds = True
        if not self.released:
            call.after(0.002, lambda: self.run(call))
        elif self.then is not None:
            self.then.run(call)
        else:
            call.act(call.send)


def stored(cluster: MockCluster, topic: str = "t", partitions: Iterable[int] = (0,)) -> list[StoredRecord]:
    return [record for p in partitions for record in cluster.log(topic, p)]


def stored_values(cluster: MockCluster, topic: str = "t", partitions: Iterable[int] = (0,)) -> list[bytes | None]:
    return [record.value for record in stored(cluster, topic, partitions)]


def fill(client: Any, values: Sequence[bytes | None], *, topic: str = "t", partition: int = 0, batches: int = 1) -> None:
    """Write values into a partition, in so many batches."""
    with client.get_producer(linger_ms=60_000) as producer:
        size = -(-len(values) // batches)
        for start in range(0, len(values), size):
            for value in values[start : start + size]:
                producer.produce(topic, value, partition=partition)
            producer.flush(LIMIT_S)


def read(consumer: Any, count: int, timeout: float = LIMIT_S, *, size: int = 1 << 40) -> list[Any]:
    """The next `count` messages, no more than `size` a call; errors are raised."""
    got: list[Any] = []
    deadline = now() + timeout
    while len(got) < count:
        assert now() < deadline, f"{len(got)} of {count} messages within {timeout:g} s"
        got += consumer.consume_batch(min(size, count - len(got)), timeout_ms=200)
    return got


def by_partition(messages: Iterable[Any]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for message in messages:
        found.setdefault(message.partition_id, []).append(message.offset)
    return found


def error_of(fn: Callable[..., Any], *args: Any, **about: Any) -> KafkaException:
    """The error of gkafka that a call raises."""
    try:
        fn(*args, **about)
    except KafkaException as error:
        return error
    raise AssertionError(f"{fn} raised nothing")
