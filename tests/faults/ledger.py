"""What a producer was told, against what the brokers hold: pure functions over two lists.

A writer notes each record in its ledger (offered, accepted, resolved). At the end another client dumps the topic, and `check` counts what
does not fit together. Times are monotonic seconds, the same clock in every process of the machine.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import operator
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["GRACE_S", "Entry", "Ledger", "Row", "Verdict", "check", "stall"]

GRACE_S = 1.0
"""A delivery that is resolved later than its timeout and this is an unresolved one, on a machine that does nothing else."""


class Row(NamedTuple):
    """One record as the final reader saw it. id: the entry's, -1 for a value that no ledger writes."""

    topic: str
    partition: int
    offset: int
    id: int


@dataclasses.dataclass(slots=True)
class Entry:
    """One record of the producer's side.

    lane: who produced it; order is promised within a lane and a partition, by id. accepted_at: when produce() returned; None and not
    refused: the call was cut off, so nobody knows. offset: -1 if the broker did not say. error: the exception's name, "" for none.
    persisted: "no", "maybe" or "" (the client does not say). answers: how often its delivery was resolved.
    """

    id: int
    topic: str
    partition: int
    lane: int
    offered_at: float
    accepted_at: float | None = None
    refused: bool = False
    resolved_at: float | None = None
    offset: int = -1
    error: str = ""
    persisted: str = ""
    answers: int = 0

    @property
    def acknowledged(self) -> bool:
        return self.resolved_at is not None and not self.error

    @property
    def place(self) -> tuple[str, int]:
        return self.topic, self.partition


_VALUES = operator.attrgetter(*(field.name for field in dataclasses.fields(Entry)))  # dataclasses.astuple copies each value


class Ledger:
    """All records of one writer, by id."""

    def __init__(self, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self.entries: list[Entry] = []
        self._lock = threading.Lock()  # two threads must not take the same id

    def offer(self, topic: str, partition: int, now: float, lane: int = 0) -> Entry:
        """A record is about to be produced."""
        with self._lock:
            entry = Entry(len(self.entries), topic, partition, lane, now)
            self.entries.append(entry)
        return entry

    @staticmethod
    def resolve(entry: Entry, now: float, offset: int = -1, error: str = "", persisted: str = "") -> None:
        """Its delivery has an outcome. The first one counts; a second one is a defect that `check` reports."""
        entry.answers += 1
        if entry.answers == 1:
            entry.resolved_at, entry.offset, entry.error, entry.persisted = now, offset, error, persisted

    def save(self, path: Path) -> None:
        with path.open("w") as file:
            file.write(json.dumps({"timeout_s": self.timeout_s}) + "\n")
            for entry in self.entries:
                file.write(json.dumps(_VALUES(entry)) + "\n")

    @classmethod
    def load(cls, path: Path) -> Ledger:
        with path.open() as file:
            ledger = cls(json.loads(next(file))["timeout_s"])
            ledger.entries = [Entry(*json.loads(line)) for line in file]
        return ledger


@dataclasses.dataclass
class Verdict:
    """The counts of one run.

    lost: acknowledged and not in the log; misplaced: acknowledged at an offset where another record stands; duplicates: copies beyond the
    first; inversions: neighbours of a lane in the wrong order; unresolved: no outcome within the timeout and the grace; ghosts: reported or
    refused as not persisted, yet in the log; strangers: in the log and in no ledger; repeated: resolved more than once; hidden: not
    shown to a read_committed reader, though no transaction was used; torn: transactions of which such a reader sees only a part.
    failed_no, failed_maybe: records reported as failed, by what is said about their being persisted; cut_off: calls that were interrupted;
    errors: name -> how many records failed or were refused with it.
    """

    produced: int = 0
    acknowledged: int = 0
    failed_no: int = 0
    failed_maybe: int = 0
    refused: int = 0
    cut_off: int = 0
    lost: int = 0
    misplaced: int = 0
    duplicates: int = 0
    inversions: int = 0
    unresolved: int = 0
    ghosts: int = 0
    strangers: int = 0
    repeated: int = 0
    hidden: int = 0
    torn: int = 0
    stall_s: float = 0.0
    errors: dict[str, int] = dataclasses.field(default_factory=dict)

    @property
    def wrong(self) -> dict[str, int]:
        """The counts that must be 0 and are not."""
        return {name: n for name in DEFECTS if (n := getattr(self, name))}

    def line(self, **about: Any) -> str:
        """One line of JSON. about: fault, handler, seed and whatever else belongs to the run."""
        return json.dumps({**about, **dataclasses.asdict(self)})


DEFECTS = ("lost", "misplaced", "duplicates", "inversions", "unresolved", "ghosts", "strangers", "repeated", "hidden", "torn")


def check(
    ledger: Ledger,
    log: Sequence[Row],
    committed: Sequence[Row] | None = None,
    *,
    must_stay: Callable[[Entry], bool] = lambda entry: True,
    since: float = 0.0,
    grace_s: float = GRACE_S,
) -> Verdict:
    """Compare a ledger with the final dump of its topics.

    log: everything (read_uncommitted), each partition in the order of its offsets. committed: the same for read_committed, None: not read.
    must_stay: False for records whose partition was deleted after they were acknowledged. since: the stall is that of records that must
    stay and were offered later. grace_s: what is resolved later than the timeout and this is unresolved.
    """
    entries = ledger.entries
    verdict = Verdict(produced=len(entries), stall_s=round(stall(e for e in entries if e.offered_at >= since and must_stay(e)), 3))
    copies = Counter(row.id for row in log)
    at = {row[:3]: row.id for row in log}
    for entry in entries:
        _count(verdict, entry, ledger.timeout_s + grace_s)
        there = copies[entry.id] > 0
        if entry.acknowledged and must_stay(entry):
            verdict.lost += not there
            verdict.misplaced += there and entry.offset >= 0 and at.get((*entry.place, entry.offset)) != entry.id
        elif entry.refused or (entry.error and entry.persisted == "no"):
            verdict.ghosts += there
    known = len(entries)
    verdict.strangers = sum(not 0 <= row.id < known for row in log)
    verdict.duplicates = sum(n - 1 for id, n in copies.items() if 0 <= id < known)
    verdict.inversions = _inversions(entries, log)
    verdict.hidden = 0 if committed is None else len(set(log) - set(committed))
    return verdict


def _count(verdict: Verdict, entry: Entry, limit_s: float) -> None:
    verdict.acknowledged += entry.acknowledged
    verdict.refused += entry.refused
    verdict.repeated += entry.answers > 1
    if entry.error:
        verdict.errors[entry.error] = verdict.errors.get(entry.error, 0) + 1
    if entry.error and not entry.refused:
        verdict.failed_no += entry.persisted == "no"
        verdict.failed_maybe += entry.persisted != "no"
    if entry.accepted_at is None:
        verdict.cut_off += not entry.refused
    elif entry.resolved_at is None or entry.resolved_at - entry.accepted_at > limit_s:
        verdict.unresolved += 1


def _inversions(entries: Sequence[Entry], log: Iterable[Row]) -> int:
    """Neighbours of one lane in one partition whose ids fall. A second copy of a record is a duplicate, not an inversion."""
    lanes: dict[tuple[str, int, int], dict[int, None]] = defaultdict(dict)
    for row in log:
        if 0 <= row.id < len(entries) and row[:2] == entries[row.id].place:
            lanes[row.topic, row.partition, entries[row.id].lane].setdefault(row.id)
    return sum(a > b for ids in lanes.values() for a, b in itertools.pairwise(ids))


def stall(entries: Iterable[Entry]) -> float:
    """The longest time in seconds for which a partition that owed an acknowledgement gave none.

    Records that failed meanwhile were owed one, too.
    """
    partitions: dict[tuple[str, int], list[tuple[float, float, bool]]] = defaultdict(list)
    for entry in entries:
        if entry.resolved_at is not None and not entry.refused:
            partitions[entry.place].append((entry.resolved_at, entry.offered_at, entry.acknowledged))
    return max(map(_longest_wait, partitions.values()), default=0.0)


def _longest_wait(outcomes: list[tuple[float, float, bool]]) -> float:
    """outcomes: (resolved at, offered at, acknowledged) of one partition."""
    longest, previous = 0.0, float("-inf")
    owed_since = float("inf")
    for resolved, offered, acknowledged in sorted(outcomes):
        owed_since = min(owed_since, max(offered, previous))
        if acknowledged:
            longest = max(longest, resolved - owed_since)
            previous, owed_since = resolved, float("inf")
    return longest
