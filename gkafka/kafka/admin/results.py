"""What KafkaAdminClient's calls return of several things, readable as in kafka-python 3 and by the names and places of 2.x."""

from __future__ import annotations

from typing import Any, NamedTuple

__all__ = [
    "CreatePartitionsResponse",
    "ElectLeadersResponse",
    "PartitionElection",
    "ResourceKind",
    "TopicElections",
    "TopicPartitionsResult",
    "TopicResults",
    "ValuesByKind",
    "Worded",
]

WORDS = {
    "topic": "name",
    "partition": "partition_index",
    "leader": "leader_id",
    "replicas": "replica_nodes",
    "isr": "isr_nodes",
    "node_id": "broker_id",
}
"""What 2.x calls the keys of topics, partitions and brokers -> what 3.0 does."""


class Worded(dict[str, Any]):
    """A dictionary of 3.0's keys, which answers to 2.x's as well: by [], get() and `in`. It has and shows the former alone."""

    def __missing__(self, key: Any) -> Any:
        known = WORDS.get(key)
        if known is None or not dict.__contains__(self, known):
            raise KeyError(key)
        return self[known]

    def __contains__(self, key: object) -> bool:
        return dict.__contains__(self, key) or dict.__contains__(self, WORDS.get(str(key)))

    def copy(self) -> Worded:
        """Return a copy that answers to both."""
        return Worded(self)

    def get(self, key: Any, default: Any = None) -> Any:
        """The value, or default."""
        return super().get(key if dict.__contains__(self, key) else WORDS.get(key, key), default)


class ResourceKind(str):
    """ "topic" or "broker", with 2.x's rows of that kind: (error code, error message, type's number, name, values), each value
    (name, value, is read only, source's number, is sensitive, synonyms)."""

    def __init__(self, _word: str) -> None:
        self.resources: list[tuple[Any, ...]] = []


class ValuesByKind(dict[str, Any]):
    """3.0's {kind: {name: values}}. Its keys, and [0] and [1], have what 2.x's list of responses has: resources."""

    def __missing__(self, key: Any) -> Any:
        if isinstance(key, int):
            return list(self)[key]
        raise KeyError(key)


class TopicResults(dict[str, Any]):
    """A dictionary with a row for each topic under "topics", as 3.0 has it. topic_errors, topic_error_codes: those rows as tuples, as 2.x has them."""

    @property
    def topic_errors(self) -> list[tuple[str, int, str | None]]:
        """(topic, error code, error message) of each."""
        return [(topic["name"], topic["error_code"], topic["error_message"]) for topic in self["topics"]]

    @property
    def topic_error_codes(self) -> list[tuple[str, int]]:
        """(topic, error code) of each."""
        return [(topic["name"], topic["error_code"]) for topic in self["topics"]]


class TopicPartitionsResult(NamedTuple):
    """What became of a topic that was to get more partitions."""

    name: str
    error_code: int
    error_message: str | None


class CreatePartitionsResponse(NamedTuple):
    """One result for each topic. topic_errors is 2.x's name of the results."""

    throttle_time_ms: int
    results: list[TopicPartitionsResult]

    @property
    def topic_errors(self) -> list[TopicPartitionsResult]:
        """The results."""
        return self.results


class PartitionElection(NamedTuple):
    """What became of a partition's election."""

    partition_id: int
    error_code: int
    error_message: str | None


class TopicElections(NamedTuple):
    """What became of a topic's elections."""

    topic: str
    partition_result: list[PartitionElection]


class ElectLeadersResponse(NamedTuple):
    """One result for each topic. replication_election_results is 2.x's name of them."""

    throttle_time_ms: int
    error_code: int
    replica_election_results: list[TopicElections]

    @property
    def replication_election_results(self) -> list[TopicElections]:
        """The results."""
        return self.replica_election_results
