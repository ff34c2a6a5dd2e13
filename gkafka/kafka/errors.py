"""kafka-python's names of what is raised (kafka.errors). Each is one of gkafka's own exceptions, so that either name catches it.

KafkaError is gkafka's KafkaException: everything that gkafka raises is one. What 1.4 documents as an AssertionError and newer versions as a
ValueError is both. errno, message, description, retriable and invalid_metadata are those of kafka-python, the words of a description Kafka's own.
"""

from __future__ import annotations

from typing import Any

from gkafka import exceptions as _ours
from gkafka.exceptions import (
    CommitFailedError,
    ConfigurationError,
    KafkaException,
    KafkaTimeoutError,
    LogTruncationError,
    NoOffsetForPartitionError,
)
from gkafka.records._check import NothingToSend

__all__ = [  # and a name for each code of the broker's errors, below
    "AuthorizationError",
    "BrokerResponseError",
    "Cancelled",
    "CommitFailedError",
    "ConsumerFetchSizeTooSmall",
    "ConsumerNoMoreData",
    "ConsumerTimeout",
    "DamagedRecordError",
    "IllegalArgumentError",
    "IllegalStateError",
    "InvalidMetadataError",
    "KafkaConfigurationError",
    "KafkaConnectionError",
    "KafkaError",
    "KafkaProtocolError",
    "KafkaTimeoutError",
    "LogTruncationError",
    "MetadataEmptyBrokerList",
    "NoBrokersAvailable",
    "NoError",
    "NoOffsetForPartitionError",
    "NothingToSend",
    "QuotaViolationError",
    "RetriableError",
    "StaleMetadata",
    "TooManyInFlightRequests",
    "UnknownBrokerIdError",
    "UnknownPartitionError",
    "UnknownTopicTimeoutError",
    "UnrecognizedBrokerVersion",
    "WrongTypeError",
    "check_error",
    "for_code",
    "kafka_errors",
]

KafkaError = KafkaException
BrokerResponseError = _ours.BrokerError
KafkaConfigurationError = ConfigurationError
KafkaConnectionError = _ours.SocketDisconnectedError
KafkaProtocolError = CorrelationIdError = InvalidReceiveError = ProtocolError = _ours.ProtocolError
RetriableError = _ours.RetriableError
InvalidMetadataError = _ours.InvalidMetadataError
AuthorizationError = _ours.AuthorizationError
AuthenticationFailedError = _ours.AuthenticationError
NodeNotReadyError = _ours.ConnectionFailedError
KafkaUnavailableError = NoBrokersAvailable = _ours.NoBrokersAvailableError
UnsupportedCodecError = _ours.UnsupportedCodec
TransactionAbortedError = _ours.TransactionAbortedError


# -- names that 1.4 and older versions have beside these --------------------------------------------------------------------
AsyncProducerQueueFull = _ours.BufferFull
AuthenticationMethodNotSupported = _ours.UnsupportedSaslMechanism
BufferUnderflowError = _ours.ProtocolError
ChecksumError = _ours.CorruptRecordError
ConnectionError = FailedPayloadsError = KafkaConnectionError
InvalidMessageError = _ours.InvalidMessageError
StaleLeaderEpochCodeError = _ours.NetworkException
OLDER = ("AsyncProducerQueueFull", "BufferUnderflowError", "ChecksumError", "ConnectionError", "FailedPayloadsError")
"""Those that no error is told by: each is the class of what is raised here in its place."""


class NoError(BrokerResponseError):
    """No error: where kafka-python gives the class of an error, and there is none."""

    code = errno = 0
    message = "NO_ERROR"
    description = "There is no error."


class IllegalStateError(KafkaException):
    """A call that does not fit what the client was told or asked before."""


class IllegalArgumentError(ConfigurationError, AssertionError):
    """An argument whose value cannot be used: it names it and says what to give."""


class UnusableCodecError(IllegalArgumentError, UnsupportedCodecError, RuntimeError):
    """A compression_type that the brokers do not take yet, or whose package is not installed. kafka-python: an AssertionError, a ValueError or a RuntimeError."""


class WrongTypeError(ConfigurationError, TypeError):
    """An argument of a type that cannot be used."""


class DamagedRecordError(_ours.CorruptRecordError, _ours.InvalidMessageError):
    """A record that was fetched cannot be read. kafka-python has one name, CorruptRecordError, for that and for a broker's error 2."""

    retriable = False


class UnknownPartitionError(_ours.UnknownTopicError, KafkaTimeoutError):
    """Offsets of a partition that is not there cannot be looked up. kafka-python waits for it, and then raises a KafkaTimeoutError."""


class UnknownTopicTimeoutError(_ours.UnknownTopicError, KafkaTimeoutError):
    """A producer's topic is not there, and was not made within max_block_ms. kafka-python raises a KafkaTimeoutError."""


class UnrecognizedBrokerVersion(KafkaException):
    """A broker does not tell which version it is."""


# -- of kafka-python's inside: for programs that name them. Nothing here raises them --------------------------------------
class Cancelled(RetriableError):
    """A request was given up."""


class StaleMetadata(InvalidMetadataError):
    """What is known of the cluster is out of date."""


class MetadataEmptyBrokerList(RetriableError):
    """No broker is known."""


class TooManyInFlightRequests(RetriableError):
    """max_in_flight_requests_per_connection is reached."""


class UnknownBrokerIdError(KafkaException):
    """There is no broker of that id."""


class QuotaViolationError(KafkaException):
    """A quota is used up. What a broker says of one is a ThrottlingQuotaExceededError."""


class ConsumerNoMoreData(KafkaException):
    """There are no more messages."""


# -- of the 0.9 consumers ---------------------------------------------------------------------------------------------------
class ConsumerTimeout(KafkaException):
    """No message came within consumer_timeout_ms."""


class ConsumerFetchSizeTooSmall(_ours.RecordTooLarge):
    """A message is larger than max_buffer_size: give a larger one, or None; or seek() past it."""


# -- one for each code that a broker answers ------------------------------------------------------------------------------
IncompatibleBrokerVersion = _ours.UnsupportedVersion
BrokerIdNotRegisteredError = _ours.BrokerIdNotRegistered
BrokerNotAvailableError = _ours.BrokerNotAvailable
ClusterAuthorizationFailedError = _ours.ClusterAuthorizationFailed
ConcurrentTransactionsError = _ours.ConcurrentTransactions
CoordinatorLoadInProgressError = _ours.GroupLoadInProgress
CoordinatorNotAvailableError = _ours.GroupCoordinatorNotAvailable
CorruptRecordError = CorruptRecordException = _ours.InvalidMessageError
DelegationTokenAuthDisabledError = _ours.DelegationTokenAuthDisabled
DelegationTokenAuthorizationFailedError = _ours.DelegationTokenAuthorizationFailed
DelegationTokenExpiredError = _ours.DelegationTokenExpired
DelegationTokenNotFoundError = _ours.DelegationTokenNotFound
DelegationTokenOwnerMismatchError = _ours.DelegationTokenOwnerMismatch
DelegationTokenRequestNotAllowedError = _ours.DelegationTokenRequestNotAllowed
DuplicateBrokerRegistrationError = _ours.DuplicateBrokerRegistration
DuplicateResourceError = _ours.DuplicateResource
DuplicateSequenceNumberError = _ours.DuplicateSequenceNumber
DuplicateVoterError = _ours.DuplicateVoter
ElectionNotNeededError = _ours.ElectionNotNeeded
EligibleLeadersNotAvailableError = _ours.EligibleLeadersNotAvailable
FeatureUpdateFailedError = _ours.FeatureUpdateFailed
FencedInstanceIdError = _ours.FencedInstanceId
FencedLeaderEpochError = _ours.FencedLeaderEpoch
FencedMemberEpochError = _ours.FencedMemberEpoch
FencedStateEpochError = _ours.FencedStateEpoch
FetchSessionIdNotFoundError = _ours.FetchSessionIdNotFound
FetchSessionTopicIdError = _ours.FetchSessionTopicId
GroupAuthorizationFailedError = _ours.GroupAuthorizationFailed
GroupCoordinatorNotAvailableError = _ours.GroupCoordinatorNotAvailable
GroupIdNotFoundError = _ours.GroupIdNotFound
GroupLoadInProgressError = _ours.GroupLoadInProgress
GroupMaxSizeReachedError = _ours.GroupMaxSizeReached
GroupSubscribedToTopicError = _ours.GroupSubscribedToTopic
IllegalGenerationError = _ours.IllegalGeneration
IllegalSaslStateError = _ours.IllegalSaslState
InconsistentClusterIdError = _ours.InconsistentClusterId
InconsistentGroupProtocolError = _ours.InconsistentGroupProtocol
InconsistentTopicIdError = _ours.InconsistentTopicId
InconsistentVoterSetError = _ours.InconsistentVoterSet
IneligibleReplicaError = _ours.IneligibleReplica
InvalidCommitOffsetSizeError = _ours.InvalidCommitOffsetSize
InvalidConfigurationError = _ours.InvalidConfig
InvalidFetchRequestError = _ours.InvalidMessageSize
InvalidFetchSessionEpochError = _ours.InvalidFetchSessionEpoch
InvalidGroupIdError = _ours.InvalidGroupId
InvalidPartitionsError = _ours.InvalidPartitions
InvalidPrincipalTypeError = _ours.InvalidPrincipalType
InvalidProducerEpochError = _ours.InvalidProducerEpoch
InvalidProducerIdMappingError = _ours.InvalidProducerIdMapping
InvalidRecordError = _ours.InvalidRecord
InvalidRecordStateError = _ours.InvalidRecordState
InvalidRegistrationError = _ours.InvalidRegistration
InvalidReplicationAssignmentError = _ours.InvalidReplicaAssignment
InvalidReplicationFactorError = _ours.InvalidReplicationFactor
InvalidRequestError = _ours.InvalidRequest
InvalidRequiredAcksError = _ours.InvalidRequiredAcks
InvalidSessionTimeoutError = _ours.InvalidSessionTimeout
InvalidShareSessionEpochError = _ours.InvalidShareSessionEpoch
InvalidTimestampError = _ours.InvalidTimestamp
InvalidTopicError = _ours.InvalidTopic
InvalidTransactionTimeoutError = _ours.InvalidTransactionTimeout
InvalidTxnStateError = _ours.InvalidTxnState
InvalidUpdateVersionError = _ours.InvalidUpdateVersion
InvalidVoterKeyError = _ours.InvalidVoterKey
KafkaStorageError = _ours.KafkaStorageError
LeaderNotAvailableError = _ours.LeaderNotAvailable
ListenerNotFoundError = _ours.ListenerNotFound
LogDirNotFoundError = _ours.LogDirNotFound
MemberIdRequiredError = _ours.MemberIdRequired
MessageSizeTooLargeError = _ours.MessageSizeTooLarge
MismatchedEndpointTypeError = _ours.MismatchedEndpointType
NetworkExceptionError = _ours.NetworkException
NewLeaderElectedError = _ours.NewLeaderElected
NoReassignmentInProgressError = _ours.NoReassignmentInProgress
NonEmptyGroupError = _ours.NonEmptyGroup
NotControllerError = _ours.NotController
NotCoordinatorError = _ours.NotCoordinatorForGroup
NotCoordinatorForGroupError = _ours.NotCoordinatorForGroup
NotEnoughReplicasAfterAppendError = _ours.NotEnoughReplicasAfterAppend
NotEnoughReplicasError = _ours.NotEnoughReplicas
NotLeaderForPartitionError = _ours.NotLeaderForPartition
OffsetMetadataTooLargeError = _ours.OffsetMetadataTooLarge
OffsetMovedToTieredStorageError = _ours.OffsetMovedToTieredStorage
OffsetNotAvailableError = _ours.OffsetNotAvailable
OffsetOutOfRangeError = _ours.OffsetOutOfRangeError
OperationNotAttemptedError = _ours.OperationNotAttempted
OutOfOrderSequenceNumberError = _ours.OutOfOrderSequenceNumber
PolicyViolationError = _ours.PolicyViolation
PositionOutOfRangeError = _ours.PositionOutOfRange
PreferredLeaderNotAvailableError = _ours.PreferredLeaderNotAvailable
PrincipalDeserializationFailureError = _ours.PrincipalDeserializationFailure
ProducerFencedError = _ours.ProducerFenced
ReassignmentInProgressError = _ours.ReassignmentInProgress
RebalanceInProgressError = _ours.RebalanceInProgress
RecordListTooLargeError = _ours.RecordListTooLarge
ReplicaNotAvailableError = _ours.ReplicaNotAvailable
RequestTimedOutError = _ours.RequestTimedOut
ResourceNotFoundError = _ours.ResourceNotFound
SaslAuthenticationFailedError = _ours.SaslAuthenticationFailed
SecurityDisabledError = _ours.SecurityDisabled
ShareSessionNotFoundError = _ours.ShareSessionNotFound
SnapshotNotFoundError = _ours.SnapshotNotFound
StaleBrokerEpochError = _ours.StaleBrokerEpoch
StaleControllerEpochError = _ours.StaleControllerEpoch
StaleMemberEpochError = _ours.StaleMemberEpoch
TelemetryTooLargeError = _ours.TelemetryTooLarge
ThrottlingQuotaExceededError = _ours.ThrottlingQuotaExceeded
TopicAlreadyExistsError = _ours.TopicAlreadyExists
TopicAuthorizationFailedError = _ours.TopicAuthorizationFailed
TopicDeletionDisabledError = _ours.TopicDeletionDisabled
TransactionAbortableError = _ours.TransactionAbortable
TransactionCoordinatorFencedError = _ours.TransactionCoordinatorFenced
TransactionalIdAuthorizationFailedError = _ours.TransactionalIdAuthorizationFailed
TransactionalIdNotFoundError = _ours.TransactionalIdNotFound
UnacceptableCredentialError = _ours.UnacceptableCredential
UnknownControllerIdError = _ours.UnknownControllerId
UnknownError = _ours.UnknownError
UnknownLeaderEpochError = _ours.UnknownLeaderEpoch
UnknownMemberIdError = _ours.UnknownMemberId
UnknownProducerIdError = _ours.UnknownProducerId
UnknownSubscriptionIdError = _ours.UnknownSubscriptionId
UnknownTopicIdError = _ours.UnknownTopicId
UnknownTopicOrPartitionError = _ours.UnknownTopicOrPartition
UnreleasedInstanceIdError = _ours.UnreleasedInstanceId
UnstableOffsetCommitError = _ours.UnstableOffsetCommit
UnsupportedAssignorError = _ours.UnsupportedAssignor
UnsupportedCompressionTypeError = _ours.UnsupportedCompressionType
UnsupportedEndpointTypeError = _ours.UnsupportedEndpointType
UnsupportedForMessageFormatError = _ours.UnsupportedForMessageFormat
UnsupportedSaslMechanismError = _ours.UnsupportedSaslMechanism
UnsupportedVersionError = _ours.UnsupportedVersion
VoterNotFoundError = _ours.VoterNotFound

kafka_errors: dict[int, type[BrokerResponseError]] = {0: NoError, **BrokerResponseError.by_code}
"""The class of each error code."""


def for_code(error_code: int) -> type[BrokerResponseError]:
    """The class of an error code; for one that is not known a class made for it, whose errno it is."""
    known = kafka_errors.get(error_code)
    return known or type("UnrecognizedBrokerError", (UnknownError,), {"code": error_code, "errno": error_code})


def check_error(response: Any) -> None:
    """Raise what a response tells: the exception that it is, or that of its `error`, a code. As 1.4 and older versions have it."""
    if isinstance(response, Exception):
        raise response
    if response.error:
        raise for_code(response.error)(str(response))
