"""What KafkaProducer.send() returns (kafka.producer.future): a view of the record's batch, for which nothing is stored until somebody asks."""

from __future__ import annotations

from typing import Any, NamedTuple

from gkafka import records
from gkafka.checks import check_time_left
from gkafka.exceptions import KafkaException
from gkafka.kafka.errors import WrongTypeError
from gkafka.kafka.future import Future, Outcomes
from gkafka.kafka.producer.names import retold
from gkafka.kafka.structs import TopicPartition

__all__ = ["FutureRecordMetadata", "RecordMetadata"]

_exception = records.Delivery.exception  # of a FutureRecordMetadata, too, whose `exception` is an attribute


def told_error(delivery: records.Delivery) -> BaseException | None:
    """The error of a delivery that has its outcome, by the names of kafka-python's options."""
    error: BaseException | None = _exception(delivery, 0)
    if isinstance(error, KafkaException):
        retold(error)
    return error


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


def not_callable(f: Any) -> WrongTypeError:
    """The error for a callback that is none."""
    return WrongTypeError(f"f={f!r}: must be callable with the value, or with the exception")


class FutureRecordMetadata(Outcomes, records.FutureDelivery):  # type: ignore[misc]  # `exception` is an attribute in kafka-python, a call in a Delivery
    """A Future of one record's RecordMetadata. Callbacks run in the producer's worker for them, or at once if the outcome is there."""

    __slots__ = ()
    metadata_class, told_error, not_callable = RecordMetadata, staticmethod(told_error), staticmethod(not_callable)

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
        return self.told_error(self)

    def _value(self) -> RecordMetadata:
        return _metadata(self.result(0))


Future.register(FutureRecordMetadata)
