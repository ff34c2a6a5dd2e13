"""The runs of pytest behind `make check`, `make test` and `make thorough`: what is in which, how many processes it has, what runs at once.

    python -m tests.stages check|test|thorough

On two cores the tests with Kafka wait half of their time, for brokers, elections and sessions. So those without run beside them, with less urgency, on
what is left of the processors; what these say is shown when all have ended. Behind the tests with Kafka come the demo and the Python twin. Each test
is played once: one that fails on a busy machine is a defect.

Which handler a test has does not depend on the run: tests/turns.py.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from tests.kit.clock import Moment, figure, now
from tests.kit.lacking import LEFT_OUT, left_out
from tests.live.classes import spark_options
from tests.live.maven import cache_folder
from tests.turns import ALSO_WITH_GREENLETS, NEWEST, OLD_RELEASES

__all__ = ["NO_BROKER", "PLANS", "TWICE", "WITH_KAFKA", "Stage", "main", "play", "told_first"]

ROOT = Path(__file__).resolve().parent.parent
QUICK = "not thorough and not soak"
THOROUGH = "thorough and not soak"

WITH_KAFKA = ("tests/faults/live", "tests/spark/live", "tests/gevent/live", "tests/examples/live", "tests/live")
"""They start Apache Kafka, Spark or the demo; all others are pure."""
NO_BROKER = (
    *(f"tests/{room}" for room in ("core", "wire", "records", "protocol", "handlers", "reference", "mutants")),
    *sorted(file.relative_to(ROOT).as_posix() for file in ROOT.glob("tests/test_*.py")),
)
"""Pure ones that talk to nobody: neither to a broker, not even one in their own process, nor to another peer (tests/net)."""
TWICE = ("tests/public", "tests/reading", "tests/regressions")
"""The rooms above the records run once more, on the Python twin (tests/records takes both implementations as a parameter) and with handlers that write
down what is asked of them; without what is thorough. tests/spark does so in `make thorough`: tests/spark/live/test_connect.py has tasks on the twin."""

LESS_URGENT = ("nice", "-n", "5")


@dataclass(frozen=True)
class Stage:
    """One run of pytest. name: also of the folder in which pytest keeps what it found."""

    name: str
    processes: int
    marks: str
    paths: Sequence[str]
    left_out: Sequence[str] = ()
    more: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)

    def command(self) -> list[str]:
        ignored = [f"--ignore={path}" for path in self.left_out]
        pytest = [sys.executable, "-m", "pytest", "-q", "-o", f"cache_dir=.pytest_cache/{self.name}", "-m", self.marks]
        return [*pytest, "-n", str(self.processes), "--dist", "loadfile", *self.more, *ignored, *self.paths]

    def surroundings(self) -> dict[str, str]:
        return {**os.environ, **self.environment}


class Demo(Stage):
    """The demo in a small form: the site is crawled up to so many paths."""

    def command(self) -> list[str]:
        return [sys.executable, "examples/crawl_pipeline/run.py", *self.paths, "--out", "demo-out/test"]


# Pure tests often wait, too, for a deadline or a pause: more processes than cores.
CYTHON = {"GKAFKA_IMPL": "cython"}


def pure(marks: str) -> Stage:
    return Stage("pure", 5, marks, ["tests"], left_out=WITH_KAFKA, environment=CYTHON)


def with_kafka(marks: str) -> Stage:
    """In three processes with brokers of their own: what shares brokers together, the longest ones first (tests/turns.py)."""
    return Stage("kafka", 3, marks, WITH_KAFKA, more=["--no-loadscope-reorder"])


def twin(marks: str, rooms: Sequence[str] = TWICE, name: str = "twin") -> Stage:
    environment = {"GKAFKA_IMPL": "python", "GKAFKA_HANDLERS": "recording"}
    return Stage(name, 4, marks, rooms, left_out=WITH_KAFKA, environment=environment)


def demo() -> Stage:
    small = ["--max-pages", "40", "--cap", "4000", "--kill-after", "4000"]
    return Demo("demo", 0, "", small, environment={"SPARK_SUBMIT_OPTS": spark_options()})


PLANS: dict[str, tuple[list[Stage], list[Stage]]] = {
    "check": ([Stage("check", 4, QUICK, NO_BROKER, environment=CYTHON)], []),
    "test": ([with_kafka(QUICK), demo(), twin(f"{QUICK} and not {ALSO_WITH_GREENLETS}")], [pure(QUICK)]),
    "thorough": (
        [with_kafka(THOROUGH), twin(f"{QUICK} and {ALSO_WITH_GREENLETS}"), twin(QUICK, ["tests/spark"], "spark")],
        [pure(THOROUGH)],
    ),
}
"""What is played: runs in front, one after the other, and those beside them, one after the other, too."""


def prepare() -> None:
    """In a fresh clone pytest rewrites the assertions of all tests and keeps them. Once, by two processes, and not by each of those that play."""
    files = sorted(ROOT.glob("tests/**/test_*.py"))
    kept = {file.name.partition(".")[0] for file in ROOT.glob("tests/**/__pycache__/test_*-pytest-*.pyc")}
    if sum(file.stem not in kept for file in files) < len(files) // 4:
        return
    print("preparing the tests (once in a clone)", flush=True)
    command = [sys.executable, "-m", "pytest", "-q", "--collect-only", "-p", "no:xdist", "-p", "no:cacheprovider"]
    halves = [[str(file) for file in files[start::2]] for start in (0, 1)]
    runs = [subprocess.Popen([*command, *half], cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for half in halves]
    for run in runs:
        run.wait()


def play(front: Sequence[Stage], beside: Sequence[Stage]) -> bool:
    """Return whether every test has passed."""
    runs: list[Run] = []
    with tempfile.TemporaryFile("w+") as said:
        lanes: list[tuple[list[Stage], IO[str] | None]] = [(list(front), None), (list(beside), said)]
        try:
            while any(waiting for waiting, _ in lanes) or running(runs):
                for waiting, to in lanes:
                    if waiting and not any(run.to is to for run in running(runs)):
                        runs.append(Run(waiting.pop(0), to))
                time.sleep(0.1)
        finally:
            for run in runs:  # after Ctrl-C, which they hear, too, as what ends the whole process group
                run.process.wait()
            said.seek(0)
            print(said.read(), end="", flush=True)
    for run in runs:
        print(f"{run.stage.name}: {run.seconds / 60:.1f} minutes, {'failed' if run.process.returncode else 'passed'}", flush=True)
    return not any(run.process.returncode for run in runs)


def running(runs: Sequence[Run]) -> list[Run]:
    return [run for run in runs if not run.ended()]


class Run:
    """A stage that runs. to: the file for its output, which makes it less urgent than what runs in front."""

    def __init__(self, stage: Stage, to: IO[str] | None = None) -> None:
        self.stage, self.to = stage, to
        self.seconds = 0.0
        self._began: Moment = now()
        command = [*(LESS_URGENT if to else ()), *stage.command()]
        self.process = subprocess.Popen(command, cwd=ROOT, env=stage.surroundings(), stdout=to, stderr=to)

    def ended(self) -> bool:
        """Whether it has ended; notes when."""
        if not self.seconds and self.process.poll() is not None:
            self.seconds = figure(now() - self._began)
        return self.seconds > 0


def told_first(front: Sequence[Stage], beside: Sequence[Stage]) -> list[str]:
    """What somebody who waits wants to know: what is played, what is shown when, and what has to be fetched first."""
    lines = [f"played one after the other: {', '.join(stage.name for stage in front)}"]
    if beside:
        lines.append(f"played beside them, and shown behind all: {', '.join(stage.name for stage in beside)}")
    if any(stage.paths is WITH_KAFKA for stage in front):
        kept = cache_folder() / "jars"
        missing = [release for release in (*OLD_RELEASES, NEWEST) if not (kept / f"kafka-{release}").is_dir()]
        if missing:
            lines.append(f"fetched from Maven meanwhile, once for all clones, into {kept}: Apache Kafka {', '.join(missing)}")
    return lines


def main(arguments: Sequence[str]) -> int:
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    with tempfile.TemporaryDirectory() as folder:
        os.environ[LEFT_OUT] = folder
        try:
            print("\n".join(told_first(*PLANS[arguments[0]])), flush=True)
            passed = play(*PLANS[arguments[0]])
        finally:
            del os.environ[LEFT_OUT]
            signal.signal(signal.SIGTERM, before)
            print("\n".join(left_out(Path(folder))), flush=True)
    return 0 if passed else 1


if __name__ == "__main__":
    prepare()
    sys.exit(main(sys.argv[1:]))
