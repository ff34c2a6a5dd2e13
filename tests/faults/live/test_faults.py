"""Each fault in its short form, to both handlers and the control at once: what was acknowledged is there once and in order, what was not is
accounted for in time. `make faults` plays the long form."""

from __future__ import annotations

import pytest

from tests.faults.faults import GAMES
from tests.faults.runs import SHORT
from tests.faults.stage import Stage
from tests.faults.writer import CLIENTS


@pytest.mark.timeout(120)
@pytest.mark.parametrize("id", [id for id, game in GAMES.items() if game.short])
def test_nothing_acknowledged_is_lost_doubled_or_reordered_and_everything_is_resolved(stage: Stage, id: str) -> None:
    lines = GAMES[id].play(stage, SHORT, 1, CLIENTS)
    for line in lines:
        print(line.json())
    assert not [f"{line.client}: {why}" for line in lines for why in line.blame]
