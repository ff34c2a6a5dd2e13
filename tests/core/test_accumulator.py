"""The producer's bookkeeping: what waits, in which order, and for whom."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from gkafka.core.accumulator import Accumulator
from gkafka.exceptions import ConnectionFailedError, SocketDisconnectedError
from tests.core.fakes import FakeBatch, Rig


def rolled(accumulator: Accumulator, n: int, partition: int = 0) -> list[Any]:
    batches: list[Any] = [FakeBatch(partition) for _ in range(n)]
    for batch in batches:
        accumulator.opened(batch)
        accumulator.rolled(batch)
    return batches


@pytest.mark.parametrize("seed", range(20))
def test_batches_that_are_put_back_stand_in_the_order_in_which_they_were_rolled(seed: int) -> None:
    chance, accumulator = Random(seed), Accumulator()
    batches = rolled(accumulator, 8)
    queue = accumulator.queues["t", 0]
    for _ in range(30):
        if queue.pending and chance.random() < 0.5:
            queue.on_wire.append(queue.pending.popleft())
        elif queue.on_wire:
            queue.put_back(queue.on_wire.pop(chance.randrange(len(queue.on_wire))))
        assert list(queue.pending) == [b for b in batches if b in queue.pending]
        for batch in batches:
            older = [b for b in batches[: batches.index(batch)] if b in queue.pending or b in queue.on_wire]
            assert queue.has_older(batch) is bool(older)


def test_a_batch_whose_rolling_was_cut_off_stands_before_one_whose_opening_was_cut_off_too() -> None:
    """Two signals right one behind the other: the first batch was rolled, the second opened and rolled, and only the last of that is told."""
    accumulator = Accumulator()
    first: Any = FakeBatch(0)
    second: Any = FakeBatch(0)
    accumulator.opened(first)
    accumulator.rolled(second)
    accumulator.rolled(first)
    assert_in_order(accumulator, first, second)


def test_a_batch_whose_rolling_was_cut_off_stands_before_the_one_that_follows_it() -> None:
    """A signal handler raised after the appender had rolled it: nobody told the accumulator, and the next one is opened."""
    accumulator = Accumulator()
    lost, follower = FakeBatch(0), FakeBatch(0)
    first: Any = lost
    second: Any = follower
    accumulator.opened(first)
    accumulator.opened(second)
    accumulator.rolled(second)
    assert_in_order(accumulator, lost, follower)


def assert_in_order(accumulator: Accumulator, *batches: FakeBatch) -> None:
    assert list(accumulator.queues["t", 0].pending) == [*batches]
    assert list(accumulator.unsettled) == [*batches]
    assert not accumulator.open


class Reluctant(FakeBatch):
    """An exception from outside comes when it is given its place in the queue."""

    interrupted = False

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "extra" and value is not None and not self.interrupted:
            self.interrupted = True
            raise KeyboardInterrupt
        super().__setattr__(name, value)


def test_a_rolling_that_was_cut_off_may_be_repeated() -> None:
    accumulator = Accumulator()
    batch: Any = Reluctant(0)
    accumulator.opened(batch)
    with pytest.raises(KeyboardInterrupt):
        accumulator.rolled(batch)
    assert accumulator.open, "it is still found"
    accumulator.rolled(batch)
    assert list(accumulator.queues["t", 0].pending) == [batch]
    assert not accumulator.open


def test_what_is_unsettled_is_told_oldest_first_whatever_its_partition() -> None:
    accumulator = Accumulator()
    batches = [b for p in (2, 0, 1) for b in rolled(accumulator, 1, p)]
    open_one: Any = FakeBatch(0)
    accumulator.opened(open_one)
    assert list(accumulator.unsettled) == [*batches, open_one]
    accumulator.settled(batches[1])
    accumulator.settled(batches[1])
    assert list(accumulator.unsettled) == [batches[0], batches[2], open_one]


def test_whatever_changes_about_a_partition_is_noted() -> None:
    accumulator = Accumulator()
    batch: Any = FakeBatch(1)
    accumulator.opened(batch)
    assert not accumulator.touched, "it lingers"
    accumulator.hurry(batch)
    assert list(accumulator.touched) == [("t", 1)]
    accumulator.touched.clear()
    rolled(accumulator, 1, 0)
    accumulator.rolled(batch)
    assert set(accumulator.touched) == {("t", 0), ("t", 1)}
    assert not accumulator.lingering


@pytest.mark.parametrize(("idempotence", "left"), [(False, 0), (True, 50)])
def test_queues_without_a_history_are_forgotten_and_those_with_numbers_kept(idempotence: bool, left: int) -> None:
    rig = Rig(dict.fromkeys(range(50), 1), idempotence=idempotence)
    for partition in range(50):
        rig.full(partition)
    while rig.accumulator.unsettled:
        for request in rig.sent():
            rig.answer(request)
    assert len(rig.accumulator.queues) == left
    assert not rig.accumulator.active


@pytest.mark.parametrize(("epoch", "left"), [(0, 2), ((1 << 15) - 1, 0)])
def test_numbers_are_a_history_until_the_producer_id_changes(epoch: int, left: int) -> None:
    """Under a new epoch of the same id the partition's leaders still know the producer."""
    rig = Rig({0: 1, 1: 1}, idempotence=None)
    rig.grant(epoch=epoch)
    rig.full(0, count=1), rig.full(1)
    (request,) = rig.sent()
    rig.answer(request, {0: 10})
    assert rig.sender.epoch_bumps == 1
    assert len(rig.accumulator.queues) == left


def test_only_an_open_batch_can_be_hurried_and_rolling_it_ends_the_hurry() -> None:
    accumulator = Accumulator()
    (old,) = rolled(accumulator, 1)
    accumulator.hurry(old)
    assert not accumulator.hurried
    batch: Any = FakeBatch(0)
    accumulator.opened(batch)
    accumulator.hurry(batch)
    assert accumulator.hurried == {("t", 0)}
    accumulator.rolled(batch)
    assert not accumulator.hurried


def test_a_batch_that_lingers_is_due_by_its_own_time_also_behind_one_that_waits_for_a_leader() -> None:
    rig = Rig({0: 1, 1: 1})
    rig.metadata.topics["t"].partitions.pop(0)
    rig.open(0)
    rig.now = 0.004
    rig.open(1)
    rig.now = 0.006
    plan = rig.poll()
    assert plan.requests == []
    assert rig.sender.next_due(rig.now) == pytest.approx(0.009)


def test_somebody_who_waits_for_a_batch_behind_one_on_the_wire_ends_its_linger_when_that_one_is_answered() -> None:
    rig = Rig(linger_s=60.0)
    rig.full()
    (request,) = rig.sent()
    batch = rig.open()
    rig.accumulator.hurry(batch)
    assert rig.sent() == [], "what comes meanwhile rides along"
    rig.answer(request)
    assert [r.batches for r in rig.sent()] == [[batch]]


def outcome(*tries: int | Exception) -> str:
    """What is said of a batch whose tries ended so: error codes, or the loss of the connection."""
    rig = Rig(retries=len(tries) - 1)
    batch = rig.full()
    for end in tries:
        rig.now += 10
        (request,) = rig.sent()
        rig.lose(request, end) if isinstance(end, Exception) else rig.answer(request, end)  # type: ignore[arg-type]
    assert batch not in rig.accumulator.unsettled
    told: str = batch.extra.persisted
    return told


def test_a_batch_is_maybe_persisted_if_any_of_its_tries_may_have_written_it() -> None:
    gone, refused = SocketDisconnectedError("gone"), ConnectionFailedError("refused")
    too_few, not_leader, timed_out, too_few_after_append, unauthorized = 19, 6, 7, 20, 29
    assert outcome(refused, refused, too_few) == "no"
    assert outcome(unauthorized) == "no"
    assert outcome(refused, unauthorized) == "no"
    assert outcome(gone, refused, refused) == "maybe"
    assert outcome(gone, unauthorized) == "maybe"
    assert outcome(timed_out, not_leader) == "maybe"
    assert outcome(too_few, too_few_after_append) == "maybe"
    assert outcome(not_leader, refused) == "maybe"
    assert outcome(-1) == "maybe"
    assert outcome(not_leader, 0) == "yes"
