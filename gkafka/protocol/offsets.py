"""Offsets of logs and of groups, and where a group's are kept (reference: pykafka.protocol Offset..., ConsumerMetadata...).

pykafka 2.8 calls OffsetRequest ListOffsetRequest and ConsumerMetadataRequest GroupCoordinatorRequest: both names are here.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from gkafka.checks import check_count
from gkafka.exceptions import UnsupportedVersion
from gkafka.protocol.base import Name, Names, Request, Response, listed, text
from gkafka.wire import groups
from gkafka.wire import offsets as wire

__all__ = [
    "ConsumerMetadataRequest",
    "ConsumerMetadataResponse",
    "GroupCoordinatorRequest",
    "GroupCoordinatorResponse",
    "ListOffsetRequest",
    "ListOffsetResponse",
    "OffsetCommitPartitionResponse",
    "OffsetCommitRequest",
    "OffsetCommitResponse",
    "OffsetFetchPartitionResponse",
    "OffsetFetchRequest",
    "OffsetFetchResponse",
    "OffsetPartitionResponse",
    "OffsetRequest",
    "OffsetResponse",
    "PartitionOffsetCommitRequest",
    "PartitionOffsetFetchRequest",
    "PartitionOffsetRequest",
]


# -- of logs -----------------------------------------------------------------------------------------------------------
class PartitionOffsetRequest(NamedTuple):
    """offsets_before: ms since the epoch, -1 for the end of the log, -2 for its beginning. max_offsets: how many; only brokers before 0.10.1
    tell more than one, and of the beginning there is one."""

    topic_name: Name
    partition_id: int
    offsets_before: int
    max_offsets: int


class OffsetRequest(Request):
    """Offsets of partitions that one broker leads. partition_requests: PartitionOffsetRequests; the last one of a partition counts.

    OffsetRequest => ReplicaId:int32 [TopicName [Partition:int32 Time:int64 MaxNumberOfOffsets:int32]]
    """

    API_KEY = wire.ListOffsetsRequest.API.key

    def __init__(self, partition_requests: Iterable[Any], *, api_version: int | None = None) -> None:
        super().__init__(api_version=api_version)
        self._asked: dict[str, dict[int, tuple[int, int]]] = {}
        for p in listed("partition_requests", partition_requests, "topic_name", "partition_id", "offsets_before", "max_offsets"):
            most = check_count("max_offsets", p.max_offsets)
            self._asked.setdefault(text(p.topic_name), {})[p.partition_id] = (p.offsets_before, most)

    def to_message(self) -> wire.ListOffsetsRequest:
        return wire.ListOffsetsRequest(
            topics=[
                wire.ListOffsetsTopic(
                    name=topic,
                    partitions=[
                        wire.ListOffsetsPartition(partition_index=p, timestamp=before, max_num_offsets=most)
                        for p, (before, most) in partitions.items()
                    ],
                )
                for topic, partitions in self._asked.items()
            ]
        )


class OffsetPartitionResponse(NamedTuple):
    """offset: the offsets that were found, newest first; err: the error code."""

    offset: list[int]
    err: int


class OffsetResponse(Response):
    """topics: topic -> partition id -> OffsetPartitionResponse.

    OffsetResponse => [TopicName [Partition:int32 ErrorCode:int16 [Offset:int64]]]
    """

    API_KEY = wire.ListOffsetsRequest.API.key
    topics: Names[dict[int, OffsetPartitionResponse]]

    def _read(self, message: Any) -> None:
        self.topics = Names()
        for topic in message.topics:
            partitions = self.topics.setdefault(topic.name.encode(), {})
            for p in topic.partitions:
                found = list(p.old_style_offsets) or ([p.offset] if p.offset >= 0 else [])
                partitions[p.partition_index] = OffsetPartitionResponse(found, p.error_code)


ListOffsetRequest, ListOffsetResponse = OffsetRequest, OffsetResponse


# -- of groups: committing ---------------------------------------------------------------------------------------------
class PartitionOffsetCommitRequest(NamedTuple):
    """offset: the next one to consume. timestamp: ms since the epoch, -1 for the broker's. metadata: any text, kept with the offset;
    an empty one is sent as null."""

    topic_name: Name
    partition_id: int
    offset: int
    timestamp: int
    metadata: Name


class OffsetCommitRequest(Request):
    """Remember how far a group has come; for its coordinator. partition_requests: PartitionOffsetCommitRequests.

    consumer_group_generation_id: -1, with consumer_id b"", outside of group membership.
    OffsetCommitRequest => ConsumerGroupId ConsumerGroupGenerationId:int32 ConsumerId
                           [TopicName [Partition:int32 Offset:int64 TimeStamp:int64 Metadata]]      (version 1)
    """

    API_KEY = wire.OffsetCommitRequest.API.key
    API_VERSION = 1

    def __init__(
        self,
        consumer_group: Name,
        consumer_group_generation_id: int,
        consumer_id: Name,
        partition_requests: Iterable[Any] = (),
        *,
        api_version: int | None = None,
    ) -> None:
        super().__init__(api_version=api_version)
        self.consumer_group = consumer_group
        self.consumer_group_generation_id = consumer_group_generation_id
        self.consumer_id = consumer_id
        self._asked: dict[str, dict[int, tuple[int, int, str | None]]] = {}
        for p in listed("partition_requests", partition_requests, "topic_name", "partition_id", "offset", "timestamp", "metadata"):
            self._asked.setdefault(text(p.topic_name), {})[p.partition_id] = (p.offset, p.timestamp, text(p.metadata or "") or None)

    def to_message(self) -> wire.OffsetCommitRequest:
        """Without timestamps, which only version 1 has."""
        return self._message(timestamps=False)

    def get_bytes(self) -> bytearray:
        try:
            return self._encoded(self._message(timestamps=True))
        except UnsupportedVersion:
            return super().get_bytes()

    def _message(self, *, timestamps: bool) -> wire.OffsetCommitRequest:
        return wire.OffsetCommitRequest(
            group_id=text(self.consumer_group),
            generation_id_or_member_epoch=self.consumer_group_generation_id,
            member_id=text(self.consumer_id),
            topics=[
                wire.OffsetCommitRequestTopic(
                    name=topic,
                    partitions=[
                        wire.OffsetCommitRequestPartition(
                            partition_index=p,
                            committed_offset=offset,
                            commit_timestamp=timestamp if timestamps else -1,
                            committed_metadata=metadata,
                        )
                        for p, (offset, timestamp, metadata) in partitions.items()
                    ],
                )
                for topic, partitions in self._asked.items()
            ],
        )


class OffsetCommitPartitionResponse(NamedTuple):
    """err: the error code."""

    err: int


class OffsetCommitResponse(Response):
    """topics: topic -> partition id -> OffsetCommitPartitionResponse.

    OffsetCommitResponse => [TopicName [Partition:int32 ErrorCode:int16]]
    """

    API_KEY = wire.OffsetCommitRequest.API.key
    API_VERSION = 1
    topics: Names[dict[int, OffsetCommitPartitionResponse]]

    def _read(self, message: Any) -> None:
        self.topics = Names()
        for topic in message.topics:
            found = {p.partition_index: OffsetCommitPartitionResponse(p.error_code) for p in topic.partitions}
            self.topics.setdefault(topic.name.encode(), {}).update(found)


# -- of groups: fetching -----------------------------------------------------------------------------------------------
class PartitionOffsetFetchRequest(NamedTuple):
    """A partition whose committed offset is asked for."""

    topic_name: Name
    partition_id: int


class OffsetFetchRequest(Request):
    """How far a group has come; for its coordinator. partition_requests: PartitionOffsetFetchRequests.

    Version 1, whose offsets are kept in Kafka; api_version=0 is the same for those in ZooKeeper.
    OffsetFetchRequest => ConsumerGroup [TopicName [Partition:int32]]
    """

    API_KEY = wire.OffsetFetchRequest.API.key
    API_VERSION = 1

    def __init__(self, consumer_group: Name, partition_requests: Iterable[Any] = (), *, api_version: int | None = None) -> None:
        super().__init__(api_version=api_version)
        self.consumer_group = consumer_group
        self._asked: dict[str, list[int]] = {}
        for p in listed("partition_requests", partition_requests, "topic_name", "partition_id"):
            self._asked.setdefault(text(p.topic_name), []).append(p.partition_id)

    def to_message(self) -> wire.OffsetFetchRequest:
        topics = [wire.OffsetFetchRequestTopic(name=topic, partition_indexes=ids) for topic, ids in self._asked.items()]
        return wire.OffsetFetchRequest(group_id=text(self.consumer_group), topics=topics)


class OffsetFetchPartitionResponse(NamedTuple):
    """offset: -1 where nothing is committed. metadata: the text that was committed with it. err: the error code."""

    offset: int
    metadata: Name | None
    err: int


class OffsetFetchResponse(Response):
    """topics: topic -> partition id -> OffsetFetchPartitionResponse. err: what newer brokers tell of the group as a whole, 0 otherwise.

    OffsetFetchResponse => [TopicName [Partition:int32 Offset:int64 Metadata ErrorCode:int16]]
    """

    API_KEY = wire.OffsetFetchRequest.API.key
    API_VERSION = 1
    topics: Names[dict[int, OffsetFetchPartitionResponse]]
    err: int

    def _read(self, message: Any) -> None:
        (answer,) = message.answers[:1] or (wire.OffsetFetchResponseGroup(),)
        self.err = answer.error_code
        self.topics = Names()
        for topic in answer.topics:
            found = {
                p.partition_index: OffsetFetchPartitionResponse(p.committed_offset, _bytes(p.metadata), p.error_code)
                for p in topic.partitions
            }
            self.topics.setdefault(topic.name.encode(), {}).update(found)


def _bytes(name: str | None) -> bytes | None:
    return None if name is None else name.encode()


# -- of groups: who keeps them -----------------------------------------------------------------------------------------
class ConsumerMetadataRequest(Request):
    """Which broker coordinates a group?

    ConsumerMetadataRequest => ConsumerGroup
    """

    API_KEY = groups.FindCoordinatorRequest.API.key

    def __init__(self, consumer_group: Name, *, api_version: int | None = None) -> None:
        super().__init__(api_version=api_version)
        self.consumer_group = consumer_group

    def to_message(self) -> groups.FindCoordinatorRequest:
        return groups.FindCoordinatorRequest(key=text(self.consumer_group))


class ConsumerMetadataResponse(Response):
    """That broker. Raises the broker's error for an answer that names none.

    ConsumerMetadataResponse => ErrorCode:int16 CoordinatorId:int32 CoordinatorHost CoordinatorPort:int32
    """

    API_KEY = groups.FindCoordinatorRequest.API.key
    coordinator_id: int
    coordinator_host: bytes
    coordinator_port: int

    def _read(self, message: Any) -> None:
        found = message.answers[0] if message.answers else groups.Coordinator(error_code=15, node_id=-1)
        if found.error_code != 0:
            self.raise_error(found.error_code, found)
        self.coordinator_id = found.node_id
        self.coordinator_host = found.host.encode()
        self.coordinator_port = found.port


GroupCoordinatorRequest, GroupCoordinatorResponse = ConsumerMetadataRequest, ConsumerMetadataResponse
