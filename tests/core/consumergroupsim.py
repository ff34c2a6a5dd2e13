"""A coordinator of KIP-848 groups by Kafka's own rules (GroupMetadataManager.java, CurrentAssignmentBuilder.java), and members that consume.

- Each heartbeat moves its member towards the target: what it has and shall not have is taken back first; it moves to the next epoch when it
  tells that it has given that up; what others still have is given to it when they have let go.
- A member that is silent for a session, or does not give up in time, is removed. Members are known by id and epoch: one that comes with the
  epoch before, and with nothing that it should not have, has missed an answer; any other epoch is fenced.
- Static members leave for a while with epoch -2; nobody has their partitions until they come back or their session ends (KIP-345).
- All is stored: a coordinator that moves knows everything, only the clocks start anew.
"""

from __future__ import annotations

from collections.abc import Callable
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
from gkafka.wire.consumergroups import (
    ConsumerGroupAssignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from gkafka.wire.groups import Coordinator as Named
from gkafka.wire.groups import FindCoordinatorRequest, FindCoordinatorResponse
from gkafka.wire.metadata import MetadataRequest, MetadataResponse, MetadataResponseTopic
from tests.core.groupsim import BEAT_S, POLL_S, SESSION_S, Member, World

__all__ = ["ConsumerWorld"]

NOT_COORDINATOR, UNKNOWN, FENCED_INSTANCE, UNKNOWN_TOPIC_ID, FENCED_EPOCH, UNRELEASED, STALE_EPOCH = 16, 25, 82, 100, 110, 111, 113
STABLE, UNREVOKED, UNRELEASED_STATE = "stable", "unrevoked", "unreleased"
Partitions = set[TopicPartition]
Reply = Callable[[Any], None]
NEVER = float("inf")


class Seat:
    """A member as the coordinator knows it."""

    def __init__(self, instance: str | None) -> None:
        self.instance = instance
        self.epoch = self.previous = 0
        self.state = STABLE
        self.assigned: Partitions = set()
        self.pending: Partitions = set()  # to be given up
        self.rebalance_s = 0.0
        self.expires = self.revoke_by = NEVER

    def move_to(self, epoch: int) -> None:
        self.previous, self.epoch = self.epoch, epoch


class ConsumerCoordinator:
    """node: which broker it is on. begins_again: a member that is known may join again with epoch 0 (KAFKA-19233)."""

    def __init__(self, world: ConsumerWorld) -> None:
        self.now = 0.0
        self.node = 1
        self.begins_again = True
        self.hidden: set[str] = set()  # topics whose names the brokers do not tell at present
        self.seats: dict[str, Seat] = {}
        self.generation = 0
        self.target: dict[str, Partitions] = {}
        self.committed: dict[TopicPartition, int] = {}
        self.regressions: list[tuple[TopicPartition, int, int]] = []
        self.strangers: list[tuple[str, TopicPartition]] = []  # commits of what the member does not have
        self._world = world
        self._known: Partitions = set()

    @property
    def state(self) -> str:
        return f"{self.generation}: {[(m, seat.epoch, seat.state, seat.assigned, seat.pending) for m, seat in self.seats.items()]}"

    # -- requests ----------------------------------------------------------------------------------------------------------
    def handle(self, node: int, request: Any, reply: Reply) -> None:
        if isinstance(request, FindCoordinatorRequest):
            reply(FindCoordinatorResponse(coordinators=[Named(key=request.key, node_id=self.node, host="b", port=self.node)]))
        elif isinstance(request, MetadataRequest):
            reply(MetadataResponse(topics=[self._name(topic.topic_id) for topic in request.topics or ()]))
        elif node != self.node:
            reply(ConsumerGroupHeartbeatResponse(error_code=NOT_COORDINATOR))
        else:
            assert isinstance(request, ConsumerGroupHeartbeatRequest)
            reply(self._leave(request) if request.member_epoch < 0 else self._beat(request))

    def _name(self, topic_id: UUID) -> MetadataResponseTopic:
        name = next(name for name in self._world.topics if id_of(name) == topic_id)
        if name in self.hidden:
            return MetadataResponseTopic(error_code=UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id)
        return MetadataResponseTopic(name=name, topic_id=topic_id)

    def _refuse(self, code: int) -> ConsumerGroupHeartbeatResponse:
        return ConsumerGroupHeartbeatResponse(error_code=code)

    def _of_instance(self, instance: str) -> tuple[str, Seat] | None:
        return next(((name, seat) for name, seat in self.seats.items() if seat.instance == instance), None)

    def _beat(self, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
        owned = None if request.topic_partitions is None else self._owned(request.topic_partitions)
        joins = request.member_epoch == 0
        assert not joins or (owned == set() and request.subscribed_topic_names and request.rebalance_timeout_ms > 0), request
        seat = self.seats.get(request.member_id)
        found = None if request.instance_id is None else self._of_instance(request.instance_id)
        if request.instance_id is not None and not joins and (found is None or found[0] != request.member_id):
            return self._refuse(UNKNOWN if found is None else FENCED_INSTANCE)
        if found is not None and joins:
            name, old = found
            if old.epoch != -2:
                return self._refuse(UNRELEASED)
            del self.seats[name]
            seat = self.seats[request.member_id] = old
            self.target[request.member_id] = self.target.pop(name)
            seat.epoch = seat.previous = 0
        if seat is None:
            if not joins:
                return self._refuse(UNKNOWN)
            seat = self.seats[request.member_id] = Seat(request.instance_id)
            self._divide()
        elif not self._may(seat, request.member_epoch, owned):
            return self._refuse(FENCED_EPOCH)
        if request.rebalance_timeout_ms > 0:
            seat.rebalance_s = request.rebalance_timeout_ms / 1000
        if self._known != self._world.all_partitions:
            self._divide()
        before = set(seat.assigned)
        self._reconcile(request.member_id, seat, owned)
        seat.expires = self.now + SESSION_S
        answer = ConsumerGroupHeartbeatResponse(
            member_id=request.member_id, member_epoch=seat.epoch, heartbeat_interval_ms=round(BEAT_S * 1000)
        )
        is_full = request.rebalance_timeout_ms > 0 and request.subscribed_topic_names is not None and owned is not None
        if joins or is_full or before != seat.assigned:
            answer.assignment = ConsumerGroupAssignment(topic_partitions=_by_id(seat.assigned))
        return answer

    def _owned(self, told: list[TopicPartitions]) -> Partitions:
        names = {id_of(name): name for name in self._world.topics}
        return {TopicPartition(names[t.topic_id], number) for t in told for number in t.partitions}

    def _may(self, seat: Seat, epoch: int, owned: Partitions | None) -> bool:
        if epoch == seat.epoch or (epoch == 0 and self.begins_again):
            return True
        return 0 <= epoch < seat.epoch and epoch == seat.previous and owned is not None and owned <= seat.assigned

    def _leave(self, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
        seat = self.seats.get(request.member_id)
        if request.instance_id is not None:
            found = self._of_instance(request.instance_id)
            if found is None or found[0] != request.member_id:
                return self._refuse(UNKNOWN if found is None else FENCED_INSTANCE)
        if seat is None:
            return self._refuse(UNKNOWN)
        if request.member_epoch == -2:
            seat.move_to(-2)
            seat.pending = set()
            seat.state = STABLE
        else:
            self._remove(request.member_id)
        return ConsumerGroupHeartbeatResponse(member_id=request.member_id, member_epoch=request.member_epoch)

    def _remove(self, name: str) -> None:
        del self.seats[name]
        self.target.pop(name, None)
        self._divide()

    def _divide(self) -> None:
        """A new target: what can stay stays."""
        self.generation += 1
        self._known = set(self._world.all_partitions)
        most, rest = divmod(len(self._known), max(1, len(self.seats)))
        free = set(self._known)
        target: dict[str, Partitions] = {}
        for at, name in enumerate(self.seats):
            kept = sorted(self.target.get(name, set()) & free)[: most + (at < rest)]
            target[name] = set(kept)
            free -= target[name]
        for at, name in enumerate(self.seats):
            while len(target[name]) < most + (at < rest):
                target[name].add(free.pop() if len(free) == 1 else sorted(free)[0])
                free -= target[name]
        self.target = target

    def _reconcile(self, name: str, seat: Seat, owned: Partitions | None) -> None:
        if seat.state == STABLE and seat.epoch == self.generation:
            return
        epoch = seat.epoch
        if seat.state == UNREVOKED:
            if owned is None or owned & seat.pending:
                return
            epoch += 1
        target = self.target[name]
        kept, pending, wanted = seat.assigned & target, seat.assigned - target, target - seat.assigned
        others = set().union(*(s.assigned | s.pending for m, s in self.seats.items() if m != name)) if self.seats else set()
        unreleased = wanted & others
        if pending and (owned is None or owned & pending):
            seat.assigned, seat.pending, seat.state = kept, pending, UNREVOKED
            seat.move_to(epoch)
            seat.revoke_by = self.now + seat.rebalance_s
            return
        seat.assigned, seat.pending, seat.revoke_by = kept | (wanted - unreleased), set(), NEVER
        seat.state = UNRELEASED_STATE if unreleased else STABLE
        seat.move_to(self.generation)

    def commit(self, node: int, request: Any) -> int:
        if node != self.node:
            return NOT_COORDINATOR
        seat = self.seats.get(request.member_id)
        if seat is None:
            return UNKNOWN
        if request.generation_id_or_member_epoch != seat.epoch:
            return STALE_EPOCH
        for topic in request.topics:
            for p in topic.partitions:
                tp = TopicPartition(topic.name, p.partition_index)
                if tp not in seat.assigned | seat.pending:
                    self.strangers.append((request.member_id, tp))
                if p.committed_offset < self.committed.get(tp, 0):
                    self.regressions.append((tp, self.committed[tp], p.committed_offset))
                self.committed[tp] = p.committed_offset
        return 0

    # -- time and moves ----------------------------------------------------------------------------------------------------
    def pass_time(self, now: float) -> None:
        self.now = now
        for name, seat in list(self.seats.items()):
            if now >= min(seat.expires, seat.revoke_by):
                self._remove(name)

    def move(self) -> None:
        """To the other broker."""
        self.node = 3 - self.node
        for seat in self.seats.values():
            seat.expires = self.now + SESSION_S
            seat.revoke_by = self.now + seat.rebalance_s if seat.state == UNREVOKED else NEVER


def id_of(name: str) -> UUID:
    return uuid5(UUID(int=1), name)


def _by_id(partitions: Partitions) -> list[TopicPartitions]:
    found: dict[str, list[int]] = {}
    for tp in sorted(partitions):
        found.setdefault(tp.topic, []).append(tp.partition)
    return [TopicPartitions(topic_id=id_of(name), partitions=numbers) for name, numbers in found.items()]


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

    @property
    def all_partitions(self) -> Partitions:
        return {TopicPartition(topic, number) for topic, numbers in self.topics.items() for number in range(len(numbers))}

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
