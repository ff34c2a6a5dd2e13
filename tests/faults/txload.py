"""Transactions whose callers are cut off: what a read_committed reader may see of each."""

from __future__ import annotations

import contextlib
import dataclasses
import random
import threading
from collections import Counter
from collections.abc import Sequence
from typing import Any

from gkafka.exceptions import (
    KafkaException,
    ProduceFailureError,
    ProducerStoppedException,
    TransactionAbortableError,
    TransactionStateError,
)
from tests.faults.inside import Inside
from tests.faults.ledger import Entry, Row, Verdict
from tests.faults.loads import BUFFER_BYTES, CALL_S, TIMEOUT_S, Bursts, Call
from tests.faults.stage import PARTITIONS

__all__ = ["Transactions", "Work", "judge"]

REQUEST_S = 5.0


@dataclasses.dataclass
class Work:
    """One transaction. fate: "open" as long as nobody asked for its end, "asked" when its commit may have been asked for, and
    "unclear" when its abort may have been asked for as well, or nothing; then "committed" or "aborted", as a call has told.
    """

    entries: list[Entry] = dataclasses.field(default_factory=list)
    fate: str = "open"


def judge(works: Sequence[Work], committed: Sequence[Row], verdict: Verdict) -> None:
    """Compare transactions with what a read_committed reader sees.

    All of a committed one is there (else lost), nothing of one whose commit was not asked for (else ghosts), and of any other one all or nothing (else
    torn). A record whose produce() was cut off may be in its transaction or not.
    """
    shown = Counter(row.id for row in committed)
    verdict.duplicates += sum(count - 1 for count in shown.values())
    for work in works:
        accepted = [shown[entry.id] > 0 for entry in work.entries if entry.accepted_at is not None]
        seen = sum(shown[entry.id] > 0 for entry in work.entries)
        if work.fate == "committed":
            verdict.lost += accepted.count(False)
        elif work.fate in ("open", "aborted"):
            verdict.ghosts += seen
        else:
            verdict.torn += bool(seen) and not all(accepted)


class Transactions(Bursts):
    """Each piece of work is a transaction, by single calls or by a `with` block, or what another caller left of one. One caller at a time has the producer."""

    limit_s = TIMEOUT_S + REQUEST_S
    slow = 6.0
    steady = 0

    def __init__(self, inside: Inside, client: Any, chance: random.Random) -> None:
        self.works: list[Work] = []
        self.made = 0
        super().__init__(inside, client, chance)
        if inside.side.gevent:
            from gevent.lock import Semaphore

            self.turn = Semaphore(1)
        else:
            self.turn = threading.Lock()

    @property
    def played(self) -> dict[str, int]:
        fates = Counter(work.fate for work in self.works)
        return {"commits": fates["committed"], "aborts": fates["aborted"] + fates["open"]}

    @property
    def also(self) -> dict[str, int]:
        fates = Counter(work.fate for work in self.works)
        return {"unclear commits": fates["asked"] + fates["unclear"], "new producers": self.made - 1}

    def make(self) -> Any:
        self.made += 1
        return self.client.get_producer(
            transactional_id=f"shots-{self.inside.topic}",
            delivery_timeout_ms=TIMEOUT_S * 1000,
            request_timeout_ms=REQUEST_S * 1000,
            max_block_ms=CALL_S * 1000,
            linger_ms=2,
            batch_bytes=1024,
            buffer_bytes=BUFFER_BYTES,
            max_request_bytes=65536,
        )

    @property
    def last(self) -> Work:
        return self.works[-1] if self.works else Work(fate="aborted")

    def once(self, lane: int, call: Call) -> None:
        try:
            if self.last.fate in ("open", "asked") and self.chance.random() < 0.4:
                self._go_on(lane, call, self.last)
            elif self.chance.random() < 0.3:
                self._block(lane, call)
            else:
                self._calls(lane, call)
        except TransactionStateError:
            self._settle(call)
        except TransactionAbortableError:
            self._abort(call)
        except KafkaException as error:
            if error.fatal or isinstance(error, (ProducerStoppedException, ProduceFailureError)):
                self._renew()
            raise

    # -- a transaction's calls
    def _calls(self, lane: int, call: Call) -> None:
        call(self.producer.begin_transaction, CALL_S)
        self._begun()
        self._fill(lane, call, self.last)
        self._end(call, self.last)

    def _block(self, lane: int, call: Call) -> None:
        block = self.producer.transaction()
        call(block.__enter__)
        self._begun()
        work = self.last
        try:
            self._fill(lane, call, work)
        except BaseException as error:
            work.fate = "aborted"
            if not call(block.__exit__, type(error), error, error.__traceback__):
                raise
        else:
            work.fate = "unclear"  # who is cut off before the commit was asked for has it aborted
            call(block.__exit__, None, None, None)
            work.fate = "committed"

    def _begun(self) -> None:
        """begin_transaction() has returned: a commit before it was done, or would have been its error."""
        if self.last.fate == "asked":
            self.last.fate = "committed"
        self.works.append(Work())

    def _fill(self, lane: int, call: Call, work: Work) -> None:
        delivery = None
        for _ in range(self.chance.randrange(1, 20)):
            entry, value = self.inside.offer(lane)
            work.entries.append(entry)
            try:
                delivery = call(self.producer.produce, entry.topic, value, partition=entry.partition)
            except KafkaException as error:
                entry.refused, entry.error = True, type(error).__name__
                raise
            self.inside.accepted(entry, delivery)
        what = self.chance.random()
        if what < 0.1 and delivery is not None:
            call(delivery.result, CALL_S)
        elif what < 0.25:
            call(self.producer.flush, CALL_S)

    def _end(self, call: Call, work: Work) -> None:
        if self.chance.random() < 0.75:
            work.fate = "asked"
            call(self.producer.commit_transaction, CALL_S)
            work.fate = "committed"
        else:
            work.fate = "aborted"
            call(self.producer.abort_transaction, CALL_S)

    # -- what the caller before was cut off in
    def _go_on(self, lane: int, call: Call, work: Work) -> None:
        if work.fate == "open":
            self._fill(lane, call, work)
            self._end(call, work)
        else:
            call(self.producer.commit_transaction, CALL_S)
            work.fate = "committed"

    def _settle(self, call: Call) -> None:
        """End whatever is open."""
        try:
            self._abort(call)
        except TransactionStateError:
            with contextlib.suppress(TransactionStateError):  # nothing is open
                call(self.producer.commit_transaction, CALL_S)

    def _abort(self, call: Call) -> None:
        work = self.last
        work.fate = {"open": "aborted", "asked": "unclear"}.get(work.fate, work.fate)
        call(self.producer.abort_transaction, CALL_S)

    def _renew(self) -> None:
        self.inside.count(self.producer)
        if self.last.fate == "asked":
            self.last.fate = "unclear"
        with contextlib.suppress(KafkaException):
            self.producer.close(5)
        self.producer = self.make()

    # -- the end
    def end(self) -> None:
        def call(function: Any, *args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs)

        for _ in range(2):  # it may say that a new producer is needed
            with contextlib.suppress(KafkaException):
                with contextlib.suppress(TransactionStateError, TransactionAbortableError):
                    self.producer.begin_transaction(CALL_S)
                    self._begun()
                self._settle(call)
                break
            self._renew()
        try:
            with self.producer.transaction():
                self._begun()
                for partition in range(PARTITIONS):
                    entry, value = self.inside.offer(-1, partition)
                    self.last.entries.append(entry)
                    self.inside.accepted(entry, self.producer.produce(entry.topic, value, partition=partition))
            self.last.fate = "committed"
        except Exception as error:
            self.inside.blame.append(f"the producer does not go on: {error!r}")
        self.close()

    def judge(self, verdict: Verdict, log: Sequence[Row], committed: Sequence[Row]) -> None:
        judge(self.works, committed, verdict)
