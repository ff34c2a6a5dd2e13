"""One JVM as a child process: its log, its end, and the ports it may take."""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import os
import random
import re
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO

from tests.kit.clock import now
from tests.live.guardian import Guardian
from tests.live.maven import tool

__all__ = ["GUARDIAN", "Jvm", "StartError", "free_ports", "wait_for"]

GUARDIAN = Guardian()
OPENS = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in ("java.lang", "java.nio", "java.util", "sun.nio.ch")]
# Short-lived brokers of the tests: no optimising compiler and one collector thread leave the two cores to the client.
TAIL = 30
COMPLAINT = re.compile(r"\b(ERROR|FATAL)\b|Exception|Error:")
QUICK = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
LOG4J1 = """log4j.rootLogger=WARN, out
log4j.logger.kafka=INFO
log4j.logger.org.apache.kafka=INFO
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=%d{ISO8601} %p %m (%c)%n
"""


class StartError(RuntimeError):
    """A process did not come up; the text holds the tail of its log. clash: another process has one of its ports."""

    def __init__(self, message: str, *, clash: bool = False) -> None:
        super().__init__(message)
        self.clash = clash


class Ports:
    """Ports of the loopback from below the range that the kernel gives to outgoing connections, each for one process of the tests alone.

    A byte of a file for each port, locked as long as the process lives: a broker that is killed finds its ports free when it comes back, and two
    that start at once never have the same. Other programs may still take one: whoever starts with it tries again with others.
    """

    _RANGE = range(20000, 32000)

    def __init__(self) -> None:
        self._chance = random.SystemRandom()  # `random` itself may be seeded, alike in each process
        self._file: IO[bytes] | None = None
        self._owner = 0
        self._given: set[int] = set()
        self._lock = threading.Lock()

    def free(self, count: int) -> list[int]:
        """So many that nobody listens on, and that nobody was given."""
        chosen: list[int] = []
        with self._lock:
            while len(chosen) < count:
                port = self._chance.choice(self._RANGE)
                if port not in self._given and self._reserved(port) and _unused(port):
                    self._given.add(port)
                    chosen.append(port)
        return chosen

    def _reserved(self, port: int) -> bool:
        if self._owner != os.getpid():
            self._file = (Path(tempfile.gettempdir()) / f"gkafka-ports-{os.getuid()}").open("ab")
            self._owner = os.getpid()
        assert self._file is not None
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
        except OSError:
            return False
        return True


def _unused(port: int) -> bool:
    with socket.socket() as sock:
        try:
            sock.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


free_ports = Ports().free


def wait_for(jvm: Jvm, ready: Callable[[], bool], *, what: str, timeout: float) -> None:
    """Returns when `ready()` is true. Raises StartError when the process has ended or the time is over."""
    deadline = now() + timeout
    while True:
        is_ready = ready()
        if jvm.clashed:  # the old versions do not end by themselves then
            raise jvm.failed(f"cannot be {what}: another process has its port")
        if not jvm.alive:  # whoever has answered is another
            raise jvm.failed(f"ended with status {jvm.status} before {what}")
        if is_ready:
            return
        if now() > deadline:
            raise jvm.failed(f"is not {what} after {timeout:g} s")
        time.sleep(0.05)


class Jvm:
    """A Java program. It has a folder of its own for its log; the classpath is a list of jars.

    name: for errors; main: class and arguments; quick: see QUICK; heap_mb: -Xmx; flags: of java.
    """

    def __init__(
        self,
        name: str,
        folder: Path,
        classpath: Sequence[Path],
        main: Sequence[str],
        *,
        quick: bool = True,
        heap_mb: int = 512,
        flags: Sequence[str] = (),
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        log4j = folder / "log4j.properties"
        log4j.write_text(LOG4J1)
        self.name = name
        self.folder = folder
        self.log = folder / "log.txt"
        self._command = [
            tool("java"),
            f"-Xmx{heap_mb}m",
            *(QUICK if quick else []),
            *OPENS,
            *flags,
            "-Djava.net.preferIPv4Stack=true",
            "-Dzookeeper.jmx.log4j.disable=true",
            f"-Dlog4j.configuration=file:{log4j}",
            "-Dorg.slf4j.simpleLogger.showDateTime=true",
            "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss,SSS",
            "-cp",
            os.pathsep.join(map(str, classpath)),
            *main,
        ]
        self._log_start = 0
        self._process: subprocess.Popen[bytes] | None = None
        _everything.add(self)

    def start(self) -> None:
        assert not self.alive, f"{self.name} is running"
        self._log_start = self.log.stat().st_size if self.log.exists() else 0
        with self.log.open("ab") as log:
            # Its own session: Ctrl-C in the terminal reaches the tests alone, which then end what they started, in order.
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, cwd=self.folder, start_new_session=True
            )
        GUARDIAN.process(self._process.pid, str(self.folder))

    @property
    def pid(self) -> int:
        assert self._process is not None, f"{self.name} was never started"
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def status(self) -> int | None:
        """What it ended with: None while it runs, negative for a signal."""
        return None if self._process is None else self._process.poll()

    def run(self, timeout: float) -> None:
        """Start, and wait for the end. Raises StartError unless the status is 0."""
        self.start()
        assert self._process is not None
        try:
            status = self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            raise self.failed(f"has not ended after {timeout:g} s") from None
        GUARDIAN.ended(self.pid)
        if status != 0:
            raise self.failed(f"ended with status {status}")

    def send(self, number: int) -> None:
        assert self._process is not None, f"{self.name} was never started"
        self._process.send_signal(number)

    def freeze(self, *, timeout: float = 60) -> None:
        """SIGSTOP, and wait until each thread stands still: on a busy machine one may have written an answer meanwhile."""
        self.send(signal.SIGSTOP)
        deadline = now() + timeout
        while any(state not in "Tt" for state in self._states()):
            if now() > deadline:
                raise self.failed(f"did not stand still within {timeout:g} s")
            time.sleep(0.002)

    def _states(self) -> list[str]:
        """Of its threads, as /proc has them."""
        states = []
        for stat in Path(f"/proc/{self.pid}/task").glob("*/stat"):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
                states.append(stat.read_text().rpartition(")")[2].split()[0])
        return states

    def wait(self, timeout: float) -> None:
        assert self._process is not None
        self._process.wait(timeout)
        GUARDIAN.ended(self.pid)

    def kill(self, number: int = signal.SIGKILL, *, timeout: float = 30) -> None:
        """Send the signal and wait for the end; a process that ignores it for `timeout` seconds gets SIGKILL."""
        if self.alive:
            self.send(number)
            try:
                self.wait(timeout)
            except subprocess.TimeoutExpired:
                self.send(signal.SIGKILL)
                self.wait(timeout)

    @property
    def clashed(self) -> bool:
        """Whether another process has one of its ports, by its log."""
        said = self._said()
        return "Address already in use" in said or "BindException" in said

    def failed(self, why: str) -> StartError:
        """The error to raise: what is wrong, the first complaints of the log, and its end."""
        lines = self._said().splitlines() or ["(the log is empty)"]
        complaints = [line for line in lines[:-TAIL] if COMPLAINT.search(line)][:10]
        shown = "\n".join([*complaints, *(["..."] if complaints else []), *lines[-TAIL:]])
        return StartError(f"{self.name} {why}. From its log:\n{shown}", clash=self.clashed)

    def _said(self) -> str:
        """The log since the last start."""
        if not self.log.exists():
            return ""
        with self.log.open("rb") as file:
            file.seek(self._log_start)
            return file.read().decode(errors="replace")

    def forget(self) -> None:
        """Ended for good."""
        self.kill()
        _everything.discard(self)


_everything: set[Jvm] = set()
_owner = os.getpid()


def _end_all() -> None:
    if os.getpid() != _owner:  # a forked child runs the exit handlers too: the processes are not its own
        return
    for jvm in list(_everything):
        jvm.forget()
    GUARDIAN.close()


atexit.register(_end_all)
