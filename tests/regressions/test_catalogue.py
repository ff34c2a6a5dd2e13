"""The bugs that bit other clients: each has a test here, by its number."""

from __future__ import annotations

import ast
import pathlib
import re

HERE = pathlib.Path(__file__).parent
SASL = HERE.parent / "public" / "test_sasl.py"

CATALOGUE = set(range(1, 69))
"""B01 to B20 are of producers: loss, order, duplicates; B21 to B24, B27 and B47 to B56 of groups; the others up to B46, B52 and B59 of what consumers
fetch; B57, B58, B60 are leaks and forks; from B61 on they are of hostile peers, TLS and SASL.
"""


def regressions() -> list[ast.FunctionDef]:
    nodes = [node for path in sorted(HERE.glob("test_*.py")) for node in ast.walk(ast.parse(path.read_text()))]
    return [node for node in nodes if isinstance(node, ast.FunctionDef) and re.match(r"test_b\d\d_", node.name)]


def elsewhere() -> set[int]:
    """Of those about who a client says it is: they stand among the tests of SASL."""
    return {int(number) for number in re.findall(r"^def test_(?:f\d\d_)?b(\d\d)_", SASL.read_text(), re.MULTILINE)}


def test_every_bug_of_the_catalogue_has_a_test_that_is_named_by_its_id() -> None:
    named = {int(test.name[6:8]) for test in regressions()} | elsewhere()
    assert sorted(CATALOGUE - named) == []


def test_every_regression_test_says_its_id_and_the_bug_first() -> None:
    for test in regressions():
        text = ast.get_docstring(test) or ""
        assert re.match(rf"B{test.name[6:8]} [\w/-]+(#\d+| )", text), f"{test.name}: {text!r}"
