"""The processes of the demo: each in a session of its own, so that it ends with all that it started itself. It is no program of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path
from types import FrameType
from typing import IO

ROOT = Path(__file__).resolve().parent.parent.parent
GRACE_S = 20


class Interrupted(BaseException):
    """A signal asked for the end. Raised once, in the main thread; later signals change nothing: the end is on its way."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


class Children:
    """Every process that the demo starts, each in a session of its own: it ends with all that it started itself."""

    def __init__(self) -> None:
        self._running: list[subprocess.Popen[str]] = []
        self._signal = 0
        self._starting = False
        self._ending = False

    def watch_signals(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self._ending:
            return
        self._signal = number
        # Between fork and the list of children nothing may be raised: that child would never be ended.
        if not self._starting:
            self._ending = True
            raise Interrupted(number)

    def start(self, command: list[str], *, output: IO[str] | None = None, errors: IO[str] | None = None) -> subprocess.Popen[str]:
        """output: a file for what it prints (default: a pipe, child.stdout); errors: for its error output (default: this program's)."""
        self._starting = True
        try:
            child = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,  # held open: the Kafka node ends by itself when this program is no more
                stdout=output or subprocess.PIPE,
                stderr=errors,
                text=True,
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))},
                start_new_session=True,
            )
            self._running.append(child)
        finally:
            self._starting = False
        if self._signal and not self._ending:
            self._on_signal(self._signal, None)
        return child

    def end(self, child: subprocess.Popen[str]) -> None:
        """SIGTERM to its group, and after GRACE_S seconds SIGKILL to whatever of its session is left."""
        deadline = time.monotonic() + GRACE_S
        signal_group(child.pid, signal.SIGTERM)
        while (child.poll() is None or session_members(child.pid)) and time.monotonic() < deadline:
            time.sleep(0.02)
        self.kill(child)

    def kill(self, child: subprocess.Popen[str]) -> None:
        """kill -9, of the whole session: nobody in it gets to do anything any more."""
        signal_group(child.pid, signal.SIGKILL)
        deadline = time.monotonic() + GRACE_S
        # Spark's Python workers have process groups of their own. A killed process is gone a little later.
        while (left := session_members(child.pid)) and time.monotonic() < deadline:
            for pid in left:
                signal_process(pid, signal.SIGKILL)
            time.sleep(0.02)
        child.wait()
        for pipe in (child.stdin, child.stdout):
            if pipe:
                pipe.close()
        if child in self._running:
            self._running.remove(child)

    def end_all(self) -> None:
        self._ending = True
        for child in reversed(self._running.copy()):
            self.end(child)


def signal_group(group: int, number: int) -> None:
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return


def signal_process(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def session_members(session: int) -> list[int]:
    """The processes of a session. Where there is no /proc, none: the groups have been ended already."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            # pid (command) state parent group session ...; the command may hold blanks and brackets.
            fields = entry.read_text().rpartition(")")[2].split()
            if int(fields[3]) == session and fields[0] != "Z":
                found.append(int(entry.parent.name))
        except (OSError, IndexError):
            continue
    return found
