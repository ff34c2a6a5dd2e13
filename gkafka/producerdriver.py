"""What runs beneath a producer: it sends what the machine wants, takes the answers in and settles whole batches.

Who drives: with OS threads whoever has something to send (the caller whose batch is full, the connection's reader after an answer), so
that nobody waits for the interpreter's lock; with greenlets the producer's own worker, so that a killed caller leaves nothing half done.
"""

from __future__ import annotations

import contextlib
import weakref
from collections import deque
from collections.abc import Callable
from functools import partial
from itertools import starmap
from typing import TYPE_CHECKING, Any, NamedTuple

from gkafka.broker import CONTROL, PRODUCE
from gkafka.callbacks import Callbacks, end_waits, is_callback
from gkafka.common import CompressionType
from gkafka.config import ProducerConfig
from gkafka.core.accumulator import Accumulator
from gkafka.core.backoff import Backoff
from gkafka.core.numbering import Idempotence
from gkafka.core.sender import Outgoing, Sender, Settled
from gkafka.exceptions import (
    ForkedClientError,
    KafkaException,
    KafkaTimeoutError,
    LeaderNotFoundError,
    ProduceFailureError,
    SocketDisconnectedError,
    UnsupportedCodec,
    UnsupportedVersion,
)
from gkafka.failures import Failures
from gkafka.logs import get_logger
from gkafka.starter import Starter
from gkafka.wire.produce import ProduceRequest, holds_zstd, oldest_holding, only_batches, record_format

if TYPE_CHECKING:
    from gkafka.cluster import Cluster
    from gkafka.net.channel import Channel
    from gkafka.net.outbox import OnDone
    from gkafka.records import Appender, Batch
    from gkafka.transactions import Transactions

__all__ = ["ProducerDriver"]

log = get_logger(__name__)

TICK_S = 1.0
"""Longest sleep of the worker while records are on their way."""
END_S = 0.1
"""How long a worker gets at least to end: it was told, and ends at once unless its hub is kept from turning."""
IDLE_S = 2.0
"""The same while none is: forks and closed clients are noticed within it."""
STUCK_S = 5.0
"""A driver that was not heard of for so long was interrupted, and again before it could leave a note of that."""
TURN = "turn"
BUSY_S = 0.005
"""When a worker that found another driver at work looks again."""
ROUNDS = 8
"""So often one caller drives because of others' notes."""
BACKLOG_BYTES = 4 << 20
"""Memory beyond what is under way that a producer may fill as fast as it can: more than its brokers take within a rest."""
ANSWERING_S = 0.25
"""So long after an answer, and after the oldest record was produced, brokers count as keeping up."""
REST_S, PACE_S = 0.01, 0.001
"""Longest rest of who gets ahead of them, and when it looks again."""
TRIES, SHORTEST_REST_S = 4, 0.1
"""Whoever flushes has a broker that cannot be reached tried again within this part of the time that is left, but not sooner than that."""
BATCHES_AT_ONCE = 64
"""With greenlets, batches of one request: between two requests, and two answers, others run."""
OFFLOAD_BYTES = {1: 16 << 10, 2: 256 << 10, 3: 256 << 10, 4: 128 << 10}
"""Codec -> batch size from which compressing it takes more than ~0.5 ms, so that it leaves the hub (gzip, snappy, lz4, zstd)."""


class Flying(NamedTuple):
    """Batches that are under way: the connection that their request was handed to, and whom that will tell."""

    outgoing: Outgoing
    channel: Channel
    on_done: OnDone


class ProducerDriver:
    """Drives the sender of one producer.

    appender: where the records are; acks: 0, 1 or -1; codec, level: of the batches. `lock` guards the machine and is held for moments only.
    idle_s: longest sleep of the worker while nothing is unsettled.

    A signal handler's exception may end a caller between any two steps. It leaves a note then and keeps its turn, so that nobody drives before
    the worker, which no signal interrupts, has made the bookkeeping true again (`mend`); outcomes are told by workers alone (`finish`). Under gevent
    the worker itself may be hit, and the next one mends.
    """

    def __init__(self, cluster: Cluster, config: ProducerConfig, appender: Appender, *, acks: int, codec: int, level: int | None) -> None:
        self._cluster, self._config, self._handler, self._appender = cluster, config, cluster.handler, appender
        self._acks, self._codec, self._level = acks, codec, level
        self.cooperative = self._handler.cooperative
        self.memory = cluster.memory
        self.lock = self._handler.Mutex()
        self.accumulator = Accumulator()
        self.sender = Sender(
            self.accumulator,
            cluster.metadata,
            roll=appender.roll,
            acks=acks,
            idempotence=config.enable_idempotence if acks == -1 else False,
            linger_s=config.linger_ms / 1000,
            batch_bytes=config.batch_bytes,
            max_request_bytes=config.max_request_bytes,
            max_in_flight=config.max_in_flight,
            delivery_timeout_s=config.delivery_timeout_ms / 1000,
            request_timeout_s=config.request_timeout_ms / 1000,
            ack_timeout_s=None if config.ack_timeout_ms is None else config.ack_timeout_ms / 1000,
            retries=config.retries,
            backoff=Backoff(config.retry_backoff_ms / 1000, config.retry_backoff_max_ms / 1000),
            chance=self._handler.random(),
            set_limit=appender.set_limit,
            **({"most_batches": BATCHES_AT_ONCE} if self.cooperative else {}),
        )
        self.transactions: Transactions | None = None
        self.fatal: KafkaException | None = None
        self.delivered = 0
        self.settled_records = 0
        self.outcome = self._handler.Event()
        self.closed = False
        self.idle_s = IDLE_S
        self._turn: dict[str, object] = {}  # whose it is drives; dict.setdefault() is atomic, and nobody ever waits for it
        self._again = False
        self._interrupted: list[object] = []  # notes of those who were: what they held the turn as, or flushed as
        self._undo: Callable[[], None] | None = None  # what mends the step that the driver is in
        self._flushers: set[object] = set()
        self._id_asked: object = None  # the request for a producer id that counts, and the one that went out whole
        self._id_sent: object = None
        self._beat = 0.0
        self._flying: list[Flying] = []
        self._look_at = 0.0
        self._answers: deque[tuple[Outgoing, Any, KafkaException | None]] = deque()  # to what flies, not taken in yet
        self._half_taken = False
        self._half_told: list[Settled] | None = None  # by a caller that read its answer itself
        self._half_told_at = 0.0
        self._mends = False
        self._telling_at = 0.0
        self._answered_at = 0.0
        self._wake = self._handler.Event()
        self._sleeps_until = float("inf")
        self._worker: Any = None
        self._starter = Starter(self._handler)
        self._unclaimed = [None]  # whoever was interrupted while it started the worker may start another: one of them works
        self.callbacks = Callbacks(self._handler, self.lock, self.sender, self._give_back)
        self.failures = Failures(self.lock, self._handler.Mutex(), appender, self.memory)
        cluster.sleepers.update((self._wake, self.callbacks.wake))

    def start(self) -> None:
        """Start the worker, once; at once unless another caller is about to."""
        self._starter.run(self._start_worker)

    def _start_worker(self) -> None:
        if self._worker is None:
            self._handler.start()
            self._worker = self._handler.spawn(_work, weakref.ref(self), _name="gkafka-producer", _on_failure=_died(weakref.ref(self)))

    @property
    def started(self) -> bool:
        """Is the worker there? If not, whoever needs it calls start()."""
        return self._worker is not None

    def stop(self, deadline: float = 0.0) -> None:
        """End the workers once nothing is left to do for them. deadline: so long they may take, and the callbacks that are due; a moment at least."""
        self.closed = True
        self.memory.leave(self)
        self._wake.set()
        if self._worker is not None:
            self._worker.join(max(END_S, min(TICK_S * 2, deadline - self._handler.monotonic())))
        self.callbacks.stop(deadline)  # the worker may have started theirs just now

    def _worker_died(self, error: BaseException) -> None:
        """Without its worker nothing lingers or times out: everybody is told at once."""
        self.end_with(ProduceFailureError(f"the producer's worker was ended by {type(error).__name__}: {error}; make a new producer"))

    def _worker_was_interrupted(self, error: BaseException) -> bool:
        """Under gevent a signal handler's exception is raised in whatever greenlet is on CPU, and goes on to the main one. If it was the
        worker, another one puts right what it left half done, and goes on. False: it was no signal, or none can be started any more.
        """
        if not self.cooperative or not self._handler.interrupted(error):
            return False
        log.info("the producer's worker was interrupted by %s: another one goes on", type(error).__name__)
        self.suspect(self._turn.get(TURN))
        self._worker, self._unclaimed = None, [None]
        try:
            self.start()
        except KafkaException:
            return False
        return True

    def warm(self, topic: str, partition: int) -> None:
        """Have the connection to a batch's leader open while the batch lingers. (At the interpreter's end none can be opened any more.)"""
        leader = self._cluster.metadata.leader(topic, partition)
        broker = self._cluster.broker_by_id(leader[0]) if leader is not None else None
        if broker is not None and broker.ready_at <= self._handler.monotonic():
            with contextlib.suppress(KafkaException):  # whoever sends the batch meets it again
                broker.channel(PRODUCE)

    # -- driving -------------------------------------------------------------------------------------------------------------
    def kick(self) -> None:
        """Something may have become due."""
        me = object()
        try:
            if self.cooperative or self._drive(me) < self._sleeps_until:
                self._wake.set()  # the worker would sleep longer than the next batch lingers, or a pause lasts
        except BaseException:
            self.suspect(me)
            raise

    def _drive(self, me: object) -> float:
        """Do what the machine wants, until it wants nothing. One driver at a time: another one leaves a note and goes on.

        me: what the turn is taken as. Returns when to drive again at the latest.
        """
        deadline = 0.0
        for _ in range(ROUNDS):
            if self._turn.setdefault(TURN, me) is not me:
                self._again = True
                # The driver may have looked for notes just before this one was left.
                if self._turn.setdefault(TURN, me) is not me:
                    return self._handler.monotonic() + BUSY_S
            self._again = False
            deadline = self._drive_once()
            self._give_turn(me)
            if not self._again:
                return deadline
        self._wake.set()  # notes keep coming, and a caller has other things to do than to drive for all others
        return deadline

    def _give_turn(self, me: object) -> None:
        if self._turn.get(TURN) is me:
            del self._turn[TURN]

    def _drive_once(self) -> float:
        now = self._beat = self._handler.monotonic()
        metadata, sender, alone = self._cluster.metadata, self.sender, None
        due = metadata.due(now)
        if self._flying and sender.is_overdue(now):
            self._take_back(now)
        with self.lock:
            if due > now and not sender.ended:
                alone = sender.send_alone(now, self._ready_at)
            if alone is None:
                plan = sender.poll(now, self._ready_at)
        if alone is not None:
            self._send(alone)
            return min(due, now + self._config.delivery_timeout_ms / 1000)
        if sender.ended:
            self.finish()
        if plan.want_metadata:
            if plan.unknown:
                self._cluster.ask_for(plan.unknown, now)
            metadata.invalidate()
        due = self._cluster.poll() if plan.want_metadata or metadata.due(now) <= now else plan.deadline
        if plan.ask_producer_id:
            self._ask_producer_id()
        self._send_all(plan.requests)
        if self.transactions is not None:
            due = min(due, self.transactions.drive(now))
        return min(plan.deadline, due)

    def _send_all(self, requests: list[Outgoing]) -> None:
        """Send them, in this order."""
        for outgoing in requests:
            self._send(outgoing)
            if self.cooperative:  # only the worker drives then
                self._handler.checkpoint()
                self._beat = self._handler.monotonic()

    def suspect(self, who: object = None) -> None:
        """An exception from outside (a signal handler's) may have come between two steps that belong together: the worker looks.

        who: what the turn was taken as, or what counts among those who flush: it is over.
        """
        self._interrupted.append(who)
        self._wake.set()

    def mend(self) -> None:
        """On the worker, which no signal interrupts: put right what an interrupted caller left half done."""
        me, notes = object(), list(self._interrupted)
        holder = self._turn.setdefault(TURN, me)
        if holder is not me and holder not in notes and self._handler.monotonic() - self._beat < STUCK_S:
            return  # somebody is driving: later
        self._turn[TURN] = me
        try:
            self._mends = True
            del self._interrupted[: len(notes)]
            undo, self._undo = self._undo, None
            if undo is not None:
                undo()
            self._reconcile(notes)
            self._take_in()
            self._ask_again()
            self._relax()
        finally:
            self._mends = False
            self._give_turn(me)
        self.finish()

    def _cut_off(self, outgoing: Outgoing, channel: Channel) -> None:
        """A frame may stand half in a socket, or be counted as under way and be nowhere: its connection ends, and all of it is sent again."""
        channel.close()
        error = SocketDisconnectedError("the connection was closed: a caller was interrupted while it sent", broker=outgoing.broker_id)
        self._answers.append((outgoing, None, error))

    def _ask_again(self) -> None:
        """For a producer id, if who was to ask was interrupted."""
        if self.sender.state is Idempotence.ASKED and (self._id_asked is None or self._id_asked is not self._id_sent):
            self._id_asked = asked = object()
            self._on_producer_id(asked, None, SocketDisconnectedError("a caller was interrupted while it asked for a producer id"))
        if self.transactions is not None:
            self.transactions.ask_again()

    def _relax(self) -> None:
        """Who waits for memory presses; one that was interrupted while it left does not."""
        self.sender.pressed = False
        self.sender.pressed = self.memory.contended

    def _reconcile(self, gone: list[object]) -> None:
        """Make the bookkeeping match the appender, what connections really hold and who is still there. Nobody drives meanwhile."""
        with self.lock:
            self._flushers.difference_update(gone)
            self.sender.flushing = bool(self._flushers)
            if self.cooperative:
                self.sender.untold(list(self.sender.telling.values()))
            elif self._half_told is not None:
                telling = map(self.sender.telling.get, (settled.batch for settled in self._half_told))
                self.sender.untold([entry for entry in telling if entry is not None])
            self._half_told, self._half_taken = None, False
            self.sender.restore([flying.outgoing for flying in self._flying])
            opened = {(b.topic, b.partition): b for b in self._appender.open_batches()}
            for key, batch in list(self.accumulator.open.items()):
                if opened.get(key) is not batch:
                    self.accumulator.rolled(batch)
            for key, batch in opened.items():
                if self.accumulator.open.get(key) is not batch:
                    self.accumulator.opened(batch)
            if self.fatal is not None:
                self.sender.abandon(self.fatal)

    def _ready_at(self, broker_id: int) -> float:
        broker = self._cluster.broker_by_id(broker_id)
        return broker.ready_at if broker is not None else 0.0

    def _send(self, outgoing: Outgoing) -> None:
        failed: list[tuple[Batch, KafkaException]] = []
        broker = self._cluster.broker_by_id(outgoing.broker_id)
        if broker is None:
            self._answered(outgoing, LeaderNotFoundError(f"broker {outgoing.broker_id} is not in the metadata any more"))
            return
        try:
            channel = broker.channel(PRODUCE)
            version = self._produce_version(channel, broker)
        except ForkedClientError:
            raise
        except KafkaException as exc:
            self._answered(outgoing, exc)
            return
        if not only_batches(version) and _is_numbered(outgoing):
            text = f"producer ids take Produce v3, which Kafka has since 0.11.0; broker {outgoing.broker_id} is asked by v{version}"
            refused = UnsupportedVersion(text, broker=outgoing.broker_id, api="Produce")
            doubt = broker.doubt_again(PRODUCE, "producer ids", refused) or self._told_since(version, channel, broker)
            if doubt is not None or self.transactions is not None:
                self._answered(outgoing, doubt or refused)
                return
        for batch in outgoing.batches:
            try:
                self._seal(batch, version)
            except Exception as exc:
                failed.append((batch, self._not_sealed(batch, exc)))
        if failed:
            doubt = self._doubt(channel, broker, version, failed)
            if doubt is not None:
                self._answered(outgoing, doubt)
                return
            outgoing = self._without(outgoing, failed)
            if not outgoing.batches:
                self._answered(outgoing, None)
                return
        request = self.sender.request(outgoing)
        self._undo = partial(self._cut_off, outgoing, channel)
        on_done = partial(self._on_answer, outgoing)
        self._flying.append(Flying(outgoing, channel, on_done))
        channel.send(
            request,
            on_done,
            timeout_s=self._config.request_timeout_ms / 1000,
            max_version=self.sender.newest_produce,
            expects_response=self._acks != 0,
        )
        self._undo = None

    def _take_back(self, now: float) -> None:
        """What is late and still waits for its connection goes no more, and so is certainly not written. All that waits beside it is taken back, to
        be sent again: it may share the request, and what comes after it has the next numbers.
        """
        flying = list(self._flying)
        late = [channel for outgoing, channel, _ in flying if any(self.sender.is_late(batch, now) for batch in outgoing.batches)]
        for outgoing, channel, on_done in flying:
            if channel not in late:
                continue
            self._undo = partial(self._cut_off, outgoing, channel)
            error = channel.withdraw(on_done)
            if error is not None:
                with self.lock:
                    self.sender.take_back(outgoing, error, now)
                    self._land(outgoing)
            self._undo = None

    def _doubt(self, channel: Any, broker: Any, version: int, failed: list[tuple[Batch, KafkaException]]) -> KafkaException | None:
        """What all of a request fail with, to be tried again, if a broker may only have been taken for one that is too old for them, or has said that it is
        newer since that version was chosen."""
        if not any(isinstance(error, UnsupportedVersion | UnsupportedCodec) for _, error in failed):
            return None
        if channel.versions is None and broker.told_versions is None:
            # Its connection opens, and the version is that of the broker that told the metadata: of another release, in a rolling upgrade.
            return SocketDisconnectedError(f"broker {broker.id} has not said yet what it speaks", broker=broker.id, api="Produce")
        return channel.doubt("record headers, or this codec") or self._told_since(version, channel, broker)

    def _told_since(self, version: int, channel: Any, broker: Any) -> KafkaException | None:
        """What to try again with if the broker has said what it speaks since that version was chosen, as its connection opened."""
        try:
            if self._produce_version(channel, broker) == version:
                return None
        except KafkaException as exc:
            return exc
        text = f"broker {broker.id} has said what it speaks since these records were made ready for v{version} of Produce"
        return SocketDisconnectedError(text, broker=broker.id, api="Produce")

    def _produce_version(self, channel: Any, broker: Any) -> int:
        """The newest Produce that the broker takes. While its connection opens: as it last said, or what the broker that told the metadata takes."""
        versions = channel.versions or broker.told_versions or self._cluster.versions
        newest = self.sender.newest_produce
        version: int = versions.pick(ProduceRequest.API, max_version=newest) if versions is not None else ProduceRequest.API.stable.high
        return version

    def _seal(self, batch: Batch, version: int) -> None:
        if self._codec == CompressionType.ZSTD and not holds_zstd(version):
            raise UnsupportedCodec("compression='zstd' needs brokers of Kafka 2.1 or newer (KIP-110): choose lz4, snappy or gzip")
        magic = record_format(version)
        flight = batch.extra
        producer_id, epoch = flight.producer if flight.sequence >= 0 else (-1, -1)
        if batch.sealed:
            if flight.sequence >= 0 and oldest_holding(batch.wire)[0]:
                batch.restamp(producer_id, epoch, flight.sequence)
            return
        transactional = self.sender.transaction is not None
        seal: Callable[[], None]
        if magic < 2:
            seal = partial(batch.seal_legacy, magic, self._codec, self._level)
        else:
            seal = partial(
                batch.seal,
                self._codec,
                self._level,
                producer_id=producer_id,
                producer_epoch=epoch,
                base_sequence=flight.sequence,
                transactional=transactional,
            )
        if self.cooperative and batch.size >= OFFLOAD_BYTES.get(self._codec, 1 << 62):
            self._handler.offload(seal)  # compressing takes long: away from the hub (records.compression drops the interpreter's lock)
        else:
            seal()

    def _not_sealed(self, batch: Batch, error: Exception) -> KafkaException:
        """What a batch fails with that cannot be made ready to send: alone, for the next one may be. Raises what a signal handler raised."""
        interruption = self._handler.interruption(error)
        if interruption is not None:
            raise interruption
        if isinstance(error, KafkaException):
            return error
        log.error("sealing %r failed", batch, exc_info=error)
        failure = ProduceFailureError(
            f"{batch.topic}-{batch.partition}: {batch.count} record(s) could not be made ready to send"
            f" (compression={CompressionType(self._codec).name.lower()}): {type(error).__name__}: {error}; the producer goes on: produce them"
            " again, with another compression= if it is the codec",
            topic=batch.topic,
            partition=batch.partition,
        )
        failure.__cause__ = error.with_traceback(None)  # its frames hold the batch
        return failure

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
        if not self.started:
            self.start()  # who was to start it could not
        until = min(deadline, self._handler.monotonic() + TICK_S)
        if not self.cooperative and self._read_for(batch if index is None else batch.part(index), until):
            return
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

    def _read_for(self, batch: Batch, deadline: float) -> bool:
        """With OS threads, who waits for a batch that travels alone takes its answer in, so that no reader has to wake anybody. False: it cannot."""
        for outgoing, channel, _ in list(self._flying) if self._acks else ():  # without an answer nothing comes to be read
            if outgoing.batches[0] is batch and len(outgoing.batches) == 1:
                return channel.read_until(lambda: batch.done, deadline)
        return False

    def end_with(self, fatal: KafkaException) -> None:
        """Nothing can be sent any more: everything fails with this."""
        self.fatal = fatal
        self.give_up(fatal)

    def give_up(self, error: KafkaException) -> None:
        """Fail all that is not settled."""
        with self.lock:
            self.sender.abandon(error)
        self.finish()

    def go_on(self) -> None:
        """From an answer's worker: drive, or have it done."""
        self._again = True
        self.kick()

    def _on_answer(self, outgoing: Outgoing, response: Any, error: KafkaException | None) -> None:
        """On the connection's worker: take the answer in and let the next request go, if there is one to come."""
        if isinstance(error, ForkedClientError):
            return  # in a forked child: what becomes of the records is the parent's to say
        if isinstance(error, UnsupportedVersion) and _is_numbered(outgoing):
            broker = self._cluster.broker_by_id(outgoing.broker_id)
            error = (broker and broker.doubt_again(PRODUCE, "producer ids", error)) or error
        self._answers.append((outgoing, response, error))
        try:
            self._take_in()
            if self.sender.pressed and error is None:
                self._wake.set()  # callers wait for memory: while the worker sends, the next answer is taken in and frees some
            elif self._is_wanted(error):
                self.kick()
        except BaseException:
            self.suspect()
            raise

    def _take_in(self) -> None:
        """Take in the answers that came. Each stays where it is until that is done: whoever was interrupted leaves it to mend()."""
        while self._answers:
            if self.cooperative and self._interrupted:
                self._wake.set()
                return
            with self.lock:
                if not self._answers:
                    return
                if self._half_taken:  # a caller that read its answer itself was interrupted in here: mend() first
                    self.suspect()  # perhaps once more: it was interrupted again before it could
                    return
                self._half_taken = True
                outgoing, response, error = self._answers[0]
                divided = self._settle(outgoing, response, error) if self._is_flying(outgoing) else []
                self._land(outgoing)
                self._answers.popleft()
                self._half_taken = False
            self._after_answer(outgoing, error, divided)

    def _is_wanted(self, error: KafkaException | None) -> bool:
        """Is there anything to be driven after an answer?"""
        return bool(self.accumulator.unsettled) or self.transactions is not None or error is not None

    def _answered(self, outgoing: Outgoing, error: KafkaException | None) -> None:
        """It came to no answer: it was not handed to a connection."""
        with self.lock:
            divided = self._settle(outgoing, None, error)
        self._after_answer(outgoing, error, divided)

    def _settle(self, outgoing: Outgoing, response: Any, error: KafkaException | None) -> list[Batch]:
        """Under the lock. Returns the batches that were divided."""
        now = self._handler.monotonic()
        if error is None:
            self._answered_at = now
        _, stale = self.sender.on_answer(outgoing, response, error, now)
        if stale:
            self._cluster.metadata.invalidate()
        divided, self.sender.divided = self.sender.divided, []
        if self._is_wanted(error):
            self._again = True  # whoever drives after this sees it all
        return divided

    def _after_answer(self, outgoing: Outgoing, error: KafkaException | None, divided: list[Batch]) -> None:
        for batch in divided:
            _wake(batch)  # who waits for it has to look again for what it waits for
        if isinstance(error, UnsupportedVersion):
            log.error("broker %s: %s", outgoing.broker_id, error)
        self.finish()

    def _is_flying(self, outgoing: Outgoing) -> bool:
        """Was it handed to a connection, and has not landed yet? What has was given up by mend(), and its answer comes too late."""
        for other in self._flying:  # noqa: SIM110  # a generator takes longer than the answer to the only request
            if other.outgoing is outgoing:  # one with the same batches that is equal may be under way by now
                return True
        return False

    def _land(self, outgoing: Outgoing) -> None:
        """It is not under way any more."""
        for n, other in enumerate(self._flying):
            if other.outgoing is outgoing:
                del self._flying[n]  # in one step: who drives may append meanwhile
                return

    def _look_for_stranded(self, now: float) -> None:
        """On the worker that alone drives, about once a second: what flies on a connection that has nothing to answer was lost there, because signals
        came one right behind the other. It is sent again.
        """
        if not self.cooperative or self._acks == 0 or now < self._look_at:
            return
        self._look_at = now + TICK_S
        told = [id(outgoing) for outgoing, _, _ in self._answers]
        for outgoing, channel, _ in list(self._flying):
            if channel.is_done and id(outgoing) not in told:
                error = SocketDisconnectedError("a worker was interrupted while it took the answer", broker=outgoing.broker_id)
                self._answers.append((outgoing, None, error))

    def _ask_producer_id(self) -> None:
        request = self._id_asked = self.sender.producer_id_request()
        broker = min(list(self._cluster._brokers.values()), key=lambda b: (b.ready_at, *b.load), default=None)
        timeout_s = self._config.request_timeout_ms / 1000
        try:
            if broker is None:
                raise KafkaTimeoutError("no broker is known yet")
            broker.send(CONTROL, request, partial(self._on_producer_id, request), timeout_s=timeout_s)
            self._id_sent = request
        except KafkaException as exc:
            self._on_producer_id(request, None, exc)

    def _on_producer_id(self, asked: object, response: Any, error: KafkaException | None) -> None:
        try:
            self._take_producer_id(asked, response, error)
        except BaseException:
            self.suspect()
            raise

    def _take_producer_id(self, asked: object, response: Any, error: KafkaException | None) -> None:
        with self.lock:
            if asked is not self._id_asked:
                return  # it was given up by mend()
            fatal = self.sender.on_producer_id(response, error, self._handler.monotonic())
            self._id_asked = None
        if fatal is not None:
            log.error("no producer id: %s", fatal)
            self.end_with(fatal)
        self._again = True
        self.kick()

    # -- settling --------------------------------------------------------------------------------------------------------------
    def finish(self) -> None:
        """One completion for each batch that was settled: waiters wake, callbacks are queued for the worker, memory is given back."""
        if not self.sender.ended:
            return
        may_be_cut = self._handler.interruptible() and self._worker is not None and self._worker.is_alive()
        self._telling_at = self._handler.monotonic()
        settled: list[Settled] = []
        try:
            with self.lock:
                if may_be_cut:
                    if self._interrupted or self._mends or self._half_told is not None:
                        self._wake.set()  # the worker puts right what was cut first
                        return
                    self._half_told, self._half_told_at = self.sender.ended, self._telling_at
                settled = self.sender.take_ended()
            for outcome in settled:
                self._tell(outcome)
        except BaseException:  # a greenlet was killed while a log took its time, or a signal's exception hit it: the worker goes on
            if not (self.cooperative or may_be_cut):
                with self.lock:
                    self.sender.told(settled)
            self.suspect()
            raise
        with self.lock:  # readers of several connections may be here at once
            self.sender.told(settled)
            for outcome in settled:
                if outcome.batch.done:
                    self.settled_records += outcome.batch.count
            if may_be_cut:
                self._half_told = None
        if settled:
            if not self.outcome.is_set():
                self.outcome.set()
            self.memory.give_room()
            if self.closed:
                self._wake.set()
                self.callbacks.wake.set()

    @property
    def _is_suspicious(self) -> bool:
        """Has somebody left a note that he was interrupted, or not been heard of for so long that he was without leaving one?"""
        if self._interrupted:
            return True
        now = self._handler.monotonic()
        left_untold = self.cooperative and self.sender.telling and now - self._telling_at > STUCK_S
        half_told = self._half_told is not None and now - self._half_told_at > STUCK_S
        return bool(left_untold or half_told or (self._turn and now - self._beat > STUCK_S))

    def _tell(self, outcome: Settled) -> None:
        batch = outcome.batch
        whole = batch.parent or batch
        heard = self.sender.telling[batch].callbacks
        if heard:
            pass  # from who was interrupted
        elif outcome.error is None:
            self.delivered += batch.count
            heard.extend(starmap(batch.complete, ((outcome.base_offset, outcome.log_append_time),)))  # in one step of C
        else:
            # Kept before it is done: a flush() that sees the last batch done must find it among the failures.
            self.failures.keep(batch, outcome.error)
            heard.extend(starmap(batch.fail, ((outcome.error, batch.extra.persisted),)))
        callbacks = heard[0]
        if callbacks and len(heard) == 1:
            self.callbacks.add(batch, whole, callbacks, heard)
        elif outcome.error is not None and not callbacks:
            self.failures.called(batch)
        _wake(batch)
        if whole is not batch and whole.done:
            _wake(whole)
        if outcome.error is None and not callbacks:
            self._appender.release(batch)

    def hurry(self, deadline: float) -> None:
        """Somebody waits until then: a broker that cannot be reached is tried several times before, however long it would have rested."""
        now = self._handler.monotonic()
        if self._cluster.hurry(now + max(SHORTEST_REST_S, (deadline - now) / TRIES)):
            self.kick()

    # -- who flushes -------------------------------------------------------------------------------------------------------------
    def flush_begins(self, who: object) -> None:
        """Nothing lingers while somebody flushes. Called under the lock."""
        self._flushers.add(who)
        self.sender.flushing = True

    def flush_ends(self, who: object) -> None:
        """The same caller is done."""
        with self.lock:
            self._flushers.discard(who)
            self.sender.flushing = bool(self._flushers)

    # -- room ------------------------------------------------------------------------------------------------------------------
    @property
    def available(self) -> int:
        """Bytes that a new batch could take."""
        available: int = self._appender.available
        return available

    @property
    def own_available(self) -> int:
        """The same, if there were no other producers."""
        available: int = self._appender.own_available
        return available

    def keep_pace(self) -> None:
        """Called before a batch is begun. While the brokers answer, memory beyond what keeps their connections busy gains nothing: whoever fills it
        faster than they take it rests for a moment. When they do not, records gather until the buffer is full.
        """
        if not self._is_ahead() or is_callback(self._handler):  # what is ahead there may wait for that very callback
            return
        with self.lock:
            oldest = next(iter(self.accumulator.unsettled), None)
        begun = oldest.created if oldest is not None else 0.0
        until = self._handler.monotonic() + REST_S
        while (now := self._handler.monotonic()) < until and now - max(begun, self._answered_at) < ANSWERING_S and self._is_ahead():
            self._handler.sleep(PACE_S)

    def _is_ahead(self) -> bool:
        held = self._appender.buffer_bytes - self._appender.own_available
        if held <= BACKLOG_BYTES:
            return False
        flying = sum(batch.size for outgoing, _, _ in list(self._flying) for batch in outgoing.batches)
        return bool(held - flying > max(BACKLOG_BYTES, flying))

    def press(self, pressed: bool) -> None:
        """Let nothing linger while somebody waits for memory."""
        self.sender.pressed = pressed
        if pressed and self.accumulator.unsettled:
            self.kick()

    def _give_back(self, batch: Batch) -> None:
        """Its callbacks had their look at the records, or could not wait for it. What failed is still to be reported."""
        if batch.error is None:
            self._appender.release(batch)
        else:
            self.failures.called(batch)
        self.memory.give_room()


def _is_numbered(outgoing: Outgoing) -> bool:
    """Does it hold batches that a leader tells apart by their numbers (KIP-98)?"""
    return any(batch.extra.sequence >= 0 for batch in outgoing.batches)


def _wake(batch: Batch) -> None:
    """End the waits for a batch."""
    if batch.waits:
        end_waits(batch.waits)


def _died(ref: weakref.ref[ProducerDriver]) -> Callable[[BaseException], None]:
    def on_failure(error: BaseException) -> None:
        driver = ref()
        if driver is None or isinstance(error, ForkedClientError) or driver._worker_was_interrupted(error):
            return
        log.error("the producer's worker ended by %s", type(error).__name__, exc_info=error)
        driver._worker_died(error)

    return on_failure


def _claimed(driver: ProducerDriver) -> bool:
    try:
        driver._unclaimed.pop()
    except IndexError:
        return False
    return True


def _work(ref: weakref.ref[ProducerDriver]) -> None:
    """The producer's worker: lingering, timeouts; under gevent also everything else. Ends with its producer."""
    if (driver := ref()) is None or not _claimed(driver):
        return
    while True:
        driver = ref()
        if driver is None:
            return
        driver._wake.clear()  # before looking: whoever closes sets it after
        driver.finish()
        if driver.closed and not driver.sender.owes:
            return
        handler = driver._handler
        handler.check_fork()
        # Whoever drives meanwhile cannot know when this worker would wake: it wakes it.
        driver._sleeps_until = float("inf")
        if driver._is_suspicious:
            driver.mend()
        driver._look_for_stranded(handler.monotonic())
        driver._take_in()
        deadline = driver._drive(object())
        now = handler.monotonic()
        wake = driver._wake
        driver._sleeps_until = min(deadline, handler.looks_at(now, TICK_S if driver.accumulator.unsettled else driver.idle_s))
        left = driver._sleeps_until - now
        del driver
        wake.wait(max(0.0, left))
