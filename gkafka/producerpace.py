"""How fast a producer may be filled: what its callers do before they begin a batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gkafka.callbacks import is_callback

if TYPE_CHECKING:
    from gkafka.core.accumulator import Accumulator
    from gkafka.engineworker import EngineWorker
    from gkafka.handlers import Handler
    from gkafka.inflight import InFlightRequests
    from gkafka.producernotes import Notes
    from gkafka.records import Appender

__all__ = ["Pace"]

FULL_UNSEEN = 4
"""Full batches that the worker has not seen, at which callers hand over to it. To do so at each one
costs more than it gives: 1.06 M records/s of 1 KB in place of 1.42 M."""
FULL_UNSEEN_GREENLETS = 2
"""The same with greenlets."""
BACKLOG_BYTES = 4 << 20
"""Memory beyond what is in flight that a producer may fill as fast as it can: more than its brokers
take within a rest."""
ANSWERING_S = 0.25
"""Brokers count as keeping up for so long after an answer, and after the oldest record was
produced."""
REST_S, PACE_S = 0.01, 0.001
"""Longest rest of a caller that gets ahead of the brokers, and how often it looks again."""


class Pace:
    """How fast one producer may be filled.

    lock: guards the accumulator. answered_at: when a broker answered last.
    """

    def __init__(
        self,
        handler: Handler,
        lock: Any,
        appender: Appender,
        accumulator: Accumulator,
        *,
        notes: Notes,
        in_flight: InFlightRequests,
        worker: EngineWorker,
        batch_bytes: int,
    ) -> None:
        self._handler, self._lock, self._appender, self._accumulator = handler, lock, appender, accumulator
        self._notes, self._in_flight, self._worker = notes, in_flight, worker
        self._much_unseen = batch_bytes * (FULL_UNSEEN_GREENLETS if handler.cooperative else FULL_UNSEEN)
        self.answered_at = 0.0

    def hand_over(self) -> None:
        """Once full batches wait for the worker, let it run, and whoever takes in answers."""
        if self._appender.rolled_bytes - self._notes.seen_bytes >= self._much_unseen:
            self._handler.hand_over(self._worker.signal)

    def keep(self) -> None:
        """Rest for a moment, before a batch is begun, if brokers take less than is produced.

        While they answer, memory beyond what keeps their connections busy gains nothing. While they
        do not, records gather until the buffer is full.
        """
        if not self.is_ahead() or is_callback(self._handler):  # what is ahead there may wait for that very callback
            return
        with self._lock:
            oldest = next(iter(self._accumulator.unsettled), None)
        begun = oldest.created if oldest is not None else 0.0
        until = self._handler.monotonic() + REST_S
        while (now := self._handler.monotonic()) < until and now - max(begun, self.answered_at) < ANSWERING_S and self.is_ahead():
            self._handler.sleep(PACE_S)

    def is_ahead(self) -> bool:
        """Do batches wait that could be sent? Open ones do not count: they wait for records."""
        rolled = self._accumulator.rolled_bytes + self._appender.rolled_bytes - self._notes.seen_bytes
        return bool(rolled - self._in_flight.size > max(BACKLOG_BYTES, self._in_flight.size))
