"""FindCoordinator: which broker looks after a group or a transactional id. JoinGroup, SyncGroup, Heartbeat, LeaveGroup: being a member.
DescribeGroups, ListGroups: looking at groups.

The metadata of a JoinGroup and the assignments of a SyncGroup are bytes to the broker; what consumers put there is in
`consumerprotocol`. The groups of KIP-848 are in `consumergroups`.
"""

from __future__ import annotations

from typing import Final

from gkafka.wire.schema import Message, Struct, array, boolean, bytes_, int8, int16, int32, message, string

__all__ = [
    "Coordinator",
    "DescribeGroupsRequest",
    "DescribeGroupsResponse",
    "DescribedGroup",
    "DescribedGroupMember",
    "FindCoordinatorRequest",
    "FindCoordinatorResponse",
    "HeartbeatRequest",
    "HeartbeatResponse",
    "JoinGroupRequest",
    "JoinGroupRequestProtocol",
    "JoinGroupResponse",
    "JoinGroupResponseMember",
    "LeaveGroupRequest",
    "LeaveGroupResponse",
    "ListGroupsRequest",
    "ListGroupsResponse",
    "ListedGroup",
    "MemberIdentity",
    "MemberResponse",
    "SyncGroupRequest",
    "SyncGroupRequestAssignment",
    "SyncGroupResponse",
    "has_rebalance_timeout",
]


# -- FindCoordinator ---------------------------------------------------------------------------------------------------
KINDS: Final = {1: (1, "a transaction"), 2: (6, "a share group")}
"""Of key_type: the oldest version that knows it, and what it is of."""


@message(key=10, versions="0-6", flexible="3+")
class FindCoordinatorRequest(Message):
    """Ask for coordinators. KIP-98 transactional ids (v1); KIP-482 (v3); KIP-699 many keys (v4); KIP-890 (v5); KIP-932 share groups (v6).

    key_type: 0 group, 1 transactional id, 2 share group. One key may be given as `key` or in `coordinator_keys`, whatever the version.
    """

    key: str = string("0-3")
    key_type: int = int8("1+")
    coordinator_keys: list[str] = array(string(), "4+")

    def oldest_version(self) -> tuple[int, str]:
        """Older ones know groups alone."""
        return KINDS.get(self.key_type, (0, ""))

    def for_version(self, version: int) -> FindCoordinatorRequest:
        """A single key goes where the version has its place (KIP-699)."""
        if version >= 4 and self.key and not self.coordinator_keys:
            return FindCoordinatorRequest(key_type=self.key_type, coordinator_keys=[self.key])
        if version < 4 and not self.key and len(self.coordinator_keys) == 1:
            return FindCoordinatorRequest(key=self.coordinator_keys[0], key_type=self.key_type)
        return self


class Coordinator(Struct):
    key: str = string("4+")
    node_id: int = int32("4+")
    host: str = string("4+")
    port: int = int32("4+")
    error_code: int = int16("4+")
    error_message: str | None = string("4+", nullable="4+", ignorable=True)


@message(key=10, versions="0-6", flexible="3+")
class FindCoordinatorResponse(Message):
    """Where they are. KIP-98 message (v1); KIP-219 (v2); KIP-482 (v3); KIP-699 many coordinators (v4). `answers` reads all versions alike."""

    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16("0-3")
    error_message: str | None = string("1-3", nullable="1-3", ignorable=True)
    node_id: int = int32("0-3")
    host: str = string("0-3")
    port: int = int32("0-3")
    coordinators: list[Coordinator] = array(Coordinator, "4+", asked=True)

    @property
    def answers(self) -> list[Coordinator]:
        """One for each key that was asked for; before version 4 it is one, and its `key` is "": the one that was asked for."""
        if self.coordinators:
            return self.coordinators
        if not (self.host or self.error_code):
            return []
        return [
            Coordinator(node_id=self.node_id, host=self.host, port=self.port, error_code=self.error_code, error_message=self.error_message)
        ]

    def for_version(self, version: int) -> FindCoordinatorResponse:
        """A single coordinator goes where the version has its place (KIP-699)."""
        if version >= 4 or len(self.coordinators) != 1:
            return self
        (one,) = self.coordinators
        return FindCoordinatorResponse(
            throttle_time_ms=self.throttle_time_ms,
            error_code=one.error_code,
            error_message=one.error_message,
            node_id=one.node_id,
            host=one.host,
            port=one.port,
        )


# -- JoinGroup ---------------------------------------------------------------------------------------------------------
class JoinGroupRequestProtocol(Struct):
    name: str = string()
    metadata: bytes | memoryview = bytes_()


@message(key=11, versions="0-9", flexible="6+")
class JoinGroupRequest(Message):
    """Become a member, or one of the next generation. KIP-62 rebalance timeout (v1); KIP-219 (v3); KIP-394 the member id is given in a
    first answer, MEMBER_ID_REQUIRED (v4); KIP-345 static members (v5); KIP-482 (v6); KIP-800 reason (v8).

    member_id: "" for a new member. rebalance_timeout_ms: before v1 the session timeout stands for it.
    """

    group_id: str = string()
    session_timeout_ms: int = int32()
    rebalance_timeout_ms: int = int32("1+", default=-1, ignorable=True)
    member_id: str = string()
    group_instance_id: str | None = string("5+", nullable="5+", default=None)
    protocol_type: str = string()
    protocols: list[JoinGroupRequestProtocol] = array(JoinGroupRequestProtocol)
    reason: str | None = string("8+", nullable="8+", default=None, ignorable=True)


class JoinGroupResponseMember(Struct):
    member_id: str = string()
    group_instance_id: str | None = string("5+", nullable="5+", default=None, ignorable=True)
    metadata: bytes | memoryview = bytes_()


@message(key=11, versions="0-9", flexible="6+")
class JoinGroupResponse(Message):
    """The new generation; `members` is filled for its leader alone. KIP-124 throttle (v2); KIP-345 (v5); KIP-482 (v6); KIP-559 protocol
    type (v7); KIP-814 a leader that must not assign (v9).
    """

    throttle_time_ms: int = int32("2+", ignorable=True)
    error_code: int = int16()
    generation_id: int = int32(default=-1)
    protocol_type: str | None = string("7+", nullable="7+", default=None, ignorable=True)
    protocol_name: str | None = string(nullable="7+")
    leader: str = string()
    skip_assignment: bool = boolean("9+")
    member_id: str = string()
    members: list[JoinGroupResponseMember] = array(JoinGroupResponseMember)


# -- SyncGroup ---------------------------------------------------------------------------------------------------------
class SyncGroupRequestAssignment(Struct):
    member_id: str = string()
    assignment: bytes | memoryview = bytes_()


@message(key=14, versions="0-5", flexible="4+")
class SyncGroupRequest(Message):
    """Hand in the leader's assignments, none from a follower, and ask for one's own. KIP-345 (v3); KIP-482 (v4); KIP-559 (v5)."""

    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string("3+", nullable="3+", default=None)
    protocol_type: str | None = string("5+", nullable="5+", default=None, ignorable=True)
    protocol_name: str | None = string("5+", nullable="5+", default=None, ignorable=True)
    assignments: list[SyncGroupRequestAssignment] = array(SyncGroupRequestAssignment)

    def newest_version(self) -> int:
        """From version 5 on brokers refuse a request without the protocol's type and name: INCONSISTENT_GROUP_PROTOCOL (KIP-559)."""
        return super().newest_version() if self.protocol_type is not None and self.protocol_name is not None else 4


@message(key=14, versions="0-5", flexible="4+")
class SyncGroupResponse(Message):
    """One's own assignment. KIP-124 throttle (v1); KIP-482 (v4); KIP-559 protocol (v5)."""

    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16()
    protocol_type: str | None = string("5+", nullable="5+", default=None, ignorable=True)
    protocol_name: str | None = string("5+", nullable="5+", default=None, ignorable=True)
    assignment: bytes | memoryview = bytes_()


# -- Heartbeat ---------------------------------------------------------------------------------------------------------
@message(key=12, versions="0-4", flexible="4+")
class HeartbeatRequest(Message):
    """Still here. KIP-345 (v3); KIP-482 (v4)."""

    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string("3+", nullable="3+", default=None)


@message(key=12, versions="0-4", flexible="4+")
class HeartbeatResponse(Message):
    """Whether the generation still stands: REBALANCE_IN_PROGRESS says that it ends. KIP-124 throttle (v1); KIP-482 (v4)."""

    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16()


# -- LeaveGroup --------------------------------------------------------------------------------------------------------
class MemberIdentity(Struct):
    member_id: str = string("3+")
    group_instance_id: str | None = string("3+", nullable="3+", default=None)
    reason: str | None = string("5+", nullable="5+", default=None, ignorable=True)


@message(key=13, versions="0-5", flexible="4+")
class LeaveGroupRequest(Message):
    """Leave at once instead of by a missed heartbeat. KIP-345 many members (v3); KIP-482 (v4); KIP-800 reason (v5).

    One member may be given as `member_id` or in `members`, whatever the version.
    """

    group_id: str = string()
    member_id: str = string("0-2")
    members: list[MemberIdentity] = array(MemberIdentity, "3+")

    def for_version(self, version: int) -> LeaveGroupRequest:
        """A single member goes where the version has its place (KIP-345). A static one needs version 3."""
        if version >= 3 and self.member_id and not self.members:
            return LeaveGroupRequest(group_id=self.group_id, members=[MemberIdentity(member_id=self.member_id)])
        if version < 3 and not self.member_id and len(self.members) == 1 and self.members[0].group_instance_id is None:
            return LeaveGroupRequest(group_id=self.group_id, member_id=self.members[0].member_id)
        return self


class MemberResponse(Struct):
    member_id: str = string("3+")
    group_instance_id: str | None = string("3+", nullable="3+")
    error_code: int = int16("3+")


@message(key=13, versions="0-5", flexible="4+")
class LeaveGroupResponse(Message):
    """How it went, from version 3 on also for each member. KIP-124 throttle (v1); KIP-345 (v3); KIP-482 (v4)."""

    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16()
    members: list[MemberResponse] = array(MemberResponse, "3+", asked=True)

    def for_version(self, version: int) -> LeaveGroupResponse:
        """Before version 3 the error of the only member is the whole's (KIP-345)."""
        if version >= 3 or len(self.members) != 1:
            return self
        return LeaveGroupResponse(throttle_time_ms=self.throttle_time_ms, error_code=self.error_code or self.members[0].error_code)


# -- DescribeGroups ----------------------------------------------------------------------------------------------------
@message(key=15, versions="0-6", flexible="5+")
class DescribeGroupsRequest(Message):
    """Who is in these groups? KIP-219 (v2); KIP-430 operations (v3); KIP-345 (v4); KIP-482 (v5); KIP-1043 (v6)."""

    groups: list[str] = array(string())
    include_authorized_operations: bool = boolean("3+")


class DescribedGroupMember(Struct):
    """member_metadata, member_assignment: filled while the group is stable; `wire.consumerprotocol` reads those of consumers."""

    member_id: str = string()
    group_instance_id: str | None = string("4+", nullable="4+", default=None, ignorable=True)
    client_id: str = string()
    client_host: str = string()
    member_metadata: bytes | memoryview = bytes_()
    member_assignment: bytes | memoryview = bytes_()


class DescribedGroup(Struct):
    """group_state: "Stable", "PreparingRebalance", "CompletingRebalance", "Empty" or "Dead": also for a group that never was, before v6."""

    error_code: int = int16()
    error_message: str | None = string("6+", nullable="6+", default=None, ignorable=True)
    group_id: str = string()
    group_state: str = string()
    protocol_type: str = string()
    protocol_data: str = string()
    members: list[DescribedGroupMember] = array(DescribedGroupMember)
    authorized_operations: int = int32("3+", default=-(2**31))


@message(key=15, versions="0-6", flexible="5+")
class DescribeGroupsResponse(Message):
    """The groups, those of KIP-848 are said not to be there. KIP-124 throttle (v1); KIP-430 (v3); KIP-345 (v4); KIP-482 (v5); KIP-1043
    GROUP_ID_NOT_FOUND with a text, instead of a dead group (v6).
    """

    throttle_time_ms: int = int32("1+", ignorable=True)
    groups: list[DescribedGroup] = array(DescribedGroup, asked=True)


# -- ListGroups --------------------------------------------------------------------------------------------------------
@message(key=16, versions="0-5", flexible="3+")
class ListGroupsRequest(Message):
    """The groups that one broker coordinates. KIP-219 (v2); KIP-482 (v3); KIP-518 by state (v4); KIP-848 by type (v5)."""

    states_filter: list[str] = array(string(), "4+")
    types_filter: list[str] = array(string(), "5+")


class ListedGroup(Struct):
    group_id: str = string()
    protocol_type: str = string()
    group_state: str = string("4+", ignorable=True)
    group_type: str = string("5+", ignorable=True)


@message(key=16, versions="0-5", flexible="3+")
class ListGroupsResponse(Message):
    """KIP-124 throttle (v1); KIP-482 (v3); KIP-518 state (v4); KIP-848 type, "classic" or "consumer" (v5)."""

    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16()
    groups: list[ListedGroup] = array(ListedGroup)


def has_rebalance_timeout(version: int) -> bool:
    """Whether a JoinGroup version tells how long to wait for the members to join again. KIP-62: from v1; before, the session timeout counts."""
    return version >= 1
