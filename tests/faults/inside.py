"""What the faults inside the user's own process have in common: F23 and F24 run a client of gkafka beside the harness."""

from __future__ import annotations

import dataclasses
import functools
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from gkafka import KafkaClient
from gkafka.exceptions import KafkaException
from tests.faults.ledger import GRACE_S, Entry, Ledger, Row, Verdict, check
from tests.faults.runs import Form, Line, blame
from tests.faults.stage import PARTITIONS, Stage
from tests.kit.clock import PATIENCE_S, now

__all__ = ["Inside", "Judge", "Side", "judge_plain"]

VALUE = b" " + b"x" * 89
Judge: TypeAlias = Callable[[Verdict, Sequence[Row], Sequence[Row]], None]
"""judge(verdict, log, committed): counts in the verdict what is wrong with what a read_committed reader sees."""


def judge_plain(verdict: Verdict, log: Sequence[Row], committed: Sequence[Row]) -> None:
    """Without transactions, such a reader sees everything."""
    verdict.hidden = len(set(log) - set(committed))


class Side:
    """One way of concurrency, as a user has it: work beside, waiting."""

    def __init__(self, handler: str) -> None:
        self.handler = handler
        self.gevent = handler == "gevent"

    def sleep(self, seconds: float) -> None:
        if self.gevent:
            import gevent

            gevent.sleep(seconds)
        else:
            time.sleep(seconds)

    def until(self, what: Callable[[], Any], why: str, timeout: float = PATIENCE_S) -> None:
        deadline = now() + timeout
        while not what():
            assert now() < deadline, f"{why}: not within {timeout:g} s"
            self.sleep(0.005)

    def spawn(self, fn: Callable[[], Any]) -> Any:
        """A greenlet or a thread; what fn raises is returned by its `outcome`."""
        return (_Greenlet if self.gevent else _Thread)(fn)


class _Beside:
    """A function that runs beside the caller. outcome: what it raised; is_over: whether it has ended."""

    def __init__(self, fn: Callable[[], Any]) -> None:
        self.is_over = False
        self.outcome: BaseException | None = None
        self._fn = fn
        self._start()

    def _start(self) -> None:
        raise NotImplementedError

    def _run(self) -> None:
        try:
            self._fn()
        except BaseException as error:
            self.outcome = error
        self.is_over = True


class _Thread(_Beside):
    def _start(self) -> None:
        self._worker = threading.Thread(target=self._run, daemon=True)
        self._worker.start()

    def join(self, seconds: float) -> bool:
        self._worker.join(seconds)
        return not self._worker.is_alive()


class _Greenlet(_Beside):
    def _start(self) -> None:
        import gevent

        self._worker = gevent.spawn(self._run)

    def join(self, seconds: float) -> bool:
        self._worker.join(seconds)
        return bool(self._worker.dead)

    def kill(self) -> None:
        self._worker.kill(block=False)


@dataclasses.dataclass
class Inside:
    """A client in this process, its ledger, and what it is blamed for."""

    stage: Stage
    fault: str
    handler: str
    form: Form
    seed: int
    delivery_timeout_s: float

    def __post_init__(self) -> None:
        self.side = Side(self.handler)
        self.ledger = Ledger(self.delivery_timeout_s)
        self.topic = self.stage.new_topic(f"{self.fault}-{self.handler}")
        self.blame: list[str] = []
        self.retries = self.bumps = 0
        self.began = now()
        self._ended = self.stage.plan.ended

    @property
    def disconnects(self) -> int:
        """How many connections have ended at the doors since the beginning."""
        return self.stage.plan.ended - self._ended

    def client(self) -> KafkaClient:
        return KafkaClient(self.stage.hosts, handler=self.handler, auto_create_topics=False)

    def offer(self, lane: int = 0, partition: int | None = None) -> tuple[Entry, bytes]:
        """A ledger's entry and the value to produce."""
        at = len(self.ledger.entries) % PARTITIONS if partition is None else partition
        entry = self.ledger.offer(self.topic, at, now(), lane)
        return entry, b"%010d" % entry.id + VALUE

    def accepted(self, entry: Entry, delivery: Any) -> None:
        entry.accepted_at = now()
        delivery.add_done_callback(functools.partial(self._done, entry))

    def produce(self, producer: Any, lane: int = 0, partition: int | None = None) -> Any:
        """Offer, produce, accept; what produce() raises is noted and raised."""
        entry, value = self.offer(lane, partition)
        try:
            delivery = producer.produce(entry.topic, value, partition=entry.partition)
        except KafkaException as error:
            entry.refused, entry.error = True, type(error).__name__
            raise
        self.accepted(entry, delivery)
        return delivery

    def _done(self, entry: Entry, delivery: Any) -> None:
        error = delivery.exception(0)
        if error is None:
            self.ledger.resolve(entry, now(), delivery.result(0).offset)
        else:
            self.ledger.resolve(entry, now(), error=type(error).__name__, persisted=error.persisted)

    def has_retried(self, producer: Any) -> bool:
        """Whether this producer, or one that was given up, has sent a batch again."""
        return bool(self.retries or producer.stats()["retried_batches"])

    def count(self, producer: Any) -> None:
        """Take a producer's counters before it is given up."""
        stats = producer.stats()
        self.retries += stats["retried_batches"]
        self.bumps += stats["epoch_bumps"]

    def expect(self, what: bool, why: str) -> None:
        if not what:
            self.blame.append(why)

    def line(
        self, played: Mapping[str, int], also: Mapping[str, int] | None = None, judge: Judge = judge_plain, restarts: int | None = None
    ) -> Line:
        """The end: the ledger against the log. played: what was done, and how often; none may be 0. also: what may be 0, and is told only if it is not.
        judge: what to think of the difference to what a read_committed reader sees. restarts: of an engine that was hit itself; else retries and disconnects show that
        it was disturbed."""
        log, committed = self.stage.dump([self.topic]), self.stage.dump([self.topic], "read_committed")
        verdict = check(self.ledger, log, grace_s=GRACE_S + self.form.room_s)
        judge(verdict, log, committed)
        disconnects = self.disconnects
        disturbed = {"retries": self.retries, "disconnects": disconnects} if restarts is None else {"restarts": restarts}
        self.blame += blame(self.form, verdict, {**disturbed, **played})
        happened = {name: count for name, count in (also or {}).items() if count}
        told = ", ".join(f"{count:,} {name}" for name, count in {**played, **happened}.items())
        about = (self.retries, self.bumps, disconnects, 0, now() - self.began)
        return Line(self.fault, self.handler, self.seed, self.form.name, told, verdict, *about, self.blame)
