"""F24: calls and workers that are cut off anywhere, while connections live a second: by gevent.Timeout, GreenletExit, a signal's KeyboardInterrupt, and by
what one thread raises in another. F24-tx: the same of transactions. F24-rate: a hundred signals a second. F30: the same of consumers without a group.

Whatever was cut off, nothing is lost, doubled or out of order, every delivery that a caller holds has an outcome, and the producer goes on. A read_committed
reader sees the transactions that were committed, and nothing else.
"""

from __future__ import annotations

import bisect
import contextlib
import dataclasses
import gc
import random
import statistics
import sys
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, cast

from gkafka.exceptions import KafkaException
from tests.faults.groups import GroupLine
from tests.faults.guns import SignalGun, WorkerGun, was_cut
from tests.faults.inside import Inside
from tests.faults.ledger import Entry
from tests.faults.loads import TIMEOUT_S, Bursts, Workload
from tests.faults.reads import Reads
from tests.faults.restarts import STATES, Restarts
from tests.faults.runs import Form, Line
from tests.faults.stage import Stage
from tests.faults.txload import Transactions
from tests.kit import clock

__all__ = ["first_answers", "play_rate", "play_reading_shots", "play_shots", "play_transaction_shots"]

WORKERS = 8
COUNT_EVERY_S = {"long": 1.0, "short": 0.1}
LONGEST_S = {"long": 170.0, "short": 80.0}
LIVE_S = {"long": (0.5, 1.5), "short": (0.1, 0.4)}
"""How long connections live."""
ACKED = {"long": 20_000, "short": 50}
FEW_ACKED = {"long": 1_000, "short": 50}
"""Records of the lines that need not have as many as a form asks for. Few: of transactions, and where the interruptions leave little time."""
SWITCH_S = 0.001
"""How often threads take turns while they are shot at: they are hit where they were stopped. Who shoots is not stopped for so long after he woke up, and looks at
the frames of another thread meanwhile."""
RATE, RATE_S, LEAST_RATE = 100, {"long": 10.0, "short": 1.0}, 0.8
FIRST_ANSWER_S = 2.0
GREENLETS, THREADS = 50, 8
READER_ENDED = "the reader ended by Hit"


def play_shots(stage: Stage, form: Form, seed: int, clients: Sequence[str]) -> list[Line]:
    lines = [_play(stage, form, seed, "F24", kind, Bursts) for handler in clients for kind in KINDS.get(handler, ())]
    return _with_states(form, lines)


def play_transaction_shots(stage: Stage, form: Form, seed: int, clients: Sequence[str]) -> list[Line]:
    lines = [_play(stage, form, seed, "F24-tx", kind, Transactions) for handler in clients for kind in KINDS.get(handler, ())]
    return _with_states(form, lines)


def play_rate(stage: Stage, form: Form, seed: int, clients: Sequence[str]) -> list[Line]:
    kinds = {"threading": ThreadRate, "gevent": GreenletRate}
    return [_play(stage, form, seed, "F24-rate", kinds[handler], Bursts) for handler in clients if handler in kinds]


def play_reading_shots(stage: Stage, form: Form, seed: int, clients: Sequence[str]) -> list[GroupLine]:
    return [_play_reads(stage, form, seed, kind) for handler in clients for kind in KINDS.get(handler, ())]


def _play(stage: Stage, form: Form, seed: int, fault: str, kind: type[Shooting], load: type[Bursts]) -> Line:
    if load is not Bursts or kind not in (Signals, Timeouts):
        few = load is not Bursts or issubclass(kind, _Rate)
        form = dataclasses.replace(form, acked=(FEW_ACKED if few else ACKED)[form.name])
    with _shot(stage, form, seed, fault, kind, load) as shooting:
        shooting.run()
    inside, restarts = shooting.inside, shooting.restarts
    work = cast(Bursts, shooting.load)
    line = inside.line(shooting.played, shooting.also, work.judge, restarts.count if kind.hits_workers else None)
    line.played = ", ".join(filter(None, (line.played, shooting.note)))
    line.restarts, line.hit = restarts.count, {state: restarts.hit[state] for state in STATES if kind.hits_workers}
    return line


def _play_reads(stage: Stage, form: Form, seed: int, kind: type[Shooting]) -> GroupLine:
    form = dataclasses.replace(form, acked=FEW_ACKED[form.name])
    with _shot(stage, form, seed, "F30", kind, Reads) as shooting:
        shooting.run()
    work = cast(Reads, shooting.load)
    return work.line(f"F30: {kind.__name__}", shooting.played, shooting.restarts, kind.hits_workers)


@contextlib.contextmanager
def _shot(stage: Stage, form: Form, seed: int, fault: str, kind: type[Shooting], load: type[Workload]) -> Iterator[Shooting]:
    """Have a client that does its work while connections live a second, and see it through to its end."""
    inside = Inside(stage, fault, kind.handler, form, seed, TIMEOUT_S)
    chance = random.Random(seed)
    stage.plan.lifetime = LIVE_S[form.name]
    with Restarts() as restarts, _unraised():
        work = load(inside, inside.client(), chance)
        try:
            shooting = kind(inside, work, chance, form, restarts)
            try:
                yield shooting
            finally:
                stage.plan.clear()
            shooting.end()
        finally:
            work.release()


@contextlib.contextmanager
def _unraised() -> Iterator[None]:
    """Have Python not print what is raised where nobody can hear of it: a shot within socket.socket(), say, drops what that has made."""
    before, sys.unraisablehook = sys.unraisablehook, lambda _: None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        try:
            yield
        finally:
            gc.collect()
            sys.unraisablehook = before


def _with_states(form: Form, lines: list[Line]) -> list[Line]:
    """In the long form, batches of each state have been hit by one of the kinds that hit workers."""
    hitting = [line for line in lines if line.hit]
    for state in STATES:
        if form.name == "long" and hitting and not any(line.hit[state] for line in hitting):
            for line in hitting:
                line.blame.append(f"no restart with a batch that was {state}")
    return lines


class Shooting:
    """A producer under fire. lanes: one for each caller; a caller's records of one partition stay in order.

    LEAST: of each kind of shot, by load and form. hits_workers: the engine begins anew by it.
    """

    handler: ClassVar[str]
    hits_workers: ClassVar[bool] = False
    LEAST: ClassVar[Mapping[type[Workload], Mapping[str, Mapping[str, int]]]]

    def __init__(self, inside: Inside, load: Workload, chance: random.Random, form: Form, restarts: Restarts) -> None:
        self.inside, self.load, self.chance, self.form, self.restarts = inside, load, chance, form, restarts
        self.least = self.LEAST[type(load)][form.name]
        self.shots = dict.fromkeys(self.least, 0)
        self.deadline = clock.now() + LONGEST_S[form.name]
        self.longest_s = 0.0
        self.note = ""
        self._count_at, self._done = 0.0, 0

    def run(self) -> None:
        raise NotImplementedError

    @property
    def played(self) -> dict[str, int]:
        return {**self.shots, **self.load.played}

    @property
    def also(self) -> dict[str, int]:
        return self.load.also

    @property
    def going(self) -> bool:
        now = clock.now()
        return now < self.deadline and (bool(self._missing()) or self._done_by(now) < self.form.acked or not self._disturbed)

    @property
    def _disturbed(self) -> bool:
        """Whether there is what the line is asked for at the end, besides shots."""
        return self.hits_workers or (self.inside.disconnects > 0 and self.load.is_disturbed)

    def _missing(self) -> list[str]:
        absent = [f"no {kind}" for kind, count in self.load.played.items() if not count]
        return absent + [f"only {self.shots[kind]} of {least} {kind}" for kind, least in self.least.items() if self.shots[kind] < least]

    def _done_by(self, now: float) -> int:
        """Lately: every caller asks after each call, and the ledger is long."""
        if now >= self._count_at:
            self._count_at = clock.soon(COUNT_EVERY_S[self.form.name])
            self._done = self.load.done()
        return self._done

    def call(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        """Make a call of the client, and see how long it takes, whatever ends it."""
        began = clock.now()
        try:
            return self.fire_at(function, *args, **kwargs)
        finally:
            self.longest_s = max(self.longest_s, clock.figure(clock.now() - began))

    def fire_at(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    def work(self, lane: int) -> None:
        """One piece of work. What the client raises is nothing new to the load."""
        with self.load.turn, contextlib.suppress(KafkaException):
            self.load.once(lane, self.call)

    def join(self, callers: Sequence[Any]) -> None:
        for caller in callers:
            self.inside.expect(caller.join(60), "a caller hangs")
            self.inside.expect(caller.outcome is None, f"a caller ended by {caller.outcome!r}")

    def end(self) -> None:
        """Nobody shoots any more."""
        self.inside.blame += self._missing()
        limit_s = self.load.limit_s + 1.0 + self.form.room_s
        self.inside.expect(self.longest_s < limit_s, f"a call took {self.longest_s:.1f} s, more than {limit_s:g} s")
        self.load.end()
        odd = {text: count for text, count in self.restarts.errors.items() if READER_ENDED not in text}
        self.inside.expect(not odd, f"lines of the log: {odd}")


class Timeouts(Shooting):
    """Callers are greenlets: each piece of work has a timeout of some ms, and now and then a caller is killed and another one comes."""

    handler = "gevent"
    LEAST: ClassVar = {
        Bursts: {"long": {"timeouts": 12_500, "kills": 6_500}, "short": {"timeouts": 200, "kills": 80}},
        Transactions: {"long": {"timeouts": 1_000, "kills": 1_000}, "short": {"timeouts": 20, "kills": 20}},
        Reads: {"long": {"timeouts": 1_000, "kills": 500}, "short": {"timeouts": 40, "kills": 20}},
    }

    def run(self) -> None:
        import gevent

        lanes = iter(range(1 << 30))
        killed: list[Any] = []
        callers = [gevent.spawn(self._call, next(lanes)) for _ in range(WORKERS)]
        self._at_work: Any = None
        while self.going:
            gevent.sleep(self.chance.random() * 0.02 * self.load.slow / 2)
            victim = self.chance.randrange(WORKERS)
            if self._at_work in callers:
                victim = callers.index(self._at_work)
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
            with self.load.turn:
                if isinstance(self.load, Transactions):
                    self._at_work = gevent.getcurrent()
                cut = gevent.Timeout(self.chance.random() * 0.005 * self.load.slow)
                try:
                    with cut, contextlib.suppress(KafkaException):
                        self.load.once(lane, self.call)
                except gevent.Timeout as timeout:
                    if timeout is not cut:
                        raise
                    self.shots["timeouts"] += 1
                finally:
                    self._at_work = None
            gevent.sleep(self.chance.random() * 0.005)


class _Fired(Shooting):
    """With a gun whose signals hit the main thread. pieces of work are cut off by Cut."""

    def __init__(self, inside: Inside, load: Workload, chance: random.Random, form: Form, restarts: Restarts) -> None:
        super().__init__(inside, load, chance, form, restarts)
        self.gun = SignalGun(inside.handler, chance, self.pause_s)

    def pause_s(self) -> float:
        return 0.00005 + self.chance.random() * 0.003 * self.load.slow

    def fire_at(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        return self.gun.call(function, *args, **kwargs)

    @property
    def also(self) -> dict[str, int]:
        return {**super().also, "signals in the hub": self.gun.at["hub"]}

    def shot_work(self, lane: int) -> None:
        try:
            self.work(lane)
        except BaseException as error:
            if not was_cut(error):
                raise
        self.shots["signals"] = self.gun.shots


class Signals(_Fired):
    """The main thread calls under fire; other threads produce undisturbed beside it, unless there is a transaction."""

    handler = "threading"
    LEAST: ClassVar = {
        Bursts: {"long": {"signals": 5_000}, "short": {"signals": 120}},
        Transactions: {"long": {"signals": 1_000}, "short": {"signals": 30}},
        Reads: {"long": {"signals": 1_000}, "short": {"signals": 40}},
    }
    beside: ClassVar[int] = WORKERS - 1

    def run(self) -> None:
        lanes = range(1, 1 + min(self.beside, self.load.steady))
        others = [self.inside.side.spawn(lambda lane=lane: self._steady(lane)) for lane in lanes]  # type: ignore[misc]
        with self.gun.firing():
            while self.going:
                self.shot_work(0)
        self.join(others)

    def _steady(self, lane: int) -> None:
        while self.going:
            with contextlib.suppress(KafkaException):
                self.load.beside(lane)
            time.sleep(0.002)


class GreenletSignals(_Fired):
    """Callers are greenlets, and a signal's exception comes up in whatever greenlet runs: theirs, the engine's, or the hub."""

    handler = "gevent"
    hits_workers = True
    callers: ClassVar[int] = WORKERS
    LEAST: ClassVar = {
        Bursts: {"long": {"signals": 1_000, "signals at workers": 200}, "short": {"signals": 60, "signals at workers": 5}},
        Transactions: {"long": {"signals": 1_000, "signals at workers": 200}, "short": {"signals": 30, "signals at workers": 3}},
        Reads: {"long": {"signals": 1_000, "signals at workers": 200}, "short": {"signals": 40, "signals at workers": 3}},
    }

    def pause_s(self) -> float:
        return 0.0005 + self.chance.random() * 0.03

    def run(self) -> None:
        callers = [self.inside.side.spawn(lambda lane=lane: self._call(lane)) for lane in range(self.callers)]  # type: ignore[misc]
        with self.gun.firing():
            while self.going:
                self.gun.wait(0.02)
        self.join(callers)
        self.shots["signals"], self.shots["signals at workers"] = self.gun.shots, self.gun.at["workers"]

    def _call(self, lane: int) -> None:
        import gevent

        while self.going:
            self.shot_work(lane)
            self.shots["signals at workers"] = self.gun.at["workers"]
            gevent.sleep(self.chance.random() * 0.005)


class WorkerShots(Shooting):
    """Callers are threads that nobody shoots at. The producer's worker is hit, and those that read its connections."""

    handler = "threading"
    hits_workers = True
    LEAST: ClassVar = {
        Bursts: {"long": {"shots at workers": 200}, "short": {"shots at workers": 60}},
        Transactions: {"long": {"shots at workers": 200}, "short": {"shots at workers": 25}},
        Reads: {"long": {"shots at workers": 200}, "short": {"shots at workers": 20}},
    }

    def run(self) -> None:
        gun, restarts = WorkerGun(self.chance, self.load.aim), self.restarts
        callers = [self.inside.side.spawn(lambda lane=lane: self._call(lane)) for lane in range(WORKERS // 2)]  # type: ignore[misc]
        with _switching(SWITCH_S):
            while self.going:
                time.sleep(self.chance.random() * 0.02)
                before = restarts.count
                if gun.shoot():
                    deadline = clock.now() + 60
                    while restarts.count == before and clock.now() < deadline:
                        time.sleep(0.001)
                    self.inside.expect(restarts.count > before, "the worker was hit, and did not begin anew")
                self.shots["shots at workers"] = gun.shots
        self.join(callers)
        survivors = gun.survivors(60)
        self.inside.expect(not survivors, f"these were hit, and live on: {survivors}")

    def _call(self, lane: int) -> None:
        while self.going:
            self.work(lane)
            time.sleep(0.001)


@contextlib.contextmanager
def _switching(seconds: float) -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(seconds)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


# -- a hundred a second ----------------------------------------------------------------------------------------------------
class _Rate(_Fired):
    """As many signals a second as RATE says, for a while; then how long it took from each to the first record that was acknowledged."""

    LEAST: ClassVar = {
        Bursts: {form: {"signals": int(RATE * seconds * LEAST_RATE)} for form, seconds in RATE_S.items()},
    }

    def __init__(self, inside: Inside, load: Workload, chance: random.Random, form: Form, restarts: Restarts) -> None:
        super().__init__(inside, load, chance, form, restarts)
        self._next_at = clock.soon(0.0)
        self._until = clock.soon(RATE_S[form.name])

    @property
    def going(self) -> bool:
        now = clock.now()
        return now < self.deadline and (clock.figure(now) < self._until or not self._disturbed)

    def pause_s(self) -> float:
        """Until the next one of a steady row; at least half a step, if this one came late."""
        now = clock.soon(0.0)
        self._next_at = max(self._next_at + 1 / RATE, now + 0.5 / RATE)
        return self._next_at - now

    def end(self) -> None:
        super().end()
        waits = first_answers(self.gun.moments, self.inside.ledger.entries)
        worst = max(waits, default=0.0)
        self.inside.expect(bool(waits), "nothing was acknowledged behind a signal")
        self.note = f"first acknowledgement after one {statistics.median(waits or [0.0]) * 1000:.1f} ms, at worst {worst * 1000:.0f} ms"
        slow = self.form.name == "long" and worst > FIRST_ANSWER_S
        self.inside.expect(not slow, f"no acknowledgement for {worst:.1f} s after a signal")


KINDS: Mapping[str, tuple[type[Shooting], ...]] = {"threading": (Signals, WorkerShots), "gevent": (Timeouts, GreenletSignals)}


class ThreadRate(_Rate, Signals):
    beside = THREADS - 1


class GreenletRate(_Rate, GreenletSignals):
    callers = GREENLETS


def first_answers(moments: Sequence[float], entries: Sequence[Entry]) -> list[float]:
    """Return for each moment how many seconds later the next record was acknowledged, if one was."""
    answers = sorted(clock.figure(cast(clock.Moment, e.resolved_at)) for e in entries if e.resolved_at is not None and e.acknowledged)
    places = ((moment, bisect.bisect_left(answers, moment)) for moment in moments)
    return [answers[place] - moment for moment, place in places if place < len(answers)]
