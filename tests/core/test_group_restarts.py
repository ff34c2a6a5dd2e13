"""A member whose driver is interrupted, at any line of its machine or between two steps, begins anew:
no partition has two owners, no offset goes back, and the group comes to rest."""

from __future__ import annotations

import pytest

from gkafka.core.assignors import ASSIGNORS
from tests.core import groupschedules, test_consumergroup_schedules, test_group_schedules
from tests.core.consumergroupsim import ConsumerWorld
from tests.core.groupsim import World, interrupted_at
from tests.effort import quick_and_thorough

KINDS = ["range", "cooperative-sticky", "consumer"]


def make(kind: str) -> World:
    topics = {"a": 3, "b": 1}
    if kind == "consumer":
        return ConsumerWorld(topics=topics, seed=1)
    return World([ASSIGNORS[kind]], topics=topics, seed=1)


def live(world: World) -> None:
    """Two members share; one of them leaves."""

    def rest() -> None:
        for _ in range(8):
            world.all_is_well()
            world.pass_time(0.5)

    first = world.born()
    rest()
    second = world.born()
    rest()
    for member in (first, second):
        member.consume(3)
        member.commit(member.positions)
    rest()
    first.leave()
    rest()


def some_of_each(lines: list[str], most: int) -> list[int]:
    """Where each line is executed: the first time, the last, and at most so often in between."""
    places: dict[str, list[int]] = {}
    for number, line in enumerate(lines, 1):
        places.setdefault(line, []).append(number)
    chosen = (numbers[:: max(1, len(numbers) // most)][:most] + numbers[-1:] for numbers in places.values())
    return sorted({number for numbers in chosen for number in numbers})


@pytest.mark.parametrize("most", [1, pytest.param(20, marks=pytest.mark.thorough)], ids=["some", "many"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_member_may_be_interrupted_at_any_line(kind: str, most: int) -> None:
    """It stays a member, and loses nothing."""
    with interrupted_at(10**9) as lines:
        live(make(kind))
    for number in some_of_each(lines, most):
        world = make(kind)
        try:
            with interrupted_at(number):
                live(world)
            world.finish()
            assert [member.group.ownership.losses for member in world.members] == [0, 0]
            assert [member.group.error for member in world.members] == [None, None]
            assert sum(member.history.count("restart") for member in world.members) == 1
        except Exception as error:
            raise AssertionError(f"interrupted at line {number}, {lines[number - 1]}: {error!r}") from error


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize("count", quick_and_thorough(100, 1_500, 10_000))
def test_whatever_else_happens_nothing_has_two_owners(protocol: str, count: int) -> None:
    world = test_group_schedules._world if protocol == "classic" else test_consumergroup_schedules._world
    events = {**groupschedules.INTERRUPTED, **(test_consumergroup_schedules.EVENTS if protocol == "consumer" else {})}
    restarts = 0
    for seed in range(count):
        for member in groupschedules.play(seed, world, events).members:
            restarts += member.history.count("restart")
    assert restarts > count
