"""The consumer's machine: what to ask of which broker, and what the answers hold.

One Fetch of a consumer is under way per broker. It asks for every partition that the broker leads, that is not paused and whose queue is
short; the next one is made as soon as an answer was split into batches, before any of them is handed out (KIP-74, KIP-98, KIP-320).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from gkafka.brokererrors import OffsetOutOfRangeError, Stale, error_for
from gkafka.common import TopicPartition
from gkafka.core.backoff import Backoff
from gkafka.core.positions import Position, State
from gkafka.exceptions import CorruptRecordError, KafkaException, RecordTooLarge
from gkafka.wire.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from gkafka.wire.offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsResponse, ListOffsetsTopic

if TYPE_CHECKING:
    from random import Random

    from gkafka.core.metadata import Metadata
    from gkafka.records import BatchHeader

__all__ = ["AbortFilter", "Asked", "Fetched", "Fetcher", "Lookup", "Poll"]

log = logging.getLogger(__name__)

NEVER = float("inf")
PARTIAL_WAIT_MS = 20
"""Longest park of a fetch that leaves partitions out because their queues are full: they must not wait for a quiet neighbour."""


class Asked(NamedTuple):
    """A fetch for one broker. partitions: the position and its epoch when it was asked."""

    broker_id: int
    request: FetchRequest
    partitions: dict[TopicPartition, tuple[Position, int]]


class Lookup(NamedTuple):
    """Timestamps to turn into offsets, asked of the broker that leads the partitions."""

    broker_id: int
    request: ListOffsetsRequest
    partitions: dict[TopicPartition, tuple[Position, int]]


class Fetched(NamedTuple):
    """One batch for the queue. skip_to: records below it were not asked for. messages: what it adds to `position.buffered`."""

    position: Position
    epoch: int
    buffer: memoryview
    header: BatchHeader
    skip_to: int
    messages: int


class Poll(NamedTuple):
    """What to do now. deadline: when to poll again at the latest, if nothing else happens."""

    fetches: list[Asked]
    lookups: list[Lookup]
    want_metadata: bool
    deadline: float


class AbortFilter:
    """Which batches of one answer belong to aborted transactions (KIP-98).

    aborted: (producer id, first offset) pairs of the answer, in any order (B38).
    """

    def __init__(self, aborted: Iterable[tuple[int, int]], control_type: Callable[[Any, Any], int]) -> None:
        self._waiting = sorted(aborted, key=lambda pair: pair[1])
        self._open: set[int] = set()
        self._control_type = control_type

    def hides(self, buffer: memoryview, header: BatchHeader) -> bool:
        """Must this batch not be delivered? Batches come in the order of the log. Control batches are always hidden."""
        while self._waiting and self._waiting[0][1] <= header.last_offset:
            self._open.add(self._waiting.pop(0)[0])
        if header.is_control:
            if self._control_type(buffer, header) == 0:
                self._open.discard(header.producer_id)
            return True
        return header.is_transactional and header.producer_id in self._open


class Fetcher:
    """Decides what a consumer asks for.

    scan, control_type: `gkafka.records.scan` and `control_type`. verify: raises if a batch's checksum is wrong; asked about batches that are
    passed over without being handed out. reset_policy: -2, -1 or None (raise) for an offset that is out of range.
    """

    def __init__(
        self,
        metadata: Metadata,
        *,
        scan: Callable[..., list[BatchHeader]],
        control_type: Callable[[Any, Any], int],
        verify: Callable[[Any, Any], object],
        min_bytes: int,
        max_bytes: int,
        wait_max_ms: int,
        partition_max_bytes: int,
        queued_max_messages: int,
        read_committed: bool,
        reset_policy: int | None,
        biggest_partition_bytes: int,
        backoff: Backoff,
        chance: Random,
    ) -> None:
        self._metadata, self._scan, self._control_type, self._verify = metadata, scan, control_type, verify
        self._min_bytes, self._max_bytes, self._wait_max_ms = min_bytes, max_bytes, wait_max_ms
        self.partition_max_bytes, self.queued_max_messages = partition_max_bytes, queued_max_messages
        self._read_committed, self.reset_policy = read_committed, reset_policy
        self._biggest_partition_bytes, self._backoff, self._chance = biggest_partition_bytes, backoff, chance
        self.positions: dict[TopicPartition, Position] = {}
        self.busy: dict[int, Asked] = {}
        self._looking: set[TopicPartition] = set()
        self._turn = 0
        self._not_before: dict[int, float] = {}

    # -- what to ask -----------------------------------------------------------------------------------------------------
    def poll(self, now: float) -> Poll:
        """Fetches and look-ups that may go out now."""
        by_broker: dict[int, list[Position]] = {}
        resets: dict[int, list[Position]] = {}
        partial: set[int] = set()
        missing = False
        for position in self.positions.values():
            if position.state is State.HALTED or position.paused:
                continue
            leader = self._metadata.leader(*position.tp)
            if leader is None:
                missing = True
            elif now < position.retry.not_before:
                partial.add(leader[0])
            elif position.state is State.RESETTING:
                if position.tp not in self._looking:
                    resets.setdefault(leader[0], []).append(position)
            elif position.buffered >= self.queued_max_messages:
                partial.add(leader[0])
            else:
                by_broker.setdefault(leader[0], []).append(position)
        free = {b: ps for b, ps in by_broker.items() if b not in self.busy and now >= self._not_before.get(b, 0.0)}
        fetches = [self._ask(b, ps, b in partial) for b, ps in free.items()]
        lookups = [self._look_up(b, ps) for b, ps in resets.items()]
        return Poll(fetches, lookups, missing, self._deadline(now))

    def _deadline(self, now: float) -> float:
        waits = [p.retry.not_before for p in self.positions.values() if p.retry.not_before > now and p.state is not State.HALTED]
        waits += [t for t in self._not_before.values() if t > now]
        return min(waits, default=NEVER)

    def _ask(self, broker_id: int, positions: list[Position], partial: bool) -> Asked:
        # The broker fills the answer from the first partition on: each gets its turn to be first.
        self._turn += 1
        start = self._turn % len(positions)
        topics: dict[str, FetchTopic] = {}
        asked: dict[TopicPartition, tuple[Position, int]] = {}
        for position in positions[start:] + positions[:start]:
            name, partition = position.tp
            topic = topics.get(name)
            if topic is None:
                topic = topics[name] = FetchTopic(topic=name, topic_id=self._metadata.topic_id(name), partitions=[])
            leader = self._metadata.leader(name, partition)
            topic.partitions.append(
                FetchPartition(
                    partition=partition,
                    current_leader_epoch=leader[1] if leader is not None else -1,
                    fetch_offset=position.fetch_offset,
                    partition_max_bytes=position.max_bytes,
                )
            )
            asked[position.tp] = (position, position.epoch)
            position.in_flight = True
        request = FetchRequest(
            max_wait_ms=min(self._wait_max_ms, PARTIAL_WAIT_MS) if partial else self._wait_max_ms,
            min_bytes=self._min_bytes,
            max_bytes=max(self._max_bytes, max(p.max_bytes for p in positions)),
            isolation_level=1 if self._read_committed else 0,
            topics=list(topics.values()),
        )
        made = self.busy[broker_id] = Asked(broker_id, request, asked)
        return made

    def cancel_parked(self, tp: TopicPartition) -> int | None:
        """Forget the fetch that asks for the partition if its broker has parked it: nothing it asks for has a record that was not fetched.

        Returns that broker's id. Its connection is to be closed, else the next fetch on it waits for as long as this one may.
        """
        for broker_id, asked in self.busy.items():
            if tp in asked.partitions and all(0 <= p.high_watermark <= p.fetch_offset for p, _ in asked.partitions.values()):
                del self.busy[broker_id]
                for position, _ in asked.partitions.values():
                    position.in_flight = False
                return broker_id
        return None

    def forget_requests(self) -> None:
        """Whatever is under way is nobody's any more: its answers are dropped, and brokers may be asked anew."""
        self.busy.clear()
        self._looking.clear()
        for position in self.positions.values():
            position.in_flight = False

    def _look_up(self, broker_id: int, positions: list[Position]) -> Lookup:
        topics: dict[str, ListOffsetsTopic] = {}
        asked: dict[TopicPartition, tuple[Position, int]] = {}
        for position in positions:
            name, partition = position.tp
            topic = topics.setdefault(name, ListOffsetsTopic(name=name, partitions=[]))
            leader = self._metadata.leader(name, partition)
            topic.partitions.append(
                ListOffsetsPartition(
                    partition_index=partition, current_leader_epoch=leader[1] if leader is not None else -1, timestamp=position.reset_to
                )
            )
            asked[position.tp] = (position, position.epoch)
            self._looking.add(position.tp)
        level = 1 if self._read_committed else 0
        return Lookup(broker_id, ListOffsetsRequest(isolation_level=level, topics=list(topics.values())), asked)

    # -- what came -------------------------------------------------------------------------------------------------------
    def on_fetched(
        self, asked: Asked, response: FetchResponse | None, error: KafkaException | None, now: float
    ) -> tuple[list[Fetched], list[KafkaException], bool]:
        """Split an answer. Returns (batches in order, errors for the application, whether the metadata is out of date)."""
        if self.busy.get(asked.broker_id) is not asked:
            return [], [], False
        del self.busy[asked.broker_id]
        for position, _ in asked.partitions.values():
            position.in_flight = False
        if response is not None:
            error = error_for(response.error_code, broker=asked.broker_id, api="Fetch")
            if response.throttle_time_ms > 0:
                self._not_before[asked.broker_id] = now + min(response.throttle_time_ms / 1000, MAX_THROTTLE_S)  # KIP-219
        if error is not None or response is None:
            for position, _ in asked.partitions.values():
                position.retry.failed(self._backoff, now, self._chance)
            return [], [] if error is None or error.retriable else [error], True
        batches: list[Fetched] = []
        errors: list[KafkaException] = []
        stale = False
        unanswered = dict(asked.partitions)
        names = {topic.topic_id: topic.topic for topic in asked.request.topics}
        for topic in response.responses:
            name = topic.topic or names.get(topic.topic_id, "")
            for data in topic.partitions:
                tp = TopicPartition(name, data.partition_index)
                entry = unanswered.pop(tp, None)
                if entry is None:
                    log.warning("broker %s answered for %s-%d, which was not asked for", asked.broker_id, name, data.partition_index)
                elif self._is_current(tp, *entry):
                    stale |= self._take(entry[0], data, now, tp == next(iter(asked.partitions)), batches, errors)
        for position, _ in unanswered.values():
            # A broker that leaves a partition out would be asked again at once, and again.
            position.retry.failed(self._backoff, now, self._chance)
        return batches, errors, stale

    def _is_current(self, tp: TopicPartition, position: Position, epoch: int) -> bool:
        """Is an answer for this position still wanted? Not after a seek, or when the partition is not read any more."""
        return self.positions.get(tp) is position and position.epoch == epoch and position.state is State.FETCHING

    def _take(
        self, position: Position, data: PartitionData, now: float, was_first: bool, batches: list[Fetched], errors: list[KafkaException]
    ) -> bool:
        """One partition's part of an answer. was_first: it was the first one asked for. Returns whether the metadata is out of date."""
        error = error_for(
            data.error_code, topic=position.tp.topic, partition=position.tp.partition, offset=position.fetch_offset, api="Fetch"
        )
        if error is not None:
            return self._refused(position, data, error, now, errors)
        position.high_watermark = data.high_watermark
        position.retry.succeeded()
        if data.records is None or not len(data.records):
            return False
        try:
            self._split(position, memoryview(data.records), data, was_first, batches)
        except RecordTooLarge as exc:
            position.halt()
            errors.append(exc)
        except KafkaException as exc:
            # What came before the damage is valid and is handed out; the error follows it and names the place.
            self.fail(position, _placed(exc, position), now, errors)
        return False

    def _split(self, position: Position, buffer: memoryview, data: PartitionData, was_first: bool, batches: list[Fetched]) -> None:
        name, partition = position.tp
        headers = self._scan(buffer, topic=name, partition=partition)
        if not headers:
            # Cut by its own limit, or although the answer had room for it. Behind others it was cut by what was left of fetch_max_bytes:
            # it will be the first one in its turn.
            if was_first or len(buffer) >= position.max_bytes:
                self._widen(position, len(buffer))
            return
        aborted = [(a.producer_id, a.first_offset) for a in data.aborted_transactions or ()] if self._read_committed else []
        hidden = AbortFilter(aborted, self._control_type)
        end = -1
        for header in headers:
            if header.base_offset < end:
                what = f"{name}[{partition}] offset {header.base_offset}: a batch begins before the end of the one before it ({end})"
                raise CorruptRecordError(what, topic=name, partition=partition, offset=end)
            end = header.next_offset
            hides = hidden.hides(buffer, header)
            if header.next_offset <= position.fetch_offset:
                continue
            if hides:
                self._verify(buffer, header)
            else:
                # Also an empty batch is handed out: whoever reads it checks that it is one. A compressed message of format 0 or 1 does not say how many it holds: at most as many as offsets lie before its end.
                messages = header.count if header.count >= 0 else header.next_offset - position.fetch_offset
                batches.append(Fetched(position, position.epoch, buffer, header, position.fetch_offset, messages))
                position.buffered += messages
            position.fetch_offset = header.next_offset

    def _widen(self, position: Position, got: int) -> None:
        """A record does not fit into what was asked (brokers before 0.10.1 then send a part of it): ask for more."""
        name, partition = position.tp
        if position.max_bytes >= self._biggest_partition_bytes:
            text = f"{name}-{partition}: the record at offset {position.fetch_offset} is larger than max_response_bytes={self._biggest_partition_bytes}: raise it, or seek past the record"
            raise RecordTooLarge(text, topic=name, partition=partition, offset=position.fetch_offset)
        position.max_bytes = min(max(position.max_bytes, got) * 2, self._biggest_partition_bytes)
        log.info(
            "%s-%d: a record at offset %d does not fit: asking for %d bytes", name, partition, position.fetch_offset, position.max_bytes
        )

    def fail(self, position: Position, error: KafkaException, now: float, errors: list[KafkaException]) -> None:
        """The bytes at the position cannot be read: tell the application, and fetch them once more after a pause (B44)."""
        errors.append(error)
        position.retry.failed(self._backoff, now, self._chance)

    def _refused(self, position: Position, data: PartitionData, error: KafkaException, now: float, errors: list[KafkaException]) -> bool:
        position.retry.failed(self._backoff, now, self._chance)
        if isinstance(error, OffsetOutOfRangeError):
            if not position.is_drained:
                return False  # what was fetched is handed out first; then the broker is asked again
            if self.reset_policy is None:
                position.halt()
                errors.append(error)
            else:
                name, partition = position.tp
                log.warning(
                    "%s-%d: offset %d is out of range, starting from %s",
                    name,
                    partition,
                    position.fetch_offset,
                    POLICIES[self.reset_policy],
                )
                position.reset(self.reset_policy)
            return False
        if data.current_leader.leader_id >= 0:
            leader = data.current_leader
            if self._metadata.leader_moved(*position.tp, leader.leader_id, leader.leader_epoch):
                position.retry.succeeded()
                return False
        if not error.retriable:
            position.halt()
            errors.append(error)
        return error.stale is Stale.METADATA

    def on_looked_up(
        self, lookup: Lookup, response: ListOffsetsResponse | None, error: KafkaException | None, now: float
    ) -> tuple[list[KafkaException], bool]:
        """Take offsets in. Returns (errors for the application, whether the metadata is out of date)."""
        self._looking -= lookup.partitions.keys()
        if response is None:
            for position, _ in lookup.partitions.values():
                position.retry.failed(self._backoff, now, self._chance)
            return [] if error is None or error.retriable else [error], True
        errors: list[KafkaException] = []
        stale = False
        unanswered = dict(lookup.partitions)
        for topic in response.topics:
            for part in topic.partitions:
                entry = unanswered.pop(TopicPartition(topic.name, part.partition_index), None)
                if entry is None or entry[0].epoch != entry[1] or entry[0].state is not State.RESETTING:
                    continue  # sought meanwhile
                position = entry[0]
                problem = error_for(part.error_code, topic=topic.name, partition=part.partition_index, api="ListOffsets")
                if problem is None:
                    position.retry.succeeded()
                    offset = part.found
                    # No record has the timestamp or a later one: the end of the log is where such a record will be.
                    position.seek(offset) if offset >= 0 else position.reset(-1)
                    continue
                position.retry.failed(self._backoff, now, self._chance)
                stale |= problem.stale is Stale.METADATA
                if not problem.retriable:
                    position.halt()
                    errors.append(problem)
        for position, _ in unanswered.values():
            position.retry.failed(self._backoff, now, self._chance)
        return errors, stale


def _placed(error: KafkaException, position: Position) -> KafkaException:
    """The same error with the partition in its text and attributes: what reads a control batch knows only its bytes."""
    name, partition = position.tp
    if (error.topic, error.partition) == (name, partition):
        return error
    placed = type(error)(f"{name}[{partition}]: {error}", topic=name, partition=partition, offset=position.fetch_offset)
    placed.__cause__ = error
    return placed


MAX_THROTTLE_S = 30.0
POLICIES = {-2: "the earliest offset", -1: "the latest offset"}
