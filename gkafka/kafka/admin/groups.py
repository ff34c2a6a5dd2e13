"""KafkaAdminClient's calls about groups and what they have committed."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from gkafka.admin import GroupDescription, GroupOffset
from gkafka.checks import check_name
from gkafka.common import TopicPartition
from gkafka.exceptions import GroupIdNotFound, KafkaException, NonEmptyGroup, UnknownMemberId
from gkafka.kafka.admin.calls import Calls, class_of, member, name_of, outcomes_of, text_of, with_operations
from gkafka.kafka.admin.members import information, shown
from gkafka.kafka.admin.partitions import OffsetSpec, OffsetTimestamp
from gkafka.kafka.arguments import check_partitions, listed
from gkafka.kafka.errors import IllegalArgumentError, NoError, WrongTypeError
from gkafka.kafka.structs import GroupInformation, OffsetAndMetadata

__all__ = ["GroupCalls", "GroupState", "GroupType", "MemberToRemove"]


class GroupState(str, enum.Enum):
    """States of groups."""

    UNKNOWN = "Unknown"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"
    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"


class GroupType(str, enum.Enum):
    """Protocols of groups."""

    UNKNOWN = "Unknown"
    CLASSIC = "classic"
    CONSUMER = "consumer"
    SHARE = "share"


class MemberToRemove:
    """A member by the id that its group gave it, or by its instance id if it is a static one. reason: for the coordinator's log (3.2 and newer)."""

    __slots__ = ("group_instance_id", "member_id", "reason")

    def __init__(self, member_id: str | None = None, group_instance_id: str | None = None, reason: str | None = None) -> None:
        self.member_id, self.group_instance_id, self.reason = member_id, group_instance_id, reason

    def _key(self) -> tuple[Any, ...]:
        return self.member_id, self.group_instance_id, self.reason

    def __eq__(self, other: object) -> bool:
        return self._key() == other._key() if isinstance(other, MemberToRemove) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        return f"<MemberToRemove member_id={self.member_id}, group_instance_id={self.group_instance_id}, reason={self.reason}>"


class GroupCalls(Calls):
    """The calls about groups. group_coordinator_id: raise NotCoordinatorError if another broker has a group; the client finds out by itself."""

    # -- as newer versions name them ---------------------------------------------------------------------------------------------
    def list_groups(
        self, broker_ids: Iterable[int] | None = None, states_filter: Iterable[Any] | None = None, types_filter: Iterable[Any] | None = None
    ) -> list[dict[str, str]]:
        """All groups. broker_ids: that these brokers coordinate. states_filter: GroupStates or their names (2.6); types_filter: GroupTypes (3.8)."""
        listed = self._admin.list_groups(
            states=[member("states_filter", one, GroupState).value for one in states_filter or ()],
            types=[member("types_filter", one, GroupType).value for one in types_filter or ()],
            timeout=self._within(),
        )
        wanted = None if broker_ids is None else set(broker_ids)
        return [
            {"group_id": g.group, "protocol_type": g.protocol_type, "group_state": g.state, "group_type": g.type}
            for g in listed.values()
            if wanted is None or g.broker in wanted
        ]

    def describe_groups(
        self, group_ids: Iterable[str], group_coordinator_id: int | None = None, include_authorized_operations: bool = False
    ) -> dict[str, dict[str, Any]]:
        """Members and what they have, by group. An error of a group is its "error". What the asker may do is told in any case, as newer versions do."""
        return {name: _shown(name, outcome) for name, outcome in self._described(group_ids, group_coordinator_id).items()}

    def list_group_offsets(self, group_specs: Any) -> dict[str, dict[TopicPartition, OffsetAndMetadata]]:
        """What groups have committed. group_specs: {group: partitions, None for all}, or names of groups. Raises GroupAuthorizationFailedError, ..."""
        specs = {group_specs: None} if isinstance(group_specs, str) else group_specs
        if not isinstance(specs, Mapping):
            specs = dict.fromkeys(map(partial(check_name, "group_specs"), listed("group_specs", specs)))
        wanted = {check_name("group_specs", group): None if of is None else check_partitions(of) for group, of in specs.items()}
        return {group: self._committed(group, partitions) for group, partitions in wanted.items()}

    def delete_groups(self, group_ids: Iterable[str], group_coordinator_id: int | None = None) -> dict[str, str]:
        """Delete groups with their offsets. Returns "OK" or the name of the error for each."""
        deleted = self.delete_consumer_groups(group_ids, group_coordinator_id)
        return {group: "OK" if error is NoError else name_of(error) for group, error in deleted}

    def alter_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata], group_coordinator_id: int | None = None
    ) -> dict[TopicPartition, type[KafkaException]]:
        """Commit offsets in the name of a group without members. Returns NoError or the class of an error for each."""
        self._check_coordinator([group_id], group_coordinator_id)
        wanted = {tp: _group_offset(given) for tp, given in offsets.items()}
        return self._altered(group_id, wanted) if wanted else {}

    def reset_group_offsets(
        self, group_id: str, offset_specs: Mapping[TopicPartition, int], group_coordinator_id: int | None = None
    ) -> dict[TopicPartition, dict[str, Any]]:
        """Have a group without members go on elsewhere: an OffsetSpec, an OffsetTimestamp, or an offset as a plain number.

        What lies outside of the log is moved to its end. Returns {"error": NoError or the class of an error, "offset": where} for each.
        """
        self._check_coordinator([group_id], group_coordinator_id)
        aims = {tp: _aim(tp, given) for tp, given in offset_specs.items()}
        if not aims:
            return {}
        within = self._within()
        ends = [self._found(dict.fromkeys(aims, int(end)), within) for end in (OffsetSpec.EARLIEST, OffsetSpec.LATEST)]
        looked_up = {tp: int(aim) for tp, aim in aims.items() if isinstance(aim, (OffsetSpec, OffsetTimestamp))}
        found = {**aims, **self._found(looked_up, within)}
        goals = {tp: _within_log(found[tp], ends[0][tp], ends[1][tp]) for tp in aims}
        before = self._committed(group_id, list(aims))
        wanted = {tp: GroupOffset(goal, before[tp].metadata or "", before[tp].leader_epoch) for tp, goal in goals.items()}
        return {tp: {"error": error, "offset": goals[tp]} for tp, error in self._altered(group_id, wanted).items()}

    def delete_group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition], group_coordinator_id: int | None = None
    ) -> dict[TopicPartition, type[KafkaException]]:
        """Forget what a group has committed. Returns NoError or the class of an error for each. Raises GroupIdNotFoundError."""
        wanted = list(partitions)
        self._check_coordinator([group_id], group_coordinator_id)
        if not wanted:
            return {}
        told = outcomes_of(self._admin.delete_group_offsets, group_id, wanted, timeout=self._within())
        return {tp: class_of(told.errors.get(tp)) for tp in wanted}

    def remove_group_members(
        self, group_id: str, members: Iterable[MemberToRemove], group_coordinator_id: int | None = None
    ) -> dict[str, type[KafkaException]]:
        """Have members leave. Returns NoError or the class of an error, by the id that each was named by."""
        wanted = list(members)
        for one in wanted:
            if not isinstance(one, MemberToRemove):
                raise IllegalArgumentError(f"members: {one!r} must be a MemberToRemove")
        self._check_coordinator([group_id], group_coordinator_id)
        removed: dict[str, type[KafkaException]] = {}
        for reason in dict.fromkeys(one.reason for one in wanted):
            mine = [one for one in wanted if one.reason == reason]
            removed |= self._removed(group_id, mine, reason)
        return removed

    def _removed(self, group_id: str, members: list[MemberToRemove], reason: str | None) -> dict[str, type[KafkaException]]:
        ids = [_named(one) for one in members]
        told = outcomes_of(
            self._admin.remove_members,
            group_id,
            [id_ for one, id_ in zip(members, ids, strict=True) if one.group_instance_id is None],
            instance_ids=[one.group_instance_id for one in members if one.group_instance_id is not None],
            reason=reason,
            timeout=self._within(),
        )
        return {id_: class_of(told.errors.get(id_)) for id_ in ids}

    # -- as 2.x names them -------------------------------------------------------------------------------------------------------
    def list_consumer_groups(self, broker_ids: Iterable[int] | None = None) -> list[tuple[str, str]]:
        """All groups, as (group, protocol type)."""
        return [(group["group_id"], group["protocol_type"]) for group in self.list_groups(broker_ids)]

    def describe_consumer_groups(
        self, group_ids: Iterable[str], group_coordinator_id: int | None = None, include_authorized_operations: bool = False
    ) -> list[GroupInformation]:
        """Members and what they have, by 2.x's attributes (member_metadata.subscription, member_assignment.assignment and partitions()) and 3.0's
        keys (["topics"], ["assigned_partitions"]). Raises the error of a group, as GroupAuthorizationFailedError; one that is not there is "Dead".
        """
        found = []
        for name, outcome in self._described(group_ids, group_coordinator_id).items():
            group = _group(name, outcome)
            operations = sorted(group.operations or ()) if include_authorized_operations else None
            found.append(
                GroupInformation(
                    0, name, group.state, group.protocol_type, group.assignor, list(map(information, group.members)), operations
                )
            )
        return found

    def delete_consumer_groups(
        self, group_ids: Iterable[str], group_coordinator_id: int | None = None
    ) -> list[tuple[str, type[KafkaException]]]:
        """Delete groups with their offsets. Returns (group, NoError or the class of an error) for each."""
        names = listed("group_ids", group_ids)
        self._check_coordinator(names, group_coordinator_id)
        told = outcomes_of(self._admin.delete_groups, names, timeout=self._within())
        return [(name, class_of(told.errors.get(name))) for name in names]

    def list_consumer_group_offsets(
        self, group_id: str, group_coordinator_id: int | None = None, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """What a group has committed. partitions: of these, offset -1 where there is nothing; None: all that there is."""
        self._check_coordinator([group_id], group_coordinator_id)
        return self._committed(group_id, partitions)

    # -- what both are made of ---------------------------------------------------------------------------------------------------
    def _described(self, group_ids: Iterable[str], coordinator: int | None) -> dict[str, Any]:
        names = listed("group_ids", group_ids)
        self._check_coordinator(names, coordinator)
        told = with_operations(self._admin.describe_groups, names, timeout=self._within())
        return {name: told.of(name) for name in names}

    def _committed(self, group: str, partitions: Iterable[Any] | None) -> dict[TopicPartition, OffsetAndMetadata]:
        told = outcomes_of(self._admin.list_group_offsets, group, partitions, timeout=self._within())
        told.raise_first()
        return {tp: OffsetAndMetadata(o.offset, o.metadata, o.leader_epoch) for tp, o in told.results.items()}

    def _altered(self, group: str, wanted: Mapping[TopicPartition, GroupOffset]) -> dict[TopicPartition, type[KafkaException]]:
        try:
            told = outcomes_of(self._admin.alter_group_offsets, group, wanted, timeout=self._within())
        except NonEmptyGroup:
            return dict.fromkeys(wanted, UnknownMemberId)  # as brokers answer who is no member
        return {tp: class_of(told.errors.get(tp)) for tp in wanted}

    def _found(self, asked: Mapping[TopicPartition, int], within: float) -> dict[TopicPartition, int]:
        if not asked:
            return {}
        told = outcomes_of(self._admin.list_offsets, asked, timeout=within)
        told.raise_first()
        return dict(told.results)


def _aim(tp: TopicPartition, given: Any) -> int:
    if isinstance(given, bool) or not isinstance(given, int):
        raise WrongTypeError(f"offset_specs[{tp!r}]={given!r}: must be an OffsetSpec, an OffsetTimestamp or an offset")
    return given


def _within_log(offset: int, earliest: int, latest: int) -> int:
    return latest if offset < 0 or offset > latest else max(offset, earliest)


def _group_offset(given: Any) -> GroupOffset:
    if not isinstance(given, OffsetAndMetadata):
        raise WrongTypeError(f"offsets: {given!r} must be an OffsetAndMetadata")
    return GroupOffset(given.offset, given.metadata or "", -1 if given.leader_epoch is None else given.leader_epoch)


def _named(one: MemberToRemove) -> str:
    name = one.group_instance_id or one.member_id
    if not name:
        raise IllegalArgumentError(f"members: {one!r} must have a member_id or a group_instance_id")
    return name


def _group(name: str, outcome: Any) -> GroupDescription:
    if isinstance(outcome, GroupDescription):
        return outcome
    if not isinstance(outcome, GroupIdNotFound):
        raise outcome
    return GroupDescription(name, "classic", "Dead", "", "", -1, (), "", None)


def _shown(name: str, outcome: Any) -> dict[str, Any]:
    empty = GroupDescription(name, "classic", "Dead" if isinstance(outcome, KafkaException) else "", "", "", -1, (), "", None)
    group = outcome if isinstance(outcome, GroupDescription) else empty
    return {
        "group_id": name,
        "group_state": group.state,
        "protocol_type": group.protocol_type,
        "protocol_data": group.assignor,
        "members": [shown(m) for m in group.members],
        "authorized_operations": None if group.operations is None else [op.name for op in sorted(group.operations)],
        "error": text_of(outcome),
    }
