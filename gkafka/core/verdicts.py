"""What an error means for a transaction: try again, abort, or end the producer. The tables are those of the Java client's TransactionManager.

Where Java ends the producer for an unexpected answer to AddOffsetsToTxn or TxnOffsetCommit, here the transaction is aborted: before EndTxn
nothing is decided, so an abort is always safe.

Source: KIP-98, KIP-588 (fenced or timed out), KIP-691, KIP-890 (TRANSACTION_ABORTABLE)
"""

from __future__ import annotations

import enum

from gkafka.brokererrors import (
    COORDINATOR,
    BrokerError,
    ClusterAuthorizationFailed,
    FencedInstanceId,
    FencedMemberEpoch,
    GroupAuthorizationFailed,
    IllegalGeneration,
    InvalidGroupId,
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    InvalidTransactionTimeout,
    InvalidTxnState,
    KafkaException,
    OffsetMetadataTooLarge,
    ProducerFenced,
    RebalanceInProgress,
    StaleMemberEpoch,
    TopicAuthorizationFailed,
    TransactionAbortable,
    TransactionalIdAuthorizationFailed,
    TransactionCoordinatorFenced,
    UnknownMemberId,
    UnknownProducerId,
    UnsupportedForMessageFormat,
    UnsupportedVersion,
)
from gkafka.exceptions import FencedError, TransactionFatalError
from gkafka.wire.schema import Message
from gkafka.wire.txn import AddOffsetsToTxnRequest, AddPartitionsToTxnRequest, TxnOffsetCommitRequest

__all__ = ["Verdict", "breaks_by_produce", "fatal_error", "verdict"]


class Verdict(enum.Enum):
    """RETRY: the same request again, after a pause. ABORT: the transaction can only be aborted. FATAL: the producer cannot go on."""

    RETRY = "retry"
    ABORT = "abort"
    FATAL = "fatal"


FENCED = (ProducerFenced, InvalidProducerEpoch)
BREAKING = (
    *FENCED,
    ClusterAuthorizationFailed,
    InvalidProducerIdMapping,
    InvalidTransactionTimeout,
    InvalidTxnState,
    TransactionCoordinatorFenced,
    TransactionalIdAuthorizationFailed,
    UnsupportedForMessageFormat,
    UnsupportedVersion,
)
FAILING = (
    FencedInstanceId,
    FencedMemberEpoch,
    GroupAuthorizationFailed,
    IllegalGeneration,
    InvalidGroupId,
    OffsetMetadataTooLarge,
    RebalanceInProgress,
    StaleMemberEpoch,
    TopicAuthorizationFailed,
    TransactionAbortable,
    UnknownMemberId,
    UnknownProducerId,
)
BREAKING_OF_PRODUCE = (
    ProducerFenced,
    ClusterAuthorizationFailed,
    InvalidProducerIdMapping,
    TransactionalIdAuthorizationFailed,
    UnsupportedVersion,
)
"""A leader's INVALID_PRODUCER_EPOCH or INVALID_TXN_STATE is not the last word (KIP-588): the coordinator's answer to the abort is."""
OTHERWISE = {AddPartitionsToTxnRequest: Verdict.ABORT, AddOffsetsToTxnRequest: Verdict.ABORT, TxnOffsetCommitRequest: Verdict.ABORT}
"""What any other error means, by request; FATAL for those that are not here: whoever cannot get an id or end a transaction cannot go on."""


def verdict(request: Message, error: BrokerError) -> Verdict:
    """What a coordinator's error means for the transaction."""
    if isinstance(error, BREAKING):
        return Verdict.FATAL
    if isinstance(error, FAILING):
        return Verdict.ABORT
    if error.retriable or error.stale is COORDINATOR:
        return Verdict.RETRY
    return OTHERWISE.get(type(request), Verdict.FATAL)


def breaks_by_produce(error: KafkaException) -> bool:
    """Does what befell a batch end the producer? If not, it makes the transaction one to abort."""
    return isinstance(error, BREAKING_OF_PRODUCE)


def fatal_error(transactional_id: str, cause: KafkaException) -> TransactionFatalError:
    """The error of a producer that cannot go on."""
    error: TransactionFatalError
    if isinstance(cause, FENCED):
        error = FencedError(
            f"transactional id {transactional_id!r}: another producer has taken it over, or the transaction was open for longer than "
            f"transaction_timeout_ms; close this producer ({cause})"
        )
    elif isinstance(cause, InvalidTxnState):
        # With KIP-890 this is what the coordinator says of a transaction that it has aborted by itself.
        error = TransactionFatalError(
            f"transactional id {transactional_id!r}: the transaction is not open any more, it may have been open for longer than "
            f"transaction_timeout_ms; close this producer ({cause})"
        )
    else:
        error = TransactionFatalError(
            f"transactional id {transactional_id!r}: the producer cannot go on, close it and make a new one ({cause})"
        )
    error.__cause__ = cause
    return error
