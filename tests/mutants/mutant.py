"""A mutant: the producer with one mistake, kept as textual substitutions.

A file `name.mutant` begins with lines `what: ...` (the mistake), `tests: ...` (arguments for pytest, relative to the root) and, if
it must be one implementation of the records, `impl: python`. Then for each place `file: ...` and

    <<<<
    lines that occur exactly once in the file
    ====
    lines that stand there instead
    >>>>

A substitution drifts less than a diff: it holds as long as those lines do. To add a mutant, add a file.
"""

from __future__ import annotations

import pathlib
import shlex
from typing import NamedTuple

__all__ = ["HERE", "ROOT", "DoesNotApply", "Mutant", "mutants"]

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parents[1]


class DoesNotApply(Exception):
    """The source has changed under a mutant: its lines are to be brought up to date."""


class Change(NamedTuple):
    """Lines of a file, and what stands there instead."""

    file: str
    old: str
    new: str


class Mutant(NamedTuple):
    """what: the mistake; tests: arguments for pytest; impl: value of GKAFKA_IMPL, or None."""

    name: str
    what: str
    tests: list[str]
    impl: str | None
    changes: list[Change]

    def applied(self, root: pathlib.Path) -> dict[str, str]:
        """File -> its text with the mistake. Raises DoesNotApply."""
        texts: dict[str, str] = {}
        for change in self.changes:
            text = texts.get(change.file) or (root / change.file).read_text()
            if (found := text.count(change.old)) != 1:
                raise DoesNotApply(f"{self.name}: {change.file} has {found} times, not once:\n{change.old}")
            texts[change.file] = text.replace(change.old, change.new)
        return texts


def mutants() -> list[Mutant]:
    """All that are here, by name."""
    return [_read(path) for path in sorted(HERE.glob("*.mutant"))]


def _read(path: pathlib.Path) -> Mutant:
    about: dict[str, str] = {}
    changes: list[Change] = []
    lines = iter(path.read_text().splitlines(keepends=True))
    for line in lines:
        if line == "<<<<\n":
            old, new = _until(lines, "====\n"), _until(lines, ">>>>\n")
            changes.append(Change(about["file"], old, new))
        elif line.strip():
            name, _, value = line.partition(":")
            about[name.strip()] = value.strip()
    return Mutant(path.stem, about["what"], shlex.split(about["tests"]), about.get("impl"), changes)


def _until(lines: object, end: str) -> str:
    taken = []
    for line in lines:  # type: ignore[attr-defined]
        if line == end:
            return "".join(taken)
        taken.append(line)
    raise ValueError(f"no line {end.strip()}")
