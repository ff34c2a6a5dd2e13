"""The brokers' answers to the requests of classic groups: which group, is it here, and the clock that moves it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

from gkafka.exceptions import ProtocolError
from gkafka.testing.groupkeeper import GROUP_ID_NOT_FOUND, NOT_COORDINATOR, GroupKeeper, GroupMember, GroupSeen
from gkafka.testing.groups import STABLE, ClassicGroup, Seat
from gkafka.wire import groups
from gkafka.wire.apis import Message
from gkafka.wire.consumerprotocol import flattened, read_assignment

if TYPE_CHECKING:
    from gkafka.testing.server import Call

__all__ = ["Groups"]

ILLEGAL_GENERATION, INCONSISTENT_PROTOCOL, INVALID_GROUP_ID, UNKNOWN_MEMBER = 22, 23, 24, 25
NOT_FOUND_FROM = 6  # KIP-1043: DescribeGroups tells of a group that is not there, instead of a dead one
DEAD = "Dead"
Then = Callable[[Message | None], object]


class Groups(GroupKeeper[ClassicGroup]):
    """The part of the brokers' answers that is about classic groups."""

    TYPE = "classic"

    def act(self, call: Call, then: Then) -> None:
        """then(answer): a later one for what is parked."""
        self._BY_NAME[call.request.api.name](self, call, then)

    def _new_group(self, now: float) -> ClassicGroup:
        return ClassicGroup(now)

    # -- requests
    def _refusal(self, call: Call) -> int:
        request: Any = call.request.message
        if not request.group_id:
            return INVALID_GROUP_ID
        return 0 if self._is_here(call, request.group_id) else NOT_COORDINATOR

    def _join(self, call: Call, then: Then) -> None:
        request: Any = call.request.message
        code = self._refusal(call)
        if not code and self._answers.consumer_groups.has_members(request.group_id):
            code = INCONSISTENT_PROTOCOL
        if not code and request.member_id and self.find(request.group_id) is None:
            code = UNKNOWN_MEMBER
        if code:
            then(groups.JoinGroupResponse(error_code=code, member_id=request.member_id))
            return
        group = self._found_or_new(request.group_id)
        group.join(request, call.request.version, self._later(then), call.request.client_id or "")
        self._look(request.group_id)

    def _sync(self, call: Call, then: Then) -> None:
        request: Any = call.request.message
        code = self._refusal(call)
        group = None if code else self.find(request.group_id)
        if group is None:
            then(groups.SyncGroupResponse(error_code=code or UNKNOWN_MEMBER))
            return
        group.sync(request, call.request.version, self._later(then))
        self._look(request.group_id)

    def _later(self, then: Then) -> Then:
        """Answers go out when the group is done with what it does: an answer lets the connection's next request in."""
        return lambda answer: self._answers.after(0.0, lambda: then(answer))

    def _beat(self, call: Call, then: Then) -> None:
        request: Any = call.request.message
        code = self._refusal(call)
        group = None if code else self.find(request.group_id)
        then(groups.HeartbeatResponse(error_code=code or UNKNOWN_MEMBER) if group is None else group.heartbeat(request))

    def _leave(self, call: Call, then: Then) -> None:
        request: Any = call.request.message
        code = self._refusal(call)
        group = None if code else self.find(request.group_id)
        if group is None:
            then(groups.LeaveGroupResponse(error_code=code or UNKNOWN_MEMBER))
            return
        answer = group.leave(request)
        self._look(request.group_id)
        then(answer)

    def commit_error(
        self,
        name: str,
        member_id: str,
        instance: str | None,
        generation: int,
        *,
        missing: int = ILLEGAL_GENERATION,
        transactional: bool = False,
    ) -> int:
        """Why a group takes no positions of this sender, 0 if it does. missing: said to a member of a group that never was."""
        if name in self._answers.consumer_groups and not self.has_members(name):
            return self._answers.consumer_groups.commit_error(name, member_id, generation, transactional=transactional)
        group = self.find(name)
        if group is None and generation >= 0:
            return missing
        group = group or self._found_or_new(name)
        return group.check_commit(member_id, instance, generation, transactional=transactional)

    # -- looking at groups
    def _describe(self, call: Call, then: Then) -> None:
        request: Any = call.request.message
        then(groups.DescribeGroupsResponse(groups=[self._described(call, name) for name in request.groups]))

    def _described(self, call: Call, name: str) -> groups.DescribedGroup:
        if not self._is_here(call, name):
            return groups.DescribedGroup(group_id=name, error_code=NOT_COORDINATOR)
        group = self.find(name)
        if group is None:
            told = call.request.version >= NOT_FOUND_FROM
            return groups.DescribedGroup(
                group_id=name,
                group_state=DEAD,
                error_code=GROUP_ID_NOT_FOUND if told else 0,
                error_message=f"Group {name} not found." if told else None,
            )
        stable = group.state == STABLE
        members = [
            groups.DescribedGroupMember(
                member_id=member_id,
                group_instance_id=seat.instance,
                client_id=seat.client_id,
                client_host="/127.0.0.1",
                member_metadata=dict(seat.protocols)[group.protocol] if stable else b"",
                member_assignment=seat.assignment if stable else b"",
            )
            for member_id, seat in group.members.items()
        ]
        return groups.DescribedGroup(
            group_id=name,
            group_state=group.state,
            protocol_type=group.protocol_type,
            protocol_data=group.protocol if stable else "",
            members=members,
        )

    def _list(self, call: Call, then: Then) -> None:
        request: Any = call.request.message
        states = {state.lower() for state in request.states_filter}
        listed = self.listed(call.broker_id) + self._answers.consumer_groups.listed(call.broker_id)
        types = {kind.lower() for kind in request.types_filter}
        fit = [g for g in listed if (not states or g.group_state.lower() in states) and (not types or g.group_type in types)]
        then(groups.ListGroupsResponse(groups=fit))

    # -- what a test looks at and does
    def _seen(self, group: ClassicGroup) -> GroupSeen:
        members = {member_id: _seen(group, member_id, seat) for member_id, seat in group.members.items()}
        return GroupSeen(group.state, group.generation, group.protocol_type, group.protocol, group.leader, members)

    _BY_NAME: ClassVar[dict[str, Callable[[Groups, Call, Then], None]]] = {
        "DescribeGroups": _describe,
        "Heartbeat": _beat,
        "JoinGroup": _join,
        "LeaveGroup": _leave,
        "ListGroups": _list,
        "SyncGroup": _sync,
    }


def _seen(group: ClassicGroup, member_id: str, seat: Seat) -> GroupMember:
    return GroupMember(
        seat.instance,
        seat.client_id,
        _partitions(group, member_id, seat),
        dict(seat.protocols).get(group.protocol, b""),
        seat.assignment,
        seat.joining is not None,
        seat.syncing is not None,
    )


def _partitions(group: ClassicGroup, member_id: str, seat: Seat) -> list[tuple[str, int]]:
    if group.protocol_type != "consumer":
        return []
    try:
        found = flattened(read_assignment(seat.assignment, member_id).assigned_partitions)
    except ProtocolError:
        return []
    return sorted((tp.topic, tp.partition) for tp in found)


GROUP_APIS = frozenset(Groups._BY_NAME)
"""Names of the APIs that are answered here."""
