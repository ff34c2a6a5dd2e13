"""Produce: record batches to the leaders of their partitions."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct as Layout
from typing import Final
from uuid import UUID

from gkafka.wire.primitives import ZERO_UUID, Buffer
from gkafka.wire.schema import Message, Struct, array, int16, int32, int64, message, records_, string, struct, uuid

__all__ = [
    "BatchIndexAndErrorMessage",
    "LeaderIdAndEpoch",
    "NodeEndpoint",
    "PartitionProduceData",
    "PartitionProduceResponse",
    "ProduceRequest",
    "ProduceResponse",
    "TopicProduceData",
    "TopicProduceResponse",
    "holds_zstd",
    "numbers_in",
    "oldest_holding",
    "only_batches",
    "record_format",
]


MAGIC_AT: Final = 16
"""Where a batch's or message's format stands, in all of them."""
NUMBERS_AT: Final = 43
NUMBERS: Final = Layout(">qhi")
"""Producer id, epoch and base sequence of a batch of format 2, and where they stand."""


def oldest_holding(records: Buffer) -> tuple[int, str]:
    """The oldest version that takes these records, and why: see `Message.oldest_version`."""
    return (3, "record format 2") if len(records) > MAGIC_AT and records[MAGIC_AT] >= 2 else (0, "")


def numbers_in(batch: Buffer) -> tuple[int, int, int]:
    """Return the producer id, the epoch and the base sequence of a batch of format 2 (KIP-98)."""
    producer_id, epoch, sequence = NUMBERS.unpack_from(batch, NUMBERS_AT)
    return producer_id, epoch, sequence


class PartitionProduceData(Struct):
    index: int = int32()
    records: Buffer | Sequence[Buffer] | None = records_(nullable="0+")


class TopicProduceData(Struct):
    name: str = string("0-12", ignorable=True)
    topic_id: UUID = uuid("13+", ignorable=True)
    partition_data: list[PartitionProduceData] = array(PartitionProduceData)


@message(key=0, versions="0-13", flexible="9+")
class ProduceRequest(Message):
    """Append batches. KIP-98 record format 2, transactions (v3); KIP-110 zstd (v7); KIP-467 record errors (v8); KIP-482 (v9);
    KIP-951 (v10); KIP-890 (v11, v12); KIP-516 topic ids (v13).

    acks: 0 (then there is no response), 1, or -1 for all in-sync replicas.
    """

    transactional_id: str | None = string("3+", nullable="3+", default=None)
    acks: int = int16()
    timeout_ms: int = int32()
    topic_data: list[TopicProduceData] = array(TopicProduceData)

    def oldest_version(self) -> tuple[int, str]:
        """That of the newest records, which those of transactions are."""
        given = (p.records for topic in self.topic_data for p in topic.partition_data)
        return max((oldest_holding(records) for records in given if isinstance(records, bytes | bytearray | memoryview)), default=(0, ""))

    def newest_version(self) -> int:
        """Version 13 names topics by id alone, so each must have one."""
        for topic in self.topic_data:
            if topic.topic_id is ZERO_UUID or topic.topic_id == ZERO_UUID:
                return 12
        return self.API.stable.high


class BatchIndexAndErrorMessage(Struct):
    batch_index: int = int32("8+")
    batch_index_error_message: str | None = string("8+", nullable="8+", default=None)


class LeaderIdAndEpoch(Struct):
    leader_id: int = int32("10+", default=-1)
    leader_epoch: int = int32("10+", default=-1)


class PartitionProduceResponse(Struct):
    index: int = int32()
    error_code: int = int16()
    base_offset: int = int64()
    log_append_time_ms: int = int64("2+", default=-1, ignorable=True)
    log_start_offset: int = int64("5+", default=-1, ignorable=True)
    record_errors: list[BatchIndexAndErrorMessage] = array(BatchIndexAndErrorMessage, "8+", ignorable=True)
    error_message: str | None = string("8+", nullable="8+", default=None, ignorable=True)
    current_leader: LeaderIdAndEpoch = struct(LeaderIdAndEpoch, "10+", tag=0)


class TopicProduceResponse(Struct):
    name: str = string("0-12", ignorable=True)
    topic_id: UUID = uuid("13+", ignorable=True)
    partition_responses: list[PartitionProduceResponse] = array(PartitionProduceResponse, asked=True)


class NodeEndpoint(Struct):
    node_id: int = int32("10+")
    host: str = string("10+")
    port: int = int32("10+")
    rack: str | None = string("10+", nullable="10+", default=None)


@message(key=0, versions="0-13", flexible="9+")
class ProduceResponse(Message):
    """Where the batches went. KIP-13 throttle (v1); KIP-32 append time (v2); KIP-219 (v6); KIP-207 log start (v5); KIP-467 which records
    were refused (v8); KIP-482 (v9); KIP-951 who leads now (v10); KIP-890 (v11, v12); KIP-516 topic ids (v13).
    """

    responses: list[TopicProduceResponse] = array(TopicProduceResponse, asked=True)
    throttle_time_ms: int = int32("1+", ignorable=True)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "10+", tag=0)


def record_format(version: int) -> int:
    """The newest format of records ("magic") that a Produce version takes. KIP-32: 1 from v2; KIP-98: 2 from v3, and nothing older."""
    return min(max(version - 1, 0), 2)


def only_batches(version: int) -> bool:
    """Whether a Produce version takes no message sets any more. KIP-98: from v3."""
    return record_format(version) == 2


def holds_zstd(version: int) -> bool:
    """Whether a Produce version takes zstd batches. KIP-110: from v7."""
    return version >= 7
