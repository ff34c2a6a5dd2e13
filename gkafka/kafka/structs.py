"""kafka-python's small types (kafka.structs)."""

from __future__ import annotations

from typing import Any, NamedTuple

from gkafka.common import TopicPartition

__all__ = ["OffsetAndMetadata", "OffsetAndTimestamp", "TopicPartition"]


class _OffsetAndMetadata(NamedTuple):
    offset: int
    metadata: str | None


class OffsetAndMetadata(_OffsetAndMetadata):
    """An offset to commit, with a text that goes with it. As documented for 1.4 a pair; leader_epoch, of newer versions, is an attribute beside it."""

    leader_epoch: int

    def __new__(cls, offset: int, metadata: str | None = "", leader_epoch: int = -1) -> OffsetAndMetadata:
        made = super().__new__(cls, offset, metadata)
        made.leader_epoch = leader_epoch
        return made

    def __getnewargs__(self) -> Any:
        return self.offset, self.metadata, self.leader_epoch


class OffsetAndTimestamp(NamedTuple):
    """Where a record stands, and its time in ms since the epoch."""

    offset: int
    timestamp: int
