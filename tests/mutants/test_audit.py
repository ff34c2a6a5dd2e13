"""Hold the table of what moves in DESIGN.md against the code.

Its functions, tests and mutants exist, and nothing that moves a position, commits or completes
lacks a row.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from tests.mutants.mutant import ROOT, Mutant, mutants

HEADING = "## 5. What moves"
MOVED = {"consumed", "consumed_epoch", "fetch_offset", "fetch_epoch", "next_offset"}
MOVED |= {"last_offset_consumed", "_position", "_left_at", "_stood_at", "_resume_at", "finished"}
"""Attributes that are positions, or what may be committed."""
MOVES = {"begin_anew", "catch_up", "is_read", "look_up", "move", "put_back", "seek"}
MOVES |= {"commit", "_commit", "commit_all", "commit_finished", "commit_offsets", "_commit_done"}
MOVES |= {"commit_request", "commit_transaction", "offsets_request", "send_offsets"}
MOVES |= {"alter_group_offsets", "delete_group_offsets", "reset_group_offsets"}
MOVES |= {"give_back", "go_back", "complete", "_done"}
"""Methods that move positions, commit, or say what became of a record."""
ELSEWHERE = {"wire", "testing", "net", "handlers"}
"""Rooms without a position: tables, the other side, bytes, concurrency."""
OTHERS = {"header.next_offset", "placed.next_offset"}  # of a batch, of an error
OTHERS |= {"self.give_back", "memory.give_back", "self.pool.give_back", "self._pool.give_back"}
OTHERS |= {"lane.give_back"}  # a place in a queue
OTHERS |= {"self.move", "self.numbering.move"}  # states of a machine
OTHERS |= {"self._subscription.look_up"}  # topics
"""What has such a name and moves nothing."""


ANY = re.compile("|".join(rf"\b{name}\b" for name in sorted(MOVED | MOVES)))
"""Names one of them: what does not need not be looked at closely."""


class Row(NamedTuple):
    """places: (file, function) below gkafka/. test: below tests/."""

    places: list[tuple[str, str]]
    test: str
    mutants: list[str]


def rows() -> list[Row]:
    """The lines of DESIGN.md's table."""
    section = (ROOT / "DESIGN.md").read_text().partition(HEADING)[2]
    found = []
    for line in section.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if line.startswith("| `") and len(cells) == 5:
            found.append(Row(list(_places(cells[0])), _quoted(cells[3])[0], _quoted(cells[4])))
    return found


def _quoted(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def _places(cell: str) -> Iterator[tuple[str, str]]:
    file = ""
    for name in _quoted(cell):
        if name.endswith(".py"):
            file = name
        else:
            yield file, name


@cache
def text_of(file: str) -> str:
    return (ROOT / file).read_text()


@cache
def functions(file: str) -> dict[str, ast.FunctionDef]:
    """Return the functions of a file of gkafka, by Class.method or name.

    A function that is defined in another one is a part of that.
    """
    found: dict[str, ast.FunctionDef] = {}

    def look(node: ast.AST, of: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef):
                found[of + child.name] = child
            else:
                look(child, f"{of}{child.name}." if isinstance(child, ast.ClassDef) else of)

    look(ast.parse(text_of(f"gkafka/{file}")), "")
    return found


ROWS = rows()
MUTANTS = {mutant.name: mutant for mutant in mutants()}


def test_the_table_is_there() -> None:
    assert len(ROWS) > 50
    names = [name for row in ROWS for name in row.places]
    assert len(names) == len(set(names)), "each place has one row"


def test_each_row_names_functions_a_test_and_mutants_that_exist() -> None:
    for row in ROWS:
        for file, function in row.places:
            assert function in functions(file), f"{file} has no {function}"
        file, _, test = row.test.partition("::")
        assert f"def {test}(" in text_of(f"tests/{file}"), row.test
        assert row.mutants, row.places
        assert not set(row.mutants) - MUTANTS.keys(), row.places


def test_the_mutants_of_each_row_are_of_its_lines_and_one_is_for_its_test() -> None:
    for row in ROWS:
        of_row = [MUTANTS[name] for name in row.mutants]
        for mutant in of_row:
            found = any(_is_in(mutant, file, function) for file, function in row.places)
            assert found, f"{mutant.name} changes none of the functions of {row.places}"
        file, _, test = row.test.partition("::")
        run = {part for mutant in of_row for part in mutant.tests}
        assert run & {f"tests/{file}", f"tests/{file}::{test}"}, row.places


def _is_in(mutant: Mutant, file: str, function: str) -> bool:
    node = functions(file)[function]
    text = text_of(f"gkafka/{file}")
    for change in mutant.changes:
        if change.file == f"gkafka/{file}":
            first = text[: text.index(change.old)].count("\n") + 1
            last = first + change.old.count("\n") - 1
            if first <= (node.end_lineno or 0) and last >= node.lineno:
                return True
    return False


def test_whatever_moves_a_position_commits_or_says_delivered_has_a_row() -> None:
    named = {place for row in ROWS for place in row.places}
    missing = []
    for path in sorted((ROOT / "gkafka").rglob("*.py")):
        file = path.relative_to(ROOT / "gkafka").as_posix()
        if file.partition("/")[0] in ELSEWHERE:
            continue
        lines = text_of(f"gkafka/{file}").splitlines()
        for name, node in functions(file).items():
            if not ANY.search("\n".join(lines[node.lineno - 1 : node.end_lineno])):
                continue
            what = sorted(_moves(node))
            if what and (file, name) not in named and not name.endswith("__init__"):
                missing.append(f"{file}: {name}: {', '.join(what)}")
    assert not missing, "no row in DESIGN.md, section 5:\n" + "\n".join(missing)


def _moves(function: ast.FunctionDef) -> set[str]:
    found = set()
    for node in ast.walk(function):
        if isinstance(node, (ast.Assign, ast.AugAssign, ast.AnnAssign)):
            found |= {f"{name} =" for name in _assigned(node)}
        elif isinstance(node, ast.Call) and _last_name(node.func) in MOVES:
            found |= {f"{ast.unparse(node.func)}()"} - {f"{name}()" for name in OTHERS}
    return found


def _assigned(node: ast.Assign | ast.AugAssign | ast.AnnAssign) -> set[str]:
    """Return the positions among the targets of an assignment."""
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    parts: list[ast.expr] = []
    for target in targets:
        parts += target.elts if isinstance(target, ast.Tuple) else [target]
    moved = [part for part in parts if isinstance(part, ast.Attribute) and part.attr in MOVED]
    return {ast.unparse(part) for part in moved} - OTHERS


def _last_name(called: ast.expr) -> str | None:
    return getattr(called, "attr", getattr(called, "id", None))
