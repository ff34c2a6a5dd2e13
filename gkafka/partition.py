"""A partition of a topic, as the metadata tells it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from gkafka.common import OffsetType
from gkafka.oneprocess import OfOneProcess

if TYPE_CHECKING:
    from gkafka.broker import Broker
    from gkafka.topic import Topic

__all__ = ["Partition"]


class Partition(OfOneProcess):
    """id_: int, unique in its topic; leader: Broker or None while there is none; replicas, isr: lists of Broker.

    Documented: pykafka-2.0.4 Partition.
    """

    def __init__(self, topic: Topic, id_: int, leader: Broker | None, replicas: list[Broker], isr: list[Broker]) -> None:
        self._topic = topic
        self._name = topic.name
        self._id = id_
        self._leader = leader
        self._replicas = replicas
        self._isr = isr

    def __repr__(self) -> str:
        return f"<{type(self).__module__}.{type(self).__name__} at {id(self):#x} (topic={self._name}, id={self._id})>"

    def __lt__(self, other: Any) -> bool:
        """By id: partitioners may sort them."""
        return self._id < other._id if isinstance(other, Partition) else NotImplemented

    @property
    def id(self) -> int:
        """The partition's id in its topic."""
        return self._id

    @property
    def leader(self) -> Broker | None:
        """The broker that leads the partition, None while there is none."""
        return self._leader

    @property
    def replicas(self) -> list[Broker]:
        """The brokers that hold a replica."""
        return self._replicas

    @property
    def isr(self) -> list[Broker]:
        """The brokers whose replica is in sync."""
        return self._isr

    @property
    def topic(self) -> Topic:
        """The topic that this is a partition of."""
        return self._topic

    def fetch_offset_limit(self, offsets_before: datetime | int, max_offsets: int = 1) -> list[int]:
        """Offsets from before a time. offsets_before: a datetime (naive: UTC), ms since the epoch, -1 latest, -2 earliest; at most max_offsets.

        Brokers before 0.10.1 answer segment starts from before the time, as documented. Newer ones know one answer: the offset of the
        first record at or after the time, the end of the log where there is none.
        Raises LeaderNotFoundError as soon as brokers have said for a second that the partition has no leader.
        """
        limits = self.topic.fetch_offset_limits_of([self._id], offsets_before, max_offsets)
        return limits[self._id]

    def latest_available_offset(self) -> int:
        """The offset that the next record will get."""
        return self.fetch_offset_limit(OffsetType.LATEST)[0]

    def earliest_available_offset(self) -> int:
        """The lowest offset that the log still has."""
        return self.fetch_offset_limit(OffsetType.EARLIEST)[0]

    def update(self, brokers: Mapping[int, Broker], metadata: Any) -> None:
        """Take leader, replicas and in-sync replicas from fresh metadata: anything with `leader`, `replicas` and `isr` as broker ids."""
        self._leader = brokers.get(metadata.leader)
        self._replicas = [brokers[b] for b in metadata.replicas if b in brokers]
        self._isr = [brokers[b] for b in metadata.isr if b in brokers]
