"""A group's committed offsets: the requests, and what their answers mean (reference: offset commit/fetch API, behaviours 51, 70, 181)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple
from uuid import UUID

from gkafka.brokererrors import BrokerError, GroupCoordinatorNotAvailable, error_for
from gkafka.common import TopicPartition
from gkafka.core.metadata import NO_TOPIC_ID
from gkafka.exceptions import ProtocolError
from gkafka.hosts import is_address
from gkafka.wire.groups import FindCoordinatorRequest, FindCoordinatorResponse
from gkafka.wire.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)

__all__ = [
    "Committed",
    "commit_request",
    "coordinator_of",
    "coordinator_request",
    "fetch_request",
    "read_commit",
    "read_fetch",
]


class Committed(NamedTuple):
    """offset: the next one to consume, -1 where nothing is committed. error: why this partition could not be told. leader_epoch: of the
    leader that wrote what stands before the offset, -1 where the committer did not say (KIP-320).
    """

    offset: int
    metadata: str
    error: BrokerError | None
    leader_epoch: int = -1


def coordinator_request(group: str) -> FindCoordinatorRequest:
    """Which broker keeps the group's offsets?"""
    return FindCoordinatorRequest(key=group, key_type=0)


def coordinator_of(response: FindCoordinatorResponse, **about: Any) -> tuple[int, str, int]:
    """(broker id, host, port). about: what the errors shall name, as group and broker. Raises the broker's error."""
    if not response.answers:
        raise GroupCoordinatorNotAvailable("the broker named no coordinator", api="FindCoordinator", **about)
    found = response.answers[0]
    error = error_for(found.error_code, found.error_message, api="FindCoordinator", **about)
    if error is not None:
        raise error
    if not is_address(found.host, found.port):
        text = f"FindCoordinator response: the coordinator is said to be at {found.host!r} port {found.port}, which is no address"
        raise ProtocolError(text, api="FindCoordinator", **about)
    return found.node_id, found.host, found.port


def commit_request(
    group: str,
    offsets: Mapping[TopicPartition, tuple[int, str]],
    *,
    generation_id: int = -1,
    member_id: str = "",
    epochs: Mapping[TopicPartition, int] | None = None,
    topic_ids: Mapping[TopicPartition, UUID] | None = None,
) -> OffsetCommitRequest:
    """offsets: partition -> (the next offset to consume, the caller's metadata text). epochs: of the leaders that wrote what stands before
    the offsets, where they are known. topic_ids: of the topics that the offsets belong to; brokers from 4.1 on refuse them for another topic.
    """
    ids = topic_ids or {}
    topics: dict[tuple[str, UUID], OffsetCommitRequestTopic] = {}
    for tp, (offset, metadata) in offsets.items():
        of = tp.topic, ids.get(tp, NO_TOPIC_ID)
        topic = topics.setdefault(of, OffsetCommitRequestTopic(name=of[0], topic_id=of[1], partitions=[]))
        topic.partitions.append(
            OffsetCommitRequestPartition(
                partition_index=tp.partition,
                committed_offset=offset,
                committed_leader_epoch=-1 if epochs is None else epochs.get(tp, -1),
                committed_metadata=metadata,
            )
        )
    return OffsetCommitRequest(
        group_id=group, generation_id_or_member_epoch=generation_id, member_id=member_id, topics=list(topics.values())
    )


def read_commit(
    response: OffsetCommitResponse, topic_ids: Mapping[TopicPartition, UUID] | None = None, **about: Any
) -> dict[TopicPartition, BrokerError | None]:
    """The outcome of each partition's commit. topic_ids: those of the request. about: what the errors shall name, as group and broker."""
    names = {id_: tp.topic for tp, id_ in (topic_ids or {}).items()}
    named = [(topic.name or names.get(topic.topic_id, ""), topic) for topic in response.topics]
    return {
        TopicPartition(name, p.partition_index): error_for(
            p.error_code, topic=name, partition=p.partition_index, api="OffsetCommit", **about
        )
        for name, topic in named
        for p in topic.partitions
    }


def fetch_request(group: str, partitions: Iterable[TopicPartition], *, stable: bool = False) -> OffsetFetchRequest:
    """Ask for the committed offsets of these partitions. stable: not for what a transaction that is still open, or just ending, may change
    (KIP-447): that is answered by UnstableOffsetCommit.
    """
    topics: dict[str, OffsetFetchRequestTopic] = {}
    for tp in partitions:
        topics.setdefault(tp.topic, OffsetFetchRequestTopic(name=tp.topic, partition_indexes=[])).partition_indexes.append(tp.partition)
    return OffsetFetchRequest(group_id=group, topics=list(topics.values()), require_stable=stable)


def read_fetch(response: OffsetFetchResponse, wanted: Iterable[TopicPartition], **about: Any) -> dict[TopicPartition, Committed]:
    """The committed offset of each wanted partition. Raises an error that concerns the whole group. about: what the errors shall name, as
    group and broker.

    A partition that the answer leaves out raises ProtocolError: to take it for one without a commit would start it anew (G12).
    """
    group = response.answers[0]
    about["api"] = "OffsetFetch"
    error = error_for(group.error_code, **about)
    if error is not None:
        raise error
    found = {
        TopicPartition(topic.name, p.partition_index): Committed(
            p.committed_offset,
            p.metadata or "",
            error_for(p.error_code, topic=topic.name, partition=p.partition_index, **about),
            p.committed_leader_epoch,
        )
        for topic in group.topics
        for p in topic.partitions
    }
    for tp in wanted:
        if tp not in found:
            text = f"the answer to an offset fetch leaves {tp.topic}-{tp.partition} out"
            raise ProtocolError(text, topic=tp.topic, partition=tp.partition, **about)
    return found
