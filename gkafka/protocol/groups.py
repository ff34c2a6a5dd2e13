"""Group membership (reference: pykafka-2.x broker; the classes are those of pykafka 2.8, where the documents are silent)."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Any

from gkafka.exceptions import ConfigurationError, ProtocolError
from gkafka.protocol.base import Buffer, Name, Names, Request, Response, check_has, listed, text
from gkafka.wire import groups as wire
from gkafka.wire.consumerprotocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    MemberPartitions,
    read_assignment,
    read_subscription,
)

__all__ = [
    "ConsumerGroupProtocolMetadata",
    "HeartbeatRequest",
    "HeartbeatResponse",
    "JoinGroupRequest",
    "JoinGroupResponse",
    "LeaveGroupRequest",
    "LeaveGroupResponse",
    "MemberAssignment",
    "SyncGroupRequest",
    "SyncGroupResponse",
]

SESSION_TIMEOUT_MS = 30_000
"""Session and rebalance timeout, where the documented call has no parameter for it."""
_version = struct.Struct(">h")


# -- what consumers tell each other ------------------------------------------------------------------------------------
class ConsumerGroupProtocolMetadata:
    """What a consumer tells of itself when it joins.

    ProtocolMetadata => Version:int16 Subscription:[Topic] UserData:bytes
    """

    def __init__(self, version: int = 0, topic_names: Iterable[Name] | None = None, user_data: bytes | None = b"") -> None:
        self.version = version
        self.topic_names = [text(name).encode() for name in topic_names or ()]
        self.user_data = user_data

    def get_bytes(self) -> bytearray:
        """Version 0 of it is written, whatever a newer member said of itself: nothing else is known of that here."""
        told = ConsumerProtocolSubscription(topics=[name.decode() for name in self.topic_names], user_data=self.user_data)
        return bytearray(_version.pack(self.version) + told.to_bytes()[_version.size :])

    def __len__(self) -> int:
        return len(self.get_bytes())

    @classmethod
    def from_bytestring(cls, buff: Buffer) -> ConsumerGroupProtocolMetadata:
        """Raises ProtocolError for bytes that are none. No bytes at all are no topics."""
        if not len(buff):
            return cls()
        told = read_subscription(buff, "")
        (version,) = _version.unpack_from(buff)
        return cls(version, told.topics, None if told.user_data is None else bytes(told.user_data))


class MemberAssignment:
    """What one member gets. partition_assignment: pairs of a topic and partition ids. member_id: of whom it is, where that is not told beside.

    MemberAssignment => Version:int16 PartitionAssignment:[Topic [Partition:int32]] UserData:bytes
    """

    def __init__(self, partition_assignment: Iterable[tuple[Name, Sequence[int]]], member_id: Name | None = None, version: int = 1) -> None:
        self.partition_assignment = [(text(topic).encode(), list(ids)) for topic, ids in partition_assignment]
        self.member_id = member_id
        self.version = version

    def get_bytes(self) -> bytearray:
        """With null as the user data, which pykafka leaves out though its document has them: Java's consumers need them."""
        partitions = [MemberPartitions(topic=topic.decode(), partitions=ids) for topic, ids in self.partition_assignment]
        given = ConsumerProtocolAssignment(assigned_partitions=partitions)
        return bytearray(_version.pack(self.version) + given.to_bytes()[_version.size :])

    def __len__(self) -> int:
        return len(self.get_bytes())

    @classmethod
    def from_bytestring(cls, buff: Buffer) -> MemberAssignment:
        """Raises ProtocolError for bytes that are none. No bytes at all are no partitions; user data may be missing, see get_bytes()."""
        if not len(buff):
            return cls(())
        given = read_assignment(buff, "")
        (version,) = _version.unpack_from(buff)
        return cls([(one.topic, one.partitions) for one in given.assigned_partitions], version=version)


# -- JoinGroup ---------------------------------------------------------------------------------------------------------
class JoinGroupRequest(Request):
    """Become a member, or one of the next generation.

    member_id: b"" for a new member. topic_name: what the member subscribes to. membership_protocol: anything with protocol_type,
    protocol_name and metadata, as `gkafka.membershipprotocol`'s; metadata: bytes, or what has get_bytes() or bytes(), None for the topic.
    JoinGroupRequest => GroupId SessionTimeout:int32 MemberId ProtocolType [ProtocolName ProtocolMetadata:bytes]
    """

    API_KEY = wire.JoinGroupRequest.API.key

    def __init__(
        self,
        group_id: Name,
        member_id: Name,
        topic_name: Name | None,
        membership_protocol: Any,
        session_timeout: int = SESSION_TIMEOUT_MS,
        *,
        api_version: int | None = None,
    ) -> None:
        super().__init__(api_version=api_version)
        self.group_id = group_id
        self.member_id = member_id
        self.session_timeout = self.parked_ms = session_timeout
        check_has("membership_protocol", membership_protocol, "protocol_type", "protocol_name", "metadata")
        self.protocol_type: Name = membership_protocol.protocol_type
        told = membership_protocol.metadata
        if told is None:
            told = ConsumerProtocolSubscription(topics=[] if topic_name is None else [text(topic_name)]).to_bytes()
        self.group_protocols = [(membership_protocol.protocol_name, as_bytes(told))]

    def to_message(self) -> wire.JoinGroupRequest:
        return wire.JoinGroupRequest(
            group_id=text(self.group_id),
            session_timeout_ms=self.session_timeout,
            rebalance_timeout_ms=self.session_timeout,
            member_id=text(self.member_id),
            protocol_type=text(self.protocol_type),
            protocols=[wire.JoinGroupRequestProtocol(name=text(name), metadata=told) for name, told in self.group_protocols],
        )


class JoinGroupResponse(Response):
    """members: id -> ConsumerGroupProtocolMetadata, filled for the leader alone; the bytes as they are where they are none of a consumer.

    JoinGroupResponse => ErrorCode:int16 GenerationId:int32 GroupProtocol LeaderId MemberId [MemberId MemberMetadata:bytes]
    """

    API_KEY = wire.JoinGroupRequest.API.key
    error_code: int
    generation_id: int
    group_protocol: bytes
    leader_id: bytes
    member_id: bytes
    members: Names[ConsumerGroupProtocolMetadata | bytes]

    def _read(self, message: Any) -> None:
        self.error_code = message.error_code
        self.generation_id = message.generation_id
        self.group_protocol = (message.protocol_name or "").encode()
        self.leader_id = message.leader.encode()
        self.member_id = message.member_id.encode()
        self.members = Names()
        for member in message.members:
            self.members[member.member_id.encode()] = readable(ConsumerGroupProtocolMetadata, member.metadata)


def as_bytes(given: Any) -> bytes:
    """Bytes, or what makes them of itself by get_bytes() or bytes(). Raises ConfigurationError."""
    if hasattr(given, "get_bytes"):
        return bytes(given.get_bytes())
    if isinstance(given, (bytes, bytearray, memoryview)) or hasattr(given, "__bytes__"):
        return bytes(given)
    raise ConfigurationError(f"{given!r}: must be bytes, or have get_bytes()")


def readable(cls: Any, data: Buffer) -> Any:
    """What a member told of itself; its bytes where they are no consumer's: another one's garbage must not hide the rest of an answer."""
    try:
        return cls.from_bytestring(data)
    except ProtocolError:
        return bytes(data)


# -- SyncGroup ---------------------------------------------------------------------------------------------------------
class SyncGroupRequest(Request):
    """Hand in who gets what, and ask for one's own share.

    group_assignment: empty unless this member is the leader; pairs of a member's id and its MemberAssignment (or bytes), or things that
    have a member_id.
    SyncGroupRequest => GroupId GenerationId:int32 MemberId [MemberId MemberAssignment:bytes]
    """

    API_KEY = wire.SyncGroupRequest.API.key
    parked_ms = SESSION_TIMEOUT_MS

    def __init__(
        self, group_id: Name, generation_id: int, member_id: Name, group_assignment: Iterable[Any], *, api_version: int | None = None
    ) -> None:
        super().__init__(api_version=api_version)
        self.group_id = group_id
        self.generation_id = generation_id
        self.member_id = member_id
        self.group_assignment = [_share(one) for one in listed("group_assignment", group_assignment)]

    def to_message(self) -> wire.SyncGroupRequest:
        return wire.SyncGroupRequest(
            group_id=text(self.group_id),
            generation_id=self.generation_id,
            member_id=text(self.member_id),
            assignments=[wire.SyncGroupRequestAssignment(member_id=text(m), assignment=share) for m, share in self.group_assignment],
        )


def _share(one: Any) -> tuple[Name, bytes]:
    if isinstance(one, tuple) and len(one) == 2:
        member_id, given = one
        return member_id, as_bytes(given)
    check_has("group_assignment", one, "member_id")
    if hasattr(one, "get_bytes") or hasattr(one, "__bytes__"):
        return one.member_id, as_bytes(one)
    check_has("group_assignment", one, "partition_assignment")
    return one.member_id, bytes(MemberAssignment(one.partition_assignment, version=0).get_bytes())


class SyncGroupResponse(Response):
    """member_assignment: a MemberAssignment; the bytes as they are where they are none of a consumer.

    SyncGroupResponse => ErrorCode:int16 MemberAssignment:bytes
    """

    API_KEY = wire.SyncGroupRequest.API.key
    error_code: int
    member_assignment: MemberAssignment | bytes

    def _read(self, message: Any) -> None:
        self.error_code = message.error_code
        self.member_assignment = readable(MemberAssignment, message.assignment)


# -- Heartbeat, LeaveGroup ---------------------------------------------------------------------------------------------
class HeartbeatRequest(Request):
    """Say that the member lives.

    HeartbeatRequest => GroupId GenerationId:int32 MemberId
    """

    API_KEY = wire.HeartbeatRequest.API.key

    def __init__(self, group_id: Name, generation_id: int, member_id: Name, *, api_version: int | None = None) -> None:
        super().__init__(api_version=api_version)
        self.group_id = group_id
        self.generation_id = generation_id
        self.member_id = member_id

    def to_message(self) -> wire.HeartbeatRequest:
        return wire.HeartbeatRequest(group_id=text(self.group_id), generation_id=self.generation_id, member_id=text(self.member_id))


class HeartbeatResponse(Response):
    """error_code: says when the member must join again.

    HeartbeatResponse => ErrorCode:int16
    """

    API_KEY = wire.HeartbeatRequest.API.key
    error_code: int

    def _read(self, message: Any) -> None:
        self.error_code = message.error_code


class LeaveGroupRequest(Request):
    """Leave now, instead of by a missed heartbeat.

    LeaveGroupRequest => GroupId MemberId
    """

    API_KEY = wire.LeaveGroupRequest.API.key

    def __init__(self, group_id: Name, member_id: Name, *, api_version: int | None = None) -> None:
        super().__init__(api_version=api_version)
        self.group_id = group_id
        self.member_id = member_id

    def to_message(self) -> wire.LeaveGroupRequest:
        return wire.LeaveGroupRequest(group_id=text(self.group_id), member_id=text(self.member_id))


class LeaveGroupResponse(Response):
    """error_code: of the group, or of the member in answers that tell them apart (KIP-345).

    LeaveGroupResponse => ErrorCode:int16
    """

    API_KEY = wire.LeaveGroupRequest.API.key
    error_code: int

    def _read(self, message: Any) -> None:
        codes = [message.error_code, *(member.error_code for member in message.members)]
        self.error_code = next((code for code in codes if code != 0), 0)
