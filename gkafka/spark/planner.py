"""How ranges of offsets become Spark tasks: large ones are cut, small ones share a task. Nothing here imports pyspark.

Source of the cuts: spark-sql-kafka-0-10, KafkaOffsetRangeCalculator (4.2), which knows no shared tasks.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

__all__ = ["MOST_TASKS", "Group", "OffsetRange", "grouped", "one_each", "split", "task_count"]

LITTLE = 20_000
"""Offsets for which another task is not worth its start: one that has begun reads as many in some 15 ms. What a task costs is Spark's part, whatever the
source: gkafka's own is below a millisecond (benchmarks/spark.py --only task)."""
MUCH = 2_000_000
"""Offsets after which a task gives way to the next: what fails then is read again in two seconds."""
MOST_TASKS = 1_000_000
"""The largest number of tasks that a checkpoint may hold."""
RANGE_COST = 200
"""What a range costs beside its records, in records."""


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


Group = tuple[OffsetRange, ...]
"""What a task reads."""


def task_count(offsets: int, wanted: int) -> int:
    """How many tasks so many offsets are worth, where `wanted` can work at a time: fewer where there is little to read, more where there is much."""
    return min(MOST_TASKS, max(1, min(wanted, math.ceil(offsets / LITTLE)), math.ceil(offsets / MUCH)))


def one_each(ranges: Iterable[OffsetRange]) -> list[Group]:
    """The JVM connector's plan."""
    return [(r,) for r in ranges]


def grouped(ranges: Sequence[OffsetRange], count: int, max_records: int | None = None) -> list[Group]:
    """The ranges in `count` groups, or fewer, that take about as long: the largest first, each to the group that has least.

    The same ranges and numbers always give the same groups: micro-batches that checkpoints hold are divided by this when they are run again, and the number of
    a group is what an exactly-once sink knows its rows by. So another way to group needs a mark beside the number in a checkpoint ("gkafka:tasks=2;by=...":
    who does not know it refuses it), and this one stays for numbers without. max_records: no group has more offsets than this, unless a range alone has;
    there may be more groups then.
    """
    groups: list[list[OffsetRange]] = [[] for _ in range(min(count, len(ranges)))]
    sizes = [0] * len(groups)
    lightest = [(0, number) for number in range(len(groups))]
    for r in sorted(ranges, key=lambda r: (-r.size, r)):
        _, number = lightest[0]
        if max_records is not None and groups[number] and sizes[number] + r.size > max_records:
            number = len(groups)
            groups.append([])
            sizes.append(0)
            heapq.heappush(lightest, (0, number))
        weight, number = heapq.heappop(lightest)
        groups[number].append(r)
        sizes[number] += r.size
        heapq.heappush(lightest, (weight + r.size + RANGE_COST, number))
    return [tuple(sorted(group)) for group in groups]


def split(ranges: Iterable[OffsetRange], min_partitions: int | None = None, max_records: int | None = None) -> list[OffsetRange]:
    """The ranges, empty ones left out, the large ones cut.

    max_records: none has more offsets than this. min_partitions: about this many, large ranges cut in proportion; rounding may give more or
    fewer.
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
    """As equal as whole numbers allow, and none empty."""
    cuts, start = [], r.start
    for left in range(min(parts, r.size), 0, -1):
        end = start + (r.end - start) // left
        cuts.append(OffsetRange(r.topic, r.partition, start, end))
        start = end
    return cuts
