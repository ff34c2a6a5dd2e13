"""The states of a producer's batch: which moves there are, and where a restart finds a batch in each of them."""

from __future__ import annotations

from typing import Any

import pytest

from gkafka import records
from gkafka.core.accumulator import PartitionQueue
from gkafka.core.batchstate import MOVES, BatchEvent, BatchState, count_states, state_of
from gkafka.core.sender import Settled
from gkafka.core.splitting import in_its_place
from gkafka.exceptions import SocketDisconnectedError
from gkafka.records._split import before
from tests.core.fakes import FakeBatch, Rig
from tests.records.write_helpers import fill


def test_a_batch_that_is_delivered_goes_through_its_states_in_order() -> None:
    rig = Rig()
    batch = rig.open()
    seen = [state_of(batch)]
    rig.accumulator.rolled(batch)
    seen.append(state_of(batch))
    (request,) = rig.sent()
    seen.append(state_of(batch))
    rig.answer(request)
    seen.append(state_of(batch))
    rig.tell()
    seen.append(state_of(batch))
    assert seen == [BatchState.OPEN, BatchState.READY, BatchState.IN_FLIGHT, BatchState.SETTLED, BatchState.TOLD]


def test_a_batch_whose_answer_was_lost_is_ready_to_be_sent_again() -> None:
    rig = Rig()
    batch = rig.full()
    rig.lose(rig.sent()[0], SocketDisconnectedError("gone"))
    assert state_of(batch) is BatchState.READY


def test_a_batch_that_is_too_large_is_divided_and_its_parts_are_ready() -> None:
    rig = Rig()
    whole = rig.full(count=2)
    rig.answer(rig.sent()[0], 10)
    assert state_of(whole) is BatchState.DIVIDED
    assert count_states(rig.accumulator.unsettled) == {"ready": 2}


@pytest.mark.parametrize("state", [BatchState.SETTLED, BatchState.TOLD, BatchState.DIVIDED])
@pytest.mark.parametrize(
    "event", [BatchEvent.ROLL, BatchEvent.SEND, BatchEvent.BACK, BatchEvent.DIVIDE, BatchEvent.SETTLE, BatchEvent.RESTART]
)
def test_what_has_its_outcome_is_neither_sent_nor_settled_again(state: BatchState, event: BatchEvent) -> None:
    assert (state, event) not in MOVES


def test_a_restart_takes_batches_that_the_worker_had_not_seen_in_their_order() -> None:
    rig = Rig()
    rolled: Any = FakeBatch(0)
    rolled.is_open = False
    grows: Any = FakeBatch(0)
    rig.sender.restart((rolled, grows))
    assert [state_of(batch) for batch in (rolled, grows)] == [BatchState.READY, BatchState.OPEN]
    assert rig.accumulator.open == {("t", 0): grows}
    assert [batch for request in rig.sent() for batch in request.batches] == [rolled]


def test_a_restart_sends_nothing_again_that_is_settled_and_has_it_told_once() -> None:
    rig = Rig()
    batch = rig.full()
    rig.answer(rig.sent()[0])
    rig.sender.outcomes.take_ended()  # and whoever was to tell it was interrupted
    rig.sender.restart(())
    assert not rig.sent()
    assert state_of(batch) is BatchState.SETTLED
    assert rig.tell() == [batch]
    assert not rig.tell()


def test_a_restart_leaves_alone_what_everybody_was_told_of() -> None:
    rig = Rig()
    batch = rig.full()
    rig.answer(rig.sent()[0])
    rig.tell()
    rig.sender.restart(())
    assert state_of(batch) is BatchState.TOLD
    assert not rig.sender.owes
    assert not rig.sent()


class Hit(BaseException):
    """What a signal handler raises."""


def hit(*_: Any) -> None:
    raise Hit


def test_a_batch_whose_outcome_was_noted_and_not_its_state_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig()
    batch = rig.full()
    (request,) = rig.sent()

    class Ended(list[Settled]):
        def append(self, settled: Settled) -> None:
            super().append(settled)
            raise Hit

    with monkeypatch.context() as patch:
        patch.setattr(rig.sender.outcomes, "ended", ended := Ended())
        with pytest.raises(Hit):
            rig.answer(request)
        assert [settled.batch for settled in ended] == [batch]
        assert state_of(batch) is BatchState.IN_FLIGHT
        rig.sender.restart(())
        assert rig.tell() == [batch]
    assert state_of(batch) is BatchState.TOLD
    assert not rig.sent()


def test_a_restart_that_is_interrupted_itself_loses_no_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig({0: 1, 1: 1, 2: 1})
    batches = [rig.full(partition) for partition in range(3)]
    with monkeypatch.context() as patch:
        patch.setattr(PartitionQueue, "put_back", hit)
        with pytest.raises(Hit):
            rig.sender.restart(())
    rig.sender.restart(())
    assert [batch for request in rig.sent() for batch in request.batches] == batches


def test_a_batch_that_was_settled_as_its_worker_was_interrupted_is_not_settled_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has its outcome, and is among the unsettled ones still."""
    rig = Rig()
    batch = rig.full()
    (request,) = rig.sent()
    with monkeypatch.context() as patch:
        patch.setattr(rig.accumulator, "settled", hit)
        with pytest.raises(Hit):
            rig.answer(request)
    assert batch in rig.accumulator.unsettled
    rig.sender.restart(())
    assert rig.tell() == [batch]
    assert not rig.sender.owes


def test_parts_of_a_part_are_found_in_its_place() -> None:
    """As long as nothing but the batch itself knows that it was divided."""
    whole = fill(records, [(1, None, b"x" * 100, None)] * 8)
    assert in_its_place(whole) == [whole]
    first, second = whole.split(before(4))
    assert in_its_place(whole) == [first, second]
    parts = first.split(before(2))
    assert in_its_place(first) == parts
    assert in_its_place(second) == [second]
    assert in_its_place(whole) == [*parts, second]
