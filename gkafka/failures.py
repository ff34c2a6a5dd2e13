"""Records that were not delivered: kept until flush() or close() tells of them, or until somebody needs their memory."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from gkafka.exceptions import DeliveryError, KafkaException, TransactionAbortedError

if TYPE_CHECKING:
    from gkafka.records import Batch

__all__ = ["Failures", "Undelivered"]

log = logging.getLogger(__name__)


class Undelivered(NamedTuple):
    """A record that was not delivered. persisted: "no", or "maybe" where a broker may have written it without its answer reaching us."""

    record: Any
    error: BaseException | None
    persisted: str


class Failures:
    """Those of one producer. lock: the driver's; release: gives a batch's memory back; give_room: tells who waits for memory."""

    def __init__(self, lock: Any, release: Callable[[Batch], None], give_room: Callable[[], None]) -> None:
        self._lock, self._release, self._give_room = lock, release, give_room
        self._kept: deque[tuple[Batch, KafkaException]] = deque()
        self._dropped = 0
        self._first_dropped: KafkaException | None = None

    def keep(self, batch: Batch, error: KafkaException) -> None:
        """It failed with this error."""
        log.log(
            logging.DEBUG if isinstance(error, TransactionAbortedError) else logging.ERROR,
            "%d record(s) for %s-%d not delivered (persisted: %s): %s",
            batch.count,
            batch.topic,
            batch.partition,
            batch.extra.persisted,
            error,
        )
        with self._lock:
            self._kept.append((batch, error))

    def drop_until(self, enough: Callable[[], bool]) -> None:
        """Give up the oldest, which were logged, until there is enough memory for newer records."""
        with self._lock:
            while self._kept and not enough():
                dropped, why = self._kept.popleft()
                self._dropped += dropped.count
                self._first_dropped = self._first_dropped or why
                self._release(dropped)

    def take(self) -> DeliveryError | None:
        """What failed since the last call, as one error; the records' memory is given back."""
        failed: deque[tuple[Batch, KafkaException]] = deque()
        dropped, gone = 0, None
        try:
            with self._lock:
                failed, self._kept = self._kept, deque()
                dropped, self._dropped = self._dropped, 0
                gone, self._first_dropped = self._first_dropped, None
            return self._told(failed, dropped, gone) if failed or dropped else None
        except BaseException:  # a signal handler's: the next call takes them
            with self._lock:
                self._kept.extendleft(reversed(failed))
                self._dropped += dropped
                self._first_dropped = gone or self._first_dropped
            raise

    def _told(self, failed: deque[tuple[Batch, KafkaException]], dropped: int, gone: KafkaException | None) -> DeliveryError:
        entries = [Undelivered(batch.record(i), why, batch.extra.persisted) for batch, why in failed for i in range(batch.count)]
        first = gone or failed[0][1]
        for batch, _ in failed:
            self._release(batch)
        self._give_room()
        more = f" ({dropped} of them only logged: their memory was needed)" if dropped else ""
        error = DeliveryError(f"{len(entries) + dropped} record(s) were not delivered{more}; the first: {first}", entries)
        error.__cause__ = first
        return error
