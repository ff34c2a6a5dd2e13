"""What runs beneath a producer: its worker sends what the machine wants; the connections' workers take the answers in and settle whole batches.

A caller does none of this. It appends to open batches, leaves a note (`Appender.news`, `hurried`, `Owed`) and wakes the worker, each in one step: wherever a
signal handler's exception, a kill or a time-out ends it, nothing is half done.
"""

from __future__ import annotations

import contextlib
import weakref
from collections import deque
from collections.abc import Callable, Iterable
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
from gkafka.net.channel import CutShort
from gkafka.net.watched import Watched
from gkafka.starter import Starter, held_weakly
from gkafka.wire.produce import ProduceRequest, holds_zstd, oldest_holding, only_batches, record_format

if TYPE_CHECKING:
    from gkafka.cluster import Cluster
    from gkafka.handlers import Handler
    from gkafka.handlers.primitives import Event
    from gkafka.net.channel import Channel
    from gkafka.net.outbox import OnDone
    from gkafka.net.reader import Taker
    from gkafka.records import Appender, Batch
    from gkafka.transactions import Transactions

__all__ = ["ProducerDriver"]

log = get_logger(__name__)

AWAKE = float("inf")
TICK_S = 1.0
"""Longest sleep of the worker while records are on their way."""
END_S = 0.1
"""How long a worker gets at least to end: it was told, and ends at once unless its hub is kept from turning."""
IDLE_S = 2.0
"""The same while none is: forks and closed clients are noticed within it."""
GROWTH = 3
"""After a round that took t no batch is taken for its age alone until this many t have passed: where batches are small because there are many partitions,
they grow until sending them takes no more than a quarter of the time."""
FULL_UNSEEN = 4
"""Full batches that the worker has not seen: those who produce hand over to it. At each one that takes more than it gives: 1.06 M records/s of 1 KB in place of 1.42 M."""
BACKLOG_BYTES = 4 << 20
"""Memory beyond what is under way that a producer may fill as fast as it can: more than its brokers take within a rest."""
ANSWERING_S = 0.25
"""So long after an answer, and after the oldest record was produced, brokers count as keeping up."""
REST_S, PACE_S = 0.01, 0.001
"""Longest rest of who gets ahead of them, and when it looks again."""
LOST_S = 2.0
"""So long after a request's time its connection has told of it, or never will: who was to tell was interrupted, more than once."""
TRIES, SHORTEST_REST_S = 4, 0.1
"""Whoever flushes has a broker that cannot be reached tried again within this part of the time that is left, but not sooner than that."""
BATCHES_AT_ONCE = 64
"""With greenlets, batches of one request: between two requests, and two answers, others run."""
OFFLOAD_BYTES = {1: 16 << 10, 2: 256 << 10, 3: 256 << 10, 4: 128 << 10}
"""Codec -> batch size from which compressing it takes more than ~0.5 ms, so that it leaves the hub (gzip, snappy, lz4, zstd)."""


class Flying(NamedTuple):
    """Batches that are under way: the connection that their request was handed to, whom that will tell, how many bytes they hold, and by when it tells."""

    outgoing: Outgoing
    channel: Channel
    on_done: OnDone
    size: int
    until: float


class Owed:
    """Somebody flushes, as long as he holds this. batches: what had no outcome when the worker looked; told: set then."""

    __slots__ = ("__weakref__", "batches", "told")

    def __init__(self, told: Any) -> None:
        self.batches: list[Batch] = []
        self.told = told


class ProducerDriver:
    """Drives the sender of one producer.

    appender: where the records are; acks: 0, 1 or -1; codec, level: of the batches. `lock` guards the machine and is held for moments only.
    idle_s: longest sleep of the worker while nothing is unsettled.

    With OS threads no signal interrupts a worker. Under gevent a signal handler's exception is raised in whatever greenlet is on CPU, also in one of those
    that work here: it leaves the mark `torn`, and the worker begins anew (`restart`). Nothing is mended.
    """

    def __init__(self, cluster: Cluster, config: ProducerConfig, appender: Appender, *, acks: int, codec: int, level: int | None) -> None:
        self._cluster, self._config, self._handler, self._appender = cluster, config, cluster.handler, appender
        self._acks, self._codec, self._level = acks, codec, level
        self.memory = cluster.memory
        self.lock = self._handler.Mutex()
        self.accumulator = Accumulator()
        self.sender = Sender(
            self.accumulator,
            cluster.metadata,
            roll=appender.take,
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
            **({"most_batches": BATCHES_AT_ONCE} if self._handler.cooperative else {}),
        )
        self.transactions: Transactions | None = None
        self.fatal: KafkaException | None = None
        self.delivered = self.settled_records = self.restarts = 0
        self.outcome = self._handler.Event()
        self.closed = False
        self.idle_s = IDLE_S
        self.hurried: deque[Batch] = deque()  # somebody waits for them
        self._asked: deque[weakref.ref[Owed]] = deque()  # who flushes, and was not told yet for what
        self._flushers: list[weakref.ref[Owed]] = []
        self._id_asked: object = None  # the request for a producer id that counts
        self._flying: list[Flying] = []
        self._flying_bytes = 0
        self._seen_bytes = 0  # of the appender's rolled_bytes
        self._much_unseen = config.batch_bytes * (2 if self._handler.cooperative else FULL_UNSEEN)
        self._answered_at = 0.0
        self.torn: BaseException | None = None
        alarm = self._handler.alarm()
        self.watched = None if alarm is None else Watched(self._handler, alarm)  # connections that the worker reads itself
        self._wake: Event = alarm or self._handler.Event()
        self._sleeps_until = AWAKE
        self._worker: Any = None
        self._starter = Starter(self._handler)
        self._unclaimed = [None]  # whoever was interrupted while it started the worker may start another: one of them works
        self.callbacks = Callbacks(self._handler, self.lock, self.sender, self._give_back)
        self.failures = Failures(self.lock, self._handler.Mutex(), appender, self.memory)
        cluster.sleepers.update((self._wake, self.callbacks.wake))

    # -- its worker ----------------------------------------------------------------------------------------------------------
    def start(self) -> None:
        """Start the worker, once; at once unless another caller is about to."""
        self._starter.run(self._start_worker)

    def _start_worker(self) -> None:
        if self._worker is None:
            self._handler.start()
            ref = held_weakly(self, self._wake)
            self._worker = self._handler.spawn(_work, ref, _name="gkafka-producer", _on_failure=_died(ref))

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
        """Under gevent, by what a signal handler raised, which goes on to the main greenlet: another one begins anew. False: it was no signal, or none can
        be started any more.
        """
        if not self._handler.cooperative or not self._handler.interrupted(error):
            return False
        self.torn = error
        self._worker, self._unclaimed = None, [None]
        try:
            self.start()
        except KafkaException:
            return False
        return True

    @property
    def taker(self) -> Taker | None:
        """Who takes connections that are opened for this producer; None: they have readers of their own."""
        return None if self.watched is None else self.watched.take

    # -- what callers leave ----------------------------------------------------------------------------------------------------
    def wake(self, due: float = 0.0) -> None:
        """There is something to do at that time, which the worker does not know of."""
        if due < self._sleeps_until:
            self._wake.set()

    def hand_over(self) -> None:
        """From who goes on producing: once full batches wait for the worker, let it go on, and who takes in answers."""
        if self._appender.rolled_bytes - self._seen_bytes >= self._much_unseen:
            self._handler.hand_over(self._wake)

    def hurry_batch(self, batch: Batch) -> None:
        """Somebody waits for it: it lingers no more, if it is open."""
        if batch.is_open:
            self.hurried.append(batch)
            self.wake()

    def all_owed(self, deadline: float) -> Owed:
        """What has no outcome now; nothing lingers as long as this is held. If the worker does not look by the deadline: what can be seen from here."""
        asked = Owed(self._handler.Event())
        if not self.owes:
            return asked
        self._asked.append(weakref.ref(asked))
        if not self.started:
            self.start()
        while not asked.told.is_set():
            left = deadline - self._handler.monotonic()
            if left <= 0:
                asked.batches = _wholes(self.owed())
                break
            self._wake.set()
            asked.told.wait(min(left, TICK_S))
            self._handler.check_fork()
        return asked

    def unsettled(self) -> list[Batch]:
        """What has no outcome, for whoever may not take locks."""
        return self._and_news(self.accumulator.unsettled)

    def owed(self) -> list[Batch]:
        """The same, and what has an outcome that was not told."""
        return self._and_news(self.sender.owed())

    def _and_news(self, batches: Iterable[Batch]) -> list[Batch]:
        return list(dict.fromkeys((*batches, *(batch for batch in list(self._appender.news) if not batch.done))))

    @property
    def owes(self) -> bool:
        """Is there a batch without an outcome, or an outcome that was not told?"""
        return self.sender.owes or any(not batch.done for batch in list(self._appender.news))

    def _take_notes(self) -> None:
        """Under the lock: what callers left. Telling the machine twice does nothing, so a note goes when it was taken."""
        news, accumulator = self._appender.news, self.accumulator
        while news:
            batch = news[0]
            if batch.extra is not None:
                pass  # it was taken already
            elif batch.is_open:
                accumulator.opened(batch)
            else:
                self._seen_bytes += batch.size
                accumulator.rolled(batch)
            news.popleft()
        while self.hurried:
            accumulator.hurry(self.hurried[0])
            self.hurried.popleft()
        while self._asked:
            asked = self._asked[0]()
            if asked is not None:
                asked.batches = _wholes(self.sender.owed())
                self._flushers.append(self._asked[0])
                asked.told.set()
            self._asked.popleft()
        if self._flushers:
            self._flushers = [flusher for flusher in self._flushers if flusher() is not None]
        self.sender.flushing = bool(self._flushers)
        self.sender.pressed = self.memory.contended

    # -- driving -------------------------------------------------------------------------------------------------------------
    def _turn(self, handler: Handler) -> float:
        """On the worker: all that is to be done now. Returns when something is due by time alone."""
        woke = handler.monotonic()
        if self.watched is not None:
            self.watched.read()
        handler.check_fork()
        now = handler.monotonic()
        if self.torn is not None or (self._flying and self._has_lost(now)):
            self.restart()
        due = self._drive(now)
        if self.watched is not None:
            due = min(due, self.watched.look(woke, TICK_S if self._flying else self.idle_s))
        if self.sender.owes:
            now = handler.monotonic()
            self.sender.rest(now, (now - woke) * GROWTH)
            with self.lock:
                due = min(due, self.sender.next_due(now, self._ready_at))
        return due

    def _drive(self, now: float) -> float:
        """On the worker: do what the machine wants. Returns when the cluster or a transaction has something due."""
        metadata, sender, alone = self._cluster.metadata, self.sender, None
        due = metadata.due(now)
        if due > now and not (self._appender.news or self._asked or sender.owes or self.transactions is not None):
            return due
        with self.lock:
            self._take_notes()
            overdue = bool(self._flying) and sender.is_overdue(now)
        if overdue:
            self._take_back(now)
        with self.lock:
            if due > now and not sender.ended:
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
        due = self._cluster.poll() if plan.want_metadata or metadata.due(now) <= now else AWAKE
        if plan.ask_producer_id:
            self._ask_producer_id()
        for outgoing in plan.requests:  # in this order
            self._send(outgoing)
            self._handler.checkpoint()
        if self.transactions is not None:
            due = min(due, self.transactions.drive(now))
        return due

    def _has_lost(self, now: float) -> bool:
        """Has a connection forgotten the oldest request that is under way?"""
        return now >= self._flying[0].until and self._flying[0].channel.is_done

    def restart(self) -> None:
        """On the worker: begin anew. Who worked on the machine was interrupted, and how far it came nobody knows. Connections end, what was under way is sent
        again in its order, and what was about to be told is told.
        """
        self.restarts += 1
        if self.torn is None:
            log.warning("the producer begins anew, its connections end: an answer was lost")
        else:  # as the program's own signal handlers do, at its end, too
            log.info("the producer begins anew, its connections end: %s interrupted one of its workers", type(self.torn).__name__)
        for _, channel, *_ in list(self._flying):
            channel.close(CutShort("a worker of the producer was interrupted"))
        with self.lock:
            self._flying, self._flying_bytes = [], 0
            unseen = {batch for batch in self._appender.news if batch.extra is None and not batch.is_open}
            self._seen_bytes = self._appender.rolled_bytes - sum(batch.size for batch in unseen)
            self.sender.restart(self._appender.open_batches())
            if self.fatal is not None:
                self.sender.abandon(self.fatal)
            if self.sender.state is Idempotence.ASKED:
                self._id_asked = None
                self.sender.on_producer_id(None, CutShort("who asked for a producer id was interrupted"), self._handler.monotonic())
            self.torn = None
        if self.transactions is not None:
            self.transactions.ask_again()
        self.finish()

    def warm(self, topic: str, partition: int) -> None:
        """Have the connection to a batch's leader open while the batch lingers. (At the interpreter's end none can be opened any more.)"""
        leader = self._cluster.metadata.leader(topic, partition)
        broker = self._cluster.broker_by_id(leader[0]) if leader is not None else None
        if broker is not None and not broker.has_channel(PRODUCE) and broker.ready_at <= self._handler.monotonic():
            with contextlib.suppress(KafkaException):  # whoever sends the batch meets it again
                broker.channel(PRODUCE, self.taker)

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
            channel = broker.channel(PRODUCE, self.taker)
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
        size = 0
        for batch in outgoing.batches:
            try:
                self._seal(batch, version)
                size += batch.size
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
        on_done = partial(self._on_answer, outgoing)
        timeout_s = self._config.request_timeout_ms / 1000
        flying = Flying(outgoing, channel, on_done, size, self._handler.monotonic() + timeout_s + LOST_S)
        self._flying.append(flying)
        if self.watched is not None:
            self.watched.expect(flying.until - LOST_S)
        self._flying_bytes += flying.size
        channel.send(
            request,
            on_done,
            timeout_s=timeout_s,
            max_version=self.sender.newest_produce,
            expects_response=self._acks != 0,
        )

    def _take_back(self, now: float) -> None:
        """What is late and still waits for its connection goes no more, and so is certainly not written. All that waits beside it is taken back, to
        be sent again: it may share the request, and what comes after it has the next numbers.
        """
        late = {id(channel) for outgoing, channel, *_ in self._flying if any(self.sender.is_late(batch, now) for batch in outgoing.batches)}
        for outgoing, channel, on_done, *_ in list(self._flying):
            error = channel.withdraw(on_done) if id(channel) in late else None
            if error is not None:
                with self.lock:
                    self.sender.take_back(outgoing, error, now)
                    self._land(outgoing)

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
        if self._handler.cooperative and batch.size >= OFFLOAD_BYTES.get(self._codec, 1 << 62):
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
            self._take_notes()
            self.sender.abandon(fatal)
        self.finish()

    def give_up(self, error: KafkaException) -> None:
        """Fail all that is not settled. The worker tells it, if it is there."""
        with self.lock:
            self._take_notes()
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
                if self.torn is not None or not self._land(outgoing):
                    return  # the worker begins anew, or has: all that was under way is sent again
                divided = self._settle(outgoing, response, error)
            self._after_answer(outgoing, error, divided)
        except BaseException as exc:
            self._tear(exc)
            raise
        if self.accumulator.unsettled or self.transactions is not None or error is not None:
            self._wake.set()

    def _tear(self, cause: BaseException) -> None:
        """Who worked on the machine was interrupted."""
        self.torn = cause
        self._wake.set()

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
        return divided

    def _after_answer(self, outgoing: Outgoing, error: KafkaException | None, divided: list[Batch]) -> None:
        for batch in divided:
            _wake(batch)  # who waits for it has to look again for what it waits for
        if isinstance(error, UnsupportedVersion):
            log.error("broker %s: %s", outgoing.broker_id, error)
        self.finish()

    def _land(self, outgoing: Outgoing) -> bool:
        """It is not under way any more. False: it was not."""
        for n, flying in enumerate(self._flying):
            if flying.outgoing is outgoing:  # one with the same batches that is equal may be under way by now
                self._flying_bytes -= flying.size
                del self._flying[n]
                return True
        return False

    def _ask_producer_id(self) -> None:
        request = self._id_asked = self.sender.producer_id_request()
        broker = min(list(self._cluster._brokers.values()), key=lambda b: (b.ready_at, *b.load), default=None)
        timeout_s = self._config.request_timeout_ms / 1000
        try:
            if broker is None:
                raise KafkaTimeoutError("no broker is known yet")
            broker.send(CONTROL, request, partial(self._on_producer_id, request), timeout_s=timeout_s)
        except KafkaException as exc:
            self._on_producer_id(request, None, exc)

    def _on_producer_id(self, asked: object, response: Any, error: KafkaException | None) -> None:
        try:
            self._take_producer_id(asked, response, error)
        except BaseException as exc:
            self._tear(exc)
            raise

    def _take_producer_id(self, asked: object, response: Any, error: KafkaException | None) -> None:
        with self.lock:
            if asked is not self._id_asked:
                return  # the worker has begun anew
            fatal = self.sender.on_producer_id(response, error, self._handler.monotonic())
            self._id_asked = None
        if fatal is not None:
            log.error("no producer id: %s", fatal)
            self.end_with(fatal)
        self._wake.set()

    # -- settling --------------------------------------------------------------------------------------------------------------
    def finish(self) -> None:
        """One completion for each batch that was settled: waiters wake, callbacks are queued for their worker, memory is given back."""
        if not self.sender.ended:
            return
        with self.lock:
            if self.torn is not None:
                return
            settled = self.sender.take_ended()
        for outcome in settled:
            self._tell(outcome)
        with self.lock:
            self.settled_records += self.sender.told(settled)
        if not self.outcome.is_set():
            self.outcome.set()
        self.memory.give_room()
        if self.closed:
            self._wake.set()
            self.callbacks.wake.set()

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
            self._wake.set()

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
        """Do batches wait that could be sent? Open ones wait for their records, however many there are."""
        rolled = self.accumulator.rolled_bytes + self._appender.rolled_bytes - self._seen_bytes
        return bool(rolled - self._flying_bytes > max(BACKLOG_BYTES, self._flying_bytes))

    def press(self) -> None:
        """Somebody waits for memory: nothing lingers."""
        if self.owes:
            self._wake.set()

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


def _wholes(batches: list[Batch]) -> list[Batch]:
    """A part may be split once more, and is never done itself then: what it is a part of is."""
    return list(dict.fromkeys(batch.parent or batch for batch in batches))


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
    """The producer's worker. Ends with its producer."""
    if (driver := ref()) is None or not _claimed(driver):
        return
    watched, handler, memory = driver.watched, driver._handler, driver.memory
    del driver
    if watched is None:
        _work_on(ref, handler)
        return
    watched.begin()
    try:
        _work_on(ref, handler)
    finally:
        watched.end([taker for other in memory.drivers() if other is not ref() and (taker := other.taker) is not None])


def _work_on(ref: weakref.ref[ProducerDriver], handler: Handler) -> None:
    while (driver := ref()) is not None:
        driver._wake.clear()  # before looking: whoever leaves a note, or closes, sets it after
        driver._sleeps_until = AWAKE
        deadline = driver._turn(handler)
        if driver.closed and not driver.owes:
            return
        wake, now = driver._wake, handler.monotonic()
        driver._sleeps_until = min(deadline, handler.looks_at(now, TICK_S if driver.accumulator.unsettled else driver.idle_s))
        left = driver._sleeps_until - now
        del driver
        wake.wait(max(0.0, left))
