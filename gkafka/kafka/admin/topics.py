"""KafkaAdminClient's calls about topics. Results are the dictionaries that kafka-python 3 makes of the brokers' answers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from uuid import UUID

from gkafka.admin import CreatedTopic, PartitionDescription, TopicDescription
from gkafka.exceptions import KafkaTimeoutError, UnknownTopicOrPartition
from gkafka.kafka.admin.calls import Calls, code_of, id_of, outcomes_of, text_of, topic_name, with_operations
from gkafka.kafka.admin.config_resource import ConfigSourceType
from gkafka.kafka.admin.new_topic import native_topics
from gkafka.kafka.admin.results import TopicResults, Worded
from gkafka.kafka.arguments import listed
from gkafka.kafka.errors import IllegalArgumentError

__all__ = ["TopicCalls", "described", "partition_row"]

NO_ID = UUID(int=0)
LOOK_EVERY_S = 0.1


class TopicCalls(Calls):
    """The calls about topics."""

    def create_topics(
        self,
        new_topics: Any,
        timeout_ms: float | None = None,
        validate_only: bool = False,
        raise_errors: bool = True,
        wait_for_metadata: bool = False,
    ) -> TopicResults:
        """Make topics. new_topics: names, NewTopics, or {name: {"num_partitions", "replication_factor", "assignments", "configs"}}.

        raise_errors=False: an error of a topic is its error_code and error_message. wait_for_metadata: also until all partitions have leaders; the
        call waits in any case until all brokers tell of the topics, 10 seconds at most. Raises TopicAlreadyExistsError, InvalidPartitionsError,
        InvalidReplicationFactorError, ...
        """
        if validate_only and wait_for_metadata:
            raise IllegalArgumentError("wait_for_metadata=True: with validate_only=True nothing is made that could be waited for")
        topics = native_topics(new_topics)
        told = outcomes_of(self._admin.create_topics, topics, validate_only=validate_only, timeout=self._within(timeout_ms))
        if raise_errors:
            told.raise_first()
        if wait_for_metadata:
            self.wait_for_topics([topic.name for topic in topics])
        return TopicResults(topics=[_created(topic.name, told.of(topic.name)) for topic in topics])

    def wait_for_topics(self, topic_names: Iterable[str], timeout_ms: float = 10000) -> None:
        """Wait until each topic is told of, with a leader for each partition. Raises KafkaTimeoutError that names those that are not."""
        names = list(topic_names)
        handler = self._client.handler
        deadline = handler.monotonic() + self._within(timeout_ms)
        while names:
            told = outcomes_of(self._admin.describe_topics, names, timeout=self._within())
            missing = {name: why for name in names if (why := _not_ready(told.of(name)))}
            if not missing:
                return
            if handler.monotonic() >= deadline:
                raise KafkaTimeoutError(f"topics not ready after {timeout_ms:g} ms: {missing}")
            handler.sleep(min(LOOK_EVERY_S, max(0.0, deadline - handler.monotonic())))

    def delete_topics(self, topics: Iterable[str | UUID], timeout_ms: float | None = None, raise_errors: bool = True) -> TopicResults:
        """Delete topics, by their names or ids, with all that is in them. raise_errors=False: an error of a topic is its error_code and error_message.

        Raises UnknownTopicOrPartitionError, TopicDeletionDisabledError, ...
        """
        within = self._within(timeout_ms)
        wanted = listed("topics", topics)
        names = self._names(wanted, within)
        # By the ids themselves: whoever tells the names must not choose what the controller is asked to delete.
        told = outcomes_of(self._admin.delete_topics, [one if isinstance(one, UUID) else topic_name(one) for one in wanted], timeout=within)
        if raise_errors:
            told.raise_first()
        return TopicResults(topics=[_deleted(name, told.of(one)) for one, name in zip(wanted, names, strict=True)])

    def list_topics(self) -> list[str]:
        """The names of all topics, those that the brokers keep for themselves included."""
        return list(self._admin.list_topics(internal=True, timeout=self._within()))

    def describe_topics(self, topics: Iterable[str | UUID] | None = None) -> list[dict[str, Any]]:
        """Partitions, leaders, replicas of topics, by their names or ids; None for all. An error of a topic is its error_code. Rows answer to 2.x's keys, too."""
        within = self._within()
        names = self.list_topics() if topics is None else self._names(topics, within)
        told = with_operations(self._admin.describe_topics, names, timeout=within)
        gone = topics is None
        return [described(name, told.of(name)) for name in names if not (gone and isinstance(told.of(name), UnknownTopicOrPartition))]

    def _names(self, topics: Any, within: float) -> list[str]:
        """Names as they are, and the names of ids."""
        wanted = listed("topics", topics)
        if not any(isinstance(one, UUID) for one in wanted):
            return list(map(topic_name, wanted))
        by_id = {topic.topic_id: name for name, topic in self._admin.list_topics(internal=True, timeout=within).items()}
        missing = [one for one in wanted if isinstance(one, UUID) and one not in by_id]
        if missing:
            raise UnknownTopicOrPartition(f"no topic has the id {missing[0]}")
        return [by_id[one] if isinstance(one, UUID) else topic_name(one) for one in wanted]


def _created(name: str, outcome: Any) -> dict[str, Any]:
    made = outcome if isinstance(outcome, CreatedTopic) else CreatedTopic(name, NO_ID, -1, -1, None)
    shown: dict[str, Any] = {
        "name": name,
        "topic_id": id_of(made.topic_id),
        "error_code": code_of(outcome),
        "error_message": text_of(outcome),
        "topic_config_error_code": 0,
        "num_partitions": made.partitions,
        "replication_factor": made.replication_factor,
    }
    if made.entries:
        shown["configs"] = {
            entry.name: {
                "value": entry.value,
                "read_only": entry.is_read_only,
                "config_source": ConfigSourceType(entry.source).name,
                "is_sensitive": entry.is_sensitive,
            }
            for entry in made.entries.values()
        }
    return shown


def _deleted(name: str, outcome: Any) -> dict[str, Any]:
    return {
        "name": name,
        "topic_id": id_of(outcome) if isinstance(outcome, UUID) else None,
        "error_code": code_of(outcome),
        "error_message": text_of(outcome),
    }


def described(name: str, outcome: Any) -> dict[str, Any]:
    """A topic as describe_topics() tells of it."""
    topic = outcome if isinstance(outcome, TopicDescription) else TopicDescription(name, NO_ID, False, {}, None)
    return Worded(
        {
            "error_code": code_of(outcome),
            "name": name,
            "topic_id": id_of(topic.topic_id),
            "is_internal": topic.is_internal,
            "partitions": [partition_row(p) for p in topic.partitions.values()],
            "authorized_operations": None if topic.operations is None else [op.name for op in sorted(topic.operations)],
        }
    )


def partition_row(p: PartitionDescription) -> dict[str, Any]:
    """A partition as describe_topics() tells of it."""
    return Worded(
        {
            "error_code": code_of(p.error),
            "partition_index": p.partition,
            "leader_id": p.leader,
            "leader_epoch": p.leader_epoch,
            "replica_nodes": list(p.replicas),
            "isr_nodes": list(p.isr),
            "offline_replicas": list(p.offline),
        }
    )


def _not_ready(outcome: Any) -> str | None:
    """Why a topic cannot be used yet."""
    if not isinstance(outcome, TopicDescription):
        return str(outcome)
    without = [p.partition for p in outcome.partitions.values() if p.error is not None or p.leader < 0]
    return f"no leader of partitions {without}" if without else None if outcome.partitions else "no partitions"
