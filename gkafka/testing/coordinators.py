"""The brokers' answers to the requests of classic groups: which group, is it here, and the clock that moves it."""

from __future__ import annotations

import time
from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from gkafka.exceptions import ConfigurationError, ProtocolError
from gkafka.testing.groups import EMPTY, STABLE, ClassicGroup, Seat
from gkafka.testing.state import NO_LEADER
from gkafka.wire import groups
from gkafka.wire.apis import Message
from gkafka.wire.consumerprotocol import flattened, read_assignment

if TYPE_CHECKING:
    from gkafka.testing.answers import Answers
    from gkafka.testing.server import Call

__all__ = ["GroupMember", "GroupSeen", "Groups"]

NOT_COORDINATOR, ILLEGAL_GENERATION, INCONSISTENT_PROTOCOL, INVALID_GROUP_ID, UNKNOWN_MEMBER, GROUP_ID_NOT_FOUND = 16, 22, 23, 24, 25, 69
NOT_FOUND_FROM = 6  # KIP-1043: DescribeGroups tells of a group that is not there, instead of a dead one
DEAD = "Dead"
CLASSIC = "classic"
Then = Callable[[Message | None], object]


class GroupMember(NamedTuple):
    """A member as its coordinator sees it. instance: of a static one. partitions: (topic, partition) of its assignment, if it is a consumer's;
    metadata, assignment: the bytes. joining, syncing: a request of it is parked.
    """

    instance: str | None
    client_id: str
    partitions: list[tuple[str, int]]
    metadata: bytes
    assignment: bytes
    joining: bool
    syncing: bool


class GroupSeen(NamedTuple):
    """state: "Empty", "PreparingRebalance", "CompletingRebalance" or "Stable"; members: by member id.

    Of a KIP-848 group, state: "Empty", "Reconciling" or "Stable"; generation: the group's epoch; protocol: the assignor. It has no leader.
    """

    state: str
    generation: int
    protocol_type: str
    protocol: str
    leader: str
    members: dict[str, GroupMember]

    @property
    def owners(self) -> dict[tuple[str, int], str]:
        """(topic, partition) -> the member that it was assigned to."""
        return {key: member_id for member_id, member in self.members.items() for key in member.partitions}


class Groups:
    """The part of the brokers' answers that is about classic groups."""

    def __init__(self, answers: Answers) -> None:
        self._answers = answers
        self._groups: dict[str, ClassicGroup] = {}
        self._at: dict[str, int] = {}  # where a group was when it was last looked at
        self._wakes: dict[str, float] = {}  # when its next timer rings

    def act(self, call: Call, then: Then) -> None:
        """then(answer): a later one for what is parked."""
        self._BY_NAME[call.request.api.name](self, call, then)

    def find(self, name: str) -> ClassicGroup | None:
        """A group at this time and at its coordinator; None if there never was one."""
        group = self._groups.get(name)
        if group is not None:
            self._catch_up(name, group)
        return group

    def _found_or_new(self, name: str) -> ClassicGroup:
        if name not in self._groups:
            self._groups[name] = ClassicGroup(time.monotonic())
            self._at[name] = self._answers.state.coordinator(name)
        return self.find(name) or self._groups[name]

    # -- time and moves
    def _catch_up(self, name: str, group: ClassicGroup) -> None:
        group.now = time.monotonic()
        at = self._answers.state.coordinator(name)
        if at != self._at[name]:
            self._at[name] = at
            group.move()
        elif at != NO_LEADER:
            group.pass_time(group.now)

    def look(self, name: str) -> None:
        """After whatever may have changed a group: have it looked at again when its next deadline is there."""
        group = self._groups[name]
        due = group.wake_at if self._at[name] != NO_LEADER else inf
        if due < self._wakes.get(name, inf):
            self._wakes[name] = due
            self._answers.after(max(0.0, due - time.monotonic()), lambda: self._ring(name, due))

    def _ring(self, name: str, due: float) -> None:
        if self._wakes.get(name) == due:
            del self._wakes[name]
            self._catch_up(name, self._groups[name])
            self.look(name)

    def has_members(self, name: str) -> bool:
        group = self.find(name)
        return group is not None and group.state != EMPTY

    def coordinators_changed(self) -> None:
        """Brokers stopped or started, or a coordinator was moved."""
        for name, group in self._groups.items():
            self._catch_up(name, group)
            self.look(name)

    # -- requests
    def _refusal(self, call: Call) -> int:
        request: Any = call.request.message
        if not request.group_id:
            return INVALID_GROUP_ID
        return NOT_COORDINATOR if self._answers.state.coordinator(request.group_id) != call.broker_id else 0

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
        self.look(request.group_id)

    def _sync(self, call: Call, then: Then) -> None:
        request: Any = call.request.message
        code = self._refusal(call)
        group = None if code else self.find(request.group_id)
        if group is None:
            then(groups.SyncGroupResponse(error_code=code or UNKNOWN_MEMBER))
            return
        group.sync(request, call.request.version, self._later(then))
        self.look(request.group_id)

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
        self.look(request.group_id)
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
        if self._answers.state.coordinator(name) != call.broker_id:
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
        listed = [
            groups.ListedGroup(group_id=name, protocol_type=group.protocol_type, group_state=group.state, group_type=CLASSIC)
            for name, group in sorted(self._groups.items())
            if self._answers.state.coordinator(name) == call.broker_id
        ]
        listed += self._answers.consumer_groups.listed(call.broker_id)
        types = {kind.lower() for kind in request.types_filter}
        fit = [g for g in listed if (not states or g.group_state.lower() in states) and (not types or g.group_type in types)]
        then(groups.ListGroupsResponse(groups=fit))

    # -- what a test looks at and does
    def seen(self, name: str) -> GroupSeen | None:
        group = self.find(name)
        if group is None:
            return None
        members = {member_id: _seen(group, member_id, seat) for member_id, seat in group.members.items()}
        return GroupSeen(group.state, group.generation, group.protocol_type, group.protocol, group.leader, members)

    def rebalance(self, name: str) -> None:
        self._with_members(name).rebalance()
        self.look(name)

    def remove(self, name: str, member: str) -> None:
        group = self._with_members(name)
        gone = [member_id for member_id, seat in group.members.items() if member in (member_id, seat.instance)]
        if not gone:
            raise ConfigurationError(f"group {name!r} has no member {member!r}; these are: {', '.join(group.members)}")
        group.expel(gone)
        self.look(name)

    def _with_members(self, name: str) -> ClassicGroup:
        group = self.find(name)
        if group is None or group.state == EMPTY:
            raise ConfigurationError(f"group {name!r} has no members in the mock cluster")
        return group

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
