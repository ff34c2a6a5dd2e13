"""The producer's machine: which batches go to which broker, and what an answer means for them.

It waits for nothing and sends nothing: `poll(now)` returns requests to send, `on_answer` takes the outcome and returns what became of
each batch. What keeps the order is told at `_may_send`; the numbers that brokers know batches again by are in `core/numbering.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from gkafka.brokererrors import (
    BrokerError,
    DuplicateSequenceNumber,
    InvalidRecord,
    KafkaStorageError,
    MessageSizeTooLarge,
    NetworkException,
    NotEnoughReplicasAfterAppend,
    NotLeaderForPartition,
    RecordListTooLarge,
    RequestTimedOut,
    Stale,
    UnknownBrokerError,
    UnknownError,
    UnknownTopicId,
    UnknownTopicOrPartition,
    error_for,
)
from gkafka.core.accumulator import Accumulator, Flight, Key, PartitionQueue, ProducerId
from gkafka.core.backoff import Backoff, Chance
from gkafka.core.metadata import NO_TOPIC_ID, BrokerInfo
from gkafka.core.numbering import Event, Idempotence, Numbering
from gkafka.core.schedule import Schedule
from gkafka.errortexts import given_up
from gkafka.exceptions import (
    BatchRefusedError,
    ConnectionFailedError,
    KafkaException,
    KafkaTimeoutError,
    LeaderNotFoundError,
    ProtocolError,
)
from gkafka.logs import get_logger
from gkafka.records._split import before
from gkafka.wire.produce import BatchIndexAndErrorMessage, PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from gkafka.wire.templates import BatchRequest, ProduceTemplate
from gkafka.wire.txn import InitProducerIdRequest, InitProducerIdResponse

if TYPE_CHECKING:
    from gkafka.core.metadata import Metadata
    from gkafka.core.transaction import Transaction
    from gkafka.records import Batch

__all__ = ["Outgoing", "Poll", "Sender", "Settled"]

log = get_logger(__name__)

NEVER = float("inf")
MAX_THROTTLE_S = 30.0
MOST_TEMPLATES = 10_000
"""Partitions of which a request is kept; each takes about 1 KB."""
NOT_SENT = (ConnectionFailedError, LeaderNotFoundError)
"""The batch has not left: no connection was made to its leader, or there is none."""
MAYBE_WRITTEN = (UnknownError, RequestTimedOut, NetworkException, NotEnoughReplicasAfterAppend, KafkaStorageError, UnknownBrokerError)
"""Errors with which a broker does not say that it has not written the batch. With acks=all also NotLeaderForPartition: a leader answers so
when it loses the partition while it waits for the followers, and one of those, which has the batch, may lead next (B14)."""

TOO_LARGE = (MessageSizeTooLarge, RecordListTooLarge)

Named = Sequence[BatchIndexAndErrorMessage]
"""The records of a batch that a broker refuses, by their index in it, and its words for each (KIP-467)."""
Answer = tuple[int, int, "KafkaException | None", Named]
"""What a broker says of a batch: its base offset, the time of its append, the error, and the records that are at fault."""


class Outgoing(NamedTuple):
    """Batches for one broker, at most one of a partition. They are sealed by the driver, in this order, before they go out."""

    broker_id: int
    batches: list[Batch]


class Settled(NamedTuple):
    """What became of a batch. error None: it is in the log at base_offset (-1: the broker did not say)."""

    batch: Batch
    base_offset: int
    log_append_time: int
    error: KafkaException | None


class Telling(NamedTuple):
    """An outcome that is being told. callbacks: empty until the batch has heard it, then what it wants called with it, and behind that a
    None once that is in the callbacks' hands: so whoever goes on after an interruption does nothing twice."""

    outcome: Settled
    callbacks: list[list[Any] | None]


class Poll(NamedTuple):
    """What to do now. deadline: when to poll again at the latest, if nothing else happens. unknown: topics that are not known, for which records wait."""

    requests: list[Outgoing]
    ask_producer_id: bool
    settled: list[Settled]
    want_metadata: bool
    deadline: float
    unknown: list[str]


class Sender:
    """Decides what a producer sends.

    roll: takes an open batch out of the appender (the driver's `Appender.roll`); None if it is empty or gone. set_limit: tells it how
    many bytes the batches of a topic may hold (`Appender.set_limit`). divided: batches that were split and whose waiters do not know it
    yet; the driver empties it. most_batches: of one request. ended: outcomes that the driver has not taken yet; telling: batches whose
    outcome it took, and is not done with.
    """

    def __init__(
        self,
        accumulator: Accumulator,
        metadata: Metadata,
        *,
        roll: Callable[[str, int], Batch | None],
        acks: int,
        idempotence: bool | None,
        linger_s: float,
        batch_bytes: int,
        max_request_bytes: int,
        max_in_flight: int,
        delivery_timeout_s: float,
        request_timeout_s: float,
        ack_timeout_s: float | None = None,
        retries: int | None,
        backoff: Backoff,
        chance: Chance,
        set_limit: Callable[[str, int], None] = lambda topic, size: None,
        most_batches: int = 1 << 31,
    ) -> None:
        self.accumulator, self._metadata, self._roll, self._set_limit = accumulator, metadata, roll, set_limit
        self.acks, self._linger_s, self._batch_bytes, self._max_request_bytes = acks, linger_s, batch_bytes, max_request_bytes
        self._most_batches = most_batches
        self._max_in_flight, self._delivery_timeout_s, self._request_timeout_s = max_in_flight, delivery_timeout_s, request_timeout_s
        self._ack_timeout_s = request_timeout_s if ack_timeout_s is None else ack_timeout_s
        self._retries, self._backoff, self._chance = retries, backoff, chance
        self.counts_unsent = True  # among the retries: tries that found no connection
        self._maybe_written = (*MAYBE_WRITTEN, NotLeaderForPartition) if acks == -1 else MAYBE_WRITTEN
        self.numbering = Numbering(idempotence, backoff=backoff, chance=chance)
        self.transaction: Transaction | None = None
        self.flushing = False
        self.pressed = False
        self.in_flight: dict[int, int] = {}
        self.retried = 0
        self.sent_requests = 0
        self.limits: dict[str, int] = {}
        self.divided: list[Batch] = []
        self.ended: list[Settled] = []
        self.telling: dict[Batch, Telling] = {}
        self.splits = 0
        self._throttled: dict[int, float] = {}
        self._templates: dict[Key, ProduceTemplate] = {}
        self._schedule = Schedule(accumulator, metadata, linger_s=linger_s, may_send=self._may_send)

    def set_gate(self, gate: Callable[[Key], bool]) -> None:
        """Let nothing of a partition out unless gate(partition) says so; it is asked again at each poll."""
        self._schedule.gate = gate

    def rest(self, now: float, seconds: float) -> None:
        """Take no batch for its age alone for so long, behind earlier rests: sending has its share of the time, and batches grow meanwhile."""
        self._schedule.rests_until = max(self._schedule.rests_until, now) + seconds

    # -- what to send --------------------------------------------------------------------------------------------------
    def poll(self, now: float, ready_at: Callable[[int], float] = lambda broker_id: 0.0) -> Poll:
        """Requests that may go out now, batches whose time is over, and when to ask again.

        ready_at: broker id -> when its connection may be tried (after a failure it may not be for a while).
        """
        settled = self._expire(now) if self.is_overdue(now) else []
        if self.transaction is not None and self.transaction.drops_unsent:
            settled += self._drop_unsent(self.transaction)
        ask = self.transaction is None and bool(self.accumulator.unsettled) and self.numbering.wants_id(now)
        if ask:
            self.numbering.move(Event.ASK)
        schedule = self._schedule
        ends = self.transaction is not None and self.transaction.flushing
        schedule.update(now, hasty=self.flushing or self.pressed or ends)
        requests: list[Outgoing] = []
        pauses: list[float] = []
        if self.numbering.state in (Idempotence.OFF, Idempotence.READY):
            for broker_id in list(schedule.ready):
                if not self._has_room(broker_id, now):
                    continue
                if ready_at(broker_id) > now:
                    pauses.append(ready_at(broker_id))
                else:
                    requests += self._drain(broker_id, now)
        # Who leads the partitions of a broker that is away may change before it is tried again.
        unknown = sorted(schedule.unknown) if schedule.homeless else []
        return Poll(requests, ask, settled, bool(schedule.homeless or pauses), min([self._deadline(now), *pauses]), unknown)

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
        if acc.open.get(key) is not batch or (self._linger_s and key not in acc.hurried) or not schedule.is_plain(key):
            return None
        queue, leader = acc.queues.get(key), self._metadata.leader(*key)
        if leader is None or (queue is not None and queue.retry.failures):
            return None
        broker_id = leader[0]
        if not self._has_room(broker_id, now) or ready_at(broker_id) > now or self.is_late(batch, now):
            return None
        if self._roll(*key) is None:
            return None
        acc.rolled(batch)
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
        topic_id = self._topic_id(queue)
        made_again = topic_id is not queue.topic_id and topic_id != queue.topic_id
        return not (again or made_again or self._max_in_flight == 1 or self.numbering.must_wait(queue))

    def _has_room(self, broker_id: int, now: float) -> bool:
        return self.in_flight.get(broker_id, 0) < self._max_in_flight and now >= self._throttled.get(broker_id, 0.0)

    def _drain(self, broker_id: int, now: float) -> list[Outgoing]:
        """Fill requests for one broker while its connection has room, taking the partitions in turn."""
        requests: list[Outgoing] = []
        while self._schedule.ready.get(broker_id) and self._has_room(broker_id, now):
            batches = self._take(broker_id, now)
            if not batches:
                break
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
                self._schedule.let_ride(broker_id, -(-self._batch_bytes // 2), now)
            size = queue.pending[0].size
            if batches and (total + size > self._max_request_bytes or len(batches) >= self._most_batches):
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
        topic_id = self._topic_id(queue)
        if topic_id is not queue.topic_id:
            if queue.topic_id is None or topic_id != queue.topic_id:
                queue.known_to = None
            queue.topic_id = topic_id
        queue.leader = self._metadata.leader(*queue.key)
        queue.on_wire.append(batch)
        batch.attempts += 1
        batch.extra.before, batch.extra.persisted = batch.extra.persisted, "maybe"
        return batch

    def request(self, outgoing: Outgoing) -> ProduceRequest | BatchRequest:
        """The produce request for batches that are sealed by now."""
        if len(outgoing.batches) == 1 and isinstance(outgoing.batches[0].wire, memoryview):
            return self._request_of_one(outgoing.batches[0])
        return self.full_request(outgoing)

    def _request_of_one(self, batch: Batch) -> BatchRequest:
        queue: PartitionQueue = batch.extra.queue
        template = self._templates.get(queue.key)
        if template is None or (template.topic_id is not queue.topic_id and template.topic_id != queue.topic_id):
            if len(self._templates) >= MOST_TEMPLATES:
                self._templates.clear()
            template = self._templates[queue.key] = ProduceTemplate(self.full_request(Outgoing(-1, [batch])))
        return BatchRequest(template, batch.wire)

    def full_request(self, outgoing: Outgoing) -> ProduceRequest:
        """The same as a message, which knows what it holds."""
        topics: dict[str, TopicProduceData] = {}
        for batch in outgoing.batches:
            topic = topics.get(batch.topic)
            if topic is None:
                topic = topics[batch.topic] = TopicProduceData(name=batch.topic, topic_id=batch.extra.queue.topic_id, partition_data=[])
            topic.partition_data.append(PartitionProduceData(index=batch.partition, records=batch.wire))
        return ProduceRequest(
            transactional_id=self.transaction.transactional_id if self.transaction is not None else None,
            acks=self.acks,
            timeout_ms=int(self._ack_timeout_s * 1000),
            topic_data=list(topics.values()),
        )

    @property
    def newest_produce(self) -> int | None:
        """The newest Produce that may be used, None for any."""
        return self.transaction.newest(ProduceRequest.API) if self.transaction is not None else None

    def _topic_id(self, queue: PartitionQueue) -> UUID:
        """The topic's id, which is all that a request and its answer name it by (KIP-516). A topic may vanish from the metadata while its
        batches are under way (B01): then it is the one that they were sent to."""
        known = self._metadata.topic_id(queue.key[0])
        if known is queue.topic_id or queue.topic_id is None or known != NO_TOPIC_ID:
            return known
        return queue.topic_id

    # -- what came -------------------------------------------------------------------------------------------------------
    def on_answer(
        self, outgoing: Outgoing, response: ProduceResponse | None, error: KafkaException | None, now: float
    ) -> tuple[list[Settled], bool]:
        """What an answer, or its absence, means. Returns (settled batches, whether the metadata is out of date).

        response and error both None: acks=0, the request was handed to the kernel.
        """
        left = self.in_flight.get(outgoing.broker_id, 0) - 1
        self.in_flight[outgoing.broker_id] = max(left, 0)
        answers = self._answers(outgoing, response) if response is not None else {}
        if response is not None and response.throttle_time_ms > 0:
            self._throttled[outgoing.broker_id] = now + min(response.throttle_time_ms / 1000, MAX_THROTTLE_S)  # KIP-219
        already = len(self.ended)
        stale = False
        for batch in outgoing.batches:
            answer: Answer = (-1, -1, error, ())
            if response is not None:
                answer = answers.get((batch.topic, batch.partition)) or self._unanswered(batch, outgoing)
            self._settle(batch, answer, now)
            problem = answer[2]
            stale |= problem is not None and (problem.stale is Stale.METADATA or error is not None)
            if isinstance(problem, NotLeaderForPartition):
                self._dispute(batch, outgoing.broker_id, now)
        return self.ended[already:], stale

    def _dispute(self, batch: Batch, broker_id: int, now: float) -> None:
        leader = self._metadata.leader(batch.topic, batch.partition)
        if leader is not None and leader[0] == broker_id:
            self._metadata.dispute(batch.topic, batch.partition, leader[1], now)

    def _answers(self, outgoing: Outgoing, response: ProduceResponse) -> dict[Key, Answer]:
        answers: dict[Key, Answer] = {}
        named = not response.responses or bool(response.responses[0].name)
        names = {} if named else {batch.extra.queue.topic_id: batch.topic for batch in outgoing.batches}
        if response.node_endpoints:
            self._metadata.add_brokers(BrokerInfo(e.node_id, e.host, e.port, e.rack) for e in response.node_endpoints)
        for topic in response.responses:
            name = topic.name or names.get(topic.topic_id, "")
            for p in topic.partition_responses:
                problem = error_for(p.error_code, p.error_message, topic=name, partition=p.index, api="Produce") if p.error_code else None
                answers[name, p.index] = (p.base_offset, p.log_append_time_ms, problem, p.record_errors)
                if p.current_leader.leader_id >= 0:
                    self._metadata.leader_moved(name, p.index, p.current_leader.leader_id, p.current_leader.leader_epoch)
        return answers

    @staticmethod
    def _unanswered(batch: Batch, outgoing: Outgoing) -> Answer:
        text = f"broker {outgoing.broker_id} left {batch.topic}-{batch.partition} out of its answer to a produce request"
        return -1, -1, ProtocolError(text, topic=batch.topic, partition=batch.partition, broker=outgoing.broker_id, api="Produce"), ()

    def _settle(self, batch: Batch, answer: Answer, now: float) -> None:
        offset, log_append_time, error, named = answer
        queue: PartitionQueue = batch.extra.queue
        try:
            queue.on_wire.remove(batch)
        except ValueError:
            return  # its delivery timeout passed while it was under way: it is settled already
        unsent = error is not None and (error.never_sent or isinstance(error, NOT_SENT))
        if unsent:
            batch.extra.unsent += 1
        if unsent or (isinstance(error, BrokerError) and not isinstance(error, self._maybe_written)):
            batch.extra.persisted = batch.extra.before  # this try did not write it: no connection was made, or the broker refused
        if error is None or isinstance(error, DuplicateSequenceNumber):
            if queue.retry.failures:
                queue.retry.succeeded()
            self.numbering.written(queue, batch)
            batch.extra.persisted = "yes"
            self._done(queue, Settled(batch, offset, log_append_time, None))
            return
        if isinstance(error, (UnknownTopicOrPartition, UnknownTopicId)):
            queue.known_to = None
        if isinstance(error, TOO_LARGE):
            if batch.count > 1 and not self.is_late(batch, now):
                self._split(queue, batch)
            else:
                self._fail(queue, batch, self._alone_too_large(batch, error))
            return
        if not self._may_retry(queue, batch, error, now):
            at_fault = self._at_fault(batch, error, named) if named else {}
            if at_fault:
                self._fail_some(queue, batch, error, at_fault, now)
            else:
                self._fail(queue, batch, self._explained(batch, error, now))
            return
        batch.extra.refused = error
        self.retried += 1
        queue.put_back(batch)
        self.numbering.mend(queue)
        if now >= queue.retry.not_before:  # what was in flight beside it fails with it: that is one failure, not five
            queue.retry.failed(self._backoff, now, self._chance)
        self.accumulator.waits(queue)

    # -- records that are at fault ---------------------------------------------------------------------------------------
    @staticmethod
    def _at_fault(batch: Batch, error: KafkaException, named: Named) -> dict[int, KafkaException]:
        """The error of each record that the broker names, by its index. The same words are the same error.

        The answer has one code for all of them: with several, which may differ, it counts for none, as in the Java client.
        """
        places = [entry for entry in named if 0 <= entry.batch_index < batch.count]
        code = error.code if len(places) == 1 and isinstance(error, BrokerError) else InvalidRecord.code
        told: dict[str | None, KafkaException | None] = {None: error, "": error}
        for entry in places:
            text = entry.batch_index_error_message
            if text not in told:
                told[text] = error_for(code, text, topic=batch.topic, partition=batch.partition, api="Produce")
        return {entry.batch_index: told[entry.batch_index_error_message] or error for entry in places}

    def _fail_some(
        self, queue: PartitionQueue, batch: Batch, error: KafkaException, at_fault: dict[int, KafkaException], now: float
    ) -> None:
        """Fail the records at fault, and send the others again without them, in their order (KIP-467): none of the batch is in the log.

        The numbers behind the first record at fault cannot be used: `Numbering.mend` begins anew.
        """
        runs = _runs(batch.count, at_fault)
        if len(runs) == 1:
            self._fail(queue, batch, at_fault[0])
            return
        parts = _cut(batch, [first for first, _ in runs[1:]])
        self._stand_in(batch, parts)
        bad = [(part, why) for part, (_, why) in zip(parts, runs, strict=True) if why is not None]
        others = [part for part, (_, why) in zip(parts, runs, strict=True) if why is None]
        obstacle = self._why_not_without(batch, now)
        if obstacle is None:
            for part in others:
                part.extra.refused = error
                queue.put_back(part)
            self.accumulator.waits(queue)
        self._fail_parts(queue, bad)
        if obstacle is not None:
            self._fail_parts(queue, [(part, _not_at_fault(part, len(at_fault), bad[0][1], obstacle)) for part in others])

    def _why_not_without(self, batch: Batch, now: float) -> str | None:
        """Why the records that are not at fault cannot be sent again without the others; None: they can."""
        if self.transaction is not None:
            return "the transaction can only be aborted, then done again"
        if batch.extra.sequence >= 0 and batch.extra.persisted == "maybe":
            return "whether an earlier try has written them nobody knows, as its answer was lost: look for them in the topic before producing them again"
        if self.is_late(batch, now):
            return f"no time was left to send them without it ({self._delivery_timeout_s:g} s): produce them again"
        return None

    def _fail_parts(self, queue: PartitionQueue, parts: list[tuple[Batch, KafkaException]]) -> None:
        """Parts of one batch, for one kind of reason: the log has one line for all of them."""
        counted = sum(part.count for part, _ in parts)
        for part, why in parts:
            part.extra.counted, counted = counted, 0
            self._fail(queue, part, why)

    def _split(self, queue: PartitionQueue, batch: Batch) -> None:
        """Put the batch's records back in parts (KIP-126).

        Nobody knows beforehand what compression makes of records, so the limit is found by halves. Later batches of the topic keep
        to it. A split always makes parts of fewer records: it ends with records that fail alone (B05).
        """
        limit = min(batch.size // 2, self.limits.get(batch.topic, batch.size))
        if batch.topic not in self.limits:
            log.info("topic %s: a batch of %d bytes is too large for the broker, it goes in parts (KIP-126)", batch.topic, batch.wire_size)
        self.limits[batch.topic] = limit
        self._set_limit(batch.topic, limit)
        self.splits += 1
        parts: list[Batch] = batch.split(limit)
        self._stand_in(batch, parts)
        for part in parts:
            queue.put_back(part)
        self.accumulator.waits(queue)

    def _stand_in(self, batch: Batch, parts: list[Batch]) -> None:
        """Have parts stand in the place of their batch: they share its numbers, and it was no try of theirs."""
        flight: Flight = batch.extra
        for part in parts:
            part.attempts = batch.attempts - 1
            part.extra = flight.of_part(part.first, batch.first)
        self.accumulator.replaced(batch, parts)
        self.divided.append(batch)

    @staticmethod
    def _alone_too_large(batch: Batch, error: KafkaException) -> KafkaException:
        text = (
            f"{batch.topic}-{batch.partition}: {batch.count} record(s) in a batch of {batch.wire_size} bytes are too large for the broker: "
            f"raise the topic's max.message.bytes (for all topics the broker's message.max.bytes), or send less ({error})"
        )
        return type(error)(text, topic=batch.topic, partition=batch.partition, broker=error.broker, api="Produce")

    def _may_retry(self, queue: PartitionQueue, batch: Batch, error: KafkaException, now: float) -> bool:
        again = error.retriable
        if self.numbering.is_refusal(batch, error):
            # Inside a transaction a new epoch would begin a new one, and this one be committed without what came before (B02).
            again = queue.has_older(batch) if self.transaction is not None else self.numbering.refused(queue, batch, error)
        return again and not self.is_late(batch, now) and (self._retries is None or self._tries(batch) <= self._retries)

    def _tries(self, batch: Batch) -> int:
        return int(batch.attempts if self.counts_unsent else batch.attempts - batch.extra.unsent)

    def _explained(self, batch: Batch, error: KafkaException, now: float) -> KafkaException:
        """Why a batch is not sent again although its number, its time or the tries that it has are all that is wrong."""
        if batch.extra.persisted == "maybe" and self.numbering.is_refusal(batch, error):
            text = (
                f"{batch.topic}-{batch.partition}: {batch.count} record(s) may be in the log or not: the answer to an earlier try was lost, and now the "
                f"leader refuses their number, so they are not sent again; look for them in the topic before producing them again ({error})"
            )
        elif error.retriable and self.is_late(batch, now):
            text = f"{self._too_late(batch)}: {error}"
            if error.never_sent and batch.extra.refused is not None:
                text += f"; the last try: {batch.extra.refused}"
        elif error.retriable and self._retries is not None and self._tries(batch) > self._retries:
            text = f"{batch.topic}-{batch.partition}: {given_up(self._tries(batch), self._retries, error)}"
        else:
            return error
        return type(error)(text, topic=batch.topic, partition=batch.partition, broker=error.broker, api="Produce")

    def _fail(self, queue: PartitionQueue, batch: Batch, error: KafkaException) -> Settled:
        if self.transaction is not None:
            self.transaction.batch_failed(error, numbered=batch.extra.sequence >= 0)
        else:
            self.numbering.lost(queue, batch)
            self.numbering.mend(queue)
        return self._done(queue, Settled(batch, -1, -1, error))

    def _done(self, queue: PartitionQueue, settled: Settled) -> Settled:
        self.ended.append(settled)  # before it leaves its place: whoever is interrupted in between leaves it to be told
        self.accumulator.settled(settled.batch)
        if settled.error is not None or queue.pending or queue.key in self.accumulator.open:
            self.accumulator.touched[queue.key] = None  # else there is nothing to place
        if not queue.pending and not queue.on_wire:
            self.accumulator.rests(queue, self.numbering.producer)
        return settled

    def take_ended(self) -> list[Settled]:
        """The outcomes since the last call. They are owed until `told`."""
        ended = self.ended
        for settled in ended:
            self.telling.setdefault(settled.batch, Telling(settled, []))
        self.ended = []
        return ended

    def told(self, taken: list[Settled]) -> int:
        """Everybody has heard of these outcomes. Those that their teller was stopped before are left to the next. Returns how many records that were."""
        count, untold = 0, []
        for settled in taken:
            if settled.batch.done:
                count += settled.batch.count
            else:
                untold.append(settled)
        self.ended[:0] = untold
        for settled in taken:
            self.telling.pop(settled.batch, None)
        return count

    @property
    def owes(self) -> bool:
        """Is there a batch without an outcome, or an outcome that was not told?"""
        return bool(self.accumulator.unsettled or self.ended or self.telling)

    def owed(self) -> list[Batch]:
        """Those batches: what flush() waits for."""
        return list(dict.fromkeys((*self.telling, *(settled.batch for settled in self.ended), *self.accumulator.unsettled)))

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
    def _expire(self, now: float) -> list[Settled]:
        """Batches whose delivery timeout has passed. Unsettled batches are in the order of their creation."""
        return [self._expired(batch, self._taken_out(batch)) for batch in list(self._overdue(now))]

    def _taken_out(self, batch: Batch) -> PartitionQueue:
        """Take a batch away, wherever it is; an open one takes no more records. Returns its queue."""
        key = (batch.topic, batch.partition)
        if self.accumulator.open.get(key) is batch:
            self._roll(*key)
            self.accumulator.rolled(batch)
        queue: PartitionQueue = batch.extra.queue
        if batch in queue.on_wire:
            queue.on_wire.remove(batch)
        elif batch in queue.pending:  # else its driver was interrupted just as it took it
            queue.pending.remove(batch)
        return queue

    def is_late(self, batch: Batch, now: float) -> bool:
        """Has its delivery timeout passed?"""
        return now >= batch.created + self._delivery_timeout_s

    def is_overdue(self, now: float) -> bool:
        """Has that of any?"""
        for batch in self.accumulator.unsettled:
            return self.is_late(batch, now)
        return False

    def _overdue(self, now: float) -> Iterable[Batch]:
        for batch in self.accumulator.unsettled:
            if not self.is_late(batch, now):
                return
            yield batch

    def _expired(self, batch: Batch, queue: PartitionQueue) -> Settled:
        why = "no answer came" if batch.extra.persisted == "maybe" else self._why_unsent(batch)
        if batch.extra.refused is not None:
            why += f"; the last try: {batch.extra.refused}"
        error = KafkaTimeoutError(f"{self._too_late(batch)}: {why}", topic=batch.topic, partition=batch.partition, api="Produce")
        error.__cause__ = batch.extra.refused
        return self._fail(queue, batch, error)

    def _too_late(self, batch: Batch) -> str:
        return f"{batch.count} record(s) for {batch.topic}-{batch.partition} not delivered within {self._delivery_timeout_s:g} s"

    def _why_unsent(self, batch: Batch) -> str:
        if self.numbering.state in (Idempotence.WANTED, Idempotence.ASKED):
            return "no broker gave a producer id"
        if self._metadata.leader(batch.topic, batch.partition) is None:
            return "the partition had no known leader"
        return "its broker took no request"

    def next_due(self, now: float, ready_at: Callable[[int], float] = lambda broker_id: 0.0) -> float:
        """When to poll again at the latest, if nothing else happens."""
        when = self._deadline(now)
        for broker_id, keys in self._schedule.ready.items():
            if keys and (at := ready_at(broker_id)) > now:
                when = min(when, at)
        return when

    def _deadline(self, now: float) -> float:
        """When something becomes due by time alone."""
        acc = self.accumulator
        when = self._schedule.deadline(now)
        for batch in acc.unsettled:
            when = min(when, batch.created + self._delivery_timeout_s)
            break
        if self._throttled:
            when = min([when, *(until for until in self._throttled.values() if until > now)])
        numbering = self.numbering
        if numbering.state is Idempotence.WANTED and acc.unsettled and numbering.retry.not_before > now:
            when = min(when, numbering.retry.not_before)
        return when

    def take_back(self, outgoing: Outgoing, error: KafkaException, now: float) -> None:
        """A request that waited for its connection goes no more: that was no try. error: why it waited, for what is late by now."""
        self.in_flight[outgoing.broker_id] = max(self.in_flight.get(outgoing.broker_id, 0) - 1, 0)
        self.sent_requests -= 1
        for batch in outgoing.batches:
            queue: PartitionQueue = batch.extra.queue
            if batch not in queue.on_wire:
                continue  # it is settled
            queue.on_wire.remove(batch)
            queue.put_back(batch)
            batch.attempts -= 1
            batch.extra.persisted = batch.extra.before
            if self.is_late(batch, now):
                batch.extra.refused = error
            self.accumulator.waits(queue)

    def refuse(self, batch: Batch, error: KafkaException) -> Settled:
        """The driver could not seal a batch that was to go out: it fails, and leaves no trace on the wire."""
        queue: PartitionQueue = batch.extra.queue
        queue.on_wire.remove(batch)
        batch.extra.persisted = batch.extra.before
        return self._fail(queue, batch, error)

    def restart(self, opened: Iterable[Batch]) -> None:
        """Begin anew from what the batches themselves tell: who worked here was interrupted, and how far it came nobody knows. Nothing is under way any
        more: what was goes again, in its order. opened: the appender's open batches.
        """
        outcomes = {settled.batch: settled for settled in (*(entry.outcome for entry in self.telling.values()), *self.ended)}
        self.ended = list(outcomes.values())
        owed = [batch for batch in dict.fromkeys((*self.accumulator.unsettled, *opened)) if batch not in outcomes and not batch.done]
        for batch in owed:
            for part in batch.parts or ():
                part.extra = part.extra or batch.extra.of_part(part.first, batch.first)
        self.accumulator.restart(part for batch in owed for part in batch.parts or (batch,) if part not in outcomes and not part.done)
        self._schedule.restart()
        self.in_flight = {}

    def _drop_unsent(self, transaction: Transaction) -> list[Settled]:
        """Fail what was never sent of a transaction that will be aborted (KIP-654)."""
        unsent = [batch for batch in self.accumulator.unsettled if not batch.attempts]
        return [self._fail(self._taken_out(batch), batch, transaction.dropped_error()) for batch in unsent]

    def abandon(self, error: KafkaException) -> list[Settled]:
        """Fail everything that is not settled: the producer closes, or can never send."""
        return [self._done(self._taken_out(batch), Settled(batch, -1, -1, error)) for batch in list(self.accumulator.unsettled)]


def _runs(count: int, at_fault: dict[int, KafkaException]) -> list[tuple[int, KafkaException | None]]:
    """The first record of each run of records that end alike, and the error of those; None: they are not at fault."""
    runs: list[tuple[int, KafkaException | None]] = []
    for index in range(count):
        error = at_fault.get(index)
        if not runs or runs[-1][1] is not error:
            runs.append((index, error))
    return runs


def _cut(batch: Batch, firsts: list[int]) -> list[Batch]:
    """Cut a batch before each of these records, which are numbered from its first one on."""
    if not firsts:
        return [batch]
    middle = len(firsts) // 2
    head, tail = batch.split(before(firsts[middle]))
    return _cut(head, firsts[:middle]) + _cut(tail, [first - firsts[middle] for first in firsts[middle + 1 :]])


def _not_at_fault(part: Batch, count: int, cause: KafkaException, obstacle: str) -> BatchRefusedError:
    text = f"{part.topic}-{part.partition}: {part.count} record(s) are not at fault: the broker refused {count} other(s) of their batch ({cause}); {obstacle}"
    error = BatchRefusedError(text, topic=part.topic, partition=part.partition, api="Produce")
    error.__cause__ = cause
    return error
