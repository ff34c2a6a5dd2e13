"""The machine of a KIP-848 group at a coordinator that keeps Kafka's rules (`gkafka.testing.consumergroups`), in simulated time, and members
that consume, to which happens what `groupsim` has happen to those of classic groups.
"""

from __future__ import annotations

from random import Random
from typing import Any
from uuid import UUID, uuid5

from gkafka.common import TopicPartition
from gkafka.core.assignors import Assignor
from gkafka.core.backoff import Backoff
from gkafka.core.consumergroup import ConsumerGroup
from gkafka.core.consumergroupstate import ConsumerGroupOptions
from gkafka.core.groupmachine import GroupMachine
from gkafka.core.groupstate import Tell
from gkafka.testing.consumergroups import ConsumerGroup as ConsumerGroupAtCoordinator
from gkafka.wire.consumergroups import ConsumerGroupHeartbeatRequest
from gkafka.wire.metadata import MetadataRequest, MetadataResponse, MetadataResponseTopic
from tests.core.groupsim import BEAT_S, POLL_S, SESSION_S, Member, Node, Reply, World

__all__ = ["ConsumerWorld"]

INVALID_REQUEST, UNKNOWN_TOPIC_ID = 42, 100


class ConsumerCoordinator(Node, ConsumerGroupAtCoordinator):
    """strangers: commits of what the member does not have. hidden: topics whose names the brokers do not tell at present."""

    def __init__(self, world: ConsumerWorld) -> None:
        super().__init__(world.ids, session_s=SESSION_S, beat_s=BEAT_S)
        self.hidden: set[str] = set()
        self.strangers: list[tuple[str, TopicPartition]] = []
        self._world = world

    def serve(self, request: Any, reply: Reply) -> None:
        if isinstance(request, MetadataRequest):
            reply(MetadataResponse(topics=[self._name(topic.topic_id) for topic in request.topics or ()]))
        else:
            answer = self.heartbeat(request)
            assert answer.error_code != INVALID_REQUEST, request
            reply(answer)

    def _name(self, topic_id: UUID) -> MetadataResponseTopic:
        name = next(name for name in self._world.topics if id_of(name) == topic_id)
        if name in self.hidden:
            return MetadataResponseTopic(error_code=UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id)
        return MetadataResponseTopic(name=name, topic_id=topic_id)

    def objection(self, request: Any) -> int:
        return self.check_commit(request.member_id, request.generation_id_or_member_epoch)

    def store(self, request: Any, tp: TopicPartition, offset: int) -> None:
        seat = self.members[request.member_id]
        if (id_of(tp.topic), tp.partition) not in seat.assigned | seat.pending:
            self.strangers.append((request.member_id, tp))
        super().store(request, tp, offset)


def id_of(name: str) -> UUID:
    return uuid5(UUID(int=1), name)


class ConsumerMember(Member):
    """As the members of the classic protocol, with the other machine."""

    def machine(self, assignors: list[Assignor], instance: str | None, chance: Random) -> GroupMachine:
        options = ConsumerGroupOptions("g", SESSION_S, self.world.rebalance_s, POLL_S, instance_id=instance)
        return ConsumerGroup(options, self.world.topics, backoff=Backoff(0.1, 1.0), chance=chance)

    def gives_up(self, request: Any, tell: Tell) -> bool:
        if not isinstance(request, ConsumerGroupHeartbeatRequest) or request.topic_partitions is None:
            return False
        told = {(t.topic_id, number) for t in request.topic_partitions for number in t.partitions}
        return any((id_of(tp.topic), tp.partition) not in told for tp in tell.partitions)

    def left_out(self, request: Any) -> bool:
        return False


class ConsumerWorld(World):
    """The same world, with that coordinator. What a member's epochs were is looked at, too: within a membership they only grow."""

    def __init__(self, *, topics: dict[str, int], seed: int, rebalance_s: float = 20.0) -> None:
        super().__init__([], topics=topics, seed=seed, rebalance_s=rebalance_s)
        self._epochs: dict[tuple[str, str], int] = {}

    def ids(self) -> dict[str, tuple[UUID, int]]:
        return {topic: (id_of(topic), len(numbers)) for topic, numbers in self.topics.items()}

    def new_coordinator(self) -> Any:
        return ConsumerCoordinator(self)

    def new_member(self, name: str, instance: str | None, skew: float, seed: int) -> Member:
        return ConsumerMember(self, name, self.assignors, instance=instance, skew=skew, seed=seed)

    def check(self) -> None:
        super().check()
        assert self.coordinator.strangers == []
        for member in self.members:
            who = member.name, member.group.member_id
            if member.group.generation != -1:
                assert member.group.generation >= self._epochs.get(who, 0), f"the epoch of {who} goes back"
                self._epochs[who] = member.group.generation

    def finish(self) -> None:
        self.coordinator.hidden.clear()
        super().finish()
