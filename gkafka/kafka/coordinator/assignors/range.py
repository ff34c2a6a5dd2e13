"""kafka-python's RangePartitionAssignor (kafka.coordinator.assignors.range), for partition_assignment_strategy."""

from gkafka.skins import RangeAssignor as RangePartitionAssignor

__all__ = ["RangePartitionAssignor"]
