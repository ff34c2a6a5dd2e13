"""Programs in processes of their own, each the fork of an interpreter that has imported gkafka already: an interpreter of its own takes half a second.

Such a fork is what `python -c program` is: its main thread is alone, its variables are those of `__main__`, it ends as an interpreter
ends, with its atexit hooks. No client has been made before, no hub and no thread; gevent is imported, and where it is patched
that came before all other imports.
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
import textwrap
from typing import IO, Any, NamedTuple

from tests.handlers.hub import ROOT

__all__ = ["Ended", "play", "run_program"]

SERVER = """
if {patched}:
    from gevent import monkey
    monkey.patch_all()
import gc, json, logging, os, posix, signal, sys, textwrap, threading, time, _socket
import gkafka
import gevent.threadpool
import gkafka.handlers.greenlets
import gkafka.core.consumergroup, gkafka.kafka, gkafka.progress, gkafka.sharing, gkafka.subscribing
from gkafka import client, columnreader, consumer, nativeconsumer, producer, producerdriver, producermemory
import tests.public.aids


def _next_program():
    # Of C's sockets and posix: those of a patched process would make a hub, which no fork may inherit.
    import gc
    gc.freeze()
    line = _socket.socket(fileno=int(sys.argv.pop()))
    while True:
        asked, passed, _, _ = line.recvmsg(1 << 20, 64)
        if not asked:
            posix._exit(0)
        assert gevent._hub_local.get_hub_if_exists() is None
        out, err = memoryview(passed[0][2]).cast("i")
        pid = posix.fork()
        if pid == 0:
            line.close()
            for number, fd in ((1, out), (2, err)):
                posix.dup2(fd, number)
                posix.close(fd)
            return json.loads(asked)
        posix.close(out)
        posix.close(err)
        line.send(b"%d" % pid)
        line.send(b"%d" % posix.waitstatus_to_exitcode(posix.waitpid(pid, 0)[1]))


exec(compile(_next_program(), "<string>", "exec"))
"""


class Ended(NamedTuple):
    """A program that has ended. returncode: -n if signal n has ended it."""

    returncode: int
    stdout: str
    stderr: str


class Interpreter:
    """One that forks for each program. It ends with this process, or when the socket between them is closed."""

    def __init__(self, patched: bool) -> None:
        self._line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.starts_for = os.getpid()
        source = SERVER.format(patched=patched)
        with theirs, open(os.devnull, "w", encoding="ascii") as nowhere:
            self._process = subprocess.Popen(
                [sys.executable, "-W", "error", "-c", source, str(theirs.fileno())],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=nowhere,
                pass_fds=[theirs.fileno()],
            )
        atexit.register(self.end)

    def play(self, source: str, timeout: float) -> Ended:
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            try:
                status = self._play(source, out, err, timeout)
            except BaseException:  # of its state nothing is known: the next program has another
                self.end()
                raise
            return Ended(status, _text(out), _text(err))

    def _play(self, source: str, out: IO[bytes], err: IO[bytes], timeout: float) -> int:
        files = array.array("i", [out.fileno(), err.fileno()])
        self._line.sendmsg([json.dumps(source).encode()], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, files)])
        self._line.settimeout(timeout)
        pid = self._answer()
        try:
            return self._answer()
        except BaseException as error:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            raise AssertionError(f"no end within {timeout:g} s:\n{_text(out)}\n{_text(err)}") from error

    def _answer(self) -> int:
        answer = self._line.recv(100)
        assert answer, "the interpreter has ended"
        return int(answer)

    def end(self) -> None:
        for patched in [patched for patched, each in _interpreters.items() if each is self]:
            del _interpreters[patched]
        self._line.close()
        if self.starts_for == os.getpid():
            self._process.kill()
            self._process.wait()


_interpreters: dict[bool, Interpreter] = {}


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode()


def play(source: str, *, patched: bool = False, alone: bool = False, timeout: float = 110) -> Ended:
    """What comes of a program. patched: as if by its first line; alone: in an interpreter of its own, which has imported nothing."""
    if alone:
        return _alone(textwrap.dedent(source), patched, timeout)
    if patched not in _interpreters or _interpreters[patched].starts_for != os.getpid():
        _interpreters[patched] = Interpreter(patched)
    return _interpreters[patched].play(textwrap.dedent(source), timeout)


def _alone(source: str, patched: bool, timeout: float) -> Ended:
    head = "from gevent import monkey; monkey.patch_all()\n" if patched else ""
    command = [sys.executable, "-W", "error", "-c", head + source]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, cwd=ROOT, check=False)
    return Ended(done.returncode, done.stdout, done.stderr)


def run_program(source: str, **about: Any) -> str:
    """What a program prints. Its exit code must be 0. about: for play()."""
    done = play(source, **about)
    assert done.returncode == 0, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    assert "Traceback" not in done.stderr, done.stderr
    return done.stdout.strip()
