"""What a cluster knows: topics, partitions and their leaders, groups' offsets, producer ids."""

from __future__ import annotations

import re
import uuid
from typing import NamedTuple

from gkafka.testing.logs import PartitionLog

__all__ = ["Committed", "Partition", "State", "Topic", "TransactionState", "coordinator_slot"]

LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")
NO_LEADER = -1


class Partition:
    """One partition: who leads it, who has a copy, and the one log that they share here."""

    def __init__(self, topic: str, index: int, replicas: list[int]) -> None:
        self.topic = topic
        self.index = index
        self.replicas = replicas
        self.isr = list(replicas)
        self.leader = replicas[0]
        self.epoch = 0
        self.log = PartitionLog()
        self.epochs: list[tuple[int, int]] = [(0, 0)]  # (leader epoch, first offset of it)

    def lead(self, broker: int) -> None:
        """A new leader, in a new epoch."""
        self.leader = broker
        self.epoch += 1
        self.epochs.append((self.epoch, self.log.end))

    def end_of_epoch(self, asked: int) -> tuple[int, int]:
        """The largest epoch that is not above the one asked for, and where it ended. (-1, -1): a newer one than there ever was.

        Source: LeaderEpochFileCache.endOffsetFor
        """
        if not 0 <= asked <= self.epoch:
            return -1, -1
        older = [at for at, (epoch, _) in enumerate(self.epochs) if epoch <= asked]
        if not older:
            return asked, self.epochs[0][1]
        at = older[-1]
        return self.epochs[at][0], self.epochs[at + 1][1] if at + 1 < len(self.epochs) else self.log.end

    def truncate(self, offset: int) -> None:
        """What an unclean election loses, and the epochs that began there."""
        self.log.truncate(offset)
        self.epochs = [(epoch, start) for epoch, start in self.epochs if start < self.log.end] or self.epochs[:1]
        self.lead(self.leader)

    def broker_stopped(self, broker: int, up: set[int]) -> None:
        """The next replica that is up leads; the last one in sync stays so, and without it there is no leader."""
        remaining = [replica for replica in self.isr if replica != broker]
        self.isr = remaining or [broker]
        if self.leader == broker:
            self.lead(next((replica for replica in remaining if replica in up), NO_LEADER))

    def broker_started(self, broker: int) -> None:
        if broker not in self.replicas:
            return
        if broker not in self.isr:
            self.isr.append(broker)
        if self.leader == NO_LEADER:
            self.lead(broker)


class Topic:
    def __init__(self, name: str, partitions: list[Partition], configs: dict[str, str | None]) -> None:
        self.name = name
        self.id = uuid.uuid4()
        self.partitions = partitions
        self.configs = configs

    @property
    def stamps(self) -> bool:
        """The broker sets the timestamps."""
        return self.configs.get("message.timestamp.type") == "LogAppendTime"


class Committed(NamedTuple):
    """A group's position in one partition."""

    offset: int
    leader_epoch: int
    metadata: str | None


class TransactionState:
    """What the coordinator of a transactional id keeps. status: "Empty", "Ongoing", "CompleteCommit" or "CompleteAbort"."""

    def __init__(self, producer_id: int) -> None:
        self.producer_id = producer_id
        self.epoch = -1
        self.last_epoch = -1  # the one before, if its owner asked for the next one (KIP-360) or ended a transaction with it (KIP-890)
        self.status = "Empty"
        self.number = 0  # of the transaction, to tell a later one apart
        self.timeout_ms = 0
        self.partitions: dict[tuple[str, int], Partition] = {}
        self.groups: dict[str, dict[tuple[str, int], Committed]] = {}


class State:
    """Everything that the brokers of a cluster share."""

    def __init__(self, brokers: list[int]) -> None:
        self.brokers = brokers
        self.racks: dict[int, str] = {}
        self.up: set[int] = set()
        self.topics: dict[str, Topic] = {}
        self.committed: dict[str, dict[tuple[str, int], Committed]] = {}
        self.coordinators: dict[str, int] = {}  # of groups that were moved
        self.transactional: dict[str, TransactionState] = {}
        self.next_producer_id = 1000

    def create(self, name: str, count: int, replication_factor: int, configs: dict[str, str | None] | None = None) -> Topic:
        """A topic whose leaders are spread over the brokers; checks are the caller's."""
        start = len(self.topics)
        partitions = [Partition(name, index, self._replicas(start + index, replication_factor)) for index in range(count)]
        topic = self.topics[name] = Topic(name, partitions, configs or {})
        for partition in partitions:
            for broker in set(self.brokers) - self.up:
                partition.broker_stopped(broker, self.up)
        return topic

    def grow(self, topic: Topic, count: int) -> None:
        """More partitions of a topic."""
        replication_factor = len(topic.partitions[0].replicas)
        for index in range(len(topic.partitions), count):
            topic.partitions.append(Partition(topic.name, index, self._replicas(index, replication_factor)))

    def _replicas(self, first: int, count: int) -> list[int]:
        return [self.brokers[(first + step) % len(self.brokers)] for step in range(count)]

    def by_id(self, topic_id: uuid.UUID) -> Topic | None:
        return next((topic for topic in self.topics.values() if topic.id == topic_id), None)

    @property
    def controller(self) -> int:
        """The lowest broker that is up."""
        return min(self.up, default=NO_LEADER)

    def coordinator(self, key: str) -> int:
        """The broker that looks after a group or a transactional id; NO_LEADER if it is down."""
        broker = self.coordinators.get(key, self.brokers[coordinator_slot(key, len(self.brokers))])
        if broker in self.up:
            return broker
        return self.controller if key not in self.coordinators else NO_LEADER


def coordinator_slot(key: str, count: int) -> int:
    return sum(key.encode()) % count
