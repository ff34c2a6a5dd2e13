"""What a transaction's machine sends, and the errors in what comes back: the wire's messages, made and read.

Source: KIP-98, KIP-360 (the next epoch of an id), KIP-447 (who consumed)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from gkafka.brokererrors import BrokerError, OperationNotAttempted, error_for
from gkafka.core.accumulator import Key, ProducerId
from gkafka.wire.txn import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
    InitProducerIdRequest,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

__all__ = [
    "GroupMetadata",
    "add_offsets_request",
    "add_partitions_request",
    "added_partitions",
    "end_request",
    "init_request",
    "offset_errors",
    "offsets_request",
    "partition_errors",
]

UNANSWERED = -1
"""What it means when an answer leaves something out: nobody knows."""


class GroupMetadata(NamedTuple):
    """Who consumed what a transaction commits: with it the group's coordinator refuses a member that was replaced (KIP-447)."""

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


def init_request(transactional_id: str, timeout_ms: int, producer: ProducerId | None) -> InitProducerIdRequest:
    """A producer id; or the next epoch of the one there is, which is refused if somebody else has it by now (KIP-360)."""
    request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=timeout_ms)
    if producer is not None:
        request.producer_id, request.producer_epoch = producer
    return request


def add_partitions_request(transactional_id: str, producer: ProducerId, keys: Iterable[Key]) -> AddPartitionsToTxnRequest:
    """Make partitions part of the transaction."""
    topics: dict[str, AddPartitionsToTxnTopic] = {}
    for topic, partition in keys:
        topics.setdefault(topic, AddPartitionsToTxnTopic(name=topic, partitions=[])).partitions.append(partition)
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=producer[0],
        v3_and_below_producer_epoch=producer[1],
        v3_and_below_topics=list(topics.values()),
    )


def added_partitions(request: Any) -> list[Key]:
    """What an AddPartitionsToTxnRequest names."""
    return [(topic.name, partition) for topic in request.v3_and_below_topics for partition in topic.partitions]


def partition_errors(keys: Iterable[Key], response: Any) -> list[BrokerError]:
    """Why partitions were not added; none was if there is any. Those that were not attempted say nothing beside one that was."""
    answered = {
        (topic.name, p.partition_index): p.partition_error_code
        for topic in response.results_by_topic_v3_and_below
        for p in topic.results_by_partition
    }
    about = [error_for(answered.get(key, UNANSWERED), topic=key[0], partition=key[1], api="AddPartitionsToTxn") for key in keys]
    problems = [error for error in about if error is not None]
    return [error for error in problems if not isinstance(error, OperationNotAttempted)] or problems


def add_offsets_request(transactional_id: str, producer: ProducerId, group: str) -> AddOffsetsToTxnRequest:
    """Make the offsets of a group part of the transaction."""
    return AddOffsetsToTxnRequest(transactional_id=transactional_id, producer_id=producer[0], producer_epoch=producer[1], group_id=group)


def offsets_request(
    transactional_id: str, producer: ProducerId, group: GroupMetadata, offsets: Mapping[Key, tuple[int, str, int]]
) -> TxnOffsetCommitRequest:
    """Positions to commit with the transaction: (topic, partition) -> (next offset, metadata, leader's epoch or -1)."""
    topics: dict[str, TxnOffsetCommitRequestTopic] = {}
    for (topic, partition), (offset, metadata, epoch) in offsets.items():
        topics.setdefault(topic, TxnOffsetCommitRequestTopic(name=topic, partitions=[])).partitions.append(
            TxnOffsetCommitRequestPartition(
                partition_index=partition, committed_offset=offset, committed_leader_epoch=epoch, committed_metadata=metadata
            )
        )
    return TxnOffsetCommitRequest(
        transactional_id=transactional_id,
        group_id=group.group_id,
        producer_id=producer[0],
        producer_epoch=producer[1],
        generation_id=group.generation_id,
        member_id=group.member_id,
        group_instance_id=group.group_instance_id,
        topics=list(topics.values()),
    )


def offset_errors(keys: Iterable[Key], response: Any) -> dict[Key, BrokerError]:
    """Why positions were not taken."""
    answered = {(topic.name, p.partition_index): p.error_code for topic in response.topics for p in topic.partitions}
    about = {key: error_for(answered.get(key, UNANSWERED), topic=key[0], partition=key[1], api="TxnOffsetCommit") for key in keys}
    return {key: error for key, error in about.items() if error is not None}


def end_request(transactional_id: str, producer: ProducerId, *, commit: bool) -> EndTxnRequest:
    """Commit or abort."""
    return EndTxnRequest(transactional_id=transactional_id, producer_id=producer[0], producer_epoch=producer[1], committed=commit)
