"""OffsetForLeaderEpoch: where a leader epoch ended, by which a reader learns that the log was cut behind its back."""

from __future__ import annotations

from gkafka.wire.schema import Message, Struct, array, int16, int32, int64, message, string

__all__ = [
    "EpochEnd",
    "OffsetForLeaderEpochRequest",
    "OffsetForLeaderEpochResponse",
    "OffsetForLeaderPartition",
    "OffsetForLeaderTopic",
    "OffsetForLeaderTopicResult",
]


class OffsetForLeaderPartition(Struct):
    partition: int = int32()
    current_leader_epoch: int = int32("2+", default=-1, ignorable=True)
    leader_epoch: int = int32()


class OffsetForLeaderTopic(Struct):
    topic: str = string()
    partitions: list[OffsetForLeaderPartition] = array(OffsetForLeaderPartition)


@message(key=23, versions="0-4", flexible="4+")
class OffsetForLeaderEpochRequest(Message):
    """Where did these epochs end? KIP-101; KIP-279 (v1); KIP-320 fencing (v2); KIP-392 replica (v3); KIP-482 (v4).

    replica_id: -1 for every client; a follower gives its own id.
    """

    replica_id: int = int32("3+", default=-2, ignorable=True)
    topics: list[OffsetForLeaderTopic] = array(OffsetForLeaderTopic)


class EpochEnd(Struct):
    """leader_epoch: the largest one that is not above the one asked for; end_offset: where it ended. Both -1: no such epoch is known."""

    error_code: int = int16()
    partition: int = int32()
    leader_epoch: int = int32("1+", default=-1, ignorable=True)
    end_offset: int = int64(default=-1)


class OffsetForLeaderTopicResult(Struct):
    topic: str = string()
    partitions: list[EpochEnd] = array(EpochEnd, asked=True)


@message(key=23, versions="0-4", flexible="4+")
class OffsetForLeaderEpochResponse(Message):
    """Ends of epochs. KIP-279 the epoch that the end is of (v1); KIP-320 throttle (v2); KIP-482 (v4)."""

    throttle_time_ms: int = int32("2+", ignorable=True)
    topics: list[OffsetForLeaderTopicResult] = array(OffsetForLeaderTopicResult, asked=True)
