"""The brokers' answers to the requests of KIP-848 groups: which group, is it here, and the clock that moves it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any
from uuid import UUID

from gkafka.testing.consumergroups import CONSUMER, ConsumerGroup, Key, Seat, by_topic
from gkafka.testing.groupkeeper import GROUP_ID_NOT_FOUND, NOT_COORDINATOR, GroupKeeper, GroupMember, GroupSeen
from gkafka.wire.apis import Message
from gkafka.wire.consumergroups import (
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupMember,
    ConsumerGroupMemberAssignment,
    DescribedConsumerGroup,
    NamedTopicPartitions,
)

if TYPE_CHECKING:
    from gkafka.testing.answers import Answers
    from gkafka.testing.server import Call

__all__ = ["CONSUMER_GROUP_APIS", "ConsumerGroups"]

UNSUPPORTED_VERSION, INVALID_REQUEST = 35, 42
MEMBER_OF_KIP_848 = 1
CONSUMER_GROUP_APIS = frozenset({"ConsumerGroupHeartbeat", "ConsumerGroupDescribe"})
"""Names of the APIs that are answered here."""


class ConsumerGroups(GroupKeeper[ConsumerGroup]):
    """The part of the brokers' answers that is about KIP-848 groups. enabled: else the brokers know the requests and refuse them, as 3.9 does."""

    TYPE = CONSUMER

    def __init__(self, answers: Answers, *, enabled: bool, session_s: float, beat_s: float) -> None:
        super().__init__(answers)
        self._enabled, self._session_s, self._beat_s = enabled, session_s, beat_s

    def act(self, call: Call) -> Message:
        return self._heartbeat(call) if call.request.api.name == "ConsumerGroupHeartbeat" else self._describe(call)

    def _new_group(self, now: float) -> ConsumerGroup:
        return ConsumerGroup(self._topics, session_s=self._session_s, beat_s=self._beat_s, now=now)

    # -- requests
    def _heartbeat(self, call: Call) -> Message:
        request: Any = call.request.message
        code = self._refusal(call, request)
        if code:
            return ConsumerGroupHeartbeatResponse(error_code=code)
        answer = self._found_or_new(request.group_id).heartbeat(request, call.request.client_id or "")
        self._look(request.group_id)
        return answer

    def _refusal(self, call: Call, request: Any) -> int:
        if not self._enabled:
            return UNSUPPORTED_VERSION
        if not request.group_id:
            return INVALID_REQUEST
        if not self._is_here(call, request.group_id):
            return NOT_COORDINATOR
        if self._answers.groups.has_members(request.group_id) or (request.group_id not in self and request.member_epoch):
            return GROUP_ID_NOT_FOUND
        return 0

    def _topics(self) -> Mapping[str, tuple[UUID, int]]:
        return {name: (topic.id, len(topic.partitions)) for name, topic in self._answers.state.topics.items()}

    def _describe(self, call: Call) -> Message:
        request: Any = call.request.message
        return ConsumerGroupDescribeResponse(groups=[self._described(call, name) for name in request.group_ids])

    def _described(self, call: Call, name: str) -> DescribedConsumerGroup:
        group = self.find(name)
        if not self._is_here(call, name):
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
            for member_id, seat in group.members.items()
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

    def commit_error(self, name: str, member_id: str, epoch: int, *, transactional: bool) -> int:
        """Why a group takes no positions of this sender, 0 if it does."""
        group = self.find(name)
        if group is None or (transactional and epoch < 0 and not member_id):
            return 0
        return group.check_commit(member_id, epoch)

    # -- what a test looks at and does
    def _seen(self, group: ConsumerGroup) -> GroupSeen:
        members = {member_id: self._seen_member(seat) for member_id, seat in group.members.items()}
        return GroupSeen(group.state, group.generation, CONSUMER, group.assignor, "", members)

    def _seen_member(self, seat: Seat) -> GroupMember:
        partitions = sorted((t.topic_name, n) for t in self._named(seat.assigned).topic_partitions for n in t.partitions)
        return GroupMember(seat.instance, seat.client_id, partitions, b"", b"", joining=False, syncing=False)
