"""A run of a fault that had too few records, or that disturbed nothing, is a failed one, and the table says so."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.faults.__main__ import table
from tests.faults.inside import Inside
from tests.faults.ledger import Row, Verdict
from tests.faults.runs import LONG, SHORT, Form, Line, blame
from tests.faults.stage import Stage

TINY = Form("long", 2, 1.0, 1.0)
ENOUGH = Verdict(acknowledged=LONG.acked)


def played_inside(records: int, played: dict[str, int], *, form: Form = TINY, retries: int = 1, disconnects: int = 1) -> Line:
    """What F23 and F24 say after so many acknowledged records, without a broker."""
    log: list[Row] = []
    plan = SimpleNamespace(ended=0)
    stage: Any = SimpleNamespace(plan=plan, new_topic=lambda stem: stem, dump=lambda topics, isolation="": log)
    inside = Inside(cast(Stage, stage), "F23", "threading", form, 1, 10.0)
    for i in range(records):
        entry, _ = inside.offer(partition=0)
        entry.accepted_at = entry.offered_at
        inside.ledger.resolve(entry, entry.offered_at, offset=i)
        log.append(Row(entry.topic, 0, i, entry.id))
    inside.retries, plan.ended = retries, disconnects
    return inside.line(played)


def test_the_long_form_asks_for_two_hundred_thousand_records() -> None:
    assert LONG.acked == 200_000
    assert list(blame(LONG, Verdict(acknowledged=199_999), {})) == ["too few acknowledged: 199,999 of 200,000"]
    assert list(blame(LONG, ENOUGH, {})) == []


def test_the_short_form_has_a_least_number_too() -> None:
    assert list(blame(SHORT, Verdict(acknowledged=SHORT.acked - 1), {})) == ["too few acknowledged: 2,999 of 3,000"]


@pytest.mark.parametrize("counter", ["retries", "disconnects", "moves", "kills", "closes"])
def test_a_fault_whose_counter_is_zero_disturbed_nothing(counter: str) -> None:
    assert list(blame(LONG, ENOUGH, {counter: 0})) == [f"no {counter}: the fault disturbed nothing"]
    assert list(blame(LONG, ENOUGH, {counter: 1})) == []


def test_a_defect_fails_a_run_that_has_enough_of_everything() -> None:
    assert list(blame(LONG, Verdict(acknowledged=LONG.acked, duplicates=2), {"retries": 1})) == ["2 duplicates"]


def test_a_run_inside_the_process_passes_with_records_and_disturbance_enough() -> None:
    line = played_inside(2, {"closes": 1200})
    assert (line.blame, line.played) == ([], "1,200 closes")


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"records": 1}, "too few acknowledged: 1 of 2"),
        ({"retries": 0}, "no retries: the fault disturbed nothing"),
        ({"disconnects": 0}, "no disconnects: the fault disturbed nothing"),
        ({"played": {"timeouts": 5, "kills": 0}}, "no kills: the fault disturbed nothing"),
    ],
)
def test_a_run_inside_the_process_fails_without(given: dict[str, Any], why: str) -> None:
    line = played_inside(**{"records": 2, "played": {"closes": 1}, **given})
    assert line.blame == [why]


def test_the_table_says_what_was_played_and_why_it_failed() -> None:
    head, row = table([played_inside(1, {"closes": 14, "in each state": 1})]).splitlines()
    assert "played" in head
    assert "14 closes, 1 in each state" in row
    assert row.endswith("FAILED: too few acknowledged: 1 of 2")
