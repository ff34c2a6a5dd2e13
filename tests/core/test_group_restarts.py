"""A member whose driver is interrupted, at any line of its machine or between two steps, begins anew:
no partition has two owners, no offset goes back, and the group comes to rest."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gkafka.core.assignors import ASSIGNORS
from tests.core import groupschedules, test_consumergroup_schedules, test_group_schedules
from tests.core.consumergroupsim import ConsumerWorld
from tests.core.groupsim import POLL_S, SESSION_S, World, interrupted_at
from tests.effort import quick_and_thorough

KINDS = ["range", "cooperative-sticky", "consumer"]


def make(kind: str) -> World:
    topics = {"a": 3, "b": 1}
    if kind == "consumer":
        return ConsumerWorld(topics=topics, seed=1)
    return World([ASSIGNORS[kind]], topics=topics, seed=1)


def rest(world: World) -> None:
    for _ in range(8):
        world.all_is_well()
        world.pass_time(0.5)


def share(world: World) -> None:
    """Two members share; one of them leaves."""
    first = world.born()
    rest(world)
    second = world.born()
    rest(world)
    for member in (first, second):
        member.consume(3)
        member.commit(member.positions)
    rest(world)
    first.leave()
    rest(world)


def be_expelled(world: World) -> None:
    """The coordinator does not know the member any more."""
    member = world.born()
    rest(world)
    world.coordinator.expel([member.group.member_id])
    rest(world)


def freeze(world: World) -> None:
    """The session ends by the member's own clock."""
    member = world.born()
    rest(world)
    member.frozen = True
    world.pass_time(SESSION_S + 1)
    member.frozen = False
    rest(world)


def be_silent(world: World) -> None:
    """The application does not ask for messages for a while."""
    member = world.born()
    rest(world)
    member.stalled = True
    world.pass_time(POLL_S)
    member.stalled = False
    rest(world)


def some_of_each(lines: list[str], most: int) -> list[int]:
    """Where lines are executed: the last time, and at most so often before. One: of every third line alone."""
    places: dict[str, list[int]] = {}
    for number, line in enumerate(lines, 1):
        places.setdefault(line, []).append(number)
    chosen = (numbers[:: max(1, len(numbers) // most)][: most - 1] + numbers[-1:] for numbers in places.values())
    found = sorted({number for numbers in chosen for number in numbers})
    return found[:: 3 if most == 1 else 1]


@pytest.mark.parametrize("most", [1, pytest.param(20, marks=pytest.mark.thorough)], ids=["some", "many"])
@pytest.mark.parametrize("live", [share, be_expelled, freeze, be_silent])
@pytest.mark.parametrize("kind", KINDS)
def test_a_member_may_be_interrupted_at_any_line(kind: str, live: Callable[[World], None], most: int) -> None:
    """It stays a member as long as it is one, and loses nothing then."""
    losses = 0 if live is share else 1
    with interrupted_at(10**9) as lines:
        live(make(kind))
    for number in some_of_each(lines, most):
        world = make(kind)
        try:
            with interrupted_at(number):
                live(world)
            world.finish()
            assert sum(member.group.ownership.losses for member in world.members) <= losses
            assert not [member.group.error for member in world.members if member.group.error is not None]
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
