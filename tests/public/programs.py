"""Programs in processes of their own, each the fork of an interpreter that has imported gkafka already: an interpreter of its own takes half a second.

No client has been made before, no hub and no thread; gevent is imported, and where it is patched that came before all other imports.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap
from typing import Any

from tests.handlers.hub import ROOT
from tests.kit.forks import LIMIT_S, Ended, Interpreter, Program

__all__ = ["Ended", "play", "run_program", "with_values"]

PATCHED = "from gevent import monkey; monkey.patch_all()\n"
IMPORTED = """
import gc, json, logging, os, signal, sys, textwrap, threading, time
import gkafka
import gevent.threadpool
import gkafka.handlers.greenlets
import gkafka.core.consumergroup, gkafka.kafka, gkafka.progress, gkafka.sharing, gkafka.subscribing
from gkafka import client, columnreader, consumer, nativeconsumer, producer, producerdriver, producermemory
import tests.public.aids
"""
_interpreters: dict[bool, Interpreter] = {}


def play(source: str, *, patched: bool = False, alone: bool = False, timeout: float = LIMIT_S) -> Ended:
    """What comes of a program. patched: as if by its first line; alone: in an interpreter of its own, which has imported nothing."""
    before, source = PATCHED if patched else "", textwrap.dedent(source)
    if alone:
        return _alone(before + source, timeout)
    if patched not in _interpreters or not _interpreters[patched].serves:
        _interpreters[patched] = Interpreter(before + IMPORTED)
    return _interpreters[patched].play(Program(source), limit=timeout)[0]


def with_values(source: str, **values: object) -> str:
    """The program with these names at its beginning."""
    return "".join(f"{name} = {value!r}\n" for name, value in values.items()) + textwrap.dedent(source)


def _alone(source: str, timeout: float) -> Ended:
    try:
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", source], capture_output=True, text=True, timeout=timeout, cwd=ROOT, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise AssertionError(f"no end within {timeout:g} s:\n{source}\nIt printed:\n{error.stdout}\n{error.stderr}") from None
    return Ended(done.returncode, done.stdout, done.stderr)


def run_program(source: str, **about: Any) -> str:
    """What a program prints. Its exit code must be 0. about: for play()."""
    done = play(source, **about)
    assert done.returncode == 0, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    assert "Traceback" not in done.stderr, done.stderr
    return done.stdout.strip()
