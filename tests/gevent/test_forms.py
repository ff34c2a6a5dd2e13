"""The table of `tests/gevent` says which forms `make test` leaves out: no more and no less than pytest does."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import tests.gevent

HERE = Path(__file__).parent
ROW = re.compile(r"^\| `([\w/.]+)` \| (thorough|soak) \|", re.MULTILINE)
MACHINES_OWN = "live/test_32_interpreters.py"  # a machine without other interpreters has no such form


def collected(marks: str) -> set[str]:
    """The files of tests/gevent with tests that `-m marks` chooses."""
    command = [sys.executable, "-m", "pytest", "-q", "--collect-only", "-p", "no:xdist", "-m", marks, str(HERE)]
    said = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100, cwd=HERE.parents[1]).stdout
    return {line.split("::")[0].removeprefix("tests/gevent/") for line in said.splitlines() if "::" in line}


@pytest.mark.parametrize(("mark", "chosen"), [("thorough", "thorough and not soak"), ("soak", "soak")])
def test_the_table_names_what_make_test_leaves_out(mark: str, chosen: str) -> None:
    told = {file for file, of in ROW.findall(tests.gevent.__doc__ or "") if of == mark}
    assert told - {MACHINES_OWN} == collected(chosen) - {MACHINES_OWN}


def test_every_file_of_an_acceptance_test_is_in_the_table() -> None:
    here = {str(file.relative_to(HERE)) for file in HERE.rglob("test_[0-9]*.py")}
    assert not {file for file in here if f"`{file}`" not in (tests.gevent.__doc__ or "")}
    assert all((HERE / file).exists() for file, _ in ROW.findall(tests.gevent.__doc__ or ""))
