"""Commits of one member at the same time: what the group has never goes back, and none is taken for done that is not."""

from __future__ import annotations

import random
from uuid import UUID

import pytest

from gkafka.brokererrors import BrokerError, GroupAuthorizationFailed, GroupLoadInProgress, OffsetMetadataTooLarge
from gkafka.common import TopicPartition
from gkafka.core.commitqueue import Commit, CommitQueue, Passing
from gkafka.exceptions import KafkaException
from tests.effort import quick_and_thorough

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
AGAIN, NEVER, OF_THE_NOTE = GroupLoadInProgress(), GroupAuthorizationFailed(), OffsetMetadataTooLarge()
MANY = 1000


def joined(queue: CommitQueue, offset: int, *partitions: TopicPartition) -> Commit:
    commit = Commit(dict.fromkeys(partitions or (T0,), offset))
    begun(queue, commit)
    return commit


def begun(queue: CommitQueue, commit: Commit) -> None:
    queue.join(commit)
    commit.is_begun = True


def leave(queue: CommitQueue, commit: Commit) -> None:
    commit.is_over = True
    queue.drop()


def sent(queue: CommitQueue) -> dict[TopicPartition, int]:
    """Begin the next request; return what it carries."""
    return {tp: commit.offsets[tp] for tp, commit in queue.fill(queue.to_send(MANY)).items()}


def answered(queue: CommitQueue, error: KafkaException | None = None) -> dict[TopicPartition, int]:
    carried = sent(queue)
    queue.end(dict.fromkeys(carried, error))
    return carried


def test_a_request_carries_the_last_offset_of_each_partition() -> None:
    queue = CommitQueue()
    older, later = joined(queue, 10, T0, T1), joined(queue, 20)
    assert answered(queue) == {T0: 20, T1: 10}
    assert (older.left, later.left) == (set(), set())
    assert queue.has(T0, 20)
    assert not queue.has(T0, 10)


def test_a_commit_whose_caller_never_came_to_wait_is_carried_by_no_request() -> None:
    """He was interrupted, and its offset may be another member's business by now."""
    queue = CommitQueue()
    forsaken = Commit({T0: 10, T1: 10})
    queue.join(forsaken)
    assert queue.asked() == set()
    joined(queue, 5)
    assert answered(queue) == {T0: 5}
    assert forsaken.left == {T1}
    leave(queue, joined(queue, 7, T1))
    assert answered(queue) == {}
    joined(queue, 8, T1)
    assert answered(queue) == {T1: 8}
    assert forsaken not in queue.commits


def test_what_joins_while_a_request_is_under_way_is_not_answered_by_it() -> None:
    queue = CommitQueue()
    joined(queue, 10)
    assert sent(queue) == {T0: 10}
    later = joined(queue, 20)
    queue.end({T0: None})
    assert later.left == {T0}
    assert sent(queue) == {T0: 20}


def test_of_many_partitions_a_request_carries_as_many_as_it_may() -> None:
    queue = CommitQueue()
    commit = joined(queue, 10, T0, T1)
    assert queue.to_send(1) == [T0]
    queue.fill([T0])
    queue.end({T0: None})
    assert commit.unsent == queue.to_send(1) == [T1]


def test_what_the_group_has_of_a_later_one_is_not_sent_again() -> None:
    queue = CommitQueue()
    older = joined(queue, 10)
    answered(queue, AGAIN)
    later = joined(queue, 20)
    assert answered(queue) == {T0: 20}
    leave(queue, later)
    queue.ask(older)
    assert older.unsent == []
    assert older.errors == {}


@pytest.mark.parametrize("error", [AGAIN, None], ids=["refused for now", "lost"])
def test_one_that_may_have_been_taken_is_sent_in_place_of_an_earlier_one(error: KafkaException | None) -> None:
    queue = CommitQueue()
    older, later = joined(queue, 10), joined(queue, 20)
    sent(queue)
    queue.end({T0: error} if error is not None else {})
    assert later.unsure == {T0}
    leave(queue, later)
    queue.ask(older)
    assert answered(queue) == {T0: 20}
    assert older.left == set()


def test_one_whose_sender_was_interrupted_may_have_been_taken() -> None:
    queue = CommitQueue()
    older, later = joined(queue, 10), joined(queue, 20)
    sent(queue)
    leave(queue, later)
    assert answered(queue) == {T0: 20}
    leave(queue, older)
    assert queue.commits == []


@pytest.mark.parametrize("error", [NEVER, Passing("rebalancing")], ids=["never", "passing"])
def test_one_that_certainly_was_not_taken_is_as_if_it_had_never_been(error: KafkaException) -> None:
    queue = CommitQueue()
    joined(queue, 20)
    sent(queue)
    older, later = joined(queue, 30), queue.commits[0]
    queue.end({T0: error})
    leave(queue, later)
    assert (later.unsure, queue.commits) == (set(), [older])


def test_one_that_was_never_sent_leaves_nothing_behind() -> None:
    queue = CommitQueue()
    joined(queue, 10)
    leave(queue, joined(queue, 20))
    assert sent(queue) == {T0: 10}


def test_one_that_may_have_been_taken_stays_so_when_it_is_refused_afterwards() -> None:
    queue = CommitQueue()
    older, later = joined(queue, 10), joined(queue, 20)
    sent(queue)
    queue.end({})
    answered(queue, NEVER)
    leave(queue, later)
    assert older.errors == {T0: NEVER}
    assert later.unsure == {T0}


def test_an_error_reaches_those_that_asked_for_the_partition() -> None:
    queue = CommitQueue()
    other, older, later = joined(queue, 5, T1), joined(queue, 10), joined(queue, 20)
    carried = sent(queue)
    afterwards = joined(queue, 30)
    queue.end({tp: NEVER if tp == T0 else None for tp in carried})
    assert [commit.errors for commit in (other, older, later, afterwards)] == [{}, {T0: NEVER}, {T0: NEVER}, {}]


def test_the_error_of_a_note_is_told_to_whoever_gave_it() -> None:
    queue = CommitQueue()
    older, later = joined(queue, 10), joined(queue, 20)
    answered(queue, OF_THE_NOTE)
    assert (older.errors, later.errors) == ({}, {T0: OF_THE_NOTE})
    assert answered(queue) == {T0: 10}


def test_what_must_not_be_sent_is_told_and_the_rest_is_sent() -> None:
    queue = CommitQueue()
    commit = joined(queue, 10, T0, T1)
    queue.refuse({T0: NEVER})
    assert answered(queue) == {T1: 10}
    queue.ask(commit)
    assert (commit.unsent, commit.errors) == ([], {T0: NEVER})


def test_what_goes_with_an_offset_goes_with_the_one_that_is_carried() -> None:
    queue, ids = CommitQueue(), [UUID(int=n) for n in range(2)]
    begun(queue, Commit({T0: 10, T1: 11}, notes={T0: "a", T1: "b"}, epochs={T0: 1, T1: 2}, topic_ids={T0: ids[0], T1: ids[0]}))
    begun(queue, Commit({T1: 21}, notes={T1: "c"}, topic_ids={T1: ids[1]}))
    carried = queue.fill([T0, T1])
    assert {tp: (commit.notes[tp], commit.epochs.get(tp), commit.topic_ids[tp]) for tp, commit in carried.items()} == {
        T0: ("a", 1, ids[0]),
        T1: ("c", None, ids[1]),
    }


def test_a_lost_answer_leaves_it_open_what_the_group_has() -> None:
    queue = CommitQueue()
    joined(queue, 10)
    answered(queue)
    again = joined(queue, 10)
    assert again.known == {T0}
    joined(queue, 20)
    sent(queue)
    queue.end({})
    assert not queue.has(T0, 10)
    assert not queue.has(T0, 20)
    answered(queue)
    assert queue.has(T0, 20)
    queue.forget([T0])
    assert not queue.has(T0, 20)


def test_the_applications_commits_are_told_apart_from_those_in_the_background() -> None:
    queue, basis = CommitQueue(), object()
    begun(queue, Commit({T0: 10}, is_asked=False, basis=basis))
    begun(queue, Commit({T1: 10}, basis=basis))
    assert queue.asked() == queue.asked(basis) == {T1}
    assert queue.asked(object()) == set()
    answered(queue)
    assert queue.asked() == set()


@pytest.mark.parametrize("schedules", quick_and_thorough(500, 20_000))
def test_in_any_order_the_group_never_goes_back_and_no_success_is_false(schedules: int) -> None:
    """Answers are lost, senders are interrupted, the group refuses, calls end at any moment."""
    for seed in range(schedules):
        play(random.Random(seed))


def play(chance: random.Random) -> None:
    queue, group = CommitQueue(), {T0: 0, T1: 0}
    calls: list[Commit] = []
    under_way: dict[TopicPartition, Commit] | None = None
    answers: dict[TopicPartition, BrokerError | None] = {}
    for step in range(1, 60):
        what = chance.choice(["join", "join", "ask", "send", "answer", "answer", "leave"])
        if what == "join":
            calls.append(joined(queue, step, *chance.choice([(T0,), (T1,), (T0, T1)])))
        elif what == "ask" and calls:
            queue.ask(chance.choice(calls))
        elif what == "send" and (under_way is None or chance.random() < 0.2):
            under_way = queue.fill(queue.to_send(chance.choice([1, MANY])))
            answers = {tp: answer(chance, commit.offsets[tp]) for tp, commit in under_way.items()}
            for tp, commit in under_way.items():
                assert commit.offsets[tp] >= group[tp], "the group goes back"
                if answers[tp] is None or (answers[tp] is AGAIN and chance.random() < 0.5):
                    group[tp] = commit.offsets[tp]
        elif what == "answer" and under_way is not None:
            queue.end(answers if chance.random() < 0.7 else {})
            under_way = None
        elif what == "leave" and calls:
            leave(queue, calls.pop(chance.randrange(len(calls))))
        for commit in calls:
            for tp in commit.offsets.keys() - commit.left - commit.errors.keys():
                assert group[tp] >= commit.offsets[tp], "it is told to be committed"
    for commit in calls:
        leave(queue, commit)
    queue.end({})
    assert queue.commits == []


def answer(chance: random.Random, offset: int) -> BrokerError | None:
    """What a broker says to an offset, the same each time if it refuses it for good."""
    return NEVER if offset % 7 == 0 else chance.choice([None, None, AGAIN])
