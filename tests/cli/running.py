"""kafka-tools as its users run it: in this process for speed, as a program where pipes, terminals and signals matter."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from gkafka.cli.app import main

LIMIT_S = 40.0


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
    process = subprocess.Popen([sys.executable, "-m", "gkafka.cli", *argv], **pipes)
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


class Terminal:
    """A pseudo-terminal in which a command runs."""

    def __init__(self, argv: Sequence[str]) -> None:
        self._master, slave = pty.openpty()
        environment = {**os.environ, "TERM": "xterm"}
        environment.pop("NO_COLOR", None)
        command = [sys.executable, "-m", "gkafka.cli", *argv]
        self.process = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, env=environment, start_new_session=True)
        os.close(slave)
        self.shown = b""

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(LIMIT_S)
        os.close(self._master)

    def wait_for(self, text: bytes) -> bytes:
        """Read until the text was shown."""
        until = time.monotonic() + LIMIT_S
        while text not in self.shown:
            assert time.monotonic() < until, self.shown
            if not self._read(0.2):
                assert self.process.poll() is None or text in self.shown, self.shown
        return self.shown

    def wait(self) -> tuple[int, bytes]:
        """Read until the command has ended: its exit code, and all that was shown."""
        until = time.monotonic() + LIMIT_S
        while self.process.poll() is None:
            assert time.monotonic() < until, self.shown
            self._read(0.05)
        while self._read(0.05):
            pass
        return self.process.returncode, self.shown

    def type(self, data: bytes) -> None:
        os.write(self._master, data)

    def _read(self, seconds: float) -> bool:
        ready, _, _ = select.select([self._master], [], [], seconds)
        if not ready:
            return False
        try:
            data = os.read(self._master, 65536)
        except OSError:  # Linux: the other end is closed
            return False
        self.shown += data
        return bool(data)
