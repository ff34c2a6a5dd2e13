"""Every promise of the reference is shown by tests that exist, or waits for something that does not."""

from __future__ import annotations

import ast
import importlib
from functools import cache
from pathlib import Path

import pytest

from tests.promises.promises import PROMISES

TESTS = Path(__file__).resolve().parent.parent
HOW_MANY = 349


@cache
def functions(file: str) -> frozenset[str]:
    """Names of a file's tests."""
    tree = ast.parse((TESTS / file).read_text(encoding="utf-8"))
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)))


def exists(name: str) -> bool:
    """Whether a module, or something in one, can be imported."""
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as exc:
        if not name.startswith(exc.name or "?"):
            raise  # it is there, and lacks something that it needs
    else:
        return True
    module, _, attribute = name.rpartition(".")
    return "." in module and exists(module) and hasattr(importlib.import_module(module), attribute)


def test_each_number_stands_once() -> None:
    assert sorted(number for number, _ in PROMISES) == list(range(1, HOW_MANY + 1))


def test_each_promise_has_a_claim_and_either_tests_or_a_reason() -> None:
    for number, promise in PROMISES:
        assert promise.claim, number
        assert bool(promise.tests) != bool(promise.missing and promise.reason), number


def test_each_test_that_is_named_exists() -> None:
    lost = [
        f"{number}: {test}"
        for number, promise in PROMISES
        for test in promise.tests
        if not (TESTS / test.partition("::")[0]).is_file() or test.partition("::")[2] not in functions(test.partition("::")[0])
    ]
    assert lost == []


def test_what_a_waiver_waits_for_is_really_missing() -> None:
    there = {number: promise.missing for number, promise in PROMISES if promise.missing not in ("", "-") and exists(promise.missing)}
    assert there == {}, "is there now: name the tests of these promises"


def test_the_check_for_what_exists_can_tell() -> None:
    assert exists("gkafka.broker")
    assert exists("gkafka.broker.Broker")
    assert not exists("gkafka.broker.NoSuchClass")
    assert not exists("gkafka.no_such_module.Broker")


def test_how_many_promises_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    shown = sum(bool(promise.tests) for _, promise in PROMISES)
    with capsys.disabled():
        print(f"\n{shown} of {len(PROMISES)} documented behaviours are shown by tests, {len(PROMISES) - shown} are waived")
    assert shown >= 174
