"""Metadata (reference: pykafka.protocol MetadataRequest, MetadataResponse)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from gkafka.protocol.base import Name, Names, Request, Response, listed, text
from gkafka.wire import metadata as wire

__all__ = ["BrokerMetadata", "MetadataRequest", "MetadataResponse", "PartitionMetadata", "TopicMetadata"]


class MetadataRequest(Request):
    """The brokers, and the topics that are named; None or empty for all of them. A named one is made where the broker allows that.

    MetadataRequest => [TopicName]
    """

    API_KEY = wire.MetadataRequest.API.key

    def __init__(self, topics: Iterable[Name] | None = None, *, api_version: int | None = None) -> None:
        super().__init__(api_version=api_version)
        self.topics = [] if topics is None else listed("topics", topics)

    def to_message(self) -> wire.MetadataRequest:
        topics = [wire.MetadataRequestTopic(name=text(name)) for name in self.topics]
        return wire.MetadataRequest(topics=topics or None)


class BrokerMetadata(NamedTuple):
    """A broker: what `Broker.from_metadata` takes."""

    id: int
    host: bytes
    port: int


class PartitionMetadata(NamedTuple):
    """leader, replicas, isr: ids of brokers, leader -1 for none; err: the error code. `Partition.update` takes it."""

    id: int
    leader: int
    replicas: list[int]
    isr: list[int]
    err: int


class TopicMetadata(NamedTuple):
    """partitions: by id; err: the error code. `Topic.update` takes it."""

    name: bytes
    partitions: dict[int, PartitionMetadata]
    err: int


class MetadataResponse(Response):
    """brokers: id -> BrokerMetadata; topics: name -> TopicMetadata. Newer answers than the reference's tell the cluster_id and controller_id too,
    None otherwise.

    MetadataResponse => [NodeId:int32 Host:string Port:int32] [TopicErrorCode:int16 TopicName [PartitionMetadata]]
    PartitionMetadata => PartitionErrorCode:int16 PartitionId:int32 Leader:int32 Replicas:[int32] Isr:[int32]
    """

    API_KEY = wire.MetadataRequest.API.key
    brokers: dict[int, BrokerMetadata]
    topics: Names[TopicMetadata]
    cluster_id: bytes | None
    controller_id: int | None

    def _read(self, message: Any) -> None:
        self.brokers = {b.node_id: BrokerMetadata(b.node_id, b.host.encode(), b.port) for b in message.brokers}
        self.cluster_id = None if message.cluster_id is None else message.cluster_id.encode()
        self.controller_id = message.controller_id if message.controller_id >= 0 else None
        self.topics = Names()
        for topic in message.topics:
            name = (topic.name or "").encode()
            partitions = {
                p.partition_index: PartitionMetadata(p.partition_index, p.leader_id, list(p.replica_nodes), list(p.isr_nodes), p.error_code)
                for p in topic.partitions
            }
            self.topics[name] = TopicMetadata(name, partitions, topic.error_code)
