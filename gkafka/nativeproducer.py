"""The producer that the others are skins of: many topics, one buffer, one machine.

A record's way: `produce()` appends it to its partition's open batch (one compiled call in `gkafka.records`). What is not per record happens
here and per batch: a full batch is rolled, the next one opened. From there on `gkafka.producerdriver` takes it to its broker.
"""

from __future__ import annotations

import copyreg
import os
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any
from zlib import crc32

from gkafka import lifetime, records
from gkafka.checks import check_time_left, check_topic_name, check_wait, find_index
from gkafka.columnproducing import ColumnCalls
from gkafka.config import ACKS, ProducerConfig
from gkafka.core.sticky import Sticky, choose
from gkafka.exceptions import (
    BufferFull,
    ConfigurationError,
    ForkedClientError,
    KafkaException,
    KafkaTimeoutError,
    ProducerStoppedException,
    RecordTooLarge,
    SerializationError,
)
from gkafka.intake import Intake, chosen_by
from gkafka.interceptors import InterceptorChain
from gkafka.lifetime import ends
from gkafka.logs import get_logger
from gkafka.oneprocess import OfOneProcess, refuse_to_pickle
from gkafka.producerdriver import TICK_S, ProducerDriver
from gkafka.records import compression
from gkafka.records._check import UnknownPartition
from gkafka.transactions import TransactionCalls, Transactions, check_transactional

if TYPE_CHECKING:
    from gkafka.cluster import Cluster
    from gkafka.handlers import Handler
    from gkafka.producermemory import Place
    from gkafka.records import Batch, Delivery, Lane

__all__ = ["NativeProducer"]

log = get_logger(__name__)
copyreg.pickle(records.Delivery, partial(refuse_to_pickle, outcome="result()"))
copyreg.pickle(records.Appender, partial(refuse_to_pickle, kind="producer"))  # the `produce` of a producer is a method of it

CHECKPOINT_EVERY, AFTER_OWN_CODE = 64, 4
"""Records that the fast path takes between two looks at the time and at the process id; with greenlets, where the user's own code is called for each, as
nobody knows what that takes."""

HASHES: dict[str, Callable[[bytes], int]] = {"murmur2": records.murmur2, "crc32": crc32}
"""What a key's partition is taken from, as a remainder: like the Java client's, or like librdkafka's consistent_random."""

QUIET_S = 5.0
"""So long flush() and close() wait in silence while no record gets an outcome."""

MOST_AROUND = 100
"""Bytes that a batch with one plain record takes at most beside its key and value."""

INITIAL_BYTES = 4096
"""Memory that a new batch takes; it doubles as records come."""

Headers = Sequence[tuple[str, bytes | None]]


class NativeProducer(OfOneProcess, ColumnCalls, TransactionCalls):
    """Made by `client.get_producer(**options)`; the options are those of `gkafka.config.ProducerConfig`.

    `produce()` may be called by any number of workers. Under gevent it switches to others now and then (every few milliseconds of work,
    and when the buffer is full), never in the middle of a record.

    Delivery callbacks (`on_delivery`, `delivery.add_done_callback()`, interceptors) run one at a time on a worker of their own, under no lock,
    and may call anything. `delivery` is done, and `delivery.record` is there to be looked at; that of a record that failed always is, so that
    it can be produced again. A `produce()` inside a callback does not wait for memory that is held for callbacks: it goes before other callers
    and may take once more `buffer_bytes`. When that is full, too, because callbacks produce more than they are called for, records that were
    delivered are let go of for it, those first whose callbacks come last: there `delivery.record` is None, results stay. What it waits for then,
    up to `max_block_ms`, are records without an outcome, and failed ones whose callbacks are still to come.
    """

    def __init__(self, cluster: Cluster, config: ProducerConfig) -> None:
        self._closed = True  # until it is complete: a constructor that raised leaves nothing to lose
        self.config = config
        self._acks = ACKS[config.acks]
        self._codec, self._level = self._choose_codec(config)
        self._check_idempotence(config)
        self._check_times(config)
        self.generation = 0
        self.reported = self.transaction_reported = self._owns_cluster = False
        self._retold: Callable[[KafkaException], None] | None = None
        self._renewals: dict[int, list[None]] = {}
        self._inherited: tuple[ProducerDriver, Any] | None = None  # the parent's, until a child has disowned it
        self._begin(cluster)
        self._pid = os.getpid()
        lifetime.watch(self)

    def _begin(self, cluster: Cluster) -> None:
        """Make all that belongs to one process."""
        config = self.config
        self._cluster, self._handler = cluster, cluster.handler
        self._slow_lock = self._handler.Mutex()
        self._append_lock = self._handler.Mutex()
        self._delivered = False  # or given up: close() has only to end the worker
        self._last_intake: int | None = None  # who alone may produce: the interpreter ends
        self.gave_up: Counter[str] = Counter()  # records, by topic, that had no outcome when close() had waited long enough
        self._initial_bytes = min(INITIAL_BYTES, config.batch_bytes)
        self._plain_bytes = min(self._initial_bytes, config.max_request_bytes)
        self._appender = records.Appender(
            self,
            batch_bytes=config.batch_bytes,
            buffer_bytes=config.buffer_bytes,
            max_record_bytes=config.max_request_bytes,
            initial_bytes=self._initial_bytes,
            lock=self._append_lock,
            budget=cluster.memory.budget,
        )
        self._appender.checkpoint_every = CHECKPOINT_EVERY
        # None: a callable of the user's decides.
        self._hash: Callable[[bytes], int] | None = None if callable(config.partitioner) else HASHES[config.partitioner or "murmur2"]
        self._appender.crc32 = self._hash is crc32
        self._partition_counts: dict[str, int] = {}
        # One compiled call for each record, with no Python frame between; what the user's own code does to it comes in front.
        self.send = self._appender.send
        produce = self._appender.produce
        if Intake.is_needed(config):
            produce = Intake(config, produce, self.produce_slow, self._partition_counts, self._refused).produce
        self._interceptors = InterceptorChain(config.interceptors, produce) if config.interceptors else None
        if config.interceptors or Intake.is_needed(config):
            self.look_often()
        self.produce = produce if self._interceptors is None else self._interceptors.produce  # type: ignore[method-assign]  # no call of ours between
        hooks = (config.on_delivery, self._interceptors.done if self._interceptors is not None else None)
        self._appender.hooks = tuple(hook for hook in hooks if hook is not None) or None
        self._appender.fast = config.transactional_id is None
        self._handler.slow_when_ended(self._appender)
        self._driver = ProducerDriver(cluster, config, self._appender, acks=self._acks, codec=self._codec, level=self._level)
        if config.transactional_id is not None:
            self._transactions = self._driver.transactions = Transactions(
                cluster, config, self._driver, self._appender, accepting=self._slow_lock
            )
        cluster.memory.join(self._driver, config.buffer_bytes)
        self._chance = self._handler.random()
        self._sticky: dict[str, Sticky] = {}
        self._led_partitions: dict[str, tuple[int, Sequence[int]]] = {}  # with the version of the metadata that told them
        cluster.adopt(self)
        self.generation += 1
        self._closed = False

    def produce(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: Headers | None = None,
    ) -> Delivery:
        """Accept a record; returns at once unless the buffer is full or the topic is not known yet. Whoever is far ahead of brokers that keep
        answering rests for up to 10 ms where a batch begins: more memory would gain nothing.

        value: bytes-like, None is a tombstone; timestamp: ms since the epoch, None is now; headers: [(str, bytes or None)].
        Returns a view of its delivery: done(), result(timeout), exception(timeout), add_done_callback(fn), record.
        Raises SerializationError, RecordTooLarge, BufferFull, UnknownTopicOrPartition, KafkaTimeoutError (after max_block_ms),
        ProducerStoppedException, ForkedClientError. A record for which it raised was not accepted.
        """
        delivery: Delivery = self._appender.produce(topic, value, key, partition, timestamp, headers)
        return delivery

    def end_batch(self, topic: str, partition: int) -> None:
        """Let the partition's open batch take no more records: it goes out as it is."""
        self.check_process()
        with self._slow_lock:
            self._roll(topic, partition)

    def has_open_batch(self, topic: str, partition: int) -> bool:
        """Is there a batch that the partition's next record may still join?"""
        return self._appender.is_open(topic, partition)

    def answer_with(
        self, future_class: type[Delivery], refused: Callable[[KafkaException], Any], retold: Callable[[KafkaException], None]
    ) -> None:
        """For skins: what `send`, which is `Appender.send`, gives back, and what puts their words into an error that it raises."""
        self._appender.answer_with(future_class, refused)
        self._retold = retold

    def retry_what_was_not_sent(self) -> None:
        """For skins: a try that found no connection, or no leader, is none of `retries`; delivery_timeout_ms ends such tries."""
        self._driver.sender.delivery_limits.counts_unsent = False

    # -- options -----------------------------------------------------------------------------------------------------------
    @staticmethod
    def _choose_codec(config: ProducerConfig) -> tuple[int, int | None]:
        codec = compression.codec_id(config.compression)
        # A missing package, or a level that the codec does not have, is told now and not with the first batch.
        compression.compress(codec, b"", config.compression_level)
        return codec, config.compression_level

    def _check_idempotence(self, config: ProducerConfig) -> None:
        check_transactional(config)
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
        self.check_process()
        self._check_open()
        if self._driver.worker.task is None:
            self._driver.worker.start()
        self._driver.pace.keep()  # here, and not behind it: who is killed in one of these waits has produced nothing
        self._driver.pace.hand_over()
        self._handler.checkpoint()
        try:
            delivery = self._accept_plain(topic, value, key, partition, timestamp, headers)
            if delivery is None:
                delivery = self._accept(topic, value, key, partition, timestamp, headers)
        except KafkaException as exc:
            self._refused(exc)
            raise
        return delivery

    def _refused(self, error: KafkaException) -> None:
        """Put a skin's words into an error that is about to be raised."""
        if self._retold is not None:
            self._retold(error)

    def _accept_plain(self, topic: Any, value: Any, key: Any, partition: Any, timestamp: Any, headers: Any) -> Delivery | None:
        """Most records that come here are small ones of plain bytes for a known topic, and begin a batch: they need few of the steps. None: this
        one may need more.
        """
        count = self._partition_counts.get(topic) if type(topic) is str and self._appender.fast else None
        if count is None or type(value) is not bytes or headers is not None or timestamp is not None:
            return None
        size = MOST_AROUND + len(value)
        if key is not None:
            size += len(key) if type(key) is bytes else self._plain_bytes
        info = self._cluster.metadata.topic(topic)
        if size > self._plain_bytes or info is None or len(info.partitions) != count or self._cluster.memory.contended:
            return None
        target = partition if type(partition) is int and 0 <= partition < count else self._partition(topic, count, partition, key)
        delivery = self._append(topic, target, value, key, int(self._handler.time() * 1000), None, size, may_open=True)
        if delivery is not None:
            self._note(topic, delivery)
        return delivery

    def _accept(self, topic: Any, value: Any, key: Any, partition: Any, timestamp: Any, headers: Any) -> Delivery:
        if type(topic) is not str:
            topic = check_topic_name(topic)
        config, handler = self.config, self._handler
        value, key, headers = records.check_record(topic, value, key, headers)
        timestamp = self._timestamp(timestamp)
        deadline = handler.monotonic() + config.max_block_ms / 1000
        size = records.record_size(value, key, headers)
        if size > config.max_request_bytes:
            raise RecordTooLarge(
                f"a record of {size} bytes for topic {topic!r} is over max_request_bytes={config.max_request_bytes}: "
                "raise it (and the broker's max.message.bytes), or send less",
                topic=topic,
            )
        count = self._know_topic(topic, deadline)
        handler.check_fork()  # a greenlet's copy in a child must not send what its original sends, also if others go on there
        target = self._partition(topic, count, partition, key)
        record = (value, key, timestamp, headers)
        delivery = self._append(topic, target, *record, size, may_open=not self._cluster.memory.contended)
        if delivery is None:
            delivery = self._append_in_turn(topic, target, record, size, deadline)
        self._note(topic, delivery)
        return delivery

    def check_process(self) -> None:
        """What Handler.check_fork() raises; in a forked child, with on_fork="recreate", the producer goes on by itself instead."""
        while self._pid != os.getpid() and self.config.on_fork == "recreate" and not self._closed:
            self._renew()
        self._handler.check_fork()

    def _renew(self) -> None:
        """In a forked child: connections, workers and a producer id of its own, and none of the parent's records."""
        turn = self._renewals.setdefault(os.getpid(), [None])
        try:
            turn.pop()  # atomic: no lock that was made before the fork can be trusted
        except IndexError:
            while self._pid != os.getpid() and not turn:
                self._handler.sleep(0.001)
            return
        try:
            if self._inherited is None:  # else the first try ended half-way, and what is here now is not the parent's any more
                self._inherited = self._driver, self._append_lock
            self._begin(self._cluster.renewed(self._handler.renewed()))
            self._owns_cluster = True
            counts = lifetime.disown(*self._inherited)
            if counts:
                log.warning("forked: %d record(s) that the parent accepted are left to it: %s", sum(counts.values()), lifetime.told(counts))
            self._inherited = None
            lifetime.watch(self)  # again: this process may end in another way than its parent
            self._pid = os.getpid()  # last: other threads wait for it
        except BaseException:
            turn.append(None)
            raise

    def _check_usable(self) -> None:
        self._handler.check_fork()
        self._check_open()

    def _check_open(self) -> None:
        if self._closed:
            raise ProducerStoppedException("the producer was closed: make a new one with client.get_producer()")
        if self._last_intake is not None and self._last_intake != self._handler.current_id():
            raise ProducerStoppedException(
                "the interpreter ends, and nobody would send this record: end what produces, or close the producer, before the program ends"
            )
        if self._driver.fatal is not None:
            raise self._driver.fatal
        if self._transactions is not None:
            self._transactions.check_producing()

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
                info = self._cluster.wait_for_topic(topic, deadline, self._check_usable, writes=True)
            except KafkaTimeoutError as exc:
                raise KafkaTimeoutError(
                    f"{exc} (max_block_ms={self.config.max_block_ms:g}); the record was not accepted", topic=topic
                ) from exc
        count = len(info.partitions)
        if self._partition_counts.get(topic) != count:
            with self._slow_lock:
                self._partition_counts[topic] = count
                self._appender.set_topic(topic, count, 0)
                self._move_sticky(topic)
        return count

    def _move_sticky(self, topic: str) -> int:
        """Choose the partition of the next records without a key. Called under the slow lock."""
        present, queues = self._sticky.get(topic), self._driver.accumulator.queues
        partition = choose(
            self._led(topic),
            present.partition if present is not None else -1,
            lambda p: queue.length if (queue := queues.get((topic, p))) is not None else 0,
            self._chance,
        )
        self._sticky[topic] = Sticky(partition, self._appender.open_batch(topic, partition))
        self._appender.set_sticky(topic, partition)
        return partition

    def _led(self, topic: str) -> Sequence[int]:
        """The partitions that have a leader; all if none has."""
        metadata, count = self._cluster.metadata, self._partition_counts[topic]
        version, led = self._led_partitions.get(topic, (-1, ()))
        if version != metadata.version or not led or led[-1] >= count:
            info = metadata.topic(topic)
            led = [p.id for p in info.partitions.values() if p.leader >= 0 and p.id < count] if info is not None else []
            self._led_partitions[topic] = metadata.version, led
        return led or range(count)

    def _sticky_partition(self, topic: str, size: int) -> int:
        """The partition for a record without a key; another one if it would begin a batch where enough was produced."""
        sticky = self._sticky[topic]
        if self._appender.is_open(topic, sticky.partition) or not sticky.is_spent(size, self._appender.limit(topic)):
            return sticky.partition
        return self._move_sticky(topic)

    def _partition(self, topic: str, count: int, partition: Any, key: bytes | None) -> int | None:
        """The partition that a record must go to; None: it has no key, and goes to the sticky one of the moment."""
        if partition is not None:
            given = find_index(partition, count)
            if given is None:
                raise UnknownPartition(f"partition={partition!r}: topic {topic!r} has the partitions 0 to {count - 1}", topic=topic)
            return given
        if self._hash is None:
            return chosen_by(self.config.partitioner, topic, count, key)
        # librdkafka's consistent_random takes an empty key for none, Java does not.
        return None if key is None or (not key and self._hash is crc32) else self._hash(key) % count

    def _append(
        self,
        topic: str,
        target: int | None,
        value: Any,
        key: Any,
        timestamp: int,
        headers: Any,
        size: int,
        *,
        may_open: bool,
        beyond: int = 0,
    ) -> Delivery | None:
        """Put the record into its batch, rolling the one that is full. None: there is no room in the buffer, or others wait for it.

        target: its partition; None: the sticky one. A record that finds that one's batch full goes where the next ones go. beyond: bytes that a
        new batch may take over the limits.
        """
        with self._slow_lock:
            self._check_open()  # close() may have come while this caller waited for room
            partition = self._sticky_partition(topic, size) if target is None else target
            there = self._appender.is_open(topic, partition)
            delivery = self._put(topic, partition, value, key, timestamp, headers) if there else None
            if delivery is not None or not may_open:
                return delivery
            try:
                if there:
                    self._roll(topic, partition)
                    if target is None and (other := self._sticky_partition(topic, size)) != partition:
                        partition = other
                        delivery = self._put(topic, partition, value, key, timestamp, headers)
                        if delivery is not None:
                            return delivery
                        self._roll(topic, partition)
                return self._open(topic, partition, value, key, timestamp, headers, size, beyond)
            except BufferFull:
                return None

    def _put(self, topic: str, partition: int, value: Any, key: Any, timestamp: int, headers: Any) -> Delivery | None:
        """Put the record into the open batch, if there is one with room."""
        return self._appender.append(topic, partition, value, key, timestamp, headers)

    def _roll(self, topic: str, partition: int) -> None:
        """Take the full batch away from the appender: the driver sends it."""
        if not self._codec:
            self._appender.sum_up(topic, partition)
        self._appender.roll(topic, partition)
        self._driver.worker.wake()

    def _open(
        self, topic: str, partition: int, value: Any, key: Any, timestamp: int, headers: Any, size: int, beyond: int
    ) -> Delivery | None:
        """Open a batch with the record in it, in one step: whoever sends may take the batch away as soon as it is known."""
        delivery = self._appender.begin(topic, partition, self._handler.monotonic(), size, value, key, timestamp, headers, beyond)
        sticky = self._sticky.get(topic)
        if sticky is not None and sticky.partition == partition:
            sticky.follow(delivery.batch, records.HEADER_BYTES)
        return delivery

    def _note(self, topic: str, delivery: Delivery) -> None:
        """A batch was opened or rolled: see that somebody looks after it."""
        if delivery.index == 0:
            self._cluster.note_write(topic, delivery.batch.created)
            if self.config.linger_ms and (topic, delivery.partition) not in self._driver.accumulator.active:
                self._driver.warm(topic, delivery.partition)
            self._driver.worker.wake(delivery.batch.created + self.config.linger_ms / 1000)

    def look_often(self) -> None:
        """The user's own code is called for each record, here or in a skin."""
        if self._handler.cooperative:
            self._appender.checkpoint_every = AFTER_OWN_CODE

    def checkpoint(self) -> None:
        """Called by the appender every few records: lets other greenlets run when this one had its time."""
        self.check_process()
        self._handler.checkpoint()

    def _append_in_turn(self, topic: str, target: int | None, record: tuple[Any, Any, int, Any], size: int, deadline: float) -> Delivery:
        """Append when there is room, and those who came before have theirs. Raises BufferFull at the deadline."""
        memory, handler = self._cluster.memory, self._handler
        place = memory.stand_in_line(self._driver, max(size, self._initial_bytes))
        try:
            while True:
                place.event.clear()
                if memory.may_try(place):
                    delivery = self._append(topic, target, *record, size, may_open=True, beyond=place.beyond)
                    if delivery is not None:
                        return delivery
                    if memory.make_room(place):
                        continue
                self._wait_for_room(place, deadline, topic)
                handler.check_fork()
        finally:
            memory.step_out(place)

    def _wait_for_room(self, place: Place, deadline: float, topic: str) -> None:
        """Wait until it may be this one's turn, a moment at most. Raises BufferFull at the deadline."""
        left = deadline - self._handler.monotonic()
        if left > 0 and place.event.wait(min(left, TICK_S)):
            return
        self._check_usable()
        if self._handler.monotonic() >= deadline:
            others = f", or by other producers of this client (together {self._cluster.memory.budget.limit})"
            raise BufferFull(
                f"no room for a record of about {place.size} bytes for topic {topic!r} within max_block_ms={self.config.max_block_ms:g}: "
                f"buffer_bytes={self.config.buffer_bytes} is taken by records that no broker has acknowledged yet{others}; the record was "
                "not accepted",
                topic=topic,
            )

    def wait(self, batch: Batch, timeout: float | None, index: int) -> None:
        """Wait until a record of a batch is settled; used by its deliveries. Raises KafkaTimeoutError."""
        patience = self.config.delivery_timeout_ms + self.config.request_timeout_ms
        limit = patience / 1000 if timeout is None else check_time_left("timeout", timeout)
        self.check_process()
        if batch.part(index).done:
            return
        deadline = self._handler.monotonic() + limit
        self._driver.hurry_batch(batch)
        now = 0.0
        while not batch.part(index).done:
            if now >= deadline:
                raise KafkaTimeoutError(
                    f"{batch.topic}-{batch.partition}: no result within {limit:g} s; the record is still being delivered",
                    topic=batch.topic,
                    partition=batch.partition,
                )
            self._driver.wait_for(batch, deadline, index)
            self.check_process()
            now = self._handler.monotonic()

    def send_now(self) -> None:
        """Let no batch linger any longer."""
        self.check_process()
        for batch in self._appender.open_batches():
            self._driver.hurry_batch(batch)

    def hurry(self, deadline: float) -> None:
        """Have a broker that cannot be reached tried several times before the deadline, however long it would rest."""
        self._driver.hurry(deadline)

    def wait_for_outcome(self, seconds: float, settled: int) -> None:
        """Wait until more than `settled` records have an outcome, at most so long."""
        self._driver.completions.news.clear()
        if self._driver.completions.settled_records <= settled:
            self._driver.completions.news.wait(seconds)

    def unsent_records(self) -> int:
        """Records that were accepted and are not in a request yet."""
        return sum(batch.count for batch in self.unsettled() if not batch.attempts)

    def unsettled_records_of(self, broker_id: int) -> int:
        """Records without an outcome whose partition this broker leads now."""
        leader = self._cluster.metadata.leader
        return sum(batch.count for batch in self.unsettled() if (leader(batch.topic, batch.partition) or (-1,))[0] == broker_id)

    def know_topic(self, topic: str) -> int:
        """How many partitions the topic has; from now on the fast path takes it. Waits up to max_block_ms for metadata."""
        return self._know_topic(topic, self._handler.monotonic() + self.config.max_block_ms / 1000)

    def led_partitions(self, topic: str) -> list[int]:
        """The ids of a known topic's partitions that have a leader; of all while none has."""
        info = self._cluster.metadata.topic(topic)
        partitions = sorted(info.partitions.values(), key=lambda p: p.id) if info is not None else []
        return [p.id for p in partitions if p.leader >= 0] or [p.id for p in partitions]

    @property
    def takes_lanes(self) -> bool:
        """Does nothing of the user's stand in front of the append? Else a lane would pass it by."""
        return self._interceptors is None and not Intake.is_needed(self.config)

    def lane(self, owner: Any, topic: str) -> Lane:
        """The fast path of a producer of this one topic, see `gkafka.records.Lane`."""
        return records.Lane(owner, self._appender, topic, seed=self._chance.getrandbits(64))

    def raise_fatal(self) -> None:
        """Raise what ended the producer, if something did."""
        if self._driver.fatal is not None:
            raise self._driver.fatal

    def rest(self, seconds: float) -> None:
        """Let the worker sleep that long, not a second, while there is nothing to send."""
        self._driver.worker.idle_s = seconds

    # -- flush and close -------------------------------------------------------------------------------------------------------
    def flush(self, timeout: float | None = None) -> None:
        """Wait until everything produced before this call is delivered or failed, and its callbacks were called.

        timeout: seconds, None is delivery_timeout_ms. Raises KafkaTimeoutError if it passes (nothing is lost, delivery goes on; callbacks
        alone are no reason to), and DeliveryError listing the records that failed since the last flush() or close(): all of them, but for
        those whose memory newer records needed meanwhile, which are counted. Raises ProducerStoppedException if close() gave records up
        while this waited: close() lists them.
        """
        limit = self.config.delivery_timeout_ms / 1000 + TICK_S if timeout is None else check_wait("timeout", timeout)
        self.check_process()
        deadline = self._handler.monotonic() + limit
        waited = self._wait_settled(limit)
        self._driver.callbacks.wait(deadline)
        if self._closed and any(batch.error is not None for batch in waited):
            raise ProducerStoppedException(
                "the producer was closed while flush() waited: close() lists the records that were not delivered"
            )
        self._raise_failures()

    def _wait_settled(self, timeout: float) -> list[Batch]:
        """Wait for all that is not settled now; returns those batches."""
        deadline = self._handler.monotonic() + timeout
        with self._slow_lock:
            pass  # whoever is about to accept a record has done so, or finds the producer closed
        asked, seen = self._driver.all_owed(deadline), (-1, 0.0)
        for batch in asked.batches:
            seen = self._wait_flushed(batch, deadline, timeout, seen)
        return asked.batches

    def _wait_flushed(self, batch: Batch, deadline: float, timeout: float, seen: tuple[int, float]) -> tuple[int, float]:
        while not batch.done:
            if self._handler.monotonic() >= deadline:
                left = self._owed_records()
                raise KafkaTimeoutError(f"flush: {left} record(s) not delivered within {timeout:g} s; they are still being delivered")
            seen = self._look(seen, deadline)
            self._driver.hurry(deadline)
            self._driver.wait_for(batch, min(deadline, seen[1]))
            self.check_process()
        return seen

    def _look(self, seen: tuple[int, float], deadline: float) -> tuple[int, float]:
        """Say once to who flushes or closes that no record got an outcome for QUIET_S. seen: how many had one by the last look, and when to look next."""
        (settled, look_at), now = seen, self._handler.monotonic()
        if now < look_at:
            return seen
        if settled != self.settled_records:
            return self.settled_records, now + QUIET_S
        log.warning(
            "flush or close waits for %d record(s) that no broker has acknowledged, %g s without news so far: up to %.0f s more "
            "(a timeout bounds it, else delivery_timeout_ms=%g)",
            self._owed_records(),
            QUIET_S,
            deadline - now,
            self.config.delivery_timeout_ms,
        )
        return settled, deadline

    def _owed_records(self) -> int:
        return sum(batch.count for batch in self._driver.owed())

    def wait_settled(self) -> None:
        """For skins: flush() that tells of no failure; close() does."""
        self.check_process()
        limit = self.config.delivery_timeout_ms / 1000 + TICK_S
        deadline = self._handler.monotonic() + limit
        self._wait_settled(limit)
        self._driver.callbacks.wait(deadline)

    def heard(self, error: BaseException) -> None:
        """For skins: somebody was given this error of one record's delivery, so that neither flush() nor close() tells of it."""
        self._driver.failures.heard(error)

    def _raise_failures(self) -> None:
        error = self._driver.failures.take()
        if error is not None:
            raise error

    @ends
    def close(self, timeout: float | None = None) -> None:
        """Deliver what is left, have the callbacks called, then stop. Idempotent.

        timeout: seconds, None is delivery_timeout_ms. Records that are not delivered by then are failed. Raises DeliveryError listing
        every record that was not delivered since the last flush(), as flush() does; KafkaTimeoutError if a commit was under way and nobody
        knows how it ended.
        """
        began = self._handler.monotonic()
        limit = self.config.delivery_timeout_ms / 1000 + TICK_S if timeout is None else check_wait("timeout", timeout)
        if not self._driver.closed:
            self._handler.check_may_wait()
        try:
            if not self._driver.closed:
                self.check_process()
        except ForkedClientError:
            self._driver.closed = True
            raise
        finally:
            self._closed = True
            self._appender.fast = False
        if self._driver.closed:
            if self._delivered:  # nothing is left but what a close() that was cut short did not say
                self._driver.stop()
                self._close_own_cluster()
                self._raise_failures()
            return
        self._cluster.wake()  # whoever waits in produce() for a topic is refused
        left = limit
        if self._transactions is not None:
            rest = self._transactions.close(timeout)
            left = limit if rest is None else rest
        # Whoever is killed while it waits here leaves the rest to the next close(); one that comes meanwhile waits too.
        try:
            self._wait_settled(left)
        except KafkaTimeoutError:
            given_up = KafkaTimeoutError(f"the producer was closed: close() waited {limit:g} s for the record, then gave it up")
            self.gave_up = self.unsettled_by_topic()
            self._driver.give_up(given_up)
        self._delivered = True
        self._driver.stop(began + limit)
        self._close_own_cluster()
        if self._transactions is not None and self._transactions.failures_are_told:
            self._driver.failures.take()
        self._raise_failures()
        if self._transactions is not None and self._transactions.unclear is not None:
            raise self._transactions.unclear

    def _close_own_cluster(self) -> None:
        """After a fork with on_fork="recreate": nobody else ends what was made there."""
        if self._owns_cluster:
            self._cluster.close()
            self._handler.stop(self._handler.monotonic() + TICK_S)

    @property
    def handler(self) -> Handler:
        """What runs its workers."""
        return self._handler

    @property
    def cluster(self) -> Cluster:
        """The connections it uses; of its own after a fork with on_fork="recreate"."""
        return self._cluster

    @property
    def making(self) -> Any:
        """A lock for whoever builds on this producer; nothing waits under it."""
        return self._slow_lock

    def end_intake(self) -> None:
        """By who ends the interpreter, and may still produce: hooks of the program come behind. All others are refused from here on."""
        self._last_intake = self._handler.current_id()
        self._appender.fast = False

    @property
    def is_inherited(self) -> bool:
        """Is this process a forked child that has made nothing of its own here? What is held belongs to the parent then."""
        return self._pid != os.getpid()

    @property
    def holds_records(self) -> bool:
        """Is it this process's to send, and is something not delivered yet? Also behind a close() that was cut short: nothing is given up by that."""
        return not self.is_inherited and not self._driver.closed and self._driver.owes

    @property
    def open_transaction(self) -> str | None:
        """The state of its transaction, if that is this process's to commit and has not ended."""
        if self.is_inherited or self._driver.closed or self._transactions is None:
            return None
        return self._transactions.uncommitted

    def unsettled_by_topic(self) -> Counter[str]:
        """Records without an outcome, by topic."""
        counts: Counter[str] = Counter()
        for batch in self.unsettled():
            counts[batch.topic] += batch.count
        return +counts

    def unsettled(self) -> list[Batch]:
        """What has no outcome, for whoever may not take its locks."""
        return self._driver.unsettled()

    @property
    def settled_records(self) -> int:
        """Records whose outcome is known, good or bad."""
        settled: int = self._driver.completions.settled_records
        return settled

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
        if hasattr(self, "_pid") and self.holds_records and not self.reported:
            counts = self.unsettled_by_topic()
            log.error(
                "a producer was dropped without close(): %d undelivered record(s) are lost: %s", sum(counts.values()), lifetime.told(counts)
            )

    def stats(self) -> dict[str, Any]:
        """Counters: delivered, retried, split and unsettled records and batches, requests, epoch bumps, buffer."""
        self.check_process()
        unsettled = self.unsettled()
        return {
            "delivered_records": self._driver.completions.delivered,
            "failed_records": self._driver.completions.settled_records - self._driver.completions.delivered,
            "unsettled_batches": len(unsettled),
            "unsettled_records": sum(b.count for b in unsettled),
            "retried_batches": self._driver.sender.retried,
            "split_batches": self._driver.sender.splitter.splits,
            "requests": self._driver.sender.sent_requests,
            "restarts": self._driver.restarts,
            "epoch_bumps": self._driver.sender.epoch_bumps,
            "idempotence": self._driver.sender.state.value,
            "transaction": self._transactions.machine.state.value if self._transactions is not None else None,
            "producer_id": self._driver.sender.producer[0] if self._driver.sender.producer else -1,
            "buffer_bytes_free": self._appender.available,
            "interceptor_failures": self._interceptors.failures if self._interceptors is not None else 0,
        }
