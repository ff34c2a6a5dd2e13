"""What `make stalls` makes of its figures, and that its scenarios can be played. No figure is judged here."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from benchmarks import stalls
from benchmarks.stalls import LONGEST_S, ONCE, ROUNDS, ROWS, SCENARIOS, TIMES, Look, Row, Values, judge, look, other_load, run
from tests.kit.clock import PATIENCE_S

ROW = Row("loop", "cpu_ms", "a loop", 10, "ms", "as I say")
IDLE = Row("idle", "percent", "an idle client", 0.5, "%")


class Machine:
    """One whose clock goes on by a second from look to look. loads: the cores that others use in each of these seconds, from then on the last one."""

    def __init__(self, *loads: float) -> None:
        self.loads = list(loads)
        self.now = Look(0, 100, 50)

    def look(self) -> Look:
        seen, load = self.now, self.loads.pop(0) if len(self.loads) > 1 else self.loads[0]
        self.now = Look(seen.at + 1, seen.busy + 1.5 + load, seen.own + 1.5)
        return seen


def measuring(figures: dict[str, Sequence[float]]) -> tuple[Callable[[str], Values], list[str]]:
    """A measure that gives the figures of a scenario one after the other, and what it was asked for."""
    asked: list[str] = []

    def measure(scenario: str) -> Values:
        asked.append(scenario)
        figure = {"loop": "cpu_ms", "idle": "percent"}[scenario]
        return {figure: figures[scenario][asked.count(scenario) - 1]}

    return measure, asked


def judged(machine: Machine, rows: Sequence[Row] = (ROW,), **figures: Sequence[float]) -> tuple[int, list[str]]:
    measure, asked = measuring(figures)
    return run(rows, measure=measure, look=machine.look, sleep=lambda seconds: None), asked


def test_figures_within_their_limits(capsys: pytest.CaptureFixture[str]) -> None:
    assert judged(Machine(0.1), (ROW, IDLE), loop=[4, 10, 5], idle=[0.2]) == (0, ["loop", "idle", *["loop"] * (ROUNDS - 1)])
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in capsys.readouterr().out.splitlines()]
    assert rows[0] == ["what", "measured", "limit", "ok"]
    assert rows[2:] == [["a loop", "10 ms", "10 ms", "ok"], ["an idle client", "0.2 %", "0.5 %", "ok"]], (
        "the worst, and what is measured once"
    )


def test_the_work_of_a_scenarios_cluster_is_not_taken_for_somebody_elses() -> None:
    with stalls.Cluster(t=1):
        process = stalls.Cluster._process
        before = look().own
    stalls.Cluster.end()
    assert process is not None
    assert process.returncode == 0, "whoever waits for it is told what it used"
    assert look().own >= before


def test_a_limit_that_is_passed(capsys: pytest.CaptureFixture[str]) -> None:
    status, asked = judged(Machine(0.1), (ROW, IDLE), loop=[5, 900, 5], idle=[0.1] * 3)
    assert (status, len(asked)) == (1, ROUNDS + 1), "one round is enough, and the others are measured all the same"
    said = capsys.readouterr().out
    assert "FAILED: a loop: 900 ms, at most 10 (as I say)" in said
    assert "FAILED |" in said


def test_nothing_is_judged_on_a_busy_machine(capsys: pytest.CaptureFixture[str]) -> None:
    assert judged(Machine(1.7), loop=[]) == (2, [])
    (line,) = capsys.readouterr().out.splitlines()
    assert line == "not judged: other programs use 1.7 cores, more than 0.3. End them, or wait until they have ended, and run it again"


def test_a_round_beside_others_is_measured_again() -> None:
    # Looks: two at first, then one for each round, and two for each measurement.
    busy_once = Machine(0.1, 0.1, 0.1, 0.8, 0.1)
    assert judged(busy_once, loop=[99, 3, 5, 4]) == (0, ["loop"] * (ROUNDS + 1)), "the first one does not count"


def test_a_machine_that_gets_busy_and_stays_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert judged(Machine(0.1, 0.1, 0.8), (ROW, IDLE), loop=[3] * 9, idle=[0.1] * 9) == (2, ["loop"] * TIMES + ["idle"] * TIMES)
    assert capsys.readouterr().out.count("not judged: others used 0.8 cores") == 2


@pytest.mark.parametrize(("share", "asked"), [(1, ["loop"]), (0.5, ["loop", "idle"])])
def test_what_a_slow_machine_has_no_time_for_is_not_judged(share: float, asked: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    slow = Machine(0.1)
    measure, seen = measuring({"loop": [3, 99, 99], "idle": [0.1]})

    def measure_slowly(scenario: str) -> Values:
        slow.now = Look(slow.now.at + share * LONGEST_S, slow.now.busy, slow.now.own)
        return measure(scenario)

    status = run((ROW, IDLE), measure=measure_slowly, look=slow.look, sleep=lambda seconds: None)
    assert (status, seen) == (0 if asked == ["loop", "idle"] else 2, asked)
    said = capsys.readouterr().out
    assert "3 ms" in said, "of one round"
    assert (f"not judged: {LONGEST_S:g} s had passed" in said) == (status == 2)


def test_a_limit_that_is_passed_counts_more_than_one_that_was_not_judged() -> None:
    found = judge([ROW, IDLE], {"loop": "others used 1.0 cores", "idle": [{"percent": 0.6}]})
    assert [each.ok for each in found] == [None, False]
    machine = Machine(*[0.1] * 5, *[0.9] * 7, 0.1)  # busy from the first scenario to the second round
    assert judged(machine, (ROW, IDLE), loop=[50] * 3, idle=[0.1] * 3)[0] == 1


def test_what_this_process_does_is_no_other_load() -> None:
    assert other_load(Look(0, 10, 4), Look(2, 13, 6.5)) == 0.25
    assert other_load(Look(0, 10, 4), Look(2, 11, 6)) == 0, "as clocks of ticks are"
    before = look()
    sum(range(10_000_000))
    after = look()
    assert after.own > before.own
    assert after.busy - before.busy > 0


def test_each_row_is_of_a_scenario_that_there_is() -> None:
    assert {row.scenario for row in ROWS} == set(SCENARIOS) >= set(ONCE)
    assert all(row.limit > 0 and row.why for row in ROWS)


def test_a_word_that_no_scenario_has(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["stalls.py", "--only", "typo"])
    with pytest.raises(SystemExit) as ended:
        stalls.main()
    assert ended.value.code == 2
    assert f"no scenario with 'typo' in its name, but {', '.join(SCENARIOS)}" in capsys.readouterr().err
    assert run([], measure=lambda scenario: {}, look=Machine(0.1).look, sleep=lambda seconds: None) == 2, "nothing was judged"


def in_short(handler: str) -> dict[str, Values]:
    """The figures of all scenarios of a handler, played in the short form."""
    names = [name for name in SCENARIOS if name.endswith("on threads") == (handler == "threading")]
    command = [sys.executable, stalls.__file__, "--short", "--handler", handler, "--measure", *names]
    done = subprocess.run(command, capture_output=True, text=True, timeout=4 * PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr
    return dict(zip(names, map(json.loads, done.stdout.splitlines()), strict=True))


def test_each_scenario_can_be_played() -> None:
    with ThreadPoolExecutor() as pool:
        gevents, threads = pool.map(in_short, ("gevent", "threading"))
    played = gevents | threads
    assert not [row for row in ROWS if row.figure not in played[row.scenario]]
