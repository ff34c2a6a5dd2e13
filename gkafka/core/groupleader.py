"""What the leader of a generation does: read what the members told, run the assignor, look at what it made."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from gkafka.brokererrors import KafkaException
from gkafka.common import TopicPartition
from gkafka.core.assignors import ASSIGNORS, Assignment, Assignor, GroupMember, Topics
from gkafka.exceptions import AssignmentError, ProtocolError
from gkafka.guarding import guarded
from gkafka.unseen import described
from gkafka.wire.consumerprotocol import ConsumerProtocolAssignment, by_topic, flattened, read_subscription
from gkafka.wire.groups import JoinGroupResponseMember, SyncGroupRequestAssignment

__all__ = ["Election", "Made", "read_members"]

VERSION = 3


class Election(NamedTuple):
    """What a leader has to divide, and how. topics: those whose partitions it needs. is_interruption(error): did what the assignor raised come from
    outside?
    """

    assignor: Assignor
    members: Sequence[GroupMember]
    topics: frozenset[str]
    is_interruption: Callable[[BaseException], bool]

    def make(self, topics: Topics) -> Made:
        """An assignment for every member; topics that are not given are left out. If the assignor, which may be the user's, fails or returns nonsense, a
        built-in one makes it: what the members agreed upon is how they read an assignment, not how it is made, and no partition may be without an owner.
        An interruption is raised: the assignor is without fault.
        """
        assignor, members = self.assignor, self.members
        if not members:  # a coordinator's mistake: there is nobody to divide anything among, which no assignor has to expect
            return Made([], None)
        made, failure = _tried(assignor, topics, members, self.is_interruption)
        if failure is None:
            return Made(_written(made, members), None)
        instead = ASSIGNORS["cooperative-sticky" if assignor.cooperative else "range"]
        return Made(_written(instead.assign(topics, members), members), failure)


class Made(NamedTuple):
    """problem: why another assignor was taken than the one that was asked for."""

    assignments: list[SyncGroupRequestAssignment]
    problem: KafkaException | None


def read_members(told: Sequence[JoinGroupResponseMember]) -> tuple[list[GroupMember], list[KafkaException]]:
    """The members, and what could not be read of them. One whose metadata are garbage wants nothing: the others go on."""
    members: list[GroupMember] = []
    problems: list[KafkaException] = []
    for member in told:
        try:
            members.append(_read(member))
        except ProtocolError as error:
            problems.append(error)
            members.append(GroupMember(member.member_id, (), member.group_instance_id))
    return members, problems


def _read(told: JoinGroupResponseMember) -> GroupMember:
    data = read_subscription(told.metadata, told.member_id)
    owned = flattened(data.owned_partitions)
    return GroupMember(told.member_id, data.topics, told.group_instance_id, data.user_data, owned, data.generation_id, data.rack_id or None)


def _tried(
    assignor: Assignor, topics: Topics, members: Sequence[GroupMember], is_interruption: Callable[[BaseException], bool]
) -> tuple[Any, AssignmentError | None]:
    """What it made, and why that is of no use."""
    failures: list[AssignmentError] = []

    def refuse(objection: str, cause: BaseException | None = None) -> None:
        failure = AssignmentError(f"assignor {assignor.name!r} {objection}; a built-in one made this assignment instead")
        failure.__cause__ = cause
        failures.append(failure)

    def assign() -> Any:
        made: Any = assignor.assign(topics, members)
        if isinstance(made, Mapping):
            made = {name: list(partitions) for name, partitions in made.items()}  # an iterator could be read but once
        objection = None if assignor is ASSIGNORS.get(assignor.name) else _objection(made, assignor, topics, members)
        if objection is not None:
            refuse(objection)
        return made

    def failed(error: BaseException) -> bool:
        refuse(f"raised {described(error)}", error)
        return is_interruption(error)

    made = guarded(assign, failed=failed)
    return (None, failures[0]) if failures else (made, None)


def _written(assignment: Assignment, members: Sequence[GroupMember]) -> list[SyncGroupRequestAssignment]:
    return [
        SyncGroupRequestAssignment(
            member_id=member.member_id,
            assignment=ConsumerProtocolAssignment(assigned_partitions=by_topic(assignment.get(member.member_id, ()))).to_bytes(VERSION),
        )
        for member in members
    ]


def _objection(made: Any, assignor: Assignor, topics: Topics, members: Sequence[GroupMember]) -> str | None:
    """What is wrong with an assignment."""
    if not isinstance(made, Mapping):
        return f"returned a {type(made).__name__}, not the partitions of each member"
    wanted = {member.member_id: set(member.topics) for member in members}
    owner: dict[TopicPartition, str] = {}
    for name, partitions in made.items():
        if name not in wanted:
            return f"gave partitions to {name!r}, which is no member"
        for given in partitions:
            objection = _of_one(given, name, topics, wanted[name], owner)
            if objection is not None:
                return objection
            owner[TopicPartition(*given)] = name
    claimed = _claimed(members) if assignor.cooperative else {}
    return _taken_away(owner, claimed) or _left_out(owner, topics, members, claimed)


def _of_one(given: Any, name: str, topics: Topics, wanted: set[str], owner: Mapping[TopicPartition, str]) -> str | None:
    try:
        topic, number = given
        there = number.__index__() in range(len(topics.get(topic, ())))  # 0.0 is in range(1), too, and cannot be written down
    except (TypeError, ValueError, AttributeError):
        return f"gave {given!r} to {name!r}, which is no partition"
    if not there:
        return f"gave {topic}-{number} to {name!r}, which is not there"
    if topic not in wanted:
        return f"gave {topic}-{number} to {name!r}, which did not ask for the topic"
    if (topic, number) in owner:
        return f"gave {topic}-{number} to {owner[topic, number]!r} and to {name!r}"  # type: ignore[index]  # a NamedTuple is its tuple
    return None


def _claimed(members: Sequence[GroupMember]) -> dict[TopicPartition, set[str]]:
    claimed: dict[TopicPartition, set[str]] = {}
    for member in members:
        for partition in member.owned:
            claimed.setdefault(partition, set()).add(member.member_id)
    return claimed


def _taken_away(owner: Mapping[TopicPartition, str], claimed: Mapping[TopicPartition, set[str]]) -> str | None:
    """A cooperative assignor gives nothing to a member while another has it (KIP-429)."""
    for partition, name in owner.items():
        if partition in claimed and name not in claimed[partition]:
            return f"gave {partition.topic}-{partition.partition} to {name!r} while another member has it"
    return None


def _left_out(
    owner: Mapping[TopicPartition, str], topics: Topics, members: Sequence[GroupMember], claimed: Mapping[TopicPartition, set[str]]
) -> str | None:
    """What nobody gets, though no member has to let go of it first."""
    for topic in sorted(set().union(*(member.topics for member in members)) & topics.keys()):
        for number in range(len(topics[topic])):
            if (partition := TopicPartition(topic, number)) not in owner and partition not in claimed:
                return f"left {topic}-{number} without an owner"
    return None
