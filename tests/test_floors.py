"""The house holds: every module imports its own floor or a lower one, core is pure, and only handlers make concurrency."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "gkafka"

FLOORS: list[tuple[int, tuple[str, ...]]] = [
    (
        0,
        (
            "brokererrors",
            "checks",
            "common",
            "config",
            "errortexts",
            "escaping",
            "exceptions",
            "hosts",
            "jaas",
            "javanames",
            "logs",
            "oauthoptions",
            "oneprocess",
            "othernames",
            "pages",
            "properties",
            "sasloptions",
            "guarding",
            "undoing",
            "unseen",
        ),
    ),
    (1, ("wire", "records")),
    (2, ("core",)),
    (3, ("handlers",)),
    (4, ("net",)),
    (
        5,
        (
            "admin",
            "balancedconsumer",
            "balancing",
            "broker",
            "brokercalls",
            "callbacks",
            "client",
            "clientproperties",
            "cluster",
            "columnreader",
            "connection",
            "failures",
            "inflight",
            "marks",
            "flushing",
            "forkrenewal",
            "intake",
            "interceptors",
            "lifetime",
            "consumer",
            "managedbalancedconsumer",
            "grouptopics",
            "membership",
            "memberrequests",
            "membershipprotocol",
            "consumerqueues",
            "deliveryreports",
            "deserializing",
            "explaining",
            "fetchdriver",
            "groupoffsets",
            "progress",
            "sharing",
            "skins",
            "subscribing",
            "nativeconsumer",
            "assignment",
            "atwork",
            "queuereader",
            "taking",
            "nativeproducer",
            "batchresults",
            "ownedbroker",
            "ownedpartition",
            "partition",
            "partitioners",
            "partitioning",
            "producer",
            "producerdriver",
            "producerids",
            "probing",
            "producermemory",
            "producernotes",
            "producerpace",
            "engineworker",
            "produceroptions",
            "protocol",
            "rawfetch",
            "columnproducing",
            "sealing",
            "simpleconsumer",
            "slowpath",
            "starter",
            "strangers",
            "topic",
            "topicdict",
            "transactions",
            "utils",
            "zookeeper",
        ),
    ),
    (6, ("cli", "kafka", "spark", "testing")),
]
FLOOR = {name: floor for floor, names in FLOORS for name in names}
# Guests use floors 5 and 0. Spark and testing also read the wire and the records, as the house says.
GUESTS_MAY_USE = {0, 1, 5}

# All that core may import: what is not listed (datetime, importlib, os ...) would bring a clock, chance or the world in.
PURE = {
    "abc",
    "__future__",
    "logging",
    "enum",
    "collections",
    "collections.abc",
    "heapq",
    "itertools",
    "dataclasses",
    "typing",
    "uuid",
    "re",
    "struct",
    "base64",
    "binascii",
    "hashlib",
    "hmac",
    "json",
}
CONCURRENT = {
    *("threading", "queue", "gevent", "greenlet", "socket", "selectors", "select", "concurrent", "_thread", "asyncio"),
    *("multiprocessing", "subprocess", "ssl"),
}
IO_ROOM = {"net": {"ssl"}}  # TLS over memory BIOs: no socket in it
# kafka-python's MultiProcessConsumer is documented to have processes: the one file that makes some.
PROCESSES = "kafka/legacy/multiprocess.py"
# Whether somebody still reads a pipe is only told by poll(): no wait, and no concurrency.
PIPES = "cli/pipes.py"
FORBIDDEN_CALLS = {("time", "sleep"), ("os", "fork"), ("os", "forkpty")}
PUBLIC = {
    "ManagedBalancedConsumer",
    "BalancedConsumer",
    "RangeProtocol",
    "RoundRobinProtocol",
    "Broker",
    "Cluster",
    "KafkaClient",
    "Partition",
    "Producer",
    "ProducerInterceptor",
    "SimpleConsumer",
    "SslConfig",
    "Topic",
}
# The broker for tests runs beside the client under test and must not depend on the handler that is tested.
OWN_CONCURRENCY = {"testing"}


def modules() -> list[Path]:
    return sorted(p for p in PACKAGE.rglob("*.py") if "__pycache__" not in p.parts)


def room(path: Path) -> str:
    """The first name below the package: "wire", "client"; "" for gkafka/__init__.py itself."""
    relative = path.relative_to(PACKAGE)
    return relative.parts[0].removesuffix(".py") if relative.parts[0] != "__init__.py" else ""


@cache
def parsed(source: str) -> ast.Module:
    return ast.parse(source)


LOOKED_AT = (ast.Import, ast.ImportFrom, ast.Call, ast.If, ast.Name, ast.Attribute, ast.Compare)


@cache
def nodes(source: str) -> list[ast.AST]:
    """Of the kinds that anything here looks at."""
    return [node for node in ast.walk(parsed(source)) if isinstance(node, LOOKED_AT)]


@cache
def imports(source: str) -> list[tuple[str, set[str], bool]]:
    """(module, names, whether it is imported at run time) of every import statement, those inside functions included.

    importlib.import_module("x") and __import__("x") are import statements too.
    """
    typing_only: set[ast.AST] = set()
    for node in nodes(source):
        if isinstance(node, ast.If) and any(isinstance(n, ast.Name) and n.id == "TYPE_CHECKING" for n in ast.walk(node.test)):
            typing_only.update(n for child in node.body for n in ast.walk(child))
    found: list[tuple[str, set[str], bool]] = []
    for node in nodes(source):
        if isinstance(node, ast.Import):
            found += [(alias.name, set(), node not in typing_only) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found.append(("." * node.level + (node.module or ""), {a.name for a in node.names}, node not in typing_only))
        elif isinstance(node, ast.Call) and called(node) in ("import_module", "__import__"):
            arguments = [*node.args, *(k.value for k in node.keywords)]
            found += [(a.value, set(), True) for a in arguments[:1] if isinstance(a, ast.Constant) and isinstance(a.value, str)]
    return found


def called(node: ast.Call) -> str:
    """The last name of what is called."""
    return node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id if isinstance(node.func, ast.Name) else ""


def own(module: str, names: set[str]) -> set[str]:
    """The rooms of this package that an import statement reaches."""
    if module == "gkafka":
        return {"client" if n in PUBLIC else n for n in names if n in FLOOR or n in PUBLIC}
    return {module.split(".")[1]} if module.startswith("gkafka.") else set()


# -- the checks: of (room, source), each gives its objections ----------------------------------------------------------------
def floor_faults(here: str, source: str) -> list[str]:
    """Imports of a higher floor, or of a room that a guest may not use."""
    faults = []
    for module, names, runs in imports(source):
        if module.startswith("."):
            faults.append(f"relative import of {module}")
        if not here:
            if runs and module.startswith("gkafka."):
                faults.append("import gkafka must load nothing")
            continue
        for other in own(module, names) - {here}:
            if other not in FLOOR:
                faults.append(f"{module} stands on no floor")
            elif FLOOR[here] == 6:
                faults += [f"guest {here} imports {module}"] if FLOOR[other] not in GUESTS_MAY_USE else []
            elif FLOOR[other] > FLOOR[here]:
                faults.append(f"floor {FLOOR[here]} imports {module} of floor {FLOOR[other]}")
    return faults


def core_faults(source: str) -> list[str]:
    """Imports of core that are not on its list. The class Random may be named as a type: floor 5 hands in the object."""
    faults = []
    for module, names, runs in imports(source):
        if (module, names, runs) == ("random", {"Random"}, False):
            continue
        if module.split(".")[0] == "gkafka":
            faults += [f"core imports {module}" for other in own(module, names) if FLOOR.get(other, 9) > 2]
        elif module not in PURE:
            faults.append(f"core imports {module}")
    faults += [f"line {n.lineno}: core calls __import__" for n in nodes(source) if isinstance(n, ast.Name) and n.id == "__import__"]
    return faults


def concurrency_faults(here: str, source: str, *, allowed: frozenset[str] = frozenset()) -> list[str]:
    """What only handlers may do: make threads, locks, sockets or processes, and sleep, under whatever name it was imported."""
    faults = []
    for module, names, _ in imports(source):
        head = module.split(".")[0]
        if head in CONCURRENT - IO_ROOM.get(here, set()) - allowed:
            faults.append(f"{module}: concurrency comes from the handler")
        faults += [f"from {module} import {name}" for name in names if (module, name) in FORBIDDEN_CALLS]
    alias = {a.asname or a.name: a.name for node in nodes(source) if isinstance(node, ast.Import) for a in node.names}
    for node in nodes(source):
        if not isinstance(node, ast.Attribute) or not isinstance(node.value, ast.Name):
            continue
        if (alias.get(node.value.id, node.value.id), node.attr) in FORBIDDEN_CALLS:
            faults.append(f"line {node.lineno}: {node.value.id}.{node.attr}")
    calls = [node for node in nodes(source) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)]
    faults += [
        f"line {call.lineno}: a signal may leave a Lock of greenlets taken, a Mutex never"
        for call in calls
        if words_of(call.func)[-1:] == ["Lock"]
    ]
    return faults


def version_faults(source: str) -> list[str]:
    """Questions after an API version: api_version compared with anything, or a version by order with a number of 1 or more."""
    faults = []
    for node in nodes(source):
        if not isinstance(node, ast.Compare) or all(isinstance(op, (ast.Is, ast.IsNot)) for op in node.ops):
            continue
        words = {word for side in (node.left, *node.comparators) for n in ast.walk(side) for word in words_of(n)}
        ordered = any(isinstance(op, (ast.Lt, ast.LtE, ast.Gt, ast.GtE)) for op in node.ops)
        literal = any(isinstance(s, ast.Constant) and type(s.value) is int and s.value >= 1 for s in (node.left, *node.comparators))
        if any("api_version" in w for w in words) or ("version" in words and ordered and literal):
            faults.append(f"line {node.lineno}: {ast.unparse(node)}")
    return faults


def words_of(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Constant):
        return [node.value] if isinstance(node.value, str) else []
    return [node.id] if isinstance(node, ast.Name) else [node.attr] if isinstance(node, ast.Attribute) else []


def compiled_faults(source: str) -> list[str]:
    """Imports in Cython's sources, which ast does not read: forbidden modules, and rooms above the records' floor."""
    faults = []
    for line in source.splitlines():
        match = re.match(r"\s*(?:from\s+([\w.]+)\s+c?import\s+(.+)|c?import\s+(.+))", line)
        if match is None:
            continue
        named = [m.split()[0] for m in match[3].split(",")] if match[3] else [match[1]]
        names = set(re.findall(r"\w+", match[2] or ""))
        for module in named:
            above = [r for r in own(module, names) if FLOOR.get(r, 9) > FLOOR["records"]]
            sleeps = [n for n in names if (module, n) in FORBIDDEN_CALLS]
            if module.split(".")[0] in CONCURRENT | {"time", "os"} or above or sleeps:
                faults.append(line.strip())
    return faults


# -- what they say of this package -------------------------------------------------------------------------------------------
def faults_of(check: Callable[[str, str, Path], list[str]], having: Callable[[str], bool] = lambda _: True) -> dict[str, list[str]]:
    """Module -> what check(room, source, path) objects to, of the rooms that are asked for."""
    found = {str(p.relative_to(PACKAGE)): check(room(p), p.read_text(), p) for p in modules() if having(room(p))}
    return {module: faults for module, faults in found.items() if faults}


def test_a_module_imports_its_own_floor_or_a_lower_one() -> None:
    assert {room(path) for path in modules()} - {"", *FLOOR} == set(), "on no floor: add them to FLOORS and to DESIGN.md"
    assert faults_of(lambda here, source, _: floor_faults(here, source)) == {}


def test_core_knows_no_clock_socket_thread_or_chance() -> None:
    assert faults_of(lambda _, source, __: core_faults(source), lambda here: here == "core") == {}


def test_only_handlers_make_threads_greenlets_locks_or_sockets() -> None:
    exceptions = {PROCESSES: "multiprocessing", PIPES: "select"}

    def check(here: str, source: str, path: Path) -> list[str]:
        return concurrency_faults(here, source, allowed=frozenset({exceptions.get(path.relative_to(PACKAGE).as_posix(), "")}))

    assert faults_of(check, lambda here: here not in {"handlers", *OWN_CONCURRENCY}) == {}


def test_no_file_asks_for_an_api_version_outside_the_wire() -> None:
    # kafka-python has an option of that name, which says what broker_version says.
    assert faults_of(lambda _, source, __: version_faults(source), lambda here: here not in {"wire", "testing", "kafka"}) == {}


@pytest.mark.parametrize("path", sorted((PACKAGE / "records").glob("*.p[yx][xi]")), ids=lambda p: p.name)
def test_the_compiled_records_stand_on_the_same_floor(path: Path) -> None:
    assert compiled_faults(path.read_text()) == []


def test_the_public_names_are_known_to_the_floors() -> None:
    import gkafka

    assert set(gkafka.__all__) == PUBLIC


# -- the checks object to what they are there for ----------------------------------------------------------------------------
@pytest.mark.parametrize(
    "source",
    [
        "import datetime",
        "import importlib",
        "import time as t",
        "import os",
        "import random",
        "from random import random",
        "from random import Random",
        "if TYPE_CHECKING:\n    import random",
        "from gkafka import KafkaClient",
        "from gkafka.net import stream",
        "from gkafka import handlers",
        "__import__('time')",
        "def f():\n    import secrets",
    ],
)
def test_core_may_not(source: str) -> None:
    assert core_faults(source)


@pytest.mark.parametrize(
    "source",
    [
        "import threading as th",
        "import importlib\nimportlib.import_module('threading')",
        "from importlib import import_module\nimport_module(name='socket')",
        "__import__('gevent.lock')",
        "import time as _t\n_t.sleep(1)",
        "import time\ntime.sleep(1)",
        "from time import sleep",
        "from time import sleep as s",
        "import ssl",
        "import subprocess",
        "import os\nos.fork()",
        "import os as o\no.fork()",
        "from os import fork",
        "self._lock = handler.Lock()",
    ],
)
def test_no_room_but_handlers_may(source: str) -> None:
    assert concurrency_faults("client", source)


def test_the_exception_for_processes_is_no_other() -> None:
    assert (PACKAGE / PROCESSES).is_file()
    assert concurrency_faults("kafka", "from multiprocessing import connection", allowed=frozenset({"multiprocessing"})) == []
    assert concurrency_faults("kafka", "import threading", allowed=frozenset({"multiprocessing"}))
    assert concurrency_faults("kafka", "import multiprocessing")


def test_tls_is_for_net_alone() -> None:
    assert concurrency_faults("net", "import ssl") == []
    assert concurrency_faults("net", "import socket")


@pytest.mark.parametrize(
    ("here", "source"),
    [
        ("wire", "from gkafka import KafkaClient"),
        ("net", "from gkafka import Topic as T"),
        ("handlers", "from gkafka.net import stream"),
        ("core", "def f():\n    from gkafka.client import KafkaClient"),
        ("wire", "import importlib\nimportlib.import_module('gkafka.client')"),
        ("spark", "from gkafka.core import sender"),
        ("client", "from . import cluster"),
        ("", "import gkafka.client"),
        ("client", "import gkafka.nowhere"),
    ],
)
def test_a_higher_floor_is_seen(here: str, source: str) -> None:
    assert floor_faults(here, source)


@pytest.mark.parametrize(
    "source",
    [
        "api_version >= 3",
        "api_version>=3",
        "3 <= self.api_version",
        "request.api_version  <  LIMIT",
        "getattr(request, 'api_version') == 4",
        "api_version in (3, 4)",
        "version > 2",
        "7 <= found.version",
        "1 <= version < 9",
    ],
)
def test_a_question_after_a_version_is_seen(source: str) -> None:
    assert version_faults(source)


@pytest.mark.parametrize("source", ["metadata.version > 0", "metadata.version > version", "api_version is None", "versions.pick(api) == 3"])
def test_what_is_no_question_after_an_api_version_passes(source: str) -> None:
    assert version_faults(source) == []


@pytest.mark.parametrize(
    "source",
    [
        "import time",
        "cimport gkafka.core",
        "from threading import Lock",
        "    import os, socket",
        "from gkafka.core cimport x",
        "from gkafka import KafkaClient",
    ],
)
def test_an_import_of_the_compiled_records_is_seen(source: str) -> None:
    assert compiled_faults(f"cdef int a\n{source}\n")


def test_every_room_of_the_floors_exists() -> None:
    rooms = {room(p) for p in modules()} - {""}
    assert rooms == set(FLOOR)
