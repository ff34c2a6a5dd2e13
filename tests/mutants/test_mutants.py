"""The mutants fit the source as it is: `make mutants` tries them against the tests."""

from __future__ import annotations

import ast

from tests.mutants.mutant import ROOT, DoesNotApply, mutants

ALL = mutants()


def test_every_mutant_applies_and_is_still_python() -> None:
    wrong = []
    for mutant in ALL:
        try:
            changed = mutant.applied(ROOT)
        except DoesNotApply as error:
            wrong.append(str(error))
            continue
        if not changed:
            wrong.append(f"{mutant.name} changes nothing")
        for file, text in changed.items():
            if text == (ROOT / file).read_text():
                wrong.append(f"{mutant.name}: {file} is what it was")
            try:
                ast.parse(text, file)
            except SyntaxError as error:
                wrong.append(f"{mutant.name}: {error}")
    assert ALL
    assert not wrong, "\n".join(wrong)


def test_every_mutant_says_what_is_wrong_and_who_should_notice() -> None:
    assert not [mutant.name for mutant in ALL if not mutant.what.endswith(".")], "what they say is no sentence"
    assert not [(mutant.name, mutant.tests) for mutant in ALL if not (ROOT / mutant.tests[0].partition("::")[0]).exists()]
