"""Finding the processes that a test started, and those that these started, whatever their groups and sessions."""

from __future__ import annotations

from pathlib import Path

MARK = "GKAFKA_TEST_MARK"


def marked(value: str) -> list[str]:
    """The command lines of the living processes, this one aside, that have the mark in the environment they were started with."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            environment = (folder / "environ").read_bytes().split(b"\0")
            if f"{MARK}={value}".encode() in environment:
                found.append((folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:  # ended meanwhile, or another user's
            continue
    return found
