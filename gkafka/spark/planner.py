"""How ranges of offsets are cut into Spark tasks. Nothing here imports pyspark.

Source: spark-sql-kafka-0-10, KafkaOffsetRangeCalculator (4.2).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

__all__ = ["OffsetRange", "split"]


class OffsetRange(NamedTuple):
    """Offsets [start, end) of a partition. Fewer records may lie in it: compaction and transactions leave gaps."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} [{self.start}, {self.end})"


def split(ranges: Iterable[OffsetRange], min_partitions: int | None = None, max_records: int | None = None) -> list[OffsetRange]:
    """The ranges as tasks: one each, empty ones left out, the large ones cut.

    max_records: no task gets more offsets than this. min_partitions: about this many tasks, large ranges cut in proportion; rounding
    may give more or fewer.
    """
    tasks = [r for r in ranges if r.size > 0]
    if max_records is not None:
        tasks = [part for r in tasks for part in _cut(r, math.ceil(r.size / max_records))]
    if min_partitions is not None and min_partitions > len(tasks) > 0:
        tasks = _in_proportion(tasks, min_partitions)
    return tasks


def _in_proportion(tasks: Sequence[OffsetRange], min_partitions: int) -> list[OffsetRange]:
    total = sum(r.size for r in tasks)
    # Ranges that are too small to be cut are taken out of the sum first, or the large ones would get too few parts.
    whole = {r for r in tasks if _part_count(r.size, total, min_partitions) == 1}
    cut_size = total - sum(r.size for r in whole)
    cut_count = max(min_partitions - len(whole), 1)
    return [part for r in tasks for part in _cut(r, 1 if r in whole else _part_count(r.size, cut_size, cut_count))]


def _part_count(size: int, total: int, parts: int) -> int:
    return max(math.floor(size / total * parts + 0.5), 1)  # Java's Math.round


def _cut(r: OffsetRange, parts: int) -> list[OffsetRange]:
    """As equal as whole numbers allow; parts that would be empty are left out."""
    cuts, start = [], r.start
    for left in range(parts, 0, -1):
        end = start + (r.end - start) // left
        if end > start:
            cuts.append(OffsetRange(r.topic, r.partition, start, end))
        start = end
    return cuts
