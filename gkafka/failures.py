"""Records that were not delivered: kept until flush() or close() tells of them, as many as there is room for."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from gkafka.exceptions import DeliveryError, KafkaException, TransactionAbortedError
from gkafka.logs import get_logger

if TYPE_CHECKING:
    from gkafka.producermemory import ProducerMemory
    from gkafka.records import Appender, Batch

__all__ = ["Failures", "Undelivered"]

log = get_logger(__name__)


class Undelivered(NamedTuple):
    """A record that was not delivered. persisted: "no", or "maybe" where a broker may have written it without its answer reaching us."""

    record: Any
    error: BaseException | None
    persisted: str


class Failures:
    """Those of one producer. lock: the driver's; telling: one of its own, of who takes them; memory: what it shares with other producers.

    A failed batch holds its part of the buffer until its callbacks were called (`called`): for who sends, what is in the buffer is still to be
    sent. Then its records are copied out of it, and wait to be told of (`take`). All producers of a client keep KEPT_BYTES there; beyond that the
    oldest are dropped, which were logged. What somebody has heard of one by one, as by its delivery report, is not told once more.
    """

    def __init__(self, lock: Any, telling: Any, appender: Appender, memory: ProducerMemory) -> None:
        self._lock, self._telling, self._appender, self._memory = lock, telling, appender, memory
        self._failed: dict[Batch, KafkaException] = {}  # not told of, in the order in which they failed
        self._looked_at: set[Batch] = set()  # their callbacks are still to be called
        self._told: dict[Batch, tuple[KafkaException, str]] = {}  # what take() is about to tell of, and how far each was persisted
        self._dropped = 0
        self._first_dropped: KafkaException | None = None

    def keep(self, batch: Batch, error: KafkaException) -> None:
        """It failed with this error; `called` follows when its callbacks were called. Whoever was interrupted may say so once more."""
        if batch.extra.told or batch in self._failed:
            return
        counted = batch.extra.counted
        what = f"{counted or batch.count} record(s) for {batch.topic}-{batch.partition} not delivered"
        why = str(error).removeprefix(what)
        log.log(
            logging.DEBUG if isinstance(error, TransactionAbortedError) or counted == 0 else logging.ERROR,
            "%s (persisted: %s)%s%s",
            what,
            batch.extra.persisted,
            ": the first: " if counted and counted > batch.count else "" if why != str(error) else ": ",
            why,
        )
        with self._lock:
            self._looked_at.add(batch)
            self._failed[batch] = error

    def called(self, batch: Batch) -> None:
        """Its callbacks were, if there are any: it leaves the buffer, and only waits to be told of."""
        with self._lock:
            self._looked_at.discard(batch)
            try:
                self._appender.set_apart(batch)
            except MemoryError:
                self._drop(batch)
            untold = batch in self._failed
        if untold:
            size = max(batch.wire_size or batch.size, self._appender.initial_bytes)  # as it was counted in the buffer
            self._memory.keep_apart(batch, size, self.drop)

    def drop(self, batch: Batch) -> None:
        """There is no room for it any more."""
        with self._lock:
            self._drop(batch)

    def _drop(self, batch: Batch) -> None:
        why = self._failed.pop(batch, None)
        if why is None or batch.extra.told:
            return  # whoever was told has it now
        self._dropped += _unheard(batch)
        self._first_dropped = self._first_dropped or why
        self._appender.release(batch)

    def heard(self, error: BaseException) -> None:
        """Somebody has this error of one record: take() tells of that record no more. error: as its delivery gives it."""
        batch, index = error.place if isinstance(error, KafkaException) else (None, 0)
        if batch is None:
            return
        with self._lock:
            if batch.extra.heard is None:
                batch.extra.heard = set()
            if index in batch.extra.heard or batch.extra.told:
                return
            batch.extra.heard.add(index)
            if batch not in self._failed:
                self._dropped -= 1

    # -- telling ---------------------------------------------------------------------------------------------------------------
    def take(self) -> DeliveryError | None:
        """What failed since the last call, as one error; the records' memory is the error's from then on.

        Whatever comes between (a signal handler's exception), nothing is forgotten before all of it was done: the next call goes on.
        """
        if not (self._failed or self._told or self._dropped):
            return None
        with self._telling:
            with self._lock:
                for batch, why in self._failed.items():
                    self._told[batch] = why, batch.extra.persisted
                    batch.extra.told = True
                self._failed.clear()
            self._memory.taken(self._told)
            if not (self._told or self._dropped):
                return None  # another caller was told
            return self._all_told()

    def _all_told(self) -> DeliveryError | None:
        told, dropped, first_dropped = self._told, self._dropped, self._first_dropped
        unheard = {batch: why for batch, (why, _) in told.items() if _unheard(batch)}
        count = sum(map(_unheard, unheard)) + dropped
        if not count:
            self._told, self._first_dropped = {}, None
            return None
        more = f" ({dropped} of them only logged: more failed than there is room for)" if dropped else ""
        first = first_dropped if dropped and first_dropped is not None else next(iter(unheard.values()))
        error = DeliveryError(
            f"{count} record(s) were not delivered{more}; the first: {first}", partial(_undelivered, told), unlisted=dropped
        )
        error.__cause__ = first
        try:
            self._told, self._dropped, self._first_dropped = {}, 0, None
            return error
        except BaseException:
            self._told, self._dropped, self._first_dropped = told, dropped, first_dropped
            raise


def _undelivered(told: Mapping[Batch, tuple[KafkaException, str]]) -> list[Undelivered]:
    return [
        Undelivered(batch.record(i), why, persisted)
        for batch, (why, persisted) in told.items()
        for i in range(batch.count)
        if i not in (batch.extra.heard or ())
    ]


def _unheard(batch: Batch) -> int:
    """How many of its records are nobody's to know of."""
    return batch.count - len(batch.extra.heard or ())
