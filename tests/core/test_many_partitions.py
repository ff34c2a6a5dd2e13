"""5,000 partitions cost what is due, not what is open. Counted are the lines that the machine executes: never the time they take."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import gkafka.core
from gkafka.exceptions import SocketDisconnectedError
from tests.core.fakes import Rig

CORE = str(Path(gkafka.core.__file__).parent)
FEW, MANY = 100, 5000
NOT_LEADER = 6


def lines(work: Callable[[], object]) -> int:
    """How many lines of core/ are executed."""
    count = 0

    def trace(frame: Any, event: str, _: Any) -> Any:
        nonlocal count
        if not frame.f_code.co_filename.startswith(CORE):
            return None
        if event == "line":
            count += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def busy(n: int, **options: Any) -> Rig:
    """n partitions of three brokers, each with an acknowledged batch and one that lingers."""
    rig = Rig({p: 1 + p % 3 for p in range(n)}, **{"linger_s": 60.0, "max_request_bytes": 1 << 30, **options})
    for partition in range(n):
        rig.full(partition)
    answer_all(rig)
    for partition in range(n):
        rig.open(partition, size=100)
    rig.poll()
    return rig


def answer_all(rig: Rig) -> None:
    while requests := rig.sent():
        for request in requests:
            rig.answer(request)


def compared(work: Callable[[Rig], object], **options: Any) -> tuple[int, int]:
    counts = []
    for n in (FEW, MANY):
        rig = busy(n, **options)
        counts.append(lines(lambda rig=rig: work(rig)))
    assert counts[0] > 5, "something was counted"
    return counts[0], counts[1]


def produce_one(rig: Rig) -> None:
    batch = rig.accumulator.open["t", 7]
    rig.accumulator.rolled(batch)
    rig.open(7)
    (request,) = rig.sent()
    assert request.batches == [batch]


WORK: dict[str, Callable[[Rig], object]] = {
    "a poll with nothing due": lambda rig: rig.poll(),
    "a full batch": produce_one,
    "somebody who waits": lambda rig: (rig.accumulator.hurry(rig.accumulator.open["t", 9]), rig.sent()),
    "an open batch": lambda rig: (rig.accumulator.rolled(rig.accumulator.open["t", 3]), rig.open(3), rig.poll()),
}


@pytest.mark.parametrize("what", WORK)
def test_a_poll_costs_what_is_due(what: str) -> None:
    few, many = compared(WORK[what])
    assert many <= few * 1.1 + 5


def test_an_acknowledged_batch_costs_the_same_among_many() -> None:
    counts = []
    for n in (FEW, MANY):
        rig = busy(n)
        rig.accumulator.rolled(rig.accumulator.open["t", 5])
        (request,) = rig.sent()

        def answered(rig: Rig = rig, request: Any = request) -> None:
            settled, _ = rig.answer(request)
            assert len(settled) == 1
            rig.poll()

        counts.append(lines(answered))
    assert counts[1] <= counts[0] * 1.1 + 5


def test_one_retry_costs_the_same_among_many() -> None:
    def retried(rig: Rig) -> None:
        rig.accumulator.rolled(rig.accumulator.open["t", 5])
        (request,) = rig.sent()
        rig.answer(request, NOT_LEADER)
        assert rig.sent() == []
        rig.now += 1.0
        (request,) = rig.sent()
        rig.answer(request)
        assert rig.sent() == []

    few, many = compared(retried)
    assert many <= few * 1.1 + 5


def test_lingers_that_end_cost_as_many_as_they_are() -> None:
    rig = Rig(dict.fromkeys(range(MANY), 1), linger_s=1.0)
    for partition in range(MANY):
        rig.now = partition * 1e-3
        rig.open(partition, size=100)
    rig.now = 1.0
    few = lines(lambda: rig.poll())
    rig.now = 1.0101
    some = lines(lambda: rig.poll())
    assert few < some < 100 * few
    assert sum(len(r.batches) for r in rig.sent()) == 0
    assert len(rig.accumulator.lingering) == MANY - 11


def test_a_broker_that_is_away_does_not_make_the_others_dear() -> None:
    """Partitions that wait for a broker are not looked at again and again."""

    def work(rig: Rig) -> None:
        rig.accumulator.rolled(rig.accumulator.open["t", 0])
        assert len(rig.sent()) == 1

    def ready_at(broker_id: int) -> float:
        return 9.0 if broker_id == 2 else 0.0

    counts = []
    for n in (FEW, MANY):
        rig = busy(n)
        for partition in range(1, n, 3):
            rig.accumulator.rolled(rig.accumulator.open["t", partition])
        assert rig.sender.poll(rig.now, ready_at).requests == []
        assert rig.sender.next_due(rig.now, ready_at) == 9.0
        rig.sender.in_flight[2] = 5
        counts.append(lines(lambda rig=rig: work(rig)))  # type: ignore[misc]
    assert counts[1] <= counts[0] * 1.1 + 5


def test_everything_goes_out_in_turn_and_nothing_is_forgotten() -> None:
    rig = Rig({p: 1 + p % 3 for p in range(MANY)}, max_request_bytes=100_000)
    for _ in range(2):
        for partition in range(MANY):
            rig.full(partition)
    requests = 0
    while rig.accumulator.unsettled:
        rig.now += 1.0
        for request in rig.sent():
            requests += 1
            assert len({b.partition for b in request.batches}) == len(request.batches)
            rig.answer(request)
    assert requests == 2 * MANY // 100 + 2


def test_partitions_of_a_leader_that_moved_go_to_the_new_one() -> None:
    from tests.core.fakes import MetadataRequest, told

    rig = Rig(dict.fromkeys(range(10), 1))
    for partition in range(10):
        rig.full(partition)
    assert rig.sender.poll(0.0, lambda broker_id: 5.0).requests == [], "its broker is away"
    rig.metadata.on_response(MetadataRequest(topics=None), told(dict.fromkeys(range(10), 2), epoch=2), 0.0)
    (request,) = rig.sender.poll(0.0, lambda broker_id: 5.0 if broker_id == 1 else 0.0).requests
    assert (request.broker_id, len(request.batches)) == (2, 10)


def test_a_partition_without_a_leader_asks_for_one_until_nothing_of_it_is_left() -> None:
    rig = Rig({0: 1}, delivery_timeout_s=10.0)
    rig.metadata.topics.clear()
    rig.full()
    assert rig.poll().want_metadata
    assert rig.poll().want_metadata
    rig.now = 10.0
    assert len(rig.expired()) == 1
    assert not rig.poll().want_metadata


def test_what_the_gate_holds_back_goes_when_it_opens() -> None:
    rig = Rig({0: 1, 1: 1})
    closed = {("t", 0)}
    rig.sender.set_gate(lambda key: key not in closed)
    rig.full(0), rig.full(1)
    assert [b.partition for r in rig.sent() for b in r.batches] == [1]
    assert rig.sent() == []
    closed.clear()
    assert [b.partition for r in rig.sent() for b in r.batches] == [0]


def test_a_half_full_batch_rides_in_the_next_request_of_its_partition_not_beside_the_full_one() -> None:
    rig = Rig({0: 1})
    rig.full(0)
    (first,) = rig.sent()
    rig.answer(first)
    full, half = rig.full(0), rig.open(0, size=3000)
    assert [r.batches for r in rig.sent()] == [[full], [half]]


def test_lost_requests_bring_all_their_partitions_back() -> None:
    rig = Rig(dict.fromkeys(range(300), 1))
    for partition in range(300):
        rig.full(partition)
    (request,) = rig.sent()
    rig.lose(request, SocketDisconnectedError("gone"))
    rig.now = 5.0
    (again,) = rig.sent()
    assert {b.partition for b in again.batches} == set(range(300))
