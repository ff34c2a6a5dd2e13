"""ListOffsets: where logs begin and end. OffsetCommit and OffsetFetch: how far a group has come."""

from __future__ import annotations

from uuid import UUID

from gkafka.wire.primitives import ZERO_UUID
from gkafka.wire.schema import Message, Struct, array, boolean, int8, int16, int32, int64, message, string, uuid

__all__ = [
    "ListOffsetsPartition",
    "ListOffsetsPartitionResponse",
    "ListOffsetsRequest",
    "ListOffsetsResponse",
    "ListOffsetsTopic",
    "ListOffsetsTopicResponse",
    "OffsetCommitRequest",
    "OffsetCommitRequestPartition",
    "OffsetCommitRequestTopic",
    "OffsetCommitResponse",
    "OffsetCommitResponsePartition",
    "OffsetCommitResponseTopic",
    "OffsetFetchRequest",
    "OffsetFetchRequestGroup",
    "OffsetFetchRequestTopic",
    "OffsetFetchRequestTopics",
    "OffsetFetchResponse",
    "OffsetFetchResponseGroup",
    "OffsetFetchResponsePartition",
    "OffsetFetchResponsePartitions",
    "OffsetFetchResponseTopic",
    "OffsetFetchResponseTopics",
]


# -- ListOffsets -------------------------------------------------------------------------------------------------------
SINCE = {-3: 7, -4: 8, -5: 9, -6: 11}
"""The version that brought a special time. A broker that does not know it takes it for a time before all records: the first one is its answer."""


class ListOffsetsPartition(Struct):
    partition_index: int = int32()
    current_leader_epoch: int = int32("4+", default=-1, ignorable=True)
    timestamp: int = int64()
    max_num_offsets: int = int32("0", default=1)


class ListOffsetsTopic(Struct):
    name: str = string()
    partitions: list[ListOffsetsPartition] = array(ListOffsetsPartition)


@message(key=2, versions="0-11", flexible="6+")
class ListOffsetsRequest(Message):
    """Offsets by time. KIP-79 (v1); KIP-98 isolation (v2); KIP-320 leader epochs (v4); KIP-482 (v6); KIP-734 -3 the largest timestamp
    (v7); KIP-405 -4 the local start (v8); KIP-1005 -5 the last tiered (v9); KIP-1075 timeout (v10); KIP-1023 -6 pending upload (v11).

    timestamp: ms since the epoch, -1 the end of the log, -2 its start. replica_id is -1 for every client (Kafka's definition, which
    serves followers too, has no default).
    """

    replica_id: int = int32(default=-1)
    # Ignorable, unlike in Kafka's definition: a broker that does not know the field (before 0.11) has no transactions either.
    isolation_level: int = int8("2+", ignorable=True)
    topics: list[ListOffsetsTopic] = array(ListOffsetsTopic)
    timeout_ms: int = int32("10+", ignorable=True)

    def oldest_version(self) -> tuple[int, str]:
        """That of the newest special time."""
        newest = min((p.timestamp for topic in self.topics for p in topic.partitions), default=0)
        return SINCE.get(newest, 0), f"the time {newest}"


class ListOffsetsPartitionResponse(Struct):
    partition_index: int = int32()
    error_code: int = int16()
    old_style_offsets: list[int] = array(int64(), "0")
    timestamp: int = int64("1+", default=-1)
    offset: int = int64("1+", default=-1)
    leader_epoch: int = int32("4+", default=-1)

    @property
    def found(self) -> int:
        """The offset at any version, -1 if there is none. Version 0 lists the starts of log segments, newest first."""
        return self.old_style_offsets[0] if self.old_style_offsets else self.offset


class ListOffsetsTopicResponse(Struct):
    name: str = string()
    partitions: list[ListOffsetsPartitionResponse] = array(ListOffsetsPartitionResponse, asked=True)


@message(key=2, versions="0-11", flexible="6+")
class ListOffsetsResponse(Message):
    """Offsets found (`partition.found`). KIP-79 one with its timestamp, instead of a list (v1); KIP-98 throttle (v2); KIP-219 (v3);
    KIP-320 leader epoch (v4); KIP-207 (v5); KIP-482 (v6).
    """

    throttle_time_ms: int = int32("2+", ignorable=True)
    topics: list[ListOffsetsTopicResponse] = array(ListOffsetsTopicResponse, asked=True)

    def for_version(self, version: int) -> ListOffsetsResponse:
        """One offset goes where the version has its place (KIP-79)."""
        if version > 0:
            return self
        topics = [ListOffsetsTopicResponse(name=t.name, partitions=[_old_style(p) for p in t.partitions]) for t in self.topics]
        return ListOffsetsResponse(topics=topics)


def _old_style(partition: ListOffsetsPartitionResponse) -> ListOffsetsPartitionResponse:
    offsets = partition.old_style_offsets or ([partition.offset] if partition.offset >= 0 else [])
    return ListOffsetsPartitionResponse(
        partition_index=partition.partition_index, error_code=partition.error_code, old_style_offsets=offsets
    )


# -- OffsetCommit ------------------------------------------------------------------------------------------------------
class OffsetCommitRequestPartition(Struct):
    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32("6+", default=-1, ignorable=True)
    commit_timestamp: int = int64("1", default=-1)
    committed_metadata: str | None = string(nullable="0+")


class OffsetCommitRequestTopic(Struct):
    name: str = string("0-9", ignorable=True)
    topic_id: UUID = uuid("10+", ignorable=True)
    partitions: list[OffsetCommitRequestPartition] = array(OffsetCommitRequestPartition)


@message(key=8, versions="0-10", flexible="8+")
class OffsetCommitRequest(Message):
    """Remember positions: version 0 in ZooKeeper, later ones in Kafka. KIP-211 no retention time (v5); KIP-320 leader epochs (v6);
    KIP-345 static members (v7); KIP-482 (v8); KIP-848 (v9), by topic id (v10).
    """

    group_id: str = string()
    generation_id_or_member_epoch: int = int32("1+", default=-1, ignorable=True)
    member_id: str = string("1+", ignorable=True)
    group_instance_id: str | None = string("7+", nullable="7+", default=None)
    retention_time_ms: int = int64("2-4", default=-1, ignorable=True)
    topics: list[OffsetCommitRequestTopic] = array(OffsetCommitRequestTopic)

    def newest_version(self) -> int:
        """Version 10 names topics by id alone, so each must have one."""
        return super().newest_version() if all(t.topic_id != ZERO_UUID for t in self.topics) else 9


class OffsetCommitResponsePartition(Struct):
    partition_index: int = int32()
    error_code: int = int16()


class OffsetCommitResponseTopic(Struct):
    name: str = string("0-9", ignorable=True)
    topic_id: UUID = uuid("10+", ignorable=True)
    partitions: list[OffsetCommitResponsePartition] = array(OffsetCommitResponsePartition, asked=True)


@message(key=8, versions="0-10", flexible="8+")
class OffsetCommitResponse(Message):
    """One error code for each partition. KIP-124 throttle (v3); KIP-219 (v4); KIP-482 (v8); KIP-848 (v9), topic ids (v10)."""

    throttle_time_ms: int = int32("3+", ignorable=True)
    topics: list[OffsetCommitResponseTopic] = array(OffsetCommitResponseTopic, asked=True)


# -- OffsetFetch -------------------------------------------------------------------------------------------------------
class OffsetFetchRequestTopic(Struct):
    name: str = string("0-7")
    partition_indexes: list[int] = array(int32(), "0-7")


class OffsetFetchRequestTopics(Struct):
    name: str = string("8-9", ignorable=True)
    topic_id: UUID = uuid("10+", ignorable=True)
    partition_indexes: list[int] = array(int32(), "8+")


class OffsetFetchRequestGroup(Struct):
    group_id: str = string("8+")
    member_id: str | None = string("9+", nullable="9+", default=None, ignorable=True)
    member_epoch: int = int32("9+", default=-1, ignorable=True)
    topics: list[OffsetFetchRequestTopics] | None = array(OffsetFetchRequestTopics, "8+", nullable="8+")


@message(key=9, versions="0-10", flexible="6+")
class OffsetFetchRequest(Message):
    """Ask for committed positions: version 0 in ZooKeeper, later ones in Kafka. KIP-88 all topics, as None (v2); KIP-482 (v6);
    KIP-447 only stable ones (v7); KIP-709 many groups (v8); KIP-848 members (v9), by topic id (v10).

    One group may be given as `group_id` and `topics` or in `groups`, whatever the version.
    """

    group_id: str = string("0-7")
    topics: list[OffsetFetchRequestTopic] | None = array(OffsetFetchRequestTopic, "0-7", nullable="2-7")
    groups: list[OffsetFetchRequestGroup] = array(OffsetFetchRequestGroup, "8+")
    # Ignorable, unlike in Kafka's definition: an older broker tells what is committed, and Java then does without, too.
    require_stable: bool = boolean("7+", ignorable=True)

    def for_version(self, version: int) -> OffsetFetchRequest:
        """A single group goes where the version has its place (KIP-709)."""
        if version >= 8 and self.group_id and not self.groups:
            return OffsetFetchRequest(groups=[self._as_group()], require_stable=self.require_stable)
        if version < 8 and not self.group_id and len(self.groups) == 1:
            return self._as_fields(self.groups[0])
        return self

    def _as_group(self) -> OffsetFetchRequestGroup:
        if self.topics is None:
            return OffsetFetchRequestGroup(group_id=self.group_id, topics=None)
        topics = [OffsetFetchRequestTopics(name=t.name, partition_indexes=t.partition_indexes) for t in self.topics]
        return OffsetFetchRequestGroup(group_id=self.group_id, topics=topics)

    def _as_fields(self, group: OffsetFetchRequestGroup) -> OffsetFetchRequest:
        request = OffsetFetchRequest(group_id=group.group_id, topics=None, require_stable=self.require_stable)
        if group.topics is not None:
            request.topics = [OffsetFetchRequestTopic(name=t.name, partition_indexes=t.partition_indexes) for t in group.topics]
        return request

    def newest_version(self) -> int:
        """Version 10 names topics by id alone, so each must have one."""
        ids = [t.topic_id for group in self.groups for t in group.topics or ()]
        return 9 if self.topics or ZERO_UUID in ids else super().newest_version()


class OffsetFetchResponsePartition(Struct):
    partition_index: int = int32("0-7")
    committed_offset: int = int64("0-7")
    committed_leader_epoch: int = int32("5-7", default=-1, ignorable=True)
    metadata: str | None = string("0-7", nullable="0-7")
    error_code: int = int16("0-7")


class OffsetFetchResponseTopic(Struct):
    name: str = string("0-7")
    partitions: list[OffsetFetchResponsePartition] = array(OffsetFetchResponsePartition, "0-7", asked=True)


class OffsetFetchResponsePartitions(Struct):
    partition_index: int = int32("8+")
    committed_offset: int = int64("8+")
    committed_leader_epoch: int = int32("8+", default=-1, ignorable=True)
    metadata: str | None = string("8+", nullable="8+")
    error_code: int = int16("8+")


class OffsetFetchResponseTopics(Struct):
    name: str = string("8-9", ignorable=True)
    topic_id: UUID = uuid("10+", ignorable=True)
    partitions: list[OffsetFetchResponsePartitions] = array(OffsetFetchResponsePartitions, "8+", asked=True)


class OffsetFetchResponseGroup(Struct):
    group_id: str = string("8+")
    topics: list[OffsetFetchResponseTopics] = array(OffsetFetchResponseTopics, "8+", asked=True)
    error_code: int = int16("8+")


@message(key=9, versions="0-10", flexible="6+")
class OffsetFetchResponse(Message):
    """Committed positions, -1 where there is none. KIP-88 error of the group (v2); KIP-124 throttle (v3); KIP-219 (v4); KIP-320 leader
    epochs (v5); KIP-482 (v6); KIP-447 (v7); KIP-709 many groups (v8); KIP-848 (v9), topic ids (v10). `answers` reads all versions alike.
    """

    throttle_time_ms: int = int32("3+", ignorable=True)
    topics: list[OffsetFetchResponseTopic] = array(OffsetFetchResponseTopic, "0-7", asked=True)
    error_code: int = int16("2-7", ignorable=True)
    groups: list[OffsetFetchResponseGroup] = array(OffsetFetchResponseGroup, "8+", asked=True)

    @property
    def answers(self) -> list[OffsetFetchResponseGroup]:
        """One for each group that was asked for; before version 8 it is one, and its `group_id` is "": the one that was asked for."""
        if self.groups:
            return self.groups
        topics = [OffsetFetchResponseTopics(name=t.name, partitions=[_new_form(p) for p in t.partitions]) for t in self.topics]
        return [OffsetFetchResponseGroup(topics=topics, error_code=self.error_code)]

    def for_version(self, version: int) -> OffsetFetchResponse:
        """A single group goes where the version has its place (KIP-709)."""
        if version >= 8 or len(self.groups) != 1:
            return self
        (group,) = self.groups
        topics = [OffsetFetchResponseTopic(name=t.name, partitions=[_old_form(p) for p in t.partitions]) for t in group.topics]
        return OffsetFetchResponse(throttle_time_ms=self.throttle_time_ms, topics=topics, error_code=group.error_code)


def _new_form(partition: OffsetFetchResponsePartition) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(**{f.name: getattr(partition, f.name) for f in partition.FIELDS})


def _old_form(partition: OffsetFetchResponsePartitions) -> OffsetFetchResponsePartition:
    return OffsetFetchResponsePartition(**{f.name: getattr(partition, f.name) for f in partition.FIELDS})
