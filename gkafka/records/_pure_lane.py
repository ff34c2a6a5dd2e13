"""A producer of one topic in Python: the twin of `_speed_lane.pxi`, held identical to it by the tests."""

from __future__ import annotations

import os
from collections.abc import Iterable
from time import time_ns
from typing import Any

from gkafka.records._pure_batch import Delivery
from gkafka.records._pure_write import Appender

__all__ = ["Lane"]

MASK = (1 << 64) - 1


class Lane:
    """The per-message part of a producer of one topic that spreads its records at random and bounds their number.

    owner: serves what this does not take, `produce_slow(message, key, timestamp)`. seed: of the choice of partitions, not 0. open: while
    it is False everything goes to the owner. accepted: records taken so far; limit: with that many taken the next goes to the owner.
    """

    def __init__(self, owner: Any, appender: Appender, topic: str, *, seed: int) -> None:
        self.owner, self.appender, self.topic = owner, appender, topic
        self.accepted = self.limit = 0
        self.open = False
        self._ids: list[int] = []
        self._found: Any = None
        self._chance = seed & MASK or 1

    def spread(self, partitions: Iterable[int]) -> None:
        """Choose among these partitions from now on; none: the owner chooses."""
        self._ids = list(partitions)
        self._found = self.appender._topics.get(self.topic)

    def produce(self, message: Any, partition_key: Any = None, timestamp: Any = None) -> Any:
        """Append one record to the open batch of a random partition; what needs more than that goes to `owner.produce_slow`."""
        appender, found, ids = self.appender, self._found, self._ids
        if appender._every:
            if not appender._left:
                appender._left = appender._every
                appender.owner.checkpoint()
            appender._left -= 1
        if not self.open or self.accepted >= self.limit or not appender.fast or found is None or not ids or os.getpid() != appender._pid:
            return self.owner.produce_slow(message, partition_key, timestamp)
        number = ids[self._draw(len(ids))]
        batch = found.batches[number] if 0 <= number < found.partitions else None
        stamp = time_ns() // 1_000_000 if timestamp is None else timestamp if type(timestamp) is int else -1
        if batch is None or not 0 <= stamp < 1 << 63:
            return self.owner.produce_slow(message, partition_key, timestamp)
        with appender._guard:
            index = batch._put(message, partition_key, None, stamp, appender.max_record_bytes) if self.accepted < self.limit else -1
            if index >= 0:
                self.accepted += 1
        if index < 0:
            return self.owner.produce_slow(message, partition_key, timestamp)
        return Delivery(batch, index)

    def _draw(self, count: int) -> int:
        """A number below count. xorshift64: Marsaglia 2003."""
        x = self._chance
        x ^= x << 13 & MASK
        x ^= x >> 7
        x ^= x << 17 & MASK
        self._chance = x
        return (x >> 32) * count >> 32

    def take(self) -> bool:
        """Count one record that goes another way; False if the limit is reached."""
        with self.appender._guard:
            if self.accepted >= self.limit:
                return False
            self.accepted += 1
            return True

    def give_back(self) -> None:
        """The record that was counted was not accepted."""
        with self.appender._guard:
            self.accepted -= 1
