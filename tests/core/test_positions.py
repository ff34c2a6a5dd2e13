"""Where a consumer stands: what moves it, and what voids what was fetched before."""

from __future__ import annotations

from random import Random

from gkafka.common import TopicPartition
from gkafka.core.backoff import Backoff
from gkafka.core.positions import Position, State
from gkafka.exceptions import OffsetOutOfRangeError


def position() -> Position:
    return Position(TopicPartition("t", 0), 1024)


def test_a_new_position_looks_for_its_start() -> None:
    fresh = position()
    assert (fresh.state, fresh.reset_to, fresh.consumed, fresh.fetch_offset) == (State.RESETTING, -2, -1, -1)
    assert fresh.is_drained


def test_a_seek_voids_what_was_fetched_and_what_is_under_way() -> None:
    here = position()
    here.seek(10)
    here.fetch_offset, here.buffered, before = 50, 40, here.epoch
    assert not here.is_drained
    here.seek(7)
    assert (here.consumed, here.fetch_offset, here.buffered, here.state) == (7, 7, 0, State.FETCHING)
    assert here.epoch > before
    assert here.is_drained


def test_a_reset_looks_for_a_start_again_and_tells_no_new_position_before_it_knows_one() -> None:
    here = position()
    here.seek(10)
    before = here.epoch
    here.reset(-1)
    assert (here.state, here.reset_to, here.consumed) == (State.RESETTING, -1, 10)
    assert here.epoch > before


def test_a_halt_keeps_what_was_fetched() -> None:
    here = position()
    here.seek(10)
    here.fetch_offset, here.buffered, before = 50, 40, here.epoch
    here.halt(error := OffsetOutOfRangeError("x"))
    assert here.trouble is error
    assert (here.state, here.epoch, here.buffered, here.consumed) == (State.HALTED, before, 40, 10)
    here.seek(50)
    assert here.state is State.FETCHING


def test_whoever_seeks_does_not_wait_for_the_pause_after_an_error() -> None:
    for move in (lambda p: p.seek(3), lambda p: p.reset(-2)):
        here = position()
        here.retry.failed(Backoff(10.0, 10.0), 100.0, Random(1))
        move(here)
        assert here.retry.not_before == 0.0
