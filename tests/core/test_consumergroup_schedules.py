"""KIP-848, whatever order things happen in: no partition has two owners, no commit comes after its partition was given up, no offset goes back,
epochs only grow, and in the end the group rests with everything owned.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from tests.core.consumergroupsim import ConsumerWorld
from tests.core.test_group_schedules import EVENTS, OFTEN
from tests.effort import quick_and_thorough


def _hide(world: Any, n: int) -> None:
    world.coordinator.hidden.symmetric_difference_update({"ab"[n % 2]})


MORE: dict[str, Callable[[Any, int], Any]] = {**EVENTS, "names are told, or not": _hide}
NAMES = [name for name in MORE for _ in range(OFTEN.get(name, 1))]


def play(seed: int) -> ConsumerWorld:
    chance = Random(seed)
    topics = {"a": chance.randint(1, 5), "b": chance.randint(1, 3)}
    world = ConsumerWorld(topics=topics, seed=seed, rebalance_s=chance.choice([5.0, 20.0]))
    world.coordinator.begins_again = chance.random() < 0.5
    for _ in range(chance.randint(1, 3)):
        world.born(static=chance.random() < 0.2)
    done: list[str] = []
    try:
        for _ in range(chance.randint(10, 90)):
            name = chance.choice(NAMES)
            n = chance.randrange(1 << 16)
            done.append(f"{name} {n}")
            MORE[name](world, n)
            world.check()
        done.append("finish")
        world.finish()
    except Exception as error:
        raise AssertionError(f"seed {seed}, after {len(done)} events, {done[-12:]}: {error!r}") from error
    return world


@pytest.mark.parametrize("count", quick_and_thorough(300, 1_500, 10_000))
def test_whatever_happens_nothing_has_two_owners_and_the_group_comes_to_rest(count: int) -> None:
    seen: Counter[str] = Counter()
    for seed in range(count):
        world = play(seed)
        for member in world.members:
            seen["losses"] += member.group.losses
            seen["rebalances"] += member.group.rebalances
            seen.update(line.split()[0] if not line.startswith("commit") else line for line in member.history)
    traces = {"losses", "rebalances", "assigned", "revoked", "lost", "commit done", "commit retry"}
    assert all(seen[trace] > count // 20 for trace in traces), seen
