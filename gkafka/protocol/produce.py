"""Produce (reference: pykafka.protocol ProduceRequest, ProduceResponse)."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from gkafka.common import CompressionType
from gkafka.exceptions import RecordTooLarge
from gkafka.protocol.base import Name, Names, Request, Response, text
from gkafka.protocol.message import Message, MessageSet
from gkafka.records import Appender, Batch
from gkafka.wire import produce as wire

__all__ = ["ProducePartitionResponse", "ProduceRequest", "ProduceResponse", "sealed"]

MAX_BATCH_BYTES = 1 << 30
NEWEST_FORMAT = 2


class ProduceRequest(Request):
    """Messages for partitions that one broker leads.

    required_acks: -1 all in-sync replicas, 0 no answer at all, 1 the leader (no broker since 0.9 takes 2 or more). timeout: ms that the
    broker waits for them. broker_version: see MessageSet. msets: topic -> partition id -> MessageSet.

    ProduceRequest => RequiredAcks:int16 Timeout:int32 [TopicName [Partition:int32 MessageSetSize:int32 MessageSet]]
    """

    API_KEY = wire.ProduceRequest.API.key

    def __init__(
        self,
        compression_type: int = CompressionType.NONE.value,
        required_acks: int = 1,
        timeout: int = 10000,
        broker_version: str = "0.9.0",
        *,
        api_version: int | None = None,
    ) -> None:
        super().__init__(api_version=api_version)
        self.compression_type = compression_type
        self.required_acks = required_acks
        self.timeout = self.parked_ms = timeout
        self.broker_version = broker_version
        self.msets: dict[bytes, dict[int, MessageSet]] = {}
        MessageSet(compression_type)  # a codec that is none is refused now, not by the first message

    def add_message(self, message: Message, topic_name: Name, partition_id: int) -> None:
        """Add a message for a topic's partition."""
        partitions = self.msets.setdefault(text(topic_name).encode(), {})
        if partition_id not in partitions:
            partitions[partition_id] = MessageSet(self.compression_type, broker_version=self.broker_version)
        partitions[partition_id].messages.append(message)

    @property
    def messages(self) -> Iterator[Message]:
        """All messages, partition by partition."""
        return (m for partitions in self.msets.values() for mset in partitions.values() for m in mset.messages)

    def message_count(self) -> int:
        """How many messages there are, over all MessageSets."""
        return sum(len(mset.messages) for partitions in self.msets.values() for mset in partitions.values())

    def to_message(self) -> wire.ProduceRequest:
        """With message sets, as they are documented; with batches of format 2 for an api_version that takes nothing older (KIP-98)."""
        topics: list[wire.TopicProduceData] = []
        for topic, partitions in self.msets.items():
            name = topic.decode()
            data = [wire.PartitionProduceData(index=p, records=self._records(name, p, mset)) for p, mset in partitions.items()]
            topics.append(wire.TopicProduceData(name=name, partition_data=data))
        return wire.ProduceRequest(acks=self.required_acks, timeout_ms=self.timeout, topic_data=topics)

    def _records(self, topic: str, partition: int, mset: MessageSet) -> Any:
        if wire.only_batches(self.api_version):
            return sealed(topic, partition, mset.messages, mset.compression_type, NEWEST_FORMAT, time.time())
        return mset._bytes()


def sealed(topic: str, partition: int, messages: Iterable[Any], codec: CompressionType, written_as: int, now: float) -> Any:
    """Messages as the records of one partition, in a format. now: wall clock in seconds, for messages without a timestamp.

    messages: each with value and partition_key, possibly timestamp (ms) and headers. Raises RecordTooLarge, UnsupportedCodec,
    UnsupportedVersion for headers before format 2.
    """
    appender = Appender(
        None, batch_bytes=MAX_BATCH_BYTES, buffer_bytes=MAX_BATCH_BYTES, max_record_bytes=MAX_BATCH_BYTES, initial_bytes=4096
    )
    appender.open(topic, partition, 0.0)
    for message in messages:
        timestamp = getattr(message, "timestamp", None)
        stamp = int(now * 1000) if not timestamp or timestamp < 0 else int(timestamp)
        headers = getattr(message, "headers", None)
        if appender.append(topic, partition, message.value, message.partition_key, stamp, headers) is None:
            raise RecordTooLarge(f"more than {MAX_BATCH_BYTES} bytes for one partition in a request", topic=topic, partition=partition)
    batch: Batch | None = appender.take(topic, partition)
    assert batch is not None
    if written_as < NEWEST_FORMAT:
        batch.seal_legacy(written_as, codec, None)
    else:
        batch.seal(codec, None)
    return batch.wire


class ProducePartitionResponse(NamedTuple):
    """err: the error code; offset: that of the first message."""

    err: int
    offset: int


class ProduceResponse(Response):
    """topics: topic -> partition id -> ProducePartitionResponse.

    ProduceResponse => [TopicName [Partition:int32 ErrorCode:int16 Offset:int64]]
    """

    API_KEY = wire.ProduceRequest.API.key
    topics: Names[dict[int, ProducePartitionResponse]]

    def _read(self, message: Any) -> None:
        self.topics = Names()
        for topic in message.responses:
            found = {p.index: ProducePartitionResponse(p.error_code, p.base_offset) for p in topic.partition_responses}
            self.topics.setdefault(topic.name.encode(), {}).update(found)
