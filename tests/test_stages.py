"""Each test is in one of the runs of `make test`, and what failed beside others is tried again, alone."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests import stages
from tests.stages import PLANS, TWICE, UPPER, WITH_KAFKA, Stage, main, play

ROOT = Path(__file__).resolve().parent.parent
FILES = [file.relative_to(ROOT).as_posix() for file in (ROOT / "tests").rglob("test_*.py")]


def has(stage: Stage, file: str) -> bool:
    return within(file, stage.paths) and not within(file, stage.left_out)


def within(file: str, paths: Sequence[str]) -> bool:
    return any(file == path or file.startswith(f"{path}/") for path in paths)


def stages_of(plan: str) -> dict[str, Stage]:
    return {stage.name: stage for front, beside in PLANS[plan] for stage in (front, *beside)}


AGAIN = {"twin", "kafka-second", "upper-second"}


@pytest.mark.parametrize("plan", ["test", "thorough"])
def test_each_file_is_played_once_and_what_is_named_exists(plan: str) -> None:
    played = stages_of(plan)
    runs = [stage for name, stage in played.items() if name not in AGAIN]
    assert [file for file in FILES if sum(has(stage, file) for stage in runs) != 1] == []
    assert [path for stage in played.values() for path in (*stage.paths, *stage.left_out) if not (ROOT / path).exists()] == []


def test_quick_and_thorough_tests_are_all_there_are() -> None:
    assert {stage.marks for stage in stages_of("test").values()} == {"not thorough and not soak"}
    assert {stage.marks for name, stage in stages_of("thorough").items() if name not in AGAIN} == {"thorough and not soak"}
    assert {stage.marks for name, stage in stages_of("thorough").items() if name in AGAIN} == {"not thorough and not soak"}


def test_the_rooms_above_the_records_are_played_on_the_twin_too() -> None:
    twin, other = (stages_of(plan)["twin"] for plan in ("test", "thorough"))
    assert twin.environment == {"GKAFKA_IMPL": "python", "GKAFKA_HANDLERS": "recording", "GKAFKA_IN_TURN": "second"}
    assert other == replace(twin, environment={**twin.environment, "GKAFKA_IN_TURN": "first"})
    assert [file for file in FILES if within(file, TWICE) and not within(file, WITH_KAFKA) and not has(twin, file)] == []


def test_only_with_kafka_and_above_the_handlers_a_test_waits_for_its_other_handler() -> None:
    turns = {(plan, name): stage.environment.get("GKAFKA_IN_TURN") for plan in PLANS for name, stage in stages_of(plan).items()}
    first = {("test", "kafka"): "first", ("test", "upper"): "first", ("thorough", "twin"): "first"}
    second = {("thorough", "kafka-second"): "second", ("thorough", "upper-second"): "second", ("test", "twin"): "second"}
    assert {which: turn for which, turn in turns.items() if turn} == first | second


def test_what_waits_has_the_same_rooms_in_make_test_and_in_make_thorough() -> None:
    one, other = stages_of("test")["upper"], stages_of("thorough")["upper-second"]
    assert (one.paths, one.left_out) == (other.paths, other.left_out) == (UPPER, WITH_KAFKA)
    assert set(TWICE) < set(UPPER)


COLLECT = """
import json, sys
import pytest
from tests.turns import in_turn

class Told:
    def pytest_collection_finish(self, session):
        self.found = {str(turn): [item.nodeid for item in in_turn(session.items, turn)[0]] for turn in (None, "first", "second")}

told = Told()
code = pytest.main(["-q", "--collect-only", "-p", "no:xdist", *sys.argv[2:]], plugins=[told])
open(sys.argv[1], "w").write(json.dumps(told.found))
sys.exit(code)
"""


def collected(tmp_path: Path, *given: str) -> dict[str, set[str]]:
    """What pytest would run of these in no turn, and in each of both."""
    told = tmp_path / "collected.json"
    environment = {name: value for name, value in os.environ.items() if name != "GKAFKA_IN_TURN"}
    command = [sys.executable, "-c", COLLECT, str(told), *given]
    subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, timeout=300, check=True)
    return {turn: set(tests) for turn, tests in json.loads(told.read_text()).items()}


@pytest.mark.timeout(400)
def test_with_kafka_make_test_and_make_thorough_together_play_each_test_with_both_handlers(tmp_path: Path) -> None:
    front, other = stages_of("test")["kafka"], stages_of("thorough")["kafka-second"]
    assert front.marks == other.marks
    found = collected(tmp_path, "-m", front.marks, *WITH_KAFKA)
    every, first = found["None"], found["first"]
    in_its_rooms = {test for test in found["second"] if test.startswith(tuple(f"{room}/" for room in other.paths))}
    second = {test for test in in_its_rooms if re.search(other.more[other.more.index("-k") + 1].replace(" or ", "|"), test)}
    assert every == first | second
    left_out = every - first
    assert len(left_out) > 100
    swapped = {"threading": "gevent", "gevent": "threading"}
    for test in left_out:
        name, _, parameters = test.partition("[")
        other_test = re.sub("threading|gevent", lambda found: swapped[found[0]], parameters)
        assert f"{name}[{other_test}" in first, test


def test_no_two_runs_remember_what_failed_in_one_place() -> None:
    for plan, runs in PLANS.items():
        assert len(stages_of(plan)) == sum(1 + len(beside) for _, beside in runs)


Make = Callable[[str, str], Stage]


# -- what is played ----------------------------------------------------------------------------------------------------
FAILS = """
from pathlib import Path
def test_it():
    tried = Path(__file__).with_suffix(".tried")
    times = len(tried.read_text()) if tried.exists() else 0
    tried.write_text("x" * (times + 1))
    assert times >= {times}, f"time number {{times + 1}}"
"""


@pytest.fixture(autouse=True)
def at_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stages, "REST_S", 0)


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
    front, beside = made("front", "def test_it(): pass"), made("beside", FAILS.format(times=1))
    assert play(front, [beside])
    said = capfd.readouterr().out
    assert said.index("time number 1") < said.rindex("1 passed") < said.index("front: 0.")


def test_what_failed_alone_too_has_a_last_try_and_all_are_shown(made: Make, capfd: pytest.CaptureFixture[str]) -> None:
    assert play(made("front", FAILS.format(times=2)), [])
    said = capfd.readouterr().out
    assert said.index("time number 1") < said.index("time number 2") < said.index("front: failed alone, too") < said.index("1 passed")
    assert not play(made("other", FAILS.format(times=3)), [])


def test_a_machine_at_rest_is_not_waited_for_and_a_busy_one_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    for load, limit in ((0.4, 60), (9.0, 0.1)):
        monkeypatch.setattr(os, "getloadavg", lambda load=load: (load, load, load))
        monkeypatch.setattr(stages, "REST_S", limit)
        began = time.monotonic()
        stages.come_to_rest()
        assert time.monotonic() - began < 30


def test_what_always_fails_has_failed(made: Make) -> None:
    assert not play(made("good", "def test_it(): pass"), [made("bad", "def test_it(): assert False")])


def test_a_run_without_a_test_is_none_that_passed(made: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(stages.PLANS, "check", [(made("empty", ""), [])])
    assert main(["check"]) == 1


def test_of_several_runs_one_after_the_other_each_counts(made: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    good, bad = (made("good", "def test_it(): pass"), []), (made("bad", "def test_it(): assert False"), [])
    for runs, status in (([good, good], 0), ([bad, good], 1), ([good, bad], 1)):
        monkeypatch.setitem(stages.PLANS, "check", runs)
        assert main(["check"]) == status


# -- a run that is ended -----------------------------------------------------------------------------------------------
def test_a_failure_is_told_in_one_line_at_once(tmp_path: Path) -> None:
    """What several processes have found comes when all has run: a run that was ended before that told nothing."""
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_it.py").write_text("def test_bad(): assert 1 == 2\n")
    for processes, said in ((2, 1), (0, 0)):
        command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.conftest", "-n", str(processes), str(tmp_path)]
        out = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout
        lines = re.findall(r"^failed: test_it.py::test_bad \(call, 0 s\): E +assert 1 == 2$", out, re.MULTILINE)
        assert len(lines) == said, out


ENDED = """
from pathlib import Path
from tests import stages
from tests.stages import Stage
front, beside = (Stage(name, 0, "not thorough", [str(Path({folder!r}, name))]) for name in ("front", "beside"))
stages.PLANS["check"] = [(front, [beside])]
stages.main(["check"])
"""


def test_a_run_that_is_ended_tells_what_it_has_found_beside(made: Make, tmp_path: Path) -> None:
    made("front", f"import time\ndef test_it():\n    open({str(tmp_path / 'begun')!r}, 'w').close()\n    time.sleep(60)")
    made("beside", "def test_it():\n    assert 'this' == 'that'")
    told = f"import sys\ndef pytest_unconfigure():\n    sys.stdout.flush()\n    open({str(tmp_path / 'told')!r}, 'w').close()"
    (tmp_path / "beside" / "conftest.py").write_text(told)
    command = [sys.executable, "-c", ENDED.format(folder=str(tmp_path))]
    run = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True)
    try:
        deadline = time.monotonic() + 60
        while not ((tmp_path / "begun").exists() and (tmp_path / "told").exists()):
            assert time.monotonic() < deadline
            assert run.poll() is None
            time.sleep(0.05)
        os.killpg(run.pid, signal.SIGTERM)
        said, _ = run.communicate(timeout=30)
    finally:
        run.kill()
        run.wait()
    assert "assert 'this' == 'that'" in said


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
    assert len(limits) > 20
    assert [one for one in limits if one[1] >= whole] == []
