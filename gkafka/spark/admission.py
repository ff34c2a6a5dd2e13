"""How much of what waits a stream's next batch takes: the caps and delays of a trigger, as numbers. Nothing here asks a broker or a clock.

Source: spark-sql-kafka-0-10, KafkaMicroBatchStream.rateLimit and delayBatch (4.2).
"""

from __future__ import annotations

from collections.abc import Mapping

from gkafka.spark.offsets import Offsets, TopicPartition

__all__ = ["TriggerDelay", "rate_limit", "waiting"]


def rate_limit(limit: int, begin: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int]) -> Offsets:
    """Where a batch of `limit` offsets ends: each partition gives in proportion to what waits in it, and at least one of that.

    The shares add up to the limit, or to all that waits if that is less; only where more partitions than that have something waiting do they pass it. (The JVM
    connector rounds each share by itself: it leaves some of the limit, or passes it.)
    begin: where each partition goes on; one that is not in it, or has nothing waiting, ends at its latest offset.
    """
    sizes = {at: end - begin[at] for at, end in latest.items() if at in begin and end > begin[at]}
    ends, left, total = dict(latest), limit, sum(sizes.values())
    # The smallest first: what a share of one is more than its part of the limit, and what rounding leaves, is the larger ones'.
    for size, at in sorted((size, at) for at, size in sizes.items()):
        share = min(size, max(1, left * size // total))
        ends[at] = begin[at] + share
        left, total = left - share, total - size
    return ends


def waiting(begin: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int]) -> int:
    """How many offsets wait. A partition that is not in `begin` counts from 0, as in the JVM connector."""
    return sum(end - begin.get(at, 0) for at, end in latest.items())


class TriggerDelay:
    """minOffsetsPerTrigger and maxTriggerDelay: whether a batch waits for more records."""

    def __init__(self, min_offsets: int, max_delay_s: float) -> None:
        self._min_offsets, self._max_delay_s = min_offsets, max_delay_s
        self._last: float | None = None

    def holds_back(self, found: int, now: float) -> bool:
        """found: offsets that wait. The first batch of a query never waits, as in the JVM connector."""
        if self._last is not None and now - self._last < self._max_delay_s and found < self._min_offsets:
            return True
        self._last = now
        return False
