"""The harness for greenlets: a ticker that measures hub stalls, and scripts in processes of their own."""

from __future__ import annotations

import gc
import pathlib
import subprocess
import sys
import textwrap
from collections.abc import Callable
from time import perf_counter, thread_time
from typing import Any

import gevent

ROOT = pathlib.Path(__file__).parents[2]
NOISE_S = 0.030  # what an otherwise idle machine adds to a wall gap now and then


class Ticker:
    """A greenlet that should run each millisecond. gaps: (wall, CPU) seconds between its runs.

    A large CPU gap: someone burned CPU without yielding. A large wall gap without CPU: a system call blocked the hub, or the machine did
    something else; so a wall gap counts only when it repeats (worst_wall(2): the second largest).
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
        while self._on:
            wall, cpu = perf_counter(), thread_time()
            gevent.sleep(0.001)
            self.gaps.append((perf_counter() - wall, thread_time() - cpu))

    @property
    def worst_cpu(self) -> float:
        return max(cpu for _, cpu in self.gaps)

    def worst_wall(self, n: int = 1) -> float:
        return sorted((wall for wall, _ in self.gaps), reverse=True)[n - 1]


def assert_no_stall(run: Callable[[], object], limit_s: float) -> None:
    """Run it up to three times beside a ticker: no CPU gap above the limit in any, no wall gap above it (and noise) in two of them."""
    quiet = 0
    for _ in range(3):
        with Ticker() as ticker:
            run()
        assert ticker.worst_cpu <= limit_s
        quiet += ticker.worst_wall() <= limit_s + NOISE_S
        if quiet == 2:
            return
    raise AssertionError(f"the hub stalls: {ticker.worst_wall() * 1000:.0f} ms in the last run")


def run_script(source: str, *, timeout: float = 30, python: tuple[str, ...] = ("-W", "error")) -> str:
    """What a program prints, run in a fresh interpreter. Its exit code must be 0."""
    done = subprocess.run(
        [sys.executable, *python, "-c", textwrap.dedent(source)], capture_output=True, text=True, timeout=timeout, cwd=ROOT, check=False
    )
    assert done.returncode == 0, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    assert "Traceback" not in done.stderr, done.stderr
    return done.stdout.strip()
