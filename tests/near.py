"""The tests nearest to what was changed, in two minutes at most: `make near`, or `python -m tests.near gkafka/core/fetcher.py ...`.

Without arguments: to the files that differ from the last commit, new ones included. First come the test files that notice one of the module's mutants
(tests/mutants), and those of its name; then those that import it; then those that reach it by helpers of the tests, or by modules of gkafka that import it.
Of equally near ones the shortest come first, by benchmarks/suite_profile.md. Tests that start Kafka or Spark are left to `make test`. Files without room are named,
and so is what plays the others for a file that no test is near to; where nothing at all was played, that is no success.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

from tests.mutants.mutant import mutants
from tests.stages import CYTHON, QUICK, WITH_KAFKA, Stage, play

__all__ = ["BUDGET_S", "chosen", "distances", "main"]

ROOT = Path(__file__).resolve().parent.parent
PROFILE = ROOT / "benchmarks" / "suite_profile.md"
OURS = ("gkafka", "pyspark_gkafka", "tests", "benchmarks", "examples")
PROCESSES = 3
BUDGET_S = 360.0
"""Seconds of the profile, whose processes share busy cores and play some files twice: three or four of them take one second here."""
USUAL_S = 5.0
"""Of a file that the profile does not have."""
FAR = 3
COMPILED = (".pyx", ".pxi", ".h")
INSTEAD = (
    (re.compile(r"^tests/(\w+/.*)conftest\.py$"), ".venv/bin/python -m pytest tests/{}"),
    (re.compile(r"\.mutant$"), "make mutants"),
    (re.compile(r"^\.ci/"), ".ci/run"),
    (re.compile(r"\.md$"), "make check"),
    (re.compile(r""), "make test"),
)
"""Of a file that no test is near to: what plays those that hold it. The first one counts."""


class Unreadable(Exception):
    """A file of Python that is none: the text names it and the line."""


def parsed(file: Path) -> ast.Module:
    try:
        return ast.parse(file.read_bytes().decode())
    except UnicodeDecodeError as error:
        line, why = error.object[: error.start].count(b"\n") + 1, "not in UTF-8"
    except SyntaxError as error:
        line, why = error.lineno or 1, error.msg
    raise Unreadable(f"{file.relative_to(ROOT)}:{line}: {why}")


@cache
def imports(file: Path) -> frozenset[str]:
    """The modules of gkafka and of tests that a file imports."""
    found: set[str] = set()
    for node in statements(parsed(file)):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found |= {node.module, *(f"{node.module}.{name.name}" for name in node.names)}
    return frozenset(name for name in found if name.partition(".")[0] in OURS)


def statements(within: ast.AST) -> Iterator[ast.AST]:
    """Those of functions and classes, too: a twentieth of all nodes."""
    left = [within]
    while left:
        node = left.pop()
        yield node
        for part in ("body", "orelse", "finalbody", "handlers", "cases"):
            found = getattr(node, part, None)
            left += found if isinstance(found, list) else []


def name_of(file: Path) -> str:
    parts = file.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def sources() -> Iterator[Path]:
    for room in ("gkafka", "tests"):
        yield from sorted((ROOT / room).rglob("*.py"))


def distances(changed: Sequence[Path]) -> dict[Path, int]:
    """Test file -> over how many imports it reaches one of the changed files, at most FAR; 0 for those that come first."""
    importers: dict[str, list[Path]] = defaultdict(list)
    for file in sources():
        for name in imports(file):
            importers[name].append(file)
    reached = dict.fromkeys([*changed, *first(changed)], 0)
    front = list(changed)
    for far in range(1, FAR + 1):
        front = [file for near in front for file in importers[name_of(near)] if file not in reached]
        for file in front:
            reached.setdefault(file, far)
    return {file: far for file, far in reached.items() if is_pure_test(file) and file.exists()}


def near_to(file: Path) -> dict[Path, int]:
    if file.suffix in COMPILED:  # which may be a part of another one: its package is what others import
        return distances([file, file.parent / "__init__.py"])
    return distances([file]) if file.suffix == ".py" else {}


def first(changed: Sequence[Path]) -> Iterator[Path]:
    """The test files that notice a mutant of one of the changed files, or have its name; of a compiled one also those of its room."""
    for file in changed:
        yield from noticing()[file]
        if file.suffix in COMPILED:
            yield from (test for test in all_tests() if test.parent == ROOT / "tests" / file.parent.name)
        yield from (test for test in all_tests() if test.stem == f"test_{file.stem.strip('_')}")


@cache
def all_tests() -> list[Path]:
    return sorted((ROOT / "tests").rglob("test_*.py"))


@cache
def noticing() -> defaultdict[Path, set[Path]]:
    """File -> the test files that notice its mutants."""
    found: defaultdict[Path, set[Path]] = defaultdict(set)
    for mutant in mutants():
        for change in mutant.changes:
            found[ROOT / change.file] |= {ROOT / test.partition("::")[0] for test in mutant.tests if test.startswith("tests/")}
    return found


def is_pure_test(file: Path) -> bool:
    name = file.relative_to(ROOT).as_posix()
    return file.name.startswith("test_") and file.suffix == ".py" and not name.startswith(tuple(f"{room}/" for room in WITH_KAFKA))


def seconds_of(profile: str) -> dict[str, float]:
    """File -> seconds, by the table."""
    return {file: float(seconds) for file, seconds in re.findall(r"^\| (tests/\S+) \| \d+ \| ([\d.]+) \|", profile, re.MULTILINE)}


def chosen(reached: Mapping[Path, int], seconds: Mapping[str, float]) -> tuple[list[str], list[str]]:
    """Return the files to play and those without room, the nearest first."""
    room = BUDGET_S
    played: list[str] = []
    left: list[str] = []
    costs = {
        file.relative_to(ROOT).as_posix(): (far, seconds.get(file.relative_to(ROOT).as_posix(), USUAL_S)) for file, far in reached.items()
    }
    for name, (_, cost) in sorted(costs.items(), key=lambda item: (item[1], item[0])):
        if cost <= room or not played:
            room -= cost
            played.append(name)
        else:
            left.append(name)
    return played, left


def differing(root: Path) -> list[str]:
    """What differs from the last commit, and what git has not been told of."""
    asked = (["diff", "--name-only", "HEAD"], ["ls-files", "--others", "--exclude-standard"])
    said = [subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=True).stdout for words in asked]
    return "".join(said).splitlines()


def instead(name: str) -> str:
    """The command for a file that no test is near to."""
    found = ((pattern.search(name), command) for pattern, command in INSTEAD)
    return next(command.format(*match.groups()) for match, command in found if match)


def main(arguments: Sequence[str]) -> int:
    if outside := [name for name in arguments if not (ROOT / name).resolve().is_relative_to(ROOT)]:
        print(f"{', '.join(outside)} is not below {ROOT}: name files of this clone, as gkafka/core/fetcher.py", file=sys.stderr)
        return 2
    named = [(ROOT / name).resolve().relative_to(ROOT).as_posix() for name in arguments] or differing(ROOT)
    if missing := [name for name in named if arguments and not (ROOT / name).is_file() and name not in differing(ROOT)]:
        print(f"there is no {', '.join(missing)} below {ROOT.name}: name files as gkafka/core/fetcher.py", file=sys.stderr)
        return 2
    if not named:
        print("nothing was changed since the last commit: name a file, as in make near FILE=gkafka/core/fetcher.py")
        return 1
    try:
        near = {name: near_to(ROOT / name) for name in named}
    except Unreadable as error:
        print(f"{error}: mend it first, for who imports what is not known before", file=sys.stderr)
        return 2
    for name in (name for name, reached in near.items() if not reached):
        print(f"no test without Kafka reaches {name}: {instead(name)}")
    if not any(near.values()):
        return 1
    reached = {file: min(each.get(file, FAR) for each in near.values()) for each in near.values() for file in each}
    played, left = chosen(reached, seconds_of(PROFILE.read_text() if PROFILE.exists() else ""))
    print(f"{len(played)} files: {' '.join(played)}")
    if left:
        print(f"without room, {len(left)} files farther off (make test): {' '.join(left[:10])}{' ...' if len(left) > 10 else ''}")
    return 0 if play([Stage("near", PROCESSES, QUICK, played, environment=CYTHON)], []) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
