"""Commits of one group at the same time: what the group has never goes back, and none is taken for done that is not."""

from __future__ import annotations

import random
from collections import deque
from uuid import UUID

import pytest

from gkafka.brokererrors import BrokerError, GroupLoadInProgress, OffsetMetadataTooLarge
from gkafka.common import TopicPartition
from gkafka.core.commitorder import Commit, CommitOrder, Load
from tests.effort import quick_and_thorough

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
AGAIN, NEVER = GroupLoadInProgress(), OffsetMetadataTooLarge()


def begun(order: CommitOrder, number: int, *partitions: TopicPartition) -> Commit:
    commit = Commit(number, dict.fromkeys(partitions or (T0,), number * 10))
    order.begin(commit)
    return commit


def sent(order: CommitOrder, commit: Commit) -> Load:
    load = order.load(commit, commit.offsets)
    order.send(load)
    return load


def carried(load: Load) -> dict[TopicPartition, int]:
    return {tp: offset for tp, (offset, _) in load.offsets.items()}


def to_send(order: CommitOrder, commit: Commit) -> int | None:
    return carried(order.load(commit, [T0])).get(T0)


def answered(order: CommitOrder, commit: Commit, error: BrokerError | None = None) -> None:
    order.answer(sent(order, commit), {T0: error})


def test_a_commit_carries_a_later_one_that_is_not_answered() -> None:
    order = CommitOrder()
    older, later = begun(order, 1, T0, T1), begun(order, 2)
    assert carried(sent(order, older)) == {T0: 20, T1: 10}
    assert carried(sent(order, later)) == {T0: 20}


def test_what_the_group_has_of_a_later_one_is_not_sent_again() -> None:
    order = CommitOrder()
    older, later = begun(order, 1), begun(order, 2)
    answered(order, later)
    assert to_send(order, older) is None
    order.end(later)
    assert to_send(order, older) is None


@pytest.mark.parametrize("late", [False, True])
def test_the_later_one_may_be_over_when_the_older_one_begins(late: bool) -> None:
    order = CommitOrder()
    older = begun(order, 1) if not late else Commit(1, {T0: 10})
    later = begun(order, 2)
    sent(order, later)
    order.end(later)
    if late:
        order.begin(older)
    assert to_send(order, older) == later.offsets[T0]


def test_one_that_certainly_was_not_committed_is_as_if_it_had_never_been() -> None:
    order = CommitOrder()
    older, unsent, refused = begun(order, 1), begun(order, 2), begun(order, 3)
    answered(order, refused, NEVER)
    order.end(refused)
    assert to_send(order, older) == unsent.offsets[T0]
    order.end(unsent)
    assert to_send(order, older) == older.offsets[T0]


def test_one_that_was_refused_for_now_may_have_been_committed_before() -> None:
    order = CommitOrder()
    older, later = begun(order, 1), begun(order, 2)
    answered(order, later, AGAIN)
    order.end(later)
    assert to_send(order, older) == later.offsets[T0]


def test_one_that_another_has_carried_is_committed() -> None:
    order = CommitOrder()
    older, later = begun(order, 1), begun(order, 2)
    answered(order, older)
    assert (older.outcome.taken, older.outcome.unsure) == (set(), set())
    assert (later.outcome.taken, later.outcome.unsure) == ({T0}, set())
    assert to_send(order, later) is None


def test_one_that_another_has_sent_without_an_answer_may_have_been_committed() -> None:
    order = CommitOrder()
    oldest, older, later = (begun(order, number) for number in (1, 2, 3))
    sent(order, older)
    order.end(later)
    order.end(older)
    assert to_send(order, oldest) == later.offsets[T0]


def test_of_those_that_are_over_no_more_than_one_is_kept() -> None:
    order = CommitOrder()
    for number in range(1, 100):
        commit = begun(order, number)
        sent(order, commit)
        order.end(commit)
    assert [each.number for each in order._asked[T0]] == [99]
    commit = begun(order, 100)
    answered(order, commit)
    order.end(commit)
    assert order._asked == {}


def test_what_goes_with_an_offset_goes_with_the_one_that_is_carried() -> None:
    order, ids = CommitOrder(), [UUID(int=n) for n in range(2)]
    older = Commit(1, {T0: 10, T1: 11}, notes={T0: "a", T1: "b"}, epochs={T0: 1, T1: 2}, topic_ids={T0: ids[0], T1: ids[0]})
    later = Commit(2, {T1: 21}, notes={T1: "c"}, topic_ids={T1: ids[1]})
    order.begin(older)
    order.begin(later)
    load = sent(order, older)
    assert load.offsets == {T0: (10, "a"), T1: (21, "c")}
    assert (load.epochs, load.topic_ids) == ({T0: 1}, {T0: ids[0], T1: ids[1]})


@pytest.mark.parametrize("schedules", quick_and_thorough(500, 20_000))
def test_in_any_order_the_group_never_goes_back_and_no_success_is_false(schedules: int) -> None:
    """Requests arrive in the order in which they are sent; answers are lost, some refuse, calls end at any moment."""
    for seed in range(schedules):
        play(random.Random(seed))


def play(chance: random.Random) -> None:
    order, group = CommitOrder(), {T0: 0, T1: 0}
    numbered: list[Commit] = []
    calls: list[Commit] = []
    under_way: deque[Load] = deque()
    for step in range(1, 60):
        what = chance.choice(["number", "begin", "send", "send", "arrive", "arrive", "end"])
        if what == "number":
            numbered.append(Commit(step, dict.fromkeys(chance.choice([(T0,), (T1,), (T0, T1)]), step)))
        elif what == "begin" and numbered:
            calls.append(numbered.pop(chance.randrange(len(numbered))))
            order.begin(calls[-1])
        elif what == "send" and calls:
            commit = chance.choice(calls)
            if all(commit is not load.commit for load in under_way):
                under_way.append(sent(order, commit))
                for tp in commit.offsets.keys() - carried(under_way[-1]).keys():
                    assert group[tp] >= commit.number, "it is told to be committed"
        elif what == "arrive" and under_way:
            load = under_way.popleft()
            answers = {tp: NEVER if offset % 7 == 0 else chance.choice([None, None, AGAIN]) for tp, offset in carried(load).items()}
            for tp in [tp for tp, error in answers.items() if error is None]:
                assert carried(load)[tp] >= group[tp], "the group goes back"
                group[tp] = carried(load)[tp]
            if load.commit in calls and chance.random() < 0.7:
                order.answer(load, answers)
        elif what == "end" and calls:
            order.end(calls.pop(chance.randrange(len(calls))))
