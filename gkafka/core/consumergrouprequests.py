"""The requests of a member of a KIP-848 group, and what answers say. Each heartbeat tells only what has changed since the last one that was
answered well.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from uuid import UUID

from gkafka.brokererrors import KafkaException
from gkafka.common import TopicPartition
from gkafka.core.consumergroupstate import ConsumerGroupOptions
from gkafka.wire.consumergroups import ConsumerGroupAssignment, ConsumerGroupHeartbeatRequest, TopicPartitions
from gkafka.wire.metadata import MetadataRequest, MetadataRequestTopic

__all__ = ["JOIN", "Heartbeats", "explained", "goodbye", "names_of", "read_target"]

JOIN, LEAVE, LEAVE_FOR_A_WHILE = 0, -1, -2
"""Epochs that say something: the last one is a static member's, whose partitions wait for it."""


class Heartbeats:
    """What the coordinator knows of the member."""

    def __init__(self, options: ConsumerGroupOptions) -> None:
        self._options = options
        self._topics: frozenset[str] | None = None
        self._held: dict[TopicPartition, UUID] | None = None

    def forget(self) -> None:
        """A request was refused, or not answered: the next one tells everything."""
        self._topics = self._held = None

    @property
    def knows_nothing(self) -> bool:
        return self._topics is None

    def is_news(self, topics: frozenset[str]) -> bool:
        """Is this subscription another one?"""
        return topics != self._topics

    def next(
        self, member_id: str, epoch: int, topics: frozenset[str], held: Mapping[TopicPartition, UUID], *, acknowledges: bool
    ) -> ConsumerGroupHeartbeatRequest:
        """held: what the member has, with the ids of the topics. acknowledges: tell it even if it is the same as before."""
        options = self._options
        request = ConsumerGroupHeartbeatRequest(
            group_id=options.group, member_id=member_id, member_epoch=epoch, instance_id=options.instance_id
        )
        if epoch == JOIN or self.knows_nothing:
            self.forget()
            request.rack_id = options.rack
            request.rebalance_timeout_ms = round(options.rebalance_timeout_s * 1000)
            request.subscribed_topic_regex = options.pattern
            request.server_assignor = options.assignor
        if topics != self._topics:
            request.subscribed_topic_names = sorted(topics)
        if acknowledges or held != self._held:
            request.topic_partitions = _by_id(held)
        self._topics, self._held = topics, dict(held)
        return request


def goodbye(options: ConsumerGroupOptions, member_id: str, *, for_good: bool) -> ConsumerGroupHeartbeatRequest:
    """for_good: also of a static member, whose partitions otherwise wait for it to come back."""
    epoch = LEAVE if for_good or options.instance_id is None else LEAVE_FOR_A_WHILE
    return ConsumerGroupHeartbeatRequest(group_id=options.group, member_id=member_id, member_epoch=epoch, instance_id=options.instance_id)


def names_of(ids: Iterable[UUID]) -> MetadataRequest:
    """What are these topics called?"""
    topics = [MetadataRequestTopic(topic_id=topic_id, name=None) for topic_id in sorted(ids)]
    return MetadataRequest(topics=topics, allow_auto_topic_creation=False)


def _by_id(held: Mapping[TopicPartition, UUID]) -> list[TopicPartitions]:
    found: dict[UUID, list[int]] = {}
    for partition, topic_id in sorted(held.items()):
        found.setdefault(topic_id, []).append(partition.partition)
    return [TopicPartitions(topic_id=topic_id, partitions=numbers) for topic_id, numbers in found.items()]


def read_target(assignment: ConsumerGroupAssignment | None) -> tuple[dict[UUID, frozenset[int]], list[tuple[UUID, list[int]]]]:
    """What the coordinator wants the member to have, and where it names partitions that cannot be, which are left out."""
    target: dict[UUID, frozenset[int]] = {}
    odd: list[tuple[UUID, list[int]]] = []
    for topic in assignment.topic_partitions if assignment is not None else ():
        fit = frozenset(number for number in topic.partitions if number >= 0)
        if len(fit) < len(topic.partitions):
            odd.append((topic.topic_id, topic.partitions))
        if fit:
            target[topic.topic_id] = target.get(topic.topic_id, frozenset()) | fit
    return target, odd


def explained(error: KafkaException, text: str) -> KafkaException:
    """The same error, with what it means here."""
    explained = type(error)(f"{text} ({error})", **error.about)
    explained.__cause__ = error
    return explained
