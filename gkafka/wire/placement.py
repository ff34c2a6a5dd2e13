"""Where replicas are and which of them leads: ElectLeaders, reassignments, log directories."""

from __future__ import annotations

from gkafka.wire.schema import Message, Struct, array, boolean, int8, int16, int32, int64, message, string

__all__ = [
    "AlterPartitionReassignmentsRequest",
    "AlterPartitionReassignmentsResponse",
    "AlterReplicaLogDir",
    "AlterReplicaLogDirPartitionResult",
    "AlterReplicaLogDirTopic",
    "AlterReplicaLogDirTopicResult",
    "AlterReplicaLogDirsRequest",
    "AlterReplicaLogDirsResponse",
    "DescribableLogDirTopic",
    "DescribeLogDirsPartition",
    "DescribeLogDirsRequest",
    "DescribeLogDirsResponse",
    "DescribeLogDirsResult",
    "DescribeLogDirsTopic",
    "ElectLeadersRequest",
    "ElectLeadersResponse",
    "ListPartitionReassignmentsRequest",
    "ListPartitionReassignmentsResponse",
    "ListPartitionReassignmentsTopics",
    "OngoingPartitionReassignment",
    "OngoingTopicReassignment",
    "PartitionResult",
    "ReassignablePartition",
    "ReassignablePartitionResponse",
    "ReassignableTopic",
    "ReassignableTopicResponse",
    "ReplicaElectionResult",
    "TopicPartitions",
]


# -- ElectLeaders ------------------------------------------------------------------------------------------------------
class TopicPartitions(Struct):
    topic: str = string()
    partitions: list[int] = array(int32())


@message(key=43, versions="0-2", flexible="2+")
class ElectLeadersRequest(Message):
    """To the controller. KIP-183; KIP-460 also unclean elections (v1); KIP-482 (v2).

    election_type: 0 the preferred replica, 1 unclean. topic_partitions: None for all.
    """

    election_type: int = int8("1+")
    topic_partitions: list[TopicPartitions] | None = array(TopicPartitions, nullable="0+")
    timeout_ms: int = int32(default=60000)


class PartitionResult(Struct):
    partition_id: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")


class ReplicaElectionResult(Struct):
    topic: str = string()
    partition_result: list[PartitionResult] = array(PartitionResult)


@message(key=43, versions="0-2", flexible="2+")
class ElectLeadersResponse(Message):
    """One result for each partition; ELECTION_NOT_NEEDED is none to worry about. KIP-460 error of the whole (v1); KIP-482 (v2)."""

    throttle_time_ms: int = int32()
    error_code: int = int16("1+")
    replica_election_results: list[ReplicaElectionResult] = array(ReplicaElectionResult)


# -- AlterPartitionReassignments ---------------------------------------------------------------------------------------
class ReassignablePartition(Struct):
    partition_index: int = int32()
    replicas: list[int] | None = array(int32(), nullable="0+", default=None)


class ReassignableTopic(Struct):
    name: str = string()
    partitions: list[ReassignablePartition] = array(ReassignablePartition)


@message(key=45, versions="0-1", flexible="0+")
class AlterPartitionReassignmentsRequest(Message):
    """To the controller. KIP-455; KIP-860 whether the number of replicas may change (v1).

    replicas: None cancels the reassignment that is under way.
    """

    timeout_ms: int = int32(default=60000)
    allow_replication_factor_change: bool = boolean("1+", default=True)
    topics: list[ReassignableTopic] = array(ReassignableTopic)


class ReassignablePartitionResponse(Struct):
    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")


class ReassignableTopicResponse(Struct):
    name: str = string()
    partitions: list[ReassignablePartitionResponse] = array(ReassignablePartitionResponse)


@message(key=45, versions="0-1", flexible="0+")
class AlterPartitionReassignmentsResponse(Message):
    """One result for each partition. KIP-455; KIP-860 (v1)."""

    throttle_time_ms: int = int32()
    allow_replication_factor_change: bool = boolean("1+", default=True, ignorable=True)
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    responses: list[ReassignableTopicResponse] = array(ReassignableTopicResponse)


# -- ListPartitionReassignments ----------------------------------------------------------------------------------------
class ListPartitionReassignmentsTopics(Struct):
    name: str = string()
    partition_indexes: list[int] = array(int32())


@message(key=46, versions="0", flexible="0+")
class ListPartitionReassignmentsRequest(Message):
    """To the controller. topics: None for all. KIP-455."""

    timeout_ms: int = int32(default=60000)
    topics: list[ListPartitionReassignmentsTopics] | None = array(ListPartitionReassignmentsTopics, nullable="0+", default=None)


class OngoingPartitionReassignment(Struct):
    partition_index: int = int32()
    replicas: list[int] = array(int32())
    adding_replicas: list[int] = array(int32())
    removing_replicas: list[int] = array(int32())


class OngoingTopicReassignment(Struct):
    name: str = string()
    partitions: list[OngoingPartitionReassignment] = array(OngoingPartitionReassignment)


@message(key=46, versions="0", flexible="0+")
class ListPartitionReassignmentsResponse(Message):
    """What is under way. KIP-455."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    topics: list[OngoingTopicReassignment] = array(OngoingTopicReassignment)


# -- DescribeLogDirs ---------------------------------------------------------------------------------------------------
class DescribableLogDirTopic(Struct):
    topic: str = string()
    partitions: list[int] = array(int32())


@message(key=35, versions="0-4", flexible="2+")
class DescribeLogDirsRequest(Message):
    """To each broker. topics: None for all. KIP-113; KIP-219 (v1); KIP-482 (v2); KIP-784 (v3); KIP-827 (v4)."""

    topics: list[DescribableLogDirTopic] | None = array(DescribableLogDirTopic, nullable="0+")


class DescribeLogDirsPartition(Struct):
    partition_index: int = int32()
    partition_size: int = int64()
    offset_lag: int = int64()
    is_future_key: bool = boolean()


class DescribeLogDirsTopic(Struct):
    name: str = string()
    partitions: list[DescribeLogDirsPartition] = array(DescribeLogDirsPartition)


class DescribeLogDirsResult(Struct):
    error_code: int = int16()
    log_dir: str = string()
    topics: list[DescribeLogDirsTopic] = array(DescribeLogDirsTopic)
    total_bytes: int = int64("4+", default=-1, ignorable=True)
    usable_bytes: int = int64("4+", default=-1, ignorable=True)


@message(key=35, versions="0-4", flexible="2+")
class DescribeLogDirsResponse(Message):
    """KIP-219 (v1); KIP-482 (v2); KIP-784 error of the whole (v3); KIP-827 size of the volume (v4)."""

    throttle_time_ms: int = int32()
    error_code: int = int16("3+", ignorable=True)
    results: list[DescribeLogDirsResult] = array(DescribeLogDirsResult)


# -- AlterReplicaLogDirs -----------------------------------------------------------------------------------------------
class AlterReplicaLogDirTopic(Struct):
    name: str = string()
    partitions: list[int] = array(int32())


class AlterReplicaLogDir(Struct):
    path: str = string()
    topics: list[AlterReplicaLogDirTopic] = array(AlterReplicaLogDirTopic)


@message(key=34, versions="0-2", flexible="2+")
class AlterReplicaLogDirsRequest(Message):
    """Move a broker's replicas between its directories; to that broker. KIP-113; KIP-219 (v1); KIP-482 (v2)."""

    dirs: list[AlterReplicaLogDir] = array(AlterReplicaLogDir)


class AlterReplicaLogDirPartitionResult(Struct):
    partition_index: int = int32()
    error_code: int = int16()


class AlterReplicaLogDirTopicResult(Struct):
    topic_name: str = string()
    partitions: list[AlterReplicaLogDirPartitionResult] = array(AlterReplicaLogDirPartitionResult)


@message(key=34, versions="0-2", flexible="2+")
class AlterReplicaLogDirsResponse(Message):
    """One result for each replica. KIP-219 (v1); KIP-482 (v2)."""

    throttle_time_ms: int = int32()
    results: list[AlterReplicaLogDirTopicResult] = array(AlterReplicaLogDirTopicResult)
