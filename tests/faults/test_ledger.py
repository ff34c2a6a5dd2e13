"""The checker finds each defect that it exists for, in histories written by hand, and nothing in a clean one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.ledger import Entry, Ledger, Row, check, stall

TIMEOUT_S = 10.0


def history(count: int = 6, partitions: int = 2) -> tuple[Ledger, list[Row]]:
    """Records 0..count-1, dealt out over the partitions, each acknowledged after 10 ms and in the log at its offset."""
    ledger, log = Ledger(TIMEOUT_S), []
    for i in range(count):
        entry = ledger.offer("t", i % partitions, i / 1000)
        entry.accepted_at = entry.offered_at
        ledger.resolve(entry, entry.offered_at + 0.01, offset=i // partitions)
        log.append(Row("t", entry.partition, entry.offset, entry.id))
    return ledger, sorted(log)


def test_a_clean_history_has_no_defect() -> None:
    ledger, log = history()
    verdict = check(ledger, log, log)
    assert verdict.wrong == {}
    assert (verdict.produced, verdict.acknowledged) == (6, 6)


def test_an_acknowledged_record_that_is_not_in_the_log_is_lost() -> None:
    ledger, log = history()
    assert check(ledger, log[:-1]).wrong == {"lost": 1}


def test_an_acknowledged_record_of_a_deleted_topic_is_not_asked_for() -> None:
    ledger, log = history()
    assert check(ledger, log[:-1], must_stay=lambda entry: entry.id != log[-1].id).wrong == {}


def test_an_acknowledged_record_at_another_offset_is_misplaced() -> None:
    ledger, log = history()
    ledger.entries[log[-1].id].offset += 1
    assert check(ledger, log).wrong == {"misplaced": 1}


def test_a_record_in_another_partition_is_misplaced() -> None:
    ledger, log = history(1)
    assert check(ledger, [log[0]._replace(partition=1)]).wrong == {"misplaced": 1}


def test_an_acknowledgement_without_an_offset_is_one_all_the_same() -> None:
    ledger, log = history()
    ledger.entries[0].offset = -1
    assert check(ledger, log).wrong == {}


def test_a_second_copy_is_a_duplicate_and_no_inversion() -> None:
    ledger, log = history(4, 1)
    assert check(ledger, [*log, log[0]._replace(offset=4)]).wrong == {"duplicates": 1}


def test_a_copy_in_another_partition_is_a_duplicate() -> None:
    ledger, log = history(2, 2)
    assert check(ledger, [*log, log[0]._replace(partition=1, offset=1)]).wrong == {"duplicates": 1}


def test_a_later_record_before_an_earlier_one_is_an_inversion() -> None:
    ledger, log = history(4, 1)
    swapped = [log[0], log[2]._replace(offset=1), log[1]._replace(offset=2), log[3]]
    for row in swapped:
        ledger.entries[row.id].offset = row.offset
    assert check(ledger, swapped).wrong == {"inversions": 1}


def test_lanes_promise_no_order_among_each_other() -> None:
    ledger, log = history(2, 1)
    ledger.entries[1].lane = 1
    swapped = [log[1]._replace(offset=0), log[0]._replace(offset=1)]
    for row in swapped:
        ledger.entries[row.id].offset = row.offset
    assert check(ledger, swapped).wrong == {}


def test_a_delivery_without_an_outcome_is_unresolved() -> None:
    ledger, log = history()
    entry = ledger.offer("t", 0, 1.0)
    entry.accepted_at = 1.0
    assert check(ledger, log).wrong == {"unresolved": 1}


@pytest.mark.parametrize(("after", "unresolved"), [(TIMEOUT_S + 0.9, {}), (TIMEOUT_S + 1.1, {"unresolved": 1})])
def test_an_outcome_later_than_the_timeout_and_a_second_is_none(after: float, unresolved: dict[str, int]) -> None:
    ledger, log = history(1)
    entry = ledger.entries[0]
    assert entry.accepted_at is not None
    entry.resolved_at = entry.accepted_at + after
    assert check(ledger, log).wrong == unresolved


@pytest.mark.parametrize(("persisted", "wrong"), [("no", {"ghosts": 1}), ("maybe", {}), ("", {})])
def test_a_record_that_failed_as_not_persisted_must_not_be_there(persisted: str, wrong: dict[str, int]) -> None:
    ledger, log = history()
    ledger.entries[3].error, ledger.entries[3].persisted = "KafkaTimeoutError", persisted
    verdict = check(ledger, log)
    assert verdict.wrong == wrong
    assert (verdict.failed_no, verdict.failed_maybe) == ((1, 0) if persisted == "no" else (0, 1))


def test_a_record_that_was_refused_must_not_be_there() -> None:
    ledger, log = history()
    entry = ledger.offer("t", 0, 1.0)
    entry.refused, entry.error = True, "BufferFull"
    verdict = check(ledger, log)
    assert verdict.wrong == {}
    assert (verdict.refused, verdict.failed_no, verdict.failed_maybe, verdict.errors) == (1, 0, 0, {"BufferFull": 1})
    assert check(ledger, [*log, Row("t", 0, 3, entry.id)]).wrong == {"ghosts": 1}


@pytest.mark.parametrize("there", [False, True])
def test_a_call_that_was_cut_off_may_have_written_its_record_or_not(there: bool) -> None:
    ledger, log = history()
    entry = ledger.offer("t", 0, 1.0)
    verdict = check(ledger, [*log, Row("t", 0, 3, entry.id)] if there else log)
    assert verdict.wrong == {}
    assert verdict.cut_off == 1


def test_a_record_that_nobody_produced_is_a_stranger() -> None:
    ledger, log = history()
    assert check(ledger, [*log, Row("t", 0, 3, -1), Row("t", 0, 4, 999)]).wrong == {"strangers": 2}


def test_a_delivery_that_is_resolved_twice_is_repeated_and_keeps_its_first_outcome() -> None:
    ledger, log = history()
    ledger.resolve(ledger.entries[0], 5.0, error="KafkaTimeoutError", persisted="no")
    assert check(ledger, log).wrong == {"repeated": 1}


def test_a_record_that_read_committed_does_not_show_is_hidden() -> None:
    ledger, log = history()
    assert check(ledger, log, log[1:]).wrong == {"hidden": 1}


def entry(offered: float, resolved: float, partition: int = 0) -> Entry:
    return Entry(0, "t", partition, 0, offered, offered, resolved_at=resolved)


def test_a_stall_is_the_longest_wait_of_a_partition_that_owed_an_acknowledgement() -> None:
    assert stall([]) == 0.0
    assert stall([entry(1.0, 1.5)]) == 0.5
    assert stall([entry(1.0, 1.25), entry(1.0, 4.25)]) == 3.0
    assert stall([entry(1.0, 1.25), entry(9.0, 9.5)]) == 0.5, "nothing was owed between 1.25 and 9"
    assert stall([entry(1.0, 1.25), entry(1.0, 4.25), entry(1.5, 1.75, 1)]) == 3.0, "other partitions go on meanwhile"
    assert stall([entry(1.0, 4.0), entry(2.0, 4.0), entry(3.0, 4.0)]) == 3.0, "the oldest that waits counts"
    failed = entry(2.0, 5.0)
    failed.error = "KafkaTimeoutError"
    assert stall([entry(1.0, 1.5), failed, entry(6.0, 6.5)]) == 4.5, "one that failed was owed an acknowledgement since 2.0"


def test_the_stall_of_a_run_is_that_of_its_fault() -> None:
    ledger, log = history(2, 2)
    ledger.entries[0].resolved_at = 9.0
    assert check(ledger, log).stall_s == 9.0
    assert check(ledger, log, since=0.0005).stall_s == 0.01, "starting is none of it"
    assert check(ledger, log, must_stay=lambda entry: entry.id == 1).stall_s == 0.01, "nor is a topic that was deleted"


def test_a_ledger_is_what_was_saved(tmp_path: Path) -> None:
    ledger, log = history()
    ledger.offer("other", 3, 2.5, lane=7)
    ledger.save(tmp_path / "ledger")
    again = Ledger.load(tmp_path / "ledger")
    assert again.entries == ledger.entries
    assert again.timeout_s == TIMEOUT_S
    assert check(again, log) == check(ledger, log)


def test_a_verdict_is_one_line_of_json() -> None:
    ledger, log = history()
    line = check(ledger, log).line(fault="F01", seed=7)
    assert "\n" not in line
    assert line.startswith('{"fault": "F01", "seed": 7, "produced": 6, "acknowledged": 6,')
