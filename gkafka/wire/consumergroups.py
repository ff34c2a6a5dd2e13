"""The groups of KIP-848: the broker assigns, and a member only tells what it wants and what it has, heartbeat by heartbeat."""

from __future__ import annotations

from uuid import UUID

from gkafka.wire.schema import Message, Struct, array, boolean, int8, int16, int32, message, nullable_struct, string, struct, uuid

__all__ = [
    "ConsumerGroupAssignment",
    "ConsumerGroupDescribeRequest",
    "ConsumerGroupDescribeResponse",
    "ConsumerGroupHeartbeatRequest",
    "ConsumerGroupHeartbeatResponse",
    "ConsumerGroupMember",
    "ConsumerGroupMemberAssignment",
    "DescribedConsumerGroup",
    "NamedTopicPartitions",
    "TopicPartitions",
]


class TopicPartitions(Struct):
    topic_id: UUID = uuid()
    partitions: list[int] = array(int32())


# -- ConsumerGroupHeartbeat --------------------------------------------------------------------------------------------
@message(key=68, versions="0-1", flexible="0+")
class ConsumerGroupHeartbeatRequest(Message):
    """Join, stay, tell what is owned, leave. Pattern, and a member id that the client makes up: KIP-1082 (v1).

    member_epoch: 0 to join, -1 to leave, -2 to leave as a static member that comes back. None, or -1 for the timeout: as it was told last.
    """

    group_id: str = string()
    member_id: str = string()
    member_epoch: int = int32()
    instance_id: str | None = string(nullable="0+", default=None)
    rack_id: str | None = string(nullable="0+", default=None)
    rebalance_timeout_ms: int = int32(default=-1)
    subscribed_topic_names: list[str] | None = array(string(), nullable="0+", default=None)
    subscribed_topic_regex: str | None = string("1+", nullable="1+", default=None)
    server_assignor: str | None = string(nullable="0+", default=None)
    topic_partitions: list[TopicPartitions] | None = array(TopicPartitions, nullable="0+", default=None)


class ConsumerGroupAssignment(Struct):
    topic_partitions: list[TopicPartitions] = array(TopicPartitions)


@message(key=68, versions="0-1", flexible="0+")
class ConsumerGroupHeartbeatResponse(Message):
    """assignment: what the member shall own from now on, None where nothing changed."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    member_id: str | None = string(nullable="0+", default=None)
    member_epoch: int = int32()
    heartbeat_interval_ms: int = int32()
    assignment: ConsumerGroupAssignment | None = nullable_struct(ConsumerGroupAssignment)


# -- ConsumerGroupDescribe ---------------------------------------------------------------------------------------------
@message(key=69, versions="0-1", flexible="0+")
class ConsumerGroupDescribeRequest(Message):
    """Who is in these groups? Those that DescribeGroups does not tell of."""

    group_ids: list[str] = array(string())
    include_authorized_operations: bool = boolean()


class NamedTopicPartitions(Struct):
    topic_id: UUID = uuid()
    topic_name: str = string()
    partitions: list[int] = array(int32())


class ConsumerGroupMemberAssignment(Struct):
    topic_partitions: list[NamedTopicPartitions] = array(NamedTopicPartitions)


class ConsumerGroupMember(Struct):
    """member_type: 0 classic, 1 consumer, -1 not told (KIP-1099)."""

    member_id: str = string()
    instance_id: str | None = string(nullable="0+", default=None)
    rack_id: str | None = string(nullable="0+", default=None)
    member_epoch: int = int32()
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array(string())
    subscribed_topic_regex: str | None = string(nullable="0+", default=None)
    assignment: ConsumerGroupMemberAssignment = struct(ConsumerGroupMemberAssignment)
    target_assignment: ConsumerGroupMemberAssignment = struct(ConsumerGroupMemberAssignment)
    member_type: int = int8("1+", default=-1, ignorable=True)


class DescribedConsumerGroup(Struct):
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    group_id: str = string()
    group_state: str = string()
    group_epoch: int = int32()
    assignment_epoch: int = int32()
    assignor_name: str = string()
    members: list[ConsumerGroupMember] = array(ConsumerGroupMember)
    authorized_operations: int = int32(default=-(2**31))


@message(key=69, versions="0-1", flexible="0+")
class ConsumerGroupDescribeResponse(Message):
    """KIP-1099 the kind of each member (v1)."""

    throttle_time_ms: int = int32()
    groups: list[DescribedConsumerGroup] = array(DescribedConsumerGroup, asked=True)
