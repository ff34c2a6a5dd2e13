"""What KafkaAdminClient's calls return of several things, readable as in kafka-python 3 and by the names and places of 2.x."""

from __future__ import annotations

from typing import Any, NamedTuple

__all__ = [
    "CreatePartitionsResponse",
    "ElectLeadersResponse",
    "PartitionElection",
    "TopicElections",
    "TopicPartitionsResult",
    "TopicResults",
]


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
