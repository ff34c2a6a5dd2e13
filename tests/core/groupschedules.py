"""What happens to the members of a group in `groupsim`, in any order, whichever protocol they speak."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

from tests.core.groupsim import LOST, World, interrupted_at

__all__ = ["EVENTS", "INTERRUPTED", "Events", "MakeWorld", "play", "survey"]


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


Events = Mapping[str, Callable[[Any, int], Any]]
MakeWorld = Callable[[int, Random, dict[str, int]], World]
"""(seed, chance, the topics' numbers of partitions)."""

EVENTS: Events = {
    "a moment": lambda world, n: world.pass_time(0.05 * (n % 10)),
    "seconds": lambda world, n: world.pass_time(0.5 * (n % 12)),
    "a session": lambda world, n: world.pass_time(4.0 + n % 8),
    "all is well": lambda world, n: world.all_is_well(),
    "well for a while": lambda world, n: [(world.all_is_well(), world.pass_time(0.5)) for _ in range(8)],
    "arrive": _of_one(lambda member, n: member.arrive(n)),
    "arrive late": lambda world, n: world.members[n % len(world.members)].arrive_late(n // 8),
    "answer": _of_one(lambda member, n: member.answer(n)),
    "serve": _of_one(lambda member, n: (member.arrive(n), member.answer(n))),
    "lose a commit": _of_one(lambda member, n: member.lose(-1, late=True, error=LOST) if member.committing else None),
    "interrupt a commit": _of_one(lambda member, n: member.interrupt(n)),
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
    "leave": lambda world, n: _of_one(lambda member, n: member.leave())(world, n) if n % 3 == 0 else None,
    "rejoin": _of_one(lambda member, n: (member.group.rejoin("it wants to"), member.step())),
    "coordinator moves": lambda world, n: world.coordinator.move() if n % 2 == 0 else None,
    "grow": lambda world, n: world.grow() if n % 5 == 0 else None,
}


def _interrupted(act: Callable[[Any, int], Any]) -> Callable[[World, int], Any]:
    def do(member: Any, n: int) -> None:
        with interrupted_at(1 + n // 4 % 200):
            act(member, n)

    return _of_one(do)


INTERRUPTED: Events = {
    **EVENTS,
    "restart": _of_one(lambda member, n: member.restart()),
    "interrupt a step": _interrupted(lambda member, n: member.step()),
    "interrupt an answer": _interrupted(lambda member, n: (member.arrive(n), member.answer(n))),
    "interrupt a loss": _interrupted(lambda member, n: member.lose(n, late=n % 2 == 0, error=LOST)),
    "interrupt a callback": _interrupted(lambda member, n: member.return_from_callback()),
}
"""The same, and members whose drivers are interrupted, at any line of the machine or between two steps."""
OFTEN = {
    "interrupt a step": 2,
    "interrupt an answer": 8,
    "interrupt a callback": 3,
    "all is well": 5,
    "serve": 8,
    "well for a while": 3,
    "callback": 4,
    "consume": 4,
    "commit": 3,
    "lose a commit": 2,
    "interrupt a commit": 2,
    "arrive late": 4,
    "seconds": 4,
    "answer": 3,
    "arrive": 3,
}


def play(seed: int, make: MakeWorld, events: Events = EVENTS) -> World:
    """One schedule, to its end, where the group has come to rest."""
    names = [name for name in events for _ in range(OFTEN.get(name, 1))]
    chance = Random(seed)
    world = make(seed, chance, {"a": chance.randint(1, 5), "b": chance.randint(1, 3)})
    for _ in range(chance.randint(1, 3)):
        world.born(static=chance.random() < 0.2)
    done: list[str] = []
    try:
        for _ in range(chance.randint(10, 90)):
            name = chance.choice(names)
            n = chance.randrange(1 << 16)
            done.append(f"{name} {n}")
            events[name](world, n)
            world.check()
        done.append("finish")
        world.finish()
    except Exception as error:
        raise AssertionError(f"seed {seed}, after {len(done)} events, {done[-12:]}: {error!r}") from error
    return world


def survey(count: int, play_one: Callable[[int], World]) -> None:
    """Play that many; of all that can happen to members, enough has happened."""
    seen: Counter[str] = Counter()
    for seed in range(count):
        for member in play_one(seed).members:
            seen["losses"] += member.group.ownership.losses
            seen["rebalances"] += member.group.rebalances
            seen.update(line if "commit" in line else line.split()[0] for line in member.history)
    traces = {"losses", "rebalances", "assigned", "revoked", "lost", "commit done", "commit retry"}
    assert all(seen[trace] > count // 20 for trace in traces), seen
    late = {"late commit taken", "late commit refused", "commit answered in another generation"}
    assert all(seen[trace] > count // 200 for trace in late), seen
