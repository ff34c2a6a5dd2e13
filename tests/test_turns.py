"""Which tests are there with both handlers; the longest tests on real Kafka begin first, and those that share brokers share a process."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.live.kafka import VERSIONS
from tests.turns import ALSO_WITH_GREENLETS, HANDLERS, LONGEST, OLD_RELEASES, TOGETHER, by_turn, scheduler, together, told_apart

ROOT = Path(__file__).resolve().parent.parent


def item(nodeid: str) -> pytest.Item:
    return cast(pytest.Item, SimpleNamespace(nodeid=nodeid))


def test_each_file_that_is_named_exists() -> None:
    files = {*TOGETHER, *LONGEST} - {*TOGETHER.values(), *OLD_RELEASES}
    assert [file for file in files if not (ROOT / file).is_file()] == []
    assert set(TOGETHER.values()) <= set(LONGEST), "what is played together is long"
    assert not set(TOGETHER) & set(LONGEST), "its turn is that of the others"


def test_the_longest_come_first_and_each_file_keeps_its_order() -> None:
    first, shared = LONGEST[0], next(iter(TOGETHER))
    given = ["tests/x.py::test_b", f"{shared}::test_d", "tests/x.py::test_a", f"{first}::test_e", f"{first}::test_c[1::2]"]
    names = [each.nodeid for each in by_turn([item(nodeid) for nodeid in given])]
    assert names == [given[3], given[4], given[1], given[0], given[2]]


class Collected(SimpleNamespace):
    """A test that notes how it is marked."""

    def add_marker(self, name: str) -> None:
        self.marked = name


def marked(*tests: Collected) -> list[str]:
    told_apart(cast("list[pytest.Item]", tests))
    assert {test.marked for test in tests if hasattr(test, "marked")} <= {ALSO_WITH_GREENLETS}
    return [test.nodeid for test in tests if hasattr(test, "marked")]


def one(nodeid: str, **params: Any) -> Collected:
    return Collected(nodeid=nodeid, callspec=SimpleNamespace(params=params))


def test_of_a_test_for_both_handlers_that_with_threads_is_marked() -> None:
    both = [one(f"tests/x.py::test_{test}[{handler}-1]", run=handler, others=(1, [2])) for test in range(3) for handler in HANDLERS]
    assert marked(*both, Collected(nodeid="tests/x.py::test_free")) == [test.nodeid for test in both[::2]]


def test_a_test_without_the_other_handler_is_not_marked() -> None:
    assert not marked(
        *(one(f"tests/x.py::test_{number}[threading]", handler="threading") for number in range(20)),
        *(one(f"tests/x.py::test_worker[{worker}]", worker=worker) for worker in ("gevent", "gthread")),
        *(one(f"tests/x.py::test_mixed[{a}-{b}]", a=a, b=b) for a in HANDLERS for b in HANDLERS),
    )


def test_a_handlers_name_in_a_tests_own_name_is_not_its_handler() -> None:
    both = [one(f"tests/gevent/x.py::test_gevent_and_threading[{handler}]", handler=handler) for handler in HANDLERS]
    assert marked(*both) == [both[0].nodeid]


def test_those_of_the_same_brokers_are_handed_out_together() -> None:
    first, second = [file for file, brokers in TOGETHER.items() if brokers == "sasl"][:2]
    assert together(f"{first}::test_a") == together(f"{second}::test_b[1]") == "sasl"
    assert together("tests/x.py::test_a") == "tests/x.py"


def test_whatever_is_played_on_an_old_release_is_handed_out_together() -> None:
    assert {*OLD_RELEASES, "4.2.0"} == set(VERSIONS)
    nodes = [f"tests/live/test_x.py::test_{name}" for name in ("a[gevent-2.8.2]", "b[2.8.2-gevent-0.85]", "c[2.8.2]")]
    assert {together(node) for node in nodes} == {"2.8.2"}
    alone = ("tests/live/test_x.py::test_a[4.2.0]", "tests/live/test_x.py::test_2.8.2", "tests/live/test_x.py::test_b[12.8.2]")
    assert {together(node) for node in alone} == {"tests/live/test_x.py"}
    assert together("tests/x.py::test_a[2.8.2]") == "tests/x.py"


def test_the_scheduler_is_loadfiles_and_no_others() -> None:
    pytest.importorskip("xdist")
    config: Any = SimpleNamespace(getvalue={"dist": "loadfile", "tx": ["popen"]}.get)
    made = scheduler(config, SimpleNamespace(loadscopesched=print, loadfilesched=print))
    assert made._split_scope("tests/x.py::test_a[b::c]") == "tests/x.py"
    assert {made._split_scope(f"{file}::test_a") for file in TOGETHER} == set(TOGETHER.values())
    other: Any = SimpleNamespace(getvalue={"dist": "load"}.get)
    assert scheduler(other, None) is None
