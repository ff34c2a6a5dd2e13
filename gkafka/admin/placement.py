"""Where replicas are and which of them leads: elections, reassignments, log directories."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from gkafka.admin.arguments import by_topic, check_partitions, check_replicas, check_topic_names, items_of, one_partition
from gkafka.admin.requests import Subject, in_parts
from gkafka.brokererrors import BrokerError, ElectionNotNeeded
from gkafka.checks import check_count, check_flag, check_mapping, check_name
from gkafka.common import TopicPartition
from gkafka.exceptions import ConfigurationError, KafkaException, error_for
from gkafka.wire.placement import (
    AlterPartitionReassignmentsRequest,
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    ElectLeadersRequest,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
    ReassignablePartition,
    ReassignableTopic,
    TopicPartitions,
)

if TYPE_CHECKING:
    from gkafka.broker import Broker

__all__ = ["LogDir", "PlacementAdmin", "Reassignment", "ReplicaInDir", "ReplicaOnBroker"]

PREFERRED, UNCLEAN = 0, 1


class Reassignment(NamedTuple):
    """A reassignment under way. replicas: all that there are now, those that come and those that go included."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


class ReplicaInDir(NamedTuple):
    """size: bytes. lag: records that it is behind. is_future: it is being moved here and replaces the one there."""

    size: int
    lag: int
    is_future: bool


class LogDir(NamedTuple):
    """A directory of a broker. error: why it is offline, else None. total, usable: bytes of its volume, -1 before 3.3."""

    error: BrokerError | None
    replicas: dict[TopicPartition, ReplicaInDir]
    total: int
    usable: int


class ReplicaOnBroker(NamedTuple):
    """A partition's replica on one broker."""

    topic: str
    partition: int
    broker: int


class PlacementAdmin(Subject):
    """The calls about replicas."""

    def elect_leaders(
        self, partitions: Iterable[tuple[str, int]] | None = None, *, unclean: bool = False, timeout: float | None = None
    ) -> dict[TopicPartition, bool]:
        """Have the preferred replicas lead; True where that is news, False where they did already. partitions: None for all.

        unclean: where there is no leader, any replica that is alive: records may be lost (2.4 and newer).
        Item errors: PreferredLeaderNotAvailable, EligibleLeadersNotAvailable, UnknownTopicOrPartition, ...
        """
        wanted = None if partitions is None else check_partitions(partitions)
        kind = UNCLEAN if check_flag("unclean", unclean) else PREFERRED
        deadline = self._requests.begin(timeout)

        def ask(topics: list[TopicPartitions] | None) -> dict[TopicPartition, bool | KafkaException]:
            request = ElectLeadersRequest(election_type=kind, topic_partitions=topics, timeout_ms=self._requests.share_ms(deadline))
            response, controller = self._requests.controller(request, deadline)
            error = error_for(response.error_code, broker=controller, api="ElectLeaders")
            if error is not None:
                raise error
            return {
                TopicPartition(t.topic, p.partition_id): _elected(t.topic, p, controller)
                for t in response.replica_election_results
                for p in t.partition_result
            }

        def attempt(left: list[TopicPartition]) -> dict[TopicPartition, bool | KafkaException]:
            return ask([TopicPartitions(topic=name, partitions=numbers) for name, numbers in by_topic(left).items()])

        if wanted is not None:
            return self._requests.settle("electing leaders", wanted, attempt, deadline)
        outcomes = self._requests.settle("electing leaders", [""], lambda _: {"": ask(None)}, deadline)[""]
        errors = {tp: outcome for tp, outcome in outcomes.items() if isinstance(outcome, KafkaException)}
        results = {tp: outcome for tp, outcome in outcomes.items() if not isinstance(outcome, KafkaException)}
        return self._requests.all_or_error("electing leaders", errors, results)

    def alter_reassignments(self, replicas: Mapping[tuple[str, int], Sequence[int] | None], *, timeout: float | None = None) -> None:
        """Begin to move partitions to other brokers, the preferred leader first; None cancels what is under way (2.4 and newer).

        Item errors: NoReassignmentInProgress, InvalidReplicaAssignment, UnknownTopicOrPartition, ...
        """
        wanted = {
            one_partition(tp): None if ids is None else check_replicas("replicas", ids)
            for tp, ids in check_mapping("replicas", replicas, '{("orders", 0): [2, 3]}').items()
        }
        deadline = self._requests.begin(timeout)

        def attempt(left: list[TopicPartition]) -> dict[TopicPartition, KafkaException | None]:
            topics = [
                ReassignableTopic(
                    name=name,
                    partitions=[ReassignablePartition(partition_index=p, replicas=wanted[TopicPartition(name, p)]) for p in numbers],
                )
                for name, numbers in by_topic(left).items()
            ]
            request = AlterPartitionReassignmentsRequest(timeout_ms=self._requests.share_ms(deadline), topics=topics)
            response, controller = self._requests.controller(request, deadline)
            about = {"broker": controller, "api": "AlterPartitionReassignments"}
            error = error_for(response.error_code, response.error_message, **about)
            if error is not None:
                raise error
            return {
                TopicPartition(t.name, p.partition_index): error_for(
                    p.error_code, p.error_message, topic=t.name, partition=p.partition_index, **about
                )
                for t in response.responses
                for p in t.partitions
            }

        self._requests.settle("reassigning partitions", wanted, attempt, deadline)

    def list_reassignments(
        self, partitions: Iterable[tuple[str, int]] | None = None, *, timeout: float | None = None
    ) -> dict[TopicPartition, Reassignment]:
        """What is being moved now. partitions: of these, None for all (2.4 and newer)."""
        topics = None
        if partitions is not None:
            wanted = by_topic(check_partitions(partitions))
            topics = [ListPartitionReassignmentsTopics(name=name, partition_indexes=numbers) for name, numbers in wanted.items()]
        deadline = self._requests.begin(timeout)

        def attempt(_: list[str]) -> dict[str, dict[TopicPartition, Reassignment]]:
            request = ListPartitionReassignmentsRequest(timeout_ms=self._requests.share_ms(deadline), topics=topics)
            response, controller = self._requests.controller(request, deadline)
            error = error_for(response.error_code, response.error_message, broker=controller, api="ListPartitionReassignments")
            if error is not None:
                raise error
            return {
                "": {
                    TopicPartition(t.name, p.partition_index): Reassignment(
                        tuple(p.replicas), tuple(p.adding_replicas), tuple(p.removing_replicas)
                    )
                    for t in response.topics
                    for p in t.partitions
                }
            }

        return self._requests.settle("listing reassignments", [""], attempt, deadline)[""]

    def describe_log_dirs(
        self, brokers: Iterable[int] | None = None, topics: Iterable[str] | None = None, *, timeout: float | None = None
    ) -> dict[int, dict[str, LogDir]]:
        """What lies in the directories of each broker, by path. brokers, topics: only these. The items of an AdminError are brokers' ids."""
        ids = None if brokers is None else [check_count("brokers", one, low=0) for one in items_of("brokers", brokers)]
        names = None if topics is None else check_topic_names(topics)
        deadline = self._requests.begin(timeout)
        requests = [DescribeLogDirsRequest(topics=None)]
        if names is not None:
            requests = [DescribeLogDirsRequest(topics=some) for some in in_parts(self._describable(names, deadline)) or [[]]]

        def read(response: Any, mine: list[int], broker: str) -> dict[int, dict[str, LogDir] | KafkaException]:
            error = error_for(response.error_code, broker=broker, api="DescribeLogDirs")
            if error is not None:
                raise error
            return {id_: {result.log_dir: _log_dir(result, broker) for result in response.results} for id_ in mine}

        def attempt(left: list[int]) -> dict[int, dict[str, LogDir] | KafkaException]:
            places = self._places(left, deadline)
            found: dict[int, dict[str, LogDir] | KafkaException] = {}
            for request in requests:
                told = self._requests.by_broker(left, places, functools.partial(_same, request), read, deadline)
                found = {id_: _both(found.get(id_, {}), answer) for id_, answer in told.items()}
                places |= {id_: outcome for id_, outcome in found.items() if isinstance(outcome, KafkaException)}
            return found

        everybody = sorted(self._requests.brokers(deadline)) if ids is None else ids
        return self._requests.settle("describing log directories", everybody, attempt, deadline)

    def _describable(self, names: list[str], deadline: float) -> list[DescribableLogDirTopic]:
        topics = [topic for topic in self._requests.metadata(names, deadline).topics if topic.name in names]
        return [DescribableLogDirTopic(topic=t.name or "", partitions=[p.partition_index for p in t.partitions]) for t in topics]

    def alter_replica_log_dirs(self, paths: Mapping[tuple[str, int, int], str], *, timeout: float | None = None) -> None:
        """Begin to move replicas between the directories of their broker: {("orders", 0, 1): "/disk2"} is orders-0 on broker 1.

        Item errors: LogDirNotFound, ReplicaNotAvailable where the broker has none, KafkaStorageError, ...
        """
        wanted = {
            _replica(key): check_name("path", path) for key, path in check_mapping("paths", paths, '{("orders", 0, 1): "/disk2"}').items()
        }
        deadline = self._requests.begin(timeout)

        def request_of(mine: list[ReplicaOnBroker]) -> AlterReplicaLogDirsRequest:
            dirs: dict[str, list[TopicPartition]] = {}
            for replica in mine:
                dirs.setdefault(wanted[replica], []).append(TopicPartition(replica.topic, replica.partition))
            return AlterReplicaLogDirsRequest(
                dirs=[
                    AlterReplicaLogDir(
                        path=path,
                        topics=[AlterReplicaLogDirTopic(name=name, partitions=numbers) for name, numbers in by_topic(these).items()],
                    )
                    for path, these in dirs.items()
                ]
            )

        def read(response: Any, mine: list[ReplicaOnBroker], broker: str) -> dict[ReplicaOnBroker, KafkaException | None]:
            return {
                ReplicaOnBroker(t.topic_name, p.partition_index, id_): error_for(
                    p.error_code, topic=t.topic_name, partition=p.partition_index, broker=broker, api="AlterReplicaLogDirs"
                )
                for id_ in {replica.broker for replica in mine}
                for t in response.results
                for p in t.partitions
            }

        def attempt(left: list[ReplicaOnBroker]) -> dict[ReplicaOnBroker, KafkaException | None]:
            brokers = self._places({replica.broker for replica in left}, deadline)
            places = {replica: brokers[replica.broker] for replica in left}
            return self._requests.by_broker(left, places, request_of, read, deadline)

        self._requests.settle("moving replicas between directories", wanted, attempt, deadline)

    def _places(self, ids: Iterable[int], deadline: float) -> dict[int, Broker | KafkaException]:
        there = self._requests.brokers(deadline)
        known = ", ".join(map(str, sorted(there)))
        return {id_: there.get(id_, ConfigurationError(f"broker {id_} is not in the cluster, which has {known}")) for id_ in ids}


def _elected(topic: str, result: Any, broker: str) -> bool | KafkaException:
    about = {"topic": topic, "partition": result.partition_id, "broker": broker, "api": "ElectLeaders"}
    error = error_for(result.error_code, result.error_message, **about)
    if isinstance(error, ElectionNotNeeded):
        return False
    return True if error is None else error


def _log_dir(result: Any, broker: str) -> LogDir:
    replicas = {
        TopicPartition(t.name, p.partition_index): ReplicaInDir(p.partition_size, p.offset_lag, p.is_future_key)
        for t in result.topics
        for p in t.partitions
    }
    return LogDir(error_for(result.error_code, broker=broker, api="DescribeLogDirs"), replicas, result.total_bytes, result.usable_bytes)


def _same(request: DescribeLogDirsRequest, _: list[int]) -> DescribeLogDirsRequest:
    return request


def _both(before: dict[str, LogDir] | KafkaException, more: dict[str, LogDir] | KafkaException) -> dict[str, LogDir] | KafkaException:
    """What two answers of one broker tell of its directories; an error in place of both."""
    if isinstance(before, KafkaException) or isinstance(more, KafkaException):
        return more if isinstance(more, KafkaException) else before
    return before | {
        path: told._replace(replicas=before[path].replicas | told.replicas) if path in before else told for path, told in more.items()
    }


def _replica(given: Any) -> ReplicaOnBroker:
    if not isinstance(given, tuple) or len(given) != 3:
        raise ConfigurationError(f'paths: {given!r} must be (topic, partition, broker), such as ("orders", 0, 1)')
    return ReplicaOnBroker(*one_partition(given[:2]), check_count("broker", given[2], low=0))
