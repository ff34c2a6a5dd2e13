"""What was fetched and not handed out yet: a queue of spans of batches for each partition of a consumer."""

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
    """The spans of one partition that were fetched and not handed out, oldest first.

    reader: of the one that is being read, or of several that become columns together; opened: what it reads; unread, size, leader_epoch: what
    that still counts for in `position.buffered`, its bytes, and the epoch it was written in. held: the bytes of all of them.
    """

    __slots__ = ("context", "epoch", "held", "leader_epoch", "opened", "position", "reader", "size", "spans", "unread")

    def __init__(self, position: Position, context: Context) -> None:
        self.position = position
        self.context = context
        self.spans: deque[Fetched] = deque()
        self.reader: Records | ColumnReader | None = None
        self.opened: list[Fetched] = []
        self.unread = self.size = self.held = 0
        self.leader_epoch = -1
        self.epoch = 0  # the position's, when what is being read was fetched

    def put(self, fetched: Fetched) -> None:
        self.spans.append(fetched)
        self.held += fetched.size

    def next_batch(self) -> Fetched | None:
        """The one to read now, with its counts; None: there is none, or it is from before a seek."""
        found = self.next_batches(1)
        return found[0] if found else None

    def next_batches(self, most_bytes: int) -> list[Fetched]:
        """Those to read together now, with their counts: one, and more while they have no more than so many bytes and one leader's epoch.

        []: there is none, or it is from before a seek.
        """
        if not self.spans:
            return []
        fetched = self.spans.popleft()
        if fetched.epoch != self.position.epoch:
            self.held -= fetched.size
            return []
        self.opened = [fetched]
        self.unread, self.size, self.leader_epoch = fetched.messages, fetched.size, fetched.span.leader_epoch
        self.epoch = fetched.epoch
        while self.spans:
            fetched = self.spans[0]
            if fetched.epoch != self.epoch or fetched.span.leader_epoch != self.leader_epoch or self.size + fetched.size > most_bytes:
                break
            self.opened.append(self.spans.popleft())
            self.unread += fetched.messages
            self.size += fetched.size
        return self.opened

    def put_back(self) -> None:
        """What is being read is to be read in another way: it goes on from the position."""
        self.spans.extendleft(reversed(self.opened))
        self.position.buffered += sum(fetched.messages for fetched in self.opened) - self.unread
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
        """Everything of what was being read is handed out."""
        self.reader = None
        self.opened = []
        self.held -= self.size
        self.size = 0

    def clear(self) -> None:
        self.spans.clear()
        self.reader = None
        self.opened = []
        self.position.buffered = self.unread = self.size = self.held = 0

    @property
    def is_empty(self) -> bool:
        return self.reader is None and not self.spans

    @property
    def state(self) -> str:
        """Return what its partition is doing, for a line of the log."""
        if not self.is_empty:
            return "buffered"
        return "in_flight" if self.position.in_flight else self.position.state.value

    @property
    def is_open(self) -> bool:
        """Is there something that may be handed out?"""
        return not self.position.paused and (self.reader is not None or bool(self.spans))

    def catch_up(self) -> None:
        """If everything fetched was handed out, what the fetches passed over since (markers, aborted records) is consumed."""
        if self.reader is None and not self.spans:
            position = self.position
            position.buffered = 0
            if position.state is not State.RESETTING and position.consumed < position.fetch_offset:
                position.consumed, position.consumed_epoch = position.fetch_offset, position.fetch_epoch
