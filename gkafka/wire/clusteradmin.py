"""The cluster as a whole: DescribeCluster, DescribeQuorum, UpdateFeatures (ApiVersions tells of features)."""

from __future__ import annotations

from uuid import UUID

from gkafka.wire.schema import Message, Struct, array, boolean, int8, int16, int32, int64, message, string, uint16, uuid

__all__ = [
    "DescribeClusterBroker",
    "DescribeClusterRequest",
    "DescribeClusterResponse",
    "DescribeQuorumRequest",
    "DescribeQuorumResponse",
    "FeatureUpdateKey",
    "Listener",
    "Node",
    "QuorumPartition",
    "QuorumPartitionState",
    "QuorumTopic",
    "QuorumTopicState",
    "ReplicaState",
    "UpdatableFeatureResult",
    "UpdateFeaturesRequest",
    "UpdateFeaturesResponse",
]

SAFE_DOWNGRADE = 2


# -- DescribeCluster ---------------------------------------------------------------------------------------------------
@message(key=60, versions="0-2", flexible="0+")
class DescribeClusterRequest(Message):
    """KIP-700; KIP-919 brokers or controllers (v1); KIP-1073 brokers that are fenced, too (v2).

    endpoint_type: 1 brokers, 2 controllers.
    """

    include_cluster_authorized_operations: bool = boolean()
    endpoint_type: int = int8("1+", default=1)
    include_fenced_brokers: bool = boolean("2+")


class DescribeClusterBroker(Struct):
    broker_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(nullable="0+", default=None)
    is_fenced: bool = boolean("2+")


@message(key=60, versions="0-2", flexible="0+")
class DescribeClusterResponse(Message):
    """KIP-700; KIP-919 (v1); KIP-1073 (v2)."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    endpoint_type: int = int8("1+", default=1)
    cluster_id: str = string()
    controller_id: int = int32(default=-1)
    brokers: list[DescribeClusterBroker] = array(DescribeClusterBroker)
    cluster_authorized_operations: int = int32(default=-(2**31))


# -- DescribeQuorum ----------------------------------------------------------------------------------------------------
class QuorumPartition(Struct):
    partition_index: int = int32()


class QuorumTopic(Struct):
    topic_name: str = string()
    partitions: list[QuorumPartition] = array(QuorumPartition)


@message(key=55, versions="0-2", flexible="0+")
class DescribeQuorumRequest(Message):
    """The one topic that this is asked of is __cluster_metadata, partition 0. KIP-595; KIP-836 (v1); KIP-853 (v2)."""

    topics: list[QuorumTopic] = array(QuorumTopic)


class ReplicaState(Struct):
    replica_id: int = int32()
    replica_directory_id: UUID = uuid("2+")
    log_end_offset: int = int64()
    last_fetch_timestamp: int = int64("1+", default=-1, ignorable=True)
    last_caught_up_timestamp: int = int64("1+", default=-1, ignorable=True)


class QuorumPartitionState(Struct):
    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string("2+", nullable="2+", ignorable=True)
    leader_id: int = int32()
    leader_epoch: int = int32()
    high_watermark: int = int64()
    current_voters: list[ReplicaState] = array(ReplicaState)
    observers: list[ReplicaState] = array(ReplicaState)


class QuorumTopicState(Struct):
    topic_name: str = string()
    partitions: list[QuorumPartitionState] = array(QuorumPartitionState)


class Listener(Struct):
    name: str = string("2+")
    host: str = string("2+")
    port: int = uint16("2+")


class Node(Struct):
    node_id: int = int32("2+")
    listeners: list[Listener] = array(Listener, "2+")


@message(key=55, versions="0-2", flexible="0+")
class DescribeQuorumResponse(Message):
    """KIP-595; KIP-836 times of the replicas, ms since the epoch (v1); KIP-853 directories, nodes, texts (v2)."""

    error_code: int = int16()
    error_message: str | None = string("2+", nullable="2+", ignorable=True)
    topics: list[QuorumTopicState] = array(QuorumTopicState)
    nodes: list[Node] = array(Node, "2+")


# -- UpdateFeatures ----------------------------------------------------------------------------------------------------
class FeatureUpdateKey(Struct):
    feature: str = string()
    max_version_level: int = int16()
    allow_downgrade: bool = boolean("0")
    upgrade_type: int = int8("1+", default=1)


@message(key=57, versions="0-2", flexible="0+")
class UpdateFeaturesRequest(Message):
    """To the controller. KIP-584; KIP-778 (v1); KIP-1022 (v2).

    upgrade_type: 1 upgrade, 2 safe downgrade, 3 unsafe one; before version 1 allow_downgrade says it. max_version_level: below 1 removes.
    """

    timeout_ms: int = int32(default=60000)
    feature_updates: list[FeatureUpdateKey] = array(FeatureUpdateKey)
    validate_only: bool = boolean("1+")

    def for_version(self, version: int) -> UpdateFeaturesRequest:
        """Version 0 knows one kind of downgrade; an unsafe one stays what that version cannot hold (KIP-778)."""
        if version > 0 or all(u.upgrade_type != SAFE_DOWNGRADE for u in self.feature_updates):
            return self
        updates = [
            FeatureUpdateKey(feature=u.feature, max_version_level=u.max_version_level, allow_downgrade=True)
            if u.upgrade_type == SAFE_DOWNGRADE
            else u
            for u in self.feature_updates
        ]
        return UpdateFeaturesRequest(timeout_ms=self.timeout_ms, feature_updates=updates, validate_only=self.validate_only)


class UpdatableFeatureResult(Struct):
    feature: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")


@message(key=57, versions="0-2", flexible="0+")
class UpdateFeaturesResponse(Message):
    """One result for each feature; from version 2 on all of them are done, or none. KIP-584; KIP-1022 (v2)."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    results: list[UpdatableFeatureResult] = array(UpdatableFeatureResult, "0-1", ignorable=True)
