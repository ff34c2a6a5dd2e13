"""How many partitions a topic shall have (kafka.admin.new_partitions)."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["NewPartitions"]


class NewPartitions:
    """total_count: old and new ones. new_assignments: the brokers of each new one, None to leave that to the brokers."""

    def __init__(self, total_count: int, new_assignments: Sequence[Sequence[int]] | None = None) -> None:
        self.total_count = total_count
        self.new_assignments = new_assignments

    def __repr__(self) -> str:
        return f"NewPartitions({self.total_count!r}, {self.new_assignments!r})"
