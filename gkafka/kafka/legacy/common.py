"""What kafka-python 0.9 hands out and raises (kafka.common)."""

from __future__ import annotations

from typing import Any, NamedTuple

from gkafka.exceptions import ConfigurationError
from gkafka.kafka.errors import (
    AsyncProducerQueueFull,
    BrokerNotAvailableError,
    BrokerResponseError,
    BufferUnderflowError,
    ChecksumError,
    ConnectionError,
    ConsumerFetchSizeTooSmall,
    ConsumerNoMoreData,
    ConsumerTimeout,
    FailedPayloadsError,
    GroupCoordinatorNotAvailableError,
    GroupLoadInProgressError,
    InvalidFetchRequestError,
    InvalidMessageError,
    KafkaConfigurationError,
    KafkaError,
    KafkaTimeoutError,
    KafkaUnavailableError,
    LeaderNotAvailableError,
    MessageSizeTooLargeError,
    NotCoordinatorForGroupError,
    NotLeaderForPartitionError,
    OffsetMetadataTooLargeError,
    OffsetOutOfRangeError,
    ProtocolError,
    ReplicaNotAvailableError,
    RequestTimedOutError,
    StaleControllerEpochError,
    StaleLeaderEpochCodeError,
    UnknownError,
    UnknownTopicOrPartitionError,
    UnsupportedCodecError,
    check_error,
    kafka_errors,
)
from gkafka.kafka.structs import TopicPartition

__all__ = [
    "AsyncProducerQueueFull",
    "BrokerNotAvailableError",
    "BrokerResponseError",
    "BufferUnderflowError",
    "ChecksumError",
    "ConnectionError",
    "ConsumerCoordinatorNotAvailableCode",
    "ConsumerFetchSizeTooSmall",
    "ConsumerNoMoreData",
    "ConsumerProcessError",
    "ConsumerTimeout",
    "FailedPayloadsError",
    "InvalidFetchRequestError",
    "InvalidMessageError",
    "KafkaConfigurationError",
    "KafkaError",
    "KafkaMessage",
    "KafkaTimeoutError",
    "KafkaUnavailableError",
    "LeaderNotAvailableError",
    "Message",
    "MessageSizeTooLargeError",
    "NotCoordinatorForConsumerCode",
    "NotLeaderForPartitionError",
    "OffsetAndMessage",
    "OffsetMetadataTooLargeError",
    "OffsetOutOfRange",
    "OffsetOutOfRangeError",
    "OffsetsLoadInProgressCode",
    "ProduceResponse",
    "ProtocolError",
    "ReplicaNotAvailableError",
    "RequestTimedOutError",
    "StaleControllerEpochError",
    "StaleLeaderEpochCodeError",
    "TopicPartition",
    "UnknownError",
    "UnknownTopicOrPartitionError",
    "UnsupportedCodecError",
    "check_error",
    "check_partition_ids",
    "kafka_errors",
    "start_of",
]

OffsetOutOfRange = OffsetOutOfRangeError
OffsetsLoadInProgressCode = GroupLoadInProgressError
ConsumerCoordinatorNotAvailableCode = GroupCoordinatorNotAvailableError
NotCoordinatorForConsumerCode = NotCoordinatorForGroupError
STARTS = {"smallest": -2, "earliest": -2, "largest": -1, "latest": -1}


class KafkaMessage(NamedTuple):
    """A record as KafkaConsumer hands it out. value: what deserializer_class made of it."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: Any


class Message(NamedTuple):
    """What SimpleConsumer found at an offset. magic, attributes: 0, whatever the format of the log."""

    magic: int
    attributes: int
    key: bytes | None
    value: bytes | None


class OffsetAndMessage(NamedTuple):
    """A record as SimpleConsumer and MultiProcessConsumer hand it out."""

    offset: int
    message: Message


class ProduceResponse(NamedTuple):
    """Where the messages of one send_messages() went. error: a code of Kafka, 0 for none; offset: of the first of them."""

    topic: str
    partition: int
    error: int
    offset: int


class ConsumerProcessError(KafkaError):
    """A process of a MultiProcessConsumer failed or died: nothing more comes of its partitions. Make a new consumer, it goes on where this one was."""


def start_of(auto_offset_reset: Any) -> int | None:
    """-2 for 'smallest', -1 for 'largest', and the same for their newer names; None for any other, by which being out of range is an error."""
    return STARTS.get(auto_offset_reset) if isinstance(auto_offset_reset, str) else None


def check_partition_ids(name: str, given: Any) -> list[int]:
    """A list of partitions' ids. Raises ConfigurationError."""
    if isinstance(given, (list, tuple, set, frozenset, range)) and all(type(one) is int and one >= 0 for one in given):
        return list(dict.fromkeys(given))
    raise ConfigurationError(f"{name}={given!r}: must be a list of partition ids, as [0, 1]")
