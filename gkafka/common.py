"""Names that every room shares: Kafka's constants and the one message class's base."""

from __future__ import annotations

import abc
import enum
from typing import NamedTuple

__all__ = ["CompressionType", "IsolationLevel", "Message", "OffsetType", "TimestampType", "TopicPartition"]


class CompressionType(enum.IntEnum):
    """Codec ids as they stand in the attributes of a batch (bits 0-2)."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class OffsetType(enum.IntEnum):
    """The two timestamps of ListOffsets that stand for an end of the log."""

    EARLIEST = -2
    LATEST = -1


class IsolationLevel(enum.IntEnum):
    """KIP-98: whether records of open and aborted transactions are delivered."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


class TimestampType(enum.IntEnum):
    """KIP-32: who set a record's timestamp. NONE before message format 1."""

    NONE = -1
    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class TopicPartition(NamedTuple):
    """A topic's name and the id of one of its partitions."""

    topic: str
    partition: int


class Message(abc.ABC):
    """A record as a consumer hands it out. What `consume()` returns is an instance of this.

    timestamp: ms since the epoch, -1 for none. key is partition_key, and payload is value, under other documented names. response_code:
    the error code of the fetch, always 0 here: an error is raised, and makes no message.
    """

    __slots__ = ()

    response_code: int
    topic: str
    partition_id: int
    offset: int
    timestamp: int
    timestamp_type: TimestampType
    key: bytes | None
    partition_key: bytes | None
    value: bytes | None
    payload: bytes | None
    headers: list[tuple[str, bytes | None]]
