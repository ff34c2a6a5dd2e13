"""The errors that a broker can answer: one class per error code of Kafka 4.2.

`retriable` and `stale` are Kafka's own classification (org.apache.kafka.common.protocol.Errors and the Java client's
handling of it): code that reacts to errors asks for these, never for a list of numbers.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any, ClassVar

from gkafka.errortexts import text_of
from gkafka.escaping import escaped

LONGEST_MESSAGE = 1000
"""Characters of what a broker says of its error."""

__all__ = [
    "AuthenticationError",
    "AuthorizationError",
    "BrokerError",
    "BrokerIdNotRegistered",
    "BrokerNotAvailable",
    "ClusterAuthorizationFailed",
    "ConcurrentTransactions",
    "DelegationTokenAuthDisabled",
    "DelegationTokenAuthorizationFailed",
    "DelegationTokenExpired",
    "DelegationTokenNotFound",
    "DelegationTokenOwnerMismatch",
    "DelegationTokenRequestNotAllowed",
    "DuplicateBrokerRegistration",
    "DuplicateResource",
    "DuplicateSequenceNumber",
    "DuplicateVoter",
    "ElectionNotNeeded",
    "EligibleLeadersNotAvailable",
    "FeatureUpdateFailed",
    "FencedInstanceId",
    "FencedLeaderEpoch",
    "FencedMemberEpoch",
    "FencedStateEpoch",
    "FetchSessionIdNotFound",
    "FetchSessionTopicId",
    "GroupAuthorizationFailed",
    "GroupCoordinatorNotAvailable",
    "GroupIdNotFound",
    "GroupLoadInProgress",
    "GroupMaxSizeReached",
    "GroupSubscribedToTopic",
    "IllegalGeneration",
    "IllegalSaslState",
    "InconsistentClusterId",
    "InconsistentGroupProtocol",
    "InconsistentTopicId",
    "InconsistentVoterSet",
    "IneligibleReplica",
    "InvalidCommitOffsetSize",
    "InvalidConfig",
    "InvalidFetchSessionEpoch",
    "InvalidGroupId",
    "InvalidMessageError",
    "InvalidMessageSize",
    "InvalidMetadataError",
    "InvalidPartitions",
    "InvalidPrincipalType",
    "InvalidProducerEpoch",
    "InvalidProducerIdMapping",
    "InvalidRecord",
    "InvalidRecordState",
    "InvalidRegistration",
    "InvalidRegularExpression",
    "InvalidReplicaAssignment",
    "InvalidReplicationFactor",
    "InvalidRequest",
    "InvalidRequiredAcks",
    "InvalidSessionTimeout",
    "InvalidShareSessionEpoch",
    "InvalidTimestamp",
    "InvalidTopic",
    "InvalidTransactionTimeout",
    "InvalidTxnState",
    "InvalidUpdateVersion",
    "InvalidVoterKey",
    "KafkaException",
    "KafkaStorageError",
    "LeaderNotAvailable",
    "ListenerNotFound",
    "LogDirNotFound",
    "MemberIdRequired",
    "MessageSizeTooLarge",
    "MismatchedEndpointType",
    "NetworkException",
    "NewLeaderElected",
    "NoReassignmentInProgress",
    "NonEmptyGroup",
    "NotController",
    "NotCoordinatorForGroup",
    "NotEnoughReplicas",
    "NotEnoughReplicasAfterAppend",
    "NotLeaderForPartition",
    "OffsetMetadataTooLarge",
    "OffsetMovedToTieredStorage",
    "OffsetNotAvailable",
    "OffsetOutOfRangeError",
    "OperationNotAttempted",
    "OutOfOrderSequenceNumber",
    "PolicyViolation",
    "PositionOutOfRange",
    "PreferredLeaderNotAvailable",
    "PrincipalDeserializationFailure",
    "ProducerFenced",
    "ReassignmentInProgress",
    "RebalanceInProgress",
    "RebootstrapRequired",
    "RecordListTooLarge",
    "ReplicaNotAvailable",
    "RequestTimedOut",
    "ResourceNotFound",
    "RetriableError",
    "SaslAuthenticationFailed",
    "SecurityDisabled",
    "ShareSessionLimitReached",
    "ShareSessionNotFound",
    "SnapshotNotFound",
    "Stale",
    "StaleBrokerEpoch",
    "StaleControllerEpoch",
    "StaleMemberEpoch",
    "StreamsInvalidTopology",
    "StreamsInvalidTopologyEpoch",
    "StreamsTopologyFenced",
    "TelemetryTooLarge",
    "ThrottlingQuotaExceeded",
    "TopicAlreadyExists",
    "TopicAuthorizationFailed",
    "TopicDeletionDisabled",
    "TransactionAbortable",
    "TransactionCoordinatorFenced",
    "TransactionalIdAuthorizationFailed",
    "TransactionalIdNotFound",
    "UnacceptableCredential",
    "UnknownBrokerError",
    "UnknownControllerId",
    "UnknownError",
    "UnknownLeaderEpoch",
    "UnknownMemberId",
    "UnknownProducerId",
    "UnknownSubscriptionId",
    "UnknownTopicId",
    "UnknownTopicOrPartition",
    "UnreleasedInstanceId",
    "UnstableOffsetCommit",
    "UnsupportedAssignor",
    "UnsupportedCompressionType",
    "UnsupportedEndpointType",
    "UnsupportedForMessageFormat",
    "UnsupportedSaslMechanism",
    "UnsupportedVersion",
    "VoterNotFound",
    "error_for",
]


class Stale(enum.Enum):
    """What a client must refresh before it tries again."""

    METADATA = "metadata"
    COORDINATOR = "coordinator"
    PRODUCER_ID = "producer id"
    MEMBER = "member"


METADATA, COORDINATOR, PRODUCER_ID, MEMBER = Stale.METADATA, Stale.COORDINATOR, Stale.PRODUCER_ID, Stale.MEMBER


class KafkaException(Exception):
    """Base of every error of gkafka.

    Each carries what it is about: `topic`, `partition`, `offset`, `group`, `broker` (host:port or id) and `api`, None where it does not apply.
    `retriable`: the same call may succeed later; `abortable`: abort the transaction and do its work again; `fatal`: the producer is of no
    use any more, make a new one; `invalid_metadata`: what is known of the cluster is out of date, and is asked for anew. never_sent: nothing of the
    request has left this client. persisted: of a delivery's error: "no", or "maybe" where a broker may have written the record without its answer
    reaching us; None of any other error.
    """

    retriable: ClassVar[bool] = False
    abortable: ClassVar[bool] = False
    fatal: ClassVar[bool] = False
    stale: ClassVar[Stale | None] = None
    invalid_metadata: ClassVar[bool] = False
    persisted: str | None = None
    never_sent: bool = False
    _record: tuple[Callable[[], Any], int] | None = None

    def __init__(
        self,
        *args: Any,
        topic: str | None = None,
        partition: int | None = None,
        offset: int | None = None,
        group: str | None = None,
        broker: str | int | None = None,
        api: str | None = None,
    ) -> None:
        super().__init__(*args)
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.group = group
        self.broker = broker
        self.api = api

    def __str__(self) -> str:
        """Return the text, in which no control character acts, whoever wrote what it repeats. Attributes and `args` are as they came."""
        return escaped(super().__str__())

    @property
    def about(self) -> dict[str, Any]:
        """What it is about, as the arguments of another error about the same."""
        return {name: getattr(self, name) for name in ("topic", "partition", "offset", "group", "broker", "api")}

    @property
    def record(self) -> Any:
        """Of a delivery's error: the record as it was produced, as long as its delivery is kept. None of any other error, and of a copy."""
        batch, index = self.place
        return None if batch is None else batch.record(index)

    @property
    def place(self) -> tuple[Any, int]:
        """Of a delivery's error: the record's batch, None if that is gone, and the record's number in it."""
        return (None, 0) if self._record is None else (self._record[0](), self._record[1])

    def tell_of_record(self, batch: Callable[[], Any], index: int, persisted: str | None) -> None:
        """Be the error of record number index of a batch. batch: a weak reference: who keeps an error must not keep the batch's memory."""
        self._record, self.persisted = (batch, index), persisted

    def __reduce__(self) -> Any:
        return _rebuild, (type(self), self.args, {name: value for name, value in self.__dict__.items() if name != "_record"})


def _rebuild(cls: type[KafkaException], args: tuple[Any, ...], state: dict[str, Any]) -> KafkaException:
    error = cls.__new__(cls)
    Exception.__init__(error, *args)
    error.__dict__.update(state)
    return error


class RetriableError(KafkaException):
    """Errors after which the same may succeed. `retriable` has the last word: of the few that are of this kind and never pass it is False."""

    retriable = True


class InvalidMetadataError(RetriableError):
    """Errors after which the same may succeed with fresh metadata, which the client asks for by itself."""

    invalid_metadata = True


class BrokerError(KafkaException):
    """An error code in a broker's answer. pykafka calls it ProtocolClientError.

    errno, message and description, also of the classes: the code, Kafka's name of it and its meaning, under kafka-python's names.
    """

    code: ClassVar[int]
    by_code: ClassVar[dict[int, type[BrokerError]]] = {}
    errno: ClassVar[int | None] = None
    message: ClassVar[str | None] = None
    description: ClassVar[str | None] = None

    def __init_subclass__(cls, code: int | None = None, stale: Stale | None = None, called: str | None = None) -> None:
        """called: Kafka's name of the code, where the class has another."""
        if code is None:
            return
        cls.code = cls.errno = code
        cls.stale = stale
        cls.message = called or _upper(cls.__name__)
        cls.description = " ".join((cls.__doc__ or "").split())
        BrokerError.by_code.setdefault(code, cls)

    def __init__(self, *args: Any, **about: Any) -> None:
        super().__init__(*(args or (text_of(self.code, self.__doc__ or "", about),)), **about)


class UnknownBrokerError(BrokerError):
    """An error code that this version of gkafka does not know; `code` holds it."""

    def __init__(self, code: int, *args: Any, **about: Any) -> None:
        self.code = self.errno = code  # type: ignore[misc]  # class attributes everywhere else: here each instance has its own
        super().__init__(*(args or (f"error {code}: not known to this client",)), **about)


class AuthorizationError(BrokerError):
    """The broker's ACLs do not allow it to this client."""


class AuthenticationError(KafkaException):
    """A broker does not take this client for who it says it is, or could not show that it is the right broker, or the credentials could not be
    had. The text says which. Trying again with the same credentials does not help: if they worked before, that was done for sasl_retry_timeout_ms.
    """


def _upper(name: str) -> str:
    """TopicAlreadyExists -> TOPIC_ALREADY_EXISTS."""
    return "".join(f"_{c}" if c.isupper() and n else c for n, c in enumerate(name)).upper()


def shown(text: str) -> str:
    """What a broker says of its error, escaped and not long."""
    return escaped(text, LONGEST_MESSAGE)


def error_for(code: int, message: str | None = None, **about: Any) -> BrokerError | None:
    """The exception for a broker's error code, None for 0. message: the broker's own text, where the answer has one.

    about: what a KafkaException carries; its text names that, too.
    """
    if code == 0:
        return None
    cls = BrokerError.by_code.get(code)
    if message:
        message = shown(message)
    if cls is None:
        return UnknownBrokerError(code, text_of(code, message or "not known to this client", about), **about)
    return cls(text_of(code, message or cls.__doc__ or "", about, told=bool(message)), **about)


class UnknownError(BrokerError, code=-1, called="UNKNOWN"):
    """The server experienced an unexpected error when processing the request."""


class OffsetOutOfRangeError(BrokerError, code=1, called="OFFSET_OUT_OF_RANGE"):
    """The requested offset is not within the range of offsets maintained by the server."""


class InvalidMessageError(RetriableError, BrokerError, code=2, called="CORRUPT_MESSAGE"):
    """This message has failed its CRC checksum, exceeds the valid size, has a null key for a compacted topic, or is otherwise
    corrupt.
    """


class UnknownTopicOrPartition(InvalidMetadataError, BrokerError, code=3, stale=METADATA):
    """This server does not host this topic-partition."""


class InvalidMessageSize(BrokerError, code=4, called="INVALID_FETCH_SIZE"):
    """The requested fetch size is invalid."""


class LeaderNotAvailable(InvalidMetadataError, BrokerError, code=5, stale=METADATA):
    """There is no leader for this topic-partition as we are in the middle of a leadership election."""


class NotLeaderForPartition(InvalidMetadataError, BrokerError, code=6, stale=METADATA):
    """For requests intended only for the leader, this error indicates that the broker is not the current leader."""


class RequestTimedOut(RetriableError, BrokerError, code=7):
    """The request timed out."""


class BrokerNotAvailable(BrokerError, code=8):
    """The broker is not available."""


class ReplicaNotAvailable(InvalidMetadataError, BrokerError, code=9, stale=METADATA):
    """The replica is not available for the requested topic-partition."""


class MessageSizeTooLarge(BrokerError, code=10):
    """The request included a message larger than the max message size the server will accept."""


class StaleControllerEpoch(BrokerError, code=11):
    """The controller moved to another broker."""


class OffsetMetadataTooLarge(BrokerError, code=12):
    """The metadata field of the offset request was too large."""


class NetworkException(InvalidMetadataError, BrokerError, code=13, stale=METADATA):
    """The server disconnected before a response was received."""


class GroupLoadInProgress(RetriableError, BrokerError, code=14, called="COORDINATOR_LOAD_IN_PROGRESS"):
    """The coordinator is loading and hence can't process requests."""


class GroupCoordinatorNotAvailable(RetriableError, BrokerError, code=15, stale=COORDINATOR, called="COORDINATOR_NOT_AVAILABLE"):
    """The coordinator is not available."""


class NotCoordinatorForGroup(RetriableError, BrokerError, code=16, stale=COORDINATOR, called="NOT_COORDINATOR"):
    """This is not the correct coordinator."""


class InvalidTopic(BrokerError, code=17):
    """The request attempted to perform an operation on an invalid topic."""


class RecordListTooLarge(BrokerError, code=18):
    """The request included message batch larger than the configured segment size on the server."""


class NotEnoughReplicas(RetriableError, BrokerError, code=19):
    """Messages are rejected since there are fewer in-sync replicas than required."""


class NotEnoughReplicasAfterAppend(RetriableError, BrokerError, code=20):
    """Messages are written to the log, but to fewer in-sync replicas than required."""


class InvalidRequiredAcks(BrokerError, code=21):
    """Produce request specified an invalid value for required acks."""


class IllegalGeneration(BrokerError, code=22, stale=MEMBER):
    """Specified group generation id is not valid."""


class InconsistentGroupProtocol(BrokerError, code=23):
    """The group member's supported protocols are incompatible with those of existing members or first group member tried to
    join with empty protocol type or empty protocol list.
    """


class InvalidGroupId(BrokerError, code=24):
    """The group id is invalid."""


class UnknownMemberId(BrokerError, code=25, stale=MEMBER):
    """The coordinator is not aware of this member."""


class InvalidSessionTimeout(BrokerError, code=26):
    """The session timeout is not within the range allowed by the broker (as configured by group.min.session.timeout.ms and
    group.max.session.timeout.ms).
    """


class RebalanceInProgress(BrokerError, code=27):
    """The group is rebalancing, so a rejoin is needed."""


class InvalidCommitOffsetSize(BrokerError, code=28):
    """The committing offset data size is not valid."""


class TopicAuthorizationFailed(AuthorizationError, code=29):
    """Topic authorization failed."""


class GroupAuthorizationFailed(AuthorizationError, code=30):
    """Group authorization failed."""


class ClusterAuthorizationFailed(AuthorizationError, code=31):
    """Cluster authorization failed."""


class InvalidTimestamp(BrokerError, code=32):
    """The timestamp of the message is out of acceptable range."""


class UnsupportedSaslMechanism(BrokerError, AuthenticationError, code=33):
    """The broker does not support the requested SASL mechanism."""


class IllegalSaslState(BrokerError, AuthenticationError, code=34):
    """Request is not valid given the current SASL state."""


class UnsupportedVersion(BrokerError, code=35):
    """The version of API is not supported."""


class TopicAlreadyExists(BrokerError, code=36):
    """Topic with this name already exists."""


class InvalidPartitions(BrokerError, code=37):
    """Number of partitions is below 1."""


class InvalidReplicationFactor(BrokerError, code=38):
    """Replication factor is below 1 or larger than the number of available brokers."""


class InvalidReplicaAssignment(BrokerError, code=39, called="INVALID_REPLICATION_ASSIGNMENT"):
    """Replica assignment is invalid."""


class InvalidConfig(BrokerError, code=40):
    """Configuration is invalid."""


class NotController(RetriableError, BrokerError, code=41, stale=METADATA):
    """This is not the correct controller for this cluster."""


class InvalidRequest(BrokerError, code=42):
    """This most likely occurs because of a request being malformed by the client library or the message was sent to an
    incompatible broker.
    """


class UnsupportedForMessageFormat(BrokerError, code=43):
    """The message format version on the broker does not support the request."""


class PolicyViolation(BrokerError, code=44):
    """Request parameters do not satisfy the configured policy."""


class OutOfOrderSequenceNumber(BrokerError, code=45):
    """The broker received an out of order sequence number."""


class DuplicateSequenceNumber(BrokerError, code=46):
    """The broker received a duplicate sequence number."""


class InvalidProducerEpoch(BrokerError, code=47, stale=PRODUCER_ID):
    """Producer attempted to produce with an old epoch."""


class InvalidTxnState(BrokerError, code=48):
    """The producer attempted a transactional operation in an invalid state."""


class InvalidProducerIdMapping(BrokerError, code=49, stale=PRODUCER_ID):
    """The producer attempted to use a producer id which is not currently assigned to its transactional id."""


class InvalidTransactionTimeout(BrokerError, code=50):
    """The transaction timeout is larger than the maximum value allowed by the broker (as configured by
    transaction.max.timeout.ms).
    """


class ConcurrentTransactions(RetriableError, BrokerError, code=51):
    """The producer attempted to update a transaction while another concurrent operation on the same transaction was ongoing."""


class TransactionCoordinatorFenced(BrokerError, code=52):
    """Indicates that the transaction coordinator sending a WriteTxnMarker is no longer the current coordinator for a given
    producer.
    """


class TransactionalIdAuthorizationFailed(AuthorizationError, code=53):
    """Transactional Id authorization failed."""


class SecurityDisabled(BrokerError, code=54):
    """Security features are disabled."""


class OperationNotAttempted(BrokerError, code=55):
    """The broker did not attempt to execute this operation."""


class KafkaStorageError(InvalidMetadataError, BrokerError, code=56, stale=METADATA):
    """Disk error when trying to access log file on the disk."""


class LogDirNotFound(BrokerError, code=57):
    """The user-specified log directory is not found in the broker config."""


class SaslAuthenticationFailed(BrokerError, AuthenticationError, code=58):
    """SASL Authentication failed."""


class UnknownProducerId(BrokerError, code=59, stale=PRODUCER_ID):
    """This exception is raised by the broker if it could not locate the producer metadata associated with the producerId in
    question.
    """


class ReassignmentInProgress(BrokerError, code=60):
    """A partition reassignment is in progress."""


class DelegationTokenAuthDisabled(BrokerError, code=61):
    """Delegation Token feature is not enabled."""


class DelegationTokenNotFound(BrokerError, code=62):
    """Delegation Token is not found on server."""


class DelegationTokenOwnerMismatch(BrokerError, code=63):
    """Specified Principal is not valid Owner/Renewer."""


class DelegationTokenRequestNotAllowed(BrokerError, code=64):
    """Delegation Token requests are not allowed on PLAINTEXT/1-way SSL channels and on delegation token authenticated
    channels.
    """


class DelegationTokenAuthorizationFailed(AuthorizationError, code=65):
    """Delegation Token authorization failed."""


class DelegationTokenExpired(BrokerError, code=66):
    """Delegation Token is expired."""


class InvalidPrincipalType(BrokerError, code=67):
    """Supplied principalType is not supported."""


class NonEmptyGroup(BrokerError, code=68):
    """The group is not empty."""


class GroupIdNotFound(BrokerError, code=69):
    """The group id does not exist."""


class FetchSessionIdNotFound(RetriableError, BrokerError, code=70):
    """The fetch session ID was not found."""


class InvalidFetchSessionEpoch(RetriableError, BrokerError, code=71):
    """The fetch session epoch is invalid."""


class ListenerNotFound(InvalidMetadataError, BrokerError, code=72, stale=METADATA):
    """There is no listener on the leader broker that matches the listener on which metadata request was processed."""


class TopicDeletionDisabled(BrokerError, code=73):
    """Topic deletion is disabled."""


class FencedLeaderEpoch(InvalidMetadataError, BrokerError, code=74, stale=METADATA):
    """The leader epoch in the request is older than the epoch on the broker."""


class UnknownLeaderEpoch(InvalidMetadataError, BrokerError, code=75, stale=METADATA):
    """The leader epoch in the request is newer than the epoch on the broker."""


class UnsupportedCompressionType(BrokerError, code=76):
    """The requesting client does not support the compression type of given partition."""


class StaleBrokerEpoch(BrokerError, code=77):
    """Broker epoch has changed."""


class OffsetNotAvailable(RetriableError, BrokerError, code=78):
    """The leader high watermark has not caught up from a recent leader election so the offsets cannot be guaranteed to be
    monotonically increasing.
    """


class MemberIdRequired(BrokerError, code=79, stale=MEMBER):
    """The group member needs to have a valid member id before actually entering a consumer group."""


class PreferredLeaderNotAvailable(InvalidMetadataError, BrokerError, code=80, stale=METADATA):
    """The preferred leader was not available."""


class GroupMaxSizeReached(BrokerError, code=81):
    """The group has reached its maximum size."""


class FencedInstanceId(BrokerError, code=82, stale=MEMBER):
    """The broker rejected this static consumer since another consumer with the same group.instance.id has registered with a
    different member.id.
    """


class EligibleLeadersNotAvailable(InvalidMetadataError, BrokerError, code=83, stale=METADATA):
    """Eligible topic partition leaders are not available."""


class ElectionNotNeeded(InvalidMetadataError, BrokerError, code=84, stale=METADATA):
    """Leader election not needed for topic partition."""


class NoReassignmentInProgress(BrokerError, code=85):
    """No partition reassignment is in progress."""


class GroupSubscribedToTopic(BrokerError, code=86):
    """Deleting offsets of a topic is forbidden while the consumer group is actively subscribed to it."""


class InvalidRecord(BrokerError, code=87):
    """This record has failed the validation on broker and hence will be rejected."""


class UnstableOffsetCommit(RetriableError, BrokerError, code=88):
    """There are unstable offsets that need to be cleared."""


class ThrottlingQuotaExceeded(RetriableError, BrokerError, code=89):
    """The throttling quota has been exceeded."""


class ProducerFenced(BrokerError, code=90):
    """There is a newer producer with the same transactionalId which fences the current one."""


class ResourceNotFound(BrokerError, code=91):
    """A request illegally referred to a resource that does not exist."""


class DuplicateResource(BrokerError, code=92):
    """A request illegally referred to the same resource twice."""


class UnacceptableCredential(BrokerError, code=93):
    """Requested credential would not meet criteria for acceptability."""


class InconsistentVoterSet(BrokerError, code=94):
    """Indicates that the either the sender or recipient of a voter-only request is not one of the expected voters."""


class InvalidUpdateVersion(BrokerError, code=95):
    """The given update version was invalid."""


class FeatureUpdateFailed(BrokerError, code=96):
    """Unable to update finalized features due to an unexpected server error."""


class PrincipalDeserializationFailure(BrokerError, code=97):
    """Request principal deserialization failed during forwarding."""


class SnapshotNotFound(BrokerError, code=98):
    """Requested snapshot was not found."""


class PositionOutOfRange(BrokerError, code=99):
    """Requested position is not greater than or equal to zero, and less than the size of the snapshot."""


class UnknownTopicId(InvalidMetadataError, BrokerError, code=100, stale=METADATA):
    """This server does not host this topic ID."""


class DuplicateBrokerRegistration(BrokerError, code=101):
    """This broker ID is already in use."""


class BrokerIdNotRegistered(BrokerError, code=102):
    """The given broker ID was not registered."""


class InconsistentTopicId(InvalidMetadataError, BrokerError, code=103, stale=METADATA):
    """The log's topic ID did not match the topic ID in the request."""


class InconsistentClusterId(BrokerError, code=104):
    """The clusterId in the request does not match that found on the server."""


class TransactionalIdNotFound(BrokerError, code=105):
    """The transactionalId could not be found."""


class FetchSessionTopicId(RetriableError, BrokerError, code=106, called="FETCH_SESSION_TOPIC_ID_ERROR"):
    """The fetch session encountered inconsistent topic ID usage."""


class IneligibleReplica(BrokerError, code=107):
    """The new ISR contains at least one ineligible replica."""


class NewLeaderElected(BrokerError, code=108):
    """The AlterPartition request successfully updated the partition state but the leader has changed."""


class OffsetMovedToTieredStorage(BrokerError, code=109):
    """The requested offset is moved to tiered storage."""


class FencedMemberEpoch(BrokerError, code=110, stale=MEMBER):
    """The member epoch is fenced by the group coordinator."""


class UnreleasedInstanceId(BrokerError, code=111):
    """The instance ID is still used by another member in the consumer group."""


class UnsupportedAssignor(BrokerError, code=112):
    """The assignor or its version range is not supported by the consumer group."""


class StaleMemberEpoch(BrokerError, code=113, stale=MEMBER):
    """The member epoch is stale."""


class MismatchedEndpointType(BrokerError, code=114):
    """The request was sent to an endpoint of the wrong type."""


class UnsupportedEndpointType(BrokerError, code=115):
    """This endpoint type is not supported yet."""


class UnknownControllerId(BrokerError, code=116):
    """This controller ID is not known."""


class UnknownSubscriptionId(BrokerError, code=117):
    """Client sent a push telemetry request with an invalid or outdated subscription ID."""


class TelemetryTooLarge(BrokerError, code=118):
    """Client sent a push telemetry request larger than the maximum size the broker will accept."""


class InvalidRegistration(BrokerError, code=119):
    """The controller has considered the broker registration to be invalid."""


class TransactionAbortable(BrokerError, code=120):
    """The server encountered an error with the transaction."""


class InvalidRecordState(BrokerError, code=121):
    """The record state is invalid."""


class ShareSessionNotFound(RetriableError, BrokerError, code=122):
    """The share session was not found."""


class InvalidShareSessionEpoch(RetriableError, BrokerError, code=123):
    """The share session epoch is invalid."""


class FencedStateEpoch(BrokerError, code=124):
    """The share coordinator rejected the request because the share-group state epoch did not match."""


class InvalidVoterKey(BrokerError, code=125):
    """The voter key doesn't match the receiving replica's key."""


class DuplicateVoter(BrokerError, code=126):
    """The voter is already part of the set of voters."""


class VoterNotFound(BrokerError, code=127):
    """The voter is not part of the set of voters."""


class InvalidRegularExpression(BrokerError, code=128):
    """The regular expression is not valid."""


class RebootstrapRequired(BrokerError, code=129, stale=METADATA):
    """Client metadata is stale."""


class StreamsInvalidTopology(BrokerError, code=130):
    """The supplied topology is invalid."""


class StreamsInvalidTopologyEpoch(BrokerError, code=131):
    """The supplied topology epoch is invalid."""


class StreamsTopologyFenced(BrokerError, code=132):
    """The supplied topology epoch is outdated."""


class ShareSessionLimitReached(RetriableError, BrokerError, code=133):
    """The limit of share sessions has been reached."""
