"""Under gevent a signal handler's exception is raised in whatever greenlet is on CPU. If that is a worker of gkafka's, the exception reaches the
program all the same, and another worker goes on.
"""

from __future__ import annotations

import itertools
import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from random import Random
from types import FrameType
from typing import Any, TypeVar

import gevent
import pytest

from gkafka import KafkaClient
from gkafka.net.inbox import Inbox
from gkafka.net.reader import Reader
from gkafka.producerdriver import ProducerDriver
from gkafka.testing import MockCluster
from tests.effort import seeds
from tests.kit.clock import now
from tests.public.aids import LIMIT_S, stored
from tests.public.test_interrupted import PARTITIONS, Gun, Shot

T = TypeVar("T")
LIVES = 3
"""For each seed and each kind of exception."""
NUMBERS = itertools.count()
"""Of records: one whose produce() was interrupted may be there or not, and the next try is another one."""


class CtrlC(KeyboardInterrupt):
    """What the handler raises; gevent takes it to the main greenlet, too."""


class Alarm(Exception):
    """What a handler raises that gives the program a deadline of its own."""


class SlowAlarm(TimeoutError):
    """The same, of a kind that is an OSError as well."""


class WorkersGun(Gun):
    """Shoots only at workers of gkafka's, and with what a signal handler raises. Not inside gkafka's handler of concurrency: it comes between lines
    there that a real signal does not come between; those are in tests/handlers/test_signals.py.
    """

    def __init__(self, raises: type[BaseException]) -> None:
        super().__init__()
        self.with_handler = raises

    def _line(self, frame: FrameType, event: str, arg: Any) -> Any:
        inside = os.sep + "handlers" + os.sep in frame.f_code.co_filename
        if inside or not str(getattr(gevent.getcurrent(), "name", "")).startswith("gkafka-"):
            return self._line
        try:
            return super()._line(frame, event, arg)
        except Shot:
            signal.raise_signal(signal.SIGUSR1)
            raise AssertionError("the handler did not run") from None

    def handle(self, *_: object) -> None:
        raise self.with_handler


@pytest.fixture(params=[CtrlC, Alarm, SlowAlarm], ids=lambda kind: kind.__name__)
def gun(request: pytest.FixtureRequest) -> Iterator[WorkersGun]:
    made = WorkersGun(request.param)
    before = signal.signal(signal.SIGUSR1, made.handle)
    yield made
    signal.signal(signal.SIGUSR1, before)


def through(call: Callable[[], T]) -> T:
    """What the call gives in the end, however often it is interrupted."""
    while True:
        try:
            return call()
        except (CtrlC, Alarm, SlowAlarm):
            continue


def shoot_at(kind: type, method: str, gun: WorkersGun, chance: Random, patch: pytest.MonkeyPatch) -> None:
    """At some line inside every other call of the method that a worker makes."""
    whole: Callable[..., Any] = getattr(kind, method)

    def under_fire(*args: Any) -> Any:
        if chance.random() < 0.5 and str(getattr(gevent.getcurrent(), "name", "")).startswith("gkafka-pro"):
            with gun.aimed(chance.randrange(1, 150)):
                return whole(*args)
        return whole(*args)

    patch.setattr(kind, method, under_fire)


@pytest.mark.parametrize("seed", seeds(10))
def test_a_producer_whose_worker_is_interrupted_at_any_line_delivers_everything_once(
    make_cluster: Any, monkeypatch: pytest.MonkeyPatch, seed: int, gun: WorkersGun
) -> None:
    cluster: MockCluster = make_cluster(topics={"t": PARTITIONS})
    shoot_at(ProducerDriver, "_drive", gun, Random(seed), monkeypatch)
    live_under_fire(cluster, gun)


@pytest.mark.parametrize("seed", seeds(10))
def test_a_producer_whose_connections_worker_is_interrupted_at_any_line_delivers_everything_once(
    make_cluster: Any, monkeypatch: pytest.MonkeyPatch, seed: int, gun: WorkersGun
) -> None:
    cluster: MockCluster = make_cluster(topics={"t": PARTITIONS})
    shoot_at(Inbox, "answer", gun, Random(seed), monkeypatch)
    live_under_fire(cluster, gun)


def test_a_batch_whose_answer_was_lost_between_two_signals_is_sent_again_and_is_there_once(
    make_cluster: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing is told of it, also when its time is over: the worker begins anew then."""
    cluster: MockCluster = make_cluster(topics={"t": 1})
    monkeypatch.setattr("gkafka.inflight.LOST_S", 0.1)
    lost: list[Any] = []
    on_answer = ProducerDriver._on_answer

    def losing(driver: ProducerDriver, *answer: Any) -> None:
        if lost:
            on_answer(driver, *answer)
        lost.append(answer)

    monkeypatch.setattr(ProducerDriver, "_on_answer", losing)
    with KafkaClient(cluster.bootstrap, handler="gevent") as client:
        producer = client.get_producer(request_timeout_ms=100)
        producer.produce("t", b"one", partition=0).result(LIMIT_S)
        assert len(lost) > 1
        assert producer.stats()["restarts"] == 1
        assert [line.levelname for line in caplog.records if "an answer was lost" in line.getMessage()] == ["WARNING"]
        assert not producer._driver.in_flight.requests
    assert [record.value for record in stored(cluster, partitions=[0])] == [b"one"]


@pytest.mark.parametrize("seed", seeds(7))
def test_outcomes_that_were_being_told_when_a_signal_came_are_told_once(
    make_cluster: Any, monkeypatch: pytest.MonkeyPatch, seed: int, gun: WorkersGun
) -> None:
    cluster: MockCluster = make_cluster(topics={"t": PARTITIONS})
    shoot_at(ProducerDriver, "finish", gun, Random(seed), monkeypatch)
    live_under_fire(cluster, gun, callbacks=True)


def test_what_a_signal_handler_raises_in_a_worker_reaches_the_program(
    make_cluster: Any, monkeypatch: pytest.MonkeyPatch, gun: WorkersGun, caplog: pytest.LogCaptureFixture
) -> None:
    cluster: MockCluster = make_cluster(topics={"t": 1})
    whole, armed = Inbox.answer, False

    def under_fire(inbox: Inbox, frame: memoryview) -> None:
        if not armed or gun.shots:
            return whole(inbox, frame)
        with gun.aimed(3):
            return whole(inbox, frame)

    monkeypatch.setattr(Inbox, "answer", under_fire)
    client = KafkaClient(cluster.bootstrap, handler="gevent")
    producer: Any = client.get_producer()
    producer.produce("t", b"1").result(LIMIT_S)
    armed = True
    with pytest.raises(gun.with_handler):
        producer.produce("t", b"2").result(LIMIT_S)
    producer.flush(LIMIT_S)
    assert [record.value for record in stored(cluster)] == [b"1", b"2"]
    assert not [line for line in caplog.records if line.levelname in ("ERROR", "CRITICAL")], caplog.text
    client.close(LIMIT_S)


def test_a_restart_is_counted_and_logged_once_with_its_cause_and_a_programs_end_shows_nothing(
    make_cluster: Any, monkeypatch: pytest.MonkeyPatch, gun: WorkersGun, caplog: pytest.LogCaptureFixture
) -> None:
    cluster: MockCluster = make_cluster(topics={"t": 1})
    whole, armed = ProducerDriver._send, False

    def under_fire(driver: ProducerDriver, *args: Any) -> None:
        if not armed or gun.shots:
            return whole(driver, *args)
        with gun.aimed(3):
            return whole(driver, *args)

    monkeypatch.setattr(ProducerDriver, "_send", under_fire)
    with KafkaClient(cluster.bootstrap, handler="gevent") as client:
        producer: Any = client.get_producer()
        producer.produce("t", b"1").result(LIMIT_S)
        armed = True
        caplog.set_level("INFO", "gkafka")
        with pytest.raises(gun.with_handler):
            producer.produce("t", b"2").result(LIMIT_S)
        producer.flush(LIMIT_S)
        assert producer.stats()["restarts"] == 1
    told = f"{gun.with_handler.__name__} interrupted one of its workers"
    assert [line.levelname for line in caplog.records if told in line.getMessage()] == ["INFO"]
    assert [record.value for record in stored(cluster)] == [b"1", b"2"]


def test_a_connections_worker_that_is_interrupted_before_its_first_step_keeps_nobody_waiting(
    make_cluster: Any, monkeypatch: pytest.MonkeyPatch, gun: WorkersGun
) -> None:
    cluster: MockCluster = make_cluster(topics={"t": 1})
    whole, hits = Reader._run, 0

    def under_fire(reader: Reader) -> None:
        nonlocal hits
        if "-produce-" in reader._name and not hits:
            hits += 1
            signal.raise_signal(signal.SIGUSR1)
        whole(reader)

    monkeypatch.setattr(Reader, "_run", under_fire)
    client = KafkaClient(cluster.bootstrap, handler="gevent", reconnect_backoff_ms=1)
    producer: Any = client.get_producer(delivery_timeout_ms=LIMIT_S * 1000)
    accepted = [through(lambda: producer.produce("t", b"1"))]
    begun = now()
    through(lambda: producer.flush(LIMIT_S))
    assert now() - begun < 30
    assert hits
    assert accepted[0].result(0).offset in (0, 1)  # the exception may come while produce() waits, and what it had accepted is there, too
    client.close(LIMIT_S)


def live_under_fire(cluster: MockCluster, gun: WorkersGun, *, callbacks: bool = False) -> None:
    """So many lives, and more until it has been hit in so many places."""
    for number in range(20 * LIVES):
        if number >= LIVES and len(set(gun.shots)) >= LIVES:
            break
        live(cluster, gun, callbacks=callbacks)
    assert len(set(gun.shots)) >= LIVES, gun.shots


def live(cluster: MockCluster, gun: WorkersGun, *, callbacks: bool = False) -> None:
    first = len(gun.shots)
    client = KafkaClient(cluster.bootstrap, handler="gevent", reconnect_backoff_ms=1)
    producer: Any = client.get_producer(linger_ms=1, batch_bytes=512, max_request_bytes=4096, retry_backoff_ms=1)
    accepted: list[tuple[bytes, Any]] = []
    called: list[int] = []

    def produce(value: bytes) -> None:
        accepted.append((value, producer.produce("t", value, partition=len(accepted) % PARTITIONS)))
        if callbacks:
            number = len(accepted)
            accepted[-1][1].add_done_callback(lambda _: called.append(number))

    for at in range(90):
        through(lambda: produce(b"%d" % next(NUMBERS) + b"." * 60))
        if at % 30 == 29:
            begun = now()
            through(lambda: producer.flush(LIMIT_S))
            assert now() - begun < 30, f"after {gun.shots[first:]}"
    for value, delivery in accepted:
        assert delivery.result(0).offset >= 0, (value, gun.shots[first:])
    begun = now()
    through(lambda: client.close(LIMIT_S))
    assert now() - begun < 30, f"after {gun.shots[first:]}"
    counts = Counter(record.value for record in stored(cluster, partitions=range(PARTITIONS)))
    assert all(counts[value] == 1 for value, _ in accepted), gun.shots[first:]
    assert sorted(called) == list(range(1, len(accepted) + 1) if callbacks else []), gun.shots[first:]
    assert producer._driver.own_available == producer.config.buffer_bytes, gun.shots[first:]
    assert not [w for w in client.handler.workers() if w.is_alive()]
