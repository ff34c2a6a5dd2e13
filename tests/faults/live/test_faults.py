"""Each fault in its short form, to both handlers at once. To producers: what was acknowledged is there once and in order, what was
not is accounted for in time. To groups of consumers: nothing lost or passed over, no two owners, no commit behind another.

`make faults` plays the long form, beside the control, also of those that have no short one."""

from __future__ import annotations

from typing import Any

import pytest

from tests.faults.faults import GAMES, OF_GROUPS
from tests.faults.runs import SHORT
from tests.faults.stage import Stage
from tests.faults.writer import CLIENTS

THOROUGH = {
    "F01": "tests/live/test_failover.py kills leaders under load, too",
    "F04": "tests/live/test_consumer_groups.py and test_group_members.py restart brokers one after the other",
    "F05": "F03-5 moves leaders, too",
    "F13": "F02 times deliveries out, too",
    "F25": "tests/live/test_transactions.py kills what coordinates",
}
"""Not in `make test`: fault -> its neighbour there."""


HANDLERS = tuple(client for client in CLIENTS if client != "confluent")


def in_short(*, of_groups: bool) -> list[Any]:
    ids = [id for id, game in GAMES.items() if game.short and (id in OF_GROUPS) is of_groups]
    return [pytest.param(id, marks=pytest.mark.thorough) if id in THOROUGH else id for id in ids]


@pytest.mark.parametrize("id", in_short(of_groups=False))
def test_nothing_acknowledged_is_lost_doubled_or_reordered_and_everything_is_resolved(stage: Stage, id: str) -> None:
    play(stage, id)


@pytest.mark.parametrize("id", in_short(of_groups=True))
def test_groups_lose_nothing_have_one_owner_at_a_time_and_never_commit_backwards(stage: Stage, id: str) -> None:
    play(stage, id)


def play(stage: Stage, id: str) -> None:
    lines = GAMES[id].play(stage, SHORT, 1, HANDLERS)
    for line in lines:
        print(line.json())
    assert not [f"{line.client}: {why}" for line in lines for why in line.blame]
