"""What a read_committed reader may see of transactions whose callers were cut off."""

from __future__ import annotations

import pytest

from tests.faults.ledger import Ledger, Row, Verdict
from tests.faults.txload import Work, judge


def judged(fate: str, shown: list[int], *, cut_off: int = 0) -> dict[str, int]:
    """What is wrong if so many copies of each record of one transaction are shown. cut_off: of how many, at the end, produce() did not return."""
    ledger = Ledger(10.0)
    work, rows = Work(fate=fate), []
    for copies in shown:
        entry = ledger.offer("t", 0, 0.0)
        work.entries.append(entry)
        if len(work.entries) <= len(shown) - cut_off:
            entry.accepted_at = 0.0
        rows += [Row("t", 0, len(rows) + n, entry.id) for n in range(copies)]
    verdict = Verdict()
    judge([work], rows, verdict)
    return verdict.wrong


@pytest.mark.parametrize(
    ("fate", "shown", "wrong"),
    [
        ("committed", [1, 1, 1], {}),
        ("committed", [1, 0, 1], {"lost": 1}),
        ("committed", [1, 2, 1], {"duplicates": 1}),
        ("aborted", [0, 0], {}),
        ("aborted", [0, 1], {"ghosts": 1}),
        ("open", [1, 1], {"ghosts": 2}),
        ("asked", [1, 1], {}),
        ("asked", [0, 0], {}),
        ("asked", [1, 0], {"torn": 1}),
        ("unclear", [0, 1], {"torn": 1}),
    ],
)
def test_all_of_a_committed_one_nothing_of_an_aborted_one_and_no_part_of_any_other(
    fate: str, shown: list[int], wrong: dict[str, int]
) -> None:
    assert judged(fate, shown) == wrong


@pytest.mark.parametrize("fate", ["committed", "asked"])
@pytest.mark.parametrize("copies", [0, 1])
def test_a_record_whose_produce_was_cut_off_may_belong_to_it_or_not(fate: str, copies: int) -> None:
    assert judged(fate, [1, 1, copies], cut_off=1) == {}


def test_a_record_whose_produce_was_cut_off_is_not_shown_alone() -> None:
    assert judged("asked", [0, 1], cut_off=1) == {"torn": 1}
