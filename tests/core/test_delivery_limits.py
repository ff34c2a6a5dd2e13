"""How long and how often a batch is tried, and what its error says when a limit ends that."""

from __future__ import annotations

from typing import Any

import pytest

from gkafka.brokererrors import InvalidRecord, NotLeaderForPartition
from gkafka.core.accumulator import Flight, PartitionQueue
from gkafka.core.deliverylimits import DeliveryLimits
from gkafka.exceptions import SocketDisconnectedError
from tests.core.fakes import FakeBatch


def tried(attempts: int, *, unsent: int = 0) -> Any:
    """Return a batch that was created at 0 s and tried so often."""
    batch: Any = FakeBatch(0)
    batch.attempts, batch.extra = attempts, Flight(PartitionQueue(("t", 0)), (0, 0))
    batch.extra.unsent = unsent
    return batch


def test_a_batch_is_late_from_its_delivery_timeout_on() -> None:
    limits = DeliveryLimits(10.0, None)
    batch = tried(99)
    assert not limits.is_late(batch, 9.9)
    assert limits.allow_retry(batch, 9.9)
    assert limits.is_late(batch, 10.0)
    assert not limits.allow_retry(batch, 10.0)


@pytest.mark.parametrize(("counts_unsent", "allowed"), [(True, [True, True, False]), (False, [True, True, True])])
def test_retries_are_the_tries_after_the_first(counts_unsent: bool, allowed: list[bool]) -> None:
    limits = DeliveryLimits(10.0, 2)
    limits.counts_unsent = counts_unsent
    assert [limits.allow_retry(tried(attempts, unsent=1), 0.0) for attempts in (1, 2, 3)] == allowed


def test_the_error_names_the_limit_that_is_passed() -> None:
    limits = DeliveryLimits(10.0, 1)
    gone = SocketDisconnectedError("gone")
    late, often = limits.explained(tried(1), gone, 10.0), limits.explained(tried(2), gone, 0.0)
    assert str(late).startswith("10 record(s) for t-0 not delivered within 10 s: gone")
    assert str(often).startswith("t-0: ")
    assert type(late) is type(often) is SocketDisconnectedError
    assert limits.explained(tried(1), gone, 0.0) is gone


def test_no_limit_explains_an_error_that_is_not_retriable() -> None:
    error = InvalidRecord("bad")
    assert DeliveryLimits(10.0, 0).explained(tried(1), error, 99.0) is error


def test_a_timeout_names_the_error_of_the_last_try() -> None:
    batch = tried(1)
    batch.extra.refused = refused = NotLeaderForPartition("moved")
    error = DeliveryLimits(10.0, None).expired(batch, "no answer came")
    assert f"not delivered within 10 s: no answer came; the last try: {refused}" in str(error)
    assert error.__cause__ is refused
