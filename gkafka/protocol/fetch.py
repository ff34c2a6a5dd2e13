"""Fetch (reference: pykafka.protocol FetchRequest, FetchResponse)."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any, NamedTuple

from gkafka.checks import check_count
from gkafka.exceptions import NoMessagesConsumedError
from gkafka.protocol.base import MIN_INT32, Buffer, Name, Names, Request, Response, listed, text
from gkafka.protocol.message import Message
from gkafka.records import Records, scan
from gkafka.records._message import Origin
from gkafka.wire import fetch as wire

__all__ = ["FetchPartitionResponse", "FetchRequest", "FetchResponse", "PartitionFetchRequest"]

AT_ONCE = 10_000  # messages
ENTRY_HEAD = struct.Struct(">qi")
ENTRY = ENTRY_HEAD.size  # bytes: an offset and a size
MOST = 2**31 - 1


class _PartitionFetchRequest(NamedTuple):
    topic_name: Name
    partition_id: int
    offset: int
    max_bytes: int


class PartitionFetchRequest(_PartitionFetchRequest):
    """What is asked of one partition: messages from offset on, max_bytes of them at most (a broker since 0.10.1 sends one batch in any case)."""

    __slots__ = ()

    def __new__(cls, topic: Name, partition: int, offset: int, max_bytes: int = 1024 * 1024) -> PartitionFetchRequest:
        return super().__new__(cls, topic, partition, offset, max_bytes)


class FetchRequest(Request):
    """Messages of partitions that one broker leads. timeout: ms that it waits for min_bytes, if there are fewer.

    partition_requests: PartitionFetchRequests; the last one of a partition counts.
    FetchRequest => ReplicaId:int32 MaxWaitTime:int32 MinBytes:int32 [TopicName [Partition:int32 FetchOffset:int64 MaxBytes:int32]]
    """

    API_KEY = wire.FetchRequest.API.key

    def __init__(
        self,
        partition_requests: Iterable[Any] = (),
        timeout: int = 1000,
        min_bytes: int = 1024,
        api_version: int | None = None,
    ) -> None:
        super().__init__(api_version=api_version)
        self.timeout = self.parked_ms = check_count("timeout", timeout, low=MIN_INT32)
        self.min_bytes = min_bytes
        self._asked: dict[str, dict[int, tuple[int, int]]] = {}
        for request in listed("partition_requests", partition_requests, "topic_name", "partition_id", "offset", "max_bytes"):
            self.add_request(request)

    def add_request(self, partition_request: Any) -> None:
        """Ask for one more partition."""
        partitions = self._asked.setdefault(text(partition_request.topic_name), {})
        partitions[partition_request.partition_id] = (partition_request.offset, partition_request.max_bytes)

    def to_message(self) -> wire.FetchRequest:
        in_all = sum(max_bytes for partitions in self._asked.values() for _, max_bytes in partitions.values())
        return wire.FetchRequest(
            max_wait_ms=self.timeout,
            min_bytes=self.min_bytes,
            max_bytes=max(1, min(MOST, in_all)),
            topics=[
                wire.FetchTopic(
                    topic=topic,
                    partitions=[
                        wire.FetchPartition(partition=p, fetch_offset=offset, partition_max_bytes=max_bytes)
                        for p, (offset, max_bytes) in partitions.items()
                    ],
                )
                for topic, partitions in self._asked.items()
            ],
        )


class FetchPartitionResponse(NamedTuple):
    """max_offset: the high watermark; err: the error code."""

    max_offset: int
    messages: list[Message]
    err: int


class FetchResponse(Response):
    """topics: topic -> partition id -> FetchPartitionResponse. Messages of every format are plain Messages, taken out of compressed ones.

    A broker sends whole batches: messages before the offset that was asked for may be among them. Raises CorruptRecordError, a
    ProtocolError, naming the place of damaged bytes, and NoMessagesConsumedError where max_bytes was too small for one message.

    FetchResponse => [TopicName [Partition:int32 ErrorCode:int16 HighwaterMarkOffset:int64 MessageSetSize:int32 MessageSet]]
    """

    API_KEY = wire.FetchRequest.API.key
    topics: Names[dict[int, FetchPartitionResponse]]

    def _read(self, message: Any) -> None:
        self.topics = Names()
        for topic in message.responses:
            partitions = self.topics.setdefault(topic.topic.encode(), {})
            for p in topic.partitions:
                messages = _messages(p.records or b"", topic.topic, p.partition_index)
                partitions[p.partition_index] = FetchPartitionResponse(p.high_watermark, messages, p.error_code)

    def _unpack_message_set(self, buff: Buffer, partition_id: int = -1) -> list[Message]:
        """The messages of a set, also of one inside of another."""
        return _messages(buff, "", partition_id)


def _messages(records: Buffer, topic: str, partition: int) -> list[Message]:
    origin = Origin(topic, partition)
    headers = [] if _is_filler(records) else scan(records, topic=topic, partition=partition)
    if not headers and len(records) >= ENTRY:
        size = int.from_bytes(records[8:ENTRY], "big")
        text = f"the first batch has {size} bytes, {len(records) - ENTRY} were fetched: ask for more bytes with max_bytes"
        raise NoMessagesConsumedError(text, topic=topic, partition=partition)
    found: list[Message] = []
    for header in headers:
        batch = Records(records, header, origin)
        while not header.is_control and (taken := batch.take(AT_ONCE)):
            found += [_plain(record, topic, partition) for record in taken]
    rest = memoryview(records)[headers[-1].end :] if headers else b""
    if not _is_filler(rest):  # behind the last good batch: nothing, a tail that the broker cut off, or damage, which is raised here
        scan(rest, topic=topic, partition=partition)
    return found


def _is_filler(records: Buffer) -> bool:
    """What a broker that converts to an older format puts where it promised more bytes than there are: offset -1, and a size beyond the end.

    Source: LazyDownConversionRecordsSend.buildOverflowBatch, Kafka 2.0 and newer.
    """
    if len(records) < ENTRY:
        return False
    offset, size = ENTRY_HEAD.unpack_from(records)
    return bool(offset == -1 and size > len(records) - ENTRY)


def _plain(record: Any, topic: str, partition: int) -> Message:
    stamped = record.timestamp >= 0
    message = Message(
        record.value,
        record.partition_key,
        offset=record.offset,
        partition_id=partition,
        protocol_version=int(stamped),
        timestamp=record.timestamp if stamped else None,
    )
    message.topic, message.headers, message.timestamp_type = topic, record.headers, record.timestamp_type
    return message
