"""pykafka's delivery reports: each worker's messages, with what became of them, for the worker to take when it likes."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from gkafka import records
from gkafka.callbacks import end_waits
from gkafka.exceptions import KafkaException
from gkafka.records._message import Origin

if TYPE_CHECKING:
    from gkafka.handlers import Handler
    from gkafka.records import Delivery
    from gkafka.topic import Topic

__all__ = ["Reports"]

TICK_S = 1.0
"""Longest sleep of who waits: forks are noticed within it."""


class Reports(records.ReportQueue):
    """Those of one worker. They are kept until they are taken."""

    def __init__(self, handler: Handler, topic: Topic) -> None:
        super().__init__()
        self._handler, self._topic = handler, topic

    def expect(self, delivery: Delivery, message: Any, key: Any) -> None:
        """There will be a report of this one."""
        delivery.add_done_callback(self._report(delivery, message, key))

    def message_of(self, delivery: Delivery, message: Any, key: Any) -> Any:
        """The message of a delivery that was acknowledged just now."""
        self._report(delivery, message, key)(delivery)
        report = self.next_known()
        return None if report is None else report[0]

    def _report(self, delivery: Delivery, message: Any, key: Any) -> records.Report:
        message, key, _ = records.check_record(self._topic.name, message, key, None)  # what may change until then, as it is now
        return records.Report(self, delivery, message, key)

    def checkpoint(self) -> None:
        """Others have their turn."""
        self._handler.checkpoint()

    def wake(self, delivery: Any) -> None:
        """There is one more, and somebody waits."""
        end_waits(self.waits)

    def origin_of(self, partition: int) -> Origin:
        """What messages of this partition have in common."""
        return Origin(self._topic.name, partition, self._topic.partitions.get(partition))

    def take(self, block: bool, timeout: float | None) -> tuple[Any, KafkaException | None]:
        """(message, error or None) of the next one. Raises the handler's QueueEmptyError if there is none at once, or within timeout seconds (None: for ever)."""
        if not self.known and block:
            self._wait(timeout)
        found = self.next_known()
        if found is None:
            raise self._handler.QueueEmptyError
        return found

    def _wait(self, timeout: float | None) -> None:
        clock = self._handler.monotonic
        deadline = float("inf") if timeout is None else clock() + timeout
        while not self.known and (now := clock()) < deadline:
            parker = self._handler.parker()
            wake = parker.wake
            self.waits.append(wake)
            try:
                if not self.known:
                    parker.park(min(deadline, now + TICK_S))
            finally:
                with contextlib.suppress(ValueError):
                    self.waits.remove(wake)
            self._handler.check_fork()
