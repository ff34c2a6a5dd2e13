"""What kafka-python's assignors take and give (kafka.coordinator.protocol)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gkafka.kafka.structs import TopicPartition

__all__ = ["ConsumerProtocolMemberAssignment", "ConsumerProtocolMemberMetadata", "TopicPartitions"]


class TopicPartitions(NamedTuple):
    """Partitions of one topic."""

    topic: str
    partitions: list[int]


class ConsumerProtocolMemberMetadata(NamedTuple):
    """What a member tells its leader. topics is subscription, under 3.0's name. owned_partitions: what it had in which generation (KIP-429)."""

    version: int
    subscription: list[str]
    user_data: bytes = b""
    owned_partitions: Sequence[TopicPartitions] = ()
    generation_id: int = -1
    rack_id: str | None = None

    @property
    def topics(self) -> list[str]:
        """The topics that it wants."""
        return self.subscription


class ConsumerProtocolMemberAssignment(NamedTuple):
    """A member's share: (topic, partitions) pairs. assigned_partitions is assignment, under 3.0's name."""

    version: int
    assignment: Sequence[tuple[str, Sequence[int]]]
    user_data: bytes = b""

    @property
    def assigned_partitions(self) -> Sequence[tuple[str, Sequence[int]]]:
        """The pairs."""
        return self.assignment

    def partitions(self) -> list[TopicPartition]:
        """The partitions, one by one."""
        return [TopicPartition(topic, partition) for topic, partitions in self.assignment for partition in partitions]
