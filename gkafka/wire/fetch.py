"""Fetch: record batches from the leaders, or from the nearest replicas, of partitions."""

from __future__ import annotations

from uuid import UUID

from gkafka.wire.primitives import ZERO_UUID, Buffer
from gkafka.wire.schema import Message, Struct, array, int8, int16, int32, int64, message, records_, string, struct, uuid

__all__ = [
    "BY_NAME",
    "AbortedTransaction",
    "EpochEndOffset",
    "FetchPartition",
    "FetchRequest",
    "FetchResponse",
    "FetchTopic",
    "FetchableTopicResponse",
    "ForgottenTopic",
    "LeaderIdAndEpoch",
    "NodeEndpoint",
    "PartitionData",
    "ReplicaState",
    "SnapshotId",
]


BY_NAME = 12
"""The newest version that names topics; later ones have their ids alone (KIP-516)."""


class ReplicaState(Struct):
    replica_id: int = int32("15+", default=-1)
    replica_epoch: int = int64("15+", default=-1)


class FetchPartition(Struct):
    partition: int = int32()
    current_leader_epoch: int = int32("9+", default=-1, ignorable=True)
    fetch_offset: int = int64()
    last_fetched_epoch: int = int32("12+", default=-1)
    log_start_offset: int = int64("5+", default=-1, ignorable=True)
    partition_max_bytes: int = int32()
    replica_directory_id: UUID = uuid("17+", ignorable=True, tag=0)
    high_watermark: int = int64("18+", default=2**63 - 1, ignorable=True, tag=1)


class FetchTopic(Struct):
    topic: str = string("0-12", ignorable=True)
    topic_id: UUID = uuid("13+", ignorable=True)
    partitions: list[FetchPartition] = array(FetchPartition)


class ForgottenTopic(Struct):
    topic: str = string("7-12", ignorable=True)
    topic_id: UUID = uuid("13+", ignorable=True)
    partitions: list[int] = array(int32(), "7+")


@message(key=1, versions="0-18", flexible="12+")
class FetchRequest(Message):
    """Long poll for records. KIP-74 sizes (v3); KIP-98 isolation (v4); KIP-107 log start (v5); KIP-227 sessions (v7); KIP-320 leader
    epochs (v9, v12); KIP-110 zstd (v10); KIP-392 racks (v11); KIP-482, KIP-595 (v12); KIP-516 topic ids (v13); KIP-405 (v14);
    KIP-903 (v15); KIP-951 (v16); KIP-853 (v17); KIP-1166 (v18).
    """

    cluster_id: str | None = string("12+", nullable="12+", default=None, ignorable=True, tag=0)
    replica_id: int = int32("0-14", default=-1)
    replica_state: ReplicaState = struct(ReplicaState, "15+", tag=1)
    max_wait_ms: int = int32()
    min_bytes: int = int32()
    max_bytes: int = int32("3+", default=2**31 - 1, ignorable=True)
    isolation_level: int = int8("4+", ignorable=True)
    session_id: int = int32("7+", ignorable=True)
    session_epoch: int = int32("7+", default=-1, ignorable=True)
    topics: list[FetchTopic] = array(FetchTopic)
    forgotten_topics_data: list[ForgottenTopic] = array(ForgottenTopic, "7+")
    rack_id: str = string("11+", ignorable=True)
    in_session: int = int32("none", ignorable=True)
    """Partitions that the session holds with these; 0: not known. For `asked` alone."""

    def asked(self, version: int) -> int | None:
        """Within a session the answer may have partitions that this request does not name (KIP-227)."""
        if self.session_epoch <= 0:
            return super().asked(version)
        return self.in_session or None

    def newest_version(self) -> int:
        """Version 13 names topics by id alone, so each must have one."""
        for topics in (self.topics, self.forgotten_topics_data):
            for topic in topics:
                if topic.topic_id is ZERO_UUID or topic.topic_id == ZERO_UUID:
                    return BY_NAME
        return self.API.stable.high


class EpochEndOffset(Struct):
    epoch: int = int32("12+", default=-1)
    end_offset: int = int64("12+", default=-1)


class LeaderIdAndEpoch(Struct):
    leader_id: int = int32("12+", default=-1)
    leader_epoch: int = int32("12+", default=-1)


class SnapshotId(Struct):
    end_offset: int = int64(default=-1)
    epoch: int = int32(default=-1)


class AbortedTransaction(Struct):
    producer_id: int = int64("4+")
    first_offset: int = int64("4+")


class PartitionData(Struct):
    partition_index: int = int32()
    error_code: int = int16()
    high_watermark: int = int64()
    last_stable_offset: int = int64("4+", default=-1, ignorable=True)
    log_start_offset: int = int64("5+", default=-1, ignorable=True)
    diverging_epoch: EpochEndOffset = struct(EpochEndOffset, "12+", tag=0)
    current_leader: LeaderIdAndEpoch = struct(LeaderIdAndEpoch, "12+", tag=1)
    snapshot_id: SnapshotId = struct(SnapshotId, "12+", tag=2)
    aborted_transactions: list[AbortedTransaction] | None = array(AbortedTransaction, "4+", nullable="4+", ignorable=True)
    preferred_read_replica: int = int32("11+", default=-1)
    records: Buffer | None = records_(nullable="0+")


class FetchableTopicResponse(Struct):
    topic: str = string("0-12", ignorable=True)
    topic_id: UUID = uuid("13+", ignorable=True)
    partitions: list[PartitionData] = array(PartitionData, asked=True)


class NodeEndpoint(Struct):
    node_id: int = int32("16+")
    host: str = string("16+")
    port: int = int32("16+")
    rack: str | None = string("16+", nullable="16+", default=None)


@message(key=1, versions="0-18", flexible="12+")
class FetchResponse(Message):
    """Record batches, uncopied: `records` is a slice of the frame, whose last batch may be cut short. KIP-13 throttle (v1); KIP-98 last
    stable offset, aborted transactions (v4); KIP-107 (v5); KIP-219 (v8); KIP-227 sessions (v7); KIP-392 preferred replica (v11);
    KIP-482, KIP-595 divergence (v12); KIP-516 topic ids (v13); KIP-951 who leads now (v16).
    """

    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16("7+", ignorable=True)
    session_id: int = int32("7+")
    responses: list[FetchableTopicResponse] = array(FetchableTopicResponse, asked=True)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "16+", tag=0)
