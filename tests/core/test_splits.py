"""Batches that a broker finds too large (KIP-126): parts in order, under the numbers of the whole, and an end to it."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from gkafka.exceptions import MessageSizeTooLarge, RecordListTooLarge, SocketDisconnectedError
from tests.core.fakes import Rig
from tests.effort import one_of

NOT_LEADER, TOO_LARGE, LIST_TOO_LARGE, OUT_OF_ORDER = 6, 10, 18, 45


def drained(rig: Rig, answer: Any) -> list[Any]:
    """Send until nothing is left. answer: batch -> error code. Returns the batches in the order in which they were taken (code 0)."""
    taken: list[Any] = []
    for _ in range(500):
        if not rig.accumulator.unsettled:
            return taken
        for request in rig.sent():
            codes = {b.partition: answer(b) for b in request.batches}
            taken += [b for b in request.batches if codes[b.partition] == 0]
            rig.answer(request, codes)
        rig.now += 1.0
    raise AssertionError("it does not end")


@pytest.mark.parametrize("code", [TOO_LARGE, LIST_TOO_LARGE])
def test_a_batch_that_is_too_large_goes_in_two_parts_under_its_numbers(code: int) -> None:
    rig = Rig()
    batch = rig.full(count=10)
    (request,) = rig.sent()
    settled, stale = rig.answer(request, code)
    assert (settled, stale) == ([], False)
    assert rig.sender.splitter.divided == [batch]
    (first,) = rig.sent()
    assert [(b.count, b.extra.sequence, b.extra.producer) for b in first.batches] == [(5, 0, (77, 0))]
    assert rig.sent() == [], "the second part waits: it must not overtake the first"
    rig.answer(first)
    (second,) = rig.sent()
    assert [(b.count, b.extra.sequence) for b in second.batches] == [(5, 5)]
    settled, _ = rig.answer(second)
    assert settled[0].error is None
    assert not rig.accumulator.unsettled
    assert (rig.sender.epoch_bumps, rig.sender.retried, rig.sender.splitter.splits) == (0, 0, 1)


def test_what_is_behind_a_batch_that_was_split_stays_behind_it() -> None:
    rig = Rig()
    batches = [rig.full(count=8, size=800), rig.full(count=2, size=100), rig.full(count=2, size=100)]
    for request in rig.sent():
        rig.answer(request, TOO_LARGE if request.batches[0] is batches[0] else OUT_OF_ORDER)
    taken = drained(rig, lambda batch: TOO_LARGE if batch.size > 250 else 0)
    assert [(b.extra.sequence, b.count) for b in taken] == [(0, 2), (2, 2), (4, 2), (6, 2), (8, 2), (10, 2)]
    assert rig.sender.epoch_bumps == 0


def test_one_record_that_is_too_large_fails_alone_and_says_what_to_do() -> None:
    """B17."""
    rig = Rig()
    rig.full(count=4, size=4000)
    failed: list[Any] = []
    taken = 0
    for _ in range(20):
        rig.now += 1.0
        for request in rig.sent():
            (batch,) = request.batches
            holds = batch.first <= 2 < batch.first + batch.count
            settled, _ = rig.answer(request, TOO_LARGE if holds else 0)
            failed += [s for s in settled if s.error is not None]
            taken += sum(s.batch.count for s in settled if s.error is None)
    (lost,) = failed
    assert (lost.batch.first, lost.batch.count, taken) == (2, 1, 3)
    assert isinstance(lost.error, MessageSizeTooLarge)
    assert (lost.error.topic, lost.error.partition) == ("t", 0)
    for word in ("t-0", "1000 bytes", "max.message.bytes"):
        assert word in str(lost.error)
    assert lost.batch.extra.persisted == "no"
    assert rig.sender.epoch_bumps == 1, "what follows the record that failed is numbered anew (KIP-360)"


def test_a_list_that_is_too_large_keeps_its_class() -> None:
    rig = Rig()
    rig.full(count=1)
    (request,) = rig.sent()
    settled, _ = rig.answer(request, LIST_TOO_LARGE)
    assert isinstance(settled[0].error, RecordListTooLarge)


@pytest.mark.parametrize("count", [1, 2, 3, 100, 1000])
def test_splitting_ends_whatever_the_broker_says(count: int) -> None:
    """B05: with a limit that no record meets, each is tried alone once and fails."""
    rig = Rig()
    rig.full(count=count, size=count * 100)
    requests = 0
    failed = 0
    while rig.accumulator.unsettled:
        rig.now += 0.01
        for request in rig.sent():
            requests += 1
            failed += sum(s.batch.count for s in rig.answer(request, TOO_LARGE)[0])
    assert failed == count
    assert requests <= 2 * count


def test_later_batches_of_the_topic_are_told_to_be_smaller() -> None:
    limits: list[Any] = []
    rig = Rig(set_limit=lambda topic, size: limits.append((topic, size)))
    rig.full(count=8, size=8000)
    drained(rig, lambda batch: TOO_LARGE if batch.size > 2500 else 0)
    assert limits[0] == ("t", 4000)
    assert limits[-1] == ("t", 2000)
    assert rig.sender.splitter.limits == {"t": 2000}
    rig.full(count=8, size=1000)
    drained(rig, lambda batch: TOO_LARGE if batch.size > 600 else 0)
    assert limits[-1] == ("t", 500)


def test_a_split_is_no_retry() -> None:
    rig = Rig(retries=0)
    rig.full(count=4)
    taken = drained(rig, lambda batch: TOO_LARGE if batch.count > 1 else 0)
    assert [b.count for b in taken] == [1, 1, 1, 1]
    assert {b.attempts for b in taken} == {1}


def test_parts_share_the_delivery_timeout_of_the_whole_and_their_place() -> None:
    """Deadlines are looked up oldest first: parts must not stand behind younger batches."""
    rig = Rig(delivery_timeout_s=10.0)
    rig.full(count=2)
    rig.now = 5.0
    (request,) = rig.sent()
    younger = rig.full()
    rig.answer(request, TOO_LARGE)
    rig.metadata.topics.clear()
    assert rig.due() == 10.0
    rig.now = 10.0
    assert [s.batch.count for s in rig.expired()] == [1, 1]
    assert list(rig.accumulator.unsettled) == [younger]


def test_a_batch_whose_time_is_over_is_not_split() -> None:
    rig = Rig(delivery_timeout_s=10.0)
    rig.full(count=2)
    (request,) = rig.sent()
    rig.now = 10.0
    settled, _ = rig.answer(request, TOO_LARGE)
    assert isinstance(settled[0].error, MessageSizeTooLarge)
    assert "2 record(s)" in str(settled[0].error)


def test_a_split_batch_is_no_longer_on_the_wire_nor_unsettled() -> None:
    """B06."""
    rig = Rig()
    batch = rig.full(count=2)
    (request,) = rig.sent()
    rig.answer(request, TOO_LARGE)
    queue = rig.accumulator.queues["t", 0]
    assert batch not in queue.on_wire
    assert batch not in queue.pending
    assert batch not in rig.accumulator.unsettled
    assert rig.answer(request, 0)[0] == [], "a second answer settles nothing"


def test_parts_without_numbers_go_one_after_the_other_too() -> None:
    rig = Rig(idempotence=False)
    rig.full(count=4)
    (request,) = rig.sent()
    rig.answer(request, TOO_LARGE)
    (first,) = rig.sent()
    assert first.batches[0].extra.sequence == -1
    assert rig.sent() == []
    rig.answer(first, NOT_LEADER)
    rig.now = 5.0
    assert [r.batches for r in rig.sent()] == [first.batches], "a retry of the first part comes before the second"


@pytest.mark.parametrize("numbers", one_of(range(30), range(30, 60)), ids=["quick", "thorough"])
def test_whatever_is_lost_or_too_large_every_record_arrives_once_and_in_order(numbers: range) -> None:
    for seed in numbers:
        _every_record_arrives_once_and_in_order(seed)


def _every_record_arrives_once_and_in_order(seed: int) -> None:
    chance = Random(seed)
    rig = Rig()
    sizes = [chance.choice([1, 2, 3, 8, 17]) for _ in range(12)]
    for n in sizes:
        rig.full(count=n, size=n * 100)
    limit = chance.choice([100, 250, 500, 900])
    log: list[tuple[int, int]] = []
    flying: list[Any] = []
    for _ in range(4000):
        rig.now += 0.3
        flying += rig.sent()
        if not flying:
            if not rig.accumulator.unsettled:
                break
            continue
        request = flying.pop(0)
        (batch,) = request.batches
        due = sum(n for _, n in log)
        lost = chance.random() < 0.15
        if lost and chance.random() < 0.5:
            for r in [request, *flying]:
                rig.lose(r, SocketDisconnectedError("gone"))
            flying.clear()
            continue
        if batch.size > limit:
            code = TOO_LARGE
        elif (batch.extra.sequence, batch.count) in log:
            code = 46
        elif batch.extra.sequence != due:
            code = OUT_OF_ORDER
        else:
            log.append((batch.extra.sequence, batch.count))
            code = 0
        if lost:
            for r in [request, *flying]:
                rig.lose(r, SocketDisconnectedError("gone"))
            flying.clear()
        else:
            rig.answer(request, code)
    assert not rig.accumulator.unsettled
    assert sum(n for _, n in log) == sum(sizes)
    assert [s for s, _ in log] == [sum(n for _, n in log[:i]) for i in range(len(log))]
    assert rig.sender.epoch_bumps == 0
