"""Answers that refuse: one error code for everything that a request names, at the place where the API has it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gkafka.exceptions import ConfigurationError
from gkafka.wire import admin, apiversions, consumergroups, epochs, groups, metadata, offsets, produce, sasl, txn
from gkafka.wire.apis import Message, Request

__all__ = ["refusal"]


def refusal(request: Request, code: int, text: object) -> Message | None:
    """The answer; None for a Produce with acks=0. text: for the APIs that have room for one."""
    name = request.api.name
    if name not in _BY_NAME:
        raise ConfigurationError(f"the mock cluster knows no refusal of {name}: give one by on({name!r}, Reply(...))")
    return _BY_NAME[name](request.message, code, str(text))


def _produce(message: Any, code: int, text: str) -> Message | None:
    if message.acks == 0:
        return None
    return produce.ProduceResponse(
        responses=[
            produce.TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[
                    produce.PartitionProduceResponse(index=data.index, error_code=code, base_offset=-1, error_message=text)
                    for data in topic.partition_data
                ],
            )
            for topic in message.topic_data
        ]
    )


def _metadata(message: Any, code: int, text: str) -> Message:
    topics = [metadata.MetadataResponseTopic(error_code=code, name=t.name, topic_id=t.topic_id) for t in message.topics or ()]
    return metadata.MetadataResponse(topics=topics, error_code=code)


def _list_offsets(message: Any, code: int, text: str) -> Message:
    return offsets.ListOffsetsResponse(
        topics=[
            offsets.ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    offsets.ListOffsetsPartitionResponse(partition_index=asked.partition_index, error_code=code)
                    for asked in topic.partitions
                ],
            )
            for topic in message.topics
        ]
    )


def _epoch_ends(message: Any, code: int, text: str) -> Message:
    return epochs.OffsetForLeaderEpochResponse(
        topics=[
            epochs.OffsetForLeaderTopicResult(
                topic=topic.topic, partitions=[epochs.EpochEnd(partition=asked.partition, error_code=code) for asked in topic.partitions]
            )
            for topic in message.topics
        ]
    )


def _offset_commit(message: Any, code: int, text: str) -> Message:
    return offsets.OffsetCommitResponse(
        topics=[
            offsets.OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    offsets.OffsetCommitResponsePartition(partition_index=asked.partition_index, error_code=code)
                    for asked in topic.partitions
                ],
            )
            for topic in message.topics
        ]
    )


def _offset_fetch(message: Any, code: int, text: str) -> Message:
    if message.groups:
        return offsets.OffsetFetchResponse(
            groups=[offsets.OffsetFetchResponseGroup(group_id=group.group_id, error_code=code) for group in message.groups]
        )
    topics = [
        offsets.OffsetFetchResponseTopic(
            name=topic.name,
            partitions=[
                offsets.OffsetFetchResponsePartition(partition_index=index, committed_offset=-1, metadata="", error_code=code)
                for index in topic.partition_indexes
            ],
        )
        for topic in message.topics or ()
    ]
    return offsets.OffsetFetchResponse(topics=topics, error_code=code)


def _find_coordinator(message: Any, code: int, text: str) -> Message:
    keys = message.coordinator_keys or [message.key]
    found = [groups.Coordinator(key=key, node_id=-1, host="", port=-1, error_code=code, error_message=text) for key in keys]
    return groups.FindCoordinatorResponse(coordinators=found)


def _create_topics(message: Any, code: int, text: str) -> Message:
    return admin.CreateTopicsResponse(
        topics=[admin.CreatableTopicResult(name=topic.name, error_code=code, error_message=text, configs=[]) for topic in message.topics]
    )


def _delete_topics(message: Any, code: int, text: str) -> Message:
    topics = message.topics or [admin.DeleteTopicState(name=name) for name in message.topic_names]
    results = [admin.DeletableTopicResult(name=t.name, topic_id=t.topic_id, error_code=code, error_message=text) for t in topics]
    return admin.DeleteTopicsResponse(responses=results)


def _add_partitions(message: Any, code: int, text: str) -> Message:
    if message.transactions:
        return txn.AddPartitionsToTxnResponse(error_code=code)
    results = [
        txn.AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                txn.AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code) for index in topic.partitions
            ],
        )
        for topic in message.v3_and_below_topics
    ]
    return txn.AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results)


def _txn_offset_commit(message: Any, code: int, text: str) -> Message:
    topics = [
        txn.TxnOffsetCommitResponseTopic(
            name=topic.name,
            partitions=[txn.TxnOffsetCommitResponsePartition(partition_index=p.partition_index, error_code=code) for p in topic.partitions],
        )
        for topic in message.topics
    ]
    return txn.TxnOffsetCommitResponse(topics=topics)


def _describe_groups(message: Any, code: int, text: str) -> Message:
    described = [groups.DescribedGroup(group_id=name, error_code=code, error_message=text) for name in message.groups]
    return groups.DescribeGroupsResponse(groups=described)


_BY_NAME: dict[str, Callable[[Any, int, str], Message | None]] = {
    "AddOffsetsToTxn": lambda message, code, text: txn.AddOffsetsToTxnResponse(error_code=code),
    "AddPartitionsToTxn": _add_partitions,
    "ApiVersions": lambda message, code, text: apiversions.ApiVersionsResponse(error_code=code),
    "ConsumerGroupDescribe": lambda message, code, text: consumergroups.ConsumerGroupDescribeResponse(
        groups=[consumergroups.DescribedConsumerGroup(group_id=name, error_code=code, error_message=text) for name in message.group_ids]
    ),
    "ConsumerGroupHeartbeat": lambda message, code, text: consumergroups.ConsumerGroupHeartbeatResponse(
        error_code=code, error_message=text
    ),
    "CreateTopics": _create_topics,
    "DeleteTopics": _delete_topics,
    "DescribeGroups": _describe_groups,
    "EndTxn": lambda message, code, text: txn.EndTxnResponse(error_code=code),
    "FindCoordinator": _find_coordinator,
    "Heartbeat": lambda message, code, text: groups.HeartbeatResponse(error_code=code),
    "InitProducerId": lambda message, code, text: txn.InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1),
    "JoinGroup": lambda message, code, text: groups.JoinGroupResponse(error_code=code, member_id=message.member_id),
    "LeaveGroup": lambda message, code, text: groups.LeaveGroupResponse(error_code=code),
    "ListGroups": lambda message, code, text: groups.ListGroupsResponse(error_code=code),
    "ListOffsets": _list_offsets,
    "Metadata": _metadata,
    "OffsetCommit": _offset_commit,
    "OffsetFetch": _offset_fetch,
    "OffsetForLeaderEpoch": _epoch_ends,
    "Produce": _produce,
    "SaslAuthenticate": lambda message, code, text: sasl.SaslAuthenticateResponse(error_code=code, error_message=text),
    "SaslHandshake": lambda message, code, text: sasl.SaslHandshakeResponse(error_code=code),
    "SyncGroup": lambda message, code, text: groups.SyncGroupResponse(error_code=code),
    "TxnOffsetCommit": _txn_offset_commit,
}
