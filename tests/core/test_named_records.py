"""Records that a broker refuses by name (KIP-467): they fail alone, and the others of their batch go again without them."""

from __future__ import annotations

from typing import Any

import pytest

from gkafka.exceptions import BatchRefusedError, InvalidRecord, InvalidTimestamp, SocketDisconnectedError
from tests.core.brokersim import World
from tests.core.fakes import Rig

INVALID_TIMESTAMP, OUT_OF_ORDER, INVALID_RECORD = 32, 45, 87
NO_KEY = "Compacted topic cannot accept message without key in topic partition t-0."
TOO_NEW = "Timestamp 1700000000000000 of message with offset 3 is out of range."


def refused(rig: Rig, named: dict[int, str | None], *, code: int = INVALID_RECORD) -> list[Any]:
    """The only request is answered so; what was settled by that."""
    (request,) = rig.sent()
    settled, stale = rig.answer(request, code, named={0: named})
    assert not stale
    return list(settled)


def taken(rig: Rig) -> list[tuple[int, int]]:
    """(first, count) of each part that goes, one after the other."""
    found = []
    while requests := rig.sent():
        for request in requests:
            found += [(batch.first, batch.count) for batch in request.batches]
            rig.answer(request)
    return found


def test_the_record_that_is_named_fails_with_the_brokers_words_and_the_others_go_again_in_their_order() -> None:
    rig = Rig()
    rig.full(count=10)
    (bad,) = refused(rig, {3: NO_KEY})
    assert (bad.batch.first, bad.batch.count, bad.batch.extra.persisted) == (3, 1, "no")
    assert type(bad.error) is InvalidRecord
    assert NO_KEY.rstrip(".") in str(bad.error)
    assert "t-0" in str(bad.error)
    assert taken(rig) == [(0, 3), (4, 6)]
    assert not rig.accumulator.unsettled


def test_one_record_has_the_class_of_the_answers_code_and_of_several_nobody_knows_whose_it_is() -> None:
    rig = Rig()
    rig.full(count=4)
    (bad,) = refused(rig, {3: TOO_NEW}, code=INVALID_TIMESTAMP)
    assert type(bad.error) is InvalidTimestamp
    rig = Rig()
    rig.full(count=4)
    settled = refused(rig, {1: NO_KEY, 3: TOO_NEW}, code=INVALID_TIMESTAMP)
    assert [(type(s.error), s.batch.first) for s in settled] == [(InvalidRecord, 1), (InvalidRecord, 3)]
    assert [word in str(s.error) for s, word in zip(settled, ("without key", "1700000000000000"), strict=True)] == [True, True]


def test_neighbours_with_the_same_words_fail_together_and_the_log_counts_all_in_one_line() -> None:
    rig = Rig()
    rig.full(count=10)
    settled = refused(rig, {0: NO_KEY, 1: NO_KEY, 5: TOO_NEW, 9: NO_KEY})
    assert [(s.batch.first, s.batch.count, s.batch.extra.counted) for s in settled] == [(0, 2, 4), (5, 1, 0), (9, 1, 0)]
    assert settled[0].error is settled[2].error
    assert taken(rig) == [(2, 3), (6, 3)]


def test_a_batch_of_which_every_record_is_named_fails_whole_or_in_as_many_parts_as_there_are_words() -> None:
    rig = Rig()
    whole = rig.full(count=3)
    (bad,) = refused(rig, {0: NO_KEY, 1: NO_KEY, 2: NO_KEY})
    assert bad.batch is whole
    rig.full(count=3)
    assert [s.batch.count for s in refused(rig, {0: NO_KEY, 1: TOO_NEW, 2: NO_KEY})] == [1, 1, 1]
    assert not rig.accumulator.unsettled


@pytest.mark.parametrize("named", [{}, {7: NO_KEY}, {-1: NO_KEY}, {1 << 30: None}])
def test_names_of_records_that_the_batch_does_not_have_are_none(named: dict[int, str | None]) -> None:
    rig = Rig()
    whole = rig.full(count=7)
    (bad,) = refused(rig, named)
    assert bad.batch is whole
    assert type(bad.error) is InvalidRecord


def test_a_record_without_words_of_its_own_has_those_of_the_answer() -> None:
    rig = Rig()
    rig.full(count=2)
    (bad,) = refused(rig, {1: None})
    assert "error 87" in str(bad.error)
    assert taken(rig) == [(0, 1)]


def test_what_is_under_way_behind_it_comes_behind_the_others_under_a_new_epoch() -> None:
    """The numbers behind a record at fault never come; nothing goes before what is on the wire has come back."""
    rig = Rig()
    rig.full(count=5)
    rig.full(count=5)
    first, second = rig.sent()
    rig.answer(first, INVALID_RECORD, named={0: {2: NO_KEY}})
    assert rig.sent() == []
    rig.answer(second, OUT_OF_ORDER)
    rig.now += 1.0
    numbers = []
    while requests := rig.sent():
        for request in requests:
            numbers += [(b.first, b.count, b.extra.sequence, b.extra.producer) for b in request.batches]
            rig.answer(request)
    assert numbers == [(0, 2, 0, (77, 1)), (3, 2, 2, (77, 1)), (0, 5, 4, (77, 1))]
    assert rig.sender.epoch_bumps == 1


def test_the_others_may_be_refused_again_until_none_is_left() -> None:
    world = World()
    world.produce(0, 5, bad=(0, 1, 2, 3, 4))
    world.produce(0, 5, bad=(0, 4))
    world.produce(0, 5)
    world.finish()
    assert {r for r, (error, _) in world.outcome.items() if error is not None} == world.bad
    assert world.partitions[0].log.records == [6, 7, 8, 10, 11, 12, 13, 14]


def test_without_numbers_the_others_go_again_too() -> None:
    rig = Rig(idempotence=False)
    rig.full(count=4)
    (bad,) = refused(rig, {1: NO_KEY})
    assert bad.batch.first == 1
    assert taken(rig) == [(0, 1), (2, 2)]


def test_what_an_earlier_try_may_have_written_does_not_go_again_and_says_so() -> None:
    rig = Rig()
    rig.full(count=4)
    (request,) = rig.sent()
    rig.lose(request, SocketDisconnectedError("gone"))
    rig.now += 2.0
    settled = refused(rig, {1: NO_KEY})
    assert [(s.batch.first, s.batch.count, type(s.error)) for s in settled] == [
        (1, 1, InvalidRecord),
        (0, 1, BatchRefusedError),
        (2, 2, BatchRefusedError),
    ]
    assert {s.batch.extra.persisted for s in settled} == {"maybe"}
    text = str(settled[2].error)
    assert "2 record(s) are not at fault" in text
    assert "look for them in the topic" in text
    assert settled[2].error.__cause__ is settled[0].error
    assert not rig.accumulator.unsettled


def test_when_the_time_is_over_the_others_fail_with_a_text_that_says_that_they_are_not_at_fault() -> None:
    rig = Rig(delivery_timeout_s=10.0)
    rig.full(count=4)
    (request,) = rig.sent()
    rig.now = 10.0
    settled, _ = rig.answer(request, INVALID_RECORD, named={0: {3: NO_KEY}})
    assert [(s.batch.first, type(s.error), s.batch.extra.persisted) for s in settled] == [
        (3, InvalidRecord, "no"),
        (0, BatchRefusedError, "no"),
    ]
    assert "produce them again" in str(settled[1].error)


def test_it_is_no_retry_of_the_others() -> None:
    rig = Rig(retries=0)
    rig.full(count=4)
    refused(rig, {1: NO_KEY})
    (request,) = rig.sent()
    assert [batch.attempts for batch in request.batches] == [1]
    assert rig.sender.retried == 0
