"""The producer that the others are skins of: many topics, one buffer, one machine.

A record's way: `produce()` appends it to its partition's open batch (one compiled call in `gkafka.records`). What is not per record happens
here and per batch: a full batch is rolled, the machine in `gkafka.core.sender` decides what may go out, `_drive` seals it and hands it
to the broker's connection. Answers come in on the connection's worker and settle whole batches.

Who drives: with OS threads whoever has something to send (the caller whose batch is full, the connection's reader after an answer), so
that nobody waits for the interpreter's lock; with greenlets the producer's own worker, so that a killed caller leaves nothing half done.
"""

from __future__ import annotations

import logging
import os
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from gkafka import records
from gkafka.broker import CONTROL, PRODUCE
from gkafka.common import CompressionType
from gkafka.config import ACKS, ProducerConfig
from gkafka.core.accumulator import Accumulator
from gkafka.core.backoff import Backoff
from gkafka.core.sender import Outgoing, Sender, Settled
from gkafka.exceptions import (
    BufferFull,
    ConfigurationError,
    DeliveryError,
    KafkaException,
    KafkaTimeoutError,
    LeaderNotFoundError,
    ProducerStoppedException,
    RecordTooLarge,
    SerializationError,
    UnsupportedCodec,
    UnsupportedVersion,
)
from gkafka.records import compression
from gkafka.wire.produce import ProduceRequest, holds_zstd, record_format

if TYPE_CHECKING:
    from gkafka.cluster import Cluster
    from gkafka.records import Batch, Delivery

__all__ = ["NativeProducer", "Undelivered"]

log = logging.getLogger(__name__)

TICK_S = 1.0
"""Longest sleep of the worker: forks and closed clients are noticed within it."""
CALLBACK_CHUNK = 100
CHECKPOINT_EVERY = 64
"""Records that the fast path takes between two looks at the time and at the process id."""
KEPT_FAILURES = 10_000
"""Failed records that are kept for the next flush() or close() to report; older ones are only counted and logged."""
OFFLOAD_BYTES = {1: 16 << 10, 2: 256 << 10, 3: 256 << 10, 4: 128 << 10}
"""Codec -> batch size from which compressing it takes more than ~0.5 ms, so that it leaves the hub (gzip, snappy, lz4, zstd)."""

Headers = Sequence[tuple[str, bytes | None]]


class Undelivered(NamedTuple):
    """A record that was not delivered. persisted: "no", or "maybe" where a broker may have written it without its answer reaching us."""

    record: Any
    error: BaseException | None
    persisted: str


class NativeProducer:
    """Made by `client.get_producer(**options)`; the options are those of `gkafka.config.ProducerConfig`.

    `produce()` may be called by any number of workers. Under gevent it switches to others now and then (every few milliseconds of work,
    and when the buffer is full), never in the middle of a record.
    """

    def __init__(self, cluster: Cluster, config: ProducerConfig) -> None:
        self._closed = True  # until it is complete: a constructor that raised leaves nothing to lose
        self._cluster, self.config, self._handler = cluster, config, cluster.handler
        self._acks = ACKS[config.acks]
        self._codec, self._level = self._choose_codec(config)
        self._check_idempotence(config)
        self._check_times(config)
        self._lock = self._handler.Lock()
        self._slow_lock = self._handler.Lock()
        self._drive_lock = self._handler.Lock()
        self._again = False
        self._wake = self._handler.Event()
        self._cooperative = self._handler.name == "gevent"
        self._fatal: KafkaException | None = None
        self._room: deque[Any] = deque()
        self._callbacks: deque[tuple[Batch, list[tuple[int, Callable[[Any], Any]]]]] = deque()
        self._failed: deque[Batch] = deque()
        self._failed_records = 0
        self._dropped_failures = 0
        self._flushers = 0
        self._delivered = 0
        self.settled_records = 0
        self._outcome = self._handler.Event()
        self._appender = records.Appender(
            self,
            batch_bytes=config.batch_bytes,
            buffer_bytes=config.buffer_bytes,
            max_record_bytes=config.max_request_bytes,
            lock=self._handler.Lock(),
        )
        self._appender.checkpoint_every = CHECKPOINT_EVERY
        self._appender.fast = config.key_serializer is None and config.value_serializer is None and config.on_delivery is None
        self._accumulator = Accumulator()
        self._sender = Sender(
            self._accumulator,
            cluster.metadata,
            roll=self._appender.roll,
            acks=self._acks,
            idempotence=config.enable_idempotence if self._acks == -1 else False,
            linger_s=config.linger_ms / 1000,
            batch_bytes=config.batch_bytes,
            max_request_bytes=config.max_request_bytes,
            max_in_flight=config.max_in_flight,
            delivery_timeout_s=config.delivery_timeout_ms / 1000,
            request_timeout_s=config.request_timeout_ms / 1000,
            retries=config.retries,
            backoff=Backoff(config.retry_backoff_ms / 1000, config.retry_backoff_max_ms / 1000),
            chance=self._handler.random(),
        )
        self._chance = self._handler.random()
        self._topic_versions: dict[str, int] = {}
        self._worker: Any = None
        self._sleeps_until = float("inf")
        self._closed = False
        _living.add(self)
        cluster.engines.add(self)
        # One compiled call for each record, with no Python frame between.
        self.produce = self._appender.produce  # type: ignore[method-assign]

    if TYPE_CHECKING:

        def produce(
            self,
            topic: str,
            value: bytes | None,
            key: bytes | None = None,
            partition: int | None = None,
            timestamp: int | None = None,
            headers: Headers | None = None,
        ) -> Delivery:
            """Accept a record; returns at once unless the buffer is full or the topic is not known yet.

            value: bytes-like, None is a tombstone; timestamp: ms since the epoch, None is now; headers: [(str, bytes or None)].
            Returns a view of its delivery: done(), result(timeout), exception(timeout), add_done_callback(fn), record.
            Raises SerializationError, RecordTooLarge, BufferFull, UnknownTopicOrPartition, KafkaTimeoutError (after max_block_ms),
            ProducerStoppedException, ForkedClientError. A record for which it raised was not accepted.
            """
            raise NotImplementedError

    # -- options -----------------------------------------------------------------------------------------------------------
    @staticmethod
    def _choose_codec(config: ProducerConfig) -> tuple[int, int | None]:
        codec = compression.codec_id(config.compression)
        # A missing package, or a level that the codec does not have, is told now and not with the first batch.
        compression.compress(codec, b"", config.compression_level)
        return codec, config.compression_level

    def _check_idempotence(self, config: ProducerConfig) -> None:
        if config.enable_idempotence and self._acks != -1:
            raise ConfigurationError(f"enable_idempotence=True needs acks='all', not acks={config.acks!r}")
        if config.enable_idempotence and config.max_in_flight > 5:
            raise ConfigurationError(f"max_in_flight={config.max_in_flight}: must be 5 or less with enable_idempotence=True (KIP-98)")
        if config.enable_idempotence is None and self._acks != -1:
            log.info("acks=%s: sending without idempotence, retries may duplicate or reorder records", config.acks)
        if config.enable_idempotence is None and self._acks == -1 and config.max_in_flight > 5:
            raise ConfigurationError(f"max_in_flight={config.max_in_flight}: must be 5 or less, or give enable_idempotence=False (KIP-98)")

    @staticmethod
    def _check_times(config: ProducerConfig) -> None:
        if config.delivery_timeout_ms < config.linger_ms:
            raise ConfigurationError(f"delivery_timeout_ms={config.delivery_timeout_ms}: must be at least linger_ms={config.linger_ms}")
        if config.max_request_bytes > config.buffer_bytes or config.batch_bytes > config.buffer_bytes:
            raise ConfigurationError(
                f"buffer_bytes={config.buffer_bytes}: must hold a batch (batch_bytes={config.batch_bytes}) and a request (max_request_bytes={config.max_request_bytes})"
            )

    # -- the slow way of a record ----------------------------------------------------------------------------------------
    def produce_slow(self, topic: Any, value: Any, key: Any, partition: Any, timestamp: Any, headers: Any) -> Delivery:
        """What the appender's fast path does not take: checks, conversions, waiting for metadata or room, rolling full batches."""
        self._check_usable()
        if isinstance(topic, bytes):
            topic = topic.decode()
        value, key, headers = records.check_record(
            topic, _serialize("value", value, self.config.value_serializer), _serialize("key", key, self.config.key_serializer), headers
        )
        timestamp = self._timestamp(timestamp)
        deadline = self._handler.monotonic() + self.config.max_block_ms / 1000
        size = records.record_size(value, key, headers)
        if size > self.config.max_request_bytes:
            raise RecordTooLarge(
                f"a record of {size} bytes for topic {topic!r} is over max_request_bytes={self.config.max_request_bytes}: "
                "raise it (and the broker's max.message.bytes), or send less",
                topic=topic,
            )
        count = self._know_topic(topic, deadline)
        default = partition is None and (key is None or self.config.partitioner is None)
        while True:
            target = self._partition(topic, count, partition, key)
            delivery = self._append(topic, target, value, key, timestamp, headers, size)
            if delivery is not None:
                break
            self._wait_for_room(deadline, topic, size)
            if default and key is None:
                self._move_sticky(topic, count)
        if self.config.on_delivery is not None:
            delivery.add_done_callback(self.config.on_delivery)
        self._after_append()
        return delivery

    def _check_usable(self) -> None:
        self._handler.check_fork()
        if self._closed:
            raise ProducerStoppedException("the producer was closed: make a new one with client.get_producer()")
        if self._fatal is not None:
            raise self._fatal
        if self._worker is None:
            self._start()

    def _start(self) -> None:
        with self._lock:
            if self._worker is None:
                self._handler.start()
                self._worker = self._handler.spawn(_work, weakref.ref(self), _name="gkafka-producer")

    def _timestamp(self, timestamp: Any) -> int:
        if timestamp is None:
            return int(self._handler.time() * 1000)
        if isinstance(timestamp, bool) or not isinstance(timestamp, int) or not 0 <= timestamp < 1 << 63:
            raise SerializationError(f"timestamp={timestamp!r}: must be milliseconds since the epoch, an int of 0 or more")
        return timestamp

    def _know_topic(self, topic: str, deadline: float) -> int:
        """The number of partitions. Waits for metadata; tells the appender of the topic so that the next record takes the fast path."""
        info = self._cluster.metadata.topic(topic)
        if info is None:
            try:
                info = self._cluster.wait_for_topic(topic, deadline)
            except KafkaTimeoutError as exc:
                raise KafkaTimeoutError(
                    f"{exc} (max_block_ms={self.config.max_block_ms:g}); the record was not accepted", topic=topic
                ) from exc
        count = len(info.partitions)
        if self._topic_versions.get(topic) != count:
            self._topic_versions[topic] = count
            with self._cluster._lock:
                self._cluster.metadata.add_topics([topic])
            if self.config.partitioner is None:
                self._appender.set_topic(topic, count, self._some_partition(topic, count))
        return count

    def _some_partition(self, topic: str, count: int) -> int:
        """For the records without a key: a random partition among those that have a leader (KIP-480)."""
        info = self._cluster.metadata.topic(topic)
        led = [p.id for p in info.partitions.values() if p.leader >= 0] if info is not None else []
        return self._chance.choice(led) if led else self._chance.randrange(count)

    def _move_sticky(self, topic: str, count: int) -> None:
        if self.config.partitioner is None:
            self._appender.set_sticky(topic, self._some_partition(topic, count))

    def _partition(self, topic: str, count: int, partition: Any, key: bytes | None) -> int:
        if partition is not None:
            if isinstance(partition, bool) or not isinstance(partition, int) or not 0 <= partition < count:
                raise ConfigurationError(f"partition={partition!r}: topic {topic!r} has the partitions 0 to {count - 1}", topic=topic)
            return partition
        if self.config.partitioner is not None:
            return self._by_partitioner(topic, count, key)
        if key is not None:
            return records.murmur2(key) % count
        sticky: int = self._appender.sticky(topic)
        return sticky

    def _by_partitioner(self, topic: str, count: int, key: bytes | None) -> int:
        chosen = self.config.partitioner(list(range(count)), key)
        if isinstance(chosen, bool) or not isinstance(chosen, int) or not 0 <= chosen < count:
            raise ConfigurationError(f"the partitioner chose {chosen!r}: topic {topic!r} has the partitions 0 to {count - 1}", topic=topic)
        return chosen

    def _append(self, topic: str, partition: int, value: Any, key: Any, timestamp: int, headers: Any, size: int) -> Delivery | None:
        """Put the record into its batch, rolling the one that is full. None: there is no room in the buffer."""
        with self._slow_lock:
            delivery = self._appender.append(topic, partition, value, key, timestamp, headers)
            if delivery is not None:
                return delivery
            full = self._appender.roll(topic, partition)
            if full is not None:
                with self._lock:
                    self._accumulator.rolled(full)
                if self._appender.sticky(topic) == partition:
                    self._move_sticky(topic, self._topic_versions.get(topic, 1))
            capacity = size if size > self.config.batch_bytes else None
            try:
                batch = self._appender.open(topic, partition, self._handler.monotonic(), capacity)
            except BufferFull:
                return None
            with self._lock:
                self._accumulator.opened(batch)
            return self._appender.append(topic, partition, value, key, timestamp, headers)

    def _after_append(self) -> None:
        """A batch was opened or rolled: see that somebody looks after it."""
        self._kick()
        if self._cooperative:
            self._handler.checkpoint()

    def checkpoint(self) -> None:
        """Called by the appender every few records: lets other greenlets run when this one had its time."""
        self._handler.check_fork()
        self._handler.checkpoint()

    def _wait_for_room(self, deadline: float, topic: str, size: int) -> None:
        """Wait until some memory was given back. First come, first served."""
        event = self._handler.Event()
        with self._lock:
            # What failed holds its records until flush() or close() reports them, but not at the cost of what is still to be sent.
            while self._failed and self._appender.available < size:
                self._drop_failure()
            if self._appender.available >= size:
                return
            self._room.append(event)
            self._sender.pressed = True
        try:
            self._kick()
            left = deadline - self._handler.monotonic()
            if left > 0 and event.wait(min(left, TICK_S)):
                return
            if self._handler.monotonic() >= deadline:
                raise BufferFull(
                    f"no room for a record of about {size} bytes for topic {topic!r} within max_block_ms={self.config.max_block_ms:g}: buffer_bytes={self.config.buffer_bytes} is taken by records that no broker has acknowledged yet; the record was not accepted",
                    topic=topic,
                )
            self._check_usable()
        finally:
            with self._lock:
                if event in self._room:
                    self._room.remove(event)
                self._sender.pressed = bool(self._room)

    # -- driving -------------------------------------------------------------------------------------------------------------
    def _kick(self) -> None:
        """Something may have become due."""
        if self._cooperative or self._drive() < self._sleeps_until:
            self._wake.set()  # the worker would sleep longer than the next batch lingers, or a pause lasts

    def _drive(self) -> float:
        """Do what the machine wants, until it wants nothing. One driver at a time: another one leaves a note and goes on.

        Returns when to drive again at the latest.
        """
        deadline = float("inf")
        while True:
            if not self._drive_lock.acquire(blocking=False):
                self._again = True
                # The driver may have looked for notes just before this one was left.
                if not self._drive_lock.acquire(blocking=False):
                    return self._handler.monotonic() + 0.005
            try:
                self._again = False
                deadline = self._drive_once()
            finally:
                self._drive_lock.release()
            if not self._again:
                return deadline

    def _drive_once(self) -> float:
        now = self._handler.monotonic()
        with self._lock:
            plan = self._sender.poll(now, self._ready_at)
        self._finish(plan.settled)
        if plan.want_metadata:
            self._cluster.metadata.invalidate()
        due = self._cluster.poll() if plan.want_metadata or self._cluster.metadata.due(now) <= now else plan.deadline
        if plan.ask_producer_id:
            self._ask_producer_id()
        for outgoing in plan.requests:
            self._send(outgoing)
        return min(plan.deadline, due)

    def _ready_at(self, broker_id: int) -> float:
        broker = self._cluster.broker_by_id(broker_id)
        return broker.ready_at if broker is not None else 0.0

    def _send(self, outgoing: Outgoing) -> None:
        failed: list[tuple[Batch, KafkaException]] = []
        broker = self._cluster.broker_by_id(outgoing.broker_id)
        if broker is None:
            self._answered(outgoing, None, LeaderNotFoundError(f"broker {outgoing.broker_id} is not in the metadata any more"))
            return
        try:
            channel = broker.channel(PRODUCE)
            version = self._produce_version(channel)
        except KafkaException as exc:
            self._answered(outgoing, None, exc)
            return
        for batch in outgoing.batches:
            try:
                self._seal(batch, version)
            except KafkaException as exc:
                failed.append((batch, exc))
        if failed:
            outgoing = self._without(outgoing, failed)
            if not outgoing.batches:
                self._answered(outgoing, None, None)
                return
        request = self._sender.request(outgoing)
        channel.send(
            request,
            lambda response, error: self._on_answer(outgoing, response, error),
            timeout_s=self.config.request_timeout_ms / 1000,
            expects_response=self._acks != 0,
        )

    def _produce_version(self, channel: Any) -> int:
        """The newest Produce that the broker takes. While its connection opens: what the broker that told the metadata takes."""
        versions = channel.versions or self._cluster.versions
        version: int = versions.pick(ProduceRequest.API) if versions is not None else ProduceRequest.API.stable.high
        return version

    def _seal(self, batch: Batch, version: int) -> None:
        if self._codec == CompressionType.ZSTD and not holds_zstd(version):
            raise UnsupportedCodec("compression='zstd' needs brokers of Kafka 2.1 or newer (KIP-110): choose lz4, snappy or gzip")
        magic = record_format(version)
        flight = batch.extra
        producer_id, epoch = flight.producer if flight.sequence >= 0 else (-1, -1)
        if batch.sealed:
            if flight.sequence >= 0:
                batch.restamp(producer_id, epoch, flight.sequence)
            return
        if magic < 2:
            self._heavy(batch, lambda: batch.seal_legacy(magic, self._codec, self._level))
        else:
            self._heavy(
                batch,
                lambda: batch.seal(self._codec, self._level, producer_id=producer_id, producer_epoch=epoch, base_sequence=flight.sequence),
            )

    def _heavy(self, batch: Batch, work: Callable[[], None]) -> None:
        """Compress: away from the hub if it takes long (records.compression drops the interpreter's lock)."""
        if self._cooperative and batch.size >= OFFLOAD_BYTES.get(self._codec, 1 << 62):
            self._handler.offload(work)
        else:
            work()

    def _without(self, outgoing: Outgoing, failed: list[tuple[Batch, KafkaException]]) -> Outgoing:
        bad = [batch for batch, _ in failed]
        settled: list[Settled] = []
        with self._lock:
            for batch, error in failed:
                settled.append(self._sender.refuse(batch, error))
        self._finish(settled)
        return Outgoing(outgoing.broker_id, [b for b in outgoing.batches if b not in bad])

    def _on_answer(self, outgoing: Outgoing, response: Any, error: KafkaException | None) -> None:
        """On the connection's worker: take the answer in and let the next request go."""
        self._answered(outgoing, response, error)
        self._kick()

    def _answered(self, outgoing: Outgoing, response: Any, error: KafkaException | None) -> None:
        with self._lock:
            settled, stale = self._sender.on_answer(outgoing, response, error, self._handler.monotonic())
            if stale:
                self._cluster.metadata.invalidate()
        if isinstance(error, UnsupportedVersion):
            log.error("broker %s: %s", outgoing.broker_id, error)
        self._finish(settled)
        self._again = True

    def _ask_producer_id(self) -> None:
        request = self._sender.producer_id_request()
        broker = min(self._cluster._brokers.values(), key=lambda b: (b.ready_at, *b.load), default=None)
        timeout_s = self.config.request_timeout_ms / 1000
        try:
            if broker is None:
                raise KafkaTimeoutError("no broker is known yet")
            broker.send(CONTROL, request, self._on_producer_id, timeout_s=timeout_s)
        except KafkaException as exc:
            self._on_producer_id(None, exc)

    def _on_producer_id(self, response: Any, error: KafkaException | None) -> None:
        with self._lock:
            fatal = self._sender.on_producer_id(response, error, self._handler.monotonic())
            settled = self._sender.abandon(fatal) if fatal is not None else []
        if fatal is not None:
            log.error("no producer id: %s", fatal)
            self._fatal = fatal
        self._finish(settled)
        self._again = True
        self._kick()

    # -- settling --------------------------------------------------------------------------------------------------------------
    def _finish(self, settled: list[Settled]) -> None:
        """One completion for each batch: waiters wake, callbacks are queued for the worker, memory is given back."""
        for outcome in settled:
            batch = outcome.batch
            self.settled_records += batch.count
            if outcome.error is None:
                self._delivered += batch.count
                callbacks = batch.complete(outcome.base_offset, outcome.log_append_time)
            else:
                callbacks = batch.fail(outcome.error)
                self._keep_failure(batch, outcome.error)
            if callbacks:
                self._callbacks.append((batch, callbacks))
            waiter = batch.waiter
            if waiter is not None:
                waiter.set()
            if outcome.error is None:
                self._appender.release(batch)
        if settled:
            self._outcome.set()
            self._give_room()
            if self._callbacks:
                self._wake.set()

    def _keep_failure(self, batch: Batch, error: KafkaException) -> None:
        log.error(
            "%d record(s) for %s-%d not delivered (persisted: %s): %s",
            batch.count,
            batch.topic,
            batch.partition,
            batch.extra.persisted,
            error,
        )
        with self._lock:
            self._failed.append(batch)
            self._failed_records += batch.count
            while self._failed_records > KEPT_FAILURES and len(self._failed) > 1:
                self._drop_failure()

    def _drop_failure(self) -> None:
        """Give up the oldest failed batch that waits to be reported: it was logged. Called under the lock."""
        dropped = self._failed.popleft()
        self._failed_records -= dropped.count
        self._dropped_failures += dropped.count
        self._appender.release(dropped)

    def _give_room(self) -> None:
        with self._lock:
            waiting = [self._room.popleft() for _ in range(min(len(self._room), CALLBACK_CHUNK))]
        for event in waiting:
            event.set()

    def wait(self, batch: Batch, timeout: float | None) -> None:
        """Wait until a batch is settled; used by its deliveries. Raises KafkaTimeoutError."""
        self._handler.check_fork()
        limit = (self.config.delivery_timeout_ms + self.config.request_timeout_ms) / 1000 if timeout is None else timeout
        deadline = self._handler.monotonic() + limit
        with self._lock:
            if batch.done:
                return
            if batch.waiter is None:
                batch.waiter = self._handler.Event()
            self._accumulator.hurry(batch)
        self._kick()
        while not batch.done:
            left = deadline - self._handler.monotonic()
            if left <= 0:
                raise KafkaTimeoutError(
                    f"{batch.topic}-{batch.partition}: no result within {limit:g} s; the record is still being delivered",
                    topic=batch.topic,
                    partition=batch.partition,
                )
            batch.waiter.wait(min(left, TICK_S))
            self._handler.check_fork()

    def send_now(self) -> None:
        """Let no batch linger any longer."""
        with self._lock:
            self._accumulator.hurry_all()
        self._kick()

    def wait_for_outcome(self, seconds: float) -> None:
        """Wait until some batch is settled, at most so long."""
        self._outcome.clear()
        self._outcome.wait(seconds)

    # -- flush and close -------------------------------------------------------------------------------------------------------
    def flush(self, timeout: float | None = None) -> None:
        """Wait until everything produced before this call is delivered or failed.

        timeout: seconds, None is delivery_timeout_ms. Raises KafkaTimeoutError if it passes (nothing is lost, delivery goes on), and
        DeliveryError listing the records that failed since the last flush() or close().
        """
        self._handler.check_fork()
        self._wait_settled(self.config.delivery_timeout_ms / 1000 + TICK_S if timeout is None else timeout)
        self._raise_failures()

    def _wait_settled(self, timeout: float) -> None:
        deadline = self._handler.monotonic() + timeout
        with self._lock:
            waiting = list(self._accumulator.unsettled)
            self._flushers += 1
            self._sender.flushing = True
        try:
            self._kick()
            for batch in waiting:
                self._wait_flushed(batch, deadline, timeout)
        finally:
            with self._lock:
                self._flushers -= 1
                self._sender.flushing = self._flushers > 0

    def _wait_flushed(self, batch: Batch, deadline: float, timeout: float) -> None:
        while not batch.done:
            with self._lock:
                if batch.waiter is None:
                    batch.waiter = self._handler.Event()
            left = deadline - self._handler.monotonic()
            if left <= 0:
                left_over = sum(b.count for b in list(self._accumulator.unsettled))
                raise KafkaTimeoutError(f"flush: {left_over} record(s) not delivered within {timeout:g} s; they are still being delivered")
            if not batch.done:
                batch.waiter.wait(min(left, TICK_S))

    def _raise_failures(self) -> None:
        with self._lock:
            failed, self._failed = list(self._failed), deque()
            dropped, self._dropped_failures, self._failed_records = self._dropped_failures, 0, 0
        if not failed:
            return
        entries = [Undelivered(batch.record(i), batch.error, batch.extra.persisted) for batch in failed for i in range(batch.count)]
        for batch in failed:
            self._appender.release(batch)
        first = failed[0].error
        more = f" ({dropped} more were logged)" if dropped else ""
        raise DeliveryError(f"{len(entries)} record(s) were not delivered{more}; the first: {first}", entries) from first

    def close(self, timeout: float | None = None) -> None:
        """Deliver what is left, then stop. Idempotent.

        timeout: seconds, None is delivery_timeout_ms. Records that are not delivered by then are failed. Raises DeliveryError listing
        every record that was not delivered since the last flush().
        """
        if self._closed:
            return
        try:
            self._handler.check_fork()
            self._closed = True
            self._appender.fast = False
            try:
                self._wait_settled(self.config.delivery_timeout_ms / 1000 + TICK_S if timeout is None else timeout)
            except KafkaTimeoutError as exc:
                with self._lock:
                    settled = self._sender.abandon(exc)
                self._finish(settled)
        finally:
            self._closed = True
            self._appender.fast = False
            self._wake.set()
        if self._worker is not None:
            self._worker.join(TICK_S * 2)
        self._raise_failures()

    @property
    def closed(self) -> bool:
        """Was close() called?"""
        return self._closed

    def __enter__(self) -> NativeProducer:
        return self

    def __exit__(self, exc_type: Any, exc: Any, traceback: Any) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__module__}.{type(self).__name__} at {id(self):#x} (acks={self.config.acks}, closed={self._closed})>"

    def __del__(self) -> None:
        if not getattr(self, "_closed", True) and self._accumulator.unsettled:
            log.error("a producer with undelivered records was dropped without close(): they are lost")

    def stats(self) -> dict[str, Any]:
        """Counters: delivered, retried and unsettled records and batches, requests, epoch bumps, buffer."""
        with self._lock:
            unsettled = list(self._accumulator.unsettled)
        return {
            "delivered_records": self._delivered,
            "unsettled_batches": len(unsettled),
            "unsettled_records": sum(b.count for b in unsettled),
            "retried_batches": self._sender.retried,
            "requests": self._sender.sent_requests,
            "epoch_bumps": self._sender.epoch_bumps,
            "idempotence": self._sender.state.value,
            "producer_id": self._sender.producer[0] if self._sender.producer else -1,
            "buffer_bytes_free": self._appender.available,
        }

    def _run_callbacks(self) -> None:
        """User code, on the producer's worker, under no lock."""
        while self._callbacks:
            batch, callbacks = self._callbacks.popleft()
            for n, (index, fn) in enumerate(callbacks):
                try:
                    fn(records.Delivery(batch, index))
                except Exception:
                    log.exception("a delivery callback failed")
                if n % CALLBACK_CHUNK == CALLBACK_CHUNK - 1:
                    self._handler.checkpoint()


def _serialize(what: str, thing: Any, serializer: Callable[[Any], Any] | None) -> Any:
    if serializer is None or thing is None:
        return thing
    try:
        return serializer(thing)
    except Exception as exc:
        raise SerializationError(f"{what}_serializer failed on {type(thing).__name__}: {type(exc).__name__}: {exc}") from exc


_living: weakref.WeakSet[NativeProducer] = weakref.WeakSet()


def _in_forked_child() -> None:
    """The fast path must not take a single record in a child: nobody there would send it. (Without hooks, as under uWSGI, the pid checks
    of the slow path and of every CHECKPOINT_EVERY records say so.)"""
    for producer in list(_living):
        producer._appender.fast = False


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_forked_child)


def _work(ref: weakref.ref[NativeProducer]) -> None:
    """The producer's worker: lingering, timeouts, callbacks; under gevent also everything else. Ends with its producer."""
    while True:
        producer = ref()
        if producer is None or (producer._closed and not producer._accumulator.unsettled and not producer._callbacks):
            return
        handler = producer._handler
        handler.check_fork()
        producer._wake.clear()
        deadline = producer._drive()
        producer._run_callbacks()
        now = handler.monotonic()
        wake, producer._sleeps_until = producer._wake, min(deadline, now + TICK_S)
        left = producer._sleeps_until - now
        del producer
        wake.wait(max(0.0, left))
