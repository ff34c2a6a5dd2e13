"""What a consumer handed out is held against the log, between one seek and the next."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tests.faults.consumed import Findings
from tests.faults.guns import CONSUMER, MEMBER, PRODUCER
from tests.faults.ledger import Row
from tests.faults.load import value_of
from tests.faults.reads import Reader, Span, judge_shared, judge_span
from tests.kit.clock import now

ROWS = [Row("t", 0, offset, offset) for offset in (0, 1, 2, 5, 6)]
"""Offsets 3 and 4 are of an aborted transaction."""


def judged(start: int, *offsets: int) -> tuple[int, Findings]:
    found = Findings()
    return judge_span(found, Span(start, [(offset, offset) for offset in offsets]), ROWS), found


def test_what_follows_in_the_log_is_right_also_behind_a_gap_and_from_a_seek() -> None:
    due, found = judged(1, 1, 2, 5, 6)
    assert (due, found.read, found.wrong) == (5, 4, {})


def test_a_record_that_is_passed_over_was_skipped_also_the_first_one_behind_a_seek() -> None:
    assert judged(0, 0, 2)[1].wrong == {"skips": 1}
    assert judged(0, 1)[1].wrong == {"skips": 1}


def test_a_record_that_comes_again_was_repeated() -> None:
    due, found = judged(0, 0, 1, 1, 2)
    assert (due, found.wrong) == (3, {"repeats": 1})


def test_a_record_that_nobody_should_see_is_a_stranger_and_another_id_is_damage() -> None:
    assert judged(2, 2, 3)[1].wrong == {"strangers": 1}
    found = Findings()
    judge_span(found, Span(0, [(0, 7)]), ROWS)
    assert found.wrong == {"damaged": 1}


def test_callers_who_share_a_consumer_may_have_records_twice_and_lose_none() -> None:
    found = Findings()
    judge_shared(found, [(0, 0), (2, 2), (1, 1), (1, 1), (6, 6)], ROWS)
    assert (found.dup, found.wrong) == (1, {"lost": 1})


class Sought:
    """A consumer whose first seek is cut off."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def seek(self, *place: Any) -> None:
        self.calls.append(place)
        if len(self.calls) == 1:
            raise KeyboardInterrupt

    def consume_batch(self, *_: Any) -> list[Any]:
        return [SimpleNamespace(partition_id=0, offset=9, value=value_of(9))]


class Chance:
    """Has a reader seek whenever it may."""

    def random(self) -> float:
        return 0.0

    def choice(self, of: Any) -> Any:
        return of[0]

    def randrange(self, low: int, high: int = 0) -> int:
        return 0


def test_a_seek_that_was_cut_off_is_made_again_before_anything_is_handed_out() -> None:
    consumer: Any = Sought()
    chance: Any = Chance()
    reader = Reader(consumer, "t", chance, ("many",))
    began = now()
    while len(consumer.calls) < 2:
        assert now() - began < 60
        try:
            reader.step(lambda function: function())
        except KeyboardInterrupt:
            assert len(reader.spans[0]) == 1
    assert consumer.calls[0] == consumer.calls[1]
    reader.drain()
    assert [span.got for span in reader.spans[0]] == [[], [(9, 9)]]


def test_shots_at_an_engine_hit_no_thread_of_another_one() -> None:
    assert not "gkafka-producer".startswith(CONSUMER.workers + MEMBER.workers)
    assert not any("gkafka-fetcher-0".startswith(name) for name in PRODUCER.workers)
