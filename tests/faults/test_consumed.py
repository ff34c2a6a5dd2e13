"""The judge of consumers' diaries finds each defect, and none where there is none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.faults.consumed import DAMAGED, STRANGER, Diary, Findings, Notes, Place, Story, judge, takeover, unfolded
from tests.faults.ledger import Row

HERE: Place = ("t", 0)
ROWS = [Row("t", 0, offset, 100 + offset) for offset in (0, 1, 2, 4, 5)]  # 3 is a commit marker
END = 100.0


class Writing:
    """A diary that is being written. Each step takes a second."""

    def __init__(self, folder: Path, name: str, now: float = 0.0) -> None:
        self.path, self.notes, self.now = folder / name, Notes(str(folder / name)), now

    def step(self) -> float:
        self.now += 1.0
        return self.now

    def assigned(self) -> Writing:
        self.notes.assigned(self.step(), [HERE])
        return self

    def revoked(self) -> Writing:
        self.notes.revoked(self.step(), [HERE])
        return self

    def lost(self) -> Writing:
        self.notes.lost(self.step(), [HERE])
        return self

    def read(self, *offsets: int, id: int | None = None) -> Writing:
        at = self.step()
        self.notes.read(at - 0.5, at, [("t", 0, offset, 100 + offset if id is None else id, at - 0.75) for offset in offsets])
        return self

    def commit(self, offset: int, error: str = "") -> Writing:
        at = self.step()
        self.notes.committed(at - 0.5, at, {HERE: offset}, error)
        return self

    def diary(self, killed: float | None = None) -> Diary:
        return Diary.load(self.path, killed)


def judged(*diaries: Diary, log: Any = (6,), rows: list[Row] = ROWS, clean: bool = True) -> Findings:
    return judge(diaries, Story(rows, [(HERE, offset) for offset in log], 0.0, END, clean))


@pytest.fixture
def one(tmp_path: Path) -> Writing:
    return Writing(tmp_path, "one").assigned()


def other(tmp_path: Path, now: float) -> Writing:
    return Writing(tmp_path, "other", now).assigned()


def test_a_group_that_did_everything_right_has_no_defect(one: Writing, tmp_path: Path) -> None:
    one.read(0, 1).commit(2).revoked()
    two = other(tmp_path, one.now).read(2, 4, 5).commit(6).revoked()
    found = judged(one.diary(), two.diary(), log=(2, 6))
    assert (found.wrong, found.read, found.dup, found.visible, found.commits) == ({}, 5, 0, 5, 2)


def test_a_position_beyond_control_records_is_right(one: Writing) -> None:
    assert judged(one.read(0, 1, 2).diary(), log=(4,), rows=ROWS[:3]).wrong == {}


def test_what_nobody_was_handed_is_lost_and_its_partition_stuck_at_the_end(one: Writing) -> None:
    assert judged(one.read(0, 1, 2, 4).diary(), log=(5,)).wrong == {"lost": 1, "stuck": 1}


def test_what_a_term_passes_over_is_a_skip(one: Writing, tmp_path: Path) -> None:
    one.read(0, 4)
    one.revoked()
    two = other(tmp_path, one.now).read(1, 2, 4, 5)
    assert judged(one.diary(), two.diary()).wrong == {"skips": 2}


def test_what_a_term_hands_out_again_is_a_repeat_and_what_a_later_one_does_is_not(one: Writing) -> None:
    assert judged(one.read(0, 1, 1, 2, 4, 5).diary()).wrong == {"repeats": 1}
    found = judged(one.revoked().assigned().read(1, 2, 4, 5).diary())
    assert (found.wrong, found.dup) == ({"repeats": 1}, 5)


def test_what_was_committed_before_a_term_is_not_handed_out_in_it(one: Writing, tmp_path: Path) -> None:
    one.read(0, 1, 2).commit(4).revoked()
    two = other(tmp_path, one.now).read(1, 2, 4, 5)
    assert judged(one.diary(), two.diary()).wrong == {"rewound": 2}


def test_a_commit_that_failed_holds_nobody_to_it(one: Writing, tmp_path: Path) -> None:
    one.read(0, 1, 2).commit(4, "KafkaTimeoutError").revoked()
    two = other(tmp_path, one.now).read(0, 1, 2, 4, 5)
    found = judged(one.diary(), two.diary())
    assert (found.wrong, found.errors) == ({}, {"commit: KafkaTimeoutError": 1})


def test_an_error_before_the_faults_time_is_none_of_the_faults(one: Writing) -> None:
    diary = one.commit(0, "CommitFailedError").read(0, 1, 2, 4, 5).commit(6, "KafkaTimeoutError").diary()
    assert judge([diary], Story(ROWS, [(HERE, 6)], 3.0, END)).errors == {"commit: KafkaTimeoutError": 1}


def test_aborted_and_control_records_are_strangers_and_other_bytes_are_damage(one: Writing) -> None:
    one.read(0, 1, 2).read(3).read(4, 5)
    assert judged(one.diary()).wrong == {"strangers": 1}
    assert judged(one.read(6, id=STRANGER).read(7, id=DAMAGED).diary(), log=(8,)).wrong == {"strangers": 2, "damaged": 1}


def test_another_record_at_an_offset_is_damage(one: Writing) -> None:
    assert judged(one.read(0, 1, 2, 4).read(5, id=17).diary()).wrong == {"damaged": 1}


def test_whoever_goes_on_after_another_began_makes_two_owners(one: Writing, tmp_path: Path) -> None:
    one.read(0)
    two = other(tmp_path, one.now)  # began a second later
    one.now += 3
    one.read(1).lost()
    found = judged(one.diary(), two.read(1, 2, 4, 5).diary())
    assert (found.wrong, found.longest_double_ms) == ({"double_ms": 2500.0}, 2500.0)


def test_what_a_call_hands_out_that_began_before_another_had_the_partition_makes_no_two_owners(one: Writing, tmp_path: Path) -> None:
    """Its process stood still in between."""
    two = other(tmp_path, one.now).read(1, 2, 4, 5)
    one.notes.read(one.now + 0.5, one.now + 9, [("t", 0, 0, 100, one.now)])
    one.now += 9
    assert judged(one.lost().diary(), two.diary()).wrong == {}


def test_a_member_that_lost_its_partition_and_used_it_no_more_makes_no_two_owners(one: Writing, tmp_path: Path) -> None:
    one.read(0)
    two = other(tmp_path, one.now).read(1, 2, 4, 5)
    one.now += 10
    assert judged(one.lost().diary(), two.diary()).wrong == {}


def test_what_is_handed_out_or_committed_after_the_end_of_a_term_is_late(one: Writing) -> None:
    one.read(0, 1, 2, 4).revoked().read(5).commit(6)
    assert judged(one.diary()).wrong == {"late_reads": 1, "late_commits": 1}


def test_what_a_call_hands_out_that_began_before_the_end_of_a_term_is_late_only_where_such_calls_are_awaited(
    one: Writing, tmp_path: Path
) -> None:
    two = Writing(tmp_path, "two").assigned()
    for member, awaited in ((one, True), (two, False)):
        member.read(0, 1, 2, 4)
        member.notes.revoked(member.now + 0.75, [HERE], awaited=awaited)
        member.read(5)
    assert judged(one.diary()).wrong == {"late_reads": 1}
    assert judged(two.diary()).wrong == {}


def test_whoever_was_never_given_a_partition_is_late_at_once(tmp_path: Path) -> None:
    assert judged(Writing(tmp_path, "one").read(0, 1, 2, 4, 5).diary()).wrong == {"late_reads": 5}


def test_commits_that_fall_are_regressions(one: Writing) -> None:
    assert judged(one.read(0, 1, 2, 4, 5).diary(), log=(2, 5, 4, 6)).wrong == {"regressions": 1}


@pytest.mark.parametrize(("log", "wrong"), [((), 1), ((5,), 1), ((6,), 0), ((7,), 0)])
def test_the_last_commit_of_a_clean_stop_is_where_the_group_stands(one: Writing, log: tuple[int, ...], wrong: int) -> None:
    assert judged(one.read(0, 1, 2, 4, 5).diary(), log=log).mispositioned == wrong
    assert judged(one.diary(), log=log, clean=False).mispositioned == 0


def test_a_commit_beyond_what_was_read_is_wrong(one: Writing) -> None:
    assert judged(one.read(0, 1).diary(), log=(5,)).wrong == {"lost": 3, "stuck": 1, "mispositioned": 1}


def test_times_are_those_of_the_fault(one: Writing, tmp_path: Path) -> None:
    one.read(0, 1)  # at 2
    two = other(tmp_path, 12.0).read(2, 4, 5)
    found = judged(one.diary(killed=5.0), two.diary(killed=END))
    assert (found.unowned_s, found.stall_s, found.rebalances) == (8.0, 0.75, 1)
    assert takeover([one.diary(), two.diary()], "one", 5.0) == takeover([one.diary(killed=5.0), two.diary()], "one", 5.0) == 8.0
    assert takeover([one.diary()], "one", 5.0) == float("inf")
    assert takeover([two.diary()], "one", 5.0) == 0.0


def test_a_note_that_was_cut_off_by_the_end_of_its_process_is_left_out(tmp_path: Path) -> None:
    diary = Diary("one", ['["assigned", 1.0, [["t", 0]]]\n', '["read", 1.0, 2.0, [["t", 0, '])
    assert (len(diary.terms[HERE]), diary.reads) == (1, [])


# -- offsets that begin anew ---------------------------------------------------------------------------------------------------
ANEW = {"t": [200]}
"""Ids from 200 on were written after the topic was made again, or cut."""


def judged_anew(diary: Writing, rows: list[Row], log: list[int]) -> Findings:
    story = Story([unfolded(row, ANEW) for row in rows], [(HERE, offset) for offset in log], 0.0, END, eras=ANEW)
    return judge([Diary.load(diary.path, eras=ANEW)], story)


def made_again(*offsets: int) -> list[Row]:
    return [*ROWS, *(Row("t", 0, offset, 200 + offset) for offset in offsets)]


def test_a_topic_that_was_made_again_is_read_from_its_start_without_repeating_anything(one: Writing) -> None:
    one.read(0, 1, 2, 4, 5).commit(6).read(0, id=200).read(1, id=201).commit(2)
    assert judged_anew(one, made_again(0, 1), [6, -1, 2]).wrong == {}


def test_whoever_goes_on_at_the_old_offset_of_a_topic_that_was_made_again_loses_what_is_before_it(one: Writing) -> None:
    one.read(0, 1, 2, 4, 5).commit(6).read(6, id=206)
    assert judged_anew(one, made_again(0, 6), [6, -1, 7]).wrong == {"lost": 1, "skips": 1}


def test_an_old_offset_that_is_committed_for_the_new_topic_is_a_regression(one: Writing) -> None:
    one.read(0, 1, 2, 4, 5).commit(6).read(0, id=200).commit(1)
    assert judged_anew(one, made_again(0), [5, -1, 6, 1]).wrong == {"regressions": 1}


def test_a_log_that_was_cut_is_read_on_from_there_and_its_commits_may_fall_once(one: Writing) -> None:
    one.read(0, 1, 2, 4, 5).commit(6).read(4, id=204).read(5, id=205).commit(6)
    assert judged_anew(one, made_again(4, 5), [6, 5, 6]).wrong == {}
    assert judged_anew(one, made_again(4, 5), [6, 5, 6, 4, 6]).wrong == {"regressions": 1}


def test_what_was_written_over_what_was_cut_is_lost_for_whoever_does_not_go_back(one: Writing) -> None:
    one.read(0, 1, 2, 4, 5).commit(6).read(6, id=206)
    assert judged_anew(one, made_again(4, 5, 6), [6, 7]).wrong == {"lost": 2, "skips": 2}


def test_what_a_member_was_told_of_a_cut_log_is_kept(one: Writing) -> None:
    one.notes.cut(one.step(), HERE, range(4, 6))
    assert one.diary().cuts == [(HERE, range(4, 6))]
