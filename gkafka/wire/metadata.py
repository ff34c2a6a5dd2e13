"""Metadata: brokers, topics, partitions and their leaders."""

from __future__ import annotations

from uuid import UUID

from gkafka.wire.schema import Message, Struct, array, boolean, int16, int32, message, string, uuid

__all__ = [
    "RELIABLE_EPOCHS",
    "MetadataRequest",
    "MetadataRequestTopic",
    "MetadataResponse",
    "MetadataResponseBroker",
    "MetadataResponsePartition",
    "MetadataResponseTopic",
]


RELIABLE_EPOCHS = 9
"""Before this version, a broker may tell an old leader epoch while partitions are reassigned, for as long as that takes (KAFKA-9212)."""


class MetadataRequestTopic(Struct):
    topic_id: UUID = uuid("10+", ignorable=True)
    name: str | None = string(nullable="10+")


@message(key=3, versions="0-13", flexible="9+")
class MetadataRequest(Message):
    """Ask for some topics, for all (None) or for none ([]). KIP-4; KIP-204 no auto-creation (v4); KIP-430 authorized operations (v8);
    KIP-482 (v9); KIP-516 topic ids (v10); KIP-700 (v11).

    Version 0 has no way to ask for no topics: there None and [] both ask for all of them, and the server reads None.
    """

    topics: list[MetadataRequestTopic] | None = array(MetadataRequestTopic, nullable="1+", empty_is_null="0")
    # Older brokers create topics by their own configuration alone. Kafka's own client refuses there; asking is still right.
    allow_auto_topic_creation: bool = boolean("4+", default=True, ignorable=True)
    include_cluster_authorized_operations: bool = boolean("8-10")
    include_topic_authorized_operations: bool = boolean("8+")

    def asked(self, version: int) -> int | None:
        """Version 0 asks for all topics if it names none."""
        return super().asked(version) if version or self.topics else None


class MetadataResponseBroker(Struct):
    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string("1+", nullable="1+", default=None, ignorable=True)


class MetadataResponsePartition(Struct):
    error_code: int = int16()
    partition_index: int = int32()
    leader_id: int = int32()
    leader_epoch: int = int32("7+", default=-1, ignorable=True)
    replica_nodes: list[int] = array(int32())
    isr_nodes: list[int] = array(int32())
    offline_replicas: list[int] = array(int32(), "5+", ignorable=True)


class MetadataResponseTopic(Struct):
    error_code: int = int16()
    name: str | None = string(nullable="12+")
    topic_id: UUID = uuid("10+", ignorable=True)
    is_internal: bool = boolean("1+", ignorable=True)
    partitions: list[MetadataResponsePartition] = array(MetadataResponsePartition)
    topic_authorized_operations: int = int32("8+", default=-(2**31))


@message(key=3, versions="0-13", flexible="9+")
class MetadataResponse(Message):
    """The cluster as one broker knows it. KIP-4 controller, racks (v1); KIP-78 cluster id (v2); KIP-112 offline replicas (v5); KIP-219 (v6);
    KIP-320 leader epochs (v7); KIP-430 (v8); KIP-482 (v9); KIP-516 topic ids (v10); KIP-700 (v11); KIP-1102 an error of its own (v13).
    """

    throttle_time_ms: int = int32("3+", ignorable=True)
    brokers: list[MetadataResponseBroker] = array(MetadataResponseBroker)
    cluster_id: str | None = string("2+", nullable="2+", default=None, ignorable=True)
    controller_id: int = int32("1+", default=-1, ignorable=True)
    topics: list[MetadataResponseTopic] = array(MetadataResponseTopic, asked=True)
    cluster_authorized_operations: int = int32("8-10", default=-(2**31))
    error_code: int = int16("13+", ignorable=True)
