"""The states of a producer's batch, from its first record until everybody has been told of its outcome.

             ROLL          SEND              SETTLE           TELL
    (OPEN) ------> READY ------> IN_FLIGHT -------> SETTLED ------> TOLD
                    |  ^____________|  |
                    |   BACK, RESTART  | DIVIDE
                    |                  v
                    | SETTLE        DIVIDED: its parts are READY in its place
                    v
                 SETTLED

A batch stands in `Accumulator.unsettled` until it is SETTLED or DIVIDED, and its outcome in
`BatchOutcomes` until it is TOLD. Whatever else holds batches (a partition's queue, a request) only
says where to find them, and is made anew from the states after an interruption.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gkafka.records import Batch

__all__ = ["MOVES", "BatchEvent", "BatchState", "count_states", "state_of"]


class BatchState(enum.IntEnum):
    """OPEN: takes records. READY: takes no more, and waits to be sent, or sent again. IN_FLIGHT: a
    request holds it, whose answer is awaited. SETTLED: delivered or failed. TOLD: its waiters were
    woken, and its callbacks are queued. DIVIDED: its parts are batches in its place.
    """

    OPEN = 0
    READY = 1
    IN_FLIGHT = 2
    SETTLED = 3
    TOLD = 4
    DIVIDED = 5


class BatchEvent(enum.IntEnum):
    """ROLL: it is full, or its time to linger is over. SEND: it is in a request. BACK: it has to be
    sent again, or its request never went out. DIVIDE: it is too large for a broker, or some of its
    records are refused. SETTLE: it has its outcome. TELL: everybody has heard of that. RESTART: the
    producer's engine begins anew.
    """

    ROLL = 0
    SEND = 1
    BACK = 2
    DIVIDE = 3
    SETTLE = 4
    TELL = 5
    RESTART = 6


MOVES: dict[tuple[BatchState, BatchEvent], BatchState] = {
    (BatchState.OPEN, BatchEvent.ROLL): BatchState.READY,
    (BatchState.READY, BatchEvent.SEND): BatchState.IN_FLIGHT,
    (BatchState.READY, BatchEvent.SETTLE): BatchState.SETTLED,
    (BatchState.READY, BatchEvent.RESTART): BatchState.READY,
    (BatchState.IN_FLIGHT, BatchEvent.BACK): BatchState.READY,
    (BatchState.IN_FLIGHT, BatchEvent.DIVIDE): BatchState.DIVIDED,
    (BatchState.IN_FLIGHT, BatchEvent.SETTLE): BatchState.SETTLED,
    (BatchState.IN_FLIGHT, BatchEvent.RESTART): BatchState.READY,
    (BatchState.SETTLED, BatchEvent.TELL): BatchState.TOLD,
    (BatchState.TOLD, BatchEvent.TELL): BatchState.TOLD,  # by a teller that was interrupted, too
}
"""A pair that is not there cannot be: it raises a KeyError."""


def state_of(batch: Batch) -> BatchState:
    """Return a batch's state: OPEN until the machine has noted anything about it."""
    state: BatchState = BatchState.OPEN if batch.extra is None else batch.extra.state
    return state


def count_states(batches: Iterable[Batch]) -> dict[str, int]:
    """Count batches by state, for people: {"open": 2, "in_flight": 1}. States of none are left out."""
    counts = Counter(map(state_of, batches))
    return {state.name.lower(): counts[state] for state in BatchState if counts[state]}
