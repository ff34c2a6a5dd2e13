"""commitGroup: a stream's progress as a consumer group's offsets, for those who look at lag in Kafka. Spark itself never reads them.

The group has no members: its offsets are committed as those of a consumer that assigns its partitions itself (generation -1).
"""

from __future__ import annotations

import logging
from typing import Any

from gkafka.common import TopicPartition
from gkafka.exceptions import BrokerError, KafkaException, UnknownMemberId
from gkafka.groupoffsets import GroupOffsets
from gkafka.logs import get_logger
from gkafka.skins import Handler
from gkafka.spark.connections import connected
from gkafka.spark.offsets import Offsets
from gkafka.spark.options import SourceOptions

__all__ = ["GroupCommits"]

log = get_logger(__name__)

COMMIT_S = 10.0
"""A commit that takes longer is given up; the next one is due in its turn."""
AGAIN_S = 3600.0
"""Offsets that stay are committed again after this: brokers forget those of a group without members (offsets.retention.minutes)."""


class GroupCommits:
    """Commits beside the query, at most one at a time. A failure is logged and never ends the query."""

    def __init__(self, options: SourceOptions, handler: Handler) -> None:
        self._properties, self._group = options.kafka, options.stream.commit_group or ""
        self._interval_s, self._handler = options.stream.commit_interval_ms / 1000, handler
        self._committed: Offsets = {}
        self._last: float | None = None
        self._worker: Any = None  # of the handler
        self._failures = 0

    def offer(self, offsets: Offsets, *, wait: bool = False) -> None:
        """Offsets that a batch has reached. They are committed if the last commit is long enough ago; with wait now, before this returns."""
        if wait:
            self.close()
            if offsets != self._committed:
                self._commit(offsets)
        elif self._is_due(offsets):
            self._last = self._handler.monotonic()
            self._worker = self._handler.spawn(self._commit, dict(offsets), _name="gkafka-spark-commit")

    def close(self) -> None:
        """Wait for a commit that is under way."""
        if self._worker is not None:
            self._worker.join(COMMIT_S + 1.0)

    def _is_due(self, offsets: Offsets) -> bool:
        if self._worker is not None and self._worker.is_alive():
            return False
        since = self._handler.monotonic() - self._last if self._last is not None else AGAIN_S
        return since >= (AGAIN_S if offsets == self._committed else self._interval_s)

    def _commit(self, offsets: Offsets) -> None:
        try:
            with connected(self._properties) as client:
                wanted = {TopicPartition(*at): offset for at, offset in offsets.items()}
                GroupOffsets(client.cluster, self._group).commit(wanted, timeout_s=COMMIT_S)
        except KafkaException as exc:
            self._tell(exc)
        else:
            self._committed, self._failures = offsets, 0

    def _tell(self, error: KafkaException) -> None:
        self._failures += 1
        members = isinstance(error, BrokerError) and error.code == UnknownMemberId.code
        hint = "; it has members that consume: give commitGroup a group that nobody else uses" if members else ""
        level = logging.WARNING if self._failures == 1 else logging.DEBUG
        log.log(level, "the progress of the query is not committed to group %r (the query goes on): %s%s", self._group, error, hint)
