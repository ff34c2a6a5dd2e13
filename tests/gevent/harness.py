"""How the acceptance tests of greenlets are run and judged.

A scenario is a function of a test module. `in_child(mode, scenario, ...)` runs it in an interpreter of its own, which is patched first if
the mode says so; there `connect()` makes clients with the mode's handler, and `assert_free_hub()` looks whether anything makes the hub's thread sleep.
What fails in the scenario fails the test. How long the hub is kept from turning is measured by `benchmarks/stalls.py`.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
import os
import resource
import subprocess
import sys
import tempfile
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import gevent
import greenlet
import pytest

from gkafka import KafkaClient
from gkafka.handlers import GEventHandler, hubs
from tests.handlers.hub import ROOT
from tests.kit import clock

UNPATCHED, PATCHED, LATE, THREADS = "unpatched", "patched", "patched late", "threads"
greenlets = pytest.mark.parametrize("mode", [UNPATCHED, PATCHED])
"""A test of GEventHandler, in a process that nobody patched and in one that `patch_all()` did."""
even_late = pytest.mark.parametrize("mode", [UNPATCHED, PATCHED, LATE])
"""The same, and one that was patched after gkafka was imported (19)."""
greenlets_and_threads = pytest.mark.parametrize("mode", [UNPATCHED, PATCHED, THREADS])
"""The same, and ThreadingHandler."""

HANDLERS = {UNPATCHED: "gevent", PATCHED: "auto", LATE: "auto", THREADS: "threading"}
NAMES = {UNPATCHED: "gevent", PATCHED: "gevent", LATE: "gevent", THREADS: "threading"}
LIMIT_S = clock.PATIENCE_S
"""Longest wait for something that must happen. Passing tests never wait that long."""


# -- a process for each scenario -----------------------------------------------------------------------------------------
def in_child(
    mode: str, scenario: Callable[..., Any], *arguments: Any, timeout: float = 105.0, python: Iterable[str] = ("-W", "error")
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


def in_children(modes: Iterable[str], scenario: Callable[..., Any], *arguments: Any, timeout: float = 105.0) -> dict[str, Any]:
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


# -- a hub that never sleeps but in its own poll ---------------------------------------------------------------------------
RARELY = 2000
"""In so many spans one sleep is the kernel's own."""


class HubWatch:
    """Who makes the hub's thread sleep in a call that gevent knows nothing of, while the watch is on.

    Linux counts how often a thread gives its core away because it waits for something. The poll of the hub's loop does that, and is left out here. A
    greenlet does it by `time.sleep()`, by `recv()` of a blocking socket, or by a lock of the OS that somebody else holds; it does not by using the
    processor, however busy the machine is. Where the thread may have waited for something else, it is not judged: for a page of memory, which the kernel
    reads, moves or takes from somebody (Linux counts these, too); or for the GIL, in a turn of the loop in which another thread of the process ran.

    slept: how often, by the name of the greenlet, or LOOP for callbacks of the loop. turns: of the loop. judged: spans from switch to switch; doubtful: those
    that are not judged.
    """

    LOOP = "the hub's loop"

    def __init__(self) -> None:
        self.slept: Counter[str] = Counter()
        self.turns = self.judged = self.doubtful = 0
        self._sleeps, self._pages = _sleeps_and_pages()
        self._others = _other_threads()
        self._polls = False

    def __enter__(self) -> HubWatch:
        self._hub = gevent.get_hub()
        loop = self._hub.loop
        # First of all after a poll, and last of all before one: whatever else runs in a turn of the loop runs in between.
        self._after, self._before = loop.check(ref=False, priority=loop.MAXPRI), loop.prepare(ref=False, priority=loop.MINPRI)
        self._after.start(self._polled)
        self._before.start(self._about_to_poll)
        fair()  # both are called from here on, in turn
        greenlet.settrace(self._switched)
        self._look()
        return self

    def __exit__(self, *_: object) -> None:
        self._charge(greenlet.getcurrent())
        greenlet.settrace(None)
        for watcher in (self._after, self._before):
            watcher.stop()
            watcher.close()

    def _look(self) -> tuple[int, int]:
        """How often the thread has slept, and touched a page that was not in its place, since the last look."""
        before = self._sleeps, self._pages
        self._sleeps, self._pages = _sleeps_and_pages()
        return self._sleeps - before[0], self._pages - before[1]

    def _charge(self, who: Any) -> None:
        slept, pages = self._look()
        if pages or (slept and self._others_ran()):
            self.doubtful += 1
            return
        self.judged += 1
        if slept:
            self.slept[self.LOOP if who is self._hub else getattr(who, "name", repr(who))] += slept

    def _others_ran(self) -> bool:
        before, self._others = self._others, _other_threads()
        return before != self._others or any(is_running for is_running, _ in before.values())

    def _polled(self) -> None:
        self._look()
        self._others = _other_threads()
        self._polls = False
        self.turns += 1

    def _about_to_poll(self) -> None:
        self._charge(self._hub)
        self._polls = True

    def _switched(self, event: str, arguments: tuple[Any, Any]) -> None:
        if self._polls:  # who switches here interrupted the poll
            self._look()
            self._polls = False
        else:
            self._charge(arguments[0])


def _other_threads() -> dict[str, tuple[bool, str]]:
    """Of each other thread of this process, whether it runs, and what Linux counts of its runs."""
    own, found = str(threading.get_native_id()), {}
    for thread in os.listdir("/proc/self/task"):
        if thread != own:
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
                folder = Path("/proc/self/task", thread)
                state, runs = (folder / "stat").read_text().rpartition(")")[2].split()[0], (folder / "schedstat").read_text()
                found[thread] = state == "R", runs
    return found


def _sleeps_and_pages() -> tuple[int, int]:
    pages = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt + resource.getrusage(resource.RUSAGE_THREAD).ru_majflt
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw, pages


def assert_free_hub(run: Callable[[], object]) -> HubWatch:
    """Run it, first without a watch: what it loads is read from files. Then nobody makes the hub's thread sleep while it runs again."""
    logging.getLogger("gkafka").addHandler(logging.NullHandler())  # a line on stderr may wait for the pipe
    run()
    with HubWatch() as watch:
        run()
    # Once in thousands of spans the kernel has a lock of its own to wait for. A call that waits does so again and again.
    slept = {who: times for who, times in watch.slept.items() if times > watch.judged // RARELY}
    assert not slept, f"made the hub's thread sleep: {slept}, in {watch.judged} spans and {watch.turns} turns of the loop"
    assert min(watch.turns - 1, watch.judged) > 0, "it never waited: that proves nothing"
    return watch


def most_in_a_turn(run: Callable[[], object], done: Callable[[], int]) -> int:
    """Run it, while gkafka finds its time of the hub used up whenever it looks. Returns by how much done() grew at most in a turn of the loop.

    So it is what gkafka does between two looks at the clock, and does not depend on the machine.
    """
    loop = gevent.get_hub().loop
    counts = [done()]
    after = loop.check(ref=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hubs, "BUDGET_S", -1.0)
        after.start(lambda: counts.append(done()))
        try:
            run()
        finally:
            after.stop()
            after.close()
    counts.append(done())
    return max(later - earlier for earlier, later in itertools.pairwise(counts))


@contextlib.contextmanager
def timers_asked_for(heard: Callable[[float], object]) -> Iterator[None]:
    """heard() is called with the seconds of each timer that greenlets of this hub ask its loop for, in that greenlet."""
    hub = gevent.get_hub()
    loop = hub.loop

    class Asked:
        def __getattr__(self, name: str) -> Any:
            return getattr(loop, name)

        def timer(self, after: float, *arguments: Any, **options: Any) -> Any:
            heard(after)
            return loop.timer(after, *arguments, **options)

    hub.loop = Asked()
    try:
        yield
    finally:
        hub.loop = loop


# -- what scenarios are made of -------------------------------------------------------------------------------------------
def fair() -> None:
    """The yield that really lets I/O and timers in; gevent.sleep(0) does so only every 50 turns."""
    hub = gevent.get_hub()
    with hub.loop.timer(0) as timer:
        hub.loop.update_now()
        hub.wait(timer)


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
        oldest = left.popleft()
        with gevent.Timeout(timeout):
            yield oldest.get()
