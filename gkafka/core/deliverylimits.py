"""How long and how often a batch is tried, and what its error says when a limit ends that."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gkafka.errortexts import given_up
from gkafka.exceptions import KafkaException, KafkaTimeoutError

if TYPE_CHECKING:
    from gkafka.records import Batch

__all__ = ["DeliveryLimits"]


class DeliveryLimits:
    """The options delivery_timeout_ms and retries of one producer.

    timeout_s: seconds from the creation of a batch until it fails. retries: None for any number.
    counts_unsent: whether tries that found no connection count among the retries.
    """

    def __init__(self, timeout_s: float, retries: int | None) -> None:
        self.timeout_s, self.retries = timeout_s, retries
        self.counts_unsent = True

    def is_late(self, batch: Batch, now: float) -> bool:
        """Return whether the delivery timeout of the batch has passed."""
        return now >= batch.created + self.timeout_s

    def allow_retry(self, batch: Batch, now: float) -> bool:
        """Return whether the batch has both time and retries left."""
        return not self.is_late(batch, now) and not self._has_no_retries_left(batch)

    def _has_no_retries_left(self, batch: Batch) -> bool:
        return self.retries is not None and self._tries(batch) > self.retries

    def _tries(self, batch: Batch) -> int:
        return int(batch.attempts if self.counts_unsent else batch.attempts - batch.extra.unsent)

    def explained(self, batch: Batch, error: KafkaException, now: float) -> KafkaException:
        """Return the error of a batch that is not sent again: it names the limit if one is passed."""
        if not error.retriable:
            return error
        if self.is_late(batch, now):
            text = f"{self._too_late(batch)}: {error}"
            if error.never_sent and batch.extra.refused is not None:
                text += f"; the last try: {batch.extra.refused}"
        elif self.retries is not None and self._has_no_retries_left(batch):
            text = f"{batch.topic}-{batch.partition}: {given_up(self._tries(batch), self.retries, error)}"
        else:
            return error
        return type(error)(text, topic=batch.topic, partition=batch.partition, broker=error.broker, api="Produce")

    def expired(self, batch: Batch, why: str) -> KafkaTimeoutError:
        """Return the error of a batch whose delivery timeout has passed while it waited."""
        if batch.extra.refused is not None:
            why += f"; the last try: {batch.extra.refused}"
        error = KafkaTimeoutError(f"{self._too_late(batch)}: {why}", topic=batch.topic, partition=batch.partition, api="Produce")
        error.__cause__ = batch.extra.refused
        return error

    def _too_late(self, batch: Batch) -> str:
        return f"{batch.count} record(s) for {batch.topic}-{batch.partition} not delivered within {self.timeout_s:g} s"
