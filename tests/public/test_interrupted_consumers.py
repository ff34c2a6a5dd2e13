"""An exception that a signal handler raises in a consumer's call, or with greenlets in one of its workers, skips no record and repeats none."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from random import Random
from types import FrameType, SimpleNamespace
from typing import Any

import gevent
import pytest

from gkafka import KafkaClient, nativeconsumer
from gkafka.exceptions import AssignmentError, NoOffsetForPartitionError, SerializationError
from gkafka.fetchdriver import FetchDriver
from gkafka.groupoffsets import GroupOffsets
from gkafka.membership import Member
from gkafka.net.inbox import Inbox
from gkafka.sharing import Share
from gkafka.testing import MockCluster
from tests.effort import seeds
from tests.kit.clock import now
from tests.public.aids import LIMIT_S, Runner, fill
from tests.public.test_interrupted import PARTITIONS, PROMPT_S, Gun, Shot
from tests.public.test_interrupted_greenlets import Alarm, WorkersGun, through
from tests.public.test_interrupted_greenlets import gun as gun  # a fixture

RECORDS = 60
BATCHES = 10
LIVES = 4
MANY, SIGNALS = 20_000, 40
"""Records that lie at hand, and how many signals come among them."""
EARLIEST_S, LATEST_S = 0.00005, 0.02
QUICK: dict[str, Any] = {"fetch_wait_max_ms": 20, "fetch_error_backoff_ms": 5, "fetch_message_max_bytes": 400}


class CallersGun(Gun):
    """Shoots at no worker of gkafka's, and not inside the primitives: see WorkersGun."""

    def _line(self, frame: FrameType, event: str, arg: Any) -> Any:
        inside = os.sep + "handlers" + os.sep in frame.f_code.co_filename
        if inside or str(getattr(gevent.getcurrent(), "name", "")).startswith("gkafka-"):
            return self._line
        return super()._line(frame, event, arg)


@pytest.fixture
def alarm(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[float], None]]:
    """alarm(seconds): Alarm is raised after that, wherever the program is."""
    # It hits destructors of Python's own, too, its Thread.start() and socket(): and pytest while that takes down what these say.
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)

    def ring(*_: object) -> None:
        raise Alarm

    before = signal.signal(signal.SIGALRM, ring)
    yield lambda seconds: signal.setitimer(signal.ITIMER_REAL, seconds) and None
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def cluster(make_cluster: Any) -> MockCluster:
    """Each partition has its numbers as values."""
    made: MockCluster = make_cluster(topics={"t": PARTITIONS})
    with KafkaClient(made.bootstrap, handler="threading") as client:
        for partition in range(PARTITIONS):
            fill(client, [b"%d" % n for n in range(RECORDS)], partition=partition, batches=BATCHES)
    return made


def shoot_at(
    kind: type, method: str, gun: WorkersGun, chance: Random, patch: pytest.MonkeyPatch, lines: int, share: float, *, hits: bool = False
) -> None:
    """At one of so many lines inside that share of the calls that a worker makes of the method. hits: inside each until one is hit."""
    whole: Callable[..., Any] = getattr(kind, method)

    def under_fire(*args: Any) -> Any:
        if ((hits and not gun.shots) or chance.random() < share) and str(getattr(gevent.getcurrent(), "name", "")).startswith("gkafka-"):
            with gun.aimed(chance.randrange(1, lines)):
                return whole(*args)
        return whole(*args)

    patch.setattr(kind, method, under_fire)


def lives(gun: Gun) -> Iterator[int]:
    """So many, and more until it has been hit in half as many places."""
    for number in range(20 * LIVES):
        if number >= LIVES and len(set(gun.shots)) >= LIVES // 2:
            return
        yield number
    raise AssertionError(f"it hardly ever hit: {gun.shots}")


@contextlib.contextmanager
def consuming(cluster: MockCluster, handler: str, **options: Any) -> Iterator[Any]:
    client = KafkaClient(cluster.bootstrap, handler=handler, reconnect_backoff_ms=1)
    consumer: Any = through(lambda: client.get_consumer(**{**QUICK, **options}))
    through(lambda: consumer.assign({("t", p): 0 for p in range(PARTITIONS)}))
    try:
        yield consumer
    finally:
        begun = now()
        through(lambda: client.close(LIMIT_S))
        through(lambda: Runner(handler).sleep(0.005))  # what a signal raised in a worker comes when the program waits the next time
        assert now() - begun < 30
        assert not [w for w in client.handler.workers() if w.is_alive()]


def read_everything(consume: Callable[[], list[Any]], shots: Sequence[str] = (), first: int = 0) -> None:
    """Each record once and in its place. shots[first:]: where it was interrupted meanwhile."""
    got: dict[int, list[int]] = {p: [] for p in range(PARTITIONS)}
    begun = now()
    while sum(map(len, got.values())) < PARTITIONS * RECORDS:
        assert now() - begun < LIMIT_S, f"{ {p: len(n) for p, n in got.items()} } after {shots[first:][-50:]}"
        for message in consume():
            got[message.partition_id].append(message.offset)
    for partition, offsets in got.items():
        assert offsets == list(range(RECORDS)), f"{partition}: {offsets} after {shots[first:]}"


@pytest.mark.parametrize(
    ("kind", "method", "lines", "share"),
    [
        (FetchDriver, "turn", 200, 0.3),
        (FetchDriver, "_fetched", 200, 0.3),
        (Inbox, "answer", 200, 0.3),
        (FetchDriver, "restart", 25, 0.8),
    ],
    ids=lambda about: about if isinstance(about, str) else "",
)
@pytest.mark.parametrize("seed", seeds(8))
def test_a_consumer_whose_workers_are_interrupted_at_any_line_reads_everything_once(
    cluster: MockCluster,
    monkeypatch: pytest.MonkeyPatch,
    seed: int,
    gun: WorkersGun,
    kind: type,
    method: str,
    lines: int,
    share: float,
    caplog: Any,
) -> None:
    shoot_at(kind, method, gun, Random(seed), monkeypatch, lines, share)
    if method == "restart":  # which is called where somebody was interrupted
        shoot_at(kind, "_fetched", gun, Random(seed), monkeypatch, 200, 0.3)
    for _ in lives(gun):
        first = len(gun.shots)
        with consuming(cluster, "gevent") as consumer:
            read_everything(lambda: through(lambda: consumer.consume_batch(7, 50)), gun.shots, first)
    assert not [line for line in caplog.records if line.levelname in ("ERROR", "CRITICAL")], caplog.text


@pytest.mark.parametrize("handler", ["threading", "gevent"])
@pytest.mark.parametrize("seed", seeds(12))
def test_a_call_that_consumes_may_be_interrupted_at_any_line(cluster: MockCluster, seed: int, handler: str) -> None:
    """What it was about to hand out the next one does."""
    gun, chance = CallersGun(), Random(seed)

    def consume() -> list[Any]:
        got: list[Any] = []
        with contextlib.suppress(Shot), gun.aimed(chance.randrange(1, 1200)):
            got.extend(consumer._engine.consume_batch(7, 20))  # the skin around it calls nothing when it has returned
        return got

    for _ in lives(gun):
        first = len(gun.shots)
        with consuming(cluster, handler) as consumer:
            read_everything(consume, gun.shots, first)


def by_calls(consumer: Any, kept: list[Any]) -> None:
    while True:
        kept.append(consumer.consume(50))
        if kept[-1] is None:
            return


def by_iteration(consumer: Any, kept: list[Any]) -> None:
    for message in consumer:
        kept.append(message)
        if message.offset == MANY - 1:
            return


@pytest.mark.parametrize("how", [by_calls, by_iteration])
@pytest.mark.parametrize("options", [{}, {"value_deserializer": bytes}], ids=["plain", "deserializing"])
def test_real_signals_among_records_that_lie_at_hand_skip_none_and_repeat_none(
    make_cluster: Any, alarm: Callable[[float], None], how: Callable[[Any, list[Any]], None], options: dict[str, Any]
) -> None:
    """Python looks for signals behind each call of a compiled function: nobody would have the record that it returned."""
    chance, caught, begun = Random(1), 0, now()
    made: MockCluster = make_cluster(topics={"t": 1})
    with KafkaClient(made.bootstrap, handler="threading", reconnect_backoff_ms=1) as client:
        fill(client, [b"%d" % n for n in range(MANY)], batches=4)
        with client.get_consumer(fetch_wait_max_ms=20, **options) as consumer:
            consumer.assign({("t", 0): 0})
            due = 0
            while caught < SIGNALS:
                assert now() - begun < LIMIT_S
                if due == MANY:
                    consumer.seek(("t", 0), 0)
                    due = 0
                kept: list[Any] = []
                try:
                    alarm(chance.uniform(EARLIEST_S, LATEST_S))
                    how(consumer, kept)
                    alarm(0)
                except (Alarm, SerializationError):  # the latter if it was raised within the deserializer
                    caught += 1
                got = [message.offset for message in kept if message is not None]
                assert got == list(range(due, due + len(got)))
                due += len(got)


def test_columns_that_a_signal_handler_kept_from_their_caller_come_again(cluster: MockCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are of several partitions, and were being put together."""
    whole, cut = nativeconsumer.joined, 0

    def interrupted(*args: Any) -> Any:
        nonlocal cut
        cut += 1
        if cut == 1:
            raise Alarm
        return whole(*args)

    monkeypatch.setattr(nativeconsumer, "joined", interrupted)

    def consume() -> list[Any]:
        with contextlib.suppress(Alarm):
            found = consumer.consume_arrow(None, 50).to_pydict()
            return [SimpleNamespace(partition_id=p, offset=o) for p, o in zip(found["partition"], found["offset"], strict=True)]
        return []

    with consuming(cluster, "threading") as consumer:
        read_everything(consume)
    assert cut > 1


def test_few_records_that_a_signal_handler_kept_from_their_caller_come_again(cluster: MockCluster) -> None:
    """They lie at hand, and are taken in one step: the handler raises behind it, before the call returns."""
    taken: list[Any] = []

    def several(most: int) -> list[Any]:
        taken.extend(consumer._engine.run.several(1 << 20, most))
        if taken:
            raise Alarm
        return []

    def consume() -> list[Any]:
        if not taken:
            with contextlib.suppress(Alarm):
                consumer._engine.taker.few_by(several)(2)
        got: list[Any] = consumer.consume_batch(1, 20)
        return got

    with consuming(cluster, "threading") as consumer:
        read_everything(consume)
    assert len(taken) == 2


def test_what_a_signal_handler_raises_in_a_fetch_worker_reaches_the_program(
    cluster: MockCluster, monkeypatch: pytest.MonkeyPatch, gun: WorkersGun, caplog: pytest.LogCaptureFixture
) -> None:
    whole, hits = FetchDriver._drive, 0

    def under_fire(driver: FetchDriver, share: Any, now: float) -> float:
        nonlocal hits
        if not hits and str(getattr(gevent.getcurrent(), "name", "")).startswith("gkafka-fetcher"):
            hits += 1
            signal.raise_signal(signal.SIGUSR1)
        return whole(driver, share, now)

    monkeypatch.setattr(FetchDriver, "_drive", under_fire)
    client = KafkaClient(cluster.bootstrap, handler="gevent")
    consumer: Any = client.get_consumer(**QUICK)

    def consume() -> None:
        consumer.assign({("t", p): 0 for p in range(PARTITIONS)})
        gevent.sleep(PROMPT_S)

    with pytest.raises(gun.with_handler):
        consume()
    consumer.assign({("t", p): 0 for p in range(PARTITIONS)})
    read_everything(lambda: consumer.consume_batch(100, 50))
    assert not [line for line in caplog.records if line.levelname in ("ERROR", "CRITICAL")], caplog.text
    client.close(LIMIT_S)


@pytest.mark.parametrize(
    ("kind", "method", "lines", "share"),
    [(Member, "_drive", 60, 0.5), (Member, "_answered", 30, 0.5), (Member, "_do", 100, 0.8), (Share, "look_after", 20, 0.5)],
    ids=lambda about: about if isinstance(about, str) else "",
)
@pytest.mark.parametrize("seed", seeds(8))
def test_a_member_whose_workers_are_interrupted_at_any_line_stays_one_and_commits(
    cluster: MockCluster, monkeypatch: pytest.MonkeyPatch, seed: int, gun: WorkersGun, kind: type, method: str, lines: int, share: float
) -> None:
    """Heartbeats, callbacks and commits go on; what was read and committed is not read again."""
    shoot_at(kind, method, gun, Random(seed), monkeypatch, lines, share, hits=True)
    client = KafkaClient(cluster.bootstrap, handler="gevent", reconnect_backoff_ms=1)
    assigned: list[Any] = []
    options: dict[str, Any] = {
        **QUICK,
        "heartbeat_interval_ms": 20,
        "session_timeout_ms": 60_000,
        "auto_commit_interval_ms": 20,
        "on_assigned": lambda _, partitions: assigned.extend(partitions),
    }
    consumer: Any = through(lambda: client.get_consumer("t", "g", **options))

    def take(limit_ms: float) -> list[Any]:
        try:
            return through(lambda: consumer.consume_batch(7, limit_ms))  # type: ignore[no-any-return]
        except AssignmentError:  # a signal inside an assignor costs it that assignment, and is told
            return []

    read_everything(lambda: take(50), gun.shots)
    assert len(set(assigned)) == PARTITIONS
    generation = consumer.stats()["group"]["generation"]
    begun = now()
    while {p: entry.offset for (_, p), entry in cluster.committed("g").items()} != dict.fromkeys(range(PARTITIONS), RECORDS):
        assert now() - begun < LIMIT_S, f"{cluster.committed('g')} after {gun.shots}"
        assert take(20) == []
    assert consumer.stats()["group"]["generation"] >= generation
    assert consumer.stats()["group"]["losses"] == 0
    assert gun.shots
    monkeypatch.undo()
    begun = now()
    through(lambda: client.close(LIMIT_S))
    through(lambda: gevent.sleep(0.005))
    assert now() - begun < 30, gun.shots
    assert not [w for w in client.handler.workers() if w.is_alive()]


def test_an_interruption_begins_no_partition_that_nobody_has_placed(cluster: MockCluster) -> None:
    """It waits for seek() as before: beginning at the start of the log would be somebody's choice."""
    with KafkaClient(cluster.bootstrap) as client, client.get_consumer("t", auto_offset_reset="none") as consumer:
        consumer.pause([("t", p) for p in range(1, PARTITIONS)])
        consumer.seek(("t", 0), 0)
        driver = consumer._engine._driver
        with driver.lock:
            driver.step.tear(Alarm())
        driver.kick()
        begun = now()
        while not driver.restarts:
            assert now() - begun < LIMIT_S
            client.handler.sleep(0.01)
        assert {tp.partition: offset for tp, offset in consumer.positions().items()} == {p: 0 if p == 0 else -1 for p in range(PARTITIONS)}
        with pytest.raises(NoOffsetForPartitionError):
            consumer.consume_batch(5, 100)


@pytest.mark.parametrize("handler", ["threading", "gevent"])
def test_a_stop_that_was_interrupted_while_it_commits_is_done_by_the_next_one(
    cluster: MockCluster, monkeypatch: pytest.MonkeyPatch, handler: str
) -> None:
    with KafkaClient(cluster.bootstrap, handler=handler) as client:
        consumer = client.get_consumer(None, "g")
        consumer.assign({("t", 0): 0})
        assert len(consumer.consume_batch(10, 20_000)) == 10
        with monkeypatch.context() as patch:
            patch.setattr(GroupOffsets, "finish", interrupted)
            with pytest.raises(Alarm):
                consumer.stop()
        consumer.stop()
        assert cluster.committed("g")["t", 0].offset == 10


def interrupted(*args: Any, **how: Any) -> Any:
    raise Alarm


@pytest.mark.parametrize("handler", ["threading", "gevent"])
def test_a_commit_that_was_interrupted_as_it_ends_leaves_the_turn_to_the_next_one(cluster: MockCluster, handler: str) -> None:
    with KafkaClient(cluster.bootstrap, handler=handler) as client, client.get_consumer(None, "g", auto_commit=False) as consumer:
        offsets = consumer._engine.offsets
        offsets._waiting = SimpleNamespace(copy=interrupted)
        with pytest.raises(Alarm):
            consumer.commit({("t", 0): 1}, timeout=20)
        offsets._waiting = []
        consumer.commit({("t", 0): 2}, timeout=20)
        assert cluster.committed("g")["t", 0].offset == 2


@pytest.mark.parametrize("columns", [False, True], ids=["records", "columns"])
def test_who_takes_beside_an_interrupted_caller_lets_the_worker_begin_anew(
    cluster: MockCluster, monkeypatch: pytest.MonkeyPatch, columns: bool
) -> None:
    """It went round with the lock until its time was over, and the worker waited for the lock."""
    with KafkaClient(cluster.bootstrap, handler="threading") as client, client.get_consumer() as consumer:
        consumer.assign({("t", 0): 0})
        driver, reader = consumer._engine._driver, consumer._engine.taker.reader
        name = "read_columns" if columns else "read"
        whole, torn = getattr(reader, name), []

        def read(*args: Any) -> Any:
            if not torn:
                torn.append(True)
                with driver.lock:
                    driver.step.tear(Alarm())
            return whole(*args)

        monkeypatch.setattr(reader, name, read)
        got = consumer.consume_arrow(5, LIMIT_S * 1000).num_rows if columns else len(consumer.consume_batch(5, LIMIT_S * 1000))
        assert got == 5
        assert driver.restarts == 1
