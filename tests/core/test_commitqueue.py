"""The queue of a group's commits: what the group has never goes back, and no commit is taken for done that is not."""

from __future__ import annotations

import random
from uuid import UUID

import pytest

from gkafka.brokererrors import BrokerError, GroupLoadInProgress, OffsetMetadataTooLarge, RebalanceInProgress
from gkafka.common import TopicPartition
from gkafka.core.commitqueue import GRACE_S, Commit, CommitQueue, Request, Terms
from gkafka.exceptions import KafkaException, SocketDisconnectedError
from tests.effort import quick_and_thorough

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
AGAIN, NEVER, LOST = GroupLoadInProgress(), OffsetMetadataTooLarge(), SocketDisconnectedError("the connection ended")
REBALANCING = RebalanceInProgress()
ALONE, MEMBER, LATER = Terms(), Terms(1, "m"), Terms(2, "m")
SOON = 60.0


def joined(queue: CommitQueue, offset: int, *partitions: TopicPartition, deadline: float = SOON, **beside: bool) -> Commit:
    commit = Commit(deadline, **beside)
    commit.wants(dict.fromkeys(partitions or (T0,), offset))
    queue.join(commit)
    return commit


def asking(queue: CommitQueue, offset: int, *partitions: TopicPartition, terms: Terms = ALONE) -> Commit:
    commit = joined(queue, offset, *partitions)
    queue.ask(commit, terms, commit.left)
    return commit


def sent(queue: CommitQueue, most: int | None = None) -> Request:
    request = begun(queue)
    assert request is not None
    queue.fill(request, request.commits, most)
    return request


def begun(queue: CommitQueue, now: float = 0.0) -> Request | None:
    request = Request()
    return request if queue.begin(request, now, 10.0) else None


def carried(request: Request) -> dict[TopicPartition, int]:
    return {tp: offset for tp, (offset, _) in request.offsets().items()}


def answered(queue: CommitQueue, error: BrokerError | None = None) -> dict[TopicPartition, int]:
    request = sent(queue)
    found = carried(request)
    queue.answer(request, dict.fromkeys(found, error))
    return found


def test_while_one_is_under_way_no_other_begins() -> None:
    queue = CommitQueue()
    asking(queue, 10)
    request = sent(queue)
    asking(queue, 20)
    assert begun(queue) is None
    queue.answer(request, {T0: None})
    assert carried(sent(queue)) == {T0: 20}


def test_the_next_one_carries_all_that_have_joined_meanwhile_and_the_last_offset_of_each_partition() -> None:
    queue = CommitQueue()
    first = asking(queue, 10)
    request = sent(queue)
    others = [asking(queue, 20), asking(queue, 30, T0, T1), asking(queue, 40, T1), asking(queue, 50)]
    queue.answer(request, {T0: None})
    assert not first.is_trying
    assert all(commit.is_trying for commit in others)
    assert answered(queue) == {T0: 50, T1: 40}
    assert not any(commit.is_trying or commit.left for commit in others)
    assert [commit.taken for commit in others] == [set(), set(), {T1}, {T0}]


def test_commits_of_different_terms_do_not_share_a_request_and_go_in_their_order() -> None:
    queue = CommitQueue()
    asking(queue, 10, T0, terms=MEMBER)
    asking(queue, 20, T1, terms=LATER)
    asking(queue, 30, T0, terms=MEMBER)
    for terms, offsets in ((MEMBER, {T0: 30}), (LATER, {T1: 20})):
        request = sent(queue)
        assert (request.terms, carried(request)) == (terms, offsets)
        queue.answer(request, dict.fromkeys(offsets))


def test_one_of_other_terms_is_done_when_the_group_has_a_later_one() -> None:
    queue = CommitQueue()
    asking(queue, 10, T0, terms=MEMBER)
    other = asking(queue, 20, T1, terms=LATER)
    asking(queue, 30, T1, terms=MEMBER)
    assert answered(queue) == {T0: 10, T1: 30}
    assert (other.is_trying, other.left) == (False, set())
    assert begun(queue) is None


def test_one_that_is_not_permitted_is_left_out_and_its_caller_is_told() -> None:
    queue = CommitQueue()
    mine, anothers = asking(queue, 10), asking(queue, 20)
    request = begun(queue)
    assert request is not None
    queue.rest(anothers, LOST)
    queue.fill(request, [mine])
    assert carried(request) == {T0: 10}
    assert (anothers.is_trying, anothers.trouble) == (False, LOST)


def test_where_none_is_permitted_none_is_under_way() -> None:
    queue = CommitQueue()
    commit = asking(queue, 10)
    request = begun(queue)
    assert request is not None
    queue.rest(commit, LOST)
    queue.fill(request, [])
    assert queue.under_way is None


def test_a_passing_error_is_told_to_all_that_the_request_stood_for() -> None:
    queue = CommitQueue()
    older, later = asking(queue, 10), asking(queue, 20)
    answered(queue, AGAIN)
    assert (older.refused, later.refused) == ({T0: AGAIN}, {T0: AGAIN})
    assert not any(commit.is_trying for commit in (older, later))


def test_a_final_error_is_told_to_the_commit_whose_offset_was_sent_and_the_others_send_their_own() -> None:
    queue = CommitQueue()
    older, later = asking(queue, 10), asking(queue, 20)
    answered(queue, NEVER)
    assert (later.is_trying, later.refused, later.unsure) == (False, {T0: NEVER}, set())
    assert (older.is_trying, older.refused) == (True, {})
    assert answered(queue) == {T0: 10}
    assert older.taken == {T0}


def test_where_the_group_rebalances_all_try_again_and_whoever_is_first_sends_the_last_offset() -> None:
    queue = CommitQueue()
    older, later = asking(queue, 10, terms=MEMBER), asking(queue, 20, terms=MEMBER)
    answered(queue, REBALANCING)
    assert (older.refused, later.refused, later.unsure) == ({T0: REBALANCING}, {T0: REBALANCING}, set())
    queue.ask(older, LATER, older.left)
    assert answered(queue) == {T0: 20}
    assert older.left == later.left == set()


def test_the_offset_of_one_that_was_refused_meanwhile_and_has_left_is_not_sent() -> None:
    queue = CommitQueue()
    older, later = asking(queue, 10, terms=MEMBER), asking(queue, 20, terms=MEMBER)
    answered(queue, REBALANCING)
    queue.leave(later)
    queue.ask(older, LATER, older.left)
    assert answered(queue) == {T0: 10}


def test_a_final_error_says_nothing_of_an_earlier_try_without_an_answer() -> None:
    queue = CommitQueue()
    older, later = joined(queue, 10), asking(queue, 20)
    queue.lose(sent(queue), LOST)
    for commit in (older, later):
        queue.ask(commit, ALONE, commit.left)
    answered(queue, NEVER)
    assert (older.refused, later.refused, later.unsure) == ({T0: NEVER}, {T0: NEVER}, {T0})


def test_errors_reach_the_commits_of_their_partition_alone() -> None:
    queue = CommitQueue()
    one, both = asking(queue, 10, T0), asking(queue, 20, T1)
    request = sent(queue)
    queue.answer(request, {T0: None, T1: AGAIN})
    assert (one.left, one.refused) == (set(), {})
    assert (both.left, both.refused) == ({T1}, {T1: AGAIN})


def test_a_later_one_without_an_answer_is_sent_in_place_of_an_earlier_one() -> None:
    """Its caller has left, or pauses before the next try."""
    queue = CommitQueue()
    older = joined(queue, 10)
    later = asking(queue, 20)
    queue.lose(sent(queue), LOST)
    assert (later.is_trying, later.trouble, later.unsure) == (False, LOST, {T0})
    queue.ask(older, ALONE, older.left)
    queue.answer(sent(queue), {T0: AGAIN})
    queue.leave(later)
    queue.ask(older, ALONE, older.left)
    assert answered(queue) == {T0: 20}
    assert (older.left, older.taken) == (set(), set())
    queue.leave(older)
    assert queue.commits == []


def test_one_that_was_never_sent_is_as_if_it_had_never_been() -> None:
    queue = CommitQueue()
    older, later = asking(queue, 10), asking(queue, 20)
    queue.leave(later)
    assert answered(queue) == {T0: 10}
    assert older.taken == {T0}


def test_what_the_group_has_of_a_later_one_is_not_sent_any_more() -> None:
    queue = CommitQueue()
    older = joined(queue, 10, T0, T1)
    asking(queue, 20)
    assert answered(queue) == {T0: 20}
    queue.ask(older, ALONE, older.left)
    assert answered(queue) == {T1: 10}


def test_of_those_that_are_over_one_of_a_partition_is_kept_as_long_as_an_earlier_one_is_there() -> None:
    queue = CommitQueue()
    older = joined(queue, 1)
    for n in range(2, 100):
        commit = asking(queue, n)
        queue.lose(sent(queue), LOST)
        queue.leave(commit)
    assert [commit.offsets[T0] for commit in queue.commits] == [1, 99]
    queue.leave(older)
    assert queue.commits == []


def test_many_partitions_go_in_parts_and_a_later_commit_counts_for_those_that_are_not_sent_yet() -> None:
    queue = CommitQueue()
    commit = asking(queue, 10, T0, T1)
    request = sent(queue, 1)
    (first,) = carried(request)
    later = asking(queue, 20, T0, T1)
    queue.answer(request, {first: None})
    assert commit.is_trying
    assert set(carried(sent(queue)).values()) == {20}
    assert (commit.taken, later.left) == ({first}, {T0, T1})


def test_an_answer_that_comes_twice_or_behind_the_loss_of_its_request_is_of_no_account() -> None:
    queue = CommitQueue()
    commit = asking(queue, 10)
    request = sent(queue)
    queue.lose(request, LOST)
    queue.answer(request, {T0: None})
    assert (commit.left, commit.trouble) == ({T0}, LOST)


def test_what_may_not_have_been_sent_is_sent_again() -> None:
    queue = CommitQueue()
    commit = asking(queue, 10)
    queue.put_back(sent(queue))
    assert commit.is_trying
    assert answered(queue) == {T0: 10}


def test_a_request_whose_sender_was_interrupted_holds_up_the_queue_until_its_answer_is_overdue() -> None:
    queue = CommitQueue()
    asking(queue, 10)
    sent(queue)
    asking(queue, 20)
    assert not queue.is_free(10.0)
    assert begun(queue, 10.0 + GRACE_S) is not None


def test_an_answer_is_waited_for_until_the_last_deadline_of_those_that_it_is_for() -> None:
    queue = CommitQueue()
    for deadline in (2.0, 5.0, 1.0):
        commit = joined(queue, 1, deadline=deadline)
        queue.ask(commit, ALONE, commit.left)
    request = begun(queue)
    assert request is not None
    assert request.until == 5.0


def test_a_commit_whose_caller_never_left_is_dropped_after_its_deadline() -> None:
    queue = CommitQueue()
    joined(queue, 10, deadline=1.0)
    assert begun(queue, 1.0 + GRACE_S) is None
    assert queue.commits == []


def test_the_applications_commits_are_those_that_are_neither_done_nor_in_the_background() -> None:
    queue = CommitQueue()
    joined(queue, 10, T1, is_background=True)
    own = asking(queue, 20, T0)
    assert queue.asked_for() == {T0}
    answered(queue)
    assert own.left == queue.asked_for() == set()


def test_what_goes_with_an_offset_goes_with_the_one_that_is_carried() -> None:
    queue, ids = CommitQueue(), [UUID(int=n) for n in range(2)]
    older, later = Commit(SOON), Commit(SOON)
    older.wants({T0: 10, T1: 11}, notes={T0: "a", T1: "b"}, epochs={T0: 1, T1: 2}, topic_ids={T0: ids[1], T1: ids[1]})
    later.wants({T1: 21}, notes={T1: "c"}, topic_ids={T1: ids[0]})
    for commit in (older, later):
        queue.join(commit)
        queue.ask(commit, ALONE, commit.left)
    request = sent(queue)
    assert request.offsets() == {T0: (10, "a"), T1: (21, "c")}
    assert (request.epochs(), request.ids) == ({T0: 1, T1: -1}, {T0: ids[1], T1: ids[0]})


def test_listeners_hear_of_offsets_in_the_order_in_which_the_group_takes_them() -> None:
    queue = CommitQueue()
    heard: list[int] = []
    for offset in (1, 2, 3):
        commit = asking(queue, offset)
        commit.listeners.append(lambda tp, offset: heard.append(offset))
        answered(queue)
    assert heard == [1, 2, 3]


@pytest.mark.parametrize("schedules", quick_and_thorough(300, 10_000))
def test_in_any_order_the_group_never_goes_back_and_no_success_is_false(schedules: int) -> None:
    """Callers join, ask, pause, and leave at any moment; answers are lost, refuse, or come for requests that never went out."""
    for seed in range(schedules):
        World(random.Random(seed)).play()


class World:
    """A queue, its callers, and a coordinator. number: of each commit, in the order in which they joined; its offset is that number."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.queue = CommitQueue()
        self.group = {T0: 0, T1: 0}
        self.callers: list[Commit] = []
        self.asked: dict[Commit, set[TopicPartition]] = {}
        self.request: Request | None = None
        self.now = 0.0
        self.number = 0

    def play(self) -> None:
        steps = [self.join, self.ask, self.ask, self.send, self.send, self.answer, self.answer, self.answer, self.leave, self.wait]
        for _ in range(80):
            self.chance.choice(steps)()
            self.check()
        self.finish()

    def join(self) -> None:
        self.number += 1
        commit = joined(self.queue, self.number, *self.chance.choice([(T0,), (T1,), (T0, T1)]), deadline=1e9)
        self.callers.append(commit)

    def ask(self) -> None:
        resting = [commit for commit in self.callers if commit.left and not commit.is_trying]
        if resting:
            commit = self.chance.choice(resting)
            part = self.chance.choice([commit.left, commit.left, set(self.chance.sample(sorted(commit.left), 1))])
            self.asked[commit] = set(part)
            self.queue.ask(commit, self.chance.choice([ALONE, ALONE, MEMBER]), part)

    def send(self) -> None:
        request = begun(self.queue, self.now)
        if request is None:
            return
        assert all(commit.terms == request.terms for commit in request.commits)
        permitted = [commit for commit in request.commits if self.chance.random() < 0.9]
        for commit in request.commits:
            if commit not in permitted:
                self.queue.rest(commit, LOST)
        self.queue.fill(request, permitted, self.chance.choice([None, None, 1]))
        if not request.carried:
            return
        if self.chance.random() < 0.1:  # the sender is interrupted
            self.arrive(request, lost=self.chance.random() < 0.5)
            self.queue.put_back(request)
            return
        self.request = request

    def arrive(self, request: Request, *, lost: bool) -> dict[TopicPartition, KafkaException | None]:
        """What the coordinator does with it."""
        answers: dict[TopicPartition, KafkaException | None] = {}
        for tp, offset in carried(request).items():
            answers[tp] = NEVER if offset % 7 == 0 else self.chance.choice([None, None, AGAIN, REBALANCING])
            if answers[tp] is None and not lost:
                assert offset >= self.group[tp], "the group goes back"
                self.group[tp] = offset
        return answers

    def answer(self) -> None:
        request, self.request = self.request, None
        if request is None:
            return
        outcome = self.chance.random()
        answers = self.arrive(request, lost=outcome > 0.9)
        if outcome < 0.7:
            self.queue.answer(request, answers)
        else:
            self.queue.lose(request, LOST)
        assert self.queue.under_way is None

    def leave(self) -> None:
        if self.callers and self.chance.random() < 0.5:
            commit = self.callers.pop(self.chance.randrange(len(self.callers)))
            self.queue.leave(commit)

    def wait(self) -> None:
        """As long as it takes until a request without an answer is given up."""
        if self.chance.random() < 0.2 and self.request is not None:
            self.arrive(self.request, lost=self.chance.random() < 0.5)
            self.request = None
            self.now += 20.0

    def check(self) -> None:
        queue = self.queue
        for commit in self.callers:
            for tp in commit.offsets.keys() - commit.left:
                assert self.group[tp] >= commit.offsets[tp], "it is told to be committed"
            assert commit.is_trying or not commit.unsent
            if commit.is_trying:
                covered = queue.under_way is not None and any(commit is each for each, _ in queue.under_way.covered)
                assert commit.unsent or covered, "nobody ends its try"
            else:
                told = commit.trouble is not None or not self.asked.get(commit, set()) & (commit.left - commit.refused.keys())
                assert told, "its try is over without a word"
        if queue.under_way is None:
            over = [commit for commit in queue.commits if commit.is_over]
            assert len(over) <= 2, "at most one of each partition"

    def finish(self) -> None:
        """When the coordinator answers again, all that still wait are done."""
        if self.request is not None:
            self.queue.lose(self.request, LOST)
        self.now += 20.0
        for _ in range(2):  # in the first round some ask for a part only
            for commit in self.callers:
                if not commit.is_trying:
                    self.queue.ask(commit, ALONE, commit.left)
            while (request := begun(self.queue, self.now)) is not None:
                self.queue.fill(request, list(request.commits))
                for tp, offset in carried(request).items():
                    assert offset >= self.group[tp], "the group goes back"
                    self.group[tp] = offset
                self.queue.answer(request, dict.fromkeys(request.carried))
        assert not any(commit.left or commit.is_trying for commit in self.callers)
        for commit in self.callers:
            self.queue.leave(commit)
        assert self.queue.commits == []
