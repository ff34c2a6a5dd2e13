"""The house holds: every module imports its own floor or a lower one, core is pure, and only handlers make concurrency."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "gkafka"

FLOORS: list[tuple[int, tuple[str, ...]]] = [
    (0, ("brokererrors", "exceptions", "checks", "common", "config", "hosts")),
    (1, ("wire", "records")),
    (2, ("core",)),
    (3, ("handlers",)),
    (4, ("net",)),
    (
        5,
        (
            "broker",
            "brokercalls",
            "client",
            "cluster",
            "connection",
            "nativeconsumer",
            "nativeproducer",
            "partition",
            "partitioners",
            "producer",
            "producerdriver",
            "rawfetch",
            "simpleconsumer",
            "topic",
        ),
    ),
    (6, ("spark", "testing")),
]
FLOOR = {name: floor for floor, names in FLOORS for name in names}
# Guests use floors 5 and 0. Spark and testing also read the wire and the records, as the house says.
GUESTS_MAY_USE = {0, 1, 5}

IMPURE = {"time", "socket", "threading", "random", "gevent", "select", "selectors", "ssl", "queue", "asyncio", "os", "concurrent"}
CONCURRENT = {"threading", "queue", "gevent", "socket", "selectors", "select", "concurrent", "_thread", "asyncio", "multiprocessing"}
# The broker for tests runs beside the client under test and must not depend on the handler that is tested.
OWN_CONCURRENCY = {"testing"}
# Types only, or a class that is instantiated by floor 2 with a Random that floor 5 hands in.
PURE_TYPES = {"random": {"Random"}}


def modules() -> list[Path]:
    return sorted(p for p in PACKAGE.rglob("*.py") if "__pycache__" not in p.parts)


def room(path: Path) -> str:
    """The first name below the package: "wire", "client"; "" for gkafka/__init__.py itself."""
    relative = path.relative_to(PACKAGE)
    return relative.parts[0].removesuffix(".py") if relative.parts[0] != "__init__.py" else ""


def imports(path: Path) -> list[tuple[str, set[str], bool]]:
    """(module, names, whether it is imported at run time) of every import statement, those inside functions included."""
    tree = ast.parse(path.read_text())
    typing_only: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            typing_only.update(n for child in node.body for n in ast.walk(child))
    found: list[tuple[str, set[str], bool]] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [(alias.name, set(), node not in typing_only) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found.append(("." * node.level + (node.module or ""), {a.name for a in node.names}, node not in typing_only))
    return found


def own(module: str, names: set[str]) -> set[str]:
    """The rooms of this package that an import statement reaches."""
    if module == "gkafka":
        return {n for n in names if n in FLOOR}
    return {module.split(".")[1]} if module.startswith("gkafka.") else set()


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_a_module_imports_its_own_floor_or_a_lower_one(path: Path) -> None:
    here = room(path)
    if not here:
        assert not [m for m, _, runs in imports(path) if runs and m.startswith("gkafka.")], "import gkafka must load nothing"
        return
    assert here in FLOOR, f"gkafka/{here} stands on no floor: add it to FLOORS and to DESIGN.md"
    for module, names, _ in imports(path):
        assert not module.startswith("."), f"relative import of {module}"
        for other in own(module, names):
            assert other in FLOOR, f"{module} stands on no floor"
            if other == here:
                continue
            if FLOOR[here] == 6:
                assert FLOOR[other] in GUESTS_MAY_USE, f"guest {here} imports {module}"
            else:
                assert FLOOR[other] <= FLOOR[here], f"floor {FLOOR[here]} imports {module} of floor {FLOOR[other]}"


@pytest.mark.parametrize("path", [p for p in modules() if room(p) == "core"], ids=lambda p: p.stem)
def test_core_knows_no_clock_socket_thread_or_chance(path: Path) -> None:
    for module, names, _ in imports(path):
        head = module.split(".")[0]
        if head in PURE_TYPES:
            assert names <= PURE_TYPES[head], f"{module}: only {PURE_TYPES[head]} as a type"
        else:
            assert head not in IMPURE, f"core imports {module}"


@pytest.mark.parametrize(
    "path", [p for p in modules() if room(p) not in {"handlers", *OWN_CONCURRENCY}], ids=lambda p: str(p.relative_to(PACKAGE))
)
def test_only_handlers_make_threads_greenlets_locks_or_sockets(path: Path) -> None:
    for module, names, _ in imports(path):
        assert module.split(".")[0] not in CONCURRENT, f"{module}: concurrency comes from the handler"
        assert not (module == "time" and "sleep" in names), "sleeping is the handler's"
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute) and node.attr == "sleep" and isinstance(node.value, ast.Name):
            assert node.value.id != "time", f"line {node.lineno}: time.sleep"


def test_no_file_asks_for_an_api_version_outside_the_wire() -> None:
    asked = [str(p.relative_to(PACKAGE)) for p in modules() if room(p) not in {"wire", "testing"} and "api_version >=" in p.read_text()]
    assert asked == []


def test_every_room_of_the_floors_exists() -> None:
    rooms = {room(p) for p in modules()} - {""}
    assert rooms == set(FLOOR)
