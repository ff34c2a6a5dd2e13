"""InitProducerId: a producer id and epoch, for idempotence and transactions."""

from __future__ import annotations

from gkafka.wire.schema import Message, boolean, int16, int32, int64, message, string

__all__ = ["InitProducerIdRequest", "InitProducerIdResponse"]


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
