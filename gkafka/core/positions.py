"""Where a consumer stands in each partition, and how it finds its start.

Two offsets matter: `fetch_offset`, from which the next request asks, and `consumed`, the next one that the application will get. What
lies between them is in the consumer's queue. Only a broker's definite answer resets a position (reliability rule B25, B26).
"""

from __future__ import annotations

import enum

from gkafka.common import TopicPartition
from gkafka.core.backoff import Retry

__all__ = ["Position", "State"]


class State(enum.Enum):
    """RESETTING: the start is to be looked up by `reset_to`; FETCHING: it is known; HALTED: an error waits for the application."""

    RESETTING = "resetting"
    FETCHING = "fetching"
    HALTED = "halted"


class Position:
    """One partition of a consumer.

    buffered: messages in the queue that were not handed out. in_flight: a fetch that asks for it is under way. epoch: counts seeks, so
    that an answer to an older question is dropped. max_bytes: what is asked of it; grows when a record does not fit.
    """

    __slots__ = (
        "buffered",
        "consumed",
        "epoch",
        "fetch_offset",
        "high_watermark",
        "in_flight",
        "max_bytes",
        "paused",
        "reset_to",
        "retry",
        "state",
        "tp",
    )

    def __init__(self, tp: TopicPartition, max_bytes: int) -> None:
        self.tp = tp
        self.state = State.RESETTING
        self.reset_to = -2
        self.fetch_offset = -1
        self.consumed = -1
        self.high_watermark = -1
        self.buffered = 0
        self.in_flight = False
        self.paused = False
        self.epoch = 0
        self.max_bytes = max_bytes
        self.retry = Retry()

    def seek(self, offset: int) -> None:
        """Start from this offset. What was fetched before is void."""
        self.state = State.FETCHING
        self.fetch_offset = self.consumed = offset
        self.epoch += 1
        self.buffered = 0
        self.retry.succeeded()

    def reset(self, timestamp: int) -> None:
        """Start from what ListOffsets answers for this timestamp (-2 earliest, -1 latest, else ms)."""
        self.state = State.RESETTING
        self.reset_to = timestamp
        self.epoch += 1
        self.buffered = 0
        self.retry.succeeded()

    def halt(self) -> None:
        """Stop fetching: the application has to decide (seek, or drop the partition). What was fetched before is still handed out."""
        self.state = State.HALTED

    @property
    def is_drained(self) -> bool:
        """Was everything that was fetched handed out?"""
        return self.consumed >= self.fetch_offset
