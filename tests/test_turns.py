"""The longest tests on real Kafka begin first, and those that share brokers share a process."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.turns import LONGEST, TOGETHER, by_turn, in_turn, scheduler, together

ROOT = Path(__file__).resolve().parent.parent


def item(nodeid: str) -> pytest.Item:
    return cast(pytest.Item, SimpleNamespace(nodeid=nodeid))


def test_each_file_that_is_named_exists() -> None:
    files = {*TOGETHER, *LONGEST} - set(TOGETHER.values())
    assert [file for file in files if not (ROOT / file).is_file()] == []
    assert set(TOGETHER.values()) <= set(LONGEST), "what is played together is long"
    assert not set(TOGETHER) & set(LONGEST), "its turn is that of the others"


def test_the_longest_come_first_and_each_file_keeps_its_order() -> None:
    first, shared = LONGEST[0], next(iter(TOGETHER))
    given = ["tests/x.py::test_b", f"{shared}::test_d", "tests/x.py::test_a", f"{first}::test_e", f"{first}::test_c[1::2]"]
    names = [each.nodeid for each in by_turn([item(nodeid) for nodeid in given])]
    assert names == [given[3], given[4], given[1], given[0], given[2]]


def test_in_turn_each_test_has_one_of_its_handlers_and_then_the_other_one() -> None:
    def with_handler(test: int, handler: str, *others: Any) -> pytest.Item:
        made: Any = item(f"tests/x.py::test_{test}[{handler}]")
        made.callspec = SimpleNamespace(params={"run": handler, "others": others})
        return cast("pytest.Item", made)

    free = item("tests/x.py::test_free")
    given = [with_handler(test, handler, 1, [2]) for test in range(100) for handler in ("threading", "gevent")]
    first, second = (in_turn([*given, free], turn) for turn in ("first", "second"))
    assert first[0][-1] is second[0][-1] is free
    assert first[1] == second[0][:-1]
    assert second[1] == first[0][:-1]
    assert [kept.nodeid.split("[")[0] for kept in first[0][:-1]] == [kept.nodeid.split("[")[0] for kept in given[::2]]
    assert 30 < sum("gevent" in kept.nodeid for kept in first[0]) < 70
    assert in_turn(given, None) == (given, [])
    with pytest.raises(pytest.UsageError, match="GKAFKA_IN_TURN='third': must be first or second"):
        in_turn(given, "third")


def test_in_turn_a_test_without_the_other_handler_is_left_out_never() -> None:
    def alone(nodeid: str, **params: Any) -> pytest.Item:
        made: Any = item(nodeid)
        made.callspec = SimpleNamespace(params=params)
        return cast("pytest.Item", made)

    given = [
        *(alone(f"tests/x.py::test_{number}[threading]", handler="threading") for number in range(20)),
        *(alone(f"tests/x.py::test_worker[{worker}-{number}]", worker=worker) for worker in ("gevent", "gthread") for number in range(20)),
        *(alone(f"tests/x.py::test_mixed[{a}-{b}]", a=a, b=b) for a in ("threading", "gevent") for b in ("threading", "gevent")),
    ]
    for turn in ("first", "second"):
        assert in_turn(given, turn) == (given, [])


def test_in_turn_a_name_of_a_handler_in_a_tests_own_name_is_not_its_handler() -> None:
    def with_handler(handler: str) -> pytest.Item:
        made: Any = item(f"tests/gevent/x.py::test_gevent_and_threading[{handler}]")
        made.callspec = SimpleNamespace(params={"handler": handler})
        return cast("pytest.Item", made)

    given = [with_handler("threading"), with_handler("gevent")]
    first, second = in_turn(given, "first"), in_turn(given, "second")
    assert sorted(map(len, first)) == [1, 1]
    assert first == second[::-1]


def test_those_of_the_same_brokers_are_handed_out_together() -> None:
    first, second = [file for file, brokers in TOGETHER.items() if brokers == "releases"][:2]
    assert together(first) == together(second) == "releases"
    assert together("tests/x.py") == "tests/x.py"


def test_the_scheduler_is_loadfiles_and_no_others() -> None:
    pytest.importorskip("xdist")
    config: Any = SimpleNamespace(getvalue={"dist": "loadfile", "tx": ["popen"]}.get)
    made = scheduler(config, SimpleNamespace(loadscopesched=print, loadfilesched=print))
    assert made._split_scope("tests/x.py::test_a[b::c]") == "tests/x.py"
    assert {made._split_scope(f"{file}::test_a") for file in TOGETHER} == set(TOGETHER.values())
    other: Any = SimpleNamespace(getvalue={"dist": "load"}.get)
    assert scheduler(other, None) is None
