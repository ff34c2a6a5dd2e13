"""Where the minutes of the suite are, by file and by kind: `GKAFKA_PROFILE=folder make test`, then `python -m tests.kit.profile folder`.

Of each test: seconds on the wall, of the processor in its own process, of the processor in programs that it started and that have ended, asleep in `time.sleep` (which
is mostly waiting in a loop that looks), and the rest, in which it waits for sockets, locks and programs.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

__all__ = ["Cost", "Profile", "main", "read"]

COLUMNS = ("wall", "own CPU", "programs' CPU", "sleeps", "other waits")


class Cost(NamedTuple):
    """In seconds, of one test or of a file's."""

    wall: float
    own: float
    programs: float
    sleeps: float

    @property
    def waits(self) -> float:
        """The rest of the time on the wall; programs may have run beside it."""
        return max(0.0, self.wall - self.own - self.sleeps)

    def plus(self, other: Cost) -> Cost:
        return Cost(*(a + b for a, b in zip(self, other, strict=True)))


class Profile:
    """A plugin of pytest that writes one line for each test to a file of this process in `folder`."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._file = (folder / f"{os.getpid()}.jsonl").open("a")
        self._slept = 0.0
        sleep, main_thread = time.sleep, threading.main_thread()

        def counted(seconds: Any) -> None:
            began = time.monotonic()
            try:
                sleep(seconds)
            finally:
                if threading.current_thread() is main_thread:
                    self._slept += time.monotonic() - began

        time.sleep = counted  # modules that took sleep from time before have their own

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        before = self._now()
        try:
            return (yield)
        finally:
            cost = [round(after - then, 4) for after, then in zip(self._now(), before, strict=True)]
            self._file.write(json.dumps([item.nodeid, *cost]) + "\n")
            self._file.flush()

    def _now(self) -> Cost:
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        return Cost(time.monotonic(), time.process_time(), children.ru_utime + children.ru_stime, self._slept)


def read(folder: Path) -> dict[str, Cost]:
    """Return what each test took, by its id; played twice, both together."""
    found: dict[str, Cost] = defaultdict(lambda: Cost(0, 0, 0, 0))
    for file in folder.glob("*.jsonl"):
        for line in file.read_text().splitlines():
            name, *cost = json.loads(line)
            found[name] = found[name].plus(Cost(*cost))
    return found


def main(arguments: Sequence[str]) -> None:
    """Print a table of files, the longest first."""
    files: dict[str, Cost] = defaultdict(lambda: Cost(0, 0, 0, 0))
    tests: dict[str, int] = defaultdict(int)
    for name, cost in read(Path(arguments[0])).items():
        file = name.partition("::")[0]
        files[file] = files[file].plus(cost)
        tests[file] += 1
    print(f"| file | tests | {' | '.join(f'{name}, s' for name in COLUMNS)} |\n|---|{'---|' * (len(COLUMNS) + 1)}")
    for file, cost in sorted(files.items(), key=lambda each: -each[1].wall):
        shown = (cost.wall, cost.own, cost.programs, cost.sleeps, cost.waits)
        print(f"| {file} | {tests[file]} | {' | '.join(f'{seconds:.1f}' for seconds in shown)} |")


if __name__ == "__main__":
    main(sys.argv[1:])
