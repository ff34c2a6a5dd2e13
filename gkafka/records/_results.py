"""What comes back from writing: where a record went, what it was, and how its error is raised."""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

from gkafka.exceptions import KafkaException
from gkafka.logs import get_logger
from gkafka.pages import page

__all__ = ["OF_ASYNCIO", "Record", "RecordMetadata", "fresh_error", "not_for_asyncio", "not_for_executors", "run_callback"]

OF_ASYNCIO = ("asyncio.tasks", "asyncio.futures")
"""Modules whose functions asyncio adds as callbacks to what it takes for a future of its own."""

log = get_logger(__name__)


class RecordMetadata(NamedTuple):
    """Where a delivered record is. offset: -1 if the broker did not say (acks=0); timestamp: ms since the epoch, the broker's if it set one."""

    topic: str
    partition: int
    offset: int
    timestamp: int


class Record(NamedTuple):
    """A record as it was produced. timestamp: ms since the epoch; headers: in their order, keys may repeat."""

    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    timestamp: int

    def __repr__(self) -> str:
        return f"Record(topic={self.topic!r}, partition={self.partition}, timestamp={self.timestamp})"  # never a key or a value


def fresh_error(batch: Any, delivery: Any) -> BaseException:
    """A copy of a failed batch's error, to be raised for one of its records. batch: the batch or part that the delivery's record is in.

    All records of a batch share one error. Raising that very object would hang a traceback on it: caller's frame > delivery >
    batch > error > traceback > frame is a cycle that the garbage collector cannot see through (deliveries are not tracked by it),
    and each further raise would lengthen it.
    """
    error: BaseException = batch.error
    try:
        fresh = copy.copy(error)
    except Exception:  # an error of the user's own making that cannot be copied
        return error.with_traceback(None)
    if type(fresh) is not type(error):
        return error.with_traceback(None)
    fresh.__cause__, fresh.__suppress_context__ = error.__cause__, True
    if isinstance(fresh, KafkaException):
        fresh.tell_of_record(weakref.ref(batch), delivery.index - batch.first, batch.persisted)
    return fresh


def run_callback(fn: Callable[[Any], object], delivery: Any) -> None:
    """Run a user's callback for one record; what it raises is logged, as `concurrent.futures` does."""
    try:
        fn(delivery)
    except Exception:
        log.exception("a delivery callback for %s-%d failed", delivery.topic, delivery.partition)


def not_for_asyncio(wait: str) -> TypeError:
    """The error to raise where asyncio is to wait for a delivery or a future itself. wait: its method that waits, as the user writes it."""
    return TypeError(
        f"a delivery or future of gkafka's cannot be awaited itself: await asyncio.to_thread({wait}); for many at once see asyncio in {page('recipes')}"
    )


def not_for_executors(wait: str) -> TypeError:
    """The error to raise where concurrent.futures is to wait for a delivery or a future itself. wait: as of not_for_asyncio()."""
    return TypeError(
        f"concurrent.futures cannot wait for a delivery or future of gkafka's: {wait}() waits for one, producer.flush() for all"
    )
