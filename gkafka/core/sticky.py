"""Where records without a key go: one partition after the other, each for as many bytes as a batch holds (KIP-480, KIP-794)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from gkafka.core.backoff import Chance

if TYPE_CHECKING:
    from gkafka.records import Batch

__all__ = ["Sticky", "choose"]

SLACK = 16
"""What the deltas of a record may add to its size as `record_size` tells it."""


class Sticky:
    """The partition that a topic's records without a key go to at present, and how much went there since it was chosen.

    Counted are the bytes of its batches, full or not: a slow producer, whose batches linger out, uses all partitions alike too, and a
    slow broker is not given more because its batches wait longer and grow larger (KIP-794).
    """

    __slots__ = ("_batch", "_before", "_begun", "partition")

    def __init__(self, partition: int, batch: Batch | None = None) -> None:
        self.partition = partition
        self._batch: Batch | None = None
        self._before = self._begun = 0
        if batch is not None:
            self.follow(batch, batch.size)

    def follow(self, batch: Batch, begun: int) -> None:
        """Its records go into this batch from now on; there is at most one at a time. begun: bytes of it that went there before."""
        self._before = self.produced
        self._batch, self._begun = batch, begun

    @property
    def produced(self) -> int:
        """Bytes, without the batches' headers."""
        return self._before + (self._batch.size - self._begun if self._batch is not None else 0)

    def is_spent(self, size: int, limit: int) -> bool:
        """Should the next record, which would begin a batch here, go elsewhere? size: its `record_size`; limit: bytes of a batch."""
        return self.produced + size + SLACK > limit


def choose(led: Sequence[int], present: int, backlog: Callable[[int], int], chance: Chance) -> int:
    """Another partition than the present one. led: those with a leader, at least one; backlog: partition -> batches that wait there.

    Of two chosen by chance it is the one with the shorter queue: alike while all brokers keep up, and less for one that does not, in
    constant time (KIP-794's adaptive mode weighs all queues).
    """
    if len(led) == 1:
        return led[0]
    first, second = _other(led, present, chance), _other(led, present, chance)
    return second if backlog(second) < backlog(first) else first


def _other(led: Sequence[int], present: int, chance: Chance) -> int:
    while (partition := led[chance.randrange(len(led))]) == present:
        pass
    return partition
