"""Transactions seen from outside: ListTransactions, DescribeTransactions, DescribeProducers, and WriteTxnMarkers, which ends one."""

from __future__ import annotations

from gkafka.wire.schema import Message, Struct, array, boolean, int8, int16, int32, int64, message, string

__all__ = [
    "DescribeProducersRequest",
    "DescribeProducersResponse",
    "DescribeTransactionsRequest",
    "DescribeTransactionsResponse",
    "ListTransactionsRequest",
    "ListTransactionsResponse",
    "ListedTransaction",
    "PartitionResponse",
    "ProducerState",
    "TopicData",
    "TopicRequest",
    "TopicResponse",
    "TransactionState",
    "WritableTxnMarker",
    "WritableTxnMarkerPartitionResult",
    "WritableTxnMarkerResult",
    "WritableTxnMarkerTopic",
    "WritableTxnMarkerTopicResult",
    "WriteTxnMarkersRequest",
    "WriteTxnMarkersResponse",
]


# -- ListTransactions --------------------------------------------------------------------------------------------------
@message(key=66, versions="0-2", flexible="0+")
class ListTransactionsRequest(Message):
    """Those that one broker coordinates. KIP-664; KIP-994 by age (v1); KIP-1152 by pattern (v2).

    duration_filter: ms that a transaction has been running at least, -1 for any.
    """

    state_filters: list[str] = array(string())
    producer_id_filters: list[int] = array(int64())
    duration_filter: int = int64("1+", default=-1)
    transactional_id_pattern: str | None = string("2+", nullable="2+", default=None)


class ListedTransaction(Struct):
    transactional_id: str = string()
    producer_id: int = int64()
    transaction_state: str = string()


@message(key=66, versions="0-2", flexible="0+")
class ListTransactionsResponse(Message):
    """KIP-664; KIP-994 (v1); KIP-1152 INVALID_REGULAR_EXPRESSION (v2)."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    unknown_state_filters: list[str] = array(string())
    transaction_states: list[ListedTransaction] = array(ListedTransaction)


# -- DescribeTransactions ----------------------------------------------------------------------------------------------
@message(key=65, versions="0", flexible="0+")
class DescribeTransactionsRequest(Message):
    """To the coordinators of the transactional ids. KIP-664."""

    transactional_ids: list[str] = array(string())


class TopicData(Struct):
    topic: str = string()
    partitions: list[int] = array(int32())


class TransactionState(Struct):
    error_code: int = int16()
    transactional_id: str = string()
    transaction_state: str = string()
    transaction_timeout_ms: int = int32()
    transaction_start_time_ms: int = int64()
    producer_id: int = int64()
    producer_epoch: int = int16()
    topics: list[TopicData] = array(TopicData)


@message(key=65, versions="0", flexible="0+")
class DescribeTransactionsResponse(Message):
    """transaction_start_time_ms: since the epoch, -1 for none. KIP-664."""

    throttle_time_ms: int = int32()
    transaction_states: list[TransactionState] = array(TransactionState)


# -- DescribeProducers -------------------------------------------------------------------------------------------------
class TopicRequest(Struct):
    name: str = string()
    partition_indexes: list[int] = array(int32())


@message(key=61, versions="0", flexible="0+")
class DescribeProducersRequest(Message):
    """To the leaders: who has lately written to these partitions? KIP-664."""

    topics: list[TopicRequest] = array(TopicRequest)


class ProducerState(Struct):
    producer_id: int = int64()
    producer_epoch: int = int32()
    last_sequence: int = int32(default=-1)
    last_timestamp: int = int64(default=-1)
    coordinator_epoch: int = int32()
    current_txn_start_offset: int = int64(default=-1)


class PartitionResponse(Struct):
    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    active_producers: list[ProducerState] = array(ProducerState)


class TopicResponse(Struct):
    name: str = string()
    partitions: list[PartitionResponse] = array(PartitionResponse)


@message(key=61, versions="0", flexible="0+")
class DescribeProducersResponse(Message):
    """current_txn_start_offset: -1 where no transaction is open. KIP-664."""

    throttle_time_ms: int = int32()
    topics: list[TopicResponse] = array(TopicResponse)


# -- WriteTxnMarkers ---------------------------------------------------------------------------------------------------
class WritableTxnMarkerTopic(Struct):
    name: str = string()
    partition_indexes: list[int] = array(int32())


class WritableTxnMarker(Struct):
    producer_id: int = int64()
    producer_epoch: int = int16()
    transaction_result: bool = boolean()
    topics: list[WritableTxnMarkerTopic] = array(WritableTxnMarkerTopic)
    coordinator_epoch: int = int32()
    transaction_version: int = int8("2+", ignorable=True)


@message(key=27, versions="0-2", flexible="1+")
class WriteTxnMarkersRequest(Message):
    """To the leaders, who take it from brokers and from administrators: end a transaction on these partitions. KIP-98; KIP-482 (v1);
    KIP-1228 which kind of transaction it is (v2).

    transaction_result: True commits.
    """

    markers: list[WritableTxnMarker] = array(WritableTxnMarker)


class WritableTxnMarkerPartitionResult(Struct):
    partition_index: int = int32()
    error_code: int = int16()


class WritableTxnMarkerTopicResult(Struct):
    name: str = string()
    partitions: list[WritableTxnMarkerPartitionResult] = array(WritableTxnMarkerPartitionResult)


class WritableTxnMarkerResult(Struct):
    producer_id: int = int64()
    topics: list[WritableTxnMarkerTopicResult] = array(WritableTxnMarkerTopicResult)


@message(key=27, versions="0-2", flexible="1+")
class WriteTxnMarkersResponse(Message):
    """One result for each partition of each marker. KIP-98; KIP-482 (v1); KIP-1228 (v2)."""

    markers: list[WritableTxnMarkerResult] = array(WritableTxnMarkerResult)
