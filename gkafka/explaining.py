"""`consumer.explain()`, and the watchdog that says it unasked when a partition with something to read has stood still."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from gkafka.common import TopicPartition
from gkafka.core.standing import Reason, reason_of
from gkafka.escaping import escaped
from gkafka.logs import get_logger

if TYPE_CHECKING:
    from gkafka.consumerqueues import Queue
    from gkafka.core.positions import Position
    from gkafka.exceptions import KafkaException
    from gkafka.fetchdriver import FetchDriver, Fetching

__all__ = ["Explanation", "PartitionReport", "Watchdog", "explain", "not_ours", "not_started", "stopped"]

log = get_logger(__name__)

SOONEST_LOOK_S = 0.05


class PartitionReport(NamedTuple):
    """Why a partition is, or is not, being delivered.

    reason: one of `Reason`'s values, as text says in a sentence. position: the offset of the next record that will be handed out, end: the next
    offset of the log, as its broker last told it; -1 where they are not known. buffered: messages that were fetched. source: the broker that is
    fetched from, -1 for none. error: what stands in the way, if something does.
    """

    reason: Reason
    text: str
    position: int = -1
    end: int = -1
    buffered: int = 0
    source: int = -1
    error: BaseException | None = None

    @property
    def lag(self) -> int:
        """Records that were not handed out yet, -1 where that is not known."""
        return max(0, self.end - self.position) if self.end >= 0 <= self.position else -1


@dataclasses.dataclass(frozen=True, slots=True)
class Explanation:
    """partitions: a report for each. group: where the member of a group stands, "" without one. str() is all of it in plain words."""

    partitions: Mapping[TopicPartition, PartitionReport]
    group: str = ""

    def __str__(self) -> str:
        lines = [f"{tp.topic}-{tp.partition}: {report.text}" for tp, report in sorted(self.partitions.items())]
        return "\n".join(map(escaped, ([self.group] if self.group else []) + (lines or ["no partition is read"])))


def explain(driver: FetchDriver, now: float) -> dict[TopicPartition, PartitionReport]:
    """A report for every partition that is read. now: monotonic seconds."""
    if driver.stopped:
        return stopped({tp: queue.position.consumed for tp, queue in list(driver.queues.items())})
    with driver.lock:
        errors = {TopicPartition(e.topic or "", -1 if e.partition is None else e.partition): e for e in driver.errors}
        reports = {tp: _report(driver, queue, errors.get(tp), now) for tp, queue in driver.queues.items()}
    if driver.may_deliver is not None and not driver.may_deliver():
        reports = not_ours(reports, "this member has not heard of its group in time")
    return reports


def stopped(stood: Mapping[TopicPartition, int]) -> dict[TopicPartition, PartitionReport]:
    """Of a consumer that does not run. stood: the next offset of each partition, -1 where it is not known."""
    texts = {tp: f"the consumer is stopped{f' at offset {offset}' if offset >= 0 else ''}" for tp, offset in stood.items()}
    return {tp: PartitionReport(Reason.STOPPED, texts[tp], offset) for tp, offset in stood.items()}


def not_ours(reports: Mapping[TopicPartition, PartitionReport], why: str) -> dict[TopicPartition, PartitionReport]:
    """The same, of a member whose partitions may be others' at this moment."""
    text = f"nothing is handed out while others may have the partition: {why}"
    return {tp: report._replace(reason=Reason.NOT_OURS, text=text) for tp, report in reports.items()}


def not_started(trouble: BaseException | str) -> PartitionReport:
    """Of a partition that is the member's and has no offset to start from yet. trouble: what stands in the way."""
    error = trouble if isinstance(trouble, BaseException) else None
    return PartitionReport(Reason.NO_START, f"its offset to start from is not known yet; last: {trouble}", error=error)


def _report(driver: FetchDriver, queue: Queue, waiting: KafkaException | None, now: float) -> PartitionReport:
    position = queue.position
    share = _share_of(driver, position)
    reason = reason_of(share.fetcher, position, now, full=driver.is_full)
    leader = driver.cluster.metadata.leader(*position.tp)
    source = position.replica if position.replica >= 0 else leader[0] if leader is not None else -1
    error = waiting or position.trouble
    text = _TEXTS[reason].format(
        offset=position.consumed,
        end=position.high_watermark,
        stable=position.stable,
        buffered=queue.buffered,
        broker=source,
        error=f"{type(error).__name__}: {error}" if error is not None else _last_answer(share, position, source),
        held=driver.held,
        most_held=driver.config.queued_max_bytes,
        most_at_once=driver.config.consume_max_bytes,
        seconds=max(0.0, max(position.retry.not_before, share.fetcher.throttled_until(source)) - now),
    )
    if waiting is not None and reason is not Reason.HALTED:
        text += f"; the next call that reaches it raises {type(waiting).__name__}: {waiting}"
    return PartitionReport(reason, text, position.consumed, position.high_watermark, queue.buffered, source, error)


def _last_answer(share: Fetching, position: Position, source: int) -> str:
    """Say what came last where nothing failed."""
    if share.fetcher.idle_until(source):
        return f"broker {source} answers at once, again and again, with nothing new"
    return "no answer yet" if position.high_watermark < 0 else "an answer without records for this partition"


def _share_of(driver: FetchDriver, position: Position) -> Fetching:
    return next((share for share in driver.shares if share.fetcher.positions.get(position.tp) is position), driver.shares[0])


_TEXTS = {
    Reason.READY: "{buffered} messages from offset {offset} on are here and wait for the application to ask for them; one call hands out "
    "no more than {most_at_once} bytes (consume_max_bytes, decompressed)",
    Reason.CAUGHT_UP: "everything up to offset {end} was handed out; waiting for broker {broker} to have more",
    Reason.FETCHING: "asking broker {broker} for records from offset {offset} on; last: {error}",
    Reason.NEXT: "broker {broker} is answering another fetch; this partition is in the next one",
    Reason.PAUSED: "paused by the application at offset {offset}: resume() goes on",
    Reason.HALTED: "stopped at offset {offset} by {error}; seek() goes on elsewhere",
    Reason.FAILED: "trying again in {seconds:.1f} s at offset {offset}, after {error}",
    Reason.NO_LEADER: "there is no leader to fetch from; the cluster is asked again and again",
    Reason.FINDING_START: "asking broker {broker} for the offset to start from; last: {error}",
    Reason.CHECKING_LOG: "asking broker {broker}, a new leader, whether its log goes up to offset {offset}; last: {error}",
    Reason.THROTTLED: "broker {broker} wants no fetch for another {seconds:.1f} s (quota)",
    Reason.QUEUE_FULL: "the consumer holds {held} bytes of other batches, as they were fetched, and fetches no more at {most_held} "
    "(queued_max_bytes) until the application takes some",
    Reason.OPEN_TRANSACTION: "an open transaction hides everything from offset {stable} on (the log ends at {end}) until its producer ends it",
}


class Watchdog:
    """Tells once of each partition that has something to read and has stood still for stall_warning_ms; again after it has moved."""

    def __init__(self, stall_s: float) -> None:
        self._stall_s = stall_s
        self._since: dict[TopicPartition, tuple[int, float]] = {}  # where it stood, and since when
        self._told: set[TopicPartition] = set()
        self.warnings = 0

    @property
    def look_every_s(self) -> float:
        """How often to look, so that it is told not much later than that."""
        return max(SOONEST_LOOK_S, self._stall_s / 8)

    def look(self, driver: FetchDriver, now: float) -> None:
        """Called at least every look_every_s. now: monotonic seconds."""
        still: list[TopicPartition] = []
        with driver.lock:
            since: dict[TopicPartition, tuple[int, float]] = {}
            for tp, queue in driver.queues.items():
                position = queue.position
                caught_up = (
                    0 <= position.high_watermark <= position.consumed and position.trouble is None
                )  # else that end may be an old one
                if position.paused or caught_up:
                    continue
                before = self._since.get(tp)
                since[tp] = before if before is not None and before[0] == position.consumed else (position.consumed, now)
                if now - since[tp][1] >= self._stall_s:
                    still.append(tp)
            self._since = since
            self._told &= set(still)
        news = [tp for tp in still if tp not in self._told]
        if not news:
            return
        reports = explain(driver, now)
        for tp in news:
            if tp in reports:
                self._told.add(tp)
                self.warnings += 1
                log.warning("%s-%d has stood still for %g s: %s", tp.topic, tp.partition, self._stall_s, reports[tp].text)
