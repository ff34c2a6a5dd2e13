"""The harness for greenlets: a ticker that measures hub stalls, and scripts in processes of their own."""

from __future__ import annotations

import contextlib
import gc
import os
import pathlib
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from time import perf_counter, thread_time
from typing import Any

import gevent

ROOT = pathlib.Path(__file__).parents[2]


class Ticker:
    """A greenlet that should run each millisecond. gaps: (wall, CPU) seconds between its runs, without what its thread waited for a core.

    A large CPU gap: someone burned CPU without yielding. A large wall gap without CPU: a system call blocked the hub, or the machine did
    something else; so a wall gap counts only when it repeats (worst_wall(2): the second largest; `assert_no_stall`).
    """

    def __init__(self) -> None:
        self.gaps: list[tuple[float, float]] = []
        self._on = True

    def __enter__(self) -> Ticker:
        gc.collect()
        gc.disable()  # a collection of the whole test session's objects is no stall of ours
        self._greenlet = gevent.spawn(self._run)
        gevent.sleep(0.003)
        self.gaps.clear()
        return self

    def __exit__(self, *_: Any) -> None:
        gevent.sleep(0.003)
        self._on = False
        self._greenlet.join()
        gc.enable()

    def _run(self) -> None:
        with waiting_for_a_core() as waited:
            while self._on:
                began, cpu = perf_counter() - waited(), thread_time()
                gevent.sleep(0.001)
                self.gaps.append((perf_counter() - waited() - began, thread_time() - cpu))
                self._ticked()

    def _ticked(self) -> None:
        """Called between two gaps."""

    @property
    def worst_cpu(self) -> float:
        return max(cpu for _, cpu in self.gaps)

    def worst_wall(self, n: int = 1) -> float:
        return sorted((wall for wall, _ in self.gaps), reverse=True)[n - 1]


@contextlib.contextmanager
def waiting_for_a_core() -> Iterator[Callable[[], float]]:
    """Seconds that the calling thread was ready to run and had no core; 0 where the system does not tell (schedstat of Linux)."""
    try:
        file = os.open("/proc/thread-self/schedstat", os.O_RDONLY)
    except OSError:
        yield lambda: 0.0
        return
    try:
        yield lambda: int(os.pread(file, 64, 0).split()[1]) / 1e9
    finally:
        os.close(file)


def assert_no_stall(run: Callable[[], object], limit_s: float, *, waits_s: float) -> None:
    """Run it beside a ticker: no CPU gap above the limit, and the hub turns while it waits.

    waits_s: the shortest of its waits. A hub that one of them blocks stands still for so long in every run; a machine that gives the core
    to others does so in some. So two runs without half such a gap decide, of five at most.
    """
    walls: list[float] = []
    while sum(wall < waits_s / 2 for wall in walls) < 2:
        assert len(walls) < 5, f"the hub stalls: {[f'{wall * 1000:.0f} ms' for wall in walls]}"
        with Ticker() as ticker:
            run()
        assert ticker.worst_cpu <= limit_s
        walls.append(ticker.worst_wall())


def run_script(source: str, *, timeout: float = 30, python: tuple[str, ...] = ("-W", "error"), **environment: str) -> str:
    """What a program prints, run in a fresh interpreter. Its exit code must be 0. environment: more variables for it."""
    command = [sys.executable, *python, "-c", textwrap.dedent(source)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=timeout, cwd=ROOT, check=False, env={**os.environ, **environment}
    )
    assert done.returncode == 0, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    assert "Traceback" not in done.stderr, done.stderr
    return done.stdout.strip()
