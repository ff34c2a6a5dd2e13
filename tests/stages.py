"""The runs of pytest behind `make check`, `make test` and `make thorough`: what is in which, how many processes it has, what runs at once.

    python -m tests.stages check|test|thorough

On two cores the tests with Kafka wait half of their time, for brokers, elections and sessions. So those without run beside them, with less urgency, on
what is left of the processors; what these say is shown when all have ended. What failed beside others is run once more, alone: waits have deadlines,
and a busy machine may miss one. A virtual machine may be slow with nothing else in it, too: what fails alone has a last try when the machine has come
to rest. All runs are shown.

Tests of what stands directly on the handlers are played with both of them. Of other tests for both, and of those with Kafka, `make test` plays each with
one, of all tests about half with each, and `make thorough` with the other one; on the Python twin it is the other way round.
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

__all__ = ["NO_BROKER", "PLANS", "TWICE", "WITH_KAFKA", "Stage", "main", "play"]

ROOT = Path(__file__).resolve().parent.parent
QUICK = "not thorough and not soak"
THOROUGH = "thorough and not soak"

WITH_KAFKA = ("tests/faults/live", "tests/spark/live", "tests/gevent/live", "tests/examples/live", "tests/live")
"""They start Apache Kafka, Spark or the demo; all others are pure."""
WITH_BOTH = ("tests/live",)
"""Those among them with tests for both handlers: `make test` plays each with one, `make thorough` with the other one."""
NO_BROKER = (
    *(f"tests/{room}" for room in ("core", "wire", "records", "protocol", "handlers", "net", "reference", "mutants")),
    *sorted(file.relative_to(ROOT).as_posix() for file in ROOT.glob("tests/test_*.py")),
)
"""Pure ones that need no broker at all, not even one in their own process."""
TWICE = ("tests/public", "tests/reading", "tests/regressions", "tests/spark")
"""The rooms above the records run once more, on the Python twin (tests/records takes both implementations as a parameter) and with handlers that write
down what is asked of them; without what is thorough. A test for both handlers has the other one there."""
UPPER = (*TWICE, "tests/kafka", "tests/cli", "tests/examples")
"""Pure ones of the public API and of what uses it: each with one handler."""

LESS_URGENT = ("nice", "-n", "5")
AT_REST, REST_S = 0.5, 120
"""The load of one minute at which a machine is at rest, and how long to wait for that at most, in seconds."""


@dataclass(frozen=True)
class Stage:
    """One run of pytest. name: also of the folder in which it keeps what failed."""

    name: str
    processes: int
    marks: str
    paths: Sequence[str]
    left_out: Sequence[str] = ()
    more: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)

    def command(self) -> list[str]:
        ignored = [f"--ignore={path}" for path in self.left_out]
        return [*self._pytest(), "-n", str(self.processes), "--dist", "loadfile", *self.more, *ignored, *self.paths]

    def again(self) -> list[str]:
        """What failed, alone."""
        return [*self._pytest(), "--last-failed", "--last-failed-no-failures", "none", *self.paths]

    def surroundings(self) -> dict[str, str]:
        return {**os.environ, **self.environment}

    def _pytest(self) -> list[str]:
        return [sys.executable, "-m", "pytest", "-q", "-o", f"cache_dir=.pytest_cache/{self.name}", "-m", self.marks]


# Pure tests often wait, too, for a deadline or a pause: more processes than cores.
CYTHON = {"GKAFKA_IMPL": "cython"}
HANGS = ("-o", "faulthandler_timeout=450")


def pure(marks: str, *, but: Sequence[str] = ()) -> Stage:
    return Stage("pure", 4, marks, ["tests"], left_out=[*WITH_KAFKA, *but], more=HANGS, environment=CYTHON)


def upper() -> Stage:
    return Stage("upper", 4, QUICK, UPPER, left_out=WITH_KAFKA, more=HANGS, environment={**CYTHON, "GKAFKA_IN_TURN": "first"})


def upper_second() -> Stage:
    """The tests for both handlers that `upper()` played with the other one."""
    environment = {**CYTHON, "GKAFKA_IN_TURN": "second"}
    return Stage("upper-second", 4, QUICK, UPPER, left_out=WITH_KAFKA, more=[*HANGS, *BOTH], environment=environment)


BOTH = ("-k", "threading or gevent")
BY_TURN = ["--no-loadscope-reorder"]


def with_kafka(marks: str, turn: str | None = None) -> Stage:
    """In three processes with brokers of their own: what shares brokers together, the longest ones first (tests/turns.py)."""
    return Stage("kafka", 3, marks, WITH_KAFKA, more=BY_TURN, environment={"GKAFKA_IN_TURN": turn} if turn else {})


def other_handler() -> Stage:
    """The tests for both handlers that `with_kafka(QUICK, "first")` played with the other one."""
    return Stage("kafka-second", 3, QUICK, WITH_BOTH, more=[*BY_TURN, *BOTH], environment={"GKAFKA_IN_TURN": "second"})


def twin(turn: str) -> Stage:
    environment = {"GKAFKA_IMPL": "python", "GKAFKA_HANDLERS": "recording", "GKAFKA_IN_TURN": turn}
    return Stage("twin", 4, QUICK, TWICE, left_out=WITH_KAFKA, more=HANGS, environment=environment)


PLANS: dict[str, list[tuple[Stage, list[Stage]]]] = {
    "check": [(Stage("check", 6, QUICK, NO_BROKER, more=HANGS, environment=CYTHON), [])],
    "test": [(with_kafka(QUICK, "first"), [pure(QUICK, but=UPPER), upper(), twin("second")])],
    "thorough": [(with_kafka(THOROUGH), [pure(THOROUGH)]), (other_handler(), [upper_second(), twin("first")])],
}
"""What is played, one after the other: a run in front, and what beside it, these one after the other, too."""


def play(front: Stage, beside: Sequence[Stage]) -> bool:
    """Whether every test has passed, at the latest when it was alone."""
    waiting = list(beside)
    runs: list[Run] = []
    with tempfile.TemporaryFile("w+") as said:
        try:
            runs.append(Run(front))
            while running(runs) or waiting:
                if waiting and not running(runs[1:]):
                    runs.append(Run(waiting.pop(0), said))
                time.sleep(0.1)
        finally:
            for run in runs:  # after Ctrl-C, which they hear, too, as what ends the whole process group
                run.process.wait()
            said.seek(0)
            print(said.read(), end="", flush=True)
    failed = [run.stage for run in runs if run.process.returncode]
    passed = [passes_alone(stage) for stage in failed]
    print("\n".join(f"{run.stage.name}: {run.seconds / 60:.1f} minutes" for run in runs), flush=True)
    return all(passed)


def passes_alone(stage: Stage) -> bool:
    """Whether what has failed passes with nothing beside it, at the latest on a machine at rest."""
    for is_last in (False, True):
        if subprocess.run(stage.again(), cwd=ROOT, env=stage.surroundings()).returncode == 0:
            return True
        if not is_last:
            print(f"{stage.name}: failed alone, too; once more at rest", flush=True)
            come_to_rest()
    return False


def come_to_rest() -> None:
    began = time.monotonic()
    while os.getloadavg()[0] > AT_REST and time.monotonic() - began < REST_S:
        time.sleep(1)


def running(runs: Sequence[Run]) -> list[Run]:
    return [run for run in runs if not run.ended()]


class Run:
    """A stage that runs. said: the file for its output, which makes it less urgent than what runs in front."""

    def __init__(self, stage: Stage, said: IO[str] | None = None) -> None:
        self.stage = stage
        self.seconds = 0.0
        self._began = time.monotonic()
        command = [*(LESS_URGENT if said else ()), *stage.command()]
        self.process = subprocess.Popen(command, cwd=ROOT, env=stage.surroundings(), stdout=said, stderr=said)

    def ended(self) -> bool:
        """Whether it has ended; notes when."""
        if not self.seconds and self.process.poll() is not None:
            self.seconds = time.monotonic() - self._began
        return self.seconds > 0


def main(arguments: Sequence[str]) -> int:
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    passed = [play(front, beside) for front, beside in PLANS[arguments[0]]]
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
