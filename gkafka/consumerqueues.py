"""What was fetched and not handed out yet: a queue of batches for each partition of a consumer."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from gkafka.core.positions import Position, State

if TYPE_CHECKING:
    from gkafka.columnreader import ColumnReader
    from gkafka.core.fetcher import Fetched
    from gkafka.records import Records

__all__ = ["Context", "Queue"]


class Context:
    """What the records of a partition have in common: what `message.topic`, `.partition_id` and `.partition` answer."""

    __slots__ = ("_partition", "partition_id", "topic")

    def __init__(self, topic: str, partition_id: int, partition: Any) -> None:
        self.topic = topic
        self.partition_id = partition_id
        self._partition = partition

    @property
    def partition(self) -> Any:
        """pykafka's Partition, which messages of its consumers have."""
        if self._partition is None:
            raise AttributeError("a message of client.get_consumer() has no partition, here it is partition_id")
        return self._partition


class Queue:
    """The batches of one partition that were fetched and not handed out, oldest first.

    reader: of the one that is being read, or of several that become columns together; opened: what it reads; unread, size, leader_epoch: what
    that still counts for in `position.buffered`, its bytes, and the epoch it was written in. held: the bytes of all of them.
    """

    __slots__ = ("batches", "context", "epoch", "held", "leader_epoch", "opened", "position", "reader", "size", "unread")

    def __init__(self, position: Position, context: Context) -> None:
        self.position = position
        self.context = context
        self.batches: deque[Fetched] = deque()
        self.reader: Records | ColumnReader | None = None
        self.opened: list[Fetched] = []
        self.unread = self.size = self.held = 0
        self.leader_epoch = -1
        self.epoch = 0  # the position's, when what is being read was fetched

    def put(self, batch: Fetched) -> None:
        self.batches.append(batch)
        self.held += batch.size

    def next_batch(self) -> Fetched | None:
        """The one to read now, with its counts; None: there is none, or it is from before a seek."""
        found = self.next_batches(1)
        return found[0] if found else None

    def next_batches(self, most_bytes: int) -> list[Fetched]:
        """Those to read together now, with their counts: one, and more while they have no more than so many bytes and one leader's epoch.

        []: there is none, or it is from before a seek.
        """
        if not self.batches:
            return []
        batch = self.batches.popleft()
        if batch.epoch != self.position.epoch:
            self.held -= batch.size
            return []
        self.opened = [batch]
        self.unread, self.size, self.leader_epoch = batch.messages, batch.size, batch.header.leader_epoch
        self.epoch = batch.epoch
        while self.batches:
            batch = self.batches[0]
            if batch.epoch != self.epoch or batch.header.leader_epoch != self.leader_epoch or self.size + batch.size > most_bytes:
                break
            self.opened.append(self.batches.popleft())
            self.unread += batch.messages
            self.size += batch.size
        return self.opened

    def put_back(self) -> None:
        """What is being read is to be read in another way: it goes on from the position."""
        self.batches.extendleft(reversed(self.opened))
        self.position.buffered += sum(batch.messages for batch in self.opened) - self.unread
        self.reader = None
        self.opened = []
        self.unread = self.size = 0

    def count(self, left: int) -> None:
        """So many messages are left of what is being read."""
        counted = max(0, self.unread - left)
        self.unread -= counted
        self.position.buffered = max(0, self.position.buffered - counted)

    @property
    def buffered(self) -> int:
        """Messages that were not handed out: `position.buffered`, less those that were taken one by one and not counted yet."""
        reader = self.reader
        return self.position.buffered - (max(0, self.unread - reader.remaining) if reader is not None else 0)

    @property
    def is_void(self) -> bool:
        """Has the position moved on since what is being read was fetched?"""
        return self.epoch != self.position.epoch

    def is_read(self) -> None:
        """Everything of the batch that was being read is handed out."""
        self.reader = None
        self.opened = []
        self.held -= self.size
        self.size = 0

    def clear(self) -> None:
        self.batches.clear()
        self.reader = None
        self.opened = []
        self.position.buffered = self.unread = self.size = self.held = 0

    @property
    def is_empty(self) -> bool:
        return self.reader is None and not self.batches

    @property
    def is_open(self) -> bool:
        """Is there something that may be handed out?"""
        return not self.position.paused and (self.reader is not None or bool(self.batches))

    def catch_up(self) -> None:
        """If everything fetched was handed out, what the fetches passed over since (markers, aborted records) is consumed."""
        if self.reader is None and not self.batches:
            position = self.position
            position.buffered = 0
            if position.state is not State.RESETTING and position.consumed < position.fetch_offset:
                position.consumed, position.consumed_epoch = position.fetch_offset, position.fetch_epoch
