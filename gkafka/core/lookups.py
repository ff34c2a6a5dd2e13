"""What a consumer has to ask about its positions before it may fetch: where to start, and whether a new leader has what was read.

Both are asked of leaders, never of followers (B42), and only a definite answer moves a position (B25, B26). Source: KIP-79, KIP-320
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from gkafka.brokererrors import ClusterAuthorizationFailed, NotLeaderForPartition, Stale, UnknownLeaderEpoch, UnsupportedVersion, error_for
from gkafka.common import TopicPartition
from gkafka.core.positions import Position, Rests, State
from gkafka.exceptions import KafkaException, LogTruncationError, ProtocolError
from gkafka.logs import get_logger
from gkafka.wire.epochs import (
    EpochEnd,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from gkafka.wire.offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

if TYPE_CHECKING:
    from gkafka.core.metadata import Metadata

__all__ = ["Asked", "Checked", "EpochCheck", "Lookup", "Lookups", "answer_without"]

log = get_logger(__name__)

EVERY_CLIENT = -1

Asked = dict[TopicPartition, tuple[Position, int]]
"""The positions that a request is about, and the epoch of each when it was asked."""


class Lookup(NamedTuple):
    """Timestamps to turn into offsets, asked of the broker that leads the partitions."""

    broker_id: int
    request: ListOffsetsRequest
    partitions: Asked


class EpochCheck(NamedTuple):
    """Where did the epochs end in which the last batches were written? Asked of the broker that leads the partitions."""

    broker_id: int
    request: OffsetForLeaderEpochRequest
    partitions: Asked


class Checked(NamedTuple):
    """errors: for the application. stale: the metadata is out of date. void: positions whose queues hold what is not in the log any more."""

    errors: list[KafkaException]
    stale: bool
    void: list[Position]


class Lookups:
    """Makes the questions and takes the answers.

    reset_policy: -2, -1 or None (raise), for a log that was cut. truncations: how many were met.
    """

    def __init__(self, metadata: Metadata, *, read_committed: bool, reset_policy: int | None, rests: Rests) -> None:
        self._metadata, self._read_committed, self._reset_policy = metadata, read_committed, reset_policy
        self._rests = rests
        self._asking: dict[TopicPartition, Asked] = {}
        self.truncations = 0

    def is_asking(self, position: Position) -> bool:
        """Is an answer about it under way?"""
        return position.tp in self._asking

    def forget(self) -> None:
        """Whatever is under way is nobody's any more: its answers are dropped."""
        self._asking.clear()

    def _leader_epoch(self, position: Position) -> int:
        leader = self._metadata.leader(*position.tp)
        return leader[1] if leader is not None else -1

    def _note(self, positions: Iterable[Position]) -> Asked:
        asked = {position.tp: (position, position.epoch) for position in positions}
        self._asking.update(dict.fromkeys(asked, asked))
        return asked

    # -- where to start --------------------------------------------------------------------------------------------------
    def starts(self, broker_id: int, positions: list[Position]) -> Lookup:
        """Ask for the offsets to start from."""
        topics: dict[str, ListOffsetsTopic] = {}
        for position in positions:
            topic = topics.setdefault(position.tp.topic, ListOffsetsTopic(name=position.tp.topic, partitions=[]))
            # Kept until the answer: what a leader says is right as long as it leads.
            position.leader_epoch = self._leader_epoch(position)
            position.topic_id = self._metadata.topic_id(position.tp.topic)
            topic.partitions.append(
                ListOffsetsPartition(
                    partition_index=position.tp.partition, current_leader_epoch=position.leader_epoch, timestamp=position.reset_to
                )
            )
        level = 1 if self._read_committed else 0
        return Lookup(broker_id, ListOffsetsRequest(isolation_level=level, topics=list(topics.values())), self._note(positions))

    def on_starts(
        self, lookup: Lookup, response: ListOffsetsResponse | None, error: KafkaException | None, now: float
    ) -> tuple[list[KafkaException], bool]:
        """Take offsets in. Returns (errors for the application, whether the metadata is out of date)."""
        rows = None if response is None else [(TopicPartition(t.name, p.partition_index), p) for t in response.topics for p in t.partitions]
        return self._settle(
            lookup.partitions, State.RESETTING, rows, error, now, "ListOffsets", lambda position, part: self._start(position, part, now)
        )

    def _start(self, position: Position, part: ListOffsetsPartitionResponse, now: float) -> None:
        if part.found < 0 and position.reset_to in (-1, -2):  # a log has both ends; who denies it is not asked again at once
            self._rests.failed(position, answer_without(position, "ListOffsets", "names no offset"), now)
        elif part.found >= 0:
            position.move(part.found, part.leader_epoch, position.leader_epoch)
        else:  # no record has the timestamp or a later one: the end of the log is where such a record will be
            position.look_up(-1)

    # -- whether the log was cut -----------------------------------------------------------------------------------------
    def checks(self, broker_id: int, positions: list[Position]) -> EpochCheck:
        """Ask where the epochs of what was last read have ended."""
        topics: dict[str, OffsetForLeaderTopic] = {}
        for position in positions:
            topic = topics.setdefault(position.tp.topic, OffsetForLeaderTopic(topic=position.tp.topic, partitions=[]))
            position.state, position.leader_epoch = State.CHECKING, self._leader_epoch(position)
            topic.partitions.append(
                OffsetForLeaderPartition(
                    partition=position.tp.partition, current_leader_epoch=position.leader_epoch, leader_epoch=position.fetch_epoch
                )
            )
        return EpochCheck(
            broker_id, OffsetForLeaderEpochRequest(replica_id=EVERY_CLIENT, topics=list(topics.values())), self._note(positions)
        )

    def on_checked(
        self, check: EpochCheck, response: OffsetForLeaderEpochResponse | None, error: KafkaException | None, now: float
    ) -> Checked:
        """Take ends of epochs in: positions that are right go on, the others are moved, or halted without a policy."""
        told: list[KafkaException] = []
        void: list[Position] = []
        if isinstance(error, UnsupportedVersion):  # before 0.11, or a proxy: there is nobody to ask
            response = OffsetForLeaderEpochResponse(topics=[])
            for position, _ in check.partitions.values():
                self._is_right(position)
        rows = None if response is None else [(TopicPartition(t.topic, p.partition), p) for t in response.topics for p in t.partitions]
        errors, stale = self._settle(
            check.partitions,
            State.CHECKING,
            rows,
            error,
            now,
            "OffsetForLeaderEpoch",
            lambda position, part: self._check(position, part, told, void),
        )
        return Checked(errors + told, stale, void)

    def _is_right(self, position: Position) -> None:
        if position.state is State.CHECKING:
            position.state = State.FETCHING
            position.trouble = None

    def _check(self, position: Position, part: EpochEnd, errors: list[KafkaException], void: list[Position]) -> None:
        if part.leader_epoch > position.fetch_epoch:
            # An epoch above the one that was asked for says nothing of it, whatever end comes along (B28).
            log.info("%s-%d: an answer about epoch %d names %d", *position.tp, position.fetch_epoch, part.leader_epoch)
            self._is_right(position)
        elif part.end_offset >= position.fetch_offset:
            self._is_right(position)
        else:
            void.append(position)
            self._cut(position, part.end_offset, part.leader_epoch, errors)

    def _cut(self, position: Position, end: int, epoch: int, errors: list[KafkaException]) -> None:
        """The log ends before the position, or has another history. end: where that begins, -1 if the leader cannot tell."""
        if 0 <= position.consumed <= end:
            log.info("%s-%d: the log was cut at offset %d, before what was fetched was consumed: fetching it again", *position.tp, end)
            position.move(position.consumed, position.consumed_epoch if position.consumed_epoch != position.fetch_epoch else epoch)
            return
        self.truncations += 1
        error = LogTruncationError(_lost(position, end), topic=position.tp.topic, partition=position.tp.partition, offset=position.consumed)
        error.diverging_offset = end
        if self._reset_policy is None:
            position.move(position.consumed, position.consumed_epoch)
            position.halt(error)
            errors.append(error)
            return
        log.error("%s; going on from %s", error, f"offset {end}" if end >= 0 else "where auto_offset_reset says")
        if end >= 0:
            position.move(end, epoch)
        else:
            position.look_up(self._reset_policy)

    # -- both --------------------------------------------------------------------------------------------------------------
    def _settle(
        self,
        asked: Asked,
        waiting: State,
        rows: Iterable[tuple[TopicPartition, Any]] | None,
        error: KafkaException | None,
        now: float,
        api: str,
        take: Callable[[Position, Any], None],
    ) -> tuple[list[KafkaException], bool]:
        """Give each position its part of an answer. waiting: the state of those that still want it."""
        mine = [tp for tp in asked if self._asking.get(tp) is asked]
        for tp in mine:
            del self._asking[tp]
        unanswered = {tp: asked[tp] for tp in mine if asked[tp][0].epoch == asked[tp][1] and asked[tp][0].state is waiting}
        errors: list[KafkaException] = []
        stale = False
        for tp, part in rows or ():
            position, _ = unanswered.pop(tp, (None, 0))
            if position is None:
                continue  # sought meanwhile, or never asked for
            problem = error_for(part.error_code, topic=tp.topic, partition=tp.partition, api=api)
            if problem is None:
                take(position, part)
            elif isinstance(problem, ClusterAuthorizationFailed):
                self._is_right(position)  # brokers before 2.3 let only their like ask for epochs
            else:
                self._rests.failed(position, problem, now)
                if isinstance(problem, (NotLeaderForPartition, UnknownLeaderEpoch)):
                    self._metadata.dispute(*tp, position.leader_epoch, now)
                stale |= problem.stale is Stale.METADATA
                if not problem.retriable:
                    errors.append(problem)
        for position, _ in unanswered.values():
            self._rests.failed(position, error or answer_without(position, api, "leaves the partition out"), now)
        if rows is None:
            return [] if error is None or error.retriable else [error], True
        return errors, stale


def answer_without(position: Position, api: str, what: str) -> ProtocolError:
    """Return what stands in a position's way when a broker answers without what it was asked for. The next question may have it."""
    name, partition = position.tp
    return ProtocolError(f"{name}-{partition}: the answer to {api} {what}", topic=name, partition=partition, api=api)


def _lost(position: Position, end: int) -> str:
    name, partition = position.tp
    if end < 0:
        return (
            f"{name}-{partition}: the leader knows nothing of epoch {position.fetch_epoch}, in which the records before offset "
            f"{position.consumed} were written: they were lost"
        )
    return f"{name}-{partition}: the log was cut: the records from offset {end} to {position.consumed - 1}, which were consumed, are lost"
