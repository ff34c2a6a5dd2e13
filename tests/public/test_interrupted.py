"""An exception that a signal handler raises anywhere inside a call (KeyboardInterrupt, a timer's) leaves nothing behind, on OS threads.

Signals come to the main thread only. Here they come at a chosen line of gkafka's code, as often as a seed says, so that a hole is met again.
"""

from __future__ import annotations

import ast
import contextlib
import dis
import gc
import os
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from random import Random
from types import CodeType, FrameType, SimpleNamespace
from typing import Any

import pytest

import gkafka
from gkafka import KafkaClient, starter
from gkafka.config import ClientConfig
from gkafka.exceptions import KafkaException, NoBrokersAvailableError, NotLeaderForPartition, SocketDisconnectedError
from gkafka.failures import Failures
from gkafka.handlers.selection import resolve_handler
from gkafka.handlers.threads import ThreadEvent
from gkafka.net.channel import Channel, CutShort
from gkafka.testing import Action, Close, Delay, Drop, Error, MockCluster
from gkafka.wire.metadata import MetadataRequest
from tests.effort import seeds
from tests.kit.clock import now, soon
from tests.public.aids import LIMIT_S, Runner, stored

PACKAGE = os.path.dirname(gkafka.__file__) + os.sep
NOT_SHOT = (PACKAGE + "testing" + os.sep, PACKAGE + "records" + os.sep)
NOWHERE = dis.opmap["NOP"], dis.opmap["POP_EXCEPT"]
PARTITIONS = 3
PROMPT_S = 30.0
"""Far above what mending takes, below each timeout that could do it in its place: LATE of conftest.py among them."""
LIVES = 7


class Shot(BaseException):
    """What the handler raises."""


@pytest.fixture
def run() -> Runner:
    """Greenlets are killed where they wait, see test_killed."""
    assert threading.current_thread() is threading.main_thread()
    return Runner("threading")


# -- the gun ---------------------------------------------------------------------------------------------------------------
@cache
def with_lines(path: str) -> frozenset[int]:
    with open(path, encoding="utf-8") as file:
        return frozenset(node.lineno for node in ast.walk(ast.parse(file.read())) if isinstance(node, ast.With))


@cache
def first_offsets(code: CodeType) -> dict[int, int]:
    """Line -> where its code begins."""
    found: dict[int, int] = {}
    for start, _, line in code.co_lines():
        if line is not None:
            found.setdefault(line, start)
    return found


def is_out_of_reach(frame: FrameType) -> bool:
    """Handlers run after calls and at the start of functions and loops: neither at a bare `try:`, nor before a with statement has released
    what it took, nor at the `pass` of an `except`: CPython would take its exception for one that is being handled as long as the thread lives."""
    code = frame.f_code
    leaving = frame.f_lineno in with_lines(code.co_filename) and frame.f_lasti > first_offsets(code).get(frame.f_lineno, 0)
    return leaving or code.co_code[frame.f_lasti] in NOWHERE


CALLBACKS = [code for code in starter.held_weakly.__code__.co_consts if isinstance(code, CodeType)]
"""What Python calls when a weak reference dies."""


def is_in_finalizer(frame: FrameType | None) -> bool:
    """What is raised there, or in a weak reference's callback, is only reported."""
    while frame is not None and frame.f_code.co_name != "__del__" and frame.f_code not in CALLBACKS:
        frame = frame.f_back
    return frame is not None


class Gun:
    """`with gun.aimed(n):` raises Shot before line number n of gkafka that is run in there, if there are so many.

    shots: where it hit, as "file:line".
    """

    raises: type[BaseException] = Shot

    def __init__(self) -> None:
        self.left = 0
        self.shots: list[str] = []

    @contextlib.contextmanager
    def aimed(self, n: int) -> Iterator[None]:
        before, self.left = sys.gettrace(), n
        sys.settrace(self._call)
        try:
            yield
        finally:
            sys.settrace(before)

    def _call(self, frame: FrameType, event: str, arg: Any) -> Any:
        path = frame.f_code.co_filename
        return self._line if path.startswith(PACKAGE) and not path.startswith(NOT_SHOT) else None

    def _line(self, frame: FrameType, event: str, arg: Any) -> Any:
        if event != "line" or is_out_of_reach(frame):
            return self._line
        self.left -= 1
        if self.left <= 0 and not is_in_finalizer(frame):
            self.shots.append(f"{frame.f_code.co_filename[len(PACKAGE) :]}:{frame.f_lineno}")
            sys.settrace(None)
            raise self.raises
        return self._line


def test_no_shot_leaves_an_exception_that_counts_as_being_handled() -> None:
    """All that is raised later in that thread would have it as its context, whichever test that is."""
    gun, lines = Gun(), 20
    for n in range(1, lines):
        event = ThreadEvent()
        event._waiters.append(threading.Lock())  # somebody else woke it: set() swallows an error
        with contextlib.suppress(Shot), gun.aimed(n):
            event.set()
        assert sys.exc_info()[1] is None, gun.shots
    assert 3 < len(gun.shots) < lines - 1, "every line had its shot"


# -- a life under fire -----------------------------------------------------------------------------------------------------
class Life:
    """One producer from its first record to its close, shot at in each of its calls."""

    def __init__(self, cluster: MockCluster, gun: Gun, chance: Random, number: int, **options: Any) -> None:
        self.cluster, self.gun, self.chance, self.number = cluster, gun, chance, number
        self.buffer = options.setdefault("buffer_bytes", 1 << 16)
        self.client = KafkaClient(cluster.bootstrap, handler="threading", reconnect_backoff_ms=1)
        self.producer: Any = self.client.get_producer(
            **{"linger_ms": 1, "batch_bytes": 512, "max_request_bytes": 4096, "retry_backoff_ms": 1, **options}
        )
        self.accepted: list[tuple[int, bytes, Any]] = []
        self.made = 0
        self.begun = len(gun.shots)

    def produce(self, records: int) -> None:
        for _ in range(records):
            partition, value = self.made % PARTITIONS, b"%d-%d" % (self.number, self.made) + b"." * 60
            self.made += 1
            delivery = self.producer.produce("t", value, partition=partition)
            self.accepted.append((partition, value, delivery))

    def act(self, what: Callable[[], Any], lines: int) -> None:
        """Do it, with a shot at one of so many lines."""
        with contextlib.suppress(Shot), self.gun.aimed(self.chance.randrange(1, lines)):
            what()

    def run(self, rounds: int) -> None:
        for _ in range(rounds):
            self.act(lambda: self.produce(30), 2500)
            self.act(lambda: [delivery.result(LIMIT_S) for _, _, delivery in self.accepted[-1:]], 300)
            self.act(lambda: self.producer.flush(LIMIT_S), 300)
        where = self.gun.shots[self.begun :]
        self.goes_on(where)
        self.act(lambda: self.producer.close(LIMIT_S), 300)
        self.ends(self.gun.shots[self.begun :])

    def goes_on(self, where: list[str]) -> None:
        """Nothing is in the way of further work, and nothing takes longer than it should."""
        self.produce(10)
        begun = now()
        self.producer.flush(LIMIT_S)
        took = now() - begun
        assert took < PROMPT_S, f"flush() took {took:.1f} s after {where}"
        driver = self.producer._driver
        # A place or a flush ends with who holds it: what the shot hit may have it, in a traceback.
        Runner("threading").until(
            lambda: not (driver.memory.contended or any(flusher() for flusher in driver.notes._seen_flushes)) or (gc.collect() and False),
            PROMPT_S,
        )
        for _, _, delivery in self.accepted:
            assert delivery.result(0).offset >= 0

    def ends(self, where: list[str]) -> None:
        driver = self.producer._driver
        begun = now()
        self.producer.close(LIMIT_S)
        took = now() - begun
        assert took < PROMPT_S, f"close() took {took:.1f} s after {where}"
        assert self.producer.stats()["unsettled_records"] == 0, where
        # The connection's worker gives the memory back just after it has woken who waits. What the shot hit may have it, in a traceback.
        Runner("threading").until(lambda: driver.own_available == self.buffer or (gc.collect() and False), PROMPT_S)
        under_way = driver.sender.in_flight, driver.in_flight.requests
        assert not any(driver.sender.in_flight.values()), f"{under_way} after {where}"
        assert not driver.in_flight.requests, f"{under_way} after {where}"
        begun = now()
        self.client.close(2.0)
        took = now() - begun
        assert took < PROMPT_S, f"the client's close() took {took:.1f} s after {where}"
        left = [w for w in self.client.handler.workers() if w.is_alive()]
        assert not left, f"{left} after {where}"

    def check_log(self) -> None:
        counts = Counter(record.value for record in stored(self.cluster, partitions=range(PARTITIONS)))
        lost = [value for _, value, _ in self.accepted if not counts[value]]
        assert not lost, f"{len(lost)} lost: {lost[:3]} after {self.gun.shots[self.begun :]}"
        doubled = [value for value, count in counts.items() if count > 1]
        assert not doubled, f"{len(doubled)} doubled: {doubled[:3]} after {self.gun.shots[self.begun :]}"


def shoot(cluster: MockCluster, seed: int, *, disturb: Callable[[Random], None] = lambda chance: None, **options: Any) -> None:
    gun, chance = Gun(), Random(seed)
    for number in range(10 * LIVES):
        if number >= LIVES and len(set(gun.shots)) > LIVES:
            break
        disturb(chance)
        life = Life(cluster, gun, chance, number, **options)
        life.run(4)
        life.check_log()
    assert len(set(gun.shots)) > LIVES, "it hardly ever hit"


@pytest.mark.parametrize("seed", seeds(20))
def test_a_call_may_be_interrupted_at_any_line(make_cluster: Any, run: Runner, seed: int) -> None:
    """Each record that was accepted is in the log once, and the producer goes on."""
    shoot(make_cluster(topics={"t": PARTITIONS}), seed)


@pytest.mark.parametrize("seed", seeds(10))
def test_a_call_that_waits_for_room_may_be_interrupted_at_any_line(make_cluster: Any, run: Runner, seed: int) -> None:
    cluster = make_cluster(topics={"t": PARTITIONS})
    cluster.on("Produce", Delay(0.002), times=None)
    shoot(cluster, seed, buffer_bytes=8192)


@pytest.mark.parametrize("seed", seeds(10))
def test_a_call_may_be_interrupted_while_connections_break_and_brokers_refuse(make_cluster: Any, run: Runner, seed: int) -> None:
    cluster = make_cluster(topics={"t": PARTITIONS})
    troubles: list[Action] = [Close(before=True), Close(before=False), Error(NotLeaderForPartition.code), Delay(0.003)]

    def disturb(chance: Random) -> None:
        for _ in range(3):
            cluster.on("Produce", chance.choice(troubles))
        if chance.random() < 0.2:
            cluster.on("InitProducerId", chance.choice(troubles))

    shoot(cluster, seed, disturb=disturb)


@pytest.mark.parametrize(("error", "is_away"), [(CutShort("cut"), False), (SocketDisconnectedError("lost"), True)])
def test_a_host_is_not_away_because_callers_were_interrupted(client: KafkaClient, error: KafkaException, is_away: bool) -> None:
    """After three connections that callers had cut short, none of the hosts answered, as it was told."""
    own = client._cluster
    for _ in range(3):
        own._on_metadata(own._bootstrap[0], MetadataRequest(), None, error)
    with pytest.raises(NoBrokersAvailableError) if is_away else contextlib.nullcontext():
        own._give_up_early(0.0)


class OneByOne(Life):
    """A producer that waits for each record."""

    def run(self, rounds: int) -> None:
        for _ in range(rounds):
            self.act(lambda: self.one_by_one(8), 1600)
        where = self.gun.shots[self.begun :]
        self.goes_on(where)
        self.ends(where)

    def one_by_one(self, records: int) -> None:
        for _ in range(records):
            self.produce(1)
            self.accepted[-1][2].result(LIMIT_S)


@pytest.mark.parametrize("idempotent", [True, False])
@pytest.mark.parametrize("seed", seeds(20))
def test_who_waits_for_each_record_may_be_interrupted_at_any_line(
    make_cluster: Any, run: Runner, seed: int, idempotent: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """No connection is lost by it: also without idempotence each record is there once."""
    cluster, gun, chance = make_cluster(topics={"t": PARTITIONS}), Gun(), Random(seed)
    for number in range(LIVES):
        life = OneByOne(cluster, gun, chance, number, linger_ms=0, enable_idempotence=idempotent)
        life.run(6)
        life.check_log()
        assert life.producer.stats()["restarts"] == 0
    assert len(set(gun.shots)) > LIVES, "it hardly ever hit"
    assert not [line for line in caplog.records if line.levelname in ("ERROR", "CRITICAL")], caplog.text


# -- one step at a time ----------------------------------------------------------------------------------------------------
def at_each_line(act: Callable[[int, Gun], None], *, at_least: int) -> None:
    """act(n, gun) shoots at line number n, until there is none."""
    for n in range(1, 2000):
        gun = Gun()
        act(n, gun)
        if not gun.shots:
            assert n > at_least, "it hardly ever hit"
            return
    raise AssertionError("no end")


def test_closing_a_connection_may_be_interrupted_at_any_line(cluster: MockCluster, run: Runner) -> None:
    """Whoever waits for an answer is told, and so is the owner of the connection."""
    handler = resolve_handler("threading")
    cluster.on("Metadata", Drop(), times=None)

    def close(n: int, gun: Gun) -> None:
        host, port = cluster.brokers[1]
        closed: list[Any] = []
        told: list[Any] = []
        made = Channel(handler, host, port, ClientConfig(), on_close=lambda *about: closed.append(about))
        made.wait_open(soon(LIMIT_S))
        for index in range(3):
            made.send(MetadataRequest(topics=[]), lambda _, error, index=index: told.append(index), timeout_s=LIMIT_S)
        with contextlib.suppress(Shot), gun.aimed(n):
            made.close()
        made.close()  # it may not even have begun
        run.until(lambda: set(told) == {0, 1, 2} and closed)
        assert len(told) <= 4, "at most the one that was told at that moment is told again"
        assert made.join(LIMIT_S)

    at_each_line(close, at_least=40)
    handler.stop(soon(LIMIT_S))


class FailedBatch:
    """Stands for one of two records."""

    count, size, wire_size, topic, partition, created = 2, 100, 0, "t", 0, 0.0

    def __init__(self, name: str) -> None:
        self.name, self.held, self.extra = name, True, SimpleNamespace(persisted="no", told=False, counted=None, heard=None)

    def record(self, index: int) -> str:
        return f"{self.name}{index}"


class Buffer:
    """Stands for the appender, and for the memory that producers share: notes which batches have left it."""

    initial_bytes = 100

    def set_apart(self, batch: Any) -> None:
        batch.held = False

    def keep_apart(self, batch: Any, size: int, drop: Any) -> None:
        """There is room for everything."""

    def taken(self, batches: Any) -> None:
        """There was."""


def test_telling_what_failed_may_be_interrupted_at_any_line(run: Runner) -> None:
    """Whatever the call that was ended did not say the next one says, with the records, once; all of them leave the buffer."""

    def take(n: int, gun: Gun) -> None:
        buffer: Any = Buffer()
        failures = Failures(threading.Lock(), threading.Lock(), buffer, buffer)
        batches: list[Any] = [FailedBatch(name) for name in "abc"]
        for batch in batches:
            failures.keep(batch, NotLeaderForPartition(f"{n}"))
        failures.called(batches[0])
        error = None
        with contextlib.suppress(Shot), gun.aimed(n):
            failures.called(batches[1])
            error = failures.take()
        for batch in batches:  # by whoever puts right what was cut
            failures.keep(batch, NotLeaderForPartition(f"{n}"))
            failures.called(batch)
        if error is None:
            error = failures.take()
        assert failures.take() is None
        assert error is not None
        assert [entry.record for entry in error.records] == ["a0", "a1", "b0", "b1", "c0", "c1"]
        assert not any(batch.held for batch in batches)

    at_each_line(take, at_least=20)
