"""Topics: made, deleted, listed, described, grown, and shortened at their start."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

from gkafka.admin.arguments import (
    by_topic,
    check_configs,
    check_replicas,
    check_topic_names,
    items_of,
    one_partition,
)
from gkafka.admin.changes import hide_configs
from gkafka.admin.configs import ConfigEntry
from gkafka.admin.enums import AclOperation, ConfigSource, known, operations_of
from gkafka.admin.requests import Subject, metadata_request
from gkafka.checks import check_count, check_mapping, check_offset, check_topic_name
from gkafka.common import TopicPartition
from gkafka.core.metadata import NO_TOPIC_ID
from gkafka.exceptions import (
    AdminError,
    BrokerError,
    ConfigurationError,
    KafkaException,
    KafkaTimeoutError,
    LeaderNotAvailable,
    UnknownTopicOrPartition,
    UnsupportedVersion,
    error_for,
)
from gkafka.unseen import refused, unseen
from gkafka.wire.admin import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from gkafka.wire.topicadmin import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)

__all__ = ["CreatedTopic", "NewTopic", "PartitionDescription", "TopicDescription", "TopicListing", "TopicsAdmin"]

T = TypeVar("T", str, UUID)
INT16 = (1 << 15) - 1
KNOWN_S = 10.0
"""How long a new topic may take until brokers tell of it."""
NOT_YET = (UnknownTopicOrPartition.code, LeaderNotAvailable.code)


class NewTopic(NamedTuple):
    """A topic to be made. partitions, replication_factor: -1 leaves it to the brokers (2.4 and newer).

    replicas: instead of both, the brokers of each partition, the preferred leader first: {0: [1, 2], 1: [2, 3]}.
    """

    name: str
    partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, Any] | None = None
    replicas: Mapping[int, Sequence[int]] | None = None

    def __repr__(self) -> str:
        shown = {**self._asdict(), "configs": hide_configs(self.configs)}
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in shown.items())})"


class CreatedTopic(NamedTuple):
    """A topic as it was made, or would be. partitions, replication_factor and configs: -1 and None where brokers do not tell (before 2.4).

    entries: the configuration with where each value comes from.
    """

    name: str
    topic_id: UUID
    partitions: int
    replication_factor: int
    configs: dict[str, str | None] | None
    entries: dict[str, ConfigEntry] | None = None


class TopicListing(NamedTuple):
    """topic_id: all zero where brokers know none (before 2.8). partitions: their number."""

    name: str
    topic_id: UUID
    partitions: int
    is_internal: bool


class PartitionDescription(NamedTuple):
    """leader: a broker's id, -1 for none; then `error` says why. offline: replicas on brokers or disks that are down.

    eligible_leaders, last_known_eligible_leaders: beside the in-sync replicas, of KIP-966; None where brokers do not tell.
    """

    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline: tuple[int, ...]
    error: BrokerError | None
    eligible_leaders: tuple[int, ...] | None = None
    last_known_eligible_leaders: tuple[int, ...] | None = None


class TopicDescription(NamedTuple):
    """partitions: by number, in order. operations: what the asker may do to it, None where that was not asked for or is not told."""

    name: str
    topic_id: UUID
    is_internal: bool
    partitions: dict[int, PartitionDescription]
    operations: frozenset[AclOperation] | None


class TopicsAdmin(Subject):
    """The calls about topics."""

    def create_topics(
        self, topics: Iterable[NewTopic | str], *, validate_only: bool = False, timeout: float | None = None
    ) -> dict[str, CreatedTopic]:
        """Make topics, and wait until all brokers that answer tell of them, 10 seconds at most.

        A name alone has the brokers' defaults. validate_only: only say whether it could be. After a lost answer a topic may be told to be there already: that was this call. Item errors: TopicAlreadyExists, InvalidPartitions,
        InvalidReplicationFactor, InvalidConfig, PolicyViolation, ...
        """
        topics = _hidden(topics)
        made_of = [_creatable(topic) for topic in items_of("topics", topics)]
        wanted = {topic.name: topic for topic in made_of}
        if len(wanted) < len(made_of):
            raise ConfigurationError("topics: one of them is named twice; each must be there once")
        deadline = self._requests.begin(timeout)

        def attempt(names: list[str]) -> dict[str, CreatedTopic | KafkaException]:
            request = CreateTopicsRequest(
                topics=[wanted[name] for name in names], timeout_ms=self._requests.share_ms(deadline), validate_only=validate_only
            )
            response, controller = self._requests.controller(request, deadline)
            return {
                t.name: error_for(t.error_code, t.error_message, topic=t.name, broker=controller, api="CreateTopics") or _created(t)
                for t in response.topics
            }

        made: Iterable[str] = ()
        try:
            created = self._requests.settle("creating topics", wanted, attempt, deadline)
            made = created
        except AdminError as exc:
            made = exc.results
            raise
        finally:
            if made and not validate_only:
                self._wait_until_known(list(made), min(deadline, self._requests.begin(KNOWN_S)))
        return created

    def _wait_until_known(self, names: list[str], deadline: float) -> None:
        """Ask each broker until it tells of them all; whoever does not answer, or tells the asker nothing, is not waited for."""

        def read(response: Any, mine: list[int], broker: str) -> dict[int, KafkaException | None]:
            lags = any(t.error_code in NOT_YET for t in response.topics)
            return {id_: _BrokerLagsError(f"{broker} does not tell of the new topics yet") if lags else None for id_ in mine}

        def attempt(left: list[int]) -> dict[int, KafkaException | None]:
            there = self._requests.brokers(deadline)
            asked = [id_ for id_ in left if id_ in there]
            told = self._requests.by_broker(asked, there, lambda _: metadata_request(names), read, deadline)
            return {id_: told.get(id_) if isinstance(told.get(id_), _BrokerLagsError) else None for id_ in left}

        with contextlib.suppress(AdminError, KafkaTimeoutError):  # they are made, whoever tells of them later
            self._requests.settle("waiting for new topics", self._requests.brokers(deadline), attempt, deadline)

    def delete_topics(self, topics: Iterable[T], *, timeout: float | None = None) -> dict[T, UUID]:
        """Delete topics with all that is in them, by their names or by their ids (2.8 and newer). Returns the ids that they had, all zero before 2.8.

        Item errors: UnknownTopicOrPartition, UnknownTopicId, TopicDeletionDisabled, ...
        """
        wanted: list[Any] = [one if isinstance(one, UUID) else check_topic_name(one) for one in items_of("topics", topics)]
        deadline = self._requests.begin(timeout)

        def attempt(left: list[T]) -> dict[Any, UUID | KafkaException]:
            states = [DeleteTopicState(topic_id=one) if isinstance(one, UUID) else DeleteTopicState(name=one) for one in left]
            request = DeleteTopicsRequest(topics=states, timeout_ms=self._requests.share_ms(deadline))
            response, controller = self._requests.controller(request, deadline)
            outcomes: dict[Any, UUID | KafkaException] = {}
            for t in response.responses:
                error = error_for(t.error_code, t.error_message, topic=t.name, broker=controller, api="DeleteTopics")
                outcomes[t.name] = outcomes[t.topic_id] = t.topic_id if error is None else error
            return outcomes

        return self._requests.settle("deleting topics", wanted, attempt, deadline)

    def list_topics(self, *, internal: bool = False, timeout: float | None = None) -> dict[str, TopicListing]:
        """All topics that the asker may describe. internal: also those that brokers keep for themselves."""
        response = self._requests.metadata(None, self._requests.begin(timeout))
        listed = (t for t in response.topics if not t.error_code and t.name is not None and (internal or not t.is_internal))
        found = [TopicListing(t.name or "", t.topic_id, len(t.partitions), t.is_internal) for t in listed]
        return {t.name: t for t in sorted(found)}

    def describe_topics(
        self, topics: Iterable[str], *, operations: bool = False, timeout: float | None = None
    ) -> dict[str, TopicDescription]:
        """Partitions, leaders, replicas. operations: also what the asker may do. Item errors: UnknownTopicOrPartition, TopicAuthorizationFailed."""
        names = check_topic_names(topics)
        deadline = self._requests.begin(timeout)

        def attempt(left: list[str]) -> dict[str, TopicDescription | KafkaException]:
            try:
                return self._by_pages(left, operations, deadline)
            except UnsupportedVersion:  # brokers before 3.8, and those without KRaft
                response = self._requests.metadata(left, deadline, operations=operations)
                return {t.name or "": _refused(t, "Metadata") or _described(t, operations) for t in response.topics}

        return self._requests.settle("describing topics", names, attempt, deadline)

    def _by_pages(self, names: list[str], operations: bool, deadline: float) -> dict[str, TopicDescription | KafkaException]:
        found: dict[str, TopicDescription | KafkaException] = {}
        request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name=name) for name in sorted(names)])
        while True:
            response, _ = self._requests.anyone(request, deadline)
            for topic in response.topics:
                page = _refused(topic, "DescribeTopicPartitions") or _described(topic, operations)
                before = found.get(topic.name)
                if isinstance(page, TopicDescription) and isinstance(before, TopicDescription):
                    before.partitions.update(page.partitions)
                else:
                    found[topic.name] = page
            cursor = response.next_cursor
            if cursor is None or (request.cursor is not None and request.cursor == cursor):
                return found
            request.cursor = cursor
            request.topics = [topic for topic in request.topics if topic.name >= cursor.topic_name]

    def create_partitions(
        self,
        totals: Mapping[str, int],
        *,
        replicas: Mapping[str, Sequence[Sequence[int]]] | None = None,
        validate_only: bool = False,
        timeout: float | None = None,
    ) -> None:
        """Have topics get more partitions. totals: how many there shall be, old and new. replicas: for a topic, the brokers of each new one.

        Records with a key go to other partitions from then on. Item errors: InvalidPartitions, ReassignmentInProgress, ...
        """
        counts = {
            check_topic_name(name): check_count("totals", count)
            for name, count in check_mapping("totals", totals, '{"orders": 12}').items()
        }
        placed = {
            check_topic_name(name): [check_replicas("replicas", ids) for ids in items_of("replicas", of)]
            for name, of in check_mapping("replicas", replicas or {}, '{"orders": [[1, 2]]}').items()
        }
        if strangers := placed.keys() - counts.keys():
            raise ConfigurationError(f"replicas: {', '.join(sorted(strangers))} must be in totals, too")
        deadline = self._requests.begin(timeout)

        def attempt(left: list[str]) -> dict[str, KafkaException | None]:
            topics = [CreatePartitionsTopic(name=name, count=counts[name], assignments=_new_replicas(placed.get(name))) for name in left]
            request = CreatePartitionsRequest(topics=topics, timeout_ms=self._requests.share_ms(deadline), validate_only=validate_only)
            response, controller = self._requests.controller(request, deadline)
            return {
                t.name: error_for(t.error_code, t.error_message, topic=t.name, broker=controller, api="CreatePartitions")
                for t in response.results
            }

        self._requests.settle("creating partitions", counts, attempt, deadline)

    def delete_records(self, before: Mapping[tuple[str, int], int], *, timeout: float | None = None) -> dict[TopicPartition, int]:
        """Drop the records before an offset, -1 for all that there are. Returns where each partition begins now.

        Item errors: OffsetOutOfRangeError, UnknownTopicOrPartition, PolicyViolation for compacted topics, ...
        """
        offsets = {
            one_partition(tp): check_offset("offset", offset, low=-1)
            for tp, offset in check_mapping("before", before, '{("orders", 0): 1000}').items()
        }
        deadline = self._requests.begin(timeout)

        def request_of(mine: list[TopicPartition]) -> DeleteRecordsRequest:
            topics = [
                DeleteRecordsTopic(
                    name=name,
                    partitions=[DeleteRecordsPartition(partition_index=p, offset=offsets[TopicPartition(name, p)]) for p in numbers],
                )
                for name, numbers in by_topic(mine).items()
            ]
            # Half of the time: a leader that misses a follower's answer says so only when that is over, and has it at the next try.
            return DeleteRecordsRequest(topics=topics, timeout_ms=max(1, self._requests.share_ms(deadline) // 2))

        def read(response: Any, mine: list[TopicPartition], broker: str) -> dict[TopicPartition, int | KafkaException]:
            found: dict[TopicPartition, int | KafkaException] = {}
            for topic in response.topics:
                for p in topic.partitions:
                    error = error_for(p.error_code, topic=topic.name, partition=p.partition_index, broker=broker, api="DeleteRecords")
                    found[TopicPartition(topic.name, p.partition_index)] = p.low_watermark if error is None else error
            return found

        def attempt(left: list[TopicPartition]) -> dict[TopicPartition, int | KafkaException]:
            return self._requests.by_broker(left, self._requests.leaders(left, deadline), request_of, read, deadline)

        return self._requests.settle("deleting records", offsets, attempt, deadline, repeatable=True)

    def _partitions_of(self, topics: Iterable[str], deadline: float) -> list[TopicPartition]:
        """All partitions of these topics. Raises the error of the first that has none."""
        names = set(topics)
        told = [topic for topic in self._requests.metadata(names, deadline).topics if topic.name in names]
        for topic in told:
            error = _refused(topic, "Metadata")
            if error is not None:
                raise error
        return sorted(TopicPartition(t.name or "", p.partition_index) for t in told for p in t.partitions)


def _hidden(topics: Any) -> Any:
    """What is no NewTopic and no name, as another client's dict, may hold a password: it becomes what nothing shows."""
    if isinstance(topics, (str, bytes)) or not isinstance(topics, Iterable):
        return topics
    return [one if isinstance(one, (str, bytes, NewTopic)) else unseen(one) for one in topics]


def _creatable(given: Any) -> CreatableTopic:
    topic = NewTopic(check_topic_name(given)) if isinstance(given, (str, bytes)) else given
    if not isinstance(topic, NewTopic):
        raise refused("topics", given, "must be NewTopics or names")
    name = check_topic_name(topic.name)
    configs = [
        CreatableTopicConfig(name=key, value=value) for key, value in check_configs("configs", hide_configs(topic.configs or {})).items()
    ]
    if topic.replicas is None:
        partitions = _count_or_default("partitions", topic.partitions)
        factor = _count_or_default("replication_factor", topic.replication_factor, INT16)
        return CreatableTopic(name=name, num_partitions=partitions, replication_factor=factor, configs=configs)
    if (topic.partitions, topic.replication_factor) != (-1, -1):
        raise ConfigurationError(f"topic {name!r}: replicas say how many partitions and copies there are; give no partitions beside them")
    replicas = check_mapping("replicas", topic.replicas, "{0: [1, 2]}")
    if sorted(check_count("replicas", number, low=0) for number in replicas) != list(range(max(1, len(replicas)))):
        raise ConfigurationError(f"topic {name!r}: replicas must name the partitions from 0 on, none left out")
    assignments = [
        CreatableReplicaAssignment(partition_index=number, broker_ids=check_replicas("replicas", ids)) for number, ids in replicas.items()
    ]
    return CreatableTopic(name=name, num_partitions=-1, replication_factor=-1, assignments=assignments, configs=configs)


def _count_or_default(name: str, value: Any, high: int = (1 << 31) - 1) -> int:
    return -1 if type(value) is int and value == -1 else check_count(name, value, high=high)


def _created(topic: Any) -> CreatedTopic:
    entries = None if not topic.configs else {entry.name: _entry(entry) for entry in topic.configs}
    configs = None if entries is None else {name: entry.value for name, entry in entries.items()}
    return CreatedTopic(topic.name, topic.topic_id, topic.num_partitions, topic.replication_factor, configs, entries)


def _entry(told: Any) -> ConfigEntry:
    source = known(ConfigSource, max(0, told.config_source))
    return ConfigEntry(
        told.name, told.value, source, source is ConfigSource.DEFAULT, told.read_only, told.is_sensitive, "unknown", (), None
    )


def _new_replicas(placed: list[list[int]] | None) -> list[CreatePartitionsAssignment] | None:
    return None if placed is None else [CreatePartitionsAssignment(broker_ids=ids) for ids in placed]


def _refused(topic: Any, api: str) -> KafkaException | None:
    return error_for(topic.error_code, topic=topic.name, api=api)


class _BrokerLagsError(KafkaException):
    """A topic that is there, and not everywhere yet."""

    retriable = True


def _described(topic: Any, operations: bool) -> TopicDescription:
    partitions = {p.partition_index: _partition(topic.name, p) for p in sorted(topic.partitions, key=lambda p: int(p.partition_index))}
    allowed = operations_of(topic.topic_authorized_operations) if operations else None
    return TopicDescription(topic.name, getattr(topic, "topic_id", NO_TOPIC_ID), topic.is_internal, partitions, allowed)


def _partition(topic: str, p: Any) -> PartitionDescription:
    error = error_for(p.error_code, topic=topic, partition=p.partition_index, api="Metadata")
    eligible, last = getattr(p, "eligible_leader_replicas", None), getattr(p, "last_known_elr", None)
    return PartitionDescription(
        p.partition_index,
        p.leader_id,
        p.leader_epoch,
        tuple(p.replica_nodes),
        tuple(p.isr_nodes),
        tuple(p.offline_replicas),
        error,
        None if eligible is None else tuple(eligible),
        None if last is None else tuple(last),
    )
