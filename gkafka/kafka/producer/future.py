"""What KafkaProducer.send() returns (kafka.producer.future): a view of the record's batch, for which nothing is stored until somebody asks."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from gkafka import records
from gkafka.kafka.future import Future, _WithViews, call
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


class FutureRecordMetadata(records.Delivery):
    """A Future of one record's RecordMetadata. Callbacks run in the producer's worker for them, or at once if the outcome is there."""

    __slots__ = ()

    @property
    def is_done(self) -> bool:
        """Is there an outcome?"""
        return self.done()

    @property
    def value(self) -> RecordMetadata | None:
        """Where the record is, None without an outcome or if it failed."""
        return _metadata(self.result(0)) if self.succeeded() else None

    @property
    def exception(self) -> BaseException | None:  # type: ignore[override]
        """Why it failed, None if it did not."""
        return records.Delivery.exception(self, 0) if self.done() else None

    def get(self, timeout: float | None = None) -> RecordMetadata:
        """Where the record is, as soon as that is known. Raises why it failed, or KafkaTimeoutError after timeout seconds; None waits as long
        as the producer tries, which is bounded by delivery_timeout_ms."""
        return _metadata(self.result(timeout))

    def succeeded(self) -> bool:
        """Was it delivered?"""
        return self.done() and records.Delivery.exception(self, 0) is None

    def failed(self) -> bool:
        """Did it fail?"""
        return self.done() and records.Delivery.exception(self, 0) is not None

    def retriable(self) -> bool:
        """Did it fail with what may be tried again?"""
        return bool(getattr(self.exception, "retriable", False))

    def add_callback(self, f: Callable[..., object], *args: Any, **kwargs: Any) -> FutureRecordMetadata:
        """Call f(*args, metadata, **kwargs) when it is delivered."""
        return self._add(True, f, args, kwargs)

    def add_errback(self, f: Callable[..., object], *args: Any, **kwargs: Any) -> FutureRecordMetadata:
        """Call f(*args, exception, **kwargs) when it fails."""
        return self._add(False, f, args, kwargs)

    def add_both(self, f: Callable[..., object], *args: Any, **kwargs: Any) -> FutureRecordMetadata:
        """Call f(*args, metadata or exception, **kwargs) in either case."""
        return self.add_callback(f, *args, **kwargs).add_errback(f, *args, **kwargs)

    def chain(self, future: Future) -> FutureRecordMetadata:
        """Give the outcome to another future, too."""
        return self.add_callback(future.success).add_errback(future.failure)

    def _add(self, good: bool, f: Callable[..., object], args: tuple[Any, ...], kwargs: dict[str, Any]) -> FutureRecordMetadata:
        fn = partial(f, *args, **kwargs) if args or kwargs else f

        def tell(delivery: Any) -> None:
            error = records.Delivery.exception(delivery, 0)
            if (error is None) is good:
                call(fn, _metadata(delivery.result(0)) if good else error)

        self.add_done_callback(tell)
        return self


_WithViews.views = (FutureRecordMetadata,)
