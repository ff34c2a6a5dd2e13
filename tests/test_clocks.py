"""Tests have one clock, tests/kit/clock.py, which refuses limits that a busy machine passes; nothing else in them looks at a clock."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.clock import LEAST_S, Span, during, now, soon

ROOT = Path(__file__).resolve().parent.parent
CLOCKS = {"monotonic", "perf_counter", "process_time", "thread_time", "time", "clock_gettime"}
CLOCKS |= {f"{name}_ns" for name in CLOCKS}
IN_TEXT = re.compile(rf"\btime\.({'|'.join(sorted(CLOCKS))})\b|\bfrom time import [^\n]*\b({'|'.join(sorted(CLOCKS))})\b")
MAY_HAVE_ONE = re.compile(
    r"\b(monotonic|perf_counter|process_time|thread_time|clock_gettime)(_ns)?\b|\btime\.time|from time import|import time as"
)
ALLOWED = {
    "tests/test_clocks.py": "it names what is forbidden",
    "tests/fuzz/__main__.py": "`make fuzz` reports inputs that take more than 50 ms of the processor",
}
"""File -> why it looks at a clock of its own. At most five."""


def clocks(source: str) -> Iterator[tuple[int, str]]:
    """Line and name of each clock in a Python file, also in the text of programs that it holds."""
    if not MAY_HAVE_ONE.search(source):
        return
    modules: set[str] = set()
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules |= {name.asname or name.name for name in node.names if name.name == "time"}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "time":
            yield from ((node.lineno, name.name) for name in node.names if name.name in {*CLOCKS, "*"})
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in modules and node.attr in CLOCKS:
            yield node.lineno, node.attr
        elif isinstance(node, ast.Constant) and isinstance(node.value, str | bytes):
            text = node.value if isinstance(node.value, str) else node.value.decode(errors="replace")
            yield from ((node.lineno, found[0]) for found in IN_TEXT.finditer(text))


def test_no_test_and_no_program_that_it_starts_has_a_clock_of_its_own() -> None:
    found = [
        f"{name}:{line}: {clock}: take tests.kit.clock"
        for file in sorted((ROOT / "tests").rglob("*.py"))
        if not (name := file.relative_to(ROOT).as_posix()).startswith("tests/kit/") and name not in ALLOWED
        for line, clock in clocks(file.read_text())
    ]
    assert found == []
    assert len(ALLOWED) <= 5
    assert [name for name in ALLOWED if not any(clocks((ROOT / name).read_text()))] == []


@pytest.mark.parametrize(
    "source",
    [
        "import time\nbegan = time.monotonic()",
        "import time as t\nassert t.perf_counter() < 1",
        "from time import sleep, process_time as used",
        "def f():\n    from time import *",
        "PROGRAM = 'import time\\nprint(time.time())'",
        "PROGRAM = b'from time import thread_time'",
        "PROGRAM = f'import time; time.monotonic_ns() {x}'",
        "import time\nclock = time.time",
    ],
)
def test_a_clock_is_found(source: str) -> None:
    assert list(clocks(source))


@pytest.mark.parametrize(
    "source",
    ["import time\ntime.sleep(1)", "from time import sleep", "handler.monotonic()", "x = 'the time is over'", "self.time.time = 3"],
)
def test_what_is_no_clock_is_left_alone(source: str) -> None:
    assert not list(clocks(source))


# -- the clock itself --------------------------------------------------------------------------------------------------
def test_a_limit_that_a_busy_machine_passes_is_refused() -> None:
    began = now()
    for judge in (
        lambda: now() - began < 2,
        lambda: now() - began <= LEAST_S - 0.01,
        lambda: now() - began < 3,
        lambda: -1 <= now() - began < 2,
        lambda: now() - began - 0.1 < 2,
        lambda: now() - began + 0.1 < 2,
        lambda: now() < began + 2,
        lambda: began + 2 > now(),
        lambda: now() <= now() + 1.0,
        lambda: min(now() + 1, now()),
    ):
        with pytest.raises(ValueError, match="a busy machine takes longer"):
            judge()
    with pytest.raises(ValueError, match=re.escape("benchmarks/")):
        100 / (now() - began)


def test_room_enough_and_lower_bounds_are_fine() -> None:
    began = now()
    assert now() - began < 30
    assert now() < began + 60
    assert now() - began >= 0
    assert began - now() <= 0
    assert Span(3) >= 0.5
    assert not Span(0.2) > 0.5
    assert Span(1) < Span(2)
    assert soon(0.1) > began
    assert sum(1 for _ in during(0.02)) >= 1
    assert now() - began >= 0.02
