"""The partitions that a consumer reads: how their queues are found, emptied and moved back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gkafka.common import TopicPartition
from gkafka.exceptions import ConfigurationError

if TYPE_CHECKING:
    from gkafka.consumerqueues import Queue
    from gkafka.core.positions import Position
    from gkafka.fetchdriver import FetchDriver, Fetching

__all__ = ["Assignment", "Parked"]

Parked = list[tuple["Fetching", int]]
"""Fetches that brokers hold and that nobody wants any more: for FetchDriver.hang_up()."""


class Assignment:
    """The partitions of one consumer.

    left: positions of partitions that are not read any more. A deserializer may still go back in
    them. Methods that say so are called under the driver's lock.
    """

    def __init__(self, driver: FetchDriver) -> None:
        self._driver = driver
        self.left: dict[TopicPartition, Position] = {}

    def queue(self, tp: TopicPartition) -> Queue:
        """Return the queue of a partition. Raise ConfigurationError if it is not assigned."""
        queue = self._driver.queues.get(tp)
        if queue is None:
            raise ConfigurationError(
                f"{tp.topic}-{tp.partition} is not assigned to this consumer: assignment() tells what is",
                topic=tp.topic,
                partition=tp.partition,
            )
        return queue

    def position_of(self, tp: TopicPartition) -> Position | None:
        """Return the position of a partition that is read, or that was read last."""
        queue = self._driver.queues.get(tp)
        return self.left.get(tp) if queue is None else queue.position

    def empty(self, queue: Queue) -> None:
        """Under the lock: drop what was fetched of a partition, and the errors met behind it.

        An error that still stands is met again.
        """
        driver = self._driver
        driver.empty(queue)
        for error in [e for e in driver.errors if (e.topic, e.partition) == queue.position.tp]:
            driver.errors.remove(error)

    def void(self, queue: Queue) -> Parked:
        """Under the lock: empty() a queue whose position moves. Return what to hang_up()."""
        parked = self._driver.cancel_parked([queue.position.tp])
        self.empty(queue)
        return parked

    def lower(self, position: Position, term: int, offset: int, epoch: int) -> Parked:
        """Under the lock: move a position back, unless it was put elsewhere since that term.

        Return what to hang_up().
        """
        if position.term != term:
            return []
        queue = self._driver.queues.get(position.tp)
        if queue is None or queue.position is not position:
            position.consumed, position.consumed_epoch = offset, epoch
            return []
        parked = self.void(queue)
        position.seek(offset, epoch, position.leader_epoch)
        return parked

    def go_on(self, parked: Parked) -> None:
        """Fetch again after lower(). Called under no lock."""
        if not self._driver.stopped:
            self._driver.hang_up(parked)
            self._driver.kick()

    def raise_errors(self, *, starting: bool = False) -> None:
        """Raise the first error whose partition has nothing left to hand out before it.

        starting: only an error that keeps a partition from having a start.
        """
        driver = self._driver
        for error in list(driver.errors):
            queue = driver.queues.get(TopicPartition(error.topic or "", -1 if error.partition is None else error.partition))
            if starting and all(q.position.consumed >= 0 for q in ([queue] if queue is not None else list(driver.queues.values()))):
                continue
            if queue is None or queue.is_empty:
                with driver.lock:
                    if error not in driver.errors:
                        continue  # a seek has settled it
                    driver.errors.remove(error)
                raise error
