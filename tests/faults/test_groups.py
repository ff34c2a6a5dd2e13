"""A run of a fault played to groups that disturbed nothing, read too little or took too long is a failed one, and the table says so."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.faults.__main__ import table
from tests.faults.consumed import DAMAGED, STRANGER, Findings
from tests.faults.cutfaults import CUT_FAULTS
from tests.faults.faults import FAULTS, GAMES, OF_GROUPS
from tests.faults.gapfaults import GAP_FAULTS
from tests.faults.groupfaults import GROUP_FAULTS
from tests.faults.groups import FORMS, GroupFault, GroupLine, GroupRun, blame
from tests.faults.groupshots import SHOT_GROUPS
from tests.faults.load import read_value, value_of
from tests.faults.namefaults import NAME_FAULTS
from tests.faults.zookeeperfaults import ZOOKEEPER_FAULTS

FAULT = GroupFault("F99", "something", lambda run: None, evidence=("kills",), bars={"takeover_s": 11.0}, quiet=("threading",))
FORM = FORMS["short"]


def line(findings: dict[str, Any] | None = None, *, figures: dict[str, float] | None = None, kills: int = 1) -> GroupLine:
    found = Findings(read=FORM.acked, **(findings or {}))
    measured = {"takeover_s": 6.0} if figures is None else figures
    return GroupLine("F99", "threading/managed", 1, "short", "something", found, measured, {"kills": kills}, 9.0, [])


def blamed(given: GroupLine, fault: GroupFault = FAULT, form: str = "long") -> list[str]:
    return list(blame(cast(GroupRun, SimpleNamespace(fault=fault, least=FORM.acked, form=FORMS[form])), given))


def test_a_run_that_disturbed_something_and_found_nothing_passes() -> None:
    assert blamed(line()) == []


@pytest.mark.parametrize("name", sorted(set(Findings(*range(1, 17)).wrong)))
def test_each_defect_fails_a_run(name: str) -> None:
    assert blamed(line({name: 2})) == [f"2 {name}"]


def test_a_fault_without_a_trace_is_a_failed_run() -> None:
    assert blamed(line(kills=0)) == ["no kills: the fault disturbed nothing"]


def test_a_figure_must_have_been_measured_and_stay_below_its_bar() -> None:
    assert blamed(line(figures={})) == ["takeover_s was not measured"]
    assert blamed(line(figures={"takeover_s": 11.5})) == ["takeover_s 11.5: more than 11"]
    assert blamed(line(figures={"takeover_s": 40.5}), form="short") == [], "tests play it beside others"
    assert blamed(line(figures={"takeover_s": 41.5}), form="short") == ["takeover_s 41.5: more than 41"]


def test_what_a_fault_cannot_but_bring_about_is_tolerated_up_to_a_measure() -> None:
    fault = dataclasses.replace(FAULT, tolerates={"double_ms": 500.0})
    assert blamed(line({"double_ms": 400.0}), fault) == []
    assert blamed(line({"double_ms": 600.0}), fault) == ["600 double_ms"]


def test_a_rebalance_in_a_run_that_must_have_none_fails_it() -> None:
    assert blamed(line({"rebalances": 1})) == ["1 rebalances"]


def test_too_few_records_prove_nothing() -> None:
    given = line()
    given.findings.read = 3
    assert blamed(given) == [f"too few read: 3 of {FORM.acked:,}"]


def test_the_table_of_groups_has_the_controls_figures() -> None:
    ours = line({"dup": 7}, figures={"takeover_s": 6.5})
    ours.control = {"takeover_s": 6.1, "stall_s": 6.4}
    ours.blame = ["2 skips"]
    head, row = table([ours]).splitlines()
    assert head.split()[:3] == ["fault", "played", "consumers"]
    assert "takeover_s 6.5 (6.1)" in row
    assert row.endswith("FAILED: 2 skips")


def test_no_two_faults_have_one_id() -> None:
    of_groups = (GROUP_FAULTS, GAP_FAULTS, CUT_FAULTS, NAME_FAULTS, ZOOKEEPER_FAULTS, SHOT_GROUPS)
    assert len(GAMES) == len(FAULTS) + sum(map(len, of_groups)) + 6


def test_every_fault_of_groups_leaves_a_trace_somewhere() -> None:
    assert all(fault.evidence for fault in OF_GROUPS.values())


def test_a_value_tells_what_it_is() -> None:
    id, produced = read_value(value_of(12))
    assert (id, produced > 0) == (12, True)
    assert read_value(b"aborted " + b"x" * 60)[0] == read_value(None)[0] == STRANGER
    damaged = bytearray(value_of(12))
    damaged[-1] ^= 1
    assert read_value(bytes(damaged))[0] == DAMAGED
    assert read_value(b"x" * len(damaged))[0] == DAMAGED
