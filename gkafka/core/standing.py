"""Why a partition is, or is not, being delivered: one reason for each state that the fetching machine can have it in.

The order of the questions is that of `Fetcher.poll`: what it would trip over first is the reason.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

from gkafka.core.positions import State

if TYPE_CHECKING:
    from gkafka.core.fetcher import Fetcher
    from gkafka.core.positions import Position

__all__ = ["Reason", "reason_of"]


class Reason(enum.Enum):
    """The values are words for users; see `gkafka.explaining` for whole sentences."""

    READY = "ready"
    CAUGHT_UP = "caught up"
    FETCHING = "fetching"
    NEXT = "next in turn"
    PAUSED = "paused"
    HALTED = "halted"
    FAILED = "failed"
    NO_LEADER = "no leader"
    NO_START = "no start"
    FINDING_START = "finding its start"
    CHECKING_LOG = "checking the log"
    THROTTLED = "throttled"
    QUEUE_FULL = "queue full"
    OPEN_TRANSACTION = "open transaction"
    NOT_OURS = "not ours"
    LEAVING = "being given up"
    STOPPED = "stopped"


def reason_of(fetcher: Fetcher, position: Position, now: float, *, full: bool) -> Reason:
    """full: do the queues together hold as much as they may? Nothing is fetched then."""
    if position.paused:
        return Reason.PAUSED
    if position.buffered:
        return Reason.READY
    if position.state is State.HALTED:
        return Reason.HALTED
    leader = fetcher.metadata.leader(*position.tp)
    if leader is None:
        return Reason.NO_LEADER
    if now < position.retry.not_before:
        return Reason.FAILED
    if position.state is State.RESETTING:
        return Reason.FINDING_START
    if position.state is State.CHECKING:
        return Reason.CHECKING_LOG
    if full:
        return Reason.QUEUE_FULL
    source = position.replica if position.replica >= 0 else leader[0]
    if fetcher.throttled_until(source) > now:
        return Reason.THROTTLED
    if position.high_watermark >= 0 and position.fetch_offset >= position.high_watermark and not position.retry.failures:
        return Reason.CAUGHT_UP
    if fetcher.read_committed and 0 <= position.stable <= position.fetch_offset < position.high_watermark:
        return Reason.OPEN_TRANSACTION
    return Reason.FETCHING if position.in_flight or fetcher.idle_until(source) > now else Reason.NEXT
