"""Members of groups, as kafka-python 2 and 3 tell of them: what a member asked for, and what it has."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gkafka.admin import GroupMember
from gkafka.admin.arguments import by_topic
from gkafka.common import TopicPartition
from gkafka.exceptions import ProtocolError
from gkafka.kafka.structs import MemberInformation
from gkafka.wire.consumerprotocol import read_assignment, read_subscription

__all__ = ["MemberAssignment", "MemberMetadata", "information", "shown"]


class _Told(dict[str, Any]):
    """The dictionary of kafka-python 3, which has its keys, and what older versions call them, as attributes as well. version: that the member
    wrote it in."""

    def __init__(self, said: dict[str, Any], version: int, user_data: bytes | None) -> None:
        super().__init__(said)
        self.version, self.user_data = version, user_data

    def __getattr__(self, name: str) -> Any:
        if name not in self:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return self[name]


class MemberMetadata(_Told):
    """What a member said when it joined. user_data: bytes, None or of the assignor; in the dictionary it is a text."""

    @property
    def subscription(self) -> list[str]:
        """The names of the topics that it wants."""
        return list(self["topics"])

    def __repr__(self) -> str:
        return f"ConsumerProtocolMemberMetadata(version={self.version}, subscription={self.subscription}, user_data={self.user_data!r})"


class MemberAssignment(_Told):
    """What a member has."""

    @property
    def assignment(self) -> list[tuple[str, list[int]]]:
        """Names of topics, each with the numbers of its partitions."""
        return [(of["topic"], list(of["partitions"])) for of in self["assigned_partitions"]]

    def partitions(self) -> list[TopicPartition]:
        """The partitions, one by one."""
        return [TopicPartition(topic, number) for topic, numbers in self.assignment for number in numbers]

    def __repr__(self) -> str:
        return f"ConsumerProtocolMemberAssignment(version={self.version}, assignment={self.assignment}, user_data={self.user_data!r})"


def information(m: GroupMember) -> MemberInformation:
    """As 2.x's describe_consumer_groups() tells of it."""
    return MemberInformation(m.member_id, m.client_id, m.host, _metadata(m), _assignment(m))


def shown(m: GroupMember) -> dict[str, Any]:
    """As 3.0's describe_groups() tells of it."""
    metadata, assignment = _metadata(m), _assignment(m)
    return {
        "member_id": m.member_id,
        "group_instance_id": m.instance_id,
        "client_id": m.client_id,
        "client_host": m.host,
        "member_metadata": dict(metadata) if isinstance(metadata, dict) else metadata,
        "member_assignment": dict(assignment) if isinstance(assignment, dict) else assignment,
    }


def _metadata(m: GroupMember) -> Any:
    """What a member of a classic group said when it joined, as its version has it. Bytes that are no consumer's stay bytes."""
    try:
        told = read_subscription(m.metadata, m.member_id)
    except ProtocolError:
        return m.metadata
    version = _version(m.metadata)
    said: dict[str, Any] = {"topics": list(told.topics), "user_data": _text(told.user_data)}
    if version >= 1:
        said["owned_partitions"] = [{"topic": p.topic, "partitions": list(p.partitions)} for p in told.owned_partitions]
    if version >= 2:
        said["generation_id"] = told.generation_id
    if version >= 3:
        said["rack_id"] = told.rack_id
    return MemberMetadata(said, version, _bytes(told.user_data))


def _assignment(m: GroupMember) -> Any:
    """What a member has; of a KIP-848 group in the same form. Bytes that are no consumer's stay bytes."""
    if m.partitions is not None and not m.assignment:
        return MemberAssignment({"assigned_partitions": _by_topic(m.partitions), "user_data": None}, 0, None) if m.partitions else b""
    try:
        told = read_assignment(m.assignment, m.member_id)
    except ProtocolError:
        return m.assignment
    topics = [{"topic": p.topic, "partitions": list(p.partitions)} for p in told.assigned_partitions]
    said = {"assigned_partitions": topics, "user_data": _text(told.user_data)}
    return MemberAssignment(said, _version(m.assignment), _bytes(told.user_data))


def _by_topic(partitions: Iterable[TopicPartition]) -> list[dict[str, Any]]:
    return [{"topic": name, "partitions": numbers} for name, numbers in by_topic(sorted(partitions)).items()]


def _version(data: bytes) -> int:
    return int.from_bytes(data[:2], "big")


def _bytes(data: Any) -> bytes | None:
    return None if data is None else bytes(data)


def _text(data: Any) -> str | None:
    """User data as kafka-python 3 shows bytes in dictionaries."""
    return None if data is None else bytes(data).decode("utf-8", "backslashreplace")
