"""Each test is in one of the runs of `make test`, and each is played once."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests import stages
from tests.kit.clock import now
from tests.stages import PLANS, TWICE, WITH_KAFKA, Stage, main, play, told_first
from tests.turns import ALSO_WITH_GREENLETS, NEWEST, OLD_RELEASES

ROOT = Path(__file__).resolve().parent.parent
FILES = [file.relative_to(ROOT).as_posix() for file in (ROOT / "tests").rglob("test_*.py")]


def has(stage: Stage, file: str) -> bool:
    return within(file, stage.paths) and not within(file, stage.left_out)


def within(file: str, paths: Sequence[str]) -> bool:
    return any(file == path or file.startswith(f"{path}/") for path in paths)


def stages_of(plan: str) -> dict[str, Stage]:
    front, beside = PLANS[plan]
    return {stage.name: stage for stage in (*front, *beside)}


@pytest.mark.parametrize("plan", ["test", "thorough"])
def test_each_file_is_played_and_what_is_named_exists(plan: str) -> None:
    played = stages_of(plan)
    demo = played.pop("demo", None)
    assert (demo is not None) == (plan == "test")
    runs = [stage for stage in played.values() if stage.environment.get("GKAFKA_IMPL") != "python"]
    assert [file for file in FILES if sum(has(stage, file) for stage in runs) != 1] == []
    assert [path for stage in played.values() for path in (*stage.paths, *stage.left_out) if not (ROOT / path).exists()] == []


def test_quick_and_thorough_tests_are_all_there_are() -> None:
    quick, thorough = "not thorough and not soak", "thorough and not soak"
    assert {name: stage.marks for name, stage in stages_of("test").items() if name != "demo"} == {
        "kafka": quick,
        "pure": quick,
        "twin": f"{quick} and not {ALSO_WITH_GREENLETS}",
    }
    assert {name: stage.marks for name, stage in stages_of("thorough").items()} == {
        "kafka": thorough,
        "pure": thorough,
        "twin": f"{quick} and {ALSO_WITH_GREENLETS}",
        "spark": quick,
    }


def test_the_rooms_above_the_records_are_played_on_the_twin_too() -> None:
    twin, other = (stages_of(plan)["twin"] for plan in ("test", "thorough"))
    assert twin.environment == {"GKAFKA_IMPL": "python", "GKAFKA_HANDLERS": "recording"}
    assert other == replace(twin, marks=other.marks)
    assert [file for file in FILES if within(file, TWICE) and not within(file, WITH_KAFKA) and not has(twin, file)] == []


def test_the_demo_is_played_in_a_small_form() -> None:
    demo = stages_of("test")["demo"].command()
    assert (ROOT / demo[1]).exists()
    assert "--max-pages" in demo


Make = Callable[[str, str], Stage]


# -- what is played ----------------------------------------------------------------------------------------------------
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


class Program(Stage):
    """A run that is no pytest, which takes seconds to start. Its text stands where the paths do."""

    def command(self) -> list[str]:
        return [sys.executable, "-I", "-S", "-c", self.paths[0]]


def program(name: str, text: str) -> Stage:
    return Program(name, 0, "", [text])


GOOD, BAD = "", "raise SystemExit(1)"


@pytest.fixture
def keeps_sigterm() -> Iterator[None]:
    before = signal.getsignal(signal.SIGTERM)
    yield
    assert signal.getsignal(signal.SIGTERM) is before


pytestmark = pytest.mark.usefixtures("keeps_sigterm")


def test_all_that_is_played_is_told(capfd: pytest.CaptureFixture[str]) -> None:
    assert not play([program("front", GOOD)], [program("beside", BAD)])
    assert re.search(r"front: 0\.\d minutes, passed\nbeside: 0\.\d minutes, failed", capfd.readouterr().out)
    assert not play([program("bad", BAD)], [program("good", GOOD)])
    assert play([program("good", GOOD)], [program("good", GOOD)])


@pytest.mark.parametrize("plan", PLANS)
def test_what_is_played_and_what_is_fetched_first_is_said_before_it(plan: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GKAFKA_CACHE", str(tmp_path))
    (tmp_path / "jars" / "kafka-2.8.2").mkdir(parents=True)
    said = "\n".join(told_first(*PLANS[plan]))
    assert re.findall(r"\b(kafka|pure|demo|twin|spark|check)(?=[,\n]|$)", said) == list(stages_of(plan))
    fetched = said.partition(str(tmp_path))[2]
    assert [release for release in (*OLD_RELEASES, NEWEST) if release in fetched] == (
        [release for release in (*OLD_RELEASES, NEWEST) if release != "2.8.2"] if "kafka" in stages_of(plan) else []
    )


def test_a_run_without_a_test_is_none_that_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(stages.PLANS, "check", ([program("empty", f"raise SystemExit({pytest.ExitCode.NO_TESTS_COLLECTED.value})")], []))
    assert main(["check"]) == 1


def test_of_several_runs_one_after_the_other_each_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    good, bad = program("good", GOOD), program("bad", BAD)
    for runs, status in (([good, good], 0), ([bad, good], 1), ([good, bad], 1)):
        monkeypatch.setitem(stages.PLANS, "check", (runs, []))
        assert main(["check"]) == status


# -- no second tries -------------------------------------------------------------------------------------------------------
BETTER_WHEN_TRIED_AGAIN = """
with open({file!r}, "a") as file:
    file.write("x")
with open({file!r}) as file:
    raise SystemExit(len(file.read()) == 1)
"""


def test_what_has_failed_in_a_run_is_not_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    front, beside = ([program(lane, BETTER_WHEN_TRIED_AGAIN.format(file=str(tmp_path / lane)))] for lane in ("front", "beside"))
    monkeypatch.setitem(stages.PLANS, "check", (front, beside))
    assert main(["check"]) == 1
    assert [(tmp_path / lane).read_text() for lane in ("front", "beside")] == ["x", "x"]


STAND_IN = """#!/bin/sh
# Stands for Python: the plan is played, and all that it starts fails.
case "$*" in *--collect-only*) exit ;; esac
echo "$*" >> {folder}/started
test "$2" = tests.stages || exit 1
exec {python} -c 'import runpy, sys
sys.executable = "{folder}/python"
runpy.run_module("tests.stages", run_name="__main__", alter_sys=True)' $3
"""


@pytest.mark.parametrize("ci", [None, "true"])
@pytest.mark.parametrize("plan", PLANS)
def test_a_stage_whose_pytest_fails_starts_it_once(plan: str, ci: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "python").write_text(STAND_IN.format(folder=tmp_path, python=sys.executable))
    (tmp_path / "python").chmod(0o755)
    monkeypatch.delenv("CI", raising=False)
    if ci:
        monkeypatch.setenv("CI", ci)
    there = [word for name in ("built-and-linted", ".venv/.built", ".venv/.gssapi") for word in ("-o", name)]
    made = subprocess.run(["make", *there, f"PY={tmp_path}/python", plan], cwd=ROOT, capture_output=True, text=True, check=False)
    started = (tmp_path / "started").read_text().splitlines()
    wanted = [" ".join(stage.command()[1:]) for stage in stages_of(plan).values()]
    assert sorted(started) == sorted([f"-m tests.stages {plan}", *wanted]), made.stderr
    assert made.returncode != 0
    assert made.stdout.count("minutes, failed") == len(wanted)


TESTS_AND_A_PLUGIN_THAT_TRIES_AGAIN = """
import pytest
from _pytest.runner import call_and_report, runtestprotocol
from pathlib import Path

@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item, nextitem):
    if item.name.startswith("test_again"):
        runtestprotocol(item, log=False, nextitem=item)
        for report in runtestprotocol(item, log=False, nextitem=nextitem):
            item.ihook.pytest_runtest_logreport(report=report)
        return True
    if item.name == "test_called_again":
        call_and_report(item, "setup", log=False)
        call_and_report(item, "call", log=False)
        call_and_report(item, "call")
        call_and_report(item, "teardown", nextitem=nextitem)
        return True

def played(test):
    with Path(__file__).with_name(test).open("a") as file:
        file.write("x")
    return len(Path(__file__).with_name(test).read_text())

@pytest.fixture
def better():
    assert played("fixture") == 2

def test_bad():
    times = played("bad")
    assert times == 2

def test_again():
    assert played("again") == 2

def test_called_again():
    assert played("called") == 2

def test_again_with_a_fixture(better):
    pass
"""


def test_what_has_failed_in_pytest_is_told_at_once_and_not_tried_again(tmp_path: Path) -> None:
    """What several processes have found comes when all has run: a run that was ended before that told nothing."""
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "conftest.py").write_text("from test_it import pytest_runtest_protocol\n")
    (tmp_path / "test_it.py").write_text(TESTS_AND_A_PLUGIN_THAT_TRIES_AGAIN)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.conftest", "-n", "1", str(tmp_path)]
    out = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout
    failed = dict(re.findall(r"^failed: test_it.py::(\w+) \((?:call|setup), \d+ s\): (.*)$", out, re.MULTILINE))
    assert re.match(r"E +assert 1 == 2$", failed.pop("test_bad")), out
    assert failed.keys() == {"test_again", "test_called_again", "test_again_with_a_fixture"}, out
    assert all("a second try" in why for why in failed.values()), out
    assert {(tmp_path / test).read_text() for test in ("bad", "again", "called", "fixture")} == {"x"}


def test_nothing_calls_for_second_tries() -> None:
    again = re.compile(r"last.?failed|--lf\b|--ff\b|failed.first|\brerun|--retries|pytest.retry|mark\.flaky|@flaky", re.IGNORECASE)
    tests = (file for file in (ROOT / "tests").rglob("*.py") if file != Path(__file__))
    files = (*tests, *(ROOT / file for file in ("pyproject.toml", "requirements.txt", "Makefile", ".ci/run")))
    assert [(file, line) for file in files for line in file.read_text().splitlines() if again.search(line)] == []
    assert re.findall(r"^.*-m tests\.stages.*$", (ROOT / "Makefile").read_text(), re.MULTILINE) == [
        f"\t$(PY) -m tests.stages {plan}" for plan in PLANS
    ]
    assert len(re.findall(r"^timeout .*\bmake test\b", (ROOT / ".ci/run").read_text(), re.MULTILINE)) == 1


# -- what is left out ----------------------------------------------------------------------------------------------------
LACKING = """
import pytest
from tests.kit.lacking import leave_out, reason
@pytest.mark.parametrize("number", range(2))
def test_it(number):
    leave_out(("libfaketime", "apt-get install libfaketime"), ("gssapi", "pip install gssapi"))
@pytest.mark.skipif(True, reason=reason(("real Kafka", "GKAFKA_LIVE=skip is set")))
def test_marked():
    pass
def test_other():
    pytest.skip("threads are not killed")
def test_good():
    pass
"""


def test_what_this_machine_lacks_is_told_in_one_line_each(
    made: Make, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    stage = replace(made("lacking", LACKING), processes=1, more=["-p", "tests.conftest"])
    monkeypatch.setitem(stages.PLANS, "check", ([stage], []))
    assert main(["check"]) == 0
    assert capfd.readouterr().out.splitlines()[-3:] == [
        "NOT TESTED, 2 tests: there is no gssapi (pip install gssapi)",
        "NOT TESTED, 2 tests: there is no libfaketime (apt-get install libfaketime)",
        "NOT TESTED, 1 test: there is no real Kafka (GKAFKA_LIVE=skip is set)",
    ]


# -- a run that is ended -----------------------------------------------------------------------------------------------
ENDED = """
from tests import stages
from tests.test_stages import program
front = program("front", "import time\\nopen({folder!r} + '/begun', 'w').close()\\ntime.sleep(600)")
beside = program("beside", "print('what it has found', flush=True)\\nopen({folder!r} + '/told', 'w').close()")
stages.PLANS["check"] = ([front], [beside])
stages.main(["check"])
"""


def test_a_run_that_is_ended_tells_what_it_has_found_beside(tmp_path: Path) -> None:
    command = [sys.executable, "-c", ENDED.format(folder=str(tmp_path))]
    run = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True)
    try:
        deadline = now() + 60
        while not ((tmp_path / "begun").exists() and (tmp_path / "told").exists()):
            assert now() < deadline
            assert run.poll() is None
            time.sleep(0.05)
        os.killpg(run.pid, signal.SIGTERM)
        said, _ = run.communicate(timeout=60)
    finally:
        run.kill()
        run.wait()
    assert "what it has found" in said


def test_no_process_is_ended_before_its_tests_are() -> None:
    """Whoever is ended by the limit of the process takes its Kafka with it, and all tests that use that one."""
    whole = int(re.findall(r"^faulthandler_timeout = (\d+)$", (ROOT / "pyproject.toml").read_text(), re.MULTILINE)[0])
    limits = {
        (file, int(limit))
        for file in FILES
        for line in (ROOT / file).read_text().splitlines()
        for limit in re.findall(r"pytest\.mark\.timeout\((\d+)\)", line)
        if "mark.soak" not in line
    }
    assert len(limits) > 5
    assert [one for one in limits if one[1] >= whole] == []
