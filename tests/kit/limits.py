"""How a test that runs out of time ends: it fails, and the next test finds everything in order.

pytest-timeout's alarm raises wherever the test stands. In the middle of a call into a JVM the next call would read that one's answer, in the middle of
a fork a child would be lost. So the JVM that a call waits for is ended, which ends the call, and the alarm comes again until the test has left both. Whoever
needs a Spark session next gets a new one (tests/spark/live/conftest.py). A test that takes the error of its JVM, or the alarm itself, for what it expects
fails all the same.

The alarm may hit another greenlet than the test's, or a finalizer, whose errors nobody hears. So what it raises goes to the main greenlet, too, and it comes
again after LATER_S until the test has ended.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest
from pytest_timeout import timeout_sigalrm  # type: ignore[import-untyped]

from tests.kit.clock import now

__all__ = ["AGAIN_S", "LATER_S", "end_jvm", "stands_in"]

AGAIN_S = 0.05
LATER_S = 20.0
"""For what a test that was ended still has to clear up."""
GRACE_S = 60.0
"""For what py4j still does behind the end of its JVM."""
FORKS = (("subprocess", "_execute_child"), ("multiprocessing.popen_fork", "_launch"), ("gevent.subprocess", "_execute_child"))
RAN_OUT = pytest.StashKey[str]()


@pytest.hookimpl(tryfirst=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> bool | None:
    """Take the place of pytest-timeout's own alarm, where that would be a signal."""
    if settings.method != "signal":
        return None
    told = f"{item.nodeid} has run out of its {settings.timeout:g} s"
    patient_until = 0.0

    def over(number: int, frame: FrameType | None) -> None:
        nonlocal patient_until
        item.stash[RAN_OUT] = told
        in_jvm = stands_in(frame, "py4j")
        if in_jvm and end_jvm(f"{told} in a call of this JVM"):
            patient_until = now() + GRACE_S
        if (in_jvm and now() < patient_until) or any(stands_in(frame, *fork) for fork in FORKS):
            signal.setitimer(signal.ITIMER_REAL, AGAIN_S)
        else:
            signal.setitimer(signal.ITIMER_REAL, LATER_S)
            raised_in_main(lambda: timeout_sigalrm(item, settings))

    def cancel() -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)

    item.cancel_timeout = cancel  # type: ignore[attr-defined]  # pytest-timeout calls it
    signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, settings.timeout)
    return True


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest) -> Iterator[None]:
    """pytest keeps what a fixture has raised for all tests that share it. What the alarm ended is forgotten, so the next one sets it up anew."""
    try:
        return (yield)
    except BaseException:
        if RAN_OUT in request._pyfuncitem.stash:
            fixturedef.finish(request)
        raise


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Fail what has run out of time, whatever it made of that; what it still has to clear up is done in peace."""
    told = item.stash.get(RAN_OUT, None)
    if told is not None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        del item.stash[RAN_OUT]
    report: Any = yield
    if told is not None and not report.failed:
        report.outcome, report.longrepr = "failed", told
    return report


def raised_in_main(fail: Callable[[], object]) -> None:
    """What this raises ends the greenlet that is hit, if that is none of a loop's, and the main one."""
    greenlet: Any = sys.modules.get("greenlet")
    hit = main = greenlet.getcurrent() if greenlet else None
    while main is not None and main.parent is not None:
        main = main.parent
    try:
        fail()
    except BaseException as failure:
        if hit is main:
            raise
        from gevent.hub import Hub, get_hub

        get_hub().loop.run_callback(main.throw, failure)
        if not isinstance(hit, Hub):
            raise


def stands_in(frame: FrameType | None, module: str, function: str | None = None) -> bool:
    """Return whether this frame, or one that called it, is of the module or of one below it (and of the function)."""
    while frame is not None:
        name = str(frame.f_globals.get("__name__"))
        if (name == module or name.startswith(f"{module}.")) and function in (None, frame.f_code.co_name):
            return True
        frame = frame.f_back
    return False


def end_jvm(why: str) -> bool:
    """End the JVM of this process's Spark: what waits for it gets an error. Returns whether there was one."""
    pyspark = sys.modules.get("pyspark")
    gateway = pyspark.SparkContext._gateway if pyspark else None
    if gateway is None or gateway.proc.poll() is not None:
        return False
    print(f"\n{why}: it is ended", file=sys.stderr, flush=True)
    gateway.proc.kill()
    gateway.proc.wait()
    return True
