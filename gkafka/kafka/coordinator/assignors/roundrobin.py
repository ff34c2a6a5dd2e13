"""kafka-python's RoundRobinPartitionAssignor (kafka.coordinator.assignors.roundrobin), for partition_assignment_strategy."""

from gkafka.skins import RoundRobinAssignor as RoundRobinPartitionAssignor

__all__ = ["RoundRobinPartitionAssignor"]
