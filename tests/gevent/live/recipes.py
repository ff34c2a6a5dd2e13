"""The recipes of docs/recipes.md as processes: started by their lines, asked over HTTP, ended by a signal."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from tests.handlers.hub import ROOT
from tests.kit.clock import PATIENCE_S, now
from tests.live.jvm import free_ports

__all__ = ["LINES", "Answer", "Program", "Web", "environment", "lines", "run"]

LINES: list[str] = re.findall(
    r"^(python examples/\S+\.py\b.*?) +# ", (ROOT / "docs" / "recipes.md").read_text(encoding="utf-8"), re.MULTILINE
)
"""Each recipe's line, without its remark."""
LIMIT_S, LINGER_S = PATIENCE_S, 110


def lines(*words: str) -> list[str]:
    """Those with all of these words."""
    return [line for line in LINES if set(words) <= set(line.replace("/", " ").split())]


def command(line: str, *more: object) -> list[str]:
    return [sys.executable, *shlex.split(line)[1:], *map(str, more)]


def environment(**variables: str) -> dict[str, str]:
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1", **variables}


def run(line: str, *more: object, timeout: float = 110) -> str:
    """What a recipe that ends by itself prints. Its status must be 0."""
    done = subprocess.run(command(line, *more), cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=timeout, check=False)
    assert done.returncode == 0, f"{line}: exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


class Program:
    """A process with all that it starts, its output in a file. Whatever is left of it at the end of the block is killed."""

    def __init__(self, command: Sequence[str], folder: Path, **variables: str) -> None:
        # gunicorn and celery leave files in the home folder.
        self.environment = environment(HOME=str(folder), **variables)
        self.log = folder / "log.txt"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                command, cwd=ROOT, env=self.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def said(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")

    def wait_until(self, is_so: Any, what: str, timeout: float = LIMIT_S) -> None:
        deadline = now() + timeout
        while not is_so():
            assert self.process.poll() is None, f"it ended with status {self.process.returncode}:\n{self.said()}"
            assert now() < deadline, f"not {what} after {timeout:g} s:\n{self.said()}"
            time.sleep(0.02)

    def end(self, timeout: float = LIMIT_S, *, sign: int = signal.SIGTERM) -> float:
        """The signal, and how many seconds it takes until the process is gone."""
        self.wait_until(self._workers_hear, "ready for a signal")
        began = now()
        self.process.send_signal(sign)
        self.wait(timeout)
        return now() - began

    def _workers_hear(self) -> bool:
        """Has each worker of gunicorn handlers of its own? Until then it has the master's, and a signal from it is lost."""
        workers = re.search(r"gunicorn\0.*\0-w\0(\d+)\0", of_process(self.process.pid, "cmdline"))
        begun = re.findall(r"Booting worker with pid: (\d+)", self.said())
        living = [pid for pid in begun if of_process(pid, "status")]  # one that ends is replaced
        return workers is None or (len(living) >= int(workers[1]) and all(map(is_workers_own, living)))

    def wait(self, timeout: float = LIMIT_S) -> int:
        """Its status, once it has ended."""
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it did not end within {timeout:g} s:\n{self.said()}") from None


def of_process(pid: object, what: str) -> str:
    """What Linux tells of it; "" if it is gone."""
    try:
        return Path(f"/proc/{pid}/{what}").read_text()
    except OSError:
        return ""


def is_workers_own(pid: str) -> bool:
    """Are the handlers of signals? gunicorn's workers have one of SIGABRT, its master has none. Also if it is gone."""
    caught = re.search(r"^SigCgt:\s*(\w+)$", of_process(pid, "status"), re.MULTILINE)
    return caught is None or bool(int(caught[1], 16) >> (signal.SIGABRT - 1) & 1)


class Answer(NamedTuple):
    """status: of HTTP; seconds: from the request to the whole answer."""

    status: int
    body: dict[str, Any]
    seconds: float

    @property
    def worker(self) -> str:
        """The process id of the worker that answered."""
        named = re.search(r"used in pid (\d+)", self.body.get("text", ""))
        return named[1] if named else str(self.body["worker"])


class Web:
    """flask_app.py by a line of docs/recipes.md, with a port of its own and records that wait for LINGER_S unless somebody waits for them."""

    def __init__(self, line: str, hosts: str, topic: str, folder: Path, *more: object) -> None:
        (self.port,) = free_ports(1)
        where = ["--hosts", hosts, "--topic", topic, "--bind", f"127.0.0.1:{self.port}", "--linger-ms", 1000 * LINGER_S]
        self.program = Program(command(line, *more, *where), folder)

    def __enter__(self) -> Web:
        try:
            self.program.wait_until(self.answers, "up")
        except BaseException:
            self.program.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.program.__exit__()

    def answers(self) -> bool:
        try:
            return self.ask("GET", "/health").status > 0
        except OSError:
            return False

    def ask(self, method: str, path: str, body: bytes = b"") -> Answer:
        began = now()
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=LIMIT_S)
        try:
            connection.request(method, path, body)
            response = connection.getresponse()
            text = response.read()
        finally:
            connection.close()
        return Answer(response.status, json.loads(text) if text.startswith(b"{") else {"text": text}, now() - began)

    def post_all(self, path: str, bodies: Sequence[bytes]) -> list[Answer]:
        """Eight at once."""
        with ThreadPoolExecutor(8) as pool:
            return list(pool.map(lambda body: self.ask("POST", path, body), bodies))

    def post_to_both(self, path: str, stem: str) -> Iterator[tuple[bytes, Answer]]:
        """Bodies that were posted and their answers, until both workers have answered.

        Only then are both up: a SIGTERM that reaches one of gunicorn's before it has handlers of its own is lost.
        """
        workers: set[str] = set()
        deadline = now() + LIMIT_S
        for number in count(step=40):
            bodies = [b"%s %d" % (stem.encode(), at) for at in range(number, number + 40)]
            answers = self.post_all(path, bodies)
            yield from zip(bodies, answers, strict=True)
            workers.update(answer.worker for answer in answers)
            if len(workers) > 1:
                return
            assert now() < deadline, f"{len(bodies) + number} requests, all answered by worker {workers}:\n{self.program.said()}"
            time.sleep(0.1)  # the other one may still be about to load the application
