"""What KafkaProducer.send() returns (kafka.producer.future): a view of the record's batch, for which nothing is stored until somebody asks."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple

from gkafka import records
from gkafka.checks import check_time_left
from gkafka.exceptions import KafkaException
from gkafka.kafka.errors import WrongTypeError
from gkafka.kafka.future import Future, Outcomes
from gkafka.kafka.producer.names import retold
from gkafka.kafka.structs import TopicPartition
from gkafka.logs import get_logger

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["FutureRecordMetadata", "RecordMetadata"]

log = get_logger(__name__)

FAILED = "a callback of a future failed"

error_of = records.Delivery.exception
"""Of a FutureRecordMetadata, too, whose `exception` is an attribute."""


class RecordMetadata(NamedTuple):
    """Where a record was written. offset: -1 with acks=0; timestamp: ms since the epoch."""

    topic: str
    partition: int
    topic_partition: TopicPartition
    offset: int
    timestamp: int


def _metadata(delivered: Any) -> RecordMetadata:
    topic, partition, offset, timestamp = delivered
    return RecordMetadata(topic, partition, TopicPartition(topic, partition), offset, timestamp)


class FutureRecordMetadata(Outcomes, records.Delivery):  # type: ignore[misc]  # `exception` is an attribute in kafka-python, a call in a Delivery
    """A Future of one record's RecordMetadata. Callbacks run in the producer's worker for them, or at once if the outcome is there."""

    __slots__ = ()

    @property
    def is_done(self) -> bool:
        """Is there an outcome?"""
        return self.done()

    def get(self, timeout: float | None = None) -> RecordMetadata:
        """Where the record is, as soon as that is known. Raises why it failed, or KafkaTimeoutError after timeout seconds; None waits as long
        as the producer tries, which is bounded by delivery_timeout_ms."""
        try:
            return _metadata(self.result(None if timeout is None else check_time_left("timeout", timeout)))
        except KafkaException as exc:
            retold(exc)
            raise

    def _error(self) -> BaseException | None:
        error: BaseException | None = error_of(self, 0)
        if isinstance(error, KafkaException):
            retold(error)
        return error

    def _value(self) -> RecordMetadata:
        return _metadata(self.result(0))

    def add_callback(self, f: Callable[..., object], *args: Any, **kwargs: Any) -> Self:
        """Call f(*args, metadata, **kwargs) when the record is delivered."""
        if not callable(f):
            raise WrongTypeError(f"f={f!r}: must be callable with the value")
        self.add_done_callback(partial(_tell_success, f, args, kwargs))
        return self

    def add_errback(self, f: Callable[..., object], *args: Any, **kwargs: Any) -> Self:
        """Call f(*args, exception, **kwargs) when it fails."""
        if not callable(f):
            raise WrongTypeError(f"f={f!r}: must be callable with the exception")
        self.add_done_callback(partial(_tell_failure, f, args, kwargs))
        return self


# Of each record that somebody wants to hear of: no closure, which the garbage collector would have much to look at in, and few calls.
def _tell_success(f: Callable[..., object], args: tuple[Any, ...], kwargs: dict[str, Any], delivery: records.Delivery) -> None:
    if error_of(delivery, 0) is not None:
        return
    topic, partition, offset, timestamp = delivery.result(0)
    metadata = _new_tuple(RecordMetadata, (topic, partition, _place(topic, partition), offset, timestamp))
    try:
        f(*args, metadata, **kwargs)
    except Exception:
        log.exception(FAILED)


def _tell_failure(f: Callable[..., object], args: tuple[Any, ...], kwargs: dict[str, Any], delivery: records.Delivery) -> None:
    error = error_of(delivery, 0)
    if error is None:
        return
    if isinstance(error, KafkaException):
        retold(error)
    try:
        f(*args, error, **kwargs)
    except Exception:
        log.exception(FAILED)


_place = lru_cache(4096)(TopicPartition)
_new_tuple: Any = tuple.__new__


Future.register(FutureRecordMetadata)
