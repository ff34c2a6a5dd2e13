"""What this machine does not have, so that tests are left out: said in one line each at the end of `make test`, and never in silence."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

__all__ = ["LEFT_OUT", "leave_out", "left_out", "note_what_is_left_out", "reason"]

LEFT_OUT = "GKAFKA_LEFT_OUT"
"""The folder in which the runs of tests/stages.py note it."""
NOT_TESTED = "NOT TESTED: "


def reason(*missing: tuple[str, str]) -> str:
    """Return why a test is skipped, which is told at the end. missing: what it needs and this machine has not, and how to get it."""
    return NOT_TESTED + " | ".join(f"there is no {what} ({cure})" for what, cure in missing)


def leave_out(*missing: tuple[str, str]) -> None:
    """Skip the test, for the `reason` of the same arguments."""
    pytest.skip(reason(*missing))


def note_what_is_left_out(why: str) -> None:
    """Keep the reason of a skipped test for `left_out`, if it is one of `reason()`."""
    folder, said = os.environ.get(LEFT_OUT), why.partition(NOT_TESTED)[2]
    if folder and said:
        with (Path(folder) / str(os.getpid())).open("a") as file:
            file.write("".join(f"{each}\n" for each in said.split(" | ")))


def left_out(folder: Path) -> list[str]:
    """Return a line for each thing that was missing, with the number of tests that it left out."""
    found = Counter(line for file in folder.iterdir() for line in file.read_text().splitlines())
    return [f"NOT TESTED, {count} {'test' if count == 1 else 'tests'}: {what}" for what, count in sorted(found.items())]
