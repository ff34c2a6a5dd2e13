"""A producer of one topic in Python: the twin of `_speed_lane.pxi`, held identical to it by the tests."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable
from time import time_ns
from typing import Any

from gkafka.records._check import plain
from gkafka.records._pure_batch import Delivery, Report
from gkafka.records._pure_write import Appender

__all__ = ["Lane"]

MASK = (1 << 31) - 1


class Lane:
    """The per-message part of a producer of one topic that spreads its records evenly or by a partitioner, and bounds their number.

    owner: serves what this does not take, `produce_slow(message, key, timestamp[, chosen])`, and `partitioner_failed(error)`. seed: where the turns of the partitions begin, 0 or more. open: while
    it is False everything goes to the owner. accepted: records taken so far; limit: with that many taken the next goes to the owner. report_to(): the
    calling worker's reports, in which there is one of each record that this appends; None: nobody wants any.
    """

    def __init__(self, owner: Any, appender: Appender, topic: str, *, seed: int) -> None:
        self.owner, self.appender, self.topic = owner, appender, topic
        self.accepted = self.limit = 0
        self.open = False
        self.report_to: Callable[[], Any] | None = None
        self._ids: list[int] = []
        self._found: Any = None
        self._partitioner: Callable[[list[Any], Any], Any] | None = None
        self._partitions: list[Any] = []
        self._turns = itertools.count((seed & MASK) + 1)

    def spread(self, partitions: Iterable[int]) -> None:
        """Take these partitions in turn from now on; none: the owner chooses."""
        self._ids = list(partitions)
        self._found = self.appender._topics.get(self.topic)

    def partition_by(self, partitioner: Callable[[list[Any], Any], Any], partitions: Iterable[Any]) -> None:
        """Ask `partitioner(partitions, key)` from now on: it gets a list of its own and gives a number or something with an `id`."""
        self._partitioner, self._partitions = partitioner, list(partitions)
        self._found = self.appender._topics.get(self.topic)

    def produce(self, message: Any, partition_key: Any = None, timestamp: Any = None) -> Any:
        """Append one record to the open batch of a partition; what needs more than that goes to `owner.produce_slow`."""
        appender, ids = self.appender, self._partitions if self._partitioner is not None else self._ids
        if appender._every:
            if not appender._left:
                appender._left = appender._every
                appender.owner.checkpoint()
            appender._left -= 1
        message, partition_key = plain(message), plain(partition_key)
        if timestamp is not None and type(timestamp) is not int:
            timestamp = self.owner.milliseconds(timestamp)
        if not ids or not self._takes():
            return self.owner.produce_slow(message, partition_key, timestamp)
        chose: tuple[Any, ...] = ()
        if self._partitioner is not None:
            try:
                chosen = self._partitioner(list(self._partitions), partition_key)
            except Exception as error:
                return self.owner.partitioner_failed(error)
            number = chosen if type(chosen) is int else getattr(chosen, "id", None)
            # The partitioner is user code: it may have switched to others, closed the producer, or called back into it.
            if type(number) is not int or not self._takes():
                return self.owner.produce_slow(message, partition_key, timestamp, chosen)
            chose = (chosen,)
        else:
            number = self.next_turn()
            chose = (number,)  # another turn would favour the partitions whose batches are open
        found = self._found
        batch = found.batches[number] if 0 <= number < found.partitions else None
        stamp = time_ns() // 1_000_000 if timestamp is None else timestamp if type(timestamp) is int else -1
        if batch is None or not 0 <= stamp < 1 << 63:
            return self.owner.produce_slow(message, partition_key, timestamp, *chose)
        with appender._guard:
            index = batch._put(message, partition_key, None, stamp, appender.max_record_bytes) if self.accepted < self.limit else -1
            if index >= 0:
                self.accepted += 1
        if index < 0:
            return self.owner.produce_slow(message, partition_key, timestamp, *chose)
        delivery = Delivery(batch, index)
        if self.report_to is not None:
            delivery.add_done_callback(Report(self.report_to(), delivery, message, partition_key))
        return delivery

    def _takes(self) -> bool:
        """May this append at all now?"""
        appender = self.appender
        return self.open and self.accepted < self.limit and appender.fast and self._found is not None and os.getpid() == appender._pid

    def next_turn(self) -> int:
        """The partition whose turn it is, of those to spread() over. Raises ValueError if there is none."""
        if not self._ids:
            raise ValueError("no partitions to take in turn: call spread()")
        return self._ids[next(self._turns) % len(self._ids)]

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
