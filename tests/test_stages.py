"""Each test is in one of the runs of `make test`, and what failed beside others has a second try, alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests import stages
from tests.stages import PLANS, TWICE, WITH_KAFKA, Stage, main, play

ROOT = Path(__file__).resolve().parent.parent
FILES = [file.relative_to(ROOT).as_posix() for file in (ROOT / "tests").rglob("test_*.py")]


def has(stage: Stage, file: str) -> bool:
    return within(file, stage.paths) and not within(file, stage.left_out)


def within(file: str, paths: Sequence[str]) -> bool:
    return any(file == path or file.startswith(f"{path}/") for path in paths)


@pytest.mark.parametrize("plan", ["test", "thorough"])
def test_each_file_is_played_once_and_what_is_named_exists(plan: str) -> None:
    front, beside = PLANS[plan]
    runs = [stage for stage in (front, *beside) if stage.name != "twin"]
    assert [file for file in FILES if sum(has(stage, file) for stage in runs) != 1] == []
    assert [path for stage in (front, *beside) for path in (*stage.paths, *stage.left_out) if not (ROOT / path).exists()] == []


def test_quick_and_thorough_tests_are_all_there_are() -> None:
    assert {stage.marks for stage in (PLANS["test"][0], *PLANS["test"][1])} == {"not thorough and not soak"}
    thorough = [stage for stage in (PLANS["thorough"][0], *PLANS["thorough"][1]) if stage.name != "twin"]
    assert {stage.marks for stage in thorough} == {"thorough and not soak"}


def test_the_rooms_above_the_records_are_played_on_the_twin_too() -> None:
    twin, other = [stage for plan in ("test", "thorough") for stage in PLANS[plan][1] if stage.name == "twin"]
    assert twin.environment == {"GKAFKA_IMPL": "python", "GKAFKA_HANDLERS": "recording", "GKAFKA_IN_TURN": "first"}
    assert other == replace(twin, environment={**twin.environment, "GKAFKA_IN_TURN": "second"})
    assert [file for file in FILES if within(file, TWICE) and not within(file, WITH_KAFKA) and not has(twin, file)] == []


def test_no_two_runs_remember_what_failed_in_one_place() -> None:
    for front, beside in PLANS.values():
        names = [stage.name for stage in (front, *beside)]
        assert len(set(names)) == len(names)


Make = Callable[[str, str], Stage]


# -- what is played ----------------------------------------------------------------------------------------------------
FAILS_ONCE = """
from pathlib import Path
def test_it():
    tried = Path(__file__).with_suffix(".tried")
    if not tried.exists():
        tried.touch()
        raise AssertionError("the first time")
"""


@pytest.fixture
def made(tmp_path: Path) -> Make:
    """A run without a process of its own for its tests, which are in a folder of their own."""

    def make(name: str, text: str) -> Stage:
        folder = tmp_path / name
        folder.mkdir()
        (folder / "pytest.ini").write_text("[pytest]\n")
        (folder / f"test_{name}.py").write_text(text)
        return Stage(name, 0, "not thorough", [str(folder)])

    return make


def test_what_failed_beside_others_is_played_again_and_counts(made: Make, capfd: pytest.CaptureFixture[str]) -> None:
    front, beside = made("front", "def test_it(): pass"), made("beside", FAILS_ONCE)
    assert play(front, [beside])
    said = capfd.readouterr().out
    assert said.index("the first time") < said.rindex("1 passed") < said.index("front: 0.")


def test_what_fails_twice_has_failed(made: Make) -> None:
    assert not play(made("good", "def test_it(): pass"), [made("bad", "def test_it(): assert False")])


def test_a_run_without_a_test_is_none_that_passed(made: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(stages.PLANS, "check", (made("empty", ""), []))
    assert main(["check"]) == 1
