"""Tests have one clock, tests/kit/clock.py, which refuses limits that a busy machine passes; nothing else in them looks at a clock."""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.kit.clock import LEAST_S, Moment, Span, during, epoch_s, figure, now, soon

ROOT = Path(__file__).resolve().parent.parent
CLOCKS = {"monotonic", "perf_counter", "process_time", "thread_time", "clock_gettime", "default_timer", "ru_utime", "ru_stime", "utcnow"}
CLOCKS |= {f"{name}_ns" for name in CLOCKS} | {"timeit", "_time"}
ASKED = {"time", "time_ns", "times", "now", "today"}
"""Methods that tell the time: of a datetime, an event loop, `os`."""
IN_TEXT = re.compile(rf"\b\w+\.({'|'.join(sorted(CLOCKS))}|time)\(")
"""In text that is no Python, as of a program with gaps to be filled."""
MAY_HAVE_ONE = re.compile(
    rf"\b({'|'.join(sorted(CLOCKS))})\b|\bimport time\b|\btime import\b|\.({'|'.join(sorted(ASKED))})\(|\bsoon\(|[\"']time[\"']"
)
ALLOWED = {
    "tests/test_clocks.py": "it names what is forbidden",
    "tests/fuzz/__main__.py": "`make fuzz` reports inputs that take more than 50 ms of the processor",
    "tests/handlers/test_contract.py": "it compares the clocks of the handlers with the one of the tests",
}
"""File -> why it looks at a clock of its own. At most five."""


def clocks(source: str) -> Iterator[tuple[int, str]]:
    """Line and text of each use of a clock in a Python file, and in the programs that its strings hold.

    The rule: of `time` a test takes `sleep` alone; the names of clocks stand nowhere; soon() is handed on, never compared or subtracted.
    """
    if not MAY_HAVE_ONE.search(source):
        return
    nodes = list(ast.walk(ast.parse(textwrap.dedent(source))))
    modules = {name.asname or "time" for node in nodes if isinstance(node, ast.Import) for name in node.names if name.name == "time"}
    sleeps = {node.value for node in nodes if isinstance(node, ast.Attribute) and node.attr == "sleep"}
    for node in nodes:
        if is_clock(node) or (isinstance(node, ast.Name) and node.id in modules and node not in sleeps):
            yield node.lineno, ast.unparse(node)  # type: ignore[attr-defined]
        elif MAY_HAVE_ONE.search(text := text_of(node)) and "(" in text:
            yield from ((node.lineno, found) for found in in_text(text))  # type: ignore[attr-defined]


def text_of(node: ast.AST) -> str:
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.Constant(value=bytes(text)):
            return text.decode(errors="replace")
        case ast.JoinedStr(values=parts):
            return "".join(text_of(part) or "x" for part in parts)
    return ""


def in_text(text: str) -> list[str]:
    try:
        return [found for _, found in clocks(text)]
    except SyntaxError:
        return [found[0] for found in IN_TEXT.finditer(text)]


def is_clock(node: ast.AST) -> bool:
    match node:
        case ast.Import(names=names):
            return any(name.name in CLOCKS for name in names)
        case ast.ImportFrom(module=module, names=names):
            return module in CLOCKS or any(name.name in {*CLOCKS, "time"} or (module == "time" and name.name != "sleep") for name in names)
        case ast.Name(id=name) | ast.Attribute(attr=name) if name in CLOCKS:
            return True
        case ast.Call(func=ast.Attribute(attr=name, value=of)) if name in ASKED:
            return not (isinstance(of, ast.Name) and of.id == "clock")
        case ast.Call(args=[ast.Constant(value="time"), ast.Constant(value=name)]):
            return name != "sleep"
        case ast.Compare(left=left, comparators=others):
            return any(map(is_soon, [left, *others]))
        case ast.BinOp(left=left, op=ast.Sub(), right=right):
            return is_soon(left) or is_soon(right)
    return False


def is_soon(node: ast.AST) -> bool:
    match node:
        case ast.Call(func=ast.Name(id="soon") | ast.Attribute(attr="soon")):
            return True
    return False


def test_no_test_and_no_program_that_it_starts_has_a_clock_of_its_own() -> None:
    sources = {file.relative_to(ROOT).as_posix(): file.read_text() for file in sorted((ROOT / "tests").rglob("*.py"))}
    found = [
        f"{name}:{line}: {clock}: take tests.kit.clock"
        for name, source in sources.items()
        if not name.startswith("tests/kit/") and name not in ALLOWED
        for line, clock in clocks(source)
    ]
    assert found == []
    assert len(ALLOWED) <= 5
    assert [name for name in ALLOWED if not any(clocks(sources[name]))] == []
    measures = {name.split("/")[1] for name, source in sources.items() if re.search(r"\bfigure\(now|clock\.figure\(", source)}
    assert measures <= {"faults", "fuzz", "stages.py", "test_clocks.py"}, "figure() is for what measures"


@pytest.mark.parametrize(
    "source",
    [
        "import time\nbegan = time.monotonic()",
        "import time as t\nassert t.perf_counter() < 1",
        "from time import sleep, process_time as used",
        "def f():\n    from time import *",
        "import time\nclock = time.time",
        "import time\nmodule = time",
        "import time\ngetattr(time, 'monotonic')()",
        "from gevent import time\ntime.sleep(1)",
        "from threading import _time",
        "from timeit import default_timer",
        "import sys\nsys.modules['time'].monotonic()",
        "get_original('time', 'monotonic')()",
        "__import__('time').time()",
        "resource.getrusage(0).ru_utime",
        "os.times()",
        "datetime.datetime.now() - began",
        "asyncio.get_event_loop().time()",
        "handler.monotonic() - began",
        "PROGRAM = 'import time\\nprint(time.time())'",
        "PROGRAM = b'from time import thread_time\\nthread_time()'",
        "PROGRAM = f'import time; time.monotonic_ns() {x}'",
        "PROGRAM = '    import time as t\\n    print(t.monotonic())'",
        "PROGRAM = 'from time import (\\n  monotonic)\\nmonotonic()'",
        "PROGRAM = '''m = __import__(\"time\").monotonic()'''",
        "PROGRAM = 'GAP( print(time.time())'",
        "assert soon(0) < began",
        "took = soon(0) - began",
    ],
)
def test_a_clock_is_found(source: str) -> None:
    assert list(clocks(source))


@pytest.mark.parametrize(
    "source",
    [
        "import time\ntime.sleep(1)",
        "import time as t\nt.sleep(1)",
        "from time import sleep",
        "x = 'the time (of day) is over'",
        "self.time.time = 3",
        "clock.now() - began",
        "get_original('time', 'sleep')(1)",
        "monkeypatch.setattr(hubs, 'perf_counter', lambda: 1.0)",
        "wait_open(soon(60))",
    ],
)
def test_what_is_no_clock_is_left_alone(source: str) -> None:
    assert not list(clocks(source))


# -- the clock itself --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "judge",
    [
        lambda began: now() - began < 2,
        lambda began: now() - began <= LEAST_S - 0.01,
        lambda began: -1 <= now() - began < 2,
        lambda began: now() - began - 0.1 < 2,
        lambda began: now() - began + 0.1 < 2,
        lambda began: now() < began + 2,
        lambda began: now() < 2 + began,
        lambda began: began + 2 > now(),
        lambda began: began + 2 - now() > 0,
        lambda began: now() <= now() + 1.0,
        lambda began: min(now() + 1, now()),
        lambda began: round(now() - began, 2) < 2,
        lambda began: abs(now() - began) < 2,
        lambda began: sum([now() - began]) < 2,
        lambda began: now() - soon(0) < 2,
        lambda began: soon(0) - began < 2,
        lambda began: epoch_s() - epoch_s() < 2,
    ],
)
def test_a_limit_that_a_busy_machine_passes_is_refused(judge: Callable[[Moment], object]) -> None:
    with pytest.raises(ValueError, match="a busy machine takes longer"):
        judge(now())


@pytest.mark.parametrize(
    "reckon",
    [
        lambda span: 100 / span,
        lambda span: span / 2,
        lambda span: span * 1000,
        lambda span: 1000 * span,
        lambda span: span // 1,
        lambda span: -span,
        lambda span: int(span),
        lambda span: float(span),
        lambda span: span == pytest.approx(0, abs=1),
        lambda span: pytest.approx(0, abs=1) != span,
        lambda span: float(now()),
        lambda span: now() * 1000,
    ],
)
def test_what_hides_a_limit_is_refused(reckon: Callable[[Span], object]) -> None:
    with pytest.raises(ValueError, match=re.escape("speed is measured in benchmarks/")):
        reckon(now() - now())


def test_room_enough_and_lower_bounds_are_fine() -> None:
    began = now()
    assert now() - began < 30
    assert sum([now() - began, now() - began]) < 30
    assert now() < began + 60
    assert now() - began >= 0
    assert began - now() <= 0
    assert abs(soon(0) - began) < 30
    assert Span(3) >= 0.5
    assert not Span(0.2) > 0.5
    assert Span(1) < Span(2)
    assert 1.0 + Span(2) == 3.0, "as gkafka does with a time-out"
    at = soon(0.1)
    assert at > began
    assert sum(1 for _ in during(0.02)) >= 1
    assert now() - began >= 0.02
    assert type(figure(now() - began)) is float
    assert f"{Span(0.25):.1f} {Span(2)}" == "0.2 2.0"
