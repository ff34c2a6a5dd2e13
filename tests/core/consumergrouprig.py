"""The machine of a KIP-848 group on a bench: the test is its driver, its coordinator and its clock."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import Any
from uuid import UUID

from gkafka.core.backoff import Backoff
from gkafka.core.consumergroup import ConsumerGroup
from gkafka.core.consumergroupstate import ConsumerGroupOptions
from gkafka.core.groupstate import State
from gkafka.wire.consumergroups import (
    ConsumerGroupAssignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from gkafka.wire.metadata import MetadataRequest, MetadataResponse, MetadataResponseTopic
from tests.core.grouprig import BEAT_S, POLL_S, REBALANCE_S, SESSION_S, Bench

__all__ = ["NAMES", "Rig", "T", "U", "told"]

T, U = UUID(int=7), UUID(int=8)
NAMES = {T: "t", U: "u"}


def told(request: ConsumerGroupHeartbeatRequest) -> dict[UUID, list[int]] | None:
    return None if request.topic_partitions is None else {t.topic_id: t.partitions for t in request.topic_partitions}


class Rig(Bench):
    """A member of such a group."""

    group: ConsumerGroup

    def __init__(self, topics: Iterable[str] = ("t",), **options: Any) -> None:
        settings: dict[str, Any] = {"session_timeout_s": SESSION_S, "rebalance_timeout_s": REBALANCE_S, "max_poll_interval_s": POLL_S}
        said = ConsumerGroupOptions("g", **{**settings, **options})
        super().__init__(ConsumerGroup(said, topics, backoff=Backoff(0.1, 1.0), chance=Random(1)))

    def name(self, *ids: UUID) -> set[UUID]:
        """The brokers tell what these topics are called. Returns which were asked for."""
        ask, request = self.take(MetadataRequest)
        topics = [MetadataResponseTopic(name=NAMES[topic_id], topic_id=topic_id) for topic_id in ids]
        asked = [topic.topic_id for topic in request.topics or ()]
        topics += [MetadataResponseTopic(error_code=100, name=None, topic_id=topic_id) for topic_id in asked if topic_id not in ids]
        self.answer(ask, MetadataResponse(topics=topics))
        return set(asked)

    def beat(self, epoch: int, assignment: dict[UUID, list[int]] | None = None, code: int = 0) -> ConsumerGroupHeartbeatRequest:
        """The next heartbeat, at once or in its time, and its answer."""
        for _ in range(3):  # it may be polled for something else before
            if not self.wants(ConsumerGroupHeartbeatRequest):
                self.poll(max(0.0, self.wake_at - self.now))
        ask, request = self.take(ConsumerGroupHeartbeatRequest)
        answer = ConsumerGroupHeartbeatResponse(
            error_code=code, member_id=request.member_id, member_epoch=epoch, heartbeat_interval_ms=round(BEAT_S * 1000)
        )
        if assignment is not None:
            made = [TopicPartitions(topic_id=topic_id, partitions=numbers) for topic_id, numbers in assignment.items()]
            answer.assignment = ConsumerGroupAssignment(topic_partitions=made)
        self.answer(ask, answer)
        return request

    def stable(self, *numbers: int, epoch: int = 1) -> None:
        """A member with these partitions; its callback has returned."""
        self.polled()
        self.find()
        self.beat(epoch, {T: list(numbers)} if numbers else {})
        if numbers:
            self.name(T)
        self.told()
        self.beat(epoch)
        assert self.group.state is State.STABLE
        assert self.asks == []
