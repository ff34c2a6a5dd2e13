"""Which numbers the batches of a partition carry, and under which producer id and epoch.

One rule stands above the others: a batch keeps its number, and the epoch of that number, for as long as a copy of it may be in a log or on
its way there. It is numbered anew, under a new epoch, only when it is certain that no copy was written or will be. What cannot be
told apart fails, as "maybe" persisted: that is never a loss nobody hears of, nor a record that is there twice.

Source: KIP-98, KIP-360. The broker's side: a leader takes the number after the last one, or 0 under a newer epoch, or any from a producer
that it does not know; it refuses an older epoch; and it knows the last five batches again.
"""

from __future__ import annotations

import enum
import logging
from typing import TYPE_CHECKING

from gkafka.brokererrors import (
    PRODUCER_ID,
    OutOfOrderSequenceNumber,
    UnknownProducerId,
    UnsupportedVersion,
    error_for,
)
from gkafka.core.accumulator import SEQUENCES, Flight, PartitionQueue, ProducerId
from gkafka.core.backoff import Backoff, Chance, Retry
from gkafka.exceptions import KafkaException
from gkafka.logs import LaterLines, get_logger
from gkafka.wire.txn import InitProducerIdRequest, InitProducerIdResponse

if TYPE_CHECKING:
    from gkafka.records import Batch

__all__ = ["Event", "Idempotence", "Numbering", "in_doubt"]

log = get_logger(__name__)

MAX_EPOCH = (1 << 15) - 1
KEPT_BATCHES = 5
"""So many batches of a producer a leader knows again, for each partition."""


class Idempotence(enum.Enum):
    """OFF: no producer id is used. WANTED: one has to be asked for. ASKED: the request is out. READY: batches are numbered."""

    OFF = "off"
    WANTED = "wanted"
    ASKED = "asked"
    READY = "ready"


class Event(enum.Enum):
    """What moves the state of idempotence."""

    ASK = "ask"
    GRANTED = "granted"
    FAILED = "failed"
    UNSUPPORTED = "unsupported"
    EXHAUSTED = "exhausted"


MOVES: dict[tuple[Idempotence, Event], Idempotence] = {
    (Idempotence.WANTED, Event.ASK): Idempotence.ASKED,
    (Idempotence.ASKED, Event.GRANTED): Idempotence.READY,
    (Idempotence.ASKED, Event.FAILED): Idempotence.WANTED,
    (Idempotence.ASKED, Event.UNSUPPORTED): Idempotence.OFF,
    (Idempotence.READY, Event.EXHAUSTED): Idempotence.WANTED,
}


class Numbering:
    """producer: the id and epoch in force, None unless the state is READY. wanted: None gives idempotence up where brokers know none."""

    def __init__(self, wanted: bool | None, *, backoff: Backoff, chance: Chance, lines: LaterLines) -> None:
        self.state = Idempotence.OFF if wanted is False else Idempotence.WANTED
        self.required = wanted is True
        self.producer: ProducerId | None = None
        self.epoch_bumps = 0
        self.retry = Retry()
        self._backoff, self._chance, self._lines = backoff, chance, lines

    def move(self, event: Event) -> None:
        self.state = MOVES[self.state, event]

    # -- the producer id -------------------------------------------------------------------------------------------------
    def wants_id(self, now: float) -> bool:
        """Is it time to ask for a producer id?"""
        return self.state is Idempotence.WANTED and now >= self.retry.not_before

    @staticmethod
    def request() -> InitProducerIdRequest:
        """KIP-98: a producer id without a transactional id."""
        return InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=(1 << 31) - 1)

    def on_answer(self, response: InitProducerIdResponse | None, error: KafkaException | None, now: float) -> KafkaException | None:
        """Take the answer. Returns the error if it is final: then nothing can be sent."""
        if response is not None:
            error = error_for(response.error_code, api="InitProducerId")
        if error is None and response is not None:
            self.producer = (response.producer_id, response.producer_epoch)
            self.retry.succeeded()
            self.move(Event.GRANTED)
            return None
        assert error is not None
        if isinstance(error, UnsupportedVersion) and not self.required:
            text = "the brokers know no producer ids (they are older than 0.11): sending without idempotence, retries may duplicate"
            self._lines.add(log, logging.WARNING, text)
            self.move(Event.UNSUPPORTED)
            return None
        self.move(Event.FAILED)
        self.retry.failed(self._backoff, now, self._chance)
        return None if error.retriable else error

    def ask_again(self) -> None:
        """Nobody hears the answer, because somebody was interrupted: no broker has failed."""
        self.move(Event.FAILED)

    def adopt(self, producer: ProducerId) -> None:
        """Take the producer id and epoch that a transaction's coordinator gave. Nothing is unsettled, or nothing was ever sent."""
        if producer == self.producer:
            return
        if self.state is Idempotence.WANTED:
            self.move(Event.ASK)
            self.move(Event.GRANTED)
        self.producer = producer

    def _bump(self, queue: PartitionQueue) -> None:
        if self.producer is None or queue.producer != self.producer:
            return  # another partition has moved the producer on already
        producer_id, epoch = self.producer
        self.epoch_bumps += 1
        text = "producer %d: epoch %d ends at a gap in the numbers of %s-%d (KIP-360)"
        self._lines.add(log, logging.INFO, text, producer_id, epoch, *queue.key)
        if epoch >= MAX_EPOCH:
            self.producer = None
            self.move(Event.EXHAUSTED)
        else:
            self.producer = (producer_id, epoch + 1)

    # -- the numbers -----------------------------------------------------------------------------------------------------
    def must_wait(self, queue: PartitionQueue) -> bool:
        """Must what is on the wire of a partition be settled before a batch that was never sent follows it?

        - Nothing goes beside a partition's first batch: a leader that knows nothing of this producer takes any number, so the second could
          land where the first was refused (B10). One that has acknowledged a batch wants the next number, or 0 under a newer epoch.
        - Numbers under an older epoch are settled first, and so are those around a gap: the numbering then starts anew.
        - No batch is left so far behind that its leader would not know it again.
        """
        producer = self.producer
        if producer is None:
            return False
        if queue.known_to != producer[0] or queue.producer != producer or queue.gap is not None:
            return True
        rank: int = queue.pending[0].extra.order[0] if queue.pending else queue.orders
        oldest: int = queue.on_wire[0].extra.order[0]
        return rank - oldest >= KEPT_BATCHES

    def number(self, queue: PartitionQueue, batch: Batch) -> None:
        """Give a batch that is to be sent its number, unless it has one: a retry is the same batch to the broker."""
        flight: Flight = batch.extra
        if flight.sequence >= 0 or self.producer is None:
            return
        if queue.producer != self.producer:
            queue.producer, queue.next_sequence = self.producer, 0
        flight.sequence, flight.producer = queue.next_sequence, queue.producer
        queue.next_sequence = (queue.next_sequence + batch.count) % SEQUENCES

    def written(self, queue: PartitionQueue, batch: Batch) -> None:
        """The batch was acknowledged: so all numbers before its own have arrived."""
        flight: Flight = batch.extra
        if flight.producer is None:
            return
        queue.known_to = flight.producer[0]
        if queue.gap is not None:
            if flight.order > queue.gap and flight.producer == queue.producer:
                queue.gap = queue.dead = None
            self.mend(queue)

    @staticmethod
    def is_refusal(batch: Batch, error: KafkaException) -> bool:
        """Is the error about the batch's number?"""
        return batch.extra.sequence >= 0 and (isinstance(error, OutOfOrderSequenceNumber) or error.stale is PRODUCER_ID)

    @staticmethod
    def refused(queue: PartitionQueue, batch: Batch, error: KafkaException) -> bool:
        """A leader does not take the batch's number. May the batch be sent again? If its number is what is wrong, `mend` takes it away.

        - UNKNOWN_PRODUCER_ID comes from a leader that knows nothing of this producer any more, and takes nothing but number 0: no copy of
          this batch or of a younger one can be there, or get there.
        - Behind an older batch that is unsettled it is a consequence: the number is right, its turn comes (B14).
        - Behind a gap the number can never be next, and else the leader contradicts what it has acknowledged. Then a batch of which every
          try was refused may be numbered anew. One of which a try got no answer may be there, or get there: it is not sent again.
        """
        flight: Flight = batch.extra
        if isinstance(error, UnknownProducerId):
            flight.persisted, queue.known_to = "no", None
            if flight.producer == queue.producer:
                _note_gap(queue, _before(flight.order), dead=flight.order)
            return True
        if queue.has_older(batch):
            return True
        if queue.gap is None and flight.producer == queue.producer:
            queue.known_to = None
            _note_gap(queue, _before(flight.order), dead=None)
        return flight.persisted == "no"

    @staticmethod
    def lost(queue: PartitionQueue, batch: Batch) -> None:
        """The batch has failed for good. Its number is a gap, unless it arrives after all, or has arrived."""
        flight: Flight = batch.extra
        if flight.sequence >= 0 and flight.producer == queue.producer:
            _note_gap(queue, flight.order, dead=flight.order if flight.persisted == "no" else None)

    def mend(self, queue: PartitionQueue) -> None:
        """Begin the partition's numbers anew, under a new epoch, if they have a gap and what may be written is settled (KIP-360).

        Without that all that follows would be refused for ever. A batch that may be written first goes again under its number: its answer
        tells. If that one is taken there was no gap.
        """
        if queue.gap is None or queue.on_wire:
            return
        if queue.pending and _is_bound(queue, queue.pending[0].extra):
            return
        for batch in queue.pending:
            if not _is_bound(queue, batch.extra):
                batch.extra.unnumber()
        queue.gap = queue.dead = None
        self._bump(queue)


def in_doubt(batch: Batch, error: KafkaException) -> KafkaException:
    """Return the error of a batch that may be in the log, and whose number is refused now."""
    text = (
        f"{batch.topic}-{batch.partition}: {batch.count} record(s) may be in the log or not: the answer to an earlier try was lost, and now the "
        f"leader refuses their number, so they are not sent again; look for them in the topic before producing them again ({error})"
    )
    return type(error)(text, topic=batch.topic, partition=batch.partition, broker=error.broker, api="Produce")


def _note_gap(queue: PartitionQueue, order: tuple[int, int], *, dead: tuple[int, int] | None) -> None:
    queue.gap = order if queue.gap is None else max(queue.gap, order)
    if dead is not None:
        queue.dead = dead if queue.dead is None else min(queue.dead, dead)


def _before(order: tuple[int, int]) -> tuple[int, int]:
    return order[0], order[1] - 1


def _is_bound(queue: PartitionQueue, flight: Flight) -> bool:
    """May a copy of the batch be in the log, or on its way there, so that it must keep its number?"""
    return flight.sequence >= 0 and flight.persisted != "no" and (queue.dead is None or flight.order < queue.dead)
