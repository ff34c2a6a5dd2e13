"""What each recipe of README says to --help, to a Kafka that is not there, and to options that make no sense. No broker is needed."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from gkafka.testing import MockCluster
from tests.gevent.live.recipes import LINES
from tests.handlers.hub import ROOT

PROGRAMS = sorted({line.split()[1] for line in LINES})
NEEDS_KAFKA = [line for line in LINES if not line.endswith(" send")]


def run(line: str, *more: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *shlex.split(line)[1:], *more]
    return subprocess.run(
        command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=60, check=False
    )


def test_every_recipe_is_in_readme() -> None:
    names = [Path(program).stem for program in PROGRAMS]
    assert names == ["batch_threads", "celery_app", "flask_app", "greenlets", "spark_foreach"]


@pytest.mark.parametrize("program", PROGRAMS)
def test_help_tells_what_it_is_for(program: str) -> None:
    done = run(f"python {program}", "--help")
    first = (ROOT / program).read_text(encoding="utf-8").split('"""')[1].splitlines()[0]
    assert done.returncode == 0, done.stderr
    assert first in done.stdout
    assert "--hosts" in done.stdout


@pytest.mark.parametrize("line", NEEDS_KAFKA)
def test_without_kafka_it_says_what_to_do_and_ends_with_1(line: str, tmp_path: Path) -> None:
    more = ("--folder", str(tmp_path)) if "celery" in line else ()
    done = run(line, "--hosts", "127.0.0.1:1", *more)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "NoBrokersAvailableError: none of the hosts answered; 127.0.0.1:1: " in done.stderr
    assert "--hosts HOST:PORT" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("python examples/greenlets.py --greenlets 0", "argument --greenlets: '0': must be a whole number, 1 or more"),
        ("python examples/batch_threads.py no-such-file", "no-such-file: no such file"),
        ("python examples/batch_threads.py README.md --compression zip", "argument --compression: invalid choice: 'zip'"),
        ("python examples/flask_app.py --workers two", "argument --workers: 'two': must be a whole number, 1 or more"),
        ("python examples/celery_app.py worker --create init", "--create init: only a pool of processes"),
        ("python examples/spark_foreach.py --rows -1", "argument --rows"),
    ],
)
def test_what_makes_no_sense_is_refused(line: str, says: str) -> None:
    done = run(line)
    assert done.returncode != 0, done.stdout
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_what_kafka_refuses_is_told_without_the_advice_to_look_for_kafka() -> None:
    with MockCluster() as cluster:
        done = run("python examples/greenlets.py --topic a/b --hosts", cluster.bootstrap)
    assert done.returncode == 1
    assert "a/b" in done.stderr
    assert "Is Kafka there" not in done.stderr
    assert "Traceback" not in done.stderr
