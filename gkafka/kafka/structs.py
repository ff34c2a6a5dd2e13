"""kafka-python's small types (kafka.structs)."""

from __future__ import annotations

from typing import Any, NamedTuple

from gkafka.common import IsolationLevel, TopicPartition
from gkafka.skins import GroupMetadata as ConsumerGroupMetadata

__all__ = [
    "ConsumerGroupMetadata",
    "GroupInformation",
    "IsolationLevel",
    "MemberInformation",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "TopicPartition",
    "TopicPartitionReplica",
]


class _OffsetAndMetadata(NamedTuple):
    offset: int
    metadata: str | None


class OffsetAndMetadata(_OffsetAndMetadata):
    """An offset to commit, with a text that goes with it. As documented for 1.4 a pair; leader_epoch, of newer versions, is an attribute beside it."""

    leader_epoch: int

    def __new__(cls, offset: int, metadata: str | None = "", leader_epoch: int = -1) -> OffsetAndMetadata:
        made = super().__new__(cls, offset, metadata)
        made.leader_epoch = leader_epoch
        return made

    def __getnewargs__(self) -> Any:
        return self.offset, self.metadata, self.leader_epoch


class _OffsetAndTimestamp(NamedTuple):
    offset: int
    timestamp: int


class OffsetAndTimestamp(_OffsetAndTimestamp):
    """Where a record stands, and its time in ms since the epoch. As documented for 1.4 a pair; leader_epoch, of newer versions, is an attribute."""

    leader_epoch: int | None

    def __new__(cls, offset: int, timestamp: int, leader_epoch: int | None = None) -> OffsetAndTimestamp:
        made = super().__new__(cls, offset, timestamp)
        made.leader_epoch = leader_epoch
        return made

    def __getnewargs__(self) -> Any:
        return self.offset, self.timestamp, self.leader_epoch


class TopicPartitionReplica(NamedTuple):
    """A partition's replica on one broker."""

    topic: str
    partition: int
    broker_id: int


class MemberInformation(NamedTuple):
    """A member, as describe_consumer_groups() tells of it."""

    member_id: str
    client_id: str
    client_host: str
    member_metadata: Any
    member_assignment: Any


class GroupInformation(NamedTuple):
    """A group, as describe_consumer_groups() tells of it. authorized_operations: None unless they were asked for."""

    error_code: int
    group: str
    state: str
    protocol_type: str
    protocol: str
    members: list[MemberInformation]
    authorized_operations: Any
