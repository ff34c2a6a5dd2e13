"""Which refusals of credentials are believed: those of a client that never got in, and those that last."""

from __future__ import annotations

import pytest

from gkafka.core.refusals import Refusals

PATIENCE_S, SILENCE_S = 30.0, 40.0


@pytest.fixture
def refusals() -> Refusals:
    made = Refusals(PATIENCE_S, SILENCE_S)
    made.accepted("a")
    return made


def test_a_client_that_never_got_in_is_told_at_once() -> None:
    refusals = Refusals(PATIENCE_S, SILENCE_S)
    assert refusals.refused("b", 0.0) == 0.0
    refusals.accepted("a")
    assert refusals.refused("b", 1.0) == PATIENCE_S


def test_what_worked_is_tried_for_the_patience_and_then_the_refusal_is_believed(refusals: Refusals) -> None:
    assert [refusals.refused("b", now) for now in (5.0, 5.1, 20.0, 34.9)] == pytest.approx([30.0, 29.9, 15.0, 0.1])
    assert [refusals.refused("b", now) for now in (35.0, 36.0, 1000.0)] == [0.0] * 3
    refusals.accepted("b")
    assert refusals.refused("b", 1001.0) == PATIENCE_S


def test_each_broker_has_its_own_time_and_one_that_accepts_says_nothing_of_another(refusals: Refusals) -> None:
    assert refusals.refused("b", 0.0) == 30.0
    assert refusals.refused("c", 20.0) == 30.0
    refusals.accepted("a")
    assert refusals.refused("b", 29.0) == 1.0
    assert refusals.refused("b", 30.0) == 0.0
    assert refusals.refused("c", 31.0) == 19.0


def test_a_refusal_of_long_ago_is_no_beginning(refusals: Refusals) -> None:
    """A connection that nobody wanted again was refused once; the next one is refused an hour later."""
    assert refusals.refused("b", 0.0) == 30.0
    assert refusals.refused("b", 3600.0) == 30.0


def test_pauses_as_long_as_those_between_two_tries_are_no_silence(refusals: Refusals) -> None:
    assert [refusals.refused("b", now) for now in (0.0, 39.0)] == [30.0, 0.0]


def test_no_patience_tells_at_once() -> None:
    refusals = Refusals(0.0, SILENCE_S)
    refusals.accepted("a")
    assert [refusals.refused("a", now) for now in (0.0, 1.0)] == [0.0, 0.0]
