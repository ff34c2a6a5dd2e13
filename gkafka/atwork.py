"""What calls have taken, and which of it deserializers are still at work on."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from gkafka.core.positions import Position

if TYPE_CHECKING:
    from gkafka.assignment import Assignment, Parked
    from gkafka.common import TopicPartition
    from gkafka.consumerqueues import Queue
    from gkafka.fetchdriver import FetchDriver

__all__ = ["AtWork", "Call", "Stood", "stands_at"]

Stood = tuple[Position, int, int, int]
"""A position and its term; where it stood, and the epoch of the leader that wrote what is before."""


def stands_at(position: Position) -> Stood:
    return position, position.term, position.consumed, position.consumed_epoch


class Call:
    """What one call of a consume method has taken.

    stood: where each partition stood before, so that the call can be rolled back. worker: the id of
    the worker whose deserializer gets the records, None without one. ended: partitions whose records
    the call has to drop. begun: the queue that it stopped in, which has more. wants_more: what was
    taken made room, or has to be fetched again.
    """

    __slots__ = ("begun", "ended", "stood", "wants_more", "worker")

    def __init__(self, worker: int | None = None) -> None:
        self.stood: dict[TopicPartition, Stood] = {}
        self.worker = worker
        self.ended: set[TopicPartition] = set()
        self.begun: Queue | None = None
        self.wants_more = False

    def forget(self) -> None:
        """Begin again: nothing was taken, or all of it was given back."""
        self.stood.clear()
        self.ended.clear()
        self.begun = None


class AtWork:
    """The calls whose deserializers are at work. Nobody has their records yet.

    The positions are behind these records already. A deserializer that fails moves a position back,
    so no other worker takes from these partitions meanwhile, and no commit covers the records.
    """

    def __init__(self, driver: FetchDriver, assignment: Assignment) -> None:
        self._driver, self._lock, self._assignment = driver, driver.lock, assignment
        self.calls: set[Call] = set()

    def begin(self, worker: int) -> Call:
        """Return a new call, which is at work until end()."""
        call = Call(worker)
        self.calls.add(call)
        return call

    def end(self, call: Call) -> bool:
        """End a call. Return False if it was ended before."""
        was_at_work = call in self.calls
        self.calls.discard(call)
        return was_at_work

    def may_take(self, position: Position, worker: int) -> bool:
        """Return False if a deserializer of another worker has records of the partition.

        If the position was put elsewhere since, these records do not count.
        """
        others = [call.stood.get(position.tp) for call in list(self.calls) if call.worker != worker]
        return all(stood is None or stood[:2] != (position, position.term) for stood in others)

    def has(self, partitions: Collection[TopicPartition]) -> bool:
        """Return True if a deserializer has records of one of these partitions."""
        with self._lock:
            return any(tp in call.stood for call in list(self.calls) for tp in partitions)

    def before(self, stands: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Under the lock: lower these offsets to where the records at work begin."""
        for call in list(self.calls):
            for tp, (position, term, offset, _) in list(call.stood.items()):
                if tp in stands and position.term == term and self._assignment.position_of(tp) is position:
                    stands[tp] = min(stands[tp], offset)
        return stands

    def go_back(self, call: Call, tp: TopicPartition, offset: int) -> None:
        """Move a partition back to an offset that a deserializer failed on.

        The position does not move if the application or the group has put it elsewhere meanwhile.
        """
        with self._lock, self._driver.step:
            if tp not in call.stood:
                return
            position, term, before, epoch = call.stood[tp]
            parked = self._assignment.lower(position, term, max(offset, before), epoch if offset <= before else -1)
        self._assignment.go_on(parked)

    def end_all(self) -> dict[TopicPartition, int]:
        """End all calls: go back before their records, which are not handed out.

        Return where each partition stands then.
        """
        parked: Parked = []
        with self._lock, self._driver.step:
            for call in list(self.calls):
                for stood in list(call.stood.values()):
                    parked += self._assignment.lower(*stood)
                call.stood.clear()
            self.calls.clear()
            stands = {tp: queue.position.consumed for tp, queue in self._driver.queues.items()}
        self._assignment.go_on(parked)
        return stands

    def end_on(self, partitions: Collection[TopicPartition]) -> None:
        """Do the same for partitions that are not read any more.

        Calls that have records of other partitions, too, hand out those.
        """
        with self._lock:
            for call in list(self.calls):
                for tp in call.stood.keys() & set(partitions):
                    self._assignment.lower(*call.stood.pop(tp))
                    call.ended.add(tp)
