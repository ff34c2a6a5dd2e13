"""Every way of reading does what the model says, on any damaged log and on one fixed log."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import Phase, given, seed, settings
from hypothesis import strategies as st

from tests.effort import quick_and_thorough
from tests.reading.damagedlogs import FIXED, Shape, shapes
from tests.reading.playing import Play, Stage, plays
from tests.reading.ways import CHEAP, LegacyProcesses, Way

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
@pytest.mark.parametrize("examples", quick_and_thorough(40, 400))
def test_no_way_of_reading_passes_over_a_record_in_silence(stage: Stage, examples: int) -> None:
    """Records, error, position, committed offset, the next call, and the rest after a seek. `python -m tests.reading` tries as many as one wants."""

    @seed(examples)
    @settings(max_examples=examples, phases=[Phase.generate, Phase.shrink], report_multiple_bugs=False, database=None)
    @given(shape=shapes(), played=st.lists(plays(), min_size=1, max_size=2))
    def holds(shape: Shape, played: list[Play]) -> None:
        stage.turn()
        for play in played:
            stage.play(shape, play)

    holds()


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
    """On one handler in every format; on the second one, which changes no byte, in one of them, each way in another."""
    again = CHEAP.index(way) % len(BEHIND)
    for form, codec in BEHIND if handler == way.handlers[0] else [list(BEHIND)[again]]:
        check_fixed(stage, way, handler, form, codec)


@pytest.mark.parametrize("handler", ["threading", "gevent"])
def test_a_process_of_multiprocessconsumer_tells_of_the_damage(stage: Stage, handler: str) -> None:
    check_fixed(stage, LegacyProcesses, handler, "v2", "none")
