"""Who is told of rebalances (kafka.consumer.subscription_state)."""

from __future__ import annotations

import abc

from gkafka.kafka.structs import TopicPartition

__all__ = ["ConsumerRebalanceListener"]


class ConsumerRebalanceListener(abc.ABC):
    """Called by the worker of the group's membership, one call at a time. It may call the consumer: commit(), position(), seek(), pause().

    Nothing of a partition is handed out between its two calls. What a call raises is logged.
    """

    @abc.abstractmethod
    def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        """These are given up when it returns; their offsets can be committed."""

    @abc.abstractmethod
    def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        """These are this consumer's now."""

    def on_partitions_lost(self, lost: set[TopicPartition]) -> None:
        """These were lost: others may have them already, and nothing can be committed. Unless it is overridden they count as revoked."""
        self.on_partitions_revoked(lost)
