"""Records that were not delivered: kept until flush() or close() tells of them, or until somebody needs their memory."""

from __future__ import annotations

import logging
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
    """Those of one producer. lock: the driver's; telling: one of its own, of who reads the records; release: gives a batch's memory back;
    give_room: tells who waits for memory.

    A failed batch holds its memory until its callbacks were called (`called`) and it was reported (`take`) or had to make room (`drop_until`).
    """

    def __init__(self, lock: Any, telling: Any, release: Callable[[Batch], None], give_room: Callable[[], None]) -> None:
        self._lock, self._telling, self._release, self._give_room = lock, telling, release, give_room
        self._kept: dict[Batch, KafkaException] = {}  # in the order in which they failed
        self._looked_at: set[Batch] = set()  # their callbacks are still to be called
        self._listed: dict[Batch, list[Undelivered]] = {}  # the records of those that take() is about to tell
        self._dropped = 0
        self._first: KafkaException | None = None  # of those that were listed or dropped

    def keep(self, batch: Batch, error: KafkaException) -> None:
        """It failed with this error; `called` follows when its callbacks were called."""
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
            self._looked_at.add(batch)
            self._kept[batch] = error

    def called(self, batch: Batch) -> None:
        """Its callbacks were, if there are any: from now on it only waits to be reported."""
        with self._lock:
            self._looked_at.discard(batch)
            if batch not in self._kept:
                self._release(batch)

    def drop_until(self, enough: Callable[[], bool]) -> None:
        """Give up the oldest, which were logged, until there is enough memory for newer records."""
        if not self._kept:
            return
        with self._telling, self._lock:
            for batch in [batch for batch in self._kept if batch not in self._looked_at]:
                if enough():
                    return
                why = self._kept.pop(batch)
                if batch not in self._listed:
                    self._dropped += batch.count
                    self._first = self._first or why
                self._release(batch)

    def take(self) -> DeliveryError | None:
        """What failed since the last call, as one error; the records' memory is given back.

        Whatever comes between (a signal handler's exception), nothing is forgotten before all of it was done: the next call goes on.
        """
        if not (self._kept or self._listed or self._dropped):
            return None
        with self._telling:
            with self._lock:
                failed = list(self._kept.items())
            for batch, why in failed:
                self._list(batch, why)
            if not (self._listed or self._dropped):
                return None  # another caller was told
            return self._told()

    def _list(self, batch: Batch, why: KafkaException) -> None:
        """Note its records, then give their memory back: here, or when its callbacks were called."""
        if batch not in self._listed:
            persisted = batch.extra.persisted
            self._listed[batch] = [Undelivered(batch.record(i), why, persisted) for i in range(batch.count)]
        self._first = self._first or why
        with self._lock:
            if batch not in self._looked_at:
                self._release(batch)
            self._kept.pop(batch, None)

    def _told(self) -> DeliveryError:
        self._give_room()
        entries = [entry for listed in self._listed.values() for entry in listed]
        dropped, first = self._dropped, self._first
        more = f" ({dropped} of them only logged: their memory was needed)" if dropped else ""
        error = DeliveryError(f"{len(entries) + dropped} record(s) were not delivered{more}; the first: {first}", entries, unlisted=dropped)
        error.__cause__ = first
        listed = self._listed
        try:
            self._listed, self._dropped, self._first = {}, 0, None
            return error
        except BaseException:
            self._listed, self._dropped, self._first = listed, dropped, first
            raise
