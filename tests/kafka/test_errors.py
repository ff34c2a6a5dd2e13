"""kafka.errors: kafka-python's names, each with what kafka-python tells of it, and gkafka's own exceptions behind them."""

from __future__ import annotations

import importlib
import warnings
from typing import Any

import pytest

import gkafka.exceptions
from gkafka.kafka import errors
from gkafka.kafka.admin.calls import name_of
from gkafka.kafka.legacy import ProduceResponse

OF_1_4 = (
    *(
        "AuthenticationFailedError",
        "BrokerResponseError",
        "Cancelled",
        "CommitFailedError",
        "ConsumerFetchSizeTooSmall",
        "ConsumerNoMoreData",
    ),
    *("ConsumerTimeout", "CorrelationIdError", "GroupCoordinatorNotAvailableError", "GroupLoadInProgressError", "IllegalArgumentError"),
    *("IllegalStateError", "IncompatibleBrokerVersion", "KafkaConfigurationError", "KafkaConnectionError", "KafkaProtocolError"),
    *("KafkaTimeoutError", "KafkaUnavailableError", "MetadataEmptyBrokerList", "NoBrokersAvailable", "NodeNotReadyError"),
    *("NotCoordinatorForGroupError", "ProtocolError", "QuotaViolationError", "StaleMetadata", "TooManyInFlightRequests"),
    *("UnrecognizedBrokerVersion", "UnsupportedCodecError", "for_code", "kafka_errors"),
    *("AsyncProducerQueueFull", "AuthenticationMethodNotSupported", "BufferUnderflowError", "ChecksumError", "ConnectionError"),
    *("FailedPayloadsError", "InvalidMessageError", "StaleLeaderEpochCodeError", "check_error"),
)
OTHERWISE = {
    "CorrelationIdError": "a ProtocolError: the connection is closed",
    "CorruptRecordError": "Kafka's own classification: a broker that finds a damaged batch is sent it again",
    "CorruptRecordException": "the same class",
    "NodeNotReadyError": "a ConnectionFailedError, for which metadata are asked for anew",
}
"""Whose `retriable` or `invalid_metadata` is not kafka-python's, and why: docs/kafka-python.md says so."""


def theirs() -> Any:
    """kafka-python's module."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of the way in which it reads its tables
        return importlib.import_module("kafka.errors")


def classes() -> list[str]:
    """The names of its exceptions."""
    there = vars(theirs())
    return sorted(name for name, one in there.items() if isinstance(one, type) and issubclass(one, Exception))


def test_every_name_is_there() -> None:
    assert len(classes()) > 130
    assert [name for name in (*classes(), *OF_1_4) if not hasattr(errors, name)] == []


@pytest.mark.parametrize("name", classes())
def test_a_class_tells_what_kafka_python_tells(name: str) -> None:
    here, there = getattr(errors, name), getattr(theirs(), name)
    assert issubclass(here, errors.KafkaError)
    # Documented is that KafkaError is an Exception.
    builtin = {base for base in there.__mro__ if base.__module__ == "builtins"} - {RuntimeError}
    assert [base for base in builtin if not issubclass(here, base)] == []
    if name not in OTHERWISE:
        assert here.invalid_metadata is there.invalid_metadata
        assert here.retriable is there.retriable
        assert issubclass(here, errors.RetriableError) is issubclass(there, theirs().RetriableError)
        assert issubclass(here, errors.InvalidMetadataError) is issubclass(there, theirs().InvalidMetadataError)
    if issubclass(there, theirs().BrokerResponseError):
        assert issubclass(here, errors.BrokerResponseError)
        assert issubclass(here, errors.AuthorizationError) is issubclass(there, theirs().AuthorizationError)
        assert (here.errno, here.message) == (there.errno, there.message)
        assert bool(here.description) is bool(there.errno is not None), "a broker's error says what it means"


def test_codes_have_their_classes() -> None:
    codes = [code for code in theirs().kafka_errors if code is not None]
    assert len(codes) > 120
    for code in codes:
        here = errors.for_code(code)
        assert here is errors.kafka_errors[code] is getattr(errors, theirs().for_code(code).__name__)
    assert errors.for_code(3) is gkafka.exceptions.UnknownTopicOrPartition


def test_a_code_that_nobody_knows_has_a_class_of_its_own() -> None:
    made = errors.for_code(4242)
    assert issubclass(made, errors.UnknownError)
    error = made()
    assert (made.errno, error.errno, error.message) == (4242, 4242, "UNKNOWN")
    assert "error 4242" in str(error)
    assert gkafka.exceptions.UnknownBrokerError(4242).errno == 4242


@pytest.mark.parametrize(
    ("kind", "caught"),
    [
        (gkafka.exceptions.NotLeaderForPartition, errors.InvalidMetadataError),
        (gkafka.exceptions.KafkaTimeoutError, errors.RetriableError),
        (gkafka.exceptions.ConnectionFailedError, errors.NodeNotReadyError),
        (gkafka.exceptions.TopicAuthorizationFailed, errors.AuthorizationError),
        (gkafka.exceptions.GroupLoadInProgress, errors.RetriableError),
    ],
)
def test_what_gkafka_raises_is_caught_by_the_names_of_its_kind(kind: Any, caught: type[BaseException]) -> None:
    with pytest.raises(caught) as error:
        raise kind("x")
    assert error.value.retriable is (caught is not errors.AuthorizationError)


def test_older_names_catch_what_is_raised_here_in_their_place() -> None:
    for older, raised in (
        (errors.FailedPayloadsError, gkafka.exceptions.ConnectionFailedError),
        (errors.ConnectionError, gkafka.exceptions.SocketDisconnectedError),
        (errors.AsyncProducerQueueFull, gkafka.exceptions.BufferFull),
        (errors.ChecksumError, errors.DamagedRecordError),
        (errors.BufferUnderflowError, gkafka.exceptions.ProtocolError),
        (errors.AuthenticationMethodNotSupported, gkafka.exceptions.UnsupportedSaslMechanism),
        (errors.InvalidMessageError, errors.for_code(2)),
        (errors.StaleLeaderEpochCodeError, errors.for_code(13)),
    ):
        assert issubclass(raised, older)
    assert [name for name in errors.OLDER if not hasattr(errors, name)] == []
    for kind in {getattr(errors, name) for name in errors.OLDER}:
        assert name_of(kind) not in errors.OLDER


def test_check_error_raises_what_a_response_tells() -> None:
    errors.check_error(ProduceResponse("t", 0, 0, 5))
    with pytest.raises(errors.NotLeaderForPartitionError, match="topic='t'"):
        errors.check_error(ProduceResponse("t", 0, 6, -1))
    with pytest.raises(errors.FailedPayloadsError, match="gone"):
        errors.check_error(errors.FailedPayloadsError("gone"))
