"""Leader epochs (KIP-320): a new leader is asked whether it has what was read, and nothing is skipped in silence."""

from __future__ import annotations

import logging
import pickle

import pytest

from gkafka.core.positions import State
from gkafka.exceptions import (
    LogTruncationError,
    SocketDisconnectedError,
    TopicAuthorizationFailed,
    UnsupportedVersion,
)
from tests.core.fetchrig import FENCED, NEVER, NOT_LEADER, UNAUTHORIZED, UNKNOWN_EPOCH, Rig, data, offsets, partitions
from tests.records.handmade import values

CLUSTER_UNAUTHORIZED = 31


def read(rig: Rig, upto: int, *, epoch: int = 1, consumed: int | None = None) -> None:
    """Fetch records 0 to upto, written in this epoch; all of them, or those before `consumed`, are handed out."""
    rig.round(values(upto, leader_epoch=epoch))
    rig[0].consumed, rig[0].consumed_epoch = upto if consumed is None else consumed, epoch


def moved(rig: Rig, epoch: int = 5) -> None:
    rig.metadata.leader_moved("t", 0, 2, epoch)


def test_a_new_leader_is_asked_where_the_epoch_of_the_last_batch_ended() -> None:
    rig = Rig()
    read(rig, 10)
    moved(rig)
    plan = rig.poll()
    (check,) = plan.checks
    assert (plan.fetches, check.broker_id, check.request.replica_id) == ([], 2, -1)
    part = check.request.topics[0].partitions[0]
    assert (part.partition, part.current_leader_epoch, part.leader_epoch) == (0, 5, 1)
    assert rig.poll().checks == [], "it is asked once"


@pytest.mark.parametrize("end", [10, 11])
def test_a_leader_that_has_everything_is_fetched_from(end: int) -> None:
    rig = Rig()
    read(rig, 10)
    moved(rig)
    assert rig.checked(rig.check(), {0: (1, end)}) == []
    assert rig.ask().request.topics[0].partitions[0].fetch_offset == 10
    assert (rig.errors, rig[0].consumed) == ([], 10)
    assert rig.poll().checks == []


def test_nobody_is_asked_where_nothing_was_read_or_whoever_wrote_it_leads() -> None:
    rig = Rig()
    moved(rig)
    assert rig.poll().checks == [], "a position that a user gave has no epoch"
    rig = Rig()
    rig[0].seek(10, 1)
    assert rig.poll().checks == [], "the leader of epoch 1 wrote it"
    rig = Rig()
    rig[0].seek(10, 0)
    assert rig.poll().checks != []


def test_a_start_that_was_looked_up_is_the_leaders_word() -> None:
    rig = Rig(start=None)
    rig.looked_up(rig.lookup(), {0: 10})
    assert [len(x) for x in rig.poll()[:3]] == [1, 0, 0]


def test_what_was_not_handed_out_yet_is_fetched_again_and_nothing_is_lost(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    rig = Rig(reset_policy=None)
    read(rig, 10, consumed=4)
    moved(rig)
    assert rig.checked(rig.check(), {0: (1, 7)}) == [0]
    assert (rig[0].fetch_offset, rig[0].consumed, rig[0].buffered, rig.errors) == (4, 4, 0, [])
    rig.checked(rig.check(), {0: (1, 7)})
    assert offsets(rig.round(values(7, leader_epoch=1) + values(3, base_offset=7, leader_epoch=5))) == [4, 5, 6, 7, 8, 9]
    assert caplog.records == []


def test_without_a_policy_lost_records_are_an_error_that_names_them() -> None:
    rig = Rig(reset_policy=None)
    read(rig, 10)
    moved(rig)
    assert rig.checked(rig.check(), {0: (1, 7)}) == [0]
    (error,) = rig.errors
    assert isinstance(error, LogTruncationError)
    assert (error.topic, error.partition, error.offset, error.diverging_offset) == ("t", 0, 10, 7)
    assert error.lost == range(7, 10)
    assert "the records from offset 7 to 9, which were consumed, are lost" in str(error)
    assert rig[0].state is State.HALTED
    plan = rig.poll()
    assert (plan.fetches, plan.checks, plan.deadline) == ([], [], NEVER)
    assert rig[0].consumed == 10, "nothing moves before the application has decided"
    assert pickle.loads(pickle.dumps(error)).lost == range(7, 10)
    rig[0].seek(7)
    assert rig.ask().request.topics[0].partitions[0].fetch_offset == 7


@pytest.mark.parametrize("policy", [-2, -1])
def test_with_a_policy_it_goes_on_where_the_logs_part_and_says_so(policy: int, caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig(reset_policy=policy)
    read(rig, 10)
    moved(rig)
    assert rig.checked(rig.check(), {0: (1, 7)}) == [0]
    assert (rig[0].fetch_offset, rig[0].consumed, rig.errors) == (7, 7, [])
    assert rig.fetcher.lookups.truncations == 1
    (line,) = [r for r in caplog.records if r.levelno == logging.ERROR]
    assert "the records from offset 7 to 9" in line.getMessage()
    assert "going on from offset 7" in line.getMessage()
    rig.checked(rig.check(), {0: (1, 7)})
    assert offsets(rig.round(values(2, base_offset=7, leader_epoch=5))) == [7, 8]
    assert rig.fetcher.lookups.truncations == 1


def test_a_leader_that_knows_no_such_epoch_means_the_policy() -> None:
    rig = Rig(reset_policy=-1)
    read(rig, 10)
    moved(rig)
    assert rig.checked(rig.check(), {0: (-1, -1)}) == [0]
    assert rig.lookup().request.topics[0].partitions[0].timestamp == -1
    rig = Rig(reset_policy=None)
    read(rig, 10)
    moved(rig)
    rig.checked(rig.check(), {0: (-1, -1)})
    (error,) = rig.errors
    assert isinstance(error, LogTruncationError)
    assert (error.diverging_offset, error.lost) == (-1, range(10))
    assert "knows nothing of epoch 1" in str(error)


@pytest.mark.parametrize("code", [FENCED, UNKNOWN_EPOCH, NOT_LEADER])
def test_errors_that_pass_settle_nothing(code: int) -> None:
    rig = Rig(reset_policy=-1)
    read(rig, 10)
    moved(rig)
    rig.checked(rig.check(), {0: (-1, -1)}, code=code)
    assert rig.stale
    assert (rig[0].consumed, rig[0].fetch_offset, rig.errors, rig.poll().checks) == (10, 10, [], [])
    rig.now = rig.poll().deadline
    assert rig.check().broker_id == 2


def test_an_error_for_good_is_told() -> None:
    rig = Rig()
    read(rig, 10)
    moved(rig)
    rig.checked(rig.check(), {0: (-1, -1)}, code=UNAUTHORIZED)
    assert [type(e) for e in rig.errors] == [TopicAuthorizationFailed]
    assert rig[0].trouble is rig.errors[0]
    rig.now = rig.poll().deadline
    rig.checked(rig.check(), {0: (1, 100)})
    assert (rig[0].state, rig[0].trouble) == (State.FETCHING, None)


def test_brokers_that_cannot_be_asked_are_fetched_from() -> None:
    rig = Rig()
    read(rig, 10)
    moved(rig)
    assert rig.take_check(rig.check(), None, UnsupportedVersion("no such API")) == []
    assert len(rig.asked()) == 1
    rig = Rig()
    read(rig, 10)
    moved(rig)
    rig.checked(rig.check(), {0: (-1, -1)}, code=CLUSTER_UNAUTHORIZED)
    assert len(rig.asked()) == 1
    assert rig.errors == []


def test_a_lost_answer_and_one_that_leaves_the_partition_out_are_asked_for_again() -> None:
    rig = Rig()
    read(rig, 10)
    moved(rig)
    rig.take_check(rig.check(), None, SocketDisconnectedError("gone"))
    rig.now = rig.poll().deadline
    rig.checked(rig.check(), {})
    rig.now = rig.poll().deadline
    rig.checked(rig.check(), {0: (1, 10)})
    assert len(rig.asked()) == 1


def test_a_seek_during_the_check_wins() -> None:
    rig = Rig(reset_policy=None)
    read(rig, 10)
    moved(rig)
    check = rig.check()
    rig[0].seek(3)
    assert rig.checked(check, {0: (1, 7)}) == []
    assert (rig[0].fetch_offset, rig.errors) == (3, [])


def test_what_the_old_leader_answers_meanwhile_is_dropped() -> None:
    """It may be what the new one does not have."""
    rig = Rig()
    read(rig, 10)
    old = rig.ask()
    moved(rig)
    check = rig.check()
    assert rig.answer(old, {0: values(2, base_offset=10, leader_epoch=1)}) == []
    rig.checked(check, {0: (1, 10)})
    assert rig[0].fetch_offset == 10


def test_only_the_partition_that_moved_is_checked() -> None:
    rig = Rig({0: 1, 1: 1})
    rig.answer(rig.ask(), {0: values(3, leader_epoch=1), 1: values(3, leader_epoch=1)})
    moved(rig)
    plan = rig.poll()
    assert [partitions(asked) for asked in plan.fetches] == [[1]]
    assert len(plan.checks) == 1


def test_batches_of_before_leader_epochs_are_not_checked() -> None:
    rig = Rig()
    rig.round(values(3, leader_epoch=-1))
    moved(rig)
    assert rig.poll().checks == []


def test_a_check_that_failed_is_not_forgotten_when_the_leader_moves_on() -> None:
    rig = Rig()
    read(rig, 10)
    moved(rig)
    check = rig.check()
    rig.metadata.leader_moved("t", 0, 3, 6)
    rig.checked(check, {0: (-1, -1)}, code=NOT_LEADER)
    rig.now = rig.poll().deadline
    again = rig.check()
    assert (again.broker_id, again.request.topics[0].partitions[0].current_leader_epoch) == (3, 6)


def test_a_leader_that_was_replaced_after_it_answered_leaves_the_next_one_to_be_asked() -> None:
    rig = Rig()
    read(rig, 10)
    moved(rig)
    check = rig.check()
    rig.metadata.leader_moved("t", 0, 3, 6)
    rig.checked(check, {0: (1, 10)})
    assert rig.check().broker_id == 3


def test_a_stated_high_watermark_below_the_position_is_no_truncation() -> None:
    rig = Rig(reset_policy=None)
    read(rig, 10)
    assert rig.round(data(0, b"", high_watermark=3)) == []
    assert (rig.errors, rig[0].fetch_offset) == ([], 10)
