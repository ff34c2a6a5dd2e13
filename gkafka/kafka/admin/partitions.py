"""KafkaAdminClient's calls about partitions: more of them, their records, offsets, leaders and replicas."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gkafka.admin import AclOperation, PartitionDescription, TopicDescription
from gkafka.common import IsolationLevel, TopicPartition
from gkafka.exceptions import ElectionNotNeeded, KafkaException, LeaderNotFoundError, NotLeaderForPartition, UnknownTopicOrPartition
from gkafka.kafka.admin.calls import Calls, Outcomes, code_of, member, outcomes_of, text_of, topic_name, with_operations
from gkafka.kafka.admin.new_partitions import NewPartitions
from gkafka.kafka.admin.results import (
    CreatePartitionsResponse,
    ElectLeadersResponse,
    PartitionElection,
    TopicElections,
    TopicPartitionsResult,
)
from gkafka.kafka.admin.topics import partition_row
from gkafka.kafka.arguments import check_partitions, partitions_of
from gkafka.kafka.errors import IllegalArgumentError, WrongTypeError
from gkafka.kafka.structs import OffsetAndTimestamp

__all__ = ["ElectionType", "OffsetSpec", "OffsetTimestamp", "PartitionCalls"]

NOT_TOLD = -(2**31)


class ElectionType(enum.IntEnum):
    """Of which replica becomes the leader. UNCLEAN: any that is alive, where there is no leader; records may be lost."""

    PREFERRED = 0
    UNCLEAN = 1


class OffsetSpec(enum.IntEnum):
    """Which offset of a partition. MAX_TIMESTAMP: of the newest record by its time (3.0). The last two: of tiered storage."""

    LATEST = -1
    EARLIEST = -2
    MAX_TIMESTAMP = -3
    EARLIEST_LOCAL = -4
    LATEST_TIERED = -5


class OffsetTimestamp(int):
    """The offset of the first record at or after this time, ms since the epoch; where a plain number would be an offset."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"OffsetTimestamp({int(self)})"


class PartitionCalls(Calls):
    """The calls about partitions. Partitions to look at are {topic: numbers}, names of topics for all of theirs, or None for all that there are."""

    def create_partitions(
        self,
        topic_partitions: Mapping[str, Any],
        timeout_ms: float | None = None,
        validate_only: bool = False,
        raise_errors: bool = True,
    ) -> CreatePartitionsResponse:
        """Have topics get more partitions. topic_partitions: {topic: how many there shall be}, or with their brokers {topic: NewPartitions} or
        {topic: {"count": ..., "assignments": [[brokers of a new one], ...]}}.

        Returns (name, error_code, error_message) of each, in results. Raises InvalidPartitionsError, UnknownTopicOrPartitionError, ...; with
        raise_errors=False the results say what went wrong.
        """
        wanted = {name: _new_partitions(name, given) for name, given in _mapping("topic_partitions", topic_partitions).items()}
        placed = {name: of.new_assignments for name, of in wanted.items() if of.new_assignments is not None}
        told = outcomes_of(
            self._admin.create_partitions,
            {name: of.total_count for name, of in wanted.items()},
            replicas=placed,
            validate_only=validate_only,
            timeout=self._within(timeout_ms),
        )
        if raise_errors:
            told.raise_first()
        return CreatePartitionsResponse(0, [TopicPartitionsResult(name, code_of(told.of(name)), text_of(told.of(name))) for name in wanted])

    def delete_records(
        self, records_to_delete: Mapping[TopicPartition, int], timeout_ms: float | None = None, partition_leader_id: int | None = None
    ) -> dict[TopicPartition, dict[str, int]]:
        """Drop the records before an offset, -1 for all. partition_leader_id: raise NotLeaderForPartitionError if another broker leads one of them.

        Raises OffsetOutOfRangeError, UnknownTopicOrPartitionError, PolicyViolationError for compacted topics, ...
        """
        before = _mapping("records_to_delete", records_to_delete)
        within = self._within(timeout_ms)
        if partition_leader_id is not None:
            self._check_leader(before, partition_leader_id)
        told = outcomes_of(self._admin.delete_records, before, timeout=within)
        told.raise_first()
        return {tp: {"partition_index": tp.partition, "low_watermark": low, "error_code": 0} for tp, low in told.results.items()}

    def elect_leaders(
        self,
        election_type: ElectionType | int | str,
        topic_partitions: Any = None,
        timeout_ms: float | None = None,
        raise_errors: bool = True,
    ) -> ElectLeadersResponse:
        """Have the preferred replicas lead (PREFERRED), or any that is alive where there is no leader (UNCLEAN).

        Returns (topic, [(partition_id, error_code, error_message), ...]) of each topic, in replica_election_results. ElectionNotNeeded is no error to
        raise. Raises PreferredLeaderNotAvailableError, EligibleLeadersNotAvailableError, ...
        """
        unclean = member("election_type", election_type, ElectionType) is ElectionType.UNCLEAN
        told = outcomes_of(self._admin.elect_leaders, self._partitions(topic_partitions), unclean=unclean, timeout=self._within(timeout_ms))
        if raise_errors:
            told.raise_first()
        return _election(told)

    def perform_leader_election(
        self,
        election_type: ElectionType | int | str,
        topic_partitions: Any = None,
        timeout_ms: float | None = None,
        raise_errors: bool = True,
    ) -> ElectLeadersResponse:
        """elect_leaders() under its older name."""
        return self.elect_leaders(election_type, topic_partitions, timeout_ms, raise_errors)

    def alter_partition_reassignments(
        self, reassignments: Mapping[TopicPartition, Sequence[int] | None], timeout_ms: float | None = None
    ) -> dict[TopicPartition, type[KafkaException] | None]:
        """Begin to move partitions to other brokers; None cancels what is under way. Returns the class of each error, None where there is none."""
        wanted = _mapping("reassignments", reassignments)
        told = outcomes_of(self._admin.alter_reassignments, wanted, timeout=self._within(timeout_ms))
        return {tp: type(told.errors[tp]) if tp in told.errors else None for tp in wanted}

    def list_partition_reassignments(self, topic_partitions: Any = None, timeout_ms: float | None = None) -> dict[TopicPartition, Any]:
        """What is being moved now. topic_partitions: {topic: numbers} or TopicPartitions, None for all."""
        asked = topic_partitions
        if isinstance(asked, Mapping):
            asked = partitions_of("topic_partitions", asked)
        elif asked is not None:
            asked = check_partitions(asked)
        moving = self._admin.list_reassignments(asked, timeout=self._within(timeout_ms))
        return {
            tp: {"replicas": list(r.replicas), "adding_replicas": list(r.adding), "removing_replicas": list(r.removing)}
            for tp, r in moving.items()
        }

    def describe_topic_partitions(
        self, topics: Iterable[str], response_partition_limit: int = 2000, cursor: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Topics page by page, with the replicas that may become leaders (KIP-966). cursor: the next_cursor of the page before."""
        if response_partition_limit < 1:
            raise IllegalArgumentError(f"response_partition_limit={response_partition_limit!r}: must be 1 or more")
        names = sorted(map(topic_name, topics))
        start = ("", 0) if cursor is None else _place(cursor)
        told = with_operations(self._admin.describe_topics, names, timeout=self._within())
        pages: list[dict[str, Any]] = []
        room = response_partition_limit
        for name in names:
            all_of_it = _partitions_of(told.of(name))
            left = [p for p in all_of_it if (name, p.partition) >= start]
            if name < start[0] or (all_of_it and not left):
                continue
            if left and not room:
                return {"topics": pages, "next_cursor": {"topic_name": name, "partition_index": left[0].partition}}
            pages.append(_page(name, told.of(name), left[:room]))
            if len(left) > room:
                return {"topics": pages, "next_cursor": {"topic_name": name, "partition_index": left[room].partition}}
            room -= len(left)
        return {"topics": pages, "next_cursor": None}

    def list_partition_offsets(
        self,
        topic_partition_specs: Mapping[TopicPartition, int],
        isolation_level: Any = IsolationLevel.READ_UNCOMMITTED,
        timeout_ms: float | None = None,
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        """Offsets of partitions: an OffsetSpec, or a time in ms since the epoch. Raises UnknownTopicOrPartitionError, ..."""
        specs = _mapping("topic_partition_specs", topic_partition_specs)
        for tp, spec in specs.items():
            if not isinstance(spec, int) or isinstance(spec, bool):
                raise WrongTypeError(f"topic_partition_specs[{tp!r}]={spec!r}: must be an OffsetSpec or a time in ms")
        level = member("isolation_level", isolation_level, IsolationLevel)
        told = outcomes_of(
            self._admin.find_offsets, {tp: int(spec) for tp, spec in specs.items()}, isolation=level, timeout=self._within(timeout_ms)
        )
        told.raise_first()
        return {
            tp: OffsetAndTimestamp(f.offset, f.timestamp, f.leader_epoch if f.leader_epoch >= 0 else None) for tp, f in told.results.items()
        }

    # -- which partitions ------------------------------------------------------------------------------------------------------
    def _partitions(self, given: Any) -> list[TopicPartition]:
        if isinstance(given, Mapping):
            return partitions_of("topic_partitions", given)
        if isinstance(given, (str, bytes)) or not (given is None or isinstance(given, Iterable)):
            raise IllegalArgumentError(f"topic_partitions={given!r}: must be {{topic: numbers}}, a list of topics, or None for all")
        names = list(self._admin.list_topics(internal=True, timeout=self._within())) if given is None else list(given)
        described = outcomes_of(self._admin.describe_topics, names, timeout=self._within())
        described.raise_first()
        return [TopicPartition(name, p) for name in names for p in described.of(name).partitions]

    def _check_leader(self, partitions: Iterable[TopicPartition], leader: int) -> None:
        described = outcomes_of(self._admin.describe_topics, sorted({topic for topic, _ in partitions}), timeout=self._within())
        described.raise_first()
        for topic, number in partitions:
            there = described.of(topic).partitions.get(number)
            if there is None:
                raise UnknownTopicOrPartition(f"topic {topic!r} has no partition {number}", topic=topic, partition=number)
            if there.leader < 0:
                raise LeaderNotFoundError(f"{topic}-{number} has no leader at the moment", topic=topic, partition=number)
            if there.leader != leader:
                text = f"partition_leader_id={leader!r}: broker {there.leader} leads {topic}-{number}"
                raise NotLeaderForPartition(text, topic=topic, partition=number)


def _mapping(name: str, given: Any) -> dict[Any, Any]:
    if not isinstance(given, Mapping):
        raise IllegalArgumentError(f"{name}={given!r}: must be a dict")
    return dict(given)


def _new_partitions(name: str, given: Any) -> NewPartitions:
    if isinstance(given, NewPartitions):
        return given
    if isinstance(given, int) and not isinstance(given, bool):
        return NewPartitions(given)
    if isinstance(given, Mapping) and "count" in given and given.keys() <= {"count", "assignments"}:
        return NewPartitions(given["count"], given.get("assignments"))
    raise IllegalArgumentError(
        f'topic_partitions[{name!r}]={given!r}: must be a number, a NewPartitions or {{"count": ..., "assignments": ...}}'
    )


def _election(told: Outcomes) -> ElectLeadersResponse:
    found: dict[str, list[PartitionElection]] = {}
    for tp, elected in sorted({**told.results, **told.errors}.items()):
        error = ElectionNotNeeded() if elected is False else elected
        found.setdefault(tp.topic, []).append(PartitionElection(tp.partition, code_of(error), text_of(error)))
    return ElectLeadersResponse(0, 0, [TopicElections(name, of) for name, of in found.items()])


def _place(cursor: Mapping[str, Any]) -> tuple[str, int]:
    place = cursor.get("topic_name"), cursor.get("partition_index")
    if not isinstance(place[0], str) or isinstance(place[1], bool) or not isinstance(place[1], int):
        raise IllegalArgumentError(f"cursor={cursor!r}: must be the next_cursor of the page before, or None")
    return place[0], place[1]


def _partitions_of(outcome: Any) -> list[PartitionDescription]:
    return list(outcome.partitions.values()) if isinstance(outcome, TopicDescription) else []


def _page(name: str, outcome: Any, partitions: list[PartitionDescription]) -> dict[str, Any]:
    topic = outcome if isinstance(outcome, TopicDescription) else None
    operations = topic.operations if topic is not None else None
    return {
        "error_code": code_of(outcome),
        "name": name,
        "topic_id": topic.topic_id if topic is not None else None,
        "is_internal": topic is not None and topic.is_internal,
        "partitions": [_of_page(p) for p in partitions],
        "topic_authorized_operations": NOT_TOLD if operations is None else _bits(operations),
    }


def _bits(operations: Iterable[AclOperation]) -> int:
    return sum(1 << operation for operation in operations)


def _of_page(p: PartitionDescription) -> dict[str, Any]:
    return {
        **partition_row(p),
        "eligible_leader_replicas": list(p.eligible_leaders) if p.eligible_leaders else None,
        "last_known_elr": list(p.last_known_eligible_leaders) if p.last_known_eligible_leaders else None,
    }
