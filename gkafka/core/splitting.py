"""Dividing a batch into parts: one that is too large for a broker, or that has refused records.

The parts are batches. They share the sequence numbers of the whole and take its place in the order.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from gkafka.brokererrors import MessageSizeTooLarge, RecordListTooLarge
from gkafka.core.batchstate import MOVES, BatchEvent
from gkafka.exceptions import KafkaException
from gkafka.logs import LaterLines, get_logger
from gkafka.records._split import before

if TYPE_CHECKING:
    from gkafka.core.accumulator import Accumulator, Flight
    from gkafka.records import Batch

__all__ = ["TOO_LARGE", "Splitter", "in_its_place", "too_large_alone"]

log = get_logger(__name__)

TOO_LARGE = (MessageSizeTooLarge, RecordListTooLarge)


class Splitter:
    """Divides batches of one producer. The caller puts the parts back into their queue.

    set_limit: tells the appender how many bytes the batches of a topic may hold. limits: these
    numbers of bytes, for topics of which a batch was too large. splits: how many batches were.
    divided: batches that have parts now. Whoever waits for such a batch must be woken, to wait for
    the part instead: the driver does that and empties the list.
    """

    def __init__(self, accumulator: Accumulator, set_limit: Callable[[str, int], None], lines: LaterLines) -> None:
        self._accumulator, self._set_limit, self._lines = accumulator, set_limit, lines
        self.limits: dict[str, int] = {}
        self.divided: list[Batch] = []
        self.splits = 0

    def halve(self, batch: Batch) -> list[Batch]:
        """Divide a batch that is too large for the broker (KIP-126). Return the parts, in order.

        How well records compress is not known beforehand, so the limit is found by halving. Later
        batches of the topic keep to it. Each part has fewer records than the whole, so halving ends
        at the latest with single records (B05).
        """
        limit = min(batch.size // 2, self.limits.get(batch.topic, batch.size))
        if batch.topic not in self.limits:
            text = "topic %s: a batch of %d bytes is too large for the broker, it goes in parts (KIP-126)"
            self._lines.add(log, logging.INFO, text, batch.topic, batch.wire_size)
        self.limits[batch.topic] = limit
        self._set_limit(batch.topic, limit)
        self.splits += 1
        return self._replace(batch, batch.split(limit))

    def cut(self, batch: Batch, firsts: list[int]) -> list[Batch]:
        """Divide a batch before each of these records, by index. Return the parts, in order."""
        return self._replace(batch, _cut(batch, firsts))

    def _replace(self, batch: Batch, parts: list[Batch]) -> list[Batch]:
        """Put the parts in the place of their batch. The whole's last try does not count for them."""
        flight: Flight = batch.extra
        for part in parts:
            part.attempts = batch.attempts - 1
            part.extra = flight.of_part(part.first, batch.first)
        self._accumulator.replaced(batch, parts)
        flight.state = MOVES[flight.state, BatchEvent.DIVIDE]
        self.divided.append(batch)
        return parts


def _cut(batch: Batch, firsts: list[int]) -> list[Batch]:
    if not firsts:
        return [batch]
    middle = len(firsts) // 2
    head, tail = batch.split(before(firsts[middle]))
    return _cut(head, firsts[:middle]) + _cut(tail, [first - firsts[middle] for first in firsts[middle + 1 :]])


def in_its_place(batch: Batch) -> list[Batch]:
    """Return the parts of a batch that was divided, also if that is all that came of it; else itself.

    Parts of a part are in the list of the batch that was divided first, and so in its place.
    """
    if batch.parts is not None:
        return batch.parts
    whole = batch.parent
    if whole is None or whole.parts is None or batch in whole.parts:
        return [batch]
    return [part for part in whole.parts if batch.first <= part.first < batch.first + batch.count]


def too_large_alone(batch: Batch, error: KafkaException) -> KafkaException:
    """Return the error of a batch that is too large and cannot be divided."""
    text = (
        f"{batch.topic}-{batch.partition}: {batch.count} record(s) in a batch of {batch.wire_size} bytes are too large for the broker: "
        f"raise the topic's max.message.bytes (for all topics the broker's message.max.bytes), or send less ({error})"
    )
    return type(error)(text, topic=batch.topic, partition=batch.partition, broker=error.broker, api="Produce")
