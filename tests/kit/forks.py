"""Programs in processes of their own, many for the imports of one: each is the fork of an interpreter that has imported what they need.

Such a fork is what `python -c program` or `python file` is: its main thread is alone, its variables are those of `__main__`, it ends as an interpreter
ends, with its atexit hooks.
"""

from __future__ import annotations

import array
import atexit
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from multiprocessing.connection import wait
from pathlib import Path
from typing import IO, Any, NamedTuple

__all__ = ["LIMIT_S", "PATCHING", "Ended", "Interpreter", "Program", "play"]

ROOT = Path(__file__).resolve().parent.parent.parent
LIMIT_S = 110.0
"""Within which each program ends, and an interpreter has imported what it needs."""
SERVER = """{before}
from tests.kit.forkserver import next_program as _next_program
exec(compile(*_next_program({fd}), "exec"))
"""
PATCHING = """
import gevent.monkey, gevent.queue, gevent.select, gevent.signal, gevent.socket, gevent.ssl, gevent.subprocess, gevent.threading, gevent.time
import tests.handlers.noplugins
"""
"""All that monkey.patch_all() imports, none of it patched."""


class Program(NamedTuple):
    """name: its file, for itself and for programs that it starts; without one it is as with `python -c`, which has no arguments here."""

    source: str
    name: str = "<string>"
    arguments: Sequence[str] = ()


class Ended(NamedTuple):
    """How a program has ended, and what it printed. returncode: -n if signal n has ended it."""

    returncode: int
    stdout: str
    stderr: str


class Interpreter:
    """One that forks for each program. It ends with this process, or by `end()`. before: what it runs first, as the imports of all."""

    def __init__(self, before: str, python: Sequence[str] = ("-W", "error")) -> None:
        self._line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._ends = contextlib.ExitStack()
        self._said = self._ends.enter_context(tempfile.TemporaryFile())  # noqa: SIM115  # closed by `end`
        self._ends.enter_context(self._line)
        self._owner = os.getpid()
        code = SERVER.format(before=before, fd=theirs.fileno())
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, *python, "-c", code],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=self._said,
                stderr=self._said,
                pass_fds=[theirs.fileno()],
            )
        atexit.register(self.end)

    def play(self, *programs: Program, at_once: int = 1, limit: float = LIMIT_S) -> list[Ended]:
        """Return how each has ended. limit: seconds, within which one of those that run ends."""
        played: list[_Running] = []
        running: list[_Running] = []
        ended: dict[_Running, Ended] = {}
        with contextlib.ExitStack() as ends:
            for program in programs:
                if len(running) == at_once:
                    ended |= _one_ends(running, limit)
                played.append(ends.enter_context(_Running(program)))
                played[-1].start(self._line, self._said)
                running.append(played[-1])
            while running:
                ended |= _one_ends(running, limit)
            return [ended[each] for each in played]

    @property
    def serves(self) -> bool:
        """Whether it runs, and is this process's own."""
        return self._owner == os.getpid() and self._process.poll() is None

    def end(self) -> None:
        atexit.unregister(self.end)
        self._ends.close()
        if self._owner == os.getpid():
            self._process.kill()
            self._process.wait()


class _Running:
    """A program that runs. What is left of it is ended with this."""

    def __init__(self, program: Program) -> None:
        self._program, self._group = program, 0
        self._ends = contextlib.ExitStack()
        self._out, self._err = (self._ends.enter_context(tempfile.TemporaryFile()) for _ in range(2))  # noqa: SIM115  # by __exit__
        self._line, self._theirs = map(self._ends.enter_context, socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET))

    def __enter__(self) -> _Running:
        return self

    def start(self, asking: socket.socket, said: IO[bytes]) -> None:
        files = array.array("i", [self._theirs.fileno(), self._out.fileno(), self._err.fileno()])
        with self._theirs, contextlib.suppress(BrokenPipeError):
            asking.sendmsg([json.dumps(self._program).encode()], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, files)])
        self._line.settimeout(LIMIT_S)
        answer = self._line.recv(100)  # none, once the last one has closed the other end
        assert answer, f"the interpreter that forks has ended:\n{_text(said)}"
        self._group = int(answer)

    def fileno(self) -> int:
        """Ready to be read from when it has ended."""
        return self._line.fileno()

    def ended(self) -> Ended:
        status = self._line.recv(100)
        assert status, self.told("is lost")
        self._group = 0
        return Ended(int(status), _text(self._out), _text(self._err))

    def told(self, what: str) -> str:
        source, name, arguments = self._program
        program = f"a program {what}: {name} {' '.join(arguments)}\n{source if name == '<string>' else ''}"
        return f"{program}\nIt printed:\n{_text(self._out)}\n{_text(self._err)}"

    def __exit__(self, *_: object) -> None:
        if self._group:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._group, signal.SIGKILL)
        self._ends.close()


def _one_ends(running: list[_Running], limit: float) -> dict[_Running, Ended]:
    """Wait for the first that ends, which runs no longer."""
    ready: Any = wait(running, limit)
    assert ready, running[0].told(f"has no end within {limit:g} s")
    running.remove(ready[0])
    return {ready[0]: ready[0].ended()}


def _text(file: IO[bytes]) -> str:
    """What was written so far. The position, which this shares with a program that writes, stays where it is."""
    return os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0).decode(errors="replace")


def play(programs: Sequence[Program], *, before: str = "", python: Sequence[str] = ("-W", "error"), at_once: int = 1) -> list[Ended]:
    """Return how each program has ended, by an interpreter of their own."""
    with contextlib.ExitStack() as ends:
        interpreter = Interpreter(before, python)
        ends.callback(interpreter.end)
        return interpreter.play(*programs, at_once=at_once)
