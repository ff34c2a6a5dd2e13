"""Whatever order things happen in: no partition has two owners, no offset goes back, and in the end the group rests with everything owned."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from gkafka.core.assignors import ASSIGNORS
from tests.core.groupsim import LOST, World
from tests.effort import quick_and_thorough


def _of_one(act: Callable[[Any, int], Any]) -> Callable[[World, int], Any]:
    def do(world: World, n: int) -> None:
        member = world.pick(n)
        if member is not None:
            act(member, n // 8)

    return do


def _born(world: World, n: int) -> None:
    if len(world.living) < 4:
        world.born(static=n % 4 == 0)


def _set(name: str, value: bool) -> Callable[[World, int], Any]:
    return _of_one(lambda member, n: (setattr(member, name, value), member.step()))


EVENTS: dict[str, Callable[[World, int], Any]] = {
    "a moment": lambda world, n: world.pass_time(0.05 * (n % 10)),
    "seconds": lambda world, n: world.pass_time(0.5 * (n % 12)),
    "a session": lambda world, n: world.pass_time(4.0 + n % 8),
    "all is well": lambda world, n: world.all_is_well(),
    "well for a while": lambda world, n: [(world.all_is_well(), world.pass_time(0.5)) for _ in range(8)],
    "arrive": _of_one(lambda member, n: member.arrive(n)),
    "arrive late": _of_one(lambda member, n: member.arrive_late(n)),
    "answer": _of_one(lambda member, n: member.answer(n)),
    "serve": _of_one(lambda member, n: (member.arrive(n), member.answer(n))),
    "lose": _of_one(lambda member, n: member.lose(n, late=n % 2 == 0, error=LOST)),
    "callback": _of_one(lambda member, n: member.return_from_callback()),
    "consume": _of_one(lambda member, n: member.consume(1 + n % 5)),
    "commit": _of_one(lambda member, n: member.commit(member.positions)),
    "stall": _set("stalled", True),
    "go on": _set("stalled", False),
    "freeze": _set("frozen", True),
    "wake": _set("frozen", False),
    "die": lambda world, n: _of_one(lambda member, n: member.die())(world, n) if len(world.living) > 1 else None,
    "born": _born,
    "leave": lambda world, n: _of_one(lambda member, n: (member.group.leave("done"), member.step()))(world, n) if n % 3 == 0 else None,
    "rejoin": _of_one(lambda member, n: (member.group.rejoin("it wants to"), member.step())),
    "coordinator moves": lambda world, n: world.coordinator.move() if n % 2 == 0 else None,
    "grow": lambda world, n: world.grow() if n % 5 == 0 else None,
}
OFTEN = {
    "all is well": 5,
    "serve": 8,
    "well for a while": 3,
    "callback": 4,
    "consume": 4,
    "commit": 3,
    "seconds": 4,
    "answer": 3,
    "arrive": 3,
}
NAMES = [name for name in EVENTS for _ in range(OFTEN.get(name, 1))]
KINDS = {
    "range": ["range"],
    "sticky": ["sticky"],
    "cooperative-sticky": ["cooperative-sticky"],
    "two": ["roundrobin", "cooperative-sticky"],
}


def play(seed: int) -> World:
    chance = Random(seed)
    kind = sorted(KINDS)[seed % len(KINDS)]
    topics = {"a": chance.randint(1, 5), "b": chance.randint(1, 3)}
    world = World([ASSIGNORS[name] for name in KINDS[kind]], topics=topics, seed=seed, rebalance_s=chance.choice([5.0, 20.0]))
    world.coordinator.asks_again = chance.random() < 0.8
    for _ in range(chance.randint(1, 3)):
        world.born(static=chance.random() < 0.2)
    done: list[str] = []
    try:
        for _ in range(chance.randint(10, 90)):
            name = chance.choice(NAMES)
            n = chance.randrange(1 << 16)
            done.append(f"{name} {n}")
            EVENTS[name](world, n)
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
