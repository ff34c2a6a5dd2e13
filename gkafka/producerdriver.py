"""What runs beneath a producer: its worker sends what the machine wants; the connections' workers take the answers in and settle whole batches.

A caller does none of this. It appends to open batches, leaves a note (`Appender.news`, `Notes`) and wakes the worker, each in one step: wherever a
signal handler's exception, a kill or a time-out ends it, nothing is half done.
"""

from __future__ import annotations

import contextlib
import logging
import weakref
from functools import partial
from typing import TYPE_CHECKING, Any

from gkafka.batchresults import BatchResults
from gkafka.broker import PRODUCE
from gkafka.callbacks import end_waits
from gkafka.config import ProducerConfig
from gkafka.core.accumulator import Accumulator
from gkafka.core.backoff import Backoff
from gkafka.core.batchstate import count_states
from gkafka.core.deliverylimits import DeliveryLimits
from gkafka.core.sender import Outgoing, Sender, SenderSettings
from gkafka.engineworker import EngineWorker
from gkafka.exceptions import (
    ForkedClientError,
    KafkaException,
    LeaderNotFoundError,
    ProduceFailureError,
    UnsupportedVersion,
)
from gkafka.inflight import InFlightRequests
from gkafka.logs import get_logger
from gkafka.net.channel import CutShort
from gkafka.producerids import ProducerIds
from gkafka.producernotes import FlushNote, Notes, wholes
from gkafka.producerpace import Pace
from gkafka.sealing import Sealer
from gkafka.wire.produce import only_batches

if TYPE_CHECKING:
    from gkafka.cluster import Cluster
    from gkafka.records import Appender, Batch
    from gkafka.transactions import Transactions

__all__ = ["ProducerDriver"]

log = get_logger(__name__)

NEVER = float("inf")
TICK_S = 1.0
"""Longest sleep of the worker while records are on their way."""
GROWTH = 3
"""After a round that took t no batch is taken for its age alone until this many t have passed: where batches are small because there are many partitions,
they grow until sending them takes no more than a quarter of the time."""
TRIES, SHORTEST_REST_S = 4, 0.1
"""Whoever flushes has a broker that cannot be reached tried again within this part of the time that is left, but not sooner than that."""
BATCHES_AT_ONCE = 64
"""With greenlets, batches of one request: between two requests, and two answers, others run."""


class ProducerDriver:
    """Drives the sender of one producer.

    appender: where the records are; acks: 0, 1 or -1; codec, level: of the batches. `lock` guards the
    machine (`sender`, `accumulator`, a transaction's) and is held for moments only.

    Whoever works here and is interrupted leaves the mark `worker.mark.cause`, and the worker begins anew
    (`restart`). Nothing is mended. A bug ends the producer (`died`), whoever meets it.
    """

    def __init__(self, cluster: Cluster, config: ProducerConfig, appender: Appender, *, acks: int, codec: int, level: int | None) -> None:
        self._cluster, self._handler, self._appender = cluster, cluster.handler, appender
        self.memory = cluster.memory
        self.lock = self._handler.Mutex()
        self.accumulator = Accumulator()
        self.sender = Sender(
            self.accumulator,
            cluster.metadata,
            SenderSettings(
                acks=acks,
                idempotence=config.enable_idempotence if acks == -1 else False,
                linger_s=config.linger_ms / 1000,
                batch_bytes=config.batch_bytes,
                max_request_bytes=config.max_request_bytes,
                max_in_flight=config.max_in_flight,
                ack_timeout_s=(config.request_timeout_ms if config.ack_timeout_ms is None else config.ack_timeout_ms) / 1000,
                backoff=Backoff(config.retry_backoff_ms / 1000, config.retry_backoff_max_ms / 1000),
                transactional_id=config.transactional_id,
                **({"most_batches": BATCHES_AT_ONCE} if self._handler.cooperative else {}),
            ),
            DeliveryLimits(config.delivery_timeout_ms / 1000, config.retries),
            roll=self._roll,
            set_limit=appender.set_limit,
            chance=self._handler.random(),
        )
        self.transactions: Transactions | None = None
        self.fatal: KafkaException | None = None
        self.restarts = 0
        self.closed = False
        self.worker = EngineWorker(self._handler, self, "gkafka-producer", self.memory.takers)
        self.in_flight = InFlightRequests(config.request_timeout_ms / 1000)
        self.notes = Notes(appender, self.sender)
        self.pace = Pace(
            self._handler,
            self.lock,
            appender,
            self.accumulator,
            notes=self.notes,
            in_flight=self.in_flight,
            worker=self.worker,
            batch_bytes=config.batch_bytes,
        )
        self._sealer = Sealer(cluster, self.sender, codec, level)
        self._producer_ids = ProducerIds(
            cluster, self.lock, self.sender, self.worker, config.request_timeout_ms / 1000, on_fatal=self.end_with
        )
        self.results = BatchResults(self._handler, self.lock, self.sender, appender, self.memory)
        self.callbacks, self.failures = self.results.callbacks, self.results.failures
        cluster.sleepers.update((self.worker.signal, self.callbacks.wake))

    # -- its worker ----------------------------------------------------------------------------------------------------------
    def stop(self, deadline: float = 0.0) -> None:
        """End the workers once nothing is left to do for them. deadline: so long they may take, and the callbacks that are due; a moment at least."""
        self.closed = True
        self.memory.leave(self)
        self.worker.end(min(TICK_S * 2, deadline - self._handler.monotonic()))
        self.callbacks.stop(deadline)  # the worker may have started theirs just now

    def died(self, error: BaseException) -> None:
        """Fail everything at once: without its worker nothing lingers or times out."""
        log.error("the producer has failed and ends by %s", type(error).__name__, exc_info=error)
        with self.lock:
            self._rebuild()
            self.worker.mark.cause = None  # else nobody would be told
        self.end_with(ProduceFailureError(f"the producer has failed and was ended by {type(error).__name__}: {error}; make a new producer"))

    # -- what callers leave ----------------------------------------------------------------------------------------------------
    def hurry_batch(self, batch: Batch) -> None:
        """Somebody waits for it: it lingers no more, if it is open."""
        if batch.is_open:
            self.notes.hurried.append(batch)
            self.worker.wake()

    def all_owed(self, deadline: float) -> FlushNote:
        """Return what has no outcome now; nothing lingers as long as the caller holds this.

        If the worker does not look by the deadline: what can be seen from here.
        """
        flush = FlushNote(self._handler.Event())
        if not self.owes:
            return flush
        self.notes.flushes.append(weakref.ref(flush))
        if self.worker.task is None:
            self.worker.start()
        while not flush.told.is_set():
            left = deadline - self._handler.monotonic()
            if left <= 0:
                flush.batches = wholes(self.owed())
                break
            self.worker.signal.set()
            flush.told.wait(min(left, TICK_S))
            self._handler.check_fork()
        return flush

    def unsettled(self) -> list[Batch]:
        """What has no outcome, for whoever may not take locks."""
        return list(dict.fromkeys((*self.accumulator.unsettled, *self.notes.new_batches())))

    def owed(self) -> list[Batch]:
        """The same, and what has an outcome that was not told."""
        return list(dict.fromkeys((*self.sender.owed(), *self.notes.new_batches())))

    @property
    def owes(self) -> bool:
        """Is there a batch without an outcome, or an outcome that was not told?"""
        return self.sender.owes or bool(self.notes.new_batches())

    # -- driving -------------------------------------------------------------------------------------------------------------
    def turn(self) -> float | None:
        """On the worker: do all that is to be done now.

        Return when to look again at the latest, or None if nothing more will come.
        """
        handler, watched = self._handler, self.worker.watched
        woke = handler.monotonic()
        if watched is not None:
            watched.read()
        handler.check_fork()
        now = handler.monotonic()
        if self.worker.mark.cause is not None or (self.in_flight.requests and self.in_flight.has_lost(now)):
            self.restart()
        due = self._drive(now)
        if watched is not None:
            due = min(due, watched.look(woke, TICK_S if self.in_flight.requests else self.worker.idle_s))
        if self.sender.owes:
            now = handler.monotonic()
            self.sender.rest(now, (now - woke) * GROWTH)
            with self.lock:
                due = min(due, self.sender.next_due(now, self._ready_at))
        if self.closed and not self.owes:
            return None
        return min(due, handler.looks_at(handler.monotonic(), TICK_S if self.accumulator.unsettled else self.worker.idle_s))

    def _drive(self, now: float) -> float:
        """On the worker: do what the machine wants. Returns when the cluster or a transaction has something due."""
        metadata, sender, alone = self._cluster.metadata, self.sender, None
        due = metadata.due(now)
        if due > now and not (self._appender.news or self.notes.flushes or sender.owes or self.transactions is not None):
            return due
        with self.lock:
            if now >= self._producer_ids.lost_at:
                self._producer_ids.restart()
            self.notes.take()
            sender.pressed = self.memory.contended
            overdue = bool(self.in_flight.requests) and sender.is_overdue(now)
        if overdue:
            self._take_back(now)
        with self.lock:
            if due > now and not sender.outcomes.ended:
                alone = sender.send_alone(now, self._ready_at)
            if alone is None:
                plan = sender.poll(now, self._ready_at)
        if alone is not None:
            self._send(alone)
            return due
        self.finish()
        if plan.want_metadata:
            if plan.unknown:
                self._cluster.ask_for(plan.unknown, now)
            metadata.invalidate()
        due = self._cluster.poll() if plan.want_metadata or metadata.due(now) <= now else NEVER
        if plan.ask_producer_id:
            self._producer_ids.ask()
        for outgoing in plan.requests:  # in this order
            self._send(outgoing)
            self._handler.checkpoint()
        if self.transactions is not None:
            due = min(due, self.transactions.drive(now))
        return min(due, self._producer_ids.lost_at)

    def _roll(self, topic: str, partition: int) -> Batch | None:
        """Under the lock: take the partition's open batch out of the appender.

        Callers may have filled others since the worker took its notes. Theirs are taken here, so that
        the machine has those before this one.
        """
        batch = self._appender.take(topic, partition)
        if batch is not None and self._appender.news:
            self.notes.take()
        return batch

    def restart(self) -> None:
        """On the worker: begin anew. Who worked on the machine was interrupted, and how far it came nobody knows. Connections end, what was under way is sent
        again in its order, and what was about to be told is told. Raises if it was a bug.
        """
        self.worker.mark.raise_bug()
        self.restarts += 1
        level, why = logging.WARNING, "an answer was lost"
        if self.worker.mark.cause is not None:  # as the program's own signal handlers do, at its end, too
            level, why = logging.INFO, f"{type(self.worker.mark.cause).__name__} interrupted one of its workers"
        with self.lock:
            states = count_states(self.owed())
        log.log(level, "the producer begins anew, its connections end: %s; its batches: %s", why, states)
        for request in list(self.in_flight.requests):
            request.channel.close(CutShort("a worker of the producer was interrupted"))
        with self.lock:
            self.in_flight.clear()
            self._rebuild()
            if self.fatal is not None:
                self.sender.abandon(self.fatal)
            self._producer_ids.restart()
            self.worker.mark.cause = None
        if self.transactions is not None:
            self.transactions.ask_again()
        self.finish()

    def _rebuild(self) -> None:
        """Under the lock: rebuild the machine from what the batches tell, also those that the worker has not seen."""
        opened = self._appender.open_batches()  # before the notes: who rolls one of these now leaves one
        self.sender.restart((*self.notes.new_batches(), *opened))
        self.notes.restart()

    def warm(self, topic: str, partition: int) -> None:
        """Have the connection to a batch's leader open while the batch lingers. (At the interpreter's end none can be opened any more.)"""
        leader = self._cluster.metadata.leader(topic, partition)
        broker = self._cluster.broker_by_id(leader[0]) if leader is not None else None
        if broker is not None and not broker.has_channel(PRODUCE) and broker.ready_at <= self._handler.monotonic():
            with contextlib.suppress(KafkaException):  # whoever sends the batch meets it again
                broker.channel(PRODUCE, self.worker.taker)

    def _ready_at(self, broker_id: int) -> float:
        broker = self._cluster.broker_by_id(broker_id)
        return broker.ready_at if broker is not None else 0.0

    def _send(self, outgoing: Outgoing) -> None:
        broker = self._cluster.broker_by_id(outgoing.broker_id)
        if broker is None:
            self._answered(outgoing, LeaderNotFoundError(f"broker {outgoing.broker_id} is not in the metadata any more"))
            return
        newest = self.sender.newest_produce
        try:
            channel = broker.channel(PRODUCE, self.worker.taker)
            version = self._sealer.version(channel, broker, newest)
        except ForkedClientError:
            raise
        except KafkaException as exc:
            self._answered(outgoing, exc)
            return
        if not only_batches(version) and _is_numbered(outgoing):
            text = f"producer ids take Produce v3, which Kafka has since 0.11.0; broker {outgoing.broker_id} is asked by v{version}"
            refused = UnsupportedVersion(text, broker=outgoing.broker_id, api="Produce")
            doubt = broker.doubt_again(PRODUCE, "producer ids", refused) or self._sealer.told_since(version, channel, broker)
            if doubt is not None or self.transactions is not None:
                self._answered(outgoing, doubt or refused)
                return
        size, failed = self._sealer.seal(outgoing.batches, version)
        if failed:
            doubt = self._sealer.doubt(version, channel, broker, failed)
            if doubt is not None:
                self._answered(outgoing, doubt)
                return
            outgoing = self._without(outgoing, failed)
            if not outgoing.batches:
                self._answered(outgoing, None)
                return
        request = self.sender.requests.build(outgoing)
        on_done = partial(self._on_answer, outgoing)
        now, timeout_s = self._handler.monotonic(), self.in_flight.timeout_s
        self.in_flight.add(outgoing, channel, on_done, size, now)
        channel.send(request, on_done, timeout_s=timeout_s, max_version=newest, expects_response=self.sender.requests.acks != 0)

    def _take_back(self, now: float) -> None:
        """What is late and still waits for its connection goes no more, and so is certainly not written. All that waits beside it is taken back, to
        be sent again: it may share the request, and what comes after it has the next numbers.
        """
        for request in self.in_flight.beside(lambda batch: self.sender.delivery_limits.is_late(batch, now)):
            error = request.channel.withdraw(request.on_done)
            if error is not None:
                with self.lock:
                    self.sender.take_back(request.outgoing, error, now)
                    self.in_flight.remove(request.outgoing)

    def _without(self, outgoing: Outgoing, failed: list[tuple[Batch, KafkaException]]) -> Outgoing:
        bad = [batch for batch, _ in failed]
        with self.lock:
            for batch, error in failed:
                self.sender.refuse(batch, error)
        self.finish()
        return Outgoing(outgoing.broker_id, [b for b in outgoing.batches if b not in bad])

    def wait_for(self, batch: Batch, deadline: float, index: int | None = None) -> None:
        """Wait until a batch is done or split, or the deadline, and a moment at most; whoever waits looks again.

        index: of a record, to wait for the part of the batch that it is in.
        """
        if self.worker.task is None:
            self.worker.start()  # who was to start it could not
        until = min(deadline, self._handler.monotonic() + TICK_S)
        parker = self._handler.parker()
        wake = parker.wake
        with self.lock:
            if index is not None:
                batch = batch.part(index)
            if batch.waits is None:
                batch.waits = []
            batch.waits.append(wake)
        try:
            if not batch.done:
                parker.park(until)
        finally:
            if batch.waits:  # who woke this one took it out
                with contextlib.suppress(ValueError):
                    batch.waits.remove(wake)

    def end_with(self, fatal: KafkaException) -> None:
        """Nothing can be sent any more: everything fails with this."""
        self.fatal = fatal
        with self.lock:
            self.notes.take()
            self.sender.abandon(fatal)
        self.finish()

    def give_up(self, error: KafkaException) -> None:
        """Fail all that is not settled. The worker tells it, if it is there."""
        with self.lock:
            if self.worker.mark.cause is not None:
                self._rebuild()
            self.notes.take()
            self.sender.abandon(error)
        deadline = self._handler.monotonic() + TICK_S
        asked = self.all_owed(deadline)
        for batch in asked.batches:
            while not batch.done and self._handler.monotonic() < deadline:
                self.wait_for(batch, deadline)
        self.finish()  # in the place of a worker that does not come to it

    # -- answers ---------------------------------------------------------------------------------------------------------------
    def _on_answer(self, outgoing: Outgoing, response: Any, error: KafkaException | None) -> None:
        """On the connection's worker: settle what was asked, tell it, and have the next request go."""
        if isinstance(error, ForkedClientError):
            return  # in a forked child: what becomes of the records is the parent's to say
        if isinstance(error, UnsupportedVersion) and _is_numbered(outgoing):
            broker = self._cluster.broker_by_id(outgoing.broker_id)
            error = (broker and broker.doubt_again(PRODUCE, "producer ids", error)) or error
        try:
            with self.lock:
                if self.worker.mark.cause is not None or not self.in_flight.remove(outgoing):
                    return  # the worker begins anew, or has: all that was under way is sent again
                divided = self._settle(outgoing, response, error)
            self._after_answer(outgoing, error, divided)
        except BaseException as exc:
            self.worker.mark.tear(exc)
            raise
        if self.accumulator.unsettled or self.transactions is not None or error is not None:
            self.worker.signal.set()

    def _answered(self, outgoing: Outgoing, error: KafkaException | None) -> None:
        """It came to no answer: it was not handed to a connection."""
        with self.lock:
            divided = self._settle(outgoing, None, error)
        self._after_answer(outgoing, error, divided)

    def _settle(self, outgoing: Outgoing, response: Any, error: KafkaException | None) -> list[Batch]:
        """Under the lock. Returns the batches that were divided."""
        now = self._handler.monotonic()
        if error is None:
            self.pace.answered_at = now
        if self.sender.on_answer(outgoing, response, error, now):
            self._cluster.metadata.invalidate()
        divided, self.sender.splitter.divided = self.sender.splitter.divided, []
        return divided

    def _after_answer(self, outgoing: Outgoing, error: KafkaException | None, divided: list[Batch]) -> None:
        for batch in divided:
            if batch.waits:
                end_waits(batch.waits)  # who waits for it has to look again for what it waits for
        if isinstance(error, UnsupportedVersion):
            log.error("broker %s: %s", outgoing.broker_id, error)
        self.finish()

    # -- settling --------------------------------------------------------------------------------------------------------------
    def finish(self) -> None:
        """One completion for each batch that was settled: waiters wake, callbacks are queued for their worker, memory is given back.

        Before that, write what the machine has to log.
        """
        self.sender.lines.write()
        if not self.sender.outcomes.ended:
            return
        with self.lock:
            if self.worker.mark.cause is not None:
                return
            settled = self.sender.outcomes.take_ended()
        self.results.tell(settled)
        if self.closed:
            self.worker.signal.set()
            self.callbacks.wake.set()

    def hurry(self, deadline: float) -> None:
        """Somebody waits until then: a broker that cannot be reached is tried several times before, however long it would have rested."""
        now = self._handler.monotonic()
        if self._cluster.hurry(now + max(SHORTEST_REST_S, (deadline - now) / TRIES)):
            self.worker.signal.set()

    # -- room ------------------------------------------------------------------------------------------------------------------
    @property
    def own_available(self) -> int:
        """Bytes that a new batch could take, if there were no other producers."""
        available: int = self._appender.own_available
        return available

    def press(self) -> None:
        """Somebody waits for memory: nothing lingers."""
        if self.owes:
            self.worker.signal.set()


def _is_numbered(outgoing: Outgoing) -> bool:
    """Does it hold batches that a leader tells apart by their numbers (KIP-98)?"""
    return any(batch.extra.sequence >= 0 for batch in outgoing.batches)
