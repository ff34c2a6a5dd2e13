"""Where the last records of partitions begin. Offsets alone do not tell: markers and aborted records of transactions, and compaction, use some up."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING

from gkafka.cli.connection import lift
from gkafka.cli.pipes import check_reader
from gkafka.cli.starts import EARLIEST, Start, starts_of
from gkafka.common import TopicPartition

if TYPE_CHECKING:
    from gkafka.client import KafkaClient
    from gkafka.consumer import Consumer

__all__ = ["last_of"]

SLICE_MS = 250
AT_ONCE = 2000
Offsets = dict[TopicPartition, int]


def last_of(client: KafkaClient, consumer: Consumer, ends: Mapping[TopicPartition, int], count: int) -> Offsets:
    """The offsets from which on each partition has `count` records before its end; its first one where there are not as many.

    Looks at the last `count` offsets, and where these hold fewer records at ever more before them, twice as many each time. consumer: what it sees
    are the records that there are; it is left assigned to any of the partitions.
    """
    first = starts_of(client, ends, Start("end", EARLIEST))
    found = dict(ends)
    missing = {tp: count for tp in ends if first[tp] < ends[tp]}
    lift(client)
    upper, size = dict(ends), count
    while missing:
        lower = {tp: max(first[tp], upper[tp] - size) for tp in missing}
        for tp, offsets in _records(consumer, lower, upper, missing).items():
            if offsets:
                found[tp] = offsets[0]
            missing[tp] -= len(offsets)
        missing = {tp: left for tp, left in missing.items() if left and lower[tp] > first[tp]}
        upper, size = lower, size * 2
    return found


def _records(consumer: Consumer, lower: Offsets, upper: Offsets, most: Mapping[TopicPartition, int]) -> dict[TopicPartition, deque[int]]:
    """The offsets that have a record, from lower on and below upper: the last of them, most of each partition at most."""
    found = {tp: deque[int](maxlen=most[tp]) for tp in lower}
    left = set(lower)
    consumer.assign(lower)
    while left:
        messages = consumer.consume_batch(AT_ONCE, SLICE_MS)
        for message in messages:
            tp = TopicPartition(message.topic, message.partition_id)
            if message.offset < upper[tp]:
                found[tp].append(message.offset)
        if not messages:
            check_reader()
        positions = consumer.positions()
        done = {tp for tp in left if positions.get(tp, -1) >= upper[tp]}
        if done:
            consumer.pause(done)
            left -= done
    return found
