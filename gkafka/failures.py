"""Records that were not delivered: kept until flush() or close() tells of them, as many as there is room for."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from gkafka.exceptions import DeliveryError, KafkaException, TransactionAbortedError

if TYPE_CHECKING:
    from gkafka.producermemory import ProducerMemory
    from gkafka.records import Appender, Batch

__all__ = ["Failures", "Undelivered"]

log = logging.getLogger(__name__)

KEPT_BYTES = 32 << 20
"""Of failed records, beside the buffer: for all producers of a client."""


class Undelivered(NamedTuple):
    """A record that was not delivered. persisted: "no", or "maybe" where a broker may have written it without its answer reaching us."""

    record: Any
    error: BaseException | None
    persisted: str


class Apart(NamedTuple):
    """A failed batch that has left the buffer. begin, end: what it takes among the bytes of all that ever have."""

    batch: Batch
    why: KafkaException
    begin: int
    end: int


class Failures:
    """Those of one producer. lock: the driver's; telling: one of its own, of who takes them or moves them; memory: what it shares with others.

    A failed batch holds its part of the buffer until its callbacks were called (`called`) and it was told of (`take`), or until somebody needs
    that memory (`make_room`): then its records are copied out of the buffer, where all producers of a client keep KEPT_BYTES. Beyond that the
    oldest are dropped, which were logged.
    """

    def __init__(self, lock: Any, telling: Any, appender: Appender, memory: ProducerMemory) -> None:
        self._lock, self._telling, self._appender, self._memory = lock, telling, appender, memory
        self._kept: dict[Batch, KafkaException] = {}  # in the order in which they failed
        self._looked_at: set[Batch] = set()  # their callbacks are still to be called
        self._apart: deque[Apart] = deque()  # they failed before those of _kept
        self._told: dict[Batch, tuple[KafkaException, str]] = {}  # what take() is about to tell of, and how far each was persisted
        self._dropped = 0
        self._first: KafkaException | None = None  # of those that were told or dropped

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
        """Its callbacks were, if there are any: from now on it only waits to be told of."""
        with self._lock:
            self._looked_at.discard(batch)
            if batch not in self._kept:
                self._leave_buffer(batch)

    # -- room ------------------------------------------------------------------------------------------------------------------
    def make_room(self, enough: Callable[[], bool]) -> None:
        """Move the oldest out of the buffer until there is enough of it for newer records."""
        if not self._kept:
            return
        with self._telling, self._lock:
            for batch in [batch for batch in self._kept if batch not in self._looked_at]:
                if enough():
                    break
                self._leave_buffer(batch)
                if not (self._apart and self._apart[-1].batch is batch):  # as whoever was interrupted here left it
                    begin = self._apart[-1].end if self._apart else 0
                    held = max(batch.wire_size or batch.size, self._appender.initial_bytes)  # what it took of the buffer at least
                    self._apart.append(Apart(batch, self._kept[batch], begin, begin + held))
                del self._kept[batch]
            self._drop_oldest()

    @property
    def bytes_apart(self) -> int:
        """What is kept outside of the buffer."""
        try:
            return self._apart[-1].end - self._apart[0].begin
        except IndexError:
            return 0

    def _leave_buffer(self, batch: Batch) -> None:
        try:
            self._appender.set_apart(batch)
        except MemoryError:
            self._appender.release(batch)

    def _drop_oldest(self) -> None:
        beyond = self._memory.bytes_apart - KEPT_BYTES
        while beyond > 0 and self._apart:
            batch, why, begin, end = self._apart.popleft()
            beyond -= end - begin
            if batch not in self._told:
                self._dropped += batch.count
                self._first = self._first or why
                self._appender.release(batch)

    # -- telling ---------------------------------------------------------------------------------------------------------------
    def take(self) -> DeliveryError | None:
        """What failed since the last call, as one error; the records' memory is the error's from then on.

        Whatever comes between (a signal handler's exception), nothing is forgotten before all of it was done: the next call goes on.
        """
        if not (self._kept or self._apart or self._told or self._dropped):
            return None
        with self._telling:
            while self._apart:
                self._tell_of(self._apart[0].batch, self._apart[0].why)
                self._apart.popleft()
            with self._lock:
                failed = list(self._kept.items())
            for batch, why in failed:
                self._tell_of(batch, why)
                with self._lock:
                    if batch not in self._looked_at:  # or `called` does it
                        self._leave_buffer(batch)
                    self._kept.pop(batch, None)
            if not (self._told or self._dropped):
                return None  # another caller was told
            return self._all_told()

    def _tell_of(self, batch: Batch, why: KafkaException) -> None:
        self._first = self._first or why
        self._told[batch] = why, batch.extra.persisted

    def _all_told(self) -> DeliveryError:
        self._memory.give_room()
        told, dropped, first = self._told, self._dropped, self._first
        count = sum(batch.count for batch in told) + dropped
        more = f" ({dropped} of them only logged: more failed than there is room for)" if dropped else ""
        error = DeliveryError(
            f"{count} record(s) were not delivered{more}; the first: {first}", partial(_undelivered, told), unlisted=dropped
        )
        error.__cause__ = first
        try:
            self._told, self._dropped, self._first = {}, 0, None
            return error
        except BaseException:
            self._told, self._dropped, self._first = told, dropped, first
            raise


def _undelivered(told: Mapping[Batch, tuple[KafkaException, str]]) -> list[Undelivered]:
    return [Undelivered(batch.record(i), why, persisted) for batch, (why, persisted) in told.items() for i in range(batch.count)]
