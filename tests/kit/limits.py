"""How a test that runs out of time ends: it fails, and the next test finds everything in order.

pytest-timeout's alarm raises wherever the test stands. In the middle of a call into a JVM the next call would read that one's answer, in the middle of
a fork a child would be lost. So within a fork the alarm comes again a little later; and the JVM that a call waits for is ended, which ends the call. Whoever needs
a Spark session next gets a new one (tests/spark/live/conftest.py).
"""

from __future__ import annotations

import signal
import sys
from types import FrameType
from typing import Any

import pytest
from pytest_timeout import timeout_sigalrm  # type: ignore[import-untyped]

__all__ = ["AGAIN_S", "end_jvm", "stands_in"]

AGAIN_S = 0.05
GRACE_S = 60.0
"""For what a test still does behind the end of its JVM."""
FORKS = (("subprocess", "_execute_child"), ("multiprocessing.popen_fork", "_launch"), ("gevent.subprocess", "_execute_child"))


@pytest.hookimpl(tryfirst=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> bool | None:
    """Take the place of pytest-timeout's own alarm, where that would be a signal."""
    if settings.method != "signal":
        return None

    def over(number: int, frame: FrameType | None) -> None:
        if stands_in(frame, "py4j") and end_jvm(f"{item.nodeid} has run out of its {settings.timeout:g} s in a call of this JVM"):
            signal.setitimer(signal.ITIMER_REAL, GRACE_S)
        elif any(stands_in(frame, *fork) for fork in FORKS):
            signal.setitimer(signal.ITIMER_REAL, AGAIN_S)
        else:
            timeout_sigalrm(item, settings)

    def cancel() -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)

    item.cancel_timeout = cancel  # type: ignore[attr-defined]  # pytest-timeout calls it
    signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, settings.timeout)
    return True


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
