"""Groups: listed, described, deleted; those of the classic protocol and those of KIP-848 alike."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from gkafka.admin.arguments import check_names, items_of
from gkafka.admin.enums import AclOperation, operations_of
from gkafka.admin.requests import GROUP, RESOURCES, Subject, made_of
from gkafka.brokererrors import GroupIdNotFound
from gkafka.checks import check_name, check_text
from gkafka.common import TopicPartition
from gkafka.exceptions import ConfigurationError, KafkaException, ProtocolError, UnsupportedVersion, error_for
from gkafka.wire.consumergroups import ConsumerGroupDescribeRequest
from gkafka.wire.consumerprotocol import CONSUMER, flattened, read_assignment
from gkafka.wire.groupadmin import DeleteGroupsRequest
from gkafka.wire.groups import DescribeGroupsRequest, LeaveGroupRequest, ListGroupsRequest, MemberIdentity

__all__ = ["GroupDescription", "GroupListing", "GroupMember", "GroupsAdmin"]


class GroupListing(NamedTuple):
    """protocol_type: "consumer" for groups of consumers. state, type: "" where brokers do not tell (before 2.6 and 3.8). broker: who coordinates it."""

    group: str
    protocol_type: str
    state: str
    type: str
    broker: int


class GroupMember(NamedTuple):
    """partitions: what it has, None where that cannot be read. target: what it shall have (KIP-848); None for members of classic groups.

    metadata, assignment: of members of classic groups, as their protocol has them; empty for the others.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    partitions: frozenset[TopicPartition] | None
    target: frozenset[TopicPartition] | None
    epoch: int
    rack: str | None
    metadata: bytes = b""
    assignment: bytes = b""


class GroupDescription(NamedTuple):
    """type: "classic" or "consumer" (KIP-848). assignor: "" while there is none. epoch: of a KIP-848 group, else -1. coordinator: host:port.

    operations: what the asker may do, None where that was not asked for or is not told.
    """

    group: str
    type: str
    state: str
    protocol_type: str
    assignor: str
    epoch: int
    members: tuple[GroupMember, ...]
    coordinator: str
    operations: frozenset[AclOperation] | None


class GroupsAdmin(Subject):
    """The calls about groups."""

    def list_groups(
        self, *, states: Iterable[str] = (), types: Iterable[str] = (), timeout: float | None = None
    ) -> dict[str, GroupListing]:
        """All groups that the asker may describe. states ("Stable", "Empty"), types ("classic", "consumer"): only these.

        Asks every broker; `errors` of an AdminError has the ids of those that did not tell, `results` the groups of the others. Brokers before
        2.6 (3.8) cannot sort by state (type): UnsupportedVersion.
        """
        wanted = ListGroupsRequest(
            states_filter=[check_text("states", one) for one in items_of("states", states)],
            types_filter=[check_text("types", one) for one in items_of("types", types)],
        )
        deadline = self._requests.begin(timeout)

        def read(response: Any, id_: int, broker: str) -> list[GroupListing]:
            error = error_for(response.error_code, broker=broker, api="ListGroups")
            if error is not None:
                raise error
            return [GroupListing(g.group_id, g.protocol_type, g.group_state, g.group_type, id_) for g in response.groups]

        def by_name(told: dict[int, list[GroupListing]]) -> dict[str, GroupListing]:
            return {group.group: group for group in sorted(group for listed in told.values() for group in listed)}

        return made_of(lambda: self._requests.of_each_broker("listing groups", wanted, read, deadline), by_name)

    def describe_groups(
        self, groups: Iterable[str], *, operations: bool = False, timeout: float | None = None
    ) -> dict[str, GroupDescription]:
        """Members and what they have. Item errors: GroupIdNotFound, GroupAuthorizationFailed, ..."""
        names = check_names("groups", groups)
        deadline = self._requests.begin(timeout)

        def attempt(left: list[str]) -> dict[str, GroupDescription | KafkaException]:
            places = self._requests.coordinators(left, GROUP, deadline)
            found = self._requests.by_broker(
                left,
                places,
                lambda mine: ConsumerGroupDescribeRequest(group_ids=mine, include_authorized_operations=operations),
                read_848,
                self._requests.halfway(deadline),  # a coordinator that is silent leaves time to ask the others for classic groups
                most=RESOURCES,
            )
            others = [name for name, outcome in found.items() if isinstance(outcome, (GroupIdNotFound, UnsupportedVersion))]
            classic = self._requests.by_broker(
                others,
                places,
                lambda mine: DescribeGroupsRequest(groups=mine, include_authorized_operations=operations),
                read_classic,
                deadline,
                most=RESOURCES,
            )
            return found | classic

        def read_848(response: Any, mine: list[str], broker: str) -> dict[str, GroupDescription | KafkaException]:
            return {
                g.group_id: _error(g, broker, "ConsumerGroupDescribe") or _consumer_group(g, broker, operations) for g in response.groups
            }

        def read_classic(response: Any, mine: list[str], broker: str) -> dict[str, GroupDescription | KafkaException]:
            return {g.group_id: _error(g, broker, "DescribeGroups") or _classic_group(g, broker, operations) for g in response.groups}

        return self._requests.settle("describing groups", names, attempt, deadline)

    def delete_groups(self, groups: Iterable[str], *, timeout: float | None = None) -> None:
        """Delete groups with their offsets. Item errors: NonEmptyGroup while there are members, GroupIdNotFound, ..."""
        names = check_names("groups", groups)
        deadline = self._requests.begin(timeout)

        def read(response: Any, mine: list[str], broker: str) -> dict[str, KafkaException | None]:
            return {g.group_id: error_for(g.error_code, group=g.group_id, broker=broker, api="DeleteGroups") for g in response.results}

        def attempt(left: list[str]) -> Mapping[str, KafkaException | None]:
            places = self._requests.coordinators(left, GROUP, deadline)
            return self._requests.by_broker(left, places, lambda mine: DeleteGroupsRequest(groups_names=mine), read, deadline)

        self._requests.settle("deleting groups", names, attempt, deadline)

    def remove_members(
        self,
        group: str,
        member_ids: Iterable[str] = (),
        *,
        instance_ids: Iterable[str] = (),
        reason: str | None = None,
        timeout: float | None = None,
    ) -> None:
        """Have members leave a group, by the ids that the group gave them or by the instance ids of static ones (2.3 and newer).

        They join anew if they are alive. reason: for the coordinator's log (3.2 and newer). Raises the error of the group itself; item errors, by the
        id that was given: UnknownMemberId, ...
        """
        name = check_name("group", group)
        members = {id_: MemberIdentity(member_id=id_, reason=reason) for id_ in check_names("member_ids", member_ids)}
        static = {
            id_: MemberIdentity(member_id="", group_instance_id=id_, reason=reason) for id_ in check_names("instance_ids", instance_ids)
        }
        if both := members.keys() & static.keys():
            raise ConfigurationError(f"{', '.join(sorted(both))}: is in member_ids and in instance_ids; give it once")
        wanted = members | static
        deadline = self._requests.begin(timeout)

        def read(response: Any, mine: list[str], broker: str) -> dict[str, KafkaException | None]:
            about = {"group": name, "broker": broker, "api": "LeaveGroup"}
            error = error_for(response.error_code, **about)
            if error is not None:
                return dict.fromkeys(mine, error)
            return dict.fromkeys(mine) | {m.group_instance_id or m.member_id: error_for(m.error_code, **about) for m in response.members}

        def attempt(left: list[str]) -> Mapping[str, KafkaException | None]:
            place = self._requests.coordinators([name], GROUP, deadline)[name]
            request = LeaveGroupRequest(group_id=name, members=[wanted[id_] for id_ in left])
            return self._requests.by_broker(left, dict.fromkeys(left, place), lambda _: request, read, deadline)

        self._requests.settle(f"removing members of group {name!r}", wanted, attempt, deadline)


def _error(group: Any, broker: str, api: str) -> KafkaException | None:
    about = {"group": group.group_id, "broker": broker, "api": api}
    if not group.error_code and group.group_state == "Dead" and not group.members:  # before 4.0 a group that never was is told so
        return error_for(GroupIdNotFound.code, **about)
    return error_for(group.error_code, group.error_message, **about)


def _classic_group(group: Any, broker: str, operations: bool) -> GroupDescription:
    members = tuple(
        GroupMember(
            m.member_id,
            m.group_instance_id,
            m.client_id,
            m.client_host,
            _partitions(m, group.protocol_type),
            None,
            -1,
            None,
            bytes(m.member_metadata),
            bytes(m.member_assignment),
        )
        for m in group.members
    )
    return GroupDescription(
        group.group_id,
        "classic",
        group.group_state,
        group.protocol_type,
        group.protocol_data,
        -1,
        members,
        broker,
        operations_of(group.authorized_operations) if operations else None,
    )


def _partitions(member: Any, protocol_type: str) -> frozenset[TopicPartition] | None:
    if protocol_type not in (CONSUMER, ""):
        return None  # Kafka Connect and others have assignments of their own
    try:
        return frozenset(flattened(read_assignment(member.member_assignment, member.member_id).assigned_partitions))
    except ProtocolError:
        return None


def _consumer_group(group: Any, broker: str, operations: bool) -> GroupDescription:
    members = tuple(
        GroupMember(
            m.member_id,
            m.instance_id,
            m.client_id,
            m.client_host,
            _named(m.assignment),
            _named(m.target_assignment),
            m.member_epoch,
            m.rack_id,
        )
        for m in group.members
    )
    return GroupDescription(
        group.group_id,
        "consumer",
        group.group_state,
        CONSUMER,
        group.assignor_name,
        group.group_epoch,
        members,
        broker,
        operations_of(group.authorized_operations) if operations else None,
    )


def _named(assignment: Any) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition(t.topic_name, p) for t in assignment.topic_partitions for p in t.partitions)
