"""kafka-tools as its users run it: in this process for speed, as a program where pipes and signals matter."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

from gkafka.cli.app import main
from tests.cli.terminal import TOOL, environment

LIMIT_S = 60.0


class Outcome(NamedTuple):
    """How a command went."""

    code: int
    out: bytes
    err: str

    @property
    def document(self) -> Any:
        """What --json printed."""
        return json.loads(self.out)

    @property
    def lines(self) -> list[bytes]:
        return self.out.splitlines()


def tool(*argv: str, stdin: bytes = b"") -> Outcome:
    """Run a command in this process. Whatever happens in it, no traceback may reach the user."""
    out, err = io.TextIOWrapper(io.BytesIO(), encoding="utf-8"), io.StringIO()
    before, level = sys.stdin, logging.getLogger("gkafka").level
    sys.stdin = io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8")
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main(list(argv))
        out.flush()
        outcome = Outcome(code, out.buffer.getvalue(), err.getvalue())  # type: ignore[attr-defined]
    finally:
        sys.stdin = before
        logging.getLogger("gkafka").setLevel(level)
    assert "Traceback" not in outcome.err
    assert "unexpected" not in outcome.err, outcome.err
    return outcome


def failure(outcome: Outcome, *said: str, code: int = 1) -> None:
    """It failed in one line, or two with the next step, that say these things."""
    assert outcome.code == code, outcome
    for text in said:
        assert text in outcome.err, outcome.err
    told = [line for line in outcome.err.splitlines() if not line.startswith("  next: ")]
    assert len(told) == 1, outcome.err


@contextlib.contextmanager
def program(*argv: str, **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    """The same as a process of its own, ended with the block."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    process = subprocess.Popen([*TOOL, *argv], env=environment(), **pipes)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(LIMIT_S)
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()


def stop(process: subprocess.Popen[bytes], number: int = signal.SIGINT) -> int:
    """Send a signal and wait for the end: the exit code."""
    process.send_signal(number)
    return process.wait(LIMIT_S)
