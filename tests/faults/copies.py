"""F25: a topic is copied in transactions while its copier, the coordinator and replies are lost, and a zombie comes back.

A read_committed reader of the copy must see exactly the source: each record once, in order, nothing of what was aborted.
"""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Sequence

from tests.faults.child import Child
from tests.faults.copier import FENCED, Copy
from tests.faults.ledger import Ledger, check
from tests.faults.proxy import Lose
from tests.faults.runs import Form, Line, blame
from tests.faults.stage import PARTITIONS, Stage, Stuck, until
from tests.kit.clock import now

__all__ = ["play_copies"]

END_TXN, TXN_OFFSET_COMMIT = 26, 28
COUNT = {"long": 210_000, "short": 6_000}
BATCH = {"long": 750, "short": 150}
ROUNDS = {"long": 5, "short": 1}


def play_copies(stage: Stage, form: Form, seed: int, clients: Sequence[str]) -> list[Line]:
    return [_Play(stage, form, seed, handler).run() for handler in clients if handler != "confluent"]


class _Process(Child):
    """A copier. copied: records that it knows to be copied."""

    def __init__(self, task: Copy) -> None:
        super().__init__("tests.faults.copier", task)

    def allow(self, limit: int) -> None:
        """It may copy so many records, and waits then."""
        self.tell(str(limit))

    @property
    def copied(self) -> int:
        return int(self.said.get("copied", 0))


class _Play:
    def __init__(self, stage: Stage, form: Form, seed: int, handler: str) -> None:
        self.stage, self.form, self.seed, self.handler = stage, form, seed, handler
        self.chance = random.Random(seed)
        self.count = COUNT[form.name]
        source, target = stage.new_topic(f"F25-{handler}-source"), stage.new_topic(f"F25-{handler}-target")
        name = f"copier-{source}"
        self.task = Copy(handler, stage.hosts, source, target, f"group-{source}", name, self.count, BATCH[form.name])
        self.copiers: list[_Process] = []
        self.blame: list[str] = []
        self.aborts = self.unclear = self.moves = self.limit = 0

    def run(self) -> Line:
        began, ended = now(), self.stage.plan.ended + self.stage.plan.broken
        ledger = self._fill()
        try:
            self._start()
            for round in range(ROUNDS[self.form.name]):
                share = self.count // (ROUNDS[self.form.name] * 4 + 2)
                for turn, fault in enumerate((self._kill_copier, self._kill_coordinator, self._lose_replies, self._zombie)):
                    at = share * (round * 4 + turn)
                    self._allow(at + 2 * share)
                    self._until_copied(at + share)
                    fault()
            self._allow(self.count)
            self._until_done()
        finally:
            for copier in self.copiers:
                copier.end()
            self.stage.heal()
        disconnects = self.stage.plan.ended + self.stage.plan.broken - ended
        verdict = check(ledger, self.stage.dump([self.task.target], "read_committed"))
        written = len(self.stage.dump([self.task.target]))
        if written == self.count:
            self.blame.append("nothing was aborted after it was written: the kills disturbed nothing")
        self.blame += blame(self.form, verdict, {"disconnects": disconnects})
        about = (self.aborts + self.unclear, 0, disconnects, self.moves, now() - began)
        played = f"copier killed, coordinator killed, replies lost, zombie: {ROUNDS[self.form.name]} each"
        return Line("F25", self.handler, self.seed, self.form.name, played, verdict, *about, self.blame)

    def _fill(self) -> Ledger:
        """The source, written by another client, and the ledger that the copy has to fit."""
        from confluent_kafka import Producer

        producer = Producer(
            {"bootstrap.servers": self.stage.direct, "acks": "all", "linger.ms": 5, "queue.buffering.max.messages": 1_000_000}
        )
        ledger = Ledger(600.0)
        for i in range(self.count):
            entry = ledger.offer(self.task.target, i % PARTITIONS, now())
            entry.accepted_at = entry.offered_at
            ledger.resolve(entry, entry.offered_at)
            producer.produce(self.task.source, b"%010d" % i, partition=entry.partition)
        if producer.flush(60):
            raise Stuck("the source was not written")
        return ledger

    # -- the copier ----------------------------------------------------------------------------------------------------
    @property
    def copier(self) -> _Process:
        return self.copiers[-1]

    def _start(self) -> None:
        self.copiers.append(_Process(self.task))
        self.copier.allow(self.limit)

    def _allow(self, limit: int) -> None:
        self.limit = limit
        self.copier.allow(limit)

    def _until_copied(self, count: int) -> None:
        def there() -> bool:
            self._check_alive()
            return self.copier.copied >= count

        until(there, f"the {self.handler} copier copies {count} records", self.form.limit_s)

    def _check_alive(self) -> None:
        if self.copier.status not in (None, 0):
            raise Stuck(f"the {self.handler} copier ended with status {self.copier.status}:\n{self.copier.errors()}")

    def _until_done(self) -> None:
        def done() -> bool:
            self._check_alive()
            return self.copier.status == 0

        until(done, f"the {self.handler} copier ends", self.form.limit_s)
        self._note()

    def _note(self) -> None:
        self.aborts += self.copier.said.get("aborts", 0)
        self.unclear += self.copier.said.get("unclear", 0)

    # -- what happens to it --------------------------------------------------------------------------------------------
    def _kill_copier(self) -> None:
        time.sleep(self.chance.random() * 0.1)  # anywhere within a transaction
        self._note()
        self.copier.process.kill()
        self.copier.process.wait(30)
        self._start()

    def _kill_coordinator(self) -> None:
        victim = self.stage.coordinator(self.task.name, "__transaction_state")
        self.stage.kill(victim)
        before = self.copier.copied
        self._until_copied(min(self.count, before + self.task.batch))
        self.moves += 1
        self.stage.restart(victim)

    def _lose_replies(self) -> None:
        rules = [self.stage.plan.add(END_TXN, Lose(), times=2), self.stage.plan.add(TXN_OFFSET_COMMIT, Lose(), times=1)]
        for rule in rules:
            until(lambda rule=rule: rule.hits == rule.times or self.copier.status is not None, "replies are lost", self.form.limit_s)  # type: ignore[misc]
        self.stage.plan.clear()
        self.blame += [] if all(rule.hits for rule in rules) else ["no reply was lost"]

    def _zombie(self) -> None:
        """It is stopped within a transaction, another one of its name takes over, and it wakes."""
        zombie = self.copier
        self._note()
        zombie.process.send_signal(signal.SIGSTOP)
        self._start()
        self._until_copied(min(self.count, zombie.copied + self.task.batch))
        zombie.process.send_signal(signal.SIGCONT)
        until(lambda: zombie.status is not None, "the zombie notices", self.form.limit_s)
        if zombie.status != FENCED:
            self.blame.append(f"the zombie ended with status {zombie.status}: {zombie.errors()[-300:]}")
