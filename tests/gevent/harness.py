"""How the acceptance tests of greenlets are run and judged.

A scenario is a function of a test module. `in_child(mode, scenario, ...)` runs it in an interpreter of its own, which is patched first if
the mode says so; there `connect()` makes clients with the mode's handler, and `assert_no_stall()` measures beside a ticker. What fails in
the scenario fails the test.
"""

from __future__ import annotations

import dataclasses
import gc
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import perf_counter, process_time, thread_time
from typing import Any

import gevent
import pytest

from gkafka import KafkaClient
from gkafka.handlers import GEventHandler
from tests.handlers.hub import ROOT, Ticker

UNPATCHED, PATCHED, LATE, THREADS = "unpatched", "patched", "patched late", "threads"
greenlets = pytest.mark.parametrize("mode", [UNPATCHED, PATCHED])
"""A test of GEventHandler, in a process that nobody patched and in one that `patch_all()` did."""
even_late = pytest.mark.parametrize("mode", [UNPATCHED, PATCHED, LATE])
"""The same, and one that was patched after gkafka was imported (19)."""
greenlets_and_threads = pytest.mark.parametrize("mode", [UNPATCHED, PATCHED, THREADS])
"""The same, and ThreadingHandler."""

HANDLERS = {UNPATCHED: "gevent", PATCHED: "auto", LATE: "auto", THREADS: "threading"}
NAMES = {UNPATCHED: "gevent", PATCHED: "gevent", LATE: "gevent", THREADS: "threading"}
NOISE_S = 0.030
"""A wall gap may be so much longer than a CPU gap: the machine does other things, too."""
RUNS, GOOD_RUNS = 3, 2
LIMIT_S = 60.0
"""Longest wait for something that must happen. Passing tests never wait that long."""


# -- a process for each scenario -----------------------------------------------------------------------------------------
def in_child(
    mode: str, scenario: Callable[..., Any], *arguments: Any, timeout: float = 90.0, python: Iterable[str] = ("-W", "error")
) -> Any:
    """What scenario(*arguments) returns in a process of its own; both go there and back as JSON.

    mode: UNPATCHED, PATCHED, LATE (patched after gkafka and ssl were imported) or THREADS. timeout: seconds; then all threads' stacks are shown. An error of the scenario, or of a greenlet that
    nobody waits for, is an AssertionError here.
    """
    where = f"{scenario.__module__}:{scenario.__qualname__}"
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": path}
    with tempfile.NamedTemporaryFile() as file:  # a pipe may be full, or cut short by what a scenario does to it
        about = [mode, where, json.dumps(arguments), str(timeout), file.name]
        command = [sys.executable, *python, "-m", "tests.gevent.child", *about]
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout + 10, cwd=ROOT, check=False, env=environment)
        said = f"{done.stdout}\n{done.stderr}".strip()
        assert done.returncode == 0, f"{where}, {mode}: exit {done.returncode}\n{said}"
        assert "Traceback" not in done.stderr, f"{where}, {mode}: \n{said}"
        return json.loads(Path(file.name).read_text())


def in_children(modes: Iterable[str], scenario: Callable[..., Any], *arguments: Any, timeout: float = 90.0) -> dict[str, Any]:
    """The same in a process for each mode, all at once: for scenarios that mostly wait."""
    with ThreadPoolExecutor() as pool:
        running = {each: pool.submit(in_child, each, scenario, *arguments, timeout=timeout) for each in modes}
        return {each: job.result() for each, job in running.items()}


def run_suite(*arguments: str) -> None:
    """In a child: tests that are there for an unpatched process. arguments: pytest's."""
    code = pytest.main(["-q", "-p", "no:cacheprovider", "-o", "faulthandler_timeout=0", *arguments])
    assert code == 0, f"pytest: {code}"


mode = UNPATCHED
"""In a child, which sets it: the mode that it runs in."""


def connect(hosts: str, **options: Any) -> KafkaClient:
    """In a child: a client with the mode's handler."""
    assert GEventHandler  # imported before anything is measured
    client = KafkaClient(hosts, **{"handler": HANDLERS[mode], **options})
    assert client.handler.name == NAMES[mode], f"{client.handler.name} was chosen"
    return client


# -- stalls --------------------------------------------------------------------------------------------------------------
@dataclasses.dataclass(frozen=True)
class Stalls:
    """What a ticker saw while something ran. Gaps are ms between two turns of the ticker, which sleeps 1 ms.

    A large CPU gap: someone worked without yielding. A large wall gap without CPU: a system call blocked the hub. What the hub's thread waited for
    a core of a busy machine, as Linux tells it, is left out of the wall.
    fewest_per_s: turns in the worst tenth of a second, as a rate. cpu_percent: of the process, of one core.
    """

    cpu_p50: float
    cpu_p99: float
    cpu_max: float
    wall_p50: float
    wall_p99: float
    wall_max: float
    ticks: int
    fewest_per_s: float
    seconds: float
    cpu_percent: float
    paused_ms: float

    @property
    def slower(self) -> float:
        """So many times more than where the bars were set costs what is done seldom; at least 1."""
        return times_slower(self.paused_ms)

    @property
    def cpu_s(self) -> float:
        """Seconds that the process worked: how long all of it would take on a core of its own, if the broker takes none."""
        return self.seconds * self.cpu_percent / 100

    def __str__(self) -> str:
        return (
            f"CPU gap p50 {self.cpu_p50:.1f}, p99 {self.cpu_p99:.1f}, max {self.cpu_max:.1f} ms; wall gap p50 {self.wall_p50:.1f}, "
            f"p99 {self.wall_p99:.1f}, max {self.wall_max:.1f} ms; {self.ticks} ticks in {self.seconds:.2f} s; work behind a pause {self.paused_ms:.2f} ms"
        )


class ProbingTicker(Ticker):
    """One that also does a fixed piece of work now and then, between two gaps: paused_ms is what that took of CPU each time."""

    def __init__(self) -> None:
        super().__init__()
        self.paused_ms: list[float] = []
        self._work, self._work_at = fixed_work(), 0.0

    @property
    def mean_paused_ms(self) -> float:
        return sum(self.paused_ms) / len(self.paused_ms)

    def _ticked(self) -> None:
        if perf_counter() >= self._work_at:
            cpu = thread_time()
            self._work()
            self.paused_ms.append(1000 * (thread_time() - cpu))
            self._work_at = perf_counter() + PAUSE_S


class CollectingTicker(ProbingTicker):
    """One of a program whose garbage is collected, as any program's is; and what of each gap was the collector's.

    gaps: (wall, CPU) seconds as ever, the collector's work among them; collected: the CPU seconds of collections within each gap.
    """

    def __init__(self) -> None:
        super().__init__()
        self.collected: list[float] = []
        self._spent = self._before = self._since = 0.0

    def __enter__(self) -> CollectingTicker:
        super().__enter__()
        self.collected.clear()
        gc.callbacks.append(self._collecting)
        gc.enable()
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        gc.callbacks.remove(self._collecting)

    def _collecting(self, phase: str, _: object) -> None:
        if phase == "start":
            self._since = thread_time()
        else:
            self._spent += thread_time() - self._since

    def _ticked(self) -> None:
        self.collected.append(self._spent - self._before)
        super()._ticked()
        self._before = self._spent


PAUSE_S, PAUSED_MS = 0.15, 0.25


def times_slower(paused_ms: float) -> float:
    return max(1.0, paused_ms / PAUSED_MS)


def fixed_work() -> Callable[[], None]:
    """What takes some 0.07 ms in a loop. Behind PAUSE_S it takes PAUSED_MS or less where the bars were set; on a virtual machine whose host does other things
    it was seen to take up to 2.8 ms of CPU, within minutes of 0.3 and with both cores free, and all that a client does seldom goes with it.
    """
    document = json.dumps({f"a{i}": [i, str(i)] for i in range(60)})
    text = document * 2

    def work() -> None:
        json.loads(document)
        json.loads(document)
        compile("x=[a+b for a in c if f(d,e)]; y={1:2,3:g(4)}", "", "exec")
        re.sub("a", "b", text)

    return work


def beside_a_ticker(run: Callable[[], object]) -> Stalls:
    """Run it, and say how long the hub was kept from everybody else.

    Garbage is not collected meanwhile: a look at all objects of thousands of greenlets takes 5 ms and more, whoever made them
    (live/test_01_collected.py shows it, and what gkafka adds).
    """
    with ProbingTicker() as ticker:
        began, cpu = perf_counter(), process_time()
        run()
        seconds, used = perf_counter() - began, process_time() - cpu
    walls, cpus = sorted(wall for wall, _ in ticker.gaps), sorted(cpu for _, cpu in ticker.gaps)
    return Stalls(
        *(1000 * at(gaps, share) for gaps in (cpus, walls) for share in (0.5, 0.99, 1.0)),
        ticks=len(ticker.gaps),
        fewest_per_s=fewest_per_s([wall for wall, _ in ticker.gaps]),
        seconds=seconds,
        cpu_percent=100 * used / seconds,
        paused_ms=ticker.mean_paused_ms,
    )


def at(ordered: list[float], share: float) -> float:
    """The value below which that share of them lies."""
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def fewest_per_s(gaps: list[float], window_s: float = 0.1) -> float:
    """Ends of gaps in the worst whole window, per second; all of it, if it is shorter than a window."""
    ends, now = [], 0.0
    for gap in gaps:
        now += gap
        ends.append(now)
    windows = int(now / window_s)
    if not windows:
        return len(ends) / now
    counts = [0] * windows
    for end in ends:
        if int(end / window_s) < windows:
            counts[int(end / window_s)] += 1
    return min(counts) / window_s


def assert_no_stall(run: Callable[[], object], limit_ms: float, *, ticks_per_s: float = 0) -> list[Stalls]:
    """Run it beside a ticker, twice or three times: two runs without a CPU gap above the limit, and two without a wall gap of 30 ms more.

    What stalls the hub does so in every run, and noise does not (what a host takes from a virtual core counts as CPU, too); so CPU and wall are counted
    apart, and a CPU gap of twice the limit may come in one run. A limit of CPU is for a machine where fixed_work() behind a pause costs PAUSED_MS, and goes up
    with what it costs during the run. ticks_per_s: so often the ticker had its turn in each tenth of a second of the runs
    that count for the wall.
    """
    connect("127.0.0.1:1").close()  # a program's first client loads what all others use
    runs: list[Stalls] = []
    idle = free = 0
    while min(idle, free) < GOOD_RUNS and len(runs) < RUNS:
        runs.append(beside_a_ticker(run))
        wild = [run for run in runs if run.cpu_max > 2 * limit_ms * run.slower]
        assert len(wild) < 2, f"the hub was kept busy for more than twice {limit_ms:g} ms: {wild}"
        idle += runs[-1].cpu_max <= limit_ms * runs[-1].slower
        free += runs[-1].wall_max <= limit_ms + 1000 * NOISE_S and runs[-1].fewest_per_s >= ticks_per_s
    seen = "\n".join(map(str, runs))
    assert idle >= GOOD_RUNS, f"the hub was kept busy for more than {limit_ms:g} ms:\n{seen}"
    assert free >= GOOD_RUNS, f"the hub stood still:\n{seen}"
    return runs


# -- what scenarios are made of -------------------------------------------------------------------------------------------
def fair() -> None:
    """The yield that really lets I/O and timers in; gevent.sleep(0) does so only every 50 turns."""
    hub = gevent.get_hub()
    with hub.loop.timer(0) as timer:
        hub.loop.update_now()
        hub.wait(timer)


CALLS, CALLS_S = 200_000, 0.0085
"""So many calls of an empty function took so long where the bars were set."""


def slowness() -> float:
    """How much slower the machine is just now than where the bars of the client's own work were set, at least 1: it varies by half within minutes."""

    def call() -> None:
        pass

    began = thread_time()
    for _ in range(CALLS):
        call()
    return max(1.0, (thread_time() - began) / CALLS_S)


def spawn_all(jobs: Iterable[Callable[[], Any]]) -> list[Any]:
    """A greenlet for each job, in chunks of 50 with a fair yield, so that starting them is no stall."""
    spawned: list[Any] = []
    for job in jobs:
        spawned.append(gevent.spawn(job))
        if not len(spawned) % 50:
            fair()
    return spawned


def results(spawned: Iterable[Any], timeout: float = LIMIT_S) -> Iterator[Any]:
    """What each greenlet returned, in their order; its error is raised. Asking for thousands is no stall either."""
    left = deque(spawned)
    del spawned  # each is dropped when it has told: ten thousand at once would be 20 ms of this test's own
    while left:
        if not len(left) % 50:
            fair()
        greenlet = left.popleft()
        with gevent.Timeout(timeout):
            yield greenlet.get()
