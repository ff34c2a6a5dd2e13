"""What is known of a cluster, as kafka-python's partitioners and assignors ask for it (kafka.cluster)."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from gkafka.kafka.structs import TopicPartition
from gkafka.skins import BrokerInfo, Metadata

__all__ = ["ClusterMetadata", "Partitions"]


class Partitions:
    """Topics and their partitions. topics: name -> something for each partition, in order."""

    def __init__(self, topics: Mapping[str, Collection[object]]) -> None:
        self._topics = topics

    def topics(self, exclude_internal_topics: bool = True) -> set[str]:
        """The names of those that are known."""
        return set(self._topics)

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        """All partitions; None for a topic that is not known."""
        return set(range(len(self._topics[topic]))) if topic in self._topics else None

    def available_partitions_for_topic(self, topic: str) -> set[int] | None:
        """The same: an assignor deals out partitions without a leader as well."""
        return self.partitions_for_topic(topic)


class ClusterMetadata:
    """The cluster as the last answer told it. Nothing is asked for."""

    def __init__(self, metadata: Metadata) -> None:
        self._metadata = metadata

    def brokers(self) -> set[BrokerInfo]:
        """Those that are known."""
        return set(self._metadata.brokers.values())

    def broker_metadata(self, broker_id: int) -> BrokerInfo | None:
        """One of them."""
        return self._metadata.brokers.get(broker_id)

    def topics(self, exclude_internal_topics: bool = True) -> set[str]:
        """The names of those that are known."""
        topics = list(self._metadata.topics.values())
        return {info.name for info in topics if info.error is None and not (exclude_internal_topics and info.is_internal)}

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        """All partitions; None for a topic that is not known."""
        info = self._metadata.topic(topic)
        return set(info.partitions) if info is not None else None

    def available_partitions_for_topic(self, topic: str) -> set[int] | None:
        """The partitions that have a leader."""
        info = self._metadata.topic(topic)
        return {p.id for p in list(info.partitions.values()) if p.leader >= 0} if info is not None else None

    def leader_for_partition(self, partition: TopicPartition) -> int | None:
        """The id of the broker that leads; -1 while there is none, None for a partition that is not known."""
        info = self._metadata.topic(partition.topic)
        known = info.partitions.get(partition.partition) if info is not None else None
        return known.leader if known is not None else None
