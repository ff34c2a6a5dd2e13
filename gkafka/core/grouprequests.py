"""The requests of a group's member."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NamedTuple

from gkafka.common import TopicPartition
from gkafka.core.assignors import Assignor
from gkafka.core.groupstate import GroupOptions
from gkafka.exceptions import AssignmentError
from gkafka.guarding import guarded
from gkafka.unseen import described
from gkafka.wire.consumerprotocol import CONSUMER, ConsumerProtocolSubscription, by_topic
from gkafka.wire.groups import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)

__all__ = ["Membership", "heartbeat", "join", "leave", "sync"]

SUBSCRIPTION_VERSION = 3
LONGEST_REASON = 255
"""Characters; a longer one is refused (KIP-800)."""


class Membership(NamedTuple):
    """Who asks."""

    options: GroupOptions
    generation: int
    member_id: str


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


def join(
    member: Membership,
    topics: Collection[str],
    owned: Iterable[TopicPartition],
    last: Sequence[TopicPartition] | None,
    last_generation: int,
    reason: str | None,
    is_interruption: Callable[[BaseException], bool],
) -> JoinGroupRequest:
    """owned: what it keeps while it joins. last: its last assignment, as far as it has not lost it, of last_generation.

    Raises AssignmentError for an assignor, which may be the user's, that has no user data to give; what is_interruption() says came from outside.
    """
    options = member.options
    had = by_topic(sorted(owned))
    protocols = [
        JoinGroupRequestProtocol(
            name=assignor.name,
            metadata=ConsumerProtocolSubscription(
                topics=sorted(topics),
                user_data=_user_data(assignor, sorted(topics), last, last_generation, is_interruption),
                owned_partitions=had,
                generation_id=last_generation,
                rack_id=options.rack,
            ).to_bytes(SUBSCRIPTION_VERSION),
        )
        for assignor in options.assignors
    ]
    return JoinGroupRequest(
        group_id=options.group,
        session_timeout_ms=_ms(options.session_timeout_s),
        rebalance_timeout_ms=_ms(options.rebalance_timeout_s),
        member_id=member.member_id,
        group_instance_id=options.instance_id,
        protocol_type=CONSUMER,
        protocols=protocols,
        reason=None if reason is None else reason[:LONGEST_REASON],
    )


def sync(member: Membership, assignor: Assignor, made: list[SyncGroupRequestAssignment]) -> SyncGroupRequest:
    return SyncGroupRequest(
        group_id=member.options.group,
        generation_id=member.generation,
        member_id=member.member_id,
        group_instance_id=member.options.instance_id,
        protocol_type=CONSUMER,
        protocol_name=assignor.name,
        assignments=made,
    )


def _user_data(
    assignor: Assignor,
    topics: Sequence[str],
    last: Sequence[TopicPartition] | None,
    generation: int,
    is_interruption: Callable[[BaseException], bool],
) -> bytes | None:
    advice = "mend it, or name another one in assignors="

    def failed(error: BaseException) -> bool:
        if not is_interruption(error):
            raise AssignmentError(f"assignor {assignor.name!r}: user_data() raised {described(error)}; {advice}") from error
        return True

    data = guarded(assignor.user_data, topics, last, generation, failed=failed)
    if data is not None and not isinstance(data, (bytes, bytearray, memoryview)):
        raise AssignmentError(f"assignor {assignor.name!r}: user_data() returned {data!r:.80}, which is neither bytes nor None; {advice}")
    return data


def heartbeat(member: Membership) -> HeartbeatRequest:
    return HeartbeatRequest(
        group_id=member.options.group,
        generation_id=member.generation,
        member_id=member.member_id,
        group_instance_id=member.options.instance_id,
    )


def leave(member: Membership, reason: str) -> LeaveGroupRequest:
    identity = MemberIdentity(member_id=member.member_id, group_instance_id=member.options.instance_id, reason=reason[:LONGEST_REASON])
    return LeaveGroupRequest(group_id=member.options.group, members=[identity])
