"""How flush() and close() wait for what a producer owes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from gkafka.exceptions import KafkaTimeoutError
from gkafka.logs import get_logger

if TYPE_CHECKING:
    from gkafka.handlers import Handler
    from gkafka.producerdriver import ProducerDriver
    from gkafka.records import Batch

__all__ = ["Flush"]

log = get_logger(__name__)

QUIET_S = 5.0
"""So long flush() and close() wait in silence while no record gets an outcome."""


class Flush:
    """One wait until every record that a producer owes now has its outcome.

    timeout: seconds, from now on. check_process: raises in a forked child. delivery_timeout_ms: of
    the producer, for the warning that nothing gets an outcome.
    """

    def __init__(
        self, driver: ProducerDriver, handler: Handler, timeout: float, delivery_timeout_ms: float, check_process: Callable[[], None]
    ) -> None:
        self._driver, self._handler, self._check_process = driver, handler, check_process
        self._timeout, self._delivery_timeout_ms = timeout, delivery_timeout_ms
        self._deadline = handler.monotonic() + timeout
        self._settled = -1  # how many records had an outcome when it was looked last
        self._look_at = 0.0

    def wait(self) -> list[Batch]:
        """Wait, and return the batches that were waited for. Raises KafkaTimeoutError."""
        asked = self._driver.all_owed(self._deadline)
        for batch in asked.batches:
            self._wait_for(batch)
        return asked.batches

    def _wait_for(self, batch: Batch) -> None:
        while not batch.done:
            if self._handler.monotonic() >= self._deadline:
                left = self._owed_records()
                raise KafkaTimeoutError(f"flush: {left} record(s) not delivered within {self._timeout:g} s; they are still being delivered")
            self._look()
            self._driver.hurry(self._deadline)
            self._driver.wait_for(batch, min(self._deadline, self._look_at))
            self._check_process()

    def _look(self) -> None:
        """Warn once if no record has got an outcome for QUIET_S."""
        now = self._handler.monotonic()
        if now < self._look_at:
            return
        settled: int = self._driver.results.settled_records
        if settled != self._settled:
            self._settled, self._look_at = settled, now + QUIET_S
            return
        log.warning(
            "flush or close waits for %d record(s) that no broker has acknowledged, %g s without news so far: up to %.0f s more "
            "(a timeout bounds it, else delivery_timeout_ms=%g)",
            self._owed_records(),
            QUIET_S,
            self._deadline - now,
            self._delivery_timeout_ms,
        )
        self._look_at = self._deadline

    def _owed_records(self) -> int:
        return sum(batch.count for batch in self._driver.owed())
