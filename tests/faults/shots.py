"""F24: calls that are cut off anywhere, by gevent.Timeout, GreenletExit or a signal's KeyboardInterrupt, while connections live 0.5-1.5 s.

Whatever was cut off, nothing is lost, doubled or out of order, every delivery that a caller holds has an outcome, and the producer goes on.
"""

from __future__ import annotations

import contextlib
import random
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePath
from types import FrameType
from typing import Any, ClassVar

from gkafka.exceptions import KafkaException
from tests.faults.inside import Inside
from tests.faults.runs import Form, Line
from tests.faults.stage import PARTITIONS, Stage
from tests.kit import clock

__all__ = ["play_shots", "unheard"]

WORKERS = 8
BURST = {"threading": 30, "gevent": 12}
TIMEOUT_S = 20.0
COUNT_EVERY_S = 1.0
AGAIN_S = 0.00005
LONGEST_S = {"long": 170.0, "short": 40.0}


def unheard(frame: FrameType | None) -> bool:
    """Is this within a finalizer or a weak reference's callback? Python prints what is raised there, and the caller goes on."""
    while frame is not None:
        code = frame.f_code
        if code.co_name == "__del__" or PurePath(code.co_filename).name in ("weakref.py", "_weakrefset.py"):
            return True
        frame = frame.f_back
    return False


class _Cut(KeyboardInterrupt):
    """What a signal's handler raises: not an Exception."""


def play_shots(stage: Stage, form: Form, seed: int, clients: Sequence[str]) -> list[Line]:
    return [_play(stage, form, seed, handler) for handler in clients if handler != "confluent"]


def _play(stage: Stage, form: Form, seed: int, handler: str) -> Line:
    inside = Inside(stage, "F24", handler, form, seed, TIMEOUT_S)
    stage.plan.lifetime = (0.5, 1.5)
    shooting: _Greenlets | _Signals = (_Greenlets if handler == "gevent" else _Signals)(inside, random.Random(seed), form)
    try:
        shooting.run()
    finally:
        stage.plan.clear()
    shooting.end()
    return inside.line(shooting.shots)


class _Shooting:
    """A producer under fire. lanes: one for each caller; a caller's records of one partition stay in order.

    LEAST: of each kind of shot, by form.
    """

    LEAST: ClassVar[Mapping[str, Mapping[str, int]]]

    def __init__(self, inside: Inside, chance: random.Random, form: Form) -> None:
        self.inside, self.chance, self.form = inside, chance, form
        self.client = inside.client()
        self.producer: Any = self.client.get_producer(
            delivery_timeout_ms=TIMEOUT_S * 1000, linger_ms=2, batch_bytes=4096, buffer_bytes=131072, max_request_bytes=65536
        )
        self.least = self.LEAST[form.name]
        self.shots = dict.fromkeys(self.least, 0)
        self.deadline = clock.now() + LONGEST_S[form.name]
        self._count_at, self._acked = 0.0, 0

    @property
    def going(self) -> bool:
        now = clock.now()
        return now < self.deadline and (bool(self._missing()) or self._acknowledged(now) < self.form.acked)

    def _missing(self) -> list[str]:
        return [f"only {self.shots[kind]} of {least} {kind}" for kind, least in self.least.items() if self.shots[kind] < least]

    def _acknowledged(self, now: float) -> int:
        """Lately: every caller asks after each call, and the ledger is long."""
        if now >= self._count_at:
            self._count_at = clock.soon(COUNT_EVERY_S)
            self._acked = sum(e.acknowledged for e in self.inside.ledger.entries)
        return self._acked

    def end(self) -> None:
        """Nobody shoots any more: the producer still does everything."""
        inside = self.inside
        inside.blame += self._missing()
        with contextlib.suppress(KafkaException):
            self.producer.flush(TIMEOUT_S + 5)
        for partition in range(PARTITIONS):
            try:
                inside.produce(self.producer, -1, partition).result(60)
            except Exception as error:
                inside.blame.append(f"the producer does not go on: {error!r}")
        stats = self.producer.stats()
        inside.expect(stats["unsettled_records"] == 0, f"{stats['unsettled_records']} records are still unsettled")
        inside.expect(stats["buffer_bytes_free"] >= 131072 - 65536, f"only {stats['buffer_bytes_free']} of 131072 bytes came back")
        inside.count(self.producer)
        began = clock.now()
        with contextlib.suppress(KafkaException):
            self.producer.close(10)
            self.client.close(5)
        inside.expect(clock.figure(clock.now() - began) < 10.5 + self.form.room_s, "close() took too long")
        left = [worker for worker in self.client.handler.workers() if worker.is_alive()]
        inside.expect(not left, f"workers that did not end: {left}")


class _Greenlets(_Shooting):
    """Callers are greenlets: each call has a timeout of 0 to 5 ms, and now and then a caller is killed and another one comes."""

    LEAST: ClassVar = {"long": {"timeouts": 12_500, "kills": 6_500}, "short": {"timeouts": 500, "kills": 150}}

    def run(self) -> None:
        import gevent

        lanes = iter(range(1 << 30))
        killed: list[Any] = []
        callers = [gevent.spawn(self._call, next(lanes)) for _ in range(WORKERS)]
        while self.going:
            gevent.sleep(self.chance.random() * 0.02)
            victim = self.chance.randrange(WORKERS)
            self.shots["kills"] += not callers[victim].dead
            callers[victim].kill(block=False)
            killed.append(callers[victim])
            callers[victim] = gevent.spawn(self._call, next(lanes))
        callers += killed
        gevent.joinall(callers, timeout=60)
        self.inside.expect(all(caller.dead for caller in callers), "a caller hangs")
        odd = {repr(caller.exception) for caller in callers if caller.exception is not None}
        self.inside.expect(not odd, f"callers ended by {odd}")

    def _call(self, lane: int) -> None:
        import gevent

        while self.going:
            cut = gevent.Timeout(self.chance.random() * 0.005)
            try:
                with cut, contextlib.suppress(KafkaException):
                    self._burst(lane)
            except gevent.Timeout as timeout:
                if timeout is not cut:
                    raise
                self.shots["timeouts"] += 1
            gevent.sleep(self.chance.random() * 0.005)

    def _burst(self, lane: int) -> None:
        """So many records that the callers wait for room, too; then perhaps for a delivery or for all."""
        for _ in range(self.chance.randrange(1, BURST["gevent"])):
            entry, value = self.inside.offer(lane)
            delivery = self.producer.produce(entry.topic, value, partition=entry.partition)
            self.inside.accepted(entry, delivery)
        what = self.chance.random()
        if what < 0.2:
            delivery.result(10)
        elif what < 0.25:
            self.producer.flush(10)


class _Signals(_Shooting):
    """The main thread calls under a timer whose signal raises; other threads produce undisturbed beside it."""

    LEAST: ClassVar = {"long": {"signals": 5_000}, "short": {"signals": 250}}

    def run(self) -> None:
        beside = [self.inside.side.spawn(lambda lane=lane: self._steady(lane)) for lane in range(1, WORKERS)]  # type: ignore[misc]
        with self._timer():
            while self.going:
                self._shoot()
        for worker in beside:
            self.inside.expect(worker.join(60), "a caller hangs")
            self.inside.expect(worker.outcome is None, f"a caller that nobody shot at got {worker.outcome!r}")

    def _steady(self, lane: int) -> None:
        while self.going:
            with contextlib.suppress(KafkaException):
                self.inside.produce(self.producer, lane)
            time.sleep(0.002)

    @contextlib.contextmanager
    def _timer(self) -> Iterator[None]:
        self._armed = False
        before = signal.signal(signal.SIGALRM, self._fire)
        try:
            yield
        finally:
            self._armed = False
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)

    def _fire(self, number: int, frame: FrameType | None) -> None:
        if self._armed and unheard(frame):
            signal.setitimer(signal.ITIMER_REAL, AGAIN_S)
        elif self._armed:
            self._armed = False
            raise _Cut

    def _shoot(self) -> None:
        """Up to thirty records, so that batches fill and are sent from here, a wait or a flush; the signal comes somewhere in between."""
        records = self.chance.randrange(1, BURST["threading"])
        what = self.chance.random()
        entry = delivery = None
        signal.setitimer(signal.ITIMER_REAL, 0.00005 + self.chance.random() * (0.01 if what < 0.2 else 0.0015))
        try:
            self._armed = True
            for _ in range(records):
                self._armed = False
                entry, value = self.inside.offer(0)
                self._armed = True
                delivery = None
                delivery = self.producer.produce(entry.topic, value, partition=entry.partition)
                self._armed = False
                self.inside.accepted(entry, delivery)
                self._armed = True
            if what < 0.1 and delivery is not None:
                delivery.result(10)
            elif what < 0.2:
                self.producer.flush(10)
            self._armed = False
        except (_Cut, RuntimeError) as error:
            # Within threading.Condition.wait, Python itself makes a RuntimeError of it: "release unlocked lock".
            if not isinstance(error, _Cut) and not isinstance(error.__context__, _Cut):
                raise
            self.shots["signals"] += 1
            if entry is not None and delivery is not None and entry.accepted_at is None:
                self.inside.accepted(entry, delivery)
        except KafkaException:
            pass
        finally:
            self._armed = False
            signal.setitimer(signal.ITIMER_REAL, 0)
