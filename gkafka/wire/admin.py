"""CreateTopics and DeleteTopics."""

from __future__ import annotations

from uuid import UUID

from gkafka.wire.primitives import ZERO_UUID
from gkafka.wire.schema import Message, Struct, array, boolean, int8, int16, int32, message, string, uuid

__all__ = [
    "CreatableReplicaAssignment",
    "CreatableTopic",
    "CreatableTopicConfig",
    "CreatableTopicConfigs",
    "CreatableTopicResult",
    "CreateTopicsRequest",
    "CreateTopicsResponse",
    "DeletableTopicResult",
    "DeleteTopicState",
    "DeleteTopicsRequest",
    "DeleteTopicsResponse",
]


class CreatableReplicaAssignment(Struct):
    partition_index: int = int32()
    broker_ids: list[int] = array(int32())


class CreatableTopicConfig(Struct):
    name: str = string()
    value: str | None = string(nullable="0+")


class CreatableTopic(Struct):
    name: str = string()
    num_partitions: int = int32()
    replication_factor: int = int16()
    assignments: list[CreatableReplicaAssignment] = array(CreatableReplicaAssignment)
    configs: list[CreatableTopicConfig] = array(CreatableTopicConfig)


@message(key=19, versions="0-7", flexible="5+")
class CreateTopicsRequest(Message):
    """To the controller. KIP-4; KIP-4 validate only (v1); KIP-464 the broker's defaults, as -1 (v4); KIP-482 (v5); KIP-599 (v6).

    A topic has num_partitions and replication_factor, or assignments with both at -1.
    """

    topics: list[CreatableTopic] = array(CreatableTopic)
    timeout_ms: int = int32(default=60000)
    validate_only: bool = boolean("1+")


class CreatableTopicConfigs(Struct):
    name: str = string("5+")
    value: str | None = string("5+", nullable="5+")
    read_only: bool = boolean("5+")
    config_source: int = int8("5+", default=-1, ignorable=True)
    is_sensitive: bool = boolean("5+")


class CreatableTopicResult(Struct):
    name: str = string()
    topic_id: UUID = uuid("7+", ignorable=True)
    error_code: int = int16()
    error_message: str | None = string("1+", nullable="0+", ignorable=True)
    topic_config_error_code: int = int16("5+", ignorable=True, tag=0)
    num_partitions: int = int32("5+", default=-1, ignorable=True)
    replication_factor: int = int16("5+", default=-1, ignorable=True)
    configs: list[CreatableTopicConfigs] | None = array(CreatableTopicConfigs, "5+", nullable="5+", ignorable=True)


@message(key=19, versions="0-7", flexible="5+")
class CreateTopicsResponse(Message):
    """One result for each topic. KIP-4 message (v1); KIP-219 (v3); KIP-482, KIP-525 the topic's configuration (v5); KIP-599 (v6);
    KIP-516 topic id (v7).
    """

    throttle_time_ms: int = int32("2+", ignorable=True)
    topics: list[CreatableTopicResult] = array(CreatableTopicResult)


class DeleteTopicState(Struct):
    name: str | None = string("6+", nullable="6+", default=None)
    topic_id: UUID = uuid("6+")


@message(key=20, versions="0-6", flexible="4+")
class DeleteTopicsRequest(Message):
    """To the controller. KIP-4; KIP-482 (v4); KIP-599 (v5); KIP-516 by topic id (v6).

    Names may be given as `topic_names` or in `topics`, whatever the version.
    """

    topics: list[DeleteTopicState] = array(DeleteTopicState, "6+")
    topic_names: list[str] = array(string(), "0-5", ignorable=True)
    timeout_ms: int = int32()

    def for_version(self, version: int) -> DeleteTopicsRequest:
        """Names go where the version has their place (KIP-516)."""
        if version >= 6 and self.topic_names and not self.topics:
            return DeleteTopicsRequest(topics=[DeleteTopicState(name=name) for name in self.topic_names], timeout_ms=self.timeout_ms)
        if version < 6 and self.topics and not self.topic_names and all(t.topic_id == ZERO_UUID for t in self.topics):
            return DeleteTopicsRequest(topic_names=[t.name or "" for t in self.topics], timeout_ms=self.timeout_ms)
        return self


class DeletableTopicResult(Struct):
    name: str | None = string(nullable="6+")
    topic_id: UUID = uuid("6+", ignorable=True)
    error_code: int = int16()
    error_message: str | None = string("5+", nullable="5+", default=None, ignorable=True)


@message(key=20, versions="0-6", flexible="4+")
class DeleteTopicsResponse(Message):
    """One result for each topic. KIP-219 (v2); KIP-482 (v4); KIP-599 message (v5); KIP-516 topic id (v6)."""

    throttle_time_ms: int = int32("1+", ignorable=True)
    responses: list[DeletableTopicResult] = array(DeletableTopicResult)
