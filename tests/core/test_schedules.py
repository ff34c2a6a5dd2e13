"""Whatever order things happen in: Hypothesis makes up schedules of losses, delays, refusals, moves and timeouts, the brokers keep Kafka's rules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import strategies as st

from gkafka.exceptions import InvalidRecord, TopicAuthorizationFailed
from tests.core.brokersim import BROKERS, DUPLICATE, NOT_LEADER, TIMED_OUT, TOO_FEW, TOO_FEW_AFTER, UNAUTHORIZED, World
from tests.effort import seeds, tried

PARTITIONS = 2
Event = tuple[str, int]


def _broker(n: int) -> int:
    return BROKERS[n % 3]


def _partition(n: int) -> int:
    return n % PARTITIONS


def _refuse(code: int) -> Callable[[World, int], None]:
    return lambda world, n: world.arrive(_broker(n), lambda copy: code)


def _write_but_say(code: int) -> Callable[[World, int], None]:
    return lambda world, n: world.arrive(_broker(n), world.write_but_say(code))


def _limit(world: World, n: int) -> None:
    world.partitions[_partition(n)].limit = (1, 2, 3, 1 << 30)[n // 2 % 4]


def _retire(world: World, n: int) -> None:
    """The leader writes, loses the partition before its followers have said that they have the batch, and says so."""
    world.arrive(_broker(n), world.write_but_say(NOT_LEADER))
    for p, partition in world.partitions.items():
        if partition.leader == _broker(n):
            world.move(p, _broker(n + 1), keep=n // 3 % 3, tell=bool(n // 9 % 2))


EVENTS: dict[str, Callable[[World, int], Any]] = {
    "produce": lambda world, n: world.produce(_partition(n), 1 + n // 2 % 4),
    "produce more": lambda world, n: [world.produce(_partition(n)) for _ in range(5)],
    "produce poison": lambda world, n: world.produce(_partition(n), poison=True),
    "produce some bad": lambda world, n: world.produce(_partition(n), 5, bad=tuple(i for i in range(5) if n // 2 % 32 >> i & 1)),
    "arrive": lambda world, n: world.arrive(_broker(n)),
    "answer": lambda world, n: world.answer(_broker(n)),
    "serve": lambda world, n: world.serve(_broker(n)),
    "serve all": lambda world, n: [world.serve(b) for b in BROKERS for _ in range(6)],
    "arrive late": lambda world, n: world.arrive_late(_broker(n)),
    "cut": lambda world, n: world.cut(_broker(n), late=bool(n // 3 % 2)),
    "never open": lambda world, n: world.never_open(_broker(n)),
    "too few": _refuse(TOO_FEW),
    "unauthorized": _refuse(UNAUTHORIZED),
    "timed out": _write_but_say(TIMED_OUT),
    "too few after": _write_but_say(TOO_FEW_AFTER),
    "retire": _retire,
    "move": lambda world, n: world.move(_partition(n), _broker(n // 2), keep=n // 6 % 3, tell=bool(n // 18 % 2)),
    "tell": lambda world, n: world.tell(),
    "restart": lambda world, n: world.partitions[_partition(n)].log.restart(),
    "limit": _limit,
    "begin anew": lambda world, n: world.begin_anew(late=bool(n % 2)),
    "next epoch": lambda world, n: world.next_epoch(marked=bool(n % 2)),
    "a moment": lambda world, n: world.step(0.02),
    "a pause": lambda world, n: world.step(1.3),
    "a while": lambda world, n: world.step(4.0),
}
NAMES = sorted(EVENTS)
FINAL = {"produce poison", "produce some bad", "unauthorized"}
DOUBTFUL = {"restart", "limit"}
"""What makes a leader contradict itself: a batch that may be written can then only fail."""

UNANSWERED = {"cut", "begin anew", "timed out", "too few after", "retire", "move"}
"""What leaves it open whether a batch was written."""


def schedules(names: list[str]) -> st.SearchStrategy[list[Event]]:
    return st.lists(st.tuples(st.sampled_from(names), st.integers(0, 71)), min_size=20, max_size=120)


parts = pytest.mark.parametrize("part", seeds(4))
"""Each part makes up schedules of its own."""
QUICK = 40
"""Examples of the part that is not thorough."""


def play(world: World, schedule: list[Event]) -> None:
    accumulator = world.rig.accumulator
    for name, n in schedule:
        EVENTS[name](world, n)
        assert accumulator.rolled_bytes == sum(batch.size for batch in accumulator.unsettled if batch.extra is not None), name
        world.check_states()
    world.finish()
    assert accumulator.rolled_bytes == 0


@parts
def test_whatever_happens_the_logs_hold_what_was_told(part: int) -> None:
    def test(schedule: list[Event], epoch: int, duplicate: int) -> None:
        play(World(PARTITIONS, epoch=epoch, duplicate=duplicate), schedule)

    tried(test, schedules(NAMES), st.sampled_from([0, 32766]), st.sampled_from([0, DUPLICATE]), seed=part, examples=100 if part else QUICK)


@parts
def test_where_nothing_is_refused_for_good_and_there_is_time_everything_is_delivered(part: int) -> None:
    def test(schedule: list[Event]) -> None:
        world = World(PARTITIONS, timeout_s=1e6)
        play(world, schedule)
        assert world.acknowledged == sorted(record for made in world.made.values() for record in made)
        assert world.rig.sender.epoch_bumps == 0

    tried(test, schedules(sorted(set(NAMES) - FINAL - DOUBTFUL)), seed=part, examples=100 if part else QUICK)


@parts
def test_where_every_try_is_answered_what_is_refused_for_good_takes_nothing_else_with_it(part: int) -> None:
    def test(schedule: list[Event]) -> None:
        world = World(PARTITIONS, timeout_s=1e6)
        play(world, schedule)
        assert {type(error) for error, _ in world.outcome.values()} <= {type(None), InvalidRecord, TopicAuthorizationFailed}
        assert {said for _, said in world.outcome.values()} <= {"yes", "no"}

    tried(test, schedules(sorted(set(NAMES) - UNANSWERED)), seed=part, examples=100 if part else QUICK)


@parts
def test_where_every_try_is_answered_records_at_fault_take_no_other_with_them(part: int) -> None:
    def test(schedule: list[Event]) -> None:
        world = World(PARTITIONS, timeout_s=1e6)
        play(world, schedule)
        assert {record for record, (error, _) in world.outcome.items() if error is not None} == world.bad
        assert world.rig.accumulator.queues.keys() <= {("t", p) for p in range(PARTITIONS)}

    final = FINAL - {"produce some bad"}
    tried(test, schedules(sorted(set(NAMES) - UNANSWERED - final)), seed=part, examples=100 if part else QUICK)
