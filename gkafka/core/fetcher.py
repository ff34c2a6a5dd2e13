"""The consumer's machine: what to ask of which broker, and what the answers hold.

One Fetch of a consumer is under way per broker. It asks for every partition that is read from that broker (its leader, or a follower nearby:
KIP-392), that is not paused and whose queue is short; the next one is made as soon as an answer was split into batches, before any of them is
handed out. What a broker remembers of the last fetch is not said again (`gkafka.core.fetchsession`), what must be known before a partition may
be fetched is asked for by `gkafka.core.lookups`. Source: KIP-74, KIP-98, KIP-227, KIP-320, KIP-392, KIP-516, KIP-951
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from gkafka.brokererrors import NotLeaderForPartition, OffsetOutOfRangeError, Stale, UnknownLeaderEpoch, error_for
from gkafka.common import TopicPartition
from gkafka.core.aborts import AbortFilter
from gkafka.core.backoff import Backoff, Chance, Retry
from gkafka.core.fetchsession import Delta, FetchSession, Wanted
from gkafka.core.lookups import Checked, EpochCheck, Lookup, Lookups, answer_without
from gkafka.core.metadata import NO_TOPIC_ID, BrokerInfo
from gkafka.core.positions import FREE_STEPS, Position, Rests, State
from gkafka.exceptions import CorruptRecordError, KafkaException, RecordTooLarge, TopicRecreatedError, TruncatedBatchError
from gkafka.logs import get_logger
from gkafka.records._damage import bare
from gkafka.wire.epochs import OffsetForLeaderEpochResponse
from gkafka.wire.fetch import BY_NAME, FetchPartition, FetchRequest, FetchResponse, FetchTopic, ForgottenTopic, PartitionData
from gkafka.wire.offsets import ListOffsetsResponse

if TYPE_CHECKING:
    from gkafka.core.metadata import Metadata
    from gkafka.records import Span

__all__ = ["FRAME_BYTES", "IDLE", "AbortFilter", "Asked", "EpochCheck", "Fetched", "Fetcher", "Lookup", "Poll", "Taken", "wider"]

log = get_logger(__name__)

NEVER = float("inf")
_new_tuple = tuple.__new__
EARLIEST = -2
PARTIAL_WAIT_MS = 20
"""Longest park of a fetch that leaves partitions out because their queues are full: they must not wait for a quiet neighbour."""
PLAIN_S = 10.0
"""How long a leader is fetched from without naming our rack, after it has sent us to a follower that is of no use."""
DRAIN_S = 0.1
"""How often a partition is looked at whose queue must be empty before it can go on."""
IDLE = Backoff(0.01, 0.5)
"""How long a broker is left alone that answers at once, again and again, with nothing new. The first few such answers cost no pause."""
FREE_ANSWERS = 3
AT_ONCE_S = 0.005
UNPARKED_S = 0.05
"""With fetch_wait_max_ms=0 a broker cannot park fetches: an answer counts as given at once within the first, the pauses end at the second."""
SLICE = 250
"""Batches, and partitions, of an answer that are taken in at once. A span is taken in whole."""
FRAME_BYTES = 1 << 16
"""What an answer may hold beside records: so much less than max_response_bytes is asked for."""


class Asked(NamedTuple):
    """A fetch for one broker. partitions: all that it asks for, whether the request names them or not: the position and its epoch when it was
    asked. names: of the topics, by id. max_version: of the request, None is any. first: which the broker fills its answer with first, if that
    is known. since: when it was asked.
    """

    broker_id: int
    request: FetchRequest
    partitions: dict[TopicPartition, tuple[Position, int]]
    names: dict[UUID, str]
    max_version: int | None
    first: TopicPartition | None
    since: float


class Fetched(NamedTuple):
    """Batches for the queue. skip_to: records below it were not asked for.

    messages: what they add to `position.buffered`. size: bytes.
    """

    position: Position
    epoch: int
    buffer: memoryview
    span: Span
    skip_to: int
    messages: int
    size: int


class Taken:
    """What a slice of an answer holds. spans: in order. errors: for the application.

    stale: whether the metadata is out of date. looked_at: partitions and batches so far.
    """

    __slots__ = ("errors", "had_news", "looked_at", "spans", "stale")

    def __init__(self) -> None:
        self.spans: list[Fetched] = []
        self.errors: list[KafkaException] = []
        self.stale = self.had_news = False
        self.looked_at = 0

    @property
    def is_enough(self) -> bool:
        """Would more of it keep a hub?"""
        return self.looked_at >= SLICE

    def begin(self) -> None:
        """The next slice."""
        self.had_news = self.has_news
        self.spans, self.errors, self.stale, self.looked_at = [], [], False, 0

    @property
    def has_news(self) -> bool:
        """Is there, or was there in a slice before, something that changes what is done next?"""
        return self.had_news or bool(self.errors) or self.stale


class Poll(NamedTuple):
    """What to do now. deadline: when to poll again at the latest, if nothing else happens. errors: for the application."""

    fetches: list[Asked]
    lookups: list[Lookup]
    checks: list[EpochCheck]
    errors: list[KafkaException]
    want_metadata: bool
    deadline: float


class Fetcher:
    """Decides what a consumer asks for.

    span_at, control_type: of `gkafka.records`. verify: raises if a batch's checksum is wrong; asked about batches that are
    passed over without being handed out. reset_policy: -2, -1 or None (raise) for an offset that is out of range. rack: where this consumer
    is, "" for nowhere; lease_s: how long a follower that a leader named is fetched from before the leader is asked again.
    starts_at_once: of so many partitions a leader is asked at once where they start, None for all. leaders: how many brokers the last poll found to ask.
    """

    def __init__(
        self,
        metadata: Metadata,
        *,
        span_at: Callable[..., Span | None],
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
        chance: Chance,
        rack: str = "",
        lease_s: float = 300.0,
        starts_at_once: int | None = None,
    ) -> None:
        self.metadata, self._span_at, self._control_type, self._verify = metadata, span_at, control_type, verify
        self._min_bytes, self._max_bytes, self._wait_max_ms = min_bytes, max_bytes, wait_max_ms
        self.partition_max_bytes, self.queued_max_messages = partition_max_bytes, queued_max_messages
        self.read_committed, self.reset_policy = read_committed, reset_policy
        self._biggest_partition_bytes, self._rests = biggest_partition_bytes, Rests(backoff, chance)
        self._rack, self._lease_s, self._starts_at_once = rack, lease_s, starts_at_once
        self.positions: dict[TopicPartition, Position] = {}
        self.busy: dict[int, Asked] = {}
        self.sessions: dict[int, FetchSession] = {}
        self.lookups = Lookups(metadata, read_committed=read_committed, reset_policy=reset_policy, rests=self._rests)
        self.leaders = 0
        self._turn = 0
        self._not_before: dict[int, float] = {}
        self._idle: dict[int, Retry] = {}  # by broker: answers in a row that came at once and brought nothing new
        self._moves = 0  # how often an answer has moved a position on, or changed what is asked next
        self._plain_until: dict[int, float] = {}
        self._unasked: dict[int, int] = {}  # by broker: answers in a row that told of what was not asked for

    def tune(self, min_bytes: int, wait_max_ms: int, partition_max_bytes: int) -> None:
        """Ask for this from the next fetch on. What grew for a record that did not fit stays as large."""
        self._min_bytes, self._wait_max_ms = min_bytes, wait_max_ms
        before, self.partition_max_bytes = self.partition_max_bytes, min(partition_max_bytes, self._biggest_partition_bytes)
        if before != self.partition_max_bytes:
            for position in self.positions.values():
                position.max_bytes = (
                    max(position.max_bytes, self.partition_max_bytes) if position.max_bytes > before else self.partition_max_bytes
                )

    # -- what to ask -----------------------------------------------------------------------------------------------------
    def poll(self, now: float, *, full: bool = False) -> Poll:
        """Fetches and look-ups that may go out now. full: the queues together hold as much as they may, nothing is fetched."""
        by_broker: dict[int, list[tuple[Position, int]]] = {}  # with the epochs of their leaders
        resets: dict[int, list[Position]] = {}
        checks: dict[int, list[Position]] = {}
        errors: list[KafkaException] = []
        partial: set[int] = set()
        missing = False
        topic, topic_id = "", NO_TOPIC_ID
        # For each partition of each fetch: what nearly always needs no call is asked without one.
        for position in self.positions.values():
            if position.state is State.HALTED or (position.paused and position.state is not State.RESETTING):
                continue  # where a paused one stands may be asked for at any time
            tp = position.tp
            if tp.topic != topic:
                topic, topic_id = tp.topic, self.metadata.topic_id(tp.topic)
            leader = self.metadata.leader(*tp)
            if leader is None:
                missing = True
            elif now < position.retry.not_before:
                partial.add(self._source(position, leader[0], now))
            elif position.state is State.RESETTING:
                asked = resets.setdefault(leader[0], [])
                if self._starts_at_once is not None:  # the others follow when these are answered, and wait for no long fetch
                    partial.add(leader[0])
                if not self.lookups.is_asking(position) and len(asked) != self._starts_at_once:
                    asked.append(position)
            elif position.topic_id is not topic_id and self._was_made_anew(position):
                if self._begin_anew(position, now, errors):
                    resets.setdefault(leader[0], []).append(position)
            elif position.state is State.CHECKING or (position.fetch_epoch < leader[1] and position.may_be_cut(leader[1])):
                if not self.lookups.is_asking(position):
                    checks.setdefault(leader[0], []).append(position)
            elif position.buffered >= self.queued_max_messages:
                partial.add(self._source(position, leader[0], now))
            else:
                source = leader[0] if position.replica < 0 else self._source(position, leader[0], now)
                by_broker.setdefault(source, []).append((position, leader[1]))
        fetches = []
        for broker_id, positions in by_broker.items():
            if not full and broker_id not in self.busy and now >= max(self.throttled_until(broker_id), self.idle_until(broker_id)):
                fetches.append(self._ask(broker_id, positions, broker_id in partial, now))
        self.leaders = len(partial.union(by_broker, resets, checks) if partial or resets or checks else by_broker)
        starts = [self.lookups.starts(b, ps) for b, ps in resets.items() if ps] if resets else []
        ends = [self.lookups.checks(b, ps) for b, ps in checks.items()] if checks else []
        return Poll(fetches, starts, ends, errors, missing, self._deadline(now))

    def _deadline(self, now: float) -> float:
        deadline = NEVER
        for position in self.positions.values():
            if now < position.retry.not_before < deadline and position.state is not State.HALTED:
                deadline = position.retry.not_before
        for until in (*self._not_before.values(), *(idle.not_before for idle in self._idle.values())):
            if now < until < deadline:
                deadline = until
        return deadline

    def throttled_until(self, broker_id: int) -> float:
        """When a broker may be asked again that has said how long it wants no fetch (KIP-219); 0.0 if it has not."""
        return self._not_before.get(broker_id, 0.0)

    def idle_until(self, broker_id: int) -> float:
        """When a broker is asked again whose answers came at once and brought nothing new; 0.0 if they did not."""
        idle = self._idle.get(broker_id)
        return 0.0 if idle is None else idle.not_before

    def _source(self, position: Position, leader: int, now: float) -> int:
        """Whom to fetch from: the follower that the leader has named, as long as it is known and its lease lasts (KIP-392)."""
        if position.replica < 0:
            return leader
        if now < position.replica_until and position.replica in self.metadata.brokers:
            return position.replica
        position.leave_replica()
        return leader

    def _was_made_anew(self, position: Position) -> bool:
        """Is there another topic of this name, whose offsets are not those of the position? (KIP-516)"""
        known = self.metadata.topic_id(position.tp.topic)
        if position.topic_id == NO_TOPIC_ID:
            position.topic_id = known
        return position.topic_id != known != NO_TOPIC_ID

    def _begin_anew(self, position: Position, now: float, errors: list[KafkaException]) -> bool:
        """Everything in the new topic is unread, so that it begins at its start, whatever the policy; without one the application decides.

        Returns whether the start is to be looked up.
        """
        if not position.is_drained:
            position.retry.not_before = now + DRAIN_S
            return False
        name, partition = position.tp
        text = f"{name}-{partition}: the topic was deleted and made again: offset {position.consumed} was one of the old topic"
        if self.reset_policy is None:
            error = TopicRecreatedError(text, topic=name, partition=partition, offset=position.consumed)
            position.halt(error)
            errors.append(error)
            return False
        log.warning("%s; going on from the start of the new one", text)
        position.begin_anew(self.metadata.topic_id(name))
        position.reset(EARLIEST)
        return True

    def _ask(self, broker_id: int, positions: list[tuple[Position, int]], partial: bool, now: float) -> Asked:
        # The broker fills the answer from the first partition on: each gets its turn to be first.
        self._turn += 1
        start = self._turn % len(positions)
        wanted: dict[TopicPartition, Wanted] = {}
        asked: dict[TopicPartition, tuple[Position, int]] = {}
        names: dict[UUID, str] = {}
        biggest = self._max_bytes
        topic, topic_id = "", NO_TOPIC_ID
        for position, epoch in positions[start:] + positions[:start]:
            tp = position.tp
            if tp.topic != topic:
                topic, topic_id = tp.topic, self.metadata.topic_id(tp.topic)
                names[topic_id] = topic
            if position.max_bytes > biggest:
                biggest = position.max_bytes
            wanted[tp] = _new_tuple(Wanted, (topic_id, position.fetch_offset, epoch, position.max_bytes))  # a half of the time
            asked[tp] = (position, position.epoch)
            position.in_flight = True
            if epoch >= 0:
                position.leader_epoch = epoch
        session = self.sessions.get(broker_id)
        if session is None:
            session = self.sessions[broker_id] = FetchSession()
        delta = session.ask(wanted)
        request = FetchRequest(
            max_wait_ms=min(self._wait_max_ms, PARTIAL_WAIT_MS) if partial else self._wait_max_ms,
            min_bytes=self._min_bytes,
            max_bytes=biggest,
            isolation_level=1 if self.read_committed else 0,
            session_id=delta.session_id,
            session_epoch=delta.session_epoch,
            topics=_topics(delta, wanted),
            forgotten_topics_data=_forgotten(delta) if delta.forgotten else [],
            rack_id="" if now < self._plain_until.get(broker_id, 0.0) else self._rack,
            in_session=len(wanted),
        )
        first = next(iter(asked)) if delta.is_full or len(asked) == 1 else None
        made = self.busy[broker_id] = Asked(broker_id, request, asked, names, None if delta.by_id else BY_NAME, first, now)
        return made

    def cancel_parked(self, partitions: Collection[TopicPartition]) -> list[int]:
        """Forget the fetches behind which one for these partitions would wait, if their brokers have parked them: nothing they ask for has a
        record that was not fetched.

        Returns those brokers' ids. Their connections are to be closed, else the next fetch on one waits for as long as this one may.
        """
        named = set(partitions)
        leaders = {leader[0] for tp in named if (leader := self.metadata.leader(*tp)) is not None}
        parked = [
            broker_id
            for broker_id, asked in self.busy.items()
            if (broker_id in leaders or not named.isdisjoint(asked.partitions))
            and all(0 <= p.high_watermark <= p.fetch_offset for p, _ in asked.partitions.values())
        ]
        for broker_id in parked:
            self._give_up(broker_id)
        return parked

    def _give_up(self, broker_id: int) -> None:
        asked = self.busy.pop(broker_id)
        self.sessions[broker_id].lost()
        for position, _ in asked.partitions.values():
            position.in_flight = False

    def forget_requests(self) -> None:
        """Whatever is under way is nobody's any more: its answers are dropped, and brokers may be asked anew."""
        for broker_id in self.busy:
            self.sessions[broker_id].lost()
        self.busy.clear()
        self.lookups.forget()
        for position in self.positions.values():
            position.in_flight = False

    # -- what came -------------------------------------------------------------------------------------------------------
    def on_fetched(self, asked: Asked, response: FetchResponse | None, error: KafkaException | None, now: float) -> Iterator[Taken]:
        """Split an answer. Whoever takes a slice in may let others run before the next one: what they made void is left out of it."""
        taken = Taken()
        if self.busy.get(asked.broker_id) is not asked:
            return
        if response is None or response.error_code or response.throttle_time_ms > 0:
            self._refused_all(asked, response, error, now, taken)
        if response is not None and not response.error_code:
            for _ in self._split_all(asked, response, now, taken):
                yield taken
                if self.busy.get(asked.broker_id) is not asked:
                    return
                taken.begin()
        del self.busy[asked.broker_id]
        for position, _ in asked.partitions.values():
            position.in_flight = False
        yield taken

    def _refused_all(self, asked: Asked, response: FetchResponse | None, error: KafkaException | None, now: float, taken: Taken) -> None:
        """There is no answer, or it is one error; or the broker asks to be left alone."""
        session = self.sessions[asked.broker_id]
        if response is None:
            session.lost()
        else:
            if response.throttle_time_ms > 0:
                self._not_before[asked.broker_id] = now + min(response.throttle_time_ms / 1000, MAX_THROTTLE_S)  # KIP-219
            error = error_for(response.error_code, broker=asked.broker_id, api="Fetch")
            if error is None:
                return
            if session.refused(error):
                log.info("broker %s: %s: the next fetch names everything", asked.broker_id, error)
                taken.stale = error.stale is Stale.METADATA
                return
        taken.errors = self._unanswered(asked, error, now)
        taken.stale = True

    def _split_all(self, asked: Asked, response: FetchResponse, now: float, taken: Taken) -> Iterator[None]:
        """Into `taken`; yields where that is enough for once."""
        session = self.sessions[asked.broker_id]
        if response.node_endpoints:
            self.metadata.add_brokers(BrokerInfo(n.node_id, n.host, n.port, n.rack) for n in response.node_endpoints)
        may_leave_out = session.answered(response.session_id)
        moves = self._moves
        answered: set[TopicPartition] = set()
        unasked: list[tuple[str, int]] = []
        for topic in response.responses:
            name = topic.topic or asked.names.get(topic.topic_id, "")
            for data in topic.partitions:
                entry = asked.partitions.get((name, data.partition_index))  # type: ignore[call-overload]  # equal to a TopicPartition
                if entry is None or entry[0].tp in answered:
                    unasked.append((name, data.partition_index))
                    continue
                position, epoch = entry
                answered.add(position.tp)
                taken.looked_at += 1
                # Is an answer for this position still wanted? Not after a seek, or when the partition is not read any more.
                is_wanted = position.epoch == epoch and position.state is State.FETCHING and self.positions.get(position.tp) is position
                if is_wanted:
                    yield from self._take(position, data, asked, now, taken)
                if taken.is_enough:
                    yield
        if unasked or asked.broker_id in self._unasked:
            self._tell_unasked(asked.broker_id, unasked)
        if unasked:
            session.lost()  # it does not hold what we believe that it holds
        if unasked or not may_leave_out:
            for tp in asked.partitions.keys() - answered:
                # A broker that leaves a partition out would be asked again at once, and again.
                position = asked.partitions[tp][0]
                self._rests.failed(position, answer_without(position, "Fetch", "leaves the partition out"), now)
        self._pace(asked, now, has_news=self._moves != moves or taken.has_news)

    def _pace(self, asked: Asked, now: float, *, has_news: bool) -> None:
        """Leave a broker alone for a moment that does not park fetches although it has nothing new."""
        wait_s = asked.request.max_wait_ms / 1000
        if has_news or now - asked.since >= max(wait_s / 2, AT_ONCE_S):
            self._idle.pop(asked.broker_id, None)
            return
        idle = self._idle.setdefault(asked.broker_id, Retry())
        idle.failures += 1
        if idle.failures > FREE_ANSWERS:
            pause = IDLE.pause_s(idle.failures - FREE_ANSWERS, self._rests.chance)
            idle.not_before = now + min(pause, max(wait_s, UNPARKED_S))

    def _tell_unasked(self, broker_id: int, unasked: list[tuple[str, int]]) -> None:
        """The first answer of a row is told, in one line, whatever the broker calls what it answered for; the rest are counted."""
        if not unasked:
            times = self._unasked.pop(broker_id)
            log.info("broker %s answers for what it is asked for again, after %d answers that did not", broker_id, times)
            return
        times = self._unasked[broker_id] = self._unasked.get(broker_id, 0) + 1
        level = logging.WARNING if times == 1 else logging.DEBUG
        log.log(level, "broker %s answered for %.100r-%d, which was not asked for (%d such)", broker_id, *unasked[0], len(unasked))

    def _unanswered(self, asked: Asked, error: KafkaException | None, now: float) -> list[KafkaException]:
        """Nothing came of it. Returns what the application is to be told."""
        for position, _ in asked.partitions.values():
            self._rests.failed(position, error or answer_without(position, "Fetch", "never came"), now)
            if position.replica == asked.broker_id:
                self._back_to_leader(position, now)
        return [] if error is None or error.retriable else [error]

    def _back_to_leader(self, position: Position, now: float) -> None:
        """The follower is of no use. The leader may not know that yet: for a while it is not told where we are, and answers itself."""
        position.leave_replica()
        leader = self.metadata.leader(*position.tp)
        if leader is not None:
            self._plain_until[leader[0]] = now + PLAIN_S

    def _take(self, position: Position, data: PartitionData, asked: Asked, now: float, taken: Taken) -> Iterator[None]:
        """One partition's part of an answer."""
        if data.error_code:
            name, partition = position.tp
            error = error_for(data.error_code, topic=name, partition=partition, offset=position.fetch_offset, api="Fetch")
            if error is not None:
                taken.stale |= self._refused(position, data, error, asked.broker_id, now, taken.errors)
                return
        position.high_watermark, position.stable = data.high_watermark, data.last_stable_offset
        if data.preferred_read_replica >= 0:
            taken.stale |= self._redirected(position, data.preferred_read_replica, asked.broker_id, now)
        if data.records is None or not len(data.records):
            if position.retry.failures:
                self._was_read(position)
            return
        before = position.fetch_offset
        try:
            yield from self._split(position, memoryview(data.records), data, position.tp == asked.first, taken)
        except RecordTooLarge as exc:
            position.halt(exc)
            taken.errors.append(bare(exc))
        except KafkaException as exc:
            # What came before the damage is valid and is handed out; the error follows it and names the place.
            if position.fetch_offset > before:
                self._was_read(position)
            if exc.retriable and position.retry.failures < FREE_STEPS:
                self._rests.failed(position, bare(exc), now)  # the next answer may be whole
            else:
                self.fail(position, _placed(exc, position), now, taken.errors)
        else:
            if position.retry.failures:
                self._was_read(position)

    def _was_read(self, position: Position) -> None:
        failures = self._rests.was_read(position)
        self.metadata.end_dispute(*position.tp)
        if failures > 1:
            log.info("%s-%d: read again, after %d failures in a row", *position.tp, failures)

    def _redirected(self, position: Position, replica: int, by: int, now: float) -> bool:
        """The leader names a follower to fetch from. Returns whether the metadata, which do not know it, are out of date."""
        if replica == by:
            return False
        if replica in self.metadata.brokers:
            position.follow(replica, now + self._lease_s)
            self._moves += 1
            return False
        self._plain_until[by] = now + PLAIN_S
        return True

    def _split(self, position: Position, buffer: memoryview, data: PartitionData, was_first: bool, taken: Taken) -> Iterator[None]:
        name, partition = position.tp
        epoch = position.epoch
        aborted = [(a.producer_id, a.first_offset) for a in data.aborted_transactions or ()] if self.read_committed else []
        hidden = AbortFilter(aborted, self._control_type)
        end, start, span_at = -1, 0, self._span_at
        while start < len(buffer):
            offset, alone = position.fetch_offset, hidden.is_watching
            span = span_at(buffer, start, offset=offset, alone=alone, topic=name, partition=partition)
            if span is None:
                break
            base_offset, next_offset = span.base_offset, span.next_offset
            if base_offset < end:
                what = f"{name}[{partition}] offset {base_offset}: a batch begins before the end of the one before it ({end})"
                raise CorruptRecordError(what, topic=name, partition=partition, offset=end)
            end, size = next_offset, span.end - start
            start = span.end
            taken.looked_at += span.batches
            hides = hidden.hides(buffer, span)
            if next_offset > offset:
                if hides:
                    self._verify(buffer, span.first)
                else:
                    # An empty batch is handed out, too: the reader checks that it is one. A compressed
                    # message of format 0 or 1 does not say how many it holds: at most as many as
                    # offsets lie before its end.
                    messages = span.count if span.count >= 0 else next_offset - offset
                    taken.spans.append(Fetched(position, epoch, buffer, span, offset, messages, size))
                    position.buffered += messages
                position.fetch_offset = next_offset
                position.fetch_epoch = span.leader_epoch
                self._moves += 1
            if taken.is_enough:
                yield
                if position.epoch != epoch:
                    return  # a seek has made the rest void
        # Cut by its own limit, or although the answer had room for it. Behind others it was cut by what was left of fetch_max_bytes:
        # it will be the first one in its turn.
        if not start and (was_first or len(buffer) >= position.max_bytes):
            self._widen(position, buffer)

    def _widen(self, position: Position, cut: memoryview) -> None:
        """A record does not fit into what was asked (brokers before 0.10.1 then send a part of it): ask for more."""
        position.max_bytes = wider(cut, position.max_bytes, self._biggest_partition_bytes, position.tp, position.fetch_offset)
        self._moves += 1
        name, partition = position.tp
        log.info(
            "%s-%d: a record at offset %d does not fit: asking for %d bytes", name, partition, position.fetch_offset, position.max_bytes
        )

    def fail(self, position: Position, error: KafkaException, now: float, errors: list[KafkaException]) -> None:
        """The bytes at the position cannot be read: tell the application, and fetch them once more after a pause (B44)."""
        errors.append(bare(error))
        self._rests.failed(position, error, now)

    def _refused(
        self, position: Position, data: PartitionData, error: KafkaException, broker_id: int, now: float, errors: list[KafkaException]
    ) -> bool:
        if position.replica == broker_id:
            # What a follower says is not definite, not even that an offset is out of range: it may lag behind.
            self._back_to_leader(position, now)
            return error.stale is Stale.METADATA
        self._rests.failed(position, error, now)
        if isinstance(error, OffsetOutOfRangeError):
            if not position.is_drained:
                return False  # what was fetched is handed out first; then the broker is asked again
            if self.reset_policy is None:
                position.halt(error)
                errors.append(error)
            else:
                name, partition = position.tp
                log.log(
                    logging.WARNING if position.retry.failures == 1 else logging.DEBUG,  # the rest are summed up when it is read again
                    "%s-%d: offset %d is out of range, starting from %s",
                    name,
                    partition,
                    position.fetch_offset,
                    POLICIES[self.reset_policy],
                )
                position.look_up(self.reset_policy)
                self._rests.was_shown_on(position)
            return False
        if data.current_leader.leader_id >= 0:
            leader = data.current_leader
            if self.metadata.leader_moved(*position.tp, leader.leader_id, leader.leader_epoch):
                self._rests.was_shown_on(position)
                return False
        if isinstance(error, (NotLeaderForPartition, UnknownLeaderEpoch)):
            self.metadata.dispute(*position.tp, position.leader_epoch, now)
        if not error.retriable:
            errors.append(error)  # and asked again: the permission may be given, the broker mended; it is told as long as it lasts
        return error.stale is Stale.METADATA

    def on_looked_up(
        self, lookup: Lookup, response: ListOffsetsResponse | None, error: KafkaException | None, now: float
    ) -> tuple[list[KafkaException], bool]:
        """Take offsets in. Returns (errors for the application, whether the metadata is out of date)."""
        return self.lookups.on_starts(lookup, response, error, now)

    def on_checked(
        self, check: EpochCheck, response: OffsetForLeaderEpochResponse | None, error: KafkaException | None, now: float
    ) -> Checked:
        """Take ends of epochs in."""
        return self.lookups.on_checked(check, response, error, now)


def wider(cut: memoryview, asked: int, most: int, tp: TopicPartition, offset: int) -> int:
    """Return how many bytes to ask for where only the beginning of a batch came.

    cut: what came. asked: bytes that were asked for. most: that can be.
    Raises RecordTooLarge if the batch is larger than that, TruncatedBatchError if the broker was asked for enough.
    """
    about: dict[str, Any] = {"topic": tp.topic, "partition": tp.partition, "offset": offset}
    where = f"{tp.topic}-{tp.partition}"
    needed = size_of_first(cut)
    if len(cut) < asked and (needed is None or needed <= asked):
        size = f"{len(cut)} bytes" if needed is None else f"{len(cut)} of the {needed} bytes"
        text = f"{where}: the broker sent {size} of the batch at offset {offset}, though {asked} were asked for"
        raise TruncatedBatchError(f"{text}; it is asked again, or seek past the batch", **about)
    if asked >= most:
        size = "does not fit into it" if needed is None else f"has {needed} bytes"
        least = "" if needed is None else f" to {needed + FRAME_BYTES} or more"
        text = (
            f"{where}: max_response_bytes={most + FRAME_BYTES}: the batch at offset {offset} {size}: raise the option{least}, "
            "or seek past the batch"
        )
        raise RecordTooLarge(text, **about)
    return min(needed or most, 2 * asked, most)


def size_of_first(data: memoryview) -> int | None:
    """Return how many bytes the first batch, or message, of a fetched buffer says that it has; None if it is cut before that."""
    if len(data) < 12:
        return None
    return 12 + max(0, int.from_bytes(data[8:12], "big", signed=True))


def _topics(delta: Delta, wanted: dict[TopicPartition, Wanted]) -> list[FetchTopic]:
    """What the request names, in its order."""
    topics: dict[str, FetchTopic] = {}
    for tp in delta.named:
        part = wanted[tp]
        topic = topics.get(tp.topic)
        if topic is None:
            topic = topics[tp.topic] = FetchTopic(topic=tp.topic, topic_id=part.topic_id, partitions=[])
        topic.partitions.append(
            FetchPartition(
                partition=tp.partition,
                current_leader_epoch=part.leader_epoch,
                fetch_offset=part.offset,
                partition_max_bytes=part.max_bytes,
            )
        )
    return list(topics.values())


def _forgotten(delta: Delta) -> list[ForgottenTopic]:
    topics: dict[tuple[str, UUID], ForgottenTopic] = {}
    for tp, topic_id in delta.forgotten:
        topic = topics.setdefault((tp.topic, topic_id), ForgottenTopic(topic=tp.topic, topic_id=topic_id, partitions=[]))
        topic.partitions.append(tp.partition)
    return list(topics.values())


def _placed(error: KafkaException, position: Position) -> KafkaException:
    """The same error with the partition in its text and attributes: what reads a control batch knows only its bytes."""
    name, partition = position.tp
    if (error.topic, error.partition) == (name, partition):
        return error
    offset = position.fetch_offset if error.offset is None else error.offset
    placed = type(error)(f"{name}[{partition}]: {error}", topic=name, partition=partition, offset=offset)
    if isinstance(placed, CorruptRecordError) and isinstance(error, CorruptRecordError):
        placed.next_offset = error.next_offset
    placed.__cause__ = error
    return placed


MAX_THROTTLE_S = 30.0
POLICIES = {-2: "the earliest offset", -1: "the latest offset"}
