"""The end of groups and of their offsets: DeleteGroups and OffsetDelete."""

from __future__ import annotations

from gkafka.wire.schema import Message, Struct, array, int16, int32, message, string

__all__ = [
    "DeletableGroupResult",
    "DeleteGroupsRequest",
    "DeleteGroupsResponse",
    "OffsetDeleteRequest",
    "OffsetDeleteRequestPartition",
    "OffsetDeleteRequestTopic",
    "OffsetDeleteResponse",
    "OffsetDeleteResponsePartition",
    "OffsetDeleteResponseTopic",
]


# -- DeleteGroups ------------------------------------------------------------------------------------------------------
@message(key=42, versions="0-2", flexible="2+")
class DeleteGroupsRequest(Message):
    """To the coordinators of the groups, which must be empty. KIP-229; KIP-219 (v1); KIP-482 (v2)."""

    groups_names: list[str] = array(string())


class DeletableGroupResult(Struct):
    group_id: str = string()
    error_code: int = int16()


@message(key=42, versions="0-2", flexible="2+")
class DeleteGroupsResponse(Message):
    """One result for each group. KIP-219 (v1); KIP-482 (v2)."""

    throttle_time_ms: int = int32()
    results: list[DeletableGroupResult] = array(DeletableGroupResult)


# -- OffsetDelete ------------------------------------------------------------------------------------------------------
class OffsetDeleteRequestPartition(Struct):
    partition_index: int = int32()


class OffsetDeleteRequestTopic(Struct):
    name: str = string()
    partitions: list[OffsetDeleteRequestPartition] = array(OffsetDeleteRequestPartition)


@message(key=47, versions="0", flexible="none")
class OffsetDeleteRequest(Message):
    """To the group's coordinator: forget offsets of topics that the group is not subscribed to. KIP-496."""

    group_id: str = string()
    topics: list[OffsetDeleteRequestTopic] = array(OffsetDeleteRequestTopic)


class OffsetDeleteResponsePartition(Struct):
    partition_index: int = int32()
    error_code: int = int16()


class OffsetDeleteResponseTopic(Struct):
    name: str = string()
    partitions: list[OffsetDeleteResponsePartition] = array(OffsetDeleteResponsePartition)


@message(key=47, versions="0", flexible="none")
class OffsetDeleteResponse(Message):
    """One result for each partition. KIP-496."""

    error_code: int = int16()
    throttle_time_ms: int = int32(ignorable=True)
    topics: list[OffsetDeleteResponseTopic] = array(OffsetDeleteResponseTopic)
