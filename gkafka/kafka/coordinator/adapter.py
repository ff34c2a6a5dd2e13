"""kafka-python's assignors, as gkafka's groups ask theirs."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from gkafka.kafka.cluster import Partitions
from gkafka.kafka.coordinator.protocol import ConsumerProtocolMemberAssignment, ConsumerProtocolMemberMetadata, TopicPartitions
from gkafka.kafka.structs import TopicPartition
from gkafka.skins import Assignment, GroupMember, Topics

__all__ = ["Adapted", "is_kafka_pythons"]

COOPERATIVE = 1  # kafka-python's RebalanceProtocol
VERSION = 0
MANY_VERSION = 3  # has owned_partitions, generation_id and rack_id


class Member(str):
    """A member's id, which is 1.4's key of a member; with its metadata it is 3.0's member."""

    member_id: str
    group_instance_id: str | None
    metadata: ConsumerProtocolMemberMetadata


def is_kafka_pythons(given: Any) -> bool:
    """Has it the interface of AbstractPartitionAssignor?"""
    return isinstance(getattr(given, "name", None), str) and all(callable(getattr(given, call, None)) for call in ("assign", "metadata"))


class Adapted:
    """A gkafka.core.assignors.Assignor. theirs: the assignor. What it raises is told by the group, which then has a built-in one assign."""

    def __init__(self, theirs: Any) -> None:
        self.theirs = theirs
        self.name: str = theirs.name
        supported = getattr(theirs, "supported_protocols", None)
        self.cooperative = supported is not None and COOPERATIVE in [int(one) for one in supported()]

    def __repr__(self) -> str:
        return repr(self.theirs)

    def user_data(self, topics: Collection[str], assigned: Sequence[TopicPartition] | None, generation: int) -> bytes | None:
        """Of what the assignor's metadata() say."""
        data = self.theirs.metadata(set(topics)).user_data
        told: bytes | None = data.encode() if hasattr(data, "encode") else data  # 3.0's sticky one leaves that to its client
        return told

    def assign(self, topics: Topics, members: Sequence[GroupMember]) -> Assignment:
        """What the assignor's assign() gives."""
        told = [_member(member) for member in members]
        made = self.theirs.assign(Partitions(topics), {member: member.metadata for member in told})
        return {str(name): _partitions(share) for name, share in made.items()}

    def on_assignment(self, partitions: Iterable[TopicPartition], generation: int) -> None:
        """Tell the assignor, if it wants to know."""
        tell = getattr(self.theirs, "on_assignment", None)
        if tell is None:
            return
        share = ConsumerProtocolMemberAssignment(VERSION, _by_topic(partitions))
        tell(share, generation) if len(inspect.signature(tell).parameters) > 1 else tell(share)


def _member(told: GroupMember) -> Member:
    member = Member(told.member_id)
    member.member_id, member.group_instance_id = told.member_id, told.instance_id
    data = b"" if told.user_data is None else bytes(told.user_data)
    more = (_by_topic(told.owned), told.generation, told.rack)
    member.metadata = ConsumerProtocolMemberMetadata(MANY_VERSION, list(told.topics), data, *more)
    return member


def _by_topic(partitions: Iterable[TopicPartition]) -> list[TopicPartitions]:
    found: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        found.setdefault(topic, []).append(partition)
    return [TopicPartitions(topic, numbers) for topic, numbers in found.items()]


def _partitions(share: Any) -> list[TopicPartition]:
    """Of a ConsumerProtocolMemberAssignment, gkafka's or kafka-python's."""
    return [TopicPartition(topic, partition) for topic, partitions in share.assignment for partition in partitions]
