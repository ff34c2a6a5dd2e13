"""Which partitions a member has, and what its application is still to be told about them, one thing at a time and in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping

from gkafka.common import TopicPartition
from gkafka.core.groupstate import Change, Tell

__all__ = ["Ownership"]


class Ownership:
    """owned: partition -> its term: a partition that goes and comes back has another one, so that what is left of the first time is told
    apart. leaving: revoked, and the callback has not returned yet. running: what is being told.
    losses: how often everything was lost.
    """

    def __init__(self) -> None:
        self.owned: dict[TopicPartition, int] = {}
        self.leaving: dict[TopicPartition, int] = {}
        self._terms = 0
        self._queue: deque[Tell] = deque()
        self.running: Tell | None = None
        self.losses = 0

    @property
    def settled(self) -> bool:
        """The application has been told everything."""
        return self.running is None and not self._queue

    @property
    def is_waiting(self) -> bool:
        """Is there something to tell when what is being told now has returned?"""
        return bool(self._queue)

    @property
    def any(self) -> bool:
        """Is there anything to be lost?"""
        return bool(self.owned or self.leaving)

    def gain(self, partitions: Iterable[TopicPartition]) -> None:
        self._terms += 1
        gained = tuple(partitions)
        self._queue.append(Tell(Change.ASSIGNED, gained))  # first: told twice is better than never, if somebody is interrupted here
        self.owned.update(dict.fromkeys(gained, self._terms))

    def give_up(self, partitions: Iterable[TopicPartition]) -> None:
        """To be told as revoked. Whoever is told takes them out of the consumer first."""
        given = tuple(partitions)
        self.leaving.update((partition, self.owned[partition]) for partition in given)
        if given:
            self._queue.append(Tell(Change.REVOKED, given))
        for partition in given:
            self.owned.pop(partition, None)

    def replace(self, assigned: Collection[TopicPartition]) -> None:
        """Own exactly these: give up what is not among them, and gain what is new, be it nothing."""
        kept = set(assigned)
        self.give_up([tp for tp in self.owned if tp not in kept])
        self.gain(tp for tp in assigned if tp not in self.owned)

    def lose(self) -> None:
        """Everything is gone, at once. What the application has not heard of yet it need not hear of now."""
        unheard = {tp for tell in self._queue if tell.change is Change.ASSIGNED for tp in tell.partitions}
        running = self.running.partitions if self.running is not None and self.running.change is Change.REVOKED else ()
        lost = [tp for tp in (*self.leaving, *self.owned) if tp not in unheard and tp not in running]
        lost += [tp for tell in self._queue if tell.change is Change.LOST for tp in tell.partitions]
        had_any = self.any
        self._queue = deque([Tell(Change.LOST, tuple(dict.fromkeys(lost)))] if lost else ())  # first, as in gain()
        self.owned.clear()
        self.leaving.clear()
        self.losses += had_any

    def next(self) -> Tell | None:
        """What to tell now, once; None while the last callback runs."""
        if self.running is not None or not self._queue:
            return None
        self.running = self._queue[0]
        self._queue.popleft()
        return self.running

    def restart(self) -> None:
        """Whoever asked what to tell may have been interrupted: `running` is still to be told."""
        if self._queue and self._queue[0] is self.running:
            self._queue.popleft()

    def told(self, tell: Tell) -> None:
        """The callback for it has returned."""
        if tell is not self.running:
            return
        if tell.change is Change.REVOKED:
            for partition in tell.partitions:
                self.leaving.pop(partition, None)
        self.running = None

    @property
    def terms(self) -> Mapping[TopicPartition, int]:
        """The term of each partition that the member owns or is giving up: what it may commit for."""
        return {**self.leaving, **self.owned}

    def may_commit(self, partitions: Mapping[TopicPartition, int]) -> frozenset[TopicPartition]:
        """Those that are the member's in this very term."""
        return frozenset(tp for tp, term in partitions.items() if term in (self.owned.get(tp), self.leaving.get(tp)))
