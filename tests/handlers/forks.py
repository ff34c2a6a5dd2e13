"""Many small programs for the imports of one: each is a fork of an interpreter that has imported what all of them need."""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

__all__ = ["PATCHING", "Ended", "Program", "play", "serve"]

ROOT = Path(__file__).resolve().parent.parent.parent
FORK, WAIT = os.fork, os.waitpid  # not gevent's, whatever is patched
PLAY = "from tests.handlers.forks import serve\n{before}\nserve({folder!r}, {at_once})"

PATCHING = """
import gevent.monkey, gevent.queue, gevent.select, gevent.signal, gevent.socket, gevent.ssl, gevent.subprocess, gevent.threading, gevent.time
import tests.handlers.noplugins
"""
"""All that monkey.patch_all() imports, none of it patched."""


class Program(NamedTuple):
    """name: its file, for itself and for programs that it starts."""

    source: str
    name: str = "<string>"
    arguments: Sequence[str] = ()


class Ended(NamedTuple):
    """How one has ended, and what it printed."""

    returncode: int
    stdout: str
    stderr: str


def play(
    programs: Sequence[Program], *, before: str = "", python: Sequence[str] = ("-W", "error"), at_once: int = 1, timeout: float = 240
) -> list[Ended]:
    """What programs do, each as the main module of a process of its own, so many at once. before: what is run once, in front of all of them."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "programs").write_text(json.dumps(programs), encoding="utf-8")
        command = [sys.executable, *python, "-c", PLAY.format(before=before, folder=folder, at_once=at_once)]
        with Path(folder, "said").open("w+", encoding="utf-8") as said:
            first = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=said, stderr=said, start_new_session=True)
            try:
                first.wait(timeout)
            finally:
                if first.returncode is None:
                    os.killpg(first.pid, signal.SIGKILL)
                    first.wait()
            said.seek(0)
            assert first.returncode == 0, said.read()
        codes = json.loads(Path(folder, "codes").read_text(encoding="utf-8"))
        return [
            Ended(code, *(Path(folder, f"{n}.{of}").read_text(encoding="utf-8") for of in ("out", "err"))) for n, code in enumerate(codes)
        ]


def serve(folder: str, at_once: int) -> None:
    """Have each program played by a fork, in which this returns when the program has ended, as a main module does."""
    programs = json.loads(Path(folder, "programs").read_text(encoding="utf-8"))
    codes = [0] * len(programs)
    running: dict[int, int] = {}  # process -> its number
    gc.freeze()
    for number, program in enumerate(programs):
        if len(running) == at_once:
            note_an_end(running, codes)
        child = FORK()
        if not child:
            become(Program(*program), Path(folder, str(number)))
            return
        running[child] = number
    while running:
        note_an_end(running, codes)
    Path(folder, "codes").write_text(json.dumps(codes), encoding="utf-8")


def note_an_end(running: dict[int, int], codes: list[int]) -> None:
    child, status = WAIT(-1, 0)
    codes[running.pop(child)] = os.waitstatus_to_exitcode(status)


def become(program: Program, said: Path) -> None:
    for stream, kind in ((1, ".out"), (2, ".err")):
        with said.with_suffix(kind).open("wb") as file:
            os.dup2(file.fileno(), stream)
    main = vars(sys.modules["__main__"])
    main["__file__"], sys.argv[:] = program.name, [program.name, *program.arguments]
    exec(compile(program.source, program.name, "exec"), main)
