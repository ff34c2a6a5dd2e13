"""The mutants fit the source as it is: `make mutants` tries them against the tests."""

from __future__ import annotations

import pytest

from tests.mutants.mutant import ROOT, Mutant, mutants

ALL = mutants()


@pytest.mark.parametrize("mutant", ALL, ids=lambda mutant: mutant.name)
def test_a_mutant_applies_and_is_still_python(mutant: Mutant) -> None:
    assert mutant.changes
    for file, text in mutant.applied(ROOT).items():
        assert text != (ROOT / file).read_text()
        compile(text, file, "exec")


@pytest.mark.parametrize("mutant", ALL, ids=lambda mutant: mutant.name)
def test_a_mutant_says_what_is_wrong_and_who_should_notice(mutant: Mutant) -> None:
    assert mutant.what.endswith(".")
    assert (ROOT / mutant.tests[0].partition("::")[0]).exists()
