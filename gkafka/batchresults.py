"""Telling what became of batches.

There is one completion for each batch: waiters wake, its callbacks are queued for their worker, its
failure is kept for flush() and close(), and its memory is given back.
"""

from __future__ import annotations

from itertools import starmap
from typing import TYPE_CHECKING, Any

from gkafka.callbacks import Callbacks, end_waits
from gkafka.failures import Failures

if TYPE_CHECKING:
    from gkafka.core.sender import Sender, Settled
    from gkafka.handlers import Handler
    from gkafka.producermemory import ProducerMemory
    from gkafka.records import Appender, Batch

__all__ = ["BatchResults"]


class BatchResults:
    """Tells the outcomes of one producer's batches.

    lock: guards the sender. delivered: records that were delivered; settled_records: those that have
    an outcome, good or bad; news: an Event that is set when more have one.
    """

    def __init__(self, handler: Handler, lock: Any, sender: Sender, appender: Appender, memory: ProducerMemory) -> None:
        self._lock, self._sender, self._appender, self._memory = lock, sender, appender, memory
        self.callbacks = Callbacks(handler, lock, sender, self._give_back)
        self.failures = Failures(lock, handler.Mutex(), appender, memory)
        self.delivered = self.settled_records = 0
        self.news = handler.Event()

    def tell(self, settled: list[Settled]) -> None:
        """Tell outcomes that `BatchOutcomes.take_ended` gave.

        Whoever is interrupted here leaves the rest to the next call: nothing is told twice.
        """
        for outcome in settled:
            self._tell(outcome)
        with self._lock:
            self.settled_records += self._sender.outcomes.told(settled)
        if not self.news.is_set():
            self.news.set()
        self._memory.give_room()

    def _tell(self, outcome: Settled) -> None:
        batch = outcome.batch
        whole = batch.parent or batch
        heard = self._sender.outcomes.telling[batch].callbacks
        if heard:
            pass  # from who was interrupted
        elif outcome.error is None:
            self.delivered += batch.count
            heard.extend(starmap(batch.complete, ((outcome.base_offset, outcome.log_append_time),)))  # in one step of C
        else:
            # Kept before it is done: a flush() that sees the last batch done must find its failure.
            self.failures.keep(batch, outcome.error)
            heard.extend(starmap(batch.fail, ((outcome.error, batch.extra.persisted),)))
        callbacks = heard[0]
        if callbacks and len(heard) == 1:
            self.callbacks.add(batch, whole, callbacks, heard)
        elif outcome.error is not None and not callbacks:
            self.failures.called(batch)
        if batch.waits:
            end_waits(batch.waits)
        if whole is not batch and whole.done and whole.waits:
            end_waits(whole.waits)
        if outcome.error is None and not callbacks:
            self._appender.release(batch)

    def _give_back(self, batch: Batch) -> None:
        """Give back the memory of a batch whose callbacks no longer need its records.

        What failed is still to be reported.
        """
        if batch.error is None:
            self._appender.release(batch)
        else:
            self.failures.called(batch)
        self._memory.give_room()
