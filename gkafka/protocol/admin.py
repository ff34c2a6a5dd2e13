"""Looking at groups, making and deleting topics, and what a broker speaks (the classes of pykafka 2.8, which no document describes)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, NamedTuple

import gkafka
from gkafka.brokererrors import RequestTimedOut
from gkafka.protocol.base import Name, Names, Request, Response, listed, text
from gkafka.protocol.groups import ConsumerGroupProtocolMetadata, MemberAssignment, readable
from gkafka.wire import admin as wire
from gkafka.wire import apiversions, groups

__all__ = [
    "ApiVersionsRequest",
    "ApiVersionsResponse",
    "ApiVersionsSpec",
    "CreateTopicRequest",
    "CreationBegun",
    "CreateTopicsRequest",
    "CreateTopicsResponse",
    "DeleteTopicsRequest",
    "DeleteTopicsResponse",
    "DeletionBegun",
    "DescribeGroupResponse",
    "DescribeGroupsRequest",
    "DescribeGroupsResponse",
    "GroupListing",
    "GroupMember",
    "ListGroupsRequest",
    "ListGroupsResponse",
]


# -- groups ------------------------------------------------------------------------------------------------------------
class ListGroupsRequest(Request):
    """The groups that one broker coordinates."""

    API_KEY = groups.ListGroupsRequest.API.key

    def to_message(self) -> groups.ListGroupsRequest:
        return groups.ListGroupsRequest()


class GroupListing(NamedTuple):
    """protocol_type: b"consumer" for groups of consumers."""

    group_id: bytes
    protocol_type: bytes


class ListGroupsResponse(Response):
    """groups: id -> GroupListing. error: the error code.

    ListGroupsResponse => ErrorCode:int16 [GroupId ProtocolType]
    """

    API_KEY = groups.ListGroupsRequest.API.key
    error: int
    groups: Names[GroupListing]

    def _read(self, message: Any) -> None:
        self.error = message.error_code
        self.groups = Names()
        for group in message.groups:
            listing = GroupListing(group.group_id.encode(), group.protocol_type.encode())
            self.groups[listing.group_id] = listing


class DescribeGroupsRequest(Request):
    """Who is in these groups? For their coordinator.

    DescribeGroupsRequest => [GroupId]
    """

    API_KEY = groups.DescribeGroupsRequest.API.key

    def __init__(self, group_ids: Iterable[Name], *, api_version: int | None = None) -> None:
        super().__init__(api_version=api_version)
        self.group_ids = listed("group_ids", group_ids)

    def to_message(self) -> groups.DescribeGroupsRequest:
        return groups.DescribeGroupsRequest(groups=[text(name) for name in self.group_ids])


class GroupMember(NamedTuple):
    """member_metadata, member_assignment: the bytes as they are where they are none of a consumer."""

    member_id: bytes
    client_id: bytes
    client_host: bytes
    member_metadata: ConsumerGroupProtocolMetadata | bytes
    member_assignment: MemberAssignment | bytes


class DescribeGroupResponse(NamedTuple):
    """state: b"Stable", b"PreparingRebalance", b"CompletingRebalance", b"Empty" or b"Dead". members: by id."""

    error_code: int
    group_id: bytes
    state: bytes
    protocol_type: bytes
    protocol: bytes
    members: Names[GroupMember]


class DescribeGroupsResponse(Response):
    """groups: id -> DescribeGroupResponse.

    DescribeGroupsResponse => [ErrorCode:int16 GroupId State ProtocolType Protocol
                              [MemberId ClientId ClientHost MemberMetadata:bytes MemberAssignment:bytes]]
    """

    API_KEY = groups.DescribeGroupsRequest.API.key
    groups: Names[DescribeGroupResponse]

    def _read(self, message: Any) -> None:
        self.groups = Names()
        for group in message.groups:
            members: Names[GroupMember] = Names()
            for m in group.members:
                told, given = readable(ConsumerGroupProtocolMetadata, m.member_metadata), readable(MemberAssignment, m.member_assignment)
                members[m.member_id.encode()] = GroupMember(m.member_id.encode(), m.client_id.encode(), m.client_host.encode(), told, given)
            described = DescribeGroupResponse(
                group.error_code,
                group.group_id.encode(),
                group.group_state.encode(),
                group.protocol_type.encode(),
                group.protocol_data.encode(),
                members,
            )
            self.groups[described.group_id] = described


# -- topics ------------------------------------------------------------------------------------------------------------
class CreateTopicRequest(NamedTuple):
    """num_partitions and replication_factor, both -1 where replica_assignment, pairs of a partition's id and brokers' ids, says who has what.
    config_entries: pairs of an option's name and value."""

    topic_name: Name
    num_partitions: int
    replication_factor: int
    replica_assignment: Sequence[tuple[int, Sequence[int]]]
    config_entries: Sequence[tuple[Name, Name | None]]


class CreateTopicsRequest(Request):
    """Make topics; for the controller, to which brokers without ZooKeeper pass it on. topic_requests: CreateTopicRequests.

    timeout: ms that the answer waits until they are there.
    """

    API_KEY = wire.CreateTopicsRequest.API.key

    def __init__(self, topic_requests: Iterable[Any], timeout: int = 0, *, api_version: int | None = None) -> None:
        super().__init__(api_version=api_version)
        self.topic_requests = listed("topic_requests", topic_requests, *CreateTopicRequest._fields)
        self.timeout = timeout
        self.parked_ms = max(0, timeout)

    def to_message(self) -> wire.CreateTopicsRequest:
        return wire.CreateTopicsRequest(
            topics=[
                wire.CreatableTopic(
                    name=text(one.topic_name),
                    num_partitions=one.num_partitions,
                    replication_factor=one.replication_factor,
                    assignments=[
                        wire.CreatableReplicaAssignment(partition_index=p, broker_ids=list(brokers))
                        for p, brokers in one.replica_assignment
                    ],
                    configs=[
                        wire.CreatableTopicConfig(name=text(name), value=None if value is None else text(value))
                        for name, value in one.config_entries
                    ],
                )
                for one in self.topic_requests
            ],
            timeout_ms=self.timeout,
        )


class _Accepted(Response):
    """Raises the error of the first topic that has one, but for those in `passed`."""

    passed: ClassVar[frozenset[int]] = frozenset()

    def _check(self, results: Iterable[Any]) -> None:
        for one in results:
            if one.error_code != 0 and one.error_code not in self.passed:
                self.raise_error(one.error_code, (one.name, getattr(one, "error_message", None)))


class CreateTopicsResponse(_Accepted):
    """Raises the broker's error of the first topic that could not be made.

    CreateTopicsResponse => [Topic ErrorCode:int16]
    """

    API_KEY = wire.CreateTopicsRequest.API.key

    def _read(self, message: Any) -> None:
        self._check(message.topics)


class DeleteTopicsRequest(Request):
    """Delete topics; for the controller, as CreateTopicsRequest. timeout: ms that the answer waits until they are gone."""

    API_KEY = wire.DeleteTopicsRequest.API.key

    def __init__(self, topics: Iterable[Name], timeout: int = 0, *, api_version: int | None = None) -> None:
        super().__init__(api_version=api_version)
        self.topics = listed("topics", topics)
        self.timeout = timeout
        self.parked_ms = max(0, timeout)

    def to_message(self) -> wire.DeleteTopicsRequest:
        return wire.DeleteTopicsRequest(topic_names=[text(name) for name in self.topics], timeout_ms=self.timeout)


class DeleteTopicsResponse(_Accepted):
    """Raises the broker's error of the first topic that could not be deleted.

    DeleteTopicsResponse => [Topic ErrorCode:int16]
    """

    API_KEY = wire.DeleteTopicsRequest.API.key

    def _read(self, message: Any) -> None:
        self._check(message.responses)


class CreationBegun(CreateTopicsResponse):
    """Of a creation that is only to begin: that the time is over means that it was begun."""

    passed = frozenset({RequestTimedOut.code})


class DeletionBegun(DeleteTopicsResponse):
    """The same of a deletion."""

    passed = frozenset({RequestTimedOut.code})


# -- versions ----------------------------------------------------------------------------------------------------------
class ApiVersionsRequest(Request):
    """Which versions of which APIs does the broker speak?"""

    API_KEY = apiversions.ApiVersionsRequest.API.key

    def to_message(self) -> apiversions.ApiVersionsRequest:
        return apiversions.ApiVersionsRequest(client_software_name="gkafka", client_software_version=gkafka.__version__)


class ApiVersionsSpec(NamedTuple):
    """key: the API's number; min and max: the oldest and the newest version."""

    key: int
    min: int
    max: int


class ApiVersionsResponse(Response):
    """api_versions: API key -> ApiVersionsSpec. Raises the broker's error where there is one.

    ApiVersionsResponse => ErrorCode:int16 [ApiKey:int16 MinVersion:int16 MaxVersion:int16]
    """

    API_KEY = apiversions.ApiVersionsRequest.API.key
    api_versions: dict[int, ApiVersionsSpec]

    def _read(self, message: Any) -> None:
        if message.error_code != 0:
            self.raise_error(message.error_code, message)
        self.api_versions = {one.api_key: ApiVersionsSpec(one.api_key, one.min_version, one.max_version) for one in message.api_keys}
