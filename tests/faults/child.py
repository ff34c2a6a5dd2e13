"""A program of the harness as a process of its own: it takes its task as JSON and says how far it is, one JSON object a line."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

__all__ = ["Child"]

ROOT = Path(__file__).resolve().parents[2]


class Child:
    """`python -m module '{the task}'`. said: the last line that it said. Whoever makes it ends it."""

    def __init__(self, module: str, task: Any) -> None:
        self.said: dict[str, Any] = {}
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115  # closed by end()
        self.process = subprocess.Popen(
            [sys.executable, "-m", module, json.dumps(dataclasses.asdict(task))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))},
            text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.said = json.loads(line)

    def tell(self, line: str) -> None:
        """Write a line to its standard input, if it still reads."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(f"{line}\n")
            self.process.stdin.flush()

    @property
    def status(self) -> int | None:
        return self.process.poll()

    def wait(self, timeout: float) -> int:
        """Its exit status, with all that it said read. Raises subprocess.TimeoutExpired."""
        status = self.process.wait(timeout)
        self._reader.join(5)
        return status

    def errors(self) -> str:
        """The end of its standard error."""
        self._errors.seek(0)
        return self._errors.read()[-3000:]

    def end(self) -> None:
        """Kill it if it lives, by its id."""
        if self.status is None:
            self.process.kill()
        self.wait(30)
        for stream in (self.process.stdin, self.process.stdout, self._errors):
            with contextlib.suppress(OSError):
                stream.close()  # type: ignore[union-attr]
