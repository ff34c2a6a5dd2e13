"""Every promise of the reference is shown by tests that exist, or waits for something that does not."""

from __future__ import annotations

import ast
import importlib
import re
from functools import cache
from pathlib import Path

from tests.promises.promises import NOT_LIVE, PROMISES, REAL, Promise

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


def test_every_promise_is_shown_but_two_that_are_broken_on_purpose() -> None:
    assert {number for number, promise in PROMISES if not promise.tests} == {128, 202}


def live(promise: Promise) -> list[str]:
    """Its tests on a real broker."""
    return [test for test in promise.tests if "live" in test.partition("::")[0].split("/")]


def test_what_wants_a_real_broker_is_shown_on_one_or_says_why_it_is_not() -> None:
    promises = dict(PROMISES)
    lacking = {number for number in REAL if promises[number].tests and not live(promises[number])}
    reasons = [number for numbers in NOT_LIVE.values() for number in numbers]
    assert len(reasons) == len(set(reasons))
    assert lacking == set(reasons), "each with its reason, and no reason where there is a test"
    assert max(reasons) < 221, "kafka-python's are all shown on a real broker"


@cache
def docstrings(file: str) -> dict[str, str]:
    tree = ast.parse((TESTS / file).read_text(encoding="utf-8"))
    return {node.name: ast.get_docstring(node) or "" for node in tree.body if isinstance(node, ast.FunctionDef)}


def cited(text: str) -> set[int]:
    """The numbers of "Behaviours 1, 3 to 5: ..."."""
    found: set[int] = set()
    for numbers in re.findall(r"[Bb]ehaviours? ((?:\d+(?: to |-|, | and )?)+)", text):
        for first, last in re.findall(r"(\d+)(?:(?: to |-)(\d+))?", numbers):
            found.update(range(int(first), int(last or first) + 1))
    return found


def test_a_real_brokers_test_of_kafka_pythons_names_cites_its_number() -> None:
    silent = [
        f"{number}: {test}"
        for number, promise in PROMISES
        if number in REAL and number >= 221
        for test in live(promise)
        if number not in cited(docstrings(test.partition("::")[0])[test.partition("::")[2]])
    ]
    assert silent == []


def test_the_check_for_citations_can_tell() -> None:
    assert cited("Behaviours 1, 3 to 5, 7-8 and 12: of 99 things. Behaviour 20.") == {1, 3, 4, 5, 7, 8, 12, 20}
