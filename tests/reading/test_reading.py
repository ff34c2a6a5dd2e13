"""Every way of reading does what the model says, on any damaged log and on one fixed log."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.reading.damagedlogs import FIXED, Shape, shapes
from tests.reading.playing import Play, Stage, plays
from tests.reading.ways import CHEAP, LegacyProcesses, Way

EXAMPLES = 200
BEHIND = {
    ("v2", "none"): (12, 13),
    ("v2", "gzip"): (12, 13),
    ("v1", "none"): (8, 9, 10, 11, 12, 13),
    ("v0", "gzip"): (12, 13),
}
"""Format and codec -> what comes behind the damage of the fixed log, after a seek past it."""


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with Stage() as made:
        yield made


@pytest.mark.timeout(600)
@settings(max_examples=EXAMPLES, phases=[Phase.generate, Phase.shrink], report_multiple_bugs=False)
@given(shape=shapes(), played=st.lists(plays(), min_size=1, max_size=2))
def test_no_way_of_reading_passes_over_a_record_in_silence(stage: Stage, shape: Shape, played: list[Play]) -> None:
    """Records, error, position, committed offset, the next call, and the rest after a seek."""
    stage.turn()
    for play in played:
        stage.play(shape, play)


def check_fixed(stage: Stage, way: type[Way], handler: str, form: str, codec: str) -> None:
    first, second = stage.play(FIXED, Play(way, handler, form, codec, way.levels[0]))
    assert (first.records, first.error) == (tuple(range(7)), 7)
    assert first.position in (7, None)
    assert first.committed == (7 if way.has_group else None)
    behind = BEHIND[form, codec]
    assert second.records[: len(behind)] == behind
    assert second.error is None


@pytest.mark.parametrize(
    ("way", "handler"), [pytest.param(way, handler, id=f"{way.__name__}-{handler}") for way in CHEAP for handler in way.handlers]
)
def test_records_0_to_6_come_then_the_error_of_record_7_and_after_a_seek_the_rest(stage: Stage, way: type[Way], handler: str) -> None:
    for form, codec in BEHIND:
        check_fixed(stage, way, handler, form, codec)


@pytest.mark.parametrize("handler", ["threading", "gevent"])
def test_a_process_of_multiprocessconsumer_tells_of_the_damage(stage: Stage, handler: str) -> None:
    check_fixed(stage, LegacyProcesses, handler, "v2", "none")
