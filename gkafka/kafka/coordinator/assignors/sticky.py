"""Assignors that leave partitions where they are (kafka.coordinator.assignors.sticky), for partition_assignment_strategy."""

from gkafka.skins import CooperativeStickyAssignor
from gkafka.skins import StickyAssignor as StickyPartitionAssignor

__all__ = ["CooperativeStickyAssignor", "StickyPartitionAssignor"]
