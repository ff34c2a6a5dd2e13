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


FIRST_INTERVAL_S = 5.0


class Heartbeats:
    """What the coordinator knows of the member, and when it is to hear more.

    interval_s: between two heartbeats, as the coordinator says. due_at: the next one, if there are no
    news before. unanswered_since: when the first one went that may have been heard and was not
    answered, None if there is none.
    """

    def __init__(self, options: ConsumerGroupOptions) -> None:
        self.interval_s = FIRST_INTERVAL_S
        self.due_at = 0.0
        self.unanswered_since: float | None = None
        self._options = options
        self._topics: frozenset[str] | None = None
        self._held: dict[TopicPartition, UUID] | None = None

    def forget(self) -> None:
        """A request was refused, or not answered: the next one tells everything, at once."""
        self._topics = self._held = None
        self.due_at = 0.0

    def is_due(self, topics: frozenset[str], now: float) -> bool:
        """Is it time for the next one, or is this another subscription than the coordinator knows?"""
        return now >= self.due_at or topics != self._topics

    def answered(self, interval_s: float, sent_at: float) -> float | None:
        """Take the answer to one that was sent then. Return since when there had been none.

        interval_s: as the coordinator says, 0 if it does not.
        """
        since, self.unanswered_since = self.unanswered_since, None
        if interval_s > 0:
            self.interval_s = min(interval_s, self._options.session_timeout_s / 3)
            self.due_at = sent_at + self.interval_s
        return since

    def next(
        self,
        member_id: str,
        epoch: int,
        topics: frozenset[str],
        held: Mapping[TopicPartition, UUID],
        now: float,
        *,
        acknowledges: bool,
    ) -> ConsumerGroupHeartbeatRequest:
        """held: what the member has, with the ids of the topics. acknowledges: tell it even if it is the same as before."""
        options = self._options
        request = ConsumerGroupHeartbeatRequest(
            group_id=options.group, member_id=member_id, member_epoch=epoch, instance_id=options.instance_id
        )
        if epoch == JOIN or self._topics is None:
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
        self.due_at = now + self.interval_s
        if self.unanswered_since is None:
            self.unanswered_since = now
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
