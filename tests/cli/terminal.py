"""A person at a terminal: programs on a pseudo-terminal, with keys to press and a screen to look at; and programs in pipes."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import subprocess
import sys
import termios
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

from tests.kit.clock import now

__all__ = ["PLAIN", "TOOL", "Terminal", "environment", "piped"]

ROOT = Path(__file__).resolve().parent.parent.parent
TOOL = [sys.executable, "-m", "gkafka.cli"]
LIMIT_S = 60.0


def environment(**more: str) -> dict[str, str]:
    """That of the tests without what speaks of clusters and colours."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("KAFKA_", "NO_COLOR", "COV"))}
    return {**kept, "PYTHONPATH": str(ROOT), "TERM": "xterm-256color", **more}


def piped(*words: object, text: str = "", **more: str) -> subprocess.CompletedProcess[str]:
    """kafka-tools with these words, its standard streams being pipes."""
    return subprocess.run([*TOOL, *map(str, words)], input=text, capture_output=True, text=True, timeout=LIMIT_S, env=environment(**more))


PLAIN = {"TERM": "dumb"}
"""The environment of a terminal that only prints lines: no word of progress comes on it, which a busy machine would have elsewhere."""


class Terminal:
    """kafka-tools with these words, on a terminal of its own. A context manager."""

    def __init__(self, *words: object, env: Mapping[str, str] | None = None, command: Sequence[str] = TOOL) -> None:
        self._ours, theirs = pty.openpty()
        self.shown = ""
        self._process = subprocess.Popen(
            [*command, *map(str, words)],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=environment(**(env or {})),
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0) and None,
        )
        os.close(theirs)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait(60)
        os.close(self._ours)

    def running(self) -> bool:
        """Does the program still run? Looks at what it shows for a moment."""
        return self._look() and self._process.poll() is None

    def press(self, keys: str) -> None:
        """What a person types: "\\x03" is Ctrl-C, "\\n" the return key."""
        os.write(self._ours, keys.encode())

    def wait_for(self, text: str, times: int = 1) -> str:
        """All that was shown so far, as soon as a text is in it."""
        deadline = now() + LIMIT_S
        while self.shown.count(text) < times:
            assert now() < deadline, f"{text!r} was not shown {times} times: {self.shown!r}"
            assert self._look(), f"ended without {text!r}: {self.shown!r}"
        return self.shown

    def end(self) -> tuple[int, str]:
        """The exit code, and all that was shown."""
        deadline = now() + LIMIT_S
        while self._look():
            assert now() < deadline, f"it does not end: {self.shown!r}"
        return self._process.wait(LIMIT_S), self.shown

    def _look(self) -> bool:
        """Take in what is shown. False when the program has closed its terminal."""
        if not select.select([self._ours], [], [], 0.5)[0]:
            return True
        with contextlib.suppress(OSError):  # Linux tells the end of a terminal so
            data = os.read(self._ours, 1 << 16)
            self.shown += data.decode(errors="replace").replace("\r\n", "\n")
            return bool(data)
        return False
