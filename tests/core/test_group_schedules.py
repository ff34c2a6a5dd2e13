"""Whatever order things happen in: no partition has two owners, no offset goes back, and in the end the group rests with everything owned."""

from __future__ import annotations

from random import Random

import pytest

from gkafka.core.assignors import ASSIGNORS
from tests.core import groupschedules
from tests.core.groupsim import World
from tests.effort import quick_and_thorough

KINDS = {
    "range": ["range"],
    "sticky": ["sticky"],
    "cooperative-sticky": ["cooperative-sticky"],
    "two": ["roundrobin", "cooperative-sticky"],
}


def _world(seed: int, chance: Random, topics: dict[str, int]) -> World:
    assignors = [ASSIGNORS[name] for name in KINDS[sorted(KINDS)[seed % len(KINDS)]]]
    world = World(assignors, topics=topics, seed=seed, rebalance_s=chance.choice([5.0, 20.0]))
    world.coordinator.asks_again = chance.random() < 0.8
    return world


def play(seed: int) -> World:
    return groupschedules.play(seed, _world)


@pytest.mark.parametrize("count", quick_and_thorough(100, 1_500, 10_000))
def test_whatever_happens_nothing_has_two_owners_and_the_group_comes_to_rest(count: int) -> None:
    groupschedules.survey(count, play)
