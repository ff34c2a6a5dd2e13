"""The bars name tests that are there."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.bars import BARS

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("name", BARS)
def test_a_bar_is_held_by_tests_that_are_there(name: str) -> None:
    for test in BARS[name].tests:
        file, _, function = test.partition("::")
        names = {node.name for node in ast.walk(ast.parse((ROOT / file).read_text())) if isinstance(node, ast.FunctionDef)}
        assert function in names if function else any(name.startswith("test_") for name in names)
