"""The producer's machine: which batches go to which broker, and what an answer means for them.

It waits for nothing and sends nothing: `poll(now)` returns the requests to send, `on_answer` takes
what came of a request. What keeps the order is said at `_may_send`. The parts of the machine:

- `accumulator`: the batches that wait or are under way. `schedule`: which partitions are due.
- `numbering`: sequence numbers, producer id and epoch.
- `producerequests`: requests, and what an answer says of each batch.
- `deliverylimits`: how long and how often a batch is tried.
- `splitting`, `namedrecords`: the parts of a batch that is too large, or has refused records.
- `outcomes`: what became of each batch, until everybody has been told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING, NamedTuple

from gkafka.brokererrors import DuplicateSequenceNumber, NotLeaderForPartition, Stale, UnknownTopicId, UnknownTopicOrPartition
from gkafka.core.accumulator import Accumulator, Flight, Key, PartitionQueue, ProducerId
from gkafka.core.backoff import Backoff, Chance
from gkafka.core.batchstate import MOVES, BatchEvent, BatchState
from gkafka.core.deliverylimits import DeliveryLimits
from gkafka.core.namedrecords import errors_by_index, not_at_fault, runs
from gkafka.core.numbering import Event, Idempotence, Numbering, in_doubt
from gkafka.core.outcomes import BatchOutcomes, Settled
from gkafka.core.producerequests import Answer, Outgoing, ProduceRequests, is_unsent, is_unwritten, left_out, read_answer
from gkafka.core.schedule import Schedule
from gkafka.core.splitting import TOO_LARGE, Splitter, in_its_place, too_large_alone
from gkafka.exceptions import KafkaException
from gkafka.logs import LaterLines
from gkafka.wire.produce import ProduceRequest, ProduceResponse
from gkafka.wire.txn import InitProducerIdRequest, InitProducerIdResponse

if TYPE_CHECKING:
    from gkafka.core.metadata import Metadata
    from gkafka.core.transaction import Transaction
    from gkafka.records import Batch

__all__ = ["Outgoing", "Poll", "Sender", "SenderSettings", "Settled"]

MAX_THROTTLE_S = 30.0


@dataclass(frozen=True, kw_only=True)
class SenderSettings:
    """The options of one producer that its sender obeys.

    acks: 0, 1, or -1 for all. idempotence: None to give it up where brokers have no producer ids.
    batch_bytes: size of a full batch. most_batches: of one request, and as many or a few more go to
    a broker at one poll. max_in_flight: requests at a broker. ack_timeout_s: how long a leader waits
    for its followers. backoff: between retries.
    """

    acks: int
    idempotence: bool | None
    linger_s: float
    batch_bytes: int
    max_request_bytes: int
    most_batches: int = 1 << 31
    max_in_flight: int
    ack_timeout_s: float
    backoff: Backoff
    transactional_id: str | None = None


class Poll(NamedTuple):
    """What to do now. unknown: topics that are not known, for which records wait."""

    requests: list[Outgoing]
    ask_producer_id: bool
    want_metadata: bool
    unknown: list[str]


class Sender:
    """Decides what a producer sends.

    roll: takes a partition's open batch out of the appender. It returns None if that is empty or
    gone. The machine is told before of all batches that were filled before it. set_limit: see `Splitter`. transaction: the machine of the
    transactional id, None without one. flushing, pressed: nothing lingers, because somebody waits
    for all of it, or for memory. in_flight: requests that are under way, by broker. lines: what the
    machine has to log.
    """

    def __init__(
        self,
        accumulator: Accumulator,
        metadata: Metadata,
        settings: SenderSettings,
        delivery_limits: DeliveryLimits,
        *,
        roll: Callable[[str, int], Batch | None],
        set_limit: Callable[[str, int], None] = lambda topic, size: None,
        chance: Chance,
    ) -> None:
        self.accumulator, self._metadata, self._settings = accumulator, metadata, settings
        self._roll, self._chance = roll, chance
        self.delivery_limits = delivery_limits
        self.lines = LaterLines()
        self.numbering = Numbering(settings.idempotence, backoff=settings.backoff, chance=chance, lines=self.lines)
        self.outcomes = BatchOutcomes()
        self.requests = ProduceRequests(settings.acks, settings.ack_timeout_s, settings.transactional_id)
        self.splitter = Splitter(accumulator, set_limit, self.lines)
        self.transaction: Transaction | None = None
        self.flushing = False
        self.pressed = False
        self.in_flight: dict[int, int] = {}
        self.retried = 0
        self.sent_requests = 0
        self._throttled: dict[int, float] = {}
        self._schedule = Schedule(accumulator, metadata, linger_s=settings.linger_s, may_send=self._may_send)

    def set_gate(self, gate: Callable[[Key], bool]) -> None:
        """Let nothing of a partition out unless gate(partition) says so; it is asked again at each poll."""
        self._schedule.gate = gate

    def rest(self, now: float, seconds: float) -> None:
        """Take no batch for its age alone for so long, behind earlier rests: sending has its share of the time, and batches grow meanwhile."""
        self._schedule.rests_until = max(self._schedule.rests_until, now) + seconds

    # -- what to send --------------------------------------------------------------------------------------------------
    def poll(self, now: float, ready_at: Callable[[int], float] = lambda broker_id: 0.0) -> Poll:
        """Return what may go out now. Batches whose time is over are settled.

        ready_at: broker id -> when its connection may be tried (after a failure it may not be for a while).
        """
        self._expire(now)
        if self.transaction is not None and self.transaction.drops_unsent:
            self._drop_unsent(self.transaction)
        ask = self.transaction is None and bool(self.accumulator.unsettled) and self.numbering.wants_id(now)
        if ask:
            self.numbering.move(Event.ASK)
        schedule = self._schedule
        ends = self.transaction is not None and self.transaction.flushing
        schedule.update(now, hasty=self.flushing or self.pressed or ends)
        requests: list[Outgoing] = []
        rests = False
        if self._is_numbered:
            for broker_id in list(schedule.ready):
                if not self._has_room(broker_id, now):
                    continue
                if ready_at(broker_id) > now:
                    rests = True
                else:
                    requests += self._drain(broker_id, now)
        # Who leads the partitions of a broker that is away may change before it is tried again.
        unknown = sorted(schedule.unknown) if schedule.homeless else []
        return Poll(requests, ask, bool(schedule.homeless) or rests, unknown)

    def send_alone(self, now: float, ready_at: Callable[[int], float] = lambda broker_id: 0.0) -> Outgoing | None:
        """The request of a batch that need not linger, if it is all that is unsettled: what poll() would answer, without a look at what there might be
        beside it. None: ask poll().

        So it is with who waits for each record before the next one.
        """
        acc, schedule = self.accumulator, self._schedule
        if len(acc.unsettled) != 1 or self.transaction is not None or self.numbering.state not in (Idempotence.OFF, Idempotence.READY):
            return None
        batch = next(iter(acc.unsettled))
        key = (batch.topic, batch.partition)
        if acc.open.get(key) is not batch or (self._settings.linger_s and key not in acc.hurried) or not schedule.is_plain(key):
            return None
        queue, leader = acc.queues.get(key), self._metadata.leader(*key)
        if leader is None or (queue is not None and queue.retry.failures):
            return None
        broker_id = leader[0]
        if not self._has_room(broker_id, now) or ready_at(broker_id) > now or self.delivery_limits.is_late(batch, now):
            return None
        rolled = self._roll(*key)
        if rolled is None:
            return None
        acc.rolled(rolled)
        if len(acc.unsettled) != 1:
            return None  # others came meanwhile
        acc.touched.clear()
        sent = self._send_next(acc.active[key])
        self.in_flight[broker_id] = self.in_flight.get(broker_id, 0) + 1
        self.sent_requests += 1
        return Outgoing(broker_id, [sent])

    def _may_send(self, queue: PartitionQueue) -> bool:
        """May the next batch of the partition go out beside what is on the wire? (Not during the pause after a failure.)

        - a batch that was sent before goes out again only when nothing of its partition is on the wire, else a younger batch that is
          still under way could land before it;
        - nothing goes beside another, if one request in flight is all that keeps the order;
        - nothing goes to a topic that was made again while its predecessor owes an answer;
        - and see `Numbering.must_wait`.
        """
        again = bool(queue.pending) and (queue.pending[0].attempts > 0 or queue.pending[0].extra.is_part)
        topic_id = queue.topic_id_in(self._metadata)
        made_again = topic_id is not queue.topic_id and topic_id != queue.topic_id
        return not (again or made_again or self._settings.max_in_flight == 1 or self.numbering.must_wait(queue))

    def _has_room(self, broker_id: int, now: float) -> bool:
        return self.in_flight.get(broker_id, 0) < self._settings.max_in_flight and now >= self._throttled.get(broker_id, 0.0)

    def _drain(self, broker_id: int, now: float) -> list[Outgoing]:
        """Fill requests for one broker while its connection has room, taking the partitions in turn."""
        requests: list[Outgoing] = []
        left = self._settings.most_batches
        while left > 0 and self._schedule.ready.get(broker_id) and self._has_room(broker_id, now):
            batches = self._take(broker_id, now)
            if not batches:
                break
            left -= len(batches)
            requests.append(Outgoing(broker_id, batches))
            self.in_flight[broker_id] = self.in_flight.get(broker_id, 0) + 1
            self.sent_requests += 1
        return requests

    def _take(self, broker_id: int, now: float) -> list[Batch]:
        """The batches of one request, at most one of a partition."""
        batches: list[Batch] = []
        taken: dict[Key, None] = {}
        total = 0
        while (key := self._schedule.next_of(broker_id, now)) is not None:
            queue = self._next_queue(key, now) if key not in taken else None
            if queue is None:
                continue
            if not batches and self.accumulator.lingering:
                self._schedule.let_ride(broker_id, -(-self._settings.batch_bytes // 2), now)
            size = queue.pending[0].size
            if batches and (total + size > self._settings.max_request_bytes or len(batches) >= self._settings.most_batches):
                self._schedule.put_first(broker_id, key)
                break
            total += size
            batches.append(self._send_next(queue))
            taken[key] = None
        acc = self.accumulator
        for key in taken:
            if key in acc.open or ((queue := acc.active.get(key)) is not None and queue.pending):
                self._schedule.place(key, now)
        return batches

    def _next_queue(self, key: Key, now: float) -> PartitionQueue | None:
        """The partition's queue if its next batch may go now; if that is an open one it is rolled."""
        acc = self.accumulator
        queue = acc.active.get(key)
        paused = queue is not None and now < queue.retry.not_before and self._schedule.is_paused(queue, now)
        if paused or not self._schedule.has_next(key, queue):
            return None  # it changed since it was placed; what lets it go will place it again
        if queue is None or not queue.pending:
            rolled = self._roll(*key)
            if rolled is None:
                return None
            acc.rolled(rolled)
            queue = acc.active[key]
        return queue

    def _send_next(self, queue: PartitionQueue) -> Batch:
        batch = queue.pending.popleft()
        self.numbering.number(queue, batch)
        topic_id = queue.topic_id_in(self._metadata)
        if topic_id is not queue.topic_id:
            if queue.topic_id is None or topic_id != queue.topic_id:
                queue.known_to = None
            queue.topic_id = topic_id
        queue.leader = self._metadata.leader(*queue.key)
        queue.on_wire.append(batch)
        batch.attempts += 1
        flight: Flight = batch.extra
        flight.state = MOVES[flight.state, BatchEvent.SEND]
        flight.before, flight.persisted = flight.persisted, "maybe"
        return batch

    @property
    def newest_produce(self) -> int | None:
        """The newest Produce that may be used, None for any."""
        return self.transaction.newest(ProduceRequest.API) if self.transaction is not None else None

    # -- what came -------------------------------------------------------------------------------------------------------
    def on_answer(self, outgoing: Outgoing, response: ProduceResponse | None, error: KafkaException | None, now: float) -> bool:
        """Take in an answer, or its absence. Return whether the metadata are out of date.

        response and error both None: acks=0, the request was handed to the kernel.
        """
        left = self.in_flight.get(outgoing.broker_id, 0) - 1
        self.in_flight[outgoing.broker_id] = max(left, 0)
        answers = read_answer(outgoing, response, self._metadata) if response is not None else {}
        if response is not None and response.throttle_time_ms > 0:
            self._throttled[outgoing.broker_id] = now + min(response.throttle_time_ms / 1000, MAX_THROTTLE_S)  # KIP-219
        stale = False
        for batch in outgoing.batches:
            answer: Answer = (-1, -1, error, ())
            if response is not None:
                answer = answers.get((batch.topic, batch.partition)) or left_out(batch, outgoing.broker_id)
            self._settle(batch, answer, now)
            problem = answer[2]
            stale |= problem is not None and (problem.stale is Stale.METADATA or error is not None)
            if isinstance(problem, NotLeaderForPartition):
                self._dispute(batch, outgoing.broker_id, now)
        return stale

    def _dispute(self, batch: Batch, broker_id: int, now: float) -> None:
        leader = self._metadata.leader(batch.topic, batch.partition)
        if leader is not None and leader[0] == broker_id:
            self._metadata.dispute(batch.topic, batch.partition, leader[1], now)

    def _settle(self, batch: Batch, answer: Answer, now: float) -> None:
        offset, log_append_time, error, named = answer
        flight: Flight = batch.extra
        if flight.state is not BatchState.IN_FLIGHT:
            return  # its delivery timeout passed while it was under way: it is settled already
        queue = flight.queue
        queue.on_wire.remove(batch)
        if error is not None and is_unsent(error):
            flight.unsent += 1
        if error is not None and is_unwritten(error, self._settings.acks):
            flight.persisted = flight.before
        if error is None or isinstance(error, DuplicateSequenceNumber):
            if queue.retry.failures:
                queue.retry.succeeded()
            self.numbering.written(queue, batch)
            flight.persisted = "yes"
            self._done(queue, Settled(batch, offset, log_append_time, None))
            return
        if isinstance(error, (UnknownTopicOrPartition, UnknownTopicId)):
            queue.known_to = None
        if isinstance(error, TOO_LARGE):
            if batch.count > 1 and not self.delivery_limits.is_late(batch, now):
                self._split(queue, batch)
            else:
                self._fail(queue, batch, too_large_alone(batch, error))
            return
        if not self._may_retry(queue, batch, error, now):
            at_fault = errors_by_index(batch, error, named) if named else {}
            if at_fault:
                self._fail_some(queue, batch, error, at_fault, now)
            else:
                self._fail(queue, batch, self._explained(batch, error, now))
            return
        flight.refused = error
        self.retried += 1
        flight.state = MOVES[flight.state, BatchEvent.BACK]
        queue.put_back(batch)
        self.numbering.mend(queue)
        if now >= queue.retry.not_before:  # what was in flight beside it fails with it: that is one failure, not five
            queue.retry.failed(self._settings.backoff, now, self._chance)
        self.accumulator.waits(queue)

    # -- records that are at fault ---------------------------------------------------------------------------------------
    def _fail_some(
        self, queue: PartitionQueue, batch: Batch, error: KafkaException, at_fault: dict[int, KafkaException], now: float
    ) -> None:
        """Fail the records at fault, and send the others again without them, in their order (KIP-467): none of the batch is in the log.

        The numbers behind the first record at fault cannot be used: `Numbering.mend` begins anew.
        """
        found = runs(batch.count, at_fault)
        if len(found) == 1:
            self._fail(queue, batch, at_fault[0])
            return
        parts = self.splitter.cut(batch, [first for first, _ in found[1:]])
        bad = [(part, why) for part, (_, why) in zip(parts, found, strict=True) if why is not None]
        others = [part for part, (_, why) in zip(parts, found, strict=True) if why is None]
        obstacle = self._why_not_without(batch, now)
        if obstacle is None:
            for part in others:
                part.extra.refused = error
                queue.put_back(part)
            self.accumulator.waits(queue)
        self._fail_parts(queue, bad)
        if obstacle is not None:
            self._fail_parts(queue, [(part, not_at_fault(part, len(at_fault), bad[0][1], obstacle)) for part in others])

    def _why_not_without(self, batch: Batch, now: float) -> str | None:
        """Why the records that are not at fault cannot be sent again without the others; None: they can."""
        if self.transaction is not None:
            return "the transaction can only be aborted, then done again"
        if batch.extra.sequence >= 0 and batch.extra.persisted == "maybe":
            return "whether an earlier try has written them nobody knows, as its answer was lost: look for them in the topic before producing them again"
        if self.delivery_limits.is_late(batch, now):
            return f"no time was left to send them without it ({self.delivery_limits.timeout_s:g} s): produce them again"
        return None

    def _fail_parts(self, queue: PartitionQueue, parts: list[tuple[Batch, KafkaException]]) -> None:
        """Parts of one batch, for one kind of reason: the log has one line for all of them."""
        counted = sum(part.count for part, _ in parts)
        for part, why in parts:
            part.extra.counted, counted = counted, 0
            self._fail(queue, part, why)

    def _split(self, queue: PartitionQueue, batch: Batch) -> None:
        for part in self.splitter.halve(batch):
            queue.put_back(part)
        self.accumulator.waits(queue)

    def _may_retry(self, queue: PartitionQueue, batch: Batch, error: KafkaException, now: float) -> bool:
        again = error.retriable
        if self.numbering.is_refusal(batch, error):
            # Inside a transaction a new epoch would begin a new one, and this one be committed without what came before (B02).
            again = queue.has_older(batch) if self.transaction is not None else self.numbering.refused(queue, batch, error)
        return again and self.delivery_limits.allow_retry(batch, now)

    def _explained(self, batch: Batch, error: KafkaException, now: float) -> KafkaException:
        if batch.extra.persisted == "maybe" and self.numbering.is_refusal(batch, error):
            return in_doubt(batch, error)
        return self.delivery_limits.explained(batch, error, now)

    def _fail(self, queue: PartitionQueue, batch: Batch, error: KafkaException) -> None:
        if self.transaction is not None:
            self.transaction.batch_failed(error, numbered=batch.extra.sequence >= 0)
        else:
            self.numbering.lost(queue, batch)
            self.numbering.mend(queue)
        self._done(queue, Settled(batch, -1, -1, error))

    def _done(self, queue: PartitionQueue, settled: Settled) -> None:
        self.outcomes.ended.append(settled)  # before it leaves its place: whoever is interrupted in between leaves it to be told
        flight = settled.batch.extra
        flight.state = MOVES[flight.state, BatchEvent.SETTLE]
        self.accumulator.settled(settled.batch)
        if settled.error is not None or queue.pending or queue.key in self.accumulator.open:
            self.accumulator.touched[queue.key] = None  # else there is nothing to place
        if not queue.pending and not queue.on_wire:
            self.accumulator.rests(queue, self.numbering.producer)

    @property
    def owes(self) -> bool:
        """Is there a batch without an outcome, or an outcome that was not told?"""
        return bool(self.accumulator.unsettled or self.outcomes.ended or self.outcomes.telling)

    def owed(self) -> list[Batch]:
        """Those batches: what flush() waits for."""
        return list(dict.fromkeys((*self.outcomes.batches(), *self.accumulator.unsettled)))

    # -- producer id -----------------------------------------------------------------------------------------------------
    @property
    def state(self) -> Idempotence:
        """How far idempotence is."""
        return self.numbering.state

    @property
    def producer(self) -> ProducerId | None:
        """The producer id and epoch in force."""
        return self.numbering.producer

    @property
    def epoch_bumps(self) -> int:
        """How often a gap in the numbers was closed by a new epoch."""
        return self.numbering.epoch_bumps

    def producer_id_request(self) -> InitProducerIdRequest:
        """What to ask when `Poll.ask_producer_id` says so."""
        return self.numbering.request()

    def on_producer_id(self, response: InitProducerIdResponse | None, error: KafkaException | None, now: float) -> KafkaException | None:
        """Take the answer. Returns the error if it is final: then nothing can be sent (every batch must be failed with it)."""
        return self.numbering.on_answer(response, error, now)

    def adopt(self, producer: ProducerId) -> None:
        """Take the producer id and epoch that a transaction's coordinator gave. Nothing is unsettled, or nothing was ever sent."""
        self.numbering.adopt(producer)

    # -- time --------------------------------------------------------------------------------------------------------------
    def _expire(self, now: float) -> None:
        """Fail the batches whose delivery timeout has passed. Unsettled batches are in the order of their creation."""
        limits = self.delivery_limits
        overdue = list(takewhile(lambda batch: limits.is_late(batch, now), self.accumulator.unsettled))
        for batch in overdue:
            self._fail(self._taken_out(batch), batch, limits.expired(batch, self._why_undelivered(batch)))

    def _taken_out(self, batch: Batch) -> PartitionQueue:
        """Take a batch away, wherever it is; an open one takes no more records. Returns its queue."""
        key = (batch.topic, batch.partition)
        if self.accumulator.open.get(key) is batch:
            self._roll(*key)
            self.accumulator.rolled(batch)
        queue: PartitionQueue = batch.extra.queue
        queue.remove(batch)
        return queue

    def is_overdue(self, now: float) -> bool:
        """Has the delivery timeout of any batch passed?"""
        for batch in self.accumulator.unsettled:
            return self.delivery_limits.is_late(batch, now)
        return False

    def _why_undelivered(self, batch: Batch) -> str:
        if batch.extra.persisted == "maybe":
            return "no answer came"
        if self.numbering.state in (Idempotence.WANTED, Idempotence.ASKED):
            return "no broker gave a producer id"
        if self._metadata.leader(batch.topic, batch.partition) is None:
            return "the partition had no known leader"
        return "its broker took no request"

    def next_due(self, now: float, ready_at: Callable[[int], float] = lambda broker_id: 0.0) -> float:
        """Return when to poll again at the latest, if nothing else happens."""
        acc = self.accumulator
        when = self._schedule.deadline(now)
        for batch in acc.unsettled:
            when = min(when, batch.created + self.delivery_limits.timeout_s)
            break
        if self._throttled:
            when = min([when, *(until for until in self._throttled.values() if until > now)])
        numbering = self.numbering
        if numbering.state is Idempotence.WANTED and acc.unsettled and numbering.retry.not_before > now:
            when = min(when, numbering.retry.not_before)
        for broker_id, keys in self._schedule.ready.items():
            if keys and (at := ready_at(broker_id)) > now:
                when = min(when, at)
            elif keys and self._is_numbered and self._has_room(broker_id, now):
                when = now  # the last poll had enough
        return when

    @property
    def _is_numbered(self) -> bool:
        """Return whether batches may be sent, as far as a producer id is concerned."""
        return self.numbering.state in (Idempotence.OFF, Idempotence.READY)

    def take_back(self, outgoing: Outgoing, error: KafkaException, now: float) -> None:
        """A request that waited for its connection goes no more: that was no try. error: why it waited, for what is late by now."""
        self.in_flight[outgoing.broker_id] = max(self.in_flight.get(outgoing.broker_id, 0) - 1, 0)
        self.sent_requests -= 1
        for batch in outgoing.batches:
            flight: Flight = batch.extra
            if flight.state is not BatchState.IN_FLIGHT:
                continue  # it is settled
            queue = flight.queue
            queue.on_wire.remove(batch)
            flight.state = MOVES[flight.state, BatchEvent.BACK]
            queue.put_back(batch)
            batch.attempts -= 1
            flight.persisted = flight.before
            if self.delivery_limits.is_late(batch, now):
                flight.refused = error
            self.accumulator.waits(queue)

    def refuse(self, batch: Batch, error: KafkaException) -> None:
        """The driver could not seal a batch that was to go out: it fails, and leaves no trace on the wire."""
        queue: PartitionQueue = batch.extra.queue
        queue.on_wire.remove(batch)
        batch.extra.persisted = batch.extra.before
        self._fail(queue, batch, error)

    def restart(self, opened: Iterable[Batch]) -> None:
        """Begin anew from what the batches themselves tell: who worked here was interrupted, and how far it came nobody knows. Nothing is under way any
        more: what was goes again, in its order. opened: batches that may not be known here, those of a partition oldest first.
        """
        outcomes = self.outcomes.restart()
        owed: dict[Batch, None] = {}
        for batch in (*self.accumulator.unsettled, *opened):
            if batch.done or batch in outcomes:
                continue
            for part in in_its_place(batch):
                if part is not batch and part.extra is None:
                    part.extra = batch.extra.of_part(part.first, batch.first)
                if not part.done and part not in outcomes:
                    owed[part] = None
        self.accumulator.restart(owed)
        self._schedule.restart()
        self.in_flight = {}

    def _drop_unsent(self, transaction: Transaction) -> None:
        """Fail what was never sent of a transaction that will be aborted (KIP-654)."""
        for batch in [batch for batch in self.accumulator.unsettled if not batch.attempts]:
            self._fail(self._taken_out(batch), batch, transaction.dropped_error())

    def abandon(self, error: KafkaException) -> None:
        """Fail everything that is not settled: the producer closes, or can never send."""
        for batch in list(self.accumulator.unsettled):
            self._done(self._taken_out(batch), Settled(batch, -1, -1, error))
