"""A topic: its partitions, and the producers and consumers that are made from it."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Any

from gkafka.checks import check_count, check_flag, check_time
from gkafka.common import OffsetType
from gkafka.config import keywords_of
from gkafka.logs import get_logger
from gkafka.oneprocess import OfOneProcess
from gkafka.partition import Partition
from gkafka.sasloptions import hide_secrets
from gkafka.unseen import hide_options

if TYPE_CHECKING:
    from gkafka.balancedconsumer import BalancedConsumer
    from gkafka.cluster import Cluster
    from gkafka.managedbalancedconsumer import ManagedBalancedConsumer
    from gkafka.producer import Producer
    from gkafka.protocol import OffsetPartitionResponse
    from gkafka.simpleconsumer import SimpleConsumer

__all__ = ["OffsetPartitionResponse", "Topic"]

log = get_logger(__name__)


def __getattr__(name: str) -> Any:
    """The class of what offsets are told with, which pykafka has here as well."""
    if name == "OffsetPartitionResponse":
        from gkafka.protocol import OffsetPartitionResponse

        return OffsetPartitionResponse
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class Topic(OfOneProcess):
    """Documented: pykafka-2.0.4 Topic. topic_metadata: what the cluster's metadata says of it."""

    def __init__(self, cluster: Cluster, topic_metadata: Any) -> None:
        self._cluster = cluster
        self._name: str = topic_metadata.name
        self._partitions: dict[int, Partition] = {}
        self.update(topic_metadata)

    def __repr__(self) -> str:
        return f"<{type(self).__module__}.{type(self).__name__} at {id(self):#x} (name={self._name})>"

    @property
    def name(self) -> str:
        """The topic's name."""
        return self._name

    @property
    def partitions(self) -> dict[int, Partition]:
        """All known partitions by id."""
        info = self._cluster.metadata.topic(self._name)
        if info is not None and len(info.partitions) != len(self._partitions):
            self.update(info)
        return self._partitions

    def update(self, metadata: Any) -> None:
        """Take partitions and their leaders from fresh metadata."""
        brokers = self._cluster.brokers
        for partition_id in self._partitions.keys() - metadata.partitions.keys():
            log.info("%s-%d is gone", self._name, partition_id)
            del self._partitions[partition_id]
        for partition_id, info in sorted(metadata.partitions.items()):
            if partition_id not in self._partitions:
                self._partitions[partition_id] = Partition(self, partition_id, None, [], [])
            self._partitions[partition_id].update(brokers, info)

    # -- offsets -----------------------------------------------------------------------------------------------------------
    def fetch_offset_limits(self, offsets_before: datetime | int, max_offsets: int = 1) -> dict[int, OffsetPartitionResponse]:
        """Per partition the offsets from before a time; see Partition.fetch_offset_limit.

        Raises LeaderNotFoundError as soon as brokers have said for a second that one of the partitions has no leader.
        """
        limits = self.fetch_offset_limits_of(self.partitions, offsets_before, max_offsets)
        from gkafka.protocol import OffsetPartitionResponse  # only for whoever asks

        return {partition: OffsetPartitionResponse(offsets, 0) for partition, offsets in limits.items()}

    def fetch_offset_limits_of(
        self, partition_ids: Iterable[int], offsets_before: datetime | int, max_offsets: int = 1
    ) -> dict[int, list[int]]:
        """The same for some of the partitions."""
        before = check_time("offsets_before", offsets_before)
        wanted = {(self._name, p): before for p in partition_ids}
        found = self._cluster.list_offsets(wanted, max_offsets=check_count("max_offsets", max_offsets))
        ends = [key for key, offsets in found.items() if not offsets]
        if ends:  # no record is that new: the end of the log is where such a record will be
            found.update(self._cluster.list_offsets(dict.fromkeys(ends, -1)))
        return {partition: found[name, partition] for name, partition in wanted}

    def earliest_available_offsets(self) -> dict[int, OffsetPartitionResponse]:
        """Per partition the lowest offset that the log still has, as `.offset[0]`."""
        return self.fetch_offset_limits(OffsetType.EARLIEST)

    def latest_available_offsets(self) -> dict[int, OffsetPartitionResponse]:
        """Per partition the offset that the next record will get, as `.offset[0]`."""
        return self.fetch_offset_limits(OffsetType.LATEST)

    # -- producers and consumers -----------------------------------------------------------------------------------------
    def get_producer(self, use_rdkafka: bool = False, **kwargs: Any) -> Producer:
        """A Producer of this topic. kwargs: the Producer's keywords. use_rdkafka: the compiled implementation, or ImportError."""
        from gkafka.producer import Producer

        kwargs, use_rdkafka = hide_secrets(kwargs, keywords_of(Producer)), hide_options(use_rdkafka)
        if check_flag("use_rdkafka", use_rdkafka):
            require_compiled()
        return Producer(self._cluster, self, **kwargs)

    def get_sync_producer(self, **kwargs: Any) -> Producer:
        """A Producer whose produce() returns only when the message is acknowledged."""
        from gkafka.producer import Producer

        kwargs = hide_secrets(kwargs, keywords_of(Producer), ["use_rdkafka"])
        return self.get_producer(sync=True, **kwargs)

    def get_simple_consumer(self, consumer_group: str | bytes | None = None, use_rdkafka: bool = False, **kwargs: Any) -> SimpleConsumer:
        """A SimpleConsumer of this topic. kwargs: the SimpleConsumer's keywords. use_rdkafka: the compiled implementation, or ImportError."""
        from gkafka.simpleconsumer import SimpleConsumer

        kwargs = hide_secrets(kwargs, keywords_of(SimpleConsumer))
        consumer_group, use_rdkafka = hide_options(consumer_group), hide_options(use_rdkafka)
        if check_flag("use_rdkafka", use_rdkafka):
            require_compiled()
        return SimpleConsumer(self, self._cluster, consumer_group=consumer_group, **kwargs)

    def get_balanced_consumer(
        self, consumer_group: str | bytes, managed: bool = False, **kwargs: Any
    ) -> BalancedConsumer | ManagedBalancedConsumer:
        """A consumer that shares the topic with the other members of its group: by way of ZooKeeper, or with managed=True by the group's
        coordinator. kwargs: the keywords of BalancedConsumer, or of ManagedBalancedConsumer.
        """
        from gkafka.balancedconsumer import BalancedConsumer
        from gkafka.balancing import OF_THE_GROUP
        from gkafka.managedbalancedconsumer import ManagedBalancedConsumer

        kwargs = hide_secrets(kwargs, keywords_of(BalancedConsumer), keywords_of(ManagedBalancedConsumer), OF_THE_GROUP, ["use_rdkafka"])
        consumer_group, managed = hide_options(consumer_group), hide_options(managed)
        if check_flag("managed", managed):
            return ManagedBalancedConsumer(self, self._cluster, consumer_group, **kwargs)
        return BalancedConsumer(self, self._cluster, consumer_group, **kwargs)


def require_compiled() -> None:
    """Raise ImportError unless the compiled implementation is in use."""
    from gkafka.records import IMPLEMENTATION

    if IMPLEMENTATION != "cython":
        raise ImportError(
            "use_rdkafka=True asks for the compiled implementation, but gkafka runs its pure Python one: install a C compiler and reinstall gkafka"
        )
