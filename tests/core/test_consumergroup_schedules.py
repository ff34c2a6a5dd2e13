"""KIP-848, whatever order things happen in: no partition has two owners, no commit comes after its partition was given up, no offset goes back,
epochs only grow, and in the end the group rests with everything owned.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from tests.core import groupschedules
from tests.core.consumergroupsim import ConsumerWorld
from tests.core.groupsim import World
from tests.effort import quick_and_thorough


def _hide(world: Any, n: int) -> None:
    world.coordinator.hidden.symmetric_difference_update({"ab"[n % 2]})


EVENTS: groupschedules.Events = {**groupschedules.EVENTS, "names are told, or not": _hide}


def _world(seed: int, chance: Random, topics: dict[str, int]) -> World:
    world = ConsumerWorld(topics=topics, seed=seed, rebalance_s=chance.choice([5.0, 20.0]))
    world.coordinator.begins_again = chance.random() < 0.5
    return world


def play(seed: int) -> World:
    return groupschedules.play(seed, _world, EVENTS)


@pytest.mark.parametrize("count", quick_and_thorough(100, 1_500, 10_000))
def test_whatever_happens_nothing_has_two_owners_and_the_group_comes_to_rest(count: int) -> None:
    groupschedules.survey(count, play)
