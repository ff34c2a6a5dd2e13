"""The harness for greenlets: whether something waits as greenlets have to, and scripts in processes of their own."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import textwrap
from collections.abc import Callable

import gevent
import pytest

ROOT = pathlib.Path(__file__).parents[2]


def assert_waits_in_the_hub(wait: Callable[[], object], *, after_s: float = 0.1) -> None:
    """Assert that something which nobody ends waits in gevent's way: a gevent.Timeout ends it, which the hub raises, and only if it turns.

    wait: has a deadline of its own, of PATIENCE_S or so, at which it ends if it blocks the hub's thread.
    """
    with pytest.raises(gevent.Timeout), gevent.Timeout(after_s):
        wait()


def run_script(source: str, *, timeout: float = 100, python: tuple[str, ...] = ("-W", "error"), **environment: str) -> str:
    """What a program prints, run in a fresh interpreter. Its exit code must be 0. environment: more variables for it."""
    command = [sys.executable, *python, "-c", textwrap.dedent(source)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=timeout, cwd=ROOT, check=False, env={**os.environ, **environment}
    )
    assert done.returncode == 0, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    assert "Traceback" not in done.stderr, done.stderr
    return done.stdout.strip()
