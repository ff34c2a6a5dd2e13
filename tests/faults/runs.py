"""One fault played to three writers at once: gkafka on threads, gkafka on greenlets, and confluent-kafka as the control."""

from __future__ import annotations

import contextlib
import dataclasses
import random
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.faults.child import Child
from tests.faults.ledger import GRACE_S, Entry, Ledger, Verdict, check
from tests.faults.stage import PARTITIONS, Stage, Stuck, until
from tests.faults.writer import CLIENTS, Task
from tests.kit import clock

__all__ = ["LONG", "ROOM_S", "SHORT", "Fault", "Form", "Line", "Run", "blame", "play"]

GOAL = 1.25
"""Of the stall ratio: ours by the control's."""


@dataclasses.dataclass(frozen=True)
class Form:
    """How much of a fault is played. acked: records that each writer must have acknowledged; rate: records a second of each writer.

    room_s: is added to each bound of time. Tests play the short form on machines that do other things, too.
    """

    name: str
    acked: int
    rate: float
    limit_s: float
    room_s: float = 0.0


ROOM_S = 30.0
LONG = Form("long", 200_000, 6000.0, 600.0)
SHORT = Form("short", 3_000, 1000.0, 60.0, ROOM_S)


@dataclasses.dataclass(frozen=True)
class Fault:
    """A fault and what it needs. play: does it, while the writers write; topics: of each writer; configs: of each topic.

    evidence: counters of which none may be 0 at the end, else the fault disturbed nothing: retries of the client, disconnects at the doors,
    moves of leaders. control: whether confluent-kafka takes part.
    """

    id: str
    title: str
    play: Callable[[Run], None]
    evidence: tuple[str, ...] = ("retries",)
    topics: int = 1
    configs: Mapping[str, object] = dataclasses.field(default_factory=dict)
    delivery_timeout_s: float = 120.0
    request_timeout_s: float = 30.0
    fails: bool = False  # some records are meant to fail: a run without one proves nothing
    short: bool = True  # has a short form


@dataclasses.dataclass
class Line:
    """What came out for one client. played: what was done to it; restarts: of its engine; hit: state -> in how many of them there was such a batch."""

    fault: str
    client: str
    seed: int
    form: str
    played: str
    verdict: Verdict
    retries: int
    bumps: int
    disconnects: int
    moves: int
    seconds: float
    blame: list[str]
    control_stall_s: float = 0.0
    restarts: int = 0
    hit: Mapping[str, int] = dataclasses.field(default_factory=dict)

    @property
    def ratio(self) -> float:
        return self.verdict.stall_s / self.control_stall_s if self.control_stall_s else 0.0

    def json(self) -> str:
        names = ("fault", "client", "seed", "form", "played", "retries", "bumps", "disconnects", "moves")
        about = {name: getattr(self, name) for name in names}
        more = {
            "seconds": round(self.seconds, 1),
            "control_stall_s": self.control_stall_s,
            "ratio": round(self.ratio, 2),
            "restarts": self.restarts,
            "hit": dict(self.hit),
            "blame": self.blame,
        }
        return self.verdict.line(**about, **more)


class Writing(Child):
    """A writer's process. A context manager: it is ended by its id at the latest with the block."""

    def __init__(self, task: Task) -> None:
        self.task = task
        super().__init__("tests.faults.writer", task)

    @property
    def acked(self) -> int:
        return int(self.said.get("acked", 0))

    def newest(self, topics: Sequence[str] | None = None) -> float:
        """When the newest acknowledged record of the partition that is furthest behind was produced."""
        places = self.said.get("newest", [])
        return min((at for topic, _, at in places if topics is None or topic in topics), default=0.0)

    def check_alive(self) -> None:
        if self.status is not None:
            raise Stuck(f"the {self.task.client} writer ended by itself:\n{self.errors()}")

    def stop(self) -> None:
        """No more records; what is under way is waited for."""
        self.tell("")

    def finish(self, timeout: float) -> Ledger:
        """Wait for its end. Returns its ledger."""
        try:
            status = self.wait(timeout)
        except subprocess.TimeoutExpired:
            raise Stuck(f"the {self.task.client} writer has not ended within {timeout:g} s:\n{self.errors()}") from None
        if status != 0 or not self.said.get("ended"):
            raise Stuck(f"the {self.task.client} writer ended with status {status}:\n{self.errors()}")
        return Ledger.load(Path(self.task.ledger))

    def __enter__(self) -> Writing:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.end()


class Run:
    """What a fault's play has in its hands.

    topics: of every writer, all with the same leaders; moves: leaders that it moved; must_stay: see `check`; began: when the writers
    were at work and the fault could come.
    """

    def __init__(self, stage: Stage, fault: Fault, form: Form, seed: int) -> None:
        self.stage, self.fault, self.form = stage, fault, form
        self.chance = random.Random(seed)
        self.moves = 0
        self.writers: list[Writing] = []
        self.topics: dict[str, list[str]] = {}
        self.must_stay: Callable[[Entry], bool] = lambda entry: True
        self.began = clock.now()

    @property
    def long(self) -> bool:
        return self.form.name == "long"

    @property
    def topic(self) -> str:
        """Of the first writer: where it is led, the others are."""
        return next(iter(self.topics.values()))[0]

    def wait(self, what: Callable[[], Any], why: str, timeout: float = 60.0) -> None:
        def alive_and_done() -> Any:
            for writer in self.writers:
                writer.check_alive()
            return what()

        until(alive_and_done, why, timeout)

    def pause(self, seconds: float) -> None:
        """The fault lasts so long; the writers have to live meanwhile."""
        end = clock.soon(seconds)
        self.wait(lambda: clock.now() >= end, "the time passes", seconds + 10)

    def write(self, count: int) -> None:
        """Until every writer has so many more records acknowledged."""
        goals = [(writer, writer.acked + count) for writer in self.writers]
        self.wait(lambda: all(w.acked >= goal for w, goal in goals), f"{count} more records are acknowledged", self.form.limit_s)

    def recovered(self, since: float | None = None, topics: Sequence[str] | None = None, timeout: float = 120.0) -> None:
        """Until every writer has a record acknowledged on every partition that was produced after `since`, or now."""
        after = clock.now() if since is None else since
        self.wait(lambda: all(w.newest(topics) > after for w in self.writers), "every partition goes on", timeout)

    def in_sync(self, replicas: int = 3) -> None:
        self.wait(lambda: self.stage.in_sync(self.topic, replicas), f"{replicas} replicas are in sync")

    def done(self) -> bool:
        return all(writer.acked >= self.form.acked for writer in self.writers)

    def until_done(self) -> None:
        self.wait(self.done, f"{self.form.acked} records are acknowledged", self.form.limit_s)

    def watch_leaders(self) -> dict[int, int]:
        return self.stage.leaders(self.topic)

    def count_moves(self, before: Mapping[int, int]) -> None:
        """Wait until the leaders are others than before, and count them."""
        self.wait(lambda: self._moved(before), "leaders move")
        self.moves += self._moved(before)

    def _moved(self, before: Mapping[int, int]) -> int:
        now = self.watch_leaders()
        return sum(now.get(p, -1) > 0 and now[p] != leader for p, leader in before.items())


def play(stage: Stage, fault: Fault, form: Form, seed: int, clients: Sequence[str] = CLIENTS) -> list[Line]:
    """Play a fault to the clients; a line for each. The stage is whole before and after it."""
    run = Run(stage, fault, form, seed)
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        stage.heal()
        stage.plan.chance.seed(seed)
        ended = stage.plan.ended + stage.plan.broken
        for client in clients:
            run.topics[client] = [stage.new_topic(f"{fault.id}-{client}", PARTITIONS, (), **fault.configs) for _ in range(fault.topics)]
        for client, topics in run.topics.items():
            run.writers.append(stack.enter_context(Writing(_task(run, client, topics, Path(folder)))))
        stack.callback(stage.heal)
        run.recovered(0.0)
        run.began = clock.now()
        fault.play(run)
        run.until_done()
        disconnects = stage.plan.ended + stage.plan.broken - ended
        stage.heal()
        ledgers = _finish(run)
        seconds = clock.now() - run.began
        lines = [_line(run, writer, ledger, disconnects, seed, seconds) for writer, ledger in zip(run.writers, ledgers, strict=True)]
        with contextlib.suppress(Exception):
            stage.admin.delete_topics([t for topics in run.topics.values() for t in topics])
    control = next((line.verdict.stall_s for line in lines if line.client == "confluent"), 0.0)
    for line in lines:
        line.control_stall_s = control
    return lines


def _task(run: Run, client: str, topics: list[str], folder: Path) -> Task:
    fault = run.fault
    return Task(
        client,
        run.stage.hosts,
        topics,
        PARTITIONS,
        str(folder / client),
        rate=run.form.rate,
        plenty=run.form.acked * 5 // 4,
        delivery_timeout_s=fault.delivery_timeout_s,
        request_timeout_s=fault.request_timeout_s,
        log=str(run.stage.logs / f"{fault.id}-{client}.log") if run.stage.logs else "",
    )


def _finish(run: Run) -> list[Ledger]:
    for writer in run.writers:
        writer.stop()
    deadline = clock.now() + run.fault.delivery_timeout_s + 60
    return [writer.finish(max(1.0, deadline - clock.now())) for writer in run.writers]


def _line(run: Run, writer: Writing, ledger: Ledger, disconnects: int, seed: int, seconds: float) -> Line:
    topics = writer.task.topics
    log, committed = run.stage.dump(topics), run.stage.dump(topics, "read_committed")
    verdict = check(ledger, log, committed, must_stay=run.must_stay, since=run.began, grace_s=GRACE_S + run.form.room_s)
    counters = {"retries": writer.said["retries"], "disconnects": disconnects, "moves": run.moves}
    line = Line(
        run.fault.id,
        writer.task.client,
        seed,
        run.form.name,
        run.fault.title,
        verdict,
        bumps=writer.said["bumps"],
        **counters,
        seconds=seconds,
        blame=[],
    )
    line.blame = list(_blame(run, line))
    return line


def _blame(run: Run, line: Line) -> Iterator[str]:
    """Why the run failed; for the control nothing is asked but that it took part."""
    if line.client == "confluent":
        return
    yield from blame(run.form, line.verdict, {name: getattr(line, name) for name in run.fault.evidence})
    failed = line.verdict.failed_no + line.verdict.failed_maybe
    if bool(failed) != run.fault.fails:
        yield f"{failed} records failed: {line.verdict.errors}" if failed else "no record failed: the fault was too short"


def blame(form: Form, verdict: Verdict, evidence: Mapping[str, int]) -> Iterator[str]:
    """Why a run failed, whatever was played: a defect, too few records, or a fault that did not happen. evidence: counters by name."""
    for name, count in verdict.wrong.items():
        yield f"{count} {name}"
    if verdict.acknowledged < form.acked:
        yield f"too few acknowledged: {verdict.acknowledged:,} of {form.acked:,}"
    for name, count in evidence.items():
        if not count:
            yield f"no {name}: the fault disturbed nothing"
