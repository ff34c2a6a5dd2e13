"""What the members of a group wrote down, against what the brokers hold: pure functions over their diaries.

A member notes what it was given and what was taken from it, each record that it was handed, each commit. The notes are lines of JSON,
appended and out of its hands at once, so that kill -9 leaves them. At the end another client dumps the topics and the group's commits, and
`judge` counts what does not fit together. Times are monotonic seconds, the same clock in every process of the machine.
"""

from __future__ import annotations

import bisect
import dataclasses
import json
import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from tests.faults.ledger import Row

__all__ = ["DAMAGED", "STRANGER", "Diary", "Eras", "Findings", "Notes", "Place", "Story", "judge", "slowest", "takeover", "unfolded"]

Place = tuple[str, int]
Eras = Mapping[str, Sequence[int]]
"""Topics whose offsets began anew, made again or cut: of each, the first id that was written after each time. Ids only grow."""
ERA = 1 << 40
"""What is added to an offset for each time: so those of later eras are behind those of earlier ones."""
STRANGER = -1
"""The id of a record that nobody was meant to see: aborted, or none of ours."""
DAMAGED = -2
"""The id of a record that is not as it was written."""
FORGOTTEN = -1
"""The offset of a commit that says that there is none any more: its topic was deleted."""


def unfolded(row: Row, eras: Eras) -> Row:
    """The record with its era in its offset."""
    return row._replace(offset=row.offset + ERA * _era(eras, row.topic, row.id))


def _era(eras: Eras, topic: str, id: int) -> int:
    return bisect.bisect_right(eras.get(topic, ()), id)


class Notes:
    """Writes a member's diary. Each note is one write to an appended file: whole, or not there."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def _write(self, *note: Any) -> None:
        os.write(self._file, json.dumps(note).encode() + b"\n")

    def assigned(self, now: float, places: Iterable[Place]) -> None:
        """Before anything of them can be handed out."""
        self._write("assigned", now, list(places))

    def revoked(self, now: float, places: Iterable[Place], *, awaited: bool = False) -> None:
        """After the last of them was handed out and committed, before others can have them. awaited: the consumer promises that no call is left
        that began before and still has records of theirs to return.
        """
        self._write("awaited" if awaited else "revoked", now, list(places))

    def lost(self, now: float, places: Iterable[Place]) -> None:
        """Others may have had them for a while."""
        self._write("lost", now, list(places))

    def read(self, began: float, now: float, records: Iterable[tuple[str, int, int, int, float]]) -> None:
        """What one call, which began then, handed out: topic, partition, offset, id, when it was produced."""
        self._write("read", began, now, list(records))

    def committed(self, began: float, now: float, offsets: Mapping[Place, int], error: str = "") -> None:
        """A call that committed these next offsets, or failed."""
        self._write("commit", began, now, [[*place, offset] for place, offset in offsets.items()], error)

    def cut(self, now: float, place: Place, lost: range) -> None:
        """It was told that these offsets, which it had consumed, are not in the log any more."""
        self._write("cut", now, *place, lost.start, lost.stop)

    def problem(self, now: float, error: BaseException) -> None:
        """A call raised it; the member goes on."""
        self._write("problem", now, type(error).__name__, str(error)[:300])

    def stopped(self, now: float) -> None:
        """It has left in order."""
        self._write("stopped", now)


@dataclasses.dataclass
class Term:
    """A partition in a member's hands. ended: "revoked", "awaited" (as Notes.revoked), "lost", "killed", or "" to the end. last_use: when its last call began
    that handed out or committed: a process may be stopped between what a call does and its note of it.
    """

    member: str
    place: Place
    start: float
    end: float = float("inf")
    ended: str = ""
    last_use: float = 0.0

    @property
    def over(self) -> float:
        """Until when it was certainly in use: others may have it only after that."""
        return max(self.start, self.last_use) if self.ended in ("lost", "killed") else self.end


class Read(NamedTuple):
    term: Term
    offset: int
    id: int
    began: float
    at: float
    produced: float


class Commit(NamedTuple):
    term: Term
    offset: int
    began: float
    at: float


class Diary:
    """One member's notes, with their eras in offsets. killed: when its process was, by the harness; cuts: offsets that it was told are lost."""

    def __init__(self, member: str, lines: Iterable[str], killed: float | None = None, eras: Eras | None = None) -> None:
        self.member = member
        self.killed = killed
        self._eras = eras or {}
        self._era: dict[Place, int] = {}
        self.cuts: list[tuple[Place, range]] = []
        self.terms: dict[Place, list[Term]] = defaultdict(list)
        self.reads: list[Read] = []
        self.commits: list[Commit] = []
        self.assigned_at: list[float] = []
        self.problems: list[tuple[float, str]] = []
        self.stopped = False
        for line in lines:
            if line.endswith("\n"):
                self._take(*json.loads(line))
        if killed is not None:
            for term in [term for terms in self.terms.values() for term in terms if not term.ended]:
                term.end, term.ended = killed, "killed"

    @classmethod
    def load(cls, path: Path, killed: float | None = None, eras: Eras | None = None) -> Diary:
        with path.open() as file:
            return cls(path.name, file, killed, eras)

    def _take(self, what: str, *note: Any) -> None:
        if what == "assigned":
            self.assigned_at.append(note[0])
            for topic, partition in note[1]:
                self.terms[topic, partition].append(Term(self.member, (topic, partition), note[0]))
        elif what in ("revoked", "awaited", "lost"):
            for topic, partition in note[1]:
                term = self._term((topic, partition))
                if not term.ended:
                    term.end, term.ended = note[0], what
        elif what == "read":
            began, at, records = note
            for topic, partition, offset, id, produced in records:
                term = self._term((topic, partition))
                term.last_use = max(term.last_use, began)
                if id >= 0:
                    self._era[topic, partition] = _era(self._eras, topic, id)
                self.reads.append(Read(term, self._unfolded(term.place, offset), id, began, at, produced))
        elif what == "commit":
            self._commit(*note)
        elif what == "cut":
            _, topic, partition, first, end = note
            self.cuts.append(((topic, partition), range(first, end)))
        elif what == "problem":
            self.problems.append((note[0], note[1]))
        else:
            self.stopped = True

    def _commit(self, began: float, at: float, offsets: list[Any], error: str) -> None:
        if error:
            self.problems.append((at, f"commit: {error}"))
            return
        for topic, partition, offset in offsets:
            term = self._term((topic, partition))
            term.last_use = max(term.last_use, began)
            self.commits.append(Commit(term, self._unfolded(term.place, offset), began, at))

    def _unfolded(self, place: Place, offset: int) -> int:
        return offset + ERA * self._era.get(place, 0)

    def _term(self, place: Place) -> Term:
        """The newest; one that ended when time began for whoever was never given the partition."""
        terms = self.terms[place]
        return terms[-1] if terms else Term(self.member, place, 0.0, 0.0, "revoked")


@dataclasses.dataclass
class Findings:
    """The counts of one group's run.

    visible: records that a read_committed reader has to see; read: that were handed out, repetitions included; dup: repetitions.
    lost: visible, never handed out; skips: visible, passed over within a term; repeats: handed out again within a term; rewound: handed out
    though the group had committed beyond it before the term began; strangers: aborted, control or foreign records; damaged: other bytes than were
    written; double_ms: for how long two members had the same partition; late_reads, late_commits: handed out, or committed with success, after
    the partition was revoked or lost, by calls that began after that, or where the application's calls are awaited, by any; regressions: commits in the group's log behind the one before; mispositioned: partitions whose last commit
    is not where a group that stopped in order stands; stuck: partitions not read to their end.
    longest_double_ms: the longest of these times; rebalances: the most that one member was given something; unowned_s: the longest for which a partition was nobody's; stall_s: the longest
    from a record's being produced to its first being handed out; errors: that calls raised in the fault's time. Before it, while the members come and
    the topic is divided, one that commits may be told that a partition is not its any more.
    """

    visible: int = 0
    read: int = 0
    dup: int = 0
    lost: int = 0
    skips: int = 0
    repeats: int = 0
    rewound: int = 0
    strangers: int = 0
    damaged: int = 0
    double_ms: float = 0.0
    longest_double_ms: float = 0.0
    late_reads: int = 0
    late_commits: int = 0
    regressions: int = 0
    mispositioned: int = 0
    stuck: int = 0
    rebalances: int = 0
    unowned_s: float = 0.0
    stall_s: float = 0.0
    commits: int = 0
    errors: dict[str, int] = dataclasses.field(default_factory=dict)

    @property
    def wrong(self) -> dict[str, float]:
        """The counts that must be 0 and are not."""
        return {name: n for name in DEFECTS if (n := getattr(self, name))}


DEFECTS = (
    "lost",
    "skips",
    "repeats",
    "rewound",
    "strangers",
    "damaged",
    "double_ms",
    "late_reads",
    "late_commits",
    "regressions",
    "mispositioned",
    "stuck",
)


class Story(NamedTuple):
    """What a group's diaries are held against. rows: the topics as a read_committed reader sees them, with their eras in offsets; log: the group's
    commits, each partition's in the order of the log, as they stand there; since, until: the fault's time, for what is measured; clean: all who
    lived at the end stopped in order.
    """

    rows: Sequence[Row]
    log: Sequence[tuple[Place, int]]
    since: float
    until: float
    clean: bool = True
    eras: Eras = MappingProxyType({})


def judge(diaries: Sequence[Diary], story: Story) -> Findings:
    """Compare what a group's members wrote with what the brokers have."""
    found = Findings(visible=len(story.rows), regressions=_regressions(story.log, story.eras))
    reads = [read for diary in diaries for read in diary.reads]
    visible: dict[Place, list[int]] = defaultdict(list)
    ids = {}
    for row in story.rows:
        visible[row.topic, row.partition].append(row.offset)
        ids[row[:3]] = row.id
    seen = Counter((*read.term.place, read.offset) for read in reads)
    found.read, found.dup = len(reads), sum(n - 1 for n in seen.values())
    found.lost = sum(place not in seen for place in ids)
    found.stuck = sum((*place, offsets[-1]) not in seen for place, offsets in visible.items())
    for read in reads:
        _compare(found, read, ids)
    for diary in diaries:
        _follow(found, diary, visible)
    _look_back(found, reads, [commit for diary in diaries for commit in diary.commits])
    terms = _by_place(diaries)
    overlaps = [overlap for held in terms.values() for overlap in _overlaps_ms(held)]
    found.double_ms, found.longest_double_ms = round(sum(overlaps), 1), round(max(overlaps, default=0.0), 1)
    found.unowned_s = round(max((_unowned(held, story) for held in terms.values()), default=0.0), 2)
    found.rebalances = max((sum(story.since < at < story.until for at in d.assigned_at) for d in diaries), default=0)
    found.stall_s = slowest(reads, story.since, story.until)
    found.commits = sum(len(diary.commits) for diary in diaries)
    found.mispositioned = _mispositioned(reads, visible, story.log) if story.clean else 0
    found.errors = dict(Counter(name for diary in diaries for at, name in diary.problems if at >= story.since))
    return found


def _compare(found: Findings, read: Read, ids: Mapping[tuple[Any, ...], int]) -> None:
    written = ids.get((*read.term.place, read.offset))
    if read.id == DAMAGED or (written is not None and read.id >= 0 and written != read.id):
        found.damaged += 1
    elif written is None or read.id < 0:
        found.strangers += 1
    found.late_reads += (read.at if read.term.ended == "awaited" else read.began) > read.term.end


def _follow(found: Findings, diary: Diary, visible: Mapping[Place, list[int]]) -> None:
    """The reads of each term, one after the other."""
    last: dict[int, int] = {}
    for read in diary.reads:
        before = last.get(id(read.term))
        last[id(read.term)] = read.offset
        if before is None:
            continue
        offsets = visible.get(read.term.place, [])
        found.repeats += read.offset <= before
        found.skips += max(0, bisect.bisect_left(offsets, read.offset) - bisect.bisect_right(offsets, before))
    found.late_commits += sum(commit.began > commit.term.end for commit in diary.commits)


def _look_back(found: Findings, reads: Iterable[Read], commits: Sequence[Commit]) -> None:
    """What was committed before a term began is not handed out in it."""
    done: dict[Place, list[tuple[float, int]]] = defaultdict(list)
    for commit in sorted(commits, key=lambda c: c.at):
        known = done[commit.term.place]
        known.append((commit.at, max(commit.offset, known[-1][1] if known else 0)))
    for read in reads:
        known = done[read.term.place]
        before = bisect.bisect_left(known, (read.term.start, -1))
        found.rewound += before > 0 and read.offset < known[before - 1][1]


def _regressions(log: Iterable[tuple[Place, int]], eras: Eras) -> int:
    """Commits behind the one before. Where a log began anew they may fall once: when it was deleted, or if not, whenever they do."""
    last: dict[Place, int] = {}
    anew: Counter[Place] = Counter()
    fell = 0
    for place, offset in log:
        if offset == FORGOTTEN:
            anew[place] += 1
        elif offset < last.get(place, 0):
            may = anew[place] < len(eras.get(place[0], ()))
            anew[place] += may
            fell += not may
        last[place] = offset
    return fell


def _by_place(diaries: Iterable[Diary]) -> dict[Place, list[Term]]:
    terms: dict[Place, list[Term]] = defaultdict(list)
    for diary in diaries:
        for place, held in diary.terms.items():
            terms[place] += held
    return {place: sorted(held, key=lambda term: term.start) for place, held in terms.items()}


def _overlaps_ms(terms: Sequence[Term]) -> Iterator[float]:
    for n, first in enumerate(terms):
        for second in terms[n + 1 :]:
            if second.member != first.member:
                yield max(0.0, min(first.over, second.over) - second.start) * 1000


def _unowned(terms: Sequence[Term], story: Story) -> float:
    covered, longest = story.since, 0.0
    for term in terms:
        if term.start > story.until:
            break
        if term.start > covered:
            longest = max(longest, term.start - covered)
        covered = max(covered, term.end)
    return max(longest, story.until - covered)


def slowest(reads: Iterable[Read], since: float, until: float) -> float:
    """The longest from a record's being produced, in that time, to its first being handed out."""
    first: dict[tuple[Place, int], float] = {}
    for read in sorted(reads, key=lambda read: read.at):
        if read.id >= 0 and since <= read.produced <= until:
            first.setdefault((read.term.place, read.offset), read.at - read.produced)
    return round(max(first.values(), default=0.0), 2)


def _mispositioned(reads: Iterable[Read], visible: Mapping[Place, list[int]], log: Iterable[tuple[Place, int]]) -> int:
    stands = dict(log)
    furthest: dict[Place, int] = {}
    for read in reads:
        furthest[read.term.place] = max(furthest.get(read.term.place, -1), read.offset)
    wrong = 0
    for place, last in furthest.items():
        offsets = visible.get(place, [])
        following = bisect.bisect_right(offsets, last)
        most = offsets[following] if following < len(offsets) else float("inf")
        wrong += not last < stands.get(place, 0) + last // ERA * ERA <= most
    return wrong


def takeover(diaries: Iterable[Diary], victim: str, at: float) -> float:
    """Seconds from `at` until others had been given everything that the victim had; 0 if it had nothing, infinity if they never were."""
    diaries = list(diaries)
    held = {
        term.place
        for diary in diaries
        if diary.member == victim
        for terms in diary.terms.values()
        for term in terms
        if term.start < at <= term.end  # the end of one that was killed is when it was
    }
    took = []
    for place in held:
        starts = [term.start for diary in diaries if diary.member != victim for term in diary.terms.get(place, ()) if term.start > at]
        took.append(min(starts, default=float("inf")) - at)
    return max(took, default=0.0)
