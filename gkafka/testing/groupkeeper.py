"""What keeping groups takes, of whichever protocol: where each group is, the clock that moves it, and what a test sees of it and does to it."""

from __future__ import annotations

import abc
import time
from collections.abc import Iterable, Mapping
from math import inf
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, Protocol, TypeVar

from gkafka.exceptions import ConfigurationError
from gkafka.testing.groups import EMPTY
from gkafka.testing.state import NO_LEADER
from gkafka.wire.groups import ListedGroup

if TYPE_CHECKING:
    from gkafka.testing.answers import Answers
    from gkafka.testing.server import Call

__all__ = ["GROUP_ID_NOT_FOUND", "NOT_COORDINATOR", "GroupKeeper", "GroupMember", "GroupSeen"]

NOT_COORDINATOR, GROUP_ID_NOT_FOUND = 16, 69


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


class Group(Protocol):
    """`gkafka.testing.groups.ClassicGroup` and `gkafka.testing.consumergroups.ConsumerGroup`, which say what each of these does."""

    now: float

    @property
    def state(self) -> str: ...
    @property
    def protocol_type(self) -> str: ...
    @property
    def members(self) -> Mapping[str, Any]: ...
    @property
    def wake_at(self) -> float: ...
    def pass_time(self, now: float) -> None: ...
    def move(self) -> None: ...
    def rebalance(self) -> None: ...
    def expel(self, names: Iterable[str]) -> None: ...


G = TypeVar("G", bound=Group)


class GroupKeeper(abc.ABC, Generic[G]):
    """The part of the brokers' answers that is about the groups of one protocol. TYPE: what ListGroups calls them."""

    TYPE: ClassVar[str]

    def __init__(self, answers: Answers) -> None:
        self._answers = answers
        self._groups: dict[str, G] = {}
        self._at: dict[str, int] = {}  # where a group was when it was last looked at
        self._wakes: dict[str, float] = {}  # when its next timer rings

    def __contains__(self, name: str) -> bool:
        return name in self._groups

    def find(self, name: str) -> G | None:
        """A group at this time and at its coordinator; None if there never was one."""
        group = self._groups.get(name)
        if group is not None:
            self._catch_up(name, group)
        return group

    def has_members(self, name: str) -> bool:
        group = self.find(name)
        return group is not None and group.state != EMPTY

    def _found_or_new(self, name: str) -> G:
        if name not in self._groups:
            self._groups[name] = self._new_group(time.monotonic())
            self._at[name] = self._answers.state.coordinator(name)
        return self.find(name) or self._groups[name]

    @abc.abstractmethod
    def _new_group(self, now: float) -> G: ...

    def _is_here(self, call: Call, name: str) -> bool:
        """Is the broker that was asked its coordinator?"""
        return self._answers.state.coordinator(name) == call.broker_id

    # -- time and moves
    def _catch_up(self, name: str, group: G) -> None:
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

    def listed(self, broker: int) -> list[ListedGroup]:
        """For ListGroups."""
        return [
            ListedGroup(group_id=name, protocol_type=group.protocol_type, group_state=group.state, group_type=self.TYPE)
            for name, group in sorted(self._groups.items())
            if self._answers.state.coordinator(name) == broker
        ]

    # -- what a test looks at and does
    def seen(self, name: str) -> GroupSeen | None:
        group = self.find(name)
        return None if group is None else self._seen(group)

    @abc.abstractmethod
    def _seen(self, group: G) -> GroupSeen: ...

    def rebalance(self, name: str) -> None:
        self._with_members(name).rebalance()
        self._look(name)

    def remove(self, name: str, member: str) -> None:
        group = self._with_members(name)
        gone = [member_id for member_id, seat in group.members.items() if member in (member_id, seat.instance)]
        if not gone:
            raise ConfigurationError(f"group {name!r} has no member {member!r}; these are: {', '.join(group.members)}")
        group.expel(gone)
        self._look(name)

    def _with_members(self, name: str) -> G:
        group = self.find(name)
        if group is None or group.state == EMPTY:
            raise ConfigurationError(f"group {name!r} has no members in the mock cluster")
        return group
