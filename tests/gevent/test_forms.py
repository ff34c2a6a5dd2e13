"""The table of `tests/gevent` says which forms `make test` leaves out: no more and no less than pytest does."""

from __future__ import annotations

import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import tests.gevent

HERE = Path(__file__).parent
ROW = re.compile(r"^\| `([\w/.]+)` \| (thorough|soak) \|", re.MULTILINE)
MACHINES_OWN = "live/test_32_interpreters.py"  # a machine without other interpreters has no such form


COLLECT = """
import pytest
class Told:
    def pytest_collection_finish(self, session):
        for item in session.items:
            marks = [mark for mark in ("soak", "thorough") if item.get_closest_marker(mark)]
            print("::", item.nodeid.partition("::")[0], *marks[:1])
pytest.main(["-q", "--collect-only", "-p", "no:xdist", "tests/gevent"], plugins=[Told()])
"""


@cache
def collected() -> dict[str, set[str]]:
    """The files of tests/gevent with tests that have a mark, by it. What has both is soak."""
    command = [sys.executable, "-c", COLLECT]
    said = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100, cwd=HERE.parents[1]).stdout
    rows = [line.split()[1:] for line in said.splitlines() if line.startswith(":: ")]
    return {mark: {file.removeprefix("tests/gevent/") for file, *having in rows if mark in having} for mark in ("thorough", "soak")}


@pytest.mark.parametrize("mark", ["thorough", "soak"])
def test_the_table_names_what_make_test_leaves_out(mark: str) -> None:
    told = {file for file, of in ROW.findall(tests.gevent.__doc__ or "") if of == mark}
    assert told - {MACHINES_OWN} == collected()[mark] - {MACHINES_OWN}


def test_every_file_of_an_acceptance_test_is_in_the_table() -> None:
    here = {str(file.relative_to(HERE)) for file in HERE.rglob("test_[0-9]*.py")}
    assert not {file for file in here if f"`{file}`" not in (tests.gevent.__doc__ or "")}
    assert all((HERE / file).exists() for file, _ in ROW.findall(tests.gevent.__doc__ or ""))
