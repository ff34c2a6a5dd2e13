"""The brokers' answers to the requests of KIP-848 groups: which group, is it here, and the clock that moves it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from math import inf
from typing import TYPE_CHECKING, Any
from uuid import UUID

from gkafka.exceptions import ConfigurationError
from gkafka.testing.consumergroups import ConsumerGroup, Key, Seat, by_topic
from gkafka.testing.coordinators import GroupMember, GroupSeen
from gkafka.testing.state import NO_LEADER
from gkafka.wire.apis import Message
from gkafka.wire.consumergroups import (
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupMember,
    ConsumerGroupMemberAssignment,
    DescribedConsumerGroup,
    NamedTopicPartitions,
)
from gkafka.wire.groups import ListedGroup

if TYPE_CHECKING:
    from gkafka.testing.answers import Answers
    from gkafka.testing.server import Call

__all__ = ["CONSUMER_GROUP_APIS", "ConsumerGroups"]

NOT_COORDINATOR, UNSUPPORTED_VERSION, INVALID_REQUEST, GROUP_ID_NOT_FOUND = 16, 35, 42, 69
CONSUMER = "consumer"
MEMBER_OF_KIP_848 = 1
CONSUMER_GROUP_APIS = frozenset({"ConsumerGroupHeartbeat", "ConsumerGroupDescribe"})
"""Names of the APIs that are answered here."""


class ConsumerGroups:
    """The part of the brokers' answers that is about KIP-848 groups. enabled: else the brokers know the requests and refuse them, as 3.9 does."""

    def __init__(self, answers: Answers, *, enabled: bool, session_s: float, beat_s: float) -> None:
        self._answers = answers
        self._enabled, self._session_s, self._beat_s = enabled, session_s, beat_s
        self._groups: dict[str, ConsumerGroup] = {}
        self._at: dict[str, int] = {}  # where a group was when it was last looked at
        self._wakes: dict[str, float] = {}  # when its next timer rings

    def act(self, call: Call) -> Message:
        return self._heartbeat(call) if call.request.api.name == "ConsumerGroupHeartbeat" else self._describe(call)

    def find(self, name: str) -> ConsumerGroup | None:
        """A group at this time and at its coordinator; None if there never was one."""
        group = self._groups.get(name)
        if group is not None:
            self._catch_up(name, group)
        return group

    # -- time and moves
    def _catch_up(self, name: str, group: ConsumerGroup) -> None:
        group.now = time.monotonic()
        at = self._answers.state.coordinator(name)
        if at != self._at[name]:
            self._at[name] = at
            group.move()
        elif at != NO_LEADER:
            group.pass_time(group.now)

    def _look(self, name: str) -> None:
        """After whatever may have changed a group: have it looked at again when its next deadline is there."""
        due = self._groups[name].wake_at if self._at[name] != NO_LEADER else inf
        if due < self._wakes.get(name, inf):
            self._wakes[name] = due
            self._answers.after(max(0.0, due - time.monotonic()), lambda: self._ring(name, due))

    def _ring(self, name: str, due: float) -> None:
        if self._wakes.get(name) == due:
            del self._wakes[name]
            self._catch_up(name, self._groups[name])
            self._look(name)

    def coordinators_changed(self) -> None:
        """Brokers stopped or started, or a coordinator was moved."""
        for name, group in self._groups.items():
            self._catch_up(name, group)
            self._look(name)

    # -- requests
    def _heartbeat(self, call: Call) -> Message:
        request: Any = call.request.message
        code = self._refusal(call, request)
        if code:
            return ConsumerGroupHeartbeatResponse(error_code=code)
        name = request.group_id
        if name not in self._groups:
            self._groups[name] = ConsumerGroup(self._topics, session_s=self._session_s, beat_s=self._beat_s, now=time.monotonic())
            self._at[name] = self._answers.state.coordinator(name)
        group = self._groups[name]
        self._catch_up(name, group)
        answer = group.heartbeat(request, call.request.client_id or "")
        self._look(name)
        return answer

    def _refusal(self, call: Call, request: Any) -> int:
        if not self._enabled:
            return UNSUPPORTED_VERSION
        if not request.group_id:
            return INVALID_REQUEST
        if self._answers.state.coordinator(request.group_id) != call.broker_id:
            return NOT_COORDINATOR
        if self._answers.groups.has_members(request.group_id) or (request.group_id not in self._groups and request.member_epoch):
            return GROUP_ID_NOT_FOUND
        return 0

    def _topics(self) -> Mapping[str, tuple[UUID, int]]:
        return {name: (topic.id, len(topic.partitions)) for name, topic in self._answers.state.topics.items()}

    def _describe(self, call: Call) -> Message:
        request: Any = call.request.message
        return ConsumerGroupDescribeResponse(groups=[self._described(call, name) for name in request.group_ids])

    def _described(self, call: Call, name: str) -> DescribedConsumerGroup:
        group = self.find(name)
        if self._answers.state.coordinator(name) != call.broker_id:
            return DescribedConsumerGroup(group_id=name, error_code=NOT_COORDINATOR)
        if group is None:
            return DescribedConsumerGroup(group_id=name, error_code=GROUP_ID_NOT_FOUND, error_message=f"Group {name} not found.")
        members = [
            ConsumerGroupMember(
                member_id=member_id,
                instance_id=seat.instance,
                member_epoch=seat.epoch,
                client_id=seat.client_id,
                client_host="/127.0.0.1",
                subscribed_topic_names=seat.topics,
                subscribed_topic_regex=None if seat.pattern is None else seat.pattern.pattern,
                assignment=self._named(seat.assigned),
                target_assignment=self._named(group.target[member_id]),
                member_type=MEMBER_OF_KIP_848,
            )
            for member_id, seat in group.seats.items()
        ]
        return DescribedConsumerGroup(
            group_id=name,
            group_state=group.state,
            group_epoch=group.generation,
            assignment_epoch=group.generation,
            assignor_name=group.assignor,
            members=members,
        )

    def _named(self, partitions: Iterable[Key]) -> ConsumerGroupMemberAssignment:
        names = {topic.id: name for name, topic in self._answers.state.topics.items()}
        return ConsumerGroupMemberAssignment(
            topic_partitions=[
                NamedTopicPartitions(topic_id=one.topic_id, topic_name=names[one.topic_id], partitions=one.partitions)
                for one in by_topic(partitions)
                if one.topic_id in names
            ]
        )

    def listed(self, broker: int) -> list[ListedGroup]:
        """For ListGroups."""
        return [
            ListedGroup(group_id=name, protocol_type=CONSUMER, group_state=group.state, group_type=CONSUMER)
            for name, group in sorted(self._groups.items())
            if self._answers.state.coordinator(name) == broker
        ]

    def has_members(self, name: str) -> bool:
        group = self.find(name)
        return group is not None and bool(group.seats)

    def commit_error(self, name: str, member_id: str, epoch: int, *, transactional: bool) -> int:
        """Why a group takes no positions of this sender, 0 if it does."""
        group = self.find(name)
        if group is None or (transactional and epoch < 0 and not member_id):
            return 0
        return group.check_commit(member_id, epoch)

    # -- what a test looks at and does
    def seen(self, name: str) -> GroupSeen | None:
        group = self.find(name)
        if group is None:
            return None
        members = {member_id: self._seen(seat) for member_id, seat in group.seats.items()}
        return GroupSeen(group.state, group.generation, CONSUMER, group.assignor, "", members)

    def _seen(self, seat: Seat) -> GroupMember:
        partitions = sorted((t.topic_name, n) for t in self._named(seat.assigned).topic_partitions for n in t.partitions)
        return GroupMember(seat.instance, seat.client_id, partitions, b"", b"", joining=False, syncing=False)

    def rebalance(self, name: str) -> None:
        group = self._groups[name]
        self._catch_up(name, group)
        group.divide()

    def remove(self, name: str, member: str) -> None:
        group = self._groups[name]
        gone = [member_id for member_id, seat in group.seats.items() if member in (member_id, seat.instance)]
        if not gone:
            raise ConfigurationError(f"group {name!r} has no member {member!r}; these are: {', '.join(group.seats)}")
        self._catch_up(name, group)
        group.expel(gone)
        self._look(name)

    def __contains__(self, name: str) -> bool:
        return name in self._groups
