"""How the partitions of a group are divided (kafka.coordinator.assignors)."""
