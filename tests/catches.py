"""Places of the package that catch every exception: `python -m tests.catches` prints them with their number.

Whoever catches every exception also has those of signal handlers, kills and time-outs in hand, and
must see that they go on. The fewer such places there are, the fewer can be wrong.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

PACKAGE = Path(__file__).resolve().parent.parent / "gkafka"
WIDE = "BaseException"
COMPILED = re.compile(r"\bexcept\s*:|\bexcept\b[^:#\n]*\bBaseException\b|\bsuppress\([^)#]*\bBaseException\b")
EXIT = re.compile(r"^([ \t]*)(?:async )?(?:c?p?def) .*\b__a?exit__\(self,?\s*([^)]*)\).*:\n((?:(?:\1[ \t]+.*)?\n)*)", re.M)


class Place(NamedTuple):
    """kind: "except", "suppress", or "exit" for an `__exit__` that looks at the exception."""

    file: str
    line: int
    kind: str


def in_python(text: str) -> Iterator[tuple[int, str]]:
    """Line and kind of each place in a module."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ExceptHandler) and _is_wide(node.type):
            yield node.lineno, "except"
        elif isinstance(node, ast.Call) and _name(node.func) == "suppress" and any(map(_is_wide, node.args)):
            yield node.lineno, "suppress"
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name in ("__exit__", "__aexit__") and _looks(node):
            yield node.lineno, "exit"


def in_cython(text: str) -> Iterator[tuple[int, str]]:
    """Line and kind of each place in a .pyx or .pxi file, which is read as text."""
    for found in COMPILED.finditer(text):
        yield _line(text, found.start()), found[0][: len("except")].replace("suppre", "suppress")
    for found in EXIT.finditer(text):
        arguments = re.findall(r"(\w+)\s*(?=,|$|=|:)", found[2])
        if any(re.search(rf"\b{name}\b", found[3]) for name in arguments if name != "None"):
            yield _line(text, found.start()), "exit"


def places(package: Path = PACKAGE) -> list[Place]:
    """All places of the package, by file and line."""
    found = []
    for path in sorted(package.rglob("*")):
        look = in_python if path.suffix == ".py" else in_cython if path.suffix in (".pyx", ".pxi") else None
        if look is not None:
            name = path.relative_to(package).as_posix()
            found += sorted(Place(name, line, kind) for line, kind in look(path.read_text()))
    return found


def _name(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _is_wide(caught: ast.expr | None) -> bool:
    """Return whether `except caught` takes every exception; None for a bare `except:`."""
    if isinstance(caught, ast.Tuple):
        return any(map(_is_wide, caught.elts))
    return caught is None or _name(caught) == WIDE


def _looks(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    arguments = function.args
    names = {argument.arg for argument in [*arguments.posonlyargs, *arguments.args][1:]}
    names |= {argument.arg for argument in (arguments.vararg, arguments.kwarg) if argument is not None}
    return any(isinstance(node, ast.Name) and node.id in names for part in function.body for node in ast.walk(part))


def _line(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1


def main() -> None:
    found = places()
    for place in found:
        print(f"gkafka/{place.file}:{place.line}: {place.kind}")
    print(len(found))


if __name__ == "__main__":
    main()
