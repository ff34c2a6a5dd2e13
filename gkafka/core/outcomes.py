"""What became of the producer's batches, until everybody who waits for a batch has been told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from gkafka.core.batchstate import MOVES, BatchEvent, BatchState

if TYPE_CHECKING:
    from gkafka.exceptions import KafkaException
    from gkafka.records import Batch

__all__ = ["BatchOutcomes", "Settled", "Telling"]


class Settled(NamedTuple):
    """The outcome of one batch.

    error: None if the batch is in the log at base_offset, which is -1 if the broker did not say.
    """

    batch: Batch
    base_offset: int
    log_append_time: int
    error: KafkaException | None


class Telling(NamedTuple):
    """An outcome that is being told.

    callbacks: empty until the batch is complete or failed. Then it holds the callbacks to run, and
    after them a None as soon as they are queued. A driver that continues after an interruption
    sees from that which steps it must not repeat.
    """

    outcome: Settled
    callbacks: list[list[Any] | None]


class BatchOutcomes:
    """The outcomes of one producer that are still to be told.

    ended: outcomes that the driver has not taken yet. telling: outcomes that the driver has taken
    and has not finished with, by batch.
    """

    def __init__(self) -> None:
        self.ended: list[Settled] = []
        self.telling: dict[Batch, Telling] = {}

    def take_ended(self) -> list[Settled]:
        """Return the outcomes since the last call. They are owed until `told`."""
        ended = self.ended
        for settled in ended:
            self.telling.setdefault(settled.batch, Telling(settled, []))
        self.ended = []
        return ended

    def told(self, taken: list[Settled]) -> int:
        """Note that the driver is through with these outcomes. Return how many records were told.

        An outcome whose batch is not done was not told, because the driver was interrupted: it goes
        back to `ended`.
        """
        count, untold = 0, []
        for settled in taken:
            if settled.batch.done:
                count += settled.batch.count
                flight = settled.batch.extra
                flight.state = MOVES[flight.state, BatchEvent.TELL]
            else:
                untold.append(settled)
        self.ended[:0] = untold
        for settled in taken:
            self.telling.pop(settled.batch, None)
        return count

    def batches(self) -> list[Batch]:
        """Return the batches whose outcome is still to be told."""
        return [*self.telling, *(settled.batch for settled in self.ended)]

    def restart(self) -> dict[Batch, Settled]:
        """Have everything told again that an interrupted driver may not have told. Return it."""
        entries = (*(entry.outcome for entry in self.telling.values()), *self.ended)
        outcomes = {settled.batch: settled for settled in entries}
        for flight in (batch.extra for batch in outcomes):
            if flight.state in (BatchState.READY, BatchState.IN_FLIGHT):  # whoever settled it came no further
                flight.state = MOVES[flight.state, BatchEvent.SETTLE]
        self.ended = list(outcomes.values())
        return outcomes
