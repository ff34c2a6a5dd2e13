"""What KafkaProducer.send() returns (kafka.producer.future): a view of the record's batch, for which nothing is stored until somebody asks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from gkafka import records
from gkafka.checks import check_time_left
from gkafka.exceptions import KafkaException
from gkafka.kafka.future import Future, Outcomes
from gkafka.kafka.producer.names import retold
from gkafka.kafka.structs import TopicPartition

__all__ = ["FutureRecordMetadata", "RecordMetadata"]


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
        error: BaseException | None = records.Delivery.exception(self, 0)
        if isinstance(error, KafkaException):
            retold(error)
        return error

    def _value(self) -> RecordMetadata:
        return _metadata(self.result(0))

    def _when_done(self, tell: Callable[[BaseException | None, Callable[[], Any]], None]) -> None:
        self.add_done_callback(lambda _: tell(self._error(), self._value))


Future.register(FutureRecordMetadata)
