"""Every error of gkafka, under pykafka's documented names where it has one.

Errors of the broker (one class per code) live in `gkafka.brokererrors` and are all exported here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from gkafka.brokererrors import *  # noqa: F403  # one class per error code: see its __all__
from gkafka.brokererrors import (
    BrokerError,
    GroupCoordinatorNotAvailable,
    GroupLoadInProgress,
    InvalidMetadataError,
    KafkaException,
    NotCoordinatorForGroup,
    RetriableError,
    UnknownTopicOrPartition,
)
from gkafka.brokererrors import __all__ as _broker_errors

__all__ = [
    *_broker_errors,
    "AdminError",
    "AssignmentError",
    "BatchRefusedError",
    "BufferFull",
    "ClientClosedError",
    "CommitFailedError",
    "ConfigurationError",
    "ConnectionFailedError",
    "ConsumerCoordinatorNotAvailable",
    "ConsumerStoppedException",
    "CorruptRecordError",
    "DeliveryError",
    "FencedError",
    "ForkedClientError",
    "HandlerThreadError",
    "KafkaTimeoutError",
    "LeaderNotFoundError",
    "LogTruncationError",
    "MessageSetDecodeFailure",
    "NoBrokersAvailableError",
    "NoMessagesConsumedError",
    "NoOffsetForPartitionError",
    "NoPartitionsForConsumerException",
    "NotCoordinatorForConsumer",
    "OffsetRequestFailedError",
    "OffsetsLoadInProgress",
    "PartitionOwnedError",
    "ProduceFailureError",
    "ProducerQueueFullError",
    "ProducerStoppedException",
    "ProtocolClientError",
    "ProtocolError",
    "ProxyError",
    "RdKafkaException",
    "RdKafkaStoppedException",
    "RecordTooLarge",
    "ReentrantCallError",
    "SerializationError",
    "SocketDisconnectedError",
    "TlsError",
    "TokenEndpointError",
    "TopicRecreatedError",
    "TransactionAbortableError",
    "TransactionAbortedError",
    "TransactionFatalError",
    "TransactionStateError",
    "TruncatedBatchError",
    "UnicodeException",
    "UnknownOptionError",
    "UnknownTopicError",
    "UnsupportedCodec",
    "ZooKeeperError",
]


# -- what the caller gave or did ---------------------------------------------------------------------------------------
class ConfigurationError(KafkaException, ValueError):
    """An option's name or value cannot be used; the text names both and what to give instead."""


class UnknownOptionError(ConfigurationError, TypeError):
    """A keyword that there is not, as a TypeError for whoever expects Python's own; the text has the nearest one that there is."""


class NoOffsetForPartitionError(ConfigurationError):
    """Nothing is committed for a partition, and auto_offset_reset does not say where to begin: seek() first, or assign() with an offset."""


class UnicodeException(KafkaException):
    """A name that Kafka keeps as text could not be decoded as UTF-8 (pykafka's name)."""


class SerializationError(KafkaException, TypeError):
    """A key, value or header is not what can be sent, or a serializer failed on it."""


class RecordTooLarge(KafkaException, ValueError):
    """One record is larger than the producer's or the protocol's limit. It was not accepted."""


class UnsupportedCodec(KafkaException):
    """A compression codec is unknown or its package is not installed; the text names the extra to install."""


class ClientClosedError(KafkaException):
    """The client, producer or consumer was closed before this call."""


class ForkedClientError(KafkaException):
    """The client was made in another process. Sockets and producer ids must not be shared: make a client after the fork."""


class HandlerThreadError(KafkaException):
    """A call from a thread that does not own the client's hub, which cannot be served there."""


class ReentrantCallError(RetriableError):
    """A signal handler (or a __del__) called the client while the thread that it interrupted was inside it, which can go on only after the handler:
    set a flag or an Event in the handler, and call the client outside of it.
    """


# -- time and connections ----------------------------------------------------------------------------------------------
class KafkaTimeoutError(RetriableError, TimeoutError):
    """A call did not end by its deadline."""


class SocketDisconnectedError(InvalidMetadataError, ConnectionError):
    """The connection to a broker broke; what was in flight on it has no answer."""


class ConnectionFailedError(SocketDisconnectedError):
    """No connection to a broker could be made: the text names each address that was tried and why it failed."""


class TlsError(ConnectionFailedError):
    """TLS with this peer cannot work as it is configured: a certificate, a host name, a version. Trying again does not help.

    has_no_tls: the peer answered, and not in TLS.
    """

    retriable = False
    has_no_tls = False


class ProxyError(ConnectionFailedError):
    """The proxy of proxy_url refuses: its credentials, its rules, or it is no such proxy. Trying again does not help."""

    retriable = False


class TokenEndpointError(ConnectionFailedError):
    """No token can be had from sasl_oauth_token_endpoint_url now: it is not reached, or says that it is in trouble. The broker has not refused."""


class NoBrokersAvailableError(KafkaException):
    """None of the bootstrap hosts answered, after a few tries of each; the text names each and why, `__cause__` is what says most. What all of them
    fail with for good is raised itself: TlsError, ProxyError and TokenEndpointError after one try of each, ProtocolError.
    """


class LeaderNotFoundError(InvalidMetadataError):
    """A partition has no leader that is known."""


class UnknownTopicError(UnknownTopicOrPartition):
    """No broker knows the topic, after a while of asking; the text says where it was looked for. Asking again would not help."""

    retriable = False


# -- the broker's bytes ------------------------------------------------------------------------------------------------
class ProtocolError(KafkaException):
    """Bytes that are not the Kafka protocol, or break its rules. The connection that sent them is closed.

    hint: what to give instead, where somebody else than a broker answers; the text ends with it. Else "".
    """

    hint = ""


class CorruptRecordError(ProtocolError):
    """A record batch fails its checksum or cannot be decoded; topic, partition and offset say which. Nothing was skipped.

    next_offset: seek to it to go on behind what is damaged. None where the bytes do not say where that ends.
    """

    def __init__(self, *args: Any, next_offset: int | None = None, **about: Any) -> None:
        super().__init__(*args, **about)
        self.next_offset = next_offset


class TruncatedBatchError(ProtocolError):
    """A broker sent only the beginning of a batch, though it was asked for more bytes than the batch has. The fetch is tried again."""

    retriable = True


class MessageSetDecodeFailure(CorruptRecordError):
    """A message set (format 0 or 1) cannot be decoded (pykafka's name)."""


# -- producers ---------------------------------------------------------------------------------------------------------
class DeliveryError(KafkaException):
    """Records that were not delivered. `records` lists them: each entry has `.record`, `.error` and `.persisted` ("no" or "maybe").

    `unlisted` more failed than a client keeps (32 MiB beside the buffer): their deliveries have told, and the log.
    """

    def __init__(self, message: str, records: Sequence[Any] | Callable[[], Sequence[Any]] = (), *, unlisted: int = 0, **about: Any) -> None:
        """records: the entries, or what makes them when somebody looks."""
        super().__init__(message, **about)
        self._records = records
        self.unlisted = unlisted

    @property
    def records(self) -> list[Any]:
        """An entry for each record, in the order in which they failed; those of a batch in theirs."""
        records = self._records
        if not isinstance(records, list):
            self._records = records = list(records() if callable(records) else records)
        return records

    def __reduce__(self) -> Any:
        self._records = self.records
        return super().__reduce__()


class BufferFull(KafkaTimeoutError):
    """The producer's buffer had no room within max_block_ms. The record was not accepted."""


class ProducerQueueFullError(BufferFull):
    """A producer holds max_queued_messages messages and block_on_queue_full is off (pykafka's name)."""


class ProducerStoppedException(ClientClosedError):
    """The producer was used while it is not running."""


class ProduceFailureError(KafkaException):
    """A generic failure in the producer (pykafka's name)."""


class BatchRefusedError(ProduceFailureError):
    """The record is not at fault: the broker refused another one of its batch, and this one could not be sent again without that. The text says
    why; `__cause__` is the other's error.
    """


# -- transactions ------------------------------------------------------------------------------------------------------
class TransactionStateError(KafkaException):
    """A call that does not fit the state of the transaction: produce() outside of one, a second begin_transaction(), ... Nothing was changed."""


class TransactionAbortableError(KafkaException):
    """The transaction cannot be committed: call abort_transaction(), then do its work again in a new one. `__cause__` is what went wrong."""

    abortable = True


class TransactionAbortedError(KafkaException):
    """The record was not sent: its transaction was aborted before (KIP-654)."""


class TransactionFatalError(KafkaException):
    """The producer's transactions cannot go on: close it and make a new one. `__cause__` is what went wrong."""

    fatal = True


class FencedError(TransactionFatalError):
    """Another producer with the same transactional id has taken over, or the broker ended a transaction that was open for longer than
    transaction_timeout_ms. Nothing of the open transaction will be seen by read_committed consumers.
    """


# -- consumers ---------------------------------------------------------------------------------------------------------
class ConsumerStoppedException(ClientClosedError):
    """An operation that needs a running consumer was tried on a stopped one."""


class NoPartitionsForConsumerException(ConsumerStoppedException):
    """The consumer stopped because it assigned itself no partition."""


class CommitFailedError(KafkaException):
    """Offsets were not committed: the partitions are not this member's any more. Whoever has them goes on from what was committed before."""


class AssignmentError(KafkaException):
    """The assignor of a consumer group failed, or gave partitions to the wrong members: a built-in one made the assignment instead. Without its
    user data there is no joining, and the member ends.
    """


class NoMessagesConsumedError(KafkaException):
    """No messages were returned from a message set."""


class OffsetRequestFailedError(KafkaException):
    """Requests for offsets failed more often than the configured maximum."""


class LogTruncationError(KafkaException):
    """Records that were consumed are not in the partition's log any more: an unclean election lost them (KIP-320). `offset` is where the
    consumer stands, `diverging_offset` from where on the records are lost, -1 if the leader cannot tell. Nothing was skipped: seek() to go on.
    """

    diverging_offset: int = -1

    @property
    def lost(self) -> range:
        """The offsets whose records were consumed and lost; from 0 on if the leader cannot tell."""
        return range(max(0, self.diverging_offset), max(0, self.offset or 0))


class TopicRecreatedError(LogTruncationError):
    """The topic was deleted and another one of its name was made. Nothing of the new one was consumed: seek() to go on."""


class ZooKeeperError(RetriableError):
    """ZooKeeper could not be reached, did not answer in time, or refused."""


class PartitionOwnedError(KafkaException):
    """A partition is still owned by another consumer in ZooKeeper; `partition` is that partition."""

    def __init__(self, partition: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.partition = partition

    def __reduce__(self) -> Any:
        return type(self), (self.partition, *self.args)


class RdKafkaException(KafkaException):
    """Kept for code that catches it: the compiled implementation raises gkafka's own errors."""


class RdKafkaStoppedException(RdKafkaException):
    """Kept for code that catches it."""


# -- administration ----------------------------------------------------------------------------------------------------
class AdminError(KafkaException):
    """Some of what an administrator's call was to do was not done. `errors`: the error of each thing that failed, `results`: of each that did not
    what the call would have returned. `__cause__` is the first error.
    """

    def __init__(
        self, message: str, errors: Mapping[Any, KafkaException] | None = None, results: Mapping[Any, Any] | None = None, **about: Any
    ) -> None:
        super().__init__(message, **about)
        self.errors: dict[Any, KafkaException] = dict(errors or {})
        self.results: dict[Any, Any] = dict(results or {})


def causes(error: BaseException) -> Iterator[BaseException]:
    """The error, what it was made of, what that was made of, and so on: each once, since `raise error from error` is no end."""
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        yield cause
        cause = cause.__cause__


def without_frames(error: BaseException) -> Any:
    """The error, and all that it comes from, without the frames they were raised in: these hold requests, their memory, and secrets."""
    seen: set[int] = set()
    links: list[BaseException | None] = [error]
    while links:
        link = links.pop()
        if link is not None and id(link) not in seen:
            seen.add(id(link))
            link.__traceback__ = None
            links += [link.__cause__, link.__context__]
    return error


def has_begun(error: BaseException) -> bool:
    """For who has called a function and caught this: had it begun? Else a signal came before its first step."""
    # A builtin leaves no frame: sys.exit, if that is the function. Python's own signal handler leaves none either, but raises KeyboardInterrupt.
    return isinstance(error, SystemExit) or (error.__traceback__ is not None and error.__traceback__.tb_next is not None)


# -- other documented names of the same errors ---------------------------------------------------------------------------
ProtocolClientError = BrokerError
OffsetsLoadInProgress = GroupLoadInProgress
ConsumerCoordinatorNotAvailable = GroupCoordinatorNotAvailable
NotCoordinatorForConsumer = NotCoordinatorForGroup
