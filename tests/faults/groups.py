"""One fault played to several groups at once: gkafka's consumers on threads and on greenlets, and confluent-kafka's as the control.

All read the same topic, which another client writes in transactions, some of them aborted. Each member is a process with a diary of its own.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import random
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.faults.child import Child
from tests.faults.consumed import Diary, Findings, Place, Story, judge, unfolded
from tests.faults.ledger import Row
from tests.faults.load import Load
from tests.faults.member import Membership
from tests.faults.parties import CONTROL, Member, Party
from tests.faults.runs import ROOM_S, Form
from tests.faults.stage import Stage, Stuck, until
from tests.kit.clock import figure, now, soon

__all__ = ["FORMS", "GroupFault", "GroupLine", "GroupRun", "blame", "play_groups"]

FORMS = {"long": Form("long", 20_000, 600.0, 600.0), "short": Form("short", 1_500, 400.0, 60.0, ROOM_S)}
"""acked: records that each group has to have read; rate: of the load, records a second."""
DRAIN_S = 60.0
STOP_S = 30.0
CONTROL_S = 15.0
BESIDE = 5_000_000_000
"""The first id of the load beside: none of the other's."""


@dataclasses.dataclass(frozen=True)
class GroupFault:
    """A fault and what it needs. kinds: of gkafka's consumers it is played to; play: does it; members, partitions: of each group, of the topic.

    strategy: how partitions are divided, and native_strategy by the native consumer; short_kinds: those that the short form is played to, all if empty.
    evidence: counters of which none may be 0 at the end, else the fault disturbed nothing; bars: figures of each of our groups and the most that
    they may be; quiet: the handlers, or handler/kind, with which no rebalance may happen; tolerates: defects that the fault
    cannot but bring about, and how much of each; control: whether confluent-kafka takes part; errors: the application may meet some. static:
    members are; stage: makes one of its own, from a seed; nodes: that have all of the topic, led by the first; beside: partitions of a second topic, which the fault leaves alone and native consumers
    read, too; shots: client -> what cuts its members off, in order; prepare: writes what there is to read, in place of the load; least: records that have to be read. client_options, options: of our
    clients and consumers; control_options: of the control.
    """

    id: str
    title: str
    play: Callable[[GroupRun], None]
    evidence: tuple[str, ...]
    bars: Mapping[str, float] = dataclasses.field(default_factory=dict)
    kinds: tuple[str, ...] = ("managed", "native")
    members: int = 3
    partitions: int = 6
    session_s: float = 6.0
    strategy: str = "range"
    native_strategy: str = "cooperative-sticky"
    short_kinds: tuple[str, ...] = ()
    quiet: tuple[str, ...] = ()
    tolerates: Mapping[str, float] = dataclasses.field(default_factory=dict)
    static: bool = False
    stage: Callable[[int], Stage] | None = None
    nodes: tuple[int, ...] = ()
    beside: int = 0
    shots: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    prepare: Callable[[GroupRun], None] | None = None
    least: int | None = None
    control: bool = True
    errors: bool = True
    short: bool = False
    configs: Mapping[str, object] = dataclasses.field(default_factory=dict)
    client_options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    control_options: Mapping[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class GroupLine:
    """What came out for one group. figures: what the fault measures, in its unit; control: the same of the control."""

    fault: str
    client: str
    seed: int
    form: str
    played: str
    findings: Findings
    figures: dict[str, float]
    evidence: dict[str, int]
    seconds: float
    blame: list[str]
    control: dict[str, float] = dataclasses.field(default_factory=dict)

    def json(self) -> str:
        about = {field.name: getattr(self, field.name) for field in dataclasses.fields(self) if field.name != "findings"}
        return json.dumps({**about, "seconds": round(self.seconds, 1), **dataclasses.asdict(self.findings)})


class GroupRun:
    """What a fault's play has in its hands. counts: the evidence; parties: the groups; topics: what they read, name -> partitions; eras: of the first."""

    def __init__(self, stage: Stage, fault: GroupFault, form: Form, seed: int, folder: Path, clients: Sequence[str]) -> None:
        self.stage, self.fault, self.form = stage, fault, form
        self.chance = random.Random(seed)
        self.counts: Counter[str] = Counter()
        self.folder = folder
        self.topics = {stage.new_topic(f"{fault.id}-consumed", fault.partitions, fault.nodes, **fault.configs): fault.partitions}
        if fault.beside:
            self.topics[stage.new_topic(f"{fault.id}-beside", fault.beside)] = fault.beside
        self.eras: dict[str, list[int]] = {}
        self._past: set[Row] = set()
        self.parties = [Party(c, k, f"{fault.id}-{c}-{k}-{self.topic}") for c in clients if c != CONTROL for k in self.kinds]
        if CONTROL in clients and fault.control:
            self.parties.append(Party(CONTROL, CONTROL, f"{fault.id}-{CONTROL}-{self.topic}"))
        self.began = self.ended = now()
        self.load: Child | None = None
        self.beside: Child | None = None

    @property
    def kinds(self) -> tuple[str, ...]:
        return self.fault.kinds if self.long or not self.fault.short_kinds else self.fault.short_kinds

    @property
    def long(self) -> bool:
        return self.form.name == "long"

    @property
    def least(self) -> int:
        """Records that each group has to read."""
        return self.form.acked if self.fault.least is None else self.fault.least

    @property
    def topic(self) -> str:
        return next(iter(self.topics))

    @property
    def places(self) -> list[Place]:
        return [(topic, p) for topic, count in self.topics.items() for p in range(count)]

    def places_of(self, party: Party) -> list[Place]:
        """What it reads: pykafka's consumers have one topic."""
        return self.places if party.kind in ("native", CONTROL) else [place for place in self.places if place[0] == self.topic]

    def diaries(self, party: Party) -> list[Diary]:
        """What its members have written until now, with the eras of what they read."""
        return party.diaries(self.eras)

    # -- members -------------------------------------------------------------------------------------------------------
    def join(self, party: Party, **options: Any) -> Member:
        """One more member."""
        name = f"{party.client}-{party.kind}-{len(party.members)}"
        fault = self.fault
        given = Membership(
            party.client,
            party.kind,
            name,
            options.pop("hosts", self.stage.hosts),
            list(self.topics),
            party.group,
            str(self.folder / name),
            session_s=fault.session_s,
            strategy=fault.native_strategy if party.kind == "native" else fault.strategy,
            zookeeper=self.stage.cluster.zookeeper or "",
            names=self.stage.names_file,
            log=str(self.stage.logs / f"{fault.id}-{name}.log") if self.stage.logs and party.client != CONTROL else "",
            callback=options.pop("callback", ""),
            shots=fault.shots[party.client][len(party.members)] if fault.shots else "",
            instance=options.pop("instance", name if fault.static else ""),
            client_options=dict(fault.client_options) if party.client != CONTROL else {},
            options={**(fault.control_options if party.client == CONTROL else fault.options), **options},
        )
        party.members.append(Member(given))
        return party.members[-1]

    def victims(self) -> list[tuple[Party, Member]]:
        """One member of each group, which has something."""
        return [(party, self.chance.choice([m for m in party.there if m.mine] or party.there)) for party in self.parties]

    # -- waiting -------------------------------------------------------------------------------------------------------
    def wait(self, what: Callable[[], Any], why: str, timeout: float = 60.0) -> None:
        def alive_and_done() -> Any:
            for party in self.parties:
                for member in party.members:
                    member.check_alive()
            for load in filter(None, (self.load, self.beside)):
                if load.status is not None:
                    raise Stuck(f"the load ended by itself:\n{load.errors()}")
            return what()

        until(alive_and_done, why, timeout)

    def pause(self, seconds: float) -> None:
        end = soon(seconds)
        self.wait(lambda: now() >= end, "the time passes", seconds + 10)

    def settled(self, timeout: float = 60.0) -> None:
        """Until in every group each partition is exactly one living member's, and everyone has some."""

        def shared(party: Party) -> bool:
            has = [member.mine for member in party.there]
            return all(has) and sum(map(len, has)) == len(set().union(*has)) == len(self.places_of(party))

        self._until_all(shared, self.parties, "every group shares all partitions", timeout)

    def ready(self) -> None:
        """Until every group shares all partitions and goes on."""
        self.settled()
        self.goes_on()

    def goes_on(self, parties: Sequence[Party] | None = None, since: float | None = None, timeout: float = 90.0) -> None:
        """Until every group has read, from every partition, a record that was produced later than `since`, or now."""
        after = now() if since is None else since
        asked = self.parties if parties is None else parties
        self._until_all(lambda party: not self._behind(party, after), asked, "every group goes on", timeout)

    def _behind(self, party: Party, since: float) -> list[Place]:
        return [place for place in self.places_of(party) if party.produced(place) <= since]

    def measure(self, figure: str, since: float) -> None:
        """How long each group takes to read, from every partition, a record that was produced since; infinity if the control never does."""
        times: dict[Party, float] = {}

        def went_on(party: Party) -> bool:
            if party not in times and not self._behind(party, since):
                times[party] = now() - since
            return party in times

        self._until_all(went_on, self.parties, "every group goes on", 90.0)
        for party in self.parties:
            party.most(figure, times.get(party, float("inf")))

    def _until_all(self, done: Callable[[Party], bool], parties: Sequence[Party], why: str, timeout: float) -> None:
        """Until it is done by all of these. The control gets some more time, and need not: nothing is asked of it but that it takes part."""
        open_ones: list[Party] = []

        def all_done(asked: Sequence[Party]) -> bool:
            open_ones[:] = [party for party in asked if not done(party)]
            return all(party.client == CONTROL for party in open_ones)

        try:
            self.wait(lambda: all_done(parties), why, timeout)
        except Stuck as error:
            raise Stuck(f"{error}: {', '.join(p.name for p in open_ones)}") from None
        with contextlib.suppress(Stuck):
            self.wait(lambda: all(map(done, parties)), why, CONTROL_S)

    def reads(self, count: int) -> None:
        """Until every group was handed so many more."""
        goals = [(party, party.read + count) for party in self.parties]
        self.wait(lambda: all(party.read >= goal for party, goal in goals), f"{count} more records are read", self.form.limit_s)

    # -- brokers -------------------------------------------------------------------------------------------------------
    def coordinators(self) -> dict[str, int]:
        """Group -> node."""
        return {party.group: self.stage.coordinator(party.group) for party in self.parties}

    # -- the load ------------------------------------------------------------------------------------------------------
    def start_load(self) -> None:
        first, topics = self.counts["produced"], dict(self.topics)
        if self.fault.beside:
            topics = {self.topic: topics[self.topic]}
        self.load = Child("tests.faults.load", Load(self.stage.direct, topics, self.form.rate, first=first))

    def start_load_beside(self) -> None:
        others = {topic: count for topic, count in self.topics.items() if topic != self.topic}
        self.beside = Child("tests.faults.load", Load(self.stage.direct, others, self.form.rate / 2, first=BESIDE))

    def end_load(self) -> None:
        assert self.load is not None
        load, self.load = self.load, None
        load.tell("")
        try:
            load.wait(60)
            self.counts["aborted"] += load.said["aborted"]
            self.counts["produced"] = load.said["produced"]
        finally:
            load.end()

    def caught_up(self) -> None:
        """The load ends, and every group reads what there is of the topic. That is the past now: its offsets may begin anew."""
        self.end_load()
        rows = self._read_out([self.topic])
        self._until_read(rows, 90.0)
        self._past |= set(rows)
        self.eras.setdefault(self.topic, []).append(self.counts["produced"])

    def _read_out(self, topics: Sequence[str]) -> list[Row]:
        return [unfolded(row, self.eras) for row in self.stage.dump(topics, "read_committed")]

    def _until_read(self, rows: Iterable[Row], timeout: float) -> None:
        last: dict[Place, int] = {}
        for row in rows:
            last[row.topic, row.partition] = max(row.id, last.get((row.topic, row.partition), -1))

        def behind() -> list[str]:
            return [f"{p.name} {place}" for p in self.parties for place in self.places_of(p) if p.id(place) < last.get(place, -1)]

        try:
            self.wait(lambda: not behind(), "all is read", timeout)
        except Stuck as error:
            raise Stuck(f"{error}: {', '.join(behind())}") from None

    # -- the end -------------------------------------------------------------------------------------------------------
    def start(self) -> None:
        if self.fault.prepare is not None:
            self.fault.prepare(self)
        else:
            self.start_load()
        if self.fault.beside:
            self.start_load_beside()
        for party in self.parties:
            for _ in range(1 if party.kind == "simple" else self.fault.members):
                self.join(party)
        self.settled()
        if self.load is not None:
            self.goes_on()
        self.began = now()

    def drain(self) -> list[Row]:
        """End the load, wait until everything is read or the time is over. Returns what there was to read."""
        if self.load is not None:
            self.end_load()
        if self.beside is not None:
            self.beside.tell("")
            self.beside.wait(60)
            self.beside.end()
            self.beside = None
        rows = self._read_out(list(self.topics))
        with contextlib.suppress(Stuck):  # the findings say what is stuck
            self._until_read(rows, DRAIN_S)
        self.ended = now()
        return sorted(self._past | set(rows))

    def stop(self) -> None:
        """Every member leaves in order."""
        living = [member for party in self.parties for member in party.members if member.status is None]
        for member in living:
            if not member.leaving:
                member.leave()
        deadline = now() + STOP_S
        for member in living:
            try:
                status = member.wait(max(1.0, deadline - now()))
            except subprocess.TimeoutExpired:
                raise Stuck(f"{member.name} has not stopped within {STOP_S:g} s:\n{member.errors()}") from None
            if status != 0 or not member.said.get("ended"):
                raise Stuck(f"{member.name} ended with status {status}:\n{member.errors()}")

    def close(self) -> None:
        for child in [*(member for party in self.parties for member in party.members), *filter(None, [self.load, self.beside])]:
            child.end()


def play_groups(stage: Stage, fault: GroupFault, form: Form, seed: int, clients: Sequence[str]) -> list[GroupLine]:
    """Play a fault to the groups; a line for each. The stage is whole before and after it."""
    with tempfile.TemporaryDirectory() as folder:
        stage.heal()
        stage.plan.chance.seed(seed)
        ended = stage.plan.ended + stage.plan.broken
        run = GroupRun(stage, fault, FORMS[form.name], seed, Path(folder), clients)
        try:
            run.start()
            fault.play(run)
            run.reads(max(0, run.least - min(party.read for party in run.parties)))
            run.counts["disconnects"] = stage.plan.ended + stage.plan.broken - ended
            stage.heal()
            rows = run.drain()
            run.stop()
            lines = [_line(run, party, rows, seed) for party in run.parties]
        finally:
            run.close()
            if stage.logs is not None:
                shutil.copytree(folder, stage.logs / f"{fault.id}-diaries", dirs_exist_ok=True)
            stage.heal()
        with contextlib.suppress(Exception):
            stage.admin.delete_topics(list(run.topics))
    control = next((line for line in lines if line.client == CONTROL), None)
    for line in lines:
        if control is not None and line is not control:
            line.control = {**control.figures, "stall_s": control.findings.stall_s}
    return lines


def _line(run: GroupRun, party: Party, rows: Sequence[Row], seed: int) -> GroupLine:
    diaries = run.diaries(party)
    topics = {topic for topic, _ in run.places_of(party)}
    read = [row for row in rows if row.topic in topics]
    began, ended = figure(run.began), figure(run.ended)  # among the times of the diaries, which are plain numbers
    story = Story(read, run.stage.commits(party.group), began, ended, clean=party.kind != "simple", eras=run.eras)
    findings = judge(diaries, story)
    evidence = {name: int(party.figures.get(name, run.counts[name])) for name in ("aborted", *run.fault.evidence)}
    line = GroupLine(
        run.fault.id, party.name, seed, run.form.name, run.fault.title, findings, party.figures, evidence, run.ended - run.began, []
    )
    if party.client != CONTROL:
        line.blame = list(blame(run, line))
    return line


def blame(run: GroupRun, line: GroupLine) -> Iterator[str]:
    """Why the run failed; for the control nothing is asked but that it took part."""
    fault, found = run.fault, line.findings
    for name, count in found.wrong.items():
        if count > fault.tolerates.get(name, 0):
            yield f"{count:g} {name}"
    if found.read < run.least:
        yield f"too few read: {found.read:,} of {run.least:,}"
    for name, times in line.evidence.items():
        if not times:
            yield f"no {name}: the fault disturbed nothing"
    for name, most in fault.bars.items():
        limit = most + (run.form.room_s if name.endswith("_s") else 0)
        measured = line.figures.get(name, getattr(found, name, None))
        if measured is None:
            yield f"{name} was not measured"
        elif measured > limit:
            yield f"{name} {measured:g}: more than {limit:g}"
    if {line.client, line.client.partition("/")[0]} & {*fault.quiet} and found.rebalances:
        yield f"{found.rebalances} rebalances"
    if not fault.errors and found.errors:
        yield f"the application met {found.errors}"
