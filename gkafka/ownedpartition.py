"""pykafka's OwnedPartition: what one keeps of a partition that is fetched by hand. Documented by name in pykafka-2.0.4; its members are those of
pykafka 2.8.

gkafka's consumers keep their partitions in `core/fetcher.py`. This is for whoever asks a `Broker` for messages: it makes the requests for its
partition, takes the answers, hands messages out and knows what to commit.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Any

from gkafka.checks import check_offset, milliseconds
from gkafka.common import OffsetType
from gkafka.exceptions import ConfigurationError
from gkafka.handlers import Handler, ThreadingHandler
from gkafka.logs import get_logger
from gkafka.oneprocess import OfOneProcess
from gkafka.protocol import PartitionFetchRequest, PartitionOffsetCommitRequest, PartitionOffsetFetchRequest, PartitionOffsetRequest
from gkafka.protocol.base import check_has, listed

if TYPE_CHECKING:
    from gkafka.partition import Partition

__all__ = ["OwnedPartition"]

log = get_logger(__name__)
NOTHING = -1


class OwnedPartition(OfOneProcess):
    """partition: whose messages these are. handler: makes the lock and the queue, None for threads. semaphore: released for each message that
    comes. consumer_id: stands in the metadata of commits. last_offset_consumed: -1 before the first message; next_offset: what to fetch.
    fetch_lock: for whoever fetches from several workers.

    compacted_topic: pykafka needs to be told that offsets have gaps. Here messages before next_offset are left out and gaps are taken in any
    case: compaction makes them, and so do transactions.
    """

    def __init__(
        self,
        partition: Partition,
        handler: Handler | None = None,
        semaphore: Any = None,
        compacted_topic: bool = False,
        consumer_id: str | bytes = b"",
    ) -> None:
        check_has("partition", partition, "topic", "id")
        if handler is not None:
            check_has("handler", handler, "RLock", "Queue", "QueueEmptyError")
        self.partition = partition
        self.last_offset_consumed = NOTHING
        self.next_offset = 0
        self._make: Any = ThreadingHandler if handler is None else handler
        self.fetch_lock = self._make.RLock()
        self._messages = self._make.Queue()
        self._arrived = semaphore
        self._empty = self._make.QueueEmptyError
        self.set_consumer_id(consumer_id)

    def __repr__(self) -> str:
        name = f"{self.partition.topic.name}-{self.partition.id}"
        return f"<{type(self).__module__}.{type(self).__name__} at {id(self):#x} ({name}, next_offset={self.next_offset})>"

    def set_consumer_id(self, value: str | bytes) -> None:
        """Who commits, for people who look at the group's offsets."""
        text = value.decode(errors="replace") if isinstance(value, bytes) else value
        self._metadata = json.dumps({"consumer_id": text}).encode()

    @property
    def message_count(self) -> int:
        """Messages that wait to be consumed."""
        return int(self._messages.qsize())

    def enqueue_messages(self, messages: Iterable[Any]) -> None:
        """Take fetched messages, in order; those before next_offset, which brokers send because batches are whole, are left out."""
        for message in listed("messages", messages, "offset", "partition_id"):
            if message.offset < self.next_offset:
                continue
            if message.partition_id != self.partition.id:
                raise ConfigurationError(f"a message of partition {message.partition_id} is none of {self!r}")
            message.partition = self.partition
            self._messages.put(message)
            self.next_offset = message.offset + 1
            if self._arrived is not None:
                self._arrived.release()

    def consume(self) -> Any:
        """The next message, None if none is there."""
        try:
            message = self._messages.get_nowait()
        except self._empty:
            return None
        self.last_offset_consumed = message.offset
        return message

    def flush(self) -> None:
        """Throw away what was not consumed. next_offset stays: set_offset() goes back."""
        waiting, self._messages = self._messages, self._make.Queue()
        dropped = 0
        while True:
            try:
                waiting.get_nowait()
            except self._empty:
                break
            dropped += 1
            if self._arrived is not None:
                self._arrived.acquire(blocking=False)
        log.info("%r: %d messages were thrown away", self, dropped)

    def set_offset(self, last_offset_consumed: int) -> None:
        """Go on behind an offset; -1 is from the first one."""
        self.last_offset_consumed = check_offset("last_offset_consumed", last_offset_consumed, low=NOTHING)
        self.next_offset = self.last_offset_consumed + 1

    # -- requests for it ---------------------------------------------------------------------------------------------------
    def build_offset_request(self, offsets_before: datetime | int) -> PartitionOffsetRequest:
        """For `Broker.request_offset_limits`. offsets_before: a datetime (naive: UTC), OffsetType.EARLIEST or OffsetType.LATEST."""
        if isinstance(offsets_before, datetime):
            offsets_before = milliseconds(offsets_before)
        elif offsets_before not in tuple(OffsetType):
            raise ConfigurationError(f"offsets_before={offsets_before!r}: must be a datetime, OffsetType.EARLIEST or OffsetType.LATEST")
        return PartitionOffsetRequest(self.partition.topic.name, self.partition.id, int(offsets_before), 1)

    def build_fetch_request(self, max_bytes: int) -> PartitionFetchRequest:
        """For `Broker.fetch_messages`: from next_offset on."""
        return PartitionFetchRequest(self.partition.topic.name, self.partition.id, self.next_offset, max_bytes)

    def build_offset_commit_request(self, offset: int | None = None) -> PartitionOffsetCommitRequest:
        """For `Broker.commit_consumer_group_offsets`. offset: the next one to consume, None for the one behind the last that was."""
        following = self.last_offset_consumed + 1 if offset is None else offset
        now_ms = int(time.time() * 1000)
        return PartitionOffsetCommitRequest(self.partition.topic.name, self.partition.id, following, now_ms, self._metadata)

    def build_offset_fetch_request(self) -> PartitionOffsetFetchRequest:
        """For `Broker.fetch_consumer_group_offsets`."""
        return PartitionOffsetFetchRequest(self.partition.topic.name, self.partition.id)
