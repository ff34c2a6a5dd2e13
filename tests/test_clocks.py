"""Tests have one clock, tests/kit/clock.py, which refuses limits that a busy machine passes; nothing else in them looks at a clock, or waits for less time."""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path

import pytest

from tests.kit.clock import LEAST_S, PATIENCE_S, Moment, Span, during, epoch_s, figure, now, soon

ROOT = Path(__file__).resolve().parent.parent
CLOCKS = {
    "monotonic",
    "perf_counter",
    "process_time",
    "thread_time",
    "clock_gettime",
    "default_timer",
    "ru_utime",
    "ru_stime",
    "utcnow",
    "cpu_times",
}
CLOCKS |= {f"{name}_ns" for name in CLOCKS} | {"timeit", "_time"}
ASKED = {"time", "time_ns", "times", "now", "today"}
"""Methods that tell the time: of a datetime, an event loop, `os`."""
MAY_TAKE = {"time": ("sleep",), "timeit": (), "psutil": (), "resource": ("getrlimit", "setrlimit", "RLIMIT_", "RUSAGE_")}
"""Module that tells the time -> how the names begin that a test may have of it."""
COUNTS = {"ru_maxrss", "ru_nvcsw", "ru_minflt", "ru_majflt"}
"""What a test may ask `resource.getrusage()` for."""
OURS = "tests.kit.clock"
TELLS = {
    "os.times",
    "datetime.datetime.now",
    "datetime.datetime.utcnow",
    "datetime.datetime.today",
    "datetime.date.today",
    f"{OURS}.figure",
    f"{OURS}.*",
}
IN_TEXT = re.compile(rf"\b\w+\.({'|'.join(sorted(CLOCKS))}|time)\(")
"""In text that is no Python, as of a program with gaps to be filled."""
MAY_HAVE_ONE = re.compile(
    rf"\b({'|'.join(sorted(CLOCKS | MAY_TAKE.keys() - {'time'}))}|import time|time import|soon|figure|from os import|datetime|getrusage)\b"
    rf"|\.({'|'.join(sorted(ASKED))})\b|[\"']time[\"']|{re.escape(OURS)} import \*"
)
ALLOWED = {
    "tests/test_clocks.py": "it names what is forbidden",
    "tests/fuzz/__main__.py": "`make fuzz` reports inputs that take more than 50 ms of the processor",
    "tests/handlers/test_contract.py": "it compares the clocks of the handlers with the one of the tests",
}
"""File -> why it looks at a clock of its own. At most five."""


def clocks(source: str, *, measures: bool = False) -> Iterator[tuple[int, str]]:
    """Line and text of each use of a clock in a Python file, and in the programs that its strings hold.

    The rule goes by what is imported, whatever it is called there: of `time` a test takes `sleep` alone; the names of clocks stand nowhere; what
    soon() has told is handed on, never compared or subtracted. measures: what is no test may do that, and take `figure`.
    """
    if not MAY_HAVE_ONE.search(source):
        return
    tree = ast.parse(textwrap.dedent(source))
    nodes = list(ast.walk(tree))
    names = origins(nodes)
    fine = {node.value for node in nodes if isinstance(node, ast.Attribute)}
    fine |= {
        node.value.func for node in nodes if isinstance(node, ast.Attribute) and node.attr in COUNTS and isinstance(node.value, ast.Call)
    }
    methods = {
        target.id
        for node in nodes
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Attribute) and node.value.attr in ASKED
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in nodes:
        if is_clock(node, names, methods) or (node not in fine and tells(dotted(node, names))):
            yield node.lineno, ast.unparse(node)  # type: ignore[attr-defined]
        elif MAY_HAVE_ONE.search(text := text_of(node)) and "(" in text:
            yield from ((node.lineno, found) for found in in_text(text))  # type: ignore[attr-defined]
    if not measures and "soon" in source:
        yield from compared_moments(tree, names)


def origins(nodes: Iterable[ast.AST]) -> dict[str, str]:
    """Name -> what was imported by it."""
    found = {}
    for node in nodes:
        match node:
            case ast.Import(names=names):
                found |= {
                    name.asname or name.name.partition(".")[0]: name.name if name.asname else name.name.partition(".")[0] for name in names
                }
            case ast.ImportFrom(module=module, names=names):
                found |= {name.asname or name.name: f"{module}.{name.name}" for name in names}
    return found


def dotted(node: ast.AST, names: Mapping[str, str]) -> str:
    """The imported thing that it is; "" if it is none."""
    match node:
        case ast.Name(id=name):
            return names.get(name, "")
        case ast.Attribute(value=of, attr=attr):
            return f"{found}.{attr}" if (found := dotted(of, names)) else ""
    return ""


def tells(origin: str) -> bool:
    module, _, name = origin.partition(".")
    return origin in TELLS or (module in MAY_TAKE and not name.startswith(MAY_TAKE[module]))


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


def is_clock(node: ast.AST, names: Mapping[str, str], methods: Collection[str]) -> bool:
    match node:
        case ast.Import(names=imported):
            return any(name.name in CLOCKS for name in imported)
        case ast.ImportFrom(module=module, names=imported):
            return module in CLOCKS or any(name.name in {*CLOCKS, "time"} or tells(f"{module}.{name.name}") for name in imported)
        case ast.Name(id=name) | ast.Attribute(attr=name) if name in CLOCKS:
            return True
        case ast.Call(func=ast.Attribute(attr=name, value=of)) if name in ASKED:
            return dotted(of, names) != OURS
        case ast.Call(func=ast.Name(id=name)) if name in methods:
            return True
        case ast.Call(args=[ast.Constant(value="time"), ast.Constant(value=name)]):
            return name != "sleep"
    return False


MEASURES = ("tests/faults/", "tests/fuzz/", "tests/stages.py", "tests/firstminutes.py")
PLAIN = {"abs", "float", "int", "max", "min", "round", "sorted", "sum"}
"""What gives a moment back that it is given."""


def compared_moments(tree: ast.Module, names: Mapping[str, str]) -> Iterator[tuple[int, str]]:
    """Line and text of each comparison and subtraction of what soon() has told, also where it was kept meanwhile."""
    kept: set[str] = set()

    def is_moment(node: ast.AST) -> bool:
        match node:
            case ast.Call(func=function, args=args):
                return dotted(function, names) == f"{OURS}.soon" or (ast.unparse(function) in PLAIN and any(map(is_moment, args)))
            case ast.Lambda() | ast.List():  # a clock of which the test is the master
                return False
            case ast.Name() | ast.Attribute() if ast.unparse(node) in kept:
                return True
        return any(map(is_moment, ast.iter_child_nodes(node)))

    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    inner = {node for function in functions for node in ast.walk(function) if node is not function}
    found: set[tuple[int, str]] = set()
    for scope in (tree, *(function for function in functions if function not in inner)):
        nodes = list(ast.walk(scope))
        kept.clear()
        for node in sorted((n for n in nodes if isinstance(n, ast.Assign | ast.AnnAssign | ast.NamedExpr)), key=lambda node: node.lineno):
            # Names of functions are theirs alone; an attribute is the same in all of them.
            kinds = ast.Attribute if scope is tree and node in inner else ast.Name | ast.Attribute
            if node.value is not None and is_moment(node.value):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                targets = [part for target in targets for part in (target.elts if isinstance(target, ast.Tuple) else [target])]
                kept |= {ast.unparse(target) for target in targets if isinstance(target, kinds)}
        for node in nodes:
            match node:
                case ast.Compare(left=left, comparators=others) if any(map(is_moment, [left, *others])):
                    found.add((node.lineno, ast.unparse(node)))
                case ast.BinOp(left=left, op=ast.Sub(), right=right) if is_moment(left) or is_moment(right):
                    found.add((node.lineno, ast.unparse(node)))
    yield from sorted(found)


def test_no_test_and_no_program_that_it_starts_has_a_clock_of_its_own() -> None:
    sources = {file.relative_to(ROOT).as_posix(): file.read_text() for file in sorted((ROOT / "tests").rglob("*.py"))}
    found = [
        f"{name}:{line}: {clock}: take tests.kit.clock"
        for name, source in sources.items()
        if not name.startswith("tests/kit/") and name not in ALLOWED
        for line, clock in clocks(source, measures=name.startswith(MEASURES))
        if not (name.startswith(MEASURES) and re.search(r"\bfigure\b", clock))
    ]
    assert found == []
    assert len(ALLOWED) <= 5
    assert [name for name in ALLOWED if not any(clocks(sources[name]))] == []


SOON = "from tests.kit.clock import soon\n"


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
        "from os import times",
        "import os as o\nused = o.times",
        "resource.getrusage(0).ru_utime",
        "import resource\nused = resource.getrusage(resource.RUSAGE_SELF)",
        "from resource import getrusage",
        "import psutil\npsutil.Process().cpu_times()",
        "import psutil as p\nbegan = p.boot_time()",
        "process.cpu_times().user",
        "import timeit",
        "from timeit import timeit as took",
        "from datetime import datetime as clock\nclock.now() - began",
        "import datetime as clock\nclock.datetime.utcnow",
        "from datetime import datetime\nn = datetime.now\nn() - began",
        "from datetime import date\ndays = map(date.today, [])",
        "clock = handler\nclock.time() - began",
        "n = loop.time\nn() - began",
        "from tests.kit.clock import figure as f\nassert f(now()) - f(now()) < 1",
        "from tests.kit import clock as c\nf = c.figure",
        "from tests.kit.clock import *",
        SOON + "assert soon(0) < began",
        SOON + "took = soon(0) - began",
        SOON + "a = soon(0)\nwork()\nb = soon(0)\nassert b - a < 1",
        SOON + "def test():\n    a = soon(0)\n    work()\n    assert soon(0) < a + 1",
        SOON + "def test():\n    a, b = soon(0), soon(1)\n    took = float(b) - a",
        SOON + "def test():\n    a = soon(0)\n    def inner():\n        assert began() > a",
        SOON + "class A:\n    def began(self):\n        self.at = soon(0)\n    def ended(self):\n        return later - self.at",
        "from tests.kit.clock import soon as s\na = s(0)\nc = a\nassert b - c < 1",
        "from tests.kit import clock\nif (at := clock.soon(1)) > ended:\n    pass",
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
        "from tests.kit import clock\nclock.now() - began",
        "from tests.kit import clock as c\nc.now() - began",
        "from datetime import datetime, timezone\ndatetime(2026, 1, 1, tzinfo=timezone.utc)",
        "import resource\nresource.getrlimit(resource.RLIMIT_NOFILE)",
        "import resource\nresource.getrusage(resource.RUSAGE_SELF).ru_maxrss",
        "since = rig.now",
        "def soon(n):\n    ...\nassert soon(3) == 4",
        SOON + "deadline = soon(60)\nwait(deadline)\nassert not late",
        SOON + "def one():\n    at = soon(0)\n    wait(at)\ndef other(at):\n    assert at < 3",
        SOON + "clock = [soon(0)]\nassert ready_at > clock[0]",
        "get_original('time', 'sleep')(1)",
        "monkeypatch.setattr(hubs, 'perf_counter', lambda: 1.0)",
        SOON + "wait_open(soon(60))",
    ],
)
def test_what_is_no_clock_is_left_alone(source: str) -> None:
    assert not list(clocks(source))


# -- limits that are handed to a wait --------------------------------------------------------------------------------------
SUBPROCESS = {f"subprocess.{name}" for name in ("run", "call", "check_call", "check_output")}
MAY_BE_SHORT = re.compile(
    r"\b((wait|join|acquire|result|exception)\(|[tT]imeout\(|timeout(_s)?=|seconds=)(timeout(_s)?=|seconds=)?0*([1-4]|\.\d)|^[A-Z_]+ = [0-4]\b",
    re.MULTILINE,
)
IS_OVER = r"not {0}\.is_alive\b|(?<!not )(?<![\w.]){0}\.(is_set|done|dead|ready|successful|poll|exitcode|returncode)\b"


def short_limits(source: str) -> Iterator[tuple[int, str]]:
    """Line and text of each wait that has to succeed and has less than LEAST_S for it: a literal, or a constant of the module.

    No limit of that kind: one that is to pass, within `pytest.raises`, `suppress` or `try`, or of a wait that is asserted to fail; 0, which waits for nothing.
    """
    if not MAY_BE_SHORT.search(source):
        return
    tree = ast.parse(source)
    names = origins(ast.walk(tree))
    constants = {
        node.targets[0].id: node.value for node in tree.body if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }

    def is_short(node: ast.AST | None) -> bool:
        if isinstance(node, ast.Name):
            node = constants.get(node.id)
        return isinstance(node, ast.Constant) and isinstance(node.value, int | float) and 0 < node.value < LEAST_S

    def limit(call: ast.Call, place: int = 0, name: str = "timeout") -> ast.AST | None:
        named = next((word.value for word in call.keywords if word.arg in (name, f"{name}_s")), None)
        return named or (call.args[place] if len(call.args) > place else None)

    def must(node: ast.AST) -> Iterator[ast.AST]:
        """What has to be true for an assertion."""
        match node:
            case ast.BoolOp(op=ast.And(), values=parts):
                yield from (found for part in parts for found in must(part))
            case ast.Compare(left=left, ops=[ast.Is() | ast.Eq()], comparators=[ast.Constant(value=True)]):
                yield left
            case ast.Compare(left=left, ops=[ast.IsNot()], comparators=[ast.Constant(value=None)]):
                yield left
            case _:
                yield node

    def is_to_pass(items: Iterable[ast.withitem]) -> bool:
        return any(re.search(r"\b(raises|suppress)\(", ast.unparse(item.context_expr)) for item in items)

    def look(node: ast.AST, after: ast.AST | None = None) -> Iterator[ast.AST]:
        match node:
            case ast.Try() | ast.Lambda():
                return
            case ast.With(items=items) | ast.AsyncWith(items=items) if is_to_pass(items):
                return
            case ast.With(items=items):
                calls = [item.context_expr for item in items if isinstance(item.context_expr, ast.Call)]
                yield from (
                    call
                    for call in calls
                    if dotted(call.func, names) == "gevent.Timeout"
                    and len([*call.args, *call.keywords]) == 1
                    and is_short(limit(call, 0, "seconds"))
                )
            case ast.Assert(test=test):
                yield from (found for found in must(test) if is_wait(found, {"wait", "join", "acquire"}))
            case ast.Expr(value=ast.Call(func=ast.Attribute(value=of)) as call) if is_wait(call, {"wait", "join"}) and isinstance(
                after, ast.Assert
            ):
                if re.search(IS_OVER.format(re.escape(ast.unparse(of))), ast.unparse(after)):
                    yield call
            case ast.Call(func=ast.Attribute(attr="result" | "exception")) if is_short(limit(node)):
                yield node
            case ast.Call(func=ast.Attribute(attr="get" | "communicate")) if node.keywords and is_short(limit(node, len(node.args))):
                yield node
            case ast.Call(func=ast.Attribute(attr="timeout", value=of)) if dotted(of, names) == "pytest.mark" and is_short(limit(node)):
                yield node
            case ast.Call(func=function) if dotted(function, names) in SUBPROCESS and is_short(limit(node, len(node.args))):
                yield node
        for _, part in ast.iter_fields(node):
            if isinstance(part, list):
                for child, following in pairwise([*part, None]):
                    if isinstance(child, ast.AST):
                        yield from look(child, following)
            elif isinstance(part, ast.AST):
                yield from look(part)

    def is_wait(node: ast.AST, methods: Collection[str]) -> bool:
        return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in methods and is_short(limit(node))

    yield from ((node.lineno, ast.unparse(node)) for node in look(tree))  # type: ignore[attr-defined]


def test_what_has_to_come_has_room() -> None:
    found = [
        f"{file.relative_to(ROOT).as_posix()}:{line}: {wait}: a busy machine takes longer; {PATIENCE_S:.0f} s"
        for file in sorted((ROOT / "tests").rglob("*.py"))
        for line, wait in short_limits(file.read_text())
    ]
    assert found == []


@pytest.mark.parametrize(
    "source",
    [
        "assert event.wait(1)",
        "assert event.wait(timeout=4.9) is True",
        "assert ready and worker.join(2)",
        "SOON_S = 2\nassert lock.acquire(timeout=SOON_S)",
        "answer = future.result(1)",
        "assert future.exception(timeout=1) is None",
        "assert queue.get(timeout=1) == 3",
        "thread.join(1)\nassert not thread.is_alive()",
        "def test():\n    self.done.wait(0.5)\n    assert self.done.is_set()",
        "process.wait(3)\nassert process.returncode == 0",
        "import gevent\nwith gevent.Timeout(1):\n    call()",
        "from gevent import Timeout as T\nwith open(x), T(seconds=1):\n    call()",
        "import subprocess\nsubprocess.run(command, timeout=2)",
        "from subprocess import check_output as ask\nassert ask(command, timeout=2)",
        "out, _ = process.communicate(timeout=4)",
        "import pytest\n@pytest.mark.timeout(2)\ndef test():\n    pass",
        "import pytest\npytestmark = [pytest.mark.timeout(timeout=2)]",
    ],
)
def test_a_short_limit_of_what_has_to_come_is_found(source: str) -> None:
    assert len(list(short_limits(source))) == 1


@pytest.mark.parametrize(
    "source",
    [
        "assert not event.wait(0.1)",
        "assert event.wait(0.1) is False",
        "assert event.wait(60)",
        "assert future.result(0) == 1",
        "with pytest.raises(TimeoutError):\n    future.result(0.1)",
        "import gevent\nwith pytest.raises(gevent.Timeout), gevent.Timeout(0.1):\n    call()",
        "import gevent\nwith gevent.Timeout(0.1, False):\n    call()",
        "with contextlib.suppress(Full):\n    queue.get(timeout=0.1)",
        "while not over.wait(0.1):\n    look()",
        "worker.join(0.1)\nassert worker.is_alive() and 60 > 5",
        "rig.join(1)\nassert rig.state == 3",
        "committed.get(1, 0)",
    ],
)
def test_a_limit_that_is_to_pass_or_has_room_is_left_alone(source: str) -> None:
    assert not list(short_limits(source))


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
