"""Batches that wait to be sent: open ones that still grow, and rolled ones in the order of their partition.

This is bookkeeping only. The bytes are in `gkafka.records.Batch`, what may be sent when is decided in `gkafka.core.sender`.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable
from typing import TYPE_CHECKING
from uuid import UUID

from gkafka.core.backoff import Retry
from gkafka.core.batchstate import MOVES, BatchEvent, BatchState
from gkafka.core.metadata import NO_TOPIC_ID

if TYPE_CHECKING:
    from gkafka.core.metadata import Metadata
    from gkafka.exceptions import KafkaException
    from gkafka.records import Batch

__all__ = ["Accumulator", "Flight", "PartitionQueue", "ProducerId"]

Key = tuple[str, int]
SEQUENCES = 1 << 31
ProducerId = tuple[int, int]
"""(producer id, producer epoch) of KIP-98."""


class Flight:
    """The sender's notes on one batch; stands in `batch.extra` from the moment the batch is rolled.

    state: moves by `batchstate.MOVES`. order: rank in its partition; of a part the whole batch's
    rank and where in it the part begins. is_part: it was made by a split: like a retry it stands for numbers that were sent before. sequence: base sequence number, -1 until one is given at the first send. producer: the id that the
    sequence belongs to. persisted: "no" until a broker may have written the batch, then "maybe", "yes" once acknowledged; before: what it
    was before the present try. unsent: tries that found no connection, or no leader. refused: why the last try failed. told: whoever asked what
    failed was told of it. counted: where a broker names records of one batch, the number of them that the log line of this part's failure counts: the
    first part's counts all, the others' none; None: the part's own number. heard: of a failed one, the numbers of the records whose errors were taken one
    by one.
    """

    __slots__ = (
        "before",
        "counted",
        "heard",
        "is_part",
        "order",
        "persisted",
        "producer",
        "queue",
        "refused",
        "sequence",
        "state",
        "told",
        "unsent",
    )

    def __init__(self, queue: PartitionQueue, order: tuple[int, int]) -> None:
        self.queue = queue
        self.order = order
        self.state = MOVES[BatchState.OPEN, BatchEvent.ROLL]
        self.is_part = self.told = False
        self.sequence = -1
        self.unsent = 0
        self.producer: ProducerId | None = None
        self.persisted = self.before = "no"
        self.refused: KafkaException | None = None
        self.counted: int | None = None
        self.heard: set[int] | None = None

    def of_part(self, first: int, first_of_all: int) -> Flight:
        """The notes on a part of this batch. first: the number of its first record; first_of_all: that of this batch's."""
        part = Flight(self.queue, (self.order[0], first))
        part.is_part, part.unsent = True, self.unsent
        if self.sequence >= 0:
            part.sequence, part.producer = (self.sequence + first - first_of_all) % SEQUENCES, self.producer
        part.persisted = part.before = self.persisted
        return part

    def unnumber(self) -> None:
        """Take the number away: no copy of the batch was written under it, or will be."""
        self.sequence, self.producer = -1, None
        self.persisted = self.before = "no"


class PartitionQueue:
    """One partition's batches and its sequence state, which outlives any hole in the metadata (B01).

    pending: rolled, not on the wire, in order. on_wire: sent and not answered, oldest first. producer, next_sequence: what the next new batch is
    numbered with. gap: order of the newest batch whose number may never arrive; dead: of the oldest whose number never will, so that no younger
    one's will either; both None while there is no gap. known_to: the producer id under which a batch was acknowledged last: the partition's
    leaders check the numbers of that one. topic_id, leader: of the last batch that was sent.
    """

    __slots__ = (
        "dead",
        "gap",
        "key",
        "known_to",
        "leader",
        "next_sequence",
        "on_wire",
        "orders",
        "pending",
        "producer",
        "retry",
        "topic_id",
    )

    def __init__(self, key: Key) -> None:
        self.key = key
        self.pending: deque[Batch] = deque()
        self.on_wire: list[Batch] = []
        self.orders = 0
        self.producer: ProducerId | None = None
        self.known_to: int | None = None
        self.gap: tuple[int, int] | None = None
        self.dead: tuple[int, int] | None = None
        self.topic_id: UUID | None = None
        self.leader: tuple[int, int] | None = None
        self.next_sequence = 0
        self.retry = Retry()

    @property
    def length(self) -> int:
        """Batches that are not settled, but for the open one."""
        return len(self.pending) + len(self.on_wire)

    def push(self, batch: Batch) -> None:
        """Take a freshly rolled batch: it is the newest of the partition."""
        order = self.orders
        self.orders += 1  # first: no two batches may ever have the same one, wherever this is interrupted
        batch.extra = Flight(self, (order, 0))
        self.pending.append(batch)

    def put_back(self, batch: Batch) -> None:
        """Return a batch that must be sent again to its place: before everything younger (B08)."""
        order = batch.extra.order
        younger = len(self.pending)
        for i, other in enumerate(self.pending):
            if other.extra.order > order:
                younger = i
                break
        self.pending.insert(younger, batch)

    def remove(self, batch: Batch) -> None:
        """Take a batch out that is to be settled."""
        if batch.extra.state is BatchState.IN_FLIGHT:
            self.on_wire.remove(batch)
        else:
            self.pending.remove(batch)

    def topic_id_in(self, metadata: Metadata) -> UUID:
        """Return the topic's id: requests and answers name the topic by nothing else (KIP-516).

        A topic may vanish from the metadata while its batches are under way (B01). Then it is the
        id that these were sent to.
        """
        known = metadata.topic_id(self.key[0])
        if known is self.topic_id or self.topic_id is None or known != NO_TOPIC_ID:
            return known
        return self.topic_id

    def counted(self, batch: Batch) -> None:
        """It has its numbers: the next batch has those behind them, also if who numbered it came no further."""
        if 0 <= batch.extra.sequence == self.next_sequence and batch.extra.producer == self.producer:
            self.next_sequence = (self.next_sequence + batch.count) % SEQUENCES

    def has_older(self, batch: Batch) -> bool:
        """Is a batch that was rolled before this one still unsettled?"""
        order = batch.extra.order
        return any(b.extra.order < order for b in self.pending) or any(b.extra.order < order for b in self.on_wire)


class Accumulator:
    """All that a producer has accepted and that is not settled.

    unsettled: every batch from the moment it is opened until it is delivered or failed, oldest first: what flush() waits for and
    what the delivery timeout looks at. open: batches that still grow; lingering: those of them that wait for more records, oldest
    first. active: queues that are not empty. touched: partitions about which something changed since the sender looked last. rolled_bytes: of the unsettled
    ones that take no more records.
    """

    def __init__(self) -> None:
        self.queues: dict[Key, PartitionQueue] = {}
        self.open: dict[Key, Batch] = {}
        # Ordered ones: of a dict the first entry is found slowly when those before it are gone.
        self.lingering: OrderedDict[Key, Batch] = OrderedDict()
        self.active: dict[Key, PartitionQueue] = {}
        self.hurried: set[Key] = set()
        self.unsettled: OrderedDict[Batch, None] = OrderedDict()
        self.touched: OrderedDict[Key, None] = OrderedDict()
        self.rolled_bytes = 0

    def restart(self, unsettled: Iterable[Batch]) -> None:
        """Forget all but these batches, oldest first, and what is known of each partition's numbers. Of those that were rolled none is under way."""
        batches = list(unsettled)
        self.queues.update((batch.extra.queue.key, batch.extra.queue) for batch in batches if batch.extra is not None)
        for queue in self.queues.values():
            queue.pending.clear()
            queue.on_wire.clear()
        for keys in (self.open, self.lingering, self.active, self.hurried, self.touched):
            keys.clear()
        self.unsettled = OrderedDict.fromkeys(batches)  # in one step: whoever is interrupted here begins anew from it
        self.rolled_bytes = sum(batch.size for batch in batches if batch.extra is not None)
        for batch in batches:
            if batch.extra is not None:
                queue, flight = batch.extra.queue, batch.extra
                flight.state = MOVES[flight.state, BatchEvent.RESTART]
                queue.put_back(batch)
                queue.counted(batch)
                self.active[queue.key] = queue
            elif batch.is_open:
                self.opened(batch)
            else:
                self.rolled(batch)

    def opened(self, batch: Batch) -> None:
        """A batch was made and records go into it."""
        key = (batch.topic, batch.partition)
        before = self.open.get(key)
        if before is not None and before is not batch:
            # An exception from outside (a signal handler's) came after the appender had rolled it, before it was told here.
            self.rolled(before)
        self.open[key] = self.lingering[key] = batch
        self.unsettled[batch] = None

    def rolled(self, batch: Batch) -> None:
        """A batch takes no more records. Batches of a partition are rolled in the order in which they were opened.

        Telling it twice does nothing: whoever was interrupted may be repeated by another.
        """
        key = (batch.topic, batch.partition)
        # It leaves the open ones last: whoever is interrupted here leaves it where it is found again.
        if batch.extra is None:
            before = self.open.get(key)
            if before is not None and before is not batch:
                # It is older: whoever rolled it was interrupted before it was told here, and so was who opened this one.
                self.rolled(before)
            self.unsettled.setdefault(batch)
            queue = self.queues.get(key)
            if queue is None:
                queue = self.queues[key] = PartitionQueue(key)
            self.active[key] = queue
            queue.push(batch)
            self.rolled_bytes += batch.size
        if self.open.get(key) is batch:
            del self.open[key]
            self.lingering.pop(key, None)
            self.hurried.discard(key)
        self.touched[key] = None

    def hurry(self, batch: Batch) -> bool:
        """Somebody waits for this batch: it goes as soon as nothing of its partition is on the way before it. False: it lingers no more."""
        key = (batch.topic, batch.partition)
        if self.open.get(key) is not batch:
            return False
        self.hurried.add(key)
        self.touched[key] = None
        return True

    def is_idle(self, key: Key) -> bool:
        """Has the partition nothing rolled or on the wire?"""
        queue = self.queues.get(key)
        return queue is None or not (queue.pending or queue.on_wire)

    def settled(self, batch: Batch) -> None:
        """The batch was delivered or failed. It was rolled before."""
        if batch in self.unsettled:
            del self.unsettled[batch]
            self.rolled_bytes -= batch.size

    def replaced(self, batch: Batch, parts: list[Batch]) -> None:
        """The batch was split: its parts stand in its place, among those of its age."""
        if batch in self.unsettled:
            self.unsettled = OrderedDict((new, None) for old in self.unsettled for new in (parts if old is batch else (old,)))
            self.rolled_bytes += sum(part.size for part in parts) - batch.size

    def waits(self, queue: PartitionQueue) -> None:
        """The queue has batches to send (again)."""
        self.active[queue.key] = queue
        self.touched[queue.key] = None

    def rests(self, queue: PartitionQueue, producer: ProducerId | None) -> None:
        """The queue is empty. It is forgotten if it has no history: no failures in a row, and no numbers under the present producer id.

        Numbers are kept however long the partition rests, also while the metadata does not name it (B01), and also those of an older epoch:
        its leaders know the producer.
        """
        self.active.pop(queue.key, None)
        if not queue.retry.failures and (queue.producer is None or producer is None or queue.producer[0] != producer[0]):
            self.queues.pop(queue.key, None)
