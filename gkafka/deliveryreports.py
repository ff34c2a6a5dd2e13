"""pykafka's delivery reports: each worker's messages, with what became of them, for the worker to take when it likes."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable
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
LOOKS = 64
"""Reports between two looks at whether others should have a turn."""


class Reports:
    """Those of one worker, in the order in which their outcomes became known. They are kept until they are taken."""

    def __init__(self, handler: Handler, topic: Topic) -> None:
        self._handler, self._topic = handler, topic
        self.known: deque[records.Report] = deque()
        self.waits: list[Callable[[], None]] = []
        self._origins: dict[int, Origin] = {}
        self._asked = 0

    def expect(self, delivery: Delivery, message: Any, key: Any) -> None:
        """There will be a report of this one."""
        message, key, _ = records.check_record(self._topic.name, message, key, None)  # what may change until then, as it is now
        delivery.add_done_callback(records.Report(self, message, key))

    def message_of(self, delivery: Delivery, message: Any, key: Any) -> Any:
        """The message of a delivery that was acknowledged just now."""
        message, key, _ = records.check_record(self._topic.name, message, key, None)
        records.Report(self, message, key)(delivery)
        report = self.next_known()
        return None if report is None else report[0]

    def wake(self) -> None:
        """There is one more, and somebody waits."""
        end_waits(self.waits)

    def next_known(self) -> tuple[Any, KafkaException | None] | None:
        """(message, error or None) if there is one, of this process."""
        self._asked += 1
        if not self._asked % LOOKS:
            self._handler.checkpoint()  # who takes thousands that lie there waits for nothing
        try:
            report = self.known.popleft()
        except IndexError:
            return None
        return report.outcome(self._origins, self._origin)

    def take(self, block: bool, timeout: float | None) -> tuple[Any, KafkaException | None]:
        """The same. Raises the handler's QueueEmptyError if there is none at once, or within timeout seconds (None: for ever)."""
        if not self.known and block:
            self._wait(timeout)
        found = self.next_known()
        if found is None:
            raise self._handler.QueueEmptyError
        return found

    def _origin(self, partition: int) -> Origin:
        self._origins[partition] = Origin(self._topic.name, partition, self._topic.partitions.get(partition))
        return self._origins[partition]

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
