"""Which partitions have something to send now, and to which broker: kept up as things change.

So a poll costs in proportion to what is due, not to what is open: with 5,000 partitions most of them linger, or wait for an answer.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Callable
from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gkafka.core.accumulator import Accumulator, Key, PartitionQueue
    from gkafka.core.metadata import Metadata

__all__ = ["Schedule"]

NEVER = float("inf")
RIDERS = 16
"""Open batches that are looked at for whether they may ride along."""


class Schedule:
    """A partition is in one place at most: `ready` under the broker that leads it, `homeless` while it has no leader, `held` while the
    gate is closed to it, or in `paused` after a failure. In none of them it has nothing to send, or waits for an answer; then whatever
    changes that notes it in `Accumulator.touched`.

    may_send: of a partition's queue that has something on the wire, whether that stands in its next batch's way; gate: where there is one, whether
    anything at all of a partition may go out (a transaction may have to be told of it first). unknown: topics of those that are homeless, as far as the
    metadata did not know them when they were placed.
    """

    def __init__(
        self,
        accumulator: Accumulator,
        metadata: Metadata,
        *,
        linger_s: float,
        may_send: Callable[[PartitionQueue], bool],
    ) -> None:
        self._accumulator, self._metadata, self._linger_s, self._may_send = accumulator, metadata, linger_s, may_send
        self.gate: Callable[[Key], bool] | None = None
        self.ready: dict[int, OrderedDict[Key, None]] = {}
        self.homeless: dict[Key, None] = {}
        self.unknown: set[str] = set()
        self.held: dict[Key, None] = {}
        self.rests_until = 0.0  # no batch goes before that for its age alone
        self._paused: list[tuple[float, Key]] = []
        self._version = -1

    def restart(self) -> None:
        """Look at all partitions anew."""
        self._forget_places()
        self.held.clear()
        self._accumulator.touched.update(dict.fromkeys((*self._accumulator.active, *self._accumulator.open)))

    def update(self, now: float, *, hasty: bool) -> None:
        """Take in what happened since the last call. hasty: nothing lingers, somebody waits for all of it."""
        touched = self._accumulator.touched
        if self._accumulator.lingering:
            self._end_lingers(now, hasty)
        while self._paused and self._paused[0][0] <= now:
            touched[heapq.heappop(self._paused)[1]] = None
        if self._metadata.version != self._version:
            self._version = self._metadata.version
            self._forget_places()
        if self.held:
            touched.update(self.held)
            self.held.clear()
        while touched:
            self.place(touched.popitem(last=False)[0], now)

    def is_plain(self, key: Key) -> bool:
        """Is there nothing to take in, but for this partition?"""
        touched = self._accumulator.touched
        waits = self._paused or self.held or self.homeless or self.gate is not None
        return not waits and self._metadata.version == self._version and (not touched or (len(touched) == 1 and key in touched))

    def _end_lingers(self, now: float, hasty: bool) -> None:
        lingering = self._accumulator.lingering
        while lingering and (hasty or now >= self.rests_until):
            key, batch = next(iter(lingering.items()))
            if not hasty and now < batch.created + self._linger_s:
                return
            self.end_linger(key)

    def end_linger(self, key: Key) -> None:
        """The partition's open batch waits for no more records."""
        self._accumulator.lingering.pop(key, None)
        self._accumulator.touched[key] = None

    def _forget_places(self) -> None:
        """Leaders may have changed."""
        touched = self._accumulator.touched
        for keys in (self.homeless, *self.ready.values()):
            touched.update(keys)
        touched.update((key, None) for _, key in self._paused)
        self.homeless.clear()
        self.unknown.clear()
        self.ready.clear()
        self._paused.clear()

    def place(self, key: Key, now: float) -> None:
        """Note where the partition's next batch goes, if it has one that may go."""
        if self.homeless:
            self.homeless.pop(key, None)
        queue = self._accumulator.active.get(key)
        if queue is not None and now < queue.retry.not_before and self.is_paused(queue, now):
            heapq.heappush(self._paused, (queue.retry.not_before, key))
        elif self.has_next(key, queue):
            leader = self._metadata.leader(*key)
            if leader is None:
                self.homeless[key] = None
                if self._metadata.topic(key[0]) is None:
                    self.unknown.add(key[0])
            elif self.gate is not None and not self.gate(key):
                self.held[key] = None
            else:
                ready = self.ready.get(leader[0])
                if ready is None:
                    ready = self.ready[leader[0]] = OrderedDict()
                ready[key] = None

    def is_paused(self, queue: PartitionQueue, now: float) -> bool:
        """Does the pause after a failure last? It is for the leader that failed, and ends when another is known (KIP-951)."""
        return now < queue.retry.not_before and queue.leader == self._metadata.leader(*queue.key)

    def has_next(self, key: Key, queue: PartitionQueue | None) -> bool:
        """Is there a batch that may go out, as far as its partition is concerned?"""
        if queue is not None:
            if queue.on_wire and not self._may_send(queue):
                return False
            if queue.pending:
                return True
        acc = self._accumulator
        return key in acc.open and (key not in acc.lingering or (key in acc.hurried and acc.is_idle(key)))

    def next_of(self, broker_id: int, now: float) -> Key | None:
        """Take the broker's partition whose turn it is; None if it has none."""
        ready = self.ready.get(broker_id)
        while ready:
            key = ready.popitem(last=False)[0]
            leader = self._metadata.leader(*key)
            if leader is not None and leader[0] == broker_id:
                return key
            self.place(key, now)
        return None

    def put_first(self, broker_id: int, key: Key) -> None:
        """Give a partition its turn back."""
        ready = self.ready.setdefault(broker_id, OrderedDict())
        ready[key] = None
        ready.move_to_end(key, last=False)

    def let_ride(self, broker_id: int, half: int, now: float) -> None:
        """A request goes to the broker: open batches for it that hold at least half bytes need not linger. Only the oldest are looked at."""
        riders = [
            key
            for key, batch in islice(self._accumulator.lingering.items(), RIDERS)
            if batch.size >= half and (self._metadata.leader(*key) or (None,))[0] == broker_id
        ]
        for key in riders:
            self.end_linger(key)
            self.place(key, now)

    def deadline(self, now: float) -> float:
        """When something becomes due by time alone."""
        when = self._paused[0][0] if self._paused else NEVER
        if self._accumulator.lingering:
            oldest = next(iter(self._accumulator.lingering.values()))
            return min(when, max(oldest.created + self._linger_s, self.rests_until))
        return when
