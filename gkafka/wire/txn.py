"""InitProducerId: a producer id and epoch, for idempotence and transactions. What a transaction adds, and its end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gkafka.wire.schema import Api, Message, Struct, array, boolean, int16, int32, int64, message, string

if TYPE_CHECKING:
    from gkafka.wire.versions import Versions

__all__ = [
    "AddOffsetsToTxnRequest",
    "AddOffsetsToTxnResponse",
    "AddPartitionsToTxnPartitionResult",
    "AddPartitionsToTxnRequest",
    "AddPartitionsToTxnResponse",
    "AddPartitionsToTxnResult",
    "AddPartitionsToTxnTopic",
    "AddPartitionsToTxnTopicResult",
    "AddPartitionsToTxnTransaction",
    "EndTxnRequest",
    "EndTxnResponse",
    "InitProducerIdRequest",
    "InitProducerIdResponse",
    "TxnOffsetCommitRequest",
    "TxnOffsetCommitRequestPartition",
    "TxnOffsetCommitRequestTopic",
    "TxnOffsetCommitResponse",
    "TxnOffsetCommitResponsePartition",
    "TxnOffsetCommitResponseTopic",
    "newest_without_v2",
    "resumes_producers",
    "speaks_v2",
]


# -- InitProducerId ----------------------------------------------------------------------------------------------------


@message(key=22, versions="0-6", flexible="2+", unstable="6")
class InitProducerIdRequest(Message):
    """Ask for an id, or for the next epoch of one. KIP-98; KIP-482 (v2); KIP-360 resume (v3); KIP-588 (v4); KIP-890 (v5);
    KIP-939 two-phase commit (v6, which Kafka 4.2 still calls unstable).
    """

    transactional_id: str | None = string(nullable="0+")
    transaction_timeout_ms: int = int32()
    producer_id: int = int64("3+", default=-1)
    producer_epoch: int = int16("3+", default=-1)
    enable_2pc: bool = boolean("6+")
    keep_prepared_txn: bool = boolean("6+")


@message(key=22, versions="0-6", flexible="2+", unstable="6")
class InitProducerIdResponse(Message):
    """The id and its epoch. KIP-98; KIP-219 (v1); KIP-482 (v2); KIP-939 what is still open (v6)."""

    throttle_time_ms: int = int32(ignorable=True)
    error_code: int = int16()
    producer_id: int = int64(default=-1)
    producer_epoch: int = int16()
    ongoing_txn_producer_id: int = int64("6+", default=-1)
    ongoing_txn_producer_epoch: int = int16("6+", default=-1)


# -- AddPartitionsToTxn ------------------------------------------------------------------------------------------------
class AddPartitionsToTxnTopic(Struct):
    name: str = string()
    partitions: list[int] = array(int32())


class AddPartitionsToTxnTransaction(Struct):
    transactional_id: str = string("4+")
    producer_id: int = int64("4+")
    producer_epoch: int = int16("4+")
    verify_only: bool = boolean("4+")
    topics: list[AddPartitionsToTxnTopic] = array(AddPartitionsToTxnTopic, "4+")


@message(key=24, versions="0-5", flexible="3+")
class AddPartitionsToTxnRequest(Message):
    """Make partitions part of a transaction, before the first record goes there. KIP-98; KIP-588 (v2); KIP-482 (v3).

    Clients send versions 0-3, of one transaction (the fields `v3_and_below_*`). KIP-890's batched form (v4, v5) is for brokers, which
    ask the coordinator to verify: Kafka refuses it to clients that may not act for the cluster.
    """

    transactions: list[AddPartitionsToTxnTransaction] = array(AddPartitionsToTxnTransaction, "4+")
    v3_and_below_transactional_id: str = string("0-3")
    v3_and_below_producer_id: int = int64("0-3")
    v3_and_below_producer_epoch: int = int16("0-3")
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = array(AddPartitionsToTxnTopic, "0-3")

    def newest_version(self) -> int:
        """One transaction, as clients write it, exists up to version 3."""
        return super().newest_version() if self.transactions else 3


class AddPartitionsToTxnPartitionResult(Struct):
    partition_index: int = int32()
    partition_error_code: int = int16()


class AddPartitionsToTxnTopicResult(Struct):
    name: str = string()
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = array(AddPartitionsToTxnPartitionResult, asked=True)


class AddPartitionsToTxnResult(Struct):
    transactional_id: str = string("4+")
    topic_results: list[AddPartitionsToTxnTopicResult] = array(AddPartitionsToTxnTopicResult, "4+", asked=True)


@message(key=24, versions="0-5", flexible="3+")
class AddPartitionsToTxnResponse(Message):
    """What became of each partition: all were added, or none. KIP-98; KIP-219 (v1); KIP-482 (v3); KIP-890 (v4, v5)."""

    throttle_time_ms: int = int32()
    error_code: int = int16("4+", ignorable=True)
    results_by_transaction: list[AddPartitionsToTxnResult] = array(AddPartitionsToTxnResult, "4+", asked=True)
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = array(AddPartitionsToTxnTopicResult, "0-3", asked=True)


# -- AddOffsetsToTxn, TxnOffsetCommit ----------------------------------------------------------------------------------
@message(key=25, versions="0-4", flexible="3+")
class AddOffsetsToTxnRequest(Message):
    """Make the offsets of a group part of a transaction. KIP-98; KIP-588 (v2); KIP-482 (v3); KIP-890 TRANSACTION_ABORTABLE (v4)."""

    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    group_id: str = string()


@message(key=25, versions="0-4", flexible="3+")
class AddOffsetsToTxnResponse(Message):
    """Whether they are. KIP-98; KIP-219 (v1); KIP-482 (v3)."""

    throttle_time_ms: int = int32()
    error_code: int = int16()


class TxnOffsetCommitRequestPartition(Struct):
    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32("2+", default=-1, ignorable=True)
    committed_metadata: str | None = string(nullable="0+")


class TxnOffsetCommitRequestTopic(Struct):
    name: str = string()
    partitions: list[TxnOffsetCommitRequestPartition] = array(TxnOffsetCommitRequestPartition)


@message(key=28, versions="0-5", flexible="3+")
class TxnOffsetCommitRequest(Message):
    """Positions of a group that count once the transaction is committed; goes to the group's coordinator. KIP-98; KIP-320 leader epochs
    (v2); KIP-447 who consumed (v3); KIP-890 TRANSACTION_ABORTABLE (v4), does the work of AddOffsetsToTxn (v5, with transaction.version 2).
    """

    transactional_id: str = string()
    group_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    generation_id: int = int32("3+", default=-1)
    member_id: str = string("3+")
    group_instance_id: str | None = string("3+", nullable="3+", default=None)
    topics: list[TxnOffsetCommitRequestTopic] = array(TxnOffsetCommitRequestTopic)


class TxnOffsetCommitResponsePartition(Struct):
    partition_index: int = int32()
    error_code: int = int16()


class TxnOffsetCommitResponseTopic(Struct):
    name: str = string()
    partitions: list[TxnOffsetCommitResponsePartition] = array(TxnOffsetCommitResponsePartition, asked=True)


@message(key=28, versions="0-5", flexible="3+")
class TxnOffsetCommitResponse(Message):
    """What became of each position. KIP-98; KIP-219 (v1); KIP-447 errors of members (v3)."""

    throttle_time_ms: int = int32()
    topics: list[TxnOffsetCommitResponseTopic] = array(TxnOffsetCommitResponseTopic, asked=True)


# -- EndTxn ------------------------------------------------------------------------------------------------------------
@message(key=26, versions="0-5", flexible="3+")
class EndTxnRequest(Message):
    """Commit or abort. KIP-98; KIP-588 (v2); KIP-482 (v3); KIP-890 TRANSACTION_ABORTABLE (v4), the epoch ends with the transaction (v5)."""

    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    committed: bool = boolean()


@message(key=26, versions="0-5", flexible="3+")
class EndTxnResponse(Message):
    """The coordinator has decided; it writes the markers next. KIP-98; KIP-219 (v1); KIP-482 (v3); KIP-890 the epoch from now on (v5)."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    producer_id: int = int64("5+", default=-1, ignorable=True)
    producer_epoch: int = int16("5+", default=-1, ignorable=True)


# -- what brokers can do -----------------------------------------------------------------------------------------------
_BEFORE_V2 = {0: 11, EndTxnRequest.API.key: 4, TxnOffsetCommitRequest.API.key: 4}  # Produce, and the two here whose meaning changed


def newest_without_v2(api: Api) -> int | None:
    """The newest version of an API that a producer may use in a transaction of the old kind; None: any. KIP-890: later versions of
    Produce and TxnOffsetCommit add to the transaction by themselves, those of EndTxn end the producer's epoch with it.
    """
    return _BEFORE_V2.get(api.key)


def speaks_v2(versions: Versions) -> bool:
    """Whether transactions of the new kind are switched on in the cluster: feature transaction.version 2 (KIP-890, KIP-1022)."""
    return versions.features.get("transaction.version", 0) >= 2 and versions.supports(EndTxnRequest.API, 5)


def resumes_producers(versions: Versions) -> bool:
    """Whether InitProducerId takes the producer's present id and epoch and gives it the next epoch of it (KIP-360)."""
    return versions.supports(InitProducerIdRequest.API, 3)
